/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_shell.c: persistent shells. brig-init knows how to give a shell a command and how to report its end
 * (guest/init/guest_shell.c). This file handles who waits for it, for how long, and a shell that does not come back.
 *
 *     idle --shell_run--> [a new process, if the last one has ended] -> command runs -> result -> idle
 *                             \-- timeout: the whole line is stopped, what it started is killed
 *                                  \-- still nothing after SETTLE: the shell is killed and left behind
 *
 * The shell itself outlives its process: the next command gets a new one in the last known directory, and says
 * `restarted`. The caller of a command always gets an answer, also if the command is cancelled or the sandbox ends.
 */
#include <signal.h>
#include <sys/wait.h>

#include "base/list.h"
#include "codec/wire/guest_msg.h"
#include "sandbox/processes.h"

#define SETTLE_NS (2 * NS_PER_SEC)
#define STOP_AGAIN_NS (100 * NS_PER_MS)
#define COMMAND_MAX (GUEST_STRINGS_MAX - 4096u)

struct shell {
    struct sbox *sbox;
    struct shell *next, *prev;
    uint32_t number;
    struct caller caller;    /* who opened it, or runs a command in it */
    struct process *process; /* NULL: the next command makes one */
    bool plain;              /* sh: there is no bash */
    bool restarted;          /* for the command that runs */
    char cwd[4096];          /* last known */
    const char **env;        /* of its processes; NULL-terminated */
    char *env_memory;
    void (*open_done)(void *ctx, struct shell *shell, const struct brig_err *err);
    void *open_ctx;

    /* the command */
    bool busy, timed_out;
    struct call *call;
    struct buf command;
    struct buf kept[3];
    bool truncated[3];
    uint64_t limit, seen, timeout_ms, started_ns, settle_ns;
    struct svc_shell_result result;
    struct loop_timer timer;
    void (*done)(void *ctx, const char *json, size_t len, const struct brig_err *err);
    void *ctx;
};

/* ---- answering ------------------------------------------------------------------------------------------ */

static void put_stream(struct json *json, const char *name, const char *encoding, const struct buf *buf)
{
    bool text = json_is_text(buf->data ? buf->data : "", buf->len);

    json_key(json, name);
    if (text)
        json_string_n(json, buf->data ? buf->data : "", buf->len);
    else
        json_base64(json, buf->data, buf->len);
    json_key_string(json, encoding, text ? "utf-8" : "base64");
}

static void put_result(struct json *json, const struct shell *shell)
{
    int status = (int)shell->result.status;

    json_object(json);
    put_stream(json, "stdout", "stdout_encoding", &shell->kept[BRIG_STDOUT]);
    put_stream(json, "stderr", "stderr_encoding", &shell->kept[BRIG_STDERR]);
    json_key(json, "exit_code");
    if (!shell->result.ended)
        json_i64(json, status);
    else
        json_i64(json, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    json_key_string(json, "cwd", shell->cwd);
    json_key_bool(json, "timed_out", shell->timed_out);
    json_key_bool(json, "ended", shell->result.ended);
    json_key_bool(json, "restarted", shell->restarted);
    json_key_object(json, "truncated");
    json_key_bool(json, "stdout", shell->truncated[1]);
    json_key_bool(json, "stderr", shell->truncated[2]);
    json_end(json);
    json_key_u64(json, "duration_ms", (clock_mono_ns() - shell->started_ns) / NS_PER_MS);
    json_end(json);
}

/* The command is over: idle again, then whoever waits is told. err NULL: with the result. */
static void finish(struct shell *shell, const struct brig_err *err)
{
    struct buf buf = BUF_INIT(SIZE_MAX / 2);
    struct json json = JSON_INIT(&buf);
    struct brig_err nomem = {0};
    void (*done)(void *ctx, const char *text, size_t len, const struct brig_err *e) = shell->done;

    if (!shell->busy)
        return;
    if (!err) {
        put_result(&json, shell);
        if (json_finish(&json) < 0) {
            (void)err_nomem(&nomem);
            err = &nomem;
        }
    }
    shell->busy = false;
    shell->done = NULL;
    loop_timer_clear(shell->sbox->manager->loop, &shell->timer);
    if (shell->call)
        call_drop(take_ptr(&shell->call));
    buf_done(&shell->command);
    kept_done(shell->sbox->manager, shell->sbox->org_id, shell->kept);
    sbox_release(shell->sbox);
    if (done)
        done(shell->ctx, err ? NULL : buf.data, err ? 0 : buf.len, err); /* the shell may be closed in there */
    buf_done(&buf);
}

/* ---- the command ---------------------------------------------------------------------------------------- */

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct shell *shell = ctx;
    uint64_t room = shell->limit - shell->seen;
    size_t take = len < room ? len : (size_t)room;

    if (take < len)
        shell->truncated[stream] = true;
    shell->seen += take;
    if (take > 0 && !kept_add(shell->sbox->manager, shell->sbox->org_id, &shell->kept[stream], data, take))
        shell->truncated[stream] = true;
    call_consumed(shell->call, stream, len);
}

