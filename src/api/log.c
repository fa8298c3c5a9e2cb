/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: lines by one write(2) each, so that two processes may share the file. */
#include "api/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/str.h"
#include "codec/json/json.h"

static struct {
    int fd;
    enum log_level level;
    bool text;
} log_state = {.fd = STDERR_FILENO, .level = LOG_INFO};

static const char *const level_names[LOG_LEVEL_MAX] = {"debug", "info", "warn", "error"};

void log_use(const struct config *config, int fd)
{
    if (log_state.fd > STDERR_FILENO)
        close(log_state.fd);
    log_state.fd = fd >= 0 ? fd : STDERR_FILENO;
    log_state.text = str_eq(config->log_format, "text");
    for (int i = 0; i < LOG_LEVEL_MAX; i++)
        if (str_eq(config->log_level, level_names[i]))
            log_state.level = (enum log_level)i;
}

bool log_wants_requests(void)
{
    return log_state.level <= LOG_INFO;
}

static void begin(struct json *json, enum log_level level, const char *event)
{
    json_object(json);
    json_key_time(json, "time", clock_real_ns(), 3);
    json_key_string(json, "level", level_names[level]);
    json_key_string(json, "event", event);
}

static void end(struct json *json)
{
    json_end(json);
    if (json_finish(json) == 0 && buf_append(json->out, "\n", 1) == 0)
        (void)!write(log_state.fd, json->out->data, json->out->len);
}

void log_line(enum log_level level, const char *event, const char *format, ...)
{
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);
    char message[2048];
    va_list args;

    if (level < log_state.level)
        return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (log_state.text) {
        char time[CLOCK_TEXT];
        clock_text(clock_real_ns(), 3, time);
        for (char *at = message; *at; at++)
            if ((unsigned char)*at < ' ' || *at == 0x7f)
                *at = '?';
        if (buf_printf(&out, "%s %-5s %s: %s\n", time, level_names[level], event, message) == 0)
            (void)!write(log_state.fd, out.data, out.len);
        return;
    }
    begin(&json, level, event);
    json_key_string(&json, "message", message);
    end(&json);
}

void log_request(const char *request_id, const char *method, const char *route, const char *peer, unsigned status,
                 uint64_t duration_ns, uint64_t bytes)
{
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    if (log_state.text) {
        log_line(LOG_INFO, "request", "%s %s %s %u %llu us %llu bytes %s", request_id, method, route, status,
                 (unsigned long long)(duration_ns / 1000), (unsigned long long)bytes, peer);
        return;
    }
    begin(&json, LOG_INFO, "request");
    const struct {
        const char *name, *value;
    } texts[] = {{"request_id", request_id}, {"method", method}, {"route", route}, {"peer", peer}};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        json_key_string(&json, texts[i].name, texts[i].value);
    json_key_u64(&json, "status", status);
    json_key_u64(&json, "duration_us", duration_ns / 1000);
    json_key_u64(&json, "bytes", bytes);
    end(&json);
}
