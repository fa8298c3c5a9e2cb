/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_scan.c: keeps a secret from coming back. It passes a stream on; wherever the value stands in one of the
 * spellings below, it puts the placeholder in its place.
 *
 * Theory of operation. A spelling is not a list of texts but a way to read. At a position, characters are read one
 * token after the other (a plain byte, "%41", "\u0041", "&#65;", two hexadecimal digits, a base64 letter) and compared
 * with the value as they come. So every mix of escaped and plain bytes is found, in either case of the digits, and no
 * copy of the value is made. Base64 is compared by its letters, which are computed from the value for each of the three
 * alignments that it can have inside a longer text; letters that share bits with neighbours are left out.
 *
 * Pieces. Only a match that reaches the end of what is there is held back, so a stream never waits for bytes that mean
 * nothing. When the stream pauses with something held, scan_pause() lets a few bytes of it out (at most a quarter of
 * the value, and at most eight). If the rest comes later, it is still taken out.
 *
 * It cannot know encodings that are not listed (encryption, compression, reversal, a base64 of base64). It is a net
 * against honest echoes, not a proof.
 */
#include "base/ascii.h"
#include "base/utf8.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

enum mode { RAW, URL, BACKSLASH, ENTITY, HEX, BASE64_0, BASE64_1, BASE64_2, MODE_MAX };

#define RAW_MIN 4u     /* shorter texts are no secrets, and would be everywhere */
#define ENCODED_MIN 8u /* in hexadecimal and base64, where chance finds more */
#define SKIP_MAX 2u    /* line ends between two letters of base64 */
#define SHOW_MAX 8u

enum found { NO, PARTLY, FULLY };

/* ---- tokens --------------------------------------------------------------------------------------------- */

