/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_service.h: the parts of a brig-init that serves processes (guest_service.c has the theory of operation).
 *
 * What there is: a connection with calls (guest_conn.c, guest_conn_send.c), processes (proc*.c), and between them
 * outlets, which take bytes from a descriptor into a ring that calls read, and inlets, which take bytes from a call to
 * a descriptor. Everything is single-threaded; memory is mapped when it is needed and given back when it is not.
 */
#ifndef BRIG_GUEST_INIT_GUEST_SERVICE_H
#define BRIG_GUEST_INIT_GUEST_SERVICE_H

#include <sys/resource.h>
#include <sys/uio.h>

#include "codec/wire/guest_svc.h"
#include "guest/init/guest.h"

#define SERVICE_FD_STREAM (INIT_FD_CONTROL + 1)
#define STREAMS 3u /* 0 goes in; 1 and 2 come out */
#define owner_of(member_ptr, type, member) ((type *)(void *)((uint8_t *)(member_ptr)-offsetof(type, member)))

#define SERVICE_RING (256u * 1024) /* of an output, unless START says another */
#define ADOPTED_PROC 1u            /* the number of a process that was here before us */

struct call;
struct proc;
struct channel;

/* ---- guest_service.c ------------------------------------------------------------------------------------- */

/* Serves until the control socket closes. start and bounding: as for a program; its strings are gone. */
__attribute__((noreturn)) void service_main(const struct guest_start *start, uint64_t bounding, int signal_fd);
/* What the stages need of every process of this service: ids, layers, capabilities. */
void service_program(struct program *program, struct guest_start *start);
bool service_has_leaves(void);

/* A descriptor that is waited for. */
struct source {
    int fd;         /* -1: none */
    uint32_t armed; /* what it is waited for, unless that was for one time only */
    void (*ready)(struct source *source, uint32_t events);
};
int source_add(struct source *source, int fd, uint32_t events) MUST_CHECK; /* takes fd over unless it fails */
void source_arm(struct source *source, uint32_t events);                   /* cannot fail for one that was added */
void source_close(struct source *source);                                  /* idempotent */

/* ---- memory.c -------------------------------------------------------------------------------------- */

void *pages_map(size_t size); /* zeroed, costs nothing until it is touched; NULL */
void pages_unmap(void *mem, size_t size);
void pages_trim(void *mem, size_t size); /* all but the first page is given back; content is lost */

/* Objects of one size, from pages that are kept. */
struct pool {
    size_t size;
    void *free;
};
void *pool_take(struct pool *pool); /* zeroed; NULL */
void pool_give(struct pool *pool, void *object);

/* ---- outlet.c: bytes that come out ------------------------------------------------------------------ */

struct outlet {
    struct source source;
    uint8_t *data; /* the ring, mapped with the first byte: [begin, end) of all bytes ever are in it */
    uint32_t size;
    uint64_t begin, end;
    struct reader *readers; /* who hold it back */
    bool is_tty;
    bool armed; /* epoll will tell */
    bool last;  /* nobody can write any more: empty means over */
    bool grown; /* the pipe was made larger */
    bool held;  /* nobody has read yet, and somebody is coming: nothing is forgotten */
    bool keeps; /* held again whenever nobody reads: what no reader was sent is never forgotten */
    bool over;
};

/* A call's interest in an outlet. */
struct reader {
    struct call *call;
    struct outlet *outlet; /* NULL: none */
    struct reader *next;
    uint64_t pos;       /* the next byte to send */
    uint64_t limit;     /* where it ends; UINT64_MAX: with the outlet */
    uint32_t in_flight; /* sent and not yet given back */
    uint32_t planned;   /* in the batch that is being sent */
    uint8_t stream;
    bool ended; /* EOF was sent */
};

int outlet_open(struct outlet *outlet, int fd, uint32_t size) MUST_CHECK; /* takes fd over unless it fails */
void outlet_none(struct outlet *outlet);                                  /* one that has no bytes and is over */
void outlet_last(struct outlet *outlet);                                  /* its writers are gone: takes what is left */
void outlet_take(struct outlet *outlet);            /* now, what there is, as far as there is room */
void outlet_close(struct outlet *outlet);           /* the ring stays */
void outlet_done(struct outlet *outlet);            /* the ring goes; no reader may be left */
void outlet_resume(struct outlet *outlet);          /* readers have moved on or gone */
uint64_t outlet_total(const struct outlet *outlet); /* bytes ever written, also those not yet taken */
uint64_t outlet_attach(struct outlet *outlet, struct reader *reader, struct call *call, unsigned stream,
                       uint64_t offset);
