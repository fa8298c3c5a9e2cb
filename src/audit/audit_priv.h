/* SPDX-License-Identifier: Apache-2.0 */
/* audit_priv.h: what the files of this room share. Nobody else includes it. */
#ifndef BRIG_AUDIT_AUDIT_PRIV_H
#define BRIG_AUDIT_AUDIT_PRIV_H

#include <pthread.h>

#include "audit/audit.h"
#include "base/buf.h"
#include "base/clock.h"

#define AUDIT_CURRENT "audit.jsonl"
#define AUDIT_HEADS "heads.jsonl"
#define AUDIT_LINE_MAX \
    (64u << 10) /* seven fields of AUDIT_FIELD_MAX bytes, six times as long when escaped, and the rest */
#define AUDIT_TIME_DIGITS 9u
#define AUDIT_ZEROES "0000000000000000000000000000000000000000000000000000000000000000"
#define AUDIT_CUT "audit.cut"       /* the log had ended, or gone on, in another way */
#define AUDIT_PRUNED "audit.pruned" /* its object is "<seq>:<hash>" of the last line that was removed */

/* ---- audit_line.c: lines and heads as text ---------------------------------------------------------------- */

/* Where the 64 digits of `prev` are in a line: it is the last member. */
#define AUDIT_PREV_AT(len) ((len)-2 - 64)

struct audit_line {
    uint64_t seq;
    char prev[SHA256_HEX];
    char org[128], action[64], object[128]; /* cut */
};

struct audit_head {
    uint64_t seq;
    char hash[SHA256_HEX], time[CLOCK_TEXT], key[17];
    uint8_t signature[ED25519_SIGNATURE];
};

/* Without newline; prev is 64 zeroes, to be filled in when the line before it is known. */
int audit_line_write(struct buf *out, uint64_t seq, int64_t time_ns, const struct audit_event *event) MUST_CHECK;
/* Strict: exactly the members that are written, in their order. -EBADMSG, -ENOMEM. */
int audit_line_parse(const char *line, size_t len, struct audit_line *ret) MUST_CHECK;
uint64_t audit_line_seq(const char *line, size_t len); /* quick and not strict; 0 when there is none */
int audit_line_hash(const char *line, size_t len, char out[SHA256_HEX]) MUST_CHECK;

void audit_key_id(const uint8_t public_key[ED25519_PUBLIC], char out[17]);
/* seq, hash and time are given */
int audit_head_sign(struct audit_head *head, const struct crypto_signer *signer) MUST_CHECK;
int audit_head_check(const struct audit_head *head, const uint8_t public_key[ED25519_PUBLIC]) MUST_CHECK;
int audit_head_write(struct buf *out, const struct audit_head *head) MUST_CHECK; /* without newline */
int audit_head_parse(const char *line, size_t len, struct audit_head *ret) MUST_CHECK;

/* ---- audit_files.c: the directory ------------------------------------------------------------------------ */

struct audit_file {
    uint64_t first_seq;
    uint64_t bytes;
    int64_t mtime_s;
    char name[40];
};

struct audit_files {
    struct audit_file *files; /* rotated ones, oldest first */
    size_t n;
};

int audit_files_list(int dir_fd, struct audit_files *ret) MUST_CHECK;
void audit_files_done(struct audit_files *files);
#define AUTO_FILES __attribute__((cleanup(audit_files_done)))
int audit_file_name(uint64_t first_seq, char out[40]) MUST_CHECK;

/* Lines of one descriptor; at its end, more may be there later. */
struct audit_reader {
    int fd;     /* owned */
    char *data; /* AUDIT_LINE_MAX + 1 */
    size_t start, len;
    uint64_t number; /* of the line last read, from 1 */
};
int audit_reader_open(struct audit_reader *reader, int dir_fd, const char *name) MUST_CHECK;
/* 1 and a line (without newline, valid until the next call), 0 at the end (what is left there is unfinished),
 * -EMSGSIZE, ... */
int audit_reader_next(struct audit_reader *reader, const char **line, size_t *len) MUST_CHECK;
size_t audit_reader_left(const struct audit_reader *reader); /* bytes of the unfinished line */
void audit_reader_done(struct audit_reader *reader);
/* A reader that is closed by itself, opened or not. */
#define AUTO_READER __attribute__((cleanup(audit_reader_done)))
#define AUDIT_READER ((struct audit_reader){.fd = -1})

