/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images: every accepted form has one spelling, every other form is refused by a line with the rule. */
#include "unit.h"

#include "base/err.h"
#include "base/str.h"
#include "template/platform.h"
#include "codec/reference.h"

#define D "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void names_have_one_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *text, *spelling, *server;
    } rows[] = {
        {"debian", "docker.io/library/debian:latest", "registry-1.docker.io"},
        {"debian:12", "docker.io/library/debian:12", "registry-1.docker.io"},
        {"docker.io/debian", "docker.io/library/debian:latest", "registry-1.docker.io"},
        {"index.docker.io/library/debian", "docker.io/library/debian:latest", "registry-1.docker.io"},
        {"registry-1.docker.io/a/b", "docker.io/a/b:latest", "registry-1.docker.io"},
        {"a/b", "docker.io/a/b:latest", "registry-1.docker.io"},
        {"host:5000/a/b:tag", "host:5000/a/b:tag", "host:5000"},
        {"Registry.Example/a", "registry.example/a:latest", "registry.example"},
        {"localhost/a", "localhost/a:latest", "localhost"},
        {"127.0.0.1:5000/a@" D, "127.0.0.1:5000/a@" D, "127.0.0.1:5000"},
        {"[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000"},
        {"debian:12@" D, "docker.io/library/debian:12@" D, "registry-1.docker.io"},
        {"ghcr.io/a__b/c-d/e.f/g---h:T_1.2-3", "ghcr.io/a__b/c-d/e.f/g---h:T_1.2-3", "ghcr.io"},
        {"a.b:80", "docker.io/library/a.b:80", "registry-1.docker.io"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct image_ref ref, again;
        struct brig_err err = {0};
        char text[IMAGE_REF_TEXT];
        assert_int_equal(image_ref_parse(rows[i].text, &ref, &err), 0);
        image_ref_text(&ref, text);
        assert_string_equal(text, rows[i].spelling);
        assert_string_equal(image_ref_server(&ref), rows[i].server);
        assert_int_equal(image_ref_parse(text, &again, &err), 0);
        assert_memory_equal(&ref, &again, sizeof ref);
    }
}

#define LONG64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define PART_RULE \
    "each part of a name is letters and digits, with single dots, one or two underscores or hyphens between them"
#define HOST_RULE "a host is a name or an address, with :PORT (1 to 65535) if it needs one"
#define TAG_RULE "a tag is 1 to 128 letters, digits, _ . - and begins with no . or -"

static void bad_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rule;
    } rows[] = {
        {"", "the name is empty"},
        {"host:5000/", "the name is empty"},
        {":12", "the name is empty"},
        {"https://docker.io/debian", "a name has no scheme such as https://"},
        {"Debian", "the letters of a name are lower case"},
        {"ghcr.io/A/b", "the letters of a name are lower case"},
        {"Host/a", "the letters of a name are lower case"}, /* lower case it would be of docker.io */
        {"ghcr.io//b", PART_RULE},
        {"a/b/", PART_RULE},
        {"/a", PART_RULE},
        {"a..b", PART_RULE},
        {"a___b", PART_RULE},
        {"-a", PART_RULE},
        {"a b", PART_RULE},
        {"a/../b", PART_RULE},
        {"a%2fb", PART_RULE},
        {"a?b", PART_RULE},
        {"debian\n", PART_RULE},
        {LONG64, "64 hexadecimal digits are the number of an image, not a name"},
        {"debian:", TAG_RULE},
        {"debian:.1", TAG_RULE},
        {"debian:1:2", TAG_RULE},
        {"debian:a b", TAG_RULE},
        {"debian:" LONG64 LONG64 "a", TAG_RULE},
        {"host:/a", HOST_RULE},
        {"host:0/a", HOST_RULE},
        {"host:65536/a", HOST_RULE},
        {"host:080/a", HOST_RULE},
        {"debian:a/b", HOST_RULE},
        {"-host.x/a", HOST_RULE},
        {"host..x/a", HOST_RULE},
        {"us_er.x/a", HOST_RULE},
        {"user@host.x/a", "a digest begins with sha256:"},
        {"[::1/a", HOST_RULE},
        {"[1.2.3.4]/a", HOST_RULE},
        {"[::g]:1/a", HOST_RULE},
        {"a@sha512:00", "a digest begins with sha256:"},
        {"a@sha256:00", "a digest is sha256: and 64 lower-case hexadecimal digits"},
        {"a@" D "0", "a digest is sha256: and 64 lower-case hexadecimal digits"},
        {"a@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
         "a digest is sha256: and 64 lower-case hexadecimal digits"},
        {"x.y/" LONG64 "/" LONG64 "/" LONG64 "/" LONG64, "a name has at most 255 characters"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct image_ref ref = {.host = "untouched"};
        struct brig_err err = {0}, want = {0};
        assert_int_equal(image_ref_parse(rows[i].text, &ref, &err), -EINVAL);
        (void)err_usage(&want, "image \"%.200s\": %s", rows[i].text, rows[i].rule);
        assert_string_equal(err.message, want.message);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_string_equal(ref.host, "untouched");
    }
    char text[2000];
    struct image_ref ref;
    struct brig_err err = {0};
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(image_ref_parse(text, &ref, &err), -EINVAL);
    assert_non_null(strstr(err.message, "longer than"));
}

