/* SPDX-License-Identifier: Apache-2.0 */
/* The table. A code that is not in it (there is none: see the assertion) would be the service's own fault, so 500. */
#include "http/errors.h"

#include <assert.h>

#include "base/base.h"

static const struct {
    unsigned status;
    const char *code, *hint;
} table[] = {
    [BRIG_E_NONE] = {500, "internal", NULL},
    [BRIG_E_USAGE] = {400, "invalid_argument", NULL},
    [BRIG_E_REFUSED] = {422, "refused",
                        "brig doctor shows what this host can do; require and profile say what a sandbox asks for"},
    [BRIG_E_UNSUPPORTED] = {422, "unsupported", "brig doctor shows what this host can do"},
    [BRIG_E_HOST] = {500, "host_error", "the daemon's log has the same request_id"},
    [BRIG_E_NOMEM] = {503, "out_of_memory", "try again when the host has memory"},
    [BRIG_E_GONE] = {503, "sandbox_gone", "create a new sandbox; its death certificate says why it ended"},
    [BRIG_E_UNAUTHENTICATED] = {401, "unauthenticated", "send Authorization: Bearer KEY or X-API-Key: KEY"},
    [BRIG_E_FORBIDDEN] = {403, "forbidden", NULL},
    [BRIG_E_NOT_FOUND] = {404, "not_found", NULL},
    [BRIG_E_CONFLICT] = {409, "conflict", NULL},
    [BRIG_E_LIMIT] = {429, "limit", "end something, or try again later"},
    [BRIG_E_TOO_LARGE] = {413, "too_large", NULL},
    [BRIG_E_TIMEOUT] = {408, "timeout", NULL},
    [BRIG_E_BUSY] = {503, "busy", "try again later"},
    [BRIG_E_INVALID] = {422, "invalid", NULL},
    [BRIG_E_OFF] = {501, "not_enabled", "brig provider ls shows which providers can be used, and why not"},
};
static_assert(ARRAY_SIZE(table) == BRIG_E_MAX, "every code has a row");

static size_t row(int brig_code)
{
    return brig_code > 0 && brig_code < BRIG_E_MAX ? (size_t)brig_code : BRIG_E_NONE;
}

unsigned error_status(int brig_code)
{
    return table[row(brig_code)].status;
}

const char *error_code(int brig_code)
{
    return table[row(brig_code)].code;
}

const char *error_hint(const struct brig_err *err)
{
    return table[row(err->code)].hint;
}
