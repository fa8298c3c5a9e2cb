/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h: what the measuring clients share: keep-alive connections to the service's unix socket, requests and
 * answers. Each client is one file that includes this once. Anything that does not go as it should ends the client with
 * a message: no number comes from a failure.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct conn {
    int fd;
    char *buffer; /* [used, have) is not looked at yet */
    size_t size, have, used;
};

static const char *socket_path;
static struct conn main_conn;
static char body[8 << 20];

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

static unsigned long long now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (unsigned long long)ts.tv_sec * 1000000000u + (unsigned long long)ts.tv_nsec;
}

/* ---- one connection ------------------------------------------------------------------------------------ */

static void dial(struct conn *conn, size_t size)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", socket_path);
    conn->size = size;
    conn->buffer = malloc(size);
    conn->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!conn->buffer || conn->fd < 0 || connect(conn->fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        die(socket_path, strerror(errno));
}

static void hang_up(struct conn *conn)
{
    close(conn->fd);
    free(conn->buffer);
    *conn = (struct conn){.fd = -1};
}

static void send_all(struct conn *conn, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(conn->fd, data, len, MSG_NOSIGNAL);
        if (n < 0)
            die("send", strerror(errno));
        data += n;
        len -= (size_t)n;
    }
}

static void fill(struct conn *conn)
{
    if (conn->used > 0) {
        memmove(conn->buffer, conn->buffer + conn->used, conn->have - conn->used);
        conn->have -= conn->used;
        conn->used = 0;
    }
    ssize_t n = recv(conn->fd, conn->buffer + conn->have, conn->size - conn->have - 1, 0);
    if (n <= 0)
        die("receive", n < 0 ? strerror(errno) : "the service has closed the connection");
    conn->have += (size_t)n;
    conn->buffer[conn->have] = '\0';
}

/* Whether a head is there; its status and the length of its body, -1 when it is chunked. */
static int find_head(struct conn *conn, int *status, long long *length)
{
    char *end = conn->have > conn->used ? strstr(conn->buffer + conn->used, "\r\n\r\n") : NULL;

    if (!end)
        return 0;
    *end = '\0';
    *status = atoi(conn->buffer + conn->used + 9);
    char *field = strcasestr(conn->buffer + conn->used, "\r\nContent-Length:");
    *length = field ? atoll(field + 17) : *status == 204 ? 0 : -1;
    conn->used = (size_t)(end + 4 - conn->buffer);
    return 1;
}

static int read_head(struct conn *conn, long long *length)
{
    int status;

    while (!find_head(conn, &status, length))
        fill(conn);
    return status;
}

static void request(struct conn *conn, const char *method, const char *path, const char *content)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", method,
                     path, strlen(content), content);

    send_all(conn, text, (size_t)n);
}

/* A whole answer of known length, into body. */
static int answer(struct conn *conn)
{
    long long length;
    size_t kept = 0;
    int status = read_head(conn, &length);

    if (length < 0 || (size_t)length >= sizeof body)
        die("an answer", "without a length, or too long");
    while (kept < (size_t)length) {
        if (conn->have == conn->used)
            fill(conn);
        size_t left = (size_t)length - kept, part = conn->have - conn->used < left ? conn->have - conn->used : left;
        memcpy(body + kept, conn->buffer + conn->used, part);
        kept += part;
        conn->used += part;
    }
    body[kept] = '\0';
    return status;
}

static void ask(const char *method, const char *path, const char *content, int expected)
{
    request(&main_conn, method, path, content);
    if (answer(&main_conn) != expected)
        die(path, body);
}

/* The answer in the connection's buffer, if it is all there. */
static int whole_answer(struct conn *conn, int *status, const char **content)
{
    size_t at = conn->used;
    long long length;

    if (!find_head(conn, status, &length))
        return 0;
    if (length < 0)
        die("an answer", "without a length");
    if (conn->have - conn->used < (size_t)length) {
        conn->buffer[conn->used - 4] = '\r'; /* the head is looked at again when more has come */
        conn->used = at;
        return 0;
    }
    *content = conn->buffer + conn->used;
    conn->used += (size_t)length;
    return 1;
}
