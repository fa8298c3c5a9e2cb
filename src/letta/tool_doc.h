/* SPDX-License-Identifier: Apache-2.0 */
/* tool_doc.h: a tool's document (records/registry.h) made from what a client sends, and the tool object that is
 * answered. */
#ifndef BRIG_LETTA_TOOL_DOC_H
#define BRIG_LETTA_TOOL_DOC_H

#include "letta/letta.h"
#include "records/registry.h"

#define TOOL_DOC_MAX (8u << 20)

/* Checks the members of ToolCreate (or ToolUpdate: all optional, unknown ones ignored). false: the refusal was sent. */
bool tool_body_check(struct request *rq, bool update) MUST_CHECK;

struct tool_doc {
    const struct json_value *body;
    const struct object *old; /* or NULL. An update keeps what the body lacks; an upsert keeps its maker and its tags */
    bool update;
    const char *schema; /* a schema that was derived; NULL: the body's or the old one's is used */
    size_t schema_len;
    const char *user, *project; /* project NULL: none was sent */
    bool modal;                 /* the header that asks for Modal */
    const char *hash;           /* or NULL */
    struct tool_hand registrant, guard;
};
int tool_doc_build(const struct tool_doc *in, struct buf *out, struct brig_err *err) MUST_CHECK;
/* A document of a tool that is not kept (run from source): source, schema, name and requirements of the body. */
int tool_doc_floating(const struct json_value *body, const char *schema, size_t schema_len, struct buf *out,
                      struct brig_err *err) MUST_CHECK;

void tool_doc_put(void *ctx, struct json *json, const struct object *object); /* the tool object, as lists have it */

#endif
