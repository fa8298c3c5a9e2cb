/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_local.c: `brig tool run` without a daemon. The service runs tools (registry, schema, pool, receipts), so one is
 * started for this command: the same program, the same layers, a private directory and socket, no address. It does not
 * see the user's configuration, because that may name a data base of another service. It ends with us, also when we are
 * killed (PDEATHSIG).
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/str.h"
#include "cli/verbs/tool.h"

#define START_NS (20 * NS_PER_SEC)
#define END_NS (20 * NS_PER_SEC)
#define POLL_MS 5
#define READY_MS 2000 /* for one answer */
#define LOG_SHOWN 1000

/* ---- the directory ---------------------------------------------------------------------------------- */

/* What is in it is ours: made by our service, which has ended. */
static void remove_tree(int parent, const char *name)
{
    AUTO_DIR DIR *dir = dir_open(parent, name);

    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            remove_tree(dirfd(dir), entry->d_name);
    (void)!unlinkat(parent, name, AT_REMOVEDIR);
}

static bool make_dir(struct tool_service *service)
{
    static const char *const places[] = {"/run", "/tmp"};

    for (size_t i = geteuid() == 0 ? 0 : 1; i < ARRAY_SIZE(places); i++)
        if (str_format(service->dir, sizeof service->dir, "%s/brig-tool-XXXXXX", places[i]) > 0 &&
            mkdtemp(service->dir)) {
            /* root's service has an id of its own, which must get to its directories; nobody can list it */
            if (geteuid() != 0 || chmod(service->dir, 0711) == 0)
                return true;
            (void)!rmdir(service->dir);
        }
    service->dir[0] = '\0';
    return cli_error("a directory for the service of this command: %s", strerror(errno)), false;
}

/* ---- the service ------------------------------------------------------------------------------------ */

static bool set_place(const char *name, const char *dir, const char *below)
{
    char path[PATH_MAX];

    return str_format(path, sizeof path, "%s%s", dir, below) > 0 && setenv(name, path, 1) == 0;
}

/* What stays: where our programs are, and what `brig run` without a service takes from the environment too. */
static bool is_kept(const char *variable)
{
    static const char *const kept[] = {"BRIG_LIBEXEC_DIR=", "BRIG_GATE_RESOLVERS=", "BRIG_GATE_CA_BUNDLE="};

    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (str_starts(variable, kept[i]))
            return true;
    return false;
}

/* Every setting can also be a variable, and this service is to have none of somebody else's. */
static void forget_settings(void)
{
    for (size_t i = 0; environ[i];) {
        char name[128];
        size_t len = strcspn(environ[i], "=");
        bool ours = str_starts(environ[i], "BRIG_") && !is_kept(environ[i]) && len < sizeof name;
        if (!ours) {
            i++;
            continue;
        }
        memcpy(name, environ[i], len);
        name[len] = '\0';
        unsetenv(name); /* the next one is here now */
    }
}

/* In the child. Its log is a file, shown only when it does not start. */
static _Noreturn void become_service(const struct tool_service *service, pid_t parent)
{
    char config[PATH_MAX], log[PATH_MAX];

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(CLI_FAILED);
    setsid(); /* ^C is ours to handle */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    forget_settings();
    int fd = str_format(config, sizeof config, "%s/config.toml", service->dir) > 0
                 ? open(config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)
                 : -1;
    int out = fd >= 0 && str_format(log, sizeof log, "%s/log", service->dir) > 0
                  ? open(log, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                  : -1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (out < 0 || null < 0 || fchmod(fd, 0644) < 0 || !set_place("BRIG_STATE_DIR", service->dir, "/state") ||
        !set_place("BRIG_RUN_DIR", service->dir, "/run") || !set_place("BRIG_CACHE_DIR", service->dir, "/cache") ||
        dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(out, 2) < 0)
        _exit(CLI_FAILED);
    char *const argv[] = {(char *)(uintptr_t) "brig",
                          (char *)(uintptr_t) "serve",
                          (char *)(uintptr_t) "--config",
                          config,
                          (char *)(uintptr_t) "--listen",
                          (char *)(uintptr_t) "",
                          NULL};
    execv("/proc/self/exe", argv);
    _exit(CLI_FAILED);
}

/* Why it did not start, in its own words: the last of them. */
static void say_log(const struct tool_service *service)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    char path[PATH_MAX];

    if (str_format(path, sizeof path, "%s/log", service->dir) > 0 && service_read_file(path, &text) && text.len > 0) {
        const char *from = text.data;
        while (text.data + text.len - from > LOG_SHOWN) {
            const char *end = memchr(from, '\n', (size_t)(text.data + text.len - from) - 1);
            if (!end)
                break;
            from = end + 1;
        }
        (void)!cli_write(STDERR_FILENO, from, (size_t)(text.data + text.len - from));
    }
    cli_error("the service of this command did not start");
}

