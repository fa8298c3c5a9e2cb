/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: config.toml and BRIG_* as one checked struct. Every key is in one table (config_keys.c) with its section,
 * type, range, default, environment variable, whether a reload can change it, and a line for people; reading, `brig
 * config show`, `brig config check`, the man page's table and reload all walk that table.
 */
#ifndef BRIG_CONFIG_CONFIG_H
#define BRIG_CONFIG_CONFIG_H

#include <brig.h>

#include "base/buf.h"

struct config {
    /* [server] */
    char *listen; /* "127.0.0.1:2744"; "" means only the socket. */
    char *socket; /* The path; by default brig.sock in the run directory (host/dirs.h). */
    char *domain; /* previews: "<port>-<id>.<domain>"; "localhost" */
    char *tls_cert, *tls_key;
    bool insecure;                                      /* Allows a listen address that is not loopback without TLS. */
    uint64_t max_connections, max_connections_per_peer; /* 10000, 1000 */
    uint64_t max_body; /* The largest streamed body (files, tar, stdin): 64 GiB; 0: no limit of its own. */
    uint64_t max_json; /* The largest body that is read into memory: 8 MiB. */
    uint64_t max_headers_bytes, max_headers;             /* 64 KiB, 100 */
    uint64_t header_timeout, body_timeout, idle_timeout; /* ms: 10 s, 30 s without progress, 75 s */
    /* Host names, separated by spaces, beside localhost, loopback addresses, the listen address and <domain>. */
    char *allowed_hosts;
    char *allowed_origins;                   /* Origins that may call, separated by spaces; none by default. */
    char *otlp_endpoint;                     /* "": no traces */
    char *log_level, *log_file, *log_format; /* info; "": stderr; json|text */
    bool metrics_per_sandbox;
    uint64_t drain_timeout; /* ms: 10 s */
    char *on_shutdown;      /* kill|keep */

    /* [store] */
    char *database_url;                            /* "" : sqlite in the state directory */
    uint64_t keep_runs_seconds, keep_runs_bytes;   /* 30 days, 1 GiB */
    uint64_t keep_audit_seconds, keep_audit_bytes; /* 0 (for ever), 1 GiB */
    uint64_t audit_rotate_bytes;
    uint64_t suspicious_count, suspicious_seconds; /* 10 in 60 */

    /* [providers], [runc], [crun], [runsc], [docker] */
    char *providers_only;                     /* names; "": all */
    uint64_t start_timeout;                   /* ms: 20 s */
    char *runc_path, *crun_path, *runsc_path; /* "": in the usual directories */
    char *runsc_platform;                     /* auto */
    char *docker_socket;                      /* "": that of DOCKER_HOST */
    char *docker_image, *docker_runtime;      /* "": none, the engine's own */
    char *docker_pull;                        /* missing, never */

    /* [manager] */
    char *provider;                                                         /* of sandboxes that name none: local */
    uint64_t max_sandboxes;                                                 /* 100 */
    uint64_t idle_timeout_s;                                                /* 3600; 0 never */
    uint64_t cleanup_interval;                                              /* 300 */
    uint64_t pool;                                                          /* Prepared sandboxes: 4. */
    uint64_t org_max_sandboxes, org_max_cpus, org_max_memory, org_max_disk; /* 0 means no quota of its own. */
    uint64_t key_max_sandboxes, key_max_cpus, key_max_memory, key_max_disk;
    uint64_t org_max_keys; /* 1000 */
    uint64_t create_queue; /* The creates that may wait: 1024; more are answered with 429. */

