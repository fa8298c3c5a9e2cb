/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_peer.c: the two programs at the ends of a connection by which the gate is measured: the same client inside a
 * sandbox and, without the gate, on the host. Times are CLOCK_MONOTONIC in nanoseconds, one line each on stdout. A host
 * that is no IPv4 address is resolved once, before the clock runs, by a DNS query of our own. CPU is where it runs; -1
 * for anywhere.
 *
 *   gate_peer serve CPU PORT                      The first byte says what is wanted: 'e' one byte and the end, 'i'
 *                                                 one byte and nothing more, 'd' bytes without end, 'u' takes bytes
 *                                                 and says how many they were.
 *   gate_peer serve-tls CPU PORT CERT KEY VALUE   HTTPS, a thread per connection: 200 if Authorization is VALUE,
 *                                                 else 401.
 *   gate_peer setup CPU HOST PORT N               Connect, one byte there, one byte back: N lines.
 *   gate_peer resolve CPU HOST N                  A question and its answer: N lines.
 *   gate_peer rate CPU HOST PORT MS PROCESSES     As many of those as possible: "connections ns".
 *   gate_peer down|up CPU HOST PORT MS BYTES      Until either is reached: "bytes ns".
 *   gate_peer idle CPU HOST PORT N PROCESSES      Opens N, says so, and holds them until its stdin ends.
 *   gate_peer https CPU HOST PORT CA VALUE N keep|close [NAME]
 *                                                 N requests on one connection or on N: N lines. VALUE "$X" is
 *                                                 taken from the environment.
 *
 * The server ends first, so that no port of the client waits in TIME_WAIT. If anything goes wrong, the program ends
 * with a message: no number comes from a failure.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE (256u << 10)
#define REPLY_MAX 4096

static struct sockaddr_in server;

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "gate_peer: %s: %s\n", what, why);
    exit(1);
}

static unsigned long long now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (unsigned long long)ts.tv_sec * 1000000000u + (unsigned long long)ts.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;

    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        die("sched_setaffinity", strerror(errno));
}

static void no_delay(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* ---- names ---------------------------------------------------------------------------------------------- */

/* An A question to 127.0.0.1: inside a sandbox every server's address is the gate's. */
static struct in_addr ask_for(int fd, const char *name)
{
    unsigned char query[512] = {0x12, 0x34, 1, 0, 0, 1}, answer[512];
    size_t at = 12;

    for (const char *label = name; *label;) {
        size_t len = strcspn(label, ".");
        if (len == 0 || len > 63 || at + len + 6 > sizeof query)
            die(name, "no name for a host");
        query[at++] = (unsigned char)len;
        memcpy(query + at, label, len);
        at += len;
        label += len + (label[len] == '.');
    }
    memcpy(query + at, "\0\0\1\0\1", 5);
    at += 5;
    if (send(fd, query, at, 0) != (ssize_t)at)
        die(name, strerror(errno));
    ssize_t n = recv(fd, answer, sizeof answer, 0);
    if (n < 0)
        die(name, strerror(errno));
    /* the answer's record: a pointer to the name, type, class, ttl, length, address */
    if ((size_t)n < at + 16 || answer[7] == 0 || answer[at + 3] != 1 || answer[at + 11] != 4)
        die(name, "no address");
    struct in_addr found;
    memcpy(&found, answer + at + 12, 4);
    return found;
}

#define RESOLVER 0xc6120001u /* 198.18.0.1: the gate's, also for a guest whose loopback is its own */

static int dns_socket(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr = {htonl(RESOLVER)}};
    struct timeval patience = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
        die("DNS", strerror(errno));
    return fd;
}

static void find(const char *host, const char *port)
{
    server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &server.sin_addr) == 1)
        return;
    int fd = dns_socket();
    server.sin_addr = ask_for(fd, host);
    close(fd);
}

static void resolve(const char *host, long n)
{
    int fd = dns_socket();

    ask_for(fd, host);
    while (n-- > 0) {
        unsigned long long begin = now();
        ask_for(fd, host);
        printf("%llu\n", now() - begin);
    }
}

