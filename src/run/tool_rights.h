/* SPDX-License-Identifier: Apache-2.0 */
/* tool_rights.h: who may change a tool, and what a tool may ask for. */
#ifndef BRIG_RUN_TOOL_RIGHTS_H
#define BRIG_RUN_TOOL_RIGHTS_H

#include "records/registry.h"
#include "config/config.h"
#include "records/secrets.h"

/*
 * A tool with a policy (rules, a rate limit, an approval, secrets, a network, needs_credentials) is changed and deleted
 * only by administrators, or by the very key that set the policy. Whoever registers it whole answers for it; a partial
 * change leaves it to the weaker of the two.
 */
int tool_may_change(const struct tool *tool, const struct caller *caller, struct brig_err *err) MUST_CHECK;
/*
 * Both hands after a write. old: NULL if there is none yet; whole: all of it is replaced; policy: the change brings a
 * policy of its own.
 */
void tool_hands(const struct tool *old, const struct caller *caller, bool whole, bool policy,
                struct tool_hand *registrant, struct tool_hand *guard);
/* What only an administrator may give is refused already here: tool->registrant is who answers for it. */
int tool_may_ask(const struct tool *tool, const struct caller *caller, const struct secrets *secrets,
                 const struct config *config, struct brig_err *err) MUST_CHECK;
bool tool_exposes(const struct tool *tool); /* its own list asks for the value of a secret */

#endif
