/* SPDX-License-Identifier: Apache-2.0 */
/*
 * services.h: the services of a sandbox: programs that brig-init starts with it, in order, and keeps running
 * (guest/init/units.c, docs/SERVICES.md). brigd keeps their definitions in the spec and asks brig-init for everything
 * else, so that a brigd that was away finds them as they are. What brig-init answers is untrusted.
 */
#ifndef BRIG_SANDBOX_SERVICES_H
#define BRIG_SANDBOX_SERVICES_H

#include "codec/json/json_read.h"
#include "codec/wire/guest_svc.h"
#include "sandbox/manager.h"

/* ---- definitions (spec_services.c) ----------------------------------------------------------------------- */

/* One service, as JSON says it. The texts are those of the document. */
struct service_def {
    const struct json_value *json;
    const char *name;
    enum svc_restart restart;
    enum svc_ready ready;
    uint16_t port;
    const char *path;                 /* of a socket or a file */
    const struct json_value *command; /* an array */
    const struct json_value *after;   /* an array of names, or NULL */
    uint32_t ready_ms, stop_ms;
    bool off; /* It only says that the template's service of this name is left out. */
};

struct service_defs {
    unsigned n;
    struct service_def list[SVC_UNITS_MAX]; /* each after those that it comes after */
};

/*
 * Reads and judges a list, and puts it into the order in which it starts. below is a list of which a service is left
 * out if the first has one of its name (a template's), also one that is off; it may be NULL. *ret has none that is off.
 * stored: it was taken once, so bounds that are younger do not end it. BRIG_E_USAGE, in one line that names the service
 * and the rule.
 */
int service_defs_read(const struct json_value *list, const struct json_value *below, bool stored,
                      struct service_defs *ret, struct brig_err *err) MUST_CHECK;
/* Writes the list as JSON; values: false leaves environments out. */
void service_defs_put(const struct service_defs *defs, bool values, struct json *json);
const char *service_restart_name(enum svc_restart restart);

/* ---- what they are doing (sbox_services.c). Each needs a running sandbox. -------------------------------- */

/* done gets JSON, or why not, once. */
typedef void service_done_fn(void *ctx, const char *json, size_t len, const struct brig_err *err);
int services_list(struct sbox *sbox, service_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/*
 * Starts, stops or restarts one, and answers with it when it is up or has ended. BRIG_E_NOT_FOUND; BRIG_E_CONFLICT
 * while another such request is under way, and if it does not come up.
 */
int service_control(struct sbox *sbox, const struct caller *caller, const char *name, enum svc_unit_op op,
                    service_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
void services_drop(struct sbox *sbox, const void *ctx); /* The client has left: done is not called. */

/* Output of a service. After end() it is gone: no service_log_close() any more. */
struct service_log;
struct service_log_events {
    void (*begin)(void *ctx, uint64_t first);
    void (*data)(void *ctx, const uint8_t *data, size_t len); /* Give the bytes back with service_log_consumed(). */
    void (*end)(void *ctx, const struct brig_err *err);
    void *ctx;
};
int service_log_open(struct sbox *sbox, const char *name, uint64_t offset, bool follow,
                     const struct service_log_events *events, struct service_log **ret,
                     struct brig_err *err) MUST_CHECK;
void service_log_consumed(struct service_log *log, size_t len);
void service_log_close(struct service_log *log);

/*
 * Returns the service because of which a create has failed, and the last that it said; NULL if something else was the
 * reason. It is valid while the create's done is called.
 */
const char *sbox_failed_service(const struct sbox *sbox, const char **ret_output, size_t *ret_len);

#endif
