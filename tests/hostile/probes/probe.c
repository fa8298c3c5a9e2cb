/* SPDX-License-Identifier: Apache-2.0 */
/* Entry point and the helpers all probes share. Writes with dprintf: nothing is lost when a probe is killed. */
#include "probe.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>

struct tally {
    int held, breached, untried;
};
static struct tally *tally;

static void say(const char *word, const char *name, const char *fmt, va_list ap)
{
    char what[1024], line[1400];

    vsnprintf(what, sizeof(what), fmt, ap);
    for (char *p = what; *p; p++) {
        if ((unsigned char)*p < ' ')
            *p = ' ';
    }
    int n = snprintf(line, sizeof(line), "%s %s: %s\n", word, name, what);
    if (n > 0 && write(STDOUT_FILENO, line, (size_t)n) < 0)
        _exit(1);
}

void held(const char *name)
{
    __atomic_add_fetch(&tally->held, 1, __ATOMIC_RELAXED);
    dprintf(STDOUT_FILENO, "ok %s\n", name);
}

void breach(const char *name, const char *fmt, ...)
{
    va_list ap;

    __atomic_add_fetch(&tally->breached, 1, __ATOMIC_RELAXED);
    va_start(ap, fmt);
    say("BREACH", name, fmt, ap);
    va_end(ap);
}

void untried(const char *name, const char *fmt, ...)
{
    va_list ap;

    __atomic_add_fetch(&tally->untried, 1, __ATOMIC_RELAXED);
    va_start(ap, fmt);
    say("untried", name, fmt, ap);
    va_end(ap);
}

void expect(bool cond, const char *name, const char *fmt, ...)
{
    va_list ap;

    if (cond) {
        held(name);
        return;
    }
    __atomic_add_fetch(&tally->breached, 1, __ATOMIC_RELAXED);
    va_start(ap, fmt);
    say("BREACH", name, fmt, ap);
    va_end(ap);
}

long judge_refused(const char *name, long rc, int err, const int *allowed)
{
    char list[256] = "";

    if (rc >= 0) {
        breach(name, "succeeded (%ld)", rc);
        return rc;
    }
    for (const int *a = allowed; *a; a++) {
        if (*a == err) {
            held(name);
            return rc;
        }
        size_t len = strlen(list);
        snprintf(list + len, sizeof(list) - len, "%s%s", len ? "|" : "", strerrorname_np(*a));
    }
    const char *got = strerrorname_np(err);
    breach(name, "unexpected errno %s (allowed %s)", got ? got : "?", list);
    return rc;
}

int probe_status(void)
{
    if (tally->breached)
        return 1;
    return tally->held ? 0 : 2;
}

const char *nm(const char *fmt, ...)
{
    static char ring[8][320];
    static unsigned next;
    char *buf = ring[next++ % ARRAY_LEN(ring)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof(ring[0]), fmt, ap);
    va_end(ap);
    for (char *p = buf; *p; p++) {
        if ((unsigned char)*p <= ' ')
            *p = '_';
    }
    return buf;
}

const char *given(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

long given_long(const char *name, long otherwise)
{
    const char *v = given(name);
    return v ? strtol(v, NULL, 10) : otherwise;
}

bool gentle(void)
{
    return given("HOSTILE_GENTLE") != NULL;
}

bool mode_is(const char *mode)
{
    const char *m = given("HOSTILE_MODE");
    return strcmp(m ? m : "root", mode) == 0;
}

bool in_host_ns(const char *kind)
{
    char path[64], mine[64] = "", var[64];

    snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    snprintf(var, sizeof(var), "HOSTILE_NS_%s", kind);
    if (readlink(path, mine, sizeof(mine) - 1) < 0)
        return true; /* cannot tell: assume the worst */
    const char *host = given(var);
    return !host || strcmp(host, mine) == 0;
}

bool is_forbidden(const char *text, const char **ret_word)
{
    static char words[4096];
    const char *all = given("HOSTILE_FORBIDDEN");

    if (!all)
        return false;
    snprintf(words, sizeof(words), "%s", all);
    for (char *save = NULL, *w = strtok_r(words, ":", &save); w; w = strtok_r(NULL, ":", &save)) {
        if (strstr(text, w)) {
            *ret_word = w;
            return true;
        }
    }
    return false;
}

ssize_t slurp(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t have = 0;

    if (fd < 0)
        return -1;
    while (have < size - 1) {
        ssize_t n = read(fd, buf + have, size - 1 - have);
        if (n < 0) {
            int saved = errno;
            close(fd);
            errno = saved;
            return -1;
        }
        if (n == 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    buf[have] = 0;
    return (ssize_t)have;
}

bool same_place(const char *a, const char *b)
{
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

void try_read(const char *name, int dirfd, const char *path)
{
    errno = 0;
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char buf[64] = "";

    if (fd < 0) {
        judge_refused(name, -1, errno, ERRS(ENOENT, EACCES));
        return;
    }
    ssize_t n = read(fd, buf, sizeof(buf) - 1);
    close(fd);
    breach(name, "opened %s%s%s", path, n > 0 ? ", reads " : "", n > 0 && !strstr(path, "shadow") ? buf : "");
}

const char *const writable_dirs[] = {"/workspace", "/home/user", "/tmp", "/var/tmp", "/run", "/dev/shm", NULL};

const char *scratch(void)
{
    static char dir[64];

    if (*dir)
        return dir;
    for (const char *const *d = writable_dirs; *d; d++) {
        snprintf(dir, sizeof(dir), "%s/hostile-XXXXXX", *d);
        if (mkdtemp(dir))
            return dir;
    }
    snprintf(dir, sizeof(dir), "/");
    return dir;
}

int in_child(void (*fn)(void *), void *arg, unsigned seconds)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(seconds);
        fn(arg);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -1;
    }
    return status;
}

uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* Those of root inside run nowhere else: what they try would succeed where the namespaces are the host's. */
static bool is_root_inside(const struct probe_case *table)
{
    if (table != inside_cases && table != inside_more_cases && table != inside_last_cases)
        return true;
    return given("HOSTILE_INSIDE") && !gentle() && !in_host_ns("user") && !in_host_ns("mnt") && !in_host_ns("pid");
}

int main(int argc, char **argv)
{
    static const struct probe_case *const tables[] = {
        walk_cases, root_cases,   mount_cases,       share_cases,      signal_cases, spy_cases,
        priv_cases, kernel_cases, channel_cases,     memory_cases,     quota_cases,  storm_cases,
        host_cases, inside_cases, inside_more_cases, inside_last_cases};

    tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED || argc < 2) {
        dprintf(STDERR_FILENO, "usage: probe CASE [ARG]...\n");
        return 2;
    }
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        for (const struct probe_case *c = tables[t]; c->id; c++) {
            if (strcmp(argv[1], "list") == 0) {
                puts(c->id);
            } else if (strcmp(argv[1], c->id) == 0) {
                if (!is_root_inside(tables[t]))
                    untried(c->id, "only as root inside: tried by the host's root it could harm the machine");
                else
                    c->run(argc - 1, argv + 1);
                return probe_status();
            }
        }
    }
    if (strcmp(argv[1], "list") == 0)
        return 0;
    dprintf(STDERR_FILENO, "probe: no case %s\n", argv[1]);
    return 2;
}
