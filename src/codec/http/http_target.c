/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_target.c: parses the targets of requests. The path is split at "/" before anything is decoded, so that an
 * encoded slash stays inside its part. Each part is decoded exactly once, and dot segments are judged after that.
 * Nothing is normalised: a path that would need it is refused, so no two readers can understand it differently.
 */
#include "codec/http/http.h"

#include <strings.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"

/* Decodes text (NUL-terminated) in place; its new length, or -1: a bad escape or an encoded NUL. */
static ssize_t decode(char *text, bool plus_is_space)
{
    char *out = text;

    for (const char *p = text; *p; p++) {
        if (*p == '%') {
            int high = ascii_hex(p[1]);
            int low = high >= 0 ? ascii_hex(p[2]) : -1;
            if (low < 0 || (high == 0 && low == 0))
                return -1;
            *out++ = (char)(high << 4 | low);
            p += 2;
        } else {
            *out++ = *p == '+' && plus_is_space ? ' ' : *p;
        }
    }
    *out = '\0';
    return out - text;
}

static int parse_path(char *path, struct http_target *ret, struct brig_err *err)
{
    char *next = path;

    if (path[0] == '/' && path[1] == '\0')
        return 0;
    while (next) {
        char *part = next + 1;
        next = strchr(part, '/');
        if (next)
            *next = '\0';
        if (ret->n_parts == HTTP_PARTS_MAX)
            return err_usage(err, "the path has more than %u parts", HTTP_PARTS_MAX), -400;
        ssize_t len = decode(part, false);
        if (len < 0)
            return err_usage(err, "a bad escape in the path"), -400;
        if (strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
            return err_usage(err, "the path has a part that is . or .."), -400;
        ret->part_len[ret->n_parts] = (size_t)len;
        ret->parts[ret->n_parts++] = part;
    }
    return 0;
}

static int parse_query(char *query, struct http_target *ret, struct brig_err *err)
{
    char *next = query, *query_none = query + strlen(query); /* the NUL at the end of all: a value of its own */

    while (next) {
        char *name = next;
        next = strchr(name, '&');
        if (next)
            *next++ = '\0';
        if (*name == '\0')
            continue;
        if (ret->n_query == HTTP_QUERY_MAX)
            return err_usage(err, "more than %u query parameters", HTTP_QUERY_MAX), -400;
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        else
            value = query_none;
        ssize_t len = decode(value, true);
        if (len < 0 || decode(name, true) < 0)
            return err_usage(err, "a bad escape in the query"), -400;
        ret->query[ret->n_query].name = name;
        ret->query[ret->n_query].value = value;
        ret->query[ret->n_query++].value_len = (size_t)len;
    }
    return 0;
}

int http_target_parse_in(const char *target, char *memory, struct http_target *ret, struct brig_err *err)
{
    const char *path = target;
    size_t skip = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;

    ret->n_parts = ret->n_query = 0;
    ret->memory = NULL;
    ret->rest_raw = ret->query_raw = "";
    if (skip > 0)
        path = target + skip + strcspn(target + skip, "/?");
    else if (*target == '*' && target[1] == '\0')
        path = "/";
    /* Two copies: one stays as it came, the other is cut and decoded. */
    size_t path_len = strcspn(path, "?");
    const char *query = path[path_len] == '?' ? path + path_len + 1 : "";
    size_t query_len = strlen(query);
    if (skip > 0 && path_len == 0) {
        path = "/";
        path_len = 1;
    }
    if (*path != '/')
        return err_usage(err, "the target has no path"), -400;
    for (int i = 0; i < 2; i++) {
        char *copy = memory + (size_t)i * (path_len + query_len + 2);
        memcpy(copy, path, path_len);
        copy[path_len] = '\0';
        memcpy(copy + path_len + 1, query, query_len + 1);
    }
    ret->rest_raw = memory;
    ret->query_raw = memory + path_len + 1;
    char *work = memory + path_len + query_len + 2;
    int r = parse_path(work, ret, err);
    return r < 0 ? r : parse_query(work + path_len + 1, ret, err);
}

int http_target_parse(const char *target, struct http_target *ret, struct brig_err *err)
{
    char *memory = mem_alloc(HTTP_TARGET_MEMORY(strlen(target)));

    if (!memory)
        return err_nomem(err);
    int r = http_target_parse_in(target, memory, ret, err);
    if (r < 0)
        mem_free(memory);
    else
        ret->memory = memory;
    return r;
}

void http_target_done(struct http_target *target)
{
    mem_free(take_ptr(&target->memory));
    target->n_parts = target->n_query = 0;
    target->rest_raw = target->query_raw = "";
}

const char *http_query(const struct http_target *target, const char *name)
{
    for (size_t i = 0; i < target->n_query; i++) {
        if (strcmp(target->query[i].name, name) == 0)
            return target->query[i].value;
    }
    return NULL;
}
