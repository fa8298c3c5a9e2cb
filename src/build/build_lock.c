/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_lock.c: the lock of a build: what it was made of, and what came of it. A build that has one gives its files no
 * time after `source_date_epoch`, so that the same files are the same bytes. A build from a lock has to give the same
 * layers; if it does not, there is no template, and one line says what differs: a base, else packages by their names
 * and hashes, else the step and the first path. What a lock looks like is in codec/lock/template_lock.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "template/platform.h"

#define DAY UINT64_C(86400)
#define DIFFERS "the build differs from its lock: "

/* ---- the beginning ---------------------------------------- */

_Static_assert(LOCK_LAYERS_MAX == TEMPLATE_LAYERS_MAX, "a lock takes as many layers as a template");
_Static_assert(LOCK_BASES_MAX == BUILD_STAGES_MAX, "a lock takes as many bases as a build");

int lock_begin(struct build *build, const char *text, size_t len, struct brig_err *err)
{
    struct build_lock *lock = build->lock = arena_alloc(build->arena, sizeof *build->lock);
    struct template_lock *want = text ? arena_alloc(build->arena, sizeof *want) : NULL;
    int64_t epoch = (int64_t)((uint64_t)clock_real_ns() / NS_PER_SEC / DAY * DAY);

    if (!lock || (text && !want))
        return err_nomem(err);
    *lock = (struct build_lock){.want = NULL};
    int r = text ? template_lock_read(build->arena, text, len, want, err) : 0;
    if (r < 0)
        return r;
    lock->want = want;
    lock->path = want ? want->paths->first : NULL;
    snprintf(lock->epoch, sizeof lock->epoch, "%" PRIi64, want ? want->epoch : epoch);
    return 0;
}

/* ---- packages ---------------------------------------- */

int lock_add(struct build *build, struct lock_packages *packages, const struct lock_package *package)
{
    if (!lock_package_valid(package))
        return -EINVAL;
    if (packages->n == LOCK_PACKAGES_MAX)
        return -E2BIG;
    if (packages->n == packages->room) {
        size_t room = packages->room ? packages->room * 2 : 256;
        struct lock_package *items = arena_alloc(build->arena, room * sizeof *items);
        if (!items)
            return -ENOMEM;
        if (packages->n > 0)
            memcpy(items, packages->items, packages->n * sizeof *items);
        packages->items = items;
        packages->room = room;
    }
    struct lock_package *own = &packages->items[packages->n];
    *own = (struct lock_package){build_keep(build, package->name), build_keep(build, package->version),
                                 build_keep(build, package->architecture), build_keep(build, package->sha256),
                                 build_keep(build, package->files)};
    if (!own->name || !own->version || !own->architecture || !own->sha256 || !own->files)
        return -ENOMEM;
    packages->n++;
    return 0;
}

static void take_hashes(struct build_lock *lock)
{
    for (size_t i = 0; i < lock->mirror.n; i++) {
        const struct lock_package *from = &lock->mirror.items[i];
        struct lock_package *have =
            lock->have.n ? bsearch(from, lock->have.items, lock->have.n, sizeof *from, lock_package_order) : NULL;
        if (have && str_eq(have->version, from->version))
            have->sha256 = from->sha256;
    }
}

int lock_pins(struct build *build, const char **ret)
{
    const struct template_lock *want = build->lock ? build->lock->want : NULL;
    AUTO_BUF struct buf out = BUF_INIT(100u << 10); /* one word of a command */

    *ret = "";
    for (size_t i = 0; want && i < want->n_packages; i++) {
        const struct lock_package *package = &want->packages[i];
        if (package->sha256[0] && buf_printf(&out, "Package: %s\nPin: version %s\nPin-Priority: 1001\n\n",
                                             package->name, package->version) < 0)
            return -ENOMEM;
    }
    if (out.len > 0)
        *ret = build_copy(build, out.data, out.len);
    return *ret ? 0 : -ENOMEM;
}

/* ---- what differs ---------------------------------------- */

static bool is_base(const struct build_stage *stage)
{
    return stage->needed && (stage->kind == BASE_TEMPLATE || stage->kind == BASE_DEBIAN);
}

/* The first layer that is another one, from 0; SIZE_MAX if all are the same. */
static size_t other_layer(const struct json_value *want, const struct build_layer *layers, size_t n)
{
    const struct json_value *v = want->first;

    for (size_t i = 0; i < n || v; i++, v = v ? v->next : NULL)
        if (i >= n || !v || !str_eq(v->string, layers[i].diff_id))
            return i;
    return SIZE_MAX;
}

