/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_blob.c: downloads one blob to a file that ends in ".part" and renames it when its size and its digest are right.
 *
 * Every byte is hashed as it comes. A part that is there from before is hashed first, and the server is asked for the
 * rest. If the server sends everything again, the part begins again too. The first byte beyond the size in the manifest
 * ends the transfer. If what came has another digest, the part is emptied. If some of it was there from before, the
 * server gets one more try from the first byte, because the fault may be in the old part. A complete file is on the
 * disk (fsync) before it has its name, so a file without ".part" is always whole.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/reserve.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "template/distribution_priv.h"
#include "template/spool.h"

#define READ_BYTES (1u << 20)

struct part {
    struct dist_fetch *fetch;
    struct dist_server *server;
    int fd;
    struct crypto_hash *hash;
    uint64_t at;    /* bytes in the file, all of them in the hash */
    uint64_t asked; /* Range of this request */
    bool begun;     /* its first bytes have been judged */
    bool wrong_range;
    bool mixed; /* not all of it came from the present server in this fetch */
    struct brig_err *err;
    bool ours; /* the failure is the disk's */
};

static const char *blob_name(const struct dist_fetch *fetch)
{
    return fetch->digest + 7;
}

int dist_blob_file(const char *owner, const char *digest, char out[DIST_FILE])
{
    return str_format(out, DIST_FILE, "sha256/%s%s%s", owner, owner[0] ? "-" : "", digest + 7) < 0 ? -EINVAL : 0;
}

/* Within sha256/, with something behind it. */
static int file_name(const struct dist_fetch *fetch, const char *more, char out[DIST_FILE])
{
    char name[DIST_FILE];
    int r = dist_blob_file(fetch->owner, fetch->digest, name);

    return r < 0 ? r : str_format(out, DIST_FILE, "%s%s", name + strlen("sha256/"), more);
}

static int own_fault(struct part *part, int errnum)
{
    part->ours = true;
    return err_set(part->err, BRIG_E_HOST, errnum, "blob %.12s", blob_name(part->fetch));
}

static int part_restart(struct part *part)
{
    uint8_t ignored[SHA256_SIZE];

    if (ftruncate(part->fd, 0) < 0)
        return own_fault(part, errno);
    if (crypto_hash_end(part->hash, ignored) < 0)
        return own_fault(part, ENOMEM);
    part->at = 0;
    part->mixed = false;
    atomic_store(&part->fetch->at, 0);
    return 0;
}

/* ---- what comes ------------------------------------------------------------------------------------------- */

static int judge_answer(struct part *part, const struct dist_reply *reply)
{
    uint64_t from = reply->status == 206 ? part->asked : 0;

    if (reply->status == 206 && (!reply->has_range || reply->range_from != part->asked)) {
        part->wrong_range = true;
        return err_set(part->err, BRIG_E_INVALID, 0, "%.100s sent another part of the blob than we asked for",
                       part->server->host);
    }
    if (from == 0 && part->at > 0 && part_restart(part) < 0)
        return -EIO;
    if (reply->has_length && reply->length != part->fetch->size - from)
        return err_set(part->err, BRIG_E_INVALID, 0, "%.60s says that blob %.12s has %llu bytes, which has %llu",
                       part->server->host, blob_name(part->fetch), (unsigned long long)(reply->length + from),
                       (unsigned long long)part->fetch->size);
    return 0;
}

static int on_data(void *ctx, const struct dist_reply *reply, const char *data, size_t len)
{
    struct part *part = ctx;

    if (!part->begun && judge_answer(part, reply) < 0)
        return -EIO;
    part->begun = true;
    if (len > part->fetch->size - part->at)
        return err_set(part->err, BRIG_E_TOO_LARGE, 0, "%.60s sends more than the %llu bytes of blob %.12s",
                       part->server->host, (unsigned long long)part->fetch->size, blob_name(part->fetch));
    if (!reserve_leaves(part->fd, len))
        return own_fault(part, ENOSPC);
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(part->fd, data + done, len - done, (off_t)(part->at + done));
        if (n < 0 && errno != EINTR)
            return own_fault(part, errno);
        done += n > 0 ? (size_t)n : 0;
    }
    if (crypto_hash_add(part->hash, data, len) < 0)
        return own_fault(part, ENOMEM);
    part->at += len;
    atomic_store(&part->fetch->at, part->at);
    return 0;
}

/* ---- the file --------------------------------------------------------------------------------------------- */

/* Hashes what is there from before. */
static int part_read(struct part *part)
{
    struct stat st;
    AUTO_FREE char *chunk = mem_alloc(READ_BYTES);

    if (!chunk)
        return own_fault(part, ENOMEM);
    if (fstat(part->fd, &st) < 0)
        return own_fault(part, errno);
    if (!S_ISREG(st.st_mode))
        return own_fault(part, EINVAL);
    if ((uint64_t)st.st_size > part->fetch->size)
        return part_restart(part);
    for (;;) {
        if (atomic_load(&part->fetch->stop))
            return -ECANCELED;
        ssize_t n = RETRY(pread(part->fd, chunk, READ_BYTES, (off_t)part->at));
        if (n < 0)
            return own_fault(part, errno);
        if (n == 0)
            break;
        if (crypto_hash_add(part->hash, chunk, (size_t)n) < 0)
            return own_fault(part, ENOMEM);
        part->at += (uint64_t)n;
    }
    part->mixed = part->at > 0;
    atomic_store(&part->fetch->at, part->at);
    return 0;
}

