/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_cycle.c: create, run, destroy, COUNT times through one engine with a pool of POOL, and now and then a new
 * engine; for tests/long. After WARM cycles and at the end it says what this process holds, and waits for a line: the
 * test looks at the spawner meanwhile.
 *
 *     library_cycle COUNT POOL WARM
 */
#include <unistd.h>

#include "host.h"

static void report(const char *when)
{
    char line[32];
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        exit(1);
    fclose(f);
    snprintf(line, sizeof line, "%s %zu %ld", when, count_fds(), pages * 4);
    say_and_wait(line);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long count = strtol(argv[1], NULL, 10), warm = strtol(argv[3], NULL, 10);
    struct brig_engine *engine = make_engine((unsigned)strtol(argv[2], NULL, 10));
    static const unsigned flags[] = {0, BRIG_RUN_KEEP_OUTPUT, BRIG_RUN_STDIN | BRIG_RUN_KEEP_OUTPUT, BRIG_RUN_TTY};

    for (long i = 0; i < count; i++) {
        struct brig_run *run =
            start_shell(engine, i % 7 ? "exit 0" : "echo out; echo err >&2; setsid sleep 1000 & exit 0", flags[i % 4]);
        if (i % 11 == 0)
            brig_run_cancel(run);
        const struct brig_receipt *receipt = wait_for(run);
        EXPECT(receipt->cause == BRIG_CAUSE_EXITED ? receipt->exit_code == 0
                                                   : i % 11 == 0 && receipt->cause == BRIG_CAUSE_CANCELLED);
        brig_run_destroy(run);
        if (i + 1 == warm)
            report("warm");
    }
    report("done");
    brig_engine_destroy(engine);
    return 0;
}
