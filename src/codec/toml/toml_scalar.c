/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml_scalar.c: reads the values of TOML that are no strings: true and false, integers, floats, and the four kinds of
 * date and time (RFC 3339). The caller judges what follows a value: `1979-05-27T` is read as a date, and then the
 * caller refuses the T.
 */
#include <math.h>

#include "codec/toml/toml_priv.h"

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* Exactly n digits as a number; at moves only on success. */
static bool digits(const char **at, const char *end, unsigned n, unsigned *ret)
{
    unsigned value = 0;

    if (end - *at < n)
        return false;
    for (unsigned i = 0; i < n; i++) {
        if (!is_digit((unsigned char)(*at)[i]))
            return false;
        value = value * 10 + (unsigned)((*at)[i] - '0');
    }
    *at += n;
    *ret = value;
    return true;
}

static bool one(const char **at, const char *end, const char *of)
{
    if (*at == end || **at == '\0' || !strchr(of, **at))
        return false;
    ++*at;
    return true;
}

static unsigned month_days(unsigned year, unsigned month)
{
    static const unsigned days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && leap);
}

/* HH:MM:SS and a fraction. false when it is none; then at is where it was. */
static bool read_time(const char **at, const char *end)
{
    const char *p = *at;
    unsigned hour, minute, second;

    if (!digits(&p, end, 2, &hour) || !one(&p, end, ":") || !digits(&p, end, 2, &minute) || !one(&p, end, ":") ||
        !digits(&p, end, 2, &second) || hour > 23 || minute > 59 || second > 59)
        return false;
    if (end - p >= 2 && p[0] == '.' && is_digit((unsigned char)p[1]))
        for (p++; p < end && is_digit((unsigned char)*p); p++)
            ;
    *at = p;
    return true;
}

static bool read_offset(const char **at, const char *end)
{
    const char *p = *at;
    unsigned hour, minute;

    if (one(&p, end, "Zz") || (one(&p, end, "+-") && digits(&p, end, 2, &hour) && one(&p, end, ":") &&
                               digits(&p, end, 2, &minute) && hour <= 23 && minute <= 59)) {
        *at = p;
        return true;
    }
    return false;
}

/* The text from the cursor to end, with T and Z in capitals and no blank. */
static int take_date(struct toml_reader *in, const char *end, enum toml_type type, struct toml_value *ret)
{
    size_t len = (size_t)(end - in->at);
    char *out = toml_alloc(in, len + 1);

    if (!out)
        return err_nomem(in->err);
    for (size_t i = 0; i < len; i++)
        out[i] = in->at[i] == 't' || in->at[i] == ' ' ? 'T' : in->at[i] == 'z' ? 'Z' : in->at[i];
    out[len] = '\0';
    in->at = end;
    ret->type = type;
    ret->string = out;
    ret->len = len;
    return 0;
}

/* Whether something here looks like a date or a time. Then it is one, or an error. */
static bool starts_date(const struct toml_reader *in)
{
    const char *p = in->at;
    unsigned n;

    if (digits(&p, in->end, 4, &n) && one(&p, in->end, "-"))
        return true;
    p = in->at;
    return digits(&p, in->end, 2, &n) && one(&p, in->end, ":");
}

static int read_date(struct toml_reader *in, struct toml_value *ret)
{
    const char *p = in->at;
    unsigned year, month, day;

    if (read_time(&p, in->end))
        return take_date(in, p, TOML_LOCAL_TIME, ret);
    if (!digits(&p, in->end, 4, &year) || !one(&p, in->end, "-") || !digits(&p, in->end, 2, &month) ||
        !one(&p, in->end, "-") || !digits(&p, in->end, 2, &day) || month < 1 || month > 12 || day < 1 ||
        day > month_days(year, month))
        return toml_fail(in, "there is no such date or time");
    const char *date_end = p;
    if (!one(&p, in->end, "Tt ") || !read_time(&p, in->end))
        return take_date(in, date_end, TOML_LOCAL_DATE, ret);
    bool has_offset = read_offset(&p, in->end);
    return take_date(in, p, has_offset ? TOML_DATETIME : TOML_LOCAL_DATETIME, ret);
}

/* Digits of a base with single underscores between them, copied without those. How many, 0 when there are none. */
static size_t copy_digits(const char **at, const char *end, int base, struct toml_text *out, char *to)
{
    static const char all[] = "0123456789abcdef";
    size_t n = 0;

    for (const char *p = *at; p < end; p++) {
        int c = *p >= 'A' && *p <= 'F' ? *p - 'A' + 'a' : *p;
        if (c == '_' && n > 0 && p + 1 < end && p[-1] != '_')
            continue;
        const char *digit = c == 0 ? NULL : memchr(all, c, (size_t)base);
        if (!digit)
            break;
        to[out->len++] = *p;
        n++;
        *at = p + 1;
    }
    return n;
}

