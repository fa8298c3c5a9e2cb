/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_format.c: `format`, if it asserts. This file has the table of names, the times and the small formats. A
 * name that is not in the table asserts nothing, as the standard says.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/ascii.h"
#include "base/str.h"

struct text {
    const char *at, *end;
};

static bool take(struct text *text, char c)
{
    bool there = text->at < text->end && *text->at == c;

    text->at += there;
    return there;
}

/* Just n digits, ASCII only. */
static bool number(struct text *text, unsigned n, unsigned *ret)
{
    unsigned value = 0;

    for (; n > 0; n--, text->at++) {
        if (text->at == text->end || *text->at < '0' || *text->at > '9')
            return false;
        value = value * 10 + (unsigned)(*text->at - '0');
    }
    *ret = value;
    return true;
}

static bool digits(struct text *text)
{
    const char *from = text->at;

    while (text->at < text->end && ascii_is_digit(*text->at))
        text->at++;
    return text->at > from;
}

static bool full_date(struct text *text)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    unsigned year, month, day;

    if (!number(text, 4, &year) || !take(text, '-') || !number(text, 2, &month) || !take(text, '-') ||
        !number(text, 2, &day))
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1] + (month == 2 && leap ? 1u : 0u);
}

/* RFC 3339. A leap second is one at the end of a day in UTC, whatever the clock on the wall says. */
static bool full_time(struct text *text)
{
    unsigned hour, minute, second, off_hour = 0, off_minute = 0;

    if (!number(text, 2, &hour) || !take(text, ':') || !number(text, 2, &minute) || !take(text, ':') ||
        !number(text, 2, &second))
        return false;
    if (hour > 23 || minute > 59 || second > 60 || (take(text, '.') && !digits(text)))
        return false;
    bool plus = take(text, '+'), minus = !plus && take(text, '-');
    if (plus || minus) {
        if (!number(text, 2, &off_hour) || !take(text, ':') || !number(text, 2, &off_minute) || off_hour > 23 ||
            off_minute > 59)
            return false;
    } else if (!take(text, 'Z') && !take(text, 'z')) {
        return false;
    }
    unsigned offset = off_hour * 60 + off_minute,
             utc = (hour * 60 + minute + 1440 + (minus ? offset : 1440 - offset)) % 1440;
    return second < 60 || utc == 1439;
}

static bool format_date(const char *at, size_t len)
{
    struct text text = {at, at + len};

    return full_date(&text) && text.at == text.end;
}

static bool format_time(const char *at, size_t len)
{
    struct text text = {at, at + len};

    return full_time(&text) && text.at == text.end;
}

static bool format_date_time(const char *at, size_t len)
{
    struct text text = {at, at + len};

    return full_date(&text) && (take(&text, 'T') || take(&text, 't')) && full_time(&text) && text.at == text.end;
}

/* Numbers with units that follow each other in the order of `units`, without a gap; at least one. */
static bool units(struct text *text, const char *names)
{
    const char *last = NULL;

    while (text->at < text->end && ascii_is_digit(*text->at)) {
        if (!digits(text) || text->at == text->end)
            return false;
        const char *unit = strchr(names, *text->at);
        if (*text->at == '\0' || !unit || (last && unit != last + 1))
            return false;
        last = unit;
        text->at++;
    }
    return last != NULL;
}

/* RFC 3339, appendix A. */
static bool format_duration(const char *at, size_t len)
{
    struct text text = {at, at + len};

    if (!take(&text, 'P'))
        return false;
    struct text weeks = text;
    if (digits(&weeks) && take(&weeks, 'W'))
        return weeks.at == weeks.end;
    bool date = text.at < text.end && *text.at != 'T';
    if (date && !units(&text, "YMD"))
        return false;
    if (text.at == text.end)
        return date;
    return take(&text, 'T') && units(&text, "HMS") && text.at == text.end;
}

static bool format_uuid(const char *at, size_t len)
{
    if (len != 36)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? at[i] != '-' : ascii_hex(at[i]) < 0)
            return false;
    }
    return true;
}

static bool format_json_pointer(const char *at, size_t len)
{
    if (len > 0 && at[0] != '/')
        return false;
    for (size_t i = 0; i < len; i++)
        if (at[i] == '~' && (i + 1 == len || (at[i + 1] != '0' && at[i + 1] != '1')))
            return false;
    return true;
}

static bool format_relative_json_pointer(const char *at, size_t len)
{
    struct text text = {at, at + len};

    if (!digits(&text) || (at[0] == '0' && text.at > at + 1))
        return false;
    if (take(&text, '#'))
        return text.at == text.end;
    return format_json_pointer(text.at, (size_t)(text.end - text.at));
}

static bool format_regex(const char *at, size_t len)
{
    struct pattern *pattern = NULL;

    if (pattern_compile(at, len, &pattern, NULL) < 0)
        return false;
    pattern_free(pattern);
    return true;
}

static const struct {
    const char *name;
    bool (*check)(const char *text, size_t len);
    uint16_t price;
} formats[] = {
    {"date", format_date, 10},
    {"date-time", format_date_time, 10},
    {"duration", format_duration, 10},
    {"email", format_email, 100},
    {"hostname", format_hostname, 100},
    {"idn-email", format_idn_email, 100},
    {"idn-hostname", format_idn_hostname, 100},
    {"ipv4", format_ipv4, 10},
    {"ipv6", format_ipv6, 10},
    {"iri", format_iri, 10},
    {"iri-reference", format_iri_reference, 10},
    {"json-pointer", format_json_pointer, 10},
    {"regex", format_regex, 2000},
    {"relative-json-pointer", format_relative_json_pointer, 10},
    {"time", format_time, 10},
    {"uri", format_uri, 10},
    {"uri-reference", format_uri_reference, 10},
    {"uri-template", format_uri_template, 10},
    {"uuid", format_uuid, 10},
};

uint8_t schema_format_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
        if (str_eq(formats[i].name, name))
            return (uint8_t)(i + 1);
    return 0;
}

uint64_t schema_format_price(uint8_t format, size_t len)
{
    return formats[format - 1].price + len * (formats[format - 1].price / 100) + len / 16;
}

bool schema_format_check(uint8_t format, const char *text, size_t len)
{
    return formats[format - 1].check(text, len);
}

bool schema_format_known(const char *name)
{
    return schema_format_find(name) > 0;
}

bool schema_format_holds(const char *name, const char *text, size_t len)
{
    uint8_t format = schema_format_find(name);

    return format > 0 && schema_format_check(format, text, len);
}
