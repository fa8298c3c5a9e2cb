/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log's writer: lines, chain, restarts, rotation, retention, floods, disks that are full. (Verification:
 * test_audit_verify.c.) */
#include "audit_rig.h"

#include <signal.h>
#include <sys/resource.h>

#include "audit/suspicion.h"
#include "codec/json/json_read.h"

static void writes_a_chain(void **state)
{
    struct rig *rig = *state;
    char hash[SHA256_HEX] = AUDIT_ZEROES, prev[SHA256_HEX];
    size_t len;

    rig_open(rig, NULL);
    rig_add(rig, 3);
    assert_int_equal(rig_sync(rig, "key-9"), 4);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    char *line = text;
    for (unsigned i = 1; i <= 4; i++) {
        char *end = strchr(line, '\n'), want[512];
        size_t n = (size_t)(end - line);
        assert_non_null(end);
        *end = '\0';
        memcpy(prev, line + AUDIT_PREV_AT(n), 64);
        prev[64] = '\0';
        assert_string_equal(prev, hash);
        assert_int_equal(audit_line_hash(line, n, hash), 0);
        /* but for time and hash, every byte is known */
        assert_true(
            str_format(
                want, sizeof(want),
                "{\"seq\":%u,\"time\":\"%.30s\",\"actor\":\"%s\",\"org\":\"%s\",\"action\":\"%s\",\"object\":\"%s\","
                "\"outcome\":\"ok\",\"detail\":\"%s\",\"request_id\":\"%s\",\"prev\":\"%s\"}",
                i, line + 17, i == 4 ? "system" : "key-1", i == 4 ? "" : "org-1",
                i == 4 ? "key.create" : "process.start", i == 4 ? "key-9" : "sb1", i == 4 ? "" : "a line",
                i == 4 ? "" : "r", prev) > 0);
        assert_string_equal(line, want);
        line = end + 1;
    }
    assert_string_equal(line, "");
    rig_close(rig);
    rig_assert_ok(rig);
    struct stat st;
    assert_int_equal(fstatat(rig->dir_fd, AUDIT_CURRENT, &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* Whatever is in a field, it is one line, one JSON object, and the field is text. */
static void nothing_can_be_injected(void **state)
{
    static const char *const evil[] = {
        "x\"}\n{\"seq\":9,\"action\":\"forged\"}",
        "\r\n\x1b[2J",
        "\x80\xff\xfe",
        "\\\"\\",
        "\xe2\x80\xa8",
        "\x7f\x01",
        "{}",
        "\",\"prev\":\"" AUDIT_ZEROES "\"}",
    };
    struct rig *rig = *state;
    char *longest = malloc(5000);
    size_t len;

    assert_non_null(longest);
    rig_open(rig, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(evil); i++)
        assert_int_equal(audit_add(rig->audit,
                                   &(struct audit_event){.action = evil[i],
                                                         .actor = evil[i],
                                                         .org = evil[i],
                                                         .object = evil[i],
                                                         .outcome = evil[i],
                                                         .detail = evil[i],
                                                         .request_id = evil[i]},
                                   NULL, NULL),
                         i + 1);
    memset(longest, '\x01', 4999);
    longest[4999] = '\0';
    assert_true(audit_add(rig->audit,
                          &(struct audit_event){.action = longest,
                                                .actor = longest,
                                                .org = longest,
                                                .object = longest,
                                                .outcome = longest,
                                                .detail = longest,
                                                .request_id = longest},
                          NULL, NULL) > 0);
    memset(longest, 'x', 4999);
    memcpy(longest + AUDIT_FIELD_MAX - 1, "\xe2\x82\xac", 3); /* a character across the cut */
    assert_true(audit_add(rig->audit, &(struct audit_event){.detail = longest}, NULL, NULL) > 0);
    rig_sync(rig, "end");
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    unsigned lines = 0;
    for (char *line = text, *end; *line; line = end + 1, lines++) {
        struct json_doc *doc = NULL;
        end = strchr(line, '\n');
        assert_non_null(end);
        for (char *p = line; p < end; p++)
            assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
        assert_int_equal(json_read(line, (size_t)(end - line), 100, &doc, NULL), 0);
        assert_int_equal(json_root(doc)->count, 10);
        assert_int_equal(json_get(json_root(doc), "seq")->i64, lines + 1);
        if (lines == ARRAY_SIZE(evil))
            assert_int_equal(json_get(json_root(doc), "object")->len, AUDIT_FIELD_MAX);
        if (lines == ARRAY_SIZE(evil) + 1) {
            assert_int_equal(json_get(json_root(doc), "detail")->len, AUDIT_FIELD_MAX - 1);
            assert_string_equal(json_get(json_root(doc), "actor")->string, "");
        }
        if (lines == 0)
            assert_string_equal(json_get(json_root(doc), "object")->string, evil[0]);
        json_doc_free(doc);
    }
    assert_int_equal(lines, ARRAY_SIZE(evil) + 3);
    free(longest);
    rig_close(rig);
    rig_assert_ok(rig);
}

static void goes_on_after_a_restart(void **state)
{
    struct rig *rig = *state;

    for (unsigned i = 0; i < 3; i++) {
        rig_open(rig, NULL);
        assert_int_equal(rig_sync(rig, "x"), i + 1);
        rig_close(rig);
        rig_assert_ok(rig);
    }
    struct audit_report report = rig_verify(rig, true);
    assert_int_equal(report.lines, 3);
    assert_int_equal(report.last_seq, 3);
    assert_int_equal(report.heads, 3);
    assert_string_equal(report.note, "");
    assert_int_equal(rig->head_seq, 3);
    assert_string_equal(rig->head_hash, report.last_hash);
}

static void cuts_off_a_torn_line(void **state)
{
    struct rig *rig = *state;
    size_t len;

    for (unsigned torn = 1; torn < 40; torn += 13) {
        rig_open(rig, NULL);
        rig_sync(rig, "x");
        rig_close(rig);
        AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
        AUTO_FREE char *more = malloc(len + torn);
        memcpy(more, text, len);
        memcpy(more + len, text, torn); /* half a line, as a crash leaves it */
        rig_write(rig->dir_fd, AUDIT_CURRENT, more, len + torn);
        struct audit_report report = rig_verify(rig, true);
        assert_true(report.ok);
        assert_non_null(strstr(report.note, "unfinished line"));
        rig_open(rig, NULL);
        rig_close(rig);
        rig_assert_ok(rig);
        AUTO_FREE char *after = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
        char want[160];
        assert_true(
            str_format(want, sizeof(want),
                       "\"audit.repaired\",\"object\":\"audit.jsonl\",\"outcome\":\"ok\",\"detail\":\"%u bytes of an "
                       "unfinished line were cut off\"",
                       torn) > 0);
        assert_non_null(strstr(after, want));
    }
    /* a torn line is all there is */
    unlinkat(rig->dir_fd, AUDIT_HEADS, 0);
    rig_write(rig->dir_fd, AUDIT_CURRENT, "{\"seq\":1,", 9);
    rig_open(rig, NULL);
    rig_close(rig);
    rig_assert_ok(rig);
    assert_int_equal(rig_verify(rig, true).last_seq, 1);
    /* a head that was torn */
    AUTO_FREE char *heads = rig_read(rig->dir_fd, AUDIT_HEADS, &len);
    rig_write(rig->dir_fd, AUDIT_HEADS, heads, len - 20);
    rig_open(rig, NULL);
    rig_sync(rig, "x");
    rig_close(rig);
    rig_assert_ok(rig);
}

static void refuses_what_is_no_log(void **state)
{
    struct rig *rig = *state;
    struct brig_err err = {0};
    const struct audit_options options = {.dir_fd = rig->dir_fd, .signer = rig->signer};

    rig_write(rig->dir_fd, AUDIT_CURRENT, "what is this\n", 13);
    assert_int_equal(audit_open(rig->loop, rig->workers, &options, &rig->audit, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "audit.jsonl does not end with an audit line"));
    size_t len;
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    assert_string_equal(text, "what is this\n"); /* and nothing was touched */
    unlinkat(rig->dir_fd, AUDIT_CURRENT, 0);
    rig_open(rig, NULL);
    struct audit *other = NULL;
    assert_int_equal(audit_open(rig->loop, rig->workers, &options, &other, &err), -EBUSY);
    assert_string_equal(err.message, "another daemon writes this audit log: Device or resource busy");
}

struct reading {
    uint64_t first, last, n, stop_after;
};

static bool on_line(void *ctx, uint64_t seq, const char *org, const char *line, size_t len)
{
    struct reading *reading = ctx;

    assert_true(len > 100 && line[0] == '{' && line[len - 1] == '}');
    assert_string_equal(org, "org-1");
    if (reading->n == 0)
        reading->first = seq;
    else
        assert_int_equal(seq, reading->last + 1);
    reading->last = seq;
    return ++reading->n != reading->stop_after;
}

static void rotates(void **state)
{
    struct rig *rig = *state;
    struct audit_files list;

    rig_open(rig, &(struct audit_options){.rotate_bytes = 4096});
    for (unsigned i = 0; i < 10; i++) {
        rig_add(rig, 10);
        rig_close(rig);
        rig_open(rig, &(struct audit_options){.rotate_bytes = 4096});
    }
    rig_close(rig);
    rig_assert_ok(rig);
    struct audit_report report = rig_verify(rig, true);
    assert_int_equal(report.lines, 100);
    assert_int_equal(audit_files_list(rig->dir_fd, &list), 0);
    assert_int_equal(report.files, list.n + 1);
    assert_true(list.n > 5);
    for (size_t i = 0; i < list.n; i++)
        assert_true(list.files[i].bytes <= 4096 && list.files[i].bytes > 3000);
    for (uint64_t after = 0; after <= 101; after++) {
        struct reading reading = {0};
        assert_int_equal(audit_read(rig->dir_fd, after, on_line, &reading), 0);
        assert_int_equal(reading.n, after < 100 ? 100 - after : 0);
        assert_int_equal(reading.first, after < 100 ? after + 1 : 0);
    }
    struct reading some = {.stop_after = 7};
    assert_int_equal(audit_read(rig->dir_fd, 50, on_line, &some), 0);
    assert_int_equal(some.last, 57);
    /* the current file is gone, as after a crash between two system calls of a rotation */
    assert_int_equal(unlinkat(rig->dir_fd, AUDIT_CURRENT, 0), 0);
    assert_int_equal(unlinkat(rig->dir_fd, AUDIT_HEADS, 0), 0);
    rig_open(rig, NULL);
    rig_sync(rig, "x");
    rig_close(rig);
    rig_assert_ok(rig);
    audit_files_done(&list);
}

static void removes_old_files_and_says_so(void **state)
{
    struct rig *rig = *state;
    struct audit_files list;
    size_t len;

    for (unsigned i = 0; i < 30; i++) {
        rig_open(rig, &(struct audit_options){.rotate_bytes = 4096, .keep_bytes = 12000});
        rig_add(rig, 10);
        rig_sync(rig, "x");
        rig_sync(rig, "y"); /* the line that announces is in between */
        rig_close(rig);
        rig_assert_ok(rig);
    }
    assert_int_equal(audit_files_list(rig->dir_fd, &list), 0);
    assert_true(list.n >= 1 && list.n <= 4);
    uint64_t total = 0;
    for (size_t i = 0; i < list.n; i++)
        total += list.files[i].bytes;
    assert_true(total <= 16384);
    struct audit_report report = rig_verify(rig, true);
    assert_true(report.first_seq > 200);
    assert_int_equal(report.first_seq, list.files[0].first_seq);
    assert_non_null(strstr(report.note, "were removed by retention"));
    assert_true(rig_verify(rig, false).ok);
    /* heads of lines that are gone went with them */
    struct audit_reader reader;
    struct audit_head head;
    const char *line;
    assert_int_equal(audit_reader_open(&reader, rig->dir_fd, AUDIT_HEADS), 0);
    while (audit_reader_next(&reader, &line, &len) == 1) {
        assert_int_equal(audit_head_parse(line, len, &head), 0);
        assert_true(head.seq >= report.first_seq);
    }
    audit_reader_done(&reader);

    /* one more file removed by somebody else */
    assert_int_equal(unlinkat(rig->dir_fd, list.files[0].name, 0), 0);
    uint64_t first = list.n > 1 ? list.files[1].first_seq : rig_verify(rig, false).first_seq;
    char want[128];
    assert_true(str_format(want, sizeof(want),
                           "the log begins with line %llu, and no line says that those before it were removed",
                           (unsigned long long)first) > 0);
    rig_assert_problem(rig, want);
    audit_files_done(&list);
}

static void removes_by_age(void **state)
{
    struct rig *rig = *state;
    struct audit_files list;

    rig_open(rig, &(struct audit_options){.rotate_bytes = 4096});
    rig_add(rig, 60);
    rig_close(rig);
    assert_int_equal(audit_files_list(rig->dir_fd, &list), 0);
    assert_true(list.n >= 3);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            utimensat(rig->dir_fd, list.files[i].name, (struct timespec[2]){{.tv_sec = 1000}, {.tv_sec = 1000}}, 0), 0);
    uint64_t first = list.files[2].first_seq;
    audit_files_done(&list);
    rig_open(rig, &(struct audit_options){.rotate_bytes = 4096, .keep_seconds = 86400});
    rig_sync(rig, "x");
    rig_sync(rig, "y");
    rig_close(rig);
    rig_assert_ok(rig);
    assert_int_equal(rig_verify(rig, true).first_seq, first);
}

static void signs_heads(void **state)
{
    struct rig *rig = *state;
    size_t len;

    rig_open(rig, &(struct audit_options){.head_lines = 10, .head_seconds = 3600});
    rig_sync(rig, "first");
    rig_wait(rig, &rig->n_heads, 1); /* with the first line of a process */
    assert_int_equal(rig->head_seq, 1);
    rig_add(rig, 5);
    rig_sync(rig, "7");
    assert_int_equal(rig->n_heads, 1);
    rig_add(rig, 5);
    rig_sync(rig, "13");
    rig_wait(rig, &rig->n_heads, 2);
    assert_int_equal(rig->head_seq, 13);
    rig_close(rig); /* nothing new: no head */
    assert_int_equal(rig->n_heads, 2);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_HEADS, &len);
    struct audit_head head;
    char *newline = strchr(text, '\n'), signed_text[256];
    assert_int_equal(audit_head_parse(text, (size_t)(newline - text), &head), 0);
    assert_true(str_format(signed_text, sizeof(signed_text), "brig-audit-head-v1\n1\n%s\n%s\n", head.hash, head.time) >
                0);
    assert_int_equal(crypto_verify(rig->public_key, signed_text, strlen(signed_text), head.signature), 0);
    rig_open(rig, &(struct audit_options){.head_lines = 1000, .head_seconds = 1});
    rig_sync(rig, "14");
    rig_wait(rig, &rig->n_heads, 3);
    rig_add(rig, 1);
    rig_wait(rig, &rig->n_heads, 4); /* by time */
    assert_int_equal(rig->head_seq, 15);
}

static void lines_are_on_disk_soon(void **state)
{
    struct rig *rig = *state;
    struct stat st = {0};

    rig_open(rig, NULL);
    rig_sync(rig, "x");
    assert_int_equal(fstatat(rig->dir_fd, AUDIT_CURRENT, &st, 0), 0);
    off_t before = st.st_size;
    uint64_t start = clock_mono_ns();
    rig_add(rig, 1);
    while (st.st_size == before && clock_mono_ns() - start < 5 * NS_PER_SEC) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        assert_int_equal(fstatat(rig->dir_fd, AUDIT_CURRENT, &st, 0), 0);
    }
    assert_true(st.st_size > before); /* nobody asked for it */
}

