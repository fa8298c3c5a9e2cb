/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm.c: the providers `vm` and `firecracker`: boxes that are virtual machines, on top of the boxes of `local`.
 *
 * Theory of operation. A box is a sandbox of `local` with every layer on, in which a monitor (QEMU or Firecracker) is
 * the only program. Whoever gets out of the guest is in that sandbox. Limits, freezing, counting, the network and its
 * gate, and ends are those of the sandbox; the stream of the box goes through it to the guest's own brig-init
 * (vm_stream.c), so that processes, files, ports and shells are the same as everywhere.
 *
 *     our box ---- local's box (a jail: monitor) ---- the guest's brig-init ---- programs
 *
 * The id of our box is that of local's. After a restart local offers what lives to us first (claim); the boxes with a
 * file of ours (vm_kept.c) are virtual machines, and nobody else hears of the sandboxes around them.
 *
 * The statement: layers about a program (its system calls, capabilities, files) are what the guest's brig-init has read
 * back in it; layers about the machine as a whole (namespaces, memory, CPU) are those of the jail around the monitor.
 */
#include "vm/vm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "vm/fire.h"

#define BIT(name) BRIG_LAYER_BIT(BRIG_LAYER_##name)
const uint64_t vm_inside_layers = BIT(CAPS) | BIT(NO_NEW_PRIVS) | BIT(SECCOMP) | BIT(LANDLOCK) | BIT(ROOT_READONLY) |
                                  BIT(PROC) | BIT(FDS) | BIT(DISK) | BIT(INODES);

static struct vm *vm_of(struct provider *provider)
{
    return (struct vm *)provider;
}

static struct vm_box *box_of(struct box *box)
{
    return (struct vm_box *)box;
}

/* ---- the statement ------------------------------------------------------------------------------------ */

static struct brig_layer_state layer_state(const struct vm_box *box, unsigned layer)
{
    const struct reading *read = &box->facts.inside[layer];

    if (layer == BRIG_LAYER_OWN_KERNEL)
        return (struct brig_layer_state){.on = true, .by = box->vm->monitor->by(box->vm), .why = ""};
    if (layer == BRIG_LAYER_PIDS) /* brig-boot has read it back, or the machine would be off */
        return (struct brig_layer_state){.on = true, .by = reading_by_text(BY_CGROUP_V2), .why = ""};
    if (!(vm_inside_layers & BRIG_LAYER_BIT(layer)))
        return box->jail[layer];
    return (struct brig_layer_state){.on = read->on,
                                     .abi = layer == BRIG_LAYER_LANDLOCK && read->on ? read->value : 0,
                                     .by = reading_by_text((enum reading_by)read->by),
                                     .why = reading_why_text((enum reading_why)read->why)};
}

void vm_statement(const struct vm_box *box, struct box_up *ret)
{
    *ret = (struct box_up){.id = box->id, .limits = box->facts.limits, .protection_complete = true, .stream_fd = -1};
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++) {
        ret->layers[i] = layer_state(box, i);
        if (!ret->layers[i].on && (BRIG_REQUIRE_ALL & BRIG_LAYER_BIT(i)))
            ret->protection_complete = false;
    }
}

/* ---- boxes -------------------------------------------------------------------------------------------- */

struct vm_box *vm_box_add(struct vm *vm)
{
    struct vm_box *box = mem_zalloc(sizeof *box);

    if (!box)
        return NULL;
    box->box.provider = &vm->provider;
    box->vm = vm;
    list_push(&vm->boxes, box);
    return box;
}

void vm_box_free(struct vm_box *box)
{
    list_remove(&box->vm->boxes, box);
    vm_template_destroy(box->template);
    vm_warm_release(box, false);
    vm_stream_destroy(box->stream);
    fire_talk_destroy(box->talk);
    link_destroy(box->link); /* its calls with it */
    if (box->listeners) {
        fd_close_all(box->listeners->fds, box->listeners->n);
        mem_free(box->listeners);
    }
    mem_free(box);
}

