/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_svc.c: writes and parses the payloads of the service protocol. docs/PROTOCOL.md, "Service", has the layouts. A
 * message is its fields in the order of its struct, without padding. Arrays over streams travel without [0].
 *
 * Both directions are untrusted: programs beside brig-init may have taken it over, and users wrote what goes to it. So
 * a parser accepts exactly what an encoder can make: enums and lengths in range, nothing left over. brig-init links
 * this file without a C library: only mem*() and strlen() may be called here.
 */
#include "codec/wire/guest_svc.h"

#include "codec/wire/le.h"

#define ERRNO_MAX 4095u

/* ---- frames ------------------------------------------------------------------------------------- */

static bool has_stream(uint16_t type)
{
    return type == SVC_DATA || type == SVC_EOF || type == SVC_CREDIT;
}

static bool header_ok(const struct frame *frame)
{
    bool opens = frame->type >= SVC_CALL_MIN;

    if (frame->length > FRAME_PAYLOAD_MAX || (frame->flags & ~FRAME_MORE) != 0)
        return false;
    if (!(opens ? frame->type < SVC_TYPE_MAX : frame->type >= SVC_HELLO && frame->type <= SVC_CANCEL))
        return false;
    if ((frame->flags & FRAME_MORE) != 0 && (!opens || frame->length == 0))
        return false;
    if (frame->stream > (has_stream(frame->type) ? 2u : 0u))
        return false;
    return frame->request <= SVC_REQUEST_MAX && (frame->request == 0) == (frame->type == SVC_HELLO);
}

int svc_frame_parse(const uint8_t *buf, size_t len, struct frame *ret)
{
    struct frame frame;

    if (len < FRAME_HEADER)
        return 0;
    frame_get_header(buf, &frame);
    if (!header_ok(&frame))
        return -EPROTO;
    if (len - FRAME_HEADER < frame.length)
        return 0;
    *ret = frame;
    return (int)(FRAME_HEADER + frame.length);
}

/* ---- fields ------------------------------------------------------------------------------------- */

/* The place for n bytes, or NULL once and for all. */
static uint8_t *room(struct svc_cursor *out, size_t n)
{
    if (out->bad || (size_t)(out->end - out->at) < n) {
        out->bad = true;
        return NULL;
    }
    out->at += n;
    return out->at - n;
}

static const uint8_t *take(struct svc_reader *in, size_t n)
{
    if (in->bad || (size_t)(in->end - in->at) < n) {
        in->bad = true;
        return NULL;
    }
    in->at += n;
    return in->at - n;
}

void svc_put_u8(struct svc_cursor *out, uint8_t value)
{
    uint8_t *at = room(out, 1);

    if (at)
        *at = value;
}

void svc_put_u16(struct svc_cursor *out, uint16_t value)
{
    uint8_t *at = room(out, 2);

    if (at)
        le_put_u16(at, value);
}

void svc_put_u32(struct svc_cursor *out, uint32_t value)
{
    uint8_t *at = room(out, 4);

    if (at)
        le_put_u32(at, value);
}

void svc_put_u64(struct svc_cursor *out, uint64_t value)
{
    uint8_t *at = room(out, 8);

    if (at)
        le_put_u64(at, value);
}

void svc_put_raw(struct svc_cursor *out, const void *data, size_t len)
{
    uint8_t *at = room(out, len);

    if (at && len > 0)
        memcpy(at, data, len);
}

void svc_put_bytes(struct svc_cursor *out, struct svc_bytes bytes)
{
    svc_put_u32(out, bytes.len);
    svc_put_raw(out, bytes.data, bytes.len);
}

uint8_t svc_get_u8(struct svc_reader *in)
{
    const uint8_t *at = take(in, 1);

    return at ? *at : 0;
}

uint16_t svc_get_u16(struct svc_reader *in)
{
    const uint8_t *at = take(in, 2);

    return at ? le_get_u16(at) : 0;
}

uint32_t svc_get_u32(struct svc_reader *in)
{
    const uint8_t *at = take(in, 4);

    return at ? le_get_u32(at) : 0;
}

