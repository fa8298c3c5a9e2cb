/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_host: dependency sets with a real manager, provider and spawner (descriptor 3), and nothing else of brigd. The
 * arguments are a directory for its state and the directory of dependency sets; BRIG_* configure it. Commands are lines
 * of JSON on stdin, answers are lines of JSON on stdout:
 *
 *   {"get": NAME, "org", "pip", "npm", "txt", "venv", "rebuild", "config": n}
 *       -> {"got": NAME, "set": {...}} or {"got": NAME, "error", "code", "text"}
 *   {"cancel": NAME}, {"release": NAME}, {"list": true} -> {"list": [...]}, {"collect": true}
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "deps/sets_priv.h"
#include "records/policies.h"

#define NAMES 64

extern char **environ;

static struct loop *loop;
static struct sets *sets;
static struct manager *manager;
static bool ready, quit;

static struct asked {
    char name[32];
    struct set_build *build;
    const struct set *set;
} asked[NAMES];

static void die(const char *what, const struct brig_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    exit(1);
}

static void say(struct buf *out)
{
    if (buf_append_str(out, "\n") < 0 || fd_write_all(1, out->data, out->len) < 0)
        exit(1);
}

static void on_got(void *ctx, const struct set *set, const struct brig_err *err)
{
    struct asked *a = ctx;
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key(&json, "got"), json_string(&json, a->name);
    if (err) {
        json_key(&json, "error"), json_string(&json, err->message);
        json_key(&json, "code"), json_i64(&json, err->code);
        json_key(&json, "text"), json_string(&json, set_build_error(a->build));
    } else {
        json_key(&json, "key"), json_string(&json, set->key);
        json_key(&json, "path"), json_string(&json, set->host_path);
        json_key(&json, "lock"), json_string(&json, set->lock_hash);
        json_key(&json, "venv"), json_string(&json, set->venv ? set->venv : "");
        json_key(&json, "node"), json_string(&json, set->node_path ? set->node_path : "");
    }
    json_end(&json);
    a->build = NULL;
    a->set = set;
    if (json_finish(&json) == 0)
        say(&out);
}

static struct asked *find(const char *name)
{
    struct asked *empty = NULL;

    for (size_t i = 0; i < NAMES; i++) {
        if (str_eq(asked[i].name, name))
            return &asked[i];
        if (!asked[i].name[0] && !empty)
            empty = &asked[i];
    }
    if (!empty)
        abort();
    snprintf(empty->name, sizeof empty->name, "%s", name);
    return empty;
}

static const char *text(const struct json_value *json, const char *key, const char *fallback)
{
    const struct json_value *v = json_get(json, key);

    return v && v->type == JSON_STRING ? v->string : fallback;
}

static size_t list(const struct json_value *json, const char *key, const char **out)
{
    const struct json_value *v = json_get(json, key);
    size_t n = 0;

    for (const struct json_value *item = v ? v->first : NULL; item && n < 1000; item = item->next)
        out[n++] = item->string;
    return n;
}

static void get(const struct json_value *json)
{
    static const char *pip[1000], *npm[1000];
    struct caller caller = {.actor = "test", .role = STORE_ROLE_USER};
    struct asked *a = find(text(json, "get", ""));
    const struct json_value *rebuild = json_get(json, "rebuild"), *config = json_get(json, "config");
    const struct set_want want = {.org_id = text(json, "org", "org-1"),
                                  .pip = pip,
                                  .n_pip = list(json, "pip", pip),
                                  .npm = npm,
                                  .n_npm = list(json, "npm", npm),
                                  .n_config_pip = config ? (size_t)config->i64 : 0,
                                  .venv_name = text(json, "venv", NULL),
                                  .requirements_txt = text(json, "txt", NULL)};
    struct brig_err err = {0};

    snprintf(caller.org_id, sizeof caller.org_id, "%s", want.org_id);
    if (sets_get(sets, &caller, &want, rebuild && rebuild->boolean, on_got, a, &a->build, &err) < 0) {
        struct set_build none = {.text = err.message};
        a->build = &none;
        on_got(a, NULL, &err);
    }
}

