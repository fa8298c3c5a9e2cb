/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c: from clone to execve: the program of START, the probe of a service, and every process of a service.
 *
 * Theory of operation. The child of START shares pid 1's memory and pid 1 sleeps until the child has executed or died
 * (CLONE_VM | CLONE_VFORK, as posix_spawn does, on a stack of its own): no page is copied, and the child reports by
 * writing into struct program. It sends STARTED itself, directly before execve, so the latency path has neither a pipe
 * nor a switch of processes. Nothing of the user's has run yet, both tasks are brig's code, neither is dumpable, and
 * all signals are blocked; descriptors, working directory and dispositions are not shared.
 *
 * A process of a service goes the same way from a fork, because pid 1 must go on serving: it reports through a socket
 * of its own that closes when it executes. It first asks the spawner for a cgroup (LEAF, with its credentials, which
 * give the spawner its pid). It does not check the layers: every process inherits what START's probe read back.
 *
 * The stages, in this order, each of which must succeed:
 *   IDS      bounding and ambient capabilities, groups, ids, then every capability: from here on it is the program
 *   TTY      session, then stdio: a PTY made as the program's user, or the descriptors that came with START
 *   WORKDIR  and that the kernel can name it from our root (CVE-2024-21626: a directory outside)
 *   CHECK    the self-check reads back what this very process now is; a required layer that is off ends it here
 *   EXEC     descriptors past 2 close; what fails here is 127 (no such file) or 126, as the shell says it
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/uio.h>

#include <linux/magic.h>
#include <linux/openat2.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"
#include "jail/selfcheck.h"
#include "jail/user.h"

#define CHILD_STACK (32u * 1024)
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static uint8_t child_stack[CHILD_STACK] __attribute__((aligned(GUEST_PAGE)));
static char path_buffer[PATH_MAX];

/* ---- IDS ------------------------------------------------------------------------------------------ */

long program_become_user(const struct program *program)
{
    const struct guest_start *start = program->start;
    const struct guest_user *named = program->user;
    uint32_t uid = named ? named->uid : start->uid;
    const struct jail_user user = {
        .uid = uid,
        .gid = named ? named->gid : start->gid,
        .groups = named ? named->groups : NULL,
        .n_groups = named ? named->n_groups : 0,
        .bounding = program->bounding,
        .keep = (start->flags & GUEST_START_ROOT) && uid == INSIDE_ROOT ? ROOT_INSIDE_CAPS : 0,
        .as_is = start->skip & BRIG_LAYER_BIT(BRIG_LAYER_CAPS),
    };

    return jail_become_user(&user);
}

static long find_user(struct program *program)
{
    static struct guest_user found; /* Only processes of a service have one, and each is a fork. */
    long ret = 0;

    if (program->who.len > 0) {
        ret = who_find(program->who.data, program->who.len, program->start->flags & GUEST_START_ROOT, &found);
        program->user = &found;
    }
    if (ret == 0 && program->user)
        who_environment(program->user, program->env);
    return ret;
}

/* ---- TTY: session and stdio ------------------------------------------------------------------------ */

/* The descriptors that came with START are above 2 (0, 1, 2 were open), so none is overwritten before its turn. */
static long set_stdio(const struct program *program)
{
    bool has_stdin = program->start->flags & GUEST_START_STDIN;
    long ret = has_stdin ? program->fds[0] : raw_call4(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC, 0);

    if (raw_failed(ret) || raw_failed(ret = raw_call3(SYS_dup3, ret, 0, 0)) ||
        raw_failed(ret = raw_call3(SYS_dup3, program->fds[has_stdin], 1, 0)) ||
        raw_failed(ret = raw_call3(SYS_dup3, program->fds[has_stdin + 1], 2, 0)))
        return ret;
    return 0;
}

/* ---- WORKDIR --------------------------------------------------------------------------------------- */

