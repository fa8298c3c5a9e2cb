/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c: GET /metrics in Prometheus' text format: base units, no label with unbounded values unless the
 * configuration asks for one per sandbox. The numbers of the whole service are for the host's administrator: the
 * socket, and keys that were made there with `metrics`. Another key gets the sandboxes and processes of its own
 * organisation, and no number that other organisations change.
 */
#include <fcntl.h>
#include <inttypes.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/str.h"
#include "build/build.h"
#include "pool/pool.h"
#include "sandbox/parked/parked.h"
#include "sandbox/sbox_disks.h"
#include "template/library.h"

static int head(struct buf *out, const char *name, const char *type, const char *help)
{
    return buf_printf(out, "# HELP brig_%s %s\n# TYPE brig_%s %s\n", name, help, name, type);
}

struct row {
    const char *name, *type, *help;
    uint64_t value;
};

static int put_rows(struct buf *out, const struct row *rows, size_t n)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++) {
        r = head(out, rows[i].name, rows[i].type, rows[i].help);
        if (r == 0)
            r = buf_printf(out, "brig_%s %" PRIu64 "\n", rows[i].name, rows[i].value);
    }
    return r;
}

static int put_states(struct buf *out, const uint64_t states[SBOX_ENDED])
{
    int r = head(out, "sandboxes", "gauge", "Sandboxes by state.");

    for (int i = 0; r == 0 && i < SBOX_ENDED; i++)
        r = buf_printf(out, "brig_sandboxes{state=\"%s\"} %" PRIu64 "\n", sbox_state_name((enum sbox_state)i),
                       states[i]);
    return r;
}

static uint64_t resident_bytes(void)
{
    char text[256];
    uint64_t fields[2];

    if (fd_read_file(AT_FDCWD, "/proc/self/statm", text, sizeof text) < 0 || parse_fields(text, fields, 2) != 2)
        return 0;
    return fields[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int put_service(struct buf *out, const struct api *api)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct store_health health;
    int r = head(out, "http_requests_total", "counter", "Requests answered, by class of status.");

    store_health(api->store, &health);
    for (size_t i = 1; r == 0 && i < ARRAY_SIZE(classes); i++)
        r = buf_printf(out, "brig_http_requests_total{class=\"%s\"} %" PRIu64 "\n", classes[i],
                       api->counters.requests[i]);
    const struct row rows[] = {
        {"http_connections", "gauge", "Open connections.", server_connections(api->server)},
        {"http_response_bytes_total", "counter", "Bytes sent in answers.", api->counters.bytes_out},
        {"denials_total", "counter", "Requests refused for who asked.", api->counters.denials},
        {"suspicious_total", "counter", "Keys that were denied or failed too often in a short time.",
         suspicion_count(api->suspicion)},
        {"audit_dropped_total", "counter", "Events that the audit log could not take.", audit_dropped(api->audit)},
        {"trace_spans_sent_total", "counter", "Spans that the collector took.", trace_sent(api->trace)},
        {"trace_spans_dropped_total", "counter", "Spans that were lost: no collector, or too many.",
         trace_dropped(api->trace)},
        {"store_commits_total", "counter", "Transactions committed.", health.commits},
        {"store_failures_total", "counter", "Transactions that failed.", health.failures},
        {"store_queue", "gauge", "Writes waiting for a transaction.", health.queued},
        {"store_ok", "gauge", "1 while the store takes writes.", health.ok},
        {"resident_memory_bytes", "gauge", "Resident memory of brigd.", resident_bytes()},
        {"uptime_seconds", "gauge", "Age of this brigd process.", (clock_mono_ns() - api->started_ns) / NS_PER_SEC},
    };
    return r < 0 ? r : put_rows(out, rows, ARRAY_SIZE(rows));
}

static int put_manager(struct buf *out, const struct api *api)
{
    struct manager_stats stats;

    manager_stats(api->manager, &stats);
    int r = put_states(out, stats.sandboxes);
    const struct row rows[] = {
        {"sandboxes_max", "gauge", "The configured maximum.", config_get(api->config)->max_sandboxes},
        {"processes", "gauge", "Running processes in all sandboxes.", stats.processes},
        {"sandboxes_created_total", "counter", "Sandboxes created.", stats.created},
        {"sandboxes_ended_total", "counter", "Sandboxes ended.", stats.ended},
        {"sandbox_create_failures_total", "counter", "Creates that failed.", stats.create_failures},
        {"quota_refusals_total", "counter", "Creates refused by a limit or quota.", stats.quota_refusals},
        {"sandboxes_idle_reaped_total", "counter", "Sandboxes ended for being idle.", stats.idle_reaped},
        {"sandboxes_timed_out_total", "counter", "Sandboxes that reached their age.", stats.timed_out},
        {"sandboxes_orphans_total", "counter", "Sandboxes ended because nobody knew them.", stats.orphans},
        {"sandboxes_recovered_total", "counter", "Sandboxes taken over from an earlier brigd.", stats.recovered},
    };
    return r < 0 ? r : put_rows(out, rows, ARRAY_SIZE(rows));
}

static int put_parked(struct buf *out, const struct api *api)
{
    struct parked_stats stats;

    manager_parked_stats(api->manager, &stats);
    const struct row rows[] = {
        {"pool_sandboxes", "gauge", "Sandboxes of templates that wait for a create.", stats.waiting},
        {"pool_sandboxes_making", "gauge", "Those that are being made.", stats.making},
        {"pool_claims_total", "counter", "Creates that took one of them.", stats.claims},
        {"pool_misses_total", "counter", "Creates that found none.", stats.misses},
        {"pool_failures_total", "counter", "Sandboxes that could not be kept ready.", stats.failures},
    };
    return put_rows(out, rows, ARRAY_SIZE(rows));
}

/* One line for each provider that was ever asked for an interpreter. */
static int put_interpreters(struct buf *out, const struct api *api)
{
    static const struct {
        const char *name, *type, *help;
        size_t at;
    } rows[] = {
        {"interpreters_parked", "gauge", "Interpreters that wait for a run, by provider.",
         offsetof(struct pool_stats, parked)},
        {"interpreters_making", "gauge", "Those that are being made.", offsetof(struct pool_stats, making)},
        {"interpreter_claims_total", "counter", "Runs that asked for one.", offsetof(struct pool_stats, claims)},
        {"interpreter_misses_total", "counter", "Runs that had to wait for one.", offsetof(struct pool_stats, misses)},
        {"interpreter_failures_total", "counter", "Interpreters that could not be made.",
         offsetof(struct pool_stats, failures)},
    };
    struct pool_stats stats;
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(rows); i++) {
        r = head(out, rows[i].name, rows[i].type, rows[i].help);
        for (size_t k = 0; r == 0 && pool_stats(api->pool, k, &stats); k++)
            if (stats.claims + stats.making + stats.parked + stats.failures > 0)
                r = buf_printf(out, "brig_%s{provider=\"%s\"} %" PRIu64 "\n", rows[i].name, stats.provider,
                               *(const uint64_t *)(const void *)((const char *)&stats + rows[i].at));
    }
    return r;
}

