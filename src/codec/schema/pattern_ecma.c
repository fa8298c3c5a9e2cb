/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern_ecma.c: translates a regular expression of ECMA 262 into pcre2's language. The two look alike and differ in
 * details, so every element is read and written again. What ECMA does not know (\A, (?i), (?P<n>), possessive repeats,
 * POSIX classes, callouts, verbs) is refused; what means something else there (\s, \v, `.`, \cX, \uXXXX, [^], a `]`
 * alone) is spelled out. So a tenant reaches nothing of pcre2's own language. It is stricter than a browser without the
 * `u` flag about letters (`\a` is no escape) and as lenient about punctuation (`\@`, `[\w-.]`), because the schemas of
 * real tools have both.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/ascii.h"

#define SPACES "\\x{feff}\\p{Xsp}" /* ECMA's \s: Unicode's spaces, and the byte order mark */

struct ecma {
    const char *at, *end;
    struct buf *out;
    uint32_t min_repeat; /* the largest {n, */
    const char *why;     /* what is wrong, for people */
};

struct property {
    const char *name, *pcre;
};

static int refuse(struct ecma *ecma, const char *why)
{
    ecma->why = why;
    return -EINVAL;
}

static char peek(const struct ecma *ecma, size_t ahead)
{
    return (size_t)(ecma->end - ecma->at) > ahead ? ecma->at[ahead] : '\0';
}

static int put_point(struct ecma *ecma, uint32_t point)
{
    return buf_printf(ecma->out, "\\x{%x}", point);
}

/* n hexadecimal digits, or as many as stand before `}` when n is 0. */
static int hex(struct ecma *ecma, unsigned n, uint32_t *ret)
{
    uint32_t value = 0;
    unsigned read = 0;

    for (; n == 0 ? peek(ecma, 0) != '}' : read < n; read++) {
        int digit = ascii_hex(peek(ecma, 0));
        if (read == 6 || digit < 0)
            return refuse(ecma, "a hexadecimal digit is missing");
        value = value << 4 | (uint32_t)digit;
        ecma->at++;
    }
    if (read == 0)
        return refuse(ecma, "a hexadecimal digit is missing");
    *ret = value;
    return 0;
}

