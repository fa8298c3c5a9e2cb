/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: trees of files of this machine as tar streams, for copies into and out of a sandbox.
 *
 * What comes out of a sandbox belongs to a stranger: nothing of it gets outside of the directory into which it is
 * unpacked, no set-id bits survive, no devices or FIFOs are made, and an existing file is replaced by a new one, never
 * written through.
 */
#ifndef BRIG_CLIENT_TREE_H
#define BRIG_CLIENT_TREE_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"

/* ---- this machine -> tar -------------------------------------------------------------------------- */

struct tree_reader;

/* It owns root, an open directory. prefix ("" or a name) is put before every name, and is then a member of its own. */
int tree_reader_create(int root, const char *prefix, struct tree_reader **ret, struct brig_err *err) MUST_CHECK;
/*
 * Returns the number of bytes of the archive, 0 at its end, or a negative errno. Files that change meanwhile are cut or
 * filled up with zeroes.
 */
ssize_t tree_reader_read(struct tree_reader *reader, void *data, size_t size, struct brig_err *err) MUST_CHECK;
/*
 * Which entries are sent: it is asked with the path below the root. An entry that is left is left with all below it;
 * a directory that is looked into is sent only if something below it is. A reader with a judge refuses what it cannot
 * read, and fails with BRIG_E_TOO_LARGE when the files have more than max_bytes (0: any number).
 */
enum tree_verdict { TREE_SEND, TREE_LEAVE, TREE_LOOK };
typedef enum tree_verdict tree_judge_fn(void *ctx, const char *path, bool is_dir);
void tree_reader_judge(struct tree_reader *reader, tree_judge_fn *judge, void *ctx, uint64_t max_bytes);
/* The sockets, devices, and (without a judge) files that could not be read. */
uint64_t tree_reader_skipped(const struct tree_reader *reader);
void tree_reader_destroy(struct tree_reader *reader); /* reader may be NULL. */

/* ---- tar -> this machine -------------------------------------------------------------------------- */

struct tree_writer;

/* Writes below root, an open directory, which it owns. */
int tree_writer_create(int root, struct tree_writer **ret, struct brig_err *err) MUST_CHECK;
int tree_writer_write(struct tree_writer *writer, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
/* Checks that the archive was whole, and sets modes and times. */
int tree_writer_finish(struct tree_writer *writer, struct brig_err *err) MUST_CHECK;
/* The bytes of all files together, and the number of names; 0 means no limit. */
void tree_writer_limit(struct tree_writer *writer, uint64_t bytes, uint64_t names);
uint64_t tree_writer_skipped(const struct tree_writer *writer);
void tree_writer_destroy(struct tree_writer *writer); /* Removes half a file. writer may be NULL. */

#endif
