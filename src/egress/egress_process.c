/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_process.c: what all parts of brig-egress share: the loop, the resolver, the texts from the host. It also frees
 * what has ended.
 */
#include <fcntl.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/keyring.h"
#include "egress/egress_priv.h"

#define FILE_MAX (8u << 20) /* a bundle of authorities is the largest */

struct loop *egress_loop(const struct egress *egress)
{
    return egress->loop;
}

const char *egress_ca(const struct egress *egress, size_t *ret_len)
{
    *ret_len = egress->ca ? egress->ca_len : 0;
    return egress->ca ? egress->ca : "";
}

/* Without one everything is copied. */
static void make_pipe(struct egress *egress)
{
    int size = -1;

    if (pipe2(egress->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    size = fcntl(egress->pipe[1], F_SETPIPE_SZ, EGRESS_PIPE);
    if (size < 0)
        size = fcntl(egress->pipe[1], F_GETPIPE_SZ);
    egress->pipe_size = size > 0 ? (size_t)size : 0;
    if (egress->pipe_size >= EGRESS_CHUNK)
        return;
    base_close_fd(&egress->pipe[0]);
    base_close_fd(&egress->pipe[1]);
}

int egress_init(struct egress *egress, struct brig_err *err)
{
    memset(egress, 0, sizeof *egress);
    egress->parent = egress->control = egress->routes = egress->pipe[0] = egress->pipe[1] = -1;
    int r = loop_create(&egress->loop, err);
    if (r == 0)
        r = resolver_create(egress->loop, &egress->resolver, err);
    if (r == 0)
        r = egress->routes = own_open(err);
    if (r < 0)
        return r;
    share_init(egress);
    make_pipe(egress);
    egress->chunk = mem_alloc(EGRESS_CHUNK);
    return egress->chunk ? 0 : err_nomem(err);
}

void egress_reap(struct egress *egress)
{
    while (egress->dead) {
        struct conn *conn = egress->dead;
        egress->dead = conn->next;
        conn_free(conn);
    }
    while (egress->dead_slots) {
        struct slot *slot = egress->dead_slots;
        egress->dead_slots = slot->next;
        slot_free(slot);
    }
}

void egress_done(struct egress *egress)
{
    egress->over = true;
    for (size_t i = 0; i < EGRESS_BUCKETS; i++) {
        while (egress->slots[i])
            slot_forget(egress->slots[i]);
    }
    egress_reap(egress);
    control_close(egress);
    outbox_clear(egress);
    if (egress->resolver)
        resolver_destroy(egress->resolver);
    keyring_destroy(egress->keys);
    mem_free(egress->ca);
    mem_free(egress->resolv_conf);
    mem_free(egress->hosts);
    base_close_fd(&egress->routes);
    base_close_fd(&egress->pipe[0]);
    base_close_fd(&egress->pipe[1]);
    mem_free(egress->chunk);
    loop_destroy(egress->loop);
}

static int take_keys(struct egress *egress, const char *text, size_t len, struct brig_err *err)
{
    struct keyring *keys = NULL;
    int r = keyring_parse(text, len, &keys, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < EGRESS_BUCKETS; i++) {
        for (struct slot *slot = egress->slots[i]; slot; slot = slot->next) {
            if (slot->broker)
                broker_use_keys(slot->broker, keys);
        }
    }
    keyring_destroy(egress->keys);
    egress->keys = keys;
    return 0;
}

static int take_resolver_text(struct egress *egress, char **place, char *text, struct brig_err *err)
{
    mem_free(*place);
    *place = text;
    return resolver_configure(egress->resolver, egress->resolv_conf ? egress->resolv_conf : "",
                              egress->hosts ? egress->hosts : "", err);
}

int egress_file(struct egress *egress, const char *name, int fd, struct brig_err *err)
{
    char *text = NULL;
    size_t len = 0;
    int r = gate_memfd_read(fd, FILE_MAX, &text, &len);

    if (r < 0)
        return err_set(err, BRIG_E_USAGE, -r, "%s", name);
    if (str_eq(name, "resolv.conf"))
        return take_resolver_text(egress, &egress->resolv_conf, text, err);
    if (str_eq(name, "hosts"))
        return take_resolver_text(egress, &egress->hosts, text, err);
    if (str_eq(name, "ca")) {
        mem_free(egress->ca);
        egress->ca = text;
        egress->ca_len = len;
        return 0;
    }
    r = str_eq(name, "keys") ? take_keys(egress, text, len, err) : err_usage(err, "a file of an unknown name");
    explicit_bzero(text, len);
    mem_free(text);
    return r;
}