static void floods_are_counted(void **state)
{
    struct rig *rig = *state;
    unsigned taken = 0;
    size_t len;

    rig_open(rig, &(struct audit_options){.per_second = 20});
    for (unsigned i = 0; i < 500; i++)
        taken +=
            audit_add(rig->audit, &(struct audit_event){.action = "x", .actor = "a", .outcome = "ok"}, NULL, NULL) > 0;
    assert_true(taken >= 20 && taken <= 60);
    assert_int_equal(audit_dropped(rig->audit), 500 - taken);
    for (unsigned i = 0; i < 50; i++) /* those that are waited for are never dropped */
        assert_true(audit_add(rig->audit, &(struct audit_event){.action = "denied", .sync = true}, rig_on_done, rig) >
                    0);
    for (unsigned i = 0; i < 200; i++) /* nor are those whose source waits */
        assert_true(audit_add(rig->audit, &(struct audit_event){.action = "network.allow", .paced = true}, NULL, NULL) >
                    0);
    assert_false(audit_busy(rig->audit));
    rig_wait(rig, &rig->n_done, 50);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 200000000}, NULL); /* clock: told once a second */
    rig_sync(rig, "x");
    rig_close(rig);
    rig_assert_ok(rig);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    unsigned long told = 0;
    for (char *at = text; (at = strstr(at, "\"audit.dropped\"")); at++)
        told += strtoul(strstr(at, "\"detail\":\"") + 10, NULL, 10);
    assert_int_equal(told, 500 - taken);
}

