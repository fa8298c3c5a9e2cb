/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_keys.c: the table of all keys. A row has everything about a key: its name in the file and in the environment,
 * its member of struct config, its default as people write it, its bounds, and a line of help. A new key is a new row
 * and a new member of struct config.
 */
#include "config/config_keys.h"

#include "base/ascii.h"
#include "base/str.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define DAY_S UINT64_C(86400)
#define MAX_MS (UINT64_C(1) << 42) /* as the jail's */
#define MAX_S (MAX_MS / 1000)
#define MAX_SIZE (UINT64_C(1) << 62)
#define AT(field) .offset = offsetof(struct config, field)
#define LIVE .reloadable = true

const struct config_key config_keys[] = {
    /* ---- [server] ---- */
    {"server", "listen", CONFIG_TEXT, AT(listen), .fallback = "127.0.0.1:2744", .rule = config_rule_listen,
     .env = "BRIG_LISTEN", .help = "address and port; empty: only the socket"},
    {"server", "socket", CONFIG_TEXT, AT(socket), .fallback = "", .rule = config_rule_socket, .env = "BRIG_SOCKET",
     .help = "path of the unix socket; default: brig.sock in the run directory"},
    {"server", "domain", CONFIG_TEXT, AT(domain), .fallback = "localhost", .rule = config_rule_domain,
     .help = "previews are at <port>-<id>.<domain>"},
    {"server", "tls_cert", CONFIG_TEXT, AT(tls_cert), .fallback = "", .rule = config_rule_file,
     .help = "certificate chain, PEM"},
    {"server", "tls_key", CONFIG_TEXT, AT(tls_key), .fallback = "", .rule = config_rule_file,
     .help = "its private key, PEM"},
    {"server", "insecure", CONFIG_BOOL, AT(insecure), .fallback = "false",
     .help = "allow an address that is not loopback without TLS"},
    {"server", "max_connections", CONFIG_COUNT, AT(max_connections), .fallback = "10000", .min = 1, .max = 1000000,
     LIVE, .help = "connections at once; the unix socket has 16 more"},
    {"server", "max_connections_per_peer", CONFIG_COUNT, AT(max_connections_per_peer), .fallback = "1000", .min = 1,
     .max = 1000000, LIVE, .help = "of one address or user"},
    {"server", "max_body", CONFIG_SIZE, AT(max_body), .fallback = "64g", .min = 1, .max = MAX_SIZE, .zero = true, LIVE,
     .help = "bytes of one streamed upload; 0: no limit of its own"},
    {"server", "max_json", CONFIG_SIZE, AT(max_json), .fallback = "8m", .min = 1024, .max = GIB, LIVE,
     .help = "bytes of one request that is read into memory"},
    {"server", "max_headers_bytes", CONFIG_SIZE, AT(max_headers_bytes), .fallback = "64k", .min = 1024, .max = 16 * MIB,
     LIVE, .help = "bytes of one request's head"},
    {"server", "max_headers", CONFIG_COUNT, AT(max_headers), .fallback = "100", .min = 8, .max = 10000, LIVE,
     .help = "its fields"},
    {"server", "header_timeout", CONFIG_MS, AT(header_timeout), .fallback = "10s", .min = 100, .max = MAX_MS, LIVE,
     .help = "time for a request's head"},
    {"server", "body_timeout", CONFIG_MS, AT(body_timeout), .fallback = "30s", .min = 100, .max = MAX_MS, LIVE,
     .help = "time without progress in a body or an answer"},
    {"server", "idle_timeout", CONFIG_MS, AT(idle_timeout), .fallback = "75s", .min = 100, .max = MAX_MS, LIVE,
     .help = "time between two requests of a connection"},
    {"server", "allowed_hosts", CONFIG_TEXT, AT(allowed_hosts), .fallback = "", .rule = config_rule_hosts, LIVE,
     .help = "Host names accepted beside localhost, loopback, the address and the domain"},
    {"server", "allowed_origins", CONFIG_TEXT, AT(allowed_origins), .fallback = "", .rule = config_rule_origins, LIVE,
     .help = "web origins that may call, such as https://ui.example"},
    {"server", "log_level", CONFIG_TEXT, AT(log_level), .fallback = "info", .words = "debug info warn error", LIVE,
     .help = "debug, info, warn or error"},
    {"server", "log_file", CONFIG_TEXT, AT(log_file), .fallback = "", .rule = config_rule_file, LIVE,
     .help = "path; empty: stderr; reopened on SIGUSR1"},
    {"server", "log_format", CONFIG_TEXT, AT(log_format), .fallback = "json", .words = "json text", LIVE,
     .help = "json or text"},
    {"server", "otlp_endpoint", CONFIG_TEXT, AT(otlp_endpoint), .fallback = "", .rule = config_rule_otlp,
     .help = "http://ADDRESS:PORT of an OpenTelemetry collector (OTLP/HTTP); empty: no traces"},
    {"server", "metrics_per_sandbox", CONFIG_BOOL, AT(metrics_per_sandbox), .fallback = "false", LIVE,
     .help = "label metrics with sandbox ids"},
    {"server", "drain_timeout", CONFIG_MS, AT(drain_timeout), .fallback = "10s", .min = 1, .max = 3600 * 1000,
     .zero = true, LIVE, .help = "time for answers under way when stopping"},
    {"server", "on_shutdown", CONFIG_TEXT, AT(on_shutdown), .fallback = "kill", .words = "kill keep",
     .help = "sandboxes when stopping: kill, or keep for the next start"},

    /* ---- [store] ---- */
    {"store", "database_url", CONFIG_TEXT, AT(database_url), .fallback = "", .rule = config_rule_database,
     .env = "BRIG_DATABASE_URL", .secret = true,
     .help = "postgresql://... or sqlite:/path; empty: SQLite in the state directory"},
    {"store", "keep_runs", CONFIG_SECONDS, AT(keep_runs_seconds), .fallback = "720h", .min = 60, .max = MAX_S,
     .zero = true, LIVE, .help = "age at which receipts and certificates go; 0: never"},
    {"store", "keep_runs_bytes", CONFIG_SIZE, AT(keep_runs_bytes), .fallback = "1g", .min = MIB, .max = MAX_SIZE,
     .zero = true, LIVE, .help = "bytes of receipts kept; 0: all"},
    {"store", "keep_audit", CONFIG_SECONDS, AT(keep_audit_seconds), .fallback = "0", .min = 3600, .max = MAX_S,
     .zero = true, .help = "age at which files of the audit log go; 0: never"},
    {"store", "keep_audit_bytes", CONFIG_SIZE, AT(keep_audit_bytes), .fallback = "1g", .min = MIB, .max = MAX_SIZE,
     .help = "bytes of the audit log kept"},
    {"store", "audit_rotate_bytes", CONFIG_SIZE, AT(audit_rotate_bytes), .fallback = "64m", .min = 64 * KIB,
     .max = 16 * GIB, .help = "size of one of its files"},
    {"store", "suspicious_count", CONFIG_COUNT, AT(suspicious_count), .fallback = "10", .min = 2, .max = 1000, LIVE,
     .help = "denials or failed runs of one key that raise an event"},
    {"store", "suspicious_seconds", CONFIG_SECONDS, AT(suspicious_seconds), .fallback = "60", .min = 1, .max = DAY_S,
     LIVE, .help = "within this time"},

    /* ---- [providers], and one section for each ---- */
    {"providers", "only", CONFIG_TEXT, AT(providers_only), .fallback = "", .rule = config_rule_providers,
     .help = "names of those that sandboxes may have, with spaces between them; empty: all that are here"},
    {"providers", "start_timeout", CONFIG_MS, AT(start_timeout), .fallback = "20s", .min = 100, .max = 600 * 1000,
     .help = "time for a runtime to start a sandbox; then it is killed"},
    {"runc", "path", CONFIG_TEXT, AT(runc_path), .fallback = "", .rule = config_rule_file,
     .help = "the program; empty: runc in the usual directories"},
    {"crun", "path", CONFIG_TEXT, AT(crun_path), .fallback = "", .rule = config_rule_file,
     .help = "the program; empty: crun in the usual directories"},
    {"runsc", "path", CONFIG_TEXT, AT(runsc_path), .fallback = "", .rule = config_rule_file,
     .help = "the program; empty: runsc in the usual directories"},
    {"runsc", "platform", CONFIG_TEXT, AT(runsc_platform), .fallback = "auto", .words = "auto systrap ptrace kvm",
     .help = "how gVisor holds programs: systrap, ptrace or kvm; auto: the best that needs no device"},
    {"docker", "socket", CONFIG_TEXT, AT(docker_socket), .fallback = "", .rule = config_rule_socket,
     .help = "where the engine listens; empty: where DOCKER_HOST says, and else there is no docker"},
    {"docker", "image", CONFIG_TEXT, AT(docker_image), .fallback = "",
     .help = "the image of sandboxes that name neither image nor template; empty: the template host"},
    {"docker", "runtime", CONFIG_TEXT, AT(docker_runtime), .fallback = "",
     .help = "a runtime that the engine knows, with the host's kernel; empty: its own"},
    {"docker", "pull", CONFIG_TEXT, AT(docker_pull), .fallback = "missing", .words = "missing never",
     .help = "whether the engine pulls an image that it does not have"},

    /* ---- [manager] ---- */
    {"manager", "max_sandboxes", CONFIG_COUNT, AT(max_sandboxes), .fallback = "100", .min = 1, .max = 1000000, LIVE,
     .help = "sandboxes at once"},
    {"manager", "provider", CONFIG_TEXT, AT(provider), .fallback = "local", .rule = config_rule_provider,
     .help = "what holds a sandbox that names none: local; brig provider ls shows which can be used"},
    {"manager", "idle_timeout", CONFIG_SECONDS, AT(idle_timeout_s), .fallback = "3600", .min = 1, .max = MAX_S,
     .zero = true, .alias_section = "sandbox", .alias = "idle_timeout", LIVE,
     .help = "time unused until a sandbox ends; 0: never"},
    {"manager", "cleanup_interval", CONFIG_SECONDS, AT(cleanup_interval), .fallback = "300", .min = 1, .max = DAY_S,
     LIVE, .help = "time between two looks for leftovers"},
    {"manager", "pool", CONFIG_COUNT, AT(pool), .fallback = "4", .min = 1, .max = 4096, .zero = true, LIVE,
     .help = "sandboxes kept ready"},
    {"manager", "create_queue", CONFIG_COUNT, AT(create_queue), .fallback = "1024", .min = 1, .max = 65536, LIVE,
     .help = "creates that may wait"},
#define QUOTA(who, what, member, kind, most)                                                                       \
    {                                                                                                              \
        "manager", who "_max_" what, kind, AT(member), .fallback = "0", .min = 1, .max = most, .zero = true, LIVE, \
                                                       .help = "quota; 0: none"                                    \
    }
    QUOTA("org", "sandboxes", org_max_sandboxes, CONFIG_COUNT, 1000000),
    QUOTA("org", "cpus", org_max_cpus, CONFIG_CPUS, MAX_SIZE),
    QUOTA("org", "memory", org_max_memory, CONFIG_SIZE, MAX_SIZE),
    QUOTA("org", "disk", org_max_disk, CONFIG_SIZE, MAX_SIZE),
    QUOTA("key", "sandboxes", key_max_sandboxes, CONFIG_COUNT, 1000000),
    QUOTA("key", "cpus", key_max_cpus, CONFIG_CPUS, MAX_SIZE),
    QUOTA("key", "memory", key_max_memory, CONFIG_SIZE, MAX_SIZE),
    QUOTA("key", "disk", key_max_disk, CONFIG_SIZE, MAX_SIZE),
    {"manager", "org_max_keys", CONFIG_COUNT, AT(org_max_keys), .fallback = "1000", .min = 1, .max = 10000, LIVE,
     .help = "keys of one organisation"},

    /* ---- [sandbox]; the bounds of limits are the jail's (host/limits.c) ---- */
    {"sandbox", "image", CONFIG_TEXT, AT(image), .fallback = "host", .rule = config_rule_image, LIVE,
     .help = "template; python:... means host"},
    {"sandbox", "work_dir", CONFIG_TEXT, AT(work_dir), .fallback = "/workspace", .rule = config_rule_work_dir, LIVE,
     .help = "working directory"},
    {"sandbox", "memory_limit", CONFIG_SIZE, AT(limits.memory), .fallback = "512m", .min = 4 * MIB,
     .max = UINT64_C(1) << 46, .alias_section = "sandbox", .alias = "memory", LIVE, .help = "memory"},
    {"sandbox", "cpu_limit", CONFIG_CPUS, AT(limits.cpus), .fallback = "1", .min = 10, .max = 4096 * 1000,
     .alias_section = "sandbox", .alias = "cpus", LIVE, .help = "CPUs"},
    {"sandbox", "timeout", CONFIG_MS, AT(limits.timeout), .fallback = "300", .min = 1, .max = MAX_MS, LIVE,
     .help = "wall clock of one command"},
    {"sandbox", "cpu_time", CONFIG_MS, AT(limits.cpu_time), .fallback = "0", .min = 1, .max = MAX_MS, .zero = true,
     LIVE, .help = "CPU time of one command; 0: no limit"},
    {"sandbox", "pids", CONFIG_COUNT, AT(limits.pids), .fallback = "128", .min = 1, .max = 1 << 22, LIVE,
     .help = "processes and threads"},
    {"sandbox", "disk", CONFIG_SIZE, AT(limits.disk), .fallback = "0", .min = MIB, .max = UINT64_C(1) << 43,
     .zero = true, LIVE, .help = "bytes written; 0: 1g in an image, half of memory without one"},
    {"sandbox", "inodes", CONFIG_COUNT, AT(limits.inodes), .fallback = "0", .min = 64, .max = UINT32_MAX / 2,
     .zero = true, LIVE, .help = "files; 0: as disk has room for"},
    {"sandbox", "open_files", CONFIG_COUNT, AT(limits.open_files), .fallback = "1024", .min = 16, .max = 1 << 20, LIVE,
     .help = "open files of one process"},
    {"sandbox", "file_size", CONFIG_SIZE, AT(limits.file_size), .fallback = "0", .min = 1, .max = MAX_SIZE,
     .zero = true, LIVE, .help = "bytes of one file; 0: no limit"},
    {"sandbox", "io_read_bps", CONFIG_SIZE, AT(limits.io_read_bps), .fallback = "0", .min = 4096,
     .max = UINT64_C(1) << 50, .zero = true, LIVE, .help = "bytes read per second; 0: no limit"},
    {"sandbox", "io_write_bps", CONFIG_SIZE, AT(limits.io_write_bps), .fallback = "0", .min = 4096,
     .max = UINT64_C(1) << 50, .zero = true, LIVE, .help = "bytes written per second; 0: no limit"},
    {"sandbox", "output", CONFIG_SIZE, AT(limits.output), .fallback = "10m", .min = 1, .max = UINT64_C(1) << 40, LIVE,
     .help = "bytes of output kept of one command"},
    {"sandbox", "max_age", CONFIG_MS, AT(max_age), .fallback = "0", .min = 1, .max = MAX_MS, .zero = true, LIVE,
     .help = "age at which a sandbox ends; 0: never"},
    {"sandbox", "network_enabled", CONFIG_BOOL, AT(network_enabled), .fallback = "false", LIVE,
     .help = "true: the network is open, unless network says otherwise"},
    {"sandbox", "network", CONFIG_TEXT, AT(network), .fallback = "", .rule = config_rule_network, LIVE,
     .help = "policy of sandboxes that name none: none, packages, open or a named policy; empty: none"},
    {"sandbox", "use_sandbox", CONFIG_BOOL, AT(use_sandbox), .fallback = "true", LIVE,
     .help = "without effect: all is run in sandboxes"},
    {"sandbox", "require", CONFIG_TEXT, AT(require), .fallback = "", .rule = config_rule_require, LIVE,
     .help = "all, or layers without which nothing runs"},
    {"sandbox", "bind_roots", CONFIG_TEXT, AT(bind_roots), .fallback = "",
     .help = "directories that administrators may bind into sandboxes, with colons between them; empty: none"},
    {"sandbox", "templates", CONFIG_TEXT, AT(templates), .fallback = "", .rule = config_rule_file,
     .help = "directory of templates: NAME/ or NAME.tar"},
    {"sandbox", "forkable", CONFIG_BOOL, AT(sandbox_forkable), .fallback = "false", LIVE,
     .help = "stores of sandboxes are disks that can be copied at once (brig fork); they take longer to make"},
    {"sandbox", "allowed_dirs", CONFIG_TEXT, AT(allowed_dirs), .fallback = "", .rule = config_rule_dirs, LIVE,
     .help = "directories that a configuration's sandbox_dir may be in, with colons between them; empty: only the "
             "default one"},

    /* ---- [tools]: runs of tools and code ---- */
    {"tools", "exec_dir", CONFIG_TEXT, AT(tools_exec_dir), .fallback = "", .rule = config_rule_file,
     .env = "TOOL_EXEC_DIR LETTA_TOOL_EXECUTION_DIR LETTA_TOOL_SANDBOX_DIR",
     .help = "directory under /workspace of local runs; empty: tool_execution_dir in the state directory"},
    {"tools", "venv_name", CONFIG_TEXT, AT(tools_venv_name), .fallback = "", .rule = config_rule_venv,
     .env = "TOOL_EXEC_VENV_NAME LETTA_TOOL_SANDBOX_VENV_NAME",
     .help = "the default configuration uses a dependency set of this name"},
    {"tools", "autoreload_venv", CONFIG_BOOL, AT(tools_autoreload_venv), .fallback = "true",
     .env = "TOOL_EXEC_AUTORELOAD_VENV", .help = "build that set again at the start"},
    {"tools", "timeout", CONFIG_MS, AT(tools_timeout), .fallback = "180s", .min = 1, .max = MAX_MS,
     .env = "TOOL_SANDBOX_TIMEOUT LETTA_TOOL_SANDBOX_TIMEOUT", LIVE,
     .help = "wall clock of a run that says nothing else"},
    {"tools", "max_timeout", CONFIG_MS, AT(tools_max_timeout), .fallback = "1h", .min = 1, .max = MAX_MS, LIVE,
     .help = "and the most a run can ask for"},
    {"tools", "default", CONFIG_TEXT, AT(tools_default), .fallback = "allow", .words = "allow deny", LIVE,
     .help = "allow or deny: tools that no list of an organisation or key names"},
    {"tools", "pass_tool_env", CONFIG_BOOL, AT(tools_pass_env), .fallback = "false",
     .help = "TOOL_* of the daemon's environment reaches every run"},
    {"tools", "strict", CONFIG_BOOL, AT(tools_strict), .fallback = "false", LIVE,
     .help = "a new interpreter for every run, never a forked one"},
    {"tools", "max_runs", CONFIG_COUNT, AT(tools_max_runs), .fallback = "1024", .min = 1, .max = 1000000, LIVE,
     .help = "runs at once"},
    {"tools", "pool_max", CONFIG_COUNT, AT(tools_pool_max), .fallback = "128", .min = 1, .max = 100000, .zero = true,
     LIVE, .help = "children parked per pool; 0: none"},
    {"tools", "pool_memory", CONFIG_SIZE, AT(tools_pool_memory), .fallback = "1g", .min = MIB, .max = MAX_SIZE, LIVE,
     .help = "memory of all parked children"},
    {"tools", "prewarm", CONFIG_COUNT, AT(tools_prewarm), .fallback = "0", .min = 1, .max = 100000, .zero = true,
     .help = "Python children parked at the start for the first organisation"},
    {"tools", "allow_urls", CONFIG_BOOL, AT(tools_allow_urls), .fallback = "false", LIVE,
     .help = "requirements may be URLs, paths and options"},
    {"tools", "share_sets", CONFIG_BOOL, AT(tools_share_sets), .fallback = "false",
     .help = "organisations share dependency sets that are pinned by hash"},
    {"tools", "sets_bytes", CONFIG_SIZE, AT(tools_sets_bytes), .fallback = "10g", .min = MIB, .max = MAX_SIZE, LIVE,
     .help = "dependency sets are collected past this"},
    {"tools", "sets_age", CONFIG_SECONDS, AT(tools_sets_seconds), .fallback = "720h", .min = 60, .max = MAX_S, LIVE,
     .help = "or when unused for so long"},
    {"tools", "find_links", CONFIG_TEXT, AT(tools_find_links), .fallback = "", .rule = config_rule_file,
     .help = "directory of wheels that pip takes instead of an index"},
    {"tools", "npm_registry", CONFIG_TEXT, AT(tools_npm_registry), .fallback = "", .rule = config_rule_url,
     .help = "URL of the registry; empty: npm's own setting"},
    {"tools", "fallback", CONFIG_TEXT, AT(tools_fallback), .fallback = "auto", .words = "auto none", LIVE,
     .help = "auto or none: whether another provider may take a run"},
    {"tools", "approval_timeout", CONFIG_MS, AT(tools_approval_timeout), .fallback = "5m", .min = 100, .max = MAX_MS,
     LIVE, .help = "a run waits so long for a yes"},
    {"tools", "reveal_secrets", CONFIG_BOOL, AT(tools_reveal), .fallback = "false",
     .help = "listings of variables have their values, as Letta's do"},
    {"tools", "webhook_url", CONFIG_TEXT, AT(tools_webhook_url), .fallback = "", .rule = config_rule_url,
     .env = "STEP_ORCHESTRATOR_ENDPOINT", .help = "base URL of the credential webhook"},
    {"tools", "webhook_key", CONFIG_TEXT, AT(tools_webhook_key), .fallback = "", .env = "STEP_COMPLETE_KEY",
     .secret = true, .help = "its bearer key"},
    {"tools", "webhook_timeout", CONFIG_MS, AT(tools_webhook_timeout), .fallback = "10s", .min = 100, .max = 60000,
     .help = "time for one answer"},
    {"tools", "webhook_cache", CONFIG_MS, AT(tools_webhook_cache), .fallback = "5s", .min = 1, .max = 3600000,
     .zero = true, .help = "an answer is used for so long"},
    {"tools", "e2b_api_key", CONFIG_TEXT, AT(tools_e2b_key), .fallback = "", .env = "E2B_API_KEY", .secret = true,
     .help = "of the provider e2b"},
    {"tools", "e2b_template", CONFIG_TEXT, AT(tools_e2b_template), .fallback = "", .env = "E2B_SANDBOX_TEMPLATE_ID",
     .help = "its template where a configuration has none"},
    {"tools", "modal_token_id", CONFIG_TEXT, AT(tools_modal_id), .fallback = "", .env = "MODAL_TOKEN_ID",
     .secret = true, .help = "of the provider modal"},
    {"tools", "modal_token_secret", CONFIG_TEXT, AT(tools_modal_secret), .fallback = "", .env = "MODAL_TOKEN_SECRET",
     .secret = true, .help = "of the provider modal"},
    {"tools", "legacy_key", CONFIG_TEXT, AT(tools_legacy_key), .fallback = "", .env = "LETTA_ENCRYPTION_KEY",
     .secret = true, .help = "opens values that Letta has stored; they are sealed again when written"},

    /* ---- [audit] ---- */
    {"audit", "payloads", CONFIG_BOOL, AT(audit_payloads), .fallback = "false", LIVE,
     .help = "arguments and results of runs are in the log, scrubbed of secrets"},

    /* ---- [secrets] ---- */
    {"secrets", "key_file", CONFIG_TEXT, AT(secrets_key_file), .fallback = "", .rule = config_rule_file,
     .help = "file with the keys that secrets are sealed with (brig secret keygen > FILE)"},
    {"secrets", "key_env", CONFIG_TEXT, AT(secrets_key_env), .fallback = "BRIG_SECRETS_KEY",
     .rule = config_rule_variable, .help = "variable that has them, where it is set"},
    {"secrets", "key_command", CONFIG_TEXT, AT(secrets_key_command), .fallback = "", .rule = config_rule_command,
     .list = true, .help = "program and arguments, run once at the start without a shell, that prints them"},
    {"secrets", "insecure_plaintext", CONFIG_BOOL, AT(secrets_plaintext), .fallback = "false",
     .help = "store secrets unencrypted where there is no key"},

    /* ---- [gate]: brig-egress ---- */
    {"gate", "resolvers", CONFIG_TEXT, AT(gate_resolvers), .fallback = "", .rule = config_rule_resolvers, .list = true,
     .help = "name servers, ADDRESS[:PORT] each, instead of those of /etc/resolv.conf"},
    {"gate", "private_ranges", CONFIG_TEXT, AT(gate_private_ranges), .fallback = "socket", .words = "socket admin all",
     LIVE,
     .help = "who may name private addresses, in policies and as registries: socket (its administrator), admin or all"},
    {"gate", "user_connections", CONFIG_COUNT, AT(gate_user_connections), .fallback = "1024", .min = 1, .max = 65536,
     LIVE, .help = "open connections of one sandbox that a key which is not an administrator's may ask for"},
    {"gate", "ca_bundle", CONFIG_TEXT, AT(gate_ca_bundle), .fallback = "", .rule = config_rule_file,
     .help = "file of the certificate authorities that are trusted; empty: the system's"},

    /* ---- [templates] ---- */
    {"templates", "registries", CONFIG_BOOL, AT(templates_registries), .fallback = "true",
     .help = "connect to registries of images; false: templates come from archives alone"},
    {"templates", "mirrors", CONFIG_TEXT, AT(templates_mirrors), .fallback = "", .rule = config_rule_mirrors,
     .list = true, LIVE, .help = "HOST=URL: tried in order before the registry HOST itself"},
    {"templates", "insecure", CONFIG_TEXT, AT(templates_insecure), .fallback = "", .rule = config_rule_servers,
     .list = true, LIVE, .help = "registries HOST or HOST:PORT that may be asked without TLS, beside loopback"},
    {"templates", "proxy", CONFIG_TEXT, AT(templates_proxy), .fallback = "", .rule = config_rule_proxy, LIVE,
     .help = "URL of the proxy to registries; none; empty: HTTPS_PROXY and NO_PROXY of the environment"},
    {"templates", "pull", CONFIG_TEXT, AT(templates_pull), .fallback = "", .rule = config_rule_pull, .list = true, LIVE,
     .help = "images that are pulled if their templates are missing, shared with all: REFERENCE or NAME=REFERENCE"},
    {"templates", "allow", CONFIG_TEXT, AT(templates_allow), .fallback = "", .rule = config_rule_allow, .list = true,
     LIVE, .help = "who else may make templates: ORGANISATION=load, =build, or =HOST/PATH of images it may pull"},
    {"templates", "debian_mirror", CONFIG_TEXT, AT(templates_debian_mirror), .fallback = "",
     .rule = config_rule_debian_mirror, LIVE,
     .help = "URL of the Debian that FROM debian-mirror:SUITE takes; empty: the apt sources of this host"},
    {"templates", "max_image", CONFIG_SIZE, AT(templates_max_image), .fallback = "32g", .min = MIB, .max = MAX_SIZE,
     LIVE, .help = "bytes of one image, packed and unpacked"},
    {"templates", "max_files", CONFIG_COUNT, AT(templates_max_files), .fallback = "2000000", .min = 1, .max = 100000000,
     LIVE, .help = "files of one layer"},
    {"templates", "timeout", CONFIG_MS, AT(templates_timeout), .fallback = "30m", .min = 1000, .max = MAX_MS, LIVE,
     .help = "time to unpack one layer"},
    {"templates", "pool_max", CONFIG_SIZE, AT(templates_pool_max), .fallback = "0", .min = GIB, .max = MAX_SIZE,
     .zero = true,
     .help = "bytes that snapshots, volumes and forkable disks may take; 0: half of what is free at the start"},

    /* ---- [vm]: virtual machines ---- */
    {"vm", "kernel", CONFIG_TEXT, AT(vm_kernel), .fallback = "", .rule = config_rule_file,
     .help = "DIR/boot/vmlinuz-VERSION with its modules in DIR/lib/modules (brig-vm-prepare DIR); empty: no machines"},
    {"vm", "root", CONFIG_TEXT, AT(vm_root), .fallback = "", .rule = config_rule_file,
     .help = "image of erofs that is the template host of virtual machines"},
    {"vm", "qemu", CONFIG_TEXT, AT(vm_qemu), .fallback = "/usr/bin/qemu-system-x86_64", .rule = config_rule_file,
     .help = "the program, below /usr"},
    {"vm", "accel", CONFIG_TEXT, AT(vm_accel), .fallback = "auto", .words = "auto tcg kvm",
     .help = "tcg emulates; kvm is refused where it does not work; auto is tcg in this version"},
    {"vm", "snapshots", CONFIG_COUNT, AT(vm_snapshots), .fallback = "4", .min = 1, .max = 64, .zero = true,
     .help = "machines that are kept saved, for warm starts, each with its own memory size or network; 0: none"},

    /* ---- [firecracker]: virtual machines of Firecracker, with the root and the modules of [vm] ---- */
    {"firecracker", "path", CONFIG_TEXT, AT(firecracker_path), .fallback = "", .rule = config_rule_file,
     .help = "the program, 1.8 or later; empty: no machines of Firecracker"},
    {"firecracker", "kernel", CONFIG_TEXT, AT(firecracker_kernel), .fallback = "", .rule = config_rule_file,
     .help = "the kernel of [vm] as an uncompressed ELF file (vmlinux)"},

    /* ---- [pool] ---- */
    {"pool", "templates", CONFIG_TEXT, AT(pool_templates), .fallback = "", .rule = config_rule_pool, .list = true, LIVE,
     .help = "sandboxes of templates that are kept ready, with services up: NAME=COUNT or ORGANISATION/NAME=COUNT"},
    {"pool", "keep_free", CONFIG_SIZE, AT(pool_keep_free), .fallback = "256m", .min = MIB, .max = MAX_SIZE,
     .zero = true, LIVE, .help = "none of them is kept while the host has less memory available; 0: always kept"},
    {"pool", "providers", CONFIG_TEXT, AT(pool_providers),
     .fallback = "docker=8 runc=16 crun=16 runsc=8 vm=2 firecracker=2", .rule = config_rule_provider_counts,
     .list = true, LIVE, .help = "interpreters parked at most for runs of a provider: NAME=COUNT; not named: none"},
};
const size_t n_config_keys = ARRAY_SIZE(config_keys);
_Static_assert(ARRAY_SIZE(config_keys) <= CONFIG_KEYS_MAX, "from[] has a place for every key");