static void a_prefix_ends_where_a_part_ends(void **state)
{
    (void)state;
    struct image_ref ref;
    struct brig_err err = {0};

    assert_int_equal(image_ref_parse("docker.io/library/debian:12", &ref, &err), 0);
    assert_true(image_ref_below(&ref, "docker.io"));
    assert_true(image_ref_below(&ref, "docker.io/"));
    assert_true(image_ref_below(&ref, "docker.io/library"));
    assert_true(image_ref_below(&ref, "docker.io/library/debian"));
    assert_false(image_ref_below(&ref, ""));
    assert_false(image_ref_below(&ref, "/"));
    assert_false(image_ref_below(&ref, "docker.i"));
    assert_false(image_ref_below(&ref, "docker.io/library/deb"));
    assert_false(image_ref_below(&ref, "docker.io/library/debian/x"));
    assert_int_equal(image_ref_parse("docker.io.evil.example/library/debian", &ref, &err), 0);
    assert_false(image_ref_below(&ref, "docker.io"));
}

static void platforms(void **state)
{
    (void)state;
    struct platform a, b;
    struct brig_err err = {0};
    char text[PLATFORM_TEXT];

    assert_int_equal(platform_parse("linux/arm64/v8", &a, &err), 0);
    assert_int_equal(platform_parse("Linux/aarch64", &b, &err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    platform_text(&a, text);
    assert_string_equal(text, "linux/arm64");
    assert_int_equal(platform_parse("linux/arm", &a, &err), 0);
    platform_text(&a, text);
    assert_string_equal(text, "linux/arm/v7");
    assert_int_equal(platform_parse("linux/arm/v6", &b, &err), 0);
    assert_int_not_equal(platform_fit(&b, &a), 0);
    assert_int_equal(platform_fit(&a, &b), 0);
    assert_true(platform_fit(&a, &a) > platform_fit(&b, &a));
    static const char *const bad[] = {"",
                                      "linux",
                                      "linux/",
                                      "/amd64",
                                      "linux/amd64/",
                                      "linux/amd64/v1/x",
                                      "lin ux/a",
                                      "linux/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct brig_err want = {0};
        assert_int_equal(platform_parse(bad[i], &a, &err), -EINVAL);
        (void)err_usage(&want, "platform \"%s\": a platform is OS/ARCH or OS/ARCH/VARIANT, such as linux/arm64",
                        bad[i]);
        assert_string_equal(err.message, want.message);
    }
    platform_host(&a);
    assert_string_equal(a.os, "linux");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_one_spelling),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(a_prefix_ends_where_a_part_ends),
        cmocka_unit_test(platforms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
