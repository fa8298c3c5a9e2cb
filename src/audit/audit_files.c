/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_files.c: the directory of a log. The current file is audit.jsonl; one that was full is named after its first
 * line, so names in their order are the lines in their order. Also: reading lines, and the end of a file, where a crash
 * leaves its mark.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "audit/audit_priv.h"
#include "audit/read.h"
#include "base/dir.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"

int audit_file_name(uint64_t first_seq, char out[40])
{
    int r = str_format(out, 40, "audit-%012" PRIu64 ".jsonl", first_seq);
    return r < 0 ? r : 0;
}

/* audit-<digits>.jsonl, exactly as audit_file_name() writes it; 0 otherwise. */
static uint64_t name_seq(const char *name)
{
    char digits[24], again[40];
    uint64_t seq;
    size_t len = strlen(name);

    if (!str_starts(name, "audit-") || len < 12 || len - 12 >= sizeof(digits) || !str_eq(name + len - 6, ".jsonl"))
        return 0;
    memcpy(digits, name + 6, len - 12);
    digits[len - 12] = '\0';
    if (parse_u64(digits, &seq) < 0 || audit_file_name(seq, again) < 0 || !str_eq(name, again))
        return 0;
    return seq;
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const struct audit_file *)a)->first_seq, y = ((const struct audit_file *)b)->first_seq;
    return x < y ? -1 : x > y;
}

static int add_file(struct audit_files *list, int dir_fd, const char *name)
{
    uint64_t seq = name_seq(name);
    struct stat st;

    if (seq == 0)
        return 0;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    struct audit_file *files = mem_realloc_array(list->files, list->n + 1, sizeof(*files));
    if (!files)
        return -ENOMEM;
    list->files = files;
    files[list->n] = (struct audit_file){.first_seq = seq, .bytes = (uint64_t)st.st_size, .mtime_s = st.st_mtim.tv_sec};
    return str_copy(files[list->n++].name, sizeof(files[0].name), name);
}

int audit_files_list(int dir_fd, struct audit_files *ret)
{
    struct audit_files list = {0};
    AUTO_DIR DIR *dir = dir_open(dir_fd, ".");
    int r = 0;

    if (!dir)
        return -errno;
    for (const struct dirent *entry; r == 0 && (entry = dir_next(dir));)
        r = add_file(&list, dir_fd, entry->d_name);
    if (r < 0) {
        audit_files_done(&list);
        return r;
    }
    if (list.n > 1)
        qsort(list.files, list.n, sizeof(list.files[0]), by_seq);
    *ret = list;
    return 0;
}

void audit_files_done(struct audit_files *files)
{
    mem_free(files->files);
    *files = (struct audit_files){0};
}

/* ---- lines --------------------------------------------------------------------------------------------------- */

int audit_reader_open(struct audit_reader *reader, int dir_fd, const char *name)
{
    *reader = AUDIT_READER;
    reader->fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (reader->fd < 0)
        return -errno;
    reader->data = mem_alloc(AUDIT_LINE_MAX + 1);
    if (!reader->data)
        audit_reader_done(reader);
    return reader->data ? 0 : -ENOMEM;
}

int audit_reader_next(struct audit_reader *reader, const char **line, size_t *len)
{
    for (;;) {
        char *start = reader->data + reader->start;
        char *newline = memchr(start, '\n', reader->len - reader->start);
        if (newline) {
            *line = start;
            *len = (size_t)(newline - start);
            reader->start += *len + 1;
            reader->number++;
            return 1;
        }
        memmove(reader->data, start, reader->len - reader->start);
        reader->len -= reader->start;
        reader->start = 0;
        if (reader->len == AUDIT_LINE_MAX + 1) {
            reader->number++;
            return -EMSGSIZE;
        }
        ssize_t n = RETRY(read(reader->fd, reader->data + reader->len, AUDIT_LINE_MAX + 1 - reader->len));
        if (n <= 0)
            return n < 0 ? -errno : 0;
        reader->len += (size_t)n;
    }
}

size_t audit_reader_left(const struct audit_reader *reader)
{
    return reader->len - reader->start;
}

void audit_reader_done(struct audit_reader *reader)
{
    base_close_fd(&reader->fd);
    mem_free(reader->data);
    reader->data = NULL;
}

/* ---- the end of a file ----------------------------------------------------------------------------------------- */

/* The last line and what is behind it, from the last bytes of the file. */
static int read_end(int fd, uint64_t size, char *data, struct audit_end *ret)
{
    uint64_t from = size > 2 * AUDIT_LINE_MAX ? size - 2 * AUDIT_LINE_MAX : 0;
    size_t len = 0, want = (size_t)(size - from);
    struct audit_line line;

    while (len < want) {
        ssize_t n = RETRY(pread(fd, data + len, want - len, (off_t)(from + len)));
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        len += (size_t)n;
    }
    const char *newline = memrchr(data, '\n', len);
    if (!newline) {
        /* One torn line is all there is; anything longer is no line of ours. */
        ret->torn_bytes = size;
        return size <= AUDIT_LINE_MAX ? 0 : -EBADMSG;
    }
    ret->good_bytes = from + (uint64_t)(newline - data) + 1;
    ret->torn_bytes = size - ret->good_bytes;
    const char *before = memrchr(data, '\n', (size_t)(newline - data));
    const char *start = before ? before + 1 : data;
    if (!before && from > 0)
        return -EBADMSG;
    int r = audit_line_parse(start, (size_t)(newline - start), &line);
    if (r < 0)
        return r;
    ret->last_seq = line.seq;
    return audit_line_hash(start, (size_t)(newline - start), ret->last_hash);
}

