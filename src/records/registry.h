/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h: the tools of an organisation: kind "tool", id "tool-<uuid4>", unique by name. The document has the
 * members of Letta's tool object (source_code, source_type, json_schema, args_json_schema, description, tags,
 * return_char_limit, pip_requirements, npm_requirements, default_requires_approval, enable_parallel_execution,
 * metadata_, project_id, tool_type, created_by_id, last_updated_by_id) and ours in `brig`: {network, secrets, limits,
 * rate_limit, rules, approval, needs_credentials, fallback, command}. Its version rises with every change and is what a
 * receipt names. `registrant` and `guard`, {key_id, role} each, are the service's own: who answers for the source, and
 * who set the policy (tool_rights.c).
 */
#ifndef BRIG_RECORDS_REGISTRY_H
#define BRIG_RECORDS_REGISTRY_H

#include "codec/schema/jsonschema.h"
#include "records/caller.h"
#include "records/objects.h"
#include "records/rules.h"

#define TOOL_NAME_MAX 48u /* code points; [A-Za-z_][A-Za-z0-9_-]* and what json_schema.name says */
#define TOOL_SOURCE_MAX (1u << 20)
#define TOOLS_PER_ORG 10000u
#define TOOL_RETURN_LIMIT 50000u /* default; 1 .. 1000000 */

enum tool_language { TOOL_PYTHON, TOOL_JAVASCRIPT, TOOL_TYPESCRIPT, TOOL_BASH, TOOL_COMMAND, TOOL_LANGUAGE_MAX };
const char *tool_language_name(enum tool_language language);
/* also "node", "js", "ts", "py", "sh"; -EINVAL */
int tool_language_parse(const char *text, enum tool_language *ret) MUST_CHECK;

#define TOOL_REQUIREMENTS_MAX 200u /* of each kind */
#define TOOL_TAGS_MAX 100u
struct requirement { /* pip or npm */
    /* version NULL: any. A requirement that was given as a string ("numpy>=1.2") is in the name as a whole. */
    const char *name, *version;
};

/* Who wrote a part of a tool: a key of the organisation, or the socket's administrator (key_id ""). */
struct tool_hand {
    const char *key_id; /* NULL: nobody knows */
    enum standing as;
};

/* A tool as the executor uses it: from a row, or floating (run from source). Its strings are in the document that it
 * was read from. */
struct tool {
    const char *id, *name, *source, *description;
    size_t source_len;
    uint64_t version; /* 0: floating */
    enum tool_language language;
    const struct json_value *json_schema; /* {name, description, parameters}; NULL: none given and none derived */
    struct schema *schema;                /* of `parameters`, compiled; NULL: arguments are not checked */
    struct requirement *pip, *npm;
    size_t n_pip, n_npm;
    uint64_t return_limit;
    const char *provider;                                /* metadata_.sandbox; NULL: no wish */
    const char *template_name;                           /* metadata_.template; NULL: host */
    const struct json_value *network, *secrets, *limits; /* members of `brig`, as in a sandbox's spec; NULL */
    struct rule *rules;
    size_t n_rules;
    uint64_t rate_max, rate_window_s; /* 0: none */
    bool requires_approval, needs_credentials, no_fallback;
    const struct json_value *command;   /* TOOL_COMMAND: argv; arguments come as JSON on stdin */
    struct tool_hand registrant, guard; /* of a row */
};

#define TOOL_TEMPLATE_MAX 127u

/* Its objects are found by objects_find(), or by the tool's name with objects_by_key(). */
int registry_create(struct store *store, struct objects **ret, struct brig_err *err) MUST_CHECK;
/*
 * Makes the tool of this name, or a new version of it with the same id, as POST and PUT do. tool_parse() checks `doc`.
 * old is the version that the caller was allowed to replace, or NULL; BRIG_E_CONFLICT if the tool has another version
 * by then. For a known id use objects_put() and objects_change(). A name that another tool has
 * is BRIG_E_CONFLICT in each.
 */
int registry_upsert(struct objects *registry, const char *org, const struct object *old, const char *doc, size_t len,
                    objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* object->extra of the registry's objects is a struct tool. */
static inline const struct tool *tool_of(const struct object *object)
{
    return object->extra;
}

/*
 * Reads and checks a JSON document of a row or a request. BRIG_E_INVALID (422) if a member is not what it must be,
 * BRIG_E_USAGE (400) for a bad name or language; the message is one line that begins with the member. Unknown members
 * are ignored, except in `brig`. There must be a name, json_schema.name or `name`; the names of routes (run, count,
 * search, generate-schema, add-base-tools) are refused. The tool points into json, which must live longer.
 */
int tool_parse(const struct json_value *json, struct tool *ret, struct brig_err *err) MUST_CHECK;
void tool_done(struct tool *tool);
/* first 12 hex digits of SHA-256, as Letta computes metadata_.tool_hash */
int tool_hash(const struct tool *tool, char out[13]) MUST_CHECK;

#endif
