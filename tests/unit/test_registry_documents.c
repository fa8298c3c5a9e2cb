/* SPDX-License-Identifier: Apache-2.0 */
/* The registry client and its documents: manifests, redirects, mirrors, and servers that lie. */
#include "registry_image.h"

static void an_image_arrives(void **state)
{
    (void)state;
    struct image image;
    struct rig rig;
    struct rig_result result;
    char by_digest[100];

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(honest, &image);
    rig_init(&rig);
    rig_open(&rig);
    rig_pull(&rig, at(server, ":1"), NULL, &result);
    check_image(&result, &image);
    assert_true(str_format(by_digest, sizeof by_digest, "@%s", image.index_digest) > 0);
    rig_pull(&rig, at(server, by_digest), NULL, &result);
    check_image(&result, &image);
    assert_int_equal(rig_count(server, "Authorization"), 0);
    assert_true(rig_count(server, "Accept: " MANIFEST_TYPES) >= 4);
    /* the platform of the configuration counts, and a name that is not there is said to be so */
    rig_pull(&rig, at(server, ":2"), NULL, &result);
    assert_null(result.image);
    assert_int_equal(result.err.code, BRIG_E_NOT_FOUND);
    assert_non_null(strstr(result.err.message, "does not have a/b:2 (MANIFEST_UNKNOWN: not here)"));
    rig_done(&rig);
    rig_stop(server);
}

static void another_platform(void **state)
{
    (void)state;
    struct image image;
    struct rig rig;
    struct rig_result result;

    image_make(&image, "arm64"); /* and its index says amd64 */
    struct rig_server *server = rig_serve(honest, &image);
    rig_init(&rig);
    rig_open(&rig);
    rig_pull(&rig, at(server, ":1"), NULL, &result);
    assert_int_equal(result.err.code, BRIG_E_NOT_FOUND);
    assert_string_equal(result.err.message, "there is no image for linux/amd64: this one is for linux/arm64");
    rig_done(&rig);
    rig_stop(server);
}

/* ---- lies ------------------------------------------------------------------------------------------------- */

enum lie {
    LIE_DIGEST_FIELD,
    LIE_OTHER_MANIFEST,
    LIE_LONG_CONFIG,
    LIE_CONTENT_TYPE,
    LIE_ENDLESS_MANIFEST,
    LIE_HUGE_FIELDS,
    LIE_HUGE_FIELD,
    LIE_ENDLESS_ERROR,
    LIE_NESTED,
    LIE_NOT_HTTP,
    LIE_MAX
};

static const char *const lie_says[LIE_MAX] = {
    [LIE_DIGEST_FIELD] = "sent something else for a/b:1: sha256:",
    [LIE_OTHER_MANIFEST] = "sent something else for a/b@sha256:",
    [LIE_LONG_CONFIG] = "bytes for a/b@sha256:",
    [LIE_CONTENT_TYPE] = "manifest: the media type text/html is not supported",
    [LIE_ENDLESS_MANIFEST] = "its answer has more than 4194304 bytes",
    [LIE_HUGE_FIELDS] = "the fields of its answer have more than 65536 bytes",
    [LIE_HUGE_FIELD] = "the fields of its answer have more than 65536 bytes",
    [LIE_ENDLESS_ERROR] = "answered 404 with more than 65536 bytes",
    [LIE_NESTED] = "an index in an index in an index",
    [LIE_NOT_HTTP] = "127.0.0.1:",
};

static void pour_fields(struct rig_request *rq, bool one)
{
    static const char field[] = "X-Field: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";

    rig_text(rq, "HTTP/1.1 200 OK\r\n");
    while (rig_write(rq->fd, field, sizeof field - (one ? 3 : 1)))
        ;
}

