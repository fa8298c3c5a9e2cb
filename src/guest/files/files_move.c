/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_move.c: MOVE. It is one rename where the kernel can do it. Between two file systems a regular file is copied to
 * a temporary name beside its new place, renamed there, and only then removed from the old place; a symbolic link is
 * made again. So one of the two always exists, and a failure leaves the old one. Directories, FIFOs and sockets are not
 * copied: EXDEV.
 */
#include <linux/fs.h>

#include "guest/files/files_int.h"

#define COPY_TURN (1u << 20)
#define COPY_BUFFER 65536u

struct moving {
    struct place from, to;
    bool replace;
    int in, out;
    char temp[TEMP_NAME_SIZE];
    struct stat st;
    uint8_t buffer[COPY_BUFFER];
};

/* Not every file system knows RENAME_NOREPLACE. What must not exist can also be made first: both ways are atomic. */
static int rename_noreplace(int dir, const char *name, const struct place *to, mode_t mode)
{
    long ret = raw_call5(SYS_renameat2, dir, name, to->dir, to->name, RENAME_NOREPLACE);

    if (ret != -EINVAL)
        return (int)ret;
    if (S_ISDIR(mode)) {
        ret = raw_call3(SYS_mkdirat, to->dir, to->name, 0700);
        if (ret == 0 && (ret = raw_call4(SYS_renameat, dir, name, to->dir, to->name)) != 0)
            raw_call3(SYS_unlinkat, to->dir, to->name, AT_REMOVEDIR);
        return (int)ret;
    }
    ret = raw_call5(SYS_linkat, dir, name, to->dir, to->name, 0);
    return ret != 0 ? (int)ret : (int)raw_call3(SYS_unlinkat, dir, name, 0);
}

static int rename_to(const struct moving *m, int dir, const char *name)
{
    if (m->replace)
        return (int)raw_call4(SYS_renameat, dir, name, m->to.dir, m->to.name);
    return rename_noreplace(dir, name, &m->to, m->st.st_mode);
}

static int answer(const struct moving *m)
{
    struct stat st = {0};
    int ret = place_stat(&m->to, &st);

    if (ret != 0)
        return ret;
    entry_put_place(&files_reply, &m->to, &st);
    return CALL_DONE;
}

/* ---- to another file system -------------------------------------------------------------------------- */

static int remove_source(const struct moving *m)
{
    struct stat now = {0};
    int ret = place_stat(&m->from, &now);

    /* Another by now: it was never copied, so it stays. */
    if (ret == 0 && now.st_ino == m->st.st_ino && now.st_dev == m->st.st_dev)
        ret = (int)raw_call3(SYS_unlinkat, m->from.dir, m->from.name, 0);
    return ret == -ENOENT ? 0 : ret;
}

static int move_link(struct moving *m)
{
    static char target[SVC_PATH_MAX + 1];
    long ret, n = raw_call4(SYS_readlinkat, m->from.dir, m->from.name, target, SVC_PATH_MAX);

    if (n < 0)
        return (int)n;
    target[n] = 0;
    for (int i = 0; i < 16; i++) {
        temp_name(m->temp);
        ret = raw_call3(SYS_symlinkat, target, m->to.dir, m->temp);
        if (ret != -EEXIST)
            break;
    }
    if (ret != 0) {
        m->temp[0] = 0;
        return (int)ret;
    }
    if ((ret = rename_to(m, m->to.dir, m->temp)) != 0)
        return (int)ret;
    m->temp[0] = 0;
    ret = remove_source(m);
    return ret < 0 ? (int)ret : answer(m);
}

static int begin_copy(struct call *call, struct moving *m)
{
    if (S_ISLNK(m->st.st_mode))
        return move_link(m);
    if (!S_ISREG(m->st.st_mode))
        return -EXDEV;
    m->in = place_open(&m->from, O_RDONLY, &m->st);
    if (m->in < 0)
        return m->in;
    if (!S_ISREG(m->st.st_mode))
        return -EXDEV;
    m->out = temp_create(m->to.dir, 0600, m->temp);
    if (m->out < 0)
        return m->out;
    call->wait = CALL_WORK;
    return CALL_ON;
}

static int finish_copy(struct moving *m)
{
    const struct timespec times[2] = {m->st.st_atim, m->st.st_mtim};
    long ret = raw_call2(SYS_fchmod, m->out, m->st.st_mode & 0777);

    if (ret == 0)
        ret = raw_call4(SYS_utimensat, m->out, NULL, times, 0);
    if (ret == 0)
        ret = rename_to(m, m->to.dir, m->temp);
    if (ret != 0)
        return (int)ret;
    m->temp[0] = 0;
    ret = remove_source(m);
    return ret < 0 ? (int)ret : answer(m);
}

static int move_step(struct call *call)
{
    struct moving *m = call->state;

    for (size_t done = 0; done < COPY_TURN;) {
        long n = raw_call3(SYS_read, m->in, m->buffer, sizeof(m->buffer));
        int ret;

        if (n == -EINTR)
            continue;
        if (n < 0)
            return (int)n;
        if (n == 0)
            return finish_copy(m);
        if ((ret = write_all(m->out, m->buffer, (size_t)n, -1)) < 0)
            return ret;
        done += (size_t)n;
    }
    return CALL_ON;
}

/* ---- the call ----------------------------------------------------------------------------------------- */

static int move_open(struct call *call, struct svc_reader *in)
{
    struct moving *m = call->state;
    struct svc_path path = svc_get_path(in);
    struct svc_bytes to = svc_get_bytes(in);
    int ret;

    m->from.dir = m->to.dir = m->in = m->out = -1;
    m->replace = svc_get_u32(in) != 0;
    if (svc_done(in) < 0)
        return -EINVAL;
    if ((ret = path_find(&path, path.path, 0, &m->from)) < 0 || (ret = place_stat(&m->from, &m->st)) < 0 ||
        (ret = path_find(&path, to, 0, &m->to)) < 0)
        return ret;
    if (is_dots(m->from.name) || is_dots(m->to.name))
        return -EBUSY;
    if (m->to.must_dir && !S_ISDIR(m->st.st_mode))
        return -ENOTDIR;
    ret = rename_to(m, m->from.dir, m->from.name);
    if (ret == -EXDEV)
        return begin_copy(call, m);
    return ret < 0 ? ret : answer(m);
}

static void move_close(struct call *call)
{
    struct moving *m = call->state;

    if (m->temp[0] != 0)
        raw_call3(SYS_unlinkat, m->to.dir, m->temp, 0);
    close_fd(&m->in);
    close_fd(&m->out);
    place_done(&m->from);
    place_done(&m->to);
}

const struct call_ops files_move_ops = {
    .state_size = sizeof(struct moving), .open = move_open, .step = move_step, .close = move_close};
