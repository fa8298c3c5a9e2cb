/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.c: error messages. They quote values that came from outside, and they reach terminals and logs. So every control
 * character, every one that changes how a line looks (the direction of text, for one) and every byte that is not UTF-8
 * is written as \xNN, and a message that is too long is cut between characters. errno stays as it was.
 */
#include "base/err.h"

#include <stdarg.h>

#include "base/utf8.h"

static int code_errno(enum brig_code code)
{
    switch (code) {
    case BRIG_E_USAGE: return EINVAL;
    case BRIG_E_REFUSED: return EPERM;
    case BRIG_E_UNSUPPORTED: return EOPNOTSUPP;
    case BRIG_E_NOMEM: return ENOMEM;
    case BRIG_E_GONE: return EPIPE;
    case BRIG_E_UNAUTHENTICATED: return EACCES;
    case BRIG_E_FORBIDDEN: return EPERM;
    case BRIG_E_NOT_FOUND: return ENOENT;
    case BRIG_E_CONFLICT: return EEXIST;
    case BRIG_E_LIMIT: return EAGAIN;
    case BRIG_E_TOO_LARGE: return EFBIG;
    case BRIG_E_TIMEOUT: return ETIMEDOUT;
    case BRIG_E_BUSY: return EBUSY;
    case BRIG_E_INVALID: return EINVAL;
    case BRIG_E_OFF: return EOPNOTSUPP;
    default: return EIO;
    }
}

/*
 * Returns the text of an errno. libc has no text for 524, the kernel's own ENOTSUPP: seccomp answers it when the host's
 * one budget for the machine code of all filters is used up.
 */
static const char *reason_of(int errnum)
{
    const char *reason = errnum == 524
                             ? "no room for the filter's machine code: net.core.bpf_jit_limit of this host is used up"
                             : strerrordesc_np(errnum);

    return reason ? reason : "unknown error";
}

/* Appends text to the message from position at; returns the new position. */
static size_t put_escaped(struct brig_err *err, size_t at, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    const size_t room = sizeof(err->message) - 1;
    size_t left = strlen(text);

    while (left > 0) {
        uint32_t point = 0;
        size_t n = utf8_sequence(text, left, &point);
        if (n > 0 && !utf8_is_deceptive(point)) {
            if (at + n > room)
                break;
            memcpy(err->message + at, text, n);
            at += n;
        } else {
            uint8_t byte = (uint8_t)*text;
            if (at + 4 > room)
                break;
            err->message[at++] = '\\';
            err->message[at++] = 'x';
            err->message[at++] = hex[byte >> 4];
            err->message[at++] = hex[byte & 15];
            /* A character of several bytes: the others are not UTF-8 by themselves and are escaped in their turn. */
            n = 1;
        }
        text += n;
        left -= n;
    }
    err->message[at] = '\0';
    return at;
}

int err_set(struct brig_err *err, enum brig_code code, int errnum, const char *format, ...)
{
    int saved = errno;

    if (errnum < 0)
        errnum = -errnum;
    if (err) {
        char text[sizeof(err->message) * 2];
        va_list args;

        va_start(args, format);
        if (vsnprintf(text, sizeof(text), format, args) < 0)
            text[0] = '\0';
        va_end(args);

        err->code = (int)code;
        err->errnum = errnum;
        size_t at = put_escaped(err, 0, text);
        /* "out of memory: Cannot allocate memory" says it twice. */
        if (errnum != 0 && code != BRIG_E_NOMEM) {
            at = put_escaped(err, at, ": ");
            put_escaped(err, at, reason_of(errnum));
        }
    }
    errno = saved;
    return -(errnum != 0 ? errnum : code_errno(code));
}