/* ---- the server ------------------------------------------------------------------------------------------ */

static int listening(const char *port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0)
        die(port, strerror(errno));
    puts("ready");
    fflush(stdout);
    return fd;
}

static void detach(void *(*fn)(void *), int fd)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, fn, (void *)(intptr_t)fd) != 0)
        die("thread", "none");
    pthread_detach(thread);
}

static void *give(void *ctx)
{
    static const char piece[PIECE];
    int fd = (int)(intptr_t)ctx;

    while (send(fd, piece, sizeof piece, MSG_NOSIGNAL) > 0)
        ;
    close(fd);
    return NULL;
}

static void *take(void *ctx)
{
    int fd = (int)(intptr_t)ctx;
    unsigned long long total = 0;
    char *piece = malloc(PIECE);
    ssize_t n;

    while (piece && (n = recv(fd, piece, PIECE, 0)) > 0)
        total += (unsigned long long)n;
    send(fd, &total, sizeof total, MSG_NOSIGNAL);
    close(fd);
    free(piece);
    return NULL;
}

static void heard(int epoll, int fd)
{
    char byte = 0;
    ssize_t n = recv(fd, &byte, 1, 0);

    if (n == 1 && (byte == 'd' || byte == 'u')) {
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
        detach(byte == 'd' ? give : take, fd);
        return;
    }
    if (n == 1)
        send(fd, &byte, 1, MSG_NOSIGNAL);
    if (n != 1 || byte != 'i')
        close(fd);
}

static void serve(const char *port)
{
    struct epoll_event events[256], add = {.events = EPOLLIN};
    int listener = listening(port), epoll = epoll_create1(EPOLL_CLOEXEC);

    add.data.fd = listener;
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &add) < 0)
        die("epoll", strerror(errno));
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                heard(epoll, events[i].data.fd);
                continue;
            }
            add.data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (add.data.fd < 0)
                die("accept", strerror(errno));
            no_delay(add.data.fd);
            epoll_ctl(epoll, EPOLL_CTL_ADD, add.data.fd, &add);
        }
    }
}

/* ---- the client ------------------------------------------------------------------------------------------ */

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) < 0)
        die("connect", strerror(errno));
    no_delay(fd);
    return fd;
}

static void exchange(int fd, char byte)
{
    char back = 0;

    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
        die("send", strerror(errno));
    ssize_t n = recv(fd, &back, 1, 0);
    if (n != 1 || back != byte)
        die("receive", n < 0 ? strerror(errno) : "not what was sent");
}

/* Nanoseconds until the byte is back; then waits for the server's end. */
static unsigned long long once(void)
{
    unsigned long long begin = now();
    char byte;
    int fd = dial();

    exchange(fd, 'e');
    unsigned long long took = now() - begin;
    if (recv(fd, &byte, 1, 0) != 0)
        die("receive", "no end");
    close(fd);
    return took;
}

static void setup(long n)
{
    once();
    while (n-- > 0)
        printf("%llu\n", once());
}

static void rate(unsigned long long ms, long processes)
{
    unsigned long long begin = now(), until = begin + ms * 1000000u, total = 0, part;
    int ends[2];

    if (pipe(ends) < 0)
        die("pipe", strerror(errno));
    for (long i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork", strerror(errno));
        if (pid > 0)
            continue;
        for (part = 0; now() < until; part++)
            once();
        _exit(write(ends[1], &part, sizeof part) != sizeof part);
    }
    for (long i = 0; i < processes; i++) {
        int status;
        if (wait(&status) < 0 || status != 0 || read(ends[0], &part, sizeof part) != sizeof part)
            die("rate", "a process failed");
        total += part;
    }
    printf("%llu %llu\n", total, now() - begin);
}

