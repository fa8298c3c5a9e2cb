/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c: a sandbox from a C program.   cc embed.c $(pkg-config --cflags --libs brig) && ./a.out */
#include <brig.h>
#include <stdio.h>

static void show(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len)
{
    (void)ctx, (void)run;
    fwrite(data, 1, len, stream == BRIG_STDERR ? stderr : stdout);
}

int main(void)
{
    const char *const argv[] = {"/bin/sh", "-c", "echo \"$GREETING from pid $$, user $(id -un)\"", NULL};
    const char *const env[] = {"GREETING=hello", NULL};
    struct brig_spec spec = {
        .size = sizeof(spec),
        .argv = argv,
        .env = env,
        .limits = {.memory = 64 << 20, .timeout = 10000},
        .on_output = show,
    };
    struct brig_engine *engine = NULL;
    struct brig_run *run = NULL;
    struct brig_err err;
    int status = 1;

    if (brig_engine_create(NULL, &engine, &err) < 0 || brig_run_start(engine, &spec, &run, &err) < 0 ||
        brig_run_wait(run, &err) < 0) {
        fprintf(stderr, "embed: %s\n", err.message);
    } else {
        const struct brig_receipt *receipt = brig_run_receipt(run);
        printf("%s: %s, exit status %d, %llu ms, all layers %s\n", receipt->id, brig_cause_name(receipt->cause),
               brig_exit_status(receipt), (unsigned long long)receipt->usage.wall_ms,
               receipt->protection_complete ? "on" : "not on");
        status = brig_exit_status(receipt);
    }
    brig_run_destroy(run);
    brig_engine_destroy(engine);
    return status;
}
