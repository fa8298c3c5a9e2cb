/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema.h: JSON Schema 2020-12 and draft 7, compiled once and applied many times, for the arguments of tools. The
 * schema comes from a tenant and the instance from a model, so both are hostile. Depth, size, work (a budget of steps
 * per validation) and regular expressions (pcre2 with match and depth limits) are bounded, and nothing is ever fetched.
 * A `$schema` other than these two is refused; without one it is 2020-12. `$ref` within the document, `$id`, `$anchor`
 * and `$dynamicRef` work; a reference that leads out of the document is refused when the schema is compiled. `format`
 * asserts if the caller asks for it.
 */
#ifndef BRIG_CODEC_SCHEMA_JSONSCHEMA_H
#define BRIG_CODEC_SCHEMA_JSONSCHEMA_H

#include "codec/json/json_read.h"

struct schema;

/*
 * `format` asserts: date-time, date, time, duration, email, idn-email, hostname, idn-hostname, ipv4, ipv6, uri,
 * uri-reference, iri, iri-reference, uri-template, uuid, json-pointer, relative-json-pointer, regex. Any other name
 * asserts nothing.
 */
#define SCHEMA_FORMATS (1u << 0)

/*
 * Copies what it needs. The text that json was read from must live until this returns (json_read.h: raw). The error is
 * BRIG_E_USAGE with one line: the place in the schema (a JSON pointer) and the rule.
 */
int schema_compile(const struct json_value *json, unsigned flags, struct schema **ret, struct brig_err *err) MUST_CHECK;
void schema_free(struct schema *schema); /* schema may be NULL. */
/*
 * Returns 0 if the instance is valid. Otherwise the error is BRIG_E_INVALID (422) with "<field>: <rule>". The field is
 * written as people write it ("city", "to[0].address"; "arguments" for the root), the rule with its bound ("must be a
 * string, is a number", "is required", "must match ^[a-z]+$", "is not a known argument"). It is the first failure in
 * document order: `type` before the other keywords, members and items as the instance has them. A validation that takes
 * too much work is -EOVERFLOW with the same code. The text that the instance was read from must still live, because
 * numbers are compared as they were written.
 */
int schema_check(const struct schema *schema, const struct json_value *instance, struct brig_err *err) MUST_CHECK;

/* Checks one format by its name, for other rooms. */
bool schema_format_known(const char *name);
bool schema_format_holds(const char *name, const char *text, size_t len); /* Returns false also for an unknown name. */

/* A pattern as ECMA 262 and JSON Schema define it (unanchored, UTF-8), with bounded work. Argument rules use it too. */
struct pattern;
int pattern_compile(const char *text, size_t len, struct pattern **ret, struct brig_err *err) MUST_CHECK;
/*
 * The steps of work that one check of so much text may take. A short text gets few: who sends it is served by the same
 * thread as everybody else.
 */
uint64_t pattern_budget(size_t len);
/* Returns 1, 0, or -EOVERFLOW if it takes more steps than the budget has; those it takes are taken from it. */
int pattern_match(const struct pattern *pattern, const char *text, size_t len, uint64_t *budget) MUST_CHECK;
void pattern_free(struct pattern *pattern);

#endif