static void on_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct shell *shell = ctx;
    struct brig_err err = {0};

    shell->call = NULL;
    if (errnum == ENOTCONN)
        return; /* the sandbox is going; its end tells */
    if (errnum == 0 && svc_shell_result_parse(data, len, &shell->result) < 0)
        errnum = EPROTO;
    if (errnum) {
        (void)err_set(&err, errnum == EBUSY ? BRIG_E_CONFLICT : BRIG_E_HOST, (int)errnum, "shell %u", shell->number);
        finish(shell, &err);
        return;
    }
    if (!shell->result.ended && shell->result.cwd.len > 0 && shell->result.cwd.len < sizeof shell->cwd) {
        memcpy(shell->cwd, shell->result.cwd.data, shell->result.cwd.len);
        shell->cwd[shell->result.cwd.len] = '\0';
    }
    if (shell->result.ended && shell->process) {
        shell->process->shell_number = 0;
        shell->process = NULL;
    }
    finish(shell, NULL);
}

/* It did not come back although everything it had started is dead: what holds it is the shell itself. */
static void abandon(struct shell *shell)
{
    struct process *process = take_ptr(&shell->process);

    if (process) {
        process->shell_number = 0;
        process_end(process, BRIG_CAUSE_TIMEOUT, "the shell did not come back");
    }
    shell->result = (struct svc_shell_result){.status = SIGKILL, .ended = 1};
    finish(shell, NULL);
}

static void on_timer(struct loop_timer *timer)
{
    struct shell *shell = timer->ctx;

    if (shell->sbox->state != SBOX_RUNNING) { /* paused: its time does not run either */
        (void)!loop_timer_set(shell->sbox->manager->loop, timer, loop_now_ns() + NS_PER_SEC, NULL);
        return;
    }
    if (!shell->process || (shell->timed_out && loop_now_ns() >= shell->settle_ns)) {
        abandon(shell);
        return;
    }
    if (!shell->timed_out)
        sandbox_audit(shell->sbox->manager, &shell->caller, shell->sbox->org_id, "limit.kill", shell->sbox->id,
                      brig_cause_name(BRIG_CAUSE_TIMEOUT), shell->process->run_id, false);
    if (!shell->timed_out)
        shell->settle_ns = loop_now_ns() + SETTLE_NS;
    shell->timed_out = true;
    /*
     * The order matters: when its program has died, the shell must stop. It is sent again for a program that was just
     * being started.
     */
    (void)!program_signal(&shell->process->prog, (int)SVC_SHELL_STOP, 0, NULL, NULL);
    (void)!program_signal(&shell->process->prog, SIGKILL, SVC_SIGNAL_CHILDREN, NULL, NULL);
    (void)!loop_timer_set(shell->sbox->manager->loop, &shell->timer, loop_now_ns() + STOP_AGAIN_NS, NULL);
}

static int send_command(struct shell *shell, struct brig_err *err)
{
    const struct call_events events = {.data = on_data, .reply = on_reply, .ctx = shell};
    AUTO_BUF struct buf message = BUF_INIT(SVC_OPEN_MAX);
    size_t size = shell->command.len + 16;

    if (buf_reserve(&message, size) < 0)
        return err_nomem(err);
    struct svc_cursor out = {(uint8_t *)message.data, (uint8_t *)message.data + size, false};
    svc_put_u32(&out, shell->process->prog.number);
    svc_put_bytes(&out, (struct svc_bytes){shell->command.data, (uint32_t)shell->command.len});
    if (out.bad)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "command: too long");
    int r = sbox_usable(shell->sbox, err);
    return r < 0 ? r
                 : link_call(shell->sbox->link, SVC_SHELL_RUN, message.data, (size_t)(out.at - (uint8_t *)message.data),
                             &events, &shell->call, err);
}

/* ---- its process ---------------------------------------------------------------------------------------- */

static void on_process(void *ctx, struct process *process, const struct brig_err *err);