/* What provider_fits() does not know of. */
static int check_spec(const struct vm *vm, const struct provider_spec *spec, struct brig_err *err)
{
    if (spec->n_tmpfs > 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "tmpfs: the provider %s has no mounts of a request", vm->ops.name);
    if (spec->gate.trust)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "brokered secrets: the provider %s has none in this version",
                       vm->ops.name);
    if (vm->probe < VM_PROBE_OVER && vm->probe != VM_PROBE_CREATES)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "provider %s: its first machine has not come up yet", vm->ops.name);
    return 0;
}

int vm_box_begin(struct vm_box *box, const struct provider_gate *gate, struct brig_err *err)
{
    struct vm *vm = box->vm;
    struct brig_bind binds[5] = {{.source = vm->root, .target = vm_root_target, .read_only = true},
                                 {.source = vm->kernel, .target = vm_kernel_target, .read_only = true},
                                 {.source = vm->initrd, .target = vm_initrd_target, .read_only = true}};
    const uint64_t require = box->facts.require & vm->local->ops->protects & ~vm_inside_layers & ~BIT(PIDS);
    struct provider_spec around = {.limits = vm->monitor->limits(&box->facts.limits),
                                   .require = require,
                                   .binds = binds,
                                   .n_binds = 3,
                                   .kvm = vm->monitor->kvm,
                                   .gate = *gate};
    const struct box_events inner = vm_inner_events(box);

    if (vm->monitor->bound)
        binds[around.n_binds++] =
            (struct brig_bind){.source = vm->program, .target = vm_program_target, .read_only = true};
    if (box->from)
        binds[around.n_binds++] =
            (struct brig_bind){.source = vm_warm_path(box->from), .target = VM_STATE_TARGET, .read_only = true};
    if (box->template)
        binds[around.n_binds++] =
            (struct brig_bind){.source = vm_template_path(box->template), .target = VM_STATE_TARGET};
    return vm->local->ops->create(vm->local, &around, &inner, &box->inner, err);
}

static int op_create(struct provider *provider, const struct provider_spec *spec, const struct box_events *events,
                     struct box **ret, struct brig_err *err)
{
    struct vm *vm = vm_of(provider);
    struct brig_limits limits = spec->limits;
    int r = check_spec(vm, spec, err);

    if (r == 0)
        r = vm_guest_limits(&limits, err);
    struct vm_box *box = r == 0 ? vm_box_add(vm) : NULL;
    if (!box)
        return r < 0 ? r : err_nomem(err);
    box->facts = (struct vm_facts){.limits = limits,
                                   .require = spec->require,
                                   .writable_root = spec->writable_root,
                                   .profile = (uint32_t)spec->profile,
                                   .network = spec->gate.on};
    box->box.events = *events;
    vm_warm_take(box);
    r = vm_box_begin(box, &spec->gate, err);
    if (r < 0) {
        vm_box_free(box);
        return r;
    }
    *ret = &box->box;
    return 0;
}

static void op_end(struct box *box)
{
    struct vm_box *it = box_of(box);

    if (it->state == VM_ENDING)
        return;
    it->state = VM_ENDING;
    it->vm->local->ops->end(it->inner);
}

/* ---- questions: the sandbox around it answers ---------------------------------------------------------- */

static int op_attach(struct box *box, void (*done)(void *ctx, int fd, const struct brig_err *err), void *ctx,
                     struct brig_err *err)
{
    struct vm_box *it = box_of(box);

    if (it->state != VM_UP || it->attached)
        return err_set(err, BRIG_E_CONFLICT, EAGAIN, "the sandbox is %s",
                       it->state == VM_ENDING ? "ending"
                       : it->attached         ? "being connected"
                                              : "not up yet");
    it->attached = done;
    it->attached_ctx = ctx;
    int r = it->link ? vm_open_stream(it, err) : it->vm->local->ops->attach(it->inner, vm_inner_stream, it, err);
    if (r < 0)
        it->attached = NULL;
    return r;
}

static int op_freeze(struct box *box, bool on, void (*done)(void *ctx, const struct brig_err *err), void *ctx,
                     struct brig_err *err)
{
    struct vm_box *it = box_of(box);

    return it->vm->local->ops->freeze(it->inner, on, done, ctx, err);
}

struct stats_question {
    struct vm_box *box;
    void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err);
    void *ctx;
};

