/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_rules.c: the rules for the text of a key. Each rule returns NULL, or the sentence that the text breaks.
 * Nothing is opened or looked up here: `brig config check` on a laptop must say what the server will say.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "base/ascii.h"
#include "base/parse.h"
#include "base/str.h"
#include "config/config_keys.h"
#include "gate/address.h"

/* "host:port" into its parts; an IPv6 address stands in brackets, which are not copied. */
static bool split_listen(const char *text, char host[64], uint64_t *port)
{
    const char *colon = strrchr(text, ':');

    if (!colon || strlen(colon + 1) > 5 || parse_u64(colon + 1, port) < 0 || *port > 65535)
        return false;
    size_t len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    } else if (memchr(text, ':', len)) {
        return false;
    }
    if (len == 0 || len >= 64)
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    return true;
}

const char *config_rule_listen(const char *text)
{
    struct in6_addr address;
    char host[64];
    uint64_t port;

    if (text[0] == '\0')
        return NULL;
    if (!split_listen(text, host, &port) ||
        (!str_eq(host, "localhost") && inet_pton(text[0] == '[' ? AF_INET6 : AF_INET, host, &address) != 1))
        return "must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744, or empty";
    return NULL;
}

bool config_is_loopback(const char *listen)
{
    struct in6_addr six;
    struct in_addr four;
    char host[64];
    uint64_t port;

    if (listen[0] == '\0')
        return true;
    if (!split_listen(listen, host, &port))
        return false;
    if (str_eq(host, "localhost"))
        return true;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool is_absolute(const char *text)
{
    return text[0] == '/' && strlen(text) < 4096;
}

const char *config_rule_socket(const char *text)
{
    /* Empty is what the default is before it is known. */
    if (text[0] != '\0' && (!is_absolute(text) || strlen(text) >= sizeof(((struct sockaddr_un *)0)->sun_path)))
        return "must be an absolute path of at most 107 bytes";
    return NULL;
}

const char *config_rule_file(const char *text)
{
    return text[0] == '\0' || is_absolute(text) ? NULL : "must be an absolute path, or empty";
}

/* A DNS name: labels of letters, digits and hyphens. */
static bool is_host_name(const char *text, size_t len)
{
    size_t label = 0;

    if (len == 0 || len > 253)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.') {
            if (label == 0 || text[i - 1] == '-')
                return false;
            label = 0;
        } else if (!strchr(ASCII_ALNUM "-", text[i]) || ++label > 63 || (label == 1 && text[i] == '-')) {
            return false;
        }
    }
    return label > 0 && text[len - 1] != '-';
}

const char *config_rule_domain(const char *text)
{
    return is_host_name(text, strlen(text)) ? NULL : "must be a host name";
}

/* Calls for each word between blanks; false as soon as one is not good. */
static bool all_words(const char *text, bool (*good)(const char *word, size_t len))
{
    for (;;) {
        text += strspn(text, " ");
        size_t len = strcspn(text, " ");
        if (len == 0)
            return true;
        if (!good(text, len))
            return false;
        text += len;
    }
}

/* A name, an IPv4 address (which looks like one), an IPv6 address in brackets; without a port. */
static bool is_host(const char *word, size_t len)
{
    char address[64];
    struct in6_addr six;

    if (word[0] != '[')
        return is_host_name(word, len);
    if (len < 4 || len - 2 >= sizeof(address) || word[len - 1] != ']')
        return false;
    memcpy(address, word + 1, len - 2);
    address[len - 2] = '\0';
    return inet_pton(AF_INET6, address, &six) == 1;
}

/* ORGANISATION=load, ORGANISATION=build, ORGANISATION=HOST or ORGANISATION=HOST/PATH. */
static bool is_allowance(const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len);
    size_t org = equals ? (size_t)(equals - word) : 0;

    if (org < 5 || memcmp(word, "org-", 4) != 0 || org + 1 >= len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (i != org && !(word[i] >= 'a' && word[i] <= 'z') && !(word[i] >= '0' && word[i] <= '9') &&
            !memchr("._-:/[]", word[i], 7))
            return false;
    return true;
}

const char *config_rule_allow(const char *text)
{
    return all_words(text, is_allowance)
               ? NULL
               : "must be words org-ID=load, org-ID=build or org-ID=HOST/PATH with blanks between them";
}

const char *config_rule_hosts(const char *text)
{
    return all_words(text, is_host) ? NULL : "must be host names with blanks between them, without ports";
}

