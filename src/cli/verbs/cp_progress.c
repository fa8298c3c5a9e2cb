/* SPDX-License-Identifier: Apache-2.0 */
/* cp_progress.c: shows one line on the terminal while bytes move, five times a second, and removes it afterwards. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "cli/escape.h"
#include "cli/verbs/cp.h"

#define EVERY_NS (NS_PER_SEC / 5)
#define WIPE "\r\033[K"

void cp_progress_begin(struct cp_progress *progress, bool quiet, const char *name, uint64_t total)
{
    *progress = (struct cp_progress){
        .on = !quiet && isatty(STDERR_FILENO) == 1,
        .total = total,
        .name = name,
        .started_ns = clock_mono_ns(),
    };
    progress->shown_at_ns = progress->started_ns; /* what takes no time needs no line */
}

static void show(const struct cp_progress *progress, uint64_t now)
{
    char done[SHOW_SIZE], total[SHOW_SIZE], speed[SHOW_SIZE], line[256];
    struct escape escape = ESCAPE_INIT(ESCAPE_LINE);
    struct winsize size = {0};
    AUTO_BUF struct buf text = BUF_INIT(8192), shown = BUF_INIT(8192);
    size_t room = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? (size_t)size.ws_col - 1 : 79;

    show_bytes(done, (int64_t)progress->done);
    show_bytes(speed, (int64_t)((double)progress->done * (double)NS_PER_SEC / (double)(now - progress->started_ns)));
    int n;
    if (progress->total != CLIENT_LENGTH_UNKNOWN && progress->total > 0)
        n = snprintf(line, sizeof(line), "%3u %%  %s of %s  %s/s", (unsigned)(progress->done * 100 / progress->total),
                     done, show_bytes(total, (int64_t)progress->total), speed);
    else
        n = snprintf(line, sizeof(line), "%s  %s/s", done, speed);
    size_t name = room > (size_t)n + 12 ? room - (size_t)n - 2 : 0;
    /* The name is the user's own word, or a stranger's: escaped like all others. */
    if (escape_append(&escape, progress->name, strlen(progress->name), &shown) < 0 ||
        escape_finish(&escape, &shown) < 0)
        return;
    if (buf_printf(&text, WIPE "%s  %.*s", line, (int)(shown.len < name ? shown.len : name),
                   shown.data ? shown.data : "") == 0 &&
        cli_write(STDERR_FILENO, text.data, text.len) < 0)
        return;
}

void cp_progress_add(struct cp_progress *progress, size_t len)
{
    uint64_t now;

    progress->done += len;
    if (!progress->on || (now = clock_mono_ns()) - progress->shown_at_ns < EVERY_NS)
        return;
    progress->shown_at_ns = now;
    show(progress, now);
}

void cp_progress_end(struct cp_progress *progress)
{
    if (progress->on && progress->shown_at_ns != progress->started_ns &&
        cli_write(STDERR_FILENO, WIPE, strlen(WIPE)) < 0)
        return;
    progress->on = false;
}
