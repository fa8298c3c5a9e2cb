/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_state.c: the boxes in the run directory: one directory each, named after the sandbox, with the file `state` and
 * the socket `s` of its brig-init. Only this process works there (it has the lock), and the directory is root's own, so
 * the file is a plain struct of this build. One of another build cannot be read: its box is ended.
 *
 *     RUN/runner-NAME/ID/state    struct state, renamed into place
 *     RUN/runner-NAME/ID/s        where brig-init listens
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/dirs.h"
#include "jail/sys.h"
#include "runner/carrier.h"

#define STATE_MAGIC 0x6e757262u /* "brun" */
#define STATE_VERSION 1u
#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define LISTEN_WAITING 8

struct state {
    uint32_t magic, version, size;
    uint32_t flags;
    uint64_t number;
    char id[32];
    char cgroup[CG_NAME];
    int32_t pid;  /* 0 before there is one */
    int32_t slot; /* Its ids are these; -1 if it has none. */
    uint32_t started, profile, store;
    uint64_t pid_begun; /* its start time as the kernel has it: a pid may be another's by now */
    int64_t started_at_ns;
    struct brig_limits limits;
    struct reading readings[BRIG_LAYER_MAX];
    struct netgate_want gate;
};

/* Field 22 of /proc/PID/stat, behind the name, which may have anything in it. 0 if there is no such process. */
static uint64_t pid_begun(int proc_fd, pid_t pid)
{
    char path[32], text[1024];
    unsigned field = 2;

    (void)snprintf(path, sizeof path, "%d/stat", (int)pid);
    if (pid <= 0 || fd_read_file(proc_fd, path, text, sizeof text) <= 0)
        return 0;
    const char *at = strrchr(text, ')');
    while (at && field < 22 && (at = strchr(at + 1, ' ')))
        field++;
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

int state_open(struct runner *runner, struct brig_err *err)
{
    char run[3900], name[48];
    AUTO_FD int run_fd = dirs_open(BRIG_DIR_RUN, err);

    if (run_fd < 0)
        return run_fd;
    int r = dirs_path(BRIG_DIR_RUN, run, sizeof run, err);
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof name, "runner-%s", runner->ops->name);
    (void)snprintf(runner->dir, sizeof runner->dir, "%s/%s", run, name);
    if (mkdirat(run_fd, name, 0711) < 0 && errno != EEXIST)
        return err_host(err, "%s", runner->dir);
    runner->dir_fd = openat(run_fd, name, OPEN_DIR);
    if (runner->dir_fd < 0)
        return err_host(err, "%s", runner->dir);
    runner->lock_fd = dirs_lock(runner->dir_fd);
    if (runner->lock_fd < 0)
        return err_set(err, BRIG_E_CONFLICT, 0, "%s: %s", runner->dir,
                       errno == EWOULDBLOCK ? "another runner uses it" : strerror(errno));
    return 0;
}

static int listen_there(struct carried *box, struct brig_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/s", box->dir_fd);
    mode_t old = umask(0177); /* whoever connects to brig-init owns the sandbox, and ours may be any */
    int r = fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, LISTEN_WAITING) < 0
                ? err_host(err, "socket of the sandbox")
                : 0;
    umask(old);
    if (r < 0)
        return r;
    box->listen_fd = take_fd(&fd);
    return 0;
}

int state_make(struct carried *box, struct brig_err *err)
{
    if (mkdirat(box->runner->dir_fd, box->s.id, 0711) < 0)
        return err_host(err, "%s/%s", box->runner->dir, box->s.id);
    box->dir_fd = openat(box->runner->dir_fd, box->s.id, OPEN_DIR);
    if (box->dir_fd < 0)
        return err_host(err, "%s/%s", box->runner->dir, box->s.id);
    return listen_there(box, err);
}

int state_write(const struct carried *box, struct brig_err *err)
{
    const struct sandbox *s = &box->s;
    struct state state = {.magic = STATE_MAGIC,
                          .version = STATE_VERSION,
                          .size = sizeof state,
                          .flags = s->run->flags,
                          .number = s->run->number,
                          .pid = s->pid,
                          .slot = s->ids.slot,
                          .started = s->started,
                          .profile = (uint32_t)s->run->profile,
                          .store = (uint32_t)s->store,
                          .pid_begun = pid_begun(s->spawner->host.proc_fd, s->pid),
                          .started_at_ns = s->started_at_ns,
                          .limits = s->limits,
                          .gate = s->run->gate};
    AUTO_FD int fd = openat(box->dir_fd, "state.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

    str_assign(state.id, s->id);
    str_assign(state.cgroup, s->cg.name);
    memcpy(state.readings, s->readings, sizeof state.readings);
    int r = fd < 0 ? -errno : fd_write_all(fd, &state, sizeof state);
    if (r == 0 && renameat(box->dir_fd, "state.new", box->dir_fd, "state") < 0)
        r = -errno;
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "%s/%s/state", box->runner->dir, s->id) : 0;
}

