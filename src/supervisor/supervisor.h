/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor.h: `brig serve`: the parent of the spawner, the runners, brigd and brig-egress.
 *
 * Theory of operation. It stays in the host's namespaces and parses nothing that a client sent. It opens the listeners
 * (or takes them from systemd), makes the directories, starts the daemons, and holds what must outlive brigd: the
 * listeners and the socket to the spawner. brigd gets copies, one by one, by name. When brigd ends it is started again
 * with the same ones, so connections wait in the listener's queue and sandboxes in the spawner. A sandbox's own stream
 * is not kept here: it may have died in the middle of a frame. So the new brigd asks the spawner for a fresh one
 * (spawner/spawner_wire.h, ATTACH), which brig-init takes over with its processes and rings as they are.
 *
 *     signal      what happens
 *     TERM, INT   brigd drains and ends. Then the spawner's socket is closed, which ends every sandbox, or it is
 *                 given to the spawner itself, which keeps them for the next start (on_shutdown = "keep",
 *                 keep.c). Then we end.
 *     HUP         The configuration is read again and given to brigd, which validates it before it uses it.
 *     USR1        The log file is opened again and given to brigd.
 *     USR2        brigd is replaced by a new process (an upgrade): it drains and ends, and the new one takes over.
 *
 * brig-egress, the only way out of a sandbox, is independent: it outlives brigd, and brigd outlives it
 * (egress_child.c). So are the runners, which make the sandboxes of some other providers than local (runners.c).
 *
 * When the spawner dies, its sandboxes die with it: brigd sees the socket close, writes their certificates and ends,
 * and both are started again. A daemon that ends again and again is restarted ever more slowly (up to 5 s). But if a
 * start never came to serve, we end with brigd's own message: somebody must correct what is wrong, and no client waits.
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
#define SUP_PEM_MAX (1u << 20) /* The bytes of "tls-cert" and of "tls-key". */

enum sup_type {
    /*
     * supervisor: a descriptor with a name. "spawner", "tcp" and "unix"; "runner.NAME" for each runner; "gate", the
     * control socket of brig-egress, at any time; "packages", "apt" and "secret-keys", texts in sealed memfds
     * (gate/policy.h, gate/apt_sources.h, crypto/keyring.h); before a SUP_CONFIG, and for it, "log", "tls-cert",
     * "tls-key", and "problem", which says why one of them is missing (hand.c); before SUP_REOPEN "log".
     */
    SUP_FD = 1,
    SUP_GO,     /* supervisor: that was the last descriptor */
    SUP_CONFIG, /* supervisor: the text of the configuration file in a sealed memfd (none: no file) */
    SUP_DRAIN,  /* supervisor: finish the present answers, then end; name "keep": the sandboxes stay */
    SUP_REOPEN, /* supervisor: use the log file that was given last */
    SUP_PING,   /* supervisor: for the watchdog */
    SUP_READY,  /* brigd: it serves */
    SUP_PONG,   /* brigd */
    SUP_RELOAD, /* brigd: a client asks for the configuration to be read again */
    SUP_FAILED, /* brigd: it ends; the reason is in a sealed memfd */
    SUP_TYPE_MAX
};

#define SUP_RUNNER "runner." /* and the name of its provider */

struct sup_msg {
    uint32_t magic;
    uint16_t type;
    uint16_t unused;
    char name[SUP_NAME];
};

/*
 * Send and receive one message with at most one descriptor (-1: none), without blocking. sup_receive() returns 0,
 * -EAGAIN, -EPIPE or -EPROTO.
 */
int sup_send(int sock, enum sup_type type, const char *name, int fd) MUST_CHECK;
/* The text travels in a sealed memfd. */
int sup_send_text(int sock, enum sup_type type, const char *name, const char *text) MUST_CHECK;
int sup_receive(int sock, struct sup_msg *ret, int *ret_fd) MUST_CHECK;

/* ---- the supervisor ------------------------------------------------------------------------------------ */

struct supervisor_options {
    const char *config_path; /* "" if there is none. */
    const struct config *config;
};

/* Runs until it must end. Returns the exit status of `brig serve`. */
int supervisor_run(const struct supervisor_options *options, struct brig_err *err) MUST_CHECK;

struct places;

/* ---- parts --------------------------------------------------------------------------------------------- */

/*
 * listen.c. The address must be loopback unless TLS or `insecure` is set. listen_look() makes the checks of both
 * without listening. If somebody listens there already, that is no mistake of the configuration: it may be the running
 * service.
 */
