/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor.c: the loop of `brig serve` (supervisor.h has the theory of operation). */
#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "gate/apt_sources.h"
#include "gate/policy.h"

#define LISTENERS_MAX 8
#define CONFIG_MAX (1u << 20)
#define SPAWNER_GRACE_MS 5000
#define DRAIN_GRACE_NS (5 * NS_PER_SEC) /* beyond the configured time, before brigd is killed */

struct supervisor {
    const struct supervisor_options *options;
    struct places places;
    struct loop *loop;
    struct daemon spawner, brigd;
    struct sup_gate gate;
    struct sup_runners runners;
    int apt;      /* where the host gets its Debian from (gate/apt_sources.h), sealed; -1 */
    int packages; /* the rules of the preset `packages` as they are on this host, sealed; -1 */
    struct listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    bool made_socket; /* the socket file is ours to remove */
    struct loop_source on_signal, on_spawner_end, on_brigd_end, on_brigd;
    struct loop_timer on_restart, on_kill, on_watchdog;
    int signal_fd;
    bool stopping, announced;
    bool failed;    /* the first start: it never came to serve */
    char why[512];  /* what brigd said about its end, or how the spawner ended */
    char *log_file; /* of the configuration that brigd was given last */
};

/* For people: the one place of this program that writes by itself. brigd has the structured log. */
static void say(const char *format, ...) PRINTF_LIKE(1, 2);
static void say(const char *format, ...)
{
    char line[1024] = "brig serve: ";
    size_t len = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + len, sizeof line - len - 1, format, args);
    va_end(args);
    len = strlen(line);
    line[len++] = '\n';
    (void)!write(STDERR_FILENO, line, len);
}

static void start_all(struct supervisor *sup);

/* ---- brigd -------------------------------------------------------------------------------------------- */

/* The files that this text names. One that is no configuration has none: brigd says why. */
static int give_files(struct supervisor *sup, const char *text, size_t len)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err;

    if (config_load_text(sup->options->config_path, text, len, environ, &loaded, &err) < 0)
        return 0;
    int r = sup_give_files(sup->brigd.socket, &sup->places, config_get(loaded));
    char *log_file = mem_strdup(config_get(loaded)->log_file);
    config_free(loaded);
    if (!log_file)
        return -ENOMEM;
    mem_free(sup->log_file);
    sup->log_file = log_file;
    return r;
}

/*
 * Sends the configuration file as it is now, sealed, so that brigd needs no right to read it where it lies; the files
 * that it names are sent before it. A file that cannot be read counts as none.
 */
static int send_config(struct supervisor *sup)
{
    const char *path = sup->options->config_path;
    AUTO_FREE char *text = mem_alloc(CONFIG_MAX);
    AUTO_FD int fd = -1;
    int r = 0;

    if (!text)
        return -ENOMEM;
    ssize_t len = path[0] ? fd_read_file(AT_FDCWD, path, text, CONFIG_MAX) : -ENOENT;
    if (len < 0 && path[0])
        say("%s: %s", path, strerror((int)-len));
    if (len >= 0)
        r = fd = gate_memfd("config.toml", text, (size_t)len);
    if (r >= 0)
        r = give_files(sup, len < 0 ? NULL : text, len < 0 ? 0 : (size_t)len);
    return r < 0 ? r : sup_send(sup->brigd.socket, SUP_CONFIG, path[0] ? "file" : "none", fd);
}

/* What this host's package managers are configured with, which brigd may not read. */
static void read_packages(struct supervisor *sup)
{
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_MAX), apt = BUF_INIT(CONFIG_MAX);
    AUTO_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct brig_err err;

    base_close_fd(&sup->packages);
    if (root < 0 || packages_rules(root, getenv("HOME"), environ, &text, &err) < 0) {
        say("the preset `packages` has the well-known indexes only: %s", root < 0 ? strerror(errno) : err.message);
        return;
    }
    sup->packages = gate_memfd("packages", text.data ? text.data : "", text.len);
    base_close_fd(&sup->apt);
    if (apt_sources(root, &apt) < 0)
        say("the apt sources of this host are too long");
    else
        sup->apt = gate_memfd("apt", apt.data ? apt.data : "", apt.len);
}