/* How many lines have this text, and the sum of the numbers that their details begin with. */
static unsigned count_lines(const char *text, const char *action, unsigned long *ret_sum)
{
    unsigned n = 0;

    *ret_sum = 0;
    for (const char *at = text; (at = strstr(at, action)); at++, n++)
        *ret_sum += strtoul(strstr(at, "\"detail\":\"") + 10, NULL, 10);
    return n;
}

/* Whoever is refused again and again does not fill the log with it. */
static void equal_refusals_are_counted(void **state)
{
    struct rig *rig = *state;
    char detail[32];
    size_t len;
    unsigned long sum;

    rig_open(rig, NULL);
    for (unsigned i = 0; i < 1000; i++) {
        audit_add(rig->audit,
                  &(struct audit_event){
                      .action = "denied", .actor = "k", .outcome = "denied", .detail = "same", .sync = true},
                  NULL, NULL);
        audit_add(rig->audit,
                  &(struct audit_event){
                      .action = "denied", .actor = "l", .outcome = "denied", .detail = "same", .sync = true},
                  NULL, NULL);
        assert_true(str_format(detail, sizeof(detail), "port %u", i) > 0); /* they need not be quite the same */
        audit_add(rig->audit,
                  &(struct audit_event){
                      .action = "network.deny", .object = "box", .outcome = "denied", .detail = detail, .paced = true},
                  NULL, NULL);
        assert_true(audit_add(rig->audit,
                              &(struct audit_event){.action = "process.start", .outcome = "ok", .detail = "same"}, NULL,
                              NULL) > 0);
    }
    rig_close(rig); /* tells what was counted so far */
    rig_assert_ok(rig);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    assert_int_equal(count_lines(text, "\"denied\",\"object\"", &sum), 4); /* two keys: the first, and how many more */
    assert_int_equal(sum, 2 * 999);
    assert_int_equal(count_lines(text, "\"network.deny\"", &sum), REPEAT_DETAILS + 1);
    assert_int_equal(sum, 1000 - REPEAT_DETAILS);
    assert_non_null(strstr(text, "\"999 more like this within 60 s, counted and not written one by one\""));
    assert_int_equal(count_lines(text, "\"process.start\"", &sum), 1000);
}

