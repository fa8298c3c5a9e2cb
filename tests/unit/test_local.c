/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider `local` against a spawner that is played here: what it asks, what it makes of the answers, and what it
 * does with messages that were meant for somebody before it.
 */
#include "unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "provider/provider.h"
#include "spawner/spawner_wire.h"

/* What was called back, in order: "up1 ended1 ..." */
static char heard[4096];
static struct box_up last_up;
static struct box_end last_end;
static struct box_stats last_stats;
static char last_id[32], last_error[256];
static int last_stream;
static bool want_found;

struct test {
    struct loop *loop;
    struct provider *provider;
    int spawner; /* its end */
    int ours;
};

static void note(const char *what, const void *ctx)
{
    size_t len = strlen(heard);

    snprintf(heard + len, sizeof heard - len, "%s%s%s", len ? " " : "", what, ctx ? (const char *)ctx : "");
}

static void on_up(void *ctx, struct box_up *up)
{
    note("up", ctx);
    last_up = *up;
    snprintf(last_id, sizeof last_id, "%s", up->id);
    last_stream = take_fd(&up->stream_fd);
}

static void on_ended(void *ctx, const struct box_end *end)
{
    note("ended", ctx);
    last_end = *end;
}

static void on_attached(void *ctx, int fd, const struct brig_err *err)
{
    note(err ? "unattached" : "attached", ctx);
    assert_int_equal(fd >= 0, !err);
    last_stream = fd;
    snprintf(last_error, sizeof last_error, "%s", err ? err->message : "");
}

static void on_frozen(void *ctx, const struct brig_err *err)
{
    note(err ? "unfrozen" : "frozen", ctx);
}

static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    note(err ? "unstats" : "stats", ctx);
    if (stats)
        last_stats = *stats;
    assert_int_equal(stats != NULL, err == NULL);
}

static struct box *found[8];
static unsigned n_found;

static bool on_found(void *ctx UNUSED, struct box *box, const struct box_up *up, struct box_events *ret)
{
    note("found:", up->id);
    last_up = *up;
    found[n_found++] = box;
    *ret = (struct box_events){.up = on_up, .ended = on_ended, .ctx = (void *)"F"};
    return want_found;
}

static void on_recovered(void *ctx)
{
    note("recovered", ctx);
}

static void on_gone(void *ctx, const struct brig_err *why)
{
    note("gone", ctx);
    snprintf(last_error, sizeof last_error, "%s", why->message);
}

/* ---- the spawner ------------------------------------------------------------------------------------- */

static void tell(struct test *t, const void *msg, const int *fd)
{
    assert_int_equal(fd_send(t->spawner, msg, wire_size(((const struct wire_head *)msg)->type), fd, fd ? 1 : 0), 0);
}

static struct wire_head head(enum wire_type type, uint64_t run)
{
    return (struct wire_head){WIRE_MAGIC, WIRE_VERSION, (uint16_t)type, run};
}

/* The next message of the provider; its descriptor or -1. */
static union wire_any next(struct test *t, enum wire_type type, int *ret_fd)
{
    union wire_any msg;
    int fds[WIRE_FDS];
    size_t n = 0;
    ssize_t len = fd_recv_nowait(t->spawner, &msg, sizeof msg, fds, WIRE_FDS, &n);

    assert_true(len > 0);
    assert_int_equal(wire_check(&msg, (size_t)len), 0);
    assert_int_equal(msg.head.type, type);
    if (ret_fd)
        *ret_fd = take_fd(&fds[0]);
    fd_close_all(fds, n);
    return msg;
}

