/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.c: removes known values from a stream of bytes.
 *
 * Theory of operation. Every value is looked for in all forms that a program writes by accident: as it is, escaped as
 * in a JSON or Python string, percent-encoded, hexadecimal, and base64. The letters of base64 depend on what stands
 * before the value, so it is looked for at each of the three alignments; the letters that share bits with a neighbour
 * are left out, and one or two letters may remain, which tell at most a byte. All forms are the words of one automaton
 * (Aho and Corasick): a trie in which every node knows the longest proper suffix of itself that is a node too.
 *
 *     held:  . . . . a b c d e f | next byte
 *                    ^start
 *
 * The node is the longest suffix of what was read that is the beginning of a word. Its depth says where that suffix
 * began, so what lies before it is no part of any word and can be passed on.
 *
 * Matches that overlap, or that touch a word under way, are one: it becomes one "[secret]" when no word that began
 * before its end can become longer. What is held is never more than the longest words that overlap.
 *
 * This keeps accidents from leaking. A program that wants to reveal a secret can (it can print it backwards); brokered
 * secrets (docs/SECRETS.md) are for that.
 */
#include "run/scrub.h"

#include <string.h>

#include "base/ascii.h"
#include "base/mem.h"
#include "crypto/crypto.h"
#include "crypto/keyring.h"

#define REPLACEMENT "[secret]"
#define NODES_MAX (4u << 20)
#define WORD_MIN 6u
#define FORMS_WHOLE 4096u /* longer values: as they are, escaped and as base64 */

struct word {
    struct word *next;
    size_t len;
    char *text; /* crypto_secret_alloc() */
};

struct node {
    uint32_t child, sibling, fail;
    uint32_t depth;
    uint32_t match; /* length of the longest word that ends here; 0: none */
    uint8_t byte;
};

struct scrub {
    struct word *words;
    size_t n_bytes;
    struct node *nodes; /* [0] is the root */
    uint32_t n_nodes;
    uint32_t root[256]; /* the root's children */
    uint64_t count;
};

int scrub_create(struct scrub **ret)
{
    *ret = mem_zalloc(sizeof **ret);
    return *ret ? 0 : -ENOMEM;
}

static void free_words(struct scrub *scrub)
{
    struct word *word;

    while ((word = scrub->words)) {
        scrub->words = word->next;
        crypto_secret_free(word->text, word->len);
        mem_free(word);
    }
}

void scrub_destroy(struct scrub *scrub)
{
    if (!scrub)
        return;
    free_words(scrub);
    if (scrub->nodes)
        crypto_wipe(scrub->nodes, scrub->n_nodes * sizeof(struct node));
    mem_free(scrub->nodes);
    mem_free(scrub);
}

/* there is nothing to look for */
static bool scrub_empty(const struct scrub *scrub)
{
    return !scrub->words && scrub->n_nodes <= 1;
}

uint64_t scrub_count(const struct scrub *scrub)
{
    return scrub->count;
}

/* ---- forms ------------------------------------------------------------------------------------------------ */

static int add_word(struct scrub *scrub, const char *text, size_t len)
{
    if (len < WORD_MIN)
        return 0;
    if (scrub->n_bytes + len >= NODES_MAX)
        return -E2BIG;
    struct word *word = mem_zalloc(sizeof *word);
    char *copy = word ? crypto_secret_alloc(len) : NULL;
    if (!copy) {
        mem_free(word);
        return -ENOMEM;
    }
    memcpy(copy, text, len);
    *word = (struct word){scrub->words, len, copy};
    scrub->words = word;
    scrub->n_bytes += len;
    return 0;
}

enum form { FORM_PERCENT, FORM_PERCENT_LOWER, FORM_HEX, FORM_HEX_UPPER, FORM_JSON, FORM_PYTHON, FORM_MAX };

static bool is_unreserved(unsigned char c)
{
    return ascii_is_alnum((char)c) || (c != '\0' && strchr("-_.~", c));
}

static size_t put_hex(char *out, const char *before, unsigned char c, bool upper)
{
    const char *digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    size_t n = strlen(before);

    memcpy(out, before, n);
    out[n] = digits[c >> 4];
    out[n + 1] = digits[c & 15];
    return n + 2;
}

