/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c: single-use interpreters, until somebody needs them; and their end (child.h has the theory of operation).
 *
 * A child is made in three steps, none of which anybody waits for: the manager makes a sandbox, START, ATTACH, CHANNEL
 * and WAIT leave in one write, and the program says READY. Then it is parked: its calls stay open, so that a claim is
 * one write. Whatever ends before that is told by lost(), exactly once, and never from within child_create().
 *
 * What an interpreter prints while it starts is nobody's: it is read and forgotten.
 */
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "sandbox/child/child_private.h"
#include "sandbox/processes.h"

/* ---- life ------------------------------------------------------------------------------------------------- */

static void drop(struct call **call)
{
    if (*call)
        call_drop(take_ptr(call));
}

static void unlist(struct child *child)
{
    struct child **at = child->sbox ? &child->sbox->priv->children : NULL;

    while (at && *at && *at != child)
        at = &(*at)->next;
    if (at && *at)
        *at = child->next;
}

static void enlist(struct child *child, struct sbox *sbox)
{
    child->sbox = sbox;
    child->next = sbox->priv->children;
    sbox->priv->children = child;
}

void child_forget_sandbox(struct child *child)
{
    sbox_drop_stats(child->sbox, child);
    unlist(child);
    child->sbox = NULL;
}

struct child_ask *child_ask_new(struct child *child)
{
    struct child_ask *ask = mem_zalloc(sizeof *ask);

    if (ask)
        ask->child = child;
    return ask;
}

struct child *child_answered(struct child_ask *ask)
{
    struct child *child = ask->child;

    if (child && child->network_ask == ask)
        child->network_ask = NULL;
    if (child && child->counts_ask == ask)
        child->counts_ask = NULL;
    mem_free(ask);
    return child;
}

void child_free(struct child *child)
{
    if (child->network_ask)
        child->network_ask->child = NULL;
    if (child->counts_ask)
        child->counts_ask->child = NULL;
    loop_timer_clear(child->manager->loop, &child->timer);
    drop(&child->starting);
    drop(&child->attach);
    drop(&child->channel);
    drop(&child->wait);
    if (child->sbox) {
        sbox_drop_stats(child->sbox, child);
        if (child->guest && child->state >= CHILD_CLAIMED)
            sbox_release(child->sbox);
    }
    unlist(child);
    frames_done(&child->frames);
    if (child->request)
        crypto_wipe(child->request, child->request_len);
    mem_free(child->request);
    mem_free(child->memory_of);
    kept_done(child->manager, child->caller.org_id, &child->output[1]);
    kept_done(child->manager, child->caller.org_id, &child->output[2]);
    mem_free(child);
}

void child_end_sandbox(struct child *child, const char *why)
{
    struct sbox *sbox = child->sbox;

    if (!sbox || child->guest)
        return;
    sbox->priv->create_done = NULL;
    child_forget_sandbox(child);
    (void)!sbox_end(sbox, NULL, why, NULL, NULL, NULL); /* unless it ends already */
}

void child_end(struct child *child)
{
    if (!child)
        return;
    child_end_sandbox(child, "unused");
    child_free(child);
}

static void lose(struct child *child, const struct brig_err *why)
{
    struct child_events events = child->events;
    struct brig_err copy = *why;

    child->state = CHILD_ENDING;
    child_end_sandbox(child, "lost");
    if (events.lost)
        events.lost(events.ctx, child, &copy);
    child_free(child);
}

/* It cannot be used any more, claimed or not. */
static void fail(struct child *child, const char *what)
{
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_HOST, 0, "interpreter: %s", what);
    if (child->state == CHILD_CLAIMED)
        child_verdict(child, BRIG_CAUSE_HOST_ERROR, err.message);
    else
        lose(child, &err);
}

enum child_state child_state(const struct child *child)
{
    return child->state;
}

uint64_t child_memory(const struct child *child)
{
    return child->memory;
}

const char *child_sandbox_id(const struct child *child)
{
    return child->sbox ? child->sbox->id : "";
}

bool child_of_zygote(const struct child *child)
{
    return child->zygote;
}

struct sbox *child_sbox(struct child *child)
{
    return child->sbox;
}

/* ---- what comes from inside -------------------------------------------------------------------------------- */

/* How much it is: for the pool's budget, and what the run did not use itself. Nobody waits for it. */
static void on_parked_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct child *child = ctx;

    child->measuring = false;
    if (!err) {
        child->parked = *stats;
        child->has_parked = true;
        if (stats->memory_bytes != BRIG_USAGE_UNKNOWN && child->state == CHILD_PARKED)
            child->memory = stats->memory_bytes;
    }
    child_measured(child);
}

static bool is_ready(const struct frames *frames)
{
    struct json_doc *doc = NULL;
    const struct json_value *ready = NULL;

    if (json_read(frames->payload.data, frames->payload.len, JSON_READ_VALUES, &doc, NULL) == 0 &&
        json_root(doc)->type == JSON_OBJECT)
        ready = json_get(json_root(doc), "ready");
    bool ok = ready && ready->type != JSON_NULL;
    json_doc_free(doc);
    return ok;
}

