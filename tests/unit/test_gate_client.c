/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's side of brig-egress, against a brig-egress that the test plays on the other end of a socketpair:
 * every request is answered exactly once, whatever dies when, and nobody is called from within. And the host's files,
 * sent when they have changed and not otherwise.
 */
#include "unit.h"

#include <poll.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "gate/gate_client.h"

struct seen {
    struct loop *loop;
    struct gate_client *client;
    int peer;
    unsigned events, syncs, losts, prepared, failed, done, counts;
    uint64_t last_slot, last_in;
    char ca[64], why[256];
    enum brig_code code;
    bool inside, destroy; /* inside: a function of the client is running */
    bool busy;
    char order[64];
    size_t n_order;
};

static void mark(struct seen *seen, char c)
{
    assert_false(seen->inside);
    assert_true(seen->n_order < sizeof seen->order - 1);
    seen->order[seen->n_order++] = c;
}

static bool is_busy(void *ctx)
{
    return ((struct seen *)ctx)->busy;
}

static void on_event(void *ctx, const struct gate_event *event)
{
    struct seen *seen = ctx;

    mark(seen, 'e');
    seen->events++;
    seen->last_slot = event->head.slot;
}

static void on_sync(void *ctx)
{
    struct seen *seen = ctx;

    mark(seen, 's');
    seen->syncs++;
}

static void on_lost(void *ctx)
{
    struct seen *seen = ctx;

    mark(seen, 'l');
    seen->losts++;
}

static void keep(struct seen *seen, const struct brig_err *err)
{
    seen->failed++;
    seen->code = (enum brig_code)err->code;
    snprintf(seen->why, sizeof seen->why, "%s", err->message);
}

static void on_prepared(void *ctx, const struct gate_prepared *prepared, const char *ca, const struct brig_err *err)
{
    struct seen *seen = ctx;

    mark(seen, 'p');
    assert_true((prepared == NULL) == (err != NULL));
    if (err) {
        keep(seen, err);
    } else {
        seen->prepared++;
        snprintf(seen->ca, sizeof seen->ca, "%s", ca ? ca : "");
    }
    if (seen->destroy) {
        gate_client_destroy(seen->client);
        seen->client = NULL;
    }
}

static void on_done(void *ctx, const struct brig_err *err)
{
    struct seen *seen = ctx;

    mark(seen, 'd');
    if (err)
        keep(seen, err);
    else
        seen->done++;
}

static void on_counts(void *ctx, const struct gate_counts *counts, const struct brig_err *err)
{
    struct seen *seen = ctx;

    mark(seen, 'c');
    if (err) {
        keep(seen, err);
    } else {
        seen->counts++;
        seen->last_in = counts->bytes_in;
    }
}

static void spin(struct seen *seen)
{
    for (int i = 0; i < 8; i++)
        assert_int_equal(loop_run_once(seen->loop, 0, NULL), 0);
}

static void connect_pair(struct seen *seen)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    if (seen->peer >= 0)
        close(seen->peer);
    seen->peer = pair[1];
    seen->inside = true;
    assert_int_equal(gate_client_connect(seen->client, pair[0], NULL), 0);
    seen->inside = false;
}

static int set_up(void **state)
{
    struct seen *seen = calloc(1, sizeof *seen);
    const struct gate_client_events events = {on_event, on_sync, is_busy, on_lost, seen};

    assert_non_null(seen);
    seen->peer = -1;
    assert_int_equal(loop_create(&seen->loop, NULL), 0);
    assert_int_equal(gate_client_create(seen->loop, &events, &seen->client, NULL), 0);
    *state = seen;
    return 0;
}

static int tear_down(void **state)
{
    struct seen *seen = *state;

    gate_client_destroy(seen->client);
    if (seen->peer >= 0)
        close(seen->peer);
    loop_destroy(seen->loop);
    free(seen);
    return 0;
}

/* The next packet at the peer's end; its descriptors are closed unless fd takes the first. */
static uint16_t take(struct seen *seen, union gate_any *msg, int *fd)
{
    int fds[GATE_LISTENERS_MAX];
    size_t n = GATE_LISTENERS_MAX;

    if (gate_receive(seen->peer, msg, fds, &n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 && fd)
            *fd = fds[0];
        else
            close(fds[i]);
    }
    return msg->head.type;
}

