/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_wire.h: the messages of brig-egress (docs/PROTOCOL.md, "Gate messages").
 *
 * It has two SOCK_SEQPACKET sockets. Descriptor 3 is its parent (the supervisor, or an engine without a daemon):
 * GATE_FILE gives it the texts it needs from the host, GATE_CONTROL a control socket in place of the last one. The
 * control socket belongs to whoever owns the sandboxes (brigd, or the engine): the messages below. One packet is one
 * fixed-size struct, with descriptors beside it. brig-egress trusts its controller with policy, but checks every
 * message; a bad one closes that socket.
 *
 * A *slot* is one sandbox's network. Its number is the controller's choice (random, 64 bit, never 0) and never used
 * twice:
 *
 *     PREPARE -> PREPARED     compiles a policy and takes its secrets. The answer says which ports need listeners, and
 *                             has the CA where the slot brokers. With a higher version it is a live update: atomic, and
 *                             connections that the new policy forbids are cut.
 *     LISTEN -> LISTENING     passes descriptors from inside the sandbox's network namespace (the spawner made them).
 *                             It may come again with more.
 *     COUNT -> COUNTED        asks what went through so far.
 *     FORGET -> FORGOTTEN     closes everything of the slot. The answer has the last counts.
 *     EVENT                   tells one decision, for the audit log. While the controller does not read, no new
 *                             connection is accepted.
 *     SYNC, SYNCED            A new controller says SYNC, PREPAREs what it knows, then says SYNCED: slots that it did
 *                             not mention are forgotten. PREPARE of a slot that is there with this version changes
 *                             nothing, and PREPARED says whether the slot has listeners.
 *
 * Slots live on when the control socket closes (brigd restarts); decisions go on by the policy they have.
 */
#ifndef BRIG_GATE_GATE_WIRE_H
#define BRIG_GATE_GATE_WIRE_H

#include <brig.h>

#include "gate/address.h"
#include "gate/policy.h"

#define GATE_MAGIC 0x65746167u /* "gate" */
#define GATE_VERSION 1u
#define GATE_LISTENERS_MAX (POLICY_PORTS_MAX + 6u)
#define GATE_PARENT_FD 3

enum gate_type {
    /* parent -> egress, on descriptor 3 */
    GATE_FILE = 1, /* struct gate_file; fd: a sealed memfd */
    GATE_CONTROL,  /* struct gate_plain; fd: the new control socket */
    GATE_PING,     /* struct gate_plain; answered by GATE_PONG */
    GATE_PONG,
    GATE_READY, /* egress -> parent: locked down, it serves */
    /* controller -> egress */
    GATE_PREPARE, /* struct gate_prepare; fd: a sealed memfd with the JSON of gate/slot_spec.h */
    GATE_LISTEN,  /* struct gate_listen; fds: the listeners */
    GATE_COUNT,   /* struct gate_plain */
    GATE_FORGET,  /* struct gate_plain */
    GATE_SYNC,    /* struct gate_plain */
    GATE_SYNCED,  /* struct gate_plain */
    /* egress -> controller */
    GATE_PREPARED,  /* struct gate_prepared; fd: the CA's certificate (PEM) in a memfd, when it brokers */
    GATE_LISTENING, /* struct gate_answer */
    GATE_COUNTED,   /* struct gate_counted */
    GATE_FORGOTTEN, /* struct gate_counted */
    GATE_EVENT,     /* struct gate_event */
    GATE_TYPE_MAX
};

