/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_parts.c: opens the parts of brigd in the order in which they need each other, and closes them in the reverse
 * order.
 */
#include <fcntl.h>

#include "api/log.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "brigd/daemon.h"
#include "brigd/preview.h"
#include "build/build.h"
#include "crypto/keyring.h"
#include "records/disks/snapshots.h"
#include "template/library.h"

#define WORKERS 2

static void on_head(void *ctx, uint64_t seq, const char hash[SHA256_HEX], int64_t time_ns)
{
    struct daemon_state *d = ctx;
    struct brig_err err;

    if (store_put_audit_head(d->api.store, seq, hash, time_ns, NULL, NULL, &err) < 0)
        log_line(LOG_WARN, "audit", "the head of the audit log could not be noted in the store: %s", err.message);
}

static int open_keys(struct daemon_state *d, struct brig_err *err)
{
    char path[4096];

    if (str_format(path, sizeof path, "%s/keys", d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_host(err, "%s", path);
    int r = crypto_signer_open(dir, "audit.pem", &d->api.signer, err);
    if (r < 0)
        return r;
    AUTO_FD int fd = openat(dir, "preview.key", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        return read(fd, d->api.token_key, sizeof d->api.token_key) == sizeof d->api.token_key
                   ? 0
                   : err_set(err, BRIG_E_HOST, EIO, "%s/preview.key: damaged", path);
    if (crypto_random(d->api.token_key, sizeof d->api.token_key) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random numbers");
    fd = openat(dir, "preview.key", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_all(fd, d->api.token_key, sizeof d->api.token_key) < 0)
        return err_host(err, "%s/preview.key", path);
    return 0;
}

static int open_audit(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    char path[4096];

    if (str_format(path, sizeof path, "%s/audit", d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    d->api.audit_dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->api.audit_dir_fd < 0)
        return err_host(err, "%s", path);
    uint64_t known = 0;
    int64_t known_at = 0;
    char hash[SHA256_HEX];
    int r = store_audit_head(d->api.store, &known, hash, &known_at, err);
    if (r < 0)
        return r;
    const struct audit_options options = {.known_seq = known,
                                          .known_hash = hash,
                                          .dir_fd = d->api.audit_dir_fd,
                                          .signer = d->api.signer,
                                          .rotate_bytes = config->audit_rotate_bytes,
                                          .keep_bytes = config->keep_audit_bytes,
                                          .keep_seconds = (int64_t)config->keep_audit_seconds,
                                          .on_head = on_head,
                                          .ctx = d};
    return audit_open(d->api.loop, d->api.workers, &options, &d->api.audit, err);
}

static int open_store(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    char url[4200];

    if (config->database_url[0])
        return store_open(d->api.loop, d->api.workers, config->database_url, &d->api.store, err);
    if (str_format(url, sizeof url, "sqlite:%s/service/brig.db", d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    return store_open(d->api.loop, d->api.workers, url, &d->api.store, err);
}

static int open_secrets(struct daemon_state *d, struct brig_err *err)
{
    const bool plain = config_get(d->api.config)->secrets_plaintext;

    if (plain && !d->ring)
        log_line(LOG_WARN, "secrets",
                 "[secrets] insecure_plaintext is on and there is no key: secrets are stored UNENCRYPTED");
    return secrets_create(d->api.store, d->ring, plain, &d->api.secrets, err);
}

int daemon_open(struct daemon_state *d, struct brig_err *err)
{
    handed_log(&d->handed, config_get(d->api.config));
    int r = loop_create(&d->api.loop, err);

    if (r == 0)
        r = workers_create(d->api.loop, WORKERS, &d->api.workers, err);
    if (r == 0)
        r = open_store(d, err);
    if (r == 0)
        r = open_secrets(d, err);
    if (r == 0)
        r = open_keys(d, err);
    if (r == 0)
        r = open_audit(d, err);
    if (r == 0)
        r = suspicion_create(&d->api.suspicion, err);
    if (r == 0 && config_get(d->api.config)->otlp_endpoint[0])
        r = trace_create(d->api.loop, config_get(d->api.config)->otlp_endpoint, &d->api.trace, err);
    if (r == 0)
        r = policies_create(d->api.store, d->packages, &d->api.policies, err);
    if (r == 0)
        r = templates_create(d->api.store, ACCOUNTS_DEFAULT_ORG, &d->api.templates, err);
    if (r == 0)
        r = volumes_create(d->api.store, &d->api.volumes, err);
    if (r == 0)
        r = snapshots_create(d->api.store, &d->api.snapshots, err);
    if (r == 0)
        r = build_steps_create(d->api.store, &d->api.build_steps, err);
    if (r == 0)
        r = registries_create(d->api.store, d->ring, config_get(d->api.config)->secrets_plaintext, &d->api.registries,
                              err);
    if (r == 0)
        r = api_tools_open(&d->api, d->ring, d->state_dir, err);
    if (r == 0)
        r = machines_open(d, err);
    return r == 0 ? auth_open(&d->api, err) : r;
}

void daemon_close(struct daemon_state *d)
{
    server_destroy(d->api.server);
    tickets_free(d->api.tickets);
    api_tools_stop(&d->api);
    builds_stop(d->api.builds);
    library_destroy(d->api.library);
    manager_destroy(d->api.manager);
    base_close_fd(&d->gate_fd);
    base_close_fd(&d->vm_dir_fd);
    base_close_fd(&d->fire_dir_fd);
    mem_free(d->apt);
    mem_free(d->packages);
    providers_destroy(d->api.providers);
    audit_close(d->api.audit);
    if (d->api.loop) /* its last head is on its way to the store */
        (void)!loop_run_once(d->api.loop, 0, NULL);
    suspicion_destroy(d->api.suspicion);
    trace_destroy(d->api.trace);
    store_close(d->api.store);
    accounts_destroy(d->api.accounts); /* the store calls back for what was on its way */
    policies_destroy(d->api.policies);
    templates_destroy(d->api.templates);
    volumes_destroy(d->api.volumes);
    snapshots_destroy(d->api.snapshots);
    build_steps_destroy(d->api.build_steps);
    registries_destroy(d->api.registries);
    secrets_destroy(d->api.secrets);
    api_tools_close(&d->api);
    keyring_destroy(d->ring);
    workers_destroy(d->api.workers);
    builds_destroy(d->api.builds); /* a thread may have read its files until now */
    crypto_signer_destroy(d->api.signer);
    loop_destroy(d->api.loop);
    config_free(d->api.config);
}
