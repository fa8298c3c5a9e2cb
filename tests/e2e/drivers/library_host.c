/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_host.c: programs that use the library as its users would, one per word on the command line. Each ends with 0
 * when all was as it should be. What can only be seen from outside (processes, cgroups) is looked at by
 * test_library.py, which some of them tell when to look.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library_host.h"

/* ---- the host's signals and children -------------------------------------------------------------------- */

static volatile sig_atomic_t signals_seen;

static void count_signal(int signum)
{
    (void)signum;
    signals_seen++;
}

static void host_is_left_alone(void)
{
    struct sigaction action = {.sa_handler = count_signal}, after;
    sigset_t before_mask, after_mask;

    memset(&before_mask, 0, sizeof before_mask); /* the kernel fills in only what it has */
    memset(&after_mask, 0, sizeof after_mask);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP && s != SIGSEGV && s != SIGABRT)
            sigaction(s, &action, NULL);
    sigprocmask(SIG_SETMASK, NULL, &before_mask);
    for (int i = 0; i < 3; i++) {
        struct brig_engine *engine = make_engine((unsigned)i);
        for (int k = 0; k < 3; k++) {
            struct brig_run *run = start_shell(engine, "echo x | cat", 0);
            EXPECT(wait_for(run)->exit_code == 0);
            errno = 0;
            EXPECT(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
            brig_run_destroy(run);
        }
        brig_engine_destroy(engine);
        EXPECT(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
    }
    sigprocmask(SIG_SETMASK, NULL, &after_mask);
    EXPECT(memcmp(&before_mask, &after_mask, sizeof before_mask) == 0);
    EXPECT(signals_seen == 0);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP && s != SIGSEGV && s != SIGABRT)
            EXPECT(sigaction(s, NULL, &after) == 0 && after.sa_handler == count_signal);
}

/* Its children stay its own: one that ends while the library works is still there to be waited for. */
static void children_of_the_host(void)
{
    struct brig_engine *engine = make_engine(0);
    pid_t child = fork();
    int status = 0;

    if (child == 0)
        _exit(42);
    struct brig_run *run = start_shell(engine, "sleep 0.1", 0);
    wait_for(run);
    EXPECT(waitpid(-1, &status, 0) == child && WEXITSTATUS(status) == 42);
    brig_engine_destroy(engine);
}

/* ---- many at once --------------------------------------------------------------------------------------- */

#define MANY 50

struct many {
    char got[64];
    size_t len;
    int index, done;
};

static void on_output(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len)
{
    struct many *m = ctx;

    (void)run;
    EXPECT(stream == BRIG_STDOUT && m->len + len < sizeof m->got && m->done == 0);
    memcpy(m->got + m->len, data, len);
    m->len += len;
}

static void on_done(void *ctx, struct brig_run *run)
{
    struct many *m = ctx;

    EXPECT(brig_run_done(run) && brig_run_receipt(run) != NULL);
    m->done++;
}

void run_many(struct brig_engine *engine, int count)
{
    struct many many[MANY] = {0};
    struct brig_run *runs[MANY];

    for (int i = 0; i < count; i++) {
        char script[64];
        snprintf(script, sizeof script, "echo %d; sleep 0.05; exit %d", i, i);
        const char *const argv[] = {"/bin/sh", "-c", script, NULL};
        const struct brig_spec spec = {.size = sizeof spec,
                                       .argv = argv,
                                       .on_output = on_output,
                                       .on_done = on_done,
                                       .ctx = &many[i],
                                       .limits = {.memory = 32 << 20}};
        many[i].index = i;
        EXPECT(brig_run_start(engine, &spec, &runs[i], &host_err) == 0);
        EXPECT(brig_run_receipt(runs[i]) == NULL);
    }
    for (bool all = false; !all;) {
        struct pollfd fd = {.fd = brig_engine_fd(engine), .events = POLLIN};
        EXPECT(poll(&fd, 1, 60000) == 1);
        EXPECT(brig_engine_dispatch(engine, 0, &host_err) == 0);
        all = true;
        for (int i = 0; i < count; i++)
            all = all && many[i].done;
    }
    for (int i = 0; i < count; i++) {
        char want[16];
        snprintf(want, sizeof want, "%d\n", i);
        const struct brig_receipt *receipt = brig_run_receipt(runs[i]);
        EXPECT(many[i].done == 1 && strcmp(many[i].got, want) == 0);
        EXPECT(receipt->cause == BRIG_CAUSE_EXITED && receipt->exit_code == i && brig_exit_status(receipt) == i);
        for (int k = 0; k < i; k++)
            EXPECT(strcmp(receipt->id, brig_run_receipt(runs[k])->id) != 0 &&
                   strcmp(receipt->sandbox_id, brig_run_receipt(runs[k])->sandbox_id) != 0);
    }
    for (int i = 0; i < count; i++)
        brig_run_destroy(runs[i]);
}

