/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: makes one configuration from defaults, a file, variables and flags, in this order; the later one wins. A
 * struct config_loaded exists only if all of its values passed their rules.
 */
#include "config/config.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config_keys.h"

static int set_defaults(struct config_loaded *loaded, char *const *env, struct brig_err *err)
{
    char path[4096];

    for (size_t i = 0; i < n_config_keys; i++) {
        int r = config_set(&loaded->config, &config_keys[i], config_keys[i].key, config_keys[i].fallback, err);
        if (r < 0)
            return r;
    }
    /* No place for a socket is an error only if nobody names one: config_check(). */
    if (config_socket_path(env, path, sizeof(path)) < 0 || config_rule_socket(path))
        return 0;
    return config_set(&loaded->config, &config_keys[config_find("server", "socket")], "socket", path, err);
}

static int read_file(struct config_loaded *loaded, const char *named, char *const *env, struct brig_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    int r = config_open(named, env, loaded, &text, &len, err);

    if (r != 0)
        return r < 0 ? r : 0;
    r = config_read(loaded, text, len, err);
    explicit_bzero(text, len); /* there may be keys of others in it */
    return r;
}

static int refuse_variable(const char *name, int len, struct brig_err *err)
{
    char names[CONFIG_KEYS_MAX][64], word[64];
    const char *words[CONFIG_KEYS_MAX];

    for (size_t i = 0; i < n_config_keys; i++) {
        config_env_name(&config_keys[i], names[i]);
        words[i] = names[i];
    }
    if (str_format(word, sizeof(word), "%.*s", len, name) < 0)
        return err_usage(err, "%.60s...: there is no such setting", name);
    const char *nearest = config_nearest(word, words, n_config_keys);
    if (nearest)
        return err_usage(err, "%s: there is no such setting; did you mean %s?", word, nearest);
    return err_usage(err, "%s: there is no such setting", word);
}

/*
 * Decides about a variable whose key another variable has set already: 1, it counts; -1, it gives way; 0, it is one too
 * many. Two of brig's own are a mistake. Names of other programs are there for those programs too: brig's own wins over
 * them, and among them the first of the row wins.
 */
static int compare_variables(const struct config_key *key, const struct config_from *from, const char *name)
{
    const bool ours = str_starts(name, "BRIG_"), theirs = !str_starts(from->env, "BRIG_");

    if (from->source != CONFIG_ENV || str_eq(from->env, name))
        return 1;
    if (ours && !theirs)
        return 0;
    if (ours || !theirs)
        return ours ? 1 : -1;
    return config_env_rank(key, name, strlen(name)) < config_env_rank(key, from->env, strlen(from->env)) ? 1 : -1;
}

static int read_variables(struct config_loaded *loaded, char *const *env, struct brig_err *err)
{
    for (; env && *env; env++) {
        size_t len = strcspn(*env, "=");
        if ((*env)[len] != '=' || !config_is_env(*env, len))
            continue;
        int index = config_find_env(*env, len);
        if (index < 0 || len >= sizeof(loaded->from[0].env))
            return refuse_variable(*env, (int)len, err);
        struct config_from *from = &loaded->from[index], next = {.source = CONFIG_ENV};
        memcpy(next.env, *env, len);
        int order = compare_variables(&config_keys[index], from, next.env);
        if (order == 0)
            return err_usage(err, "%s and %s are the same setting; set one of them", from->env, next.env);
        if (order < 0)
            continue;
        int r = config_set(&loaded->config, &config_keys[index], next.env, *env + len + 1, err);
        if (r < 0)
            return r;
        *from = next;
    }
    return 0;
}

/* What is accepted but does not do what it says. */
static int note_effects(struct config_loaded *loaded)
{
    const struct config *config = &loaded->config;
    char origin[128];
    int r = 0;

    if (!str_eq(config->image, config->image_asked)) {
        config_origin(loaded, (size_t)config_find("sandbox", "image"), origin, sizeof(origin));
        r = config_add_note(loaded, "%s: image `%s` means the template `%s`: the Python of this host", origin,
                            config->image_asked, config->image);
    }
    if (r == 0 && !config->use_sandbox) {
        config_origin(loaded, (size_t)config_find("sandbox", "use_sandbox"), origin, sizeof(origin));
        r = config_add_note(loaded, "%s: use_sandbox = false is without effect: everything runs in sandboxes", origin);
    }
    if (r == 0 && config->network_enabled && config->network[0]) {
        config_origin(loaded, (size_t)config_find("sandbox", "network_enabled"), origin, sizeof(origin));
        r = config_add_note(loaded, "%s: network_enabled = true is without effect: network = \"%s\" decides", origin,
                            config->network);
    }
    if (r == 0 && config->secrets_plaintext) {
        config_origin(loaded, (size_t)config_find("secrets", "insecure_plaintext"), origin, sizeof(origin));
        r = config_add_note(loaded, "%s: insecure_plaintext = true: without a key, secrets are stored UNENCRYPTED",
                            origin);
    }
    return r;
}

/* text NULL: the file is looked for; else it is this, called path. */
static int load(const char *path, const char *text, size_t len, char *const *env, struct config_loaded **ret,
                struct brig_err *err)
{
    struct config_loaded *loaded = mem_zalloc(sizeof(*loaded));

