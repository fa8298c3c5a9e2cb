/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brigd_main.c: main() of brigd. It is started by the supervisor (`brig serve`) with a socket as descriptor 3; its
 * argument is the state directory. `brigd audit ...` is the offline side of `brig audit`.
 *
 * Theory of operation, in stages, each of which must succeed:
 *   1  no core dumps, not dumpable, no new privileges
 *   2  what the supervisor gives: configuration, the spawner's and brig-egress's sockets, listeners, keys
 *   3  store, policies, secrets, audit log, keys
 *   4  Landlock and seccomp: nothing from a client or a sandbox has been read so far
 *   5  provider, manager (which takes over what an earlier brigd left), listeners; then the supervisor is told
 * One thread runs the loop; a few workers do what would block it.
 *
 * When it must drain, it stops accepting, finishes answers, ends sandboxes unless they must stay, and exits with 0.
 * When the spawner is gone, so is every sandbox: brigd writes their certificates and exits with 75, and is started
 * again.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "api/api.h"
#include "api/log.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "brigd/audit_verb.h"
#include "brigd/daemon.h"
#include "brigd/lockdown.h"
#include "brigd/preview.h"
#include "crypto/keyring.h"
#include "letta/letta.h"
#include "build/build.h"
#include "template/library.h"

#define EXIT_SPAWNER_GONE 75
#define CONFIG_MAX (1u << 20)
#define KEYS_MAX (64u << 10)

/* ---- configuration --------------------------------------------------------------------------------------- */

static int load_config(int fd, struct config_loaded **ret, struct brig_err *err)
{
    AUTO_FREE char *text = mem_alloc(CONFIG_MAX);
    struct stat st;

    if (fd < 0)
        return config_load_text("", NULL, 0, environ, ret, err);
    if (!text)
        return err_nomem(err);
    if (fstat(fd, &st) < 0 || (size_t)st.st_size >= CONFIG_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the configuration file is too large");
    ssize_t n = pread(fd, text, CONFIG_MAX - 1, 0);
    if (n < 0)
        return err_host(err, "read the configuration");
    const char *path = getenv("BRIG_CONFIG_PATH");
    return config_load_text(path ? path : "config.toml", text, (size_t)n, environ, ret, err);
}

/* Its strings stay the configuration's. */
static struct http_options http_options(const struct config *config)
{
    return (struct http_options){.listen = config->listen,
                                 .domain = config->domain,
                                 .allowed_hosts = config->allowed_hosts,
                                 .allowed_origins = config->allowed_origins,
                                 .insecure = config->insecure,
                                 .max_connections = config->max_connections,
                                 .max_connections_per_peer = config->max_connections_per_peer,
                                 .max_headers_bytes = config->max_headers_bytes,
                                 .max_headers = config->max_headers,
                                 .header_timeout = config->header_timeout,
                                 .body_timeout = config->body_timeout,
                                 .idle_timeout = config->idle_timeout};
}

/* Validates, then swaps. restart: the keys that changed and need one. */
static int reload(struct api *api, struct handed *handed, int config_fd, char *restart, size_t size,
                  struct brig_err *err)
{
    struct config_loaded *next = NULL;
    int r = load_config(config_fd, &next, err);

    if (r < 0)
        return r;
    config_diff(api->config, next, restart, size);
    r = handed_check(handed, err);
    if (r == 0)
        r = handed_tls(handed, config_get(next), api->server, err);
    if (r < 0)
        return config_free(next), r;
    handed_log(handed, config_get(next));
    const struct http_options http = http_options(config_get(next));
    server_configure(api->server, &http);
    manager_configure(api->manager, config_get(next));
    api_tools_configure(api, config_get(next));
    library_configure(api->library, config_get(next));
    builds_configure(api->builds, config_get(next));
    config_free(api->config);
    api->config = next;
    api_audit_system(api, "config.reload", "", config_path(next), restart);
    log_line(LOG_INFO, "reload", "configuration reloaded%s%s", restart[0] ? "; these need a restart: " : "", restart);
    return 0;
}

static void on_config(struct daemon_state *d, int fd)
{
    struct brig_err err;
    char restart[512] = "";
    struct request *rq = take_ptr(&d->api.reloading);
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);
    int r = reload(&d->api, &d->handed, fd, restart, sizeof restart, &err);

    handed_done(&d->handed);
    if (r < 0)
        log_line(LOG_ERROR, "reload", "refused, nothing changed: %s", err.message);
    if (!rq)
        return;
    if (r < 0)
        return request_fail(rq, &err);
    json_object(&json);
    json_key_bool(&json, "reloaded", true);
    json_key_string(&json, "needs_restart", restart);
    json_end(&json);
    request_json(rq, 200, &json);
}

