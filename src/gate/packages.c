/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packages.c: makes rules for the package indexes that this host uses. It reads what the configuration files and the
 * environment say to pip, uv, npm, apt, cargo and Go, and adds the well-known public indexes. It takes only the host
 * and the port of a URL; a name or password in it never leaves the line that is read. A file that is missing, too large
 * or broken counts as none, and a line that is not understood is skipped, so that one bad mirror does not remove the
 * others. It reads only regular files, never blocks, and uses nothing but libc.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "gate/packages_priv.h"
#include "gate/policy.h"

#define FILE_MAX_BYTES (256u << 10)
#define DIR_MAX_FILES 256u
#define PLACES_MAX 256u
#define PATH_LEN 512u

struct place { /* one index: host and port */
    char host[DNS_NAME_MAX];
    bool is_address;
    uint16_t port; /* 0: 80 and 443 */
};

struct places {
    struct place list[PLACES_MAX];
    size_t n;
};

static const char *const public_hosts[] = {
    "pypi.org",           "files.pythonhosted.org", "registry.npmjs.org", "deb.debian.org",   "security.debian.org",
    "archive.ubuntu.com", "security.ubuntu.com",    "ports.ubuntu.com",   "proxy.golang.org", "sum.golang.org",
    "crates.io",          "static.crates.io",       "index.crates.io",
};

/* ---- hosts of URLs ------------------------------------------------------------------------------------ */

static bool host_address(const char *text, size_t len, char out[DNS_NAME_MAX])
{
    char plain[INET6_ADDRSTRLEN];
    uint8_t ip[16];
    bool v6 = len > 2 && text[0] == '[' && text[len - 1] == ']';

    if (v6)
        text++, len -= 2;
    if (len == 0 || len >= sizeof plain)
        return false;
    memcpy(plain, text, len);
    plain[len] = '\0';
    if (inet_pton(v6 ? AF_INET6 : AF_INET, plain, ip) != 1)
        return false;
    return inet_ntop(v6 ? AF_INET6 : AF_INET, ip, out, DNS_NAME_MAX) != NULL;
}

static void add_place(struct places *places, const struct place *place)
{
    for (size_t i = 0; i < places->n; i++) {
        if (places->list[i].port == place->port && str_eq(places->list[i].host, place->host))
            return;
    }
    if (places->n < PLACES_MAX)
        places->list[places->n++] = *place;
}

/* What follows "http://" or "https://", up to its end. */
static void add_url(struct places *places, const char *text, size_t len)
{
    struct place place = {.port = 0};
    size_t authority = 0, from = 0, host;
    char digits[6];
    uint32_t port;

    while (authority < len && !strchr("/?#", text[authority]))
        authority++;
    for (size_t i = 0; i < authority; i++) {
        if (text[i] == '@')
            from = i + 1;
    }
    for (host = from; host < authority && text[host] != ':'; host++) {
        if (text[host] == '[')
            while (host + 1 < authority && text[host] != ']')
                host++;
    }
    if (host < authority && host + 1 < authority) {
        size_t n = authority - host - 1;
        if (n >= sizeof digits)
            return;
        memcpy(digits, text + host + 1, n);
        digits[n] = '\0';
        if (parse_u32(digits, &port) < 0 || port == 0 || port > UINT16_MAX)
            return;
        place.port = (uint16_t)port;
    }
    /* "user:12/34@host" has a slash where none may be: what looks like the host is a user's name. */
    bool plain = memchr(text + from, '.', host - from) != NULL;
    if (from == 0 && !plain && memchr(text + authority, '@', len - authority))
        return;
    place.is_address = host_address(text + from, host - from, place.host);
    if (place.is_address || dns_name_canonical(text + from, host - from, place.host) == 0)
        add_place(places, &place);
}

/* Every http and https URL in text; it ends at a character of stops. */
static void add_urls(struct places *places, const char *text, size_t len, const char *stops)
{
    for (size_t at = 0; at + 7 <= len;) {
        size_t scheme = memcmp(text + at, "http://", 7) == 0 ? 7 : 0;
        if (scheme == 0 && at + 8 <= len && memcmp(text + at, "https://", 8) == 0)
            scheme = 8;
        if (scheme == 0) {
            at++;
            continue;
        }
        size_t end = at + scheme;
        while (end < len && (unsigned char)text[end] > ' ' && !strchr(stops, text[end]))
            end++;
        add_url(places, text + at + scheme, end - at - scheme);
        at = end;
    }
}

/* ---- files -------------------------------------------------------------------------------------------- */

