/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The self-check bites: in this process, which nothing protects, every layer reads back as off; each layer that can
 * be put on in a child without a sandbox then reads back as on, and as off again when it is there by name only.
 */
#include "unit.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/selfcheck.h"
#include "jail/selfcheck_parts.h"

#define UNTOUCHED 0x5au

static const enum brig_layer ours[] = {
    BRIG_LAYER_USER_NS,  BRIG_LAYER_MOUNT_NS,      BRIG_LAYER_PID_NS, BRIG_LAYER_NET_NS,       BRIG_LAYER_IPC_NS,
    BRIG_LAYER_UTS_NS,   BRIG_LAYER_CGROUP_NS,     BRIG_LAYER_CAPS,   BRIG_LAYER_NO_NEW_PRIVS, BRIG_LAYER_SECCOMP,
    BRIG_LAYER_LANDLOCK, BRIG_LAYER_ROOT_READONLY, BRIG_LAYER_PROC,   BRIG_LAYER_FDS,          BRIG_LAYER_DISK,
    BRIG_LAYER_INODES,   BRIG_LAYER_TIME_NS,
};
static const enum brig_layer spawners[] = {
    BRIG_LAYER_UID_RANGE, BRIG_LAYER_MEMORY, BRIG_LAYER_CPU, BRIG_LAYER_PIDS, BRIG_LAYER_IO, BRIG_LAYER_OWN_KERNEL,
};
_Static_assert(ARRAY_SIZE(ours) + ARRAY_SIZE(spawners) == BRIG_LAYER_MAX, "every layer is read by someone");

static uint32_t ns_inode(const char *name)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    return stat(path, &st) == 0 ? (uint32_t)st.st_ino : 0;
}

static struct guest_start host_start(void)
{
    struct guest_start start = {.uid = getuid(), .gid = getgid(), .disk = 4096, .inodes = 1, .landlock_abi = 1};
    static const char *const names[NS_MAX] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};

    for (int i = 0; i < NS_MAX; i++)
        start.ns_host[i] = ns_inode(names[i]);
    return start;
}

static int probe_fd = -1;

static void run(const struct guest_start *start, struct reading *readings, int max_fd)
{
    const struct selfcheck_plan plan = {.start = start, .landlock_probe_fd = probe_fd, .max_fd = max_fd};

    memset(readings, UNTOUCHED, BRIG_LAYER_MAX * sizeof readings[0]);
    jail_selfcheck(&plan, readings);
}

/* Runs `prepare` and then the check in a child; what it read is left in shared memory. False: could not prepare. */
static bool run_in_child(bool (*prepare)(void), const struct guest_start *start, int max_fd, struct reading *ret)
{
    size_t size = BRIG_LAYER_MAX * sizeof *ret;
    struct reading *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;

    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!prepare())
            _exit(77);
        run(start, shared, max_fd);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    memcpy(ret, shared, size);
    munmap(shared, size);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
    return WEXITSTATUS(status) == 0;
}

static void all_is_off_without_a_sandbox(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    int leaked = open("/dev/null", O_RDONLY); /* on purpose without O_CLOEXEC */
    assert_true(leaked > 2);
    run(&start, readings, 2);
    close(leaked);
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        assert_int_equal(readings[ours[i]].on, 0);
        assert_int_equal(readings[ours[i]].by, BY_NONE);
        assert_int_not_equal(readings[ours[i]].why, WHY_NONE);
        assert_true(readings[ours[i]].why < WHY_MAX);
    }
    assert_int_equal(readings[BRIG_LAYER_TIME_NS].why, WHY_NOT_ASKED);
    for (size_t i = 0; i < ARRAY_SIZE(spawners); i++)
        assert_int_equal(readings[spawners[i]].on, UNTOUCHED);
}

/* Without the host's inode there is nothing to differ from: unknown is off. */
static void unknown_host_namespaces_read_as_off(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    memset(start.ns_host, 0, sizeof start.ns_host);
    run(&start, readings, 2);
    for (int i = BRIG_LAYER_USER_NS; i <= BRIG_LAYER_CGROUP_NS; i++) {
        assert_int_equal(readings[i].on, 0);
        assert_int_equal(readings[i].why, WHY_READ_BACK);
    }
    assert_int_equal(readings[BRIG_LAYER_TIME_NS].on, 0);
}

