/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_answers.h: what the routes of files share: a path from a request, an entry as JSON, an errno of the file worker
 * as an answer.
 */
#ifndef BRIG_API_FILE_ANSWERS_H
#define BRIG_API_FILE_ANSWERS_H

#include "api/api.h"

#define FILE_OPEN_MAX 16384u /* payload of a file call: two paths and a few numbers */

/*
 * Writes the path of a request (query `path`, `path_encoding`) at the beginning of a call's payload. A path with a
 * component `..`, a NUL or more than 4,096 bytes is refused: the answer was sent, a denial is in the log, and it
 * returns false.
 */
bool files_put_path(struct request *rq, struct svc_cursor *out, unsigned flags) MUST_CHECK;
/* The same for a JSON member (name, and name_encoding). */
bool files_put_member(struct request *rq, struct svc_cursor *out, const char *name, unsigned flags) MUST_CHECK;
/* Only the bytes of a member, checked the same way (the target of a move). */
bool files_put_bytes(struct request *rq, struct svc_cursor *out, const char *name) MUST_CHECK;

/* Opens the call on the request's sandbox; false: the refusal was sent. */
bool files_call(struct request *rq, enum svc_type type, const struct svc_cursor *payload, const uint8_t *start,
                const struct call_events *events, struct call **ret) MUST_CHECK;

/* A single entry comes without a path. Its path is the one in the request; after a move, the new one. */
void files_name_entry(const struct request *rq, struct svc_entry *entry);
void files_entry_json(struct json *json, const struct svc_entry *entry);
/* "File not found: ..." and its kind: message and status for an errno that the worker gave. */
void files_error(const struct request *rq, uint32_t errnum, struct brig_err *ret);
/* The same for an archive that was refused. entry: the member at fault, "": not one of them. */
void files_tar_error(const struct request *rq, uint32_t errnum, const char *entry, struct brig_err *ret);

#endif
