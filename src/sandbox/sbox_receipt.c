/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_receipt.c: makes the receipt of a process in a sandbox: the same struct and the same writer as for `brig run`,
 * with what the service adds. It also makes the document of a run that goes on, from which a restarted daemon continues
 * it.
 */
#include "receipt/receipt.h"
#include "sandbox/processes.h"

#define RECEIPT_MAX (SIZE_MAX / 2)

static uint64_t wall_ms(const struct program *program)
{
    const struct svc_proc_exit *exit = &program->exit;

    if (!program->has_exit)
        return program->sent_ns && !program->start_errnum ? (clock_mono_ns() - program->sent_ns) / NS_PER_MS : 0;
    return exit->ended_ns > exit->started_ns ? (exit->ended_ns - exit->started_ns) / NS_PER_MS : 0;
}

static void fill_end(const struct process *process, struct brig_receipt *r)
{
    r->cause = process->cause;
    r->limits_hit = process->prog.limits_hit;
    r->started = process->started_at_ns != 0 && !process->prog.start_errnum && process->pid != 0;
    str_assign(r->detail, process->prog.detail);
    r->exit_code = program_exit_code(&process->prog);
    r->signal = program_exit_signal(&process->prog);
}

int process_receipt(struct process *process)
{
    const struct sbox *sbox = process->sbox;
    struct brig_receipt r = {.size = sizeof r};
    AUTO_BUF struct buf buf = BUF_INIT(RECEIPT_MAX), learned = BUF_INIT(POLICY_JSON_MAX);
    struct json json = JSON_INIT(&buf);
    const struct receipt_service service = {
        .organization_id = sbox->org_id,
        .readers = sbox_is_gifted(sbox) ? caller_reads(&process->caller) : NULL,
        .provider = sbox_ops(sbox)->name,
        .note = sbox->spec.note,
        .audit_seq = process->audit_seq,
        .process = process->prog.number,
        .without_output = !process->is_run,
        .written = {0, process->prog.exit.output[1], process->prog.exit.output[2]},
    };

    str_assign(r.id, process->run_id);
    str_assign(r.sandbox_id, sbox->id);
    str_assign(r.name, sbox->spec.name);
    fill_end(process, &r);
    program_usage(&process->prog, &r.usage);
    r.usage.wall_ms = wall_ms(&process->prog);
    network_process_fill(process, &r, &learned);
    r.limits = sbox->limits;
    r.limits.timeout = process->prog.timeout_ms;
    r.limits.output = process->is_run || process->kill_on_output ? process->prog.output_max : 0;
    memcpy(r.layers, sbox->layers, sizeof r.layers);
    r.protection_complete = sbox->protection_complete;
    for (int i = BRIG_STDOUT; i <= BRIG_STDERR; i++) {
        r.output[i] = process->prog.kept[i].data;
        r.output_len[i] = process->prog.kept[i].len;
        r.truncated[i] = process->prog.truncated[i];
    }
    r.started_at_ns = process->started_at_ns;
    r.ended_at_ns = process->ended_at_ns;
    r.env_names = process->env_names;
    r.env_layers = process->env_layers;
    r.argv = process->argv;
    receipt_put(&json, &r, &service);
    int e = json_finish(&json);
    mem_free(process->receipt);
    process->receipt = e == 0 ? buf_take(&buf, &process->receipt_len) : NULL;
    return process->receipt ? 0 : -ENOMEM;
}

/* ---- runs that go on --------------------------------------------------------------------------------------------- */

int process_open_doc(const struct process *process, struct buf *out)
{
    const struct sbox *sbox = process->sbox;
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "id", process->run_id);
    receipt_put_readers(&json, sbox_is_gifted(sbox) ? caller_reads(&process->caller) : NULL);
    json_key_string(&json, "kind", "command");
    json_key_string(&json, "via", "daemon");
    json_key_string(&json, "organization_id", sbox->org_id);
    json_key_string(&json, "sandbox_id", sbox->id);
    json_key_u64(&json, "process", process->prog.number);
    json_key_array(&json, "command");
    for (size_t i = 0; process->argv && process->argv[i]; i++)
        json_string(&json, process->argv[i]);
    json_end(&json);
    receipt_put_time(&json, "started_at", process->started_at_ns ? process->started_at_ns : clock_real_ns());
    /* for the one who takes it up again */
    json_key_object(&json, "resume");
    json_key_string(&json, "actor", process->caller.actor);
    json_key_string(&json, "key_id", process->caller.key_id);
    json_key_u64(&json, "sent_ns", process->prog.sent_ns);
    json_key_i64(&json, "started_at_ns", process->started_at_ns);
    json_key_u64(&json, "timeout_ms", process->prog.timeout_ms);
    json_key_u64(&json, "deadline_ns", process->prog.deadline_ns);
    json_key_u64(&json, "output", process->prog.output_max);
    json_key_bool(&json, "tty", process->tty);
    json_key_bool(&json, "stdin", process->stdin_open);
    json_key_u64(&json, "shell", process->shell ? process->shell_number : 0);
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}

