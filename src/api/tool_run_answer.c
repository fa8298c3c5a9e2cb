/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_run_answer.c: what a run came to, in the three forms that clients know: ours, Letta's message (run from
 * source) and its result (a tool of an agent). The receipt is in each.
 */
#include <stdio.h>
#include <time.h>

#include "api/letta.h"
#include "api/tool_run.h"
#include "base/clock.h"

static void put_output(struct json *json, const char *key, const char *data, size_t len)
{
    json_key(json, key), json_array(json);
    if (len > 0)
        json_string_n(json, data, len);
    json_end(json);
}

static void put_receipt(struct json *json, const struct run_result *result)
{
    json_key(json, "receipt");
    if (result->receipt)
        json_raw(json, result->receipt, result->receipt_len);
    else
        json_null(json);
}

static void put_status(struct json *json, const struct run_result *result)
{
    json_key(json, "status"), json_string(json, result->ok ? "success" : "error");
}

static void put_native(const struct run_result *result, struct json *json)
{
    json_object(json);
    letta_put_text(json, "id", result->run_id);
    put_status(json, result);
    json_key(json, "result");
    if (result->ok && result->func_return)
        json_raw(json, result->func_return, result->func_return_len);
    else
        json_null(json);
    json_key(json, "error");
    if (result->ok)
        json_null(json);
    else
        json_string_n(json, result->text ? result->text : "", result->text ? result->text_len : 0);
    json_key(json, "stdout"), json_string_n(json, result->out[1] ? result->out[1] : "", result->out_len[1]);
    json_key(json, "stderr"), json_string_n(json, result->out[2] ? result->out[2] : "", result->out_len[2]);
    json_key(json, "agent_state");
    if (result->agent_state)
        json_raw(json, result->agent_state, strlen(result->agent_state));
    else
        json_null(json);
    letta_put_text(json, "sandbox_config_fingerprint", result->fingerprint);
    if (result->files)
        letta_put(json, "files", result->files);
    put_receipt(json, result);
    json_end(json);
}

/* Seconds, and "+00:00": as Letta's messages have it. */
static void put_date(struct json *json)
{
    time_t now = (time_t)(clock_real_ns() / (int64_t)NS_PER_SEC);
    struct tm tm;
    char text[64];

    if (!gmtime_r(&now, &tm) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &tm) == 0)
        text[0] = '\0';
    json_key(json, "date"), json_string(json, text);
}

/* The part that a message has twice: by itself, and as the one element of tool_returns. */
static void put_return(const struct run_result *result, struct json *json)
{
    json_key(json, "tool_return"),
        json_string_n(json, result->text ? result->text : "", result->text ? result->text_len : 0);
    put_status(json, result);
    letta_put_text(json, "tool_call_id", "null");
    put_output(json, "stdout", result->out[1], result->out_len[1]);
    put_output(json, "stderr", result->out[2], result->out_len[2]);
}

static void put_message(const struct running *running, const struct run_result *result, struct json *json)
{
    static const char *const nothing[] = {"otid", "sender_id", "step_id", "is_err", "seq_id", "run_id"};

    json_object(json);
    letta_put_text(json, "id", "null");
    put_date(json);
    letta_put_text(json, "name", running->name);
    letta_put_text(json, "message_type", "tool_return_message");
    for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
        letta_put_text(json, nothing[i], NULL);
    put_return(result, json);
    json_key(json, "tool_returns"), json_array(json), json_object(json);
    letta_put_text(json, "type", "tool");
    put_return(result, json);
    json_end(json), json_end(json);
    put_receipt(json, result);
    json_end(json);
}

static void put_result(const struct run_result *result, struct json *json)
{
    json_object(json);
    put_status(json, result);
    json_key(json, "func_return");
    if (result->ok && result->func_return)
        json_raw(json, result->func_return, result->func_return_len);
    else
        json_null(json);
    letta_put_text(json, "agent_state", NULL);
    put_output(json, "stdout", result->out[1], result->out_len[1]);
    put_output(json, "stderr", result->out[2], result->out_len[2]);
    letta_put_text(json, "sandbox_config_fingerprint", result->fingerprint);
    put_receipt(json, result);
    json_end(json);
}

int run_answer_put(const struct running *running, const struct run_result *result, struct buf *out)
{
    struct json json = JSON_INIT(out);

    if (running->form == RUN_MESSAGE)
        put_message(running, result, &json);
    else if (running->form == RUN_RESULT)
        put_result(result, &json);
    else
        put_native(result, &json);
    return json_finish(&json);
}
