/* SPDX-License-Identifier: Apache-2.0 */
/* The client of a container engine, with an engine that misbehaves: late, half an answer, 500, another version. And the
 * JSON of a container. What a real engine does is tested with a real one (tests/providers). */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "runner/engine/dock.h"
#include "runner/engine/dock_container.h"

struct rig {
    struct loop *loop;
    struct dock dock;
    char dir[32], path[64];
    pid_t peer;
    /* what came back */
    unsigned told, status;
    struct brig_err err;
    struct dock_engine engine;
    char text[64];
};

/* A peer that answers one request with these bytes. It ends the connection after them, or keeps it for ever. */
static void serve(struct rig *rig, const char *answer, bool keep)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", rig->path);
    unlink(rig->path);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    rig->peer = fork();
    assert_true(rig->peer >= 0);
    if (rig->peer > 0) {
        close(listener);
        return;
    }
    char request[65536];
    size_t len = 0;
    int fd = accept(listener, NULL, NULL);
    while (len < sizeof request - 1) {
        ssize_t n = recv(fd, request + len, sizeof request - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
        request[len] = '\0';
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0)
        _exit(1);
    while (keep)
        pause();
    _exit(0);
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);

    snprintf(rig->dir, sizeof rig->dir, "/tmp/brig-dock.XXXXXX");
    if (!rig || !mkdtemp(rig->dir) || loop_create(&rig->loop, NULL) < 0)
        return -1;
    snprintf(rig->path, sizeof rig->path, "%s/s", rig->dir);
    dock_init(&rig->dock, rig->loop, AT_FDCWD, rig->path);
    *state = rig;
    return 0;
}

static void end_peer(struct rig *rig)
{
    if (rig->peer > 0) {
        kill(rig->peer, SIGKILL);
        waitpid(rig->peer, NULL, 0);
    }
    rig->peer = 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;

    end_peer(rig);
    dock_done(&rig->dock);
    loop_destroy(rig->loop);
    unlink(rig->path);
    rmdir(rig->dir);
    free(rig);
    return 0;
}

static void on_done(void *ctx, const struct dock_answer *answer, const struct brig_err *err)
{
    struct rig *rig = ctx;

    rig->told++;
    rig->err = err ? *err : (struct brig_err){0};
    rig->status = answer ? answer->status : 0;
    if (answer)
        snprintf(rig->text, sizeof rig->text, "%s", json_get_text(answer->json, "Id", ""));
}

static void wait_for_it(struct rig *rig)
{
    while (rig->told == 0)
        assert_int_equal(loop_run_once(rig->loop, -1, NULL), 0);
    assert_int_equal(rig->told, 1);
    assert_null(rig->dock.calls);
    rig->told = 0;
    end_peer(rig);
}

static void ask(struct rig *rig, const char *answer, bool keep, const struct dock_request *with)
{
    struct dock_request request = with ? *with : (struct dock_request){0};

    request.method = "GET";
    request.target = "/x";
    request.done = on_done;
    request.ctx = rig;
    serve(rig, answer, keep);
    assert_int_equal(dock_ask(&rig->dock, &request, NULL, &rig->err), 0);
    wait_for_it(rig);
}

#define HEAD(status, length) "HTTP/1.1 " status "\r\nContent-Length: " length "\r\n\r\n"

static void reads_answers_of_every_form(void **state)
{
    struct rig *rig = *state;

    ask(rig, HEAD("200 OK", "11") "{\"Id\":\"abc\"}", true, NULL);
    assert_int_equal(rig->err.code, BRIG_E_HOST); /* a byte is missing in the length */
    ask(rig, HEAD("200 OK", "12") "{\"Id\":\"abc\"}", true, NULL);
    assert_int_equal(rig->err.code, 0);
    assert_string_equal(rig->text, "abc");
    ask(rig, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"Id\"\r\n7\r\n:\"def\"}\r\n0\r\n\r\n", true,
        NULL);
    assert_string_equal(rig->text, "def");
    ask(rig, "HTTP/1.1 200 OK\r\n\r\n{\"Id\":\"ghi\"}", false, NULL);
    assert_string_equal(rig->text, "ghi");
    ask(rig, "HTTP/1.1 204 No Content\r\n\r\n", true, NULL);
    assert_int_equal(rig->status, 204);
}