static int compare_bases(const struct build *build, struct brig_err *err)
{
    const struct json_value *v = build->lock->want->bases->first;

    for (size_t i = 0; i < build->n_stages; i++) {
        const struct build_stage *stage = &build->stages[i];
        if (!is_base(stage))
            continue;
        if (!v || !json_get_is(v, "from", stage->base))
            return err_set(err, BRIG_E_CONFLICT, 0, DIFFERS "it is made FROM %.100s, not %.100s", stage->base,
                           v ? json_get_text(v, "from", "") : "so many images");
        if (stage->kind == BASE_TEMPLATE &&
            other_layer(json_get(v, "layers"), stage->layers, stage->n_base) != SIZE_MAX)
            return err_set(err, BRIG_E_CONFLICT, 0, DIFFERS "%.100s is another image by now", stage->base);
        v = v->next;
    }
    return v ? err_set(err, BRIG_E_CONFLICT, 0, DIFFERS "it is not made FROM %.100s", json_get_text(v, "from", "")) : 0;
}

/* "NAME VERSION (HASH)": of its file if that is known, else of its list of files. */
static int say_one(struct buf *out, const struct lock_package *package, bool by_files)
{
    const char *hash = package->sha256[0] && !by_files ? package->sha256 : package->files;

    return hash[0]
               ? buf_printf(out, "%s (%s %.16s)", package->version, hash == package->files ? "files" : "sha256", hash)
               : buf_append_str(out, package->version);
}

static bool is_other(const char *was, const char *is)
{
    return was[0] && is[0] && !str_eq(was, is);
}

static bool is_same(const struct lock_package *was, const struct lock_package *is)
{
    return str_eq(was->version, is->version) && !is_other(was->sha256, is->sha256) && !is_other(was->files, is->files);
}

/* was, is: or NULL, but not both */
static int say_package(struct buf *out, const struct lock_package *was, const struct lock_package *is)
{
    const bool by_files = was && is && !(was->sha256[0] && is->sha256[0] && is_other(was->sha256, is->sha256));
    int r = buf_printf(out, "%s ", was ? was->name : is->name);

    if (r >= 0)
        r = say_one(out, was ? was : is, by_files);
    if (r >= 0 && was && is)
        r = buf_append_str(out, " -> ");
    if (r >= 0 && was && is)
        return say_one(out, is, by_files);
    return r < 0 ? r : buf_append_str(out, was ? " is missing" : " is new");
}

/* Both lists are in the same order. The first package that differs is named, and the others are counted. */
static int compare_packages(const struct build_lock *lock, struct brig_err *err)
{
    const struct template_lock *want = lock->want;
    AUTO_BUF struct buf said = BUF_INIT(4096);
    size_t i = 0, k = 0, n = 0;

    while (k < want->n_packages || i < lock->have.n) {
        const struct lock_package *was = k < want->n_packages ? &want->packages[k] : NULL,
                                  *is = i < lock->have.n ? &lock->have.items[i] : NULL;
        int order = !was ? 1 : !is ? -1 : lock_package_order(was, is);

        if ((order != 0 || !is_same(was, is)) && ++n == 1 &&
            say_package(&said, order > 0 ? NULL : was, order < 0 ? NULL : is) < 0)
            return err_nomem(err);
        k += order <= 0;
        i += order >= 0;
    }
    if (n == 0)
        return 0;
    if (n > 1 && buf_printf(&said, ", and %zu more", n - 1) < 0)
        return err_nomem(err);
    return err_set(err, BRIG_E_CONFLICT, 0, DIFFERS "package %s", said.data);
}

/*
 * A path of the image, as the walk comes to it, and the next one of the lock. Only the first that differs is kept: what
 * follows may only be shifted. Without the lock's list nothing is known.
 */
static int compare_path(struct build *build, const char *hash, const char *path)
{
    struct build_lock *lock = build->lock;
    const char *was = lock->path ? lock->path->string + LOCK_HASH + 1 : NULL;
    int order = !was ? 1 : !path ? -1 : lock_path_order(was, path);
    const char *what = order < 0 ? "is missing" : order > 0 ? "is new" : "differs";
    char text[160];

    if (lock->other_path || lock->want->paths->count == 0 || (!was && !path))
        return 0;
    if (order == 0 && strncmp(lock->path->string, hash, LOCK_HASH) == 0) {
        lock->path = lock->path->next;
        return 0;
    }
    snprintf(text, sizeof text, "%.100s %s", order < 0 ? was : path, what);
    lock->other_path = build_keep(build, text);
    return lock->other_path ? 0 : -ENOMEM;
}