static void many_at_once(void)
{
    struct brig_engine *engine = make_engine(0);

    run_many(engine, MANY);
    brig_engine_destroy(engine);
}

/* ---- threads -------------------------------------------------------------------------------------------- */

static void *thread_engine(void *arg)
{
    struct brig_engine *engine = make_engine(0);

    (void)arg;
    run_many(engine, 20);
    brig_engine_destroy(engine);
    return NULL;
}

static volatile int stop_noise;

/* A thread that holds locks most of the time: a fork of the host would inherit them held. */
static void *noise(void *arg)
{
    (void)arg;
    while (!stop_noise) {
        void *p[64];
        for (int i = 0; i < 64; i++)
            p[i] = malloc((size_t)(i * 700 + 1));
        for (int i = 0; i < 64; i++)
            free(p[i]);
        FILE *f = fopen("/dev/null", "w");
        if (f)
            fclose(f);
    }
    return NULL;
}

static void two_engines_in_two_threads(void)
{
    pthread_t workers[2], noisy[2];

    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&noisy[i], NULL, noise, NULL) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&workers[i], NULL, thread_engine, NULL) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i], NULL);
    stop_noise = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(noisy[i], NULL);
}

static void engines_in_a_noisy_host(void)
{
    pthread_t noisy[4];

    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&noisy[i], NULL, noise, NULL) == 0);
    for (int i = 0; i < 15; i++) {
        struct brig_engine *engine = make_engine(0);
        struct brig_run *run = start_shell(engine, "exit 7", 0);
        EXPECT(wait_for(run)->exit_code == 7);
        brig_engine_destroy(engine); /* and the run with it */
    }
    stop_noise = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(noisy[i], NULL);
}

/* An engine belongs to one thread at a time, not to the thread that made it. */
static void *use_engine(void *arg)
{
    struct brig_run *run = start_shell(arg, "exit 3", 0);

    EXPECT(wait_for(run)->exit_code == 3);
    brig_run_destroy(run);
    return NULL;
}

static void handed_to_another_thread(void)
{
    struct brig_engine *engine = make_engine(0);
    pthread_t thread;

    for (int i = 0; i < 3; i++) {
        EXPECT(pthread_create(&thread, NULL, use_engine, engine) == 0);
        pthread_join(thread, NULL); /* a spawner tied to this thread's life would be gone now */
    }
    use_engine(engine);
    brig_engine_destroy(engine);
}

/* ---- output --------------------------------------------------------------------------------------------- */

