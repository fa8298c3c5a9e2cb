/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_start.c: starts a program in the sandbox and follows it to its end. START and WAIT (and ATTACH, if the output is
 * wanted) leave in one write: we choose the number of the process, so nothing has to be waited for in between.
 *
 * The clock, the output limit and the calls are those of program/program.h.
 */
#include <signal.h>

#include "codec/wire/guest_msg.h"
#include "engine/engine.h"
#include "jail/plan.h"
#include "sandbox/processes.h"

/* ---- argv and environment -------------------------------------------------------------------------------------- */

/* over twice what fits: ENV_MAX of the sandbox, as many of the process and of the image, six of ours */
#define SEEN_SLOTS 8192u
#define ENV_TOTAL (2 * ENV_MAX + 16 + 2 * NETWORK_ENV_MAX + TEMPLATE_ENV_MAX)

struct env_entry {
    const char *name; /* with value: of a pair; without: "NAME=value" */
    size_t name_len;
    const char *value;
    const char *layer;
};

struct env_list {
    struct env_entry entries[ENV_TOTAL];
    size_t n;
    uint16_t slots[SEEN_SLOTS]; /* index + 1 by hash of the name */
};

/* Adds it unless the name is there already: the list is filled with what wins first. */
static int env_add(struct env_list *list, const char *name, size_t len, const char *value, const char *layer)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    uint32_t at = (hash ^ hash >> 16) % SEEN_SLOTS;
    for (; list->slots[at]; at = (at + 1) % SEEN_SLOTS) {
        const struct env_entry *other = &list->entries[list->slots[at] - 1];
        if (other->name_len == len && memcmp(other->name, name, len) == 0)
            return 0;
    }
    if (list->n == ENV_TOTAL)
        return -E2BIG;
    list->entries[list->n++] = (struct env_entry){name, len, value, layer};
    list->slots[at] = (uint16_t)list->n;
    return 0;
}

/* weak: what the sandbox's own variables come before. */
static int env_network(struct env_list *list, struct sbox *sbox, bool weak)
{
    struct sbox_pair pairs[NETWORK_ENV_MAX];
    size_t n = network_env(sbox, weak, pairs);
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++)
        r = env_add(list, pairs[i].name, strlen(pairs[i].name), pairs[i].value, weak ? "network" : "secret");
    return r;
}

/* What the image says; the last of two with the same name is meant. */
static int env_image(struct env_list *list, const char *const *env, int r)
{
    size_t n = 0;

    while (env && env[n])
        n++;
    while (r == 0 && n-- > 0)
        r = env_add(list, env[n], strcspn(env[n], "="), NULL, "template");
    return r;
}

/* What depends on who the user is. */
static bool is_identity(const char *variable)
{
    return str_starts(variable, "HOME=") || str_starts(variable, "USER=") || str_starts(variable, "LOGNAME=");
}

static int env_fill(struct env_list *list, struct sbox *sbox, const struct process_spec *spec)
{
    const char *const *env = spec->env;
    const struct sbox_spec *sandbox = &sbox->spec;
    size_t n = 0;
    int r = 0;

    while (env && env[n])
        n++;
    while (r == 0 && n-- > 0)
        r = env_add(list, env[n], strcspn(env[n], "="), NULL, "run");
    if (r == 0)
        r = env_network(list, sbox, false);
    for (size_t i = sandbox->n_env; r == 0 && i-- > 0;)
        r = env_add(list, sandbox->env[i].name, strlen(sandbox->env[i].name), sandbox->env[i].value, "sandbox");
    if (r == 0)
        r = env_network(list, sbox, true);
    if (sandbox->image)
        r = env_image(list, sandbox->image->info.image.env, r);
    const char *const *base = engine_base_env(spec_has_root(sandbox));
    bool looked_up = spec->user || spec_user_to_find(sandbox);
    for (n = 0; base[n]; n++)
        ;
    while (r == 0 && n-- > 0)
        if (!looked_up || !is_identity(base[n])) /* brig-init knows better */
            r = env_add(list, base[n], strcspn(base[n], "="), NULL, "base");
    return r;
}

