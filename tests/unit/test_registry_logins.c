/* SPDX-License-Identifier: Apache-2.0 */
/* The registry client and logins: challenges, tokens, and token servers that are wrong. */
#include "registry_image.h"

/* ---- Bearer ----------------------------------------------------------------------------------------------- */

struct gate {
    const struct image *image;
    struct rig_server *tokens; /* the token server */
    atomic_int serial;         /* of the token that is good */
    atomic_bool strict;        /* the next use of a token is refused once */
};

static void gated(struct rig_server *server, struct rig_request *rq)
{
    struct gate *gate = server->ctx;
    char field[256], auth[128], good[64];

    (void)!str_format(good, sizeof good, "Bearer token%d", atomic_load(&gate->serial));
    rig_field(rq->head, "Authorization", auth, sizeof auth);
    if (str_eq(auth, good)) {
        serve(gate->image, rq);
        return;
    }
    (void)!str_format(field, sizeof field,
                      "WWW-Authenticate: Bearer realm=\"http://%s/token\",service=\"the service\",scope=\"repository:a/"
                      "b:pull\"\r\n",
                      gate->tokens->host);
    rig_answer(rq, 401, field, "{}", 2);
}

enum token_kind {
    TOKEN_GOOD,
    TOKEN_ACCESS,
    TOKEN_STALE,
    TOKEN_GARBAGE,
    TOKEN_NEWLINE,
    TOKEN_NONE,
    TOKEN_DENIED,
    TOKEN_ENDLESS,
    TOKEN_BUSY_ONCE,
};

static void give_token(struct rig_server *server, struct rig_request *rq)
{
    struct gate *gate = server->ctx;
    char text[256];
    int serial = atomic_load(&gate->serial);

    switch ((enum token_kind)server->value) {
    case TOKEN_ACCESS: (void)!str_format(text, sizeof text, "{\"access_token\":\"token%d\"}", serial); break;
    case TOKEN_STALE: str_cut(text, sizeof text, "{\"token\":\"old\"}"); break;
    case TOKEN_GARBAGE: str_cut(text, sizeof text, "<html>"); break;
    case TOKEN_NEWLINE: str_cut(text, sizeof text, "{\"token\":\"a\\r\\nX-Evil: 1\"}"); break;
    case TOKEN_NONE: str_cut(text, sizeof text, "{\"token\":7}"); break;
    case TOKEN_DENIED: rig_answer(rq, 401, "", "{}", 2); return;
    case TOKEN_ENDLESS: pour(rq, "HTTP/1.1 200 OK\r\n\r\n"); return;
    case TOKEN_BUSY_ONCE:
        server->value = TOKEN_GOOD;
        rig_answer(rq, 503, "", "", 0);
        return;
    default: (void)!str_format(text, sizeof text, "{\"token\":\"token%d\",\"expires_in\":300}", serial);
    }
    rig_answer(rq, 200, "Content-Type: application/json\r\n", text, strlen(text));
}

static void tokens_are_fetched_and_kept(void **state)
{
    (void)state;
    static const char *const words[] = {"me", "pass:word", NULL};
    struct image image;
    struct gate gate = {.image = &image};
    struct rig rig;
    struct rig_result result;

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(gated, &gate), *tokens = rig_serve(give_token, &gate);
    gate.tokens = tokens;
    rig_init(&rig);
    rig_open(&rig);
    rig_pull(&rig, at(server, ":1"), words, &result);
    check_image(&result, &image);
    rig_pull(&rig, at(server, ":1"), words, &result);
    check_image(&result, &image);
    assert_int_equal(tokens->n_seen, 1); /* one for six requests */
    assert_int_equal(rig_count(tokens, "GET /token?service=the%20service&scope=repository%3Aa%2Fb%3Apull&account=me "),
                     1);
    assert_int_equal(rig_count(tokens, "Authorization: Basic bWU6cGFzczp3b3Jk\r\n"), 1);
    assert_int_equal(rig_count(server, "Basic"), 0); /* the password goes to the token server alone */
    atomic_store(&gate.serial, 1);                   /* what is kept is not good any more */
    rig_pull(&rig, at(server, ":1"), words, &result);
    check_image(&result, &image);
    assert_int_equal(tokens->n_seen, 2);
    rig_pull(&rig, at(server, ":1"), NULL, &result); /* another login has a token of its own */
    check_image(&result, &image);
    assert_int_equal(tokens->n_seen, 3);
    rig_done(&rig);
    rig_stop(server);
    rig_stop(tokens);
}

static void an_identity_token_is_posted(void **state)
{
    (void)state;
    static const char *const words[] = {NULL, NULL, "refresh&me"};
    struct image image;
    struct gate gate = {.image = &image};
    struct rig rig;
    struct rig_result result;

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(gated, &gate), *tokens = rig_serve(give_token, &gate);
    gate.tokens = tokens;
    tokens->value = TOKEN_ACCESS;
    rig_init(&rig);
    rig_open(&rig);
    rig_pull(&rig, at(server, ":1"), words, &result);
    check_image(&result, &image);
    assert_int_equal(rig_count(tokens, "POST /token "), 1);
    assert_int_equal(rig_count(tokens, "refresh"), 0); /* not in an address that servers log */
    rig_done(&rig);
    rig_stop(server);
    rig_stop(tokens);
}

