/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_service.h: the parts of a brig-init that serves processes (guest_service.c has the theory of operation).
 *
 * The parts are a connection with calls (guest_conn.c, guest_conn_send.c), processes (proc*.c), and between them
 * outlets, which take bytes from a descriptor into a ring that calls read, and inlets, which take bytes from a call to
 * a descriptor. Everything is single-threaded; memory is mapped when it is needed and given back when it is not.
 */
#ifndef BRIG_GUEST_INIT_GUEST_SERVICE_H
#define BRIG_GUEST_INIT_GUEST_SERVICE_H

#include <sys/resource.h>
#include <sys/uio.h>

#include "guest/init/guest.h"

#define SERVICE_FD_STREAM (INIT_FD_CONTROL + 1)
#define STREAMS 3u /* Stream 0 goes in; 1 and 2 come out. */
#define owner_of(member_ptr, type, member) ((type *)(void *)((uint8_t *)(member_ptr)-offsetof(type, member)))

#define SERVICE_RING (256u * 1024) /* The ring of an output, unless START says another size. */
#define ADOPTED_PROC 1u            /* The number of a process that was in the sandbox before pid 1. */

struct call;
struct proc;
struct channel;
struct unit;

/* ---- guest_service.c ------------------------------------------------------------------------------------- */

/* Serves until the control socket closes. start and bounding are as for a program; the strings of start are gone. */
__attribute__((noreturn)) void service_main(const struct guest_start *start, uint64_t bounding, int signal_fd);
/* The parts of it, for a carried one, which has its loop before it has its START. */
void service_begin(int signal_fd);
void service_base(const struct guest_start *start, uint64_t bounding);
__attribute__((noreturn)) void service_loop(void);
/* Fills in what the stages need for every process of this service: ids, layers, capabilities. */
void service_program(struct program *program, struct guest_start *start);
bool service_has_leaves(void);
void service_user(uint32_t request, const uint8_t *payload, size_t len);

/* A descriptor that the loop waits for. */
struct source {
    int fd;         /* -1: none */
    uint32_t armed; /* The events that it waits for, unless they were for one time only. */
    void (*ready)(struct source *source, uint32_t events);
};
int source_add(struct source *source, int fd, uint32_t events) MUST_CHECK; /* It owns fd unless it fails. */
/* It cannot fail for a source that was added. */
void source_arm(struct source *source, uint32_t events);
void source_close(struct source *source); /* A second call does nothing. */
int source_take(struct source *source);   /* Gives up watching. The descriptor is the caller's from then on. */

/* ---- memory.c -------------------------------------------------------------------------------------- */

void *pages_map(size_t size); /* Returns zeroed memory, which costs nothing until it is touched, or NULL. */
void pages_unmap(void *mem, size_t size);
void pages_trim(void *mem, size_t size); /* Gives back all pages except the first; the content is lost. */

/* Objects of one size, from pages that are kept. */
struct pool {
    size_t size;
    void *free;
};
void *pool_take(struct pool *pool); /* Returns zeroed memory or NULL. */
void pool_give(struct pool *pool, void *object);

/* ---- outlet.c: bytes that come out ------------------------------------------------------------------ */

struct outlet {
    struct source source;
    uint8_t *data; /* The ring, mapped with the first byte. It holds [begin, end) of all bytes that ever came. */
    uint32_t size;
    uint64_t begin, end;
    struct reader *readers; /* The readers that hold it back. */
    bool is_tty;
    bool armed; /* epoll will report it. */
    bool last;  /* Nobody can write any more; when it is empty it is over. */
    bool grown; /* The pipe was made larger. */
    bool held;  /* Nobody has read yet and somebody will: nothing is forgotten. */
    bool keeps; /* It is held again whenever nobody reads: what was sent to no reader is never forgotten. */
    bool over;
};

/* A call's interest in an outlet. */
struct reader {
    struct call *call;
    struct outlet *outlet; /* NULL if there is none. */
    struct reader *next;
    uint64_t pos;       /* The next byte to send. */
    uint64_t limit;     /* Where it ends; UINT64_MAX means with the outlet. */
    uint32_t in_flight; /* The bytes that were sent and not yet given back. */
    uint32_t planned;   /* The bytes in the batch that is being sent. */
    uint8_t stream;
    bool ended; /* EOF was sent. */
    bool loose; /* It holds nothing back: if it is too slow, it goes on with the oldest byte that there is. */
};

