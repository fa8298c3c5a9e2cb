/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_svc_proc.c: the payloads of the calls for processes, shells and ports. The rules of guest_svc.c hold here too.
 */
#include "codec/passwd.h"
#include "codec/wire/guest_svc.h"

#define RING_MAX (64u << 20)
#define COMMAND_MAX 255u
#define SIGNAL_MAX 64u
#define PROC_FLAGS (SVC_PROC_TTY | SVC_PROC_STDIN | SVC_PROC_SHELL | SVC_PROC_HOLD | SVC_PROC_CHANNEL | SVC_PROC_USER)
#define SIGNAL_FLAGS (SVC_SIGNAL_ALL | SVC_SIGNAL_CHILDREN | SVC_SIGNAL_GROUP)
#define STREAM_BITS 6u /* 1 and 2 */

/* ---- the fields, in the order of the wire -------------------------------------------------------- */

#define F(member) WIRE_FIELD(svc_proc_start, member)
static const struct wire_field START[] = {F(proc),   F(flags), F(rows),    F(cols), F(ring),
                                          F(n_argv), F(n_env), F(workdir), {0}}; /* The strings follow. */
#undef F
#define F(member) WIRE_FIELD(svc_proc_started, member)
static const struct wire_field STARTED[] = {F(pid), F(at_ns), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_proc_attach, member)
static const struct wire_field ATTACH[] = {F(proc), F(streams), F(offset[1]), F(offset[2]), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_attached, member)
static const struct wire_field ATTACHED[] = {F(first[1]), F(first[2]), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_proc_exit, member)
static const struct wire_field EXIT[] = {F(status), F(started_ns),  F(ended_ns),  F(output[1]), F(output[2]),
                                         F(cpu_ns), F(memory_peak), F(pids_peak), F(oom_kills), F(pids_refused),
                                         F(leaf),   F(killed),      F(store),     {0}};
#undef F
#define F(member) WIRE_FIELD(svc_proc_signal, member)
static const struct wire_field SIGNAL[] = {F(proc), F(signum), F(flags), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_proc_info, member)
static const struct wire_field INFO[] = {F(proc),       F(pid),       F(flags),     F(running),
                                         F(started_ns), F(output[1]), F(output[2]), F(oldest[1]),
                                         F(oldest[2]),  {0}}; /* The exit follows. */
static const struct wire_field COMMAND[] = {F(command), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_shell_result, member)
static const struct wire_field SHELL_RESULT[] = {F(status), F(ended), F(cwd), {0}};
#undef F
#define F(member) WIRE_FIELD(svc_port, member)
static const struct wire_field PORT[] = {F(port), F(family), F(loopback), F(uid), {0}};
#undef F

/* ---- PROC_START --------------------------------------------------------------------------------- */

int svc_proc_start_put(uint8_t *out, size_t size, const struct svc_proc_start *msg)
{
    struct svc_cursor at = {out, out + size, false};

    wire_put_fields(&at, START, msg);
    if (msg->flags & SVC_PROC_USER)
        svc_put_bytes(&at, msg->user);
    svc_put_raw(&at, msg->strings, msg->strings_len);
    return svc_put_done(&at, out);
}