static void nest(const struct image *image, struct rig_request *rq)
{
    char inner[512], middle[512], outer[512], d_inner[DIGEST_TEXT], d_middle[DIGEST_TEXT];
    static const char form[] =
        "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" INDEX_TYPE "\",\"digest\":\"%s\",\"size\":%zu}]}";

    (void)!str_format(inner, sizeof inner, form, image->index_digest, strlen(image->index));
    rig_digest(inner, strlen(inner), d_inner);
    (void)!str_format(middle, sizeof middle, form, d_inner, strlen(inner));
    rig_digest(middle, strlen(middle), d_middle);
    (void)!str_format(outer, sizeof outer, form, d_middle, strlen(middle));
    const char *text = ends(rq->path, "/1") ? outer : ends(rq->path, d_middle) ? middle : inner;
    rig_answer(rq, 200, "Content-Type: " INDEX_TYPE "\r\n", text, strlen(text));
}

static void lie(struct rig_server *server, struct rig_request *rq)
{
    const struct image *image = server->ctx;
    enum lie kind = (enum lie)server->value;

    if (ends(rq->path, "/v2/"))
        rig_answer(rq, 200, "", "", 0);
    else if (kind == LIE_DIGEST_FIELD && ends(rq->path, "/1"))
        rig_answer(rq, 200,
                   "Content-Type: " INDEX_TYPE "\r\nDocker-Content-Digest: "
                   "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n",
                   image->index, strlen(image->index));
    else if (kind == LIE_OTHER_MANIFEST && ends(rq->path, image->manifest_digest)) {
        char other[2048];
        str_cut(other, sizeof other, image->manifest);
        other[strlen(other) - 1] = ' ';
        rig_answer(rq, 200, "Content-Type: " MANIFEST_TYPE "\r\n", other, strlen(other));
    } else if (kind == LIE_LONG_CONFIG && ends(rq->path, image->config_digest))
        rig_answer(rq, 200, "", image->config, strlen(image->config) - 1);
    else if (kind == LIE_CONTENT_TYPE)
        rig_answer(rq, 200, "Content-Type: text/html\r\n", image->index, strlen(image->index));
    else if (kind == LIE_ENDLESS_MANIFEST)
        pour(rq, "HTTP/1.1 200 OK\r\nContent-Type: " INDEX_TYPE "\r\n\r\n");
    else if (kind == LIE_HUGE_FIELDS || kind == LIE_HUGE_FIELD)
        pour_fields(rq, kind == LIE_HUGE_FIELD);
    else if (kind == LIE_ENDLESS_ERROR)
        pour(rq, "HTTP/1.1 404 No\r\n\r\n");
    else if (kind == LIE_NESTED && !ends(rq->path, image->index_digest))
        nest(image, rq);
    else if (kind == LIE_NOT_HTTP) {
        rig_text(rq, "SSH-2.0-OpenSSH\r\n");
        rig_cut(rq);
    } else
        serve(image, rq);
}

static void lies_are_refused(void **state)
{
    (void)state;
    struct image image;

    image_make(&image, "amd64");
    for (int kind = 0; kind < LIE_MAX; kind++) {
        struct rig rig;
        struct rig_result result;
        struct rig_server *server = rig_serve(lie, &image);
        server->value = kind;
        rig_init(&rig);
        rig_open(&rig);
        rig_pull(&rig, at(server, ":1"), NULL, &result);
        assert_null(result.image);
        if (!strstr(result.err.message, lie_says[kind]))
            fail_msg("lie %d: %s", kind, result.err.message);
        rig_done(&rig);
        rig_stop(server);
    }
}

/* ---- redirects -------------------------------------------------------------------------------------------- */

struct lead {
    const struct image *image;
    const char *to; /* a form with %s: the path */
    char host[64];  /* of the next server */
};

static void leads(struct rig_server *server, struct rig_request *rq)
{
    const struct lead *lead = server->ctx;
    char field[4096], auth[256];

    rig_field(rq->head, "Authorization", auth, sizeof auth);
    if (!auth[0] && server->value == 0) {
        rig_answer(rq, 401, "WWW-Authenticate: Basic\r\n", "", 0);
        return;
    }
    (void)!str_format(field, sizeof field, "Location: %s%s%s\r\n", lead->to, lead->host, rq->path);
    rig_answer(rq, 307, field, "", 0);
}