/* At most six bytes. */
static size_t put_form(char *out, enum form form, unsigned char c)
{
    bool text = form == FORM_JSON || form == FORM_PYTHON;

    if (form == FORM_HEX || form == FORM_HEX_UPPER)
        return put_hex(out, "", c, form == FORM_HEX_UPPER);
    if (!text && !is_unreserved(c))
        return put_hex(out, "%", c, form == FORM_PERCENT);
    if (text && (c == '\n' || c == '\r' || c == '\t' || c == '\\' || (c == '"' && form == FORM_JSON))) {
        out[0] = '\\';
        out[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : (char)c;
        return 2;
    }
    if (text && c < 0x20)
        return put_hex(out, form == FORM_JSON ? "\\u00" : "\\x", c, false);
    *out = (char)c;
    return 1;
}

static int add_form(struct scrub *scrub, enum form form, const char *value, size_t len, char *scratch)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += put_form(scratch + n, form, (unsigned char)value[i]);
    return n == len && memcmp(scratch, value, len) == 0 ? 0 : add_word(scrub, scratch, n);
}

/* The letters that are made of this value alone when `before` bytes stand before it. */
static int add_base64(struct scrub *scrub, const char *value, size_t len, unsigned before, const char *letters,
                      char *scratch)
{
    size_t first = (before * 8 + 5) / 6, last = (before + len) * 8 / 6, n = 0;

    for (size_t at = first; at < last; at++) {
        unsigned bits = 0;
        for (size_t bit = at * 6; bit < at * 6 + 6; bit++) {
            size_t in_value = bit - before * 8;
            bits = bits << 1 | ((unsigned char)value[in_value / 8] >> (7 - in_value % 8) & 1u);
        }
        scratch[n++] = letters[bits];
    }
    return add_word(scrub, scratch, n);
}