static void assert_silent(struct test *t)
{
    char byte[4096];

    assert_int_equal(recv(t->spawner, byte, sizeof byte, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void started(struct test *t, enum wire_type type, uint64_t run, const char *id, const int *fd)
{
    struct wire_started msg = {.head = head(type, run), .limits = {.memory = 1234}};

    snprintf(msg.sandbox_id, sizeof msg.sandbox_id, "%s", id);
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        msg.readings[i].on = 1;
    tell(t, &msg, fd);
}

static void done(struct test *t, uint64_t run, enum brig_cause cause, const char *detail)
{
    struct wire_done msg = {.head = head(WIRE_DONE, run), .cause = cause, .usage = {.cpu_ms = 77}};

    snprintf(msg.detail, sizeof msg.detail, "%s", detail);
    tell(t, &msg, NULL);
}

static void list_end(struct test *t, uint64_t list, uint64_t highest)
{
    const struct wire_ready msg = {.head = head(WIRE_LIST_END, highest), .rootless = 2, .image_store = 0, .list = list};

    tell(t, &msg, NULL);
}

static void turn(struct test *t)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(t->loop, 0, NULL), 0);
}

static void assert_heard(const char *what)
{
    assert_string_equal(heard, what);
    heard[0] = '\0';
}

/* ---- each test begins with a provider that has recovered, or not --------------------------------------- */

static int begin(void **state)
{
    static struct test t;
    int pair[2];

    t = (struct test){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    t.ours = pair[0];
    t.spawner = pair[1];
    assert_int_equal(loop_create(&t.loop, NULL), 0);
    assert_int_equal(provider_local_create(t.loop, t.ours, &t.provider, NULL), 0);
    t.provider->gone = on_gone;
    heard[0] = '\0';
    n_found = 0;
    want_found = true;
    last_stream = -1;
    *state = &t;
    return 0;
}

static int begin_recovered(void **state)
{
    begin(state);
    struct test *t = *state;
    assert_int_equal(t->provider->ops->recover(t->provider, on_found, on_recovered, NULL, NULL), 0);
    list_end(t, next(t, WIRE_LIST, NULL).head.run, 4);
    turn(t);
    assert_heard("recovered");
    return 0;
}

static int end(void **state)
{
    struct test *t = *state;

    t->provider->ops->destroy(t->provider);
    loop_destroy(t->loop);
    close(t->ours);
    base_close_fd(&t->spawner);
    base_close_fd(&last_stream);
    return 0;
}

static struct box *create(struct test *t, const char *key)
{
    const struct provider_spec spec = {.limits = {.memory = 100 << 20}};
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = (void *)(uintptr_t)key};
    struct box *box = NULL;

    assert_int_equal(t->provider->ops->create(t->provider, &spec, &events, &box, NULL), 0);
    assert_ptr_equal(box->provider, t->provider);
    return box;
}

static struct box *create_up(struct test *t, const char *key)
{
    struct box *box = create(t, key);
    uint64_t run = next(t, WIRE_RUN, NULL).head.run;

    started(t, WIRE_STARTED, run, key, &t->ours);
    turn(t);
    heard[0] = '\0';
    base_close_fd(&last_stream);
    return box;
}

/* ---- tests ------------------------------------------------------------------------------------------- */

static void created(void **state)
{
    struct test *t = *state;
    const struct brig_bind binds[] = {{"/srv/a", "/a", true, false}, {"/srv/b", "/b", false, false}};
    const struct provider_spec spec = {.limits = {.memory = 100 << 20, .pids = 9},
                                       .require = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP),
                                       .binds = binds,
                                       .n_binds = 2,
                                       .rootfs = "/srv/root",
                                       .writable_root = true};
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = (void *)"A"};
    struct box *box;
    char strings[256] = "";
    int fd;

    assert_int_equal(t->provider->ops->create(t->provider, &spec, &events, &box, NULL), 0);
    union wire_any msg = next(t, WIRE_RUN, &fd);
    assert_int_equal(msg.head.run, 5); /* after the highest there ever was */
    assert_int_equal(msg.run.flags, WIRE_RUN_SERVICE | BRIG_RUN_WRITABLE_ROOT);
    assert_int_equal(msg.run.limits.pids, 9);
    assert_int_equal(msg.run.n_argv + msg.run.n_env, 0);
    assert_int_equal(msg.run.binds_ro, 1);
    assert_int_equal(msg.run.require, spec.require);
    assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(pread(fd, strings, sizeof strings, 0), msg.run.strings_len);
    assert_memory_equal(strings, "/workspace\0\0/srv/root\0/srv/a\0/a\0/srv/b\0/b", msg.run.strings_len);
    close(fd);
    turn(t);
    assert_heard("");
    started(t, WIRE_STARTED, 5, "thebox", &t->spawner);
    turn(t);
    assert_heard("upA");
    assert_string_equal(last_id, "thebox");
    assert_int_equal(last_up.limits.memory, 1234);
    assert_true(last_up.protection_complete && last_up.layers[0].on);
    assert_true(last_stream >= 0);
    done(t, 5, BRIG_CAUSE_OOM, "too much");
    turn(t);
    assert_heard("endedA");
    assert_int_equal(last_end.cause, BRIG_CAUSE_OOM);
    assert_int_equal(last_end.usage.cpu_ms, 77);
    assert_string_equal(last_end.detail, "too much");
}