/* A flood against one rule does not hide what another refused, and made-up objects are no way around the count. */
static void a_flood_hides_no_other_kind(void **state)
{
    struct rig *rig = *state;
    char object[64];
    size_t len;
    unsigned long sum;

    rig_open(rig, NULL);
    for (unsigned i = 0; i < 500; i++) {
        assert_true(str_format(object, sizeof(object), "/v1/x/%u", i) > 0);
        const struct audit_event flood = {.action = "flood",
                                          .actor = "k",
                                          .outcome = "denied",
                                          .object = object,
                                          .detail = "this key is read-only",
                                          .kind = "POST /v1/x/{id}, this",
                                          .any_object = true};
        assert_true((audit_add(rig->audit, &flood, NULL, NULL) > 0) == (i < REPEAT_DETAILS));
    }
    const struct audit_event other = {.action = "flood",
                                      .actor = "k",
                                      .outcome = "denied",
                                      .object = "/v1/x/7",
                                      .detail = "binds: no",
                                      .kind = "POST /v1/x/{id}, binds:",
                                      .any_object = true};
    assert_true(audit_add(rig->audit, &other, NULL, NULL) > 0);
    rig_close(rig);
    rig_assert_ok(rig);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    assert_int_equal(count_lines(text, "\"flood\"", &sum), REPEAT_DETAILS + 2);
    assert_int_equal(sum, 500 - REPEAT_DETAILS);
    assert_non_null(strstr(text, "\"object\":\"\",\"outcome\":\"denied\",\"detail\":\"480 more like this "
                                 "(POST /v1/x/{id}, this) within 60 s, counted and not written one by one\""));
    assert_non_null(strstr(text, "\"detail\":\"binds: no\""));
}

