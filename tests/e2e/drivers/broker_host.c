/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_host: the broker alone, on loopback, without sandboxes. A test gives it a port to listen on. Every connection
 * is taken for the name that its hello carries (or Host, in plain HTTP), and every dial leads to one port of 127.0.0.1.
 * What slot.c, dial.c and main.c do in brig-egress is faked here.
 *
 *   broker_host seal CONTEXT   stdin: a value; stdout: {"key_id": .., "nonce": .., "sealed": .., "context": ..}
 *   broker_host serve FILE     FILE: {"ca": PATH, "authority": PATH to write, "upstream": PORT,
 *                              "port": what the client thinks, "listen": PORT, "policy": {..}, "secrets": [..]}
 *
 * While it serves, lines on stdout say what happens, and lines on stdin ask: "scan HEX" looks for bytes (each xor 0x5a,
 * so that the question is not its own answer) in all writable memory of the process and answers "scan N"; "counts"
 * answers with what was counted.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "codec/json/json.h"
#include "codec/tls_hello.h"
#include "crypto/crypto.h"
#include "crypto/keyring.h"
#include "egress/egress.h"

#define KEY "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"

struct egress {
    struct loop *loop;
    char *ca;
    size_t ca_len;
};
struct slot {
    struct egress *egress;
    struct policy *policy;
    struct broker *broker;
};

static struct egress egress;
static struct slot slot = {.egress = &egress};
static uint16_t upstream_port, port;
static bool over;
static const char *forced; /* every connection is taken for this one's */
static uint64_t bytes_in, bytes_out, budget = UINT64_MAX, n_scrubbed, n_open;

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "broker_host: %s: %s\n", what, why);
    exit(1);
}

/* ---- what the rest of brig-egress would be -------------------------------------------------------------- */

struct egress *slot_egress(const struct slot *s)
{
    return s->egress;
}

bool slot_take_memory(struct slot *s UNUSED, size_t n UNUSED)
{
    return true;
}

uint64_t slot_wait_ns(struct slot *s UNUSED)
{
    return 0;
}

bool slot_behind(const struct slot *s UNUSED)
{
    return false;
}

void slot_give_memory(struct slot *s UNUSED, size_t n UNUSED)
{
}

struct policy *slot_policy(const struct slot *s)
{
    return s->policy;
}

struct loop *egress_loop(const struct egress *e)
{
    return e->loop;
}

const char *egress_ca(const struct egress *e, size_t *ret_len)
{
    *ret_len = e->ca_len;
    return e->ca;
}

struct dial {
    struct loop_source source;
    dial_fn *done;
    void *ctx;
};

static void dialled(struct loop_source *source, UNUSED uint32_t events)
{
    struct dial *dial = source->ctx;
    struct policy_answer answer = {.allow = true, .rule = -1};
    struct brig_err err = {.code = BRIG_E_HOST};
    struct gate_addr to = {.port = upstream_port};
    int error = 0, fd = source->fd;
    socklen_t len = sizeof(error);

    to.ip[10] = to.ip[11] = 0xff;
    memcpy(to.ip + 12, (const uint8_t[]){93, 184, 216, 34}, 4); /* what the world would see */
    loop_remove(egress.loop, source);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error != 0) {
        close(fd);
        err_set(&err, BRIG_E_HOST, error, "connect");
        fd = -1;
    }
    dial->done(dial->ctx, fd, &to, &answer, &err);
    mem_free(dial);
}

int dial_start(UNUSED struct slot *s, UNUSED const char *name, UNUSED const struct gate_addr *wanted, UNUSED uint16_t p,
               UNUSED enum policy_seen seen, dial_fn *done, void *ctx, struct dial **ret, struct brig_err *err)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(upstream_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct dial *dial = mem_zalloc(sizeof(*dial));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (!dial || fd < 0)
        die("dial", "no memory");
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS) {
        close(fd);
        mem_free(dial);
        return err_host(err, "connect");
    }
    *dial = (struct dial){.source = {.fn = dialled, .ctx = dial}, .done = done, .ctx = ctx};
    if (loop_add(egress.loop, &dial->source, fd, EPOLLOUT, err) < 0)
        die("dial", err->message);
    *ret = dial;
    return 0;
}

void dial_cancel(struct dial *dial)
{
    int fd = dial->source.fd;

    loop_remove(egress.loop, &dial->source);
    close(fd);
    mem_free(dial);
}

/* ---- clients -------------------------------------------------------------------------------------------- */

struct client {
    struct loop_source source;
    struct broker_conn *conn;
    int fd;
    uint8_t first[EGRESS_FIRST_MAX];
    size_t len;
};

static bool on_charge(UNUSED void *ctx, uint64_t in, uint64_t out)
{
    bytes_in += in;
    bytes_out += out;
    return bytes_in + bytes_out <= budget;
}

