/* SPDX-License-Identifier: Apache-2.0 */
/* library_refusals.c: what the library does not take, and that it reads no byte past the structs it is given. */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "library_host.h"

static void refused_at_start(struct brig_engine *engine, struct brig_spec spec)
{
    struct brig_run *run = (struct brig_run *)(uintptr_t)0x1234;

    host_err = (struct brig_err){0};
    EXPECT(brig_run_start(engine, &spec, &run, &host_err) < 0);
    EXPECT(host_err.code == BRIG_E_USAGE && host_err.message[0] && !strchr(host_err.message, '\n'));
    EXPECT(run == (struct brig_run *)(uintptr_t)0x1234);
    EXPECT(brig_run_start(engine, &spec, &run, NULL) < 0); /* err may be NULL */
}

void refusals(void)
{
    struct brig_engine *engine = make_engine(0);
    const char *const argv[] = {"/bin/true", NULL}, *const empty[] = {NULL}, *const blank[] = {"", NULL};
    const char *const bad_env[] = {"NOVALUE", NULL};
    const struct brig_spec good = {.size = sizeof good, .argv = argv};
    const struct brig_bind binds[] = {{"relative", "/x", false, false},
                                      {"/usr", "/proc", false, false},
                                      {NULL, "/x", false, false},
                                      {"/usr", NULL, false, false}};
    const struct brig_tmpfs tmpfs[] = {{"/proc", 4096}, {NULL, 4096}};
    size_t fds = count_fds();
    struct brig_spec spec;

#define REFUSED(...)                    \
    do {                                \
        spec = good;                    \
        __VA_ARGS__;                    \
        refused_at_start(engine, spec); \
    } while (0)
    REFUSED(spec.argv = NULL);
    REFUSED(spec.argv = empty);
    REFUSED(spec.argv = blank);
    REFUSED(spec.env = bad_env);
    REFUSED(spec.name = "a b");
    REFUSED(spec.name = "");
    REFUSED(spec.workdir = "relative");
    REFUSED(spec.workdir = "/proc/self");
    REFUSED(spec.rootfs = "relative");
    REFUSED(spec.flags = 1u << 31);
    REFUSED(spec.profile = BRIG_PROFILE_MAX);
    REFUSED(spec.require = UINT64_C(1) << 63);
    REFUSED(spec.limits.memory = 1);
    REFUSED(spec.limits.cpus = UINT64_MAX);
    REFUSED(spec.limits.pids = UINT64_MAX);
    REFUSED(spec.limits.disk = 1);
    REFUSED(spec.limits.timeout = UINT64_MAX);
    REFUSED(spec.limits.output = UINT64_MAX);
    for (size_t i = 0; i < sizeof binds / sizeof *binds; i++)
        REFUSED(spec.binds = &binds[i], spec.n_binds = 1);
    REFUSED(spec.binds = binds, spec.n_binds = 1000);
    for (size_t i = 0; i < sizeof tmpfs / sizeof *tmpfs; i++)
        REFUSED(spec.tmpfs = &tmpfs[i], spec.n_tmpfs = 1);
    REFUSED(spec.tmpfs = tmpfs, spec.n_tmpfs = 1000);
    REFUSED(spec.size = 0);
    REFUSED(spec.size = sizeof(size_t));
    EXPECT(brig_run_start(engine, NULL, NULL, &host_err) < 0);
    EXPECT(count_fds() == fds);

    /* What only the spawner can see is a run that ends in policy. */
    const struct brig_bind secret[] = {{"/proc/1", "/x", false, false}};
    struct brig_run *run = NULL;
    spec = good;
    spec.binds = secret;
    spec.n_binds = 1;
    EXPECT(brig_run_start(engine, &spec, &run, &host_err) == 0);
    const struct brig_receipt *receipt = wait_for(run);
    EXPECT(receipt->cause == BRIG_CAUSE_POLICY && !receipt->started && strstr(receipt->detail, "/proc/1"));
    brig_run_destroy(run);
    EXPECT(count_fds() == fds);
    brig_engine_destroy(engine);

    struct brig_engine *none = (struct brig_engine *)(uintptr_t)0x1234;
    struct brig_engine_options options = {.size = 0};
    EXPECT(brig_engine_create(&options, &none, &host_err) < 0 && none == (struct brig_engine *)(uintptr_t)0x1234);
    options = (struct brig_engine_options){.size = sizeof options, .helper_dir = "/nonexistent"};
    EXPECT(brig_engine_create(&options, &none, &host_err) < 0 && none == (struct brig_engine *)(uintptr_t)0x1234);
    EXPECT(host_err.code == BRIG_E_HOST && strstr(host_err.message, "/nonexistent"));
    options.helper_dir = "relative";
    EXPECT(brig_engine_create(&options, &none, &host_err) < 0 && host_err.code == BRIG_E_USAGE);
    brig_engine_destroy(NULL);
    brig_run_destroy(NULL);
}

/* The last `size` bytes before memory that cannot be read: what an older header's struct is. */
static void *at_the_edge(const void *data, size_t size)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    return memcpy(pages + 4096 - size, data, size);
}

void sizes(void)
{
    /* Today's structs are the first ones, so the shortest that can ever come are today's; newer and longer ones may. */
    const char *const argv[] = {"/bin/true", NULL};
    struct brig_engine_options options = {.size = sizeof options};
    struct brig_spec spec = {.size = sizeof spec, .argv = argv};
    struct brig_engine *engine = NULL;
    struct brig_run *run = NULL;
    struct {
        struct brig_spec spec;
        char future[64];
    } longer = {.spec = {.size = sizeof longer, .argv = argv}};

    EXPECT(brig_engine_create(at_the_edge(&options, sizeof options), &engine, &host_err) == 0);
    EXPECT(brig_run_start(engine, at_the_edge(&spec, sizeof spec), &run, &host_err) == 0);
    EXPECT(wait_for(run)->exit_code == 0);
    EXPECT(brig_run_start(engine, &longer.spec, &run, &host_err) == 0);
    EXPECT(wait_for(run)->exit_code == 0);
    /* Whatever shorter size is accepted, no byte past it may be read. */
    for (size_t size = sizeof(size_t); size < sizeof spec; size += sizeof(void *)) {
        spec.size = size;
        if (brig_run_start(engine, at_the_edge(&spec, size), &run, &host_err) == 0)
            wait_for(run);
    }
    brig_engine_destroy(engine);
    for (size_t size = sizeof(size_t); size < sizeof options; size += sizeof(void *)) {
        options.size = size;
        if (brig_engine_create(at_the_edge(&options, size), &engine, &host_err) == 0)
            brig_engine_destroy(engine);
    }
}
