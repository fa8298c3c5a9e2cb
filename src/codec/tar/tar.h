/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h: a parser of tar archives that is fed pieces of any size, and a maker of headers. It makes no system calls,
 * allocates nothing and needs only mem*() of the C library: brig-init, the command line, tests and fuzzers compile the
 * same files.
 *
 * It reads ustar, PAX (x and g headers), the GNU format's long names and large numbers, and v7. It refuses archives
 * that two readers could understand in two ways: links and directories with contents, a name both in PAX and GNU
 * headers, two headers of a kind for one member, global headers that would name members.
 */
#ifndef BRIG_CODEC_TAR_TAR_H
#define BRIG_CODEC_TAR_TAR_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512u
#define TAR_NAME_MAX 4095u           /* The longest name or link. */
#define TAR_EXTENSION_MAX (1u << 20) /* The bytes of one PAX header. Extended attributes in it are ignored. */
#define TAR_HEADER_MAX (2 * TAR_NAME_MAX + 4 * TAR_BLOCK + 512) /* The most that tar_put_header() makes. */

enum tar_kind { TAR_FILE, TAR_DIR, TAR_SYMLINK, TAR_HARDLINK, TAR_FIFO, TAR_DEVICE, TAR_KIND_MAX };

struct tar_member {
    enum tar_kind kind;
    uint32_t mode; /* 07777 */
    uint64_t uid, gid;
    uint64_t size; /* The size of a TAR_FILE, else 0. */
    int64_t mtime;
    uint32_t mtime_ns;
    const char *name; /* It ends with a NUL and has no slash at either end, no `.` and no `..`. The root is "". */
    size_t name_len;
    const char *link; /* The target of a symbolic link as it is written; that of a hard link, cleaned as a name is. */
    size_t link_len;
};

/* ---- reading --------------------------------------------------------------------------------------- */

enum tar_event {
    TAR_NEED, /* All input was used. */
    /* parser->member is set. Its strings live until the next tar_parse() that does not return TAR_CONTENT. */
    TAR_MEMBER,
    TAR_CONTENT, /* *ret_data and *ret_len are content of a TAR_FILE, never empty. */
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
    bool sparse; /* A PAX header says that the next member is sparse. */
    uint8_t block[TAR_BLOCK];
    uint32_t fill; /* The bytes in `block`, or in the field that is being collected. */
    uint64_t left; /* The bytes that are left of the content or extension. */
    uint32_t pad;  /* The padding behind it. */
    uint64_t size; /* This and the next two come from a PAX header. */
    int64_t mtime, global_mtime;
    uint32_t mtime_ns, global_mtime_ns;
    struct tar_text path, link;                               /* PAX */
    struct tar_text long_name, long_link;                     /* GNU */
    char name[TAR_NAME_MAX + 1], link_name[TAR_NAME_MAX + 1]; /* member.name and member.link point here. */
    /* The kind of header that is being read: 'x', 'g', 'L' or 'K'. */
    uint8_t extension;
    uint8_t field;        /* The place within a PAX record. */
    uint8_t key;          /* The key of that record. */
    uint64_t record_left; /* The bytes left of its value and the newline. */
    char keyword[32];
    char number[64]; /* a value that is a number */
};

void tar_parser_init(struct tar_parser *parser);
/*
 * Uses bytes of *in. Returns an event, or -EBADMSG (not an archive, wrong checksum), -EINVAL (a name that leads out),
 * -ENAMETOOLONG, -EOPNOTSUPP (sparse, multi-volume, unknown) or -EFBIG (an extension header). After an error it must
 * not be called again; member.name is then the member at fault, as far as it was read, or NULL.
 */
int tar_parse(struct tar_parser *parser, const uint8_t **in, size_t *len, const uint8_t **ret_data, size_t *ret_len);
/* Was it a whole archive? Returns 0 or -EBADMSG. */
int tar_parse_end(const struct tar_parser *parser);

/* tar_pax.c: reads an extension header byte by byte. It collects names; it looks at all else and forgets it. */
void tar_pax_begin(struct tar_parser *parser);
int tar_pax_feed(struct tar_parser *parser, const uint8_t *in, size_t len);
int tar_pax_end(struct tar_parser *parser);

/* ---- writing --------------------------------------------------------------------------------------- */

/*
 * Writes the header of a member, with a PAX header before it where ustar is not enough. Returns its length or
 * -ENAMETOOLONG.
 */
int tar_put_header(uint8_t out[TAR_HEADER_MAX], const struct tar_member *member);

static inline uint32_t tar_padding(uint64_t size)
{
    return (uint32_t)(-size & (TAR_BLOCK - 1));
}

#endif