static int put_strings(struct buf *out, const struct process_spec *spec, const struct env_list *list,
                       uint32_t *ret_argv)
{
    uint32_t n = 0;
    int r = 0;

    for (; r == 0 && spec->argv[n]; n++)
        r = buf_append(out, spec->argv[n], strlen(spec->argv[n]) + 1);
    *ret_argv = n;
    for (size_t i = list->n; r == 0 && i-- > 0;) {
        const struct env_entry *e = &list->entries[i];
        if (!e->value) {
            r = buf_append(out, e->name, strlen(e->name) + 1);
            continue;
        }
        r = buf_append(out, e->name, e->name_len);
        r = r < 0 ? r : buf_append(out, "=", 1);
        r = r < 0 ? r : buf_append(out, e->value, strlen(e->value) + 1);
    }
    return r;
}

/* argv and the names of the environment, kept for the receipt in one block. */
static int keep_lists(struct process *process, const struct process_spec *spec, const struct env_list *list,
                      uint32_t n_argv)
{
    size_t size = (n_argv + 1 + 2 * (list->n + 1)) * sizeof(char *);

    for (uint32_t i = 0; i < n_argv; i++)
        size += strlen(spec->argv[i]) + 1;
    for (size_t i = 0; i < list->n; i++)
        size += list->entries[i].name_len + 1;
    process->memory = mem_alloc(size);
    if (!process->memory)
        return -ENOMEM;
    process->argv = (const char **)(void *)process->memory;
    process->env_names = process->argv + n_argv + 1;
    process->env_layers = process->env_names + list->n + 1;
    char *at = (char *)(process->env_layers + list->n + 1);
    for (uint32_t i = 0; i < n_argv; i++) {
        size_t len = strlen(spec->argv[i]) + 1;
        process->argv[i] = memcpy(at, spec->argv[i], len);
        at += len;
    }
    process->argv[n_argv] = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const struct env_entry *e = &list->entries[list->n - 1 - i];
        process->env_names[i] = memcpy(at, e->name, e->name_len);
        process->env_layers[i] = e->layer;
        at[e->name_len] = '\0';
        at += e->name_len + 1;
    }
    process->env_names[list->n] = process->env_layers[list->n] = NULL;
    return 0;
}

int process_strings(struct sbox *sbox, const struct process_spec *spec, struct process *keep, struct buf *out,
                    struct svc_proc_start *ret)
{
    struct env_list *list = mem_alloc(sizeof *list);

    if (!list)
        return -ENOMEM;
    list->n = 0;
    memset(list->slots, 0, sizeof list->slots);
    int r = env_fill(list, sbox, spec);
    r = r < 0 ? r : put_strings(out, spec, list, &ret->n_argv);
    if (r == 0 && keep)
        r = keep_lists(keep, spec, list, ret->n_argv);
    ret->n_env = (uint32_t)list->n;
    ret->strings = (const uint8_t *)out->data;
    ret->strings_len = out->len;
    mem_free(list);
    return r;
}

int process_message(struct sbox *sbox, const struct process_spec *spec, const char *workdir, struct process *keep,
                    struct buf *strings, struct svc_proc_start *ret, struct brig_err *err)
{
    const char *user = spec->user;

    if (user && !str_eq(user, sbox->spec.user) && !spec_has_users(&sbox->spec))
        return err_set(err, BRIG_E_REFUSED, 0,
                       "user %s: the sandbox has no root inside and no template of its own, so its programs are those "
                       "of \"user\"",
                       user);
    ret->flags |= user ? SVC_PROC_USER : 0u;
    ret->user = (struct svc_bytes){user, user ? (uint32_t)strlen(user) : 0};
    ret->workdir = (struct svc_bytes){workdir, (uint32_t)strlen(workdir)};
    int r = process_strings(sbox, spec, keep, strings, ret);
    if (r == -E2BIG || r == -EMSGSIZE)
        return err_usage(err, "command and environment: longer than %u bytes, or more than %u variables",
                         GUEST_STRINGS_MAX, ENV_TOTAL);
    return r < 0 ? err_nomem(err) : 0;
}

