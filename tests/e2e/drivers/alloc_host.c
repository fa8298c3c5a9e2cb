/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_host.c: one run whose Nth allocation fails, in the engine or, since a fork copies the counter, in the spawner.
 * Linked with the test build of the library. Prints "ok", or the refusal; a crash or a hang is the caller's to see.
 *
 *     alloc_host N [network]
 */
#include <brig.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int main(int argc, char **argv)
{
    const struct brig_engine_options options = {.size = sizeof options, .flags = BRIG_ENGINE_FORK};
    const char *const command[] = {"/bin/sh", "-c", "echo out; echo err >&2", NULL};
    const char *const env[] = {"A=1", "B=2", NULL};
    const struct brig_tmpfs tmpfs[] = {{"/scratch", 1 << 20}};
    bool network = argc == 3 && strcmp(argv[2], "network") == 0;
    const struct brig_spec spec = {.size = sizeof spec,
                                   .argv = command,
                                   .env = env,
                                   .name = "alloc",
                                   .tmpfs = tmpfs,
                                   .n_tmpfs = 1,
                                   .flags = BRIG_RUN_KEEP_OUTPUT | (network ? BRIG_RUN_LEARN : 0),
                                   .network = network ? "{}" : NULL,
                                   .network_name = "learn"};
    struct brig_engine *engine = NULL;
    struct brig_run *run = NULL;
    struct brig_err err = {0};
    char *json = NULL;
    size_t len = 0;

    if (argc != 2 && !network)
        return 2;
    mem_fail_after(strtoul(argv[1], NULL, 10) - 1);
    int r = brig_engine_create(&options, &engine, &err);
    if (r == 0)
        r = brig_run_start(engine, &spec, &run, &err);
    if (r == 0)
        r = brig_run_wait(run, &err);
    const struct brig_receipt *receipt = r == 0 ? brig_run_receipt(run) : NULL;
    if (receipt)
        r = brig_receipt_json(receipt, &json, &len, &err);
    int status = 125;
    if (r < 0)
        printf("refused: %d %s\n", err.code, err.message);
    else if (receipt->cause != BRIG_CAUSE_EXITED)
        printf("refused: %s %s\n", brig_cause_name(receipt->cause), receipt->detail);
    else if (receipt->truncated[BRIG_STDOUT] || receipt->truncated[BRIG_STDERR])
        printf("truncated\n"); /* out of memory for the output: said, not hidden */
    else
        status = printf("%s\n", strstr(json, "\"out\\n\"") ? "ok" : "output lost") < 0;
    mem_fail_after(MEM_FAIL_NEVER);
    free(json);
    brig_run_destroy(run);
    brig_engine_destroy(engine);
    return status;
}