void outlet_detach(struct reader *reader);
size_t reader_available(const struct reader *reader);
bool reader_at_end(const struct reader *reader);
/* The next len available bytes, in one or two pieces: how many. */
unsigned reader_peek(const struct reader *reader, uint64_t pos, size_t len, struct iovec iov[2]);

/* ---- inlet.c: bytes that go in ---------------------------------------------------------------------- */

struct inlet {
    struct source source;
    uint8_t *data; /* what the descriptor did not take yet; mapped while there is some */
    size_t begin, end;
    int errnum; /* why it takes no more, or 0 */
    bool is_tty;
    bool waits; /* its descriptor is still to come */
    bool eof;   /* closes once it is empty */
    /* It has ended by itself (errnum, or 0 after its eof), and is closed. */
    void (*ended)(struct inlet *inlet);
};

int inlet_open(struct inlet *inlet, int fd) MUST_CHECK; /* takes fd over unless it fails */
/* From a call, which is given credit as it is written, or NULL. -ENOBUFS, -ENOMEM, or why it takes no more. */
int inlet_write(struct inlet *inlet, struct call *call, const uint8_t *data, size_t len) MUST_CHECK;
void inlet_eof(struct inlet *inlet);                      /* of a terminal: its user types it, and it stays open */
void inlet_orphan(struct inlet *inlet, uint32_t request); /* the call goes, its bytes do not */
void inlet_close(struct inlet *inlet);

/* ---- guest_conn.c, guest_conn_send.c: the connection and its calls ---------------------------------------------- */

struct call {
    struct call *next;       /* of the same bucket */
    struct call *next_ready; /* of those that may have something to send */
    bool ready;
    bool opening; /* of a file call: pieces of its open are still to come */
    uint16_t type;
    uint32_t request;
    struct proc *proc; /* or NULL */
    struct call *next_of_proc;
    struct reader reader[2]; /* of streams 1 and 2 */
    struct inlet *inlet;     /* where stream 0 goes, or NULL */
    uint32_t received;       /* of stream 0: come and not yet given back */
    uint32_t owed;           /* of these, consumed */
    struct port *port;
    /* Every reader has ended: it is time to reply. NULL: not of this kind. */
    void (*drained)(struct call *call);
};

void conn_open(int fd); /* replaces the one there is */
void conn_close(void);
bool conn_is_open(void);
void conn_close_soon(void); /* from within: at the end of the round */
void conn_end_round(void);
void conn_trim(void);
int conn_fd(void);
void conn_pause(bool on); /* frames of brigd are not read while somebody has no room for them */

struct call *call_new(uint32_t request, uint16_t type, struct proc *proc); /* NULL: EAGAIN was replied */
struct call *call_find(uint32_t request);
void call_ready(struct call *call);
void call_credit(struct call *call, size_t consumed); /* so much of stream 0 was used; takes NULL */
void call_reply(struct call *call, int errnum, uint32_t stage, const uint8_t *payload, size_t len); /* and frees it */
void call_free(struct call *call);
void calls_end_files(int errnum); /* every file call fails with this */
void call_attach(struct call *call, unsigned stream, struct outlet *outlet, uint64_t offset);

void send_frame(uint16_t type, uint32_t request, uint32_t stream, const void *payload, size_t len);
void send_reply(uint32_t request, int errnum, uint32_t stage, const uint8_t *payload, size_t len);
void send_raw(const uint8_t *data, size_t len); /* frames that are whole */
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
    PROC_STARTING, /* forked; not yet executed */
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
    bool failed;     /* it never executed; only its leaf is still to go */
    bool leaf;       /* it has, or may have, a cgroup */
    bool leaf_ready; /* the spawner has said so */
    bool leaf_ended; /* LEAF_END was sent */
    bool reaped;
    bool adopted;            /* it was here before us: neither leaf nor shepherd */
    pid_t pid;               /* the main process; valid until reaped */
    pid_t shepherd;          /* where there are no leaves: its parent, which is ours; or 0 */
    struct source report;    /* the child's, until it has executed */
    struct source sheep;     /* the shepherd's */
    struct svc_reply result; /* of START, while STARTING */
    uint32_t start_request;  /* of START; 0 once answered */
    struct svc_proc_exit exit;
    uint64_t executed_ns;
    struct outlet out[STREAMS]; /* [1] and [2] */
    struct inlet in;
    struct channel *channel; /* or NULL */
    struct call *calls;
    struct shell *shell;
    uint32_t age; /* order of ending */
    uint8_t command_len;
    char command[PROC_COMMAND_MAX];
};

