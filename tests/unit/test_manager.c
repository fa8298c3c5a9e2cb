/* SPDX-License-Identifier: Apache-2.0 */
/* The manager on a fake provider: creates, limits, races, deadlines, deaths, recovery. */
#include "sandbox_rig.h"

#include <sqlite3.h>

/* ---- states ------------------------------------------------------------------------------------------------ */

static void table_of_states(void **state UNUSED)
{
    static const char *const expected[SBOX_STATE_MAX] = {
        /* to: creating running pausing paused resuming stopping ended */
        [SBOX_CREATING] = ".r...s.", [SBOX_RUNNING] = "c.p..s.",  [SBOX_PAUSING] = "cr.p.s.", [SBOX_PAUSED] = "c...rs.",
        [SBOX_RESUMING] = "cr.p.s.", [SBOX_STOPPING] = "......e", [SBOX_ENDED] = ".......",
    };

    for (int from = 0; from < SBOX_STATE_MAX; from++)
        for (int to = 0; to < SBOX_STATE_MAX; to++)
            assert_int_equal(state_allows((enum sbox_state)from, (enum sbox_state)to), expected[from][to] != '.');
    assert_string_equal(sbox_state_name(SBOX_PAUSING), "pausing");
    assert_string_equal(sbox_state_name(SBOX_STATE_MAX), "unknown");
}

/* ---- specs --------------------------------------------------------------------------------------------------- */

static void refused(struct rig *rig, const char *text, const char *message)
{
    struct sbox_spec spec;
    struct brig_err err = {0};

    if (rig_spec(rig, text, &spec, &err) == 0)
        fail_msg("%s was accepted", text);
    if (!strstr(err.message, message))
        fail_msg("%s: \"%s\" does not hold \"%s\"", text, err.message, message);
    assert_int_equal(err.code, BRIG_E_USAGE);
}

static void specs_are_strict(void **state)
{
    struct rig *rig = *state;

    refused(rig, "[]", "must be a JSON object");
    refused(rig, "{\"nam\":\"x\"}", "nam: there is no such member");
    refused(rig, "{\"name\":1}", "name 1: must be a string");
    refused(rig, "{\"name\":\"-x\"}", "name -x: must be 1 to 63 of");
    refused(rig, "{\"name\":\"brig\"}", "is reserved");
    refused(rig, "{\"name\":\"Host\"}", "is reserved");
    refused(rig, "{\"name\":\"run-x\"}", "names that start with \"run-\" are reserved");
    refused(rig, "{\"name\":\"sandbox-1\"}", "reserved");
    refused(rig, "{\"name\":\"abcdefghijklmnopqrstuvwxyz\"}", "has the form of an id");
    refused(rig, "{\"name\":\"a\\r\\nb\"}", "must not hold control characters");
    refused(rig, "{\"metadata\":{\"a\\nb\":\"c\"}}", "must not hold control characters");
    refused(rig, "{\"metadata\":{\"a\":\"c\\r\\nX: y\"}}", "must not hold control characters");
    refused(rig, "{\"metadata\":{\"\":\"c\"}}", "must not be empty");
    refused(rig, "{\"metadata\":{\"a\":1}}", "metadata a: must be a string");
    refused(rig, "{\"env\":{\"A=B\":\"c\"}}", "must not hold spaces or \"=\"");
    refused(rig, "{\"env\":{\"A B\":\"c\"}}", "must not hold spaces");
    refused(rig, "{\"env\":{\"A\":\"c\\u0000d\"}}", "must not hold a NUL");
    refused(rig, "{\"limits\":{\"memry\":1}}", "limits.memry: there is no such limit");
    refused(rig, "{\"limits\":{\"memory\":1}}", "memory 1: must be between");
    refused(rig, "{\"require\":\"wings\"}", "require wings: there is no such layer");
    refused(rig, "{\"profile\":\"lax\"}", "profile \"lax\": must be one of default, paranoid, compat");
    refused(rig, "{\"workdir\":\"x\"}", "must be absolute");
    refused(rig, "{\"workdir\":\"/a/../b\"}", "must not hold \"..\"");
    refused(rig, "{\"user\":\"root\"}", "user \"root\": must be one of user");
    refused(rig, "{\"network\":\"full\"}", "network \"full\": must be one of none");
    refused(rig, "{\"on_timeout\":\"stop\"}", "must be one of kill, pause");
    refused(rig, "{\"on_death\":null}", "on_death null: must be one of none, recreate");
    refused(rig, "{\"confine\":\"/\"}", "must be one of root, workdir");
    refused(rig, "{\"writable_root\":1}", "must be true or false");
    refused(rig, "{\"template\":\"nope\"}", "template nope: nothing here can supply it");
    refused(rig, "{\"template\":\"../x\"}", "must be a name of");
    refused(rig, "{\"template\":\"--privileged\"}", "must be a name of");
}