static int give_texts(struct supervisor *sup)
{
    int r = sup->packages < 0 ? 0 : sup_send(sup->brigd.socket, SUP_FD, "packages", sup->packages);

    if (r == 0 && sup->apt >= 0)
        r = sup_send(sup->brigd.socket, SUP_FD, "apt", sup->apt);
    return r < 0 || sup->gate.keys_fd < 0 ? r : sup_send(sup->brigd.socket, SUP_FD, "secret-keys", sup->gate.keys_fd);
}

static int give_descriptors(struct supervisor *sup)
{
    int r = send_config(sup);

    if (r == 0)
        r = give_texts(sup);
    if (r == 0 && sup_gate_connect(&sup->gate, sup->brigd.socket) < 0)
        say("brig-egress and brigd could not be connected"); /* it is ending: the next one is connected */

    if (r == 0)
        r = sup_send(sup->brigd.socket, SUP_FD, "spawner", sup->spawner.socket);
    if (r == 0)
        r = sup_runners_give(&sup->runners, sup->brigd.socket);
    for (size_t i = 0; r == 0 && i < sup->n_listeners; i++)
        r = sup_send(sup->brigd.socket, SUP_FD, sup->listeners[i].is_unix ? "unix" : "tcp", sup->listeners[i].fd);
    return r < 0 ? r : sup_send(sup->brigd.socket, SUP_GO, NULL, -1);
}

static void on_watchdog(struct loop_timer *timer)
{
    struct supervisor *sup = timer->ctx;

    if (sup->brigd.socket >= 0)
        (void)!sup_send(sup->brigd.socket, SUP_PING, NULL, -1);
    (void)!loop_timer_set(sup->loop, timer, clock_mono_ns() + notify_watchdog_ns() / 2, NULL);
}

static void brigd_ready(struct supervisor *sup)
{
    if (sup->announced)
        return;
    sup->announced = true;
    notify_state("READY=1\nSTATUS=serving");
    for (size_t i = 0; i < sup->n_listeners; i++)
        say("listening on %s", sup->listeners[i].is_unix ? sup->options->config->socket : sup->options->config->listen);
}

/* Why brigd ends, or cannot begin. The words are a log line's: no more than one. */
static void take_reason(struct supervisor *sup, int fd)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;

    if (gate_memfd_read(fd, sizeof sup->why, &text, &len) == 0)
        snprintf(sup->why, sizeof sup->why, "%.*s", (int)strcspn(text, "\n"), text);
}

/* One message of brigd; false: there is none (any more). */
static bool hear_brigd(struct supervisor *sup, int *ret)
{
    struct sup_msg msg;
    AUTO_FD int fd = -1;

    *ret = sup_receive(sup->brigd.socket, &msg, &fd);
    if (*ret < 0)
        return false;
    if (msg.type == SUP_FAILED && fd >= 0)
        take_reason(sup, fd);
    else if (msg.type == SUP_READY)
        brigd_ready(sup);
    else if (msg.type == SUP_PONG)
        notify_state("WATCHDOG=1");
    else if (msg.type == SUP_RELOAD && send_config(sup) < 0)
        say("brigd does not take its configuration");
    return true;
}

static void on_brigd(struct loop_source *source, uint32_t events UNUSED)
{
    struct supervisor *sup = source->ctx;
    int r = 0;

    if (!hear_brigd(sup, &r) && r != -EAGAIN)
        loop_remove(sup->loop, source); /* it is ending; its pidfd tells how */
}

static void later(struct supervisor *sup, const struct daemon *daemon)
{
    if (loop_timer_set(sup->loop, &sup->on_restart, clock_mono_ns() + daemon_restart_delay_ns(daemon), NULL) < 0)
        sup->stopping = true;
}

/* brigd has ended, and we shall: what becomes of the sandboxes. */
static void let_go(struct supervisor *sup)
{
    struct brig_err err;

    if (sup->spawner.pid && str_eq(sup->options->config->on_shutdown, "keep")) {
        if (keep_give(&sup->spawner, &sup->places, sup->options->config, &err) == 0) {
            say("the sandboxes run on: brig-spawner (pid %d) keeps them for the next start", (int)sup->spawner.pid);
            loop_remove(sup->loop, &sup->on_spawner_end);
            base_close_fd(&sup->spawner.pidfd);
            sup->spawner.pid = 0;
        } else {
            say("the sandboxes end, they cannot be kept: %s", err.message);
        }
    }
    /* the last one: the spawner ends its sandboxes and itself, unless it keeps one */
    base_close_fd(&sup->spawner.socket);
}

