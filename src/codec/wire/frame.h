/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h: the frames between the spawner and brig-init (docs/PROTOCOL.md): a byte stream of
 *
 *     0       4      6      8        12        16
 *     | length | type | flags | stream | request | payload (length bytes, at most 64 KiB)
 *
 * All numbers are little-endian. `length` counts the payload only. The parser never reads past what it was given.
 */
#ifndef BRIG_CODEC_WIRE_FRAME_H
#define BRIG_CODEC_WIRE_FRAME_H

#include "base/base.h"

#define FRAME_VERSION 1u
#define FRAME_HEADER 16u
#define FRAME_PAYLOAD_MAX 65536u

enum frame_type {
    FRAME_HELLO = 1,   /* both ways, first: struct frame_hello */
    FRAME_START = 2,   /* to init: struct frame_start and strings; FRAME_MORE until complete */
    FRAME_STARTED = 3, /* from init: struct frame_started; a PTY master travels beside it on a local socket */
    FRAME_EXITED = 4,  /* from init: struct frame_exited; the last frame */
    FRAME_SIGNAL = 5,  /* to init: u32 signal number for the main process */
    /* For an init that serves (GUEST_START_SERVICE): */
    FRAME_ATTACH = 6, /* to init: empty; beside it the stream that replaces the one it has */
    FRAME_LEAF = 7,   /* from a child of init, with its SCM_CREDENTIALS: guest_leaf; it waits for a cgroup of its own */
    FRAME_LEAF_READY = 8, /* to init: guest_leaf_ready; the child is in it, or why not */
    FRAME_LEAF_END = 9,   /* from init: guest_leaf; kill what is in it and remove it */
    FRAME_LEAF_GONE = 10, /* to init: guest_leaf_gone; nothing of it is left */
    /* from init, once: empty. The answer of a program is about to leave; the engine gets what the sandbox has used. */
    FRAME_COUNT = 11,
    FRAME_TYPE_MAX
};

#define FRAME_MORE 0x0001u /* The payload goes on in the next frame of the same type and request. */

struct frame {
    uint32_t length;
    uint16_t type;
    uint16_t flags;
    uint32_t stream;
    uint32_t request;
    const uint8_t *payload; /* It points into the caller's buffer. */
};

/* Writes the 16 header bytes. */
void frame_put_header(uint8_t out[FRAME_HEADER], const struct frame *frame);
void frame_get_header(const uint8_t in[FRAME_HEADER], struct frame *ret); /* judges nothing */
/*
 * Parses one frame at the start of buf. Returns the number of bytes (> 0), 0 when more are needed, or -EPROTO: an
 * unknown type or flag, a stream other than 0, FRAME_MORE where it does not belong (not START, or empty), or a length
 * over the limit. The header alone decides that.
 */
int frame_parse(const uint8_t *buf, size_t len, struct frame *ret) MUST_CHECK;

#endif
