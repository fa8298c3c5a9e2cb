/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_format_name.c: `format` for hosts, addresses and mailboxes (RFC 1123, 2673, 4291, 5321; 5890 to 5892 for
 * international names, with the tables of libidn2; 6531 for idn-email).
 */
#include "codec/schema/jsonschema_priv.h"

#include <arpa/inet.h>
#include <idn2.h>

#include "base/ascii.h"
#include "base/utf8.h"

#define MAX_NAME 253u
#define MAX_LABEL 63u

bool format_ipv4(const char *text, size_t len)
{
    unsigned parts = 0;

    for (size_t i = 0; i < len; parts++) {
        unsigned value = 0;
        size_t n = 0;
        for (; i + n < len && ascii_is_digit(text[i + n]) && n < 4; n++)
            value = value * 10 + (unsigned)(text[i + n] - '0');
        if (n == 0 || value > 255 || (n > 1 && text[i] == '0'))
            return false;
        i += n;
        if (i == len)
            return parts == 3;
        if (text[i++] != '.')
            return false;
    }
    return false;
}

bool format_ipv6(const char *text, size_t len)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;

    if (len >= sizeof(copy) || memchr(text, '\0', len))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return inet_pton(AF_INET6, copy, &address) == 1;
}

static bool is_label(const char *text, size_t len)
{
    if (len == 0 || len > MAX_LABEL || text[0] == '-' || text[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!ascii_is_alnum(text[i]) && text[i] != '-')
            return false;
    return true;
}

/* A label in its ASCII form, as libidn2 makes or confirms it; returns that form's length, or 0. */
static size_t encoded_label(const char *text, size_t len)
{
    char copy[MAX_LABEL * 4 + 1];
    uint8_t *out = NULL;
    size_t out_len = 0;
    bool encoded = len >= 4 && strncasecmp(text, "xn--", 4) == 0;

    if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len))
        return 0;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (idn2_register_u8(encoded ? NULL : (const uint8_t *)copy, encoded ? (const uint8_t *)copy : NULL, &out,
                         IDN2_NFC_INPUT) != IDN2_OK)
        return 0;
    if (out && strncasecmp((const char *)out, "xn--", 4) == 0 && is_label((const char *)out, strlen((const char *)out)))
        out_len = strlen((const char *)out);
    idn2_free(out);
    return out_len;
}

/* Two hyphens at third place promise an encoding (RFC 5890, 2.3.1). */
static bool is_plain_label(const char *text, size_t len)
{
    return is_label(text, len) && (len < 4 || text[2] != '-' || text[3] != '-');
}

/* The length of the separator here; with wide also those that an input method makes of a full stop. */
static size_t separator(const char *text, size_t left, bool wide)
{
    uint32_t point = 0;
    size_t n = utf8_sequence(text, left, &point);

    return point == '.' || (wide && (point == 0x3002 || point == 0xff0e || point == 0xff61)) ? n : 0;
}

static bool is_name(const char *text, size_t len, bool wide)
{
    size_t from = 0, total = 0;

    if (len > MAX_NAME * 4)
        return false;
    for (size_t i = 0, n = 0; i <= len; i += n > 0 ? n : 1) {
        n = i < len ? separator(text + i, len - i, wide) : 0;
        if (i < len && n == 0) {
            if ((unsigned char)text[i] >= 0x80 && !wide)
                return false;
            continue;
        }
        size_t label = is_plain_label(text + from, i - from) ? i - from : encoded_label(text + from, i - from);
        if (label == 0)
            return false;
        total += label + 1;
        from = i + n;
    }
    return total - 1 <= MAX_NAME;
}

bool format_hostname(const char *text, size_t len)
{
    return is_name(text, len, false);
}

bool format_idn_hostname(const char *text, size_t len)
{
    return is_name(text, len, true);
}

/* One byte of a local part that needs no quotes (RFC 5322 atext). */
static bool is_atom(char c, bool wide)
{
    return ascii_is_alnum(c) || (c != '\0' && strchr("!#$%&'*+/=?^_`{|}~-", c)) || (wide && (unsigned char)c >= 0x80);
}

static bool is_quoted(const char *text, size_t len, bool wide)
{
    if (len < 2 || text[0] != '"' || text[len - 1] != '"')
        return false;
    for (size_t i = 1; i < len - 1; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\\' && ++i == len - 1)
            return false;
        if (c == '"' || c < 0x20 || c == 0x7f || (c >= 0x80 && !wide))
            return false;
    }
    return true;
}

static bool is_local(const char *text, size_t len, bool wide)
{
    bool dot = true; /* none at the start, at the end or twice */

    if (len == 0)
        return false;
    if (text[0] == '"')
        return is_quoted(text, len, wide);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.' ? dot : !is_atom(text[i], wide))
            return false;
        dot = text[i] == '.';
    }
    return !dot;
}

static bool is_domain(const char *text, size_t len, bool wide)
{
    if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
        if (len > 7 && strncasecmp(text + 1, "IPv6:", 5) == 0)
            return format_ipv6(text + 6, len - 7);
        return format_ipv4(text + 1, len - 2);
    }
    return is_name(text, len, wide);
}

static bool is_mailbox(const char *text, size_t len, bool wide)
{
    size_t at = len;

    while (at > 0 && text[at - 1] != '@') /* the last: a quoted local part may have one too */
        at--;
    return at > 1 && len <= 320 && is_local(text, at - 1, wide) && is_domain(text + at, len - at, wide);
}

bool format_email(const char *text, size_t len)
{
    return is_mailbox(text, len, false);
}

bool format_idn_email(const char *text, size_t len)
{
    return is_mailbox(text, len, true);
}
