/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.c: the environment of a run, in layers. The base that every run has stands here: an allow-list, never the
 * daemon's own environment.
 *
 *     entries, sorted by (name, layer)    A base "x" | A runtime "y" | PATH base "..." | ...
 *                                                      ^ the last of a name wins
 *
 * Names and values lie in the arena, which wipes them: a value may be a secret. Adding is a binary search and a move,
 * so that thousands of names from a caller cost no more than their sorting.
 */
#include "run/environment.h"

#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "engine/engine.h"

#define NAME_LEN_MAX 256u

struct entry {
    const char *name, *value;
    size_t len;
    enum env_layer layer;
    bool secret;
};

struct environment {
    struct entry *entries;
    struct sbox_pair *pairs;
    size_t n, cap, bytes;
    struct arena *arena;
};

const char *env_layer_name(enum env_layer layer)
{
    static const char *const names[] = {"base", "sandbox", "webhook", "agent", "runtime", "forced"};
    _Static_assert(ARRAY_SIZE(names) == ENV_LAYER_MAX, "a name for each");

    return layer < ENV_LAYER_MAX ? names[layer] : "?";
}

int environment_create(struct arena *arena, struct environment **ret)
{
    struct environment *env = mem_zalloc(sizeof *env);

    if (!env)
        return -ENOMEM;
    env->arena = arena;
    *ret = env;
    return 0;
}

void environment_destroy(struct environment *env)
{
    if (!env)
        return;
    mem_free(env->entries);
    mem_free(env->pairs);
    mem_free(env);
}

