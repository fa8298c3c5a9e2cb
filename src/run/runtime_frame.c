/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_frame.c: writes the request for a child's channel and reads the answer, as JSON in frames. The answer comes
 * from a process that has run somebody's code: it counts only with the code of this run's key over exactly these bytes,
 * compared in constant time before anything of it is parsed, and every member must have its type.
 *
 * The result is handed out as the bytes that came, not as a tree: integers past 64 bits and the digits of a number
 * survive.
 */
#include "run/runtime_frame.h"

#include "base/str.h"
#include "crypto/crypto.h"
#include "sandbox/manager.h"

#define CODE_LEN (2u * SHA256_SIZE)

static const char *const kinds[FRAME_KIND_MAX] = {"tool", "code", "command", "schema"};

static void put_text(struct json *json, const char *key, const char *text)
{
    json_key_string(json, key, text);
}

static void put_value(struct json *json, const char *key, const struct json_value *value)
{
    if (!value)
        return;
    json_key(json, key);
    json_value_put(json, value);
}

static void put_tool(struct json *json, const struct frame_request *q)
{
    const struct tool *tool = q->tool;

    json_key_string(json, "language", tool_language_name(tool->language));
    put_text(json, "name", tool->name);
    json_key(json, "source"),
        json_string_n(json, tool->source ? tool->source : "", tool->source ? tool->source_len : 0);
    json_key(json, "schema");
    if (tool->json_schema)
        json_value_put(json, tool->json_schema);
    else
        json_null(json);
    put_value(json, "command", tool->command);
}

int frame_request_put(const struct frame_request *q, struct buf *out)
{
    struct json json = JSON_INIT(out);
    char key[2 * FRAME_KEY + 1];

    crypto_hex(q->key, FRAME_KEY, key);
    json_object(&json);
    json_key_u64(&json, "v", 1);
    json_key_string(&json, "key", key);
    crypto_wipe(key, sizeof key);
    json_key_string(&json, "kind", kinds[q->kind]);
    put_tool(&json, q);
    json_key(&json, "args");
    if (q->args)
        json_raw(&json, q->args, q->args_len);
    else
        json_object(&json), json_end(&json);
    json_key_object(&json, "env");
    for (size_t i = 0; i < q->n_env; i++)
        json_key_string(&json, q->env[i].name, q->env[i].value);
    json_end(&json);
    json_key_string(&json, "cwd", q->cwd ? q->cwd : "/workspace");
    put_value(&json, "agent_state", q->agent_state);
    put_text(&json, "agent_id", q->agent_id);
    put_value(&json, "files", q->files);
    put_value(&json, "collect", q->collect);
    json_key_u64(&json, "result_max", RESULT_MAX);
    put_text(&json, "site", q->site);
    json_end(&json);
    return json_finish(&json);
}

/* ---- the answer ----------------------------------------------------------------------------------------- */

static int text_of(const struct json_value *object, const char *key, const char **ret)
{
    const struct json_value *v = json_get(object, key);

    if (!v || v->type == JSON_NULL)
        return 0;
    if (v->type != JSON_STRING)
        return -EPROTO;
    *ret = v->string;
    return 0;
}

/* A member that is of this type, absent or null; the two latter are NULL. */
static int member_of(const struct json_value *object, const char *key, enum json_type type,
                     const struct json_value **ret)
{
    const struct json_value *v = json_get(object, key);

    *ret = v && v->type == type ? v : NULL;
    return !v || v->type == type || v->type == JSON_NULL ? 0 : -EPROTO;
}

static int read_members(struct frame_answer *a)
{
    const struct json_value *root = json_root(a->doc), *status = json_get(root, "status"), *error, *out, *code;

    if (root->type != JSON_OBJECT || !status || status->type != JSON_STRING)
        return -EPROTO;
    a->ok = str_eq(status->string, "ok");
    if (!a->ok && !str_eq(status->string, "error"))
        return -EPROTO;
    a->result_value = json_get(root, "result");
    if (a->result_value) {
        a->result = a->result_value->raw;
        a->result_len = a->result_value->raw_len;
    }
    if (member_of(root, "agent_state", JSON_OBJECT, &a->agent_state) < 0 ||
        member_of(root, "files", JSON_ARRAY, &a->files) < 0 || member_of(root, "error", JSON_OBJECT, &error) < 0 ||
        member_of(root, "out", JSON_BOOL, &out) < 0 || member_of(root, "exit_code", JSON_NUMBER, &code) < 0)
        return -EPROTO;
    if (text_of(error, "type", &a->error_type) < 0 || text_of(error, "message", &a->error_message) < 0 ||
        text_of(error, "traceback", &a->traceback) < 0)
        return -EPROTO;
    a->nothing_left = out && !out->boolean;
    if (code && (!code->integer || code->i64 < 0 || code->i64 > 255))
        return -EPROTO;
    a->exit_code = code ? (int)code->i64 : -1;
    return a->ok || error ? 0 : -EPROTO;
}

int frame_answer_read(const uint8_t key[FRAME_KEY], const char *data, size_t len, struct frame_answer *ret)
{
    struct frame_answer a = {
        .result = "null", .result_len = 4, .error_type = "", .error_message = "", .traceback = "", .exit_code = -1};
    uint8_t code[SHA256_SIZE], given[SHA256_SIZE];

    if (len < CODE_LEN + 1 || data[CODE_LEN] != '\n')
        return -EPROTO;
    const char *payload = data + CODE_LEN + 1;
    size_t payload_len = len - CODE_LEN - 1;
    if (crypto_unhex(data, CODE_LEN, given, sizeof given) < 0)
        return -EBADMSG;
    int r = crypto_hmac_sha256(key, FRAME_KEY, payload, payload_len, code);
    if (r < 0)
        return r;
    if (!crypto_equal(code, given, sizeof code))
        return -EBADMSG;
    r = json_read(payload, payload_len, ANSWER_VALUES, &a.doc, NULL);
    if (r < 0)
        return r == -ENOMEM || r == -EMSGSIZE ? r : -EPROTO;
    r = read_members(&a);
    if (r < 0) {
        json_doc_free(a.doc);
        return r;
    }
    *ret = a;
    return 0;
}

void frame_answer_done(struct frame_answer *answer)
{
    json_doc_free(answer->doc);
    *answer = (struct frame_answer){0};
}
