/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_wish.c: checks what a run asks for, and computes the key of its dependency set. Everything that can change what
 * an installer does is in the key: the organisation (unless nothing about it can differ), the interpreters, the
 * platform, the words, and where packages come from. Each part is hashed with its length, so that no two lists look the
 * same.
 */
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/sets_priv.h"

int words_add(struct words *words, const char *text)
{
    char **items = mem_realloc_array(words->items, words->n + 1, sizeof *items);

    if (!items)
        return -ENOMEM;
    words->items = items;
    items[words->n] = mem_strdup(text);
    if (!items[words->n])
        return -ENOMEM;
    words->n++;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* and takes double ones out */
static void words_sort(struct words *words)
{
    size_t kept = 0;

    if (words->n > 1)
        qsort(words->items, words->n, sizeof *words->items, compare);
    for (size_t i = 0; i < words->n; i++) {
        if (kept > 0 && str_eq(words->items[kept - 1], words->items[i]))
            mem_free(words->items[i]);
        else
            words->items[kept++] = words->items[i];
    }
    words->n = kept;
}

void words_done(struct words *words)
{
    for (size_t i = 0; i < words->n; i++)
        mem_free(words->items[i]);
    mem_free(words->items);
    *words = (struct words){0};
}

void wish_done(struct wish *wish)
{
    words_done(&wish->pip);
    words_done(&wish->npm);
    words_done(&wish->said);
}

static int put_line(void *ctx, const char *line)
{
    struct wish *wish = ctx;
    int r = words_add(&wish->pip, line);

    if (r == 0)
        r = words_add(&wish->said, line);
    wish->n_config++;
    wish->pinned = wish->pinned && requirement_pinned(line);
    return r;
}

/* A directory's name: it stands in paths and scripts. */
static bool is_plain(const char *name)
{
    return str_is_name(name, strlen(name), ASCII_ALNUM "_", ASCII_ALNUM "._-") && !str_eq(name, "npm");
}

static int copy_words(struct wish *wish, const struct set_want *want, bool allow_urls, struct brig_err *err)
{
    int r = 0;

    if (want->requirements_txt)
        r = requirements_read(want->requirements_txt, allow_urls, put_line, wish, err);
    for (size_t i = 0; r == 0 && i < want->n_pip; i++) {
        r = requirement_ok(want->pip[i], false, allow_urls, err);
        if (r == 0 && (words_add(&wish->pip, want->pip[i]) < 0 || words_add(&wish->said, want->pip[i]) < 0))
            r = err_nomem(err);
        wish->pinned = false; /* there is no way to say a hash there */
    }
    for (size_t i = 0; r == 0 && i < want->n_npm; i++) {
        r = requirement_ok(want->npm[i], true, allow_urls, err);
        if (r == 0 && words_add(&wish->npm, want->npm[i]) < 0)
            r = err_nomem(err);
        wish->pinned = false;
    }
    return r;
}

int wish_init(struct wish *wish, const struct set_want *want, bool allow_urls, struct brig_err *err)
{
    const char *venv = want->venv_name && want->venv_name[0] ? want->venv_name : "venv",
               *python = want->python && want->python[0] ? want->python : "/usr/bin/python3";

    *wish = (struct wish){.pinned = true, .n_config = 0};
    if (!is_plain(venv) || str_copy(wish->venv, sizeof wish->venv, venv) < 0)
        return err_usage(err, "venv_name %.64s: must be the plain name of a directory", venv);
    if (str_copy(wish->template_name, sizeof wish->template_name, want->template_name ? want->template_name : "") < 0 ||
        str_copy(wish->template_id, sizeof wish->template_id, want->template_id ? want->template_id : "") < 0)
        return err_usage(err, "template %.64s: too long", want->template_name);
    if ((python[0] != '/' && !(wish->template_name[0] && is_plain(python))) ||
        str_copy(wish->python, sizeof wish->python, python) < 0)
        return err_usage(err, "interpreter %.64s: must be an absolute path", python);
    if (str_copy(wish->org, sizeof wish->org, want->org_id) < 0)
        return err_usage(err, "organisation: too long");
    if (want->n_pip > REQUIREMENTS_MAX || want->n_npm > REQUIREMENTS_MAX)
        return err_usage(err, "requirements: at most %u", REQUIREMENTS_MAX);
    int r = copy_words(wish, want, allow_urls, err);
    if (r < 0) {
        wish_done(wish);
        return r == -ENOMEM && err && !err->code ? err_nomem(err) : r;
    }
    wish->n_config += want->n_config_pip;
    wish->pinned = wish->pinned && wish->pip.n > 0;
    words_sort(&wish->pip);
    words_sort(&wish->npm);
    return 0;
}

static int put_names(struct buf *out, char *const *items, size_t from, size_t to)
{
    int r = from >= to ? buf_append_str(out, "none") : 0;

    for (size_t i = from; r >= 0 && i < to; i++)
        r = buf_printf(out, "%s%.200s", i > from ? ", " : "", items[i]);
    return r;
}

int wish_sentence(const struct wish *wish, bool npm, struct buf *out)
{
    const struct words *words = npm ? &wish->npm : &wish->said;
    size_t config = npm ? 0 : wish->n_config < words->n ? wish->n_config : words->n;
    int r = buf_append_str(out, npm ? "Failed to install npm packages (tool requirements: "
                                    : "Failed to install pip packages (sandbox requirements: ");

    if (r >= 0 && !npm)
        r = put_names(out, words->items, 0, config);
    if (r >= 0 && !npm)
        r = buf_append_str(out, "; tool requirements: ");
    if (r >= 0)
        r = put_names(out, words->items, config, words->n);
    if (r >= 0)
        r = buf_append_str(
            out,
            "). This may be due to package version incompatibility. Consider updating package versions or removing "
            "version constraints.");
    return r < 0 ? r : 0;
}

int versions_parse(const char *text, struct versions *ret)
{
    char *const fields[] = {ret->python, ret->platform, ret->node};

    *ret = (struct versions){.python = ""};
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        size_t len = strcspn(text, "\n");
        if (len >= sizeof ret->python || text[len] != '\n' || strspn(text, ASCII_ALNUM "._+-") < len)
            return -EINVAL;
        memcpy(fields[i], text, len);
        fields[i][len] = '\0';
        text += len + 1;
    }
    return ret->python[0] || ret->node[0] ? 0 : -EINVAL;
}

