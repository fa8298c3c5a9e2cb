/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_list.c: the list of disks in the spawner's memory: those that there are, as they were last measured, and those
 * that are being made. disk_jobs.c explains why an old measurement is safe.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "gate/gate_wire.h"
#include "spawner/disk_jobs.h"

#define LIST_MAX (8u << 20)

/* ---- the list ------------------------------------------------------------------------------------------ */

struct disk_entry *disk_entry_find(const struct spawner *spawner, const char *name)
{
    for (struct disk_entry *entry = spawner->disks.entries; entry; entry = entry->next)
        if (str_eq(entry->facts.name, name))
            return entry;
    return NULL;
}

int disk_entry_add(struct spawner *spawner, const struct disk_facts *facts, bool pending, struct brig_err *err)
{
    struct disk_entry *entry = mem_zalloc(sizeof *entry);

    if (!entry)
        return err_nomem(err);
    *entry = (struct disk_entry){.next = spawner->disks.entries, .facts = *facts, .pending = pending};
    spawner->disks.entries = entry;
    spawner->disks.n_entries++;
    return 0;
}

void disk_entry_remove(struct spawner *spawner, const char *name)
{
    for (struct disk_entry **at = &spawner->disks.entries; *at; at = &(*at)->next)
        if (str_eq((*at)->facts.name, name)) {
            struct disk_entry *entry = *at;
            *at = entry->next;
            spawner->disks.n_entries--;
            mem_free(entry);
            return;
        }
}

static uint64_t may_write(const struct disk_entry *entry)
{
    const struct disk_facts *facts = &entry->facts;

    if (!entry->pending && !disk_is_writable(facts->name))
        return 0;
    return facts->bytes > facts->own ? facts->bytes - facts->own : 0;
}

/* What all of them may still write. */
static uint64_t disks_promised(const struct spawner *spawner)
{
    uint64_t sum = 0;

    for (const struct disk_entry *entry = spawner->disks.entries; entry; entry = entry->next)
        sum += may_write(entry);
    return sum;
}

uint64_t disks_need(const struct spawner *spawner, uint64_t used)
{
    uint64_t own = 0, all = 0;

    for (const struct disk_entry *entry = spawner->disks.entries; entry; entry = entry->next)
        if (entry->pending || disk_is_writable(entry->facts.name)) {
            own += entry->facts.own;
            all += entry->facts.bytes;
        }
    uint64_t now = used > own ? used - own : 0;
    return all + (now > spawner->disks.base ? now : spawner->disks.base);
}

void disks_base_add(struct spawner *spawner, uint64_t bytes)
{
    spawner->disks.base += bytes;
    spawner->disks.base_added += bytes;
}

/* It shares all of its blocks from now on. */
void disk_entry_copied(struct spawner *spawner, const char *name)
{
    struct disk_entry *entry = name[0] ? disk_entry_find(spawner, name) : NULL;

    if (!entry || spawner->host.disks.kind == DISKS_COPIES)
        return;
    entry->facts.own = 0;
    entry->copied_at = ++spawner->disks.stamp;
}

/* It begins to share its blocks at a moment that is not known here, so until the end none of them counts as its own. */
static bool is_being_copied(const struct spawner *spawner, const char *name)
{
    for (const struct disk_job *job = spawner->disks.jobs; job; job = job->next)
        if (job->running && str_eq(disk_job_shares(job), name))
            return true;
    return false;
}

int disks_take_list(struct spawner *spawner, const struct disk_job *job, const struct disk_say *msg, int fd,
                    struct brig_err *err)
{
    AUTO_FREE char *data = NULL;
    size_t len = 0;
    uint64_t own = 0;

    if (gate_memfd_read(fd, LIST_MAX, &data, &len) < 0 || len != msg->n * sizeof(struct disk_facts))
        return err_set(err, BRIG_E_HOST, EPROTO, "list of disks");
    for (uint32_t i = 0; i < msg->n; i++) {
        struct disk_facts facts;
        memcpy(&facts, data + i * sizeof facts, sizeof facts);
        struct disk_entry *entry = disk_entry_find(spawner, facts.name);
        bool first = !entry && spawner->host.disks.kind == DISKS_CLOSED;
        if (first && disk_entry_add(spawner, &facts, false, err) < 0)
            return -ENOMEM;
        if (entry && !entry->pending && entry->copied_at < job->stamp && !is_being_copied(spawner, facts.name)) {
            entry->facts = facts;
            first = true;
        } else if (entry) {
            entry->facts.used = facts.used;
        }
        own += first && disk_is_writable(facts.name) ? facts.own : 0;
    }
    spawner->disks.base = (msg->used > own ? msg->used - own : 0) + (spawner->disks.base_added - job->base_added);
    return 0;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void fill_info(const struct spawner *spawner, const struct disk_facts *facts, struct wire_disk_info *ret)
{
    struct disk_users users = disk_users(spawner, facts->name);

    *ret = (struct wire_disk_info){.size = facts->size,
                                   .inodes = facts->inodes,
                                   .used = facts->used,
                                   .own = facts->own,
                                   .writers = users.writers,
                                   .readers = users.readers};
    str_assign(ret->name, facts->name);
}

void disk_answer(struct spawner *spawner, uint64_t number, const struct disk_facts *facts, const struct brig_err *err)
{
    struct wire_disk_done msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DISK_DONE, number}};

    if (number == 0)
        return;
    if (err)
        msg.err = *err;
    else if (facts)
        fill_info(spawner, facts, &msg.info);
    spawner_send(spawner, &msg, NULL, 0);
}

void disks_answer(struct spawner *spawner, uint64_t number, const struct brig_err *err)
{
    struct wire_disks_are msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DISKS_ARE, number}};
    AUTO_BUF struct buf all = BUF_INIT(LIST_MAX);
    struct disk_room room = {0};
    const struct disk_store *store = &spawner->host.disks;
    AUTO_FD int fd = -1;
    int r = 0;

    if (err)
        msg.err = *err;
    else if (store->kind != DISKS_CLOSED)
        r = disks_room(store, &room, &msg.err);
    for (const struct disk_entry *entry = err ? NULL : spawner->disks.entries; r == 0 && entry; entry = entry->next) {
        struct wire_disk_info info;
        if (entry->pending)
            continue;
        fill_info(spawner, &entry->facts, &info);
        msg.n++;
        if (buf_append(&all, &info, sizeof info) < 0)
            r = err_set(&msg.err, BRIG_E_TOO_LARGE, ENOMEM, "disks: too many to list");
    }
    if (!err && r == 0 && (fd = gate_memfd("disks", all.data, all.len)) < 0)
        (void)err_set(&msg.err, BRIG_E_HOST, -fd, "memfd");
    msg.kind = store->kind;
    msg.size = room.most;
    msg.used = room.used;
    msg.reserved = disks_promised(spawner);
    spawner_send(spawner, &msg, &fd, fd >= 0);
}
