/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_read.c: Theory of operation
 *
 * One look at the text bounds how many values it can hold (each follows the start, a bracket, a comma or a colon, so
 * one more than the brackets and commas outside of strings). Then there is one allocation:
 *
 *     struct json_doc | values | sorted indexes | strings
 *
 * The strings' area is as long as the text, and a string lies in it where it stood in the text: unescaping only makes a
 * string shorter, and the closing quote leaves room for the NUL. So a place in it is also the byte offset for a
 * message, and no string is ever measured twice. Numbers that need strtod() are copied there the same way for the
 * moment.
 *
 * The reader walks with a stack of its own, not the C stack. Keys are compared when an object closes: a few pairwise,
 * many by sorting pointers to the members (heap sort: n log n for the worst order too, no memory), which json_get()
 * then searches. Nothing depends on the locale: nobody here calls setlocale().
 */
#include "codec/json/json_read.h"

#include <math.h>
#include <string.h>

#include "base/ascii.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"

#define INDEX_FROM 9u /* members; fewer are compared one by one */

struct json_doc {
    struct json_value *values;
    const struct json_value **sorted;
    char *strings;
    size_t n_values, cap_values, n_sorted, text_len;
};

struct level {
    struct json_value *box, *last;
};

struct reader {
    struct json_doc *doc;
    const char *text;
    size_t at, len;
    struct brig_err *err;
    struct level stack[JSON_READ_DEPTH];
    unsigned depth;
    /* a member's key that waits for its value */
    const char *key;
    size_t key_len;
};

#define refuse(reader, offset, ...) refuse_at((reader)->err, offset, __VA_ARGS__)

static int refuse_at(struct brig_err *err, size_t offset, const char *what)
{
    return err_usage(err, "JSON, byte %zu: %s", offset, what);
}

/* ---- strings -------------------------------------------------------------------------------------- */

static int hex4(const char *at, size_t left, uint32_t *ret)
{
    uint32_t value = 0;

    if (left < 4)
        return -EINVAL;
    for (unsigned i = 0; i < 4; i++) {
        int digit = ascii_hex(at[i]);
        if (digit < 0)
            return -EINVAL;
        value = value << 4 | (uint32_t)digit;
    }
    *ret = value;
    return 0;
}

/* After "\u"; one escape, or the two of a surrogate pair. */
static int read_u_escape(struct reader *reader, uint32_t *ret)
{
    uint32_t high, low;
    size_t from = reader->at - 2;

    if (hex4(reader->text + reader->at, reader->len - reader->at, &high) < 0)
        return refuse(reader, from, "\\u needs four hexadecimal digits");
    reader->at += 4;
    *ret = high;
    if (high < 0xd800 || high > 0xdfff)
        return 0;
    if (high > 0xdbff || reader->len - reader->at < 6 || memcmp(reader->text + reader->at, "\\u", 2) != 0 ||
        hex4(reader->text + reader->at + 2, 4, &low) < 0 || low < 0xdc00 || low > 0xdfff)
        return refuse(reader, from, "half of a surrogate pair");
    reader->at += 6;
    *ret = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

/* At the backslash. Appends to *out. */
static int read_escape(struct reader *reader, char **out, bool is_key)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = reader->at;
    char c = reader->at + 1 < reader->len ? reader->text[reader->at + 1] : '\0';
    const char *found = c != '\0' ? strchr(from, c) : NULL;
    uint32_t point = 0;

    reader->at += 2;
    if (found) {
        *(*out)++ = to[found - from];
        return 0;
    }
    if (c != 'u')
        return refuse(reader, start, "no such escape");
    int r = read_u_escape(reader, &point);
    if (r < 0)
        return r;
    if (point == 0 && is_key)
        return refuse(reader, start, "a key may not contain \\u0000");
    *out += utf8_put(*out, point);
    return 0;
}

/* Bytes from here on that stand for themselves and are ASCII. */
static size_t plain_run(const char *at, size_t len)
{
    size_t n = 0;
    while (n < len) {
        unsigned char c = (unsigned char)at[n];
        if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\')
            break;
        n++;
    }
    return n;
}

