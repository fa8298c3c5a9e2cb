/* SPDX-License-Identifier: Apache-2.0 */
/* link_private.h: what link.c (calls) and link_io.c (frames on the socket) share. */
#ifndef BRIG_LINK_LINK_PRIVATE_H
#define BRIG_LINK_LINK_PRIVATE_H

#include "link/link.h"

#define STREAMS 3u

struct call {
    struct link *link;
    struct call_events events;
    uint32_t request;
    bool dropped;       /* its owner has gone; kept until the REPLY, because until then frames may carry its number */
    bool ended;         /* the REPLY is being delivered */
    bool eof_sent;      /* of stream 0 */
    bool eof_due;       /* and it is yet to be queued */
    bool hungry;        /* call_write() took less than it was given */
    bool cancel;        /* CANCEL is yet to be queued */
    bool controls;      /* in the link's list of calls that have CREDIT, EOF or CANCEL to queue */
    uint32_t in_flight; /* of stream 0: sent and not yet given back */
    uint32_t received[STREAMS]; /* of 1 and 2: come and not yet given back */
    uint32_t consumed[STREAMS]; /* given back by our caller, CREDIT not yet queued; part of received */
    bool eof[STREAMS];
    struct call *next_control;
};

/* What waits to be sent: bytes from begin to end. */
struct send_queue {
    uint8_t *data;
    size_t begin, end, cap;
};

struct link {
    struct loop *loop;
    struct link_events events;
    struct loop_source source;
    struct loop_timer flush;  /* what a round's callbacks queued goes out in one write at the next */
    struct loop_timer breath; /* reads on, when there was no memory for it */
    int fd;
    bool greeted; /* HELLO has come; until then only ours is sent */
    bool over;    /* it has ended; who finds out calls link_over() at its next turn */
    bool told;    /* link_over() has run */
    bool destroyed;
    bool parsing;
    bool mute;      /* the other side reads no more */
    bool writing;   /* EPOLLOUT is asked for */
    bool starved;   /* EPOLLIN is not: there is no memory to receive into */
    unsigned depth; /* callbacks under way: freed only at 0 */
    struct send_queue out;
    size_t hello_left; /* of our HELLO */
    uint8_t *in;       /* received and not parsed; NULL while there is nothing */
    size_t in_len, in_cap;
    struct call **calls; /* by slot; request = (generation << SLOT_BITS | slot) + 1 */
    uint32_t n_slots, n_calls, next_slot;
    uint32_t generation;
    struct call *controls; /* calls with CREDIT, EOF or CANCEL to queue */
    struct brig_err why;
};

/* link.c */
struct call *link_find(struct link *link, uint32_t request);
/* Takes a call whose REPLY has come, or whose link has ended, out of the table and tells its owner. */
void link_end_call(struct call *call, const struct svc_reply *reply, const uint8_t *data, size_t len);
/* The link has ended: every call has its reply, then gone(). The caller holds depth. */
void link_over(struct link *link);
void link_hold(struct link *link);
bool link_release(struct link *link); /* false: it was destroyed meanwhile and is freed */
void link_wake_writers(struct link *link);
void link_want_control(struct call *call);

/* link_io.c */
/* -ENOMEM, -EAGAIN: full */
int link_queue(struct link *link, const struct frame *frame, const void *payload) MUST_CHECK;
/* Sends frames of stream 0 without a copy if nothing is queued: how many bytes were taken, all or none of a frame. */
size_t link_send_data(struct link *link, uint32_t request, const uint8_t *data, size_t len);
size_t link_room(const struct link *link); /* bytes that may be queued, headers included */
void link_send_soon(struct link *link);
void link_want_writable(struct link *link, bool on);
void link_fail(struct link *link, int errnum, const char *why); /* errnum EPROTO: brig-init broke the protocol */
void link_on_ready(struct loop_source *source, uint32_t events);
void link_on_flush(struct loop_timer *timer);
void link_on_breath(struct loop_timer *timer);

#endif
