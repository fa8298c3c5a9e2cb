/* SPDX-License-Identifier: Apache-2.0 */
/* Verification: a log is changed in every way that somebody with the files, but not the key, could; each is found, by
 * its exact words. */
#include "audit_rig.h"

#define LINES 12u

/* Twelve lines in three files, signed at 1, 5, 9 and 12. */
static void make_log(struct rig *rig)
{
    rig_open(rig, &(struct audit_options){.head_lines = 4, .head_seconds = 3600, .rotate_bytes = 1200});
    for (unsigned i = 1; i <= LINES; i++)
        assert_int_equal(rig_sync(rig, "x"), i);
    rig_close(rig);
    rig_assert_ok(rig);
    struct audit_report report = rig_verify(rig, true);
    assert_int_equal(report.lines, LINES);
    assert_int_equal(report.files, 3);
    assert_true(report.heads >= 4);
}

struct lines {
    char *text, *line[LINES + 1];
    size_t len, line_len[LINES + 1], n;
};

static struct lines split(struct rig *rig, const char *name)
{
    struct lines all = {0};

    all.text = rig_read(rig->dir_fd, name, &all.len);
    assert_non_null(all.text);
    for (char *at = all.text; at < all.text + all.len; all.n++) {
        char *end = memchr(at, '\n', (size_t)(all.text + all.len - at));
        assert_non_null(end);
        all.line[all.n] = at;
        all.line_len[all.n] = (size_t)(end - at) + 1;
        at = end + 1;
    }
    return all;
}

/* The lines with these numbers (from 0), in this order. */
static void put(struct rig *rig, const char *name, const struct lines *all, const unsigned *order, size_t n)
{
    AUTO_FD int fd = openat(rig->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fd_write_all(fd, all->line[order[i]], all->line_len[order[i]]), 0);
}

static void every_byte_counts(void **state)
{
    static const char *const names[] = {"audit-000000000001.jsonl", AUDIT_CURRENT, AUDIT_HEADS};
    struct rig *rig = *state;

    make_log(rig);
    for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
        size_t len;
        AUTO_FREE char *text = rig_read(rig->dir_fd, names[k], &len);
        assert_true(len > 300);
        AUTO_FD int fd = openat(rig->dir_fd, names[k], O_WRONLY | O_CLOEXEC);
        for (size_t i = 0; i < len; i++) {
            static const char flips[] = {1, 2, 32, (char)128};
            char changed = (char)(text[i] ^ flips[i % 4]);
            assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
            struct audit_report report = rig_verify(rig, true);
            /* The newline of the last head: what is behind the one before it is a head that was torn. Its line is then
             * unsigned. */
            if (report.ok && !(k == 2 && i == len - 1))
                fail_msg("%s: byte %zu can be changed from %02x to %02x", names[k], i, (unsigned char)text[i],
                         (unsigned char)changed);
            assert_int_equal(pwrite(fd, &text[i], 1, (off_t)i), 1);
        }
        rig_assert_ok(rig);
    }
}

