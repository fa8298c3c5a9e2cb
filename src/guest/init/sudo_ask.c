/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sudo_ask.c: the program sudo of a sandbox. It is brig-init's own file under another name (start.c), because that
 * needs no C library, so it runs on every image, and is there already.
 *
 * It has no right that its caller lacks. It reads its options, makes the environment of the command, asks pid 1 on its
 * socket (sudo.c), passes signals on, and ends as the command did. There is no password and no sudoers file: the
 * sandbox either has sudo or it does not.
 */
#include <fcntl.h>
#include <linux/limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "codec/sudo_args.h"
#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define SECURE_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define USAGE                                                                               \
    "usage: sudo [-EHn] [-u USER] [-i | -s] [NAME=value]... [--] [COMMAND [ARGUMENT]...]\n" \
    "       sudo -v | -l | -k | -V\n"
#define BIT(sig) (UINT64_C(1) << ((sig)-1))
#define PASSED_ON                                                                                            \
    (BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGHUP) | BIT(SIGQUIT) | BIT(SIGWINCH) | BIT(SIGUSR1) | BIT(SIGUSR2) | \
     BIT(SIGALRM) | BIT(SIGCONT) | BIT(SIGTSTP))

/* The strings of the request. It is full when an addition did not fit. */
static char text[SUDO_MESSAGE_MAX - GUEST_WORKDIR_MAX - 1024];
static size_t text_len;
static uint8_t wire[SUDO_MESSAGE_MAX];
static char directory[PATH_MAX];
static struct guest_user target; /* Whose the command will be; only -i looks for it here. */

static void say(const char *words)
{
    raw_call3(SYS_write, 2, words, __builtin_strlen(words));
}

__attribute__((noreturn)) static void stop(const char *why, const char *word)
{
    say("sudo: ");
    say(why);
    say(word[0] != '\0' ? " " : "");
    say(word);
    say("\n");
    guest_exit(1);
}

static bool begins(const char *at, const char *with)
{
    while (*with != 0 && *with == *at)
        with++, at++;
    return *with == 0;
}

static void add_byte(char byte)
{
    if (text_len >= sizeof(text))
        stop("the command and its environment are too long", "");
    text[text_len++] = byte;
}

static void add(const char *part)
{
    for (; *part != '\0'; part++)
        add_byte(*part);
}

static void add_string(const char *string)
{
    add(string);
    add_byte('\0');
}

static void add_number(const char *name, unsigned long number)
{
    char digits[24];
    size_t at = sizeof(digits) - 1;

    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
    } while ((number /= 10) > 0);
    add(name);
    add_string(digits + at);
}

static const char *variable(char *const *env, const char *name)
{
    for (; *env; env++)
        if (begins(*env, name))
            return *env + __builtin_strlen(name);
    return NULL;
}

/* ---- the request ---------------------------------------------------------------------------------------- */

/* One line for a shell, in which every word is what it was. */
static void add_line(const struct sudo_args *args)
{
    for (unsigned i = 0; i < args->n_argv; i++) {
        if (i > 0)
            add_byte(' ');
        for (const char *at = args->argv[i]; *at != '\0'; at++) {
            if (sudo_args_escapes(*at))
                add_byte('\\');
            add_byte(*at);
        }
    }
    add_byte('\0');
}

static uint32_t put_command(const struct sudo_args *args, char *const *env)
{
    const char *shell = variable(env, "SHELL=");
    uint32_t n = 1;

    if (!args->shell) {
        for (unsigned i = 0; i < args->n_argv; i++)
            add_string(args->argv[i]);
        return args->n_argv;
    }
    add_string(shell && shell[0] == '/' ? shell : "/bin/sh");
    if (args->login) {
        add_string("-l");
        n++;
    }
    if (args->n_argv == 0)
        return n;
    add_string("-c");
    add_line(args);
    return n + 2;
}

