/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.h: the table of keys, and what the files of this room share. No other room includes it. */
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
    size_t offset;                         /* The offset in struct config, of a char *, bool or uint64_t. */
    const char *fallback;                  /* The default, as people write it. */
    uint64_t min, max;                     /* In the unit in which the value is kept. */
    bool zero;                             /* 0 is allowed too; it means none, or the default. */
    const char *words;                     /* CONFIG_TEXT: the texts that it may be, with blanks between them. */
    const char *(*rule)(const char *text); /* CONFIG_TEXT: returns NULL, or the rule that the text breaks. */
    const char *alias_section, *alias;     /* Another name of the key in a file. */
    /* Variables beside BRIG_<SECTION>_<KEY>, with blanks between them. Among those that do not begin with BRIG_ the
     * first that is set wins. */
    const char *env;
    bool reloadable, secret;
    bool list; /* CONFIG_TEXT: a file may have an array of strings. They are kept with blanks between them. */
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

/* config_keys.c: returns the index of a key by its name or alias, or -1. */
int config_find(const char *section, const char *key);
int config_find_env(const char *name, size_t len); /* Finds a key by the name of a variable. */
/* Returns the place of the name in key->env (1, 2, ...), or 0. */
unsigned config_env_rank(const struct config_key *key, const char *name, size_t len);
bool config_is_section(const char *name);
bool config_is_env(const char *name, size_t len); /* Does it begin like one of brig's variables? */
void config_env_name(const struct config_key *key, char out[64]);

/* config_rules.c */
const char *config_rule_listen(const char *text);
const char *config_rule_mirrors(const char *text);
const char *config_rule_proxy(const char *text);
const char *config_rule_pull(const char *text);
const char *config_rule_servers(const char *text);
const char *config_rule_socket(const char *text);
const char *config_rule_domain(const char *text);
const char *config_rule_file(const char *text);
const char *config_rule_allow(const char *text);
const char *config_rule_pool(const char *text);
const char *config_rule_hosts(const char *text);
const char *config_rule_origins(const char *text);
const char *config_rule_otlp(const char *text);
const char *config_rule_database(const char *text);
const char *config_rule_image(const char *text);
const char *config_rule_work_dir(const char *text);
const char *config_rule_require(const char *text);
const char *config_rule_variable(const char *text);
const char *config_rule_command(const char *text);
const char *config_rule_network(const char *text);
const char *config_rule_provider(const char *text); /* provider_names.c */
const char *config_rule_providers(const char *text);
const char *config_rule_provider_counts(const char *text);
const char *config_rule_resolvers(const char *text);
const char *config_rule_venv(const char *text);
const char *config_rule_url(const char *text);
const char *config_rule_debian_mirror(const char *text);
const char *config_rule_dirs(const char *text);
bool config_is_loopback(const char *listen);

/* config_value.c. A message begins with where: "config.toml:3: [server] listen", "BRIG_LISTEN", "server.listen". */
int config_set(struct config *config, const struct config_key *key, const char *where, const char *text,
               struct brig_err *err) MUST_CHECK;
int config_set_toml(struct config *config, const struct config_key *key, const char *where,
                    const struct toml_value *value, struct brig_err *err) MUST_CHECK;
void config_show(const struct config *config, const struct config_key *key, bool secrets, char *out, size_t size);
bool config_same(const struct config *a, const struct config *b, const struct config_key *key);

/* config_file.c */
int config_read(struct config_loaded *loaded, const char *text, size_t len, struct brig_err *err) MUST_CHECK;
int config_add_note(struct config_loaded *loaded, const char *format, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
/* Writes "config.toml:3". */
void config_where(const struct config_loaded *loaded, unsigned line, char *out, size_t size);
/* Returns the word nearest to a misspelt one, for " did you mean `%s`?", or NULL if none is near. */
const char *config_nearest(const char *word, const char *const *words, size_t n);

/* config_foreign.c: the sections of an OpenManus file that brig does not use. */
bool config_is_foreign(const char *section);
int config_check_foreign(struct config_loaded *loaded, const struct toml_value *section,
                         struct brig_err *err) MUST_CHECK;
const char *const *config_foreign_names(size_t *ret_n);

/* config_places.c */
int config_socket_path(char *const *env, char *out, size_t size) MUST_CHECK;
/*
 * Reads the whole file into *ret, which the caller wipes and frees, and sets loaded->path. Returns 1 if there is no
 * file.
 */
int config_open(const char *named, char *const *env, struct config_loaded *loaded, char **ret, size_t *ret_len,
                struct brig_err *err) MUST_CHECK;

#endif
