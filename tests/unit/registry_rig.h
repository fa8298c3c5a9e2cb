/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry_rig.h: an HTTP server in the test process that answers as a script says, lies included; and a client of
 * registries on a loop. Each connection has a thread. A connection that begins with TLS is closed, as a server without
 * TLS does. What was asked is written down.
 */
#ifndef BRIG_TESTS_REGISTRY_RIG_H
#define BRIG_TESTS_REGISTRY_RIG_H

#include "unit.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "template/distribution_priv.h"

#define RIG_SEEN 256u
#define RIG_CONNS 256u
#define RIG_HEAD 8192u

struct rig_request {
    int fd;
    char head[RIG_HEAD]; /* with the request line; lines end with \r\n */
    char method[16], path[2048];
    char body[4096];
};

struct rig_server {
    int fd;
    unsigned port;
    char host[64]; /* "127.0.0.1:PORT" */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool stop;
    void (*handle)(struct rig_server *server, struct rig_request *rq);
    void *ctx;
    atomic_int value; /* the script's own */
    unsigned n_seen;
    char *seen[RIG_SEEN]; /* heads */
    unsigned n_conns;
    int conns[RIG_CONNS];
    pthread_t threads[RIG_CONNS];
};

static inline UNUSED bool rig_write(int fd, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static inline UNUSED void rig_text(struct rig_request *rq, const char *text)
{
    (void)rig_write(rq->fd, text, strlen(text));
}

/* fields is "" or lines that each end with \r\n. */
static inline UNUSED void rig_answer(struct rig_request *rq, unsigned status, const char *fields, const void *body,
                                     size_t len)
{
    char head[4096];

    if (str_format(head, sizeof head, "HTTP/1.1 %u Status\r\nContent-Length: %zu\r\n%s\r\n", status, len, fields) > 0 &&
        rig_write(rq->fd, head, strlen(head)))
        (void)rig_write(rq->fd, body, len);
}

static inline UNUSED void rig_cut(struct rig_request *rq)
{
    shutdown(rq->fd, SHUT_RDWR);
}

/* The value of a field of the request, or "". */
static inline UNUSED const char *rig_field(const char *head, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);

    out[0] = '\0';
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, len) == 0 && line[2 + len] == ':') {
            const char *value = line + 3 + len + strspn(line + 3 + len, " ");
            size_t n = strcspn(value, "\r");
            if (n < size) {
                memcpy(out, value, n);
                out[n] = '\0';
            }
        }
    return out;
}

static inline bool rig_read_head(struct rig_request *rq)
{
    size_t at = 0;

    memset(rq->head, 0, sizeof rq->head);
    while (at + 1 < sizeof rq->head) {
        ssize_t n = recv(rq->fd, rq->head + at, 1, 0);
        if (n <= 0 || rq->head[0] == 0x16)
            return false;
        at += (size_t)n;
        if (at >= 4 && memcmp(rq->head + at - 4, "\r\n\r\n", 4) == 0)
            break;
    }
    char length[32];
    rig_field(rq->head, "Content-Length", length, sizeof length);
    size_t body = length[0] ? strtoul(length, NULL, 10) : 0;
    memset(rq->body, 0, sizeof rq->body);
    if (body >= sizeof rq->body || (body > 0 && recv(rq->fd, rq->body, body, MSG_WAITALL) != (ssize_t)body))
        return false;
    size_t method = strcspn(rq->head, " "), path = strcspn(rq->head + method + 1, " \r");
    if (method >= sizeof rq->method || path >= sizeof rq->path)
        return false;
    memset(rq->method, 0, sizeof rq->method);
    memset(rq->path, 0, sizeof rq->path);
    memcpy(rq->method, rq->head, method);
    memcpy(rq->path, rq->head + method + 1, path);
    return true;
}

struct rig_conn {
    struct rig_server *server;
    int fd;
};

