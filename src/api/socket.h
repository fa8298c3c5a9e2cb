/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.h: a process on a WebSocket that has a sandbox of its own. route_runs.c owns the run, route_output.c moves the
 * bytes.
 */
#ifndef BRIG_API_SOCKET_H
#define BRIG_API_SOCKET_H

#include "api/api.h"

struct reader;

struct socket_owner {
    bool (*message)(void *ctx, const char *text, size_t len); /* before there is a process; false: close with 1008 */
    /* the process has ended, its output is delivered; then socket_end() */
    void (*ended)(void *ctx, const char *receipt, size_t len);
    void (*closed)(void *ctx); /* the client has left, or socket_end() is through; the reader is gone */
};

int socket_open(struct exchange *x, const struct caller *caller, const struct socket_owner *owner, void *ctx,
                struct reader **ret, struct brig_err *err) MUST_CHECK;
int socket_attach(struct reader *reader, struct process *process, struct brig_err *err) MUST_CHECK;
void socket_end(struct reader *reader, const char *receipt, size_t len); /* receipt NULL: none */

#endif
