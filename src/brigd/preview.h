/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview.h: what the files of previews share.
 *
 *   preview_admit.c   who may, and where a browser is sent
 *   preview_ticket.c  single-use tickets that carry a browser from one host name to another
 *   preview.c         the exchange with the program
 *   preview_head.c    heads of both sides, written anew
 *   preview_cookie.c  cookies of both sides
 */
#ifndef BRIG_BRIGD_PREVIEW_H
#define BRIG_BRIGD_PREVIEW_H

#include "base/buf.h"
#include "codec/http/http.h"

#define PREVIEW_HEAD_MAX (64u << 10)
#define PREVIEW_COOKIE "brig_token"             /* in the query too */
#define PREVIEW_HOST_COOKIE "__Host-brig_token" /* a preview's own host sets it over TLS; no other host can */
#define PREVIEW_PREFIX_MAX 256u
#define PREVIEW_COOKIES_MAX 64u /* of that name are tried for one request */

struct request;
struct sbox;

/* How a request came to its preview. */
struct preview_way {
    uint32_t port;
    char id[32];
    char prefix[PREVIEW_PREFIX_MAX]; /* by path: "/v1/sandboxes/{id}/proxy/{port}" as it was sent; by host name: "" */
    bool by_key;                     /* Authorization was for us */
    bool tls;
};

/*
 * preview_ticket.c: a text for a URL that lets one request into one preview within half a minute; 0, -ENOMEM, -EAGAIN:
 * too many are out.
 */
#define TICKET_SIZE 38u /* "once-", 32 digits, NUL */
struct tickets;
int ticket_issue(struct tickets **tickets, const char *org, const struct preview_way *way, int64_t until,
                 char out[TICKET_SIZE]) MUST_CHECK;
/* Takes it away: true once. *ret_until: as it was issued. */
bool ticket_take(struct tickets *tickets, const struct preview_way *way, const char *text, int64_t *ret_until);
bool ticket_is(const char *text);
void tickets_free(struct tickets *tickets);

/*
 * preview_admit.c: the host name at which a browser finds this preview, with the port of `host`: out; false: there is
 * none that it could reach.
 */
bool preview_host(const char *domain, const char *host, const struct preview_way *way, char *out, size_t size);

/* Begins the exchange with the program. path: as it was sent, beginning with "/". */
void preview_start(struct request *rq, const struct preview_way *way, const char *path, size_t path_len);

/* Whether a field of this head is the other side's business: not one of the connection, and not one that would reach
 * beyond the preview. */
bool preview_passes(const struct http_head *head, const char *name);
/* The request as the program sees it: one well-formed head without our keys and tokens. */
int preview_put_request(struct buf *out, const struct http_head *head, const char *path, size_t path_len,
                        const char *query, const struct preview_way *way) MUST_CHECK;
/* "?" and the query without our token, or nothing. */
int preview_put_query(struct buf *out, const char *query) MUST_CHECK;

/*
 * The next value of our own cookie in what is left of a Cookie field; false: there is no more. Several can be there:
 * over plain HTTP, a page of any host below the same domain can add one for all of them, before the right one.
 */
bool preview_next_token(const char **cookies, const struct preview_way *way, char *out, size_t size);
/* The cookies that are this preview's own, as the program knows them; nothing when there are none. */
int preview_put_cookies(struct buf *out, const char *value, const struct preview_way *way) MUST_CHECK;
/*
 * The value of a Set-Cookie field of the program, with a NUL, so that it stays with this preview; -EINVAL: it may not
 * pass.
 */
int preview_put_set_cookie(struct buf *out, const char *value, const struct preview_way *way) MUST_CHECK;

#endif
