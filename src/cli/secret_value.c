/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret_value.c: reads values that must not be seen from stdin, a file, a variable, or a terminal without echo. It
 * never takes them from the command line, which every process of the machine can read.
 */
#include "cli/secret_value.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"

#define LINE_MAX_TTY 4095

static bool too_large(const char *where)
{
    return cli_error("%s: a secret has at most %u bytes", where, SECRET_VALUE_BYTES), false;
}

/* All of it, but for one newline at the end. */
static bool read_fd(int fd, const char *where, struct secret_value *out)
{
    ssize_t n = fd_read_all(fd, out->data, SECRET_VALUE_BYTES + 2);

    if (n == -EFBIG)
        return too_large(where);
    if (n < 0)
        return cli_error("%s: %s", where, strerror((int)-n)), false;
    out->len = (size_t)n;
    if (n > 0 && out->data[n - 1] == '\n')
        out->len--;
    return out->len <= SECRET_VALUE_BYTES || too_large(where);
}

/* One line, without echo. The terminal is as before, also when it was interrupted: signals wait until then. */
static bool read_terminal(const char *name, struct secret_value *out)
{
    struct termios saved, quiet;
    sigset_t set, old;

    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return cli_error("the terminal: %s", strerror(errno)), false;
    quiet = saved;
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
    quiet.c_lflag |= ICANON;
    sigemptyset(&set);
    sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM), sigaddset(&set, SIGHUP), sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, &old);
    quiet.c_lflag &= ~(tcflag_t)ISIG;
    quiet.c_cc[VEOL] = 3; /* ^C ends the line too, and is then seen at its end */
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    (void)!cli_write(STDERR_FILENO, "value of ", 9);
    (void)!cli_write(STDERR_FILENO, name, strlen(name));
    (void)!cli_write(STDERR_FILENO, ": ", 2);
    ssize_t n = read(STDIN_FILENO, out->data, SECRET_VALUE_BYTES + 1);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved);
    sigprocmask(SIG_SETMASK, &old, NULL);
    (void)!cli_write(STDERR_FILENO, "\n", 1);
    if (n <= 0 || out->data[n - 1] == 3)
        return cli_error("nothing was stored"), false;
    if (n >= LINE_MAX_TTY) { /* the kernel drops what is more, without a word */
        cli_error("a line of a terminal has less than %d bytes: use --from-file", LINE_MAX_TTY);
        return false;
    }
    out->len = (size_t)n - (out->data[n - 1] == '\n');
    return true;
}

bool secret_value_read(const struct value_source *from, const char *name, struct secret_value *out)
{
    if (from->file && from->variable)
        return cli_error("--from-file and --from-env: only one of them"), false;
    if (from->variable) {
        const char *text = getenv(from->variable);
        if (!text)
            return cli_error("--from-env %s: there is no such variable", from->variable), false;
        out->len = strlen(text);
        if (out->len > SECRET_VALUE_BYTES)
            return too_large(from->variable);
        memcpy(out->data, text, out->len);
        return true;
    }
    if (from->file) {
        AUTO_FD int fd = open(from->file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
            return cli_error("--from-file %s: %s", from->file, strerror(errno)), false;
        return read_fd(fd, from->file, out);
    }
    return isatty(STDIN_FILENO) ? read_terminal(name, out) : read_fd(STDIN_FILENO, "stdin", out);
}