static void an_engine_that_is_not_there(void **state)
{
    struct rig *rig = *state;
    struct dock_request request = {.method = "GET", .target = "/x", .done = on_done, .ctx = rig};

    assert_true(dock_ask(&rig->dock, &request, NULL, &rig->err) < 0);
    assert_int_equal(rig->err.code, BRIG_E_BUSY);
    assert_non_null(strstr(rig->err.message, rig->path));
    assert_int_equal(rig->told, 0);
    assert_null(rig->dock.calls);
}

static void half_an_answer_and_garbage(void **state)
{
    struct rig *rig = *state;
    static const char *const halves[] = {"", "HTTP/1.1 2", HEAD("200 OK", "12") "{\"Id\":",
                                         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"Id\""};
    static const char *const garbage[] = {"SSH-2.0-OpenSSH\r\n\r\n", HEAD("200 OK", "3") "{,}",
                                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(halves); i++) {
        ask(rig, halves[i], false, NULL);
        assert_int_equal(rig->err.code, BRIG_E_BUSY);
    }
    for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
        ask(rig, garbage[i], false, NULL);
        assert_int_equal(rig->err.code, BRIG_E_HOST);
    }
}

static void its_own_words_are_cut_and_cleaned(void **state)
{
    struct rig *rig = *state;
    char answer[4096], long_text[1001];

    ask(rig, "HTTP/1.1 500 No\r\n\r\n{\"message\":\"no \\u001b[31mspace\\nleft\"}", false, NULL);
    assert_int_equal(rig->err.code, BRIG_E_HOST);
    assert_string_equal(rig->err.message, "the engine answers 500: no  [31mspace left");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    snprintf(answer, sizeof answer, HEAD("404 Not Found", "1014") "{\"message\":\"%s\"}", long_text);
    ask(rig, answer, true, NULL);
    assert_int_equal(rig->err.code, BRIG_E_NOT_FOUND);
    assert_true(strlen(rig->err.message) < 200);
    ask(rig, HEAD("409 Conflict", "0"), true, NULL);
    assert_int_equal(rig->err.code, BRIG_E_CONFLICT);
}

static void a_late_answer_and_one_without_end(void **state)
{
    struct rig *rig = *state;
    const struct dock_request soon = {.timeout_ns = UINT64_C(20) * 1000 * 1000}, small = {.most = 8};

    ask(rig, "", true, &soon);
    assert_int_equal(rig->err.code, BRIG_E_TIMEOUT);
    ask(rig, HEAD("200 OK", "12") "{\"Id\"", true, &soon);
    assert_int_equal(rig->err.code, BRIG_E_TIMEOUT);
    ask(rig, HEAD("200 OK", "12") "{\"Id\":\"abc\"}", true, &small);
    assert_int_equal(rig->err.code, BRIG_E_HOST);
}

static void a_stream_of_lines_says_how_it_ended(void **state)
{
    struct rig *rig = *state;
    const struct dock_request lines = {.lines = true};

    ask(rig, "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"a\"}\r\n{\"status\":\"b\"}\r\n", false, &lines);
    assert_int_equal(rig->err.code, 0);
    ask(rig, "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"a\"}\r\n{\"errorDetail\":{},\"error\":\"no such host\"}", false,
        &lines);
    assert_int_equal(rig->err.code, BRIG_E_HOST);
    assert_string_equal(rig->err.message, "the engine says: no such host");
}

static void on_version(void *ctx, const struct dock_answer *answer, const struct brig_err *err)
{
    struct rig *rig = ctx;

    rig->told++;
    assert_null(err);
    rig->err = (struct brig_err){0};
    rig->engine = (struct dock_engine){0};
    rig->dock.api[0] = '\0';
    (void)!dock_settle(&rig->dock, answer->json, &rig->engine, &rig->err);
}

