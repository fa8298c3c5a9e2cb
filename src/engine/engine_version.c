/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_version.c: says which build this is. Version and commit come from the build system (version.h, made by meson).
 */
#include <brig.h>

#include "codec/wire/frame.h"
#include "version.h"

const char *brig_version(void)
{
    return BRIG_VERSION;
}

const char *brig_commit(void)
{
    return BRIG_COMMIT;
}

const char *brig_features(void)
{
    return "root rootless cgroup-v1 cgroup-v2 seccomp landlock ext4-store idmap pty pool";
}

unsigned brig_protocol(void)
{
    return FRAME_VERSION;
}
