/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dockerfile.c: reads the instructions of a Dockerfile. Each has a row in the table: its name, the shape of what
 * follows, the flags that it may have.
 */
#include "codec/dockerfile/dockerfile.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/dockerfile/dockerfile_priv.h"
#include "codec/json/json_read.h"

enum shape {
    SHAPE_FROM,    /* image [AS name] */
    SHAPE_COMMAND, /* a JSON array of strings, or the whole text */
    SHAPE_LIST,    /* a JSON array of strings, or words */
    SHAPE_WORDS,   /* words */
    SHAPE_TEXT,    /* the whole text */
    SHAPE_JSON,    /* a JSON array of strings */
    SHAPE_PAIRS,   /* name=value ..., or one name and the rest of the line */
    SHAPE_ARGS,    /* name or name=value, several */
    SHAPE_HEALTH,  /* NONE, or CMD and a command */
};

static const struct instruction {
    const char *name;
    enum shape shape;
    bool here; /* It may have here-documents. */
    size_t min_words;
    const char *expected; /* if there are fewer */
    const char *flags[6];
} instructions[] = {
    [DOCKERFILE_FROM] = {"FROM", SHAPE_FROM, false, 1, "IMAGE [AS NAME]", {"platform"}},
    [DOCKERFILE_RUN] = {"RUN", SHAPE_COMMAND, true, 1, "a command", {"mount", "network"}},
    [DOCKERFILE_COPY] = {"COPY",
                         SHAPE_LIST,
                         true,
                         2,
                         "at least one source and a destination",
                         {"from", "chown", "chmod", "exclude", "link"}},
    [DOCKERFILE_ADD] = {"ADD",
                        SHAPE_LIST,
                        true,
                        2,
                        "at least one source and a destination",
                        {"chown", "chmod", "exclude", "link", "checksum"}},
    [DOCKERFILE_ENV] = {"ENV", SHAPE_PAIRS, false, 0, NULL, {NULL}},
    [DOCKERFILE_ARG] = {"ARG", SHAPE_ARGS, false, 0, NULL, {NULL}},
    [DOCKERFILE_WORKDIR] = {"WORKDIR", SHAPE_TEXT, false, 1, "a directory", {NULL}},
    [DOCKERFILE_USER] = {"USER", SHAPE_TEXT, false, 1, "a user", {NULL}},
    [DOCKERFILE_LABEL] = {"LABEL", SHAPE_PAIRS, false, 0, NULL, {NULL}},
    [DOCKERFILE_EXPOSE] = {"EXPOSE", SHAPE_WORDS, false, 1, "at least one port", {NULL}},
    [DOCKERFILE_VOLUME] = {"VOLUME", SHAPE_LIST, false, 1, "at least one directory", {NULL}},
    [DOCKERFILE_ENTRYPOINT] = {"ENTRYPOINT", SHAPE_COMMAND, false, 0, NULL, {NULL}},
    [DOCKERFILE_CMD] = {"CMD", SHAPE_COMMAND, false, 0, NULL, {NULL}},
    [DOCKERFILE_SHELL] = {"SHELL", SHAPE_JSON, false, 1, "a JSON array of strings that is not empty", {NULL}},
    [DOCKERFILE_HEALTHCHECK] = {"HEALTHCHECK",
                                SHAPE_HEALTH,
                                false,
                                1,
                                "NONE, or CMD and a command",
                                {"interval", "timeout", "start-period", "start-interval", "retries"}},
    [DOCKERFILE_STOPSIGNAL] = {"STOPSIGNAL", SHAPE_TEXT, false, 1, "a signal", {NULL}},
};
_Static_assert(ARRAY_SIZE(instructions) == DOCKERFILE_OP_MAX, "one row for each");

