/* SPDX-License-Identifier: Apache-2.0 */
/*
 * artifacts.c: keeps the output files of runs, those under /workspace/out, as one tar per run below the state
 * directory: <organisation>/<run id>.tar. They are fetched after the run was answered: the child has ended its program
 * and waits to be released. Bytes and time are bounded, also per organisation: if an organisation has more than
 * ARTIFACTS_ORG_MAX, its oldest are removed, because the store lies on the same disk. So is their number: the loop
 * looks through them, and while it does nobody is answered. A tar is written under another name and renamed when it is
 * whole. It is opened by organisation and id, and both are checked to be plain names.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ascii.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/list.h"
#include "codec/wire/guest_svc.h"
#include "run/run_priv.h"

#define ARTIFACT_MAX (64u << 20)
#define ARTIFACTS_ORG_MAX (UINT64_C(1) << 30)
#define ARTIFACT_LEAST (UINT64_C(256) << 10) /* what one counts at least, so that their number has a bound, too */
#define WEIGH_BYTES (UINT64_C(256) << 20)    /* so much is written between two looks at what is there */
#define ARTIFACT_NS (30 * NS_PER_SEC)
#define OUT_DIR "out" /* of /workspace */
#define SWEEP_NS (600 * NS_PER_SEC)

struct artifact {
    struct executor *executor;
    struct artifact *next, *prev;
    struct child *child;
    struct call *call;
    struct loop_timer timer;
    struct sbox_watch watch;
    struct sbox *sbox;
    int dir_fd, fd;
    uint64_t size;
    bool found, failed;
    char org[64], id[48];
};

static bool plain(const char *name)
{
    return str_is_name(name, 63, ASCII_ALNUM "-_", ASCII_ALNUM "-_");
}

static void artifact_free(struct artifact *a)
{
    struct executor *executor = a->executor;

    loop_timer_clear(executor->o.loop, &a->timer);
    if (a->sbox)
        sbox_unwatch(a->sbox, &a->watch);
    if (a->call)
        call_drop(a->call);
    base_close_fd(&a->fd);
    base_close_fd(&a->dir_fd);
    list_remove(&executor->artifacts, a);
    mem_free(a);
}

static void count_left(struct artifact *a);

static void end(struct artifact *a, bool whole)
{
    struct child *child = a->child;
    char from[64], to[64];

    if (a->fd >= 0) {
        snprintf(from, sizeof from, "%s.part", a->id);
        snprintf(to, sizeof to, "%s.tar", a->id);
        if (!whole || a->failed || renameat(a->dir_fd, from, a->dir_fd, to) < 0)
            (void)!unlinkat(a->dir_fd, from, 0);
        else
            count_left(a);
    }
    artifact_free(a);
    child_release(child);
}

static void on_timer(struct loop_timer *timer)
{
    end(timer->ctx, false);
}

static void on_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct artifact *a = ctx;

    a->sbox = NULL;
    a->call = NULL; /* the link is gone, and its calls with it */
    end(a, false);
}

/* They go with their runs' rows: as old as `[store] keep_runs` allows. */
static void sweep_dir(int state, const char *org, int64_t before)
{
    AUTO_DIR DIR *dir = dir_open(state, org);
    struct stat st;

    if (!dir)
        return;
    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (entry->d_name[0] != '.' && fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mtime < before)
            (void)!unlinkat(dirfd(dir), entry->d_name, 0);
    (void)!unlinkat(state, org, AT_REMOVEDIR); /* when it is empty */
}

static void sweep(struct executor *executor)
{
    uint64_t keep = executor->o.config->keep_runs_seconds, now = loop_now_ns();
    int64_t seconds = clock_real_ns() / (int64_t)NS_PER_SEC;

    if (keep == 0 || (executor->swept_ns && now - executor->swept_ns < SWEEP_NS))
        return;
    executor->swept_ns = now;
    AUTO_DIR DIR *dir = dir_open(executor->o.artifacts_fd, ".");
    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (plain(entry->d_name))
            sweep_dir(dirfd(dir), entry->d_name, seconds - (int64_t)keep);
}

/* ---- the bound of an organisation ------------------------------------------------------------------------ */

struct kept {
    char name[64];
    uint64_t bytes;
    struct timespec at;
};

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept *)a)->at, *y = &((const struct kept *)b)->at;

    return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec ? -1 : 1)
                                  : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Without memory it lists what it has: then less is removed. */
static uint64_t weight(uint64_t size)
{
    return size > ARTIFACT_LEAST ? size : ARTIFACT_LEAST;
}

static void list_kept(int dir_fd, struct kept **list, size_t *n, uint64_t *bytes)
{
    AUTO_DIR DIR *dir = dir_open(dir_fd, ".");
    struct stat st;
    size_t room = 0;

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            strlen(entry->d_name) >= sizeof(*list)->name)
            continue;
        if (MEM_GROW(*list, *n, room) < 0)
            return;
        struct kept *k = &(*list)[(*n)++];
        *k = (struct kept){.bytes = weight((uint64_t)st.st_size), .at = st.st_mtim};
        snprintf(k->name, sizeof k->name, "%.63s", entry->d_name);
        *bytes += k->bytes;
    }
}

/* The oldest go while there is too much. One that is being written has the newest time, and goes last. */
static void weigh(int dir_fd)
{
    AUTO_FREE struct kept *list = NULL;
    size_t n = 0;
    uint64_t bytes = 0;

    list_kept(dir_fd, &list, &n, &bytes);
    if (n == 0 || bytes <= ARTIFACTS_ORG_MAX)
        return;
    qsort(list, n, sizeof *list, by_age);
    for (size_t i = 0; i < n && bytes > ARTIFACTS_ORG_MAX; i++)
        if (unlinkat(dir_fd, list[i].name, 0) == 0)
            bytes -= list[i].bytes;
}

