/* SPDX-License-Identifier: Apache-2.0 */
/* A job for a zygote, as bytes and back: everything arrives, nothing else does, and what is cut, longer or of another
 * build is refused. */
#include <string.h>

#include "spawner/zygote_msg.h"
#include "unit.h"

#define SECRET "/spawner/side"

static struct plan_bind binds[WIRE_BINDS_MAX];
static struct plan_tmpfs tmpfs[WIRE_TMPFS_MAX];
static uint8_t message[ZYGOTE_MSG_MAX];

static struct zygote_job sample(unsigned n_binds, unsigned n_tmpfs)
{
    struct zygote_job job = {
        .number = 7,
        .clone_flags = 0x1234,
        .cgroup_fd = 47,
        .workdir = "/workspace",
        .plan = {.setup_fd = 40,
                 .control_fd = 41,
                 .init_fd = 42,
                 .probe_fd = 43,
                 .host_proc_fd = 44,
                 .host_mnt_fd = 45,
                 .rootfs_fd = -1,
                 .highest_fd = 99,
                 .hostname = "a-name",
                 .two_ids = true,
                 .outer_root = 100000,
                 .outer_user = 101000,
                 .landlock_abi = 7,
                 .store_device = "/l/3",
                 .lower_dirs = {"usr", "opt"},
                 .root_links = {{"bin", "usr/bin"}, {"lib", "usr/lib"}, {"sbin", "usr/sbin"}},
                 .binds = binds,
                 .n_binds = n_binds,
                 .tmpfs = tmpfs,
                 .n_tmpfs = n_tmpfs,
                 .limits = {.memory = 12345, .pids = 9},
                 .off = 3,
                 .writable_root = true},
        .start = {.uid = 1000,
                  .gid = 1000,
                  .require = 5,
                  .landlock_abi = 7,
                  .ns_host = {1, 2, 3, 4, 5, 6, 7, 8},
                  .workdir = SECRET,
                  .strings = SECRET},
    };

    for (unsigned i = 0; i < n_binds; i++)
        binds[i] = (struct plan_bind){.mount_fd = 200 + (int)i,
                                      .target = i % 2 ? "/data/odd" : "/data",
                                      .is_dir = i % 2,
                                      .read_only = i % 3 == 0,
                                      .overlay = i % 5 == 0};
    for (unsigned i = 0; i < n_tmpfs; i++)
        tmpfs[i] = (struct plan_tmpfs){"/scratch", 4096u * (i + 1)};
    return job;
}

static void the_same_comes_back(const struct zygote_job *job, int cgroup, int mnt)
{
    int fds[ZYGOTE_FDS];
    size_t n_fds = 0;
    struct zygote_job got;
    const struct jail_plan *p = &got.plan;
    int len = zygote_job_put(message, sizeof message, job, fds, &n_fds);

    assert_true(len > 0);
    assert_int_equal(zygote_job_parse(message, (size_t)len, fds, n_fds, &got), 0);
    assert_int_equal(got.number, 7);
    assert_int_equal(got.clone_flags, 0x1234);
    assert_int_equal(got.cgroup_fd, cgroup);
    assert_string_equal(got.workdir, "/workspace");
    assert_int_equal(p->setup_fd, 40);
    assert_int_equal(p->control_fd, 41);
    assert_int_equal(p->init_fd, 42);
    assert_int_equal(p->probe_fd, 43);
    assert_int_equal(p->host_proc_fd, 44);
    assert_int_equal(p->host_mnt_fd, mnt);
    assert_int_equal(p->rootfs_fd, -1);
    assert_string_equal(p->hostname, "a-name");
    assert_string_equal(p->lower_dirs[1], "opt");
    assert_null(p->lower_dirs[2]);
    assert_string_equal(p->root_links[2][1], "usr/sbin");
    assert_null(p->root_links[3][0]);
    assert_string_equal(p->store_device, "/l/3");
    assert_memory_equal(&p->limits, &job->plan.limits, sizeof p->limits);
    assert_true(p->two_ids && p->writable_root && p->outer_root == 100000 && p->outer_user == 101000 && p->off == 3);
    assert_memory_equal(got.start.ns_host, job->start.ns_host, sizeof got.start.ns_host);
    assert_int_equal(got.start.require, 5);
    assert_null(got.start.workdir);
    assert_int_equal(p->n_binds, job->plan.n_binds);
    for (unsigned i = 0; i < p->n_binds; i++) {
        assert_int_equal(p->binds[i].mount_fd, 200 + (int)i);
        assert_string_equal(p->binds[i].target, job->plan.binds[i].target);
        assert_true(p->binds[i].is_dir == binds[i].is_dir && p->binds[i].read_only == binds[i].read_only &&
                    p->binds[i].overlay == binds[i].overlay);
    }
    assert_int_equal(p->n_tmpfs, job->plan.n_tmpfs);
    for (unsigned i = 0; i < p->n_tmpfs; i++) {
        assert_string_equal(p->tmpfs[i].path, "/scratch");
        assert_int_equal(p->tmpfs[i].size, 4096u * (i + 1));
    }
}

