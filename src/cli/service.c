/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.c: turns a verb's words into its one request. Every failure is printed here, once, so that a verb can be a
 * list of questions.
 */
#include "cli/service.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/escape.h"

/* ---- words ---------------------------------------------------------------------------------------- */

void words_done(struct words *words)
{
    free(words->items);
}

int flag_add_word(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    struct words *words = (void *)((char *)ctx + flag->field);

    if (*value == '\0')
        return flag_refuse(err, given, value, "the value is empty");
    if (MEM_GROW(words->items, words->n, words->cap) < 0)
        return err_nomem(err);
    words->items[words->n++] = value;
    return 0;
}

int flag_add_pair(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    if (!strchr(value, '=') || *value == '=')
        return flag_refuse(err, given, value, "must be K=V");
    return flag_add_word(ctx, flag, given, value, err);
}

int flag_set_table(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    if (!str_eq(value, "table") && !str_eq(value, "json"))
        return flag_refuse(err, given, value, "the format is table or json");
    *(bool *)((char *)ctx + flag->field) = str_eq(value, "json");
    return 0;
}

static bool has_empty(char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (words[i][0] == '\0')
            return true;
    return false;
}

bool service_parse(const struct flag_table *table, int argc, char **argv, void *ctx, int min, int max, const char *what,
                   int *ret_rest, int *ret_status)
{
    struct brig_err err;
    int rest = 1;
    int r = flags_parse(table, argc, argv, ctx, &rest, &err);

    if (r == FLAGS_HELP)
        *ret_status = flags_help(table);
    else if (r < 0)
        *ret_status = cli_error("%s", err.message);
    else if (argc - rest < min)
        *ret_status = cli_error("no %s given: %s", what, table->usage);
    else if (max >= 0 && argc - rest > max)
        *ret_status = cli_error("%s: one word too many: %s", argv[rest + max], table->usage);
    else if (has_empty(argv + rest, table->command > 0 ? table->command - 1 : argc - rest))
        *ret_status = cli_error("\"\": an empty word is no %s: %s", what, table->usage);
    else {
        *ret_rest = rest;
        return true;
    }
    return false;
}

/* ---- requests ------------------------------------------------------------------------------------- */

void service_client_close(struct client **client)
{
    client_close(*client);
}

bool service_open(struct client **ret)
{
    struct brig_err err = {0};

    if (client_open(ret, &err) == 0)
        return true;
    return cli_error("%s", err.message), false;
}

static int send_to(struct client *client, const char *method, const char *target, const struct buf *body,
                   struct json_doc **ret, struct brig_err *err)
{
    const struct client_request request = {
        .method = method, .target = target, .body = body ? body->data : NULL, .body_len = body ? body->len : 0};

    return ret ? client_json(client, &request, ret, err) : client_call(client, &request, err);
}

/* The target is made of format and args. */
static int send_made(struct client *client, const char *method, const struct buf *body, struct json_doc **ret,
                     struct brig_err *err, const char *format, va_list args)
{
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);

    if (client_target_args(&target, format, args) < 0)
        return err_nomem(err);
    return send_to(client, method, target.data, body, ret, err);
}

int service_try(struct client *client, const char *method, const struct buf *body, struct json_doc **ret,
                struct brig_err *err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int r = send_made(client, method, body, ret, err, format, args);
    va_end(args);
    return r;
}

static bool is_answer(const struct client *client, int r, struct json_doc **ret, const struct brig_err *err)
{
    if (r < 0)
        return cli_error("%s", err->message), false;
    if (ret && !*ret)
        return cli_error("%s: an empty answer", client_where(client)), false;
    return true;
}

bool service_ask(struct client *client, const char *target, struct json_doc **ret)
{
    struct brig_err err = {0};
    int r = send_to(client, "GET", target, NULL, ret, &err);

    return is_answer(client, r, ret, &err);
}

bool service_call(struct client *client, const char *method, const struct buf *body, struct json_doc **ret,
                  const char *format, ...)
{
    AUTO_CLIENT struct client *own = NULL;
    struct brig_err err = {0};
    va_list args;

    if (!client && !service_open(&own))
        return false;
    client = client ? client : own;
    va_start(args, format);
    int r = send_made(client, method, body, ret, &err, format, args);
    va_end(args);
    return is_answer(client, r, ret, &err);
}

static bool same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return strncmp(a, b, len) == 0 && b[len] == '=';
}

