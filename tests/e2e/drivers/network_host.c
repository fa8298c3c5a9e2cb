/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_host.c: runs with a network in a host of the library, beside a brig-egress that misbehaves (rogue_egress.c,
 * which the policy's name tells how). Whatever it does: the run ends, as a fault of the host or a refusal, nothing is
 * left, and the next run gets a new one.
 */
#include <brig.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static struct brig_run *start_named(struct brig_engine *engine, const char *name, const char *script, unsigned flags)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const struct brig_spec spec = {
        .size = sizeof spec, .argv = argv, .flags = flags, .network = "{\"default\":\"deny\"}", .network_name = name};
    struct brig_run *run = NULL;

    EXPECT(brig_run_start(engine, &spec, &run, &host_err) == 0);
    EXPECT(!brig_run_done(run));
    return run;
}

static void expect_cause(struct brig_run *run, enum brig_cause cause, const char *detail)
{
    const struct brig_receipt *r = wait_for(run);

    if (r->cause != cause || strcmp(r->detail, detail) != 0)
        fprintf(stderr, "%s: %s\n", brig_cause_name(r->cause), r->detail);
    EXPECT(r->cause == cause);
    EXPECT(strcmp(r->detail, detail) == 0);
    EXPECT(brig_exit_status(r) == 125);
    EXPECT(r->started_at_ns > 0 && r->ended_at_ns >= r->started_at_ns);
    brig_run_destroy(run);
}

static void expect_fine(struct brig_engine *engine)
{
    struct brig_run *run = start_named(engine, "fine", "exit 7", 0);
    const struct brig_receipt *r = wait_for(run);

    EXPECT(r->cause == BRIG_CAUSE_EXITED && r->exit_code == 7);
    EXPECT(strcmp(r->network.policy, "fine") == 0 && r->network.version == 1);
    brig_run_destroy(run);
}

static void refused(void)
{
    struct brig_engine *engine = make_engine(0);

    expect_cause(start_named(engine, "refuse-policy", "echo ran", 0), BRIG_CAUSE_POLICY,
                 "network: rules[0].domain: not to my taste");
    expect_fine(engine);
    brig_engine_destroy(engine);
}

static void dies(void)
{
    struct brig_engine *engine = make_engine(0);

    expect_cause(start_named(engine, "die-at-prepare", "echo ran", 0), BRIG_CAUSE_HOST_ERROR,
                 "network: brig-egress died");
    expect_fine(engine);
    expect_cause(start_named(engine, "die-at-listen", "exec sleep 1000", 0), BRIG_CAUSE_HOST_ERROR,
                 "network: brig-egress died");
    expect_fine(engine);
    expect_cause(start_named(engine, "die-at-forget", "exit 0", 0), BRIG_CAUSE_HOST_ERROR, "network: brig-egress died");
    expect_fine(engine);
    expect_cause(start_named(engine, "refuse-listen", "exec sleep 1000", 0), BRIG_CAUSE_HOST_ERROR,
                 "too many listeners");
    expect_fine(engine);
    brig_engine_destroy(engine);
}

/* One brings down those beside it, but not one without a network. */
static void dies_under_others(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *plain = start_shell(engine, "sleep 0.5; exit 3", 0), *others[4];

    for (int i = 0; i < 4; i++)
        others[i] = start_named(engine, "fine", "exec sleep 1000", 0);
    for (int i = 0; i < 30; i++)
        EXPECT(brig_engine_dispatch(engine, 10, &host_err) == 0);
    struct brig_run *killer = start_named(engine, "die-at-prepare", "true", 0);
    for (int i = 0; i < 4; i++)
        expect_cause(others[i], BRIG_CAUSE_HOST_ERROR, "network: brig-egress died");
    expect_cause(killer, BRIG_CAUSE_HOST_ERROR, "network: brig-egress died");
    EXPECT(wait_for(plain)->exit_code == 3);
    brig_engine_destroy(engine);
}

static void mute(void)
{
    struct brig_engine *engine = make_engine(0);

    expect_cause(start_named(engine, "mute-at-prepare", "echo ran", 0), BRIG_CAUSE_HOST_ERROR,
                 "network: brig-egress does not answer");
    expect_fine(engine);
    expect_cause(start_named(engine, "mute-at-forget", "exit 0", 0), BRIG_CAUSE_HOST_ERROR,
                 "network: brig-egress does not answer");
    expect_fine(engine);
    brig_engine_destroy(engine);
}

