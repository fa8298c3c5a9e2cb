/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_parse.c: blocks and members of a tar archive (tar.h says what is read and refused).
 *
 *     HEADER --x, g, L, K--> EXTENSION --> PADDING --> HEADER      what they say waits for the next member
 *        |  \--a member--> CONTENT --> PADDING --> HEADER
 *        |           \--sparse, with its map behind the header--> MAP --> CONTENT
 *        \--zeroes--> ZERO --zeroes or the end--> END              what follows the end is not looked at
 *
 * Memory is one struct, whatever the archive says. Nothing in a header is believed before its checksum is right.
 */
#include "codec/tar/tar.h"

enum {
    STATE_HEADER,
    STATE_EXTENSION,
    STATE_MAP,
    STATE_CONTENT,
    STATE_CONTENT_END,
    STATE_PADDING,
    STATE_ZERO,
    STATE_END
};

/* Offsets in a header. */
enum {
    AT_NAME = 0,
    AT_MODE = 100,
    AT_UID = 108,
    AT_GID = 116,
    AT_SIZE = 124,
    AT_MTIME = 136,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_LINK = 157,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
};

void tar_parser_init(struct tar_parser *parser)
{
    __builtin_memset(parser, 0, sizeof(*parser));
    parser->state = STATE_HEADER;
}

int tar_parse_end(const struct tar_parser *parser)
{
    if (parser->state == STATE_END || (parser->state == STATE_ZERO && parser->fill == 0))
        return 0;
    return parser->extra && parser->state == STATE_HEADER && parser->fill == 0 && !parser->has_pax &&
                   !parser->long_name.set && !parser->long_link.set
               ? -ENODATA
               : -EBADMSG;
}

uint64_t tar_skip(struct tar_parser *parser)
{
    uint64_t n = parser->left + parser->pad;

    parser->left = parser->pad = 0;
    parser->state = STATE_HEADER;
    return n;
}

/* ---- numbers ---------------------------------------------------------------------------------------- */

/* Octal with blanks around it, or GNU's binary form. An empty field is 0. */
int tar_number(const uint8_t *at, size_t len, int64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;

    if (at[0] & 0x80) {
        bool negative = at[0] & 0x40;

        for (i = 0; i + 8 < len; i++) /* all but the last eight bytes are sign */
            if ((i == 0 ? at[i] | (negative ? 0x80 : 0) : at[i]) != (negative ? 0xff : i == 0 ? 0x80 : 0))
                return -EBADMSG;
        for (; i < len; i++)
            value = value << 8 | (i == 0 ? at[i] & 0x7f : at[i]);
        if (len <= 8 && negative)
            value |= UINT64_C(1) << 63; /* of a short field the sign is bit 62 */
        if (((int64_t)value < 0) != negative)
            return -EBADMSG;
        *ret = (int64_t)value;
        return 0;
    }
    while (i < len && at[i] == ' ')
        i++;
    for (; i < len && at[i] >= '0' && at[i] <= '7'; i++) {
        if (value >> 60)
            return -EBADMSG;
        value = value << 3 | (uint64_t)(at[i] - '0');
    }
    for (; i < len; i++)
        if (at[i] != ' ' && at[i] != 0)
            return -EBADMSG;
    *ret = (int64_t)value;
    return 0;
}

