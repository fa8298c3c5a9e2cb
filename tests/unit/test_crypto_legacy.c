/* SPDX-License-Identifier: Apache-2.0 */
/* Values as Letta stored them: its vectors, its guess whether a text is encrypted, and what does not open. */
#include "unit.h"

#include "base/str.h"
#include "crypto/keyring.h"
#include "crypto/legacy.h"

#define KEY "test-master-key-1234567890abcdef"
#define STORED "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGzbn82O+HFfTQlUUKodsIOQ1xZO6kxXwdkX7KNLKtHqQzuztug=="
#define EMPTY "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaG1aaIeqZ2QGJyx6REDlwhYw="

static void assert_opens(const char *key, const char *text, const char *want)
{
    uint8_t *value = NULL;
    size_t len = 0;

    assert_int_equal(legacy_open(key, text, strlen(text), &value, &len), 0);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(value, want, len + 1);
    crypto_secret_free(value, len);
}

static int opens(const char *key, const char *text)
{
    uint8_t *value = NULL;
    size_t len = 0;
    int r = legacy_open(key, text, strlen(text), &value, &len);

    if (r == 0)
        crypto_secret_free(value, len);
    return r;
}

static void test_vectors(void **state)
{
    static const uint8_t salt[LEGACY_SALT] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint8_t key[32];

    (void)state;
    assert_int_equal(legacy_derive(KEY, salt, key), 0);
    unit_assert_hex(key, sizeof key, "13a6e6be3db8545e950c7b33d417c1e69e16dfc99f1cbba24e49b6977556a205");
    assert_opens(KEY, STORED, "secret-api-key-12345");
    assert_opens(KEY, EMPTY, "");
    assert_opens("clé🔐", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaG5/FrDYXur+lKXzZ6tBgxXeLvYrFi94BRmlq2+2dDWFC",
                 "密钥🔐secret");
}

static void test_guess(void **state)
{
    static const struct {
        const char *text;
        bool looks;
    } cases[] = {
        {"", false},
        {"hello", false},
        {STORED, true},
        {EMPTY, false /* 44 bytes: as Letta guesses */},
        {"sk-AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGzbn82O+HFfTQlUUKodsIOQ1xZO6kxXwdkX7KNLKtHqQzuztug==", false},
        {"AKIAAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGzbn82O+HFfTQlUUKodsIOQ1xZO6kxXwdkX7KNLKtHqQzuztug==", false},
        {"Bearer AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGzbn82O+HFfTQlUUKodsIOQ1xZO6kxXwdkX7KNLKtHqQzuztug==", false},
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab", true}, /* 60 characters of a key: 45 bytes */
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789a", false}, /* the padding is not right */
        {"a-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_ca-b_c",
         true}, /* others are skipped */
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab\xc3\xa9", false},
        {"=0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab", true},
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd=x=", true},
        {"ab==0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab", false}, /* ends at the padding */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (legacy_looks_encrypted(cases[i].text, strlen(cases[i].text)) != cases[i].looks)
            fail_msg("%zu: %s", i, cases[i].text);
}

static void test_not_ours(void **state)
{
    char changed[] = STORED;

    (void)state;
    changed[60] = changed[60] == 'A' ? 'B' : 'A';
    assert_int_equal(opens(KEY, changed), -EBADMSG);
    assert_int_equal(opens("another", STORED), -EBADMSG);
    assert_int_equal(opens("", STORED), -ENOKEY);
    /* what does not look encrypted is the value: Letta stored it so when it had no key */
    assert_opens(KEY, "sk-12345", "sk-12345");
    assert_opens(KEY, "hello", "hello");
    assert_opens(KEY, "", "");
    assert_opens("", "hello", "hello");
    /* one that opens is opened, whatever it looks like */
    assert_opens(KEY, EMPTY, "");
}

int main(void)
{
    const struct CMUnitTest cases[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_guess),
                                       cmocka_unit_test(test_not_ours)};

    return cmocka_run_group_tests_name("crypto_legacy", cases, NULL, NULL);
}
