/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_key.c: the key of a step in the cache: a hash of everything that its result depends on. Each part is written
 * with its name and length, so that no two different steps write the same bytes. The key never holds the value of a
 * secret. Such a value decides what a step gives all the same, so administrators take no step that a user key's build
 * has left.
 */
#include <stdio.h>
#include <string.h>

#include "build/build_priv.h"

struct build_key {
    struct crypto_hash *hash;
    int error;
};

static void add(struct build_key *key, const void *data, size_t len)
{
    if (key->error == 0)
        key->error = crypto_hash_add(key->hash, data, len);
}

void key_text(struct build_key *key, const char *what, const char *text)
{
    char head[96];
    int len = str_format(head, sizeof head, "%s:%zu:", what, strlen(text));

    if (len < 0)
        key->error = key->error ? key->error : len;
    add(key, head, len < 0 ? 0 : (size_t)len);
    add(key, text, strlen(text));
    add(key, "\n", 1);
}

void key_list(struct build_key *key, const char *what, const struct build_list *list)
{
    char count[24];

    snprintf(count, sizeof count, "%zu", list->n);
    key_text(key, what, count);
    for (size_t i = 0; i < list->n; i++)
        key_text(key, what, list->items[i]);
}

int key_begin(const struct build_stage *stage, const char *kind, struct build_key **ret)
{
    struct build_key *key = mem_zalloc(sizeof *key);

    if (!key || crypto_hash_create(&key->hash) < 0) {
        mem_free(key);
        return -ENOMEM;
    }
    key_text(key, "brig build", "1");
    key_text(key, "kind", kind);
    key_text(key, "for", caller_is_admin(&stage->build->caller) ? "administrators" : "user keys");
    if (stage->build->lock)
        key_text(key, "epoch", stage->build->lock->epoch);
    for (size_t i = 0; i < stage->n_layers; i++)
        key_text(key, "below", stage->layers[i].name);
    *ret = key;
    return 0;
}

int key_end(struct build_key *key, char out[BUILD_STEP_KEY])
{
    uint8_t hash[SHA256_SIZE];
    int r = key->error ? key->error : crypto_hash_end(key->hash, hash);

    if (r == 0)
        crypto_hex(hash, sizeof hash, out);
    crypto_hash_destroy(key->hash);
    mem_free(key);
    return r;
}