static int put_templates(struct buf *out, const struct api *api)
{
    struct library_stats stats;

    library_stats(api->library, &stats);
    const struct row rows[] = {
        {"templates", "gauge", "Templates of all organisations.", stats.templates},
        {"template_layers", "gauge", "Layers that templates have, each counted once.", stats.layers},
        {"template_bytes", "gauge", "Bytes of these layers.", stats.bytes},
        {"template_jobs", "gauge", "Images that are being loaded or pulled.", stats.jobs},
        {"templates_made_total", "counter", "Templates made from images.", stats.made},
        {"template_failures_total", "counter", "Images that could not be made a template.", stats.failed},
    };
    return put_rows(out, rows, ARRAY_SIZE(rows));
}

static int put_builds(struct buf *out, const struct api *api)
{
    struct builds_stats stats;

    builds_stats(api->builds, &stats);
    const struct row rows[] = {
        {"template_builds", "gauge", "Builds that wait for their context or run.", stats.running},
        {"template_builds_done_total", "counter", "Builds that made a template.", stats.done},
        {"template_builds_failed_total", "counter", "Builds that failed or were cancelled.", stats.failed},
        {"template_build_steps_total", "counter", "Steps of builds.", stats.steps},
        {"template_build_steps_cached_total", "counter", "Steps that were taken from the cache.", stats.cached},
    };
    return put_rows(out, rows, ARRAY_SIZE(rows));
}

