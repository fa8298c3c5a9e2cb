/* SPDX-License-Identifier: Apache-2.0 */
/* approvals.h: runs that wait for an approval. */
#ifndef BRIG_RUN_APPROVALS_H
#define BRIG_RUN_APPROVALS_H

#include "loop/loop.h"

/*
 * Runs that wait for an approval. The ids are those of the runs. Their number is bounded (BRIG_E_LIMIT), and so is
 * their time (then `decided` with expired).
 */
struct approvals;
struct approval {
    char run_id[48], org_id[64], tool[64], agent_id[64], actor[80]; /* actor is the caller that asked. */
    int64_t asked_at_ns, expires_at_ns;
    const char *arguments; /* All of the JSON, for the person who decides. */
};
enum verdict { VERDICT_APPROVED, VERDICT_DENIED, VERDICT_EXPIRED, VERDICT_MAX };
typedef void approval_fn(void *ctx, enum verdict verdict, const char *by, const char *reason);
int approvals_create(struct loop *loop, struct approvals **ret, struct brig_err *err) MUST_CHECK;
void approvals_destroy(struct approvals *approvals); /* Nobody is called. */
int approvals_ask(struct approvals *approvals, const struct approval *ask, uint64_t wait_ms, approval_fn *decided,
                  void *ctx, struct brig_err *err) MUST_CHECK;
void approvals_withdraw(struct approvals *approvals, const char *run_id); /* The run is gone; decided is not called. */
/*
 * BRIG_E_NOT_FOUND: no such run waits in this organisation ("" for any). decided is called from the loop, not from
 * within.
 */
int approvals_decide(struct approvals *approvals, const char *org, const char *run_id, bool yes, const char *by,
                     const char *reason, struct brig_err *err) MUST_CHECK;
void approvals_each(const struct approvals *approvals, const char *org,
                    bool (*each)(void *ctx, const struct approval *approval), void *ctx);

#endif