static void put_about_caller(const struct sudo_args *args, char *const *env)
{
    const char *name = variable(env, "USER=");
    unsigned long uid = (unsigned long)raw_call0(SYS_getuid);

    add_number("SUDO_UID=", uid);
    add_number("SUDO_GID=", (unsigned long)raw_call0(SYS_getgid));
    if (name) {
        add("SUDO_USER=");
        add_string(name);
    } else {
        add_number("SUDO_USER=", uid);
    }
    add("SUDO_COMMAND=");
    for (unsigned i = 0; i < args->n_argv; i++) {
        add(i > 0 ? " " : "");
        add(args->argv[i]);
    }
    add_byte('\0');
}

/* HOME, USER and LOGNAME are the other user's, and pid 1 adds them. */
static uint32_t put_environment(const struct sudo_args *args, char *const *env)
{
    uint32_t n = 4;

    put_about_caller(args, env);
    for (char *const *at = env; *at; at++)
        if (sudo_args_keeps(args, *at)) {
            add_string(*at);
            n++;
        }
    if (!sudo_args_sets(args, SECURE_PATH)) {
        add_string(SECURE_PATH);
        n++;
    }
    for (unsigned i = 0; i < args->n_set; i++, n++)
        add_string(args->set[i]);
    return n;
}

/* With -i the home of the other user, else where we are. */
static const char *place_of(const struct sudo_args *args)
{
    const size_t name = sizeof("HOME=") - 1;

    if (args->login && who_find(args->user, __builtin_strlen(args->user), true, &target) == 0)
        return target.home + name;
    if (raw_failed(raw_call2(SYS_getcwd, directory, sizeof(directory))) || directory[0] != '/')
        stop("the working directory is gone", "");
    return directory;
}

/* A request without a user is the question whether there may be one at all. */
static int write_request(const struct sudo_args *args, char *const *env)
{
    struct svc_proc_start msg = {.proc = 1};
    const char *dir = "/";

    if (args->does == SUDO_RUN) {
        dir = place_of(args);
        msg.flags = SVC_PROC_USER;
        msg.user = (struct svc_bytes){args->user, (uint32_t)__builtin_strlen(args->user)};
        msg.n_argv = put_command(args, env);
        msg.n_env = put_environment(args, env);
    } else {
        add_string("sudo");
        msg.n_argv = 1;
    }
    msg.workdir = (struct svc_bytes){dir, (uint32_t)__builtin_strlen(dir)};
    msg.strings = (const uint8_t *)text;
    msg.strings_len = text_len;
    return svc_proc_start_put(wire, sizeof(wire), &msg);
}