static struct left *left_of(struct executor *executor, const char *org)
{
    struct left *slot = &executor->left[str_hash(org, NULL) % ARRAY_SIZE(executor->left)];

    if (!str_eq(slot->org, org)) { /* another's, or the first since the start: looked at now */
        *slot = (struct left){.bytes = WEIGH_BYTES};
        (void)!str_copy(slot->org, sizeof slot->org, org);
    }
    return slot;
}

/* A whole one was added. */
static void count_left(struct artifact *a)
{
    struct left *left = left_of(a->executor, a->org);

    left->bytes += weight(a->size);
    if (left->bytes < WEIGH_BYTES)
        return;
    left->bytes = 0;
    weigh(a->dir_fd);
}

static int open_file(struct artifact *a)
{
    char name[64];
    int state = a->executor->o.artifacts_fd;

    sweep(a->executor);
    if (mkdirat(state, a->org, 0700) < 0 && errno != EEXIST)
        return -errno;
    a->dir_fd = openat(state, a->org, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (a->dir_fd < 0)
        return -errno;
    snprintf(name, sizeof name, "%s.part", a->id);
    a->fd = openat(a->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return a->fd < 0 ? -errno : 0;
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct artifact *a = ctx;

    a->size += len;
    if (a->size > ARTIFACT_MAX || a->fd < 0 || fd_write_all(a->fd, data, len) < 0)
        a->failed = true;
    call_consumed(a->call, stream, len);
}

static void on_tar(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct artifact *a = ctx;

    a->call = NULL;
    end(a, errnum == 0);
}

static int ask(struct artifact *a, enum svc_type type, const struct call_events *events)
{
    static const char base[] = "/workspace", path[] = OUT_DIR;
    uint8_t payload[256];
    struct svc_cursor out = {payload, payload + sizeof payload, false};
    const struct svc_path where = {.flags = SVC_PATH_CONFINE | SVC_PATH_NOFOLLOW,
                                   .base = {base, sizeof base - 1},
                                   .path = {path, sizeof path - 1}};
    struct sbox *sbox = child_sbox(a->child);

    if (!sbox || !sbox_link(sbox))
        return -ENOTCONN;
    svc_put_path(&out, &where);
    if (type == SVC_FILE_LIST) {
        svc_put_u32(&out, 1); /* depth */
        svc_put_u32(&out, 1); /* one is enough */
    }
    int n = svc_put_done(&out, payload);
    return n < 0 ? n : link_call(sbox_link(sbox), type, payload, (size_t)n, events, &a->call, NULL);
}

static void on_entry(void *ctx, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct artifact *a = ctx;

    a->found = true;
}

static void on_listed(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct artifact *a = ctx;
    const struct call_events events = {.data = on_data, .reply = on_tar, .ctx = a};

    a->call = NULL;
    if (errnum || !a->found || open_file(a) < 0 || ask(a, SVC_FILE_TAR_GET, &events) < 0)
        end(a, false);
}

void artifact_fetch(struct executor *executor, const char *org, const char *id, struct child *child)
{
    struct artifact *a = mem_zalloc(sizeof *a);

    if (!a || !plain(org) || !plain(id) || strlen(org) >= sizeof a->org || strlen(id) >= sizeof a->id) {
        mem_free(a);
        child_release(child);
        return;
    }
    *a = (struct artifact){.executor = executor,
                           .child = child,
                           .dir_fd = -1,
                           .fd = -1,
                           .timer = {.fn = on_timer},
                           .watch = {.ended = on_gone}};
    a->timer.ctx = a->watch.ctx = a;
    (void)!(str_copy(a->org, sizeof a->org, org) || str_copy(a->id, sizeof a->id, id)); /* they fit: see above */
    list_push(&executor->artifacts, a);
    const struct call_events events = {.event = on_entry, .reply = on_listed, .ctx = a};
    if (loop_timer_set(executor->o.loop, &a->timer, loop_now_ns() + ARTIFACT_NS, NULL) < 0 ||
        ask(a, SVC_FILE_LIST, &events) < 0) {
        end(a, false);
        return;
    }
    a->sbox = child_sbox(child);
    sbox_watch(a->sbox, &a->watch);
}

void artifacts_free(struct executor *executor)
{
    while (executor->artifacts)
        artifact_free(executor->artifacts);
}

/* Finds it in any organisation, for the administrator of all. */
static int open_any(int state, const char *id)
{
    AUTO_DIR DIR *dir = dir_open(state, ".");
    char path[400];
    int ret = -1;

    for (const struct dirent *entry; ret < 0 && (entry = dir_next(dir));)
        if (plain(entry->d_name) && str_format(path, sizeof path, "%s/%s.tar", entry->d_name, id) >= 0)
            ret = openat(state, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    errno = ENOENT;
    return ret;
}

int executor_artifact(struct executor *executor, const char *org, const char *id, int *ret_fd, struct brig_err *err)
{
    char path[160];

    if (executor->o.artifacts_fd < 0 || (org[0] && !plain(org)) || !plain(id) ||
        str_format(path, sizeof path, "%s/%s.tar", org, id) < 0)
        return err_set(err, BRIG_E_NOT_FOUND, ENOENT, "%.64s has left no files", id);
    int fd = org[0] ? openat(executor->o.artifacts_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
                    : open_any(executor->o.artifacts_fd, id);
    if (fd < 0 && errno == ENOENT)
        return err_set(err, BRIG_E_NOT_FOUND, ENOENT, "%.64s has left no files", id);
    if (fd < 0)
        return err_host(err, "the files of %.64s", id);
    *ret_fd = fd;
    return 0;
}