static size_t scheme_len(const char *word, size_t len)
{
    return len > 8 && memcmp(word, "https://", 8) == 0 ? 8 : len > 7 && memcmp(word, "http://", 7) == 0 ? 7 : 0;
}

/* host[:port] */
static bool is_server(const char *word, size_t len)
{
    size_t host = len;
    for (size_t i = len; i > 0 && word[i - 1] != ']'; i--) {
        if (word[i - 1] == ':') {
            host = i - 1;
            break;
        }
    }
    for (size_t i = host + 1; i < len; i++)
        if (word[i] < '0' || word[i] > '9')
            return false;
    return (host == len || (len - host >= 2 && len - host <= 6)) && is_host(word, host);
}

/* scheme://host[:port], and nothing after it: an Origin has no path (RFC 6454, 6.2). `*` is not one, on purpose. */
static bool is_origin(const char *word, size_t len)
{
    size_t scheme = scheme_len(word, len);

    return scheme > 0 && is_server(word + scheme, len - scheme);
}

const char *config_rule_origins(const char *text)
{
    return all_words(text, is_origin) ? NULL
                                      : "must be origins with blanks between them, such as https://ui.example:8443";
}

/* An address: the daemon that connects to it looks no names up. */
const char *config_rule_otlp(const char *text)
{
    static const char rule[] = "must be http://ADDRESS:PORT (an address, not a name), or empty";
    char host[256];
    struct in6_addr any;

    if (text[0] == '\0')
        return NULL;
    if (!str_starts(text, "http://") || strpbrk(text, " \t@?#") || str_format(host, sizeof host, "%s", text + 7) < 0)
        return rule;
    host[strcspn(host, "/")] = '\0';
    char *colon = strrchr(host, ':');
    if (!colon)
        return rule;
    *colon = '\0';
    if (host[0] == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        return inet_pton(AF_INET6, host + 1, &any) == 1 ? NULL : rule;
    }
    return str_eq(host, "localhost") || inet_pton(AF_INET, host, &any) == 1 ? NULL : rule;
}

const char *config_rule_database(const char *text)
{
    bool good = text[0] == '\0' || str_starts(text, "postgresql://") || str_starts(text, "postgres://") ||
                str_starts(text, "sqlite:/");
    return good ? NULL : "must be postgresql://... or sqlite:/path, or empty";
}

const char *config_rule_image(const char *text)
{
    bool good = str_is_name(text, 127, ASCII_ALNUM, ASCII_ALNUM "_.:/@-") && !strstr(text, "..");

    return good ? NULL : "must be the name of a template";
}

const char *config_rule_work_dir(const char *text)
{
    bool up = false;

    for (const char *p = text; (p = strstr(p, "/..")) != NULL; p += 3)
        up = up || p[3] == '/' || p[3] == '\0';
    return text[0] == '/' && !up && strlen(text) <= 1023 ? NULL : "must be an absolute path without `..`";
}

const char *config_rule_require(const char *text)
{
    static const char rule[] = "must be all, or names of layers with commas (brig doctor lists them), or empty";
    char name[32];

    while (*text) {
        size_t len = strcspn(text, ",");
        if (len == 0 || len >= sizeof(name))
            return rule;
        memcpy(name, text, len);
        name[len] = '\0';
        if (!str_eq(name, "all") && brig_layer_parse(name) < 0)
            return rule;
        text += len;
        if (*text == ',' && *++text == '\0')
            return rule;
    }
    return NULL;
}

/* Among our own variables only the one that is made for it: another would be read as a setting, and be shown. */
const char *config_rule_variable(const char *text)
{
    if (!str_is_variable(text, strlen(text)))
        return "must be the name of a variable";
    if (str_starts(text, "BRIG_") && !str_eq(text, CONFIG_KEY_VARIABLE))
        return "must not be one of brig's own variables, but " CONFIG_KEY_VARIABLE;
    return NULL;
}

const char *config_rule_command(const char *text)
{
    return text[0] == '\0' || text[0] == '/' ? NULL : "must be an array of strings, the first an absolute path";
}

const char *config_rule_network(const char *text)
{
    bool good = str_is_name(text, 63, ASCII_LOWER ASCII_DIGITS, ASCII_LOWER ASCII_DIGITS "_.-") &&
                !str_eq(text, "learn") && !str_eq(text, "custom");

    return text[0] == '\0' || good ? NULL : "must be none, packages, open or the name of a policy";
}

