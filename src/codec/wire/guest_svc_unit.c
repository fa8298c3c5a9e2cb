/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_svc_unit.c: the payloads of the calls for units, the services of a sandbox. The rules of guest_svc.c hold here
 * too. A list is only taken whole: one bad unit, and there is none.
 */
#include "codec/wire/guest_svc.h"

#define ERRNO_MAX 4095u
#define PORT_MAX 65535u
/* What a unit cannot have: it runs without anybody at its other end. */
#define START_REFUSED (SVC_PROC_TTY | SVC_PROC_STDIN | SVC_PROC_SHELL | SVC_PROC_HOLD | SVC_PROC_CHANNEL)

#define F(member) WIRE_FIELD(svc_unit, member)
static const struct wire_field UNIT[] = {F(name),  F(restart), F(ready), F(port),  F(ready_ms), F(stop_ms),
                                         F(after), F(path),    F(start), F(probe), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_unit_info, member)
static const struct wire_field INFO[] = {F(name),   F(state), F(why),      F(pid),    F(restarts), F(status),
                                         F(errnum), F(stage), F(since_ns), F(output), F(oldest),   {0}};
#undef F
#define F(member) WIRE_FIELD(svc_unit_control, member)
static const struct wire_field CONTROL[] = {F(op), F(name), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_unit_log, member)
static const struct wire_field LOG[] = {F(name), F(offset), F(follow), {0}};
#undef F

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool svc_unit_name_ok(const char *name, size_t len)
{
    if (len == 0 || len > SVC_UNIT_NAME_MAX || !is_alnum(name[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!is_alnum(name[i]) && name[i] != '_' && name[i] != '.' && name[i] != '-')
            return false;
    return true;
}

/* ---- UNIT_SET ----------------------------------------------------------------------------------- */

static bool start_ok(struct svc_bytes bytes)
{
    struct svc_proc_start start;

    return svc_proc_start_parse((const uint8_t *)bytes.data, bytes.len, &start) == 0 &&
           (start.flags & START_REFUSED) == 0;
}

static bool path_ok(struct svc_bytes path)
{
    return path.len > 1 && path.len < SVC_PATH_MAX && path.data[0] == '/' && !memchr(path.data, '\0', path.len);
}

static bool ready_ok(const struct svc_unit *unit)
{
    bool has_path = unit->ready == SVC_READY_SOCKET || unit->ready == SVC_READY_FILE;

    if (unit->ready >= SVC_READY_MAX || (unit->ready == SVC_READY_PORT) != (unit->port != 0) || unit->port > PORT_MAX)
        return false;
    if (has_path ? !path_ok(unit->path) : unit->path.len != 0)
        return false;
    return unit->ready == SVC_READY_COMMAND ? start_ok(unit->probe) : unit->probe.len == 0;
}

static bool time_ok(uint32_t ms)
{
    return ms > 0 && ms <= SVC_UNIT_TIME_MAX;
}

static bool unit_ok(const struct svc_unit *units, unsigned i)
{
    const struct svc_unit *unit = &units[i];

    for (unsigned k = 0; k < i; k++)
        if (units[k].name.len == unit->name.len && memcmp(units[k].name.data, unit->name.data, unit->name.len) == 0)
            return false;
    return svc_unit_name_ok(unit->name.data, unit->name.len) && unit->restart < SVC_RESTART_MAX && ready_ok(unit) &&
           time_ok(unit->ready_ms) && time_ok(unit->stop_ms) && (unit->after >> i) == 0 && start_ok(unit->start);
}

int svc_units_parse(const uint8_t *in, size_t len, struct svc_unit ret[SVC_UNITS_MAX])
{
    struct svc_reader at = {in, in + len, false};
    uint32_t n = svc_get_u32(&at);

    if (at.bad || n == 0 || n > SVC_UNITS_MAX)
        return -EPROTO;
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (struct svc_unit){0};
        wire_get_fields(&at, UNIT, &ret[i]);
        if (at.bad || !unit_ok(ret, i))
            return -EPROTO;
    }
    return svc_done(&at) == 0 ? (int)n : -EPROTO;
}

void svc_put_unit(struct svc_cursor *out, const struct svc_unit *unit)
{
    wire_put_fields(out, UNIT, unit);
}

/* ---- UNIT_LIST, UNIT_CONTROL, UNIT_LOG ---------------------------------------------------------- */

int svc_unit_info_put(uint8_t *out, size_t size, const struct svc_unit_info *msg)
{
    return wire_put(out, size, INFO, msg);
}

int svc_unit_info_parse(const uint8_t *in, size_t len, struct svc_unit_info *ret)
{
    struct svc_unit_info msg = {0};

    if (wire_get(in, len, INFO, &msg) < 0 || !svc_unit_name_ok(msg.name.data, msg.name.len) ||
        msg.state >= SVC_UNIT_STATE_MAX || msg.why >= SVC_WHY_MAX || msg.status > 0xffff || msg.errnum > ERRNO_MAX ||
        msg.stage >= STAGE_MAX || msg.oldest > msg.output)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_unit_control_put(uint8_t *out, size_t size, const struct svc_unit_control *msg)
{
    return wire_put(out, size, CONTROL, msg);
}

int svc_unit_control_parse(const uint8_t *in, size_t len, struct svc_unit_control *ret)
{
    struct svc_unit_control msg = {0};

    if (wire_get(in, len, CONTROL, &msg) < 0 || msg.op >= SVC_UNIT_OP_MAX ||
        !svc_unit_name_ok(msg.name.data, msg.name.len))
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_unit_log_put(uint8_t *out, size_t size, const struct svc_unit_log *msg)
{
    return wire_put(out, size, LOG, msg);
}

int svc_unit_log_parse(const uint8_t *in, size_t len, struct svc_unit_log *ret)
{
    struct svc_unit_log msg = {0};

    if (wire_get(in, len, LOG, &msg) < 0 || msg.follow > 1 || !svc_unit_name_ok(msg.name.data, msg.name.len))
        return -EPROTO;
    *ret = msg;
    return 0;
}
