/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c: prints for the command. It does not use stdio: `brig run` lives for a few milliseconds and mostly prints
 * nothing, so there is no buffer to set up and none to lose. A message is one line and one write(2), whatever bytes the
 * user's values put into it.
 */
#include "cli/cli.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/escape.h"

int cli_write(int fd, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n >= 0) {
            at += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) { /* somebody made our stdout non-blocking; it may be shared, so it stays so */
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR)
                return -errno;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

int cli_error(const char *format, ...)
{
    char text[1024], line[2048] = "brig: ";
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct escape escape = ESCAPE_INIT(ESCAPE_LINE);
    for (const char *p = text; *p != '\0' && n < sizeof(line) - 2 * ESCAPE_OUT; p++)
        n += escape_byte(&escape, (unsigned char)*p, line + n);
    n += escape_end(&escape, line + n);
    line[n++] = '\n';
    if (cli_write(STDERR_FILENO, line, n) < 0)
        return CLI_FAILED; /* nobody listens; the status still tells */
    return CLI_FAILED;
}

int cli_print(const struct buf *buf, int status)
{
    int r = cli_write(STDOUT_FILENO, buf->data, buf->len);
    if (r == -EPIPE)
        return CLI_SIGPIPE;
    if (r < 0)
        return cli_error("standard output: %s", strerror(-r));
    return status;
}

int cli_parse_format(const char *text)
{
    if (strcmp(text, "json") == 0)
        return 1;
    return strcmp(text, "text") == 0 ? 0 : -EINVAL;
}
