/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_rig.h: a manager on a provider that the tests play, with a real store (SQLite in a directory of its own) and
 * an audit that remembers what it was told. Boxes are made and ended in the next round of the loop, unless a case holds
 * them.
 */
#ifndef BRIG_TESTS_SANDBOX_RIG_H
#define BRIG_TESTS_SANDBOX_RIG_H

#include "sandbox_peer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/mem.h"
#include "sandbox/private.h"
#include "sandbox/process.h"
#include "sandbox/processes.h"

#define ORG "org-00000000-0000-4000-8000-000000000000"
#define ORG2 "org-00000000-0000-4000-8000-000000000002"

/* ---- the audit ------------------------------------------------------------------------------------------- */

struct audit {
    char *text; /* "action|actor|org|object|outcome|detail|request[|sync]\n" each */
    size_t len;
    uint64_t seq;
};

bool audit_busy(const struct audit *audit UNUSED)
{
    return false;
}

uint64_t audit_add(struct audit *audit, const struct audit_event *event, void (*done)(void *ctx, int error) UNUSED,
                   void *ctx UNUSED)
{
    char line[2048];
    int n = snprintf(line, sizeof line, "%s|%s|%s|%s|%s|%s|%s%s\n", event->action, event->actor, event->org,
                     event->object, event->outcome, event->detail, event->request_id, event->sync ? "|sync" : "");

    assert_true(n > 0 && (size_t)n < sizeof line);
    audit->text = realloc(audit->text, audit->len + (size_t)n + 1); /* not through mem.h: cases make that fail */
    assert_non_null(audit->text);
    memcpy(audit->text + audit->len, line, (size_t)n + 1);
    audit->len += (size_t)n;
    return ++audit->seq;
}

/* ---- the provider ---------------------------------------------------------------------------------------- */

struct fake;
struct fake_box {
    struct box box;
    struct fake *fake;
    struct fake_box *next;
    char id[32];
    struct loop_timer up, end;
    struct box_end how;
    struct peer *peer;
    bool is_up, ending, frozen;
    void (*freeze_done)(void *ctx, const struct brig_err *err);
    void *freeze_ctx;
    struct loop_timer freeze;
    void (*stats_done)(void *ctx, const struct box_stats *stats, const struct brig_err *err);
    void *stats_ctx;
    struct loop_timer stats;
    void (*attach_done)(void *ctx, int fd, const struct brig_err *err);
    void *attach_ctx;
    struct loop_timer attach;
    void (*limits_done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err);
    void *limits_ctx;
    struct brig_limits limits;
    struct loop_timer limiting;
};

struct fake {
    struct provider provider;
    struct provider_ops ops;
    struct fake_box *boxes;
    unsigned n_boxes, made, orphans_ended;
    bool hold_up, hold_end, hold_freeze, fail_create, fail_freeze;
    bool hold_limits, fail_limits, hold_stats;
    unsigned n_limits;
    const char *fail_up; /* comes up dead, with this detail */
    enum brig_cause fail_cause;
    struct box_stats stats_are;
    struct provider_spec last;
    uint64_t word; /* layers that are only its word */
    unsigned pool;
    struct loop_timer recover;
    bool (*found)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret);
    void (*recovered)(void *ctx);
    void *recover_ctx;
};

static inline void fake_free(struct fake_box *box)
{
    struct loop *loop = box->fake->provider.loop;
    struct fake_box **at = &box->fake->boxes;

    while (*at != box)
        at = &(*at)->next;
    *at = box->next;
    box->fake->n_boxes--;
    loop_timer_clear(loop, &box->up);
    loop_timer_clear(loop, &box->end);
    loop_timer_clear(loop, &box->freeze);
    loop_timer_clear(loop, &box->stats);
    loop_timer_clear(loop, &box->attach);
    loop_timer_clear(loop, &box->limiting);
    if (box->peer)
        peer_done(box->peer);
    free(box->peer);
    free(box);
}

static inline void fake_soon(struct fake_box *box, struct loop_timer *timer, loop_timer_fn *fn)
{
    *timer = timer->pos ? *timer : (struct loop_timer){.fn = fn, .ctx = box};
    timer->fn = fn;
    timer->ctx = box;
    assert_int_equal(loop_timer_set(box->fake->provider.loop, timer, loop_now_ns(), NULL), 0);
}