void state_remove(struct carried *box)
{
    if (box->dir_fd < 0)
        return;
    dirs_remove_content(box->dir_fd, 2);
    (void)!unlinkat(box->runner->dir_fd, box->s.id, AT_REMOVEDIR);
}

/* ---- an earlier runner's ------------------------------------------------------------------------------ */

static int read_state(int dir_fd, const char *id, struct state *ret)
{
    AUTO_FD int fd = openat(dir_fd, "state", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || read(fd, ret, sizeof *ret) != (ssize_t)sizeof *ret || ret->magic != STATE_MAGIC ||
        ret->version != STATE_VERSION || ret->size != sizeof *ret)
        return -EPROTO;
    return memchr(ret->id, '\0', sizeof ret->id) && memchr(ret->cgroup, '\0', sizeof ret->cgroup) &&
                   str_eq(ret->id, id) && ret->number > 0
               ? 0
               : -EPROTO;
}

static struct run_spec *make_run(const struct state *state)
{
    struct run_spec *run = mem_zalloc(sizeof *run);

    if (!run)
        return NULL;
    *run = (struct run_spec){.number = state->number,
                             .flags = state->flags,
                             .profile = (enum brig_profile)state->profile,
                             .limits = state->limits,
                             .stdio = {-1, -1, -1},
                             .gate = state->gate,
                             .trust_fd = -1};
    return run;
}

static void find_one(struct runner *runner, const char *id)
{
    struct spawner *spawner = &runner->spawner;
    struct brig_err err;
    struct state state;
    struct run_spec *run = NULL;
    struct carried *box = carried_alloc(runner);
    AUTO_FD int dir_fd = openat(runner->dir_fd, id, OPEN_DIR);

    if (!box)
        return;
    str_cut(box->s.id, sizeof box->s.id, id);
    box->dir_fd = take_fd(&dir_fd);
    int r = box->dir_fd < 0 ? -ENOENT : read_state(box->dir_fd, id, &state);
    if (r == 0) {
        run = make_run(&state);
        r = run ? 0 : -ENOMEM;
        if (state.number > spawner->highest_run)
            spawner->highest_run = state.number;
    }
    if (r < 0) { /* its runner died while it was made: then the name is all that we know of its cgroup */
        char name[CG_NAME];
        (void)snprintf(name, sizeof name, CARRIED_CGROUP, id);
        (void)!cg_open_all(&box->s.cg, &spawner->host.cg, name);
    }
    if (r == 0)
        r = cg_open_all(&box->s.cg, &spawner->host.cg, state.cgroup);
    if (r == 0 &&
        (!state.started || state.pid_begun == 0 || pid_begun(spawner->host.proc_fd, state.pid) != state.pid_begun))
        r = -ESRCH;
    if (r == 0 && state.slot >= 0)
        r = ids_claim_again(&spawner->host.ids, state.slot, &box->s.ids);
    if (r < 0) {
        /* nobody is told of its end: brigd does not find it in the list */
        run_spec_done(run);
        (void)err_set(&err, BRIG_E_GONE, -r, "sandbox %s of an earlier runner", id);
        carried_failed(box, &err);
        return;
    }
    sandbox_set_run(&box->s, run);
    box->s.limits = state.limits;
    box->s.store = (enum store_kind)state.store;
    box->s.started = true;
    int64_t age = clock_real_ns() - state.started_at_ns;
    box->s.started_ns = clock_mono_ns() - (age > 0 ? (uint64_t)age : 0);
    box->s.started_at_ns = state.started_at_ns;
    box->s.cg.oom_one = true;
    memcpy(box->s.readings, state.readings, sizeof state.readings);
    carried_found(box, state.pid);
}

void state_find_all(struct runner *runner)
{
    AUTO_DIR DIR *dir = dir_open(runner->dir_fd, ".");

    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (strlen(entry->d_name) == ID_SANDBOX_SIZE - 1)
            find_one(runner, entry->d_name);
}