bool config_next_line(const char **at, const char **line, size_t *len)
{
    if (**at == '\0')
        return false;
    *line = *at;
    *len = strcspn(*at, "\n");
    *at += *len + ((*at)[*len] == '\n');
    if (*len > 0 && (*line)[*len - 1] == '\r')
        (*len)--;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

size_t config_split_key(const char *line, size_t len, char separator, size_t *ret_value)
{
    const char *sign = memchr(line, separator, len);
    size_t key;

    if (!sign)
        return 0;
    key = (size_t)(sign - line);
    *ret_value = key + 1;
    while (key > 0 && is_blank(line[key - 1]))
        key--;
    return key;
}

static bool key_is(const char *key, size_t len, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < len && names[i][k] && (key[k] == names[i][k] || (key[k] == '_' && names[i][k] == '-')))
            k++;
        if (k == len && names[i][k] == '\0')
            return true;
    }
    return false;
}

/* pip.conf, uv.toml and cargo's config.toml: values of some keys, also on lines that are further in or inside of an
 * array. */
static void read_settings(void *places, const char *text)
{
    static const char *const keys[] = {"index-url", "extra-index-url", "find-links",   "url",
                                       "index",     "registry",        "default-index"};
    const char *line;
    size_t len, value;
    bool wanted = false;

    while (config_next_line(&text, &line, &len)) {
        size_t skip = 0;
        while (skip < len && is_blank(line[skip]))
            skip++;
        if (skip == len || line[skip] == '#' || line[skip] == ';')
            continue;
        size_t key = config_split_key(line + skip, len - skip, '=', &value);
        bool is_url = len - skip >= 4 && (memcmp(line + skip, "http", 4) == 0 || strchr("\"'", line[skip]));
        if (key > 0 && !(skip > 0 && is_url)) {
            wanted = key_is(line + skip, key, keys, ARRAY_SIZE(keys));
            if (wanted)
                add_urls(places, line + skip + value, len - skip - value, "\"'");
        } else if (wanted && line[skip] != '[') {
            add_urls(places, line + skip, len - skip, "\"'");
        } else {
            wanted = false;
        }
    }
}

static void read_npmrc(void *places, const char *text)
{
    const char *line;
    size_t len, value;

    while (config_next_line(&text, &line, &len)) {
        size_t key = config_split_key(line, len, '=', &value);
        bool scoped = key > 10 && line[0] == '@' && memcmp(line + key - 9, ":registry", 9) == 0;
        if (scoped || (key == 8 && memcmp(line, "registry", 8) == 0))
            add_urls(places, line + value, len - value, "\"'");
    }
}

/* "deb [options] URI suite component"; the options may have blanks. */
static void read_apt_list(void *places, const char *text)
{
    const char *line;
    size_t len;

    while (config_next_line(&text, &line, &len)) {
        while (len > 0 && is_blank(*line))
            line++, len--;
        size_t word = len > 8 && memcmp(line, "deb-src", 7) == 0 ? 7 : 3;
        if (len < 5 || memcmp(line, "deb", 3) != 0 || !is_blank(line[word]))
            continue;
        const char *comment = memchr(line, '#', len);
        add_urls(places, line, comment ? (size_t)(comment - line) : len, "");
    }
}

/* deb822: stanzas of "Field: value"; lines further in go on. "Enabled: no" takes its stanza out. */
static void read_apt_stanza(struct places *places, const char *text, const char *end)
{
    static const char *const uris[] = {"URIs"}, *const enabled[] = {"Enabled"};
    const char *line;
    size_t len, value;

    for (int pass = 0; pass < 2; pass++) {
        const char *at = text;
        bool wanted = false;
        while (at < end && config_next_line(&at, &line, &len)) {
            if (len == 0 || line[0] == '#')
                continue;
            size_t key = is_blank(line[0]) ? 0 : config_split_key(line, len, ':', &value);
            if (key > 0)
                wanted = key_is(line, key, uris, 1);
            if (pass == 0 && key > 0 && key_is(line, key, enabled, 1)) {
                while (value < len && is_blank(line[value]))
                    value++;
                if (len - value >= 2 && (line[value] | 0x20) == 'n' && (line[value + 1] | 0x20) == 'o')
                    return;
            }
            if (pass == 1 && wanted)
                add_urls(places, line, len, "");
        }
    }
}

static void read_apt_sources(void *places, const char *text)
{
    const char *line, *start = text;
    size_t len;

    for (const char *at = text; config_next_line(&at, &line, &len);) {
        size_t blank = 0;
        while (blank < len && is_blank(line[blank]))
            blank++;
        if (blank < len)
            continue;
        read_apt_stanza(places, start, line);
        start = at;
    }
    read_apt_stanza(places, start, start + strlen(start));
}

void config_read_file(int dir, const char *path, config_read_fn *read_text, void *ctx)
{
    AUTO_FD int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    AUTO_BUF struct buf text = BUF_INIT(FILE_MAX_BYTES + 1);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
        return;
    size_t size = (size_t)st.st_size;
    if (buf_reserve(&text, size + 1) < 0)
        return;
    while (text.len < size) {
        ssize_t got = RETRY(read(fd, text.data + text.len, size - text.len));
        if (got <= 0)
            break;
        buf_commit(&text, (size_t)got);
    }
    text.data[text.len] = '\0'; /* a NUL inside ends it: then it is not a configuration file */
    read_text(ctx, text.data);
}

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), tail = strlen(end);

    return len > tail && str_eq(name + len - tail, end);
}

