/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_config.c: parses the configuration of an image: what its programs get (Env, Entrypoint, ...), and which layers
 * make it up. Docker and OCI write the same document. The chain id of a layer says what it and all layers below it are:
 * chain(0) = diff(0), chain(n) = SHA-256 of "chain(n-1) diff(n)".
 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/templates.h"
#include "template/manifest_priv.h"

#define ITEMS_MAX 4096u
#define TEXT_MAX (128u << 10) /* of one argument or variable: what execve(2) takes */
#define PATH_BYTES 4095u
#define WORD_MAX 255u
#define HISTORY_MAX 1024u
#define HEALTH_NS_MAX (UINT64_C(1) << 62)

/* ---- how its programs are started ------------------------------------------------------------------------- */

static int check_env(struct picker *picker, const struct text_list *env)
{
    for (size_t i = 0; i < env->n; i++) {
        const char *equals = strchr(env->items[i], '=');
        if (!equals || equals == env->items[i])
            return pick_refuse(picker, "%s: Env \"%.60s\": a variable is NAME=value", picker->what, env->items[i]);
    }
    return 0;
}

static int check_paths(struct picker *picker, const char *key, const struct text_list *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        if (paths->items[i][0] != '/')
            return pick_refuse(picker, "%s: %s \"%.100s\": a path must be absolute", picker->what, key,
                               paths->items[i]);
    return 0;
}

/* "80", "80/tcp", "8000-8010/udp". */
static bool port_ok(const char *text)
{
    for (unsigned i = 0;; i++) {
        size_t n = strspn(text, "0123456789");
        if (n == 0 || n > 5)
            return false;
        text += n;
        if (*text != '-' || i == 1)
            break;
        text++;
    }
    return *text == '\0' || str_eq(text, "/tcp") || str_eq(text, "/udp") || str_eq(text, "/sctp");
}

static int check_ports(struct picker *picker, const struct text_list *ports)
{
    for (size_t i = 0; i < ports->n; i++)
        if (!port_ok(ports->items[i]))
            return pick_refuse(picker, "%s: ExposedPorts \"%.60s\": a port is NUMBER/tcp, NUMBER/udp or a range",
                               picker->what, ports->items[i]);
    return 0;
}

static int check_signal(struct picker *picker, const char *name)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-");

    return name[n] == '\0' && n <= 32
               ? 0
               : pick_refuse(picker, "%s: StopSignal \"%.60s\" is no name or number of a signal", picker->what, name);
}

static int read_health(struct picker *picker, const struct json_value *from, struct image_config *ret)
{
    const struct json_value *health = NULL;
    uint64_t retries = 0;
    bool there = false;
    int r = pick_member(picker, from, "Healthcheck", JSON_OBJECT, &health);

    if (r < 0 || !health)
        return r;
    const struct {
        const char *key;
        uint64_t *to, max;
    } numbers[] = {{"Interval", &ret->health_interval_ns, HEALTH_NS_MAX},
                   {"Timeout", &ret->health_timeout_ns, HEALTH_NS_MAX},
                   {"StartPeriod", &ret->health_start_period_ns, HEALTH_NS_MAX},
                   {"StartInterval", &ret->health_start_interval_ns, HEALTH_NS_MAX},
                   {"Retries", &retries, UINT32_MAX}};
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(numbers); i++)
        r = pick_number(picker, health, numbers[i].key, numbers[i].max, numbers[i].to);
    if (r == 0)
        r = pick_list(picker, health, "Test", ITEMS_MAX, TEXT_MAX, &ret->health_test, &there);
    if (r < 0)
        return r;
    ret->health_retries = (uint32_t)retries;
    struct text_list *test = &ret->health_test;
    if (test->n == 0)
        return 0; /* inherited from a base that this image does not have */
    const char *first = test->items[0];
    ret->health = str_eq(first, "NONE") ? HEALTH_NONE : str_eq(first, "CMD") ? HEALTH_CMD : HEALTH_CMD_SHELL;
    if (ret->health == HEALTH_NONE  ? test->n != 1
        : ret->health == HEALTH_CMD ? test->n < 2
                                    : !str_eq(first, "CMD-SHELL") || test->n != 2)
        return pick_refuse(picker, "%s: Healthcheck.Test is [\"NONE\"], [\"CMD\", ARGS...] or [\"CMD-SHELL\", LINE]",
                           picker->what);
    test->items++;
    test->n--;
    return 0;
}

