/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c: makes and ends single-use interpreters (child.h has the theory of operation).
 *
 * A child is made in three steps, and nobody waits for any of them: the manager makes a sandbox; START, ATTACH, CHANNEL
 * and WAIT leave in one write; the program says READY. Then it is parked: its calls stay open, so that a claim is one
 * write. If it ends before that, lost() is called, exactly once, and never from within child_create().
 *
 * What an interpreter prints while it starts belongs to nobody: it is read and forgotten.
 */
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "sandbox/child/child_private.h"
#include "sandbox/processes.h"
#include "sandbox/sbox_place.h"

/* ---- life ------------------------------------------------------------------------------------------------- */

static struct link *const no_link;

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
    child->prog.link = &sbox->link;
    child->next = sbox->priv->children;
    sbox->priv->children = child;
}

void child_forget_sandbox(struct child *child)
{
    sbox_drop_stats(child->sbox, child);
    unlist(child);
    child->sbox = NULL;
    child->prog.link = &no_link;
}

bool child_is_counted(const struct child *child)
{
    return !child->guest && child->sbox->priv->provider->counts;
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
    program_done(&child->prog);
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
    mem_free(child->argv);
    mem_free(child->env);
    kept_done(child->manager, child->caller.org_id, child->prog.kept);
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
        if (stats->memory_bytes != BRIG_USAGE_UNKNOWN && child->state == CHILD_PARKED)
            child->memory = stats->memory_bytes;
    }
    child_measured(child);
}

static bool is_ready(const struct frames *frames)
{
    AUTO_JSON struct json_doc *doc = NULL;

    if (json_read(frames->payload.data, frames->payload.len, JSON_READ_VALUES, &doc, NULL) < 0)
        return false;
    const struct json_value *ready = json_get(json_root(doc), "ready");
    return ready && ready->type != JSON_NULL;
}

static void park(struct child *child)
{
    if (!is_ready(&child->frames) || child->frames.more) {
        fail(child, "its first words are not READY");
        return;
    }
    child->talk = CHILD_READY;
    if (child->state == CHILD_CLAIMED) { /* from its birth */
        frames_begin(&child->frames, child->claim.answer_max);
        child_send(child);
        return;
    }
    frames_done(&child->frames);
    program_at(&child->prog, INT64_MAX);
    child->state = CHILD_PARKED;
    child->measuring = sbox_stats(child->sbox, on_parked_stats, child, NULL) == 0;
    child->events.parked(child->events.ctx, child);
}

static void on_said(struct program *program, const uint8_t *data, size_t len)
{
    struct child *child = program->owner;

    if (program->state >= PROGRAM_JUDGING)
        return;
    if (child->talk == CHILD_READY) {
        fail(child, "it spoke without being asked");
        return;
    }
    int r = frames_take(&child->frames, data, len);
    if (r < 0)
        fail(child, "out of memory");
    else if (child->talk != CHILD_SILENT)
        child_run_data(child);
    else if (child->frames.too_large)
        fail(child, "its first words are not READY");
    else if (child->frames.complete)
        park(child);
}

static void on_output(struct program *program, unsigned stream, const uint8_t *data, size_t len)
{
    struct child *child = program->owner;

    if (child->state == CHILD_CLAIMED)
        child_run_output(child, stream, data, len);
}

static void on_writable(struct program *program)
{
    struct child *child = program->owner;

    if (child->state == CHILD_CLAIMED && child->talk >= CHILD_ASKED)
        child_send(child);
}

/* The link's own end says nothing: the sandbox's end follows, and knows why. */
static void on_answered(struct program *program, uint32_t errnum)
{
    struct child *child = program->owner;

    if (errnum == ENOTCONN)
        return;
    if (child->state == CHILD_CLAIMED && !program_waits(program))
        child_run_over(child);
    else if (child->state < CHILD_CLAIMED && !program->wait)
        fail(child, program->start_errnum ? strerrordesc_np((int)program->start_errnum) : "it has ended by itself");
}

static void on_over(struct program *program)
{
    child_run_over(program->owner);
}

static void on_clock(struct program *program)
{
    struct child *child = program->owner;

    if (child->state == CHILD_CLAIMED)
        child_run_clock(child);
    else if (child->state == CHILD_MAKING)
        fail(child, "it did not become ready in time");
}

static const struct program_events program_events = {.answered = on_answered,
                                                     .output = on_output,
                                                     .said = on_said,
                                                     .writable = on_writable,
                                                     .clock = on_clock,
                                                     .over = on_over};

/* Sends START (unless the program is there already), ATTACH, CHANNEL and WAIT at once. */
static int child_open(struct child *child, struct brig_err *err)
{
    if (!child->sbox->link)
        return err_set(err, BRIG_E_GONE, 0, "sandbox %s does not answer any more", sbox_label(child->sbox));
    frames_begin(&child->frames, CHILD_READY_MAX);
    int r = child->zygote ? 0 : child_start(child, err);
    r = r < 0 ? r : program_attach(&child->prog, err);
    /* The numbers of the run come with the second frame, which is the answer. */
    r = r < 0 ? r : program_channel(&child->prog, child_is_counted(child) ? 2 : 0, err);
    return r < 0 ? r : program_wait(&child->prog, child->sbox->link, err);
}

/* ---- the sandbox's end ------------------------------------------------------------------------------------- */

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
    struct provider *provider = NULL;
    struct sbox *sbox = NULL;

    if (!child)
        return err_nomem(err);
    child->manager = manager;
    program_init(&child->prog, manager->loop, &no_link, &program_events, child);
    child->events = *events;
    child->prog.number = CHILD_PROC;
    child->memory = CHILD_MEMORY_GUESS;
    child->network = spec->network;
    /* a zygote is the host's own interpreter */
    child->zygote = spec->zygote && place_find(manager, spec->provider ? spec->provider : "", &provider, NULL) == 0 &&
                    (provider->ops->caps & PROVIDER_ZYGOTE) &&
                    (!spec->template_name || str_eq(spec->template_name, "host"));
    str_assign(caller.org_id, spec->org_id);
    int r = loop_timer_set(manager->loop, &child->prog.timer, loop_now_ns() + CHILD_PARK_NS, err);
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
    program_init(&child->prog, sbox->manager->loop, &sbox->link, &program_events, child);
    child->guest = true;
    r = loop_timer_set(sbox->manager->loop, &child->prog.timer, loop_now_ns() + CHILD_PARK_NS, err);
    r = r < 0 ? r : sbox_take_number(sbox, &child->prog.number, err);
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