/* Attack A20: none of them wraps into something small, none is taken for "no limit". */
static void integer_edges(void **state)
{
    static const char *const values[] = {"0", "-1", "2147483648", "1e308", "1e-9", "\"0\"", "\"-1\"", "\"1e9\"", "9223372036854775807", "\"9e99G\"", "true", "[]"};
    struct rig *rig = *state;
    char text[128];

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        snprintf(text, sizeof text, "{\"timeout\":%s}", values[i]);
        refused(rig, text, "must be between 0.001 and 31536000 seconds");
        snprintf(text, sizeof text, "{\"idle_timeout\":%s}", values[i]);
        refused(rig, text, "must be between 0.001 and 31536000 seconds");
        snprintf(text, sizeof text, "{\"limits\":{\"timeout\":%s}}", values[i]);
        refused(rig, text, "must be between");
        snprintf(text, sizeof text, "{\"limits\":{\"cpus\":%s}}", values[i]);
        refused(rig, text, "must be between");
        snprintf(text, sizeof text, "{\"limits\":{\"pids\":%s}}", values[i]);
        refused(rig, text, "must be");
        if (!str_eq(values[i], "2147483648")) {
            snprintf(text, sizeof text, "{\"limits\":{\"memory\":%s}}", values[i]);
            refused(rig, text, "must be");
        }
    }
    refused(rig, "{\"limits\":{\"memory\":\"9e99G\"}}", "limits.memory \"9e99G\": must be a positive number of bytes");
    refused(rig, "{\"limits\":{\"memory\":1.5}}", "must be a positive number of bytes");
    refused(rig, "{\"limits\":{\"cpus\":0.001}}", "cpus 1: must be between");
}

