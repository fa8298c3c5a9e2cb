/* SPDX-License-Identifier: Apache-2.0 */
/* The stub resolver against a real server of our own, which lies, cuts, stays silent and fails. */
#include "dns_rig.h"

#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/egress.h"

static struct loop *loop;
static struct resolver *resolver;
static struct dns_rig server, second;

struct result {
    unsigned calls;
    size_t n;
    struct gate_addr addresses[RESOLVER_ADDRESSES];
    struct brig_err err;
    struct lookup *lookup;
    struct result *cancels; /* when done */
};

static PRINTF_LIKE(2, 3) void configure(const char *hosts, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    assert_int_equal(resolver_configure(resolver, text, hosts, NULL), 0);
}

static int setup(UNUSED void **state)
{
    dns_rig_start(&server);
    dns_rig_start(&second);
    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(resolver_create(loop, &resolver, NULL), 0);
    configure("", "nameserver 127.0.0.1#%u\noptions timeout:1 attempts:2\n", server.port);
    return 0;
}

static int teardown(UNUSED void **state)
{
    resolver_destroy(resolver);
    loop_destroy(loop);
    dns_rig_stop(&server);
    dns_rig_stop(&second);
    return 0;
}

static void on_done(void *ctx, const struct gate_addr *addresses, size_t n, const struct brig_err *err)
{
    struct result *result = ctx;

    result->calls++;
    result->lookup = NULL;
    result->n = n;
    memcpy(result->addresses, addresses, n * sizeof(*addresses));
    result->err = n == 0 ? *err : (struct brig_err){0};
    if (result->cancels) {
        lookup_cancel(result->cancels->lookup);
        result->cancels->lookup = NULL;
    }
}

static void start(struct result *result, const char *name)
{
    *result = (struct result){0};
    assert_int_equal(resolver_lookup(resolver, name, on_done, result, &result->lookup, NULL), 0);
    assert_int_equal(result->calls, 0); /* never from within */
}

static void finish(struct result *result)
{
    for (uint64_t end = clock_mono_ns() + 10 * NS_PER_SEC; result->calls == 0 && clock_mono_ns() < end;)
        assert_int_equal(loop_run_once(loop, 100, NULL), 0);
    assert_int_equal(result->calls, 1);
}

static struct result resolve(const char *name)
{
    struct result result;

    start(&result, name);
    finish(&result);
    return result;
}

static void assert_address(const struct result *result, size_t i, const char *text)
{
    char said[GATE_ADDR_TEXT];

    assert_true(i < result->n);
    gate_addr_text(&result->addresses[i], said);
    assert_string_equal(said, text);
}

static void test_plain(UNUSED void **state)
{
    struct result r = resolve("www.test");

    assert_int_equal(r.n, 2);
    assert_address(&r, 0, "192.0.2.1");
    assert_address(&r, 1, "2001:db8::1");
    r = resolve("WWW.test."); /* the same name: from the cache */
    assert_int_equal(r.n, 2);
    assert_int_equal(server.asked, 1);
    r = resolve("v4only.test");
    assert_int_equal(r.n, 1);
    assert_address(&r, 0, "192.0.2.4");
}

static void test_cname(UNUSED void **state)
{
    struct result r = resolve("cname.test");

    assert_int_equal(r.n, 2);
    assert_address(&r, 0, "192.0.2.7");
    assert_int_equal(server.asked, 1);
}

static void test_truncated(UNUSED void **state)
{
    struct result r = resolve("big.test");

    assert_int_equal(r.n, RESOLVER_ADDRESSES);
    assert_address(&r, 0, "192.0.2.0");
    assert_address(&r, 1, "2001:db8::"); /* both families in turn */
    assert_address(&r, 15, "2001:db8::7");
    assert_int_equal(server.asked_tcp, 2);
    r = resolve("cut.test"); /* the server hangs up in the middle, each time */
    assert_int_equal(r.n, 0);
    assert_int_equal(r.err.code, BRIG_E_HOST);
    assert_int_equal(server.asked_tcp, 2 + 4);
}

