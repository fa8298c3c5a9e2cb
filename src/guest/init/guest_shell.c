/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_shell.c: persistent shells.
 *
 * Theory of operation. The interpreter is executed with a short loop as its -c text, and finds two descriptors beside
 * its stdio: commands come on 9, and after each of them `status NUL cwd NUL` goes out on 8. The command is run by eval
 * in the shell itself, so what it changes stays (variables, functions, directory, open files), with 8 and 9 closed; so
 * its output is whatever it writes, and nothing in it is looked at. A syntax error is eval's, not the loop's.
 *
 *   - The record is written where the loop begins, so a `continue` outside of a loop gets there too, and the first one
 *     says that the shell is ready. A `break` leaves only the one-round loop around eval.
 *   - `set -x` is switched off for the loop's own commands and on again for the next command.
 *   - bash takes a command up to its NUL. Other shells cannot, so they are told how many lines there are. There
 *     `command` takes from eval that its errors end the shell.
 *   - exit, exec, and what ends a script (set -e) end the shell, as they would end one at a terminal; that is reported.
 *
 * A command that takes too long is stopped as a whole: the shell gets SVC_SHELL_STOP, then what it started is
 * killed. The trap runs before anything else of the list can, and leaves all of it:
 *
 *   - In bash only `return` leaves a trap at once, and only from a function or a sourced file. So the eval is in a
 *     sourced file (a here-string). For the functions around the trap, a DEBUG trap returns from each before its next
 *     command; with functrace also in subshells that begin meanwhile. Then a DEBUG trap of the user is lost.
 *   - In other shells the error of an expansion leads out of everything, to `command eval`.
 *   - Between commands (__brig_r is empty) a signal does nothing, so that one that comes too late harms nobody.
 *
 * Output of a command ends with what is in the pipes when its record has come: the shell wrote the record after the
 * command, so all of it is there; what a job in the background writes later is not counted.
 */
#include <fcntl.h>
#include <sys/epoll.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define RESULT_PIECE 4096u
#define RESULT_TURNS 16u /* as much as a pipe has */

/* Where a round begins. __brig_t: the command's status, if it is not $?; __brig_k: what a stop has changed. */
#define LOOP_BEGIN                                                                                              \
    "while { __brig_s=${__brig_t:-$?} __brig_r= __brig_x=; case $-$__brig_k in *x*) set +x; __brig_x='set -x\n" \
    "';; esac; "
#define LOOP_RECORD "} 2>/dev/null; printf '%s\\0%s\\0' \"$__brig_s\" \"$PWD\" >&8; "
#define STOP_QUIETLY "{ case $- in *x*) set +x; __brig_k=x;; esac; } 2>/dev/null; __brig_t=137; "

static const char bash_loop[] =
    "__brig_k= __brig_t= __brig_d='[[ $BASHPID = $$ ]] || exit 137; [[ ! ${BASH_SOURCE-} ]] || return 137'\n"
    "__brig_h='[[ ! ${BASH_SOURCE-} || ! ${__brig_r-} ]] || { " STOP_QUIETLY
    "case $- in *T*) ;; *) set -T; __brig_k+=T;; esac; trap \"$__brig_d\" DEBUG; return 137; }'\n" LOOP_BEGIN
    "trap '' " SVC_SHELL_STOP_TEXT "; "
    "if [[ $__brig_t ]]; then trap - DEBUG; [[ $__brig_k != *T ]] || set +T; __brig_t= __brig_k=; fi; " LOOP_RECORD
    "IFS= read -r -d '' -u 9 __brig_c; do trap \"$__brig_h\" " SVC_SHELL_STOP_TEXT "; __brig_r=1; "
    "for __brig_i in 1; do . /dev/fd/9 9<<<'eval \"$__brig_x$__brig_c\" 9<&-' 8>&-; done; done";
/* Between commands the signal is ignored: bash would run the trap within the next command; in dash a trap ends a read,
   and one that was left by an error spoils $?. */
static const char sh_loop[] =
    "__brig_k= __brig_t= __brig_d='trap \"\" " SVC_SHELL_STOP_TEXT "; " STOP_QUIETLY
    "{ : \"${__brig_u?}\"; } 2>/dev/null'\n" LOOP_BEGIN "trap '' " SVC_SHELL_STOP_TEXT
    "; __brig_t= __brig_k=; " LOOP_RECORD "IFS= read -r __brig_n <&9; do __brig_c=$__brig_x; "
    "while [ \"$__brig_n\" -gt 0 ]; do IFS= read -r __brig_l <&9; "
    "__brig_c=\"$__brig_c$__brig_l\n\"; __brig_n=$((__brig_n-1)); done; "
    "for __brig_i in 1; do command eval 'trap \"$__brig_d\" " SVC_SHELL_STOP_TEXT "; eval \"$__brig_c\"\n"
    "{ __brig_t=$?; trap \"\" " SVC_SHELL_STOP_TEXT "; } 2>/dev/null' 8>&- 9<&-; done; done";

