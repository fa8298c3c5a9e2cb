/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_loop.c: the loop of a run in the foreground. Theory of operation:
 *
 * One poll() watches everything that can happen: the engine has something to do, a signal came, our stdin has bytes for
 * the program, our stdout or stderr can take some again. Nothing else here blocks.
 *
 * Signals. INT, TERM, HUP and QUIT are forwarded to the program the first time, so that it can end in its own way; a
 * second one, or two seconds, cancels the run. USR1 and USR2 are only forwarded. A signal that was ignored when we
 * started (nohup, a background job) stays ignored.
 *
 * Stdin is read only when the program has taken all that was read before. So a program that does not read holds back
 * the writer of our stdin.
 *
 * When nobody reads our stdout or stderr any more, the run is cancelled: a program that writes to that pipe itself
 * would have died of SIGPIPE.
 */
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/run/run.h"

#define CANCEL_AFTER_NS (2 * NS_PER_SEC)
/* The program's stdin is full, and nothing tells when it no longer is: look again soon, then less often. */
#define RETRY_INPUT_MS 1
#define RETRY_INPUT_MAX_MS 32

enum { ON_ENGINE, ON_SIGNAL, ON_STDOUT, ON_STDERR, ON_STDIN, ON_MAX };

static bool is_ignored(int signum)
{
    struct sigaction action;
    return sigaction(signum, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int run_signals(bool tty, int *ret_fd, struct brig_err *err)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t mask;

    sigemptyset(&mask);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (!is_ignored(ends[i]))
            sigaddset(&mask, ends[i]);
    if (tty) {
        sigaddset(&mask, SIGWINCH);
        sigaddset(&mask, SIGCONT);
    }
    /* A blocked signal waits for signalfd even where its default is to be ignored. */
    if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
        return err_host(err, "sigprocmask");
    *ret_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (*ret_fd < 0)
        return err_host(err, "signalfd");
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

int run_loop_init(struct run_loop *loop, struct brig_engine *engine, const struct run_options *options,
                  struct brig_err *err)
{
    *loop = (struct run_loop){.engine = engine, .signal_fd = -1, .tty = options->tty};
    run_sink_init(&loop->out, STDOUT_FILENO, options->tty);
    run_sink_init(&loop->err_out, STDERR_FILENO, options->tty);
    if (options->interactive) {
        loop->reading = true;
        loop->input = malloc(RUN_INPUT);
        if (!loop->input)
            return err_nomem(err);
    }
    return run_signals(options->tty, &loop->signal_fd, err);
}

void run_loop_output(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len)
{
    struct run_loop *loop = ctx;
    struct run_sink *sink = stream == BRIG_STDERR ? &loop->err_out : &loop->out;
    run_sink_put(sink, data, len);
    if (sink->failed != 0)
        brig_run_cancel(run);
}

static void handle_signal(struct run_loop *loop, int signum)
{
    struct brig_err ignored;
    switch (signum) {
    case SIGCONT:
    case SIGWINCH: {
        uint16_t rows, cols;
        if (signum == SIGCONT)
            run_tty_raw_again();
        run_tty_size(&rows, &cols);
        if (brig_run_resize(loop->run, rows, cols, &ignored) < 0)
            return; /* it has just ended */
        return;
    }
    case SIGUSR1:
    case SIGUSR2:
        if (brig_run_signal(loop->run, signum, &ignored) < 0)
            return;
        return;
    default: break;
    }
    loop->n_signals++;
    if (loop->n_signals > 1 || brig_run_signal(loop->run, signum, &ignored) < 0) {
        brig_run_cancel(loop->run);
        loop->cancel_at_ns = 0;
    } else {
        loop->cancel_at_ns = clock_mono_ns() + CANCEL_AFTER_NS;
    }
}

static void read_signals(struct run_loop *loop)
{
    struct signalfd_siginfo info;
    while (read(loop->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        handle_signal(loop, (int)info.ssi_signo);
}

static void stop_reading(struct run_loop *loop)
{
    loop->reading = false;
    loop->in_at = loop->in_len = 0;
    brig_run_close_stdin(loop->run);
}

static void feed_program(struct run_loop *loop)
{
    struct brig_err ignored;
    while (loop->in_at < loop->in_len) {
        int n = brig_run_write(loop->run, loop->input + loop->in_at, loop->in_len - loop->in_at, &ignored);
        if (n < 0) /* it reads no more; that is its right, and no end of the run */
            stop_reading(loop);
        if (n == 0 && loop->retry_ms < RETRY_INPUT_MAX_MS)
            loop->retry_ms = loop->retry_ms > 0 ? loop->retry_ms * 2 : RETRY_INPUT_MS;
        if (n <= 0)
            return;
        loop->in_at += (size_t)n;
        loop->retry_ms = 0;
    }
    loop->in_at = loop->in_len = 0;
}

static void read_input(struct run_loop *loop)
{
    ssize_t n = read(STDIN_FILENO, loop->input, RUN_INPUT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* an error (EIO of a terminal that hung up) is an end like another */
        stop_reading(loop);
        return;
    }
    loop->in_len = (size_t)n;
    feed_program(loop);
}

/* Milliseconds until something is due, or -1. */
static int next_timeout(const struct run_loop *loop)
{
    int ms = loop->in_at < loop->in_len ? loop->retry_ms : -1;
    if (loop->cancel_at_ns != 0) {
        uint64_t now = clock_mono_ns();
        int left = now >= loop->cancel_at_ns ? 0 : (int)((loop->cancel_at_ns - now) / NS_PER_MS) + 1;
        if (ms < 0 || left < ms)
            ms = left;
    }
    return ms;
}

static int wait_for_events(struct run_loop *loop, struct brig_err *err)
{
    struct pollfd fds[ON_MAX] = {
        [ON_ENGINE] = {.fd = brig_engine_fd(loop->engine), .events = POLLIN},
        [ON_SIGNAL] = {.fd = loop->signal_fd, .events = POLLIN},
        [ON_STDOUT] = {.fd = run_sink_waiting(&loop->out) ? loop->out.fd : -1, .events = POLLOUT},
        [ON_STDERR] = {.fd = run_sink_waiting(&loop->err_out) ? loop->err_out.fd : -1, .events = POLLOUT},
        [ON_STDIN] = {.fd = loop->reading && loop->in_len == 0 ? STDIN_FILENO : -1, .events = POLLIN},
    };
    if (poll(fds, ON_MAX, next_timeout(loop)) < 0 && errno != EINTR)
        return err_host(err, "poll");
    if (fds[ON_SIGNAL].revents != 0)
        read_signals(loop);
    if (fds[ON_STDOUT].revents != 0)
        run_sink_flush(&loop->out);
    if (fds[ON_STDERR].revents != 0)
        run_sink_flush(&loop->err_out);
    if (fds[ON_STDIN].revents != 0)
        read_input(loop);
    return 0;
}

/* What the program has said is said, unless our reader is gone or the user wants to go. */
static int write_rest(struct run_loop *loop, struct brig_err *err)
{
    run_sink_end(&loop->out);
    run_sink_end(&loop->err_out);
    unsigned before = loop->n_signals;
    while ((run_sink_waiting(&loop->out) || run_sink_waiting(&loop->err_out)) && loop->n_signals == before) {
        struct pollfd fds[] = {
            {.fd = loop->signal_fd, .events = POLLIN},
            {.fd = run_sink_waiting(&loop->out) ? loop->out.fd : -1, .events = POLLOUT},
            {.fd = run_sink_waiting(&loop->err_out) ? loop->err_out.fd : -1, .events = POLLOUT},
        };
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            return err_host(err, "poll");
        if (fds[0].revents != 0)
            read_signals(loop);
        run_sink_flush(&loop->out);
        run_sink_flush(&loop->err_out);
    }
    return 0;
}

int run_loop_until_done(struct run_loop *loop, struct brig_run *run, struct brig_err *err)
{
    loop->run = run;
    while (!brig_run_done(run)) {
        int r = wait_for_events(loop, err);
        if (r == 0)
            r = brig_engine_dispatch(loop->engine, 0, err);
        if (r < 0 && !brig_run_done(run))
            return r;
        feed_program(loop);
        if (loop->out.failed != 0 || loop->err_out.failed != 0)
            brig_run_cancel(run);
        if (loop->cancel_at_ns != 0 && clock_mono_ns() >= loop->cancel_at_ns) {
            brig_run_cancel(run);
            loop->cancel_at_ns = 0;
        }
    }
    return write_rest(loop, err);
}

void run_loop_done(struct run_loop *loop)
{
    run_sink_done(&loop->out);
    run_sink_done(&loop->err_out);
    free(loop->input);
    base_close_fd(&loop->signal_fd);
}