static void answer(struct seen *seen, uint16_t type, uint64_t slot, uint64_t in, enum brig_code code, const char *ca)
{
    union gate_any msg = {.head = {GATE_MAGIC, GATE_VERSION, type, slot}};
    AUTO_FD int fd = ca ? gate_memfd("ca", ca, strlen(ca)) : -1;

    if (type == GATE_PREPARED) {
        msg.prepared.err.code = (int)code;
        msg.prepared.brokers = ca != NULL;
    } else if (type == GATE_LISTENING) {
        msg.answer.err.code = (int)code;
    } else if (type != GATE_EVENT) {
        msg.counted.err.code = (int)code;
        msg.counted.counts.bytes_in = in;
    }
    assert_int_equal(gate_send(seen->peer, &msg, &fd, fd >= 0 ? 1 : 0), 0);
}

static int ask_prepare(struct seen *seen, uint64_t slot, struct brig_err *err)
{
    seen->inside = true;
    int r = gate_client_prepare(seen->client, slot, 1, 0, "{}", 2, on_prepared, seen, err);
    seen->inside = false;
    return r;
}

static int ask_count(struct seen *seen, uint64_t slot)
{
    seen->inside = true;
    int r = gate_client_count(seen->client, slot, on_counts, seen, NULL);
    seen->inside = false;
    return r;
}

/* ---- the cases --------------------------------------------------------------------------------------------- */

static void test_round_trips(void **state)
{
    struct seen *seen = *state;
    union gate_any msg;
    int fd = -1, two[2];
    const struct gate_listener what[2] = {{80, GATE_TCP, AF_INET6}, {53, GATE_DNS_UDP, AF_INET6}};
    AUTO_FREE char *spec = NULL;
    size_t len = 0;

    connect_pair(seen);
    assert_int_equal(seen->syncs, 0);
    spin(seen);
    assert_int_equal(seen->syncs, 1);
    assert_int_equal(take(seen, &msg, NULL), GATE_SYNC);
    assert_int_equal(gate_client_synced(seen->client, NULL), 0);
    assert_int_equal(take(seen, &msg, NULL), GATE_SYNCED);

    assert_int_equal(ask_prepare(seen, 7, NULL), 0);
    assert_int_equal(take(seen, &msg, &fd), GATE_PREPARE);
    assert_int_equal(msg.head.slot, 7);
    assert_int_equal(msg.prepare.spec_len, 2);
    assert_int_equal(gate_memfd_read(fd, 100, &spec, &len), 0);
    assert_string_equal(spec, "{}");
    close(fd);
    answer(seen, GATE_PREPARED, 7, 0, BRIG_E_NONE, "-----BEGIN");
    spin(seen);
    assert_int_equal(seen->prepared, 1);
    assert_string_equal(seen->ca, "-----BEGIN");

    assert_int_equal(pipe2(two, O_CLOEXEC), 0);
    seen->inside = true;
    assert_int_equal(gate_client_listen(seen->client, 7, "abc", what, two, 2, on_done, seen, NULL), 0);
    seen->inside = false;
    close(two[0]);
    close(two[1]);
    assert_int_equal(take(seen, &msg, NULL), GATE_LISTEN);
    assert_string_equal(msg.listen.sandbox_id, "abc");
    assert_int_equal(msg.listen.n, 2);
    answer(seen, GATE_LISTENING, 7, 0, BRIG_E_HOST, NULL);
    spin(seen);
    assert_int_equal(seen->failed, 1);
    assert_int_equal(seen->code, BRIG_E_HOST);
    answer(seen, GATE_EVENT, 9, 0, 0, NULL);
    spin(seen);
    assert_int_equal(seen->events, 1);
    assert_int_equal(seen->last_slot, 9);
}

/* Events stay where they are while whoever takes them is behind; none is lost, and the loop does not spin meanwhile. */
static void test_waits_while_busy(void **state)
{
    struct seen *seen = *state;

    connect_pair(seen);
    seen->busy = true;
    for (int i = 0; i < 5; i++)
        answer(seen, GATE_EVENT, 9, 0, 0, NULL);
    spin(seen);
    assert_int_equal(seen->events, 0);
    assert_int_equal(poll(&(struct pollfd){.fd = loop_fd(seen->loop), .events = POLLIN}, 1, 0), 0);
    seen->busy = false;
    for (int i = 0; i < 200 && seen->events < 5; i++)
        assert_int_equal(loop_run_once(seen->loop, 20, NULL), 0);
    assert_int_equal(seen->events, 5);
}