static void wrong_token_servers(void **state)
{
    (void)state;
    static const struct {
        enum token_kind kind;
        int code;
        const char *says;
    } rows[] = {
        {TOKEN_STALE, BRIG_E_FORBIDDEN, "wants a login, or has no such image"},
        {TOKEN_GARBAGE, BRIG_E_INVALID, "its token server gave no token"},
        {TOKEN_NEWLINE, BRIG_E_INVALID, "its token server gave no token"},
        {TOKEN_NONE, BRIG_E_INVALID, "its token server gave no token"},
        {TOKEN_DENIED, BRIG_E_FORBIDDEN, "wants a login, or has no such image"},
        {TOKEN_ENDLESS, BRIG_E_TOO_LARGE, "its answer has more than 65536 bytes"},
        {TOKEN_BUSY_ONCE, 0, NULL},
    };
    struct image image;
    struct gate gate = {.image = &image};

    image_make(&image, "amd64");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rig rig;
        struct rig_result result;
        struct rig_server *server = rig_serve(gated, &gate), *tokens = rig_serve(give_token, &gate);
        gate.tokens = tokens;
        tokens->value = (int)rows[i].kind;
        rig_init(&rig);
        rig_open(&rig);
        rig_pull(&rig, at(server, ":1"), NULL, &result);
        if (!rows[i].says) {
            check_image(&result, &image);
        } else {
            assert_null(result.image);
            assert_int_equal(result.err.code, rows[i].code);
            if (!strstr(result.err.message, rows[i].says))
                fail_msg("row %zu: %s", i, result.err.message);
        }
        assert_int_equal(rig_count(server, "X-Evil"), 0);
        rig_done(&rig);
        rig_stop(server);
        rig_stop(tokens);
    }
}

/* ---- other challenges ------------------------------------------------------------------------------------- */

struct asking {
    const struct image *image;
    const char *challenge, *good;
};

static void asks(struct rig_server *server, struct rig_request *rq)
{
    const struct asking *asking = server->ctx;
    char field[512], auth[256];

    rig_field(rq->head, "Authorization", auth, sizeof auth);
    if (str_eq(auth, asking->good)) {
        serve(asking->image, rq);
        return;
    }
    (void)!str_format(field, sizeof field, "WWW-Authenticate: %s\r\n", asking->challenge);
    rig_answer(rq, 401, field, "", 0);
}

static void challenges(void **state)
{
    (void)state;
    static const char *const words[] = {"me", "pw", NULL};
    static const struct {
        const char *challenge;
        bool login;
        const char *good, *says;
    } rows[] = {
        {"Basic realm=\"x\"", true, "Basic bWU6cHc=", NULL},
        {"Basic realm=\"x\"", true, "Basic other", "refuses the login"},
        {"Basic realm=\"x\"", false, "Basic other", "wants a login, or has no such image"},
        {"Negotiate", true, "x", "its challenge \"Negotiate\" is not supported"},
        {"Bearer service=\"x\"", true, "x", "is not supported"},
        {"Bearer realm=\"http://192.0.2.1/token\"", true, "x",
         "http is only for loopback and hosts of [templates] insecure"},
        {"Bearer realm=\"file:///etc/passwd\"", true, "x", "is no http or https address without a user"},
        {"Bearer realm=\"https://u:p@192.0.2.1/\"", true, "x", "is no http or https address without a user"},
    };
    struct image image;

    image_make(&image, "amd64");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct asking asking = {&image, rows[i].challenge, rows[i].good};
        struct rig rig;
        struct rig_result result;
        struct rig_server *server = rig_serve(asks, &asking);
        rig_init(&rig);
        rig_open(&rig);
        rig_pull(&rig, at(server, ":1"), rows[i].login ? words : NULL, &result);
        if (!rows[i].says) {
            check_image(&result, &image);
        } else {
            assert_null(result.image);
            if (!strstr(result.err.message, rows[i].says))
                fail_msg("row %zu: %s", i, result.err.message);
            assert_null(strstr(result.err.message, "pw"));
        }
        rig_done(&rig);
        rig_stop(server);
    }
}

/* ---- the parser of challenges ----------------------------------------------------------------------------- */

static void challenge_texts(void **state)
{
    (void)state;
    struct dist_challenge c;

    assert_int_equal(
        dist_challenge_parse("Bearer realm=\"https://a/t?x=\\\"1\\\"\", service=reg.io , scope=\"a b\"", &c), 0);
    assert_true(c.bearer && !c.basic);
    assert_string_equal(c.realm, "https://a/t?x=\"1\"");
    assert_string_equal(c.service, "reg.io");
    assert_string_equal(c.scope, "a b");
    assert_int_equal(dist_challenge_parse("Basic realm=\"x\", bearer REALM=\"y\", Bearer realm=\"z\"", &c), 0);
    assert_true(c.bearer && c.basic);
    assert_string_equal(c.realm, "y");
    assert_int_equal(dist_challenge_parse("", &c), 0);
    assert_false(c.bearer || c.basic);
    static const char *const bad[] = {"Bearer", "Bearer realm=\"x",  "Bearer realm=\"x\"y",
                                      "\"x\"",  "Bearer realm=\"\\", "Bearer realm=\"a\nb\"",
                                      "="};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(dist_challenge_parse(bad[i], &c), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_fetched_and_kept),
        cmocka_unit_test(an_identity_token_is_posted),
        cmocka_unit_test(wrong_token_servers),
        cmocka_unit_test(challenges),
        cmocka_unit_test(challenge_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
