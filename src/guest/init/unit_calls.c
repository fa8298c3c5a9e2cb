/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit_calls.c: brigd's calls about units: the list of them, once; what they are doing; start, stop and restart; their
 * output. A call that waits is answered when its unit is up, has ended or has failed, and never changes what the unit
 * does if its caller goes away.
 */
#include "codec/wire/le.h"
#include "guest/init/guest_service.h"

static struct call *set_call; /* the UNIT_SET that waits */

static struct unit *find(struct svc_bytes name)
{
    for (unsigned i = 0; i < units_count(); i++) {
        struct svc_bytes other = unit_at(i)->def.name;

        if (other.len == name.len && __builtin_memcmp(other.data, name.data, name.len) == 0)
            return unit_at(i);
    }
    return NULL;
}

static void answer(struct call *call, uint32_t value)
{
    uint8_t wire[4];

    le_put_u32(wire, value);
    call_reply(call, 0, 0, wire, sizeof(wire));
}

void unit_call_freed(struct call *call)
{
    if (call == set_call)
        set_call = NULL;
    else if (call->unit)
        call->unit->control = NULL;
}

static void answer_set(void)
{
    bool all = true;

    for (unsigned i = 0; i < units_count(); i++) {
        const struct unit *unit = unit_at(i);

        if (unit->state == SVC_UNIT_FAILED) {
            answer(set_call, 1 + i);
            return;
        }
        all = all && unit_is_settled(unit);
    }
    if (all)
        answer(set_call, 0);
}

void units_answer(void)
{
    if (set_call)
        answer_set();
    for (unsigned i = 0; i < units_count(); i++) {
        struct unit *unit = unit_at(i);

        if (unit->control && unit_is_settled(unit))
            answer(unit->control, unit->state);
    }
}

void unit_set(uint32_t request, const uint8_t *payload, size_t len)
{
    struct call *call;
    int ret;

    if (units_count() > 0) {
        send_reply(request, EEXIST, 0, NULL, 0);
        return;
    }
    if (!(call = call_new(request, SVC_UNIT_SET, NULL)))
        return;
    ret = units_take(payload, len);
    if (ret != 0)
        call_reply(call, -ret, 0, NULL, 0);
    else
        set_call = call;
}

static void send_info(uint32_t request, struct unit *unit)
{
    const struct svc_unit_info info = {
        .name = unit->def.name,
        .state = unit->state,
        .why = unit->why,
        .pid = unit->pid,
        .restarts = unit->restarts,
        .status = unit->status,
        .errnum = unit->errnum,
        .stage = unit->stage,
        .since_ns = unit->since_ns,
        .output = unit->out.end,
        .oldest = unit->out.begin,
    };
    uint8_t wire[256];
    int len = svc_unit_info_put(wire, sizeof(wire), &info);

    if (len > 0)
        send_frame(SVC_EVENT, request, 0, wire, (size_t)len);
}

void unit_list(uint32_t request, const uint8_t *payload, size_t len)
{
    (void)payload;
    if (len != 0) {
        send_reply(request, EINVAL, 0, NULL, 0);
        return;
    }
    for (unsigned i = 0; i < units_count(); i++)
        send_info(request, unit_at(i));
    send_reply(request, 0, 0, NULL, 0);
}

void unit_control(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_unit_control msg;
    struct unit *unit = NULL;
    struct call *call;
    int errnum = svc_unit_control_parse(payload, len, &msg) != 0 ? EINVAL : 0;

    if (errnum == 0 && !(unit = find(msg.name)))
        errnum = ENOENT;
    if (errnum == 0 && unit->control)
        errnum = EBUSY;
    if (errnum != 0) {
        send_reply(request, errnum, 0, NULL, 0);
        return;
    }
    if (!(call = call_new(request, SVC_UNIT_CONTROL, NULL)))
        return;
    call->unit = unit;
    unit->control = call;
    if (msg.op == SVC_UNIT_START)
        unit_start(unit);
    else
        unit_stop(unit, msg.op == SVC_UNIT_STOP ? THEN_STOPPED : THEN_AGAIN);
    units_answer();
}

static void log_drained(struct call *call)
{
    call_reply(call, 0, 0, NULL, 0);
}

void unit_log(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_unit_log msg;
    struct unit *unit = NULL;
    struct call *call;
    uint8_t wire[8];
    int errnum = svc_unit_log_parse(payload, len, &msg) != 0 ? EINVAL : 0;

    if (errnum == 0 && !(unit = find(msg.name)))
        errnum = ENOENT;
    if (errnum != 0) {
        send_reply(request, errnum, 0, NULL, 0);
        return;
    }
    outlet_take(&unit->out); /* What it has written before this call belongs to the answer. */
    if (!(call = call_new(request, SVC_UNIT_LOG, NULL)))
        return;
    call->drained = log_drained;
    call_attach(call, 1, &unit->out, msg.offset);
    call->reader[0].loose = true;
    if (!msg.follow)
        call->reader[0].limit = unit->out.end;
    le_put_u64(wire, call->reader[0].pos);
    send_frame(SVC_EVENT, request, 0, wire, sizeof(wire));
}