static int read_start(struct picker *picker, const struct json_value *from, struct image_config *ret)
{
    int r = pick_list(picker, from, "Env", ITEMS_MAX, TEXT_MAX, &ret->env, NULL);

    if (r == 0)
        r = check_env(picker, &ret->env);
    if (r == 0)
        r = pick_list(picker, from, "Entrypoint", ITEMS_MAX, TEXT_MAX, &ret->entrypoint, &ret->has_entrypoint);
    if (r == 0)
        r = pick_list(picker, from, "Cmd", ITEMS_MAX, TEXT_MAX, &ret->cmd, &ret->has_cmd);
    if (r == 0)
        r = pick_list(picker, from, "Shell", ITEMS_MAX, TEXT_MAX, &ret->shell, &ret->has_shell);
    if (r == 0)
        r = pick_string(picker, from, "User", WORD_MAX, &ret->user);
    if (r == 0)
        r = pick_string(picker, from, "WorkingDir", PATH_BYTES, &ret->workdir);
    if (r == 0 && ret->workdir[0])
        r = check_paths(picker, "WorkingDir", &(struct text_list){1, &ret->workdir});
    return r;
}

static int read_rest(struct picker *picker, const struct json_value *from, struct image_config *ret)
{
    int r = pick_keys(picker, from, "ExposedPorts", ITEMS_MAX, WORD_MAX, &ret->exposed, NULL);

    if (r == 0)
        r = check_ports(picker, &ret->exposed);
    if (r == 0)
        r = pick_keys(picker, from, "Labels", ITEMS_MAX, TEXT_MAX, &ret->label_keys, &ret->label_values);
    if (r == 0)
        r = pick_keys(picker, from, "Volumes", ITEMS_MAX, PATH_BYTES, &ret->volumes, NULL);
    if (r == 0)
        r = check_paths(picker, "Volumes", &ret->volumes);
    if (r == 0)
        r = pick_string(picker, from, "StopSignal", WORD_MAX, &ret->stop_signal);
    if (r == 0)
        r = check_signal(picker, ret->stop_signal);
    return r == 0 ? read_health(picker, from, ret) : r;
}

/* Here it costs nothing yet: no layer was made. */
static int check_size(struct picker *picker, const struct image_config *config)
{
    const struct text_list *const lists[] = {&config->env,     &config->entrypoint,  &config->cmd,
                                             &config->shell,   &config->exposed,     &config->label_keys,
                                             &config->volumes, &config->health_test, &config->label_values};
    size_t bytes = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        for (size_t k = 0; k < lists[i]->n; k++)
            bytes += strlen(lists[i]->items[k]);
    return bytes <= TEMPLATE_IMAGE_MAX
               ? 0
               : pick_refuse(picker,
                             "%s: variables, commands, labels and ports take %zu bytes, and at most %u are allowed",
                             picker->what, bytes, TEMPLATE_IMAGE_MAX);
}

/* ---- what it is made of ----------------------------------------------------------------------------------- */

static int read_platform(struct picker *picker, const struct json_value *root, struct image_config *ret)
{
    const char *os = NULL, *arch = NULL, *variant = NULL;
    int r = pick_string(picker, root, "os", WORD_MAX, &os);

    if (r == 0)
        r = pick_string(picker, root, "architecture", WORD_MAX, &arch);
    if (r == 0)
        r = pick_string(picker, root, "variant", WORD_MAX, &variant);
    if (r == 0 && platform_make(os, arch, variant, &ret->platform) < 0)
        r = pick_refuse(picker, "%s: os \"%.60s\", architecture \"%.60s\", variant \"%.60s\" is no platform",
                        picker->what, os, arch, variant);
    return r;
}

static int make_chain(struct picker *picker, const struct text_list *diffs, struct text_list *ret)
{
    const char **ids = pick_array(picker, diffs->n, sizeof *ids);

    if (!ids)
        return -ENOMEM;
    for (size_t i = 0; i < diffs->n; i++) {
        char text[2 * DIGEST_TEXT], *id = NULL;
        uint8_t sum[SHA256_SIZE];
        if (i == 0) {
            ids[0] = diffs->items[0];
            continue;
        }
        int len = str_format(text, sizeof text, "%s %s", ids[i - 1], diffs->items[i]);
        if (len < 0 || crypto_sha256(text, (size_t)len, sum) < 0 || !(id = pick_array(picker, DIGEST_TEXT, 1)))
            return err_nomem(picker->err);
        memcpy(id, "sha256:", 7);
        crypto_hex(sum, sizeof sum, id + 7);
        ids[i] = id;
    }
    *ret = (struct text_list){diffs->n, ids};
    return 0;
}

