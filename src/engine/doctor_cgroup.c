/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_cgroup.c: finds the control groups of the host, and those that this user may divide. It only looks: the
 * spawner's own search (host/cgroup_host.c) would move this process.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/engine_doctor.h"
#include "host/cgroup.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define NEEDED (1u << CONTROLLER_MEMORY | 1u << CONTROLLER_CPU | 1u << CONTROLLER_PIDS)

static const char *const controllers[CONTROLLER_MAX] = {"memory", "cpu", "pids", "cpuacct", "blkio"};

/* Reads a list with commas, blanks or newlines between its words; v2's `io` is v1's `blkio`. */
static unsigned controllers_of(const char *list)
{
    unsigned mask = 0;

    for (size_t len; *list; list += len + (list[len] != '\0')) {
        len = strcspn(list, ", \n");
        for (unsigned i = 0; i < CONTROLLER_MAX; i++)
            if (len == strlen(controllers[i]) && memcmp(list, controllers[i], len) == 0)
                mask |= 1u << i;
        if (len == 2 && memcmp(list, "io", 2) == 0)
            mask |= 1u << CONTROLLER_IO;
    }
    return mask;
}

static void names_of(unsigned mask, char *out, size_t size)
{
    size_t len = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < CONTROLLER_MAX && len < size; i++)
        if (mask & (1u << i))
            len += (size_t)snprintf(out + len, size - len, "%s%s", len ? " " : "", controllers[i]);
}

static bool is_writable(int fd)
{
    return faccessat(fd, ".", W_OK, AT_EACCESS) == 0 && faccessat(fd, "cgroup.procs", W_OK, AT_EACCESS) == 0;
}

static void read_v2(struct doctor_cgroup *cg, const char *mount, const char *path, const char *mounts)
{
    char text[4096];
    struct statvfs fs;
    AUTO_FD int fd = cg_find_own(mount, path, mounts);

    if (fd < 0)
        return;
    (void)!str_copy(cg->v2_path, sizeof cg->v2_path, path);
    cg->v2_writable = is_writable(fd);
    cg->read_only = fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_RDONLY);
    if (fd_read_file(fd, "cgroup.controllers", text, sizeof text) > 0)
        cg->v2 = controllers_of(text);
    bool top = faccessat(fd, "cgroup.type", F_OK, 0) < 0; /* the top may have processes and controllers */
    char own[24];
    snprintf(own, sizeof own, "%d\n", (int)getpid());
    cg->v2_alone = top || (fd_read_file(fd, "cgroup.procs", text, sizeof text) > 0 && str_eq(text, own));
}

static void read_v1(struct doctor_cgroup *cg, const char *list, const char *path, const char *mounts)
{
    char mount[128];
    struct statvfs fs;
    unsigned mask = controllers_of(list);

    if (mask == 0 || str_format(mount, sizeof mount, CGROUP_ROOT "/%s", list) < 0)
        return;
    AUTO_FD int fd = cg_find_own(mount, path, mounts);
    if (fd < 0)
        return;
    cg->v1 |= mask;
    if (is_writable(fd))
        cg->v1_writable |= mask;
    if (fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_RDONLY))
        cg->read_only = true;
}

/* Switched off at boot: the last column of /proc/cgroups is 0. */
static unsigned read_disabled(void)
{
    char text[4096], *save = NULL;
    unsigned mask = 0;

    if (fd_read_file(AT_FDCWD, "/proc/cgroups", text, sizeof text) <= 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t len = strlen(line);
        char *name_end = strchr(line, '\t');
        if (line[0] == '#' || !name_end || len < 2 || line[len - 1] != '0' || line[len - 2] != '\t')
            continue;
        *name_end = '\0';
        mask |= controllers_of(line);
    }
    return mask;
}

