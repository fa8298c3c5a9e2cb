/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_locks.c: counts the file locks of each sandbox. The kernel charges the 192 bytes of a lock to nobody and has
 * no limit on their number, but it has one list of them all, /proc/locks, which names the process that took each. In a
 * sandbox that process lives as long as its lock: the filter refuses locks of open files (OFD) and tables of
 * descriptors that two processes share.
 *
 * The list is read at most once a second for all sandboxes, because the kernel waits for an RCU grace period before it
 * shows it (some milliseconds). As long as it is shorter than what one sandbox may have, that is all; beyond that, each
 * process is looked up by its pid namespace.
 *
 * The kernel stops all locking and walks the list from its start for every page of it that is read, so the time grows
 * with the square of its length: 16,000 lines took 0.3 s. We read LINES_MAX lines and no more. If that is not all, at
 * least one sandbox has more than its share of them (unless processes of the host have), and the one with the most is
 * ended, until the list is shorter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define LOCKS_MAX 1024u /* 192 KiB; a connection of SQLite has five, a server of files some hundreds */
#define LINES_MAX 8192u /* as many as are read in 0.1 s: eight sandboxes at their bound hide nobody */
#define COUNT_NS NS_PER_SEC

/*
 * The place in the list is a number that counts from its start, where new locks are added: if a lock is taken while we
 * read, we see another one a second time. So equal lines count once. Two POSIX locks of a process are never equal.
 */
struct line {
    uint64_t pid, hash;
};

struct lines {
    struct line *all; /* LINES_MAX of them */
    uint32_t n, n_named;
};

/*
 * Parses "7: POSIX  ADVISORY  WRITE 581 00:19:868 0 EOF", or "7: -> POSIX ..." for a lock that waits. The pid stands
 * before the word with two colons; it is -1 where the kernel names none.
 */
static void take_line(struct lines *lines, char *line)
{
    char *save = NULL, *before = NULL, *text = strchr(line, ':');
    struct line *ret = &lines->all[lines->n_named];

    lines->n++;
    if (!text)
        return;
    ret->hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *c = text; *c; c++)
        ret->hash = (ret->hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    for (char *word = strtok_r(line, " ", &save); word; before = word, word = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(word, ':');
        if (!colon || !strchr(colon + 1, ':'))
            continue;
        if (before && parse_fields(before, &ret->pid, 1) == 1)
            lines->n_named++;
        return;
    }
}

static void read_lines(int proc_fd, struct lines *lines)
{
    char text[8192];
    size_t len = 0;
    AUTO_FD int fd = SYS(openat(proc_fd, "locks", O_RDONLY | O_CLOEXEC));

    while (fd >= 0 && lines->n < LINES_MAX) {
        ssize_t n = SYS(read(fd, text + len, sizeof text - 1 - len));
        if (n <= 0)
            return;
        len += (size_t)n;
        text[len] = '\0';
        char *line = text, *end;
        while (lines->n < LINES_MAX && (end = strchr(line, '\n'))) {
            *end = '\0';
            take_line(lines, line);
            line = end + 1;
        }
        len -= (size_t)(line - text); /* the kernel may cut a line in two */
        memmove(text, line, len);
    }
}

static int compare(const void *a, const void *b)
{
    const struct line *x = a, *y = b;

    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static uint64_t pid_ns(const struct spawner *spawner, uint64_t pid)
{
    char path[48];
    struct stat st;

    snprintf(path, sizeof path, "%llu/ns/pid", (unsigned long long)pid);
    return fstatat(spawner->host.proc_fd, path, &st, 0) == 0 ? (uint64_t)st.st_ino : 0;
}

static void share_out(struct spawner *spawner, struct lines *lines)
{
    unsigned n = 0;
    struct {
        uint64_t ns;
        struct sandbox *sandbox;
    } *places = mem_alloc(spawner->n_sandboxes * sizeof *places);

    if (!places)
        return;
    for (struct sandbox *s = spawner->lists[SANDBOX_RUNNING]; s && n < spawner->n_sandboxes; s = s->next)
        if (s->pid > 0 && s->locks_over == 0 && (places[n].ns = pid_ns(spawner, (uint64_t)s->pid)) != 0)
            places[n++].sandbox = s;
    qsort(lines->all, lines->n_named, sizeof lines->all[0], compare);
    for (uint32_t at = 0, end, count; at < lines->n_named; at = end) {
        const struct line *all = lines->all;
        for (end = at + 1, count = 1; end < lines->n_named && all[end].pid == all[at].pid; end++)
            count += all[end].hash != all[end - 1].hash;
        uint64_t ns = pid_ns(spawner, all[at].pid);
        for (unsigned i = 0; i < n && ns != 0; i++)
            if (places[i].ns == ns)
                places[i].sandbox->locks += count;
    }
    mem_free(places);
    spawner->locks_bound = LOCKS_MAX;
    spawner->locks_least = 0;
    if (lines->n < LINES_MAX || n == 0)
        return;
    spawner->locks_bound = LINES_MAX / n < LOCKS_MAX ? LINES_MAX / n : LOCKS_MAX;
    for (struct sandbox *s = spawner->lists[SANDBOX_RUNNING]; s; s = s->next)
        if (s->locks_over == 0 && s->locks > spawner->locks_least)
            spawner->locks_least = s->locks;
}

void sandbox_locks_count(struct spawner *spawner)
{
    uint64_t start = clock_mono_ns(), took;
    struct lines lines = {0};

    if (start < spawner->locks_next_ns)
        return;
    for (struct sandbox *s = spawner->lists[SANDBOX_RUNNING]; s; s = s->next)
        if (s->locks_over == 0) /* else it is the number that it was ended for */
            s->locks = 0;
    lines.all = mem_alloc(LINES_MAX * sizeof lines.all[0]); /* pages that are not used are not there */
    if (lines.all) {
        read_lines(spawner->host.proc_fd, &lines);
        if (lines.n > LOCKS_MAX)
            share_out(spawner, &lines);
    }
    mem_free(lines.all);
    took = clock_mono_ns() - start;
    spawner->locks_next_ns = start + took + (8 * took > COUNT_NS ? 8 * took : COUNT_NS);
}
