/* SPDX-License-Identifier: Apache-2.0 */
/* gate_none.c: in place of gate.c and run_gate.c while the parts they speak to are not in the tree. */
#include "base/err.h"
#include "engine/engine.h"

void engine_gate_tend(struct brig_engine *engine UNUSED)
{
}

void engine_gate_destroy(struct brig_engine *engine UNUSED)
{
}

int run_gate_start(struct brig_run *run UNUSED, const struct brig_spec *spec UNUSED, const struct wire_run *msg UNUSED, const int *fds UNUSED,
                   size_t n_fds UNUSED, struct brig_err *err)
{
    return err_set(err, BRIG_E_UNSUPPORTED, ENOSYS, "network: not in this build");
}

void run_on_gate_open(struct brig_run *run UNUSED, const struct wire_gate_open *msg UNUSED, const int *fds UNUSED, size_t n_fds UNUSED)
{
}

bool run_gate_end(struct brig_run *run UNUSED)
{
    return false;
}

void run_gate_abandon(struct brig_run *run UNUSED)
{
}

void run_gate_free(struct brig_run *run UNUSED)
{
}
