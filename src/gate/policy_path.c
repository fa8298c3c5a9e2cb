/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_path.c: finds the path that a request names. Servers disagree about "/v1/../x", "/v1/%2e%2e/x", "/v1//x",
 * "/v1/..;/x", "\", "%2f" and double escapes, and the gate cannot know which server listens. So it does not normalise:
 * a path that could mean two things is no path at all (-EINVAL). No allow rule with paths matches it, and every deny
 * rule with paths does. Every other path is percent-decoded exactly once and compared by whole segments; the case of
 * letters counts.
 */
#include "base/ascii.h"
#include "base/base.h"
#include "gate/policy_priv.h"

/* "", ".", "..", also with parameters ("..;x=1"): what some server takes for another place. */
static bool odd_segment(const char *segment, size_t len, bool last)
{
    const char *semicolon = memchr(segment, ';', len);
    size_t plain = semicolon ? (size_t)(semicolon - segment) : len;

    if (plain == 0)
        return !last || semicolon; /* a trailing slash is one empty segment at the end */
    return (plain == 1 && segment[0] == '.') || (plain == 2 && segment[0] == '.' && segment[1] == '.');
}

/* What decoding again would turn into '.', '/', '\' or '%'. */
static bool escaped_again(const char *at)
{
    int high = ascii_hex(at[1]), low = high < 0 ? -1 : ascii_hex(at[2]);
    int byte = low < 0 ? 'x' : high << 4 | low;

    return byte == '.' || byte == '/' || byte == '\\' || byte == '%' || byte == '\0';
}

bool policy_path_tricky(const char *path)
{
    if (*path != '/')
        return true;
    for (const char *at = path; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (c < 0x20 || c == 0x7f || c == '\\' || (c == '%' && escaped_again(at)))
            return true;
    }
    for (const char *segment = path + 1;;) {
        size_t len = strcspn(segment, "/");
        bool last = segment[len] == '\0';
        if (odd_segment(segment, len, last))
            return true;
        if (last)
            return false;
        segment += len + 1;
    }
}

int policy_path_decode(const char *path, char *out, size_t size)
{
    size_t n = 0;

    for (const char *at = path; *at; at++) {
        char c = *at;
        if (c == '%') {
            int high = ascii_hex(at[1]), low = high < 0 ? -1 : ascii_hex(at[2]);
            if (low < 0)
                return -EINVAL;
            c = (char)(high << 4 | low);
            if (c == '/' || c == '\0')
                return -EINVAL;
            at += 2;
        } else if (c == '?' || c == '#') {
            return -EINVAL; /* not a path any more */
        }
        if (n + 1 >= size)
            return -EINVAL;
        out[n++] = c;
    }
    out[n] = '\0';
    return policy_path_tricky(out) ? -EINVAL : 0;
}

bool policy_path_under(const char *path, const char *prefix)
{
    size_t len = strlen(prefix);

    if (strncmp(path, prefix, len) != 0)
        return false;
    return prefix[len - 1] == '/' || path[len] == '\0' || path[len] == '/';
}
