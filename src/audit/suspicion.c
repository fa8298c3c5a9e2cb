/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspicion.c: see suspicion.h. A table of sets: a key's hash names the set, and within it the key noted longest ago
 * makes room. The hash has a secret seed, so that nobody chooses whom to push out. Each key has a ring with the times
 * of its last `count` notes: when the ring is full and its oldest time is young, that is the event.
 */
#include "audit/suspicion.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"

#define SETS 256u
#define WAYS 8u
#define COUNT_MAX 1000u /* as the configuration allows */

struct suspect {
    char key[64]; /* cut; "" is free */
    uint64_t last_ns, quiet_until_ns;
    uint64_t *times; /* a ring of `size`, the next at `at` */
    unsigned size, at, used;
};

struct suspicion {
    struct suspect table[SETS][WAYS];
    uint64_t seed, raised;
};

int suspicion_create(struct suspicion **ret, struct brig_err *err)
{
    struct suspicion *suspicion = mem_zalloc(sizeof(*suspicion));

    if (!suspicion)
        return err_nomem(err);
    int r = crypto_random(&suspicion->seed, sizeof(suspicion->seed));
    if (r < 0) {
        mem_free(suspicion);
        return err_set(err, BRIG_E_HOST, -r, "random bytes");
    }
    *ret = suspicion;
    return 0;
}

void suspicion_destroy(struct suspicion *suspicion)
{
    for (size_t i = 0; suspicion && i < (size_t)SETS * WAYS; i++)
        mem_free(suspicion->table[i / WAYS][i % WAYS].times);
    mem_free(suspicion);
}

static struct suspect *find(struct suspicion *suspicion, const char *key)
{
    struct suspect *set = suspicion->table[str_hash_seeded(suspicion->seed, key) % SETS], *oldest = &set[0];

    for (unsigned i = 0; i < WAYS; i++) {
        if (strncmp(set[i].key, key, sizeof(set[i].key) - 1) == 0)
            return &set[i];
        if (set[i].last_ns < oldest->last_ns)
            oldest = &set[i];
    }
    uint64_t *times = oldest->times;
    unsigned size = oldest->size;
    *oldest = (struct suspect){.times = times, .size = size};
    memcpy(oldest->key, key, strnlen(key, sizeof(oldest->key) - 1));
    return oldest;
}

bool suspicion_note(struct suspicion *suspicion, const char *key, uint64_t now_ns, unsigned count, unsigned seconds)
{
    if (key[0] == '\0')
        key = "-";
    if (count > COUNT_MAX)
        count = COUNT_MAX;
    if (count < 2)
        count = 2;
    struct suspect *suspect = find(suspicion, key);
    suspect->last_ns = now_ns;
    if (suspect->size != count) {
        uint64_t *times = mem_realloc_array(suspect->times, count, sizeof(*times));
        if (!times)
            return false;
        suspect->times = times;
        suspect->size = count;
        suspect->at = suspect->used = 0;
    }
    suspect->times[suspect->at] = now_ns;
    suspect->at = (suspect->at + 1) % count;
    if (suspect->used < count)
        suspect->used++;
    /* The one that would be overwritten next is the oldest. */
    bool full = suspect->used == count && now_ns - suspect->times[suspect->at] < seconds * NS_PER_SEC;
    if (!full || now_ns < suspect->quiet_until_ns)
        return false;
    suspect->used = 0;
    suspect->quiet_until_ns = now_ns + seconds * NS_PER_SEC;
    suspicion->raised++;
    return true;
}

uint64_t suspicion_count(const struct suspicion *suspicion)
{
    return suspicion->raised;
}