static int start(struct process *process, const struct process_spec *spec, struct brig_err *err)
{
    AUTO_BUF struct buf strings = BUF_INIT(GUEST_STRINGS_MAX);
    struct svc_proc_start msg = {
        .flags = (spec->tty ? SVC_PROC_TTY : 0u) | (process->stdin_open ? SVC_PROC_STDIN : 0u) |
                 (process->shell ? SVC_PROC_SHELL : 0u) | (spec->hold || process->is_run ? SVC_PROC_HOLD : 0u),
        .rows = spec->rows,
        .cols = spec->cols,
        .ring = spec->ring,
    };
    int r = process_message(process->sbox, spec, process->workdir, process, &strings, &msg, err);

    if (r == 0 && spec->user && (process->user = mem_strdup(spec->user)) == NULL)
        r = err_nomem(err);
    return r < 0 ? r : program_start(&process->prog, &msg, err);
}

/* ---- what brig-init says ---------------------------------------------------------------------------------------- */

/* A time of the sandbox's (same clock, but its word) as wall time, within what is possible. */
static int64_t wall_of(uint64_t mono_ns, uint64_t earliest_ns)
{
    uint64_t now = clock_mono_ns();

    if (mono_ns > now)
        mono_ns = now;
    if (mono_ns < earliest_ns)
        mono_ns = earliest_ns;
    return clock_real_ns() - (int64_t)(now - mono_ns);
}

/* Judges the process once everything that was asked about it has been answered. */
static void process_check(struct process *process)
{
    if (process->prog.state < PROGRAM_JUDGING && !program_waits(&process->prog) && !process->sbox->priv->link_gone)
        process_judge(process);
}

static void on_started(struct program *program, const struct svc_proc_started *msg)
{
    struct process *process = program->owner;
    void (*done)(void *c, struct process *p, const struct brig_err *err) = process->start_done;

    process->pid = msg->pid;
    process->started_at_ns = wall_of(msg->at_ns, program->sent_ns);
    process->start_done = NULL;
    process_pin(process);
    if (done)
        done(process->start_ctx, process, NULL);
    process_check(process);
    process_unpin(process);
}

static void on_answered(struct program *program, uint32_t errnum)
{
    struct process *process = program->owner;

    if (errnum == ENOTCONN)
        return; /* the sandbox is going, and takes it along */
    if (program->has_exit && !process->ended_at_ns)
        process->ended_at_ns = wall_of(program->exit.ended_ns, program->sent_ns);
    if (program->start_errnum) {
        process_drop_calls(process);
        early_drop(process);
    }
    process_check(process);
}

