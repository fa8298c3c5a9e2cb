/* SPDX-License-Identifier: Apache-2.0 */
/* Logins from Docker's config.json. */
#include "unit.h"

#include "base/str.h"
#include "template/docker_login.h"

/* me:p:w, and x:y */
#define CONFIG                                                                                                   \
    "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"bWU6cDp3\"},\"r.example:5000\":{\"auth\":\"eDp5\"," \
    "\"identitytoken\":\"tok\"},\"helped.example\":{},\"token.example\":{\"identitytoken\":\"t\"}},"             \
    "\"credsStore\":\"desktop\",\"credHelpers\":{\"gcr.io\":\"gcloud\"}}"

static void logins_are_found(void **state)
{
    (void)state;
    struct docker_login found = {0};
    struct brig_err err = {0};

    assert_int_equal(docker_login_find(CONFIG, strlen(CONFIG), "docker.io", &found, &err), 1);
    assert_string_equal(found.login.user, "me");
    assert_string_equal(found.login.password, "p:w");
    assert_null(found.login.identity_token);
    docker_login_done(&found);
    assert_int_equal(docker_login_find(CONFIG, strlen(CONFIG), "r.example:5000", &found, &err), 1);
    assert_string_equal(found.login.user, "x");
    assert_string_equal(found.login.identity_token, "tok");
    docker_login_done(&found);
    assert_int_equal(docker_login_find(CONFIG, strlen(CONFIG), "token.example", &found, &err), 1);
    assert_null(found.login.user);
    assert_string_equal(found.login.identity_token, "t");
    docker_login_done(&found);
    assert_int_equal(docker_login_find(CONFIG, strlen(CONFIG), "r.example", &found, &err), 0);
    assert_int_equal(docker_login_find("{}", 2, "r.example", &found, &err), 0);
}

static void others_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *why;
    } rows[] = {
        {CONFIG, "gcr.io", "Docker's config.json: the login of gcr.io is kept by a helper program, which is not run"},
        {CONFIG, "helped.example",
         "Docker's config.json: the login of helped.example is kept by a helper program, which is not run"},
        {"[]", "a.b", "Docker's config.json is no JSON object of at most 1048576 bytes"},
        {"{\"auths\":{\"a.b\":{\"auth\":\"se cret\"}}}", "a.b", "Docker's config.json: auth of a.b is no base64"},
        {"{\"auths\":{\"a.b\":{\"auth\":\"c2VjcmV0\"}}}", "a.b",
         "Docker's config.json: auth of a.b is no USER:PASSWORD"},
        {"{\"auths\":{\"a.b\":{\"auth\":\"YToAYg==\"}}}", "a.b",
         "Docker's config.json: auth of a.b is no USER:PASSWORD"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct docker_login found = {0};
        struct brig_err err = {0};
        assert_true(docker_login_find(rows[i].text, strlen(rows[i].text), rows[i].host, &found, &err) < 0);
        assert_string_equal(err.message, rows[i].why);
        assert_null(found.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logins_are_found),
        cmocka_unit_test(others_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
