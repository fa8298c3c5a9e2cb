/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot_spec.h: the JSON beside PREPARE:
 *
 *   {"policy": {...gate/policy.h...}, "name": "what it is called", "org": "whose sandbox it is",
 *    "limits": {...overrides of the policy's...},
 *    "secrets": [{"name": "GITHUB", "placeholder": "brig-secret-<32 hex>", "key_id": "k1", "nonce": b64,
 *                 "sealed": b64, "context": "org\nname", "broker": {...broker_rule below...}}]}
 *
 * Secrets arrive sealed (crypto/keyring.h). Only brig-egress opens them, when a request needs one, with exactly this
 * context.
 */
#ifndef BRIG_GATE_SLOT_SPEC_H
#define BRIG_GATE_SLOT_SPEC_H

#include "gate/policy.h"

#define SLOT_SPEC_MAX (1u << 20)
#define SLOT_SECRETS_MAX 64u
#define PLACEHOLDER_PREFIX "brig-secret-"
#define PLACEHOLDER_LEN (sizeof PLACEHOLDER_PREFIX - 1 + 32)
#define SECRET_NAME_MAX 64u
#define SECRET_VALUE_MAX (64u << 10)

/*
 * A broker rule says where a secret may be put. It is one of:
 *
 *   {"hosts": ["api.example.com", "*.example.org:8443"], "header": "Authorization", "format": "Bearer %s"}
 *   {"hosts": [..], "query": "api_key"}
 *   {"hosts": [..], "basic": "user" | "password"}
 *   {"hosts": [..], "kind": "aws-sigv4"}
 *
 * With aws-sigv4 the value is "ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]", and the request is signed anew. There
 * is at least one host: a name as in a policy, with a port where that is not 443. The format has one %s and no other %;
 * it is "%s" when it is missing.
 */
#define BROKER_HOSTS_MAX 16u
enum broker_where {
    BROKER_HEADER,
    BROKER_QUERY,
    BROKER_BASIC_USER,
    BROKER_BASIC_PASSWORD,
    BROKER_SIGV4,
    BROKER_WHERE_MAX
};
struct broker_rule {
    enum broker_where where;
    char field[128];  /* The name of the header or query parameter. */
    char format[128]; /* It has one %s. */
    size_t n_hosts;
    struct {
        char name[DNS_NAME_MAX];
        bool wildcard; /* name is what follows "*.". */
        uint16_t port;
    } hosts[BROKER_HOSTS_MAX];
};
/* broker_rule.c: brigd uses it to check rules before they are stored, brig-egress to apply them. */
int broker_rule_parse(const struct json_value *json, struct broker_rule *ret, struct brig_err *err) MUST_CHECK;
struct json;
/* Writes it as a value inside a larger document. */
void broker_rule_put(const struct broker_rule *rule, struct json *json);
int broker_rule_put_json(const struct broker_rule *rule, struct buf *out) MUST_CHECK;
bool broker_rule_covers(const struct broker_rule *rule, const char *name, uint16_t port);
bool secret_name_ok(const char *name); /* [A-Za-z_][A-Za-z0-9_.-]{0,62} */

#endif