static void down(unsigned long long ms, unsigned long long bytes)
{
    int fd = dial();
    char *piece = malloc(PIECE);
    unsigned long long total = 0, begin = now(), until = begin + ms * 1000000u;

    if (!piece || send(fd, "d", 1, MSG_NOSIGNAL) != 1)
        die("send", strerror(errno));
    while (total < bytes && now() < until) {
        ssize_t n = recv(fd, piece, PIECE, 0);
        if (n <= 0)
            die("receive", n < 0 ? strerror(errno) : "the end");
        total += (unsigned long long)n;
    }
    printf("%llu %llu\n", total, now() - begin);
}

static void up(unsigned long long ms, unsigned long long bytes)
{
    static const char piece[PIECE];
    int fd = dial();
    unsigned long long total = 0, counted = 0, begin = now(), until = begin + ms * 1000000u;

    if (send(fd, "u", 1, MSG_NOSIGNAL) != 1)
        die("send", strerror(errno));
    while (total < bytes && now() < until) {
        ssize_t n = send(fd, piece, sizeof piece, MSG_NOSIGNAL);
        if (n < 0)
            die("send", strerror(errno));
        total += (unsigned long long)n;
    }
    shutdown(fd, SHUT_WR);
    if (recv(fd, &counted, sizeof counted, MSG_WAITALL) != sizeof counted || counted != total)
        die("up", "the server has not got it all");
    printf("%llu %llu\n", total, now() - begin);
}

static void hold(long n)
{
    for (long i = 0; i < n; i++)
        exchange(dial(), 'i');
}

