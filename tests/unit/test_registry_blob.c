/* SPDX-License-Identifier: Apache-2.0 */
/* The registry client and blobs: resuming, sharing, cancelling, and servers that cut, lie and stall. */
#include "registry_rig.h"

#include <sys/vfs.h>

static atomic_bool is_full; /* what every file system says of itself */

int fstatfs(int fd, struct statfs *fs)
{
    (void)fd;
    *fs = (struct statfs){.f_bsize = 4096, .f_blocks = 1u << 30, .f_bavail = atomic_load(&is_full) ? 1 : 1u << 29};
    return 0;
}

#define SIZE (3u << 20)

/* Bytes that differ everywhere, so that a wrong place shows. */
struct content {
    char data[SIZE];
    char digest[DIGEST_TEXT];
    pthread_mutex_t *lock;
};

static struct content *content_make(void)
{
    struct content *content = calloc(1, sizeof *content);
    uint32_t x = 1;

    assert_non_null(content);
    for (size_t i = 0; i < SIZE; i++) {
        x = x * 1664525u + 1013904223u;
        content->data[i] = (char)(x >> 24);
    }
    rig_digest(content->data, SIZE, content->digest);
    return content;
}

enum way {
    WAY_HONEST,
    WAY_CUT,          /* a third of what is left, then the end */
    WAY_CUT_SILENTLY, /* the same without a length */
    WAY_IGNORE_RANGE,
    WAY_WRONG_RANGE,
    WAY_NO_RANGE, /* 416 */
    WAY_OTHER,
    WAY_LONGER,
    WAY_LENGTH,
    WAY_ENDLESS,
    WAY_STALL,
    WAY_MISSING,
    WAY_NOTHING, /* cuts at once, always */
    WAY_WAIT,    /* half of it, and the rest when it is told */
};

static uint64_t range_of(const struct rig_request *rq)
{
    char field[64];

    rig_field(rq->head, "Range", field, sizeof field);
    return str_starts(field, "bytes=") ? strtoull(field + 6, NULL, 10) : 0;
}

