/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c: parses names of images. The grammar is that of the distribution project's reference package. The text
 * may come from any caller, and its parts become parts of a URL and of an Authorization scope; so only characters that
 * need no escape in either pass.
 */
#include "codec/reference.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"

#define HUB "docker.io"
#define HEX "0123456789abcdef"
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static int refuse(const char *text, const char *rule, struct brig_err *err)
{
    return err_usage(err, "image \"%.200s\": %s", text, rule);
}

bool digest_ok(const char *text)
{
    return str_starts(text, "sha256:") && strspn(text + 7, HEX) == 64 && text[7 + 64] == '\0';
}

/* ---- the host --------------------------------------------------------------------------------------------- */

static const char host_rule[] = "a host is a name or an address, with :PORT (1 to 65535) if it needs one";

/* Labels of letters, digits and inner hyphens. */
static bool name_ok(const char *name, size_t len)
{
    size_t start = 0;

    for (size_t i = 0; i <= len; i++) {
        if (i < len && name[i] != '.') {
            if (!strchr(LOWER DIGITS "-", name[i]))
                return false;
            continue;
        }
        if (i == start || i - start > 63 || name[start] == '-' || name[i - 1] == '-')
            return false;
        start = i + 1;
    }
    return len > 0 && len <= 253;
}

static bool address_ok(const char *text, size_t len)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr addr;

    if (len < 4 || text[0] != '[' || text[len - 1] != ']' || len - 2 >= sizeof address)
        return false;
    memcpy(address, text + 1, len - 2);
    address[len - 2] = '\0';
    return inet_pton(AF_INET6, address, &addr) == 1;
}

static bool port_ok(const char *text)
{
    uint32_t port = 0;

    return text[0] != '0' && strlen(text) <= 5 && parse_u32(text, &port) == 0 && port >= 1 && port <= 65535;
}

static bool host_ok(const char *host)
{
    const char *bracket = host[0] == '[' ? strchr(host, ']') : NULL;
    const char *colon = strchr(bracket ? bracket : host, ':');
    size_t len = colon ? (size_t)(colon - host) : strlen(host);

    return (bracket ? address_ok(host, len) : name_ok(host, len)) && (!colon || port_ok(colon + 1));
}

