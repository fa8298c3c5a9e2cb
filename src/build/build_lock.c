/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_lock.c: the lock of a build: what it was made of, and what came of it. A build that has one gives its files no
 * time after `source_date_epoch`, so that the same files are the same bytes. A build from a lock has to give the same
 * layers; if it does not, there is no template, and one line says what differs: a base, else packages by their names,
 * else the layer and the line of its step.
 *
 *     {"format": 1, "platform": "linux/amd64", "source_date_epoch": N,
 *      "bases": [{"from": "debian:12", "layers": ["sha256:HEX"]}],
 *      "packages": [{"name": "dash", "version": "0.5.12-2", "architecture": "amd64", "sha256": "HEX"}],
 *      "layers": ["sha256:HEX"]}
 *
 * `sha256` is that of the package's file where FROM debian-mirror:SUITE took it, and "" elsewhere: dpkg keeps none.
 * Whoever builds wrote the lock, so it is read strictly. Its packages are sorted and one stands on each line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "template/platform.h"

#define DAY UINT64_C(86400)
#define WORD_MAX 128u

/* ---- reading ---------------------------------------- */

static bool is_hex(const char *text)
{
    return strspn(text, "0123456789abcdef") == 64 && text[64] == '\0';
}

/* Characters of names and versions: they become words of apt's preferences. */
static bool is_word(const char *text)
{
    size_t len = text ? strlen(text) : 0;

    return len > 0 && len < WORD_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-~:_") == len;
}

static bool is_package(const struct lock_package *package)
{
    return is_word(package->name) && is_word(package->version) && is_word(package->architecture) && package->sha256 &&
           (!package->sha256[0] || is_hex(package->sha256));
}

static struct lock_package package_of(const struct json_value *v)
{
    return (struct lock_package){json_get_text(v, "name", NULL), json_get_text(v, "version", NULL),
                                 json_get_text(v, "architecture", NULL), json_get_text(v, "sha256", "")};
}

static bool are_digests(const struct json_value *list)
{
    if (!list || list->type != JSON_ARRAY || list->count > TEMPLATE_LAYERS_MAX)
        return false;
    for (const struct json_value *v = list->first; v; v = v->next)
        if (v->type != JSON_STRING || !str_starts(v->string, "sha256:") || !is_hex(v->string + 7))
            return false;
    return true;
}

static const char *wrong_with(const struct json_value *root)
{
    const struct json_value *epoch = json_get(root, "source_date_epoch"), *bases = json_get(root, "bases"),
                            *packages = json_get(root, "packages");

    if (root->type != JSON_OBJECT || json_get_u64(root, "format") != 1)
        return "format: must be 1";
    if (!json_get_text(root, "platform", NULL))
        return "platform: must be text";
    if (!epoch || epoch->type != JSON_NUMBER || !epoch->integer || epoch->i64 < 0)
        return "source_date_epoch: must be a number of seconds";
    if (!bases || bases->type != JSON_ARRAY || bases->count > BUILD_STAGES_MAX)
        return "bases: must be a list";
    for (const struct json_value *v = bases->first; v; v = v->next)
        if (!json_get_text(v, "from", NULL) || !are_digests(json_get(v, "layers")))
            return "bases: each must have from and layers";
    if (!packages || packages->type != JSON_ARRAY || packages->count > LOCK_PACKAGES_MAX)
        return "packages: must be a list";
    for (const struct json_value *v = packages->first; v; v = v->next) {
        const struct lock_package package = package_of(v);
        if (!is_package(&package))
            return "packages: each must have name, version, architecture and sha256";
    }
    return are_digests(json_get(root, "layers")) ? NULL : "layers: must be a list of sha256:HEX";
}

