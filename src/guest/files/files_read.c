/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_read.c: READ. The bytes go from the file into the output buffer and from there to the socket, without another
 * copy. The file may grow or shrink while it is read; its length is what was read.
 */
#include "guest/files/files_int.h"

#define READ_TURN 4 /* pieces of FRAME_PAYLOAD_MAX */

struct file_read {
    int fd;
    uint64_t offset, left;
};

static int read_open(struct call *call, struct svc_reader *in)
{
    struct file_read *reading = call->state;
    struct svc_path path = svc_get_path(in);
    struct place place;
    struct svc_cursor out;
    struct stat st = {0};
    int ret;

    reading->fd = -1;
    reading->offset = svc_get_u64(in);
    reading->left = svc_get_u64(in);
    if (reading->left == 0)
        reading->left = UINT64_MAX;
    if (svc_done(in) < 0 || reading->offset > INT64_MAX)
        return -EINVAL;
    if ((ret = path_find(&path, path.path, path_follow(&path), &place)) < 0)
        return ret;
    ret = reading->fd = place_open(&place, O_RDONLY, &st);
    if (ret >= 0 || ret == -ELOOP || ret == -ENXIO) {
        out = wire_open();
        entry_put_place(&out, &place, &st);
        wire_close(call, SVC_EVENT, &out);
    }
    place_done(&place);
    if (ret < 0)
        return ret;
    call->wait = CALL_SEND;
    return S_ISDIR(st.st_mode) ? -EISDIR : CALL_ON;
}

static int read_step(struct call *call)
{
    struct file_read *reading = call->state;

    for (int i = 0; i < READ_TURN; i++) {
        size_t max;
        uint8_t *at = wire_data_open(call, &max);
        long n;

        if (max == 0)
            return CALL_ON;
        if (max > reading->left)
            max = (size_t)reading->left;
        do
            n = raw_call4(SYS_pread64, reading->fd, at, max, reading->offset);
        while (n == -EINTR);
        if (n < 0)
            return (int)n;
        wire_data_close(call, (size_t)n);
        reading->offset += (uint64_t)n;
        reading->left -= (uint64_t)n;
        if (n == 0 || reading->left == 0) {
            wire_send(call, SVC_EOF, 1, NULL, 0);
            return CALL_DONE;
        }
    }
    return CALL_ON;
}

static void read_close(struct call *call)
{
    struct file_read *reading = call->state;

    close_fd(&reading->fd);
}

const struct call_ops files_read_ops = {
    .state_size = sizeof(struct file_read), .open = read_open, .step = read_step, .close = read_close};