static int put_disks(struct buf *out, const struct api *api)
{
    struct disks_stats stats;

    disks_stats(api->manager, &stats);
    const struct row rows[] = {
        {"volumes", "gauge", "Volumes of all organisations.", stats.volumes},
        {"volume_bytes", "gauge", "Sizes of these volumes.", stats.volume_bytes},
        {"snapshots", "gauge", "Snapshots of all organisations.", stats.snapshots},
        {"snapshot_bytes", "gauge", "Sizes of these snapshots.", stats.snapshot_bytes},
        {"sandbox_forks_total", "counter", "Sandboxes made by forks.", stats.forks},
        {"disk_failures_total", "counter", "Disks that could not be made, copied or removed.", stats.failures},
        {"disk_space_bytes", "gauge", "What disks may have at most, at the last look.", stats.space.size},
        {"disk_space_used_bytes", "gauge", "What they have.", stats.space.used},
        {"disk_space_reserved_bytes", "gauge", "What they may still write.", stats.space.reserved},
    };
    return put_rows(out, rows, ARRAY_SIZE(rows));
}

static int put_network(struct buf *out, const struct api *api)
{
    struct network_stats stats;

    manager_network_stats(api->manager, &stats);
    const struct row rows[] = {
        {"network_up", "gauge", "1 while brig-egress is there; without it networks carry nothing.", stats.up},
        {"network_restarts_total", "counter", "Times that brig-egress was lost.", stats.restarts},
        {"network_sandboxes", "gauge", "Sandboxes with a network.", stats.sandboxes},
        {"network_receive_bytes_total", "counter", "Bytes towards sandboxes.", stats.bytes_in},
        {"network_transmit_bytes_total", "counter", "Bytes from sandboxes.", stats.bytes_out},
        {"network_connections_allowed_total", "counter", "Connections and requests that a policy allowed.",
         stats.allowed},
        {"network_connections_denied_total", "counter", "Connections and requests that a policy refused.",
         stats.denied},
        {"network_connections_failed_total", "counter", "Connections that were allowed and could not be made.",
         stats.failed},
        {"network_names_refused_total", "counter", "DNS questions that a policy refused.", stats.names_refused},
        {"network_secrets_used_total", "counter", "Requests that a brokered secret was put into.", stats.substituted},
        {"network_foreign_placeholders_total", "counter", "Placeholders sent where their secret is not for.",
         stats.foreign},
    };
    return put_rows(out, rows, ARRAY_SIZE(rows));
}

/* org "": of all. */
static int put_each(struct buf *out, const struct api *api, const char *org)
{
    int r = head(out, "sandbox_processes", "gauge", "Running processes, per sandbox (server.metrics_per_sandbox).");

    for (const struct sbox *s = manager_first(api->manager); r == 0 && s; s = sbox_next(s))
        if (!org[0] || str_eq(sbox_org(s), org))
            r = buf_printf(out, "brig_sandbox_processes{sandbox=\"%s\"} %u\n", sbox_id(s), sbox_processes(s));
    return r;
}

static int put_own(struct buf *out, const struct api *api, const char *org)
{
    uint64_t states[SBOX_ENDED] = {0}, processes = 0;

    for (const struct sbox *s = manager_first(api->manager); s; s = sbox_next(s))
        if (str_eq(sbox_org(s), org) && !sbox_spec(s)->service && sbox_state(s) < SBOX_ENDED) {
            states[sbox_state(s)]++;
            processes += sbox_processes(s);
        }
    const struct row row = {"processes", "gauge", "Running processes in all sandboxes.", processes};
    int r = put_states(out, states);
    return r < 0 ? r : put_rows(out, &row, 1);
}

static int put_all(struct buf *out, const struct api *api)
{
    int r = put_service(out, api);

    if (r == 0)
        r = put_manager(out, api);
    if (r == 0)
        r = put_parked(out, api);
    if (r == 0)
        r = put_interpreters(out, api);
    if (r == 0)
        r = put_templates(out, api);
    if (r == 0)
        r = put_builds(out, api);
    if (r == 0)
        r = put_disks(out, api);
    return r == 0 ? put_network(out, api) : r;
}

void route_metrics(struct request *rq)
{
    const bool all = rq->caller.socket || key_has(rq->api->accounts, rq->caller.key_id, "metrics");
    const char *org = all ? "" : rq->caller.org_id;
    AUTO_BUF struct buf out = BUF_INIT(16u << 20);
    int r = all ? put_all(&out, rq->api) : put_own(&out, rq->api, org);

    if (r == 0 && config_get(rq->api->config)->metrics_per_sandbox)
        r = put_each(&out, rq->api, org);
    if (r < 0)
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    else
        request_text(rq, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
}
