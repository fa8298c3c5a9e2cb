/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h: what the files of `brig tool` share.
 *
 *   tool.c         add, ls, show, rm, schema
 *   tool_run.c     run
 *   tool_local.c   a service for one command, where there is no daemon
 */
#ifndef BRIG_CLI_TOOL_H
#define BRIG_CLI_TOOL_H

#include "cli/service.h"

#define TOOL_SOURCE_LIMIT ((size_t)1 << 20) /* as the daemon takes it */

bool tool_is_file(const char *word); /* rather than a tool's name */
/* "python", "typescript", "javascript", "bash" by the name's end; NULL: none of them (a line was said). */
const char *tool_language_of(const char *file);
int tool_run_main(int argc, char **argv);

/*
 * The daemon, or, where there is none on this machine, a service of our own: started in a new directory with a socket of its own, and ended by
 * tool_service_close(), which leaves nothing behind. Both say what is wrong.
 */
struct tool_service {
    struct client *client;
    int pid; /* of ours; 0: a daemon that was there */
    char dir[64];
};
#define AUTO_TOOL_SERVICE __attribute__((cleanup(tool_service_close)))
bool tool_service_open(struct tool_service *ret);
void tool_service_close(struct tool_service *service);

#endif
