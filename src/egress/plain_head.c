/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_head.c: writes the head of a request that is sent on. It is made from what was understood, so that the server
 * cannot read anything in it that was not judged. Fields for a proxy are left out, and so is the offer to go on in
 * HTTP/2, which some clients make with every request.
 */
#include <strings.h>

#include "egress/egress_priv.h"

const char *plain_target_path(const char *target)
{
    if (target[0] == '/' || target[0] == '*')
        return target;
    const char *at = strstr(target, "://");
    at = at ? at + 3 : target;
    at += strcspn(at, "/?");
    return *at ? at : "/";
}

bool plain_upgrade_is_h2c(const struct http_head *head)
{
    const char *value = http_field(head, "upgrade");

    return value && strcasecmp(value, "h2c") == 0;
}

static bool dropped(const struct http_field *field, bool h2c)
{
    static const char *const proxys[] = {"proxy-connection", "proxy-authorization", "proxy-authenticate"};

    for (size_t i = 0; i < ARRAY_SIZE(proxys); i++) {
        if (strcasecmp(field->name, proxys[i]) == 0)
            return true;
    }
    return h2c && (strcasecmp(field->name, "upgrade") == 0 || strcasecmp(field->name, "http2-settings") == 0 ||
                   strcasecmp(field->name, "connection") == 0);
}

int plain_put_head(struct buf *out, const struct http_head *head, bool proxied)
{
    bool h2c = head->upgrade && plain_upgrade_is_h2c(head);
    const char *target = proxied ? plain_target_path(head->target) : head->target;
    int r = buf_printf(out, "%s %s%s HTTP/1.%u\r\n", head->method, target[0] == '?' ? "/" : "", target, head->minor);

    for (size_t i = 0; r == 0 && i < head->n_fields; i++) {
        if (!dropped(&head->fields[i], h2c))
            r = buf_printf(out, "%s: %s\r\n", head->fields[i].name, head->fields[i].value);
    }
    return r == 0 ? buf_append_str(out, "\r\n") : r;
}
