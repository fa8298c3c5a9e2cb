/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_stream.c: the bytes that a blob unpacks to: plain, gzip (also several members) or zstd (also several frames);
 * for ADD, whose archives are no layers of images, also xz and bzip2.
 *
 * A thread reads and unpacks into a ring of buffers while the caller works on the piece before: unpacking a file and
 * writing it cost about the same. Memory is the ring and what the format needs (zstd: a window of at most 128 MiB).
 * What comes out is bounded, in bytes and against what went in, so a bomb is refused while it is small.
 */
#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "layer/layer.h"

#define PIECE (256u << 10)
#define PIECES 6u
#define GZIP_WINDOW (15 + 16) /* the largest window, gzip framing */
#define ZSTD_WINDOW 27        /* 128 MiB: what every reader of zstd allows */

#define XZ_MEMORY (UINT64_C(128) << 20)

enum format { FORMAT_TAR, FORMAT_GZIP, FORMAT_ZSTD, FORMAT_XZ, FORMAT_BZIP2, FORMAT_MAX };
static const char *const format_names[FORMAT_MAX] = {"tar", "gzip", "zstd", "xz", "bzip2"};

struct piece {
    size_t len;
    uint8_t data[PIECE];
};

struct layer_stream {
    const struct layer_options *options;
    int fd;
    uint64_t left; /* of the blob; UINT64_MAX for all there is */
    enum format format;
    uint8_t in[PIECE];
    size_t in_at, in_len;
    bool in_ended, out_ended;
    uint64_t total_out;
    _Atomic uint64_t total_in;
    z_stream zlib;
    ZSTD_DStream *zstd;
    lzma_stream xz;
    bz_stream bzip2;
    bool has_bzip2;
    bool between; /* behind a whole member or frame */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    uint64_t n_filled, n_freed; /* pieces so far; the caller has n_freed .. n_freed + 1 */
    bool caller_has, ended, stopped;
    int result;
    struct brig_err err;
    struct piece ring[PIECES];
};

/* ---- the blob --------------------------------------------------------------------------------------------- */

static int ends_early(const struct layer_stream *stream, struct brig_err *err)
{
    return err_set(err, BRIG_E_INVALID, 0, "%s: it ends before --offset and --size say", stream->options->blob);
}

static int fill_in(struct layer_stream *stream, struct brig_err *err)
{
    size_t want = stream->left < PIECE ? (size_t)stream->left : PIECE;
    ssize_t n = 0;

    if (stream->in_at < stream->in_len || stream->in_ended)
        return 0;
    do
        n = want > 0 ? read(stream->fd, stream->in, want) : 0;
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_host(err, "%s", stream->options->blob);
    if (n == 0 && stream->left > 0 && stream->left != UINT64_MAX)
        return ends_early(stream, err);
    stream->in_ended = n == 0;
    stream->in_at = 0;
    stream->in_len = (size_t)n;
    if (stream->left != UINT64_MAX)
        stream->left -= (uint64_t)n;
    return 0;
}

static void use(struct layer_stream *stream, size_t n)
{
    stream->in_at += n;
    atomic_fetch_add_explicit(&stream->total_in, n, memory_order_relaxed);
}

/* ---- formats: each appends to out, and uses up input or says that it ended ---------------------------------- */

static int damaged(const struct layer_stream *stream, struct brig_err *err, const char *how)
{
    return err_set(err, BRIG_E_INVALID, 0, "the %s stream: %s", format_names[stream->format], how);
}

static int take_plain(struct layer_stream *stream, struct piece *out)
{
    size_t n = stream->in_len - stream->in_at;

    n = n < PIECE - out->len ? n : PIECE - out->len;
    memcpy(out->data + out->len, stream->in + stream->in_at, n);
    out->len += n;
    use(stream, n);
    return 0;
}

/* Behind a member there is another one, or padding. */
static int next_member(struct layer_stream *stream, struct brig_err *err)
{
    if (stream->in[stream->in_at] == 0) {
        use(stream, 1);
        return 0;
    }
    if (stream->in[stream->in_at] != 0x1f)
        return damaged(stream, err, "other bytes follow its end");
    stream->between = false;
    return inflateReset(&stream->zlib) == Z_OK ? 0 : err_nomem(err);
}