/* They are in force in the next round; hold_limits: never. */
static inline void fake_limited(struct loop_timer *timer)
{
    struct fake_box *box = timer->ctx;
    struct brig_err err = {.code = BRIG_E_HOST, .message = "no"};
    void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err) = take_ptr(&box->limits_done);

    if (box->fake->fail_limits)
        done(box->limits_ctx, NULL, &err);
    else
        done(box->limits_ctx, &box->limits, NULL);
}

static inline int fake_limits(struct box *b, const struct brig_limits *limits,
                              void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err),
                              void *ctx, struct brig_err *err UNUSED)
{
    struct fake_box *box = (struct fake_box *)b;

    box->limits = *limits;
    box->limits_done = done;
    box->limits_ctx = ctx;
    box->fake->n_limits++;
    if (!box->fake->hold_limits)
        fake_soon(box, &box->limiting, fake_limited);
    return 0;
}

static inline void fake_ended(struct loop_timer *timer)
{
    struct fake_box *box = timer->ctx;
    struct box_events events = box->box.events;
    struct box_end how = box->how;
    struct brig_err gone = {.code = BRIG_E_GONE, .message = "the sandbox ended"};

    if (box->freeze_done)
        box->freeze_done(box->freeze_ctx, &gone);
    if (box->stats_done)
        box->stats_done(box->stats_ctx, NULL, &gone);
    if (box->attach_done)
        box->attach_done(box->attach_ctx, -1, &gone);
    if (box->peer)
        peer_close(box->peer);
    fake_free(box);
    if (events.ended)
        events.ended(events.ctx, &how);
}

/* It dies by itself. */
static inline void fake_die(struct fake_box *box, enum brig_cause cause, const char *detail)
{
    box->how = (struct box_end){.cause = cause, .ended_at_ns = clock_real_ns(), .usage = {.wall_ms = 5, .cpu_ms = 3}};
    snprintf(box->how.detail, sizeof box->how.detail, "%s", detail);
    box->ending = true;
    fake_soon(box, &box->end, fake_ended);
}

static inline void fake_fill(const struct fake_box *box, struct box_up *up)
{
    *up = (struct box_up){.id = box->id, .stream_fd = -1, .protection_complete = true, .word = box->fake->word};
    up->limits = (struct brig_limits){
        .memory = 512u << 20, .cpus = 1000, .pids = 128, .disk = 256u << 20, .timeout = 300000, .output = 10u << 20};
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        up->layers[i] = (struct brig_layer_state){.on = true, .by = "", .why = ""};
}

static inline int fake_stream(struct fake_box *box)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    if (!box->peer) {
        box->peer = calloc(1, sizeof *box->peer);
        assert_non_null(box->peer);
        box->peer->fd = -1;
    } else {
        loop_remove(box->fake->provider.loop, &box->peer->source);
        base_close_fd(&box->peer->fd);
        buf_done(&box->peer->in);
        buf_done(&box->peer->open);
        buf_done(&box->peer->send);
    }
    peer_init(box->peer, box->fake->provider.loop, pair[1]);
    return pair[0];
}

static inline void fake_up(struct loop_timer *timer)
{
    struct fake_box *box = timer->ctx;
    struct box_up up;

    if (box->fake->fail_up) {
        fake_die(box, box->fake->fail_cause, box->fake->fail_up);
        return;
    }
    fake_fill(box, &up);
    up.stream_fd = fake_stream(box);
    if (box->fake->last.limits.memory)
        up.limits.memory = box->fake->last.limits.memory;
    if (box->fake->last.limits.output)
        up.limits.output = box->fake->last.limits.output;
    struct box_listeners listeners = {.n = 1, .what = {{80, GATE_TCP, AF_INET6}}, .fds = {dup(STDIN_FILENO)}};
    up.listeners = box->fake->last.gate.on ? &listeners : NULL;
    box->is_up = true;
    box->box.events.up(box->box.events.ctx, &up);
    base_close_fd(&up.stream_fd);
    base_close_fd(&listeners.fds[0]);
}

static inline struct fake_box *fake_add(struct fake *fake, const char *id)
{
    struct fake_box *box = calloc(1, sizeof *box);

    assert_non_null(box);
    box->fake = fake;
    box->box.provider = &fake->provider;
    if (id)
        snprintf(box->id, sizeof box->id, "%s", id);
    else
        assert_int_equal(id_sandbox(box->id), 0);
    box->next = fake->boxes;
    fake->boxes = box;
    fake->n_boxes++;
    return box;
}

