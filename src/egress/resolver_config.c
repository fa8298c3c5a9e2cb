/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver_config.c: parses resolv.conf and hosts, which another process read. As in the C library, unknown lines are
 * skipped, so a file that was written for it is never refused. Only if every server is unusable is that an error,
 * because the alternative, 127.0.0.1, was not meant. A server with a zone ("fe80::1%eth0") is not understood.
 */
#include "egress/resolver_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"

#define TIMEOUT_S 2u
#define ATTEMPTS 2u
#define TIMEOUT_MAX 30u
#define ATTEMPTS_MAX 5u

/* The next word of [*at, end), or false. */
static bool next_word(const char **at, const char *end, const char **ret, size_t *ret_len)
{
    const char *p = *at;

    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
        p++;
    *ret = p;
    while (p < end && *p != ' ' && *p != '\t' && *p != '\r')
        p++;
    *ret_len = (size_t)(p - *ret);
    *at = p;
    return *ret_len > 0;
}

static bool word_is(const char *word, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(word, text, len) == 0;
}

static void parse_option(const char *word, size_t len, struct resolver_servers *servers)
{
    const char *colon = memchr(word, ':', len);
    char digits[8];
    uint32_t value;

    if (word_is(word, len, "rotate"))
        servers->rotate = true;
    if (!colon || len - (size_t)(colon + 1 - word) >= sizeof(digits))
        return;
    size_t n = len - (size_t)(colon + 1 - word);
    memcpy(digits, colon + 1, n);
    digits[n] = '\0';
    if (parse_u32(digits, &value) < 0 || value == 0)
        return;
    if (word_is(word, (size_t)(colon - word), "timeout"))
        servers->timeout_s = value < TIMEOUT_MAX ? value : TIMEOUT_MAX;
    if (word_is(word, (size_t)(colon - word), "attempts"))
        servers->attempts = value < ATTEMPTS_MAX ? value : ATTEMPTS_MAX;
}

static int read_servers(const char *text, struct resolver_servers *ret, struct brig_err *err)
{
    bool named = false;

    for (const char *line = text; *line;) {
        const char *end = line + strcspn(line, "\n"), *at = line, *word;
        size_t len;

        if (next_word(&at, end, &word, &len) && word_is(word, len, "nameserver")) {
            named = true;
            if (next_word(&at, end, &word, &len) && ret->n < RESOLVER_SERVERS &&
                gate_server_parse(word, len, &ret->at[ret->n]) == 0)
                ret->n++;
        } else if (word_is(word, len, "options")) {
            while (next_word(&at, end, &word, &len))
                parse_option(word, len, ret);
        }
        line = *end ? end + 1 : end;
    }
    if (named && ret->n == 0)
        return err_usage(err, "resolv.conf: none of its name servers can be used");
    if (ret->n == 0) /* resolv.conf(5) */
        ret->n = gate_server_parse("127.0.0.1", 9, &ret->at[0]) == 0;
    return 0;
}

static int add_host(struct resolver_config *config, const char *name, const struct gate_addr *addr)
{
    if (MEM_GROW(config->hosts, config->n_hosts, config->cap_hosts) < 0)
        return -ENOMEM;
    struct resolver_host *host = &config->hosts[config->n_hosts];
    *host = (struct resolver_host){.name = name, .order = config->n_hosts};
    memcpy(host->ip, addr->ip, sizeof(host->ip));
    config->n_hosts++;
    return 0;
}

/* One line, which is in our copy: names are made canonical where they stand. */
static int read_hosts_line(struct resolver_config *config, char *line, const char *end)
{
    const char *at = line, *word;
    char name[DNS_NAME_MAX], ip[64];
    struct gate_addr addr;
    size_t len;

    if (!next_word(&at, end, &word, &len) || len >= sizeof(ip))
        return 0;
    memcpy(ip, word, len);
    ip[len] = '\0';
    if (gate_addr_parse(ip, &addr) < 0)
        return 0;
    while (next_word(&at, end, &word, &len)) {
        if (dns_name_canonical(word, len, name) < 0 || config->n_hosts == RESOLVER_HOSTS_MAX)
            continue;
        char *place = line + (word - line);
        size_t n = strlen(name);
        memcpy(place, name, n); /* never longer; the byte behind the word is a blank, a comment or the end */
        if (add_host(config, place, &addr) < 0)
            return -ENOMEM;
        if (at < end)
            at++;
        place[n] = '\0';
    }
    return 0;
}

static int compare_hosts(const void *a, const void *b)
{
    const struct resolver_host *x = a, *y = b;
    int r = strcmp(x->name, y->name);

    return r != 0 ? r : x->order < y->order ? -1 : x->order > y->order;
}

static int read_hosts(struct resolver_config *config, const char *text)
{
    config->hosts_text = mem_strdup(text);
    if (!config->hosts_text)
        return -ENOMEM;
    for (char *line = config->hosts_text;;) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : NULL;
        int r = read_hosts_line(config, line, line + strcspn(line, "#\n"));
        if (r < 0)
            return r;
        if (!next)
            break;
        line = next;
    }
    if (config->n_hosts > 0)
        qsort(config->hosts, config->n_hosts, sizeof(*config->hosts), compare_hosts);
    return 0;
}

int resolver_config_read(const char *resolv_conf, const char *hosts, struct resolver_config *ret, struct brig_err *err)
{
    struct resolver_config config = {.servers = {.timeout_s = TIMEOUT_S, .attempts = ATTEMPTS}};
    int r = read_servers(resolv_conf ? resolv_conf : "", &config.servers, err);

    if (r < 0)
        return r;
    r = read_hosts(&config, hosts ? hosts : "");
    if (r < 0) {
        resolver_config_done(&config);
        return err_nomem(err);
    }
    *ret = config;
    return 0;
}

void resolver_config_done(struct resolver_config *config)
{
    mem_free(config->hosts);
    mem_free(config->hosts_text);
    *config = (struct resolver_config){0};
}

size_t resolver_config_find(const struct resolver_config *config, const char *name,
                            struct gate_addr ret[RESOLVER_ADDRESSES])
{
    size_t low = 0, high = config->n_hosts, n = 0;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(config->hosts[mid].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < config->n_hosts && n < RESOLVER_ADDRESSES && str_eq(config->hosts[low].name, name); low++) {
        ret[n] = (struct gate_addr){0};
        memcpy(ret[n++].ip, config->hosts[low].ip, 16);
    }
    return n;
}