static int take_gzip(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    size_t have = stream->in_len - stream->in_at;
    int status;

    if (stream->between)
        return next_member(stream, err);
    stream->zlib.next_in = stream->in + stream->in_at;
    stream->zlib.avail_in = (uInt)have;
    stream->zlib.next_out = out->data + out->len;
    stream->zlib.avail_out = (uInt)(PIECE - out->len);
    status = inflate(&stream->zlib, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR)
        return err_nomem(err);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        return damaged(stream, err, "it is damaged");
    out->len = PIECE - stream->zlib.avail_out;
    use(stream, have - stream->zlib.avail_in);
    stream->between = status == Z_STREAM_END;
    return 0;
}

static int take_zstd(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    ZSTD_inBuffer in = {stream->in, stream->in_len, stream->in_at};
    ZSTD_outBuffer to = {out->data, PIECE, out->len};
    size_t status = ZSTD_decompressStream(stream->zstd, &to, &in);

    if (ZSTD_isError(status))
        return damaged(stream, err, ZSTD_getErrorName(status));
    out->len = to.pos;
    use(stream, in.pos - stream->in_at);
    stream->between = status == 0;
    return 0;
}

static int take_xz(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    size_t have = stream->in_len - stream->in_at;
    lzma_ret status;

    stream->xz.next_in = stream->in + stream->in_at;
    stream->xz.avail_in = have;
    stream->xz.next_out = out->data + out->len;
    stream->xz.avail_out = PIECE - out->len;
    status = lzma_code(&stream->xz, stream->in_ended ? LZMA_FINISH : LZMA_RUN);
    if (status == LZMA_MEM_ERROR)
        return err_nomem(err);
    if (status == LZMA_MEMLIMIT_ERROR)
        return damaged(stream, err, "it needs more than 128 MiB to be unpacked");
    if (status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR)
        return damaged(stream, err, "it is damaged");
    out->len = PIECE - stream->xz.avail_out;
    use(stream, have - stream->xz.avail_in);
    stream->between = status == LZMA_STREAM_END;
    return 0;
}

static int open_bzip2(struct layer_stream *stream, struct brig_err *err)
{
    if (stream->has_bzip2)
        BZ2_bzDecompressEnd(&stream->bzip2);
    stream->bzip2 = (bz_stream){0};
    stream->has_bzip2 = BZ2_bzDecompressInit(&stream->bzip2, 0, 0) == BZ_OK;
    return stream->has_bzip2 ? 0 : err_nomem(err);
}

static int take_bzip2(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    size_t have = stream->in_len - stream->in_at;
    int status;

    if (stream->between && have > 0) { /* pbzip2 writes many of them */
        if (open_bzip2(stream, err) < 0)
            return -ENOMEM;
        stream->between = false;
    }
    stream->bzip2.next_in = (char *)stream->in + stream->in_at;
    stream->bzip2.avail_in = (unsigned)have;
    stream->bzip2.next_out = (char *)out->data + out->len;
    stream->bzip2.avail_out = (unsigned)(PIECE - out->len);
    status = BZ2_bzDecompress(&stream->bzip2);
    if (status == BZ_MEM_ERROR)
        return err_nomem(err);
    if (status != BZ_OK && status != BZ_STREAM_END)
        return damaged(stream, err, "it is damaged");
    out->len = PIECE - stream->bzip2.avail_out;
    use(stream, have - stream->bzip2.avail_in);
    stream->between = status == BZ_STREAM_END;
    return 0;
}

static int take_packed(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    switch (stream->format) {
    case FORMAT_GZIP: return take_gzip(stream, out, err);
    case FORMAT_ZSTD: return take_zstd(stream, out, err);
    case FORMAT_XZ: return take_xz(stream, out, err);
    default: return take_bzip2(stream, out, err);
    }
}

/* The input is used up. What a decoder still holds comes out by asking again with no input. */
static int at_end(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    size_t before = out->len;
    int r = 0;

    if (stream->format != FORMAT_TAR && !stream->between) {
        r = take_packed(stream, out, err);
        if (r == 0 && out->len == before && !stream->between)
            r = damaged(stream, err, "it is cut off");
    }
    stream->out_ended = out->len == before;
    return r;
}