static void refused(void **state)
{
    struct test *t = *state;

    create(t, "A");
    done(t, 5, BRIG_CAUSE_POLICY, "no");
    turn(t);
    assert_heard("endedA");
}

static void bad_specs(void **state)
{
    struct test *t = *state;
    const struct brig_bind relative[] = {{"x", "/x", true, false}}, taken[] = {{"/x", "/usr", true, false}},
                           none[33] = {{0}};
    const struct {
        struct provider_spec spec;
        const char *says;
        enum brig_code code;
    } cases[] = {
        {{.limits = {.memory = 1}}, "memory 1: must be between", BRIG_E_USAGE},
        {{.limits = {.memory = 8 << 20, .disk = 8 << 20}},
         "disk 8388608: the store is memory-backed here",
         BRIG_E_USAGE},
        {{.profile = BRIG_PROFILE_MAX}, "profile 3: unknown", BRIG_E_USAGE},
        {{.require = UINT64_C(1) << 63}, "require: unknown layers", BRIG_E_USAGE},
        {{.binds = relative, .n_binds = 1}, "bind source x: must be absolute", BRIG_E_USAGE},
        {{.binds = taken, .n_binds = 1}, "bind target /usr: the sandbox's own /usr", BRIG_E_USAGE},
        {{.binds = none, .n_binds = 33}, "33 binds: at most 32", BRIG_E_USAGE},
        {{.rootfs = "x"}, "rootfs x: must be absolute", BRIG_E_USAGE},
        {{.rootfs = "/etc/passwd"}, "rootfs /etc/passwd: must be a directory", BRIG_E_UNSUPPORTED},
    };
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = NULL};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct box *box = (struct box *)t;
        struct brig_err err = {0};
        assert_true(t->provider->ops->create(t->provider, &cases[i].spec, &events, &box, &err) < 0);
        assert_ptr_equal(box, t);
        assert_int_equal(err.code, cases[i].code);
        assert_non_null(strstr(err.message, cases[i].says));
    }
    assert_silent(t);
    turn(t);
    assert_heard("");
}

static void questions(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A"), *b = create_up(t, "B");
    const struct wire_answer attached = {.head = head(WIRE_ATTACHED, 5)}, frozen = {.head = head(WIRE_FROZEN, 6)};
    struct wire_answer failed = {.head = head(WIRE_ATTACHED, 5), .err = {.code = BRIG_E_BUSY, .message = "not now"}};
    const struct wire_stats stats = {.head = head(WIRE_STATS_ARE, 5), .cpu_ns = 1, .pids_refused = 11};

    assert_int_equal(t->provider->ops->attach(a, on_attached, (void *)"1", NULL), 0);
    assert_int_equal(t->provider->ops->stats(a, on_stats, (void *)"2", NULL), 0);
    assert_int_equal(t->provider->ops->freeze(b, true, on_frozen, (void *)"3", NULL), 0);
    assert_int_equal(t->provider->ops->attach(a, on_attached, (void *)"4", NULL), 0);
    assert_int_equal(next(t, WIRE_ATTACH, NULL).head.run, 5);
    assert_int_equal(next(t, WIRE_STATS, NULL).head.run, 5);
    assert_int_equal(next(t, WIRE_FREEZE, NULL).freeze.on, 1);
    assert_int_equal(next(t, WIRE_ATTACH, NULL).head.run, 5);
    tell(t, &frozen, NULL);
    tell(t, &stats, NULL);
    tell(t, &attached, &t->spawner);
    turn(t);
    assert_heard("frozen3 stats2 attached1");
    assert_int_equal(last_stats.pids_refused, 11);
    base_close_fd(&last_stream);
    tell(t, &failed, NULL);
    turn(t);
    assert_heard("unattached4");
    assert_string_equal(last_error, "not now");
    tell(t, &attached, &t->spawner); /* nobody asked */
    tell(t, &stats, NULL);
    turn(t);
    assert_heard("");
}

static uint64_t counted_cpu;

static void on_counted(void *ctx, const struct box_stats *stats)
{
    note("counted", ctx);
    counted_cpu = stats->cpu_ns;
}

