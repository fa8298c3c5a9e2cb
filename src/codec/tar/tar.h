/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h: tar archives as bytes: a parser that is fed pieces of any size, and a maker of headers. No system calls, no
 * allocation, no C library but mem*(): brig-init, tests and fuzzers compile the same two files.
 *
 * Read are ustar, PAX (x and g headers), the GNU format's long names and large numbers, and v7. Archives that two
 * readers could understand in two ways are refused: links and directories with contents, a name both in PAX and GNU
 * headers, two headers of a kind for one member, global headers that would name members.
 */
#ifndef BRIG_CODEC_TAR_TAR_H
#define BRIG_CODEC_TAR_TAR_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512u
#define TAR_NAME_MAX 4095u           /* of a name or a link */
#define TAR_EXTENSION_MAX (1u << 20) /* bytes of one PAX header; extended attributes may be in it, and are ignored */
#define TAR_HEADER_MAX (2 * TAR_NAME_MAX + 4 * TAR_BLOCK + 512) /* of what tar_put_header() makes */

enum tar_kind { TAR_FILE, TAR_DIR, TAR_SYMLINK, TAR_HARDLINK, TAR_FIFO, TAR_DEVICE, TAR_KIND_MAX };

struct tar_member {
    enum tar_kind kind;
    uint32_t mode; /* 07777 */
    uint64_t uid, gid;
    uint64_t size; /* of a TAR_FILE; else 0 */
    int64_t mtime;
    uint32_t mtime_ns;
    const char *name; /* NUL-terminated; no leading slash, no `.` and `..`, no slash at the end; "": the root */
    size_t name_len;
    const char *link; /* of a symlink as it stands there; of a hard link cleaned as a name is */
    size_t link_len;
};

/* ---- reading --------------------------------------------------------------------------------------- */

enum tar_event {
    TAR_NEED,    /* all input was used */
    TAR_MEMBER,  /* parser->member; its strings live until the next tar_parse() that does not return TAR_CONTENT */
    TAR_CONTENT, /* *ret_data, *ret_len: of a TAR_FILE, never empty */
    TAR_MEMBER_END,
};

struct tar_text {
    uint32_t len;
    bool set;
    char text[TAR_NAME_MAX + 1];
};

struct tar_parser {
    struct tar_member member;
    uint8_t state;
    bool has_size, has_mtime, has_pax, has_global_mtime, ended;
    bool sparse; /* a PAX header says so of the next member */
    uint8_t block[TAR_BLOCK];
    uint32_t fill; /* bytes of `block`, or of the field that is being collected */
    uint64_t left; /* of the content or extension */
    uint32_t pad;  /* behind it */
    uint64_t size; /* from a PAX header, as the next two */
    int64_t mtime, global_mtime;
    uint32_t mtime_ns, global_mtime_ns;
    struct tar_text path, link;                               /* PAX */
    struct tar_text long_name, long_link;                     /* GNU */
    char name[TAR_NAME_MAX + 1], link_name[TAR_NAME_MAX + 1]; /* what the member points to */
    uint8_t extension;                                        /* which header is being read: 'x', 'g', 'L', 'K' */
    uint8_t field;                                            /* of a PAX record: where we are */
    uint8_t key;                                              /* which one it is */
    uint64_t record_left;                                     /* of its value, and the newline */
    char keyword[32];
    char number[64]; /* a value that is a number */
};

void tar_parser_init(struct tar_parser *parser);
/*
 * Uses bytes of *in. Returns an event, or -EBADMSG (not an archive, wrong checksum), -EINVAL (a name that leads out),
 * -ENAMETOOLONG, -EOPNOTSUPP (sparse, multi-volume, unknown), -EFBIG (an extension header). After an error do not call
 * again; member.name is then the member at fault, as far as it was read, or NULL.
 */
int tar_parse(struct tar_parser *parser, const uint8_t **in, size_t *len, const uint8_t **ret_data, size_t *ret_len);
/* Whether what was fed is a whole archive: 0 or -EBADMSG. */
int tar_parse_end(const struct tar_parser *parser);

/* tar_pax.c: an extension header, byte after byte. Names are collected, all else is looked at and forgotten. */
void tar_pax_begin(struct tar_parser *parser);
int tar_pax_feed(struct tar_parser *parser, const uint8_t *in, size_t len);
int tar_pax_end(struct tar_parser *parser);

/* ---- writing --------------------------------------------------------------------------------------- */

/* The header of a member, with a PAX header before it where ustar does not do. Returns its length or -ENAMETOOLONG. */
int tar_put_header(uint8_t out[TAR_HEADER_MAX], const struct tar_member *member);

static inline uint32_t tar_padding(uint64_t size)
{
    return (uint32_t)(-size & (TAR_BLOCK - 1));
}

#endif
