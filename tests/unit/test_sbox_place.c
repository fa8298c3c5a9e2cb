/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several providers at once (sandbox/sbox_place.c): who makes a sandbox, who gets it back after a restart, what is
 * believed of a statement; and the attempt that a check makes (provider/attempt.c).
 */
#include "sandbox_rig.h"

#include "config/config_keys.h"
#include "provider/providers.h"

static struct fake second; /* calls itself runc */

static void destroy_nothing(struct provider *provider UNUSED)
{
}

static int set_up_two(void **state)
{
    static char none[] = "";
    struct rig *rig = rig_create();

    rig_stop_manager(rig);
    rig->config.tools_modal_id = rig->config.tools_modal_secret = rig->config.tools_e2b_key = none;
    rig->config.providers_only = none;
    rig->fake.ops.destroy = destroy_nothing;
    second = (struct fake){.ops = rig->fake.ops};
    second.ops.name = "runc";
    second.provider = (struct provider){.ops = &second.ops, .loop = rig->loop};
    assert_int_equal(providers_create(&rig->config, &rig->providers, NULL), 0);
    assert_int_equal(providers_add(rig->providers, &rig->fake.provider, NULL), 0);
    assert_int_equal(providers_add(rig->providers, &second.provider, NULL), 0);
    rig_start(rig);
    *state = rig;
    return 0;
}

static int tear_down_two(void **state)
{
    struct rig *rig = *state;

    rig_stop_manager(rig);
    while (second.boxes)
        fake_free(second.boxes);
    providers_destroy(rig->providers);
    rig_done(rig);
    return 0;
}

static void assert_has(const struct sbox *sbox, const char *text)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    sbox_json(sbox, &json);
    assert_int_equal(json_finish(&json), 0);
    if (!strstr(out.data, text))
        fail_msg("no %s in %s", text, out.data);
}

static void each_makes_its_own(void **state)
{
    struct rig *rig = *state;
    static char runc[] = "runc";
    struct sbox *a = rig_sandbox(rig, "{\"provider\":\"runc\"}"), *b = rig_sandbox(rig, "{}");

    assert_int_equal(second.made, 1);
    assert_int_equal(rig->fake.made, 1);
    assert_ptr_equal(a->priv->box->provider, &second.provider);
    assert_has(a, "\"provider\":\"runc\"");
    assert_has(b, "\"provider\":\"fake\"");
    assert_string_equal(sbox_provider(a), "runc");
    rig_end(rig, a);
    assert_int_equal(second.n_boxes, 0);
    rig->config.provider = runc;
    rig_sandbox(rig, "{}");
    assert_int_equal(second.made, 2);
}

static void unknown_and_off(void **state)
{
    struct rig *rig = *state;
    struct sbox_spec spec = {0};
    struct got got = {0};

    assert_true(rig_spec(rig, "{\"provider\":\"chroot\"}", &spec, &got.err) < 0);
    assert_int_equal(got.err.code, BRIG_E_INVALID);
    assert_string_equal(got.err.message, "provider chroot: there is no such one");
    assert_true(rig_spec(rig, "{\"provider\":7}", &spec, &got.err) < 0);
    assert_int_equal(got.err.code, BRIG_E_USAGE);
    assert_true(rig_ask(rig, "{\"provider\":\"gvisor\"}", NULL, 0, &got) < 0);
    assert_int_equal(got.err.code, BRIG_E_OFF);
    assert_string_equal(got.err.message, "provider runsc: needs a service of root, and runsc: apt-get install runsc");
    assert_null(manager_first(rig->manager));
    assert_int_equal(rig->fake.made + second.made, 0);
}