/* Unasked, and no answer to a question; not of one that ends. */
static void counted_unasked(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A");
    const struct wire_stats said = {.head = head(WIRE_COUNTED, 5), .cpu_ns = 7};

    assert_int_equal(t->provider->ops->stats(a, on_stats, (void *)"1", NULL), 0);
    next(t, WIRE_STATS, NULL);
    tell(t, &said, NULL); /* nobody wants to know */
    turn(t);
    assert_heard("");
    a->events.counted = on_counted;
    tell(t, &said, NULL);
    turn(t);
    assert_heard("countedA");
    assert_int_equal(counted_cpu, 7);
    t->provider->ops->end(a);
    tell(t, &said, NULL);
    turn(t);
    assert_heard("");
}

static struct brig_limits last_limits;

static void on_limits(void *ctx, const struct brig_limits *limits, const struct brig_err *err)
{
    note(err ? "unlimited" : "limited", ctx);
    if (limits)
        last_limits = *limits;
    if (err)
        snprintf(last_error, sizeof last_error, "%s", err->message);
}

static void limits_of_a_live_box(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A");
    const struct brig_limits want = {.memory = 64u << 20, .cpus = 500, .pids = 10, .disk = 1},
                             less = {.memory = 64u << 20, .cpus = 500}, bad = {.memory = 1, .cpus = 500, .pids = 10};
    const struct wire_limits_are are = {.head = head(WIRE_LIMITS_ARE, 5), .memory = 1, .cpus = 2, .pids = 3};
    const struct wire_limits_are refused = {.head = head(WIRE_LIMITS_ARE, 5),
                                            .err = {.code = BRIG_E_CONFLICT, .message = "in use"}};
    struct brig_err err;

    assert_true(t->provider->ops->limits(a, &less, on_limits, (void *)"0", &err) < 0);
    assert_true(t->provider->ops->limits(a, &bad, on_limits, (void *)"0", &err) < 0);
    assert_non_null(strstr(err.message, "memory 1"));
    assert_silent(t);
    assert_int_equal(t->provider->ops->limits(a, &want, on_limits, (void *)"1", NULL), 0);
    assert_int_equal(t->provider->ops->limits(a, &want, on_limits, (void *)"2", NULL), 0);
    union wire_any asked = next(t, WIRE_LIMITS, NULL);
    assert_int_equal(asked.limits.memory, 64u << 20);
    assert_int_equal(asked.limits.cpus, 500);
    assert_int_equal(asked.limits.pids, 10);
    next(t, WIRE_LIMITS, NULL);
    tell(t, &are, NULL);
    tell(t, &refused, NULL);
    tell(t, &are, NULL); /* nobody asked */
    turn(t);
    assert_heard("limited1 unlimited2");
    assert_int_equal(last_limits.pids, 3);
    assert_string_equal(last_error, "in use");
}

/* An answer without the stream that it promises is not a success. */
static void no_stream(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A");
    const struct wire_answer attached = {.head = head(WIRE_ATTACHED, 5)};

    assert_int_equal(t->provider->ops->attach(a, on_attached, (void *)"1", NULL), 0);
    tell(t, &attached, NULL);
    turn(t);
    assert_heard("unattached1");
}

static void questions_die_with_the_box(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A");

    assert_int_equal(t->provider->ops->attach(a, on_attached, (void *)"1", NULL), 0);
    assert_int_equal(t->provider->ops->freeze(a, true, on_frozen, (void *)"2", NULL), 0);
    assert_int_equal(t->provider->ops->stats(a, on_stats, (void *)"3", NULL), 0);
    done(t, 5, BRIG_CAUSE_SANDBOX_GONE, "");
    turn(t);
    assert_heard("unattached1 unfrozen2 unstats3 endedA");
}