static void pulled(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_shell(engine, "seq 100000; echo end >&2", BRIG_RUN_PULL);
    char data[777], errors[16];
    size_t total = 0, errors_len = 0;
    int n, m;

    do {
        n = brig_run_read(run, BRIG_STDOUT, data, sizeof data);
        m = brig_run_read(run, BRIG_STDERR, errors + errors_len, sizeof errors - errors_len);
        total += n > 0 ? (size_t)n : 0;
        errors_len += m > 0 ? (size_t)m : 0;
        EXPECT((n >= 0 || n == -ENODATA) && (m >= 0 || m == -ENODATA));
        if (n <= 0 && m <= 0 && (n == 0 || m == 0))
            EXPECT(brig_engine_dispatch(engine, 1000, &host_err) == 0);
    } while (n != -ENODATA || m != -ENODATA);
    EXPECT(total == 588895 && errors_len == 4 && memcmp(errors, "end\n", 4) == 0);
    EXPECT(brig_run_done(run) && brig_run_read(run, BRIG_STDOUT, data, sizeof data) == -ENODATA);
    EXPECT(brig_run_read(run, (enum brig_stream)3, data, sizeof data) == -EINVAL);
    brig_run_destroy(run);

    run = start_shell(engine, "echo kept", BRIG_RUN_PULL | BRIG_RUN_KEEP_OUTPUT);
    EXPECT(kept_is(wait_for(run), BRIG_STDOUT, "kept\n"));
    EXPECT(brig_run_read(run, BRIG_STDOUT, data, sizeof data) == 5);
    brig_run_destroy(run);

    run = start_shell(engine, "echo x", 0);
    EXPECT(brig_run_read(run, BRIG_STDOUT, data, sizeof data) == -EINVAL);
    brig_engine_destroy(engine);
}

static void kept(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_shell(engine, "printf 'a\\000b'; echo err >&2", BRIG_RUN_KEEP_OUTPUT);
    const struct brig_receipt *receipt = wait_for(run);

    EXPECT(receipt->output_len[BRIG_STDOUT] == 3 && memcmp(receipt->output[BRIG_STDOUT], "a\0b", 3) == 0);
    EXPECT(kept_is(receipt, BRIG_STDERR, "err\n"));
    EXPECT(receipt->size == sizeof *receipt && receipt->started && receipt->protection_complete);
    brig_run_destroy(run);
    run = start_shell(engine, "echo out", 0);
    receipt = wait_for(run);
    EXPECT(receipt->output_len[BRIG_STDOUT] == 0);
    brig_engine_destroy(engine);
}

/* ---- stdin, signals, the end ---------------------------------------------------------------------------- */

static void stdin_and_epipe(void)
{
    struct brig_engine *engine = make_engine(0);
    struct sigaction action = {.sa_handler = count_signal};
    char block[4096];
    int n;

    sigaction(SIGPIPE, &action, NULL);
    struct brig_run *run = start_shell(engine, "cat", BRIG_RUN_STDIN | BRIG_RUN_KEEP_OUTPUT);
    EXPECT(brig_run_write(run, "hello", 5, &host_err) == 5);
    brig_run_close_stdin(run);
    EXPECT(kept_is(wait_for(run), BRIG_STDOUT, "hello"));
    EXPECT(brig_run_write(run, "x", 1, &host_err) < 0);
    brig_run_destroy(run);

    /* A program that does not read: the pipe fills, and nothing blocks. */
    memset(block, 'x', sizeof block);
    run = start_shell(engine, "exec sleep 1000", BRIG_RUN_STDIN);
    while ((n = brig_run_write(run, block, sizeof block, &host_err)) > 0)
        ;
    EXPECT(n == 0);
    brig_run_cancel(run);
    EXPECT(wait_for(run)->cause == BRIG_CAUSE_CANCELLED);
    brig_run_destroy(run);

    /* A program that closed it. */
    run = start_shell(engine, "exec <&-; echo closed; exec sleep 1000", BRIG_RUN_STDIN | BRIG_RUN_PULL);
    while (brig_run_read(run, BRIG_STDOUT, block, sizeof block) == 0)
        EXPECT(brig_engine_dispatch(engine, 1000, &host_err) == 0);
    host_err = (struct brig_err){0};
    while ((n = brig_run_write(run, "x", 1, &host_err)) == 1) /* brig-init closes its own copy in the same moment */
        EXPECT(brig_engine_dispatch(engine, 1, &host_err) == 0);
    EXPECT(n == -EPIPE && host_err.errnum == EPIPE && host_err.code == BRIG_E_GONE);
    EXPECT(signals_seen == 0);
    brig_run_destroy(run);
    brig_engine_destroy(engine);
}