static bool wait_ready(struct tool_service *service)
{
    char socket[PATH_MAX];
    uint64_t until = clock_mono_ns() + START_NS;
    struct brig_err err;

    if (str_format(socket, sizeof socket, "%s/run/brig.sock", service->dir) < 0)
        return false;
    while (clock_mono_ns() < until) {
        if (client_open_socket(socket, &service->client, &err) == 0) {
            client_set_cancel(service->client, service->signals);
            const struct client_request request = {.method = "GET", .target = "/readyz", .timeout_ms = READY_MS};
            if (client_call(service->client, &request, &err) == 0)
                return true;
            client_close(service->client);
            service->client = NULL;
        }
        if (waitpid(service->pid, NULL, WNOHANG) == service->pid) {
            service->pid = 0;
            break;
        }
        struct pollfd stop = {.fd = service->signals, .events = POLLIN};
        if (poll(&stop, 1, POLL_MS) > 0)
            return false;
    }
    say_log(service);
    return false;
}

/* The daemon; err is about why not. Signals become a descriptor, so that what was begun can be ended: only then, since
 * who goes on without us has its own ways. */
static bool open_daemon(struct tool_service *ret, struct brig_err *err)
{
    *ret = (struct tool_service){.signals = -1};
    if (client_open(&ret->client, err) < 0)
        return false;
    ret->signals = service_signals();
    client_set_cancel(ret->client, ret->signals);
    return true;
}

bool tool_service_find(struct tool_service *ret)
{
    struct brig_err err;

    return open_daemon(ret, &err);
}

bool tool_service_attach(struct tool_service *ret)
{
    struct brig_err err;

    if (open_daemon(ret, &err))
        return true;
    return cli_error("%s", err.message), false;
}

int tool_service_signal(struct tool_service *service)
{
    struct signalfd_siginfo info;

    return read(service->signals, &info, sizeof info) == sizeof info ? 128 + (int)info.ssi_signo : CLI_FAILED;
}

bool tool_service_open(struct tool_service *ret)
{
    struct brig_err err;
    pid_t parent = getpid();

    if (open_daemon(ret, &err))
        return true;
    if (client_is_remote() || err.code != BRIG_E_GONE || err.errnum == EACCES)
        return cli_error("%s", err.message), false;
    ret->signals = service_signals(); /* before there is anything that a signal could leave behind */
    if (!make_dir(ret))
        return false;
    ret->pid = fork();
    if (ret->pid == 0)
        become_service(ret, parent);
    if (ret->pid < 0) {
        ret->pid = 0;
        cli_error("start the service of this command: %s", strerror(errno));
        return false;
    }
    return wait_ready(ret);
}

/* It ends its sandboxes, and then itself. */
static void end_service(pid_t pid)
{
    uint64_t until = clock_mono_ns() + END_NS;

    kill(pid, SIGTERM);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (clock_mono_ns() > until)
            kill(pid, SIGKILL);
        poll(NULL, 0, POLL_MS);
    }
}

void tool_service_close(struct tool_service *service)
{
    client_close(service->client);
    service->client = NULL;
    if (service->pid > 0)
        end_service(service->pid);
    if (service->dir[0])
        remove_tree(AT_FDCWD, service->dir);
    if (service->signals > 0)
        close(service->signals);
    *service = (struct tool_service){0};
}
