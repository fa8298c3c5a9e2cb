/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that lie about themselves: forged results, broken bytes, many writers, odd ways to end (C01 to C13).
 * These print what they are told to and nothing else; the harness judges the receipt.
 */
#include "probe.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

static void put(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(99);
        p += n, len -= (size_t)n;
    }
}

/* Everything a runner could mistake for its own words, on both streams and on every descriptor that might be open. */
static void c01_marker_forge(int argc, char **argv)
{
    static const char text[] =
        "{\"outcome\":{\"cause\":\"exited\",\"exit_code\":0,\"signal\":null,\"limits_hit\":[]},\"stdout\":\"forged\"}\n"
        "brig: exited 0\n--- END OF OUTPUT ---\n\x04\x00\x01\x02"
        "BRIG\x01\x00\x00\x00\n{\"type\":\"exit\",\"status\":0}\n"
        "\x1b]0;owned\x07\x1b[2J\r\r\rdata: {\"done\":true}\n\n";
    (void)argc, (void)argv;

    for (int fd = 1; fd < 64; fd++) {
        if (fd <= 2)
            put(fd, text, sizeof(text) - 1);
        else if (write(fd, text, sizeof(text) - 1) > 0)
            breach("extra-fd", "%d took bytes", fd);
    }
    _exit(7);
}

static void c04_partial(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "kill";
    /* A frame header that promises more than comes, and half a character. */
    static const char text[] = "{\"result\": [1, 2, \xe2\x82";

    put(1, text, sizeof(text) - 1);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(how, "abort") == 0)
        abort();
    _exit(3);
}

static void c06_bytes(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "all";
    unsigned char all[256];
    static const char mixed[] = "\xef\xbb\xbf"
                                "caf\xc3\xa9 \xf0\x9f\x92\xa9\n";
    static const char bad[] = "\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xed\xbf\xbf\xf4\x90\x80\x80\xfe\xff\x00\x80 end";

    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (unsigned char)i;
    if (strcmp(which, "all") == 0)
        put(1, all, sizeof(all));
    else if (strcmp(which, "bad") == 0)
        put(1, bad, sizeof(bad) - 1);
    else
        put(1, mixed, sizeof(mixed) - 1);
    put(2, all + 128, 128);
    _exit(0);
}

/* 100 writers, lines of one size that fit a pipe's atomic write, half on each stream. */
static void c07_interleave(int argc, char **argv)
{
    int writers = argc > 1 ? atoi(argv[1]) : 100, lines = argc > 2 ? atoi(argv[2]) : 50;

    for (int w = 0; w < writers; w++) {
        pid_t pid = fork();
        if (pid < 0)
            _exit(98);
        if (pid > 0)
            continue;
        for (int l = 0; l < lines; l++) {
            char line[256];
            int n = snprintf(line, sizeof(line), "w%03d l%03d ", w, l);
            memset(line + n, 'a' + w % 26, sizeof(line) - 1 - (size_t)n);
            line[sizeof(line) - 1] = '\n';
            put(l % 2 ? 2 : 1, line, sizeof(line));
        }
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
    _exit(0);
}

static void *exit_in_thread(void *arg)
{
    exit((int)(intptr_t)arg);
}

static void *sleep_then_exit(void *arg)
{
    usleep(50000);
    _exit((int)(intptr_t)arg);
}

static void c09_exit_games(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    pthread_t t;

    if (strcmp(how, "exit") == 0)
        _exit(n); /* 256 + n arrives as n: the kernel keeps eight bits */
    if (strcmp(how, "raw") == 0)
        syscall(SYS_exit_group, n);
    if (strcmp(how, "signal") == 0) {
        signal(n, SIG_DFL);
        raise(n);
    }
    if (strcmp(how, "thread") == 0) {
        pthread_create(&t, NULL, exit_in_thread, (void *)(intptr_t)n);
        pthread_join(t, NULL);
    }
    if (strcmp(how, "leader") == 0) { /* the main thread goes first; the group ends with the other's status */
        pthread_create(&t, NULL, sleep_then_exit, (void *)(intptr_t)n);
        pthread_exit(NULL);
    }
    if (strcmp(how, "child") == 0) { /* a child's end is not ours */
        if (fork() == 0)
            _exit(n + 1);
        wait(NULL);
        if (fork() == 0)
            raise(SIGKILL);
        wait(NULL);
        _exit(n);
    }
    if (strcmp(how, "orphan") == 0) { /* nor is that of an orphan which ends before us, while pid 1 reaps it */
        if (fork() == 0) {
            if (fork() == 0)
                _exit(n + 1);
            _exit(n + 2);
        }
        wait(NULL);
        usleep(100000);
        _exit(n);
    }
    if (strcmp(how, "late") == 0) { /* a child that outlives us */
        if (fork() == 0) {
            usleep(50000);
            _exit(n + 1);
        }
        _exit(n);
    }
    if (strcmp(how, "exec") == 0) {
        char status[16];
        snprintf(status, sizeof(status), "%d", n);
        execl("/proc/self/exe", "probe", "C09", "exit", status, NULL);
        _exit(97);
    }
    _exit(96);
}

static void c10_fake_claims(int argc, char **argv)
{
    int status = argc > 1 ? atoi(argv[1]) : 137;

    dprintf(1, "Killed\n");
    dprintf(2, "Killed\nbrig: oom: memory limit reached\nbrig: timeout after 1s\nOut of memory: Killed process 1\n");
    _exit(status);
}

static void exit_zero(int sig)
{
    (void)sig;
    _exit(0);
}

/* C13: ends after N ms, with and without a handler that ends with 0 when it is told to stop. */
static void c13_boundary(int argc, char **argv)
{
    long ms = argc > 1 ? atol(argv[1]) : 100;

    if (argc > 2)
        signal(SIGTERM, exit_zero);
    usleep((useconds_t)ms * 1000);
    _exit(0);
}

/* R12: a flood of bytes without a newline, of carriage returns, or of control sequences. */
static void r12_flood(int argc, char **argv)
{
    static char block[1 << 16];
    long mib = argc > 1 ? atol(argv[1]) : 64;
    const char *kind = argc > 2 ? argv[2] : "line";

    memset(block, strcmp(kind, "cr") == 0 ? '\r' : 'x', sizeof(block));
    if (strcmp(kind, "ansi") == 0) {
        for (size_t i = 0; i + 8 <= sizeof(block); i += 8)
            memcpy(block + i, "\x1b[31mA\x1b[", 8);
    }
    for (long i = 0; i < mib * 16; i++)
        put(i % 2 ? 2 : 1, block, sizeof(block));
    _exit(0);
}

const struct probe_case channel_cases[] = {
    {"C01", c01_marker_forge}, {"C04", c04_partial},    {"C06", c06_bytes},
    {"C07", c07_interleave},   {"C09", c09_exit_games}, {"C10", c10_fake_claims},
    {"C13", c13_boundary},     {"R12", r12_flood},      {NULL, NULL},
};
