/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_spec.c: makes a child's requests to the manager (a sandbox that nobody else sees) and to brig-init (its
 * program). Everything is copied, because a create goes on when its caller has returned.
 */
#include "engine/engine.h"
#include "sandbox/child/child_private.h"
#include "sandbox/processes.h"

#define DENY_ALL "{\"default\":\"deny\",\"rules\":[]}"

/* In one block: pointers first, so that they are aligned. NULL: no memory. */
static const char **list_copy(const char *const *list)
{
    size_t n = 0, size = sizeof(char *);

    for (; list && list[n]; n++)
        size += sizeof(char *) + strlen(list[n]) + 1;
    const char **ret = mem_alloc(size);
    char *at = ret ? (char *)(ret + n + 1) : NULL;
    for (size_t i = 0; at && i < n; i++, at += strlen(at) + 1)
        ret[i] = memcpy(at, list[i], strlen(list[i]) + 1);
    if (ret)
        ret[n] = NULL;
    return ret;
}

int child_copy_lists(struct child *child, const struct child_spec *spec, struct brig_err *err)
{
    if (!spec->argv || !spec->argv[0])
        return err_usage(err, "argv: must not be empty");
    child->argv = list_copy(spec->argv);
    child->env = list_copy(spec->env);
    return child->argv && child->env ? 0 : err_nomem(err);
}

static int copy_binds(const struct child_spec *spec, bool zygote, struct sbox_spec *ret, struct brig_err *err)
{
    size_t size = spec->n_binds * sizeof *spec->binds, strings = zygote ? strlen(spec->zygote) + 1 : 0;

    for (size_t i = 0; i < spec->n_binds; i++)
        strings += strlen(spec->binds[i].source) + strlen(spec->binds[i].target) + 2;
    ret->memory = mem_alloc(size + strings + 1);
    if (!ret->memory)
        return err_nomem(err);
    char *at = ret->memory + size;
    ret->binds = (struct brig_bind *)(void *)ret->memory;
    ret->n_binds = spec->n_binds;
    for (size_t i = 0; i < spec->n_binds; i++) {
        const char *const both[] = {spec->binds[i].source, spec->binds[i].target};
        const char *copies[2];
        for (int k = 0; k < 2; k++) {
            size_t len = strlen(both[k]) + 1;
            copies[k] = memcpy(at, both[k], len);
            at += len;
        }
        ret->binds[i] = spec->binds[i];
        ret->binds[i].source = copies[0];
        ret->binds[i].target = copies[1];
    }
    if (zygote)
        ret->zygote = memcpy(at, spec->zygote, strlen(spec->zygote) + 1);
    return 0;
}

/* Every member that was not asked for is the configuration's. */
static void limits_default(struct brig_limits *limits, const struct brig_limits *fallback)
{
    uint64_t *to = (uint64_t *)(void *)limits;
    const uint64_t *from = (const uint64_t *)(const void *)fallback;

    _Static_assert(sizeof *limits % sizeof *to == 0, "all of its members are of one type");
    for (size_t i = 0; i < sizeof *limits / sizeof *to; i++)
        if (to[i] == 0)
            to[i] = from[i];
}

int child_sandbox_spec(struct manager *manager, const struct child_spec *spec, bool zygote, struct sbox_spec *ret,
                       struct brig_err *err)
{
    const char *template_name = spec->template_name && spec->template_name[0] ? spec->template_name : "host";

    *ret = (struct sbox_spec){.limits = spec->limits,
                              .profile = spec->profile,
                              .require = spec->require | sbox_required(manager->config),
                              .ephemeral = true,
                              .internal = true,
                              .trust = spec->trust,
                              .any_port = spec->network && spec->shape == GATE_SHAPE_ANY,
                              .proxy_port = spec->network && spec->shape == GATE_SHAPE_PROXY};
    if (str_copy(ret->template_name, sizeof ret->template_name, template_name) < 0)
        return err_usage(err, "template %.64s: too long", template_name);
    str_cut(ret->provider, sizeof ret->provider, spec->provider);
    snprintf(ret->workdir, sizeof ret->workdir, "/workspace");
    snprintf(ret->user, sizeof ret->user, "user");
    limits_default(&ret->limits, &manager->config->limits);
    struct caller ours = {.role = STORE_ROLE_ADMIN}; /* whoever named it was asked before */
    int r = str_copy(ours.org_id, sizeof ours.org_id, spec->org_id) < 0
                ? err_usage(err, "organisation: too long")
                : spec_template_use(ret, manager->config, manager->templates, &ours, true, true, err);
    r = r < 0 ? r : copy_binds(spec, zygote, ret, err);
    if (r == 0 && spec->network && !(ret->network = mem_strdup(DENY_ALL)))
        r = err_nomem(err);
    if (r < 0)
        sbox_spec_done(ret);
    return r;
}

int child_start(struct child *child, struct brig_err *err)
{
    AUTO_BUF struct buf strings = BUF_INIT(GUEST_STRINGS_MAX);
    const struct process_spec spec = {.argv = child->argv, .env = child->env};
    struct svc_proc_start msg = {
        .flags = SVC_PROC_CHANNEL | SVC_PROC_HOLD,
        .workdir = {child->sbox->spec.workdir, (uint32_t)strlen(child->sbox->spec.workdir)},
    };
    int r = process_strings(child->sbox, &spec, NULL, &strings, &msg);

    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_USAGE, -r,
                           "command and environment of an interpreter")
                 : program_start(&child->prog, &msg, err);
}