static void test_spoofed(UNUSED void **state)
{
    struct result r = resolve("spoof.test");

    assert_int_equal(r.n, 2);
    assert_address(&r, 0, "192.0.2.1"); /* not the forged .66 */
    assert_int_equal(server.asked, 1);
    r = resolve("flood.test");
    assert_address(&r, 0, "192.0.2.1");
    assert_int_equal(server.asked, 2);
    server.asked = 0;
    configure("", "nameserver 127.0.0.1:%u\noptions timeout:1 attempts:2\n", server.port);
    r = resolve("flood.test"); /* too many guesses: another id and port */
    assert_address(&r, 0, "192.0.2.1");
    assert_true(server.asked >= 2);
    assert_true(server.ids[0] != server.ids[1] || server.ports[0] != server.ports[1]);
}

static void test_random(UNUSED void **state)
{
    unsigned same_id = 0, same_port = 0;
    char name[32];

    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "r%u.test", i);
        assert_int_equal(resolve(name).n, 2);
    }
    for (unsigned i = 0; i < 40; i++) {
        for (unsigned j = 0; j < i; j++) {
            same_id += server.ids[i] == server.ids[j];
            same_port += server.ports[i] == server.ports[j];
        }
    }
    assert_true(same_id < 4 && same_port < 8); /* 780 pairs of 65,536 and about 28,000 */
}

static void test_servers(UNUSED void **state)
{
    struct result r;
    uint64_t before = clock_mono_ns();

    configure("", "nameserver 127.0.0.1#%u\nnameserver 127.0.0.1#%u\noptions timeout:1 attempts:1\n", server.port,
              second.port);
    server.mute = true;
    r = resolve("www.test"); /* silence, then the next */
    assert_int_equal(r.n, 2);
    assert_true(clock_mono_ns() - before >= 900 * NS_PER_MS);
    assert_true(server.asked == 1 && second.asked == 1);
    server.mute = false;
    server.servfail = true;
    r = resolve("other.test"); /* failure: at once */
    assert_int_equal(r.n, 2);
    assert_true(server.asked == 2 && second.asked == 2);
    r = resolve("servfail.test");
    assert_int_equal(r.n, 0);
    assert_int_equal(r.err.code, BRIG_E_HOST);
    server.servfail = false;
    r = resolve("broken.test");
    assert_int_equal(r.n, 0);
    assert_int_equal(r.err.code, BRIG_E_HOST);
    r = resolve("mute.test");
    assert_int_equal(r.n, 0);
    assert_int_equal(r.err.code, BRIG_E_TIMEOUT);
    /* nobody there: said by the kernel, no waiting */
    before = clock_mono_ns();
    configure("", "nameserver 127.0.0.1#%u\nnameserver 127.0.0.1#%u\noptions timeout:5\n", 1, second.port);
    assert_int_equal(resolve("third.test").n, 2);
    assert_true(clock_mono_ns() - before < 2 * NS_PER_SEC);
    /* in turn */
    configure("", "nameserver 127.0.0.1#%u\nnameserver [::ffff:127.0.0.1]:%u\noptions rotate\n", server.port,
              second.port);
    server.asked = second.asked = 0;
    for (unsigned i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof(name), "t%u.test", i);
        assert_int_equal(resolve(name).n, 2);
    }
    assert_true(server.asked == 2 && second.asked == 2);
}

static void test_families(UNUSED void **state)
{
    struct result r = resolve("half.test"); /* AAAA fails, A does not */

    assert_int_equal(r.n, 1);
    assert_address(&r, 0, "192.0.2.1");
    r = resolve("old.test"); /* knows no EDNS */
    assert_int_equal(r.n, 2);
}

static void test_ttl(UNUSED void **state)
{
    struct result a = resolve("ttl0.test"), b = resolve("ttl0.test");

    assert_int_equal(server.asked, 2);
    assert_address(&a, 0, "192.0.2.1");
    assert_address(&b, 0, "192.0.2.2");
    resolve("ttl1.test");
    resolve("ttl1.test");
    assert_int_equal(server.asked, 3);
    for (uint64_t end = clock_mono_ns() + 1100 * NS_PER_MS; clock_mono_ns() < end;)
        assert_int_equal(loop_run_once(loop, 50, NULL), 0);
    resolve("ttl1.test");
    assert_int_equal(server.asked, 4);
}

