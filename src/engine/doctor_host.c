/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_host.c: reads who asks and on which kernel, once, before anything is made. */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "base/parse.h"
#include "base/str.h"
#include "engine/engine_doctor.h"

#ifndef LANDLOCK_CREATE_RULESET_VERSION
#define LANDLOCK_CREATE_RULESET_VERSION (1u << 0)
#endif
#define CAP_SYS_ADMIN_BIT 21

long doctor_number(const char *path)
{
    char text[64];
    uint64_t value;

    if (fd_read_file(AT_FDCWD, path, text, sizeof text) <= 0 || parse_fields(text, &value, 1) != 1 || value > INT32_MAX)
        return -1;
    return (long)value;
}

/* "CapEff:\t000001ffffffffff" */
static uint64_t status_field(const char *status, const char *name, int base)
{
    const char *at = strstr(status, name);

    return at ? strtoull(at + strlen(name), NULL, base) : 0;
}

/* The same question as the spawner's is_privileged() (host/host.c). */
static bool has_all_ids(void)
{
    char map[128];
    uint64_t line[3]; /* inside, outside, count */

    return fd_read_file(AT_FDCWD, "/proc/self/uid_map", map, sizeof map) > 0 && parse_fields(map, line, 3) == 3 &&
           line[0] == 0 && line[1] == 0 && line[2] == UINT32_MAX;
}

static void read_status(struct doctor_host *host, bool all_ids)
{
    char status[8192];

    if (fd_read_file(AT_FDCWD, "/proc/self/status", status, sizeof status) < 0)
        return;
    uint64_t caps = status_field(status, "\nCapEff:", 16);
    host->privileged = host->uid == 0 && all_ids && (caps >> CAP_SYS_ADMIN_BIT & 1);
    host->no_new_privs = status_field(status, "\nNoNewPrivs:", 10) != 0;
    host->filtered = status_field(status, "\nSeccomp:", 10) == 2;
}

static void read_kernel(struct doctor_host *host)
{
    struct utsname names;

    if (uname(&names) < 0)
        return;
    (void)!str_copy(host->release, sizeof host->release, names.release);
    char *end = host->release;
    host->version[0] = (unsigned)strtoul(host->release, &end, 10);
    host->version[1] = *end == '.' ? (unsigned)strtoul(end + 1, NULL, 10) : 0;
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    host->landlock = abi < 0 ? -errno : abi;
}

bool doctor_host_is_at_least(const struct doctor_host *host, unsigned major, unsigned minor)
{
    return host->version[0] > major || (host->version[0] == major && host->version[1] >= minor);
}

void doctor_host_read(struct doctor_host *host)
{
    bool all_ids = has_all_ids();

    host->uid = geteuid();
    host->gid = getegid();
    read_status(host, all_ids);
    read_kernel(host);
    host->systemd = access("/run/systemd/system", F_OK) == 0;
    host->nested = !all_ids;
    host->sudo = host->uid == 0 ? "" : "sudo ";
    host->host_sudo = all_ids ? host->sudo : "on the host: sudo ";
}