/* The instruction that is being read. */
struct reading {
    struct dockerfile *file;
    const struct instruction *what;
    struct dockerfile_step step;
    struct buf words, flags, pairs, here; /* Each has a list: const char *, struct dockerfile_pair, ... */
    struct brig_err *err;
};
#define READING_INIT(d, e)                                                                      \
    ((struct reading){.file = (d),                                                              \
                      .err = (e),                                                               \
                      .words = BUF_INIT(DOCKERFILE_MAX_WORDS * sizeof(char *)),                 \
                      .flags = BUF_INIT(DOCKERFILE_MAX_WORDS * sizeof(struct dockerfile_pair)), \
                      .pairs = BUF_INIT(DOCKERFILE_MAX_WORDS * sizeof(struct dockerfile_pair)), \
                      .here = BUF_INIT(DOCKERFILE_MAX_WORDS * sizeof(struct dockerfile_here))})

static void reading_done(struct reading *r)
{
    buf_done(&r->words);
    buf_done(&r->flags);
    buf_done(&r->pairs);
    buf_done(&r->here);
}

static int too_many(struct reading *r)
{
    return err_set(r->err, BRIG_E_TOO_LARGE, 0, "line %u: %s: too long", r->step.line, r->what->name);
}

static int add(struct reading *r, struct buf *list, const void *item, size_t size)
{
    return buf_append(list, item, size) < 0 ? too_many(r) : 0;
}

static char *copy(struct reading *r, const char *text, size_t len)
{
    char *made = arena_copy(r->file->arena, text, len);

    if (!made)
        err_nomem(r->err);
    return made;
}

static int add_word(struct reading *r, const char *text, size_t len)
{
    const char *word = copy(r, text, len);

    return word ? add(r, &r->words, &word, sizeof word) : -ENOMEM;
}

/* The end of the word that begins at `at`: blanks in quotes, or behind the escape character, belong to it. */
static const char *word_end(const char *at, char escape)
{
    char quote = '\0';

    for (; *at && (quote || !is_blank(*at)); at++) {
        if (*at == escape && quote != '\'' && at[1])
            at++;
        else if (quote && *at == quote)
            quote = '\0';
        else if (!quote && (*at == '"' || *at == '\''))
            quote = *at;
    }
    return at;
}

static int read_words(struct reading *r, const char *at)
{
    int result = 0;

    for (at = skip_blanks(at); result == 0 && *at; at = skip_blanks(at)) {
        const char *end = word_end(at, r->file->escape);
        result = add_word(r, at, (size_t)(end - at));
        at = end;
    }
    return result;
}

static int read_text(struct reading *r, const char *at)
{
    size_t len = strlen(at);

    while (len > 0 && is_blank(at[len - 1]))
        len--;
    return len ? add_word(r, at, len) : 0;
}

/* Returns 1 if it is a JSON array of strings, and 0 if it is no JSON array, which then is the shell form. */
static int read_json(struct reading *r, const char *at)
{
    struct json_doc *doc = NULL;
    int result = *at == '[' ? json_read(at, strlen(at), DOCKERFILE_MAX_WORDS, &doc, NULL) : -EINVAL;

    if (result < 0)
        return result == -ENOMEM ? err_nomem(r->err) : 0;
    result = 1;
    for (const struct json_value *v = json_root(doc)->first; v && result == 1; v = v->next) {
        if (v->type != JSON_STRING || strlen(v->string) != v->len)
            result = err_usage(r->err, "line %u: %s: the array must have strings only", r->step.line, r->what->name);
        else if (add_word(r, v->string, v->len) < 0)
            result = -ENOMEM;
    }
    json_doc_free(doc);
    r->step.exec_form = result == 1;
    return result;
}

static int read_command(struct reading *r, const char *at)
{
    int result = read_json(r, at);

    return result == 0 ? read_text(r, at) : result < 0 ? result : 0;
}

static int add_pair(struct reading *r, struct buf *list, const char *text, size_t len, const char *what)
{
    const char *equals = memchr(text, '=', len);
    struct dockerfile_pair pair = {0};

    if (equals == text || len == 0)
        return err_usage(r->err, "line %u: %s: %.*s has no name", r->step.line, what, (int)(len < 64 ? len : 64), text);
    pair.name = copy(r, text, equals ? (size_t)(equals - text) : len);
    if (equals)
        pair.value = copy(r, equals + 1, (size_t)(text + len - equals - 1));
    if (!pair.name || (equals && !pair.value))
        return -ENOMEM;
    return add(r, list, &pair, sizeof pair);
}

