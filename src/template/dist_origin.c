/* SPDX-License-Identifier: Apache-2.0 */
/* dist_origin.c: where a call may get something from: the mirrors of the reference's host and the host itself, each
 * with its login, which is copied to wiping memory. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "crypto/keyring.h"
#include "template/distribution_priv.h"

void dist_origin_free(struct dist_origin *origin)
{
    if (!origin)
        return;
    for (size_t i = 0; i < origin->n_servers; i++)
        crypto_secret_free(origin->servers[i].login.memory, origin->servers[i].login.size);
    mem_free(origin->servers);
    mem_free(origin);
}

/* All three texts in one piece, each with its NUL. */
static int copy_login(struct dist_server *server, const struct dist_login *login, struct brig_err *err)
{
    const char *texts[] = {login->user, login->password, login->identity_token};
    const char **to[] = {&server->login.user, &server->login.password, &server->login.identity_token};
    size_t size = 0, at = 0;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        size += (texts[i] ? strlen(texts[i]) : 0) + 1;
    if (login->user && strchr(login->user, ':'))
        return err_usage(err, "login at %.100s: a user has no colon", server->host);
    server->login.memory = crypto_secret_alloc(size);
    if (!server->login.memory)
        return err_nomem(err);
    server->login.size = size;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        size_t len = texts[i] ? strlen(texts[i]) : 0;
        if (len > 0)
            memcpy(server->login.memory + at, texts[i], len);
        *to[i] = server->login.memory + at;
        at += len + 1;
    }
    return 0;
}

/* host is for people and logins, address what is connected to; url NULL: it follows from the address. */
static int add_server(struct dist_origin *origin, const struct dist_ask *ask, const char *host, const char *address,
                      const char *url, bool may_private, struct brig_err *err)
{
    struct dist_server *server = &origin->servers[origin->n_servers++];
    struct dist_login login = {0};

    server->may_private = may_private;
    if (str_copy(server->host, sizeof server->host, host) < 0 ||
        str_copy(server->address, sizeof server->address, address) < 0 ||
        (url && str_copy(server->url, sizeof server->url, url) < 0))
        return err_usage(err, "%.100s...: the address is too long", url ? url : host);
    return ask->login && ask->login(ask->login_ctx, server->host, &login) ? copy_login(server, &login, err) : 0;
}

int dist_origin_make(const struct dist *dist, const struct dist_ask *ask, const struct image_ref *ref,
                     struct dist_origin **ret, struct brig_err *err)
{
    struct dist_origin *origin = mem_zalloc(sizeof *origin);
    int r = 0;

    if (origin)
        origin->servers = mem_zalloc((dist->n_mirrors + 1) * sizeof *origin->servers);
    if (!origin || !origin->servers) {
        dist_origin_free(origin);
        return err_nomem(err);
    }
    origin->ref = *ref;
    for (size_t i = 0; r == 0 && i < dist->n_mirrors; i++) {
        char address[IMAGE_HOST];
        if (strcasecmp(dist->mirrors[i].host, ref->host) == 0 &&
            dist_url_address(dist->mirrors[i].url, address, sizeof address) == 0)
            r = add_server(origin, ask, address, address, dist->mirrors[i].url, true, err);
    }
    if (r == 0)
        r = add_server(origin, ask, ref->host, image_ref_server(ref), NULL,
                       ask->reach_private || dist_is_insecure(dist, image_ref_server(ref)), err);
    if (r < 0)
        dist_origin_free(origin);
    else
        *ret = origin;
    return r;
}

static bool same_login(const struct dist_secret *a, const struct dist_secret *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->memory, b->memory, a->size) == 0);
}

/* Would a fetch from b end as one from a did? */
bool dist_origin_equal(const struct dist_origin *a, const struct dist_origin *b)
{
    bool same = str_eq(a->ref.host, b->ref.host) && str_eq(a->ref.repository, b->ref.repository) &&
                a->n_servers == b->n_servers;

    for (size_t i = 0; same && i < a->n_servers; i++)
        same = a->servers[i].may_private == b->servers[i].may_private &&
               same_login(&a->servers[i].login, &b->servers[i].login);
    return same;
}