static int start_process(struct shell *shell, struct brig_err *err)
{
    const char *argv[] = {shell->plain ? "sh" : "bash", NULL};
    const struct process_spec spec = {.argv = argv, .env = shell->env, .workdir = shell->cwd};
    int r = sbox_usable(shell->sbox, err);

    if (r < 0)
        return r;
    struct process *process = process_new(shell->sbox, &shell->caller, true);
    if (!process)
        return err_nomem(err);
    process->shell_number = shell->number;
    r = process_launch(process, &spec, false, err);
    if (r < 0) {
        process_unlink(process);
        return r;
    }
    process->start_done = on_process;
    process->start_ctx = shell;
    shell->process = process;
    return 0;
}

static void shell_free(struct shell *shell)
{
    struct sbox_private *priv = shell->sbox->priv;

    loop_timer_clear(shell->sbox->manager->loop, &shell->timer);
    if (shell->call)
        call_drop(take_ptr(&shell->call));
    if (shell->process) {
        shell->process->shell_number = 0;
        shell->process->start_done = NULL;
    }
    list_remove(&priv->shells, shell);
    priv->n_shells--;
    buf_done(&shell->command);
    kept_done(shell->sbox->manager, shell->sbox->org_id, shell->kept);
    mem_free(shell->env);
    mem_free(shell->env_memory);
    mem_free(shell);
}

static void opened(struct shell *shell, const struct brig_err *err)
{
    void (*done)(void *ctx, struct shell *s, const struct brig_err *e) = shell->open_done;
    void *ctx = shell->open_ctx;

    shell->open_done = NULL;
    if (err)
        shell_free(shell);
    if (done)
        done(ctx, err ? NULL : shell, err);
}

/*
 * Handles a shell that did not start: it tries sh for bash, and the sandbox's own directory if the directory is gone.
 */
static bool try_otherwise(struct shell *shell, uint32_t errnum, uint32_t stage)
{
    if (stage == STAGE_EXEC && errnum == ENOENT && !shell->plain)
        shell->plain = true;
    else if (stage == STAGE_WORKDIR && !shell->open_done && !str_eq(shell->cwd, shell->sbox->spec.workdir))
        str_assign(shell->cwd, shell->sbox->spec.workdir);
    else
        return false;
    return start_process(shell, NULL) == 0;
}

static void on_process(void *ctx, struct process *process, const struct brig_err *err)
{
    struct shell *shell = ctx;
    struct brig_err why = {0};

    if (err) {
        struct process *failed = take_ptr(&shell->process);
        if (failed) {
            failed->shell_number = 0;
            if (failed->prog.start_errnum && try_otherwise(shell, failed->prog.start_errnum, failed->prog.start_stage))
                return;
        }
        if (shell->open_done)
            opened(shell, err);
        else
            finish(shell, err);
        return;
    }
    shell->process = process;
    if (shell->open_done)
        opened(shell, NULL);
    else if (shell->busy && send_command(shell, &why) < 0)
        finish(shell, &why);
}

void shell_process_ended(struct process *process)
{
    struct shell *shell = process->shell_number ? shell_find(process->sbox, process->shell_number) : NULL;

    if (!shell || shell->process != process)
        return;
    shell->process = NULL; /* an open command has its own answer: `ended` */
}

void shells_free(struct sbox *sbox, bool tell)
{
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_GONE, 0, "sandbox %s has ended", sbox_label(sbox));
    while (sbox->priv->shells) {
        struct shell *shell = sbox->priv->shells;
        if (tell && shell->open_done)
            opened(shell, &err);
        else if (tell && shell->busy)
            finish(shell, &err); /* whoever is told may close it: look again */
        else
            shell_free(shell);
    }
}

/* ---- the public side ------------------------------------------------------------------------------------ */

static int copy_env(struct shell *shell, const char *const *env)
{
    size_t n = 0, size = 1;

    for (; env && env[n]; n++)
        size += strlen(env[n]) + 1;
    shell->env_memory = mem_alloc(size);
    shell->env = mem_realloc_array(NULL, n + 1, sizeof *shell->env);
    if (!shell->env_memory || !shell->env)
        return -ENOMEM;
    char *at = shell->env_memory;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(env[i]) + 1;
        shell->env[i] = memcpy(at, env[i], len);
        at += len;
    }
    shell->env[n] = NULL;
    return 0;
}

static struct shell *shell_new(struct sbox *sbox, const struct caller *caller, const char *const *env, const char *dir)
{
    struct sbox_private *priv = sbox->priv;
    struct shell *shell = mem_zalloc(sizeof *shell);

    if (!shell || str_copy(shell->cwd, sizeof shell->cwd, dir) < 0) {
        mem_free(shell);
        return NULL;
    }
    shell->sbox = sbox;
    shell->caller = *caller;
    shell->number = priv->next_shell++;
    shell->timer = (struct loop_timer){.fn = on_timer, .ctx = shell};
    list_push(&priv->shells, shell);
    priv->n_shells++;
    if (copy_env(shell, env) < 0) {
        shell_free(shell);
        return NULL;
    }
    return shell;
}