/* `status NUL cwd NUL`, received so far. */
struct record {
    bool has_status; /* the first NUL has come */
    uint32_t status; /* 256: not one */
    uint32_t len;    /* of cwd; SVC_PATH_MAX + 1: it does not fit */
    char cwd[SVC_PATH_MAX];
};

struct shell {
    struct proc *proc;
    struct source result; /* records come */
    struct inlet command; /* commands go */
    struct call *call;    /* who waits for the command that runs; NULL: nobody does any more */
    bool by_lines;        /* not bash */
    bool ready;           /* its first record has come */
    bool busy;            /* a command runs */
    bool finished;        /* its record has come; its output is still on its way */
    uint32_t status;
    uint32_t cwd_len;
    char cwd[SVC_PATH_MAX];
    struct record record;
};

#define SHELL_SIZE PAGE_ROUND(sizeof(struct shell))

bool shell_is_busy(const struct proc *proc)
{
    return proc->shell && proc->shell->busy;
}

/* ---- the end of a command -------------------------------------------------------------------------- */

static void drained(struct call *call)
{
    struct proc *proc = call->proc;
    struct shell *shell = proc->shell;
    struct svc_shell_result result = {.status = proc->exit.status, .ended = 1};
    uint8_t wire[SVC_PATH_MAX + 16];

    if (shell->finished)
        result = (struct svc_shell_result){.status = shell->status, .cwd = {shell->cwd, shell->cwd_len}};
    else if (proc->state != PROC_ENDED)
        return; /* its output has ended (the shell has redirected it), the command has not */
    int len = svc_shell_result_put(wire, sizeof(wire), &result);
    call_reply(call, len < 0 ? EIO : 0, 0, wire, len < 0 ? 0 : (size_t)len);
}

void shell_detach(struct call *call)
{
    if (call->proc && call->proc->shell && call->proc->shell->call == call)
        call->proc->shell->call = NULL;
}

static void finish(struct shell *shell)
{
    struct call *call = shell->call;

    shell->busy = false;
    if (!call)
        return;
    shell->finished = true;
    for (unsigned i = 1; i < STREAMS; i++)
        call->reader[i - 1].limit = outlet_total(&shell->proc->out[i]);
    call_ready(call);
}

/* ---- records --------------------------------------------------------------------------------------- */

/*
 * Takes one more byte of a record and returns true if it was the last. Every process with the user's id can write
 * there: what makes no sense becomes 255 and "". A shell's directory may be deeper than SVC_PATH_MAX; that is "" too.
 */
static bool take_byte(struct shell *shell, char byte)
{
    struct record *record = &shell->record;

    if (!record->has_status && byte != '\0') {
        bool fits = byte >= '0' && byte <= '9' && record->status < 256;
        record->status = fits ? record->status * 10 + (uint32_t)(byte - '0') : 256;
        return false;
    }
    if (!record->has_status) {
        record->has_status = true;
        return false;
    }
    if (byte != '\0') {
        if (record->len < sizeof(record->cwd))
            record->cwd[record->len] = byte;
        record->len += record->len <= sizeof(record->cwd); /* one more than fits: too long */
        return false;
    }
    shell->status = record->status > 255 ? 255 : record->status;
    shell->cwd_len = record->len > sizeof(record->cwd) ? 0 : record->len;
    __builtin_memcpy(shell->cwd, record->cwd, shell->cwd_len);
    record->status = record->len = 0;
    record->has_status = false;
    return true;
}

static void on_result(struct source *source, uint32_t events)
{
    struct shell *shell = owner_of(source, struct shell, result);
    char piece[RESULT_PIECE];
    long got = raw_call3(SYS_read, source->fd, piece, sizeof(piece));

    (void)events;
    if (got == -EAGAIN || got == -EINTR)
        return;
    if (got <= 0) { /* the shell has closed it: only its end is still to come */
        source_close(source);
        return;
    }
    for (long i = 0; i < got; i++) {
        if (!take_byte(shell, piece[i]))
            continue;
        if (!shell->ready)
            shell->ready = true;
        else if (shell->busy)
            finish(shell);
    }
}

/* ---- life ------------------------------------------------------------------------------------------ */

static bool is_bash(const char *path)
{
    const char *name = path;

    for (const char *at = path; *at; at++)
        if (*at == '/')
            name = at + 1;
    return __builtin_strlen(name) >= 4 && __builtin_memcmp(name, "bash", 4) == 0;
}

