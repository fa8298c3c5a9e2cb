/* SPDX-License-Identifier: Apache-2.0 */
/* The package indexes of a host: which files and variables count, that broken ones do no harm, that no password gets
 * out. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/str.h"
#include "gate/apt_sources.h"
#include "gate/policy.h"

static char top[] = "/tmp/brig-packages-XXXXXX";

static void put_file(const char *path, const char *text)
{
    char full[512];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        assert_true(str_format(full, sizeof full, "%s/%.*s", top, (int)(slash - path), path) > 0);
        if (mkdir(full, 0755) < 0)
            assert_int_equal(errno, EEXIST);
    }
    assert_true(str_format(full, sizeof full, "%s/%s", top, path) > 0);
    FILE *file = fopen(full, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int setup(void **state)
{
    (void)state;
    unit_put(top + sizeof top - 7, "XXXXXX", 6);
    return mkdtemp(top) ? 0 : -1;
}

static int remove_below(int dir)
{
    DIR *list = fdopendir(dir);
    const struct dirent *entry;

    while (list && (entry = readdir(list))) {
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
            continue;
        int inner = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0)
            remove_below(inner);
        unlinkat(dirfd(list), entry->d_name, inner >= 0 ? AT_REMOVEDIR : 0);
    }
    return list ? closedir(list) : -1;
}

static int teardown(void **state)
{
    (void)state;
    int r = remove_below(open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return r == 0 ? rmdir(top) : r;
}

/* What comes out must compile, whatever went in. */
static void make(struct buf *out, char *const *env)
{
    AUTO_FD int root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct policy *policy = NULL;
    struct brig_err err = {0};

    assert_int_equal(packages_rules(root, "/home/u", env, out, &err), 0);
    assert_int_equal(policy_preset("packages", out->data, &text, &err), 0);
    if (policy_compile_text(text.data, text.len, &policy, &err) < 0)
        fail_msg("%s: %s", out->data, err.message);
    policy_unref(policy);
}

static void has(const struct buf *out, const char *host, const char *ports)
{
    char rule[400];

    snprintf(rule, sizeof rule, "{\"action\":\"allow\",\"%s\",\"ports\":[%s]}", host, ports);
    if (!strstr(out->data, rule))
        fail_msg("%s is missing: %s", rule, out->data);
}

static void test_nothing(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 16), none = BUF_INIT(1u << 16);
    struct brig_err err;

    (void)state;
    make(&out, NULL);
    has(&out, "domain\":\"pypi.org", "80,443");
    has(&out, "domain\":\"index.crates.io", "80,443");
    assert_int_equal(packages_rules(-1, NULL, NULL, &none, &err), 0);
    assert_string_equal(out.data, none.data);
}

