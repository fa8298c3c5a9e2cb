/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row.c: writes a sandbox into the store and reads it back. The spec is stored as a create would ask for it, with every
 * default written out, and read by the same reader, so there is only one grammar. Deadlines are stored in
 * CLOCK_BOOTTIME: a box does not outlive the kernel that has this clock.
 */
#include "receipt/receipt.h"
#include "sandbox/private.h"
#include "sandbox/sbox_place.h"

static void put_row(struct json *json, const struct sbox *sbox)
{
    const struct sbox_private *priv = sbox->priv;

    json_object(json);
    json_key_string(json, "box_id", priv->box_id);
    json_key_string(json, "boot_id", sbox->boot_id);
    json_key_u64(json, "ends_at_boot_ns", sbox->ends_at_boot_ns);
    json_key_bool(json, "paused_by_timeout", priv->paused_by_timeout);
    json_key_u64(json, "recreated", priv->recreated);
    json_key_bool(json, "pooled", priv->pooled);
    json_key_u64(json, "next_proc", priv->reserved);
    json_key_string(json, "created_by", priv->creator.actor);
    json_key_string(json, "created_as", standing_name(caller_standing(&priv->creator)));
    if (sbox->spec.reuse[0]) {
        json_key_string(json, "reuse", sbox->spec.reuse);
        json_key_string(json, "reuse_config", sbox->spec.reuse_config);
    }
    if (sbox->spec.disk_from[0]) {
        json_key_string(json, "disk_from", sbox->spec.disk_from);
        json_key_string(json, "forked_from", sbox->spec.forked_from);
        json_key_string(json, "restored_from", sbox->spec.restored_from);
    }
    if (sbox->spec.image)
        json_key(json, "image"), template_copy_put(sbox->spec.image, json);
    network_put_row(json, sbox);
    json_key_object(json, "spec");
    json_spec(json, &sbox->spec, true);
    receipt_put_limits(json, &sbox->spec.limits);
    json_end(json);
    json_end(json);
}

int row_write(struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err)
{
    struct store_sandbox row = {.created_at_ns = sbox->created_at_ns, .updated_at_ns = sbox->updated_at_ns};
    AUTO_BUF struct buf buf = BUF_INIT(ROW_MAX);
    struct json json = JSON_INIT(&buf);
    /* A create that is being committed is a running sandbox for whoever reads the row. */
    enum sbox_state state = sbox->state == SBOX_CREATING ? SBOX_RUNNING : sbox->state;

    if (sbox->spec.ephemeral)
        return 0; /* done is not called: those who would wait for it know */
    put_row(&json, sbox);
    int r = json_finish(&json);
    str_assign(row.id, sbox->id);
    str_assign(row.org_id, sbox->org_id);
    str_assign(row.key_id, sbox->key_id);
    str_assign(row.name, sbox->spec.name);
    (void)!str_copy(row.state, sizeof row.state, sbox_state_name(state));
    (void)!str_copy(row.provider, sizeof row.provider, sbox_ops(sbox)->name);
    row.doc = buf.data;
    struct store_op *op = r == 0 && done ? store_op_new(sbox->manager, sbox, done, NULL, ctx) : NULL;
    if (r == 0 && done && !op)
        r = -ENOMEM;
    if (r == -EMSGSIZE)
        r = err_set(err, BRIG_E_TOO_LARGE, 0, "the sandbox's spec: more than %u bytes", ROW_MAX);
    else if (r < 0)
        r = err_nomem(err);
    else
        r = store_put_sandbox(sbox->manager->store, &row, op ? store_op_done : NULL, op, err);
    if (r < 0)
        store_op_drop(op);
    return r;
}

/* As what it was made: a row that does not say so was made by somebody who may nothing. */
static void read_creator(const struct json_value *doc, struct caller *ret)
{
    enum standing as = standing_parse(json_get_text(doc, "created_as", ""));

    str_cut(ret->actor, sizeof ret->actor, json_get_text(doc, "created_by", ""));
    ret->socket = as == STANDING_SOCKET;
    ret->role = as >= STANDING_ADMIN ? STORE_ROLE_ADMIN : as == STANDING_USER ? STORE_ROLE_USER : STORE_ROLE_READ_ONLY;
}

static int read_doc(struct manager *manager, const struct json_value *doc, struct sbox *sbox, struct brig_err *err)
{
    /* what it may ask for was judged at its create */
    static const struct caller admin = {.role = STORE_ROLE_ADMIN, .socket = true};
    const struct json_value *spec = json_get(doc, "spec"), *image = json_get(doc, "image");
    struct sbox_private *priv = sbox->priv;

    if (!spec)
        return err_set(err, BRIG_E_HOST, 0, "its row has no spec");
    int r = spec_parse_stored(spec, manager->config, &admin, &sbox->spec, err);
    if (r == 0 && image)
        r = template_copy_read(image, &sbox->spec.image, err);
    if (r < 0)
        return r;
    if (str_copy(priv->box_id, sizeof priv->box_id, json_get_text(doc, "box_id", "")) < 0 ||
        str_copy(sbox->boot_id, sizeof sbox->boot_id, json_get_text(doc, "boot_id", "")) < 0 ||
        str_copy(sbox->spec.reuse, sizeof sbox->spec.reuse, json_get_text(doc, "reuse", "")) < 0 ||
        str_copy(sbox->spec.reuse_config, sizeof sbox->spec.reuse_config, json_get_text(doc, "reuse_config", "")) < 0 ||
        str_copy(sbox->spec.disk_from, sizeof sbox->spec.disk_from, json_get_text(doc, "disk_from", "")) < 0 ||
        str_copy(sbox->spec.forked_from, sizeof sbox->spec.forked_from, json_get_text(doc, "forked_from", "")) < 0 ||
        str_copy(sbox->spec.restored_from, sizeof sbox->spec.restored_from, json_get_text(doc, "restored_from", "")) <
            0)
        return err_set(err, BRIG_E_HOST, 0, "its row has a name that is too long");
    read_creator(doc, &priv->creator);
    sbox->ends_at_boot_ns = json_get_u64(doc, "ends_at_boot_ns");
    priv->paused_by_timeout = json_get_bool(doc, "paused_by_timeout");
    priv->recreated = (uint32_t)json_get_u64(doc, "recreated");
    priv->pooled = json_get_bool(doc, "pooled");
    uint64_t next = json_get_u64(doc, "next_proc");
    sbox->next_proc = next && next < INT32_MAX ? (uint32_t)next : 1;
    priv->reserved = sbox->next_proc;
    return network_read_row(sbox, json_get(doc, "gate"), err);
}

int row_read(struct manager *manager, const struct store_sandbox *row, struct sbox *sbox, struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    str_assign(sbox->org_id, row->org_id); /* whose secrets and policies */
    str_assign(sbox->priv->creator.org_id, row->org_id);
    str_assign(sbox->id, row->id);
    int r = json_read(row->doc ? row->doc : "", row->doc ? strlen(row->doc) : 0, JSON_READ_VALUES, &doc, err);

    if (r == 0)
        r = place_find(manager, row->provider, &sbox->priv->provider, err);
    if (r == 0)
        r = read_doc(manager, json_root(doc), sbox, err);
    if (r < 0)
        return r;
    str_assign(sbox->spec.provider, row->provider);
    str_assign(sbox->key_id, row->key_id);
    sbox->created_at_ns = row->created_at_ns;
    sbox->updated_at_ns = row->updated_at_ns;
    return 0;
}
