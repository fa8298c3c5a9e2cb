/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h: brigd's side of the service protocol (codec/wire/guest_svc.h): one link per live sandbox, any number of calls
 * on it. Knows frames, credit and request numbers; the payloads are the caller's. Asynchronous on the loop.
 *
 * The other side is untrusted: pid 1 of a sandbox that may have been taken over. A malformed frame, an unknown request,
 * data beyond its credit ends the link (gone with BRIG_E_GONE, "brig-init broke the protocol: ..."); nothing it
 * sends is kept beyond what a callback takes. Memory per link is bounded: what waits to be sent is at most
 * LINK_SEND_MAX, past which link_call() answers -EAGAIN and link_write() takes nothing.
 */
#ifndef BRIG_LINK_LINK_H
#define BRIG_LINK_LINK_H

#include <brig.h>

#include "codec/wire/guest_svc.h"
#include "loop/loop.h"

#define LINK_SEND_MAX (8u << 20)

struct link;
struct call;

struct link_events {
    void (*hello)(void *ctx, const struct svc_hello *hello); /* once, when it may be used (calls made before wait) */
    void (*gone)(void *ctx, const struct brig_err *why);     /* once; every open call has had its reply(-) by then */
    void *ctx;
};

/* The callbacks of a call; any may be NULL. Data is valid during the call. They may open, write, cancel any call. */
struct call_events {
    void (*event)(void *ctx, const uint8_t *data, size_t len);
    /* Bytes of stream 1 or 2. Give them back with call_consumed() once they have gone where they go: not before. */
    void (*data)(void *ctx, unsigned stream, const uint8_t *data, size_t len);
    void (*eof)(void *ctx, unsigned stream);
    void (*writable)(void *ctx); /* call_write() took less than it was given, and now there is room */
    /* The end, exactly once, then the call is gone. errnum 0, or an errno; EPIPE-like loss of the link is ENOTCONN. */
    void (*reply)(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len);
    void *ctx;
};

/* Takes fd (non-blocking stream) over, whatever happens. */
int link_create(struct loop *loop, int fd, const struct link_events *events, struct link **ret,
                struct brig_err *err) MUST_CHECK;
void link_destroy(struct link *link); /* calls get no reply; takes NULL */

/* Opens a call: type SVC_PROC_START ..., payload as its message says (split over frames here). */
int link_call(struct link *link, enum svc_type type, const void *payload, size_t len, const struct call_events *events,
              struct call **ret, struct brig_err *err) MUST_CHECK;
/* Bytes into stream 0: how many were taken (0 .. len), or -ENOTCONN, -EPIPE after call_eof(). */
ssize_t call_write(struct call *call, const void *data, size_t len) MUST_CHECK;
int call_eof(struct call *call) MUST_CHECK; /* no more of stream 0 */
void call_consumed(struct call *call, unsigned stream, size_t len);
/* No callback comes any more, whatever the other side still sends; the pointer is dead. */
void call_drop(struct call *call);

#endif
