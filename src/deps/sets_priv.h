/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_priv.h: the parts of sets.c among themselves.
 *
 *     set_build (who waits) -> wish (what for) -> key -> entry (a directory, perhaps still to be made) -> build (the
 * making) -> sets_run (a sandbox)
 */
#ifndef BRIG_DEPS_SETS_PRIV_H
#define BRIG_DEPS_SETS_PRIV_H

#include "base/buf.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "deps/sets.h"
#include "loop/workers.h"
#include "records/requirement.h"

#define SET_WORK ".brig"                  /* of root, while it is built: what the installer is told and what it says */
#define SET_WHEELS "/opt/brig-wheels"     /* [tools] find_links, inside */
#define SET_BYTES_MAX (UINT64_C(4) << 30) /* of one set */
#define SET_TIMEOUT_MS UINT64_C(300000)
#define SET_NAME_MAX (SHA256_HEX + 40u) /* <key>.tmp-<random> */
#define LOCK_MAX (32u << 20)
#define LOCKS_KEEP 12u /* a lock outlives its set by so many times sets_age */

/* ---- words ---- */
struct words {
    char **items;
    size_t n;
};
int words_add(struct words *words, const char *text) MUST_CHECK; /* -ENOMEM */
void words_sort(struct words *words);                            /* and takes double ones out */
void words_done(struct words *words);

/* What is asked for, checked and copied. */
struct wish {
    char org[64], venv[64], python[256];
    struct words pip, npm; /* sorted; pip also has the lines of requirements.txt */
    struct words said;     /* pip, as given: for messages */
    size_t n_config;
    bool pinned; /* every one by version and hash, no npm */
};
int wish_init(struct wish *wish, const struct set_want *want, bool allow_urls, struct brig_err *err) MUST_CHECK;
void wish_done(struct wish *wish);
/* Letta's sentence, with these requirements. */
int wish_sentence(const struct wish *wish, bool npm, struct buf *out) MUST_CHECK;

/* What the template has, asked inside. "" where it has none. */
struct versions {
    char python[48], platform[48], node[48];
};
/* Lines of the asking script. */
int versions_parse(const char *text, struct versions *ret) MUST_CHECK;

/* Where packages come from: the host's own settings, without names and passwords. */
struct set_index {
    /* as PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST and npm_config_registry take them; "" none */
    char pip[1024], extra[2048], trusted[1024], npm[1024];
};
/* conf and npmrc: texts of /etc/pip.conf and /etc/npmrc, or NULL. The environment wins. */
void set_index_read(struct set_index *index, const char *conf, const char *npmrc);
/* Takes name and password out of every URL of a list with blanks between. In place. */
void set_index_strip(char *urls);

int wish_key(const struct wish *wish, const struct versions *versions, const struct set_index *index,
             const struct config *config, char key[SHA256_HEX]) MUST_CHECK;

/* ---- locks (sets_lock.c) ---- */
struct lock_parts {  /* what installers wrote; texts, or NULL */
    const char *pip; /* [{name, version, sha256}] */
    const char *package, *package_lock;
};
int lock_make(const struct wish *wish, const struct versions *versions, const struct lock_parts *parts, struct buf *out,
              struct brig_err *err) MUST_CHECK;
/* From a lock: a requirements.txt with hashes ("" when there is no pip part, or one without hashes), package.json and
 * package-lock.json ("" each). */
int lock_read(const char *text, size_t len, struct buf *pip, struct buf *package, struct buf *package_lock,
              struct brig_err *err) MUST_CHECK;
int lock_hash(const char *text, size_t len, char hex[SHA256_HEX]) MUST_CHECK;

/* ---- the directory (sets_collect.c); all of these may run on a thread ---- */
uint64_t tree_size(int dir_fd, const char *name);         /* bytes on disk; 0 when there is none */
int tree_remove(int dir_fd, const char *name) MUST_CHECK; /* 0 also when there is none */
/* a regular file, through no link, never waiting */
int tree_read(int dir_fd, const char *name, size_t max, struct buf *out) MUST_CHECK;
int tree_write(int dir_fd, const char *name, const char *text, size_t len) MUST_CHECK; /* whole, or not at all */

