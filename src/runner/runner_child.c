/* SPDX-License-Identifier: Apache-2.0 */
/* runner_child.c: watches a runtime at work (runner_child.h). Its words are kept short: the last ones say why. */
#include "runner/runner_child.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "jail/sys.h"

/* Control characters would break the line that they end up in. */
static void keep_words(struct runner_child *child, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (child->n_words == sizeof child->words - 1) {
            memmove(child->words, child->words + 1, sizeof child->words - 2);
            child->n_words--;
        }
        bool plain = (unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x7f;
        child->words[child->n_words++] = plain ? text[i] : ' ';
    }
    child->words[child->n_words] = '\0';
}

static void read_words(struct runner_child *child)
{
    char text[512];
    ssize_t n;

    while ((n = read(child->words_fd, text, sizeof text)) > 0)
        keep_words(child, text, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        loop_remove(child->loop, &child->on_words);
}

static void on_words(struct loop_source *source, uint32_t events UNUSED)
{
    read_words(source->ctx);
}

static void let_go(struct runner_child *child)
{
    loop_remove(child->loop, &child->on_end);
    loop_remove(child->loop, &child->on_words);
    loop_timer_clear(child->loop, &child->on_late);
    base_close_fd(&child->pidfd);
    base_close_fd(&child->words_fd);
    child->pid = 0;
}

static void on_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct runner_child *child = source->ctx;
    int status = 0;

    read_words(child);
    (void)RETRY(waitpid(child->pid, &status, __WALL));
    while (child->n_words > 0 && child->words[child->n_words - 1] == ' ')
        child->words[--child->n_words] = '\0';
    let_go(child);
    child->done(child->ctx, status);
}

static void on_late(struct loop_timer *timer)
{
    struct runner_child *child = timer->ctx;

    child->late = true;
    runner_child_kill(child);
}

int runner_child_watch(struct runner_child *child, pid_t pid, int pidfd, int words_fd, uint64_t timeout_ns,
                       struct brig_err *err)
{
    child->pid = pid;
    child->pidfd = pidfd;
    child->words_fd = words_fd;
    child->late = false;
    child->n_words = 0;
    child->words[0] = '\0';
    child->on_end = (struct loop_source){.fd = -1, .fn = on_end, .ctx = child};
    child->on_words = (struct loop_source){.fd = -1, .fn = on_words, .ctx = child};
    child->on_late = (struct loop_timer){.fn = on_late, .ctx = child};
    int r = fd_set_nonblock(words_fd) < 0 ? err_host(err, "a runtime's stderr") : 0;
    if (r == 0)
        r = loop_add(child->loop, &child->on_end, pidfd, EPOLLIN, err);
    if (r == 0)
        r = loop_add(child->loop, &child->on_words, words_fd, EPOLLIN, err);
    if (r == 0)
        r = loop_timer_set(child->loop, &child->on_late, clock_mono_ns() + timeout_ns, err);
    if (r < 0) {
        runner_child_kill(child);
        (void)RETRY(waitpid(pid, NULL, __WALL));
        let_go(child);
    }
    return r;
}

void runner_child_kill(struct runner_child *child)
{
    if (child->pid)
        (void)!sys_pidfd_send_signal(child->pidfd, SIGKILL);
}
