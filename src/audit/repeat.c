/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeat.c: refusals that come again and again. Whoever is refused can be refused a thousand times a second, and with
 * it push everything else out of a log of bounded size. So of equal ones (action, actor, organisation, kind, object,
 * outcome) the first is written, others with a detail of their own up to REPEAT_DETAILS, and the rest is counted: one
 * line per interval says how many there were. Who floods gets that one line per interval until an interval was quiet.
 *
 * The kind is the rule that refused, one of a fixed number: a flood of one hides nothing that another refused.
 * An object that the caller makes up (any_object) is a detail and no part of the key, or each would be a first one.
 * Details are compared by a hash with a key that nobody knows: none can be made that passes for another.
 *
 * The table is bounded: when it is full, the oldest entry is told and makes room. The caller holds the audit's lock.
 */
#include <stdio.h>
#include <string.h>

#include "audit/audit_priv.h"
#include "base/clock.h"
#include "base/str.h"

static uint64_t interval_ns(const struct audit *audit)
{
    return audit->options.repeat_seconds * NS_PER_SEC;
}

/* A hash of what distinguishes the event from others of its kind. Texts are compared as they are cut for the log. */
static uint64_t hash_of(const struct audit *audit, const struct audit_event *event)
{
    uint64_t hash = 0; /* where there is no memory for one, all are equal: counted, and not lost */
    char text[2 * AUDIT_FIELD_MAX + 2];
    uint8_t sum[SHA256_SIZE];
    int n = snprintf(text, sizeof(text), "%.*s%c%.*s", (int)AUDIT_FIELD_MAX, event->object ? event->object : "", 1,
                     (int)AUDIT_FIELD_MAX, event->detail ? event->detail : "");

    if (crypto_hmac_sha256(audit->repeat_key, sizeof(audit->repeat_key), text, (size_t)n, sum) == 0)
        memcpy(&hash, sum, sizeof(hash));
    return hash;
}

static bool same(const char *kept, size_t size, const char *given)
{
    char cut[sizeof((struct audit_repeat *)NULL)->actor];

    str_cut(cut, size, given);
    return str_eq(kept, cut);
}

static bool is_of(const struct audit_repeat *entry, const struct audit_event *event)
{
    return entry->since_ns != 0 && same(entry->action, sizeof(entry->action), event->action) &&
           same(entry->actor, sizeof(entry->actor), event->actor) && same(entry->org, sizeof(entry->org), event->org) &&
           same(entry->kind, sizeof(entry->kind), event->kind) &&
           (event->any_object || same(entry->object, sizeof(entry->object), event->object)) &&
           same(entry->outcome, sizeof(entry->outcome), event->outcome);
}

static void tell(struct audit *audit, struct audit_repeat *entry)
{
    char detail[96 + sizeof(entry->kind)];
    const bool kind = entry->kind[0] != '\0';

    if (entry->counted == 0)
        return;
    snprintf(detail, sizeof(detail), "%llu more like this%s%s%s within %u s, counted and not written one by one",
             (unsigned long long)entry->counted, kind ? " (" : "", entry->kind, kind ? ")" : "",
             audit->options.repeat_seconds);
    const struct audit_event event = {.action = entry->action,
                                      .actor = entry->actor,
                                      .org = entry->org,
                                      .object = entry->mixed ? "" : entry->object,
                                      .outcome = entry->outcome,
                                      .detail = detail};
    if (audit_enqueue(audit, &event, NULL, NULL, 0) == 0)
        audit->dropped += entry->counted;
    entry->counted = 0;
}

static struct audit_repeat *find(struct audit *audit, const struct audit_event *event, uint64_t now)
{
    struct audit_repeat *oldest = &audit->repeats[0];

    for (size_t i = 0; i < REPEAT_SLOTS; i++) {
        struct audit_repeat *entry = &audit->repeats[i];
        if (is_of(entry, event) && (entry->counted > 0 || now - entry->since_ns < interval_ns(audit)))
            return entry;
        if (is_of(entry, event)) { /* the interval was quiet: it begins anew */
            oldest = entry;
            break;
        }
        if (entry->since_ns < oldest->since_ns)
            oldest = entry;
    }
    tell(audit, oldest);
    *oldest = (struct audit_repeat){.since_ns = now};
    str_cut(oldest->action, sizeof(oldest->action), event->action);
    str_cut(oldest->actor, sizeof(oldest->actor), event->actor);
    str_cut(oldest->org, sizeof(oldest->org), event->org);
    str_cut(oldest->kind, sizeof(oldest->kind), event->kind);
    str_cut(oldest->object, sizeof(oldest->object), event->object);
    str_cut(oldest->outcome, sizeof(oldest->outcome), event->outcome);
    return oldest;
}

bool audit_repeat(struct audit *audit, const struct audit_event *event)
{
    const char *outcome = event->outcome ? event->outcome : "ok";
    const bool refusal = str_eq(outcome, "denied") || (event->paced && !str_eq(outcome, "ok"));

    if (!refusal)
        return false;
    struct audit_repeat *entry = find(audit, event, clock_mono_ns());
    const uint64_t hash = hash_of(audit, event);
    bool known = entry->flooding || entry->n_details == REPEAT_DETAILS;
    for (unsigned i = 0; i < entry->n_details && !known; i++)
        known = entry->details[i] == hash;
    if (!known) {
        entry->details[entry->n_details++] = hash;
        return false;
    }
    entry->mixed = entry->mixed || !same(entry->object, sizeof(entry->object), event->object);
    if (entry->counted++ == 0)
        pthread_cond_signal(&audit->wake); /* there is a line to write when the interval is over */
    return true;
}

void audit_repeat_tell(struct audit *audit, uint64_t now, bool all)
{
    for (size_t i = 0; i < REPEAT_SLOTS; i++) {
        struct audit_repeat *entry = &audit->repeats[i];
        if (entry->since_ns == 0 || (!all && now - entry->since_ns < interval_ns(audit)))
            continue;
        const bool quiet = entry->counted == 0;
        tell(audit, entry);
        entry->flooding = true;
        entry->since_ns = quiet ? 0 : now;
    }
}

uint64_t audit_repeat_deadline(const struct audit *audit)
{
    uint64_t at = UINT64_MAX;

    for (size_t i = 0; i < REPEAT_SLOTS; i++) {
        const struct audit_repeat *entry = &audit->repeats[i];
        if (entry->since_ns != 0 && entry->counted > 0 && entry->since_ns + interval_ns(audit) < at)
            at = entry->since_ns + interval_ns(audit);
    }
    return at;
}
