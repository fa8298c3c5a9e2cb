/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_verb.h: `brig audit verify|show|tail|export`. It runs in brigd's executable, which has the hashes and
 * signatures, but needs no daemon: only the files. The exit status is 0 if all is well, 1 if the log is not what was
 * written, 2 if it could not be read or the arguments are wrong.
 */
#ifndef BRIG_BRIGD_AUDIT_VERB_H
#define BRIG_BRIGD_AUDIT_VERB_H

int audit_verb(int argc, char **argv); /* argv[0] is "audit" */

#endif
