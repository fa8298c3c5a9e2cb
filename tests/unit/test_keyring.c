/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets at rest: the text of a ring, what is sealed opens only where and by whom it was sealed, and what memory does.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "crypto/crypto.h"
#include "crypto/keyring.h"

#define HEX1 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define HEX2 "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF"
#define B64_1 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

static struct keyring *ring_of(const char *text)
{
    struct keyring *ring = NULL;
    struct brig_err err = {0};

    if (keyring_parse(text, strlen(text), &ring, &err) < 0)
        fail_msg("%s", err.message);
    return ring;
}

static void test_parse(void **state)
{
    (void)state;
    struct keyring *ring = ring_of("# made today\r\n\n  k2:" HEX2 " \t\r\nk1:" B64_1 "\n\nold.key-3_:"
                                   "_-ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");

    assert_int_equal(keyring_count(ring), 3);
    assert_string_equal(keyring_current(ring), "k2");
    assert_true(keyring_has(ring, "k1") && keyring_has(ring, "old.key-3_"));
    assert_false(keyring_has(ring, "k"));
    assert_false(keyring_has(ring, ""));
    keyring_destroy(ring);
    keyring_destroy(NULL);
}

static void test_parse_refusals(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "key ring: there is no key in it"},
        {"# only words\n\n", "key ring: there is no key in it"},
        {"k1:" HEX1 "\n" HEX2 "\n", "key ring, line 2: not of the form ID:KEY"},
        {":" HEX1, "key ring, line 1: an ID has 1 to 32 letters, digits, '_', '.' or '-'"},
        {"a b:" HEX1, "key ring, line 1: an ID has 1 to 32 letters, digits, '_', '.' or '-'"},
        {"123456789012345678901234567890123:" HEX1,
         "key ring, line 1: an ID has 1 to 32 letters, digits, '_', '.' or '-'"},
        {"plain:" HEX1, "key ring, line 1: the ID \"plain\" means no key"},
        {"\nk1:" HEX1 "\nk1:" HEX2, "key ring, line 3: an ID that an earlier line has"},
        {"k1:" HEX1 "0", "key ring, line 1: a key is 64 hexadecimal digits, or 32 bytes in base64"},
        {"k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1g",
         "key ring, line 1: a key is 64 hexadecimal digits, or 32 bytes in base64"},
        {"k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=",
         "key ring, line 1: a key is 64 hexadecimal digits, or 32 bytes in base64"}, /* bits after the end */
        {"k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==",
         "key ring, line 1: a key is 64 hexadecimal digits, or 32 bytes in base64"},
        {"k1:", "key ring, line 1: a key is 64 hexadecimal digits, or 32 bytes in base64"},
        {"k1:0000000000000000000000000000000000000000000000000000000000000000",
         "key ring, line 1: the key is all zero"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct keyring *ring = NULL;
        struct brig_err err = {0};
        assert_true(keyring_parse(cases[i].text, strlen(cases[i].text), &ring, &err) < 0);
        assert_null(ring);
        assert_string_equal(err.message, cases[i].message);
        assert_null(strstr(err.message, "0102030405"));
    }
    char many[KEYRING_KEYS_MAX * 80 + 200] = "";
    for (unsigned i = 0; i <= KEYRING_KEYS_MAX; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "k%u:" HEX1 "\n", i);
    struct keyring *ring = NULL;
    struct brig_err err = {0};
    assert_true(keyring_parse(many, strlen(many), &ring, &err) < 0);
    assert_string_equal(err.message, "key ring, line 33: more than 32 keys");
    assert_true(keyring_parse("k1:" HEX1 "\0x", sizeof "k1:" HEX1 "\0x" - 1, &ring, &err) < 0);
}

static void assert_opens(const struct keyring *ring, const char *context, const struct sealed *sealed,
                         const void *value, size_t len)
{
    uint8_t *out = NULL;
    size_t out_len = 0;

    assert_int_equal(keyring_open(ring, context, sealed, &out, &out_len), 0);
    assert_int_equal(out_len, len);
    if (len)
        assert_memory_equal(out, value, len);
    assert_int_equal(out[len], 0);
    crypto_secret_free(out, out_len);
}

