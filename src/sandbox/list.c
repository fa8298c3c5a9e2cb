/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c: asks a sandbox that outlived the last brigd what runs in it. Three sources are brought together: the store's
 * open runs (what we had started), brig-init's list (what is there), and from then on its answers.
 *
 *     in both, running       followed again, with its old number, run id and deadline
 *     in both, ended         judged and closed as if we had been there
 *     only in the store      brig-init does not know it: closed as host-error
 *     only in the list       running: followed as a new run (its row was lost in the crash);
 *                            ended: its output can still be read
 */
#include "sandbox/processes.h"

static struct process *add_foreign(struct sbox *sbox, const struct svc_proc_info *info)
{
    struct caller caller = {.actor = "system"};

    str_assign(caller.org_id, sbox->org_id);
    struct process *process = process_new(sbox, &caller, info->flags & SVC_PROC_SHELL);
    if (!process)
        return NULL;
    size_t len = info->command.len;
    process->memory = mem_zalloc(4 * sizeof(char *) + len + 1);
    if (!process->memory) {
        process_unlink(process);
        return NULL;
    }
    process->argv = (const char **)(void *)process->memory;
    process->env_names = process->env_layers = process->argv + 2;
    char *command = (char *)(process->argv + 4);
    if (len > 0)
        memcpy(command, info->command.data, len);
    process->argv[0] = command;
    process->prog.number = info->proc;
    process->prog.state = PROGRAM_RUNNING;
    process->tty = info->flags & SVC_PROC_TTY;
    process->stdin_open = info->flags & (SVC_PROC_TTY | SVC_PROC_STDIN);
    process->prog.sent_ns = info->started_ns;
    process->foreign = !info->running;
    uint64_t now = clock_mono_ns();
    process->started_at_ns = clock_real_ns() - (int64_t)(info->started_ns < now ? now - info->started_ns : 0);
    if (sbox->next_proc <= process->prog.number)
        sbox->next_proc = process->prog.number + 1;
    return process;
}

static void on_info(void *ctx, const uint8_t *data, size_t len)
{
    struct sbox *sbox = ctx;
    struct svc_proc_info info;

    if (svc_proc_info_parse(data, len, &info) < 0 || info.proc >= INT32_MAX)
        return;
    struct process *process = process_find(sbox, info.proc);
    bool known = process != NULL;
    if (known && !process->unconfirmed)
        return;
    if (!known) {
        /* What a sandbox says of itself has a bound, too. */
        if (sbox->priv->running >= PROCESS_RUNNING_MAX || sbox->priv->ended >= PROCESS_KEEP ||
            !(process = add_foreign(sbox, &info)))
            return;
    }
    process->unconfirmed = false;
    process->pid = info.pid;
    if (!info.running) {
        process->prog.exit = info.exit;
        process->prog.has_exit = true;
        process_judge(process);
        return;
    }
    if (program_wait(&process->prog, sbox->priv->link, NULL) < 0)
        return; /* its end is then the sandbox's */
    program_arm(&process->prog);
    if (!known)
        (void)!process_store(process);
    if (process->shell && process->shell_number)
        shell_recovered(process);
}

static void lose_unconfirmed(struct sbox *sbox)
{
    for (struct process *p = sbox->priv->first, *next; p; p = next) {
        next = p->next;
        if (!p->unconfirmed || p->prog.state >= PROGRAM_JUDGING)
            continue;
        p->unconfirmed = false;
        p->forgotten = true;
        snprintf(p->prog.detail, sizeof p->prog.detail, "after a restart of the service the sandbox did not know it");
        process_pin(p);
        process_judge(p);
        next = p->next;
        process_unpin(p);
    }
}

static void on_listed(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct sbox *sbox = ctx;
    struct brig_err err = {0};
    void (*done)(struct sbox * s, const struct brig_err *e) = sbox->priv->attach_done;

    sbox->priv->list = NULL;
    sbox->priv->attach_done = NULL;
    if (errnum)
        (void)err_set(&err, BRIG_E_GONE, (int)errnum, "the sandbox's processes");
    else
        lose_unconfirmed(sbox);
    if (done)
        done(sbox, errnum ? &err : NULL);
}

int processes_list(struct sbox *sbox, struct brig_err *err)
{
    const struct call_events events = {.event = on_info, .reply = on_listed, .ctx = sbox};

    return link_call(sbox->priv->link, SVC_PROC_LIST, "", 0, &events, &sbox->priv->list, err);
}