static int part_finish(struct part *part)
{
    int dir = part->fetch->dist->blobs_fd;
    char from[DIST_FILE], to[DIST_FILE];

    if (file_name(part->fetch, ".part", from) < 0 || file_name(part->fetch, "", to) < 0)
        return own_fault(part, EINVAL);
    if (fsync(part->fd) < 0 || renameat(dir, from, dir, to) < 0 || fsync(dir) < 0)
        return own_fault(part, errno);
    return 0;
}

/* All bytes are there: are they the right ones? 1: no, and the part is empty now. */
static int part_judge(struct part *part)
{
    uint8_t sum[SHA256_SIZE];
    char hex[SHA256_HEX];

    if (crypto_hash_end(part->hash, sum) < 0)
        return own_fault(part, ENOMEM);
    crypto_hex(sum, sizeof sum, hex);
    if (str_eq(hex, blob_name(part->fetch)))
        return part_finish(part);
    bool mixed = part->mixed;
    int r = part_restart(part);
    if (r == 0)
        (void)err_set(part->err, BRIG_E_INVALID, 0, "%.60s sent something else for blob %.12s: its digest is %s",
                      part->server->host, blob_name(part->fetch), hex);
    part->mixed = mixed;
    return r < 0 ? r : 1;
}

/* ---- one attempt ------------------------------------------------------------------------------------------ */

static int ask(struct part *part, struct dist_reply *reply)
{
    const struct image_ref *ref = &part->fetch->origin->ref;
    char url[DIST_URL], scope[DIST_SCOPE], what[32];

    if (str_format(url, sizeof url, "%s/v2/%s/blobs/%s", part->server->url, ref->repository, part->fetch->digest) < 0 ||
        str_format(scope, sizeof scope, "repository:%s:pull", ref->repository) < 0 ||
        str_format(what, sizeof what, "blob %.12s", blob_name(part->fetch)) < 0)
        return err_set(part->err, BRIG_E_INVALID, 0, "%.100s: the address is too long", part->server->host);
    struct dist_get get = {.url = url, .from = part->at, .server = part->server, .sink = on_data, .ctx = part};
    part->asked = part->at;
    part->begun = part->wrong_range = false;
    int r = dist_request_as(part->fetch, &get, scope, reply, part->err);
    if (part->at > 0 && (part->wrong_range || (r == 0 && reply->status == 416))) { /* then all of it again */
        reply->soon = true;
        if (part_restart(part) < 0)
            return -EIO;
        return err_set(part->err, BRIG_E_INVALID, 0, "%.100s sent another part of the blob than we asked for",
                       part->server->host);
    }
    if (r == 0 && reply->status != 200 && reply->status != 206)
        return dist_status_error(part->server, what, reply, part->err);
    return r;
}

static int get_blob(struct dist_fetch *fetch, struct dist_server *server, void *ctx, struct dist_reply *reply,
                    struct brig_err *err)
{
    struct part *part = ctx;
    int r = 0;

    if (part->server && part->server != server)
        part->mixed = part->at > 0;
    part->server = server;
    part->err = err;
    if (part->at < fetch->size)
        r = ask(part, reply);
    if (r == 0 && part->at < fetch->size) {
        reply->soon = true;
        r = err_set(err, BRIG_E_HOST, 0, "%.60s ended blob %.12s after %llu of %llu bytes", server->host,
                    blob_name(fetch), (unsigned long long)part->at, (unsigned long long)fetch->size);
    }
    if (r == 0) {
        r = part_judge(part);
        if (r > 0) {
            reply->soon = part->mixed;
            part->mixed = false;
            r = -EINVAL;
        }
    }
    reply->bad = part->ours;
    return r;
}

/* ---- a fetch ---------------------------------------------------------------------------------------------- */

/* Is it there already? 1: yes; 0: no. A complete file has the right digest, so another size is the caller's lie. */
static int is_there(const struct dist_fetch *fetch, struct brig_err *err)
{
    char name[DIST_FILE];
    struct stat st;

    if (file_name(fetch, "", name) < 0)
        return err_set(err, BRIG_E_HOST, EINVAL, "blob %.12s", blob_name(fetch));
    if (fstatat(fetch->dist->blobs_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_host(err, "blob %.12s", blob_name(fetch));
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size == fetch->size)
        return 1;
    return err_set(err, BRIG_E_INVALID, 0, "blob %.12s has %lld bytes, and not %llu", blob_name(fetch),
                   (long long)st.st_size, (unsigned long long)fetch->size);
}

int dist_work_blob(struct dist_fetch *fetch, struct brig_err *err)
{
    struct part part = {.fetch = fetch, .fd = -1, .err = err};
    char name[DIST_FILE];
    int r = is_there(fetch, err);

    if (r != 0) {
        atomic_store(&fetch->at, fetch->size);
        return r < 0 ? r : 0;
    }
    if (file_name(fetch, ".part", name) < 0 || crypto_hash_create(&part.hash) < 0)
        return err_nomem(err);
    part.fd = spool_file(fetch->dist->blobs_fd, name, O_RDWR | O_NONBLOCK);
    r = part.fd < 0 ? own_fault(&part, errno) : part_read(&part);
    if (r == 0)
        r = dist_servers_try(fetch, get_blob, &part, err);
    base_close_fd(&part.fd);
    crypto_hash_destroy(part.hash);
    return r;
}
