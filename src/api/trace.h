/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h: one OpenTelemetry span per request, sent as OTLP/HTTP JSON to `[server] otlp_endpoint`. Off unless that is
 * set.
 *
 * A span has the route's pattern, never the path or the query (they may carry tokens), the status, the request id and
 * the times. A valid `traceparent` of the client is its parent. Spans wait in memory, at most TRACE_QUEUE_MAX of them,
 * and are sent in batches on one connection; while the collector does not take them the newest are dropped and counted.
 * No request ever waits for it.
 */
#ifndef BRIG_API_TRACE_H
#define BRIG_API_TRACE_H

#include <brig.h>

#include "loop/loop.h"

#define TRACE_QUEUE_MAX 2048u
#define TRACE_PARENT 56u /* "00-<32 hex>-<16 hex>-<2 hex>" and its NUL */

struct trace;

struct trace_span {
    const char *method, *route, *request_id, *peer;
    const char *parent; /* the client's traceparent, or "" */
    unsigned status;
    uint64_t duration_ns, bytes;
};

/* endpoint: "http://ADDRESS:PORT[/path]", an address and not a name (nothing here resolves names); the path is
 * /v1/traces when it has none. */
int trace_create(struct loop *loop, const char *endpoint, struct trace **ret, struct brig_err *err) MUST_CHECK;
void trace_destroy(struct trace *trace);                            /* what has not been sent is lost; takes NULL */
void trace_add(struct trace *trace, const struct trace_span *span); /* of a request that has just ended */
uint64_t trace_dropped(const struct trace *trace);
uint64_t trace_sent(const struct trace *trace);

#endif
