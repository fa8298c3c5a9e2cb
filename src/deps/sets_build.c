/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_build.c: makes one dependency set.
 *
 * Theory of operation. It is made in <key>.tmp-<random>, which nothing else looks at: `root` is bound, writable, at
 * SET_PATH of an install sandbox, and its directory SET_WORK tells the installer what to do. The sandbox has the
 * network `packages` (none, if there is only a directory of wheels) and nothing of a tenant: no secrets, no variables.
 * While it runs nobody looks into the tree, because the installer can change it under every look. The file system's own
 * counters bound it, because no quota holds a bind: when there is less room by more than a dependency set may have, or
 * the disk is nearly full, the installer is ended. When the sandbox is gone, a thread measures the tree, reads what the
 * installers wrote, makes the lock and removes SET_WORK; then one rename makes it the dependency set of its key. A
 * crash at any point leaves a directory with a dot in its name, which the next start removes.
 *
 * A lock of an earlier build decides what is installed: exactly that, by hash, without resolving anything. Only a
 * rebuild resolves again.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/sets_priv.h"
#include "deps/sets_script.h"

#define MEASURE_NS (UINT64_C(1) * NS_PER_SEC)
#define DISK_FLOOR (UINT64_C(256) << 20)
#define FREE_SLACK (UINT64_C(1) << 30) /* others write to the disk too, and an installer needs room for its work */
#define ERROR_MAX 8192u

struct build {
    struct sets *sets;
    struct entry *entry;
    struct wish wish;
    struct versions versions;
    char tmp[SET_NAME_MAX];
    int dir_fd; /* of tmp */
    bool locked, closing;
    struct own_run *run;
    struct loop_timer on_measure;
    uint64_t free_before; /* bytes that the file system had left */
    uint64_t max;         /* of bytes; a copy, for the thread: the configuration may be replaced */
    struct job finish;
    uint64_t bytes; /* of finish, as the rest */
    struct buf lock;
    int finished;
    struct brig_err err;
    struct build *next, *prev;
};

static void build_free(struct build *b)
{
    list_remove(&b->sets->builds, b);
    loop_timer_clear(b->sets->options.loop, &b->on_measure);
    wish_done(&b->wish);
    buf_done(&b->lock);
    base_close_fd(&b->dir_fd);
    mem_free(b);
}

/* Everybody is told, and the entry is free for another try. */
static void build_end(struct build *b, const struct brig_err *err, const char *text)
{
    struct sets *sets = b->sets;
    struct entry *entry = b->entry;

    if (err)
        sets_drop(sets, b->tmp);
    entry->build = NULL;
    if (!b->closing)
        sets_tell(sets, entry, err, text);
    if (!entry->ready && !b->closing)
        entry_remove(sets, entry);
    build_free(b);
}

/* ---- measuring ------------------------------------------------------------------------------------------------ */

static const char *too_large(const struct build *b, char why[96])
{
    if (b->bytes == UINT64_MAX)
        snprintf(why, 96, "the packages make directories in directories without end");
    else
        snprintf(why, 96, "the packages need more than %llu MiB", (unsigned long long)(b->max >> 20));
    return why;
}

