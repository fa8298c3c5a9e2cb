/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_ports.c: the routes that list the ports on which a sandbox listens, and make tokens that let a browser in.
 * preview.c has the previews themselves.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "brigd/preview.h"

#define PORTS_MAX 4096u
#define EXPOSED_MAX 16384u

struct ports {
    struct request *rq;
    struct call *call;
    char exposed[EXPOSED_MAX]; /* The image's ports, with NULs: the sandbox may be gone when the list is there. */
    size_t exposed_len;
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
    json_key_array(&json, "ports");
    for (size_t i = 0; i < ports->n; i++) {
        json_object(&json);
        json_key_u64(&json, "port", ports->list[i].port);
        json_key_string(&json, "family", ports->list[i].family == 6 ? "ipv6" : "ipv4");
        json_key_bool(&json, "loopback", ports->list[i].loopback);
        json_end(&json);
    }
    json_end(&json);
    json_key_array(&json, "exposed");
    for (size_t at = 0; at < ports->exposed_len; at += strlen(ports->exposed + at) + 1)
        json_string(&json, ports->exposed + at);
    json_end(&json);
    json_end(&json);
    mem_free(ports);
    if (errnum)
        request_refuse(rq, BRIG_E_HOST, "ports: %s", strerror((int)errnum));
    else
        request_json(rq, 200, &json);
}

/* What the image says that its programs listen on: "80/tcp". Nothing opens a port by that. */
static void keep_exposed(struct ports *ports, const struct template_image *image)
{
    for (size_t i = 0; image && image->exposed_ports && image->exposed_ports[i]; i++) {
        size_t len = strlen(image->exposed_ports[i]) + 1;
        if (len > sizeof ports->exposed - ports->exposed_len)
            return;
        memcpy(ports->exposed + ports->exposed_len, image->exposed_ports[i], len);
        ports->exposed_len += len;
    }
}

void route_port_list(struct request *rq)
{
    struct ports *ports = request_alloc(rq, sizeof *ports);
    const struct call_events events = {.event = on_port, .reply = on_ports, .ctx = ports};
    struct brig_err err;

    if (!ports)
        return;
    ports->rq = rq;
    keep_exposed(ports, sbox_image(rq->sbox));
    if (link_call(sbox_link(rq->sbox), SVC_PORT_LIST, NULL, 0, &events, &ports->call, &err) < 0) {
        mem_free(ports);
        request_fail(rq, &err);
        return;
    }
    rq->state = ports;
    rq->left = ports_left;
}

/* ---- where a browser finds a preview ---------------------------------------------------------------------- */

/*
 * Returns the host and port that this request was sent to, or those of the listener if it came over the socket; "" if
 * there is none.
 */
static bool find_host(const struct request *rq, char *out, size_t size)
{
    const struct config *config = config_get(rq->api->config);
    const char *host = http_field(exchange_head(rq->x), "Host"), *colon = strrchr(config->listen, ':');
    int r;

    if (!exchange_is_unix(rq->x))
        r = str_copy(out, size, host ? host : "");
    else if (colon && (str_starts(config->listen, "0.0.0.0:") || str_starts(config->listen, "[::]:")))
        r = str_format(out, size, "localhost%s", colon);
    else
        r = str_copy(out, size, config->listen);
    return r >= 0;
}

/* By host name, or by path where a browser could not reach the name; NULL when only the socket is served. */
static void put_url(struct json *json, const struct request *rq, uint32_t port, const char *token)
{
    const struct config *config = config_get(rq->api->config);
    const char *scheme = exchange_is_tls(rq->x) || (exchange_is_unix(rq->x) && config->tls_cert[0]) ? "https" : "http";
    struct preview_way way = {.port = port};
    char host[300], own[400], url[TOKEN_MAX + 700];

    json_key(json, "url");
    if (str_copy(way.id, sizeof(way.id), sbox_id(rq->sbox)) < 0 || !find_host(rq, host, sizeof(host)) ||
        host[0] == '\0') {
        json_null(json);
        return;
    }
    if (preview_host(config->domain, host, &way, own, sizeof(own)))
        snprintf(url, sizeof(url), "%s://%s/?" PREVIEW_COOKIE "=%s", scheme, own, token);
    else
        snprintf(url, sizeof(url), "%s://%s/v1/sandboxes/%s/proxy/%u/?" PREVIEW_COOKIE "=%s", scheme, host, way.id,
                 port, token);
    json_string(json, url);
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

void route_port_token(struct request *rq)
{
    const struct json_value *expires = json_get(rq->json, "expires");
    uint64_t ms = 3600 * 1000;
    uint32_t port = 0;
    char subject[64], token[TOKEN_MAX], url[TOKEN_MAX + 256];
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    if (!api_only_members(rq, "expires"))
        return;
    if (parse_u32(rq->arg[1], &port) < 0 || port == 0 || port > UINT16_MAX)
        return request_refuse(rq, BRIG_E_USAGE, "port %.16s: must be a number from 1 to 65535", rq->arg[1]);
    if (expires && (api_duration(expires, &ms) < 0 || ms > UINT64_C(30) * 86400 * 1000))
        return request_refuse(rq, BRIG_E_USAGE, "expires: must be a duration up to 30 days, such as 3600 or \"1h\"");
    int64_t until = clock_real_ns() / (int64_t)NS_PER_SEC + (int64_t)(ms / 1000);
    snprintf(subject, sizeof subject, "%u-%s", port, sbox_id(rq->sbox));
    if (crypto_token_make(rq->api->token_key, "preview", subject, until, token) < 0)
        return request_refuse(rq, BRIG_E_HOST, "make a token");
    snprintf(url, sizeof url, "/v1/sandboxes/%s/proxy/%u/?brig_token=%s", sbox_id(rq->sbox), port, token);
    request_audit(rq, "port.token", sbox_id(rq->sbox), "ok", rq->arg[1]);
    json_object(&json);
    json_key_string(&json, "token", token);
    put_url(&json, rq, port, token);
    json_key_string(&json, "path", url);
    json_key(&json, "host");
    snprintf(url, sizeof url, "%u-%s.%s", port, sbox_id(rq->sbox), config_get(rq->api->config)->domain);
    json_string(&json, url);
    json_key_time(&json, "expires_at", until * (int64_t)NS_PER_SEC, API_TIME_DIGITS);
    json_end(&json);
    request_json(rq, 201, &json);
}