int outlet_open(struct outlet *outlet, int fd, uint32_t size) MUST_CHECK; /* takes fd over unless it fails */
/* Makes an outlet that has no bytes and is over. */
void outlet_none(struct outlet *outlet);
/* From now on the bytes come from fd; those that the old descriptor has already come first. It sends what is ready. */
int outlet_switch(struct outlet *outlet, int fd) MUST_CHECK;
/* Its writers are gone: takes what is left. */
void outlet_last(struct outlet *outlet);
void outlet_take(struct outlet *outlet);            /* Takes what there is now, as far as there is room. */
void outlet_done(struct outlet *outlet);            /* Frees the ring. No reader may be left. */
void outlet_resume(struct outlet *outlet);          /* Readers have moved on or gone. */
uint64_t outlet_total(const struct outlet *outlet); /* The bytes that were ever written, also those not yet taken. */
uint64_t outlet_attach(struct outlet *outlet, struct reader *reader, struct call *call, unsigned stream,
                       uint64_t offset);
void outlet_detach(struct reader *reader);
size_t reader_available(const struct reader *reader);
bool reader_at_end(const struct reader *reader);
/* Finds the next len available bytes, in one or two pieces. Returns how many pieces. */
unsigned reader_peek(const struct reader *reader, uint64_t pos, size_t len, struct iovec iov[2]);

/* ---- inlet.c: bytes that go in ---------------------------------------------------------------------- */

struct inlet {
    struct source source;
    uint8_t *data; /* The bytes that the descriptor has not taken yet. It is mapped while there are some. */
    size_t begin, end;
    int errnum; /* Why it takes no more, or 0. */
    bool is_tty;
    bool waits; /* Its descriptor is still to come. */
    bool eof;   /* It closes once it is empty. */
    /* Called when it has ended by itself (errnum, or 0 after its eof) and is closed. */
    void (*ended)(struct inlet *inlet);
};

int inlet_open(struct inlet *inlet, int fd) MUST_CHECK; /* takes fd over unless it fails */
/*
 * Writes bytes of a call, which gets credit as they are written; call may be NULL. Returns 0, -ENOBUFS, -ENOMEM, or why
 * it takes no more.
 */
int inlet_write(struct inlet *inlet, struct call *call, const uint8_t *data, size_t len) MUST_CHECK;
/* For a terminal, the user's end-of-file character is sent and it stays open. */
void inlet_eof(struct inlet *inlet);
void inlet_orphan(struct inlet *inlet, uint32_t request); /* The call ends, but its bytes are still written. */
void inlet_close(struct inlet *inlet);

/* ---- guest_conn.c, guest_conn_send.c: the connection and its calls ---------------------------------------------- */

struct call {
    struct call *next;       /* The next call of the same bucket. */
    struct call *next_ready; /* The next call that may have something to send. */
    bool ready;
    bool opening; /* For a file call: pieces of its open are still to come. */
    uint16_t type;
    uint32_t request;
    struct proc *proc; /* or NULL */
    struct call *next_of_proc;
    struct reader reader[2]; /* The readers of streams 1 and 2. */
    struct inlet *inlet;     /* The destination of stream 0, or NULL. */
    uint32_t received;       /* The bytes of stream 0 that have come and were not yet given back. */
    uint32_t owed;           /* How many of these were consumed. */
    struct port *port;
    struct unit *unit; /* SVC_UNIT_CONTROL: whose it is. */
    /* Called when every reader has ended, to send the reply. NULL for other calls. */
    void (*drained)(struct call *call);
};

/* Replaces the present connection. A plain one is no socket; it does not block. */
void conn_open(int fd, bool plain);
void conn_feed(const uint8_t *data, size_t len); /* Bytes of it that somebody else has received, before any other. */
long conn_write(struct iovec *iov, unsigned n);  /* As writev(2) does. */
bool conn_is_open(void);
void conn_close_soon(void); /* Closes it at the end of the round. */
void conn_end_round(void);
void conn_trim(void);
void conn_pause(bool on); /* Frames of brigd are not read while a receiver has no room for them. */

