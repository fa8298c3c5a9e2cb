/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_file.c: checks a TOML document against the table of keys. Everything in it must be known: if a misspelt key
 * were ignored, a limit would silently not hold. A refusal names the line and, if there is a similar word, the word
 * that was meant.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config_keys.h"

#define NOTES_MAX 256u
#define WORD_MAX 48u

int config_add_note(struct config_loaded *loaded, const char *format, ...)
{
    char text[512];
    va_list args;

    if (loaded->n_notes == NOTES_MAX)
        return 0;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    char **notes = mem_realloc_array(loaded->notes, loaded->n_notes + 2, sizeof(*notes));
    if (!notes)
        return -ENOMEM;
    loaded->notes = notes;
    notes[loaded->n_notes] = mem_strdup(text);
    if (!notes[loaded->n_notes])
        return -ENOMEM;
    notes[++loaded->n_notes] = NULL;
    return 0;
}

/* A long path is cut at its front, so that the rest of the message is never lost. */
void config_where(const struct config_loaded *loaded, unsigned line, char *out, size_t size)
{
    const char *path = loaded->path ? loaded->path : "";
    size_t len = strlen(path);

    if (str_format(out, size, "%s%s:%u", len > 80 ? "..." : "", len > 80 ? path + len - 77 : path, line) < 0)
        out[0] = '\0';
}

/* ---- words that were meant ---------------------------------------------------------------------------- */

/*
 * Returns how many letters must be added, removed, replaced or swapped with their neighbour (optimal string alignment).
 */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > WORD_MAX || m > WORD_MAX)
        return UINT32_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *top = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && top[j - 2] + 1 < best)
                best = top[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *config_nearest(const char *word, const char *const *words, size_t n)
{
    const char *nearest = NULL;
    unsigned best = (unsigned)strlen(word) / 3 + 1;

    for (size_t i = 0; i < n; i++) {
        unsigned d = words[i] ? distance(word, words[i]) : UINT32_MAX;
        if (d < best || (d == best && !nearest && d <= 3)) {
            best = d;
            nearest = words[i];
        }
    }
    return nearest;
}

static int refuse_key(const char *where, const char *section, const struct toml_value *value, struct brig_err *err)
{
    const char *words[CONFIG_KEYS_MAX * 2];
    size_t n = 0;

    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (str_eq(key->key, value->key) && !str_eq(key->section, section))
            return err_usage(err, "%s: unknown key `%s` in [%s]; it belongs in [%s]", where, value->key, section,
                             key->section);
        if (str_eq(key->section, section))
            words[n++] = key->key;
    }
    const char *nearest = strlen(value->key) == value->key_len ? config_nearest(value->key, words, n) : NULL;
    if (nearest)
        return err_usage(err, "%s: unknown key `%.48s` in [%s]; did you mean `%s`?", where, value->key, section,
                         nearest);
    return err_usage(err, "%s: unknown key `%.48s` in [%s]", where, value->key, section);
}

static int refuse_top(const char *where, const struct toml_value *value, struct brig_err *err)
{
    size_t n;
    const char *const *words = config_foreign_names(&n);

    if (value->type != TOML_TABLE) {
        for (size_t i = 0; i < n_config_keys; i++)
            if (str_eq(config_keys[i].key, value->key))
                return err_usage(err, "%s: `%s` stands before any section; it belongs in [%s]", where, value->key,
                                 config_keys[i].section);
        return err_usage(err, "%s: unknown key `%.48s` before any section", where, value->key);
    }
    const char *nearest = config_nearest(value->key, words, n);
    if (nearest)
        return err_usage(err, "%s: unknown section [%.48s]; did you mean [%s]?", where, value->key, nearest);
    return err_usage(err, "%s: unknown section [%.48s]", where, value->key);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static int read_key(struct config_loaded *loaded, const char *section, const struct toml_value *value,
                    struct brig_err *err)
{
    char where[128], full[256];

    config_where(loaded, value->line, where, sizeof(where));
    int index = strlen(value->key) == value->key_len ? config_find(section, value->key) : -1;
    if (index < 0)
        return refuse_key(where, section, value, err);
    struct config_from *from = &loaded->from[index];
    if (from->source == CONFIG_FILE)
        return err_usage(err, "%s: [%s] %s: line %u has it already, by another name", where, section, value->key,
                         from->line);
    if (str_format(full, sizeof(full), "%s: [%s] %s", where, section, value->key) < 0)
        return err_usage(err, "%s: too long", where);
    int r = config_set_toml(&loaded->config, &config_keys[index], full, value, err);
    if (r == 0)
        *from = (struct config_from){.source = CONFIG_FILE, .line = value->line};
    return r;
}

static int read_section(struct config_loaded *loaded, const struct toml_value *table, struct brig_err *err)
{
    char where[128];
    int r = 0;

    config_where(loaded, table->line, where, sizeof(where));
    bool ours = strlen(table->key) == table->key_len && config_is_section(table->key);
    if (!ours && !config_is_foreign(table->key))
        return refuse_top(where, table, err);
    if (table->type != TOML_TABLE)
        return err_usage(err, "%s: `%s` must be a section: [%s]", where, table->key, table->key);
    if (!ours)
        return config_check_foreign(loaded, table, err);
    for (const struct toml_value *value = table->first; r == 0 && value; value = value->next)
        r = read_key(loaded, table->key, value, err);
    return r;
}

int config_read(struct config_loaded *loaded, const char *text, size_t len, struct brig_err *err)
{
    struct toml_doc *doc = NULL;
    struct brig_err why = {0};
    int r = toml_read(text, len, &doc, &why);

    if (r < 0) {
        /* "line 3: ..." becomes "config.toml:3: ...". */
        const char *colon = strchr(why.message, ':');
        unsigned long line = str_starts(why.message, "line ") ? strtoul(why.message + 5, NULL, 10) : 0;
        char where[128];
        if (line == 0 || !colon || r == -ENOMEM)
            return err_set(err, (enum brig_code)why.code, -r, "%s", loaded->path);
        config_where(loaded, (unsigned)line, where, sizeof(where));
        return err_usage(err, "%s%s", where, colon);
    }
    for (const struct toml_value *table = toml_root(doc)->first; r == 0 && table; table = table->next)
        r = read_section(loaded, table, err);
    toml_free(doc);
    return r;
}
