/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner_main.c: brig-runner NAME: the process of one provider whose sandboxes a runtime or an engine makes. Descriptor
 * 3 is the socket to brigd, of which the supervisor holds both ends. The environment has what the supervisor took from
 * the configuration.
 *
 *     start: find the boxes of an earlier runner, READY; drop what comes until LIST (it was for the earlier one)
 *     serve: the messages of a spawner, of which only those for long-lived sandboxes are known
 *     end:   brigd and the supervisor are gone: every box is ended. A runner that is killed leaves them alive
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "jail/sys.h"
#include "runner/carrier.h"

#define START_TIMEOUT_MS 20000u
#define NOFILE_WANTED 65536u
#define SAY_MOST 100u /* lines about refusals: more would only fill the log */

static const struct carrier_ops *carrier_by_name(const char *name)
{
    static const struct carrier_ops *const all[] = {&carrier_runc, &carrier_crun, &carrier_runsc, &carrier_docker};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (str_eq(all[i]->name, name))
            return all[i];
    return NULL;
}

/* ---- messages ----------------------------------------------------------------------------------------- */

/* Whoever asks for this is no brigd of ours any more; its own log cannot be trusted to have it. */
static void say_refused(const struct runner *runner, const char *what)
{
    static unsigned said;

    if (said++ < SAY_MOST)
        fprintf(stderr, "brig-runner %s: refused: %s\n", runner->ops->name, what);
}

static void on_run(struct runner *runner, const struct wire_run *msg, int *fds, size_t n_fds)
{
    struct brig_err err;
    struct run_spec *run = spawner_take_run(&runner->spawner, msg, fds, n_fds, &err);

    if (run)
        carried_run(runner, run);
    else
        say_refused(runner, err.message);
}

static void on_box_message(struct carried *box, const union wire_any *msg)
{
    struct sandbox *s = &box->s;

    switch (msg->head.type) {
    case WIRE_KILL:
        if (msg->kill.cause == BRIG_CAUSE_CANCELLED)
            carried_end(box, BRIG_CAUSE_CANCELLED);
        break;
    case WIRE_ATTACH: carried_attach(box); break;
    case WIRE_FREEZE: service_freeze(s, msg->freeze.on); break;
    case WIRE_STATS: service_stats(s, WIRE_STATS_ARE); break;
    case WIRE_LIMITS:
        service_limits(s, &msg->limits);
        (void)!state_write(box, NULL); /* an earlier state has the earlier limits, which are then set again by nobody */
        break;
    case WIRE_GATE: sandbox_gate_more(s, &msg->gate.want); break;
    default: break;
    }
}

static void on_message(struct spawner *spawner, const union wire_any *msg, int *fds, size_t n_fds)
{
    struct runner *runner = (struct runner *)spawner;
    struct sandbox *s = sandbox_by_run(spawner, msg->head.run);

    if (msg->head.type == WIRE_LIST) {
        runner->listed = true;
        service_list(spawner, msg->head.run);
        return;
    }
    if (!runner->listed)
        return; /* for the runner before this one, of which brigd has learned that it is gone */
    switch (msg->head.type) {
    case WIRE_RUN:
        if (s || msg->head.run == 0) { /* two of one number, and neither could be spoken of */
            spawner->stop = true;
            break;
        }
        if (msg->head.run > spawner->highest_run)
            spawner->highest_run = msg->head.run;
        on_run(runner, &msg->run, fds, n_fds);
        break;
    case WIRE_KILL:
    case WIRE_ATTACH:
    case WIRE_FREEZE:
    case WIRE_STATS:
    case WIRE_LIMITS:
    case WIRE_GATE:
        if (s)
            on_box_message(carried_of(s), msg);
        break;
    default: say_refused(runner, "a message that only spawners know"); spawner->stop = true;
    }
}

static void on_engine(struct loop_source *source, uint32_t events)
{
    struct runner *runner = source->ctx;

    spawner_receive(&runner->spawner, events, on_message);
}

/* ---- the process -------------------------------------------------------------------------------------- */

/* Orphans of runtimes come to us; those that are nobody's any more are collected. */
static void on_orphan(struct loop_timer *timer)
{
    struct runner *runner = timer->ctx;

    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            break;
        bool ours = info.si_pid == runner->spawner.netns.pid;
        for (int state = 0; state < SANDBOX_STATE_MAX && !ours; state++)
            for (struct sandbox *s = runner->spawner.lists[state]; s && !ours; s = s->next)
                ours = s->pid == info.si_pid || carried_of(s)->child.pid == info.si_pid;
        if (ours)
            break; /* its pidfd tells */
        (void)!waitpid(info.si_pid, NULL, __WALL);
    }
    (void)!loop_timer_set(runner->spawner.loop, timer, clock_mono_ns() + NS_PER_SEC, NULL);
}

