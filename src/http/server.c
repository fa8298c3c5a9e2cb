/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server itself: its life, the pool of exchanges, and the end of a round, when connections that something was done
 * to are moved on and dead ones are freed. How connections live is told in server_conn.h.
 */
#include <sys/random.h>

#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/server_conn.h"
#include "http/tls.h"

#include <fcntl.h>

/* ---- the pool ----------------------------------------------------------------------------------- */

struct exchange *exchange_take(struct server *server)
{
    struct exchange *x = server->pool;

    if (x) {
        server->pool = x->next_free;
        server->n_pool--;
        return x;
    }
    x = mem_zalloc(sizeof(*x));
    if (!x)
        return NULL;
    x->in = mem_alloc(IN_SIZE);
    if (!x->in) {
        mem_free(x);
        return NULL;
    }
    x->in_cap = IN_SIZE;
    x->target_memory = BUF_INIT(HTTP_TARGET_MEMORY(HTTP_TARGET_MAX));
    x->fields = BUF_INIT(64u << 10);
    x->body = BUF_INIT(SIZE_MAX / 4);
    exchange_reset(x);
    return x;
}

/* Small buffers are kept for the next request, large ones are not. */
static void trim(struct buf *buf)
{
    if (buf->cap > 4096)
        buf_done(buf);
    buf->len = 0;
}

/* Ready for the next head; the input stays. The large head and target are written again when they are read. */
void exchange_reset(struct exchange *x)
{
    trim(&x->target_memory);
    trim(&x->fields);
    trim(&x->body);
    x->head.method = x->head.target = x->head.reason = "";
    x->head.n_fields = 0;
    x->head.keep_alive = x->head.expect_continue = x->head.upgrade = false;
    x->head.body = HTTP_BODY_NONE;
    x->head.content_length = 0;
    x->head.minor = 1;
    x->target.n_parts = x->target.n_query = 0;
    x->target.rest_raw = x->target.query_raw = "";
    x->in_at = x->scanned = 0;
    x->starved = false;
    x->id[0] = x->owner[0] = x->kept[0] = '\0';
    x->data = NULL;
    x->gone = NULL;
    x->input = INPUT_NONE;
    x->reading = READING_NOTHING;
    x->body_end = true;
    x->too_large = false;
    x->read_done = NULL;
    x->ws = NULL;
    x->shut_due = x->shut = false;
    x->begun = x->over = x->aborted = x->no_body = x->chunked = x->until_close = x->want_drained = x->wrong_length =
        false;
    x->cors_origin = NULL;
    x->status = 0;
    x->length_left = x->bytes = 0;
    x->drained = NULL;
    x->started_ns = 0;
}

static void exchange_free(struct exchange *x)
{
    buf_done(&x->target_memory);
    buf_done(&x->fields);
    buf_done(&x->body);
    mem_free(x->in);
    mem_free(x);
}

void exchange_release(struct server *server, struct exchange *x)
{
    websocket_free(x->ws);
    exchange_reset(x);
    x->conn = NULL;
    x->in_len = 0;
    if (server->n_pool >= POOL_MAX || x->in_cap != IN_SIZE || server->destroying)
        return exchange_free(x);
    x->next_free = server->pool;
    server->pool = x;
    server->n_pool++;
}

/* Taken rather than shared: a callback that runs the loop inside itself keeps its bytes. NULL: out of memory. */
char *scratch_take(struct server *server)
{
    char *scratch = take_ptr(&server->scratch);

    return scratch ? scratch : mem_alloc(SCRATCH_SIZE);
}

void scratch_give(struct server *server, char *scratch)
{
    if (server->scratch)
        mem_free(scratch);
    else
        server->scratch = scratch;
}

/* ---- the end of a round ------------------------------------------------------------------------- */

void conn_touch(struct conn *conn)
{
    struct server *server = conn->server;

    if (conn->touched || (conn->running && conn->state != CONN_DEAD))
        return; /* conn_run() looks again when the callback is over */
    conn->touched = true;
    conn->touched_next = server->touched;
    server->touched = conn;
    /* The timer fires at the end of this round. If there is no memory for it, the next connection tries again. */
    if (!server->turn_set)
        server->turn_set = loop_timer_set(server->loop, &server->turn_timer, 0, NULL) == 0;
}

static void turn(struct server *server)
{
    struct conn *list = take_ptr(&server->touched);

    server_clock(server);
    while (list) {
        struct conn *conn = list;
        list = conn->touched_next;
        conn->touched = false;
        if (conn->state != CONN_DEAD)
            conn_run(conn);
        else if (conn->running)
            conn_touch(conn);
        else
            mem_free(conn);
    }
}

static void on_turn(struct loop_timer *timer)
{
    struct server *server = timer->ctx;

    server->turn_set = false;
    turn(server);
}

/* ---- life --------------------------------------------------------------------------------------- */

