/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_show.c: `brig audit show|tail|export`: prints lines, all or some, once or as they come. Other people chose the
 * words: text for a terminal has no control characters. Exported lines are the bytes of the log.
 */
#include "brigd/audit_show.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/read.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/utf8.h"
#include "codec/json/json_read.h"

#define TAIL_LINES 10u
#define POLL_MS 200u

/* "2024-02-29", with a time behind it or not; as it would be written in the log, without the Z. An age is counted back
 * from now. */
static bool read_time(const char *text, char out[CLOCK_TEXT])
{
    static const char shape[] = "0000-00-00T00:00:00.000000000";
    size_t len = strlen(text);
    uint64_t ms;

    if (brig_parse_duration(text, &ms) == 0 && len > 0 && (text[len - 1] < '0' || text[len - 1] > '9')) {
        int64_t at = clock_real_ns() - (int64_t)(ms * NS_PER_MS);
        clock_text(at, 0, out);
        out[strcspn(out, "Z")] = '\0';
        return at > 0;
    }
    if (len > 10 && text[len - 1] == 'Z')
        len--;
    if (len != 10 && len != 16 && len != 19 && !(len > 20 && len < sizeof(shape)))
        return false;
    for (size_t i = 0; i < len; i++)
        if (shape[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i])
            return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

struct showing {
    const struct audit_verb_options *options;
    char since[CLOCK_TEXT], from_time[CLOCK_TEXT], to_time[CLOCK_TEXT];
    uint64_t from_seq, to_seq;
    /* the last lines, when only those are wanted: a ring */
    char **ring;
    uint64_t ring_at, seen, last_seq;
    int error;
};

static const char *text_of(const struct json_value *root, const char *name)
{
    const struct json_value *value = json_get(root, name);
    return value && value->type == JSON_STRING ? value->string : "";
}

/* With everything that could steer a terminal, or look like another column or line, as a question mark. */
static void put_safe(FILE *out, const char *text)
{
    size_t len = strlen(text);

    while (len > 0) {
        uint32_t point;
        size_t n = utf8_sequence(text, len, &point);
        if (n == 0 || utf8_is_deceptive(point))
            fputc('?', out);
        else
            fwrite(text, 1, n, out);
        n = n ? n : 1;
        text += n;
        len -= n;
    }
}

static void put_text(FILE *out, const char *line, size_t len)
{
    static const char *const names[] = {"time", "actor", "org", "action", "object", "outcome", "detail"};
    struct json_doc *doc = NULL;

    if (json_read(line, len, 32, &doc, NULL) < 0)
        return;
    const struct json_value *seq = json_get(json_root(doc), "seq");
    fprintf(out, "%" PRId64, seq ? seq->i64 : 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *text = text_of(json_root(doc), names[i]);
        if (text[0] == '\0' && i < ARRAY_SIZE(names) - 1)
            text = "-";
        if (text[0] != '\0')
            fputs("  ", out);
        put_safe(out, text);
    }
    fputc('\n', out);
    json_doc_free(doc);
}

static void put_line(const struct showing *showing, const char *line, size_t len)
{
    if (showing->options->json) {
        fwrite(line, 1, len, stdout);
        fputc('\n', stdout);
    } else {
        put_text(stdout, line, len);
    }
}

static bool matches(const struct showing *showing, uint64_t seq, const char *org, const struct json_value *root)
{
    const struct audit_verb_options *options = showing->options;
    const char *time = text_of(root, "time"), *action = text_of(root, "action");

    if (options->org && !str_eq(options->org, org))
        return false;
    if (options->action) {
        size_t len = strlen(options->action);
        bool prefix = len > 0 && options->action[len - 1] == '.';
        if (prefix ? !str_starts(action, options->action) : !str_eq(action, options->action))
            return false;
    }
    if (showing->since[0] && strcmp(time, showing->since) < 0)
        return false;
    if (showing->from_time[0] && strcmp(time, showing->from_time) < 0)
        return false;
    if (showing->to_time[0] && strncmp(time, showing->to_time, strlen(showing->to_time)) > 0)
        return false;
    return seq >= showing->from_seq && seq <= showing->to_seq;
}

static bool on_line(void *ctx, uint64_t seq, const char *org, const char *line, size_t len)
{
    struct showing *showing = ctx;
    struct json_doc *doc = NULL;

    showing->last_seq = seq;
    if (json_read(line, len, 32, &doc, NULL) < 0)
        return true;
    bool wanted = matches(showing, seq, org, json_root(doc));
    json_doc_free(doc);
    if (!wanted)
        return seq <= showing->to_seq;
    showing->seen++;
    if (!showing->ring) {
        put_line(showing, line, len);
        return ferror(stdout) == 0;
    }
    char *copy = mem_alloc(len + 1);
    if (!copy) {
        showing->error = -ENOMEM;
        return false;
    }
    memcpy(copy, line, len);
    copy[len] = '\0';
    mem_free(showing->ring[showing->ring_at]);
    showing->ring[showing->ring_at] = copy;
    showing->ring_at = (showing->ring_at + 1) % showing->options->lines;
    return true;
}

static void empty_ring(struct showing *showing)
{
    for (uint64_t i = 0; showing->ring && i < showing->options->lines; i++) {
        char *line = showing->ring[(showing->ring_at + i) % showing->options->lines];
        if (line)
            put_line(showing, line, strlen(line));
        mem_free(line);
    }
    mem_free(showing->ring);
    showing->ring = NULL;
}

/* Waits until the file that grows has changed. */
static void wait_for_more(int dir_fd, struct stat *last)
{
    struct stat now;

    for (;;) {
        if (fstatat(dir_fd, "audit.jsonl", &now, AT_SYMLINK_NOFOLLOW) == 0 &&
            (now.st_ino != last->st_ino || now.st_size != last->st_size)) {
            *last = now;
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * (long)NS_PER_MS}, NULL);
    }
}