/* Takes the host from the front of *rest if there is one. */
static int take_host(const char *text, char **rest, struct image_ref *ref, struct brig_err *err)
{
    char *slash = strchr(*rest, '/');

    if (slash)
        *slash = '\0';
    if (!slash || (!strpbrk(*rest, ".:") && !str_eq(*rest, "localhost"))) {
        if (slash)
            *slash = '/';
        (void)!str_copy(ref->host, sizeof ref->host, HUB);
        return 0;
    }
    for (char *p = *rest; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    if (str_copy(ref->host, sizeof ref->host, *rest) < 0 || !host_ok(ref->host))
        return refuse(text, host_rule, err);
    if (str_eq(ref->host, "index.docker.io") || str_eq(ref->host, "registry-1.docker.io")) {
        memset(ref->host, 0, sizeof ref->host); /* equal references are equal bytes */
        (void)!str_copy(ref->host, sizeof ref->host, HUB);
    }
    *rest = slash + 1;
    return 0;
}

/* ---- the path --------------------------------------------------------------------------------------------- */

/* Letters and digits, and between them one dot, one or two underscores, or hyphens. Returns where it ends, or NULL. */
static const char *path_part(const char *p)
{
    for (;;) {
        size_t n = strspn(p, LOWER DIGITS);
        if (n == 0)
            return NULL;
        p += n;
        if (*p == '-')
            p += strspn(p, "-");
        else if (*p == '_')
            p += p[1] == '_' ? 2 : 1;
        else if (*p == '.')
            p++;
        else
            return p;
    }
}

static int check_path(const char *text, const char *path, struct brig_err *err)
{
    if (path[0] == '\0')
        return refuse(text, "the name is empty", err);
    if (strpbrk(path, UPPER))
        return refuse(text, "the letters of a name are lower case", err);
    for (const char *p = path;; p++) {
        p = path_part(p);
        if (!p || (*p != '\0' && *p != '/'))
            return refuse(text,
                          "each part of a name is letters and digits, with single dots, one or two underscores or "
                          "hyphens between them",
                          err);
        if (*p == '\0')
            return 0;
    }
}

static int take_path(const char *text, const char *path, struct image_ref *ref, struct brig_err *err)
{
    int r = check_path(text, path, err);

    if (r < 0)
        return r;
    if (str_eq(ref->host, HUB) && strspn(path, HEX) == 64 && path[64] == '\0')
        return refuse(text, "64 hexadecimal digits are the number of an image, not a name", err);
    bool library = str_eq(ref->host, HUB) && !strchr(path, '/');
    if (str_format(ref->repository, sizeof ref->repository, "%s%s", library ? "library/" : "", path) < 0)
        return refuse(text, "a name has at most 255 characters", err);
    return 0;
}

/* ---- tag and digest --------------------------------------------------------------------------------------- */

static int take_digest(const char *text, char *rest, struct image_ref *ref, struct brig_err *err)
{
    char *at = strchr(rest, '@');

    if (!at)
        return 0;
    *at++ = '\0';
    if (!str_starts(at, "sha256:"))
        return refuse(text, "a digest begins with sha256:", err);
    if (!digest_ok(at) || str_copy(ref->digest, sizeof ref->digest, at) < 0)
        return refuse(text, "a digest is sha256: and 64 lower-case hexadecimal digits", err);
    return 0;
}

static int take_tag(const char *text, char *rest, struct image_ref *ref, struct brig_err *err)
{
    char *colon = strchr(rest, ':');

    if (!colon) {
        if (!ref->digest[0])
            (void)!str_copy(ref->tag, sizeof ref->tag, "latest");
        return 0;
    }
    *colon++ = '\0';
    size_t len = strspn(colon, LOWER UPPER DIGITS "_.-");
    if (len == 0 || colon[len] != '\0' || colon[0] == '.' || colon[0] == '-' ||
        str_copy(ref->tag, sizeof ref->tag, colon) < 0)
        return refuse(text, "a tag is 1 to 128 letters, digits, _ . - and begins with no . or -", err);
    return 0;
}

int image_ref_parse(const char *text, struct image_ref *ret, struct brig_err *err)
{
    struct image_ref ref = {0};
    char copy[IMAGE_REF_TEXT];
    char *rest = copy;

    if (text[0] == '\0')
        return refuse(text, "the name is empty", err);
    if (strstr(text, "://"))
        return refuse(text, "a name has no scheme such as https://", err);
    if (str_copy(copy, sizeof copy, text) < 0)
        return err_usage(err, "image \"%.60s...\": longer than %u characters", text, IMAGE_REF_TEXT - 1);
    int r = take_digest(text, rest, &ref, err); /* from the back, and the host before the tag: both have colons */
    if (r == 0)
        r = take_host(text, &rest, &ref, err);
    if (r == 0)
        r = take_tag(text, rest, &ref, err);
    if (r == 0)
        r = take_path(text, rest, &ref, err);
    if (r == 0)
        *ret = ref;
    return r;
}

/* ---- using one -------------------------------------------------------------------------------------------- */

void image_ref_text(const struct image_ref *ref, char out[IMAGE_REF_TEXT])
{
    (void)!str_format(out, IMAGE_REF_TEXT, "%s/%s%s%s%s%s", ref->host, ref->repository, ref->tag[0] ? ":" : "",
                      ref->tag, ref->digest[0] ? "@" : "", ref->digest);
}

const char *image_ref_server(const struct image_ref *ref)
{
    return str_eq(ref->host, HUB) ? "registry-1.docker.io" : ref->host;
}

bool image_ref_below(const struct image_ref *ref, const char *prefix)
{
    char name[IMAGE_HOST + IMAGE_REPOSITORY];
    size_t len = strlen(prefix);

    while (len > 0 && prefix[len - 1] == '/')
        len--;
    return len > 0 && str_format(name, sizeof name, "%s/%s", ref->host, ref->repository) > 0 &&
           strncmp(name, prefix, len) == 0 && (name[len] == '/' || name[len] == '\0');
}