int scrub_add(struct scrub *scrub, const char *value, size_t len)
{
    static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char for_urls[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    if (len < SCRUB_MIN)
        return 0;
    if (len >= NODES_MAX / 8)
        return -E2BIG;
    size_t size = len * 6 + 16;
    char *scratch = crypto_secret_alloc(size);
    if (!scratch)
        return -ENOMEM;
    int r = add_word(scrub, value, len);
    for (enum form form = len > FORMS_WHOLE ? FORM_JSON : 0; r == 0 && form < FORM_MAX; form++)
        r = add_form(scrub, form, value, len, scratch);
    for (unsigned before = 0; r == 0 && before < 3; before++) {
        r = add_base64(scrub, value, len, before, standard, scratch);
        if (r == 0)
            r = add_base64(scrub, value, len, before, for_urls, scratch);
    }
    crypto_secret_free(scratch, size);
    return r;
}

/* ---- the automaton ---------------------------------------------------------------------------------------- */

static uint32_t child_of(const struct scrub *scrub, uint32_t node, uint8_t byte)
{
    if (node == 0)
        return scrub->root[byte];
    for (uint32_t at = scrub->nodes[node].child; at; at = scrub->nodes[at].sibling)
        if (scrub->nodes[at].byte == byte)
            return at;
    return 0;
}

static void insert_word(struct scrub *scrub, const struct word *word)
{
    uint32_t at = 0;

    for (size_t i = 0; i < word->len; i++) {
        uint8_t byte = (uint8_t)word->text[i];
        uint32_t next = child_of(scrub, at, byte);
        if (!next) {
            next = scrub->n_nodes++;
            scrub->nodes[next] =
                (struct node){.sibling = scrub->nodes[at].child, .depth = scrub->nodes[at].depth + 1, .byte = byte};
            scrub->nodes[at].child = next;
            if (at == 0)
                scrub->root[byte] = next;
        }
        at = next;
    }
    scrub->nodes[at].match = (uint32_t)word->len;
}

static uint32_t step(const struct scrub *scrub, uint32_t node, uint8_t byte)
{
    uint32_t next;

    while (!(next = child_of(scrub, node, byte)) && node)
        node = scrub->nodes[node].fail;
    return next;
}

/* Breadth first: the link of a node needs those of shorter ones. */
static void link_nodes(struct scrub *scrub, uint32_t *queue)
{
    size_t first = 0, last = 0;

    for (uint32_t at = scrub->nodes[0].child; at; at = scrub->nodes[at].sibling)
        queue[last++] = at;
    while (first < last) {
        uint32_t at = queue[first++];
        for (uint32_t child = scrub->nodes[at].child; child; child = scrub->nodes[child].sibling) {
            uint32_t fail = step(scrub, scrub->nodes[at].fail, scrub->nodes[child].byte);
            scrub->nodes[child].fail = fail;
            if (!scrub->nodes[child].match)
                scrub->nodes[child].match = scrub->nodes[fail].match;
            queue[last++] = child;
        }
    }
}

int scrub_ready(struct scrub *scrub)
{
    size_t n = scrub->n_bytes + 1;
    uint32_t *queue = mem_realloc_array(NULL, n, sizeof *queue);

    scrub->nodes = mem_realloc_array(NULL, n, sizeof(struct node));
    if (!scrub->nodes || !queue) {
        mem_free(queue);
        return -ENOMEM;
    }
    scrub->nodes[0] = (struct node){0};
    scrub->n_nodes = 1;
    for (const struct word *word = scrub->words; word; word = word->next)
        insert_word(scrub, word);
    free_words(scrub);
    link_nodes(scrub, queue);
    mem_free(queue);
    return 0;
}

/* ---- streams ---------------------------------------------------------------------------------------------- */

/* What is held goes out up to `end`: as it is, or, from the match on, as one replacement. */
static int let_out(struct scrub *scrub, struct scrub_stream *stream, size_t end, struct buf *out)
{
    int r = 0;

    if (stream->match_end > 0) {
        r = buf_append(out, stream->held.data, stream->match_start);
        if (r == 0)
            r = buf_append_str(out, REPLACEMENT);
        if (r < 0)
            return r;
        scrub->count++;
        buf_consume(&stream->held, stream->match_end);
        end -= stream->match_end;
        stream->match_start = stream->match_end = 0;
    }
    if (end == 0)
        return 0;
    r = buf_append(out, stream->held.data, end);
    if (r == 0)
        buf_consume(&stream->held, end);
    return r;
}

/* The held bytes have a new last one. */
static int look(struct scrub *scrub, struct scrub_stream *stream, struct buf *out)
{
    const struct node *node = &scrub->nodes[stream->state];
    size_t len = stream->held.len, under_way = len - node->depth;

    if (node->match) {
        size_t start = len - node->match;
        if (stream->match_end == 0 || start < stream->match_start)
            stream->match_start = start;
        stream->match_end = len;
    }
    /* A word that began before the end of the match may still become longer: then both are one. */
    if (stream->match_end > 0 ? under_way >= stream->match_end : under_way >= SCRUB_BATCH)
        return let_out(scrub, stream, under_way, out);
    return 0;
}

int scrub_feed(struct scrub *scrub, struct scrub_stream *stream, const void *data, size_t len, struct buf *out)
{
    const uint8_t *at = data, *end = at + len;
    int r = 0;

    if (scrub_empty(scrub))
        return buf_append(out, data, len);
    if (!stream->held.max)
        stream->held = BUF_INIT(SIZE_MAX / 2);
    while (r == 0 && at < end) {
        /* Most bytes begin no word: they go straight through. */
        const uint8_t *from = at;
        if (stream->state == 0 && stream->held.len == 0)
            while (at < end && !scrub->root[*at])
                at++;
        if (at > from && (r = buf_append(out, from, (size_t)(at - from))) < 0)
            break;
        if (at == end)
            break;
        r = buf_append(&stream->held, at, 1);
        if (r == 0) {
            stream->state = step(scrub, stream->state, *at++);
            r = look(scrub, stream, out);
        }
        if (r == 0 && stream->state == 0 && stream->held.len > 0)
            r = let_out(scrub, stream, stream->held.len, out);
    }
    return r;
}

int scrub_end(struct scrub *scrub, struct scrub_stream *stream, struct buf *out)
{
    int r = stream->held.len > 0 ? let_out(scrub, stream, stream->held.len, out) : 0;

    if (stream->held.data)
        crypto_wipe(stream->held.data, stream->held.cap);
    buf_done(&stream->held);
    *stream = (struct scrub_stream){0};
    return r;
}

int scrub_text(struct scrub *scrub, const void *data, size_t len, struct buf *out)
{
    struct scrub_stream stream = {0};
    int r = scrub_feed(scrub, &stream, data, len, out);
    int e = scrub_end(scrub, &stream, out);

    return r < 0 ? r : e;
}

int scrub_text_cut(struct scrub *scrub, const void *data, size_t len, struct buf *out)
{
    struct scrub_stream stream = {0};
    int r = scrub_feed(scrub, &stream, data, len, out);
    size_t under_way = stream.held.len ? stream.held.len - scrub->nodes[stream.state].depth : 0;

    if (r == 0 && stream.held.len > 0)
        r = let_out(scrub, &stream, under_way > stream.match_end ? under_way : stream.match_end, out);
    stream.held.len = 0;
    stream.match_end = 0;
    int e = scrub_end(scrub, &stream, out); /* wipes */
    return r < 0 ? r : e;
}
