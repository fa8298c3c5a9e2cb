/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets of organisations: sealed in the store, bound to their row; broker rules; what is refused. Those with a store
 * run on both data bases. */
#include "store_kit.h"

#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "records/secrets_priv.h"

#define K1 "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K2 "k2:ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define OTHER_K1 "k1:ee0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define DAMAGED "the row of secret A of org-1: "
#define VALUE "hunter2-hunter2-hunter2"
#define RULE "{\"hosts\":[\"api.example.com\"],\"header\":\"Authorization\",\"format\":\"Bearer %s\"}"

/* ---- broker rules ------------------------------------------------------------------------------------- */

static int parse(const char *text, struct broker_rule *rule, struct brig_err *err)
{
    struct json_doc *doc = NULL;

    assert_int_equal(json_read(text, strlen(text), 1000, &doc, NULL), 0);
    int r = broker_rule_parse(json_root(doc), rule, err);
    json_doc_free(doc);
    return r;
}

static void test_rules(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {RULE, "{\"hosts\":[\"api.example.com\"],\"header\":\"Authorization\",\"format\":\"Bearer %s\"}"},
        {"{\"hosts\":[\"API.Example.COM.:443\",\"*.x.org:8443\"],\"header\":\"X-Key\"}",
         "{\"hosts\":[\"api.example.com\",\"*.x.org:8443\"],\"header\":\"X-Key\",\"format\":\"%s\"}"},
        {"{\"hosts\":[\"b\xc3\xbc"
         "cher.example\"],\"query\":\"api_key\"}",
         "{\"hosts\":[\"xn--bcher-kva.example\"],\"query\":\"api_key\"}"},
        {"{\"hosts\":[\"a.b\"],\"basic\":\"user\"}", "{\"hosts\":[\"a.b\"],\"basic\":\"user\"}"},
        {"{\"hosts\":[\"a.b\"],\"basic\":\"password\"}", "{\"hosts\":[\"a.b\"],\"basic\":\"password\"}"},
        {"{\"hosts\":[\"*.amazonaws.com\"],\"kind\":\"aws-sigv4\"}",
         "{\"hosts\":[\"*.amazonaws.com\"],\"kind\":\"aws-sigv4\"}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf out = BUF_INIT(4096), again = BUF_INIT(4096);
        struct broker_rule rule, second;
        struct brig_err err = {0};
        if (parse(cases[i].in, &rule, &err) < 0)
            fail_msg("%s: %s", cases[i].in, err.message);
        assert_int_equal(broker_rule_put_json(&rule, &out), 0);
        assert_string_equal(out.data, cases[i].out);
        assert_int_equal(parse(out.data, &second, NULL), 0); /* what was written reads the same */
        assert_int_equal(broker_rule_put_json(&second, &again), 0);
        assert_string_equal(out.data, again.data);
    }
}

