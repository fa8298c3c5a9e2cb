/* SPDX-License-Identifier: Apache-2.0 */
/* library_host.h: the words of library_host that are in other files than its main(), and what they share. */
#ifndef BRIG_TESTS_LIBRARY_HOST_H
#define BRIG_TESTS_LIBRARY_HOST_H

#include "host.h"

/* So many runs at once (at most 50), each with its own output and status, watched through the engine's descriptor. */
void run_many(struct brig_engine *engine, int count);

/* library_refusals.c */
void refusals(void);
void sizes(void);

/* library_lives.c */
void destroyed_while_running(void);
void spawner_killed(void);
void host_killed(void);
void pool(void);
void pool_is_single_use(void);
void fill_without_a_pool(void);
void descriptors(void);
void descriptors_stay_outside(void);
void busy_elsewhere(void);
void forked(void);

#endif
