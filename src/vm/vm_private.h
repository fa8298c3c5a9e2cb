/* SPDX-License-Identifier: Apache-2.0 */
/* vm_private.h: what the files of the provider `vm` share. */
#ifndef BRIG_VM_VM_PRIVATE_H
#define BRIG_VM_VM_PRIVATE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "link/link.h"
#include "vm/vm.h"

#define VM_PROC 1u    /* the number of the monitor in its sandbox */
#define VM_TAIL 2048u /* what is kept of the monitor's and the kernel's last words */

struct vm;
struct vm_box;
struct vm_stream;
struct fire_talk;
struct vm_snapshot;
struct vm_template;

/*
 * A monitor is the program that runs a machine, inside a sandbox of `local` and as its only one. It is told to stop by
 * the end of that sandbox.
 */
struct vm_monitor {
    const char *provider;                   /* the name of the provider whose machines it runs */
    uint32_t caps;                          /* those of that provider */
    bool bound;                             /* The program is bound into the sandbox, and need not lie below /usr. */
    bool kvm;                               /* It needs /dev/kvm. */
    bool probed;                            /* The provider is off until a machine of it has come up once. */
    const char *greeting;                   /* what the stream begins with, before HELLO; NULL for nothing */
    const char *name;                       /* as in a sentence */
    const char *install;                    /* the line that installs it */
    const char *(*by)(const struct vm *vm); /* the layer own_kernel is on by this */
    /* The limits of the sandbox around it. */
    struct brig_limits (*limits)(const struct brig_limits *guest);
    /* The words of its command line, each with its NUL, and then those of its environment. */
    int (*words)(const struct vm_box *box, struct buf *out, uint32_t *ret_argv, uint32_t *ret_env);
    /* Tells it what to run, once it has been started; vm_driven() follows. NULL: its command line has said it all. */
    int (*drive)(struct vm_box *box, struct brig_err *err);
    /*
     * Begins a call to the brig-init around it, whose EVENT says that the guest's brig-init is connected, and whose
     * DATA then is the stream.
     */
    int (*reach)(struct link *link, const struct call_events *events, struct call **ret, struct brig_err *err);
    /*
     * The line that its machines wait for (guest/boot/boot_words.c). Returns its length, or a negative errno. NULL if
     * everything is on their command line; then they always boot.
     */
    int (*line)(const struct vm_box *box, char *out, size_t size);
};

/*
 *   MAKING --the sandbox around it is up--> BOOTING --STARTED of the guest--> UP --> ENDING
 *
 * ENDING is entered from any of them, and left when the sandbox around it has ended.
 */
enum vm_state { VM_MAKING, VM_BOOTING, VM_UP, VM_ENDING };

/* What a restart must know, beside the id, which is that of the sandbox around it. */
struct vm_facts {
    struct brig_limits limits;
    uint64_t require;
    uint32_t writable_root, profile, network;
    struct reading inside[BRIG_LAYER_MAX]; /* what the guest has read back */
};

struct vm_box {
    struct box box;
    struct vm_box *next, *prev;
    struct vm *vm;
    struct box *inner; /* the sandbox around it, of `local` */
    enum vm_state state;
    char id[ID_SANDBOX_SIZE];
    struct vm_facts facts;
    struct brig_layer_state jail[BRIG_LAYER_MAX]; /* what holds the monitor */
    struct box_listeners *listeners;              /* until it is up */
    struct link *link;                            /* to the brig-init around the monitor */
    struct call *waits, *says;                    /* for the monitor's end; the monitor's words */
    struct vm_stream *stream;
    struct fire_talk *talk;       /* what is being told to Firecracker */
    struct vm_snapshot *from;     /* until it is up; NULL if it boots */
    struct vm_template *template; /* It is nobody's, and makes a snapshot; else NULL. */
    char tail[VM_TAIL];
    size_t tail_len;
    uint32_t oom_kills; /* of the guest's kernel, by its own words */
    unsigned oom_at;    /* so many letters of them have come */
    /* Why it is ending, if not because somebody asked. */
    enum brig_cause cause;
    char why[192];
    void (*attached)(void *ctx, int fd, const struct brig_err *err); /* an attach that is under way */
    void *attached_ctx;
};

/* Whether machines of a monitor that is probed come up here. */
enum vm_probe { VM_PROBE_DUE, VM_PROBE_CREATES, VM_PROBE_RUNS, VM_PROBE_OVER };

