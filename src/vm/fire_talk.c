/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fire_talk.c: the requests that tell Firecracker what to run. They go over one connection to its API socket, through a
 * call of the brig-init around it.
 *
 *     connecting --connected--> asking --answered--> asking ... --the last answer--> over
 *         ^---- refused: it does not listen yet ----/    \--refused, too late, half an answer--> over
 *
 * Firecracker answers every request before it reads the next. Its bytes are not believed: the head is that of
 * codec/http, a body has a length and is bounded, and what nobody asked for is an error. A connection that ends too
 * early is told a little later, because the end of Firecracker itself says more and comes first.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/http/http.h"
#include "vm/fire.h"

#define LISTEN_NS (10 * NS_PER_SEC) /* for Firecracker to listen */
#define RETRY_NS (5 * NS_PER_MS)
#define ANSWER_NS (10 * NS_PER_SEC)
#define ENDED_NS (3 * NS_PER_SEC)
#define REQUEST_MAX 8192u
#define HEAD_MAX 8192u
#define BODY_MAX 32768u
#define WORDS_MAX 120u

enum talk_state { TALK_CONNECTING, TALK_ASKING, TALK_ENDED, TALK_OVER };

struct fire_talk {
    struct vm_box *box;
    const char *path;
    const struct fire_step *steps;
    size_t n_steps, at;
    void (*done)(struct vm_box *box, const struct brig_err *err);
    enum talk_state state;
    uint64_t until_ns;
    struct loop_timer timer;
    struct call *call;
    struct buf in;
    size_t scanned;
    size_t head_len, body_len; /* of the answer, once head_len is not 0 */
    unsigned status;
};

static struct loop *loop_of(const struct fire_talk *talk)
{
    return talk->box->vm->provider.loop;
}

static void over(struct fire_talk *talk)
{
    talk->state = TALK_OVER;
    loop_timer_clear(loop_of(talk), &talk->timer);
    if (talk->call)
        call_drop(take_ptr(&talk->call));
}

static void tell(struct fire_talk *talk, const struct brig_err *err)
{
    over(talk);
    talk->done(talk->box, err);
}

/* What went wrong with the request that is under way. */
static void fail(struct fire_talk *talk, const char *what)
{
    const struct fire_step *step = &talk->steps[talk->at];
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_HOST, 0, "%s %s: Firecracker %s", step->method, step->target, what);
    tell(talk, &err);
}

static void set_timer(struct fire_talk *talk, uint64_t after_ns)
{
    struct brig_err err = {0};

    if (loop_timer_set(loop_of(talk), &talk->timer, loop_now_ns() + after_ns, &err) < 0)
        tell(talk, &err);
}

/* ---- a request ---------------------------------------------------------------------------------------- */

static int put_request(const struct fire_talk *talk, struct buf *out)
{
    const struct fire_step *step = &talk->steps[talk->at];
    AUTO_BUF struct buf body = BUF_INIT(REQUEST_MAX / 2);
    struct json json = JSON_INIT(&body);
    char length[24];
    int r = http_put_request(out, step->method, step->target);

    if (step->body) {
        json_object(&json);
        step->body(talk->box, &json);
        json_end(&json);
        r = r < 0 ? r : json_finish(&json);
    }
    if (r == 0)
        r = http_put_field(out, "Host", "localhost");
    if (r == 0)
        r = http_put_field(out, "Accept", "application/json");
    if (r == 0 && step->body)
        r = str_format(length, sizeof length, "%zu", body.len) < 0 ? -EINVAL
                                                                   : http_put_field(out, "Content-Length", length);
    if (r == 0 && step->body)
        r = http_put_field(out, "Content-Type", "application/json");
    if (r == 0)
        r = http_put_end(out);
    return r == 0 && step->body ? buf_append(out, body.data, body.len) : r;
}

static void ask(struct fire_talk *talk)
{
    AUTO_BUF struct buf out = BUF_INIT(REQUEST_MAX);

    talk->state = TALK_ASKING;
    talk->scanned = talk->head_len = talk->body_len = 0;
    /* The queue of a call that nothing waits on has room for a request. */
    if (put_request(talk, &out) < 0 || call_write(talk->call, out.data, out.len) != (ssize_t)out.len)
        fail(talk, "could not be asked");
    else
        set_timer(talk, ANSWER_NS);
}

/* ---- an answer ---------------------------------------------------------------------------------------- */

/* Its own words are one line without what steers a terminal. */
static void refused(struct fire_talk *talk, const struct json_value *json)
{
    char words[WORDS_MAX], what[WORDS_MAX + 32];

    str_cut(words, sizeof words, json_get_text(json, "fault_message", ""));
    for (unsigned char *at = (unsigned char *)words; *at; at++)
        if (*at < 0x20 || *at == 0x7f)
            *at = ' ';
    (void)!str_format(what, sizeof what, "answers %u%s%s", talk->status, words[0] ? ": " : "", words);
    fail(talk, what);
}

