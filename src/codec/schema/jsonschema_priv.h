/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_priv.h: what the files of the JSON Schema validator share. Only they and the tests of their parts include
 * it.
 *
 *     schema->text     the schema's own copy of its JSON
 *     schema->values   that, read: an array in the order of the text, the root first (json_read.h)
 *     schema->slots    beside each value, what it is: slots[i] belongs to values[i]
 *
 * A value can be a keyword of the schema around it (slot.keyword) and a schema itself (slot.schema); `"items": {...}`
 * is both. So a place in the schema is one number, and no second tree exists.
 */
#ifndef BRIG_CODEC_SCHEMA_JSONSCHEMA_PRIV_H
#define BRIG_CODEC_SCHEMA_JSONSCHEMA_PRIV_H

#include "base/buf.h"
#include "codec/schema/jsonschema.h"

#define SCHEMA_VALUES (1u << 15) /* The largest number of values in a schema. */
#define SCHEMA_PATTERNS 256u     /* A compiled pattern may take 64 KiB. */
#define SCHEMA_NAMES 256u        /* The most $id, and the most $anchor. */
#define SCHEMA_REFS 4096u        /* Each reference looks through the names, or down a list. */
#define SCHEMA_URI 1024u         /* The length of an absolute URI. */
/* The depth of schemas within schemas during one validation; a document has 64 levels. */
#define SCHEMA_DEPTH 400u
#define SCHEMA_DIVISOR_DIGITS 18u
#define PATTERN_REPEAT 4096u

enum keyword {
    KW_NONE,
    KW_TYPE,
    KW_CONST,
    KW_ENUM,
    KW_MULTIPLE_OF,
    KW_MAXIMUM,
    KW_EXCLUSIVE_MAXIMUM,
    KW_MINIMUM,
    KW_EXCLUSIVE_MINIMUM,
    KW_MAX_LENGTH,
    KW_MIN_LENGTH,
    KW_PATTERN,
    KW_FORMAT,
    KW_MAX_ITEMS,
    KW_MIN_ITEMS,
    KW_UNIQUE_ITEMS,
    KW_MAX_CONTAINS, /* contains reads these two. */
    KW_MIN_CONTAINS,
    KW_MAX_PROPERTIES,
    KW_MIN_PROPERTIES,
    KW_REQUIRED,
    KW_DEPENDENT_REQUIRED,
    KW_REF,
    KW_DYNAMIC_REF,
    KW_ALL_OF,
    KW_ANY_OF,
    KW_ONE_OF,
    KW_NOT,
    KW_IF,
    KW_THEN, /* if reads these two. */
    KW_ELSE,
    KW_DEPENDENT_SCHEMAS,
    KW_DEPENDENCIES,
    KW_PREFIX_ITEMS,
    KW_ITEMS,
    KW_ADDITIONAL_ITEMS,
    KW_CONTAINS,
    KW_PROPERTIES,
    KW_PATTERN_PROPERTIES,
    KW_ADDITIONAL_PROPERTIES,
    KW_PROPERTY_NAMES,
    KW_UNEVALUATED_ITEMS,
    KW_UNEVALUATED_PROPERTIES,
    KW_DEFS,
    KW_MAX
};

#define TYPE_INTEGER JSON_TYPE_MAX /* One more bit beside those of enum json_type. */

struct slot {
    uint8_t keyword, format;
    uint8_t types;           /* KW_TYPE: bits of enum json_type and TYPE_INTEGER */
    bool schema;             /* It was read as a schema; resource is set. */
    bool draft7, only_ref;   /* For a schema. only_ref: draft 7, where $ref silences its neighbours. */
    bool unevaluated;        /* It has unevaluatedItems or unevaluatedProperties. */
    uint32_t resource;       /* For a schema: an index of schema->resources. */
    uint32_t target, anchor; /* $ref and $dynamicRef: the target, and the dynamic anchor + 1. */
    uint64_t count;          /* The value of maxLength and similar keywords. */
    struct pattern *pattern; /* For `pattern` and each member of patternProperties. */
};

struct resource {
    char *uri; /* Absolute, or without a base; without a fragment. */
    uint32_t root;
};

struct anchor {
    const char *name; /* It points into the values. */
    uint32_t resource, slot;
    bool dynamic;
};

struct schema {
    char *text;
    struct json_doc *doc;
    const struct json_value *values;
    size_t n_values;
    struct slot *slots;
    struct resource *resources;
    struct anchor *anchors;
    uint32_t *refs; /* $ref and $dynamicRef that wait for their target: pairs of keyword and the schema around it */
    size_t n_resources, n_anchors, n_refs, n_patterns;
    unsigned flags;
};

static inline uint32_t schema_index(const struct schema *schema, const struct json_value *value)
{
    return (uint32_t)(value - schema->values);
}

static inline struct slot *schema_slot(const struct schema *schema, const struct json_value *value)
{
    return &schema->slots[value - schema->values];
}

/* Returns the neighbour of that name if this draft knows it. */
const struct json_value *schema_sibling(const struct schema *schema, const struct json_value *node, const char *name);
/* BRIG_E_USAGE: "<JSON pointer>: <what>". */
int schema_refuse(const struct schema *schema, const struct json_value *at, struct brig_err *err, const char *format,
                  ...) PRINTF_LIKE(4, 5);

