/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c: matches regular expressions of strangers with text of strangers, with bounded work.
 *
 * pcre2's own match limit counts anew for each place where a match may start, so a pattern of quadratic cost passes
 * under it. Instead every item is preceded by a callout (PCRE2_AUTO_CALLOUT) that takes from one budget: a price per
 * item, and the distance in the text since the last one, for a repeat walks there without a callout. What it walks for
 * an item that then fails is at most the smallest count of a {n,}, which is bounded, and the price grows with it.
 * Repeats are not made possessive behind our back, for those would fail after a long walk that nobody saw. The JIT is
 * not used: it knows none of this. Memory has pcre2's heap limit.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "codec/schema/jsonschema_priv.h"

#include <pcre2.h>

#include "base/err.h"
#include "base/mem.h"

#define MAX_LEN 4096u        /* bytes of a pattern */
#define MAX_NESTING 64u      /* parentheses */
#define HEAP_KIB (16u << 10) /* of one match */
#define ITEM_PRICE 4u
#define MATCH_PRICE 8u /* of a match, for what it takes to begin one; and its text is looked at once in any case */
#define BUDGET_LEAST 500000u /* some milliseconds */
#define BUDGET_MOST 4000000u
#define BUDGET_PER_BYTE 16u   /* an honest pattern takes one to ten */
#define OUT_OF_BUDGET (-1000) /* of the callout; no code of pcre2's */

struct pattern {
    pcre2_code *code;
    uint32_t price; /* of an item */
};

struct run {
    uint64_t *budget;
    uint32_t price;
    size_t last;
};

static int bad_pattern(struct brig_err *err, const char *text, size_t len, const char *why)
{
    return err_usage(err, "%.*s is not a regular expression (ECMA 262): %s", (int)(len < 64 ? len : 64), text, why);
}

static pcre2_code *compile(const struct buf *buf, int *ret_error)
{
    const uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C |
                             PCRE2_AUTO_CALLOUT | PCRE2_NO_AUTO_POSSESS;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    size_t offset;

    if (!context) {
        *ret_error = PCRE2_ERROR_NOMEMORY;
        return NULL;
    }
    pcre2_set_parens_nest_limit(context, MAX_NESTING);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)(buf->data ? buf->data : ""), buf->len, options, ret_error, &offset, context);
    pcre2_compile_context_free(context);
    return code;
}

int pattern_compile(const char *text, size_t len, struct pattern **ret, struct brig_err *err)
{
    AUTO_BUF struct buf buf = BUF_INIT(MAX_LEN * 32);
    const char *why = NULL;
    uint32_t repeat = 0;
    int code_error = 0;

    if (len > MAX_LEN)
        return bad_pattern(err, text, len, "longer than 4096 bytes");
    int r = pattern_from_ecma(text, len, &buf, &repeat, &why);
    if (r == -ENOMEM)
        return err_nomem(err);
    if (r < 0)
        return bad_pattern(err, text, len, why);
    struct pattern *pattern = mem_zalloc(sizeof(*pattern));
    if (!pattern)
        return err_nomem(err);
    pattern->price = ITEM_PRICE + repeat / 64;
    pattern->code = compile(&buf, &code_error);
    if (!pattern->code) {
        char said[120] = "";
        pattern_free(pattern);
        if (code_error == PCRE2_ERROR_NOMEMORY)
            return err_nomem(err);
        pcre2_get_error_message(code_error, (PCRE2_UCHAR *)said, sizeof(said));
        return bad_pattern(err, text, len, said);
    }
    *ret = pattern;
    return 0;
}

void pattern_free(struct pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    mem_free(pattern);
}

static int pay(pcre2_callout_block *block, void *ctx)
{
    struct run *run = ctx;
    size_t at = block->current_position;
    uint64_t price = run->price + (at > run->last ? at - run->last : run->last - at);

    run->last = at;
    if (price > *run->budget) {
        *run->budget = 0;
        return OUT_OF_BUDGET;
    }
    *run->budget -= price;
    return 0;
}

uint64_t pattern_budget(size_t len)
{
    const size_t all = (BUDGET_MOST - BUDGET_LEAST) / BUDGET_PER_BYTE;

    return BUDGET_LEAST + BUDGET_PER_BYTE * (uint64_t)(len < all ? len : all);
}

int pattern_match(const struct pattern *pattern, const char *text, size_t len, uint64_t *budget)
{
    struct run run = {.budget = budget, .price = pattern->price};
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int r = PCRE2_ERROR_NOMEMORY;

    if (context && data && *budget > MATCH_PRICE + len / 64) {
        *budget -= MATCH_PRICE + len / 64;
        pcre2_set_callout(context, pay, &run);
        pcre2_set_heap_limit(context, HEAP_KIB);
        r = pcre2_match(pattern->code, (PCRE2_SPTR)text, len, 0, 0, data, context);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (r >= 0 || r == PCRE2_ERROR_NOMATCH)
        return r >= 0;
    return -EOVERFLOW; /* whatever it was: nobody may take it for an answer */
}