static void assert_stays_shut(const struct keyring *ring, const char *context, const struct sealed *sealed, int error)
{
    uint8_t *out = NULL;
    size_t len = 77;

    assert_int_equal(keyring_open(ring, context, sealed, &out, &len), error);
    assert_null(out);
    assert_int_equal(len, 77);
}

static void test_seal(void **state)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 65536};
    struct keyring *ring = ring_of("k1:" HEX1);
    static uint8_t value[65536];

    (void)state;
    assert_int_equal(crypto_random(value, sizeof value), 0);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct sealed a = {0}, b = {0};
        assert_int_equal(keyring_seal(ring, "org-1\nGITHUB", value, sizes[i], &a), 0);
        assert_int_equal(keyring_seal(ring, "org-1\nGITHUB", value, sizes[i], &b), 0);
        assert_string_equal(a.key_id, "k1");
        assert_int_equal(a.len, sizes[i] + SEAL_TAG);
        assert_memory_not_equal(a.nonce, b.nonce, SEAL_NONCE);
        assert_memory_not_equal(a.data, b.data, a.len);
        assert_opens(ring, "org-1\nGITHUB", &a, value, sizes[i]);
        assert_opens(ring, "org-1\nGITHUB", &b, value, sizes[i]);
        sealed_done(&a);
        sealed_done(&b);
        assert_null(a.data);
    }
    keyring_destroy(ring);
}

/*
 * The format itself, so that rows of today open tomorrow: computed with another implementation (Python's cryptography).
 */
static void test_known_answer(void **state)
{
    static uint8_t data[] = {0xdb, 0x2b, 0xb6, 0xf2, 0x21, 0x90, 0x7e, 0xf0, 0x28, 0x63, 0x94, 0xab,
                             0x59, 0x9b, 0xa3, 0x20, 0x90, 0xe1, 0x6a, 0x68, 0x29, 0xdb, 0x4e};
    struct sealed sealed = {.key_id = "k1", .nonce = "nonce-nonce-", .data = data, .len = sizeof data};
    struct keyring *ring = ring_of("k1:" HEX1);

    (void)state;
    _Static_assert(sizeof "nonce-nonce-" - 1 == SEAL_NONCE, "");
    assert_opens(ring, "org-1\nGITHUB", &sealed, "hunter2", 7);
    keyring_destroy(ring);
}

static void test_moved_or_changed(void **state)
{
    struct keyring *ring = ring_of("k1:" HEX1 "\nk2:" HEX2), *other = ring_of("k1:" HEX2),
                   *without = ring_of("k3:" HEX1);
    struct sealed sealed = {0};

    (void)state;
    assert_int_equal(keyring_seal(ring, "org-1\nGITHUB", "hunter2", 7, &sealed), 0);
    assert_opens(ring, "org-1\nGITHUB", &sealed, "hunter2", 7);
    assert_stays_shut(ring, "org-2\nGITHUB", &sealed, -EBADMSG); /* another organisation's */
    assert_stays_shut(ring, "org-1\nGITLAB", &sealed, -EBADMSG); /* another row */
    assert_stays_shut(ring, "org-1\nGITHUB\n", &sealed, -EBADMSG);
    assert_stays_shut(ring, "", &sealed, -EBADMSG);
    assert_stays_shut(other, "org-1\nGITHUB", &sealed, -EBADMSG); /* another key of that name */
    assert_stays_shut(without, "org-1\nGITHUB", &sealed, -ENOKEY);
    for (size_t bit = 0; bit < sealed.len * 8; bit++) {
        sealed.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_stays_shut(ring, "org-1\nGITHUB", &sealed, -EBADMSG);
        sealed.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t i = 0; i < SEAL_NONCE; i++) {
        sealed.nonce[i] ^= 1;
        assert_stays_shut(ring, "org-1\nGITHUB", &sealed, -EBADMSG);
        sealed.nonce[i] ^= 1;
    }
    snprintf(sealed.key_id, sizeof sealed.key_id, "k2"); /* the name of the key is part of it */
    assert_stays_shut(ring, "org-1\nGITHUB", &sealed, -EBADMSG);
    memset(sealed.key_id, 'k', sizeof sealed.key_id);
    assert_stays_shut(ring, "org-1\nGITHUB", &sealed, -EBADMSG);
    snprintf(sealed.key_id, sizeof sealed.key_id, "k1");
    for (size_t len = sealed.len; len-- > 0;) {
        struct sealed cut = sealed;
        cut.len = len;
        assert_stays_shut(ring, "org-1\nGITHUB", &cut, -EBADMSG);
    }
    assert_opens(ring, "org-1\nGITHUB", &sealed, "hunter2", 7);
    sealed_done(&sealed);
    keyring_destroy(ring);
    keyring_destroy(other);
    keyring_destroy(without);
}

