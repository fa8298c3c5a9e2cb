/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets.c: finds or builds the dependency set of a request. A request first needs the versions of the interpreters in
 * the template (asked once in a sandbox, and again when the interpreter's file has changed). Then it has a key. Then
 * the dependency set exists, or the request waits for a build of it, or begins one. No callback comes from within the
 * call that asked.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/sets_priv.h"
#include "deps/sets_script.h"

#define WAITING_MAX 10000u
#define WAITING_PER_ORG 5000u
#define CONF_MAX (64u << 10)

/* ---- entries ---------------------------------------------------------------------------------------------------- */

struct entry *entry_ready(struct sets *sets, const char *key)
{
    for (struct entry *e = sets->entries; e; e = e->next)
        if (e->ready && !e->stale && str_eq(e->key, key))
            return e;
    return NULL;
}

/* the one that is being made, or NULL */
static struct entry *entry_building(struct sets *sets, const char *key)
{
    for (struct entry *e = sets->entries; e; e = e->next)
        if (e->build && str_eq(e->key, key))
            return e;
    return NULL;
}

struct entry *entry_add(struct sets *sets, const char *key)
{
    struct entry *entry = mem_zalloc(sizeof *entry);

    if (!entry || str_copy(entry->key, sizeof entry->key, key) < 0) {
        mem_free(entry);
        return NULL;
    }
    list_push(&sets->entries, entry);
    return entry;
}

void entry_remove(struct sets *sets, struct entry *entry)
{
    list_remove(&sets->entries, entry);
    mem_free(entry);
}

static int entry_place(const struct sets *sets, struct entry *entry, const char *name)
{
    if (str_copy(entry->name, sizeof entry->name, name) < 0 ||
        str_format(entry->path, sizeof entry->path, "%s/%s/root", sets->cache_path, name) < 0)
        return -ENAMETOOLONG;
    return 0;
}

int entry_fill(struct sets *sets, struct entry *entry, const char *name, const char *lock, size_t lock_len)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int r = entry_place(sets, entry, name);

    if (r == 0)
        r = lock_hash(lock, lock_len, entry->lock);
    if (r == 0)
        r = json_read(lock, lock_len, JSON_READ_VALUES, &doc, NULL);
    if (r < 0)
        return r;
    const char *venv = json_get_text(json_root(doc), "venv", NULL);
    if (venv && str_format(entry->venv, sizeof entry->venv, "%s/%s", SET_PATH, venv) < 0)
        return -ENAMETOOLONG;
    bool npm = json_get(json_root(doc), "package_lock");
    entry->set = (struct set){.key = entry->key,
                              .host_path = entry->path,
                              .lock_hash = entry->lock,
                              .venv = entry->venv[0] ? entry->venv : NULL,
                              .node_path = npm ? SET_PATH "/npm/node_modules" : NULL};
    entry->ready = true;
    if (!entry->used_at)
        entry->used_at = clock_real_ns() / (int64_t)NS_PER_SEC;
    return 0;
}

int entry_retire(struct sets *sets, struct entry *entry)
{
    char name[SET_NAME_MAX], id[ID_SANDBOX_SIZE];

    if (id_sandbox(id) < 0 || str_format(name, sizeof name, "%s.old-%s", entry->key, id) < 0)
        return -EIO;
    if (renameat(sets->options.cache_dir_fd, entry->name, sets->options.cache_dir_fd, name) < 0 && errno != ENOENT)
        return -errno;
    entry->stale = true;
    if (entry_place(sets, entry, name) < 0 || entry->users == 0) {
        sets_drop(sets, name);
        if (entry->users == 0)
            entry_remove(sets, entry);
    }
    return 0;
}

/* Its time of use is for the collector of the next start: a minute's precision does. */
static void entry_use(struct sets *sets, struct entry *entry)
{
    int64_t now = clock_real_ns() / (int64_t)NS_PER_SEC;
    char path[SET_NAME_MAX + 8];

    if (now - entry->used_at > 60 && str_format(path, sizeof path, "%s/used", entry->name) > 0)
        (void)!utimensat(sets->options.cache_dir_fd, path, NULL, AT_SYMLINK_NOFOLLOW);
    entry->used_at = now;
}

/* ---- those who wait --------------------------------------------------------------------------------------------- */

static void waiter_free(struct set_build *waiter)
{
    wish_done(&waiter->wish);
    mem_free(waiter);
}

