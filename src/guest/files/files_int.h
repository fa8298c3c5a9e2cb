/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_int.h: what the parts of the file worker share. They use no C library, allocate only with mmap, and return
 * negative errnos.
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
    CALL_IDLE, /* waits for frames, or for its poll_fd */
    CALL_WORK, /* step() runs as soon as there is room for output */
    CALL_SEND, /* step() runs when there is credit too */
};

struct call;
struct call_ops {
    size_t state_size; /* The size of its own zeroed memory. */
    int (*open)(struct call *call, struct svc_reader *in);
    int (*step)(struct call *call);
    int (*data)(struct call *call, const uint8_t *data, size_t len);
    int (*eof)(struct call *call);
    int (*ready)(struct call *call); /* poll_fd is readable, or the deadline has come. */
    /* Called after every open(), also a failed one. It undoes what is not finished. */
    void (*close)(struct call *call);
};

struct call {
    uint32_t request; /* 0 means a free place. */
    enum call_wait wait;
    uint64_t deadline_ns;       /* or 0 */
    const struct call_ops *ops; /* NULL while the open is still arriving. */
    void *state;
    size_t state_size;
    uint32_t open_len; /* The length of what has arrived in state so far. */
    int poll_fd;       /* or -1 */
    uint32_t credit;   /* The bytes that may still be sent on stream 1. */
    uint32_t owed;     /* The bytes of stream 0 that were consumed and not yet given back. */
    uint16_t type;
    bool ended_input;
};

extern const struct call_ops files_stat_ops, files_list_ops, files_read_ops, files_write_ops, files_mkdir_ops,
    files_move_ops, files_remove_ops, files_watch_ops, files_tar_get_ops, files_tar_put_ops;

extern struct svc_cursor files_reply; /* The payload of the REPLY to come. It is empty when a handler begins. */

/* ---- files_wire.c: frames --------------------------------------------------------------------------- */

#define WIRE_RESERVE 32768u /* The room that a handler may count on for its small frames. */
#define WIRE_PIECE (FRAME_HEADER + FRAME_PAYLOAD_MAX)

void wire_init(int fd);
/* Sends what it can without waiting. */
void wire_flush(void);
bool wire_pending(void);
size_t wire_room(void);
/* Reads what has come, without waiting. It ends the worker when the other side has gone. */
void wire_receive(void);
/*
 * Returns the next whole frame, valid until wire_receive(), or false if there is none. A malformed frame ends the
 * worker.
 */
bool wire_next(struct frame *ret);

/* A frame is made in place: write to the cursor, then close it. */
struct svc_cursor wire_open(void);
void wire_close(const struct call *call, enum svc_type type, const struct svc_cursor *cursor);
void wire_send(const struct call *call, enum svc_type type, uint32_t stream, const void *payload, size_t len);

/* SVC_DATA is made in place on stream 1. Returns where to write, and how much credit and room allow (0: not now). */
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
void *files_map(size_t size); /* Returns zeroed memory or NULL. */
void files_unmap(void *at, size_t size);
uint64_t files_now_ns(void); /* CLOCK_MONOTONIC */

/* ---- files_path.c: from names to descriptors --------------------------------------------------------- */

/* A name in a directory that was found. Everything is done to it relative to the descriptor, and follows no link. */
struct place {
    int dir; /* O_PATH */
    bool must_dir;
    char name[NAME_MAX + 1]; /* "." for the directory itself. */
};

#define PATH_FOLLOW (1u << 0)  /* A symbolic link in the last place is followed. */
#define PATH_PARENTS (1u << 1) /* Missing directories are made. */

/* `what` is path->path, or another path with the same base and flags. */
int path_find(const struct svc_path *path, struct svc_bytes what, unsigned how, struct place *ret) MUST_CHECK;
/* Returns PATH_FOLLOW unless the caller said SVC_PATH_NOFOLLOW. */
unsigned path_follow(const struct svc_path *path);
void place_done(struct place *place);
/*
 * Looks at the very thing in this place. Returns -ENOTDIR if it was written with a slash at the end and is no
 * directory.
 */
