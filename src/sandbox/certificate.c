/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certificate.c: writes the death certificate of a sandbox: who or what ended it, when, why, and what it had used. It
 * is written in one transaction with the removal of the sandbox's row, so there is always exactly one of the two.
 *
 * If the store cannot write it (no space), the certificate waits here and is tried again; after a crash in between, the
 * row that is still there makes the next start write one.
 */
#include "receipt/receipt.h"
#include "sandbox/private.h"

#define RETRY_NS (5 * NS_PER_SEC)
#define CERTIFICATE_MAX (1u << 20)

struct cert {
    struct cert *next;
    struct manager *manager;
    struct store_certificate row;
    char *doc;
    bool asked; /* on its way to the store */
};

/* "deleted", "timeout" ...: as it was asked for; else the cause. */
static const char *cause_of(const struct sbox *sbox)
{
    return sbox->priv->ending.why[0] ? sbox->priv->ending.why : brig_cause_name(sbox->priv->end.cause);
}

static void put_limits_hit(struct json *json, uint32_t mask)
{
    json_key_array(json, "limits_hit");
    for (int i = 0; i < BRIG_LIMIT_MAX; i++)
        if (mask & 1u << i)
            json_string(json, brig_limit_name((enum brig_limit)i));
    json_end(json);
}

static void put_certificate(struct json *json, const struct sbox *sbox)
{
    const struct sbox_private *priv = sbox->priv;

    json_object(json);
    json_key_string(json, "sandbox_id", sbox->id);
    if (sbox->spec.name[0])
        json_key_string(json, "name", sbox->spec.name);
    json_key_string(json, "organization_id", sbox->org_id);
    if (sbox->key_id[0])
        json_key_string(json, "key_id", sbox->key_id);
    receipt_put_time(json, "created_at", sbox->created_at_ns);
    receipt_put_time(json, "ended_at", priv->end.ended_at_ns);
    json_key_string(json, "cause", cause_of(sbox));
    json_key_string(json, "ended_by", priv->ending.by[0] ? priv->ending.by : "sandbox");
    if (priv->ending.request_id[0])
        json_key_string(json, "request_id", priv->ending.request_id);
    if (priv->end.detail[0])
        json_key_string(json, "detail", priv->end.detail);
    put_limits_hit(json, priv->end.limits_hit);
    struct brig_usage usage = priv->end.usage;
    if (priv->pooled && usage.wall_ms != BRIG_USAGE_UNKNOWN) /* the box is older than the sandbox */
        usage.wall_ms = (uint64_t)(priv->end.ended_at_ns - sbox->created_at_ns) / NS_PER_MS;
    sbox_network(sbox, &usage.net_in_bytes, &usage.net_out_bytes);
    receipt_put_usage(json, &usage);
    network_put(json, sbox);
    receipt_put_limits(json, &sbox->limits);
    json_key_string(json, "template", sbox->spec.template_name);
    json_key(json, "metadata");
    json_pairs(json, sbox->spec.metadata, sbox->spec.n_metadata);
    json_key_string(json, "boot_id", sbox->boot_id);
    json_key_u64(json, "recreated", priv->recreated);
    json_end(json);
}

static int make(const struct sbox *sbox, struct store_certificate *row, char **ret_doc)
{
    struct buf buf = BUF_INIT(CERTIFICATE_MAX);
    struct json json = JSON_INIT(&buf);

    put_certificate(&json, sbox);
    int r = json_finish(&json);
    *ret_doc = r == 0 ? buf_take(&buf, NULL) : NULL;
    buf_done(&buf);
    if (!*ret_doc)
        return r < 0 ? r : -ENOMEM;
    str_assign(row->sandbox_id, sbox->id);
    str_assign(row->org_id, sbox->org_id);
    (void)!str_copy(row->cause, sizeof row->cause, cause_of(sbox));
    row->ended_at_ns = sbox->priv->end.ended_at_ns;
    row->doc = *ret_doc;
    return 0;
}

