/* SPDX-License-Identifier: Apache-2.0 */
/* Logins from Docker's config.json. */
#include "unit.h"

#include "base/buf.h"
#include "base/str.h"
#include "codec/docker_login.h"

/* me:p:w, and x:y */
#define CONFIG                                                                                                   \
    "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"bWU6cDp3\"},\"r.example:5000\":{\"auth\":\"eDp5\"," \
    "\"identitytoken\":\"tok\"},\"helped.example\":{},\"token.example\":{\"identitytoken\":\"t\"}},"             \
    "\"credsStore\":\"desktop\",\"credHelpers\":{\"gcr.io\":\"gcloud\"}}"

static int note(void *ctx, const struct docker_login *login, struct brig_err *err)
{
    (void)err;
    return buf_printf(ctx, "%s|%s|%s\n", login->host, login->user, login->password) < 0 ? -ENOMEM : 0;
}

static int refuse(void *ctx, const struct docker_login *login, struct brig_err *err)
{
    (void)login, (void)err;
    ++*(int *)ctx;
    return -EPERM;
}

static void logins_are_found(void **state)
{
    (void)state;
    AUTO_BUF struct buf seen = BUF_INIT(4096);
    struct brig_err err = {0};
    int calls = 0;

    assert_int_equal(docker_logins_read(CONFIG, strlen(CONFIG), note, &seen, &err), 3);
    assert_string_equal(seen.data, "docker.io|me|p:w\nr.example:5000|<token>|tok\ntoken.example|<token>|t\n");
    assert_int_equal(docker_logins_read("{}", 2, note, &seen, &err), 0);
    assert_int_equal(docker_logins_read("{\"auths\":{}}", 12, note, &seen, &err), 0);
    assert_int_equal(docker_logins_read(CONFIG, strlen(CONFIG), refuse, &calls, &err), -EPERM);
    assert_int_equal(calls, 1);
    assert_string_equal(docker_login_host("registry-1.docker.io"), "docker.io");
    assert_string_equal(docker_login_host("docker.io.example"), "docker.io.example");
}

static void others_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"{\"auths\":{\"a.b\":{}},\"credsStore\":\"x\"}",
         "Docker's config.json: its logins are kept by a helper program, which is not run"},
        {"{\"credHelpers\":{\"gcr.io\":\"gcloud\"}}",
         "Docker's config.json: its logins are kept by a helper program, which is not run"},
        {"[]", "Docker's config.json is no JSON object of at most 1048576 bytes"},
        {"{\"auths\":{\"/\":{\"auth\":\"eDp5\"}}}", "Docker's config.json: auths: / is no host"},
        {"{\"auths\":{\"a.b\":{\"auth\":\"se cret\"}}}", "Docker's config.json: auth of a.b is no base64"},
        {"{\"auths\":{\"a.b\":{\"auth\":\"c2VjcmV0\"}}}", "Docker's config.json: auth of a.b is no USER:PASSWORD"},
        {"{\"auths\":{\"a.b\":{\"auth\":\"YToAYg==\"}}}", "Docker's config.json: auth of a.b is no USER:PASSWORD"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        AUTO_BUF struct buf seen = BUF_INIT(4096);
        struct brig_err err = {0};
        assert_true(docker_logins_read(rows[i].text, strlen(rows[i].text), note, &seen, &err) < 0);
        assert_string_equal(err.message, rows[i].why);
        assert_int_equal(seen.len, 0);
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
