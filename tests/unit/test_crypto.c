/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives against the vectors of their RFCs; keys in files and who may read them; tokens and what is none. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "crypto/crypto.h"

static char dir[64];
static int dir_fd = -1;

static int set_up(void **state)
{
    (void)state;
    memcpy(dir, "/tmp/brig-crypto-XXXXXX", 24);
    if (!mkdtemp(dir))
        return -1;
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    DIR *entries = opendir(dir);
    (void)state;

    for (struct dirent *entry; entries && (entry = readdir(entries));)
        unlinkat(dir_fd, entry->d_name, 0);
    closedir(entries);
    close(dir_fd);
    return rmdir(dir);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    unlinkat(dir_fd, name, 0);
    AUTO_FD int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

/* FIPS 180-4 */
static void hashes(void **state)
{
    uint8_t out[SHA256_SIZE];
    struct crypto_hash *hash = NULL;
    (void)state;

    assert_int_equal(crypto_sha256("", 0, out), 0);
    unit_assert_hex(out, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_int_equal(crypto_sha256("abc", 3, out), 0);
    unit_assert_hex(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(crypto_hash_create(&hash), 0);
    for (int i = 0; i < 2; i++) { /* again after its end */
        const char *text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        for (const char *p = text; *p; p++)
            assert_int_equal(crypto_hash_add(hash, p, 1), 0);
        assert_int_equal(crypto_hash_end(hash, out), 0);
        unit_assert_hex(out, 32, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    crypto_hash_destroy(hash);
    crypto_hash_destroy(NULL);
    mem_fail_after(0);
    assert_int_equal(crypto_hash_create(&hash), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
}

/* RFC 4231 */
static void authenticates(void **state)
{
    uint8_t key[131], data[50], out[SHA256_SIZE];
    (void)state;

    memset(key, 0x0b, 20);
    assert_int_equal(crypto_hmac_sha256(key, 20, "Hi There", 8, out), 0);
    unit_assert_hex(out, 32, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_int_equal(crypto_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out), 0);
    unit_assert_hex(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    memset(data, 0xdd, sizeof(data));
    assert_int_equal(crypto_hmac_sha256(key, 20, data, 50, out), 0);
    unit_assert_hex(out, 32, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    assert_int_equal(crypto_hmac_sha256(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, out),
                     0);
    unit_assert_hex(out, 32, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* PKCS#8 (RFC 8410) around a seed. */
static void write_seed(const char *name, const char *seed)
{
    uint8_t der[48];
    AUTO_BUF struct buf pem = BUF_INIT(512);

    assert_int_equal(unit_hex("302e020100300506032b657004220420", der, sizeof(der)), 16);
    assert_int_equal(unit_hex(seed, der + 16, 32), 32);
    assert_int_equal(buf_append_str(&pem, "-----BEGIN PRIVATE KEY-----\n"), 0);
    assert_int_equal(base64_append(&pem, der, sizeof(der)), 0);
    assert_int_equal(buf_append_str(&pem, "\n-----END PRIVATE KEY-----\n"), 0);
    write_file(name, pem.data, 0600);
}

/* RFC 8032, 7.1 */
static void signs(void **state)
{
    static const struct {
        const char *seed, *public_key, *message, *signature;
    } cases[] = {
        {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bb"
         "e24655141438e7a100b"},
        {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302"
         "aeeb00d291612bb0c00"},
        {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed"
         "28dc027beceea1ec40a"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t message[8], signature[ED25519_SIGNATURE], public_key[ED25519_PUBLIC], from_file[ED25519_PUBLIC];
        struct crypto_signer *signer = NULL;
        struct brig_err err = {0};
        size_t len = unit_hex(cases[i].message, message, sizeof(message));

        unlinkat(dir_fd, "rfc.key.pub", 0);
        write_seed("rfc.key", cases[i].seed);
        if (crypto_signer_open(dir_fd, "rfc.key", &signer, &err) < 0)
            fail_msg("%s", err.message);
        crypto_signer_public(signer, public_key);
        unit_assert_hex(public_key, 32, cases[i].public_key);
        assert_int_equal(crypto_sign(signer, message, len, signature), 0);
        unit_assert_hex(signature, 64, cases[i].signature);
        assert_int_equal(crypto_verify(public_key, message, len, signature), 0);
        for (size_t k = 0; k < sizeof(signature); k++) {
            signature[k] ^= 1;
            assert_int_equal(crypto_verify(public_key, message, len, signature), -EBADMSG);
            signature[k] ^= 1;
        }
        message[0] ^= 1;
        assert_int_equal(crypto_verify(public_key, message, len + (len == 0), signature), -EBADMSG);
        assert_int_equal(crypto_public_read(dir_fd, "rfc.key.pub", from_file, &err), 0);
        assert_memory_equal(from_file, public_key, sizeof(public_key));
        write_file("hex.pub", cases[i].public_key, 0644);
        assert_int_equal(crypto_public_read(dir_fd, "hex.pub", from_file, &err), 0);
        assert_memory_equal(from_file, public_key, sizeof(public_key));
        crypto_signer_destroy(signer);
    }
    crypto_signer_destroy(NULL);
}

static void makes_a_key_once(void **state)
{
    uint8_t first[ED25519_PUBLIC], again[ED25519_PUBLIC];
    struct crypto_signer *signer = NULL;
    struct brig_err err;
    struct stat st;
    (void)state;

    mode_t mask = umask(0);
    assert_int_equal(crypto_signer_open(dir_fd, "new.key", &signer, &err), 0);
    umask(mask);
    crypto_signer_public(signer, first);
    crypto_signer_destroy(signer);
    assert_int_equal(fstatat(dir_fd, "new.key", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(fstatat(dir_fd, "new.key.pub", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(crypto_signer_open(dir_fd, "new.key", &signer, &err), 0);
    crypto_signer_public(signer, again);
    crypto_signer_destroy(signer);
    assert_memory_equal(first, again, sizeof(first));
    assert_int_equal(crypto_signer_open(dir_fd, "other.key", &signer, &err), 0);
    crypto_signer_public(signer, again);
    crypto_signer_destroy(signer);
    assert_memory_not_equal(first, again, sizeof(first));
}

static void refuses_keys_of_others(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0610, 0666, 0602};
    struct crypto_signer *signer = NULL;
    struct brig_err err;
    uint8_t out[ED25519_PUBLIC];
    char text[128];
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        write_seed("open.key", "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        assert_int_equal(fchmodat(dir_fd, "open.key", modes[i], 0), 0);
        assert_int_equal(crypto_signer_open(dir_fd, "open.key", &signer, &err), -EPERM);
        assert_true(
            str_format(text, sizeof(text),
                       "the key open.key can be read by others (mode %04o, must be 0600): Operation not permitted",
                       (unsigned)modes[i]) > 0);
        assert_string_equal(err.message, text);
    }
    if (geteuid() == 0) {
        write_seed("open.key", "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        assert_int_equal(fchownat(dir_fd, "open.key", 65534, 65534, 0), 0);
        assert_int_equal(crypto_signer_open(dir_fd, "open.key", &signer, &err), -EPERM);
        assert_non_null(strstr(err.message, "belongs to uid 65534"));
    }
    write_seed("real.key", "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    assert_int_equal(symlinkat("real.key", dir_fd, "link.key"), 0);
    assert_int_equal(crypto_signer_open(dir_fd, "link.key", &signer, &err), -ELOOP);
    write_file("bad.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0600);
    assert_int_equal(crypto_signer_open(dir_fd, "bad.key", &signer, &err), -EINVAL);
    write_file("bad.key", "", 0600);
    assert_int_equal(crypto_signer_open(dir_fd, "bad.key", &signer, &err), -EINVAL);
    assert_int_equal(crypto_signer_open(dir_fd, "nowhere/x.key", &signer, &err), -ENOENT);
    assert_int_equal(crypto_public_read(dir_fd, "bad.key", out, &err), -EINVAL);
    /* the private one is not the public one */
    assert_int_equal(crypto_public_read(dir_fd, "real.key", out, &err), -EINVAL);
    assert_int_equal(crypto_public_read(dir_fd, "none", out, &err), -ENOENT);
}

static void hexadecimal(void **state)
{
    char text[9];
    uint8_t out[4];
    (void)state;

    crypto_hex("\x00\x7f\xff\xa5", 4, text);
    assert_string_equal(text, "007fffa5");
    assert_int_equal(crypto_unhex("007fffa5", 8, out, 4), 0);
    unit_assert_hex(out, 4, "007fffa5");
    assert_int_equal(crypto_unhex("007fffa", 7, out, 4), -EINVAL);
    assert_int_equal(crypto_unhex("007fffa50", 9, out, 4), -EINVAL);
    assert_int_equal(crypto_unhex("007FFFA5", 8, out, 4), -EINVAL);
    assert_int_equal(crypto_unhex("007fffg5", 8, out, 4), -EINVAL);
    assert_true(crypto_equal("abc", "abc", 3));
    assert_false(crypto_equal("abc", "abd", 3));
    assert_true(crypto_equal("", "x", 0));
    crypto_wipe(out, sizeof(out));
    unit_assert_hex(out, 4, "00000000");
    crypto_wipe(NULL, 0);
    uint8_t a[32], b[32];
    assert_int_equal(crypto_random(a, sizeof(a)), 0);
    assert_int_equal(crypto_random(b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
}

static void tokens(void **state)
{
    uint8_t key[32] = {1}, other[32] = {2};
    char token[TOKEN_MAX], changed[TOKEN_MAX], subject[300];
    (void)state;

    assert_int_equal(crypto_token_make(key, "preview", "abc/8000", 1700000000, token), 0);
    assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."), strlen(token));
    assert_true(str_starts(token, "YWJjLzgwMDAuMTcwMDAwMDAwMA.")); /* abc/8000.1700000000 */
    assert_int_equal(crypto_token_check(key, "preview", "abc/8000", token, 1699999999), 0);
    assert_int_equal(crypto_token_check(key, "preview", "abc/8000", token, 1700000000), -ETIME);
    assert_int_equal(crypto_token_check(other, "preview", "abc/8000", token, 0), -EBADMSG);
    assert_int_equal(crypto_token_check(key, "upload", "abc/8000", token, 0), -EBADMSG);
    assert_int_equal(crypto_token_check(key, "preview", "abc/8001", token, 0), -EBADMSG);
    assert_int_equal(crypto_token_check(key, "preview", "abc/800", token, 0), -EBADMSG);
    for (size_t i = 0; i < strlen(token); i++) { /* every letter counts, and every bit of it that a letter has */
        for (int bit = 0; bit < 7; bit++) {
            memcpy(changed, token, sizeof(token));
            changed[i] = (char)(changed[i] ^ 1 << bit);
            assert_int_equal(crypto_token_check(key, "preview", "abc/8000", changed, 0), -EBADMSG);
        }
    }
    memcpy(changed, token, sizeof(token));
    for (size_t len = strlen(token); len-- > 0;) {
        changed[len] = '\0';
        assert_int_equal(crypto_token_check(key, "preview", "abc/8000", changed, 0), -EBADMSG);
    }
    assert_int_equal(crypto_token_check(key, "preview", "abc/8000", "", 0), -EBADMSG);
    assert_int_equal(crypto_token_check(key, "preview", "abc/8000", ".", 0), -EBADMSG);
    /* the parts do not flow into each other */
    assert_int_equal(crypto_token_make(key, "p", "a.1", 2, token), 0);
    assert_int_equal(crypto_token_check(key, "p", "a", token, 0), -EBADMSG);
    assert_int_equal(crypto_token_check(key, "p", "a.1", token, 0), 0);
    memset(subject, 'x', sizeof(subject));
    subject[256] = '\0';
    assert_int_equal(crypto_token_make(key, "preview", subject, 999999999999, token), 0);
    assert_int_equal(crypto_token_check(key, "preview", subject, token, 1), 0);
    subject[256] = 'x', subject[257] = '\0';
    assert_int_equal(crypto_token_make(key, "preview", subject, 1, token), -EINVAL);
    assert_int_equal(crypto_token_make(key, "preview", "x", -1, token), -EINVAL);
    memset(changed, 'A', sizeof(changed) - 1);
    changed[sizeof(changed) - 1] = '\0';
    assert_int_equal(crypto_token_check(key, "preview", "x", changed, 0), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes),           cmocka_unit_test(authenticates),          cmocka_unit_test(signs),
        cmocka_unit_test(makes_a_key_once), cmocka_unit_test(refuses_keys_of_others), cmocka_unit_test(hexadecimal),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