static void idle(long n, long processes)
{
    char byte;
    int ends[2];

    if (pipe(ends) < 0)
        die("pipe", strerror(errno));
    for (long i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork", strerror(errno));
        if (pid > 0)
            continue;
        hold(n / processes + (i < n % processes));
        if (write(ends[1], "y", 1) != 1)
            _exit(1);
        while (read(STDIN_FILENO, &byte, 1) > 0)
            ;
        _exit(0);
    }
    close(ends[1]);
    for (long i = 0; i < processes; i++)
        if (read(ends[0], &byte, 1) != 1)
            die("idle", "a process failed");
    printf("%ld open\n", n);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

/* ---- HTTPS ----------------------------------------------------------------------------------------------- */

static SSL_CTX *tls;
static const char *wanted_value;

__attribute__((noreturn)) static void die_tls(const char *what)
{
    unsigned long e = ERR_get_error();
    char text[256] = "";

    if (e)
        ERR_error_string_n(e, text, sizeof text);
    die(what, e ? text : strerror(errno));
}

/* One message's head into text; how long it is with its body, 0 at the end. */
static int read_message(SSL *ssl, char text[REPLY_MAX])
{
    int have = 0;

    for (;;) {
        int n = SSL_read(ssl, text + have, REPLY_MAX - 1 - have);
        if (n <= 0)
            return 0;
        have += n;
        text[have] = '\0';
        char *end = strstr(text, "\r\n\r\n");
        char *length = strcasestr(text, "\r\nContent-Length:");
        if (end && have >= (int)(end + 4 - text) + (length ? atoi(length + 17) : 0))
            return have;
        if (have == REPLY_MAX - 1)
            die("HTTP", "a long head");
    }
}

static void *answer_requests(void *ctx)
{
    static const char yes[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes",
                      no[] = "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno";
    int fd = (int)(intptr_t)ctx;
    char text[REPLY_MAX], wanted[512];
    SSL *ssl = SSL_new(tls);

    snprintf(wanted, sizeof wanted, "\r\nAuthorization: %s\r\n", wanted_value);
    no_delay(fd);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        while (read_message(ssl, text) > 0) {
            const char *said = strcasestr(text, wanted) ? yes : no;
            if (SSL_write(ssl, said, (int)strlen(said)) <= 0)
                break;
        }
        SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static void serve_tls(const char *port, const char *certificate, const char *key, const char *value)
{
    wanted_value = value;
    tls = SSL_CTX_new(TLS_server_method());
    if (!tls || SSL_CTX_use_certificate_chain_file(tls, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
        die_tls(certificate);
    for (int listener = listening(port);;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            die("accept", strerror(errno));
        detach(answer_requests, fd);
    }
}

static SSL *dial_tls(const char *name)
{
    static const unsigned char http[] = "\x08http/1.1";
    SSL *ssl = SSL_new(tls);
    int fd = dial();

    SSL_set_fd(ssl, fd);
    SSL_set_alpn_protos(ssl, http, sizeof http - 1);
    if (SSL_set_tlsext_host_name(ssl, name) != 1 || SSL_set1_host(ssl, name) != 1 || SSL_connect(ssl) != 1)
        die_tls("TLS");
    return ssl;
}

static void hang_up(SSL *ssl)
{
    int fd = SSL_get_fd(ssl);

    SSL_shutdown(ssl);
    SSL_free(ssl);
    close(fd);
}

static void request(SSL *ssl, const char *name, const char *value)
{
    char text[REPLY_MAX];
    int len = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s:%d\r\nAuthorization: %s\r\nAccept: */*\r\n\r\n",
                       name, ntohs(server.sin_port), value);

    if (SSL_write(ssl, text, len) != len || read_message(ssl, text) == 0)
        die_tls("HTTP");
    if (strncmp(text, "HTTP/1.1 200 ", 13) != 0 || !strstr(text, "yes"))
        die("HTTP", text);
}

static void https(const char *name, const char *ca, const char *value, long n, int keep)
{
    char bearer[512];
    SSL *ssl = NULL;

    if (value[0] == '$' && !getenv(value + 1))
        die(value, "no such variable");
    snprintf(bearer, sizeof bearer, "Bearer %s", value[0] == '$' ? getenv(value + 1) : value);
    tls = SSL_CTX_new(TLS_client_method());
    if (!tls || SSL_CTX_load_verify_locations(tls, ca, NULL) != 1)
        die_tls(ca);
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
    for (long i = -1; i < n; i++) { /* the first is not counted */
        unsigned long long begin = now();
        if (!ssl)
            ssl = dial_tls(name);
        request(ssl, name, bearer);
        unsigned long long took = now() - begin;
        if (!keep) {
            hang_up(ssl);
            ssl = NULL;
        }
        if (i >= 0)
            printf("%llu\n", took);
    }
}

/* ---- commands -------------------------------------------------------------------------------------------- */

static void as_client(int argc, char **argv)
{
    const char *what = argv[1];

    find(argv[3], argv[4]);
    if (strcmp(what, "setup") == 0 && argc == 6)
        setup(atol(argv[5]));
    else if (strcmp(what, "rate") == 0 && argc == 7)
        rate(strtoull(argv[5], NULL, 10), atol(argv[6]));
    else if (strcmp(what, "down") == 0 && argc == 7)
        down(strtoull(argv[5], NULL, 10), strtoull(argv[6], NULL, 10));
    else if (strcmp(what, "up") == 0 && argc == 7)
        up(strtoull(argv[5], NULL, 10), strtoull(argv[6], NULL, 10));
    else if (strcmp(what, "idle") == 0 && argc == 7)
        idle(atol(argv[5]), atol(argv[6]));
    else if (strcmp(what, "https") == 0 && argc >= 9)
        https(argc > 9 ? argv[9] : argv[3], argv[5], argv[6], atol(argv[7]), strcmp(argv[8], "keep") == 0);
    else
        die(what, "no such command");
}

int main(int argc, char **argv)
{
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (argc < 4)
        die("usage", "see gate_peer.c");
    pin(atoi(argv[2]));
    if (strncmp(argv[1], "serve", 5) == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a server ends with whoever measures */
    if (strcmp(argv[1], "serve") == 0)
        serve(argv[3]);
    else if (strcmp(argv[1], "serve-tls") == 0 && argc == 7)
        serve_tls(argv[3], argv[4], argv[5], argv[6]);
    else if (strcmp(argv[1], "resolve") == 0 && argc == 5)
        resolve(argv[3], atol(argv[4]));
    else if (argc >= 6)
        as_client(argc, argv);
    else
        die("usage", "see gate_peer.c");
    return 0;
}