static void the_highest_common_version_is_spoken(void **state)
{
    static const struct {
        const char *highest, *lowest, *spoken;
    } cases[] = {{"1.41", "1.12", "1.41"},
                 {"1.44", "1.24", "1.44"},
                 {"1.99", "1.44", "1.52"},
                 {"1.40", "1.12", ""},
                 {"1.99", "1.53", ""},
                 {"2.0", "1.41", ""},
                 {"", "", ""}};
    struct rig *rig = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char body[256], answer[512];
        snprintf(body, sizeof body,
                 "{\"Version\":\"20.10\",\"ApiVersion\":\"%s\",\"MinAPIVersion\":\"%s\","
                 "\"Components\":[{\"Name\":\"Engine\"},{\"Name\":\"Podman Engine\"}]}",
                 cases[i].highest, cases[i].lowest);
        snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
        serve(rig, answer, true);
        const struct dock_request request = {.method = "GET", .target = "/version", .done = on_version, .ctx = rig};
        rig->dock.api[0] = '\0';
        assert_int_equal(dock_ask(&rig->dock, &request, NULL, &rig->err), 0);
        wait_for_it(rig);
        assert_string_equal(rig->dock.api, cases[i].spoken);
        assert_int_equal(rig->err.code, cases[i].spoken[0] ? 0 : BRIG_E_OFF);
        assert_true(rig->engine.podman);
    }
}

static void a_container_has_what_is_written_and_nothing_else(void **state)
{
    char data[] = "/data", *const volumes[] = {data};
    const struct dock_container container = {
        .image = "tiny",
        .host_name = "h",
        .init = "/i",
        .dir = "/d",
        .seccomp = "{}",
        .installation = "one",
        .sandbox = "s",
        .limits = {.memory = 64 << 20, .cpus = 1500, .pids = 32, .open_files = 1024},
        .volumes = volumes,
        .n_volumes = 1};
    AUTO_BUF struct buf out = BUF_INIT(1 << 20);
    struct json_doc *doc;
    (void)state;

    assert_int_equal(dock_container_json(&container, &out), 0);
    assert_int_equal(json_read(out.data, out.len, JSON_READ_VALUES, &doc, NULL), 0);
    const struct json_value *host = json_get(json_root(doc), "HostConfig");
    assert_int_equal(json_get_u64(host, "Memory"), 64 << 20);
    assert_int_equal(json_get_u64(host, "MemorySwap"), 64 << 20);
    assert_int_equal(json_get_u64(host, "NanoCpus"), 1500000000);
    assert_string_equal(json_get_text(host, "NetworkMode", ""), "none");
    assert_string_equal(json_get_text(json_get(host, "Tmpfs"), "/data", ""), "rw,nosuid,nodev,size=4096");
    assert_int_equal(json_get(host, "CapAdd")->count, 5);
    assert_int_equal(json_get(host, "Mounts")->count, 2);
    assert_null(json_get(host, "Devices"));
    assert_null(json_get(host, "PidMode"));
    json_doc_free(doc);
}

static void names_go_into_targets_encoded(void **state)
{
    char target[DOCK_TARGET_MAX], name[2000];
    (void)state;

    assert_int_equal(dock_target(target, "/images/", "a/b:c d?x#%", "/json"), 0);
    assert_string_equal(target, "/images/a/b:c%20d%3Fx%23%25/json");
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dock_target(target, "/images/", name, "/json"), -ENAMETOOLONG);
    assert_int_equal(dock_list_target(target, "one"), 0);
    assert_string_equal(target, "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22org.brig.installation%3Done%22"
                                "%5D%7D");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(reads_answers_of_every_form),
        TEST(an_engine_that_is_not_there),
        TEST(half_an_answer_and_garbage),
        TEST(its_own_words_are_cut_and_cleaned),
        TEST(a_late_answer_and_one_without_end),
        TEST(a_stream_of_lines_says_how_it_ended),
        TEST(the_highest_common_version_is_spoken),
        cmocka_unit_test(a_container_has_what_is_written_and_nothing_else),
        cmocka_unit_test(names_go_into_targets_encoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
