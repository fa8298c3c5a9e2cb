/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retention.c: which rotated files go, and how. Oldest first, by size and by age, never the current one.
 *
 * A log whose beginning is missing must tell whether that was meant. So before files are removed, a line is added. Its
 * action is audit.pruned, and its object is "<seq>:<hash>" of the last line that is removed, which the first line that
 * stays has as its `prev`. The files are removed only when that line is on disk and a signed head covers it (writer.c).
 * A crash in between leaves files that were announced as removed. That does no harm: the line before those is announced
 * by an earlier line that is still there.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "audit/audit_priv.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#define LOOK_NS (60 * NS_PER_SEC)

/* How many of the oldest files go. */
static size_t count_old(const struct audit *audit, const struct audit_files *list)
{
    int64_t now = clock_real_ns() / (int64_t)NS_PER_SEC;
    uint64_t total = audit->size;
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++)
        total += list->files[i].bytes;
    while (n < list->n) {
        const struct audit_file *file = &list->files[n];
        bool old = audit->options.keep_seconds > 0 && now - file->mtime_s > audit->options.keep_seconds;
        if (total <= audit->options.keep_bytes && !old)
            break;
        total -= file->bytes;
        n++;
    }
    return n;
}

/* "<seq>:<hash>" of the line before the first one of a file. */
static int line_before(const struct audit *audit, const struct audit_file *file, uint64_t *ret_first, char out[96])
{
    AUTO_READER struct audit_reader reader = AUDIT_READER;
    struct audit_line line = {0};
    const char *text;
    size_t len;
    const char *name = file ? file->name : AUDIT_CURRENT;

    if (!file && audit->first_seq == 0) { /* the current one is still empty: it will begin with the next line */
        *ret_first = audit->seq + 1;
        return str_format(out, 96, "%" PRIu64 ":%s", audit->seq, audit->hash) < 0 ? -EMSGSIZE : 0;
    }
    int r = audit_reader_open(&reader, audit->dir_fd, name);
    if (r < 0)
        return r;
    r = audit_reader_next(&reader, &text, &len);
    r = r == 1 ? audit_line_parse(text, len, &line) : r < 0 ? r : -EBADMSG;
    if (r < 0)
        return r;
    *ret_first = line.seq;
    return str_format(out, 96, "%" PRIu64 ":%s", line.seq - 1, line.prev) < 0 ? -EMSGSIZE : 0;
}

void audit_retention(struct audit *audit)
{
    uint64_t now = clock_mono_ns(), first_kept = 0;
    AUTO_FILES struct audit_files list = {0};
    char object[96], detail[128];

    if (audit->pruning || (audit->pruned_ns != 0 && now - audit->pruned_ns < LOOK_NS))
        return;
    audit->pruned_ns = now;
    if (audit_files_list(audit->dir_fd, &list) < 0)
        return;
    size_t n = count_old(audit, &list);
    if (n > 0 && line_before(audit, n < list.n ? &list.files[n] : NULL, &first_kept, object) == 0) {
        snprintf(detail, sizeof(detail), "lines %" PRIu64 " to %" PRIu64 " are removed by retention",
                 list.files[0].first_seq, first_kept - 1);
        pthread_mutex_lock(&audit->lock);
        audit->pruning = audit_note(audit, AUDIT_PRUNED, object, "ok", detail, first_kept) != 0;
        pthread_mutex_unlock(&audit->lock);
    }
}

/* Heads of lines that are gone say nothing any more. The new file takes the place of the old one at once, or not at
 * all. */
static int prune_heads(struct audit *audit, uint64_t first_kept)
{
    static const char aside[] = "heads.new";
    AUTO_BUF struct buf kept = BUF_INIT(SIZE_MAX);
    AUTO_READER struct audit_reader reader = AUDIT_READER;
    struct audit_head head;
    const char *line;
    size_t len;

    int r = audit_reader_open(&reader, audit->dir_fd, AUDIT_HEADS);
    if (r < 0)
        return r;
    while ((r = audit_reader_next(&reader, &line, &len)) == 1) {
        /* What is no head stays: it is for verify to speak about. */
        if (audit_head_parse(line, len, &head) == 0 && head.seq < first_kept)
            continue;
        if (buf_append(&kept, line, len) < 0 || buf_append(&kept, "\n", 1) < 0)
            return -ENOMEM;
    }
    if (r < 0)
        return r;
    unlinkat(audit->dir_fd, aside, 0);
    AUTO_FD int fd =
        openat(audit->dir_fd, aside, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    r = fd_write_all(fd, kept.data, kept.len);
    if (r == 0 && (fsync(fd) < 0 || renameat(audit->dir_fd, aside, audit->dir_fd, AUDIT_HEADS) < 0))
        r = -errno;
    if (r < 0) {
        unlinkat(audit->dir_fd, aside, 0);
        return r;
    }
    close(audit->heads_fd);
    audit->heads_fd = take_fd(&fd);
    audit->heads_size = kept.len;
    return fsync(audit->dir_fd) < 0 ? -errno : 0;
}

void audit_prune(struct audit *audit, uint64_t first_kept)
{
    AUTO_FILES struct audit_files list = {0};

    if (audit_files_list(audit->dir_fd, &list) < 0)
        return;
    for (size_t i = 0; i < list.n && list.files[i].first_seq < first_kept; i++)
        unlinkat(audit->dir_fd, list.files[i].name, 0);
    (void)!fsync(audit->dir_fd);
    (void)!prune_heads(audit, first_kept);
}
