/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_local.c: `brig tool run` without a daemon. What runs a tool (registry, schema, pool, receipts) is the service, so one is started for this command:
 * the same program, the same layers, a directory and a socket that nobody else has, no address. It sees none of the user's configuration, since that may
 * name a data base that another service has. It ends with us, also when we are killed (PDEATHSIG).
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/tool.h"

#define START_NS (20 * NS_PER_SEC)
#define POLL_MS 5

/* ---- the directory ---------------------------------------------------------------------------------- */

/* What is in it is ours: made by our service, which has ended. */
static void remove_tree(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir) {
        for (const struct dirent *entry; (entry = readdir(dir));)
            if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..") && unlinkat(fd, entry->d_name, 0) < 0)
                remove_tree(fd, entry->d_name);
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    (void)!unlinkat(parent, name, AT_REMOVEDIR);
}

static bool make_dir(struct tool_service *service)
{
    static const char *const places[] = {"/run", "/tmp"};

    for (size_t i = geteuid() == 0 ? 0 : 1; i < ARRAY_SIZE(places); i++)
        if (str_format(service->dir, sizeof service->dir, "%s/brig-tool-XXXXXX", places[i]) > 0 && mkdtemp(service->dir))
            return chmod(service->dir, 0711) == 0; /* brigd of a root's service has an id of its own, and its directory in it */
    service->dir[0] = '\0';
    cli_error("a directory for the service of this command: %s", strerror(errno));
    return false;
}

/* ---- the service ------------------------------------------------------------------------------------ */

static bool set_place(const char *name, const char *dir, const char *below)
{
    char path[PATH_MAX];

    return str_format(path, sizeof path, "%s%s", dir, below) > 0 && setenv(name, path, 1) == 0;
}

/* In the child. Its log is a file, shown only when it does not start. */
static _Noreturn void become_service(const struct tool_service *service, pid_t parent)
{
    static const char only_the_socket[] = "[server]\nlisten = \"\"\n";
    char config[PATH_MAX], log[PATH_MAX];
    static const char *const without[] = {"BRIG_CONFIG", "BRIG_HOST", "BRIG_SOCKET", "BRIG_SERVER_SOCKET", "BRIG_LISTEN", "BRIG_SERVER_LISTEN", "BRIG_DATABASE_URL", "BRIG_STORE_DATABASE_URL"};

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(CLI_FAILED);
    setsid(); /* ^C is ours to handle */
    for (size_t i = 0; i < ARRAY_SIZE(without); i++)
        unsetenv(without[i]);
    int fd = str_format(config, sizeof config, "%s/config.toml", service->dir) > 0 ? open(config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    int out = fd >= 0 && str_format(log, sizeof log, "%s/log", service->dir) > 0 ? open(log, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (out < 0 || null < 0 || cli_write(fd, only_the_socket, strlen(only_the_socket)) < 0 || !set_place("BRIG_STATE_DIR", service->dir, "/state") || !set_place("BRIG_RUN_DIR", service->dir, "/run") ||
        dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(out, 2) < 0)
        _exit(CLI_FAILED);
    char *const argv[] = {(char *)(uintptr_t) "brig", (char *)(uintptr_t) "serve", (char *)(uintptr_t) "--config", config, NULL};
    execv("/proc/self/exe", argv);
    _exit(CLI_FAILED);
}

/* Why it ended, in its own words. */
static void say_log(const struct tool_service *service)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    char path[PATH_MAX];

    if (str_format(path, sizeof path, "%s/log", service->dir) > 0 && service_read_file(path, &text) && text.len > 0)
        (void)!cli_write(STDERR_FILENO, text.data, text.len);
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
            AUTO_BUF struct buf target = BUF_INIT(64);
            if (client_target(&target, "/readyz") == 0 && service_try(service->client, "GET", &target, NULL, NULL, &err) == 0)
                return true;
            client_close(service->client);
            service->client = NULL;
        }
        if (waitpid(service->pid, NULL, WNOHANG) == service->pid) {
            service->pid = 0;
            break;
        }
        poll(NULL, 0, POLL_MS);
    }
    say_log(service);
    return false;
}

bool tool_service_open(struct tool_service *ret)
{
    struct brig_err err;
    pid_t parent = getpid();

    *ret = (struct tool_service){0};
    if (client_open(&ret->client, &err) == 0)
        return true;
    if (client_is_remote() || err.code != BRIG_E_GONE || err.errnum == EACCES) {
        cli_error("%s", err.message);
        return false;
    }
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

void tool_service_close(struct tool_service *service)
{
    client_close(service->client);
    service->client = NULL;
    if (service->pid > 0) {
        kill(service->pid, SIGTERM);
        while (waitpid(service->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    if (service->dir[0])
        remove_tree(AT_FDCWD, service->dir);
    *service = (struct tool_service){0};
}