static inline void *rig_conn_main(void *arg)
{
    struct rig_conn conn = *(struct rig_conn *)arg;
    struct rig_request *rq = calloc(1, sizeof *rq);

    free(arg);
    rq->fd = conn.fd;
    while (rig_read_head(rq)) {
        pthread_mutex_lock(&conn.server->lock);
        if (conn.server->n_seen < RIG_SEEN)
            conn.server->seen[conn.server->n_seen++] = strdup(rq->head);
        pthread_cond_broadcast(&conn.server->changed);
        pthread_mutex_unlock(&conn.server->lock);
        conn.server->handle(conn.server, rq);
    }
    shutdown(conn.fd, SHUT_RDWR);
    free(rq);
    return NULL;
}

static inline void *rig_server_main(void *arg)
{
    struct rig_server *server = arg;

    for (;;) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        struct rig_conn *conn = malloc(sizeof *conn);
        *conn = (struct rig_conn){server, fd};
        pthread_mutex_lock(&server->lock);
        if (server->n_conns == RIG_CONNS || atomic_load(&server->stop) ||
            pthread_create(&server->threads[server->n_conns], NULL, rig_conn_main, conn) != 0) {
            close(fd);
            free(conn);
        } else {
            server->conns[server->n_conns++] = fd;
        }
        pthread_mutex_unlock(&server->lock);
    }
}

static inline UNUSED struct rig_server *rig_serve(void (*handle)(struct rig_server *server, struct rig_request *rq),
                                                  void *ctx)
{
    struct rig_server *server = calloc(1, sizeof *server);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;

    assert_non_null(server);
    server->handle = handle;
    server->ctx = ctx;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(server->fd, 64), 0);
    assert_int_equal(getsockname(server->fd, (struct sockaddr *)&addr, &len), 0);
    server->port = ntohs(addr.sin_port);
    assert_true(str_format(server->host, sizeof server->host, "127.0.0.1:%u", server->port) > 0);
    assert_int_equal(pthread_create(&server->thread, NULL, rig_server_main, server), 0);
    return server;
}

static inline UNUSED void rig_stop(struct rig_server *server)
{
    atomic_store(&server->stop, true);
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
    pthread_mutex_lock(&server->lock);
    for (unsigned i = 0; i < server->n_conns; i++)
        shutdown(server->conns[i], SHUT_RDWR);
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    for (unsigned i = 0; i < server->n_conns; i++) {
        pthread_join(server->threads[i], NULL);
        close(server->conns[i]);
    }
    for (unsigned i = 0; i < server->n_seen; i++)
        free(server->seen[i]);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    free(server);
}

/* How many requests had this text in their head? */
static inline UNUSED unsigned rig_count(struct rig_server *server, const char *text)
{
    unsigned n = 0;

    pthread_mutex_lock(&server->lock);
    for (unsigned i = 0; i < server->n_seen; i++)
        n += strstr(server->seen[i], text) != NULL;
    pthread_mutex_unlock(&server->lock);
    return n;
}

/* ---- the client ------------------------------------------------------------------------------------------- */

struct rig {
    struct loop *loop;
    struct dist *dist;
    struct dist_options options;
    char dir[64];
    int dir_fd;
    const char *owner; /* of what is asked for next */
    bool public_only;
};