static void tell(struct sets *sets, struct set_build *waiter, struct entry *entry, const struct brig_err *err,
                 const char *text)
{
    list_take(&sets->waiting, &sets->last_waiting, waiter);
    waiter->sets = NULL; /* it cannot be cancelled any more */
    waiter->text = text ? text : err ? err->message : "";
    if (!err) {
        entry->users++;
        entry_use(sets, entry);
    }
    waiter->done(waiter->ctx, err ? NULL : &entry->set, err);
    waiter_free(waiter);
}

void sets_tell(struct sets *sets, struct entry *entry, const struct brig_err *err, const char *text)
{
    bool found;

    if (!err)
        entry->users++; /* until all have it: the first may give it back at once */
    do {                /* a callback may take others off the list */
        found = false;
        for (struct set_build *waiter = sets->waiting; waiter && !found; waiter = waiter->next) {
            if (waiter->entry == entry) {
                found = true;
                tell(sets, waiter, entry, err, text);
                break;
            }
        }
    } while (found);
    if (!err)
        entry->users--;
}

static void on_turn(struct loop_timer *timer);

/* those who wait are looked at again, soon */
static void sets_turn(struct sets *sets)
{
    (void)!loop_timer_set(sets->options.loop, &sets->on_turn, 0, NULL);
}

/* ---- versions ------------------------------------------------------------------------------------------- */

static int64_t interpreter_time(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (int64_t)st.st_ctim.tv_sec * (int64_t)NS_PER_SEC + st.st_ctim.tv_nsec : 0;
}

static bool knows(const struct known *known, const struct wish *wish)
{
    return str_eq(known->org, wish->org) && str_eq(known->python, wish->python) &&
           str_eq(known->template_name, wish->template_name) && str_eq(known->template_id, wish->template_id);
}

static struct known *known_find(struct sets *sets, const struct wish *wish)
{
    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (knows(&sets->known[i], wish))
            return &sets->known[i];
    return NULL;
}

/* The one that was looked at longest ago; NULL if all of them are being asked for. */
static struct known *known_take(struct sets *sets, const struct wish *wish)
{
    struct known *oldest = NULL;

    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (!sets->known[i].asking && (!oldest || sets->known[i].used < oldest->used))
            oldest = &sets->known[i];
    if (oldest) {
        *oldest = (struct known){.sets = sets};
        str_assign(oldest->org, wish->org);
        str_assign(oldest->python, wish->python);
        str_assign(oldest->template_name, wish->template_name);
        str_assign(oldest->template_id, wish->template_id);
    }
    return oldest;
}

static bool org_asks(const struct sets *sets, const char *org)
{
    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (sets->known[i].asking && str_eq(sets->known[i].org, org))
            return true;
    return false;
}

/* Those who wait for these versions. */
static void tell_askers(struct known *known, const struct brig_err *err)
{
    struct set_build *waiter;

    do { /* a callback may take others off the list */
        waiter = known->sets->waiting;
        while (waiter && (waiter->entry || !knows(known, &waiter->wish)))
            waiter = waiter->next;
        if (waiter)
            tell(known->sets, waiter, NULL, err, NULL);
    } while (waiter);
}

static void on_versions(void *ctx, const struct own_run_result *result)
{
    struct known *known = ctx;
    struct brig_err err = {0};

    known->asking = NULL;
    if (result->err)
        err = *result->err;
    else if (!result->good || versions_parse(sets_run_output(result), &known->versions) < 0)
        (void)err_set(&err, BRIG_E_UNSUPPORTED, 0, "dependency sets: the template has neither Python nor Node");
    known->found = err.code == BRIG_E_NONE;
    if (err.code)
        tell_askers(known, &err);
    sets_turn(known->sets);
}

/* In a template the installer is our user all the same, and not the image's. */
void sets_put_template(struct json *json, const struct wish *wish)
{
    if (!wish->template_name[0])
        return;
    json_key_string(json, "template", wish->template_name);
    json_key_string(json, "user", "user");
    json_key_string(json, "workdir", "/workspace");
}

static int ask_versions(struct known *known, const struct wish *wish, struct brig_err *err)
{
    char python[sizeof wish->python + 16];

    snprintf(python, sizeof python, "BRIG_PYTHON=%s", wish->python);
    char *env[] = {python};
    AUTO_BUF struct buf spec = BUF_INIT(4096);
    struct json json = JSON_INIT(&spec);
    json_object(&json);
    sets_put_template(&json, wish);
    json_key_string(&json, "network", "none");
    json_key_u64(&json, "timeout", 60);
    json_end(&json);
    if (json_finish(&json) < 0)
        return err_nomem(err);
    const struct sets_run_spec what = {.org = wish->org,
                                       .spec = spec.data,
                                       .wish = wish,
                                       .script = VERSIONS_SCRIPT,
                                       .env = {env, ARRAY_SIZE(env)},
                                       .timeout_ms = 30000};
    known->found = false;
    known->python_time = interpreter_time(wish->python);
    return sets_run(known->sets, &what, on_versions, known, &known->asking, err);
}

