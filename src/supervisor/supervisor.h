/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor.h: `brig serve`: the parent of the spawner, of brigd and of brig-egress.
 *
 * Theory of operation. It stays in the host's namespaces and parses nothing that a client sent. It opens the listeners
 * (or takes them from systemd), makes the directories, starts the daemons and holds what must outlive brigd: the
 * listeners and the socket to the spawner. brigd gets copies, one by one, by name; when brigd ends it is started again
 * with the same ones, so connections wait in the listener's queue and sandboxes in the spawner. A sandbox's own stream
 * is not kept here: it may have died in the middle of a frame, so the new brigd asks the spawner for a fresh one
 * (spawner/spawner_wire.h, ATTACH), which brig-init takes over with its processes and rings as they are.
 *
 *     signal    what happens
 *     TERM, INT brigd drains and ends; then the spawner's socket is closed, which ends every sandbox, or given to the
 * spawner itself, which keeps them for the next start (on_shutdown = "keep", keep.c); then we end HUP       the
 * configuration is read again and given to brigd, which validates before it swaps USR1      the log file is opened anew
 * and given to brigd USR2      brigd is replaced by a new process (an upgrade): it drains, ends, and the new one takes
 * over
 *
 * brig-egress, the only way out of a sandbox, is on its own: it outlives brigd, and brigd it (egress_child.c).
 *
 * A spawner that dies has taken its sandboxes along: brigd writes their certificates and ends (it sees the socket
 * close), and both are started anew. A daemon that ends again and again is restarted ever more slowly (to 5 s). But a
 * start that never came to serve is over: we end with brigd's own words, since what is wrong is for somebody to put
 * right, and no client waits for it.
 */
#ifndef BRIG_SUPERVISOR_SUPERVISOR_H
#define BRIG_SUPERVISOR_SUPERVISOR_H

#include <brig.h>
#include <sys/types.h>

#include "config/config.h"
#include "gate/gate_client.h"
#include "loop/loop.h"

/* ---- messages between supervisor and brigd: SOCK_SEQPACKET on brigd's descriptor 3 --------------------- */

#define SUP_MAGIC 0x70757362u /* "bsup" */
#define SUP_NAME 32u
#define SUP_SOCKET_FD 3
#define SUP_PEM_MAX (1u << 20) /* bytes of "tls-cert" and of "tls-key" */

enum sup_type {
    /* supervisor: a descriptor, called name: "spawner", "tcp", "unix"; "gate": the control socket of brig-egress, at
       any time; "packages", "secret-keys": texts in sealed memfds (gate/policy.h, crypto/keyring.h); before a
       SUP_CONFIG, for it: "log", "tls-cert", "tls-key", and "problem": why one of them is not there (hand.c); before
       SUP_REOPEN: "log" */
    SUP_FD = 1,
    SUP_GO,     /* supervisor: that was all of them */
    SUP_CONFIG, /* supervisor: the configuration file's text in a sealed memfd (none: no file) */
    SUP_DRAIN,  /* supervisor: finish what is being answered, then end; name "keep": the sandboxes stay */
    SUP_REOPEN, /* supervisor: use the log file that was given last */
    SUP_PING,   /* supervisor: for the watchdog */
    SUP_READY,  /* brigd: it serves */
    SUP_PONG,   /* brigd */
    SUP_RELOAD, /* brigd: a client asks for the configuration to be read again */
    SUP_FAILED, /* brigd: it ends, and why, in a sealed memfd */
    SUP_TYPE_MAX
};

struct sup_msg {
    uint32_t magic;
    uint16_t type;
    uint16_t unused;
    char name[SUP_NAME];
};

/* One message, with at most one descriptor (-1: none). Both non-blocking; receive: 0, -EAGAIN, -EPIPE, -EPROTO. */
int sup_send(int sock, enum sup_type type, const char *name, int fd) MUST_CHECK;
int sup_send_text(int sock, enum sup_type type, const char *name, const char *text) MUST_CHECK; /* in a sealed memfd */
int sup_receive(int sock, struct sup_msg *ret, int *ret_fd) MUST_CHECK;

/* ---- the supervisor ------------------------------------------------------------------------------------ */

struct supervisor_options {
    const char *config_path; /* "" when none */
    const struct config *config;
};

/* Runs until it is told to end. Returns the exit status of `brig serve`. */
int supervisor_run(const struct supervisor_options *options, struct brig_err *err) MUST_CHECK;

struct places;

/* ---- parts --------------------------------------------------------------------------------------------- */

/*
 * listen.c. The address must be loopback unless TLS or `insecure` is set. listen_look() makes the checks of both
 * without listening; that somebody listens there already is no mistake of the configuration: it may be the running
 * service.
 */
int listen_look(const struct config *config, const struct places *places, struct brig_err *err) MUST_CHECK;
int listen_tcp(const struct config *config, int *ret_fd, struct brig_err *err) MUST_CHECK;
/* The socket file: 0660, group `brig` where there is one; a plain user's 0600. One that a live daemon answers on is
 * refused. */
int listen_unix(const char *path, int *ret_fd, struct brig_err *err) MUST_CHECK;
/* LISTEN_FDS of systemd; how many were taken (at most max), each with its kind. */
struct listener {
    int fd;
    bool is_unix;
};
size_t listen_inherited(struct listener *out, size_t max);

/* notify.c: sd_notify(3) without the library; silent where there is no NOTIFY_SOCKET. */
void notify_state(const char *text);
uint64_t notify_watchdog_ns(void); /* half of WATCHDOG_USEC; 0: none */