/* What a provider has not, and what it can only promise, is not asked of it. */
static void a_provider_makes_what_it_can(void **state UNUSED)
{
    const struct provider_ops ops = {
        .name = "some", .caps = PROVIDER_ROOTFS, .protects = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP)};
    struct provider_spec spec = {.rootfs = "/", .require = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP)};
    struct brig_err err = {0};

    assert_int_equal(provider_fits(&ops, &spec, &err), 0);
    spec.n_binds = 1;
    assert_true(provider_fits(&ops, &spec, &err) < 0);
    assert_string_equal(err.message, "the provider some has no binds");
    spec.n_binds = 0;
    spec.require |= BRIG_LAYER_BIT(BRIG_LAYER_LANDLOCK);
    assert_true(provider_fits(&ops, &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_string_equal(err.message, "required layer landlock: the provider some cannot show it");
}

/* What it does not have is refused by its name, before anything is made. */
static void what_one_lacks(void **state)
{
    struct rig *rig = *state;
    struct got got = {0};

    second.ops.caps &= ~(uint32_t)PROVIDER_WRITABLE_ROOT;
    second.ops.protects &= ~BRIG_LAYER_BIT(BRIG_LAYER_OWN_KERNEL);
    assert_true(rig_ask(rig, "{\"provider\":\"runc\",\"writable_root\":true}", NULL, 0, &got) < 0);
    assert_int_equal(got.err.code, BRIG_E_UNSUPPORTED);
    assert_string_equal(got.err.message, "the provider runc has no writable root");
    assert_true(rig_ask(rig, "{\"provider\":\"runc\",\"require\":[\"own_kernel\"]}", NULL, 0, &got) < 0);
    assert_int_equal(got.err.code, BRIG_E_REFUSED);
    assert_string_equal(got.err.message, "required layer own_kernel: the provider runc cannot show it");
    assert_int_equal(second.made, 0);
    rig_sandbox(rig, "{\"writable_root\":true}");
}

static void its_word_is_not_a_reading(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = NULL;

    second.word = BRIG_LAYER_BIT(BRIG_LAYER_OWN_KERNEL);
    sbox = rig_sandbox(rig, "{\"provider\":\"runc\"}");
    assert_has(sbox, "\"own_kernel\":{\"on\":false,\"why\":\"it is the provider's word\"}");
    assert_true(sbox->protection_complete); /* it is not one of `all` */
    second.word = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP);
    sbox = rig_sandbox(rig, "{\"provider\":\"runc\"}");
    assert_has(sbox, "\"seccomp\":{\"on\":false,\"why\":\"it is the provider's word\"}");
    assert_false(sbox->protection_complete);
    assert_has(rig_sandbox(rig, "{}"), "\"seccomp\":{\"on\":true}");
}

static void recovered_from_its_own(void **state)
{
    struct rig *rig = *state;
    struct sbox *a = rig_sandbox(rig, "{\"provider\":\"runc\"}"), *b = rig_sandbox(rig, "{}");
    char id_a[32], id_b[32];

    snprintf(id_a, sizeof id_a, "%s", a->id);
    snprintf(id_b, sizeof id_b, "%s", b->id);
    rig_stop_manager(rig);
    fake_add(&rig->fake, id_a); /* the same ids, and not their boxes, whoever is asked first */
    fake_add(&second, id_b);
    rig_start(rig);
    a = manager_find(rig->manager, &rig->caller, id_a);
    b = manager_find(rig->manager, &rig->caller, id_b);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_equal(a->priv->box->provider, &second.provider);
    assert_ptr_equal(b->priv->box->provider, &rig->fake.provider);
    assert_int_equal(rig->fake.orphans_ended, 1);
    assert_int_equal(second.orphans_ended, 1);
    assert_string_equal(a->spec.provider, "runc");
}

/* Nobody can say what became of a sandbox whose provider is off: its certificate says that. */
static void its_provider_is_off_now(void **state)
{
    struct rig *rig = *state;
    struct providers *both = rig->providers;
    unsigned n = 0;
    char id[32];

    snprintf(id, sizeof id, "%s", rig_sandbox(rig, "{\"provider\":\"runc\"}")->id);
    rig_stop_manager(rig);
    assert_int_equal(providers_create(&rig->config, &rig->providers, NULL), 0);
    assert_int_equal(providers_add(rig->providers, &rig->fake.provider, NULL), 0);
    rig_start(rig);
    assert_null(manager_find(rig->manager, &rig->caller, id));
    rig_flush(rig);
    char *cert = rig_find(rig, true, id, NULL, &n);
    assert_int_equal(n, 1);
    assert_non_null(strstr(cert, "provider runc: needs a service of root, and runc"));
    free(cert);
    rig_stop_manager(rig);
    providers_destroy(rig->providers);
    rig->providers = both;
    rig_start(rig);
}

/* ---- the list ---------------------------------------------------------------------------------------------- */

/* A name that stands for another one, one that is off, and one that there is not. */
static void names(void **state)
{
    struct rig *rig = *state;
    struct provider *found = NULL;
    struct brig_err err = {0};

    assert_int_equal(providers_find(rig->providers, "runc", &found, &err), 0);
    assert_ptr_equal(found, &second.provider);
    assert_true(providers_find(rig->providers, "gvisor", &found, &err) < 0);
    assert_int_equal(err.code, BRIG_E_OFF);
    assert_string_equal(err.message, "provider runsc: needs a service of root, and runsc: apt-get install runsc");
    assert_true(providers_find(rig->providers, "podman", &found, &err) < 0);
    assert_string_equal(err.message, "provider docker: needs a service of root, and [docker] socket or DOCKER_HOST");
    assert_true(providers_find(rig->providers, "Runc", &found, &err) < 0);
    assert_int_equal(err.code, BRIG_E_INVALID);
    assert_string_equal(err.message, "provider Runc: there is no such one");
    assert_ptr_equal(providers_at(rig->providers, 0), &second.provider);
    assert_ptr_equal(providers_at(rig->providers, 1), &rig->fake.provider);
    assert_null(providers_at(rig->providers, 2));
    second.ops.name = "runsc";
    assert_int_equal(providers_add(rig->providers, &second.provider, NULL), 0);
    assert_int_equal(providers_find(rig->providers, "gvisor", &found, &err), 0);
}

