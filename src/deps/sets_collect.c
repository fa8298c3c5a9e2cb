/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_collect.c: finds dependency sets on disk at the start, and collects them by age and size. A name with a dot that
 * is no lock was left by a build or a removal when the service died. Its installer may still be at work in it, so it is
 * removed only when every orphan of that life is gone. A dependency set is removed when nobody has used it for [tools]
 * sets_age, and the longest unused one first while all together are over sets_bytes; never one that is in use. It is
 * removed by a rename, and then bit by bit on a thread.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "deps/sets_priv.h"

/* ---- removing ------------------------------------------------------------------------------------------- */

struct drop {
    struct job job;
    int dir_fd;
    char name[SET_NAME_MAX];
};

static void drop_work(struct job *job)
{
    struct drop *drop = (struct drop *)(void *)job;

    (void)!tree_remove(drop->dir_fd, drop->name); /* what cannot be removed now is tried again at the next start */
}

static void drop_done(struct job *job)
{
    mem_free(job);
}

_Static_assert(offsetof(struct drop, job) == 0, "a drop is its job");

void sets_drop(struct sets *sets, const char *name)
{
    struct drop *drop = sets->closing ? NULL : mem_zalloc(sizeof *drop);

    if (!drop)
        return;
    *drop = (struct drop){.job = {.work = drop_work, .done = drop_done}, .dir_fd = sets->options.cache_dir_fd};
    if (str_copy(drop->name, sizeof drop->name, name) == 0)
        workers_add(sets->workers, &drop->job);
    else
        mem_free(drop); /* no name that a set has */
}

/* ---- the start ------------------------------------------------------------------------------------------ */

static bool is_key(const char *name)
{
    return strspn(name, "0123456789abcdef") == SHA256_HEX - 1 && name[SHA256_HEX - 1] == '\0';
}

/* "organisation\nbytes\n"; its mtime is the last use. */
static int read_used(int dir_fd, struct entry *entry)
{
    AUTO_BUF struct buf used = BUF_INIT(512);
    struct stat st;
    int r = tree_read(dir_fd, "used", 256, &used);

    if (r < 0 || fstatat(dir_fd, "used", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return r < 0 ? r : -errno;
    char *end = strchr(used.data ? used.data : "", '\n'), *bytes = end ? end + 1 : NULL;
    if (!bytes || !strchr(bytes, '\n'))
        return -EINVAL;
    *end = *strchr(bytes, '\n') = '\0';
    entry->used_at = st.st_mtim.tv_sec;
    return str_copy(entry->org, sizeof entry->org, used.data) < 0 ? -EINVAL : parse_u64(bytes, &entry->bytes);
}

static int read_set(struct sets *sets, const char *key)
{
    AUTO_FD int dir = openat(sets->options.cache_dir_fd, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_BUF struct buf lock = BUF_INIT(LOCK_MAX + 1);
    struct stat st;

    if (dir < 0 || fstatat(dir, "root", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return -ENOENT;
    struct entry *entry = entry_add(sets, key);
    if (!entry)
        return -ENOMEM;
    int r = read_used(dir, entry);
    if (r == 0)
        r = tree_read(dir, "lock.json", LOCK_MAX, &lock);
    if (r == 0)
        r = entry_fill(sets, entry, key, lock.data, lock.len);
    if (r < 0)
        entry_remove(sets, entry);
    return r;
}

int sets_scan(struct sets *sets, struct brig_err *err)
{
    AUTO_DIR DIR *dir = dir_open(sets->options.cache_dir_fd, ".");
    int r = 0;

    if (!dir)
        return err_host(err, "the directory of dependency sets");
    for (const struct dirent *entry; r != -ENOMEM && (entry = dir_next(dir));) {
        size_t len = strlen(entry->d_name);
        bool lock = len == SHA256_HEX - 1 + 5 && str_eq(entry->d_name + len - 5, ".lock");
        if (lock || len >= SET_NAME_MAX)
            continue;
        if (!is_key(entry->d_name))
            r = words_add(&sets->remains, entry->d_name);
        else if ((r = read_set(sets, entry->d_name)) < 0 && r != -ENOMEM)
            sets_drop(sets, entry->d_name); /* it has this name because its installer was gone */
    }
    return r == -ENOMEM ? err_nomem(err) : 0;
}

bool sets_sweep(struct sets *sets)
{
    if (sets->remains.n > 0 && !manager_is_settled(sets->options.manager))
        return false;
    for (size_t i = 0; i < sets->remains.n; i++)
        sets_drop(sets, sets->remains.items[i]);
    words_done(&sets->remains);
    return true;
}

/* ---- collecting ----------------------------------------------------------------------------------------- */

static struct entry *oldest(struct sets *sets)
{
    struct entry *found = NULL;

    for (struct entry *e = sets->entries; e; e = e->next)
        if (e->ready && !e->stale && e->users == 0 && (!found || e->used_at < found->used_at))
            found = e;
    return found;
}

static uint64_t all_bytes(const struct sets *sets)
{
    uint64_t sum = 0;

    for (const struct entry *e = sets->entries; e; e = e->next)
        sum += e->bytes;
    return sum;
}

/* Locks stay longer than sets, but not for ever. */
static void collect_locks(struct sets *sets, int64_t now)
{
    int fd = sets->options.cache_dir_fd;
    AUTO_DIR DIR *dir = dir_open(fd, ".");
    struct stat st;

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        size_t len = strlen(entry->d_name);
        if (len < 5 || !str_eq(entry->d_name + len - 5, ".lock") ||
            fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        char key[SHA256_HEX];
        snprintf(key, sizeof key, "%.64s", entry->d_name);
        if (!entry_ready(sets, key) &&
            now - st.st_mtim.tv_sec > (int64_t)(sets->config->tools_sets_seconds * LOCKS_KEEP))
            (void)!unlinkat(fd, entry->d_name, 0);
    }
}

void sets_collect(struct sets *sets)
{
    int64_t now = clock_real_ns() / (int64_t)NS_PER_SEC, age = (int64_t)sets->config->tools_sets_seconds;
    struct entry *entry;

    while ((entry = oldest(sets)) && (now - entry->used_at > age || all_bytes(sets) > sets->config->tools_sets_bytes))
        if (entry_retire(sets, entry) < 0)
            break;
    collect_locks(sets, now);
}
