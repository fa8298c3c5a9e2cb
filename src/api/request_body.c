/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_body.c: the body of a request in its arena: the connection's own memory, or a copy of what lies in its input.
 * A run takes the arena over; otherwise it is wiped with the request, or before where there was a secret in it.
 */
#include "api/api.h"
#include "base/arena.h"
#include "base/mem.h"

/* A body, its values, and what a handler makes of them: the body again as a tool's document, its files in base64 ... */
#define ARENA_PER_BODY 8u
#define ARENA_MORE (64u << 20)

struct arena *api_arena(size_t body_max)
{
    return arena_create(ARENA_PER_BODY * body_max + ARENA_MORE);
}

int request_take_body(struct request *rq, struct exchange *x, char *data, size_t len)
{
    const size_t max = (size_t)config_get(rq->api->config)->max_json;
    char *own = exchange_take_body(x, data);

    rq->arena = api_arena(max);
    if (!rq->arena) {
        if (own)
            crypto_wipe(own, len);
        mem_free(own);
        return -ENOMEM;
    }
    rq->body_len = len;
    rq->body = own ? own : arena_copy(rq->arena, data, len);
    if (!own && (rq->route->flags & ROUTE_SECRET))
        crypto_wipe(data, len);
    if (!rq->body || (own && arena_adopt(rq->arena, own, len) < 0))
        return -ENOMEM;
    return 0;
}

void request_wipe_body(struct request *rq)
{
    arena_destroy(take_ptr(&rq->arena));
    rq->json = NULL;
    rq->body = NULL;
    rq->body_len = 0;
}
