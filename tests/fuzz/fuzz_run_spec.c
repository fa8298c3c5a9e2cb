/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_run_spec.c: a RUN message as a taken-over engine could send it: any numbers, any strings, any descriptors. The
 * spawner may refuse it; it must not read outside, keep a descriptor, or accept a string that is not inside.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/mem.h"
#include "fuzz.h"
#include "spawner/spawner.h"

static void check_inside(const struct run_spec *spec, const char *text)
{
    FUZZ_CHECK(text >= spec->strings && text < spec->strings + spec->strings_len);
    FUZZ_CHECK(memchr(text, '\0', spec->strings_len - (size_t)(text - spec->strings)));
}

/* What was accepted can be opened: known switches, ports that a listener can have, none twice. */
static void check_gate(const struct run_spec *spec, uint32_t trust)
{
    const struct netgate_want *gate = &spec->gate;

    FUZZ_CHECK(gate->on <= 1 && gate->any_port <= gate->on && gate->n_ports <= POLICY_PORTS_MAX &&
               (gate->on || gate->n_ports == 0));
    for (unsigned i = 0; !gate->any_port && i < gate->n_ports; i++) {
        FUZZ_CHECK(gate->ports[i] != 0 && gate->ports[i] != 53);
        for (unsigned j = 0; j < i; j++)
            FUZZ_CHECK(gate->ports[i] != gate->ports[j]);
    }
    FUZZ_CHECK((spec->trust_fd >= 0) == (trust == 1));
}

/* A name that was accepted is that of a directory in the store, and leads nowhere else. */
static void check_layers(const struct run_spec *spec)
{
    const char *layer = spec->layers;

    FUZZ_CHECK(spec->n_layers <= LAYERS_MAX && !(run_has_layers(spec) && (spec->rootfs || spec->zygote)));
    FUZZ_CHECK(!run_has_layers(spec) || (spec->flags & WIRE_RUN_SERVICE));
    for (unsigned i = 0; i < spec->n_layers; i++, layer += strlen(layer) + 1) {
        check_inside(spec, layer);
        FUZZ_CHECK(strlen(layer) == 64 && strspn(layer, "0123456789abcdef") == 64);
    }
    if (spec->new_layer) {
        check_inside(spec, spec->new_layer);
        FUZZ_CHECK(strncmp(spec->new_layer, "new-", 4) == 0 && !strpbrk(spec->new_layer, "./"));
    }
}

static int seal(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(size == 0 || fd_write_all(fd, data, size) == 0);
    FUZZ_CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_run msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_RUN, 1}};
    /* A byte says how many descriptors come along (0x40: the last is a CA bundle), the next bytes are the message after
     * its head, the rest the strings. */
    size_t body = sizeof msg - sizeof msg.head, n_fds = size ? data[0] % 6 : 0;
    int fds[6] = {-1, -1, -1, -1, -1, -1};

    if (size < 1 + body)
        return 0;
    memcpy((uint8_t *)&msg + sizeof msg.head, data + 1, body);
    for (size_t i = 0; i < n_fds; i++)
        fds[i] = i == 0                               ? seal(data + 1 + body, size - 1 - body)
                 : i + 1 == n_fds && (data[0] & 0x40) ? seal((const uint8_t *)"-----BEGIN", 10)
                                                      : open("/dev/null", O_RDWR | O_CLOEXEC);
    struct run_spec *spec = mem_zalloc(sizeof *spec);
    FUZZ_CHECK(spec != NULL);
    struct brig_err err;
    if (run_spec_parse(spec, &msg, data[0] & 0x80, fds, n_fds, &err) == 0) {
        FUZZ_CHECK((spec->n_argv >= 1) == !(spec->flags & WIRE_RUN_SERVICE));
        check_gate(spec, msg.trust);
        check_inside(spec, spec->workdir);
        if (spec->n_argv > 0)
            check_inside(spec, spec->argv);
        for (unsigned i = 0; i < spec->n_binds; i++) {
            check_inside(spec, spec->binds[i].source);
            check_inside(spec, spec->binds[i].target);
        }
        for (unsigned i = 0; i < spec->n_tmpfs; i++)
            check_inside(spec, spec->tmpfs[i].path);
        check_layers(spec);
    }
    run_spec_done(spec);
    for (size_t i = 0; i < 6; i++)
        base_close_fd(&fds[i]);
    return 0;
}