static void test_negative(UNUSED void **state)
{
    struct result r = resolve("nx.test");

    assert_int_equal(r.n, 0);
    assert_int_equal(r.err.code, BRIG_E_NOT_FOUND);
    assert_string_equal(r.err.message, "nx.test: no such name");
    r = resolve("nx.test");
    assert_string_equal(r.err.message, "nx.test: no such name");
    r = resolve("empty.test");
    assert_int_equal(r.err.code, BRIG_E_NOT_FOUND);
    assert_string_equal(r.err.message, "empty.test has no address");
    r = resolve("empty.test");
    assert_string_equal(r.err.message, "empty.test has no address");
    assert_int_equal(server.asked, 2);
}

static void test_hosts(UNUSED void **state)
{
    static const char hosts[] =
        "# a comment\n127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # another\n\n"
        "192.0.2.80  One.Test. two.test\r\n192.0.2.81 one.test\n2001:db8::80 one.test\n"
        "10.0.0.1 bad!name 10.0.0.2 fine.test#x\n127.1 short.test\nfe80::1%lo zone.test\nnonsense\n"
        "192.0.2.90 last.test";
    struct result r;

    configure(hosts, "nameserver 127.0.0.1#%u\n", server.port);
    r = resolve("one.test");
    assert_int_equal(r.n, 3);
    assert_address(&r, 0, "192.0.2.80"); /* in the file's order */
    assert_address(&r, 1, "192.0.2.81");
    assert_address(&r, 2, "2001:db8::80");
    r = resolve("two.test");
    assert_address(&r, 0, "192.0.2.80");
    r = resolve("fine.test");
    assert_address(&r, 0, "10.0.0.1");
    r = resolve("last.test");
    assert_address(&r, 0, "192.0.2.90");
    r = resolve("localhost");
    assert_int_equal(r.n, 2);
    r = resolve("a.localhost"); /* not in the file, and not asked for either */
    assert_address(&r, 0, "127.0.0.1");
    assert_int_equal(server.asked, 0);
    r = resolve("short.test");
    assert_address(&r, 0, "192.0.2.1"); /* the server's */
    assert_int_equal(server.asked, 1);
}

static void test_configure(UNUSED void **state)
{
    struct brig_err err;

    /* nothing usable is an error, and what was there stays */
    assert_int_equal(resolver_configure(resolver,
                                        "nameserver fe80::1%eth0\nnameserver 1.2.3\nnameserver 1.2.3.4#0\nnameserver\n",
                                        "", &err),
                     -EINVAL);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_int_equal(resolve("www.test").n, 2);
    assert_int_equal(server.asked, 1);
    /* comments, blanks, other words; one good line among bad ones */
    configure(NULL,
              "; x\n# nameserver 127.0.0.9\nsearch a.b\ndomain c\n  nameserver\t127.0.0.1#%u \r\nnameserver bad\n"
              "options ndots:5 timeout:x attempts:0 edns0\n",
              server.port);
    assert_int_equal(resolve("www.test").n, 2); /* asked again: the cache was emptied */
    assert_int_equal(server.asked, 2);
    assert_int_equal(resolver_configure(resolver, NULL, NULL, NULL), 0);
}

static void test_bad_names(UNUSED void **state)
{
    static const char *const names[] = {"", "127.0.0.1", "a b", "a..b", "::1", "*.a"};
    struct lookup *lookup;
    struct brig_err err;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(resolver_lookup(resolver, names[i], on_done, NULL, &lookup, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
    }
}

static void test_shared(UNUSED void **state)
{
    struct result results[10];

    for (unsigned i = 0; i < 10; i++)
        start(&results[i], "www.test");
    results[9].cancels = &results[3]; /* one is taken out by another that was told */
    lookup_cancel(results[5].lookup);
    finish(&results[0]);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(results[i].calls, i != 3 && i != 5);
        assert_int_equal(results[i].n, i != 3 && i != 5 ? 2 : 0);
    }
    assert_int_equal(server.asked, 1);
    start(&results[0], "two.test"); /* the one that is told takes out the only other */
    start(&results[1], "two.test");
    results[0].cancels = &results[1];
    results[1].cancels = &results[0];
    while (results[0].calls + results[1].calls == 0)
        assert_int_equal(loop_run_once(loop, 100, NULL), 0);
    assert_int_equal(results[0].calls + results[1].calls, 1);
}

