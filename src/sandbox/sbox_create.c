/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_create.c: turns an accepted spec into a running sandbox. An end may overtake each of these steps:
 *
 *     accepted (counts for every limit) -> the provider makes a box -> up: it has an id -> [working directory made]
 *       -> row and idempotency row committed -> running, and the caller is called
 *
 * With a network brig-egress is asked at the same time (network.c), and the last of its answers and the commit ends the
 * create; only a sandbox that brokers must have its authority's TLS certificate before there can be a box.
 *
 * A create that fits a parked sandbox (parked/parked.h) takes that: it has a box and an id already, and begins at the
 * row. If its services are not all ready any more, or it dies before the create is answered, another box is made the
 * ordinary way, and the row is written again.
 *
 * Until the commit the sandbox is `creating`; if anything fails, the box is ended, the caller gets the reason, and
 * nothing is left. A crash between `up` and the commit leaves a box without a row, which the next start ends as an
 * orphan.
 */
#include "base/id.h"
#include "codec/wire/guest_svc.h"
#include "provider/providers.h"
#include "sandbox/parked/parked.h"
#include "sandbox/private.h"
#include "sandbox/processes.h"
#include "sandbox/sbox_place.h"
#include "sandbox/services/services_priv.h"

#define DEFAULT_WORKDIR "/workspace" /* made by the jail */

static bool is_new(const struct sbox *sbox)
{
    return sbox->priv->recreated == 0;
}

/* Ends a create that cannot succeed any more; the reason is told once the box is gone. */
static void give_up(struct sbox *sbox, const struct brig_err *why)
{
    struct sbox_private *priv = sbox->priv;

    if (!priv->create_err.code)
        priv->create_err = *why;
    if (sbox_move(sbox, SBOX_STOPPING, NULL) == 0)
        sbox_stop(sbox, NULL, is_new(sbox) ? "create-failed" : "recreate-failed", "sandbox");
}

/* The template's own record says when it was used last, if it still is what this sandbox was made from. */
static void note_use(const struct sbox *sbox)
{
    const struct template_copy *image = sbox->spec.image;
    const struct object *object = templates_find(sbox->manager->templates, image->org, image->name);

    if (object)
        templates_used(sbox->manager->templates, object);
}

static void running(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;
    struct sbox_private *priv = sbox->priv;
    uint64_t now = sandbox_boot_ns();

    sbox_moved(sbox, SBOX_RUNNING);
    priv->announced = true;
    sbox->last_used_boot_ns = now;
    if (is_new(sbox) && !priv->internal) {
        manager->creating--;
        manager->stats.created++;
    }
    if (!priv->internal)
        idle_arm(sbox);
    network_running(sbox);
    const char *action = is_new(sbox) ? "sandbox.create" : "sandbox.recreate";
    if (!priv->internal)
        sandbox_audit(manager, is_new(sbox) ? &priv->creator : NULL, sbox->org_id, action, sbox->id, "ok",
                      sbox->spec.name, false);
    sandbox_event(sbox, action, NULL);
    if (is_new(sbox) && sbox->spec.image && !priv->parked)
        note_use(sbox);
    struct idem *idem = take_ptr(&priv->idem);
    sbox_done_fn *done = take_ptr(&priv->create_done);
    if (done)
        done(priv->create_ctx, sbox, NULL);
    idem_settle(manager, idem, sbox, NULL);
}

/* Once the network is there: a service that asks for a name at its start gets an answer. */
static void start_services(struct sbox *sbox)
{
    struct brig_err err = {0};

    if (sbox->state != SBOX_CREATING || network_waits(sbox))
        return;
    sbox->priv->services_wait = false;
    if (services_begin(sbox, &err) < 0)
        give_up(sbox, &err);
}

/* Whatever comes last, the store's commit or brig-egress, ends the create. */
static void settle(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;

    if (priv->services_wait)
        start_services(sbox);
    if (sbox->state != SBOX_CREATING || !priv->settling || priv->commits > 0 || network_waits(sbox))
        return;
    if (priv->create_err.code)
        give_up(sbox, &priv->create_err);
    else
        running(sbox);
}

static void on_again(struct loop_timer *timer);

/* From the loop: nobody is called back from within the create. */
static void soon(struct sbox *sbox, loop_timer_fn *fn)
{
    sbox->priv->later.fn = fn;
    /* moves it: cannot fail */
    (void)!loop_timer_set(sbox->manager->loop, &sbox->priv->later, loop_now_ns(), NULL);
}

