/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest.h: the parts of brig-init, pid 1 of every sandbox (init.c has the theory of operation).
 *
 * No function here allocates memory or uses errno or a C library. Failures are negative errnos.
 */
#ifndef BRIG_GUEST_INIT_GUEST_H
#define BRIG_GUEST_INIT_GUEST_H

#include <sys/types.h>

#include "codec/wire/fields.h"
#include "codec/wire/frame.h"
#include "codec/passwd.h"
#include "codec/wire/guest_msg.h"
#include "codec/wire/guest_svc.h"
#include "jail/plan.h" /* INIT_FD_*: the descriptors it is executed with; 0, 1, 2 are the sandbox's /dev/null */

/* Exit statuses of pid 1 itself. The spawner sees them only when EXITED did not arrive. */
enum guest_exit {
    GUEST_EXIT_DONE = 0,      /* EXITED was sent */
    GUEST_EXIT_GONE = 1,      /* the control socket closed or broke */
    GUEST_EXIT_MALFORMED = 2, /* the other side broke the protocol */
    GUEST_EXIT_BROKEN = 3,    /* a call that cannot fail failed */
    GUEST_EXIT_USAGE = 4,     /* a word of the command line makes no sense */
};

#define GUEST_STDIO_MAX 3
#define GUEST_PAGE 4096u
#define PAGE_ROUND(n) (((n) + GUEST_PAGE - 1) / GUEST_PAGE * GUEST_PAGE)

/* Without words it was started by our jail. */
__attribute__((noreturn)) void guest_main(int argc, char *const *argv, char *const *env);
void guest_lock_down(void);    /* From here on it is not dumpable, and every signal is blocked and has its default. */
uint64_t guest_bounding(void); /* The bounding set of the calling process. */
int guest_signals(void);       /* A signalfd for children. */
__attribute__((noreturn)) void guest_exit(int status);
uint64_t guest_now_ns(void); /* CLOCK_MONOTONIC */

/* ---- guest_control.c: frames over the control socket --------------------------------------------------- */

/* Sends one whole frame, with a descriptor beside it unless pass_fd is -1. */
int control_send(enum frame_type type, const uint8_t *payload, size_t len, int pass_fd) MUST_CHECK;
/*
 * Waits for bytes and keeps them. Returns 0, -EPIPE when the other side has gone, or -EPROTO when more descriptors came
 * than a START may carry.
 */
int control_receive(void) MUST_CHECK;
/*
 * Finds the next complete frame. Returns 1 with *ret (valid until the next call of this or control_receive()), 0 if
 * there is none, or -EPROTO.
 */
int control_next(struct frame *ret) MUST_CHECK;
/* Returns the descriptors that came so far. The caller owns them. */
unsigned control_take_fds(int fds[GUEST_STDIO_MAX]);
/* Forgets everything that was received and gives the memory back: argv and environment do not stay in pid 1. */
void control_forget(void);

/* ---- program.c: from a clone to execve ------------------------------------------------------------ */

#define EXIT_NOT_STARTED 125 /* The status of a process that gave up before execve. */
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define SHELL_FD_RESULT 8 /* The descriptors that a persistent shell finds beside its stdio (guest_shell.c). */
#define SHELL_FD_COMMAND 9
/* The descriptor that a process with a channel finds (channel.c); before that it is the control socket's. */
#define CHANNEL_FD 3

/* What the stages make. */
enum program_kind {
    PROGRAM_MAIN,    /* the program of START: it checks its layers, sends STARTED and executes */
    PROGRAM_PROBE,   /* the same without a program: it checks its layers, sends STARTED and exits */
    PROGRAM_SERVICE, /* one process of a service: it reports to init on report_fd and executes */
};

/* A user that was looked up: its ids, and its variables as they stand in an environment ("": none). */
struct guest_user {
    uint32_t uid, gid;
    uint32_t n_groups, groups[USER_GROUPS_MAX];
    char home[USER_HOME_MAX + 8], user[USER_PART_MAX + 16], logname[USER_PART_MAX + 16];
};

