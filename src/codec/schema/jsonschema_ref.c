/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_ref.c: the names in a schema, and what refers to them. A resource is the document or a part with its own
 * $id; an anchor is a name within a resource. References are resolved once all names are known. A reference that no
 * resource of the document answers is refused: nothing is fetched.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

/* ---- names ---------------------------------------------------------------------------------------- */

static int add_anchor(struct schema *schema, const struct json_value *value, const char *name, uint32_t resource,
                      const struct json_value *node, bool dynamic, struct brig_err *err)
{
    if (schema->n_anchors == SCHEMA_NAMES)
        return schema_refuse(schema, value, err, "one anchor too many; a schema may have %u", SCHEMA_NAMES);
    for (size_t i = 0; i < schema->n_anchors; i++)
        if (schema->anchors[i].resource == resource && str_eq(schema->anchors[i].name, name))
            return schema_refuse(schema, value, err, "a name that was there before");
    struct anchor *anchors = mem_realloc_array(schema->anchors, schema->n_anchors + 1, sizeof(*anchors));
    if (!anchors)
        return err_nomem(err);
    schema->anchors = anchors;
    anchors[schema->n_anchors++] =
        (struct anchor){.name = name, .resource = resource, .slot = schema_index(schema, node), .dynamic = dynamic};
    return 0;
}

static int add_resource(struct schema *schema, const struct json_value *id, const struct json_value *node,
                        uint32_t *resource, struct brig_err *err)
{
    char uri[SCHEMA_URI];

    if (schema_uri_resolve(schema->resources[*resource].uri, id->string, id->len, uri) < 0)
        return schema_refuse(schema, id, err, "too long");
    if (schema->n_resources == SCHEMA_NAMES)
        return schema_refuse(schema, id, err, "one $id too many; a schema may have %u", SCHEMA_NAMES);
    for (size_t i = 0; i < schema->n_resources; i++)
        if (str_eq(schema->resources[i].uri, uri) && node != schema->values)
            return schema_refuse(schema, id, err, "a name that was there before");
    char *copy = mem_strdup(uri);
    if (!copy)
        return err_nomem(err);
    if (node == schema->values) { /* the document itself has been there all along */
        mem_free(schema->resources[0].uri);
        schema->resources[0].uri = copy;
        return 0;
    }
    struct resource *resources = mem_realloc_array(schema->resources, schema->n_resources + 1, sizeof(*resources));
    if (!resources) {
        mem_free(copy);
        return err_nomem(err);
    }
    schema->resources = resources;
    *resource = (uint32_t)schema->n_resources++;
    resources[*resource] = (struct resource){.uri = copy, .root = schema_index(schema, node)};
    return 0;
}

/* $id, with what draft 7 lets it also be: "#name". */
static int read_id(struct schema *schema, const struct json_value *node, uint32_t *resource, bool draft7,
                   struct brig_err *err)
{
    const struct json_value *id = json_get(node, "$id");
    int r = 0;

    if (!id)
        return 0;
    if (id->type != JSON_STRING || strlen(id->string) != id->len)
        return schema_refuse(schema, id, err, "must be a URI");
    const char *fragment = strchr(id->string, '#');
    if (fragment && fragment[1] != '\0' && !draft7)
        return schema_refuse(schema, id, err, "must have no fragment; $anchor is for that");
    if (fragment != id->string)
        r = add_resource(schema, id, node, resource, err);
    if (r == 0 && fragment && fragment[1] != '\0')
        r = add_anchor(schema, id, fragment + 1, *resource, node, false, err);
    return r;
}

int schema_identify(struct schema *schema, const struct json_value *json, uint32_t *resource, bool draft7,
                    struct brig_err *err)
{
    static const char *const names[] = {"$anchor", "$dynamicAnchor"};
    int r = read_id(schema, json, resource, draft7, err);

    for (size_t i = 0; r == 0 && !draft7 && i < ARRAY_SIZE(names); i++) {
        const struct json_value *value = json_get(json, names[i]);
        if (!value)
            continue;
        if (value->type != JSON_STRING || value->len == 0 || strlen(value->string) != value->len ||
            strpbrk(value->string, "#/"))
            return schema_refuse(schema, value, err, "must be a plain name");
        r = add_anchor(schema, value, value->string, *resource, json, i == 1, err);
    }
    return r;
}

int schema_add_ref(struct schema *schema, const struct json_value *keyword, const struct json_value *node,
                   struct brig_err *err)
{
    uint32_t *refs = schema->refs;

    if (schema->n_refs == SCHEMA_REFS)
        return schema_refuse(schema, keyword, err, "one reference too many; a schema may have %u", SCHEMA_REFS);
    if ((schema->n_refs & (schema->n_refs - 1)) == 0) /* at powers of two */
        refs = mem_realloc_array(schema->refs, (schema->n_refs > 0 ? schema->n_refs * 2 : 1) * 2, sizeof(*refs));
    if (!refs)
        return err_nomem(err);
    schema->refs = refs;
    refs[schema->n_refs * 2] = schema_index(schema, keyword);
    refs[schema->n_refs * 2 + 1] = schema_index(schema, node);
    schema->n_refs++;
    return 0;
}