static void on_commit(void *ctx, const struct brig_err *err)
{
    struct sbox *sbox = ctx;
    struct sbox_private *priv = sbox->priv;

    priv->commits--;
    if (err && !priv->create_err.code)
        priv->create_err = *err;
    if (priv->again && priv->commits == 0 && sbox->state == SBOX_CREATING)
        soon(sbox, on_again);
    else
        settle(sbox);
}

static void commit(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;
    struct brig_err err = {0};
    int r = 0;

    priv->settling = true;
    if (!is_new(sbox)) {
        settle(sbox);
        if (row_write(sbox, NULL, NULL, &err) < 0) /* the old row says a box that is gone: the worst is an orphan ended
                                                      at a restart */
            sandbox_audit(sbox->manager, NULL, sbox->org_id, "sandbox.recreate", sbox->id, "failed", err.message,
                          false);
        return;
    }
    if (sbox->spec.timeout_ms)
        sbox->ends_at_boot_ns = sandbox_boot_ns() + sbox->spec.timeout_ms * NS_PER_MS;
    if (sbox->spec.ephemeral) {
        settle(sbox);
        return;
    }
    if (priv->idem) {
        r = idem_write(sbox->manager, priv->idem, sbox, on_commit, sbox, &err);
        priv->commits += r == 0;
    }
    if (r == 0) {
        r = row_write(sbox, on_commit, sbox, &err);
        priv->commits += r == 0;
        priv->row = priv->row || r == 0;
    }
    if (r < 0)
        give_up(sbox, &err);
}

/* The box can be used: its services are started, if it has some, and then it is committed. */
static void go_on(struct sbox *sbox)
{
    if (!sbox->spec.services) {
        commit(sbox);
        return;
    }
    sbox->priv->services_wait = true;
    start_services(sbox);
}

void create_services_done(struct sbox *sbox, const struct brig_err *err)
{
    if (sbox->state != SBOX_CREATING)
        return;
    if (err && sbox->priv->pooled) {
        sbox_ops(sbox)->end(sbox->priv->box); /* create_ended() goes on */
        return;
    }
    if (err && !sbox->spec.services_keep) {
        give_up(sbox, err);
        return;
    }
    if (err)
        str_cut(sbox->spec.note, sizeof sbox->spec.note, err->message);
    commit(sbox);
}

/* Goes on once brig-init has answered everything that it was asked. */
static void prepared(struct sbox *sbox)
{
    if (!sbox->priv->mkdir && !sbox->priv->find_user)
        go_on(sbox);
}

/* ---- the user ------------------------------------------------------------------------------------------- */

static void on_user(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct sbox *sbox = ctx;
    struct brig_err err = {0};

    sbox->priv->find_user = NULL;
    if (sbox->state != SBOX_CREATING || sbox->priv->create_err.code)
        return;
    if (errnum == 0) {
        prepared(sbox);
        return;
    }
    (void)user_not_found(sbox->spec.user, errnum, &err);
    give_up(sbox, &err);
}

static int find_user(struct sbox *sbox, const char *user, struct brig_err *err)
{
    uint8_t message[USER_TEXT_MAX + 8];
    struct svc_cursor out = {message, message + sizeof message, false};
    const struct call_events events = {.reply = on_user, .ctx = sbox};

    svc_put_bytes(&out, (struct svc_bytes){user, (uint32_t)strlen(user)});
    return link_call(sbox->priv->link, SVC_USER, message, (size_t)(out.at - message), &events, &sbox->priv->find_user,
                     err);
}

/* ---- the working directory ------------------------------------------------------------------------------ */

static void on_mkdir(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct sbox *sbox = ctx;
    struct brig_err err = {0};

    sbox->priv->mkdir = NULL;
    if (sbox->state != SBOX_CREATING || sbox->priv->create_err.code)
        return;
    if (errnum != 0 && errnum != ENOTCONN && sbox->spec.workdir_of_image) {
        snprintf(sbox->spec.note, sizeof sbox->spec.note,
                 "the working directory of the image is not there (%.128s): %s is used", sbox->spec.workdir,
                 DEFAULT_WORKDIR);
        (void)!str_copy(sbox->spec.workdir, sizeof sbox->spec.workdir, DEFAULT_WORKDIR);
        errnum = 0;
    }
    if (errnum == 0) {
        prepared(sbox);
        return;
    }
    (void)err_set(&err, errnum == ENOTCONN ? BRIG_E_GONE : BRIG_E_USAGE, (int)errnum, "workdir %s", sbox->spec.workdir);
    give_up(sbox, &err);
}