/* "ENV name the rest": the form of before, without "=". */
static int read_old_pair(struct reading *r, const char *at, const char *end)
{
    struct dockerfile_pair pair = {.name = copy(r, at, (size_t)(end - at))};
    const char *value = skip_blanks(end);
    size_t len = strlen(value);

    while (len > 0 && is_blank(value[len - 1]))
        len--;
    if (len == 0)
        return err_usage(r->err, "line %u: %s %.64s: expected a value", r->step.line, r->what->name, at);
    pair.value = copy(r, value, len);
    return pair.name && pair.value ? add(r, &r->pairs, &pair, sizeof pair) : -ENOMEM;
}

static int read_pairs(struct reading *r, const char *at)
{
    bool args = r->what->shape == SHAPE_ARGS;
    int result = 0;

    if (!*at)
        return err_usage(r->err, "line %u: %s: expected %s", r->step.line, r->what->name,
                         args ? "NAME or NAME=VALUE" : "NAME=VALUE");
    for (bool first = true; result == 0 && *at; at = skip_blanks(at), first = false) {
        const char *end = word_end(at, r->file->escape);
        size_t len = (size_t)(end - at);

        if (!args && !memchr(at, '=', len)) {
            if (first)
                return read_old_pair(r, at, end);
            return err_usage(r->err, "line %u: %s %.*s: expected NAME=VALUE", r->step.line, r->what->name,
                             (int)(len < 64 ? len : 64), at);
        }
        result = add_pair(r, &r->pairs, at, len, r->what->name);
        at = end;
    }
    return result;
}

static int read_health(struct reading *r, const char *at)
{
    const char *end = word_end(at, r->file->escape);
    size_t len = (size_t)(end - at);

    if (len == 4 && strncasecmp(at, "NONE", 4) == 0 && !*skip_blanks(end))
        return add_word(r, "NONE", 4);
    if (len != 3 || strncasecmp(at, "CMD", 3) != 0 || !*skip_blanks(end))
        return err_usage(r->err, "line %u: HEALTHCHECK: expected %s", r->step.line, r->what->expected);
    int result = add_word(r, "CMD", 3);
    return result < 0 ? result : read_command(r, skip_blanks(end));
}

static int read_from(struct reading *r, const char *at)
{
    int result = read_words(r, at);
    const char *const *words = (const char *const *)(const void *)r->words.data;
    size_t n = r->words.len / sizeof *words;

    if (result < 0 || n == 0 || n == 1)
        return result;
    if (n != 3 || strcasecmp(words[1], "AS") != 0)
        return err_usage(r->err, "line %u: FROM: expected %s", r->step.line, r->what->expected);
    for (const char *c = words[2]; *c; c++)
        if (!isalpha((unsigned char)*c) && (c == words[2] || (!isdigit((unsigned char)*c) && !strchr("-_.", *c))))
            return err_usage(r->err,
                             "line %u: FROM: the name %.64s must be a letter and then letters, digits, - _ or .",
                             r->step.line, words[2]);
    return 0;
}

static int read_rest(struct reading *r, const char *at)
{
    switch (r->what->shape) {
    case SHAPE_FROM: return read_from(r, at);
    case SHAPE_COMMAND: return read_command(r, at);
    case SHAPE_LIST: {
        int result = read_json(r, at);
        return result == 0 ? read_words(r, at) : result < 0 ? result : 0;
    }
    case SHAPE_WORDS: return read_words(r, at);
    case SHAPE_TEXT: return read_text(r, at);
    case SHAPE_JSON: {
        int result = read_json(r, at);
        return result < 0 ? result : 0; /* no array: no words, which the table refuses */
    }
    case SHAPE_PAIRS:
    case SHAPE_ARGS: return read_pairs(r, at);
    case SHAPE_HEALTH: return read_health(r, at);
    }
    return -EINVAL;
}