/* ---- the end --------------------------------------------------------------------------------------------- */

static void on_shut_down(void *ctx)
{
    struct daemon_state *d = ctx;

    d->quit = true;
}

/* Answers are finished, or their time is over. */
static void end_sandboxes(struct daemon_state *d)
{
    if (d->api.drained)
        return;
    d->api.drained = true;
    if (d->spawner_gone)
        d->quit = true;
    else if (d->keep)
        manager_leave(d->api.manager, on_shut_down, d);
    else
        manager_shut_down(d->api.manager, on_shut_down, d);
}

static void on_drain(struct loop_timer *timer)
{
    struct daemon_state *d = timer->ctx;
    uint64_t limit = config_get(d->api.config)->drain_timeout * NS_PER_MS;

    if (server_exchanges(d->api.server) == 0 || clock_mono_ns() - d->drain_ns > limit)
        return end_sandboxes(d);
    (void)!loop_timer_set(d->api.loop, timer, clock_mono_ns() + 20 * NS_PER_MS, NULL);
}

static void drain(struct daemon_state *d, bool keep)
{
    if (d->api.draining)
        return;
    log_line(LOG_INFO, "drain", "finishing %zu answers, for at most %llu ms (a second signal does not wait)",
             server_exchanges(d->api.server), (unsigned long long)config_get(d->api.config)->drain_timeout);
    d->api.draining = true;
    d->keep = keep;
    d->drain_ns = clock_mono_ns();
    server_drain(d->api.server);
    (void)!loop_timer_set(d->api.loop, &d->on_drain, clock_mono_ns(), NULL);
}

static void on_provider_gone(void *ctx, const struct brig_err *why)
{
    struct daemon_state *d = ctx;

    log_line(LOG_ERROR, "spawner", "%s", why->message);
    if (!d->api.ready)
        (void)!sup_send_text(SUP_SOCKET_FD, SUP_FAILED, "failure", why->message);
    d->spawner_gone = true;
    d->status = EXIT_SPAWNER_GONE;
    drain(d, true);
}

/* ---- the supervisor -------------------------------------------------------------------------------------- */

/* brig-egress is new, or what the host's package managers are configured with has changed. */
static void on_descriptor(struct daemon_state *d, const char *name, int *fd)
{
    struct brig_err err;

    AUTO_FREE char *text = NULL;
    size_t len = 0;

    if (handed_take(&d->handed, name, fd) != 0)
        return;
    if (str_eq(name, "gate") && manager_gate(d->api.manager, take_fd(fd), &err) < 0)
        log_line(LOG_ERROR, "gate", "%s", err.message);
    if (str_eq(name, "packages") && gate_memfd_read(*fd, CONFIG_MAX, &text, &len) == 0 &&
        policies_set_packages(d->api.policies, text, &err) < 0)
        log_line(LOG_ERROR, "gate", "packages: %s", err.message);
    if (str_eq(name, "apt") && gate_memfd_read(*fd, CONFIG_MAX, &text, &len) == 0)
        builds_set_sources(d->api.builds, take_ptr(&text));
}

static void on_reopen(struct daemon_state *d)
{
    struct brig_err err;

    handed_log(&d->handed, config_get(d->api.config));
    if (audit_reopen(d->api.audit, &err) < 0)
        log_line(LOG_ERROR, "reopen", "%s", err.message);
}

static void on_supervisor(struct loop_source *source, uint32_t events UNUSED)
{
    struct daemon_state *d = source->ctx;
    struct sup_msg msg;
    AUTO_FD int fd = -1;
    int r = sup_receive(source->fd, &msg, &fd);

    if (r == -EAGAIN)
        return;
    if (r < 0) { /* it is dead, and so shall we be */
        d->quit = true;
        return;
    }
    if (msg.type == SUP_CONFIG)
        on_config(d, fd);
    else if (msg.type == SUP_DRAIN)
        drain(d, str_eq(msg.name, "keep"));
    else if (msg.type == SUP_REOPEN)
        on_reopen(d);
    else if (msg.type == SUP_PING)
        (void)!sup_send(source->fd, SUP_PONG, NULL, -1);
    else if (msg.type == SUP_FD && fd >= 0)
        on_descriptor(d, msg.name, &fd);
}

