/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml.c: reads TOML documents, tables and arrays. Strings and keys are in toml_string.c, numbers and dates in
 * toml_scalar.c.
 *
 * Theory of operation. One pass checks that the whole text is UTF-8 without control characters, so that nothing after
 * it has to; a second one reads statements: `[header]`, `[[header]]` or `key = value`. Values are nodes of a tree in an
 * arena. One hash table for the whole document, by parent and key, answers "is this key there already", so that a
 * document of one table with a hundred thousand keys takes no longer than one with as many tables.
 *
 * Who may define a table again is what makes TOML hard. A node remembers how it came to be:
 *   header    by [a.b]: never again by a header, and a dotted key of another table does not reach into it
 *   dotted    by a.b.c = 1, in section n: more dotted keys of the same section may add to it, no header may define it
 *             (but [a.b.d] below it may)
 *   neither   as a parent in [a.b.c]: one header may still define it
 *   frozen    { ... } and [ ... ] are complete, with everything in them
 *   of_tables [[a]]: a header on the way passes into its last element
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "codec/toml/toml_priv.h"

#define CHUNK_SIZE ((size_t)32 << 10)

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(max_align_t) char data[];
};

struct toml_doc {
    struct toml_node root;
    struct chunk *chunks;
    struct toml_node **buckets;
    size_t n_buckets, n_keys;
};

/* ---- memory, messages ------------------------------------------------------------------------------ */

void *toml_alloc(struct toml_reader *in, size_t size)
{
    struct chunk *chunk = in->doc->chunks;

    size = (size + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;
        chunk = mem_alloc(sizeof(*chunk) + room);
        if (!chunk)
            return NULL;
        *chunk = (struct chunk){.next = in->doc->chunks, .size = room};
        in->doc->chunks = chunk;
    }
    void *out = chunk->data + chunk->used;
    chunk->used += size;
    return out;
}

int toml_fail(struct toml_reader *in, const char *format, ...)
{
    char text[200];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return err_usage(in->err, "line %u: %s", in->line, text);
}

void toml_free(struct toml_doc *doc)
{
    if (!doc)
        return;
    for (struct chunk *chunk = doc->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        explicit_bzero(chunk->data, chunk->used);
        mem_free(chunk);
    }
    mem_free(doc->buckets);
    mem_free(doc);
}

/* ---- the tree --------------------------------------------------------------------------------------- */

