/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote_msg.c: turns a job for a zygote into bytes and back (zygote_msg.h).
 *
 * Invariants: no address of the spawner's travels, since the children of a zygote could read it in their memory; a
 * message that is read whole leaves no byte over.
 */
#include "spawner/zygote_msg.h"

#include <string.h>

struct zygote_head {
    uint32_t magic;
    uint32_t size; /* of this struct: another build's is another */
    uint64_t number, clone_flags;
    uint32_t cgroup, mnt; /* 1: a descriptor of it is there */
    uint32_t n_lower_dirs, n_root_links;
    struct jail_plan plan; /* without pointers and descriptors */
    struct guest_start start;
};

struct writer {
    uint8_t *at, *end;
};

static bool write_bytes(struct writer *w, const void *data, size_t len)
{
    if ((size_t)(w->end - w->at) < len)
        return false;
    if (len > 0)
        memcpy(w->at, data, len);
    w->at += len;
    return true;
}

static bool write_string(struct writer *w, const char *text)
{
    return write_bytes(w, text, strlen(text) + 1);
}

/* The plan of a message: what a copy of the struct may carry. */
static struct jail_plan bare(const struct jail_plan *plan)
{
    struct jail_plan p = *plan;

    p.setup_fd = p.control_fd = p.init_fd = p.probe_fd = p.host_proc_fd = p.rootfs_fd = p.host_mnt_fd = p.highest_fd =
        p.ids_fd = p.disk_ids_fd = -1;
    p.hostname = NULL;
    p.layers = p.new_layer = NULL;
    p.volumes = NULL;
    p.binds = NULL;
    p.tmpfs = NULL;
    memset(p.lower_dirs, 0, sizeof p.lower_dirs);
    memset(p.root_links, 0, sizeof p.root_links);
    return p;
}

static bool write_tables(struct writer *w, const struct jail_plan *p)
{
    bool good = true;

    for (unsigned i = 0; good && i < p->n_binds; i++) {
        struct plan_bind bind = p->binds[i];
        bind.mount_fd = -1;
        bind.target = NULL;
        good = write_bytes(w, &bind, sizeof bind);
    }
    for (unsigned i = 0; good && i < p->n_tmpfs; i++) {
        struct plan_tmpfs tmpfs = p->tmpfs[i];
        tmpfs.path = NULL;
        good = write_bytes(w, &tmpfs, sizeof tmpfs);
    }
    return good;
}

static bool write_strings(struct writer *w, const struct zygote_job *job, const struct zygote_head *head)
{
    const struct jail_plan *p = &job->plan;
    bool good = write_string(w, p->hostname) && write_string(w, job->workdir);

    for (unsigned i = 0; good && i < head->n_lower_dirs; i++)
        good = write_string(w, p->lower_dirs[i]);
    for (unsigned i = 0; good && i < head->n_root_links; i++)
        good = write_string(w, p->root_links[i][0]) && write_string(w, p->root_links[i][1]);
    for (unsigned i = 0; good && i < p->n_binds; i++)
        good = write_string(w, p->binds[i].target);
    for (unsigned i = 0; good && i < p->n_tmpfs; i++)
        good = write_string(w, p->tmpfs[i].path);
    return good;
}

int zygote_job_put(uint8_t *out, size_t size, const struct zygote_job *job, int fds[ZYGOTE_FDS], size_t *ret_n_fds)
{
    const struct jail_plan *p = &job->plan;
    struct writer w = {out, out + size};
    struct zygote_head head;
    size_t n = 0;

    memset(&head, 0, sizeof head); /* the gaps too */
    head.magic = ZYGOTE_MAGIC;
    head.size = sizeof head;
    head.number = job->number;
    head.clone_flags = job->clone_flags;
    head.cgroup = job->cgroup_fd >= 0;
    head.mnt = p->host_mnt_fd >= 0;
    head.plan = bare(p);
    head.start = job->start;
    head.start.workdir = head.start.strings = NULL;
    while (head.n_lower_dirs < PLAN_LOWER_DIRS && p->lower_dirs[head.n_lower_dirs])
        head.n_lower_dirs++;
    while (head.n_root_links < PLAN_LOWER_DIRS && p->root_links[head.n_root_links][0])
        head.n_root_links++;
    if (p->n_binds > WIRE_BINDS_MAX || p->n_tmpfs > WIRE_TMPFS_MAX || !write_bytes(&w, &head, sizeof head) ||
        !write_tables(&w, p) || !write_strings(&w, job, &head))
        return -EMSGSIZE;
    fds[n++] = p->setup_fd;
    fds[n++] = p->control_fd;
    fds[n++] = p->init_fd;
    fds[n++] = p->probe_fd;
    fds[n++] = p->host_proc_fd;
    if (head.mnt)
        fds[n++] = p->host_mnt_fd;
    if (head.cgroup)
        fds[n++] = job->cgroup_fd;
    for (unsigned i = 0; i < p->n_binds; i++)
        fds[n++] = p->binds[i].mount_fd;
    *ret_n_fds = n;
    return (int)(w.at - out);
}