/* Through no magic link: /proc/self/cwd and its kind. The profile paranoid has no openat2. */
static long change_directory(const char *path)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    long fd = raw_call4(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    if (fd == -ENOSYS)
        return raw_call1(SYS_chdir, path);
    if (raw_failed(fd))
        return fd;
    long ret = raw_call1(SYS_fchdir, fd);
    raw_call1(SYS_close, fd);
    return ret;
}

static long enter_workdir(const char *path)
{
    long ret = change_directory(path);

    if (ret == 0)
        ret = raw_call2(SYS_getcwd, path_buffer, sizeof(path_buffer));
    struct statfs fs = {0};

    if (raw_failed(ret))
        return ret;
    if (path_buffer[0] != '/')
        return -EXDEV; /* "(unreachable)/..." */
    /* A link may have led into /proc, where every path is somebody's descriptor (CVE-2024-21626). */
    ret = raw_call2(SYS_statfs, ".", &fs);
    return ret != 0 ? ret : fs.f_type == PROC_SUPER_MAGIC ? -EPERM : 0;
}

/* ---- CHECK ----------------------------------------------------------------------------------------- */

static long check_and_report(struct program *program, int tty_master)
{
    struct guest_started *started = &program->started;
    const struct selfcheck_plan plan = {
        .start = program->start, .landlock_probe_fd = program->landlock_probe_fd, .max_fd = 2};
    uint8_t wire[GUEST_STARTED_SIZE];
    int len, ret;

    jail_selfcheck(&plan, started->readings);
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if (!started->readings[i].on)
            started->missing |= program->start->require & BRIG_LAYER_BIT(i);
    started->at_ns = guest_now_ns();
    len = guest_started_put(wire, sizeof(wire), started);
    ret = len < 0 ? len : control_send(FRAME_STARTED, wire, (size_t)len, tty_master);
    if (ret < 0)
        return ret;
    return started->missing ? -EPERM : 0;
}

/* ---- what a process of a service tells init --------------------------------------------------------- */

static long report(const struct program *program, enum child_report_kind kind, int errnum, int pass_fd)
{
    struct child_report what = {
        .kind = kind,
        .stage = (uint32_t)program->stage,
        .errnum = (uint32_t)errnum,
        .pid = (uint32_t)raw_call0(SYS_getpid),
        .at_ns = guest_now_ns(),
    };
    struct iovec iov = {&what, sizeof(what)};
    union {
        struct cmsghdr head;
        uint8_t space[CMSG_SPACE(sizeof(int))];
    } beside = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (pass_fd >= 0) {
        __builtin_memcpy(CMSG_DATA(&beside.head), &pass_fd, sizeof(pass_fd));
        msg.msg_control = &beside;
        msg.msg_controllen = sizeof(beside.space);
    }
    long sent = raw_call3(SYS_sendmsg, program->report_fd, &msg, MSG_NOSIGNAL);
    return sent < 0 ? sent : 0;
}

/* Asks for a cgroup and waits until init says that the spawner has put us there. */
static long enter_leaf(const struct program *program)
{
    uint8_t wire[GUEST_LEAF_SIZE];
    uint32_t errnum = 0;
    int len = guest_leaf_put(wire, sizeof(wire), program->leaf);
    long ret = len < 0 ? len : control_send(FRAME_LEAF, wire, (size_t)len, -1);

    if (ret != 0)
        return ret;
    do {
        ret = raw_call3(SYS_read, program->report_fd, &errnum, sizeof(errnum));
    } while (ret == -EINTR);
    if (ret != (long)sizeof(errnum))
        return ret < 0 ? ret : -EPIPE;
    return -(long)errnum;
}

/* Numbers that must be free are left to the shell alone: the descriptors move up first, then to their places. */
static long place_shell_fds(const struct program *program)
{
    long from[2], ret = 0;

    for (int i = 0; i < 2; i++)
        if (raw_failed(from[i] = raw_call3(SYS_fcntl, program->shell_fds[i], F_DUPFD_CLOEXEC, SHELL_FD_COMMAND + 1)))
            return from[i];
    for (int i = 0; i < 2 && !raw_failed(ret); i++)
        ret = raw_call3(SYS_dup3, from[i], SHELL_FD_RESULT + i, 0);
    return raw_failed(ret) ? ret : 0;
}

