/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_client.c: the measuring client of the service: one keep-alive connection to the unix socket, each time from
 * the first byte sent to the last byte received. service_client SOCKET reads commands from stdin, so that whoever
 * measures can take turns with something else, and answers each with one line of nanoseconds on stdout:
 *
 *   cycle             create, run /bin/true, delete: "total create run delete"
 *   birth FILE        create by the JSON in FILE, delete: "create delete"
 *   make              a sandbox that stays: "0 ID"
 *   drop ID           deletes it
 *   exec ID           runs /bin/true in it
 *   list              GET /v1/sandboxes?limit=100
 *   output ID BYTES   a program of it writes so many bytes to its stdout; from the go it is given to the last byte here
 *   upload ID BYTES   a file of it is written;   download ID BYTES   and read;   remove ID   and removed
 *   burst N           N connections, opened before, each create, run /bin/true, delete, all at once
 *   spawn N           N times posix_spawn of /bin/true, then all waited for: what burst is compared with
 *
 * Anything that does not go as it should ends the client with a message: no number comes from a failure.
 */
#include <spawn.h>
#include <sys/wait.h>

#include "client.h"

#define ID_LEN 26
#define BURST_MAX 1000

static struct conn side_conn;
extern char **environ;

/* ---- sandboxes ----------------------------------------------------------------------------------------- */

static const char create_body[] = "{}", run_body[] = "{\"argv\":[\"/bin/true\"]}";

static void take_id(const char *text, char id[ID_LEN + 1])
{
    const char *at = strstr(text, "\"id\":\"");

    if (!at || strlen(at) < 6 + ID_LEN)
        die("no id", text);
    memcpy(id, at + 6, ID_LEN);
    id[ID_LEN] = '\0';
}

static void create(char id[ID_LEN + 1])
{
    ask("POST", "/v1/sandboxes", create_body, 201);
    take_id(body, id);
}

static void run_true(const char *id)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
    ask("POST", path, run_body, 200);
    if (!strstr(body, "\"exit_code\":0"))
        die("/bin/true", body);
}

static void drop(const char *id)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
    ask("DELETE", path, "", 204);
}

static void cycle(void)
{
    char id[ID_LEN + 1];
    unsigned long long begin = now();

    create(id);
    unsigned long long created = now();
    run_true(id);
    unsigned long long ran = now();
    drop(id);
    unsigned long long end = now();
    printf("%llu %llu %llu %llu\n", end - begin, created - begin, ran - created, end - ran);
}

