/* SPDX-License-Identifier: Apache-2.0 */
/* export_priv.h: what the files behind export.h share. */
#ifndef BRIG_TEMPLATE_EXPORT_PRIV_H
#define BRIG_TEMPLATE_EXPORT_PRIV_H

#include "crypto/crypto.h"
#include "template/export.h"
#include "template/library_priv.h"

#define EXPORT_DOCUMENTS (24u << 20) /* the bytes of all documents and headers */

struct export_layer {
    uint64_t offset, size; /* of its tar in the file */
    char digest[SHA256_HEX];
    bool again; /* a layer before it is the same: the archive has it once */
};

/* Writes all of the archive that comes before the layers: documents with their headers. */
int export_documents(const struct template_copy *template, const struct export_layer *layers, bool docker,
                     struct buf *out, struct brig_err *err) MUST_CHECK;
/* The header of a blob. */
int export_blob_head(const char *digest, uint64_t size, struct buf *out, struct brig_err *err) MUST_CHECK;

#endif
