/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hand.c: gives brigd the files of the administrator that it cannot, or need not, open itself. The TLS key belongs to
 * root, as every tool makes it: we read it, and brigd gets a copy in memory. A child that takes brigd's user opens the
 * log file, so brigd's rights count, but its Landlock rules do not hold there: a file that was renamed and made again
 * can be opened again. If a file cannot be opened, brigd gets the reason as text, so that a start or a reload is
 * refused in one place.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "supervisor/supervisor.h"

__attribute__((noreturn)) static void try_in_child(const struct places *places, place_try_fn *try, void *ctx, int sock)
{
    int r = daemon_become(places->uid, places->gid);
    int fd = -1;

    if (r == 0)
        r = try(ctx, &fd);
    (void)!fd_send_nowait(sock, &r, sizeof r, &fd, fd >= 0 ? 1 : 0);
    _exit(0);
}

int places_try(const struct places *places, place_try_fn *try, void *ctx, int *ret_fd)
{
    int pair[2], answer = -EIO;
    size_t n_fds = 0;

    if (places->uid == geteuid())
        return try(ctx, ret_fd);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    AUTO_FD int ours = pair[0];
    AUTO_FD int theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        try_in_child(places, try, ctx, theirs);
    base_close_fd(&theirs);
    (void)RETRY(waitpid(pid, NULL, 0));
    ssize_t n = fd_recv_message(ours, &answer, sizeof answer, ret_fd, 1, &n_fds);
    return n == sizeof answer ? answer : -EIO;
}

static int open_log(void *ctx, int *ret_fd)
{
    *ret_fd = open(ctx, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0640);
    return *ret_fd < 0 ? -errno : 0;
}

static int give_log(int sock, const struct places *places, const char *path, struct brig_err *err)
{
    AUTO_FD int fd = -1;
    int r = path[0] ? places_try(places, open_log, (void *)(uintptr_t)path, &fd) : 0;

    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "log_file %s, opened by user %u", path, (unsigned)places->uid);
    if (path[0])
        r = sup_send(sock, SUP_FD, "log", fd);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "hand the log file to brigd") : 0;
}

static int give_pem(int sock, const char *name, const char *what, const char *path, struct brig_err *err)
{
    AUTO_FREE char *text = mem_alloc(SUP_PEM_MAX);

    if (!text)
        return err_nomem(err);
    ssize_t len = fd_read_file(AT_FDCWD, path, text, SUP_PEM_MAX);
    if (len < 0)
        return err_set(err, BRIG_E_HOST, (int)-len, "%s %s", what, path);
    AUTO_FD int fd = gate_memfd(name, text, (size_t)len);
    explicit_bzero(text, (size_t)len);
    int r = fd < 0 ? fd : sup_send(sock, SUP_FD, name, fd);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "hand %s to brigd", path) : 0;
}

int sup_give_files(int sock, const struct places *places, const struct config *config)
{
    struct brig_err err;
    int r = give_log(sock, places, config->log_file, &err);

    if (r == 0 && config->tls_cert[0])
        r = give_pem(sock, "tls-cert", "server.tls_cert", config->tls_cert, &err);
    if (r == 0 && config->tls_key[0])
        r = give_pem(sock, "tls-key", "server.tls_key", config->tls_key, &err);
    return r == 0 ? 0 : sup_send_text(sock, SUP_FD, "problem", err.message);
}

int sup_reopen_log(int sock, const struct places *places, const char *path, struct brig_err *err)
{
    int r = give_log(sock, places, path, err);

    if (r == 0 && (r = sup_send(sock, SUP_REOPEN, NULL, -1)) < 0)
        r = err_set(err, BRIG_E_HOST, -r, "brigd does not take the log file");
    return r;
}