/* ---- EXEC ------------------------------------------------------------------------------------------ */

static const char *env_path(char *const *env)
{
    for (; *env; env++) {
        const char *name = "PATH=", *at = *env;

        while (*name != 0 && *name == *at)
            name++, at++;
        if (*name == 0)
            return at;
    }
    return DEFAULT_PATH;
}

/* As execvp(3) does, without its fallback to a shell. Returns only on failure. */
static long execute(const struct program *program)
{
    const char *name = program->argv[0], *at = env_path(program->env);
    size_t name_len = __builtin_strlen(name);
    long result = -ENOENT;

    if (name_len == 0)
        return -ENOENT;
    if (__builtin_memchr(name, '/', name_len))
        return raw_call3(SYS_execve, name, program->argv, program->env);
    for (;;) {
        size_t len = 0;
        long ret;

        while (at[len] != 0 && at[len] != ':')
            len++;
        if (len + 1 + name_len + 1 <= sizeof(path_buffer)) {
            __builtin_memcpy(path_buffer, at, len);
            if (len > 0) /* an empty element is the working directory */
                path_buffer[len++] = '/';
            __builtin_memcpy(path_buffer + len, name, name_len + 1);
            ret = raw_call3(SYS_execve, path_buffer, program->argv, program->env);
            if (ret == -EACCES)
                result = ret; /* found, perhaps; a later one may do */
            else if (ret != -ENOENT && ret != -ENOTDIR && ret != -ENAMETOOLONG)
                return ret;
        }
        while (*at != 0 && *at != ':')
            at++;
        if (*at++ == 0)
            return result;
    }
}

/* ---- the child ------------------------------------------------------------------------------------- */

__attribute__((noreturn)) void program_give_up(struct program *program, long ret)
{
    int status = EXIT_NOT_STARTED;

    program->errnum = (int)-ret;
    if (program->kind == PROGRAM_SERVICE)
        (void)report(program, CHILD_FAILED, program->errnum, -1);
    if (program->stage == STAGE_EXEC)
        status = ret == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    guest_exit(status);
}

/* Session and stdio; the master of a terminal is left in *ret_master. */
static long join_session(struct program *program, int *ret_master)
{
    const struct guest_start *start = program->start;
    long ret = raw_call0(SYS_setsid);

    if (raw_failed(ret) || program->kind == PROGRAM_PROBE) /* which keeps pid 1's: /dev/null */
        return raw_failed(ret) ? ret : 0;
    if (!(start->flags & GUEST_START_TTY))
        return set_stdio(program);
    *ret_master = tty_open(start->rows, start->cols);
    if (*ret_master < 0)
        return *ret_master;
    return program->kind == PROGRAM_SERVICE ? report(program, CHILD_TTY, 0, *ret_master) : 0;
}

static long close_the_rest(struct program *program)
{
    long ret = 0;

    if (!(program->start->skip & BRIG_LAYER_BIT(BRIG_LAYER_FDS)))
        ret = raw_close_from(3, CLOSE_RANGE_CLOEXEC);
    if (ret == 0 && program->kind == PROGRAM_SERVICE && program->shell_fds[0] >= 0)
        ret = place_shell_fds(program);
    if (ret == 0 && program->kind == PROGRAM_SERVICE && program->channel_fd >= 0) {
        ret = raw_call3(SYS_dup3, program->channel_fd, CHANNEL_FD, 0);
        ret = raw_failed(ret) ? ret : 0;
    }
    return ret;
}