/* ---- and back ---------------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at, *end;
};

static bool read_bytes(struct reader *r, void *out, size_t len)
{
    if ((size_t)(r->end - r->at) < len)
        return false;
    memcpy(out, r->at, len);
    r->at += len;
    return true;
}

static bool read_string(struct reader *r, const char **ret)
{
    const uint8_t *nul = r->at < r->end ? memchr(r->at, '\0', (size_t)(r->end - r->at)) : NULL;

    if (!nul)
        return false;
    *ret = (const char *)r->at;
    r->at = nul + 1;
    return true;
}

static bool read_tables(struct reader *r, struct zygote_job *job)
{
    bool good = true;

    for (unsigned i = 0; good && i < job->plan.n_binds; i++)
        good = read_bytes(r, &job->binds[i], sizeof job->binds[i]);
    for (unsigned i = 0; good && i < job->plan.n_tmpfs; i++)
        good = read_bytes(r, &job->tmpfs[i], sizeof job->tmpfs[i]);
    return good;
}

static bool read_strings(struct reader *r, struct zygote_job *job, const struct zygote_head *head)
{
    struct jail_plan *p = &job->plan;
    bool good = read_string(r, &p->hostname) && read_string(r, &job->workdir);

    for (unsigned i = 0; good && i < head->n_lower_dirs; i++)
        good = read_string(r, &p->lower_dirs[i]);
    for (unsigned i = 0; good && i < head->n_root_links; i++)
        good = read_string(r, &p->root_links[i][0]) && read_string(r, &p->root_links[i][1]);
    for (unsigned i = 0; good && i < p->n_binds; i++)
        good = read_string(r, &job->binds[i].target);
    for (unsigned i = 0; good && i < p->n_tmpfs; i++)
        good = read_string(r, &job->tmpfs[i].path);
    return good && r->at == r->end;
}

static void take_fds(struct zygote_job *job, const struct zygote_head *head, const int *fds)
{
    struct jail_plan *p = &job->plan;
    size_t n = 0;

    p->setup_fd = fds[n++];
    p->control_fd = fds[n++];
    p->init_fd = fds[n++];
    p->probe_fd = fds[n++];
    p->host_proc_fd = fds[n++];
    p->rootfs_fd = p->ids_fd = p->disk_ids_fd = -1;
    p->host_mnt_fd = head->mnt ? fds[n++] : -1;
    job->cgroup_fd = head->cgroup ? fds[n++] : -1;
    for (unsigned i = 0; i < p->n_binds; i++)
        job->binds[i].mount_fd = fds[n++];
}

int zygote_job_parse(const uint8_t *in, size_t len, const int *fds, size_t n_fds, struct zygote_job *ret)
{
    struct reader r = {in, in + len};
    struct zygote_head head;

    if (!read_bytes(&r, &head, sizeof head) || head.magic != ZYGOTE_MAGIC || head.size != sizeof head ||
        head.cgroup > 1 || head.mnt > 1 || head.n_lower_dirs > PLAN_LOWER_DIRS || head.n_root_links > PLAN_LOWER_DIRS ||
        head.plan.n_binds > WIRE_BINDS_MAX || head.plan.n_tmpfs > WIRE_TMPFS_MAX ||
        n_fds != 5u + head.mnt + head.cgroup + head.plan.n_binds)
        return -EPROTO;
    *ret = (struct zygote_job){
        .number = head.number, .clone_flags = head.clone_flags, .plan = bare(&head.plan), .start = head.start};
    ret->start.workdir = ret->start.strings = NULL;
    if (!read_tables(&r, ret) || !read_strings(&r, ret, &head))
        return -EPROTO;
    take_fds(ret, &head, fds);
    ret->plan.binds = ret->binds;
    ret->plan.tmpfs = ret->tmpfs;
    return 0;
}
