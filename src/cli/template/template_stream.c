/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_stream.c: the answer of a job that makes a template: JSON lines. On a terminal the layer under way is one
 * line that moves; elsewhere each layer is a line when it is done. Errors come in the stream too, once it has begun.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/template/template.h"

static void say_layer(struct template_stream *stream, const struct json_value *line, const char *step)
{
    char short_name[24];

    str_cut(short_name, sizeof short_name, get_text(line, "layer", ""));
    if (stream->quiet || stream->progress.on || isatty(STDERR_FILENO) == 1 || str_eq(step, "unpack") ||
        str_eq(step, "download"))
        return;
    AUTO_BUF struct buf text = BUF_INIT(1024);
    if (buf_printf(&text, "%s: %s (%lld of %lld)\n", short_name, step, (long long)get_i64(line, "number", 0),
                   (long long)get_i64(line, "count", 0)) == 0 &&
        cli_write(STDERR_FILENO, text.data, text.len) < 0)
        return;
}

static void show_progress(struct template_stream *stream, const struct json_value *line)
{
    const char *step = get_text(line, "step", "");
    char name[sizeof stream->shown];
    int64_t at = get_i64(line, "at", 0), of = get_i64(line, "of", 0);

    say_layer(stream, line, step);
    snprintf(name, sizeof name, "%s %lld/%lld %.19s", step, (long long)get_i64(line, "number", 0),
             (long long)get_i64(line, "count", 0), get_text(line, "layer", ""));
    if (!str_eq(name, stream->shown)) {
        cp_progress_end(&stream->progress);
        str_assign(stream->shown, name);
        cp_progress_begin(&stream->progress, stream->quiet, stream->shown,
                          of > 0 ? (uint64_t)of : CLIENT_LENGTH_UNKNOWN);
    }
    if (at > 0 && (uint64_t)at > stream->progress.done)
        cp_progress_add(&stream->progress, (size_t)((uint64_t)at - stream->progress.done));
}

static int take_line(struct template_stream *stream, const char *text, size_t len, struct brig_err *err)
{
    struct json_doc *doc = NULL;

    if (len == 0)
        return 0;
    if (json_read(text, len, JSON_READ_VALUES, &doc, NULL) < 0)
        return err_set(err, BRIG_E_HOST, EPROTO, "the daemon sent a line that is no JSON");
    if (json_get(json_root(doc), "step")) {
        show_progress(stream, json_root(doc));
        json_doc_free(doc);
        return 0;
    }
    json_doc_free(stream->last);
    stream->last = doc;
    return 0;
}

int template_stream_data(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct template_stream *stream = ctx;
    char *newline;
    int r = buf_append(&stream->line, data, len) < 0 ? err_nomem(err) : 0;

    while (r == 0 && stream->line.len > 0 && (newline = memchr(stream->line.data, '\n', stream->line.len))) {
        size_t n = (size_t)(newline - stream->line.data);
        r = take_line(stream, stream->line.data, n, err);
        buf_consume(&stream->line, n + 1);
    }
    return r;
}

static int finish(const struct template_stream *stream, int r, const struct brig_err *err, bool json)
{
    const struct json_value *root = stream->last ? json_root(stream->last) : NULL, *error = json_get(root, "error"),
                            *template = json_get(root, "template");

    if (r == -ECANCELED)
        return 128 + SIGINT;
    if (r < 0)
        return cli_error("%s", err->message);
    if (error)
        return cli_error("%s", get_text(error, "message", "no reason was given"));
    if (!template)
        return cli_error("the daemon ended the answer before the template was made");
    if (json)
        return service_print_value(template);
    const char *warning = get_text(template, "warning", "");
    if (warning[0])
        cli_error("%s: %s", get_text(template, "name", "-"), warning);
    return stream->quiet ? 0 : service_say("%s", get_text(template, "name", "-"));
}

int template_stream_end(struct template_stream *stream, int r, const struct brig_err *err, bool json)
{
    cp_progress_end(&stream->progress);
    int status = finish(stream, r, err, json);

    buf_done(&stream->line);
    json_doc_free(stream->last);
    return status;
}
