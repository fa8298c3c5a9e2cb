/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_client.c: the measuring client of the service: one keep-alive connection to the unix socket, each sample from the
 * first byte sent to the last byte received, nanoseconds on stdout, one line per sample.
 *
 *   service_client SOCKET cycle N        create + run true + delete
 *   service_client SOCKET exec N         run true in one live sandbox
 *   service_client SOCKET list N         GET /v1/sandboxes?limit=100
 *   service_client SOCKET make N         N sandboxes, which stay; their ids on stdout
 *   service_client SOCKET output BYTES   a program writes so many bytes; MB/s
 *   service_client SOCKET upload BYTES FILE, download BYTES FILE    MB/s
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int sock;
static char buffer[1 << 20];
static size_t have, used;

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "service_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned long long now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (unsigned long long)ts.tv_sec * 1000000000u + (unsigned long long)ts.tv_nsec;
}

static void dial(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *)&addr, sizeof addr) < 0)
        die(path);
}

static void send_all(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(sock, data, len, MSG_NOSIGNAL);
        if (n < 0)
            die("send");
        data += n;
        len -= (size_t)n;
    }
}

static void fill(void)
{
    if (used > 0) {
        memmove(buffer, buffer + used, have - used);
        have -= used;
        used = 0;
    }
    ssize_t n = recv(sock, buffer + have, sizeof buffer - have - 1, 0);
    if (n <= 0)
        die("receive");
    have += (size_t)n;
    buffer[have] = '\0';
}

/* The head: returns its status; *length: the body's, or -1 when chunked. */
static int read_head(long long *length)
{
    char *end;

    while (!(end = have > used ? strstr(buffer + used, "\r\n\r\n") : NULL))
        fill();
    *end = '\0';
    int status = atoi(buffer + used + 9);
    char *field = strcasestr(buffer + used, "\r\nContent-Length:");
    *length = field ? atoll(field + 17) : status == 204 ? 0 : -1;
    used = (size_t)(end + 4 - buffer);
    return status;
}

/* A whole answer of known length; its body is copied into out. */
static int ask(const char *method, const char *path, const char *body, char *out, size_t size)
{
    char head[1024];
    long long length;
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", method, path, body ? strlen(body) : 0, body ? body : "");

    send_all(head, (size_t)n);
    int status = read_head(&length);
    if (length < 0)
        die("an answer without a length");
    size_t kept = 0;
    while (length > 0) {
        if (have == used)
            fill();
        size_t part = have - used < (size_t)length ? have - used : (size_t)length;
        if (kept + part < size) {
            memcpy(out + kept, buffer + used, part);
            kept += part;
        }
        used += part;
        length -= (long long)part;
    }
    if (size)
        out[kept] = '\0';
    return status;
}

static void create(char id[32])
{
    char answer[65536];

    if (ask("POST", "/v1/sandboxes", "{}", answer, sizeof answer) != 201) {
        fprintf(stderr, "%s\n", answer);
        exit(1);
    }
    char *at = strstr(answer, "\"id\":\"");
    if (!at)
        die("no id");
    memcpy(id, at + 6, 26);
    id[26] = '\0';
}

static void run_true(const char *id)
{
    char path[128], answer[65536];

    snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
    if (ask("POST", path, "{\"argv\":[\"/bin/true\"]}", answer, sizeof answer) != 200 || !strstr(answer, "\"exit_code\":0")) {
        fprintf(stderr, "%s\n", answer);
        exit(1);
    }
}

static void delete(const char *id)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
    if (ask("DELETE", path, NULL, NULL, 0) != 204)
        die("delete");
}

static void measure(const char *mode, long n)
{
    char id[32] = "";

    if (strcmp(mode, "exec") == 0)
        create(id);
    for (long i = 0; i < n; i++) {
        unsigned long long begin = now();
        if (strcmp(mode, "cycle") == 0) {
            create(id);
            run_true(id);
            delete(id);
        } else if (strcmp(mode, "exec") == 0) {
            run_true(id);
        } else if (strcmp(mode, "list") == 0) {
            static char answer[8 << 20];
            if (ask("GET", "/v1/sandboxes?limit=100", NULL, answer, sizeof answer) != 200)
                die("list");
        } else {
            create(id);
            puts(id);
            continue;
        }
        printf("%llu\n", now() - begin);
    }
    if (strcmp(mode, "exec") == 0)
        delete(id);
}

/* Reads a chunked or counted body to its end; how many bytes of it came. */
static unsigned long long drain(long long length)
{
    unsigned long long total = 0;

    if (length >= 0) {
        while (total < (unsigned long long)length) {
            if (have == used)
                fill();
            total += have - used;
            used = have;
        }
        return total;
    }
    for (;;) {
        char *end;
        while (!(end = have > used ? memchr(buffer + used, '\n', have - used) : NULL))
            fill();
        unsigned long long size = strtoull(buffer + used, NULL, 16);
        used = (size_t)(end + 1 - buffer);
        unsigned long long left = size + 2;
        while (left > 0) {
            if (have == used)
                fill();
            size_t part = have - used < left ? have - used : (size_t)left;
            used += part;
            left -= part;
        }
        total += size;
        if (size == 0)
            return total;
    }
}

static void stream(const char *mode, unsigned long long bytes, const char *file)
{
    char id[32], path[512], body[512], answer[65536];
    long long length;
    unsigned long long begin, got;

    if (strcmp(mode, "output") == 0) {
        create(id);
        snprintf(path, sizeof path, "/v1/sandboxes/%s/processes", id);
        snprintf(body, sizeof body, "{\"argv\":[\"/usr/bin/head\",\"-c\",\"%llu\",\"/dev/zero\"],\"ring\":1048576}", bytes);
        begin = now();
        if (ask("POST", path, body, answer, sizeof answer) != 201)
            die(answer);
        snprintf(path, sizeof path, "GET /v1/sandboxes/%s/processes/1/output?stream=stdout HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
    } else if (strcmp(mode, "download") == 0) {
        snprintf(id, sizeof id, "%.26s", file);
        begin = now();
        snprintf(path, sizeof path, "GET /v1/sandboxes/%s/files?path=big HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
    } else {
        static char piece[1 << 20];
        snprintf(id, sizeof id, "%.26s", file);
        begin = now();
        snprintf(path, sizeof path, "PUT /v1/sandboxes/%s/files?path=big HTTP/1.1\r\nHost: localhost\r\nContent-Length: %llu\r\n\r\n", id, bytes);
        send_all(path, strlen(path));
        for (unsigned long long left = bytes; left > 0; left -= left < sizeof piece ? left : sizeof piece)
            send_all(piece, left < sizeof piece ? left : sizeof piece);
        if (read_head(&length) != 200)
            die("upload");
        drain(length);
        printf("%.1f\n", (double)bytes / 1e6 / ((double)(now() - begin) / 1e9));
        return;
    }
    send_all(path, strlen(path));
    if (read_head(&length) != 200)
        die("stream");
    got = drain(length);
    if (got != bytes) {
        fprintf(stderr, "service_client: %llu bytes instead of %llu\n", got, bytes);
        exit(1);
    }
    printf("%.1f\n", (double)bytes / 1e6 / ((double)(now() - begin) / 1e9));
    if (strcmp(mode, "output") == 0)
        delete(id);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    dial(argv[1]);
    if (strcmp(argv[2], "output") == 0 || strcmp(argv[2], "upload") == 0 || strcmp(argv[2], "download") == 0)
        stream(argv[2], strtoull(argv[3], NULL, 10), argc > 4 ? argv[4] : "");
    else
        measure(argv[2], atol(argv[3]));
    return 0;
}