/* Returns NULL after it has replied EAGAIN. */
struct call *call_new(uint32_t request, uint16_t type, struct proc *proc);
struct call *call_find(uint32_t request);
void call_ready(struct call *call);
void call_credit(struct call *call, size_t consumed); /* So many bytes of stream 0 were used. call may be NULL. */
/* It also frees the call. */
void call_reply(struct call *call, int errnum, uint32_t stage, const uint8_t *payload, size_t len);
void call_free(struct call *call);
void calls_end_files(int errnum); /* Every file call fails with this error. */
void call_attach(struct call *call, unsigned stream, struct outlet *outlet, uint64_t offset);

void send_frame(uint16_t type, uint32_t request, uint32_t stream, const void *payload, size_t len);
void send_reply(uint32_t request, int errnum, uint32_t stage, const uint8_t *payload, size_t len);
void send_raw(const uint8_t *data, size_t len); /* Sends whole frames. */
void send_flush(void);
void send_writable(void);
void send_reset(void);
void send_trim(void);
size_t send_backlog(void);
bool send_blocked(void);
void ready_forget(struct call *call);
void ready_add(struct call *call);

/* ---- proc.c, proc_calls.c --------------------------------------------------------------------------- */

enum proc_state {
    PROC_STARTING, /* forked, not yet executed */
    PROC_RUNNING,
    PROC_ENDING, /* the main process has ended; what it left behind is being killed */
    PROC_ENDED,
};

#define PROC_COMMAND_MAX 255u

struct proc {
    struct proc *next;
    uint32_t number;
    uint32_t flags;
    enum proc_state state;
    bool failed;     /* It never executed; only its leaf must still be removed. */
    bool leaf;       /* It has, or may have, a cgroup. */
    bool leaf_ready; /* The spawner has confirmed the leaf. */
    bool leaf_ended; /* LEAF_END was sent. */
    bool reaped;
    bool adopted;            /* It was in the sandbox before pid 1, and has neither leaf nor shepherd. */
    pid_t pid;               /* The main process; valid until it is reaped. */
    pid_t shepherd;          /* Without leaves: its parent, which is our child; or 0. */
    struct source report;    /* The child's reports, until it has executed. */
    struct source sheep;     /* The shepherd's reports. */
    struct svc_reply result; /* The result of START, while STARTING. */
    uint32_t start_request;  /* The request of START; 0 once it is answered. */
    struct svc_proc_exit exit;
    uint64_t executed_ns;
    struct outlet out[STREAMS]; /* [1] and [2] */
    struct inlet in;
    struct channel *channel; /* or NULL */
    struct call *calls;
    struct shell *shell;
    struct unit *unit; /* It is a process of this unit, and no call of brigd's knows it; or NULL. */
    bool sudo;         /* It serves somebody who asked for root (sudo.c); brigd does not know it either. */
    bool sudo_refused;
    int sudo_fd;  /* With sudo, until it is started: the connection. */
    uint32_t age; /* The order of ending. */
    uint8_t command_len;
    char command[PROC_COMMAND_MAX];
};

struct proc *proc_new(uint32_t number, uint32_t flags); /* Returns NULL if there is no room. */
struct proc *proc_find(uint32_t number);
struct proc *proc_find_any(uint32_t number); /* Finds also a process that failed to start. */
struct proc *proc_next(struct proc *after);  /* after is NULL for the first. */
void proc_reaped(pid_t pid, int status, const struct rusage *usage);
void proc_leaf_gone(const struct guest_leaf_gone *gone);
void proc_end_leaf(struct proc *proc);
void proc_forget(struct proc *proc);
void proc_release(struct proc *proc);
void proc_read_sheep(struct proc *proc);
void proc_unanswered(void);      /* the connection has gone */
uint32_t proc_unit_number(void); /* The next number of a process of a unit. */

/* proc_start.c */
/*
 * Makes the child of a new process. output: what both of its outputs are, if it is not -1; it stays the caller's.
 * probe: it waits for that and executes nothing; or NULL. If it fails the caller releases the process.
 */
long proc_spawn(struct proc *proc, const struct svc_proc_start *msg, int output,
                const struct svc_unit *probe) MUST_CHECK;
void proc_start(uint32_t request, const uint8_t *payload, size_t len);
void proc_read_report(struct proc *proc, bool dead); /* dead: no more reports can come. */
void proc_leaf_ready(const struct guest_leaf_ready *ready);

