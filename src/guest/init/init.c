/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.c: brig-init, pid 1 of every sandbox.
 *
 * Theory of operation. The jail's set-up executes it with every layer already in force. It says HELLO, parks in
 * one receive until START, makes the main process (program.c), then waits for two things at once: children to reap
 * and frames to obey. When the main process ends it says EXITED and exits, and the kernel kills whatever is left.
 *
 *     parked --START--> running --main process ended--> EXITED, exit 0
 *        \                 \
 *         +-----------------+-- socket closed: exit 1; protocol broken: exit 2; both without a word
 *
 * With GUEST_START_SERVICE there is no program: a probe with the program's ids reads the layers back and says STARTED,
 * and pid 1 goes on in guest_service.c, where it stays. With GUEST_START_ADOPT as well, a process that was forked into
 * the sandbox before us is there already, and the service has it as its first (channel.c).
 *
 * With words on its command line it was not our jail that started it (carry_words.c), and nothing of the above holds
 * but the service.
 *
 * Invariants: it is not dumpable, blocks every signal and installs no handler (so programs of the same id, where
 * there is only one, can neither read nor disturb it, and children inherit default dispositions). It reads only the
 * control socket. A parked init has touched a few pages and allocated nothing. It never trusts a count it was sent.
 * There is one START in its life.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define SIGNAL_MAX 64
#define REAP_BATCH 64 /* a storm of orphans must not keep frames waiting */
#define START_MAX (GUEST_STRINGS_MAX + GUEST_START_HEAD + GUEST_WORKDIR_MAX)

/* Whole pages: madvise() would take the rest of the last one along, and whatever lies there. */
static uint8_t message[PAGE_ROUND(START_MAX)] __attribute__((aligned(GUEST_PAGE)));
static struct guest_start start;
static struct program program;
static pid_t main_pid;