static void cancelled(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_shell(engine, "trap '' TERM INT; echo before; while :; do sleep 0.02; done",
                                       BRIG_RUN_KEEP_OUTPUT | BRIG_RUN_PULL);
    char data[16];
    int n;

    while ((n = brig_run_read(run, BRIG_STDOUT, data, sizeof data)) == 0)
        EXPECT(brig_engine_dispatch(engine, 1000, &host_err) == 0);
    EXPECT(n == 7);
    brig_run_cancel(run);
    brig_run_cancel(run);
    const struct brig_receipt *receipt = wait_for(run);
    EXPECT(receipt->cause == BRIG_CAUSE_CANCELLED && brig_exit_status(receipt) == 125 && receipt->started);
    EXPECT(kept_is(receipt, BRIG_STDOUT, "before\n"));
    brig_run_cancel(run);
    EXPECT(brig_run_receipt(run)->cause == BRIG_CAUSE_CANCELLED);
    brig_run_destroy(run);

    /* Right after the start, before anything was built. */
    for (int i = 0; i < 20; i++) {
        run = start_shell(engine, "exec sleep 1000", 0);
        brig_run_cancel(run);
        EXPECT(wait_for(run)->cause == BRIG_CAUSE_CANCELLED);
        brig_run_destroy(run);
    }
    /* After the end it changes nothing. */
    run = start_shell(engine, "exit 5", 0);
    wait_for(run);
    brig_run_cancel(run);
    EXPECT(brig_run_receipt(run)->cause == BRIG_CAUSE_EXITED && brig_run_receipt(run)->exit_code == 5);
    brig_engine_destroy(engine);
}

static void cancel_from_output(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len)
{
    (void)ctx, (void)stream, (void)data, (void)len;
    brig_run_cancel(run);
    (void)!brig_run_signal(run, SIGTERM, NULL);
}

static void callbacks_may_call(void)
{
    struct brig_engine *engine = make_engine(0);
    const char *const argv[] = {"/bin/sh", "-c", "while echo x; do sleep 0.01; done", NULL};
    const struct brig_spec spec = {.size = sizeof spec, .argv = argv, .on_output = cancel_from_output};
    struct brig_run *run = NULL;

    EXPECT(brig_run_start(engine, &spec, &run, &host_err) == 0);
    EXPECT(wait_for(run)->cause == BRIG_CAUSE_CANCELLED);
    brig_engine_destroy(engine);
}

static void signals_reach_the_program(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run =
        start_shell(engine, "trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done", BRIG_RUN_PULL);
    char data[16];

    EXPECT(brig_run_signal(run, 0, &host_err) == -EINVAL && brig_run_signal(run, 65, &host_err) == -EINVAL);
    while (brig_run_read(run, BRIG_STDOUT, data, sizeof data) == 0)
        EXPECT(brig_engine_dispatch(engine, 1000, &host_err) == 0);
    EXPECT(brig_run_signal(run, SIGUSR1, &host_err) == 0);
    EXPECT(wait_for(run)->exit_code == 9);
    EXPECT(brig_run_signal(run, SIGUSR1, &host_err) == 0);
    EXPECT(brig_run_resize(run, 10, 10, &host_err) < 0 && host_err.code == BRIG_E_USAGE);
    brig_engine_destroy(engine);
}

