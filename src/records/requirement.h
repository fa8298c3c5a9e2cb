/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requirement.h: what a tenant may ask pip and npm for. requirement_ok() judges one requirement of a request,
 * requirement_line_ok() a line of a requirements.txt, which may also have a marker (`; python_version < "3.12"`) and
 * hashes (`--hash=sha256:...`).
 */
#ifndef BRIG_RECORDS_REQUIREMENT_H
#define BRIG_RECORDS_REQUIREMENT_H

#include "base/err.h"

#define REQUIREMENT_MAX 1024u            /* bytes of one */
#define REQUIREMENT_LINE_MAX (16u << 10) /* of one line with its hashes */
#define REQUIREMENTS_MAX 1000u           /* of one set, and lines of a requirements.txt that say something */
#define REQUIREMENTS_TXT_MAX (256u << 10)

/* A requirement as a request has it: name[extras](op version)?; options, paths and URLs are refused (BRIG_E_USAGE names
 * it) unless allow_urls. npm: name[@version]. */
int requirement_ok(const char *text, bool npm, bool allow_urls, struct brig_err *err) MUST_CHECK;
/* One logical line without comment, as requirements_read() makes them. */
int requirement_line_ok(const char *line, bool allow_urls, struct brig_err *err) MUST_CHECK;
/* Is it `name==version --hash=...`? Such a line always gives the same package. */
bool requirement_pinned(const char *line);
/* Calls put() for each logical line that says something: comments and blanks cut, continued lines joined. put() returns
 * 0 or a negative errno, which ends it and is returned. */
int requirements_read(const char *text, bool allow_urls, int (*put)(void *ctx, const char *line), void *ctx,
                      struct brig_err *err) MUST_CHECK;

#endif