static void test_files(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 16);

    (void)state;
    put_file("etc/pip.conf",
             "[global]\nindex-url = https://user:s3cret@Pip.Example:8443/simple\nextra_index_url =\n"
             "    http://extra1.example/x\n\thttps://extra2.example/simple?x=1\n"
             "# index-url = http://comment.example\ntimeout = 5\ntrusted-host = http://nothost.example\n[install]\n"
             "find-links = https://links.example/a /local/dir\n");
    put_file("etc/xdg/pip/pip.conf", "[global]\r\nindex-url=https://xdg.example/simple\r\n");
    put_file("home/u/.config/pip/pip.conf", "[global]\nindex-url: x\nindex-url = https://home.example/\n");
    put_file("home/u/.pip/pip.conf", "index-url=http://[2001:db8::5]:8080/simple\n");
    put_file("etc/npmrc", "registry=https://npm.example/\n//npm.example/:_authToken=topsecret\n"
                          "@acme:registry = \"http://10.1.2.3:4873/\"\nproxy=http://proxy.example\n");
    put_file("usr/etc/npmrc", "registry=${REG}\n");
    put_file("home/u/.npmrc", "registry=https://token@homenpm.example:443/x/\n");
    put_file(
        "etc/apt/sources.list",
        "# deb http://off.example/ x\ndeb [ arch=amd64 signed-by=/x.gpg ] http://apt1.example/debian bookworm main # "
        "http://c.example\n"
        "deb-src https://apt2.example/debian bookworm main\ndeb cdrom:[x]/ bookworm main\ndebug http://no.example\n");
    put_file("etc/apt/sources.list.d/a.list", "deb http://apt3.example/ x main\n");
    put_file("etc/apt/sources.list.d/b.sources",
             "Types: deb\nURIs: http://apt4.example/debian\n https://apt5.example/debian\nSuites: x\n"
             "Signed-By: http://no.example\n\n"
             "Types: deb\nEnabled: no\nURIs: http://off.example/debian\n\nTypes: deb\nURIs: http://apt6.example\n");
    put_file("etc/apt/sources.list.d/c.save", "deb http://off.example/ x main\n");
    put_file("home/u/.config/uv/uv.toml",
             "[[index]]\nname = \"x\"\nurl = \"https://uv.example/simple\"\n[pip]\n"
             "extra-index-url = [\"https://uv2.example/a\",\n  \"https://uv3.example/b\"]\n");
    put_file("home/u/.cargo/config.toml", "[source.mirror]\nregistry = \"sparse+https://cargo.example/index/\"\n");
    make(&out, NULL);
    has(&out, "domain\":\"pip.example", "8443");
    has(&out, "cidr\":\"2001:db8::5", "8080");
    has(&out, "cidr\":\"10.1.2.3", "4873");
    has(&out, "domain\":\"homenpm.example", "443");
    static const char *const hosts[] = {"extra1", "extra2", "links", "xdg",  "home", "npm", "apt1", "apt2",
                                        "apt3",   "apt4",   "apt5",  "apt6", "uv",   "uv2", "uv3",  "cargo"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        char member[64];
        snprintf(member, sizeof member, "domain\":\"%s.example", hosts[i]);
        has(&out, member, "80,443");
    }
    static const char *const never[] = {"s3cret",        "user", "token",      "topsecret",   "comment.", "nothost",
                                        "proxy.example", "off.", "no.example", "c.example\"", "REG"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
        if (strstr(out.data, never[i]))
            fail_msg("%s in %s", never[i], out.data);
    }
}

static void test_apt_sources(void **state)
{
    AUTO_FD int root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_BUF struct buf out = BUF_INIT(65536), large = BUF_INIT(65536);

    (void)state;
    put_file("etc/apt/sources.list", "# a comment\ndeb http://one.example/debian suite main extra # more\n"
                                     "deb-src http://one.example/debian suite main\n"
                                     "deb http://me:word@two.example/ suite main\n"
                                     "deb [signed-by=/etc/other.gpg] http://other.example/ suite main\n"
                                     "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg.x] "
                                     "http://prefix.example/ suite main\n"
                                     "deb [ arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg ] "
                                     "http://ours.example/ suite main\n"
                                     "deb file:/srv/x suite main\n");
    put_file("etc/apt/sources.list.d/b.sources",
             "Types: deb deb-src\nURIs: http://three.example/a\n https://four.example/b\nSuites: s s-updates\n"
             "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n"
             "Types: deb\nURIs: http://off.example/\nSuites: s\nEnabled: no\n\n"
             "Types: deb\nURIs: http://off.example/\nSuites: s\nEnabled: False\n\n"
             "Types: deb\nURIs: http://off.example/\nSuites: s\nEnabled: off\n\n"
             "Types: deb\nURIs: http://off.example/\nSuites: s\nEnabled: disable\n\n"
             "Types: deb\nURIs: http://mine.example/\nSuites: s\nSigned-By: /etc/mine.gpg\n");
    assert_int_equal(buf_printf(&large, "Types: deb\nURIs: http://mine.example/\nSuites: s\nSigned-By: /%05000u\n", 1),
                     0);
    put_file("etc/apt/sources.list.d/c.sources", large.data);
    assert_int_equal(apt_sources(root, &out), 0);
    assert_string_equal(out.data, "http://one.example/debian suite main extra\n"
                                  "http://ours.example/ suite main\n"
                                  "http://three.example/a s main\nhttp://three.example/a s-updates main\n"
                                  "https://four.example/b s main\nhttps://four.example/b s-updates main\n");
}