static inline int fake_create(struct provider *provider, const struct provider_spec *spec,
                              const struct box_events *events, struct box **ret, struct brig_err *err)
{
    struct fake *fake = (struct fake *)provider;

    if (fake->fail_create)
        return err_set(err, BRIG_E_HOST, ENOSPC, "make a box");
    struct fake_box *box = fake_add(fake, NULL);
    box->box.events = *events;
    fake->made++;
    fake->last = *spec;
    if (!fake->hold_up)
        fake_soon(box, &box->up, fake_up);
    *ret = &box->box;
    return 0;
}

static inline void fake_end(struct box *b)
{
    struct fake_box *box = (struct fake_box *)b;

    if (box->ending)
        return;
    box->ending = true;
    box->how = (struct box_end){
        .cause = BRIG_CAUSE_CANCELLED, .ended_at_ns = clock_real_ns(), .usage = {.wall_ms = 7, .cpu_ms = 2}};
    loop_timer_clear(box->fake->provider.loop, &box->up);
    if (!box->fake->hold_end)
        fake_soon(box, &box->end, fake_ended);
}

static inline void fake_frozen(struct loop_timer *timer)
{
    struct fake_box *box = timer->ctx;
    struct brig_err err = {.code = BRIG_E_HOST, .message = "freezer"};
    void (*done)(void *ctx, const struct brig_err *e) = box->freeze_done;

    box->freeze_done = NULL;
    done(box->freeze_ctx, box->fake->fail_freeze ? &err : NULL);
}

static inline int fake_freeze(struct box *b, bool on, void (*done)(void *ctx, const struct brig_err *err), void *ctx,
                              struct brig_err *err)
{
    struct fake_box *box = (struct fake_box *)b;

    if (box->ending)
        return err_set(err, BRIG_E_CONFLICT, 0, "ending");
    box->frozen = on;
    box->freeze_done = done;
    box->freeze_ctx = ctx;
    if (!box->fake->hold_freeze)
        fake_soon(box, &box->freeze, fake_frozen);
    return 0;
}

static inline void fake_stats_are(struct loop_timer *timer)
{
    struct fake_box *box = timer->ctx;
    void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *e) = box->stats_done;

    box->stats_done = NULL;
    done(box->stats_ctx, &box->fake->stats_are, NULL);
}

static inline int fake_stats(struct box *b,
                             void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
                             void *ctx, struct brig_err *err)
{
    struct fake_box *box = (struct fake_box *)b;

    if (box->ending || box->stats_done)
        return err_set(err, BRIG_E_CONFLICT, 0, "ending, or asked already");
    box->stats_done = done;
    box->stats_ctx = ctx;
    if (!box->fake->hold_stats)
        fake_soon(box, &box->stats, fake_stats_are);
    return 0;
}

static inline void fake_attached(struct loop_timer *timer)
{
    struct fake_box *box = timer->ctx;
    void (*done)(void *ctx, int fd, const struct brig_err *e) = box->attach_done;

    box->attach_done = NULL;
    done(box->attach_ctx, fake_stream(box), NULL);
}

static inline int fake_attach(struct box *b, void (*done)(void *ctx, int fd, const struct brig_err *err), void *ctx,
                              struct brig_err *err UNUSED)
{
    struct fake_box *box = (struct fake_box *)b;

    box->attach_done = done;
    box->attach_ctx = ctx;
    fake_soon(box, &box->attach, fake_attached);
    return 0;
}

static inline void fake_recovered(struct loop_timer *timer)
{
    struct fake *fake = timer->ctx;

    for (struct fake_box *box = fake->boxes, *next; box; box = next) {
        struct box_up up;
        next = box->next;
        fake_fill(box, &up);
        if (!fake->found(fake->recover_ctx, &box->box, &up, &box->box.events)) {
            fake->orphans_ended++;
            fake_end(&box->box);
        }
    }
    fake->recovered(fake->recover_ctx);
}

static inline int fake_recover(struct provider *provider,
                               bool (*found)(void *ctx, struct box *box, const struct box_up *up,
                                             struct box_events *ret),
                               void (*done)(void *ctx), void *ctx, struct brig_err *err)
{
    struct fake *fake = (struct fake *)provider;

    fake->found = found;
    fake->recovered = done;
    fake->recover_ctx = ctx;
    fake->recover = (struct loop_timer){.fn = fake_recovered, .ctx = fake};
    return loop_timer_set(provider->loop, &fake->recover, loop_now_ns(), err);
}

static inline int fake_pool(struct provider *provider, unsigned count, struct brig_err *err UNUSED)
{
    ((struct fake *)provider)->pool = count;
    return 0;
}

/* ---- the rig --------------------------------------------------------------------------------------------- */