static void a_job_comes_back(void **state UNUSED)
{
    struct zygote_job job = sample(3, 2);

    the_same_comes_back(&job, 47, 45);
    job = sample(WIRE_BINDS_MAX, WIRE_TMPFS_MAX);
    the_same_comes_back(&job, 47, 45);
    job = sample(0, 0);
    job.cgroup_fd = -1;
    the_same_comes_back(&job, -1, 45);
    job.plan.host_mnt_fd = -1;
    the_same_comes_back(&job, -1, -1);
}

/* The bytes lie in the memory of whoever is cloned: they tell nothing of where the spawner's lie. */
static void no_address_travels(void **state UNUSED)
{
    struct zygote_job job = sample(2, 1);
    const void *const ours[] = {job.plan.hostname,
                                job.plan.binds,
                                job.plan.tmpfs,
                                job.plan.lower_dirs[0],
                                job.plan.root_links[0][0],
                                binds[1].target,
                                tmpfs[0].path,
                                job.start.workdir,
                                job.workdir};
    int fds[ZYGOTE_FDS];
    size_t n_fds = 0;
    int len = zygote_job_put(message, sizeof message, &job, fds, &n_fds);

    assert_true(len > 0);
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        assert_null(memmem(message, (size_t)len, &ours[i], sizeof ours[i]));
    assert_null(memmem(message, (size_t)len, SECRET, sizeof SECRET));
}

static void what_is_cut_or_longer_is_refused(void **state UNUSED)
{
    struct zygote_job job = sample(3, 2), got;
    int fds[ZYGOTE_FDS + 1] = {0};
    size_t n_fds = 0;
    int len = zygote_job_put(message, sizeof message, &job, fds, &n_fds);

    assert_true(len > 0);
    for (size_t cut = 0; cut < (size_t)len; cut++) {
        uint8_t *exact = test_malloc(cut + 1); /* a byte past the end would be seen */
        memcpy(exact, message, cut);
        assert_int_equal(zygote_job_parse(exact, cut, fds, n_fds, &got), -EPROTO);
        test_free(exact);
    }
    message[len] = 0;
    assert_int_equal(zygote_job_parse(message, (size_t)len + 1, fds, n_fds, &got), -EPROTO);
    assert_int_equal(zygote_job_parse(message, (size_t)len, fds, n_fds - 1, &got), -EPROTO);
    assert_int_equal(zygote_job_parse(message, (size_t)len, fds, n_fds + 1, &got), -EPROTO);
    for (size_t i = 0; i < 8; i++) { /* the magic, and the size that names the build */
        message[i] ^= 1;
        assert_int_equal(zygote_job_parse(message, (size_t)len, fds, n_fds, &got), -EPROTO);
        message[i] ^= 1;
    }
    assert_int_equal(zygote_job_parse(message, (size_t)len, fds, n_fds, &got), 0);
}

static void what_does_not_fit_is_refused(void **state UNUSED)
{
    struct zygote_job job = sample(3, 2);
    int fds[ZYGOTE_FDS];
    size_t n_fds = 0;
    int len = zygote_job_put(message, sizeof message, &job, fds, &n_fds);

    for (size_t size = 0; size < (size_t)len; size++)
        assert_int_equal(zygote_job_put(message, size, &job, fds, &n_fds), -EMSGSIZE);
    assert_int_equal(zygote_job_put(message, (size_t)len, &job, fds, &n_fds), len);
    job.plan.n_binds = WIRE_BINDS_MAX + 1;
    assert_int_equal(zygote_job_put(message, sizeof message, &job, fds, &n_fds), -EMSGSIZE);
}

/* Any byte may be another: then it is refused, or read within its bounds (the sanitizers look on). */
static void any_byte_may_be_wrong(void **state UNUSED)
{
    struct zygote_job job = sample(3, 2), got;
    int fds[ZYGOTE_FDS];
    size_t n_fds = 0;
    int len = zygote_job_put(message, sizeof message, &job, fds, &n_fds);

    for (int i = 0; i < len; i++)
        for (unsigned flip = 1; flip < 256; flip = flip * 2 + 1) {
            message[i] ^= (uint8_t)flip;
            if (zygote_job_parse(message, (size_t)len, fds, n_fds, &got) == 0)
                assert_true(got.plan.n_binds <= WIRE_BINDS_MAX && strlen(got.plan.hostname) < (size_t)len);
            message[i] ^= (uint8_t)flip;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_comes_back),
        cmocka_unit_test(no_address_travels),
        cmocka_unit_test(what_is_cut_or_longer_is_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(any_byte_may_be_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