static int compare_layers(const struct build *build, struct brig_err *err)
{
    const struct build_stage *goal = &build->stages[build->goal];
    const struct json_value *want = build->lock->want->layers;
    const size_t at = other_layer(want, goal->layers, goal->n_layers);
    const char *path = build->lock->other_path;

    if (at == SIZE_MAX)
        return 0;
    if (at >= goal->n_layers)
        return err_set(err, BRIG_E_CONFLICT, 0, DIFFERS "it has %zu layers instead of %zu%s%s", goal->n_layers,
                       want->count, path ? ": " : "", path ? path : "");
    return err_set(err, BRIG_E_CONFLICT, 0, DIFFERS "line %u gives other files: %s%slayer %zu is %.19s",
                   goal->layers[at].line, path ? path : "", path ? "; " : "", at + 1, goal->layers[at].diff_id);
}

static int compare(const struct build *build, const char *platform, struct brig_err *err)
{
    const char *want = build->lock->want->platform;
    int r = str_eq(want, platform)
                ? 0
                : err_set(err, BRIG_E_CONFLICT, 0, "the lock is for %.64s, and this host is %s", want, platform);

    if (r == 0)
        r = compare_bases(build, err);
    if (r == 0)
        r = compare_packages(build->lock, err);
    return r < 0 ? r : compare_layers(build, err);
}

/* ---- writing ---------------------------------------- */

static void put_layers(struct json *json, const struct build_layer *layers, size_t n)
{
    json_key_array(json, "layers");
    for (size_t i = 0; i < n; i++)
        json_string(json, layers[i].diff_id);
    json_end(json);
}

static int put_base(struct buf *out, const struct build_stage *stage)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "from", stage->base);
    put_layers(&json, stage->layers, stage->n_base);
    json_end(&json);
    return json_finish(&json);
}

static int put_package(struct buf *out, const struct lock_package *package)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "name", package->name);
    json_key_string(&json, "version", package->version);
    json_key_string(&json, "architecture", package->architecture);
    json_key_string(&json, "sha256", package->sha256);
    json_key_string(&json, "files", package->files);
    json_end(&json);
    return json_finish(&json);
}

static int write_lock(struct build *build, const char *platform)
{
    const struct build_stage *goal = &build->stages[build->goal];
    const struct build_lock *lock = build->lock;
    struct buf *out = &build->lock_text;
    const char *before = "";
    int r = buf_printf(out, "{\"format\": 1, \"platform\": \"%s\", \"source_date_epoch\": %s,\n\"bases\": [", platform,
                       lock->epoch);

    for (size_t i = 0; r >= 0 && i < build->n_stages; i++)
        if (is_base(&build->stages[i])) {
            r = buf_printf(out, "%s\n", before);
            r = r < 0 ? r : put_base(out, &build->stages[i]);
            before = ",";
        }
    if (r >= 0)
        r = buf_append_str(out, "],\n\"packages\": [");
    for (size_t i = 0; r >= 0 && i < lock->have.n; i++) {
        r = buf_append_str(out, i > 0 ? ",\n" : "\n");
        r = r < 0 ? r : put_package(out, &lock->have.items[i]);
    }
    if (r >= 0)
        r = buf_append_str(out, "],\n\"layers\": [");
    for (size_t i = 0; r >= 0 && i < goal->n_layers; i++)
        r = buf_printf(out, "%s\n\"%s\"", i > 0 ? "," : "", goal->layers[i].diff_id);
    if (r >= 0)
        r = buf_append_str(out, "],\n\"paths\": [");
    if (r >= 0 && lock->n_paths <= LOCK_PATHS_MAX && build->lock_paths.len > 0)
        r = buf_append(out, build->lock_paths.data, build->lock_paths.len);
    return r < 0 ? r : buf_append_str(out, "]}\n");
}

const char *build_lock_text(const struct build *build, size_t *ret_len)
{
    *ret_len = build->lock_text.len;
    return build->state == BUILD_DONE && build->lock_text.len > 0 ? build->lock_text.data : NULL;
}

/* ---- the end of a build ---------------------------------------- */

