/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_rig.h: a serving brig-init outside of a sandbox, with brigd's end of its stream (link/link.h) and the spawner's
 * end of its control socket. Calls are asked with rig_call() and waited for with rig_until().
 */
#ifndef BRIG_TESTS_GUEST_RIG_H
#define BRIG_TESTS_GUEST_RIG_H

#include "guest_driver.h"

#include <sys/types.h>

#include "base/buf.h"
#include "codec/wire/guest_svc.h"
#include "link/link.h"
#include "loop/loop.h"

struct rig {
    struct guest g;
    struct loop *loop;
    struct link *link;
    unsigned hellos, gones;
    struct svc_hello hello;
    /* the spawner's part, with leaves */
    struct loop_source control;
    bool leaves, mute_leaves;
    uint8_t control_in[4096];
    size_t control_len;
    unsigned n_leaf, n_leaf_end, n_count;
    pid_t leaf_pids[64]; /* of proc numbers below 64 */
    uint32_t leaf_errnum;
};

/* What came of a call. Zeroed before rig_call(); rig_forget() afterwards. */
struct answer {
    struct rig *rig;
    struct call *call;
    struct buf out[3];
    struct buf events; /* each as u32 length and bytes */
    size_t held[3];
    uint8_t data[SVC_PATH_MAX + 64];
    size_t len;
    uint32_t errnum, stage;
    unsigned n_events, n_writable;
    bool done, hold; /* hold: data is not given back */
    bool eof[3];
};

void rig_open(struct rig *rig, unsigned extra_flags); /* of START; up to init's HELLO */
void rig_open_with(struct rig *rig, unsigned extra_flags, void (*spawn)(struct guest *g));
void rig_close(struct rig *rig);
void rig_attach(struct rig *rig); /* another stream: the old link is destroyed */
void rig_run(struct rig *rig, int ms);
void rig_until(struct rig *rig, const bool *flag);
#define rig_wait_for(rig, condition)                    \
    do {                                                \
        for (int ms_ = 0; !(condition); ms_ += 10) {    \
            if (ms_ > 10000)                            \
                fail_msg("never came: %s", #condition); \
            rig_run(rig, 10);                           \
        }                                               \
    } while (0)

void rig_call(struct rig *rig, struct answer *answer, enum svc_type type, const void *payload, size_t len);
/* The same, and waits for the reply. */
void rig_ask(struct rig *rig, struct answer *answer, enum svc_type type, const void *payload, size_t len);
void rig_forget(struct answer *answer);

struct start_opts {
    uint32_t flags, ring;
    uint16_t rows, cols;
    const char *workdir;
    const char *const *env;
};
void rig_start_with(struct rig *rig, struct answer *answer, uint32_t proc, const struct start_opts *opts,
                    const char *const *argv);
/* Starts and expects that it works. */
void rig_start(struct rig *rig, uint32_t proc, uint32_t flags, const char *const *argv);
void rig_attach_proc(struct rig *rig, struct answer *answer, uint32_t proc, unsigned streams, uint64_t offset);
/* a call whose payload is one number */
void rig_number(struct rig *rig, struct answer *answer, enum svc_type type, uint32_t proc);
void rig_channel(struct rig *rig, struct answer *answer, uint32_t proc, uint32_t frames); /* SVC_CHANNEL */
struct svc_proc_exit rig_wait_exit(struct rig *rig, uint32_t proc);
uint32_t rig_signal(struct rig *rig, uint32_t proc, uint32_t signum, uint32_t flags); /* errnum */
struct svc_attached answer_attached(const struct answer *answer);                     /* its first event */
/* Runs sh -c and collects everything. */
struct svc_proc_exit rig_sh(struct rig *rig, uint32_t proc, const char *script, struct answer *output);
void answer_write(struct answer *answer, const void *data, size_t len); /* all of it, waiting for credit */
bool pid_alive(pid_t pid);

#define assert_text(buf, text)                                  \
    do {                                                        \
        assert_int_equal((buf).len, strlen(text));              \
        if ((buf).len > 0)                                      \
            assert_memory_equal((buf).data, (text), (buf).len); \
    } while (0)

#endif
