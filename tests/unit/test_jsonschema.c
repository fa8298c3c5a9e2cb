/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schema: every keyword with what it says, both drafts, references, what is refused, exact numbers, and that work
 * ends. The official suite: test_jsonschema.py. */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/schema/jsonschema.h"

#define D7 "\"$schema\":\"http://json-schema.org/draft-07/schema#\""

static struct json_doc *must_read(const char *text)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(text, strlen(text), JSON_READ_VALUES, &doc, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

/* Compiles; the document is gone afterwards, for a schema copies what it needs. */
static int compile(const char *text, struct schema **ret, struct brig_err *err)
{
    char *copy = mem_strdup(text);
    assert_non_null(copy);
    struct json_doc *doc = must_read(copy);
    int r = schema_compile(json_root(doc), SCHEMA_FORMATS, ret, err);

    json_doc_free(doc);
    memset(copy, '!', strlen(copy));
    mem_free(copy);
    return r;
}

/* "" for a valid instance, else what is said of it. */
static const char *said(const char *schema_text, const char *instance_text)
{
    static struct brig_err err;
    struct schema *schema = NULL;

    err = (struct brig_err){0};
    if (compile(schema_text, &schema, &err) < 0)
        fail_msg("%s: %s", schema_text, err.message);
    struct json_doc *instance = must_read(instance_text);
    int r = schema_check(schema, json_root(instance), &err);
    if (r < 0)
        assert_int_equal(err.code, BRIG_E_INVALID);
    assert_int_equal(r == 0, err.message[0] == '\0');
    json_doc_free(instance);
    schema_free(schema);
    return err.message;
}

struct sample {
    const char *schema, *instance, *said; /* NULL: fails, whatever the words */
};

static void check_cases(const struct sample *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *got = said(cases[i].schema, cases[i].instance);
        if (cases[i].said ? strcmp(got, cases[i].said) != 0 : *got == '\0')
            fail_msg("%s at %s: \"%s\", not \"%s\"", cases[i].schema, cases[i].instance, got,
                     cases[i].said ? cases[i].said : "a failure");
    }
}

