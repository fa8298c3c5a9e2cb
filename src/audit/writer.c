/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c: the thread that puts lines on disk.
 *
 * Theory of operation. Lines are taken from the queue in batches: 40 ms after the first one, at once when somebody
 * waits for one. A batch is chained (each line gets the hash of the one before), written with one write, and synced;
 * only then does the state move on (size, sequence, hash). When anything fails, the file is cut back to its last good
 * size, the lines stay where they are and are tried again a second later; those who waited are told the error. So the
 * file never has a hole or half a line in its middle, and a line that was numbered is on disk sooner or later or the
 * queue is full and says so.
 *
 * After that, in this order: callbacks, a signed head when one is due (and always behind a line that announces that
 * files go), then those files go. The order matters: what is removed was announced by a line that is signed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "audit/audit_priv.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#define GROUP_NS (40 * NS_PER_MS) /* and some for the disk: 50 ms in all */
#define RETRY_NS NS_PER_SEC
#define TELL_NS NS_PER_SEC /* at most one line a second about what was dropped */
#define CHUNK_BYTES ((size_t)1 << 20)

/* ---- callbacks ------------------------------------------------------------------------------------------------ */

static void call_done(struct job *job)
{
    struct audit_entry *entry = (struct audit_entry *)job;

    entry->done(entry->ctx, entry->error);
    mem_free(entry);
}

static void call_posted(void *ctx)
{
    call_done(&((struct audit_entry *)ctx)->job);
}

static void no_work(struct job *job)
{
    (void)job;
}

/* The entry is given away. Where memory is short the way is longer (behind what the workers do), but it needs none. */
static void tell(struct audit *audit, struct audit_entry *entry, int error)
{
    entry->error = error;
    if (workers_post(audit->workers, call_posted, entry) == 0)
        return;
    entry->job = (struct job){.work = no_work, .done = call_done};
    workers_add(audit->workers, &entry->job);
}

/* Those who wait for a line that cannot be written are told so, once; the line itself is tried again. */
static void tell_failure(struct audit *audit, int error)
{
    for (struct audit_entry *entry = audit->pending.first; entry; entry = entry->next) {
        if (!entry->done)
            continue;
        struct audit_entry *messenger = mem_zalloc(sizeof(*messenger));
        if (!messenger)
            continue; /* they are told when it works, or at the end */
        messenger->done = entry->done;
        messenger->ctx = entry->ctx;
        entry->done = NULL;
        tell(audit, messenger, error);
    }
}

struct head_message {
    void (*on_head)(void *ctx, uint64_t seq, const char hash[SHA256_HEX], int64_t time_ns);
    void *ctx;
    uint64_t seq;
    char hash[SHA256_HEX];
    int64_t time_ns;
};

static void call_head(void *ctx)
{
    struct head_message *message = ctx;

    message->on_head(message->ctx, message->seq, message->hash, message->time_ns);
    mem_free(message);
}

static void tell_head(struct audit *audit, int64_t time_ns)
{
    struct head_message *message = audit->options.on_head ? mem_alloc(sizeof(*message)) : NULL;

    if (!message)
        return;
    *message = (struct head_message){
        .on_head = audit->options.on_head, .ctx = audit->options.ctx, .seq = audit->seq, .time_ns = time_ns};
    memcpy(message->hash, audit->hash, SHA256_HEX);
    if (workers_post(audit->workers, call_head, message) < 0)
        mem_free(message); /* the next one says more */
}

/* ---- heads ---------------------------------------------------------------------------------------------------- */

/* After a failure part of it may be there, so the next attempt cuts the file back first. */
static int append(int fd, uint64_t size, bool *dirty, const void *data, size_t len)
{
    if (*dirty && ftruncate(fd, (off_t)size) < 0)
        return -errno;
    *dirty = true;
    int r = fd_write_all(fd, data, len);
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    if (r == 0 || ftruncate(fd, (off_t)size) == 0)
        *dirty = false;
    return r;
}

static int sign_head(struct audit *audit)
{
    AUTO_BUF struct buf line = BUF_INIT(1024);
    struct audit_head head = {.seq = audit->seq};
    int64_t now = clock_real_ns();

    if (audit->head_seq == audit->seq)
        return 0;
    memcpy(head.hash, audit->hash, SHA256_HEX);
    clock_text(now, AUDIT_TIME_DIGITS, head.time);
    int r = audit_head_sign(&head, audit->options.signer);
    if (r == 0)
        r = audit_head_write(&line, &head);
    if (r == 0)
        r = buf_append(&line, "\n", 1);
    if (r == 0)
        r = append(audit->heads_fd, audit->heads_size, &audit->heads_dirty, line.data, line.len);
    audit->head_ns = clock_mono_ns();
    if (r < 0)
        return r;
    audit->heads_size += line.len;
    audit->head_seq = audit->seq;
    tell_head(audit, now);
    return 0;
}