/* The key ring of secrets. What is in it stays in wiping memory; the descriptor goes with the message. */
static int take_ring(struct daemon_state *d, int fd, struct brig_err *err)
{
    struct stat st;

    if (d->ring || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > (off_t)KEYS_MAX)
        return err_set(err, BRIG_E_HOST, EPROTO, "the keys of secrets");
    const size_t len = (size_t)st.st_size;
    char *text = crypto_secret_alloc(len);
    if (!text)
        return err_nomem(err);
    int r = pread(fd, text, len, 0) == (ssize_t)len ? keyring_parse(text, len, &d->ring, err)
                                                    : err_host(err, "the keys of secrets");
    crypto_secret_free(text, len);
    return r;
}

static int take_listener(struct daemon_state *d, const char *name, int *fd)
{
    int r = handed_take(&d->handed, name, fd);

    if (r != 0)
        return r < 0 ? r : 0;
    if (str_eq(name, "apt")) {
        size_t len = 0;
        mem_free(take_ptr(&d->apt));
        return gate_memfd_read(*fd, CONFIG_MAX, &d->apt, &len);
    }
    if (str_eq(name, "packages")) {
        size_t len = 0;
        mem_free(take_ptr(&d->packages));
        return gate_memfd_read(*fd, CONFIG_MAX, &d->packages, &len);
    }
    if (str_eq(name, "gate")) {
        base_close_fd(&d->gate_fd);
        d->gate_fd = take_fd(fd);
        return 0;
    }
    if (str_eq(name, "spawner") && d->spawner_fd < 0) {
        d->spawner_fd = take_fd(fd);
        return 0;
    }
    if (str_starts(name, SUP_RUNNER) && d->n_runners < RUNNERS_MAX) {
        struct runner_line *line = &d->runners[d->n_runners++];
        str_cut(line->name, sizeof line->name, name + strlen(SUP_RUNNER));
        line->fd = take_fd(fd);
        return 0;
    }
    if (d->n_listeners == LISTENERS_MAX || (!str_eq(name, "tcp") && !str_eq(name, "unix")))
        return -EPROTO;
    d->listeners[d->n_listeners++] = (struct listener){take_fd(fd), str_eq(name, "unix")};
    return 0;
}

/* Stage 2. Blocks: the supervisor has sent it all before it does anything else. */
static int take_descriptors(struct daemon_state *d, struct brig_err *err)
{
    for (;;) {
        struct sup_msg msg;
        AUTO_FD int fd = -1;
        int r = sup_receive(SUP_SOCKET_FD, &msg, &fd);

        if (r == -EAGAIN) {
            struct pollfd wait = {.fd = SUP_SOCKET_FD, .events = POLLIN};
            (void)!poll(&wait, 1, -1);
            continue;
        }
        if (r == 0 && msg.type == SUP_GO && handed_check(&d->handed, err) < 0)
            return -EIO;
        if (r == 0 && msg.type == SUP_GO)
            return d->spawner_fd >= 0 && d->api.config
                       ? 0
                       : err_set(err, BRIG_E_HOST, EPROTO, "the supervisor gave no spawner");
        if (r == 0 && msg.type == SUP_CONFIG && !d->api.config)
            r = load_config(fd, &d->api.config, err);
        else if (r == 0 && msg.type == SUP_FD && fd >= 0 && str_eq(msg.name, "secret-keys"))
            r = take_ring(d, fd, err);
        else if (r == 0 && msg.type == SUP_FD && fd >= 0)
            r = take_listener(d, msg.name, &fd);
        if (r < 0)
            return err->code ? r : err_set(err, BRIG_E_HOST, -r, "the supervisor");
    }
}

/* ---- the start ------------------------------------------------------------------------------------------ */

/* Stage 4. */
static int lock_down(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    const char *const writable[] = {d->state_dir, d->api.sets_path, NULL};
    const char *const readable[] = {"/proc/self/statm",
                                    "/proc/self/status",
                                    "/proc/meminfo",
                                    "/etc/resolv.conf",
                                    "/etc/hosts",
                                    "/etc/nsswitch.conf",
                                    "/etc/ssl",
                                    "/usr/lib/ssl",
                                    "/etc/pki",
                                    "/etc/pip.conf",
                                    "/etc/npmrc",
                                    config->gate_ca_bundle[0] ? config->gate_ca_bundle : "/dev/null",
                                    "/etc/localtime",
                                    "/usr/share/zoneinfo",
                                    "/dev/urandom",
                                    "/dev/null",
                                    NULL};
    /* requirements.txt of a tool's directory */
    const char *const dir_lists[] = {config->tools_exec_dir, config->allowed_dirs, NULL};
    const struct lockdown what = {.writable = writable,
                                  .readable = readable,
                                  .dir_lists = dir_lists,
                                  .network = config->database_url[0] || config->otlp_endpoint[0] ||
                                             config->tools_webhook_url[0] || config->templates_registries};
    unsigned abi = 0;
    int r = lockdown_files(&what, &abi, err);

    if (r == 0 && abi == 0)
        log_line(LOG_WARN, "lockdown",
                 "this kernel has no Landlock: brigd's access to files is bounded by its user alone");
    return r == 0 ? lockdown_calls(&what, err) : r;
}