int listen_look(const struct config *config, const struct places *places, struct brig_err *err) MUST_CHECK;
int listen_tcp(const struct config *config, int *ret_fd, struct brig_err *err) MUST_CHECK;
/*
 * Makes the socket file: 0660, group `brig` if there is one; for a plain user 0600. A socket on which a live daemon
 * answers is refused.
 */
int listen_unix(const char *path, int *ret_fd, struct brig_err *err) MUST_CHECK;
/* Takes LISTEN_FDS of systemd, each with its kind. Returns how many were taken (at most max). */
struct listener {
    int fd;
    bool is_unix;
};
size_t listen_inherited(struct listener *out, size_t max);

/* notify.c: sd_notify(3) without the library. It does nothing without NOTIFY_SOCKET. */
void notify_state(const char *text);
uint64_t notify_watchdog_ns(void); /* Half of WATCHDOG_USEC; 0 if there is none. */

/* daemon.c: one child process. */
struct daemon {
    const char *name;  /* The name of its executable: "brigd". */
    bool dies_with_us; /* The kernel sends it SIGKILL when we die. */
    bool bare;         /* It is started with an empty environment. */
    bool taken;        /* Another process started it; it is not our child. */
    bool lasting;      /* The socket outlives it: the next one gets the same, and we hold both ends. */
    pid_t pid;         /* 0 if it is not running. */
    int pidfd;
    int socket; /* Our end of its descriptor 3, or -1. */
    int theirs; /* With lasting: the other end, or -1. */
    uint64_t started_ns;
    unsigned failures; /* The failures in a row. */
};
#define DAEMON_INIT(n, dies) \
    ((struct daemon){.name = (n), .dies_with_us = (dies), .pidfd = -1, .socket = -1, .theirs = -1})
/*
 * arg is its one argument or NULL. With uid (uid_t)-1 the child keeps our user. The child's descriptor 3 is the other
 * end of daemon->socket.
 */
int daemon_start(struct daemon *daemon, const char *helper_dir, const char *arg, uid_t uid, gid_t gid,
                 struct brig_err *err) MUST_CHECK;
/* Called after its pidfd became readable. Writes how it ended as text. */
void daemon_reap(struct daemon *daemon, char *text, size_t size);
uint64_t daemon_restart_delay_ns(const struct daemon *daemon);
int daemon_become(uid_t uid, gid_t gid) MUST_CHECK; /* This cannot be undone. It does nothing if we are not root. */

/* places.c: directories and ids. */
struct places {
    char helpers[4096]; /* The directory of brigd, brig-spawner and brig-init. */
    uid_t uid;          /* The user of brigd; our own if we are not root. */
    gid_t gid;
    uid_t egress_uid; /* The user of brig-egress: neither root nor brigd's, unless we are not root. */
    gid_t egress_gid;
    char state[4096], run[4096], cache[4096];
    char service[4096];   /* state/service: the database */
    char audit[4096];     /* state/audit */
    char keys[4096];      /* state/keys: signing key, token key */
    char sets[4096];      /* cache/sets: dependency sets */
    char templates[4096]; /* state/templates, ours */
    char disks[4096];     /* state/disks: the spawner's disks that can be kept */
    char layers[4096];    /* state/templates/layers: the spawner's store of layers */
    char blobs[4096];     /* state/templates/blobs: parts of images */
    char work[4096];      /* state/templates/work: uploads and what is being made */
};
int places_make(struct places *ret, struct brig_err *err) MUST_CHECK;
int places_look(struct places *ret, struct brig_err *err) MUST_CHECK; /* Makes the same checks and nothing else. */
/*
 * Writes the directories that the service itself binds for runs: dependency sets, parts of images, wheels, the
 * directories of tools, what virtual machines boot.
 * They are separated by colons, for the spawner (BRIG_OWN_ROOTS). A request may name only BRIG_BIND_ROOTS
 * (sandbox/sbox_spec.c).
 */
int supervisor_own_roots(const struct places *places, const struct config *config, struct buf *out) MUST_CHECK;

/*
 * hand.c opens files for brigd. places_try() calls fn in a child with brigd's user and returns what fn returns: 0 or a
 * negative errno. A descriptor that fn leaves in *ret_fd (-1 before) is then ours. sup_give_files() sends what precedes
 * a SUP_CONFIG; it fails only if brigd takes nothing.
 */