static int check_bounds(const struct layer_stream *stream, struct brig_err *err)
{
    const struct layer_options *options = stream->options;

    if (stream->total_out > options->max_bytes)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the archive: it unpacks to more than %llu bytes",
                       (unsigned long long)options->max_bytes);
    if (stream->format != FORMAT_TAR && stream->total_out > LAYER_RATIO_FREE &&
        stream->total_out / options->max_ratio > atomic_load_explicit(&stream->total_in, memory_order_relaxed))
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the archive: it unpacks to more than %llu times its size",
                       (unsigned long long)options->max_ratio);
    return 0;
}

/* A full piece, or what is left. */
static int fill_piece(struct layer_stream *stream, struct piece *out, struct brig_err *err)
{
    int r = 0;

    out->len = 0;
    while (r == 0 && out->len < PIECE && !stream->out_ended) {
        if ((r = fill_in(stream, err)) < 0)
            break;
        if (stream->in_at == stream->in_len)
            r = at_end(stream, out, err);
        else if (stream->format == FORMAT_TAR)
            r = take_plain(stream, out);
        else
            r = take_packed(stream, out, err);
    }
    stream->total_out += out->len;
    return r < 0 ? r : check_bounds(stream, err);
}

/* ---- the thread ------------------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct layer_stream *stream = arg;
    bool more = true;

    while (more) {
        pthread_mutex_lock(&stream->lock);
        while (stream->n_filled - stream->n_freed == PIECES && !stream->stopped)
            pthread_cond_wait(&stream->freed, &stream->lock);
        more = !stream->stopped;
        pthread_mutex_unlock(&stream->lock);
        if (!more)
            break;
        struct piece *piece = &stream->ring[stream->n_filled % PIECES];
        int r = fill_piece(stream, piece, &stream->err);

        pthread_mutex_lock(&stream->lock);
        more = r == 0 && piece->len > 0;
        stream->result = r;
        stream->n_filled += more;
        stream->ended = !more;
        pthread_cond_signal(&stream->filled);
        pthread_mutex_unlock(&stream->lock);
    }
    return NULL;
}

int stream_next(struct layer_stream *stream, const uint8_t **ret, size_t *ret_len, struct brig_err *err)
{
    int r = 1;

    pthread_mutex_lock(&stream->lock);
    if (stream->caller_has) {
        stream->n_freed++;
        pthread_cond_signal(&stream->freed);
    }
    while (stream->n_filled == stream->n_freed && !stream->ended)
        pthread_cond_wait(&stream->filled, &stream->lock);
    stream->caller_has = stream->n_filled > stream->n_freed;
    if (stream->caller_has) {
        const struct piece *piece = &stream->ring[stream->n_freed % PIECES];
        *ret = piece->data;
        *ret_len = piece->len;
    } else {
        r = stream->result;
        if (r < 0 && err)
            *err = stream->err;
    }
    pthread_mutex_unlock(&stream->lock);
    return r;
}

uint64_t stream_at(const struct layer_stream *stream)
{
    return atomic_load_explicit(&stream->total_in, memory_order_relaxed);
}

const char *stream_format(const struct layer_stream *stream)
{
    return format_names[stream->format];
}

/* ---- life ------------------------------------------------------------------------------------------------- */

static bool begins_with(const struct layer_stream *stream, const char *bytes, size_t len)
{
    return stream->in_len >= len && memcmp(stream->in, bytes, len) == 0;
}

/* What the first bytes say; NULL: nothing that is compressed. */
static const char *packed_with(const struct layer_stream *stream)
{
    const uint8_t *in = stream->in;

    if (begins_with(stream, "\x1f\x8b", 2))
        return format_names[FORMAT_GZIP];
    if (begins_with(stream, "\x28\xb5\x2f\xfd", 4) ||
        (stream->in_len >= 4 && in[0] >> 4 == 5 && memcmp(in + 1, "\x2a\x4d\x18", 3) == 0))
        return format_names[FORMAT_ZSTD];
    if (begins_with(stream, "\xfd\x37zXZ", 5))
        return format_names[FORMAT_XZ];
    if (begins_with(stream, "BZh", 3))
        return format_names[FORMAT_BZIP2];
    return begins_with(stream, "\x04\x22\x4d\x18", 4) ? "lz4" : NULL;
}