/* ---- references ----------------------------------------------------------------------------------- */

/* %XX in place; -EINVAL also for a NUL. */
static int percent_decode(char *text)
{
    static const char digits[] = "0123456789abcdef";
    char *out = text;

    for (const char *in = text; *in; in++, out++) {
        *out = *in;
        if (*in != '%')
            continue;
        const char *high = in[1] ? strchr(digits, in[1] | 0x20) : NULL,
                   *low = high && in[2] ? strchr(digits, in[2] | 0x20) : NULL;
        if (!low || (high == digits && low == digits))
            return -EINVAL;
        *out = (char)((high - digits) << 4 | (low - digits));
        in += 2;
    }
    *out = '\0';
    return 0;
}

/* ~1 and ~0 of a pointer's step, in place. */
static int tilde_decode(char *text)
{
    char *out = text;

    for (const char *in = text; *in; in++, out++) {
        *out = *in;
        if (*in != '~')
            continue;
        in++;
        if (*in != '0' && *in != '1')
            return -EINVAL;
        *out = *in == '0' ? '~' : '/';
    }
    *out = '\0';
    return 0;
}

static const struct json_value *step(const struct json_value *at, const char *name)
{
    size_t index = 0;

    if (at->type == JSON_OBJECT)
        return json_get(at, name);
    if (at->type != JSON_ARRAY || *name == '\0' || (*name == '0' && name[1] != '\0'))
        return NULL;
    for (; *name >= '0' && *name <= '9' && index < SCHEMA_VALUES; name++)
        index = index * 10 + (size_t)(*name - '0');
    at = *name == '\0' ? at->first : NULL;
    while (at && index-- > 0)
        at = at->next;
    return at;
}

/* Follows a pointer ("/a/0") down from a resource; walks what it finds there when nobody has. */
static int follow(struct schema *schema, uint32_t resource, char *pointer, const struct json_value **ret,
                  struct brig_err *err)
{
    const struct json_value *at = &schema->values[schema->resources[resource].root];
    bool draft7 = schema_slot(schema, at)->draft7;
    char *rest = pointer;

    while (rest && at) {
        char *name = rest + 1;
        rest = strchr(name, '/');
        if (rest)
            *rest = '\0';
        at = tilde_decode(name) < 0 ? NULL : step(at, name);
        if (at && schema_slot(schema, at)->schema) {
            resource = schema_slot(schema, at)->resource;
            draft7 = schema_slot(schema, at)->draft7;
        }
    }
    *ret = at;
    return at ? schema_walk(schema, at, resource, draft7, err) : 0;
}

static const struct anchor *find_anchor(const struct schema *schema, uint32_t resource, const char *name)
{
    for (size_t i = 0; i < schema->n_anchors; i++)
        if (schema->anchors[i].resource == resource && str_eq(schema->anchors[i].name, name))
            return &schema->anchors[i];
    return NULL;
}

static bool find_resource(const struct schema *schema, const char *uri, uint32_t *ret)
{
    for (size_t i = 0; i < schema->n_resources; i++)
        if (str_eq(schema->resources[i].uri, uri)) {
            *ret = (uint32_t)i;
            return true;
        }
    return false;
}

static int resolve(struct schema *schema, const struct json_value *keyword, uint32_t base, struct brig_err *err)
{
    char uri[SCHEMA_URI], fragment[SCHEMA_URI];
    const char *hash = strchr(keyword->string, '#');
    const struct json_value *target = NULL;
    uint32_t resource = 0;
    int r = 0;

    if (schema_uri_resolve(schema->resources[base].uri, keyword->string, keyword->len, uri) < 0 ||
        str_copy(fragment, sizeof(fragment), hash ? hash + 1 : "") < 0)
        return schema_refuse(schema, keyword, err, "too long");
    if (!find_resource(schema, uri, &resource))
        return schema_refuse(schema, keyword, err, "%.100s leads out of the schema, and nothing is fetched",
                             keyword->string);
    if (percent_decode(fragment) < 0)
        return schema_refuse(schema, keyword, err, "must be a reference");
    if (fragment[0] == '\0') {
        target = &schema->values[schema->resources[resource].root];
    } else if (fragment[0] == '/') {
        r = follow(schema, resource, fragment, &target, err);
    } else {
        const struct anchor *anchor = find_anchor(schema, resource, fragment);
        target = anchor ? &schema->values[anchor->slot] : NULL;
        if (anchor && anchor->dynamic && schema_slot(schema, keyword)->keyword == KW_DYNAMIC_REF)
            schema_slot(schema, keyword)->anchor = (uint32_t)(anchor - schema->anchors) + 1;
    }
    if (r < 0)
        return r;
    if (!target)
        return schema_refuse(schema, keyword, err, "%.100s leads to nothing", keyword->string);
    schema_slot(schema, keyword)->target = schema_index(schema, target);
    return 0;
}

int schema_resolve(struct schema *schema, struct brig_err *err)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < schema->n_refs; i++) { /* grows on the way */
        uint32_t keyword = schema->refs[i * 2], node = schema->refs[i * 2 + 1];
        r = resolve(schema, &schema->values[keyword], schema->slots[node].resource, err);
    }
    return r;
}