static void on_event(UNUSED void *ctx, enum gate_verdict verdict, const struct policy_answer *answer,
                     const struct gate_addr *to, const char *secret)
{
    static const char *const names[] = {"ALLOWED", "DENIED", "CLOSED", "FAILED"};

    printf("event %s dialled=%d secret=%s why=%s\n", names[verdict], to != NULL, secret ? secret : "-", answer->why);
}

static void on_scrubbed(UNUSED void *ctx, uint64_t n)
{
    n_scrubbed += n;
}

static void on_done(void *ctx, const char *why)
{
    printf("done %s\n", why);
    mem_free(ctx);
    n_open--;
}

static void drop(struct client *client)
{
    loop_remove(egress.loop, &client->source);
    close(client->fd);
    mem_free(client);
    n_open--;
}

static void on_client(struct loop_source *source, UNUSED uint32_t events)
{
    struct client *client = source->ctx;
    struct tls_hello hello = {0};
    struct brig_err err = {0};
    char name[DNS_NAME_MAX] = "";
    ssize_t n = recv(client->fd, client->first + client->len, sizeof(client->first) - client->len, MSG_DONTWAIT);

    if (n <= 0) {
        drop(client);
        return;
    }
    client->len += (size_t)n;
    int r = tls_hello_parse(client->first, client->len, &hello);
    if (r == 0)
        return;
    bool plain = r == -EPROTO;
    if (plain) {
        const char *host = memmem(client->first, client->len, "Host: ", 6);
        size_t len = host ? strcspn(host + 6, ":\r") : 0;
        if (len == 0 || len >= sizeof(name))
            return;
        memcpy(name, host + 6, len);
        name[len] = '\0';
    } else if (r > 0 && hello.has_name) {
        memcpy(name, forced ? forced : hello.name, forced ? strlen(forced) + 1 : sizeof(name));
    }
    if (name[0] == '\0' || !broker_covers(slot.broker, name, port)) {
        printf("not covered: %s\n", name);
        drop(client);
        return;
    }
    struct broker_start start = {.slot = &slot,
                                 .broker = slot.broker,
                                 .name = name,
                                 .port = port,
                                 .fd = client->fd,
                                 .plain = plain,
                                 .first = client->first,
                                 .first_len = client->len,
                                 .charge = on_charge,
                                 .event = on_event,
                                 .scrubbed = on_scrubbed,
                                 .done = on_done,
                                 .ctx = client};
    loop_remove(egress.loop, &client->source);
    if (broker_start(&start, &client->conn, &err) < 0)
        die("broker_start", err.message);
}

static void on_accept(struct loop_source *source, UNUSED uint32_t events)
{
    int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct client *client = fd >= 0 ? mem_zalloc(sizeof(*client)) : NULL;

    if (!client)
        return;
    client->fd = fd;
    client->source = (struct loop_source){.fn = on_client, .ctx = client};
    n_open++;
    if (loop_add(egress.loop, &client->source, fd, EPOLLIN, NULL) < 0)
        die("accept", "loop");
}

/* ---- questions ------------------------------------------------------------------------------------------ */

static size_t scan_region(int mem, uint64_t from, uint64_t to, const uint8_t *hidden, size_t len)
{
    static uint8_t page[1 << 16]; /* the search's own buffer is looked at through itself */
    size_t found = 0, have = 0;

    for (uint64_t at = from; at < to;) {
        size_t want = to - at < sizeof(page) - have ? (size_t)(to - at) : sizeof(page) - have;
        ssize_t n = pread(mem, page + have, want, (off_t)at);
        if (n <= 0)
            break;
        have += (size_t)n;
        at += (uint64_t)n;
        for (size_t i = 0; i + len <= have; i++) {
            size_t k = 0;
            while (k < len && (page[i + k] ^ 0x5a) == hidden[k])
                k++;
            found += k == len;
        }
        size_t keep = have < len - 1 ? have : len - 1;
        memmove(page, page + have - keep, keep);
        have = keep;
    }
    memset(page, 0, sizeof(page));
    return found;
}

static void scan_memory(const char *hex)
{
    uint8_t hidden[256];
    char line[512];
    size_t len = strlen(hex) / 2, found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);

    if (!maps || mem < 0 || len > sizeof(hidden) || crypto_unhex(hex, len * 2, hidden, len) < 0)
        die("scan", "cannot");
    while (fgets(line, sizeof(line), maps)) {
        char *end;
        uint64_t from = strtoull(line, &end, 16), to = strtoull(end + 1, &end, 16);
        if (end[2] == 'w')
            found += scan_region(mem, from, to, hidden, len);
    }
    fclose(maps);
    close(mem);
    printf("scan %zu\n", found);
}

