/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_mount.c: RUN --mount. A tmpfs is a tmpfs, a bind is made by build_bind.c, and a cache by build_cache.c. A
 * secret is a file on a tmpfs at /run/secrets, or a variable of the command; its value is never part of a key, a layer
 * or a log.
 */
#include <string.h>

#include "base/parse.h"
#include "build/build_priv.h"
#include "host/limits.h"

static bool key_is(const char *key, const char *words)
{
    return str_has_word(words, key, strlen(key));
}

static int read_octal(const char *text, uint32_t *ret)
{
    uint32_t value = 0;

    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '7' || value > 0777)
            return -EINVAL;
        value = value * 8 + (uint32_t)(*c - '0');
    }
    *ret = value;
    return text[0] ? 0 : -EINVAL;
}

static int set(struct build *build, const struct dockerfile_step *step, const char *key, const char *value,
               struct build_mount *ret, struct brig_err *err)
{
    static const char *const kinds[MOUNT_KIND_MAX] = {"bind", "tmpfs", "cache", "secret"};
    const char *kept = build_keep(build, value);
    int r = 0;

    if (!kept)
        return err_nomem(err);
    if (key_is(key, "type")) {
        size_t i = 0;
        while (i < MOUNT_KIND_MAX && !str_eq(value, kinds[i]))
            i++;
        if (i == MOUNT_KIND_MAX)
            return step_refuse(err, step, "--mount=type=%.32s: expected bind, tmpfs, cache or secret", value);
        ret->kind = (enum mount_kind)i;
    } else if (key_is(key, "target dst destination")) {
        ret->target = kept;
    } else if (key_is(key, "id")) {
        ret->id = kept;
    } else if (key_is(key, "env")) {
        ret->env = kept;
    } else if (key_is(key, "source src")) {
        ret->source = kept;
    } else if (key_is(key, "from")) {
        ret->from = kept;
    } else if (key_is(key, "rw readwrite ro readonly")) {
        if (value[0] && !str_eq(value, "true") && !str_eq(value, "false"))
            return step_refuse(err, step, "--mount: %.32s=%.32s: expected true or false", key, value);
        ret->writable = key_is(key, "rw readwrite") != str_eq(value, "false");
    } else if (key_is(key, "required")) {
        ret->required = !str_eq(value, "false");
    } else if (key_is(key, "size")) {
        r = brig_parse_size(value, &ret->size);
    } else if (key_is(key, "mode")) {
        r = read_octal(value, &ret->mode);
    } else if (key_is(key, "uid")) {
        r = parse_u32(value, &ret->uid);
    } else if (key_is(key, "gid")) {
        r = parse_u32(value, &ret->gid);
    } else if (key_is(key, "sharing")) {
        if (!key_is(value, "shared private locked"))
            return step_refuse(err, step, "--mount: sharing=%.32s: expected shared, private or locked", value);
        ret->own = str_eq(value, "private");
    } else {
        return step_refuse(err, step, "--mount: %.32s is not supported", key);
    }
    return r < 0 || ret->uid > 65535 || ret->gid > 65535
               ? step_refuse(err, step, "--mount: %.32s=%.32s: not such a value", key, value)
               : 0;
}

static int check(struct build *build, const struct dockerfile_step *step, struct build_mount *mount,
                 struct brig_err *err)
{
    struct brig_err why;
    char path[4096];