static void test_answers_find_their_request(void **state)
{
    struct seen *seen = *state;

    connect_pair(seen);
    assert_int_equal(ask_count(seen, 1), 0);
    assert_int_equal(ask_count(seen, 2), 0);
    assert_int_equal(ask_count(seen, 1), 0);
    answer(seen, GATE_COUNTED, 2, 22, 0, NULL);
    spin(seen);
    assert_int_equal(seen->counts, 1);
    assert_int_equal(seen->last_in, 22);
    answer(seen, GATE_COUNTED, 1, 11, 0, NULL);
    answer(seen, GATE_COUNTED, 1, 12, 0, NULL);
    spin(seen);
    assert_int_equal(seen->counts, 3);
    assert_int_equal(seen->last_in, 12);
    assert_true(gate_client_connected(seen->client));
    /* One more than was asked for: the peer is confused. */
    answer(seen, GATE_COUNTED, 1, 13, 0, NULL);
    spin(seen);
    assert_int_equal(seen->counts, 3);
    assert_false(gate_client_connected(seen->client));
    assert_int_equal(seen->losts, 1);
}

static void test_death_in_flight(void **state)
{
    struct seen *seen = *state;
    struct brig_err err = {0};

    connect_pair(seen);
    spin(seen);
    assert_int_equal(ask_prepare(seen, 1, NULL), 0);
    assert_int_equal(ask_count(seen, 1), 0);
    close(seen->peer);
    seen->peer = -1;
    spin(seen);
    assert_string_equal(seen->order, "spcl"); /* both are told, then that it is gone */
    assert_int_equal(seen->failed, 2);
    assert_int_equal(seen->code, BRIG_E_BUSY);
    assert_false(gate_client_connected(seen->client));
    assert_true(ask_prepare(seen, 2, &err) < 0);
    assert_int_equal(err.code, BRIG_E_BUSY);
    assert_non_null(strstr(err.message, "brig-egress"));
    spin(seen);
    assert_int_equal(seen->failed, 2);
}

/* The send itself finds the socket dead: not from within. */
static void test_death_while_sending(void **state)
{
    struct seen *seen = *state;

    connect_pair(seen);
    spin(seen);
    close(seen->peer);
    seen->peer = -1;
    assert_int_equal(ask_prepare(seen, 1, NULL), 0);
    assert_int_equal(seen->failed, 0);
    spin(seen);
    assert_int_equal(seen->failed, 1);
    assert_int_equal(seen->losts, 1);
}

static void test_resync(void **state)
{
    struct seen *seen = *state;
    union gate_any msg;

    connect_pair(seen);
    spin(seen);
    assert_int_equal(ask_count(seen, 1), 0);
    connect_pair(seen); /* in its place, before anybody noticed */
    spin(seen);
    assert_string_equal(seen->order, "scs"); /* the old one's request fails; it is not lost, it is replaced */
    assert_int_equal(seen->failed, 1);
    assert_int_equal(seen->syncs, 2);
    assert_int_equal(take(seen, &msg, NULL), GATE_SYNC);
    assert_int_equal(take(seen, &msg, NULL), 0);
    assert_int_equal(ask_count(seen, 1), 0);
    answer(seen, GATE_COUNTED, 1, 5, 0, NULL);
    spin(seen);
    assert_int_equal(seen->counts, 1);
}

static void test_full_socket(void **state)
{
    struct seen *seen = *state;
    union gate_any msg;
    unsigned n = 0, got = 0;
    uint64_t next = 1;

    connect_pair(seen);
    spin(seen);
    for (; n < 2000; n++)
        assert_int_equal(ask_prepare(seen, n + 1, NULL), 0);
    size_t fds = unit_count_fds();
    assert_true(fds > 100); /* those that wait are kept, with their descriptors */
    while (got < n) {
        uint16_t type = take(seen, &msg, NULL);
        if (type == GATE_PREPARE) {
            assert_int_equal(msg.head.slot, next++); /* in the order of asking */
            got++;
        }
        if (type == 0)
            assert_int_equal(loop_run_once(seen->loop, 0, NULL), 0);
    }
    assert_true(unit_count_fds() < 40);
    for (unsigned i = 0; i < 60; i++) {
        answer(seen, GATE_PREPARED, i + 1, 0, 0, NULL);
        seen->n_order = 0;
        spin(seen);
    }
    assert_int_equal(seen->prepared, 60);
}

