/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_places.c: checks what lies on disk: stores, the engine's directories, its helpers, and the place of core
 * dumps.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/engine_doctor.h"
#include "host/dirs.h"

/* ---- stores on loop devices --------------------------------------------------------------------------- */

static bool have_mkfs(void)
{
    return access("/usr/sbin/mkfs.ext4", X_OK) == 0 || access("/sbin/mkfs.ext4", X_OK) == 0 ||
           access("/usr/bin/mkfs.ext4", X_OK) == 0;
}

/* The driver is there, only its node is not: a container, or a /dev made by hand. */
static bool have_loop_driver(void)
{
    char text[4096];

    return fd_read_file(AT_FDCWD, "/proc/misc", text, sizeof text) > 0 && strstr(text, " loop-control\n");
}

void find_images(const struct doctor *d, struct brig_doctor_row *row)
{
    bool in_use = d->probe.usable && str_eq(d->probe.layers[BRIG_LAYER_DISK].by, "ext4 image");
    AUTO_FD int control = d->host.privileged ? open("/dev/loop-control", O_RDWR | O_CLOEXEC) : -1;
    int why = errno;

    if (!d->host.privileged) {
        row_off(row, "memory-backed stores: only root attaches loop devices");
    } else if (control < 0) {
        row_off(row, "memory-backed stores: no loop devices, /dev/loop-control: %s", strerror(why));
        row_fix(row, "%s",
                have_loop_driver()
                    ? "mknod /dev/loop-control c 10 237 (a container: --device /dev/loop-control, and the right "
                      "to use block devices 7:*)"
                    : "modprobe loop (lasting: echo loop > /etc/modules-load.d/loop.conf)");
    } else if (!have_mkfs()) {
        row_off(row, "loop devices are there, but mkfs.ext4 is not");
        row_fix(row, "apt-get install e2fsprogs");
    } else if (d->probe.usable && !in_use) {
        row_off(row, "memory-backed stores, although loop devices and mkfs.ext4 are there");
        row_fix(row, "%s",
                d->features[FEATURE_DIRS].on
                    ? "look for a state or cache directory that cannot be used (BRIG_STATE_DIR, BRIG_CACHE_DIR)"
                    : d->features[FEATURE_DIRS].fix);
    } else {
        row_on(row, "%s", in_use ? "stores are ext4 images on loop devices" : "loop devices and mkfs.ext4 are there");
    }
}

/* ---- disks that can be copied and kept ---------------------------------------------------------------- */

void find_disks(const struct doctor *d, struct brig_doctor_row *row)
{
    bool xfs = access("/usr/sbin/mkfs.xfs", X_OK) == 0 || access("/sbin/mkfs.xfs", X_OK) == 0;

    if (!d->host.privileged) {
        row_off(row, "no snapshots, forks and volumes: only root attaches loop devices and maps ids");
    } else if (!d->features[FEATURE_IMAGES].on) {
        row_off(row, "no snapshots, forks and volumes: there are no image stores");
        row_fix(row, "%s", d->features[FEATURE_IMAGES].fix);
    } else if (!xfs) {
        row_off(row,
                "mkfs.xfs is not there: unless the file system of the state directory shares blocks, snapshots and "
                "forks copy all of them");
        row_fix(row, "apt-get install xfsprogs");
    } else {
        row_on(row, "snapshots and forks share blocks");
    }
}

/* ---- directories ------------------------------------------------------------------------------------- */

void find_dirs(const struct doctor *d, struct brig_doctor_row *row)
{
    static const enum brig_dir wanted[] = {BRIG_DIR_RUN, BRIG_DIR_CACHE, BRIG_DIR_STATE};
    size_t n = d->host.privileged ? 3 : 2; /* the state directory holds images */
    char path[PATH_MAX] = "";
    struct brig_err err;

    for (size_t i = 0; i < n; i++) {
        AUTO_FD int fd = dirs_open(wanted[i], &err);
        if (fd >= 0)
            continue;
        row_off(row, "%s", err.message);
        if (d->host.nested || dirs_path(wanted[i], path, sizeof path, NULL) < 0)
            row_fix(row, "set HOME; or set BRIG_STATE_DIR, BRIG_RUN_DIR and BRIG_CACHE_DIR to directories of your own");
        else
            row_fix(row, "%sinstall -d -o %u -g %u -m %s %.200s", d->host.sudo, d->host.uid, d->host.gid,
                    d->host.uid == 0 ? "755" : "700", path);
        return;
    }
    if (dirs_path(BRIG_DIR_RUN, path, sizeof path, NULL) < 0)
        path[0] = '\0';
    row_on(row, "run, cache%s are this user's alone (run: %s)", n == 3 ? " and state" : "", path);
}

/* ---- helpers ------------------------------------------------------------------------------------------ */

void find_helpers(const struct doctor *d, struct brig_doctor_row *row)
{
    static const char *const names[] = {"brig-init", "brig-spawner"};
    char path[PATH_MAX];

    for (size_t i = 0; d->helper_dir && i < ARRAY_SIZE(names); i++) {
        if (str_format(path, sizeof path, "%s/%s", d->helper_dir, names[i]) > 0 && access(path, X_OK) == 0)
            continue;
        row_off(row, "%.100s/%s: %s", d->helper_dir, names[i], strerror(errno));
        row_fix(
            row,
            "unset BRIG_LIBEXEC_DIR, or set it to the directory of brig-init and brig-spawner (a program: helper_dir "
            "of its engine's options)");
        return;
    }
    row_on(row, "brig-init and brig-spawner %s%.100s",
           d->helper_dir     ? "are in "
           : d->probe.usable ? "were found"
                             : "are where they were installed",
           d->helper_dir ? d->helper_dir : "");
}

/* ---- core dumps --------------------------------------------------------------------------------------- */

/*
 * A pattern that is a pipe starts a program of the host for every crash, as root, whatever the limit is, unless the
 * limit is 1.
 */
void find_core_dumps(const struct doctor *d, struct brig_doctor_row *row)
{
    char pattern[256] = "";
    uint64_t limit = 0;
    bool known = doctor_limit_inside(d->probe.inside, "Max core file size", &limit) == 0;

    if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/core_pattern", pattern, sizeof pattern) < 0)
        pattern[0] = '\0';
    pattern[strcspn(pattern, " \n")] = '\0';
    bool pipe = pattern[0] == '|';
    if (known && limit <= 1 && (limit == 1 || !pipe)) {
        row_on(row, "a crash leaves nothing: RLIMIT_CORE is %u inside%s%.60s", (unsigned)limit,
               pipe ? ", which keeps off " : "", pipe ? pattern : "");
    } else if (!pipe) {
        row_on(row, "kernel.core_pattern is no pipe: crashes start nothing on the host");
    } else {
        row_off(row, "kernel.core_pattern is the pipe %.60s: crashes in sandboxes may start it, as root", pattern);
        row_fix(row, "%ssysctl -w kernel.core_pattern=core", d->host.host_sudo);
    }
}
