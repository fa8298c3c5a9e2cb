/* SPDX-License-Identifier: Apache-2.0 */
/* The manager on a fake provider: creates, limits, idempotency. */
#include "sandbox_rig.h"

#include <sqlite3.h>

/* ---- create, find, end ----------------------------------------------------------------------------------------- */

static void create_find_end(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"one\",\"metadata\":{\"k\":\"v\"}}");
    struct manager_stats stats;
    char id[32];

    assert_int_equal(sbox->state, SBOX_RUNNING);
    assert_non_null(sbox->link);
    assert_int_equal(strlen(sbox->boot_id), 26);
    snprintf(id, sizeof id, "%s", sbox->id);
    assert_ptr_equal(manager_find(rig->manager, &rig->caller, id), sbox);
    assert_ptr_equal(manager_find(rig->manager, &rig->caller, "one"), sbox);
    assert_null(manager_find(rig->manager, &rig->caller, "two"));
    assert_null(manager_find(rig->manager, &rig->caller, ""));
    assert_ptr_equal(manager_first(rig->manager), sbox);
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.sandboxes[SBOX_RUNNING], 1);
    assert_int_equal(stats.created, 1);
    assert_true(rig_audited(rig, "sandbox.create|key-1|" ORG "|"));

    rig_end(rig, sbox);
    assert_null(manager_find(rig->manager, &rig->caller, id));
    assert_null(manager_find(rig->manager, &rig->caller, "one"));
    assert_null(manager_first(rig->manager));
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.sandboxes[SBOX_RUNNING], 0);
    assert_int_equal(stats.sandboxes[SBOX_ENDED], 0);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(rig->fake.n_boxes, 0);

    unsigned n = 0;
    char *cert = rig_find(rig, true, id, NULL, &n);
    assert_int_equal(n, 1);
    assert_non_null(strstr(cert, "\"cause\":\"deleted\""));
    assert_non_null(strstr(cert, "\"ended_by\":\"key-1\""));
    assert_non_null(strstr(cert, "\"request_id\":\"req-1\""));
    assert_non_null(strstr(cert, "\"wall_ms\":7"));
    assert_non_null(strstr(cert, "\"name\":\"one\""));
    free(cert);
    assert_true(rig_audited(rig, "sandbox.delete|key-1|" ORG "|"));
}

/* The provider says that no honest service asks for such a box: whoever asked, it is in the log. */
static void a_refusal_that_is_distrust(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct fake_box *box = rig_box(sbox);

    fake_die(box, BRIG_CAUSE_POLICY, "bind source /");
    rig_run(rig, 20);
    assert_false(rig_audited(rig, "provider.refused"));
    sbox = rig_sandbox(rig, "{}");
    box = rig_box(sbox);
    fake_die(box, BRIG_CAUSE_POLICY, "bind source /");
    box->how.distrust = true;
    rig_run(rig, 20);
    assert_true(rig_audited(rig, "provider.refused|key-1|" ORG "|fake|"));
}

static void other_organisation(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"mine\"}");
    struct caller other = {.org_id = ORG2, .key_id = "key-2", .actor = "key-2", .request_id = "req-9"};
    struct caller socket = {.org_id = ORG2, .actor = "socket:0", .socket = true};

    assert_null(manager_find(rig->manager, &other, "mine"));
    assert_false(rig_audited(rig, "denied"));
    assert_null(manager_find(rig->manager, &other, sbox->id));
    assert_true(rig_audited(rig, "denied|key-2||"));
    assert_true(rig_audited(rig, "req-9|sync"));
    assert_ptr_equal(manager_find(rig->manager, &socket, sbox->id), sbox);
    assert_null(manager_find(rig->manager, &socket, "mine")); /* a name could have been planted */
}

static void names_are_unique(void **state)
{
    struct rig *rig = *state;
    struct got got = {0};
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"one\"}");

    assert_true(rig_ask(rig, "{\"name\":\"one\"}", NULL, 0, &got) < 0);
    assert_int_equal(got.err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(got.err.message, sbox->id));
    /* another organisation's names are its own */
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG2);
    rig_sandbox(rig, "{\"name\":\"one\"}");
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG);
    rig_end(rig, sbox);
    rig_sandbox(rig, "{\"name\":\"one\"}");
}

