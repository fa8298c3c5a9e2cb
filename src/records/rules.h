/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h: what an administrator's lists and rules say about a tool: whether it may run at all, and with which
 * arguments.
 *
 * Lists of an organisation or a key (their documents' member `tools`): {"allow": [names or patterns with *], "deny":
 * [...], "default": "allow"|"deny"}. A name on `deny` is denied, else one on `allow` is allowed, else the default
 * decides (deny when `allow` is given, else `[tools] default`). Both the organisation's and the key's must allow; a key
 * without `tools` says nothing, an organisation without it leaves it to the setting. A `tools` of another shape denies.
 * Refusal: BRIG_E_FORBIDDEN "Tool '<n>' not allowed".
 */
#ifndef BRIG_RECORDS_RULES_H
#define BRIG_RECORDS_RULES_H

#include "codec/schema/jsonschema.h"

/* The lists know source that a request brings by this name, whatever name it gives itself. No tool can have it. */
#define TOOL_UNREGISTERED "run"
int tool_allowed(const struct json_value *org_doc, const struct json_value *key_doc, bool default_deny,
                 const char *name, struct brig_err *err) MUST_CHECK;

/* {field, allow|deny: regex, within: path, format: name}. field is "to", "to[]" (each item) or "a.b". An argument that
 * is absent or null passes; one that is not a string fails. An object with several rules is read as several. */
enum rule_kind { RULE_ALLOW, RULE_DENY, RULE_WITHIN, RULE_FORMAT, RULE_KIND_MAX };
struct rule {
    enum rule_kind kind;
    const char *field, *text; /* into the JSON it was read from */
    struct pattern *pattern;  /* allow, deny */
};
int rules_parse(const struct json_value *json, struct rule **ret, size_t *ret_n, struct brig_err *err) MUST_CHECK;
void rules_free(struct rule *rules, size_t n);
/* BRIG_E_INVALID (422): "<field>: <rule>". within: lexically cleaned, absolute or relative to /workspace, never out of
 * it by `..`. */
int rules_check(const struct rule *rules, size_t n, const struct json_value *args, struct brig_err *err) MUST_CHECK;

#endif
