/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_user.c: checks what a plain user needs: user namespaces, a procfs with nothing over it, and ids of their own.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "engine/engine_doctor.h"

/* ---- user namespaces ------------------------------------------------------------------------------- */

/* Ubuntu 24.04: a user namespace made by a program without a profile of its own has no capabilities. */
static void fix_apparmor(const struct doctor *d, struct brig_doctor_row *row)
{
    char exe[PATH_MAX], fix[sizeof row->fix];
    const char *sudo = d->host.host_sudo;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    row_fix(row, "%ssysctl -w kernel.apparmor_restrict_unprivileged_userns=0", sudo);
    if (n <= 0)
        return;
    exe[n] = '\0';
    n = str_format(
        fix, sizeof fix,
        "%ssysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or a profile: echo 'abi <abi/4.0>, "
        "profile brig %s flags=(unconfined) { userns, }' | %stee /etc/apparmor.d/brig && %sapparmor_parser -r "
        "/etc/apparmor.d/brig",
        sudo, exe, sudo, sudo);
    if (n > 0)
        row_fix(row, "%s", fix);
}

void find_user_ns(const struct doctor *d, struct brig_doctor_row *row)
{
    static const char *const lasting = "(lasting: in a file of /etc/sysctl.d)";

    if (d->probe.usable) {
        row_on(row, "%s can make them", d->host.privileged ? "root" : "this user");
    } else if (doctor_number("/proc/sys/user/max_user_namespaces") == 0) {
        row_off(row, "the sysctl user.max_user_namespaces is 0");
        row_fix(row, "%ssysctl -w user.max_user_namespaces=15000 %s", d->host.sudo, lasting);
    } else if (doctor_number("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
        row_off(row, "the sysctl kernel.unprivileged_userns_clone is 0: only root may make them");
        row_fix(row, "%ssysctl -w kernel.unprivileged_userns_clone=1 %s", d->host.host_sudo, lasting);
    } else if (doctor_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
        row_off(row,
                "AppArmor takes the capabilities in them away (kernel.apparmor_restrict_unprivileged_userns is 1)");
        fix_apparmor(d, row);
    } else if (access("/proc/self/ns/user", F_OK) < 0) {
        row_off(row, "this kernel has none");
        row_fix(row, "boot a kernel built with CONFIG_USER_NS=y");
    } else if (d->blamed == FEATURE_USER_NS && d->host.filtered && strstr(d->probe.error.message, strerror(EPERM))) {
        row_off(row, "a container's system call filter forbids them");
        row_fix(row, "start the container with --security-opt seccomp=unconfined, or with --privileged");
    } else {
        row_on(row, "nothing known forbids them");
    }
}

/* ---- /proc ------------------------------------------------------------------------------------------ */

/* The id or parent of a mountinfo line, "36 35 98:0 /root /point options ..."; `word` counts from 0. */
static size_t field(const char *line, unsigned word, const char **ret)
{
    while (word-- > 0) {
        line += strcspn(line, " \n");
        line += *line == ' ';
    }
    *ret = line;
    return strcspn(line, " \n");
}

static bool field_is(const char *line, unsigned word, const char *text)
{
    const char *at;
    size_t len = field(line, word, &at);

    return len == strlen(text) && memcmp(at, text, len) == 0;
}

/* The file system type stands behind a lone dash, after any number of optional fields. */
static bool is_procfs(const char *line)
{
    size_t len = strcspn(line, "\n");
    const char *dash = memmem(line, len, " - ", 3);

    return dash && str_starts(dash, " - proc ");
}

/* Directories that are made to be mounted on, and always empty: over these the kernel looks away. */
static bool is_mount_point(const char *line)
{
    return field_is(line, 4, "/proc/sys/fs/binfmt_misc") || field_is(line, 4, "/proc/fs/nfsd") ||
           field_is(line, 4, "/proc/openprom");
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end && end[1] ? end + 1 : NULL;
}

/* The line of the first mount that hides a part of the mount on `proc`, or NULL. */
static const char *find_mask(const char *mountinfo, const char *proc)
{
    const char *id, *parent;
    size_t len = field(proc, 0, &id);

    for (const char *line = mountinfo; line; line = next_line(line))
        if (field(line, 1, &parent) == len && memcmp(id, parent, len) == 0 && !is_mount_point(line))
            return line;
    return NULL;
}

/*
 * This is mount_too_revealing() of the kernel: in a user namespace a procfs may be mounted only where a whole one is
 * visible already, and not read-only.
 */
bool doctor_proc_is_full(const char *mountinfo, char *ret_mask, size_t size)
{
    ret_mask[0] = '\0';
    for (const char *line = mountinfo; line && *line; line = next_line(line)) {
        const char *options;
        if (!is_procfs(line) || !field_is(line, 3, "/"))
            continue;
        size_t len = field(line, 5, &options);
        bool read_only = str_starts(options, "ro") && (len == 2 || options[2] == ',');
        const char *mask = read_only ? line : find_mask(mountinfo, line), *point;
        if (!mask)
            return true;
        len = field(mask, 4, &point);
        snprintf(ret_mask, size, "%.*s%s", (int)len, point, read_only ? " (read-only)" : "");
    }
    return false;
}

/* 1: whole, 0: masked by *ret_mask, negative: nobody knows. */
static int look_at_proc(char *ret_mask, size_t size)
{
    const size_t room = 1 << 20;
    char *text = mem_alloc(room);
    ssize_t n = text ? fd_read_file(AT_FDCWD, "/proc/self/mountinfo", text, room) : -ENOMEM;
    int full = n < 0 ? (int)n : doctor_proc_is_full(text, ret_mask, size);

    mem_free(text);
    return full;
}

void find_full_proc(const struct doctor *d, struct brig_doctor_row *row)
{
    char mask[96] = "";
    int full = d->host.privileged ? 1 : look_at_proc(mask, sizeof mask);

    if (d->host.privileged) {
        row_on(row, "root mounts its own, whatever lies over this one");
    } else if (full < 0) {
        row_on(row, "not checked, /proc/self/mountinfo: %s", strerror(-full));
    } else if (full > 0) {
        row_on(row, "nothing is mounted over a part of /proc");
    } else if (d->probe.usable) {
        row_on(row, "parts of it are masked (%s), but sandboxes get theirs", mask);
    } else {
        row_off(row, "/proc is masked (%s), so the kernel lets a plain user mount no other",
                mask[0] ? mask : "there is none");
        row_fix(row, "start the container with --security-opt systempaths=unconfined (Docker), --security-opt "
                     "unmask=ALL (Podman) or securityContext.procMount: Unmasked (Kubernetes)");
    }
}

/* ---- subordinate ids --------------------------------------------------------------------------------- */

#define SUBIDS_FIRST 100000u
#define SUBIDS_COUNT 65536u

struct subids {
    char name[64]; /* "" where /etc/passwd has none */
    bool uids, gids;
    uint64_t next; /* the first id behind all ranges that are given out */
};

static void find_name(uid_t uid, char *out, size_t size)
{
    FILE *file = fopen("/etc/passwd", "re");
    char line[1024];

    while (file && !out[0] && fgets(line, sizeof line, file)) {
        char *save = NULL;
        const char *name = strtok_r(line, ":", &save);
        const char *id = strtok_r(NULL, ":", &save) ? strtok_r(NULL, ":", &save) : NULL;
        uint64_t number;
        if (name && id && parse_u64(id, &number) == 0 && number == uid && str_copy(out, size, name) < 0)
            break;
    }
    if (file)
        fclose(file);
}

/* "name:start:count" or "uid:start:count" */
static bool find_range(const char *path, uid_t uid, struct subids *ids)
{
    FILE *file = fopen(path, "re");
    char line[512], number[16];
    bool found = false;

    snprintf(number, sizeof number, "%u", uid);
    while (file && fgets(line, sizeof line, file)) {
        char *save = NULL;
        const char *who = strtok_r(line, ":", &save), *start = strtok_r(NULL, ":", &save),
                   *count = strtok_r(NULL, ":\n", &save);
        uint64_t first, n;
        if (!count || parse_u64(start, &first) < 0 || parse_u64(count, &n) < 0)
            continue;
        found |= n >= 2 && (str_eq(who, number) || (ids->name[0] && str_eq(who, ids->name)));
        if (first <= UINT32_MAX && n <= UINT32_MAX && first + n > ids->next)
            ids->next = first + n;
    }
    if (file)
        fclose(file);
    return found;
}

/* Whether the tool can do what it is for: set-user-id root, or a file with the capability. */
static bool tool_works(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && access(path, X_OK) == 0 &&
           ((st.st_uid == 0 && (st.st_mode & S_ISUID)) || getxattr(path, "security.capability", NULL, 0) > 0);
}

static void fix_ranges(const struct doctor *d, const struct subids *ids, bool tools, struct brig_doctor_row *row)
{
    const char *sudo = d->host.sudo, *install = tools ? "" : "apt-get install uidmap", *and = tools ? "" : " && ";
    unsigned long long first = ids->next, last = first + SUBIDS_COUNT - 1;

    if (!ids->name[0]) /* newuidmap refuses users without a name or under another group; useradd gives the ranges as
                          well */
        row_fix(row, "%s%s%s(getent group %u || %sgroupadd -g %u u%u) && %suseradd -u %u -g %u u%u", tools ? "" : sudo,
                install, and, d->host.gid, sudo, d->host.gid, d->host.gid, sudo, d->host.uid, d->host.gid, d->host.uid);
    else if (ids->uids && ids->gids)
        row_fix(row, "%s%s", sudo, install);
    else
        row_fix(row, "%s%s%s%susermod --add-subuids %llu-%llu --add-subgids %llu-%llu %s", tools ? "" : sudo, install,
                and, sudo, first, last, first, last, ids->name);
}

void find_subids(const struct doctor *d, struct brig_doctor_row *row)
{
    struct subids ids = {.next = SUBIDS_FIRST};
    bool tools = tool_works("/usr/bin/newuidmap") && tool_works("/usr/bin/newgidmap");

    if (d->host.privileged) {
        row_on(row, "not needed: root gives every sandbox a range of its own");
        return;
    }
    find_name(d->host.uid, ids.name, sizeof ids.name);
    ids.uids = find_range("/etc/subuid", d->host.uid, &ids);
    ids.gids = find_range("/etc/subgid", d->host.uid, &ids);
    if (d->probe.layers[BRIG_LAYER_UID_RANGE].on) {
        row_on(row, "every sandbox gets two of this user's");
    } else if (d->host.nested && d->host.uid == 0) {
        row_off(row, "this user namespace has no ids to give away");
        row_fix(row,
                "run brig outside of it, or give it more ids (podman: --userns with a range; unshare: --map-auto)");
    } else if (!tools || !ids.uids || !ids.gids || !ids.name[0]) {
        row_off(row, "missing:%s%s%s%s", tools ? "" : " newuidmap and newgidmap (set-user-id);",
                ids.name[0] ? "" : " a line in /etc/passwd;", ids.uids ? "" : " a range in /etc/subuid;",
                ids.gids ? "" : " a range in /etc/subgid;");
        fix_ranges(d, &ids, tools, row);
    } else if (d->host.no_new_privs) {
        row_off(row, "no_new_privs is set on this process, so newuidmap cannot gain its rights");
        row_fix(row,
                "start brig without it (systemd: NoNewPrivileges=no; containers: no --security-opt no-new-privileges)");
    } else if (!d->features[FEATURE_DIRS].on) {
        row_off(row, "there is no run directory to keep two sandboxes from taking the same ones");
        row_fix(row, "%s", d->features[FEATURE_DIRS].fix);
    } else if (d->probe.usable) {
        row_off(row, "newuidmap or newgidmap refuses the ranges of /etc/subuid and /etc/subgid");
        row_fix(row, "see why: unshare -U sleep 9 & sleep 1; newuidmap $! 0 %u 1; newgidmap $! 0 %u 1", d->host.uid,
                d->host.gid);
    } else {
        row_on(row, "the tools and the ranges are there");
    }
}