static void specs_are_read(void **state)
{
    struct rig *rig = *state;
    struct sbox_spec spec;
    struct brig_err err = {0};

    assert_int_equal(rig_spec(rig, "{}", &spec, &err), 0);
    assert_string_equal(spec.template_name, "host");
    assert_string_equal(spec.workdir, "/workspace");
    assert_int_equal(spec.idle_timeout_ms, 3600000);
    assert_int_equal(spec.timeout_ms, 0);
    sbox_spec_done(&spec);
    sbox_spec_done(&spec); /* twice is fine */

    assert_int_equal(rig_spec(rig,
                              "{\"name\":\"a.b\",\"metadata\":{\"k\":\"v\"},\"env\":{\"A\":\"b\\nc\"},\"limits\":{\"memory\":\"64m\",\"cpus\":0.5,\"timeout\":1.5,"
                              "\"pids\":10,\"output\":100},\"require\":[\"seccomp\"],\"profile\":\"paranoid\",\"workdir\":\"/w\",\"user\":\"user\",\"network\":\"none\","
                              "\"timeout\":\"2m\",\"idle_timeout\":null,\"on_timeout\":\"pause\",\"on_death\":\"recreate\",\"idle_policy\":\"requests\","
                              "\"confine\":\"workdir\",\"writable_root\":true,\"template\":\"python:2.7\"}",
                              &spec, &err),
                     0);
    assert_string_equal(spec.name, "a.b");
    assert_string_equal(spec.metadata[0].value, "v");
    assert_string_equal(spec.env[0].value, "b\nc");
    assert_int_equal(spec.limits.memory, 64u << 20);
    assert_int_equal(spec.limits.cpus, 500);
    assert_int_equal(spec.limits.timeout, 1500);
    assert_int_equal(spec.require, BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP));
    assert_int_equal(spec.profile, BRIG_PROFILE_PARANOID);
    assert_int_equal(spec.timeout_ms, 120000);
    assert_int_equal(spec.idle_timeout_ms, 0);
    assert_int_equal(spec.on_timeout, SBOX_TIMEOUT_PAUSE);
    assert_int_equal(spec.on_death, SBOX_DEATH_RECREATE);
    assert_true(spec.idle_ignores_processes && spec.confine && spec.writable_root);
    assert_non_null(strstr(spec.note, "python:2.7"));
    sbox_spec_done(&spec);

    /* binds and paths are the administrator's */
    assert_true(rig_spec(rig, "{\"binds\":[{\"source\":\"/srv\",\"target\":\"/data\"}]}", &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_FORBIDDEN);
    assert_true(rig_spec(rig, "{\"template\":\"/srv/root\"}", &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_FORBIDDEN);
    rig->caller.role = STORE_ROLE_ADMIN;
    assert_int_equal(rig_spec(rig, "{\"binds\":[{\"source\":\"/srv\",\"target\":\"/data\",\"read_only\":true}]}", &spec, &err), 0);
    assert_true(spec.binds[0].read_only);
    sbox_spec_done(&spec);
    refused(rig, "{\"binds\":[{\"source\":\"srv\",\"target\":\"/data\"}]}", "must be absolute");
    refused(rig, "{\"binds\":[{\"source\":\"/srv\",\"target\":\"/proc/x\"}]}", "must not be in /proc");
}

static void specs_without_memory(void **state)
{
    struct rig *rig = *state;
    struct json_doc *doc = rig_json("{\"metadata\":{\"k\":\"v\"},\"env\":{\"A\":\"b\"}}");
    struct sbox_spec spec;
    struct brig_err err = {0};

    mem_fail_after(0);
    int r = sbox_spec_parse(json_root(doc), &rig->config, &rig->caller, &spec, &err);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(r, -ENOMEM);
    json_doc_free(doc);
}

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

static void other_organisation(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"mine\"}");
    struct caller other = {.org_id = ORG2, .key_id = "key-2", .actor = "key-2", .request_id = "req-9"};
    struct caller socket = {.org_id = ORG2, .actor = "socket:0", .socket = true};

    assert_null(manager_find(rig->manager, &other, "mine"));
    assert_false(rig_audited(rig, "denied"));
    assert_null(manager_find(rig->manager, &other, sbox->id));
    assert_true(rig_audited(rig, "denied|key-2|" ORG2 "|"));
    assert_true(rig_audited(rig, "req-9|sync"));
    assert_ptr_equal(manager_find(rig->manager, &socket, sbox->id), sbox);
    assert_ptr_equal(manager_find(rig->manager, &socket, "mine"), sbox);
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
    assert_true(rig_audited(rig, "sandbox.create|key-1|" ORG "||denied|Maximum number of sandboxes (2) reached|req-1|sync"));
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
    refuse_create(rig, "{\"limits\":{\"disk\":\"2m\"}}", "key quota max_disk reached: limit 1048576, used 268435456, asked 2097152");
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

/* ---- idempotency -------------------------------------------------------------------------------------------------- */

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

/* ---- pause, resume, update ---------------------------------------------------------------------------------------- */

static void pause_and_resume(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got got = {0}, other = {0};

    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    assert_int_equal(sbox->state, SBOX_PAUSING);
    assert_null(sbox->link);
    /* a losing race is told what it lost against */
    struct brig_err err = {0};
    assert_true(sbox_pause(sbox, &rig->caller, got_sbox, &other, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "is pausing: it cannot become pausing"));
    assert_true(sbox_resume(sbox, &rig->caller, got_sbox, &other, &err) < 0);
    RIG_UNTIL(rig, got.n);
    assert_false(got.failed);
    assert_int_equal(sbox->state, SBOX_PAUSED);
    assert_true(rig_box(sbox)->frozen);
    assert_true(rig_audited(rig, "sandbox.pause|key-1|"));
    got.n = 0;
    assert_int_equal(sbox_resume(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->state, SBOX_RUNNING);
    assert_non_null(sbox->link);
    assert_false(rig_box(sbox)->frozen);

    rig->fake.fail_freeze = true;
    got.n = 0;
    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_true(got.failed);
    assert_int_equal(sbox->state, SBOX_RUNNING);
}

static void end_beats_pause(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got paused = {0}, ended = {0}, again = {0};
    struct brig_err err = {0};

    rig->fake.hold_freeze = true;
    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &paused, NULL), 0);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    assert_true(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &again, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "is stopping: it cannot become stopping"));
    RIG_UNTIL(rig, paused.n && ended.n);
    assert_true(paused.failed);
    assert_int_equal(paused.err.code, BRIG_E_CONFLICT);
    assert_false(ended.failed);
}

