/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_services.c: starts the services of a new sandbox, and asks brig-init what they are doing.
 *
 *     create:   UNIT_SET --all are up--> the create goes on
 *                   \--one has failed--> UNIT_LIST (why) --> UNIT_LOG (its last lines) --> the create ends with them
 *     control:  UNIT_CONTROL --it has settled--> UNIT_LIST --> the answer
 *
 * Each of these is an `ask`, which belongs to its sandbox and ends with it. brig-init may have been taken over by the
 * programs beside it: names are looked up in the spec, counts have bounds, and it has so much time for its answer.
 */
#include <sys/wait.h>

#include "base/list.h"
#include "codec/wire/le.h"
#include "receipt/receipt.h"
#include "sandbox/services/services_priv.h"

#define LIST_MAX (256u * 1024)

void ask_free(struct ask *ask)
{
    struct sbox_private *priv = ask->sbox->priv;

    list_remove(&priv->asks, ask);
    loop_timer_clear(ask->sbox->manager->loop, &ask->late);
    if (ask->create && priv->tail_log) /* it speaks to this ask */
        service_log_close(priv->tail_log);
    if (ask->call)
        call_drop(ask->call);
    mem_free(ask);
}

struct ask *ask_new(struct sbox *sbox, service_done_fn *done, void *ctx, struct brig_err *err)
{
    struct ask *ask = mem_zalloc(sizeof *ask);

    if (!ask) {
        (void)err_nomem(err);
        return NULL;
    }
    ask->sbox = sbox;
    ask->done = done;
    ask->ctx = ctx;
    list_push(&sbox->priv->asks, ask);
    return ask;
}

static void audit_control(const struct ask *ask, const struct brig_err *err)
{
    static const char *const actions[SVC_UNIT_OP_MAX] = {"service.start", "service.stop", "service.restart"};
    char detail[336];

    if (!ask->control)
        return;
    snprintf(detail, sizeof detail, "%.63s%s%.255s", ask->name, err ? ": " : "", err ? err->message : "");
    sandbox_audit(ask->sbox->manager, &ask->caller, ask->sbox->org_id, actions[ask->op], ask->sbox->id,
                  err ? "failed" : "ok", detail, false);
}

void ask_fail(struct ask *ask, const struct brig_err *err)
{
    struct sbox *sbox = ask->sbox;
    struct brig_err why = *err;
    service_done_fn *done = ask->done;
    void *ctx = ask->ctx;
    bool create = ask->create;

    audit_control(ask, &why);
    ask_free(ask);
    if (create)
        create_services_done(sbox, &why);
    else if (done)
        done(ctx, NULL, 0, &why);
}

void ask_fail_errno(struct ask *ask, uint32_t errnum)
{
    struct brig_err err = {0};

    if (errnum == ENOENT)
        (void)err_set(&err, BRIG_E_NOT_FOUND, 0, "service %s of sandbox %s not found", ask->name,
                      sbox_label(ask->sbox));
    else if (errnum == EBUSY)
        (void)err_set(&err, BRIG_E_CONFLICT, 0, "service %s: another start, stop or restart is under way", ask->name);
    else
        (void)err_set(&err, errnum == ENOTCONN ? BRIG_E_GONE : BRIG_E_HOST, (int)errnum, "services of sandbox %s",
                      sbox_label(ask->sbox));
    ask_fail(ask, &err);
}

/* ---- definitions --------------------------------------------------------------------------------------------- */

/* The spec's own list, which was judged when it was asked for. */
int services_defs(const struct sbox *sbox, struct json_doc **ret_doc, struct service_defs *ret, struct brig_err *err)
{
    const char *text = sbox->spec.services ? sbox->spec.services : "[]";
    int r = json_read(text, strlen(text), JSON_READ_VALUES, ret_doc, err);

    return r < 0 ? r : service_defs_read(json_root(*ret_doc), NULL, true, ret, err);
}

