/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: brigd's own log: one line per request and per event, JSON or text, to stderr or a file that is reopened on
 * request. Values are escaped by the JSON writer; what could be secret (keys, bodies, queries) is never given to it.
 */
#ifndef BRIG_API_LOG_H
#define BRIG_API_LOG_H

#include <brig.h>

#include "config/config.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_MAX };

/* Takes the log file; -1: stderr. Again after a reload, or to reopen */
void log_use(const struct config *config, int fd);
void log_line(enum log_level level, const char *event, const char *format, ...) PRINTF_LIKE(3, 4);
void log_request(const char *request_id, const char *method, const char *route, const char *peer, unsigned status,
                 uint64_t duration_ns, uint64_t bytes);
bool log_wants_requests(void);

#endif
