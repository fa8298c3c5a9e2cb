/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the service: sandboxes and programs. A spec that is accepted keeps its rules, and is accepted again
 * in the form in which the store keeps it, with the same meaning: otherwise a restart would lose a sandbox.
 */
#include "fuzz.h"

#include "receipt/receipt.h"
#include "host/limits.h"
#include "sandbox/private.h"
#include "sandbox/process.h"

static char image[] = "host", dir[] = "/workspace";
static const struct config config = {
    .image = image, .work_dir = dir, .idle_timeout_s = 3600, .gate_private_ranges = (char *)(uintptr_t) "admin"};
static const struct caller admin = {.role = STORE_ROLE_ADMIN};

static void check_pairs(const struct sbox_pair *a, const struct sbox_pair *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(str_eq(a[i].name, b[i].name) && str_eq(a[i].value, b[i].value));
}

static void check_same(const struct sbox_spec *a, const struct sbox_spec *b)
{
    FUZZ_CHECK(str_eq(a->template_name, b->template_name) && str_eq(a->name, b->name) &&
               str_eq(a->workdir, b->workdir));
    FUZZ_CHECK(a->n_metadata == b->n_metadata && a->n_env == b->n_env && a->n_binds == b->n_binds);
    check_pairs(a->metadata, b->metadata, a->n_metadata);
    check_pairs(a->env, b->env, a->n_env);
    for (size_t i = 0; i < a->n_binds; i++)
        FUZZ_CHECK(str_eq(a->binds[i].source, b->binds[i].source) && str_eq(a->binds[i].target, b->binds[i].target) &&
                   a->binds[i].read_only == b->binds[i].read_only);
    FUZZ_CHECK(memcmp(&a->limits, &b->limits, sizeof a->limits) == 0);
    FUZZ_CHECK(a->require == b->require && a->profile == b->profile && a->writable_root == b->writable_root);
    FUZZ_CHECK(a->timeout_ms == b->timeout_ms && a->idle_timeout_ms == b->idle_timeout_ms);
    FUZZ_CHECK(a->on_timeout == b->on_timeout && a->on_death == b->on_death && a->confine == b->confine &&
               a->idle_ignores_processes == b->idle_ignores_processes);
}

static void check_sandbox(const struct sbox_spec *spec)
{
    struct brig_limits limits = spec->limits;
    struct buf buf = BUF_INIT(64u << 20);
    struct json json = JSON_INIT(&buf);
    struct json_doc *doc = NULL;
    struct sbox_spec again;
    struct brig_err err = {0};

    limits_fill(&limits, true);
    FUZZ_CHECK(limits_check(&limits, NULL) == 0);
    FUZZ_CHECK(spec->timeout_ms <= DURATION_MAX_MS && spec->limits.timeout <= DURATION_MAX_MS);
    FUZZ_CHECK(spec->n_metadata <= PAIRS_MAX && spec->n_env <= ENV_MAX);
    json_object(&json);
    json_spec(&json, spec, true);
    receipt_put_limits(&json, &spec->limits);
    json_end(&json);
    FUZZ_CHECK(json_finish(&json) == 0);
    FUZZ_CHECK(json_read(buf.data, buf.len, JSON_READ_VALUES, &doc, NULL) == 0);
    if (spec_parse_stored(json_root(doc), &config, &admin, &again, &err) < 0) {
        fprintf(stderr, "%s\n%s\n", err.message, buf.data);
        abort();
    }
    check_same(spec, &again);
    sbox_spec_done(&again);
    json_doc_free(doc);
    buf_done(&buf);
}

static void check_process(const struct process_spec *spec)
{
    FUZZ_CHECK(spec->argv && spec->argv[0] && spec->argv[0][0]);
    FUZZ_CHECK(!spec->workdir || spec->workdir[0] == '/');
    for (size_t i = 0; spec->env && spec->env[i]; i++)
        FUZZ_CHECK(spec->env[i][0] != '=' && strchr(spec->env[i], '='));
    FUZZ_CHECK(spec->timeout_ms <= DURATION_MAX_MS && spec->ring <= 64u << 20);
    uint8_t sum = 0; /* every byte of it is there */
    for (size_t i = 0; i < spec->input_len; i++)
        sum ^= ((const uint8_t *)spec->input)[i];
    __asm__ volatile("" : : "r"(sum)); /* not optimised away */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sbox sbox = {.spec = {.workdir = "/workspace"}};
    struct json_doc *doc = NULL;
    struct sbox_spec spec;
    struct process_spec_parsed parsed;
    struct brig_err err;

    if (json_read((const char *)data, size, 4096, &doc, NULL) < 0)
        return 0;
    if (sbox_spec_parse(json_root(doc), &config, NULL, &admin, &spec, &err) == 0) {
        check_sandbox(&spec);
        sbox_spec_done(&spec);
    } else {
        FUZZ_CHECK(err.code != 0 && err.message[0] && !strpbrk(err.message, "\r\n"));
    }
    if (process_spec_parse(json_root(doc), &sbox, &parsed, &err) == 0) {
        check_process(&parsed.spec);
        process_spec_done(&parsed);
    } else {
        FUZZ_CHECK(err.code != 0 && err.message[0] && !strpbrk(err.message, "\r\n"));
    }
    if (process_spec_parse_shell(json_root(doc), &sbox, &parsed, &err) == 0)
        process_spec_done(&parsed);
    json_doc_free(doc);
    return 0;
}