static void on_prune(struct loop_timer *timer)
{
    struct daemon_state *d = timer->ctx;
    const struct config *config = config_get(d->api.config);
    int64_t now = clock_real_ns(), day = INT64_C(86400) * (int64_t)NS_PER_SEC;
    struct brig_err err;

    if (store_prune(d->api.store, now - (int64_t)(config->keep_runs_seconds * NS_PER_SEC), config->keep_runs_bytes,
                    now - day, NULL, NULL, NULL) < 0)
        log_line(LOG_WARN, "store", "retention could not be applied");
    if (accounts_prune(d->api.accounts, &err) < 0)
        log_line(LOG_WARN, "store", "keys that are over could not be removed: %s", err.message);
    (void)!loop_timer_set(d->api.loop, timer, clock_mono_ns() + 600 * NS_PER_SEC, NULL);
}

static void on_ready(void *ctx)
{
    struct daemon_state *d = ctx;
    struct brig_err err;
    int r = 0;

    for (size_t i = 0; r == 0 && i < d->n_listeners; i++)
        r = server_listen(d->api.server, take_fd(&d->listeners[i].fd), d->listeners[i].is_unix, &err);
    if (r == 0)
        r = d->api.provider->ops->pool(d->api.provider, (unsigned)config_get(d->api.config)->pool, &err);
    if (r == 0)
        r = api_tools_ready(&d->api, &err);
    if (r < 0) {
        log_line(LOG_ERROR, "start", "%s", err.message);
        (void)!sup_send_text(SUP_SOCKET_FD, SUP_FAILED, "failure", err.message);
        d->status = 1;
        d->quit = true;
        return;
    }
    d->api.ready = true;
    library_ready(d->api.library);
    api_audit_system(&d->api, "serve.start", "", brig_version(), "");
    log_line(LOG_INFO, "start", "brigd %s serves", brig_version());
    on_prune(&d->on_prune);
    (void)!sup_send(SUP_SOCKET_FD, SUP_READY, NULL, -1);
}

static int start_local(struct daemon_state *d, struct brig_err *err)
{
    struct provider *local = NULL;
    int r = provider_local_create(d->api.loop, d->spawner_fd, &local, err);

    if (r < 0)
        return r;
    r = providers_add(d->api.providers, local, err);
    if (r < 0)
        local->ops->destroy(local);
    else
        d->api.provider = local;
    return r;
}

static int start_runners(struct daemon_state *d, struct brig_err *err)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < d->n_runners; i++) {
        struct provider *provider = NULL;
        r = provider_runner_create(d->api.loop, d->runners[i].fd, d->runners[i].name, &provider, err);
        if (r == 0)
            provider->end_ns = config_get(d->api.config)->start_timeout * NS_PER_MS; /* as long as it has to make one */
        if (r == 0 && (r = providers_add(d->api.providers, provider, err)) < 0)
            provider->ops->destroy(provider);
    }
    return r;
}

/* Sandboxes that name no provider would all be refused. */
static int check_default(const struct daemon_state *d, const struct config *config, struct brig_err *err)
{
    struct provider *provider = NULL;
    struct brig_err why = {0};

    if (providers_find(d->api.providers, config->provider, &provider, &why) == 0)
        return 0;
    return err_set(err, BRIG_E_OFF, 0, "[manager] provider: %.200s", why.message);
}

static void on_wanted(void *ctx, const char *reference, const char *name, const struct brig_err *err)
{
    struct api *api = ctx;

    log_line(err ? LOG_WARN : LOG_INFO, "template", "[templates] pull %s: %s", reference, err ? err->message : name);
    if (!err)
        api_audit_system(api, "template.pull", templates_shared_org(api->templates), name, reference);
}