static void removed_lines(void **state)
{
    struct rig *rig = *state;
    struct audit_files list;

    make_log(rig);
    struct lines first = split(rig, "audit-000000000001.jsonl");
    assert_true(first.n >= 3);
    put(rig, "audit-000000000001.jsonl", &first, (unsigned[]){0, 2}, 2);
    rig_assert_problem(rig, "audit-000000000001.jsonl:2: line 3 follows line 1: line 2 is missing or out of order");
    put(rig, "audit-000000000001.jsonl", &first, (unsigned[]){1, 2}, 2);
    rig_assert_problem(rig, "audit-000000000001.jsonl:1: the file is named after line 1, but begins with line 2");
    put(rig, "audit-000000000001.jsonl", &first, (unsigned[]){0, 2, 1}, 3);
    rig_assert_problem(rig, "audit-000000000001.jsonl:2: line 3 follows line 1: line 2 is missing or out of order");
    put(rig, "audit-000000000001.jsonl", &first, (unsigned[]){0, 1, 1, 2}, 4);
    rig_assert_problem(rig, "audit-000000000001.jsonl:3: line 2 is there twice");
    put(rig, "audit-000000000001.jsonl", &first, (unsigned[]){0, 1, 2, 0}, 4);
    rig_assert_problem(rig, "audit-000000000001.jsonl:4: line 1 follows line 3: out of order");
    put(rig, "audit-000000000001.jsonl", &first, NULL, 0);
    rig_assert_problem(rig, "audit-000000000001.jsonl: is empty");
    rig_write(rig->dir_fd, "audit-000000000001.jsonl", first.text, first.len - 1);
    rig_assert_problem(rig, "audit-000000000001.jsonl: its last line is unfinished");
    rig_write(rig->dir_fd, "audit-000000000001.jsonl", first.text, first.len);
    rig_assert_ok(rig);
    free(first.text);

    /* whole files */
    assert_int_equal(audit_files_list(rig->dir_fd, &list), 0);
    assert_int_equal(list.n, 2);
    size_t len;
    AUTO_FREE char *middle = rig_read(rig->dir_fd, list.files[1].name, &len);
    assert_int_equal(unlinkat(rig->dir_fd, list.files[1].name, 0), 0);
    struct audit_report report = rig_verify(rig, true);
    assert_false(report.ok);
    assert_non_null(strstr(report.problem, "audit.jsonl:1: line "));
    assert_non_null(strstr(report.problem, "are missing or out of order"));
    rig_write(rig->dir_fd, list.files[1].name, middle, len);
    rig_assert_ok(rig);
    assert_int_equal(unlinkat(rig->dir_fd, list.files[0].name, 0), 0);
    char want[128];
    assert_true(str_format(want, sizeof(want),
                           "the log begins with line %llu, and no line says that those before it were removed",
                           (unsigned long long)list.files[1].first_seq) > 0);
    rig_assert_problem(rig, want);
    audit_files_done(&list);
}

static void changed_lines(void **state)
{
    struct rig *rig = *state;

    make_log(rig);
    struct lines first = split(rig, "audit-000000000001.jsonl");
    char *at = memmem(first.line[1], first.line_len[1], "\"ok\"", 4);
    assert_non_null(at);
    memcpy(at, "\"no\"", 4);
    rig_write(rig->dir_fd, "audit-000000000001.jsonl", first.text, first.len);
    rig_assert_problem(rig,
                       "audit-000000000001.jsonl:3: line 3 notes another hash of line 2: one of the two was changed");
    memcpy(at, "\"ok\"", 4);
    first.line[1][0] = '[';
    rig_write(rig->dir_fd, "audit-000000000001.jsonl", first.text, first.len);
    rig_assert_problem(rig, "audit-000000000001.jsonl:2: is no audit line");
    free(first.text);
}

