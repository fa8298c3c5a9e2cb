/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_host.c: single-use interpreters (sandbox/child/child.h) on a real spawner: a brigd without its API, driven by
 * lines on stdin; lines on stdout say what happens.
 *
 *     child_host DIRECTORY       for its store
 *
 * The words of a line are separated by tabs:
 *
 *     create KEY [memory=|pids=|ro=SOURCE:TARGET|trust|zygote=...] -- ARGUMENT...
 *     claim KEY [timeout=|output=|kill|keep|memory=|cpus=|pids=|disk=|answer=|stream] -- REQUEST
 *     inside KEY IN [timeout=...] -- REQUEST -- ARGUMENT...     a process in the sandbox of IN, which is parked
 *     cancel KEY | end KEY | release KEY | count KEY
 *     bench KEY N ZYGOTE REQUEST -- ARGUMENT...                 ("-": none, and an echo)
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/buf.h"
#include "base/err.h"
#include "codec/wire/le.h"
#include "engine/engine.h"
#include "loop/workers.h"
#include "sandbox/child/child.h"
#include "sandbox/private.h"

#define MAX_WORDS 64
#define ORG "org-00000000-0000-4000-8000-000000000000"

struct item {
    struct item *next;
    char key[64];
    struct child *child;
    bool keep;
    unsigned bench; /* claims still to be made */
    uint64_t claimed_ns;
    struct loop_timer timer;
};

static struct loop *loop;
static struct provider *provider;
static struct manager *manager;
static struct item *items;
static bool stop, ready;
static const char *const *bench_argv;
static uint64_t bench_ns[100000];
static char bench_zygote[64], bench_request[16384];
static unsigned n_bench;

/* ---- an audit that listens to nobody -------------------------------------------------------------------- */

struct audit;

bool audit_busy(const struct audit *audit UNUSED)
{
    return false;
}

uint64_t audit_add(struct audit *audit UNUSED, const struct audit_event *event,
                   void (*done)(void *ctx, int error) UNUSED, void *ctx UNUSED)
{
    printf("audit %s %s %s\n", event->action, event->outcome, event->detail);
    return 1;
}

/* ---- items ------------------------------------------------------------------------------------------------ */

static struct item *find(const char *key)
{
    struct item *item = items;

    while (item && strcmp(item->key, key) != 0)
        item = item->next;
    return item;
}

static struct item *add(const char *key)
{
    struct item *item = mem_zalloc(sizeof *item);

    if (!item)
        abort();
    snprintf(item->key, sizeof item->key, "%s", key);
    item->next = items;
    items = item;
    return item;
}

static void removed(struct item *item)
{
    struct item **at = &items;

    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    free(item);
}

/* Control characters as a hexadecimal escape: one line is one line. */
static void put_text(const char *name, const char *text, size_t len)
{
    printf(" %s=", name);
    for (size_t i = 0; i < len; i++)
        if (text[i] > ' ' && text[i] < 127 && text[i] != '\\')
            putchar(text[i]);
        else
            printf("\\x%02x", (unsigned char)text[i]);
}

/* ---- what happens --------------------------------------------------------------------------------------------- */

static void claim(struct item *item, char **words, unsigned n, const char *request, size_t len);
static void create(struct item *item, char **words, unsigned n, const char *const *argv);

/* A while after it was parked: what made it, and what ended the last one, is over. */
static void on_bench(struct loop_timer *timer)
{
    struct item *item = timer->ctx;

    item->claimed_ns = clock_mono_ns();
    claim(item, NULL, 0, bench_request, strlen(bench_request));
}

static void bench_soon(struct item *item)
{
    item->timer = (struct loop_timer){.fn = on_bench, .ctx = item, .pos = item->timer.pos};
    if (loop_timer_set(loop, &item->timer, loop_now_ns() + 30 * NS_PER_MS, NULL) < 0)
        abort();
}

static void on_parked(void *ctx, struct child *child)
{
    struct item *item = ctx;

    if (item->bench) {
        bench_soon(item);
        return;
    }
    printf("parked %s sandbox=%s memory=%" PRIu64 " zygote=%d\n", item->key, child_sandbox_id(child),
           child_memory(child), child_of_zygote(child));
}

