/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_hash.c: metadata_.tool_hash as Letta computes it: SHA-256 of "source|source_type|requirements", where
 * requirements are what Python prints for a list of its requirement objects.
 */
#include <string.h>

#include "crypto/crypto.h"
#include "records/registry.h"

#define TEXT_MAX (TOOL_SOURCE_MAX + 4u * 1024u * 1024u)

/* repr() of a string: the quote it prefers, what is not plain ASCII left as it is (requirements have no control
 * characters). */
static int put_repr(struct buf *out, const char *text)
{
    char quote = strchr(text, '\'') && !strchr(text, '"') ? '"' : '\'';
    int r = buf_append(out, &quote, 1);

    for (; *text && r == 0; text++) {
        if (*text == quote || *text == '\\')
            r = buf_append(out, "\\", 1);
        if (r == 0)
            r = buf_append(out, text, 1);
    }
    return r < 0 ? r : buf_append(out, &quote, 1);
}

static int put_list(struct buf *out, const char *prefix, const char *class, const struct requirement *list, size_t n)
{
    int r = buf_printf(out, "%s[", prefix);

    for (size_t i = 0; i < n && r == 0; i++) {
        r = buf_printf(out, "%s%s(name=", i ? ", " : "", class);
        if (r == 0)
            r = put_repr(out, list[i].name);
        if (r == 0)
            r = buf_append_str(out, ", version=");
        if (r == 0)
            r = list[i].version ? put_repr(out, list[i].version) : buf_append_str(out, "None");
        if (r == 0)
            r = buf_append_str(out, ")");
    }
    return r < 0 ? r : buf_append_str(out, "]");
}

int tool_hash(const struct tool *tool, char out[13])
{
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    int r = tool->source ? buf_append(&text, tool->source, tool->source_len) : 0;

    if (r == 0)
        r = buf_printf(&text, "|%s|", tool_language_name(tool->language));
    if (r == 0 && tool->n_pip)
        r = put_list(&text, "pip:", "PipRequirement", tool->pip, tool->n_pip);
    if (r == 0 && tool->n_npm)
        r = put_list(&text, tool->n_pip ? ";npm:" : "npm:", "NpmRequirement", tool->npm, tool->n_npm);
    if (r == 0)
        r = crypto_sha256(text.data, text.len, digest);
    if (r < 0)
        return r;
    crypto_hex(digest, sizeof digest, hex);
    memcpy(out, hex, 12);
    out[12] = '\0';
    return 0;
}
