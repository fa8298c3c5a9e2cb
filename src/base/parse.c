/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c: strict numbers. The form is judged before the value: a text that is no number is -EINVAL, however many
 * digits it has, and -ERANGE means a well-formed number that is too large. Only integers are used, so nothing is
 * rounded.
 */
#include "base/parse.h"

#include "base/ascii.h"

#define FRACTION_DIGITS 6u
#define FRACTION_UNIT UINT64_C(1000000)

struct decimal {
    uint64_t whole;
    uint64_t millionths;
    bool has_fraction;
    bool overflow;
    const char *rest; /* first character after the number */
};

static int decimal_parse(const char *text, struct decimal *ret)
{
    struct decimal d = {0};

    if (!text || !ascii_is_digit(*text))
        return -EINVAL;
    for (; ascii_is_digit(*text); text++) {
        if (__builtin_mul_overflow(d.whole, 10, &d.whole) ||
            __builtin_add_overflow(d.whole, (uint64_t)(*text - '0'), &d.whole))
            d.overflow = true;
    }
    if (*text == '.') {
        unsigned digits = 0;
        uint64_t unit = FRACTION_UNIT;
        for (text++; ascii_is_digit(*text); text++, digits++) {
            if (digits == FRACTION_DIGITS)
                return -EINVAL;
            unit /= 10;
            d.millionths += (uint64_t)(*text - '0') * unit;
        }
        if (digits == 0)
            return -EINVAL;
        d.has_fraction = true;
    }
    d.rest = text;
    *ret = d;
    return 0;
}

/* The value in units of which `scale` make one; scale is at most 2^40, so the fraction's product fits. */
static int decimal_scale(const struct decimal *d, uint64_t scale, uint64_t *ret)
{
    uint64_t value, fraction = d->millionths * scale / FRACTION_UNIT;

    if (d->overflow || __builtin_mul_overflow(d->whole, scale, &value) ||
        __builtin_add_overflow(value, fraction, &value) || value > INT64_MAX)
        return -ERANGE;
    if (value == 0)
        return -EINVAL;
    *ret = value;
    return 0;
}

int parse_u64(const char *text, uint64_t *ret)
{
    struct decimal d;
    int r = decimal_parse(text, &d);

    if (r < 0)
        return r;
    if (d.has_fraction || *d.rest != '\0')
        return -EINVAL;
    if (d.overflow || d.whole > INT64_MAX)
        return -ERANGE;
    *ret = d.whole;
    return 0;
}

int parse_u32(const char *text, uint32_t *ret)
{
    uint64_t value;
    int r = parse_u64(text, &value);

    if (r < 0)
        return r;
    if (value > UINT32_MAX)
        return -ERANGE;
    *ret = (uint32_t)value;
    return 0;
}

size_t parse_fields(const char *text, uint64_t *ret, size_t max)
{
    size_t n = 0;

    while (n < max) {
        struct decimal d;
        text += strspn(text, " \t");
        if (decimal_parse(text, &d) < 0 || d.has_fraction || d.overflow || !strchr(" \t\n", *d.rest))
            break;
        ret[n++] = d.whole;
        text = d.rest;
    }
    return n;
}

/* The factor that a suffix stands for, 0 when it is none. */
static uint64_t size_scale(const char *suffix)
{
    static const char letters[] = "kmgt";
    const char *letter;

    if (*suffix == '\0')
        return 1;
    letter = strchr(letters, ascii_lower(*suffix));
    if (!letter)
        return 0;
    suffix++;
    if (ascii_lower(*suffix) == 'i' && ascii_lower(suffix[1]) == 'b')
        suffix += 2;
    else if (ascii_lower(*suffix) == 'b')
        suffix++;
    return *suffix == '\0' ? UINT64_C(1) << 10 * (letter - letters + 1) : 0;
}

int brig_parse_size(const char *text, uint64_t *ret)
{
    struct decimal d;
    int r = decimal_parse(text, &d);

    if (r < 0)
        return r;
    uint64_t scale = size_scale(d.rest);
    if (scale == 0 || (scale == 1 && d.has_fraction))
        return -EINVAL;
    return decimal_scale(&d, scale, ret);
}

static const struct {
    const char *suffix;
    uint64_t ms;
} duration_units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};

int brig_parse_duration(const char *text, uint64_t *ret)
{
    struct decimal d;
    int r = decimal_parse(text, &d);

    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(duration_units); i++) {
        if (strcmp(d.rest, duration_units[i].suffix) == 0)
            return decimal_scale(&d, duration_units[i].ms, ret);
    }
    return -EINVAL;
}

int brig_parse_cpus(const char *text, uint64_t *ret)
{
    struct decimal d;
    int r = decimal_parse(text, &d);

    if (r < 0)
        return r;
    if (*d.rest != '\0')
        return -EINVAL;
    return decimal_scale(&d, 1000, ret);
}
