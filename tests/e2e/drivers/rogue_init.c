/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rogue_init.c: a brig-init that was taken over, for the tests to put in the place of the real one. It starts as it
 * should and then does what the sandbox's inode limit says (1000 + one of enum deed), until it is ended.
 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec/wire/frame.h"
#include "codec/wire/guest_msg.h"

#define CONTROL 3

enum deed {
    UNKNOWN_FRAME, /* a type that only the other side sends */
    HALF_A_FRAME,  /* and then nothing */
    DEAF,          /* asks, and never reads an answer */
    FD_BESIDE,     /* a descriptor where none belongs */
    SAME_TWICE,    /* one leaf, asked for twice */
    STARTED_TWICE,
    LEAF_STORM, /* leaf after leaf, as fast as it goes, reading all answers */
    QUIET,
    COUNT_TWICE,
};

static void put(unsigned type, const void *payload, size_t len, int fd)
{
    uint8_t packet[512];
    struct frame frame = {.length = (uint32_t)len, .type = (uint16_t)type};
    struct iovec iov = {packet, FRAME_HEADER + len};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    frame_put_header(packet, &frame);
    memcpy(packet + FRAME_HEADER, payload, len);
    if (fd >= 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof control.space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (sendmsg(CONTROL, &msg, MSG_NOSIGNAL) < 0)
        _exit(1);
}

static void leaf(unsigned type, uint32_t number, int fd)
{
    uint8_t wire[GUEST_LEAF_SIZE];

    if (guest_leaf_put(wire, sizeof wire, number) > 0)
        put(type, wire, sizeof wire, fd);
}

static void say_started(void)
{
    struct guest_started started = {.at_ns = 1};
    uint8_t wire[GUEST_STARTED_SIZE];

    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        started.readings[i].on = 1;
    if (guest_started_put(wire, sizeof wire, &started) > 0)
        put(FRAME_STARTED, wire, sizeof wire, -1);
}

static void misbehave(enum deed deed)
{
    char answers[65536];

    switch (deed) {
    case UNKNOWN_FRAME: put(FRAME_LEAF_GONE, "", 0, -1); break;
    case HALF_A_FRAME: (void)!write(CONTROL, "\x04\0\0\0\x07", 5); break;
    case DEAF:
        for (uint32_t n = 1;; n++)
            leaf(FRAME_LEAF_END, n, -1);
    case FD_BESIDE: leaf(FRAME_LEAF_END, 1, 0); break;
    case SAME_TWICE:
        leaf(FRAME_LEAF, 1, -1);
        leaf(FRAME_LEAF, 1, -1);
        break;
    case STARTED_TWICE: say_started(); break;
    case LEAF_STORM:
        for (uint32_t n = 1;; n++) {
            leaf(FRAME_LEAF, n, -1);
            leaf(FRAME_LEAF_END, n + 1, -1);
            (void)!recv(CONTROL, answers, sizeof answers, MSG_DONTWAIT);
        }
    case QUIET: break;
    case COUNT_TWICE:
        put(FRAME_COUNT, "", 0, -1);
        put(FRAME_COUNT, "", 0, -1);
        break;
    }
}

int main(void)
{
    uint8_t in[4096];
    const struct guest_hello hello = {FRAME_VERSION, GUEST_CAP_RUN};
    struct guest_start start;
    struct frame frame;

    if (guest_hello_put(in, sizeof in, &hello) > 0)
        put(FRAME_HELLO, in, GUEST_HELLO_SIZE, -1);
    ssize_t n = recv(CONTROL, in, sizeof in, 0);
    if (n <= 0 || frame_parse(in, (size_t)n, &frame) <= 0 || guest_start_parse(frame.payload, frame.length, &start) < 0)
        return 2;
    say_started();
    poll(NULL, 0, 100); /* until the spawner has seen it */
    misbehave((enum deed)(start.inodes % 1000));
    while (recv(CONTROL, in, sizeof in, 0) > 0)
        ;
    return 1;
}
