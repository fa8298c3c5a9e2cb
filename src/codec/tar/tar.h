/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h: a parser of tar archives that is fed pieces of any size, and a maker of headers. It makes no system calls,
 * allocates nothing and needs only mem*() of the C library: brig-init, the command line, tests and fuzzers compile the
 * same files.
 *
 * It reads ustar, PAX (x and g headers), the GNU format's long names and large numbers, and v7. It refuses archives
 * that two readers could understand in two ways: links and directories with contents, a name both in PAX and GNU
 * headers, two headers of a kind for one member, global headers that would name members.
 *
 * A reader that gives the parser a struct tar_extra gets extended attributes and sparse files as well.
 */
#ifndef BRIG_CODEC_TAR_TAR_H
#define BRIG_CODEC_TAR_TAR_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512u
#define TAR_NAME_MAX 4095u                                      /* The longest name or link. */
#define TAR_EXTENSION_MAX (1u << 20)                            /* The bytes of one PAX header. */
#define TAR_HEADER_MAX (2 * TAR_NAME_MAX + 4 * TAR_BLOCK + 512) /* The most that tar_put_header() makes. */
#define TAR_XATTRS_MAX (128u << 10)                             /* The bytes of all extended attributes of a member. */
#define TAR_KEY_MAX 300u      /* A longer key of a PAX record is one that nobody knows. */
#define TAR_PIECES_MAX 16384u /* The pieces of data of a sparse file. */
/* The most that tar_put_extra() makes: two numbers for each piece. */
#define TAR_EXTRA_MAX (TAR_HEADER_MAX + TAR_XATTRS_MAX + TAR_PIECES_MAX * 40 + 4 * TAR_BLOCK)

enum tar_kind { TAR_FILE, TAR_DIR, TAR_SYMLINK, TAR_HARDLINK, TAR_FIFO, TAR_DEVICE, TAR_KIND_MAX };

struct tar_member {
    enum tar_kind kind;
    uint32_t mode; /* 07777 */
    uint64_t uid, gid;
    uint64_t size; /* The size of a TAR_FILE, else 0. */
    bool sparse;   /* Its content is only the pieces that struct tar_extra lists; `size` is that of the whole file. */
    int64_t mtime;
    uint32_t mtime_ns;
    const char *name; /* It ends with a NUL and has no slash at either end, no `.` and no `..`. The root is "". */
    size_t name_len;
    const char *link; /* The target of a symbolic link as it is written; that of a hard link, cleaned as a name is. */
    size_t link_len;
};

struct tar_piece {
    uint64_t at, size;
};

/* What a member may have besides. It is large, and the caller owns it. */
struct tar_extra {
    uint32_t n_pieces, xattrs_len;
    struct tar_piece pieces[TAR_PIECES_MAX]; /* In ascending order, apart from each other, within the file's size. */
    uint8_t xattrs[TAR_XATTRS_MAX];          /* tar_xattr_next() reads it, tar_xattr_add() writes it. */
    /* The rest is the parser's: */
    uint32_t key_len, value_at;
    char key[TAR_KEY_MAX];
    uint64_t real_size, number, expected; /* `expected`: the numbers that are left of a map in the content. */
    uint32_t digits, form;
    bool has_size, has_at, counted;
};

/*
 * Walks the extended attributes: *at is 0 at first. Returns false at the end. The name ends with a NUL and is never
 * empty; the value has *ret_len bytes.
 */
bool tar_xattr_next(const struct tar_extra *extra, uint32_t *at, const char **ret_name, const uint8_t **ret_value,
                    uint32_t *ret_len);
/* Returns 0 or -E2BIG. */
int tar_xattr_add(struct tar_extra *extra, const char *name, const void *value, size_t len);
int tar_xattr_grow(struct tar_extra *extra, uint8_t byte); /* The value of the last one gets longer by a byte. */

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
    struct tar_extra *extra; /* The caller may set it after tar_parser_init(). */
    uint8_t state;
    bool has_size, has_mtime, has_uid, has_gid, has_pax, has_global_mtime, ended;
    bool sparse; /* A PAX header says that the next member is sparse, */
    bool named;  /* and what its name is. */
    uint8_t block[TAR_BLOCK];
    uint32_t fill; /* The bytes in `block`, or in the field that is being collected. */
    uint64_t left; /* The bytes that are left of the content or extension. */
    uint32_t pad;  /* The padding behind it. */
    uint64_t size; /* This and the next three lines come from a PAX header. */
    uint64_t uid, gid;
    int64_t mtime, global_mtime;
    uint32_t mtime_ns, global_mtime_ns;
    struct tar_text path, link;                               /* PAX */
    struct tar_text long_name, long_link;                     /* GNU */
    char name[TAR_NAME_MAX + 1], link_name[TAR_NAME_MAX + 1]; /* member.name and member.link point here. */
    /* The kind of header that is being read: 'x', 'g', 'L' or 'K'. */
    uint8_t extension;
    uint8_t field;        /* The place within a PAX record. */
    uint8_t key;          /* The key of that record, */
    uint8_t sparse_key;   /* and which one of a sparse file's. */
    uint64_t record_left; /* The bytes left of its value and the newline. */
    char keyword[32];
    char number[64]; /* a value that is a number */
};

