/* SPDX-License-Identifier: Apache-2.0 */
/* template_lock.c: the reader of locks. It believes nothing, and every bound is one of the header. */
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/str.h"
#include "codec/lock/dpkg_status.h"
#include "codec/lock/template_lock.h"

#define HEX ASCII_DIGITS "abcdef"
#define VALUES_MAX (1u << 18)
#define PLATFORM_MAX 128u
#define FROM_MAX 4096u
#define PATH_MAX_BYTES (LOCK_HASH + 1 + 3 * 4096u) /* a byte that is no UTF-8 becomes three */
#define SHA256 "sha256:"

static bool is_hex(const char *text)
{
    return strspn(text, HEX) == 64 && text[64] == '\0';
}

static bool is_hash(const char *text)
{
    return text && (!text[0] || is_hex(text));
}

static bool is_word(const char *text)
{
    return text && dpkg_is_word(text, strlen(text));
}

bool lock_package_valid(const struct lock_package *package)
{
    return is_word(package->name) && is_word(package->version) && is_word(package->architecture) &&
           is_hash(package->sha256) && is_hash(package->files);
}

int lock_package_order(const void *a, const void *b)
{
    const struct lock_package *p = a, *q = b;
    int r = strcmp(p->name, q->name);

    return r ? r : strcmp(p->architecture, q->architecture);
}

int lock_path_order(const char *a, const char *b)
{
    size_t i = 0;

    while (a[i] && a[i] == b[i])
        i++;
    const int x = a[i] == '/' ? 1 : a[i] ? (uint8_t)a[i] + 1 : 0, y = b[i] == '/' ? 1 : b[i] ? (uint8_t)b[i] + 1 : 0;
    return x - y;
}

/* The line of the lock on which a value stands. */
static int refuse(const struct template_lock *lock, const struct json_value *at, const char *rule, struct brig_err *err)
{
    unsigned long line = 1;

    for (const char *c = lock->text; at && c < at->raw; c++)
        line += *c == '\n';
    return err_usage(err, "lock: line %lu: %s", line, rule);
}

static const struct json_value *list_of(const struct json_value *root, const char *key, size_t max)
{
    const struct json_value *list = json_get(root, key);

    return list && list->type == JSON_ARRAY && list->count <= max ? list : NULL;
}

/* The first of a list that is no digest; NULL if all are. */
static const struct json_value *no_digest(const struct json_value *list)
{
    for (const struct json_value *v = list->first; v; v = v->next)
        if (v->type != JSON_STRING || v->len != strlen(v->string) || !str_starts(v->string, SHA256) ||
            !is_hex(v->string + strlen(SHA256)))
            return v;
    return NULL;
}

static int read_bases(const struct template_lock *lock, const struct json_value *root, struct brig_err *err)
{
    if (!lock->bases)
        return refuse(lock, root, "bases: must be a list of at most 64", err);
    for (const struct json_value *v = lock->bases->first; v; v = v->next) {
        const char *from = json_get_text(v, "from", NULL);
        const struct json_value *layers = list_of(v, "layers", LOCK_LAYERS_MAX);
        if (!from || strlen(from) > FROM_MAX || !layers || no_digest(layers))
            return refuse(lock, v, "bases: each must have from and layers (at most 128, each sha256:HEX)", err);
    }
    return 0;
}

static int read_packages(struct arena *arena, const struct json_value *root, struct template_lock *lock,
                         struct brig_err *err)
{
    const struct json_value *list = list_of(root, "packages", LOCK_PACKAGES_MAX);
    struct lock_package *items = list ? arena_alloc(arena, (list->count + 1) * sizeof *items) : NULL;

    if (!list)
        return refuse(lock, root, "packages: must be a list of at most 20000", err);
    if (!items)
        return err_nomem(err);
    for (const struct json_value *v = list->first; v; v = v->next) {
        struct lock_package *item = &items[lock->n_packages];
        *item = (struct lock_package){json_get_text(v, "name", NULL), json_get_text(v, "version", NULL),
                                      json_get_text(v, "architecture", NULL), json_get_text(v, "sha256", NULL),
                                      json_get_text(v, "files", NULL)};
        if (!lock_package_valid(item))
            return refuse(lock, v, "packages: each must have name, version, architecture, sha256 and files", err);
        if (lock->n_packages > 0 && lock_package_order(item - 1, item) >= 0)
            return refuse(lock, v, "packages: must be in the order of their names, each once", err);
        lock->n_packages++;
    }
    lock->packages = items;
    return 0;
}

static int read_paths(const struct template_lock *lock, const struct json_value *root, struct brig_err *err)
{
    if (!lock->paths)
        return refuse(lock, root, "paths: must be a list of at most 65536", err);
    for (const struct json_value *v = lock->paths->first; v; v = v->next)
        if (v->type != JSON_STRING || v->len != strlen(v->string) || v->len > PATH_MAX_BYTES ||
            strspn(v->string, HEX) != LOCK_HASH || !str_starts(v->string + LOCK_HASH, " /"))
            return refuse(lock, v, "paths: each must be 16 hexadecimal digits and an absolute path", err);
    return 0;
}

static int read_root(struct arena *arena, const struct json_value *root, struct template_lock *lock,
                     struct brig_err *err)
{
    const struct json_value *epoch = json_get(root, "source_date_epoch");

    if (root->type != JSON_OBJECT || json_get_u64(root, "format") != 1)
        return refuse(lock, root, "format: must be 1", err);
    lock->platform = json_get_text(root, "platform", NULL);
    if (!lock->platform || strlen(lock->platform) > PLATFORM_MAX)
        return refuse(lock, root, "platform: must be text", err);
    if (!epoch || epoch->type != JSON_NUMBER || !epoch->integer || epoch->i64 < 0)
        return refuse(lock, epoch ? epoch : root, "source_date_epoch: must be a number of seconds", err);
    lock->epoch = epoch->i64;
    lock->bases = list_of(root, "bases", LOCK_BASES_MAX);
    lock->layers = list_of(root, "layers", LOCK_LAYERS_MAX);
    lock->paths = list_of(root, "paths", LOCK_PATHS_MAX);
    int r = read_bases(lock, root, err);
    if (r == 0)
        r = read_packages(arena, root, lock, err);
    if (r == 0 && (!lock->layers || no_digest(lock->layers)))
        r = refuse(lock, lock->layers ? no_digest(lock->layers) : root,
                   "layers: must be a list of at most 128, each sha256:HEX", err);
    return r == 0 ? read_paths(lock, root, err) : r;
}

int template_lock_read(struct arena *arena, const char *text, size_t len, struct template_lock *ret,
                       struct brig_err *err)
{
    struct template_lock lock = {.text = len > LOCK_MAX ? NULL : arena_copy(arena, text, len), .len = len};
    const struct json_value *root = NULL;
    struct brig_err why = {0};
    int r;

    if (!lock.text)
        return len > LOCK_MAX ? err_set(err, BRIG_E_TOO_LARGE, 0, "lock: longer than %u bytes", LOCK_MAX)
                              : err_nomem(err);
    r = json_read_in(arena, lock.text, len, VALUES_MAX, &root, &why);
    if (r < 0)
        return err_set(err, (enum brig_code)why.code, 0, "lock: %.200s", why.message);
    r = read_root(arena, root, &lock, err);
    if (r == 0)
        *ret = lock;
    return r;
}
