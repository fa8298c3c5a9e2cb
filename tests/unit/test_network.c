/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's slot in brig-egress, with a provider and a brig-egress that the test plays: what is asked of both, in
 * which order, and that nothing is left of a create that fails, wherever it fails.
 */
#include "sandbox_rig.h"

#include <sys/epoll.h>

#include "base/fd.h"
#include "sandbox/processes.h"

#define WEB "{\"network\":{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\"}]}}"

struct egress {
    struct rig *rig;
    struct policies *policies;
    struct loop_source source;
    int sock;
    char said[256]; /* one letter per packet */
    size_t n;
    uint64_t slot, version, slots; /* of the last PREPARE; how many are there */
    bool hold, deaf;               /* PREPARE is not answered; nothing is */
    bool fail_prepare, fail_listen, listening;
    uint64_t bytes;
    unsigned gates; /* times that the provider was asked for listeners again */
};

static struct egress egress;

static void answer(const union gate_any *msg)
{
    union gate_any out = {.head = {GATE_MAGIC, GATE_VERSION, 0, msg->head.slot}};

    switch (msg->head.type) {
    case GATE_PREPARE:
        egress.slot = msg->head.slot;
        egress.version = msg->prepare.policy_version;
        out.head.type = GATE_PREPARED;
        out.prepared.err.code = egress.fail_prepare ? BRIG_E_USAGE : BRIG_E_NONE;
        snprintf(out.prepared.err.message, sizeof out.prepared.err.message, "%s",
                 egress.fail_prepare ? "no such policy" : "");
        out.prepared.policy_version = egress.version;
        out.prepared.n_ports = 2;
        out.prepared.ports[0] = 80;
        out.prepared.ports[1] = 443;
        out.prepared.listening = egress.listening;
        break;
    case GATE_LISTEN:
        out.head.type = GATE_LISTENING;
        out.answer.err.code = egress.fail_listen ? BRIG_E_HOST : BRIG_E_NONE;
        break;
    case GATE_COUNT:
    case GATE_FORGET:
        out.head.type = msg->head.type == GATE_COUNT ? GATE_COUNTED : GATE_FORGOTTEN;
        out.counted.counts.bytes_in = egress.bytes;
        break;
    default: return;
    }
    if (!egress.deaf && !(egress.hold && out.head.type == GATE_PREPARED))
        assert_int_equal(gate_send(egress.sock, &out, NULL, 0), 0);
}

static void on_packet(struct loop_source *source UNUSED, uint32_t events UNUSED)
{
    static const char letters[GATE_TYPE_MAX] = {[GATE_PREPARE] = 'P', [GATE_LISTEN] = 'L', [GATE_COUNT] = 'c',
                                                [GATE_FORGET] = 'F',  [GATE_SYNC] = 's',   [GATE_SYNCED] = 'S'};
    union gate_any msg;
    int fds[GATE_LISTENERS_MAX];
    size_t n = GATE_LISTENERS_MAX;

    if (gate_receive(egress.sock, &msg, fds, &n) < 0)
        return;
    fd_close_all(fds, n);
    assert_true(egress.n < sizeof egress.said - 1);
    egress.said[egress.n++] = letters[msg.head.type];
    egress.said[egress.n] = '\0';
    answer(&msg);
}

static void heard(const char *expected)
{
    rig_run(egress.rig, 8);
    assert_string_equal(egress.said, expected);
    egress.n = 0;
    egress.said[0] = '\0';
}

static void egress_close(void)
{
    if (egress.sock < 0)
        return;
    loop_remove(egress.rig->loop, &egress.source);
    base_close_fd(&egress.sock);
}

static void egress_open(void)
{
    int pair[2];

    egress_close();
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    egress.sock = pair[0];
    egress.source = (struct loop_source){.fd = -1, .fn = on_packet};
    assert_int_equal(loop_add(egress.rig->loop, &egress.source, egress.sock, EPOLLIN, NULL), 0);
    assert_int_equal(manager_gate(egress.rig->manager, pair[1], NULL), 0);
}

static int fake_gate(struct box *box UNUSED, const struct provider_gate *want,
                     void (*done)(void *ctx, struct box_listeners *listeners, const struct brig_err *err), void *ctx,
                     struct brig_err *err UNUSED)
{
    struct box_listeners listeners = {.n = 2,
                                      .what = {{80, GATE_TCP, AF_INET6}, {8080, GATE_TCP, AF_INET6}},
                                      .fds = {dup(STDIN_FILENO), dup(STDIN_FILENO)}};

    assert_true(want->on);
    egress.gates++;
    done(ctx, &listeners, NULL); /* from within, which the real one does not: harder */
    fd_close_all(listeners.fds, 2);
    return 0;
}