    if (!loaded)
        return err_nomem(err);
    int r = set_defaults(loaded, env, err);
    if (r == 0 && text && !(loaded->path = mem_strdup(path)))
        r = err_nomem(err);
    if (r == 0)
        r = text ? config_read(loaded, text, len, err) : read_file(loaded, path, env, err);
    if (r == 0)
        r = read_variables(loaded, env, err);
    if (r == 0)
        r = config_check(loaded, err);
    if (r == 0 && note_effects(loaded) < 0)
        r = err_nomem(err);
    if (r < 0) {
        config_free(loaded);
        return r;
    }
    *ret = loaded;
    return 0;
}

int config_load(const char *path, char *const *env, struct config_loaded **ret, struct brig_err *err)
{
    return load(path, NULL, 0, env, ret, err);
}

int config_load_text(const char *path, const char *text, size_t len, char *const *env, struct config_loaded **ret,
                     struct brig_err *err)
{
    return load(path, text ? text : "", len, env, ret, err);
}

void config_free(struct config_loaded *loaded)
{
    if (!loaded)
        return;
    for (size_t i = 0; i < n_config_keys; i++) {
        if (config_keys[i].type != CONFIG_TEXT)
            continue;
        char *text = *(char **)((char *)&loaded->config + config_keys[i].offset);
        if (text && config_keys[i].secret)
            explicit_bzero(text, strlen(text));
        mem_free(text);
    }
    mem_free(loaded->config.image_asked);
    for (size_t i = 0; i < loaded->n_notes; i++)
        mem_free(loaded->notes[i]);
    mem_free(loaded->notes);
    mem_free(loaded->path);
    mem_free(loaded);
}

int config_check(const struct config_loaded *loaded, struct brig_err *err)
{
    const struct config *config = &loaded->config;

    if (config->socket[0] == '\0')
        return err_usage(err,
                         "no place for the socket: set BRIG_SOCKET, BRIG_RUN_DIR, XDG_RUNTIME_DIR or HOME (at most 107 "
                         "bytes in all)");
    if ((config->tls_cert[0] == '\0') != (config->tls_key[0] == '\0'))
        return err_usage(err, "server.tls_cert and server.tls_key belong together; only one of them is set");
    if (!config_is_loopback(config->listen) && config->tls_cert[0] == '\0' && !config->insecure)
        return err_set(
            err, BRIG_E_REFUSED, 0,
            "server.listen = %s: an address that is not loopback needs tls_cert and tls_key, or insecure = true",
            config->listen);
    if (config->max_connections_per_peer > config->max_connections)
        return err_usage(err, "server.max_connections_per_peer is more than server.max_connections");
    if (config->secrets_key_file[0] && config->secrets_key_command[0])
        return err_usage(err, "secrets.key_file and secrets.key_command are both set; the keys come from one of them");
    if (config->audit_rotate_bytes > config->keep_audit_bytes)
        return err_usage(err, "store.audit_rotate_bytes is more than store.keep_audit_bytes");
    return 0;
}

const struct config *config_get(const struct config_loaded *loaded)
{
    return &loaded->config;
}

const char *config_path(const struct config_loaded *loaded)
{
    return loaded->path ? loaded->path : "";
}

int config_override(struct config_loaded *loaded, const char *key, const char *value, struct brig_err *err)
{
    char section[32];
    const char *dot = strchr(key, '.');
    int index = -1;

    if (dot && str_format(section, sizeof(section), "%.*s", (int)(dot - key), key) > 0)
        index = config_find(section, dot + 1);
    if (index < 0)
        return err_usage(err, "%.64s: there is no such setting", key);
    int r = config_set(&loaded->config, &config_keys[index], key, value, err);
    if (r == 0)
        loaded->from[index] = (struct config_from){.source = CONFIG_FLAG};
    return r;
}

const char *config_note(const struct config_loaded *loaded, size_t index)
{
    return index < loaded->n_notes ? loaded->notes[index] : NULL;
}

bool config_each(const struct config_loaded *loaded, size_t index, struct config_row *ret)
{
    if (index >= n_config_keys)
        return false;
    const struct config_key *key = &config_keys[index];
    *ret = (struct config_row){.section = key->section,
                               .key = key->key,
                               .help = key->help,
                               .source = loaded->from[index].source,
                               .line = loaded->from[index].line,
                               .reloadable = key->reloadable};
    if (!key->env || str_format(ret->env, sizeof(ret->env), "%.*s", (int)strcspn(key->env, " "), key->env) < 0)
        config_env_name(key, ret->env);
    config_show(&loaded->config, key, false, ret->value, sizeof(ret->value));
    return true;
}

void config_origin(const struct config_loaded *loaded, size_t index, char *out, size_t size)
{
    const struct config_from *from = &loaded->from[index];

    out[0] = '\0';
    if (from->source == CONFIG_FILE)
        config_where(loaded, from->line, out, size);
    else
        (void)!str_copy(out, size,
                        from->source == CONFIG_ENV    ? from->env
                        : from->source == CONFIG_FLAG ? "flag"
                                                      : "default");
}

void config_diff(const struct config_loaded *now, const struct config_loaded *next, char *out, size_t size)
{
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->reloadable || config_same(&now->config, &next->config, key))
            continue;
        int n = str_format(out + len, size - len, "%s%s.%s", len ? ", " : "", key->section, key->key);
        if (n < 0)
            return;
        len += (size_t)n;
    }
}
