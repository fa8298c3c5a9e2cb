/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_presets.c: the three built-in policies. `open` is the public internet: every name and every port, and no
 * private address, because no cidr rule names one. It does not refuse resolvers that speak DNS over HTTPS: they are
 * public hosts like others, and where every host is allowed there is nothing to hide.
 */
#include "base/err.h"
#include "base/str.h"
#include "gate/policy.h"

int policy_preset(const char *name, const char *packages, struct buf *out, struct brig_err *err)
{
    int r;

    if (str_eq(name, "none")) {
        r = buf_append_str(out, "{\"default\":\"deny\"}");
    } else if (str_eq(name, "open")) {
        r = buf_append_str(out, "{\"default\":\"allow\"}");
    } else if (str_eq(name, "packages")) {
        r = buf_append_str(out, "{\"default\":\"deny\",\"rules\":");
        if (r == 0)
            r = packages ? buf_append_str(out, packages) : packages_rules(-1, NULL, NULL, out, err);
        if (r == 0)
            r = buf_append_str(out, "}");
    } else {
        return err_set(err, BRIG_E_NOT_FOUND, ENOENT, "no preset \"%s\": there are none, packages and open", name);
    }
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_TOO_LARGE, -r, "preset %s", name) : 0;
}
