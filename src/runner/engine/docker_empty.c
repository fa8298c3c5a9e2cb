/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_empty.c: the image of a container whose root is a template. No engine makes a container without an image, and
 * nothing of this one is ever used: the container's root is replaced before anything runs in it (docker_root.c). It has
 * one empty directory, 2 KiB, and the label of this installation, whose name is part of its own: Podman 4.3 imports
 * nothing under another tag than `latest`.
 */
#include "base/err.h"
#include "codec/http/http.h"
#include "codec/tar/tar.h"
#include "runner/engine/docker.h"

static int put_archive(struct buf *archive)
{
    static const uint8_t end[2 * TAR_BLOCK];
    uint8_t header[TAR_HEADER_MAX];
    const struct tar_member member = {.kind = TAR_DIR, .mode = 0755, .name = ".brig", .name_len = 5, .link = ""};
    int len = tar_put_header(header, &member);
    int r = len < 0 ? len : buf_append(archive, header, (size_t)len);

    return r < 0 ? r : buf_append(archive, end, sizeof end);
}

int docker_empty_import(struct buf *archive, char target[DOCK_TARGET_MAX])
{
    AUTO_BUF struct buf change = BUF_INIT(256), rest = BUF_INIT(DOCK_TARGET_MAX);
    int r = put_archive(archive);

    if (r == 0)
        r = buf_printf(&change, "LABEL " DOCK_LABEL_INSTALLATION "=%s", docker.installation);
    if (r == 0)
        r = buf_append_str(&rest, "&tag=latest&changes=");
    if (r == 0)
        r = http_put_escaped(&rest, change.data, change.len, "");
    return r < 0 ? r : dock_target(target, "/images/create?fromSrc=-&repo=", docker.empty, rest.data);
}