struct gate_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint64_t slot; /* 0 if the message is about no slot. */
};
struct gate_plain {
    struct gate_head head;
};
struct gate_file {
    struct gate_head head;
    char name[32]; /* "resolv.conf", "hosts", "ca" (PEM bundle), "keys" (the key ring, crypto/keyring.h) */
};
/* Nothing is allowed that the policy does not allow, but every attempt reports what it would have been. */
#define GATE_LEARN (1u << 0)
struct gate_prepare {
    struct gate_head head;
    uint64_t policy_version; /* It is more than 0 and rises. */
    uint32_t flags;
    uint32_t spec_len;
};
struct gate_prepared {
    struct gate_head head;
    struct brig_err err; /* The code BRIG_E_NONE means that it is done. */
    uint64_t policy_version;
    uint32_t any_port;
    uint32_t n_ports;
    uint16_t ports[POLICY_PORTS_MAX];
    uint32_t listening; /* The slot has its listeners. */
    uint32_t brokers;   /* A CA is beside the message. */
};
enum gate_kind { GATE_TCP, GATE_DNS_UDP, GATE_DNS_TCP, GATE_PROXY, GATE_REDIRECT, GATE_KIND_MAX };
struct gate_listener {
    uint16_t port;  /* The port that it is bound to. */
    uint8_t kind;   /* enum gate_kind */
    uint8_t family; /* AF_INET or AF_INET6 (which then takes both) */
};
struct gate_listen {
    struct gate_head head;
    char sandbox_id[32];
    uint32_t n;
    uint32_t unused;
    struct gate_listener listeners[GATE_LISTENERS_MAX];
};
struct gate_answer {
    struct gate_head head;
    struct brig_err err;
};
struct gate_counts {
    uint64_t bytes_in, bytes_out;                         /* in is towards the sandbox. */
    uint64_t allowed, denied;                             /* Connections, and requests where HTTP is judged. */
    uint64_t names_allowed, names_refused;                /* DNS questions */
    uint64_t open;                                        /* Connections that are open now. */
    uint64_t substituted, foreign_placeholders, scrubbed; /* uses of brokered secrets */
    uint32_t limits_hit;                                  /* mask of 1u << enum brig_limit */
    uint32_t unused;
};
struct gate_counted {
    struct gate_head head;
    struct brig_err err;
    struct gate_counts counts;
};
enum gate_verdict {
    GATE_ALLOWED,
    GATE_DENIED,
    GATE_CLOSED /* an allowed connection ended; the event has its bytes */,
    GATE_FAILED /* allowed, but could not be reached */,
    GATE_VERDICT_MAX
};
struct gate_event {
    struct gate_head head;
    uint64_t policy_version;
    uint64_t connection;      /* ALLOWED and CLOSED of one connection have the same number. */
    uint32_t verdict;         /* enum gate_verdict */
    int32_t rule;             /* As in struct policy_answer. */
    uint32_t seen;            /* enum policy_seen */
    uint32_t dns;             /* 1 for a DNS question; then only name counts. */
    char name[256];           /* "" if there is none. */
    struct gate_addr wanted;  /* The address that the sandbox connected to. */
    struct gate_addr dialled; /* The address that was dialled; all zero if none was. */
    uint64_t bytes_in, bytes_out;
    char secret[64]; /* The name of the brokered secret, or "". It is never a value. */
    char why[160];
};

union gate_any {
    struct gate_head head;
    struct gate_plain plain;
    struct gate_file file;
    struct gate_prepare prepare;
    struct gate_prepared prepared;
    struct gate_listen listen;
    struct gate_answer answer;
    struct gate_counted counted;
    struct gate_event event;
};

struct learn;
/* learn.c: adds the connection of an event. More than a policy can have is not kept; learn may be NULL. */
void learn_event(struct learn *learn, const struct gate_event *event);
size_t gate_wire_size(uint16_t type); /* Returns 0 for an unknown type. */
/* Checks magic, version, type, size, counts and the ends of texts. Returns 0 or -EPROTO. */
int gate_wire_check(const union gate_any *msg, size_t len) MUST_CHECK;
/*
 * Send and receive one packet without blocking. gate_receive() returns 0, -EAGAIN, -EPIPE (closed) or -EPROTO. *n_fds
 * is the room for descriptors before and their number afterwards; all are close-on-exec.
 */
int gate_send(int sock, const void *msg, const int *fds, size_t n_fds) MUST_CHECK;
int gate_receive(int sock, union gate_any *ret, int *fds, size_t *n_fds) MUST_CHECK;
/* Makes a sealed memfd. Returns the descriptor or a negative errno. */
int gate_memfd(const char *name, const void *data, size_t len) MUST_CHECK;
/*
 * Reads a sealed memfd of at most max bytes into memory that ends with a NUL; a memfd that is not sealed is refused.
 * The caller calls mem_free(), and wipes the memory before that if it must.
 */
int gate_memfd_read(int fd, size_t max, char **ret, size_t *ret_len) MUST_CHECK;

#endif
