/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.c: the near side of the log: opening, adding, closing. An event becomes a line, with its number, in the thread
 * that adds it; everything that can block (hashing into the chain, writing, syncing, rotation) is the writer's
 * (writer.c). What is queued is bounded, in lines and in bytes; an event that does not fit is counted, and a line says
 * how many there were.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "audit/audit_priv.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#define QUEUE_BYTES_MAX ((size_t)64 << 20)
#define LOCK_WAIT_MS 2000u

/* ---- adding --------------------------------------------------------------------------------------------------- */

uint64_t audit_enqueue(struct audit *audit, const struct audit_event *event, void (*done)(void *, int), void *ctx,
                       uint64_t prune_before)
{
    AUTO_BUF struct buf text = BUF_INIT(AUDIT_LINE_MAX - 1);
    const int64_t now = clock_real_ns(), time_ns = now > audit->last_time_ns ? now : audit->last_time_ns + 1;

    if (audit->queue.n + audit->backlog_n >= AUDIT_QUEUE_MAX ||
        audit->queue.bytes + audit->backlog_bytes >= QUEUE_BYTES_MAX ||
        audit_line_write(&text, audit->next_seq, time_ns, event) < 0)
        return 0;
    struct audit_entry *entry = mem_alloc(sizeof(*entry) + text.len + 1);
    if (!entry)
        return 0;
    *entry = (struct audit_entry){.done = done,
                                  .ctx = ctx,
                                  .sync = event->sync,
                                  .seq = audit->next_seq++,
                                  .prune_before = prune_before,
                                  .len = text.len};
    audit->last_time_ns = time_ns;
    memcpy(entry->line, text.data, text.len);
    entry->line[text.len] = '\n';
    if (!audit->queue.first) {
        audit->queue.end = &audit->queue.first;
        audit->first_queued_ns = clock_mono_ns();
    }
    *audit->queue.end = entry;
    audit->queue.end = &entry->next;
    audit->queue.n++;
    audit->queue.bytes += entry->len + 1;
    /* The writer is awake for the first line or for one that somebody waits for; others join. */
    if (audit->queue.n == 1 || (event->sync && !audit->urgent))
        pthread_cond_signal(&audit->wake);
    audit->urgent = audit->urgent || event->sync;
    return entry->seq;
}

uint64_t audit_note(struct audit *audit, const char *action, const char *object, const char *outcome,
                    const char *detail, uint64_t prune_before)
{
    const struct audit_event event = {
        .action = action, .actor = "system", .object = object, .outcome = outcome, .detail = detail, .sync = true};

    return audit_enqueue(audit, &event, NULL, NULL, prune_before);
}

/* Whether this second has room for one more. */
static bool within_rate(struct audit *audit)
{
    uint64_t now = clock_mono_ns();

    if (now - audit->window_ns >= NS_PER_SEC) {
        audit->window_ns = now;
        audit->window_n = 0;
    }
    return audit->window_n++ < audit->options.per_second;
}

uint64_t audit_add(struct audit *audit, const struct audit_event *event, void (*done)(void *ctx, int error), void *ctx)
{
    uint64_t seq = 0;

    pthread_mutex_lock(&audit->lock);
    if (audit_repeat(audit, event)) {
        pthread_mutex_unlock(&audit->lock);
        return 0;
    }
    if (event->sync || event->paced || within_rate(audit))
        seq = audit_enqueue(audit, event, event->sync ? done : NULL, ctx, 0);
    if (seq == 0 && audit->dropped++ == audit->dropped_told)
        pthread_cond_signal(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
    return seq;
}

bool audit_busy(const struct audit *audit)
{
    struct audit *unlocked = (struct audit *)(uintptr_t)audit;

    pthread_mutex_lock(&unlocked->lock);
    bool busy = audit->queue.n + audit->backlog_n >= AUDIT_QUEUE_MAX / 2 ||
                audit->queue.bytes + audit->backlog_bytes >= QUEUE_BYTES_MAX / 2;
    pthread_mutex_unlock(&unlocked->lock);
    return busy;
}

uint64_t audit_dropped(const struct audit *audit)
{
    struct audit *unlocked = (struct audit *)(uintptr_t)audit;

    pthread_mutex_lock(&unlocked->lock);
    uint64_t dropped = audit->dropped;
    pthread_mutex_unlock(&unlocked->lock);
    return dropped;
}

void audit_settle(struct audit *audit)
{
    uint64_t until = clock_mono_ns() + NS_PER_SEC;
    const struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_SEC), .tv_nsec = (long)(until % NS_PER_SEC)};

    pthread_mutex_lock(&audit->lock);
    uint64_t last = audit->next_seq - 1;
    if (audit->queue.first && !audit->urgent) {
        audit->urgent = true;
        pthread_cond_signal(&audit->wake);
    }
    while (audit->disk_seq < last && pthread_cond_timedwait(&audit->settled, &audit->lock, &ts) == 0)
        continue;
    pthread_mutex_unlock(&audit->lock);
}