static void start_manager(void)
{
    struct rig *rig = egress.rig;
    const struct manager_options options = {.loop = rig->loop,
                                            .provider = &rig->fake.provider,
                                            .store = rig->store,
                                            .audit = &rig->audit,
                                            .config = &rig->config,
                                            .policies = egress.policies};

    rig->ready = false;
    assert_int_equal(manager_create(&options, rig_ready, rig, &rig->manager, NULL), 0);
}

static int set_up(void **state)
{
    struct rig *rig = rig_create();

    egress = (struct egress){.rig = rig, .sock = -1};
    rig_stop_manager(rig);
    rig->fake.ops.caps |= PROVIDER_GATE;
    rig->fake.ops.gate = fake_gate;
    assert_int_equal(policies_create(rig->store, NULL, &egress.policies, NULL), 0);
    start_manager();
    RIG_UNTIL(rig, rig->ready);
    egress_open();
    heard("sS");
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    struct policies *policies = egress.policies;

    rig_stop_manager(rig);
    egress_close();
    policies_destroy(policies);
    rig_done(rig);
    return 0;
}

static size_t slots(void)
{
    struct network_stats stats;

    manager_network_stats(egress.rig->manager, &stats);
    return stats.sandboxes;
}

/* A create that must fail: why, and that nothing is left. */
static void refused(struct rig *rig, const char *text, enum brig_code code, const char *words)
{
    struct got got = {0};

    if (rig_ask(rig, text, NULL, 0, &got) == 0) {
        RIG_UNTIL(rig, got.n);
        assert_true(got.failed);
    }
    assert_int_equal(got.err.code, code);
    assert_non_null(strstr(got.err.message, words));
    RIG_UNTIL(rig, rig->fake.n_boxes == 0 && slots() == 0 && manager_first(rig->manager) == NULL);
}

/* ---- the cases --------------------------------------------------------------------------------------------- */

static void a_life(void **state)
{
    struct rig *rig = *state;
    struct got got = {0};
    struct sbox *sbox = rig_sandbox(rig, WEB);

    heard("PL");
    assert_true(rig->fake.last.gate.on);
    assert_int_equal(rig->fake.last.gate.n_ports, 2);
    assert_int_equal(rig->fake.last.gate.ports[0], 80);
    assert_int_equal(slots(), 1);
    egress.bytes = 77;
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    heard("F");
    assert_int_equal(slots(), 0);
    struct network_stats stats;
    manager_network_stats(rig->manager, &stats);
    assert_int_equal(stats.bytes_in, 77); /* the last counts came with the end */
}

static void none_says_nothing(void **state)
{
    struct rig *rig = *state;
    struct got got = {0};
    struct sbox *sbox = rig_sandbox(rig, "{}");

    assert_null(sbox->priv->network);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    heard("");
    assert_false(rig->fake.last.gate.on);
}

static void failures_leave_nothing(void **state)
{
    struct rig *rig = *state;

    egress.fail_prepare = true;
    refused(rig, WEB, BRIG_E_USAGE, "no such policy");
    rig_run(rig, 8);
    /* the box is made meanwhile; whoever is faster */
    assert_true(str_eq(egress.said, "PF") || str_eq(egress.said, "PLF"));
    egress.n = 0;
    egress.fail_prepare = false;

    rig->fake.fail_create = true;
    refused(rig, WEB, BRIG_E_HOST, "make a box");
    heard("PF");
    rig->fake.fail_create = false;

    egress.fail_listen = true;
    refused(rig, WEB, BRIG_E_HOST, "");
    heard("PLF");
    egress.fail_listen = false;

    rig->fake.fail_up = "no memory";
    rig->fake.fail_cause = BRIG_CAUSE_HOST_ERROR;
    refused(rig, WEB, BRIG_E_HOST, "no memory");
    heard("PF");
    rig->fake.fail_up = NULL;

    refused(rig, "{\"network\":\"nope\"}", BRIG_E_REFUSED, "there is no policy");
    refused(rig, "{\"secrets\":[{\"name\":\"X\"}]}", BRIG_E_REFUSED, "no secret of that name");
    heard("");
    rig_sandbox(rig, WEB); /* and it still can */
    heard("PL");
}

static void ended_while_it_is_prepared(void **state)
{
    struct rig *rig = *state;
    struct got created = {0}, ended = {0};

    egress.hold = true;
    rig->fake.hold_up = true;
    assert_int_equal(rig_ask(rig, "{\"name\":\"slow\",\"network\":\"open\"}", NULL, 0, &created), 0);
    heard("P");
    struct sbox *sbox = manager_find(rig->manager, &rig->caller, "slow");
    assert_non_null(sbox);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    RIG_UNTIL(rig, created.n && ended.n);
    assert_true(created.failed);
    assert_int_equal(created.err.code, BRIG_E_CONFLICT);
    heard("F");
    assert_int_equal(slots(), 0);
    assert_null(manager_first(rig->manager));
}

