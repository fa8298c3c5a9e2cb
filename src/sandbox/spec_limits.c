/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_limits.c: reads single values of a request strictly. A broken rule is one line that names the key, the value and
 * the rule; numbers are judged before they are converted, so that no edge (0, -1, 2^31, 1e308, "9e99G", 1e-9) wraps
 * into something small. Control characters never get into names, labels and paths, where they could be taken for lines
 * of a header or a log.
 */
#include <inttypes.h>
#include <math.h>

#include "base/utf8.h"
#include "host/limits.h"
#include "sandbox/private.h"

#define SHOWN 64 /* bytes of a value in a message */

/* The value as the message shows it. */
static const char *show(const struct json_value *v, char *out, size_t size)
{
    switch (v->type) {
    case JSON_NULL: return "null";
    case JSON_BOOL: return v->boolean ? "true" : "false";
    case JSON_ARRAY: return "(an array)";
    case JSON_OBJECT: return "(an object)";
    case JSON_STRING: snprintf(out, size, "\"%.*s\"", SHOWN, v->string); return out;
    default: break;
    }
    if (v->integer)
        snprintf(out, size, "%" PRId64, v->i64);
    else
        snprintf(out, size, "%g", v->number);
    return out;
}

static int refuse(const struct json_value *v, const char *key, const char *rule, struct brig_err *err)
{
    char text[SHOWN + 8];

    return err_usage(err, "%s %s: %s", key, show(v, text, sizeof text), rule);
}

static bool has_nul(const struct json_value *v)
{
    return memchr(v->string, '\0', v->len) != NULL;
}

int spec_size(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err)
{
    static const char rule[] = "must be a positive number of bytes, or a string like \"512m\"";

    if (v->type == JSON_NUMBER && v->integer && v->i64 > 0) {
        *ret = (uint64_t)v->i64;
        return 0;
    }
    if (v->type == JSON_STRING && !has_nul(v) && brig_parse_size(v->string, ret) == 0)
        return 0;
    return refuse(v, key, rule, err);
}

/* In thousandths: seconds to milliseconds, CPUs to thousandths of one. */
static int thousandths(const struct json_value *v, uint64_t max, uint64_t *ret)
{
    if (v->type != JSON_NUMBER || !isfinite(v->number) || v->number <= 0 || v->number > (double)max / 1000)
        return -EINVAL;
    double value = v->number * 1000 + 1e-6; /* 0.007 is a little less than seven thousandths */
    if (value < 1)
        return -EINVAL;
    *ret = (uint64_t)value;
    return 0;
}

int spec_duration(const struct json_value *v, const char *key, uint64_t *ret_ms, struct brig_err *err)
{
    static const char rule[] = "must be between 0.001 and 31536000 seconds, as a number or a string like \"30s\"";
    uint64_t ms;

    if (thousandths(v, DURATION_MAX_MS, &ms) < 0 &&
        (v->type != JSON_STRING || has_nul(v) || brig_parse_duration(v->string, &ms) < 0 || ms > DURATION_MAX_MS))
        return refuse(v, key, rule, err);
    *ret_ms = ms;
    return 0;
}

int spec_cpus(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err)
{
    if (thousandths(v, UINT64_C(4096000), ret) == 0)
        return 0;
    if (v->type == JSON_STRING && !has_nul(v) && brig_parse_cpus(v->string, ret) == 0)
        return 0;
    return refuse(v, key, "must be between 0.01 and 4096 CPUs", err);
}

int spec_count(const struct json_value *v, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
               struct brig_err *err)
{
    char rule[80];

    if (v->type == JSON_NUMBER && v->integer && v->i64 >= 0 && (uint64_t)v->i64 >= min && (uint64_t)v->i64 <= max) {
        *ret = (uint64_t)v->i64;
        return 0;
    }
    snprintf(rule, sizeof rule, "must be a whole number between %" PRIu64 " and %" PRIu64, min, max);
    return refuse(v, key, rule, err);
}

