/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h: what the files of this room share. connect.c makes connections; client_wire.c moves bytes with time
 * limits.
 */
#ifndef BRIG_CLIENT_INTERNAL_H
#define BRIG_CLIENT_INTERNAL_H

#include "client/client.h"
#include "codec/http/http.h"

#define CLIENT_WHERE 320u
#define CLIENT_KEY_MAX 512u
#define CLIENT_PIECE ((size_t)256 << 10)

struct client {
    int fd; /* -1 if there is none now. */
    int cancel_fd;
    bool remote;
    char where[CLIENT_WHERE];     /* the socket's path, or BRIG_HOST */
    char authority[CLIENT_WHERE]; /* Host */
    char key[CLIENT_KEY_MAX];
    uint32_t timeout_ms; /* of this call */
    /* The answer that is being read: */
    struct buf in; /* The head, which points into it, and bytes of the body that came with it. */
    size_t in_at;  /* How many of them were consumed. */
    struct http_head head;
    char *piece; /* CLIENT_PIECE bytes, through which all data goes in either direction. */
    struct buf reply;
    unsigned status;
    char error_code[64];
};

/* connect.c */
int client_connect(struct client *client, struct brig_err *err) MUST_CHECK;
void client_disconnect(struct client *client);
bool client_is_fresh(const struct client *client); /* It is connected, and no unexpected bytes have come. */

/*
 * client_wire.c: all functions wait for progress at most client->timeout_ms, and end with -ECANCELED when the caller
 * asks for it. wire_wait() waits for events on the connection, or for other_fd (-1: none) to be readable. It returns
 * the bits of what is ready.
 */
#define WIRE_READABLE 1
#define WIRE_WRITABLE 2
#define WIRE_OTHER 4
int wire_wait(const struct client *client, int events, int other_fd, struct brig_err *err) MUST_CHECK;
int wire_send(struct client *client, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
/* Sends what fits now. Returns the number of bytes, or 0. */
ssize_t wire_send_some(struct client *client, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
/* Returns 0 at the end. */
ssize_t wire_receive(struct client *client, void *data, size_t size, struct brig_err *err) MUST_CHECK;

/* client_request.c: writes the head of a request with its fields, without the empty line. */
int request_put_head(const struct client *client, const struct client_request *request, struct buf *out,
                     struct brig_err *err) MUST_CHECK;
int request_send(struct client *client, const struct client_request *request, struct brig_err *err) MUST_CHECK;
/* client_response.c: reads the next head that is not an interim one. */
int response_head(struct client *client, const char *method, struct brig_err *err) MUST_CHECK;
/* Handles an answer of 400 or more: its body becomes the message. Returns a negative errno. */
int response_refused(struct client *client, struct brig_err *err);
int response_body(struct client *client, const struct client_request *request, struct brig_err *err) MUST_CHECK;

#endif