/* Somebody who can write hashes, but not signatures: everything is chained again. */
static void a_log_written_anew(void **state)
{
    struct rig *rig = *state;
    char hash[SHA256_HEX] = AUDIT_ZEROES;

    rig_open(rig, &(struct audit_options){.head_lines = 4, .head_seconds = 3600});
    for (unsigned i = 1; i <= LINES; i++)
        rig_sync(rig, "x");
    rig_close(rig);
    struct lines all = split(rig, AUDIT_CURRENT);
    assert_int_equal(all.n, LINES);
    memcpy(memmem(all.line[6], all.line_len[6], "\"ok\"", 4), "\"no\"", 4);
    for (unsigned i = 0; i < LINES; i++) {
        memcpy(all.line[i] + AUDIT_PREV_AT(all.line_len[i] - 1), hash, 64);
        assert_int_equal(audit_line_hash(all.line[i], all.line_len[i] - 1, hash), 0);
    }
    rig_write(rig->dir_fd, AUDIT_CURRENT, all.text, all.len);
    rig_assert_problem(rig, "heads.jsonl:3: line 9 is not the one that was signed");
    /* and the heads as well, with another key */
    struct crypto_signer *other = NULL;
    struct audit_head head = {.seq = LINES, .time = "2024-01-01T00:00:00.000000000Z"};
    AUTO_BUF struct buf line = BUF_INIT(1024);
    assert_int_equal(crypto_signer_open(rig->keys_fd, "other.pem", &other, NULL), 0);
    memcpy(head.hash, hash, SHA256_HEX);
    assert_int_equal(audit_head_sign(&head, other), 0);
    assert_int_equal(audit_head_write(&line, &head), 0);
    assert_int_equal(buf_append(&line, "\n", 1), 0);
    rig_write(rig->dir_fd, AUDIT_HEADS, line.data, line.len);
    char mine[17], want[128];
    audit_key_id(rig->public_key, mine);
    assert_true(
        str_format(want, sizeof(want), "heads.jsonl:1: was signed by another key (%s, not %s)", head.key, mine) > 0);
    rig_assert_problem(rig, want);
    memcpy(head.key, mine, sizeof(mine)); /* pretending to be the right one */
    line.len = 0;
    assert_int_equal(audit_head_write(&line, &head), 0);
    assert_int_equal(buf_append(&line, "\n", 1), 0);
    rig_write(rig->dir_fd, AUDIT_HEADS, line.data, line.len);
    rig_assert_problem(rig, "heads.jsonl:1: the signature is wrong");
    struct audit_report report = rig_verify(rig, false);
    assert_true(report.ok);
    assert_string_equal(report.note, "signatures were not checked: no public key was given");
    crypto_signer_destroy(other);
    free(all.text);
}

static void a_cut_tail(void **state)
{
    struct rig *rig = *state;
    char want[160];

    rig_open(rig, &(struct audit_options){.head_lines = 1000, .head_seconds = 3600});
    for (unsigned i = 1; i <= LINES; i++)
        rig_sync(rig, "x");
    rig_close(rig);
    struct lines all = split(rig, AUDIT_CURRENT);
    for (unsigned keep = LINES - 1; keep > 0; keep--) {
        rig_write(rig->dir_fd, AUDIT_CURRENT, all.text, (size_t)(all.line[keep] - all.text));
        assert_true(str_format(want, sizeof(want),
                               "the log ends with line %u, but a head names line 12: its end was cut off", keep) > 0);
        rig_assert_problem(rig, want);
    }
    /* in the middle of a line */
    rig_write(rig->dir_fd, AUDIT_CURRENT, all.text, (size_t)(all.line[11] - all.text) + 20);
    rig_assert_problem(rig, "the log ends with line 11, but a head names line 12: its end was cut off");
    rig_write(rig->dir_fd, AUDIT_CURRENT, "", 0);
    rig_assert_problem(rig, "the log is empty, but a head names line 1: all of it was removed");
    assert_int_equal(unlinkat(rig->dir_fd, AUDIT_CURRENT, 0), 0);
    rig_assert_problem(rig, "the log is empty, but a head names line 1: all of it was removed");

    /* a daemon that goes on behind the cut says so, and it does not heal */
    rig_write(rig->dir_fd, AUDIT_CURRENT, all.text, (size_t)(all.line[8] - all.text));
    rig_open(rig, NULL);
    rig_sync(rig, "y");
    rig_close(rig);
    struct lines after = split(rig, AUDIT_CURRENT);
    assert_non_null(memmem(after.line[8], after.line_len[8], "the log ends with line 8, but line 12 was there", 47));
    free(after.text);
    rig_assert_problem(rig, "the log ends with line 10, but a head names line 12: its end was cut off");
    rig_open(rig, NULL);
    rig_sync(rig, "y");
    rig_sync(rig, "y");
    rig_close(rig);
    rig_assert_problem(rig, "heads.jsonl:2: line 12 is not the one that was signed");
    free(all.text);
}