/* After \u. */
static int unicode_escape(struct ecma *ecma)
{
    uint32_t point = 0, low = 0;
    int r;

    if (peek(ecma, 0) == '{') {
        ecma->at++;
        r = hex(ecma, 0, &point);
        ecma->at++;
    } else {
        r = hex(ecma, 4, &point);
        if (r == 0 && point >= 0xd800 && point <= 0xdbff && peek(ecma, 0) == '\\' && peek(ecma, 1) == 'u') {
            ecma->at += 2;
            r = hex(ecma, 4, &low);
            if (r == 0 && (low < 0xdc00 || low > 0xdfff))
                r = refuse(ecma, "half of a surrogate pair");
            point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (r < 0)
        return r;
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return refuse(ecma, "no such character");
    return put_point(ecma, point);
}

/* After \p or \P: pcre2 10.42 knows the short names of categories, and scripts; the long ones are told to it. */
static int property_escape(struct ecma *ecma, bool negative)
{
    static const struct property names[] = {
        {"Letter", "L"},
        {"Lowercase_Letter", "Ll"},
        {"Uppercase_Letter", "Lu"},
        {"Titlecase_Letter", "Lt"},
        {"Modifier_Letter", "Lm"},
        {"Other_Letter", "Lo"},
        {"Mark", "M"},
        {"Nonspacing_Mark", "Mn"},
        {"Spacing_Mark", "Mc"},
        {"Enclosing_Mark", "Me"},
        {"Number", "N"},
        {"Decimal_Number", "Nd"},
        {"digit", "Nd"},
        {"Letter_Number", "Nl"},
        {"Other_Number", "No"},
        {"Punctuation", "P"},
        {"punct", "P"},
        {"Connector_Punctuation", "Pc"},
        {"Dash_Punctuation", "Pd"},
        {"Open_Punctuation", "Ps"},
        {"Close_Punctuation", "Pe"},
        {"Initial_Punctuation", "Pi"},
        {"Final_Punctuation", "Pf"},
        {"Other_Punctuation", "Po"},
        {"Symbol", "S"},
        {"Math_Symbol", "Sm"},
        {"Currency_Symbol", "Sc"},
        {"Modifier_Symbol", "Sk"},
        {"Other_Symbol", "So"},
        {"Separator", "Z"},
        {"Space_Separator", "Zs"},
        {"Line_Separator", "Zl"},
        {"Paragraph_Separator", "Zp"},
        {"Other", "C"},
        {"Control", "Cc"},
        {"cntrl", "Cc"},
        {"Format", "Cf"},
        {"Surrogate", "Cs"},
        {"Private_Use", "Co"},
        {"Unassigned", "Cn"},
    };
    static const char *const prefixes[] = {"General_Category=", "gc=", "Script=", "sc="};
    char name[48] = "";
    size_t n = 0;

    if (peek(ecma, 0) != '{')
        return refuse(ecma, "\\p needs {a property}");
    for (ecma->at++; n < sizeof(name) - 1 && (ascii_is_letter(peek(ecma, 0)) || ascii_is_digit(peek(ecma, 0)) ||
                                              peek(ecma, 0) == '_' || peek(ecma, 0) == '=');
         n++)
        name[n] = *ecma->at++;
    if (peek(ecma, 0) != '}' || n == 0)
        return refuse(ecma, "\\p needs {a property}");
    ecma->at++;
    const char *short_name = name;
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            short_name = name + strlen(prefixes[i]);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(short_name, names[i].name) == 0)
            short_name = names[i].pcre;
    return buf_printf(ecma->out, "\\%c{%s}", negative ? 'P' : 'p', short_name);
}

/* Escapes that mean the same inside of a class and outside. */
static int common_escape(struct ecma *ecma, char c)
{
    uint32_t point = 0;
    int r;

    switch (c) {
    case 'd':
    case 'D':
    case 'w':
    case 'W': return buf_printf(ecma->out, "\\%c", c);
    case 'p':
    case 'P': return property_escape(ecma, c == 'P');
    case 'f': return put_point(ecma, '\f');
    case 'n': return put_point(ecma, '\n');
    case 'r': return put_point(ecma, '\r');
    case 't': return put_point(ecma, '\t');
    case 'v': return put_point(ecma, '\v');
    case 'u': return unicode_escape(ecma);
    case 'x': r = hex(ecma, 2, &point); return r < 0 ? r : put_point(ecma, point);
    case 'c':
        if (!ascii_is_letter(peek(ecma, 0)))
            return refuse(ecma, "\\c needs a letter");
        return put_point(ecma, *ecma->at++ & 0x1f);
    case '0':
        if (ascii_is_digit(peek(ecma, 0)))
            return refuse(ecma, "an octal escape");
        return put_point(ecma, 0);
    default: break;
    }
    if (ascii_is_letter(c) || ascii_is_digit(c) || (unsigned char)c >= 0x80 || c == '\0')
        return refuse(ecma, "no such escape");
    return buf_printf(ecma->out, "\\%c", c);
}

static bool is_set_escape(char c)
{
    return c != '\0' && strchr("dDwWsSpP", c) != NULL;
}

static int class_escape(struct ecma *ecma)
{
    char c = peek(ecma, 1);

    ecma->at += 2 <= ecma->end - ecma->at ? 2 : 1;
    if (c == 's')
        return buf_append_str(ecma->out, SPACES);
    if (c == 'S')
        return buf_append_str(ecma->out, "\\P{Xsp}");
    return c == 'b' ? put_point(ecma, '\b') : common_escape(ecma, c);
}

static int class(struct ecma *ecma)
{
    bool negative = peek(ecma, 1) == '^', after_set = false;
    int r;

    ecma->at += negative ? 2 : 1;
    if (peek(ecma, 0) == ']') { /* nothing, or anything */
        ecma->at++;
        return buf_append_str(ecma->out, negative ? "[\\x{0}-\\x{10ffff}]" : "(?!)");
    }
    r = buf_append_str(ecma->out, negative ? "[^" : "[");
    while (r == 0 && ecma->at < ecma->end && *ecma->at != ']') {
        char c = *ecma->at;
        if (c == '\\') {
            after_set = is_set_escape(peek(ecma, 1));
            r = class_escape(ecma);
            continue;
        }
        ecma->at++;
        /* A hyphen beside a set is itself; pcre2 would call it a mistake. */
        if (c == '[' || (c == '-' && (after_set || (peek(ecma, 0) == '\\' && is_set_escape(peek(ecma, 1))))))
            r = buf_append_str(ecma->out, "\\");
        if (r == 0)
            r = buf_append(ecma->out, &c, 1);
        after_set = false;
    }
    if (r < 0)
        return r;
    if (ecma->at == ecma->end)
        return refuse(ecma, "a class without end");
    ecma->at++;
    return buf_append_str(ecma->out, "]");
}

static int escape(struct ecma *ecma)
{
    char c = peek(ecma, 1);
    unsigned n = 0;

    if (ecma->end - ecma->at < 2)
        return refuse(ecma, "a backslash at the end");
    ecma->at += 2;
    if (c == 's' || c == 'S')
        return buf_append_str(ecma->out, c == 's' ? "[" SPACES "]" : "[^" SPACES "]");
    if (c == 'b' || c == 'B')
        return buf_printf(ecma->out, "\\%c", c);
    if (c == 'k') {
        const char *close = peek(ecma, 0) == '<' ? memchr(ecma->at, '>', (size_t)(ecma->end - ecma->at)) : NULL;
        if (!close)
            return refuse(ecma, "\\k needs <a group's name>");
        int r = buf_append_str(ecma->out, "\\k");
        if (r == 0)
            r = buf_append(ecma->out, ecma->at, (size_t)(close + 1 - ecma->at));
        ecma->at = close + 1;
        return r;
    }
    if (c < '1' || c > '9')
        return common_escape(ecma, c);
    for (ecma->at--; ascii_is_digit(peek(ecma, 0)) && n < 1000; ecma->at++)
        n = n * 10 + (unsigned)(*ecma->at - '0');
    return buf_printf(ecma->out, "\\g{%u}", n);
}

/* At "(". */
static int group(struct ecma *ecma)
{
    static const char *const opens[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!"};
    size_t left = (size_t)(ecma->end - ecma->at);

    if (peek(ecma, 1) == '*')
        return refuse(ecma, "nothing to repeat");
    if (peek(ecma, 1) != '?') {
        ecma->at++;
        return buf_append_str(ecma->out, "(");
    }
    for (size_t i = 0; i < ARRAY_SIZE(opens); i++) {
        size_t len = strlen(opens[i]);
        if (left >= len && memcmp(ecma->at, opens[i], len) == 0) {
            ecma->at += len;
            return buf_append_str(ecma->out, opens[i]);
        }
    }
    if (peek(ecma, 2) != '<' || !(ascii_is_letter(peek(ecma, 3)) || peek(ecma, 3) == '_'))
        return refuse(ecma, "no such kind of group");
    ecma->at += 3;
    return buf_append_str(ecma->out, "(?<");
}

/* {n}, {n,} or {n,m} at the place, its length; 0: a brace that stands for itself. */
static size_t braces(const struct ecma *ecma, uint32_t *ret_min)
{
    size_t n = 1;
    uint32_t min = 0;

    for (; ascii_is_digit(peek(ecma, n)); n++)
        if (min < 1000000)
            min = min * 10 + (uint32_t)(peek(ecma, n) - '0');
    if (n == 1)
        return 0;
    if (peek(ecma, n) == ',')
        for (n++; ascii_is_digit(peek(ecma, n));)
            n++;
    if (peek(ecma, n) != '}')
        return 0;
    *ret_min = min;
    return n + 1;
}

/* Returns 1 when a quantifier was there. */
static int quantifier(struct ecma *ecma)
{
    uint32_t min = 0;
    char c = peek(ecma, 0);
    size_t n = c == '*' || c == '+' || c == '?' ? 1 : c == '{' ? braces(ecma, &min) : 0;

    if (n == 0)
        return 0;
    if (min > PATTERN_REPEAT)
        return refuse(ecma, "a repetition that is too long");
    if (min > ecma->min_repeat)
        ecma->min_repeat = min;
    n += peek(ecma, n) == '?';
    int r = buf_append(ecma->out, ecma->at, n);
    if (r < 0)
        return r;
    ecma->at += n;
    c = peek(ecma, 0);
    if (c == '*' || c == '+' || c == '?' || (c == '{' && braces(ecma, &min) > 0))
        return refuse(ecma, "nothing to repeat");
    return 1;
}

static int element(struct ecma *ecma)
{
    char c = *ecma->at;

    switch (c) {
    case '\\': return escape(ecma);
    case '[': return class(ecma);
    case '(': return group(ecma);
    case '.': ecma->at++; return buf_append_str(ecma->out, "[^\\n\\r\\x{2028}\\x{2029}]");
    case '{':
    case '}':
    case ']': ecma->at++; return buf_printf(ecma->out, "\\%c", c);
    default: ecma->at++; return buf_append(ecma->out, &c, 1);
    }
}

int pattern_from_ecma(const char *text, size_t len, struct buf *out, uint32_t *ret_repeat, const char **ret_why)
{
    struct ecma ecma = {.at = text, .end = text + len, .out = out, .why = "too long"};
    int r = 0;

    while (r >= 0 && ecma.at < ecma.end) {
        r = quantifier(&ecma);
        if (r == 0)
            r = element(&ecma);
    }
    *ret_repeat = ecma.min_repeat;
    *ret_why = ecma.why;
    return r < 0 ? r : 0;
}
