/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_services.c: the definitions of services, from JSON, strictly. What starts a service is read as a process of a
 * sandbox is (process_spec.c), so that argv, env, user and workdir mean the same. The list is put into the order in
 * which it starts; what cannot be put into one is refused with the names.
 */
#include "host/limits.h"
#include "sandbox/private.h"
#include "sandbox/processes.h"
#include "sandbox/services/services.h"

#define READY_MS 30000u
#define STOP_MS 10000u
#define SOCKET_PATH_MAX 107u /* of struct sockaddr_un */

static const char *const restart_words[] = {"no", "on-failure", "always", NULL};

const char *service_restart_name(enum svc_restart restart)
{
    return restart_words[restart];
}

/* Every message begins with the service. */
static int of_service(const char *name, int r, struct brig_err *err)
{
    struct brig_err why = {0};

    if (r >= 0 || !err)
        return r;
    why = *err;
    (void)err_set(err, (enum brig_code)why.code, 0, "service %s: %.180s", name, why.message);
    err->errnum = why.errnum;
    return r;
}

/* ---- one service --------------------------------------------------------------------------------------------- */

static int read_time(const struct json_value *v, const char *key, uint32_t *ret, struct brig_err *err)
{
    uint64_t ms = 0;
    int r = spec_duration(v, key, &ms, err);

    if (r == 0 && ms > SVC_UNIT_TIME_MAX)
        return err_usage(err, "%s: at most %u seconds", key, SVC_UNIT_TIME_MAX / 1000);
    *ret = (uint32_t)ms;
    return r;
}

static int read_path(const struct json_value *v, const char *key, size_t max, struct service_def *def,
                     struct brig_err *err)
{
    int r = spec_string(v, key, max, false, &def->path, err);

    if (r == 0 && (def->path[0] != '/' || !def->path[1]))
        return err_usage(err, "%s \"%.64s\": must be absolute", key, def->path);
    return r;
}

static int read_ready_member(const struct json_value *m, struct service_def *def, unsigned *kinds, struct brig_err *err)
{
    uint64_t port = 0;
    int r;

    if (str_eq(m->key, "timeout"))
        return read_time(m, "ready.timeout", &def->ready_ms, err);
    ++*kinds;
    if (str_eq(m->key, "port")) {
        def->ready = SVC_READY_PORT;
        r = spec_count(m, "ready.port", 1, UINT16_MAX, &port, err);
        def->port = (uint16_t)port;
        return r;
    }
    if (str_eq(m->key, "socket")) {
        def->ready = SVC_READY_SOCKET;
        return read_path(m, "ready.socket", SOCKET_PATH_MAX, def, err);
    }
    if (str_eq(m->key, "file")) {
        def->ready = SVC_READY_FILE;
        return read_path(m, "ready.file", SVC_PATH_MAX - 1, def, err);
    }
    if (str_eq(m->key, "command")) {
        def->ready = SVC_READY_COMMAND;
        def->command = m;
        return 0;
    }
    return err_usage(err, "ready.%.64s: there is no such member", m->key);
}

static int read_ready(const struct json_value *v, struct service_def *def, struct brig_err *err)
{
    unsigned kinds = 0;
    int r = 0;

    if (v->type != JSON_OBJECT)
        return err_usage(err, "ready: must be an object with one of port, socket, file, command");
    for (const struct json_value *m = v->first; r == 0 && m; m = m->next)
        r = read_ready_member(m, def, &kinds, err);
    if (r == 0 && kinds != 1)
        return err_usage(err, "ready: must have exactly one of port, socket, file, command");
    return r;
}

static int read_after(const struct json_value *v, struct service_def *def, struct brig_err *err)
{
    const char *text;
    int r = 0;

    if (v->type != JSON_ARRAY)
        return err_usage(err, "after: must be an array of names");
    for (const struct json_value *item = v->first; r == 0 && item; item = item->next)
        r = spec_string(item, "after", SVC_UNIT_NAME_MAX, false, &text, err);
    def->after = v;
    return r;
}

static bool is_process_key(const char *key)
{
    return str_eq(key, "argv") || str_eq(key, "env") || str_eq(key, "user") || str_eq(key, "workdir");
}

