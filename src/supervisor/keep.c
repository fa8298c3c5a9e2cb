/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c: the supervisor's half of sandboxes that outlive it. spawner/spawner_keep.c has the spawner's half and the
 * theory of operation.
 *
 * Before a supervisor that keeps sandboxes ends, it checks that the spawner answers on the socket in the run directory,
 * as the spawner must when the next supervisor comes. If it does not, it is killed: what nobody can find again must not
 * run on. The next supervisor goes on only with a spawner of its own build, and only if what the spawner enforces for
 * the administrator (the roots of binds and of templates) is what the configuration has now. Any other spawner is
 * ended, by removing the file, before a new one is started; brigd then writes the certificates of what is gone.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "gate/gate_wire.h"
#include "spawner/spawner_wire.h"
#include "supervisor/supervisor.h"

#define ANSWER_MS 5000
#define END_MS 30000
#define TEXT_MAX (1u << 20)

static int address(const struct places *places, struct sockaddr_un *ret, struct brig_err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    return str_format(ret->sun_path, sizeof ret->sun_path, "%s/spawner.sock", places->run) < 0
               ? err_usage(err, "%s: too long for a socket", places->run)
               : 0;
}

/* What the spawner was started with and cannot be told anew. */
static int settings(const struct places *places, const struct config *config, struct buf *out, struct brig_err *err)
{
    if (buf_printf(out, "state %s\nbinds %s\ntemplates %s\nown ", places->state, config->bind_roots,
                   config->templates) < 0 ||
        supervisor_own_roots(places, config, out) < 0)
        return err_nomem(err);
    return 0;
}

/* -1: nobody is there (errno: why). */
static int dial(const struct sockaddr_un *addr)
{
    AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd < 0 || connect(fd, (const struct sockaddr *)addr, sizeof *addr) < 0 ? -1 : take_fd(&fd);
}

static bool wait_for(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t end = clock_mono_ns() + (uint64_t)timeout_ms * NS_PER_MS;

    for (;;) {
        uint64_t now = clock_mono_ns();
        int n = poll(&wait, 1, now < end ? (int)((end - now) / NS_PER_MS) + 1 : 0);
        if (n != 0 && !(n < 0 && errno == EINTR))
            return n > 0;
        if (n == 0)
            return false;
    }
}

struct found {
    struct wire_kept kept;
    int fds[WIRE_KEPT_FDS]; /* the engine's end, the text, a pidfd */
};

static int hear(int conn, struct found *ret, struct brig_err *err)
{
    size_t n_fds = 0;

    if (!wait_for(conn, ANSWER_MS))
        return err_set(err, BRIG_E_HOST, ETIMEDOUT, "the spawner that keeps the sandboxes does not answer");
    ssize_t n = fd_recv_nowait(conn, &ret->kept, sizeof ret->kept, ret->fds, WIRE_KEPT_FDS, &n_fds);
    if (n == (ssize_t)sizeof ret->kept && n_fds == WIRE_KEPT_FDS && ret->kept.head.magic == WIRE_MAGIC &&
        ret->kept.head.type == WIRE_KEPT && memchr(ret->kept.build, '\0', sizeof ret->kept.build))
        return 0;
    fd_close_all(ret->fds, n > 0 ? n_fds : 0);
    return err_set(err, BRIG_E_HOST, n < 0 ? (int)-n : EPROTO,
                   "what the spawner that keeps the sandboxes says is not understood");
}

/* ---- the end of one supervisor ------------------------------------------------------------------------- */

static int bind_private(const struct sockaddr_un *addr, struct brig_err *err)
{
    AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_host(err, "socket");
    /* What lies there is of a spawner that died, unless somebody answers. */
    AUTO_FD int other = dial(addr);
    if (other >= 0 || errno == EAGAIN)
        return err_set(err, BRIG_E_CONFLICT, EADDRINUSE, "%s: another spawner keeps sandboxes there", addr->sun_path);
    if (errno != ECONNREFUSED && errno != ENOENT)
        return err_host(err, "%s", addr->sun_path);
    if (unlink(addr->sun_path) < 0 && errno != ENOENT)
        return err_host(err, "remove the old %s", addr->sun_path);
    mode_t old = umask(0177); /* nobody may connect between bind and chmod */
    int r = bind(fd, (const struct sockaddr *)addr, sizeof *addr) < 0 || listen(fd, 4) < 0
                ? err_host(err, "%s", addr->sun_path)
                : 0;
    umask(old);
    return r < 0 ? r : take_fd(&fd);
}

/* It has the message only when it answers: it may be too busy ever to read it. */
static int confirm(const struct sockaddr_un *addr, struct brig_err *err)
{
    struct found found;
    AUTO_FD int conn = dial(addr);
    int r = conn < 0 ? err_host(err, "%s", addr->sun_path) : hear(conn, &found, err);

    if (r == 0)
        fd_close_all(found.fds, WIRE_KEPT_FDS);
    return r;
}

