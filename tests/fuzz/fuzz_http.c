/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP codec. The first byte chooses: request, response, chunked body, target. What is checked: a message is read
 * the same whether it comes at once or in two pieces; nothing points outside of the input; strings end where they say;
 * a body gives the same content however it is cut.
 */
#include "fuzz.h"

#include "codec/http/http.h"

static struct http_head head, head2;

static void check_head(const struct http_head *h, const char *data, size_t len)
{
    FUZZ_CHECK(h->n_fields <= HTTP_HEADERS_MAX && h->minor <= 1 && h->body < HTTP_BODY_MAX);
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct http_field *f = &h->fields[i];
        FUZZ_CHECK(f->name > data && f->value + f->value_len < data + len);
        FUZZ_CHECK(f->name_len > 0 && strlen(f->name) == f->name_len && strlen(f->value) == f->value_len);
        FUZZ_CHECK(!strpbrk(f->name, " \t\r\n:") && !strpbrk(f->value, "\r\n"));
        FUZZ_CHECK(f->value_len == 0 || !strchr(" \t", f->value[0]));
    }
    FUZZ_CHECK(!(h->body == HTTP_BODY_CHUNKED && (http_field(h, "content-length") || h->minor == 0)));
    FUZZ_CHECK(h->body != HTTP_BODY_LENGTH || http_field(h, "content-length"));
}

static int parse_some(char *text, size_t len, bool request, size_t *scanned, struct http_head *ret)
{
    static const struct http_limits limits = {.head_bytes = 4096};
    struct brig_err err = {0};
    int r = request ? http_request_parse(text, len, &limits, scanned, ret, &err)
                    : http_response_parse(text, len, "GET", &limits, scanned, ret, &err);

    FUZZ_CHECK(r >= 0 || err.message[0] != '\0');
    FUZZ_CHECK(r <= (int)len && *scanned <= len);
    return r;
}

static void fuzz_head(const uint8_t *data, size_t size, bool request)
{
    AUTO_FREE char *once = malloc(size + 1), *twice = malloc(size + 1);
    size_t cut = size > 0 ? data[size - 1] % (size + 1) : 0, scanned = 0;

    FUZZ_CHECK(once && twice);
    memcpy(once, data, size);
    memcpy(twice, data, size);
    int r = parse_some(once, size, request, &scanned, &head);
    scanned = 0;
    int r2 = parse_some(twice, cut, request, &scanned, &head2);
    if (r2 == 0)
        r2 = parse_some(twice, size, request, &scanned, &head2);
    /* Which refusal comes first may depend on the cut; that there is one may not. */
    FUZZ_CHECK(r < 0 ? r2 < 0 : r == r2);
    if (r <= 0)
        return;
    check_head(&head, once, (size_t)r);
    FUZZ_CHECK(head.n_fields == head2.n_fields && head.body == head2.body &&
               head.content_length == head2.content_length);
    if (request) {
        FUZZ_CHECK(head.minor == 0 || http_field(&head, "host"));
        FUZZ_CHECK(strlen(head.target) <= HTTP_TARGET_MAX && !strpbrk(head.target, " \t\r\n"));
    }
}

static int read_body(const char *data, size_t size, size_t step, struct buf *out, bool *ret_end)
{
    struct http_head h = {.body = HTTP_BODY_CHUNKED};
    struct http_body_reader reader;
    size_t at = 0, limit = step < size ? step : size;

    http_body_init(&reader, &h);
    *ret_end = false;
    while (at < limit && !*ret_end) {
        const char *piece;
        size_t len;
        int r = http_body_take(&reader, data + at, limit - at, &piece, &len, ret_end);
        if (r < 0)
            return r;
        FUZZ_CHECK(r > 0 && piece >= data + at && piece + len <= data + at + r);
        FUZZ_CHECK(buf_append(out, piece, len) == 0);
        at += (size_t)r;
        if (at == limit)
            limit = limit + step < size ? limit + step : size;
    }
    return (int)at;
}

static void fuzz_body(const uint8_t *data, size_t size)
{
    struct buf one AUTO_BUF = BUF_INIT(size + 1), two AUTO_BUF = BUF_INIT(size + 1);
    bool end1, end2;

    if (size < 1)
        return;
    int r1 = read_body((const char *)data, size, size, &one, &end1);
    int r2 = read_body((const char *)data, size, 1 + data[size - 1] % 7, &two, &end2);
    FUZZ_CHECK(r1 == r2 && end1 == end2);
    FUZZ_CHECK(one.len <= size);
    if (r1 >= 0)
        FUZZ_CHECK(one.len == two.len && (one.len == 0 || memcmp(one.data, two.data, one.len) == 0));
}

static void check_target(const struct http_target *target)
{
    for (size_t i = 0; i < target->n_parts; i++) {
        FUZZ_CHECK(strlen(target->parts[i]) == target->part_len[i]);
        FUZZ_CHECK(strcmp(target->parts[i], ".") != 0 && strcmp(target->parts[i], "..") != 0);
    }
    for (size_t i = 0; i < target->n_query; i++) {
        FUZZ_CHECK(strlen(target->query[i].value) == target->query[i].value_len);
        FUZZ_CHECK(http_query(target, target->query[i].name));
    }
    FUZZ_CHECK(target->rest_raw[0] == '/');
}

static void fuzz_target(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct http_target target;
    struct brig_err err;

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (http_target_parse(text, &target, &err) == 0) {
        check_target(&target);
        http_target_done(&target);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 65536)
        return 0;
    switch (data[0] % 4) {
    case 0: fuzz_head(data + 1, size - 1, true); break;
    case 1: fuzz_head(data + 1, size - 1, false); break;
    case 2: fuzz_body(data + 1, size - 1); break;
    default: fuzz_target(data + 1, size - 1); break;
    }
    return 0;
}