/* The bytes from a place on, as 206 or 200; only the first `send` of them are sent. */
static void give(struct rig_request *rq, const struct content *content, uint64_t from, uint64_t send)
{
    char head[512];

    if (from > 0)
        (void)!str_format(head, sizeof head,
                          "HTTP/1.1 206 Partial\r\nContent-Length: %llu\r\nContent-Range: bytes %llu-%u/%u\r\n\r\n",
                          (unsigned long long)(SIZE - from), (unsigned long long)from, SIZE - 1, SIZE);
    else
        (void)!str_format(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", SIZE);
    rig_text(rq, head);
    (void)rig_write(rq->fd, content->data + from, send);
}

static void wait_told(struct rig_server *server)
{
    pthread_mutex_lock(&server->lock);
    while (!atomic_load(&server->stop) && server->value != WAY_HONEST)
        pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

static void rig_tell(struct rig_server *server, enum way way)
{
    pthread_mutex_lock(&server->lock);
    server->value = (int)way;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static void blobs(struct rig_server *server, struct rig_request *rq)
{
    const struct content *content = server->ctx;
    uint64_t from = range_of(rq);
    static const char zeroes[65536];

    if (str_eq(rq->path, "/v2/")) {
        rig_answer(rq, 200, "", "", 0);
        return;
    }
    switch ((enum way)server->value) {
    case WAY_CUT:
        give(rq, content, from, (SIZE - from) / 3 + 1);
        rig_cut(rq);
        break;
    case WAY_CUT_SILENTLY:
        rig_text(rq, "HTTP/1.0 200 OK\r\n\r\n");
        (void)rig_write(rq->fd, content->data, SIZE / 2);
        server->value = WAY_HONEST;
        rig_cut(rq);
        break;
    case WAY_IGNORE_RANGE: give(rq, content, 0, SIZE); break;
    case WAY_WRONG_RANGE:
        if (from > 0)
            give(rq, content, from + 1, SIZE - from - 1);
        else
            give(rq, content, 0, SIZE);
        break;
    case WAY_NO_RANGE:
        if (from > 0)
            rig_answer(rq, 416, "", "", 0);
        else
            give(rq, content, 0, SIZE);
        break;
    case WAY_OTHER:
        rig_text(rq, "HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n");
        for (unsigned i = 0; i < SIZE / sizeof zeroes; i++)
            (void)rig_write(rq->fd, zeroes, sizeof zeroes);
        break;
    case WAY_LONGER:
        rig_text(rq, "HTTP/1.0 200 OK\r\n\r\n");
        (void)rig_write(rq->fd, content->data, SIZE);
        (void)rig_write(rq->fd, "x", 1);
        rig_cut(rq);
        break;
    case WAY_LENGTH: rig_answer(rq, 200, "", zeroes, 100); break;
    case WAY_ENDLESS:
        rig_text(rq, "HTTP/1.0 200 OK\r\n\r\n");
        while (rig_write(rq->fd, zeroes, sizeof zeroes))
            ;
        break;
    case WAY_STALL:
        give(rq, content, from, 100);
        wait_told(server);
        break;
    case WAY_MISSING: rig_answer(rq, 404, "", "", 0); break;
    case WAY_NOTHING: rig_cut(rq); break;
    case WAY_WAIT:
        give(rq, content, from, SIZE / 2);
        wait_told(server);
        (void)rig_write(rq->fd, content->data + from + SIZE / 2, SIZE - from - SIZE / 2);
        break;
    default: give(rq, content, from, SIZE - from);
    }
}

struct bench {
    struct rig rig;
    struct content *content;
    struct rig_server *server;
    char name[128];
};

static void bench_init(struct bench *bench, enum way way)
{
    bench->content = content_make();
    bench->server = rig_serve(blobs, bench->content);
    bench->server->value = (int)way;
    assert_true(str_format(bench->name, sizeof bench->name, "%s/a", bench->server->host) > 0);
    rig_init(&bench->rig);
}

static void bench_done(struct bench *bench)
{
    rig_done(&bench->rig);
    rig_stop(bench->server);
    free(bench->content);
}

static off_t file_size(const struct bench *bench, const char *end)
{
    char path[256];
    struct stat st;

    assert_true(str_format(path, sizeof path, "sha256/%s%s", bench->content->digest + 7, end) > 0);
    return fstatat(bench->rig.dir_fd, path, &st, 0) == 0 ? st.st_size : -1;
}

static void check_file(const struct bench *bench)
{
    char path[256];
    char *data = malloc(SIZE + 1);

    assert_non_null(data);
    assert_true(str_format(path, sizeof path, "sha256/%s", bench->content->digest + 7) > 0);
    AUTO_FD int fd = openat(bench->rig.dir_fd, path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fd_read_all(fd, data, SIZE + 1), SIZE);
    assert_memory_equal(data, bench->content->data, SIZE);
    assert_int_equal(file_size(bench, ".part"), -1);
    free(data);
}

static void put_part(const struct bench *bench, const void *data, size_t len)
{
    char path[256];

    (void)mkdirat(bench->rig.dir_fd, "sha256", 0700);
    assert_true(str_format(path, sizeof path, "sha256/%s.part", bench->content->digest + 7) > 0);
    AUTO_FD int fd = openat(bench->rig.dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, data, len), 0);
}

static void get(struct bench *bench, struct rig_result *result)
{
    rig_blob(&bench->rig, bench->name, bench->content->digest, SIZE, result);
}

static void ok(const struct rig_result *result)
{
    if (result->err.code)
        fail_msg("%s", result->err.message);
}

static void a_blob_arrives_once(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result result;

    bench_init(&bench, WAY_HONEST);
    rig_open(&bench.rig);
    get(&bench, &result);
    ok(&result);
    check_file(&bench);
    unsigned asked = bench.server->n_seen;
    get(&bench, &result); /* it is there */
    ok(&result);
    assert_int_equal(bench.server->n_seen, asked);
    rig_blob(&bench.rig, bench.name, bench.content->digest, SIZE - 1, &result);
    assert_non_null(strstr(result.err.message, "has 3145728 bytes, and not 3145727"));
    check_file(&bench);
    struct rig_result nothing; /* the empty blob needs no request */
    rig_blob(&bench.rig, bench.name, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0,
             &nothing);
    ok(&nothing);
    bench_done(&bench);
}

static void cuts_are_resumed(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result result;

    bench_init(&bench, WAY_CUT);
    bench.rig.options.attempts = 40;
    rig_open(&bench.rig);
    get(&bench, &result);
    ok(&result);
    check_file(&bench);
    assert_true(rig_count(bench.server, "Range: bytes=") >= 5);
    assert_int_equal(rig_count(bench.server, "Range: bytes=1048577-"), 1);
    bench_done(&bench);

    bench_init(&bench, WAY_CUT_SILENTLY);
    rig_open(&bench.rig);
    get(&bench, &result);
    ok(&result);
    check_file(&bench);
    assert_int_equal(rig_count(bench.server, "Range: bytes=1572864-"), 1);
    bench_done(&bench);
}

/* A part from before, right or wrong, and what the server makes of the question for the rest. */
static void old_parts(void **state)
{
    (void)state;
    static const struct {
        enum way way;
        bool right;
        size_t len;
    } rows[] = {
        {WAY_HONEST, true, 1000},      {WAY_HONEST, false, 1000},   {WAY_IGNORE_RANGE, true, 1000},
        {WAY_IGNORE_RANGE, false, 99}, {WAY_WRONG_RANGE, true, 50}, {WAY_NO_RANGE, true, 70},
        {WAY_HONEST, true, SIZE},      {WAY_HONEST, false, SIZE},   {WAY_HONEST, false, SIZE + 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bench bench;
        struct rig_result result;
        char *old = calloc(1, SIZE + 1);
        assert_non_null(old);
        bench_init(&bench, rows[i].way);
        if (rows[i].right)
            memcpy(old, bench.content->data, rows[i].len);
        put_part(&bench, old, rows[i].len);
        rig_open(&bench.rig);
        get(&bench, &result);
        ok(&result);
        check_file(&bench);
        if (rows[i].right && rows[i].len == SIZE)
            assert_int_equal(rig_count(bench.server, "/blobs/"), 0);
        if (rows[i].len < SIZE)
            assert_int_equal(rig_count(bench.server, "Range: bytes="), 1);
        bench_done(&bench);
        free(old);
    }
}

static void lies_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum way way;
        int code;
        const char *says;
    } rows[] = {
        {WAY_OTHER, BRIG_E_INVALID, "sent something else for blob "},
        {WAY_LONGER, BRIG_E_TOO_LARGE, "sends more than the 3145728 bytes of blob "},
        {WAY_LENGTH, BRIG_E_INVALID, " has 100 bytes, which has 3145728"},
        {WAY_ENDLESS, BRIG_E_TOO_LARGE, "sends more than the 3145728 bytes of blob "},
        {WAY_MISSING, BRIG_E_NOT_FOUND, "does not have blob "},
        {WAY_NOTHING, BRIG_E_HOST, "127.0.0.1:"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bench bench;
        struct rig_result result;
        bench_init(&bench, rows[i].way);
        rig_open(&bench.rig);
        get(&bench, &result);
        assert_int_equal(result.err.code, rows[i].code);
        if (!strstr(result.err.message, rows[i].says))
            fail_msg("row %zu: %s", i, result.err.message);
        assert_int_equal(file_size(&bench, ""), -1); /* nothing has the name of a whole blob */
        assert_int_equal(rig_count(bench.server, "/blobs/"), rows[i].way == WAY_NOTHING ? 3 : 1);
        bench_done(&bench);
    }
}

static void a_stall_ends(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result result;

    bench_init(&bench, WAY_STALL);
    bench.rig.options.stall_s = 1;
    bench.rig.options.attempts = 1;
    rig_open(&bench.rig);
    get(&bench, &result);
    assert_int_equal(result.err.code, BRIG_E_TIMEOUT);
    assert_int_equal(file_size(&bench, ".part"), 100);
    bench_done(&bench);
}

static void until_at(struct bench *bench, struct rig_result *result, uint64_t at)
{
    uint64_t until = clock_mono_ns() + 300 * NS_PER_SEC;
    struct brig_err err = {0};

    while (result->at < at) {
        assert_true(clock_mono_ns() < until);
        assert_int_equal(loop_run_once(bench->rig.loop, 1000, &err), 0);
    }
    assert_int_equal(result->of, SIZE);
}

static void two_calls_share_one_download(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result one, two;

    bench_init(&bench, WAY_WAIT);
    rig_open(&bench.rig);
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &one);
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &two);
    until_at(&bench, &one, SIZE / 2);
    until_at(&bench, &two, SIZE / 2);
    rig_tell(bench.server, WAY_HONEST);
    rig_until(&bench.rig, &one.done);
    rig_until(&bench.rig, &two.done);
    ok(&one);
    ok(&two);
    assert_int_equal(one.times + two.times, 2);
    assert_int_equal(rig_count(bench.server, "/blobs/"), 1);
    check_file(&bench);
    bench_done(&bench);
}