int audit_reopen(struct audit *audit, struct brig_err *err)
{
    pthread_mutex_lock(&audit->lock);
    audit->reopen = true;
    pthread_cond_signal(&audit->wake);
    while (audit->reopen)
        pthread_cond_wait(&audit->reopened, &audit->lock);
    int r = audit->reopen_result;
    pthread_mutex_unlock(&audit->lock);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "reopen %s", AUDIT_CURRENT) : 0;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

/* One writer per log. The one before may be on its way out. */
static int lock_dir(struct audit *audit, struct brig_err *err)
{
    audit->dir_fd = openat(audit->options.dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (audit->dir_fd < 0)
        return err_host(err, "open the directory of the audit log");
    for (unsigned waited = 0; flock(audit->dir_fd, LOCK_EX | LOCK_NB) < 0; waited += 20) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_host(err, "lock the directory of the audit log");
        if (waited >= LOCK_WAIT_MS)
            return err_set(err, BRIG_E_CONFLICT, EBUSY, "another daemon writes this audit log");
        nanosleep(&(struct timespec){.tv_nsec = 20 * (long)NS_PER_MS}, NULL);
    }
    return 0;
}

static int open_file(int dir_fd, const char *name, uint64_t good_bytes, uint64_t torn_bytes)
{
    AUTO_FD int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -errno;
    if (torn_bytes > 0 && (ftruncate(fd, (off_t)good_bytes) < 0 || fsync(fd) < 0))
        return -errno;
    if (fsync(dir_fd) < 0)
        return -errno;
    return take_fd(&fd);
}

/* The end of the newest rotated file, for a current one that is empty. */
static int find_last_rotated(int dir_fd, struct audit_end *ret, const char **name, char buf[40])
{
    AUTO_FILES struct audit_files list = {0};
    int r = audit_files_list(dir_fd, &list);

    *ret = (struct audit_end){0};
    if (r < 0 || list.n == 0)
        return r;
    memcpy(buf, list.files[list.n - 1].name, sizeof(list.files[0].name));
    *name = buf;
    r = audit_file_end(dir_fd, buf, ret);
    /* A rotated file is whole: it was synced before it got its name. */
    return r == 0 && (ret->torn_bytes > 0 || ret->last_seq == 0) ? -EBADMSG : r;
}

static int fail_end(int r, const char *name, struct brig_err *err)
{
    if (r == -EBADMSG)
        return err_set(
            err, BRIG_E_REFUSED, EBADMSG,
            "%s does not end with an audit line; `brig audit verify` says more, and a new log begins when the "
            "directory is moved away",
            name);
    return err_set(err, BRIG_E_HOST, -r, "read %s", name);
}

/* Finds where the chain is, cuts off what a crash left unfinished, and opens the current file to go on. */
static int open_current(struct audit *audit, struct brig_err *err)
{
    struct audit_end end, rotated = {0};
    const char *name = AUDIT_CURRENT;
    char buf[40];

    int r = audit_file_end(audit->dir_fd, name, &end);
    if (r < 0 && r != -ENOENT)
        return fail_end(r, name, err);
    if (end.last_seq == 0) {
        r = find_last_rotated(audit->dir_fd, &rotated, &name, buf);
        if (r < 0)
            return fail_end(r, name, err);
    }
    audit->fd = open_file(audit->dir_fd, AUDIT_CURRENT, end.good_bytes, end.torn_bytes);
    if (audit->fd < 0)
        return err_set(err, BRIG_E_HOST, -audit->fd, "open %s", AUDIT_CURRENT);
    const struct audit_end *last = end.last_seq ? &end : &rotated;
    audit->size = end.good_bytes;
    audit->first_seq = end.first_seq;
    audit->seq = last->last_seq;
    memcpy(audit->hash, last->last_seq ? last->last_hash : AUDIT_ZEROES, SHA256_HEX);
    if (end.torn_bytes > 0) {
        char detail[96];
        snprintf(detail, sizeof(detail), "%llu bytes of an unfinished line were cut off",
                 (unsigned long long)end.torn_bytes);
        audit->next_seq = audit->seq + 1;
        if (audit_note(audit, "audit.repaired", AUDIT_CURRENT, "ok", detail, 0) == 0)
            return err_nomem(err);
    }
    return 0;
}

/* The last head that is whole; what is behind it is cut off. */
static int open_heads(struct audit *audit, struct brig_err *err)
{
    AUTO_READER struct audit_reader reader = AUDIT_READER;
    struct audit_head head;
    const char *line;
    size_t len;
    uint64_t good = 0, torn = 0;

    int r = audit_reader_open(&reader, audit->dir_fd, AUDIT_HEADS);
    if (r < 0 && r != -ENOENT)
        return err_set(err, BRIG_E_HOST, -r, "open %s", AUDIT_HEADS);
    if (r == 0) {
        while ((r = audit_reader_next(&reader, &line, &len)) == 1) {
            good += len + 1;
            if (audit_head_parse(line, len, &head) == 0 && head.seq > audit->head_seq)
                audit->head_seq = head.seq;
        }
        torn = audit_reader_left(&reader);
        if (r < 0)
            return err_set(err, BRIG_E_HOST, -r, "read %s", AUDIT_HEADS);
    }
    audit->heads_fd = open_file(audit->dir_fd, AUDIT_HEADS, good, torn);
    if (audit->heads_fd < 0)
        return err_set(err, BRIG_E_HOST, -audit->heads_fd, "open %s", AUDIT_HEADS);
    audit->heads_size = good;
    return 0;
}