static bool head_is_due(const struct audit *audit, uint64_t now)
{
    if (audit->seq == 0 || audit->head_seq == audit->seq)
        return false;
    return audit->seq - audit->head_seq >= audit->options.head_lines || audit->head_ns == 0 ||
           now - audit->head_ns >= audit->options.head_seconds * NS_PER_SEC;
}

/* ---- lines ---------------------------------------------------------------------------------------------------- */

static void begin_file(struct audit *audit, int fd)
{
    close(audit->fd);
    audit->fd = fd;
    audit->size = 0;
    audit->first_seq = 0;
    audit->dirty = false;
}

static int rotate(struct audit *audit)
{
    char name[40];
    int r = audit_file_name(audit->first_seq, name);

    if (r < 0)
        return r;
    if (renameat(audit->dir_fd, AUDIT_CURRENT, audit->dir_fd, name) < 0 && errno != ENOENT)
        return -errno;
    int fd =
        openat(audit->dir_fd, AUDIT_CURRENT, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        /* Back: the file that is open must be the one that is current. */
        r = -errno;
        (void)!renameat(audit->dir_fd, name, audit->dir_fd, AUDIT_CURRENT);
        return r;
    }
    begin_file(audit, fd);
    return fsync(audit->dir_fd) < 0 ? -errno : 0;
}

/* As many lines as fit the chunk and the file, chained. *ret_n: how many; hash: of the last. */
static int fill_chunk(struct audit *audit, size_t *ret_n, char hash[SHA256_HEX])
{
    size_t n = 0;

    audit->out.len = 0;
    memcpy(hash, audit->hash, SHA256_HEX);
    for (struct audit_entry *entry = audit->pending.first; entry; entry = entry->next, n++) {
        bool fits = audit->size + audit->out.len == 0 ||
                    audit->size + audit->out.len + entry->len + 1 <= audit->options.rotate_bytes;
        if (!fits || audit->out.len > CHUNK_BYTES)
            break;
        memcpy(entry->line + AUDIT_PREV_AT(entry->len), hash, 64);
        int r = audit_line_hash(entry->line, entry->len, hash);
        if (r == 0)
            r = buf_append(&audit->out, entry->line, entry->len + 1);
        if (r < 0)
            return r;
    }
    *ret_n = n;
    return 0;
}

/* Takes the first n off the pending list; files to go afterwards, or 0. */
static uint64_t consume(struct audit *audit, size_t n)
{
    uint64_t prune_before = 0;

    while (n-- > 0) {
        struct audit_entry *entry = audit->pending.first;
        audit->pending.first = entry->next;
        audit->pending.n--;
        audit->pending.bytes -= entry->len + 1;
        audit->seq = entry->seq;
        if (audit->first_seq == 0)
            audit->first_seq = entry->seq;
        if (entry->prune_before)
            prune_before = entry->prune_before;
        if (entry->done)
            tell(audit, entry, 0);
        else
            mem_free(entry);
    }
    return prune_before;
}

static int write_chunk(struct audit *audit, uint64_t *prune_before)
{
    char hash[SHA256_HEX];
    size_t n = 0;

    int r = fill_chunk(audit, &n, hash);
    if (r == 0 && n == 0) {
        r = rotate(audit);
        if (r == 0)
            audit->pruned_ns = 0; /* look at retention */
        return r;
    }
    if (r == 0)
        r = append(audit->fd, audit->size, &audit->dirty, audit->out.data, audit->out.len);
    if (r < 0)
        return r;
    audit->size += audit->out.len;
    memcpy(audit->hash, hash, SHA256_HEX);
    uint64_t before = consume(audit, n);
    *prune_before = before ? before : *prune_before;
    return 0;
}

static void write_pending(struct audit *audit)
{
    uint64_t prune_before = 0;
    int r = 0;

    while (r == 0 && audit->pending.first)
        r = write_chunk(audit, &prune_before);
    if (r < 0) {
        audit->retry_ns = clock_mono_ns() + RETRY_NS;
        tell_failure(audit, r);
    } else {
        audit->retry_ns = 0;
    }
    if (prune_before) {
        if (sign_head(audit) == 0)
            audit_prune(audit, prune_before);
        audit->pruning = false;
    }
}

/* ---- the thread ----------------------------------------------------------------------------------------------- */

/* With the lock held: a line about what was dropped, when it is time. */
static void tell_dropped(struct audit *audit, uint64_t now)
{
    char detail[96];
    uint64_t n = audit->dropped - audit->dropped_told;

    if (n == 0 || now - audit->dropped_told_ns < TELL_NS)
        return;
    snprintf(detail, sizeof(detail), "%llu events were dropped: too many at once", (unsigned long long)n);
    const struct audit_event event = {
        .action = "audit.dropped", .actor = "system", .outcome = "failed", .detail = detail};
    if (audit_enqueue(audit, &event, NULL, NULL, 0) != 0)
        audit->dropped_told += n;
    audit->dropped_told_ns = now;
}

