/* SPDX-License-Identifier: Apache-2.0 */
/* fire.h: what the files of the monitor Firecracker share. */
#ifndef BRIG_VM_FIRE_H
#define BRIG_VM_FIRE_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "vm/vm_private.h"

/* One request of its API. */
struct fire_step {
    const char *method, *target;
    void (*body)(const struct vm_box *box, struct json *json);
    /* Takes what it answers; NULL if it answers with nothing. */
    int (*answer)(struct vm_box *box, const struct json_value *json, struct brig_err *err);
};

struct fire_talk;

/*
 * fire_talk.c: connects to the socket at `path` of the sandbox around it, and makes the requests one after the other.
 * done is called once, later: err is NULL if all were answered well. It must not destroy the talk.
 */
int fire_talk_create(struct vm_box *box, const char *path, const struct fire_step *steps, size_t n_steps,
                     void (*done)(struct vm_box *box, const struct brig_err *err), struct fire_talk **ret,
                     struct brig_err *err) MUST_CHECK;
void fire_talk_destroy(struct fire_talk *talk); /* takes NULL */

/* firecracker.c: begins a call to a unix socket of the sandbox around a monitor. */
int fire_connect(struct link *link, const char *path, const struct call_events *events, struct call **ret,
                 struct brig_err *err) MUST_CHECK;

#endif
