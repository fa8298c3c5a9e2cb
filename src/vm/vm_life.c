/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_life.c: the life of one virtual machine: the sandbox around it comes up, its monitor is started in it by its
 * brig-init, the guest's brig-init answers, and at the end of either everything ends.
 *
 * Whoever ends it first gives the cause: somebody asked; the guest's kernel had no memory left; the monitor ended, or
 * its sandbox did. The last words of the monitor and of the guest's kernel, which come over the same pipe, are its
 * detail. They are the guest's own text. One thing is taken from them: that its kernel killed a program for want of
 * memory. A kernel that lies about that lies about itself.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/wire/guest_carry.h"
#include "jail/plan.h"
#include "vm/vm_private.h"

#define BOOT_NS (60 * NS_PER_SEC) /* a busy host, with emulation */
#define RESTORE_NS (20 * NS_PER_SEC)
#define ATTACH_NS (9 * NS_PER_SEC) /* The manager waits for 10 s. */
#define WORDS_MAX 16384u

/* ---- its end ------------------------------------------------------------------------------------------ */

PRINTF_LIKE(3, 4) static void end_with(struct vm_box *box, enum brig_cause cause, const char *format, ...)
{
    va_list args;

    if (box->state == VM_ENDING)
        return;
    va_start(args, format);
    vsnprintf(box->why, sizeof box->why, format, args);
    va_end(args);
    box->cause = cause;
    box->state = VM_ENDING;
    box->vm->local->ops->end(box->inner);
}

static void answer_attach(struct vm_box *box, int fd, const struct brig_err *err)
{
    void (*done)(void *ctx, int fd, const struct brig_err *err) = take_ptr(&box->attached);

    if (done)
        done(box->attached_ctx, fd, err);
    else
        base_close_fd(&fd);
}

/* The line of a panic, or else the last one that says something; without control bytes. */
static const char *last_words(struct vm_box *box)
{
    const char *panic = box->tail_len > 0 ? memmem(box->tail, box->tail_len, "Kernel panic", 12) : NULL;
    const char *stop = panic ? memchr(panic, '\n', box->tail_len - (size_t)(panic - box->tail)) : NULL;
    size_t end = stop ? (size_t)(stop - box->tail) : box->tail_len, begin;

    while (end > 0 && (unsigned char)box->tail[end - 1] <= ' ')
        end--;
    box->tail[end] = '\0';
    for (begin = end; begin > 0 && box->tail[begin - 1] != '\n'; begin--)
        if ((unsigned char)box->tail[begin - 1] < ' ')
            box->tail[begin - 1] = ' ';
    return box->tail + begin;
}

static void on_inner_ended(void *ctx, const struct box_end *inner)
{
    struct vm_box *box = ctx;
    struct box_events events = box->box.events;
    struct box_end end = *inner;
    struct brig_err gone = {0};

    if (box->why[0]) {
        const char *said = last_words(box);
        end.cause = box->cause;
        end.code = end.cause == BRIG_CAUSE_POLICY ? BRIG_E_REFUSED : BRIG_E_HOST;
        snprintf(end.detail, sizeof end.detail, "%.150s%s%.100s", box->why, said[0] ? ": " : "", said);
    }
    vm_warm_release(box, box->why[0] != '\0'); /* It has none any more if it was up. */
    box->inner = NULL;
    box->state = VM_ENDING;
    (void)err_set(&gone, BRIG_E_GONE, 0, "the virtual machine ended");
    answer_attach(box, -1, &gone);
    vm_forget(box);
    if (events.ended)
        events.ended(events.ctx, &end);
    vm_box_free(box);
}

/* ---- the monitor ------------------------------------------------------------------------------------- */

static void on_monitor_exit(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct vm_box *box = ctx;
    const char *name = box->vm->monitor->name;
    struct svc_proc_exit exit;

    box->waits = NULL;
    if (errnum != 0 || svc_proc_exit_parse(data, len, &exit) < 0) {
        end_with(box, BRIG_CAUSE_SANDBOX_GONE, "%s is gone", name);
        return;
    }
    const int status = (int)exit.status;
    if (memmem(box->tail, box->tail_len, "panic", 5) && memmem(box->tail, box->tail_len, "ut of memory", 12))
        end_with(box, BRIG_CAUSE_OOM, "the virtual machine had no memory left");
    else if (exit.oom_kills > 0)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%s needed more memory than its sandbox has", name);
    else if (WIFSIGNALED(status))
        end_with(box, box->state == VM_UP ? BRIG_CAUSE_SANDBOX_GONE : BRIG_CAUSE_HOST_ERROR, "%s died of signal %d",
                 name, WTERMSIG(status));
    else
        end_with(box, box->state == VM_UP ? BRIG_CAUSE_SANDBOX_GONE : BRIG_CAUSE_HOST_ERROR, "%s ended with status %d",
                 name, WEXITSTATUS(status));
}

