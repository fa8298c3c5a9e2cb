/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.c: the states of a sandbox, and the one table of allowed transitions. No other code writes sbox->state, so a
 * race is decided here: the first transition wins, and the second gets an error with the present state.
 */
#include "sandbox/private.h"

static const char *const names[] = {"creating", "running", "pausing", "paused", "resuming", "stopping", "ended"};
_Static_assert(ARRAY_SIZE(names) == SBOX_STATE_MAX, "a name for every state");

#define TO(state) (1u << SBOX_##state)

static const unsigned allowed[SBOX_STATE_MAX] = {
    [SBOX_CREATING] = TO(RUNNING) | TO(STOPPING),
    /* to CREATING: it died and is made anew (on_death: recreate) */
    [SBOX_RUNNING] = TO(PAUSING) | TO(STOPPING) | TO(CREATING),
    [SBOX_PAUSING] = TO(PAUSED) | TO(RUNNING) | TO(STOPPING) | TO(CREATING),
    [SBOX_PAUSED] = TO(RESUMING) | TO(STOPPING) | TO(CREATING),
    [SBOX_RESUMING] = TO(RUNNING) | TO(PAUSED) | TO(STOPPING) | TO(CREATING),
    [SBOX_STOPPING] = TO(ENDED),
    [SBOX_ENDED] = 0,
};

const char *sbox_state_name(enum sbox_state state)
{
    return (unsigned)state < SBOX_STATE_MAX ? names[state] : "unknown";
}

bool state_allows(enum sbox_state from, enum sbox_state to)
{
    return (unsigned)from < SBOX_STATE_MAX && (unsigned)to < SBOX_STATE_MAX && (allowed[from] >> to & 1u);
}

int sbox_move(struct sbox *sbox, enum sbox_state to, struct brig_err *err)
{
    if (!state_allows(sbox->state, to))
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s: it cannot become %s", sbox_label(sbox),
                       sbox_state_name(sbox->state), sbox_state_name(to));
    struct manager_stats *stats = &sbox->manager->stats;
    if (!sbox->priv->internal) {
        stats->sandboxes[sbox->state]--;
        stats->sandboxes[to]++;
    }
    sbox->state = to;
    sbox->updated_at_ns = clock_real_ns();
    /* What can be talked to follows from the state, here and nowhere else. */
    sbox->link = to == SBOX_RUNNING && !sbox->priv->link_gone ? sbox->priv->link : NULL;
    return 0;
}

void sbox_moved(struct sbox *sbox, enum sbox_state to)
{
    int r = sbox_move(sbox, to, NULL);

    if (r < 0)
        abort(); /* the table and the caller disagree: going on would be half a state */
}

int sbox_usable(const struct sbox *sbox, struct brig_err *err)
{
    if (sbox->state != SBOX_RUNNING)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s, not running", sbox_label(sbox),
                       sbox_state_name(sbox->state));
    if (!sbox->link)
        return err_set(err, BRIG_E_GONE, 0, "sandbox %s does not answer any more", sbox_label(sbox));
    return 0;
}
