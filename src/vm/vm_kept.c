/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_kept.c: what the next brigd must know of a virtual machine: one small file per box, named by its id. It is there
 * before anybody is told that the box is up; so a sandbox around a machine that has no such file is nobody's, and is
 * ended as any other orphan. The file does not survive a loss of power, and need not: the machine does not, either.
 */
#include <fcntl.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "vm/vm_private.h"

#define MAGIC UINT64_C(0x31766d6769726276) /* with the version */

struct kept {
    uint64_t magic, size;
    struct vm_facts facts;
};

int vm_keep(const struct vm_box *box, struct brig_err *err)
{
    const struct kept kept = {.magic = MAGIC, .size = sizeof kept, .facts = box->facts};
    AUTO_FD int fd = openat(box->vm->kept_dir_fd, box->id, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || fd_write_all(fd, &kept, sizeof kept) < 0)
        return err_host(err, "the file of the virtual machine %s", box->id);
    return 0;
}

void vm_forget(const struct vm_box *box)
{
    if (box->id[0])
        (void)!unlinkat(box->vm->kept_dir_fd, box->id, 0);
}

int vm_recall(int dir_fd, const char *id, struct vm_facts *ret)
{
    struct kept kept;
    AUTO_FD int fd = openat(dir_fd, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (read(fd, &kept, sizeof kept) != (ssize_t)sizeof kept || kept.magic != MAGIC || kept.size != sizeof kept)
        return -EPROTO;
    *ret = kept.facts;
    return 0;
}
