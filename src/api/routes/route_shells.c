/* SPDX-License-Identifier: Apache-2.0 */
/* route_shells.c: persistent shells: open one, run commands in it one after the other, close it. */
#include <string.h>

#include "api/api.h"
#include "base/parse.h"

static void on_open(void *ctx, struct shell *shell, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(256);
    struct json json = JSON_INIT(&out);

    if (err)
        return request_fail(rq, err);
    json_object(&json);
    json_key_u64(&json, "number", shell_number(shell));
    json_end(&json);
    request_json(rq, 201, &json);
}

void route_shell_open(struct request *rq)
{
    struct process_spec_parsed parsed;
    struct brig_err err;

    if (!api_only_members(rq, "cwd env"))
        return;
    if (process_spec_parse_shell(rq->json, rq->sbox, &parsed, &err) < 0)
        return request_fail(rq, &err);
    int r = shell_open(rq->sbox, &rq->caller, &parsed.spec, on_open, rq, &err);
    process_spec_done(&parsed);
    if (r < 0)
        request_fail(rq, &err);
}

/* false: the refusal was sent. */
static bool find(struct request *rq, struct shell **ret)
{
    uint32_t number = 0;
    struct shell *shell = parse_u32(rq->arg[1], &number) < 0 ? NULL : shell_find(rq->sbox, number);

    if (!shell)
        request_refuse(rq, BRIG_E_NOT_FOUND, "shell %.32s of sandbox %s not found", rq->arg[1], sbox_id(rq->sbox));
    *ret = shell;
    return shell != NULL;
}

/* The command is ended; its result comes all the same, and frees the request. */
static void run_left(struct request *rq)
{
    rq->left = NULL;
    if (rq->sbox)
        shell_cancel(rq->state);
}

void route_shell_run(struct request *rq)
{
    const struct json_value *command = json_get(rq->json, "command"), *timeout = json_get(rq->json, "timeout");
    struct shell *shell = NULL;
    uint64_t ms = sbox_limits(rq->sbox)->timeout;
    struct brig_err err;

    if (!api_only_members(rq, "command timeout") || !find(rq, &shell))
        return;
    if (!command || command->type != JSON_STRING || command->len == 0 || memchr(command->string, '\0', command->len))
        return request_refuse(rq, BRIG_E_USAGE, "command: must be text without NUL");
    if (timeout && (api_duration(timeout, &ms) < 0 || ms > UINT64_C(366) * 86400 * 1000))
        return request_refuse(rq, BRIG_E_USAGE, "timeout: must be a duration, such as 30 or \"5m\"");
    rq->state = shell;
    rq->left = run_left;
    if (shell_run(shell, &rq->caller, command->string, command->len, ms, request_result, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_shell_close(struct request *rq)
{
    struct shell *shell = NULL;
    struct brig_err err;

    if (!find(rq, &shell))
        return;
    if (shell_close(shell, &err) < 0)
        request_fail(rq, &err);
    else
        request_status(rq, 204);
}
