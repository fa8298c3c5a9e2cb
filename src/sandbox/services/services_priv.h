/* SPDX-License-Identifier: Apache-2.0 */
/* services_priv.h: what the files about services share. */
#ifndef BRIG_SANDBOX_SERVICES_SERVICES_PRIV_H
#define BRIG_SANDBOX_SERVICES_SERVICES_PRIV_H

#include "sandbox/private.h"
#include "sandbox/processes.h"
#include "sandbox/services/services.h"

#define SERVICES_MARGIN_NS (10 * NS_PER_SEC) /* What brig-init has beyond the time of the services themselves. */

/* A question to brig-init, which belongs to its sandbox. */
struct ask {
    struct sbox *sbox;
    struct ask *next, *prev;
    struct call *call;
    service_done_fn *done; /* NULL: the client has left, or it is a create */
    void *ctx;
    bool create;
    bool check; /* With create: they were up before; are they still? */
    bool control;
    enum svc_unit_op op;
    struct caller caller;
    char name[SVC_UNIT_NAME_MAX + 1]; /* control; create: the one that has failed */
    struct loop_timer late;
    unsigned n;
    struct svc_unit_info infos[SVC_UNITS_MAX]; /* their names are those of `names` */
    char names[SVC_UNITS_MAX][SVC_UNIT_NAME_MAX + 1];
    struct brig_err why;
};

struct service_log {
    struct sbox *sbox;
    struct service_log *next, *prev;
    struct call *call;
    struct service_log_events events;
};

/* sbox_services.c */
struct ask *ask_new(struct sbox *sbox, service_done_fn *done, void *ctx, struct brig_err *err);
void ask_free(struct ask *ask);
void ask_fail(struct ask *ask, const struct brig_err *err); /* It tells whoever asked, and frees it. */
void ask_fail_errno(struct ask *ask, uint32_t errnum);
void ask_arm(struct ask *ask, uint64_t ns);                     /* It has so much time. */
int ask_list(struct ask *ask, struct brig_err *err) MUST_CHECK; /* Asks what they are doing. */
void ask_list_or_fail(struct ask *ask);                         /* The same; whoever asked is told of a failure. */
/* The spec's own list, which was judged when it was asked for. */
int services_defs(const struct sbox *sbox, struct json_doc **ret_doc, struct service_defs *ret,
                  struct brig_err *err) MUST_CHECK;
const struct service_def *service_find_def(const struct service_defs *defs, const char *name);
/* Why it is not up, in one line; "" if there is nothing to say. */
void service_describe(const struct svc_unit_info *info, const struct service_def *def, char *out, size_t size);
int service_log_begin(struct sbox *sbox, const char *name, uint64_t offset, bool follow,
                      const struct service_log_events *events, struct service_log **ret,
                      struct brig_err *err) MUST_CHECK;

/* services_start.c */
/* Starts those of the spec; create_services_done() follows unless it fails. */
int services_begin(struct sbox *sbox, struct brig_err *err) MUST_CHECK;
/* The same for those that are there already: are all of them ready? */
int services_check(struct sbox *sbox, struct brig_err *err) MUST_CHECK;
void services_gone(struct sbox *sbox); /* The box has ended: everybody who waits is told. */
void services_free(struct sbox *sbox); /* nobody is told */
/* sbox_create.c: they are up, or why not. */
void create_services_done(struct sbox *sbox, const struct brig_err *err);
/* services_start.c: one has failed, and what they are doing is known now. */
void services_start_failed(struct ask *ask);
void services_checked(struct ask *ask); /* It was a check. */

#endif
