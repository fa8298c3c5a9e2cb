/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_svc_proc.c: the payloads of the calls for processes, shells and ports. The rules of guest_svc.c hold here too.
 */
#include "codec/wire/guest_svc.h"

#define RING_MAX (64u << 20)
#define COMMAND_MAX 255u
#define SIGNAL_MAX 64u
#define PROC_FLAGS (SVC_PROC_TTY | SVC_PROC_STDIN | SVC_PROC_SHELL | SVC_PROC_HOLD | SVC_PROC_CHANNEL)
#define SIGNAL_FLAGS (SVC_SIGNAL_ALL | SVC_SIGNAL_CHILDREN | SVC_SIGNAL_GROUP)
#define STREAM_BITS 6u /* 1 and 2 */

/* ---- PROC_START --------------------------------------------------------------------------------- */

int svc_proc_start_put(uint8_t *out, size_t size, const struct svc_proc_start *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->proc);
    svc_put_u32(&at, msg->flags);
    svc_put_u16(&at, msg->rows);
    svc_put_u16(&at, msg->cols);
    svc_put_u32(&at, msg->ring);
    svc_put_u32(&at, msg->n_argv);
    svc_put_u32(&at, msg->n_env);
    svc_put_bytes(&at, msg->workdir);
    svc_put_raw(&at, msg->strings, msg->strings_len);
    return svc_put_done(&at, out);
}

int svc_proc_start_parse(const uint8_t *in, size_t len, struct svc_proc_start *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_start msg = {0};

    msg.proc = svc_get_u32(&at);
    msg.flags = svc_get_u32(&at);
    msg.rows = svc_get_u16(&at);
    msg.cols = svc_get_u16(&at);
    msg.ring = svc_get_u32(&at);
    msg.n_argv = svc_get_u32(&at);
    msg.n_env = svc_get_u32(&at);
    msg.workdir = svc_get_bytes(&at);
    if (at.bad || msg.proc == 0 || (msg.flags & ~PROC_FLAGS) != 0 || msg.ring > RING_MAX)
        return -EPROTO;
    if (msg.workdir.len == 0 || msg.workdir.len >= SVC_PATH_MAX || msg.workdir.data[0] != '/' ||
        memchr(msg.workdir.data, '\0', msg.workdir.len))
        return -EPROTO;
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
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->pid);
    svc_put_u64(&at, msg->at_ns);
    return svc_put_done(&at, out);
}

