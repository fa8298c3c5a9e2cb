/* SPDX-License-Identifier: Apache-2.0 */
/* layer_out.c: the archive that a verb writes on the standard output, through one buffer. */
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "layer/layer.h"

static int flush(struct layer_out *out, struct brig_err *err)
{
    int r = fd_write_all(STDOUT_FILENO, out->data, out->len);

    out->len = 0;
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the standard output") : 0;
}

int out_put(struct layer_out *out, const void *data, size_t len, struct brig_err *err)
{
    const uint8_t *from = data;

    while (len > 0) {
        size_t room = sizeof(out->data) - out->len, n = len < room ? len : room;
        int r;

        if (from) {
            memcpy(out->data + out->len, from, n);
            from += n;
        } else {
            memset(out->data + out->len, 0, n);
        }
        out->len += n;
        len -= n;
        if (out->len == sizeof(out->data) && (r = flush(out, err)) < 0)
            return r;
    }
    return 0;
}

static void set_date(const struct layer_options *dates, struct tar_member *member)
{
    const int64_t date = !dates ? -1 : dates->mtime >= 0 ? dates->mtime : dates->latest;

    if (date < 0 || (dates->mtime < 0 && member->mtime < date))
        return;
    member->mtime = date;
    member->mtime_ns = 0;
}

int out_head(struct layer_out *out, const struct tar_member *member, const struct tar_extra *extra,
             struct brig_err *err)
{
    struct tar_member dated = *member;

    set_date(out->dates, &dated);
    int len = tar_put_extra(out->head, sizeof(out->head), &dated, extra);
    return len < 0 ? layer_fail(err, member->name, -len, "its header") : out_put(out, out->head, (size_t)len, err);
}

int out_range(struct layer_out *out, int fd, uint64_t at, uint64_t left, const char *name, struct brig_err *err)
{
    while (left > 0) {
        size_t room = sizeof(out->data) - out->len;
        ssize_t n = pread(fd, out->data + out->len, left < room ? (size_t)left : room, (off_t)at);
        int r;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return layer_fail(err, name, n < 0 ? errno : 0, "it changed while it was read");
        out->len += (size_t)n;
        at += (uint64_t)n;
        left -= (uint64_t)n;
        if (out->len == sizeof(out->data) && (r = flush(out, err)) < 0)
            return r;
    }
    return 0;
}

int out_end(struct layer_out *out, struct brig_err *err)
{
    int r = out_put(out, NULL, (size_t)2 * TAR_BLOCK, err);

    return r < 0 ? r : flush(out, err);
}