/* "--name=value" words in front of the rest. *at is moved behind them. */
static int read_flags(struct reading *r, const char **at)
{
    while (str_starts(*at, "--")) {
        const char *end = word_end(*at, r->file->escape), *name = *at + 2;
        size_t len = (size_t)(end - name), n = strcspn(name, "= \t");
        bool known = false;

        for (size_t i = 0; i < ARRAY_SIZE(r->what->flags) && r->what->flags[i]; i++)
            known = known || (strlen(r->what->flags[i]) == n && strncmp(r->what->flags[i], name, n) == 0);
        if (!known)
            return err_usage(r->err, "line %u: %s: the flag --%.*s is not supported", r->step.line, r->what->name,
                             (int)(n < 64 ? n : 64), name);
        int result = add_pair(r, &r->flags, name, len, r->what->name);
        if (result < 0)
            return result;
        *at = skip_blanks(end);
    }
    return 0;
}

/* Is the word "<<NAME", "<<-NAME" or one of them behind a digit? Then *ret_name is the name with its quotes. */
static bool here_word(const char *word, size_t len, bool *ret_tabs, const char **ret_name, size_t *ret_len)
{
    size_t at = 0;

    while (at < len && isdigit((unsigned char)word[at]))
        at++;
    if (len - at < 3 || word[at] != '<' || word[at + 1] != '<')
        return false;
    at += 2;
    *ret_tabs = word[at] == '-';
    at += *ret_tabs ? 1 : 0;
    *ret_name = word + at;
    *ret_len = len - at;
    return at < len && !memchr(word + at, '<', len - at);
}

static int read_one_here(struct reading *r, struct lines *lines, const char *name, size_t len, bool tabs)
{
    bool quoted = len >= 2 && (*name == '"' || *name == '\'') && name[len - 1] == *name;
    struct dockerfile_here here = {.expand = !quoted};
    AUTO_BUF struct buf text = BUF_INIT(DOCKERFILE_MAX_BYTES + 1);

    if (quoted) {
        name++;
        len -= 2;
    }
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
            len = 0;
    if (len == 0)
        return err_usage(r->err, "line %u: %s: the name of a here-document must be letters, digits, _ - or .",
                         r->step.line, r->what->name);
    here.name = copy(r, name, len);
    if (!here.name)
        return -ENOMEM;
    int result = lines_here(lines, here.name, tabs, &text, r->err);
    if (result < 0)
        return result;
    here.text = copy(r, text.len ? text.data : "", text.len);
    here.len = text.len;
    return here.text ? add(r, &r->here, &here, sizeof here) : -ENOMEM;
}

static int read_here(struct reading *r, struct lines *lines, const char *at)
{
    int result = 0;

    if (!r->what->here || r->step.exec_form)
        return 0;
    for (; result == 0 && *at; at = skip_blanks(at)) {
        const char *end = word_end(at, r->file->escape), *name;
        size_t len;
        bool tabs;

        if (here_word(at, (size_t)(end - at), &tabs, &name, &len))
            result = read_one_here(r, lines, name, len, tabs);
        at = end;
    }
    return result;
}

/* Moves a list into the arena. */
static int settle(struct reading *r, const struct buf *list, size_t size, void *ret_list, size_t *ret_n)
{
    void *made = NULL;

    if (list->len) {
        if (!(made = arena_alloc(r->file->arena, list->len)))
            return err_nomem(r->err);
        memcpy(made, list->data, list->len);
    }
    memcpy(ret_list, &made, sizeof made);
    *ret_n = list->len / size;
    return 0;
}

static int add_step(struct reading *r)
{
    struct dockerfile *file = r->file;
    struct dockerfile_step *step = &r->step;

    if (settle(r, &r->words, sizeof(char *), &step->words, &step->n_words) < 0 ||
        settle(r, &r->flags, sizeof *step->flags, &step->flags, &step->n_flags) < 0 ||
        settle(r, &r->pairs, sizeof *step->pairs, &step->pairs, &step->n_pairs) < 0 ||
        settle(r, &r->here, sizeof *step->here, &step->here, &step->n_here) < 0)
        return -ENOMEM;
    if (step->n_words < r->what->min_words)
        return err_usage(r->err, "line %u: %s: expected %s", step->line, r->what->name, r->what->expected);
    if (file->n_steps == DOCKERFILE_MAX_STEPS)
        return err_set(r->err, BRIG_E_TOO_LARGE, 0, "line %u: more than %u instructions", step->line,
                       DOCKERFILE_MAX_STEPS);
    file->steps[file->n_steps++] = *step;
    return 0;
}

