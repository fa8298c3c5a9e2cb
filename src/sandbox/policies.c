/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies.c: Theory of operation
 *
 * The named policies of all organisations are one array in memory, sorted by organisation and name; the store has the
 * same rows. A change is compiled first, so that nothing is stored that could not be used, then queued to the store,
 * and in force here when the store has committed it. Several changes of one name may be under way: the store commits
 * them in order, and their versions are given out in that order.
 *
 * An entry whose policy is NULL is not there for anybody: its first version is on its way, or its deletion has been
 * committed while a newer version is on its way. It goes when nothing is under way for it.
 *
 * A row that does not compile (written by a newer brigd) stops the start: a sandbox that asks for it by name must not
 * get less than was meant.
 */
#include "sandbox/policies.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define CANONICAL_MAX (2 * POLICY_JSON_MAX)
#define KIND "policy"

enum preset { PRESET_PACKAGES, PRESET_OPEN, PRESET_MAX }; /* `none` is the absence of one */
static const char *const preset_names[PRESET_MAX] = {"packages", "open"};

struct entry {
    struct named_policy public; /* policy NULL: not there */
    uint64_t last_version;      /* given out so far */
    unsigned under_way;
};

struct policies {
    struct store *store;
    struct entry **entries;
    size_t n, cap;
    struct policy *presets[PRESET_MAX];
    void (*changed)(void *ctx, const struct named_policy *policy);
    void *changed_ctx;
};

/* A change on its way to the store; policy NULL: a deletion. */
struct change {
    struct policies *policies;
    struct entry *entry;
    struct policy *policy;
    char *json;
    uint64_t version;
    int64_t at_ns;
    store_done_fn *done;
    void *ctx;
};

/* ---- the table ---------------------------------------------------------------------------------------- */