    /* [sandbox]: the defaults of a create; OpenManus's keys and brig's own. */
    char *image; /* The name of the template: host, also where the file says python:... */
    /* The image as the file has it: if the version differs from `python:3.12-slim`, the receipt notes it. */
    char *image_asked;
    char *work_dir;            /* /workspace */
    struct brig_limits limits; /* memory_limit, cpu_limit, timeout, pids, disk, ... */
    uint64_t max_age;          /* ms; 0 none */
    bool network_enabled;      /* If `network` is "", the network is `open`. */
    char *network;             /* The policy of a create that names none; "": see above, else `none`. */
    bool use_sandbox;          /* It has no effect, and that is reported. */
    char *require;             /* "all", or layer names */
    char *bind_roots;          /* Absolute directories, separated by colons; "" means none. */
    bool sandbox_forkable;     /* Stores are disks unless the request says otherwise. */
    char *templates;           /* The directory with templates: <name>/ or <name>.tar; "" means none. */

    /* [templates] */
    /* Words ORGANISATION=load, =build and =PREFIX: who may, beside administrators, load, build and pull. */
    char *templates_allow;
    uint64_t templates_max_image; /* The bytes of one image: 32 GiB. */
    uint64_t templates_max_files; /* The files of one layer: 2,000,000. */
    uint64_t templates_timeout;   /* ms for one layer: 30 min */
    uint64_t templates_pool_max;  /* The bytes of all disks that are kept; 0: half of what is free. */

    /* [pool] */
    char *pool_providers;    /* NAME=COUNT, with blanks between: interpreters parked at most for a provider */
    char *pool_templates;    /* [ORGANISATION/]NAME=COUNT, with blanks between: sandboxes that are kept ready; "" */
    uint64_t pool_keep_free; /* None of them while the host has less memory: 256 MiB; 0: whatever it has. */

    /*
     * The host directories that a configuration's sandbox_dir may be in, separated by colons; "" means only the default
     * one.
     */
    char *allowed_dirs;

    /* [tools]: runs of tools and code. config_keys.c has the names of Letta's settings. */
    char *tools_exec_dir;                      /* TOOL_EXEC_DIR; "": <state>/tool_execution_dir */
    char *tools_venv_name;                     /* TOOL_EXEC_VENV_NAME; "" none */
    bool tools_autoreload_venv;                /* TOOL_EXEC_AUTORELOAD_VENV */
    uint64_t tools_timeout, tools_max_timeout; /* ms: 180 s (TOOL_SANDBOX_TIMEOUT), 3600 s */
    char *tools_default;                       /* allow|deny, for a tool that no list names. */
    bool tools_pass_env;                       /* TOOL_* of the daemon's environment are in the base layer. */
    bool tools_strict;                         /* Every run starts a new interpreter. */
    uint64_t tools_max_runs;                   /* The runs at once: 1024. */
    /*
     * 256, 1 GiB, 0. The last is the number of Python children that are parked at the start for the default
     * organisation.
     */
    uint64_t tools_pool_max, tools_pool_memory, tools_prewarm;
    bool tools_allow_urls; /* Requirements may be URLs, paths and options. */
    /* Hash-verified dependency sets are shared by organisations. */
    bool tools_share_sets;
    uint64_t tools_sets_bytes, tools_sets_seconds;       /* 10 GiB, 30 days */
    char *tools_find_links;                              /* A directory of wheels; "" means the index. */
    char *tools_npm_registry;                            /* URL; "" npm's own */
    char *tools_fallback;                                /* "auto" or "none" */
    uint64_t tools_approval_timeout;                     /* ms: 300 s */
    bool tools_reveal;                                   /* Listings show values, as Letta's do. */
    char *tools_webhook_url, *tools_webhook_key;         /* STEP_ORCHESTRATOR_ENDPOINT, STEP_COMPLETE_KEY */
    uint64_t tools_webhook_timeout, tools_webhook_cache; /* ms: 10 s, 5 s */
    char *tools_e2b_key, *tools_e2b_template, *tools_modal_id,
        *tools_modal_secret; /* E2B_API_KEY, E2B_SANDBOX_TEMPLATE_ID, MODAL_TOKEN_ID, MODAL_TOKEN_SECRET. */
    char *tools_legacy_key;  /* LETTA_ENCRYPTION_KEY, to read values that Letta has stored. */
    bool audit_payloads;     /* [audit] payloads: the log has arguments and results, scrubbed. */

