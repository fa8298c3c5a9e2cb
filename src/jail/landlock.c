/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.c: the second file system boundary. There is one Landlock domain for the whole sandbox: pid 1 enters it and
 * every program inherits it. With a domain per program they could not signal each other.
 *
 * The mount namespace is the first boundary; this one holds if it is ever breached: a path that does not lead up to one
 * of the places below is unreachable, device nodes cannot be made, /proc cannot be written, and (ABI 6) neither
 * abstract sockets nor signals cross the domain. Rights the kernel does not know yet are left out; the statement names
 * the ABI in force.
 */
#include <string.h>
#include <sys/prctl.h>

#include "jail/plan.h"
#include "jail/sys.h"

/* Rights and scopes newer than Debian 12's headers (linux/landlock.h of 6.1). */
#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL (1ULL << 1)

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define READ_EXEC (READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define WRITE_ALL                                                                                                 \
    (READ_EXEC | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |                   \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER | FS_TRUNCATE)
#define DEVICES (READ | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define FILE_RIGHTS                                                                                            \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE | \
     FS_IOCTL_DEV)

/* The attribute as the newest kernel we know takes it; older ones are given the shorter size. */
struct ruleset_attr {
    uint64_t handled_fs, handled_net, scoped;
};

static uint64_t handled_fs(unsigned abi)
{
    uint64_t all = (1ULL << 13) - 1; /* ABI 1: EXECUTE .. MAKE_SYM */

    if (abi >= 2)
        all |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3)
        all |= FS_TRUNCATE;
    if (abi >= 5)
        all |= FS_IOCTL_DEV;
    return all;
}

static int add_rule(int ruleset, int fd, uint64_t access, unsigned abi)
{
    struct landlock_path_beneath_attr rule = {.parent_fd = fd, .allowed_access = access & handled_fs(abi)};

    return SYS(sys_landlock_add_rule(ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule));
}

/* A place that does not exist (another root file system) needs no rule. */
static int allow(struct enter *e, int ruleset, const char *path, uint64_t access)
{
    AUTO_FD int fd = SYS(open(path, O_PATH | O_CLOEXEC));
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return 0;
    TRY(e, path, fd);
    TRY(e, path, fstat(fd, &st));
    if (!S_ISDIR(st.st_mode))
        access &= FILE_RIGHTS;
    TRY(e, path, add_rule(ruleset, fd, access, e->plan->landlock_abi));
    return 0;
}

static int allow_template(struct enter *e, int ruleset)
{
    const struct jail_plan *p = e->plan;

    if (p->writable_root || plan_off(p, BRIG_LAYER_ROOT_READONLY))
        return allow(e, ruleset, "/", WRITE_ALL);
    if (plan_other_root(p) || plan_off(p, BRIG_LAYER_MOUNT_NS))
        return allow(e, ruleset, "/", READ_EXEC);
    int r = allow(e, ruleset, "/", LANDLOCK_ACCESS_FS_READ_DIR);
    for (unsigned i = 0; r == 0 && i < PLAN_LOWER_DIRS && p->lower_dirs[i]; i++)
        r = allow(e, ruleset, p->lower_dirs[i], READ_EXEC);
    return r < 0 ? r : allow(e, ruleset, "/etc", READ);
}

static int allow_places(struct enter *e, int ruleset)
{
    static const struct {
        const char *path;
        uint64_t access;
    } places[] = {
        {"/proc", READ},           {"/dev", DEVICES},   {"/dev/shm", WRITE_ALL}, {"/workspace", WRITE_ALL},
        {"/home/user", WRITE_ALL}, {"/tmp", WRITE_ALL}, {"/var/tmp", WRITE_ALL}, {"/run", WRITE_ALL},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(places); i++)
        r = allow(e, ruleset, places[i].path, places[i].access);
    for (unsigned i = 0; r == 0 && i < e->plan->n_binds; i++)
        r = allow(e, ruleset, e->plan->binds[i].target, e->plan->binds[i].read_only ? READ_EXEC : WRITE_ALL);
    for (unsigned i = 0; r == 0 && i < e->plan->n_volumes; i++)
        r = allow(e, ruleset, e->plan->volumes[i].target, e->plan->volumes[i].read_only ? READ_EXEC : WRITE_ALL);
    for (unsigned i = 0; r == 0 && i < e->plan->n_tmpfs; i++)
        r = allow(e, ruleset, e->plan->tmpfs[i].path, WRITE_ALL);
    if (r == 0 && e->plan->new_layer)
        r = allow(e, ruleset, LAYER_VIEW, WRITE_ALL);
    if (r == 0 && e->plan->new_layer)
        r = allow(e, ruleset, "/.brig/layer", READ_EXEC);
    if (r == 0 && e->plan->raw_top)
        r = allow(e, ruleset, "/.brig/upper", READ);
    return r;
}

int enter_landlock(struct enter *e)
{
    const struct jail_plan *p = e->plan;
    unsigned abi = p->landlock_abi;

    if (abi == 0 || plan_off(p, BRIG_LAYER_LANDLOCK))
        return 0;
    struct ruleset_attr attr = {.handled_fs = handled_fs(abi),
                                .scoped = abi >= 6 ? SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL : 0};
    size_t size = abi >= 6 ? sizeof attr : sizeof attr.handled_fs;
    AUTO_FD int ruleset = SYS(sys_landlock_create_ruleset((const struct landlock_ruleset_attr *)&attr, size, 0));

    TRY(e, "ruleset", ruleset);
    int r = allow_template(e, ruleset);
    if (r == 0)
        r = allow_places(e, ruleset);
    if (r < 0)
        return r;
    if (p->init_is_file)
        TRY(e, "brig-init",
            add_rule(ruleset, INIT_FD_EXEC, LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE, abi));
    TRY(e, "restrict_self", SYS(sys_landlock_restrict_self(ruleset)));
    return 0;
}