static int show_lines(struct showing *showing, int dir_fd)
{
    const struct audit_verb_options *options = showing->options;
    struct stat last = {0};

    if (options->has_lines) {
        showing->ring = mem_zalloc(options->lines * sizeof(char *));
        if (!showing->ring)
            return audit_trouble("out of memory");
    }
    for (;;) {
        int r = audit_read(dir_fd, showing->last_seq, on_line, showing);
        if (r == 0)
            r = showing->error;
        empty_ring(showing);
        if (r < 0)
            return audit_trouble("%s", strerror(-r));
        if (fflush(stdout) != 0)
            return audit_trouble("write: %s", strerror(errno));
        if (!options->follow)
            return EXIT_OK;
        wait_for_more(dir_fd, &last);
    }
}

int audit_show(const struct audit_verb_options *options, int dir_fd)
{
    struct showing showing = {.options = options, .to_seq = UINT64_MAX};

    if (options->since && !read_time(options->since, showing.since))
        return audit_trouble("--since %.40s: must be a date, a date with a time (UTC), or an age such as 2h",
                             options->since);
    return show_lines(&showing, dir_fd);
}

int audit_tail(const struct audit_verb_options *options, int dir_fd)
{
    struct audit_verb_options more = *options;

    more.lines = options->has_lines ? options->lines : TAIL_LINES;
    more.has_lines = true;
    return audit_show(&more, dir_fd);
}

static bool read_bound(const char *text, uint64_t *seq, char time[40])
{
    return parse_u64(text, seq) == 0 || read_time(text, time);
}

int audit_export(const struct audit_verb_options *options, int dir_fd)
{
    struct audit_verb_options more = *options;
    struct showing showing = {.options = &more, .to_seq = UINT64_MAX};

    more.json = true;
    if (options->from && !read_bound(options->from, &showing.from_seq, showing.from_time))
        return audit_trouble("--from %.40s: must be a line's number, a date, or a date with a time (UTC)",
                             options->from);
    if (options->to && !read_bound(options->to, &showing.to_seq, showing.to_time))
        return audit_trouble("--to %.40s: must be a line's number, a date, or a date with a time (UTC)", options->to);
    showing.last_seq = showing.from_seq > 0 ? showing.from_seq - 1 : 0;
    return show_lines(&showing, dir_fd);
}
