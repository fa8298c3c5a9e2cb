/* SPDX-License-Identifier: Apache-2.0 */
/*
 * webhook.h: gets the credentials of a run from a webhook: POST <base>/webhook/sandbox-credentials {"user_id",
 * "organization_id", "tool_name"?, "agent_id"?} with a bearer key. TLS is verified (libcurl, its multi interface on our
 * loop), and redirects are not followed. It has 2 s to connect and 10 s in all, two retries with back-off on connection
 * failures and 5xx, 64 KiB of answer, and a cache of a few seconds per (organisation, tool, agent) in wiping memory.
 * The caller decides whether a failure fails the run.
 */
#ifndef BRIG_RUN_WEBHOOK_H
#define BRIG_RUN_WEBHOOK_H

#include <brig.h>

#include "codec/json/json_read.h"
#include "loop/loop.h"

struct webhook;
struct webhook_options {
    struct loop *loop;
    const char *url, *key; /* With the key "" there is no Authorization. */
    uint64_t timeout_ms, cache_ms;
    const char *ca_bundle; /* NULL means the system's. */
};
int webhook_create(const struct webhook_options *options, struct webhook **ret, struct brig_err *err) MUST_CHECK;
void webhook_destroy(struct webhook *webhook);

struct webhook_ask {
    const char *user_id, *org_id, *tool_name, *agent_id; /* The last two may be NULL. */
};
struct webhook_call;
/*
 * done gets vars, the object as it came (environment_add_json() checks that its values are strings), valid during the
 * call; or NULL and why. It is never called from within.
 */
int webhook_fetch(struct webhook *webhook, const struct webhook_ask *ask,
                  void (*done)(void *ctx, const struct json_value *vars, const struct brig_err *err), void *ctx,
                  struct webhook_call **ret, struct brig_err *err) MUST_CHECK;
void webhook_cancel(struct webhook_call *call);

#endif
