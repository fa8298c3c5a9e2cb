/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_priv.h: what the files of dependency sets share.
 *
 *     set_build   one that waits
 *       -> wish      what it asks for
 *       -> key
 *       -> entry     a directory, perhaps still to be made
 *       -> build     the making
 *       -> own_run   a sandbox
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
#include "sandbox/own_run.h"

/* In root, while it is built: the instructions for the installer, and what it reports. */
#define SET_WORK ".brig"
#define SET_WHEELS "/opt/brig-wheels"     /* [tools] find_links, inside */
#define SET_BYTES_MAX (UINT64_C(4) << 30) /* The largest dependency set. */
#define SET_TIMEOUT_MS UINT64_C(300000)
#define SET_NAME_MAX (SHA256_HEX + 40u) /* <key>.tmp-<random> */
#define LOCK_MAX (32u << 20)
#define LOCKS_KEEP 12u /* A lock outlives its dependency set by so many times sets_age. */

/* ---- words ---- */
struct words {
    char **items;
    size_t n;
};
int words_add(struct words *words, const char *text) MUST_CHECK; /* -ENOMEM */
void words_done(struct words *words);

/* What is asked for, checked and copied. */
struct wish {
    char org[64], venv[64], python[256];
    char template_name[128], template_id[TEMPLATE_LAYER_NAME]; /* "": host */
    struct words pip, npm;                                     /* Sorted. pip also has the lines of requirements.txt. */
    struct words said;                                         /* pip as it was given, for messages. */
    size_t n_config;
    bool pinned; /* Every one has a version and a hash, and there is no npm. */
};
int wish_init(struct wish *wish, const struct set_want *want, bool allow_urls, struct brig_err *err) MUST_CHECK;
void wish_done(struct wish *wish);
/* Writes Letta's sentence with these requirements. */
int wish_sentence(const struct wish *wish, bool npm, struct buf *out) MUST_CHECK;

/* What the template has, as it was found inside; "" if it has none. */
struct versions {
    char python[48], platform[48], node[48];
};
/* Parses the lines of the script that asks. */
int versions_parse(const char *text, struct versions *ret) MUST_CHECK;

/* Where packages come from: the host's own settings, without names and passwords. */
struct set_index {
    /* As PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST and npm_config_registry take them; "" for none. */
    char pip[1024], extra[2048], trusted[1024], npm[1024];
};
/* conf and npmrc are the texts of /etc/pip.conf and /etc/npmrc, or NULL. The environment wins. */
void set_index_read(struct set_index *index, const char *conf, const char *npmrc);

int wish_key(const struct wish *wish, const struct versions *versions, const struct set_index *index,
             const struct config *config, char key[SHA256_HEX]) MUST_CHECK;

/* ---- locks (sets_lock.c) ---- */
struct lock_parts {  /* What the installers wrote; texts, or NULL. */
    const char *pip; /* [{name, version, sha256}] */
    const char *package, *package_lock;
};
int lock_make(const struct wish *wish, const struct versions *versions, const struct lock_parts *parts, struct buf *out,
              struct brig_err *err) MUST_CHECK;
/*
 * Reads a lock into a requirements.txt with hashes ("" if there is no pip part, or one without hashes), package.json
 * and package-lock.json ("" each).
 */
int lock_read(const char *text, size_t len, struct buf *pip, struct buf *package, struct buf *package_lock,
              struct brig_err *err) MUST_CHECK;
int lock_hash(const char *text, size_t len, char hex[SHA256_HEX]) MUST_CHECK;

/* ---- the directory (sets_collect.c); all of these may run on a thread ---- */
uint64_t tree_size(int dir_fd, const char *name);         /* The bytes on disk; 0 if it does not exist. */
int tree_remove(int dir_fd, const char *name) MUST_CHECK; /* Returns 0 also if it does not exist. */
/* Reads a regular file through no link, without waiting. */
int tree_read(int dir_fd, const char *name, size_t max, struct buf *out) MUST_CHECK;
int tree_read_fd(int fd, size_t max, struct buf *out) MUST_CHECK; /* -EINVAL: it is no regular file */
/* Writes it whole or not at all. */
int tree_write(int dir_fd, const char *name, const char *text, size_t len) MUST_CHECK;

