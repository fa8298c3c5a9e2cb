/* SPDX-License-Identifier: Apache-2.0 */
/* build_files.c: small files of a build as a tar: secrets, the script of a RUN, here-documents of a COPY. */
#include <string.h>

#include "build/build_priv.h"
#include "codec/tar/tar.h"

int files_add(struct buf *out, const struct build_file *file)
{
    static const uint8_t zeroes[TAR_BLOCK];
    const struct tar_member member = {.kind = TAR_FILE,
                                      .name = file->name,
                                      .name_len = strlen(file->name),
                                      .link = "",
                                      .mode = file->mode,
                                      .uid = file->uid,
                                      .gid = file->gid,
                                      .size = file->len};
    uint8_t *header = mem_alloc(TAR_HEADER_MAX);
    int len = header ? tar_put_header(header, &member) : -ENOMEM;
    int r = len < 0 ? len : buf_append(out, header, (size_t)len);

    mem_free(header);
    if (r == 0)
        r = buf_append(out, file->text, file->len);
    return r < 0 ? r : buf_append(out, zeroes, tar_padding(file->len));
}

int files_end(struct buf *out)
{
    static const uint8_t zeroes[2 * TAR_BLOCK];

    return out->len == 0 ? 0 : buf_append(out, zeroes, sizeof zeroes);
}