/* daemon.c: one child process. */
struct daemon {
    const char *name;  /* of its executable: "brigd" */
    bool dies_with_us; /* SIGKILL from the kernel when we die */
    bool bare;         /* started with an empty environment */
    bool taken;        /* started by another: no child of ours */
    pid_t pid;         /* 0: not running */
    int pidfd;
    int socket; /* our end of its descriptor 3; -1 */
    uint64_t started_ns;
    unsigned failures; /* in a row */
};
#define DAEMON_INIT(n, dies) ((struct daemon){.name = (n), .dies_with_us = (dies), .pidfd = -1, .socket = -1})
/* arg: its one argument, or NULL; uid (uid_t)-1: stay who we are. The child's descriptor 3 is the other end of
 * daemon->socket. */
int daemon_start(struct daemon *daemon, const char *helper_dir, const char *arg, uid_t uid, gid_t gid,
                 struct brig_err *err) MUST_CHECK;
/* After its pidfd became readable: how it ended, as text, and whether it may be restarted at once. */
void daemon_reap(struct daemon *daemon, char *text, size_t size);
uint64_t daemon_restart_delay_ns(const struct daemon *daemon);
int daemon_become(uid_t uid, gid_t gid) MUST_CHECK; /* for good; nothing to do where we are not root */

/* places.c: directories and ids. */
struct places {
    char helpers[4096]; /* where brigd, brig-spawner and brig-init are */
    uid_t uid;          /* of brigd; our own when we are not root */
    gid_t gid;
    uid_t egress_uid; /* of brig-egress: neither root's nor brigd's, unless we are not root */
    gid_t egress_gid;
    char state[4096], run[4096], cache[4096];
    char service[4096]; /* state/service: the database */
    char audit[4096];   /* state/audit */
    char keys[4096];    /* state/keys: signing key, token key */
    char sets[4096];    /* cache/sets: requirement sets */
};
int places_make(struct places *ret, struct brig_err *err) MUST_CHECK;
int places_look(struct places *ret, struct brig_err *err) MUST_CHECK; /* the same checks; nothing is made */
/*
 * Directories that the service itself binds for runs: requirement sets, wheels, the directories of tools. With colons
 * between them, for the spawner (BRIG_OWN_ROOTS). Not what a request may name: that is BRIG_BIND_ROOTS alone
 * (sandbox/sbox_spec.c).
 */
int supervisor_own_roots(const struct places *places, const struct config *config, struct buf *out) MUST_CHECK;

/*
 * hand.c: what is opened for brigd. places_try() calls fn in a child that is brigd's user, and returns what fn returns:
 * 0 or a negative errno. A descriptor that fn leaves in *ret_fd (-1 before) is then ours. sup_give_files() sends what
 * goes before a SUP_CONFIG; it fails only if brigd takes nothing.
 */
typedef int place_try_fn(void *ctx, int *ret_fd);
int places_try(const struct places *places, place_try_fn *try, void *ctx, int *ret_fd) MUST_CHECK;
int sup_give_files(int sock, const struct places *places, const struct config *config) MUST_CHECK;
int sup_reopen_log(int sock, const struct places *places, const char *path, struct brig_err *err) MUST_CHECK;

/*
 * probe.c: whether a start with this configuration would find its files and directories; nothing is made.
 * supervisor_probe() is all of it, in the order of the start; probe_files() is the part that the start calls itself
 * once it has made the directories.
 */
int supervisor_probe(const struct config *config, struct brig_err *err) MUST_CHECK;
int probe_files(const struct places *places, const struct config *config, struct brig_err *err) MUST_CHECK;

/*
 * keys.c: the key ring of secrets (crypto/keyring.h) from the one place that the configuration names, in a sealed
 * memfd; -1: there is none. Call it before the first child is started: a variable that had the keys is gone from the
 * environment afterwards, also from /proc. With NULL for ret_memfd it only checks, and runs no command.
 */
int supervisor_keys(const struct config *config, int *ret_memfd, struct brig_err *err) MUST_CHECK;

/*
 * keep.c: sandboxes from one `brig serve` to the next. give: the spawner keeps its socket, has said so, and is no more
 * ours to watch; on failure it is as it was, or killed. take: 1 when one was found and is *spawner now; 0 when there is
 * none (any more).
 */
int keep_give(const struct daemon *spawner, const struct places *places, const struct config *config,
              struct brig_err *err) MUST_CHECK;
int keep_look(const struct places *places, struct brig_err *err) MUST_CHECK; /* whether take could ask */
int keep_take(struct daemon *spawner, const struct places *places, const struct config *config,
              void (*say)(const char *format, ...) PRINTF_LIKE(1, 2), struct brig_err *err) MUST_CHECK;

/* egress_child.c: brig-egress. Nothing of it stops the service. */
struct sup_gate {
    /* set by the supervisor before sup_gate_start() */
    struct loop *loop;
    const struct config *config;
    const struct places *places;
    const int *brigd_sock; /* where "gate" is sent to; -1 in it: not now */
    void (*say)(const char *format, ...) PRINTF_LIKE(1, 2);
    /* private */
    struct daemon egress;
    struct gate_host_files files;
    struct loop_source on_end, on_socket;
    struct loop_timer on_restart, on_look;
    unsigned silent; /* pings not answered */
    int keys_fd;     /* the key ring, or -1 */
    bool complained, stopping;
};
void sup_gate_init(struct sup_gate *gate);
void sup_gate_start(struct sup_gate *gate); /* also tries again by itself */
/* A new pair of control sockets, one to brig-egress, one to brigd; nothing while either is not there. */
int sup_gate_connect(struct sup_gate *gate, int brigd_sock) MUST_CHECK;
void sup_gate_set_keys(struct sup_gate *gate, int fd); /* a sealed memfd, taken over; -1: none */
void sup_gate_stop(struct sup_gate *gate);

#endif