static int find_format(struct layer_stream *stream, struct brig_err *err)
{
    const struct layer_options *options = stream->options;
    const char *name;

    if (fill_in(stream, err) < 0)
        return -EIO;
    name = packed_with(stream);
    for (enum format i = FORMAT_GZIP; name && i < (options->archives ? FORMAT_MAX : FORMAT_XZ); i++)
        if (str_eq(name, format_names[i]))
            stream->format = i;
    if (name && stream->format == FORMAT_TAR)
        return err_set(err, BRIG_E_INVALID, 0, "%s: it is compressed with %s; gzip and zstd are supported",
                       options->blob, name);
    if (options->format && !str_eq(options->format, format_names[stream->format]))
        return err_set(err, BRIG_E_INVALID, 0, "%s: it is %s and not %s", options->blob, format_names[stream->format],
                       options->format);
    return 0;
}

static int open_blob(struct layer_stream *stream, struct brig_err *err)
{
    const struct layer_options *options = stream->options;
    struct stat st;

    stream->left = options->size;
    if (str_eq(options->blob, "-")) {
        stream->fd = dup(STDIN_FILENO);
        return stream->fd < 0 ? err_host(err, "the standard input") : 0;
    }
    stream->fd = open(options->blob, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (stream->fd < 0 || (options->offset > 0 && lseek(stream->fd, (off_t)options->offset, SEEK_SET) < 0))
        return err_host(err, "%s", options->blob);
    if (options->size != UINT64_MAX && fstat(stream->fd, &st) == 0 && S_ISREG(st.st_mode) &&
        ((uint64_t)st.st_size < options->offset || (uint64_t)st.st_size - options->offset < options->size))
        return ends_early(stream, err);
    (void)!posix_fadvise(stream->fd, (off_t)options->offset, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

static int open_decoder(struct layer_stream *stream, struct brig_err *err)
{
    if (stream->format == FORMAT_GZIP && inflateInit2(&stream->zlib, GZIP_WINDOW) != Z_OK)
        return err_nomem(err);
    if (stream->format == FORMAT_XZ && lzma_stream_decoder(&stream->xz, XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK)
        return err_nomem(err);
    if (stream->format == FORMAT_BZIP2)
        return open_bzip2(stream, err);
    if (stream->format != FORMAT_ZSTD)
        return 0;
    stream->zstd = ZSTD_createDStream();
    if (!stream->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(stream->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW)))
        return err_nomem(err);
    return 0;
}

int stream_open(const struct layer_options *options, struct layer_stream **ret, struct brig_err *err)
{
    struct layer_stream *stream = mem_zalloc(sizeof(*stream));
    int r;

    if (!stream)
        return err_nomem(err);
    stream->options = options;
    stream->fd = -1;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->filled, NULL);
    pthread_cond_init(&stream->freed, NULL);
    r = open_blob(stream, err);
    if (r == 0)
        r = find_format(stream, err);
    if (r == 0)
        r = open_decoder(stream, err);
    if (r == 0 && (r = -pthread_create(&stream->thread, NULL, work, stream)) < 0)
        r = err_set(err, BRIG_E_HOST, -r, "a thread");
    stream->has_thread = r == 0;
    if (r < 0) {
        stream_close(stream);
        return r;
    }
    *ret = stream;
    return 0;
}

void stream_close(struct layer_stream *stream)
{
    if (!stream)
        return;
    if (stream->has_thread) {
        pthread_mutex_lock(&stream->lock);
        stream->stopped = true;
        pthread_cond_signal(&stream->freed);
        pthread_mutex_unlock(&stream->lock);
        pthread_join(stream->thread, NULL);
    }
    if (stream->format == FORMAT_GZIP)
        inflateEnd(&stream->zlib);
    ZSTD_freeDStream(stream->zstd);
    lzma_end(&stream->xz);
    if (stream->has_bzip2)
        BZ2_bzDecompressEnd(&stream->bzip2);
    pthread_cond_destroy(&stream->filled);
    pthread_cond_destroy(&stream->freed);
    pthread_mutex_destroy(&stream->lock);
    base_close_fd(&stream->fd);
    mem_free(stream);
}
