/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution_priv.h: what the files of the registry client share.
 *
 * A *fetch* is one piece of work on a thread: a manifest, a blob or a check. A *call* is a caller that waits for it; a
 * blob's fetch may have several. An *origin* is where a call may get it from: its reference and the servers in their
 * order, each with its login. Calls and the lists belong to the loop's thread; while a fetch runs, its origin and its
 * result belong to the thread, and `stop` and `at` are for both.
 */
#ifndef BRIG_TEMPLATE_DISTRIBUTION_PRIV_H
#define BRIG_TEMPLATE_DISTRIBUTION_PRIV_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "loop/workers.h"
#include "template/distribution.h"

#define DIST_URL 4096u
#define DIST_HEADER 2048u /* of one field that we read */
#define DIST_SCOPE (IMAGE_REPOSITORY + 32u)
#define DIST_OWNER 64u

struct dist_secret { /* a login, in one piece of wiping memory */
    char *memory;
    size_t size;
    const char *user, *password, *identity_token; /* "" if there is none */
};

struct dist_server {
    char host[IMAGE_HOST]; /* for messages and logins */
    char url[DIST_URL];    /* scheme, host and prefix; "" until https or http is settled */
    char address[IMAGE_HOST];
    bool may_private; /* it may have an address that is not public */
    bool at_private;  /* it has one, so it may send us to such ones */
    bool basic;       /* it asked for Basic */
    struct dist_secret login;
};

struct dist_origin {
    struct image_ref ref;
    size_t n_servers;
    struct dist_server *servers;
};

enum fetch_kind { FETCH_MANIFEST, FETCH_BLOB };

struct dist_fetch {
    struct job job;
    struct dist *dist;
    struct dist_fetch *next, *prev;
    enum fetch_kind kind;
    char owner[DIST_OWNER];
    bool running; /* a thread has it; until then it waits for its owner's share of the threads */
    struct dist_call *calls;
    CURLM *multi;
    atomic_bool stop;
    _Atomic uint64_t at;
    uint64_t shown; /* the loop's last look at it */
    struct dist_origin *origin;
    struct platform platform; /* FETCH_MANIFEST */
    char digest[DIGEST_TEXT]; /* FETCH_BLOB */
    uint64_t size;
    int result;
    struct brig_err err;
    struct dist_image *image;
};

struct dist_token;
struct dist {
    struct loop *loop;
    bool off;
    int blobs_fd; /* sha256/ */
    struct dist_mirror *mirrors;
    size_t n_mirrors;
    char **insecure;
    size_t n_insecure;
    char *proxy_http, *proxy_https, *no_proxy, *ca_file;
    unsigned attempts, rest_ms, connect_s, stall_s;
    struct workers *small, *large; /* documents do not wait behind layers */
    unsigned large_threads;
    struct dist_fetch *fetches;
    struct dist_call *finished; /* calls that are about to be told */
    unsigned n_calls;
    struct loop_timer tick;
    pthread_mutex_t lock; /* of the tokens: all threads share them */
    struct dist_token *tokens;
};

/* ---- dist_options.c, dist_origin.c ------------------------------------------------------------------------ */

int dist_options_copy(struct dist *dist, const struct dist_options *options, struct brig_err *err) MUST_CHECK;
void dist_options_free(struct dist *dist);
int dist_origin_make(const struct dist *dist, const struct dist_ask *ask, const struct image_ref *ref,
                     struct dist_origin **ret, struct brig_err *err) MUST_CHECK;
void dist_origin_free(struct dist_origin *origin); /* origin may be NULL */
/* Would a fetch from b end as one from a did? */
bool dist_origin_equal(const struct dist_origin *a, const struct dist_origin *b);

/* ---- dist_http.c: one request ----------------------------------------------------------------------------- */