const struct service_def *service_find_def(const struct service_defs *defs, const char *name)
{
    for (unsigned i = 0; i < defs->n; i++)
        if (str_eq(defs->list[i].name, name))
            return &defs->list[i];
    return NULL;
}

static int check_name_known(const struct sbox *sbox, const char *name, struct brig_err *err)
{
    const char *names = sbox->spec.service_names;

    if (names && name[0] && !strchr(name, ' ') && str_has_word(names, name, strlen(name)))
        return 0;
    return err_set(err, BRIG_E_NOT_FOUND, 0, "service %.64s of sandbox %s not found", name, sbox_label(sbox));
}

/* ---- how one is doing ------------------------------------------------------------------------------------------ */

static const char *const state_names[SVC_UNIT_STATE_MAX] = {
    [SVC_UNIT_WAITING] = "waiting", [SVC_UNIT_STARTING] = "starting", [SVC_UNIT_READY] = "ready",
    [SVC_UNIT_BACKOFF] = "backoff", [SVC_UNIT_STOPPING] = "stopping", [SVC_UNIT_STOPPED] = "stopped",
    [SVC_UNIT_FAILED] = "failed",
};

static void describe_ready(const struct service_def *def, char *out, size_t size)
{
    switch (def->ready) {
    case SVC_READY_PORT: snprintf(out, size, "port %u", def->port); break;
    case SVC_READY_SOCKET: snprintf(out, size, "socket %.80s", def->path); break;
    case SVC_READY_FILE: snprintf(out, size, "file %.80s", def->path); break;
    case SVC_READY_COMMAND: snprintf(out, size, "command %.80s", def->command->first->string); break;
    default: out[0] = '\0';
    }
}

/* Why it is not up, in one line; "" if there is nothing to say. */
void service_describe(const struct svc_unit_info *info, const struct service_def *def, char *out, size_t size)
{
    int status = (int)info->status;
    char ready[128];

    out[0] = '\0';
    switch (info->why) {
    case SVC_WHY_EXITED:
        if (WIFSIGNALED(status))
            snprintf(out, size, "it was ended by signal %d", WTERMSIG(status));
        else
            snprintf(out, size, "it exited with %d", WEXITSTATUS(status));
        break;
    case SVC_WHY_TIMEOUT:
        describe_ready(def, ready, sizeof ready);
        snprintf(out, size, "it was not ready within %u.%03u s (%s)", def->ready_ms / 1000, def->ready_ms % 1000,
                 ready);
        break;
    case SVC_WHY_EXEC:
        snprintf(out, size, "it could not be started (%s): %s",
                 info->stage == STAGE_WORKDIR ? "working directory"
                 : info->stage == STAGE_IDS   ? "user"
                 : info->stage == STAGE_EXEC  ? "program"
                                              : "process",
                 strerrordesc_np((int)info->errnum) ? strerrordesc_np((int)info->errnum) : "unknown error");
        break;
    case SVC_WHY_BLOCKED: snprintf(out, size, "one that it comes after has failed"); break;
    default: break;
    }
}

static void put_after(struct json *json, const struct service_def *def)
{
    json_key_array(json, "after");
    for (const struct json_value *v = def->after ? def->after->first : NULL; v; v = v->next)
        json_string(json, v->string);
    json_end(json);
}

static void put_exit(struct json *json, const struct svc_unit_info *info)
{
    int status = (int)info->status;
    bool exited = info->why == SVC_WHY_EXITED;

    json_key(json, "exit_code");
    if (exited && WIFEXITED(status))
        json_u64(json, (uint64_t)WEXITSTATUS(status));
    else
        json_null(json);
    json_key(json, "signal");
    if (exited && WIFSIGNALED(status))
        json_u64(json, (uint64_t)WTERMSIG(status));
    else
        json_null(json);
}