static void cancelled(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_named(engine, "fine", "echo ran", 0);

    brig_run_cancel(run); /* before brig-egress has said anything */
    EXPECT(!brig_run_done(run));
    expect_cause(run, BRIG_CAUSE_CANCELLED, "");
    brig_run_destroy(start_named(engine, "fine", "exec sleep 1000", 0));
    run = start_named(engine, "fine", "exec sleep 1000", 0);
    for (int i = 0; i < 30; i++)
        EXPECT(brig_engine_dispatch(engine, 10, &host_err) == 0);
    brig_run_cancel(run);
    expect_cause(run, BRIG_CAUSE_CANCELLED, "");
    expect_fine(engine);
    start_named(engine, "fine", "exec sleep 1000", 0); /* and one goes with the engine */
    brig_engine_destroy(engine);
}

static void counted(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_named(engine, "count", "exit 0", 0);
    const struct brig_receipt *r = wait_for(run);

    EXPECT(r->cause == BRIG_CAUSE_EXITED && r->usage.net_in_bytes == 10 && r->usage.net_out_bytes == 20);
    EXPECT(r->network.allowed == 3 && r->network.denied == 3 && r->limits_hit == 1u << BRIG_LIMIT_NET_BYTES_IN);
    EXPECT(!r->learned);
    brig_run_destroy(run);
    run = start_named(engine, "learn", "exit 0", BRIG_RUN_LEARN);
    r = wait_for(run);
    EXPECT(r->learned && strstr(r->learned, "one.test") && strstr(r->learned, "two.test"));
    EXPECT(!strstr(r->learned, "never.test") && !strstr(r->learned, "another"));
    char *json = NULL;
    size_t len = 0;
    EXPECT(brig_receipt_json(r, &json, &len, &host_err) == 0);
    puts(json);
    free(json);
    brig_run_destroy(run);
    brig_engine_destroy(engine);
}

/* No child of ours, no SIGCHLD, no descriptor more than before; and none of it at all without a network. */
static void left_alone(void)
{
    size_t before = count_fds();
    struct brig_engine *engine = make_engine(0);
    size_t with_engine = count_fds();
    struct brig_run *run = start_shell(engine, "exit 0", 0);

    EXPECT(wait_for(run)->exit_code == 0);
    brig_run_destroy(run);
    EXPECT(count_fds() == with_engine);
    expect_fine(engine);
    EXPECT(count_fds() == with_engine + 3); /* its descriptor 3, the control socket, its pidfd */
    expect_fine(engine);
    EXPECT(count_fds() == with_engine + 3);
    EXPECT(waitpid(-1, NULL, WNOHANG | __WALL) < 0);
    brig_engine_destroy(engine);
    EXPECT(count_fds() == before);
}

/* A parked sandbox does as well as one that is made for it, and its network is its own. */
static void pooled(void)
{
    struct brig_engine *engine = make_engine(3);
    struct brig_run *runs[6];

    EXPECT(brig_engine_fill(engine, &host_err) == 0);
    for (int i = 0; i < 6; i++)
        runs[i] = i % 2 ? start_named(engine, "fine", "exit 5", 0) : start_shell(engine, "exit 6", 0);
    for (int i = 0; i < 6; i++) {
        const struct brig_receipt *r = wait_for(runs[i]);
        EXPECT(r->cause == BRIG_CAUSE_EXITED && r->exit_code == (i % 2 ? 5 : 6));
        EXPECT(strcmp(r->network.policy, i % 2 ? "fine" : "none") == 0);
        brig_run_destroy(runs[i]);
    }
    brig_engine_destroy(engine);
}

static void terminal(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_named(engine, "fine", "test -t 1 && echo tty", BRIG_RUN_TTY | BRIG_RUN_KEEP_OUTPUT);
    const struct brig_receipt *r = wait_for(run);

    EXPECT(r->exit_code == 0 && kept_is(r, BRIG_STDOUT, "tty\r\n"));
    brig_run_destroy(run);
    run = start_named(engine, "fine", "cat", BRIG_RUN_STDIN | BRIG_RUN_KEEP_OUTPUT);
    EXPECT(brig_run_write(run, "early", 5, &host_err) == 5); /* the pipe is there before the sandbox */
    brig_run_close_stdin(run);
    r = wait_for(run);
    EXPECT(r->exit_code == 0 && kept_is(r, BRIG_STDOUT, "early"));
    brig_run_destroy(run);
    brig_engine_destroy(engine);
}