    if (mount->kind != MOUNT_BIND && (mount->from || mount->source))
        return step_refuse(err, step, "--mount: %s is for type=bind", mount->from ? "from" : "source");
    if (mount->kind == MOUNT_BIND && mount->from && !mount->from[0])
        return step_refuse(err, step, "--mount: from= must be a stage or an image");
    if (mount->kind == MOUNT_SECRET && !mount->id && mount->target)
        mount->id = strrchr(mount->target, '/') ? strrchr(mount->target, '/') + 1 : mount->target;
    if (mount->kind == MOUNT_SECRET && (!mount->id || !mount->id[0] || strchr(mount->id, '/')))
        return step_refuse(err, step, "--mount=type=secret: expected an id");
    if (mount->kind == MOUNT_SECRET && !mount->target) {
        if (str_format(path, sizeof path, SECRETS_DIR "/%s", mount->id) < 0)
            return step_refuse(err, step, "--mount=type=secret: the id is too long");
        mount->target = build_keep(build, path);
        if (!mount->target)
            return err_nomem(err);
    } else {
        mount->has_target = mount->target;
    }
    if (!mount->target || mount->target[0] != '/' || path_clean_absolute("/", mount->target, path, sizeof path) < 0 ||
        str_eq(path, "/"))
        return step_refuse(err, step, "--mount: expected target=, an absolute path");
    if (mount->kind == MOUNT_BIND &&
        (path_is_in(path, "/proc") || path_is_in(path, "/sys") || path_is_in(path, "/dev") ||
         path_is_in(path, "/run") || check_mount_target("target", path, &why) < 0))
        return step_refuse(err, step,
                           "--mount=type=bind: target %.64s: must not be in /proc, /sys, /dev, /run or "
                           "/.brig, nor be /etc, /usr or /bin and its like",
                           path);
    if (mount->kind == MOUNT_SECRET && (!str_starts(path, SECRETS_DIR "/") || strchr(path + sizeof SECRETS_DIR, '/')))
        return step_refuse(err, step, "--mount=type=secret: target must be a file in " SECRETS_DIR ", or use env=");
    mount->target = build_keep(build, path);
    return mount->target ? 0 : err_nomem(err);
}

int mount_read(struct build *build, const struct dockerfile_step *step, const char *text, struct build_mount *ret,
               struct brig_err *err)
{
    *ret = (struct build_mount){.kind = MOUNT_BIND, .mode = 0400};
    while (*text) {
        size_t len = strcspn(text, ",");
        const char *equals = memchr(text, '=', len);
        size_t key_len = equals ? (size_t)(equals - text) : len;
        const char *key = build_copy(build, text, key_len),
                   *value = build_copy(build, equals ? equals + 1 : "", equals ? len - key_len - 1 : 0);
        int r = key && value ? set(build, step, key, value, ret, err) : err_nomem(err);
        if (r < 0)
            return r;
        text += len + (text[len] == ',');
    }
    return check(build, step, ret, err);
}

static const char *mount_secret(const struct build *build, const struct build_mount *mount)
{
    for (size_t i = 0; i < build->secret_ids.n; i++)
        if (str_eq(build->secret_ids.items[i], mount->id))
            return build->secrets.items[i];
    return NULL;
}

/* All mounts of a RUN; the variables of secrets are added to env. */
int mounts_of(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *ret, struct brig_err *err)
{
    struct build *build = stage->build;
    struct build_mount *mounts = arena_alloc(build->arena, (step->n_flags + 1) * sizeof *mounts);
    size_t n = 0;

    if (!mounts)
        return err_nomem(err);
    for (size_t i = 0; i < step->n_flags; i++) {
        if (!str_eq(step->flags[i].name, "mount"))
            continue;
        struct build_mount *mount = &mounts[n];
        int r = mount_read(build, step, step->flags[i].value ? step->flags[i].value : "", mount, err);
        if (r < 0)
            return r;
        const char *value = mount->kind == MOUNT_SECRET ? mount_secret(build, mount) : NULL;
        if (mount->kind == MOUNT_SECRET && !value && mount->required)
            return step_refuse(err, step, "the secret %.64s was not given", mount->id);
        if (value && mount->env &&
            (list_set(build, &ret->env, mount->env, value) < 0 ||
             list_add(build, &build->secret_copies, list_get(&ret->env, mount->env, strlen(mount->env))) < 0))
            return err_nomem(err);
        n += mount->kind != MOUNT_SECRET || (value && (!mount->env || mount->has_target));
    }
    if (n > MOUNTS_MAX)
        return step_refuse(err, step, "more than %u mounts", MOUNTS_MAX);
    ret->mounts = mounts;
    ret->n_mounts = n;
    return 0;
}

int mounts_secrets(const struct build *build, const struct run_spec *spec, struct buf *out)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < spec->n_mounts; i++) {
        const struct build_mount *mount = &spec->mounts[i];
        if (mount->kind != MOUNT_SECRET)
            continue;
        const char *value = mount_secret(build, mount);
        const struct build_file file = {.name = mount->target + sizeof SECRETS_DIR,
                                        .text = value,
                                        .len = strlen(value),
                                        .mode = mount->mode,
                                        .uid = mount->uid,
                                        .gid = mount->gid};
        r = files_add(out, &file);
    }
    return r < 0 ? r : files_end(out);
}