static void create_fails(void **state)
{
    struct rig *rig = *state;
    struct got got = {0};
    struct manager_stats stats;

    rig->fake.fail_create = true;
    assert_true(rig_ask(rig, "{}", NULL, 0, &got) < 0);
    assert_int_equal(got.err.errnum, ENOSPC);
    assert_int_equal(got.n, 0);
    rig->fake.fail_create = false;

    rig->fake.fail_up = "seccomp is not on";
    rig->fake.fail_cause = BRIG_CAUSE_POLICY;
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got), 0);
    RIG_UNTIL(rig, got.n == 1);
    assert_true(got.failed);
    assert_null(got.sbox);
    assert_int_equal(got.err.code, BRIG_E_REFUSED);
    assert_string_equal(got.err.message, "seccomp is not on");
    rig->fake.fail_cause = BRIG_CAUSE_HOST_ERROR;
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got), 0);
    RIG_UNTIL(rig, got.n == 2);
    assert_int_equal(got.err.code, BRIG_E_HOST);
    assert_string_equal(got.err.message, "Failed to create sandbox: seccomp is not on");
    RIG_UNTIL(rig, !manager_first(rig->manager));
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.create_failures, 3);
    assert_int_equal(rig->manager->creating, 0);
    assert_int_equal(rig->fake.n_boxes, 0);
}

/* The end of one that is being created cancels it; the create's caller is told why. */
static void end_while_creating(void **state)
{
    struct rig *rig = *state;
    struct got made = {0}, ended = {0};

    rig->fake.hold_up = true;
    assert_int_equal(rig_ask(rig, "{\"name\":\"slow\"}", NULL, 0, &made), 0);
    struct sbox *sbox = manager_find(rig->manager, &rig->caller, "slow");
    assert_non_null(sbox);
    assert_int_equal(sbox->state, SBOX_CREATING);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    RIG_UNTIL(rig, made.n && ended.n);
    assert_true(made.failed);
    assert_int_equal(made.err.code, BRIG_E_CONFLICT);
    assert_false(ended.failed);
    assert_int_equal(rig->fake.n_boxes, 0);
    assert_null(manager_first(rig->manager));
}

static void working_directory(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"workdir\":\"/data/x\"}");

    assert_string_equal(rig_peer(sbox)->mkdir_path, "/data/x");
    struct got got = {0};
    assert_int_equal(rig_ask(rig, "{\"workdir\":\"/usr/x\"}", NULL, 0, &got), 0);
    RIG_UNTIL(rig, rig->fake.boxes->peer);
    rig->fake.boxes->peer->mkdir_errnum = EROFS;
    RIG_UNTIL(rig, got.n);
    assert_int_equal(got.err.code, BRIG_E_USAGE);
    assert_non_null(strstr(got.err.message, "workdir /usr/x: Read-only file system"));
}