/* A new first key seals; the old one still opens what it has sealed, whatever its place. */
static void test_rotation(void **state)
{
    struct keyring *old = ring_of("k1:" HEX1), *new = ring_of("k2:" HEX2 "\nk1:" HEX1);
    struct sealed a = {0}, b = {0};

    (void)state;
    assert_int_equal(keyring_seal(old, "c", "v", 1, &a), 0);
    assert_int_equal(keyring_seal(new, "c", "v", 1, &b), 0);
    assert_string_equal(b.key_id, "k2");
    assert_opens(new, "c", &a, "v", 1);
    assert_opens(new, "c", &b, "v", 1);
    assert_stays_shut(old, "c", &b, -ENOKEY);
    sealed_done(&a);
    sealed_done(&b);
    keyring_destroy(old);
    keyring_destroy(new);
}

static void test_limits(void **state)
{
    struct keyring *ring = ring_of("k1:" HEX1);
    struct sealed sealed = {0};
    char context[1024];

    (void)state;
    memset(context, 'x', sizeof context - 1);
    context[sizeof context - 1] = '\0';
    assert_int_equal(keyring_seal(ring, context, "v", 1, &sealed), -EMSGSIZE);
    assert_int_equal(keyring_seal(ring, "c", "v", SIZE_MAX, &sealed), -EMSGSIZE);
    assert_null(sealed.data);
    assert_null(crypto_secret_alloc(SIZE_MAX));
    crypto_secret_free(NULL, 5);
    keyring_destroy(ring);
}

/* "VmFlags: ... dd wf ..." of the mapping that begins at data. */
static void assert_flags(const void *data)
{
    char line[512], start[32];
    bool inside = false, seen = false;
    FILE *smaps = fopen("/proc/self/smaps", "re");

    assert_non_null(smaps);
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)data);
    while (fgets(line, sizeof line, smaps)) {
        if (strncmp(line, start, strlen(start)) == 0)
            inside = true;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            assert_non_null(strstr(line, " dd"));
            assert_non_null(strstr(line, " wf"));
            seen = true;
            break;
        }
    }
    fclose(smaps);
    assert_true(seen);
}

static void test_memory(void **state)
{
    char *data = crypto_secret_alloc(10000);
    int status;

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i <= 10000; i++)
        assert_int_equal(data[i], 0);
    memset(data, 's', 10000);
    assert_flags(data);
    pid_t pid = fork();
    if (pid == 0)
        _exit(data[0] == 0 && data[9999] == 0 ? 0 : 1); /* a child has nothing of it */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(data[9999], 's');
    crypto_secret_free(data, 10000);
    data = crypto_secret_alloc(0);
    assert_non_null(data);
    crypto_secret_free(data, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        struct keyring *ring = NULL;
        struct sealed sealed = {0};
        uint8_t *value = NULL;
        size_t len = 0;
        mem_fail_after(n);
        int r = keyring_parse("k1:" HEX1, strlen("k1:" HEX1), &ring, NULL);
        if (r == 0)
            r = keyring_seal(ring, "c", "v", 1, &sealed);
        if (r == 0)
            r = keyring_open(ring, "c", &sealed, &value, &len);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        crypto_secret_free(value, len);
        sealed_done(&sealed);
        keyring_destroy(ring);
        if (!failed)
            break;
    }
    mem_fail_after(0);
    void *secret = crypto_secret_alloc(1); /* It is mapped, and fails with the others all the same. */
    mem_fail_after(MEM_FAIL_NEVER);
    assert_null(secret);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),        cmocka_unit_test(test_parse_refusals),   cmocka_unit_test(test_seal),
        cmocka_unit_test(test_known_answer), cmocka_unit_test(test_moved_or_changed), cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_memory),           cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
