/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_run.h: a request that is answered by a run: from the members of its body to the executor, and from what the run
 * came to back to the client, in the form that the route has. Each function that returns false has sent the refusal and
 * freed what was begun.
 */
#ifndef BRIG_API_TOOL_RUN_H
#define BRIG_API_TOOL_RUN_H

#include "api/api.h"
#include "run/execute.h"

struct running;

/* How a run is answered. */
struct run_form {
    void (*put)(const struct running *running, const struct run_result *result, struct json *json);
    bool invalid_is_result; /* arguments that do not fit are the tool's error, not the request's */
};

/* {id, status, result, error, stdout, stderr, ..., receipt}; or a stream of events; or 202 in the background */
extern const struct run_form run_native;

struct running {
    struct request *rq; /* NULL: the client has left */
    const struct run_form *form;
    struct run *run;
    struct run_ask ask;
    struct tool tool; /* The tool that only this request has. */
    bool has_tool;
    bool stream, begun;
};

struct running *running_create(struct request *rq, const struct run_form *form); /* NULL: the refusal was sent */
void running_free(struct running *running);
/* The JSON that was written becomes a part of the request's arena. */
int running_keep(struct running *running, struct buf *text, const struct json_value **ret,
                 struct brig_err *err) MUST_CHECK;
/* A tool that is in no registry: its document, which is taken over. */
bool running_float(struct running *running, struct buf *text) MUST_CHECK;
bool running_use(struct running *running, const struct object *tool) MUST_CHECK;
/* Members of a native body: args, env_vars, timeout, limits, network, secrets, agent_id, agent_state, sandbox_id,
 * reuse, provider, fallback, strict, background, stream. */
bool running_read(struct running *running) MUST_CHECK;
void running_go(struct running *running);
/* The refusal of a request that has a run prepared: both are gone. */
void running_refuse(struct running *running, enum brig_code code, const char *format, ...) PRINTF_LIKE(3, 4);
void running_fail(struct running *running, const struct brig_err *err);

/* tool_run_answer.c */
void run_put_receipt(struct json *json, const struct run_result *result); /* or null */
void run_put_status(struct json *json, const struct run_result *result);

#endif
