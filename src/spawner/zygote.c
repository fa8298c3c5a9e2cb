/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote.c: the spawner's zygotes: which one serves a key, their jobs and answers, and their ends (zygote.h has the
 * theory of operation).
 *
 * Invariants: every sandbox whose job was sent is on its zygote's list until it learns of the clone or of the failure.
 * A zygote that was killed in the middle of a job may have cloned a child that nobody knows. This child cannot get past
 * the stage where it asks for its maps; until then it has the zygote's process group, and it is collected by that.
 */
#include "spawner/zygote.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"
#include "spawner/spawner.h"
#include "spawner/zygote_start.h"

#define AGE_NS (600 * NS_PER_SEC)
#define SUCCESSOR_AGE_NS (540 * NS_PER_SEC) /* the next is started before the last is of no use */
#define PATIENCE_NS (2 * NS_PER_SEC)
#define START_PATIENCE_NS (10 * NS_PER_SEC) /* an interpreter, on a machine that may be busy */
#define COLLECT_NS (20 * NS_PER_MS)

enum zygote_state { STARTING, SERVING, LEAVING, DEAD };

struct zygote {
    struct zygote *next;
    struct spawner *spawner;
    enum zygote_state state;
    char key[WIRE_ZYGOTE_KEY_MAX];
    pid_t pid;
    int pidfd, fd;
    struct loop_source on_answer, on_end;
    struct loop_timer on_late, on_old;
    struct sandbox *jobs; /* sent and not answered, newest first */
    unsigned n_children;
    uint64_t born_ns, asked_ns;
    bool orphans; /* it died with jobs: there may be children nobody knows */
};

static unsigned number(const char *test_name UNUSED, unsigned otherwise)
{
#ifdef BRIG_TEST
    const char *text = getenv(test_name);
    if (text)
        return (unsigned)strtoul(text, NULL, 10);
#endif
    return otherwise;
}

static unsigned children_max(void)
{
    return number("BRIG_TEST_ZYGOTE_CHILDREN", ZYGOTE_CHILDREN);
}

static unsigned zygotes_max(void)
{
    return number("BRIG_TEST_ZYGOTES", ZYGOTES_MAX);
}

/* ---- jobs ------------------------------------------------------------------------------------------- */

static struct sandbox *take_job(struct zygote *z, uint64_t number)
{
    for (struct sandbox **at = &z->jobs; *at; at = &(*at)->next_job)
        if ((*at)->job == number) {
            struct sandbox *s = *at;
            *at = s->next_job;
            s->next_job = NULL;
            return s;
        }
    return NULL;
}

static void fail_jobs(struct zygote *z, const char *why)
{
    struct brig_err err;

    (void)err_set(&err, BRIG_E_HOST, 0, "zygote: %s", why);
    while (z->jobs) {
        struct sandbox *s = z->jobs;
        z->jobs = s->next_job;
        s->next_job = NULL;
        z->orphans = true;
        sandbox_not_cloned(s, &err);
    }
}

static void set_patience(struct zygote *z)
{
    uint64_t patience = z->state == STARTING ? START_PATIENCE_NS : PATIENCE_NS;

    if (z->jobs || z->state == STARTING)
        (void)!loop_timer_set(z->spawner->loop, &z->on_late, clock_mono_ns() + patience, NULL);
    else
        loop_timer_clear(z->spawner->loop, &z->on_late);
}

/* ---- ends ------------------------------------------------------------------------------------------- */

static void forget(struct zygote *z)
{
    struct zygote **at = &z->spawner->zygotes;

    while (*at != z)
        at = &(*at)->next;
    *at = z->next;
    loop_timer_clear(z->spawner->loop, &z->on_late);
    mem_free(z);
}

/* Whether a child of this number is a sandbox's own: then its pidfd tells, and sandbox_finish() waits for it. */
static bool is_known(const struct spawner *spawner, pid_t pid)
{
    for (int state = 0; state < SANDBOX_STATE_MAX; state++)
        for (const struct sandbox *s = spawner->lists[state]; s; s = s->next)
            if (s->pid == pid)
                return true;
    return false;
}

