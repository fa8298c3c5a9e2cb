/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_host.c: one long-lived sandbox, whose stream goes to the caller: the caller speaks with brig-init itself.
 *
 *     guest_host FD OUT [name=value...]     FD: the engine's end of a spawner's socket.
 *                                           OUT: a SOCK_SEQPACKET socket that gets one message per stream, "up" or
 *                                           "attached", with the stream beside it.
 *
 * The names are memory and pids. A line on stdin asks for another stream; its end ends the sandbox.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "provider/provider.h"

static struct loop *loop;
static struct provider *provider;
static struct box *box;
static struct provider_spec spec;
static int out;
static bool stop;

static void hand_over(const char *what, int fd)
{
    if (fd_send(out, what, strlen(what), &fd, 1) < 0)
        stop = true;
    close(fd);
}

static void on_up(void *ctx UNUSED, struct box_up *up)
{
    hand_over("up", take_fd(&up->stream_fd));
}

static void on_attached(void *ctx UNUSED, int fd, const struct brig_err *err)
{
    if (err)
        stop = true;
    else
        hand_over("attached", fd);
}

static void on_ended(void *ctx UNUSED, const struct box_end *end)
{
    fprintf(stderr, "ended: %s %s\n", brig_cause_name(end->cause), end->detail);
    box = NULL;
    stop = true;
}

static void on_recovered(void *ctx UNUSED)
{
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = NULL};
    struct brig_err err = {.message = ""};

    if (provider->ops->create(provider, &spec, &events, &box, &err) < 0) {
        fprintf(stderr, "refused: %s\n", err.message);
        stop = true;
    }
}

static bool on_found(void *ctx UNUSED, struct box *found UNUSED, const struct box_up *up UNUSED,
                     struct box_events *ret UNUSED)
{
    return false;
}

static void on_gone(void *ctx UNUSED, const struct brig_err *why)
{
    fprintf(stderr, "gone: %s\n", why->message);
    stop = true;
}

static void on_stdin(struct loop_source *source, uint32_t events UNUSED)
{
    char line[64];
    struct brig_err err;

    if (read(source->fd, line, sizeof line) > 0) {
        if (!box || provider->ops->attach(box, on_attached, NULL, &err) < 0)
            stop = true;
        return;
    }
    loop_remove(loop, source);
    if (box)
        provider->ops->end(box);
    else
        stop = true;
}

int main(int argc, char **argv)
{
    struct loop_source lines = {.fd = -1, .fn = on_stdin};
    struct brig_err err = {.message = ""};

    if (argc < 3)
        return 2;
    out = (int)strtol(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');

        if (!value)
            return 2;
        *value++ = '\0';
        *(strcmp(argv[i], "memory") == 0 ? &spec.limits.memory : &spec.limits.pids) = strtoull(value, NULL, 10);
    }
    int r = loop_create(&loop, &err);
    if (r == 0)
        r = provider_local_create(loop, (int)strtol(argv[1], NULL, 10), &provider, &err);
    if (r == 0) {
        provider->gone = on_gone;
        r = provider->ops->recover(provider, on_found, on_recovered, NULL, &err);
    }
    if (r == 0)
        r = loop_add(loop, &lines, 0, EPOLLIN, &err);
    while (r == 0 && !stop)
        r = loop_run_once(loop, -1, &err);
    if (r < 0)
        fprintf(stderr, "%s\n", err.message);
    return r < 0;
}
