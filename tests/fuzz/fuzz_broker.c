/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker's heads and its scanner. The first byte chooses: a request's head, a response's head, a stream.
 *
 * Requests: what was written is parsed again by the same strict parser, is one message with the same method and
 * framing, has our Host, and the value stands in it only when the report says so. Responses and streams: the value
 * comes out in no piece of it, however it is cut; without the value nothing is changed.
 */
#include "fuzz.h"

#include "egress/broker_priv.h"

#define MARK "brig-secret-00000000000000000000000000000aaa"
#define OTHER "brig-secret-00000000000000000000000000000bbb"
#define VALUE "v4lue/+of=it"

static struct http_head head, again;

static struct broker_secret secrets[2];
static struct broker broker = {.secrets = secrets, .n_secrets = 2};
static struct values values;

static void set_up(uint8_t where)
{
    memset(secrets, 0, sizeof(secrets));
    memcpy(secrets[0].placeholder, MARK, sizeof(MARK));
    memcpy(secrets[1].placeholder, OTHER, sizeof(OTHER));
    secrets[0].rule.where = (enum broker_where)(where % BROKER_WHERE_MAX);
    const char *field = secrets[0].rule.where == BROKER_QUERY ? "key" : "Authorization";
    memcpy(secrets[0].rule.field, field, strlen(field) + 1);
    memcpy(secrets[0].rule.format, "Bearer %s", 10);
    static uint8_t plain[] = VALUE, pair[] = "AKIDEXAMPLE:" VALUE ":token";
    values.n = 1;
    values.items[0] = (struct value){&secrets[0], plain, sizeof(plain) - 1};
    if (secrets[0].rule.where == BROKER_SIGV4)
        values.items[0] = (struct value){&secrets[0], pair, sizeof(pair) - 1};
}

static void fuzz_request(char *text, size_t len)
{
    struct rewrite rewrite = {.broker = &broker, .values = &values, .name = "a.test", .port = 443, .default_port = 443};
    struct rewrite_report report;
    struct brig_err err = {0};
    struct wbuf out = WBUF_INIT(BROKER_OUT_MAX);
    size_t scanned = 0;
    bool had = memmem(text, len, VALUE, sizeof(VALUE) - 1) != NULL;

    if (http_request_parse(text, len, NULL, &scanned, &head, &err) <= 0)
        return;
    bool body = rewrite_needs_body(&broker, "a.test", 443, &head);
    FUZZ_CHECK(!body || head.body != HTTP_BODY_NONE);
    int r = broker_check_host(&head, "a.test", 443, 443, &err);
    FUZZ_CHECK(r == 0 || r == -400 || r == -421);
    if (rewrite_request(&rewrite, &head, &out, &report, &err) < 0) {
        FUZZ_CHECK(wbuf_size(&out) == 0 && err.message[0] != '\0');
        wbuf_done(&out);
        return;
    }
    bool has = memmem(wbuf_at(&out), wbuf_size(&out), VALUE, sizeof(VALUE) - 1) != NULL;
    FUZZ_CHECK(!has || had || report.n_used > 0);
    FUZZ_CHECK(secrets[0].rule.where != BROKER_SIGV4 || !has || had); /* a key signs, and is never sent */
    struct http_limits limits = {.head_bytes = 1u << 20};
    size_t size = wbuf_size(&out);
    scanned = 0;
    int took = http_request_parse(wbuf_at(&out), size, &limits, &scanned, &again, &err);
    /* Only what values have made longer than the parser takes may fail. */
    FUZZ_CHECK(took == (int)size || took == -414 || took == -431);
    if (took > 0) {
        FUZZ_CHECK(strcmp(head.method, again.method) == 0 && head.body == again.body &&
                   head.content_length == again.content_length);
        FUZZ_CHECK(again.minor == 1 && strcmp(http_field(&again, "host"), "a.test") == 0);
        FUZZ_CHECK(again.upgrade == broker_wants_websocket(&head));
    }
    wbuf_done(&out);
}

static void fuzz_reply(char *text, size_t len)
{
    struct brig_err err = {0};
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct scan scan;
    enum reply_body body;
    size_t scanned = 0;

    if (http_response_parse(text, len, "GET", NULL, &scanned, &head, &err) <= 0)
        return;
    FUZZ_CHECK(scan_init(&scan, &values) == 0);
    if (rewrite_reply(&head, &scan, len & 1, len & 2, false, &out, &body, &err) == 0) {
        FUZZ_CHECK(!memmem(out.data, out.len, VALUE, sizeof(VALUE) - 1));
        struct http_limits limits = {.head_bytes = 1u << 20};
        scanned = 0;
        size_t size = out.len;
        int took = http_response_parse(out.data, out.len, "GET", &limits, &scanned, &again, &err);
        FUZZ_CHECK(took == (int)size || took == -431);
        FUZZ_CHECK(took < 0 || again.status == head.status);
        FUZZ_CHECK(took < 0 || body != REPLY_CHUNKED || again.body == HTTP_BODY_CHUNKED || head.status < 200);
    }
    scan_done(&scan);
}

static void scan_in(const char *text, size_t len, size_t piece, bool pauses, struct buf *out, uint64_t *hits)
{
    struct scan scan;

    FUZZ_CHECK(scan_init(&scan, &values) == 0);
    for (size_t at = 0; at < len; at += piece) {
        FUZZ_CHECK(scan_feed(&scan, text + at, len - at < piece ? len - at : piece, false, out) == 0);
        if (pauses)
            FUZZ_CHECK(scan_pause(&scan, out) == 0);
    }
    FUZZ_CHECK(scan_feed(&scan, "", 0, true, out) == 0);
    FUZZ_CHECK(!scan_holds(&scan));
    *hits = scan.hits;
    scan_done(&scan);
}

static void fuzz_stream(const char *text, size_t len, size_t piece)
{
    AUTO_BUF struct buf whole = BUF_INIT(8u << 20), cut = BUF_INIT(8u << 20), paused = BUF_INIT(8u << 20);
    uint64_t hits, hits_cut, hits_paused;

    scan_in(text, len, len + 1, false, &whole, &hits);
    scan_in(text, len, piece % 64 + 1, false, &cut, &hits_cut);
    scan_in(text, len, piece % 64 + 1, true, &paused, &hits_paused);
    FUZZ_CHECK(hits == hits_cut && hits == hits_paused && whole.len == cut.len &&
               (whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0));
    FUZZ_CHECK(!memmem(whole.data ? whole.data : "", whole.len, VALUE, sizeof(VALUE) - 1));
    if (hits == 0)
        FUZZ_CHECK(whole.len == len && (len == 0 || memcmp(whole.data, text, len) == 0) && paused.len == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    AUTO_FREE char *text = malloc(size);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data + 2, size - 2);
    set_up(data[1]);
    switch (data[0] % 3) {
    case 0: fuzz_request(text, size - 2); break;
    case 1: fuzz_reply(text, size - 2); break;
    default: fuzz_stream(text, size - 2, data[1]); break;
    }
    return 0;
}