static void birth(const char *file)
{
    char id[ID_LEN + 1], text[768];
    FILE *f = fopen(file, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (n == 0)
        die(file, "cannot be read");
    fclose(f);
    text[n] = '\0';
    unsigned long long begin = now();
    ask("POST", "/v1/sandboxes", text, 201);
    unsigned long long created = now();
    take_id(body, id);
    drop(id);
    printf("%llu %llu\n", created - begin, now() - created);
}

/* ---- many at once --------------------------------------------------------------------------------------- */

enum step { CREATING, RUNNING, DELETING, DONE };

struct life {
    struct conn conn;
    enum step step;
    char id[ID_LEN + 1];
};

static void advance(struct life *life)
{
    static const int expected[] = {[CREATING] = 201, [RUNNING] = 200, [DELETING] = 204};
    const char *content;
    char path[128];
    int status;

    fill(&life->conn);
    if (!whole_answer(&life->conn, &status, &content))
        return;
    if (status != expected[life->step])
        die("burst", content);
    if (life->step == CREATING)
        take_id(content, life->id);
    snprintf(path, sizeof path, "/v1/sandboxes/%s%s", life->id, life->step == CREATING ? "/run" : "");
    life->step++;
    if (life->step == RUNNING)
        request(&life->conn, "POST", path, run_body);
    else if (life->step == DELETING)
        request(&life->conn, "DELETE", path, "");
}

static void burst(long n)
{
    static struct life lives[BURST_MAX];
    static struct pollfd polls[BURST_MAX];
    long left = n;

    if (n < 1 || n > BURST_MAX)
        die("burst", "so many are not possible");
    for (long i = 0; i < n; i++) {
        lives[i] = (struct life){0};
        dial(&lives[i].conn, 65536);
        polls[i] = (struct pollfd){.fd = lives[i].conn.fd, .events = POLLIN};
    }
    unsigned long long begin = now();
    for (long i = 0; i < n; i++)
        request(&lives[i].conn, "POST", "/v1/sandboxes", create_body);
    while (left > 0) {
        if (poll(polls, (nfds_t)n, 60000) <= 0)
            die("burst", "nothing comes");
        for (long i = 0; i < n; i++) {
            if (!polls[i].revents)
                continue;
            advance(&lives[i]);
            if (lives[i].step == DONE) {
                polls[i].fd = -1;
                left--;
            }
        }
    }
    printf("%llu\n", now() - begin);
    for (long i = 0; i < n; i++)
        hang_up(&lives[i].conn);
}

static void spawn(long n)
{
    char path[] = "/bin/true", *argv[] = {path, NULL};
    unsigned long long begin = now();
    int status;
    pid_t pid;

    for (long i = 0; i < n; i++)
        if (posix_spawn(&pid, path, NULL, NULL, argv, environ) != 0)
            die("posix_spawn", strerror(errno));
    for (long i = 0; i < n; i++)
        if (wait(&status) < 0 || status != 0)
            die("spawn", "a program failed");
    printf("%llu\n", now() - begin);
}

/* ---- streams -------------------------------------------------------------------------------------------- */

static unsigned long long drain_counted(struct conn *conn, unsigned long long length)
{
    unsigned long long total = 0;

    while (total < length) {
        if (conn->have == conn->used)
            fill(conn);
        total += conn->have - conn->used;
        conn->used = conn->have;
    }
    return total;
}

/* Reads a body to its end; how many bytes of it came. */
static unsigned long long drain(struct conn *conn, long long length)
{
    unsigned long long total = 0;

    if (length >= 0)
        return drain_counted(conn, (unsigned long long)length);
    for (;;) {
        char *end;
        while (
            !(end = conn->have > conn->used ? memchr(conn->buffer + conn->used, '\n', conn->have - conn->used) : NULL))
            fill(conn);
        unsigned long long size = strtoull(conn->buffer + conn->used, NULL, 16), left = size + 2;
        conn->used = (size_t)(end + 1 - conn->buffer);
        while (left > 0) {
            if (conn->have == conn->used)
                fill(conn);
            size_t part = conn->have - conn->used < left ? conn->have - conn->used : (size_t)left;
            conn->used += part;
            left -= part;
        }
        total += size;
        if (size == 0)
            return total;
    }
}

static void expect_bytes(unsigned long long got, unsigned long long bytes)
{
    char text[96];

    if (got == bytes)
        return;
    snprintf(text, sizeof text, "%llu bytes instead of %llu", got, bytes);
    die("stream", text);
}

/* The program waits until its output is listened to: else the ring would be over before. */
static void output(const char *id, unsigned long long bytes)
{
    char path[256], content[256];
    long long length;

    snprintf(path, sizeof path, "/v1/sandboxes/%s/processes", id);
    snprintf(content, sizeof content,
             "{\"argv\":[\"/bin/sh\",\"-c\",\"read go; exec head -c %llu /dev/zero\"],\"stdin_open\":true,"
             "\"timeout\":\"300s\"}",
             bytes);
    ask("POST", path, content, 201);
    const char *at = strstr(body, "\"number\":");
    unsigned long number = at ? strtoul(at + 9, NULL, 10) : 0;
    snprintf(path, sizeof path,
             "GET /v1/sandboxes/%s/processes/%lu/output?stream=stdout HTTP/1.1\r\nHost: localhost\r\n"
             "Accept: application/octet-stream\r\n\r\n",
             id, number);
    send_all(&main_conn, path, strlen(path));
    if (read_head(&main_conn, &length) != 200)
        die("output", "no stream");
    snprintf(path, sizeof path, "/v1/sandboxes/%s/processes/%lu/stdin", id, number);
    unsigned long long begin = now();
    request(&side_conn, "POST", path, "go\n");
    expect_bytes(drain(&main_conn, length), bytes);
    printf("%llu\n", now() - begin);
    if (answer(&side_conn) >= 300)
        die("stdin", body);
}

static void upload(const char *id, unsigned long long bytes)
{
    static char piece[1 << 20];
    char text[256];

    snprintf(text, sizeof text,
             "PUT /v1/sandboxes/%s/files?path=big HTTP/1.1\r\nHost: localhost\r\nContent-Length: %llu\r\n\r\n", id,
             bytes);
    unsigned long long begin = now();
    send_all(&main_conn, text, strlen(text));
    for (unsigned long long left = bytes; left > 0; left -= left < sizeof piece ? left : sizeof piece)
        send_all(&main_conn, piece, left < sizeof piece ? left : sizeof piece);
    if (answer(&main_conn) != 200)
        die("upload", body);
    printf("%llu\n", now() - begin);
}

static void download(const char *id, unsigned long long bytes)
{
    char text[256];
    long long length;

    snprintf(text, sizeof text, "/v1/sandboxes/%s/files?path=big", id);
    unsigned long long begin = now();
    request(&main_conn, "GET", text, "");
    if (read_head(&main_conn, &length) != 200)
        die("download", "no file");
    expect_bytes(drain(&main_conn, length), bytes);
    printf("%llu\n", now() - begin);
}

/* ---- commands ------------------------------------------------------------------------------------------- */

static void timed(const char *command, const char *id)
{
    unsigned long long begin = now();
    char path[128];

    if (strcmp(command, "exec") == 0) {
        run_true(id);
    } else if (strcmp(command, "list") == 0) {
        ask("GET", "/v1/sandboxes?limit=100", "", 200);
    } else if (strcmp(command, "drop") == 0) {
        drop(id);
    } else if (strcmp(command, "remove") == 0) {
        snprintf(path, sizeof path, "/v1/sandboxes/%s/files?path=big", id);
        ask("DELETE", path, "", 204);
    } else {
        die(command, "no such command");
    }
    printf("%llu\n", now() - begin);
}

static void obey(const char *line)
{
    char command[32] = "", word[192] = "", id[ID_LEN + 1];
    unsigned long long bytes = 0;

    sscanf(line, "%31s %191s %llu", command, word, &bytes);
    if (strcmp(command, "cycle") == 0) {
        cycle();
    } else if (strcmp(command, "birth") == 0) {
        birth(word);
    } else if (strcmp(command, "make") == 0) {
        create(id);
        printf("0 %s\n", id);
    } else if (strcmp(command, "burst") == 0) {
        burst(atol(word));
    } else if (strcmp(command, "spawn") == 0) {
        spawn(atol(word));
    } else if (strcmp(command, "output") == 0) {
        output(word, bytes);
    } else if (strcmp(command, "upload") == 0) {
        upload(word, bytes);
    } else if (strcmp(command, "download") == 0) {
        download(word, bytes);
    } else {
        timed(command, word);
    }
}

int main(int argc, char **argv)
{
    char line[256];

    if (argc != 2) {
        fprintf(stderr, "usage: service_client SOCKET\n");
        return 2;
    }
    socket_path = argv[1];
    dial(&main_conn, 1 << 20);
    dial(&side_conn, 65536);
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