static int settle(struct build *build, struct brig_err *err)
{
    struct build_lock *lock = build->lock;
    char text[PLATFORM_TEXT];
    struct platform host;

    platform_host(&host);
    platform_text(&host, text);
    if (lock->have.n > 0)
        qsort(lock->have.items, lock->have.n, sizeof *lock->have.items, lock_package_order);
    take_hashes(lock);
    int r = lock->want && compare_path(build, NULL, NULL) < 0 ? err_nomem(err) : 0; /* one that is left is missing */
    if (r == 0 && lock->want)
        r = compare(build, text, err);
    if (r == 0 && lock->want) /* it was taken from the cache, or has just proved the same */
        r = buf_append(&build->lock_text, lock->want->text, lock->want->len) < 0 ? err_nomem(err) : 0;
    else if (r == 0 && write_lock(build, text) < 0)
        r = err_set(err, BRIG_E_TOO_LARGE, 0, "the lock is longer than %u bytes", LOCK_MAX);
    lock->settled = r == 0;
    return r;
}

/* More than a lock takes: it has none. */
static int keep_path(struct build *build, const char *hash, const char *path)
{
    struct json json = JSON_INIT(&build->lock_paths);
    AUTO_BUF struct buf text = BUF_INIT(LAYER_RUN_LINE_MAX);

    if (++build->lock->n_paths > LOCK_PATHS_MAX)
        return 0;
    if (buf_printf(&text, "%s %s", hash, path) < 0)
        return -ENOMEM;
    int r = buf_append_str(&build->lock_paths, build->lock->n_paths > 1 ? ",\n" : "\n");
    if (r == 0) {
        json_string(&json, text.data);
        r = json_finish(&json);
    }
    if (r < 0) { /* past its bound */
        buf_done(&build->lock_paths);
        build->lock_paths = BUF_INIT(LOCK_PATHS_BYTES);
        build->lock->n_paths = LOCK_PATHS_MAX + 1;
    }
    return 0;
}

static int take_line(struct build *build, const struct json_value *root)
{
    const char *path = json_get_text(root, "path", NULL), *hash = json_get_text(root, "hash", "");
    const struct lock_package package = {json_get_text(root, "name", NULL), json_get_text(root, "version", NULL),
                                         json_get_text(root, "architecture", NULL), "",
                                         json_get_text(root, "files", NULL)};

    if (!path)
        return lock_add(build, &build->lock->have, &package);
    if (path[0] != '/' || strspn(hash, "0123456789abcdef") != LOCK_HASH || hash[LOCK_HASH])
        return -EINVAL;
    return build->lock->want ? compare_path(build, hash, path) : keep_path(build, hash, path);
}

static void on_line(void *ctx, const char *line, size_t len)
{
    struct build *build = ctx;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    int r = json_read(line, len, 64, &doc, NULL);

    if (r == 0)
        r = take_line(build, json_root(doc));
    json_doc_free(doc);
    if (r == 0)
        return;
    (void)err_set(&err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_INVALID, 0,
                  "the packages of the image: %.*s is none, or there are more than %u", len < 120 ? (int)len : 120,
                  line, LOCK_PACKAGES_MAX);
    layer_run_stop(build->lister, &err);
}

static void on_listed(void *ctx, const struct layer_run_result *result)
{
    struct build *build = ctx;
    struct brig_err err = {0};
    int r = 0;

    build->lister = NULL;
    if (result->err)
        r = err_set(&err, (enum brig_code)result->err->code, 0, "%.500s", result->err->message);
    else if (!result->good)
        r = err_set(&err, result->said[0] ? BRIG_E_INVALID : BRIG_E_HOST, 0, "the packages of the image: %.400s",
                    result->said[0] ? result->said : result->cause);
    if (r == 0)
        r = settle(build, &err);
    if (r < 0)
        build_fail(build, &err, 0);
    else
        build_go_on(build);
}

int lock_settle(struct build *build, struct brig_err *err)
{
    static const char *const argv[] = {"packages", "/layer", NULL};
    const struct builds_options *o = &build->builds->o;
    const struct build_stage *goal = &build->stages[build->goal];
    const char *below[TEMPLATE_LAYERS_MAX];

    for (size_t i = 0; i < goal->n_layers; i++)
        below[i] = goal->layers[i].name;
    const struct layer_run_spec spec = {.org = build->caller.org_id,
                                        .argv = argv,
                                        .below = below,
                                        .n_below = goal->n_layers,
                                        .timeout_ms = o->config->templates_timeout};
    const struct layer_run_events events = {.line = on_line, .done = on_listed, .ctx = build};
    return layer_run_start(o->manager, o->provider, o->config, &spec, &events, &build->lister, err);
}
