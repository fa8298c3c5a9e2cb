/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_list.c: finds sandboxes. Every sandbox is in exactly one list, that of its state, so that nobody walks over
 * two thousand waiting sandboxes to find the one that died. A sandbox with a run is also in a bucket by the run's
 * number, by which the engine names it.
 */
#include "base/list.h"
#include "spawner/spawner.h"

static void unlink_from(struct spawner *spawner, struct sandbox *s)
{
    list_remove(&spawner->lists[s->state], s);
    s->next = s->prev = NULL;
}

static void link_to(struct spawner *spawner, struct sandbox *s)
{
    list_push(&spawner->lists[s->state], s);
}

void sandbox_list_add(struct spawner *spawner, struct sandbox *s)
{
    link_to(spawner, s);
    spawner->n_sandboxes++;
}

void sandbox_list_move(struct sandbox *s, enum sandbox_state state)
{
    unlink_from(s->spawner, s);
    s->state = state;
    link_to(s->spawner, s);
}

void sandbox_list_remove(struct sandbox *s)
{
    unlink_from(s->spawner, s);
    s->spawner->n_sandboxes--;
}

static struct sandbox **bucket(struct spawner *spawner, uint64_t number)
{
    return &spawner->runs[number % RUN_BUCKETS]; /* the engine counts: its numbers spread by themselves */
}

void sandbox_set_run(struct sandbox *s, struct run_spec *run)
{
    struct sandbox **at = bucket(s->spawner, run->number);

    s->run = run;
    s->same_bucket = *at;
    *at = s;
}

struct run_spec *sandbox_take_run(struct sandbox *s)
{
    struct run_spec *run = s->run;

    if (!run)
        return NULL;
    for (struct sandbox **at = bucket(s->spawner, run->number); *at; at = &(*at)->same_bucket)
        if (*at == s) {
            *at = s->same_bucket;
            break;
        }
    s->same_bucket = NULL;
    s->run = NULL;
    return run;
}

struct sandbox *sandbox_by_run(struct spawner *spawner, uint64_t number)
{
    struct sandbox *s = *bucket(spawner, number);

    while (s && s->run->number != number)
        s = s->same_bucket;
    return s;
}
