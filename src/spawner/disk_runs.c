/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_runs.c: the disks of live sandboxes: who uses which, and the devices that a new sandbox mounts them from. Only
 * one sandbox writes to a disk, and then nobody else reads it: two mounts of one file system would destroy it.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

bool run_uses_disk(const struct run_spec *run, const char *name, bool *ret_writes)
{
    if (run->disk && str_eq(run->disk, name)) {
        *ret_writes = true;
        return true;
    }
    for (unsigned i = 0; i < run->n_volumes; i++)
        if (str_eq(run->volumes[i].disk, name)) {
            *ret_writes = !run->volumes[i].read_only;
            return true;
        }
    return false;
}

struct disk_users disk_users(const struct spawner *spawner, const char *name)
{
    struct disk_users users = {.who = ""};
    bool writes;

    for (int state = 0; state < SANDBOX_STATE_MAX; state++)
        for (const struct sandbox *s = spawner->lists[state]; s; s = s->next)
            if (s->run && run_uses_disk(s->run, name, &writes)) {
                users.writers += writes;
                users.readers += !writes;
                users.who = s->id;
            }
    return users;
}

static int attach(struct sandbox *s, const char *name, bool read_only, struct image *ret, struct brig_err *err)
{
    AUTO_FD int file = disk_open(&s->spawner->host.disks, name, read_only, err);

    return file < 0 ? file : image_attach(&s->spawner->host, file, read_only, ret, err);
}

int disks_attach(struct sandbox *s, const struct run_spec *run, struct brig_err *err)
{
    int r = run->disk ? attach(s, run->disk, false, &s->image, err) : 0;

    for (unsigned i = 0; r == 0 && i < run->n_volumes; i++)
        r = attach(s, run->volumes[i].disk, run->volumes[i].read_only, &s->volumes[i], err);
    return r;
}

void disks_release(struct sandbox *s)
{
    image_release(&s->image);
    for (size_t i = 0; i < ARRAY_SIZE(s->volumes); i++)
        image_release(&s->volumes[i]);
}