/* What one owner has, or is getting, another one has to bring itself. */
static void owners_share_no_bytes(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result one, two;
    char file[DIST_FILE];

    bench_init(&bench, WAY_HONEST);
    rig_open(&bench.rig);
    bench.rig.owner = "org-a";
    get(&bench, &one);
    ok(&one);
    rig_tell(bench.server, WAY_MISSING);
    get(&bench, &two); /* it is there */
    ok(&two);
    bench.rig.owner = "org-b";
    get(&bench, &two);
    assert_int_equal(two.err.code, BRIG_E_NOT_FOUND);
    assert_int_equal(dist_blob_file("org-a", bench.content->digest, file), 0);
    assert_int_equal(faccessat(bench.rig.dir_fd, file, F_OK, 0), 0);
    bench_done(&bench);

    bench_init(&bench, WAY_WAIT); /* nor may it join */
    rig_open(&bench.rig);
    bench.rig.owner = "org-a";
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &one);
    until_at(&bench, &one, SIZE / 2);
    bench.rig.owner = "org-b";
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &two);
    until_at(&bench, &two, SIZE / 2);
    assert_int_equal(rig_count(bench.server, "/blobs/"), 2);
    assert_int_equal(rig_count(bench.server, "Range:"), 0);
    rig_tell(bench.server, WAY_HONEST);
    rig_until(&bench.rig, &one.done);
    rig_until(&bench.rig, &two.done);
    ok(&one);
    ok(&two);
    bench_done(&bench);
}