/* The last line of a file, its first line's sequence, and where the last whole line ends. A file without lines: seqs
 * are 0. */
struct audit_end {
    uint64_t first_seq, last_seq;
    char last_hash[SHA256_HEX];
    uint64_t good_bytes, torn_bytes;
};
int audit_file_end(int dir_fd, const char *name, struct audit_end *ret) MUST_CHECK;
/* The hash of a line, wherever it is. -ENOENT: it is in none of the files. */
int audit_find_hash(int dir_fd, uint64_t seq, char out[SHA256_HEX]) MUST_CHECK;

/* ---- audit.c and writer.c ------------------------------------------------------------------------------- */

struct audit_entry {
    struct job job; /* first: how the callback gets to the loop without memory */
    struct audit_entry *next;
    void (*done)(void *ctx, int error);
    void *ctx;
    int error;
    bool sync;
    uint64_t seq, prune_before; /* prune_before: once this is signed, files before that line are removed */
    size_t len;
    char line[];
};

struct audit_queue {
    struct audit_entry *first, **end;
    size_t n, bytes;
};

#define REPEAT_SLOTS 256u
#define REPEAT_DETAILS 20u

struct audit_repeat {                                                          /* repeat.c */
    char action[48], actor[128], org[64], kind[128], object[128], outcome[16]; /* cut */
    uint64_t since_ns;                                                         /* when this interval began; 0: free */
    uint64_t counted;                                                          /* events of it that were not written */
    uint64_t details[REPEAT_DETAILS];                                          /* hashes of what was written */
    unsigned n_details;
    bool flooding; /* all of it is counted until an interval was quiet */
    bool mixed;    /* what was counted has other objects than the first */
};

struct audit {
    struct audit_options options;
    struct workers *workers;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, reopened, settled;

    /* under the lock */
    struct audit_queue queue;
    size_t backlog_n, backlog_bytes; /* taken by the writer and not on disk yet */
    uint64_t next_seq, disk_seq;     /* of the next line; of the last on disk */
    uint64_t first_queued_ns;
    bool urgent, stop, reopen;
    int reopen_result;
    uint64_t window_ns, window_n; /* lines of this second */
    uint64_t dropped, dropped_told, dropped_told_ns;
    int64_t last_time_ns; /* of the last line: times rise, whatever the clock does */
    struct audit_repeat repeats[REPEAT_SLOTS];
    uint8_t repeat_key[SHA256_SIZE]; /* random, of this process */

    /* the writer's own */
    int dir_fd, fd, heads_fd;
    struct audit_queue pending; /* taken from the queue, not on disk yet */
    uint64_t size, heads_size;  /* of the files, up to what is good */
    uint64_t first_seq;         /* of the current file; 0 while it is empty */
    uint64_t seq;               /* of the last line on disk */
    char hash[SHA256_HEX];      /* of it */
    uint64_t head_seq, head_ns; /* what was signed last, and when */
    uint64_t retry_ns;          /* after a failure: not before */
    uint64_t pruned_ns;         /* when retention was looked at last */
    bool pruning;               /* a line that says so is on its way */
    bool dirty, heads_dirty;    /* something failed: cut back to the good size before the next attempt */
    struct buf out;
};

/* The caller holds the lock. 0: no memory, or no room. */
uint64_t audit_enqueue(struct audit *audit, const struct audit_event *event, void (*done)(void *, int), void *ctx,
                       uint64_t prune_before);
/* The same for a line that the log writes about itself; it is synced. */
uint64_t audit_note(struct audit *audit, const char *action, const char *object, const char *outcome,
                    const char *detail, uint64_t prune_before);
void *audit_writer(void *arg);

/* ---- repeat.c: all with the lock held -------------------------------------------------------------------- */

/* True if the event was counted and must not be written. */
bool audit_repeat(struct audit *audit, const struct audit_event *event);
/* Writes the lines of intervals that are over, or (all) of every interval. */
void audit_repeat_tell(struct audit *audit, uint64_t now, bool all);
/* When the next interval is over; UINT64_MAX: there is none. */
uint64_t audit_repeat_deadline(const struct audit *audit);

/* ---- retention.c ------------------------------------------------------------------------------------------ */

void audit_retention(struct audit *audit);                  /* asks for a line when something is to go */
void audit_prune(struct audit *audit, uint64_t first_kept); /* that line is on disk and signed */

#endif
