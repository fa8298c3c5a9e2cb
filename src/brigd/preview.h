/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview.h: what the files of previews share.
 *
 *   preview_admit.c   who may see a preview, and where a browser is sent
 *   preview_ticket.c  single-use tickets that carry a browser from one host name to another
 *   preview.c         the exchange with the program
 *   preview_head.c    the heads of both sides
 *   preview_cookie.c  the cookies of both sides
 */
#ifndef BRIG_BRIGD_PREVIEW_H
#define BRIG_BRIGD_PREVIEW_H

#include "base/buf.h"
#include "codec/http/http.h"

#define PREVIEW_HEAD_MAX (64u << 10)
#define PREVIEW_COOKIE "brig_token"             /* It is the name in the query too. */
#define PREVIEW_HOST_COOKIE "__Host-brig_token" /* A preview's own host sets it over TLS; no other host can. */
#define PREVIEW_PREFIX_MAX 256u
#define PREVIEW_COOKIES_MAX 64u /* So many cookies of that name are tried for one request. */

struct accounts;
struct request;
struct sbox;

/* How a request came to its preview. */
struct preview_way {
    uint32_t port;
    char id[32];
    char prefix[PREVIEW_PREFIX_MAX]; /* By path: "/v1/sandboxes/{id}/proxy/{port}" as it was sent; by host name: "". */
    bool by_key;                     /* Authorization was meant for brigd. */
    bool tls;
};

/*
 * preview_ticket.c: makes a text for a URL that lets one request into one preview within half a minute. Returns 0,
 * -ENOMEM, or -EAGAIN if too many tickets exist.
 */
#define TICKET_SIZE 38u /* "once-", 32 digits and a NUL. */
struct tickets;
int ticket_issue(struct tickets **tickets, const char *org, const struct preview_way *way, int64_t until,
                 char out[TICKET_SIZE]) MUST_CHECK;
/* Uses a ticket up and returns true, once. *ret_until is as it was issued. */
bool ticket_take(struct tickets *tickets, const struct preview_way *way, const char *text, int64_t *ret_until);
bool ticket_is(const char *text);
void tickets_free(struct tickets *tickets);

/*
 * preview_admit.c: writes the host name at which a browser finds this preview, with the port of `host`. Returns false
 * if there is none that it could reach.
 */
bool preview_host(const char *domain, const char *host, const struct preview_way *way, char *out, size_t size);

/* Begins the exchange with the program. path is as it was sent and begins with "/". */
void preview_start(struct request *rq, const struct preview_way *way, const char *path, size_t path_len);

/*
 * May a field of this head pass to the other side? It must not be about the connection, and must not reach beyond the
 * preview.
 */
bool preview_passes(const struct http_head *head, const char *name);
/* Writes the request as the program sees it: one well-formed head without our keys and tokens. */
int preview_put_request(struct buf *out, const struct http_head *head, const char *path, size_t path_len,
                        const char *query, const struct preview_way *way, const struct accounts *accounts) MUST_CHECK;
/* Writes "?" and the query without our token, or nothing. */
int preview_put_query(struct buf *out, const char *query) MUST_CHECK;

/*
 * Finds the next value of our own cookie in what is left of a Cookie field. Returns false if there is no more. There
 * can be several: over plain HTTP, a page of any host below the same domain can add one for all of them, before the
 * right one.
 */
bool preview_next_token(const char **cookies, const struct preview_way *way, char *out, size_t size);
/* Writes the cookies of this preview as the program knows them; nothing if there are none. */
int preview_put_cookies(struct buf *out, const char *value, const struct preview_way *way) MUST_CHECK;
/*
 * Writes the value of a Set-Cookie field of the program, with a NUL, so that it stays with this preview. Returns
 * -EINVAL if it may not pass.
 */
int preview_put_set_cookie(struct buf *out, const char *value, const struct preview_way *way) MUST_CHECK;

#endif
