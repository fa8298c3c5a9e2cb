/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_driver.h: the spawner's side of brig-init, for tests that execute it as an ordinary process. Nothing here needs
 * a sandbox: what it must do with programs, frames and terminals is the same outside. BRIG_INIT names the executable.
 */
#ifndef BRIG_TESTS_GUEST_DRIVER_H
#define BRIG_TESTS_GUEST_DRIVER_H

#include "unit.h"

#include <sys/types.h>

#include "codec/wire/frame.h"
#include "codec/wire/guest_msg.h"

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

struct guest {
    pid_t pid;
    int control;
    int out, err; /* read ends; -1 with a terminal */
    int in;       /* write end, or -1 */
    int master;   /* came beside STARTED, or -1 */
    bool started_seen;
    struct guest_started started;
    struct guest_exited exited;
};

extern const char *const plain_env[];
/* Our own ids, /tmp, no flags, nothing required. */
struct guest_start plain_start(void);

/* Executes brig-init; nothing has been sent yet. */
void guest_spawn(struct guest *g);
/* The same, then HELLO and START, with pipes as the flags ask; START in pieces of at most `piece` bytes. */
void guest_start_with(struct guest *g, struct guest_start *start, const char *const *argv, const char *const *env,
                      size_t piece);
void guest_start(struct guest *g, const char *const *argv);
/* A program that lasts until the test lets go of its stdin: outside a pid namespace pid 1 does not take it along. */
void guest_start_lasting(struct guest *g);

size_t put_frame(uint8_t *out, enum frame_type type, unsigned flags, const void *payload, size_t len);
size_t put_hello(uint8_t *out);
void send_bytes(struct guest *g, const void *data, size_t len, const int *fds, size_t n_fds);
void send_signal(struct guest *g, uint32_t signum);
void send_start(struct guest *g, struct guest_start *start, const char *const *argv, const char *const *env,
                size_t piece, const int *fds, size_t n_fds);

/* Reads frames until `until` has come (true) or the socket ends. */
bool read_until(struct guest *g, enum frame_type until);
void expect_hello(struct guest *g);
/* Up to EXITED, and pid 1 gone with status 0. */
void guest_finish(struct guest *g);
/* Waits for pid 1, closes everything, returns its exit status. */
int guest_reap(struct guest *g);
/* All of it, NUL-terminated. */
void read_text(int fd, char *buf, size_t size);

#endif
