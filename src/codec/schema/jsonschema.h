/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema.h: JSON Schema 2020-12 and draft 7, compiled once, applied many times. For arguments of tools: the schema
 * comes from a tenant, the instance from a model, so both are hostile: depth, size, work (a step budget per validation)
 * and regular expressions (pcre2 with match and depth limits) are bounded, and nothing is ever fetched. `$schema` other
 * than the two (absent: 2020-12) is refused; `$ref` within the document,
 * `$id`, `$anchor`, `$dynamicRef` work; a reference that leads out of it is refused when the schema is compiled.
 * `format` asserts when asked to.
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

/* Copies what it needs; the text that json was read from must live until it returns (json_read.h: raw). BRIG_E_USAGE
 * with one line: where in the schema (a JSON pointer) and which rule. */
int schema_compile(const struct json_value *json, unsigned flags, struct schema **ret, struct brig_err *err) MUST_CHECK;
void schema_free(struct schema *schema); /* takes NULL */
/*
 * 0: valid. BRIG_E_INVALID (422) otherwise: "<field>: <rule>", field as people write it ("city", "to[0].address";
 * "arguments" for the root), the rule with its bound ("must be a string, is a number", "is required", "must match
 * ^[a-z]+$", "is not a known argument"). The first failure in document order: `type` before the other keywords, members
 * and items as the instance has them. A validation that takes too much work is -EOVERFLOW, same code. The text that
 * instance was read from must still live: numbers are compared as they were written.
 */
int schema_check(const struct schema *schema, const struct json_value *instance, struct brig_err *err) MUST_CHECK;

/* One format by its name, for others than schemas. */
bool schema_format_known(const char *name);
bool schema_format_holds(const char *name, const char *text, size_t len); /* false also for a name that is not known */

/* A pattern as ECMA 262 and JSON Schema want it (unanchored, UTF-8), with bounded work; shared with argument rules. */
struct pattern;
int pattern_compile(const char *text, size_t len, struct pattern **ret, struct brig_err *err) MUST_CHECK;
/* 1, 0, or -EOVERFLOW: too much work */
int pattern_match(const struct pattern *pattern, const char *text, size_t len) MUST_CHECK;
void pattern_free(struct pattern *pattern);

#endif