static void update(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"metadata\":{\"a\":\"b\"}}");
    const struct sbox_pair pairs[] = {{"c", "d"}, {"e", "f"}}, bad[] = {{"c", "d\n"}};
    struct got got = {0};
    struct brig_err err = {0};

    assert_int_equal(sbox_update(sbox, &rig->caller, 60000, pairs, 2, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->spec.n_metadata, 2);
    assert_string_equal(sbox->spec.metadata[1].value, "f");
    assert_true(sbox->ends_at_boot_ns > sandbox_boot_ns() + 50 * NS_PER_SEC);
    assert_true(sbox_update(sbox, &rig->caller, UINT64_MAX, bad, 1, got_sbox, &got, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_string_equal(sbox->spec.metadata[1].value, "f");
    got.n = 0;
    assert_int_equal(sbox_update(sbox, &rig->caller, 0, NULL, 0, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->ends_at_boot_ns, 0);
    assert_int_equal(sbox->spec.n_metadata, 2);
    assert_true(rig_audited(rig, "sandbox.update|key-1|"));
}

static void got_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->failed = err != NULL;
    if (stats)
        got->stats = *stats;
}

static void statistics(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got got = {0};

    rig->fake.stats_are.memory_bytes = 77;
    assert_int_equal(sbox_stats(sbox, got_stats, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(got.stats.memory_bytes, 77);
    /* asked, and then it ends */
    assert_int_equal(sbox_stats(sbox, got_stats, &got, NULL), 0);
    rig_end(rig, sbox);
    assert_int_equal(got.n, 2);
}

/* ---- age and idleness --------------------------------------------------------------------------------------------- */

static void ages(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"timeout\":0.05}");
    char id[32];
    unsigned n = 0;

    snprintf(id, sizeof id, "%s", sbox->id);
    RIG_UNTIL(rig, !manager_first(rig->manager));
    char *cert = rig_find(rig, true, id, NULL, &n);
    assert_non_null(strstr(cert, "\"cause\":\"timeout\""));
    assert_non_null(strstr(cert, "\"ended_by\":\"timeout\""));
    free(cert);
    assert_true(rig_audited(rig, "sandbox.timeout|system|"));

    sbox = rig_sandbox(rig, "{\"timeout\":0.05,\"on_timeout\":\"pause\"}");
    RIG_UNTIL(rig, sbox->state == SBOX_PAUSED);
    struct got got = {0};
    assert_int_equal(sbox_resume(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->state, SBOX_RUNNING);
    assert_true(sbox->ends_at_boot_ns > 0); /* its time anew */
    RIG_UNTIL(rig, sbox->state == SBOX_PAUSED);
}

static void idles(void **state)
{
    struct rig *rig = *state;
    struct sbox *idle = rig_sandbox(rig, "{\"idle_timeout\":0.1}"), *held = rig_sandbox(rig, "{\"idle_timeout\":0.1,\"name\":\"held\"}");
    struct manager_stats stats;
    char id[32];

    snprintf(id, sizeof id, "%s", idle->id);
    sbox_hold(held);
    RIG_UNTIL(rig, !manager_find(rig->manager, &rig->caller, id));
    assert_non_null(manager_find(rig->manager, &rig->caller, "held"));
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.idle_reaped, 1);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"idle\""));
    free(cert);
    uint64_t released = sandbox_boot_ns();
    sbox_release(held);
    RIG_UNTIL(rig, !manager_find(rig->manager, &rig->caller, "held"));
    assert_true(sandbox_boot_ns() - released >= 100 * NS_PER_MS);
    assert_true(rig_audited(rig, "sandbox.idle|system|"));
}

/* The wall clock is display; a machine that slept has aged; the pass finds what late timers missed. */
static void clock_jumps(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"timeout\":1000}");

    rig_run(rig, 20);
    assert_int_equal(sbox->state, SBOX_RUNNING);
    sandbox_clock_skew = 1001 * NS_PER_SEC;
    rig_run(rig, 20);
    assert_int_equal(sbox->state, SBOX_RUNNING); /* nobody has looked */
    idle_start(rig->manager);
    RIG_UNTIL(rig, !manager_first(rig->manager));
}

/* ---- deaths ------------------------------------------------------------------------------------------------------- */

struct watcher {
    struct sbox_watch watch;
    unsigned told;
};

static void on_watch(void *ctx, struct sbox *sbox UNUSED)
{
    ((struct watcher *)ctx)->told++;
}