/* It has never served: no restart would put that right. */
static void give_up(struct supervisor *sup, const char *how)
{
    sup->failed = true;
    if (!sup->why[0])
        str_cut(sup->why, sizeof sup->why, how);
}

static void on_brigd_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct supervisor *sup = source->ctx;
    char how[128];
    int r = 0;

    loop_remove(sup->loop, &sup->on_brigd_end);
    loop_remove(sup->loop, &sup->on_brigd);
    loop_timer_clear(sup->loop, &sup->on_kill);
    while (hear_brigd(sup, &r))
        ; /* its last words */
    daemon_reap(&sup->brigd, how, sizeof how);
    if (!sup->stopping && !sup->announced) {
        give_up(sup, how);
    } else if (!sup->stopping) {
        say("%s%s%s; starting it again, the sandboxes run on", how, sup->why[0] ? ": " : "", sup->why);
        sup->why[0] = '\0';
        later(sup, &sup->brigd);
    } else {
        let_go(sup);
    }
}

static void on_spawner_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct supervisor *sup = source->ctx;
    char how[128];

    loop_remove(sup->loop, &sup->on_spawner_end);
    daemon_reap(&sup->spawner, how, sizeof how);
    if (!sup->stopping)
        say("%s, and every sandbox with it", how);
    if (!sup->announced && !sup->why[0])
        str_cut(sup->why, sizeof sup->why, how);
    /* brigd sees its socket close, writes the certificates and ends; a new pair is started then. */
    if (!sup->stopping && sup->brigd.pid == 0)
        later(sup, &sup->spawner);
}

/* ---- start and stop ------------------------------------------------------------------------------------ */

static int watch(struct supervisor *sup, struct loop_source *source, int fd, loop_io_fn *fn, struct brig_err *err)
{
    *source = (struct loop_source){.fd = -1, .fn = fn, .ctx = sup};
    return loop_add(sup->loop, source, fd, EPOLLIN, err);
}

/* What brigd may ask to be bound or used as a root is decided by the configuration, and enforced by the spawner, which
 * brigd cannot change. */
static int set_roots(const struct supervisor *sup, struct brig_err *err)
{
    const struct config *config = sup->options->config;
    AUTO_BUF struct buf own = BUF_INIT(16384);
    char max[32];

    (void)snprintf(max, sizeof max, "%llu", (unsigned long long)config->templates_pool_max);
    if (supervisor_own_roots(&sup->places, config, &own) < 0 || setenv("BRIG_OWN_ROOTS", own.data, 1) < 0 ||
        setenv("BRIG_SETS_DIR", sup->places.sets, 1) < 0 || setenv("BRIG_LAYERS_DIR", sup->places.layers, 1) < 0 ||
        setenv("BRIG_DISKS_DIR", sup->places.disks, 1) < 0 || setenv("BRIG_DISKS_MAX", max, 1) < 0 ||
        (config->firecracker_path[0] && setenv("BRIG_KVM", "1", 1) < 0) ||
        (config->bind_roots[0] && setenv("BRIG_BIND_ROOTS", config->bind_roots, 1) < 0) ||
        (config->templates[0] && setenv("BRIG_ROOTFS_ROOTS", config->templates, 1) < 0))
        return err_nomem(err);
    return 0;
}

static int start_spawner(struct supervisor *sup, struct brig_err *err)
{
    int r = daemon_start(&sup->spawner, sup->places.helpers, sup->places.helpers, (uid_t)-1, 0, err);

    return r < 0 ? r : watch(sup, &sup->on_spawner_end, sup->spawner.pidfd, on_spawner_end, err);
}

/* The one that the last `brig serve` left behind, or a new one. */
static int find_spawner(struct supervisor *sup, struct brig_err *err)
{
    int r = keep_take(&sup->spawner, &sup->places, sup->options->config, say, err);

    if (r == 1)
        return watch(sup, &sup->on_spawner_end, sup->spawner.pidfd, on_spawner_end, err);
    return r < 0 ? r : start_spawner(sup, err);
}