int spec_bool(const struct json_value *v, const char *key, bool *ret, struct brig_err *err)
{
    if (v->type != JSON_BOOL)
        return refuse(v, key, "must be true or false", err);
    *ret = v->boolean;
    return 0;
}

static bool has_control(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint32_t point = 0;
        size_t n = utf8_sequence(text + at, len - at, &point);
        if (n == 0 || utf8_is_control(point) || point == 0x2028 || point == 0x2029)
            return true;
        at += n;
    }
    return false;
}

int spec_string(const struct json_value *v, const char *key, size_t max, bool text, const char **ret,
                struct brig_err *err)
{
    char rule[64];

    if (v->type != JSON_STRING)
        return refuse(v, key, "must be a string", err);
    if (has_nul(v))
        return refuse(v, key, "must not hold a NUL", err);
    if (!text && has_control(v->string, v->len))
        return refuse(v, key, "must not hold control characters", err);
    if (v->len > max) {
        snprintf(rule, sizeof rule, "must be at most %zu bytes", max);
        return refuse(v, key, rule, err);
    }
    *ret = v->string;
    return 0;
}

int spec_word(const struct json_value *v, const char *key, const char *const *words, struct brig_err *err)
{
    char rule[160] = "must be one of";
    size_t at = strlen(rule);

    for (int i = 0; words[i]; i++)
        if (v->type == JSON_STRING && !has_nul(v) && str_eq(v->string, words[i]))
            return i;
    for (int i = 0; words[i] && at < sizeof rule; i++)
        at += (size_t)snprintf(rule + at, sizeof rule - at, "%s %s", i ? "," : "", words[i]);
    return refuse(v, key, rule, err);
}

/* ---- limits -------------------------------------------------------------------------------------------- */

static uint64_t *limit_place(struct brig_limits *l, enum brig_limit limit)
{
    uint64_t *const places[BRIG_LIMIT_MAX] = {&l->memory,       &l->cpus,          &l->cpu_time,   &l->pids,
                                              &l->disk,         &l->inodes,        &l->open_files, &l->file_size,
                                              &l->io_read_bps,  &l->io_write_bps,  &l->timeout,    &l->output,
                                              &l->net_bytes_in, &l->net_bytes_out, &l->net_bps,    &l->connections};

    return places[limit];
}

static int read_limit(const struct json_value *v, struct brig_limits *ret, struct brig_err *err)
{
    char key[64];

    for (int i = 0; i < BRIG_LIMIT_MAX; i++) {
        enum brig_limit limit = (enum brig_limit)i;
        if (!str_eq(v->key, brig_limit_name(limit)))
            continue;
        uint64_t *to = limit_place(ret, limit);
        snprintf(key, sizeof key, "limits.%s", v->key);
        switch (limit) {
        case BRIG_LIMIT_CPUS: return spec_cpus(v, key, to, err);
        case BRIG_LIMIT_TIMEOUT:
        case BRIG_LIMIT_CPU_TIME: return spec_duration(v, key, to, err);
        case BRIG_LIMIT_PIDS:
        case BRIG_LIMIT_INODES:
        case BRIG_LIMIT_CONNECTIONS:
        case BRIG_LIMIT_OPEN_FILES: return spec_count(v, key, 1, INT64_MAX, to, err);
        default: return spec_size(v, key, to, err);
        }
    }
    return err_usage(err, "limits.%.64s: there is no such limit", v->key);
}

/* A command's output is kept in brigd's memory until its answer is written: one request must not have all of it. */
int spec_output(uint64_t output, const char *key, struct brig_err *err)
{
    if (output <= OUTPUT_KEPT_MAX)
        return 0;
    return err_usage(err, "%s: at most %u bytes: the service keeps it in its own memory", key, OUTPUT_KEPT_MAX);
}