static uint64_t free_bytes(const struct build *b)
{
    struct statvfs fs;

    return fstatvfs(b->dir_fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

static void on_measure(struct loop_timer *timer)
{
    struct build *b = timer->ctx;
    uint64_t left = free_bytes(b);
    struct brig_err why = {0};

    if (!b->run)
        return;
    if (left < DISK_FLOOR)
        (void)err_set(&why, BRIG_E_INVALID, 0, "the disk is nearly full");
    else if (left < b->free_before && b->free_before - left > b->max + FREE_SLACK)
        (void)err_set(&why, BRIG_E_INVALID, 0,
                      "the disk has more than %llu MiB less than before: the packages need too much",
                      (unsigned long long)(b->max >> 20));
    if (why.code) {
        own_run_stop(b->run, &why);
        return;
    }
    (void)!loop_timer_set(b->sets->options.loop, timer, clock_mono_ns() + MEASURE_NS, NULL);
}

/* ---- after the installer ---------------------------------------------------------------------------------------- */

static char *read_text(int dir_fd, const char *name, size_t max, struct buf *buf)
{
    *buf = BUF_INIT(max + 1);
    return dir_fd >= 0 && tree_read(dir_fd, name, max, buf) == 0 ? buf->data : NULL;
}

static int read_parts(struct build *b, int root_fd)
{
    AUTO_FD int work = openat(root_fd, SET_WORK, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_BUF struct buf pip = BUF_INIT(0), package = BUF_INIT(0), package_lock = BUF_INIT(0);
    const struct lock_parts parts = {b->wish.pip.n ? read_text(work, "pip.json", LOCK_MAX / 8, &pip) : NULL,
                                     b->wish.npm.n ? read_text(work, "package.json", LOCK_MAX / 8, &package) : NULL,
                                     b->wish.npm.n ? read_text(work, "package-lock.json", LOCK_MAX / 2, &package_lock)
                                                   : NULL};

    if ((b->wish.pip.n && !parts.pip) || (b->wish.npm.n && (!parts.package || !parts.package_lock)))
        return err_set(&b->err, BRIG_E_INVALID, 0, "the installer did not say what it installed");
    return lock_make(&b->wish, &b->versions, &parts, &b->lock, &b->err);
}

static void finish_work(struct job *job)
{
    struct build *b = (struct build *)(void *)((char *)job - offsetof(struct build, finish));
    AUTO_FD int root = openat(b->dir_fd, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char used[128], why[96];
    int r = root < 0 ? err_set(&b->err, BRIG_E_HOST, errno, "the set's directory") : read_parts(b, root);

    if (r == 0 && (r = tree_remove(root, SET_WORK)) < 0)
        (void)err_set(&b->err, BRIG_E_HOST, -r, "what the installer left");
    if (r == 0) {
        b->bytes = tree_size(b->dir_fd, "root");
        if (b->bytes > b->max)
            r = err_set(&b->err, BRIG_E_INVALID, 0, "%s", too_large(b, why));
    }
    if (r == 0) {
        int len = str_format(used, sizeof used, "%s\n%llu\n", b->wish.org, (unsigned long long)b->bytes);
        r = len < 0 ? len : tree_write(b->dir_fd, "used", used, (size_t)len);
        if (r == 0)
            r = tree_write(b->dir_fd, "lock.json", b->lock.data, b->lock.len);
        if (r < 0)
            (void)err_set(&b->err, BRIG_E_HOST, -r, "the set's lock");
    }
    b->finished = r;
}

/* The one that a rebuild replaces steps aside for those who still use it. */
static int make_room(struct sets *sets, const char *key)
{
    struct entry *old = entry_ready(sets, key);

    return old ? entry_retire(sets, old) : 0;
}

static void finish_done(struct job *job)
{
    struct build *b = (struct build *)(void *)((char *)job - offsetof(struct build, finish));
    struct sets *sets = b->sets;
    char lock[SET_NAME_MAX];
    int r = b->finished;

    if (b->closing) {
        build_end(b, &b->err, NULL);
        return;
    }
    if (r == 0 && (r = make_room(sets, b->entry->key)) == 0)
        r = renameat(sets->options.cache_dir_fd, b->tmp, sets->options.cache_dir_fd, b->entry->key) < 0 ? -errno : 0;
    if (r == 0 && str_format(lock, sizeof lock, "%s.lock", b->entry->key) > 0)
        (void)!tree_write(sets->options.cache_dir_fd, lock, b->lock.data, b->lock.len);
    if (r == 0) {
        memcpy(b->entry->org, b->wish.org, sizeof b->entry->org);
        b->entry->bytes = b->bytes;
        r = entry_fill(sets, b->entry, b->entry->key, b->lock.data, b->lock.len);
    }
    if (r < 0 && !b->err.code)
        (void)err_set(&b->err, BRIG_E_HOST, -r, "the set's directory");
    build_end(b, r < 0 ? &b->err : NULL, NULL);
    if (r == 0)
        sets_collect(sets);
}

/* ---- the installer's end -------------------------------------------------------------------------------- */

/* What people are told: which packages, Letta's advice, and the installer's own words. */
static void explain(const struct build *b, const struct own_run_result *result, struct buf *text, struct brig_err *err)
{
    const char *output = sets_run_output(result);
    const char *said = str_starts(output, "failed ") ? output + strlen("failed ") : "", *words = strchr(said, '\n');
    bool npm = str_starts(said, "npm\n") || b->wish.pip.n == 0;
    int r = wish_sentence(&b->wish, npm, text);

    (void)err_set(err, BRIG_E_INVALID, 0, "%s", text->data ? text->data : "the packages could not be installed");
    if (r == 0 && result->cause[0] && !str_eq(result->cause, "exited"))
        r = str_eq(result->cause, "timeout")
                ? buf_printf(text, "\nThe installer was ended after %u seconds.", (unsigned)(SET_TIMEOUT_MS / 1000))
                : buf_printf(text, "\nThe installer was ended: %s.", result->cause);
    if (r >= 0 && str_starts(said, "pip-missing\n"))
        r = buf_append_str(text, "\nThere is no pip in this template (Debian: python3-pip).");
    if (r >= 0 && b->locked)
        r = buf_append_str(
            text,
            "\nAn earlier build is verified by its lock; recreating the environment resolves the requirements again.");
    if (r >= 0 && words && words[1])
        (void)!buf_append_str(text, words);
}

static void on_run_done(void *ctx, const struct own_run_result *result)
{
    struct build *b = ctx;
    AUTO_BUF struct buf text = BUF_INIT(ERROR_MAX);
    struct brig_err err = {0};

    b->run = NULL;
    loop_timer_clear(b->sets->options.loop, &b->on_measure);
    if (result->good) {
        b->finish = (struct job){.work = finish_work, .done = finish_done};
        workers_add(b->sets->workers, &b->finish);
        return;
    }
    if (result->err && result->err->code != BRIG_E_INVALID) { /* not the packages' fault */
        build_end(b, result->err, result->err->message);
        return;
    }
    explain(b, result, &text, &err);
    if (result->err)
        (void)!buf_printf(&text, "\n%s.", result->err->message);
    build_end(b, &err, text.data);
}

/* ---- the start ------------------------------------------------------------------------------------------ */

static int put_work(int work, const char *name, const struct buf *text, struct brig_err *err)
{
    int r = tree_write(work, name, text->data ? text->data : "", text->len);

    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "%s of a set", name) : 0;
}

/* By the lock of an earlier build, where there is one. Each part that it does not have is resolved. */
static int put_orders(struct build *b, int work, bool rebuild, struct brig_err *err)
{
    AUTO_BUF struct buf lock = BUF_INIT(LOCK_MAX + 1), pip = BUF_INIT(LOCK_MAX), package = BUF_INIT(LOCK_MAX),
                        package_lock = BUF_INIT(LOCK_MAX);
    char name[SET_NAME_MAX];
    int r = 0;

    if (!rebuild && str_format(name, sizeof name, "%s.lock", b->entry->key) > 0 &&
        tree_read(b->sets->options.cache_dir_fd, name, LOCK_MAX, &lock) == 0)
        if (lock_read(lock.data, lock.len, &pip, &package, &package_lock, NULL) < 0)
            pip.len = package.len = package_lock.len = 0; /* a damaged one is as good as none */
    b->locked = pip.len > 0 || package_lock.len > 0;
    if (b->wish.pip.n && pip.len == 0)
        for (size_t i = 0; r >= 0 && i < b->wish.pip.n; i++)
            r = buf_printf(&pip, "%s\n", b->wish.pip.items[i]);
    if (r >= 0 && b->wish.npm.n && package_lock.len == 0) {
        package.len = 0;
        r = buf_append_str(&package, "{\"name\":\"set\",\"version\":\"0.0.0\",\"private\":true}\n");
    }
    if (r < 0)
        return err_nomem(err);
    r = 0;
    if (b->wish.pip.n)
        r = put_work(work, "requirements.txt", &pip, err);
    if (r == 0 && b->wish.npm.n)
        r = put_work(work, "package.json", &package, err);
    if (r == 0 && b->wish.npm.n && package_lock.len > 0)
        r = put_work(work, "package-lock.json", &package_lock, err);
    return r;
}

static int make_dirs(struct build *b, bool rebuild, struct brig_err *err)
{
    int cache = b->sets->options.cache_dir_fd;
    char id[ID_SANDBOX_SIZE];

    if (id_sandbox(id) < 0 || str_format(b->tmp, sizeof b->tmp, "%s.tmp-%s", b->entry->key, id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random name");
    if (mkdirat(cache, b->tmp, 0755) < 0 ||
        (b->dir_fd = openat(cache, b->tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
        mkdirat(b->dir_fd, "root", 0755) < 0 || mkdirat(b->dir_fd, "root/" SET_WORK, 0755) < 0)
        return err_host(err, "the directory of a new set");
    AUTO_FD int work = openat(b->dir_fd, "root/" SET_WORK, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return work < 0 ? err_host(err, "the directory of a new set") : put_orders(b, work, rebuild, err);
}

static void put_bind(struct json *json, const char *source, const char *target, bool read_only)
{
    json_object(json);
    json_key_string(json, "source", source);
    json_key_string(json, "target", target);
    json_key_bool(json, "read_only", read_only);
    json_end(json);
}

/* With a directory of wheels pip needs no network, nor npm for files of it. */
static bool is_offline(const struct build *b)
{
    if (!b->sets->config->tools_find_links[0])
        return false;
    for (size_t i = 0; i < b->wish.npm.n; i++)
        if (!strstr(b->wish.npm.items[i], "file:" SET_WHEELS "/"))
            return false;
    return true;
}

static int put_spec(const struct build *b, struct buf *out)
{
    const struct config *config = b->sets->config;
    struct json json = JSON_INIT(out);
    char root[4096];

    if (str_format(root, sizeof root, "%s/%s/root", b->sets->cache_path, b->tmp) < 0)
        return -ENAMETOOLONG;
    json_object(&json);
    sets_put_template(&json, &b->wish);
    json_key_string(&json, "network", is_offline(b) ? "none" : "packages");
    json_key_u64(&json, "timeout", SET_TIMEOUT_MS / 1000 + 30);
    json_key_object(&json, "limits");
    json_key_string(&json, "memory", "1g");
    json_key_u64(&json, "pids", 256);
    json_end(&json);
    json_key_array(&json, "binds");
    put_bind(&json, root, SET_PATH, false);
    if (config->tools_find_links[0])
        put_bind(&json, config->tools_find_links, SET_WHEELS, true);
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}

static int put_env(const struct build *b, struct words *env)
{
    const struct set_index *index = &b->sets->index;
    const struct config *config = b->sets->config;
    const char *registry = config->tools_npm_registry[0] ? config->tools_npm_registry : index->npm;
    bool wheels = config->tools_find_links[0], shared = config->tools_share_sets && b->wish.pinned;
    const char *const pairs[][2] = {{"PIP_INDEX_URL", wheels ? "" : index->pip},
                                    {"PIP_EXTRA_INDEX_URL", wheels ? "" : index->extra},
                                    {"PIP_TRUSTED_HOST", wheels ? "" : index->trusted},
                                    {"npm_config_registry", registry},
                                    {"BRIG_PYTHON", b->wish.python}};
    char line[2304];
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(pairs); i++)
        if (pairs[i][1][0])
            r = str_format(line, sizeof line, "%s=%s", pairs[i][0], pairs[i][1]) < 0 ? -ENAMETOOLONG
                                                                                     : words_add(env, line);
    if (r == 0)
        r = str_format(line, sizeof line, "BRIG_VENV=%s/%s", SET_PATH, b->wish.venv) < 0 ? -ENAMETOOLONG
                                                                                         : words_add(env, line);
    /* What organisations share is unpacked, never built: a build could be made to depend on who asks first. */
    if (r == 0)
        r = str_format(line, sizeof line, "BRIG_PIP=%s%s%s", wheels ? "--no-index --find-links " SET_WHEELS : "",
                       b->locked ? " --require-hashes --no-deps" : "",
                       shared ? " --require-hashes --only-binary :all:" : "") < 0
                ? -ENAMETOOLONG
                : words_add(env, line);
    return r;
}

static int launch(struct build *b, struct brig_err *err)
{
    AUTO_BUF struct buf spec = BUF_INIT(16384);
    struct words env = {0};
    int r = put_spec(b, &spec);

    if (r == 0)
        r = put_env(b, &env);
    const struct sets_run_spec what = {.org = b->wish.org,
                                       .spec = spec.data,
                                       .wish = &b->wish,
                                       .script = INSTALL_SCRIPT,
                                       .args = b->wish.npm,
                                       .env = env,
                                       .timeout_ms = SET_TIMEOUT_MS};
    r = r < 0 ? err_nomem(err) : sets_run(b->sets, &what, on_run_done, b, &b->run, err);
    words_done(&env);
    return r;
}

int build_start(struct sets *sets, struct entry *entry, struct set_build *first, const struct versions *versions,
                struct brig_err *err)
{
    struct build *b = mem_zalloc(sizeof *b);

    if (!b)
        return err_nomem(err);
    *b = (struct build){.sets = sets,
                        .entry = entry,
                        .versions = *versions,
                        .dir_fd = -1,
                        .on_measure = {.fn = on_measure, .ctx = b},
                        .lock = BUF_INIT(LOCK_MAX)};
    list_push(&sets->builds, b);
    b->max = sets->config->tools_sets_bytes < SET_BYTES_MAX ? sets->config->tools_sets_bytes : SET_BYTES_MAX;
    b->wish = first->wish;
    int r = make_dirs(b, first->rebuild, err);
    if (r == 0)
        b->free_before = free_bytes(b);
    if (r == 0)
        r = launch(b, err);
    if (r < 0) {
        b->wish = (struct wish){.pinned = false}; /* still theirs */
        if (b->dir_fd >= 0)
            sets_drop(sets, b->tmp);
        build_free(b);
        return r;
    }
    first->wish = (struct wish){.pinned = false};
    entry->build = b;
    (void)!loop_timer_set(sets->options.loop, &b->on_measure, clock_mono_ns() + MEASURE_NS, NULL);
    return 0;
}

void build_forget(struct build *b)
{
    b->closing = true;
    if (b->run) {
        own_run_forget(take_ptr(&b->run));
        build_end(b, NULL, NULL);
    }
}

struct build *build_next(struct build *b)
{
    return b->next;
}