/* Returns its number in the table. */
static int find_instruction(const char *name, size_t len, unsigned line, struct brig_err *err)
{
    for (int i = 0; i < DOCKERFILE_OP_MAX; i++)
        if (strlen(instructions[i].name) == len && strncasecmp(instructions[i].name, name, len) == 0)
            return i;
    if (len == 10 && strncasecmp(name, "MAINTAINER", len) == 0)
        return err_usage(err, "line %u: MAINTAINER is not supported: use LABEL", line);
    return err_usage(err, "line %u: the instruction %.*s is not supported", line, (int)(len < 32 ? len : 32), name);
}

static int read_step(struct dockerfile *file, struct lines *lines, const char *text, unsigned line,
                     struct brig_err *err)
{
    size_t len = strcspn(text, " \t");
    int op = find_instruction(text, len, line, err), r;

    if (op < 0)
        return op;
    if (op != DOCKERFILE_FROM && op != DOCKERFILE_ARG && !file->has_from)
        return err_usage(err, "line %u: %s: the first instruction must be FROM (only ARG may stand before it)", line,
                         instructions[op].name);
    struct reading reading = READING_INIT(file, err);
    const char *at = skip_blanks(text + len);

    file->has_from = file->has_from || op == DOCKERFILE_FROM;
    reading.what = &instructions[op];
    reading.step = (struct dockerfile_step){
        .op = (enum dockerfile_op)op, .line = line, .written = copy(&reading, text, strlen(text))};
    r = reading.step.written ? read_flags(&reading, &at) : -ENOMEM;
    if (r == 0)
        r = read_rest(&reading, at);
    if (r == 0)
        r = read_here(&reading, lines, at);
    if (r == 0)
        r = add_step(&reading);
    reading_done(&reading);
    return r;
}

int dockerfile_read(const char *text, size_t len, struct dockerfile **ret, struct brig_err *err)
{
    struct lines lines = {.at = text, .end = text + len};
    AUTO_BUF struct buf line = BUF_INIT(DOCKERFILE_MAX_BYTES + 1);
    unsigned number = 0;

    if (len > DOCKERFILE_MAX_BYTES)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "line 1: the file has more than %u bytes", DOCKERFILE_MAX_BYTES);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        lines.at += 3;
    struct dockerfile *file = mem_zalloc(sizeof *file);
    if (file)
        file->arena = arena_create(64u << 20);
    if (file && file->arena)
        file->steps = arena_alloc(file->arena, DOCKERFILE_MAX_STEPS * sizeof *file->steps);
    int r = file && file->steps ? lines_directives(&lines, err) : err_nomem(err);
    if (r == 0)
        file->escape = lines.escape;
    while (r == 0 && (r = lines_instruction(&lines, &line, &number, err)) > 0) {
        r = read_step(file, &lines, line.data, number, err);
        line.len = 0;
    }
    if (r == 0 && !file->has_from)
        r = err_usage(err, "line %u: there is no FROM", lines.line ? lines.line : 1);
    if (r < 0) {
        dockerfile_free(file);
        return r;
    }
    *ret = file;
    return 0;
}

void dockerfile_free(struct dockerfile *file)
{
    if (!file)
        return;
    arena_destroy(file->arena);
    mem_free(file);
}

const struct dockerfile_step *dockerfile_steps(const struct dockerfile *file, size_t *ret_n)
{
    *ret_n = file->n_steps;
    return file->steps;
}

char dockerfile_escape(const struct dockerfile *file)
{
    return file->escape;
}

const char *dockerfile_op_name(enum dockerfile_op op)
{
    return instructions[op].name;
}
