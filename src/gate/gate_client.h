/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_client.h: the controller's side of brig-egress, for brigd and for an engine without a daemon. It works on the
 * loop and never blocks (libc only). Every request is called back exactly once, unless the client is destroyed first;
 * when the socket dies, it is called back with BRIG_E_BUSY. After gate_client_connect() with a new socket (brig-egress
 * was restarted, or this process was) on_sync is called: PREPARE what should be there, then call gate_client_synced().
 */
#ifndef BRIG_GATE_GATE_CLIENT_H
#define BRIG_GATE_GATE_CLIENT_H

#include "gate/gate_wire.h"
#include "loop/loop.h"

struct gate_client;

struct gate_client_events {
    void (*event)(void *ctx, const struct gate_event *event);
    void (*on_sync)(void *ctx);
    /*
     * Is the owner unable to take an event now? Then nothing is read for a moment, and brig-egress waits. May be NULL.
     */
    bool (*busy)(void *ctx);
    void (*lost)(void *ctx); /* The socket closed. A new one comes from the supervisor, or never. */
    void *ctx;
};

int gate_client_create(struct loop *loop, const struct gate_client_events *events, struct gate_client **ret,
                       struct brig_err *err) MUST_CHECK;
void gate_client_destroy(struct gate_client *client);
/* The client owns sock from now on. */
int gate_client_connect(struct gate_client *client, int sock, struct brig_err *err) MUST_CHECK;
bool gate_client_connected(const struct gate_client *client);
int gate_client_synced(struct gate_client *client, struct brig_err *err) MUST_CHECK;

/* ca is PEM text or NULL, valid during the call. If prepared is NULL, err says why. */
typedef void gate_prepared_fn(void *ctx, const struct gate_prepared *prepared, const char *ca,
                              const struct brig_err *err);
typedef void gate_done_fn(void *ctx, const struct brig_err *err); /* err is NULL if it is done. */
typedef void gate_counts_fn(void *ctx, const struct gate_counts *counts, const struct brig_err *err);

/* spec is the JSON of slot_spec.h; it is copied. */
int gate_client_prepare(struct gate_client *client, uint64_t slot, uint64_t version, uint32_t flags, const char *spec,
                        size_t spec_len, gate_prepared_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* The caller still owns the descriptors. */
int gate_client_listen(struct gate_client *client, uint64_t slot, const char *sandbox_id,
                       const struct gate_listener *listeners, const int *fds, size_t n, gate_done_fn *done, void *ctx,
                       struct brig_err *err) MUST_CHECK;
int gate_client_count(struct gate_client *client, uint64_t slot, gate_counts_fn *done, void *ctx,
                      struct brig_err *err) MUST_CHECK;
int gate_client_forget(struct gate_client *client, uint64_t slot, gate_counts_fn *done, void *ctx,
                       struct brig_err *err) MUST_CHECK;
void gate_client_cancel(struct gate_client *client, void *ctx); /* Callbacks with this ctx are not called any more. */

/*
 * host_files.c: sends the texts that brig-egress needs from the host to its descriptor 3, as sealed memfds. They are
 * read again when they have changed (mtime, size, inode). resolvers is [gate] resolvers of the configuration and
 * replaces resolv.conf; it may be "". ca_path is "" for the usual places.
 */
struct gate_host_files {
    struct {
        int64_t mtime_ns;
        uint64_t size, inode;
    } seen[3];
};
int gate_host_files_send(struct gate_host_files *files, int sock, const char *resolvers, const char *ca_path,
                         struct brig_err *err) MUST_CHECK;

#endif