/* What is wrong with the log against what was signed, or noted elsewhere; "": nothing. */
static int find_cut(const struct audit *audit, char *out, size_t size)
{
    const struct audit_options *options = &audit->options;
    const uint64_t known = audit->head_seq > options->known_seq ? audit->head_seq : options->known_seq;
    char hash[SHA256_HEX];
    int r = 0;

    out[0] = '\0';
    if (audit->seq < known) {
        snprintf(out, size, "the log ends with line %llu, but line %llu was there", (unsigned long long)audit->seq,
                 (unsigned long long)known);
        return 0;
    }
    if (options->known_seq == 0 || !options->known_hash)
        return 0;
    if (options->known_seq == audit->seq)
        memcpy(hash, audit->hash, sizeof(hash));
    else
        r = audit_find_hash(audit->dir_fd, options->known_seq, hash);
    if (r == -ENOENT) /* removed by retention: nothing to compare with */
        return 0;
    if (r == 0 && strcmp(hash, options->known_hash) != 0)
        snprintf(out, size, "line %llu is not the one that was there", (unsigned long long)options->known_seq);
    return r;
}

/* A log that was cut, or is another one. Work goes on, and a line tells. */
static int note_cut(struct audit *audit, struct brig_err *err)
{
    char detail[128];
    int r = find_cut(audit, detail, sizeof(detail));

    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "compare the audit log with its head");
    if (detail[0] == '\0')
        return 0;
    if (audit_note(audit, AUDIT_CUT, AUDIT_CURRENT, "failed", detail, 0) == 0)
        return err_nomem(err);
    audit->head_seq = 0; /* what comes now is to be signed, whatever was */
    return 0;
}

static int start_thread(struct audit *audit, struct brig_err *err)
{
    sigset_t all, before;

    audit->disk_seq = audit->seq;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&audit->thread, NULL, audit_writer, audit);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return err_set(err, BRIG_E_HOST, r, "start the audit log's thread");
    pthread_setname_np(audit->thread, "brig-audit");
    return 0;
}

static void set_defaults(struct audit_options *options)
{
    options->rotate_bytes = options->rotate_bytes ? options->rotate_bytes : UINT64_C(64) << 20;
    options->keep_bytes = options->keep_bytes ? options->keep_bytes : UINT64_C(1) << 30;
    options->head_lines = options->head_lines ? options->head_lines : 1000;
    options->head_seconds = options->head_seconds ? options->head_seconds : 60;
    options->repeat_seconds = options->repeat_seconds ? options->repeat_seconds : 60;
    options->per_second = options->per_second ? options->per_second : 5000;
}

static void destroy(struct audit *audit)
{
    for (struct audit_entry *entry = audit->queue.first, *next; entry; entry = next) {
        next = entry->next;
        mem_free(entry);
    }
    base_close_fd(&audit->fd);
    base_close_fd(&audit->heads_fd);
    base_close_fd(&audit->dir_fd);
    buf_done(&audit->out);
    pthread_cond_destroy(&audit->wake);
    pthread_cond_destroy(&audit->reopened);
    pthread_cond_destroy(&audit->settled);
    pthread_mutex_destroy(&audit->lock);
    mem_free(audit);
}

int audit_open(struct loop *loop, struct workers *workers, const struct audit_options *options, struct audit **ret,
               struct brig_err *err)
{
    struct audit *audit = mem_zalloc(sizeof(*audit));
    pthread_condattr_t monotonic;
    (void)loop; /* callbacks get there through the workers */

    if (!audit)
        return err_nomem(err);
    audit->options = *options;
    set_defaults(&audit->options);
    audit->workers = workers;
    audit->dir_fd = audit->fd = audit->heads_fd = -1;
    audit->out = BUF_INIT(SIZE_MAX);
    pthread_mutex_init(&audit->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&audit->wake, &monotonic);
    pthread_cond_init(&audit->settled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&audit->reopened, NULL);

    int r = crypto_random(audit->repeat_key, sizeof(audit->repeat_key));
    r = r < 0 ? err_set(err, BRIG_E_HOST, -r, "random bytes for the audit log") : lock_dir(audit, err);
    if (r == 0)
        r = open_current(audit, err);
    if (r == 0)
        audit->next_seq = audit->queue.first ? audit->next_seq : audit->seq + 1;
    if (r == 0)
        r = open_heads(audit, err);
    if (r == 0)
        r = note_cut(audit, err);
    if (r == 0)
        r = start_thread(audit, err);
    if (r < 0) {
        destroy(audit);
        return r;
    }
    *ret = audit;
    return 0;
}

void audit_close(struct audit *audit)
{
    if (!audit)
        return;
    pthread_mutex_lock(&audit->lock);
    audit->stop = true;
    pthread_cond_signal(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
    pthread_join(audit->thread, NULL);
    destroy(audit);
}