static bool is_resolver(const char *word, size_t len)
{
    struct gate_addr server;

    return gate_server_parse(word, len, &server) == 0;
}

const char *config_rule_resolvers(const char *text)
{
    return all_words(text, is_resolver)
               ? NULL
               : "must be addresses of name servers, each with a port if it is not 53, such as 10.0.0.53 or "
                 "127.0.0.1:5353";
}

/* ---- [templates] -------------------------------------------------------------------------------------- */

const char *config_rule_servers(const char *text)
{
    return all_words(text, is_server) ? NULL : "must be HOST or HOST:PORT with blanks between them";
}

/* HOST=URL */
static bool is_mirror(const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len);
    size_t host = equals ? (size_t)(equals - word) : 0;

    if (host == 0 || !is_server(word, host))
        return false;
    word += host + 1, len -= host + 1;
    size_t scheme = scheme_len(word, len);
    const char *slash = scheme > 0 ? memchr(word + scheme, '/', len - scheme) : NULL;
    return scheme > 0 && is_server(word + scheme, (slash ? (size_t)(slash - word) : len) - scheme);
}

const char *config_rule_mirrors(const char *text)
{
    return all_words(text, is_mirror) ? NULL : "must be HOST=URL, such as docker.io=https://mirror.example";
}

/* What a reference may be is known to those who pull it. */
static bool is_pull(const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len);
    size_t name = equals ? (size_t)(equals - word) : 0, rest = len - (equals ? name + 1 : 0);

    return rest > 0 && rest < 512 && name < 128 && (!equals || name > 0) && !memchr(word + len - rest, '=', rest);
}

const char *config_rule_pull(const char *text)
{
    return all_words(text, is_pull) ? NULL : "must be REFERENCE or NAME=REFERENCE, with blanks between them";
}

/* [org-ID/]NAME=COUNT or [org-ID/]NAME:TAG=COUNT. What a name may be is known to those who keep templates. */
static bool is_pool(const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len), *slash = memchr(word, '/', len);
    const char *name = slash ? slash + 1 : word;
    char count[8];
    uint64_t n;

    if (!equals || equals <= name || equals - name >= 128 || (slash && (slash - word < 5 || slash - word >= 64)) ||
        (slash && memcmp(word, "org-", 4) != 0))
        return false;
    for (const char *at = word; at < equals; at++)
        if (!(*at >= 'a' && *at <= 'z') && !(*at >= 'A' && *at <= 'Z') && !(*at >= '0' && *at <= '9') &&
            !memchr("._-:", *at, 4) && at != slash)
            return false;
    size_t digits = (size_t)(word + len - equals - 1);
    if (digits == 0 || digits >= sizeof count)
        return false;
    memcpy(count, equals + 1, digits);
    count[digits] = '\0';
    return parse_u64(count, &n) == 0 && n >= 1 && n <= 1000;
}

const char *config_rule_pool(const char *text)
{
    return all_words(text, is_pool) ? NULL
                                    : "must be words NAME=COUNT or org-ID/NAME=COUNT with blanks between them, COUNT 1 "
                                      "to 1000";
}

const char *config_rule_proxy(const char *text)
{
    return str_eq(text, "none")    ? NULL
           : config_rule_url(text) ? "must be http://... or https://..., none, or empty"
                                   : NULL;
}

/* ---- [tools] ------------------------------------------------------------------------------------------ */

const char *config_rule_venv(const char *text)
{
    bool good = str_is_name(text, 127, ASCII_ALNUM "_", ASCII_ALNUM "_.-");

    return text[0] == '\0' || good ? NULL : "must be letters, digits, `_`, `.` and `-`, or empty";
}

const char *config_rule_url(const char *text)
{
    const char *host = str_starts(text, "http://") ? text + 7 : str_starts(text, "https://") ? text + 8 : NULL;

    return text[0] == '\0' || (host && host[0] && host[0] != '/' && !strpbrk(text, " \t"))
               ? NULL
               : "must be http://... or https://..., or empty";
}

const char *config_rule_debian_mirror(const char *text)
{
    const char *why = config_rule_url(text);

    return why                      ? why
           : strpbrk(text, "@\r\n") ? "must have no name and no password: it becomes a part of templates"
                                    : NULL;
}

const char *config_rule_dirs(const char *text)
{
    while (*text) {
        if (*text != '/')
            return "must be absolute paths with colons between them, or empty";
        text += strcspn(text, ":");
        text += *text == ':';
    }
    return NULL;
}
