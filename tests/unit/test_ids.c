/* SPDX-License-Identifier: Apache-2.0 */
/* Id slots: no two sandboxes share one, whoever claims them, and a dead claimer holds nothing. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/ids.h"
#include "jail/plan.h"

static int run_fd;

static int open_run(void **state UNUSED)
{
    char path[] = "/tmp/brig-ids-XXXXXX";

    run_fd = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    return run_fd < 0;
}

static int close_run(void **state UNUSED)
{
    char link[32], path[256];

    snprintf(link, sizeof link, "/proc/self/fd/%d", run_fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    unlinkat(run_fd, "ids", 0);
    close(run_fd);
    return rmdir(path);
}

static struct ids make(enum ids_kind kind, unsigned sub_ids)
{
    struct ids ids;
    int fd = kind == IDS_ONE ? -1 : openat(run_fd, "ids", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_int_equal(ids_init(&ids, kind, &fd, IDS_HOST, sub_ids, NULL), 0);
    assert_int_equal(fd, -1);
    return ids;
}

static void ranges_do_not_overlap(void **state UNUSED)
{
    struct ids ids = make(IDS_RANGE, 0);
    struct ids_claim claims[64];

    for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
        assert_int_equal(ids_claim(&ids, false, &claims[i], NULL), 0);
        assert_true(claims[i].root >= 0x70000000u && claims[i].root % INSIDE_RANGE == 0);
        assert_true(claims[i].root <= UINT32_MAX - INSIDE_RANGE); /* never wraps, never (uid_t)-1 */
        assert_int_equal(claims[i].user, claims[i].root + INSIDE_USER);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(claims[i].root, claims[k].root);
    }
    for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
        ids_release(&ids, &claims[i]);
        assert_int_equal(claims[i].slot, -1);
        ids_release(&ids, &claims[i]); /* again: nothing */
    }
    ids_done(&ids);
}

