/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.c: the second file system boundary. There is one Landlock domain for the whole sandbox: pid 1 enters it and
 * every program inherits it. With a domain per program they could not signal each other.
 *
 * The mount namespace is the first boundary; this one holds if it is ever breached: a path that does not lead up to one
 * of the places below is unreachable, device nodes cannot be made, /proc cannot be written, and (ABI 6) neither
 * abstract sockets nor signals cross the domain. landlock_rules.c has the rights and the places that are the same in
 * every sandbox.
 */
#include "base/fd.h"
#include "jail/landlock_rules.h"
#include "jail/plan.h"
#include "jail/sys.h"

/* Notes what was tried, for the failure report. The primitives return negative errnos. */
static int allow(struct enter *e, int ruleset, const char *path, uint64_t access)
{
    int r = SYS(landlock_allow(ruleset, e->plan->landlock_abi, path, access));

    if (r < 0)
        e->what = path;
    return r;
}

static int allow_template(struct enter *e, int ruleset)
{
    const struct jail_plan *p = e->plan;

    if (p->writable_root || plan_off(p, BRIG_LAYER_ROOT_READONLY))
        return allow(e, ruleset, "/", LANDLOCK_WRITE_ALL);
    if (plan_other_root(p) || plan_off(p, BRIG_LAYER_MOUNT_NS))
        return allow(e, ruleset, "/", LANDLOCK_READ_EXEC);
    int r = allow(e, ruleset, "/", LANDLOCK_ACCESS_FS_READ_DIR);
    for (unsigned i = 0; r == 0 && i < PLAN_LOWER_DIRS && p->lower_dirs[i]; i++)
        r = allow(e, ruleset, p->lower_dirs[i], LANDLOCK_READ_EXEC);
    return r < 0 ? r : allow(e, ruleset, "/etc", LANDLOCK_READ);
}

static int allow_places(struct enter *e, int ruleset)
{
    int r = 0;

    for (size_t i = 0; r == 0 && landlock_places[i].path; i++)
        r = allow(e, ruleset, landlock_places[i].path, landlock_places[i].access);
    for (unsigned i = 0; r == 0 && i < e->plan->n_binds; i++)
        r = allow(e, ruleset, e->plan->binds[i].target,
                  e->plan->binds[i].read_only ? LANDLOCK_READ_EXEC : LANDLOCK_WRITE_ALL);
    for (unsigned i = 0; r == 0 && i < e->plan->n_volumes; i++)
        r = allow(e, ruleset, e->plan->volumes[i].target,
                  e->plan->volumes[i].read_only ? LANDLOCK_READ_EXEC : LANDLOCK_WRITE_ALL);
    for (unsigned i = 0; r == 0 && i < e->plan->n_tmpfs; i++)
        r = allow(e, ruleset, e->plan->tmpfs[i].path, LANDLOCK_WRITE_ALL);
    if (r == 0 && e->plan->new_layer)
        r = allow(e, ruleset, LAYER_VIEW, LANDLOCK_WRITE_ALL);
    if (r == 0 && e->plan->new_layer)
        r = allow(e, ruleset, "/.brig/layer", LANDLOCK_READ_EXEC);
    if (r == 0 && e->plan->raw_top)
        r = allow(e, ruleset, "/.brig/upper", LANDLOCK_READ);
    return r;
}

int enter_landlock(struct enter *e)
{
    const struct jail_plan *p = e->plan;
    unsigned abi = p->landlock_abi;

    if (abi == 0 || plan_off(p, BRIG_LAYER_LANDLOCK))
        return 0;
    AUTO_FD int ruleset = SYS(landlock_ruleset(abi));
    if (ruleset < 0) {
        e->what = "ruleset";
        return take_fd(&ruleset);
    }
    int r = allow_template(e, ruleset);
    if (r == 0)
        r = allow_places(e, ruleset);
    if (r < 0)
        return r;
    if (p->init_is_file) {
        r = SYS(
            landlock_allow_fd(ruleset, abi, INIT_FD_EXEC, LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE));
        e->what = "brig-init";
    }
    if (r == 0) {
        r = SYS(landlock_enter(ruleset));
        e->what = "restrict_self";
    }
    return r;
}
