/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote_lib.c: the library that the interpreter of a zygote runs in (libexec/brig/brig-zygote.so, loaded by
 * zygote.py).
 *
 * Theory of operation. The interpreter has loaded our runtime and nothing else, and calls brig_zygote_serve() while it
 * holds every lock that it takes for a fork. Each job of the spawner is one clone, the spawner's child and not ours
 * (CLONE_PARENT), which goes through the very stages that the spawner's own children go through (enter.c), with every
 * layer on at the end. Then it leaves its memory to pid 2 and executes brig-init; pid 2 does what a program of
 * brig-init does between fork and execve (guest/init/program.c: ids, session, stdio, working directory, self-check),
 * and returns into the interpreter, which parks.
 *
 *     zygote --clone--> pid 1 --stages--> split --> pid 2 --ids, stdio, self-check--> returns, parks
 *       ^  answer: pid     '------------execve: brig-init, which adopts pid 2
 *       '---- next job, with none of the descriptors of the last
 *
 * Invariants: one thread; all signals blocked from here on, and until pid 2 returns. A zygote keeps nothing of a job:
 * its descriptors are closed and its bytes wiped before the next is read. It ends when the spawner's end of the socket
 * closes.
 */
#include <fcntl.h>
#include <linux/prctl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "jail/selfcheck.h"
#include "jail/sys.h"
#include "jail/user.h"
#include "spawner/zygote_msg.h"

#define CHANNEL_FD 3
#define HOLE_MAX (24u + 2048u * 16u)
#define HOLE_MIN 24u        /* the smallest piece that the C library has */
#define HOLE_STEP 16u       /* between two sizes of pieces */
#define KEPT_FDS CHANNEL_FD /* the highest that pid 2 has when it returns */

/* Returns 0 in pid 2 of a sandbox, ready to park. Does not return otherwise. */
__attribute__((visibility("default"))) int brig_zygote_serve(void);

static uint8_t message[ZYGOTE_MSG_MAX];
static size_t message_len; /* no more of it is ever touched: every page that is costs each child a copy */
static struct zygote_job job;
static int job_fds[ZYGOTE_FDS];
static size_t n_job_fds;
static struct {
    uint64_t tid_address;
    void *robust;
    size_t robust_len;
} thread; /* of the C library, which knows only forks of its own */

/* ---- pid 2 ------------------------------------------------------------------------------------------ */

static _Noreturn void give_up(enum setup_stage stage, const char *what, long ret)
{
    jail_report(&job.plan, stage, what, (int)-ret);
    _exit(125);
}

static void must(enum setup_stage stage, const char *what, long ret)
{
    if (ret < 0)
        give_up(stage, what, errno ? -errno : -EIO);
}

static void set_stdio(void)
{
    int null = SYS(open("/dev/null", O_RDONLY | O_CLOEXEC));

    must(SETUP_FDS, "/dev/null", null);
    must(SETUP_FDS, "stdin", SYS(dup2(null, 0)));
    must(SETUP_FDS, "stdout", SYS(dup2(ADOPTED_FD_OUT, 1)));
    must(SETUP_FDS, "stderr", SYS(dup2(ADOPTED_FD_ERR, 2)));
    must(SETUP_FDS, "channel", SYS(dup2(ADOPTED_FD_CHANNEL, CHANNEL_FD))); /* over pid 1's control socket */
}

/* Really closed, not at an execve that never comes. What the self-check still needs follows at the end. */
static void close_others(void)
{
    unsigned setup = (unsigned)job.plan.setup_fd;

    must(SETUP_FDS, "close", SYS(close_range(INIT_FD_PROBE + 1, setup - 1, 0)));
    must(SETUP_FDS, "close", SYS(close_range(setup + 1, ~0u, 0)));
    must(SETUP_FDS, "close", SYS(close_range(INIT_FD_PROBE, INIT_FD_PROBE, CLOSE_RANGE_CLOEXEC)));
}

/* The statement is about this very process: ids, capabilities, filter and descriptors are final. */
static void check(void)
{
    struct setup_checked msg = {.type = SETUP_CHECKED};
    const struct selfcheck_plan plan = {.start = &job.start, .landlock_probe_fd = INIT_FD_PROBE, .max_fd = KEPT_FDS};
    bool whole = true;

    jail_selfcheck(&plan, msg.readings);
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        whole = whole && (msg.readings[i].on || !(job.start.require & BRIG_LAYER_BIT(i)));
    must(SETUP_FDS, "close", SYS(close(INIT_FD_PROBE)));
    must(SETUP_CHECK, "tell", SYS(send(job.plan.setup_fd, &msg, sizeof msg, MSG_NOSIGNAL)));
    if (!whole)
        _exit(125); /* the spawner says which */
    close(job.plan.setup_fd);
}

/* What glibc's own fork() would do. The number of its thread the kernel has written; this is what it takes from a
 * process that shares memory. */
static void register_thread(void)
{
    (void)syscall(SYS_set_robust_list, thread.robust, thread.robust_len);
    if (__rseq_size > 0)
        (void)syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, 32, 0, RSEQ_SIG);
}