static int read_member(const struct json_value *m, struct service_def *def, struct brig_err *err)
{
    int r;

    if (str_eq(m->key, "name") || is_process_key(m->key))
        return 0;
    if (str_eq(m->key, "off"))
        return spec_bool(m, "off", &def->off, err);
    if (str_eq(m->key, "after"))
        return read_after(m, def, err);
    if (str_eq(m->key, "ready"))
        return read_ready(m, def, err);
    if (str_eq(m->key, "stop_timeout"))
        return read_time(m, "stop_timeout", &def->stop_ms, err);
    if (str_eq(m->key, "restart")) {
        r = spec_word(m, "restart", restart_words, err);
        def->restart = r < 0 ? SVC_RESTART_NO : (enum svc_restart)r;
        return r < 0 ? r : 0;
    }
    return err_usage(err, "%.64s: there is no such member", m->key);
}

int service_process(const struct service_def *def, bool probe, const struct sbox *sbox, struct process_spec_parsed *ret,
                    struct brig_err *err)
{
    static const char *const keys[][2] = {{"argv", "argv"}, {"env", "env"}, {"user", "user"}, {"workdir", "cwd"}};
    struct json_value members[ARRAY_SIZE(keys)], object = {.type = JSON_OBJECT};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const struct json_value *v = i == 0 && probe ? def->command : json_get(def->json, keys[i][0]);
        if (!v)
            continue;
        struct json_value *m = &members[object.count];
        *m = *v;
        m->key = keys[i][1];
        m->key_len = strlen(keys[i][1]);
        m->next = NULL;
        if (object.count++ > 0)
            m[-1].next = m;
    }
    object.first = object.count ? members : NULL;
    return process_spec_parse(&object, sbox, ret, err);
}

/* Whether a program can be made of it; what the sandbox must have for it is asked when it is made. */
static int check_process(const struct service_def *def, bool probe, struct brig_err *err)
{
    struct process_spec_parsed parsed = {0};
    int r = service_process(def, probe, NULL, &parsed, err);

    process_spec_done(&parsed);
    return r;
}

static int read_one(const struct json_value *v, struct service_def *ret, struct brig_err *err)
{
    struct service_def def = {.json = v, .restart = SVC_RESTART_ON_FAILURE, .ready_ms = READY_MS, .stop_ms = STOP_MS};
    const struct json_value *name = json_get(v, "name");
    int r = 0;

    if (v->type != JSON_OBJECT)
        return err_usage(err, "services: each must be an object");
    if (!name)
        return err_usage(err, "services: each must have a name");
    r = spec_string(name, "services.name", SVC_UNIT_NAME_MAX, false, &def.name, err);
    if (r < 0)
        return r;
    if (!svc_unit_name_ok(def.name, name->len))
        return err_usage(err, "services.name \"%s\": must be [A-Za-z0-9][A-Za-z0-9_.-]*", def.name);
    for (const struct json_value *m = v->first; r == 0 && m; m = m->next)
        r = read_member(m, &def, err);
    if (r == 0 && def.off && v->count > 2)
        r = err_usage(err, "off: one that is off has a name and no other member");
    if (r == 0 && !def.off)
        r = check_process(&def, false, err);
    if (r == 0 && def.command)
        r = check_process(&def, true, err);
    if (r == 0)
        *ret = def;
    return of_service(def.name, r, err);
}

/* ---- the list ------------------------------------------------------------------------------------------------ */

static const struct service_def *find(const struct service_def *list, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++)
        if (str_eq(list[i].name, name))
            return &list[i];
    return NULL;
}

static int add_all(const struct json_value *v, const struct service_defs *over, struct service_def *list, unsigned *n,
                   struct brig_err *err)
{
    unsigned first = *n;

    if (v->type != JSON_ARRAY)
        return err_usage(err, "services: must be an array");
    for (const struct json_value *item = v->first; item; item = item->next) {
        struct service_def def;
        int r = read_one(item, &def, err);
        if (r < 0)
            return r;
        if (find(list + first, *n - first, def.name))
            return err_usage(err, "services: there are two of the name %s", def.name);
        if (over && find(over->list, over->n, def.name))
            continue;
        if (*n == SVC_UNITS_MAX)
            return err_usage(err, "services: more than %u of them", SVC_UNITS_MAX);
        list[(*n)++] = def;
    }
    return 0;
}