static int make_workdir(struct sbox *sbox, struct brig_err *err)
{
    const char *dir = sbox->spec.workdir;
    uint8_t message[sizeof sbox->spec.workdir + 64];
    struct svc_cursor out = {message, message + sizeof message, false};
    const struct call_events events = {.reply = on_mkdir, .ctx = sbox};

    svc_put_path(&out, &(struct svc_path){.base = {"/", 1}, .path = {dir, (uint32_t)strlen(dir)}});
    svc_put_u32(&out, 0755);
    svc_put_u32(&out, 1);
    if (out.bad)
        return err_usage(err, "workdir %s: too long", dir);
    return link_call(sbox->priv->link, SVC_FILE_MKDIR, message, (size_t)(out.at - message), &events, &sbox->priv->mkdir,
                     err);
}

/* ---- a parked sandbox ------------------------------------------------------------------------------------ */

static void on_taken(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;
    struct brig_err err = {0};

    (void)!sbox_park_later(sbox);
    if (sbox->state != SBOX_CREATING)
        return;
    if (sbox->priv->link_gone)
        sbox_ops(sbox)->end(sbox->priv->box); /* create_ended() goes on */
    else if (!sbox->spec.services)
        commit(sbox);
    else if (services_check(sbox, &err) < 0)
        create_services_done(sbox, &err);
}

static void on_again(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;
    struct brig_err err = {0};

    (void)!sbox_park_later(sbox);
    sbox->priv->again = false;
    link_destroy(take_ptr(&sbox->priv->link));
    if (!sbox->priv->create_err.code && create_box(sbox, &err) == 0)
        return;
    if (!sbox->priv->create_err.code)
        sbox->priv->create_err = err;
    create_ended(sbox);
}

/*
 * The parked one was no good, and nobody has heard of it: the create begins again without it, after the writes that it
 * has asked for.
 */
static bool make_again(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;

    if (!priv->pooled || sbox->state != SBOX_CREATING || sbox->manager->shutting_down)
        return false;
    priv->pooled = priv->up = priv->settling = false;
    priv->again = true;
    if (priv->commits == 0)
        soon(sbox, on_again);
    return true;
}

/* ---- the box ---------------------------------------------------------------------------------------------- */

int sbox_connect(struct sbox *sbox, int fd, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;
    const struct link_events events = {.gone = sbox_link_gone, .ctx = sbox};

    link_destroy(take_ptr(&priv->link));
    priv->link_gone = false;
    if (fd < 0) /* it came, and there was no room for it */
        return err_set(err, BRIG_E_HOST, EMFILE, "stream of the sandbox");
    return link_create(sbox->manager->loop, fd, &events, &priv->link, err);
}