static void send_request(const struct sudo_args *args, char *const *env, long conn)
{
    const int stdio[GUEST_STDIO_MAX] = {0, 1, 2};
    union {
        struct cmsghdr head;
        uint8_t space[CMSG_SPACE(sizeof(stdio))];
    } beside = {.head = {.cmsg_len = CMSG_LEN(sizeof(stdio)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    int len = write_request(args, env);

    if (len < 0)
        stop("the command and its environment are too long", "");
    struct iovec iov = {wire, (size_t)len};
    struct msghdr out = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &beside, .msg_controllen = sizeof(beside.space)};
    __builtin_memcpy(CMSG_DATA(&beside.head), stdio, sizeof(stdio));
    if (raw_call3(SYS_sendmsg, conn, &out, MSG_NOSIGNAL) != len)
        stop("the request could not be sent", "");
}

/* ---- the answer ------------------------------------------------------------------------------------------ */

static const char *reason(const struct sudo_end *end)
{
    switch (end->failed - 1) {
    case STAGE_IDS:
        return end->errnum == ESRCH || end->errnum == EINVAL ? "there is no such user"
                                                             : "that user cannot be looked up";
    case STAGE_WORKDIR: return "the working directory cannot be entered";
    case STAGE_EXEC:
        return end->errnum == ENOENT   ? "command not found"
               : end->errnum == EACCES ? "permission denied"
                                       : "cannot be executed";
    default: break;
    }
    return end->errnum == EPERM    ? "this user has no sudo in this sandbox"
           : end->errnum == EAGAIN ? "there are too many processes"
                                   : "the request was refused";
}

__attribute__((noreturn)) static void finish(const struct sudo_args *args, const struct sudo_end *end)
{
    const uint64_t none = 0;
    int status = (int)end->status;

    if (end->failed != 0) {
        bool exec = end->failed == 1 + STAGE_EXEC;

        say("sudo: ");
        say(args->n_argv > 0 ? args->argv[0] : args->does == SUDO_RUN ? "shell" : "-v");
        say(": ");
        say(reason(end));
        say("\n");
        guest_exit(!exec ? 1 : end->errnum == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
    }
    if (WIFSIGNALED(status)) { /* as the command did, if that signal ends us */
        raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
        raw_call2(SYS_kill, raw_call0(SYS_getpid), WTERMSIG(status));
        guest_exit(128 + WTERMSIG(status));
    }
    if (args->does == SUDO_LIST) {
        static const char all[] = "This user may run every command in this sandbox:\n    (ALL : ALL) NOPASSWD: ALL\n";
        raw_call3(SYS_write, 1, all, sizeof(all) - 1);
    }
    guest_exit(WEXITSTATUS(status));
}

static long connect_init(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = offsetof(struct sockaddr_un, sun_path) + 1 + sizeof(SUDO_SOCKET) - 1;
    long fd = raw_call3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    __builtin_memcpy(address.sun_path + 1, SUDO_SOCKET, sizeof(SUDO_SOCKET) - 1);
    long ret = raw_failed(fd) ? fd : raw_call3(SYS_connect, fd, &address, len);
    if (ret == -ECONNREFUSED)
        stop(SUDO_NOT_ALLOWED, "");
    if (ret != 0)
        stop("brig-init cannot be asked: there are too many processes or descriptors", "");
    return fd;
}

/* 0, 1 and 2 are what is sent, so those that the caller has closed become /dev/null. */
static void open_stdio(void)
{
    long fd;

    do {
        fd = raw_call4(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
    } while (fd >= 0 && fd < GUEST_STDIO_MAX);
    if (raw_failed(fd))
        guest_exit(1);
    raw_call1(SYS_close, fd);
}

/* The command has no terminal of its own, so a stop must reach it before it reaches us. */
static void pass_on(long conn, uint32_t sig)
{
    const uint32_t passed = sig == SIGTSTP ? SIGSTOP : sig;

    raw_call6(SYS_sendto, conn, &passed, sizeof(passed), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
    if (sig == SIGTSTP)
        raw_call2(SYS_kill, raw_call0(SYS_getpid), SIGSTOP);
}

__attribute__((noreturn)) static void wait_for_end(const struct sudo_args *args, long conn, long signals)
{
    struct pollfd fds[2] = {{.fd = (int)conn, .events = POLLIN}, {.fd = (int)signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    struct sudo_end end;

    for (;;) {
        raw_call3(SYS_poll, fds, 2, -1);
        if (fds[1].revents != 0 && raw_call3(SYS_read, signals, &info, sizeof(info)) == (long)sizeof(info))
            pass_on(conn, info.ssi_signo);
        if (fds[0].revents == 0)
            continue;
        long got = raw_call3(SYS_read, conn, &end, sizeof(end));
        if (got == -ECONNRESET) /* a signal came too late to be read; the answer follows */
            got = raw_call3(SYS_read, conn, &end, sizeof(end));
        if (got == (long)sizeof(end))
            finish(args, &end);
        stop("the command was ended from outside", "");
    }
}

__attribute__((noreturn)) void sudo_main(int argc, char *const *argv, char *const *env)
{
    static struct sudo_args args;
    const uint64_t passed = PASSED_ON;

    open_stdio();
    if (sudo_args_read(argc, argv, &args) < 0) {
        say(USAGE);
        stop(args.why, args.word);
    }
    if (args.does >= SUDO_HELP) {
        const char *words = args.does == SUDO_HELP ? USAGE : args.does == SUDO_VERSION ? "sudo of brig\n" : "";
        raw_call3(SYS_write, 1, words, __builtin_strlen(words));
        guest_exit(0);
    }
    raw_call4(SYS_rt_sigprocmask, SIG_BLOCK, &passed, NULL, sizeof(passed));
    long signals = raw_call4(SYS_signalfd4, -1, &passed, sizeof(passed), SFD_CLOEXEC | SFD_NONBLOCK);
    long conn = connect_init();
    if (raw_failed(signals))
        stop("there are too many descriptors", "");
    send_request(&args, env, conn);
    wait_for_end(&args, conn, signals);
}