/* A cancelled call leaves its part. Another one may join while the first still stops. */
static void a_cancelled_call_leaves_its_part(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result one, two;

    bench_init(&bench, WAY_WAIT);
    rig_open(&bench.rig);
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &one);
    until_at(&bench, &one, SIZE / 2);
    dist_cancel(one.call);
    rig_tell(bench.server, WAY_HONEST);
    get(&bench, &two);
    ok(&two);
    assert_false(one.done);
    assert_int_equal(rig_count(bench.server, "Range: bytes=1572864-"), 1);
    check_file(&bench);
    bench_done(&bench);

    bench_init(&bench, WAY_WAIT); /* and one that leaves before the other hears of nothing */
    rig_open(&bench.rig);
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &one);
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &two);
    until_at(&bench, &two, SIZE / 2);
    dist_cancel(one.call);
    rig_tell(bench.server, WAY_HONEST);
    rig_until(&bench.rig, &two.done);
    ok(&two);
    assert_false(one.done);
    assert_int_equal(rig_count(bench.server, "/blobs/"), 1);
    bench_done(&bench);
}

/* The end of the client in the middle of everything. */
static void destroyed_in_the_middle(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result results[8];

    bench_init(&bench, WAY_WAIT);
    rig_open(&bench.rig);
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        char digest[DIGEST_TEXT];
        str_assign(digest, bench.content->digest);
        digest[7] = (char)('0' + i); /* others, of which some wait for a thread */
        rig_blob_start(&bench.rig, bench.name, digest, SIZE, &results[i]);
    }
    until_at(&bench, &results[0], SIZE / 2);
    dist_destroy(bench.rig.dist);
    bench.rig.dist = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(results); i++)
        assert_false(results[i].done);
    bench_done(&bench);
}