int audit_file_end(int dir_fd, const char *name, struct audit_end *ret)
{
    AUTO_READER struct audit_reader reader = AUDIT_READER;
    struct stat st;
    const char *line;
    size_t len;

    *ret = (struct audit_end){0};
    int r = audit_reader_open(&reader, dir_fd, name);
    if (r < 0)
        return r;
    AUTO_FREE char *data = mem_alloc(2 * AUDIT_LINE_MAX);
    if (!data)
        return -ENOMEM;
    if (fstat(reader.fd, &st) < 0)
        return -errno;
    r = st.st_size > 0 ? read_end(reader.fd, (uint64_t)st.st_size, data, ret) : 0;
    if (r < 0 || ret->last_seq == 0)
        return r;
    r = audit_reader_next(&reader, &line, &len);
    ret->first_seq = r == 1 ? audit_line_seq(line, len) : 0;
    return r < 0 ? r : ret->first_seq == 0 ? -EBADMSG : 0;
}

/* ---- reading for others ------------------------------------------------------------------------------------------ */

/* 0 to go on, 1 when take() has enough. */
static int read_lines(struct audit_reader *reader, uint64_t *after, audit_read_fn *take, void *ctx)
{
    struct audit_line parsed;
    const char *line;
    size_t len;
    bool more = true;
    int r = 0;

    while (more && (r = audit_reader_next(reader, &line, &len)) == 1) {
        if (audit_line_seq(line, len) <= *after || audit_line_parse(line, len, &parsed) < 0)
            continue;
        *after = parsed.seq;
        more = take(ctx, parsed.seq, parsed.org, line, len);
    }
    return r < 0 && r != -EMSGSIZE ? r : more ? 0 : 1;
}

/* Rotated files that have lines over `after` and stand before the line `end`. */
static int read_rotated(int dir_fd, uint64_t end, uint64_t *after, audit_read_fn *take, void *ctx)
{
    AUTO_FILES struct audit_files list = {0};
    int r = audit_files_list(dir_fd, &list);

    for (size_t i = 0; r == 0 && i < list.n && list.files[i].first_seq < end; i++) {
        uint64_t next = i + 1 < list.n ? list.files[i + 1].first_seq : end;
        if (next <= *after || next - 1 <= *after)
            continue;
        AUTO_READER struct audit_reader reader = AUDIT_READER;
        r = audit_reader_open(&reader, dir_fd, list.files[i].name);
        if (r == 0)
            r = read_lines(&reader, after, take, ctx);
        else if (r == -ENOENT)
            r = 0; /* retention was here */
    }
    return r;
}

int audit_read(int dir_fd, uint64_t after, audit_read_fn *take, void *ctx)
{
    AUTO_READER struct audit_reader current = AUDIT_READER;
    char start[32];
    uint64_t first = 0;

    /* The current file is opened before the others are listed: if it is rotated meanwhile it is both, and read once. */
    int r = audit_reader_open(&current, dir_fd, AUDIT_CURRENT);
    if (r < 0 && r != -ENOENT)
        return r;
    bool has_current = r == 0;
    ssize_t n = has_current ? pread(current.fd, start, sizeof(start), 0) : 0;
    if (n > 0)
        first = audit_line_seq(start, (size_t)n);
    r = read_rotated(dir_fd, first ? first : UINT64_MAX, &after, take, ctx);
    if (r == 0 && has_current)
        r = read_lines(&current, &after, take, ctx);
    return r < 0 ? r : 0;
}

int audit_find_hash(int dir_fd, uint64_t seq, char out[SHA256_HEX])
{
    const char *name = AUDIT_CURRENT, *line;
    AUTO_FILES struct audit_files list = {0};
    AUTO_READER struct audit_reader reader = AUDIT_READER;
    struct audit_end end = {0};
    size_t len;
    int r = audit_files_list(dir_fd, &list);

    if (r < 0)
        return r;
    r = audit_file_end(dir_fd, name, &end);
    if (r < 0 || end.first_seq == 0 || end.first_seq > seq) {
        name = NULL;
        for (size_t i = 0; i < list.n && list.files[i].first_seq <= seq; i++)
            name = list.files[i].name;
    }
    r = name ? audit_reader_open(&reader, dir_fd, name) : -ENOENT;
    if (r < 0)
        return r;
    while ((r = audit_reader_next(&reader, &line, &len)) == 1 && audit_line_seq(line, len) != seq)
        continue;
    return r == 1 ? audit_line_hash(line, len, out) : r < 0 ? r : -ENOENT;
}
