/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c: fills in and checks the limits of a run (limits.h). brig-run(1) promises these numbers. */
#include "host/limits.h"

#include <inttypes.h>
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/str.h"
#include "jail/image_shape.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

bool limits_want_image(const struct brig_limits *asked, bool writable_root)
{
    return asked->disk || asked->io_read_bps || asked->io_write_bps || writable_root;
}

void limits_fill(struct brig_limits *l, bool image)
{
    if (!l->memory)
        l->memory = 512 * MIB;
    if (!l->cpus)
        l->cpus = 1000;
    if (!l->pids)
        l->pids = 128;
    if (!l->disk)
        l->disk = image ? GIB : l->memory / 2 & ~(uint64_t)4095;
    if (!l->inodes) {
        uint64_t fits = l->disk / 16384; /* as mkfs.ext4 would */
        l->inodes = fits > 65536 ? 65536 : fits < 1024 ? 1024 : fits;
    }
    if (!l->open_files)
        l->open_files = 1024;
    if (!l->timeout)
        l->timeout = 300 * 1000;
    if (!l->output)
        l->output = 10 * MIB;
}

int limits_check(const struct brig_limits *l, struct brig_err *err)
{
    const struct {
        enum brig_limit limit;
        uint64_t value, min, max;
        bool optional;
    } rules[] = {
        {BRIG_LIMIT_MEMORY, l->memory, 4 * MIB, UINT64_C(1) << 46, false},
        {BRIG_LIMIT_CPUS, l->cpus, 10, 4096 * 1000, false},
        {BRIG_LIMIT_CPU_TIME, l->cpu_time, 1, UINT64_C(1) << 42, true},
        {BRIG_LIMIT_PIDS, l->pids, 1, 1 << 22, false},
        {BRIG_LIMIT_DISK, l->disk, 1 * MIB, UINT64_C(1) << 43, false},
        {BRIG_LIMIT_INODES, l->inodes, 64, UINT32_MAX / 2, false},
        {BRIG_LIMIT_OPEN_FILES, l->open_files, 16, 1 << 20, false},
        {BRIG_LIMIT_FILE_SIZE, l->file_size, 1, UINT64_C(1) << 62, true},
        {BRIG_LIMIT_IO_READ_BPS, l->io_read_bps, 4096, UINT64_C(1) << 50, true},
        {BRIG_LIMIT_IO_WRITE_BPS, l->io_write_bps, 4096, UINT64_C(1) << 50, true},
        {BRIG_LIMIT_TIMEOUT, l->timeout, 1, UINT64_C(1) << 42, false},
        {BRIG_LIMIT_OUTPUT, l->output, 1, UINT64_C(1) << 40, false},
        {BRIG_LIMIT_NET_BYTES_IN, l->net_bytes_in, 1, UINT64_C(1) << 62, true},
        {BRIG_LIMIT_NET_BYTES_OUT, l->net_bytes_out, 1, UINT64_C(1) << 62, true},
        {BRIG_LIMIT_NET_BPS, l->net_bps, 1024, UINT64_C(1) << 40, true},
        {BRIG_LIMIT_CONNECTIONS, l->connections, 1, 1 << 16, true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        if (rules[i].optional && rules[i].value == 0)
            continue;
        if (rules[i].value < rules[i].min || rules[i].value > rules[i].max)
            return err_usage(err, "%s %" PRIu64 ": must be between %" PRIu64 " and %" PRIu64,
                             brig_limit_name(rules[i].limit), rules[i].value, rules[i].min, rules[i].max);
    }
    return 0;
}

int limits_check_image(const struct brig_limits *l, struct brig_err *err)
{
    struct image_shape shape;

    image_shape(l->disk, l->inodes, &shape);
    uint64_t least = IMAGE_INODES_PER_BLOCK * shape.groups; /* one block of inodes in every group of blocks */
    if (l->inodes < least)
        return err_usage(err, "inodes %" PRIu64 ": disk %" PRIu64 " needs at least %" PRIu64, l->inodes, l->disk,
                         least);
    /*
     * This is stricter than mkfs.ext4, which also makes stores with one inode per 32 bytes of disk. An inode has 256
     * bytes, and their table lies beside `disk`; so a store takes at most half as much again of the host's disk.
     */
    if (l->inodes > l->disk / 512)
        return err_usage(err, "inodes %" PRIu64 ": more than disk %" PRIu64 " has room for, at most %" PRIu64,
                         l->inodes, l->disk, l->disk / 512);
    return 0;
}

int limits_check_memory_store(const struct brig_limits *l, struct brig_err *err)
{
    if (l->disk > l->memory / 2)
        return err_usage(err,
                         "disk %" PRIu64 ": the store is memory-backed here, so at most half of memory (%" PRIu64 ")",
                         l->disk, l->memory / 2);
    return 0;
}

/* Whose first part is `name`, however many slashes and dots stand before it. */
static bool is_in_top(const char *path, const char *name)
{
    size_t len = strlen(name);

    while (path[0] == '/' || (path[0] == '.' && (path[1] == '/' || path[1] == '\0')))
        path++;
    return strncmp(path, name, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

int check_inside_path(const char *what, const char *path, struct brig_err *err)
{
    static const char *const kernel[] = {"proc", "dev", "sys"};

    if (path[0] != '/')
        return err_usage(err, "%s %s: must be absolute", what, path);
    if (strlen(path) > 1023)
        return err_usage(err, "%s %.32s...: longer than 1023 bytes", what, path);
    for (const unsigned char *p = (const unsigned char *)path; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return err_usage(err, "%s %s: must not hold control bytes", what, path);
    for (const char *p = path; (p = strstr(p, "/..")) != NULL; p += 3)
        if (p[3] == '/' || p[3] == '\0')
            return err_usage(err, "%s %s: must not hold \"..\"", what, path);
    for (size_t i = 0; i < ARRAY_SIZE(kernel); i++)
        if (is_in_top(path, kernel[i]))
            return err_usage(err, "%s %s: must not be in /%s", what, path, kernel[i]);
    return 0;
}

int check_mount_target(const char *what, const char *path, struct brig_err *err)
{
    static const char *const taken[] = {"/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"};
    int r = check_inside_path(what, path, err);

    if (r < 0)
        return r;
    size_t len = strlen(path);
    if (strstr(path, "//") || strstr(path, "/./") || (len > 1 && path[len - 1] == '/') ||
        (len > 1 && strcmp(path + len - 2, "/.") == 0))
        return err_usage(err, "%s %s: must be written plainly, without empty or \".\" parts", what, path);
    /* What brig itself runs in a sandbox that makes a layer lies there. */
    if (is_in_top(path, ".brig"))
        return err_usage(err, "%s %s: must not be in /.brig, which is brig's own", what, path);
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        if (strcmp(path, taken[i]) == 0)
            return err_usage(err, "%s %s: the sandbox's own %s cannot be replaced", what, path, taken[i]);
    return 0;
}

int check_name(const char *name, struct brig_err *err)
{
    if (!str_is_name(name, 63, ASCII_ALNUM, ASCII_ALNUM "_.-"))
        return err_usage(err, "name %s: must be 1 to 63 of [A-Za-z0-9_.-], starting with a letter or digit", name);
    return 0;
}