struct dist_reply {
    long status;
    char content_type[256];      /* without parameters, lower case; "" if there is none */
    char digest[DIGEST_TEXT];    /* Docker-Content-Digest, or "" */
    char challenge[DIST_HEADER]; /* all WWW-Authenticate fields, with ", " between them */
    bool has_length, has_range, bad;
    uint64_t length, range_from;
    long retry_after_s;
    bool soon;      /* the failure may be over soon */
    bool plain;     /* there was no TLS at the other end */
    char why[1024]; /* the start of the body of an answer that is no success */
};

struct dist_get {
    const char *url, *accept;   /* accept may be NULL */
    const char *authorization;  /* the field's value; sent only to the URL's own server. Or NULL */
    const char *form;           /* POST this instead; or NULL */
    uint64_t from;              /* Range */
    struct dist_server *server; /* on whose behalf */
    bool server_itself;         /* it goes to the server, not to its token server */
    unsigned total_s;           /* 0: as long as it comes */
    struct buf *body;           /* of a success, or */
    int (*sink)(void *ctx, const struct dist_reply *reply, const char *data, size_t len); /* 0, or negative: stop */
    void *ctx;
};

/*
 * Returns 0 when there is an answer, whatever its status. Otherwise err says why, and reply->soon whether to try again.
 * -ECANCELED: the fetch must stop. -EPIPE: the sink said stop.
 */
int dist_request(struct dist_fetch *fetch, const struct dist_get *get, struct dist_reply *reply,
                 struct brig_err *err) MUST_CHECK;
/* May a request go there? https_only: the one before was https. */
int dist_url_check(const struct dist *dist, const char *url, bool https_only, struct brig_err *err) MUST_CHECK;
/* Does NO_PROXY (a list of names, of addresses and ranges, or "*") name this host? */
bool dist_no_proxy(const char *list, const char *host);
/* HOST[:PORT] of a URL that was checked. */
int dist_url_address(const char *url, char *out, size_t size) MUST_CHECK;
bool dist_plain_allowed(const struct dist *dist, const char *address);
bool dist_is_insecure(const struct dist *dist, const char *address); /* the configuration names it */
/* Sleeps, unless the fetch must stop: -ECANCELED. */
int dist_rest(struct dist_fetch *fetch, uint64_t ms) MUST_CHECK;

/* ---- dist_auth.c: requests with a login ------------------------------------------------------------------- */

/* dist_request() with what the server asks for; get->authorization is set here. */
int dist_request_as(struct dist_fetch *fetch, struct dist_get *get, const char *scope, struct dist_reply *reply,
                    struct brig_err *err) MUST_CHECK;
void dist_tokens_free(struct dist *dist);

/* ---- dist_challenge.c ------------------------------------------------------------------------------------- */

struct dist_challenge {
    bool basic, bearer;
    char realm[DIST_URL], service[512], scope[DIST_SCOPE];
};
/* Finds the first Bearer, and whether there is a Basic. Returns 0 or -EINVAL: it breaks RFC 9110, or is too long. */
int dist_challenge_parse(const char *text, struct dist_challenge *ret) MUST_CHECK;

/* ---- dist_servers.c: the servers in order, and tries ------------------------------------------------------ */

/*
 * Runs fn for each server until one succeeds; for each as often as its failures may be over soon (reply->soon) and it
 * comes no further (fetch->at). fn fills in reply and err. An error with `reply->bad` is ours: no other server helps.
 */
int dist_servers_try(struct dist_fetch *fetch,
                     int (*fn)(struct dist_fetch *fetch, struct dist_server *server, void *ctx,
                               struct dist_reply *reply, struct brig_err *err),
                     void *ctx, struct brig_err *err) MUST_CHECK;
/* An answer that is no success becomes an error, and reply->soon says whether to try again. */
int dist_status_error(const struct dist_server *server, const char *what, struct dist_reply *reply,
                      struct brig_err *err) MUST_CHECK;

/* ---- the work of a fetch, on its thread ------------------------------------------------------------------- */

int dist_work_manifest(struct dist_fetch *fetch, struct brig_err *err) MUST_CHECK;
int dist_work_blob(struct dist_fetch *fetch, struct brig_err *err) MUST_CHECK;

#endif