static void says_why_it_is_off(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    start.skip = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP) | BRIG_LAYER_BIT(BRIG_LAYER_DISK);
    start.writable_root = 1;
    start.landlock_abi = 0;
    run(&start, readings, 2);
    assert_int_equal(readings[BRIG_LAYER_SECCOMP].why, WHY_SWITCHED_OFF);
    assert_int_equal(readings[BRIG_LAYER_DISK].why, WHY_SWITCHED_OFF);
    assert_int_equal(readings[BRIG_LAYER_INODES].why, WHY_READ_BACK);
    assert_int_equal(readings[BRIG_LAYER_ROOT_READONLY].why, WHY_WRITABLE_ROOT);
    assert_int_equal(readings[BRIG_LAYER_LANDLOCK].why, WHY_KERNEL);
}

/* ---- layers one at a time ------------------------------------------------------------------------ */

static bool set_no_new_privs(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

static bool filter(const struct sock_filter *insns, size_t n)
{
    struct sock_fprog prog = {(unsigned short)n, (struct sock_filter *)(uintptr_t)insns};

    return set_no_new_privs() && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0;
}

static bool allow_all(void)
{
    static const struct sock_filter insns[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

    return filter(insns, ARRAY_SIZE(insns));
}

/* As the profile of an engine does, which has no rules about arguments; and with one such rule. */
static bool refuse_two(void)
{
    static const struct sock_filter insns[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_keyctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };

    return filter(insns, ARRAY_SIZE(insns));
}

static bool refuse_three(void)
{
    static const struct sock_filter insns[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };

    return refuse_two() && filter(insns, ARRAY_SIZE(insns));
}

static void a_filter_must_also_refuse(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    assert_true(run_in_child(set_no_new_privs, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_NO_NEW_PRIVS].on, 1);
    assert_int_equal(readings[BRIG_LAYER_SECCOMP].on, 0);
    assert_true(run_in_child(allow_all, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_SECCOMP].on, 0);
    assert_true(run_in_child(refuse_two, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_SECCOMP].on, 0);
    start.skip = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP);
    assert_true(run_in_child(refuse_three, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_SECCOMP].on, 1); /* what is on is said to be, even if it was to be skipped */
    assert_int_equal(readings[BRIG_LAYER_SECCOMP].why, WHY_NONE);
}

static bool landlock_read_dir(void)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_DIR};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);

    return ruleset >= 0 && set_no_new_privs() && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
}

/* A directory its owner's mode alone keeps closed proves nothing about Landlock. */
static bool close_probe_by_mode(void)
{
    char dir[] = "/tmp/brig-test-probe-XXXXXX";

    if (!mkdtemp(dir) || chmod(dir, 0000) < 0)
        return false;
    probe_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    rmdir(dir);
    return probe_fd >= 0;
}

static void landlock_is_tried(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    start.landlock_abi = 5;
    assert_true(run_in_child(close_probe_by_mode, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_LANDLOCK].on, 0);
    if (!run_in_child(landlock_read_dir, &start, 2, readings)) {
        print_message("[ SKIPPED  ] this kernel has no Landlock\n");
        skip();
    }
    assert_int_equal(readings[BRIG_LAYER_LANDLOCK].on, 1);
    assert_int_equal(readings[BRIG_LAYER_LANDLOCK].value, 5);
}

static bool new_uts_and_ipc(void)
{
    return unshare(CLONE_NEWUTS | CLONE_NEWIPC) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWIPC) == 0;
}

static void namespaces_are_compared(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    if (!run_in_child(new_uts_and_ipc, &start, 2, readings)) {
        print_message("[ SKIPPED  ] no namespaces may be made here\n");
        skip();
    }
    assert_int_equal(readings[BRIG_LAYER_UTS_NS].on, 1);
    assert_int_equal(readings[BRIG_LAYER_IPC_NS].on, 1);
    assert_int_equal(readings[BRIG_LAYER_MOUNT_NS].on, 0);
    assert_int_equal(readings[BRIG_LAYER_NET_NS].on, 0);
}

