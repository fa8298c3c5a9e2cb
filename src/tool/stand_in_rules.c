/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_rules.c: only in a tree without tool/rules.c (src/tool/meson.build): no rule is accepted. Goes when that comes. */
#include "tool/rules.h"

#include "base/err.h"

int rules_parse(const struct json_value *json, struct rule **ret, size_t *ret_n, struct brig_err *err)
{
    (void)json, (void)ret, (void)ret_n;
    return err_usage(err, "rules: not in this build");
}

void rules_free(struct rule *rules, size_t n)
{
    (void)rules, (void)n;
}
