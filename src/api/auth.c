/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.c: who sends a request, and what the lists let that one run. Keys and organisations are records
 * (records/accounts.h); here a request is matched with them.
 */
#include <stdio.h>

#include "api/api.h"
#include "api/log.h"
#include "base/err.h"
#include "base/str.h"
#include "records/rules.h"

static void on_over(void *ctx, const char *key_id, bool forgotten)
{
    struct api *api = ctx;

    server_cut(api->server, key_id, NULL);
    if (forgotten)
        (void)!manager_set_quota(api->manager, key_id, NULL, NULL);
}

static void on_skipped(void *ctx UNUSED, const char *text)
{
    log_line(LOG_ERROR, "keys", "%s", text);
}

int auth_open(struct api *api, struct brig_err *err)
{
    const struct accounts_options options = {
        .loop = api->loop, .store = api->store, .over = on_over, .log = on_skipped, .ctx = api};

    return accounts_create(&options, &api->accounts, err);
}

int auth_check(struct api *api, const struct exchange *x, const char *text, struct caller *ret, struct brig_err *err)
{
    if (!text && exchange_is_unix(x)) {
        str_assign(ret->org_id, ACCOUNTS_DEFAULT_ORG);
        snprintf(ret->actor, sizeof ret->actor, "socket:%u", (unsigned)exchange_peer_uid(x));
        ret->role = STORE_ROLE_ADMIN;
        ret->socket = true;
        return 0;
    }
    ret->role = STORE_ROLE_READ_ONLY;
    snprintf(ret->actor, sizeof ret->actor, "anonymous:%s", exchange_peer(x));
    if (!text)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0,
                       "a key is needed: Authorization: Bearer KEY (brig key create makes one)");
    const struct object *key = key_by_text(api->accounts, text);
    if (!key)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "the key is not known");
    snprintf(ret->actor, sizeof ret->actor, "%.63s", key->id);
    str_assign(ret->org_id, key->org_id);
    int r = key_check(api->accounts, key, err);
    if (r < 0)
        return r;
    snprintf(ret->key_id, sizeof ret->key_id, "%.63s", key->id);
    ret->role = key_of(key)->role;
    return 0;
}

int auth_tool_allowed(struct api *api, const struct caller *caller, const char *name, struct brig_err *err)
{
    return caller_may_run(api->accounts, caller, str_eq(config_get(api->config)->tools_default, "deny"), name, err);
}

int auth_may_bring(struct api *api, const struct caller *caller, struct brig_err *err)
{
    return caller_is_admin(caller) ? 0 : auth_tool_allowed(api, caller, TOOL_UNREGISTERED, err);
}
