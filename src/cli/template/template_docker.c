/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_docker.c: `brig template login --docker-config FILE`: the logins that Docker has stored, sent to the daemon,
 * which seals them as any other.
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/template/template.h"
#include "codec/docker_login.h"

struct sending {
    const char *only; /* one host; NULL: all of them */
    bool quiet;
    unsigned sent;
};

static int send_one(void *ctx, const struct docker_login *login, struct brig_err *err)
{
    struct sending *sending = ctx;

    if (sending->only && !str_eq(docker_login_host(sending->only), login->host))
        return 0;
    if (template_send_login(login->host, login->user, login->password, strlen(login->password), sending->quiet) != 0)
        return err_set(err, BRIG_E_NONE, 0, "%s", ""); /* why was said */
    sending->sent++;
    return 0;
}

static int read_config(const char *path, struct buf *out, struct brig_err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    if (fd < 0)
        return err_host(err, "%s", path);
    while (n > 0) {
        if (out->len > DOCKER_CONFIG_BYTES)
            return err_usage(err, "%s: has more than %u bytes", path, DOCKER_CONFIG_BYTES);
        if (buf_reserve(out, 65536) < 0)
            return err_nomem(err);
        n = read(fd, out->data + out->len, 65536);
        if (n < 0)
            return err_host(err, "%s", path);
        buf_commit(out, (size_t)n);
    }
    return 0;
}

int template_login_docker(const char *path, const char *host, bool quiet)
{
    AUTO_BUF struct buf text = BUF_INIT(DOCKER_CONFIG_BYTES + 2 * 65536);
    struct sending sending = {.only = host, .quiet = quiet};
    struct brig_err err = {0};
    int r = read_config(path, &text, &err);

    if (r == 0)
        r = docker_logins_read(text.data ? text.data : "", text.len, send_one, &sending, &err);
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (r < 0)
        return err.message[0] ? cli_error("%s", err.message) : CLI_FAILED;
    if (sending.sent == 0)
        return cli_error("%s: has no login%s%s", path, host ? " for " : "", host ? host : "");
    return 0;
}