/* Two details with one hash under FNV-1a, which was taken before and has no secret: both are written. */
static void a_collision_hides_nothing(void **state)
{
    static const char *const colliding[] = {"8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"};
    struct rig *rig = *state;
    size_t len;

    rig_open(rig, NULL);
    for (unsigned i = 0; i < 2; i++)
        assert_true(audit_add(rig->audit,
                              &(struct audit_event){.action = "denied", .outcome = "denied", .detail = colliding[i]},
                              NULL, NULL) > 0);
    rig_close(rig);
    rig_assert_ok(rig);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    assert_non_null(strstr(text, colliding[0]));
    assert_non_null(strstr(text, colliding[1]));
}

struct denials {
    unsigned lines;
    unsigned long sum;
};

static bool take_denial(void *ctx, uint64_t seq UNUSED, const char *org UNUSED, const char *line, size_t len)
{
    struct denials *denials = ctx;
    AUTO_FREE char *text = mem_alloc(len + 1);

    memcpy(text, line, len);
    text[len] = '\0';
    denials->lines++;
    denials->sum += strtoul(strstr(text, "\"detail\":\"") + 10, NULL, 10);
    return true;
}

/* One line per interval while it goes on; after a quiet one it is an event again. */
static void a_count_per_interval(void **state)
{
    struct rig *rig = *state;
    const struct audit_event event = {.action = "denied", .actor = "k", .outcome = "denied", .detail = "same"};
    uint64_t end = clock_mono_ns() + 20 * NS_PER_SEC;
    struct denials denials = {0};
    unsigned long sent = 0;

    rig_open(rig, &(struct audit_options){.repeat_seconds = 1});
    while (denials.lines < 3 && clock_mono_ns() < end) {
        audit_add(rig->audit, &event, NULL, NULL);
        sent++;
        audit_settle(rig->audit);
        denials = (struct denials){0};
        assert_int_equal(audit_read(rig->dir_fd, 0, take_denial, &denials), 0);
    }
    assert_int_equal(denials.lines, 3); /* the first, and two counts */
    assert_true(denials.sum > 0 && denials.sum < sent);
    rig_close(rig);
    rig_assert_ok(rig);
}