struct vm {
    struct provider provider;
    struct provider_ops ops;
    struct provider *local;
    const struct vm_monitor *monitor;
    char *program, *kernel, *initrd, *root;
    bool kvm;
    uint64_t tsc_khz; /* 0: not known */
    char version[32]; /* the monitor's, as it has said; "" until then */
    enum vm_probe probe;
    struct loop_timer probe_timer;
    int kept_dir_fd;
    struct vm_box *boxes;
    struct {          /* vm_warm.c */
        unsigned max; /* 0: all machines boot */
        int dir_fd;
        char *dir;
        uint64_t last; /* the number of the last one */
        struct vm_snapshot *list, *making;
    } warm;
    struct { /* what is found again, once */
        bool (*each)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret);
        void (*done)(void *ctx);
        void *ctx;
    } recovery;
    struct { /* Who else makes boxes out of those of `local`. */
        bool (*claim)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret);
        void *ctx;
    } other;
};

/* vm.c */
extern const uint64_t vm_inside_layers; /* The layers that the guest reads back; the others are the jail's. */
void vm_statement(const struct vm_box *box, struct box_up *ret);
struct vm_box *vm_box_add(struct vm *vm);
void vm_box_free(struct vm_box *box);
/* Makes the sandbox around it, from its facts. */
int vm_box_begin(struct vm_box *box, const struct provider_gate *gate, struct brig_err *err) MUST_CHECK;

/* vm_life.c */
struct box_events vm_inner_events(struct vm_box *box);
/* The stream of the sandbox around it, for an attach or at its first time; or err. */
void vm_inner_stream(void *ctx, int fd, const struct brig_err *err);
int vm_open_stream(struct vm_box *box, struct brig_err *err) MUST_CHECK;
void vm_driven(struct vm_box *box, const struct brig_err *err); /* The monitor runs the machine; or err. */

/* vm_warm.c: what a saved machine cannot change. It has no holes: it is compared as bytes. */
#define VM_SHAPE_FILES 4u
struct vm_shape {
    uint64_t memory, network;
    struct vm_file {
        uint64_t device, inode, size, modified_ns, changed_ns;
    } files[VM_SHAPE_FILES];
};
void vm_warm_init(struct vm *vm);
void vm_warm_done(struct vm *vm);
void vm_warm_take(struct vm_box *box);                 /* box->from, if there is one of its shape */
void vm_warm_release(struct vm_box *box, bool failed); /* It is up, or ended; failed: the snapshot is no good. */
void vm_warm_want(struct vm *vm, const struct vm_facts *facts); /* A machine of these facts has booted. */
void vm_warm_made(struct vm_snapshot *snapshot, bool saved);
const char *vm_warm_path(const struct vm_snapshot *snapshot);

/* vm_template.c: the machine that a snapshot is made of. It is freed with its box. */
int vm_template_create(struct vm *vm, struct vm_snapshot *snapshot, const struct vm_facts *facts) MUST_CHECK;
void vm_template_begin(struct vm_template *template); /* Its monitor was started. */
void vm_template_words(struct vm_template *template); /* Its monitor has said more. */
const char *vm_template_path(const struct vm_template *template);
void vm_template_destroy(struct vm_template *template); /* takes NULL */

/* vm_kept.c */
int vm_keep(const struct vm_box *box, struct brig_err *err) MUST_CHECK;
void vm_forget(const struct vm_box *box);
int vm_recall(int dir_fd, const char *id, struct vm_facts *ret) MUST_CHECK;

/* qemu.c */
uint64_t vm_tsc_khz(void); /* Takes some milliseconds; 0 if there is no such counter. */
/* What a sandbox of these limits may have: memory of the guest, files in its memory. */
int vm_guest_limits(struct brig_limits *limits, struct brig_err *err) MUST_CHECK;
/* The words for brig-boot on the kernel's command line. */
#define VM_BOOT_WORDS 512u
void vm_boot_words(const struct vm_box *box, char out[VM_BOOT_WORDS]);
extern const char vm_root_target[], vm_kernel_target[], vm_initrd_target[], vm_program_target[];
#define VM_STATE_TARGET "/vm/state" /* a snapshot */
#define VM_QMP_PORT 2745u

/*
 * vm_stream.c: a connection to the brig-init of a guest, through its monitor. It is opened with HELLO and the order (a
 * frame: START or ATTACH), and then carried by a socket pair.
 */
struct vm_stream_events {
    /* Once: it is open; fd is the other end of the pair, and the callee's. Or err, and fd is -1. */
    void (*opened)(void *ctx, int fd, const struct guest_started *started, const struct brig_err *err);
    /* Writes what the guest gets before everything else, and returns its length; NULL if there is nothing. */
    int (*line)(void *ctx, char *out, size_t size);
    void *ctx;
};
struct vm_stream_options {
    struct loop *loop;
    struct link *link;
    const struct vm_monitor *monitor;
    const void *order;
    size_t order_len;
    uint64_t until_ns;
    bool again; /* The guest has been connected before. */
    struct vm_stream_events events;
};
int vm_stream_create(const struct vm_stream_options *options, struct vm_stream **ret, struct brig_err *err) MUST_CHECK;
void vm_stream_destroy(struct vm_stream *stream); /* takes NULL */

#endif
