/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_format_uri.c: `format` for URIs (RFC 3986), IRIs (RFC 3987: the same with letters of all languages) and
 * URI templates (RFC 6570).
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/ascii.h"
#include "base/utf8.h"

/* Every byte is unreserved, a sub-delimiter, one of `more`, or starts a %XX. */
static bool is_made_of(const char *text, size_t len, const char *more, bool wide)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '%') {
            if (len - i < 3 || ascii_hex(text[i + 1]) < 0 || ascii_hex(text[i + 2]) < 0)
                return false;
            i += 2;
        } else if ((unsigned char)c >= 0x80) {
            uint32_t point = 0;
            size_t n = wide ? utf8_sequence(text + i, len - i, &point) : 0;
            if (n == 0 || point < 0xa0)
                return false;
            i += n - 1;
        } else if (!ascii_is_alnum(c) && (c == '\0' || (!strchr("-._~!$&'()*+,;=", c) && !strchr(more, c)))) {
            return false;
        }
    }
    return true;
}

static size_t span(const char *text, size_t len, const char *stops)
{
    size_t n = 0;

    while (n < len && (text[n] == '\0' || !strchr(stops, text[n])))
        n++;
    return n;
}

/* "[::1]" or "[v7.x]". */
static bool is_ip_literal(const char *text, size_t len)
{
    if (len < 3 || text[len - 1] != ']')
        return false;
    if ((text[1] | 0x20) != 'v')
        return format_ipv6(text + 1, len - 2);
    size_t n = span(text + 2, len - 3, ".");
    for (size_t i = 0; i < n; i++)
        if (ascii_hex(text[2 + i]) < 0)
            return false;
    return n > 0 && n + 1 < len - 3 && is_made_of(text + 3 + n, len - 4 - n, ":", false) && !memchr(text, '%', len);
}

static bool is_authority(const char *text, size_t len, bool wide)
{
    size_t user = span(text, len, "@"), port = len;

    if (user < len) {
        if (!is_made_of(text, user, ":", wide))
            return false;
        text += user + 1;
        len -= user + 1;
        port = len;
    }
    while (port > 0 && ascii_is_digit(text[port - 1]))
        port--;
    if (port > 0 && text[port - 1] == ':')
        len = port - 1;
    return len > 0 && text[0] == '[' ? is_ip_literal(text, len) : is_made_of(text, len, "", wide);
}

static bool is_scheme(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!ascii_is_alnum(text[i]) && (i == 0 || !strchr("+-.", text[i]) || text[i] == '\0'))
            return false;
    return len > 0 && !ascii_is_digit(text[0]);
}

static bool check_uri(const char *text, size_t len, bool wide, bool relative)
{
    size_t n = span(text, len, ":/?#");
    bool scheme = n < len && text[n] == ':';

    if (scheme ? !is_scheme(text, n) : !relative)
        return false;
    if (scheme) {
        text += n + 1;
        len -= n + 1;
    }
    n = span(text, len, "#");
    if (n < len && !is_made_of(text + n + 1, len - n - 1, ":@/?", wide))
        return false;
    len = n;
    n = span(text, len, "?");
    if (n < len && !is_made_of(text + n + 1, len - n - 1, ":@/?", wide))
        return false;
    len = n;
    if (len >= 2 && text[0] == '/' && text[1] == '/') {
        n = span(text + 2, len - 2, "/");
        if (!is_authority(text + 2, n, wide))
            return false;
        text += n + 2;
        len -= n + 2;
    }
    return is_made_of(text, len, ":@/", wide);
}

bool format_uri(const char *text, size_t len)
{
    return check_uri(text, len, false, false);
}

bool format_uri_reference(const char *text, size_t len)
{
    return check_uri(text, len, false, true);
}

bool format_iri(const char *text, size_t len)
{
    return check_uri(text, len, true, false);
}

bool format_iri_reference(const char *text, size_t len)
{
    return check_uri(text, len, true, true);
}

/* "a.b:3" or "a*", between the commas of an expression. */
static bool is_variable(const char *text, size_t len)
{
    size_t n = span(text, len, ":*"), digits = 0;

    if (n == 0 || text[0] == '.' || text[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '%' && n - i >= 3 && ascii_hex(text[i + 1]) >= 0 && ascii_hex(text[i + 2]) >= 0)
            i += 2;
        else if (!ascii_is_alnum(text[i]) && text[i] != '_' && (text[i] != '.' || text[i + 1] == '.'))
            return false;
    }
    if (n == len || text[n] == '*')
        return n == len || n + 1 == len;
    for (size_t i = n + 1; i < len; i++, digits++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return digits >= 1 && digits <= 4 && text[n + 1] != '0';
}

static bool is_expression(const char *text, size_t len)
{
    if (len > 0 && text[0] != '\0' && strchr("+#./;?&=,!@|", text[0])) {
        text++;
        len--;
    }
    for (;;) {
        size_t n = span(text, len, ",");
        if (!is_variable(text, n))
            return false;
        if (n == len)
            return true;
        text += n + 1;
        len -= n + 1;
    }
}

bool format_uri_template(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '{') {
            size_t n = span(text + i + 1, len - i - 1, "}");
            if (i + 1 + n == len || !is_expression(text + i + 1, n))
                return false;
            i += n + 1;
        } else if (c == '%') {
            if (len - i < 3 || ascii_hex(text[i + 1]) < 0 || ascii_hex(text[i + 2]) < 0)
                return false;
            i += 2;
        } else if (c <= 0x20 || c == 0x7f || strchr("\"<>\\^`|}", c)) {
            return false;
        }
    }
    return true;
}
