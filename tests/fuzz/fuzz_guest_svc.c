/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service protocol's messages: the first byte chooses one, the rest is its payload. What is accepted encodes to the
 * same bytes again (HELLO: to its beginning), so nothing is read that was not there and nothing is lost.
 */
#include "fuzz.h"

#include "codec/wire/guest_svc.h"

#define MESSAGE(name)                                             \
    do {                                                          \
        struct svc_##name msg;                                    \
        int r = svc_##name##_parse(data, size, &msg);             \
        FUZZ_CHECK(r == 0 || r == -EPROTO);                       \
        if (r == 0) {                                             \
            int n = svc_##name##_put(again, sizeof(again), &msg); \
            FUZZ_CHECK(n > 0 && (size_t)n <= size);               \
            FUZZ_CHECK(memcmp(again, data, (size_t)n) == 0);      \
            used = (size_t)n;                                     \
        }                                                         \
    } while (0)

static uint8_t again[SVC_OPEN_MAX + 65536];

static void entries(const uint8_t *data, size_t size)
{
    struct svc_reader in = {data, data + size, false};
    struct svc_cursor out = {again, again + sizeof(again), false};

    while (!in.bad && in.at < in.end) {
        const uint8_t *begin = in.at;
        struct svc_entry entry = svc_get_entry(&in);

        if (in.bad)
            return;
        out.at = again;
        svc_put_entry(&out, &entry);
        FUZZ_CHECK(!out.bad && out.at - again == in.at - begin && memcmp(again, begin, (size_t)(in.at - begin)) == 0);
    }
}

static void paths(const uint8_t *data, size_t size)
{
    struct svc_reader in = {data, data + size, false};
    struct svc_cursor out = {again, again + sizeof(again), false};
    struct svc_path path = svc_get_path(&in);

    if (svc_done(&in) != 0)
        return;
    svc_put_path(&out, &path);
    FUZZ_CHECK(!out.bad && (size_t)(out.at - again) == size && memcmp(again, data, size) == 0);
}

static void units(const uint8_t *data, size_t size)
{
    static struct svc_unit list[SVC_UNITS_MAX];
    struct svc_cursor out = {again, again + sizeof(again), false};
    int n = svc_units_parse(data, size, list);

    FUZZ_CHECK(n == -EPROTO || (n > 0 && n <= (int)SVC_UNITS_MAX));
    if (n < 0)
        return;
    svc_put_u32(&out, (uint32_t)n);
    for (int i = 0; i < n; i++)
        svc_put_unit(&out, &list[i]);
    FUZZ_CHECK(!out.bad && (size_t)(out.at - again) == size && memcmp(again, data, size) == 0);
}

static void frames(const uint8_t *data, size_t size)
{
    struct frame frame;
    int used;

    while ((used = svc_frame_parse(data, size, &frame)) > 0) {
        uint8_t header[FRAME_HEADER];

        FUZZ_CHECK((size_t)used <= size && (size_t)used == FRAME_HEADER + frame.length);
        frame_put_header(header, &frame);
        FUZZ_CHECK(memcmp(header, data, FRAME_HEADER) == 0);
        data += used;
        size -= (size_t)used;
    }
    FUZZ_CHECK(used == 0 || used == -EPROTO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t used = 0;

    if (size == 0 || size > SVC_OPEN_MAX)
        return 0;
    unsigned which = data[0] % 18;
    data++;
    size--;
    switch (which) {
    case 0: MESSAGE(hello); return 0;
    case 1: { /* only the head is the codec's */
        struct svc_reply reply;
        FUZZ_CHECK(svc_reply_parse(data, size, &reply) != 0 || reply.errnum == 0 || size == SVC_REPLY_SIZE);
        return 0;
    }
    case 2: MESSAGE(proc_start); break;
    case 3: MESSAGE(proc_started); break;
    case 4: MESSAGE(proc_attach); break;
    case 5: MESSAGE(attached); break;
    case 6: MESSAGE(proc_exit); break;
    case 7: MESSAGE(proc_signal); break;
    case 8: MESSAGE(proc_info); break;
    case 9: MESSAGE(shell_result); break;
    case 10: MESSAGE(port); break;
    case 11: entries(data, size); return 0;
    case 12: paths(data, size); return 0;
    case 13: frames(data, size); return 0;
    case 14: MESSAGE(unit_info); break;
    case 15: MESSAGE(unit_control); break;
    case 16: MESSAGE(unit_log); break;
    default: units(data, size); return 0;
    }
    FUZZ_CHECK(used == 0 || used == size);
    return 0;
}