int keep_give(const struct daemon *spawner, const struct places *places, const struct config *config,
              struct brig_err *err)
{
    const struct wire_plain msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KEEP, 0}};
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
    struct sockaddr_un addr;
    int r = address(places, &addr, err);

    if (r == 0)
        r = settings(places, config, &text, err);
    if (r < 0)
        return r;
    AUTO_FD int listener = bind_private(&addr, err);
    if (listener < 0)
        return listener;
    AUTO_FD int file = open(addr.sun_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    AUTO_FD int memfd = gate_memfd("settings", text.data, text.len);
    const int give[WIRE_KEEP_FDS] = {[WIRE_KEEP_END] = spawner->socket,
                                     [WIRE_KEEP_LISTENER] = listener,
                                     [WIRE_KEEP_FILE] = file,
                                     [WIRE_KEEP_TEXT] = memfd};
    r = file < 0 || memfd < 0 ? -EMFILE : fd_send_nowait(spawner->socket, &msg, sizeof msg, give, WIRE_KEEP_FDS);
    r = r < 0 ? err_set(err, BRIG_E_HOST, -r, "hand the socket to the spawner") : confirm(&addr, err);
    if (r < 0) {
        unlink(addr.sun_path);
        kill(spawner->pid, SIGKILL);
    }
    return r;
}

/* ---- the start of the next ----------------------------------------------------------------------------- */

/* NULL: it is ours to go on with. */
static const char *why_not(const struct found *found, const struct buf *now)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    char build[sizeof found->kept.build];

    if (str_format(build, sizeof build, "%s %s", brig_version(), brig_commit()) < 0 ||
        found->kept.head.version != WIRE_VERSION || !str_eq(found->kept.build, build))
        return "the program is another one now";
    if (gate_memfd_read(found->fds[1], TEXT_MAX, &text, &len) < 0 || len != now->len ||
        memcmp(text, now->data, len) != 0)
        return "the state directory, bind_roots or templates are others now";
    return NULL;
}

/* Closed by the spawner: it has let go of its own copies, and could be given them again. */
static int take(int conn, struct brig_err *err)
{
    const struct wire_plain msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_TAKE, 0}};
    int r = fd_send_nowait(conn, &msg, sizeof msg, NULL, 0);
    char nothing;

    if (r == 0 && (!wait_for(conn, ANSWER_MS) || recv(conn, &nothing, 1, MSG_DONTWAIT) > 0))
        r = -EPROTO;
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "take the sandboxes over from their spawner") : 0;
}

static int go_on(struct daemon *spawner, struct found *found, int conn, const char *path, struct brig_err *err)
{
    int r = take(conn, err);

    if (r < 0)
        return r;
    unlink(path);
    spawner->taken = true;
    spawner->pid = (pid_t)found->kept.pid;
    spawner->socket = take_fd(&found->fds[0]);
    spawner->pidfd = take_fd(&found->fds[2]);
    spawner->started_ns = clock_mono_ns();
    return 1;
}

static int discard(struct found *found, const char *path, struct brig_err *err)
{
    if (unlink(path) < 0 && errno != ENOENT)
        return err_host(err, "remove %s", path);
    base_close_fd(&found->fds[0]);
    return wait_for(found->fds[2], END_MS)
               ? 0
               : err_set(err, BRIG_E_HOST, ETIMEDOUT, "brig-spawner (pid %u) does not end", (unsigned)found->kept.pid);
}

/* Nobody else could have put it there: the directory is ours. But it may be somebody's that we have not made. */
static int look(const char *path, struct brig_err *err)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_host(err, "%s", path);
    if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s: not a socket of ours", path);
    return 1;
}

int keep_look(const struct places *places, struct brig_err *err)
{
    struct sockaddr_un addr;
    struct brig_err ignored;
    int r = address(places, &addr, &ignored) < 0 ? 0 : look(addr.sun_path, err);

    return r < 0 ? r : 0;
}

int keep_take(struct daemon *spawner, const struct places *places, const struct config *config,
              void (*say)(const char *format, ...), struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
    struct sockaddr_un addr;
    struct found found;
    struct brig_err ignored;

    if (address(places, &addr, &ignored) < 0)
        return 0; /* then nothing was ever kept there */
    int r = look(addr.sun_path, err);
    if (r == 1 && settings(places, config, &text, err) < 0)
        r = -ENOMEM;
    if (r < 1)
        return r;
    AUTO_FD int conn = dial(&addr);
    if (conn < 0 && errno == ECONNREFUSED) {
        say("the spawner that kept the sandboxes has died, and every sandbox with it");
        return unlink(addr.sun_path) < 0 ? err_host(err, "remove %s", addr.sun_path) : 0;
    }
    r = conn < 0 ? err_host(err, "%s", addr.sun_path) : hear(conn, &found, err);
    if (r < 0)
        return r;
    const char *why = why_not(&found, &text);
    if (why)
        say("the sandboxes that brig-spawner (pid %u) kept are ended: %s", (unsigned)found.kept.pid, why);
    else
        say("going on with the sandboxes that brig-spawner (pid %u) kept", (unsigned)found.kept.pid);
    r = why ? discard(&found, addr.sun_path, err) : go_on(spawner, &found, conn, addr.sun_path, err);
    fd_close_all(found.fds, WIRE_KEPT_FDS);
    return r;
}
