/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: trees of files of this machine as tar streams, for copies into and out of a sandbox.
 *
 * What comes out of a sandbox is a stranger's: nothing of it reaches outside the directory it is unpacked into, no
 * set-id bits survive, no devices or fifos are made, and what is there is replaced by a new file, never written
 * through.
 */
#ifndef BRIG_CLIENT_TREE_H
#define BRIG_CLIENT_TREE_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"

/* ---- this machine -> tar -------------------------------------------------------------------------- */

struct tree_reader;

/* root: an open directory, taken over. prefix: put before every name ("" or a name), and then a member of its own. */
int tree_reader_create(int root, const char *prefix, struct tree_reader **ret, struct brig_err *err) MUST_CHECK;
/*
 * Bytes of the archive; 0 at its end; a negative errno. Files that change meanwhile are cut or filled up with zeroes.
 */
ssize_t tree_reader_read(struct tree_reader *reader, void *data, size_t size, struct brig_err *err) MUST_CHECK;
uint64_t tree_reader_skipped(const struct tree_reader *reader); /* sockets, devices, what could not be read */
void tree_reader_destroy(struct tree_reader *reader);           /* takes NULL */

/* ---- tar -> this machine -------------------------------------------------------------------------- */

struct tree_writer;

/* Below root, an open directory, taken over. */
int tree_writer_create(int root, struct tree_writer **ret, struct brig_err *err) MUST_CHECK;
int tree_writer_write(struct tree_writer *writer, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
/* the archive was whole; modes and times */
int tree_writer_finish(struct tree_writer *writer, struct brig_err *err) MUST_CHECK;
void tree_writer_limit(struct tree_writer *writer, uint64_t bytes); /* of all files together; 0: none */
uint64_t tree_writer_skipped(const struct tree_writer *writer);
void tree_writer_destroy(struct tree_writer *writer); /* takes NULL; half a file is removed */

#endif