int spec_limits(const struct json_value *v, struct brig_limits *ret, struct brig_err *err)
{
    if (v->type != JSON_OBJECT)
        return refuse(v, "limits", "must be an object", err);
    for (const struct json_value *m = v->first; m; m = m->next) {
        int r = read_limit(m, ret, err);
        if (r < 0)
            return r;
    }
    struct brig_limits filled = *ret;
    limits_fill(&filled, true);
    return limits_check(&filled, err);
}

int spec_limits_asked(const struct json_value *v, struct brig_limits *ret, struct brig_err *err)
{
    int r = spec_limits(v, ret, err);

    return r == 0 && json_get(v, "output") ? spec_output(ret->output, "limits.output", err) : r;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static size_t tree_size(const struct json_value *v)
{
    size_t size = 64 + v->len + v->key_len; /* two strings with their NULs, pointers to them, alignment */

    for (const struct json_value *item = v->first; item; item = item->next)
        size += tree_size(item);
    return size;
}

int spec_memory_init(struct spec_memory *memory, const struct json_value *json, size_t extra)
{
    memory->used = 0;
    memory->size = tree_size(json) + extra;
    memory->base = mem_alloc(memory->size);
    return memory->base ? 0 : -ENOMEM;
}

void *spec_take(struct spec_memory *memory, size_t len, size_t align)
{
    size_t at = (memory->used + align - 1) / align * align;

    if (at > memory->size || len > memory->size - at)
        abort(); /* spec_memory_init() counted wrongly */
    memory->used = at + len;
    return memory->base + at;
}

char *spec_copy(struct spec_memory *memory, const char *text, size_t len)
{
    char *copy = spec_take(memory, len + 1, 1);

    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

/* ---- pairs --------------------------------------------------------------------------------------------- */

int spec_pair_check(const char *what, const char *name, size_t name_len, const char *value, size_t value_len, bool env,
                    struct brig_err *err)
{
    if (name_len == 0)
        return err_usage(err, "%s: a name must not be empty", what);
    if (name_len > PAIR_BYTES)
        return err_usage(err, "%s %.32s...: a name must be at most %u bytes", what, name, PAIR_BYTES);
    if (memchr(name, '\0', name_len) || has_control(name, name_len))
        return err_usage(err, "%s %.64s: a name must not hold control characters", what, name);
    if (env && (memchr(name, '=', name_len) || memchr(name, ' ', name_len)))
        return err_usage(err, "%s %.64s: a name must not hold spaces or \"=\"", what, name);
    if (memchr(value, '\0', value_len))
        return err_usage(err, "%s %.64s: a value must not hold a NUL", what, name);
    /* Values of variables may have lines; labels go into listings and headers. */
    if (!env && has_control(value, value_len))
        return err_usage(err, "%s %.64s: a value must not hold control characters", what, name);
    if (value_len > (env ? 131072u : PAIR_BYTES))
        return err_usage(err, "%s %.64s: a value must be at most %u bytes", what, name, env ? 131072u : PAIR_BYTES);
    return 0;
}

int spec_pairs(const struct json_value *v, const char *key, bool env, size_t max, struct spec_memory *memory,
               struct sbox_pair **ret, size_t *ret_n, struct brig_err *err)
{
    if (v->type != JSON_OBJECT)
        return refuse(v, key, "must be an object of strings", err);
    if (v->count > max)
        return err_usage(err, "%s: %zu members, at most %zu", key, v->count, max);
    struct sbox_pair *pairs = spec_take(memory, v->count * sizeof *pairs, _Alignof(struct sbox_pair));
    size_t n = 0;
    for (const struct json_value *m = v->first; m; m = m->next) {
        if (m->type != JSON_STRING)
            return err_usage(err, "%s %.64s: must be a string", key, m->key);
        int r = spec_pair_check(key, m->key, m->key_len, m->string, m->len, env, err);
        if (r < 0)
            return r;
        pairs[n].name = spec_copy(memory, m->key, m->key_len);
        pairs[n++].value = spec_copy(memory, m->string, m->len);
    }
    *ret = pairs;
    *ret_n = n;
    return 0;
}