struct proc *proc_new(uint32_t number, uint32_t flags); /* NULL: no room */
struct proc *proc_find(uint32_t number);
struct proc *proc_find_any(uint32_t number); /* also one that failed to start */
struct proc *proc_next(struct proc *after);  /* NULL: the first */
void proc_reaped(pid_t pid, int status, const struct rusage *usage);
void proc_leaf_gone(const struct guest_leaf_gone *gone);
void proc_end_leaf(struct proc *proc);
void proc_forget(struct proc *proc);
void proc_release(struct proc *proc);
void proc_read_sheep(struct proc *proc);
void proc_kill_strays(void);
void proc_unanswered(void); /* the connection has gone */

/* proc_start.c */
void proc_start(uint32_t request, const uint8_t *payload, size_t len);
void proc_read_report(struct proc *proc, bool dead); /* dead: nothing more can come */
void proc_leaf_ready(const struct guest_leaf_ready *ready);

/* proc_calls.c */
/* the terminal's, which the child has made; taken over unless it fails */
int proc_master(struct proc *proc, int fd) MUST_CHECK;
void proc_input_ended(struct inlet *inlet);
void proc_attach(uint32_t request, const uint8_t *payload, size_t len);
void proc_input(uint32_t request, const uint8_t *payload, size_t len);
void proc_wait(uint32_t request, const uint8_t *payload, size_t len);
void proc_signal(uint32_t request, const uint8_t *payload, size_t len);
void proc_resize(uint32_t request, const uint8_t *payload, size_t len);
void proc_list(uint32_t request, const uint8_t *payload, size_t len);
void proc_forget_call(uint32_t request, const uint8_t *payload, size_t len);
void proc_answer_waits(struct proc *proc); /* it has ended */

/* ---- channel.c -------------------------------------------------------------------------------------- */

/* before the fork; the child's end is the caller's to close, also on failure */
int channel_make(struct proc *proc, int *ret_theirs) MUST_CHECK;
int channel_open(struct proc *proc, int fd) MUST_CHECK; /* ours, which does not block; taken over unless it fails */
void channel_ended(struct proc *proc); /* the process is gone; takes one without a channel, as the next two do */
void channel_done(struct proc *proc);
void channel_wake(const struct proc *proc);      /* something of it has moved: its call may go on */
bool channel_held_back(const struct call *call); /* output that was written before comes first */
void channel_call(uint32_t request, const uint8_t *payload, size_t len);
int channel_adopt(void) MUST_CHECK; /* the process that START has told of (GUEST_START_ADOPT) */

/* ---- shepherd.c: where there are no leaves ---------------------------------------------------------- */

struct sheep_order { /* to the shepherd */
    uint32_t signum, flags;
};
struct sheep_end { /* from it, last */
    uint32_t status, unused;
    uint64_t ended_ns, cpu_ns, memory_peak;
};
__attribute__((noreturn)) void shepherd_main(struct program *program, int fd);

/* ---- walk.c: processes by their /proc --------------------------------------------------------------- */

/* Signals every descendant of root but skip: how many were found, or a negative errno. */
int walk_descendants(pid_t root, pid_t skip, int signum);
/* The same for every process in the cgroup of `leader` but itself. */
int walk_cgroup(pid_t leader, int signum);
/* Kills our own children but these, with their descendants. */
void walk_strays(const pid_t *known, unsigned n);

/* ---- guest_shell.c, ports.c, worker.c --------------------------------------------------------------------- */

/* Before the fork: makes the pipes, and gives the arguments that follow those of the interpreter. */
int shell_prepare(struct proc *proc, const char *interpreter, const char *extra[2], int child_fds[2]) MUST_CHECK;
void shell_run(uint32_t request, const uint8_t *payload, size_t len);
void shell_ended(struct proc *proc);         /* the process is gone: the command that ran ends with it */
bool shell_is_busy(const struct proc *proc); /* a command runs in it */
void shell_detach(struct call *call);
void shell_done(struct proc *proc);

void port_list(uint32_t request, const uint8_t *payload, size_t len);
void port_connect(uint32_t request, const uint8_t *payload, size_t len);
void port_done(struct call *call);

/* call NULL: its first frame; else a further piece */
void worker_open_call(struct call *call, const struct frame *frame);
void worker_frame(const struct frame *frame); /* of an open call, as it came */
void worker_flush(void);                      /* the buffer that frames came in is about to change */
void worker_receive(void);
void worker_close(void); /* the connection has gone */
void worker_call_freed(void);
bool worker_reaped(pid_t pid); /* it was the worker */
pid_t worker_pid(void);        /* 0: none */
int worker_timeout_ms(void);   /* until worker_check() is due; -1: never */
void worker_check(void);
void worker_trim(void);
size_t worker_peek(uint8_t **ret); /* whole frames for brigd */
void worker_sent(size_t len);      /* these have gone, or will */

#endif
