/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_cache.c: what RUN --mount=type=cache keeps. Each cache is a volume of the organisation that only the service
 * attaches, named after the cache's id; steps of user keys and of administrators have others, since what is in a cache
 * decides what a step gives. One step at a time has a volume: the next one waits, or has an empty cache if its mount
 * says sharing=private. Where no volume can be made (no disks here, a quota), the cache is empty, and the log says so.
 */
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "sandbox/sbox_disks.h"

#define CACHE_BYTES (UINT64_C(1) << 30)
#define AGAIN_NS (50 * NS_PER_MS)

struct cache_wait {
    struct run_caches *caches; /* NULL: nobody waits */
};

int cache_add(const struct build_stage *stage, const struct build_mount *mount, const char *target,
              struct run_caches *caches)
{
    const char *who = caller_is_admin(&stage->build->caller) ? "administrators" : "user keys";
    struct run_cache *cache = &caches->items[caches->n];
    struct crypto_hash *hash = NULL;
    uint8_t sum[SHA256_SIZE];
    int r = crypto_hash_create(&hash);

    if (r == 0)
        r = crypto_hash_add(hash, who, strlen(who) + 1);
    if (r == 0)
        r = crypto_hash_add(hash, mount->id ? mount->id : mount->target, strlen(mount->id ? mount->id : mount->target));
    if (r == 0)
        r = crypto_hash_end(hash, sum);
    crypto_hash_destroy(hash);
    if (r < 0)
        return -ENOMEM;
    *cache = (struct run_cache){.target = target, .name = VOLUME_CACHE, .own = mount->own};
    crypto_hex(sum, 16, cache->name + strlen(VOLUME_CACHE));
    caches->n++;
    return 0;
}

static void not_kept(struct build *build, struct run_cache *cache, const char *why)
{
    char text[400];

    cache->name[0] = '\0';
    if (str_format(text, sizeof text, "the cache %.100s is empty and is not kept: %.200s", cache->target, why) > 0)
        log_note(build, "warning", text);
}

static void on_made(void *ctx, const struct object *volume UNUSED, const struct brig_err *err)
{
    struct cache_wait *wait = ctx;
    struct run_caches *caches = wait->caches;

    mem_free(wait);
    if (!caches)
        return;
    caches->wait = NULL;
    if (err && err->code != BRIG_E_CONFLICT) /* then another step has just made it */
        str_cut(caches->failed, sizeof caches->failed, err->message);
    caches->ready(caches->ctx);
}

static void on_timer(struct loop_timer *timer)
{
    struct run_caches *caches = timer->ctx;

    caches->ready(caches->ctx);
}

/* Makes the volume of caches->items[caches->at]. */
static bool make(struct build *build, struct run_caches *caches)
{
    struct run_cache *cache = &caches->items[caches->at];
    struct cache_wait *wait = mem_zalloc(sizeof *wait);
    struct brig_err err = {0};

    if (!wait) {
        not_kept(build, cache, "out of memory");
        return false;
    }
    wait->caches = caches;
    if (volume_make_cache(build->builds->o.manager, &build->caller, cache->name, CACHE_BYTES, on_made, wait, &err) <
        0) {
        mem_free(wait);
        not_kept(build, cache, err.message);
        return false;
    }
    caches->wait = wait;
    return true;
}

bool caches_ready(struct build *build, struct run_caches *caches)
{
    const struct builds_options *o = &build->builds->o;
    bool used = false, wait = false;

    if (caches->failed[0])
        not_kept(build, &caches->items[caches->at], caches->failed);
    caches->failed[0] = '\0';
    for (caches->at = 0; caches->at < caches->n; caches->at++) {
        struct run_cache *cache = &caches->items[caches->at];
        if (!cache->name[0])
            continue;
        if (!volume_find_cache(o->manager, build->caller.org_id, cache->name, &used) && make(build, caches))
            return false;
        if (used && cache->own)
            cache->name[0] = '\0';
        for (size_t k = 0; k < caches->at; k++) /* one step has it twice: the second is empty */
            if (str_eq(caches->items[k].name, cache->name))
                cache->name[0] = '\0';
        wait = wait || (used && cache->name[0]);
    }
    if (!wait)
        return true;
    caches->timer = (struct loop_timer){.fn = on_timer, .ctx = caches};
    /* If there is no timer, the create is refused and says who has the volume. */
    return loop_timer_set(o->loop, &caches->timer, loop_now_ns() + AGAIN_NS, NULL) < 0;
}

void caches_forget(struct loop *loop, struct run_caches *caches)
{
    if (caches->wait)
        caches->wait->caches = NULL;
    caches->wait = NULL;
    loop_timer_clear(loop, &caches->timer);
}