/* One that is off is the template's, and whoever comes after it says so no more. */
static int check_off(const struct service_def *off, const struct json_value *below, const struct service_def *list,
                     unsigned n, struct brig_err *err)
{
    bool there = false;

    for (const struct json_value *v = below ? below->first : NULL; v; v = v->next)
        there = there || str_eq(json_get_text(v, "name", ""), off->name);
    if (!there)
        return err_usage(err, "service %s: off: the template has no such service", off->name);
    for (unsigned i = 0; i < n; i++)
        for (const struct json_value *v = list[i].after ? list[i].after->first : NULL; v; v = v->next)
            if (str_eq(v->string, off->name))
                return err_usage(err, "service %s: after \"%s\": that one is off", list[i].name, off->name);
    return 0;
}

static int check_after(const struct service_def *list, unsigned n, const struct service_def *def, bool stored,
                       struct brig_err *err)
{
    if (!stored && def->after && def->after->count > SVC_UNITS_MAX) /* older versions took more */
        return err_usage(err, "service %s: after: must be an array of at most %u names", def->name, SVC_UNITS_MAX);
    for (const struct json_value *item = def->after ? def->after->first : NULL; item; item = item->next)
        if (!find(list, n, item->string))
            return err_usage(err, "service %s: after \"%.64s\": there is no such service", def->name, item->string);
    return 0;
}

static bool can_follow(const struct service_def *def, const struct service_defs *placed)
{
    for (const struct json_value *item = def->after ? def->after->first : NULL; item; item = item->next)
        if (!find(placed->list, placed->n, item->string))
            return false;
    return true;
}

/* Whatever is left comes after each other; the names of the first few say enough. */
static int refuse_cycle(const struct service_def *list, unsigned n, const struct service_defs *placed,
                        struct brig_err *err)
{
    char names[160] = "";
    size_t at = 0;

    for (unsigned i = 0; i < n; i++)
        if (!find(placed->list, placed->n, list[i].name) && at + strlen(list[i].name) + 3 < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", list[i].name);
    return err_usage(err, "services: %s come after each other", names);
}

/* In the order that they were given, as far as that can be. */
static int put_in_order(const struct service_def *list, unsigned n, struct service_defs *ret, struct brig_err *err)
{
    ret->n = 0;
    while (ret->n < n) {
        unsigned before = ret->n;
        for (unsigned i = 0; i < n; i++)
            if (!find(ret->list, ret->n, list[i].name) && can_follow(&list[i], ret))
                ret->list[ret->n++] = list[i];
        if (ret->n == before)
            return refuse_cycle(list, n, ret, err);
    }
    return 0;
}

int service_defs_read(const struct json_value *json, const struct json_value *below, bool stored,
                      struct service_defs *ret, struct brig_err *err)
{
    struct service_defs own = {0};
    struct service_def list[SVC_UNITS_MAX];
    unsigned n = 0, on = 0;
    int r = json ? add_all(json, NULL, own.list, &own.n, err) : 0;

    if (r == 0 && below)
        r = add_all(below, &own, list, &n, err);
    for (unsigned i = 0; r == 0 && i < own.n; i++)
        on += !own.list[i].off;
    if (r == 0 && n + on > SVC_UNITS_MAX)
        r = err_usage(err, "services: %u of them with the template's, at most %u", n + on, SVC_UNITS_MAX);
    for (unsigned i = 0; r == 0 && i < own.n; i++)
        if (!own.list[i].off)
            list[n++] = own.list[i];
    for (unsigned i = 0; r == 0 && i < own.n; i++)
        r = own.list[i].off ? check_off(&own.list[i], below, list, n, err) : 0;
    for (unsigned i = 0; r == 0 && i < n; i++)
        r = check_after(list, n, &list[i], stored, err);
    return r < 0 ? r : put_in_order(list, n, ret, err);
}

void service_defs_put(const struct service_defs *defs, bool values, struct json *json)
{
    json_array(json);
    for (unsigned i = 0; i < defs->n; i++) {
        json_object(json);
        for (const struct json_value *m = defs->list[i].json->first; m; m = m->next)
            if (values || !str_eq(m->key, "env"))
                json_key_raw(json, m->key, m->raw, m->raw_len);
        json_end(json);
    }
    json_end(json);
}
