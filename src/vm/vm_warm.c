/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_warm.c: the snapshots that machines are started from.
 *
 * Theory of operation. A machine that waits for its words (guest/boot/boot_words.c) has nothing of a sandbox in it.
 * When a machine has booted cold, one more of its shape is booted in the background, saved when it waits
 * (vm_template.c), and ended. Later machines of that shape begin with a copy of what was saved; the words that they get
 * then have the time, random bytes and names of their own.
 *
 *     (none) --a machine came up cold--> MAKING --saved--> READY --too many, stale, or one did not come up--> gone
 *                                           \--did not work--> FAILED, which is not tried again
 *
 * The shape is what cannot change in a saved machine: its memory, whether it has a card, and the very files that it was
 * booted from: image, kernel, initramfs and monitor, by inode, size and times. A snapshot of other files is stale. The
 * directory is emptied at the start of the service, so nothing is ever loaded that another brig, another boot of the
 * host or another command line has saved. At most `max` snapshots of BYTES_MAX together are kept, the last used ones.
 * A file is removed only when no sandbox is being made with it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "vm/vm_private.h"

#define BYTES_MAX (UINT64_C(2) << 30)
#define FAILED_MAX 64u
#define NAME_SIZE 24u

enum snapshot_state { SNAPSHOT_MAKING, SNAPSHOT_READY, SNAPSHOT_FAILED, SNAPSHOT_GONE };

struct vm_snapshot {
    struct vm_snapshot *next, *prev;
    struct vm *vm;
    enum snapshot_state state;
    struct vm_shape shape;
    uint64_t bytes;
    unsigned users; /* machines that are being made from it, or the one that makes it */
    char name[NAME_SIZE];
    char *path;
};

/* ---- shapes ------------------------------------------------------------------------------------------- */

static int shape_of(const struct vm *vm, const struct vm_facts *facts, struct vm_shape *ret)
{
    const char *const files[VM_SHAPE_FILES] = {vm->root, vm->kernel, vm->initrd, vm->program};

    *ret = (struct vm_shape){.memory = facts->limits.memory, .network = facts->network};
    for (size_t i = 0; i < VM_SHAPE_FILES; i++) {
        struct stat st;
        if (stat(files[i], &st) < 0)
            return -errno;
        ret->files[i] =
            (struct vm_file){.device = st.st_dev,
                             .inode = st.st_ino,
                             .size = (uint64_t)st.st_size,
                             .modified_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_SEC + (uint64_t)st.st_mtim.tv_nsec,
                             .changed_ns = (uint64_t)st.st_ctim.tv_sec * NS_PER_SEC + (uint64_t)st.st_ctim.tv_nsec};
    }
    return 0;
}

/* ---- the list: the last used one is the first --------------------------------------------------------- */

static void snapshot_free(struct vm_snapshot *snapshot)
{
    (void)!unlinkat(snapshot->vm->warm.dir_fd, snapshot->name, 0);
    mem_free(snapshot->path);
    mem_free(snapshot);
}

static void drop(struct vm_snapshot *snapshot)
{
    list_remove(&snapshot->vm->warm.list, snapshot);
    snapshot->state = SNAPSHOT_GONE;
    if (snapshot->users == 0)
        snapshot_free(snapshot);
}

static void release(struct vm_snapshot *snapshot)
{
    if (--snapshot->users == 0 && snapshot->state == SNAPSHOT_GONE)
        snapshot_free(snapshot);
}

/* Returns the one of this shape, whatever its state. Those of other files are dropped. */
static struct vm_snapshot *find(struct vm *vm, const struct vm_shape *shape)
{
    struct vm_snapshot *found = NULL, *next;

    for (struct vm_snapshot *it = vm->warm.list; it; it = next) {
        next = it->next;
        if (memcmp(&it->shape, shape, sizeof *shape) == 0)
            found = it;
        else if (it->state != SNAPSHOT_MAKING && memcmp(it->shape.files, shape->files, sizeof shape->files) != 0)
            drop(it);
    }
    return found;
}

/* Nothing is being made now. Those that failed have no file, and do not count as snapshots. */
static void keep_within_bounds(struct vm *vm)
{
    uint64_t bytes = 0;
    unsigned ready = 0, failed = 0;
    struct vm_snapshot *next;

    for (struct vm_snapshot *it = vm->warm.list; it; it = next) {
        next = it->next;
        if (it->state == SNAPSHOT_FAILED ? ++failed > FAILED_MAX
                                         : ++ready > vm->warm.max || bytes + it->bytes > BYTES_MAX)
            drop(it);
        else
            bytes += it->bytes;
    }
}

