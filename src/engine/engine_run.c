/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_run.c: one run, from the engine's side: pipes in and out, the output limit, and the receipt.
 *
 * The order at the end matters. The spawner's DONE comes after every process of the sandbox is gone, so nothing can be
 * added to the pipes any more. It is read to the last byte, and only then is the run done.
 */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/list.h"
#include "base/mem.h"
#include "engine/engine.h"

static int send_to_spawner(struct brig_run *run, const void *msg, size_t len)
{
    return run->engine->gone ? -EPIPE : fd_send(run->engine->spawner_fd, msg, len, NULL, 0);
}

static void send_kill(struct brig_run *run, enum brig_cause cause)
{
    struct wire_kill msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KILL, run->number}, .cause = cause};

    if (!run->kill_sent && run->state != RUN_DONE)
        run->kill_sent = send_to_spawner(run, &msg, sizeof msg) == 0;
}

/* ---- output ---------------------------------------------------------------------------------------- */

static enum brig_stream stream_of(const struct brig_run *run, const struct pump *pump)
{
    return pump == &run->pump[BRIG_STDERR] ? BRIG_STDERR : BRIG_STDOUT;
}

static void on_data(struct pump *pump, const void *data, size_t len)
{
    struct brig_run *run = pump->ctx;
    enum brig_stream stream = stream_of(run, pump);
    uint64_t room = run->output_limit - run->output_seen;

    if (len > room) {
        len = (size_t)room;
        run->receipt.truncated[stream] = true;
        run->receipt.limits_hit |= 1u << BRIG_LIMIT_OUTPUT;
        if (run->flags & BRIG_RUN_KILL_ON_OUTPUT)
            send_kill(run, BRIG_CAUSE_OUTPUT_LIMIT);
    }
    if (len == 0)
        return;
    run->output_seen += len;
    if ((run->flags & (BRIG_RUN_KEEP_OUTPUT | BRIG_RUN_PULL)) && buf_append(&run->kept[stream], data, len) < 0)
        run->receipt.truncated[stream] = true; /* out of memory: said, not hidden */
    if (run->on_output && !(run->flags & BRIG_RUN_PULL))
        run->on_output(run->ctx, run, stream, data, len);
}

static void on_end(struct pump *pump, int error UNUSED)
{
    struct brig_run *run = pump->ctx;

    base_close_fd(&run->output_fd[stream_of(run, pump)]);
}

static int start_pump(struct brig_run *run, enum brig_stream stream, struct brig_err *err)
{
    int r = fd_set_nonblock(run->output_fd[stream]);

    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "output pipe");
    pump_init(&run->pump[stream], run->engine->loop, run->output_fd[stream], run->engine->chunk, ENGINE_CHUNK, on_data,
              on_end, run);
    return pump_proceed(&run->pump[stream], err);
}

static void drain(struct brig_run *run)
{
    for (int stream = BRIG_STDOUT; stream <= BRIG_STDERR; stream++) {
        if (run->output_fd[stream] < 0)
            continue;
        if (!run->pump[stream].on_data) { /* failed before it could flow */
            base_close_fd(&run->output_fd[stream]);
            continue;
        }
        pump_drain(&run->pump[stream], UINT64_MAX);
        pump_done(&run->pump[stream]);
        base_close_fd(&run->output_fd[stream]);
    }
    base_close_fd(&run->stdin_fd);
}

/* ---- what the spawner says -------------------------------------------------------------------------- */

void run_readings(struct brig_receipt *receipt, const struct reading readings[BRIG_LAYER_MAX])
{
    receipt->protection_complete = true;
    for (int i = 0; i < BRIG_LAYER_MAX; i++) {
        const struct reading *r = &readings[i];
        receipt->layers[i] = (struct brig_layer_state){.on = r->on,
                                                       .abi = i == BRIG_LAYER_LANDLOCK && r->on ? r->value : 0,
                                                       .by = reading_by_text((enum reading_by)r->by),
                                                       .why = reading_why_text((enum reading_why)r->why)};
        if (!r->on && (BRIG_REQUIRE_ALL & BRIG_LAYER_BIT(i)))
            receipt->protection_complete = false;
    }
}

