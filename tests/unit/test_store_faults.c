/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store when things go wrong: crashes, a second brigd, other schemas, a full disk, a server that leaves, no memory.
 */
#include "store_kit.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* In children, where cmocka's assertions would return into the parent's tests. */
#define MUST(condition)                                                             \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

static void put_lazily(struct kit *kit, const char *id)
{
    struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");

    assert_int_equal(store_put_run(kit->store, &run, NULL, NULL, NULL), 0);
}

static void wait_healthy(struct kit *kit)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;
    struct store_health health;

    do {
        assert_true(clock_mono_ns() < give_up);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
        store_health(kit->store, &health);
    } while (!health.ok || health.queued > 0);
}

/* ---- crash and second daemon -------------------------------------------------------------------------- */

struct writer_child {
    struct kit kit;
    struct answer answer;
    int fd;
    uint32_t n, acknowledged;
};

static void child_put(struct writer_child *child);

static void child_done(void *ctx, const struct brig_err *err)
{
    struct writer_child *child = ctx;

    MUST(!err);
    child->acknowledged++;
    MUST(write(child->fd, &child->acknowledged, sizeof child->acknowledged) == sizeof child->acknowledged);
    child_put(child);
}

static void child_put(struct writer_child *child)
{
    char id[32];

    snprintf(id, sizeof id, "run-%06u", child->n++);
    struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");
    MUST(store_put_run(child->kit.store, &run, child_done, child, NULL) == 0);
}

/* Opens the store of `url` and writes without end, telling on the pipe what was committed. */
static pid_t start_child(const struct kit *kit, int *ret_fd)
{
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static struct writer_child child;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed assertion of ours leaves none behind */
        child = (struct writer_child){.fd = fds[1], .kit = {.pg = kit->pg}};
        MUST(loop_create(&child.kit.loop, NULL) == 0);
        MUST(workers_create(child.kit.loop, 1, &child.kit.workers, NULL) == 0);
        MUST(store_open(child.kit.loop, child.kit.workers, kit->url, &child.kit.store, NULL) == 0);
        for (int i = 0; i < 20; i++) /* some in flight at every moment */
            child_put(&child);
        for (;;)
            MUST(loop_run_once(child.kit.loop, -1, NULL) == 0);
    }
    close(fds[1]);
    *ret_fd = fds[0];
    return pid;
}

static void kill_child(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* kill -9 in the middle: what was acknowledged is there. */
static void test_crash_keeps_what_was_committed(void **state)
{
    struct kit *kit = *state;
    uint32_t acknowledged = 0, now;
    int fd;

    kit_close(kit);
    for (unsigned round = 1; round <= 3; round++) {
        pid_t pid = start_child(kit, &fd);
        for (unsigned i = 0; i < 97 * round; i++)
            assert_int_equal(read(fd, &now, sizeof now), sizeof now);
        kill_child(pid);
        while (read(fd, &now, sizeof now) == sizeof now) {
        }
        close(fd);
        acknowledged = now > acknowledged ? now : acknowledged;
        kit_open(kit);
        const struct page *page = FIND_RUNS(kit, .org_id = "org-1", .limit = 1000);
        assert_true(page->n >= (acknowledged < 1000 ? acknowledged : 1000));
        char id[32];
        for (uint32_t i = 0; i < acknowledged; i += 50) {
            snprintf(id, sizeof id, "run-%06u", i);
            assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .id = id)->n, 1);
        }
        kit_close(kit);
    }
}

static void test_second_brigd_is_refused(void **state)
{
    struct kit *kit = *state;
    struct brig_err err = {0};
    uint32_t n;
    int fd;

    kit_close(kit);
    pid_t pid = start_child(kit, &fd);
    assert_int_equal(read(fd, &n, sizeof n), sizeof n);
    assert_int_equal(store_open(kit->loop, kit->workers, kit->url, &kit->store, &err), -EPERM);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_non_null(strstr(err.message, "in use by another brigd"));
    char who[32];
    snprintf(who, sizeof who, kit->pg ? "brigd/%d@" : "process %d", (int)pid);
    if (!strstr(err.message, who))
        fail_msg("%s: no %s", err.message, who);
    kill_child(pid);
    close(fd);
    kit_open(kit); /* the first is gone */
}

