/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c: creates and destroys an engine, and hands the spawner's messages to the runs that they belong to. */
#include "engine/engine.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"

static void spawner_gone(struct brig_engine *engine, const struct brig_err *why)
{
    if (engine->gone)
        return;
    engine->gone = true;
    engine->gone_why = *why;
    loop_remove(engine->loop, &engine->on_spawner);
    base_close_fd(&engine->spawner_fd);
    for (struct brig_run *run = engine->runs, *next; run; run = next) {
        next = run->next;
        run_on_gone(run, why);
    }
}

static struct brig_run *find_run(struct brig_engine *engine, uint64_t number)
{
    struct brig_run *run = engine->runs;

    while (run && run->number != number)
        run = run->next;
    return run;
}

static void on_message(struct brig_engine *engine, const union wire_any *msg, int *fds, size_t n_fds)
{
    struct brig_run *run = msg->head.run ? find_run(engine, msg->head.run) : NULL;

    switch (msg->head.type) {
    case WIRE_READY:
        engine->facts = msg->ready;
        if (msg->ready.err.code != BRIG_E_NONE) {
            engine->facts.err.message[sizeof engine->facts.err.message - 1] = '\0';
            spawner_gone(engine, &engine->facts.err);
        } else {
            engine->ready = true;
        }
        break;
    case WIRE_STARTED:
        if (run)
            run_on_started(run, &msg->started, fds, n_fds);
        break;
    case WIRE_DONE:
        if (run)
            run_on_done(run, &msg->done);
        break;
    case WIRE_GATE_OPEN:
        if (run)
            run_on_gate_open(run, &msg->gate_open, fds, n_fds);
        break;
    case WIRE_POOL_FULL:
        engine->pool_full = true;
        engine->pool_err = msg->pool.err;
        engine->pool_err.message[sizeof engine->pool_err.message - 1] = '\0';
        break;
    default: break;
    }
}

static void on_spawner(struct loop_source *source, uint32_t events UNUSED)
{
    struct brig_engine *engine = source->ctx;

    /* As many as are there: a burst of ends is one wake-up. */
    for (int i = 0; i < 64 && !engine->gone; i++) {
        union wire_any msg;
        int fds[WIRE_FDS];
        size_t n_fds = 0;
        ssize_t n = fd_recv_nowait(engine->spawner_fd, &msg, sizeof msg, fds, WIRE_FDS, &n_fds);

        if (n == -EAGAIN)
            return;
        if (n <= 0 || wire_check(&msg, (size_t)n) < 0) {
            struct brig_err why;
            fd_close_all(fds, n_fds);
            (void)err_set(&why, BRIG_E_GONE, 0, "the spawner died, and every sandbox with it");
            spawner_gone(engine, &why);
            return;
        }
        on_message(engine, &msg, fds, n_fds);
        fd_close_all(fds, n_fds);
    }
}

static int set_pool(struct brig_engine *engine, unsigned pool, struct brig_err *err)
{
    struct wire_pool msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_POOL, 0}, .count = pool};
    int r = pool ? fd_send(engine->spawner_fd, &msg, sizeof msg, NULL, 0) : 0;

    return r < 0 ? err_set(err, BRIG_E_GONE, -r, "ask for a pool") : 0;
}

static int start(struct brig_engine *engine, const struct brig_engine_options *options, struct brig_err *err)
{
    int r = loop_create(&engine->loop, err);

    if (r == 0 && !(engine->chunk = mem_alloc(ENGINE_CHUNK)))
        r = err_nomem(err);
    if (r == 0)
        r = engine_spawn(options, &engine->spawner_fd, &engine->forked, err);
    if (r == 0)
        r = loop_add(engine->loop, &engine->on_spawner, engine->spawner_fd, EPOLLIN, err);
    while (r == 0 && !(options && (options->flags & BRIG_ENGINE_FORK)) && !engine->ready) {
        r = loop_run_once(engine->loop, -1, err);
        if (engine->gone) {
            if (err)
                *err = engine->gone_why;
            return engine->gone_why.errnum ? -engine->gone_why.errnum : -EIO;
        }
    }
    engine->pool = options ? options->pool : 0;
    return r == 0 ? set_pool(engine, engine->pool, err) : r;
}

int brig_engine_create(const struct brig_engine_options *options, struct brig_engine **ret, struct brig_err *err)
{
    if (options &&
        (options->size < offsetof(struct brig_engine_options, helper_dir) || options->size > STRUCT_SIZE_MAX))
        return err_usage(err, "struct brig_engine_options: size %zu is not a size of it", options->size);
    struct brig_engine *engine = mem_zalloc(sizeof *engine);
    if (!engine)
        return err_nomem(err);
    engine->spawner_fd = -1;
    engine->next_number = 1;
    engine->on_spawner = (struct loop_source){.fd = -1, .fn = on_spawner, .ctx = engine};
    struct brig_engine_options known = {.size = sizeof known};
    if (options)
        memcpy(&known, options, options->size < sizeof known ? options->size : sizeof known);
    if (known.helper_dir && !(engine->helper_dir = mem_strdup(known.helper_dir))) {
        mem_free(engine);
        return err_nomem(err);
    }
    int r = start(engine, &known, err);
    if (r < 0) {
        brig_engine_destroy(engine);
        return r;
    }
    *ret = engine;
    return 0;
}

void brig_engine_destroy(struct brig_engine *engine)
{
    if (!engine)
        return;
    while (engine->runs)
        brig_run_destroy(engine->runs);
    engine_gate_destroy(engine);
    base_close_fd(&engine->spawner_fd);
    if (engine->forked > 0)
        (void)!waitpid(engine->forked, NULL, __WALL | WNOHANG);
    loop_destroy(engine->loop);
    mem_free(engine->chunk);
    mem_free(engine->helper_dir);
    mem_free(engine);
}

int brig_engine_fd(const struct brig_engine *engine)
{
    return loop_fd(engine->loop);
}

int brig_engine_dispatch(struct brig_engine *engine, int timeout_ms, struct brig_err *err)
{
    if (engine->gone) {
        if (err)
            *err = engine->gone_why;
        return -EPIPE;
    }
    engine->depth++;
    if (engine->lost_gates)
        engine_gate_tend(engine);
    int r = loop_run_once(engine->loop, timeout_ms, err);
    if (engine->lost_gates)
        engine_gate_tend(engine);
    engine->depth--;
    return r;
}

int brig_engine_fill(struct brig_engine *engine, struct brig_err *err)
{
    int r = 0;

    if (engine->gone)
        return brig_engine_dispatch(engine, 0, err);
    while (r == 0 && engine->pool > 0 && !engine->pool_full)
        r = brig_engine_dispatch(engine, -1, err);
    if (r == 0 && engine->pool_err.code != BRIG_E_NONE) {
        if (err)
            *err = engine->pool_err;
        return engine->pool_err.errnum ? -engine->pool_err.errnum : -EIO;
    }
    return r;
}