int shell_open(struct sbox *sbox, const struct caller *caller, const struct process_spec *spec,
               void (*done)(void *ctx, struct shell *shell, const struct brig_err *err), void *ctx,
               struct brig_err *err)
{
    int r = sbox_usable(sbox, err);

    if (r < 0)
        return r;
    if (sbox->priv->n_shells >= SHELLS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "sandbox %s: has %u shells, at most %u", sbox->id, sbox->priv->n_shells,
                       SHELLS_MAX);
    struct shell *shell = shell_new(sbox, caller, spec->env, spec->workdir ? spec->workdir : sbox->spec.workdir);
    if (!shell)
        return err_nomem(err);
    r = start_process(shell, err);
    if (r < 0) {
        shell_free(shell);
        return r;
    }
    shell->open_done = done;
    shell->open_ctx = ctx;
    return 0;
}

/* After a restart of brigd: its process runs on; what it was told about directories is not known any more. */
void shell_recovered(struct process *process)
{
    struct sbox *sbox = process->sbox;
    struct shell *shell =
        shell_find(sbox, process->shell_number) ? NULL : shell_new(sbox, &process->caller, NULL, sbox->spec.workdir);

    if (!shell)
        return;
    shell->number = process->shell_number;
    shell->process = process;
    if (sbox->priv->next_shell <= shell->number)
        sbox->priv->next_shell = shell->number + 1;
}

struct shell *shell_find(struct sbox *sbox, uint32_t number)
{
    struct shell *shell = sbox->priv->shells;

    while (shell && (shell->number != number || shell->open_done))
        shell = shell->next;
    return shell;
}

uint32_t shell_number(const struct shell *shell)
{
    return shell->number;
}

int shell_run(struct shell *shell, const struct caller *caller, const char *command, size_t len, uint64_t timeout_ms,
              void (*done)(void *ctx, const char *json, size_t len, const struct brig_err *err), void *ctx,
              struct brig_err *err)
{
    struct sbox *sbox = shell->sbox;
    int r = sbox_usable(sbox, err);

    if (r < 0)
        return r;
    if (shell->busy)
        return err_set(err, BRIG_E_CONFLICT, 0, "shell %u runs another command", shell->number);
    if (len == 0 || memchr(command, '\0', len))
        return err_usage(err, "command: must be text without NUL");
    if (len > COMMAND_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "command: %zu bytes, at most %u", len, COMMAND_MAX);
    shell->caller = *caller; /* what happens from now on, a new process included, is his */
    shell->limit = sbox->limits.output ? sbox->limits.output : 10u << 20;
    shell->command = BUF_INIT(COMMAND_MAX);
    shell->kept[1] = shell->kept[2] = BUF_INIT((size_t)shell->limit);
    shell->seen = 0;
    shell->truncated[1] = shell->truncated[2] = shell->timed_out = false;
    shell->restarted = shell->process == NULL;
    shell->result = (struct svc_shell_result){0};
    if (buf_append(&shell->command, command, len) < 0)
        return err_nomem(err);
    uint64_t ms = timeout_ms ? timeout_ms : sbox->limits.timeout ? sbox->limits.timeout : 300000;
    shell->started_ns = clock_mono_ns();
    r = loop_timer_set(sbox->manager->loop, &shell->timer,
                       shell->started_ns + (ms < DURATION_MAX_MS ? ms : DURATION_MAX_MS) * NS_PER_MS, err);
    if (r == 0)
        r = shell->process ? send_command(shell, err) : start_process(shell, err);
    if (r < 0) {
        loop_timer_clear(sbox->manager->loop, &shell->timer);
        buf_done(&shell->command);
        return r;
    }
    char detail[96];
    snprintf(detail, sizeof detail, "shell %u", shell->number);
    sandbox_audit(sbox->manager, &shell->caller, sbox->org_id, "shell.run", sbox->id, "ok", detail, false);
    shell->busy = true;
    shell->done = done;
    shell->ctx = ctx;
    sbox_hold(sbox);
    return 0;
}

void shell_cancel(struct shell *shell)
{
    if (shell->busy && !shell->timed_out)
        on_timer(&shell->timer);
}

int shell_close(struct shell *shell, struct brig_err *err)
{
    struct process *process = shell->process;

    if (shell->busy)
        return err_set(err, BRIG_E_CONFLICT, 0, "shell %u runs a command", shell->number);
    if (process && process_running(process)) {
        process_end(process, BRIG_CAUSE_CANCELLED, "the shell was closed");
    }
    shell_free(shell);
    return 0;
}
