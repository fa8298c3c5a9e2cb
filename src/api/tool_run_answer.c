/* SPDX-License-Identifier: Apache-2.0 */
/* tool_run_answer.c: what a run came to, in the native form; and what every form has: status and receipt. */
#include <string.h>

#include "api/tool_run.h"

void run_put_receipt(struct json *json, const struct run_result *result)
{
    json_key_raw(json, "receipt", result->receipt, result->receipt_len);
}

void run_put_status(struct json *json, const struct run_result *result)
{
    json_key_string(json, "status", result->ok ? "success" : "error");
}

static void put_native(const struct running *running UNUSED, const struct run_result *result, struct json *json)
{
    json_object(json);
    json_key_string(json, "id", result->run_id);
    run_put_status(json, result);
    json_key_raw(json, "result", result->ok ? result->func_return : NULL, result->func_return_len);
    json_key(json, "error");
    if (result->ok)
        json_null(json);
    else
        json_string_n(json, result->text ? result->text : "", result->text ? result->text_len : 0);
    json_key(json, "stdout"), json_string_n(json, result->out[1] ? result->out[1] : "", result->out_len[1]);
    json_key(json, "stderr"), json_string_n(json, result->out[2] ? result->out[2] : "", result->out_len[2]);
    json_key_raw(json, "agent_state", result->agent_state, result->agent_state ? strlen(result->agent_state) : 0);
    json_key_string(json, "sandbox_config_fingerprint", result->fingerprint);
    if (result->files)
        api_put(json, "files", result->files);
    run_put_receipt(json, result);
    json_end(json);
}

const struct run_form run_native = {.put = put_native};