static void terminal(void)
{
    struct brig_engine *engine = make_engine(0);
    const char *const argv[] = {"/bin/sh", "-c", "stty size; read x; stty size; echo \"got $x\"", NULL};
    const struct brig_spec spec = {.size = sizeof spec,
                                   .argv = argv,
                                   .flags = BRIG_RUN_TTY | BRIG_RUN_STDIN | BRIG_RUN_PULL | BRIG_RUN_KEEP_OUTPUT,
                                   .tty_rows = 11,
                                   .tty_cols = 22};
    struct brig_run *run = NULL;
    char data[256];

    EXPECT(brig_run_start(engine, &spec, &run, &host_err) == 0);
    while (brig_run_read(run, BRIG_STDOUT, data, sizeof data) == 0)
        EXPECT(brig_engine_dispatch(engine, 1000, &host_err) == 0);
    EXPECT(brig_run_resize(run, 33, 44, &host_err) == 0);
    EXPECT(brig_run_write(run, "word\n", 5, &host_err) == 5);
    const struct brig_receipt *receipt = wait_for(run);
    EXPECT(receipt->exit_code == 0);
    EXPECT(memmem(receipt->output[1], receipt->output_len[1], "11 22\r\n", 7) &&
           memmem(receipt->output[1], receipt->output_len[1], "33 44\r\n", 7));
    EXPECT(memmem(receipt->output[1], receipt->output_len[1], "got word\r\n", 10));
    brig_engine_destroy(engine);
}

static void json(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_shell(engine, "echo out; echo err >&2; exit 3", BRIG_RUN_KEEP_OUTPUT);
    char *text = NULL;
    size_t len = 0;

    EXPECT(brig_receipt_json(wait_for(run), &text, &len, &host_err) == 0 && len == strlen(text));
    fputs(text, stdout);
    free(text);
    brig_engine_destroy(engine);
}

static void names(void)
{
    EXPECT(strcmp(brig_layer_name(BRIG_LAYER_LANDLOCK), "landlock") == 0 &&
           brig_layer_parse("landlock") == BRIG_LAYER_LANDLOCK);
    EXPECT(brig_layer_parse("nothing") == -EINVAL && brig_profile_parse("paranoid") == BRIG_PROFILE_PARANOID);
    EXPECT(strcmp(brig_cause_name(BRIG_CAUSE_OOM), "oom") == 0 &&
           strcmp(brig_limit_name(BRIG_LIMIT_CPU_TIME), "cpu_time") == 0);
    EXPECT(brig_version()[0] && brig_commit()[0] && brig_protocol() >= 1 && brig_exit_status(NULL) == 125);
    struct brig_doctor doctor = {.size = sizeof doctor};
    EXPECT(brig_doctor(NULL, &doctor, &host_err) == 0 && doctor.n_rows > BRIG_LAYER_INODES && doctor.usable);
}

int main(int argc, char **argv)
{
#define WORD(name)  \
    {               \
#name, name \
    }
    static const struct {
        const char *name;
        void (*fn)(void);
    } words[] = {WORD(host_is_left_alone),
                 WORD(children_of_the_host),
                 WORD(many_at_once),
                 WORD(two_engines_in_two_threads),
                 WORD(engines_in_a_noisy_host),
                 WORD(handed_to_another_thread),
                 WORD(pulled),
                 WORD(kept),
                 WORD(stdin_and_epipe),
                 WORD(cancelled),
                 WORD(callbacks_may_call),
                 WORD(signals_reach_the_program),
                 WORD(terminal),
                 WORD(refusals),
                 WORD(sizes),
                 WORD(destroyed_while_running),
                 WORD(spawner_killed),
                 WORD(host_killed),
                 WORD(pool),
                 WORD(pool_is_single_use),
                 WORD(fill_without_a_pool),
                 WORD(descriptors),
                 WORD(descriptors_stay_outside),
                 WORD(busy_elsewhere),
                 WORD(forked),
                 WORD(json),
                 WORD(names)};

    for (size_t i = 0; argc == 2 && i < sizeof words / sizeof *words; i++)
        if (strcmp(argv[1], words[i].name) == 0) {
            words[i].fn();
            return 0;
        }
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            puts(words[i].name);
        return 0;
    }
    return 2;
}