/* A download from one place fails for whoever asked there; who may get it elsewhere gets it there. */
static void a_bad_place_fails_only_its_own(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result bad, good;
    char elsewhere[128];

    bench_init(&bench, WAY_WAIT);
    struct rig_server *other = rig_serve(blobs, bench.content);
    assert_true(str_format(elsewhere, sizeof elsewhere, "%s/b", other->host) > 0);
    rig_open(&bench.rig);
    rig_blob_start(&bench.rig, bench.name, bench.content->digest, SIZE, &bad);
    rig_blob_start(&bench.rig, elsewhere, bench.content->digest, SIZE, &good);
    until_at(&bench, &bad, SIZE / 2);
    rig_stop(bench.server); /* it is gone: no attempt will help */
    rig_until(&bench.rig, &bad.done);
    rig_until(&bench.rig, &good.done);
    assert_int_equal(bad.err.code, BRIG_E_HOST);
    ok(&good);
    check_file(&bench);
    assert_int_equal(rig_count(other, "Range: bytes=1572864-"), 1);
    bench.server = other;
    bench_done(&bench);
}

/* Room that others need is not taken, and what has come is kept. */
static void a_disk_is_never_filled(void **state)
{
    (void)state;
    struct bench bench;
    struct rig_result result;

    bench_init(&bench, WAY_HONEST);
    rig_open(&bench.rig);
    put_part(&bench, bench.content->data, SIZE / 2);
    atomic_store(&is_full, true);
    get(&bench, &result);
    atomic_store(&is_full, false);
    assert_int_equal(result.err.code, BRIG_E_HOST);
    assert_int_equal(result.err.errnum, ENOSPC);
    assert_int_equal(file_size(&bench, ".part"), SIZE / 2);
    get(&bench, &result);
    ok(&result);
    check_file(&bench);
    bench_done(&bench);
}

static void bad_questions(void **state)
{
    (void)state;
    struct bench bench;
    struct dist_ask ask = {.reach_private = true};
    struct dist_call *call = NULL;
    struct image_ref ref;
    struct brig_err err = {0};

    bench_init(&bench, WAY_HONEST);
    rig_open(&bench.rig);
    assert_int_equal(image_ref_parse(bench.name, &ref, &err), 0);
    ask.ref = &ref;
    assert_int_equal(dist_blob(bench.rig.dist, &ask, "sha256:../../x", 1, NULL, rig_on_done, NULL, &call, &err),
                     -EINVAL);
    assert_string_equal(err.message, "blob sha256:../../x of 1 bytes: a blob has a digest and at most 1099511627776 "
                                     "bytes");
    static const char *const words[] = {"a:b", "pw", NULL};
    ask.login = rig_login;
    ask.login_ctx = (void *)words;
    assert_int_equal(dist_blob(bench.rig.dist, &ask, bench.content->digest, 1, NULL, rig_on_done, NULL, &call, &err),
                     -EINVAL);
    assert_non_null(strstr(err.message, "a user has no colon"));
    bench_done(&bench);

    bench_init(&bench, WAY_HONEST);
    bench.rig.options.off = true;
    rig_open(&bench.rig);
    ask.login = NULL;
    assert_int_equal(dist_blob(bench.rig.dist, &ask, bench.content->digest, 1, NULL, rig_on_done, NULL, &call, &err),
                     -EOPNOTSUPP);
    assert_string_equal(err.message, "[templates] registries = false: no registry is asked");
    bench_done(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blob_arrives_once),
        cmocka_unit_test(cuts_are_resumed),
        cmocka_unit_test(old_parts),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(a_stall_ends),
        cmocka_unit_test(two_calls_share_one_download),
        cmocka_unit_test(owners_share_no_bytes),
        cmocka_unit_test(a_cancelled_call_leaves_its_part),
        cmocka_unit_test(destroyed_in_the_middle),
        cmocka_unit_test(a_bad_place_fails_only_its_own),
        cmocka_unit_test(a_disk_is_never_filled),
        cmocka_unit_test(bad_questions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