static void answered(struct fire_talk *talk)
{
    const struct fire_step *step = &talk->steps[talk->at];
    AUTO_JSON struct json_doc *doc = NULL;
    const char *body = talk->in.data + talk->head_len;
    struct brig_err err = {0};
    const bool good = talk->status == (step->answer ? 200u : 204u);
    int r = talk->body_len > 0 ? json_read(body, talk->body_len, JSON_READ_VALUES, &doc, &err) : 0;

    if (!good) {
        refused(talk, r == 0 && doc ? json_root(doc) : NULL);
        return;
    }
    if (r < 0 || (step->answer && !doc) || talk->in.len > talk->head_len + talk->body_len) {
        fail(talk, "gave an answer that nobody can read");
        return;
    }
    if (step->answer && step->answer(talk->box, json_root(doc), &err) < 0) {
        tell(talk, &err);
        return;
    }
    buf_consume(&talk->in, talk->in.len);
    if (++talk->at == talk->n_steps)
        tell(talk, NULL);
    else
        ask(talk);
}

/* Returns whether the head is there. */
static bool take_head(struct fire_talk *talk)
{
    const struct http_limits limits = {.head_bytes = HEAD_MAX};
    struct http_head head;
    struct brig_err err = {0};
    int n = http_response_parse(talk->in.data, talk->in.len, talk->steps[talk->at].method, &limits, &talk->scanned,
                                &head, &err);

    if (n == 0)
        return false;
    if (n < 0 || (head.body != HTTP_BODY_NONE && head.body != HTTP_BODY_LENGTH) ||
        (head.body == HTTP_BODY_LENGTH && head.content_length > BODY_MAX)) {
        fail(talk, n < 0 ? "gave an answer that breaks HTTP" : "gave an answer without an end");
        return false;
    }
    talk->head_len = (size_t)n;
    talk->body_len = head.body == HTTP_BODY_LENGTH ? (size_t)head.content_length : 0;
    talk->status = head.status;
    return true;
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct fire_talk *talk = ctx;

    if (talk->state != TALK_ASKING || stream != 1)
        return;
    call_consumed(talk->call, stream, len);
    if (buf_append(&talk->in, data, len) < 0)
        fail(talk, "gave an answer that is too long");
    else if ((talk->head_len > 0 || take_head(talk)) && talk->in.len >= talk->head_len + talk->body_len)
        answered(talk);
}

/* ---- the connection ----------------------------------------------------------------------------------- */

static void on_connected(void *ctx, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct fire_talk *talk = ctx;

    if (talk->state == TALK_CONNECTING)
        ask(talk);
}

static void ended(struct fire_talk *talk)
{
    if (talk->state != TALK_ASKING)
        return;
    talk->state = TALK_ENDED;
    set_timer(talk, ENDED_NS);
}

static void on_eof(void *ctx, unsigned stream UNUSED)
{
    ended(ctx);
}

static void on_reply(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                     size_t len UNUSED)
{
    struct fire_talk *talk = ctx;

    talk->call = NULL;
    if (talk->state != TALK_CONNECTING)
        ended(talk);
    else if (loop_now_ns() < talk->until_ns)
        set_timer(talk, RETRY_NS);
    else
        fail(talk, "does not listen");
}

static void begin(struct fire_talk *talk)
{
    const struct call_events events = {
        .event = on_connected, .data = on_data, .eof = on_eof, .reply = on_reply, .ctx = talk};
    struct brig_err err = {0};

    if (fire_connect(talk->box->link, talk->path, &events, &talk->call, &err) < 0)
        tell(talk, &err);
}

static void on_timer(struct loop_timer *timer)
{
    struct fire_talk *talk = timer->ctx;

    if (talk->state == TALK_CONNECTING)
        begin(talk);
    else
        fail(talk, talk->state == TALK_ENDED ? "ended the connection before the end of its answer"
                                             : "gave no answer within 10 s");
}

int fire_talk_create(struct vm_box *box, const char *path, const struct fire_step *steps, size_t n_steps,
                     void (*done)(struct vm_box *box, const struct brig_err *err), struct fire_talk **ret,
                     struct brig_err *err)
{
    struct fire_talk *talk = mem_zalloc(sizeof *talk);

    if (!talk)
        return err_nomem(err);
    *talk = (struct fire_talk){.box = box,
                               .path = path,
                               .steps = steps,
                               .n_steps = n_steps,
                               .done = done,
                               .until_ns = loop_now_ns() + LISTEN_NS,
                               .timer = {.fn = on_timer, .ctx = talk},
                               .in = BUF_INIT(HEAD_MAX + BODY_MAX)};
    int r = loop_timer_set(loop_of(talk), &talk->timer, loop_now_ns(), err);
    if (r < 0) {
        mem_free(talk);
        return r;
    }
    *ret = talk;
    return 0;
}

void fire_talk_destroy(struct fire_talk *talk)
{
    if (!talk)
        return;
    if (talk->state != TALK_OVER)
        over(talk);
    buf_done(&talk->in);
    mem_free(talk);
}