static void egress_dies_in_between(void **state)
{
    struct rig *rig = *state;
    struct got got = {0};

    egress.hold = true;
    assert_int_equal(rig_ask(rig, WEB, NULL, 0, &got), 0);
    heard("PL");
    assert_int_equal(got.n, 0); /* it is up and committed, and waits for brig-egress all the same */
    egress_close();
    RIG_UNTIL(rig, got.n);
    assert_true(got.failed);
    assert_int_equal(got.err.code, BRIG_E_BUSY);
    RIG_UNTIL(rig, slots() == 0 && rig->fake.n_boxes == 0);
    egress.hold = false;
    refused(rig, WEB, BRIG_E_BUSY, "brig-egress is not running");
    rig_sandbox(rig, "{}");
    egress_open();
    heard("sS");
    rig_sandbox(rig, WEB);
    heard("PL");
}

static void a_new_egress_is_told(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, WEB);

    heard("PL");
    uint64_t slot = egress.slot;
    egress.bytes = 50;
    assert_int_equal(sbox_count_network(sbox, got_sbox, &(struct got){0}, NULL), 1);
    heard("c");
    egress_open(); /* a new process: it has no listeners of it */
    heard("sPSL");
    assert_int_equal(egress.slot, slot);
    assert_int_equal(egress.gates, 1);
    egress.listening = true; /* the same process, a new socket: nothing to be done */
    egress_open();
    heard("sPS");
    assert_int_equal(egress.gates, 1);
    /* Counters go on where the dead one stopped. */
    uint64_t in = 0, out = 0;
    egress.bytes = 7;
    assert_int_equal(sbox_count_network(sbox, got_sbox, &(struct got){0}, NULL), 1);
    heard("c");
    sbox_network(sbox, &in, &out);
    assert_int_equal(in, 57);
}

static void a_new_brigd_knows_it(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, WEB);
    char id[32];

    heard("PL");
    uint64_t slot = egress.slot;
    snprintf(id, sizeof id, "%s", sbox->id);
    rig_stop_manager(rig);
    heard(""); /* the slot lives on */
    start_manager();
    egress.listening = true;
    egress_open();
    RIG_UNTIL(rig, rig->ready);
    heard("sPS");
    assert_int_equal(egress.slot, slot);
    assert_int_equal(egress.version, 1);
    assert_int_equal(slots(), 1);
    struct got got = {0};
    sbox = manager_find(rig->manager, &rig->caller, id);
    assert_non_null(sbox);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    heard("F");
}

static void set_network(struct rig *rig, struct sbox *sbox, const char *text, struct got *got)
{
    struct json_doc *doc = rig_json(text);
    int r = sbox_set_network(sbox, &rig->caller, json_root(doc), got_sbox, got, &got->err);

    json_doc_free(doc);
    if (r < 0) {
        got->failed = true;
        return;
    }
    RIG_UNTIL(rig, got->n);
}

static void changes(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, WEB), *none = rig_sandbox(rig, "{}");
    struct got got = {0}, more = {0}, bad = {0}, refusal = {0};

    heard("PL");
    /* What is listened on suffices: one step. */
    set_network(rig, sbox, "{\"rules\":[{\"action\":\"allow\",\"domain\":\"y.org\",\"ports\":[80]}]}", &got);
    assert_false(got.failed);
    heard("P");
    assert_int_equal(egress.version, 2);
    /* Another port: its listener first, then the policy. */
    set_network(rig, sbox, "{\"rules\":[{\"action\":\"allow\",\"domain\":\"y.org\",\"ports\":[80,8080]}]}", &more);
    assert_false(more.failed);
    heard("LP");
    assert_int_equal(egress.version, 3);
    /* A policy that is none changes nothing. */
    set_network(rig, sbox, "{\"rules\":7}", &bad);
    assert_true(bad.failed);
    egress.fail_prepare = true;
    bad = (struct got){0};
    set_network(rig, sbox, "{\"rules\":[{\"action\":\"allow\",\"domain\":\"z.org\",\"ports\":[80]}]}", &bad);
    assert_true(bad.failed);
    heard("P");
    egress.fail_prepare = false;
    assert_int_equal(sbox->priv->network->version, 3);
    set_network(rig, none, "\"open\"", &refusal);
    assert_true(refusal.failed);
    assert_int_equal(refusal.err.code, BRIG_E_CONFLICT);
    heard("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_life, set_up, tear_down),
        cmocka_unit_test_setup_teardown(none_says_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failures_leave_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ended_while_it_is_prepared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(egress_dies_in_between, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_egress_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_brigd_knows_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changes, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
