/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools_client.c: the measuring client of tool runs: one keep-alive connection to the unix socket; each time is from
 * the first byte sent to the last byte received. tools_client SOCKET reads commands from stdin and answers each with
 * one line of nanoseconds on stdout:
 *
 *   tool NAME ARGS WANT  what the next ones run: a registered tool, its arguments (JSON without a space) and the
 *                        result that must come (JSON as the service writes it)
 *   run                  one run
 *   parked N             waits until N children are parked in one pool and none is in making: how long that took
 *   burst N              N connections, opened before, a run on each, all at once: N times, each from the moment that
 *                        all were begun to its own answer
 *   sustain SECONDS N    N connections, each with the next run as soon as its last is answered: "elapsed runs p50
 *                        p99"
 *
 * An answer that is not 200, not a success or not the result that was said is a failure, and ends the client.
 */
#include "client.h"

#define MANY 1000
#define WAIT_NS 60000000000ull
#define LOOK_NS 2000000

static char run_path[320], run_body[512], run_want[320];
static struct conn conns[MANY];
static struct pollfd polls[MANY];
static unsigned long long times[1 << 20], begun[MANY];

static void set_tool(const char *name, const char *args, const char *want)
{
    snprintf(run_path, sizeof run_path, "/v1/tools/%s/run", name);
    snprintf(run_body, sizeof run_body, "{\"args\":%s}", args);
    snprintf(run_want, sizeof run_want, "\"result\":%s", want);
    printf("0\n");
}

static void judge(int status, const char *content)
{
    if (status != 200 || !strstr(content, "\"status\":\"success\"") || !strstr(content, run_want))
        die(run_path, content);
}

static void run(void)
{
    unsigned long long begin = now();

    ask("POST", run_path, run_body, 200);
    unsigned long long end = now();
    judge(200, body);
    printf("%llu\n", end - begin);
}

static long member(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? atol(at + strlen(name)) : -1;
}

/* Looked at not too often: who looks takes time from those who make them. */
static int all_parked(long n)
{
    ask("GET", "/v1/pools", "", 200);
    for (const char *pool = strstr(body, "\"parked\":"); pool; pool = strstr(pool + 1, "\"parked\":"))
        if (member(pool, "\"parked\":") >= n && member(pool, "\"making\":") == 0)
            return 1;
    return 0;
}

static void parked(long n)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    unsigned long long begin = now();

    while (!all_parked(n)) {
        if (now() - begin > WAIT_NS)
            die("the pool does not fill", body);
        nanosleep(&pause, NULL);
    }
    printf("%llu\n", now() - begin);
}

/* ---- many at once --------------------------------------------------------------------------------------- */

static void dial_many(long n)
{
    if (n < 1 || n > MANY)
        die("connections", "so many are not possible");
    for (long i = 0; i < n; i++) {
        dial(&conns[i], 65536);
        polls[i] = (struct pollfd){.fd = conns[i].fd, .events = POLLIN};
    }
}

static void hang_up_many(long n)
{
    for (long i = 0; i < n; i++)
        hang_up(&conns[i]);
}

static int compare(const void *a, const void *b)
{
    unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;

    return x < y ? -1 : x > y;
}

/* The connections whose answer is complete now are in done; returns how many. */
static long next_answers(long n, long done[MANY])
{
    const char *content;
    long found = 0;
    int status;

    if (poll(polls, (nfds_t)n, 60000) <= 0)
        die(run_path, "nothing comes");
    for (long i = 0; i < n; i++) {
        if (!polls[i].revents)
            continue;
        fill(&conns[i]);
        if (!whole_answer(&conns[i], &status, &content))
            continue;
        judge(status, content);
        done[found++] = i;
    }
    return found;
}

static void burst(long n)
{
    long done[MANY], left = n;

    dial_many(n);
    unsigned long long begin = now();
    for (long i = 0; i < n; i++)
        request(&conns[i], "POST", run_path, run_body);
    while (left > 0) {
        long found = next_answers(n, done);
        for (long i = 0; i < found; i++) {
            times[n - left--] = now() - begin;
            polls[done[i]].fd = -1;
        }
    }
    for (long i = 0; i < n; i++)
        printf("%llu%c", times[i], i + 1 < n ? ' ' : '\n');
    hang_up_many(n);
}

static void sustain(long seconds, long n)
{
    unsigned long long begin, end;
    long done[MANY], open = n;
    size_t runs = 0;

    dial_many(n);
    begin = now();
    end = begin + (unsigned long long)seconds * 1000000000u;
    for (long i = 0; i < n; i++) {
        begun[i] = now();
        request(&conns[i], "POST", run_path, run_body);
    }
    while (open > 0) {
        long found = next_answers(n, done);
        for (long i = 0; i < found; i++) {
            unsigned long long at = now();
            times[runs++ % (sizeof times / sizeof times[0])] = at - begun[done[i]];
            if (at >= end) {
                polls[done[i]].fd = -1;
                open--;
                continue;
            }
            begun[done[i]] = at;
            request(&conns[done[i]], "POST", run_path, run_body);
        }
    }
    unsigned long long elapsed = now() - begin;
    size_t kept = runs < sizeof times / sizeof times[0] ? runs : sizeof times / sizeof times[0];
    qsort(times, kept, sizeof times[0], compare);
    printf("%llu %zu %llu %llu\n", elapsed, runs, times[kept / 2], times[kept - 1 - kept / 100]);
    hang_up_many(n);
}

/* ---- commands ------------------------------------------------------------------------------------------- */

static void obey(const char *line)
{
    char command[32] = "", word[3][256] = {"", "", ""};

    sscanf(line, "%31s %255s %255s %255s", command, word[0], word[1], word[2]);
    if (strcmp(command, "tool") == 0)
        set_tool(word[0], word[1], word[2]);
    else if (strcmp(command, "run") == 0)
        run();
    else if (strcmp(command, "parked") == 0)
        parked(atol(word[0]));
    else if (strcmp(command, "burst") == 0)
        burst(atol(word[0]));
    else if (strcmp(command, "sustain") == 0)
        sustain(atol(word[0]), atol(word[1]));
    else
        die(command, "no such command");
}

int main(int argc, char **argv)
{
    char line[1024];

    if (argc != 2) {
        fprintf(stderr, "usage: tools_client SOCKET\n");
        return 2;
    }
    socket_path = argv[1];
    dial(&main_conn, 1 << 20);
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
