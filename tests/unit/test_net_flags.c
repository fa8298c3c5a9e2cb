/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_flags.c: the words about the network: what a request says for them, and each refusal to the letter. */
#include "unit.h"

#include <unistd.h>

#include "cli/net_flags.h"

struct options {
    int before;
    struct net_flags net;
};

static const struct flag rows[] = {NET_FLAG_ROWS(offsetof(struct options, net))};
static const struct flag_table table = {.usage = "x", .purpose = "x", .flags = rows, .n_flags = ARRAY_SIZE(rows)};

/* Words between blanks, as a shell would pass them. */
static int parse(struct options *options, const char *words, struct brig_err *err)
{
    static char text[65536];
    char *argv[600] = {(char *)"x"}, *save = NULL;
    int argc = 1, rest = 0;

    *options = (struct options){0};
    snprintf(text, sizeof(text), "%s", words);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    int r = flags_parse(&table, argc, argv, options, &rest, err);
    return r < 0 ? r : net_flags_finish(&options->net, err);
}

static void says(const char *words, const char *expected)
{
    struct options options;
    struct brig_err err = {0};
    struct buf out = BUF_INIT(1 << 20);
    struct json json = JSON_INIT(&out);

    if (parse(&options, words, &err) < 0)
        fail_msg("%s: %s", words, err.message);
    json_object(&json);
    net_flags_put(&options.net, &json);
    json_key(&json, "limits"), json_object(&json), net_flags_put_limits(&options.net, &json), json_end(&json);
    json_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(out.data, expected);
    buf_done(&out);
    net_flags_done(&options.net);
}

static void refuses(const char *words, const char *message)
{
    struct options options;
    struct brig_err err = {0};

    assert_true(parse(&options, words, &err) < 0);
    assert_string_equal(err.message, message);
    assert_int_equal(err.code, BRIG_E_USAGE);
    net_flags_done(&options.net);
}

static void names_of_policies(void **state)
{
    (void)state;
    says("", "{\"limits\":{}}");
    says("--net none", "{\"network\":\"none\",\"limits\":{}}");
    says("--net packages", "{\"network\":\"packages\",\"limits\":{}}");
    says("--net open", "{\"network\":\"open\",\"limits\":{}}");
    says("--net learn", "{\"network\":\"learn\",\"limits\":{}}");
    says("--net ci.eu-1", "{\"network\":\"ci.eu-1\",\"limits\":{}}");
    refuses("--net Open", "--net Open: must be none, packages, open, learn, or a policy's name");
    refuses("--net ../x", "--net ../x: must be none, packages, open, learn, or a policy's name");
    refuses("--net=", "--net \"\": must be none, packages, open, learn, or a policy's name");
}

static void hosts(void **state)
{
    (void)state;
    says("--allow api.test",
         "{\"network\":{\"rules\":[{\"action\":\"allow\",\"domain\":\"api.test\"}]},\"limits\":{}}");
    says("--allow *.x.org:8443 --deny bad.x.org:any",
         "{\"network\":{\"rules\":[{\"action\":\"allow\",\"domain\":\"*.x.org\",\"ports\":[8443]},"
         "{\"action\":\"deny\",\"domain\":\"bad.x.org\",\"ports\":\"any\"}]},\"limits\":{}}");
    says("--allow 10.1.2.3:80 --allow 10.0.0.0/8 --allow fd00::/8 --allow [2001:db8::1]:443 --allow ::1",
         "{\"network\":{\"rules\":[{\"action\":\"allow\",\"cidr\":\"10.1.2.3\",\"ports\":[80]},{\"action\":\"allow\","
         "\"cidr\":\"10.0.0.0/8\"},"
         "{\"action\":\"allow\",\"cidr\":\"fd00::/8\"},{\"action\":\"allow\",\"cidr\":\"2001:db8::1\",\"ports\":[443]},"
         "{\"action\":\"allow\",\"cidr\":\"::1\"}]},\"limits\":{}}");
    says("--allow [fd00::/8]:22",
         "{\"network\":{\"rules\":[{\"action\":\"allow\",\"cidr\":\"fd00::/8\",\"ports\":[22]}]},\"limits\":{}}");
    says("--net packages --allow b\xc3\xbc"
         "cher.example",
         "{\"network\":{\"extends\":\"packages\",\"rules\":[{\"action\":\"allow\",\"domain\":\"b\xc3\xbc"
         "cher.example\"}]},\"limits\":{}}");
    says("--net none --allow a.test",
         "{\"network\":{\"rules\":[{\"action\":\"allow\",\"domain\":\"a.test\"}]},\"limits\":{}}");
    says("--net open --deny 198.51.100.0/24",
         "{\"network\":{\"extends\":\"open\",\"rules\":[{\"action\":\"deny\",\"cidr\":\"198.51.100.0/24\"}]},"
         "\"limits\":{}}");
}