static void park(struct child *child)
{
    if (!is_ready(&child->frames) || child->frames.more) {
        fail(child, "its first words are not READY");
        return;
    }
    child->ready = true;
    if (child->state == CHILD_CLAIMED) { /* from its birth */
        frames_begin(&child->frames, child->claim.answer_max);
        child_send(child);
        return;
    }
    frames_done(&child->frames);
    child_set_timer(child, INT64_MAX);
    child->state = CHILD_PARKED;
    child->measuring = sbox_stats(child->sbox, on_parked_stats, child, NULL) == 0;
    child->events.parked(child->events.ctx, child);
}

static void on_channel(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct child *child = ctx;

    call_consumed(child->channel, stream, len);
    if (child->over)
        return;
    if (child->ready && !child->sent) { /* nobody has asked anything */
        fail(child, "it spoke without being asked");
        return;
    }
    int r = frames_take(&child->frames, data, len);
    if (r < 0)
        fail(child, "out of memory");
    else if (child->ready)
        child_run_data(child);
    else if (child->frames.too_large)
        fail(child, "its first words are not READY");
    else if (child->frames.complete)
        park(child);
}

static void on_output(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct child *child = ctx;

    call_consumed(child->attach, stream, len);
    if (child->state == CHILD_CLAIMED)
        child_run_output(child, stream, data, len);
}

static void on_writable(void *ctx)
{
    struct child *child = ctx;

    if (child->state == CHILD_CLAIMED && child->sent)
        child_send(child);
}

/* An answer to one of its calls. The link's own end says nothing: the sandbox's end follows, and knows why. */
static void answered(struct child *child, uint32_t errnum)
{
    if (errnum == ENOTCONN)
        return;
    if (child->state == CHILD_CLAIMED)
        child_run_check(child);
    else if (child->state < CHILD_CLAIMED && !child->wait)
        fail(child, child->start_errnum ? strerrordesc_np((int)child->start_errnum) : "it has ended by itself");
}

static void on_started(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct child *child = ctx;

    child->starting = NULL;
    child->start_errnum = errnum == ENOTCONN ? 0 : errnum;
    if (errnum)
        answered(child, errnum);
}

static void on_attach_over(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                           size_t len UNUSED)
{
    struct child *child = ctx;

    child->attach = NULL;
    answered(child, errnum);
}

static void on_channel_over(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                            size_t len UNUSED)
{
    struct child *child = ctx;

    child->channel = NULL;
    answered(child, errnum);
}

static void on_waited(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct child *child = ctx;

    child->wait = NULL;
    child->has_exit = errnum == 0 && svc_proc_exit_parse(data, len, &child->exit) == 0;
    answered(child, errnum);
}

int child_open(struct child *child, struct brig_err *err)
{
    struct link *link = child->sbox->link;
    const struct svc_proc_attach msg = {.proc = child->number, .streams = 1u << BRIG_STDOUT | 1u << BRIG_STDERR};
    const struct call_events started = {.reply = on_started, .ctx = child},
                             output = {.data = on_output, .reply = on_attach_over, .ctx = child},
                             channel = {.data = on_channel,
                                        .writable = on_writable,
                                        .reply = on_channel_over,
                                        .ctx = child},
                             waited = {.reply = on_waited, .ctx = child};
    /* Of its own sandbox, the numbers of the run come with the second frame, which is the answer. */
    uint8_t number[8], attach[64];
    struct svc_cursor out = {number, number + sizeof number, false};
    AUTO_BUF struct buf start = BUF_INIT(SVC_OPEN_MAX);
    int n = svc_proc_attach_put(attach, sizeof attach, &msg), r = 0;

    if (!link)
        return err_set(err, BRIG_E_GONE, 0, "sandbox %s does not answer any more", sbox_label(child->sbox));
    svc_put_u32(&out, child->number);
    svc_put_u32(&out, child->guest ? 0 : 2);
    frames_begin(&child->frames, CHILD_READY_MAX);
    if (!child->zygote)
        r = child_start_message(child, &start, err);
    if (r == 0 && !child->zygote)
        r = link_call(link, SVC_PROC_START, start.data, start.len, &started, &child->starting, err);
    r = r < 0 ? r : link_call(link, SVC_PROC_ATTACH, attach, (size_t)(n > 0 ? n : 0), &output, &child->attach, err);
    r = r < 0 ? r : link_call(link, SVC_CHANNEL, number, sizeof number, &channel, &child->channel, err);
    return r < 0 ? r : link_call(link, SVC_PROC_WAIT, number, 4, &waited, &child->wait, err);
}

/* ---- the clock, and the sandbox's end ----------------------------------------------------------------------- */

