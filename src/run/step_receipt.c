/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_receipt.c: the last step writes the receipt of a run of a tool or of code, with the same writer as for every
 * other run, and its row in the store. The row is written when the run is over and not waited for; only a run in the
 * background has one before, so that it can be asked about, and so that a restart closes it as host-error. Values of
 * variables are in neither.
 */
#include <stdio.h>

#include "receipt/receipt.h"
#include "run/run_priv.h"

static const char *const kinds[FRAME_KIND_MAX] = {"tool", "code", "command", "schema"};

/* What ran knows its policy (fill_receipt). If nothing ran, the receipt has the name that was asked for. */
static void name_network(struct run *run)
{
    struct brig_network *n = &run->outcome->r.network;
    const char *name = !run->network ? "none" : run->network->type == JSON_STRING ? run->network->string : "custom";

    if (!n->policy[0])
        snprintf(n->policy, sizeof n->policy, "%.63s", name);
}

static int put_receipt(struct run *run, uint64_t audit_seq, struct buf *out)
{
    struct outcome *o = run->outcome;
    struct receipt_tried tried[TRIED_MAX];
    AUTO_BUF struct buf environment = BUF_INIT(TEXT_MAX);
    struct json env_json = JSON_INIT(&environment), json = JSON_INIT(out);
    int r = 0;

    for (size_t i = 0; i < run->n_tried; i++)
        tried[i] = (struct receipt_tried){run->tried[i].provider, run->tried[i].why};
    if (run->env) {
        environment_json(run->env, false, &env_json);
        r = json_finish(&env_json);
    }
    name_network(run);
    for (int i = 1; i < 3; i++) {
        o->r.output[i] = o->out[i].data;
        o->r.output_len[i] = o->out[i].len;
    }
    const struct receipt_service service = {
        .readers = run->needs > STANDING_USER ? caller_reads(&run->caller) : NULL,
        .organization_id = run->caller.org_id,
        .provider = run->provider ? run->provider->ops->name : "local",
        .note = run->note,
        .audit_seq = audit_seq,
        .of_tool_room = true,
        .kind = kinds[run->kind],
        .tool_name = run->kind == FRAME_TOOL ? run->tool.name : NULL,
        .tool_version = run->tool.version,
        .agent_id = run->agent_id,
        .fingerprint = run->fingerprint,
        .tried = tried,
        .n_tried = run->n_tried,
        .result = o->ok ? o->func_return.data : NULL,
        .result_len = o->func_return.len,
        .error_type = o->has_error ? o->error_type : NULL,
        .error_message = o->error_message.data,
        .traceback = o->traceback.data,
        .state_diff = o->state_changed ? o->state_diff.data : NULL,
        .environment = environment.data,
        .scrubbed = o->scrubbed,
        .of_zygote = o->of_zygote,
        .started_here = o->here,
    };
    if (r == 0)
        r = buf_reserve(out, 6144 + o->out[1].len + o->out[2].len + o->func_return.len);
    if (r < 0)
        return r;
    receipt_put(&json, &o->r, &service);
    return json_finish(&json);
}

static void fill_row(const struct run *run, struct store_run *row)
{
    *row = (struct store_run){.started_at_ns = run->created_at_ns};
    str_assign(row->id, run->id);
    str_assign(row->org_id, run->caller.org_id);
    (void)!str_copy(row->kind, sizeof row->kind, kinds[run->kind]);
}

/* A run that was refused leaves a row only when it has one already. */
void run_store_refused(struct run *run)
{
    AUTO_BUF struct buf buf = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&buf);
    struct brig_receipt r = {.cause = BRIG_CAUSE_POLICY};
    struct store_run row;

    if (!run->executor->o.store || run->kind == FRAME_SCHEMA)
        return;
    fill_row(run, &row);
    str_assign(r.detail, run->refused.message);
    json_object(&json);
    json_key_string(&json, "id", run->id);
    json_key_string(&json, "kind", kinds[run->kind]);
    json_key_string(&json, "via", "daemon");
    json_key_string(&json, "organization_id", run->caller.org_id);
    receipt_put_outcome(&json, &r);
    receipt_put_time(&json, "started_at", run->created_at_ns);
    receipt_put_time(&json, "ended_at", clock_real_ns());
    json_end(&json);
    row.ended_at_ns = clock_real_ns();
    (void)!str_copy(row.cause, sizeof row.cause, brig_cause_name(r.cause));
    if (json_finish(&json) < 0)
        return;
    row.doc = buf.data;
    (void)!store_put_run(run->executor->o.store, &row, NULL, NULL, NULL);
}

static void store(struct run *run, const char *receipt)
{
    struct store_run row;

    if (!run->executor->o.store || run->kind == FRAME_SCHEMA)
        return;
    const struct outcome *o = run->outcome;
    fill_row(run, &row);
    row.started_at_ns = o->r.started_at_ns;
    row.ended_at_ns = o->r.ended_at_ns;
    row.doc = receipt;
    (void)!str_copy(row.cause, sizeof row.cause, brig_cause_name(o->r.cause));
    str_assign(row.sandbox_id, o->r.sandbox_id);
    /* a store that cannot take it says so in /readyz */
    (void)!store_put_run(run->executor->o.store, &row, NULL, NULL, NULL);
}

void run_store_open(struct run *run)
{
    AUTO_BUF struct buf buf = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&buf);
    struct store_run row;

    if (!run->executor->o.store)
        return;
    fill_row(run, &row);
    run_put(run, false, &json); /* nobody writes it again when the run goes on */
    if (json_finish(&json) < 0)
        return;
    row.doc = buf.data;
    (void)!store_put_run(run->executor->o.store, &row, NULL, NULL, NULL);
}

/* ---- the answer ------------------------------------------------------------------------------------------ */

static void fill_result(struct run *run, const struct buf *receipt, struct run_result *ret)
{
    const struct outcome *o = run->outcome;

    *ret = (struct run_result){.run_id = run->id,
                               .ok = o->ok,
                               .func_return = o->func_return.data ? o->func_return.data : "null",
                               .func_return_len = o->func_return.data ? o->func_return.len : 4,
                               .text = o->text.data ? o->text.data : "",
                               .text_len = o->text.len,
                               .fingerprint = run->fingerprint[0] ? run->fingerprint : NULL,
                               .receipt = receipt->data ? receipt->data : "{}",
                               .receipt_len = receipt->data ? receipt->len : 2,
                               .tool_name = run->tool.name,
                               .files = o->files};
    for (int i = 1; i < 3; i++) {
        ret->out[i] = o->out[i].data ? o->out[i].data : "";
        ret->out_len[i] = o->out[i].len;
    }
    ret->agent_state = o->state_changed && o->state.data ? o->state.data : NULL;
}

void step_receipt(struct run *run)
{
    AUTO_BUF struct buf receipt = BUF_INIT(TEXT_MAX);
    struct run_result result;
    struct brig_err err = {0};

    run->step = STEP_RECEIPT;
    uint64_t seq = run_audit(run);
    int r = put_receipt(run, seq, &receipt);

    fill_result(run, &receipt, &result);
    if (r < 0)
        (void)err_nomem(&err);
    if (run->events.done)
        run->events.done(run->events.ctx, r < 0 ? NULL : &result, r < 0 ? &err : NULL, 0);
    if (r == 0) /* Nobody waits for it, and whoever asks for the row asks after it was handed over. */
        store(run, receipt.data);
    run_free(run);
}
