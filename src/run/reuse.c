/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reuse.c: places runs in a sandbox that is not a parked child's: one that the caller names (`sandbox_id`), one that
 * lives on between runs (`reuse: agent | fingerprint`), and one made for a single run whose brokered secrets must be
 * known when it is made. In each the run is a new process with the same protocol.
 *
 * A sandbox that lives on has a mark in its row (sbox_spec.reuse), which no request can set: a hash of what its runs
 * have in common, which is the key that made it, the agent or the fingerprint, whose source runs there, and the network
 * and secrets that it was given. So nobody can replace it by one of their own, and no run finds more in it than it
 * could have asked for. Its metadata is for people. It ends when the configuration changes (executor_retire()), or when
 * a run finds it with another fingerprint. Runs that come while it is being made wait for it.
 */
#include <string.h>

#include "base/list.h"
#include "run/run_priv.h"

#define LOOK_AGAIN_NS (10 * NS_PER_MS)
#define GIVE_UP_NS (60 * NS_PER_SEC)
#define REUSE_IDLE_MS (3600u * 1000u)

struct reuse_wait {
    struct run *run; /* NULL: cancelled */
    struct executor *executor;
    struct reuse_wait *next, *prev;
    struct loop_timer timer;
    uint64_t until_ns;
    bool asked; /* a callback of the manager's is on its way */
    bool ephemeral;
    char mark[40]; /* "" of an ephemeral one */
};

static void wait_free(struct reuse_wait *wait)
{
    struct executor *executor = wait->executor;

    loop_timer_clear(executor->o.loop, &wait->timer);
    list_remove(&executor->reuses, wait);
    mem_free(wait);
}

void reuse_cancel(struct reuse_wait *wait)
{
    wait->run = NULL;
    loop_timer_clear(wait->executor->o.loop, &wait->timer);
    if (!wait->asked)
        wait_free(wait);
}

/* ---- the place ------------------------------------------------------------------------------------------ */

static int use(struct run *run, struct sbox *sbox, struct brig_err *err)
{
    int r = sbox_usable(sbox, err);

    if (r < 0)
        return r;
    if (!runtime_argv(run->tool.language, false))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "%s: there is no runtime for it",
                       tool_language_name(run->tool.language));
    if (run->needs < STANDING_ADMIN && sbox_is_gifted(sbox))
        run->needs = STANDING_ADMIN; /* what it says is then not for everybody */
    run->live = sbox;
    return 0;
}

static void go(struct reuse_wait *wait, struct sbox *sbox)
{
    struct run *run = wait->run;
    struct brig_err err = {0};

    run->reusing = NULL;
    wait_free(wait);
    if (use(run, sbox, &err) == 0)
        run_next(run);
    else
        place_failed(run, &err, err.code == BRIG_E_BUSY);
}

static void fail(struct reuse_wait *wait, const struct brig_err *why)
{
    struct run *run = wait->run;

    run->reusing = NULL;
    wait_free(wait);
    place_failed(run, why, why->code == BRIG_E_BUSY);
}

/* ---- making one ----------------------------------------------------------------------------------------- */

static void look_later(struct reuse_wait *wait)
{
    struct brig_err err = {0};

    if (loop_now_ns() > wait->until_ns)
        (void)err_set(&err, BRIG_E_BUSY, 0, "the sandbox of the %s did not get ready",
                      wait->run->reuse == REUSE_AGENT ? "agent" : "fingerprint");
    else if (loop_timer_set(wait->executor->o.loop, &wait->timer, loop_now_ns() + LOOK_AGAIN_NS, &err) == 0)
        return;
    fail(wait, &err);
}

static void on_made(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct reuse_wait *wait = ctx;

    wait->asked = false;
    if (!wait->run) {
        if (!err && wait->ephemeral)
            (void)!sbox_end(sbox, NULL, "cancelled", NULL, NULL, NULL);
        wait_free(wait);
    } else if (!err) {
        if (wait->ephemeral)
            (void)!str_copy(wait->run->own_sandbox, sizeof wait->run->own_sandbox, sbox_id(sbox));
        go(wait, sbox);
    } else if (err->code == BRIG_E_CONFLICT) {
        look_later(wait); /* somebody else makes it */
    } else {
        fail(wait, err);
    }
}