static void fits(void **state UNUSED)
{
    const struct provider_ops ops = {.name = "some"};
    struct provider_spec spec = {.image = "debian:12"};
    struct brig_err err = {0};

    assert_true(provider_fits(&ops, &spec, &err) < 0);
    assert_string_equal(err.message, "the provider some has no images by name");
    spec = (struct provider_spec){.gate = {.on = true}};
    assert_true(provider_fits(&ops, &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_UNSUPPORTED);
    assert_string_equal(err.message, "the provider some has no network");
}

/* ---- one real attempt ------------------------------------------------------------------------------------ */

static struct provider_check seen;
static unsigned n_seen;

static void on_checked(void *ctx UNUSED, const struct provider_check *check)
{
    seen = *check;
    n_seen++;
}

static void attempts(void **state)
{
    struct rig *rig = *state;
    struct brig_err err = {0};

    n_seen = 0;
    second.word = BRIG_LAYER_BIT(BRIG_LAYER_CAPS);
    assert_int_equal(provider_attempt(&second.provider, "1.2", on_checked, NULL, NULL), 0);
    assert_true(provider_attempt(&second.provider, "1.2", on_checked, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_BUSY);
    RIG_UNTIL(rig, n_seen == 1);
    assert_true(seen.usable);
    assert_string_equal(seen.version, "1.2");
    assert_string_equal(seen.missing, "");
    assert_false(seen.layers & BRIG_LAYER_BIT(BRIG_LAYER_CAPS));
    assert_true(seen.layers & BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP));
    assert_int_equal(second.n_boxes, 0);

    second.fail_up = "no such kernel";
    assert_int_equal(provider_attempt(&second.provider, "1.2", on_checked, NULL, NULL), 0);
    RIG_UNTIL(rig, n_seen == 2);
    assert_false(seen.usable);
    assert_string_equal(seen.missing, "no such kernel");
    second.fail_create = true;
    assert_true(provider_attempt(&second.provider, "1.2", on_checked, NULL, &err) < 0);
    assert_int_equal(n_seen, 2);
    assert_null(second.provider.attempt);

    /* one that never comes up: told in time, and ended */
    second.fail_create = false;
    second.hold_up = true;
    second.provider.check_ns = NS_PER_MS;
    assert_int_equal(provider_attempt(&second.provider, "1.2", on_checked, NULL, NULL), 0);
    RIG_UNTIL(rig, n_seen == 3 && second.n_boxes == 0);
    assert_false(seen.usable);
    assert_string_equal(seen.missing, "no sandbox came up within 1 ms");
    assert_null(second.provider.attempt);
    second.provider.check_ns = 0;

    /* dropped with its provider: nobody is told */
    assert_int_equal(provider_attempt(&second.provider, "1.2", on_checked, NULL, NULL), 0);
    provider_attempt_drop(&second.provider);
    fake_free(second.boxes);
    rig_run(rig, 3);
    assert_int_equal(n_seen, 3);
}

#define TWO(name) cmocka_unit_test_setup_teardown(name, set_up_two, tear_down_two)

/* `[providers] only`: every other name is off, also local's. */
static void only_some(void **state)
{
    struct rig *rig = *state;
    struct provider *found = NULL;
    struct providers *some = NULL;
    static char names[] = "  podman runc ";
    struct brig_err err;

    rig->config.providers_only = names;
    assert_int_equal(providers_create(&rig->config, &some, NULL), 0);
    assert_int_equal(providers_add(some, &rig->fake.provider, NULL), 0);
    assert_int_equal(providers_add(some, &second.provider, NULL), 0);
    assert_int_equal(providers_find(some, "runc", &found, &err), 0);
    assert_ptr_equal(found, &second.provider);
    assert_true(providers_find(some, "local", &found, &err) < 0);
    assert_int_equal(err.code, BRIG_E_OFF);
    assert_string_equal(err.message, "provider local: [providers] only does not name it");
    assert_true(providers_find(some, "docker", &found, &err) < 0); /* it is named, and not here */
    assert_null(strstr(err.message, "only"));
    providers_destroy(some);
    names[0] = '\0';
    assert_null(config_rule_providers("local gvisor"));
    assert_non_null(config_rule_providers("local chroot"));
    assert_non_null(config_rule_providers("local aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_provider_makes_what_it_can),
        TWO(each_makes_its_own),
        TWO(unknown_and_off),
        TWO(what_one_lacks),
        TWO(its_word_is_not_a_reading),
        TWO(recovered_from_its_own),
        TWO(its_provider_is_off_now),
        TWO(attempts),
        TWO(names),
        TWO(only_some),
        cmocka_unit_test(fits),
    };

    return cmocka_run_group_tests_name("sbox_place", cases, NULL, NULL);
}