static void redirects(void **state)
{
    (void)state;
    static const char *const words[] = {"me", "pw", NULL};
    struct image image;
    struct rig rig;
    struct rig_result result;

    image_make(&image, "amd64");
    struct rig_server *end = rig_serve(honest, &image);
    struct lead lead = {.image = &image, .to = "http://"};
    str_cut(lead.host, sizeof lead.host, end->host);
    struct rig_server *server = rig_serve(leads, &lead);
    rig_init(&rig);
    rig_open(&rig);
    rig_pull(&rig, at(server, ":1"), words, &result);
    check_image(&result, &image);
    assert_true(rig_count(server, "Authorization: Basic bWU6cHc=") > 0);
    assert_true(rig_count(end, "GET /v2/a/b/manifests/1 ") == 1);
    assert_int_equal(rig_count(end, "Authorization"), 0); /* never to another server */
    rig_stop(server);

    static const struct {
        const char *to, *host, *says;
    } rows[] = {
        {"http://", "", "more than 5 redirects"}, /* to itself */
        {"http://192.0.2.1", NULL, "http is only for loopback and hosts of [templates] insecure"},
        {"ftp://127.0.0.1", NULL, "is no http or https address without a user"},
        {"http://u:p@", "", "is no http or https address without a user"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        lead = (struct lead){.image = &image, .to = rows[i].to};
        server = rig_serve(leads, &lead);
        if (rows[i].host)
            str_cut(lead.host, sizeof lead.host, server->host);
        rig_pull(&rig, at(server, ":1"), words, &result);
        assert_null(result.image);
        if (!strstr(result.err.message, rows[i].says))
            fail_msg("row %zu: %s", i, result.err.message);
        rig_stop(server);
    }
    rig_done(&rig);
    rig_stop(end);
}

/* Rules that need a server with TLS or a public address, asked where they are judged. */
static void where_requests_may_go(void **state)
{
    (void)state;
    static const char *const insecure[] = {"10.0.0.5:5000"};
    struct image image;
    struct rig rig;
    struct brig_err err = {0};

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(honest, &image);
    rig_init(&rig);
    rig.options.insecure = insecure;
    rig.options.n_insecure = 1;
    rig_open(&rig);
    assert_int_equal(dist_url_check(rig.dist, "http://127.0.0.1:1/", false, &err), 0);
    assert_int_equal(dist_url_check(rig.dist, "http://[::1]:1/", false, &err), 0);
    assert_int_equal(dist_url_check(rig.dist, "http://localhost/", false, &err), 0);
    assert_int_equal(dist_url_check(rig.dist, "http://10.0.0.5:5000/", false, &err), 0);
    assert_true(dist_url_check(rig.dist, "http://10.0.0.5/", false, &err) < 0);
    assert_true(dist_url_check(rig.dist, "http://localhost.example/", false, &err) < 0);
    assert_true(dist_url_check(rig.dist, "http://127.0.0.1:1/", true, &err) < 0);
    assert_string_equal(err.message, "http://127.0.0.1:1/: a server with TLS leads to one without");

    char url[128];
    struct dist_server asked = {.host = "public.example", .may_private = true};
    struct dist_fetch fetch = {.dist = rig.dist, .multi = curl_multi_init()};
    AUTO_BUF struct buf body = BUF_INIT(4096);
    struct dist_reply reply;
    assert_true(str_format(url, sizeof url, "http://%s/v2/", server->host) > 0);
    struct dist_get get = {.url = url, .server = &asked, .body = &body};
    assert_true(dist_request(&fetch, &get, &reply, &err) < 0); /* on behalf of one at a public address */
    char says[128];
    assert_true(
        str_format(says, sizeof says, "public.example leads to %s, which is not a public address", server->host) > 0);
    assert_string_equal(err.message, says);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_false(reply.soon);
    assert_int_equal(server->n_seen, 0);
    asked.at_private = true;
    assert_int_equal(dist_request(&fetch, &get, &reply, &err), 0);
    asked.at_private = asked.may_private = false; /* who may not name it is not told the address */
    assert_true(dist_request(&fetch, &get, &reply, &err) < 0);
    assert_int_equal(err.code, BRIG_E_FORBIDDEN);
    assert_null(strstr(err.message, "127.0.0.1"));
    curl_multi_cleanup(fetch.multi);
    rig_done(&rig);
    rig_stop(server);
}

/* A caller who may not name private addresses reaches none, in no spelling; a host that is configured is reached. */
static void private_addresses_are_named_by_few(void **state)
{
    (void)state;
    static const char *const hosts[] = {
        "127.0.0.1", "localhost", "2130706433",         "0x7f000001",    "127.1",      "0177.0.0.1",
        "0.0.0.0",   "[::1]",     "[::ffff:127.0.0.1]", "[::127.0.0.1]", "127.0.0.1.", "[64:ff9b::7f00:1]"};
    struct image image;
    struct rig rig;
    struct rig_result result;

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(honest, &image);
    const char *const insecure[] = {server->host};
    rig_init(&rig);
    rig.public_only = true;
    rig_open(&rig);
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        char name[128];
        struct image_ref ref;
        assert_true(str_format(name, sizeof name, "%s:%u/a/b:1", hosts[i], server->port) > 0);
        if (image_ref_parse(name, &ref, NULL) < 0)
            continue; /* not a name at all */
        rig_pull(&rig, name, NULL, &result);
        assert_null(result.image);
        assert_int_equal(result.err.code, BRIG_E_FORBIDDEN);
        assert_non_null(strstr(result.err.message, "[gate] private_ranges"));
    }
    assert_int_equal(server->n_seen, 0);
    rig_done(&rig);

    rig_init(&rig);
    rig.public_only = true;
    rig.options.insecure = insecure;
    rig.options.n_insecure = 1;
    rig_open(&rig);
    char name[128];
    assert_true(str_format(name, sizeof name, "%s/a/b:1", server->host) > 0);
    rig_pull(&rig, name, NULL, &result);
    check_image(&result, &image);
    rig_done(&rig);
    rig_stop(server);
}

