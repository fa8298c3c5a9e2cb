/* SPDX-License-Identifier: Apache-2.0 */
/* layer_fail.c: the one line that says which member broke which rule; and how a hash is written. */
/* SHA256_Final() is all that is wanted here: EVP would bring 5 MiB into the program. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <stdarg.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/utf8.h"
#include "layer/layer.h"

#define SHOWN_MAX 140u /* a message has 256 bytes, and the rule must fit behind the name */

/* What could deceive and what is not UTF-8 as \xNN, as err_set() would write them. */
static void show_name(char out[SHOWN_MAX + 4], const char *name)
{
    static const char hex[] = "0123456789abcdef";
    size_t left = strlen(name), used = 0;

    while (left > 0) {
        uint32_t point = 0;
        size_t n = utf8_sequence(name, left, &point);
        bool plain = n > 0 && !utf8_is_deceptive(point);
        size_t needed = plain ? n : 4;

        if (used + needed > SHOWN_MAX) {
            memcpy(out + used, "...", 4);
            return;
        }
        if (plain) {
            memcpy(out + used, name, n);
        } else {
            n = 1;
            out[used] = '\\';
            out[used + 1] = 'x';
            out[used + 2] = hex[(uint8_t)*name >> 4];
            out[used + 3] = hex[(uint8_t)*name & 15];
        }
        used += needed;
        name += n;
        left -= n;
    }
    out[used] = '\0';
}

int layer_fail(struct brig_err *err, const char *name, int errnum, const char *format, ...)
{
    char shown[SHOWN_MAX + 4], rule[112];
    va_list args;

    show_name(shown, *name ? name : ".");
    va_start(args, format);
    vsnprintf(rule, sizeof(rule), format, args);
    va_end(args);
    return err_set(err, errnum != 0 ? BRIG_E_HOST : BRIG_E_INVALID, errnum, "%s: %s", shown, rule);
}

static bool has_dots(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* A name or a link that tar_parse() refused with -EINVAL. */
static int fail_name(struct brig_err *err, const struct tar_parser *parser)
{
    const struct tar_member *member = &parser->member;

    if (!member->name || member->name_len == 0)
        return layer_fail(err, "the archive", 0, "a member without a name");
    if (strlen(member->name) < member->name_len)
        return layer_fail(err, member->name, 0, "a name with a byte that is zero");
    if (has_dots(member->name))
        return layer_fail(err, member->name, 0, "a path that leaves the root");
    if (has_dots(parser->link_name) && member->kind == TAR_HARDLINK)
        return layer_fail(err, member->name, 0, "a hard link that leaves the root");
    return layer_fail(err, member->name, 0, "a link without a target, or a name that names nothing");
}

int layer_fail_tar(struct brig_err *err, const struct tar_parser *parser, int r, uint64_t at)
{
    const char *name = parser->member.name && parser->member.name_len > 0 ? parser->member.name : "the archive";

    switch (r) {
    case -EINVAL: return fail_name(err, parser);
    case -ENAMETOOLONG: return layer_fail(err, name, 0, "a path of more than %u bytes", TAR_NAME_MAX);
    case -EOPNOTSUPP: return layer_fail(err, name, 0, "a kind of member that a layer does not have");
    case -EFBIG: return layer_fail(err, name, 0, "a PAX header of more than %u bytes", TAR_EXTENSION_MAX);
    case -E2BIG:
        return layer_fail(err, name, 0, "extended attributes of more than %u bytes, or more than %u pieces",
                          TAR_XATTRS_MAX, TAR_PIECES_MAX);
    case -ENODATA: return layer_fail(err, "the archive", 0, "it has no end after byte %llu", (unsigned long long)at);
    default: return layer_fail(err, name, 0, "not tar, damaged or cut off at byte %llu", (unsigned long long)at);
    }
}

void layer_hex(struct SHA256state_st *hash, char out[LAYER_HEX])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t sum[SHA256_DIGEST_LENGTH];

    SHA256_Final(sum, hash);
    for (size_t i = 0; i < sizeof(sum); i++) {
        out[2 * i] = digits[sum[i] >> 4];
        out[2 * i + 1] = digits[sum[i] & 15];
    }
    out[2 * sizeof(sum)] = '\0';
}