void config_read_apt_dir(int root, config_read_fn *read_list, config_read_fn *read_sources, void *ctx)
{
    AUTO_DIR DIR *dir = dir_open(root, "etc/apt/sources.list.d");
    const struct dirent *entry;

    for (unsigned n = 0; n < DIR_MAX_FILES && (entry = dir_next(dir)); n++) {
        if (ends_with(entry->d_name, ".list"))
            config_read_file(dirfd(dir), entry->d_name, read_list, ctx);
        else if (ends_with(entry->d_name, ".sources"))
            config_read_file(dirfd(dir), entry->d_name, read_sources, ctx);
    }
}

static void read_files(struct places *places, int root, const char *home)
{
    static const struct {
        const char *path;
        bool below_home;
        config_read_fn *read_text;
    } files[] = {
        {"etc/pip.conf", false, read_settings},         {"etc/xdg/pip/pip.conf", false, read_settings},
        {".config/pip/pip.conf", true, read_settings},  {".pip/pip.conf", true, read_settings},
        {"etc/uv/uv.toml", false, read_settings},       {".config/uv/uv.toml", true, read_settings},
        {".cargo/config.toml", true, read_settings},    {"etc/npmrc", false, read_npmrc},
        {"usr/etc/npmrc", false, read_npmrc},           {".npmrc", true, read_npmrc},
        {"etc/apt/sources.list", false, read_apt_list},
    };
    char path[PATH_LEN];

    while (home && *home == '/')
        home++;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        if (!files[i].below_home)
            config_read_file(root, files[i].path, files[i].read_text, places);
        else if (home && str_format(path, sizeof path, "%s%s%s", home, *home ? "/" : "", files[i].path) > 0)
            config_read_file(root, path, files[i].read_text, places);
    }
    config_read_apt_dir(root, read_apt_list, read_apt_sources, places);
}

/* ---- the environment ---------------------------------------------------------------------------------- */

static void read_env(struct places *places, char *const *env)
{
    static const char *const names[] = {"PIP_INDEX_URL",
                                        "PIP_EXTRA_INDEX_URL",
                                        "PIP_FIND_LINKS",
                                        "UV_INDEX_URL",
                                        "UV_EXTRA_INDEX_URL",
                                        "UV_DEFAULT_INDEX",
                                        "UV_INDEX",
                                        "UV_FIND_LINKS",
                                        "npm_config_registry",
                                        "NPM_CONFIG_REGISTRY",
                                        "YARN_NPM_REGISTRY_SERVER"};
    static const char *const go[] = {"GOPROXY", "GOSUMDB"};

    for (; env && *env; env++) {
        size_t value = 0, key = config_split_key(*env, strlen(*env), '=', &value);
        const char *text = *env + value;
        if (key == 0)
            continue;
        bool cargo = (str_starts(*env, "CARGO_REGISTRIES_") && key > 6 && memcmp(*env + key - 6, "_INDEX", 6) == 0) ||
                     (str_starts(*env, "CARGO_SOURCE_") && key > 9 && memcmp(*env + key - 9, "_REGISTRY", 9) == 0);
        if (cargo || key_is(*env, key, names, ARRAY_SIZE(names)))
            add_urls(places, text, strlen(text), "");
        else if (key_is(*env, key, go, ARRAY_SIZE(go)))
            add_urls(places, text, strlen(text), ",|");
    }
}

/* ---- the rules ---------------------------------------------------------------------------------------- */

int packages_rules(int root_fd, const char *home, char *const *env, struct buf *out, struct brig_err *err)
{
    AUTO_FREE struct places *places = mem_zalloc(sizeof *places);
    struct json json = JSON_INIT(out);

    if (!places)
        return err_nomem(err);
    if (root_fd >= 0)
        read_files(places, root_fd, home);
    read_env(places, env);
    if (places->n > PLACES_MAX - ARRAY_SIZE(public_hosts))
        places->n = PLACES_MAX - ARRAY_SIZE(public_hosts);
    for (size_t i = 0; i < ARRAY_SIZE(public_hosts); i++) {
        struct place place = {.port = 0};
        if (str_copy(place.host, sizeof place.host, public_hosts[i]) == 0)
            add_place(places, &place);
    }
    json_array(&json);
    for (size_t i = 0; i < places->n; i++) {
        const struct place *place = &places->list[i];
        json_object(&json);
        json_key_string(&json, "action", "allow");
        json_key_string(&json, place->is_address ? "cidr" : "domain", place->host);
        json_key_array(&json, "ports");
        if (place->port == 0)
            json_u64(&json, 80), json_u64(&json, 443);
        else
            json_u64(&json, place->port);
        json_end(&json);
        json_end(&json);
    }
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_TOO_LARGE, -r, "package indexes") : 0;
}
