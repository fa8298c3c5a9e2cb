/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h: brig-layer, the only program of brig that reads an image's archives and walks its trees. It runs inside a
 * sandbox like any other program, with root inside and no network, and believes nothing that an archive says.
 *
 *   brig-layer unpack [--offset N] [--size N] [--max-bytes N] [--max-files N] [--max-ratio N] [--diff-id sha256:HEX]
 *                     [--format tar|gzip|zstd] [--one-id] BLOB DIRECTORY
 *       unpacks one layer over the merged view of the layers below it. Without --format the first bytes say how it is
 *       compressed; with it they must agree. --one-id: owners are not set (there is only one id).
 *   brig-layer diff UPPER        writes the raw upper directory of an overlay as a layer: a tar with `.wh.` names.
 *   brig-layer pack TREE         writes a plain tree as a tar.
 *   brig-layer index [--offset N] [--size N] [--max-files N] BLOB
 *       lists the members of a plain tar, one JSON object per line:
 *       {"name":"manifest.json","type":"file","offset":N,"size":N} and for links "link". `offset` is where the content
 *       begins, counted from the beginning of BLOB, as unpack takes it. A compressed archive is refused: make it plain
 *       first.
 *   brig-layer plain [--offset N] [--size N] [--max-bytes N] [--max-ratio N] [--format FORMAT] BLOB
 *       writes what BLOB unpacks to.
 *
 * BLOB is a regular file, or `-` for the standard input (with neither --offset nor --size; `index` needs a file).
 *
 * The status is 0; or 1, with one line on the standard error that names the member and the rule. unpack says on the
 * standard output how far it is in BLOB, at most ten times a second, and at the end what it did:
 *
 *   {"at":262144}
 *   {"diff_id":"sha256:HEX","format":"gzip","stream":N,"bytes":N,"files":N,
 *    "dropped":{"devices":N,"capabilities":N,"xattrs":N,"whiteouts":N}}
 *
 * `stream` is the length of the archive, `bytes` that of all files in it. dropped.whiteouts counts whiteouts of things
 * that were not there, and aufs's own files. What a failed unpack leaves in DIRECTORY is to be thrown away.
 */
#ifndef BRIG_LAYER_LAYER_H
#define BRIG_LAYER_LAYER_H

#include <brig.h>

#include "base/base.h"
#include "codec/tar/tar.h"

#define LAYER_BYTES_MAX (UINT64_C(64) << 30)   /* the default of --max-bytes, */
#define LAYER_FILES_MAX UINT64_C(1000000)      /* of --max-files */
#define LAYER_RATIO_MAX UINT64_C(250)          /* and of --max-ratio, */
#define LAYER_RATIO_FREE (UINT64_C(256) << 20) /* which counts from this many bytes on: a file of zeroes is honest */
#define LAYER_DEPTH_MAX 256u                   /* directories above a member */
#define LAYER_NAME_MAX 255u                    /* the bytes of one name, as every file system has it */
#define LAYER_ID_MAX 65535u                    /* a sandbox has these ids */

struct layer_options {
    const char *blob, *directory;
    uint64_t offset, size; /* size: UINT64_MAX without --size */
    uint64_t max_bytes, max_files, max_ratio;
    const char *format;  /* or NULL */
    const char *diff_id; /* 64 hexadecimal digits, or NULL */
    bool one_id;
};