void run_on_started(struct brig_run *run, const struct wire_started *msg, int *fds, size_t n_fds)
{
    if (run->state != RUN_WAITING)
        return;
    run->state = RUN_STARTED;
    run->receipt.started_at_ns = msg->at_ns;
    run_readings(&run->receipt, msg->readings);
    if ((run->flags & BRIG_RUN_TTY) && n_fds == 1) {
        run->output_fd[BRIG_STDOUT] = take_fd(&fds[0]);
        run->stdin_fd = fcntl(run->output_fd[BRIG_STDOUT], F_DUPFD_CLOEXEC, 0);
        if (run->stdin_fd < 0 || start_pump(run, BRIG_STDOUT, NULL) < 0)
            send_kill(run, BRIG_CAUSE_CANCELLED);
    }
}

void run_finish(struct brig_run *run)
{
    drain(run);
    run->state = RUN_DONE;
    for (int stream = BRIG_STDOUT; stream <= BRIG_STDERR; stream++)
        if (run->flags & BRIG_RUN_KEEP_OUTPUT) {
            run->receipt.output[stream] = run->kept[stream].data;
            run->receipt.output_len[stream] = run->kept[stream].len;
        }
    if (run->on_done)
        run->on_done(run->ctx, run);
}

void run_on_done(struct brig_run *run, const struct wire_done *msg)
{
    struct brig_receipt *r = &run->receipt;

    if (run->state == RUN_DONE)
        return;
    r->cause = msg->cause < BRIG_CAUSE_MAX ? (enum brig_cause)msg->cause : BRIG_CAUSE_HOST_ERROR;
    r->exit_code = msg->exit_code;
    r->signal = msg->signal;
    r->started = msg->started;
    r->limits_hit |= msg->limits_hit;
    r->limits = msg->limits;
    r->limits.output = run->output_limit;
    r->usage = msg->usage;
    r->ended_at_ns = msg->ended_at_ns;
    if (r->started_at_ns == 0)
        r->started_at_ns = r->ended_at_ns;
    memcpy(r->sandbox_id, msg->sandbox_id, sizeof r->sandbox_id - 1);
    memcpy(r->detail, msg->detail, sizeof r->detail - 1);
    run_readings(r, msg->readings);
    if (!run_gate_end(run))
        run_finish(run);
}

void run_on_gone(struct brig_run *run, const struct brig_err *why)
{
    struct brig_receipt *r = &run->receipt;

    if (run->state == RUN_DONE)
        return;
    /* A spawner that never came up is a fault of the host; one that died took the sandbox with it. */
    r->cause = why->code == BRIG_E_GONE ? BRIG_CAUSE_SANDBOX_GONE : BRIG_CAUSE_HOST_ERROR;
    memcpy(r->detail, why->message, sizeof r->detail - 1);
    r->ended_at_ns = clock_real_ns();
    if (r->started_at_ns == 0)
        r->started_at_ns = r->ended_at_ns;
    run_gate_abandon(run);
    run_finish(run);
}

/* ---- the public side -------------------------------------------------------------------------------- */

static int make_pipes(struct brig_run *run, int child_fds[3], struct brig_err *err)
{
    for (int i = run->flags & BRIG_RUN_STDIN ? 0 : 1; i < 3; i++) {
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) < 0)
            return err_host(err, "pipe");
        if (i == 0)
            run->stdin_fd = pair[1];
        else
            run->output_fd[i] = pair[0];
        child_fds[i] = i == 0 ? pair[0] : pair[1];
    }
    if (run->stdin_fd >= 0 && fd_set_nonblock(run->stdin_fd) < 0)
        return err_host(err, "stdin pipe");
    int r = start_pump(run, BRIG_STDOUT, err);
    return r < 0 ? r : start_pump(run, BRIG_STDERR, err);
}

