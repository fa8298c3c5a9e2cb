/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_host.c: writes an audit log as brigd does, without a daemon around it.
 *
 *     audit_host LOG_DIR KEY_DIR COUNT [ROTATE_BYTES KEEP_BYTES [stay]]
 *
 * COUNT lines, every tenth of them synced before the next; the head is printed when one is signed. With `stay` it goes
 * on, a line every 20 ms, until it is killed.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"

static bool waiting;

static void on_head(void *ctx, uint64_t seq, const char hash[SHA256_HEX], int64_t time_ns)
{
    (void)ctx;
    (void)time_ns;
    printf("%" PRIu64 ":%s\n", seq, hash);
    fflush(stdout);
}

static void on_done(void *ctx, int error)
{
    (void)ctx;
    if (error < 0)
        exit(3);
    waiting = false;
}

static int add(struct loop *loop, struct audit *audit, unsigned i)
{
    static const char *const actions[] = {"sandbox.create", "process.start", "file.write", "key.create", "denied"};
    const bool sync = i % 10 == 0;
    char object[32], org[16];

    snprintf(object, sizeof(object), "object-%u", i);
    snprintf(org, sizeof(org), "org-%u", i % 3);
    waiting = sync;
    if (audit_add(audit,
                  &(struct audit_event){.action = actions[i % 5],
                                        .actor = "key-1",
                                        .org = org,
                                        .object = object,
                                        .outcome = "ok",
                                        .detail = "\x1b[31mred\n",
                                        .request_id = "req",
                                        .sync = sync},
                  on_done, NULL) == 0)
        return -1;
    while (waiting)
        if (loop_run_once(loop, -1, NULL) < 0)
            return -1;
    return loop_run_once(loop, 0, NULL);
}

int main(int argc, char **argv)
{
    struct audit_options options = {.head_lines = 20, .on_head = on_head};
    struct crypto_signer *signer = NULL;
    struct workers *workers = NULL;
    struct audit *audit = NULL;
    struct loop *loop = NULL;
    struct brig_err err = {0};

    if (argc < 4)
        return 2;
    options.dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int keys = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (argc >= 6) {
        options.rotate_bytes = strtoull(argv[4], NULL, 10);
        options.keep_bytes = strtoull(argv[5], NULL, 10);
    }
    int r = crypto_signer_open(keys, "audit.pem", &signer, &err);
    options.signer = signer;
    if (r == 0)
        r = loop_create(&loop, &err);
    if (r == 0)
        r = workers_create(loop, 1, &workers, &err);
    if (r == 0)
        r = audit_open(loop, workers, &options, &audit, &err);
    unsigned count = (unsigned)strtoul(argv[3], NULL, 10);
    for (unsigned i = 1; r == 0 && i <= count; i++)
        r = add(loop, audit, i);
    for (unsigned i = 1; r == 0 && argc >= 7 && strcmp(argv[6], "stay") == 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        r = add(loop, audit, i);
    }
    audit_close(audit);
    workers_destroy(workers);
    loop_destroy(loop);
    crypto_signer_destroy(signer);
    if (r < 0)
        fprintf(stderr, "audit_host: %s\n", err.message);
    return r < 0 ? 1 : 0;
}
