/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h: a template as an archive of an image, which `docker load`, skopeo and `brig template load` take: an OCI
 * layout, and with `docker` also the manifest.json of `docker save`. brig-layer writes the tar of each layer in a
 * sandbox (layer_run.h), into a file of ours that has no name, so nothing is left of an export that ends early. Its
 * length and digests are then known, and the archive is sent piece by piece, as the client takes it.
 *
 * The same template gives the same bytes: layers are not compressed, and the only time in the documents is that of the
 * template.
 */
#ifndef BRIG_TEMPLATE_EXPORT_H
#define BRIG_TEMPLATE_EXPORT_H

#include "template/library.h"

#define EXPORTS_PER_ORG 4u /* at a time */
#define EXPORTS_MAX 32u

struct export;
struct export_events {
    void (*ready)(void *ctx, uint64_t length); /* So many bytes follow: export_next() may be called. */
    /* A piece, after export_next(). The last one is followed by done() without an error. */
    void (*data)(void *ctx, const void *data, size_t len);
    void (*done)(void *ctx, const struct brig_err *err); /* The last call; err is NULL at the end of the archive. */
    void *ctx;
};
/*
 * BRIG_E_NOT_FOUND; BRIG_E_FORBIDDEN: only those who may load export; BRIG_E_LIMIT: too many at a time. No event
 * comes from within this call.
 */
int library_export(struct library *library, const struct caller *caller, const char *name, bool docker,
                   const struct export_events *events, struct export **ret, struct brig_err *err) MUST_CHECK;
void export_next(struct export *export);
void export_cancel(struct export *export); /* no event follows */

/* For library.c. */
bool export_has_scratch(const struct library *library, const char *name);

#endif
