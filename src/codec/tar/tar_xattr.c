/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_xattr.c: the extended attributes of a member in one block of memory: for each its name, a NUL, the length of its
 * value in four bytes, and its value.
 */
#include "codec/tar/tar.h"

#define NAME_MAX_LEN 255u /* the kernel's XATTR_NAME_MAX */

bool tar_xattr_next(const struct tar_extra *extra, uint32_t *at, const char **ret_name, const uint8_t **ret_value,
                    uint32_t *ret_len)
{
    const uint8_t *name = extra->xattrs + *at;
    size_t len;

    if (*at >= extra->xattrs_len)
        return false;
    len = __builtin_strlen((const char *)name) + 1;
    __builtin_memcpy(ret_len, name + len, sizeof(*ret_len));
    *ret_name = (const char *)name;
    *ret_value = name + len + sizeof(*ret_len);
    *at += (uint32_t)(len + sizeof(*ret_len)) + *ret_len;
    return true;
}

int tar_xattr_add(struct tar_extra *extra, const char *name, const void *value, size_t len)
{
    size_t name_len = __builtin_strlen(name);
    uint32_t value_len = (uint32_t)len;
    uint8_t *at = extra->xattrs + extra->xattrs_len;

    if (name_len > NAME_MAX_LEN || len > TAR_XATTRS_MAX ||
        name_len + 1 + sizeof(value_len) + len > TAR_XATTRS_MAX - extra->xattrs_len)
        return -E2BIG;
    __builtin_memcpy(at, name, name_len + 1);
    extra->value_at = extra->xattrs_len + (uint32_t)name_len + 1;
    __builtin_memcpy(extra->xattrs + extra->value_at, &value_len, sizeof(value_len));
    if (len > 0)
        __builtin_memcpy(extra->xattrs + extra->value_at + sizeof(value_len), value, len);
    extra->xattrs_len = extra->value_at + (uint32_t)sizeof(value_len) + value_len;
    return 0;
}

int tar_xattr_grow(struct tar_extra *extra, uint8_t byte)
{
    uint32_t len;

    if (extra->xattrs_len == TAR_XATTRS_MAX)
        return -E2BIG;
    __builtin_memcpy(&len, extra->xattrs + extra->value_at, sizeof(len));
    len++;
    __builtin_memcpy(extra->xattrs + extra->value_at, &len, sizeof(len));
    extra->xattrs[extra->xattrs_len++] = byte;
    return 0;
}
