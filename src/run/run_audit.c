/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_audit.c: writes one event per run: what was run (name, version, SHA-256 and size of source, arguments and
 * result), for how long it was allowed to run, by whom, and how it ended; or why it was refused. The texts themselves
 * are only there with `[audit] payloads`, without secrets, and cut.
 */
#include <inttypes.h>

#include "run/run_priv.h"

#define SHOWN 160 /* bytes of a payload */

static const char *action(const struct run *run)
{
    static const char *const actions[FRAME_KIND_MAX] = {"tool.run", "code.run", "command.run", "tool.schema"};

    return actions[run->kind];
}

static const char *hash(const char *data, size_t len, char out[17])
{
    uint8_t sum[SHA256_SIZE] = {0};

    if (crypto_sha256(data, len, sum) < 0)
        return "?";
    crypto_hex(sum, 8, out);
    return out;
}

static void put_text(struct buf *out, const char *what, const char *text, size_t len)
{
    size_t n = len < SHOWN ? len : SHOWN;

    while (n > 0 && n < len && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    (void)!buf_printf(out, " %s=%.*s%s", what, (int)n, text, n < len ? "..." : "");
}

static void put_payloads(struct run *run, struct buf *out)
{
    const struct outcome *o = run->outcome;
    AUTO_BUF struct buf args = BUF_INIT(TEXT_MAX);

    if (!run->executor->o.config->audit_payloads)
        return;
    if (!run->scrub)
        put_text(out, "arguments", run->args, run->args_len);
    else if (scrub_text(run->scrub, run->args, run->args_len, &args) == 0)
        put_text(out, "arguments", args.data ? args.data : "", args.len);
    if (o && o->func_return.data)
        put_text(out, "result", o->func_return.data, o->func_return.len);
}

static void describe(struct run *run, struct buf *out)
{
    char whole[SHA256_HEX], source[17], args[17], result[17];
    uint8_t sum[SHA256_SIZE] = {0};
    const struct outcome *o = run->outcome;

    /*
     * The source identifies a tool, so it has its whole hash. For the others the first half is enough to distinguish
     * two.
     */
    if (run->tool.source && crypto_sha256(run->tool.source, run->tool.source_len, sum) == 0)
        crypto_hex(sum, sizeof sum, whole);
    else
        (void)!str_copy(whole, sizeof whole, hash("", 0, source));
    (void)!buf_printf(out, "%s version %" PRIu64 " source sha256:%s %zu bytes, arguments sha256:%s %zu bytes", run->id,
                      run->tool.version, whole, run->tool.source_len,
                      run->args ? hash(run->args, run->args_len, args) : "", run->args_len);
    if (o && o->func_return.data)
        (void)!buf_printf(out, ", result sha256:%s %zu bytes", hash(o->func_return.data, o->func_return.len, result),
                          o->func_return.len);
    (void)!buf_printf(out, ", timeout %" PRIu64 " ms, provider %s", run->timeout_ms,
                      run->provider ? run->provider->ops->name : "none");
    if (run->agent_id[0])
        (void)!buf_printf(out, ", agent %s", run->agent_id);
}

static const char *kind_of(const struct run *run)
{
    switch (run->refused.code) {
    case BRIG_E_FORBIDDEN: return "forbidden";
    case BRIG_E_LIMIT: return "limit";
    case BRIG_E_REFUSED: return "policy";
    default: return "request";
    }
}

static uint64_t add(struct run *run, const char *outcome, const char *detail, bool sync)
{
    const struct audit_event event = {.action = action(run),
                                      .actor = run->caller.actor,
                                      .org = run->caller.org_id,
                                      .object = run->tool.name ? run->tool.name : run->id,
                                      .outcome = outcome,
                                      .detail = detail,
                                      .request_id = run->caller.request_id,
                                      .sync = sync,
                                      .kind = kind_of(run),
                                      .any_object = !run->of_row}; /* the caller's own word, or the run's number */

    return run->executor->o.audit && run->kind != FRAME_SCHEMA ? audit_add(run->executor->o.audit, &event, NULL, NULL)
                                                               : 0;
}

void run_describe(struct run *run)
{
    struct buf *described = &run->outcome->described;

    if (!run->executor->o.audit || described->len > 0)
        return;
    describe(run, described);
    put_payloads(run, described);
}

uint64_t run_audit(struct run *run)
{
    const struct outcome *o = run->outcome;

    if (!run->executor->o.audit)
        return 0;
    run_describe(run);
    return add(run, brig_cause_name(o->r.cause), o->described.len ? o->described.data : run->id, false);
}

void run_audit_refused(struct run *run)
{
    AUTO_BUF struct buf detail = BUF_INIT(4096);
    int code = run->refused.code;
    bool denied = code == BRIG_E_FORBIDDEN || code == BRIG_E_LIMIT || code == BRIG_E_INVALID || code == BRIG_E_USAGE ||
                  code == BRIG_E_REFUSED;

    if (!run->executor->o.audit)
        return;
    (void)!buf_printf(&detail, "%s; ", run->refused.message);
    describe(run, &detail);
    (void)add(run, denied ? "denied" : "failed", detail.data ? detail.data : run->refused.message, false);
}