/* The first letter of these words comes only once in them, so a miss begins anew. */
static void count_oom(struct vm_box *box, const uint8_t *data, size_t len)
{
    static const char words[] = "Out of memory: Killed process";

    for (size_t i = 0; i < len; i++) {
        if (data[i] != (uint8_t)words[box->oom_at])
            box->oom_at = 0;
        if (data[i] == (uint8_t)words[box->oom_at] && !words[++box->oom_at]) {
            box->oom_kills++;
            box->oom_at = 0;
        }
    }
}

static void on_words(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct vm_box *box = ctx;
    const size_t room = sizeof box->tail - 1;

    call_consumed(box->says, stream, len);
    count_oom(box, data, len);
    if (len > room) {
        data += len - room;
        len = room;
    }
    if (box->tail_len + len > room) {
        size_t drop = box->tail_len + len - room;
        memmove(box->tail, box->tail + drop, box->tail_len - drop);
        box->tail_len -= drop;
    }
    memcpy(box->tail + box->tail_len, data, len);
    box->tail_len += len;
    if (box->template)
        vm_template_words(box->template);
}

static void on_words_end(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                         size_t len UNUSED)
{
    ((struct vm_box *)ctx)->says = NULL;
}

/* Both go on until the monitor ends. What a recovered one has said before is not counted again. */
static int watch_monitor(struct vm_box *box, struct brig_err *err)
{
    const struct call_events words = {.data = on_words, .reply = on_words_end, .ctx = box};
    const struct call_events end = {.reply = on_monitor_exit, .ctx = box};
    const uint64_t from = box->state == VM_UP ? SVC_FROM_NOW : 0;
    const struct svc_proc_attach attach = {
        .proc = VM_PROC, .streams = (1u << 1) | (1u << 2), .offset = {0, from, from}};
    const uint8_t number[4] = {VM_PROC, 0, 0, 0};
    uint8_t wire[64];
    int len = svc_proc_attach_put(wire, sizeof wire, &attach);

    if (len < 0)
        return err_set(err, BRIG_E_HOST, -len, "attach");
    int r = link_call(box->link, SVC_PROC_ATTACH, wire, (size_t)len, &words, &box->says, err);
    return r < 0 ? r : link_call(box->link, SVC_PROC_WAIT, number, sizeof number, &end, &box->waits, err);
}

static void on_monitor_started(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                               size_t len UNUSED)
{
    struct vm_box *box = ctx;

    if (errnum != 0)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.100s: %s; %s", box->vm->program, strerror((int)errnum),
                 box->vm->monitor->install);
}

static int start_monitor(struct vm_box *box, struct brig_err *err)
{
    const struct call_events events = {.reply = on_monitor_started, .ctx = box};
    AUTO_BUF struct buf words = BUF_INIT(WORDS_MAX);
    AUTO_FREE uint8_t *wire = mem_alloc(WORDS_MAX + 256);
    struct svc_proc_start start = {.proc = VM_PROC, .workdir = {"/", 1}};
    struct call *call = NULL;

    if (!wire || box->vm->monitor->words(box, &words, &start.n_argv, &start.n_env) < 0)
        return err_nomem(err);
    start.strings = (const uint8_t *)words.data;
    start.strings_len = words.len;
    int len = svc_proc_start_put(wire, WORDS_MAX + 256, &start);
    if (len < 0)
        return err_set(err, BRIG_E_HOST, -len, "start of %s", box->vm->monitor->name);
    return link_call(box->link, SVC_PROC_START, wire, (size_t)len, &events, &call, err);
}

/* ---- the guest ---------------------------------------------------------------------------------------- */

static void come_up(struct vm_box *box, int fd, const struct guest_started *started)
{
    struct box_up up;
    struct brig_err err = {0};
    struct vm *vm = box->vm;
    const bool cold = !box->from;

    memcpy(box->facts.inside, started->readings, sizeof box->facts.inside);
    vm_statement(box, &up);
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if ((box->facts.require & BRIG_LAYER_BIT(i)) && !up.layers[i].on) {
            base_close_fd(&fd);
            end_with(box, BRIG_CAUSE_POLICY, "required layer %s is off", brig_layer_name((enum brig_layer)i));
            return;
        }
    if (vm_keep(box, &err) < 0) {
        base_close_fd(&fd);
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.150s", err.message);
        return;
    }
    const struct vm_facts facts = box->facts;
    box->state = VM_UP;
    vm_warm_release(box, false);
    up.stream_fd = fd;
    up.listeners = box->listeners;
    box->listeners = NULL; /* before the call: it may end the box */
    box->box.events.up(box->box.events.ctx, &up);
    base_close_fd(&up.stream_fd);
    if (up.listeners) {
        fd_close_all(up.listeners->fds, up.listeners->n);
        mem_free(up.listeners);
    }
    if (cold)
        vm_warm_want(vm, &facts);
}

static int put_line(void *ctx, char *out, size_t size)
{
    const struct vm_box *box = ctx;

    return box->vm->monitor->line(box, out, size);
}

static void on_opened(void *ctx, int fd, const struct guest_started *started, const struct brig_err *err)
{
    struct vm_box *box = ctx;

    if (box->state == VM_ENDING) {
        base_close_fd(&fd);
        return;
    }
    if (box->state == VM_UP)
        answer_attach(box, fd, err);
    else if (err)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.150s", err->message);
    else
        come_up(box, fd, started);
}