int svc_proc_start_parse(const uint8_t *in, size_t len, struct svc_proc_start *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_start msg = {0};

    wire_get_fields(&at, START, &msg);
    if (at.bad || msg.proc == 0 || (msg.flags & ~PROC_FLAGS) != 0 || msg.ring > RING_MAX)
        return -EPROTO;
    if (msg.workdir.len == 0 || msg.workdir.len >= SVC_PATH_MAX || msg.workdir.data[0] != '/' ||
        memchr(msg.workdir.data, '\0', msg.workdir.len))
        return -EPROTO;
    if (msg.flags & SVC_PROC_USER) {
        msg.user = svc_get_bytes(&at);
        if (at.bad || msg.user.len == 0 || msg.user.len >= USER_TEXT_MAX)
            return -EPROTO;
    }
    msg.strings = at.at;
    msg.strings_len = (size_t)(at.end - at.at);
    if (!(msg.n_argv > 0 && msg.strings_len <= GUEST_STRINGS_MAX &&
          guest_strings_ok(msg.strings, msg.strings_len, msg.n_argv, msg.n_env)))
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_proc_started_put(uint8_t *out, size_t size, const struct svc_proc_started *msg)
{
    return wire_put(out, size, STARTED, msg);
}

int svc_proc_started_parse(const uint8_t *in, size_t len, struct svc_proc_started *ret)
{
    return wire_get(in, len, STARTED, ret);
}

/* ---- PROC_ATTACH -------------------------------------------------------------------------------- */

int svc_proc_attach_put(uint8_t *out, size_t size, const struct svc_proc_attach *msg)
{
    return wire_put(out, size, ATTACH, msg);
}

int svc_proc_attach_parse(const uint8_t *in, size_t len, struct svc_proc_attach *ret)
{
    struct svc_proc_attach msg = {0};

    if (wire_get(in, len, ATTACH, &msg) < 0 || msg.proc == 0 || msg.streams == 0 || (msg.streams & ~STREAM_BITS) != 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_attached_put(uint8_t *out, size_t size, const struct svc_attached *msg)
{
    return wire_put(out, size, ATTACHED, msg);
}

int svc_attached_parse(const uint8_t *in, size_t len, struct svc_attached *ret)
{
    return wire_get(in, len, ATTACHED, ret);
}

/* ---- PROC_WAIT, PROC_SIGNAL, PROC_LIST ---------------------------------------------------------- */

static bool exit_ok(const struct svc_proc_exit *msg)
{
    return msg->status <= 0xffff && msg->leaf <= 1 && msg->killed <= 1 && (msg->store & ~GUEST_STORE_ALL) == 0;
}

int svc_proc_exit_put(uint8_t *out, size_t size, const struct svc_proc_exit *msg)
{
    return wire_put(out, size, EXIT, msg);
}

int svc_proc_exit_parse(const uint8_t *in, size_t len, struct svc_proc_exit *ret)
{
    struct svc_proc_exit msg = {0};

    if (wire_get(in, len, EXIT, &msg) < 0 || !exit_ok(&msg))
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_proc_signal_put(uint8_t *out, size_t size, const struct svc_proc_signal *msg)
{
    return wire_put(out, size, SIGNAL, msg);
}

int svc_proc_signal_parse(const uint8_t *in, size_t len, struct svc_proc_signal *ret)
{
    struct svc_proc_signal msg = {0};

    if (wire_get(in, len, SIGNAL, &msg) < 0 || msg.proc == 0 || msg.signum == 0 || msg.signum > SIGNAL_MAX)
        return -EPROTO;
    /* At most one of them: whom a signal goes to is one question. */
    if ((msg.flags & ~SIGNAL_FLAGS) != 0 || (msg.flags & (msg.flags - 1)) != 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_proc_info_put(uint8_t *out, size_t size, const struct svc_proc_info *msg)
{
    struct svc_cursor at = {out, out + size, false};

    if (msg->command.len > COMMAND_MAX)
        return -EMSGSIZE;
    wire_put_fields(&at, INFO, msg);
    wire_put_fields(&at, EXIT, &msg->exit);
    wire_put_fields(&at, COMMAND, msg);
    return svc_put_done(&at, out);
}

int svc_proc_info_parse(const uint8_t *in, size_t len, struct svc_proc_info *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_info msg = {0};

    wire_get_fields(&at, INFO, &msg);
    wire_get_fields(&at, EXIT, &msg.exit);
    wire_get_fields(&at, COMMAND, &msg);
    if (svc_done(&at) < 0 || !exit_ok(&msg.exit) || msg.proc == 0 || (msg.flags & ~PROC_FLAGS) != 0 || msg.running > 1)
        return -EPROTO;
    if (msg.oldest[1] > msg.output[1] || msg.oldest[2] > msg.output[2] || msg.command.len > COMMAND_MAX ||
        memchr(msg.command.data, '\0', msg.command.len))
        return -EPROTO;
    *ret = msg;
    return 0;
}

/* ---- shells, ports ------------------------------------------------------------------------------ */

int svc_shell_result_put(uint8_t *out, size_t size, const struct svc_shell_result *msg)
{
    return wire_put(out, size, SHELL_RESULT, msg);
}

int svc_shell_result_parse(const uint8_t *in, size_t len, struct svc_shell_result *ret)
{
    struct svc_shell_result msg = {0};

    if (wire_get(in, len, SHELL_RESULT, &msg) < 0 || msg.ended > 1 || msg.status > (msg.ended ? 0xffffu : 255u))
        return -EPROTO;
    if (msg.cwd.len > SVC_PATH_MAX || memchr(msg.cwd.data, '\0', msg.cwd.len) || (msg.ended && msg.cwd.len != 0))
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_port_put(uint8_t *out, size_t size, const struct svc_port *msg)
{
    return wire_put(out, size, PORT, msg);
}

int svc_port_parse(const uint8_t *in, size_t len, struct svc_port *ret)
{
    struct svc_port msg = {0};

    if (wire_get(in, len, PORT, &msg) < 0 || msg.port == 0 || (msg.family != 4 && msg.family != 6) || msg.loopback > 1)
        return -EPROTO;
    *ret = msg;
    return 0;
}
