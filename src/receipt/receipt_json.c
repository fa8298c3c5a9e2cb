/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receipt_json.c: writes a receipt as JSON. All runs have one shape, also those of the service, which add their own
 * members. Fields may be added but are never renamed; an absent field does not apply.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "receipt/receipt.h"

#define RECEIPT_MAX (SIZE_MAX / 2)

void receipt_put_time(struct json *json, const char *key, int64_t ns)
{
    json_key_time(json, key, ns, 6);
}

static void put_string(struct json *json, const char *key, const char *text)
{
    if (!text || !text[0])
        return;
    json_key_string(json, key, text);
}

void receipt_put_outcome(struct json *json, const struct brig_receipt *r)
{
    json_key_object(json, "outcome");
    json_key_string(json, "cause", brig_cause_name(r->cause));
    bool ended = r->started || r->cause == BRIG_CAUSE_EXITED;
    json_key(json, "exit_code"), ended && r->signal == 0 ? json_i64(json, r->exit_code) : json_null(json);
    json_key(json, "signal"), r->started && r->signal ? json_i64(json, r->signal) : json_null(json);
    json_key_array(json, "limits_hit");
    for (int i = 0; i < BRIG_LIMIT_MAX; i++)
        if (r->limits_hit & (1u << i))
            json_string(json, brig_limit_name((enum brig_limit)i));
    json_end(json);
    put_string(json, "detail", r->detail);
    json_end(json);
}

static void put_output(struct json *json, const struct brig_receipt *r)
{
    static const char *const names[] = {NULL, "stdout", "stderr"};
    static const char *const encodings[] = {NULL, "stdout_encoding", "stderr_encoding"};

    for (int i = BRIG_STDOUT; i <= BRIG_STDERR; i++) {
        const void *data = r->output[i] ? r->output[i] : "";
        bool text = json_is_text(data, r->output_len[i]);
        json_key(json, names[i]);
        if (text)
            json_string_n(json, data, r->output_len[i]);
        else
            json_base64(json, data, r->output_len[i]);
        json_key_string(json, encodings[i], text ? "utf-8" : "base64");
    }
    json_key_object(json, "truncated");
    for (int i = BRIG_STDOUT; i <= BRIG_STDERR; i++)
        json_key_bool(json, names[i], r->truncated[i]);
    json_end(json);
}

void receipt_put_limits(struct json *json, const struct brig_limits *l)
{
    const uint64_t values[BRIG_LIMIT_MAX] = {l->memory,       l->cpus,          l->cpu_time,   l->pids,
                                             l->disk,         l->inodes,        l->open_files, l->file_size,
                                             l->io_read_bps,  l->io_write_bps,  l->timeout,    l->output,
                                             l->net_bytes_in, l->net_bytes_out, l->net_bps,    l->connections};

    json_key_object(json, "limits");
    for (int i = 0; i < BRIG_LIMIT_MAX; i++) {
        if (values[i] == 0)
            continue;
        json_key(json, brig_limit_name((enum brig_limit)i));
        /* cpus and times are kept in thousandths: 1 CPU is 1, 30 seconds are 30 */
        if (i == BRIG_LIMIT_CPUS || i == BRIG_LIMIT_TIMEOUT || i == BRIG_LIMIT_CPU_TIME)
            json_thousandths(json, values[i]);
        else
            json_u64(json, values[i]);
    }
    json_end(json);
}

void receipt_put_usage(struct json *json, const struct brig_usage *u)
{
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {{"wall_ms", u->wall_ms},
                  {"cpu_ms", u->cpu_ms},
                  {"memory_peak_bytes", u->memory_peak_bytes},
                  {"pids_peak", u->pids_peak},
                  {"disk_bytes", u->disk_bytes},
                  {"read_bytes", u->read_bytes},
                  {"written_bytes", u->written_bytes},
                  {"net_in_bytes", u->net_in_bytes},
                  {"net_out_bytes", u->net_out_bytes}};

    json_key_object(json, "usage");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].value != BRIG_USAGE_UNKNOWN)
            json_key_u64(json, fields[i].name, fields[i].value);
    json_end(json);
}

void receipt_put_protection(struct json *json, const struct brig_layer_state *layers, bool complete)
{
    json_key_object(json, "protection");
    json_key_bool(json, "complete", complete);
    json_key_u64(json, "require_version", BRIG_REQUIRE_VERSION);
    json_key_object(json, "layers");
    for (int i = 0; i < BRIG_LAYER_MAX; i++) {
        const struct brig_layer_state *layer = &layers[i];
        json_key_object(json, brig_layer_name((enum brig_layer)i));
        json_key_bool(json, "on", layer->on);
        if (layer->abi)
            json_key_u64(json, "abi", layer->abi);
        put_string(json, "by", layer->by);
        put_string(json, "why", layer->why);
        json_end(json);
    }
    json_end(json);
    json_end(json);
}

static void receipt_put_network(struct json *json, const struct brig_network *network, const char *learned)
{
    bool none = network->policy[0] == '\0' || strcmp(network->policy, "none") == 0;

    json_key_object(json, "network");
    json_key_string(json, "policy", none ? "none" : network->policy);
    if (!none) {
        json_key_u64(json, "version", network->version);
        json_key_object(json, "decisions");
        json_key_u64(json, "allowed", network->allowed);
        json_key_u64(json, "denied", network->denied);
        json_end(json);
    }
    if (learned)
        json_key_raw(json, "learned", learned, strlen(learned));
    json_end(json);
}

