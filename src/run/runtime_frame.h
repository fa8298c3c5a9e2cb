/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_frame.h: the runtime protocol: what goes down a child's channel and what comes back (docs/PROTOCOL.md,
 * "Runtime"). JSON in frames of u32 length, little-endian.
 *
 * ready    {"ready": 1, "language": "python", "version": "3.11.2", "pid": 7}
 * request  {"v": 1, "key": "64 hex digits", "kind": "tool" | "code" | "command" | "schema", "language": "python",
 *          "name": "add" | null, "source": "...",
 *           "args": {...}, "schema": {...} | null, "env": {"NAME": "value"}, "cwd": "/workspace", "agent_state":
 *           {...} (absent: not given),
 *           "agent_id": "..." | null, "files": [{"path", "base64"}], "collect": ["path", ...], "result_max":
 *           16777216,
 *           "site": "/opt/brig/venv" | null (a requirement set), "tool_limit": ...}
 * answer   64 hex digits of HMAC-SHA256(key, payload), a newline, then the payload:
 *          {"status": "ok" | "error", "result": any, "result_type": "dict", "agent_state": {...}, "error": {"type",
 *          "message", "traceback"}, "files": [...], "notes": ["..."],
 *           "out": false (there is nothing in /workspace/out; absent: look), "exit_code": 3 (of code and commands)}
 *
 * The key is made for one run, wiped from the runtime's variables before user code begins, and stands in no
 * environment. An answer whose code does not fit is no answer.
 */
#ifndef BRIG_RUN_RUNTIME_FRAME_H
#define BRIG_RUN_RUNTIME_FRAME_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "records/registry.h"

#define FRAME_KEY 32u
#define RESULT_MAX (16u << 20)
#define ANSWER_VALUES (1u << 20) /* JSON values in one answer: about 100 MB while it is looked at */

enum frame_kind { FRAME_TOOL, FRAME_CODE, FRAME_COMMAND, FRAME_SCHEMA, FRAME_KIND_MAX };

struct frame_request {
    uint8_t key[FRAME_KEY];
    enum frame_kind kind;
    const struct tool *tool; /* name, source, language, json_schema, command, return_limit are looked at */
    const char *args;        /* JSON text, as it came; NULL: {} */
    size_t args_len;
    const struct sbox_pair *env; /* names and values */
    size_t n_env;
    const struct json_value *agent_state; /* or NULL */
    const char *agent_id;                 /* or NULL */
    const char *site, *cwd;
    const struct json_value *files, *collect; /* of POST /v1/run; NULL */
};
/* out: wiping is the caller's */
int frame_request_put(const struct frame_request *request, struct buf *out) MUST_CHECK;

struct frame_answer {
    struct json_doc *doc;
    bool ok;
    const char *result; /* raw JSON, into the payload; "null" when there is none */
    size_t result_len;
    const struct json_value *result_value, *agent_state, *files; /* or NULL */
    const char *error_type, *error_message, *traceback;          /* "" when none */
    int exit_code;                                               /* of code or a command; -1: none was given */
    bool nothing_left; /* it says that /workspace/out is not there, or empty */
};
/* -EBADMSG: the code does not fit; -EPROTO: not what it should be. */
int frame_answer_read(const uint8_t key[FRAME_KEY], const char *data, size_t len, struct frame_answer *ret) MUST_CHECK;
void frame_answer_done(struct frame_answer *answer);

#endif