/* At the opening quote. */
static int read_string(struct reader *reader, bool is_key, const char **ret, size_t *ret_len)
{
    size_t start = reader->at++;
    char *base = reader->doc->strings + reader->at, *out = base;

    while (reader->at < reader->len) {
        const char *at = reader->text + reader->at;
        size_t left = reader->len - reader->at, n = plain_run(at, left);
        if (n == 0 && *at == '"') {
            *out = '\0';
            reader->at++;
            *ret = base;
            *ret_len = (size_t)(out - base);
            return 0;
        }
        if (n == 0 && *at == '\\') {
            int r = read_escape(reader, &out, is_key);
            if (r < 0)
                return r;
            continue;
        }
        if (n == 0 && (unsigned char)*at < 0x20)
            return refuse(reader, reader->at, "a control byte in a string; it must be escaped");
        if (n == 0)
            n = utf8_sequence(at, left, NULL);
        if (n == 0)
            return refuse(reader, reader->at, "not UTF-8");
        memcpy(out, at, n);
        out += n;
        reader->at += n;
    }
    return refuse(reader, start, "a string without end");
}

/* ---- numbers -------------------------------------------------------------------------------------- */

static size_t digits(const struct reader *reader)
{
    size_t n = 0;
    while (reader->at + n < reader->len && ascii_is_digit(reader->text[reader->at + n]))
        n++;
    return n;
}

static bool next_is(const struct reader *reader, char c)
{
    return reader->at < reader->len && reader->text[reader->at] == c;
}

/* The grammar only. *ret_whole: neither fraction nor exponent. */
static int scan_number(struct reader *reader, bool *ret_whole)
{
    size_t start = reader->at, n;

    if (next_is(reader, '-'))
        reader->at++;
    n = digits(reader);
    if (n == 0)
        return refuse(reader, start, "not a value");
    if (n > 1 && reader->text[reader->at] == '0')
        return refuse(reader, start, "a number may not begin with 0");
    reader->at += n;
    *ret_whole = true;
    if (next_is(reader, '.')) {
        reader->at++;
        *ret_whole = false;
        n = digits(reader);
        if (n == 0)
            return refuse(reader, reader->at, "a digit must follow the point");
        reader->at += n;
    }
    if (next_is(reader, 'e') || next_is(reader, 'E')) {
        reader->at++;
        *ret_whole = false;
        if (next_is(reader, '+') || next_is(reader, '-'))
            reader->at++;
        n = digits(reader);
        if (n == 0)
            return refuse(reader, reader->at, "a digit must follow the exponent's e");
        reader->at += n;
    }
    return 0;
}

static bool to_i64(const char *text, size_t len, int64_t *ret)
{
    bool negative = *text == '-';
    int64_t value = 0;

    for (size_t i = negative; i < len; i++) {
        int64_t digit = text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, digit, &value))
            return false;
    }
    /* Collected below zero, where there is one more. */
    return negative ? (*ret = value, true) : !__builtin_sub_overflow(0, value, ret);
}

static int read_number(struct reader *reader, struct json_value *value)
{
    size_t start = reader->at, len;
    bool whole = false;
    int r = scan_number(reader, &whole);

    if (r < 0)
        return r;
    len = reader->at - start;
    value->type = JSON_NUMBER;
    if (whole && to_i64(reader->text + start, len, &value->i64)) {
        value->integer = true;
        value->number = value->i64 == 0 && reader->text[start] == '-' ? -0.0 : (double)value->i64;
        return 0;
    }
    char *copy = reader->doc->strings + start; /* the byte behind belongs to no string yet */
    memcpy(copy, reader->text + start, len);
    copy[len] = '\0';
    value->number = strtod(copy, NULL);
    if (!isfinite(value->number))
        return refuse(reader, start, "a number that is too large");
    return 0;
}

/* ---- objects: keys -------------------------------------------------------------------------------- */

static int compare_keys(const struct json_value *a, const char *key, size_t key_len)
{
    if (a->key_len != key_len)
        return a->key_len < key_len ? -1 : 1;
    return memcmp(a->key, key, key_len);
}

static void sift(const struct json_value **items, size_t root, size_t n)
{
    for (size_t child; (child = root * 2 + 1) < n; root = child) {
        if (child + 1 < n && compare_keys(items[child], items[child + 1]->key, items[child + 1]->key_len) < 0)
            child++;
        if (compare_keys(items[root], items[child]->key, items[child]->key_len) >= 0)
            return;
        const struct json_value *moved = items[root];
        items[root] = items[child];
        items[child] = moved;
    }
}

