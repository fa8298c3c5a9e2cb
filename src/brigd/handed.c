/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handed.c: takes the files that the supervisor gives (handed.h). The TLS key is in our memory only from its message
 * until OpenSSL has it.
 */
#include "brigd/handed.h"

#include <stdio.h>
#include <string.h>

#include "api/log.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "gate/gate_wire.h"
#include "http/server.h"
#include "http/tls.h"
#include "supervisor/supervisor.h"

static void wipe(char **text, size_t *len)
{
    if (*text)
        explicit_bzero(*text, *len);
    mem_free(take_ptr(text));
    *len = 0;
}

static int take_text(char **text, size_t *len, int fd)
{
    wipe(text, len);
    int r = gate_memfd_read(fd, SUP_PEM_MAX, text, len);
    return r < 0 ? r : 1;
}

int handed_take(struct handed *handed, const char *name, int *fd)
{
    if (str_eq(name, "log")) {
        base_close_fd(&handed->log);
        handed->log = take_fd(fd);
        return 1;
    }
    if (str_eq(name, "tls-cert"))
        return take_text(&handed->cert, &handed->cert_len, *fd);
    if (str_eq(name, "tls-key"))
        return take_text(&handed->key, &handed->key_len, *fd);
    if (str_eq(name, "problem")) {
        AUTO_FREE char *text = NULL;
        size_t len = 0;
        int r = gate_memfd_read(*fd, sizeof handed->problem, &text, &len);
        if (r == 0)
            snprintf(handed->problem, sizeof handed->problem, "%.*s", (int)len, text);
        return r < 0 ? r : 1;
    }
    return 0;
}

int handed_check(const struct handed *handed, struct brig_err *err)
{
    return handed->problem[0] ? err_set(err, BRIG_E_HOST, 0, "%s", handed->problem) : 0;
}

void handed_log(struct handed *handed, const struct config *config)
{
    log_use(config, take_fd(&handed->log));
}

int handed_tls(const struct handed *handed, const struct config *config, struct server *server, struct brig_err *err)
{
    if (!config->tls_cert[0])
        return 0;
    if (!handed->cert || !handed->key)
        return err_set(err, BRIG_E_HOST, EPROTO, "the supervisor gave no server.tls_cert and server.tls_key");
    const struct tls_pem pem = {.cert = handed->cert,
                                .cert_len = handed->cert_len,
                                .cert_name = config->tls_cert,
                                .key = handed->key,
                                .key_len = handed->key_len,
                                .key_name = config->tls_key};
    return server_set_tls(server, &pem, err);
}

void handed_done(struct handed *handed)
{
    base_close_fd(&handed->log);
    wipe(&handed->cert, &handed->cert_len);
    wipe(&handed->key, &handed->key_len);
    handed->problem[0] = '\0';
}