static void put_service(struct json *json, const struct service_def *def, const struct svc_unit_info *info)
{
    uint64_t now = clock_mono_ns();
    uint64_t ago = info->since_ns < now ? now - info->since_ns : 0;
    char text[256];

    json_object(json);
    json_key_string(json, "name", def->name);
    json_key_string(json, "state", state_names[info->state]);
    json_key(json, "pid");
    if (info->pid)
        json_u64(json, info->pid);
    else
        json_null(json);
    receipt_put_time(json, "since", clock_real_ns() - (int64_t)ago);
    json_key_u64(json, "restarts", info->restarts);
    put_exit(json, info);
    service_describe(info, def, text, sizeof text);
    json_key_text(json, "detail", text);
    json_key_string(json, "restart", service_restart_name(def->restart));
    describe_ready(def, text, sizeof text);
    json_key_text(json, "ready", text);
    put_after(json, def);
    json_key_u64(json, "output", info->output);
    json_key_u64(json, "output_from", info->oldest);
    json_end(json);
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

static void on_info(void *ctx, const uint8_t *data, size_t len)
{
    struct ask *ask = ctx;
    struct svc_unit_info info;

    if (ask->n == SVC_UNITS_MAX || svc_unit_info_parse(data, len, &info) < 0)
        return;
    memcpy(ask->names[ask->n], info.name.data, info.name.len); /* its length was checked; a NUL follows */
    info.name = (struct svc_bytes){ask->names[ask->n], info.name.len};
    ask->infos[ask->n++] = info;
}

static const struct svc_unit_info *find_info(const struct ask *ask, const char *name)
{
    for (unsigned i = 0; i < ask->n; i++)
        if (str_eq(ask->names[i], name))
            return &ask->infos[i];
    return NULL;
}

static int write_answer(struct ask *ask, const struct service_defs *defs, struct json *json, struct brig_err *err)
{
    static const struct svc_unit_info unknown = {.state = SVC_UNIT_FAILED};

    if (!ask->control) {
        json_object(json);
        json_key_array(json, "services");
    }
    for (unsigned i = 0; i < defs->n; i++) {
        const struct service_def *def = &defs->list[i];
        const struct svc_unit_info *info = find_info(ask, def->name);

        if (!ask->control || str_eq(def->name, ask->name))
            put_service(json, def, info ? info : &unknown);
    }
    if (!ask->control) {
        json_end(json);
        json_end(json);
    }
    return json_finish(json) < 0 ? err_nomem(err) : 0;
}

/* A start or restart that has not come up is an error, with the reason. */
static int judge_control(const struct ask *ask, const struct service_defs *defs, struct brig_err *err)
{
    const struct svc_unit_info *info = find_info(ask, ask->name);
    const struct service_def *def = service_find_def(defs, ask->name);
    char why[224];

    if (!ask->control || ask->op == SVC_UNIT_STOP || (info && info->state == SVC_UNIT_READY))
        return 0;
    if (info && def)
        service_describe(info, def, why, sizeof why);
    else
        snprintf(why, sizeof why, "the sandbox does not know it");
    return err_set(err, BRIG_E_CONFLICT, 0, "service %s is %s: %.160s", ask->name,
                   info ? state_names[info->state] : "unknown", why[0] ? why : "it has ended");
}

static void answer(struct ask *ask)
{
    AUTO_JSON struct json_doc *doc = NULL;
    AUTO_BUF struct buf out = BUF_INIT(LIST_MAX);
    struct json json = JSON_INIT(&out);
    struct brig_err err = {0};
    struct service_defs *defs = mem_alloc(sizeof *defs);
    int r = defs ? services_defs(ask->sbox, &doc, defs, &err) : err_nomem(&err);

    r = r < 0 ? r : judge_control(ask, defs, &err);
    r = r < 0 ? r : write_answer(ask, defs, &json, &err);
    mem_free(defs);
    audit_control(ask, r < 0 ? &err : NULL);
    service_done_fn *done = ask->done;
    void *ctx = ask->ctx;
    ask_free(ask);
    if (done && r < 0)
        done(ctx, NULL, 0, &err);
    else if (done)
        done(ctx, out.data, out.len, NULL);
}

static void on_listed(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct ask *ask = ctx;

    ask->call = NULL;
    if (errnum)
        ask_fail_errno(ask, errnum);
    else if (ask->check)
        services_checked(ask);
    else if (ask->create)
        services_start_failed(ask);
    else
        answer(ask);
}

int ask_list(struct ask *ask, struct brig_err *err)
{
    const struct call_events events = {.event = on_info, .reply = on_listed, .ctx = ask};

    ask->n = 0;
    return link_call(ask->sbox->priv->link, SVC_UNIT_LIST, "", 0, &events, &ask->call, err);
}

void ask_list_or_fail(struct ask *ask)
{
    struct brig_err err = {0};

    if (ask_list(ask, &err) < 0)
        ask_fail(ask, &err);
}

static void on_late(struct loop_timer *timer)
{
    struct ask *ask = timer->ctx;
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_TIMEOUT, 0, "services of sandbox %s: its brig-init does not answer",
                  sbox_label(ask->sbox));
    ask_fail(ask, &err);
}

