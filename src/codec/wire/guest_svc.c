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

/* ---- HELLO, REPLY ------------------------------------------------------------------------------- */

#define F(member) WIRE_FIELD(svc_hello, member)
static const struct wire_field HELLO[] = {F(version), F(capabilities), F(boot), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_reply, member)
static const struct wire_field REPLY[] = {F(errnum), F(stage), {0}};
#undef F

int svc_hello_put(uint8_t *out, size_t size, const struct svc_hello *msg)
{
    return wire_put(out, size, HELLO, msg);
}

/* As guest_hello_parse(): a later version may make it longer. */
int svc_hello_parse(const uint8_t *in, size_t len, struct svc_hello *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_hello msg = {0};

    wire_get_fields(&at, HELLO, &msg);
    if (at.bad || msg.version == 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_reply_put(uint8_t *out, size_t size, const struct svc_reply *msg)
{
    return wire_put(out, size, REPLY, msg);
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

#define F(member) WIRE_FIELD(svc_path, member)
static const struct wire_field PATH[] = {F(flags), F(base), F(path), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_entry, member)
static const struct wire_field ENTRY[] = {F(type),  F(mode),     F(uid),      F(gid),  F(nlink),  F(size), F(blocks),
                                          F(inode), F(mtime_ns), F(ctime_ns), F(path), F(target), {0}};
#undef F

void svc_put_path(struct svc_cursor *out, const struct svc_path *path)
{
    wire_put_fields(out, PATH, path);
}

/* What a path may be is the worker's question (it answers EINVAL); here it only has to be there. */
struct svc_path svc_get_path(struct svc_reader *in)
{
    struct svc_path path = {0};

    wire_get_fields(in, PATH, &path);
    return path;
}

void svc_put_entry(struct svc_cursor *out, const struct svc_entry *entry)
{
    wire_put_fields(out, ENTRY, entry);
}

struct svc_entry svc_get_entry(struct svc_reader *in)
{
    struct svc_entry entry = {0};

    wire_get_fields(in, ENTRY, &entry);
    if (entry.type >= SVC_FILE_TYPE_MAX)
        in->bad = true;
    return entry;
}
