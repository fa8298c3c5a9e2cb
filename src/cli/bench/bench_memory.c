/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_memory.c: measures the whole memory of a waiting sandbox: MemAvailable without and with a thousand of them, so
 * that page tables, kernel objects and slabs count as well. Caches are dropped where we may (root), and a reading is
 * taken only once it has settled, because namespaces are torn down in the background.
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

#define PARKED 1000
#define ROUNDS 3
#define SETTLED_KIB 256.0 /* what readings 200 ms apart may still differ by */
#define SETTLE_TRIES 100

static double available_kib(void)
{
    char text[4096];
    AUTO_FD int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    const char *line = strstr(text, "MemAvailable:");
    return line ? strtod(line + strlen("MemAvailable:"), NULL) : -1;
}

static void drop_caches(void)
{
    sync();
    AUTO_FD int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && cli_write(fd, "3", 1) < 0)
        return; /* not root: the caches are in both readings */
}

static double settled_kib(void)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    double last = -1e18;
    unsigned calm = 0;
    drop_caches();
    for (int i = 0; i < SETTLE_TRIES && calm < 4; i++) {
        double now = available_kib();
        double change = now > last ? now - last : last - now;
        calm = change <= SETTLED_KIB ? calm + 1 : 0;
        last = now;
        nanosleep(&pause, NULL);
    }
    drop_caches();
    return available_kib();
}

int bench_memory(struct bench *bench, struct brig_err *err)
{
    struct bench_samples samples = {0};
    int r = bench_samples_init(&samples, ROUNDS) < 0 ? err_nomem(err) : 0;
    for (int i = 0; r == 0 && i < ROUNDS; i++) {
        struct brig_engine *engine = NULL;
        double before = settled_kib();
        r = bench_engine(PARKED, &engine, err);
        if (r < 0)
            break;
        double after = settled_kib();
        brig_engine_destroy(engine);
        bench_say("memory: %d idle sandboxes take %.0f MiB", PARKED, (before - after) / 1024);
        bench_samples_add(&samples, (before - after) / PARKED);
    }
    if (r == 0) {
        struct bench_row *row = bench_add_row(bench, "idle sandbox", "KiB", &samples);
        if (row)
            row->bound = 450;
    }
    bench_samples_done(&samples);
    return r;
}
