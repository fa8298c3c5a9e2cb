/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_template.c: the making of a snapshot (vm_warm.c): a machine that nobody gets is booted until it waits for its
 * words, and saved by QEMU's own monitor (QMP, on another port of ::1 in its sandbox) into a file that is bound there.
 *
 *     asking: "?" until brig-boot answers --> saving: QMP's `migrate` --> the file is whole --> the machine is ended
 *        \--60 s are over, QMP refuses, or the machine ends: the snapshot has failed
 *
 * No program of a tenant has run in the machine, so what it and QEMU say is believed. QEMU kills the program that it
 * saves through as soon as it has written everything to it, and says "completed" before that. So the bytes are written
 * by a child of that program, which says SAVED on QEMU's stderr when the last of them is in the file.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "guest/boot/boot.h"
#include "vm/vm_private.h"

#define TEMPLATE_NS (60 * NS_PER_SEC)
#define RETRY_NS (20 * NS_PER_MS)
#define SAID_MAX 65536u
#define SAVED "brig: saved"

static const char orders[] = "{\"execute\":\"qmp_capabilities\"}\n"
                             "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
                             "[{\"capability\":\"events\",\"state\":true}]}}\n"
                             "{\"execute\":\"migrate-set-parameters\",\"arguments\":{\"max-bandwidth\":8589934592}}\n"
                             "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"exec:exec 3<&0; "
                             "(trap '' TERM; cat <&3 >" VM_STATE_TARGET " && echo " SAVED " >&2) & wait\"}}\n";

enum template_state { TEMPLATE_ASKING, TEMPLATE_SAVING, TEMPLATE_OVER };

struct vm_template {
    struct vm_box *box;
    struct vm_snapshot *snapshot;
    enum template_state state;
    uint64_t until_ns;
    struct loop_timer timer;
    struct call *call;
    struct buf said;
};

/* Ends the machine. What is left is freed with its box. */
static void over(struct vm_template *template, bool saved)
{
    struct vm_box *box = template->box;

    if (template->state == TEMPLATE_OVER)
        return;
    template->state = TEMPLATE_OVER;
    loop_timer_clear(box->vm->provider.loop, &template->timer);
    if (template->call)
        call_drop(take_ptr(&template->call));
    vm_warm_made(template->snapshot, saved);
    box->box.provider->ops->end(&box->box);
}

/* ---- asking ------------------------------------------------------------------------------------------- */

static void begin_saving(struct vm_template *template);

static void wait_until(struct vm_template *template, uint64_t at_ns)
{
    if (at_ns > template->until_ns)
        at_ns = template->until_ns;
    if (loop_timer_set(template->box->vm->provider.loop, &template->timer, at_ns, NULL) < 0)
        over(template, false);
}

static void on_connected(void *ctx, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct vm_template *template = ctx;

    if (call_write(template->call, BOOT_QUESTION, strlen(BOOT_QUESTION)) != (ssize_t)strlen(BOOT_QUESTION))
        over(template, false);
}

static bool has_said(struct vm_template *template, const char *text)
{
    return template->said.len > 0 && memmem(template->said.data, template->said.len, text, strlen(text));
}

/* Returns false if it is too much. */
static bool take(struct vm_template *template, const uint8_t *data, size_t len)
{
    call_consumed(template->call, 1, len);
    if (buf_append(&template->said, data, len) == 0)
        return true;
    over(template, false);
    return false;
}

static void on_answer(void *ctx, unsigned stream UNUSED, const uint8_t *data, size_t len)
{
    struct vm_template *template = ctx;

    if (take(template, data, len) && has_said(template, BOOT_WAITS))
        begin_saving(template);
}

/* QEMU does not listen yet, or is ending. */
static void on_closed(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                      size_t len UNUSED)
{
    struct vm_template *template = ctx;

    template->call = NULL;
    if (template->state == TEMPLATE_ASKING)
        wait_until(template, loop_now_ns() + RETRY_NS);
}

static void ask(struct vm_template *template)
{
    const struct call_events events = {.event = on_connected, .data = on_answer, .reply = on_closed, .ctx = template};
    struct vm_box *box = template->box;
    struct brig_err err = {0};

    if (box->vm->monitor->reach(box->link, &events, &template->call, &err) < 0)
        over(template, false);
    else
        wait_until(template, template->until_ns);
}

static void on_timer(struct loop_timer *timer)
{
    struct vm_template *template = timer->ctx;

    if (template->state == TEMPLATE_ASKING && !template->call && loop_now_ns() < template->until_ns)
        ask(template);
    else
        over(template, false);
}

/* ---- saving ------------------------------------------------------------------------------------------- */

static void on_qmp(void *ctx, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct vm_template *template = ctx;

    if (call_write(template->call, orders, sizeof orders - 1) != (ssize_t)sizeof orders - 1)
        over(template, false);
}

static void on_qmp_says(void *ctx, unsigned stream UNUSED, const uint8_t *data, size_t len)
{
    struct vm_template *template = ctx;

    if (take(template, data, len) && (has_said(template, "\"error\"") || has_said(template, "\"failed\"")))
        over(template, false);
}

static void begin_saving(struct vm_template *template)
{
    const struct call_events events = {.event = on_qmp, .data = on_qmp_says, .reply = on_closed, .ctx = template};
    const uint8_t port[2] = {VM_QMP_PORT & 0xff, VM_QMP_PORT >> 8};
    struct brig_err err = {0};

    template->state = TEMPLATE_SAVING;
    buf_consume(&template->said, template->said.len);
    call_drop(take_ptr(&template->call));
    if (link_call(template->box->link, SVC_PORT_CONNECT, port, sizeof port, &events, &template->call, &err) < 0)
        over(template, false);
}

void vm_template_words(struct vm_template *template)
{
    const struct vm_box *box = template->box;

    if (template->state == TEMPLATE_SAVING && memmem(box->tail, box->tail_len, SAVED, strlen(SAVED)))
        over(template, true);
}

/* ----------------------------------------------------------------------------------------------------- */

int vm_template_create(struct vm *vm, struct vm_snapshot *snapshot, const struct vm_facts *facts)
{
    static const struct provider_gate none;
    struct vm_template *template = mem_zalloc(sizeof *template);
    struct vm_box *box = template ? vm_box_add(vm) : NULL;
    struct brig_err err = {0};

    if (!box) {
        mem_free(template);
        return -ENOMEM;
    }
    *template = (struct vm_template){
        .box = box, .snapshot = snapshot, .timer = {.fn = on_timer, .ctx = template}, .said = BUF_INIT(SAID_MAX)};
    box->template = template;
    box->facts = *facts;
    int r = vm_box_begin(box, &none, &err);
    if (r < 0) {
        template->state = TEMPLATE_OVER;
        vm_box_free(box);
    }
    return r;
}

void vm_template_begin(struct vm_template *template)
{
    template->until_ns = loop_now_ns() + TEMPLATE_NS;
    ask(template);
}

const char *vm_template_path(const struct vm_template *template)
{
    return vm_warm_path(template->snapshot);
}

void vm_template_destroy(struct vm_template *template)
{
    if (!template)
        return;
    loop_timer_clear(template->box->vm->provider.loop, &template->timer);
    if (template->call)
        call_drop(take_ptr(&template->call));
    if (template->state != TEMPLATE_OVER)
        vm_warm_made(template->snapshot, false);
    buf_done(&template->said);
    mem_free(template);
}