int place_stat(const struct place *place, struct stat *ret) MUST_CHECK;
/* Opens for reading, but never a FIFO or a device. *st describes what was opened, or what was not. */
int place_open(const struct place *place, int flags, struct stat *st) MUST_CHECK;

/* Opens a directory below `root` by a relative path, through real directories only (-ELOOP). */
int path_plain_dir(int root, const char *path, bool make) MUST_CHECK;

/* ---- files_walk.c: trees ------------------------------------------------------------------------------ */

#define WALK_SLOTS 16 /* The directories that are open at once. */
#define WALK_BUFFER 8192

/* What getdents64() writes. */
struct raw_dirent {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

struct walk_slot {
    int fd;
    uint32_t at, len, last; /* last is where the entry begins that was returned last. */
    uint8_t entries[WALK_BUFFER] __attribute__((aligned(8)));
};

struct walk_level {
    uint64_t dev, ino;
    int64_t next; /* Where to go on if another directory needed the slot. */
    uint32_t path_len;
};

struct walk {
    struct walk_level *levels;
    size_t levels_size;
    uint32_t depth;
    bool no_path; /* For trees that are deeper than any path. */
    uint32_t path_len;
    /* The path of the entry that was returned last, relative to the root, with a NUL. */
    char path[SVC_PATH_MAX + NAME_MAX + 2];
    struct walk_slot slots[WALK_SLOTS];
};

enum walk_event { WALK_END, WALK_ENTRY, WALK_LEAVE };
struct walk_entry {
    int dir;          /* The directory of the entry; do not close it. */
    const char *name; /* NULL if it is not known any more (LEAVE in a very deep tree). */
    uint32_t name_len;
    uint8_t type; /* DT_* */
};

/* It owns `fd`, a readable directory, also on failure. The walk must be zeroed. */
int walk_init(struct walk *walk, int fd) MUST_CHECK;
void walk_done(struct walk *walk);
/* Returns WALK_ENTRY, WALK_LEAVE (a directory was finished; the entry is its own), WALK_END or a negative errno. */
int walk_next(struct walk *walk, struct walk_entry *ret) MUST_CHECK;
/* Goes into the entry that was returned last. -ENAMETOOLONG: it is too deep for a path. */
int walk_enter(struct walk *walk) MUST_CHECK;
/* Reads the current directory again from its beginning. */
int walk_again(struct walk *walk) MUST_CHECK;

/* ---- files_meta.c: entries ---------------------------------------------------------------------------- */

struct svc_entry entry_of(const struct stat *st);
/* Writes the entry of a place, with the target of a symbolic link. */
void entry_put_place(struct svc_cursor *out, const struct place *place, const struct stat *st);
/* Reads a path and the end of the message. Returns 0 or -EINVAL. */
int entry_get_path(struct svc_reader *in, struct svc_path *ret) MUST_CHECK;

/* ---- files_write.c ------------------------------------------------------------------------------------ */

#define TEMP_NAME_SIZE 16 /* ".brig-XXXXXXXX" */
/* Makes a new file with a name that nobody has, and opens it for writing. */
int temp_create(int dir, uint32_t mode, char name[TEMP_NAME_SIZE]) MUST_CHECK;
void temp_name(char name[TEMP_NAME_SIZE]);
/* Writes all bytes or returns a negative errno. offset -1 means the file's own position. */
int write_all(int fd, const uint8_t *data, size_t len, int64_t offset) MUST_CHECK;
/*
 * Writes into a new file at its own position; blocks of zeroes become holes (base/holes.h). end_holes() gives the file
 * its length.
 */
int write_holes(int fd, const uint8_t *data, size_t len) MUST_CHECK;
int end_holes(int fd) MUST_CHECK;

#endif