struct rig {
    char dir[64], path[96], url[128];
    struct loop *loop;
    struct workers *workers;
    struct store *store;
    struct audit audit;
    struct fake fake;
    struct config config;
    struct manager *manager;
    struct caller caller;
    struct templates *templates; /* a case's own; NULL: there are none */
    struct providers *providers; /* a case's own; NULL: there is only `fake` */
    bool ready;
};

static inline void rig_ready(void *ctx)
{
    ((struct rig *)ctx)->ready = true;
}

static inline void rig_run(struct rig *rig, int rounds)
{
    while (rounds-- > 0)
        assert_int_equal(loop_run_once(rig->loop, 0, NULL), 0);
}

/* Runs the loop until the condition holds, at most ten seconds. */
#define RIG_UNTIL(rig, condition)                                      \
    do {                                                               \
        uint64_t until_ = clock_mono_ns() + 10 * NS_PER_SEC;           \
        while (!(condition)) {                                         \
            assert_int_equal(loop_run_once((rig)->loop, 20, NULL), 0); \
            if (clock_mono_ns() > until_)                              \
                fail_msg("timed out waiting for %s", #condition);      \
        }                                                              \
    } while (0)

static inline void rig_start(struct rig *rig)
{
    struct brig_err err = {0};
    const struct manager_options options = {.loop = rig->loop,
                                            .provider = &rig->fake.provider,
                                            .providers = rig->providers,
                                            .store = rig->store,
                                            .audit = &rig->audit,
                                            .config = &rig->config,
                                            .templates = rig->templates};

    rig->ready = false;
    if (manager_create(&options, rig_ready, rig, &rig->manager, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, rig->ready);
}

static inline void rig_open_store(struct rig *rig)
{
    struct brig_err err = {0};

    if (store_open(rig->loop, rig->workers, rig->url, &rig->store, &err) < 0)
        fail_msg("%s", err.message);
}

static inline struct rig *rig_create(void)
{
    struct rig *rig = calloc(1, sizeof *rig);

    assert_non_null(rig);
    sandbox_clock_skew = 0;
    assert_int_equal(loop_create(&rig->loop, NULL), 0);
    assert_int_equal(workers_create(rig->loop, 2, &rig->workers, NULL), 0);
    snprintf(rig->dir, sizeof rig->dir, "/tmp/brig-manager-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    snprintf(rig->path, sizeof rig->path, "%s/brig.db", rig->dir);
    snprintf(rig->url, sizeof rig->url, "sqlite:%s", rig->path);
    rig_open_store(rig);
    rig->fake.ops =
        (struct provider_ops){.name = "fake",
                              .caps = PROVIDER_PAUSE | PROVIDER_BINDS | PROVIDER_ROOTFS | PROVIDER_WRITABLE_ROOT |
                                      PROVIDER_RECOVER | PROVIDER_POOL | PROVIDER_LIMITS,
                              .protects = BRIG_LAYER_BIT(BRIG_LAYER_MAX) - 1,
                              .create = fake_create,
                              .attach = fake_attach,
                              .freeze = fake_freeze,
                              .stats = fake_stats,
                              .end = fake_end,
                              .recover = fake_recover,
                              .pool = fake_pool,
                              .limits = fake_limits};
    rig->fake.provider = (struct provider){.ops = &rig->fake.ops, .loop = rig->loop, .counts = true};
    rig->config = (struct config){.max_sandboxes = 100,
                                  .idle_timeout_s = 3600,
                                  .cleanup_interval = 300,
                                  .gate_private_ranges = (char *)(uintptr_t) "admin",
                                  .pool = 4,
                                  .create_queue = 1024,
                                  .keep_runs_seconds = 86400,
                                  .keep_runs_bytes = 1u << 30,
                                  .image = (char *)(uintptr_t) "host",
                                  .work_dir = (char *)(uintptr_t) "/workspace",
                                  .on_shutdown = (char *)(uintptr_t) "kill"};
    rig->caller = (struct caller){
        .org_id = ORG, .key_id = "key-1", .actor = "key-1", .role = STORE_ROLE_USER, .request_id = "req-1"};
    rig_start(rig);
    return rig;
}

static inline void rig_stop_manager(struct rig *rig)
{
    manager_destroy(rig->manager);
    rig->manager = NULL;
}

static inline void rig_done(struct rig *rig)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock"};

    rig_stop_manager(rig);
    while (rig->fake.boxes)
        fake_free(rig->fake.boxes);
    store_close(rig->store);
    workers_destroy(rig->workers);
    loop_destroy(rig->loop);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", rig->path, ends[i]);
        unlink(path);
    }
    rmdir(rig->dir);
    free(rig->audit.text);
    free(rig);
}

static inline bool rig_audited(const struct rig *rig, const char *text)
{
    return rig->audit.text && strstr(rig->audit.text, text) != NULL;
}

/* ---- what is asked for ----------------------------------------------------------------------------------- */

struct got {
    unsigned n;
    struct sbox *sbox;
    bool failed;
    struct brig_err err;
    char *text; /* receipt or JSON */
    struct process *process;
    struct shell *shell;
    struct box_stats stats;
};

static inline UNUSED void got_sbox(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->sbox = sbox;
    got->failed = err != NULL;
    if (err)
        got->err = *err;
}

static inline UNUSED void got_text(void *ctx, const char *text, size_t len, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->failed = err != NULL;
    if (err)
        got->err = *err;
    free(got->text);
    got->text = text ? strndup(text, len) : NULL;
}

static inline struct json_doc *rig_json(const char *text)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(text, strlen(text), JSON_READ_VALUES, &doc, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

static inline int rig_spec(struct rig *rig, const char *text, struct sbox_spec *ret, struct brig_err *err)
{
    struct json_doc *doc = rig_json(text);
    int r = sbox_spec_parse(json_root(doc), &rig->config, rig->templates, &rig->caller, ret, err);

    json_doc_free(doc);
    return r;
}

static inline int rig_ask(struct rig *rig, const char *text, const char *key, uint8_t print, struct got *got)
{
    struct sbox_spec spec;
    uint8_t fingerprint[32] = {print};

    if (rig_spec(rig, text, &spec, &got->err) < 0)
        fail_msg("%s: %s", text, got->err.message);
    return manager_create_sandbox(rig->manager, &rig->caller, &spec, key, fingerprint, got_sbox, got, &got->err);
}

static inline struct sbox *rig_sandbox(struct rig *rig, const char *text)
{
    struct got got = {0};

    if (rig_ask(rig, text, NULL, 0, &got) < 0)
        fail_msg("%s", got.err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    return got.sbox;
}

static inline struct fake_box *rig_box(struct sbox *sbox)
{
    return (struct fake_box *)sbox->priv->box;
}

static inline struct peer *rig_peer(struct sbox *sbox)
{
    return rig_box(sbox)->peer;
}

static inline void rig_end(struct rig *rig, struct sbox *sbox)
{
    struct got got = {0};

    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_false(got.failed);
}

struct rows {
    unsigned n, calls;
    char *last;
};

static inline UNUSED void got_rows(void *ctx, const char *const *docs, const char *const *ids UNUSED, size_t n,
                                   bool more UNUSED, const struct brig_err *err)
{
    struct rows *rows = ctx;

    assert_null(err);
    rows->calls++;
    rows->n = (unsigned)n;
    free(rows->last);
    rows->last = n ? strdup(docs[0]) : NULL;
}

/* The newest document of a query; free() it. */
static inline UNUSED char *rig_find(struct rig *rig, bool certificates, const char *sandbox_id, const char *cause,
                                    unsigned *ret_n)
{
    struct store_query query = {.org_id = ORG, .sandbox_id = sandbox_id, .cause = cause, .limit = 100};
    struct rows rows = {0};

    if (certificates) {
        query.id = sandbox_id;
        query.sandbox_id = NULL;
    }
    assert_int_equal(certificates ? store_find_certificates(rig->store, &query, got_rows, &rows, NULL)
                                  : store_find_runs(rig->store, &query, got_rows, &rows, NULL),
                     0);
    RIG_UNTIL(rig, rows.calls);
    if (ret_n)
        *ret_n = rows.n;
    return rows.last;
}

/* Flushes what is queued: a write of our own that is answered comes after all before it. */
static inline UNUSED void rig_written(void *ctx, const struct brig_err *err UNUSED)
{
    *(bool *)ctx = true;
}
static inline UNUSED void rig_flush(struct rig *rig)
{
    bool done = false;
    const struct store_org org = {.id = ORG, .name = "default", .doc = "{}"};

    assert_int_equal(store_put_org(rig->store, &org, rig_written, &done, NULL), 0);
    RIG_UNTIL(rig, done);
}

#define CASE(name)                                 \
    {                                              \
#name, name, rig_setup, rig_teardown, NULL \
    }
static inline UNUSED int rig_setup(void **state)
{
    *state = rig_create();
    return 0;
}
static inline UNUSED int rig_teardown(void **state)
{
    rig_done(*state);
    return 0;
}

#endif