static void collect_orphans(struct loop_timer *timer)
{
    struct zygote *z = timer->ctx;
    siginfo_t info;

    for (;;) {
        info.si_pid = 0;
        if (waitid(P_PGID, (id_t)z->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
            forget(z); /* ECHILD: there are none, or none any more */
            return;
        }
        if (info.si_pid == 0 || is_known(z->spawner, info.si_pid))
            break;
        (void)RETRY(waitpid(info.si_pid, NULL, 0));
    }
    if (loop_timer_set(z->spawner->loop, &z->on_late, clock_mono_ns() + COLLECT_NS, NULL) < 0)
        forget(z);
}

/* No more jobs. With none open it sees the end of its socket, and ends. */
static void leave(struct zygote *z)
{
    if (z->state == SERVING)
        z->state = LEAVING;
    if (z->state != LEAVING || z->jobs || z->fd < 0)
        return;
    loop_timer_clear(z->spawner->loop, &z->on_old);
    loop_remove(z->spawner->loop, &z->on_answer);
    base_close_fd(&z->fd);
    (void)!loop_timer_set(z->spawner->loop, &z->on_late, clock_mono_ns() + PATIENCE_NS, NULL);
}

static void on_old(struct loop_timer *timer)
{
    leave(timer->ctx);
}

static void zygote_kill(struct zygote *z)
{
    if (z->pidfd >= 0)
        (void)!sys_pidfd_send_signal(z->pidfd, SIGKILL);
}

static void on_late(struct loop_timer *timer)
{
    zygote_kill(timer->ctx); /* its pidfd tells the rest */
}

static void on_answer(struct loop_source *source, uint32_t events);

static void on_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct zygote *z = source->ctx;
    struct loop *loop = z->spawner->loop;

    if (z->on_answer.fd >= 0)
        on_answer(&z->on_answer, 0); /* what it has said before */
    z->state = DEAD;
    loop_remove(loop, &z->on_end);
    loop_remove(loop, &z->on_answer);
    loop_timer_clear(loop, &z->on_old);
    loop_timer_clear(loop, &z->on_late);
    (void)RETRY(waitpid(z->pid, NULL, 0));
    base_close_fd(&z->pidfd);
    base_close_fd(&z->fd);
    fail_jobs(z, "ended before it answered");
    z->on_late.fn = collect_orphans;
    if (z->orphans)
        collect_orphans(&z->on_late);
    else
        forget(z);
}

/* ---- answers ---------------------------------------------------------------------------------------- */

/* It serves from now on, and an older one of its key does not any more. */
static void now_ready(struct zygote *z)
{
    if (z->state == STARTING)
        z->state = SERVING;
    for (struct zygote *old = z->next; old; old = old->next) /* newest first */
        if (strcmp(old->key, z->key) == 0)
            leave(old);
}

static bool take_answer(struct zygote *z, const struct zygote_answer *msg, int *pidfd)
{
    struct brig_err err;

    if (msg->magic != ZYGOTE_MAGIC)
        return false;
    if (msg->type == ZYGOTE_READY) {
        now_ready(z);
        return true;
    }
    struct sandbox *s = take_job(z, msg->number);
    if (!s || msg->type != ZYGOTE_CLONED)
        return false;
    if (msg->pid > 0 && *pidfd >= 0) {
        sandbox_cloned(s, msg->pid, take_fd(pidfd));
    } else {
        (void)err_set(&err, BRIG_E_HOST, msg->errnum, "zygote: clone");
        sandbox_not_cloned(s, &err);
    }
    return true;
}

static void on_answer(struct loop_source *source, uint32_t events UNUSED)
{
    struct zygote *z = source->ctx;
    struct zygote_answer msg;

    for (;;) {
        int pidfd = -1;
        size_t n_fds = 0;
        ssize_t n = fd_recv_nowait(z->fd, &msg, sizeof msg, &pidfd, 1, &n_fds);

        if (n == -EAGAIN)
            break;
        bool good = n == (ssize_t)sizeof msg && take_answer(z, &msg, &pidfd);
        base_close_fd(&pidfd);
        if (!good) {
            loop_remove(z->spawner->loop, &z->on_answer); /* the end of its socket, or nonsense */
            zygote_kill(z);
            return;
        }
    }
    if (z->fd < 0)
        return;
    set_patience(z);
    if (z->state == LEAVING)
        leave(z);
}

/* ---- who serves a key -------------------------------------------------------------------------------- */

/* Where there are too many, whoever was asked longest ago makes room, unless all have jobs. */
static int make_room(struct spawner *spawner, struct brig_err *err)
{
    struct zygote *oldest = NULL;
    unsigned n = 0;

    for (struct zygote *z = spawner->zygotes; z; z = z->next) {
        n += z->state <= SERVING;
        if (z->state == SERVING && !z->jobs && (!oldest || z->asked_ns < oldest->asked_ns))
            oldest = z;
    }
    if (n < zygotes_max())
        return 0;
    if (!oldest)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "zygote: %u are at work", n);
    leave(oldest);
    return 0;
}

