/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution.h: a client of image registries: the pulling half of OCI's distribution protocol. ("registry" is taken:
 * records/registry.h has the tools.)
 *
 * A call is asynchronous: done runs on the loop's thread, exactly once, and never from within the function that made
 * the call. After dist_cancel() it does not run at all. Requests to servers, hashes and files are the work of threads
 * of our own, so the loop never waits for a disk or for a stranger.
 *
 *   manifest  the document that a reference names; if it is an index, the manifest for the platform; and the image's
 *             configuration. Every document is compared with its digest.
 *   blob      one layer, into a file of the directory of blobs. While it comes, the file ends in ".part"; a call that
 *             fails or is cancelled leaves that file, and the next one goes on where it ends. A blob that is there
 *             already is done without a request. Two calls for the same blob share one download.
 *   check     whether a server takes a login.
 *
 * Servers: the mirrors of the reference's host in their order, then the host itself. A failure that may be over soon
 * (no connection, a cut one, 408, 429, 5xx) is tried again with growing rests; Retry-After is obeyed if it is short.
 * Redirects: at most 5, never from https to http, and an Authorization field goes to no other server than the one that
 * it is for. Plain http is spoken only with loopback addresses and the hosts of `insecure`, and there only if they do
 * not speak TLS. A server at a public address cannot send us to a private one, and a reference leads to a private one
 * only if the caller may name it. What a proxy connects to is the proxy's to judge; only addresses as numbers are
 * judged here too.
 *
 * Error codes: BRIG_E_NOT_FOUND (no such image, or no platform), BRIG_E_FORBIDDEN (the registry refuses: log in, or the
 * login is wrong), BRIG_E_INVALID (its answer is no image, or breaks a rule), BRIG_E_TOO_LARGE, BRIG_E_LIMIT (429, or
 * too many calls), BRIG_E_TIMEOUT, BRIG_E_HOST (no connection, other statuses, our own disk), BRIG_E_NOMEM.
 */
#ifndef BRIG_TEMPLATE_DISTRIBUTION_H
#define BRIG_TEMPLATE_DISTRIBUTION_H

#include "loop/loop.h"
#include "template/manifest.h"

struct dist;
struct dist_call;

struct dist_mirror {
    const char *host; /* of references, such as "docker.io" */
    const char *url;  /* "https://mirror.example" or "http://127.0.0.1:5000/prefix"; "/v2/" follows */
};

/* Everything is copied. */
struct dist_options {
    struct loop *loop;
    int blobs_fd; /* the directory of blobs; it is duplicated, and sha256/ is made in it */
    const struct dist_mirror *mirrors;
    size_t n_mirrors;
    const char *const *insecure; /* HOST[:PORT] that may be spoken to without TLS, beside loopback */
    size_t n_insecure;
    const char *proxy;      /* URL; NULL: HTTPS_PROXY and the like of the environment; "": none. Never for loopback. */
    const char *no_proxy;   /* "a.example,.b.example"; NULL: NO_PROXY of the environment */
    const char *ca_file;    /* PEM; NULL or "": the system's */
    unsigned blobs_at_once; /* of one owner that is alone; 0: 4 */
    unsigned attempts;      /* without progress, at one server; 0: 5 */
    unsigned rest_ms;       /* before the second attempt, then twice as long each; 0: 500 */
    bool off;               /* every call is refused: BRIG_E_UNSUPPORTED */
    unsigned connect_s, stall_s; /* 0: 15 and 30. A transfer that is slower than 1 KiB/s for stall_s is cut. */
};
int dist_create(const struct dist_options *options, struct dist **ret, struct brig_err *err) MUST_CHECK;
/* The same from [templates] of the configuration (registries = false: off), with [gate] ca_bundle. */
struct config;
int dist_open(const struct config *config, struct loop *loop, int blobs_fd, struct dist **ret,
              struct brig_err *err) MUST_CHECK;
void dist_destroy(struct dist *dist); /* Cancels every call, and waits for the threads. dist may be NULL. */

/* A login at one host. Members may be NULL. */
struct dist_login {
    const char *user, *password;
    const char *identity_token; /* an OAuth2 refresh token instead of a password */
};

struct dist_ask {
    const struct image_ref *ref; /* copied */
    /*
     * Whose call it is: letters, digits and "-", at most 63; NULL counts as "". Owners have shares of the threads and
     * of the calls (base/share.h), and each has its own blobs.
     */
    const char *owner;
    /*
     * The reference's host may have a private address, or one of this machine's own. Mirrors and the hosts of
     * `insecure` always may, because the host's administrator has named them.
     */
    bool reach_private;
    /*
     * Asked within the call, once for each server: host is a reference's host, or the HOST[:PORT] of a mirror. Fills
     * in *ret (its strings are copied to wiping memory) and returns true, or false for none. NULL: no logins.
     */
    bool (*login)(void *ctx, const char *host, struct dist_login *ret);
    void *login_ctx;
};

/* ---- manifests -------------------------------------------------------------------------------------------- */

struct dist_image {
    char digest[DIGEST_TEXT];          /* of what the reference names: an index or a manifest */
    char manifest_digest[DIGEST_TEXT]; /* of the manifest; its config.digest is the image id */
    struct manifest *manifest;         /* never an index */
    struct image_config *config;
    char *config_text; /* as it came, for exports */
    size_t config_len;
};
void dist_image_free(struct dist_image *image); /* image may be NULL */

/* platform NULL: this machine's. done gets the image, which is then the caller's; or NULL and why. */
int dist_manifest(struct dist *dist, const struct dist_ask *ask, const struct platform *platform,
                  void (*done)(void *ctx, struct dist_image *image, const struct brig_err *err), void *ctx,
                  struct dist_call **ret, struct brig_err *err) MUST_CHECK;

/* ---- blobs ------------------------------------------------------------------------------------------------ */

/*
 * size is the manifest's, and a server that sends another size is refused. progress (or NULL) is called at most ten
 * times a second with the bytes that are there. done gets NULL when the file is complete on the disk, or why not. All
 * calls of one owner share a blob, wherever its bytes came from. An owner never gets the bytes of another one: a
 * registry can put any digest into a manifest, so knowing a digest is no right to what it names.
 */
int dist_blob(struct dist *dist, const struct dist_ask *ask, const char *digest, uint64_t size,
              void (*progress)(void *ctx, uint64_t at, uint64_t of),
              void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct dist_call **ret,
              struct brig_err *err) MUST_CHECK;

/* The file of a blob, below the directory of blobs: sha256/OWNER-HEX, or sha256/HEX if there is no owner. */
#define DIST_FILE 192u
int dist_blob_file(const char *owner, const char *digest, char out[DIST_FILE]) MUST_CHECK;

/* done is not called any more, and the call is gone. A part that has come stays on the disk. */
void dist_cancel(struct dist_call *call);

#endif