static int put_spec(const struct run *run, const struct reuse_wait *wait, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "provider", run->place->ops->name);
    if (!wait->ephemeral) {
        json_key_object(&json, "metadata");
        json_key_string(&json, "reuse", run->reuse == REUSE_AGENT ? "agent" : "fingerprint");
        json_key_string(&json, "fingerprint", run->fingerprint);
        if (run->agent_id[0])
            json_key_string(&json, "agent_id", run->agent_id);
        json_end(&json);
    }
    if (run->template_name[0]) {
        json_key_string(&json, "template", run->template_name);
        json_key_string(&json, "user", "user");
        json_key_string(&json, "workdir", "/workspace");
    }
    json_key(&json, "network");
    if (run->network)
        json_value_put(&json, run->network);
    else
        json_string(&json, "none");
    if (run->secrets_json)
        json_key(&json, "secrets"), json_value_put(&json, run->secrets_json);
    json_key_array(&json, "binds");
    if (run->set) {
        json_object(&json);
        json_key_string(&json, "source", run->set->host_path);
        json_key_string(&json, "target", SET_PATH);
        json_key_bool(&json, "read_only", true);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}

static void raise_limits(const struct brig_limits *from, struct brig_limits *to)
{
    const uint64_t *a = (const uint64_t *)from;
    uint64_t *b = (uint64_t *)to;

    _Static_assert(sizeof *from == BRIG_LIMIT_MAX * sizeof(uint64_t), "limits are numbers");
    for (size_t i = 0; i < BRIG_LIMIT_MAX; i++)
        if (a[i])
            b[i] = a[i];
}

static int make(struct reuse_wait *wait, struct brig_err *err)
{
    struct run *run = wait->run;
    const struct executor_options *o = &run->executor->o;
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    struct sbox_spec spec = {0};
    struct caller ours = run->caller;
    int r = put_spec(run, wait, &text);

    /* It was judged as what its name meant then. */
    if (run->template_name[0] &&
        !templates_stands(manager_templates(o->manager), run->caller.org_id, run->template_name, run->template_id))
        return err_set(err, BRIG_E_BUSY, 0, "template %s: has been replaced meanwhile", run->template_name);
    ours.socket = true; /* the bind is ours, not the tenant's */
    ours.role = STORE_ROLE_ADMIN;
    if (r == 0)
        r = json_read(text.data, text.len, JSON_READ_VALUES, &doc, err);
    if (r == 0)
        r = sbox_spec_parse_own(json_root(doc), o->config, manager_templates(o->manager), &ours, &spec, err);
    if (r < 0)
        return r;
    raise_limits(&run->limits, &spec.limits);
    /* nobody else works in the sandbox of one run, nor does its caller */
    spec.ephemeral = spec.service = wait->ephemeral;
    str_assign(spec.reuse, wait->mark);
    str_assign(spec.reuse_config, run->fingerprint);
    wait->asked = true;
    r = manager_create_sandbox(o->manager, &run->caller, &spec, NULL, NULL, on_made, wait, err);
    if (r < 0)
        wait->asked = false;
    return r;
}

/* Found, made, or waited for. */
static void look(struct reuse_wait *wait)
{
    struct run *run = wait->run;
    struct manager *manager = run->executor->o.manager;
    struct sbox *sbox = wait->ephemeral ? NULL : sbox_by_reuse(manager, &run->caller, wait->mark);
    struct brig_err err = {0};

    if (sbox && sbox_state(sbox) == SBOX_RUNNING && str_eq(sbox_spec(sbox)->reuse_config, run->fingerprint)) {
        go(wait, sbox);
        return;
    }
    if (sbox) {
        if (sbox_state(sbox) == SBOX_RUNNING || sbox_state(sbox) == SBOX_PAUSED)
            (void)!sbox_end(sbox, &run->caller, "replaced", NULL, NULL, NULL);
        look_later(wait);
        return;
    }
    if (make(wait, &err) < 0)
        fail(wait, &err);
}