uint64_t guest_now_ns(void)
{
    struct timespec now = {0};

    raw_call2(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(bool ok)
{
    if (!ok)
        guest_exit(GUEST_EXIT_BROKEN);
}

static void obey_protocol(bool ok)
{
    if (!ok)
        guest_exit(GUEST_EXIT_MALFORMED);
}

static void receive(void)
{
    int ret = control_receive();

    if (ret != 0)
        guest_exit(ret == -EPROTO ? GUEST_EXIT_MALFORMED : GUEST_EXIT_GONE);
}

/* ---- before START ---------------------------------------------------------------------------------- */

/* Dispositions that were ignored would stay so across both executions; pid 1 has no use for any but the default. */
static void default_signals(void)
{
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {.handler = SIG_DFL};
    const uint64_t all = ~UINT64_C(0);

    must(raw_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all)) == 0);
    for (int sig = 1; sig <= SIGNAL_MAX; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            must(raw_call4(SYS_rt_sigaction, sig, &action, NULL, sizeof(action.mask)) == 0);
}

uint64_t guest_bounding(void)
{
    uint64_t set = 0;

    for (unsigned cap = 0; cap < 64; cap++) {
        long ret = raw_call5(SYS_prctl, PR_CAPBSET_READ, cap, 0, 0, 0);

        if (ret < 0) /* past the last capability of this kernel */
            break;
        if (ret == 1)
            set |= UINT64_C(1) << cap;
    }
    return set;
}

void guest_lock_down(void)
{
    must(raw_call5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    must(raw_call5(SYS_prctl, PR_SET_NAME, "brig-init", 0, 0, 0) == 0);
    default_signals();
}

int guest_signals(void)
{
    const uint64_t child_signal = UINT64_C(1) << (SIGCHLD - 1);
    long fd = raw_call4(SYS_signalfd4, -1, &child_signal, sizeof(child_signal), SFD_CLOEXEC | SFD_NONBLOCK);

    must(fd > INIT_FD_PROBE);
    return (int)fd;
}

static void say_hello(void)
{
    const struct guest_hello hello = {FRAME_VERSION, GUEST_CAP_RUN | GUEST_CAP_TTY | GUEST_CAP_FDS | GUEST_CAP_SERVICE};
    uint8_t wire[GUEST_HELLO_SIZE];
    int len = guest_hello_put(wire, sizeof(wire), &hello);

    must(len > 0);
    if (control_send(FRAME_HELLO, wire, (size_t)len, -1) != 0)
        guest_exit(GUEST_EXIT_GONE);
}

static void next_frame(struct frame *ret)
{
    int got;

    while ((got = control_next(ret)) == 0)
        receive();
    obey_protocol(got > 0);
}

/*
 * Receives HELLO, then START until it is complete. A spawner of the same build, which knows our version, may leave
 * HELLO out.
 */
static size_t await_start(void)
{
    struct guest_hello hello;
    struct frame frame;
    size_t len = 0;
    uint32_t request, version;

    next_frame(&frame);
    if (frame.type == FRAME_HELLO) {
        obey_protocol(guest_hello_parse(frame.payload, frame.length, &hello) == 0 &&
                      guest_hello_agree(&hello, &version) == 0);
        next_frame(&frame);
    }
    request = frame.request;
    for (;;) {
        obey_protocol(frame.type == FRAME_START && frame.request == request);
        obey_protocol(frame.length > 0 && frame.length <= sizeof(message) - len);
        __builtin_memcpy(message + len, frame.payload, frame.length);
        len += frame.length;
        if (!(frame.flags & FRAME_MORE))
            return len;
        next_frame(&frame);
    }
}

/* ---- START ----------------------------------------------------------------------------------------- */

static void check_start(size_t len)
{
    unsigned wanted = 2;

    obey_protocol(guest_start_parse(message, len, &start) == 0 && !(start.flags & GUEST_START_PLACES));
    if (start.flags & GUEST_START_SERVICE)
        wanted = 1;
    else if (start.flags & GUEST_START_TTY)
        wanted = 0;
    else if (start.flags & GUEST_START_STDIN)
        wanted = 3;
    program.n_fds = control_take_fds(program.fds);
    obey_protocol(program.n_fds == wanted);
    for (unsigned i = 0; i < wanted; i++)
        obey_protocol(program.fds[i] > INIT_FD_PROBE);
}

/* ---- the end --------------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void say_exited(int status)
{
    struct guest_exited exited = {.at_ns = guest_now_ns(), .status = (uint32_t)status};
    uint8_t wire[GUEST_EXITED_SIZE];
    int len;

    /* Short of EXEC it was not executed even if it died without saying why (killed by someone outside). */
    if (program.errnum != 0 || program.stage != STAGE_EXEC) {
        exited.failed = 1 + (uint32_t)program.stage;
        exited.errnum = (uint32_t)program.errnum;
    }
    len = guest_exited_put(wire, sizeof(wire), &exited);
    must(len > 0);
    guest_exit(control_send(FRAME_EXITED, wire, (size_t)len, -1) == 0 ? GUEST_EXIT_DONE : GUEST_EXIT_GONE);
}

/* What START brought is of use to the child only; the pipes must be closed here for their readers' sake. */
static void forget_start(int keep_fd, int signal_fd)
{
    bool adopt = start.flags & GUEST_START_ADOPT;
    unsigned from = (unsigned)keep_fd + 1;

    must(signal_fd > keep_fd);
    /* Around the signals' and the adopted, whichever way they lie. */
    while (from <= INIT_FD_ADOPT_CHANNEL || from <= (unsigned)signal_fd) {
        if (from != (unsigned)signal_fd && !(adopt && from >= INIT_FD_ADOPT_OUT && from <= INIT_FD_ADOPT_CHANNEL))
            raw_call1(SYS_close, from);
        from++;
    }
    must(raw_close_from(from, 0) == 0);
    control_forget();
    raw_call2(SYS_munmap, program.argv, ((size_t)start.n_argv + start.n_env + WHO_VARIABLES + 2) * sizeof(char *));
    raw_call3(SYS_madvise, message, sizeof(message), MADV_DONTNEED);
}

static void run_program(void)
{
    long ret;

    program.start = &start;
    program.landlock_probe_fd = INIT_FD_PROBE;
    program.kind = start.flags & GUEST_START_SERVICE ? PROGRAM_PROBE : PROGRAM_MAIN;
    program.stage = STAGE_FORK;
    ret = program_vectors(&program, start.strings, start.n_argv, start.n_env, NULL);
    if (ret == 0)
        ret = main_pid = program_start(&program);
    if (ret < 0) {
        program.errnum = (int)-ret;
        say_exited(EXIT_NOT_STARTED << 8);
    }
}

/* The probe has read the layers back and said STARTED, or the service ends as a program that was not executed does. */
static void await_probe(void)
{
    int status = 0;
    long ret;

    do {
        ret = raw_call4(SYS_wait4, main_pid, &status, 0, NULL);
    } while (ret == -EINTR);
    must(ret == main_pid);
    if (status != 0 || program.errnum != 0)
        say_exited(status);
}

/* A process that was here before us has read its layers back itself, and told the spawner: there is nothing to add. */
static void say_started(void)
{
    const struct guest_started started = {.at_ns = guest_now_ns()};
    uint8_t wire[GUEST_STARTED_SIZE];
    int len = guest_started_put(wire, sizeof(wire), &started);

    must(len > 0);
    if (control_send(FRAME_STARTED, wire, (size_t)len, -1) != 0)
        guest_exit(GUEST_EXIT_GONE);
}

__attribute__((noreturn)) static void serve(int signal_fd)
{
    must(raw_call3(SYS_dup3, program.fds[0], SERVICE_FD_STREAM, O_CLOEXEC) == SERVICE_FD_STREAM);
    forget_start(SERVICE_FD_STREAM, signal_fd);
    service_main(&start, program.bounding, signal_fd);
}

/* ---- running --------------------------------------------------------------------------------------- */

/* Reaps what has died, at most a batch. Returns whether there may be more. Stopped children are not reported. */
static bool reap(void)
{
    for (int i = 0; i < REAP_BATCH; i++) {
        int status = 0;
        long pid = raw_call4(SYS_wait4, -1, &status, WNOHANG, NULL);

        if (pid == main_pid)
            say_exited(status);
        if (pid <= 0)
            return false;
    }
    return true;
}

/* Only SIGNAL may come now. The main process is not reaped while we live, so its pid is its own. */
static void obey(void)
{
    struct frame frame;
    int got;

    receive();
    obey_protocol(control_take_fds((int[GUEST_STDIO_MAX]){0}) == 0);
    while ((got = control_next(&frame)) > 0) {
        uint32_t sig = 0;

        obey_protocol(frame.type == FRAME_SIGNAL && guest_signal_parse(frame.payload, frame.length, &sig) == 0);
        raw_call2(SYS_kill, main_pid, sig);
    }
    obey_protocol(got == 0);
}

/* The same file is sudo in a sandbox that has it (sudo_ask.c). pid 1 uses neither its argv nor its environment. */
static bool is_sudo(int argc, char *const *argv)
{
    size_t len = argc > 0 ? __builtin_strlen(argv[0]) : 0;

    return raw_call0(SYS_getpid) != 1 && len >= 4 && __builtin_memcmp(argv[0] + len - 4, "sudo", 4) == 0 &&
           (len == 4 || argv[0][len - 5] == '/');
}

__attribute__((noreturn)) void guest_main(int argc, char *const *argv, char *const *env)
{
    struct pollfd fds[2] = {{.fd = INIT_FD_CONTROL, .events = POLLIN}, {.events = POLLIN}};
    struct signalfd_siginfo info;
    bool more = false;

    if (is_sudo(argc, argv))
        sudo_main(argc, argv, env);
    if (argc > 1)
        words_main(argc, argv);
    guest_lock_down();
    must(raw_call3(SYS_close_range, INIT_FD_CONTROL, INIT_FD_ADOPT_CHANNEL, CLOSE_RANGE_CLOEXEC) == 0);
    program.bounding = guest_bounding();
    fds[1].fd = guest_signals();
    say_hello();
    check_start(await_start());
    if (start.flags & GUEST_START_ADOPT) {
        say_started();
        serve(fds[1].fd);
    }
    run_program();
    if (start.flags & GUEST_START_SERVICE) {
        await_probe();
        serve(fds[1].fd);
    }
    forget_start(INIT_FD_CONTROL, fds[1].fd);
    for (;;) {
        long ready = raw_call3(SYS_poll, fds, 2, more ? 0 : -1);

        must(ready >= 0 || ready == -EINTR);
        if (ready > 0 && fds[1].revents != 0) {
            /* Drained before reaping: a child that dies in between makes it readable again. */
            raw_call3(SYS_read, fds[1].fd, &info, sizeof(info));
            more = true;
        }
        if (more)
            more = reap();
        if (ready > 0 && fds[0].revents != 0)
            obey();
    }
}
