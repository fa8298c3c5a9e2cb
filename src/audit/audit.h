/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.h: the hash-chained log of decisions and actions.
 *
 * A line is one JSON object: seq, time (RFC 3339, ns), actor, org, action, object, outcome, detail, request_id, prev
 * (the SHA-256 of the previous line's bytes, without newline; 64 zeroes for the first). Lines are only made from
 * struct audit_event, so that injection is impossible: every field is a JSON string or number written by codec/json,
 * cut at AUDIT_FIELD_MAX bytes, and there is no field for content (output, file bytes, environment values, keys).
 *
 * Files: audit.jsonl (current), audit-<first seq, 12 digits>.jsonl (rotated by size; the chain goes on), heads.jsonl
 * (one signed head per line: seq, hash, time, key id, signature over "brig-audit-head-v1\n<seq>\n<hash>\n<time>\n").
 * The first head is signed with the first line of a process. It is also given to on_head, for the store. One
 * thread writes; lines are synced within 50 ms, and events marked `sync` before their callback.
 */
#ifndef BRIG_AUDIT_AUDIT_H
#define BRIG_AUDIT_AUDIT_H

#include <brig.h>

#include "crypto/crypto.h"
#include "loop/workers.h"

#define AUDIT_FIELD_MAX 1024u
#define AUDIT_QUEUE_MAX 65536u /* lines waiting; past it events are counted as dropped, and a line says how many */

struct audit;

struct audit_event {
    /* "sandbox.create", "process.start", "file.write", "terminal.open", "port.open", "key.create", "config.reload",
     * "limit.kill", "denied", "suspicious", "audit.dropped", "serve.start", ... */
    const char *action;
    const char *actor;      /* key id, "socket:<uid>", "system" */
    const char *org;        /* or "" */
    const char *object;     /* id, path, name; or "" */
    const char *outcome;    /* "ok", "denied", "failed", a cause */
    const char *detail;     /* one line for people; or "" */
    const char *request_id; /* or "" */
    /* Which rule refused, one of a fixed number that no caller makes up; NULL: there is only one (repeat.c) */
    const char *kind;
    bool any_object; /* whoever is refused chooses the object: it does not make a refusal another one */
    bool sync;       /* on disk before the callback (keys, config, denials) */
    /* whoever makes these waits while audit_busy(): they are not counted as flooding, and none is dropped */
    bool paced;
};

struct audit_options {
    int dir_fd;                        /* of the log; taken over (dup) */
    struct crypto_signer *signer;      /* its key is not in that directory; outlives the audit */
    uint64_t rotate_bytes;             /* 0: 64 MiB */
    uint64_t keep_bytes;               /* rotated files past this many bytes are removed, oldest first; 0: 1 GiB */
    int64_t keep_seconds;              /* and older than this; 0: for ever */
    unsigned head_lines, head_seconds; /* a signed head every so many; 0: 1000, 60 */
    unsigned repeat_seconds;           /* equal refusals in this time are counted in one line; 0: 60 */
    unsigned per_second;               /* lines per second before flooding is dropped (never `sync` ones); 0: 5000 */
    /* the last head noted elsewhere (the store); a log that ends before it gets a line that says so; 0: none */
    uint64_t known_seq;
    const char *known_hash; /* of that line: the same where it is another one; NULL: not known */
    /* On the loop's thread: a new head. */
    void (*on_head)(void *ctx, uint64_t seq, const char hash[SHA256_HEX], int64_t time_ns);
    void *ctx;
};

/* Reads the last line of what is there and goes on from it; a torn last line (after a crash) is cut off, and a line
 * says so. */
int audit_open(struct loop *loop, struct workers *workers, const struct audit_options *options, struct audit **ret,
               struct brig_err *err) MUST_CHECK;
void audit_close(struct audit *audit); /* flushes, signs a last head; takes NULL */

/*
 * Adds an event, from any thread. Returns its sequence number (> 0), or 0 when it was dropped (flood, full queue, no
 * memory; counted) or is a refusal like one that is there (counted as well, repeat.c); then done is not called. done
 * (may be NULL) is called on the loop once the line is on disk, when event->sync, else never. With an error (-ENOSPC,
 * -EIO) the line is not on disk yet: it is tried again, but whoever must not go on without it must not.
 */
uint64_t audit_add(struct audit *audit, const struct audit_event *event, void (*done)(void *ctx, int error), void *ctx);
uint64_t audit_dropped(const struct audit *audit);
bool audit_busy(const struct audit *audit); /* half of its queue is in use */
/* Waits until every event added so far is in the log, at most a second: a disk that is full must not hold a reader.
 * Never on the loop's thread. */
void audit_settle(struct audit *audit);
int audit_reopen(struct audit *audit, struct brig_err *err) MUST_CHECK; /* after somebody moved the file away */

/* ---- offline ------------------------------------------------------------------------------------- */

struct audit_report {
    uint64_t first_seq, last_seq, lines, heads, files;
    char last_hash[SHA256_HEX];
    bool ok;
    char problem[512]; /* "" when ok; else the first thing that is wrong, with file and line */
    char note[512];    /* what could not be checked, or is to be known: "" or sentences */
};
struct audit_verify_options {
    const uint8_t *public_key; /* NULL: signatures are not checked, and the report says so */
    uint64_t head_seq;         /* with head_hash: the log must contain this line with this hash (noted elsewhere) */
    const char *head_hash;
    /* Lines up to this one may tell that the log was cut; a later one that does is a problem */
    uint64_t known_cut;
};
/*
 * Finds any line that was removed, changed or moved, and a tail that was cut (by the signed heads and the head noted
 * elsewhere). A log whose oldest files were removed by retention is whole if a line says so and, with a key, a signed
 * head covers that line. It works beside a daemon that writes. It returns 0 also if the log is not ok, a negative errno
 * if the log cannot be read, and -ENOENT if there is none.
 */
int audit_verify(int dir_fd, const struct audit_verify_options *options, struct audit_report *ret,
                 struct brig_err *err) MUST_CHECK;

#endif
