/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initrd.c: writes the initramfs of a virtual machine: an archive of cpio's "newc" format (the kernel's
 * Documentation/driver-api/early-userspace/buffer-format.rst) with brig-boot as /init, brig-init where the root will
 * have it, and the kernel's modules in the order in which they are loaded. A module that the kernel's package does not
 * have is built into the kernel.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "vm/vm.h"

#define FILE_MAX_BYTES (64u << 20)
#define ORDER_MAX (1u << 20)

static const char *const modules[] = {"virtio_ring", "virtio",         "virtio_mmio",  "virtio_console",
                                      "virtio_blk",  "crc32c_generic", "libcrc32c",    "erofs",
                                      "overlay",     "failover",       "net_failover", "virtio_net"};

/* For a machine that is reached by its vsock. */
static const char *const vsock_modules[] = {"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport",
                                            "rng-core", "virtio-rng"};

struct cpio {
    int fd;
    unsigned inode;
    int r; /* the first failure */
};

static void put(struct cpio *cpio, const void *data, size_t len)
{
    if (cpio->r == 0)
        cpio->r = fd_write_all(cpio->fd, data, len);
}

static void pad(struct cpio *cpio, size_t len)
{
    put(cpio, "\0\0\0", (4 - len % 4) % 4);
}

static void entry(struct cpio *cpio, const char *name, unsigned mode, const void *data, size_t len)
{
    char head[111];
    size_t name_len = strlen(name) + 1;
    /* The device is that of /dev/console; it means nothing for other files. */
    int n = snprintf(head, sizeof head, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ++cpio->inode,
                     mode, 0u, 0u, S_ISDIR(mode) ? 2u : 1u, 0u, (unsigned)len, 0u, 0u, S_ISCHR(mode) ? 5u : 0u,
                     S_ISCHR(mode) ? 1u : 0u, (unsigned)name_len, 0u);

    put(cpio, head, (size_t)n);
    put(cpio, name, name_len);
    pad(cpio, (size_t)n + name_len);
    put(cpio, data, len);
    pad(cpio, len);
}

static int read_file(const char *path, size_t max, struct buf *out, struct brig_err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_host(err, "%s", path);
    *out = BUF_INIT(max + 1);
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return err_set(err, BRIG_E_LIMIT, EFBIG, "%s: more than %zu bytes", path, max);
    if (buf_reserve(out, (size_t)st.st_size + 1) < 0)
        return err_nomem(err);
    ssize_t n = fd_read_all(fd, out->data, (size_t)st.st_size + 1);
    if (n != st.st_size)
        return err_set(err, BRIG_E_HOST, n < 0 ? (int)-n : EIO, "%s", path);
    buf_commit(out, (size_t)n);
    return 0;
}

static int put_file(struct cpio *cpio, const char *name, const char *path, unsigned mode, struct brig_err *err)
{
    AUTO_BUF struct buf data = {0};
    int r = read_file(path, FILE_MAX_BYTES, &data, err);

    if (r == 0)
        entry(cpio, name, S_IFREG | mode, data.data, data.len);
    return r;
}

/* The line of modules.order that is this module's: "kernel/drivers/virtio/virtio.ko". Returns its length, or 0. */
static size_t find_module(const struct buf *order, const char *name, const char **ret)
{
    size_t want = strlen(name);

    for (const char *line = order->data, *end = order->data + order->len; line && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        const char *base = memrchr(line, '/', (size_t)(stop - line));
        base = base ? base + 1 : line;
        if ((size_t)(stop - base) == want + 3 && memcmp(base, name, want) == 0 && memcmp(base + want, ".ko", 3) == 0) {
            *ret = line;
            return (size_t)(stop - line);
        }
        line = stop + 1;
    }
    return 0;
}

static int put_module(struct cpio *cpio, const char *dir, const struct buf *order, const char *module, struct buf *list,
                      struct brig_err *err)
{
    const char *line = NULL;
    size_t len = find_module(order, module, &line);
    char path[4096], name[64];

    if (len == 0)
        return 0;
    if (str_format(path, sizeof path, "%s/%.*s", dir, (int)len, line) < 0 ||
        str_format(name, sizeof name, "modules/%s.ko", module) < 0)
        return err_usage(err, "%s: too long", dir);
    int r = put_file(cpio, name, path, 0644, err);
    return r == 0 && buf_printf(list, "%s.ko\n", module) < 0 ? err_nomem(err) : r;
}

static int put_modules(struct cpio *cpio, const char *dir, bool vsock, struct brig_err *err)
{
    AUTO_BUF struct buf order = {0};
    AUTO_BUF struct buf list = BUF_INIT(4096);
    char path[4096];
    int r = str_format(path, sizeof path, "%s/modules.order", dir);

    r = r < 0 ? err_usage(err, "%s: too long", dir) : read_file(path, ORDER_MAX, &order, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(modules); i++)
        r = put_module(cpio, dir, &order, modules[i], &list, err);
    for (size_t i = 0; r == 0 && vsock && i < ARRAY_SIZE(vsock_modules); i++)
        r = put_module(cpio, dir, &order, vsock_modules[i], &list, err);
    if (r == 0)
        entry(cpio, "modules/order", S_IFREG | 0644, list.data, list.len);
    return r;
}

static int put_all(struct cpio *cpio, const char *modules_dir, const char *programs, bool vsock, struct brig_err *err)
{
    static const char *const dirs[] = {"dev", "proc", "tmp", "run", "workspace", "skel", "modules", "skel/.brig"};
    char boot[4096], init[4096];

    if (str_format(boot, sizeof boot, "%s/brig-boot", programs) < 0 ||
        str_format(init, sizeof init, "%s/brig-init", programs) < 0)
        return err_usage(err, "%s: too long", programs);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        entry(cpio, dirs[i], S_IFDIR | 0755, NULL, 0);
    entry(cpio, "dev/console", S_IFCHR | 0600, NULL, 0);
    int r = put_file(cpio, "init", boot, 0755, err);
    if (r == 0)
        r = put_file(cpio, "skel/.brig/init", init, 0755, err);
    if (r == 0)
        r = put_modules(cpio, modules_dir, vsock, err);
    entry(cpio, "TRAILER!!!", 0, NULL, 0);
    return r;
}

int vm_initrd_make(const char *kernel, const char *programs, bool vsock, const char *out, struct brig_err *err)
{
    static const char prefix[] = "/boot/vmlinuz-";
    const char *at = strstr(kernel, prefix);
    char dir[4096], fresh[4096];
    struct cpio cpio = {.fd = -1};

    if (!at || strchr(at + strlen(prefix), '/'))
        return err_usage(err, "[vm] kernel %s: must be .../boot/vmlinuz-VERSION", kernel);
    if (str_format(dir, sizeof dir, "%.*s/lib/modules/%s", (int)(at - kernel), kernel, at + strlen(prefix)) < 0 ||
        str_format(fresh, sizeof fresh, "%s.new", out) < 0)
        return err_usage(err, "[vm] kernel %s: too long", kernel);
    AUTO_FD int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_host(err, "%s", fresh);
    cpio.fd = fd;
    int r = put_all(&cpio, dir, programs, vsock, err);
    if (r == 0 && cpio.r < 0)
        r = err_set(err, BRIG_E_HOST, -cpio.r, "%s", fresh);
    if (r == 0 && (fchmod(fd, 0644) < 0 || rename(fresh, out) < 0))
        r = err_host(err, "%s", out);
    if (r < 0)
        (void)!unlink(fresh);
    return r;
}