static int put_start(const struct vm_box *box, uint8_t *out, size_t size)
{
    const struct guest_start start = {.flags = GUEST_START_SERVICE,
                                      .uid = INSIDE_USER,
                                      .gid = INSIDE_USER,
                                      .profile = box->facts.profile,
                                      .require = box->facts.require & vm_inside_layers,
                                      .disk = box->facts.limits.disk,
                                      .inodes = box->facts.limits.inodes,
                                      .store_by = BY_MEMORY,
                                      .writable_root = box->facts.writable_root,
                                      .workdir = "/workspace"};
    int len = guest_start_put_head(out + FRAME_HEADER, size - FRAME_HEADER, &start);
    struct frame frame = {.type = FRAME_START, .length = (uint32_t)len};

    if (len < 0)
        return len;
    frame_put_header(out, &frame);
    return (int)FRAME_HEADER + len;
}

int vm_open_stream(struct vm_box *box, struct brig_err *err)
{
    const bool again = box->state == VM_UP;
    const struct frame attach = {.type = FRAME_ATTACH};
    uint8_t order[512];
    int len = (int)FRAME_HEADER;

    frame_put_header(order, &attach);
    if (!again)
        len = put_start(box, order, sizeof order);
    if (len < 0)
        return err_set(err, BRIG_E_HOST, -len, "the order of the virtual machine");
    vm_stream_destroy(take_ptr(&box->stream));
    const struct vm_stream_options options = {
        .loop = box->vm->provider.loop,
        .link = box->link,
        .monitor = box->vm->monitor,
        .order = order,
        .order_len = (size_t)len,
        .until_ns = loop_now_ns() + (again       ? ATTACH_NS
                                     : box->from ? RESTORE_NS
                                                 : BOOT_NS),
        .again = again,
        .events = {.opened = on_opened, .line = !again && box->vm->monitor->line ? put_line : NULL, .ctx = box}};
    return vm_stream_create(&options, &box->stream, err);
}

/* ---- the sandbox around it ---------------------------------------------------------------------------- */

void vm_driven(struct vm_box *box, const struct brig_err *err)
{
    struct brig_err failure = {0};

    if (box->state != VM_BOOTING)
        return;
    if (err)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.150s", err->message);
    else if (vm_open_stream(box, &failure) < 0)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.150s", failure.message);
}

static void on_link_hello(void *ctx, const struct svc_hello *hello UNUSED)
{
    struct vm_box *box = ctx;
    struct brig_err err = {0};
    int r = box->state == VM_BOOTING ? start_monitor(box, &err) : 0;

    if (r == 0)
        r = watch_monitor(box, &err);
    if (r == 0 && box->template)
        vm_template_begin(box->template);
    else if (r == 0 && box->state == VM_BOOTING && box->vm->monitor->drive)
        r = box->vm->monitor->drive(box, &err);
    else if (r == 0 && (box->state == VM_BOOTING || box->attached))
        r = vm_open_stream(box, &err);
    if (r < 0)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.150s", err.message);
}

static void on_link_gone(void *ctx, const struct brig_err *why)
{
    struct vm_box *box = ctx;

    end_with(box, BRIG_CAUSE_SANDBOX_GONE, "the sandbox around %s: %.120s", box->vm->monitor->name, why->message);
}

static void begin_link(struct vm_box *box, int fd)
{
    const struct link_events events = {.hello = on_link_hello, .gone = on_link_gone, .ctx = box};
    struct brig_err err = {0};

    if (link_create(box->vm->provider.loop, fd, &events, &box->link, &err) < 0)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "%.150s", err.message);
}

void vm_inner_stream(void *ctx, int fd, const struct brig_err *err)
{
    if (err)
        answer_attach(ctx, -1, err);
    else
        begin_link(ctx, fd);
}

/* Copies them, because the caller closes what is left in its own. */
static int take_listeners(struct vm_box *box, struct box_listeners *from)
{
    if (!from)
        return 0;
    box->listeners = mem_alloc(sizeof *box->listeners);
    if (!box->listeners)
        return -ENOMEM;
    *box->listeners = *from;
    for (size_t i = 0; i < from->n; i++)
        from->fds[i] = -1;
    return 0;
}

static void on_inner_up(void *ctx, struct box_up *up)
{
    struct vm_box *box = ctx;

    if (box->state != VM_MAKING)
        return;
    box->state = VM_BOOTING;
    memcpy(box->jail, up->layers, sizeof box->jail);
    if (str_copy(box->id, sizeof box->id, up->id) < 0 || take_listeners(box, up->listeners) < 0)
        end_with(box, BRIG_CAUSE_HOST_ERROR, "out of memory");
    else
        begin_link(box, take_fd(&up->stream_fd));
}

struct box_events vm_inner_events(struct vm_box *box)
{
    return (struct box_events){.up = on_inner_up, .ended = on_inner_ended, .ctx = box};
}
