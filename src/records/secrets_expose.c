/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secrets_expose.c: who may have a secret's value. Every door that gives a program a value comes through here: creates,
 * runs of tools and snippets, registrations, recovered sandboxes. It asks who decided that, refuses what is brokered,
 * and writes the event.
 */
#include "base/err.h"
#include "records/secrets_priv.h"

int secrets_may_expose(const struct secrets *secrets, const struct secret_use *use, struct brig_err *err)
{
    const struct secret_info *info = secrets ? secrets_find(secrets, use->caller->org_id, use->name) : NULL;

    if (use->registrant && *use->registrant < STANDING_ADMIN && caller_is_admin(use->caller))
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "secrets.expose: the tool has source of a key that is no administrator's; "
                       "register it again to answer for it");
    if ((use->registrant ? *use->registrant : caller_standing(use->caller)) < STANDING_ADMIN)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "secrets.expose: only an administrator may give a program the value itself");
    if (info && info->brokered)
        return err_set(err, BRIG_E_REFUSED, 0,
                       "secret %s: it is brokered, and the value of a brokered secret is never given to a program",
                       use->name);
    return 0;
}

void secrets_say_exposed(const struct secret_use *use)
{
    const struct caller *caller = use->caller;
    const struct audit_event event = {.action = "secret.expose",
                                      .actor = caller->actor[0] ? caller->actor : "system",
                                      .org = caller->org_id,
                                      .object = use->object,
                                      .outcome = "ok",
                                      .detail = use->name,
                                      .request_id = caller->request_id,
                                      .sync = true};

    if (use->audit)
        audit_add(use->audit, &event, NULL, NULL);
}

int secrets_expose(const struct secrets *secrets, const struct secret_use *use, uint8_t **ret, size_t *ret_len,
                   struct brig_err *err)
{
    if (!secrets)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "secrets: there are none here");
    int r = secrets_may_expose(secrets, use, err);
    if (r == 0)
        r = secrets_reveal(secrets, use->caller->org_id, use->name, ret, ret_len, err);
    if (r == 0 && use->object[0])
        secrets_say_exposed(use);
    return r;
}
