/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_file.h: files with [[service]] of `brig create --service FILE`, and what is shown when one does not come up.
 */
#ifndef BRIG_CLI_SERVICES_SERVICE_FILE_H
#define BRIG_CLI_SERVICES_SERVICE_FILE_H

#include "cli/service.h"

/*
 * Writes the member `services` of a create from these files, and from names of the template's services that are off;
 * nothing if there are none. The daemon judges it.
 */
int service_files_put(struct json *json, const struct words *paths, const struct words *off,
                      struct brig_err *err) MUST_CHECK;
/* Prints the last lines of the service that a create has failed for, if the answer has them. */
void service_print_failed(const struct client *client);

#endif