static void on_output(struct program *program, unsigned stream, const uint8_t *data, size_t len)
{
    struct process *process = program->owner;
    size_t take = program_count_output(program, stream, len);

    if (process->is_run && take > 0 &&
        !kept_add(process->sbox->manager, process->sbox->org_id, &program->kept[stream], data, take))
        program->truncated[stream] = true; /* said, not hidden */
    if (take < len && process->kill_on_output && program->verdict.cause == BRIG_CAUSE_MAX)
        process_end(process, BRIG_CAUSE_OUTPUT_LIMIT, "");
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

/* Numbers are promised to the store in blocks, so that none is used twice over a restart. */
int sbox_take_number(struct sbox *sbox, uint32_t *ret, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;

    if (sbox->next_proc >= SVC_UNIT_PROC_MIN)
        return err_set(err, BRIG_E_LIMIT, 0, "sandbox %s: has had too many processes", sbox->id);
    if (sbox->next_proc >= priv->reserved) {
        priv->reserved = sbox->next_proc + PROC_RESERVE;
        int r = row_write(sbox, NULL, NULL, err);
        if (r < 0)
            return r;
    }
    *ret = sbox->next_proc++;
    return 0;
}

static int send_all(struct process *process, const struct process_spec *spec, bool collects, struct brig_err *err)
{
    int r = start(process, spec, err);

    if (r < 0)
        return r;
    if (collects)
        r = program_attach(&process->prog, err);
    else if (!process->shell && !spec->ring) /* who says how much to keep means it */
        r = early_open(process, err);
    if (r == 0)
        r = program_wait(&process->prog, process->sbox->link, err);
    if (r == 0 && spec->input)
        r = input_feed(process, spec->input, spec->input_len, err);
    if (r < 0) /* half asked for: undone */
        (void)!program_signal(&process->prog, SIGKILL, SVC_SIGNAL_ALL, NULL, NULL);
    return r;
}

int process_launch(struct process *process, const struct process_spec *spec, bool collects, struct brig_err *err)
{
    struct sbox *sbox = process->sbox;
    char detail[256];

    if (sbox->priv->running > PROCESS_RUNNING_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "sandbox %s: %u processes run, at most %u", sbox->id,
                       sbox->priv->running - 1, PROCESS_RUNNING_MAX);
    int r = process->is_run ? spec_output(spec->output, "output", err) : 0;
    if (r < 0)
        return r;
    process->tty = spec->tty;
    process->stdin_open = spec->stdin_open || spec->input != NULL || spec->tty;
    process->kill_on_output = spec->kill_on_output;
    process->prog.timeout_ms = spec->timeout_ms;
    process->prog.output_max = spec->output          ? spec->output
                               : sbox->limits.output ? sbox->limits.output
                                                     : PROGRAM_OUTPUT_DEFAULT;
    process->prog.kept[1] = process->prog.kept[2] = BUF_INIT((size_t)process->prog.output_max);
    process->workdir = mem_strdup(spec->workdir ? spec->workdir : sbox->spec.workdir);
    if (!process->workdir)
        return err_nomem(err);
    r = sbox_take_number(sbox, &process->prog.number, err);
    r = r < 0 ? r : send_all(process, spec, collects, err);
    if (r < 0)
        return r;
    process->started_at_ns = clock_real_ns(); /* brig-init says it better in a moment */
    process->prog.deadline_ns =
        process->prog.timeout_ms ? process->prog.sent_ns + process->prog.timeout_ms * NS_PER_MS : 0;
    program_arm(&process->prog);
    early_arm(process);
    network_process_started(process);
    sbox->last_used_boot_ns = sandbox_boot_ns();
    snprintf(detail, sizeof detail, "%s process %u: %.128s", process->run_id, process->prog.number, process->argv[0]);
    process->audit_seq =
        sandbox_audit(sbox->manager, &process->caller, sbox->org_id, "process.start", sbox->id, "ok", detail, false);
    (void)!process_store(process);
    return 0;
}

void process_drop_calls(struct process *process)
{
    program_drop_calls(&process->prog);
    if (process->feed)
        call_drop(take_ptr(&process->feed));
}

void process_start_failure(const struct process *process, struct brig_err *err)
{
    bool exec = process->prog.start_errnum && process->prog.start_stage == STAGE_EXEC;
    bool usage = process->prog.start_errnum && (exec || process->prog.start_stage == STAGE_WORKDIR);

    if (process->prog.start_errnum && process->prog.start_stage == STAGE_IDS && process->user) {
        (void)user_not_found(process->user, process->prog.start_errnum, err);
        return;
    }

    (void)err_set(err,
                  usage                                  ? BRIG_E_USAGE
                  : process->prog.start_errnum == EAGAIN ? BRIG_E_LIMIT
                  : process->prog.start_errnum           ? BRIG_E_HOST
                                                         : BRIG_E_GONE,
                  0, "%s%s", process->prog.detail[0] ? process->prog.detail : "the sandbox has ended",
                  !exec                                  ? ""
                  : process->prog.start_errnum == ENOENT ? " (status 127)"
                                                         : " (status 126)");
    err->errnum = (int)process->prog.start_errnum;
}

/* ---- verdicts and the clock ----------------------------------------------------------------------------- */

static void tell_limit(struct process *process)
{
    sandbox_audit(process->sbox->manager, &process->caller, process->sbox->org_id, "limit.kill", process->sbox->id,
                  brig_cause_name(process->prog.verdict.cause), process->run_id, false);
}

void process_end(struct process *process, enum brig_cause cause, const char *detail)
{
    if (program_verdict(&process->prog, cause, detail) && cause_limit(cause))
        tell_limit(process);
    program_kill(&process->prog);
}

static void on_clock(struct program *program)
{
    struct process *process = program->owner;

    if (program->state >= PROGRAM_JUDGING || process->sbox->state != SBOX_RUNNING)
        return; /* paused: processes_resumed() arms it again */
    if (program->state >= PROGRAM_TERM_SENT)
        program_tick(program);
    else if (program_time_out(program))
        tell_limit(process);
}

static void on_over(struct program *program)
{
    process_drop_calls(program->owner);
    process_judge(program->owner);
}

const struct program_events process_events = {
    .answered = on_answered, .started = on_started, .output = on_output, .clock = on_clock, .over = on_over};
