/* SPDX-License-Identifier: Apache-2.0 */
/* tool_rights.h: decides who may change a tool, and what a tool may ask for. */
#ifndef BRIG_RUN_TOOL_RIGHTS_H
#define BRIG_RUN_TOOL_RIGHTS_H

#include "records/registry.h"
#include "config/config.h"
#include "records/secrets.h"

/*
 * Only administrators, or the very key that set the policy, may change or delete a tool with a policy (rules, a rate
 * limit, an approval, secrets, a network, needs_credentials). The key that registers the whole tool is responsible for
 * it; after a partial change the weaker of the two is.
 */
int tool_may_change(const struct tool *tool, const struct caller *caller, struct brig_err *err) MUST_CHECK;
/*
 * Computes both hands after a write. old is NULL if there is none yet; whole: all of it is replaced; policy: the change
 * brings a policy of its own.
 */
void tool_hands(const struct tool *old, const struct caller *caller, bool whole, bool policy,
                struct tool_hand *registrant, struct tool_hand *guard);
/* Refuses already here what only an administrator may give; tool->registrant is responsible for it. */
int tool_may_ask(const struct tool *tool, const struct caller *caller, const struct secrets *secrets,
                 const struct config *config, struct brig_err *err) MUST_CHECK;
bool tool_exposes(const struct tool *tool); /* Its own list asks for the value of a secret. */

#endif