uint64_t svc_get_u64(struct svc_reader *in)
{
    const uint8_t *at = take(in, 8);

    return at ? le_get_u64(at) : 0;
}

struct svc_bytes svc_get_bytes(struct svc_reader *in)
{
    uint32_t len = svc_get_u32(in);
    const uint8_t *at = take(in, len);

    return at ? (struct svc_bytes){(const char *)at, len} : (struct svc_bytes){"", 0};
}

int svc_done(const struct svc_reader *in)
{
    return in->bad || in->at != in->end ? -EPROTO : 0;
}

int svc_put_done(const struct svc_cursor *out, const uint8_t *begin)
{
    return out->bad ? -EMSGSIZE : (int)(out->at - begin);
}

/* ---- HELLO, REPLY ------------------------------------------------------------------------------- */

int svc_hello_put(uint8_t *out, size_t size, const struct svc_hello *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->version);
    svc_put_u32(&at, msg->capabilities);
    svc_put_u64(&at, msg->boot);
    return svc_put_done(&at, out);
}

/* As guest_hello_parse(): a later version may make it longer. */
int svc_hello_parse(const uint8_t *in, size_t len, struct svc_hello *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_hello msg = {0};

    msg.version = svc_get_u32(&at);
    msg.capabilities = svc_get_u32(&at);
    msg.boot = svc_get_u64(&at);
    if (at.bad || msg.version == 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_reply_put(uint8_t *out, size_t size, const struct svc_reply *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->errnum);
    svc_put_u32(&at, msg->stage);
    return svc_put_done(&at, out);
}

int svc_reply_parse(const uint8_t *in, size_t len, struct svc_reply *ret)
{
    if (len < SVC_REPLY_SIZE)
        return -EPROTO;
    struct svc_reply msg = {le_get_u32(in), le_get_u32(in + 4)};
    if (msg.errnum > ERRNO_MAX || msg.stage >= STAGE_MAX || (msg.errnum != 0 && len != SVC_REPLY_SIZE))
        return -EPROTO;
    *ret = msg;
    return 0;
}

/* ---- files -------------------------------------------------------------------------------------- */

void svc_put_path(struct svc_cursor *out, const struct svc_path *path)
{
    svc_put_u32(out, path->flags);
    svc_put_bytes(out, path->base);
    svc_put_bytes(out, path->path);
}

/* What a path may be is the worker's question (it answers EINVAL); here it only has to be there. */
struct svc_path svc_get_path(struct svc_reader *in)
{
    struct svc_path path = {0};

    path.flags = svc_get_u32(in);
    path.base = svc_get_bytes(in);
    path.path = svc_get_bytes(in);
    return path;
}

void svc_put_entry(struct svc_cursor *out, const struct svc_entry *entry)
{
    svc_put_u32(out, entry->type);
    svc_put_u32(out, entry->mode);
    svc_put_u32(out, entry->uid);
    svc_put_u32(out, entry->gid);
    svc_put_u32(out, entry->nlink);
    svc_put_u64(out, entry->size);
    svc_put_u64(out, entry->blocks);
    svc_put_u64(out, entry->inode);
    svc_put_u64(out, (uint64_t)entry->mtime_ns);
    svc_put_u64(out, (uint64_t)entry->ctime_ns);
    svc_put_bytes(out, entry->path);
    svc_put_bytes(out, entry->target);
}

struct svc_entry svc_get_entry(struct svc_reader *in)
{
    struct svc_entry entry = {0};

    entry.type = svc_get_u32(in);
    entry.mode = svc_get_u32(in);
    entry.uid = svc_get_u32(in);
    entry.gid = svc_get_u32(in);
    entry.nlink = svc_get_u32(in);
    entry.size = svc_get_u64(in);
    entry.blocks = svc_get_u64(in);
    entry.inode = svc_get_u64(in);
    entry.mtime_ns = (int64_t)svc_get_u64(in);
    entry.ctime_ns = (int64_t)svc_get_u64(in);
    entry.path = svc_get_bytes(in);
    entry.target = svc_get_bytes(in);
    if (entry.type >= SVC_FILE_TYPE_MAX)
        in->bad = true;
    return entry;
}