static void heads_that_are_gone(void **state)
{
    struct rig *rig = *state;
    size_t len;

    make_log(rig);
    struct lines heads = split(rig, AUDIT_HEADS);
    put(rig, AUDIT_HEADS, &heads, (unsigned[]){1, 0}, 2);
    rig_assert_problem(rig, "heads.jsonl:2: names line 1 after line 5: the log was set back");
    put(rig, AUDIT_HEADS, &heads, (unsigned[]){0}, 1);
    struct audit_report report = rig_verify(rig, true);
    assert_true(report.ok);
    assert_string_equal(report.note, "lines after 1 are not signed yet");
    put(rig, AUDIT_HEADS, &heads, NULL, 0);
    rig_assert_problem(rig, "no head names a line of this log: nothing in it is signed");
    free(heads.text);
    rig_write(rig->dir_fd, AUDIT_HEADS, "{}\n", 3);
    rig_assert_problem(rig, "heads.jsonl:1: is no head");
    assert_int_equal(unlinkat(rig->dir_fd, AUDIT_HEADS, 0), 0);
    rig_assert_problem(rig, "heads.jsonl is missing: nothing in this log is signed");
    report = rig_verify(rig, false);
    assert_true(report.ok);
    assert_string_equal(report.note, "there is no heads.jsonl; signatures were not checked: no public key was given");
    AUTO_FREE char *text = rig_read(rig->dir_fd, AUDIT_CURRENT, &len);
    assert_non_null(text);
}

static void assert_noted(struct rig *rig, uint64_t seq, const char *hash, const char *problem)
{
    struct audit_report report;
    const struct audit_verify_options options = {.public_key = rig->public_key, .head_seq = seq, .head_hash = hash};

    assert_int_equal(audit_verify(rig->dir_fd, &options, &report, NULL), 0);
    assert_string_equal(report.problem, problem);
    assert_int_equal(report.ok, problem[0] == '\0');
}

/* A cut that took its heads along is seen only against what was noted elsewhere. */
static void a_head_noted_elsewhere(void **state)
{
    struct rig *rig = *state;
    char hashes[LINES][SHA256_HEX];

    rig_open(rig, &(struct audit_options){.head_lines = 1, .head_seconds = 3600});
    for (unsigned i = 1; i <= LINES; i++)
        rig_sync(rig, "x");
    rig_close(rig);
    struct lines all = split(rig, AUDIT_CURRENT), heads = split(rig, AUDIT_HEADS);
    for (unsigned i = 0; i < LINES; i++) {
        assert_int_equal(audit_line_hash(all.line[i], all.line_len[i] - 1, hashes[i]), 0);
        assert_noted(rig, i + 1, hashes[i], "");
    }
    assert_noted(rig, 3, hashes[3], "line 3 is not the one of the head that was noted");
    assert_noted(rig, 13, hashes[3],
                 "the log ends with line 12, but line 13 was noted as its head: its end was cut off");
    rig_write(rig->dir_fd, AUDIT_CURRENT, all.text, (size_t)(all.line[8] - all.text));
    rig_write(rig->dir_fd, AUDIT_HEADS, heads.text, (size_t)(heads.line[8] - heads.text));
    rig_assert_ok(rig); /* nothing inside says otherwise */
    assert_noted(rig, 12, hashes[11],
                 "the log ends with line 8, but line 12 was noted as its head: its end was cut off");
    /* the store knows it: the daemon is told at its start */
    rig_open(rig, &(struct audit_options){.known_seq = 12});
    rig_close(rig);
    struct lines after = split(rig, AUDIT_CURRENT);
    assert_int_equal(after.n, 9);
    assert_non_null(memmem(after.line[8], after.line_len[8], "\"audit.cut\"", 11));
    struct audit_report report = rig_verify(rig, true);
    assert_false(report.ok);
    assert_string_equal(report.problem,
                        "line 9 tells that the log was cut before it (brig audit show --action audit.cut)");
    free(after.text);
    free(all.text);
    free(heads.text);
}

