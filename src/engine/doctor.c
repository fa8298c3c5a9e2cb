/* SPDX-License-Identifier: Apache-2.0 */
#include <brig.h>
#include <string.h>

#include "base/err.h"
int brig_doctor(const struct brig_engine_options *options, struct brig_doctor *ret, struct brig_err *err)
{
    (void)options;(void)ret;
    return err_usage(err, "later");
}
