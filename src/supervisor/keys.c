/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: reads the key ring of secrets from a file, a variable, or the output of a command. It never takes two of
 * them, so that nobody seals with a key that they do not know of. brigd and brig-egress get the ring in a sealed memfd
 * and read it themselves; this code runs as root, so it parses nothing. Our own copy is wiped at once; it is in no
 * argument, no message and no child's environment.
 *
 * The file must belong to our user or root, and nobody else may be able to read it.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

#define KEYS_MAX (16u << 10) /* 32 keys and some words */
#define COMMAND_NS (10 * NS_PER_SEC)
#define WORDS_MAX 64u

/* ---- sources: each fills text and returns how many bytes, at most KEYS_MAX ------------------------------- */

static ssize_t too_large(const char *where, struct brig_err *err)
{
    return err_set(err, BRIG_E_TOO_LARGE, 0, "%s: more than %u bytes are no key ring", where, KEYS_MAX);
}

static ssize_t from_file(const char *path, char *text, struct brig_err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_host(err, "secrets.key_file %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_REFUSED, 0, "secrets.key_file %s: not a file", path);
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 077))
        return err_set(err, BRIG_E_REFUSED, 0,
                       "secrets.key_file %s: must belong to the service's user and be closed to others: chmod 600",
                       path);
    ssize_t n = fd_read_all(fd, text, KEYS_MAX + 1);
    if (n == -EFBIG || n > (ssize_t)KEYS_MAX)
        return too_large("secrets.key_file", err);
    return n < 0 ? err_set(err, BRIG_E_HOST, (int)-n, "secrets.key_file %s", path) : n;
}

/* The bytes behind environ are what /proc/PID/environ shows: they are overwritten, not only forgotten. */
static ssize_t from_variable(const char *name, char *text, struct brig_err *err)
{
    char *value = getenv(name);
    const size_t len = value ? strlen(value) : 0;
    ssize_t r = (ssize_t)len;

    if (len > KEYS_MAX)
        r = too_large(name, err);
    else if (value)
        memcpy(text, value, len);
    if (value)
        explicit_bzero(value, len);
    if (unsetenv(name) < 0 && r >= 0)
        r = err_host(err, "unset %s", name);
    return r;
}

__attribute__((noreturn)) static void run_command(char **argv, int out)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid(); /* so that what it starts can be ended with it */
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        syscall(SYS_close_range, 3, ~0u, 0) == 0)
        execve(argv[0], argv, environ);
    _exit(127);
}

static ssize_t read_output(int fd, char *text, struct brig_err *err)
{
    const uint64_t give_up = clock_mono_ns() + COMMAND_NS;
    size_t len = 0;

    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        const uint64_t now = clock_mono_ns();
        if (now >= give_up)
            return err_set(err, BRIG_E_TIMEOUT, 0, "secrets.key_command: has not ended after 10 s");
        if (poll(&wait, 1, (int)((give_up - now) / NS_PER_MS) + 1) <= 0)
            continue;
        ssize_t n = RETRY(read(fd, text + len, KEYS_MAX + 1 - len));
        if (n < 0)
            return err_host(err, "secrets.key_command");
        if (n == 0)
            return (ssize_t)len;
        len += (size_t)n;
        if (len > KEYS_MAX)
            return too_large("secrets.key_command", err);
    }
}

/* The pipe is closed. The process gets what is left of a second, then it is killed. */
static int wait_command(pid_t pid, bool kill_now, struct brig_err *err)
{
    int status = 0;

    for (unsigned ms = 0; !kill_now; ms += 10) {
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0
                       ? 0
                       : err_set(err, BRIG_E_HOST, 0, "secrets.key_command: failed (%s %d)",
                                 WIFEXITED(status) ? "exit status" : "signal",
                                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        if ((done < 0 && errno != EINTR) || ms >= 1000)
            break;
        poll(NULL, 0, 10);
    }
    kill(-pid, SIGKILL); /* its session's group; and itself, where it has not come to that */
    kill(pid, SIGKILL);
    (void)RETRY(waitpid(pid, &status, 0));
    return kill_now ? 0 : err_set(err, BRIG_E_TIMEOUT, 0, "secrets.key_command: does not end");
}

static ssize_t from_command(const char *command, char *text, struct brig_err *err)
{
    char words[4097], *argv[WORDS_MAX + 1], *save = NULL;
    size_t n_words = 0;
    int pipefd[2];

    if (str_copy(words, sizeof words, command) < 0)
        return err_usage(err, "secrets.key_command: too long");
    for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (n_words == WORDS_MAX)
            return err_usage(err, "secrets.key_command: more than %u words", WORDS_MAX);
        argv[n_words++] = word;
    }
    argv[n_words] = NULL;
    if (n_words == 0)
        return err_usage(err, "secrets.key_command: is blank");
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return err_host(err, "pipe");
    AUTO_FD int read_end = pipefd[0];
    AUTO_FD int write_end = pipefd[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_host(err, "fork");
    if (pid == 0)
        run_command(argv, write_end);
    base_close_fd(&write_end);
    ssize_t len = read_output(read_end, text, err);
    int r = wait_command(pid, len < 0, err);
    return r < 0 ? r : len;
}

/* ---- the ring -------------------------------------------------------------------------------------------- */

static int seal_memfd(const char *text, size_t len, int *ret, struct brig_err *err)
{
    AUTO_FD int fd = memfd_create("secret-keys", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fd_write_all(fd, text, len) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_host(err, "memory for the keys of secrets");
    *ret = take_fd(&fd);
    return 0;
}

int supervisor_keys(const struct config *config, int *ret_memfd, struct brig_err *err)
{
    static char text[KEYS_MAX + 1];
    const char *where = config->secrets_key_env;
    /* first, because it is removed from the environment in every case */
    ssize_t len = from_variable(config->secrets_key_env, text, err);
    int r = 0;

    if (ret_memfd)
        *ret_memfd = -1;
    if (len > 0 && (config->secrets_key_file[0] || config->secrets_key_command[0])) {
        len = err_usage(err, "secrets: the keys are in %s and secrets.%s is set; they come from one of them",
                        config->secrets_key_env, config->secrets_key_file[0] ? "key_file" : "key_command");
    } else if (len == 0 && config->secrets_key_file[0]) {
        where = config->secrets_key_file;
        len = from_file(config->secrets_key_file, text, err);
    } else if (len == 0 && config->secrets_key_command[0] && ret_memfd) {
        where = "secrets.key_command";
        len = from_command(config->secrets_key_command, text, err);
    }
    if (len > 0 && ret_memfd)
        r = seal_memfd(text, (size_t)len, ret_memfd, err);
    else if (len == 0 && where != config->secrets_key_env) /* it was to have keys */
        r = err_set(err, BRIG_E_REFUSED, 0, "%s: there is no key in it", where);
    explicit_bzero(text, sizeof text);
    return len < 0 ? (int)len : r;
}