/* What the guest's kernel killed for want of memory is no matter of the cgroup around the monitor. */
static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    AUTO_FREE struct stats_question *question = ctx;
    struct box_stats with;

    if (stats) {
        with = *stats;
        with.oom_kills += question->box->oom_kills;
    }
    question->done(question->ctx, stats ? &with : NULL, err);
}

static int op_stats(struct box *box, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
                    void *ctx, struct brig_err *err)
{
    struct vm_box *it = box_of(box);
    struct stats_question *question = mem_alloc(sizeof *question);

    if (!question)
        return err_nomem(err);
    *question = (struct stats_question){it, done, ctx};
    int r = it->vm->local->ops->stats(it->inner, on_stats, question, err);
    if (r < 0)
        mem_free(question);
    return r;
}

static int op_gate(struct box *box, const struct provider_gate *want,
                   void (*done)(void *ctx, struct box_listeners *listeners, const struct brig_err *err), void *ctx,
                   struct brig_err *err)
{
    struct vm_box *it = box_of(box);

    if (!it->facts.network)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "network: this virtual machine was made without one");
    return it->vm->local->ops->gate(it->inner, want, done, ctx, err);
}

/* ---- an earlier life ---------------------------------------------------------------------------------- */

static int op_recover(struct provider *provider,
                      bool (*found)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret),
                      void (*done)(void *ctx), void *ctx, struct brig_err *err UNUSED)
{
    struct vm *vm = vm_of(provider);

    vm->recovery.each = found;
    vm->recovery.done = done;
    vm->recovery.ctx = ctx;
    return 0;
}

static bool is_alive(const struct vm *vm, const char *id)
{
    const struct vm_box *box = vm->boxes;

    while (box && !str_eq(box->id, id))
        box = box->next;
    return box != NULL;
}

static void remove_stale(struct vm *vm)
{
    AUTO_DIR DIR *dir = dir_open(vm->kept_dir_fd, ".");
    const struct dirent *entry;

    while (dir && (entry = dir_next(dir)))
        if (!is_alive(vm, entry->d_name))
            (void)!unlinkat(vm->kept_dir_fd, entry->d_name, 0);
}

static bool is_ours(struct vm *vm, struct box *inner, const struct box_up *up, struct box_events *ret)
{
    struct vm_facts facts;
    struct box_up ours;

    if (!vm->recovery.each)
        return false;
    if (vm_recall(vm->kept_dir_fd, up->id, &facts) < 0)
        return false;
    struct vm_box *box = vm_box_add(vm);
    if (!box || str_copy(box->id, sizeof box->id, up->id) < 0) {
        if (box)
            vm_box_free(box);
        return false; /* then nobody knows it, and it is ended */
    }
    box->inner = inner;
    box->state = VM_UP;
    box->facts = facts;
    memcpy(box->jail, up->layers, sizeof box->jail);
    *ret = vm_inner_events(box);
    vm_statement(box, &ours);
    if (!vm->recovery.each(vm->recovery.ctx, &box->box, &ours, &box->box.events))
        op_end(&box->box);
    return true;
}

static void all_claimed(struct vm *vm)
{
    if (vm->recovery.each) {
        remove_stale(vm);
        vm->recovery.done(vm->recovery.ctx);
    }
    if (vm->probe == VM_PROBE_DUE && loop_timer_set(vm->provider.loop, &vm->probe_timer, loop_now_ns(), NULL) < 0) {
        vm->probe = VM_PROBE_OVER;
        str_assign(vm->provider.off, "no machine can be made: out of memory");
    }
}

static bool on_claim(void *ctx, struct box *inner, const struct box_up *up, struct box_events *ret)
{
    struct vm *vm = ctx;

    if (!inner)
        all_claimed(vm);
    else if (is_ours(vm, inner, up, ret))
        return true;
    return vm->other.claim && vm->other.claim(vm->other.ctx, inner, up, ret);
}

/* ---- the probe ----------------------------------------------------------------------------------------- */

/* That a program and a device are there proves nothing: one machine must come up. */
static void on_probed(void *ctx, const struct provider_check *check)
{
    struct vm *vm = ctx;

    vm->probe = VM_PROBE_OVER;
    if (!check->usable)
        (void)!str_format(vm->provider.off, sizeof vm->provider.off, "no machine came up: %.150s", check->missing);
}