static void harden(const char *name)
{
    static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,  SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP};
    struct rlimit limit = {NOFILE_WANTED, NOFILE_WANTED};
    char title[16];

    (void)snprintf(title, sizeof title, "brig-r-%s", name);
    prctl(PR_SET_NAME, title);
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Our own descriptors stay above those that a child is given. */
static int open_engine(pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    int fd = fcntl(3, F_DUPFD_CLOEXEC, SPAWNER_FD_MIN);

    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return -1;
    *ret_pid = peer.pid;
    close_range(3, SPAWNER_FD_MIN - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = null; i >= 0 && i < SPAWNER_FD_MIN - 1;)
        i = fcntl(null, F_DUPFD_CLOEXEC, 3);
    return fd;
}

static int helper_dir(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);

    if (n <= 0)
        return -1;
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return slash ? 0 : -1;
}

static int set_up(struct runner *runner, struct brig_err *err)
{
    struct spawner *spawner = &runner->spawner;
    const char *ms = getenv("BRIG_START_TIMEOUT");
    char helpers[4096];
    uint64_t timeout = START_TIMEOUT_MS;

    if (geteuid() != 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s needs root", runner->ops->name);
    if (ms && (parse_fields(ms, &timeout, 1) != 1 || timeout == 0))
        return err_usage(err, "BRIG_START_TIMEOUT=%s: not a number of milliseconds", ms);
    runner->start_timeout_ns = timeout * NS_PER_MS;
    if (helper_dir(helpers, sizeof helpers) < 0)
        return err_host(err, "/proc/self/exe");
    int r = state_open(runner, err);
    if (r == 0)
        r = host_init(&spawner->host, HOST_RUNNER, &spawner->netns, spawner->engine_pid, helpers, err);
    prctl(PR_SET_DUMPABLE, 0);
    if (r == 0)
        r = host_settle(&spawner->host, err);
    if (r == 0)
        r = runner_lockdown(runner->ops->traces, err);
    if (r == 0)
        r = loop_create(&spawner->loop, err);
    if (r < 0)
        return r;
    r = runner->ops->open(runner, err);
    runner->broken = r < 0;
    state_find_all(runner); /* also without its runtime: what lives is watched, and can be ended */
    return r;
}

/* Everybody who could ask for something is gone. */
static void shut_down(struct runner *runner)
{
    struct spawner *spawner = &runner->spawner;

    loop_remove(spawner->loop, &spawner->on_engine);
    base_close_fd(&spawner->engine_fd);
    spawner_drop_queue(spawner);
    for (int state = 0; state < SANDBOX_STATE_MAX; state++)
        for (struct sandbox *s = spawner->lists[state]; s; s = s->next)
            if (carried_of(s)->state != CARRIED_REMOVING)
                carried_end(carried_of(s), BRIG_CAUSE_CANCELLED);
    while (spawner->n_sandboxes > 0)
        if (loop_run_once(spawner->loop, 100, NULL) < 0)
            break;
}

int main(int argc, char **argv)
{
    static struct runner runner; /* zeroed, and large */
    struct spawner *spawner = &runner.spawner;
    struct wire_ready *ready = &spawner->facts;
    struct loop_timer orphans = {.fn = on_orphan, .ctx = &runner};

    runner.ops = argc == 2 ? carrier_by_name(argv[1]) : NULL;
    if (!runner.ops) {
        fputs("brig-runner: started by brig serve, not by hand\n", stderr);
        return 125;
    }
    ready->head = (struct wire_head){WIRE_MAGIC, WIRE_VERSION, WIRE_READY, 0};
    spawner->keep = KEEP_INIT;
    spawner->reaper = REAPER_INIT;
    spawner->forgotten = carried_forgotten;
    spawner->mover = (struct movers){.fd = -1, .on_answer = {.fd = -1}};
    spawner->host = HOST_INIT;
    runner.dir_fd = runner.lock_fd = -1;
    runner.pid = getpid();
    harden(argv[1]);
    spawner->engine_fd = open_engine(&spawner->engine_pid);
    if (spawner->engine_fd < 0)
        return 125;
    int r = set_up(&runner, &ready->err);
    runner.broken = r < 0;
    if (!spawner->loop && loop_create(&spawner->loop, &ready->err) < 0)
        return 125;
    spawner->on_engine = (struct loop_source){.fd = -1, .fn = on_engine, .ctx = &runner};
    spawner->engine_events = EPOLLIN;
    if (loop_add(spawner->loop, &spawner->on_engine, spawner->engine_fd, EPOLLIN, &ready->err) < 0)
        return 125;
    ready->cgroup = cg_host_by(&spawner->host.cg, CG_MEMORY);
    ready->image_store = image_possible(&spawner->host);
    ready->landlock_abi = spawner->host.landlock_abi;
    ready->layers = spawner->host.layers.fd >= 0;
    if (!runner.broken) {
        if (runner.ops->sweep)
            runner.ops->sweep(&runner);
        ready->err = (struct brig_err){.code = BRIG_E_NONE};
        str_assign(ready->err.message, runner.version);
    }
    spawner_send(spawner, ready, NULL, 0);
    r = loop_timer_set(spawner->loop, &orphans, clock_mono_ns() + NS_PER_SEC, &ready->err);
    while (r == 0 && !spawner->stop)
        r = loop_run_once(spawner->loop, -1, NULL);
    shut_down(&runner);
    netns_done(&spawner->netns);
    loop_destroy(spawner->loop);
    host_done(&spawner->host);
    return r < 0 ? 125 : 0;
}
