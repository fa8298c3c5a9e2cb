/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_throughput.c: what a program loses inside. The loops of this very program run in a sandbox (through a
 * bind of its file) and outside, in turn, and their speeds are compared. For the file loop the outside gets
 * the same kind of file system as the sandbox's store: an ext4 image on a loop device, or a tmpfs.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "cli/bench.h"

#define INSIDE_PATH "/workspace/brig"

static const struct {
    double floor; /* 0: reported only */
} promises[LOOP_MAX] = {
    [LOOP_CPU] = {0.97}, [LOOP_GETPPID] = {0.90}, [LOOP_PREAD] = {0}, [LOOP_CHECKED] = {0.65}, [LOOP_FILES] = {0.85},
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

static int run_outside(struct bench *bench, const char *loop, int dir_fd, double *ret, struct brig_err *err)
{
    const char *const argv[] = {bench->self, "bench", "--loop", loop, NULL};
    struct buf out = BUF_INIT(4096);
    int status = bench_spawn_output(argv, dir_fd, &out);
    *ret = status == 0 && out.len > 0 ? parse_speed(out.data, out.len) : -1;
    int r = *ret > 0 ? 0 : err_set(err, BRIG_E_HOST, 0, "loop %s outside: %.100s", loop, out.len > 0 ? out.data : "");
    buf_done(&out);
    return r;
}

static int run_inside(struct brig_engine *engine, struct bench *bench, const char *loop, double *ret, bool *ret_image,
                      struct brig_err *err)
{
    const char *const argv[] = {INSIDE_PATH, "bench", "--loop", loop, NULL};
    const struct brig_bind bind = {.source = bench->self, .target = INSIDE_PATH, .read_only = true};
    const struct brig_spec spec = {
        .size = sizeof(spec),
        .argv = argv,
        .flags = BRIG_RUN_KEEP_OUTPUT,
        .binds = &bind,
        .n_binds = 1,
    };
    struct brig_run *run = NULL;
    int r = brig_run_start(engine, &spec, &run, err);
    if (r == 0)
        r = brig_run_wait(run, err);
    if (r == 0)
        r = bench_check(run, err);
    if (r == 0) {
        const struct brig_receipt *receipt = brig_run_receipt(run);
        *ret = parse_speed(receipt->output[BRIG_STDOUT], receipt->output_len[BRIG_STDOUT]);
        *ret_image = strstr(receipt->layers[BRIG_LAYER_DISK].by, "image") != NULL;
        if (*ret <= 0)
            r = err_set(err, BRIG_E_HOST, 0, "loop %s inside said nothing", loop);
    }
    brig_run_destroy(run);
    return r;
}

/* An ext4 image made as the store's is, mounted and at once detached: the descriptor alone keeps it, and
 * closing it ends it all. */
static int open_image(void)
{
    static const char script[] =
        "set -e; truncate -s 1G \"$1/image\"; mkdir \"$1/mnt\";"
        "mkfs.ext4 -q -F -m 0 -N 65536 -O ^has_journal,^resize_inode,^metadata_csum,^64bit,uninit_bg,sparse_super2"
        " -E num_backup_sb=0,lazy_itable_init=1 \"$1/image\"; mount -o loop,noatime \"$1/image\" \"$1/mnt\"";
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
    return open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int measure_loop(struct bench *bench, struct brig_engine *engine, enum bench_loop loop, struct brig_err *err)
{
    const char *name = bench_loop_names[loop];
    struct bench_samples inside = {0}, outside = {0};
    AUTO_FD int dir_fd = -1;
    double speed = 0;
    bool image = false;
    int r = run_inside(engine, bench, name, &speed, &image, err);
    if (r == 0 && loop == LOOP_FILES) {
        dir_fd = image ? open_image() : open_tmpfs();
        if (dir_fd < 0) {
            bench_skip(bench, "files", "%s", image ? "no ext4 image could be mounted outside" : "no /dev/shm outside");
            return 0;
        }
    }
    if (r == 0 && (bench_samples_init(&inside, bench->runs) < 0 || bench_samples_init(&outside, bench->runs) < 0))
        r = err_nomem(err);
    bench_say("throughput: %s, %llu times inside and outside%s", name, (unsigned long long)bench->runs,
              loop != LOOP_FILES ? ""
              : image            ? " (ext4 images)"
                                 : " (tmpfs)");
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        r = run_outside(bench, name, dir_fd, &speed, err);
        if (r == 0) {
            bench_samples_add(&outside, speed);
            r = run_inside(engine, bench, name, &speed, &image, err);
        }
        if (r == 0)
            bench_samples_add(&inside, speed);
    }
    if (r == 0) {
        char row_name[40];
        snprintf(row_name, sizeof(row_name), "%s, inside", name);
        struct bench_row *a = bench_add_row(bench, row_name, "ops/s", &inside);
        snprintf(row_name, sizeof(row_name), "%s, outside", name);
        struct bench_row *b = bench_add_row(bench, row_name, "ops/s", &outside);
        bench_compare(a, b);
        if (a) {
            a->bound = promises[loop].floor;
            a->at_least = true;
        }
    }
    bench_samples_done(&inside);
    bench_samples_done(&outside);
    return r;
}

int bench_throughput(struct bench *bench, struct brig_err *err)
{
    struct brig_engine *engine = NULL;
    int r = bench_engine(0, &engine, err);
    for (int loop = 0; r == 0 && loop < LOOP_MAX; loop++)
        r = measure_loop(bench, engine, (enum bench_loop)loop, err);
    brig_engine_destroy(engine);
    return r;
}
