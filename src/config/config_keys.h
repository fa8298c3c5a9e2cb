/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.h: the table of keys, and what the files of this room share. Nobody else includes it. */
#ifndef BRIG_CONFIG_CONFIG_KEYS_H
#define BRIG_CONFIG_CONFIG_KEYS_H

#include "codec/toml/toml.h"
#include "config/config.h"

enum config_type {
    CONFIG_TEXT,
    CONFIG_BOOL,
    CONFIG_COUNT,
    CONFIG_SIZE,    /* bytes */
    CONFIG_MS,      /* a time, kept in milliseconds */
    CONFIG_SECONDS, /* a time, kept in seconds, rounded up */
    CONFIG_CPUS,    /* thousandths */
    CONFIG_TYPE_MAX
};

struct config_key {
    const char *section, *key;
    enum config_type type;
    size_t offset;                         /* in struct config: char *, bool or uint64_t */
    const char *fallback;                  /* the default, as people write it */
    uint64_t min, max;                     /* in the unit kept */
    bool zero;                             /* 0 is allowed too: none, or the default */
    const char *(*rule)(const char *text); /* CONFIG_TEXT: NULL, or the rule that the text breaks */
    const char *alias_section, *alias;     /* another name for it in a file */
    /* Variables beside BRIG_<SECTION>_<KEY>, with blanks between them. Among those that do not begin with BRIG_ the
     * first that is set wins. */
    const char *env;
    bool reloadable, secret;
    bool list; /* CONFIG_TEXT: may be an array of strings in a file; kept with blanks between them */
    const char *help;
};

extern const struct config_key config_keys[];
extern const size_t n_config_keys;
#define CONFIG_KEYS_MAX 144u
#define CONFIG_KEY_VARIABLE "BRIG_SECRETS_KEY"

struct config_from {
    enum config_source source;
    unsigned line;
    char env[64];
};

struct config_loaded {
    struct config config;
    struct config_from from[CONFIG_KEYS_MAX];
    char *path;
    char **notes;
    size_t n_notes;
};

/* config_keys.c. Index of a key by its name or its alias; -1. */
int config_find(const char *section, const char *key);
int config_find_env(const char *name, size_t len); /* by a variable's name */
/* 1, 2, ...: its place in key->env; 0: not there */
unsigned config_env_rank(const struct config_key *key, const char *name, size_t len);
bool config_is_section(const char *name);
bool config_is_env(const char *name, size_t len); /* begins as a variable of ours does */
void config_env_name(const struct config_key *key, char out[64]);

/* config_rules.c */
const char *config_rule_listen(const char *text);
const char *config_rule_socket(const char *text);
const char *config_rule_domain(const char *text);
const char *config_rule_file(const char *text);
const char *config_rule_hosts(const char *text);
const char *config_rule_origins(const char *text);
const char *config_rule_level(const char *text);
const char *config_rule_format(const char *text);
const char *config_rule_private_ranges(const char *text);
const char *config_rule_otlp(const char *text);
const char *config_rule_shutdown(const char *text);
const char *config_rule_database(const char *text);
const char *config_rule_image(const char *text);
const char *config_rule_work_dir(const char *text);
const char *config_rule_require(const char *text);
const char *config_rule_variable(const char *text);
const char *config_rule_command(const char *text);
const char *config_rule_network(const char *text);
const char *config_rule_resolvers(const char *text);
const char *config_rule_venv(const char *text);
const char *config_rule_default(const char *text);
const char *config_rule_fallback(const char *text);
const char *config_rule_url(const char *text);
const char *config_rule_dirs(const char *text);
bool config_is_loopback(const char *listen);

/* config_value.c. where: "config.toml:3: [server] listen", "BRIG_LISTEN", "server.listen": what the message begins
 * with. */
int config_set(struct config *config, const struct config_key *key, const char *where, const char *text,
               struct brig_err *err) MUST_CHECK;
int config_set_toml(struct config *config, const struct config_key *key, const char *where,
                    const struct toml_value *value, struct brig_err *err) MUST_CHECK;
void config_show(const struct config *config, const struct config_key *key, bool secrets, char *out, size_t size);
bool config_same(const struct config *a, const struct config *b, const struct config_key *key);

/* config_file.c */
int config_read(struct config_loaded *loaded, const char *text, size_t len, struct brig_err *err) MUST_CHECK;
int config_add_note(struct config_loaded *loaded, const char *format, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
void config_where(const struct config_loaded *loaded, unsigned line, char *out, size_t size); /* "config.toml:3" */
/* The word nearest to a misspelt one, or NULL: " did you mean `%s`?" needs one that is not far. */
const char *config_nearest(const char *word, const char *const *words, size_t n);

/* config_foreign.c: sections of an OpenManus file that are not ours. */
bool config_is_foreign(const char *section);
int config_check_foreign(struct config_loaded *loaded, const struct toml_value *section,
                         struct brig_err *err) MUST_CHECK;
const char *const *config_foreign_names(size_t *ret_n);

/* config_places.c */
const char *config_env(char *const *env, const char *name); /* NULL when unset */
int config_socket_path(char *const *env, char *out, size_t size) MUST_CHECK;
/* The file, read whole into *ret (free() it; wipe it before); loaded->path is set. 1 when there is none. */
int config_open(const char *named, char *const *env, struct config_loaded *loaded, char **ret, size_t *ret_len,
                struct brig_err *err) MUST_CHECK;

#endif
