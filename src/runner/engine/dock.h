/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dock.h: a client of a container engine (the Engine API of Docker, which Podman serves too) over its unix socket.
 *
 * Whoever may connect to that socket is root on the host, so only the runner does. Everything happens on one loop. A
 * call is one connection with one request and one answer; nothing is kept between calls but the version of the API. An
 * answer that is longer than its bound is an error. Every call ends within its time.
 *
 * An error has one line with the engine's own words, cut and without control characters. Its code says what happened:
 *
 *   BRIG_E_BUSY       nobody answers at the socket, or the connection broke in the middle of an answer
 *   BRIG_E_OFF        the socket may not be used, or the engine speaks no version of the API that we know
 *   BRIG_E_TIMEOUT    there was no whole answer in time
 *   BRIG_E_NOT_FOUND  404
 *   BRIG_E_CONFLICT   409
 *   BRIG_E_INVALID    400
 *   BRIG_E_HOST       any other answer that is no success, and one that cannot be read
 */
#ifndef BRIG_RUNNER_ENGINE_DOCK_H
#define BRIG_RUNNER_ENGINE_DOCK_H

#include "base/buf.h"
#include "codec/json/json_read.h"
#include "loop/loop.h"

#define DOCK_SOCKET_MAX 108u /* sun_path */
#define DOCK_TARGET_MAX 1024u
#define DOCK_ID_MAX 65u /* 64 hexadecimal digits and the NUL */
#define DOCK_DIGEST_MAX 72u
#define DOCK_ANSWER_MAX (4u << 20)
#define DOCK_ANSWER_NS (UINT64_C(60) * 1000 * 1000 * 1000)

struct dock_call;

struct dock {
    struct loop *loop;
    int root_fd; /* The socket's path is looked up below it; it is not owned. */
    char socket[DOCK_SOCKET_MAX];
    char api[8];        /* "1.41"; "" until dock_settle() */
    uint64_t answer_ns; /* the time for a call that names none */
    struct dock_call *calls;
};

/* root_fd: a directory, whose tree has the socket; AT_FDCWD for our own. */
void dock_init(struct dock *dock, struct loop *loop, int root_fd, const char *socket);
void dock_done(struct dock *dock); /* Nobody is told of calls that are under way. */

struct dock_answer {
    unsigned status;
    const struct json_value *json; /* NULL if there was no body, or it was read line by line. */
};
/* err is NULL if it went well; otherwise answer is. */
typedef void dock_done_fn(void *ctx, const struct dock_answer *answer, const struct brig_err *err);

struct dock_request {
    const char *method;
    const char *target; /* It begins with a slash, is encoded, and has no version. */
    const char *body;   /* JSON, or NULL. It is copied. */
    const void *tar;    /* Instead of a body: an archive of tar_len bytes. */
    size_t tar_len;
    /*
     * The answer is a line of JSON for each step, and the last says whether it went well (pull, load). No line may have
     * more than `most` bytes.
     */
    bool lines;
    uint64_t timeout_ns; /* 0 means dock.answer_ns. */
    size_t most;         /* 0 means DOCK_ANSWER_MAX. */
    dock_done_fn *done;
    void *ctx;
};

/*
 * If it fails, done is not called. Otherwise done is called once, later. The call can be dropped until then: nobody is
 * told, and the connection is closed. ret may be NULL.
 */
int dock_ask(struct dock *dock, const struct dock_request *request, struct dock_call **ret,
             struct brig_err *err) MUST_CHECK;
void dock_drop(struct dock_call *call);

/* ---- dock_calls.c ------------------------------------------------------------------------------------------ */

/* What GET /version says. */
struct dock_engine {
    bool podman;
    char version[32]; /* The engine has it. */
};
/* Takes the answer to GET /version and settles dock.api. BRIG_E_OFF: we have no version in common. */
int dock_settle(struct dock *dock, const struct json_value *json, struct dock_engine *ret,
                struct brig_err *err) MUST_CHECK;

/* The rest are the targets of requests; each writes into out, and returns 0 or -ENAMETOOLONG. */
#define DOCK_LABEL_INSTALLATION "org.brig.installation"
#define DOCK_LABEL_SANDBOX "org.brig.sandbox"
int dock_target(char out[DOCK_TARGET_MAX], const char *before, const char *name, const char *after) MUST_CHECK;
/* All containers with the label DOCK_LABEL_INSTALLATION of this value, those that have ended too. */
int dock_list_target(char out[DOCK_TARGET_MAX], const char *installation) MUST_CHECK;
/* POST removes the images with that label that have no name any more. */
int dock_prune_target(char out[DOCK_TARGET_MAX], const char *installation) MUST_CHECK;

/* What inspecting a container shows. The texts live as long as the answer. */
struct dock_state {
    const char *id, *image, *status, *error; /* status: created, running, paused, exited, dead ... */
    const char *installation, *sandbox;      /* labels */
    bool running, paused, oom;
    uint64_t pid;
    int64_t exit_code;
};
void dock_state_read(const struct json_value *json, struct dock_state *ret);

#endif
