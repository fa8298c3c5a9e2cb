/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_start.c: a program goes into the sandbox and is followed to its end. START and WAIT (and ATTACH for those whose
 * output is wanted) leave in one go: the number of the process is ours to choose, so nothing has to be waited for in
 * between.
 *
 * The wall clock is kept here: at the deadline SIGTERM for the main process, half a second later SIGKILL for everything
 * it has started; a brig-init that does not report the end then is called deaf, and the run ends without it.
 */
#include <inttypes.h>
#include <signal.h>

#include "codec/wire/guest_msg.h"
#include "engine/engine.h"
#include "sandbox/processes.h"

/* ---- argv and environment -------------------------------------------------------------------------------------- */

#define SEEN_SLOTS 8192u /* over twice what fits: ENV_MAX of the sandbox, as many of the process, six of ours */
#define ENV_TOTAL (2 * ENV_MAX + 16 + 2 * NETWORK_ENV_MAX)

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

static int env_fill(struct env_list *list, struct sbox *sbox, const char *const *env)
{
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
    for (n = 0; engine_base_env[n]; n++)
        ;
    while (r == 0 && n-- > 0)
        r = env_add(list, engine_base_env[n], strcspn(engine_base_env[n], "="), NULL, "base");
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

int process_strings(struct sbox *sbox, const char *const *argv, const char *const *env, struct buf *out,
                    uint32_t *ret_argv, uint32_t *ret_env)
{
    const struct process_spec spec = {.argv = argv};
    struct env_list *list = mem_alloc(sizeof *list);

    if (!list)
        return -ENOMEM;
    list->n = 0;
    memset(list->slots, 0, sizeof list->slots);
    int r = env_fill(list, sbox, env);
    r = r < 0 ? r : put_strings(out, &spec, list, ret_argv);
    *ret_env = (uint32_t)list->n;
    mem_free(list);
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

static int make_message(struct process *process, const struct process_spec *spec, struct buf *ret, struct brig_err *err)
{
    struct sbox *sbox = process->sbox;
    struct env_list *list = mem_alloc(sizeof *list);
    AUTO_BUF struct buf strings = BUF_INIT(GUEST_STRINGS_MAX);
    uint32_t n_argv = 0;

    if (!list)
        return err_nomem(err);
    list->n = 0;
    memset(list->slots, 0, sizeof list->slots);
    int r = env_fill(list, sbox, spec->env);
    r = r < 0 ? r : put_strings(&strings, spec, list, &n_argv);
    r = r < 0 ? r : keep_lists(process, spec, list, n_argv);
    const struct svc_proc_start msg = {
        .proc = process->number,
        .flags = (spec->tty ? SVC_PROC_TTY : 0u) | (process->stdin_open ? SVC_PROC_STDIN : 0u) |
                 (process->shell ? SVC_PROC_SHELL : 0u) | (spec->hold || process->is_run ? SVC_PROC_HOLD : 0u),
        .rows = spec->rows,
        .cols = spec->cols,
        .ring = spec->ring,
        .n_argv = n_argv,
        .n_env = (uint32_t)list->n,
        .workdir = {process->workdir, (uint32_t)strlen(process->workdir)},
        .strings = (const uint8_t *)strings.data,
        .strings_len = strings.len,
    };
    mem_free(list);
    r = r < 0 ? r : buf_reserve(ret, strings.len + msg.workdir.len + 128);
    if (r == 0) {
        r = svc_proc_start_put((uint8_t *)ret->data, strings.len + msg.workdir.len + 128, &msg);
        if (r > 0)
            buf_commit(ret, (size_t)r);
    }
    if (r == -E2BIG || r == -EMSGSIZE)
        return err_usage(err, "command and environment: longer than %u bytes, or more than %u variables",
                         GUEST_STRINGS_MAX, ENV_TOTAL);
    return r < 0 ? err_nomem(err) : 0;
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

static void on_started(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len)
{
    struct process *process = ctx;
    struct svc_proc_started msg;

    process->start = NULL;
    if (errnum == ENOTCONN)
        return; /* the sandbox is going, and takes it along */
    if (errnum == 0 && svc_proc_started_parse(data, len, &msg) < 0)
        errnum = EPROTO, stage = STAGE_MAX;
    if (errnum) {
        process->start_errnum = errnum;
        process->start_stage = stage;
        process_drop_calls(process);
        early_drop(process);
        process_judge(process);
        return;
    }
    process->pid = msg.pid;
    process->started_at_ns = wall_of(msg.at_ns, process->sent_ns);
    if (process->state == PROCESS_STARTING)
        process->state = PROCESS_RUNNING;
    void (*done)(void *c, struct process *p, const struct brig_err *err) = process->start_done;
    process->start_done = NULL;
    process_pin(process);
    if (done)
        done(process->start_ctx, process, NULL);
    process_check(process);
    process_unpin(process);
}

static void on_waited(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct process *process = ctx;

    process->wait = NULL;
    if (errnum == ENOTCONN)
        return;
    if (errnum == 0 && svc_proc_exit_parse(data, len, &process->exit) == 0) {
        process->has_exit = true;
        process->ended_at_ns = wall_of(process->exit.ended_ns, process->sent_ns);
    } else if (!process->start_errnum) {
        snprintf(process->detail, sizeof process->detail, "brig-init does not say how it ended");
    }
    process_check(process);
}

void process_check(struct process *process)
{
    if (process->state < PROCESS_JUDGING && !process->start && !process->wait && !process->collect &&
        !process->sbox->priv->link_gone)
        process_judge(process);
}

/* ---- collecting output ------------------------------------------------------------------------------------------- */

static void on_output(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct process *process = ctx;
    uint64_t room = process->output_limit - process->seen;
    size_t take = len < room ? len : (size_t)room;

    if (take < len) {
        process->truncated[stream] = true;
        process->limits_hit |= 1u << BRIG_LIMIT_OUTPUT;
        if (process->kill_on_output && process->verdict == BRIG_CAUSE_MAX) {
            process_verdict(process, BRIG_CAUSE_OUTPUT_LIMIT, "");
            process_kill(process);
        }
    }
    process->seen += take;
    if (process->is_run && take > 0 &&
        !kept_add(process->sbox->manager, process->sbox->org_id, &process->kept[stream], data, take))
        process->truncated[stream] = true; /* said, not hidden */
    call_consumed(process->collect, stream, len);
}

static void on_collected(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                         size_t len UNUSED)
{
    struct process *process = ctx;

    process->collect = NULL;
    if (errnum != ENOTCONN)
        process_check(process);
}

static int collect(struct process *process, struct brig_err *err)
{
    const struct svc_proc_attach msg = {.proc = process->number, .streams = 1u << BRIG_STDOUT | 1u << BRIG_STDERR};
    const struct call_events events = {.data = on_output, .reply = on_collected, .ctx = process};
    uint8_t message[64];
    int n = svc_proc_attach_put(message, sizeof message, &msg);

    if (n < 0)
        return err_set(err, BRIG_E_HOST, -n, "attach");
    return link_call(process->sbox->link, SVC_PROC_ATTACH, message, (size_t)n, &events, &process->collect, err);
}

int process_watch_end(struct process *process, struct brig_err *err)
{
    const struct call_events events = {.reply = on_waited, .ctx = process};
    uint8_t message[4];
    struct svc_cursor out = {message, message + sizeof message, false};

    svc_put_u32(&out, process->number);
    return link_call(process->sbox->priv->link, SVC_PROC_WAIT, message, sizeof message, &events, &process->wait, err);
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

/* Numbers are promised to the store in blocks, so that none is used twice over a restart. */
int sbox_take_number(struct sbox *sbox, uint32_t *ret, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;

    if (sbox->next_proc >= INT32_MAX)
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

static int send_all(struct process *process, const struct buf *message, const struct process_spec *spec, bool collects,
                    struct brig_err *err)
{
    const struct call_events events = {.reply = on_started, .ctx = process};
    int r = link_call(process->sbox->link, SVC_PROC_START, message->data, message->len, &events, &process->start, err);

    if (r < 0)
        return r;
    if (collects)
        r = collect(process, err);
    else if (!process->shell && !spec->ring) /* who says how much to keep means it */
        r = early_open(process, err);
    if (r == 0)
        r = process_watch_end(process, err);
    if (r == 0 && spec->input)
        r = input_feed(process, spec->input, spec->input_len, err);
    if (r < 0) /* half asked for: undone */
        (void)!process_send_signal(process, SIGKILL, SVC_SIGNAL_ALL);
    return r;
}

int process_launch(struct process *process, const struct process_spec *spec, bool collects, struct brig_err *err)
{
    struct sbox *sbox = process->sbox;
    AUTO_BUF struct buf message = BUF_INIT(SVC_OPEN_MAX);
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
    process->timeout_ms = spec->timeout_ms;
    process->output_limit = spec->output ? spec->output : sbox->limits.output ? sbox->limits.output : 10u << 20;
    process->kept[1] = process->kept[2] = BUF_INIT((size_t)process->output_limit);
    process->workdir = mem_strdup(spec->workdir ? spec->workdir : sbox->spec.workdir);
    if (!process->workdir)
        return err_nomem(err);
    r = sbox_take_number(sbox, &process->number, err);
    r = r < 0 ? r : make_message(process, spec, &message, err);
    r = r < 0 ? r : send_all(process, &message, spec, collects, err);
    if (r < 0)
        return r;
    process->sent_ns = clock_mono_ns();
    process->started_at_ns = clock_real_ns(); /* brig-init says it better in a moment */
    process->deadline_ns = process->timeout_ms ? process->sent_ns + process->timeout_ms * NS_PER_MS : 0;
    process_arm(process);
    early_arm(process);
    network_process_started(process);
    sbox->last_used_boot_ns = sandbox_boot_ns();
    snprintf(detail, sizeof detail, "%s process %u: %.128s", process->run_id, process->number, process->argv[0]);
    process->audit_seq =
        sandbox_audit(sbox->manager, &process->caller, sbox->org_id, "process.start", sbox->id, "ok", detail, false);
    (void)!process_store(process);
    return 0;
}

void process_drop_calls(struct process *process)
{
    struct call **const calls[] = {&process->start, &process->wait, &process->collect, &process->feed};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (*calls[i])
            call_drop(take_ptr(calls[i]));
}

void process_start_failure(const struct process *process, struct brig_err *err)
{
    bool exec = process->start_errnum && process->start_stage == STAGE_EXEC;
    bool usage = process->start_errnum && (exec || process->start_stage == STAGE_WORKDIR);

    (void)err_set(err,
                  usage                             ? BRIG_E_USAGE
                  : process->start_errnum == EAGAIN ? BRIG_E_LIMIT
                  : process->start_errnum           ? BRIG_E_HOST
                                                    : BRIG_E_GONE,
                  0, "%s%s", process->detail[0] ? process->detail : "the sandbox has ended",
                  !exec                             ? ""
                  : process->start_errnum == ENOENT ? " (status 127)"
                                                    : " (status 126)");
    err->errnum = (int)process->start_errnum;
}

/* ---- verdicts and the clock ----------------------------------------------------------------------------- */

void process_verdict(struct process *process, enum brig_cause cause, const char *detail)
{
    if (process->verdict != BRIG_CAUSE_MAX || process->state >= PROCESS_JUDGING)
        return;
    process->verdict = cause;
    process->verdict_ns = clock_mono_ns();
    snprintf(process->verdict_detail, sizeof process->verdict_detail, "%s", detail);
    if (cause == BRIG_CAUSE_TIMEOUT || cause == BRIG_CAUSE_OUTPUT_LIMIT)
        sandbox_audit(process->sbox->manager, &process->caller, process->sbox->org_id, "limit.kill", process->sbox->id,
                      brig_cause_name(cause), process->run_id, false);
}

int process_send_signal(struct process *process, int signum, uint32_t flags)
{
    const struct svc_proc_signal msg = {.proc = process->number, .signum = (uint32_t)signum, .flags = flags};
    const struct call_events none = {0};
    struct call *call;
    uint8_t message[16];
    int n = svc_proc_signal_put(message, sizeof message, &msg);

    if (n < 0 || !process->sbox->link)
        return n < 0 ? n : -ENOTCONN;
    return link_call(process->sbox->link, SVC_PROC_SIGNAL, message, (size_t)n, &none, &call, NULL);
}

static void deaf(struct process *process)
{
    process->deaf = true;
    process_drop_calls(process);
    process_judge(process);
}

static void on_clock(struct loop_timer *timer)
{
    struct process *process = timer->ctx;
    char detail[64];

    if (process->state >= PROCESS_JUDGING || process->sbox->state != SBOX_RUNNING)
        return; /* paused: processes_resumed() arms it again */
    switch (process->clock) {
    case CLOCK_RUNS:
        snprintf(detail, sizeof detail, "after %" PRIu64 " ms", process->timeout_ms);
        process_verdict(process, BRIG_CAUSE_TIMEOUT, detail);
        (void)!process_send_signal(process, SIGTERM, 0);
        process->clock = CLOCK_TERM_SENT;
        process_arm(process);
        break;
    case CLOCK_TERM_SENT: process_kill(process); break;
    case CLOCK_KILL_SENT: deaf(process); break;
    }
}

void process_arm(struct process *process)
{
    uint64_t now = clock_mono_ns(), at = 0;

    switch (process->clock) {
    case CLOCK_RUNS: at = process->deadline_ns; break;
    case CLOCK_TERM_SENT: at = now + KILL_AFTER_NS; break;
    case CLOCK_KILL_SENT: at = now + DEAF_AFTER_NS; break;
    }
    process->timer.fn = on_clock;
    process->timer.ctx = process;
    if (at)
        (void)!loop_timer_set(process->sbox->manager->loop, &process->timer, at, NULL);
}

void process_kill(struct process *process)
{
    if (process->state >= PROCESS_JUDGING)
        return;
    (void)!process_send_signal(process, SIGKILL, SVC_SIGNAL_ALL);
    process->clock = CLOCK_KILL_SENT;
    process_arm(process);
}