/* Two spawners at once, as two `brig run`s have it: locks of one file exclude each other. */
static void two_spawners(void **state UNUSED)
{
    struct ids a = make(IDS_RANGE, 0), b = make(IDS_RANGE, 0);
    struct ids_claim of_a[200], of_b[200];

    for (size_t i = 0; i < ARRAY_SIZE(of_a); i++) {
        a.next = b.next = 7; /* both want the same one first */
        assert_int_equal(ids_claim(&a, false, &of_a[i], NULL), 0);
        assert_int_equal(ids_claim(&b, false, &of_b[i], NULL), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(of_a); i++)
        for (size_t k = 0; k < ARRAY_SIZE(of_b); k++)
            assert_int_not_equal(of_a[i].slot, of_b[k].slot);
    ids_done(&a);
    b.next = (unsigned)of_a[0].slot;
    struct ids_claim freed;
    assert_int_equal(ids_claim(&b, false, &freed, NULL), 0);
    assert_int_equal(freed.slot, of_a[0].slot); /* closing gave all of it back */
    ids_done(&b);
}

static void a_dead_claimer_holds_nothing(void **state UNUSED)
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ids ids = make(IDS_RANGE, 0);
        struct ids_claim claim;
        ids.next = 99;
        if (ids_claim(&ids, false, &claim, NULL) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    struct ids ids = make(IDS_RANGE, 0);
    struct ids_claim claim;
    ids.next = 99;
    assert_int_equal(ids_claim(&ids, false, &claim, NULL), 0);
    assert_int_equal(claim.slot, 100);
    ids_release(&ids, &claim);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    ids.next = 99;
    assert_int_equal(ids_claim(&ids, false, &claim, NULL), 0);
    assert_int_equal(claim.slot, 99);
    ids_done(&ids);
}

/* A runner that dies leaves a mark: while a process has the ids, nobody gets them but who claims them again. */
static void what_outlives_its_runner_keeps_its_ids(void **state UNUSED)
{
    int ready[2];
    char byte;
    struct ids_claim claim, other;
    AUTO_FD int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (geteuid() != 0)
        skip();
    struct ids runner = make(IDS_RANGE, 0);
    runner.outlive = true;
    runner.next = 300;
    assert_int_equal(ids_claim(&runner, false, &claim, NULL), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) { /* a program of the sandbox */
        ids_done(&runner);
        if (setresuid(claim.user, claim.user, claim.user) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    ids_done(&runner); /* as it dies */

    struct ids spawner = make(IDS_RANGE, 0);
    spawner.proc_fd = proc;
    spawner.next = 300;
    assert_int_equal(ids_claim(&spawner, false, &other, NULL), 0);
    assert_int_equal(other.slot, 301);
    struct ids again = make(IDS_RANGE, 0);
    again.outlive = true;
    assert_int_equal(ids_claim_again(&again, claim.slot, &claim), 0);
    assert_int_equal(claim.slot, 300);
    ids_done(&again);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    spawner.next = 300;
    assert_int_equal(ids_claim(&spawner, false, &other, NULL), 0);
    assert_int_equal(other.slot, 300); /* nobody has them any more */
    ids_done(&spawner);
}

static void all_in_use(void **state UNUSED)
{
    struct ids ids = make(IDS_PAIR, 20);
    struct ids_claim claims[10], one_more = {.slot = -1};
    struct brig_err err;

    for (size_t i = 0; i < ARRAY_SIZE(claims); i++)
        assert_int_equal(ids_claim(&ids, false, &claims[i], NULL), 0);
    assert_int_equal(ids_claim(&ids, false, &one_more, &err), -EAGAIN);
    assert_int_equal(one_more.slot, -1);
    assert_non_null(strstr(err.message, "10"));
    ids_release(&ids, &claims[4]);
    assert_int_equal(ids_claim(&ids, false, &one_more, NULL), 0);
    ids_done(&ids);
}

static void pairs(void **state UNUSED)
{
    struct ids ids = make(IDS_PAIR, 65536);
    struct ids_claim claims[100];

    for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
        assert_int_equal(ids_claim(&ids, false, &claims[i], NULL), 0);
        /* 0 is the caller's own id: never a sandbox's. */
        assert_true(claims[i].root >= 1 && claims[i].user == claims[i].root + 1 && claims[i].user <= 65536);
        for (size_t k = 0; k < i; k++)
            assert_true(claims[i].root > claims[k].user || claims[i].user < claims[k].root);
    }
    ids_done(&ids);
}

static void pair_slots_follow_the_subordinate_ids(void **state UNUSED)
{
    static const unsigned counts[] = {2, 3, 100, 65536, 1u << 30};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        struct ids ids = make(IDS_PAIR, counts[i]);
        assert_int_equal(ids.slots, counts[i] / 2 < IDS_SLOTS ? counts[i] / 2 : IDS_SLOTS);
        assert_true(ids.next < ids.slots);
        ids_done(&ids);
    }
}

static void maps(void **state UNUSED)
{
    struct ids ids = {.kind = IDS_RANGE};
    struct ids_claim claim = {.slot = 3, .root = 0x70030000u, .user = 0x70030000u + INSIDE_USER};
    char text[96];

    assert_true(ids_map(&ids, &claim, text, sizeof text) > 0);
    assert_string_equal(text, "0 1879244800 65536");
    ids.kind = IDS_PAIR;
    claim = (struct ids_claim){.slot = 3, .root = 7, .user = 8};
    assert_true(ids_map(&ids, &claim, text, sizeof text) > 0);
    assert_string_equal(text, "0 7 1\n1000 8 1");
    ids.kind = IDS_ONE;
    assert_true(ids_map(&ids, &claim, text, sizeof text) > 0);
    assert_string_equal(text, "1000 0 1");
}

/* Root inside: a range of its own as root, the shared one of a plain user, and a reason where there are too few. */
static void whole_ranges(void **state UNUSED)
{
    struct ids ids = make(IDS_RANGE, 0);
    struct ids_claim claim;
    struct brig_err err = {0};
    char text[96];

    assert_int_equal(ids_claim(&ids, true, &claim, NULL), 0);
    assert_true(claim.slot >= 0 && claim.whole && !claim.shared);
    ids_release(&ids, &claim);
    ids_done(&ids);
    ids = make(IDS_PAIR, 65536);
    assert_int_equal(ids_claim(&ids, true, &claim, NULL), 0);
    assert_true(claim.slot == -1 && claim.whole && claim.shared && claim.user == claim.root + INSIDE_USER);
    assert_true(ids_map(&ids, &claim, text, sizeof text) > 0);
    assert_string_equal(text, "0 1 65536");
    ids_release(&ids, &claim);
    ids_done(&ids);
    ids = make(IDS_PAIR, 65535);
    assert_true(ids_claim(&ids, true, &claim, &err) < 0);
    assert_string_equal(err.message, "user root: needs 65536 subordinate ids, and there are 65535");
    ids_done(&ids);
    ids = make(IDS_ONE, 0);
    assert_true(ids_claim(&ids, true, &claim, &err) < 0);
    assert_int_equal(err.code, BRIG_E_UNSUPPORTED);
    ids_done(&ids);
}

static void one_id_needs_no_lock(void **state UNUSED)
{
    struct ids ids = make(IDS_ONE, 0);
    struct ids_claim claim;
    size_t fds = unit_count_fds();

    assert_int_equal(ids.lock_fd, -1);
    assert_int_equal(ids_claim(&ids, false, &claim, NULL), 0);
    assert_int_equal(claim.slot, -1);
    ids_release(&ids, &claim);
    ids_done(&ids);
    assert_int_equal(unit_count_fds(), fds);
}

/*
 * Whatever their run directories, and whatever the environment says: two services of one user, or of root, lock the
 * same file, so they cannot give out the same ids.
 */
static void one_lock_file_for_all_services(void **state UNUSED)
{
    struct ids ids[2];
    struct ids_claim claims[2];

    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/brig-ids-XXXXXX";
        enum ids_scope scope = IDS_RUN_DIR;
        assert_non_null(mkdtemp(path));
        setenv("BRIG_RUN_DIR", path, 1);
        setenv("XDG_RUNTIME_DIR", path, 1);
        AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int fd = ids_open(geteuid() == 0, dir, &scope, NULL);
        assert_true(fd >= 0);
        assert_int_not_equal(scope, IDS_RUN_DIR);
        assert_int_equal(ids_init(&ids[i], IDS_RANGE, &fd, scope, 0, NULL), 0);
        assert_int_equal(rmdir(path), 0); /* nothing was put there */
    }
    ids[0].next = ids[1].next = (unsigned)getpid() % IDS_SLOTS; /* both want the same one first */
    assert_int_equal(ids_claim(&ids[0], false, &claims[0], NULL), 0);
    assert_int_equal(ids_claim(&ids[1], false, &claims[1], NULL), 0);
    assert_int_not_equal(claims[0].root, claims[1].root);
    ids_done(&ids[0]);
    ids_done(&ids[1]);
}