static int zygote_start(struct spawner *spawner, const char *key, struct zygote **ret, struct brig_err *err)
{
    struct loop *loop = spawner->loop;

    if (make_room(spawner, err) < 0)
        return -EAGAIN;
    struct zygote *z = mem_zalloc(sizeof *z);
    if (!z)
        return err_nomem(err);
    if (str_copy(z->key, sizeof z->key, key) < 0) {
        mem_free(z);
        return err_usage(err, "zygote %.64s: the key is too long", key);
    }
    z->spawner = spawner;
    z->born_ns = clock_mono_ns();
    z->on_answer = (struct loop_source){.fd = -1, .fn = on_answer, .ctx = z};
    z->on_end = (struct loop_source){.fd = -1, .fn = on_end, .ctx = z};
    z->on_late = (struct loop_timer){.fn = on_late, .ctx = z};
    z->on_old = (struct loop_timer){.fn = on_old, .ctx = z};
    int r = zygote_execute(&spawner->host, &z->pid, &z->pidfd, &z->fd, err);
    if (r < 0) {
        mem_free(z);
        return r;
    }
    z->next = spawner->zygotes;
    spawner->zygotes = z;
    r = loop_add(loop, &z->on_end, z->pidfd, EPOLLIN, err);
    if (r == 0)
        r = loop_add(loop, &z->on_answer, z->fd, EPOLLIN, err);
    if (r == 0)
        r = loop_timer_set(loop, &z->on_old, z->born_ns + AGE_NS, err);
    if (r < 0) {
        zygote_kill(z);
        on_end(&z->on_end, 0);
        return r;
    }
    set_patience(z);
    *ret = z;
    return 0;
}

static bool is_usable(const struct zygote *z)
{
    return z->state <= SERVING && z->n_children < children_max() && clock_mono_ns() - z->born_ns < AGE_NS;
}

/* One that serves is better than one that is starting; newest first otherwise. */
static int find(struct spawner *spawner, const char *key, struct zygote **ret, struct brig_err *err)
{
    struct zygote *serving = NULL, *starting = NULL, *next;
    unsigned max = children_max();

    for (struct zygote *z = spawner->zygotes; z; z = z->next) {
        if (strcmp(z->key, key) != 0 || !is_usable(z))
            continue;
        if (z->state == SERVING && !serving)
            serving = z;
        else if (z->state == STARTING && !starting)
            starting = z;
    }
    *ret = serving ? serving : starting;
    if (!*ret)
        return zygote_start(spawner, key, ret, err);
    bool near_end =
        serving && (serving->n_children >= max - max / 10 || clock_mono_ns() - serving->born_ns >= SUCCESSOR_AGE_NS);
    if (near_end && !starting)
        (void)!zygote_start(spawner, key, &next, NULL); /* if it cannot be, this one goes on to its end */
    return 0;
}

int zygote_ask(struct spawner *spawner, const char *key, struct sandbox *s, struct zygote_job *job,
               struct brig_err *err)
{
    static uint8_t message[ZYGOTE_MSG_MAX];
    const struct zygote_files *files = &spawner->host.zygote;
    struct zygote *z;
    int fds[ZYGOTE_FDS];
    size_t n_fds = 0;

    if (files->boot_fd < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "zygote: %s", files->missing);
    int r = find(spawner, key, &z, err);
    if (r < 0)
        return r;
    job->number = ++spawner->jobs;
    int len = zygote_job_put(message, sizeof message, job, fds, &n_fds);
    if (len < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, -len, "zygote: paths of binds are too long");
    r = fd_send_nowait(z->fd, message, (size_t)len, fds, n_fds);
    if (r < 0)
        return err_set(err, r == -EAGAIN ? BRIG_E_BUSY : BRIG_E_HOST, -r, "zygote: does not take a job");
    s->job = job->number;
    s->next_job = z->jobs;
    z->jobs = s;
    z->n_children++;
    z->asked_ns = clock_mono_ns();
    if (!s->next_job)
        set_patience(z);
    return 0;
}

void zygotes_done(struct spawner *spawner)
{
    while (spawner->zygotes) {
        struct zygote *z = spawner->zygotes;
        zygote_kill(z);
        if (z->state != DEAD)
            on_end(&z->on_end, 0);
        else
            forget(z);
    }
    zygote_files_done(&spawner->host.zygote);
}