/* What is known for the wish, or NULL: it is being asked for, or will be. */
static int find_versions(struct sets *sets, const struct wish *wish, const struct versions **ret, struct brig_err *err)
{
    struct known *known = known_find(sets, wish);

    *ret = NULL;
    if (known)
        known->used = sets->turns;
    if (known && known->found && interpreter_time(wish->python) == known->python_time) {
        *ret = &known->versions;
        return 0;
    }
    if (org_asks(sets, wish->org))
        return 0;
    known = known ? known : known_take(sets, wish);
    if (!known)
        return 0;
    known->used = sets->turns;
    return ask_versions(known, wish, err);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static int check_there(const struct versions *versions, const struct wish *wish, struct brig_err *err)
{
    if (wish->pip.n && !versions->python[0])
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "pip requirements: there is no %.100s in the template",
                       wish->python);
    if (wish->npm.n && !versions->node[0])
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "npm requirements: there is no node in the template");
    return 0;
}

static int begin(struct sets *sets, struct set_build *waiter, const struct versions *versions, struct brig_err *err)
{
    struct entry *entry = entry_building(sets, waiter->key);

    if (entry) {
        waiter->entry = entry;
        return 0;
    }
    entry = entry_add(sets, waiter->key);
    if (!entry)
        return err_nomem(err);
    int r = build_start(sets, entry, waiter, versions, err);
    if (r < 0)
        entry_remove(sets, entry);
    else
        waiter->entry = entry;
    return r;
}

/* 0: it waits for something now. 1: it has been told. */
static int step(struct sets *sets, struct set_build *waiter)
{
    const struct versions *versions;
    struct brig_err err = {0};
    int r = find_versions(sets, &waiter->wish, &versions, &err);

    if (r == 0 && versions) {
        r = check_there(versions, &waiter->wish, &err);
        if (r == 0 && wish_key(&waiter->wish, versions, &sets->index, sets->config, waiter->key) < 0)
            r = err_nomem(&err);
        struct entry *ready = r == 0 && !waiter->rebuild ? entry_ready(sets, waiter->key) : NULL;
        if (ready) {
            tell(sets, waiter, ready, NULL, NULL);
            return 1;
        }
        if (r == 0)
            r = begin(sets, waiter, versions, &err);
    }
    if (r < 0)
        tell(sets, waiter, NULL, &err, NULL);
    return r < 0;
}

static void on_turn(struct loop_timer *timer)
{
    struct sets *sets = timer->ctx;
    bool again;

    sets->turns++;
    do { /* whoever has been told may have changed the list */
        again = false;
        for (struct set_build *waiter = sets->waiting; waiter; waiter = waiter->next) {
            if (waiter->entry || waiter->turn == sets->turns)
                continue;
            waiter->turn = sets->turns; /* each once: nothing that it waits for comes within a turn */
            if (step(sets, waiter) > 0) {
                again = true;
                break;
            }
        }
    } while (again);
}

/* ---- the interface -------------------------------------------------------------------------------------- */

static int read_index(struct sets *sets, struct brig_err *err)
{
    AUTO_BUF struct buf conf = BUF_INIT(CONF_MAX + 1), npmrc = BUF_INIT(CONF_MAX + 1);

    set_index_read(&sets->index, tree_read(AT_FDCWD, "/etc/pip.conf", CONF_MAX, &conf) == 0 ? conf.data : NULL,
                   tree_read(AT_FDCWD, "/etc/npmrc", CONF_MAX, &npmrc) == 0 ? npmrc.data : NULL);
    sets->cache_path = mem_strdup(sets->options.cache_path);
    return sets->cache_path ? workers_create(sets->options.loop, 1, &sets->workers, err) : err_nomem(err);
}

static void on_collect(struct loop_timer *timer)
{
    struct sets *sets = timer->ctx;

    sets_collect(sets);
    uint64_t pause = sets_sweep(sets) ? 600 * NS_PER_SEC : NS_PER_SEC;
    (void)!loop_timer_set(sets->options.loop, timer, clock_mono_ns() + pause, NULL);
}