static void sort(const struct json_value **items, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(items, i, n);
    for (size_t end = n; end-- > 1;) {
        const struct json_value *largest = items[0];
        items[0] = items[end];
        items[end] = largest;
        sift(items, 0, end);
    }
}

static int refuse_double(struct reader *reader, const struct json_value *a, const struct json_value *b)
{
    const char *later = a->key > b->key ? a->key : b->key; /* strings lie as in the text */
    return refuse(reader, (size_t)(later - reader->doc->strings) - 1, "a key that was there before");
}

static int close_object(struct reader *reader, struct json_value *object)
{
    struct json_doc *doc = reader->doc;

    if (object->count < INDEX_FROM) {
        for (const struct json_value *a = object->first; a; a = a->next)
            for (const struct json_value *b = a->next; b; b = b->next)
                if (compare_keys(a, b->key, b->key_len) == 0)
                    return refuse_double(reader, a, b);
        return 0;
    }
    const struct json_value **items = doc->sorted + doc->n_sorted;
    size_t n = 0;
    for (const struct json_value *member = object->first; member; member = member->next)
        items[n++] = member;
    doc->n_sorted += n;
    sort(items, n);
    for (size_t i = 1; i < n; i++)
        if (compare_keys(items[i - 1], items[i]->key, items[i]->key_len) == 0)
            return refuse_double(reader, items[i - 1], items[i]);
    object->sorted = items;
    return 0;
}

const struct json_value *json_get(const struct json_value *object, const char *key)
{
    size_t len = strlen(key);

    if (!object || object->type != JSON_OBJECT)
        return NULL;
    if (!object->sorted) {
        for (const struct json_value *member = object->first; member; member = member->next)
            if (compare_keys(member, key, len) == 0)
                return member;
        return NULL;
    }
    size_t low = 0, high = object->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_keys(object->sorted[middle], key, len);
        if (order == 0)
            return object->sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- values --------------------------------------------------------------------------------------- */

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->len) {
        char c = reader->text[reader->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        reader->at++;
    }
}

static int read_word(struct reader *reader, struct json_value *value)
{
    static const struct {
        const char *word;
        enum json_type type;
        bool boolean;
    } words[] = {{"null", JSON_NULL, false}, {"true", JSON_BOOL, true}, {"false", JSON_BOOL, false}};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t len = strlen(words[i].word);
        if (reader->len - reader->at >= len && memcmp(reader->text + reader->at, words[i].word, len) == 0) {
            value->type = words[i].type;
            value->boolean = words[i].boolean;
            reader->at += len;
            return 0;
        }
    }
    return read_number(reader, value);
}

static int read_text(struct reader *reader, struct json_value *value)
{
    value->type = JSON_STRING;
    return read_string(reader, false, &value->string, &value->len);
}

static void end_value(const struct reader *reader, struct json_value *value)
{
    value->raw_len = (size_t)(reader->text + reader->at - value->raw);
}

/* A fresh value, linked into the innermost box. */
static struct json_value *add_value(struct reader *reader)
{
    struct json_doc *doc = reader->doc;
    struct json_value *value = &doc->values[doc->n_values++];

    *value = (struct json_value){.key = reader->key, .key_len = reader->key_len};
    reader->key = NULL;
    reader->key_len = 0;
    if (reader->depth > 0) {
        struct level *level = &reader->stack[reader->depth - 1];
        if (level->last)
            level->last->next = value;
        else
            level->box->first = value;
        level->last = value;
        level->box->count++;
    }
    return value;
}

/* One value; a box is only opened. */
static int read_value(struct reader *reader)
{
    if (reader->at == reader->len)
        return refuse(reader, reader->at, "a value is missing");
    if (reader->doc->n_values == reader->doc->cap_values) {
        err_set(reader->err, BRIG_E_TOO_LARGE, 0, "JSON, byte %zu: too many values", reader->at);
        return -EMSGSIZE;
    }

    struct json_value *value = add_value(reader);
    char c = reader->text[reader->at];
    value->raw = reader->text + reader->at;
    if (c != '{' && c != '[') {
        int r = c == '"' ? read_text(reader, value) : read_word(reader, value);
        end_value(reader, value);
        return r;
    }
    if (reader->depth == JSON_READ_DEPTH)
        return refuse(reader, reader->at, "nested too deeply");
    value->type = c == '{' ? JSON_OBJECT : JSON_ARRAY;
    reader->stack[reader->depth++] = (struct level){.box = value};
    reader->at++;
    return 0;
}