/* Where the shared place cannot be had, the file of the run directory does, and the scope says that it is less. */
static void the_run_directory_is_no_proof(void **state UNUSED)
{
    struct brig_err err;
    const char *nowhere[] = {"/nonexistent", "/"}; /* the second is not for everybody */
    char path[] = "/tmp/brig-ids-XXXXXX", name[64];

    assert_int_equal(ids_open_user(nowhere, 2, geteuid()), -ENOENT);
    assert_non_null(mkdtemp(path));
    const char *sticky[] = {path};
    if (geteuid() == 0) { /* a file that was put there by somebody else is not believed */
        assert_int_equal(chmod(path, 01777), 0);
        snprintf(name, sizeof name, "%s/brig-ids-%u", path, 4711u);
        int fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        assert_true(fd >= 0 && fchown(fd, 1, 1) == 0);
        close(fd);
        int r = ids_open_user(sticky, 1, 4711);
        assert_true(r == -EPERM || r == -EACCES);
        unlink(name);
        assert_int_equal(symlink("/tmp/brig-ids-elsewhere", name), 0);
        assert_int_equal(ids_open_user(sticky, 1, 4711), -ELOOP);
        assert_int_equal(access("/tmp/brig-ids-elsewhere", F_OK), -1);
        unlink(name);
    }
    assert_int_equal(rmdir(path), 0);
    int none = -1;
    struct ids ids;
    assert_true(ids_init(&ids, IDS_RANGE, &none, IDS_HOST, 0, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_do_not_overlap),
        cmocka_unit_test(two_spawners),
        cmocka_unit_test(a_dead_claimer_holds_nothing),
        cmocka_unit_test(what_outlives_its_runner_keeps_its_ids),
        cmocka_unit_test(all_in_use),
        cmocka_unit_test(pairs),
        cmocka_unit_test(pair_slots_follow_the_subordinate_ids),
        cmocka_unit_test(maps),
        cmocka_unit_test(whole_ranges),
        cmocka_unit_test(one_id_needs_no_lock),
        cmocka_unit_test(one_lock_file_for_all_services),
        cmocka_unit_test(the_run_directory_is_no_proof),
    };

    return cmocka_run_group_tests(tests, open_run, close_run);
}
