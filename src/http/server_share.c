/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_share.c: how many of the server's connections one organisation may have. A connection is of nobody until a
 * request on it has said whose it is, and of that one until it closes or another's request comes on it. So streams,
 * WebSockets and tunnels count, and clients that only stay connected do too. So do long answers and streams that wait
 * in memory for a client that does not read them, and long bodies from their first bytes until their request is
 * answered, by their bytes. So do messages of WebSockets that are not complete or that wait for their reader.
 */
#include "http/server_conn.h"

#include <string.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "base/share.h"

struct server_share {
    struct server_share *next, **prev;
    size_t n;
    size_t owed;    /* bytes of answers that wait to be read */
    size_t held;    /* bytes of requests' bodies */
    size_t partial; /* bytes of messages */
    char name[64];
};

void share_init(struct server *server)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};

    server->owed_max = ANSWERS_MAX;
    server->held_max = BODIES_MAX;
    server->partial_max = MESSAGES_MAX;
    /* A quarter is kept back: for sandboxes' streams, files and the store. */
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur == RLIM_INFINITY)
        server->descriptors = SIZE_MAX;
    else
        server->descriptors = (size_t)(files.rlim_cur - files.rlim_cur / 4);
}

/* connections at once */
static size_t share_most(const struct server *server)
{
    uint64_t max = server->options.http.max_connections;
    size_t most = max > 0 ? (size_t)max : SIZE_MAX;

    return most < server->descriptors ? most : server->descriptors;
}

size_t share_places(const struct server *server, bool is_unix)
{
    size_t most = share_most(server);

    return is_unix && most < SIZE_MAX - SOCKET_PLACES ? most + SOCKET_PLACES : most;
}

static struct server_share **bucket_of(struct server *server, const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return &server->shares[hash % SHARE_BUCKETS];
}

static bool owe(struct conn *conn, size_t len)
{
    struct server_share *share = conn->share;

    if (!share_allows(share->owed, conn->server->owed_max - conn->server->owed, len))
        return false;
    conn->owed += len;
    share->owed += len;
    conn->server->owed += len;
    return true;
}

bool share_owe(struct conn *conn, size_t len)
{
    return len <= OUT_SMALL || !conn->share || owe(conn, len);
}

bool share_owe_stream(struct conn *conn)
{
    size_t pending = conn_pending(conn);

    return pending <= OUT_SMALL || pending <= conn->owed || !conn->share || owe(conn, pending - conn->owed);
}

void share_paid(struct conn *conn)
{
    if (conn->owed == 0)
        return;
    conn->share->owed -= conn->owed;
    conn->server->owed -= conn->owed;
    conn->owed = 0;
}

bool share_hold(struct conn *conn, size_t size, size_t max)
{
    struct server *server = conn->server;
    struct server_share *share = conn->share;
    /* Whatever one body may have, one organisation can send it. */
    size_t all = max < SIZE_MAX / 4 && server->held_max < 4 * max ? 4 * max : server->held_max;

    if (size <= BODY_SMALL || size <= conn->held || !share)
        return true;
    size_t more = size - conn->held;
    if (server->held > all || !share_allows(share->held, all - server->held, more))
        return false;
    conn->held += more;
    share->held += more;
    server->held += more;
    return true;
}

void share_let_go(struct conn *conn)
{
    if (conn->held == 0)
        return;
    conn->share->held -= conn->held;
    conn->server->held -= conn->held;
    conn->held = 0;
}

bool share_partial(struct conn *conn, size_t size)
{
    struct server *server = conn->server;
    struct server_share *share = conn->share;
    size_t count = size > MESSAGE_SMALL ? size : 0;

    if (!share || count == conn->partial)
        return true;
    if (count > conn->partial &&
        !share_allows(share->partial, server->partial_max - server->partial, count - conn->partial))
        return false;
    share->partial = share->partial - conn->partial + count;
    server->partial = server->partial - conn->partial + count;
    conn->partial = count;
    return true;
}

void share_leave(struct conn *conn)
{
    share_paid(conn);
    share_let_go(conn);
    (void)!share_partial(conn, 0);
    struct server_share *share = take_ptr(&conn->share);

    if (!share || --share->n > 0)
        return;
    *share->prev = share->next;
    if (share->next)
        share->next->prev = share->prev;
    mem_free(share);
}

static struct server_share *find(struct server_share *share, const char *name)
{
    while (share && strcmp(share->name, name) != 0)
        share = share->next;
    return share;
}

bool exchange_join(struct exchange *x, const char *org)
{
    struct conn *conn = x->conn;
    struct server *server = conn->server;

    if (conn->share && strcmp(conn->share->name, org) == 0)
        return true;
    struct server_share **bucket = bucket_of(server, org), *share = find(*bucket, org);
    size_t most = share_most(server), left = most > server->n_conns ? most - server->n_conns : 0;
    if (strlen(org) >= sizeof(share->name) || !share_allows(share ? share->n : 0, left, 1))
        return false;
    if (!share) {
        share = mem_zalloc(sizeof(*share));
        if (!share)
            return false;
        memcpy(share->name, org, strlen(org) + 1);
        share->next = *bucket;
        share->prev = bucket;
        if (share->next)
            share->next->prev = &share->next;
        *bucket = share;
    }
    share->n++;
    share_leave(conn);
    conn->share = share;
    return true;
}
