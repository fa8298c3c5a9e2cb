/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip.c: zlib's inflate with a ceiling on the ratio. */
#include "http/gunzip.h"

#include <zlib.h>

#include "base/err.h"
#include "base/mem.h"

#define GZIP_WINDOW (15 + 16) /* the largest window, gzip framing */
#define FREE_BYTES (1u << 20) /* output that no ratio is asked for */
#define STEP (64u << 10)

struct gunzip {
    z_stream zlib;
    bool ended;
};

int gunzip_create(struct gunzip **ret, struct brig_err *err)
{
    struct gunzip *gunzip = mem_zalloc(sizeof *gunzip);

    if (!gunzip || inflateInit2(&gunzip->zlib, GZIP_WINDOW) != Z_OK) {
        mem_free(gunzip);
        return err_nomem(err);
    }
    *ret = gunzip;
    return 0;
}

void gunzip_destroy(struct gunzip *gunzip)
{
    if (!gunzip)
        return;
    inflateEnd(&gunzip->zlib);
    mem_free(gunzip);
}

static int check_ratio(const struct gunzip *gunzip, struct brig_err *err)
{
    if (gunzip->zlib.total_out <= FREE_BYTES || gunzip->zlib.total_out / GUNZIP_RATIO <= gunzip->zlib.total_in)
        return 0;
    return err_set(err, BRIG_E_TOO_LARGE, 0, "the archive unpacks to more than %u times its size", GUNZIP_RATIO);
}

int gunzip_add(struct gunzip *gunzip, const void *data, size_t len, struct buf *out, struct brig_err *err)
{
    int r = 0;

    gunzip->zlib.next_in = (Bytef *)(uintptr_t)data;
    gunzip->zlib.avail_in = (uInt)len;
    while (gunzip->zlib.avail_in > 0) {
        if (gunzip->ended)
            return err_usage(err, "there are bytes after the end of the gzip stream");
        if (buf_reserve(out, STEP) < 0)
            return err_nomem(err);
        gunzip->zlib.next_out = (Bytef *)out->data + out->len;
        gunzip->zlib.avail_out = STEP;
        int status = inflate(&gunzip->zlib, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return err_usage(err, "the body is not gzip, or it is damaged");
        buf_commit(out, STEP - gunzip->zlib.avail_out);
        if ((r = check_ratio(gunzip, err)) < 0)
            return r;
        gunzip->ended = status == Z_STREAM_END;
    }
    return 0;
}

int gunzip_end(struct gunzip *gunzip, struct brig_err *err)
{
    return gunzip->ended ? 0 : err_usage(err, "the gzip stream is cut short");
}