static void hosts_refused(void **state)
{
    (void)state;
    refuses("--allow=", "--allow \"\": the value is empty");
    refuses("--allow https://api.test/", "--allow https://api.test/: must be a host, not a URL");
    refuses("--allow api.test:0", "--allow api.test:0: the port must be a number from 1 to 65535, or any");
    refuses("--allow api.test:65536", "--allow api.test:65536: the port must be a number from 1 to 65535, or any");
    refuses("--allow api.test:", "--allow api.test:: the port must be a number from 1 to 65535, or any");
    refuses("--allow :443", "--allow :443: the host is empty");
    refuses("--allow *", "--allow *: * stands only at the beginning, as in *.example.org");
    refuses("--allow *.", "--allow *.: the host is empty");
    refuses("--allow a.*.org", "--allow a.*.org: * stands only at the beginning, as in *.example.org");
    refuses("--allow a/b", "--allow a/b: must be a name, *.name, an address or a range such as 10.0.0.0/8");
    refuses("--allow 127.1", "--allow 127.1: looks like an address, and is none");
    refuses("--allow 10.0.0.0/33",
            "--allow 10.0.0.0/33: must be a name, *.name, an address or a range such as 10.0.0.0/8");
    refuses("--allow 0x7f000001", "--allow 0x7f000001: looks like an address, and is none");
    refuses("--allow a:b:c", "--allow a:b:c: must be HOST:PORT; an IPv6 address with a port is [ADDRESS]:PORT");
    refuses("--allow [::1", "--allow [::1: must be [ADDRESS] or [ADDRESS]:PORT");
    refuses("--allow [api.test]:1", "--allow [api.test]:1: between [ and ] there must be an IPv6 address");
    refuses("--deny x.org", "--deny x.org: there is no network to deny it in; say --net, --policy or --allow too");
    refuses("--net learn --allow x.org",
            "--net learn: takes neither --allow nor --deny; it lets through what `open` does, and writes it down");

    char many[8192] = "";
    for (size_t i = 0; i <= NET_RULES_MAX; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "--allow a.test ");
    refuses(many, "--allow a.test: at most 256 hosts as flags; write a policy (--policy FILE)");
}

static void secrets(void **state)
{
    (void)state;
    says("--secret GITHUB --secret my.key=API_KEY",
         "{\"secrets\":[{\"name\":\"GITHUB\",\"env\":\"GITHUB\"},{\"name\":\"my.key\",\"env\":\"API_KEY\"}],"
         "\"limits\":{}}");
    says("--secret A --expose", "{\"secrets\":[{\"name\":\"A\",\"env\":\"A\",\"expose\":true}],\"limits\":{}}");
    refuses("--secret my.key", "--secret my.key: must be NAME=VARIABLE, with a variable of letters, digits and _");
    refuses("--secret 1a", "--secret 1a: a secret's name is 1 to 63 of letters, digits, _ . and -, not a digit first");
    /* What could be a value is not repeated. */
    refuses("--secret A=sk-12345", "--secret A: must be NAME=VARIABLE, with a variable of letters, digits and _");
    refuses("--secret A --secret B=A", "--secret B: the variable A has a secret already");
    refuses("--expose", "--expose: there is no --secret");
}

static void limits(void **state)
{
    (void)state;
    says("--net open --net-bytes-in 1m --net-bytes-out 2k --net-bps 3 --connections 4",
         "{\"network\":\"open\",\"limits\":{\"net_bytes_in\":1048576,\"net_bytes_out\":2048,\"net_bps\":3,"
         "\"connections\":4}}");
    refuses("--net open --connections 0", "--connections 0: must be a whole number of 1 or more");
    refuses("--net open --net-bps 0", "--net-bps 0: must be a size above zero: bytes, or a number with k, m, g or t");
    refuses("--net-bytes-in 1m", "--net-bytes-in, --net-bytes-out, --net-bps, --connections: there is no network; "
                                 "say --net, --policy or --allow too");
}

/* A file with this text; the flags, with it, say expected, or are refused so (the file's name is @ in it). */
static void file_says(const char *text, const char *more, const char *expected, const char *message)
{
    char path[] = "/tmp/brig-net-flags-XXXXXX", words[256], want[512];
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(words, sizeof(words), "--policy %s %s", path, more);
    if (expected) {
        says(words, expected);
    } else {
        snprintf(want, sizeof(want), "--policy %s: %s", path, message);
        refuses(words, want);
    }
    unlink(path);
}