static int read_layers(struct picker *picker, const struct json_value *root, size_t n_layers, struct image_config *ret)
{
    const struct json_value *rootfs = NULL;
    const char *type = NULL;
    int r = pick_member(picker, root, "rootfs", JSON_OBJECT, &rootfs);

    if (r == 0 && !rootfs)
        return pick_refuse(picker, "%s: rootfs is missing", picker->what);
    if (r == 0)
        r = pick_string(picker, rootfs, "type", WORD_MAX, &type);
    if (r == 0 && !str_eq(type, "layers"))
        return pick_refuse(picker, "%s: rootfs.type \"%.60s\" must be \"layers\"", picker->what, type);
    if (r == 0)
        r = pick_list(picker, rootfs, "diff_ids", IMAGE_LAYERS_MAX, WORD_MAX, &ret->diff_ids, NULL);
    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i < ret->diff_ids.n; i++)
        r = pick_digest(picker, "diff_ids", ret->diff_ids.items[i]);
    if (r == 0 && ret->diff_ids.n != n_layers)
        r = pick_refuse(picker, "%s: the manifest has %zu layers and the configuration %zu diff_ids", picker->what,
                        n_layers, ret->diff_ids.n);
    return r == 0 ? make_chain(picker, &ret->diff_ids, &ret->chain_ids) : r;
}

/* Tools that squash leave entries out, so fewer are no fault; more would name layers that are not there. */
static int read_history(struct picker *picker, const struct json_value *root, struct image_config *ret)
{
    const struct json_value *history = NULL;
    size_t filled = 0;
    int r = pick_member(picker, root, "history", JSON_ARRAY, &history);

    if (r < 0 || !history)
        return r;
    if (history->count > HISTORY_MAX)
        return pick_refuse(picker, "%s: history has %zu items, and at most %u are allowed", picker->what,
                           history->count, HISTORY_MAX);
    ret->history = pick_array(picker, history->count, sizeof *ret->history);
    if (!ret->history)
        return -ENOMEM;
    for (const struct json_value *item = history->first; item; item = item->next) {
        struct image_history *to = &ret->history[ret->n_history++];
        const struct json_value *empty = NULL;
        if (item->type != JSON_OBJECT)
            return pick_refuse(picker, "%s: the items of history must be objects", picker->what);
        r = pick_string(picker, item, "created_by", IMAGE_CONFIG_BYTES, &to->created_by);
        if (r == 0)
            r = pick_string(picker, item, "comment", IMAGE_CONFIG_BYTES, &to->comment);
        if (r == 0)
            r = pick_member(picker, item, "empty_layer", JSON_BOOL, &empty);
        if (r < 0)
            return r;
        to->empty_layer = empty && empty->boolean;
        filled += !to->empty_layer;
    }
    if (filled > ret->diff_ids.n)
        return pick_refuse(picker, "%s: history names %zu layers and rootfs has %zu", picker->what, filled,
                           ret->diff_ids.n);
    return 0;
}

int image_config_parse(const char *text, size_t len, size_t n_layers, struct image_config **ret, struct brig_err *err)
{
    struct picker picker = {.what = "image configuration", .err = err};
    const struct json_value *root = NULL, *start = NULL;
    struct image_config *config = NULL;
    int r = pick_document(text, len, IMAGE_CONFIG_BYTES, JSON_OBJECT, &picker, &root);

    if (r == 0 && !(config = pick_array(&picker, 1, sizeof *config)))
        r = -ENOMEM;
    if (r == 0)
        r = read_platform(&picker, root, config);
    if (r == 0)
        r = pick_string(&picker, root, "created", WORD_MAX, &config->created);
    if (r == 0)
        r = pick_member(&picker, root, "config", JSON_OBJECT, &start);
    if (r == 0)
        r = read_start(&picker, start, config);
    if (r == 0)
        r = read_rest(&picker, start, config);
    if (r == 0)
        r = check_size(&picker, config);
    if (r == 0)
        r = read_layers(&picker, root, n_layers, config);
    if (r == 0)
        r = read_history(&picker, root, config);
    if (r < 0) {
        arena_destroy(picker.arena);
        return r;
    }
    config->arena = picker.arena;
    *ret = config;
    return 0;
}

void image_config_free(struct image_config *config)
{
    if (config)
        arena_destroy(config->arena); /* it is in there itself */
}
