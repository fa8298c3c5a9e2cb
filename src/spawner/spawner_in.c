/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner_in.c: what an engine says to a spawner or a runner (src/runner/): one packet, and the run in it. The engine
 * may be a daemon that was taken over. A packet of the wrong shape ends us, and everything with us. A run that no
 * honest engine asks for (counts and strings that do not fit, a path outside of the roots) is refused, and the refusal
 * says so: then brigd writes it to the audit log.
 */
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "spawner/spawner.h"

void spawner_receive(struct spawner *spawner, uint32_t events, spawner_message_fn *fn)
{
    union wire_any msg;
    int fds[WIRE_FDS];
    size_t n_fds = 0;

    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        spawner_flush(spawner);
    if (!spawner_may_read(spawner) || spawner->stop)
        return;
    ssize_t n = fd_recv_message(spawner->engine_fd, &msg, sizeof msg, fds, WIRE_FDS, &n_fds);
    if (n == -EAGAIN)
        return;
    if (n <= 0 || wire_check(&msg, (size_t)n) < 0)
        spawner->stop = true;
    else
        fn(spawner, &msg, fds, n_fds);
    fd_close_all(fds, n_fds); /* what was taken is -1 */
}

struct run_spec *spawner_take_run(struct spawner *spawner, const struct wire_run *msg, int *fds, size_t n_fds,
                                  struct brig_err *err)
{
    const struct run_spec nameless = {.number = msg->head.run};
    struct run_spec *run = mem_zalloc(sizeof *run);
    int r = run ? run_spec_parse(run, msg, image_possible(&spawner->host), fds, n_fds, err) : err_nomem(err);

    if (r == 0 && (run->flags & WIRE_RUN_SERVICE))
        r = run_spec_check_roots(run, &spawner->host.bind_roots, &spawner->host.rootfs_roots, err);
    if (r == 0)
        return run;
    spawner_refuse(spawner, run ? run : &nameless, err);
    run_spec_done(run);
    return NULL;
}