static int take_integer(struct toml_reader *in, const char *text, int base, struct toml_value *ret)
{
    bool negative = *text == '-';
    uint64_t value = 0, most = negative ? UINT64_C(1) << 63 : INT64_MAX;

    for (const char *p = text + (*text == '-' || *text == '+'); *p; p++) {
        int c = *p >= 'a' ? *p - 'a' + 10 : *p >= 'A' ? *p - 'A' + 10 : *p - '0';
        if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)c, &value) || value > most)
            return toml_fail(in, "the integer does not fit 64 bits");
    }
    ret->type = TOML_INTEGER;
    ret->integer = negative ? (int64_t)(0 - value) : (int64_t)value;
    ret->number = (double)ret->integer;
    return 0;
}

static int read_based(struct toml_reader *in, int base, char *copy, struct toml_value *ret)
{
    const char *p = in->at + 2;
    struct toml_text text = {copy, 0};

    if (copy_digits(&p, in->end, base, &text, copy) == 0)
        return toml_fail(in, "digits are missing after 0%c", in->at[1]);
    copy[text.len] = '\0';
    in->at = p;
    return take_integer(in, copy, base, ret);
}

static int read_decimal(struct toml_reader *in, char *copy, struct toml_value *ret)
{
    const char *p = in->at;
    struct toml_text text = {copy, 0};
    bool is_float = false;

    if (*p == '+' || *p == '-')
        copy[text.len++] = *p++;
    if (p < in->end && *p == '0')
        copy[text.len++] = *p++;
    else if (copy_digits(&p, in->end, 10, &text, copy) == 0)
        return toml_fail(in, "a value is missing, or is none");
    if (in->end - p >= 2 && p[0] == '.' && is_digit((unsigned char)p[1])) {
        copy[text.len++] = *p++;
        copy_digits(&p, in->end, 10, &text, copy);
        is_float = true;
    }
    const char *e = p;
    if (one(&e, in->end, "eE")) {
        size_t before = text.len;
        copy[text.len++] = 'e';
        if (e < in->end && (*e == '+' || *e == '-'))
            copy[text.len++] = *e++;
        if (e < in->end && *e != '_' && copy_digits(&e, in->end, 10, &text, copy) > 0) {
            p = e;
            is_float = true;
        } else {
            text.len = before;
        }
    }
    copy[text.len] = '\0';
    in->at = p;
    if (!is_float)
        return take_integer(in, copy, 10, ret);
    ret->type = TOML_FLOAT;
    ret->number = strtod(copy, NULL); /* no program here calls setlocale() */
    return 0;
}

static bool read_word(struct toml_reader *in, struct toml_value *ret)
{
    static const struct {
        const char *word;
        enum toml_type type;
        bool boolean;
        double number;
    } words[] = {
        {"true", TOML_BOOL, true, 0},           {"false", TOML_BOOL, false, 0},
        {"inf", TOML_FLOAT, false, INFINITY},   {"+inf", TOML_FLOAT, false, INFINITY},
        {"-inf", TOML_FLOAT, false, -INFINITY}, {"nan", TOML_FLOAT, false, NAN},
        {"+nan", TOML_FLOAT, false, NAN},       {"-nan", TOML_FLOAT, false, -NAN},
    };

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (toml_starts(in, words[i].word)) {
            in->at += strlen(words[i].word);
            ret->type = words[i].type;
            ret->boolean = words[i].boolean;
            ret->number = words[i].number;
            return true;
        }
    }
    return false;
}

int toml_read_scalar(struct toml_reader *in, struct toml_value *ret)
{
    if (read_word(in, ret))
        return 0;
    if (starts_date(in))
        return read_date(in, ret);

    /* A number is as long as its letters: nothing else belongs to one. */
    size_t len = 0;
    while ((size_t)(in->end - in->at) > len && in->at[len] != '\0' &&
           strchr("0123456789abcdefABCDEF_+-.xo", in->at[len]))
        len++;
    char *copy = toml_alloc(in, len + 2);
    if (!copy)
        return err_nomem(in->err);
    if (len >= 2 && in->at[0] == '0' && in->at[1] == 'x')
        return read_based(in, 16, copy, ret);
    if (len >= 2 && in->at[0] == '0' && in->at[1] == 'o')
        return read_based(in, 8, copy, ret);
    if (len >= 2 && in->at[0] == '0' && in->at[1] == 'b')
        return read_based(in, 2, copy, ret);
    if (len == 0)
        return toml_fail(in, "a value is missing, or is none");
    return read_decimal(in, copy, ret);
}