static int start_brigd(struct supervisor *sup, struct brig_err *err)
{
    int r = daemon_start(&sup->brigd, sup->places.helpers, sup->places.state, sup->places.uid, sup->places.gid, err);

    if (r == 0)
        r = watch(sup, &sup->on_brigd_end, sup->brigd.pidfd, on_brigd_end, err);
    if (r == 0)
        r = watch(sup, &sup->on_brigd, sup->brigd.socket, on_brigd, err);
    if (r < 0)
        return r;
    r = give_descriptors(sup);
    if (r == -EPIPE)
        return 0; /* it has ended: its pidfd tells how */
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "hand the descriptors to brigd") : 0;
}

static void start_all(struct supervisor *sup)
{
    struct brig_err err;
    int r = 0;

    if (sup->spawner.pid == 0) {
        base_close_fd(&sup->spawner.socket);
        r = start_spawner(sup, &err);
    }
    if (r == 0 && sup->brigd.pid == 0)
        r = start_brigd(sup, &err);
    if (r < 0) {
        say("%s", err.message);
        sup->brigd.failures++;
        if (!sup->announced)
            give_up(sup, err.message);
        else if (sup->brigd.pid == 0)
            later(sup, &sup->brigd);
    }
}

static void on_restart(struct loop_timer *timer)
{
    struct supervisor *sup = timer->ctx;

    if (!sup->stopping)
        start_all(sup);
}

static void on_kill(struct loop_timer *timer)
{
    struct supervisor *sup = timer->ctx;

    if (sup->brigd.pid) {
        say("brigd does not end: killing it");
        kill(sup->brigd.pid, SIGKILL);
    }
}

static void drain(struct supervisor *sup)
{
    uint64_t after = sup->options->config->drain_timeout * NS_PER_MS + DRAIN_GRACE_NS;

    if (sup->brigd.pid == 0) {
        if (sup->stopping)
            let_go(sup);
        return;
    }
    bool keep = !sup->stopping || str_eq(sup->options->config->on_shutdown, "keep");
    if (sup_send(sup->brigd.socket, SUP_DRAIN, keep ? "keep" : NULL, -1) < 0)
        kill(sup->brigd.pid, SIGKILL);
    (void)!loop_timer_set(sup->loop, &sup->on_kill, clock_mono_ns() + after, NULL);
}

static void reopen_log(struct supervisor *sup)
{
    struct brig_err err;

    if (sup->brigd.socket >= 0 && sup->log_file &&
        sup_reopen_log(sup->brigd.socket, &sup->places, sup->log_file, &err) < 0)
        say("%s; the log goes on where it was", err.message);
}

static void on_signal(struct loop_source *source, uint32_t events UNUSED)
{
    struct supervisor *sup = source->ctx;
    struct signalfd_siginfo info;

    if (read(source->fd, &info, sizeof info) != sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGTERM:
    case SIGINT:
        if (!sup->stopping) {
            sup->stopping = true;
            notify_state("STOPPING=1");
            drain(sup);
        } else if (sup->brigd.pid) {
            kill(sup->brigd.pid, SIGKILL); /* asked twice: now */
        }
        break;
    case SIGHUP:
        read_packages(sup);
        if (sup->brigd.socket >= 0 && (give_texts(sup) < 0 || send_config(sup) < 0))
            say("brigd does not take its configuration");
        break;
    case SIGUSR1: reopen_log(sup); break;
    case SIGUSR2: drain(sup); break;
    default: break;
    }
}

static int open_listeners(struct supervisor *sup, struct brig_err *err)
{
    const struct config *config = sup->options->config;
    int fd = -1, r = 0;

    sup->n_listeners = listen_inherited(sup->listeners, LISTENERS_MAX);
    if (sup->n_listeners > 0)
        return 0;
    r = listen_unix(config->socket, &fd, err);
    if (r == 0) {
        sup->made_socket = true;
        sup->listeners[sup->n_listeners++] = (struct listener){fd, true};
    }
    if (r == 0 && config->listen[0]) {
        r = listen_tcp(config, &fd, err);
        if (r == 0)
            sup->listeners[sup->n_listeners++] = (struct listener){fd, false};
    }
    return r;
}

static int open_signals(struct supervisor *sup, struct brig_err *err)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(handled); i++)
        sigaddset(&set, handled[i]);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || (sup->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return err_host(err, "signalfd");
    return watch(sup, &sup->on_signal, sup->signal_fd, on_signal, err);
}

