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
    char *listen; /* "127.0.0.1:2744"; "" is none: only the socket */
    char *socket; /* path; by default brig.sock in the run directory (host/dirs.h) */
    char *domain; /* previews: "<port>-<id>.<domain>"; "localhost" */
    char *tls_cert, *tls_key;
    bool insecure;                                      /* allow a listen address that is not loopback without TLS */
    uint64_t max_connections, max_connections_per_peer; /* 10000, 1000 */
    uint64_t max_body; /* a body that is streamed (files, tar, stdin): 64 GiB; 0: no limit of its own */
    uint64_t max_json; /* a body that is read into memory: 8 MiB */
    uint64_t max_headers_bytes, max_headers;             /* 64 KiB, 100 */
    uint64_t header_timeout, body_timeout, idle_timeout; /* ms: 10 s, 30 s without progress, 75 s */
    /* space-separated Host names beside localhost, loopback addresses, the listen address and <domain> */
    char *allowed_hosts;
    char *allowed_origins;                   /* space-separated Origins that may call; none by default */
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

    /* [manager] */
    uint64_t max_sandboxes;                                                 /* 100 */
    uint64_t idle_timeout_s;                                                /* 3600; 0 never */
    uint64_t cleanup_interval;                                              /* 300 */
    uint64_t pool;                                                          /* prepared slots: 4 */
    uint64_t org_max_sandboxes, org_max_cpus, org_max_memory, org_max_disk; /* 0: no quota of its own */
    uint64_t key_max_sandboxes, key_max_cpus, key_max_memory, key_max_disk;
    uint64_t org_max_keys; /* 1000 */
    uint64_t create_queue; /* creates that may wait: 1024; more are 429 */

    /* [sandbox]: defaults of a create; A.1's keys and ours */
    char *image; /* template name: host; also where the file says python:... */
    /* as the file has it: `python:3.12-slim` is to be noted in the receipt where the version differs */
    char *image_asked;
    char *work_dir;            /* /workspace */
    struct brig_limits limits; /* memory_limit, cpu_limit, timeout, pids, disk, ... */
    uint64_t max_age;          /* ms; 0 none */
    bool network_enabled;      /* the network is `open` where `network` is "" */
    char *network;             /* policy of a create that names none; "": see above, else `none` */
    bool use_sandbox;          /* without effect; reported */
    char *require;             /* "all", or layer names */
    char *bind_roots;          /* absolute directories with colons between them; "" none */
    char *templates;           /* directory with templates: <name>/ or <name>.tar; "" none */

    /*
     * host directories that a configuration's sandbox_dir may be in, with colons between them; "" only the default one
     */
    char *allowed_dirs;

    /* [tools]: runs of tools and code; the names of Letta's settings are in config_keys.c */
    char *tools_exec_dir;                      /* TOOL_EXEC_DIR; "": <state>/tool_execution_dir */
    char *tools_venv_name;                     /* TOOL_EXEC_VENV_NAME; "" none */
    bool tools_autoreload_venv;                /* TOOL_EXEC_AUTORELOAD_VENV */
    uint64_t tools_timeout, tools_max_timeout; /* ms: 180 s (TOOL_SANDBOX_TIMEOUT), 3600 s */
    char *tools_default;                       /* allow|deny: of a tool that no list names */
    bool tools_pass_env;                       /* TOOL_* of the daemon's environment is in the base layer */
    bool tools_strict;                         /* every run a new interpreter */
    uint64_t tools_max_runs;                   /* at once: 1024 */
    /* 256, 1 GiB, 0 (Python children parked at the start for the default organisation) */
    uint64_t tools_pool_max, tools_pool_memory, tools_prewarm;
    bool tools_allow_urls;                               /* requirements may be URLs, paths, options */
    bool tools_share_sets;                               /* hash-verified sets are shared by organisations */
    uint64_t tools_sets_bytes, tools_sets_seconds;       /* 10 GiB, 30 days */
    char *tools_find_links;                              /* a directory of wheels; "" the index */
    char *tools_npm_registry;                            /* URL; "" npm's own */
    char *tools_fallback;                                /* "auto" or "none" */
    uint64_t tools_approval_timeout;                     /* ms: 300 s */
    bool tools_reveal;                                   /* listings have values, as Letta's */
    char *tools_webhook_url, *tools_webhook_key;         /* STEP_ORCHESTRATOR_ENDPOINT, STEP_COMPLETE_KEY */
    uint64_t tools_webhook_timeout, tools_webhook_cache; /* ms: 10 s, 5 s */
    char *tools_e2b_key, *tools_e2b_template, *tools_modal_id,
        *tools_modal_secret; /* E2B_API_KEY, E2B_SANDBOX_TEMPLATE_ID, MODAL_TOKEN_ID, MODAL_TOKEN_SECRET */
    char *tools_legacy_key;  /* LETTA_ENCRYPTION_KEY: to read values that Letta has stored */
    bool audit_payloads;     /* [audit] payloads: arguments and results are in the log, scrubbed */

    /* [secrets]: the key ring (crypto/keyring.h); at most one of the three has it */
    char *secrets_key_file; /* absolute path; "" none */
    char *secrets_key_env;  /* name of a variable; BRIG_SECRETS_KEY */
    /* words with blanks between them, the first an absolute path; its output is the ring; "" none */
    char *secrets_key_command;
    bool secrets_plaintext; /* insecure_plaintext: without a key, store values as they are */

    /* [gate] */
    char *gate_resolvers;           /* space-separated; "": resolv.conf's */
    char *gate_private_ranges;      /* who may write policies that allow private ranges: socket, admin, all */
    char *gate_ca_bundle;           /* "": the system's */
    uint64_t gate_user_connections; /* that a key which is not an administrator's may ask for, of one sandbox */
};

enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENV, CONFIG_FLAG, CONFIG_SOURCE_MAX };

struct config_loaded; /* a struct config with the origin of each value and the notes of its reading */

/*
 * path NULL: --config was not given: BRIG_CONFIG, then ./config/config.toml, ~/.config/brig/config.toml,
 * /etc/brig/config.toml; none found: defaults. env: NULL-terminated, as environ. Every value is checked by itself, and
 * then all by config_check(). A file that everybody may write to is refused, and one that was found rather than named
 * when it is neither the caller's nor root's.
 */
int config_load(const char *path, char *const *env, struct config_loaded **ret, struct brig_err *err) MUST_CHECK;
/* The same from a text that somebody else has read; path is what messages call it ("" without a file). */
int config_load_text(const char *path, const char *text, size_t len, char *const *env, struct config_loaded **ret,
                     struct brig_err *err) MUST_CHECK;
void config_free(struct config_loaded *loaded);
const struct config *config_get(const struct config_loaded *loaded);
const char *config_path(const struct config_loaded *loaded); /* "" when none was found */
/*
 * The rules between keys: an address that is not loopback needs TLS or `insecure`, and so on. config_load() has applied
 * them; after the last config_override() they are to be applied again.
 */
int config_check(const struct config_loaded *loaded, struct brig_err *err) MUST_CHECK;
/* A flag wins over all: "server.listen". Only this value is checked; see config_check(). */
int config_override(struct config_loaded *loaded, const char *key, const char *value, struct brig_err *err) MUST_CHECK;
/* Notes for people: unused sections of an OpenManus file, keys without effect. NULL at the end. */
const char *config_note(const struct config_loaded *loaded, size_t index);

/* For show and check: one row per key. false at the end. Secrets (a password in database_url) are masked. */
struct config_row {
    const char *section, *key, *help;
    char env[64]; /* the variable that sets it */
    char value[512];
    enum config_source source;
    unsigned line; /* CONFIG_FILE */
    bool reloadable;
};
bool config_each(const struct config_loaded *loaded, size_t index, struct config_row *ret);
/* Where the value of a row is from: "default", "config/config.toml:12", "BRIG_LISTEN", "flag". */
void config_origin(const struct config_loaded *loaded, size_t index, char *out, size_t size);
/* Keys that differ and need a restart, as "a, b" into out ("" when none); the reloadable ones are fine. */
void config_diff(const struct config_loaded *now, const struct config_loaded *next, char *out, size_t size);

#endif
