/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_pax.c: reads PAX headers: records of the form "LENGTH KEY=VALUE\n", in pieces of any size.
 *
 * It knows path, linkpath, size, mtime, uid and gid, and extended attributes where the caller wants them. Unknown keys
 * are skipped, as POSIX asks. Sparse files (GNU's formats 0.0, 0.1 and 1.0) have the name that GNU.sparse.name gives
 * them; where the caller takes none they are refused under it, because the content of such a member is not that of the
 * file. A global header may set a time for all members; a global header that gives them names or sizes is refused,
 * because no honest archive has one and readers differ.
 */
#include "codec/tar/tar.h"

enum { FIELD_LENGTH, FIELD_KEY, FIELD_VALUE };
enum { KEY_OTHER, KEY_PATH, KEY_LINK, KEY_SIZE, KEY_MTIME, KEY_UID, KEY_GID, KEY_XATTR, KEY_SPARSE };

static const char xattr_prefix[] = "SCHILY.xattr.";
#define XATTR_PREFIX (sizeof(xattr_prefix) - 1)

/* `record_left` counts what is left of the record, `fill` what has been collected of the field. */
void tar_pax_begin(struct tar_parser *parser)
{
    parser->field = FIELD_LENGTH;
    parser->record_left = 0;
    parser->fill = 0;
    if (parser->extra && parser->extension == 'x') {
        tar_sparse_reset(parser->extra);
        parser->extra->xattrs_len = 0;
    }
}

int tar_pax_end(struct tar_parser *parser)
{
    bool whole = parser->field == FIELD_LENGTH && parser->fill == 0;

    parser->fill = 0;
    return whole ? 0 : -EBADMSG;
}

/* ---- values ------------------------------------------------------------------------------------------ */

static int get_size(const char *text, uint32_t len, uint64_t *ret)
{
    uint64_t value = 0;

    if (len == 0)
        return -EBADMSG;
    for (uint32_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return -EBADMSG;
    }
    if (value > INT64_MAX)
        return -EBADMSG;
    *ret = value;
    return 0;
}

/* "-1.5" is half a second after -2. */
static int get_time(const char *text, uint32_t len, int64_t *ret, uint32_t *ret_ns)
{
    bool negative = len > 0 && text[0] == '-';
    uint32_t at = negative, end = at, ns = 0, scale = 100000000;
    uint64_t seconds;

    while (end < len && text[end] != '.')
        end++;
    if (get_size(text + at, end - at, &seconds) < 0)
        return -EBADMSG;
    for (at = end + 1; at < len; at++, scale /= 10) {
        if (text[at] < '0' || text[at] > '9')
            return -EBADMSG;
        ns += (uint32_t)(text[at] - '0') * scale;
    }
    *ret = negative ? -(int64_t)seconds : (int64_t)seconds;
    *ret_ns = ns;
    if (negative && ns > 0) {
        *ret -= 1;
        *ret_ns = 1000000000 - ns;
    }
    return 0;
}

/* ---- records ------------------------------------------------------------------------------------------ */

static bool key_is(const struct tar_parser *parser, const char *name)
{
    size_t len = __builtin_strlen(name);

    return parser->fill == len && __builtin_memcmp(parser->keyword, name, len) == 0;
}

static struct tar_text *text_of(struct tar_parser *parser)
{
    return parser->key == KEY_PATH ? &parser->path : parser->key == KEY_LINK ? &parser->link : NULL;
}

/* Does an extended attribute begin? Its name is put down, its value follows byte by byte. */
static int begin_xattr(struct tar_parser *parser)
{
    struct tar_extra *extra = parser->extra;
    int ret;

    if (!extra || parser->extension != 'x' || extra->key_len <= XATTR_PREFIX ||
        __builtin_memcmp(extra->key, xattr_prefix, XATTR_PREFIX) != 0)
        return 0;
    if (extra->key_len == TAR_KEY_MAX)
        return -E2BIG;
    extra->key[extra->key_len] = 0;
    if ((ret = tar_xattr_add(extra, extra->key + XATTR_PREFIX, NULL, 0)) < 0)
        return ret;
    parser->key = KEY_XATTR;
    return 0;
}

static int on_key(struct tar_parser *parser)
{
    static const char sparse[] = "GNU.sparse.";
    struct tar_text *text;
    int ret;

    parser->key = key_is(parser, "path")       ? KEY_PATH
                  : key_is(parser, "linkpath") ? KEY_LINK
                  : key_is(parser, "size")     ? KEY_SIZE
                  : key_is(parser, "mtime")    ? KEY_MTIME
                  : parser->extension == 'g'   ? KEY_OTHER
                  : key_is(parser, "uid")      ? KEY_UID
                  : key_is(parser, "gid")      ? KEY_GID
                                               : KEY_OTHER;
    if (parser->named && parser->key == KEY_PATH)
        parser->key = KEY_OTHER; /* of the archive, not of the file */
    if ((ret = begin_xattr(parser)) < 0)
        return ret;
    if (parser->fill >= sizeof(sparse) - 1 && __builtin_memcmp(parser->keyword, sparse, sizeof(sparse) - 1) == 0) {
        if (parser->extension == 'g')
            return -EOPNOTSUPP;
        parser->sparse = true;
        if (key_is(parser, "GNU.sparse.name")) {
            parser->named = true;
            parser->key = KEY_PATH;
        } else if (parser->extra && tar_sparse_key(parser->keyword, parser->fill) != TAR_SPARSE_NONE) {
            parser->key = KEY_SPARSE;
        }
    }
    if (parser->extension == 'g' && parser->key != KEY_OTHER && parser->key != KEY_MTIME)
        return -EBADMSG;
    if ((text = text_of(parser)))
        text->set = false, text->len = 0;
    parser->sparse_key = parser->key == KEY_SPARSE ? (uint8_t)tar_sparse_key(parser->keyword, parser->fill) : 0;
    parser->field = FIELD_VALUE;
    parser->fill = 0;
    return 0;
}

static int on_sparse_value(struct tar_parser *parser)
{
    uint64_t value;
    int ret;

    if (parser->sparse_key == TAR_SPARSE_MAP)
        return tar_sparse_map_byte(parser->extra, 0, true);
    ret = get_size(parser->number, parser->fill, &value);
    return ret < 0 ? ret : tar_sparse_value(parser->extra, (enum tar_sparse_key)parser->sparse_key, value);
}

/* The value is there. An empty one takes back what was said before. */
static int on_value(struct tar_parser *parser)
{
    struct tar_text *text = text_of(parser);
    bool given = parser->fill > 0;
    int ret = 0;

    if (text) {
        text->set = text->len > 0;
    } else if (parser->key == KEY_SIZE) {
        parser->has_size = given;
        ret = given ? get_size(parser->number, parser->fill, &parser->size) : 0;
    } else if (parser->key == KEY_MTIME && parser->extension == 'g') {
        parser->has_global_mtime = given;
        ret = given ? get_time(parser->number, parser->fill, &parser->global_mtime, &parser->global_mtime_ns) : 0;
    } else if (parser->key == KEY_MTIME) {
        parser->has_mtime = given;
        ret = given ? get_time(parser->number, parser->fill, &parser->mtime, &parser->mtime_ns) : 0;
    } else if (parser->key == KEY_UID) {
        parser->has_uid = given;
        ret = given ? get_size(parser->number, parser->fill, &parser->uid) : 0;
    } else if (parser->key == KEY_GID) {
        parser->has_gid = given;
        ret = given ? get_size(parser->number, parser->fill, &parser->gid) : 0;
    } else if (parser->key == KEY_SPARSE) {
        ret = on_sparse_value(parser);
    }
    parser->field = FIELD_LENGTH;
    parser->fill = 0;
    parser->record_left = 0;
    return ret;
}

/* LENGTH counts its own digits and the blank, too. */
static int feed_length(struct tar_parser *parser, uint8_t byte)
{
    if (byte == ' ') {
        if (parser->fill == 0 || parser->record_left < parser->fill + 1 + 3) /* "k=\n" */
            return -EBADMSG;
        parser->record_left -= parser->fill + 1;
        parser->field = FIELD_KEY;
        parser->fill = 0;
        if (parser->extra)
            parser->extra->key_len = 0;
        return 0;
    }
    if (byte < '0' || byte > '9' || parser->fill == 7 || (parser->fill == 0 && byte == '0'))
        return -EBADMSG;
    parser->record_left = parser->record_left * 10 + (uint64_t)(byte - '0');
    parser->fill++;
    return 0;
}

static int feed_key(struct tar_parser *parser, uint8_t byte)
{
    if (--parser->record_left == 0 || byte == 0 || byte == '\n')
        return -EBADMSG;
    if (byte == '=')
        return parser->fill == 0 ? -EBADMSG : on_key(parser);
    if (parser->fill < sizeof(parser->keyword))
        parser->keyword[parser->fill++] = (char)byte; /* a longer one is none that we know */
    if (parser->extra && parser->extra->key_len < TAR_KEY_MAX)
        parser->extra->key[parser->extra->key_len++] = (char)byte;
    return 0;
}

static int feed_value(struct tar_parser *parser, uint8_t byte)
{
    struct tar_text *text = text_of(parser);

    if (--parser->record_left == 0)
        return byte == '\n' ? on_value(parser) : -EBADMSG;
    if (text) {
        if (text->len == TAR_NAME_MAX)
            return -ENAMETOOLONG;
        text->text[text->len++] = (char)byte;
    } else if (parser->key == KEY_XATTR) {
        return tar_xattr_grow(parser->extra, byte);
    } else if (parser->key == KEY_SPARSE && parser->sparse_key == TAR_SPARSE_MAP) {
        return tar_sparse_map_byte(parser->extra, byte, false);
    } else if (parser->key != KEY_OTHER) {
        if (parser->fill == sizeof(parser->number))
            return -EBADMSG;
        parser->number[parser->fill++] = (char)byte;
    }
    return 0;
}

int tar_pax_feed(struct tar_parser *parser, const uint8_t *in, size_t len)
{
    int ret = 0;

    for (size_t i = 0; i < len && ret == 0; i++) {
        if (parser->field == FIELD_LENGTH)
            ret = feed_length(parser, in[i]);
        else if (parser->field == FIELD_KEY)
            ret = feed_key(parser, in[i]);
        else
            ret = feed_value(parser, in[i]);
    }
    return ret;
}
