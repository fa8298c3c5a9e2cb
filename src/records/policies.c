/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies.c: named network policies: a kind of records (objects.h) whose document is the policy with everything
 * written out, and whose extra is that document compiled. A policy object is compiled before it is stored, with what it
 * extends; the document is compiled once more as a start would read it, so that no row is stored that would keep the
 * service from starting. A row that does not compile (written by a newer brigd) stops the start: a sandbox that asks
 * for it by name must not get less than was meant.
 */
#include "records/policies.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define CANONICAL_MAX (2 * POLICY_JSON_MAX)

enum preset { PRESET_PACKAGES, PRESET_OPEN, PRESET_MAX }; /* `none` is the absence of one */
static const char *const preset_names[PRESET_MAX] = {"packages", "open"};

struct policies {
    struct objects *objects;
    struct policy *presets[PRESET_MAX];
    policy_changed_fn *changed;
    void *changed_ctx;
};

struct objects *policies_objects(const struct policies *policies)
{
    return policies->objects;
}

const struct object *policies_find(const struct policies *policies, const char *org, const char *name)
{
    return objects_find(policies->objects, org, name);
}

/* ---- its life ----------------------------------------------------------------------------------------- */

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct policy *policy = NULL;

    int r = policy_compile_text(object->text, object->len, &policy, err);
    object->extra = policy;
    return r;
}

static void on_unloaded(void *ctx UNUSED, struct object *object)
{
    policy_unref(object->extra);
}

static void on_changed(void *ctx, const struct object *before UNUSED, const struct object *after)
{
    const struct policies *policies = ctx;

    if (after && policies->changed)
        policies->changed(policies->changed_ctx, after);
}

static int make_preset(struct policies *policies, int preset, const char *packages, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(POLICY_JSON_MAX);
    struct policy *made = NULL;
    int r = policy_preset(preset_names[preset], packages, &text, err);

    if (r == 0)
        r = policy_compile_text(text.data, text.len, &made, err);
    if (r < 0)
        return r;
    policy_unref(policies->presets[preset]);
    policies->presets[preset] = made;
    return 0;
}

static int make_presets(struct policies *policies, const char *packages, struct brig_err *err)
{
    int r = 0;

    for (int i = 0; r == 0 && i < PRESET_MAX; i++)
        r = make_preset(policies, i, packages, err);
    return r;
}

int policies_set_packages(struct policies *policies, const char *packages, struct brig_err *err)
{
    return make_preset(policies, PRESET_PACKAGES, packages, err);
}

int policies_create(struct store *store, const char *packages, struct policies **ret, struct brig_err *err)
{
    struct policies *policies = mem_zalloc(sizeof *policies);

    if (!policies)
        return err_nomem(err);
    const struct objects_kind kind = {.kind = "policy",
                                      .many = "policies",
                                      .per_org = POLICIES_PER_ORG,
                                      .org_bytes = POLICIES_ORG_BYTES,
                                      .by_id = true,
                                      .no_json = true,
                                      .loaded = on_loaded,
                                      .unloaded = on_unloaded,
                                      .changed = on_changed,
                                      .ctx = policies};
    int r = make_presets(policies, packages, err);
    if (r == 0)
        r = objects_create(store, &kind, &policies->objects, err);
    if (r < 0)
        policies_destroy(policies);
    else
        *ret = policies;
    return r;
}

void policies_destroy(struct policies *policies)
{
    if (!policies)
        return;
    objects_destroy(policies->objects);
    for (int i = 0; i < PRESET_MAX; i++)
        policy_unref(policies->presets[i]);
    mem_free(policies);
}

void policies_on_change(struct policies *policies, policy_changed_fn *changed, void *ctx)
{
    policies->changed = changed;
    policies->changed_ctx = ctx;
}

/* ---- changes ------------------------------------------------------------------------------------------ */

static int check_name(const char *name, struct brig_err *err)
{
    static const char *const taken[] = {"none", "packages", "open", "learn", "custom", "check"};

    if (!str_is_name(name, POLICY_NAME_MAX - 1, ASCII_LOWER ASCII_DIGITS, ASCII_LOWER ASCII_DIGITS "_.-"))
        return err_usage(
            err, "policy %.64s: a name has 1 to 63 of a-z, 0-9, \"_\", \".\", \"-\", and begins with a letter or digit",
            name);
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
        if (str_eq(name, taken[i]))
            return err_usage(err, "policy %s: this name means something already", name);
    }
    return 0;
}