static void ended(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A"), *b = create(t, "B");
    struct brig_err err;

    next(t, WIRE_RUN, NULL);
    t->provider->ops->end(a);
    t->provider->ops->end(a);
    union wire_any msg = next(t, WIRE_KILL, NULL);
    assert_int_equal(msg.head.run, 5);
    assert_int_equal(msg.kill.cause, BRIG_CAUSE_CANCELLED);
    assert_true(t->provider->ops->attach(a, on_attached, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_true(t->provider->ops->stats(b, on_stats, NULL, &err) < 0); /* not up yet */
    /* Ended before it was up: the stream that still comes is nobody's. */
    t->provider->ops->end(b);
    assert_int_equal(next(t, WIRE_KILL, NULL).head.run, 6);
    started(t, WIRE_STARTED, 6, "b", &t->spawner);
    done(t, 6, BRIG_CAUSE_CANCELLED, "");
    done(t, 5, BRIG_CAUSE_CANCELLED, "");
    turn(t);
    assert_heard("endedB endedA");
    assert_silent(t);
}

static void recovered_boxes(void **state)
{
    struct test *t = *state;
    const struct wire_ready ready = {.head = head(WIRE_READY, 0)};
    const struct wire_stats stats = {.head = head(WIRE_STATS_ARE, 3)};
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = NULL};
    struct box *box;
    struct brig_err err;

    /* A predecessor's: READY, an answer, a list that is not ours, one that came up. */
    tell(t, &ready, NULL);
    tell(t, &stats, NULL);
    started(t, WIRE_LISTED, 9, "stale", NULL);
    list_end(t, 1, 9);
    started(t, WIRE_STARTED, 3, "three", &t->spawner);
    assert_int_equal(t->provider->ops->recover(t->provider, on_found, on_recovered, NULL, NULL), 0);
    assert_true(t->provider->ops->recover(t->provider, on_found, on_recovered, NULL, &err) < 0);
    assert_true(t->provider->ops->create(t->provider, &(struct provider_spec){0}, &events, &box, &err) < 0);
    assert_int_equal(err.code, BRIG_E_BUSY);
    uint64_t list = next(t, WIRE_LIST, NULL).head.run;
    turn(t);
    assert_heard("");
    started(t, WIRE_LISTED, 3, "three", NULL);
    started(t, WIRE_LISTED, 2, "two", NULL);
    list_end(t, list, 7);
    turn(t);
    assert_heard("found:three found:two recovered");
    assert_int_equal(t->provider->rootless, 2);
    assert_int_equal(last_up.stream_fd, -1);
    assert_int_equal(last_up.limits.memory, 1234);
    assert_silent(t);
    assert_int_equal(t->provider->ops->attach(found[0], on_attached, NULL, NULL), 0);
    assert_int_equal(next(t, WIRE_ATTACH, NULL).head.run, 3);
    create(t, "A");
    assert_int_equal(next(t, WIRE_RUN, NULL).head.run, 8);
    /* Was being made when the list was: nobody's. */
    started(t, WIRE_STARTED, 6, "six", &t->spawner);
    turn(t);
    assert_int_equal(next(t, WIRE_KILL, NULL).head.run, 6);
    done(t, 6, BRIG_CAUSE_CANCELLED, "");
    done(t, 2, BRIG_CAUSE_OOM, "");
    turn(t);
    assert_heard("endedF");
}

static void unwanted_boxes(void **state)
{
    struct test *t = *state;

    want_found = false;
    assert_int_equal(t->provider->ops->recover(t->provider, on_found, on_recovered, NULL, NULL), 0);
    uint64_t list = next(t, WIRE_LIST, NULL).head.run;
    started(t, WIRE_LISTED, 2, "two", NULL);
    list_end(t, list, 2);
    turn(t);
    assert_heard("found:two recovered");
    assert_int_equal(next(t, WIRE_KILL, NULL).head.run, 2);
    done(t, 2, BRIG_CAUSE_CANCELLED, "");
    turn(t);
    assert_heard("endedF"); /* nothing of it lives any more */
}

static void spawner_dies(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A");
    struct brig_err err;
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = NULL};

    create(t, "B");
    assert_int_equal(t->provider->ops->stats(a, on_stats, (void *)"1", NULL), 0);
    base_close_fd(&t->spawner);
    t->provider->ops->end(a); /* said to nobody */
    turn(t);
    assert_heard("endedB unstats1 endedA gone");
    assert_int_equal(last_end.cause, BRIG_CAUSE_SANDBOX_GONE);
    assert_true(t->provider->ops->create(t->provider, &(struct provider_spec){0}, &events, &a, &err) < 0);
    assert_int_equal(err.code, BRIG_E_GONE);
    assert_true(t->provider->ops->pool(t->provider, 1, &err) < 0);
}

static void spawner_fails_to_start(void **state)
{
    struct test *t = *state;
    const struct wire_ready ready = {.head = head(WIRE_READY, 0), .err = {.code = BRIG_E_HOST, .message = "no /usr"}};

    assert_int_equal(t->provider->ops->recover(t->provider, on_found, on_recovered, NULL, NULL), 0);
    tell(t, &ready, NULL);
    turn(t);
    assert_heard("recovered gone"); /* nothing was found, and then that */
    assert_string_equal(last_error, "no /usr");
}