static void files(void **state)
{
    (void)state;
    file_says("{\"default\": \"deny\", \"rules\": [{\"action\":\"allow\",\"domain\":\"a.test\"}], \"limits\": "
              "{\"lifetime\": 1.5}}",
              "",
              "{\"network\":{\"default\":\"deny\",\"rules\":[{\"action\":\"allow\",\"domain\":\"a.test\"}],"
              "\"limits\":{\"lifetime\":1.5}},"
              "\"limits\":{}}",
              NULL);
    file_says(
        "{\"extends\":\"packages\",\"rules\":[{\"action\":\"allow\",\"domain\":\"a.test\"}], \"odd\": [1, null, true]}",
        "--deny b.test",
        "{\"network\":{\"extends\":\"packages\",\"odd\":[1,null,true],\"rules\":[{\"action\":\"allow\","
        "\"domain\":\"a.test\"},"
        "{\"action\":\"deny\",\"domain\":\"b.test\"}]},\"limits\":{}}",
        NULL);
    file_says("[]", "", NULL, "must be a JSON object");
    file_says("{", "", NULL, "JSON, byte 1: a key is missing");
    refuses("--policy /nonexistent/p.json", "--policy /nonexistent/p.json: No such file or directory");
    refuses("--policy a --policy b", "--policy b: there is one policy already; a second one does not add to it");
    refuses("--policy a --net open", "--net open --policy: one of them; a file says \"extends\": \"open\"");
}

/* Without a daemon: the policy in full, or refused. */
static void local_says(const char *words, const char *expected_name, const char *expected)
{
    struct options options;
    struct brig_err err = {0};
    struct buf out = BUF_INIT(1 << 20);
    char name[NET_NAME_MAX] = "";

    if (parse(&options, words, &err) < 0 || net_flags_policy(&options.net, &out, name, &err) < 0)
        fail_msg("%s: %s", words, err.message);
    assert_string_equal(name, expected_name);
    assert_string_equal(out.data ? out.data : "", expected);
    buf_done(&out);
    net_flags_done(&options.net);
}

static void local_refuses(const char *words, const char *message)
{
    struct options options;
    struct brig_err err = {0};
    struct buf out = BUF_INIT(1 << 20);
    char name[NET_NAME_MAX];

    assert_int_equal(parse(&options, words, &err), 0);
    assert_true(net_flags_policy(&options.net, &out, name, &err) < 0);
    assert_string_equal(err.message, message);
    buf_done(&out);
    net_flags_done(&options.net);
}

static void without_a_daemon(void **state)
{
    char path[] = "/tmp/brig-net-flags-XXXXXX", words[256], message[256];
    static const char text[] = "{\"extends\":\"ci\"}";
    int fd = mkstemp(path);

    (void)state;
    local_says("", "", "");
    local_says("--net none", "", "");
    local_says("--net open", "open", "{\"default\":\"allow\",\"rules\":[]}");
    local_says("--net learn", "learn", "{\"default\":\"allow\",\"rules\":[]}");
    local_says("--net open --deny x.org", "custom",
               "{\"default\":\"allow\",\"rules\":[{\"action\":\"deny\",\"domain\":\"x.org\"}]}");
    local_says("--net none --allow x.org:8", "custom",
               "{\"default\":\"deny\",\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"ports\":[8]}]}");
    local_says("--allow x.org:8", "custom", "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"ports\":[8]}]}");
    local_refuses("--net ci", "network policy ci: policies by name need a daemon, and this run is done without one");
    local_refuses("--secret A", "--secret A: secrets need a daemon, and this run is done without one");

    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    snprintf(words, sizeof(words), "--policy %s", path);
    local_refuses(words, "network policy ci: policies by name need a daemon, and this run is done without one");
    FILE *file = fopen(path, "w");
    fputs("{\"extends\":\"open\",\"default\":\"deny\",\"rules\":[{\"action\":\"allow\",\"domain\":\"a.test\"}]}", file);
    fclose(file);
    local_says(words, "custom", "{\"default\":\"deny\",\"rules\":[{\"action\":\"allow\",\"domain\":\"a.test\"}]}");
    file = fopen(path, "w");
    fputs("{\"extends\":7}", file);
    fclose(file);
    snprintf(message, sizeof(message), "--policy %s: extends: must be a name", path);
    local_refuses(words, message);
    unlink(path);
}

/* The package indexes are somebody else's list; that they come first and the flags after is ours. */
static void packages_and_more(void **state)
{
    struct options options;
    struct brig_err err = {0};
    struct buf out = BUF_INIT(1 << 20);
    char name[NET_NAME_MAX] = "";
    static const char end[] = ",{\"action\":\"allow\",\"domain\":\"a.test\"}]}";

    (void)state;
    assert_int_equal(parse(&options, "--net packages --allow a.test", &err), 0);
    assert_int_equal(net_flags_policy(&options.net, &out, name, &err), 0);
    assert_non_null(strstr(out.data, "\"pypi.org\""));
    assert_string_equal(out.data + out.len - strlen(end), end);
    assert_string_equal(name, "custom");
    buf_done(&out);
    net_flags_done(&options.net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_policies),
        cmocka_unit_test(hosts),
        cmocka_unit_test(hosts_refused),
        cmocka_unit_test(secrets),
        cmocka_unit_test(limits),
        cmocka_unit_test(files),
        cmocka_unit_test(without_a_daemon),
        cmocka_unit_test(packages_and_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
