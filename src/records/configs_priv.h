/* SPDX-License-Identifier: Apache-2.0 */
/* configs_priv.h: shared by configs.c, config_fields.c and variables.c. */
#ifndef BRIG_RECORDS_CONFIGS_PRIV_H
#define BRIG_RECORDS_CONFIGS_PRIV_H

#include "records/configs.h"
#include "records/sealed_value.h"

struct configs {
    struct configs_options options;
    struct objects *objects, *variables;
    char default_dir[4096];
};

/* config_fields.c */
bool config_type_known(const char *type); /* its fields are in the table */
bool config_has_field_of(const struct json_value *config, const char *type);

/* variables.c */
int variables_create(struct configs *configs, struct brig_err *err) MUST_CHECK;
int variables_drop(struct configs *configs, const char *org, const char *config_id,
                   struct brig_err *err) MUST_CHECK; /* all of a configuration */

#endif