__attribute__((noreturn)) void program_child(struct program *program)
{
    const uint64_t no_signals = 0;
    int tty_master = -1;
    long ret;

    program->stage = STAGE_FORK;
    if (program->errnum != 0)
        program_give_up(program, -program->errnum);
    if (program->leaf != 0 && (ret = enter_leaf(program)) != 0)
        program_give_up(program, ret);

    program->stage = STAGE_IDS;
    if ((ret = find_user(program)) != 0 || (ret = program_become_user(program)) != 0)
        program_give_up(program, ret);

    program->stage = STAGE_TTY;
    if ((ret = join_session(program, &tty_master)) != 0)
        program_give_up(program, ret);

    program->stage = STAGE_WORKDIR;
    raw_call1(SYS_umask, 022);
    if ((ret = enter_workdir(program->start->workdir)) != 0)
        program_give_up(program, ret);

    program->stage = STAGE_CHECK;
    if ((ret = close_the_rest(program)) != 0)
        program_give_up(program, ret);
    if (program->kind != PROGRAM_SERVICE && (ret = check_and_report(program, tty_master)) != 0)
        program_give_up(program, ret);
    program->stage = STAGE_EXEC;
    if (program->kind == PROGRAM_PROBE)
        guest_exit(0);

    if (program->kind == PROGRAM_SERVICE && (ret = report(program, CHILD_EXECUTES, 0, -1)) != 0)
        program_give_up(program, ret);
    if (program->kind == PROGRAM_SERVICE && program->sudo_fd >= 0)
        sudo_serve(program);
    ret = raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, sizeof(no_signals));
    if (ret == 0 && program->probe)
        unit_probe(program->probe);
    if (ret == 0)
        ret = execute(program);
    program_give_up(program, ret);
}

/* The strings were seen to be n_argv + n_env terminated ones, so walking them stays inside their message. */
int program_vectors(struct program *program, const char *strings, uint32_t n_argv, uint32_t n_env,
                    const char *const extra[2])
{
    unsigned n_extra = extra && extra[0] ? 2 : 0;
    size_t size = ((size_t)n_argv + n_extra + n_env + WHO_VARIABLES + 2) * sizeof(char *);
    char *at = (char *)(uintptr_t)strings;
    long mem = raw_call6(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (raw_failed(mem))
        return (int)mem;
    program->argv = (char **)mem; /* zeroed: both ends are NULL already */
    program->env = program->argv + n_argv + n_extra + 1;
    for (uint32_t i = 0; i < n_argv; i++, at += __builtin_strlen(at) + 1)
        program->argv[i] = at;
    for (unsigned i = 0; i < n_extra; i++)
        program->argv[n_argv + i] = (char *)(uintptr_t)extra[i];
    for (uint32_t i = 0; i < n_env; i++, at += __builtin_strlen(at) + 1)
        program->env[i] = at;
    return 0;
}

/* The child starts on its own stack with the registers of the parent; it never returns into this frame. */
static long clone_child(struct program *program)
{
    register long flags __asm__("rdi") = CLONE_VM | CLONE_VFORK | SIGCHLD;
    register void *stack __asm__("rsi") = child_stack + sizeof(child_stack);
    register long no_tid __asm__("rdx") = 0;
    register long no_child_tid __asm__("r10") = 0;
    register long no_tls __asm__("r8") = 0;
    register void (*run)(struct program *) __asm__("r12") = program_child;
    register struct program *argument __asm__("r13") = program;
    long ret;

    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "xor %%ebp, %%ebp\n"
                     "mov %[argument], %%rdi\n"
                     "call *%[run]\n"
                     "ud2\n"
                     "1:\n"
                     : "=a"(ret)
                     : "0"((long)SYS_clone), "r"(flags), "r"(stack), "r"(no_tid), "r"(no_child_tid),
                       "r"(no_tls), [run] "r"(run), [argument] "r"(argument)
                     : "rcx", "r11", "memory");
    return ret;
}

pid_t program_start(struct program *program)
{
    return (pid_t)clone_child(program);
}