static uint32_t hash_key(const struct toml_node *parent, const struct toml_text *key)
{
    uint64_t hash = 0xcbf29ce484222325u ^ ((uint64_t)(uintptr_t)parent >> 4);

    for (size_t i = 0; i < key->len; i++)
        hash = (hash ^ (unsigned char)key->data[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ hash >> 32);
}

static struct toml_node *find(const struct toml_doc *doc, const struct toml_node *table, const struct toml_text *key)
{
    uint32_t hash = hash_key(table, key);

    if (doc->n_buckets == 0)
        return NULL;
    for (struct toml_node *node = doc->buckets[hash & (doc->n_buckets - 1)]; node; node = node->same_hash)
        if (node->hash == hash && node->parent == table && node->value.key_len == key->len &&
            memcmp(node->value.key, key->data, key->len) == 0)
            return node;
    return NULL;
}

static int grow_buckets(struct toml_doc *doc)
{
    size_t n = doc->n_buckets ? doc->n_buckets * 2 : 64;
    struct toml_node **buckets = mem_zalloc(n * sizeof(struct toml_node *));

    if (!buckets)
        return -ENOMEM;
    for (size_t i = 0; i < doc->n_buckets; i++) {
        for (struct toml_node *node = doc->buckets[i], *next; node; node = next) {
            next = node->same_hash;
            node->same_hash = buckets[node->hash & (n - 1)];
            buckets[node->hash & (n - 1)] = node;
        }
    }
    mem_free(doc->buckets);
    doc->buckets = buckets;
    doc->n_buckets = n;
    return 0;
}

/* A new last child of a table (key given) or an array. NULL: out of memory. */
static struct toml_node *add(struct toml_reader *in, struct toml_node *parent, const struct toml_text *key)
{
    struct toml_doc *doc = in->doc;
    struct toml_node *node = toml_alloc(in, sizeof(*node));

    if (!node || (key && doc->n_keys >= doc->n_buckets && grow_buckets(doc) < 0))
        return NULL;
    *node = (struct toml_node){.value = {.type = TOML_TABLE, .line = in->line}, .parent = parent};
    if (key) {
        node->value.key = key->data;
        node->value.key_len = key->len;
        node->hash = hash_key(parent, key);
        node->same_hash = doc->buckets[node->hash & (doc->n_buckets - 1)];
        doc->buckets[node->hash & (doc->n_buckets - 1)] = node;
        doc->n_keys++;
    }
    if (parent->last)
        parent->last->value.next = &node->value;
    else
        parent->value.first = &node->value;
    parent->last = node;
    parent->value.count++;
    return node;
}

static int fail_key(struct toml_reader *in, const struct toml_text *key, const char *what)
{
    return toml_fail(in, "`%.*s` %s", (int)(key->len < 80 ? key->len : 80), key->data, what);
}

/* ---- values ------------------------------------------------------------------------------------------ */

static int read_value(struct toml_reader *in, struct toml_node *node);
static int read_pair(struct toml_reader *in, struct toml_node *table);

static int skip_comment(struct toml_reader *in)
{
    if (toml_peek(in) == '#')
        while (in->at < in->end && *in->at != '\n' && *in->at != '\r')
            in->at++;
    return 0;
}

static void skip_lines(struct toml_reader *in)
{
    do {
        toml_blanks(in);
        skip_comment(in);
    } while (toml_newline(in));
}

static int read_array(struct toml_reader *in, struct toml_node *array)
{
    array->value.type = TOML_ARRAY;
    in->at++;
    for (;;) {
        skip_lines(in);
        if (toml_peek(in) == ']')
            break;
        if (toml_peek(in) < 0)
            return toml_fail(in, "the array that begins on line %u does not end", array->value.line);
        struct toml_node *item = add(in, array, NULL);
        int r = item ? read_value(in, item) : err_nomem(in->err);
        if (r < 0)
            return r;
        skip_lines(in);
        if (toml_peek(in) == ',')
            in->at++;
        else if (toml_peek(in) != ']')
            return toml_fail(in, "`,` or `]` is missing in an array");
    }
    in->at++;
    return 0;
}

static int read_inline_table(struct toml_reader *in, struct toml_node *table)
{
    /* All of it is one section of its own: dotted keys in it may add to each other's tables, and nobody later on. */
    unsigned section = in->section;

    table->value.type = TOML_TABLE;
    in->section = UINT32_MAX;
    in->at++;
    toml_blanks(in);
    if (toml_peek(in) == '}') {
        in->at++;
        in->section = section;
        return 0;
    }
    for (;;) {
        int r = read_pair(in, table);
        if (r < 0)
            return r;
        toml_blanks(in);
        int c = toml_peek(in);
        if (c != ',' && c != '}')
            return toml_fail(in, "`,` or `}` is missing in an inline table (which is on one line)");
        in->at++;
        if (c == '}')
            break;
        toml_blanks(in);
    }
    in->section = section;
    return 0;
}

static int read_value(struct toml_reader *in, struct toml_node *node)
{
    int c = toml_peek(in), r;

    node->value.line = in->line;
    if (c == '"' || c == '\'') {
        struct toml_text text;
        r = toml_read_string(in, true, &text);
        if (r < 0)
            return r;
        node->value.type = TOML_STRING;
        node->value.string = text.data;
        node->value.len = text.len;
        return 0;
    }
    if (c != '[' && c != '{')
        return toml_read_scalar(in, &node->value);
    if (++in->depth > TOML_MAX_DEPTH)
        return toml_fail(in, "arrays and tables are more than %u deep", TOML_MAX_DEPTH);
    r = c == '[' ? read_array(in, node) : read_inline_table(in, node);
    in->depth--;
    node->frozen = true;
    return r;
}

/* ---- statements --------------------------------------------------------------------------------------- */

/* After one part of a key: true when a dot and another part follow. */
static bool read_dot(struct toml_reader *in)
{
    toml_blanks(in);
    if (toml_peek(in) != '.')
        return false;
    in->at++;
    toml_blanks(in);
    return true;
}

/* One step down from table by a dotted key that is not at its last part yet. */
static int step_dotted(struct toml_reader *in, struct toml_node **table, const struct toml_text *key)
{
    struct toml_node *node = find(in->doc, *table, key);

    if (!node) {
        node = add(in, *table, key);
        if (!node)
            return err_nomem(in->err);
    } else if (node->value.type != TOML_TABLE || node->frozen) {
        return fail_key(in, key, "has a value already");
    } else if (node->header || (node->dotted != 0 && node->dotted != in->section)) {
        return fail_key(in, key, "is a table that was defined elsewhere");
    }
    node->dotted = in->section;
    *table = node;
    return 0;
}

/* A key with dots: each part but the last is a step down from *table. */
static int read_path(struct toml_reader *in, struct toml_node **table, struct toml_text *key,
                     int (*step)(struct toml_reader *, struct toml_node **, const struct toml_text *))
{
    for (unsigned parts = 1;; parts++) {
        int r = toml_read_key(in, key);
        if (r < 0 || !read_dot(in))
            return r;
        if (parts >= TOML_MAX_DEPTH)
            return toml_fail(in, "a key has more than %u parts", TOML_MAX_DEPTH);
        r = step(in, table, key);
        if (r < 0)
            return r;
    }
}

static int read_pair(struct toml_reader *in, struct toml_node *table)
{
    struct toml_text key;
    int r = read_path(in, &table, &key, step_dotted);

    if (r < 0)
        return r;
    if (toml_peek(in) != '=')
        return fail_key(in, &key, "needs a `=` after it");
    in->at++;
    toml_blanks(in);
    if (find(in->doc, table, &key))
        return fail_key(in, &key, "is there twice");
    struct toml_node *node = add(in, table, &key);
    return node ? read_value(in, node) : err_nomem(in->err);
}

/* One step down from table by a header that is not at its last part yet. */
static int step_header(struct toml_reader *in, struct toml_node **table, const struct toml_text *key)
{
    struct toml_node *node = find(in->doc, *table, key);

    if (!node)
        node = add(in, *table, key);
    if (!node)
        return err_nomem(in->err);
    if (node->of_tables)
        node = node->last;
    if (node->value.type != TOML_TABLE || node->frozen)
        return fail_key(in, key, "has a value already, and is no table");
    *table = node;
    return 0;
}

/* The last part of [header]. */
static int define_table(struct toml_reader *in, struct toml_node **table, const struct toml_text *key)
{
    struct toml_node *node = find(in->doc, *table, key);

    if (!node)
        node = add(in, *table, key);
    else if (node->value.type != TOML_TABLE)
        return fail_key(in, key, "has a value already, and is no table");
    else if (node->header || node->dotted != 0 || node->frozen)
        return fail_key(in, key, "is a table that was defined before");
    if (!node)
        return err_nomem(in->err);
    node->header = true;
    node->value.line = in->line;
    *table = node;
    return 0;
}

/* The last part of [[header]]: another element. */
static int define_element(struct toml_reader *in, struct toml_node **table, const struct toml_text *key)
{
    struct toml_node *array = find(in->doc, *table, key);

    if (!array) {
        array = add(in, *table, key);
        if (!array)
            return err_nomem(in->err);
        array->value.type = TOML_ARRAY;
        array->of_tables = true;
    } else if (!array->of_tables) {
        return fail_key(in, key, "was defined before, and not by [[ ]]");
    }
    struct toml_node *node = add(in, array, NULL);
    if (!node)
        return err_nomem(in->err);
    node->header = true;
    *table = node;
    return 0;
}

static int read_header(struct toml_reader *in, struct toml_node **ret)
{
    struct toml_node *table = &in->doc->root;
    struct toml_text key;
    bool element = toml_starts(in, "[[");

    in->section++;
    in->at += element ? 2 : 1;
    toml_blanks(in);
    int r = read_path(in, &table, &key, step_header);
    if (r < 0)
        return r;
    if (!toml_starts(in, element ? "]]" : "]"))
        return fail_key(in, &key, element ? "needs `]]` after it" : "needs a `]` after it");
    in->at += element ? 2 : 1;
    *ret = table;
    return element ? define_element(in, ret, &key) : define_table(in, ret, &key);
}

static int read_document(struct toml_reader *in)
{
    struct toml_node *table = &in->doc->root;

    for (;;) {
        int r = 0;
        skip_lines(in);
        if (in->at == in->end)
            return 0;
        if (toml_peek(in) == '[')
            r = read_header(in, &table);
        else
            r = read_pair(in, table);
        if (r < 0)
            return r;
        toml_blanks(in);
        skip_comment(in);
        if (in->at < in->end && !toml_newline(in))
            return toml_fail(in, "nothing may follow here but a comment");
    }
}

/* UTF-8 throughout, and no control characters but tab, LF and CR before LF: the same rule for strings, comments, all
 * else. */
static int check_text(struct toml_reader *in)
{
    for (const char *at = in->at; at < in->end;) {
        uint32_t point;
        size_t n = utf8_sequence(at, (size_t)(in->end - at), &point);
        if (n == 0)
            return toml_fail(in, "the text is not UTF-8");
        bool crlf = point == '\r' && in->end - at >= 2 && at[1] == '\n';
        if ((point < 0x20 && point != '\t' && point != '\n' && !crlf) || point == 0x7f)
            return toml_fail(in, "the control character U+%04X may not stand in a document", point);
        in->line += point == '\n';
        at += n;
    }
    in->line = 1;
    return 0;
}

int toml_read(const char *text, size_t len, struct toml_doc **ret, struct brig_err *err)
{
    if (len > TOML_MAX_BYTES)
        return err_set(err, BRIG_E_TOO_LARGE, EFBIG, "a document has at most %u bytes, not %zu", TOML_MAX_BYTES, len);
    struct toml_doc *doc = mem_zalloc(sizeof(*doc));
    if (!doc)
        return err_nomem(err);
    struct toml_reader in = {.at = text, .end = text + len, .line = 1, .section = 1, .doc = doc, .err = err};
    doc->root.value.type = TOML_TABLE;
    doc->root.value.line = 1;

    int r = check_text(&in);
    if (r == 0)
        r = read_document(&in);
    if (r < 0) {
        toml_free(doc);
        return r;
    }
    *ret = doc;
    return 0;
}

const struct toml_value *toml_root(const struct toml_doc *doc)
{
    return &doc->root.value;
}

const struct toml_value *toml_get(const struct toml_value *table, const char *key)
{
    size_t len = strlen(key);

    if (!table || table->type != TOML_TABLE)
        return NULL;
    for (const struct toml_value *item = table->first; item; item = item->next)
        if (item->key_len == len && memcmp(item->key, key, len) == 0)
            return item;
    return NULL;
}