int certificate_write(struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err)
{
    struct store_certificate row = {0};
    AUTO_FREE char *doc = NULL;

    struct store_op *op = store_op_new(sbox->manager, sbox, done, NULL, ctx);
    if (!op || make(sbox, &row, &doc) < 0) {
        store_op_drop(op);
        return err_nomem(err);
    }
    int r = store_end_sandbox(sbox->manager->store, &row, store_op_done, op, err);
    if (r < 0)
        store_op_drop(op);
    return r;
}

int certificate_write_gone(struct manager *manager, const struct store_sandbox *row, const char *detail,
                           struct brig_err *err)
{
    struct store_certificate cert = {.ended_at_ns = clock_real_ns()};
    struct buf buf = BUF_INIT(CERTIFICATE_MAX);
    struct json json = JSON_INIT(&buf);
    const char *cause = brig_cause_name(BRIG_CAUSE_SANDBOX_GONE);

    json_object(&json);
    json_key_string(&json, "sandbox_id", row->id);
    if (row->name[0])
        json_key_string(&json, "name", row->name);
    json_key_string(&json, "organization_id", row->org_id);
    receipt_put_time(&json, "created_at", row->created_at_ns);
    receipt_put_time(&json, "ended_at", cert.ended_at_ns);
    json_key_string(&json, "cause", cause);
    json_key_string(&json, "ended_by", "sandbox");
    json_key_string(&json, "detail", detail);
    put_limits_hit(&json, 0);
    json_end(&json);
    int r = json_finish(&json);
    str_assign(cert.sandbox_id, row->id);
    str_assign(cert.org_id, row->org_id);
    (void)!str_copy(cert.cause, sizeof cert.cause, cause);
    cert.doc = buf.data;
    r = r < 0 ? err_nomem(err) : store_end_sandbox(manager->store, &cert, NULL, NULL, err);
    buf_done(&buf);
    return r;
}

/* ---- those that the store did not take ------------------------------------------------------------------------- */

static void on_retry(struct loop_timer *timer);

static void drop(struct cert *cert)
{
    struct cert **at = &cert->manager->certs;

    while (*at != cert)
        at = &(*at)->next;
    *at = cert->next;
    cert->manager->n_certs--;
    mem_free(cert->doc);
    mem_free(cert);
}

static void arm(struct manager *manager)
{
    manager->retry.fn = on_retry;
    manager->retry.ctx = manager;
    if (manager->retry.pos == 0)
        (void)!loop_timer_set(manager->loop, &manager->retry, loop_now_ns() + RETRY_NS, NULL);
}

static void on_retried(void *ctx, const struct brig_err *err)
{
    struct cert *cert = ctx;

    cert->asked = false;
    if (err)
        arm(cert->manager);
    else
        drop(cert);
}

static void on_retry(struct loop_timer *timer)
{
    struct manager *manager = timer->ctx;

    for (struct cert *cert = manager->certs; cert; cert = cert->next) {
        if (cert->asked)
            continue;
        struct store_op *op = store_op_new(manager, NULL, on_retried, NULL, cert);
        if (!op || store_end_sandbox(manager->store, &cert->row, store_op_done, op, NULL) < 0) {
            store_op_drop(op);
            arm(manager);
            return;
        }
        cert->asked = true;
    }
}

void certificate_keep(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;
    struct cert *cert = manager->n_certs < CERTS_MAX ? mem_zalloc(sizeof *cert) : NULL;

    sandbox_audit(manager, NULL, sbox->org_id, "sandbox.certificate", sbox->id, "failed",
                  "the store did not take it; it is tried again", false);
    if (!cert || make(sbox, &cert->row, &cert->doc) < 0) {
        mem_free(cert); /* its row is still there: the next start writes one */
        return;
    }
    cert->manager = manager;
    cert->next = manager->certs;
    manager->certs = cert;
    manager->n_certs++;
    arm(manager);
}

void certificates_done(struct manager *manager)
{
    while (manager->certs)
        drop(manager->certs);
}
