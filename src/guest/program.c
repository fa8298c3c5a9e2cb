/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c: the main process, from clone to execve.
 *
 * Theory of operation. The child shares pid 1's memory and pid 1 sleeps until the child has executed or died
 * (CLONE_VM | CLONE_VFORK, as posix_spawn does, on a stack of its own): no page is copied, and the child reports
 * by writing into struct program. It sends STARTED itself, directly before execve, so the latency path has
 * neither a pipe nor a switch of processes. Nothing of the user's has run yet, both tasks are brig's code, neither
 * is dumpable, and all signals are blocked; descriptors, working directory and dispositions are not shared.
 *
 * The stages, in this order, each of which must succeed:
 *   IDS      bounding and ambient capabilities, groups, ids, then every capability: from here on it is the program
 *   TTY      session, then stdio: a PTY made as the program's user, or the descriptors that came with START
 *   WORKDIR  and that the kernel can name it from our root (CVE-2024-21626: a directory outside)
 *   CHECK    the self-check reads back what this very process now is; a required layer that is off ends it here
 *   EXEC     descriptors past 2 close; what fails here is 127 (no such file) or 126, as the shell says it
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <sys/statfs.h>

#include <linux/magic.h>
#include <linux/openat2.h>

#include "guest/guest.h"
#include "jail/rawcall.h"
#include "jail/selfcheck.h"

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define CHILD_STACK (32u * 1024)
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static uint8_t child_stack[CHILD_STACK] __attribute__((aligned(GUEST_PAGE)));
static char path_buffer[PATH_MAX];

/* ---- IDS ------------------------------------------------------------------------------------------ */

static long drop_capabilities(const struct program *program)
{
    long ret = raw_call5(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

    /* May fail without CAP_SETPCAP, outside a sandbox; the self-check then reads `caps` as off. */
    for (unsigned cap = 0; cap < 64; cap++)
        if (program->bounding & (UINT64_C(1) << cap))
            raw_call5(SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
    return ret;
}

static long become_user(const struct program *program)
{
    const struct guest_start *start = program->start;
    bool keep_caps = start->skip & BRIG_LAYER_BIT(BRIG_LAYER_CAPS);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    long ret;

    if (!keep_caps && (ret = drop_capabilities(program)) != 0)
        return ret;
    /* With one id the kernel refuses setgroups; those groups are the calling user's, and `uid_range` says so. */
    if (raw_call0(SYS_geteuid) != start->uid && raw_call2(SYS_getgroups, 0, NULL) != 0 &&
        (ret = raw_call2(SYS_setgroups, 0, NULL)) != 0)
        return ret;
    if ((ret = raw_call3(SYS_setresgid, start->gid, start->gid, start->gid)) != 0 ||
        (ret = raw_call3(SYS_setresuid, start->uid, start->uid, start->uid)) != 0)
        return ret;
    return keep_caps ? 0 : raw_call2(SYS_capset, &head, none);
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
    struct statfs fs;

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
    const struct selfcheck_plan plan = {.start = program->start, .landlock_probe_fd = INIT_FD_PROBE, .max_fd = 2};
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

__attribute__((noreturn)) static void give_up(struct program *program, long ret)
{
    int status = EXIT_NOT_STARTED;

    program->errnum = (int)-ret;
    if (program->stage == STAGE_EXEC)
        status = ret == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    guest_exit(status);
}

__attribute__((noreturn)) static void child_main(struct program *program)
{
    const struct guest_start *start = program->start;
    const uint64_t no_signals = 0;
    int tty_master = -1;
    long ret;

    program->stage = STAGE_IDS;
    if ((ret = become_user(program)) != 0)
        give_up(program, ret);

    program->stage = STAGE_TTY;
    if (raw_failed(ret = raw_call0(SYS_setsid)))
        give_up(program, ret);
    if (start->flags & GUEST_START_TTY)
        ret = tty_master = tty_open(start->rows, start->cols);
    else
        ret = set_stdio(program);
    if (ret < 0)
        give_up(program, ret);

    program->stage = STAGE_WORKDIR;
    raw_call1(SYS_umask, 022);
    if ((ret = enter_workdir(start->workdir)) != 0)
        give_up(program, ret);

    program->stage = STAGE_CHECK;
    if (!(start->skip & BRIG_LAYER_BIT(BRIG_LAYER_FDS)) &&
        (ret = raw_call3(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC)) != 0)
        give_up(program, ret);
    if ((ret = check_and_report(program, tty_master)) != 0)
        give_up(program, ret);

    program->stage = STAGE_EXEC;
    ret = raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, sizeof(no_signals));
    if (ret == 0)
        ret = execute(program);
    give_up(program, ret);
}

/* The child starts on its own stack with the registers of the parent; it never returns into this frame. */
static long clone_child(struct program *program)
{
    register long flags __asm__("rdi") = CLONE_VM | CLONE_VFORK | SIGCHLD;
    register void *stack __asm__("rsi") = child_stack + sizeof(child_stack);
    register long no_tid __asm__("rdx") = 0;
    register long no_child_tid __asm__("r10") = 0;
    register long no_tls __asm__("r8") = 0;
    register void (*run)(struct program *) __asm__("r12") = child_main;
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
