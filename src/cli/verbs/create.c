/* SPDX-License-Identifier: Apache-2.0 */
/*
 * create.c: `brig create`: makes a sandbox that stays. Sizes and times travel as they were typed: the daemon has the
 * rules, and its message names them.
 */
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "cli/net_flags.h"
#include "cli/service.h"
#include "cli/services/service_file.h"

struct create_options {
    const char *template, *image, *provider, *name, *user, *profile, *workdir, *timeout, *idle_timeout, *on_timeout,
        *on_death, *idle_policy, *confine, *idempotency;
    const char *memory, *cpus, *disk, *file_size, *io_read_bps, *io_write_bps, *command_timeout, *output;
    uint64_t pids, inodes, open_files;
    bool writable_root, sudo, forkable, json, quiet;
    const char *on_service_failure;
    struct words env, metadata, binds, require, services, services_off;
    struct net_flags net;
};

#define AT(name) offsetof(struct create_options, name)
/* clang-format off */
static const struct flag create_flags[] = {
    {"template", "NAME", "what it is made from (default host: this machine's /usr)", flag_set_text, AT(template), 0},
    {"image", "NAME", "an image of the engine of --provider docker, not a template", flag_set_text, AT(image), 0},
    {"provider", "NAME", "what holds it (default local; brig provider ls)", flag_set_text, AT(provider), 0},
    {"name", "NAME", "a name for it, usable instead of its id", flag_set_text, AT(name), 0},
    {"metadata", "K=V", "a note to find it by (brig ps --metadata K=V)", flag_add_pair, AT(metadata), 0},
    {"env", "K=V", "a variable of all its programs", flag_add_pair, AT(env), 'e'},
    {"volume", "SRC:DST[:ro]", "a volume by its name, or a file or directory of the daemon's machine by its path",
     flag_add_word, AT(binds), 'v'},
    {"forkable", NULL, "its files can be copied at once (brig fork, snapshot, commit)", flag_set_true, AT(forkable), 0},
    {"workdir", "DIR", "where its programs start (default /workspace)", flag_set_text, AT(workdir), 'w'},
    {"timeout", "TIME", "its age: ended (or paused) after this", flag_set_text, AT(timeout), 0},
    {"idle-timeout", "TIME", "ended when nothing happened for this long", flag_set_text, AT(idle_timeout), 0},
    {"on-timeout", "kill|pause", "what the timeout does (default kill)", flag_set_text, AT(on_timeout), 0},
    {"on-death", "none|recreate", "made again after a fault (default none)", flag_set_text, AT(on_death), 0},
    {"idle-policy", "POLICY", "activity: programs keep it (default); requests: only requests do", flag_set_text,
     AT(idle_policy), 0},
    {"memory", "SIZE", "memory of all of it (default 512m)", flag_set_text, AT(memory), 'm'},
    {"cpus", "N", "CPUs, such as 0.5 (default 1)", flag_set_text, AT(cpus), 'c'},
    {"pids", "N", "processes and threads (default 128)", flag_set_count, AT(pids), 0},
    {"disk", "SIZE", "sum of all that is written", flag_set_text, AT(disk), 0},
    {"inodes", "N", "files and directories", flag_set_count, AT(inodes), 0},
    {"open-files", "N", "descriptors of each process", flag_set_count, AT(open_files), 0},
    {"file-size", "SIZE", "size of one file", flag_set_text, AT(file_size), 0},
    {"io-read-bps", "SIZE", "bytes read from disk per second", flag_set_text, AT(io_read_bps), 0},
    {"io-write-bps", "SIZE", "bytes written to disk per second", flag_set_text, AT(io_write_bps), 0},
    {"command-timeout", "TIME", "wall clock of one command (default 300s)", flag_set_text, AT(command_timeout), 0},
    {"output", "SIZE", "output of one command that is kept (default 10m)", flag_set_text, AT(output), 0},
    {"service", "FILE", "a TOML file with [[service]]: programs that start with it and are kept running",
     flag_add_word, AT(services), 0},
    {"no-service", "NAME", "without this service of the template", flag_add_word, AT(services_off), 0},
    {"on-service-failure", "end|keep", "when a service does not come up (default end)", flag_set_text,
     AT(on_service_failure), 0},
    NET_FLAG_ROWS(AT(net)),
    {"profile", "NAME", "default, paranoid or compat", flag_set_text, AT(profile), 0},
    {"require", "all|LAYER,...", "do not make it unless these layers are on", flag_add_word, AT(require), 0},
    {"writable-root", NULL, "the root can be written to", flag_set_true, AT(writable_root), 0},
    {"sudo", NULL, "its programs may become root inside, by sudo", flag_set_true, AT(sudo), 0},
    {"user", "USER", "whose its programs are: NAME or UID[:GROUP]; root installs software", flag_set_text, AT(user),
     'u'},
    {"confine", "root|workdir", "workdir: the files API stays below it", flag_set_text, AT(confine), 0},
    {"idempotency-key", "KEY", "the same key and flags again answer the first sandbox", flag_set_text,
     AT(idempotency), 0},
    FLAG_QUIET("print only its id", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
/* clang-format on */

static const struct flag_table create_table = {
    .usage = "brig create [flags]",
    .purpose = "Makes a sandbox and leaves it running until brig rm, its timeout or its idleness ends it.\n"
               "SIZE: bytes, or a number with k, m, g or t. TIME: seconds, or a number with ms, s, m or h.\n\n"
               "  id=$(brig create -q)\n"
               "  brig create --name build -m 2g -c 2 --timeout 1h --metadata team=web\n"
               "  brig create --allow api.example.com --secret API_KEY",
    FLAGS(create_flags),
};

static void put_limits(struct json *json, const struct create_options *o)
{
    const struct {
        const char *key, *text;
        uint64_t number;
    } limits[] = {
        {"memory", o->memory, 0},
        {"cpus", o->cpus, 0},
        {"pids", NULL, o->pids},
        {"disk", o->disk, 0},
        {"inodes", NULL, o->inodes},
        {"open_files", NULL, o->open_files},
        {"file_size", o->file_size, 0},
        {"io_read_bps", o->io_read_bps, 0},
        {"io_write_bps", o->io_write_bps, 0},
        {"timeout", o->command_timeout, 0},
        {"output", o->output, 0},
    };

    json_key_object(json, "limits");
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        service_put_text(json, limits[i].key, limits[i].text);
        if (limits[i].number > 0)
            json_key_u64(json, limits[i].key, limits[i].number);
    }
    net_flags_put_limits(&o->net, json);
    json_end(json);
}

/* Commas and repeated flags both make a list. */
static void put_require(struct json *json, const struct words *words)
{
    char name[64];

    if (words->n == 0)
        return;
    json_key_array(json, "require");
    for (size_t i = 0; i < words->n; i++) {
        for (const char *at = words->items[i]; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
            json_string(json, name);
        }
    }
    json_end(json);
}

/* A name is a volume; a path begins with "/" or ".". */
static bool is_volume(const char *source)
{
    return source[0] != '/' && source[0] != '.' && source[0] != ':' && !memchr(source, '/', strcspn(source, ":"));
}

static int put_volumes(struct json *json, const struct words *words, struct brig_err *err)
{
    char text[PATH_MAX];
    size_t n = 0;

    for (size_t i = 0; i < words->n; i++) {
        const char *source = words->items[i], *target = strchr(source, ':'),
                   *mode = target ? strchr(target + 1, ':') : NULL;
        if (!is_volume(source))
            continue;
        if (!target || target[1] == '\0' || (mode && strcmp(mode, ":ro") != 0))
            return err_usage(err, "-v %.80s: must be SRC:DST or SRC:DST:ro; a SRC without \"/\" is a volume", source);
        if (n++ == 0)
            json_key_array(json, "volumes");
        json_object(json);
        snprintf(text, sizeof(text), "%.*s", (int)(target - source), source);
        service_put_text(json, "name", text);
        snprintf(text, sizeof(text), "%.*s", (int)strcspn(target + 1, ":"), target + 1);
        service_put_text(json, "target", text);
        if (mode)
            json_key_bool(json, "read_only", true);
        json_end(json);
    }
    if (n > 0)
        json_end(json);
    return 0;
}

/* SRC:DST[:ro|:overlay]; SRC is a path of the machine the daemon runs on, so a relative one is made absolute only for a
 * local daemon. */
static int put_binds(struct json *json, const struct words *words, struct brig_err *err)
{
    char path[PATH_MAX];

    if (words->n == 0)
        return 0;
    json_key_array(json, "binds");
    for (size_t i = 0; i < words->n; i++) {
        const char *source = words->items[i], *target = strchr(source, ':'),
                   *mode = target ? strchr(target + 1, ':') : NULL;
        if (is_volume(source))
            continue;
        if (!target || target == source || target[1] == '\0' ||
            (mode && strcmp(mode, ":ro") != 0 && strcmp(mode, ":overlay") != 0))
            return err_usage(err, "-v %.80s: must be SRC:DST, SRC:DST:ro or SRC:DST:overlay", source);
        snprintf(path, sizeof(path), "%.*s", (int)(target - source), source);
        char *real = *path == '/' || client_is_remote() ? NULL : realpath(path, NULL);
        if (*path != '/' && !real)
            return err_set(err, BRIG_E_USAGE, client_is_remote() ? EINVAL : errno, "-v %.80s", source);
        json_object(json);
        service_put_text(json, "source", real ? real : path);
        free(real);
        snprintf(path, sizeof(path), "%.*s", (int)strcspn(target + 1, ":"), target + 1);
        service_put_text(json, "target", path);
        if (mode)
            json_key_bool(json, mode[1] == 'o' ? "overlay" : "read_only", true);
        json_end(json);
    }
    json_end(json);
    return 0;
}

static int put_spec(struct buf *out, const struct create_options *o, struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    int r;

    json_object(&json);
    service_put_text(&json, "template", o->template);
    service_put_text(&json, "image", o->image);
    service_put_text(&json, "provider", o->provider);
    service_put_text(&json, "name", o->name);
    service_put_text(&json, "user", o->user);
    service_put_text(&json, "profile", o->profile);
    service_put_text(&json, "workdir", o->workdir);
    service_put_text(&json, "timeout", o->timeout);
    service_put_text(&json, "idle_timeout", o->idle_timeout);
    service_put_text(&json, "on_timeout", o->on_timeout);
    service_put_text(&json, "on_death", o->on_death);
    service_put_text(&json, "idle_policy", o->idle_policy);
    service_put_text(&json, "confine", o->confine);
    if (o->writable_root)
        json_key_bool(&json, "writable_root", true);
    if (o->sudo)
        json_key_bool(&json, "sudo", true);
    net_flags_put(&o->net, &json);
    put_limits(&json, o);
    put_require(&json, &o->require);
    if (o->forkable)
        json_key_bool(&json, "forkable", true);
    r = put_binds(&json, &o->binds, err);
    service_put_text(&json, "on_service_failure", o->on_service_failure);
    if (r == 0)
        r = service_files_put(&json, &o->services, &o->services_off, err);
    if (r == 0)
        r = put_volumes(&json, &o->binds, err);
    if (r == 0)
        r = service_put_pairs(&json, "env", o->env.items, o->env.n, err);
    if (r == 0)
        r = service_put_pairs(&json, "metadata", o->metadata.items, o->metadata.n, err);
    json_end(&json);
    if (r == 0 && json_finish(&json) < 0)
        r = err_nomem(err);
    return r;
}

static int create(struct create_options *o)
{
    AUTO_CLIENT struct client *client = NULL;
    AUTO_JSON struct json_doc *doc = NULL;
    AUTO_BUF struct buf body = BUF_INIT(4 << 20);
    struct brig_err err = {0};

    if (net_flags_finish(&o->net, &err) < 0 || put_spec(&body, o, &err) < 0)
        return cli_error("%s", err.message);
    if (!service_open(&client))
        return CLI_FAILED;
    const struct client_request request = {.method = "POST",
                                           .target = "/v1/sandboxes",
                                           .body = body.data,
                                           .body_len = body.len,
                                           /* It waits for the services, each of which has a time of its own. */
                                           .timeout_ms = o->services.n > 0 ? CLIENT_NO_TIMEOUT : 0,
                                           .idempotency = o->idempotency};
    if (client_json(client, &request, &doc, &err) < 0) {
        service_print_failed(client);
        return cli_error("%s", err.message);
    }
    if (!doc)
        return cli_error("%s: an empty answer", client_where(client));
    if (o->json)
        return service_print_json(doc);
    const struct json_value *box = json_root(doc);
    const char *note = get_text(box, "note", "");
    if (*note != '\0' && !o->quiet)
        cli_error("note: %s", note);
    return service_say("%s", get_text(box, "id", ""));
}

static int create_main(int argc, char **argv)
{
    struct create_options options = {0};
    int rest, status;

    if (service_parse(&create_table, argc, argv, &options, 0, 0, "", &rest, &status))
        status = create(&options);
    words_done(&options.env);
    words_done(&options.metadata);
    words_done(&options.binds);
    words_done(&options.require);
    words_done(&options.services);
    words_done(&options.services_off);
    net_flags_done(&options.net);
    return status;
}

const struct cli_verb cli_verb_create = {"create", "make a sandbox that stays", .main = create_main};