static void sql(struct rig *rig, const char *text)
{
    sqlite3 *db;
    char *why = NULL;

    assert_int_equal(sqlite3_open(rig->path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", text, why);
    sqlite3_close(db);
}

/* A create that the store does not take leaves nothing; once it works again, so does everything, without a restart. */
static void store_fails(void **state)
{
    struct rig *rig = *state;
    struct got got = {0}, ended = {0};
    struct sbox *sbox = rig_sandbox(rig, "{}");
    char id[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    rig_flush(rig);
    sql(rig, "ALTER TABLE sandboxes RENAME TO hidden");
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &got), 0);
    RIG_UNTIL(rig, got.n);
    assert_true(got.failed);
    assert_null(got.sbox);
    /* one that ends now has ended, and whoever ended it hears that its certificate could not be written */
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    RIG_UNTIL(rig, ended.n);
    assert_true(ended.failed);
    assert_null(manager_first(rig->manager));
    RIG_UNTIL(rig, rig->fake.n_boxes == 0);
    sql(rig, "ALTER TABLE hidden RENAME TO sandboxes");
    rig_sandbox(rig, "{}");
    /* the certificates are tried again */
    assert_true(rig->manager->n_certs >= 1);
    rig->manager->retry.fn(&rig->manager->retry);
    RIG_UNTIL(rig, rig->manager->n_certs == 0);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(cert);
    free(cert);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void refuse_create(struct rig *rig, const char *spec, const char *message)
{
    struct got got = {0};

    if (rig_ask(rig, spec, NULL, 0, &got) == 0)
        fail_msg("accepted: %s", spec);
    assert_int_equal(got.err.code, BRIG_E_LIMIT);
    assert_string_equal(got.err.message, message);
}

static void max_sandboxes(void **state)
{
    struct rig *rig = *state;
    struct manager_stats stats;
    struct got got[3] = {0};

    rig->config.max_sandboxes = 2;
    /* It counts from the moment it is accepted. */
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got[0]), 0);
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got[1]), 0);
    refuse_create(rig, "{}", "Maximum number of sandboxes (2) reached");
    RIG_UNTIL(rig, got[0].n && got[1].n);
    refuse_create(rig, "{}", "Maximum number of sandboxes (2) reached");
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.quota_refusals, 2);
    assert_true(
        rig_audited(rig, "sandbox.create|key-1|" ORG "||denied|Maximum number of sandboxes (2) reached|req-1|sync"));
    rig_end(rig, got[0].sbox);
    rig_sandbox(rig, "{}");
}

static void quotas(void **state)
{
    struct rig *rig = *state;

    rig->config.org_max_memory = UINT64_C(1) << 30;
    rig_sandbox(rig, "{\"limits\":{\"memory\":\"768m\"}}");
    refuse_create(rig, "{\"limits\":{\"memory\":\"300m\"}}",
                  "organization quota max_memory reached: limit 1073741824, used 805306368, asked 314572800");
    rig->fake.provider.around = 1u << 20;
    refuse_create(rig, "{\"limits\":{\"memory\":\"255m\"}}",
                  "organization quota max_memory reached: limit 1073741824, used 806354944, asked 268435456");
    rig->fake.provider.around = 0;
    rig_sandbox(rig, "{\"limits\":{\"memory\":\"256m\"}}");
    rig->config.org_max_memory = 0;
    rig->config.org_max_cpus = 2500;
    refuse_create(rig, "{}", "organization quota max_cpus reached: limit 2.500, used 2, asked 1");
    rig->config.org_max_cpus = 0;
    rig->config.org_max_sandboxes = 2;
    refuse_create(rig, "{}", "organization quota max_sandboxes reached: limit 2, used 2, asked 1");
    rig->config.org_max_sandboxes = 0;
    rig->config.key_max_sandboxes = 2;
    refuse_create(rig, "{}", "key quota max_sandboxes reached: limit 2, used 2, asked 1");
    snprintf(rig->caller.key_id, sizeof rig->caller.key_id, "key-2");
    rig_sandbox(rig, "{}");
    rig->config.key_max_disk = 1u << 20;
    refuse_create(rig, "{\"limits\":{\"disk\":\"2m\"}}",
                  "key quota max_disk reached: limit 1048576, used 268435456, asked 2097152");
    rig->config.key_max_disk = 0;
    /* an own quota wins */
    struct json_doc *doc = rig_json("{\"max_sandboxes\":1,\"other\":true}");
    assert_int_equal(manager_set_quota(rig->manager, "key-2", json_root(doc), NULL), 0);
    refuse_create(rig, "{}", "key quota max_sandboxes reached: limit 1, used 1, asked 1");
    assert_int_equal(manager_set_quota(rig->manager, "key-2", NULL, NULL), 0);
    json_doc_free(doc);
    doc = rig_json("{\"max_cpus\":0}");
    assert_true(manager_set_quota(rig->manager, "key-2", json_root(doc), NULL) < 0);
    json_doc_free(doc);
    rig_sandbox(rig, "{}");
}