/* No core dumps (there may be keys in brigd's), and as many descriptors as we may have: the children inherit both. */
static int set_limits(struct brig_err *err)
{
    struct rlimit files, none = {0, 0};

    prctl(PR_SET_NAME, "brig-serve");
    if (setrlimit(RLIMIT_CORE, &none) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_host(err, "resource limits");
    files.rlim_cur = files.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &files) < 0 ? err_host(err, "descriptor limit") : 0;
}

static int set_up(struct supervisor *sup, struct brig_err *err)
{
    int r = set_limits(err), keys = -1;

    if (r == 0)
        r = supervisor_keys(sup->options->config, &keys, err);
    sup_gate_set_keys(&sup->gate, keys);
    if (r == 0)
        r = places_make(&sup->places, err);
    if (r == 0)
        r = probe_files(&sup->places, sup->options->config, err);
    if (r == 0)
        r = set_roots(sup, err);
    if (r == 0)
        r = open_listeners(sup, err);
    if (r == 0)
        r = loop_create(&sup->loop, err);
    if (r == 0)
        r = open_signals(sup, err);
    if (r == 0)
        r = find_spawner(sup, err);
    if (r == 0) {
        read_packages(sup);
        sup->gate.loop = sup->loop;
        sup_gate_start(&sup->gate);
        sup->runners.loop = sup->loop;
        sup_runners_start(&sup->runners);
        r = start_brigd(sup, err);
    }
    if (r == 0 && notify_watchdog_ns() > 0)
        r = loop_timer_set(sup->loop, &sup->on_watchdog, clock_mono_ns(), err);
    return r;
}

/* It removes what it has made; who starts us again finds nothing of it. */
static void end_spawner(struct supervisor *sup)
{
    struct pollfd ended = {.fd = sup->spawner.pidfd, .events = POLLIN};

    base_close_fd(&sup->spawner.socket);
    if (sup->spawner.pid)
        (void)!poll(&ended, 1, SPAWNER_GRACE_MS);
}

int supervisor_run(const struct supervisor_options *options, struct brig_err *err)
{
    static struct supervisor sup; /* its paths are large */

    sup = (struct supervisor){.options = options,
                              .signal_fd = -1,
                              .spawner = DAEMON_INIT("brig-spawner", false),
                              .brigd = DAEMON_INIT("brigd", true)};
    sup.packages = sup.apt = -1;
    sup.gate = (struct sup_gate){
        .config = options->config, .places = &sup.places, .brigd_sock = &sup.brigd.socket, .say = say};
    sup_gate_init(&sup.gate);
    sup.runners = (struct sup_runners){.config = options->config, .places = &sup.places, .say = say};
    sup.on_restart = (struct loop_timer){.fn = on_restart, .ctx = &sup};
    sup.on_kill = (struct loop_timer){.fn = on_kill, .ctx = &sup};
    sup.on_watchdog = (struct loop_timer){.fn = on_watchdog, .ctx = &sup};
    /* what brigd's messages call it */
    int r = setenv("BRIG_CONFIG_PATH", options->config_path, 1) < 0 ? err_nomem(err) : 0;
    if (r == 0)
        r = set_up(&sup, err);
    while (r == 0 && !sup.failed && !(sup.stopping && sup.brigd.pid == 0 && sup.spawner.pid == 0))
        r = loop_run_once(sup.loop, -1, err);
    if (sup.failed)
        r = err_set(err, BRIG_E_HOST, 0, "%s", sup.why);
    if (r < 0 && sup.brigd.pid) /* half started: the rest follows from the closed sockets */
        kill(sup.brigd.pid, SIGKILL);
    if (r < 0 && sup.spawner.taken)
        let_go(&sup); /* they have been kept so far, and are again */
    else if (r < 0)
        end_spawner(&sup);
    sup_runners_stop(&sup.runners, str_eq(options->config->on_shutdown, "keep"));
    sup_gate_stop(&sup.gate);
    base_close_fd(&sup.packages);
    mem_free(sup.log_file);
    if (sup.made_socket)
        unlink(options->config->socket);
    for (size_t i = 0; i < sup.n_listeners; i++)
        base_close_fd(&sup.listeners[i].fd);
    base_close_fd(&sup.signal_fd);
    loop_destroy(sup.loop);
    return r < 0 ? 125 : 0;
}