void doctor_cgroup_read(struct doctor_cgroup *cg)
{
    char text[4096], *save = NULL;
    struct statfs fs;

    cg->disabled = read_disabled();
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) < 0 || statfs(CGROUP_ROOT, &fs) < 0)
        return;
    AUTO_FREE char *mounts = cg_read_mounts();
    bool pure = fs.f_type == CGROUP2_SUPER_MAGIC;
    bool unified = pure || (statfs(CGROUP_ROOT "/unified", &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(++list, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (*list && !pure)
            read_v1(cg, list, path, mounts);
        else if (!*list && unified)
            read_v2(cg, pure ? CGROUP_ROOT : CGROUP_ROOT "/unified", path, mounts);
    }
    cg->kind = pure ? CGROUP_V2 : cg->v1 ? unified ? CGROUP_HYBRID : CGROUP_V1 : CGROUP_NONE;
}

void find_cgroups(const struct doctor *d, struct brig_doctor_row *row)
{
    static const char *const kinds[] = {"none", "v1", "hybrid: v1 limits, v2 counts and kills", "v2"};
    const struct doctor_cgroup *cg = &d->cgroup;
    char names[64];
    unsigned missing = NEEDED & cg->disabled;

    names_of(missing, names, sizeof names);
    if (cg->kind == CGROUP_NONE) {
        row_off(row, "none: no control groups are mounted at " CGROUP_ROOT);
        row_fix(row, "%smount -t cgroup2 cgroup2 " CGROUP_ROOT, d->host.host_sudo);
    } else if (missing) {
        row_off(row, "%s, but switched off at boot: %s", kinds[cg->kind], names);
        row_fix(row, "boot with cgroup_enable=memory and without cgroup_disable=");
    } else {
        names_of(cg->v1 | cg->v2, names, sizeof names);
        row_on(row, "%s (%s)", kinds[cg->kind], names[0] ? names : "no controllers here");
    }
}

/* ---- delegation ------------------------------------------------------------------------------------- */

static void fix_v2(const struct doctor *d, struct brig_doctor_row *row)
{
    const char *scope = "systemd-run --user --scope -p Delegate=yes brig run ...";

    if (d->cgroup.v2_writable && d->cgroup.v2_alone) {
        row_fix(
            row,
            "printf '[Service]\\nDelegate=cpu memory pids io\\n' | sudo install -D /dev/stdin "
            "/etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload, log in again, and: %s",
            scope);
        return;
    }
    if (d->host.systemd) {
        row_fix(row, "%s", scope);
        return;
    }
    row_fix(row,
            "%s; without systemd: sudo sh -c 'cd " CGROUP_ROOT "; echo +cpu +memory +pids >cgroup.subtree_control; "
            "mkdir -p brig; cd brig && chown %u . cgroup.[ps]* && echo $$ >cgroup.procs && "
            "exec setpriv --reuid %u --regid %u --clear-groups brig run ...'",
            scope, d->host.uid, d->host.uid, d->host.gid);
}

/* systemd hands v1 controllers to nobody but root. */
static void fix_v1(const struct doctor *d, struct brig_doctor_row *row)
{
    char names[64];

    names_of(d->cgroup.v1 & (NEEDED | 1u << CONTROLLER_CPUACCT), names, sizeof names);
    if (d->host.systemd)
        row_fix(row, "boot with systemd.unified_cgroup_hierarchy=1, then: systemd-run --user --scope -p Delegate=yes "
                     "brig run ...");
    else
        row_fix(row,
                "sudo sh -c 'for c in %s; do d=" CGROUP_ROOT
                "/$c/brig; mkdir -p $d && chown -R %u $d && echo '$$' >$d/cgroup.procs; done', "
                "then brig run ... from this shell",
                names, d->host.uid);
}

static void find_undelegated(const struct doctor *d, struct brig_doctor_row *row)
{
    const struct doctor_cgroup *cg = &d->cgroup;
    unsigned usable = cg->v1_writable | (cg->v2_writable && cg->v2_alone ? cg->v2 : 0);
    char names[64];

    names_of(NEEDED & ~usable, names, sizeof names);
    if (cg->kind == CGROUP_NONE || (cg->disabled & NEEDED)) {
        row_off(row, "nothing to delegate");
        row_fix(row, "%s", d->features[FEATURE_CGROUPS].fix);
    } else if (cg->read_only || d->host.uid == 0) { /* a container, then */
        row_off(row, "%s",
                cg->read_only ? CGROUP_ROOT " is mounted read-only"
                              : "root may make no cgroups with all controllers here");
        row_fix(row,
                "start the container with --privileged, or with --cgroupns=host -v " CGROUP_ROOT ":" CGROUP_ROOT ":rw");
    } else if (cg->kind != CGROUP_V2) {
        row_off(row, "no cgroup of this user's for: %s", names);
        fix_v1(d, row);
    } else {
        if (!cg->v2_writable)
            row_off(row, "the cgroup %s is not this user's to divide", cg->v2_path);
        else if (!cg->v2_alone)
            row_off(row, "other processes share the cgroup %s", cg->v2_path);
        else
            row_off(row, "the cgroup %s has not been given: %s", cg->v2_path, names);
        fix_v2(d, row);
    }
}

void find_delegation(const struct doctor *d, struct brig_doctor_row *row)
{
    const struct doctor_cgroup *cg = &d->cgroup;
    const struct brig_layer_state *layers = d->probe.layers;
    bool ours =
        (NEEDED & ~(cg->v1_writable | (cg->v2_writable && (cg->v2_alone || d->host.privileged) ? cg->v2 : 0))) == 0;

    if (d->probe.usable ? layers[BRIG_LAYER_MEMORY].on && layers[BRIG_LAYER_CPU].on : ours)
        row_on(row, "sandboxes get cgroups of their own%s%s", d->probe.usable ? ", held by " : "",
               d->probe.usable ? layers[BRIG_LAYER_MEMORY].by : "");
    else
        find_undelegated(d, row);
}