void ask_arm(struct ask *ask, uint64_t ns)
{
    ask->late = (struct loop_timer){.fn = on_late, .ctx = ask};
    (void)!loop_timer_set(ask->sbox->manager->loop, &ask->late, loop_now_ns() + ns, NULL);
}

int services_list(struct sbox *sbox, service_done_fn *done, void *ctx, struct brig_err *err)
{
    int r = sbox_usable(sbox, err);
    struct ask *ask = r < 0 ? NULL : ask_new(sbox, done, ctx, err);

    if (!ask)
        return r < 0 ? r : -ENOMEM;
    r = ask_list(ask, err);
    if (r < 0)
        ask_free(ask);
    else
        ask_arm(ask, SERVICES_MARGIN_NS);
    return r;
}

/* ---- start, stop, restart -------------------------------------------------------------------------------------- */

static void on_controlled(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                          size_t len UNUSED)
{
    struct ask *ask = ctx;

    ask->call = NULL;
    if (errnum)
        ask_fail_errno(ask, errnum);
    else
        ask_list_or_fail(ask);
}

int service_control(struct sbox *sbox, const struct caller *caller, const char *name, enum svc_unit_op op,
                    service_done_fn *done, void *ctx, struct brig_err *err)
{
    uint8_t message[SVC_UNIT_NAME_MAX + 16];
    int r = sbox_usable(sbox, err);

    r = r < 0 ? r : check_name_known(sbox, name, err);
    struct ask *ask = r < 0 ? NULL : ask_new(sbox, done, ctx, err);
    if (!ask)
        return r < 0 ? r : -ENOMEM;
    ask->control = true;
    ask->op = op;
    ask->caller = *caller;
    (void)!str_copy(ask->name, sizeof ask->name, name); /* it is one of the names of the spec */
    const struct svc_unit_control msg = {.op = op, .name = {ask->name, (uint32_t)strlen(ask->name)}};
    const struct call_events events = {.reply = on_controlled, .ctx = ask};
    r = svc_unit_control_put(message, sizeof message, &msg);
    r = r < 0 ? err_usage(err, "service %.64s: the name is too long", name)
              : link_call(sbox->priv->link, SVC_UNIT_CONTROL, message, (size_t)r, &events, &ask->call, err);
    if (r < 0)
        ask_free(ask);
    else /* it may have to end, and then to get up */
        ask_arm(ask, 2 * SVC_UNIT_TIME_MAX * NS_PER_MS + SERVICES_MARGIN_NS);
    return r;
}

void services_drop(struct sbox *sbox, const void *ctx)
{
    for (struct ask *ask = sbox->priv->asks; ask; ask = ask->next)
        if (ask->ctx == ctx)
            ask->done = NULL;
}

/* ---- output ---------------------------------------------------------------------------------------------------- */

