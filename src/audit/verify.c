/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: is this log what was written? Offline, with nothing but the files and, for the signatures, a public key.
 *
 * Theory of operation. Lines are read in order through all files, each checked against the one before (sequence, hash).
 * Heads are read along with them: a head names a line and its hash, so it must come by. A head for a line past the end
 * means that the end was cut off. The beginning may be missing only if a later line says that it was removed on
 * purpose, and a signed head covers that line. The first thing that is wrong is told and ends the reading: after it,
 * nothing else is certain.
 *
 * A daemon may be writing meanwhile. A head is written after its line, so a head without a line is looked at
 * again after reading on; the current file may be rotated, and then reading goes on in the next one; and a problem
 * counts only if no file came or went while it was found, or else all begins again.
 *
 * What it cannot see by itself: an end that was cut off together with its heads. For that a head must have been noted
 * elsewhere (the store, --head). A daemon that starts compares the two and writes a line about it (audit.cut): such a
 * line is a problem for good, unless whoever asks knows of it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "audit/audit_priv.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"

#define TRIES 5u
enum { GO_ON = 0, STOP = 1 }; /* beside a negative errno */

struct fingerprint {
    uint64_t n, first, last;
    ino_t current;
};

struct verify {
    int dir_fd;
    const struct audit_verify_options *options;
    struct audit_report *report;
    char key_id[17];
    struct audit_reader heads;
    bool has_heads, have_head, last_try;
    struct audit_head head; /* the next one that no line was found for yet */
    uint64_t signed_seq;    /* the last line that a head names */
    bool begins_late, pruned, noted_found;
    uint64_t pruned_seq; /* of the line that explains the beginning */
    uint64_t cut_seq;    /* of the first line that tells of a cut; 0: none */
};

static int problem(struct verify *v, const char *format, ...) PRINTF_LIKE(2, 3);
static int problem(struct verify *v, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(v->report->problem, sizeof(v->report->problem), format, args);
    va_end(args);
    v->report->ok = false;
    return STOP;
}

static void note(struct verify *v, const char *format, ...) PRINTF_LIKE(2, 3);
static void note(struct verify *v, const char *format, ...)
{
    size_t len = strlen(v->report->note);
    va_list args;

    va_start(args, format);
    if (len + 2 < sizeof(v->report->note)) {
        if (len > 0)
            len += (size_t)snprintf(v->report->note + len, sizeof(v->report->note) - len, "; ");
        vsnprintf(v->report->note + len, sizeof(v->report->note) - len, format, args);
    }
    va_end(args);
}

/* ---- heads ----------------------------------------------------------------------------------------------------- */

/* The next head into v->head; have_head is false at the end. */
static int next_head(struct verify *v)
{
    uint64_t before = v->have_head ? v->head.seq : 0;
    const char *line;
    size_t len;

    v->have_head = false;
    if (!v->has_heads)
        return GO_ON;
    int r = audit_reader_next(&v->heads, &line, &len);
    if (r == 0)
        return GO_ON;
    if (r < 0 && r != -EMSGSIZE)
        return r;
    r = r < 0 ? -EBADMSG : audit_head_parse(line, len, &v->head);
    if (r == -EBADMSG)
        return problem(v, AUDIT_HEADS ":%" PRIu64 ": is no head", v->heads.number);
    if (r < 0)
        return r;
    if (v->options->public_key && !str_eq(v->head.key, v->key_id))
        return problem(v, AUDIT_HEADS ":%" PRIu64 ": was signed by another key (%s, not %s)", v->heads.number,
                       v->head.key, v->key_id);
    r = v->options->public_key ? audit_head_check(&v->head, v->options->public_key) : 0;
    if (r == -EBADMSG)
        return problem(v, AUDIT_HEADS ":%" PRIu64 ": the signature is wrong", v->heads.number);
    if (r < 0)
        return r;
    if (v->head.seq < before)
        return problem(v,
                       AUDIT_HEADS ":%" PRIu64 ": names line %" PRIu64 " after line %" PRIu64 ": the log was set back",
                       v->heads.number, v->head.seq, before);
    v->have_head = true;
    v->report->heads++;
    return GO_ON;
}

