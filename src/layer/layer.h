/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h: brig-layer, the only program of brig that reads an image's archives and walks its trees. It runs inside a
 * sandbox like any other program, with root inside and no network, and believes nothing that an archive says.
 *
 *   brig-layer unpack [--offset N] [--size N] [--max-bytes N] [--max-files N] [--max-ratio N] [--diff-id sha256:HEX]
 *                     [--format tar|gzip|zstd] [--one-id] [--reserve] BLOB DIRECTORY
 *       unpacks one layer over the merged view of the layers below it. Without --format the first bytes say how it is
 *       compressed; with it they must agree. --one-id: owners are not set (there is only one id). --reserve: the file
 *       system of DIRECTORY is not filled (base/reserve.h).
 *   brig-layer diff [--latest SECONDS] UPPER
 *   brig-layer diff [--latest SECONDS] [--exclude PATH]... UPPER
 *       writes the raw upper directory of an overlay as a layer: a tar with `.wh.` names. With --latest a member that
 *       is younger has this time instead, so that the same files give the same bytes whenever they were written.
 *       --exclude: what lies at this path, as the root that it runs in has it, is left out with all below it.
 *   brig-layer store [--latest SECONDS] STORE
 *       writes what a sandbox has written, which is all in its store, as a layer over those of its template: the upper
 *       of its root, and its home, /tmp, /var/tmp and /workspace. What each set-up makes anew is left out.
 *   brig-layer pack [--only PATTERN]... TREE
 *       writes a plain tree as a tar. With --only: what COPY --from needs to find the sources PATTERN in the archive as
 *       in TREE: these with all below them, the directories above them, and the symbolic links on the way. A path
 *       without wildcards that is not there is refused; a pattern may match nothing.
 *   brig-layer index [--offset N] [--size N] [--max-files N] [--hash] [--ignore NAME]... BLOB
 *       lists the members of a plain tar, one JSON object per line:
 *       {"name":"manifest.json","type":"file","offset":N,"size":N} and for links "link". `offset` is where the content
 *       begins, counted from the beginning of BLOB, as unpack takes it. A compressed archive is refused: make it plain
 *       first. --hash reads the contents too; each line then also has "mode", "uid", "gid", "mtime" (seconds), for
 *       files "sha256" (64 digits: of the content, and for one with holes of their map and the data) and, if there are
 *       extended attributes, "xattrs" (64 digits). With --hash an archive without members is one with no lines.
 *       --ignore: the first of these files that BLOB has is a .dockerignore; what it leaves out has "ignored":true.
 *   brig-layer plain [--offset N] [--size N] [--max-bytes N] [--max-ratio N] [--format FORMAT] BLOB
 *       writes what BLOB unpacks to.
 *   brig-layer copy [--chown USER[:GROUP]] [--keep-owner] [--chmod MODE] [--exclude PATTERN]... [--archives] [--over]
 *                   [--max-files N] [--max-bytes N] [--max-ratio N] [--mtime SECONDS] [--ignore NAME]... BLOB VIEW DEST
 * SRC... writes the layer that COPY of a Dockerfile makes. BLOB is a plain tar (a build's context, or what `pack
 * --only` wrote of another stage), VIEW the merged view of the layers below, DEST an absolute path in it, with its `/`
 * at the end if it is written with one. Files belong to 0:0, with --keep-owner (for sources in a stage or image: as
 *       BuildKit) to whom they belong in BLOB, with --chown to USER, whose name is looked up in VIEW. Directories that
 *       are made for DEST are 0755 and belong to 0:0 or USER. --chmod: octal. A pattern of --exclude is compared with
 *       the path below the source. --archives (ADD): a source that is a tar (plain, gzip, zstd, xz or bzip2) is
 *       unpacked into DEST instead, with its own owners unless --chown is given. A source without wildcards that is not
 *       there is refused, and so are patterns that all match nothing. With --mtime all that it writes has this time.
 *       --ignore: as index has it; what is left out is not there.
 *       --over (a bind of RUN): DEST becomes the one source itself, and what VIEW has there is hidden.
 *   brig-layer mkdir [--chown USER[:GROUP]] [--mtime SECONDS] VIEW PATH
 *       writes the layer that WORKDIR makes: the directories of PATH that VIEW does not have. Without --mtime they have
 *       the present time.
 *   brig-layer packages VIEW
 *       lists what dpkg of the image has installed, one JSON object per line, in dpkg's own order:
 *       {"name":"dash","version":"0.5.12-2","architecture":"amd64","files":"HEX"}, where `files` is the SHA-256 of
 *       dpkg's list of the package's files and their sums, or "" if there is none. An image without dpkg has no such
 *       lines. Then every path of VIEW, a directory before what is in it: {"path":"/bin/sh","hash":"HEX"}, with 16
 *       digits of a hash of kind, mode, owner, time, size and content or target. Past 65,536 paths it stops.
 *
 * What copy and mkdir write is 1,024 bytes of zeroes if there is nothing to be made: then no layer is needed.
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
#include "base/buf.h"
#include "codec/tar/tar.h"

#define LAYER_BYTES_MAX (UINT64_C(64) << 30)   /* the default of --max-bytes, */
#define LAYER_FILES_MAX UINT64_C(1000000)      /* of --max-files */
#define LAYER_RATIO_MAX UINT64_C(250)          /* and of --max-ratio, */
#define LAYER_RATIO_FREE (UINT64_C(256) << 20) /* which counts from this many bytes on: a file of zeroes is honest */
#define LAYER_DEPTH_MAX 256u                   /* directories above a member */
#define LAYER_NAME_MAX 255u                    /* the bytes of one name, as every file system has it */
#define LAYER_IGNORES 2u                       /* how often --ignore may be given */
#define LAYER_ID_MAX 65535u                    /* a sandbox has these ids */

struct layer_options {
    const char *blob, *directory;
    uint64_t offset, size; /* size: UINT64_MAX without --size */
    uint64_t max_bytes, max_files, max_ratio;
    const char *format;  /* or NULL */
    const char *diff_id; /* 64 hexadecimal digits, or NULL */
    bool one_id, hash, keep_owner, archives, reserve, over;
    const char *dest, *chown; /* chown: or NULL */
    int chmod;                /* or -1 */
    int64_t mtime, latest;    /* or -1 */
    const char *ignore[LAYER_IGNORES];
    size_t n_ignore;
    const char **list; /* --exclude, --only */
    size_t n_list, n_sources;
    const char *const *sources;
};

int layer_unpack(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_index(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_plain(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_diff(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_store(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_pack(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_copy(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_packages(const struct layer_options *options, struct brig_err *err) MUST_CHECK;
int layer_mkdir(const struct layer_options *options, struct brig_err *err) MUST_CHECK;

/*
 * Fails with "NAME: RULE". A name may be as long as a path and hold any byte, so it is escaped, and cut before the rule
 * would be. errnum: the kernel's reason, or 0.
 */
int layer_fail(struct brig_err *err, const char *name, int errnum, const char *format, ...) PRINTF_LIKE(4, 5);
/* What a tar_parse() that failed with `r` means, `at` bytes into the archive. */
int layer_fail_tar(struct brig_err *err, const struct tar_parser *parser, int r, uint64_t at);

struct layer_own;

#define LAYER_HEX 65u
struct SHA256state_st;
void layer_hex(struct SHA256state_st *hash, char out[LAYER_HEX]); /* It ends the hash. */

/* ---- layer_stream.c: the bytes of a blob, unpacked by a thread of its own -------------------------------- */

struct layer_stream;
int stream_open(const struct layer_options *options, struct layer_stream **ret, struct brig_err *err) MUST_CHECK;
/* The next piece, which stays until the next call. Returns 1, or 0 at the end. */
int stream_next(struct layer_stream *stream, const uint8_t **ret, size_t *ret_len, struct brig_err *err) MUST_CHECK;
uint64_t stream_at(const struct layer_stream *stream); /* the bytes of the blob that were used */
const char *stream_format(const struct layer_stream *stream);
void stream_close(struct layer_stream *stream); /* takes NULL */

/* ---- layer_out.c: the archive on the standard output ------------------------------------------------------- */

struct layer_out {
    size_t len;
    const struct layer_options *dates; /* its mtime and latest hold for every member; NULL: they keep their times */
    uint8_t data[256u << 10];
    uint8_t head[TAR_EXTRA_MAX];
};

int out_put(struct layer_out *out, const void *data, size_t len, struct brig_err *err) MUST_CHECK; /* NULL: zeroes */
int out_head(struct layer_out *out, const struct tar_member *member, const struct tar_extra *extra,
             struct brig_err *err) MUST_CHECK;
/* Bytes of a file; `name` is for the message. */
int out_range(struct layer_out *out, int fd, uint64_t at, uint64_t left, const char *name,
              struct brig_err *err) MUST_CHECK;
int out_end(struct layer_out *out, struct brig_err *err) MUST_CHECK;

/* ---- layer_diff.c: the names of a directory, in their order -------------------------------------------------- */

struct names {
    char *text;
    char **list;
    size_t n, len, cap;
};
int names_read(int fd, struct names *names) MUST_CHECK; /* It closes the descriptor. 0 or a negative errno. */
void names_done(struct names *names);

/* ---- layer_only.c: which paths pack --only writes ------------------------------------------------------------ */

/* A path that is wanted is in `own`; one that is wanted with all below it also with a slash behind. */
int only_init(struct layer_own *own, int root, const struct layer_options *options, struct brig_err *err) MUST_CHECK;
/*
 * Cuts a source into directories without wildcards (`fixed`, without backslashes) and a pattern below them, which is ""
 * if the source has no wildcards. `clean` holds the pattern.
 */
int pattern_split(const char *source, char fixed[TAR_NAME_MAX + 1], const char **ret_pattern,
                  char clean[TAR_NAME_MAX + 1], struct brig_err *err) MUST_CHECK;

/* ---- layer_todo.c: the names of a path that are still to be walked ------------------------------------------- */

struct layer_todo {
    char text[2 * (TAR_NAME_MAX + 1)];
    size_t at;
    unsigned links;
};

int todo_init(struct layer_todo *todo, const char *path, size_t len) MUST_CHECK; /* 0 or -ENAMETOOLONG */
/*
 * The length of the next name, or 0 at the end; "." is passed over. The name has no NUL behind it, and todo_link()
 * overwrites it.
 */
size_t todo_next(struct layer_todo *todo, const char **ret_name);
static inline bool todo_is_empty(const struct layer_todo *todo)
{
    return todo->text[todo->at] == '\0';
}
/* Puts the target of a link before what is left. 0, -ENAMETOOLONG, or -ELOOP if there were too many links. */
int todo_link(struct layer_todo *todo, const char *link, size_t len) MUST_CHECK;

/* ---- layer_view.c: a tree of the image ---------------------------------------------------------------------- */

enum view_kind { VIEW_MISSING, VIEW_DIR, VIEW_LINK, VIEW_OTHER };

struct view {
    int root;
    /* It gets each symbolic link on the way, by its path without links, and returns 0 or -errno; or NULL. */
    int (*passed)(void *ctx, const char *path);
    void *ctx;
};

struct view_path {
    enum view_kind kind; /* never VIEW_LINK */
    size_t len;
    char path[TAR_NAME_MAX + 1]; /* without links; the root is "" */
};

/* Where a path leads. Links are followed inside the root, the last one too; names that are missing stay as they are. */
int view_resolve(const struct view *view, const char *path, struct view_path *ret, struct brig_err *err) MUST_CHECK;
/* What is at a path; it follows nothing. */
int view_look(int root, const char *path, enum view_kind *ret, struct brig_err *err) MUST_CHECK;
/* A text file of the image with less than max bytes, with a NUL behind it; *ret stays as it is if there is none. */
int view_read(int root, const char *path, size_t max, char **ret, struct brig_err *err) MUST_CHECK;
/* USER[:GROUP], by number or by the image's passwd and group. A number alone is the group as well. */
int view_owner(int root, const char *text, uint32_t *ret_uid, uint32_t *ret_gid, struct brig_err *err) MUST_CHECK;

/* ---- layer_blob.c: a plain tar as a tree --------------------------------------------------------------------- */

struct blob_node {
    uint32_t parent, name; /* name: where it is in layer_blob.text */
    uint32_t link;         /* The target of a link, as well. */
    uint32_t target;       /* Itself, or for a hard link the file. */
    uint32_t first, count; /* A directory's children in layer_blob.order. */
    uint32_t uid, gid;
    uint16_t name_len, mode;
    uint8_t kind;
    bool has_children;
    uint32_t mtime_ns;
    int64_t mtime;
    uint64_t size, head, content; /* head, content: where its headers and its content begin */
};

struct layer_blob {
    const struct layer_options *options;
    int fd;
    uint64_t at, end, head, members, seed;
    struct blob_node *nodes;
    uint32_t n, cap;
    uint32_t *table, *order;
    size_t slots;
    struct buf text;
    struct tar_parser parser;
    struct tar_extra extra;
    uint8_t data[64u << 10];
};

int blob_open(const struct layer_options *options, struct layer_blob **ret, struct brig_err *err) MUST_CHECK;
void blob_close(struct layer_blob *blob); /* takes NULL */
static inline const char *blob_name(const struct layer_blob *blob, const struct blob_node *node)
{
    return blob->text.data + node->name;
}
/* The node of a name in a directory, or 0. */
uint32_t blob_child(struct layer_blob *blob, uint32_t parent, const char *name, size_t len);
/* Where a path leads; links are followed inside the archive. *ret_found is false if there is nothing. */
int blob_find(struct layer_blob *blob, const char *path, uint32_t *ret, bool *ret_found,
              struct brig_err *err) MUST_CHECK;
int blob_path(const struct layer_blob *blob, uint32_t node, char out[TAR_NAME_MAX + 1]) MUST_CHECK;
/* Reads attributes and holes of a member into blob->extra; blob->parser.member.sparse says whether it has holes. */
int blob_extra(struct layer_blob *blob, uint32_t node, struct brig_err *err) MUST_CHECK;

/* ---- layer_ignore.c: .dockerignore of a context -------------------------------------------------------------- */

struct dockerignore;
/* The patterns of the first file of options->ignore that the archive has; *ret stays as it is if it has none. */
int ignore_read(struct layer_blob *blob, struct dockerignore **ret, struct brig_err *err) MUST_CHECK;
int ignore_of(const struct layer_options *options, struct dockerignore **ret, struct brig_err *err) MUST_CHECK;

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