static void dies_by_itself(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct watcher a = {.watch = {.ended = on_watch, .ctx = &a}}, b = {.watch = {.ended = on_watch, .ctx = &b}};
    char id[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    sbox_watch(sbox, &a.watch);
    sbox_watch(sbox, &b.watch);
    sbox_unwatch(sbox, &b.watch);
    fake_die(rig_box(sbox), BRIG_CAUSE_OOM, "it used too much");
    RIG_UNTIL(rig, !manager_first(rig->manager));
    assert_int_equal(a.told, 1);
    assert_int_equal(b.told, 0);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"oom\""));
    assert_non_null(strstr(cert, "\"ended_by\":\"sandbox\""));
    assert_non_null(strstr(cert, "it used too much"));
    free(cert);
}

/* brig-init breaks the protocol: the sandbox cannot be trusted any more. */
static void link_breaks(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    char id[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    rig_run(rig, 5);
    peer_frame(rig_peer(sbox), SVC_DATA, 12345, 1, "x", 1);
    RIG_UNTIL(rig, !manager_first(rig->manager));
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"sandbox-gone\""));
    assert_non_null(strstr(cert, "broke the protocol"));
    free(cert);
}

static void recreated(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"on_death\":\"recreate\"}");
    char id[32], boot[32], box[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    snprintf(boot, sizeof boot, "%s", sbox->boot_id);
    snprintf(box, sizeof box, "%s", sbox->priv->box_id);
    fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "pid 1 died");
    RIG_UNTIL(rig, sbox->state == SBOX_CREATING);
    RIG_UNTIL(rig, sbox->state == SBOX_RUNNING);
    assert_string_equal(sbox->id, id);
    assert_string_not_equal(sbox->boot_id, boot);
    assert_string_not_equal(sbox->priv->box_id, box);
    assert_non_null(sbox->link);
    assert_true(rig_audited(rig, "sandbox.recreate|system|"));
    /* not for ever */
    unsigned deaths = 1;
    while (manager_first(rig->manager)) {
        if (sbox->state == SBOX_RUNNING) {
            fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "again");
            deaths++;
            RIG_UNTIL(rig, !manager_first(rig->manager) || sbox->state != SBOX_RUNNING);
        }
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
    }
    assert_int_equal(deaths, RECREATE_MAX);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"recreated\":4"));
    free(cert);
}

/* Between two lives it can be deleted. */
static void end_while_recreating(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"on_death\":\"recreate\"}");

    fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "pid 1 died");
    RIG_UNTIL(rig, sbox->state == SBOX_CREATING && !sbox->priv->box);
    rig_end(rig, sbox);
    assert_null(manager_first(rig->manager));
    assert_int_equal(rig->fake.n_boxes, 0);
}

static void ephemeral(void **state)
{
    struct rig *rig = *state;
    struct sbox_spec spec;
    struct got got = {0};
    char id[32];
    unsigned n = 9;

    assert_int_equal(rig_spec(rig, "{}", &spec, NULL), 0);
    spec.ephemeral = true;
    assert_int_equal(manager_create_sandbox(rig->manager, &rig->caller, &spec, NULL, NULL, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    snprintf(id, sizeof id, "%s", got.sbox->id);
    rig_end(rig, got.sbox);
    free(rig_find(rig, true, id, NULL, &n));
    assert_int_equal(n, 0);
    assert_null(manager_first(rig->manager));
}

/* ---- events ------------------------------------------------------------------------------------------------------- */

struct heard {
    struct manager_listener listener;
    struct manager *manager;
    unsigned n, leave_at;
    uint64_t seq;
    char last[1024];
};

static void on_heard(void *ctx, const char *org_id, uint64_t seq, const char *json, size_t len)
{
    struct heard *heard = ctx;

    assert_string_equal(org_id, ORG);
    assert_true(seq > heard->seq);
    heard->seq = seq;
    snprintf(heard->last, sizeof heard->last, "%.*s", (int)len, json);
    if (++heard->n == heard->leave_at)
        manager_unlisten(heard->manager, &heard->listener);
}

static void events(void **state)
{
    struct rig *rig = *state;
    struct heard a = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &a}}, b = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &b}, .leave_at = 1};

    manager_listen(rig->manager, &a.listener);
    manager_listen(rig->manager, &b.listener);
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"x\"}");
    assert_int_equal(a.n, 1);
    assert_non_null(strstr(a.last, "\"type\":\"sandbox.create\""));
    assert_non_null(strstr(a.last, "\"name\":\"x\""));
    rig_end(rig, sbox);
    assert_int_equal(a.n, 2);
    assert_int_equal(b.n, 1);
    /* those who come back */
    struct heard c = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &c}};
    manager_listen_since(rig->manager, &c.listener, 0);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.seq, a.seq);
    struct heard d = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &d}, .leave_at = 1};
    manager_listen_since(rig->manager, &d.listener, 0);
    assert_int_equal(d.n, 1);
    struct heard e = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &e}};
    manager_listen_since(rig->manager, &e.listener, UINT64_MAX);
    assert_int_equal(e.n, 0);
    manager_unlisten(rig->manager, &a.listener);
    manager_unlisten(rig->manager, &c.listener);
    manager_unlisten(rig->manager, &e.listener);
}

