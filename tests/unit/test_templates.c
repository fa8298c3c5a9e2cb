/* SPDX-License-Identifier: Apache-2.0 */
/* Templates over a real store: what is kept and read back, who sees which, and what names may be. */
#include "store_kit.h"

#include "records/templates.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C64 "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static struct templates *open_templates(struct kit *kit)
{
    struct templates *templates = NULL;
    struct brig_err err = {0};

    if (templates_create(kit->store, "org-1", &templates, &err) < 0)
        fail_msg("%s", err.message);
    return templates;
}

static void on_changed(void *ctx, const struct object *object, const struct brig_err *err)
{
    (void)object;
    on_done(ctx, err);
}

static const char *const env[] = {"PATH=/bin", "A=b=c", NULL}, *const cmd[] = {"sh", NULL}, *const none[] = {NULL};

static struct template_info info_of(const char *const *layers, size_t n, bool shared)
{
    static const char *const ids[] = {"sha256:" A64, "sha256:" B64};
    static uint64_t sizes[] = {10, 32};

    return (struct template_info){
        .source = "load",
        .digest = "sha256:" C64,
        .n_layers = n,
        .layers = layers,
        .diff_ids = ids,
        .sizes = sizes,
        .image = {.env = env, .workdir = "/app", .cmd = cmd, .entrypoint = none, .user = "33"},
        .made_at_ns = 5,
        .shared = shared};
}

