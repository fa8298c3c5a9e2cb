/* SPDX-License-Identifier: Apache-2.0 */
/* spec_binds.c: directories of the host that a request shares: how they are named, and which may be. */
#include "host/limits.h"
#include "sandbox/private.h"

int spec_bind(struct spec_memory *memory, const struct json_value *v, struct brig_bind *ret, struct brig_err *err)
{
    const char *source = NULL, *target = NULL;
    int r = 0;

    *ret = (struct brig_bind){.read_only = false};
    if (v->type != JSON_OBJECT)
        return err_usage(err, "binds: each must be an object with source, target, and read_only or overlay");
    for (const struct json_value *m = v->first; r == 0 && m; m = m->next) {
        if (str_eq(m->key, "source"))
            r = spec_string(m, "binds.source", 4095, false, &source, err);
        else if (str_eq(m->key, "target"))
            r = spec_string(m, "binds.target", 1023, false, &target, err);
        else if (str_eq(m->key, "read_only"))
            r = spec_bool(m, "binds.read_only", &ret->read_only, err);
        else if (str_eq(m->key, "overlay"))
            r = spec_bool(m, "binds.overlay", &ret->overlay, err);
        else
            r = err_usage(err, "binds.%.64s: there is no such member", m->key);
    }
    if (r == 0 && (!source || source[0] != '/'))
        r = err_usage(err, "binds.source %.64s: must be absolute", source ? source : "(none)");
    if (r == 0 && !target)
        r = err_usage(err, "binds.target: must be given");
    if (r == 0 && ret->read_only && ret->overlay)
        r = err_usage(err, "binds: %.64s is read_only or an overlay, not both", source);
    if (r == 0)
        r = check_mount_target("binds.target", target, err);
    if (r < 0)
        return r;
    ret->source = spec_copy(memory, source, strlen(source));
    ret->target = spec_copy(memory, target, strlen(target));
    return 0;
}

/* By name only; that no link leads out of the directory is the spawner's to see. */
static bool is_below(const char *path, const char *roots)
{
    for (size_t len; *roots; roots += len + (roots[len] == ':')) {
        len = strcspn(roots, ":");
        size_t use = len > 1 && roots[len - 1] == '/' ? len - 1 : len;
        if (use > 0 && strncmp(path, roots, use) == 0 && (path[use] == '/' || path[use] == '\0'))
            return true;
    }
    return false;
}

int sbox_spec_check_binds(const struct sbox_spec *spec, struct brig_err *err)
{
    const char *roots = getenv("BRIG_BIND_ROOTS");

    for (size_t i = 0; i < spec->n_binds; i++)
        if (!roots || !is_below(spec->binds[i].source, roots))
            return err_set(err, BRIG_E_REFUSED, 0,
                           "bind source %s: not in a directory that this service may share (bind_roots)",
                           spec->binds[i].source);
    return 0;
}