/* The ring is bounded: what is older is gone, and the numbers say so. */
static void events_are_bounded(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct heard a = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &a}};

    for (unsigned i = 0; i < 2 * EVENTS_MAX; i++)
        sandbox_event(sbox, "test", NULL);
    manager_listen_since(rig->manager, &a.listener, 0);
    assert_int_equal(a.n, EVENTS_MAX);
    manager_unlisten(rig->manager, &a.listener);
}

static void as_json(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"x\",\"env\":{\"SECRET\":\"hunter2\"},\"metadata\":{\"k\":\"v\"},\"timeout\":100}");
    struct buf buf = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&buf);

    sbox_json(sbox, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_non_null(strstr(buf.data, "\"state\":\"running\""));
    assert_non_null(strstr(buf.data, "\"env\":[\"SECRET\"]"));
    assert_null(strstr(buf.data, "hunter2"));
    assert_non_null(strstr(buf.data, "\"ends_at\":\"20"));
    assert_non_null(strstr(buf.data, "\"protection\":{\"complete\":true"));
    struct json_doc *doc = rig_json(buf.data);
    assert_non_null(json_get(json_root(doc), "limits"));
    json_doc_free(doc);
    buf_done(&buf);
    assert_false(rig_audited(rig, "hunter2"));
}

/* ---- starts and ends of the service ------------------------------------------------------------------------------- */

static void shuts_down_done(void *ctx)
{
    *(bool *)ctx = true;
}

static void shuts_down(void **state)
{
    struct rig *rig = *state;
    struct got got = {0}, late = {0};
    bool done = false;
    char id[32];

    snprintf(id, sizeof id, "%s", rig_sandbox(rig, "{}")->id);
    rig_sandbox(rig, "{}");
    rig->fake.hold_up = true;
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got), 0);
    manager_shut_down(rig->manager, shuts_down_done, &done);
    assert_true(rig_ask(rig, "{}", NULL, 0, &late) < 0);
    assert_int_equal(late.err.code, BRIG_E_BUSY);
    RIG_UNTIL(rig, done);
    assert_int_equal(rig->fake.n_boxes, 0);
    assert_true(got.failed);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"shutdown\""));
    free(cert);
}

static void shuts_down_and_keeps(void **state)
{
    struct rig *rig = *state;
    bool done = false;

    rig->config.on_shutdown = (char *)(uintptr_t)"keep";
    rig_sandbox(rig, "{}");
    manager_shut_down(rig->manager, shuts_down_done, &done);
    RIG_UNTIL(rig, done);
    assert_int_equal(rig->fake.n_boxes, 1);
}

