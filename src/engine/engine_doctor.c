/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_doctor.c: brig_doctor(): makes real sandboxes through the same interface as any other program, and turns what
 * they read back, and what the host lacks, into rows. If nothing works on a host, that is an answer and not an error.
 */
#include "engine/engine_doctor.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define PROBE_TIMEOUT_MS 120000u /* only for a host that hangs */
#define PROBE_DISK (UINT64_C(16) << 20)

static void say(char *out, size_t size, const char *format, va_list args) PRINTF_LIKE(3, 0);
static void say(char *out, size_t size, const char *format, va_list args)
{
    if (vsnprintf(out, size, format, args) < 0)
        out[0] = '\0';
    for (; *out; out++)
        if (!isascii((unsigned char)*out) || iscntrl((unsigned char)*out))
            *out = '?';
}

void row_on(struct brig_doctor_row *row, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(row->state, sizeof row->state, format, args);
    va_end(args);
    row->on = true;
    row->fix[0] = '\0';
}

void row_off(struct brig_doctor_row *row, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(row->state, sizeof row->state, format, args);
    va_end(args);
    row->on = false;
}

void row_fix(struct brig_doctor_row *row, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(row->fix, sizeof row->fix, format, args);
    va_end(args);
}

/* ---- the probe -------------------------------------------------------------------------------------- */

/* Runs to its end; *ret is the caller's to destroy. A run that did not come to its program is an error here. */
static int run_probe(struct brig_engine *engine, const struct brig_spec *spec, struct brig_run **ret,
                     struct brig_err *err)
{
    struct brig_run *run = NULL;
    int r = brig_run_start(engine, spec, &run, err);

    if (r == 0)
        r = brig_run_wait(run, err);
    if (r == 0) {
        const struct brig_receipt *receipt = brig_run_receipt(run);
        if (receipt->cause != BRIG_CAUSE_EXITED && receipt->cause != BRIG_CAUSE_SIGNALLED) {
            const char *why = receipt->detail[0] ? receipt->detail : brig_cause_name(receipt->cause);
            r = err_set(err, receipt->cause == BRIG_CAUSE_SANDBOX_GONE ? BRIG_E_GONE : BRIG_E_UNSUPPORTED, 0, "%s",
                        why);
        }
    }
    if (r < 0) {
        brig_run_destroy(run);
        return r;
    }
    *ret = run;
    return 0;
}

/* The io limits need a device behind the store, and are refused without: asked for in a sandbox of their own. */
static void probe_io(struct brig_engine *engine, struct doctor_probe *probe)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct brig_spec spec = {
        .size = sizeof spec,
        .argv = argv,
        .limits = {.io_read_bps = UINT64_C(1) << 40, .io_write_bps = UINT64_C(1) << 40, .timeout = PROBE_TIMEOUT_MS}};
    struct brig_run *run = NULL;
    struct brig_err err;

    if (run_probe(engine, &spec, &run, &err) < 0) {
        (void)!str_copy(probe->io_error, sizeof probe->io_error, err.message);
        return;
    }
    probe->layers[BRIG_LAYER_IO] = brig_run_receipt(run)->layers[BRIG_LAYER_IO];
    brig_run_destroy(run);
}

/*
 * Runs a program that shows its own limits; if it cannot be executed, there was still a sandbox around it. disk is the
 * limit to ask for, so that the store is an image where that is possible; or 0.
 */
static int probe_layers(struct brig_engine *engine, uint64_t disk, struct doctor_probe *probe, struct brig_err *err)
{
    static const char *const argv[] = {"/bin/cat", "/proc/self/limits", NULL};
    const struct brig_spec spec = {
        .size = sizeof spec,
        .argv = argv,
        .flags = BRIG_RUN_KEEP_OUTPUT,
        .limits = {.disk = disk, .file_size = UINT64_C(1) << 30, .timeout = PROBE_TIMEOUT_MS}};
    struct brig_run *run = NULL;
    int r = run_probe(engine, &spec, &run, err);

    if (r < 0)
        return r;
    const struct brig_receipt *receipt = brig_run_receipt(run);
    size_t len = receipt->output_len[BRIG_STDOUT];
    probe->usable = true;
    probe->complete = receipt->protection_complete;
    probe->cpu_ms = receipt->usage.cpu_ms;
    probe->limits = receipt->limits;
    memcpy(probe->layers, receipt->layers, sizeof probe->layers); /* its strings are static */
    if (receipt->output[BRIG_STDOUT] && len < sizeof probe->inside)
        memcpy(probe->inside, receipt->output[BRIG_STDOUT], len);
    brig_run_destroy(run);
    return 0;
}

