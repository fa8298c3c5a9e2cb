/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_tty.c: our terminal while the program has a PTY of its own (-i -t). Every key goes to the program, so ours is in
 * raw mode, and it must never stay so. The normal end restores it, and so do handlers for the signals that would end us
 * otherwise (those of the loop arrive through its signalfd). Only SIGKILL and SIGSTOP cannot be handled.
 *
 * The saved modes are the one global variable of the command: a signal handler has no other way to reach them.
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/err.h"
#include "cli/run/run.h"

static struct termios saved;
static volatile sig_atomic_t is_raw;

static const int deadly[] = {SIGSEGV, SIGBUS,  SIGFPE,    SIGILL,  SIGABRT, SIGSYS,
                             SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGTRAP};

static void restore_and_die(int signum)
{
    run_tty_restore();
    raise(signum); /* SA_RESETHAND: now it ends us */
}

static int set_raw(void)
{
    struct termios raw = saved;
    cfmakeraw(&raw);
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

int run_tty_raw(struct brig_err *err)
{
    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return err_host(err, "-t: the terminal's modes");
    struct sigaction action = {.sa_handler = restore_and_die, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < ARRAY_SIZE(deadly); i++)
        sigaction(deadly[i], &action, NULL);
    is_raw = 1;
    if (set_raw() < 0) {
        is_raw = 0;
        return err_host(err, "-t: raw mode");
    }
    return 0;
}

void run_tty_raw_again(void)
{
    if (is_raw && tcgetpgrp(STDIN_FILENO) == getpgrp() && set_raw() < 0)
        return; /* the terminal is gone; SIGHUP is on its way */
}

void run_tty_restore(void)
{
    if (!is_raw)
        return;
    is_raw = 0;
    /* In the background the terminal is somebody else's by now, with modes of theirs. */
    pid_t owner = tcgetpgrp(STDIN_FILENO);
    if (owner >= 0 && owner != getpgrp())
        return;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &saved) < 0)
        return; /* gone */
}

void run_tty_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
    struct winsize size;
    bool known = ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *ret_rows = known && size.ws_row > 0 ? size.ws_row : 24;
    *ret_cols = known && size.ws_col > 0 ? size.ws_col : 80;
}