static int take_up(struct sbox *sbox, struct box_up *up, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;

    if (str_copy(priv->box_id, sizeof priv->box_id, up->id) < 0)
        return err_set(err, BRIG_E_HOST, 0, "the provider's id %s: too long", up->id);
    if (id_sandbox(sbox->boot_id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random id");
    if (!sbox->id[0]) {
        if (sbox_by_id(sbox->manager, up->id))
            return err_set(err, BRIG_E_HOST, EEXIST, "the provider's id %s", up->id);
        if (str_copy(sbox->id, sizeof sbox->id, up->id) < 0)
            return err_set(err, BRIG_E_HOST, 0, "the provider's id %s: too long", up->id);
        if (!priv->internal)
            sbox_table_add(sbox);
    }
    place_take(sbox, up);
    int r = sbox_connect(sbox, take_fd(&up->stream_fd), err);
    if (r == 0)
        r = network_listen(sbox, up->listeners, err);
    const char *user = spec_user_to_find(&sbox->spec);
    if (r == 0 && user) /* first: what follows is done as this user */
        r = find_user(sbox, user, err);
    return r < 0 || str_eq(sbox->spec.workdir, DEFAULT_WORKDIR) ? r : make_workdir(sbox, err);
}

static void on_up(void *ctx, struct box_up *up)
{
    struct sbox *sbox = ctx;
    struct brig_err err = {0};

    if (sbox->state != SBOX_CREATING)
        return; /* it is being ended; the stream stays the provider's */
    int r = take_up(sbox, up, &err);
    sbox->priv->up = r == 0;
    if (r < 0)
        give_up(sbox, &err);
    else
        prepared(sbox);
}

void create_listening(struct sbox *sbox, const struct brig_err *err)
{
    if (err && sbox->state == SBOX_CREATING)
        give_up(sbox, err);
    else
        settle(sbox);
}

/* Is the working directory the one that the image names? */
static bool of_image(const struct sbox_spec *spec)
{
    return spec->image && spec->image->info.n_layers > 0 && str_eq(spec->image->info.image.workdir, spec->workdir);
}

static int make_box(struct sbox *sbox, struct brig_err *err)
{
    struct manager *manager = sbox->manager;
    struct provider *provider = sbox->priv->provider;
    const struct sbox_spec *spec = &sbox->spec;
    struct template_place place = {.object = NULL};
    struct disk_wanted wanted;
    const struct box_events events = {.up = on_up, .ended = sbox_box_ended, .ctx = sbox, .counted = children_counted};

    /* Paths were judged when they were asked for; what a name of layers means was copied then. */
    const char *base = spec->engine_image[0] ? "" : !spec->image ? spec->template_name : spec->image->info.base;
    int r = base[0] ? spec_template(base, manager->config, NULL, "", true, &place, err) : 0;
    if (r < 0)
        return r;
    struct provider_spec asked = {
        .rootfs = place.rootfs[0] ? place.rootfs : NULL,
        .image = spec->engine_image[0] ? spec->engine_image : NULL,
        .layers = spec->image ? spec->image->info.layers : spec->below,
        .n_layers = spec->image ? spec->image->info.n_layers : spec->n_below,
        .workdir = of_image(spec) ? spec->workdir : NULL,
        .new_layer = spec->new_layer,
        .raw_upper = spec->raw_upper,
        .tmpfs = spec->tmpfs,
        .n_tmpfs = spec->n_tmpfs,
        .writable_root = spec->writable_root,
        .root_inside = spec_root_inside(spec),
        .sudo = spec->sudo,
        .any_user = spec_user_to_find(spec) != NULL,
        .limits = spec->limits,
        .require = spec->require,
        .profile = spec->profile,
        .binds = spec->binds,
        .n_binds = spec->n_binds,
        .binds_inside = spec->binds_inside,
        .zygote = spec->zygote,
    };
    AUTO_FD int trust = -1;
    r = disk_want(spec, &wanted, &asked, err);
    if (r == 0)
        r = network_want(sbox, &asked.gate, &trust, err);
    if (r == 0)
        r = provider_fits(provider->ops, &asked, err);
    return r < 0 ? r : provider->ops->create(provider, &asked, &events, &sbox->priv->box, err);
}

int create_box(struct sbox *sbox, struct brig_err *err)
{
    int r = network_begin(sbox, err);

    sbox->priv->settling = false;
    return r == 0 ? make_box(sbox, err) : r < 0 ? r : 0;
}

void create_prepared(struct sbox *sbox, const struct brig_err *err)
{
    struct brig_err why = {0};

    if (sbox->state != SBOX_CREATING)
        return; /* it is being ended, and its slot with it */
    if (err || (!sbox->priv->box && make_box(sbox, &why) < 0))
        give_up(sbox, err ? err : &why);
    else
        settle(sbox);
}

void create_ended(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;
    struct sbox_private *priv = sbox->priv;
    struct brig_err err = {0};

    if (make_again(sbox))
        return;
    create_failure(sbox, &err);
    if (!priv->internal) {
        manager->creating--;
        manager->stats.create_failures++;
        sandbox_audit(manager, &priv->creator, sbox->org_id, "sandbox.create", sbox->id, "failed", err.message, false);
    }
    if (sbox->state == SBOX_CREATING)
        sbox_moved(sbox, SBOX_STOPPING);
    struct idem *idem = take_ptr(&priv->idem);
    sbox_done_fn *done = take_ptr(&priv->create_done);
    if (done)
        done(priv->create_ctx, priv->failed_service[0] ? sbox : NULL, &err);
    idem_settle(manager, idem, NULL, &err);
    sbox_finish(sbox);
}

static int admit(struct manager *manager, const struct caller *caller, struct sbox_spec *spec, struct idem *idem,
                 sbox_done_fn *done, void *ctx, struct sbox **ret, struct brig_err *err)
{
    const struct sbox *other = spec->name[0] ? sbox_by_name(manager, caller->org_id, spec->name) : NULL;
    struct provider *provider = NULL;

    if (other)
        return err_set(err, BRIG_E_CONFLICT, 0, "name %s: sandbox %s has it", spec->name, sbox_label(other));
    int r = place_find(manager, spec->provider, &provider, err);
    if (r == 0)
        r = volumes_attach(manager, caller->org_id, spec, NULL, err);
    if (r < 0)
        return r;
    r = quota_check(manager, caller, spec, 1, NULL, err);
    if (r < 0 && spec->internal)
        return r; /* who asked for a run is told, and the audit with it */
    if (r < 0) {
        manager->stats.quota_refusals++;
        const struct audit_event event = {.action = "sandbox.create",
                                          .actor = caller->actor,
                                          .org = caller->org_id,
                                          .object = spec->name,
                                          .outcome = "denied",
                                          .detail = err ? err->message : "",
                                          .request_id = caller->request_id,
                                          .sync = true,
                                          .kind = "quota",
                                          .any_object = true};
        if (manager->audit)
            audit_add(manager->audit, &event, NULL, NULL);
        return r;
    }
    struct sbox *sbox = parked_take(manager, spec);
    if (!sbox) {
        if (!spec->internal)
            parked_give_way(manager);
        sbox = sbox_new(manager, spec->internal);
    }
    if (!sbox)
        return err_nomem(err);
    sbox->priv->parked = spec->parked;
    manager->n_parked += spec->parked;
    str_assign(sbox->org_id, caller->org_id);
    str_assign(sbox->key_id, caller->key_id);
    sbox->priv->creator = *caller;
    sbox->priv->provider = provider;
    sbox->spec = *spec;
    *spec = (struct sbox_spec){0};
    sbox_name_add(sbox);
    if (sbox->priv->pooled)
        soon(sbox, on_taken);
    else
        r = create_box(sbox, err);
    if (r < 0) {
        if (!sbox->priv->internal) {
            manager->stats.create_failures++;
            sandbox_audit(manager, caller, NULL, "sandbox.create", sbox->spec.name, "failed", err ? err->message : "",
                          false);
        }
        sbox_moved(sbox, SBOX_STOPPING);
        sbox_moved(sbox, SBOX_ENDED);
        sbox_forget(sbox);
        return r;
    }
    manager->creating += !sbox->priv->internal;
    *ret = sbox;
    sbox->priv->create_done = done;
    sbox->priv->create_ctx = ctx;
    sbox->priv->idem = idem;
    return 0;
}

static int accepts(const struct manager *manager, struct brig_err *err)
{
    if (manager->is_ready && !manager->shutting_down)
        return 0;
    return err_set(err, BRIG_E_BUSY, 0, "%s",
                   manager->shutting_down ? "the service is shutting down" : "the service is starting");
}

int manager_create_internal(struct manager *manager, const struct caller *caller, struct sbox_spec *spec,
                            sbox_done_fn *done, void *ctx, struct sbox **ret, struct brig_err *err)
{
    int r = accepts(manager, err);

    r = r < 0 ? r : admit(manager, caller, spec, NULL, done, ctx, ret, err);
    sbox_spec_done(spec);
    return r;
}

int manager_create_sandbox(struct manager *manager, const struct caller *caller, struct sbox_spec *spec,
                           const char *idempotency_key, const uint8_t fingerprint[32], sbox_done_fn *done, void *ctx,
                           struct brig_err *err)
{
    struct idem *idem = NULL;
    struct sbox *sbox = NULL;
    struct brig_err why = {0};
    int r = accepts(manager, &why);

    if (r == 0 && idempotency_key)
        r = idem_begin(manager, caller, idempotency_key, fingerprint, done, ctx, &idem, &why);
    if (r == 0) {
        r = admit(manager, caller, spec, idem, done, ctx, &sbox, &why);
        if (r < 0)
            idem_settle(manager, idem, NULL, &why);
    }
    sbox_spec_done(spec);
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : 0;
}
