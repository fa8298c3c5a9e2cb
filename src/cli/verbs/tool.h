/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h: what the files of `brig tool` share.
 *
 *   tool.c          add, ls, show, rm, schema
 *   cli_tool_run.c  run
 *   tool_answer.c   shows a run
 *   tool_local.c    a service for one command, where there is no daemon
 */
#ifndef BRIG_CLI_VERBS_TOOL_H
#define BRIG_CLI_VERBS_TOOL_H

#include "cli/service.h"

#define TOOL_SOURCE_LIMIT ((size_t)1 << 20) /* The largest source that the daemon takes. */

bool tool_is_file(const char *word); /* Is it a file, and not the name of a tool? */
/*
 * Returns "python", "typescript", "javascript" or "bash" by the end of the name; NULL if it is none of them (a line was
 * printed).
 */
const char *tool_language_of(const char *file);
int tool_run_main(int argc, char **argv);

/*
 * The daemon or, if there is none on this machine, a service of our own: it is started in a new directory with a socket
 * of its own, and ended by tool_service_close(), which leaves nothing behind. All functions print what is wrong. From
 * then on SIGINT, SIGTERM and SIGHUP end the present call with -ECANCELED.
 */
struct tool_service {
    struct client *client;
    int pid;     /* The pid of our own; 0 for a daemon that was there. */
    int signals; /* The descriptor of service_signals(), or -1. */
    char dir[64];
};
#define AUTO_TOOL_SERVICE __attribute__((cleanup(tool_service_close)))
bool tool_service_open(struct tool_service *ret);
bool tool_service_find(struct tool_service *ret);   /* The same without a message. */
bool tool_service_attach(struct tool_service *ret); /* Only a daemon that is there already. */
/* After -ECANCELED, or if it could not be opened: returns the exit status for the signal, or 125 if there was none. */
int tool_service_signal(struct tool_service *service);
void tool_service_close(struct tool_service *service);

struct tool_show {
    bool json, quiet;
    bool program;        /* A snippet: its stdout is our stdout, and there is no result. */
    bool stream;         /* The route has events. */
    const char *receipt; /* A file for the receipt, or NULL. */
};
/* Asks for one run, shows it, and returns its exit status. */
int tool_ask(struct tool_service *service, const char *target, const struct buf *body, const struct tool_show *how);

#endif
