/* SPDX-License-Identifier: Apache-2.0 */
/* http_chars.h: the character classes of RFC 9110. Only the http*.c files use it. */
#ifndef BRIG_CODEC_HTTP_HTTP_CHARS_H
#define BRIG_CODEC_HTTP_HTTP_CHARS_H

#include "base/base.h"

#define HTTP_TOKEN 1u /* tchar: methods, field names */
#define HTTP_VALUE 2u /* bytes of a field value: SP, HTAB, VCHAR, obs-text */
#define HTTP_URI \
    4u /* Bytes of a target: those of RFC 3986, and those that browsers do not encode in a query: [ ] { } | \ ^ ` */
#define HTTP_PLAIN 8u /* unreserved of RFC 3986 */

extern const uint8_t http_chars[256];

static inline bool http_is(char c, unsigned class)
{
    return (http_chars[(uint8_t)c] & class) != 0;
}

#endif
