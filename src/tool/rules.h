/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h: what is asked before a tool runs: is it allowed at all, are its arguments, is it too often, does somebody have to say yes.
 *
 * Lists of an organisation or a key (their documents' member `tools`): {"allow": [names or patterns with *], "deny": [...], "default": "allow"|"deny"}. A name on
 * `deny` is denied, else one on `allow` is allowed, else the default decides (deny when `allow` is given, else `[tools] default`). Both the
 * organisation's and the key's must allow; a key without `tools` says nothing, an organisation without it leaves it to the setting. A `tools` of another shape
 * denies. Refusal: BRIG_E_FORBIDDEN "Tool '<n>' not allowed".
 */
#ifndef BRIG_TOOL_RULES_H
#define BRIG_TOOL_RULES_H

#include "codec/jsonschema.h"
#include "loop/loop.h"

/* What source is called that is brought along, whatever it calls itself: no tool can have this name. */
#define TOOL_UNREGISTERED "run"
int tool_allowed(const struct json_value *org_doc, const struct json_value *key_doc, bool default_deny, const char *name, struct brig_err *err) MUST_CHECK;

/* {field, allow|deny: regex, within: path, format: name}: field is "to", "to[]" (each item) or "a.b"; an argument that is not there, or null, passes; one that is no string fails. An object with several of them is several rules. */
enum rule_kind { RULE_ALLOW, RULE_DENY, RULE_WITHIN, RULE_FORMAT, RULE_KIND_MAX };
struct rule {
    enum rule_kind kind;
    const char *field, *text; /* into the JSON it was read from */
    struct pattern *pattern;  /* allow, deny */
};
int rules_parse(const struct json_value *json, struct rule **ret, size_t *ret_n, struct brig_err *err) MUST_CHECK;
void rules_free(struct rule *rules, size_t n);
/* BRIG_E_INVALID (422): "<field>: <rule>". within: lexically cleaned, absolute or relative to /workspace, never out of it by `..`. */
int rules_check(const struct rule *rules, size_t n, const struct json_value *args, struct brig_err *err) MUST_CHECK;

/*
 * Sliding windows, one per tool and organisation: exact, bounded memory, forgotten when empty. Agents and keys have
 * none of their own: whoever can make another agent would have another window.
 */
struct rates;
int rates_create(struct rates **ret, struct brig_err *err) MUST_CHECK;
void rates_destroy(struct rates *rates);
/* Counts the call. BRIG_E_LIMIT "Rate limit exceeded for <n>"; *ret_retry_s: Retry-After, at least 1. */
int rates_take(struct rates *rates, const char *org, const char *tool, uint64_t max, uint64_t window_s, uint64_t now_ns,
               uint64_t *ret_retry_s, struct brig_err *err) MUST_CHECK;

/* Runs that wait for a yes. Ids are the runs'. Bounded in number (BRIG_E_LIMIT) and in time (then `decided` with expired). */
struct approvals;
struct approval {
    char run_id[48], org_id[64], tool[64], agent_id[64], actor[80]; /* actor: who asked */
    int64_t asked_at_ns, expires_at_ns;
    const char *arguments; /* JSON, cut at 4 KiB, for the one who decides */
};
enum verdict { VERDICT_APPROVED, VERDICT_DENIED, VERDICT_EXPIRED, VERDICT_MAX };
typedef void approval_fn(void *ctx, enum verdict verdict, const char *by, const char *reason);
int approvals_create(struct loop *loop, struct approvals **ret, struct brig_err *err) MUST_CHECK;
void approvals_destroy(struct approvals *approvals); /* nobody is told */
int approvals_ask(struct approvals *approvals, const struct approval *ask, uint64_t wait_ms, approval_fn *decided, void *ctx, struct brig_err *err) MUST_CHECK;
void approvals_withdraw(struct approvals *approvals, const char *run_id); /* the run is gone; decided is not called */
/* BRIG_E_NOT_FOUND: no such run waits in this organisation ("" any). decided is called from the loop, not from within. */
int approvals_decide(struct approvals *approvals, const char *org, const char *run_id, bool yes, const char *by, const char *reason, struct brig_err *err) MUST_CHECK;
void approvals_each(const struct approvals *approvals, const char *org, bool (*each)(void *ctx, const struct approval *approval), void *ctx);

#endif