/* proc_calls.c */
/* Takes the master of the terminal, which the child has made. It owns fd unless it fails. */
int proc_master(struct proc *proc, int fd) MUST_CHECK;
void proc_input_ended(struct inlet *inlet);
void proc_attach(uint32_t request, const uint8_t *payload, size_t len);
void proc_input(uint32_t request, const uint8_t *payload, size_t len);
void proc_wait(uint32_t request, const uint8_t *payload, size_t len);
void proc_signal(uint32_t request, const uint8_t *payload, size_t len);
void proc_resize(uint32_t request, const uint8_t *payload, size_t len);
void proc_list(uint32_t request, const uint8_t *payload, size_t len);
void proc_forget_call(uint32_t request, const uint8_t *payload, size_t len);
void proc_answer_waits(struct proc *proc); /* The process has ended. */
/* proc of msg is not looked at. Returns 0 or a negative errno. */
long proc_send_signal(struct proc *proc, const struct svc_proc_signal *msg);

/* ---- channel.c -------------------------------------------------------------------------------------- */

/* Called before the fork. The caller closes the child's end, also on failure. */
int channel_make(struct proc *proc, int *ret_theirs) MUST_CHECK;
/* The process is gone. This and the next two accept a process without a channel. */
void channel_ended(struct proc *proc);
void channel_done(struct proc *proc);
void channel_wake(const struct proc *proc);      /* Something of the process has moved, so its call may go on. */
bool channel_held_back(const struct call *call); /* Output that was written earlier must be sent first. */
void channel_call(uint32_t request, const uint8_t *payload, size_t len);
int channel_adopt(void) MUST_CHECK; /* Takes over the process that START has announced (GUEST_START_ADOPT). */

/* ---- shepherd.c: where there are no leaves ---------------------------------------------------------- */

struct sheep_order { /* Sent to the shepherd. */
    uint32_t signum, flags;
};
struct sheep_end { /* Its last message. */
    uint32_t status, unused;
    uint64_t ended_ns, cpu_ns, memory_peak;
};
__attribute__((noreturn)) void shepherd_main(struct program *program, int fd);
/* False where the kernel knows no reaper but pid 1. */
bool shepherd_keeps_orphans(void);

/* ---- walk.c: processes by their /proc --------------------------------------------------------------- */

/* Signals every descendant of root except skip. Returns how many were found, or a negative errno. */
int walk_descendants(pid_t root, pid_t skip, int signum);
/* Does the same for every process in the cgroup of `leader` except itself. */
int walk_cgroup(pid_t leader, int signum);
/* Kills our own children except these, with their descendants. */
void walk_strays(const pid_t *known, unsigned n);

/* ---- units.c, unit_calls.c, unit_probe.c: the services of the sandbox ------------------------------------------ */

enum unit_then { THEN_STOPPED, THEN_FAILED, THEN_AGAIN, THEN_BACKOFF }; /* What follows when it has been ended. */

struct unit {
    struct svc_unit def; /* It points into the list, which is kept. */
    uint32_t state, why; /* enum svc_unit_state, enum svc_unit_why */
    enum unit_then then; /* For STOPPING. */
    bool asked;          /* This start was asked for: one time for all attempts, and then it has failed. */
    bool reached;        /* It has been up since it was last asked to start. */
    struct proc *proc, *probe;
    struct outlet out;
    int out_fd; /* The output of the attempt. */
    uint64_t since_ns;
    uint64_t deadline_ns; /* It must be up by then. */
    uint64_t due_ns;      /* BACKOFF: the next attempt; STARTING: the next probe; STOPPING: SIGKILL. */
    uint32_t backoff_ms, probe_ms;
    uint32_t pid, restarts, status, errnum, stage;
    struct call *control;
};

/* Takes the list; the memory is the units' own from then on. Returns 0 or a negative errno. */
int units_take(const uint8_t *list, size_t len) MUST_CHECK;
unsigned units_count(void);
struct unit *unit_at(unsigned i);
void unit_start(struct unit *unit); /* These three are asked for. */
void unit_stop(struct unit *unit, enum unit_then then);
bool unit_is_settled(const struct unit *unit);
void unit_executed(struct proc *proc); /* A process of a unit has executed. */
void unit_ended(struct proc *proc);    /* It is gone, or never executed. The process is released after that. */
int units_timeout_ms(void);            /* The time until units_check() is due; -1 for never. */
void units_check(void);