static void command(const char *line, size_t len)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(line, len, JSON_READ_VALUES, &doc, &err) < 0)
        die(line, &err);
    const struct json_value *json = json_root(doc);
    if (json_get(json, "get")) {
        get(json);
    } else if (json_get(json, "cancel")) {
        set_build_cancel(take_ptr(&find(text(json, "cancel", ""))->build));
    } else if (json_get(json, "release")) {
        set_release(sets, take_ptr(&find(text(json, "release", ""))->set));
    } else if (json_get(json, "collect")) {
        sets_collect(sets);
    } else {
        AUTO_BUF struct buf out = BUF_INIT(1u << 20);
        struct json answer = JSON_INIT(&out);
        json_object(&answer);
        json_key(&answer, "list"), sets_json(sets, NULL, &answer);
        json_end(&answer);
        if (json_finish(&answer) == 0)
            say(&out);
    }
    json_doc_free(doc);
}

static void on_stdin(struct loop_source *source, uint32_t events UNUSED)
{
    static struct buf in = {.max = 1u << 20};

    if (buf_reserve(&in, 65536) < 0)
        exit(1);
    ssize_t n = read(0, in.data + in.len, 65536);
    if (n <= 0) {
        quit = true;
        loop_remove(loop, source);
        return;
    }
    buf_commit(&in, (size_t)n);
    for (char *end; (end = memchr(in.data, '\n', in.len));) {
        command(in.data, (size_t)(end - in.data));
        buf_consume(&in, (size_t)(end - in.data) + 1);
    }
}

static void on_ready(void *ctx UNUSED)
{
    ready = true;
}

int main(int argc, char **argv)
{
    struct brig_err err = {0};
    struct config_loaded *config = NULL;
    struct workers *workers = NULL;
    struct store *store = NULL;
    struct crypto_signer *signer = NULL;
    struct audit *audit = NULL;
    struct policies *policies = NULL;
    struct provider *provider = NULL;
    char url[4200];

    if (argc != 3 || str_format(url, sizeof url, "sqlite:%s/brig.db", argv[1]) < 0)
        return 2;
    int state = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        cache = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (config_load_text("", "", 0, environ, &config, &err) < 0 || loop_create(&loop, &err) < 0 ||
        workers_create(loop, 1, &workers, &err) < 0 || store_open(loop, workers, url, &store, &err) < 0 ||
        crypto_signer_open(state, "audit.pem", &signer, &err) < 0)
        die("parts", &err);
    const struct audit_options logs = {
        .dir_fd = state, .signer = signer, .rotate_bytes = 1u << 20, .keep_bytes = 1u << 24, .keep_seconds = 86400};
    if (audit_open(loop, workers, &logs, &audit, &err) < 0 || policies_create(store, NULL, &policies, &err) < 0 ||
        provider_local_create(loop, 3, &provider, &err) < 0)
        die("parts", &err);
    const struct manager_options options = {.loop = loop,
                                            .provider = provider,
                                            .store = store,
                                            .audit = audit,
                                            .config = config_get(config),
                                            .policies = policies};
    if (manager_create(&options, on_ready, NULL, &manager, &err) < 0)
        die("manager", &err);
    while (!ready)
        if (loop_run_once(loop, -1, &err) < 0)
            die("loop", &err);
    const struct sets_options what = {
        .loop = loop, .manager = manager, .config = config_get(config), .cache_dir_fd = cache, .cache_path = argv[2]};
    if (sets_create(&what, &sets, &err) < 0)
        die("sets", &err);
    struct loop_source in = {.fd = -1, .fn = on_stdin};
    if (loop_add(loop, &in, 0, EPOLLIN, &err) < 0)
        die("stdin", &err);
    puts("{\"ready\":true}");
    fflush(stdout);
    while (!quit)
        if (loop_run_once(loop, -1, &err) < 0)
            die("loop", &err);
    sets_destroy(sets);
    manager_destroy(manager);
    provider->ops->destroy(provider);
    audit_close(audit);
    store_close(store);
    policies_destroy(policies);
    workers_destroy(workers);
    crypto_signer_destroy(signer);
    loop_destroy(loop);
    config_free(config);
    return 0;
}