/* jsonschema_compile.c: reads one value and all below it as schemas of the given resource. */
int schema_walk(struct schema *schema, const struct json_value *json, uint32_t resource, bool draft7,
                struct brig_err *err) MUST_CHECK;

/* jsonschema_ref.c */
int schema_identify(struct schema *schema, const struct json_value *json, uint32_t *resource, bool draft7,
                    struct brig_err *err) MUST_CHECK;
int schema_add_ref(struct schema *schema, const struct json_value *keyword, const struct json_value *node,
                   struct brig_err *err) MUST_CHECK;
int schema_resolve(struct schema *schema, struct brig_err *err) MUST_CHECK;
/* jsonschema_uri.c: resolves a reference (RFC 3986, 5.2). The result has no fragment. Returns 0 or -ENAMETOOLONG. */
int schema_uri_resolve(const char *base, const char *reference, size_t len, char out[static SCHEMA_URI]) MUST_CHECK;

/* jsonschema_format.c: returns 0 for an unknown format. */
uint8_t schema_format_find(const char *name);
bool schema_format_check(uint8_t format, const char *text, size_t len);
uint64_t schema_format_price(uint8_t format, size_t len); /* The price in steps of the budget. */
/* jsonschema_format_uri.c, jsonschema_format_name.c */
bool format_uri(const char *text, size_t len);
bool format_uri_reference(const char *text, size_t len);
bool format_iri(const char *text, size_t len);
bool format_iri_reference(const char *text, size_t len);
bool format_uri_template(const char *text, size_t len);
bool format_email(const char *text, size_t len);
bool format_idn_email(const char *text, size_t len);
bool format_hostname(const char *text, size_t len);
bool format_idn_hostname(const char *text, size_t len);
bool format_ipv4(const char *text, size_t len);
bool format_ipv6(const char *text, size_t len);

/*
 * jsonschema_value.c: values as JSON Schema sees them: 1 is 1.0, and members have no order. The functions pay from the
 * budget, which is 0 when it ran out.
 */
bool value_equal(const struct json_value *a, const struct json_value *b, uint64_t *budget);
int value_unique(const struct json_value *array, uint64_t *budget, bool *ret); /* -ENOMEM */
/* jsonschema_number.c: exact for numbers of any size. */
bool number_is_whole(const struct json_value *number);
int number_compare(const struct json_value *a, const struct json_value *b);
bool number_is_multiple(const struct json_value *number, const struct json_value *divisor);
size_t number_digits(const struct json_value *number); /* The number of significant digits. */
uint64_t number_hash(const struct json_value *number);

/* pattern_ecma.c */
int pattern_from_ecma(const char *text, size_t len, struct buf *out, uint32_t *ret_repeat,
                      const char **ret_why) MUST_CHECK;

/* ---- one validation ------------------------------------------------------------------------------- */

/* Which children of an instance some schema has looked at, for unevaluatedItems and unevaluatedProperties. */
struct marks {
    size_t n;
    uint64_t *bits;
};

struct check {
    const struct schema *schema;
    const struct json_value *root;
    struct brig_err *err;
    uint64_t budget;
    unsigned depth;
    unsigned quiet; /* More than 0 inside a schema whose failure is not reported: anyOf, not, if, ... */
    unsigned n_scope;
    uint32_t scope[SCHEMA_DEPTH + 1]; /* The resources that were entered, for $dynamicRef. */
};

/* One keyword at one instance. */
struct at {
    const struct json_value *node, *rule, *value;
    const struct slot *slot; /* The slot of rule. */
    struct marks *marks;     /* NULL if nobody asks for them. */
};

/* Returns 1 if valid, 0 if not, or a negative errno if there is no answer. */
typedef int keyword_fn(struct check *check, const struct at *at);

int check_node(struct check *check, const struct json_value *node, const struct json_value *value,
               struct marks *marks) MUST_CHECK;
/* jsonschema_say.c. The first returns 0, the second -EOVERFLOW, so that either can be returned. */
int check_fail(struct check *check, const struct json_value *value, const char *member, const char *format, ...)
    PRINTF_LIKE(4, 5);
int check_give_up(struct check *check);
const char *say_type(enum json_type type);

/* Pays for work that no application of a schema pays for. At 0 the running keyword ends without an answer. */
static inline void check_pay(struct check *check, uint64_t price)
{
    check->budget -= check->budget < price ? check->budget : price;
}

static inline void marks_set(struct marks *marks, size_t i)
{
    if (marks)
        marks->bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* jsonschema_assert.c, jsonschema_object.c, jsonschema_array.c, jsonschema_logic.c: a keyword each */
keyword_fn check_type, check_const, check_enum, check_multiple_of, check_bound, check_length, check_pattern,
    check_format;
keyword_fn check_size, check_required, check_dependencies, check_properties, check_pattern_properties,
    check_additional_properties, check_property_names, check_unevaluated;
keyword_fn check_unique_items, check_prefix_items, check_items, check_additional_items, check_contains;
keyword_fn check_ref, check_dynamic_ref, check_all_of, check_any_of, check_one_of, check_not, check_if;

#endif
