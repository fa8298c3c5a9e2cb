/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.c: the lock files of owners (owner.h). A file is "owner-TOKEN" and holds one directory per line. Between
 * opening and locking it the other side may have been faster. So the claimer checks that the file still has its name,
 * and the sweeper removes the name only while it holds the lock.
 */
#include "host/owner.h"

#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "jail/sys.h"

#define PREFIX "owner-"
#define FILE_MAX 8192
#define CLAIM_TRIES 4
#define PAUSE_NS 2000000
#define TRIES 500 /* for all that is found: a second */
#define NOTE "service-owner"
#define FOLLOW_NS (30 * NS_PER_SEC)

static void file_name(const char *token, char out[32])
{
    snprintf(out, 32, PREFIX "%.*s", OWNER_TOKEN, token);
}

/* ---- what is left ----------------------------------------------------------------------------------- */

struct sweep {
    const char *token;
    int tries; /* left */
    bool all;  /* everything that was found is gone */
};

static bool is_of(const char *name, const char *token)
{
    size_t len = strlen(name), tail = strlen(token);

    return strncmp(name, "brig-", 5) == 0 && len > tail + 1 && name[len - tail - 1] == '.' &&
           strcmp(name + len - tail, token) == 0;
}

static void remove_one(struct sweep *sweep, int parent, const char *name)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    while (cg_remove(parent, name) < 0) {
        if (sweep->tries-- <= 0) {
            sweep->all = false;
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* pass 0 kills everywhere, pass 1 removes: what was frozen in one hierarchy holds on to its place in the others. */
static void sweep_directory(struct sweep *sweep, DIR *dir, int pass)
{
    for (const struct dirent *entry; (entry = dir_next(dir));) { /* if it is gone, so is what was in it */
        if (!is_of(entry->d_name, sweep->token))
            continue;
        if (pass == 0)
            cg_kill_named(dirfd(dir), entry->d_name);
        else
            remove_one(sweep, dirfd(dir), entry->d_name);
    }
}

static void sweep_owner(int run_fd, const char *name, int *tries)
{
    char text[FILE_MAX], copy[FILE_MAX], *save = NULL;
    AUTO_FD int lock = openat(run_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct sweep sweep = {name + strlen(PREFIX), *tries, true};

    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0 || fd_read_all(lock, text, sizeof text) < 0)
        return;
    for (int pass = 0; pass < 2; pass++) {
        memcpy(copy, text, sizeof copy);
        for (char *path = strtok_r(copy, "\n", &save); path; path = strtok_r(NULL, "\n", &save))
            if (path[0] == '/') {
                AUTO_DIR DIR *dir = dir_of(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
                sweep_directory(&sweep, dir, pass);
            }
    }
    *tries = sweep.tries;
    if (sweep.all)
        unlinkat(run_fd, name, 0);
}

bool owner_sweep(const struct owner *owner, const struct cg_host *cg, int tries)
{
    struct sweep sweep = {owner->token, tries, true};

    for (int pass = 0; owner->token[0] && pass < 2; pass++)
        for (unsigned i = 0; i <= cg->n_v1; i++) {
            AUTO_DIR DIR *dir = dir_open(i < cg->n_v1 ? cg->v1[i].fd : cg->v2_fd, ".");
            sweep_directory(&sweep, dir, pass);
        }
    return sweep.all;
}

static void sweep_all(int run_fd)
{
    AUTO_DIR DIR *dir = dir_open(run_fd, ".");
    int tries = TRIES;

    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
            strlen(entry->d_name) == strlen(PREFIX) + OWNER_TOKEN)
            sweep_owner(run_fd, entry->d_name, &tries);
}

/* ---- ours ------------------------------------------------------------------------------------------- */

static size_t put_path(char *out, size_t size, int fd)
{
    char link[40];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, out, size - 1);
    if (n <= 0 || memchr(out, '\n', (size_t)n))
        return 0;
    out[n] = '\n';
    return (size_t)n + 1;
}

static void list_places(struct owner *owner, const struct cg_host *cg)
{
    owner->len = put_path(owner->places, sizeof owner->places - 1, cg->v2_fd);
    for (unsigned i = 0; i < cg->n_v1; i++)
        owner->len += put_path(owner->places + owner->len, sizeof owner->places - 1 - owner->len, cg->v1[i].fd);
}

/* 0, or -1: try another token. */
static int claim(struct owner *owner)
{
    char id[ID_SANDBOX_SIZE], name[32];
    struct stat st;

    if (id_sandbox(id) < 0)
        return -1;
    id[OWNER_TOKEN] = '\0';
    file_name(id, name);
    AUTO_FD int fd = openat(owner->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fd_write_all(fd, owner->places, owner->len) < 0 ||
        fstat(fd, &st) < 0 || st.st_nlink == 0)
        return -1;
    memcpy(owner->token, id, sizeof owner->token);
    owner->lock_fd = take_fd(&fd);
    return 0;
}

void owner_init(struct owner *owner, int run_fd, const struct cg_host *cg)
{
    *owner = OWNER_INIT;
    owner->dir_fd = run_fd;
    list_places(owner, cg);
    if (run_fd >= 0)
        sweep_all(run_fd);
}

/* ---- of a service ------------------------------------------------------------------------------------ */

/* Its reaper may be ending them and hold the lock; if that was killed too, we are the one who does it. */
static int wait_for(int run_fd, const char *token, struct brig_err *err)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const uint64_t give_up = clock_mono_ns() + FOLLOW_NS;
    char name[32];

    file_name(token, name);
    for (;;) {
        int tries = 0;
        sweep_owner(run_fd, name, &tries);
        if (faccessat(run_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0 : err_host(err, "%s in the run directory", name);
        if (clock_mono_ns() > give_up)
            return err_set(err, BRIG_E_CONFLICT, EBUSY,
                           "sandboxes of the service before do not end (cgroups brig-*.%s)", token);
        nanosleep(&pause, NULL);
    }
}

static int follow_last(int run_fd, struct brig_err *err)
{
    char token[OWNER_TOKEN + 2];
    ssize_t n = fd_read_file(run_fd, NOTE, token, sizeof token);

    if (n == -ENOENT)
        return 0;
    if (n != OWNER_TOKEN || strspn(token, "abcdefghijklmnopqrstuvwxyz0123456789") != OWNER_TOKEN)
        return err_set(err, BRIG_E_HOST, n < 0 ? (int)-n : EINVAL, NOTE " in the run directory");
    return wait_for(run_fd, token, err);
}

static int put_note(const struct owner *owner)
{
    AUTO_FD int fd = openat(owner->dir_fd, NOTE ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, owner->token, OWNER_TOKEN);

    return r == 0 && renameat(owner->dir_fd, NOTE ".new", owner->dir_fd, NOTE) < 0 ? -errno : r;
}

int owner_follow(struct owner *owner, struct brig_err *err)
{
    if (owner->dir_fd < 0 || owner->len == 0)
        return 0;
    int r = follow_last(owner->dir_fd, err);
    for (int i = 0; r == 0 && owner->lock_fd < 0; i++)
        if (claim(owner) < 0 && i == CLAIM_TRIES)
            r = err_host(err, "claim a name in the run directory");
    owner->tried = true;
    if (r == 0 && (r = put_note(owner)) < 0)
        r = err_set(err, BRIG_E_HOST, -r, NOTE " in the run directory");
    return r;
}

void owner_cgroup_name(struct owner *owner, const char *id, char out[CG_NAME])
{
    char alone[ID_SANDBOX_SIZE];

    for (int i = 0; !owner->tried && owner->dir_fd >= 0 && owner->len > 0 && i < CLAIM_TRIES && claim(owner) < 0; i++)
        ;
    /* Without a file the token is still what our own reaper finds them by. */
    if (!owner->tried && !owner->token[0] && id_sandbox(alone) == 0)
        memcpy(owner->token, alone, OWNER_TOKEN);
    owner->tried = true;
    snprintf(out, CG_NAME, "brig-%s%s%s", id, owner->token[0] ? "." : "", owner->token);
}

void owner_done(struct owner *owner)
{
    char name[32];

    if (owner->lock_fd < 0)
        return;
    file_name(owner->token, name);
    unlinkat(owner->dir_fd, name, 0);
    base_close_fd(&owner->lock_fd);
}