static void create_queue(void **state)
{
    struct rig *rig = *state;
    struct got got[2] = {0};

    rig->config.create_queue = 1;
    rig->fake.hold_up = true;
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got[0]), 0);
    refuse_create(rig, "{}", "1 sandboxes are being created: at most 1 at a time");
}

/* ---- idempotency ---------------------------------------------------------------------------------------- */

static void idempotency(void **state)
{
    struct rig *rig = *state;
    struct got a = {0}, b = {0}, c = {0}, d = {0}, e = {0};

    /* while the first runs, the second waits for it */
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &a), 0);
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &b), 0);
    assert_int_equal(b.n, 0);
    RIG_UNTIL(rig, a.n && b.n);
    assert_ptr_equal(a.sbox, b.sbox);
    assert_int_equal(rig->fake.made, 1);
    /* later, too */
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &c), 0);
    assert_int_equal(c.n, 0); /* never from within */
    RIG_UNTIL(rig, c.n);
    assert_ptr_equal(a.sbox, c.sbox);
    /* another request under the same key */
    assert_true(rig_ask(rig, "{}", "k", 2, &d) < 0);
    assert_int_equal(d.err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(d.err.message, "was used for another request"));
    /* another organisation's key is another key */
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG2);
    assert_int_equal(rig_ask(rig, "{}", "k", 2, &e), 0);
    RIG_UNTIL(rig, e.n);
    assert_ptr_not_equal(a.sbox, e.sbox);
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG);
    /* its sandbox has ended */
    rig_end(rig, a.sbox);
    c.n = 0;
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &c), 0);
    RIG_UNTIL(rig, c.n);
    assert_true(c.failed);
    assert_int_equal(c.err.code, BRIG_E_CONFLICT);
    assert_int_equal(rig->fake.made, 2);
    /* bad keys */
    assert_true(rig_ask(rig, "{}", "", 1, &d) < 0);
    assert_true(rig_ask(rig, "{}", "a\r\nb", 1, &d) < 0);
    assert_int_equal(d.err.code, BRIG_E_USAGE);
}

/* Who makes many keys forgets its own, and not those of another organisation. */
static void idempotency_is_shared(void **state)
{
    struct rig *rig = *state;
    struct got theirs = {0}, again = {0};
    char key[16];

    rig->manager->idem_max = 8;
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG2);
    assert_int_equal(rig_ask(rig, "{}", "theirs", 1, &theirs), 0);
    RIG_UNTIL(rig, theirs.n);
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG);
    for (unsigned i = 0; i < 10; i++) {
        struct got got = {0};
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(rig_ask(rig, "{}", key, 1, &got), 0);
        RIG_UNTIL(rig, got.n);
        rig_end(rig, got.sbox);
    }
    assert_true(rig->manager->n_idems < 8); /* there is something left for one that has nothing */
    assert_int_equal(rig_ask(rig, "{}", "k9", 1, &again), 0);
    RIG_UNTIL(rig, again.n);
    assert_true(again.failed); /* it is known: its sandbox has ended */
    assert_int_equal(rig->fake.made, 11);
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG2);
    again = (struct got){0};
    assert_int_equal(rig_ask(rig, "{}", "theirs", 1, &again), 0);
    RIG_UNTIL(rig, again.n);
    assert_ptr_equal(again.sbox, theirs.sbox);
    assert_int_equal(rig->fake.made, 11);
}

static void idempotency_of_a_failure(void **state)
{
    struct rig *rig = *state;
    struct got a = {0}, b = {0};

    rig->fake.fail_up = "no";
    rig->fake.fail_cause = BRIG_CAUSE_HOST_ERROR;
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &a), 0);
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &b), 0);
    RIG_UNTIL(rig, a.n && b.n);
    assert_true(a.failed && b.failed);
    rig->fake.fail_up = NULL;
    a.n = 0;
    assert_int_equal(rig_ask(rig, "{}", "k", 2, &a), 0); /* nothing is left of the first attempt */
    RIG_UNTIL(rig, a.n);
    assert_false(a.failed);
}