struct relay {
    struct brig_engine *engine;
    struct brig_run *next;
};

static void start_another(void *ctx, struct brig_run *run)
{
    struct relay *relay = ctx;

    EXPECT(brig_run_receipt(run)->cause == BRIG_CAUSE_HOST_ERROR);
    relay->next = start_named(relay->engine, "fine", "exit 7", 0);
}

/* The end of a run whose brig-egress died is a place to start the next: it gets a new one. */
static void started_at_the_end(void)
{
    static const char *const ways[] = {"die-at-prepare", "die-at-listen", "die-at-forget", "mute-at-prepare"};
    const char *const argv[] = {"/bin/sh", "-c", "exit 0", NULL};
    struct relay relay = {.engine = make_engine(0)};

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const struct brig_spec spec = {.size = sizeof spec,
                                       .argv = argv,
                                       .network = "{}",
                                       .network_name = ways[i],
                                       .on_done = start_another,
                                       .ctx = &relay};
        struct brig_run *run = NULL;
        EXPECT(brig_run_start(relay.engine, &spec, &run, &host_err) == 0);
        (void)wait_for(run);
        EXPECT(wait_for(relay.next)->exit_code == 7);
        brig_run_destroy(run);
        brig_run_destroy(relay.next);
    }
    brig_engine_destroy(relay.engine);
}

static void rules(void)
{
    struct brig_engine *engine = make_engine(0);
    const char *const argv[] = {"/bin/true", NULL};
    struct brig_spec spec = {.size = sizeof spec, .argv = argv, .limits.net_bps = 4096};
    struct brig_run *run = NULL;

    EXPECT(brig_run_start(engine, &spec, &run, &host_err) < 0 &&
           strcmp(host_err.message, "net_bps: there is no network to limit") == 0);
    spec.limits.net_bps = 0;
    spec.flags = BRIG_RUN_LEARN;
    EXPECT(brig_spec_check(&spec, &host_err) < 0 &&
           strcmp(host_err.message, "learning: there is no network to learn from") == 0);
    spec.flags = 0;
    spec.network = "{}";
    spec.network_name = "not a name";
    EXPECT(brig_spec_check(&spec, &host_err) < 0 && host_err.code == BRIG_E_USAGE);
    brig_engine_destroy(engine);
}

/* argv[2] is a directory without a brig-egress. */
static const char *elsewhere;
static void missing(void)
{
    const struct brig_engine_options options = {.size = sizeof options, .helper_dir = elsewhere};
    const char *const argv[] = {"/bin/true", NULL};
    const struct brig_spec spec = {.size = sizeof spec, .argv = argv, .network = "{}"};
    struct brig_engine *engine = NULL;
    struct brig_run *run = NULL;
    char expected[512];

    EXPECT(brig_engine_create(&options, &engine, &host_err) == 0);
    snprintf(expected, sizeof expected, "%s/brig-egress: No such file or directory", elsewhere);
    EXPECT(brig_run_start(engine, &spec, &run, &host_err) < 0 && strcmp(host_err.message, expected) == 0);
    run = start_shell(engine, "exit 0", 0);
    EXPECT(wait_for(run)->exit_code == 0);
    brig_engine_destroy(engine);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } words[] = {{"refused", refused},
                 {"dies", dies},
                 {"dies_under_others", dies_under_others},
                 {"mute", mute},
                 {"cancelled", cancelled},
                 {"counted", counted},
                 {"left_alone", left_alone},
                 {"rules", rules},
                 {"missing", missing},
                 {"pooled", pooled},
                 {"terminal", terminal},
                 {"started_at_the_end", started_at_the_end}};

    elsewhere = argc > 2 ? argv[2] : NULL;
    for (size_t i = 0; argc > 1 && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(argv[1], words[i].name) == 0) {
            words[i].run();
            return 0;
        }
    return 2;
}
