/* SPDX-License-Identifier: Apache-2.0 */
/* audit_rig.h: a log in a directory of its own, with a loop, workers and a key, for the tests of the audit room. */
#ifndef BRIG_TESTS_AUDIT_RIG_H
#define BRIG_TESTS_AUDIT_RIG_H

#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "audit/audit_priv.h"
#include "audit/read.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"

struct rig {
    char dir[64], keys[64];
    int dir_fd, keys_fd;
    struct loop *loop;
    struct workers *workers;
    struct crypto_signer *signer;
    uint8_t public_key[ED25519_PUBLIC];
    struct audit *audit;
    /* what the callbacks said */
    unsigned n_done, n_heads;
    int error;
    uint64_t head_seq;
    char head_hash[SHA256_HEX];
};

static inline UNUSED void rig_remove(const char *path, int fd)
{
    DIR *entries = opendir(path);

    for (struct dirent *entry; entries && (entry = readdir(entries));)
        unlinkat(fd, entry->d_name, 0);
    closedir(entries);
    close(fd);
    rmdir(path);
}

static inline UNUSED int rig_set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    memcpy(rig->dir, "/tmp/brig-audit-XXXXXX", 23);
    memcpy(rig->keys, "/tmp/brig-audit-XXXXXX", 23);
    assert_non_null(mkdtemp(rig->dir));
    assert_non_null(mkdtemp(rig->keys));
    rig->dir_fd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rig->keys_fd = open(rig->keys, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(loop_create(&rig->loop, NULL), 0);
    assert_int_equal(workers_create(rig->loop, 1, &rig->workers, NULL), 0);
    assert_int_equal(crypto_signer_open(rig->keys_fd, "audit.pem", &rig->signer, NULL), 0);
    crypto_signer_public(rig->signer, rig->public_key);
    *state = rig;
    return 0;
}

static inline UNUSED int rig_tear_down(void **state)
{
    struct rig *rig = *state;

    audit_close(rig->audit);
    workers_destroy(rig->workers);
    loop_destroy(rig->loop);
    crypto_signer_destroy(rig->signer);
    rig_remove(rig->dir, rig->dir_fd);
    rig_remove(rig->keys, rig->keys_fd);
    free(rig);
    return 0;
}

static inline UNUSED void rig_on_head(void *ctx, uint64_t seq, const char hash[SHA256_HEX], int64_t time_ns)
{
    struct rig *rig = ctx;

    assert_true(time_ns > 0);
    rig->n_heads++;
    rig->head_seq = seq;
    memcpy(rig->head_hash, hash, SHA256_HEX);
}

static inline UNUSED void rig_open(struct rig *rig, const struct audit_options *more)
{
    struct audit_options options = more ? *more : (struct audit_options){0};
    struct brig_err err = {0};

    options.dir_fd = rig->dir_fd;
    options.signer = rig->signer;
    options.on_head = rig_on_head;
    options.ctx = rig;
    if (audit_open(rig->loop, rig->workers, &options, &rig->audit, &err) < 0)
        fail_msg("%s", err.message);
}

static inline UNUSED void rig_close(struct rig *rig)
{
    audit_close(rig->audit);
    rig->audit = NULL;
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop_run_once(rig->loop, 0, NULL), 0);
}

static inline UNUSED void rig_on_done(void *ctx, int error)
{
    struct rig *rig = ctx;

    rig->n_done++;
    rig->error = error;
}

static inline UNUSED void rig_wait(struct rig *rig, const unsigned *counter, unsigned n)
{
    uint64_t end = clock_mono_ns() + 20 * NS_PER_SEC;

    while (*counter < n) {
        assert_true(clock_mono_ns() < end);
        assert_int_equal(loop_run_once(rig->loop, 100, NULL), 0);
    }
}

/* An event that is on disk when this returns. */
static inline UNUSED uint64_t rig_sync(struct rig *rig, const char *object)
{
    unsigned before = rig->n_done;
    uint64_t seq = audit_add(rig->audit,
                             &(struct audit_event){.action = "key.create",
                                                   .actor = "system",
                                                   .org = "",
                                                   .object = object,
                                                   .outcome = "ok",
                                                   .detail = "",
                                                   .request_id = "",
                                                   .sync = true},
                             rig_on_done, rig);

    assert_true(seq > 0);
    rig_wait(rig, &rig->n_done, before + 1);
    return seq;
}

static inline UNUSED void rig_add(struct rig *rig, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_true(audit_add(rig->audit,
                              &(struct audit_event){.action = "process.start",
                                                    .actor = "key-1",
                                                    .org = "org-1",
                                                    .object = "sb1",
                                                    .outcome = "ok",
                                                    .detail = "a line",
                                                    .request_id = "r"},
                              NULL, NULL) > 0);
}

/* A whole file; free() it. */
static inline UNUSED char *rig_read(int dir_fd, const char *name, size_t *len)
{
    AUTO_FD int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    struct stat st;

    *len = 0;
    if (fd < 0)
        return NULL;
    assert_int_equal(fstat(fd, &st), 0);
    char *text = malloc((size_t)st.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fd_read_all(fd, text, (size_t)st.st_size + 1), st.st_size);
    *len = (size_t)st.st_size;
    return text;
}

static inline UNUSED void rig_write(int dir_fd, const char *name, const char *text, size_t len)
{
    AUTO_FD int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, len), 0);
}

static inline UNUSED struct audit_report rig_verify(struct rig *rig, bool with_key)
{
    struct audit_report report;
    struct brig_err err = {0};
    const struct audit_verify_options options = {.public_key = with_key ? rig->public_key : NULL};

    if (audit_verify(rig->dir_fd, &options, &report, &err) < 0)
        fail_msg("%s", err.message);
    return report;
}

static inline UNUSED void rig_assert_ok(struct rig *rig)
{
    struct audit_report report = rig_verify(rig, true);

    if (!report.ok)
        fail_msg("%s", report.problem);
    assert_string_equal(report.problem, "");
}

static inline UNUSED void rig_assert_problem(struct rig *rig, const char *problem)
{
    struct audit_report report = rig_verify(rig, true);

    assert_false(report.ok);
    assert_string_equal(report.problem, problem);
}

#endif
