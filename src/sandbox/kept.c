/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.c: counts the output that brigd keeps in its own memory until it is an answer, and the input that it keeps until
 * a program reads it, and bounds both together per organisation. One command has its limit; this bounds the sum, by the
 * rule of base/share.h: KEPT_POOL for all, half of it for one organisation alone. Output that does not fit is not kept,
 * and the receipt says that the stream was cut, as it does for limits.output. The programs go on: a command never waits
 * for another command of the same organisation. A command whose input does not fit is refused.
 */
#include "base/share.h"
#include "sandbox/private.h"

struct kept_of {
    struct kept_of *next;
    size_t bytes;
    char org_id[64];
};

static struct kept_of **find(struct manager *manager, const char *org_id)
{
    struct kept_of **at = &manager->kept[sandbox_bucket(org_id, "")];

    while (*at && !str_eq((*at)->org_id, org_id))
        at = &(*at)->next;
    return at;
}

static bool take(struct manager *manager, const char *org_id, size_t len)
{
    struct kept_of **at = find(manager, org_id);

    if (!share_allows(*at ? (*at)->bytes : 0, manager->kept_pool - manager->kept_bytes, len))
        return false;
    if (!*at) {
        struct kept_of *of = mem_zalloc(sizeof *of);
        if (!of || str_copy(of->org_id, sizeof of->org_id, org_id) < 0) {
            mem_free(of);
            return false;
        }
        *at = of;
    }
    (*at)->bytes += len;
    manager->kept_bytes += len;
    return true;
}

static void give(struct manager *manager, const char *org_id, size_t len)
{
    struct kept_of **at = find(manager, org_id), *of = *at;

    if (len == 0 || !of)
        return;
    of->bytes -= len;
    manager->kept_bytes -= len;
    if (of->bytes > 0)
        return;
    *at = of->next;
    mem_free(of);
}

bool kept_add(struct manager *manager, const char *org_id, struct buf *to, const uint8_t *data, size_t len)
{
    if (!take(manager, org_id, len))
        return false;
    if (buf_append(to, data, len) == 0)
        return true;
    give(manager, org_id, len);
    return false;
}

void kept_drop(struct manager *manager, const char *org_id, struct buf *kept)
{
    give(manager, org_id, kept->len);
    buf_done(kept);
}

void kept_done(struct manager *manager, const char *org_id, struct buf kept[3])
{
    for (int i = BRIG_STDOUT; i <= BRIG_STDERR; i++)
        kept_drop(manager, org_id, &kept[i]);
}
