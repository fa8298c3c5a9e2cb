/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_ids.c: makes a plain user's spawner root of an outer user namespace, where it makes mounts and namespaces as the
 * real root would. Where newuidmap and subordinate ids exist they are mapped from 1 up, and every sandbox gets two of
 * its own; else the user's one id is all there is, and the statement says so.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/host.h"
#include "jail/sys.h"

struct sub_range {
    unsigned start, count;
};

/* The user's login name by /etc/passwd; directory services would need a library that sandboxes must not pay for. */
static void login_name(uid_t uid, char *out, size_t size)
{
    FILE *file = fopen("/etc/passwd", "re");
    char line[1024];

    out[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        char *save = NULL;
        const char *name = strtok_r(line, ":", &save);
        if (!strtok_r(NULL, ":", &save))
            continue;
        const char *id = strtok_r(NULL, ":", &save);
        if (name && id && strtoul(id, NULL, 10) == uid) {
            (void)!str_copy(out, size, name); /* a longer name is found by no range */
            break;
        }
    }
    if (file)
        fclose(file);
}

/* "name:start:count" or "uid:start:count"; the first range that fits counts. */
static bool find_range(const char *path, uid_t uid, const char *name, struct sub_range *ret)
{
    FILE *file = fopen(path, "re");
    char line[512], number[16];
    bool found = false;

    snprintf(number, sizeof number, "%u", uid);
    while (file && !found && fgets(line, sizeof line, file)) {
        char *save = NULL;
        const char *who = strtok_r(line, ":", &save);
        const char *start = strtok_r(NULL, ":", &save);
        const char *count = strtok_r(NULL, ":\n", &save);
        if (!count || (strcmp(who, number) != 0 && (name[0] == '\0' || strcmp(who, name) != 0)))
            continue;
        ret->start = (unsigned)strtoul(start, NULL, 10);
        ret->count = (unsigned)strtoul(count, NULL, 10);
        found = ret->start > 0 && ret->count >= 2;
    }
    if (file)
        fclose(file);
    return found;
}

static int run_mapper(const char *tool, pid_t pid, unsigned own, const struct sub_range *range)
{
    char pid_text[16], own_text[16], start[16], count[16];
    char *const argv[] = {(char *)tool, pid_text, (char *)"0", own_text, (char *)"1", (char *)"1", start, count, NULL};
    char *const envp[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    int status;

    snprintf(pid_text, sizeof pid_text, "%d", (int)pid);
    snprintf(own_text, sizeof own_text, "%u", own);
    snprintf(start, sizeof start, "%u", range->start);
    snprintf(count, sizeof count, "%u", range->count);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 2);
        execve(tool, argv, envp);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* Runs in a child that stays outside, where the set-uid mappers work: waits until the spawner is in its namespace. */
static _Noreturn void map_from_outside(int wait_fd, pid_t pid, const struct sub_range *uids,
                                       const struct sub_range *gids)
{
    char byte;

    if (read(wait_fd, &byte, 1) != 1)
        _exit(1);
    _exit(run_mapper("/usr/bin/newuidmap", pid, getuid(), uids) < 0 ||
          run_mapper("/usr/bin/newgidmap", pid, getgid(), gids) < 0);
}

static int map_subordinate(const struct sub_range *uids, const struct sub_range *gids)
{
    int ready[2], status;
    pid_t self = getpid();

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        close(ready[1]);
        map_from_outside(ready[0], self, uids, gids);
    }
    close(ready[0]);
    int r = child > 0 ? unshare(CLONE_NEWUSER | CLONE_NEWNS) : -1;
    int saved = errno;
    if (r == 0 && write(ready[1], "x", 1) != 1)
        r = -1;
    close(ready[1]);
    if (child > 0 && (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) &&
        r == 0) {
        errno = EPERM;
        return 1; /* in the namespace, but without maps */
    }
    errno = saved;
    return r;
}

static int map_own(uid_t uid, gid_t gid, struct brig_err *err)
{
    char map[32];
    int r = fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny");

    snprintf(map, sizeof map, "0 %u 1", uid);
    if (r == 0)
        r = fd_write_file(AT_FDCWD, "/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    if (r == 0)
        r = fd_write_file(AT_FDCWD, "/proc/self/gid_map", map);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "id map of the outer user namespace") : 0;
}

int host_enter_user_ns(struct host *host, struct brig_err *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    struct sub_range uids, gids;
    char name[64];
    int r;

    login_name(uid, name, sizeof name);
    bool pair = host->ids_fd >= 0 && access("/usr/bin/newuidmap", X_OK) == 0 &&
                access("/usr/bin/newgidmap", X_OK) == 0 && find_range("/etc/subuid", uid, name, &uids) &&
                find_range("/etc/subgid", uid, name, &gids);
    r = pair ? map_subordinate(&uids, &gids) : unshare(CLONE_NEWUSER | CLONE_NEWNS);
    if (r < 0)
        return err_host(err, "user namespace for a plain user (see `brig doctor`)");
    host->ids_kind = pair && r == 0 ? IDS_PAIR : IDS_ONE;
    host->sub_ids = uids.count < gids.count ? uids.count : gids.count;
    if (host->ids_kind == IDS_ONE && (r = map_own(uid, gid, err)) < 0)
        return r;
    /* Mounts the host makes or removes later are followed, ours never leave. */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return err_host(err, "propagation of the host's mounts");
    return 0;
}