static void nonsense(void **state)
{
    struct test *t = *state;

    assert_int_equal(send(t->spawner, "hello", 5, 0), 5);
    turn(t);
    assert_heard("gone");
}

/* A spawner that does not read: requests wait, then are refused; ends always wait, and follow what they end. */
static void full_socket(void **state)
{
    struct test *t = *state;
    const struct provider_spec spec = {0};
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = (void *)""};
    struct box *box, *last = NULL;
    struct brig_err err = {0};
    unsigned n = 0, runs = 0, kills = 0;

    while (n < 20000 && t->provider->ops->create(t->provider, &spec, &events, &box, &err) == 0) {
        last = box;
        n++;
    }
    assert_int_equal(err.code, BRIG_E_BUSY);
    t->provider->ops->end(last);
    for (int idle = 0; idle < 3;) {
        union wire_any msg;
        int fds[WIRE_FDS];
        size_t n_fds;
        ssize_t len = fd_recv_nowait(t->spawner, &msg, sizeof msg, fds, WIRE_FDS, &n_fds);
        if (len < 0) {
            turn(t);
            idle++;
            continue;
        }
        idle = 0;
        assert_true(kills == 0);
        runs += msg.head.type == WIRE_RUN;
        kills += msg.head.type == WIRE_KILL;
        fd_close_all(fds, n_fds);
    }
    assert_int_equal(runs, n);
    assert_int_equal(kills, 1);
    assert_int_equal(t->provider->ops->pool(t->provider, 3, NULL), 0);
    assert_int_equal(next(t, WIRE_POOL, NULL).pool.count, 3);
}

/* Whatever allocation fails: an error or an answer, never both and never none. */
static void out_of_memory(void **state UNUSED)
{
    size_t fds = unit_count_fds();

    for (size_t n = 0;; n++) {
        void *fresh;
        begin_recovered(&fresh);
        struct test *t = fresh;
        const struct provider_spec spec = {0};
        const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = (void *)"A"};
        struct box *box;
        struct brig_err err = {0};
        mem_fail_after(n);
        int r = t->provider->ops->create(t->provider, &spec, &events, &box, &err);
        if (r == 0) {
            int fd;
            next(t, WIRE_RUN, &fd);
            close(fd);
            started(t, WIRE_STARTED, 5, "a", &t->spawner);
            turn(t);
            assert_heard("upA");
            r = t->provider->ops->attach(box, on_attached, NULL, &err);
        } else {
            assert_silent(t);
        }
        if (r < 0)
            assert_int_equal(err.code, BRIG_E_NOMEM);
        mem_fail_after(MEM_FAIL_NEVER);
        turn(t);
        assert_heard("");
        end(&fresh);
        if (r == 0)
            break;
    }
    assert_int_equal(unit_count_fds(), fds);
}

static void destroyed_with_boxes(void **state)
{
    struct test *t = *state;
    struct box *a = create_up(t, "A");

    create(t, "B");
    assert_int_equal(t->provider->ops->attach(a, on_attached, NULL, NULL), 0);
    t->provider->ops->end(a);
    /* end(state) destroys it: they live on, and nobody is told */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(created, begin_recovered, end),
        cmocka_unit_test_setup_teardown(refused, begin_recovered, end),
        cmocka_unit_test_setup_teardown(bad_specs, begin_recovered, end),
        cmocka_unit_test_setup_teardown(questions, begin_recovered, end),
        cmocka_unit_test_setup_teardown(counted_unasked, begin_recovered, end),
        cmocka_unit_test_setup_teardown(limits_of_a_live_box, begin_recovered, end),
        cmocka_unit_test_setup_teardown(no_stream, begin_recovered, end),
        cmocka_unit_test_setup_teardown(questions_die_with_the_box, begin_recovered, end),
        cmocka_unit_test_setup_teardown(ended, begin_recovered, end),
        cmocka_unit_test_setup_teardown(recovered_boxes, begin, end),
        cmocka_unit_test_setup_teardown(unwanted_boxes, begin, end),
        cmocka_unit_test_setup_teardown(spawner_dies, begin_recovered, end),
        cmocka_unit_test_setup_teardown(spawner_fails_to_start, begin, end),
        cmocka_unit_test_setup_teardown(nonsense, begin_recovered, end),
        cmocka_unit_test_setup_teardown(full_socket, begin_recovered, end),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test_setup_teardown(destroyed_with_boxes, begin_recovered, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