int server_create(struct loop *loop, const struct server_options *options, struct server **ret, struct brig_err *err)
{
    struct server *server = mem_zalloc(sizeof(*server));

    if (!server)
        return err_nomem(err);
    server->loop = loop;
    server->options = *options;
    server->turn_timer = (struct loop_timer){.fn = on_turn, .ctx = server};
    server->accept_timer = (struct loop_timer){.fn = accept_again, .ctx = server};
    server->head = BUF_INIT(256u << 10);
    server->text = BUF_INIT(SIZE_MAX / 4);
    server_clock(server);
    share_init(server);
    wheel_init(server);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->spare_fd < 0) {
        int r = err_host(err, "open /dev/null");
        server_destroy(server);
        return r;
    }
    *ret = server;
    return 0;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    server->destroying = true;
    listener_close_all(server);
    while (server->conns)
        conn_fail(server->conns);
    turn(server);
    loop_timer_clear(server->loop, &server->turn_timer);
    loop_timer_clear(server->loop, &server->accept_timer);
    loop_timer_clear(server->loop, &server->wheel.timer);
    while (server->pool) {
        struct exchange *x = server->pool;
        server->pool = x->next_free;
        exchange_free(x);
    }
    tls_destroy(server->tls);
    mem_free(server->scratch);
    buf_done(&server->head);
    buf_done(&server->text);
    base_close_fd(&server->spare_fd);
    mem_free(server);
}

void server_configure(struct server *server, const struct http_options *http)
{
    server->options.http = *http;
}

int server_set_tls(struct server *server, const struct tls_pem *pem, struct brig_err *err)
{
    struct tls *tls;
    int r = tls_create(pem, &tls, err);

    if (r < 0)
        return r;
    tls_destroy(server->tls);
    server->tls = tls;
    return 0;
}

void server_drain(struct server *server)
{
    if (server->draining)
        return;
    server->draining = true;
    listener_close_all(server);
    for (struct conn *conn = server->conns; conn; conn = conn->next)
        conn_touch(conn);
}

void exchange_set_owner(struct exchange *x, const char *owner)
{
    (void)!str_copy(x->owner, sizeof(x->owner), owner); /* too long: nobody's, so that server_cut() finds no other's */
}

void server_cut(struct server *server, const char *owner, const struct exchange *but)
{
    for (struct conn *conn = server->conns; conn; conn = conn->next) {
        if (conn->state != CONN_BUSY || conn->x == but || strcmp(conn->x->owner, owner) != 0)
            continue;
        conn->broken = true; /* conn_run() does the rest: nobody is called from here */
        conn_touch(conn);
    }
}

size_t server_connections(const struct server *server)
{
    return server->n_conns;
}

size_t server_exchanges(const struct server *server)
{
    return server->n_exchanges;
}

/* ---- what exchanges are asked ------------------------------------------------------------------- */

void exchange_close_after(struct exchange *x)
{
    x->head.keep_alive = false;
}

void exchange_keep(struct exchange *x, const char *text)
{
    if (strlen(text) < sizeof x->kept)
        memcpy(x->kept, text, strlen(text) + 1);
}

const char *exchange_kept(const struct exchange *x)
{
    return x->kept;
}

const struct http_head *exchange_head(const struct exchange *x)
{
    return &x->head;
}

const struct http_target *exchange_target(const struct exchange *x)
{
    return &x->target;
}

static int random_id(struct server *server, char out[ID_SANDBOX_SIZE])
{
    if (server->random_left < ID_BYTES) {
        ssize_t n = RETRY(getrandom(server->random, sizeof(server->random), 0));
        if (n < (ssize_t)ID_BYTES)
            return -EIO;
        server->random_left = (size_t)n;
    }
    server->random_left -= ID_BYTES;
    id_format_sandbox(out, server->random + server->random_left);
    return 0;
}

const char *exchange_id(const struct exchange *x)
{
    struct exchange *self = (struct exchange *)(uintptr_t)x; /* exchanges are never const objects */

    if (x->id[0] == '\0') {
        memcpy(self->id, "req-", 5);
        if (random_id(x->conn->server, self->id + 4) < 0)
            memcpy(self->id + 4, "aaaaaaaaaaaaaaaaaaaaaaaaaa", 27); /* no request fails for want of a name */
    }
    return x->id;
}

bool exchange_is_unix(const struct exchange *x)
{
    return x->conn->is_unix;
}

bool exchange_is_tls(const struct exchange *x)
{
    return x->conn->tls != NULL;
}

uid_t exchange_peer_uid(const struct exchange *x)
{
    return x->conn->is_unix ? x->conn->uid : (uid_t)-1;
}

const char *exchange_peer(const struct exchange *x)
{
    return x->conn->peer_name;
}

void exchange_set_data(struct exchange *x, void *data)
{
    x->data = data;
}

void *exchange_data(const struct exchange *x)
{
    return x->data;
}

void exchange_on_gone(struct exchange *x, void (*gone)(void *ctx, struct exchange *x), void *ctx)
{
    x->gone = gone;
    x->gone_ctx = ctx;
}