static void log_free(struct service_log *log)
{
    struct sbox_private *priv = log->sbox->priv;

    list_remove(&priv->logs, log);
    if (priv->tail_log == log)
        priv->tail_log = NULL;
    if (log->call)
        call_drop(log->call);
    mem_free(log);
}

static void on_log_begin(void *ctx, const uint8_t *data, size_t len)
{
    struct service_log *log = ctx;

    if (len == 8 && log->events.begin)
        log->events.begin(log->events.ctx, le_get_u64(data));
}

static void on_log_data(void *ctx, unsigned stream UNUSED, const uint8_t *data, size_t len)
{
    struct service_log *log = ctx;

    log->events.data(log->events.ctx, data, len);
}

static void log_end(struct service_log *log, const struct brig_err *err)
{
    struct service_log_events events = log->events;

    log_free(log);
    events.end(events.ctx, err);
}

static void on_log_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                         size_t len UNUSED)
{
    struct service_log *log = ctx;
    struct brig_err err = {0};

    log->call = NULL;
    if (errnum)
        (void)err_set(&err, errnum == ENOTCONN ? BRIG_E_GONE : BRIG_E_HOST, (int)errnum, "output of the service");
    log_end(log, errnum ? &err : NULL);
}

static int log_begin(struct sbox *sbox, const char *name, uint64_t offset, bool follow, struct service_log *log,
                     struct brig_err *err)
{
    const struct svc_unit_log msg = {.name = {name, (uint32_t)strlen(name)}, .offset = offset, .follow = follow};
    const struct call_events events = {.event = on_log_begin, .data = on_log_data, .reply = on_log_reply, .ctx = log};
    uint8_t message[SVC_UNIT_NAME_MAX + 32];
    int len = svc_unit_log_put(message, sizeof message, &msg);

    if (len < 0)
        return err_usage(err, "service %.64s: the name is too long", name);
    return link_call(sbox->priv->link, SVC_UNIT_LOG, message, (size_t)len, &events, &log->call, err);
}

int service_log_begin(struct sbox *sbox, const char *name, uint64_t offset, bool follow,
                      const struct service_log_events *events, struct service_log **ret, struct brig_err *err)
{
    struct service_log *log = mem_zalloc(sizeof *log);

    if (!log)
        return err_nomem(err);
    log->sbox = sbox;
    log->events = *events;
    list_push(&sbox->priv->logs, log);
    int r = log_begin(sbox, name, offset, follow, log, err);
    if (r < 0)
        log_free(log);
    else
        *ret = log;
    return r;
}

int service_log_open(struct sbox *sbox, const char *name, uint64_t offset, bool follow,
                     const struct service_log_events *events, struct service_log **ret, struct brig_err *err)
{
    int r = sbox_usable(sbox, err);

    r = r < 0 ? r : check_name_known(sbox, name, err);
    return r < 0 ? r : service_log_begin(sbox, name, offset, follow, events, ret, err);
}

void service_log_consumed(struct service_log *log, size_t len)
{
    if (log->call)
        call_consumed(log->call, 1, len);
}

void service_log_close(struct service_log *log)
{
    if (log)
        log_free(log);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

void services_gone(struct sbox *sbox)
{
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_CONFLICT, 0, "sandbox %s has ended", sbox_label(sbox));
    while (sbox->priv->logs)
        if (sbox->priv->logs == sbox->priv->tail_log) /* whose ask is told now */
            log_free(sbox->priv->logs);
        else
            log_end(sbox->priv->logs, &err);
    while (sbox->priv->asks) {
        struct ask *ask = sbox->priv->asks;
        ask->create = false; /* the create ends with its box */
        ask_fail(ask, &err);
    }
}

void services_free(struct sbox *sbox)
{
    while (sbox->priv->logs)
        log_free(sbox->priv->logs);
    while (sbox->priv->asks)
        ask_free(sbox->priv->asks);
    buf_done(&sbox->priv->service_tail);
}