static struct vm_snapshot *snapshot_add(struct vm *vm, const struct vm_shape *shape)
{
    struct vm_snapshot *it = mem_zalloc(sizeof *it);
    char path[4096];

    if (!it)
        return NULL;
    *it = (struct vm_snapshot){.vm = vm, .state = SNAPSHOT_MAKING, .shape = *shape, .users = 1};
    if (str_format(it->name, sizeof it->name, "%" PRIu64, ++vm->warm.last) < 0 ||
        str_format(path, sizeof path, "%s/%s", vm->warm.dir, it->name) < 0 || !(it->path = mem_strdup(path))) {
        mem_free(it);
        return NULL;
    }
    list_push(&vm->warm.list, it);
    return it;
}

/* ---- machines from it --------------------------------------------------------------------------------- */

void vm_warm_take(struct vm_box *box)
{
    struct vm *vm = box->vm;
    struct vm_shape shape;
    struct vm_snapshot *found = NULL;

    if (vm->warm.max > 0 && vm->monitor->line && shape_of(vm, &box->facts, &shape) == 0)
        found = find(vm, &shape);
    if (!found || found->state != SNAPSHOT_READY)
        return;
    list_remove(&vm->warm.list, found);
    list_push(&vm->warm.list, found);
    found->users++;
    box->from = found;
}

void vm_warm_release(struct vm_box *box, bool failed)
{
    struct vm_snapshot *from = take_ptr(&box->from);

    if (!from)
        return;
    if (failed && from->state == SNAPSHOT_READY)
        drop(from);
    release(from);
}

const char *vm_warm_path(const struct vm_snapshot *snapshot)
{
    return snapshot->path;
}

/* ---- making one --------------------------------------------------------------------------------------- */

/* The sandbox's user, whom the host does not know, writes to it; nobody else can enter the directory. */
static int make_file(const struct vm_snapshot *snapshot)
{
    AUTO_FD int fd =
        openat(snapshot->vm->warm.dir_fd, snapshot->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 || fchmod(fd, 0666) < 0 ? -errno : 0;
}

void vm_warm_want(struct vm *vm, const struct vm_facts *facts)
{
    const struct vm_facts empty = {.limits = {.memory = facts->limits.memory, .cpus = facts->limits.cpus},
                                   .network = facts->network};
    struct vm_shape shape;

    if (vm->warm.max == 0 || !vm->monitor->line || vm->warm.making || shape_of(vm, facts, &shape) < 0 ||
        find(vm, &shape))
        return;
    struct vm_snapshot *snapshot = snapshot_add(vm, &shape);
    if (!snapshot)
        return;
    vm->warm.making = snapshot;
    if (make_file(snapshot) < 0 || vm_template_create(vm, snapshot, &empty) < 0)
        vm_warm_made(snapshot, false);
}

static bool seal_file(struct vm_snapshot *snapshot)
{
    AUTO_FD int fd = openat(snapshot->vm->warm.dir_fd, snapshot->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fchmod(fd, 0444) < 0 || fstat(fd, &st) < 0 || st.st_size <= 0)
        return false;
    snapshot->bytes = (uint64_t)st.st_size;
    return true;
}

void vm_warm_made(struct vm_snapshot *snapshot, bool saved)
{
    struct vm *vm = snapshot->vm;

    if (saved && seal_file(snapshot)) {
        snapshot->state = SNAPSHOT_READY;
    } else {
        snapshot->state = SNAPSHOT_FAILED; /* It stays in the list, without its file. */
        (void)!unlinkat(vm->warm.dir_fd, snapshot->name, 0);
    }
    vm->warm.making = NULL;
    release(snapshot);
    keep_within_bounds(vm);
}

/* ----------------------------------------------------------------------------------------------------- */

void vm_warm_init(struct vm *vm)
{
    AUTO_DIR DIR *dir = vm->warm.max > 0 ? dir_open(vm->warm.dir_fd, ".") : NULL;
    const struct dirent *entry;

    while (dir && (entry = dir_next(dir)))
        (void)!unlinkat(vm->warm.dir_fd, entry->d_name, 0);
}

void vm_warm_done(struct vm *vm)
{
    while (vm->warm.list) {
        vm->warm.list->users = 0;
        drop(vm->warm.list);
    }
    base_close_fd(&vm->warm.dir_fd);
    mem_free(vm->warm.dir);
}
