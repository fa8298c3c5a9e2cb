/* SPDX-License-Identifier: Apache-2.0 */
/* toml_json.h: writes a value of TOML as JSON, so that one reader judges both. Dates and times become strings. */
#ifndef BRIG_CODEC_TOML_TOML_JSON_H
#define BRIG_CODEC_TOML_TOML_JSON_H

#include "codec/json/json.h"
#include "codec/toml/toml.h"

/* A number that JSON does not have (inf, nan) becomes null. */
void toml_put_json(struct json *json, const struct toml_value *value);

#endif