static void no_proxy_lists(void **state)
{
    (void)state;
    assert_true(dist_no_proxy("*", "a.example"));
    assert_true(dist_no_proxy("x.example, .a.example", "b.a.example"));
    assert_true(dist_no_proxy("A.example", "b.a.EXAMPLE"));
    assert_true(dist_no_proxy("a.example", "a.example"));
    assert_true(dist_no_proxy("10.0.0.0/8 b.example", "10.2.3.4"));
    assert_true(dist_no_proxy("fd00::/8", "fd00::1"));
    assert_true(dist_no_proxy("10.0.0.1", "10.0.0.1"));
    assert_false(dist_no_proxy("", "a.example"));
    assert_false(dist_no_proxy("a.example", "ba.example"));
    assert_false(dist_no_proxy(".", "a.example"));
    assert_false(dist_no_proxy("10.0.0.0/8", "11.0.0.1"));
    assert_false(dist_no_proxy("0.0.1", "10.0.0.1"));
}

/* With a proxy: a host that the proxy is not for is judged as without one, and so is an address as a number. */
static void a_proxy_hides_no_address(void **state)
{
    (void)state;
    struct image image;
    struct rig rig;
    struct rig_result result;
    char proxy[128], url[128];

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(honest, &image), *between = rig_serve(honest, &image);
    assert_true(str_format(proxy, sizeof proxy, "http://%s", between->host) > 0);
    rig_init(&rig);
    rig.options.proxy = proxy;
    rig.options.no_proxy = "10.0.0.0/8,corp.example";
    rig.public_only = true;
    rig_open(&rig);
    rig_pull(&rig, "10.1.2.3/a/b:1", NULL, &result); /* past the proxy */
    assert_int_equal(result.err.code, BRIG_E_FORBIDDEN);
    rig_pull(&rig, "192.168.1.1/a/b:1", NULL, &result); /* through it */
    assert_int_equal(result.err.code, BRIG_E_FORBIDDEN);
    assert_int_equal(between->n_seen, 0);

    struct dist_server asked = {.host = "public.example", .may_private = true};
    struct dist_fetch fetch = {.dist = rig.dist, .multi = curl_multi_init()};
    AUTO_BUF struct buf body = BUF_INIT(4096);
    struct dist_reply reply;
    struct brig_err err = {0};
    assert_true(str_format(url, sizeof url, "https://10.1.2.3:%u/v2/", server->port) > 0);
    struct dist_get get = {.url = url, .server = &asked, .body = &body}; /* a redirect of a public server */
    assert_true(dist_request(&fetch, &get, &reply, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    curl_multi_cleanup(fetch.multi);
    rig_done(&rig);
    rig_stop(server);
    rig_stop(between);
}

/* One owner's servers keep it waiting; another owner's image comes. */
static void silent(struct rig_server *server, struct rig_request *rq UNUSED)
{
    pthread_mutex_lock(&server->lock);
    while (!atomic_load(&server->stop))
        pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

static void a_slow_place_holds_up_its_owner_only(void **state)
{
    (void)state;
    struct image image;
    struct rig rig;
    struct rig_result waiting[32], result;
    char slow[128], fast[128];

    image_make(&image, "amd64");
    struct rig_server *bad = rig_serve(silent, NULL), *good = rig_serve(honest, &image);
    assert_true(str_format(slow, sizeof slow, "%s/a/b:1", bad->host) > 0);
    assert_true(str_format(fast, sizeof fast, "%s/a/b:1", good->host) > 0);
    rig_init(&rig);
    rig_open(&rig);
    rig.owner = "org-a";
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++)
        rig_pull_start(&rig, slow, NULL, &waiting[i]);
    rig.owner = "org-b";
    rig_pull(&rig, fast, NULL, &result);
    check_image(&result, &image);
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++)
        assert_false(waiting[i].done);

    /* Calls are shared too: alone, an owner has half of them. */
    struct dist_ask ask = {.owner = "org-c", .reach_private = true};
    struct image_ref ref;
    struct brig_err err = {0};
    struct rig_result *more = calloc(1024, sizeof *more);
    size_t n = 0;
    assert_non_null(more);
    assert_int_equal(image_ref_parse(slow, &ref, &err), 0);
    ask.ref = &ref;
    while (n < 1024 && dist_manifest(rig.dist, &ask, NULL, rig_on_image, &more[n], &more[n].call, &err) == 0)
        n++;
    assert_int_equal(n, (1024 - ARRAY_SIZE(waiting)) / 2);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    rig.owner = "org-b";
    rig_pull(&rig, fast, NULL, &result);
    check_image(&result, &image);
    dist_cancel(more[n - 1].call); /* one that waits for a thread */
    rig_done(&rig);
    rig_stop(bad);
    rig_stop(good);
    free(more);
}

/* ---- mirrors, rests --------------------------------------------------------------------------------------- */

static void empty(struct rig_server *server UNUSED, struct rig_request *rq)
{
    rig_answer(rq, 404, "", "", 0);
}

static void mirrors_in_order(void **state)
{
    (void)state;
    struct image image;
    struct rig rig;
    struct rig_result result;
    char urls[2][128];

    image_make(&image, "amd64");
    struct rig_server *first = rig_serve(empty, NULL), *second = rig_serve(honest, &image);
    assert_true(str_format(urls[0], sizeof urls[0], "http://%s/", first->host) > 0);
    assert_true(str_format(urls[1], sizeof urls[1], "http://%s/prefix", second->host) > 0);
    const struct dist_mirror mirrors[] = {{"registry.example", urls[0]}, {"registry.example", urls[1]}};
    rig_init(&rig);
    rig.options.mirrors = mirrors;
    rig.options.n_mirrors = 2;
    rig_open(&rig);
    rig_pull(&rig, "registry.example/a/b:1", NULL, &result);
    check_image(&result, &image);
    assert_int_equal(rig_count(first, "GET /v2/a/b/manifests/1 "), 1);
    assert_int_equal(rig_count(second, "GET /prefix/v2/a/b/manifests/1 "), 1);
    rig_done(&rig);

    struct brig_err err = {0};
    struct dist *dist = NULL;
    const struct dist_mirror bad[] = {{"registry.example", "http://mirror.example"}};
    rig_init(&rig);
    rig.options.mirrors = bad;
    rig.options.n_mirrors = 1;
    assert_true(dist_create(&rig.options, &dist, &err) < 0);
    assert_string_equal(err.message,
                        "http://mirror.example: http is only for loopback and hosts of [templates] insecure");
    rig_done(&rig);
    rig_stop(first);
    rig_stop(second);
}

/* A proxy gets the whole address; a loopback address is never asked through one. */
static void through_a_proxy(void **state)
{
    (void)state;
    static const char *const insecure[] = {"registry.invalid:5000"};
    struct image image;

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(honest, &image);
    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;
        struct rig_result result;
        char proxy[128];
        assert_true(str_format(proxy, sizeof proxy, "http://%s", server->host) > 0);
        rig_init(&rig);
        rig.options.insecure = insecure;
        rig.options.n_insecure = 1;
        rig.options.proxy = i ? proxy : NULL; /* then it is the environment's */
        assert_int_equal(setenv("HTTP_PROXY", i ? "http://127.0.0.1:1" : proxy, 1), 0);
        assert_int_equal(setenv("HTTPS_PROXY", i ? "http://127.0.0.1:1" : proxy, 1), 0);
        rig_open(&rig);
        rig_pull(&rig, "registry.invalid:5000/a/b:1", NULL, &result);
        check_image(&result, &image);
        assert_int_equal(rig_count(server, "GET http://registry.invalid:5000/v2/a/b/manifests/1 "), i + 1);
        rig_pull(&rig, at(server, ":1"), NULL, &result);
        check_image(&result, &image);
        assert_int_equal(rig_count(server, "GET /v2/a/b/manifests/1 "), i + 1);
        rig_done(&rig);
    }
    unsetenv("HTTP_PROXY");
    unsetenv("HTTPS_PROXY");
    rig_stop(server);
}