/* Where (name, layer) is, or is to be. */
static size_t place(const struct environment *env, const char *name, enum env_layer layer, bool *ret_found)
{
    size_t low = 0, high = env->n;

    *ret_found = false;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(env->entries[mid].name, name);
        if (order == 0)
            order = (int)env->entries[mid].layer - (int)layer;
        if (order == 0) {
            *ret_found = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int grow(struct environment *env)
{
    size_t cap = env->cap ? env->cap * 2 : 32;

    if (env->n < env->cap)
        return 0;
    struct entry *entries = mem_realloc_array(env->entries, cap, sizeof *entries);
    if (!entries)
        return -ENOMEM;
    env->entries = entries;
    struct sbox_pair *pairs = mem_realloc_array(env->pairs, cap, sizeof *pairs);
    if (!pairs)
        return -ENOMEM;
    env->pairs = pairs;
    env->cap = cap;
    return 0;
}

int environment_add(struct environment *env, enum env_layer layer, const char *name, const char *value, size_t len,
                    bool secret, struct brig_err *err)
{
    bool found;

    if (!str_is_variable(name, NAME_LEN_MAX - 1))
        return err_usage(
            err, "environment %.64s: a name is letters, digits and underscores, and does not begin with a digit", name);
    if (memchr(value, '\0', len))
        return err_usage(err, "environment %.64s: a value must not hold a NUL", name);
    size_t at = place(env, name, layer, &found), cost = strlen(name) + len + 2;
    if (!found && env->n >= ENVIRONMENT_MAX)
        return err_usage(err, "environment %.64s: more than %u variables", name, ENVIRONMENT_MAX);
    if (cost > ENVIRONMENT_BYTES - env->bytes)
        return err_usage(err, "environment %.64s: more than %u bytes in all", name, ENVIRONMENT_BYTES);
    if (grow(env) < 0)
        return err_nomem(err);
    const char *name_copy = found ? env->entries[at].name : arena_copy(env->arena, name, strlen(name));
    const char *value_copy = arena_copy(env->arena, value, len);
    if (!name_copy || !value_copy)
        return err_nomem(err);
    env->bytes += cost;
    if (!found) {
        memmove(env->entries + at + 1, env->entries + at, (env->n - at) * sizeof *env->entries);
        env->n++;
    }
    env->entries[at] = (struct entry){name_copy, value_copy, len, layer, secret || (found && env->entries[at].secret)};
    return 0;
}

int environment_add_text(struct environment *env, enum env_layer layer, const char *name, const char *text,
                         struct brig_err *err)
{
    return text && text[0] ? environment_add(env, layer, name, text, strlen(text), false, err) : 0;
}

int environment_add_json(struct environment *env, enum env_layer layer, const struct json_value *object,
                         struct brig_err *err)
{
    if (!object || object->type == JSON_NULL)
        return 0;
    if (object->type != JSON_OBJECT)
        return err_usage(err, "environment: must be an object of strings");
    for (const struct json_value *v = object->first; v; v = v->next) {
        if (v->type == JSON_NULL)
            continue;
        if (v->type != JSON_STRING)
            return err_usage(err, "environment %.64s: must be a string", v->key);
        int r = environment_add(env, layer, v->key, v->string, v->len, true, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* "NAME=value" into the base layer. */
static int add_entry(struct environment *env, const char *entry, bool secret, struct brig_err *err)
{
    char name[NAME_LEN_MAX];
    size_t n = strcspn(entry, "=");

    if (n >= sizeof name || entry[n] == '\0')
        return 0; /* not one of ours, and nothing that a program could name */
    memcpy(name, entry, n);
    name[n] = '\0';
    return str_is_variable(name, NAME_LEN_MAX - 1)
               ? environment_add(env, ENV_BASE, name, entry + n + 1, strlen(entry + n + 1), secret, err)
               : 0;
}

int environment_add_base(struct environment *env, bool pass_tool_env, struct brig_err *err)
{
    static const char *const fixed[] = {"PYTHONWARNINGS=ignore", "NO_COLOR=1", "TERM=dumb", "PYTHONUNBUFFERED=1"};
    int r = 0;

    const char *const *base = engine_base_env(false);

    for (size_t i = 0; r == 0 && base[i]; i++)
        r = add_entry(env, base[i], false, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(fixed); i++)
        r = add_entry(env, fixed[i], false, err);
    for (char **at = environ; r == 0 && pass_tool_env && *at; at++)
        if (str_starts(*at, "TOOL_") && !str_starts(*at, "TOOL_EXEC_") && !str_starts(*at, "TOOL_SANDBOX_"))
            r = add_entry(env, *at, true, err);
    return r;
}

static bool is_last(const struct environment *env, size_t i)
{
    return i + 1 == env->n || strcmp(env->entries[i].name, env->entries[i + 1].name) != 0;
}

size_t environment_pairs(struct environment *env, const struct sbox_pair **ret)
{
    size_t n = 0;

    for (size_t i = 0; i < env->n; i++)
        if (is_last(env, i))
            env->pairs[n++] = (struct sbox_pair){env->entries[i].name, env->entries[i].value};
    *ret = env->pairs;
    return n;
}

void environment_json(const struct environment *env, bool all, struct json *json)
{
    size_t first = 0;

    json_object(json);
    for (size_t i = 0; i < env->n; i++) {
        if (!is_last(env, i))
            continue;
        json_key(json, env->entries[i].name);
        if (all) {
            json_object(json);
            json_key_string(json, "layer", env_layer_name(env->entries[i].layer));
            json_key_array(json, "over");
            for (size_t k = first; k < i; k++)
                json_string(json, env_layer_name(env->entries[k].layer));
            json_end(json);
            json_end(json);
        } else {
            json_string(json, env_layer_name(env->entries[i].layer));
        }
        first = i + 1;
    }
    json_end(json);
}

/* Also of values that another layer covers: they are known to the run's makers, and a tool must not be able to get at
 * them by a side way unseen. */
void environment_each_secret(const struct environment *env, void (*each)(void *ctx, const char *value, size_t len),
                             void *ctx)
{
    for (size_t i = 0; i < env->n; i++)
        if (env->entries[i].secret)
            each(ctx, env->entries[i].value, env->entries[i].len);
}
