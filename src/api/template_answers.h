/* SPDX-License-Identifier: Apache-2.0 */
/* template_answers.h: how the routes of templates show one (schema Template). */
#ifndef BRIG_API_TEMPLATE_ANSWERS_H
#define BRIG_API_TEMPLATE_ANSWERS_H

#include "api/api.h"
#include "records/templates.h"

void template_answer_put(const struct request *rq, struct json *json, const struct object *object);

#endif
