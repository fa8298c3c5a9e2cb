/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sudo_place.c: the program sudo of a sandbox that has it: brig-init's own file, at SUDO_PLACE.
 *
 * It lies in the layer that the set-up makes of each root, above the template and below the upper. So it belongs to the
 * sandbox's root, can be removed or replaced like any file, and is never written to the store: neither a snapshot nor
 * a template that is made of the sandbox has it, and a volume that is mounted over its directory does not get it.
 *
 * A directory of our layer would hide a link of the template. So if there is a link on the way the set-up ends here.
 */
#include <fcntl.h>
#include <sys/sendfile.h>

#include "base/fd.h"
#include "codec/sudo_args.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define PIECE (1u << 20)

/* Reads at an offset of its own: the descriptor is shared with other set-ups. */
static int copy_all(int from, int to)
{
    off_t at = 0;
    ssize_t n;

    do {
        n = RETRY(sendfile(to, from, &at, PIECE));
    } while (n > 0);
    return n < 0 || at == 0 ? -1 : 0;
}

int enter_sudo(struct enter *e, int template_root)
{
    const char *place = &SUDO_PLACE[1];

    if (!e->plan->sudo)
        return 0;
    AUTO_FD int dir = SYS(sys_openat2(template_root, SUDO_DIR, O_PATH | O_DIRECTORY, 0,
                                      RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS));
    if (dir < 0 && errno != ENOENT)
        TRY(e, "sudo: /usr/local/bin of the template", -1);
    TRY(e, SUDO_PLACE, mount_make_target(e->root_fd, place, false));
    AUTO_FD int to = SYS(openat(e->root_fd, place, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
    TRY(e, SUDO_PLACE, to);
    TRY(e, SUDO_PLACE, copy_all(e->plan->init_fd, to));
    TRY(e, SUDO_PLACE, SYS(fchmod(to, 0755)));
    return 0;
}