struct program {
    enum program_kind kind;
    const struct guest_start *start;
    struct guest_user *user; /* Instead of the ids of start, if it is not NULL. */
    struct svc_bytes who;    /* If it is not empty, the user is looked up by this name. */
    char **argv, **env;      /* They end with NULL and point into the message they came with. */
    int fds[GUEST_STDIO_MAX];
    unsigned n_fds;
    uint64_t bounding;     /* The capabilities in pid 1's bounding set. */
    int landlock_probe_fd; /* What the self-check tries Landlock with (jail/selfcheck.h). */
    /* Only for PROGRAM_SERVICE: */
    int report_fd;    /* A SOCK_SEQPACKET: carries struct child_report to init, and a released leaf from it. */
    int shell_fds[2]; /* They become SHELL_FD_RESULT and SHELL_FD_COMMAND; or -1. */
    int channel_fd;   /* It becomes CHANNEL_FD; or -1. */
    uint32_t leaf;    /* The cgroup that it asks for first; 0 for none. */
    /* It waits until this holds instead of executing (unit_probe.c); or NULL. */
    const struct svc_unit *probe;
    /* Serves the one who asks on this socket instead of executing, and refuses if he may not (sudo.c); or -1. */
    int sudo_fd;
    bool sudo_refused;
    /* The child writes these. As MAIN and PROBE it shares our memory until it executes. */
    int stage;  /* The enum guest_stage that it has reached. */
    int errnum; /* Why it stopped there, or 0. */
    struct guest_started started;
};

/*
 * The reports of a process of a service: first the master of its terminal (beside it), then that it is about to
 * execute, then failures.
 */
enum child_report_kind { CHILD_TTY = 1, CHILD_EXECUTES, CHILD_FAILED };
struct child_report {
    uint32_t kind, stage, errnum, pid;
    uint64_t at_ns;
};

/*
 * Turns n_argv + n_env strings, one after the other, into two vectors in memory of their own. extra (NULL, or two
 * strings that may be NULL) follows the arguments. Returns 0 or a negative errno.
 */
int program_vectors(struct program *program, const char *strings, uint32_t n_argv, uint32_t n_env,
                    const char *const extra[2]) MUST_CHECK;
/*
 * Makes the child, which sends STARTED itself, and returns once it has executed the program or given up. If it gave up,
 * program->errnum is set and the child must still be reaped. Returns its pid or a negative errno.
 */
pid_t program_start(struct program *program) MUST_CHECK;
/* The work of the child, for callers that have forked by themselves (PROGRAM_SERVICE). */
__attribute__((noreturn)) void program_child(struct program *program);
__attribute__((noreturn)) void program_give_up(struct program *program, long ret);
/*
 * Does the first stage alone: ids, groups, capabilities. From here on the process is the program's user, and not
 * dumpable.
 */
long program_become_user(const struct program *program) MUST_CHECK;

/* ---- who.c ---------------------------------------------------------------------------------------- */

/*
 * Looks a user up in the sandbox's own files. -ESRCH: there is no such name; -EPERM: it is uid 0, and the sandbox has
 * no root inside; -EFBIG, -E2BIG: a file or a list is too long.
 */
long who_find(const char *text, size_t len, bool root_inside, struct guest_user *ret) MUST_CHECK;
/* Adds HOME, USER and LOGNAME to an environment that does not have them. There must be room for WHO_VARIABLES more. */
#define WHO_VARIABLES 3u
void who_environment(struct guest_user *user, char **env);

/* ---- tty.c --------------------------------------------------------------------------------------- */

/*
 * Called in the child, as the program's user and in a session of its own: makes a PTY that is 0, 1, 2 and the
 * controlling terminal. Returns the master (close-on-exec).
 */
int tty_open(uint16_t rows, uint16_t cols) MUST_CHECK;

#endif