static void plain_values(void **state)
{
    static const struct sample cases[] = {
        {"true", "1", ""},
        {"{}", "1", ""},
        {"false", "1", "arguments: is not allowed"},
        {"{\"type\":\"string\"}", "1", "arguments: must be a string, is a number"},
        {"{\"type\":\"integer\"}", "1.0", ""},
        {"{\"type\":\"integer\"}", "1e2", ""},
        {"{\"type\":\"integer\"}", "123456789012345678901234567890", ""},
        {"{\"type\":\"integer\"}", "1.5", "arguments: must be a whole number, is a number with a fraction"},
        {"{\"type\":\"integer\"}", "12345678901234567890.5", NULL},
        {"{\"type\":[\"null\",\"boolean\",\"object\"]}", "[]",
         "arguments: must be null, true or false or an object, is an array"},
        {"{\"type\":[\"string\",\"null\"]}", "null", ""},
        {"{\"type\":\"boolean\"}", "0", "arguments: must be true or false, is a number"},
        {"{\"type\":\"array\"}", "{}", "arguments: must be an array, is an object"},
        {"{\"const\":{\"a\":[1,2],\"b\":null}}", "{\"b\":null,\"a\":[1.0,2e0]}", ""},
        {"{\"const\":{\"a\":[1,2]}}", "{\"a\":[2,1]}", "arguments: must be {\"a\":[1,2]}"},
        {"{\"const\":0}", "false", NULL},
        {"{\"const\":\"a\"}", "\"a\\u0000\"", NULL},
        {"{\"const\":0}", "-0.0e5", ""},
        {"{\"enum\":[\"red\",\"green\",3]}", "\"blue\"", "arguments: must be one of \"red\", \"green\", 3"},
        {"{\"enum\":[\"red\",3]}", "3.0", ""},
        {"{\"enum\":[]}", "1", NULL},
        {"{\"maximum\":3}", "3", ""},
        {"{\"maximum\":3}", "3.0000000000000000000001", "arguments: must be at most 3"},
        {"{\"exclusiveMaximum\":3.5}", "3.5", "arguments: must be less than 3.5"},
        {"{\"exclusiveMaximum\":3.5}", "3.4999999999999999999999", ""},
        {"{\"minimum\":-2}", "-2.5", "arguments: must be at least -2"},
        {"{\"minimum\":-2}", "\"x\"", ""},
        {"{\"exclusiveMinimum\":0}", "0", "arguments: must be more than 0"},
        {"{\"exclusiveMinimum\":0}", "1e-400", ""},
        {"{\"maximum\":9007199254740992}", "9007199254740993", NULL},
        {"{\"maximum\":18446744073709551615}", "18446744073709551616", NULL},
        {"{\"maximum\":18446744073709551615}", "18446744073709551615", ""},
        {"{\"minimum\":-100000000000000000000}", "-100000000000000000001", NULL},
        {"{\"minLength\":2}", "\"\xf0\x9f\x9a\xa2\"", "arguments: must have at least 2 characters, has 1"},
        {"{\"minLength\":2.0}", "\"\xf0\x9f\x9a\xa2x\"", ""},
        {"{\"maxLength\":1}", "\"ab\"", "arguments: must have at most 1 character, has 2"},
        {"{\"pattern\":\"^[a-z]+$\"}", "\"abc\"", ""},
        {"{\"pattern\":\"^[a-z]+$\"}", "\"abc\\n\"", "arguments: must match ^[a-z]+$"},
        {"{\"pattern\":\"b\"}", "\"abc\"", ""},
        {"{\"pattern\":\"b\"}", "1", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void multiples_are_exact(void **state)
{
    static const struct sample cases[] = {
        {"{\"multipleOf\":0.01}", "0.07", ""},
        {"{\"multipleOf\":0.01}", "19.99", ""},
        {"{\"multipleOf\":0.01}", "0.075", "arguments: must be a multiple of 0.01"},
        {"{\"multipleOf\":0.0001}", "0.0075", ""},
        {"{\"multipleOf\":0.1}", "1e300", ""},
        {"{\"multipleOf\":3}", "1e300", NULL},
        {"{\"multipleOf\":3}", "3e300", ""},
        {"{\"multipleOf\":1e-8}", "12391239123", ""},
        {"{\"multipleOf\":7}", "700000000000000000000000000007", ""},
        {"{\"multipleOf\":7}", "700000000000000000000000000008", NULL},
        {"{\"multipleOf\":10}", "1", NULL},
        {"{\"multipleOf\":10}", "1e1", ""},
        {"{\"multipleOf\":25}", "-50.0", ""},
        {"{\"multipleOf\":2}", "0.0", ""},
        {"{\"multipleOf\":999999999999999999}", "999999999999999999000", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void objects(void **state)
{
    static const char person[] =
        "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"to\":{\"items\":{\"properties\":"
        "{\"address\":{\"type\":\"string\"}}}},\"a.b\":{\"type\":\"null\"}},"
        "\"required\":[\"city\"],\"additionalProperties\":false}";
    const struct sample cases[] = {
        {person, "{\"city\":\"Oslo\"}", ""},
        {person, "{}", "city: is required"},
        {person, "7", "arguments: must be an object, is a number"},
        {person, "{\"city\":7}", "city: must be a string, is a number"},
        {person, "{\"city\":\"Oslo\",\"citty\":\"x\"}", "citty: is not a known argument"},
        {person, "{\"city\":\"Oslo\",\"to\":[{\"address\":\"x\"},{\"address\":7}]}",
         "to[1].address: must be a string, is a number"},
        {person, "{\"city\":\"Oslo\",\"a.b\":1}", "[\"a.b\"]: must be null, is a number"},
        /* as the instance has it */
        {person, "{\"to\":[{\"address\":7}],\"city\":8}", "to[0].address: must be a string, is a number"},
        {"{\"properties\":{\"a\":{\"required\":[\"b\"]}}}", "{\"a\":{}}", "a.b: is required"},
        {"{\"properties\":{\"a\":{\"additionalProperties\":false}}}", "{\"a\":{\"c\":1}}",
         "a.c: is not a known argument"},
        {"{\"properties\":{\"a\":false}}", "{\"a\":1}", "a: is not allowed"},
        {"{\"patternProperties\":{\"^n_\":{\"type\":\"number\"},\"x$\":{\"minimum\":5}}}", "{\"n_x\":4}",
         "n_x: must be at least 5"},
        {"{\"patternProperties\":{\"^n_\":{\"type\":\"number\"}}}", "{\"n_\":\"\"}",
         "n_: must be a number, is a string"},
        {"{\"patternProperties\":{\"^n_\":true},\"additionalProperties\":{\"type\":\"null\"}}", "{\"n_\":1,\"m\":null}",
         ""},
        {"{\"patternProperties\":{\"^n_\":true},\"additionalProperties\":{\"type\":\"null\"}}", "{\"n_\":1,\"m\":2}",
         "m: must be null, is a number"},
        {"{\"allOf\":[{\"properties\":{\"a\":true}}],\"additionalProperties\":false}", "{\"a\":1}",
         "a: is not a known argument"},
        {"{\"propertyNames\":{\"maxLength\":2}}", "{\"ok\":1,\"bad\":2}", "bad: may not have this name"},
        {"{\"propertyNames\":false}", "{}", ""},
        {"{\"minProperties\":1}", "{}", "arguments: must have at least 1 member, has 0"},
        {"{\"maxProperties\":1}", "{\"a\":1,\"b\":2}", "arguments: must have at most 1 member, has 2"},
        {"{\"dependentRequired\":{\"card\":[\"cvc\"]}}", "{\"card\":1}", "cvc: is required when card is given"},
        {"{\"dependentRequired\":{\"card\":[\"cvc\"]}}", "{\"cvc\":1}", ""},
        {"{\"dependentSchemas\":{\"card\":{\"properties\":{\"cvc\":{\"type\":\"integer\"}}}}}",
         "{\"cvc\":\"x\",\"card\":1}", "cvc: must be a whole number, is a string"},
        {"{\"dependentSchemas\":{\"card\":false}}", "{}", ""},
        {"{\"dependencies\":{\"a\":[\"b\"],\"c\":{\"minProperties\":2}}}", "{\"a\":1}",
         "b: is required when a is given"},
        {"{\"dependencies\":{\"a\":[\"b\"],\"c\":{\"minProperties\":2}}}", "{\"c\":1}",
         "arguments: must have at least 2 members, has 1"},
        {"{\"required\":[\"a\"]}", "[]", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void arrays(void **state)
{
    static const struct sample cases[] = {
        {"{\"items\":{\"type\":\"string\"}}", "[\"a\",1]", "[1]: must be a string, is a number"},
        {"{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "[\"a\",1]",
         "[1]: must be null, is a number"},
        {"{\"prefixItems\":[{\"type\":\"string\"}]}", "[\"a\",1]", ""},
        {"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", "[\"a\",1]",
         "arguments: must have at most 1 item, has 2"},
        {"{\"prefixItems\":[true],\"items\":{\"type\":\"null\"}}", "[1,null,2]", "[2]: must be null, is a number"},
        {"{\"minItems\":1}", "[]", "arguments: must have at least 1 item, has 0"},
        {"{\"maxItems\":2}", "[1,2,3]", "arguments: must have at most 2 items, has 3"},
        {"{\"uniqueItems\":true}", "[1,\"1\",true,[1],{\"a\":1},null,0,false]", ""},
        {"{\"uniqueItems\":true}", "[{\"a\":1,\"b\":[1.0]},{\"b\":[1],\"a\":1e0}]",
         "arguments: must not have an item twice"},
        {"{\"uniqueItems\":true}", "[100000000000000000000,1e20]", "arguments: must not have an item twice"},
        {"{\"uniqueItems\":true}", "[100000000000000000000,100000000000000000001]", ""},
        {"{\"uniqueItems\":false}", "[1,1]", ""},
        {"{\"contains\":{\"type\":\"string\"}}", "[1,2]",
         "arguments: must contain at least 1 item of the kind that the schema asks for"},
        {"{\"contains\":{\"type\":\"string\"}}", "[1,\"a\"]", ""},
        {"{\"contains\":{\"const\":1},\"minContains\":2}", "[1,2]",
         "arguments: must contain at least 2 items of the kind that the schema asks for"},
        {"{\"contains\":{\"const\":1},\"maxContains\":1}", "[1,2,1]",
         "arguments: must contain at most 1 item of the kind that the schema asks for"},
        {"{\"contains\":{\"const\":1},\"minContains\":0}", "[]", ""},
        {"{\"minContains\":3}", "[]", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void logic(void **state)
{
    static const char optional[] =
        "{\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"type\":\"null\"}]}}}";
    static const char when[] =
        "{\"if\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},\"then\":{\"required\":[\"v\"]},"
        "\"else\":{\"required\":[\"w\"]}}";
    const struct sample cases[] = {
        {optional, "{\"a\":null}", ""},
        {optional, "{\"a\":7}", "a: must be null or a string, is a number"},
        {optional, "{\"a\":\"x\"}", "a: must have at least 2 characters, has 1"}, /* of the branch that was meant */
        {"{\"anyOf\":[{\"minimum\":5},{\"const\":1}]}", "2",
         "arguments: must have one of the forms that the schema allows"},
        {"{\"allOf\":[{\"minimum\":5},{\"maximum\":6}]}", "7", "arguments: must be at most 6"},
        {"{\"oneOf\":[{\"minimum\":5},{\"maximum\":6}]}", "5",
         "arguments: must have just one of the forms that the schema allows, has several"},
        {"{\"oneOf\":[{\"minimum\":5},{\"maximum\":6}]}", "4", ""},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "[]",
         "arguments: must be a string or a whole number, is an array"},
        {"{\"not\":{\"type\":\"string\"}}", "\"\"", "arguments: must not have the form that the schema excludes"},
        {"{\"not\":{\"not\":{\"type\":\"string\"}}}", "\"\"", ""},
        {when, "{\"k\":1}", "v: is required"},
        {when, "{\"k\":2}", "w: is required"},
        {when, "{\"k\":2,\"w\":1}", ""},
        {"{\"then\":false,\"else\":false}", "1", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void unevaluated(void **state)
{
    static const char branches[] =
        "{\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{\"b\":true},"
        "\"required\":[\"b\"]}],\"unevaluatedProperties\":false}";
    static const char mixed[] =
        "{\"properties\":{\"p\":true},\"patternProperties\":{\"^x\":true},\"if\":{\"required\":[\"i\"],"
        "\"properties\":{\"i\":true}},\"then\":{\"properties\":{\"t\":true}},"
        "\"dependentSchemas\":{\"d\":{\"properties\":{\"d\":true}}},\"$ref\":\"#/$defs/r\","
        "\"$defs\":{\"r\":{\"properties\":{\"r\":true}}},\"not\":{\"properties\":{\"n\":true},\"required\":[\"z\"]},"
        "\"unevaluatedProperties\":false}";
    const struct sample cases[] = {
        {branches, "{\"a\":1}", ""},
        {branches, "{\"a\":1,\"b\":2}", ""},                           /* both branches are looked at */
        {branches, "{\"b\":1,\"a\":2}", "a: is not a known argument"}, /* the first failed, so it evaluated nothing */
        {branches, "{\"a\":1,\"c\":2}", "c: is not a known argument"},
        {mixed, "{\"p\":1,\"x1\":1,\"i\":1,\"t\":1,\"d\":1,\"r\":1}", ""},
        {mixed, "{\"t\":1}", "t: is not a known argument"},
        {mixed, "{\"n\":1}", "n: is not a known argument"},
        {"{\"unevaluatedProperties\":{\"type\":\"null\"}}", "{\"a\":1}", "a: must be null, is a number"},
        {"{\"properties\":{\"a\":{\"properties\":{\"b\":true}}},\"unevaluatedProperties\":false}",
         "{\"a\":{\"b\":1,\"c\":1}}", ""}, /* not its business */
        {"{\"allOf\":[{\"unevaluatedProperties\":true}],\"unevaluatedProperties\":false}", "{\"a\":1}", ""},
        {"{\"prefixItems\":[true],\"unevaluatedItems\":false}", "[1,2]", "[1]: is not allowed"},
        {"{\"allOf\":[{\"items\":true}],\"unevaluatedItems\":false}", "[1,2]", ""},
        {"{\"contains\":{\"type\":\"string\"},\"unevaluatedItems\":{\"type\":\"number\"}}", "[1,\"a\",2,\"b\"]", ""},
        {"{\"contains\":{\"type\":\"string\"},\"unevaluatedItems\":{\"type\":\"number\"}}", "[1,\"a\",null]",
         "[2]: must be a number, is null"},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void references(void **state)
{
    static const char tree[] =
        "{\"properties\":{\"kids\":{\"items\":{\"$ref\":\"#\"}},\"v\":{\"$ref\":\"#/$defs/v\"}},\"required\":[\"v\"],"
        "\"$defs\":{\"v\":{\"type\":\"integer\"}}}";
    static const char ids[] =
        "{\"$id\":\"http://x.y/root.json\",\"properties\":{\"a\":{\"$ref\":\"item.json\"},\"b\":{\"$ref\":\"http://x.y/"
        "d/e.json#name\"},\"c\":{\"$ref\":\"#/$defs/two/$defs/in\"}},"
        "\"$defs\":{\"one\":{\"$id\":\"/item.json\",\"type\":\"string\"},\"two\":{\"$id\":\"d/./x/../e.json\","
        "\"$defs\":{\"in\":{\"$anchor\":\"name\",\"type\":\"null\"}}}}}";
    static const char dynamic[] =
        "{\"$id\":\"http://x/strict\",\"$dynamicAnchor\":\"node\",\"$ref\":\"tree\",\"unevaluatedProperties\":false,"
        "\"$defs\":{\"tree\":{\"$id\":\"tree\",\"$dynamicAnchor\":\"node\",\"properties\":{\"kids\":{\"items\":"
        "{\"$dynamicRef\":\"#node\"}}}}}}";
    const struct sample cases[] = {
        {tree, "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]},{\"v\":\"x\"}]}",
         "kids[1].v: must be a whole number, is a string"},
        {tree, "{\"v\":1,\"kids\":[{\"kids\":[]}]}", "kids[0].v: is required"},
        {ids, "{\"a\":\"\",\"b\":null,\"c\":null}", ""},
        {ids, "{\"a\":1}", "a: must be a string, is a number"},
        {ids, "{\"b\":1}", "b: must be null, is a number"},
        {ids, "{\"c\":1}", "c: must be null, is a number"},
        {dynamic, "{\"kids\":[{\"kids\":[]}]}", ""},
        {dynamic, "{\"kids\":[{\"kinds\":[]}]}", "kids[0].kinds: is not a known argument"},
        {"{\"$defs\":{\"a/b~c%\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a~1b~0c%25\"}", "1",
         "arguments: must be null, is a number"},
        {"{\"allOf\":[{\"$ref\":\"#/other/1\"}],\"other\":[1,{\"type\":\"null\"}]}", "1",
         "arguments: must be null, is a number"},
        {"{\"$ref\":\"#/$defs/a\",\"minimum\":5,\"$defs\":{\"a\":{\"maximum\":9}}}", "4",
         "arguments: must be at least 5"},
        {"{\"enum\":[{\"$id\":\"http://x/y\",\"$ref\":\"http://nowhere\"}]}",
         "{\"$id\":\"http://x/y\",\"$ref\":\"http://nowhere\"}", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void draft_7(void **state)
{
    static const struct sample cases[] = {
        {"{" D7 ",\"items\":[{\"type\":\"string\"}],\"additionalItems\":{\"type\":\"null\"}}", "[\"a\",null,1]",
         "[2]: must be null, is a number"},
        {"{" D7 ",\"items\":[{\"type\":\"string\"}]}", "[1]", "[0]: must be a string, is a number"},
        {"{" D7 ",\"items\":{\"type\":\"string\"},\"additionalItems\":false}", "[\"a\",\"b\"]", ""},
        {"{" D7 ",\"prefixItems\":[false],\"unevaluatedProperties\":false,\"dependentRequired\":{\"a\":[\"b\"]}}",
         "[1]", ""}, /* not known there */
        {"{" D7 ",\"prefixItems\":[false],\"unevaluatedProperties\":false,\"dependentRequired\":{\"a\":[\"b\"]}}",
         "{\"a\":1}", ""},
        {"{" D7 ",\"definitions\":{\"a\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/a\",\"minimum\":5}", "null", ""},
        {"{" D7 ",\"definitions\":{\"a\":{\"type\":\"number\"}},\"$ref\":\"#/definitions/a\",\"minimum\":5}", "1",
         ""}, /* $ref alone counts */
        {"{" D7 ",\"definitions\":{\"a\":{\"$id\":\"#name\",\"type\":\"null\"}},\"allOf\":[{\"$ref\":\"#name\"}]}", "1",
         "arguments: must be null, is a number"},
        {"{" D7 ",\"dependencies\":{\"a\":[\"b\"]}}", "{\"a\":1}", "b: is required when a is given"},
        {"{" D7 ",\"contains\":{\"const\":1},\"minContains\":2}", "[1]", ""},
    };
    (void)state;

    check_cases(cases, ARRAY_SIZE(cases));
}

static void formats(void **state)
{
    static const struct {
        const char *format, *good, *bad;
    } cases[] = {
        {"date", "2024-02-29", "2023-02-29"},
        {"date-time", "1998-12-31T15:59:60.5-08:00", "1998-12-31T15:58:60-08:00"},
        {"time", "08:30:06Z", "08:30:06"},
        {"duration", "P4DT12H30M5S", "P1YT"},
        {"duration", "P2W", "P1Y1D"},
        {"email", "\\\"joe x\\\"@[127.0.0.1]", "a..b@x.y"},
        {"idn-email", "\xc3\xa9@x.y", "@x"},
        {"hostname", "a-b.example", "-a.example"},
        {"hostname", "xn--ihqwcrb4cv8a8dqg056pqjye", "xn--X"},
        {"idn-hostname",
         "\xe5\xae\x9f\xe4\xbe\x8b\xe3\x80\x82"
         "example",
         "a..b"},
        {"ipv4", "127.0.0.1", "127.0.0.01"},
        {"ipv6", "::ffff:1.2.3.4", "::1%eth0"},
        {"uri", "http://u:p@[::1]:80/a%20b?c#d", "//x.y/z"},
        {"uri-reference", "../a?b", "a b"},
        {"iri", "http://x.y/\xc3\xa9", "\xc3\xa9"},
        {"iri-reference", "\xc3\xa9", "\\\\a"},
        {"uri-template", "/a{?b*,c:3}", "/a{b"},
        {"uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08aa9811eab4aa73b441d16380"},
        {"json-pointer", "/a~1b", "/a~2"},
        {"relative-json-pointer", "1/a", "01"},
        {"regex", "^(a|b)$", "^(a"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char schema[80], good[200], bad[200], want[80];
        assert_true(str_format(schema, sizeof(schema), "{\"format\":\"%s\"}", cases[i].format) > 0);
        assert_true(str_format(good, sizeof(good), "\"%s\"", cases[i].good) > 0 &&
                    str_format(bad, sizeof(bad), "\"%s\"", cases[i].bad) > 0);
        assert_true(str_format(want, sizeof(want), "arguments: must be in the format %s", cases[i].format) > 0);
        check_cases((const struct sample[]){{schema, good, ""}, {schema, bad, want}, {schema, "1", ""}}, 3);
        assert_true(schema_format_known(cases[i].format));
    }
    assert_string_equal(said("{\"format\":\"of my own\"}", "\"\""), "");
    assert_false(schema_format_known("of my own") || schema_format_holds("of my own", "", 0));
    assert_true(schema_format_holds("ipv4", "1.2.3.4", 7));
}

static void formats_only_when_asked(void **state)
{
    struct json_doc *doc = must_read("{\"format\":\"ipv4\"}"), *instance = must_read("\"x\"");
    struct schema *schema = NULL;
    (void)state;

    assert_int_equal(schema_compile(json_root(doc), 0, &schema, NULL), 0);
    assert_int_equal(schema_check(schema, json_root(instance), NULL), 0);
    schema_free(schema);
    json_doc_free(doc);
    json_doc_free(instance);
}

static void refusals(void **state)
{
    static const struct {
        const char *schema, *said;
    } cases[] = {
        {"1", "schema /: must be a schema (an object, true or false)"},
        {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\"}",
         "schema /$schema: must be JSON Schema 2020-12 or draft 7"},
        {"{\"$schema\":7}", "schema /$schema: must be JSON Schema 2020-12 or draft 7"},
        {"{\"properties\":{\"a\":{\"$ref\":\"http://elsewhere/x\"}}}",
         "schema /properties/a/$ref: http://elsewhere/x leads out of the schema, and nothing is fetched"},
        {"{\"$ref\":\"other.json\"}", "schema /$ref: other.json leads out of the schema, and nothing is fetched"},
        {"{\"$ref\":\"#/$defs/a\"}", "schema /$ref: #/$defs/a leads to nothing"},
        {"{\"$ref\":\"#a\"}", "schema /$ref: #a leads to nothing"},
        {"{\"$ref\":\"#/a\",\"a\":1}", "schema /a: must be a schema (an object, true or false)"},
        {"{\"$dynamicRef\":\"x#y\"}", "schema /$dynamicRef: x#y leads out of the schema, and nothing is fetched"},
        {"{\"$ref\":1}", "schema /$ref: must be a reference"},
        {"{\"$id\":\"a#b\"}", "schema /$id: must have no fragment; $anchor is for that"},
        {"{\"$defs\":{\"a\":{\"$id\":\"x\"},\"b\":{\"$id\":\"x\"}}}",
         "schema /$defs/b/$id: a name that was there before"},
        {"{\"$defs\":{\"a\":{\"$anchor\":\"x\"},\"b\":{\"$anchor\":\"x\"}}}",
         "schema /$defs/b/$anchor: a name that was there before"},
        {"{\"type\":\"int\"}", "schema /type: must be null, boolean, integer, number, string, array or object"},
        {"{\"anyOf\":[{},{\"minLength\":-1}]}", "schema /anyOf/1/minLength: must be a whole number of at least 0"},
        {"{\"minLength\":1.5}", "schema /minLength: must be a whole number of at least 0"},
        {"{\"maximum\":\"5\"}", "schema /maximum: must be a number"},
        {"{\"multipleOf\":0}", "schema /multipleOf: must be a number over 0"},
        {"{\"multipleOf\":-1}", "schema /multipleOf: must be a number over 0"},
        {"{\"multipleOf\":1.234567890123456789}", "schema /multipleOf: must have at most 18 digits"},
        {"{\"pattern\":\"(\"}", NULL},
        {"{\"patternProperties\":{\"(\":{}}}", NULL},
        {"{\"properties\":[]}", "schema /properties: must be an object of schemas"},
        {"{\"properties\":{\"a\":1}}", "schema /properties/a: must be a schema (an object, true or false)"},
        {"{\"items\":[{}]}", "schema /items: must be a schema (an object, true or false)"},
        {"{\"anyOf\":[]}", "schema /anyOf: must be an array of schemas"},
        {"{\"required\":\"a\"}", "schema /required: must be an array of strings"},
        {"{\"required\":[1]}", "schema /required: must be an array of strings"},
        {"{\"enum\":1}", "schema /enum: must be an array"},
        {"{\"uniqueItems\":1}", "schema /uniqueItems: must be true or false"},
        {"{\"dependentRequired\":{\"a\":\"b\"}}", "schema /dependentRequired/a: must be an array of strings"},
        {"{\"format\":1}", "schema /format: must be a string"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct schema *schema = NULL;
        struct brig_err err = {0};
        if (compile(cases[i].schema, &schema, &err) == 0)
            fail_msg("taken: %s", cases[i].schema);
        assert_int_equal(err.code, BRIG_E_USAGE);
        if (cases[i].said)
            assert_string_equal(err.message, cases[i].said);
        assert_null(schema);
    }
}

/* ---- work ends ------------------------------------------------------------------------------------ */

static const char too_much[] = "arguments: too much work to check against the schema";

static void loops_end(void **state)
{
    static const char *const schemas[] = {
        "{\"$ref\":\"#\"}",
        "{\"not\":{\"$ref\":\"#\"}}", /* and nothing is turned around */
        "{\"anyOf\":[{\"$ref\":\"#\"},true]}",
        "{\"if\":{\"$ref\":\"#\"},\"else\":true,\"then\":true}",
        "{\"$dynamicAnchor\":\"a\",\"$dynamicRef\":\"#a\"}",
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}",
        "{\"contains\":{\"$ref\":\"#/$defs/a\"},\"minContains\":1,\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}",
        "{\"propertyNames\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}",
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(schemas); i++)
        assert_string_equal(said(schemas[i], i == 7 ? "{\"a\":1}" : "[1]"), too_much);
}

static void webs_end(void **state)
{
    struct buf text = BUF_INIT(1 << 16);
    (void)state;

    /* Each asks twice for the next: 2^40 ways. */
    assert_int_equal(buf_append_str(&text, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{\"a40\":true"), 0);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(buf_printf(&text,
                                    ",\"a%u\":{\"allOf\":[{\"$ref\":\"#/$defs/a%u\"},{\"$ref\":\"#/$defs/a%u\"}]}", i,
                                    i + 1, i + 1),
                         0);
    assert_int_equal(buf_append_str(&text, "}}"), 0);
    assert_string_equal(said(text.data, "1"), too_much);
    buf_done(&text);
}

static void patterns_end(void **state)
{
    struct buf text = BUF_INIT(1 << 20);
    (void)state;

    assert_int_equal(buf_append_str(&text, "[\""), 0);
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(buf_append_str(&text, "aaaaaaaaaa"), 0);
    assert_int_equal(buf_append_str(&text, "!\"]"), 0);
    assert_string_equal(said("{\"items\":{\"pattern\":\"^(a+)+$\"}}", text.data), too_much);
    /* merely quadratic */
    assert_string_equal(said("{\"items\":{\"not\":{\"pattern\":\"a+[bc]\"}}}", text.data), too_much);
    assert_string_equal(said("{\"items\":{\"pattern\":\"^a+!$\"}}", text.data), "");
    buf_done(&text);
}

/* Many small schemas at one large value, and long lists in a schema at many values: neither is free. */
static void large_values_are_paid_for(void **state)
{
    struct buf schema = BUF_INIT(1 << 20), text = BUF_INIT(4 << 20);
    (void)state;

    assert_int_equal(buf_append_str(&schema, "{\"allOf\":[true"), 0);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(buf_append_str(&schema, ",{\"minLength\":1}"), 0);
    assert_int_equal(buf_append_str(&schema, "]}"), 0);
    assert_int_equal(buf_append_str(&text, "\""), 0);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buf_append_str(&text, "0123456789"), 0);
    assert_int_equal(buf_append_str(&text, "\""), 0);
    assert_string_equal(said(schema.data, text.data), too_much);
    assert_string_equal(said("{\"minLength\":1}", text.data), "");
    buf_done(&schema);
    buf_done(&text);

    assert_int_equal(buf_append_str(&schema, "{\"items\":{\"dependentRequired\":{\"x\":[]"), 0);
    for (unsigned i = 0; i < 4000; i++)
        assert_int_equal(buf_printf(&schema, ",\"x%u\":[]", i), 0);
    assert_int_equal(buf_append_str(&schema, "}}}"), 0);
    assert_int_equal(buf_append_str(&text, "[{}"), 0);
    for (unsigned i = 0; i < 4000; i++)
        assert_int_equal(buf_append_str(&text, ",{}"), 0);
    assert_int_equal(buf_append_str(&text, "]"), 0);
    assert_string_equal(said(schema.data, text.data), too_much);
    buf_done(&schema);
    buf_done(&text);
}

static void many_items_take_little(void **state)
{
    struct buf text = BUF_INIT(1 << 22);
    (void)state;

    assert_int_equal(buf_append_str(&text, "["), 0);
    for (unsigned i = 0; i < 25000; i++)
        assert_int_equal(buf_printf(&text, "%s{\"a\":%u,\"b\":[%u.0]}", i > 0 ? "," : "", i, i), 0);
    assert_int_equal(buf_append_str(&text, "]"), 0);
    assert_string_equal(said("{\"uniqueItems\":true}", text.data), "");
    assert_string_equal(said("{\"items\":{\"properties\":{\"a\":{\"minimum\":0}},\"required\":[\"b\"]}}", text.data),
                        "");
    buf_done(&text);
}

static void deep_instances(void **state)
{
    static const char schema[] =
        "{\"$defs\":{\"n\":{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}},{\"type\":\"null\"}]}},"
        "\"allOf\":[{\"$ref\":\"#/$defs/n\"}]}";
    char text[200] = {0};
    (void)state;

    memset(text, '[', 63);
    unit_put(text + 63, "null", 4);
    memset(text + 67, ']', 63);
    assert_string_equal(said(schema, text), "");
    unit_put(text + 63, "true", 4);
    assert_string_not_equal(said(schema, text), "");
}

static void survives_without_memory(void **state)
{
    static const char schema_text[] =
        "{\"$id\":\"http://x/\",\"$defs\":{\"a\":{\"$id\":\"y\",\"$anchor\":\"z\",\"pattern\":\"^a\","
        "\"uniqueItems\":true,\"type\":[\"string\",\"array\"]}},"
        "\"anyOf\":[{\"$ref\":\"y#z\"},{\"properties\":{\"q\":true},\"unevaluatedProperties\":false}]}";
    struct json_doc *doc = must_read(schema_text), *instance = must_read("[1,2,{\"r\":1}]"),
                    *object = must_read("{\"r\":1}");
    bool failed = true;
    (void)state;

    for (size_t n = 0; failed; n++) {
        struct schema *schema = NULL;
        struct brig_err err = {0};
        mem_fail_after(n);
        int r = schema_compile(json_root(doc), 0, &schema, &err);
        if (r == 0)
            r = schema_check(schema, json_root(instance), &err);
        if (r == 0)
            r = schema_check(schema, json_root(object), &err) == -EINVAL ? 0 : -ENOMEM;
        failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_true(r == 0 || r == -ENOMEM);
        assert_true(failed || r == 0);
        schema_free(schema);
    }
    json_doc_free(doc);
    json_doc_free(instance);
    json_doc_free(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values),
        cmocka_unit_test(multiples_are_exact),
        cmocka_unit_test(objects),
        cmocka_unit_test(arrays),
        cmocka_unit_test(logic),
        cmocka_unit_test(unevaluated),
        cmocka_unit_test(references),
        cmocka_unit_test(draft_7),
        cmocka_unit_test(formats),
        cmocka_unit_test(formats_only_when_asked),
        cmocka_unit_test(refusals),
        cmocka_unit_test(loops_end),
        cmocka_unit_test(webs_end),
        cmocka_unit_test(patterns_end),
        cmocka_unit_test(large_values_are_paid_for),
        cmocka_unit_test(many_items_take_little),
        cmocka_unit_test(deep_instances),
        cmocka_unit_test(survives_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
