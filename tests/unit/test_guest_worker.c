/* SPDX-License-Identifier: Apache-2.0 */
/* File calls through brig-init: they reach the worker and come back, and pid 1 outlives whatever happens to it. */
#include "guest_rig.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/wire/le.h"

static char dir[] = "/tmp/test_guest_worker.XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_dir(void **state)
{
    (void)state;
    return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static size_t put_path(uint8_t *wire, size_t size, const char *name, const void *rest, size_t rest_len)
{
    struct svc_cursor out = {wire, wire + size, false};

    svc_put_path(&out, &(struct svc_path){0, {dir, (uint32_t)strlen(dir)}, {name, (uint32_t)strlen(name)}});
    svc_put_raw(&out, rest, rest_len);
    int len = svc_put_done(&out, wire);
    assert_true(len > 0);
    return (size_t)len;
}

static void begin_write(struct rig *rig, struct answer *answer, const char *name)
{
    uint8_t wire[SVC_PATH_MAX], rest[16] = {0};

    le_put_u32(rest, SVC_WRITE_ATOMIC);
    rig_call(rig, answer, SVC_FILE_WRITE, wire, put_path(wire, sizeof(wire), name, rest, sizeof(rest)));
}

static void begin_read(struct rig *rig, struct answer *answer, const char *name)
{
    uint8_t wire[SVC_PATH_MAX], rest[16] = {0};

    rig_call(rig, answer, SVC_FILE_READ, wire, put_path(wire, sizeof(wire), name, rest, sizeof(rest)));
}

static uint32_t stat_of(struct rig *rig, const char *name)
{
    uint8_t wire[SVC_PATH_MAX];
    struct answer answer = {0};

    rig_ask(rig, &answer, SVC_FILE_STAT, wire, put_path(wire, sizeof(wire), name, NULL, 0));
    uint32_t errnum = answer.errnum;
    rig_forget(&answer);
    return errnum;
}

static char *make_data(size_t size)
{
    char *data = malloc(size);

    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 131 + i / 65521);
    return data;
}

/* Children of pid 1 that are the worker. */
static pid_t worker_of(struct rig *rig)
{
    char path[64], text[4096], name[32];
    pid_t found = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)rig->g.pid, (int)rig->g.pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    if (fgets(text, sizeof(text), file))
        for (char *at = text, *end; strtol(at, &end, 10) > 0 && end != at; at = end) {
            pid_t pid = (pid_t)strtol(at, NULL, 10);

            snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
            FILE *comm = fopen(path, "re");
            if (comm && fgets(name, sizeof(name), comm) && strcmp(name, "brig-files\n") == 0)
                found = pid;
            if (comm)
                fclose(comm);
        }
    fclose(file);
    return found;
}

static void large_files_both_ways(void **state)
{
    struct rig rig;
    struct answer write = {0}, read = {0}, busy = {0}, go = {0};
    size_t size = 20u << 20;
    char *data = make_data(size);
    (void)state;

    rig_open(&rig, 0);
    assert_int_equal(worker_of(&rig), 0); /* not before it is needed */
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("sh", "-c", "read x; seq 1 3000000"));
    rig_attach_proc(&rig, &busy, 1, 2, 0);
    rig_number(&rig, &go, SVC_PROC_INPUT, 1); /* not before it has its reader: without one the oldest bytes go */
    answer_write(&go, "go\n", 3);
    begin_write(&rig, &write, "large");
    answer_write(&write, data, size);
    assert_int_equal(call_eof(write.call), 0);
    rig_until(&rig, &write.done);
    assert_int_equal(write.errnum, 0);
    /* Beside a process's output, which has its own way. */
    begin_read(&rig, &read, "large");
    rig_until(&rig, &read.done);
    rig_until(&rig, &busy.done);
    assert_int_equal(read.errnum, 0);
    assert_int_equal(read.n_events, 1);
    assert_int_equal(read.out[1].len, size);
    assert_memory_equal(read.out[1].data, data, size);
    assert_int_equal(busy.out[1].len, 22888896);
    rig_forget(&write);
    rig_forget(&read);
    rig_forget(&busy);
    rig_forget(&go);
    free(data);
    rig_close(&rig);
}