static void on_probe_due(struct loop_timer *timer)
{
    struct vm *vm = timer->ctx;
    struct brig_err err = {0};

    vm->probe = VM_PROBE_CREATES;
    int r = provider_attempt(&vm->provider, "", on_probed, vm, &err);
    if (vm->probe == VM_PROBE_CREATES)
        vm->probe = VM_PROBE_RUNS;
    if (r < 0) {
        vm->probe = VM_PROBE_OVER;
        (void)!str_format(vm->provider.off, sizeof vm->provider.off, "no machine can be made: %.150s", err.message);
    }
}

/* ---- the provider ------------------------------------------------------------------------------------- */

static int op_check(struct provider *provider, provider_checked_fn *done, void *ctx, struct brig_err *err)
{
    struct vm *vm = vm_of(provider);
    const char *kernel = strrchr(vm->kernel, '/');
    char version[64];

    if (str_format(version, sizeof version, "%s, %s%s%s", kernel ? kernel + 1 : vm->kernel, vm->monitor->by(vm),
                   vm->version[0] ? " " : "", vm->version) < 0)
        str_cut(version, sizeof version, vm->monitor->by(vm));
    return provider_attempt(provider, version, done, ctx, err);
}

/* `local` may be gone by now, and what it has made lives on. */
static void op_destroy(struct provider *provider)
{
    struct vm *vm = vm_of(provider);

    if (!provider)
        return;
    while (vm->boxes)
        vm_box_free(vm->boxes);
    loop_timer_clear(vm->provider.loop, &vm->probe_timer);
    vm_warm_done(vm);
    base_close_fd(&vm->kept_dir_fd);
    mem_free(vm->program);
    mem_free(vm->kernel);
    mem_free(vm->initrd);
    mem_free(vm->root);
    mem_free(vm);
}

/* Its name and capabilities are the monitor's. */
static const struct provider_ops vm_ops = {
    .protects = BRIG_LAYER_BIT(BRIG_LAYER_MAX) - 1,
    .destroy = op_destroy,
    .check = op_check,
    .create = op_create,
    .attach = op_attach,
    .freeze = op_freeze,
    .stats = op_stats,
    .end = op_end,
    .recover = op_recover,
    .gate = op_gate,
};

int vm_provider_create(const struct vm_options *options, struct provider **ret, struct brig_err *err)
{
    AUTO_FD int dir = options->kept_dir_fd;
    AUTO_FD int snapshots = options->snapshots_dir_fd;
    struct vm *vm = mem_zalloc(sizeof *vm);

    if (!vm)
        return err_nomem(err);
    *vm = (struct vm){.provider = {.ops = &vm->ops, .loop = options->loop},
                      .ops = vm_ops,
                      .local = options->local,
                      .monitor = options->monitor,
                      .program = mem_strdup(options->program),
                      .kernel = mem_strdup(options->kernel),
                      .initrd = mem_strdup(options->initrd),
                      .root = mem_strdup(options->root),
                      .kvm = options->kvm,
                      .tsc_khz = vm_tsc_khz(),
                      .probe = options->monitor->probed ? VM_PROBE_DUE : VM_PROBE_OVER,
                      .probe_timer = {.fn = on_probe_due, .ctx = vm},
                      .other = {options->local->claim, options->local->claim_ctx},
                      .kept_dir_fd = take_fd(&dir),
                      .warm = {.max = options->snapshots,
                               .dir_fd = take_fd(&snapshots),
                               .dir = mem_strdup(options->snapshots_dir ? options->snapshots_dir : "")}};
    vm->ops.name = options->monitor->provider;
    vm->ops.caps = options->monitor->caps;
    if (!vm->warm.dir || !vm->program || !vm->kernel || !vm->initrd || !vm->root) {
        op_destroy(&vm->provider);
        return err_nomem(err);
    }
    vm->provider.around = vm->monitor->limits(&(struct brig_limits){0}).memory;
    vm_warm_init(vm);
    options->local->claim = on_claim;
    options->local->claim_ctx = vm;
    *ret = &vm->provider;
    return 0;
}