void tar_parser_init(struct tar_parser *parser);
/*
 * Uses bytes of *in. Returns an event, or -EBADMSG (not an archive, wrong checksum), -EINVAL (a name that leads out),
 * -ENAMETOOLONG, -EOPNOTSUPP (sparse, multi-volume, unknown), -EFBIG (an extension header) or -E2BIG (extended
 * attributes, or pieces of a sparse file). After an error it must not be called again; member.name is then the member
 * at fault, as far as it was read, or NULL.
 */
int tar_parse(struct tar_parser *parser, const uint8_t **in, size_t *len, const uint8_t **ret_data, size_t *ret_len);
/*
 * Was it a whole archive? Returns 0 or -EBADMSG; to a reader with a struct tar_extra -ENODATA if the archive only lacks
 * the blocks of zeroes at its end.
 */
int tar_parse_end(const struct tar_parser *parser);
/* After TAR_MEMBER: the parser goes on at the next header. Returns how many bytes the caller must not give to it. */
uint64_t tar_skip(struct tar_parser *parser);

/* tar_pax.c: reads an extension header byte by byte. It collects names; it looks at all else and forgets it. */
void tar_pax_begin(struct tar_parser *parser);
int tar_pax_feed(struct tar_parser *parser, const uint8_t *in, size_t len);
int tar_pax_end(struct tar_parser *parser);

/* tar_sparse.c: the maps of sparse files, in the three ways of PAX headers and in GNU's own. */
enum tar_sparse_form { TAR_SPARSE_IN_HEADERS, TAR_SPARSE_IN_CONTENT, TAR_SPARSE_IN_BLOCKS };
enum tar_sparse_key {
    TAR_SPARSE_NONE,
    TAR_SPARSE_SIZE,
    TAR_SPARSE_AT,
    TAR_SPARSE_LEN,
    TAR_SPARSE_MAP,
    TAR_SPARSE_MAJOR
};
enum tar_sparse_key tar_sparse_key(const char *key, size_t len);
int tar_sparse_value(struct tar_extra *extra, enum tar_sparse_key key, uint64_t value);
int tar_sparse_map_byte(struct tar_extra *extra, uint8_t byte, bool last); /* It reads GNU.sparse.map. */
/* A member that is sparse begins. Returns 1 if blocks with its map follow, 0 if it is complete, or -EBADMSG. */
int tar_sparse_begin(struct tar_extra *extra, const uint8_t *header);
/* One such block. Returns like tar_sparse_begin(). */
int tar_sparse_block(struct tar_extra *extra, const uint8_t *block);
/* The map is complete and must fit the bytes that are stored. Returns 0 or -EBADMSG. */
int tar_sparse_check(const struct tar_extra *extra, uint64_t stored);
void tar_sparse_reset(struct tar_extra *extra);
/* tar_parse.c */
int tar_number(const uint8_t *at, size_t len, int64_t *ret);

/* ---- writing --------------------------------------------------------------------------------------- */

/*
 * Writes the header of a member, with a PAX header before it where ustar is not enough. Returns its length or
 * -ENAMETOOLONG.
 */
int tar_put_header(uint8_t out[TAR_HEADER_MAX], const struct tar_member *member);
/*
 * The same with extended attributes, and for a sparse member with its map (GNU's format 1.0) in whole blocks. The
 * caller writes the pieces behind it and pads them with tar_padding() of their sum. extra may be NULL.
 */
int tar_put_extra(uint8_t *out, size_t size, const struct tar_member *member, const struct tar_extra *extra);

static inline uint32_t tar_padding(uint64_t size)
{
    return (uint32_t)(-size & (TAR_BLOCK - 1));
}

#endif