/* ---- schemas ------------------------------------------------------------------------------------------ */

static int count_rows(void *ctx, const struct store_value *row, size_t n, struct brig_err *err)
{
    struct buf *out = ctx;

    (void)err;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_printf(out, "%s|", row[i].type == STORE_TEXT ? (const char *)row[i].data : "-"), 0);
    return buf_append_str(out, "\n");
}

static int sqlite_line(void *ctx, int n, char **columns, char **names)
{
    struct store_value row = {.type = STORE_TEXT, .data = columns[0] ? columns[0] : ""};

    (void)n, (void)names;
    return count_rows(ctx, &row, 1, NULL);
}

/* The tables and indexes as the data base describes them. */
static void describe(const struct kit *kit, struct buf *out)
{
    if (kit->pg) {
        char sql[1024];
        snprintf(sql, sizeof sql,
                 "SELECT replace(indexdef, 't%d.', '') AS d FROM pg_indexes WHERE schemaname = 't%d' UNION ALL"
                 " SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, collation_name) FROM "
                 "information_schema.columns"
                 " WHERE table_schema = 't%d' UNION ALL"
                 " SELECT conrelid::regclass::text || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE "
                 "connamespace = 't%d'::regnamespace"
                 " ORDER BY d",
                 (int)getpid(), (int)getpid(), (int)getpid(), (int)getpid());
        PGconn *pg = PQconnectdb(kit->url);
        PGresult *result = PQexec(pg, sql);
        assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
        for (int i = 0; i < PQntuples(result); i++)
            assert_int_equal(buf_printf(out, "%s\n", PQgetvalue(result, i, 0)), 0);
        PQclear(result);
        PQfinish(pg);
        return;
    }
    sqlite3 *db;
    assert_int_equal(sqlite3_open(kit->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT sql FROM sqlite_master ORDER BY name", sqlite_line, out, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
}

static void empty_database(struct kit *kit)
{
    bool pg = kit->pg;

    kit_done(kit);
    kit_init(kit, pg);
}

static void load_fixture(const struct kit *kit, unsigned version)
{
    AUTO_BUF struct buf sql = BUF_INIT(1u << 20);
    char path[128];

    snprintf(path, sizeof path, "tests/fixtures/store/%s-%u.sql", kit->pg ? "postgresql" : "sqlite", version);
    kit_read_file(path, &sql);
    kit_exec(kit, sql.data);
}

#define ORG "org-11111111-1111-4111-8111-111111111111"

static int see_key(void *ctx, const struct store_key *key)
{
    *(struct store_key *)ctx = *key;
    return 0;
}

static int see_object(void *ctx, const struct store_object *object)
{
    assert_string_equal(object->doc, "{\"default\":\"deny\"}");
    *(struct store_object *)ctx = *object;
    return 0;
}

/* Each released schema is read and ends up as a new one is made. */
static void test_released_schemas(void **state)
{
    struct kit *kit = *state;
    AUTO_BUF struct buf fresh = BUF_INIT(1u << 16), old = BUF_INIT(1u << 16);

    describe(kit, &fresh);
    assert_true(fresh.len > 500);
    for (unsigned version = 1; version <= STORE_SCHEMA; version++) {
        struct store_key key = {0};
        struct store_object object = {0};
        char hash[65];
        uint64_t seq;
        int64_t time;
        empty_database(kit);
        load_fixture(kit, version);
        kit_open(kit);
        old.len = 0;
        describe(kit, &old);
        assert_string_equal(old.data, fresh.data);
        assert_string_equal(FIND_RUNS(kit, .org_id = ORG, .cause = "")->ids,
                            "run-44444444-4444-4444-8444-444444444444");
        assert_int_equal(FIND_RUNS(kit, .org_id = ORG)->n, 2);
        assert_string_equal(FIND_CERTS(kit, .org_id = ORG)->doc, "{\"cause\":\"deleted\"}");
        assert_int_equal(store_each_key(kit->store, see_key, &key, NULL), 0);
        assert_string_equal(key.hint, "beef");
        assert_int_equal(key.role, STORE_ROLE_ADMIN);
        assert_int_equal(key.hash[31], 248);
        assert_int_equal(store_audit_head(kit->store, &seq, hash, &time, NULL), 0);
        assert_int_equal(seq, 42);
        assert_int_equal(store_each_object(kit->store, "policy", see_object, &object, NULL), 0);
        assert_string_equal(object.name, version >= 2 ? "web" : "");
        assert_int_equal(object.version, version >= 2 ? 3 : 0);
    }
}

static void assert_refused(struct kit *kit, const char *message)
{
    struct brig_err err = {0};

    assert_int_equal(store_open(kit->loop, kit->workers, kit->url, &kit->store, &err), -EPERM);
    assert_null(kit->store);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_string_equal(err.message, message);
}

static void test_newer_schema_is_refused(void **state)
{
    struct kit *kit = *state;

    kit_close(kit);
    kit_exec(kit, "UPDATE meta SET value = '4' WHERE key = 'schema'");
    assert_refused(kit, "the database has schema 4, this program knows up to 3");
    kit_exec(kit, "UPDATE meta SET value = 'two' WHERE key = 'schema'");
    assert_refused(kit, "the database has a table `meta` that is not brig's");
    kit_exec(kit, "DELETE FROM meta");
    assert_refused(kit, "the database has a table `meta` that is not brig's");
    kit_exec(kit, "INSERT INTO meta (key, value) VALUES ('schema', '3')");
    kit_open(kit);
}

/* All steps or none; and the version is the step's. */
static void test_migration(void **state)
{
    struct kit *kit = *state;
    AUTO_BUF struct buf before = BUF_INIT(1u << 16), after = BUF_INIT(1u << 16);
    struct brig_err err = {0};

    kit_put_run(kit, "run-1", "org-1", 1, 2, "{}");
    kit_close(kit);
    describe(kit, &before);
    store_test_migration =
        "ALTER TABLE runs ADD COLUMN extra TEXT; CREATE TABLE more (id TEXT); INSERT INTO none VALUES (1)";
    assert_true(store_open(kit->loop, kit->workers, kit->url, &kit->store, &err) < 0);
    store_test_migration = NULL;
    describe(kit, &after);
    assert_string_equal(before.data, after.data);
    kit_open(kit);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, 1);
    kit_close(kit);

    store_test_migration = "ALTER TABLE runs ADD COLUMN extra TEXT; UPDATE runs SET extra = 'x'";
    kit_open(kit);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, 1);
    kit_close(kit);
    after.len = 0;
    describe(kit, &after);
    assert_string_not_equal(before.data, after.data);
    kit_open(kit); /* once */
    kit_close(kit);
    store_test_migration = NULL;
    assert_refused(kit, "the database has schema 4, this program knows up to 3");
}