static void put(struct kit *kit, struct templates *templates, const char *org, const char *name, const char *top,
                bool shared)
{
    const char *const layers[] = {A64, top};
    const struct template_info info = info_of(layers, top ? 2 : 1, shared);
    struct answer answer = {0};
    struct brig_err err = {0};

    if (templates_put(templates, org, name, &info, false, on_changed, &answer, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    kit_wait_ok(kit, &answer, 1);
}

static void test_kept(void **state)
{
    struct kit *kit = *state;

    kit_put_org(kit, "org-1");
    struct templates *templates = open_templates(kit);
    put(kit, templates, "org-1", "web:1.2", B64, false);
    for (int again = 0; again < 2; again++) {
        const struct object *object = templates_find(templates, "org-1", "web:1.2");
        assert_non_null(object);
        const struct template_info *info = template_of(object);
        assert_int_equal(info->n_layers, 2);
        assert_string_equal(info->layers[1], B64);
        assert_string_equal(info->diff_ids[0], "sha256:" A64);
        assert_int_equal(info->bytes, 42);
        assert_string_equal(info->image.env[1], "A=b=c");
        assert_null(info->image.env[2]);
        assert_string_equal(info->image.cmd[0], "sh");
        assert_non_null(info->image.entrypoint); /* an empty list is not a missing one */
        assert_null(info->image.entrypoint[0]);
        assert_null(info->image.shell);
        assert_string_equal(info->image.workdir, "/app");
        assert_int_equal(info->made_at_ns, 5);
        kit_reopen(kit);
        templates_destroy(templates);
        templates = open_templates(kit);
    }
    templates_destroy(templates);
}

/* A name that is moved to the same layers with other variables means something else: programs would run otherwise. */
static void test_content(void **state)
{
    static const char *const other[] = {"PATH=/opt/bin:/bin", "A=b=c", NULL};
    const char *const layers[] = {A64, B64};
    struct template_info info = info_of(layers, 2, false);
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};
    char was[TEMPLATE_LAYER_NAME];

    kit_put_org(kit, "org-1");
    struct templates *templates = open_templates(kit);
    put(kit, templates, "org-1", "web", B64, false);
    const char *content = template_content(template_of(templates_find(templates, "org-1", "web")));
    assert_int_equal(str_copy(was, sizeof was, content), 0);
    assert_true(templates_stands(templates, "org-1", "web", was));
    info.made_at_ns = 6;
    assert_int_equal(templates_put(templates, "org-1", "web", &info, true, on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_true(templates_stands(templates, "org-1", "web", was)); /* the same again */
    info.image.env = other;
    assert_int_equal(templates_put(templates, "org-1", "web", &info, true, on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 2);
    assert_false(templates_stands(templates, "org-1", "web", was));
    templates_destroy(templates);
}

/* The bound is younger than some templates: those may be used, tagged and committed on. */
static void test_older_than_the_bound(void **state)
{
    static char large[60000];
    const char *const many[] = {large, large, large, large, large, NULL}, *const layers[] = {A64, B64};
    struct template_info info = info_of(layers, 2, false), again;
    AUTO_BUF struct buf old = BUF_INIT(OBJECT_DOC_MAX), text = BUF_INIT(OBJECT_DOC_MAX);
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};
    struct json_doc *doc;

    memset(large, 'x', sizeof large - 1);
    info.image.cmd = many;
    assert_true(template_write(&info, &text, &err) < 0);
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
    info.stored = true; /* as if an older version had written it */
    assert_int_equal(template_write(&info, &old, &err), 0);
    kit_put_org(kit, "org-1");
    struct templates *templates = open_templates(kit);
    assert_int_equal(objects_put(templates_objects(templates), "org-1", "web", old.data, old.len, OBJECTS_NEW,
                                 on_changed, &answer, &err),
                     0);
    kit_wait_ok(kit, &answer, 1);
    again = *template_of(templates_find(templates, "org-1", "web"));
    if (templates_put(templates, "org-1", "tag", &again, false, on_changed, &answer, &err) < 0)
        fail_msg("%s", err.message);
    kit_wait_ok(kit, &answer, 2);
    assert_int_equal(json_read(old.data, old.len, JSON_READ_VALUES, &doc, &err), 0);
    assert_int_equal(template_parse(json_root(doc), &again, &err), 0);
    assert_true(again.stored);
    template_done(&again);
    json_doc_free(doc);
    templates_destroy(templates);
}

static void refused(const char *name, const char *message)
{
    char out[TEMPLATE_NAME_MAX];
    struct brig_err err = {0};

    assert_true(template_name(name, out, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    if (!strstr(err.message, message))
        fail_msg("said \"%s\", not \"%s\"", err.message, message);
}

static void test_names(void **state)
{
    char out[TEMPLATE_NAME_MAX];
    struct brig_err err;

    (void)state;
    assert_int_equal(template_name("debian", out, &err), 0);
    assert_string_equal(out, "debian");
    assert_int_equal(template_name("debian:12-Slim_x", out, &err), 0);
    assert_string_equal(out, "debian:12-Slim_x");
    assert_int_equal(template_name("debian:latest", out, &err), 0);
    assert_string_equal(out, "debian");
    refused("", "a name is NAME or NAME:TAG");
    refused("Debian", "a name is NAME or NAME:TAG");
    refused("debian:", "a name is NAME or NAME:TAG");
    refused("a/b", "a name is NAME or NAME:TAG");
    refused("..", "a name is NAME or NAME:TAG");
    refused("a:b:c", "a name is NAME or NAME:TAG");
    refused("host", "this name means something already");
    refused("scratch:1", "this name means something already");
    refused("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "1 to 63");
}

static const char *names_of(const struct templates *templates, const char *org)
{
    static char text[256];
    size_t len = 0;

    text[0] = '\0';
    for (const struct object *at = templates_first(templates, org); at; at = templates_next(templates, org, at))
        len += (size_t)snprintf(text + len, sizeof text - len, "%s@%s ", at->id, at->org_id);
    return text;
}

static void test_who_sees(void **state)
{
    struct kit *kit = *state;
    size_t index = 9;

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    struct templates *templates = open_templates(kit);
    put(kit, templates, "org-1", "base", NULL, true);
    put(kit, templates, "org-1", "own", B64, false);
    put(kit, templates, "org-1", "web", NULL, true);
    put(kit, templates, "org-2", "web", C64, true); /* shared says nothing outside of the service's organisation */
    assert_string_equal(names_of(templates, "org-1"), "base@org-1 own@org-1 web@org-1 ");
    assert_string_equal(names_of(templates, "org-2"), "web@org-2 base@org-1 ");
    assert_string_equal(names_of(templates, "org-3"), "base@org-1 web@org-1 ");
    assert_string_equal(templates_find(templates, "org-2", "web:latest")->org_id, "org-2");
    assert_string_equal(templates_find(templates, "org-2", "base")->org_id, "org-1");
    assert_null(templates_find(templates, "org-2", "own"));
    assert_null(templates_find(templates, "org-1", "../own"));
    /* and so it is with layers */
    assert_non_null(templates_with_layer(templates, "org-2", C64, &index));
    assert_int_equal(index, 1);
    assert_null(templates_with_layer(templates, "org-1", C64, NULL));
    assert_null(templates_with_layer(templates, "org-2", B64, NULL));
    assert_non_null(templates_with_layer(templates, NULL, B64, NULL));
    templates_destroy(templates);
}

static void test_taken(void **state)
{
    const char *const layers[] = {A64}, *const bad[] = {"nonsense"};
    struct template_info info = info_of(layers, 1, false);
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};

    kit_put_org(kit, "org-1");
    struct templates *templates = open_templates(kit);
    put(kit, templates, "org-1", "web", B64, false);
    assert_true(templates_put(templates, "org-1", "web:latest", &info, false, on_changed, &answer, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_int_equal(templates_put(templates, "org-1", "web", &info, true, on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_int_equal(template_of(templates_find(templates, "org-1", "web"))->n_layers, 1);
    info.layers = bad; /* what would not load again is not written */
    assert_true(templates_put(templates, "org-1", "x", &info, false, on_changed, &answer, &err) < 0);
    assert_non_null(strstr(err.message, "64 hexadecimal digits"));
    templates_used(templates, templates_find(templates, "org-1", "web"));
    for (int i = 0; i < 1000 && template_of(templates_find(templates, "org-1", "web"))->used_at_ns == 0; i++)
        assert_int_equal(loop_run_once(kit->loop, 10, NULL), 0);
    assert_true(template_of(templates_find(templates, "org-1", "web"))->used_at_ns > 0);
    answer = (struct answer){0};
    assert_int_equal(templates_delete(templates, "org-1", "web", on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_null(templates_find(templates, "org-1", "web"));
    templates_destroy(templates);
}

static void test_copy(void **state)
{
    struct kit *kit = *state;
    AUTO_BUF struct buf text = BUF_INIT(65536);
    struct json json = JSON_INIT(&text);
    struct template_copy *copy = NULL, *again = NULL;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    kit_put_org(kit, "org-1");
    struct templates *templates = open_templates(kit);
    put(kit, templates, "org-1", "web", B64, false);
    assert_int_equal(template_copy(templates_find(templates, "org-1", "web"), &copy, &err), 0);
    templates_destroy(templates); /* it lives on */
    template_copy_put(copy, &json);
    assert_int_equal(json_finish(&json), 0);
    template_copy_free(copy);
    assert_int_equal(json_read(text.data, text.len, 10000, &doc, &err), 0);
    assert_int_equal(template_copy_read(json_root(doc), &again, &err), 0);
    json_doc_free(doc);
    assert_string_equal(again->org, "org-1");
    assert_string_equal(again->name, "web");
    assert_string_equal(again->info.layers[1], B64);
    assert_string_equal(again->info.image.env[0], "PATH=/bin");
    template_copy_free(again);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        KIT_CASE(test_kept),  KIT_CASE(test_content),  KIT_CASE(test_older_than_the_bound),
        KIT_CASE(test_names), KIT_CASE(test_who_sees), KIT_CASE(test_taken),
        KIT_CASE(test_copy)};

    return kit_run("templates", cases, ARRAY_SIZE(cases), false);
}