/* With the lock held: when there is something to do next; UINT64_MAX: when somebody says so. */
static uint64_t next_deadline(const struct audit *audit)
{
    uint64_t at = UINT64_MAX;

    if (audit->stop || audit->reopen)
        return 0;
    if (audit->pending.first)
        at = audit->retry_ns;
    else if (audit->queue.first)
        at = audit->urgent ? 0 : audit->first_queued_ns + GROUP_NS;
    if (audit->dropped != audit->dropped_told && audit->dropped_told_ns + TELL_NS < at)
        at = audit->dropped_told_ns + TELL_NS;
    uint64_t repeat_at = audit_repeat_deadline(audit);
    at = repeat_at < at ? repeat_at : at;
    uint64_t head_at = audit->head_ns ? audit->head_ns + audit->options.head_seconds * NS_PER_SEC : 0;
    if (audit->seq > audit->head_seq && head_at < at)
        at = head_at;
    return at;
}

/* With the lock held. */
static void wait_for_work(struct audit *audit)
{
    for (;;) {
        uint64_t at = next_deadline(audit);
        if (at <= clock_mono_ns())
            return;
        struct timespec ts = {.tv_sec = (time_t)(at / NS_PER_SEC), .tv_nsec = (long)(at % NS_PER_SEC)};
        if (at == UINT64_MAX)
            pthread_cond_wait(&audit->wake, &audit->lock);
        else
            pthread_cond_timedwait(&audit->wake, &audit->lock, &ts);
    }
}

/* With the lock held: the queue becomes pending, behind what is so already (and could not be written). */
static void take_queue(struct audit *audit)
{
    if (!audit->pending.first)
        audit->pending.end = &audit->pending.first;
    if (audit->queue.first) {
        *audit->pending.end = audit->queue.first;
        audit->pending.end = audit->queue.end;
        audit->pending.n += audit->queue.n;
        audit->pending.bytes += audit->queue.bytes;
    }
    audit->queue = (struct audit_queue){0};
    audit->urgent = false;
    audit->backlog_n = audit->pending.n;
    audit->backlog_bytes = audit->pending.bytes;
}

/* Somebody may have moved the file away: then a new one begins, and the chain goes on in it. */
static int reopen(struct audit *audit)
{
    struct stat here, there;

    if (fstat(audit->fd, &here) < 0)
        return -errno;
    if (fstatat(audit->dir_fd, AUDIT_CURRENT, &there, AT_SYMLINK_NOFOLLOW) == 0)
        return here.st_ino == there.st_ino && here.st_dev == there.st_dev ? 0 : -EEXIST;
    if (errno != ENOENT)
        return -errno;
    int fd =
        openat(audit->dir_fd, AUDIT_CURRENT, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    begin_file(audit, fd);
    return fsync(audit->dir_fd) < 0 ? -errno : 0;
}

/* At the end: what could not be written is lost, and those who wait hear it. */
static void give_up(struct audit *audit)
{
    struct audit_entry *entry;

    while ((entry = audit->pending.first)) {
        audit->pending.first = entry->next;
        if (entry->done)
            tell(audit, entry, -EIO);
        else
            mem_free(entry);
    }
}

static void set_backlog(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    audit->backlog_n = audit->pending.n;
    audit->backlog_bytes = audit->pending.bytes;
    audit->disk_seq = audit->seq;
    pthread_cond_broadcast(&audit->settled);
    pthread_mutex_unlock(&audit->lock);
}

void *audit_writer(void *arg)
{
    struct audit *audit = arg;
    bool stop = false;

    while (!stop) {
        pthread_mutex_lock(&audit->lock);
        wait_for_work(audit);
        uint64_t now = clock_mono_ns();
        stop = audit->stop;
        audit_repeat_tell(audit, now, stop);
        tell_dropped(audit, now);
        bool wants_reopen = audit->reopen;
        bool may_write = stop || now >= audit->retry_ns;
        if (may_write)
            take_queue(audit);
        pthread_mutex_unlock(&audit->lock);

        if (may_write && audit->pending.first)
            write_pending(audit);
        if (head_is_due(audit, now) || stop)
            (void)!sign_head(audit);
        if (!stop)
            audit_retention(audit);
        set_backlog(audit);
        if (wants_reopen) {
            int r = reopen(audit);
            pthread_mutex_lock(&audit->lock);
            audit->reopen = false;
            audit->reopen_result = r;
            pthread_cond_broadcast(&audit->reopened);
            pthread_mutex_unlock(&audit->lock);
        }
    }
    give_up(audit);
    return NULL;
}