static void test_env(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 16);
    char *env[] = {(char[]){"PIP_INDEX_URL=https://u:pa,ss@e1.example/simple"},
                   (char[]){"PIP_EXTRA_INDEX_URL=https://e2.example http://e3.example:81"},
                   (char[]){"UV_INDEX=name=https://e4.example/"},
                   (char[]){"npm_config_registry=https://e5.example/"},
                   (char[]){"GOPROXY=https://e6.example,https://e7.example|direct"},
                   (char[]){"CARGO_REGISTRIES_MY_INDEX=sparse+https://e8.example/"},
                   (char[]){"HTTP_PROXY=http://no.example"},
                   (char[]){"MY_PIP_INDEX_URL=http://no.example"},
                   (char[]){"X"},
                   (char[]){"=http://no.example"},
                   NULL};

    (void)state;
    make(&out, env);
    has(&out, "domain\":\"e1.example", "80,443");
    has(&out, "domain\":\"e2.example", "80,443");
    has(&out, "domain\":\"e3.example", "81");
    for (int i = 4; i <= 8; i++) {
        char member[64];
        snprintf(member, sizeof member, "domain\":\"e%d.example", i);
        has(&out, member, "80,443");
    }
    assert_null(strstr(out.data, "no.example"));
    assert_null(strstr(out.data, "pa,ss"));
}

static void test_broken(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 16);
    AUTO_BUF struct buf large = BUF_INIT(1u << 20);
    char path[300];

    (void)state;
    put_file("etc/pip.conf",
             "index-url = https://\nindex-url = http://:80/\nindex-url = https://a..b/\nindex-url=http://127.1/\n"
             "index-url=http://2130706433/\nindex-url=http://x.0x7f/\n"
             "index-url=http://h:0/\nindex-url=http://h:99999/\nindex-url=http://h:1a/\nindex-url=http://[::1/\n"
             "index-url=http://user:12/34@h.example/\nindex-url=http://bad_\x80.example\n"
             "index-url=http://*.example\nindex-url=http://good.example\n");
    while (large.len < 300000)
        assert_int_equal(buf_append_str(&large, "registry=http://large.example/\n"), 0);
    put_file("etc/npmrc", large.data);
    assert_true(str_format(path, sizeof path, "%s/usr", top) > 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_true(str_format(path, sizeof path, "%s/usr/etc", top) > 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_true(str_format(path, sizeof path, "%s/usr/etc/npmrc", top) > 0);
    assert_int_equal(mkfifo(path, 0644), 0); /* must not block */
    put_file("etc/apt/sources.list", "\ndeb\ndeb \ndeb [\ndeb http://apt.example x\n");
    make(&out, NULL);
    has(&out, "domain\":\"good.example", "80,443");
    has(&out, "domain\":\"apt.example", "80,443");
    static const char *const never[] = {"large", "127", "2130706433", "0x7f", "user", "\"h\"", "::1", "bad_", "*"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
        if (strstr(out.data, never[i]))
            fail_msg("%s in %s", never[i], out.data);
    }
}

/* However many mirrors there are, the public ones keep their place. */
static void test_many(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20), out = BUF_INIT(1u << 20);

    (void)state;
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(buf_printf(&text, "registry=http://m%u.example/\n", i), 0);
    put_file("etc/npmrc", text.data);
    make(&out, NULL);
    has(&out, "domain\":\"m0.example", "80,443");
    has(&out, "domain\":\"index.crates.io", "80,443");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_apt_sources, setup, teardown),
        cmocka_unit_test_setup_teardown(test_env, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