static int canonical(const struct policy *policy, char **ret, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(CANONICAL_MAX);

    int r = policy_put_json(policy, &text);
    if (r == -EMSGSIZE)
        return err_set(err, BRIG_E_TOO_LARGE, EMSGSIZE, "a policy with everything written out has at most %u bytes",
                       CANONICAL_MAX);
    *ret = r == 0 ? buf_take(&text, NULL) : NULL;
    return *ret ? 0 : err_nomem(err);
}

/* A policy object, with what it extends. *ret_learn NULL: learning is not for here. */
static int compile(const struct policies *policies, const char *org, const struct json_value *json, struct policy **ret,
                   bool *ret_learn, struct brig_err *err)
{
    const struct json_value *extends = json_get(json, "extends"), *learn = json_get(json, "learn");
    struct network_choice base = {.policy = NULL};

    if (!extends && !learn)
        return policy_compile(json, ret, err);
    if (learn && (!ret_learn || learn->type != JSON_BOOL))
        return err_usage(err, "learn: %s",
                         ret_learn ? "must be true or false"
                                   : "is said where a sandbox is made, not in a stored policy");
    if (extends && extends->type != JSON_STRING)
        return err_usage(err, "extends: must be none, packages, open, learn or a policy's name");
    int r = extends ? policies_choose(policies, org, extends, &base, err) : 0;
    if (r == 0 && base.learn && !ret_learn)
        r = err_usage(err, "extends: learn is said where a sandbox is made, not in a stored policy");
    if (r == 0)
        r = policy_compile_onto(base.policy, json, ret, err);
    if (r == 0 && ret_learn)
        *ret_learn = base.learn || (learn && learn->boolean);
    network_choice_done(&base);
    return r;
}

int policies_put(struct policies *policies, const char *org, const char *name, const struct json_value *json,
                 objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct policy *policy = NULL;
    AUTO_FREE char *text = NULL;
    int r = check_name(name, err);

    if (r == 0)
        r = compile(policies, org, json, &policy, NULL, err);
    if (r == 0)
        r = canonical(policy, &text, err);
    policy_unref(policy);
    if (r == 0 && strlen(text) > POLICY_JSON_MAX)
        r = err_set(err, BRIG_E_TOO_LARGE, 0, "a policy with everything written out has at most %u bytes",
                    POLICY_JSON_MAX);
    return r < 0 ? r : objects_put(policies->objects, org, name, text, strlen(text), 0, done, ctx, err);
}

/* ---- what `network` says ------------------------------------------------------------------------------ */

void network_choice_done(struct network_choice *choice)
{
    policy_unref(choice->policy);
    mem_free(choice->json);
    *choice = (struct network_choice){.policy = NULL};
}

static int choose_word(const struct policies *policies, const char *org, const char *word, struct network_choice *out,
                       struct brig_err *err)
{
    out->none = str_eq(word, "none");
    if (out->none)
        return str_copy(out->name, sizeof out->name, word);
    out->learn = str_eq(word, "learn");
    if (out->learn)
        /* what the public internet would give, written down */
        out->policy = policy_ref(policies->presets[PRESET_OPEN]);
    for (int i = 0; i < PRESET_MAX; i++) {
        if (!out->policy && str_eq(word, preset_names[i]))
            out->policy = policy_ref(policies->presets[i]);
    }
    if (!out->policy) {
        const struct object *named = policies_find(policies, org, word);
        if (!named)
            return err_set(
                err, BRIG_E_NOT_FOUND, 0,
                "network: there is no policy \"%.64s\"; there are \"none\", \"packages\", \"open\", \"learn\", and "
                "what brig policy ls shows",
                word);
        out->policy = policy_ref(named->extra);
        out->named = true;
        out->version = named->version;
    }
    return str_copy(out->name, sizeof out->name, word);
}

int policies_choose(const struct policies *policies, const char *org, const struct json_value *network,
                    struct network_choice *ret, struct brig_err *err)
{
    struct network_choice out = {.version = 1};
    int r;

    if (!network || network->type == JSON_NULL) {
        r = choose_word(policies, org, "none", &out, err);
    } else if (network->type == JSON_STRING && strlen(network->string) == network->len) {
        r = choose_word(policies, org, network->string, &out, err);
    } else if (network->type == JSON_OBJECT) {
        r = compile(policies, org, network, &out.policy, &out.learn, err);
        if (r == 0)
            r = str_copy(out.name, sizeof out.name, "custom");
    } else {
        r = err_usage(err, "network: must be none, packages, open, learn, a policy's name, or a policy object");
    }
    if (r == 0 && !out.none)
        r = canonical(out.policy, &out.json, err);
    if (r < 0)
        network_choice_done(&out);
    else
        *ret = out;
    return r;
}