static void become_program(void)
{
    sigset_t none;
    const struct jail_user user = {.uid = job.start.uid,
                                   .gid = job.start.gid,
                                   .bounding = PID_1_CAPS,
                                   .as_is = plan_off(&job.plan, BRIG_LAYER_CAPS)};
    long ret = jail_become_user(&user);

    if (ret < 0)
        give_up(SETUP_IDS, "program", ret);
    must(SETUP_SESSION, "setsid", SYS(setsid()));
    set_stdio();
    umask(022);
    must(SETUP_WORKDIR, job.workdir, SYS(chdir(job.workdir)));
    close_others();
    check();
    register_thread();
    prctl(PR_SET_NAME, "python3");
    prctl(PR_SET_DUMPABLE, 1); /* as execve leaves it */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- the zygote ------------------------------------------------------------------------------------- */

static void forget_job(void)
{
    explicit_bzero(message, message_len);
    explicit_bzero(&job, sizeof job);
    fd_close_all(job_fds, n_job_fds);
    n_job_fds = 0;
}

static void look_up_thread(void)
{
    if (prctl(PR_GET_TID_ADDRESS, &thread.tid_address, 0, 0, 0) < 0)
        thread.tid_address = 0;
    (void)syscall(SYS_get_robust_list, 0, &thread.robust, &thread.robust_len);
}

/* Returns 0 in the child. */
static pid_t clone_child(int *ret_pidfd)
{
    struct clone_args args = {.flags = job.clone_flags | CLONE_PARENT | CLONE_PIDFD,
                              .pidfd = (uint64_t)(uintptr_t)ret_pidfd};

    /* Handlers stay: pid 1 loses them by execve, and pid 2 has those of its interpreter. */
    args.flags &= ~(__u64)CLONE_CLEAR_SIGHAND;
    if (job.cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (__u64)job.cgroup_fd;
    }
    return SYS(sys_clone3(&args));
}

static void answer(const struct zygote_answer *msg, int pidfd)
{
    if (fd_send(ZYGOTE_FD_SOCKET, msg, sizeof *msg, &pidfd, pidfd >= 0) < 0)
        _exit(0);
}

static void await_job(void)
{
    ssize_t n = fd_recv(ZYGOTE_FD_SOCKET, message, sizeof message, job_fds, ZYGOTE_FDS, &n_job_fds);

    if (n <= 0 || zygote_job_parse(message, (size_t)n, job_fds, n_job_fds, &job) < 0)
        _exit(n == 0 ? 0 : 1);
    message_len = (size_t)n;
    job.plan.adopt = true;
    job.plan.tid_address = thread.tid_address;
    job.plan.shared_fds = false;
}

/*
 * Free pieces lie all over the heap, and a child that takes one writes to a page that it shares: a whole copy for a few
 * bytes. They are taken here and never given back; a child then takes memory from the end of the heap, one piece beside
 * the other.
 */
static void use_up_holes(void)
{
    const char *end = (char *)sbrk(0) - mallinfo2().keepcost; /* behind it is nothing but the end */

    for (size_t size = HOLE_MAX; size >= HOLE_MIN; size -= HOLE_STEP)
        for (;;) {
            char *piece = malloc(size);
            if (piece && piece < end)
                continue;
            free(piece);
            break;
        }
}

static void prepare(void)
{
    sigset_t all;

    look_up_thread();
    __fpurge(stdin);      /* the rest of zygote.py is no child's input */
    (void)malloc_trim(0); /* every page that is here is mapped, and unmapped, once more per child */
    use_up_holes();
    sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        prctl(PR_SET_NAME, "brig-zygote") < 0)
        _exit(1);
    for (int fd = 0; fd <= 2; fd++) /* were zygote.py, and a pipe for the sake of sys.stdout */
        if (dup2(ZYGOTE_FD_NULL, fd) < 0)
            _exit(1);
    /* From here on the host's tree is out of sight: what is cloned starts in the spawner's. */
    if (setns(ZYGOTE_FD_MNT, CLONE_NEWNS) < 0 || close_range(ZYGOTE_FD_SOCKET + 1, ~0u, 0) < 0)
        _exit(1);
}

int brig_zygote_serve(void)
{
    prepare();
    answer(&(struct zygote_answer){.magic = ZYGOTE_MAGIC, .type = ZYGOTE_READY}, -1);
    for (;;) {
        struct zygote_answer msg = {.magic = ZYGOTE_MAGIC, .type = ZYGOTE_CLONED};
        int pidfd = -1;

        await_job();
        pid_t pid = clone_child(&pidfd);
        if (pid == 0) {
            close(ZYGOTE_FD_SOCKET);
            jail_enter_adopt(&job.plan);
            become_program();
            n_job_fds = 0; /* closed with the rest */
            forget_job();
            return 0;
        }
        msg.number = job.number;
        msg.pid = pid > 0 ? pid : 0;
        msg.errnum = pid > 0 ? 0 : errno;
        forget_job();
        answer(&msg, pidfd);
        base_close_fd(&pidfd);
    }
}
