/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_frame.h: the runtime protocol: the messages on a child's channel (docs/PROTOCOL.md, "Runtime"). They are JSON
 * in frames with a u32 length, little-endian.
 *
 *   ready    {"ready": 1, "language": "python", "version": "3.11.2", "pid": 7}
 *   request  {"v": 1, "key": "64 hex digits", "kind": "tool" | "code" | "command" | "schema",
 *            "language": "python", "name": "add" | null, "source": "...", "args": {...},
 *            "schema": {...} | null, "env": {"NAME": "value"}, "cwd": "/workspace",
 *            "agent_state": {...} (absent: not given), "agent_id": "..." | null,
 *            "files": [{"path", "base64"}], "collect": ["path", ...], "result_max": 16777216,
 *            "site": "/opt/brig/venv" | null (a dependency set), "tool_limit": ...}
 *   answer   64 hex digits of HMAC-SHA256(key, payload), a newline, then the payload:
 *            {"status": "ok" | "error", "result": any, "result_type": "dict", "agent_state": {...},
 *            "error": {"type", "message", "traceback"}, "files": [...], "notes": ["..."],
 *            "out": false (there is nothing in /workspace/out; absent: look),
 *            "exit_code": 3 (for code and commands)}
 *
 * The key is made for one run, wiped from the runtime's variables before user code begins, and stands in no
 * environment. An answer with a wrong code is no answer.
 */
#ifndef BRIG_RUN_RUNTIME_FRAME_H
#define BRIG_RUN_RUNTIME_FRAME_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "records/registry.h"

#define FRAME_KEY 32u
#define RESULT_MAX (16u << 20)
#define ANSWER_VALUES (1u << 20) /* The JSON values in one answer: about 100 MB while it is read. */

enum frame_kind { FRAME_TOOL, FRAME_CODE, FRAME_COMMAND, FRAME_SCHEMA, FRAME_KIND_MAX };

struct frame_request {
    uint8_t key[FRAME_KEY];
    enum frame_kind kind;
    const struct tool *tool; /* Its name, source, language, json_schema, command and return_limit are used. */
    const char *args;        /* The JSON text as it came; NULL means {}. */
    size_t args_len;
    const struct sbox_pair *env; /* names and values */
    size_t n_env;
    const struct json_value *agent_state; /* or NULL */
    const char *agent_id;                 /* or NULL */
    const char *site, *cwd;
    const struct json_value *files, *collect; /* From POST /v1/run, or NULL. */
};
/* The caller wipes out. */
int frame_request_put(const struct frame_request *request, struct buf *out) MUST_CHECK;

struct frame_answer {
    struct json_doc *doc;
    bool ok;
    const char *result; /* Raw JSON that points into the payload; "null" if there is none. */
    size_t result_len;
    const struct json_value *result_value, *agent_state, *files; /* or NULL */
    const char *error_type, *error_message, *traceback;          /* "" if there is none. */
    int exit_code;                                               /* For code or a command; -1 if none was given. */
    bool nothing_left; /* It says that /workspace/out does not exist, or is empty. */
};
/* -EBADMSG: the code does not fit. -EPROTO: the payload is malformed. */
int frame_answer_read(const uint8_t key[FRAME_KEY], const char *data, size_t len, struct frame_answer *ret) MUST_CHECK;
void frame_answer_done(struct frame_answer *answer);

#endif