static void many_calls_at_once(void **state)
{
    enum { N = 40 };
    static struct answer writes[N], reads[N];
    struct rig rig;
    size_t size = 100000;
    char *data = make_data(size), name[32];
    (void)state;

    rig_open(&rig, 0);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "file%u", i);
        begin_write(&rig, &writes[i], name);
        assert_int_equal(call_write(writes[i].call, data, size - i), size - i);
        assert_int_equal(call_eof(writes[i].call), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        rig_until(&rig, &writes[i].done);
        assert_int_equal(writes[i].errnum, 0);
    }
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "file%u", i);
        begin_read(&rig, &reads[i], name);
    }
    for (unsigned i = 0; i < N; i++) {
        rig_until(&rig, &reads[i].done);
        assert_int_equal(reads[i].errnum, 0);
        assert_int_equal(reads[i].out[1].len, size - i);
        assert_memory_equal(reads[i].out[1].data, data, size - i);
        rig_forget(&reads[i]);
        rig_forget(&writes[i]);
    }
    assert_int_equal(stat_of(&rig, "no-such-file"), ENOENT);
    assert_int_equal(stat_of(&rig, "../x"), EINVAL);
    free(data);
    rig_close(&rig);
}

static void a_killed_worker_fails_its_calls_only(void **state)
{
    struct rig rig;
    struct answer write = {0}, read = {.hold = true};
    char *data = make_data(4u << 20);
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("sleep", "1000"));
    begin_write(&rig, &write, "half");
    answer_write(&write, data, 500000);
    begin_read(&rig, &read, "large");
    rig_wait_for(&rig, read.out[1].len == SVC_WINDOW);
    pid_t worker = worker_of(&rig);
    assert_true(worker > 0);
    assert_int_equal(kill(worker, SIGKILL), 0);
    rig_until(&rig, &write.done);
    rig_until(&rig, &read.done);
    assert_int_equal(write.errnum, EIO);
    assert_int_equal(read.errnum, EIO);
    assert_int_equal(rig.gones, 0);
    rig_forget(&write);
    rig_forget(&read);
    assert_int_equal(stat_of(&rig, "half"), ENOENT); /* a new one */
    assert_true(worker_of(&rig) > 0 && worker_of(&rig) != worker);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_wait_exit(&rig, 1);
    free(data);
    rig_close(&rig);
}

static void a_lost_connection_undoes_what_was_half_done(void **state)
{
    struct rig rig;
    struct answer write = {0};
    char *data = make_data(500000);
    (void)state;

    rig_open(&rig, 0);
    begin_write(&rig, &write, "half");
    answer_write(&write, data, 500000);
    rig_run(&rig, 50);
    pid_t worker = worker_of(&rig);
    write.call = NULL;
    rig_forget(&write);
    rig_attach(&rig);
    assert_int_equal(stat_of(&rig, "half"), ENOENT);
    rig_wait_for(&rig, !pid_alive(worker));
    /* With nothing open the worker stays. */
    worker = worker_of(&rig);
    rig_attach(&rig);
    assert_int_equal(stat_of(&rig, "large"), 0);
    assert_int_equal(worker_of(&rig), worker);
    free(data);
    rig_close(&rig);
}

static void a_stopped_worker_is_replaced(void **state)
{
    struct rig rig;
    struct answer write = {0}, list = {0};
    char *data = make_data(SVC_WINDOW);
    (void)state;

    rig_open(&rig, 0);
    assert_int_equal(stat_of(&rig, "large"), 0);
    pid_t worker = worker_of(&rig);
    assert_int_equal(kill(worker, SIGSTOP), 0);
    begin_write(&rig, &write, "never");
    assert_int_equal(call_write(write.call, data, SVC_WINDOW), SVC_WINDOW);
    rig_until(&rig, &write.done); /* ten seconds */
    assert_int_equal(write.errnum, EIO);
    rig_forget(&write);
    rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
    rig_forget(&list);
    assert_int_equal(stat_of(&rig, "large"), 0);
    free(data);
    rig_close(&rig);
}

static void an_idle_worker_goes(void **state)
{
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    assert_int_equal(stat_of(&rig, "large"), 0);
    assert_true(worker_of(&rig) > 0);
    rig_run(&rig, 6500);
    assert_int_equal(worker_of(&rig), 0);
    assert_int_equal(stat_of(&rig, "large"), 0);
    rig_close(&rig);
}

static void cancelled_calls_end(void **state)
{
    struct rig rig;
    struct answer read = {.hold = true}, write = {0};
    (void)state;

    rig_open(&rig, 0);
    begin_read(&rig, &read, "large");
    rig_wait_for(&rig, read.out[1].len > 0);
    begin_write(&rig, &write, "cancelled");
    answer_write(&write, "abc", 3);
    rig_forget(&read);
    rig_forget(&write);
    rig_run(&rig, 100);
    assert_int_equal(rig.gones, 0);
    assert_int_equal(stat_of(&rig, "cancelled"), ENOENT);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_files_both_ways),
        cmocka_unit_test(many_calls_at_once),
        cmocka_unit_test(a_killed_worker_fails_its_calls_only),
        cmocka_unit_test(a_lost_connection_undoes_what_was_half_done),
        cmocka_unit_test(a_stopped_worker_is_replaced),
        cmocka_unit_test(an_idle_worker_goes),
        cmocka_unit_test(cancelled_calls_end),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