static void test_cancel(void **state)
{
    struct seen *seen = *state;

    connect_pair(seen);
    spin(seen);
    assert_int_equal(ask_count(seen, 1), 0);
    assert_int_equal(ask_count(seen, 2), 0);
    gate_client_cancel(seen->client, seen);
    answer(seen, GATE_COUNTED, 1, 5, 0, NULL);
    spin(seen);
    assert_true(gate_client_connected(seen->client)); /* its answer is expected all the same */
    close(seen->peer);
    seen->peer = -1;
    spin(seen);
    assert_int_equal(seen->counts + seen->failed, 0);
    assert_int_equal(seen->losts, 1);
}

static void test_destroyed_from_below(void **state)
{
    struct seen *seen = *state;

    for (int dead = 0; dead < 2; dead++) {
        const struct gate_client_events events = {on_event, on_sync, is_busy, on_lost, seen};
        if (!seen->client)
            assert_int_equal(gate_client_create(seen->loop, &events, &seen->client, NULL), 0);
        connect_pair(seen);
        spin(seen);
        seen->destroy = true;
        assert_int_equal(ask_prepare(seen, 1, NULL), 0);
        assert_int_equal(ask_count(seen, 1), 0);
        if (dead) {
            close(seen->peer);
            seen->peer = -1;
        } else {
            answer(seen, GATE_PREPARED, 1, 0, 0, NULL);
            answer(seen, GATE_COUNTED, 1, 0, 0, NULL);
        }
        spin(seen);
        assert_null(seen->client);
        assert_int_equal(seen->counts, 0);
        seen->destroy = false;
    }
    assert_int_equal(seen->losts, 0);
}

/* ---- the host's files -------------------------------------------------------------------------------------- */

static char *file_text(struct seen *seen, char name[32])
{
    union gate_any msg;
    int fd = -1;
    char *text = NULL;
    size_t len = 0;

    if (take(seen, &msg, &fd) != GATE_FILE)
        return NULL;
    snprintf(name, 32, "%s", msg.file.name);
    assert_int_equal(gate_memfd_read(fd, 16u << 20, &text, &len), 0);
    close(fd);
    return text;
}

static void test_host_files(void **state)
{
    struct seen *seen = *state;
    struct gate_host_files files = {0};
    char name[32], path[] = "/tmp/brig-test-ca-XXXXXX";
    int pair[2], fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "one\n", 4), 4);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    seen->peer = pair[1];
    assert_int_equal(
        gate_host_files_send(&files, pair[0], "127.0.0.1:5353 10.0.0.1 fd00::1 [fd00::2]:54 10.0.0.2#55", path, NULL),
        0);
    for (int i = 0; i < 3; i++) {
        AUTO_FREE char *text = file_text(seen, name);
        assert_non_null(text);
        assert_string_equal(name, i == 0 ? "resolv.conf" : i == 1 ? "hosts" : "ca");
        if (i == 0)
            assert_string_equal(
                text, "nameserver 127.0.0.1#5353\nnameserver 10.0.0.1\nnameserver fd00::1\nnameserver fd00::2#54\n"
                      "nameserver 10.0.0.2#55\n");
        if (i == 2)
            assert_string_equal(text, "one\n");
    }
    /* Nothing has changed: nothing is sent. */
    assert_int_equal(
        gate_host_files_send(&files, pair[0], "127.0.0.1:5353 10.0.0.1 fd00::1 [fd00::2]:54 10.0.0.2#55", path, NULL),
        0);
    assert_null(file_text(seen, name));
    assert_int_equal(write(fd, "two\n", 4), 4);
    assert_int_equal(gate_host_files_send(&files, pair[0], "10.0.0.9", path, NULL), 0);
    AUTO_FREE char *first = file_text(seen, name);
    assert_string_equal(first, "nameserver 10.0.0.9\n");
    AUTO_FREE char *second = file_text(seen, name);
    assert_string_equal(name, "ca");
    assert_string_equal(second, "one\ntwo\n");
    assert_null(file_text(seen, name));
    /* One that has gone is an empty text. */
    unlink(path);
    assert_int_equal(gate_host_files_send(&files, pair[0], "10.0.0.9", path, NULL), 0);
    AUTO_FREE char *third = file_text(seen, name);
    assert_string_equal(third, "");
    assert_int_equal(gate_host_files_send(&files, pair[0], "10.0.0.9", path, NULL), 0);
    assert_null(file_text(seen, name));
    close(fd);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_answers_find_their_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_death_in_flight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_death_while_sending, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resync, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_socket, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waits_while_busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_destroyed_from_below, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_host_files, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
