/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h: what the files of `brig tool` share.
 *
 *   tool.c         add, ls, show, rm, schema
 *   cli_tool_run.c     run
 *   tool_answer.c  a run as it is shown
 *   tool_local.c   a service for one command, where there is no daemon
 */
#ifndef BRIG_CLI_VERBS_TOOL_H
#define BRIG_CLI_VERBS_TOOL_H

#include "cli/service.h"

#define TOOL_SOURCE_LIMIT ((size_t)1 << 20) /* as the daemon takes it */

bool tool_is_file(const char *word); /* rather than a tool's name */
/* "python", "typescript", "javascript", "bash" by the name's end; NULL: none of them (a line was said). */
const char *tool_language_of(const char *file);
int tool_run_main(int argc, char **argv);

/*
 * The daemon, or, where there is none on this machine, a service of our own: started in a new directory with a socket
 * of its own, and ended by tool_service_close(), which leaves nothing behind. All say what is wrong. From then on
 * SIGINT, SIGTERM and SIGHUP end the call that is under way, with -ECANCELED.
 */
struct tool_service {
    struct client *client;
    int pid;     /* of ours; 0: a daemon that was there */
    int signals; /* of service_signals(); -1 */
    char dir[64];
};
#define AUTO_TOOL_SERVICE __attribute__((cleanup(tool_service_close)))
bool tool_service_open(struct tool_service *ret);
bool tool_service_find(struct tool_service *ret);   /* the same, and without a word */
bool tool_service_attach(struct tool_service *ret); /* only a daemon that is there */
/* after -ECANCELED, or when it could not be opened: the exit status of whom a signal ended; 125 when none did */
int tool_service_signal(struct tool_service *service);
void tool_service_close(struct tool_service *service);

struct tool_show {
    bool json, quiet;
    bool program;        /* a snippet: stdout is its stdout, and there is no result */
    bool stream;         /* the route has events */
    const char *receipt; /* a file for the receipt; NULL */
};
/* One run: asked for, shown, and its exit status. */
int tool_ask(struct tool_service *service, const char *target, const struct buf *body, const struct tool_show *how);

#endif
