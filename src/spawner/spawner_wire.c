/* SPDX-License-Identifier: Apache-2.0 */
/* spawner_wire.c: checks the form of engine/spawner packets. The code that acts on a message checks its content. */
#include "spawner/spawner_wire.h"

size_t wire_size(uint16_t type)
{
    static const size_t sizes[WIRE_TYPE_MAX] = {
        [WIRE_READY] = sizeof(struct wire_ready),
        [WIRE_RUN] = sizeof(struct wire_run),
        [WIRE_STARTED] = sizeof(struct wire_started),
        [WIRE_DONE] = sizeof(struct wire_done),
        [WIRE_KILL] = sizeof(struct wire_kill),
        [WIRE_SIGNAL] = sizeof(struct wire_signal),
        [WIRE_POOL] = sizeof(struct wire_pool),
        [WIRE_POOL_FULL] = sizeof(struct wire_pool),
        [WIRE_ATTACH] = sizeof(struct wire_plain),
        [WIRE_ATTACHED] = sizeof(struct wire_answer),
        [WIRE_FREEZE] = sizeof(struct wire_freeze),
        [WIRE_FROZEN] = sizeof(struct wire_answer),
        [WIRE_STATS] = sizeof(struct wire_plain),
        [WIRE_STATS_ARE] = sizeof(struct wire_stats),
        [WIRE_LIST] = sizeof(struct wire_plain),
        [WIRE_LISTED] = sizeof(struct wire_started),
        [WIRE_LIST_END] = sizeof(struct wire_ready),
        [WIRE_GATE] = sizeof(struct wire_gate),
        [WIRE_GATE_OPEN] = sizeof(struct wire_gate_open),
        [WIRE_KEEP] = sizeof(struct wire_plain),
        [WIRE_KEPT] = sizeof(struct wire_kept),
        [WIRE_TAKE] = sizeof(struct wire_plain),
        [WIRE_LIMITS] = sizeof(struct wire_limits),
        [WIRE_LIMITS_ARE] = sizeof(struct wire_limits_are),
        [WIRE_COUNTED] = sizeof(struct wire_stats),
        [WIRE_LAYER] = sizeof(struct wire_layer),
        [WIRE_LAYER_DONE] = sizeof(struct wire_answer),
        [WIRE_LAYERS] = sizeof(struct wire_plain),
        [WIRE_LAYERS_ARE] = sizeof(struct wire_layers_are),
        [WIRE_DISK] = sizeof(struct wire_disk),
        [WIRE_DISK_PROGRESS] = sizeof(struct wire_disk_progress),
        [WIRE_DISK_DONE] = sizeof(struct wire_disk_done),
        [WIRE_DISKS] = sizeof(struct wire_plain),
        [WIRE_DISKS_ARE] = sizeof(struct wire_disks_are),
    };

    return type < WIRE_TYPE_MAX ? sizes[type] : 0;
}

int wire_check(const union wire_any *msg, size_t len)
{
    if (len < sizeof msg->head || msg->head.magic != WIRE_MAGIC || msg->head.version != WIRE_VERSION)
        return -EPROTO;
    size_t want = wire_size(msg->head.type);
    return want != 0 && want == len ? 0 : -EPROTO;
}