static void test_bad_urls(void **state)
{
    static const char *const urls[] = {"",         "mysql://u:hunter2@h/d", "sqlite", "sqlite:relative.db", "/tmp/x.db",
                                       "SQLITE:/x"};
    struct kit *kit = *state;
    struct store *store = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        struct brig_err err = {0};
        assert_int_equal(store_open(kit->loop, kit->workers, urls[i], &store, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_null(strstr(err.message, "hunter2"));
        assert_null(store);
    }
    struct brig_err err = {0};
    assert_int_equal(store_open(kit->loop, kit->workers, "sqlite:/nonexistent/dir/brig.db", &store, &err), -ENOENT);
    assert_true(store_open(kit->loop, kit->workers, "postgresql://u:hunter2@localhost:1/d?connect_timeout=2", &store,
                           &err) < 0);
    assert_int_equal(err.code, BRIG_E_BUSY);
    assert_null(strstr(err.message, "hunter2"));
}

/* ---- memory ------------------------------------------------------------------------------------------- */

static void test_out_of_memory(void **state)
{
    struct kit *kit = *state;
    struct store_run run = kit_run_row("run-1", "org-1", 1, 0, "{}");
    struct answer answer = {0};
    static struct page page;
    const struct store_query query = {.org_id = "org-1", .limit = 10};
    struct brig_err err;
    size_t n;
    int r;

    kit_close(kit);
    for (n = 0, r = -1; r < 0; n++) {
        mem_fail_after(n);
        r = store_open(kit->loop, kit->workers, kit->url, &kit->store, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_true(r == 0 || (failed && r == -ENOMEM));
    }
    assert_true(n > 3);
    mem_fail_after(0);
    assert_int_equal(store_put_run(kit->store, &run, on_done, &answer, &err), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(err.code, BRIG_E_NOMEM);
    assert_int_equal(store_put_run(kit->store, &run, on_done, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    for (n = 0, r = -1; r < 0; n++) { /* the thread's own */
        struct answer closed = {0};
        mem_fail_after(n + 1);
        assert_int_equal(store_close_open_runs(kit->store, "host-error", 1, on_done, &closed, NULL), 0);
        kit_wait(kit, &closed, 1);
        mem_fail_after(MEM_FAIL_NEVER);
        assert_true(!closed.failed || closed.err.code == BRIG_E_NOMEM);
        r = closed.failed ? -1 : 0;
    }
    assert_true(n > 2);
    for (n = 0, r = -1; r < 0; n++) {
        page.answer = (struct answer){0};
        mem_fail_after(n);
        r = store_find_runs(kit->store, &query, on_rows, &page, &err);
        if (r == 0)
            kit_wait(kit, &page.answer, 1);
        mem_fail_after(MEM_FAIL_NEVER);
        r = r < 0 || page.answer.failed ? -1 : 0;
    }
    assert_true(n > 2);
    assert_string_equal(page.ids, "run-1");
    wait_healthy(kit);
}

/* ---- SQLite: places ----------------------------------------------------------------------------------- */

static void test_file_is_private(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock"};
    struct kit *kit = *state;
    mode_t mask = umask(0);

    kit_done(kit);
    kit_init(kit, false);
    kit_open(kit);
    kit_put_run(kit, "run-1", "org-1", 1, 2, "{}");
    umask(mask);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        char path[128];
        struct stat st;
        snprintf(path, sizeof path, "%s%s", kit->path, ends[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void test_not_a_database(void **state)
{
    struct kit *kit = *state;
    struct brig_err err = {0};

    empty_database(kit);
    AUTO_FD int fd = open(kit->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 300; i++)
        assert_int_equal(write(fd, "this is not a database. ", 24), 24);
    assert_int_equal(store_open(kit->loop, kit->workers, kit->url, &kit->store, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "not a database"));
}

/* The files may not grow: an error that is no ENOSPC. */
static void test_io_error(void **state)
{
    struct kit *kit = *state;
    struct answer ok = {0}, failed = {0};
    struct rlimit old, none = {0};
    struct store_health health;
    static char doc[200000];

    memset(doc, ' ', sizeof doc - 1);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none.rlim_cur = 4096, none.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    struct store_run run = kit_run_row("run-1", "org-1", 1, 2, doc);
    assert_int_equal(store_put_run(kit->store, &run, on_done, &failed, NULL), 0);
    assert_int_equal(store_put_run(kit->store, &run, on_done, &failed, NULL), 0);
    put_lazily(kit, "run-kept");
    kit_wait(kit, &failed, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(failed.failed, 2);
    assert_int_equal(failed.err.code, BRIG_E_HOST);
    assert_int_equal(failed.err.errnum, EIO);
    store_health(kit->store, &health);
    assert_true(health.failures > 0);
    assert_true(strlen(health.last_error) > 10);
    wait_healthy(kit); /* by itself */
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-kept");
    assert_int_equal(store_put_run(kit->store, &run, on_done, &ok, NULL), 0);
    kit_wait_ok(kit, &ok, 1);

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0); /* once more, and now nobody has anything left to write */
    assert_int_equal(store_put_run(kit->store, &run, on_done, &failed, NULL), 0);
    kit_wait(kit, &failed, 3);
    assert_int_equal(failed.failed, 3);
    store_health(kit->store, &health);
    assert_false(health.ok);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    wait_healthy(kit);
}

static void child_pump(struct kit *kit, const struct answer *answer, unsigned n)
{
    while (answer->n < n)
        MUST(loop_run_once(kit->loop, 20000, NULL) == 0);
}

/* In a small tmpfs: fills it, sees ENOSPC, frees space, and goes on with the same store. */
static void full_disk(struct kit *kit)
{
    static char doc[32 * 1024];
    char ballast[128], id[32];
    struct answer full = {0}, ok = {0};
    struct store_health health;
    unsigned n = 0;

    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", kit->dir, "tmpfs", 0, "size=2m,mode=700") < 0)
        _exit(77);
    snprintf(ballast, sizeof ballast, "%s/ballast", kit->dir);
    int fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    MUST(fd >= 0 && fallocate(fd, 0, 0, 1 << 20) == 0);
    memset(doc, ' ', sizeof doc - 1);
    MUST(loop_create(&kit->loop, NULL) == 0 && workers_create(kit->loop, 1, &kit->workers, NULL) == 0);
    MUST(store_open(kit->loop, kit->workers, kit->url, &kit->store, NULL) == 0);
    do {
        snprintf(id, sizeof id, "run-%06u", n);
        struct store_run run = kit_run_row(id, "org-1", 1, 2, doc);
        MUST(store_put_run(kit->store, &run, on_done, &full, NULL) == 0);
        child_pump(kit, &full, ++n);
    } while (!full.failed && n < 1000);
    MUST(full.failed == 1 && full.err.errnum == ENOSPC && full.err.code == BRIG_E_HOST);
    struct store_run kept = kit_run_row("run-kept", "org-1", 9, 10, doc);
    MUST(store_put_run(kit->store, &kept, NULL, NULL, NULL) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL); /* clock: it tries again meanwhile */
    store_health(kit->store, &health);
    MUST(!health.ok && health.queued == 1 && strstr(health.last_error, "No space left"));
    MUST(unlink(ballast) == 0 && close(fd) == 0);
    for (int i = 0; i < 1000 && (!health.ok || health.queued); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL); /* clock: between two looks */
        store_health(kit->store, &health);
    }
    MUST(health.ok && health.queued == 0);
    struct store_run run = kit_run_row("run-after", "org-1", 11, 12, "{}");
    MUST(store_put_run(kit->store, &run, on_done, &ok, NULL) == 0);
    child_pump(kit, &ok, 1);
    MUST(!ok.failed);
    static struct page page;
    const struct store_query query = {.org_id = "org-1", .limit = 1000};
    MUST(store_find_runs(kit->store, &query, on_rows, &page, NULL) == 0);
    child_pump(kit, &page.answer, 1);
    MUST(page.n == n - 1 + 2 && str_starts(page.ids, "run-after run-kept run-"));
    store_close(kit->store);
    _exit(0);
}

/* A mount namespace: root's, or that of a user who is root in a user namespace. */
static bool own_mounts(void)
{
    char uids[32], gids[32];

    snprintf(uids, sizeof uids, "0 %u 1", (unsigned)getuid());
    snprintf(gids, sizeof gids, "0 %u 1", (unsigned)getgid());
    if (unshare(CLONE_NEWNS) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return false;
    return fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny") == 0 &&
           fd_write_file(AT_FDCWD, "/proc/self/uid_map", uids) == 0 &&
           fd_write_file(AT_FDCWD, "/proc/self/gid_map", gids) == 0;
}

static void test_full_disk(void **state)
{
    struct kit *kit = *state;
    int status;

    kit_close(kit);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!own_mounts())
            _exit(77);
        full_disk(kit);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("no tmpfs can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* While another program holds the file the queue fills, and is bounded; then all of it is written. */
static void test_queue_is_bounded(void **state)
{
    struct kit *kit = *state;
    struct brig_err err = {0};
    unsigned n = 0;
    sqlite3 *db;
    int r;

    assert_int_equal(sqlite3_open(kit->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    do {
        char id[32];
        snprintf(id, sizeof id, "run-%06u", n);
        struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");
        r = store_put_run(kit->store, &run, NULL, NULL, &err);
        n += r == 0;
    } while (r == 0 && n < 2 * STORE_QUEUE_MAX);
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    assert_true(n >= STORE_QUEUE_MAX && n <= STORE_QUEUE_MAX + STORE_GROUP_MAX);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    wait_healthy(kit);
    kit_close(kit);
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM runs", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(stmt, 0), n);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

/* ---- PostgreSQL: the server leaves -------------------------------------------------------------------- */

#define OURS "FROM pg_stat_activity WHERE application_name LIKE 'brigd/%'"

static void pg_sessions_end(void **state)
{
    struct kit *kit = *state;
    struct store_health health;

    kit_put_run(kit, "run-1", "org-1", 1, 2, "{}");
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, 1);
    for (int i = 0; i < 3; i++) {
        kit_pg_exec("SELECT pg_terminate_backend(pid) " OURS);
        kit_put_run(kit, "run-2", "org-1", 2, 3, "{}"); /* nobody notices */
        assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, 2);
    }
    store_health(kit->store, &health);
    assert_true(health.ok);
}

/* SQL in another data base of the same server, since one that refuses connections refuses ours too. */
static void exec_elsewhere(const char *sql)
{
    const char *const names[] = {"dbname", "dbname", NULL};
    const char *const values[] = {getenv("BRIG_TEST_PG_URL"), "postgres", NULL};
    PGconn *pg = PQconnectdbParams(names, values, 1);
    PGresult *result = PQexec(pg, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(pg));
    PQclear(result);
    PQfinish(pg);
}

static void pg_server_is_away(void **state)
{
    struct kit *kit = *state;
    PGconn *pg = PQconnectdb(kit->url);
    char name[64], sql[128];
    struct answer failed = {0};
    static struct page page;
    const struct store_query query = {.org_id = "org-1", .limit = 10};
    struct store_run run = kit_run_row("run-1", "org-1", 1, 2, "{}");
    struct store_health health;

    snprintf(name, sizeof name, "%s", PQdb(pg));
    PQfinish(pg);
    snprintf(sql, sizeof sql, "ALTER DATABASE \"%s\" ALLOW_CONNECTIONS false", name);
    exec_elsewhere(sql);
    exec_elsewhere("SELECT pg_terminate_backend(pid) " OURS);
    assert_int_equal(store_put_run(kit->store, &run, on_done, &failed, NULL), 0);
    kit_wait(kit, &failed, 1);
    put_lazily(kit, "run-kept");
    page.answer = (struct answer){0};
    assert_int_equal(store_find_runs(kit->store, &query, on_rows, &page, NULL), 0);
    kit_wait(kit, &page.answer, 1);
    uint64_t start = clock_mono_ns();
    /* told at once: nothing is tried before the pause is over */
    assert_int_equal(store_put_run(kit->store, &run, on_done, &failed, NULL), 0);
    kit_wait(kit, &failed, 2);
    uint64_t took = clock_mono_ns() - start;
    store_health(kit->store, &health);
    snprintf(sql, sizeof sql, "ALTER DATABASE \"%s\" ALLOW_CONNECTIONS true", name);
    exec_elsewhere(sql);

    assert_int_equal(failed.failed, 2);
    assert_int_equal(failed.err.code, BRIG_E_BUSY);
    assert_int_equal(page.answer.failed, 1);
    assert_int_equal(page.answer.err.code, BRIG_E_BUSY);
    assert_true(took < 5 * NS_PER_SEC);
    assert_false(health.ok);
    wait_healthy(kit);
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-kept");
    kit_put_run(kit, "run-1", "org-1", 1, 2, "{}");
}

/* Takes the writer's lock the moment its session ends, under the given name. */
static PGconn *usurp(const struct kit *kit, const char *application_name)
{
    const char *const names[] = {"dbname", "application_name", NULL};
    const char *const values[] = {kit->url, application_name, NULL};
    PGconn *pg = PQconnectdbParams(names, values, 1);

    assert_int_equal(PQstatus(pg), CONNECTION_OK);
    assert_true(PQsendQuery(pg, "SELECT pg_advisory_lock(1651665255, hashtext(current_schema()))"));
    kit_pg_exec("SELECT pg_sleep(0.2)"); /* clock: for the question to wait in the server's queue */
    kit_pg_exec("SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
                " WHERE locktype = 'advisory' AND granted AND application_name LIKE 'brigd/%'");
    PQclear(PQgetResult(pg));
    PQclear(PQgetResult(pg));
    return pg;
}

static void pg_lock_of_our_dead_session(void **state)
{
    struct kit *kit = *state;
    PGconn *pg = PQconnectdb(kit->url);
    PGresult *result = PQexec(pg, "SELECT application_name " OURS " LIMIT 1");
    char name[64];

    snprintf(name, sizeof name, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    PQfinish(pg);
    pg = usurp(kit, name);
    kit_put_run(kit, "run-1", "org-1", 1, 2, "{}"); /* it was ours: ended */
    result = PQexec(pg, "SELECT 1");
    assert_int_equal(PQresultStatus(result), PGRES_FATAL_ERROR);
    PQclear(result);
    PQfinish(pg);
}

static void pg_lock_of_another(void **state)
{
    struct kit *kit = *state;
    PGconn *pg = usurp(kit, "brigd/1@elsewhere/x");
    struct store_run run = kit_run_row("run-1", "org-1", 1, 2, "{}");
    struct answer failed = {0};

    assert_int_equal(store_put_run(kit->store, &run, on_done, &failed, NULL), 0);
    kit_wait(kit, &failed, 1);
    assert_int_equal(failed.failed, 1);
    assert_int_equal(failed.err.code, BRIG_E_REFUSED);
    assert_non_null(strstr(failed.err.message, "brigd/1@elsewhere/x"));
    PQfinish(pg);
    wait_healthy(kit);
    kit_put_run(kit, "run-1", "org-1", 1, 2, "{}");
}

/* ---- too much ------------------------------------------------------------------------------------------ */

/* The organisation that has the most loses its oldest: a flood of one takes nothing from another. */
static void test_prune_by_size_is_fair(void **state)
{
    struct kit *kit = *state;
    struct store_certificate cert = {
        .sandbox_id = "box1", .org_id = "org-2", .ended_at_ns = 1 * SEC, .doc = "{\"0123\":1}"};
    struct answer answer = {0};

    kit_put_run(kit, "run-old", "org-2", 1, 2, "{\"0123\":1}");
    assert_int_equal(store_end_sandbox(kit->store, &cert, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
    kit_put_many(kit, 600, "{\"0123\":1}");
    kit_prune(kit, 0, 100, 0);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 1000)->n, 8);
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-2")->ids, "run-old");
    assert_string_equal(FIND_CERTS(kit, .org_id = "org-2")->ids, "box1");
    kit_prune(kit, 0, 15, 0); /* a tie goes by id, and both have their turn */
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n + FIND_RUNS(kit, .org_id = "org-2")->n +
                         FIND_CERTS(kit, .org_id = "org-2")->n,
                     1);
}

/* Between two prunings there is never much more than may be kept. */
static void test_prune_when_over(void **state)
{
    struct kit *kit = *state;

    kit_prune(kit, 0, 1000, 0);
    kit_put_many(kit, 90, "{\"0123\":1}");
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 1000)->n, 90);
    kit_put_many(kit, 600, "{\"0123\":1}");
    struct store_health health;
    do { /* what the writer asked for itself is done when nothing is queued */
        struct answer answer = {0};
        assert_int_equal(store_put_audit_head(kit->store, 1, "x", 1, on_done, &answer, NULL), 0);
        kit_wait_ok(kit, &answer, 1);
        store_health(kit->store, &health);
    } while (health.queued > 0);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 1000)->n, 100);
}

int main(void)
{
    const struct CMUnitTest both[] = {
        KIT_CASE(test_crash_keeps_what_was_committed),
        KIT_CASE(test_second_brigd_is_refused),
        KIT_CASE(test_released_schemas),
        KIT_CASE(test_newer_schema_is_refused),
        KIT_CASE(test_migration),
        KIT_CASE(test_bad_urls),
        KIT_CASE(test_out_of_memory),
        KIT_CASE(test_prune_by_size_is_fair),
        KIT_CASE(test_prune_when_over),
    };
    const struct CMUnitTest sqlite[] = {
        KIT_CASE(test_file_is_private), KIT_CASE(test_not_a_database),   KIT_CASE(test_io_error),
        KIT_CASE(test_full_disk),       KIT_CASE(test_queue_is_bounded),
    };
    struct CMUnitTest pg[] = {
        KIT_CASE(pg_sessions_end),
        KIT_CASE(pg_server_is_away),
        KIT_CASE(pg_lock_of_our_dead_session),
        KIT_CASE(pg_lock_of_another),
    };
    int failed = kit_run("store_faults", both, ARRAY_SIZE(both), true) +
                 kit_run("store_sqlite", sqlite, ARRAY_SIZE(sqlite), false);

    for (size_t i = 0; i < ARRAY_SIZE(pg); i++)
        pg[i].initial_state = (void *)(uintptr_t) "pg";
    if (getenv("BRIG_TEST_PG_URL"))
        failed += cmocka_run_group_tests(pg, NULL, NULL);
    return failed;
}
