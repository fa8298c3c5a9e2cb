/* SPDX-License-Identifier: Apache-2.0 */
/* route_ports.c: which ports a sandbox listens on, and tokens that let a browser in. The previews themselves: preview.c. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"

#define PORTS_MAX 4096u

struct ports {
    struct request *rq;
    struct call *call;
    struct svc_port list[PORTS_MAX];
    size_t n;
};

static void ports_left(struct request *rq)
{
    struct ports *ports = rq->state;

    call_drop(ports->call);
    mem_free(ports);
    request_free(rq);
}

static void on_port(void *ctx, const uint8_t *data, size_t len)
{
    struct ports *ports = ctx;

    if (ports->n < PORTS_MAX && svc_port_parse(data, len, &ports->list[ports->n]) == 0)
        ports->n++;
}

static void on_ports(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct ports *ports = ctx;
    struct request *rq = ports->rq;
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    rq->left = NULL;
    json_object(&json);
    json_key(&json, "ports");
    json_array(&json);
    for (size_t i = 0; i < ports->n; i++) {
        json_object(&json);
        json_key(&json, "port");
        json_u64(&json, ports->list[i].port);
        json_key(&json, "family");
        json_string(&json, ports->list[i].family == 6 ? "ipv6" : "ipv4");
        json_key(&json, "loopback");
        json_bool(&json, ports->list[i].loopback);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    mem_free(ports);
    if (errnum)
        request_refuse(rq, BRIG_E_HOST, "ports: %s", strerror((int)errnum));
    else
        request_json(rq, 200, &json);
}

void route_port_list(struct request *rq)
{
    struct ports *ports = mem_zalloc(sizeof *ports);
    const struct call_events events = {.event = on_port, .reply = on_ports, .ctx = ports};
    struct brig_err err;

    if (!ports) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    ports->rq = rq;
    if (link_call(rq->sbox->link, SVC_PORT_LIST, NULL, 0, &events, &ports->call, &err) < 0) {
        mem_free(ports);
        request_fail(rq, &err);
        return;
    }
    rq->state = ports;
    rq->left = ports_left;
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

void route_port_token(struct request *rq)
{
    static const char *const known[] = {"expires", NULL};
    const struct json_value *expires = json_get(rq->json, "expires");
    uint64_t ms = 3600 * 1000;
    uint32_t port = 0;
    char subject[64], token[TOKEN_MAX], time[48], url[TOKEN_MAX + 256];
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    if (!api_only_members(rq, rq->json, known))
        return;
    if (parse_u32(rq->arg[1], &port) < 0 || port == 0 || port > UINT16_MAX) {
        request_refuse(rq, BRIG_E_USAGE, "port %.16s: must be a number from 1 to 65535", rq->arg[1]);
        return;
    }
    if (expires && (api_duration(expires, &ms) < 0 || ms > UINT64_C(30) * 86400 * 1000)) {
        request_refuse(rq, BRIG_E_USAGE, "expires: must be a duration up to 30 days, such as 3600 or \"1h\"");
        return;
    }
    int64_t until = clock_real_ns() / (int64_t)NS_PER_SEC + (int64_t)(ms / 1000);
    snprintf(subject, sizeof subject, "%u-%s", port, rq->sbox->id);
    if (crypto_token_make(rq->api->token_key, "preview", subject, until, token) < 0 || api_time(until * (int64_t)NS_PER_SEC, time, sizeof time) < 0) {
        request_refuse(rq, BRIG_E_HOST, "make a token");
        return;
    }
    snprintf(url, sizeof url, "/v1/sandboxes/%s/proxy/%u/?brig_token=%s", rq->sbox->id, port, token);
    request_audit(rq, "port.token", rq->sbox->id, "ok", rq->arg[1]);
    json_object(&json);
    json_key(&json, "token");
    json_string(&json, token);
    json_key(&json, "path");
    json_string(&json, url);
    json_key(&json, "host");
    snprintf(url, sizeof url, "%u-%s.%s", port, rq->sbox->id, config_get(rq->api->config)->domain);
    json_string(&json, url);
    json_key(&json, "expires_at");
    json_string(&json, time);
    json_end(&json);
    request_json(rq, 201, &json);
}