/* A beginning that is missing needs a line that explains it, under a signature. */
static void a_beginning_that_was_removed(void **state)
{
    struct rig *rig = *state;
    struct audit_report report;

    for (unsigned i = 0; i < 12; i++) {
        rig_open(rig, &(struct audit_options){.rotate_bytes = 2048, .keep_bytes = 5000});
        rig_add(rig, 5);
        rig_sync(rig, "x");
        rig_sync(rig, "y");
        rig_close(rig);
    }
    report = rig_verify(rig, true);
    assert_true(report.ok && report.first_seq > 20);
    uint64_t first = report.first_seq;
    /* the line before the first is known by its hash, so a head noted there can still be compared */
    struct audit_reader reader;
    struct audit_files list;
    struct audit_line line;
    const char *text;
    size_t len;
    assert_int_equal(audit_files_list(rig->dir_fd, &list), 0);
    assert_int_equal(audit_reader_open(&reader, rig->dir_fd, list.files[0].name), 0);
    assert_int_equal(audit_reader_next(&reader, &text, &len), 1);
    assert_int_equal(audit_line_parse(text, len, &line), 0);
    audit_reader_done(&reader);
    audit_files_done(&list);
    assert_noted(rig, first - 1, line.prev, "");
    char want[160];
    assert_true(str_format(want, sizeof(want), "line %llu is not the one of the head that was noted",
                           (unsigned long long)first - 1) > 0);
    assert_noted(rig, first - 1, AUDIT_ZEROES, want);
    assert_true(str_format(want, sizeof(want),
                           "line %llu was removed by retention and cannot be compared with the head that was noted",
                           (unsigned long long)first - 2) > 0);
    assert_noted(rig, first - 2, AUDIT_ZEROES, want);

    /* heads up to the one before the line that explains: then it could be anybody's */
    struct lines heads = split(rig, AUDIT_HEADS);
    for (size_t keep = heads.n; keep-- > 1;) {
        rig_write(rig->dir_fd, AUDIT_HEADS, heads.text, (size_t)(heads.line[keep] - heads.text));
        report = rig_verify(rig, true);
        if (!report.ok)
            break;
    }
    assert_false(report.ok);
    assert_non_null(strstr(report.problem, "were removed, but no signed head covers it"));
    free(heads.text);
}

static void works_beside_a_writer(void **state)
{
    struct rig *rig = *state;
    uint64_t end = clock_mono_ns() + 2 * NS_PER_SEC;
    unsigned rounds = 0;

    rig_open(rig, &(struct audit_options){
                      .rotate_bytes = 8192, .keep_bytes = 60000, .head_lines = 3, .per_second = 1000000});
    rig_sync(rig, "x");
    while (clock_mono_ns() < end) {
        rig_add(rig, 20);
        assert_true(audit_add(rig->audit, &(struct audit_event){.action = "x", .sync = true}, NULL, NULL) > 0);
        struct audit_report report;
        struct brig_err err = {0};
        const struct audit_verify_options options = {.public_key = rig->public_key};
        int r = audit_verify(rig->dir_fd, &options, &report, &err);
        if (r == -EAGAIN)
            continue; /* retention was faster, again and again */
        if (r < 0)
            fail_msg("%s", err.message);
        if (!report.ok)
            fail_msg("%s", report.problem);
        rounds++;
    }
    assert_true(rounds > 10);
}

static void nothing_there(void **state)
{
    struct rig *rig = *state;
    struct audit_report report;
    struct brig_err err;
    const struct audit_verify_options options = {0};

    assert_int_equal(audit_verify(rig->dir_fd, &options, &report, &err), -ENOENT);
    assert_string_equal(err.message, "there is no audit log: No such file or directory");
    rig_open(rig, NULL);
    rig_close(rig);
    report = rig_verify(rig, true); /* a log without lines is whole */
    assert_true(report.ok);
    assert_int_equal(report.lines, 0);
    for (size_t n = 0;; n++) {
        mem_fail_after(n);
        int r = audit_verify(rig->dir_fd, &options, &report, &err);
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0)
            break;
        assert_int_equal(r, -ENOMEM);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_byte_counts),
        TEST(removed_lines),
        TEST(changed_lines),
        TEST(a_log_written_anew),
        TEST(a_cut_tail),
        TEST(heads_that_are_gone),
        TEST(a_head_noted_elsewhere),
        TEST(a_beginning_that_was_removed),
        TEST(works_beside_a_writer),
        TEST(nothing_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