/* n digits: the number, -1: not all are digits, -2: the text ends among them. */
static long hex_number(const char *text, size_t len, size_t n)
{
    long value = 0;

    for (size_t i = 0; i < n; i++) {
        if (i == len)
            return -2;
        int digit = ascii_hex(text[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

struct token {
    size_t took; /* characters; 0: the text ends within it */
    size_t n;    /* bytes */
    uint8_t bytes[4];
};

static void plain(struct token *token, const char *text)
{
    token->took = token->n = 1;
    token->bytes[0] = (uint8_t)*text;
}

static void read_url(struct token *token, const char *text, size_t len)
{
    plain(token, text);
    if (*text != '%')
        return;
    long value = hex_number(text + 1, len - 1, 2);
    if (value == -2)
        token->took = 0;
    else if (value >= 0) {
        token->took = 3;
        token->bytes[0] = (uint8_t)value;
    }
}

/* \uXXXX, and the second half of a pair. */
static void read_u(struct token *token, const char *text, size_t len)
{
    long high = hex_number(text + 2, len - 2, 4);

    if (high < 0) {
        token->took = high == -2 ? 0 : 1;
        return;
    }
    token->took = 6;
    if (high < 0xd800 || high > 0xdbff) {
        token->n = utf8_put(token->bytes, (uint32_t)high);
        return;
    }
    if (len < 8) {
        token->took = 0;
        return;
    }
    long low = text[6] == '\\' && text[7] == 'u' ? hex_number(text + 8, len - 8, 4) : -1;
    if (low == -2) {
        token->took = 0;
    } else if (low >= 0xdc00 && low <= 0xdfff) {
        token->took = 12;
        token->n = utf8_put(token->bytes, 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
    }
}

static void read_backslash(struct token *token, const char *text, size_t len)
{
    static const char letters[] = "nrtbfv0\"'\\/", means[] = "\n\r\t\b\f\v\0\"'\\/";

    plain(token, text);
    if (*text != '\\')
        return;
    if (len < 2) {
        token->took = 0;
        return;
    }
    if (text[1] == 'u') {
        read_u(token, text, len);
        return;
    }
    if (text[1] == 'x') {
        long value = hex_number(text + 2, len - 2, 2);
        if (value == -2)
            token->took = 0;
        else if (value >= 0) {
            token->took = 4;
            token->bytes[0] = (uint8_t)value;
        }
        return;
    }
    const char *letter = text[1] ? strchr(letters, text[1]) : NULL;
    if (letter) {
        token->took = 2;
        token->bytes[0] = (uint8_t)means[letter - letters];
    }
}

static void read_entity(struct token *token, const char *text, size_t len)
{
    static const struct {
        const char *text;
        char means;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};

    plain(token, text);
    if (*text != '&')
        return;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t n = strlen(names[i].text);
        if (memcmp(text, names[i].text, len < n ? len : n) != 0)
            continue;
        token->took = len < n ? 0 : n;
        token->bytes[0] = (uint8_t)names[i].means;
        return;
    }
    if (text[1] != '#')
        return;
    bool hex = len > 2 && (text[2] == 'x' || text[2] == 'X');
    uint32_t point = 0;
    for (size_t i = hex ? 3 : 2; i <= 10; i++) {
        if (i >= len) {
            token->took = 0;
            return;
        }
        int digit = ascii_hex(text[i]);
        if (text[i] == ';') {
            token->took = i + 1;
            token->n = utf8_put(token->bytes, point & 0x1fffff);
            return;
        }
        if (digit < 0 || (!hex && digit > 9))
            return;
        point = point * (hex ? 16 : 10) + (uint32_t)digit;
    }
}

static void read_hex(struct token *token, const char *text, size_t len)
{
    long value = hex_number(text, len, 2);

    token->n = 1;
    token->took = value == -2 ? 0 : 2;
    if (value == -1)
        token->n = 0; /* never equal */
    else if (value >= 0)
        token->bytes[0] = (uint8_t)value;
}

/* ---- matching ------------------------------------------------------------------------------------------- */

static enum found match_tokens(enum mode mode, const struct scan_value *value, const char *text, size_t len,
                               size_t *ret_used)
{
    size_t at = 0;

    for (size_t v = 0; v < value->len;) {
        struct token token;
        if (at == len)
            return PARTLY;
        switch (mode) {
        case URL: read_url(&token, text + at, len - at); break;
        case BACKSLASH: read_backslash(&token, text + at, len - at); break;
        case ENTITY: read_entity(&token, text + at, len - at); break;
        default: read_hex(&token, text + at, len - at); break;
        }
        if (token.took == 0)
            return PARTLY;
        bool space = mode == URL && text[at] == '+' && value->data[v] == ' '; /* of a form */
        if (!space && (token.n == 0 || token.n > value->len - v || memcmp(token.bytes, value->data + v, token.n) != 0))
            return NO;
        v += token.n;
        at += token.took;
    }
    *ret_used = at;
    return FULLY;
}

static enum found match_raw(const struct scan_value *value, const char *text, size_t len, size_t *ret_used)
{
    size_t n = len < value->len ? len : value->len;

    if (memcmp(text, value->data, n) != 0)
        return NO;
    *ret_used = n;
    return n == value->len ? FULLY : PARTLY;
}

/* Letter i of the base64 of `shift` unknown bytes and then the value. */
static char base64_letter(const struct scan_value *value, unsigned shift, size_t i)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bit = i * 6 - shift * 8; /* of the value; callers skip letters before it */
    size_t byte = bit / 8;
    unsigned next = byte + 1 < value->len ? value->data[byte + 1] : 0;
    unsigned pair = (unsigned)value->data[byte] << 8 | next;

    return letters[pair >> (10 - bit % 8) & 63];
}

static size_t base64_first(unsigned shift)
{
    return shift == 0 ? 0 : shift + 1; /* the first letter without bits of what stands before */
}

static bool base64_same(char letter, char seen)
{
    return letter == seen || (letter == '+' && seen == '-') || (letter == '/' && seen == '_');
}

static enum found match_base64(const struct scan_value *value, unsigned shift, const char *text, size_t len,
                               size_t *ret_used)
{
    size_t end = (value->len + shift) * 8 / 6, at = 0;

    for (size_t i = base64_first(shift); i < end; i++) {
        char letter = base64_letter(value, shift, i);
        unsigned skipped = 0;
        while (at > 0 && at < len && skipped < SKIP_MAX && (text[at] == '\r' || text[at] == '\n' || text[at] == '\\')) {
            at++; /* lines of 76, and the backslash some writers put before a slash */
            skipped++;
        }
        if (at == len)
            return PARTLY;
        if (text[at] == '%') {
            struct token token;
            read_url(&token, text + at, len - at);
            if (token.took == 0)
                return PARTLY;
            if (!base64_same(letter, (char)token.bytes[0]))
                return NO;
            at += token.took;
        } else if (base64_same(letter, text[at])) {
            at++;
        } else {
            return NO;
        }
    }
    *ret_used = at;
    return FULLY;
}

static enum found match_mode(enum mode mode, const struct scan_value *value, const char *text, size_t len,
                             size_t *ret_used)
{
    if (mode == RAW)
        return match_raw(value, text, len, ret_used);
    if (mode >= BASE64_0)
        return match_base64(value, (unsigned)(mode - BASE64_0), text, len, ret_used);
    return match_tokens(mode, value, text, len, ret_used);
}

/* The longest match here, or PARTLY when a longer one may yet come. */
static enum found match(const struct scan *scan, const char *text, size_t len, bool last, size_t *ret_used,
                        const struct scan_value **ret_value)
{
    enum found best = NO;

    for (size_t i = 0; i < scan->n; i++) {
        const struct scan_value *value = &scan->values[i];
        unsigned modes = value->modes[(uint8_t)*text];
        for (unsigned mode = 0; modes >> mode; mode++) {
            size_t used = 0;
            if (!(modes >> mode & 1))
                continue;
            enum found found = match_mode((enum mode)mode, value, text, len, &used);
            if (found == PARTLY && !last) {
                *ret_value = value;
                return PARTLY;
            }
            if (found == FULLY && (best == NO || used > *ret_used)) {
                best = FULLY;
                *ret_used = used;
                *ret_value = value;
            }
        }
    }
    return best;
}

/* ---- setting up ----------------------------------------------------------------------------------------- */

static void mark(struct scan *scan, struct scan_value *value, char first, enum mode mode)
{
    value->modes[(uint8_t)first] |= (uint16_t)(1u << mode);
    scan->any[(uint8_t)first] = true;
}

static void add_value(struct scan *scan, const void *data, size_t len, const char *placeholder)
{
    static const char upper[] = "0123456789ABCDEF", lower[] = "0123456789abcdef";
    const uint8_t *bytes = data;

    if (len < RAW_MIN || scan->n == SCAN_VALUES_MAX)
        return;
    struct scan_value *value = &scan->values[scan->n++];
    *value = (struct scan_value){.data = data, .len = len, .placeholder = placeholder};
    for (enum mode mode = RAW; mode <= ENTITY; mode++)
        mark(scan, value, (char)bytes[0], mode);
    mark(scan, value, '%', URL);
    mark(scan, value, '\\', BACKSLASH);
    mark(scan, value, '&', ENTITY);
    if (bytes[0] == ' ')
        mark(scan, value, '+', URL);
    if (len < ENCODED_MIN)
        return;
    mark(scan, value, upper[bytes[0] >> 4], HEX);
    mark(scan, value, lower[bytes[0] >> 4], HEX);
    for (unsigned shift = 0; shift < 3; shift++) {
        char letter = base64_letter(value, shift, base64_first(shift));
        enum mode mode = (enum mode)(BASE64_0 + shift);
        mark(scan, value, letter, mode);
        if (letter == '+' || letter == '/') {
            mark(scan, value, letter == '+' ? '-' : '_', mode);
            mark(scan, value, '%', mode);
        }
    }
}

int scan_init(struct scan *scan, const struct values *values)
{
    *scan = (struct scan){.held = WBUF_INIT(SECRET_VALUE_MAX * 16)};
    return scan_begin(scan, values);
}

int scan_begin(struct scan *scan, const struct values *values)
{
    size_t size = values->n * 3 * sizeof(*scan->values);

    scan->held.max = SECRET_VALUE_MAX * 16;
    if (scan->size < size) {
        scan_done(scan);
        scan->values = crypto_secret_alloc(size);
        if (!scan->values)
            return -ENOMEM;
        scan->size = size;
    }
    for (size_t i = 0; i < values->n; i++) {
        const struct value *value = &values->items[i];
        struct sigv4_keys keys;
        if (value->secret->rule.where != BROKER_SIGV4 || sigv4_split(value->data, value->len, &keys) < 0) {
            add_value(scan, value->data, value->len, value->secret->placeholder);
            continue;
        }
        add_value(scan, keys.key_id, keys.key_id_len, value->secret->placeholder);
        add_value(scan, keys.secret, keys.secret_len, value->secret->placeholder);
        add_value(scan, keys.token, keys.token_len, value->secret->placeholder);
    }
    return 0;
}

void scan_end(struct scan *scan)
{
    wbuf_clear(&scan->held);
    if (scan->values)
        crypto_wipe(scan->values, scan->n * sizeof(*scan->values));
    crypto_wipe(scan->any, sizeof(scan->any));
    scan->n = scan->shown = 0;
    scan->hits = 0;
}

void scan_done(struct scan *scan)
{
    wbuf_done(&scan->held);
    if (scan->values)
        crypto_secret_free(scan->values, scan->size);
    crypto_wipe(scan->any, sizeof(scan->any));
    scan->values = NULL;
    scan->n = scan->size = 0;
}

/* ---- the stream ----------------------------------------------------------------------------------------- */

/* Appends text[from, to), without the bytes that were shown already. */
static int let_out(struct scan *scan, const char *text, size_t from, size_t to, struct buf *out)
{
    size_t skip = scan->shown > from ? scan->shown - from : 0;

    return to > from + skip ? buf_append(out, text + from + skip, to - from - skip) : 0;
}

/* Looks through text; *ret_rest: where what must be held begins. */
static int look(struct scan *scan, const char *text, size_t len, bool last, struct buf *out, size_t *ret_rest)
{
    size_t from = 0, at = 0;
    int r = 0;

    while (at < len && r == 0) {
        const struct scan_value *value = NULL;
        size_t used = 0;
        if (!scan->any[(uint8_t)text[at]]) {
            at++;
            continue;
        }
        enum found found = match(scan, text + at, len - at, last, &used, &value);
        if (found == PARTLY)
            break;
        if (found == NO) {
            at++;
            continue;
        }
        r = let_out(scan, text, from, at, out);
        if (r == 0)
            r = buf_append_str(out, value->placeholder);
        at += used;
        from = at;
        scan->hits++;
    }
    if (r == 0)
        r = let_out(scan, text, from, at, out);
    *ret_rest = at;
    return r;
}

int scan_feed(struct scan *scan, const char *data, size_t len, bool last, struct buf *out)
{
    size_t rest = 0;
    int r;

    if (scan->n == 0)
        return buf_append(out, data, len);
    if (wbuf_size(&scan->held) == 0) {
        r = look(scan, data, len, last, out, &rest);
        return r < 0 ? r : wbuf_append(&scan->held, data + rest, len - rest);
    }
    r = wbuf_append(&scan->held, data, len);
    if (r < 0)
        return r;
    r = look(scan, wbuf_at(&scan->held), wbuf_size(&scan->held), last, out, &rest);
    scan->shown = scan->shown > rest ? scan->shown - rest : 0;
    wbuf_consume(&scan->held, rest);
    return r;
}

int scan_pause(struct scan *scan, struct buf *out)
{
    size_t show = SHOW_MAX, size = wbuf_size(&scan->held);

    for (size_t i = 0; i < scan->n; i++) {
        if (scan->values[i].len / 4 < show)
            show = scan->values[i].len / 4;
    }
    if (show > size)
        show = size;
    if (show <= scan->shown)
        return 0;
    int r = buf_append(out, wbuf_at(&scan->held) + scan->shown, show - scan->shown);
    if (r == 0)
        scan->shown = show;
    return r;
}