/* Where the name is, or would be. */
static size_t place_of(const struct policies *policies, const char *org, const char *name, bool *ret_there)
{
    size_t low = 0, high = policies->n;

    *ret_there = false;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct named_policy *p = &policies->entries[mid]->public;
        int order = strcmp(p->org_id, org);
        if (order == 0)
            order = strcmp(p->name, name);
        if (order == 0) {
            *ret_there = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct entry *find_entry(const struct policies *policies, const char *org, const char *name)
{
    bool there;
    size_t at = place_of(policies, org, name, &there);

    return there ? policies->entries[at] : NULL;
}

static void entry_free(struct entry *entry)
{
    policy_unref(entry->public.policy);
    mem_free(entry->public.json);
    mem_free(entry);
}

/* The entry, made when it is not there. */
static int get_entry(struct policies *policies, const char *org, const char *name, struct entry **ret,
                     struct brig_err *err)
{
    bool there;
    size_t at = place_of(policies, org, name, &there);

    if (there) {
        *ret = policies->entries[at];
        return 0;
    }
    if (policies->n == policies->cap) {
        size_t cap = policies->cap ? policies->cap * 2 : 16;
        struct entry **more = mem_realloc_array(policies->entries, cap, sizeof *more);
        if (!more)
            return err_nomem(err);
        policies->entries = more;
        policies->cap = cap;
    }
    struct entry *entry = mem_zalloc(sizeof *entry);
    if (!entry)
        return err_nomem(err);
    if (str_copy(entry->public.org_id, sizeof entry->public.org_id, org) < 0 ||
        str_copy(entry->public.name, sizeof entry->public.name, name) < 0) {
        mem_free(entry);
        return err_usage(err, "policy %.64s: the name is too long", name);
    }
    memmove(policies->entries + at + 1, policies->entries + at, (policies->n - at) * sizeof *policies->entries);
    policies->entries[at] = entry;
    policies->n++;
    *ret = entry;
    return 0;
}

static void drop_if_idle(struct policies *policies, struct entry *entry)
{
    bool there;

    if (entry->public.policy || entry->under_way > 0)
        return;
    size_t at = place_of(policies, entry->public.org_id, entry->public.name, &there);
    memmove(policies->entries + at, policies->entries + at + 1, (policies->n - at - 1) * sizeof *policies->entries);
    policies->n--;
    entry_free(entry);
}

const struct named_policy *policies_find(const struct policies *policies, const char *org, const char *name)
{
    const struct entry *entry = find_entry(policies, org, name);

    return entry && entry->public.policy ? &entry->public : NULL;
}

void policies_each(const struct policies *policies, const char *org, const char *after,
                   bool (*each)(void *ctx, const struct named_policy *policy), void *ctx)
{
    bool there;
    size_t at = place_of(policies, org, after ? after : "", &there);

    for (at += there; at < policies->n && str_eq(policies->entries[at]->public.org_id, org); at++) {
        const struct named_policy *p = &policies->entries[at]->public;
        if (p->policy && !each(ctx, p))
            return;
    }
}

/* ---- its life ----------------------------------------------------------------------------------------- */

struct loading {
    struct policies *policies;
    struct brig_err *err;
};

static int each_object(void *ctx, const struct store_object *object)
{
    const struct loading *loading = ctx;
    struct entry *entry = NULL;
    struct brig_err why = {0};

    int r = get_entry(loading->policies, object->org_id, object->name, &entry, loading->err);
    if (r < 0)
        return r;
    r = policy_compile_text(object->doc, strlen(object->doc), &entry->public.policy, &why);
    if (r < 0)
        return err_set(loading->err, BRIG_E_HOST, -r, "stored policy %.64s of %.64s: %s", object->name, object->org_id,
                       why.message);
    entry->public.json = mem_strdup(object->doc);
    if (!entry->public.json)
        return err_nomem(loading->err);
    entry->last_version = entry->public.version = object->version;
    entry->public.created_at_ns = object->created_at_ns;
    entry->public.updated_at_ns = object->updated_at_ns;
    return 0;
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
    struct loading loading = {policies, err};

    if (!policies)
        return err_nomem(err);
    policies->store = store;
    int r = make_presets(policies, packages, err);
    if (r == 0)
        r = store_each_object(store, KIND, each_object, &loading, err);
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
    for (size_t i = 0; i < policies->n; i++)
        entry_free(policies->entries[i]);
    mem_free(policies->entries);
    for (int i = 0; i < PRESET_MAX; i++)
        policy_unref(policies->presets[i]);
    mem_free(policies);
}

void policies_forget_org(struct policies *policies, const char *org)
{
    size_t n = 0;

    for (size_t i = 0; i < policies->n; i++) {
        struct entry *entry = policies->entries[i];
        if (str_eq(entry->public.org_id, org) && entry->under_way == 0)
            entry_free(entry);
        else /* one that is being written is refused by the store, and goes then */
            policies->entries[n++] = entry;
    }
    policies->n = n;
}

void policies_on_change(struct policies *policies, void (*changed)(void *ctx, const struct named_policy *policy),
                        void *ctx)
{
    policies->changed = changed;
    policies->changed_ctx = ctx;
}

/* ---- changes ------------------------------------------------------------------------------------------ */

static void change_free(struct change *change)
{
    policy_unref(change->policy);
    mem_free(change->json);
    mem_free(change);
}

static void on_stored(void *ctx, const struct brig_err *failed)
{
    struct change *change = ctx;
    struct policies *policies = change->policies;
    struct entry *entry = change->entry;
    bool made = !failed && change->policy;

    entry->under_way--;
    if (!failed) {
        struct named_policy *p = &entry->public;
        if (!p->policy)
            p->created_at_ns = change->at_ns;
        policy_unref(p->policy);
        mem_free(p->json);
        p->policy = take_ptr(&change->policy);
        p->json = take_ptr(&change->json);
        p->version = change->version;
        p->updated_at_ns = change->at_ns;
    }
    if (change->done)
        change->done(change->ctx, failed);
    if (made && policies->changed && entry->public.policy)
        policies->changed(policies->changed_ctx, &entry->public);
    drop_if_idle(policies, entry);
    change_free(change);
}

static bool name_ok(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len >= POLICY_NAME_MAX || strchr("_.-", name[0]))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') || strchr("_.-", name[i])))
            return false;
    }
    return true;
}

static int check_name(const char *name, struct brig_err *err)
{
    static const char *const taken[] = {"none", "packages", "open", "learn", "custom", "check"};

    if (!name_ok(name))
        return err_usage(
            err, "policy %.64s: a name has 1 to 63 of a-z, 0-9, \"_\", \".\", \"-\", and begins with a letter or digit",
            name);
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
        if (str_eq(name, taken[i]))
            return err_usage(err, "policy %s: this name means something already", name);
    }
    return 0;
}

