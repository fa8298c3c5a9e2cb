/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_int.h: what the parts of the file worker share. No C library, no allocation but mmap, negative errnos.
 *
 * A call is a small state machine. Its handlers run to an end quickly (at most some 256 KiB of I/O, or a few hundred
 * directory entries) and return CALL_ON to go on, CALL_DONE to end with REPLY 0 and what they have put into
 * files_reply, or a negative errno to end with that.
 */
#ifndef BRIG_GUEST_FILES_FILES_INT_H
#define BRIG_GUEST_FILES_FILES_INT_H

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/stat.h>

#include "codec/wire/guest_svc.h"
#include "guest/init/guest.h"
#include "jail/rawcall.h"

#define CALL_ON 0
#define CALL_DONE 1

enum call_wait {
    CALL_IDLE, /* for frames, or its poll_fd */
    CALL_WORK, /* step() as soon as there is room for output */
    CALL_SEND, /* step() when there is credit too */
};

struct call;
struct call_ops {
    size_t state_size; /* zeroed memory of its own */
    int (*open)(struct call *call, struct svc_reader *in);
    int (*step)(struct call *call);
    int (*data)(struct call *call, const uint8_t *data, size_t len);
    int (*eof)(struct call *call);
    int (*ready)(struct call *call);  /* poll_fd is readable, or the deadline has come */
    void (*close)(struct call *call); /* after every open(), also one that failed; undoes what is not finished */
};

struct call {
    uint32_t request; /* 0: a free place */
    enum call_wait wait;
    uint64_t deadline_ns;       /* or 0 */
    const struct call_ops *ops; /* NULL while the open is still arriving */
    void *state;
    size_t state_size;
    uint32_t open_len; /* of what has arrived so far, in state */
    int poll_fd;       /* or -1 */
    uint32_t credit;   /* bytes that may still be sent on stream 1 */
    uint32_t owed;     /* bytes of stream 0 that were consumed and not yet given back */
    uint16_t type;
    bool ended_input;
};

extern const struct call_ops files_stat_ops, files_list_ops, files_read_ops, files_write_ops, files_mkdir_ops,
    files_move_ops, files_remove_ops, files_watch_ops, files_tar_get_ops, files_tar_put_ops;

extern struct svc_cursor files_reply; /* the payload of the REPLY to come; empty when a handler begins */

/* ---- files_wire.c: frames --------------------------------------------------------------------------- */

#define WIRE_RESERVE 32768u /* room that a handler may count on for its small frames */
#define WIRE_PIECE (FRAME_HEADER + FRAME_PAYLOAD_MAX)

void wire_init(int fd);
/* Sends what it can without waiting. */
void wire_flush(void);
bool wire_pending(void);
size_t wire_room(void);
/* Reads what has come, without waiting. Ends the worker when the other side has gone. */
void wire_receive(void);
/* The next whole frame, valid until wire_receive(); false when there is none. Ends the worker when it is malformed. */
bool wire_next(struct frame *ret);

/* A frame made in place: write to the cursor, then close it. */
struct svc_cursor wire_open(void);
void wire_close(const struct call *call, enum svc_type type, const struct svc_cursor *cursor);
void wire_send(const struct call *call, enum svc_type type, uint32_t stream, const void *payload, size_t len);

/* SVC_DATA made in place on stream 1: where to write, and how much credit and room allow (0: not now). */
uint8_t *wire_data_open(const struct call *call, size_t *ret_max);
void wire_data_close(struct call *call, size_t len);

/* ---- small things ---------------------------------------------------------------------------------- */

static inline void close_fd(int *fd)
{
    if (*fd >= 0)
        raw_call1(SYS_close, *fd);
    *fd = -1;
}

static inline int move_fd(int *fd)
{
    int out = *fd;

    *fd = -1;
    return out;
}

static inline bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* Undoes what the open calls have not finished, then exits. */
__attribute__((noreturn)) void files_end(int status);
void *files_map(size_t size); /* zeroed, or NULL */
void files_unmap(void *at, size_t size);
uint64_t files_now_ns(void); /* CLOCK_MONOTONIC */

/* ---- files_path.c: from names to descriptors --------------------------------------------------------- */