static void test_cancel(UNUSED void **state)
{
    struct result r, cached;
    size_t fds = unit_count_fds();

    start(&r, "mute.test"); /* before anything was sent */
    lookup_cancel(r.lookup);
    start(&r, "mute.test");
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(loop_run_once(loop, 10, NULL), 0);
    assert_int_equal(unit_count_fds(), fds + 2);
    lookup_cancel(r.lookup); /* in flight */
    assert_int_equal(unit_count_fds(), fds);
    resolve("www.test");
    start(&cached, "www.test"); /* an answer that is on its way from the cache */
    lookup_cancel(cached.lookup);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(loop_run_once(loop, 10, NULL), 0);
    assert_true(r.calls == 0 && cached.calls == 0);
    lookup_cancel(NULL);
    start(&r, "mute.test"); /* and one that the end of the resolver cancels */
    assert_int_equal(loop_run_once(loop, 10, NULL), 0);
}

static void test_limit(UNUSED void **state)
{
    static struct result results[1024];
    struct lookup *lookup;
    struct brig_err err;

    for (unsigned i = 0; i < 1024; i++)
        start(&results[i], "www.test");
    assert_int_equal(resolver_lookup(resolver, "a.test", on_done, NULL, &lookup, &err), -EAGAIN);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    finish(&results[0]);
    assert_int_equal(resolve("a.test").n, 2);
}

static void test_cache_full(UNUSED void **state)
{
    char name[32];

    for (unsigned i = 0; i < 4200; i++) {
        snprintf(name, sizeof(name), "c%u.test", i);
        assert_int_equal(resolve(name).n, 2);
    }
    unsigned before = server.asked;
    assert_int_equal(resolve("c4199.test").n, 2);
    assert_int_equal(server.asked, before);
    assert_int_equal(resolve("c0.test").n, 2); /* gone, being the oldest */
    assert_int_equal(server.asked, before + 1);
}

static void test_descriptors(UNUSED void **state)
{
    struct rlimit old, few;
    struct result r;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 3; /* all lower ones are in use */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    r = resolve("www.test");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(r.n, 0);
    assert_true(r.err.code == BRIG_E_HOST && r.err.errnum == EMFILE);
    assert_int_equal(resolve("www.test").n, 2); /* was not remembered */
}

static void test_memory(UNUSED void **state)
{
    for (size_t n = 0;; n++) {
        struct result r = {0};
        struct brig_err err;
        char text[64];

        snprintf(text, sizeof(text), "nameserver 127.0.0.1#%u\n", server.port);
        mem_fail_after(n);
        int e = resolver_configure(resolver, text, "192.0.2.1 a b c\n", &err);
        if (e == 0)
            e = resolver_lookup(resolver, "big.test", on_done, &r, &r.lookup, &err);
        assert_true(e == 0 || (e == -ENOMEM && err.code == BRIG_E_NOMEM));
        if (e == 0)
            finish(&r);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        /* what could not be kept in the cache is an answer all the same */
        assert_true(e < 0 || r.n > 0 || r.err.code == BRIG_E_NOMEM);
        assert_true(failed || (e == 0 && r.n == RESOLVER_ADDRESSES));
        if (!failed)
            break;
    }
    for (size_t n = 0; n < 3; n++) {
        struct resolver *other = NULL;
        mem_fail_after(n);
        int e = resolver_create(loop, &other, NULL);
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(e, -ENOMEM);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_plain),      TEST(test_cname),       TEST(test_truncated), TEST(test_spoofed),  TEST(test_random),
        TEST(test_servers),    TEST(test_families),    TEST(test_ttl),       TEST(test_negative), TEST(test_hosts),
        TEST(test_configure),  TEST(test_bad_names),   TEST(test_shared),    TEST(test_cancel),   TEST(test_limit),
        TEST(test_cache_full), TEST(test_descriptors), TEST(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