static long open_pipes(struct shell *shell, int child_fds[2])
{
    int result[2] = {-1, -1}, command[2] = {-1, -1};
    long ret = raw_call2(SYS_pipe2, result, O_CLOEXEC);

    if (ret != 0)
        return ret;
    child_fds[0] = result[1];
    shell->result.ready = on_result;
    raw_call3(SYS_fcntl, result[0], F_SETFL, O_NONBLOCK);
    if ((ret = source_add(&shell->result, result[0], EPOLLIN)) != 0) {
        raw_call1(SYS_close, result[0]);
        return ret;
    }
    if ((ret = raw_call2(SYS_pipe2, command, O_CLOEXEC)) != 0)
        return ret;
    child_fds[1] = command[0];
    raw_call3(SYS_fcntl, command[1], F_SETFL, O_NONBLOCK);
    if ((ret = inlet_open(&shell->command, command[1])) != 0)
        raw_call1(SYS_close, command[1]);
    return ret;
}

int shell_prepare(struct proc *proc, const char *interpreter, const char *extra[2], int child_fds[2])
{
    struct shell *shell = pages_map(SHELL_SIZE);

    if (!shell)
        return -ENOMEM;
    proc->shell = shell; /* from here on shell_done() takes care */
    shell->proc = proc;
    shell->result.fd = shell->command.source.fd = -1;
    shell->by_lines = !is_bash(interpreter);
    extra[0] = "-c";
    extra[1] = shell->by_lines ? sh_loop : bash_loop;
    return (int)open_pipes(shell, child_fds);
}

void shell_ended(struct proc *proc)
{
    struct shell *shell = proc->shell;

    if (!shell)
        return;
    /* The last command may have ended before the shell; its record is in the pipe. */
    for (unsigned i = 0; i < RESULT_TURNS && shell->result.fd >= 0; i++)
        on_result(&shell->result, 0);
    source_close(&shell->result);
    inlet_close(&shell->command);
    shell->busy = false;
    if (shell->call)
        call_ready(shell->call);
}

void shell_done(struct proc *proc)
{
    if (!proc->shell)
        return;
    source_close(&proc->shell->result);
    inlet_close(&proc->shell->command);
    pages_unmap(proc->shell, SHELL_SIZE);
    proc->shell = NULL;
}

/* ---- a command ------------------------------------------------------------------------------------- */

static int write_command(struct shell *shell, struct svc_bytes command)
{
    char digits[16];
    uint32_t lines = 1;
    size_t at = sizeof(digits);
    int ret;

    if (!shell->by_lines) {
        ret = inlet_write(&shell->command, NULL, (const uint8_t *)command.data, command.len);
        return ret != 0 ? ret : inlet_write(&shell->command, NULL, (const uint8_t *)"", 1);
    }
    for (uint32_t i = 0; i < command.len; i++)
        lines += command.data[i] == '\n';
    digits[--at] = '\n';
    for (; lines > 0; lines /= 10)
        digits[--at] = (char)('0' + lines % 10);
    ret = inlet_write(&shell->command, NULL, (const uint8_t *)digits + at, sizeof(digits) - at);
    if (ret == 0)
        ret = inlet_write(&shell->command, NULL, (const uint8_t *)command.data, command.len);
    return ret != 0 ? ret : inlet_write(&shell->command, NULL, (const uint8_t *)"\n", 1);
}

static int judge(const struct proc *proc, struct svc_bytes command)
{
    if (!proc)
        return ESRCH;
    if (!proc->shell || __builtin_memchr(command.data, '\0', command.len))
        return EINVAL;
    if (proc->state >= PROC_ENDING)
        return ESRCH;
    return proc->shell->busy || proc->shell->call ? EBUSY : 0;
}

void shell_run(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_reader in = {payload, payload + len, false};
    uint32_t number = svc_get_u32(&in);
    struct svc_bytes command = svc_get_bytes(&in);
    struct proc *proc = svc_done(&in) == 0 ? proc_find(number) : NULL;
    int errnum = svc_done(&in) == 0 ? judge(proc, command) : EINVAL;

    if (errnum != 0) {
        send_reply(request, errnum, 0, NULL, 0);
        return;
    }
    struct call *call = call_new(request, SVC_SHELL_RUN, proc);
    if (!call)
        return;
    struct svc_attached attached = {{0}};
    uint8_t wire[32];
    struct shell *shell = proc->shell;

    call->drained = drained;
    for (unsigned i = 1; i < STREAMS; i++) {
        call_attach(call, i, &proc->out[i], SVC_FROM_NOW);
        /* What is still in the pipe was written before the command. */
        attached.first[i] = call->reader[i - 1].pos = outlet_total(&proc->out[i]);
    }
    int used = svc_attached_put(wire, sizeof(wire), &attached);
    send_frame(SVC_EVENT, request, 0, wire, used < 0 ? 0 : (size_t)used);
    shell->call = call;
    shell->busy = true;
    shell->finished = false;
    int ret = write_command(shell, command);
    if (ret != 0) { /* it has closed its end: it is ending, or of no use */
        shell->busy = false;
        call_reply(call, ret == -EPIPE ? ESRCH : -ret, 0, NULL, 0);
    }
}