static void a_full_disk_loses_nothing(void **state)
{
    struct rig *rig = *state;
    struct rlimit was, tight;
    struct stat st;
    size_t len;

    signal(SIGXFSZ, SIG_IGN);
    rig_open(rig, NULL);
    rig_sync(rig, "before");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(fstatat(rig->dir_fd, AUDIT_CURRENT, &st, 0), 0);
    tight = (struct rlimit){.rlim_cur = (rlim_t)st.st_size + 100, .rlim_max = was.rlim_max}; /* part of a line fits */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    rig_add(rig, 2);
    rig_sync(rig, "while");
    assert_int_equal(rig->error, -EFBIG);
    rig_sync(rig, "still");
    assert_int_equal(rig->error, -EFBIG);
    assert_int_equal(fstatat(rig->dir_fd, AUDIT_CURRENT, &st, 0), 0);
    assert_int_equal(st.st_size, tight.rlim_cur - 100); /* no part of a line is left */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    rig_sync(rig, "after");
    assert_int_equal(rig->error, 0);
    rig_close(rig);
    rig_assert_ok(rig);
    assert_int_equal(rig_verify(rig, true).lines, 6);
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    assert_non_null(strstr(text, "\"object\":\"while\""));
    assert_non_null(strstr(text, "\"object\":\"still\""));
}

