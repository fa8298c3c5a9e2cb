/* SPDX-License-Identifier: Apache-2.0 */
/* resolver_priv.h: what the files of the resolver share. */
#ifndef BRIG_EGRESS_RESOLVER_PRIV_H
#define BRIG_EGRESS_RESOLVER_PRIV_H

#include "base/table.h"
#include "egress/egress.h"

#define RESOLVER_SERVERS 8u
#define RESOLVER_HOSTS_MAX 65536u /* The names of the hosts file that are read; the rest is ignored. */

/* ---- resolver_config.c ---------------------------------------------------------------------------------------- */

struct resolver_servers {
    struct gate_addr at[RESOLVER_SERVERS]; /* Each has a port. */
    size_t n;
    unsigned timeout_s, attempts;
    bool rotate;
};
struct resolver_host {
    const char *name; /* It points into hosts_text. */
    size_t order;     /* Its place in the file. */
    uint8_t ip[16];
};
struct resolver_config {
    struct resolver_servers servers;
    struct resolver_host *hosts; /* Sorted by name, then by order. */
    size_t n_hosts, cap_hosts;
    char *hosts_text;
};
int resolver_config_read(const char *resolv_conf, const char *hosts, struct resolver_config *ret,
                         struct brig_err *err) MUST_CHECK;
void resolver_config_done(struct resolver_config *config);
/* Finds the addresses that hosts gives a name. Returns how many there are. */
size_t resolver_config_find(const struct resolver_config *config, const char *name,
                            struct gate_addr ret[RESOLVER_ADDRESSES]);

/* ---- resolver_query.c: one question, asked until somebody answers -------------------------------------------- */

/*
 * r is 0 with a reply that is NOERROR or NXDOMAIN; otherwise -ETIMEDOUT, -EREMOTEIO (a server's failure) or a local
 * error.
 */
typedef void query_fn(void *ctx, int r, const struct dns_reply *reply);
struct query {
    struct loop *loop;
    const char *name; /* The memory belongs to the owner. */
    uint16_t type, id;
    struct resolver_servers servers;
    size_t first, tried;
    int last_error;
    unsigned strangers; /* The replies to something else that came to this socket. */
    bool tcp, no_edns;
    int fd;
    struct loop_source source;
    struct loop_timer timer;
    struct buf out; /* The bytes that are still to be sent. */
    struct buf in;  /* Only for TCP. */
    query_fn *done;
    void *ctx;
};
/*
 * The query must be all zeroes before. done is called once, never from within this function, and not after
 * query_cancel().
 */
int query_start(struct query *query, struct loop *loop, const struct resolver_servers *servers, size_t first,
                const char *name, uint16_t type, query_fn *done, void *ctx) MUST_CHECK;
void query_cancel(struct query *query); /* It accepts a query that is done, or zeroes. */

/* ---- resolver_cache.c ------------------------------------------------------------------------------------------ */

struct cache_entry {
    struct table_link link;
    struct cache_entry *next, *prev; /* The next one is newer. */
    uint64_t until_ns;
    bool exists; /* For a name without addresses: the name exists. */
    size_t n;    /* 0 if the name has no addresses. */
    struct gate_addr addresses[RESOLVER_ADDRESSES];
    char name[];
};
struct cache;
int cache_create(struct cache **ret) MUST_CHECK;
void cache_destroy(struct cache *cache);
void cache_clear(struct cache *cache);
/* Returns an entry that is still valid, or NULL. */
const struct cache_entry *cache_find(struct cache *cache, const char *name);
/* If memory is short, the entry is not kept. */
void cache_put(struct cache *cache, const char *name, const struct gate_addr *addresses, size_t n, bool exists,
               uint64_t ns);

#endif
