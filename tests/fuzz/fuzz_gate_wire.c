/* SPDX-License-Identifier: Apache-2.0 */
/* A packet that passes gate_wire_check() can be used without a further look at its counts and texts. */
#include "fuzz.h"
#include "gate/gate_wire.h"

static void check_text(const char *text, size_t size)
{
    FUZZ_CHECK(strnlen(text, size) < size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union gate_any msg;

    memset(&msg, 0xff, sizeof msg);
    memcpy(&msg, data, size < sizeof msg ? size : sizeof msg);
    if (gate_wire_check(&msg, size) < 0)
        return 0;
    FUZZ_CHECK(size == gate_wire_size(msg.head.type));
    switch ((enum gate_type)msg.head.type) {
    case GATE_FILE: check_text(msg.file.name, sizeof msg.file.name); break;
    case GATE_LISTEN:
        FUZZ_CHECK(msg.listen.n >= 1 && msg.listen.n <= GATE_LISTENERS_MAX);
        for (uint32_t i = 0; i < msg.listen.n; i++)
            FUZZ_CHECK(msg.listen.listeners[i].kind < GATE_KIND_MAX);
        check_text(msg.listen.sandbox_id, sizeof msg.listen.sandbox_id);
        break;
    case GATE_PREPARED:
        FUZZ_CHECK(msg.prepared.n_ports <= POLICY_PORTS_MAX);
        check_text(msg.prepared.err.message, sizeof msg.prepared.err.message);
        break;
    case GATE_EVENT:
        FUZZ_CHECK(msg.event.verdict < GATE_VERDICT_MAX);
        check_text(msg.event.name, sizeof msg.event.name);
        check_text(msg.event.secret, sizeof msg.event.secret);
        check_text(msg.event.why, sizeof msg.event.why);
        break;
    default: break;
    }
    return 0;
}
