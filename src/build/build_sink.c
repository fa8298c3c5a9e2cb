/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_sink.c: the tar of a layer on its way from a sandbox into a file of ours. The bytes are hashed as they come, so
 * the diff id of the layer is known when it ends, and a thread writes them.
 */
#include <fcntl.h>

#include "build/build_priv.h"

static void check(struct build_sink *sink)
{
    if (!sink->ended || sink->over || !spool_is_idle(sink->spool))
        return;
    sink->over = true;
    sink->done(sink->stage);
}

static void on_wrote(void *ctx, size_t len, int error)
{
    struct build_sink *sink = ctx;
    struct brig_err err;

    if (error < 0) {
        (void)err_set(&err, BRIG_E_HOST, -error, "the layer could not be kept");
        stage_fail(sink->stage, &err);
        return;
    }
    sink->wrote(sink->stage, len);
    check(sink);
}

int sink_create(struct build_stage *stage, void (*wrote)(struct build_stage *stage, size_t len),
                void (*done)(struct build_stage *stage), struct build_sink **ret, struct brig_err *err)
{
    struct builds *builds = stage->build->builds;
    struct build_sink *sink = mem_zalloc(sizeof *sink);

    if (!sink)
        return err_nomem(err);
    *sink = (struct build_sink){.stage = stage, .wrote = wrote, .done = done};
    int r = library_file(builds->o.library, "layer", &sink->file, err);
    if (r == 0 && crypto_hash_create(&sink->hash) < 0)
        r = err_nomem(err);
    AUTO_FD int copy = r == 0 ? fcntl(sink->file->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (r == 0 && copy < 0)
        r = err_host(err, "a file for a layer");
    if (r == 0 && spool_create(builds->o.workers, stage->build->caller.org_id, copy, on_wrote, sink, &sink->spool) < 0)
        r = err_nomem(err);
    if (r < 0) {
        sink_free(sink);
        return r;
    }
    (void)take_fd(&copy);
    *ret = sink;
    return 0;
}

void sink_write(struct build_sink *sink, const void *data, size_t len)
{
    const uint64_t max = sink->stage->build->builds->o.config->templates_max_image;
    const uint8_t *bytes = data;

    if (sink->err.code)
        return;
    for (size_t i = 0; !sink->any && i < len; i++)
        sink->any = bytes[i] != 0; /* an archive without members is all zero */
    if (sink->bytes + len > max) {
        (void)err_set(&sink->err, BRIG_E_TOO_LARGE, 0, "the layer has more than %llu MiB ([templates] max_image)",
                      (unsigned long long)(max >> 20));
        return;
    }
    if (build_charge(sink->stage->build, len, &sink->err) < 0)
        return;
    sink->bytes += len;
    if (crypto_hash_add(sink->hash, data, len) < 0 || spool_write(sink->spool, data, len) < 0)
        (void)err_nomem(&sink->err);
}

void sink_end(struct build_sink *sink)
{
    sink->ended = true;
    check(sink);
}

void sink_free(struct build_sink *sink)
{
    if (!sink)
        return;
    spool_free(sink->spool);
    crypto_hash_destroy(sink->hash);
    library_file_done(sink->stage->build->builds->o.library, sink->file);
    build_uncharge(sink->stage->build, sink->bytes);
    mem_free(sink);
}