static void on_lost(void *ctx, struct child *child UNUSED, const struct brig_err *why)
{
    struct item *item = ctx;

    printf("lost %s %s\n", item->key, why->message);
    removed(item);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void bench_done(struct item *item)
{
    bench_ns[n_bench++] = clock_mono_ns() - item->claimed_ns;
    if (--item->bench > 0) {
        create(item, NULL, 0, bench_argv);
        return;
    }
    qsort(bench_ns, n_bench, sizeof bench_ns[0], by_size);
    printf("bench %s n=%u p50=%.1fus p90=%.1fus p99=%.1fus min=%.1fus\n", item->key, n_bench,
           (double)bench_ns[n_bench / 2] / 1e3, (double)bench_ns[n_bench * 9 / 10] / 1e3,
           (double)bench_ns[n_bench * 99 / 100] / 1e3, (double)bench_ns[0] / 1e3);
    n_bench = 0;
    removed(item);
}

static void on_done(void *ctx, const struct child_done *done)
{
    struct item *item = ctx;

    if (item->bench) {
        if (!done->answer)
            printf("bench-failed %s %s\n", brig_cause_name(done->cause), done->detail);
        bench_done(item);
        return;
    }
    printf("done %s cause=%s code=%d signal=%d hit=%x started=%d large=%d broken=%d complete=%d cpu=%" PRIu64
           " peak=%" PRIu64 " pids=%" PRIu64 " memory=%" PRIu64 " cut=%d,%d allowed=%" PRIu64 " denied=%" PRIu64,
           item->key, brig_cause_name(done->cause), done->exit_code, done->signal, done->limits_hit, done->started,
           done->answer_too_large, done->answer_broken, done->protection_complete, done->usage.cpu_ms,
           done->usage.memory_peak_bytes, done->usage.pids_peak, done->limits.memory, done->truncated[1],
           done->truncated[2], done->network.allowed, done->network.denied);
    put_text("out", done->output[1], done->output_len[1] < 2000 ? done->output_len[1] : 2000);
    put_text("err", done->output[2], done->output_len[2] < 2000 ? done->output_len[2] : 2000);
    printf(" outlen=%zu errlen=%zu answerlen=%zu", done->output_len[1], done->output_len[2], done->answer_len);
    if (done->answer)
        put_text("answer", done->answer, done->answer_len < 2000 ? done->answer_len : 2000);
    put_text("detail", done->detail, strlen(done->detail));
    printf("\n");
    if (!item->keep)
        removed(item);
}

static void on_stream(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    printf("stream %s %u", ((struct item *)ctx)->key, stream);
    put_text("data", (const char *)data, len < 100 ? len : 100);
    printf("\n");
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

static uint64_t number_of(const char *word, const char *name, uint64_t before)
{
    size_t len = strlen(name);

    return strncmp(word, name, len) == 0 && word[len] == '=' ? strtoull(word + len + 1, NULL, 10) : before;
}

static void create(struct item *item, char **words, unsigned n, const char *const *argv)
{
    const struct child_events events = {on_parked, on_lost, item};
    struct child_spec spec = {.org_id = ORG, .argv = argv};
    struct brig_bind binds[8];
    struct brig_err err = {.message = ""};

    if (item->bench && bench_zygote[0] != '-')
        spec.zygote = bench_zygote;
    for (unsigned i = 0; i < n; i++) {
        char *colon = strchr(words[i], ':');
        spec.limits.memory = number_of(words[i], "memory", spec.limits.memory);
        spec.limits.pids = number_of(words[i], "pids", spec.limits.pids);
        if (strncmp(words[i], "zygote=", 7) == 0)
            spec.zygote = words[i] + 7;
        if (strncmp(words[i], "ro=", 3) == 0 && colon) {
            *colon++ = '\0';
            binds[spec.n_binds++] = (struct brig_bind){.source = words[i] + 3, .target = colon, .read_only = true};
        }
    }
    spec.binds = binds;
    if (child_create(manager, &spec, &events, &item->child, &err) < 0) {
        printf("refused %s %s\n", item->key, err.message);
        removed(item);
    }
}

static struct child_claim claim_of(struct item *item, char **words, unsigned n, const char *text, size_t len)
{
    static struct buf request; /* The claim takes it. */
    struct child_claim claim = {.request = &request, .timeout_ms = 60000, .done = on_done, .ctx = item};
    uint8_t head[CHILD_FRAME_HEAD];

    buf_done(&request);
    request = BUF_INIT(CHILD_FRAME_HEAD + CHILD_FRAME_MAX);
    le_put_u32(head, (uint32_t)len);
    if (buf_append(&request, head, sizeof head) < 0 || buf_append(&request, text, len) < 0)
        abort();

    for (unsigned i = 0; i < n; i++) {
        claim.timeout_ms = number_of(words[i], "timeout", claim.timeout_ms);
        claim.output = number_of(words[i], "output", claim.output);
        claim.answer_max = number_of(words[i], "answer", claim.answer_max);
        claim.limits.memory = number_of(words[i], "memory", claim.limits.memory);
        claim.limits.cpus = number_of(words[i], "cpus", claim.limits.cpus);
        claim.limits.pids = number_of(words[i], "pids", claim.limits.pids);
        claim.limits.disk = number_of(words[i], "disk", claim.limits.disk);
        claim.kill_on_output = claim.kill_on_output || strcmp(words[i], "kill") == 0;
        claim.keep_files = claim.keep_files || strcmp(words[i], "keep") == 0;
        if (strcmp(words[i], "stream") == 0)
            claim.output_data = on_stream;
    }
    item->keep = claim.keep_files;
    return claim;
}

static void claim(struct item *item, char **words, unsigned n, const char *request, size_t len)
{
    const struct child_claim wanted = claim_of(item, words, n, request, len);
    struct brig_err err = {.message = ""};

    if (child_claim(item->child, &wanted, &err) < 0) {
        printf("refused %s %s\n", item->key, err.message);
        removed(item);
    }
}

static void inside(struct item *item, const char *key, char **words, unsigned n, const char *request,
                   const char *const *argv)
{
    const struct child_claim wanted = claim_of(item, words, n, request, strlen(request));
    const struct child_spec spec = {.org_id = ORG, .argv = argv};
    struct brig_err err = {.message = ""};
    const struct item *host = find(key);

    if (!host || child_in_sandbox(child_sbox(host->child), &spec, &wanted, &item->child, &err) < 0) {
        printf("refused %s %s\n", item->key, err.message);
        removed(item);
    }
}

/* How many words there are before "--". */
static unsigned before_dashes(char **words, unsigned n)
{
    unsigned i = 0;

    while (i < n && strcmp(words[i], "--") != 0)
        i++;
    return i;
}

static void obey(char *line)
{
    static char bench_memory[65536];
    static const char *bench_words[MAX_WORDS];
    char *words[MAX_WORDS + 1], *save = NULL;
    unsigned n = 0;

    for (char *word = strtok_r(line, "\t\n", &save); word && n < MAX_WORDS; word = strtok_r(NULL, "\t\n", &save))
        words[n++] = word;
    words[n] = NULL;
    if (n < 2)
        return;
    struct item *item = find(words[1]);
    unsigned at = 2 + before_dashes(words + 2, n - 2);
    const char *const *rest = at < n ? (const char *const *)(words + at + 1) : NULL;
    if (strcmp(words[0], "create") == 0 && rest) {
        create(add(words[1]), words + 2, at - 2, rest);
    } else if (strcmp(words[0], "count") == 0) {
        struct manager_stats stats;
        manager_stats(manager, &stats);
        printf("count %s children=%zu sandboxes=%zu listed=%d created=%" PRIu64 " events=%" PRIu64 "\n", words[1],
               manager->n_children, manager->count, manager_first(manager) != NULL, stats.created, manager->n_events);
    } else if (strcmp(words[0], "inside") == 0 && rest) {
        unsigned second = at + 1 + before_dashes(words + at + 1, n - at - 1);
        inside(add(words[1]), words[2], words + 3, at - 3, rest[0], (const char *const *)(words + second + 1));
    } else if (strcmp(words[0], "bench") == 0 && rest) {
        char *to = bench_memory;
        unsigned i = 0;
        for (; rest[i]; i++) {
            bench_words[i] = to;
            to += snprintf(to, sizeof bench_memory - (size_t)(to - bench_memory), "%s", rest[i]) + 1;
        }
        bench_words[i] = NULL;
        bench_argv = bench_words;
        item = add(words[1]);
        item->bench = (unsigned)strtoul(words[2], NULL, 10);
        snprintf(bench_zygote, sizeof bench_zygote, "%s", words[3]);
        snprintf(bench_request, sizeof bench_request, "%s", words[4]);
        create(item, NULL, 0, bench_argv);
    } else if (!item) {
        printf("unknown %s\n", words[1]);
    } else if (strcmp(words[0], "claim") == 0 && rest) {
        claim(item, words + 2, at - 2, rest[0], strlen(rest[0]));
    } else if (strcmp(words[0], "cancel") == 0) {
        child_cancel(item->child, "by request");
    } else if (strcmp(words[0], "end") == 0) {
        child_end(item->child);
        removed(item);
    } else if (strcmp(words[0], "release") == 0) {
        child_release(item->child);
        removed(item);
    }
}

static char lines[1 << 20];
static size_t have;

static void on_stdin(struct loop_source *source, uint32_t events UNUSED)
{
    ssize_t n = have < sizeof lines ? read(0, lines + have, sizeof lines - have) : -1;

    if (n <= 0) {
        stop = true;
        loop_remove(loop, source);
        return;
    }
    have += (size_t)n;
    for (char *end; (end = memchr(lines, '\n', have));) {
        *end = '\0';
        obey(lines);
        have -= (size_t)(end + 1 - lines);
        memmove(lines, end + 1, have);
    }
}

static void on_ready(void *ctx UNUSED)
{
    ready = true;
    printf("ready\n");
}

static void on_gone(void *ctx UNUSED, const struct brig_err *why)
{
    printf("gone %s\n", why->message);
    stop = true;
}

static void on_shut(void *ctx UNUSED)
{
    printf("shut\n");
    stop = true;
}

int main(int argc, char **argv)
{
    struct loop_source input = {.fd = -1, .fn = on_stdin};
    struct workers *workers = NULL;
    struct store *store = NULL;
    struct config config = {.max_sandboxes = 1,
                            .tools_max_runs = 300,
                            .idle_timeout_s = 1,
                            .cleanup_interval = 1,
                            .create_queue = 1,
                            .gate_private_ranges = (char *)(uintptr_t) "admin",
                            .templates = (char *)(uintptr_t) "",
                            .gate_ca_bundle = (char *)(uintptr_t) "",
                            .on_shutdown = (char *)(uintptr_t) "keep"};
    char url[4200];
    struct brig_err err = {.message = ""};
    int fd = -1;
    pid_t forked;

    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(url, sizeof url, "sqlite:%s/brig.db", argv[1]);
    int r = loop_create(&loop, &err);
    r = r < 0 ? r : workers_create(loop, 1, &workers, &err);
    r = r < 0 ? r : store_open(loop, workers, url, &store, &err);
    r = r < 0 ? r : engine_spawn(NULL, &fd, &forked, &err);
    r = r < 0 ? r : provider_local_create(loop, fd, &provider, &err);
    if (r == 0) {
        const struct manager_options options = {.loop = loop, .provider = provider, .store = store, .config = &config};
        provider->gone = on_gone;
        r = manager_create(&options, on_ready, NULL, &manager, &err);
    }
    while (r == 0 && !ready)
        r = loop_run_once(loop, -1, &err);
    r = r < 0 ? r : loop_add(loop, &input, 0, EPOLLIN, &err);
    while (r == 0 && !stop)
        r = loop_run_once(loop, -1, &err);
    if (r == 0 && manager) {
        stop = false;
        manager_shut_down(manager, on_shut, NULL);
        while (r == 0 && !stop)
            r = loop_run_once(loop, -1, &err);
    }
    if (r < 0)
        fprintf(stderr, "child_host: %s\n", err.message);
    manager_destroy(manager);
    if (provider)
        provider->ops->destroy(provider);
    store_close(store);
    workers_destroy(workers);
    loop_destroy(loop);
    return r < 0;
}