static inline UNUSED void rig_init(struct rig *rig)
{
    struct brig_err err = {0};

    *rig = (struct rig){0};
    (void)!str_copy(rig->dir, sizeof rig->dir, "/tmp/brig-registry-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    rig->dir_fd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(rig->dir_fd >= 0);
    assert_int_equal(loop_create(&rig->loop, &err), 0);
    rig->options = (struct dist_options){.loop = rig->loop,
                                         .blobs_fd = rig->dir_fd,
                                         .proxy = "",
                                         .attempts = 3,
                                         .rest_ms = 1,
                                         .connect_s = 60,
                                         .stall_s = 120};
}

static inline UNUSED void rig_open(struct rig *rig)
{
    struct brig_err err = {0};

    if (dist_create(&rig->options, &rig->dist, &err) < 0)
        fail_msg("%s", err.message);
}

static inline UNUSED void rig_done(struct rig *rig)
{
    int fd = openat(rig->dir_fd, "sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    dist_destroy(rig->dist);
    loop_destroy(rig->loop);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        (void)unlinkat(fd, entry->d_name, 0);
    if (dir)
        closedir(dir);
    (void)unlinkat(rig->dir_fd, "sha256", AT_REMOVEDIR);
    close(rig->dir_fd);
    assert_int_equal(rmdir(rig->dir), 0);
}

/* Runs the loop until *flag is set. The time is a guard against a hang, nothing that a test measures. */
static inline UNUSED void rig_until(struct rig *rig, const bool *flag)
{
    uint64_t until = clock_mono_ns() + 300 * NS_PER_SEC;

    while (!*flag) {
        struct brig_err err = {0};
        assert_true(clock_mono_ns() < until);
        assert_int_equal(loop_run_once(rig->loop, 1000, &err), 0);
    }
}

struct rig_result {
    bool done, inside; /* inside: the call has not returned yet */
    unsigned times;
    struct dist_image *image;
    struct brig_err err;
    uint64_t at, of;
    struct dist_call *call;
};

static inline UNUSED void rig_on_image(void *ctx, struct dist_image *image, const struct brig_err *err)
{
    struct rig_result *result = ctx;

    assert_false(result->inside);
    result->done = true;
    result->times++;
    result->image = image;
    result->err = err ? *err : (struct brig_err){0};
}

static inline UNUSED void rig_on_done(void *ctx, const struct brig_err *err)
{
    rig_on_image(ctx, NULL, err);
}

static inline UNUSED void rig_on_progress(void *ctx, uint64_t at, uint64_t of)
{
    struct rig_result *result = ctx;

    assert_false(result->inside);
    result->at = at;
    result->of = of;
}

static inline UNUSED bool rig_login(void *ctx, const char *host UNUSED, struct dist_login *ret)
{
    const char *const *words = ctx;

    *ret = (struct dist_login){.user = words[0], .password = words[1], .identity_token = words[2]};
    return true;
}

/* words: user, password, identity token; or NULL for nobody. */
static inline UNUSED void rig_pull_start(struct rig *rig, const char *name, const char *const *words,
                                         struct rig_result *result)
{
    struct dist_ask ask = {.owner = rig->owner,
                           .reach_private = !rig->public_only,
                           .login = words ? rig_login : NULL,
                           .login_ctx = (void *)words};
    struct platform platform;
    struct image_ref ref;
    struct brig_err err = {0};

    *result = (struct rig_result){.inside = true};
    assert_int_equal(image_ref_parse(name, &ref, &err), 0);
    assert_int_equal(platform_parse("linux/amd64", &platform, &err), 0);
    ask.ref = &ref;
    assert_int_equal(dist_manifest(rig->dist, &ask, &platform, rig_on_image, result, &result->call, &err), 0);
    result->inside = false;
}

static inline UNUSED void rig_pull(struct rig *rig, const char *name, const char *const *words,
                                   struct rig_result *result)
{
    rig_pull_start(rig, name, words, result);
    rig_until(rig, &result->done);
    assert_int_equal(result->times, 1);
}

static inline UNUSED void rig_blob_start(struct rig *rig, const char *name, const char *digest, uint64_t size,
                                         struct rig_result *result)
{
    struct dist_ask ask = {.owner = rig->owner, .reach_private = !rig->public_only};
    struct image_ref ref;
    struct brig_err err = {0};

    *result = (struct rig_result){.inside = true};
    assert_int_equal(image_ref_parse(name, &ref, &err), 0);
    ask.ref = &ref;
    if (dist_blob(rig->dist, &ask, digest, size, rig_on_progress, rig_on_done, result, &result->call, &err) < 0)
        fail_msg("%s", err.message);
    result->inside = false;
}

static inline UNUSED void rig_blob(struct rig *rig, const char *name, const char *digest, uint64_t size,
                                   struct rig_result *result)
{
    rig_blob_start(rig, name, digest, size, result);
    rig_until(rig, &result->done);
    assert_int_equal(result->times, 1);
}

static inline UNUSED void rig_digest(const void *data, size_t len, char out[DIGEST_TEXT])
{
    uint8_t sum[SHA256_SIZE];

    assert_int_equal(crypto_sha256(data, len, sum), 0);
    memcpy(out, "sha256:", 7);
    crypto_hex(sum, sizeof sum, out + 7);
}

#endif