int config_find(const char *section, const char *key)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *row = &config_keys[i];
        if (str_eq(row->section, section) && str_eq(row->key, key))
            return (int)i;
        if (row->alias && str_eq(row->alias_section, section) && str_eq(row->alias, key))
            return (int)i;
    }
    return -1;
}

static bool next_section(size_t *at, const char **section)
{
    static const char *const sections[] = {"server", "store", "providers",   "runc",      "crun",    "runsc",
                                           "docker", "vm",    "firecracker", "manager",   "sandbox", "tools",
                                           "audit",  "gate",  "secrets",     "templates", "pool"};

    if (*at == ARRAY_SIZE(sections))
        return false;
    *section = sections[(*at)++];
    return true;
}

bool config_is_section(const char *name)
{
    const char *section;

    for (size_t at = 0; next_section(&at, &section);)
        if (str_eq(section, name))
            return true;
    return false;
}

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Whether name begins with BRIG_<SECTION>_; *rest is what follows. */
static bool section_prefix(const char *name, size_t len, const char *section, size_t *rest)
{
    size_t n = strlen(section);

    if (len < 5 + n + 1 || memcmp(name, "BRIG_", 5) != 0 || name[5 + n] != '_')
        return false;
    for (size_t i = 0; i < n; i++)
        if (name[5 + i] != upper(section[i]))
            return false;
    *rest = 5 + n + 1;
    return true;
}

