/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c: connects our stdin, stdout, stderr and signals to a program in a sandbox. Theory of operation:
 *
 * One poll() watches the WebSocket, our signals, our stdin and, while they are slow, our stdout and stderr. Nothing is
 * sent before the daemon's "begin": until then there is no program to send it to.
 *
 *     begin    stdin is read, signals are forwarded, the size of the window is sent
 *     data     goes to stdout or stderr, never more than they take; then the socket is not read, and the program waits
 *     end      brings the receipt; it is over
 *     closed   without an end: the daemon was restarted. We attach again at the offsets that we have, for ten seconds
 *
 * Signals are handled as in run_loop.c: the first INT, TERM, HUP or QUIT goes to the program; a second one, or two
 * seconds, end it. With a raw terminal they are keys, which go to the program anyway.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "cli/attach.h"
#include "codec/wire/le.h"

#define CANCEL_AFTER_NS (2 * NS_PER_SEC)
#define GIVE_UP_AFTER_NS (5 * NS_PER_SEC)
#define AGAIN_FOR_NS (10 * NS_PER_SEC)
#define AGAIN_MS 100
#define SINK_MAX ((size_t)1 << 20)   /* waiting for our stdout: read no more */
#define SOCKET_MAX ((size_t)1 << 18) /* waiting for the daemon: take no more from stdin */
#define KEY_DETACH_1 0x10            /* Ctrl-P */
#define KEY_DETACH_2 0x11            /* Ctrl-Q */
#define DATA_HEAD 9u

enum { ON_SOCKET, ON_SIGNAL, ON_STDIN, ON_STDOUT, ON_STDERR, ON_MAX };

static const struct {
    int signum;
    const char *name;
} forwarded[] = {{SIGINT, "INT"},   {SIGTERM, "TERM"}, {SIGHUP, "HUP"},
                 {SIGQUIT, "QUIT"}, {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}};

int attach_init(struct attach *attach, struct client *client, const struct attach_options *options,
                struct brig_err *err)
{
    *attach = (struct attach){.options = *options, .client = client, .signal_fd = -1};
    run_sink_init(&attach->out, STDOUT_FILENO, options->tty);
    run_sink_init(&attach->err_out, STDERR_FILENO, options->tty);
    for (unsigned i = 1; i <= 2; i++)
        attach->kept[i] = BUF_INIT(SIZE_MAX / 2);
    if (options->interactive) {
        attach->input = malloc(RUN_INPUT);
        if (!attach->input)
            return err_nomem(err);
    }
    return run_signals(options->tty, &attach->signal_fd, err);
}

void attach_done(struct attach *attach)
{
    ws_destroy(attach->ws);
    run_sink_done(&attach->out);
    run_sink_done(&attach->err_out);
    buf_done(&attach->kept[1]);
    buf_done(&attach->kept[2]);
    json_doc_free(attach->doc);
    free(attach->input);
    base_close_fd(&attach->signal_fd);
}

/* ---- to the daemon -------------------------------------------------------------------------------- */

/* A connection that cannot be written to is noticed by reading it. */
static void send_text(struct attach *attach, const char *text)
{
    struct brig_err ignored;
    if (ws_send(attach->ws, WS_TEXT, text, strlen(text), &ignored) < 0)
        return;
}

static void send_size(struct attach *attach)
{
    uint16_t rows, cols;
    char text[80];

    run_tty_size(&rows, &cols);
    snprintf(text, sizeof(text), "{\"type\":\"resize\",\"rows\":%u,\"cols\":%u}", rows, cols);
    send_text(attach, text);
}

static void cancel(struct attach *attach)
{
    if (attach->cancelled)
        return;
    attach->cancelled = true;
    attach->cancel_at_ns = 0;
    attach->give_up_at_ns = clock_mono_ns() + (attach->begun ? GIVE_UP_AFTER_NS : 0);
    if (attach->begun)
        send_text(attach, attach->options.on_cancel);
}