int service_put_pairs(struct json *json, const char *key, const char *const *items, size_t n, struct brig_err *err)
{
    if (n == 0)
        return 0;
    json_key_object(json, key);
    for (size_t i = 0; i < n; i++) {
        bool again = false;
        if (!json_utf8_valid(items[i], strlen(items[i]))) {
            err_usage(err, "%s: a value is not UTF-8", key);
            return -EILSEQ;
        }
        for (size_t later = i + 1; later < n && !again; later++)
            again = same_name(items[i], items[later]);
        if (again)
            continue;
        char *name = strndup(items[i], strcspn(items[i], "="));
        if (!name)
            return err_nomem(err);
        json_key_string(json, name, items[i] + strlen(name) + 1);
        free(name);
    }
    json_end(json);
    return 0;
}

int service_put_words(struct json *json, const char *key, const char *first, const char *const *words,
                      struct brig_err *err)
{
    json_key_array(json, key);
    for (const char *word = first ? first : *words++; word; word = *words++) {
        if (!json_utf8_valid(word, strlen(word))) {
            err_usage(err, "an argument is not UTF-8");
            return -EILSEQ;
        }
        json_string(json, word);
    }
    json_end(json);
    return 0;
}

int service_put_argv(struct json *json, const char *const *argv, struct brig_err *err)
{
    return service_put_words(json, "argv", NULL, argv, err);
}

void service_put_text(struct json *json, const char *key, const char *value)
{
    if (!value)
        return;
    json_key_string(json, key, value);
}

/* ---- members -------------------------------------------------------------------------------------- */

const char *get_text(const struct json_value *object, const char *key, const char *otherwise)
{
    const struct json_value *value = json_get(object, key);
    return value && value->type == JSON_STRING && value->len > 0 ? value->string : otherwise;
}

int64_t get_i64(const struct json_value *object, const char *key, int64_t otherwise)
{
    const struct json_value *value = json_get(object, key);
    return value && value->type == JSON_NUMBER && value->integer ? value->i64 : otherwise;
}

int service_get_bytes(const struct json_value *object, const char *key, const char *encoding_key, struct buf *out)
{
    const struct json_value *value = json_get(object, key);

    if (!value || value->type != JSON_STRING)
        return -EINVAL;
    if (!str_eq(get_text(object, encoding_key, "utf-8"), "base64"))
        return buf_append(out, value->string, value->len);
    size_t room = value->len / 4 * 3;
    int r = buf_reserve(out, room);
    ssize_t n = r < 0 ? r : base64_decode_padded(value->string, value->len, out->data + out->len, room);
    if (n > 0)
        buf_commit(out, (size_t)n);
    return n < 0 ? (int)n : 0;
}

/* ---- the rest ------------------------------------------------------------------------------------- */

int service_signals(void)
{
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
        return -1;
    return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

int service_transfers(struct client *client)
{
    int signals = service_signals();

    signal(SIGPIPE, SIG_IGN);
    client_set_cancel(client, signals);
    return signals;
}

int service_say(const char *format, ...)
{
    struct escape escape = ESCAPE_INIT(ESCAPE_LINE);
    struct buf line = BUF_INIT(64 << 10);
    AUTO_FREE char *text = NULL;
    va_list args;

    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    int r = n < 0 ? -ENOMEM : escape_append(&escape, text, (size_t)n, &line);
    if (n < 0)
        text = NULL;
    if (r == 0)
        r = escape_finish(&escape, &line);
    if (r == 0)
        r = buf_append(&line, "\n", 1);
    int status = r < 0 ? cli_error("out of memory") : cli_print(&line, 0);
    buf_done(&line);
    return status;
}

int service_print_value(const struct json_value *value)
{
    struct escape escape = ESCAPE_INIT(ESCAPE_JSON);
    struct buf text = BUF_INIT(SIZE_MAX / 2), shown = BUF_INIT(SIZE_MAX / 2);
    int r = json_print(value, &text);

    if (r == 0)
        r = escape_append(&escape, text.data, text.len, &shown);
    if (r == 0)
        r = buf_append(&shown, "\n", 1);
    int status = r < 0 ? cli_error("out of memory") : cli_print(&shown, 0);
    buf_done(&text);
    buf_done(&shown);
    return status;
}

int service_print_json(const struct json_doc *doc)
{
    return service_print_value(json_root(doc));
}

/* ---- files ---------------------------------------------------------------------------------------- */

bool service_read_file(const char *path, struct buf *out)
{
    bool is_stdin = str_eq(path, "-");
    AUTO_FD int opened = is_stdin ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int fd = is_stdin ? STDIN_FILENO : opened;

    if (fd < 0)
        return cli_error("%s: %s", path, strerrordesc_np(errno)), false;
    for (;;) {
        if (buf_reserve(out, 65536) < 0)
            return cli_error("%s: larger than %zu KiB", path, (out->max - 65536) >> 10), false;
        ssize_t n = RETRY(read(fd, out->data + out->len, 65536));
        if (n < 0)
            return cli_error("%s: %s", path, strerrordesc_np(errno)), false;
        if (n == 0)
            return true;
        buf_commit(out, (size_t)n);
    }
}
