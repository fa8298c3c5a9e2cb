/* SPDX-License-Identifier: Apache-2.0 */
/*
 * services_start.c: the services of a sandbox that is being made: sends them to brig-init, waits until all are up, and
 * finds out what to say about the first that is not.
 */
#include "codec/wire/le.h"
#include "sandbox/services/services_priv.h"

#define TAIL_MAX 2048u /* the last bytes of a service that did not come up */

/* ---- create ---------------------------------------------------------------------------------------------------- */

static int put_program(struct sbox *sbox, const struct service_def *def, bool probe, uint8_t *out, size_t size,
                       struct brig_err *err)
{
    struct process_spec_parsed parsed = {0};
    AUTO_BUF struct buf strings = BUF_INIT(GUEST_STRINGS_MAX);
    struct svc_proc_start msg = {.proc = 1};
    int r = service_process(def, probe, sbox, &parsed, err);

    if (r == 0)
        r = process_message(sbox, &parsed.spec, parsed.spec.workdir ? parsed.spec.workdir : sbox->spec.workdir, NULL,
                            &strings, &msg, err);
    if (r == 0) {
        r = svc_proc_start_put(out, size, &msg);
        if (r < 0)
            r = err_usage(err, "services: with their environments longer than %u bytes", SVC_OPEN_MAX);
    }
    process_spec_done(&parsed);
    return r;
}

static uint32_t after_mask(const struct service_defs *defs, const struct service_def *def)
{
    uint32_t mask = 0;

    for (const struct json_value *v = def->after ? def->after->first : NULL; v; v = v->next)
        for (unsigned i = 0; i < defs->n; i++)
            if (str_eq(defs->list[i].name, v->string))
                mask |= 1u << i;
    return mask;
}

static int put_unit(struct sbox *sbox, const struct service_defs *defs, unsigned i, struct svc_cursor *out,
                    uint8_t *scratch, struct brig_err *err)
{
    const struct service_def *def = &defs->list[i];
    struct svc_unit unit = {
        .name = {def->name, (uint32_t)strlen(def->name)},
        .restart = def->restart,
        .ready = def->ready,
        .port = def->port,
        .ready_ms = def->ready_ms,
        .stop_ms = def->stop_ms,
        .after = after_mask(defs, def),
        .path = {def->path ? def->path : "", def->path ? (uint32_t)strlen(def->path) : 0},
        .probe = {"", 0},
    };
    int r = put_program(sbox, def, false, scratch, SVC_OPEN_MAX, err);

    if (r < 0)
        return r;
    unit.start = (struct svc_bytes){(const char *)scratch, (uint32_t)r};
    if (def->command) {
        size_t used = (size_t)r;
        r = put_program(sbox, def, true, scratch + used, SVC_OPEN_MAX - used, err);
        if (r < 0)
            return r;
        unit.probe = (struct svc_bytes){(const char *)scratch + used, (uint32_t)r};
    }
    svc_put_unit(out, &unit);
    return out->bad ? err_usage(err, "services: with their environments longer than %u bytes", SVC_OPEN_MAX) : 0;
}

/* The message, in memory that the caller wipes: environments may have secrets. */
static int put_units(struct sbox *sbox, const struct service_defs *defs, uint8_t *message, uint8_t *scratch,
                     struct brig_err *err)
{
    struct svc_cursor out = {message, message + SVC_OPEN_MAX, false};
    int r = 0;

    svc_put_u32(&out, defs->n);
    for (unsigned i = 0; r == 0 && i < defs->n; i++)
        r = put_unit(sbox, defs, i, &out, scratch, err);
    return r < 0 ? r : (int)(out.at - message);
}

/* How long brig-init may take for all of them, if each is waited for to the end. */
static uint64_t time_for(const struct service_defs *defs)
{
    uint64_t ms = 0;

    for (unsigned i = 0; i < defs->n; i++)
        ms += (uint64_t)defs->list[i].ready_ms + defs->list[i].stop_ms;
    return ms * NS_PER_MS + SERVICES_MARGIN_NS;
}

static void on_set(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct ask *ask = ctx;
    struct sbox *sbox = ask->sbox;

    ask->call = NULL;
    if (errnum || len != 4) {
        ask_fail_errno(ask, errnum ? errnum : EPROTO);
        return;
    }
    if (le_get_u32(data) == 0) {
        ask_free(ask);
        create_services_done(sbox, NULL);
        return;
    }
    ask_list_or_fail(ask);
}