/* ---- descriptors --------------------------------------------------------------------------------- */

static bool close_all(void)
{
    return close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0;
}

static bool leak_one(void)
{
    return close_all() && open("/dev/null", O_RDONLY) > 2;
}

static bool leak_a_path(void)
{
    int fd = close_all() ? open("/", O_PATH) : -1;

    return fd > 2 && dup2(fd, 500) == 500 && close(fd) == 0;
}

static bool directory_as_stdin(void)
{
    return close_all() && dup2(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0) == 0;
}

static void leaked_descriptors_are_found(void **state)
{
    struct guest_start start = host_start();
    struct reading readings[BRIG_LAYER_MAX];

    (void)state;
    assert_true(run_in_child(close_all, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_FDS].on, 1);
    assert_true(run_in_child(leak_one, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_FDS].on, 0);
    assert_true(run_in_child(leak_a_path, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_FDS].on, 0);
    assert_true(run_in_child(directory_as_stdin, &start, 2, readings));
    assert_int_equal(readings[BRIG_LAYER_FDS].on, 0);
}

/* ---- parsers ------------------------------------------------------------------------------------- */

static uint64_t inode_of(const char *text)
{
    return check_ns_inode(text, strlen(text));
}

static void namespace_links(void **state)
{
    (void)state;
    assert_int_equal(inode_of("user:[4026531837]"), 4026531837u);
    assert_int_equal(inode_of("mnt:[1]"), 1);
    assert_int_equal(inode_of(""), 0);
    assert_int_equal(inode_of("user"), 0);
    assert_int_equal(inode_of("user:["), 0);
    assert_int_equal(inode_of("user:[]"), 0);
    assert_int_equal(inode_of("user:[12"), 0);
    assert_int_equal(inode_of("user:[12]x"), 0);
    assert_int_equal(inode_of("user:[1x2]"), 0);
    assert_int_equal(inode_of("user:[99999999999999999999999999]"), 0);
}

static bool field(const char *text, const char *name, unsigned base, uint64_t *ret)
{
    return check_status_field(text, strlen(text), name, base, ret);
}

static void status_fields(void **state)
{
    static const char text[] = "Name:\tx\nCapEff:\t000001ffffffffff\nCapEffX:\t1\nNoNewPrivs:\t1\nSeccomp:\t2\n"
                               "Seccomp_filters:\t3\nBad:\t12g\nEmpty:\t\nLong:\t00000000000000001\nCut:\t7";
    uint64_t value = 0;

    (void)state;
    assert_true(field(text, "CapEff", 16, &value));
    assert_int_equal(value, 0x1ffffffffff);
    assert_true(field(text, "Seccomp", 10, &value));
    assert_int_equal(value, 2);
    assert_true(field(text, "NoNewPrivs", 10, &value));
    assert_int_equal(value, 1);
    value = 99;
    assert_false(field(text, "Absent", 10, &value));
    assert_false(field(text, "CapEf", 16, &value));
    assert_false(field(text, "Bad", 10, &value));
    assert_false(field(text, "Empty", 10, &value));
    assert_false(field(text, "Long", 16, &value));
    assert_false(field(text, "CapEff", 10, &value)); /* not in that base */
    assert_false(field(text, "Cut", 10, &value));    /* no newline: it may go on */
    assert_false(field("", "Cut", 10, &value));
    assert_int_equal(value, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_off_without_a_sandbox),
        cmocka_unit_test(unknown_host_namespaces_read_as_off),
        cmocka_unit_test(says_why_it_is_off),
        cmocka_unit_test(a_filter_must_also_refuse),
        cmocka_unit_test(landlock_is_tried),
        cmocka_unit_test(namespaces_are_compared),
        cmocka_unit_test(leaked_descriptors_are_found),
        cmocka_unit_test(namespace_links),
        cmocka_unit_test(status_fields),
    };

    probe_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