/* ---- a program in a sandbox of its own (sets_run.c) ---- */
struct sets_result {
    const struct brig_err *err; /* it could not be run, or NULL */
    bool good;                  /* exited with 0 */
    const char *cause;          /* "exited", "timeout", ... */
    const char *output;         /* its stdout; ASCII or UTF-8, "" if it was neither */
};
struct sets_run;
struct sets_run_spec {
    const char *org;
    const char *spec;                     /* JSON of the sandbox */
    const char *script;                   /* for /bin/sh, on stdin */
    const char *const *args, *const *env; /* NULL-terminated */
    uint64_t timeout_ms;
};
/* done after the sandbox is gone, exactly once, never from within. */
int sets_run(struct manager *manager, const struct config *config, const struct sets_run_spec *spec,
             void (*done)(void *ctx, const struct sets_result *result), void *ctx, struct sets_run **ret,
             struct brig_err *err) MUST_CHECK;
void sets_run_stop(struct sets_run *run, const char *why); /* it is ended; done follows with an err that says why */
void sets_run_forget(struct sets_run *run);                /* done does not come */

/* ---- sets ---- */
struct build;
struct entry {
    struct set set; /* what callers hold: points into the rest */
    char key[SHA256_HEX], name[SET_NAME_MAX], lock[SHA256_HEX], org[64], venv[sizeof SET_PATH + 65], path[4096];
    bool ready, stale; /* stale: replaced by a rebuild; goes with its last user */
    unsigned users;
    uint64_t bytes;
    int64_t used_at; /* wall, seconds */
    struct build *build;
    struct entry *next;
};

struct set_build { /* one who waits */
    struct sets *sets;
    struct wish wish;
    struct caller caller;
    bool rebuild, keyed;
    char key[SHA256_HEX];
    struct entry *entry; /* whose build it waits for; NULL: for the versions */
    const char *text;    /* during done() */
    void (*done)(void *ctx, const struct set *set, const struct brig_err *err);
    void *ctx;
    struct set_build *next;
};

struct sets {
    struct sets_options options;
    char *cache_path;
    const struct config *config;
    struct workers *workers;
    struct set_index index;
    struct versions versions;
    bool versions_known;
    int64_t versions_of; /* ctime of the interpreter they are of, ns */
    struct sets_run *asking;
    struct entry *entries;
    struct set_build *waiting;
    struct build *builds;
    struct words remains; /* what builds and removals of an earlier life left: directories, not removed yet */
    struct loop_timer on_turn, on_collect;
    bool closing;
};

struct entry *entry_ready(struct sets *sets, const char *key);    /* the one that can be used, or NULL */
struct entry *entry_building(struct sets *sets, const char *key); /* the one that is being made, or NULL */
struct entry *entry_add(struct sets *sets, const char *key);
void entry_remove(struct sets *sets, struct entry *entry);
/* A rebuild or the collector takes its place: its directory gets another name, and goes with its last user (now, if
 * there is none). */
int entry_retire(struct sets *sets, struct entry *entry) MUST_CHECK;
int entry_fill(struct sets *sets, struct entry *entry, const char *name, const char *lock,
               size_t lock_len) MUST_CHECK; /* ready, from its lock's text */
/* For the versions, or an entry's build, that everybody waited for. text: set_build_error(). */
void sets_tell(struct sets *sets, struct entry *entry, const struct brig_err *err, const char *text);
void sets_turn(struct sets *sets); /* those who wait are looked at again, soon */

int build_start(struct sets *sets, struct entry *entry, struct set_build *first,
                struct brig_err *err) MUST_CHECK; /* takes the wish of first, on success */
void build_forget(struct build *build);           /* at the end of everything */
struct build *build_next(struct build *build);

void sets_collect(struct sets *sets);                              /* by size and age */
void sets_drop(struct sets *sets, const char *name);               /* a directory goes, on a thread */
int sets_scan(struct sets *sets, struct brig_err *err) MUST_CHECK; /* at the start: what is there, and what remains */
/* What remains of an earlier life goes, once no install sandbox of it lives. False: not yet. */
bool sets_sweep(struct sets *sets);

#endif