int services_begin(struct sbox *sbox, struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct service_defs *defs = mem_alloc(sizeof *defs);
    uint8_t *message = mem_zalloc(2 * (size_t)SVC_OPEN_MAX);
    struct ask *ask = defs && message ? ask_new(sbox, NULL, NULL, err) : NULL;
    int r = ask ? services_defs(sbox, &doc, defs, err) : err_nomem(err);

    r = r < 0 ? r : put_units(sbox, defs, message, message + SVC_OPEN_MAX, err);
    if (r >= 0) {
        const struct call_events events = {.reply = on_set, .ctx = ask};
        ask->create = true;
        ask_arm(ask, time_for(defs));
        r = link_call(sbox->priv->link, SVC_UNIT_SET, message, (size_t)r, &events, &ask->call, err);
    }
    if (r < 0 && ask)
        ask_free(ask);
    if (message)
        explicit_bzero(message, 2 * (size_t)SVC_OPEN_MAX);
    mem_free(message);
    mem_free(defs);
    return r;
}

int services_check(struct sbox *sbox, struct brig_err *err)
{
    struct ask *ask = ask_new(sbox, NULL, NULL, err);

    if (!ask)
        return -ENOMEM;
    ask->create = ask->check = true;
    int r = ask_list(ask, err);
    if (r < 0)
        ask_free(ask);
    else
        ask_arm(ask, SERVICES_MARGIN_NS);
    return r;
}

void services_checked(struct ask *ask)
{
    struct sbox *sbox = ask->sbox;
    const char *at = sbox->spec.service_names;
    struct brig_err err = {0};
    unsigned n = 0;

    for (; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        n++;
    for (unsigned i = 0; i < ask->n; i++)
        if (ask->infos[i].state != SVC_UNIT_READY)
            (void)err_set(&err, BRIG_E_CONFLICT, 0, "service %s is not ready", ask->names[i]);
    if (ask->n != n)
        (void)err_set(&err, BRIG_E_HOST, 0, "services of sandbox %s: %u of %u", sbox_label(sbox), ask->n, n);
    if (err.code) {
        ask_fail(ask, &err);
        return;
    }
    ask_free(ask);
    create_services_done(sbox, NULL);
}

/* ---- a create that fails --------------------------------------------------------------------------------------- */

/* The last lines of the one that has failed are there, as far as they could be had. */
static void on_tail_end(void *ctx, const struct brig_err *err UNUSED)
{
    struct ask *ask = ctx;
    struct brig_err why = ask->why;

    str_assign(ask->sbox->priv->failed_service, ask->name);
    ask_fail(ask, &why);
}

static void on_tail(void *ctx, const uint8_t *data, size_t len)
{
    struct ask *ask = ctx;
    struct sbox_private *priv = ask->sbox->priv;

    if (priv->tail_log)
        service_log_consumed(priv->tail_log, len);
    if (priv->service_tail.len + len <= TAIL_MAX) /* it was asked for so much; more is not ours to keep */
        (void)!buf_append(&priv->service_tail, data, len);
}

void services_start_failed(struct ask *ask)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct sbox *sbox = ask->sbox;
    const struct svc_unit_info *info = NULL;
    const struct service_log_events events = {.data = on_tail, .end = on_tail_end, .ctx = ask};
    struct brig_err err = {0};
    char text[200] = "";
    struct service_defs *defs = mem_alloc(sizeof *defs);
    int r = defs ? services_defs(sbox, &doc, defs, &err) : err_nomem(&err);

    for (unsigned i = 0; i < ask->n && !info; i++)
        if (ask->infos[i].state == SVC_UNIT_FAILED)
            info = &ask->infos[i];
    const struct service_def *def = r == 0 && info ? service_find_def(defs, info->name.data) : NULL;
    if (def) {
        service_describe(info, def, text, sizeof text);
        (void)!str_copy(ask->name, sizeof ask->name, def->name); /* its length was checked */
        (void)err_set(&err, BRIG_E_CONFLICT, 0, "service %s did not come up: %.160s", def->name,
                      text[0] ? text : "it has ended");
    } else if (r == 0) {
        (void)err_set(&err, BRIG_E_HOST, 0, "services of sandbox %s: one has failed", sbox_label(sbox));
    }
    mem_free(defs);
    ask->why = err;
    uint64_t offset = info && info->output > TAIL_MAX ? info->output - TAIL_MAX : 0;
    buf_done(&sbox->priv->service_tail);
    sbox->priv->service_tail = (struct buf)BUF_INIT(TAIL_MAX + 1);
    if (!def || service_log_begin(sbox, ask->name, offset, false, &events, &sbox->priv->tail_log, &err) < 0)
        ask_fail(ask, &ask->why);
}

const char *sbox_failed_service(const struct sbox *sbox, const char **ret_output, size_t *ret_len)
{
    const struct sbox_private *priv = sbox->priv;

    if (!priv->failed_service[0])
        return NULL;
    *ret_output = priv->service_tail.data ? priv->service_tail.data : "";
    *ret_len = priv->service_tail.len;
    return priv->failed_service;
}