/*
 * If a forked spawner gives up while our request lies unread, its reason is lost: the socket reports the reset first.
 * An executed spawner is waited for, and reports it.
 */
static void ask_again(const struct brig_engine_options *options, struct brig_err *err)
{
    struct brig_engine_options waited = {0};
    struct brig_engine *engine = NULL;
    struct brig_err why;

    memcpy(&waited, options, options->size < sizeof waited ? options->size : sizeof waited);
    waited.flags &= ~BRIG_ENGINE_FORK;
    if (brig_engine_create(&waited, &engine, &why) < 0)
        *err = why;
    brig_engine_destroy(engine);
}

static void probe(const struct brig_engine_options *options, struct doctor_probe *ret)
{
    struct brig_engine *engine = NULL;
    int r = brig_engine_create(options, &engine, &ret->error);

    if (r == 0 && (r = probe_layers(engine, PROBE_DISK, ret, &ret->error)) < 0)
        r = probe_layers(engine, 0, ret, &ret->error);
    if (r == 0 && str_eq(ret->layers[BRIG_LAYER_DISK].by, "ext4 image"))
        probe_io(engine, ret);
    brig_engine_destroy(engine);
    if (r < 0 && ret->error.code == BRIG_E_GONE && options && (options->flags & BRIG_ENGINE_FORK))
        ask_again(options, &ret->error);
}

/* ---- the answer -------------------------------------------------------------------------------------- */

static void summarize(const struct doctor *d, struct brig_doctor *ret)
{
    size_t size = sizeof ret->summary;

    ret->usable = d->probe.usable;
    ret->complete = d->probe.usable && d->probe.complete;
    if (ret->complete) {
        (void)!str_copy(ret->summary, size, "full sandboxes: every layer of `require all` is on");
        return;
    }
    if (!ret->usable) {
        snprintf(ret->summary, size, "no sandbox can be made: %.220s", d->probe.error.message);
        return;
    }
    int n = snprintf(ret->summary, size, "sandboxes work, but without:");
    for (int i = 0; i < BRIG_LAYER_MAX && n > 0 && (size_t)n < size; i++)
        if ((BRIG_REQUIRE_ALL & BRIG_LAYER_BIT(i)) && !d->probe.layers[i].on)
            n += snprintf(ret->summary + n, size - (size_t)n, "%s %s", ret->summary[n - 1] == ':' ? "" : ",",
                          brig_layer_name((enum brig_layer)i));
}

int brig_doctor(const struct brig_engine_options *options, struct brig_doctor *ret, struct brig_err *err)
{
    if (!ret || ret->size < sizeof *ret)
        return err_usage(err, "struct brig_doctor: size %zu is not a size of it", ret ? ret->size : 0);
    if (options && options->size < offsetof(struct brig_engine_options, helper_dir))
        return err_usage(err, "struct brig_engine_options: size %zu is not a size of it", options->size);
    AUTO_FREE struct doctor *d = mem_zalloc(sizeof *d);
    if (!d)
        return err_nomem(err);

    doctor_host_read(&d->host);
    doctor_cgroup_read(&d->cgroup);
    d->helper_dir = options && options->size >= sizeof *options && options->helper_dir ? options->helper_dir
                                                                                       : getenv("BRIG_LIBEXEC_DIR");
    probe(options, &d->probe);
    doctor_features(d);

    size_t size = ret->size;
    memset(ret, 0, sizeof *ret);
    ret->size = size;
    doctor_rows(d, ret);
    doctor_filter_limit(&ret->filter_limit, &ret->filter_bytes);
    summarize(d, ret);
    return 0;
}
