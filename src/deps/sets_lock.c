/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_lock.c: the lock of a dependency set: every distribution with its version and the SHA-256 of its file; npm's own
 * lock, which has the same for its packages. What an installer wrote is read like anything else that comes out of a
 * sandbox: strictly, bounded, and written again. The text is the same for the same content (sorted by name), so that
 * its hash can key a pool.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/sets_priv.h"

#define LOCK_PACKAGES 10000u

struct locked {
    const char *name, *version, *sha256;
};

static bool is_sha256(const char *text)
{
    return strspn(text, "0123456789abcdef") == 64 && text[64] == '\0';
}

/* One of [{name, version, sha256}], which will be a line of a requirements.txt. */
static bool read_one(const struct json_value *item, struct locked *ret)
{
    char line[256];

    *ret = (struct locked){json_get_text(item, "name", NULL), json_get_text(item, "version", NULL),
                           json_get_text(item, "sha256", NULL)};
    return ret->name && ret->version && ret->sha256 && (ret->sha256[0] == '\0' || is_sha256(ret->sha256)) &&
           str_format(line, sizeof line, "%s==%s", ret->name, ret->version) > 0 &&
           requirement_ok(line, false, false, NULL) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcasecmp(((const struct locked *)a)->name, ((const struct locked *)b)->name);
}

/* *ret is NULL where there is nothing; -EINVAL: not such a list. */
static int read_pip(const struct json_value *list, struct locked **ret, size_t *ret_n)
{
    size_t n = 0;

    if (!list || list->type != JSON_ARRAY || list->count > LOCK_PACKAGES)
        return -EINVAL;
    struct locked *all = mem_zalloc((list->count + 1) * sizeof *all);
    if (!all)
        return -ENOMEM;
    for (const struct json_value *item = list->first; item; item = item->next) {
        if (!read_one(item, &all[n++])) {
            mem_free(all);
            return -EINVAL;
        }
    }
    qsort(all, n, sizeof *all, by_name);
    *ret = all;
    *ret_n = n;
    return 0;
}

static int put_pip(struct json *json, const char *text, struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct locked *all = NULL;
    size_t n = 0;
    int r = text ? json_read(text, strlen(text), JSON_READ_VALUES, &doc, err) : 0;

    if (r == 0 && text)
        r = read_pip(json_root(doc), &all, &n);
    if (r == 0) {
        json_key_array(json, "pip");
        for (size_t i = 0; i < n; i++) {
            json_object(json);
            json_key_string(json, "name", all[i].name);
            json_key_string(json, "version", all[i].version);
            json_key_string(json, "sha256", all[i].sha256);
            json_end(json);
        }
        json_end(json);
    }
    mem_free(all);
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_INVALID, 0,
                           "pip's report of what it installed cannot be read")
                 : 0;
}

static int put_npm(struct json *json, const char *key, const char *text, struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int r = json_read(text, strlen(text), JSON_READ_VALUES, &doc, err);

    if (r == 0 && json_root(doc)->type != JSON_OBJECT)
        r = -EINVAL;
    if (r == 0)
        json_key_raw(json, key, json_root(doc)->raw, json_root(doc)->raw_len);
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_INVALID, 0,
                           "npm's lock of what it installed cannot be read")
                 : 0;
}

int lock_make(const struct wish *wish, const struct versions *versions, const struct lock_parts *parts, struct buf *out,
              struct brig_err *err)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_i64(&json, "format", 1);
    json_key_string(&json, "platform", versions->platform);
    if (parts->pip) {
        json_key_string(&json, "python", versions->python);
        json_key_string(&json, "venv", wish->venv);
    }
    int r = put_pip(&json, parts->pip, err);
    if (r == 0 && parts->package && parts->package_lock) {
        json_key_string(&json, "node", versions->node);
        r = put_npm(&json, "package", parts->package, err);
        if (r == 0)
            r = put_npm(&json, "package_lock", parts->package_lock, err);
    }
    json_end(&json);
    if (r == 0 && json_finish(&json) < 0)
        r = err_set(err, BRIG_E_TOO_LARGE, 0, "the lock of this set is too large");
    return r;
}

static int read_lock(const struct json_value *root, struct buf *pip, struct buf *package, struct buf *package_lock)
{
    const struct json_value *list = json_get(root, "pip"), *npm = json_get(root, "package"),
                            *npm_lock = json_get(root, "package_lock");
    struct locked *all = NULL;
    size_t n = 0, hashed = 0;
    int r = read_pip(list, &all, &n);

    for (size_t i = 0; r == 0 && i < n; i++)
        hashed += all[i].sha256[0] != '\0';
    for (size_t i = 0; r == 0 && i < n && hashed == n; i++)
        r = buf_printf(pip, "%s==%s --hash=sha256:%s\n", all[i].name, all[i].version, all[i].sha256);
    mem_free(all);
    if (r >= 0 && npm && npm_lock) {
        r = buf_append(package, npm->raw, npm->raw_len);
        if (r >= 0)
            r = buf_append(package_lock, npm_lock->raw, npm_lock->raw_len);
    }
    return r < 0 ? r : 0;
}

int lock_read(const char *text, size_t len, struct buf *pip, struct buf *package, struct buf *package_lock,
              struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int r = json_read(text, len, JSON_READ_VALUES, &doc, err);

    if (r == 0 && json_get_u64(json_root(doc), "format") != 1)
        r = -EINVAL;
    if (r == 0)
        r = read_lock(json_root(doc), pip, package, package_lock);
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_INVALID, 0, "the lock of this set cannot be read")
                 : 0;
}

int lock_hash(const char *text, size_t len, char hex[SHA256_HEX])
{
    uint8_t hash[SHA256_SIZE];
    int r = crypto_sha256(text, len, hash);

    if (r == 0)
        crypto_hex(hash, sizeof hash, hex);
    return r;
}