/* Heads up to this line. */
static int match_heads(struct verify *v, uint64_t seq, const char hash[SHA256_HEX])
{
    while (v->have_head && v->head.seq <= seq) {
        if (v->head.seq == seq && !str_eq(v->head.hash, hash))
            return problem(v, AUDIT_HEADS ":%" PRIu64 ": line %" PRIu64 " is not the one that was signed",
                           v->heads.number, seq);
        if (v->head.seq == seq)
            v->signed_seq = seq;
        int r = next_head(v);
        if (r != GO_ON)
            return r;
    }
    return GO_ON;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

static int check_noted(struct verify *v, uint64_t seq, const char hash[SHA256_HEX])
{
    if (!v->options->head_hash || v->options->head_seq != seq)
        return GO_ON;
    v->noted_found = true;
    if (!str_eq(v->options->head_hash, hash))
        return problem(v, "line %" PRIu64 " is not the one of the head that was noted", seq);
    return GO_ON;
}

/* The line before the first one is known by its hash alone. */
static int check_first(struct verify *v, const char *where, const struct audit_line *line)
{
    v->report->first_seq = line->seq;
    if (line->seq == 1)
        return str_eq(line->prev, AUDIT_ZEROES) ? GO_ON
                                                : problem(v, "%s: the first line names a line before it", where);
    v->begins_late = true;
    int r = match_heads(v, line->seq - 1, line->prev);
    return r == GO_ON ? check_noted(v, line->seq - 1, line->prev) : r;
}

static int check_next(struct verify *v, const char *where, const struct audit_line *line)
{
    uint64_t last = v->report->last_seq;

    if (line->seq == last)
        return problem(v, "%s: line %" PRIu64 " is there twice", where, last);
    if (line->seq < last)
        return problem(v, "%s: line %" PRIu64 " follows line %" PRIu64 ": out of order", where, line->seq, last);
    if (line->seq == last + 2)
        return problem(v, "%s: line %" PRIu64 " follows line %" PRIu64 ": line %" PRIu64 " is missing or out of order",
                       where, line->seq, last, last + 1);
    if (line->seq > last + 1)
        return problem(v,
                       "%s: line %" PRIu64 " follows line %" PRIu64 ": lines %" PRIu64 " to %" PRIu64
                       " are missing or out of order",
                       where, line->seq, last, last + 1, line->seq - 1);
    if (!str_eq(line->prev, v->report->last_hash))
        return problem(v, "%s: line %" PRIu64 " notes another hash of line %" PRIu64 ": one of the two was changed",
                       where, line->seq, last);
    return GO_ON;
}

/*
 * Whether an audit.pruned line explains where the log begins: it announces that lines up to some number go, and those
 * that are missing are among them. (Fewer may be missing: files go one by one, and a crash can come in between.)
 */
static bool explains(const struct verify *v, const struct audit_line *line)
{
    char digits[24];
    uint64_t last = 0;
    size_t len = strcspn(line->object, ":");

    if (len >= sizeof(digits))
        return false;
    memcpy(digits, line->object, len);
    digits[len] = '\0';
    return parse_u64(digits, &last) == 0 && last + 1 >= v->report->first_seq && last < line->seq;
}

/* named: the sequence that the file's name says, for its first line; else 0. */
static int check_line(struct verify *v, const char *name, uint64_t number, uint64_t named, const char *text, size_t len)
{
    struct audit_line line = {0};
    char where[80], hash[SHA256_HEX];

    if (str_format(where, sizeof(where), "%s:%" PRIu64, name, number) < 0)
        return -EMSGSIZE;
    int r = audit_line_parse(text, len, &line);
    if (r == -EBADMSG)
        return problem(v, "%s: is no audit line", where);
    if (r == 0)
        r = audit_line_hash(text, len, hash);
    if (r < 0)
        return r;
    r = v->report->lines == 0 ? check_first(v, where, &line) : check_next(v, where, &line);
    if (r == GO_ON && named != 0 && named != line.seq)
        r = problem(v, "%s: the file is named after line %" PRIu64 ", but begins with line %" PRIu64, where, named,
                    line.seq);
    if (r != GO_ON)
        return r;
    v->report->lines++;
    v->report->last_seq = line.seq;
    memcpy(v->report->last_hash, hash, SHA256_HEX);
    if (v->begins_late && !v->pruned && str_eq(line.action, AUDIT_PRUNED) && explains(v, &line)) {
        v->pruned = true;
        v->pruned_seq = line.seq;
    }
    if (v->cut_seq == 0 && line.seq > v->options->known_cut && str_eq(line.action, AUDIT_CUT))
        v->cut_seq = line.seq;
    r = match_heads(v, line.seq, hash);
    return r == GO_ON ? check_noted(v, line.seq, hash) : r;
}

/* What there is to read. */
static int check_lines(struct verify *v, struct audit_reader *reader, const char *name, uint64_t named)
{
    const char *line;
    size_t len;
    int r;

    while ((r = audit_reader_next(reader, &line, &len)) == 1) {
        r = check_line(v, name, reader->number, reader->number == 1 ? named : 0, line, len);
        if (r != GO_ON)
            return r;
    }
    if (r == -EMSGSIZE)
        return problem(v, "%s:%" PRIu64 ": is no audit line", name, reader->number);
    return r;
}

static int check_rotated(struct verify *v, const struct audit_file *file)
{
    AUTO_READER struct audit_reader reader = AUDIT_READER;
    int r = audit_reader_open(&reader, v->dir_fd, file->name);

    if (r < 0)
        return r == -ENOENT ? -EAGAIN : r;
    v->report->files++;
    r = check_lines(v, &reader, file->name, file->first_seq);
    if (r == GO_ON && audit_reader_left(&reader) > 0)
        r = problem(v, "%s: its last line is unfinished", file->name);
    else if (r == GO_ON && reader.number == 0)
        r = problem(v, "%s: is empty", file->name);
    return r;
}

/* A daemon may have rotated it while it was read: then the file of that name is another one. */
static int next_current(struct verify *v, struct audit_reader *reader)
{
    struct audit_reader next;
    struct stat was, is;

    int r = audit_reader_open(&next, v->dir_fd, AUDIT_CURRENT);
    if (r < 0)
        return r == -ENOENT ? STOP : r;
    if (fstat(reader->fd, &was) < 0 || fstat(next.fd, &is) < 0 || was.st_ino == is.st_ino) {
        audit_reader_done(&next);
        return STOP;
    }
    audit_reader_done(reader);
    *reader = next;
    v->report->files++;
    return GO_ON;
}

/* The current file, and again while a head names a line that may have come meanwhile. */
static int check_current(struct verify *v, struct audit_reader *reader)
{
    for (;;) {
        uint64_t lines = v->report->lines;
        int r = check_lines(v, reader, AUDIT_CURRENT, 0);
        if (r != GO_ON)
            return r;
        if (v->report->lines != lines && v->have_head)
            continue;
        if (!v->have_head)
            return GO_ON;
        r = next_current(v, reader);
        if (r != GO_ON)
            return r < 0 ? r : GO_ON;
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* What identifies the files there are: a rotation or retention changes it. */
static int fingerprint(int dir_fd, struct fingerprint *ret)
{
    AUTO_FILES struct audit_files list = {0};
    struct stat st = {0};
    int r = audit_files_list(dir_fd, &list);

    if (r < 0)
        return r;
    (void)!fstatat(dir_fd, AUDIT_CURRENT, &st, AT_SYMLINK_NOFOLLOW);
    *ret = (struct fingerprint){.n = list.n, .current = st.st_ino};
    if (list.n > 0) {
        ret->first = list.files[0].first_seq;
        ret->last = list.files[list.n - 1].first_seq;
    }
    return 0;
}

static int check_files(struct verify *v)
{
    AUTO_FILES struct audit_files list = {0};
    AUTO_READER struct audit_reader current = AUDIT_READER;
    int opened = audit_reader_open(&current, v->dir_fd, AUDIT_CURRENT), r;

    if (opened < 0 && opened != -ENOENT)
        return opened;
    r = audit_files_list(v->dir_fd, &list);
    if (r == 0 && opened < 0 && list.n == 0 && !v->has_heads && !v->options->head_hash)
        r = -ENOENT;
    if (r == 0)
        r = next_head(v);
    for (size_t i = 0; r == GO_ON && i < list.n; i++)
        r = check_rotated(v, &list.files[i]);
    if (opened == 0) {
        v->report->files++;
        if (r == GO_ON)
            r = check_current(v, &current);
        if (r == GO_ON && audit_reader_left(&current) > 0)
            note(v, "%s ends with an unfinished line of %zu bytes, as after a crash", AUDIT_CURRENT,
                 audit_reader_left(&current));
    }
    return r;
}

static int check_end(struct verify *v)
{
    const struct audit_report *report = v->report;

    if (v->have_head)
        return report->lines == 0
                   ? problem(v, "the log is empty, but a head names line %" PRIu64 ": all of it was removed",
                             v->head.seq)
                   : problem(v,
                             "the log ends with line %" PRIu64 ", but a head names line %" PRIu64
                             ": its end was cut off",
                             report->last_seq, v->head.seq);
    if (v->begins_late && !v->pruned)
        return problem(v, "the log begins with line %" PRIu64 ", and no line says that those before it were removed",
                       report->first_seq);
    if (v->options->public_key && !v->has_heads && report->lines > 0)
        return problem(v, "%s is missing: nothing in this log is signed", AUDIT_HEADS);
    if (v->options->public_key && report->lines > 0 && v->signed_seq == 0 && !v->last_try)
        return -EAGAIN; /* the first line may be a moment old */
    if (v->options->public_key && report->lines > 0 && v->signed_seq == 0)
        return problem(v, "no head names a line of this log: nothing in it is signed");
    if (v->options->public_key && v->pruned && v->pruned_seq > v->signed_seq)
        return problem(v,
                       "line %" PRIu64 " says that lines before %" PRIu64 " were removed, but no signed head covers it",
                       v->pruned_seq, report->first_seq);
    if (v->options->head_hash && report->lines == 0)
        return problem(v, "the log is empty, but line %" PRIu64 " was noted as its head: all of it was removed",
                       v->options->head_seq);
    if (v->options->head_hash && !v->noted_found && v->options->head_seq > report->last_seq)
        return problem(
            v, "the log ends with line %" PRIu64 ", but line %" PRIu64 " was noted as its head: its end was cut off",
            report->last_seq, v->options->head_seq);
    if (v->options->head_hash && !v->noted_found)
        return problem(v,
                       "line %" PRIu64 " was removed by retention and cannot be compared with the head that was noted",
                       v->options->head_seq);
    if (v->cut_seq != 0)
        return problem(v, "line %" PRIu64 " tells that the log was cut before it (brig audit show --action audit.cut)",
                       v->cut_seq);
    return GO_ON;
}

static void say_what_is_open(struct verify *v)
{
    if (!v->has_heads)
        note(v, "there is no %s", AUDIT_HEADS);
    if (!v->options->public_key)
        note(v, "signatures were not checked: no public key was given");
    if (v->has_heads && v->signed_seq < v->report->last_seq)
        note(v, "lines after %" PRIu64 " are not signed yet", v->signed_seq);
    if (v->pruned)
        note(v, "lines before %" PRIu64 " were removed by retention", v->report->first_seq);
}

static int verify_once(int dir_fd, const struct audit_verify_options *options, bool last_try, struct audit_report *ret)
{
    struct verify v = {.dir_fd = dir_fd, .options = options, .report = ret, .last_try = last_try};

    *ret = (struct audit_report){.ok = true};
    memcpy(ret->last_hash, AUDIT_ZEROES, SHA256_HEX);
    if (options->public_key)
        audit_key_id(options->public_key, v.key_id);
    struct fingerprint before, after;
    int r = fingerprint(dir_fd, &before);
    if (r < 0)
        return r;
    r = audit_reader_open(&v.heads, dir_fd, AUDIT_HEADS);
    if (r < 0 && r != -ENOENT)
        return r;
    v.has_heads = r == 0;
    r = check_files(&v);
    if (r == GO_ON)
        r = check_end(&v);
    if (r == GO_ON)
        say_what_is_open(&v);
    if (v.has_heads)
        audit_reader_done(&v.heads);
    /* A problem counts only if the files stayed where they were. */
    if (r == STOP) {
        r = fingerprint(dir_fd, &after);
        if (r == 0 && (before.n != after.n || before.first != after.first || before.last != after.last ||
                       before.current != after.current))
            r = -EAGAIN;
    }
    return r < 0 ? r : 0;
}

int audit_verify(int dir_fd, const struct audit_verify_options *options, struct audit_report *ret, struct brig_err *err)
{
    int r = -EAGAIN;

    for (unsigned i = 0; r == -EAGAIN && i < TRIES; i++) {
        if (i > 0)
            nanosleep(&(struct timespec){.tv_nsec = 50 * (long)NS_PER_MS}, NULL);
        r = verify_once(dir_fd, options, i == TRIES - 1, ret);
    }
    if (r == -ENOENT)
        return err_set(err, BRIG_E_NOT_FOUND, ENOENT, "there is no audit log");
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "read the audit log") : 0;
}