typedef int place_try_fn(void *ctx, int *ret_fd);
int places_try(const struct places *places, place_try_fn *try, void *ctx, int *ret_fd) MUST_CHECK;
int sup_give_files(int sock, const struct places *places, const struct config *config) MUST_CHECK;
int sup_reopen_log(int sock, const struct places *places, const char *path, struct brig_err *err) MUST_CHECK;

/*
 * probe.c: would a start with this configuration find its files and directories? Nothing is made. supervisor_probe()
 * checks everything in the order of the start; probe_files() is the part that the start calls itself once it has made
 * the directories.
 */
int supervisor_probe(const struct config *config, struct brig_err *err) MUST_CHECK;
int probe_files(const struct places *places, const struct config *config, struct brig_err *err) MUST_CHECK;

/*
 * keys.c: reads the key ring of secrets (crypto/keyring.h) from the one place that the configuration names, into a
 * sealed memfd; -1 if there is none. It must be called before the first child is started: a variable that had the keys
 * is then removed from the environment, also from /proc. If ret_memfd is NULL, it only checks and runs no command.
 */
int supervisor_keys(const struct config *config, int *ret_memfd, struct brig_err *err) MUST_CHECK;

/*
 * keep.c: sandboxes that stay from one `brig serve` to the next. After keep_give() the spawner keeps its socket, has
 * confirmed it, and is no longer watched by us; on failure it is as it was, or killed. keep_take() returns 1 if a
 * spawner was found, which is then *spawner, and 0 if there is none (any more).
 */
int keep_give(const struct daemon *spawner, const struct places *places, const struct config *config,
              struct brig_err *err) MUST_CHECK;
int keep_look(const struct places *places, struct brig_err *err) MUST_CHECK; /* Could keep_take() ask? */
int keep_take(struct daemon *spawner, const struct places *places, const struct config *config,
              void (*say)(const char *format, ...) PRINTF_LIKE(1, 2), struct brig_err *err) MUST_CHECK;

/* egress_child.c: brig-egress. No failure of it stops the service. */
struct sup_gate {
    /* The supervisor sets these before sup_gate_start(). */
    struct loop *loop;
    const struct config *config;
    const struct places *places;
    const int *brigd_sock; /* "gate" is sent there; -1 in it means not now. */
    void (*say)(const char *format, ...) PRINTF_LIKE(1, 2);
    /* private */
    struct daemon egress;
    struct gate_host_files files;
    struct loop_source on_end, on_socket;
    struct loop_timer on_restart, on_look;
    unsigned silent; /* The pings that were not answered. */
    int keys_fd;     /* The key ring, or -1. */
    bool complained, stopping;
};
void sup_gate_init(struct sup_gate *gate);
void sup_gate_start(struct sup_gate *gate); /* It also tries again by itself. */
/*
 * Makes a new pair of control sockets, one for brig-egress and one for brigd. It does nothing while either is missing.
 */
int sup_gate_connect(struct sup_gate *gate, int brigd_sock) MUST_CHECK;
void sup_gate_set_keys(struct sup_gate *gate, int fd); /* A sealed memfd, which it then owns; -1 for none. */
void sup_gate_stop(struct sup_gate *gate);

/*
 * runners.c: a brig-runner for each provider that has one here (src/runner/): as root, where its runtime is installed
 * or its engine is named. No failure of one stops the service.
 */
#define SUP_RUNNERS_MAX 4
struct sup_runners {
    /* The supervisor sets these before sup_runners_start(). */
    struct loop *loop;
    const struct config *config;
    const struct places *places;
    void (*say)(const char *format, ...) PRINTF_LIKE(1, 2);
    /* private */
    struct sup_runner {
        struct sup_runners *all;
        const char *name;
        char path[256]; /* of the runtime, or of the engine's socket */
        bool leaving;   /* Its provider is off: it only ends what an earlier service has left. */
        struct daemon daemon;
        struct loop_source on_end;
        struct loop_timer on_restart;
    } runners[SUP_RUNNERS_MAX];
    size_t n;
    bool stopping;
};
void sup_runners_start(struct sup_runners *runners);
int sup_runners_give(const struct sup_runners *runners, int brigd_sock) MUST_CHECK; /* Sends brigd its ends. */
/* keep: the boxes live on for the next start; else they are ended, and this waits for it. */
void sup_runners_stop(struct sup_runners *runners, bool keep);

#endif
