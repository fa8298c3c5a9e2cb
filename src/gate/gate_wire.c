/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_wire.c: checks, sends and receives the gate's packets. A message that passes gate_wire_check() has counts within
 * its arrays and a NUL at the end of every text. The code that acts on it judges whether it makes sense.
 */
#include "gate/gate_wire.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mem.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

size_t gate_wire_size(uint16_t type)
{
    static const size_t sizes[GATE_TYPE_MAX] = {
        [GATE_FILE] = sizeof(struct gate_file),         [GATE_CONTROL] = sizeof(struct gate_plain),
        [GATE_PING] = sizeof(struct gate_plain),        [GATE_PONG] = sizeof(struct gate_plain),
        [GATE_READY] = sizeof(struct gate_plain),       [GATE_PREPARE] = sizeof(struct gate_prepare),
        [GATE_LISTEN] = sizeof(struct gate_listen),     [GATE_COUNT] = sizeof(struct gate_plain),
        [GATE_FORGET] = sizeof(struct gate_plain),      [GATE_SYNC] = sizeof(struct gate_plain),
        [GATE_SYNCED] = sizeof(struct gate_plain),      [GATE_PREPARED] = sizeof(struct gate_prepared),
        [GATE_LISTENING] = sizeof(struct gate_answer),  [GATE_COUNTED] = sizeof(struct gate_counted),
        [GATE_FORGOTTEN] = sizeof(struct gate_counted), [GATE_EVENT] = sizeof(struct gate_event),
    };

    return type < GATE_TYPE_MAX ? sizes[type] : 0;
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}
#define ENDS(field) ends((field), sizeof(field))

static bool listen_ok(const struct gate_listen *msg)
{
    if (!ENDS(msg->sandbox_id) || msg->n == 0 || msg->n > GATE_LISTENERS_MAX)
        return false;
    for (uint32_t i = 0; i < msg->n; i++) {
        const struct gate_listener *l = &msg->listeners[i];
        if (l->kind >= GATE_KIND_MAX || (l->family != AF_INET && l->family != AF_INET6))
            return false;
    }
    return true;
}

static bool event_ok(const struct gate_event *msg)
{
    return msg->verdict < GATE_VERDICT_MAX && msg->seen <= POLICY_SEEN_OTHER && msg->dns <= 1 && ENDS(msg->name) &&
           ENDS(msg->secret) && ENDS(msg->why);
}

static bool content_ok(const union gate_any *msg)
{
    switch ((enum gate_type)msg->head.type) {
    case GATE_FILE: return ENDS(msg->file.name);
    case GATE_PREPARE: return msg->head.slot != 0 && msg->prepare.policy_version > 0;
    case GATE_LISTEN: return msg->head.slot != 0 && listen_ok(&msg->listen);
    case GATE_COUNT:
    case GATE_FORGET: return msg->head.slot != 0;
    case GATE_PREPARED: return msg->prepared.n_ports <= POLICY_PORTS_MAX && ENDS(msg->prepared.err.message);
    case GATE_LISTENING: return ENDS(msg->answer.err.message);
    case GATE_COUNTED:
    case GATE_FORGOTTEN: return ENDS(msg->counted.err.message);
    case GATE_EVENT: return event_ok(&msg->event);
    case GATE_CONTROL:
    case GATE_PING:
    case GATE_PONG:
    case GATE_READY:
    case GATE_SYNC:
    case GATE_SYNCED: return true;
    case GATE_TYPE_MAX: break;
    }
    return false;
}

int gate_wire_check(const union gate_any *msg, size_t len)
{
    if (len < sizeof msg->head || msg->head.magic != GATE_MAGIC || msg->head.version != GATE_VERSION)
        return -EPROTO;
    size_t want = gate_wire_size(msg->head.type);
    return want != 0 && want == len && content_ok(msg) ? 0 : -EPROTO;
}

/* ---- packets ----------------------------------------------------------------------------------------------- */

int gate_send(int sock, const void *msg, const int *fds, size_t n_fds)
{
    const struct gate_head *head = msg;
    int r = fd_send_nowait(sock, msg, gate_wire_size(head->type), fds, n_fds);

    return r == -ECONNRESET ? -EPIPE : r;
}
_Static_assert(GATE_LISTENERS_MAX <= FD_MSG_MAX, "the listeners fit into one message");

int gate_receive(int sock, union gate_any *ret, int *fds, size_t *n_fds)
{
    size_t count = 0;
    ssize_t n = fd_recv_message(sock, ret, sizeof *ret, fds, *n_fds, &count);

    if (n == 0 || n == -ECONNRESET)
        return -EPIPE;
    if (n < 0)
        return (int)n;
    if (gate_wire_check(ret, (size_t)n) < 0) {
        fd_close_all(fds, count);
        return -EPROTO;
    }
    *n_fds = count;
    return 0;
}

/* ---- texts ------------------------------------------------------------------------------------------------- */

int gate_memfd(const char *name, const void *data, size_t len)
{
    AUTO_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, data, len);
    if (r < 0)
        return r;
    if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0)
        return -errno;
    return take_fd(&fd);
}

int gate_memfd_read(int fd, size_t max, char **ret, size_t *ret_len)
{
    struct stat st;
    size_t at = 0;
    int seals = fcntl(fd, F_GET_SEALS);

    /* Not a memfd, or one that could still change while it is read. */
    if (seals < 0 || (seals & SEALS) != SEALS)
        return -EINVAL;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return -EMSGSIZE;
    size_t len = (size_t)st.st_size;
    AUTO_FREE char *data = mem_alloc(len + 1);
    if (!data)
        return -ENOMEM;
    while (at < len) {
        ssize_t n = RETRY(pread(fd, data + at, len - at, (off_t)at));
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    data[len] = '\0';
    *ret = take_ptr(&data);
    *ret_len = len;
    return 0;
}
