/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engines.c: a host of the library on cgroup v2. A cgroup that has processes cannot hand controllers down, so the first
 * engine moves this process into a leaf. What follows must hold then: more engines beside it and after it, each with
 * every layer on; and at the end this process, and children it has had meanwhile, are back where they came from.
 */
#include <brig.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(what)                                                                           \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "engines.c:%d: not so: %s (%s)\n", __LINE__, #what, last.message); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static struct brig_err last;

static struct brig_engine *make_engine(unsigned pool)
{
    const struct brig_engine_options options = {.size = sizeof options, .pool = pool};
    struct brig_engine *engine = NULL;

    EXPECT(brig_engine_create(&options, &engine, &last) == 0);
    return engine;
}

static void run_all_layers(struct brig_engine *engine)
{
    const char *const argv[] = {"/bin/true", NULL};
    const struct brig_spec spec = {.size = sizeof spec, .argv = argv, .require = BRIG_REQUIRE_ALL};
    struct brig_run *run = NULL;

    EXPECT(brig_run_start(engine, &spec, &run, &last) == 0 && brig_run_wait(run, &last) == 0);
    const struct brig_receipt *receipt = brig_run_receipt(run);
    snprintf(last.message, sizeof last.message, "%s", receipt->detail);
    EXPECT(receipt->cause == BRIG_CAUSE_EXITED && receipt->exit_code == 0 && receipt->protection_complete);
    brig_run_destroy(run);
}

/* The v2 cgroup of a process: the only line of a pure v2 host. */
static void cgroup_of(pid_t pid, char *out, size_t size)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    FILE *file = fopen(path, "re");
    EXPECT(file && fgets(out, (int)size, file));
    fclose(file);
}

static void until_in(pid_t pid, const char *want)
{
    const struct timespec pause_time = {.tv_nsec = 50000000};
    char now[512] = "";

    for (int i = 0; i < 400 && strcmp(now, want) != 0; i++) {
        if (i > 0)
            nanosleep(&pause_time, NULL);
        cgroup_of(pid, now, sizeof now);
    }
    snprintf(last.message, sizeof last.message, "%.200s", now);
    EXPECT(strcmp(now, want) == 0);
}

/* The one spawner in the leaf. home: "0::/path\n". */
static void kill_spawner(const char *home)
{
    char path[600], name[32];
    int pid = 0, killed = 0;

    snprintf(path, sizeof path, "/sys/fs/cgroup%.*s/brig-self/cgroup.procs", (int)strcspn(home + 3, "\n"), home + 3);
    FILE *procs = fopen(path, "re");
    EXPECT(procs);
    while (fscanf(procs, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        FILE *comm = fopen(path, "re");
        if (comm && fgets(name, sizeof name, comm) && strcmp(name, "brig-spawner\n") == 0)
            killed += kill(pid, SIGKILL) == 0;
        if (comm)
            fclose(comm);
    }
    fclose(procs);
    EXPECT(killed >= 1); /* one more may be on its way out */
}

int main(void)
{
    char home[512];

    cgroup_of(getpid(), home, sizeof home);
    struct brig_engine *first = make_engine(2);
    pid_t child = fork(); /* lives in the leaf; execve closes its copy of the engine's socket */
    if (child == 0) {
        execl("/bin/sleep", "sleep", "1000", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 4; i++)
        run_all_layers(first);
    struct brig_engine *second = make_engine(0); /* beside the first */
    run_all_layers(second);
    run_all_layers(first);
    brig_engine_destroy(first);
    for (int i = 0; i < 20; i++) /* while the first one's spawner goes, and after */
        run_all_layers(second);
    brig_engine_destroy(second);
    until_in(getpid(), home);
    until_in(child, home);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 5; i++) { /* one after another, the spawner before still on its way out */
        struct brig_engine *engine = make_engine(0);
        run_all_layers(engine);
        brig_engine_destroy(engine);
    }
    for (int i = 0; i < 3; i++) { /* killed, with a sandbox alive: its reaper puts all back */
        struct brig_engine *engine = make_engine(1);
        EXPECT(brig_engine_fill(engine, &last) == 0);
        kill_spawner(home);
        brig_engine_destroy(engine);
        engine = make_engine(0);
        run_all_layers(engine);
        brig_engine_destroy(engine);
    }
    until_in(getpid(), home);
    puts("all layers, all engines");
    return 0;
}