static void recovers(void **state)
{
    struct rig *rig = *state;
    struct sbox *a = rig_sandbox(rig, "{\"name\":\"lives\",\"timeout\":1000,\"env\":{\"A\":\"b\"},\"limits\":{\"memory\":\"64m\"},\"metadata\":{\"k\":\"v\"}}");
    struct sbox *b = rig_sandbox(rig, "{\"name\":\"dies\"}"), *c = rig_sandbox(rig, "{\"name\":\"paused\"}");
    uint64_t ends = a->ends_at_boot_ns;
    char ids[3][32], boot[32];
    struct got got = {0};
    struct manager_stats stats;

    snprintf(ids[0], 32, "%s", a->id);
    snprintf(ids[1], 32, "%s", b->id);
    snprintf(ids[2], 32, "%s", c->id);
    snprintf(boot, sizeof boot, "%s", a->boot_id);
    assert_int_equal(sbox_pause(c, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    rig_flush(rig);
    struct fake_box *dead = rig_box(b);
    rig_stop_manager(rig);
    fake_free(dead);
    fake_add(&rig->fake, NULL); /* a create that was never committed */
    rig_start(rig);

    a = manager_find(rig->manager, &rig->caller, "lives");
    assert_non_null(a);
    assert_string_equal(a->id, ids[0]);
    assert_string_equal(a->boot_id, boot);
    assert_int_equal(a->state, SBOX_RUNNING);
    assert_non_null(a->link);
    assert_int_equal(a->ends_at_boot_ns, ends);
    assert_string_equal(a->spec.env[0].value, "b");
    assert_string_equal(a->spec.metadata[0].value, "v");
    assert_int_equal(a->spec.limits.memory, 64u << 20);
    assert_int_equal(a->next_proc, 1 + PROC_RESERVE);
    assert_null(manager_find(rig->manager, &rig->caller, "dies"));
    char *cert = rig_find(rig, true, ids[1], NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"sandbox-gone\""));
    free(cert);
    c = manager_find(rig->manager, &rig->caller, ids[2]);
    assert_int_equal(c->state, SBOX_PAUSED);
    assert_null(c->link);
    assert_true(rig_box(c)->frozen);
    assert_int_equal(rig->fake.orphans_ended, 1);
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.orphans, 1);
    assert_int_equal(stats.recovered, 2);
    got.n = 0;
    assert_int_equal(sbox_resume(c, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_false(got.failed);
    assert_non_null(c->link);
}

/* Destroyed in the middle of everything: nobody is called, nothing is touched afterwards (ASan watches). */
static void destroyed_in_between(void **state)
{
    struct rig *rig = *state;
    struct got got[5] = {0};
    struct sbox *a = rig_sandbox(rig, "{}"), *b = rig_sandbox(rig, "{}"), *c = rig_sandbox(rig, "{}");

    assert_int_equal(rig_ask(rig, "{}", "k", 1, &got[0]), 0);
    RIG_UNTIL(rig, rig->manager->ops != NULL || got[0].n); /* up, and on its way to the store */
    assert_int_equal(sbox_pause(a, &rig->caller, got_sbox, &got[1], NULL), 0);
    assert_int_equal(sbox_end(b, &rig->caller, "deleted", got_sbox, &got[2], NULL), 0);
    assert_int_equal(sbox_update(c, &rig->caller, 5000, NULL, 0, got_sbox, &got[3], NULL), 0);
    assert_int_equal(sbox_stats(c, got_stats, &got[4], NULL), 0);
    rig_stop_manager(rig);
    while (rig->fake.boxes)
        fake_free(rig->fake.boxes);
    store_close(rig->store);
    rig_run(rig, 5);
    for (size_t i = 1; i < 5; i++)
        assert_int_equal(got[i].n, 0);
    rig_open_store(rig);
    rig_start(rig);
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
                assert_int_equal(sbox_end(take_ptr(&made[i].sbox), &rig->caller, "deleted", got_sbox, &ended[i], NULL), 0);
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
        cmocka_unit_test(table_of_states),
        CASE(specs_are_strict),
        CASE(integer_edges),
        CASE(specs_are_read),
        CASE(specs_without_memory),
        CASE(create_find_end),
        CASE(other_organisation),
        CASE(names_are_unique),
        CASE(create_fails),
        CASE(end_while_creating),
        CASE(working_directory),
        CASE(store_fails),
        CASE(max_sandboxes),
        CASE(quotas),
        CASE(create_queue),
        CASE(idempotency),
        CASE(idempotency_of_a_failure),
        CASE(idempotency_survives),
        CASE(pause_and_resume),
        CASE(end_beats_pause),
        CASE(update),
        CASE(statistics),
        CASE(ages),
        CASE(idles),
        CASE(clock_jumps),
        CASE(dies_by_itself),
        CASE(link_breaks),
        CASE(recreated),
        CASE(end_while_recreating),
        CASE(ephemeral),
        CASE(events),
        CASE(events_are_bounded),
        CASE(as_json),
        CASE(shuts_down),
        CASE(shuts_down_and_keeps),
        CASE(recovers),
        CASE(destroyed_in_between),
        CASE(many),
        CASE(create_without_memory),
    };

    return cmocka_run_group_tests_name("manager", cases, NULL, NULL);
}
