/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_client.h: brigd's side of the file worker, for tests that run it as an ordinary process in a directory of its
 * own (files_worker_driver, beside the test). Everything that is not expected fails the test.
 */
#ifndef BRIG_TESTS_FILES_CLIENT_H
#define BRIG_TESTS_FILES_CLIENT_H

#include "unit.h"

#include <sys/types.h>

#include "codec/wire/guest_svc.h"

/* A system call that fails inside the worker, when all bits of `mask` are set in argument `arg`. */
struct deny {
    int nr, errnum;
    unsigned arg;
    uint32_t mask;
};

struct files {
    pid_t pid;
    int fd;
    uint32_t request; /* of the call opened last */
    char dir[64];     /* the base of every path */
    uint8_t *in;
    size_t in_len, in_taken;
};

struct outcome {
    int errnum;
    unsigned events;
    size_t eofs;
    uint8_t *data; /* stream 1 */
    size_t data_len, credit;
    uint8_t reply[16384];
    size_t reply_len;
    uint8_t *event; /* all of them, one after the other, as the frames carried them */
    size_t event_len, event_at[4096];
    bool keep_credit; /* nothing is given back */
};

void files_spawn(struct files *f, const struct deny *deny, size_t n);
/* Ends it (it must end well) and removes its directory. */
void files_stop(struct files *f);
/* After a protocol error: its exit status. */
int files_status(struct files *f);

/* A path below the directory, in one of a few static buffers. */
const char *files_at(const struct files *f, const char *path);

uint32_t files_open(struct files *f, enum svc_type type, uint32_t flags, const char *path, const void *rest,
                    size_t len);
void files_send(struct files *f, enum svc_type type, uint32_t stream, uint32_t request, const void *payload,
                size_t len);
void files_send_raw(struct files *f, const void *data, size_t len);
/* Takes frames until one of `request` with this type is there; all of that request go into the outcome. */
void files_until(struct files *f, uint32_t request, enum svc_type type, struct outcome *out);
/* Up to the REPLY; its errnum. */
int files_finish(struct files *f, uint32_t request, struct outcome *out);
int files_call(struct files *f, enum svc_type type, uint32_t flags, const char *path, const void *rest, size_t len,
               struct outcome *out);
void outcome_done(struct outcome *out);
struct svc_entry outcome_entry(const struct outcome *out); /* of the REPLY */
struct svc_entry outcome_event(const struct outcome *out, unsigned i);

/* Calls of one kind; each returns the errnum. */
int files_write(struct files *f, const char *path, uint32_t how, const void *data, size_t len);
int files_write_flags(struct files *f, uint32_t flags, const char *path, uint32_t how, uint64_t offset,
                      const void *data, size_t len);
/* Sends the bytes and EOF to a call; false when it ended before. */
int files_upload(struct files *f, uint32_t request, const void *data, size_t len, struct outcome *out);
int files_mkdir(struct files *f, const char *path, uint32_t parents);
int files_remove(struct files *f, const char *path, uint32_t recursive);
int files_move(struct files *f, const char *path, const char *to, uint32_t replace);

#endif
