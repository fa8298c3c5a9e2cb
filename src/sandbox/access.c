/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.c: decides who may use a sandbox of an organisation, and who may change what bounds it.
 *
 * A sandbox can hold what only an administrator may give: a directory of the host, the value of a secret, a way into a
 * private network. A caller who can run a program in it, or read its files, has all of that. So a caller may use a
 * sandbox only if the same caller could have created it: the weaker of maker and user decides. A sandbox without such
 * gifts is open to every key of its organisation. A sandbox that was made for runs (by run/reuse.c, or for a single
 * run) holds what those runs got, variables and files: only its maker and administrators may use it.
 */
#include "sandbox/private.h"

static bool exposes(const struct sbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_secrets; i++)
        if (spec->secrets[i].expose)
            return true;
    return false;
}

/* A directory that a request named: those of sandboxes for runs are the service's own. */
static bool has_binds(const struct sbox *sbox)
{
    const struct sbox_spec *spec = &sbox->spec;

    return spec->n_binds > 0 && !spec->reuse[0] && !spec->service && !sbox->priv->internal;
}

int spec_check_use(const struct sbox_spec *spec, bool binds, const char *label, const struct caller *caller,
                   const struct config *config, struct brig_err *err)
{
    struct brig_err why;

    if (!caller_is_admin(caller) && (binds || exposes(spec) || spec->template_name[0] == '/'))
        return err_set(err, BRIG_E_FORBIDDEN, 0, "sandbox %s holds %s; only an administrator may use it", label,
                       binds           ? "a directory of the host"
                       : exposes(spec) ? "the value of a secret"
                                       : "a root file system named by its path");
    if (spec_network_judge(spec->network, caller, config, &why) < 0)
        return err_set(err, BRIG_E_FORBIDDEN, 0, "sandbox %s has a network that this key may not use (%.160s)", label,
                       why.message);
    return 0;
}

int sbox_check_use(const struct sbox *sbox, const struct caller *caller, struct brig_err *err)
{
    const struct sbox_spec *spec = &sbox->spec;
    const bool of_runs = spec->reuse[0] || spec->ephemeral;

    if (!caller_is_admin(caller) && of_runs && !str_eq(sbox->key_id, caller->key_id))
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "sandbox %s was made for runs of another key; only that key or an administrator may use it",
                       sbox_label(sbox));
    return spec_check_use(spec, has_binds(sbox), sbox_label(sbox), caller, sbox->manager->config, err);
}

bool sbox_is_gifted(const struct sbox *sbox)
{
    struct caller user = {.role = STORE_ROLE_USER};

    memcpy(user.key_id, sbox->key_id, sizeof user.key_id); /* whose it is does not matter here */
    return sbox_check_use(sbox, &user, NULL) < 0;
}

const char *caller_reads(const struct caller *caller)
{
    return caller_is_admin(caller) ? "admin" : caller->key_id;
}

int sbox_check_change(const struct sbox *sbox, const struct caller *caller, struct brig_err *err)
{
    /* A parked interpreter is the service's own; its network is the run's, whose caller was asked before. */
    if (sbox->priv->internal || caller_is_admin(caller) || caller_standing(&sbox->priv->creator) == STANDING_USER)
        return 0;
    return err_set(err, BRIG_E_FORBIDDEN, 0,
                   "sandbox %s: an administrator made it, and only an administrator may change "
                   "its network",
                   sbox_label(sbox));
}