void unit_set(uint32_t request, const uint8_t *payload, size_t len);
void unit_list(uint32_t request, const uint8_t *payload, size_t len);
void unit_control(uint32_t request, const uint8_t *payload, size_t len);
void unit_log(uint32_t request, const uint8_t *payload, size_t len);
void units_answer(void); /* Something may have settled. */
void unit_call_freed(struct call *call);

void units_let_go(void); /* In a child that executes nothing: environments are not kept there. */
/* In a child that has become the unit's user: exits with 0 when it is up. */
__attribute__((noreturn)) void unit_probe(const struct svc_unit *unit);

/* ---- sudo.c, sudo_ask.c: commands as root --------------------------------------------------------------------- */

#define SUDO_SOCKET "brig/sudo"        /* An abstract name, so it belongs to the sandbox's network namespace. */
#define SUDO_MESSAGE_MAX (128u * 1024) /* struct svc_proc_start with USER, beside it stdin, stdout and stderr. */
struct sudo_end {                      /* The answer. */
    uint32_t status;                   /* as wait(2) gives it */
    uint32_t failed, errnum;           /* 1 + enum guest_stage if it was not executed, and why. */
};
void sudo_listen(void);
void sudo_retry(void); /* A process has gone, so there may be room. */
void sudo_ended(void);
bool service_may_sudo(uint32_t uid);
__attribute__((noreturn)) void sudo_serve(const struct program *program);                /* In a child that is root. */
__attribute__((noreturn)) void sudo_main(int argc, char *const *argv, char *const *env); /* The program sudo. */

/* ---- guest_shell.c, ports.c, worker.c --------------------------------------------------------------------- */

/* Called before the fork: makes the pipes and gives the arguments that follow those of the interpreter. */
int shell_prepare(struct proc *proc, const char *interpreter, const char *extra[2], int child_fds[2]) MUST_CHECK;
void shell_run(uint32_t request, const uint8_t *payload, size_t len);
void shell_ended(struct proc *proc);         /* The process is gone, and the command that ran ends with it. */
bool shell_is_busy(const struct proc *proc); /* Does a command run in it? */
void shell_detach(struct call *call);
void shell_done(struct proc *proc);

void port_list(uint32_t request, const uint8_t *payload, size_t len);
void port_connect(uint32_t request, const uint8_t *payload, size_t len);
void port_done(struct call *call);
/* Connects a socket to 127.0.0.1, or to ::1. Returns what connect() does. */
long connect_loopback(long fd, uint16_t port, bool v6);

/* call is NULL for the first frame, else this is a further piece. */
void worker_open_call(struct call *call, const struct frame *frame);
void worker_frame(const struct frame *frame); /* Passes a frame of an open call on as it came. */
void worker_flush(void);                      /* The buffer that frames came in is about to change. */
void worker_close(void);                      /* the connection has gone */
void worker_call_freed(void);
bool worker_reaped(pid_t pid); /* Was it the worker? */
pid_t worker_pid(void);        /* 0 if there is none. */
int worker_timeout_ms(void);   /* The time until worker_check() is due; -1 for never. */
void worker_check(void);
void worker_trim(void);
size_t worker_peek(uint8_t **ret); /* Returns whole frames for brigd. */
void worker_sent(size_t len);      /* These were sent, or will be. */

/* ---- carry.c, carry_words.c, carry_connect.c: not started by our jail
 * ------------------------------------------------ */

enum carrier { CARRIER_LISTENER, CARRIER_STREAM, CARRIER_DEVICE };

/* Serves on fd. plain: it is no socket. */
__attribute__((noreturn)) void carry_serve(enum carrier kind, int fd, bool plain);
void carry_conn_closed(bool at_boundary); /* The service's connection is closed; because the other side has done so? */
/* These bytes of the service's connection are no frame of it; perhaps they open another one. */
void carry_stray(const uint8_t *data, size_t len);

struct sockaddr_un;
__attribute__((noreturn)) void words_main(int argc, char *const *argv);
/* One line on stderr, and the end. value may be NULL; ret is a negative errno. */
__attribute__((noreturn)) void words_refuse(int status, const char *what, const char *value, const char *why);
__attribute__((noreturn)) void words_fail(int status, const char *what, const char *value, long ret);
long words_address(const char *path, struct sockaddr_un *ret) MUST_CHECK;
__attribute__((noreturn)) void connect_main(const char *path);

#endif