int layer_unpack(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_index(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_plain(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_diff(const char *upper, bool whiteouts, struct brig_err *err) MUST_CHECK;

/*
 * Fails with "NAME: RULE". A name may be as long as a path and hold any byte, so it is escaped, and cut before the rule
 * would be. errnum: the kernel's reason, or 0.
 */
int layer_fail(struct brig_err *err, const char *name, int errnum, const char *format, ...) PRINTF_LIKE(4, 5);
/* What a tar_parse() that failed with `r` means, `at` bytes into the archive. */
int layer_fail_tar(struct brig_err *err, const struct tar_parser *parser, int r, uint64_t at);

/* ---- layer_stream.c: the bytes of a blob, unpacked by a thread of its own -------------------------------- */

struct layer_stream;
int stream_open(const struct layer_options *options, struct layer_stream **ret, struct brig_err *err) MUST_CHECK;
/* The next piece, which stays until the next call. Returns 1, or 0 at the end. */
int stream_next(struct layer_stream *stream, const uint8_t **ret, size_t *ret_len, struct brig_err *err) MUST_CHECK;
uint64_t stream_at(const struct layer_stream *stream); /* the bytes of the blob that were used */
const char *stream_format(const struct layer_stream *stream);
void stream_close(struct layer_stream *stream); /* takes NULL */

/* ---- layer_own.c: which paths this layer has made, and the times of its directories ----------------------- */

struct layer_dir { /* A directory whose time, and for one id whose mode, is set at the end. */
    struct timespec mtime;
    mode_t mode;
    bool has_mode;
    uint32_t path, len; /* where its path is in layer_own.paths */
};

struct layer_own {
    uint64_t *keys; /* hashes of paths: two paths with one hash are as good as impossible */
    uint32_t *dirs; /* for a directory: its index in `list`, plus one */
    size_t n, slots;
    uint64_t seed[2];
    struct layer_dir *list;
    size_t n_list, list_cap;
    char *paths;
    size_t paths_len, paths_cap;
};

int own_init(struct layer_own *own, struct brig_err *err) MUST_CHECK;
void own_done(struct layer_own *own);
int own_add(struct layer_own *own, const char *path, size_t len) MUST_CHECK; /* 0 or -ENOMEM */
bool own_has(const struct layer_own *own, const char *path, size_t len);
/* Returns the entry of a directory (whether its own or not), made with `first` if there is none, or NULL for want of
 * memory. */
struct layer_dir *own_dir(struct layer_own *own, const char *path, size_t len, const struct layer_dir *first);
/* The times and modes of all directories, below root, the deepest first. */
int own_finish(struct layer_own *own, int root, struct brig_err *err) MUST_CHECK;

/* ---- layer_place.c: the way to a member's directory ------------------------------------------------------- */

enum place_way {
    PLACE_MAKE,   /* follows symbolic links inside the root and makes what is missing */
    PLACE_FOLLOW, /* follows, and returns 0 if something is missing */
    PLACE_STRICT, /* returns 0 if something is missing or is no directory */
};

struct place_level {
    int fd;
    uint32_t len; /* The length of its path. */
    bool owned, touched, inherits;
};

struct layer_place {
    struct layer_own *own;
    unsigned depth;
    struct place_level levels[LAYER_DEPTH_MAX + 1];
    char path[TAR_NAME_MAX + 1]; /* The deepest level's, from the root, without links. */
    char raw[TAR_NAME_MAX + 1];  /* the directory that was asked for last, if raw_valid */
    bool raw_valid;
};

void place_init(struct layer_place *place, int root, struct layer_own *own); /* root stays the caller's */
void place_reset(struct layer_place *place);                                 /* back to the root */
/*
 * Goes to the directory of a member's path. Returns 1 with *ret_name its last name, 0 as the way says, or an error.
 * `mtime` is the time of directories that are made.
 */
int place_enter(struct layer_place *place, const char *path, enum place_way way, const struct timespec *mtime,
                const char **ret_name, struct brig_err *err) MUST_CHECK;
/* Something is about to change in the directory: its time is kept for the end. */
int place_touch(struct layer_place *place) MUST_CHECK;
static inline int place_fd(const struct layer_place *place)
{
    return place->levels[place->depth].fd;
}
/* The path of a name in the directory; -ENAMETOOLONG. Returns its length. */
int place_path(const struct layer_place *place, const char *name, char out[TAR_NAME_MAX + 1]) MUST_CHECK;

/* ---- layer_remove.c ---------------------------------------------------------------------------------------- */

/* Removes a name and all below it, following nothing. 0, also if there is nothing, or a negative errno. */
int remove_all(int dir, const char *name) MUST_CHECK;
/* Removes what is below the directory with this path and is not this layer's own. It closes the descriptor. */
int remove_lower(int dir, const char *path, struct layer_own *own) MUST_CHECK;

/* ---- layer_meta.c ------------------------------------------------------------------------------------------ */

struct layer_dropped {
    uint64_t devices, capabilities, xattrs, whiteouts;
};

struct layer_meta {
    const struct layer_options *options;
    struct layer_dropped *dropped;
    bool inherits; /* The directory gives its group or its access list to what is made in it. */
};

/* Owner, mode, attributes and time of a new regular file. */
int meta_file(const struct layer_meta *meta, int fd, const struct tar_member *member, const struct tar_extra *extra,
              struct brig_err *err) MUST_CHECK;
/* The same for anything else by its name; the time is not set for a directory. */
int meta_name(const struct layer_meta *meta, int dir, const char *name, const struct tar_member *member,
              const struct tar_extra *extra, struct brig_err *err) MUST_CHECK;

#endif