static void test_rule_refusals(void **state)
{
    static const char *const cases[] = {
        "[]",
        "{}",
        "{\"hosts\":[\"a.b\"]}",
        "{\"header\":\"X\"}",
        "{\"hosts\":[],\"header\":\"X\"}",
        "{\"hosts\":\"a.b\",\"header\":\"X\"}",
        "{\"hosts\":[1],\"header\":\"X\"}",
        "{\"hosts\":[\"\"],\"header\":\"X\"}",
        "{\"hosts\":[\"*\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.*.b\"],\"header\":\"X\"}",
        "{\"hosts\":[\"*.*.b\"],\"header\":\"X\"}",
        "{\"hosts\":[\"127.0.0.1\"],\"header\":\"X\"}",
        "{\"hosts\":[\"2130706433\"],\"header\":\"X\"}",
        "{\"hosts\":[\"[::1]\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b:0\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b:65536\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b:\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b:+1\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b:000443\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a b\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b\\u0000.c\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b/\"],\"header\":\"X\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X:\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\\r\\nY\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"host\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"Content-Length\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"TRANSFER-ENCODING\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"Proxy-Authorization\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"query\":\"k\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"format\":\"none\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"format\":\"%s %s\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"format\":\"%d\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"format\":\"%%s\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"format\":\"a\\n%s\"}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"format\":\"%s \"}",
        "{\"hosts\":[\"a.b\"],\"query\":\"k\",\"format\":\"%s\"}",
        "{\"hosts\":[\"a.b\"],\"query\":\"a&b\"}",
        "{\"hosts\":[\"a.b\"],\"query\":\"a=b\"}",
        "{\"hosts\":[\"a.b\"],\"basic\":\"both\"}",
        "{\"hosts\":[\"a.b\"],\"kind\":\"none\"}",
        "{\"hosts\":[\"a.b\"],\"kind\":1}",
        "{\"hosts\":[\"a.b\"],\"header\":\"X\",\"extra\":1}",
        ("{\"hosts\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
         "\"a\"],\"header\":\"X\"}"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct broker_rule rule;
        struct brig_err err = {0};
        if (parse(cases[i], &rule, &err) == 0)
            fail_msg("accepted: %s", cases[i]);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_memory_equal(err.message, "broker", 6);
    }
}

static void test_rule_covers(void **state)
{
    struct broker_rule rule;

    (void)state;
    assert_int_equal(parse("{\"hosts\":[\"api.example.com\",\"*.x.org:8443\"],\"header\":\"X\"}", &rule, NULL), 0);
    assert_true(broker_rule_covers(&rule, "api.example.com", 443));
    assert_false(broker_rule_covers(&rule, "api.example.com", 80));
    assert_false(broker_rule_covers(&rule, "api.example.com", 8443));
    assert_false(broker_rule_covers(&rule, "www.api.example.com", 443));
    assert_false(broker_rule_covers(&rule, "xapi.example.com", 443));
    assert_true(broker_rule_covers(&rule, "a.x.org", 8443));
    assert_true(broker_rule_covers(&rule, "a.b.x.org", 8443));
    assert_false(broker_rule_covers(&rule, "x.org", 8443));
    assert_false(broker_rule_covers(&rule, "ax.org", 8443));
    assert_false(broker_rule_covers(&rule, ".x.org", 443));
    assert_false(broker_rule_covers(&rule, "", 443));
}

static void test_names(void **state)
{
    char longest[80];

    (void)state;
    memset(longest, 'a', sizeof longest);
    longest[63] = '\0';
    assert_true(secret_name_ok(longest));
    longest[63] = 'a', longest[64] = '\0';
    assert_false(secret_name_ok(longest));
    assert_true(secret_name_ok("GITHUB") && secret_name_ok("_a.b-c9") && secret_name_ok("x"));
    assert_false(secret_name_ok("") || secret_name_ok("9a") || secret_name_ok("-a") || secret_name_ok(".") ||
                 secret_name_ok("a b") || secret_name_ok("a/b") || secret_name_ok("a\n") || secret_name_ok("\xc3\xa4"));
}

/* ---- in the store ------------------------------------------------------------------------------------- */

struct safe {
    struct keyring *ring;
    struct secrets *secrets;
};

static void box_open(struct kit *kit, struct safe *box, const char *keys, bool plain)
{
    struct brig_err err = {0};

    *box = (struct safe){0};
    if (keys)
        assert_int_equal(keyring_parse(keys, strlen(keys), &box->ring, NULL), 0);
    if (secrets_create(kit->store, box->ring, plain, &box->secrets, &err) < 0)
        fail_msg("%s", err.message);
}

static void box_close(struct safe *box)
{
    secrets_destroy(box->secrets);
    keyring_destroy(box->ring);
}

static void box_reopen(struct kit *kit, struct safe *box, const char *keys, bool plain)
{
    box_close(box);
    kit_reopen(kit);
    box_open(kit, box, keys, plain);
}

static void on_changed(void *ctx, const struct object *secret, const struct brig_err *err)
{
    (void)secret;
    on_done(ctx, err);
}

static int put_with(struct safe *box, const char *org, const char *name, const char *value, size_t len,
                    const char *rule, struct answer *answer, struct brig_err *err)
{
    struct json_doc *doc = NULL;

    if (rule)
        assert_int_equal(json_read(rule, strlen(rule), 1000, &doc, NULL), 0);
    int r = secrets_put(box->secrets, org, name, value, len, doc ? json_root(doc) : NULL, on_changed, answer, err);
    json_doc_free(doc);
    return r;
}

static void put(struct kit *kit, struct safe *box, const char *org, const char *name, const char *value,
                const char *rule)
{
    struct answer answer = {0};
    struct brig_err err = {0};

    if (put_with(box, org, name, value, strlen(value), rule, &answer, &err) < 0)
        fail_msg("%s", err.message);
    kit_wait_ok(kit, &answer, 1);
}

static void assert_value(const struct safe *box, const char *org, const char *name, const char *value)
{
    uint8_t *out = NULL;
    size_t len = 0;
    struct brig_err err = {0};

    if (secrets_reveal(box->secrets, org, name, &out, &len, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(len, strlen(value));
    assert_string_equal((char *)out, value);
    crypto_secret_free(out, len);
}

static void assert_shut(const struct safe *box, const char *org, const char *name, int error, const char *part)
{
    uint8_t *out = NULL;
    size_t len = 0;
    struct brig_err err = {0};

    assert_int_equal(secrets_reveal(box->secrets, org, name, &out, &len, &err), error);
    assert_null(out);
    if (!strstr(err.message, part))
        fail_msg("%s", err.message);
    assert_null(strstr(err.message, "hunter2"));
}

static void test_store_and_find(void **state)
{
    struct kit *kit = *state;
    struct safe box;

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    box_open(kit, &box, K1, false);
    assert_true(secrets_can_store(box.secrets));
    put(kit, &box, "org-1", "GITHUB", VALUE, RULE);
    put(kit, &box, "org-1", "PLAINTEXT_OK", "x", NULL);
    put(kit, &box, "org-2", "GITHUB", "other", NULL);
    for (int again = 0; again < 2; again++) {
        const struct secret_info *info = secrets_find(box.secrets, "org-1", "GITHUB");
        assert_non_null(info);
        assert_true(info->brokered);
        assert_string_equal(info->rule.field, "Authorization");
        assert_string_equal(info->key_id, "k1");
        assert_int_equal(info->size, strlen(VALUE));
        assert_true(info->created_at_ns > 0);
        assert_value(&box, "org-1", "GITHUB", VALUE);
        assert_value(&box, "org-2", "GITHUB", "other");
        assert_null(secrets_find(box.secrets, "org-1", "github"));
        assert_null(secrets_find(box.secrets, "org-3", "GITHUB"));
        assert_shut(&box, "org-3", "GITHUB", -ENOENT, "secret GITHUB not found");
        box_reopen(kit, &box, K1, false);
    }
    int64_t created = secrets_find(box.secrets, "org-1", "GITHUB")->created_at_ns;
    put(kit, &box, "org-1", "GITHUB", "new", NULL);
    assert_value(&box, "org-1", "GITHUB", "new");
    assert_false(secrets_find(box.secrets, "org-1", "GITHUB")->brokered);
    assert_int_equal(secrets_find(box.secrets, "org-1", "GITHUB")->created_at_ns, created);

    struct answer answer = {0};
    struct brig_err err = {0};
    assert_int_equal(objects_delete(secrets_objects(box.secrets), "org-1", "none", on_changed, &answer, &err), -ENOENT);
    assert_int_equal(objects_delete(secrets_objects(box.secrets), "org-1", "GITHUB", on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_null(secrets_find(box.secrets, "org-1", "GITHUB"));
    objects_forget_org(secrets_objects(box.secrets), "org-1");
    assert_null(secrets_find(box.secrets, "org-1", "PLAINTEXT_OK"));
    assert_non_null(secrets_find(box.secrets, "org-2", "GITHUB"));
    box_reopen(kit, &box, K1, false);
    assert_null(secrets_find(box.secrets, "org-1", "GITHUB"));
    box_close(&box);
}

static const char *names_after(const struct safe *box, const char *after)
{
    static char text[256];
    size_t len = 0;

    text[0] = '\0';
    for (const struct object *object = objects_after(secrets_objects(box->secrets), "org-1", after); object;
         object = object->next) {
        assert_string_equal(secret_info_of(object)->name, object->id);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s ", object->id);
    }
    return text;
}

static void test_each(void **state)
{
    static const char *const names[] = {"b", "a", "B", "c", "a.b", "stop", "z"};
    struct kit *kit = *state;
    struct safe box;

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-10");
    box_open(kit, &box, K1, false);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        put(kit, &box, "org-1", names[i], "v", NULL);
    put(kit, &box, "org-10", "foreign", "v", NULL);
    for (int again = 0; again < 2; again++) {
        assert_string_equal(names_after(&box, NULL), "B a a.b b c stop z ");
        assert_string_equal(names_after(&box, "a.b"), "b c stop z ");
        assert_string_equal(names_after(&box, "bb"), "c stop z ");
        assert_string_equal(names_after(&box, "stop"), "z ");
        assert_string_equal(names_after(&box, "z"), "");
        box_reopen(kit, &box, K1, false);
    }
    box_close(&box);
}

/* The row of one into the place of another, as somebody with the data base but without the key would. */
static void test_moved_rows(void **state)
{
    struct kit *kit = *state;
    struct safe box;

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    box_open(kit, &box, K1, false);
    put(kit, &box, "org-1", "A", VALUE, NULL);
    put(kit, &box, "org-1", "B", "b", NULL);
    put(kit, &box, "org-2", "A", "2", NULL);
    kit_close(kit);
    kit_exec(kit,
             "UPDATE objects SET doc = (SELECT doc FROM objects WHERE org_id = 'org-1' AND name = 'A') WHERE org_id = "
             "'org-2' AND name = 'A'");
    kit_exec(kit,
             "UPDATE objects SET doc = (SELECT doc FROM objects WHERE org_id = 'org-1' AND name = 'A') WHERE org_id = "
             "'org-1' AND name = 'B'");
    box_close(&box);
    kit_open(kit);
    box_open(kit, &box, K1, false);
    assert_value(&box, "org-1", "A", VALUE);
    assert_shut(&box, "org-2", "A", -EBADMSG, "does not open");
    assert_shut(&box, "org-1", "B", -EBADMSG, "does not open");

    kit_close(kit); /* one bit of the sealed bytes */
    kit_exec(kit,
             "UPDATE objects SET doc = replace(doc, '\"sealed\":\"', '\"sealed\":\"AAAA') WHERE name = 'A' AND org_id "
             "= 'org-1'");
    box_close(&box);
    kit_open(kit);
    box_open(kit, &box, K1, false);
    assert_shut(&box, "org-1", "A", -EBADMSG, "does not open");
    box_close(&box);
}

static void test_damaged_rows(void **state)
{
    static const char *const docs[] = {
        "{}",
        "{\"key_id\":\"k1\"}",
        "[]",
        "{\"key_id\":1,\"nonce\":\"\",\"sealed\":\"\",\"size\":1}",
        "{\"key_id\":\"k1\",\"nonce\":\"AAAA\",\"sealed\":\"AAAA\",\"size\":1,\"broker\":null}",
        "{\"key_id\":\"k1\",\"nonce\":\"AAAAAAAAAAAAAAAA\",\"sealed\":\"A\",\"size\":1,\"broker\":null}",
        "{\"key_id\":\"k1\",\"nonce\":\"AAAAAAAAAAAAAAAA\",\"sealed\":\"AAAA\",\"size\":1,\"broker\":{}}",
        "{\"key_id\":\"k1\",\"nonce\":\"AAAAAAAAAAAAAAAA\",\"sealed\":\"AAAA\",\"size\":-1,\"broker\":null}",
        "not json"};
    struct kit *kit = *state;

    kit_put_org(kit, "org-1");
    for (size_t i = 0; i < ARRAY_SIZE(docs); i++) {
        struct store_object row = {.kind = "secret", .org_id = "org-1", .name = "A", .version = 1, .doc = docs[i]};
        struct answer answer = {0};
        struct secrets *secrets = NULL;
        struct brig_err err = {0};
        assert_int_equal(store_put_object(kit->store, &row, on_done, &answer, NULL), 0);
        kit_wait_ok(kit, &answer, 1);
        assert_int_equal(secrets_create(kit->store, NULL, false, &secrets, &err), -EBADMSG);
        assert_null(secrets);
        assert_memory_equal(err.message, DAMAGED, sizeof DAMAGED - 1);
        assert_true(i == 2 || i == 8 || strstr(err.message, DAMAGED "it is damaged"));
    }
}

static void test_keys(void **state)
{
    struct kit *kit = *state;
    struct safe box;
    struct answer answer = {0};
    struct brig_err err = {0};

    kit_put_org(kit, "org-1");
    box_open(kit, &box, K1, false);
    put(kit, &box, "org-1", "A", VALUE, RULE);
    box_reopen(kit, &box, OTHER_K1, false);
    assert_shut(&box, "org-1", "A", -EBADMSG, "key k1 is another one");
    box_reopen(kit, &box, K2, false);
    assert_shut(&box, "org-1", "A", -ENOKEY, "was sealed with key k1, which the key ring does not have");
    box_reopen(kit, &box, K2 K1, false); /* rotated: the old one still opens, the new one seals */
    assert_value(&box, "org-1", "A", VALUE);
    put(kit, &box, "org-1", "B", "b", NULL);
    assert_string_equal(secrets_find(box.secrets, "org-1", "B")->key_id, "k2");
    box_reopen(kit, &box, NULL, false); /* no key at all */
    assert_false(secrets_can_store(box.secrets));
    assert_shut(&box, "org-1", "A", -ENOKEY, "which the key ring does not have");
    assert_int_equal(put_with(&box, "org-1", "C", "c", 1, NULL, &answer, &err), -EEXIST);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "brig secret keygen > FILE"));
    assert_non_null(strstr(err.message, "key_file"));
    assert_int_equal(answer.n, 0);
    /* what cannot be read can be removed */
    assert_int_equal(objects_delete(secrets_objects(box.secrets), "org-1", "A", on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    box_close(&box);
}

struct rotated {
    struct answer answer;
    uint64_t n;
};

static void on_rotated(void *ctx, uint64_t resealed, const struct brig_err *err)
{
    struct rotated *rotated = ctx;

    rotated->n = resealed;
    on_done(&rotated->answer, err);
}

/* Sealed again while the service goes on: what is set or deleted meanwhile stays so; the old key is not needed after
 * it. */
static void test_rotation(void **state)
{
    struct kit *kit = *state;
    struct safe box;
    struct rotated rotated = {0};
    struct answer change = {0};
    char name[16];

    kit_put_org(kit, "org-1");
    box_open(kit, &box, K1, false);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "S%d", i);
        put(kit, &box, "org-1", name, name, NULL);
    }
    put(kit, &box, "org-1", "RULED", VALUE, RULE);
    box_reopen(kit, &box, K2 K1, false);
    put(kit, &box, "org-1", "S0", "newer", NULL); /* under k2 already */
    const int64_t updated = secrets_find(box.secrets, "org-1", "S5")->updated_at_ns;
    /* on its way when the rotation begins */
    assert_int_equal(put_with(&box, "org-1", "S1", "newest", 6, NULL, &change, NULL), 0);
    assert_int_equal(secrets_rotate(box.secrets, on_rotated, &rotated, NULL), 0);
    assert_int_equal(rotated.answer.n, 0); /* never from within */
    assert_int_equal(put_with(&box, "org-1", "S10", "between", 7, NULL, &change, NULL),
                     0); /* is under way when its turn comes: the old value must not be written behind it */
    assert_int_equal(put_with(&box, "org-1", "S39", "last", 4, NULL, &change, NULL), 0);
    assert_int_equal(objects_delete(secrets_objects(box.secrets), "org-1", "S38", on_changed, &change, NULL), 0);
    kit_wait_ok(kit, &rotated.answer, 1);
    kit_wait_ok(kit, &change, 4);
    assert_int_equal(rotated.n, 36); /* all but S0, and the four that were written anyway */
    assert_null(secrets_find(box.secrets, "org-1", "S38"));
    assert_int_equal(secrets_find(box.secrets, "org-1", "S5")->updated_at_ns, updated); /* the value is the same */
    box_reopen(kit, &box, K2, false);
    assert_value(&box, "org-1", "S0", "newer");
    assert_value(&box, "org-1", "S1", "newest");
    assert_value(&box, "org-1", "S5", "S5");
    assert_value(&box, "org-1", "S10", "between");
    assert_value(&box, "org-1", "S39", "last");
    assert_value(&box, "org-1", "RULED", VALUE);
    assert_true(secrets_find(box.secrets, "org-1", "RULED")->brokered);
    assert_null(secrets_find(box.secrets, "org-1", "S38"));
    rotated = (struct rotated){0};
    assert_int_equal(secrets_rotate(box.secrets, on_rotated, &rotated, NULL), 0);
    kit_wait_ok(kit, &rotated.answer, 1);
    assert_int_equal(rotated.n, 0);
    /* with a ring that has not their key: told, and nothing is lost */
    box_reopen(kit, &box, K1, false);
    rotated = (struct rotated){0};
    assert_int_equal(secrets_rotate(box.secrets, on_rotated, &rotated, NULL), 0);
    kit_wait(kit, &rotated.answer, 1);
    assert_int_equal(rotated.n, 0);
    assert_non_null(strstr(rotated.answer.err.message, "40 of secret could not be sealed again"));
    box_reopen(kit, &box, K2, false);
    assert_value(&box, "org-1", "S5", "S5");
    box_close(&box);
}

static void test_plain(void **state)
{
    struct kit *kit = *state;
    struct safe box;

    kit_put_org(kit, "org-1");
    box_open(kit, &box, NULL, true);
    put(kit, &box, "org-1", "A", VALUE, RULE);
    assert_string_equal(secrets_find(box.secrets, "org-1", "A")->key_id, "plain");
    box_reopen(kit, &box, NULL, true);
    assert_value(&box, "org-1", "A", VALUE);
    box_reopen(kit, &box, K1, true); /* a key comes: it seals, and what was plain is read on */
    assert_value(&box, "org-1", "A", VALUE);
    put(kit, &box, "org-1", "B", "b", NULL);
    assert_string_equal(secrets_find(box.secrets, "org-1", "B")->key_id, "k1");
    /* the switch goes: a plain row is of no use, also one that was put there by others */
    box_reopen(kit, &box, K1, false);
    assert_shut(&box, "org-1", "A", -ENOKEY, "stored without encryption");
    assert_value(&box, "org-1", "B", "b");
    box_close(&box);
}

static void test_limits(void **state)
{
    static char large[SECRET_VALUE_MAX + 1];
    struct kit *kit = *state;
    struct safe box;
    struct answer answer = {0};
    struct brig_err err = {0};
    char name[32];

    memset(large, 'x', sizeof large);
    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    box_open(kit, &box, K1, false);
    assert_int_equal(put_with(&box, "org-1", "A", large, SECRET_VALUE_MAX + 1, NULL, &answer, &err), -EFBIG);
    assert_int_equal(put_with(&box, "org-1", "A", "", 0, NULL, &answer, &err), -EINVAL);
    assert_int_equal(put_with(&box, "org-1", "9", "x", 1, NULL, &answer, &err), -EINVAL);
    assert_int_equal(put_with(&box, "org-1", "A", "a\nb", 3, RULE, &answer, &err), -EINVAL); /* another header */
    assert_int_equal(put_with(&box, "org-1", "A", "a\0b", 3, RULE, &answer, &err), -EINVAL);
    assert_int_equal(put_with(&box, "org-1", "A", "a:b", 3, "{\"hosts\":[\"a.b\"],\"basic\":\"user\"}", &answer, &err),
                     -EINVAL);
    assert_int_equal(
        put_with(&box, "org-1", "A", "AKIA", 4, "{\"hosts\":[\"a.b\"],\"kind\":\"aws-sigv4\"}", &answer, &err),
        -EINVAL);
    assert_int_equal(
        put_with(&box, "org-1", "A", "AKIA:", 5, "{\"hosts\":[\"a.b\"],\"kind\":\"aws-sigv4\"}", &answer, &err),
        -EINVAL);
    assert_int_equal(
        put_with(&box, "org-1", "A", "AKIA:s:", 7, "{\"hosts\":[\"a.b\"],\"kind\":\"aws-sigv4\"}", &answer, &err),
        -EINVAL);
    assert_int_equal(put_with(&box, "org-1", "A", "x", 1, "{\"hosts\":[\"a.b\"]}", &answer, &err), -EINVAL);
    assert_int_equal(put_with(&box, "org-none", "A", "x", 1, NULL, &answer, &err), 0); /* the store says no */
    kit_wait(kit, &answer, 1);
    assert_int_equal(answer.err.code, BRIG_E_CONFLICT);
    assert_null(secrets_find(box.secrets, "org-none", "A"));
    put(kit, &box, "org-1", "S3", "AKIA:secret:token", "{\"hosts\":[\"a.b\"],\"kind\":\"aws-sigv4\"}");
    answer = (struct answer){0};
    assert_int_equal(put_with(&box, "org-1", "LARGE", large, SECRET_VALUE_MAX, NULL, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    answer = (struct answer){0};
    for (unsigned i = 2; i < SECRETS_PER_ORG; i++) {
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(put_with(&box, "org-1", name, "v", 1, NULL, &answer, &err), 0);
    }
    assert_int_equal(put_with(&box, "org-1", "more", "v", 1, NULL, &answer, &err), -EAGAIN); /* those under way count */
    kit_wait_ok(kit, &answer, SECRETS_PER_ORG - 2);
    assert_int_equal(put_with(&box, "org-1", "more", "v", 1, NULL, &answer, &err), -EAGAIN);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    put(kit, &box, "org-1", "n5", "again", NULL); /* replacing is none more */
    put(kit, &box, "org-2", "more", "v", NULL);
    box_close(&box);
}

static void test_slot(void **state)
{
    struct kit *kit = *state;
    struct safe box;
    AUTO_BUF struct buf out = BUF_INIT(1u << 16);
    struct json json = JSON_INIT(&out);
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    char one[PLACEHOLDER_LEN + 1], two[PLACEHOLDER_LEN + 1];

    secrets_placeholder(one);
    secrets_placeholder(two);
    assert_int_equal(strlen(one), PLACEHOLDER_LEN);
    assert_memory_equal(one, "brig-secret-", 12);
    assert_string_not_equal(one, two);
    kit_put_org(kit, "org-1");
    box_open(kit, &box, K1, false);
    put(kit, &box, "org-1", "A", VALUE, RULE);
    put(kit, &box, "org-1", "BARE", VALUE, NULL);
    assert_int_equal(secrets_put_slot(box.secrets, "org-1", "BARE", one, &json, &err), -EPERM);
    assert_non_null(strstr(err.message, "--expose"));
    assert_int_equal(secrets_put_slot(box.secrets, "org-2", "A", one, &json, &err), -ENOENT);
    assert_int_equal(secrets_put_slot(box.secrets, "org-1", "A", one, &json, &err), 0);
    assert_int_equal(json_finish(&json), 0);
    assert_null(strstr(out.data, "hunter2"));

    /* As brig-egress will: sealed, nonce and context as they stand there. */
    assert_int_equal(json_read(out.data, out.len, 1000, &doc, NULL), 0);
    const struct json_value *root = json_root(doc);
    struct sealed sealed = {0};
    uint8_t data[256], *value = NULL;
    size_t len = 0;
    snprintf(sealed.key_id, sizeof sealed.key_id, "%s", json_get(root, "key_id")->string);
    assert_int_equal(
        crypto_unbase64(json_get(root, "nonce")->string, json_get(root, "nonce")->len, sealed.nonce, SEAL_NONCE, &len),
        0);
    assert_int_equal(len, SEAL_NONCE);
    assert_int_equal(crypto_unbase64(json_get(root, "sealed")->string, json_get(root, "sealed")->len, data, sizeof data,
                                     &sealed.len),
                     0);
    sealed.data = data;
    assert_string_equal(json_get(root, "context")->string, "org-1\nA");
    assert_string_equal(json_get(root, "placeholder")->string, one);
    assert_int_equal(keyring_open(box.ring, json_get(root, "context")->string, &sealed, &value, &len), 0);
    assert_string_equal((char *)value, VALUE);
    crypto_secret_free(value, len);
    json_doc_free(doc);

    box_reopen(kit, &box, K2, false); /* a sandbox is refused at once, not at its first request */
    assert_int_equal(secrets_put_slot(box.secrets, "org-1", "A", one, &json, &err), -ENOKEY);
    box_close(&box);
}

/*
 * Nothing of a value in the data base's files; with the switch it is there, which shows that the search would find it.
 */
static void test_files(void **state)
{
    struct kit *kit = *state;
    struct safe box;

    if (kit->pg)
        return; /* its files are the server's; what is sent is the same */
    kit_put_org(kit, "org-1");
    for (int plain = 0; plain < 2; plain++) {
        bool found = false;
        box_open(kit, &box, plain ? NULL : K1, plain);
        put(kit, &box, "org-1", plain ? "P" : "S", VALUE, RULE);
        static const char *const ends[] = {"", "-wal"};
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
            AUTO_BUF struct buf text = BUF_INIT(64u << 20);
            char path[128];
            snprintf(path, sizeof path, "%s%s", kit->path, ends[i]);
            kit_read_file(path, &text);
            /* also as base64, at each of its three phases */
            found = found || memmem(text.data, text.len, "hunter2", 7) || memmem(text.data, text.len, "aHVudGVyM", 9) ||
                    memmem(text.data, text.len, "h1bnRlcj", 8) || memmem(text.data, text.len, "odW50ZXIy", 9);
        }
        assert_int_equal(found, plain);
        box_close(&box);
        kit_reopen(kit);
    }
}

static void test_no_memory(void **state)
{
    struct kit *kit = *state;
    struct safe box;

    kit_put_org(kit, "org-1");
    box_open(kit, &box, K1, false);
    for (size_t n = 0;; n++) {
        struct answer answer = {0};
        struct brig_err err = {0};
        struct json_doc *doc = NULL;
        assert_int_equal(json_read(RULE, strlen(RULE), 1000, &doc, NULL), 0);
        mem_fail_after(n);
        int r = secrets_put(box.secrets, "org-1", "A", VALUE, strlen(VALUE), json_root(doc), on_changed, &answer, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        json_doc_free(doc);
        if (r == 0)
            kit_wait(kit, &answer, 1); /* the writer's thread may have been short of memory as well */
        else
            assert_int_equal(err.code, BRIG_E_NOMEM);
        if (!failed)
            break;
    }
    assert_value(&box, "org-1", "A", VALUE);
    box_close(&box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_CASE(test_rules),      KIT_CASE(test_rule_refusals),  KIT_CASE(test_rule_covers),
        KIT_CASE(test_names),      KIT_CASE(test_store_and_find), KIT_CASE(test_each),
        KIT_CASE(test_moved_rows), KIT_CASE(test_damaged_rows),   KIT_CASE(test_keys),
        KIT_CASE(test_rotation),   KIT_CASE(test_plain),          KIT_CASE(test_limits),
        KIT_CASE(test_slot),       KIT_CASE(test_files),          KIT_CASE(test_no_memory),
    };

    return kit_run("secrets", tests, ARRAY_SIZE(tests), true);
}