static int copy_argv(struct process *process, const struct json_value *command)
{
    size_t n = command && command->type == JSON_ARRAY ? command->count : 0, size = (n + 3) * sizeof(char *), i = 0;

    for (const struct json_value *v = n ? command->first : NULL; v; v = v->next)
        size += v->len + 1;
    process->memory = mem_zalloc(size);
    if (!process->memory)
        return -ENOMEM;
    process->argv = (const char **)(void *)process->memory;
    process->env_names = process->env_layers = process->argv + n + 1;
    char *at = (char *)(process->argv + n + 3);
    for (const struct json_value *v = n ? command->first : NULL; v; v = v->next, i++) {
        process->argv[i] = at;
        if (v->type == JSON_STRING)
            memcpy(at, v->string, v->len);
        at += v->len + 1;
    }
    return 0;
}

static int from_doc(struct sbox *sbox, const struct json_value *doc, const char *run_id)
{
    const struct json_value *resume = json_get(doc, "resume");
    uint64_t number = json_get_u64(doc, "process"), shell = json_get_u64(resume, "shell");
    struct caller caller = {0};

    if (number == 0 || number >= INT32_MAX || process_find(sbox, (uint32_t)number) ||
        str_copy(caller.key_id, sizeof caller.key_id, json_get_text(resume, "key_id", "")) < 0)
        return -EINVAL;
    str_cut(caller.actor, sizeof caller.actor, json_get_text(resume, "actor", ""));
    str_assign(caller.org_id, sbox->org_id);
    struct process *process = process_new(sbox, &caller, shell != 0);
    if (!process)
        return -ENOMEM;
    if (copy_argv(process, json_get(doc, "command")) < 0 ||
        str_copy(process->run_id, sizeof process->run_id, run_id) < 0) {
        process_unlink(process);
        return -ENOMEM;
    }
    process->prog.number = (uint32_t)number;
    process->shell_number = (uint32_t)shell;
    process->unconfirmed = true;
    process->prog.state = PROGRAM_RUNNING;
    process->prog.sent_ns = json_get_u64(resume, "sent_ns");
    process->started_at_ns = (int64_t)json_get_u64(resume, "started_at_ns");
    process->prog.timeout_ms = json_get_u64(resume, "timeout_ms");
    process->prog.deadline_ns = json_get_u64(resume, "deadline_ns");
    process->prog.output_max = json_get_u64(resume, "output");
    process->tty = json_get_bool(resume, "tty");
    process->stdin_open = json_get_bool(resume, "stdin");
    if (sbox->next_proc <= process->prog.number)
        sbox->next_proc = process->prog.number + 1;
    return 0;
}

/* What was known, and that no more will be. */
static void close_run(struct manager *manager, const struct json_value *doc, const char *text, const char *run_id)
{
    struct store_run row = {.ended_at_ns = clock_real_ns()};
    AUTO_BUF struct buf buf = BUF_INIT(ROW_MAX), tail = BUF_INIT(4096);
    struct json json = JSON_INIT(&tail);
    const struct brig_receipt outcome = {.cause = BRIG_CAUSE_HOST_ERROR,
                                         .detail = "the service ended before the run did, and with it its sandbox"};
    const char *end = text ? strrchr(text, '}') : NULL;

    json_object(&json);
    receipt_put_outcome(&json, &outcome);
    receipt_put_time(&json, "ended_at", row.ended_at_ns);
    json_end(&json);
    if (json_finish(&json) < 0 || !end || buf_append(&buf, text, (size_t)(end - text)) < 0 ||
        buf_append(&buf, ",", 1) < 0 || buf_append(&buf, tail.data + 1, tail.len - 1) < 0 ||
        str_copy(row.id, sizeof row.id, run_id) < 0 ||
        str_copy(row.org_id, sizeof row.org_id, json_get_text(doc, "organization_id", "")) < 0 ||
        str_copy(row.sandbox_id, sizeof row.sandbox_id, json_get_text(doc, "sandbox_id", "")) < 0)
        return; /* it stays open; the next start tries again */
    snprintf(row.kind, sizeof row.kind, "command");
    (void)!str_copy(row.cause, sizeof row.cause, brig_cause_name(outcome.cause));
    row.doc = buf.data;
    (void)!store_put_run(manager->store, &row, NULL, NULL, NULL);
}

void process_recover(struct manager *manager, const char *doc, const char *run_id)
{
    AUTO_JSON struct json_doc *parsed = NULL;

    if (json_read(doc, strlen(doc), JSON_READ_VALUES, &parsed, NULL) == 0) {
        struct sbox *sbox = sbox_by_id(manager, json_get_text(json_root(parsed), "sandbox_id", ""));
        if (!sbox || !sbox->priv->box || from_doc(sbox, json_root(parsed), run_id) < 0)
            close_run(manager, json_root(parsed), doc, run_id);
    }
}