static int start_library(struct daemon_state *d, struct brig_err *err)
{
    char path[4096];
    const struct library_options options = {.loop = d->api.loop,
                                            .workers = d->api.workers,
                                            .manager = d->api.manager,
                                            .provider = d->api.provider,
                                            .templates = d->api.templates,
                                            .config = config_get(d->api.config),
                                            .registries = d->api.registries,
                                            .steps = d->api.build_steps,
                                            .path = path,
                                            .wanted = on_wanted,
                                            .ctx = &d->api};

    if (str_format(path, sizeof path, "%s/templates", d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    int r = library_create(&options, &d->api.library, err);
    if (r < 0)
        return r;
    const struct builds_options builds = {.loop = d->api.loop,
                                          .workers = d->api.workers,
                                          .manager = d->api.manager,
                                          .provider = d->api.provider,
                                          .templates = d->api.templates,
                                          .steps = d->api.build_steps,
                                          .library = d->api.library,
                                          .audit = d->api.audit,
                                          .config = config_get(d->api.config)};
    r = builds_create(&builds, &d->api.builds, err);
    if (r == 0)
        builds_set_sources(d->api.builds, take_ptr(&d->apt));
    return r;
}

/* Stage 5. */
static int start(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    const struct server_options options = {
        .http = http_options(config), .handler = api_handle, .ctx = &d->api, .log = api_log};
    static const struct route_table *const tables[] = {&api_table, &letta_table, NULL};
    int r = providers_create(config, &d->api.providers, err);

    d->api.tables = tables;
    if (r == 0)
        r = start_local(d, err);
    if (r == 0)
        r = start_runners(d, err);
    if (r == 0)
        r = machines_start(d, err);
    if (r == 0)
        r = check_default(d, config, err);
    if (r == 0) {
        d->api.provider->gone = on_provider_gone;
        d->api.provider->ctx = d;
        r = server_create(d->api.loop, &options, &d->api.server, err);
    }
    if (r == 0)
        r = handed_tls(&d->handed, config, d->api.server, err);
    handed_done(&d->handed);
    if (r == 0) {
        const struct manager_options manager = {.loop = d->api.loop,
                                                .provider = d->api.provider,
                                                .providers = d->api.providers,
                                                .store = d->api.store,
                                                .audit = d->api.audit,
                                                .config = config,
                                                .suspicion = d->api.suspicion,
                                                .policies = d->api.policies,
                                                .secrets = d->api.secrets,
                                                .templates = d->api.templates,
                                                .volumes = d->api.volumes,
                                                .snapshots = d->api.snapshots};
        r = manager_create(&manager, on_ready, d, &d->api.manager, err);
        if (r == 0 && d->gate_fd >= 0)
            r = manager_gate(d->api.manager, take_fd(&d->gate_fd), err);
        if (r == 0)
            r = start_library(d, err);
        if (r == 0)
            r = api_tools_start(&d->api, err);
    }
    d->on_supervisor = (struct loop_source){.fd = -1, .fn = on_supervisor, .ctx = d};
    return r == 0 ? loop_add(d->api.loop, &d->on_supervisor, SUP_SOCKET_FD, EPOLLIN, err) : r;
}

int main(int argc, char **argv)
{
    static struct daemon_state d;
    struct brig_err err = {0};

    if (argc >= 2 && str_eq(argv[1], "audit"))
        return audit_verb(argc - 1, argv + 1);
    if (argc != 2 || argv[1][0] != '/' || fcntl(SUP_SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fputs("brigd: started by `brig serve`, not by hand\n", stderr);
        return 125;
    }
    signal(SIGPIPE, SIG_IGN);
    d = (struct daemon_state){.state_dir = argv[1],
                              .handed = HANDED_INIT,
                              .spawner_fd = -1,
                              .gate_fd = -1,
                              .vm_dir_fd = -1,
                              .fire_dir_fd = -1,
                              .api = {.supervisor_fd = SUP_SOCKET_FD,
                                      .audit_dir_fd = -1,
                                      .sets_dir_fd = -1,
                                      .artifacts_fd = -1,
                                      .started_ns = clock_mono_ns()}};
    d.on_drain = (struct loop_timer){.fn = on_drain, .ctx = &d};
    d.on_prune = (struct loop_timer){.fn = on_prune, .ctx = &d};
    int r = lockdown_early(&err);
    if (r == 0)
        r = take_descriptors(&d, &err);
    if (r == 0)
        r = daemon_open(&d, &err);
    if (r == 0)
        r = lock_down(&d, &err);
    if (r == 0)
        r = start(&d, &err);
    while (r == 0 && !d.quit)
        r = loop_run_once(d.api.loop, -1, &err);
    if (r < 0) {
        log_line(LOG_ERROR, "end", "%s", err.message);
        (void)!sup_send_text(SUP_SOCKET_FD, SUP_FAILED, "failure", err.message);
    }
    handed_done(&d.handed);
    daemon_close(&d);
    return r < 0 ? 1 : d.status;
}