static void busy(struct rig_server *server, struct rig_request *rq)
{
    if (ends(rq->path, "/v2/")) {
        serve(server->ctx, rq);
    } else if (server->value < 0) {
        rig_answer(rq, 429, "Retry-After: 3600\r\n", "", 0);
    } else if (server->value > 0) {
        server->value--;
        if (server->value == 0)
            rig_answer(rq, 429, "Retry-After: 1\r\n", "", 0);
        else
            rig_cut(rq);
    } else {
        serve(server->ctx, rq);
    }
}

static void failures_that_are_over_soon(void **state)
{
    (void)state;
    struct image image;
    struct rig rig;
    struct rig_result result;

    image_make(&image, "amd64");
    struct rig_server *server = rig_serve(busy, &image);
    rig_init(&rig);
    rig_open(&rig);
    server->value = 2; /* one cut, one 429 */
    rig_pull(&rig, at(server, ":1"), NULL, &result);
    check_image(&result, &image);
    assert_int_equal(rig_count(server, "GET /v2/a/b/manifests/1 "), 3);
    server->value = -1;
    rig_pull(&rig, at(server, ":1"), NULL, &result);
    assert_int_equal(result.err.code, BRIG_E_LIMIT);
    assert_non_null(strstr(result.err.message, "answered 429 for a/b:1 and wants to be left alone for 3600 s"));
    assert_int_equal(rig_count(server, "GET /v2/a/b/manifests/1 "), 4);
    server->value = 1000; /* always cut: it ends */
    rig_pull(&rig, at(server, ":1"), NULL, &result);
    assert_int_equal(result.err.code, BRIG_E_HOST);
    assert_int_equal(rig_count(server, "GET /v2/a/b/manifests/1 "), 7);
    rig_done(&rig);
    rig_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_arrives),
        cmocka_unit_test(another_platform),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(redirects),
        cmocka_unit_test(where_requests_may_go),
        cmocka_unit_test(mirrors_in_order),
        cmocka_unit_test(private_addresses_are_named_by_few),
        cmocka_unit_test(no_proxy_lists),
        cmocka_unit_test(a_proxy_hides_no_address),
        cmocka_unit_test(a_slow_place_holds_up_its_owner_only),
        cmocka_unit_test(through_a_proxy),
        cmocka_unit_test(failures_that_are_over_soon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
