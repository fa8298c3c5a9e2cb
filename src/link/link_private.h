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
    /* Its owner has gone. It is kept until the REPLY, because frames may carry its number until then. */
    bool dropped;
    bool ended;                 /* The REPLY is being delivered. */
    bool eof_sent;              /* EOF of stream 0 was sent. */
    bool eof_due;               /* It must still be queued. */
    bool hungry;                /* call_write() took less than it was given. */
    bool cancel;                /* CANCEL must still be queued. */
    bool controls;              /* It is in the link's list of calls that have CREDIT, EOF or CANCEL to queue. */
    uint32_t in_flight;         /* The bytes of stream 0 that were sent and not yet given back. */
    uint32_t received[STREAMS]; /* The bytes of 1 and 2 that have come and were not yet given back. */
    /* The bytes that our caller gave back and whose CREDIT is not queued yet; part of received. */
    uint32_t consumed[STREAMS];
    bool eof[STREAMS];
    struct call *next_control;
};

/* The bytes that wait to be sent, from begin to end. */
struct send_queue {
    uint8_t *data;
    size_t begin, end, cap;
};

struct link {
    struct loop *loop;
    struct link_events events;
    struct loop_source source;
    struct loop_timer flush;  /* Sends what the callbacks of a round queued, in one write at the next round. */
    struct loop_timer breath; /* Reads on after memory was short. */
    int fd;
    bool greeted; /* HELLO has come; until then only ours is sent. */
    bool over;    /* It has ended; link_over() runs at the next turn. */
    bool told;    /* link_over() has run */
    bool destroyed;
    bool parsing;
    bool mute;      /* The other side reads no more. */
    bool writing;   /* EPOLLOUT is asked for. */
    bool starved;   /* EPOLLIN is not asked for, because there is no memory to receive into. */
    unsigned depth; /* The callbacks that are running; the link is freed only at 0. */
    struct send_queue out;
    size_t hello_left; /* The bytes left of our HELLO. */
    uint8_t *in;       /* The bytes that were received and not parsed; NULL if there are none. */
    size_t in_len, in_cap;
    struct call **calls; /* By slot; request is (generation << SLOT_BITS | slot) + 1. */
    uint32_t n_slots, n_calls, next_slot;
    uint32_t generation;
    struct call *controls; /* The calls with CREDIT, EOF or CANCEL to queue. */
    struct brig_err why;
};

/* link.c */
struct call *link_find(struct link *link, uint32_t request);
/* Takes a call whose REPLY has come, or whose link has ended, out of the table, and calls its owner. */
void link_end_call(struct call *call, const struct svc_reply *reply, const uint8_t *data, size_t len);
/* The link has ended: every call gets its reply, then gone() is called. The caller holds depth. */
void link_over(struct link *link);
void link_hold(struct link *link);
bool link_release(struct link *link); /* Returns false if it was destroyed meanwhile and is freed. */
void link_wake_writers(struct link *link);

/* link_io.c */
/* Returns 0, -ENOMEM, or -EAGAIN if the queue is full. */
int link_queue(struct link *link, const struct frame *frame, const void *payload) MUST_CHECK;
/*
 * Sends frames of stream 0 without a copy if nothing is queued. Returns how many bytes were taken: a frame whole or not
 * at all.
 */
size_t link_send_data(struct link *link, uint32_t request, const uint8_t *data, size_t len);
size_t link_room(const struct link *link); /* The bytes that may be queued, headers included. */
void link_send_soon(struct link *link);
void link_want_writable(struct link *link, bool on);
void link_on_ready(struct loop_source *source, uint32_t events);
void link_on_flush(struct loop_timer *timer);
void link_on_breath(struct loop_timer *timer);

#endif