/* The sum of all bytes with its own field blank; long ago some added signed bytes. */
static int check_sum(const uint8_t *block)
{
    int64_t told, plain = 0, with_sign = 0;

    for (unsigned i = 0; i < TAR_BLOCK; i++) {
        uint8_t byte = i >= AT_SUM && i < AT_SUM + 8 ? ' ' : block[i];

        plain += byte;
        with_sign += (int8_t)byte;
    }
    if (tar_number(block + AT_SUM, 8, &told) < 0 || (told != plain && told != with_sign))
        return -EBADMSG;
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------------- */

/* Leading slashes, `.` and double slashes go; `..` is refused. Returns the length. */
static int clean_name(char out[TAR_NAME_MAX + 1], const char *in, size_t len)
{
    size_t at = 0, used = 0;

    while (at < len) {
        const char *part = in + at;
        size_t n = 0;

        while (at < len && in[at] != '/') {
            if (in[at] == 0)
                return -EINVAL;
            at++, n++;
        }
        at++;
        if (n == 0 || (n == 1 && part[0] == '.'))
            continue;
        if (n == 2 && part[0] == '.' && part[1] == '.')
            return -EINVAL;
        if (used + (used > 0) + n > TAR_NAME_MAX)
            return -ENAMETOOLONG;
        if (used > 0)
            out[used++] = '/';
        __builtin_memcpy(out + used, part, n);
        used += n;
    }
    out[used] = 0;
    return (int)used;
}

static size_t field_len(const uint8_t *at, size_t max)
{
    size_t n = 0;

    while (n < max && at[n] != 0)
        n++;
    return n;
}

/* ustar's two halves of a name. GNU keeps other things where the prefix would be. */
static size_t header_name(const uint8_t *block, char out[TAR_BLOCK])
{
    size_t n = 0, len = field_len(block + AT_NAME, 100);

    if (__builtin_memcmp(block + AT_MAGIC, "ustar\0", 6) == 0 && block[AT_PREFIX] != 0) {
        n = field_len(block + AT_PREFIX, 155);
        __builtin_memcpy(out, block + AT_PREFIX, n);
        out[n++] = '/';
    }
    __builtin_memcpy(out + n, block + AT_NAME, len);
    return n + len;
}

static int set_names(struct tar_parser *parser, bool *slash)
{
    struct tar_member *member = &parser->member;
    char own[TAR_BLOCK];
    const char *name = own, *link = (const char *)parser->block + AT_LINK;
    size_t name_len = header_name(parser->block, own), link_len = field_len(parser->block + AT_LINK, 100);
    int ret;

    if ((parser->path.set && parser->long_name.set) || (parser->link.set && parser->long_link.set))
        return -EBADMSG;
    if (parser->path.set || parser->long_name.set) {
        const struct tar_text *text = parser->path.set ? &parser->path : &parser->long_name;

        name = text->text;
        name_len = text->len;
    }
    if (parser->link.set || parser->long_link.set) {
        const struct tar_text *text = parser->link.set ? &parser->link : &parser->long_link;

        link = text->text;
        link_len = text->len;
    }
    *slash = name_len > 0 && name[name_len - 1] == '/';
    member->name = parser->name;
    ret = name_len == 0 ? -EINVAL : clean_name(parser->name, name, name_len);
    if (ret < 0) { /* as it stands there, for the message */
        member->name_len = name_len < TAR_NAME_MAX ? name_len : TAR_NAME_MAX;
        __builtin_memcpy(parser->name, name, member->name_len);
        parser->name[member->name_len] = 0;
        return ret;
    }
    member->name_len = (size_t)ret;
    if (link_len > TAR_NAME_MAX || __builtin_memchr(link, 0, link_len))
        return link_len > TAR_NAME_MAX ? -ENAMETOOLONG : -EINVAL;
    __builtin_memcpy(parser->link_name, link, link_len);
    parser->link_name[link_len] = 0;
    member->link = parser->link_name;
    member->link_len = link_len;
    return 0;
}

/* ---- members ----------------------------------------------------------------------------------------- */

static int kind_of(uint8_t type, bool slash)
{
    switch (type) {
    case 0:
    case '0': return slash ? TAR_DIR : TAR_FILE; /* v7 has no other sign of a directory */
    case '7': return TAR_FILE;
    case '1': return TAR_HARDLINK;
    case '2': return TAR_SYMLINK;
    case '3':
    case '4': return TAR_DEVICE;
    case '5': return TAR_DIR;
    case '6': return TAR_FIFO;
    default: return -EOPNOTSUPP;
    }
}

static int set_numbers(struct tar_parser *parser)
{
    struct tar_member *member = &parser->member;
    const uint8_t *block = parser->block;
    int64_t mode, uid, gid, size, mtime;

    if (tar_number(block + AT_MODE, 8, &mode) < 0 || tar_number(block + AT_UID, 8, &uid) < 0 ||
        tar_number(block + AT_GID, 8, &gid) < 0 || tar_number(block + AT_SIZE, 12, &size) < 0 ||
        tar_number(block + AT_MTIME, 12, &mtime) < 0 || size < 0 || mode < 0)
        return -EBADMSG;
    member->mode = (uint32_t)(mode & 07777);
    member->uid = parser->has_uid ? parser->uid : (uint64_t)uid;
    member->gid = parser->has_gid ? parser->gid : (uint64_t)gid;
    member->size = parser->has_size ? parser->size : (uint64_t)size;
    member->mtime = parser->has_mtime ? parser->mtime : parser->has_global_mtime ? parser->global_mtime : mtime;
    member->mtime_ns = parser->has_mtime ? parser->mtime_ns : parser->has_global_mtime ? parser->global_mtime_ns : 0;
    return 0;
}

/* What extensions said is used up, and the content follows. */
static int end_header(struct tar_parser *parser)
{
    struct tar_member *member = &parser->member;

    if (member->sparse) {
        if (tar_sparse_check(parser->extra, parser->left) < 0)
            return -EBADMSG;
        member->size = parser->extra->real_size;
    }
    parser->path.set = parser->link.set = parser->long_name.set = parser->long_link.set = false;
    parser->has_pax = parser->has_size = parser->has_mtime = parser->has_uid = parser->has_gid = false;
    parser->sparse = parser->named = false;
    parser->state = STATE_CONTENT;
    return TAR_MEMBER;
}

/* A block of the map of a sparse file. Only the map in the content counts as content. */
static int on_map_block(struct tar_parser *parser)
{
    int ret;

    if (parser->extra->form == TAR_SPARSE_IN_CONTENT) {
        if (parser->left < TAR_BLOCK)
            return -EBADMSG;
        parser->left -= TAR_BLOCK;
    }
    ret = tar_sparse_block(parser->extra, parser->block);
    return ret < 0 ? ret : ret > 0 ? TAR_NEED : end_header(parser);
}

static int begin_sparse(struct tar_parser *parser)
{
    int ret = parser->member.kind == TAR_FILE ? tar_sparse_begin(parser->extra, parser->block) : -EBADMSG;

    if (ret < 0)
        return ret;
    parser->member.sparse = true;
    if (ret == 0)
        return end_header(parser);
    parser->state = STATE_MAP;
    return TAR_NEED;
}

/* The kind of the member in parser->block. What nobody asked for is not taken for something else. */
static int kind_of_member(struct tar_parser *parser, bool slash)
{
    uint8_t type = parser->block[AT_TYPE];

    if (parser->extra && type == 'S')
        return parser->sparse ? -EBADMSG : TAR_FILE;
    return parser->sparse && !parser->extra ? -EOPNOTSUPP : kind_of(type, slash);
}

static int begin_member(struct tar_parser *parser)
{
    struct tar_member *member = &parser->member;
    bool slash = false;
    int ret, kind;

    if ((ret = set_numbers(parser)) < 0 || (ret = set_names(parser, &slash)) < 0 ||
        (ret = kind = kind_of_member(parser, slash)) < 0)
        return ret;
    member->kind = (enum tar_kind)kind;
    if (kind == TAR_HARDLINK && parser->extra)
        member->size = 0; /* Some writers repeat the size of the file. Readers agree that no content follows. */
    if (member->size != 0 && kind != TAR_FILE)
        return -EBADMSG;
    if (kind == TAR_HARDLINK) {
        char raw[TAR_NAME_MAX + 1];

        __builtin_memcpy(raw, parser->link_name, member->link_len);
        if ((ret = clean_name(parser->link_name, raw, member->link_len)) <= 0)
            return ret < 0 ? ret : -EINVAL;
        member->link_len = (size_t)ret;
    }
    if ((member->name_len == 0 && kind != TAR_DIR) || (kind == TAR_SYMLINK && member->link_len == 0))
        return -EINVAL;
    if (parser->extra && !parser->has_pax)
        parser->extra->xattrs_len = 0;
    parser->left = member->size;
    parser->pad = tar_padding(member->size);
    return parser->sparse || parser->block[AT_TYPE] == 'S' ? begin_sparse(parser) : end_header(parser);
}

/* ---- extensions --------------------------------------------------------------------------------------- */

static int begin_extension(struct tar_parser *parser, uint8_t type)
{
    struct tar_text *text = type == 'L' ? &parser->long_name : type == 'K' ? &parser->long_link : NULL;
    int64_t size;

    if (tar_number(parser->block + AT_SIZE, 12, &size) < 0 || size < 0)
        return -EBADMSG;
    if (text && (text->set || size == 0))
        return -EBADMSG;
    if (size > (text ? (int64_t)TAR_NAME_MAX + 1 : (int64_t)TAR_EXTENSION_MAX))
        return text ? -ENAMETOOLONG : -EFBIG;
    if (type == 'x' && parser->has_pax)
        return -EBADMSG;
    if (text)
        *text = (struct tar_text){.set = true};
    parser->has_pax = parser->has_pax || type == 'x';
    parser->extension = type;
    parser->left = (uint64_t)size;
    parser->pad = tar_padding((uint64_t)size);
    parser->state = STATE_EXTENSION;
    if (!text)
        tar_pax_begin(parser);
    return TAR_NEED;
}

/* GNU ends it with a NUL. */
static int end_long(struct tar_text *text)
{
    if (text->len > 0 && text->text[text->len - 1] == 0)
        text->len--;
    return text->len == 0 || text->len > TAR_NAME_MAX ? -EBADMSG : 0;
}

static int feed_extension(struct tar_parser *parser, const uint8_t *in, size_t len)
{
    struct tar_text *text = parser->extension == 'L' ? &parser->long_name : &parser->long_link;
    int ret = 0;

    if (parser->extension == 'x' || parser->extension == 'g') {
        ret = tar_pax_feed(parser, in, len);
    } else {
        __builtin_memcpy(text->text + text->len, in, len);
        text->len += (uint32_t)len;
    }
    parser->left -= len;
    if (ret < 0 || parser->left > 0)
        return ret;
    parser->state = STATE_PADDING;
    return parser->extension == 'x' || parser->extension == 'g' ? tar_pax_end(parser) : end_long(text);
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

static bool all_zero(const uint8_t *block)
{
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

/* A header is complete. An extension that no member follows belongs to nobody. */
static int on_block(struct tar_parser *parser)
{
    uint8_t type = parser->block[AT_TYPE];

    if (all_zero(parser->block)) {
        if (parser->has_pax || parser->long_name.set || parser->long_link.set)
            return -EBADMSG;
        parser->state = parser->state == STATE_ZERO ? STATE_END : STATE_ZERO;
        return TAR_NEED;
    }
    parser->member = (struct tar_member){0}; /* what is wrong from here on is not the last one's fault */
    if (parser->state == STATE_ZERO || check_sum(parser->block) < 0)
        return -EBADMSG;
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K')
        return begin_extension(parser, type);
    return begin_member(parser);
}

static int step(struct tar_parser *parser, const uint8_t *in, size_t len, size_t *used)
{
    size_t n = len;

    *used = 0;
    switch (parser->state) {
    case STATE_HEADER:
    case STATE_MAP:
    case STATE_ZERO:
        n = len < TAR_BLOCK - parser->fill ? len : TAR_BLOCK - parser->fill;
        __builtin_memcpy(parser->block + parser->fill, in, n);
        parser->fill += (uint32_t)n;
        *used = n;
        if (parser->fill < TAR_BLOCK)
            return TAR_NEED;
        parser->fill = 0;
        return parser->state == STATE_MAP ? on_map_block(parser) : on_block(parser);
    case STATE_EXTENSION:
        *used = n = len < parser->left ? len : (size_t)parser->left;
        return feed_extension(parser, in, n);
    case STATE_CONTENT:
        *used = n = len < parser->left ? len : (size_t)parser->left;
        parser->left -= n;
        if (parser->left == 0)
            parser->state = STATE_CONTENT_END;
        return n > 0 ? TAR_CONTENT : TAR_NEED;
    case STATE_CONTENT_END: parser->state = STATE_PADDING; return TAR_MEMBER_END;
    case STATE_PADDING:
        *used = n = len < parser->pad ? len : parser->pad;
        parser->pad -= (uint32_t)n;
        if (parser->pad == 0)
            parser->state = STATE_HEADER;
        return TAR_NEED;
    default: *used = len; return TAR_NEED;
    }
}

/* Whether the state changes without another byte. */
static bool can_go_on(const struct tar_parser *parser)
{
    return parser->state == STATE_CONTENT_END ||
           ((parser->state == STATE_CONTENT || parser->state == STATE_EXTENSION) && parser->left == 0) ||
           (parser->state == STATE_PADDING && parser->pad == 0);
}

int tar_parse(struct tar_parser *parser, const uint8_t **in, size_t *len, const uint8_t **ret_data, size_t *ret_len)
{
    while (*len > 0 || can_go_on(parser)) {
        const uint8_t *at = *in;
        size_t used;
        int ret = step(parser, at, *len, &used);

        *in += used;
        *len -= used;
        if (ret == TAR_CONTENT) {
            *ret_data = at;
            *ret_len = used;
        }
        if (ret != TAR_NEED)
            return ret;
    }
    return TAR_NEED;
}