static int read_lock(struct build *build, const char *text, size_t len, struct brig_err *err)
{
    struct build_lock *lock = build->lock;
    const char *own = len > LOCK_MAX ? NULL : build_copy(build, text, len), *wrong;

    if (!own)
        return len > LOCK_MAX ? err_usage(err, "lock: longer than %u bytes", LOCK_MAX) : err_nomem(err);
    int r = json_read_in(build->arena, own, len, JSON_READ_VALUES, &lock->want, err);
    if (r < 0) {
        const struct brig_err why = *err;
        return err_set(err, (enum brig_code)why.code, 0, "lock: %.300s", why.message);
    }
    wrong = wrong_with(lock->want);
    if (wrong)
        return err_usage(err, "lock: %s", wrong);
    snprintf(lock->epoch, sizeof lock->epoch, "%" PRIi64, json_get(lock->want, "source_date_epoch")->i64);
    return 0;
}

int lock_begin(struct build *build, const char *text, size_t len, struct brig_err *err)
{
    build->lock = arena_alloc(build->arena, sizeof *build->lock);
    if (!build->lock)
        return err_nomem(err);
    *build->lock = (struct build_lock){.want = NULL};
    snprintf(build->lock->epoch, sizeof build->lock->epoch, "%" PRIu64,
             (uint64_t)clock_real_ns() / NS_PER_SEC / DAY * DAY);
    return text ? read_lock(build, text, len, err) : 0;
}

/* ---- packages ---------------------------------------- */

int lock_add(struct build *build, struct lock_packages *packages, const struct lock_package *package)
{
    if (!is_package(package))
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
                                 build_keep(build, package->architecture), build_keep(build, package->sha256)};
    if (!own->name || !own->version || !own->architecture || !own->sha256)
        return -ENOMEM;
    packages->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct lock_package *p = a, *q = b;
    int r = strcmp(p->name, q->name);

    return r ? r : strcmp(p->architecture, q->architecture);
}

static void take_hashes(struct build_lock *lock)
{
    for (size_t i = 0; i < lock->mirror.n; i++) {
        const struct lock_package *from = &lock->mirror.items[i];
        struct lock_package *have =
            lock->have.n ? bsearch(from, lock->have.items, lock->have.n, sizeof *from, by_name) : NULL;
        if (have && str_eq(have->version, from->version))
            have->sha256 = from->sha256;
    }
}

