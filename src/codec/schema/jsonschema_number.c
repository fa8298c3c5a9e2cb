/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_number.c: compares and divides JSON's numbers exactly, from the text in which they were written, because
 * neither int64 nor double holds them all. A number is its sign, its digits without zeros at either end, and where the
 * point is:
 *
 *     -0.01200e5  ->  negative, "12", point 4:  0.12 x 10^4
 *
 * No digit is copied; time is linear in the text. All exponents beyond +-10^15 count as the same; no real number is so
 * large.
 */
#include "codec/schema/jsonschema_priv.h"

#define MAX_EXPONENT 1000000000000000 /* 10^15 */

__extension__ typedef unsigned __int128 wide;

struct decimal {
    bool negative;
    const char *first, *end; /* digits, with a point somewhere perhaps; empty for zero */
    size_t n;                /* digits */
    int64_t point;
};

static int64_t read_exponent(const char *at, const char *end)
{
    bool negative = at < end && *at == '-';
    int64_t value = 0;

    for (at += at < end && (*at == '-' || *at == '+'); at < end; at++)
        if (value < MAX_EXPONENT)
            value = value * 10 + (*at - '0');
    return negative ? -value : value;
}

static struct decimal decimal_of(const struct json_value *number)
{
    const char *at = number->raw, *end = number->raw + number->raw_len, *last = NULL;
    struct decimal decimal = {.negative = *at == '-'};
    bool fraction = false;
    size_t n = 0;

    for (at += decimal.negative; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        if (*at != '0' && !decimal.first)
            decimal.first = at;
        n += decimal.first != NULL;
        decimal.point += !fraction && decimal.first ? 1 : fraction && !decimal.first ? -1 : 0;
        if (*at != '0') {
            last = at;
            decimal.n = n;
        }
    }
    if (!decimal.first)
        return (struct decimal){.first = "", .end = ""};
    decimal.end = last + 1;
    if (at < end)
        decimal.point += read_exponent(at + 1, end);
    return decimal;
}

bool number_is_whole(const struct json_value *number)
{
    if (number->integer)
        return true;
    struct decimal decimal = decimal_of(number);
    return decimal.n == 0 || decimal.point >= (int64_t)decimal.n;
}

size_t number_digits(const struct json_value *number)
{
    return decimal_of(number).n;
}

static int compare_magnitude(const struct decimal *a, const struct decimal *b)
{
    const char *x = a->first, *y = b->first;

    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    for (; x < a->end && y < b->end; x++, y++) {
        x += *x == '.';
        y += *y == '.';
        if (*x != *y)
            return *x < *y ? -1 : 1;
    }
    return (x < a->end) - (y < b->end);
}

int number_compare(const struct json_value *a, const struct json_value *b)
{
    if (a->integer && b->integer)
        return (a->i64 > b->i64) - (a->i64 < b->i64);
    struct decimal x = decimal_of(a), y = decimal_of(b);
    if (x.n == 0 || y.n == 0 || x.negative != y.negative) {
        int sign_x = x.n == 0 ? 0 : x.negative ? -1 : 1, sign_y = y.n == 0 ? 0 : y.negative ? -1 : 1;
        return (sign_x > sign_y) - (sign_x < sign_y);
    }
    return x.negative ? compare_magnitude(&y, &x) : compare_magnitude(&x, &y);
}

static uint64_t power_of_ten(uint64_t exponent, uint64_t modulus)
{
    wide result = 1 % modulus, base = 10 % modulus;

    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result = result * base % modulus;
        base = base * base % modulus;
    }
    return (uint64_t)result;
}

/* digits(n) x 10^p over digits(d) x 10^q. Neither ends in a zero, so where p < q ten would have to divide what it does
 * not. */
bool number_is_multiple(const struct json_value *number, const struct json_value *divisor)
{
    struct decimal n = decimal_of(number), d = decimal_of(divisor);
    int64_t p = n.point - (int64_t)n.n, q = d.point - (int64_t)d.n;
    uint64_t whole = 0;
    wide rest = 0;

    if (n.n == 0)
        return true;
    if (d.n == 0 || d.n > SCHEMA_DIVISOR_DIGITS || p < q)
        return false;
    for (const char *at = d.first; at < d.end; at++)
        if (*at != '.')
            whole = whole * 10 + (uint64_t)(*at - '0');
    if (whole == 0) /* it has a digit that is none; for who reads only this function */
        return false;
    for (const char *at = n.first; at < n.end; at++)
        if (*at != '.')
            rest = (rest * 10 + (unsigned)(*at - '0')) % whole;
    return rest * power_of_ten((uint64_t)(p - q), whole) % whole == 0;
}

uint64_t number_hash(const struct json_value *number)
{
    struct decimal decimal = decimal_of(number);
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)decimal.point;

    for (const char *at = decimal.first; at < decimal.end; at++)
        if (*at != '.')
            hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return decimal.negative && decimal.n > 0 ? ~hash : hash;
}