bool config_is_env(const char *name, size_t len)
{
    const char *section;
    size_t rest;

    if (len == strlen(CONFIG_KEY_VARIABLE) && memcmp(name, CONFIG_KEY_VARIABLE, len) == 0)
        return false; /* no setting, but the key itself: it is not to be read or shown here */
    for (size_t at = 0; next_section(&at, &section);)
        if (section_prefix(name, len, section, &rest))
            return true;
    return config_find_env(name, len) >= 0;
}

unsigned config_env_rank(const struct config_key *key, const char *name, size_t len)
{
    unsigned rank = 1;

    for (const char *word = key->env; word && *word; rank++) {
        size_t n = strcspn(word, " ");
        if (n == len && memcmp(word, name, len) == 0)
            return rank;
        word += n;
        word += strspn(word, " ");
    }
    return 0;
}

int config_find_env(const char *name, size_t len)
{
    for (size_t i = 0; i < n_config_keys; i++)
        if (config_env_rank(&config_keys[i], name, len) > 0)
            return (int)i;

    const char *section;
    size_t rest;
    char key[64];
    for (size_t at = 0; next_section(&at, &section);) {
        if (!section_prefix(name, len, section, &rest) || len - rest >= sizeof(key))
            continue;
        for (size_t i = rest; i < len; i++) {
            if (name[i] >= 'a' && name[i] <= 'z')
                return -1;
            key[i - rest] = ascii_lower(name[i]);
        }
        key[len - rest] = '\0';
        return config_find(section, key);
    }
    return -1;
}

void config_env_name(const struct config_key *key, char out[64])
{
    int n = str_format(out, 64, "BRIG_%s_%s", key->section, key->key);

    for (int i = 0; i < n; i++)
        out[i] = upper(out[i]);
}