static void on_question(struct loop_source *source, UNUSED uint32_t events)
{
    static char line[1024];
    static size_t len;
    ssize_t n = read(source->fd, line + len, sizeof(line) - 1 - len);

    if (n <= 0) {
        over = true;
        return;
    }
    len += (size_t)n;
    line[len] = '\0';
    char *lf = strchr(line, '\n');
    if (!lf)
        return;
    *lf = '\0';
    if (strncmp(line, "scan ", 5) == 0)
        scan_memory(line + 5);
    else
        printf("counts in=%lu out=%lu scrubbed=%lu open=%lu\n", bytes_in, bytes_out, n_scrubbed, n_open);
    len = 0;
}

/* ---- set-up --------------------------------------------------------------------------------------------- */

static char *slurp(const char *path, size_t *ret_len)
{
    char *data = mem_alloc(4u << 20);
    int fd = strcmp(path, "-") == 0 ? 0 : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = data && fd >= 0 ? fd_read_all(fd, data, 4u << 20) : -1;

    if (n < 0)
        die(path, "cannot be read");
    *ret_len = (size_t)n;
    return data;
}

static int seal(const char *context)
{
    struct keyring *ring;
    struct sealed sealed;
    struct brig_err err = {0};
    struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);
    size_t len;
    char *value = slurp("-", &len);

    if (keyring_parse(KEY, sizeof(KEY) - 1, &ring, &err) < 0 || keyring_seal(ring, context, value, len, &sealed) < 0)
        die("seal", err.message);
    json_object(&json);
    json_key(&json, "key_id"), json_string(&json, sealed.key_id);
    json_key(&json, "nonce"), json_base64(&json, sealed.nonce, sizeof(sealed.nonce));
    json_key(&json, "sealed"), json_base64(&json, sealed.data, sealed.len);
    json_key(&json, "context"), json_string(&json, context);
    json_end(&json);
    if (json_finish(&json) < 0)
        die("seal", "json");
    puts(out.data);
    sealed_done(&sealed);
    keyring_destroy(ring);
    buf_done(&out);
    mem_free(value);
    return 0;
}

static const char *text_of(const struct json_value *root, const char *key)
{
    const struct json_value *value = json_get(root, key);

    if (!value || value->type != JSON_STRING)
        die(key, "missing");
    return value->string;
}

static uint64_t number_of(const struct json_value *root, const char *key, uint64_t otherwise)
{
    const struct json_value *value = json_get(root, key);

    return value && value->integer ? (uint64_t)value->i64 : otherwise;
}

static void write_file(const char *path, const struct buf *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || fd_write_all(fd, text->data, text->len) < 0)
        die(path, "cannot be written");
    close(fd);
}

static int serve(const char *path)
{
    struct brig_err err = {0};
    struct json_doc *doc;
    struct keyring *ring;
    struct buf ca = BUF_INIT(1u << 16);
    size_t len;
    char *text = slurp(path, &len);

    if (json_read(text, len, JSON_READ_VALUES, &doc, &err) < 0 || loop_create(&egress.loop, &err) < 0 ||
        keyring_parse(KEY, sizeof(KEY) - 1, &ring, &err) < 0)
        die(path, err.message);
    const struct json_value *root = json_root(doc);
    egress.ca = slurp(text_of(root, "ca"), &egress.ca_len);
    upstream_port = (uint16_t)number_of(root, "upstream", 0);
    port = (uint16_t)number_of(root, "port", 443);
    forced = json_get(root, "name") ? text_of(root, "name") : NULL;
    budget = number_of(root, "budget", UINT64_MAX);
    if (policy_compile(json_get(root, "policy"), &slot.policy, &err) < 0 ||
        broker_create(&egress, json_get(root, "secrets"), ring, &slot.broker, &ca, &err) < 0)
        die(path, err.message);
    write_file(text_of(root, "authority"), &ca);

    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)number_of(root, "listen", 0)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_len = sizeof(at);
    struct loop_source listener = {.fn = on_accept}, questions = {.fn = on_question};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &at_len) < 0 ||
        loop_add(egress.loop, &listener, fd, EPOLLIN, &err) < 0 ||
        loop_add(egress.loop, &questions, 0, EPOLLIN, &err) < 0)
        die("listen", err.message);
    printf("listening %u\n", ntohs(at.sin_port));
    while (!over && loop_run_once(egress.loop, -1, &err) == 0)
        continue;
    if (n_open > 0)
        _exit(0); /* those would be leaks */
    broker_destroy(slot.broker);
    policy_unref(slot.policy);
    keyring_destroy(ring);
    loop_destroy(egress.loop);
    json_doc_free(doc);
    buf_done(&ca);
    mem_free(text);
    mem_free(egress.ca);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "seal") == 0)
        return seal(argv[2]);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    fprintf(stderr, "usage: broker_host seal CONTEXT | serve FILE\n");
    return 2;
}