int svc_proc_started_parse(const uint8_t *in, size_t len, struct svc_proc_started *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_started msg = {0};

    msg.pid = svc_get_u32(&at);
    msg.at_ns = svc_get_u64(&at);
    if (svc_done(&at) != 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

/* ---- PROC_ATTACH -------------------------------------------------------------------------------- */

int svc_proc_attach_put(uint8_t *out, size_t size, const struct svc_proc_attach *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->proc);
    svc_put_u32(&at, msg->streams);
    svc_put_u64(&at, msg->offset[1]);
    svc_put_u64(&at, msg->offset[2]);
    return svc_put_done(&at, out);
}

int svc_proc_attach_parse(const uint8_t *in, size_t len, struct svc_proc_attach *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_attach msg = {0};

    msg.proc = svc_get_u32(&at);
    msg.streams = svc_get_u32(&at);
    msg.offset[1] = svc_get_u64(&at);
    msg.offset[2] = svc_get_u64(&at);
    if (svc_done(&at) != 0 || msg.proc == 0 || msg.streams == 0 || (msg.streams & ~STREAM_BITS) != 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_attached_put(uint8_t *out, size_t size, const struct svc_attached *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u64(&at, msg->first[1]);
    svc_put_u64(&at, msg->first[2]);
    return svc_put_done(&at, out);
}

int svc_attached_parse(const uint8_t *in, size_t len, struct svc_attached *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_attached msg = {0};

    msg.first[1] = svc_get_u64(&at);
    msg.first[2] = svc_get_u64(&at);
    if (svc_done(&at) != 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

/* ---- PROC_WAIT, PROC_SIGNAL, PROC_LIST ---------------------------------------------------------- */

static void put_exit(struct svc_cursor *out, const struct svc_proc_exit *msg)
{
    svc_put_u32(out, msg->status);
    svc_put_u64(out, msg->started_ns);
    svc_put_u64(out, msg->ended_ns);
    svc_put_u64(out, msg->output[1]);
    svc_put_u64(out, msg->output[2]);
    svc_put_u64(out, msg->cpu_ns);
    svc_put_u64(out, msg->memory_peak);
    svc_put_u64(out, msg->pids_peak);
    svc_put_u32(out, msg->oom_kills);
    svc_put_u32(out, msg->pids_refused);
    svc_put_u32(out, msg->leaf);
    svc_put_u32(out, msg->killed);
    svc_put_u32(out, msg->store);
}

static struct svc_proc_exit get_exit(struct svc_reader *in)
{
    struct svc_proc_exit msg = {0};

    msg.status = svc_get_u32(in);
    msg.started_ns = svc_get_u64(in);
    msg.ended_ns = svc_get_u64(in);
    msg.output[1] = svc_get_u64(in);
    msg.output[2] = svc_get_u64(in);
    msg.cpu_ns = svc_get_u64(in);
    msg.memory_peak = svc_get_u64(in);
    msg.pids_peak = svc_get_u64(in);
    msg.oom_kills = svc_get_u32(in);
    msg.pids_refused = svc_get_u32(in);
    msg.leaf = svc_get_u32(in);
    msg.killed = svc_get_u32(in);
    msg.store = svc_get_u32(in);
    if (msg.status > 0xffff || msg.leaf > 1 || msg.killed > 1 || (msg.store & ~GUEST_STORE_ALL))
        in->bad = true;
    return msg;
}

int svc_proc_exit_put(uint8_t *out, size_t size, const struct svc_proc_exit *msg)
{
    struct svc_cursor at = {out, out + size, false};

    put_exit(&at, msg);
    return svc_put_done(&at, out);
}

int svc_proc_exit_parse(const uint8_t *in, size_t len, struct svc_proc_exit *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_exit msg = get_exit(&at);

    if (svc_done(&at) != 0)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_proc_signal_put(uint8_t *out, size_t size, const struct svc_proc_signal *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->proc);
    svc_put_u32(&at, msg->signum);
    svc_put_u32(&at, msg->flags);
    return svc_put_done(&at, out);
}

int svc_proc_signal_parse(const uint8_t *in, size_t len, struct svc_proc_signal *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_signal msg = {0};

    msg.proc = svc_get_u32(&at);
    msg.signum = svc_get_u32(&at);
    msg.flags = svc_get_u32(&at);
    if (svc_done(&at) != 0 || msg.proc == 0 || msg.signum == 0 || msg.signum > SIGNAL_MAX)
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
    svc_put_u32(&at, msg->proc);
    svc_put_u32(&at, msg->pid);
    svc_put_u32(&at, msg->flags);
    svc_put_u32(&at, msg->running);
    svc_put_u64(&at, msg->started_ns);
    svc_put_u64(&at, msg->output[1]);
    svc_put_u64(&at, msg->output[2]);
    svc_put_u64(&at, msg->oldest[1]);
    svc_put_u64(&at, msg->oldest[2]);
    put_exit(&at, &msg->exit);
    svc_put_bytes(&at, msg->command);
    return svc_put_done(&at, out);
}

int svc_proc_info_parse(const uint8_t *in, size_t len, struct svc_proc_info *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_proc_info msg = {0};

    msg.proc = svc_get_u32(&at);
    msg.pid = svc_get_u32(&at);
    msg.flags = svc_get_u32(&at);
    msg.running = svc_get_u32(&at);
    msg.started_ns = svc_get_u64(&at);
    msg.output[1] = svc_get_u64(&at);
    msg.output[2] = svc_get_u64(&at);
    msg.oldest[1] = svc_get_u64(&at);
    msg.oldest[2] = svc_get_u64(&at);
    msg.exit = get_exit(&at);
    msg.command = svc_get_bytes(&at);
    if (svc_done(&at) != 0 || msg.proc == 0 || (msg.flags & ~PROC_FLAGS) != 0 || msg.running > 1)
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
    struct svc_cursor at = {out, out + size, false};

    svc_put_u32(&at, msg->status);
    svc_put_u32(&at, msg->ended);
    svc_put_bytes(&at, msg->cwd);
    return svc_put_done(&at, out);
}

int svc_shell_result_parse(const uint8_t *in, size_t len, struct svc_shell_result *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_shell_result msg = {0};

    msg.status = svc_get_u32(&at);
    msg.ended = svc_get_u32(&at);
    msg.cwd = svc_get_bytes(&at);
    if (svc_done(&at) != 0 || msg.ended > 1 || msg.status > (msg.ended ? 0xffffu : 255u))
        return -EPROTO;
    if (msg.cwd.len > SVC_PATH_MAX || memchr(msg.cwd.data, '\0', msg.cwd.len) || (msg.ended && msg.cwd.len != 0))
        return -EPROTO;
    *ret = msg;
    return 0;
}

int svc_port_put(uint8_t *out, size_t size, const struct svc_port *msg)
{
    struct svc_cursor at = {out, out + size, false};

    svc_put_u16(&at, msg->port);
    svc_put_u8(&at, msg->family);
    svc_put_u8(&at, msg->loopback);
    svc_put_u32(&at, msg->uid);
    return svc_put_done(&at, out);
}

int svc_port_parse(const uint8_t *in, size_t len, struct svc_port *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct svc_port msg = {0};

    msg.port = svc_get_u16(&at);
    msg.family = svc_get_u8(&at);
    msg.loopback = svc_get_u8(&at);
    msg.uid = svc_get_u32(&at);
    if (svc_done(&at) != 0 || msg.port == 0 || (msg.family != 4 && msg.family != 6) || msg.loopback > 1)
        return -EPROTO;
    *ret = msg;
    return 0;
}