static void forward_signal(struct attach *attach, int signum)
{
    char text[64];

    if (signum == SIGWINCH || signum == SIGCONT) {
        if (signum == SIGCONT)
            run_tty_raw_again();
        if (attach->begun)
            send_size(attach);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
        if (forwarded[i].signum == signum)
            snprintf(text, sizeof(text), "{\"type\":\"signal\",\"signal\":\"%s\"}", forwarded[i].name);
    if (signum == SIGUSR1 || signum == SIGUSR2) {
        if (attach->begun)
            send_text(attach, text);
        return;
    }
    if (++attach->n_signals > 1 || !attach->begun) {
        cancel(attach);
    } else {
        send_text(attach, text);
        attach->cancel_at_ns = clock_mono_ns() + CANCEL_AFTER_NS;
    }
}

static void read_signals(struct attach *attach)
{
    struct signalfd_siginfo info;
    while (read(attach->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        forward_signal(attach, (int)info.ssi_signo);
}

/* Takes the keys that detach out of the input. Returns what is left of it. */
static size_t look_for_detach(struct attach *attach, char *data, size_t len)
{
    if (!attach->options.detachable)
        return len;
    for (size_t i = 0; i < len; i++) {
        if (attach->half_detach && data[i] == KEY_DETACH_2) {
            attach->detached = true;
            attach->half_detach = false;
            return i > 0 ? i - 1 : 0;
        }
        attach->half_detach = data[i] == KEY_DETACH_1;
    }
    return len;
}

static void read_input(struct attach *attach)
{
    struct brig_err ignored;
    size_t held = attach->half_detach ? 1 : 0; /* a Ctrl-P at the end of the last piece was not sent */
    char *data = attach->input;

    if (held)
        data[0] = KEY_DETACH_1;
    ssize_t n = read(STDIN_FILENO, data + held, RUN_INPUT - 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* an error (a terminal that hung up) is an end like another */
        attach->reading = false;
        attach->eof_sent = true;
        send_text(attach, "{\"type\":\"eof\"}");
        return;
    }
    attach->half_detach = false;
    size_t len = look_for_detach(attach, data, (size_t)n + held);
    if (attach->half_detach)
        len--;
    if (len > 0 && ws_send(attach->ws, WS_BINARY, data, len, &ignored) < 0)
        return;
}

/* ---- from the daemon ------------------------------------------------------------------------------ */

static void keep_output(struct attach *attach, unsigned stream, const uint8_t *data, size_t len)
{
    uint64_t have = attach->kept[1].len + attach->kept[2].len,
             room = attach->options.keep > have ? attach->options.keep - have : 0;
    size_t n = len < room ? len : (size_t)room;

    if (n < len || buf_append(&attach->kept[stream], data, n) < 0)
        attach->truncated[stream] = true;
}

static void take_output(struct attach *attach, const struct ws_message *message)
{
    unsigned stream = message->len >= DATA_HEAD ? message->data[0] : 0;

    if (stream != 1 && stream != 2)
        return;
    uint64_t offset = le_get_u64(message->data + 1);
    const uint8_t *data = message->data + DATA_HEAD;
    size_t len = message->len - DATA_HEAD;
    if (offset < attach->next[stream]) { /* after attaching again: what we had before */
        uint64_t had = attach->next[stream] - offset;
        data += had < len ? had : len;
        len -= had < len ? (size_t)had : len;
    }
    attach->next[stream] = offset + (message->len - DATA_HEAD);
    if (attach->options.output > 0) {
        uint64_t room = attach->options.output - attach->passed;
        if (len > room) {
            attach->truncated[stream] = true;
            len = (size_t)room;
        }
        attach->passed += len;
    }
    if (attach->options.keep > 0)
        keep_output(attach, stream, data, len);
    if (!attach->options.silent)
        run_sink_put(stream == 2 ? &attach->err_out : &attach->out, data, len);
}

static int take_text(struct attach *attach, const struct ws_message *message, struct brig_err *err)
{
    struct json_doc *doc = NULL;
    int r = json_read((const char *)message->data, message->len, (size_t)1 << 20, &doc, err);

    if (r < 0)
        return r;
    const char *type = get_text(json_root(doc), "type", "");
    if (str_eq(type, "begin") && !attach->begun) {
        attach->begun = true;
        attach->reading = attach->options.interactive && !attach->eof_sent;
        if (attach->options.tty)
            send_size(attach);
    }
    if (str_eq(type, "end")) {
        const struct json_value *receipt = json_get(json_root(doc), "receipt");
        attach->ended = true;
        attach->receipt = receipt && receipt->type == JSON_OBJECT ? receipt : NULL;
        attach->doc = doc;
        return 0;
    }
    json_doc_free(doc);
    return 0;
}

static bool is_full(const struct attach *attach)
{
    return attach->out.pending.len - attach->out.sent > SINK_MAX ||
           attach->err_out.pending.len - attach->err_out.sent > SINK_MAX;
}

/* 0; 1 when the connection has closed. */
static int receive(struct attach *attach, struct brig_err *err)
{
    while (!attach->ended && !is_full(attach)) {
        struct ws_message message;
        int r = ws_receive(attach->ws, &message, err);
        if (r <= 0)
            return r;
        if (message.kind == WS_CLOSE)
            return 1;
        if (message.kind == WS_BINARY)
            take_output(attach, &message);
        else
            r = take_text(attach, &message, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- again ---------------------------------------------------------------------------------------- */

int attach_target(struct buf *out, const char *sandbox, uint64_t number, const uint64_t next[3])
{
    return client_target(out, "/v1/sandboxes/%s/processes/%u/attach?stdout=%u&stderr=%u", sandbox, number, next[1],
                         next[2]);
}

static int attach_again(struct attach *attach, struct brig_err *err)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000L};
    uint64_t until = clock_mono_ns() + AGAIN_FOR_NS;
    struct brig_err lost = {0};

    err_set(&lost, BRIG_E_GONE, 0, "%s: the connection broke", client_where(attach->client));
    ws_destroy(take_ptr(&attach->ws));
    while (attach->options.sandbox && !attach->cancelled && clock_mono_ns() < until) {
        AUTO_BUF struct buf target = BUF_INIT(4096);
        if (attach_target(&target, attach->options.sandbox, attach->options.number, attach->next) < 0)
            return err_nomem(err);
        if (ws_open(attach->client, target.data, &attach->ws, err) == 0) {
            attach->begun = false;
            return 0;
        }
        if (client_status(attach->client) >= 400 && client_status(attach->client) < 500)
            return -EIO; /* it is back and does not know it any more; err says so */
        nanosleep(&pause, NULL);
        read_signals(attach);
    }
    *err = lost;
    return -EIO;
}

/* ---- the loop ------------------------------------------------------------------------------------- */

static int next_timeout(const struct attach *attach)
{
    uint64_t at = attach->cancel_at_ns != 0 ? attach->cancel_at_ns : attach->give_up_at_ns, now = clock_mono_ns();

    if (at == 0)
        return -1;
    return at <= now ? 0 : (int)((at - now) / NS_PER_MS) + 1;
}

static int wait_for_events(struct attach *attach, struct brig_err *err)
{
    bool pending = ws_pending(attach->ws) > 0;
    struct pollfd fds[ON_MAX] = {
        [ON_SOCKET] = {.fd = ws_fd(attach->ws),
                       .events = (short)((is_full(attach) ? 0 : POLLIN) | (pending ? POLLOUT : 0))},
        [ON_SIGNAL] = {.fd = attach->signal_fd, .events = POLLIN},
        [ON_STDIN] = {.fd = attach->begun && attach->reading && ws_pending(attach->ws) < SOCKET_MAX ? STDIN_FILENO : -1,
                      .events = POLLIN},
        [ON_STDOUT] = {.fd = run_sink_waiting(&attach->out) ? STDOUT_FILENO : -1, .events = POLLOUT},
        [ON_STDERR] = {.fd = run_sink_waiting(&attach->err_out) ? STDERR_FILENO : -1, .events = POLLOUT},
    };
    struct brig_err ignored;

    if (is_full(attach) && !pending)
        fds[ON_SOCKET].fd = -1; /* else its end alone would wake us again and again */
    if (poll(fds, ON_MAX, next_timeout(attach)) < 0 && errno != EINTR)
        return err_host(err, "poll");
    if (fds[ON_SIGNAL].revents != 0)
        read_signals(attach);
    if (fds[ON_STDOUT].revents != 0)
        run_sink_flush(&attach->out);
    if (fds[ON_STDERR].revents != 0)
        run_sink_flush(&attach->err_out);
    if (pending && ws_flush(attach->ws, &ignored) < 0)
        return 0; /* reading tells */
    if (fds[ON_STDIN].revents != 0 && !attach->detached)
        read_input(attach);
    return 0;
}

/* What the program has said is said, unless our reader is gone or the user wants to go. */
static void write_rest(struct attach *attach)
{
    unsigned before = attach->n_signals;

    run_sink_end(&attach->out);
    run_sink_end(&attach->err_out);
    while ((run_sink_waiting(&attach->out) || run_sink_waiting(&attach->err_out)) && attach->n_signals == before) {
        struct signalfd_siginfo info;
        struct pollfd fds[] = {
            {.fd = attach->signal_fd, .events = POLLIN},
            {.fd = run_sink_waiting(&attach->out) ? STDOUT_FILENO : -1, .events = POLLOUT},
            {.fd = run_sink_waiting(&attach->err_out) ? STDERR_FILENO : -1, .events = POLLOUT},
        };
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            return;
        while (read(attach->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
            attach->n_signals += info.ssi_signo != SIGWINCH && info.ssi_signo != SIGCONT;
        run_sink_flush(&attach->out);
        run_sink_flush(&attach->err_out);
    }
}

int attach_run(struct attach *attach, struct ws *ws, struct brig_err *err)
{
    bool raw = attach->options.tty && attach->options.interactive;
    int r = raw ? run_tty_raw(err) : 0;

    attach->ws = ws;
    while (r == 0 && !attach->ended && !attach->detached) {
        r = receive(attach, err);
        if (r == 1) {
            r = attach_again(attach, err);
            continue; /* the first messages may have come with the answer */
        }
        if (r < 0 || attach->ended)
            break;
        r = wait_for_events(attach, err);
        if (attach->out.failed != 0 || attach->err_out.failed != 0)
            cancel(attach);
        if (attach->cancel_at_ns != 0 && clock_mono_ns() >= attach->cancel_at_ns)
            cancel(attach);
        if (attach->give_up_at_ns != 0 && clock_mono_ns() >= attach->give_up_at_ns)
            break;
    }
    write_rest(attach);
    if (raw)
        run_tty_restore();
    if (attach->cancelled && !attach->ended) {
        err_set(err, BRIG_E_GONE, 0, "cancelled");
        return -ECANCELED;
    }
    return r;
}