    char *vm_kernel, *vm_root, *vm_qemu;         /* [vm]; kernel and root are "" where there are no virtual machines */
    char *firecracker_path, *firecracker_kernel; /* [firecracker]; "" where there are no machines of it */
    char *vm_accel;                              /* auto, tcg or kvm */
    uint64_t vm_snapshots;

    /* [secrets]: the key ring (crypto/keyring.h). At most one of the three has it. */
    char *secrets_key_file; /* absolute path; "" none */
    char *secrets_key_env;  /* The name of a variable; BRIG_SECRETS_KEY. */
    /* A command as words separated by blanks, the first an absolute path. Its output is the ring; "" means none. */
    char *secrets_key_command;
    bool secrets_plaintext; /* insecure_plaintext: without a key, values are stored as they are. */

    /* [gate] */
    char *gate_resolvers;      /* space-separated; "": resolv.conf's */
    char *gate_private_ranges; /* Who may write policies that allow private ranges: socket, admin or all. */
    char *gate_ca_bundle;      /* "": the system's */
    /* The connections per sandbox that a key may ask for if it is not an administrator's. */
    uint64_t gate_user_connections;

    /* [templates] */
    bool templates_registries;     /* brigd connects to registries of images */
    char *templates_debian_mirror; /* FROM debian-mirror:SUITE comes from there; "": from where the host's does */
    char *templates_mirrors, *templates_insecure, *templates_proxy; /* lists have blanks; "": none */
    char *templates_pull;                                           /* [NAME=]REFERENCE, with blanks between */
};

enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENV, CONFIG_FLAG, CONFIG_SOURCE_MAX };

struct config_loaded; /* A struct config with the origin of each value and the notes of its reading. */

/*
 * If path is NULL (no --config), the file is BRIG_CONFIG, then ./config/config.toml, ~/.config/brig/config.toml,
 * /etc/brig/config.toml; if there is none, the defaults hold. env ends with NULL, as environ does. Every value is
 * checked by itself, and then all by config_check(). A file that everybody may write to is refused, and so is a file
 * that was found and not named if it belongs neither to the caller nor to root.
 */
int config_load(const char *path, char *const *env, struct config_loaded **ret, struct brig_err *err) MUST_CHECK;
/* Loads a text that the caller has read. Messages call it path ("" without a file). */
int config_load_text(const char *path, const char *text, size_t len, char *const *env, struct config_loaded **ret,
                     struct brig_err *err) MUST_CHECK;
void config_free(struct config_loaded *loaded);
const struct config *config_get(const struct config_loaded *loaded);
const char *config_path(const struct config_loaded *loaded); /* "" if none was found. */
/*
 * Checks the rules between keys: an address that is not loopback needs TLS or `insecure`, and so on. config_load() has
 * applied them; call this again after the last config_override().
 */
int config_check(const struct config_loaded *loaded, struct brig_err *err) MUST_CHECK;
/* Sets the value of a flag, which wins over all ("server.listen"). Only this value is checked; see config_check(). */
int config_override(struct config_loaded *loaded, const char *key, const char *value, struct brig_err *err) MUST_CHECK;
/* Notes for people: unused sections of an OpenManus file, keys without effect. Returns NULL at the end. */
const char *config_note(const struct config_loaded *loaded, size_t index);

/* One row per key, for show and check. Secrets (a password in database_url) are masked. */
struct config_row {
    const char *section, *key, *help;
    char env[64]; /* The variable that sets it. */
    char value[512];
    enum config_source source;
    unsigned line; /* CONFIG_FILE */
    bool reloadable;
};
bool config_each(const struct config_loaded *loaded, size_t index, struct config_row *ret);
/* Writes the origin of a row's value: "default", "config/config.toml:12", "BRIG_LISTEN", "flag". */
void config_origin(const struct config_loaded *loaded, size_t index, char *out, size_t size);
/* Writes the keys that differ and need a restart, as "a, b" or "". Reloadable keys are not listed. */
void config_diff(const struct config_loaded *now, const struct config_loaded *next, char *out, size_t size);

#endif