static void the_queue_is_bounded(void **state)
{
    struct rig *rig = *state;
    struct rlimit was, none = {0};
    unsigned taken = 0;

    signal(SIGXFSZ, SIG_IGN);
    rig_open(rig, &(struct audit_options){.per_second = 1000000});
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    none.rlim_max = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (unsigned i = 0; i < AUDIT_QUEUE_MAX + 5000; i++)
        taken += audit_add(rig->audit, &(struct audit_event){.action = "x"}, NULL, NULL) > 0;
    assert_true(taken <= AUDIT_QUEUE_MAX && taken > AUDIT_QUEUE_MAX - 10);
    assert_true(audit_busy(rig->audit));
    assert_int_equal(audit_add(rig->audit, &(struct audit_event){.action = "x", .sync = true}, rig_on_done, rig), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    uint64_t end = clock_mono_ns() + 20 * NS_PER_SEC;
    while (audit_add(rig->audit, &(struct audit_event){.action = "x"}, NULL, NULL) == 0 && clock_mono_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    rig_sync(rig, "works again");
    assert_int_equal(rig->error, 0);
    rig_close(rig);
    rig_assert_ok(rig);
}

static void a_file_that_was_moved_away(void **state)
{
    struct rig *rig = *state;
    struct brig_err err;

    rig_open(rig, NULL);
    rig_sync(rig, "1");
    assert_int_equal(audit_reopen(rig->audit, &err), 0); /* nothing happened */
    rig_sync(rig, "2");
    assert_int_equal(renameat(rig->dir_fd, AUDIT_CURRENT, rig->dir_fd, "audit-000000000001.jsonl"), 0);
    assert_int_equal(audit_reopen(rig->audit, &err), 0);
    rig_sync(rig, "3");
    rig_close(rig);
    rig_assert_ok(rig);
    assert_int_equal(rig_verify(rig, true).files, 2);
    rig_open(rig, NULL);
    assert_int_equal(renameat(rig->dir_fd, AUDIT_CURRENT, rig->dir_fd, "x"), 0);
    rig_write(rig->dir_fd, AUDIT_CURRENT, "somebody else's\n", 16);
    assert_int_equal(audit_reopen(rig->audit, &err), -EEXIST);
}

static void survives_every_allocation_failure(void **state)
{
    struct rig *rig = *state;
    size_t n = 0;

    rig_open(rig, NULL);
    rig_sync(rig, "x");
    rig_close(rig);
    size_t fds = unit_count_fds();
    for (;; n++) {
        struct brig_err err = {0};
        const struct audit_options options = {.dir_fd = rig->dir_fd, .signer = rig->signer};
        mem_fail_after(n);
        int r = audit_open(rig->loop, rig->workers, &options, &rig->audit, &err);
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0)
            break;
        assert_int_equal(r, -ENOMEM);
        rig->audit = NULL;
        assert_int_equal(unit_count_fds(), fds);
    }
    assert_true(n >= 5);
    mem_fail_after(0);
    assert_int_equal(audit_add(rig->audit, &(struct audit_event){.action = "x", .sync = true}, rig_on_done, rig), 0);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(audit_dropped(rig->audit), 1);
    rig_sync(rig, "y");
    rig_close(rig);
    rig_assert_ok(rig);
}

static void suspects(void **state)
{
    struct suspicion *s = NULL;
    const uint64_t second = NS_PER_SEC;
    char key[64];
    (void)state;

    assert_int_equal(suspicion_create(&s, NULL), 0);
    for (unsigned i = 0; i < 9; i++)
        assert_false(suspicion_note(s, "key-1", 100 * second + i, 10, 60));
    assert_false(suspicion_note(s, "key-2", 101 * second, 10, 60)); /* another one */
    assert_true(suspicion_note(s, "key-1", 101 * second, 10, 60));
    for (unsigned i = 0; i < 50; i++)
        assert_false(suspicion_note(s, "key-1", 102 * second + i, 10, 60)); /* one event */
    assert_true(suspicion_note(s, "key-1", 161 * second, 10, 60));          /* it goes on after a minute */
    assert_int_equal(suspicion_count(s), 2);
    for (unsigned i = 0; i < 100; i++) /* slowly */
        assert_false(suspicion_note(s, "key-3", (200 + 7 * i) * second, 10, 60));
    assert_false(suspicion_note(s, "", 1, 2, 60));
    assert_true(suspicion_note(s, "", 2, 2, 60));
    for (unsigned i = 0; i < 100000; i++) { /* bounded: many keys are no growth */
        assert_true(str_format(key, sizeof(key), "key-%u", i) > 0);
        assert_false(suspicion_note(s, key, 1000 * second + i, 10, 60));
    }
    suspicion_destroy(s);
    suspicion_destroy(NULL);
    mem_fail_after(0);
    assert_int_equal(suspicion_create(&s, NULL), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(writes_a_chain),
        TEST(nothing_can_be_injected),
        TEST(goes_on_after_a_restart),
        TEST(cuts_off_a_torn_line),
        TEST(refuses_what_is_no_log),
        TEST(rotates),
        TEST(removes_old_files_and_says_so),
        TEST(removes_by_age),
        TEST(signs_heads),
        TEST(lines_are_on_disk_soon),
        TEST(floods_are_counted),
        TEST(equal_refusals_are_counted),
        TEST(a_flood_hides_no_other_kind),
        TEST(a_collision_hides_nothing),
        TEST(a_count_per_interval),
        TEST(a_full_disk_loses_nothing),
        TEST(the_queue_is_bounded),
        TEST(a_file_that_was_moved_away),
        TEST(survives_every_allocation_failure),
        cmocka_unit_test(suspects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