static void on_look(struct loop_timer *timer)
{
    look(timer->ctx);
}

/*
 * Says whose source runs there, if it is not the caller's: what a user key's tool leaves in a sandbox (a module, a
 * process) is not put beside the runs of others. Administrators are responsible for theirs to everybody.
 */
static const char *stranger(const struct run *run)
{
    const struct tool_hand *by = &run->tool.registrant;

    if (!run->of_row || by->as >= STANDING_ADMIN || (by->key_id && str_eq(by->key_id, run->caller.key_id)))
        return "";
    return by->key_id && by->key_id[0] ? by->key_id : "unknown";
}

static int mark_of(const struct run *run, char *out, size_t size)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&text);
    uint8_t sum[SHA256_SIZE];
    char hex[33];

    json_array(&json);
    json_string(&json, run->caller.org_id);
    json_string(&json, run->caller.key_id);
    json_string(&json, standing_name(caller_standing(&run->caller)));
    json_string(&json, run->reuse == REUSE_AGENT ? "agent" : "fingerprint");
    json_string(&json, run->reuse == REUSE_AGENT ? run->agent_id : run->fingerprint);
    json_string(&json, stranger(run));
    json_string(&json, run->place->ops->name);
    run->network ? json_value_put(&json, run->network) : json_null(&json);
    run->secrets_json ? json_value_put(&json, run->secrets_json) : json_null(&json);
    json_end(&json);
    int r = json_finish(&json);
    if (r == 0)
        r = crypto_sha256(text.data, text.len, sum);
    if (r < 0)
        return r;
    crypto_hex(sum, 16, hex);
    return str_copy(out, size, hex);
}

int place_live(struct run *run, struct brig_err *err)
{
    struct executor *executor = run->executor;

    if (run->sandbox_id[0]) {
        struct sbox *sbox = manager_find(executor->o.manager, &run->caller, run->sandbox_id);
        if (!sbox)
            return err_set(err, BRIG_E_NOT_FOUND, ENOENT, "sandbox %.64s not found", run->sandbox_id);
        int may = sbox_check_use(sbox, &run->caller, err);
        return may < 0 ? may : use(run, sbox, err);
    }
    if (run->reuse == REUSE_AGENT && !run->agent_id[0])
        return err_usage(err, "reuse agent: the run has no agent");
    struct reuse_wait *wait = mem_zalloc(sizeof *wait);
    if (!wait)
        return err_nomem(err);
    *wait = (struct reuse_wait){.run = run,
                                .executor = executor,
                                .timer = {.fn = on_look},
                                .until_ns = loop_now_ns() + GIVE_UP_NS,
                                .ephemeral = run->reuse == REUSE_NONE};
    wait->timer.ctx = wait;
    list_push(&executor->reuses, wait);
    int r = wait->ephemeral ? 0 : mark_of(run, wait->mark, sizeof wait->mark);
    if (r == 0) /* from the loop: whatever look() finds, it may tell the run at once */
        r = loop_timer_set(executor->o.loop, &wait->timer, loop_now_ns(), err);
    if (r < 0) {
        wait_free(wait);
        return r;
    }
    run->reusing = wait;
    return 1;
}

void executor_retire(struct executor *executor, const char *org, const char *fingerprint)
{
    for (struct sbox *sbox = manager_first(executor->o.manager), *next; sbox; sbox = next) {
        next = sbox_next(sbox);
        if (!sbox_spec(sbox)->reuse[0] || !str_eq(sbox_org(sbox), org) ||
            str_eq(sbox_spec(sbox)->reuse_config, fingerprint))
            continue;
        if (sbox_state(sbox) == SBOX_RUNNING || sbox_state(sbox) == SBOX_PAUSED)
            /* one that is not to be ended now is found by the next run */
            (void)!sbox_end(sbox, NULL, "replaced", NULL, NULL, NULL);
    }
}
