/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h: brigd's side of the service protocol (codec/wire/guest_svc.h): one link per live sandbox, with any number of
 * calls on it. It knows frames, credit and request numbers; the caller knows the payloads. It works on the loop and
 * never blocks.
 *
 * The other side is untrusted: pid 1 of a sandbox, which may have been taken over. A malformed frame, an unknown
 * request, or data beyond its credit ends the link (gone with BRIG_E_GONE, "brig-init broke the protocol: ...").
 * Nothing that it sends is kept beyond what a callback takes. Memory per link is bounded: at most LINK_SEND_MAX bytes
 * wait to be sent; past that link_call() returns -EAGAIN and call_write() takes nothing.
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
    /* Called once, when the link may be used. Calls that were made before wait. */
    void (*hello)(void *ctx, const struct svc_hello *hello);
    /* Called once. Every open call has had its reply by then. */
    void (*gone)(void *ctx, const struct brig_err *why);
    void *ctx;
};

/*
 * The callbacks of a call. Any may be NULL. Data is valid during the callback. They may open, write and cancel any
 * call.
 */
struct call_events {
    void (*event)(void *ctx, const uint8_t *data, size_t len);
    /* Bytes of stream 1 or 2. Call call_consumed() when they have reached their destination, and not before. */
    void (*data)(void *ctx, unsigned stream, const uint8_t *data, size_t len);
    void (*eof)(void *ctx, unsigned stream);
    void (*writable)(void *ctx); /* call_write() took less than it was given, and now there is room. */
    /*
     * The end of the call, exactly once; then the call is freed. errnum is 0 or an errno; ENOTCONN if the link was
     * lost.
     */
    void (*reply)(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len);
    void *ctx;
};

/* It owns fd (a non-blocking stream), also on failure. */
int link_create(struct loop *loop, int fd, const struct link_events *events, struct link **ret,
                struct brig_err *err) MUST_CHECK;
void link_destroy(struct link *link); /* Its calls get no reply. link may be NULL. */

/* Opens a call. type is SVC_PROC_START and the like; payload is as its message says, and is split over frames here. */
int link_call(struct link *link, enum svc_type type, const void *payload, size_t len, const struct call_events *events,
              struct call **ret, struct brig_err *err) MUST_CHECK;
/* Writes bytes into stream 0. Returns how many were taken (0 to len), -ENOTCONN, or -EPIPE after call_eof(). */
ssize_t call_write(struct call *call, const void *data, size_t len) MUST_CHECK;
int call_eof(struct call *call) MUST_CHECK; /* Ends stream 0. */
void call_consumed(struct call *call, unsigned stream, size_t len);
/* No callback comes any more, whatever the other side still sends. The pointer must not be used again. */
void call_drop(struct call *call);

#endif