static int read_key(struct reader *reader)
{
    if (!next_is(reader, '"'))
        return refuse(reader, reader->at, "a key is missing");
    int r = read_string(reader, true, &reader->key, &reader->key_len);
    if (r < 0)
        return r;
    skip_blanks(reader);
    if (!next_is(reader, ':'))
        return refuse(reader, reader->at, "a colon is missing");
    reader->at++;
    skip_blanks(reader);
    return 0;
}

/* Within a box: its end, or the comma and key before its next value. Returns 1 when a value follows. */
static int step_in_box(struct reader *reader)
{
    struct level *level = &reader->stack[reader->depth - 1];
    bool object = level->box->type == JSON_OBJECT;

    if (next_is(reader, object ? '}' : ']')) {
        reader->at++;
        reader->depth--;
        end_value(reader, level->box);
        return object ? close_object(reader, level->box) : 0;
    }
    if (level->last) {
        if (!next_is(reader, ','))
            return refuse(reader, reader->at, object ? "expected , or }" : "expected , or ]");
        reader->at++;
        skip_blanks(reader);
    }
    int r = object ? read_key(reader) : 0;
    return r < 0 ? r : 1;
}

static int read_document(struct reader *reader)
{
    skip_blanks(reader);
    int r = read_value(reader);
    while (r >= 0 && reader->depth > 0) {
        skip_blanks(reader);
        r = step_in_box(reader);
        if (r == 1)
            r = read_value(reader);
    }
    if (r < 0)
        return r;
    skip_blanks(reader);
    if (reader->at != reader->len)
        return refuse(reader, reader->at, "more text after the value");
    return 0;
}

/* ---- the document --------------------------------------------------------------------------------- */

/* More than there can be values in the text, up to max. */
static size_t bound_values(const char *text, size_t len, size_t max)
{
    size_t n = 1;
    bool inside = false;

    for (size_t i = 0; i < len && n < max; i++) {
        char c = text[i];
        if (c == '"')
            inside = !inside;
        else if (inside)
            i += c == '\\';
        else
            n += c == ',' || c == '[' || c == '{';
    }
    return n < max ? n : max;
}

static struct json_doc *create(struct arena *arena, size_t n_values, size_t text_len)
{
    const size_t each = sizeof(struct json_value) + sizeof(struct json_value *);
    size_t size;

    if (__builtin_mul_overflow(n_values, each, &size) || __builtin_add_overflow(size, text_len, &size) ||
        __builtin_add_overflow(size, sizeof(struct json_doc) + 1, &size))
        return NULL;
    struct json_doc *doc = arena ? arena_alloc(arena, size) : mem_alloc(size);
    if (!doc)
        return NULL;
    *doc = (struct json_doc){.values = (void *)(doc + 1), .cap_values = n_values, .text_len = text_len};
    doc->sorted = (void *)(doc->values + n_values);
    doc->strings = (char *)(doc->sorted + n_values);
    return doc;
}

void json_doc_free(struct json_doc *doc)
{
    if (!doc)
        return;
    explicit_bzero(doc->values, doc->n_values * sizeof(*doc->values));
    explicit_bzero(doc->strings, doc->text_len + 1);
    mem_free(doc);
}

const struct json_value *json_root(const struct json_doc *doc)
{
    return doc->values;
}

static int read_into(struct json_doc *doc, const char *text, size_t len, struct brig_err *err)
{
    struct reader reader = {.doc = doc, .text = text, .len = len, .err = err};

    return doc ? read_document(&reader) : err_nomem(err);
}

int json_read(const char *text, size_t len, size_t max_values, struct json_doc **ret, struct brig_err *err)
{
    struct json_doc *doc = create(NULL, bound_values(text, len, max_values), len);
    int r = read_into(doc, text, len, err);

    if (r < 0)
        json_doc_free(doc);
    else
        *ret = doc;
    return r;
}

int json_read_in(struct arena *arena, const char *text, size_t len, size_t max_values, const struct json_value **ret,
                 struct brig_err *err)
{
    struct json_doc *doc = create(arena, bound_values(text, len, max_values), len);
    int r = read_into(doc, text, len, err);

    if (r == 0)
        *ret = json_root(doc);
    return r;
}