/* ---- the key ------------------------------------------------------------------------------------------------ */

static int add(struct crypto_hash *hash, const char *text)
{
    uint64_t len = strlen(text);
    int r = crypto_hash_add(hash, &len, sizeof len);

    return r < 0 ? r : crypto_hash_add(hash, text, len);
}

static int add_words(struct crypto_hash *hash, const struct words *words)
{
    uint64_t n = words->n;
    int r = crypto_hash_add(hash, &n, sizeof n);

    for (size_t i = 0; r == 0 && i < words->n; i++)
        r = add(hash, words->items[i]);
    return r;
}

int wish_key(const struct wish *wish, const struct versions *versions, const struct set_index *index,
             const struct config *config, char key[SHA256_HEX])
{
    bool shared = config->tools_share_sets && wish->pinned && !wish->template_name[0], pip = wish->pip.n > 0,
         npm = wish->npm.n > 0;
    const char *const parts[] = {"brig requirement set 1",
                                 shared ? "*" : "org",
                                 shared ? "" : wish->org,
                                 versions->platform,
                                 pip ? wish->venv : "",
                                 pip ? wish->python : "",
                                 pip ? versions->python : "",
                                 pip ? index->pip : "",
                                 pip ? index->extra : "",
                                 pip ? config->tools_find_links : "",
                                 npm ? versions->node : "",
                                 npm ? index->npm : "",
                                 npm ? config->tools_npm_registry : ""};
    struct crypto_hash *hash = NULL;
    uint8_t out[SHA256_SIZE];
    int r = crypto_hash_create(&hash);

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(parts); i++)
        r = add(hash, parts[i]);
    if (r == 0 && wish->template_name[0] && (r = add(hash, wish->template_name)) == 0)
        r = add(hash, wish->template_id);
    if (r == 0)
        r = add_words(hash, &wish->pip);
    if (r == 0)
        r = add_words(hash, &wish->npm);
    if (r == 0)
        r = crypto_hash_end(hash, out);
    crypto_hash_destroy(hash);
    if (r == 0)
        crypto_hex(out, sizeof out, key);
    return r;
}
