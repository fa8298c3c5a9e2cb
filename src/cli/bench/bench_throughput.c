/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_throughput.c: measures how much speed a program loses inside a sandbox. The loops of this very program run in a
 * sandbox (through a bind of its file) and outside, in turn, and their speeds are compared. The file loop runs on
 * either kind of store, memory and (for a run that asks for disk) an ext4 image on a loop device; the outside gets the
 * same kind.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/err.h"
#include "cli/bench/bench.h"

#define INSIDE_PATH "/workspace/brig"

struct subject {
    const char *name;
    enum bench_loop loop;
    uint64_t disk; /* asked for: the store is an image */
    double floor;  /* 0: reported only */
};

static const struct subject subjects[] = {
    {"cpu", LOOP_CPU, 0, 0.97},     {"getppid", LOOP_GETPPID, 0, 0.90},
    {"pread", LOOP_PREAD, 0, 0},    {"checked", LOOP_CHECKED, 0, 0.65},
    {"files", LOOP_FILES, 0, 0.85}, {"files on disk", LOOP_FILES, 256 << 20, 0.85},
};

/* "OPERATIONS NANOSECONDS" -> operations per second, or -1. */
static double parse_speed(const char *text, size_t len)
{
    char copy[64], *end = NULL;
    if (len == 0 || len >= sizeof(copy))
        return -1;
    memcpy(copy, text, len);
    copy[len] = '\0';
    double operations = strtod(copy, &end);
    double ns = end && *end == ' ' ? strtod(end, NULL) : 0;
    return ns > 0 ? operations * 1e9 / ns : -1;
}

/* One loop that is measured inside and outside. */
struct pair {
    struct bench *bench;
    struct brig_engine *engine;
    const struct subject *subject;
    int dir_fd; /* where the outside writes; -1: nowhere */
};

static int run_outside(const void *ctx, double *ret, struct brig_err *err)
{
    const struct pair *pair = ctx;
    const char *loop = bench_loop_names[pair->subject->loop];
    const char *const argv[] = {pair->bench->self, "bench", "--loop", loop, NULL};
    struct buf out = BUF_INIT(4096);
    int status = bench_spawn_output(argv, pair->dir_fd, &out);
    *ret = status == 0 && out.len > 0 ? parse_speed(out.data, out.len) : -1;
    int r = *ret > 0 ? 0 : err_set(err, BRIG_E_HOST, 0, "loop %s outside: %.100s", loop, out.len > 0 ? out.data : "");
    buf_done(&out);
    return r;
}

/* ret_image may be NULL. */
static int run_seeing(const struct pair *pair, double *ret, bool *ret_image, struct brig_err *err)
{
    const char *loop = bench_loop_names[pair->subject->loop];
    const char *const argv[] = {INSIDE_PATH, "bench", "--loop", loop, NULL};
    const struct brig_bind bind = {.source = pair->bench->self, .target = INSIDE_PATH, .read_only = true};
    const struct brig_spec spec = {
        .size = sizeof(spec),
        .argv = argv,
        .flags = BRIG_RUN_KEEP_OUTPUT,
        .limits = {.disk = pair->subject->disk},
        .binds = &bind,
        .n_binds = 1,
    };
    struct brig_run *run = NULL;
    int r = brig_run_start(pair->engine, &spec, &run, err);
    if (r == 0)
        r = brig_run_wait(run, err);
    if (r == 0)
        r = bench_check(run, err);
    if (r == 0) {
        const struct brig_receipt *receipt = brig_run_receipt(run);
        *ret = parse_speed(receipt->output[BRIG_STDOUT], receipt->output_len[BRIG_STDOUT]);
        if (ret_image)
            *ret_image = strstr(receipt->layers[BRIG_LAYER_DISK].by, "image") != NULL;
        if (*ret <= 0)
            r = err_set(err, BRIG_E_HOST, 0, "loop %s inside said nothing", loop);
    }
    brig_run_destroy(run);
    return r;
}

static int run_inside(const void *ctx, double *ret, struct brig_err *err)
{
    return run_seeing(ctx, ret, NULL, err);
}

/* An ext4 image made and mounted as the store's is, and at once detached: the descriptor alone keeps it, and closing
 * it ends it all. */
static int open_image(void)
{
    static const char script[] =
        "set -e; truncate -s 256M \"$1/image\"; mkdir \"$1/mnt\";"
        "mkfs.ext4 -q -F -b 4096 -I 256 -m 0 -O ^has_journal,^resize_inode,^metadata_csum,^64bit,uninit_bg,"
        "sparse_super2,encrypt"
        " -E num_backup_sb=0,lazy_itable_init=1 \"$1/image\";"
        "mount -o loop,nosuid,nodev,noatime,nobarrier,noinit_itable \"$1/image\" \"$1/mnt\"";
    char directory[64], mount_point[96];
    if (bench_make_directory(directory, sizeof(directory)) < 0)
        return -1;
    snprintf(mount_point, sizeof(mount_point), "%s/mnt", directory);
    const char *const make[] = {"sh", "-c", script, "sh", directory, NULL};
    const char *const detach[] = {"umount", "-l", mount_point, NULL};
    int fd = -1;
    if (bench_spawn(make, NULL) == 0) {
        fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (bench_spawn(detach, NULL) != 0)
            bench_say("%s could not be unmounted", mount_point);
    }
    bench_remove_directory(directory);
    return fd;
}

static int open_tmpfs(void)
{
    struct statfs fs;
    AUTO_FD int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC ? take_fd(&fd) : -1;
}

/* The directory for the outside half of a file loop; -1 where none is needed. False: skipped, with a reason. */
static bool open_outside(struct bench *bench, const struct subject *subject, bool image, int *ret_fd)
{
    *ret_fd = -1;
    if (subject->loop != LOOP_FILES)
        return true;
    if (subject->disk > 0 && !image)
        return bench_skip(bench, subject->name, "no image for the store of a sandbox here; see brig doctor"), false;
    *ret_fd = image ? open_image() : open_tmpfs();
    if (*ret_fd < 0)
        bench_skip(bench, subject->name, "no %s outside", image ? "ext4 image could be mounted" : "tmpfs on /dev/shm");
    return *ret_fd >= 0;
}

static int measure(struct bench *bench, struct brig_engine *engine, const struct subject *subject, struct brig_err *err)
{
    char inside[40], outside[40];
    AUTO_FD int dir_fd = -1;
    struct pair pair = {bench, engine, subject, -1};
    double speed = 0;
    bool image = false;
    int r = run_seeing(&pair, &speed, &image, err);
    if (r < 0 || !open_outside(bench, subject, image, &dir_fd))
        return r;
    pair.dir_fd = dir_fd;
    snprintf(inside, sizeof(inside), "%s, inside", subject->name);
    snprintf(outside, sizeof(outside), "%s, outside", subject->name);
    const struct bench_turns turns = {
        .unit = "ops/s",
        .n = 2,
        .sides = {{inside, run_inside, &pair, .against = 2, .bound = subject->floor, .at_least = true},
                  {.name = outside, .measure = run_outside, .ctx = &pair}}};
    bench_say("throughput: %s, %llu times inside and outside", subject->name, (unsigned long long)bench->runs);
    return bench_take_turns(bench, &turns, err);
}

int bench_throughput(struct bench *bench, struct brig_err *err)
{
    struct brig_engine *engine = NULL;
    int r = bench_engine(0, &engine, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(subjects); i++)
        r = measure(bench, engine, &subjects[i], err);
    brig_engine_destroy(engine);
    return r;
}