static void on_timer(struct loop_timer *timer)
{
    struct child *child = timer->ctx;

    if (child->state == CHILD_CLAIMED)
        child_run_clock(child);
    else if (child->state == CHILD_MAKING)
        fail(child, "it did not become ready in time");
}

void child_set_timer(struct child *child, uint64_t at_ns)
{
    child->timer.fn = on_timer;
    child->timer.ctx = child;
    (void)!loop_timer_set(child->manager->loop, &child->timer, at_ns, NULL); /* moves it: it was set when it was made */
}

void children_gone(struct sbox *sbox)
{
    const struct sbox_private *priv = sbox->priv;

    while (sbox->priv->children) {
        struct child *child = sbox->priv->children;
        struct brig_err err = {0};

        if (child->state == CHILD_CLAIMED) {
            child_run_gone(child);
            continue;
        }
        if (child->state == CHILD_ENDING) { /* its files are gone with it; child_release() is still to come */
            child_forget_sandbox(child);
            continue;
        }
        (void)err_set(&err, BRIG_E_GONE, 0, "the interpreter's sandbox has ended: %s",
                      priv->end.detail[0] ? priv->end.detail : brig_cause_name(priv->end.cause));
        child_forget_sandbox(child); /* which needs no ending */
        lose(child, &err);
    }
}

void children_counted(void *ctx, const struct box_stats *stats)
{
    struct child *child = ((struct sbox *)ctx)->priv->children;

    if (child && !child->guest)
        child_run_counted(child, stats);
}

void children_free(struct sbox *sbox)
{
    while (sbox->priv->children)
        child_free(sbox->priv->children);
}

/* ---- making ------------------------------------------------------------------------------------------------- */

static void on_created(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err)
{
    struct child *child = ctx;
    struct brig_err why = {0};

    if (err) {
        unlist(child);
        child->sbox = NULL; /* it never was */
        lose(child, err);
        return;
    }
    if (child_open(child, &why) < 0)
        lose(child, &why);
}

int child_create(struct manager *manager, const struct child_spec *spec, const struct child_events *events,
                 struct child **ret, struct brig_err *err)
{
    struct child *child = mem_zalloc(sizeof *child);
    struct caller caller = {.role = STORE_ROLE_ADMIN, .actor = "system"};
    struct sbox_spec asked = {0};
    struct sbox *sbox = NULL;

    if (!child)
        return err_nomem(err);
    child->manager = manager;
    child->events = *events;
    child->number = CHILD_PROC;
    child->memory = CHILD_MEMORY_GUESS;
    child->network = spec->network;
    child->verdict = BRIG_CAUSE_MAX;
    /* a zygote is the host's own interpreter */
    child->zygote = spec->zygote && (manager->provider->ops->caps & PROVIDER_ZYGOTE) &&
                    (!spec->template_name || str_eq(spec->template_name, "host"));
    snprintf(caller.org_id, sizeof caller.org_id, "%s", spec->org_id);
    child->timer.fn = on_timer;
    child->timer.ctx = child;
    int r = loop_timer_set(manager->loop, &child->timer, loop_now_ns() + CHILD_PARK_NS, err);
    r = r < 0 ? r : child_sandbox_spec(manager, spec, child->zygote, &asked, err);
    r = r < 0 ? r : child_copy_lists(child, spec, err);
    r = r < 0 ? r : manager_create_internal(manager, &caller, &asked, on_created, child, &sbox, err);
    if (r < 0) {
        sbox_spec_done(&asked);
        child_free(child);
        return r;
    }
    sbox->next_proc = CHILD_PROC + 1;
    enlist(child, sbox);
    *ret = child;
    return 0;
}

/* ---- in somebody else's sandbox ------------------------------------------------------------------------------- */

int child_in_sandbox(struct sbox *sbox, const struct child_spec *spec, const struct child_claim *claim,
                     struct child **ret, struct brig_err *err)
{
    int r = sbox_usable(sbox, err);

    if (r == 0 && claim->limits.cpu_time)
        r = err_set(err, BRIG_E_UNSUPPORTED, 0,
                    "limits.cpu_time: nothing counts it in a long-lived sandbox; use cpus and timeout");
    struct child *child = r < 0 ? NULL : mem_zalloc(sizeof *child);
    if (r < 0 || !child)
        return r < 0 ? r : err_nomem(err);
    child->manager = sbox->manager;
    child->guest = true;
    child->verdict = BRIG_CAUSE_MAX;
    child->timer.fn = on_timer;
    child->timer.ctx = child;
    r = loop_timer_set(sbox->manager->loop, &child->timer, loop_now_ns() + CHILD_PARK_NS, err);
    r = r < 0 ? r : sbox_take_number(sbox, &child->number, err);
    r = r < 0 ? r : child_copy_lists(child, spec, err);
    if (r == 0) {
        enlist(child, sbox);
        r = child_claim_begin(child, claim, err);
    }
    r = r < 0 ? r : child_open(child, err);
    if (r < 0) {
        child_free(child);
        return r;
    }
    *ret = child;
    return 0;
}
