/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_log.c: the log of a build: JSON lines, one for each thing that happens. The newest BUILD_LOG_MAX bytes are
 * kept. A reader has an offset that counts all bytes that there ever were, so it notices what it has missed.
 *
 *     {"event":"step","step":3,"of":9,"stage":"build","line":7,"text":"RUN make"}
 *     {"event":"output","step":3,"stream":"stdout","data":"...","encoding":"utf-8"}
 *     {"event":"cached","step":3}   {"event":"end","step":3,"ms":1200,"layer":"...","bytes":123}
 *     {"event":"note","text":"..."}   {"event":"warning","text":"..."}
 *     {"event":"done","template":"app"}   {"event":"error","code":"...","message":"...","line":7}
 */
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "http/errors.h"

#define LINE_MAX_BYTES (256u << 10)
#define PIECE 16384u

static void tell(struct build *build)
{
    for (struct build_reader *reader = build->readers, *next; reader; reader = next) {
        next = reader->next;
        reader->more(reader->ctx);
    }
}

static void make_room(struct build_line_log *log, size_t len)
{
    while (log->text.len > 0 && log->text.len + len > BUILD_LOG_MAX) {
        const char *newline = memchr(log->text.data, '\n', log->text.len);
        size_t cut = newline ? (size_t)(newline - log->text.data) + 1 : log->text.len;
        const char *more = log->text.len > BUILD_LOG_MAX / 8 && cut < BUILD_LOG_MAX / 8
                               ? memchr(log->text.data + BUILD_LOG_MAX / 8, '\n', log->text.len - BUILD_LOG_MAX / 8)
                               : NULL;
        if (more) /* a good piece at once: each cut moves all that stays */
            cut = (size_t)(more - log->text.data) + 1;
        buf_consume(&log->text, cut);
        log->first += cut;
    }
}

static void put_line(struct build *build, struct json *json)
{
    json_end(json);
    if (json_finish(json) < 0 || buf_append_str(json->out, "\n") < 0)
        return;
    make_room(&build->log, json->out->len);
    if (buf_append(&build->log.text, json->out->data, json->out->len) == 0)
        tell(build);
}

static void begin(struct json *json, const char *event)
{
    json_object(json);
    json_key_string(json, "event", event);
}

void log_step(const struct build_stage *stage, const struct dockerfile_step *step)
{
    AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
    struct json json = JSON_INIT(&out);

    begin(&json, "step");
    json_key_u64(&json, "step", stage->number);
    json_key_u64(&json, "of", stage->build->n_steps);
    json_key_string(&json, "stage", stage->name);
    json_key_u64(&json, "line", step->line);
    json_key(&json, "text");
    json_string_n(&json, step->written, strnlen(step->written, 4096));
    put_line(stage->build, &json);
}

void log_cached(const struct build_stage *stage)
{
    AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
    struct json json = JSON_INIT(&out);

    begin(&json, "cached");
    json_key_u64(&json, "step", stage->number);
    put_line(stage->build, &json);
}

void log_ended(const struct build_stage *stage, const struct build_layer *layer)
{
    AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
    struct json json = JSON_INIT(&out);

    begin(&json, "end");
    json_key_u64(&json, "step", stage->number);
    json_key_u64(&json, "ms", (clock_mono_ns() - stage->began_ns) / NS_PER_MS);
    if (layer) {
        json_key_string(&json, "layer", layer->name);
        json_key_u64(&json, "bytes", layer->bytes);
    }
    put_line(stage->build, &json);
}

/* The last bytes of what a step says are shown if it fails. */
static void keep_tail(struct build_stage *stage, const char *data, size_t len)
{
    size_t have = strlen(stage->tail), keep;

    if (len > BUILD_TAIL) {
        data += len - BUILD_TAIL;
        len = BUILD_TAIL;
    }
    keep = have + len > BUILD_TAIL ? BUILD_TAIL - len : have;
    memmove(stage->tail, stage->tail + have - keep, keep);
    for (size_t i = 0; i < len; i++)
        stage->tail[keep + i] = data[i] ? data[i] : ' ';
    stage->tail[keep + len] = '\0';
}

void log_output(struct build_stage *stage, unsigned stream, const void *data, size_t len)
{
    const char *at = data;

    keep_tail(stage, data, len);
    for (size_t n; len > 0; at += n, len -= n) {
        AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
        struct json json = JSON_INIT(&out);

        n = len < PIECE ? len : PIECE;
        begin(&json, "output");
        json_key_u64(&json, "step", stage->number);
        json_key_string(&json, "stream", stream == 1 ? "stdout" : "stderr");
        json_key(&json, "data");
        if (json_is_text(at, n)) {
            json_string_n(&json, at, n);
            json_key_string(&json, "encoding", "utf-8");
        } else {
            json_base64(&json, at, n);
            json_key_string(&json, "encoding", "base64");
        }
        put_line(stage->build, &json);
    }
}

void log_note(struct build *build, const char *event, const char *text)
{
    AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
    struct json json = JSON_INIT(&out);

    begin(&json, event);
    json_key_string(&json, "text", text);
    put_line(build, &json);
}

void log_over(struct build *build)
{
    AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
    struct json json = JSON_INIT(&out);

    if (build->state == BUILD_DONE) {
        begin(&json, "done");
        json_key_string(&json, "template", build->name);
    } else {
        begin(&json, "error");
        json_key_string(&json, "code", error_code(build->err.code));
        json_key_string(&json, "message", build->err.message);
        if (build->err_line)
            json_key_u64(&json, "line", build->err_line);
    }
    put_line(build, &json);
    tell(build);
}

void log_free(struct build *build)
{
    while (build->readers) {
        struct build_reader *reader = build->readers;
        build_unfollow(build, reader);
        reader->gone(reader->ctx);
    }
    buf_done(&build->log.text);
}

void build_follow(struct build *build, struct build_reader *reader)
{
    reader->prev = NULL;
    reader->next = build->readers;
    if (build->readers)
        build->readers->prev = reader;
    build->readers = reader;
}

void build_unfollow(struct build *build, struct build_reader *reader)
{
    if (reader->next)
        reader->next->prev = reader->prev;
    if (reader->prev)
        reader->prev->next = reader->next;
    else if (build->readers == reader)
        build->readers = reader->next;
    reader->next = reader->prev = NULL;
}

const char *build_log(const struct build *build, uint64_t *at, size_t *ret_len)
{
    const struct build_line_log *log = &build->log;
    uint64_t from = *at > log->first ? *at - log->first : 0;

    if (from >= log->text.len) {
        *ret_len = 0;
        return "";
    }
    *ret_len = log->text.len - (size_t)from;
    *at = log->first + log->text.len;
    return log->text.data + from;
}