/* ---- a script in a sandbox of its own (sets_run.c) ---- */
struct sets;
struct sets_run_spec {
    const char *org;
    const char *spec;        /* JSON of the sandbox */
    const struct wish *wish; /* Its template must be what it was. */
    const char *script;      /* For /bin/sh, on stdin: a literal. */
    struct words args, env;
    uint64_t timeout_ms;
};
/* done is called after the sandbox is gone, exactly once, never from within. */
int sets_run(struct sets *sets, const struct sets_run_spec *spec,
             void (*done)(void *ctx, const struct own_run_result *result), void *ctx, struct own_run **ret,
             struct brig_err *err) MUST_CHECK;
const char *sets_run_output(const struct own_run_result *result); /* Its stdout if that is UTF-8, else "". */

/* ---- sets ---- */
struct build;
struct entry {
    struct set set; /* What callers hold; it points into the rest. */
    char key[SHA256_HEX], name[SET_NAME_MAX], lock[SHA256_HEX], org[64], venv[sizeof SET_PATH + 65], path[4096];
    bool ready, stale; /* stale: a rebuild has replaced it; it is removed with its last user. */
    unsigned users;
    uint64_t bytes;
    int64_t used_at; /* wall, seconds */
    struct build *build;
    struct entry *next, *prev;
};

struct set_build { /* One request that waits. */
    struct sets *sets;
    struct wish wish;
    struct caller caller;
    bool rebuild;
    char key[SHA256_HEX];
    struct entry *entry; /* The entry whose build it waits for; NULL if it waits for the versions. */
    uint64_t turn;       /* the last one in which it was looked at */
    const char *text;    /* during done() */
    void (*done)(void *ctx, const struct set *set, const struct brig_err *err);
    void *ctx;
    struct set_build *next, *prev;
};

/*
 * The versions in one template, as they were found for one organisation. Each organisation asks for itself, one
 * question at a time: its templates and its quota are no reason for another one to wait or to fail.
 */
#define KNOWN_MAX 64u
struct known {
    struct sets *sets;
    char org[64], python[256], template_name[128], template_id[TEMPLATE_LAYER_NAME]; /* as in the wish; org "": free */
    struct versions versions;
    bool found;
    int64_t python_time; /* the ctime of the interpreter, in ns */
    uint64_t used;       /* the turn in which it was looked at */
    struct own_run *asking;
};

struct sets {
    struct sets_options options;
    char *cache_path;
    const struct config *config;
    struct workers *workers;
    struct set_index index;
    struct known known[KNOWN_MAX];
    uint64_t turns;
    struct entry *entries;
    struct set_build *waiting, *last_waiting;
    struct build *builds;
    /* The directories that builds and removals of an earlier life left and that are not removed yet. */
    struct words remains;
    struct loop_timer on_turn, on_collect;
    bool closing;
};

struct entry *entry_ready(struct sets *sets, const char *key); /* The entry that can be used, or NULL. */
struct entry *entry_add(struct sets *sets, const char *key);
void entry_remove(struct sets *sets, struct entry *entry);
/*
 * A rebuild or the collector replaces it: its directory gets another name and is removed with its last user (now, if
 * there is none).
 */
int entry_retire(struct sets *sets, struct entry *entry) MUST_CHECK;
int entry_fill(struct sets *sets, struct entry *entry, const char *name, const char *lock,
               size_t lock_len) MUST_CHECK; /* Makes it ready, from the text of its lock. */
/* Answers everybody who waited for the versions, or for an entry's build. text is for set_build_error(). */
void sets_tell(struct sets *sets, struct entry *entry, const struct brig_err *err, const char *text);

void sets_put_template(struct json *json, const struct wish *wish); /* members of the spec of a sandbox */
/* On success it owns the wish of first. */
int build_start(struct sets *sets, struct entry *entry, struct set_build *first, const struct versions *versions,
                struct brig_err *err) MUST_CHECK;
void build_forget(struct build *build); /* Called at the end of everything. */
struct build *build_next(struct build *build);

void sets_collect(struct sets *sets);                /* Collects by size and age. */
void sets_drop(struct sets *sets, const char *name); /* Removes a directory, on a thread. */
/* At the start: finds what is there, and what remains. */
int sets_scan(struct sets *sets, struct brig_err *err) MUST_CHECK;
/* Removes what remains of an earlier life, once no install sandbox of it lives. Returns false if not yet. */
bool sets_sweep(struct sets *sets);

#endif