int sets_create(const struct sets_options *options, struct sets **ret, struct brig_err *err)
{
    struct sets *sets = mem_zalloc(sizeof *sets);

    if (!sets)
        return err_nomem(err);
    *sets = (struct sets){.options = *options,
                          .config = options->config,
                          .on_turn = {.fn = on_turn, .ctx = sets},
                          .on_collect = {.fn = on_collect, .ctx = sets}};
    int r = read_index(sets, err);
    if (r == 0)
        r = sets_scan(sets, err);
    if (r == 0)
        r = loop_timer_set(options->loop, &sets->on_collect, clock_mono_ns(), err);
    if (r < 0) {
        sets_destroy(sets);
        return r;
    }
    *ret = sets;
    return 0;
}

void sets_destroy(struct sets *sets)
{
    if (!sets)
        return;
    sets->closing = true;
    loop_timer_clear(sets->options.loop, &sets->on_turn);
    loop_timer_clear(sets->options.loop, &sets->on_collect);
    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (sets->known[i].asking)
            own_run_forget(take_ptr(&sets->known[i].asking));
    for (struct build *b = sets->builds, *next; b; b = next) {
        next = build_next(b);
        build_forget(b);
    }
    workers_destroy(sets->workers);
    while (sets->waiting)
        set_build_cancel(sets->waiting);
    while (sets->entries)
        entry_remove(sets, sets->entries);
    words_done(&sets->remains);
    mem_free(sets->cache_path);
    mem_free(sets);
}

void sets_configure(struct sets *sets, const struct config *config)
{
    sets->config = config;
}

int sets_get(struct sets *sets, const struct caller *caller, const struct set_want *want, bool rebuild,
             void (*done)(void *ctx, const struct set *set, const struct brig_err *err), void *ctx,
             struct set_build **ret, struct brig_err *err)
{
    size_t n = 0, own = 0;

    for (const struct set_build *w = sets->waiting; w; w = w->next, n++)
        own += str_eq(w->caller.org_id, caller->org_id);
    if (own >= WAITING_PER_ORG)
        return err_set(err, BRIG_E_LIMIT, 0, "%zu runs of the organisation wait for dependency sets already", own);
    if (n >= WAITING_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "%zu runs wait for dependency sets already", n);
    struct set_build *waiter = mem_zalloc(sizeof *waiter);
    if (!waiter)
        return err_nomem(err);
    *waiter = (struct set_build){.sets = sets, .caller = *caller, .rebuild = rebuild, .done = done, .ctx = ctx};
    int r = wish_init(&waiter->wish, want, sets->config->tools_allow_urls, err);
    if (r == 0 && waiter->wish.pip.n + waiter->wish.npm.n == 0)
        r = err_usage(err, "requirements: there are none");
    if (r < 0) {
        waiter_free(waiter);
        return r;
    }
    list_append(&sets->waiting, &sets->last_waiting, waiter);
    sets_turn(sets);
    *ret = waiter;
    return 0;
}

void set_build_cancel(struct set_build *build)
{
    if (!build || !build->sets)
        return;
    list_take(&build->sets->waiting, &build->sets->last_waiting, build);
    waiter_free(build);
}

const char *set_build_error(const struct set_build *build)
{
    return build->text;
}

void set_hold(struct sets *sets, const struct set *set)
{
    for (struct entry *entry = sets->entries; set && entry; entry = entry->next)
        if (&entry->set == set)
            entry->users++;
}

void set_release(struct sets *sets, const struct set *set)
{
    for (struct entry *entry = sets->entries; set && entry; entry = entry->next) {
        if (&entry->set != set)
            continue;
        entry->users--;
        entry_use(sets, entry);
        if (entry->stale && entry->users == 0) {
            sets_drop(sets, entry->name);
            entry_remove(sets, entry);
        }
        return;
    }
}

void sets_json(const struct sets *sets, const char *org, struct json *json)
{
    json_array(json);
    for (const struct entry *entry = sets->entries; entry; entry = entry->next) {
        if (org && !str_eq(entry->org, org))
            continue;
        json_object(json);
        json_key_string(json, "key", entry->key);
        json_key_string(json, "organization_id", entry->org);
        json_key_string(json, "state", entry->stale ? "replaced" : entry->ready ? "ready" : "building");
        if (entry->ready)
            json_key_string(json, "lock", entry->lock);
        json_key_u64(json, "bytes", entry->bytes);
        json_key_u64(json, "users", entry->users);
        json_key_i64(json, "used_at", entry->used_at);
        json_end(json);
    }
    json_end(json);
}