int run_ask(struct brig_run *run, const struct wire_run *msg, const int *fds, size_t n_fds, struct brig_err *err)
{
    int r = run->engine->gone ? -EPIPE : fd_send(run->engine->spawner_fd, msg, sizeof *msg, fds, n_fds);

    /* One that never came up has told why, and that is the end of this run, whoever is faster. */
    if (r == -EPIPE && !run->engine->gone && !run->engine->ready)
        return 0;
    if (r < 0) {
        (void)err_set(err, BRIG_E_GONE, -r, "ask the spawner for a run");
        /* Why it is gone may be waiting to be read. */
        if (brig_engine_dispatch(run->engine, 0, NULL) == 0 && run->engine->gone && err)
            *err = run->engine->gone_why;
    }
    return r;
}

static int ask(struct brig_run *run, const struct brig_spec *spec, struct brig_err *err)
{
    struct wire_run msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_RUN, run->number}};
    int child_fds[3] = {-1, -1, -1}, fds[4];
    AUTO_FD int strings = -1;
    size_t n = 0;
    char rootfs[4096];
    struct brig_spec resolved = *spec;
    int r = spec->rootfs ? engine_rootfs(run->engine, spec->rootfs, rootfs, sizeof rootfs, err) : 0;

    if (spec->rootfs)
        resolved.rootfs = rootfs;
    if (r == 0)
        r = engine_spec(run, &resolved, &msg, &strings, err);

    if (r == 0 && !(run->flags & BRIG_RUN_TTY))
        r = make_pipes(run, child_fds, err);
    if (r == 0) {
        fds[n++] = strings;
        for (int i = 0; i < 3; i++)
            if (child_fds[i] >= 0)
                fds[n++] = child_fds[i];
        r = spec->network ? run_gate_start(run, spec, &msg, fds, n, err) : run_ask(run, &msg, fds, n, err);
    }
    fd_close_all(child_fds, 3);
    return r;
}

int brig_run_start(struct brig_engine *engine, const struct brig_spec *given, struct brig_run **ret,
                   struct brig_err *err)
{
    struct brig_spec known, *spec = &known;
    int r = brig_spec_check(given, err);

    if (r == 0)
        r = spec_read(given, &known, err);
    if (r < 0)
        return r;
    if (engine->gone) {
        if (err)
            *err = engine->gone_why;
        return -EPIPE;
    }
    struct brig_run *run = mem_zalloc(sizeof *run);
    if (!run)
        return err_nomem(err);
    run->engine = engine;
    run->number = engine->next_number++;
    engine->pool_full = false; /* the spawner says so again */
    run->flags = spec->flags;
    run->stdin_fd = run->output_fd[1] = run->output_fd[2] = -1;
    run->on_output = spec->on_output;
    run->on_done = spec->on_done;
    run->ctx = spec->ctx;
    run->rows = spec->tty_rows;
    run->cols = spec->tty_cols;
    run->receipt.size = sizeof run->receipt;
    memcpy(run->receipt.network.policy, "none", sizeof "none");
    list_push(&engine->runs, run);
    r = id_run(run->receipt.id) < 0 ? err_set(err, BRIG_E_HOST, EIO, "random id") : ask(run, spec, err);
    if (r < 0) {
        run->state = RUN_DONE; /* nothing to cancel */
        brig_run_destroy(run);
        return r;
    }
    *ret = run;
    return 0;
}

int brig_run_wait(struct brig_run *run, struct brig_err *err)
{
    while (run->state != RUN_DONE) {
        int r = brig_engine_dispatch(run->engine, -1, err);
        if (r < 0 && run->state != RUN_DONE)
            return r;
    }
    return 0;
}

bool brig_run_done(const struct brig_run *run)
{
    return run->state == RUN_DONE;
}