static void put_environment(struct json *json, const struct brig_receipt *r)
{
    json_key_object(json, "environment");
    for (size_t i = 0; r->env_names && r->env_names[i]; i++)
        json_key_string(json, r->env_names[i], r->env_layers[i]);
    json_end(json);
}

/* Output that stayed in the sandbox is counted, not shown. */
static void put_written(struct json *json, const struct receipt_service *service)
{
    json_key_object(json, "output");
    json_key_u64(json, "stdout", service->written[BRIG_STDOUT]);
    json_key_u64(json, "stderr", service->written[BRIG_STDERR]);
    json_end(json);
}

static void put_tried(struct json *json, const struct receipt_service *service)
{
    json_key_array(json, "providers_tried");
    for (size_t i = 0; service && i < service->n_tried; i++) {
        json_object(json);
        put_string(json, "provider", service->tried[i].provider);
        put_string(json, "why", service->tried[i].why);
        json_end(json);
    }
    json_end(json);
}

static void put_tool(struct json *json, const struct receipt_service *service)
{
    if (!service->tool_name)
        return;
    json_key_object(json, "tool");
    put_string(json, "name", service->tool_name);
    json_key(json, "version"), service->tool_version ? json_u64(json, service->tool_version) : json_null(json);
    json_end(json);
}

/* What the code came to, and what the children of one zygote have in common. */
static void put_result(struct json *json, const struct receipt_service *service)
{
    static const char *const shared[] = {"hash_seed", "aslr", "stack_canary"};

    if (service->result)
        json_key_raw(json, "result", service->result, service->result_len);
    if (service->error_type) {
        json_key_object(json, "error");
        json_key_string(json, "type", service->error_type);
        json_key_string(json, "message", service->error_message ? service->error_message : "");
        put_string(json, "traceback", service->traceback);
        json_end(json);
    }
    if (service->state_diff)
        json_key_raw(json, "agent_state", service->state_diff, strlen(service->state_diff));
    json_key_u64(json, "scrubbed", service->scrubbed);
    if (!service->started_here)
        return;
    json_key_array(json, "shared");
    for (size_t i = 0; service->of_zygote && i < ARRAY_SIZE(shared); i++)
        json_string(json, shared[i]);
    json_end(json);
}

static void put_command(struct json *json, const struct brig_receipt *r)
{
    json_key_array(json, "command");
    for (size_t i = 0; r->argv && r->argv[i]; i++)
        json_string(json, r->argv[i]);
    json_end(json);
}

void receipt_put_readers(struct json *json, const char *readers)
{
    put_string(json, "readers", readers);
}

/* Looked for in its place only: everything behind it may be a program's words. */
bool receipt_is_for(const char *text, const char *key_id)
{
    static const char start[] = "{\"id\":\"", mark[] = "\",\"readers\":\"";
    const char *end = str_starts(text, start) ? strchr(text + sizeof start - 1, '"') : NULL;
    const size_t len = strlen(key_id);

    if (!end || !str_starts(end, mark))
        return true;
    end += sizeof mark - 1;
    return len > 0 && str_starts(end, key_id) && end[len] == '"';
}

void receipt_put(struct json *json, const struct brig_receipt *r, const struct receipt_service *service)
{
    const bool tool = service && service->of_tool_room;

    json_object(json);
    json_key_string(json, "id", r->id);
    if (service)
        receipt_put_readers(json, service->readers);
    json_key_string(json, "kind", service && service->kind ? service->kind : "command");
    json_key_string(json, "via", service ? "daemon" : "local");
    if (service) {
        json_key_string(json, "organization_id", service->organization_id);
        put_string(json, "agent_id", service->agent_id);
    }
    put_string(json, "sandbox_id", r->sandbox_id);
    put_string(json, "name", r->name);
    if (service && !tool)
        json_key_u64(json, "process", service->process);
    json_key_string(json, "provider", service ? service->provider : "local");
    put_tried(json, service);
    if (tool) {
        put_tool(json, service);
        put_string(json, "fingerprint", service->fingerprint);
    } else {
        put_command(json, r);
    }
    receipt_put_outcome(json, r);
    if (service && service->without_output)
        put_written(json, service);
    else
        put_output(json, r);
    if (tool)
        put_result(json, service);
    receipt_put_limits(json, &r->limits);
    receipt_put_usage(json, &r->usage);
    receipt_put_protection(json, r->layers, r->protection_complete);
    receipt_put_network(json, &r->network, r->learned);
    if (tool && service->environment)
        json_key_raw(json, "environment", service->environment, strlen(service->environment));
    else
        put_environment(json, r);
    receipt_put_time(json, "started_at", r->started_at_ns);
    receipt_put_time(json, "ended_at", r->ended_at_ns);
    put_string(json, "note", service ? service->note : NULL);
    if (service && service->audit_seq)
        json_key_u64(json, "audit_seq", service->audit_seq);
    json_end(json);
}

int brig_receipt_json(const struct brig_receipt *receipt, char **ret, size_t *ret_len, struct brig_err *err)
{
    struct buf buf = BUF_INIT(RECEIPT_MAX);
    struct json json = JSON_INIT(&buf);

    receipt_put(&json, receipt, NULL);
    int r = json_finish(&json);
    if (r == 0)
        r = buf_append(&buf, "\n", 2); /* with its NUL, which is not counted */
    if (r < 0) {
        buf_done(&buf);
        return r == -ENOMEM ? err_nomem(err) : err_set(err, BRIG_E_HOST, -r, "receipt");
    }
    *ret = buf.data;
    *ret_len = buf.len - 1;
    return 0;
}