static int check_room(const struct policies *policies, const char *org, struct brig_err *err)
{
    bool there;
    size_t n = 0;

    for (size_t at = place_of(policies, org, "", &there);
         at < policies->n && str_eq(policies->entries[at]->public.org_id, org); at++)
        n++;
    return n < POLICIES_PER_ORG
               ? 0
               : err_set(err, BRIG_E_LIMIT, 0, "an organisation has at most %u policies", POLICIES_PER_ORG);
}

/* One that gets no larger is always taken. */
static int check_bytes(const struct policies *policies, const struct entry *entry, size_t len, struct brig_err *err)
{
    const char *org = entry->public.org_id;
    size_t sum = len;
    bool there;

    if (entry->public.json && len <= strlen(entry->public.json))
        return 0;
    for (size_t at = place_of(policies, org, "", &there);
         at < policies->n && str_eq(policies->entries[at]->public.org_id, org); at++)
        if (policies->entries[at] != entry && policies->entries[at]->public.json)
            sum += strlen(policies->entries[at]->public.json);
    return sum <= POLICIES_ORG_BYTES
               ? 0
               : err_set(err, BRIG_E_LIMIT, 0, "an organisation has at most %u bytes of policies", POLICIES_ORG_BYTES);
}

static int new_change(struct policies *policies, const char *org, const char *name, store_done_fn *done, void *ctx,
                      struct change **ret, struct brig_err *err)
{
    struct change *change = mem_zalloc(sizeof *change);

    if (!change)
        return err_nomem(err);
    int r = get_entry(policies, org, name, &change->entry, err);
    if (!change->entry) {
        mem_free(change);
        return r;
    }
    change->policies = policies;
    change->at_ns = clock_real_ns();
    change->done = done;
    change->ctx = ctx;
    change->entry->under_way++;
    *ret = change;
    return 0;
}

static void give_up(struct change *change)
{
    change->entry->under_way--;
    drop_if_idle(change->policies, change->entry);
    change_free(change);
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

/*
 * What a start will read is read once before it is stored: a row that could not be would keep the service from
 * starting.
 */
static int compile_stored(struct change *change, struct brig_err *err)
{
    struct policy *read = NULL;
    size_t len = strlen(change->json);

    if (len > POLICY_JSON_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "a policy with everything written out has at most %u bytes",
                       POLICY_JSON_MAX);
    int r = check_bytes(change->policies, change->entry, len, err);
    if (r == 0)
        r = policy_compile_text(change->json, len, &read, err);
    if (r == 0) {
        policy_unref(change->policy);
        change->policy = read;
    }
    return r;
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
                 store_done_fn *done, void *ctx, struct brig_err *err)
{
    struct change *change = NULL;

    int r = check_name(name, err);
    if (r == 0 && !find_entry(policies, org, name))
        r = check_room(policies, org, err);
    if (r == 0)
        r = new_change(policies, org, name, done, ctx, &change, err);
    if (!change)
        return r;
    struct entry *entry = change->entry;
    r = compile(policies, org, json, &change->policy, NULL, err);
    if (r == 0)
        r = canonical(change->policy, &change->json, err);
    if (r == 0)
        r = compile_stored(change, err);
    if (r == 0) {
        struct store_object object = {
            .kind = KIND, .version = entry->last_version + 1, .updated_at_ns = change->at_ns, .doc = change->json};
        object.created_at_ns = entry->public.policy ? entry->public.created_at_ns : change->at_ns;
        memcpy(object.org_id, entry->public.org_id, sizeof object.org_id);
        r = str_copy(object.name, sizeof object.name, name);
        if (r == 0)
            r = store_put_object(policies->store, &object, on_stored, change, err);
        change->version = object.version;
    }
    if (r != 0)
        give_up(change);
    else
        entry->last_version++;
    return r;
}

int policies_delete(struct policies *policies, const char *org, const char *name, store_done_fn *done, void *ctx,
                    struct brig_err *err)
{
    struct change *change = NULL;

    if (!policies_find(policies, org, name))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "policy %.64s not found", name);
    int r = new_change(policies, org, name, done, ctx, &change, err);
    if (!change)
        return r;
    change->version = change->entry->last_version;
    r = store_delete_object(policies->store, KIND, org, name, on_stored, change, err);
    if (r < 0)
        give_up(change);
    return r;
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
        const struct named_policy *named = policies_find(policies, org, word);
        if (!named)
            return err_set(
                err, BRIG_E_NOT_FOUND, 0,
                "network: there is no policy \"%.64s\"; there are \"none\", \"packages\", \"open\", \"learn\", and what brig policy ls shows",
                word);
        out->policy = policy_ref(named->policy);
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
