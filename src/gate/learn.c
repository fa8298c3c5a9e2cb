/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learn.c: makes the smallest policy that would have allowed what a sandbox tried. One entry is a name (or an address)
 * and a port, with every way of speaking that was seen there. Entries are sorted, so the same attempts give the same
 * text in any order. An entry becomes part of exactly one rule, and there are at most POLICY_RULES_MAX of them, so the
 * result compiles.
 */
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "gate/gate_wire.h"
#include "gate/policy.h"

#define RULE_PORTS_MAX 64u

struct entry {
    char *name;
    uint16_t port;
    unsigned seen; /* mask of 1u << enum policy_seen */
};

struct learn {
    struct entry *entries; /* by name, then port */
    size_t n, cap;
};

enum kind { KIND_WEB, KIND_TLS, KIND_HTTP, KIND_TCP, KIND_MAX };

int learn_create(struct learn **ret)
{
    struct learn *learn = mem_zalloc(sizeof *learn);

    if (!learn)
        return -ENOMEM;
    *ret = learn;
    return 0;
}

void learn_destroy(struct learn *learn)
{
    if (!learn)
        return;
    for (size_t i = 0; i < learn->n; i++)
        mem_free(learn->entries[i].name);
    mem_free(learn->entries);
    mem_free(learn);
}

/* The entry's place; *ret_there: it is there already. */
static size_t find(const struct learn *learn, const char *name, uint16_t port, bool *ret_there)
{
    size_t low = 0, high = learn->n;

    *ret_there = false;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(learn->entries[mid].name, name);
        if (order == 0)
            order = (int)learn->entries[mid].port - (int)port;
        if (order == 0) {
            *ret_there = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int learn_add(struct learn *learn, const char *name_or_address, uint16_t port, enum policy_seen seen)
{
    bool there;

    if (port == 0)
        return 0; /* a name that was looked up and not connected to needs no rule */
    if (*name_or_address == '\0' || strlen(name_or_address) >= DNS_NAME_MAX)
        return -EINVAL;
    size_t at = find(learn, name_or_address, port, &there);
    if (!there) {
        if (learn->n >= POLICY_RULES_MAX)
            return -ENOSPC;
        int r = MEM_GROW(learn->entries, learn->n, learn->cap);
        char *name = r == 0 ? mem_strdup(name_or_address) : NULL;
        if (!name)
            return -ENOMEM;
        memmove(learn->entries + at + 1, learn->entries + at, (learn->n - at) * sizeof *learn->entries);
        learn->entries[at] = (struct entry){.name = name, .port = port};
        learn->n++;
    }
    learn->entries[at].seen |= 1u << seen;
    return 0;
}

void learn_event(struct learn *learn, const struct gate_event *event)
{
    struct gate_addr wanted = event->wanted;
    char address[GATE_ADDR_TEXT];

    if (!learn || event->dns || (event->verdict != GATE_ALLOWED && event->verdict != GATE_FAILED))
        return;
    wanted.port = 0;
    gate_addr_text(&wanted, address);
    (void)!learn_add(learn, event->name[0] ? event->name : address, event->wanted.port, (enum policy_seen)event->seen);
}

static enum kind kind_of(const struct entry *entry)
{
    const unsigned tls = 1u << POLICY_SEEN_TLS, http = 1u << POLICY_SEEN_HTTP;

    if (entry->seen & 1u << POLICY_SEEN_OTHER)
        return KIND_TCP;
    switch (entry->seen & (tls | http)) {
    case 1u << POLICY_SEEN_TLS: return KIND_TLS;
    case 1u << POLICY_SEEN_HTTP: return KIND_HTTP;
    default: return KIND_WEB; /* both, or a connection that ended before it said anything */
    }
}

static void end_rule(struct json *json, enum kind kind)
{
    static const char *const protocols[KIND_MAX] = {[KIND_TLS] = "tls", [KIND_HTTP] = "http", [KIND_TCP] = "tcp"};

    json_end(json);
    if (protocols[kind])
        json_key_string(json, "protocol", protocols[kind]);
    json_end(json);
}

/* The rules of one kind for one name: more than one when its ports do not fit. */
static void put_rules(struct json *json, const struct entry *first, size_t n, enum kind kind)
{
    struct gate_addr addr;
    size_t ports = 0;

    for (size_t i = 0; i < n; i++) {
        if (kind_of(&first[i]) != kind)
            continue;
        if (ports == 0) {
            json_object(json);
            json_key_string(json, "action", "allow");
            json_key_string(json, gate_addr_parse(first->name, &addr) == 0 ? "cidr" : "domain", first->name);
            json_key_array(json, "ports");
        }
        json_u64(json, first[i].port);
        if (++ports == RULE_PORTS_MAX) {
            end_rule(json, kind);
            ports = 0;
        }
    }
    if (ports > 0)
        end_rule(json, kind);
}

int learn_put_json(const struct learn *learn, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "default", "deny");
    json_key_array(&json, "rules");
    for (size_t i = 0, n; i < learn->n; i += n) {
        for (n = 1; i + n < learn->n && str_eq(learn->entries[i].name, learn->entries[i + n].name);)
            n++;
        for (int kind = 0; kind < KIND_MAX; kind++)
            put_rules(&json, &learn->entries[i], n, (enum kind)kind);
    }
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}