/* A name in a directory that was found: what is done to it is done relative to the descriptor, following nothing. */
struct place {
    int dir; /* O_PATH */
    bool must_dir;
    char name[NAME_MAX + 1]; /* "." for the directory itself */
};

#define PATH_FOLLOW (1u << 0)  /* a symlink in the last place is followed */
#define PATH_PARENTS (1u << 1) /* directories that are missing are made */

/* `what` is path->path or another that obeys the same base and flags. */
int path_find(const struct svc_path *path, struct svc_bytes what, unsigned how, struct place *ret) MUST_CHECK;
/* PATH_FOLLOW unless the caller said SVC_PATH_NOFOLLOW. */
unsigned path_follow(const struct svc_path *path);
void place_done(struct place *place);
/* Of the very thing in this place; -ENOTDIR when it was written with a slash behind and is no directory. */
int place_stat(const struct place *place, struct stat *ret) MUST_CHECK;
/* Opens for reading, without ever opening a FIFO or device; *st is of what was opened, or of what it was not. */
int place_open(const struct place *place, int flags, struct stat *st) MUST_CHECK;

/* A directory below `root` by a relative path, through real directories only (-ELOOP). */
int path_plain_dir(int root, const char *path, bool make) MUST_CHECK;

/* ---- files_walk.c: trees ------------------------------------------------------------------------------ */

#define WALK_SLOTS 16 /* directories open at once */
#define WALK_BUFFER 8192

struct walk_slot {
    int fd;
    uint32_t at, len, last; /* last: where the entry begins that was returned last */
    uint8_t entries[WALK_BUFFER] __attribute__((aligned(8)));
};

struct walk_level {
    uint64_t dev, ino;
    int64_t next; /* where to go on when the slot was needed by somebody else */
    uint32_t path_len;
};

struct walk {
    struct walk_level *levels;
    size_t levels_size;
    uint32_t depth;
    bool no_path; /* for trees deeper than any path */
    uint32_t path_len;
    char path[SVC_PATH_MAX + NAME_MAX + 2]; /* of the entry returned last, relative to the root; NUL-terminated */
    struct walk_slot slots[WALK_SLOTS];
};

enum walk_event { WALK_END, WALK_ENTRY, WALK_LEAVE };
struct walk_entry {
    int dir;          /* where it is; do not close */
    const char *name; /* NULL: not known any more (LEAVE of a very deep tree) */
    uint32_t name_len;
    uint8_t type; /* DT_* */
};

/* Takes `fd`, a readable directory, in any case. The walk must be zeroed. */
int walk_init(struct walk *walk, int fd) MUST_CHECK;
void walk_done(struct walk *walk);
/* WALK_ENTRY, WALK_LEAVE (a directory was finished; the entry is its own), WALK_END, or a negative errno. */
int walk_next(struct walk *walk, struct walk_entry *ret) MUST_CHECK;
/* Into the entry that was returned last. -ENAMETOOLONG: too deep for a path. */
int walk_enter(struct walk *walk) MUST_CHECK;
/* The current directory again, from its beginning. */
int walk_again(struct walk *walk) MUST_CHECK;

/* ---- files_meta.c: entries ---------------------------------------------------------------------------- */

struct svc_entry entry_of(const struct stat *st);
/* The entry of a place, with the target of a symlink. */
void entry_put_place(struct svc_cursor *out, const struct place *place, const struct stat *st);
/* path, then the end of the message: 0, or -EINVAL. */
int entry_get_path(struct svc_reader *in, struct svc_path *ret) MUST_CHECK;

/* ---- files_write.c ------------------------------------------------------------------------------------ */

#define TEMP_NAME_SIZE 16 /* ".brig-XXXXXXXX" */
/* A new file of a name nobody has, for us to write. */
int temp_create(int dir, uint32_t mode, char name[TEMP_NAME_SIZE]) MUST_CHECK;
void temp_name(char name[TEMP_NAME_SIZE]);
/* All of it, or a negative errno. offset -1: at the file's own position. */
int write_all(int fd, const uint8_t *data, size_t len, int64_t offset) MUST_CHECK;
/*
 * The same into a new file, at its own position; blocks of zeroes become holes (base/holes.h). end_holes() gives the
 * file its length.
 */
int write_holes(int fd, const uint8_t *data, size_t len) MUST_CHECK;
int end_holes(int fd) MUST_CHECK;

#endif