const struct brig_receipt *brig_run_receipt(const struct brig_run *run)
{
    return run->state == RUN_DONE ? &run->receipt : NULL;
}

int brig_run_write(struct brig_run *run, const void *data, size_t len, struct brig_err *err)
{
    if (run->state == RUN_DONE || (run->stdin_fd < 0 && run->state == RUN_STARTED))
        return err_set(err, BRIG_E_GONE, EPIPE, "the program does not read");
    if (run->stdin_fd < 0 || len == 0)
        return 0; /* a PTY comes with the start */
    /* A pipe has no MSG_NOSIGNAL: SIGPIPE is held back for this thread, and taken if it came from here. */
    sigset_t pipe_only, saved, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &saved);
    ssize_t n = write(run->stdin_fd, data, len < INT_MAX ? len : INT_MAX);
    int errnum = errno;
    if (n < 0 && errnum == EPIPE && !sigismember(&pending, SIGPIPE)) {
        struct timespec zero = {0};
        (void)RETRY(sigtimedwait(&pipe_only, NULL, &zero));
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    if (n >= 0)
        return (int)n;
    return errnum == EAGAIN || errnum == EINTR ? 0 : err_set(err, BRIG_E_GONE, errnum, "the program does not read");
}

void brig_run_close_stdin(struct brig_run *run)
{
    base_close_fd(&run->stdin_fd);
}

int brig_run_read(struct brig_run *run, enum brig_stream stream, void *data, size_t size)
{
    if ((stream != BRIG_STDOUT && stream != BRIG_STDERR) || !(run->flags & BRIG_RUN_PULL))
        return -EINVAL;
    struct buf *kept = &run->kept[stream];
    size_t there = kept->len - run->pulled[stream], n = there < size ? there : size;
    if (n == 0)
        return run->state == RUN_DONE ? -ENODATA : 0;
    memcpy(data, kept->data + run->pulled[stream], n);
    run->pulled[stream] += n;
    if (!(run->flags & BRIG_RUN_KEEP_OUTPUT) && run->pulled[stream] == kept->len) {
        buf_consume(kept, kept->len);
        run->pulled[stream] = 0;
    }
    return (int)n;
}

int brig_run_resize(struct brig_run *run, uint16_t rows, uint16_t cols, struct brig_err *err)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};

    if (!(run->flags & BRIG_RUN_TTY))
        return err_usage(err, "resize: the run has no terminal");
    if (run->output_fd[BRIG_STDOUT] >= 0 && ioctl(run->output_fd[BRIG_STDOUT], TIOCSWINSZ, &size) < 0)
        return err_host(err, "resize");
    return 0;
}

int brig_run_signal(struct brig_run *run, int signum, struct brig_err *err)
{
    struct wire_signal msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_SIGNAL, run->number}, .signum = (uint32_t)signum};

    if (signum < 1 || signum > 64)
        return err_usage(err, "signal %d: must be between 1 and 64", signum);
    int r = run->state == RUN_DONE ? 0 : send_to_spawner(run, &msg, sizeof msg);
    return r < 0 ? err_set(err, BRIG_E_GONE, -r, "signal") : 0;
}

void brig_run_cancel(struct brig_run *run)
{
    run->cancelled = true; /* also for one that is not with the spawner yet */
    send_kill(run, BRIG_CAUSE_CANCELLED);
}

void brig_run_destroy(struct brig_run *run)
{
    if (!run)
        return;
    if (run->state != RUN_DONE) {
        run->on_output = NULL;
        run->on_done = NULL;
        brig_run_cancel(run);
        (void)!brig_run_wait(run, NULL); /* until nothing of it is left */
    }
    run->state = RUN_DONE;
    drain(run);
    list_remove(&run->engine->runs, run);
    buf_done(&run->kept[BRIG_STDOUT]);
    buf_done(&run->kept[BRIG_STDERR]);
    run_gate_free(run);
    mem_free(run->strings);
    mem_free(run->lists);
    mem_free(run);
}