int lock_pins(struct build *build, const char **ret)
{
    const struct json_value *want = build->lock ? build->lock->want : NULL;
    AUTO_BUF struct buf out = BUF_INIT(100u << 10); /* one word of a command */

    *ret = "";
    for (const struct json_value *v = json_get_items(want, "packages"); v; v = v->next) {
        const struct lock_package package = package_of(v);
        if (package.sha256[0] &&
            buf_printf(&out, "Package: %s\nPin: version %s\nPin-Priority: 1001\n\n", package.name, package.version) < 0)
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
    const struct json_value *v = json_get_items(build->lock->want, "bases");

    for (size_t i = 0; i < build->n_stages; i++) {
        const struct build_stage *stage = &build->stages[i];
        if (!is_base(stage))
            continue;
        if (!v || !json_get_is(v, "from", stage->base))
            return err_set(err, BRIG_E_CONFLICT, 0,
                           "the build differs from its lock: it is made FROM %.100s, not %.100s", stage->base,
                           v ? json_get_text(v, "from", "") : "so many images");
        if (stage->kind == BASE_TEMPLATE &&
            other_layer(json_get(v, "layers"), stage->layers, stage->n_base) != SIZE_MAX)
            return err_set(err, BRIG_E_CONFLICT, 0, "the build differs from its lock: %.100s is another image by now",
                           stage->base);
        v = v->next;
    }
    return v ? err_set(err, BRIG_E_CONFLICT, 0, "the build differs from its lock: it is not made FROM %.100s",
                       json_get_text(v, "from", ""))
             : 0;
}

static int say_package(struct buf *out, const struct lock_package *was, const struct lock_package *is)
{
    const char *name = was ? was->name : is->name;

    if (out->len > 0 && buf_append_str(out, ", ") < 0)
        return -ENOMEM;
    if (!was)
        return buf_printf(out, "%s %s is new", name, is->version);
    if (!is)
        return buf_printf(out, "%s %s is missing", name, was->version);
    return str_eq(was->version, is->version) ? buf_printf(out, "%s %s has other contents", name, was->version)
                                             : buf_printf(out, "%s %s -> %s", name, was->version, is->version);
}

static bool is_same(const struct lock_package *was, const struct lock_package *is)
{
    return str_eq(was->version, is->version) && (!was->sha256[0] || !is->sha256[0] || str_eq(was->sha256, is->sha256));
}

/* Both lists are sorted: this writer and lock_settle() see to it, and a lock that is not only differs more. */
static int compare_packages(const struct build_lock *lock, struct brig_err *err)
{
    const struct json_value *v = json_get_items(lock->want, "packages");
    AUTO_BUF struct buf said = BUF_INIT(4096);
    size_t i = 0, n = 0;

    while (v || i < lock->have.n) {
        const struct lock_package was = v ? package_of(v) : (struct lock_package){.name = NULL};
        const struct lock_package *is = i < lock->have.n ? &lock->have.items[i] : NULL;
        int order = !v ? 1 : !is ? -1 : by_name(&was, is);

        if ((order != 0 || !is_same(&was, is)) && ++n <= 3 &&
            say_package(&said, order > 0 ? NULL : &was, order < 0 ? NULL : is) < 0)
            return err_nomem(err);
        v = order <= 0 ? v->next : v;
        i += order >= 0;
    }
    if (n == 0)
        return 0;
    if (n > 3)
        return err_set(err, BRIG_E_CONFLICT, 0, "the build differs from its lock: packages: %s and %zu more", said.data,
                       n - 3);
    return err_set(err, BRIG_E_CONFLICT, 0, "the build differs from its lock: packages: %s", said.data);
}

static int compare_layers(const struct build *build, struct brig_err *err)
{
    const struct build_stage *goal = &build->stages[build->goal];
    const struct json_value *want = json_get(build->lock->want, "layers"), *v = want->first;
    const size_t at = other_layer(want, goal->layers, goal->n_layers);

    if (at == SIZE_MAX)
        return 0;
    for (size_t i = 0; v && i < at; i++)
        v = v->next;
    if (at >= goal->n_layers)
        return err_set(err, BRIG_E_CONFLICT, 0, "the build differs from its lock: it has %zu layers instead of %zu",
                       goal->n_layers, want->count);
    return err_set(err, BRIG_E_CONFLICT, 0,
                   "the build differs from its lock: line %u gives other files: layer %zu is %.19s instead of %.19s",
                   goal->layers[at].line, at + 1, goal->layers[at].diff_id, v ? v->string : "none");
}

static int compare(const struct build *build, const char *platform, struct brig_err *err)
{
    const char *want = json_get_text(build->lock->want, "platform", "");
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
        qsort(lock->have.items, lock->have.n, sizeof *lock->have.items, by_name);
    take_hashes(lock);
    int r = lock->want ? compare(build, text, err) : 0;
    if (r == 0 && lock->want) /* it was taken from the cache, or has just proved the same */
        r = buf_append(&build->lock_text, lock->want->raw, lock->want->raw_len) < 0 ? err_nomem(err) : 0;
    else if (r == 0 && write_lock(build, text) < 0)
        r = err_set(err, BRIG_E_TOO_LARGE, 0, "the lock is longer than %u bytes", LOCK_MAX);
    lock->settled = r == 0;
    return r;
}

static void on_line(void *ctx, const char *line, size_t len)
{
    struct build *build = ctx;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    int r = json_read(line, len, 64, &doc, NULL);

    if (r == 0) {
        const struct lock_package package = package_of(json_root(doc));
        r = lock_add(build, &build->lock->have, &package);
    }
    json_doc_free(doc);
    if (r == 0)
        return;
    (void)err_set(&err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_INVALID, 0,
                  "the packages of the image: %.*s is none, or there are more than %u", len < 200 ? (int)len : 200,
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