static void idempotency_survives(void **state)
{
    struct rig *rig = *state;
    struct got a = {0}, b = {0};

    assert_int_equal(rig_ask(rig, "{}", "k", 1, &a), 0);
    RIG_UNTIL(rig, a.n);
    char id[32];
    snprintf(id, sizeof id, "%s", a.sbox->id);
    rig_stop_manager(rig);
    rig_start(rig);
    assert_int_equal(rig_ask(rig, "{}", "k", 1, &b), 0);
    RIG_UNTIL(rig, b.n);
    assert_false(b.failed);
    assert_string_equal(b.sbox->id, id);
    /* a day later it is forgotten */
    idem_expire(rig->manager, clock_real_ns() + 1);
    b.n = 0;
    assert_int_equal(rig_ask(rig, "{}", "k", 2, &b), 0);
    RIG_UNTIL(rig, b.n);
    assert_string_not_equal(b.sbox->id, id);
}

/* A thousand creates and deletes at once: the counts end at zero. */
static void many(void **state)
{
    struct rig *rig = *state;
    enum { N = 1000 };
    struct got *made = calloc(N, sizeof *made), *ended = calloc(N, sizeof *ended);
    struct manager_stats stats;
    unsigned n = 0;

    assert_true(made && ended);
    rig->config.max_sandboxes = N;
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(rig_ask(rig, "{}", NULL, 0, &made[i]), 0);
    while (n < N) {
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
        for (unsigned i = 0; i < N; i++)
            if (made[i].n && made[i].sbox) {
                assert_int_equal(sbox_end(take_ptr(&made[i].sbox), &rig->caller, "deleted", got_sbox, &ended[i], NULL),
                                 0);
                n++;
            }
    }
    RIG_UNTIL(rig, rig->manager->count == 0);
    manager_stats(rig->manager, &stats);
    for (int i = 0; i < SBOX_STATE_MAX; i++)
        assert_int_equal(stats.sandboxes[i], 0);
    assert_int_equal(stats.created, N);
    assert_int_equal(stats.ended, N);
    assert_int_equal(rig->manager->creating, 0);
    assert_int_equal(rig->fake.n_boxes, 0);
    free(made);
    free(ended);
}

/* Every allocation of a create fails once: an error or success, never half of it. */
static void create_without_memory(void **state)
{
    struct rig *rig = *state;

    for (size_t n = 0; n < 200; n++) {
        struct got got = {0};
        struct sbox_spec spec;
        struct brig_err err = {0};
        assert_int_equal(rig_spec(rig, "{\"name\":\"x\",\"metadata\":{\"a\":\"b\"}}", &spec, &err), 0);
        mem_fail_after(n);
        int r = manager_create_sandbox(rig->manager, &rig->caller, &spec, "k", (uint8_t[32]){1}, got_sbox, &got, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0) {
            RIG_UNTIL(rig, got.n);
            if (!got.failed)
                rig_end(rig, got.sbox);
        } else {
            assert_int_equal(err.code, BRIG_E_NOMEM);
        }
        idem_expire(rig->manager, INT64_MAX);
        RIG_UNTIL(rig, !manager_first(rig->manager) && rig->fake.n_boxes == 0);
        if (!failed)
            return;
    }
    fail_msg("still failing");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(create_find_end),       CASE(a_refusal_that_is_distrust),
        CASE(other_organisation),    CASE(names_are_unique),
        CASE(create_fails),          CASE(end_while_creating),
        CASE(working_directory),     CASE(store_fails),
        CASE(max_sandboxes),         CASE(quotas),
        CASE(create_queue),          CASE(idempotency),
        CASE(idempotency_is_shared), CASE(idempotency_of_a_failure),
        CASE(idempotency_survives),  CASE(many),
        CASE(create_without_memory),
    };

    return cmocka_run_group_tests_name("manager", cases, NULL, NULL);
}
