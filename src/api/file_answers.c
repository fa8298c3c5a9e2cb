/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_answers.c: paths, entries and errors of the file routes. No path is resolved here: the work is done inside the
 * sandbox, as its user. What is refused here is what no caller can mean well: `..` as a component, a NUL, more than the
 * kernel takes.
 */
#include "api/file_answers.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/err.h"
#include "base/str.h"
#include "codec/tar/tar.h"

static bool has_dotdot(const char *path, size_t len)
{
    for (size_t at = 0; at <= len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t n = (slash ? (size_t)(slash - path) : len) - at;

        if (n == 2 && memcmp(path + at, "..", 2) == 0)
            return true;
        at += n + 1;
    }
    return false;
}

static bool refuse_path(struct request *rq, const char *rule)
{
    api_denied(rq->api, &rq->caller, sbox_id(rq->sbox), rule);
    return request_refuse(rq, BRIG_E_USAGE, "path: %s", rule), false;
}

/* out has SVC_PATH_MAX bytes. */
static bool take_path(struct request *rq, const char *text, size_t len, const char *encoding, char *out,
                      size_t *ret_len)
{
    if (encoding && !str_eq(encoding, "base64") && !str_eq(encoding, "utf-8"))
        return request_refuse(rq, BRIG_E_USAGE, "path_encoding: must be utf-8 or base64"), false;
    if (encoding && str_eq(encoding, "base64")) {
        while (len > 0 && text[len - 1] == '=') /* both alphabets, padding optional; strict otherwise */
            len--;
        ssize_t n = base64_decode(text, len, NULL, out, SVC_PATH_MAX);
        if (n < 0)
            return refuse_path(rq, "is not base64 of at most 4096 bytes");
        len = (size_t)n;
    } else {
        if (len > SVC_PATH_MAX)
            return refuse_path(rq, "is longer than 4096 bytes");
        memcpy(out, text, len);
    }
    if (len == 0)
        return refuse_path(rq, "is empty");
    if (memchr(out, '\0', len))
        return refuse_path(rq, "contains a NUL");
    if (has_dotdot(out, len))
        return refuse_path(rq, "has a component `..`");
    *ret_len = len;
    return true;
}

static void put_path(struct request *rq, struct svc_cursor *out, unsigned flags, const char *path, size_t len)
{
    const struct sbox_spec *spec = sbox_spec(rq->sbox);
    size_t base = strlen(spec->workdir);

    /* Confined, an absolute path below the working directory means the same as the relative one. */
    if (spec->confine && len > base && memcmp(path, spec->workdir, base) == 0 && path[base] == '/') {
        path += base + 1;
        len -= base + 1;
        if (len == 0)
            path = ".", len = 1;
    }
    const struct svc_path message = {.flags = flags | (spec->confine ? SVC_PATH_CONFINE : 0),
                                     .base = {spec->workdir, (uint32_t)strlen(spec->workdir)},
                                     .path = {path, (uint32_t)len}};

    svc_put_path(out, &message);
}

bool files_put_path(struct request *rq, struct svc_cursor *out, unsigned flags)
{
    const struct http_target *target = exchange_target(rq->x);
    char path[SVC_PATH_MAX];
    size_t len = 0;

    for (size_t i = 0; i < target->n_query; i++)
        if (str_eq(target->query[i].name, "path")) {
            if (!take_path(rq, target->query[i].value, target->query[i].value_len, request_query(rq, "path_encoding"),
                           path, &len))
                return false;
            put_path(rq, out, flags, path, len);
            return true;
        }
    return request_refuse(rq, BRIG_E_USAGE, "path: is needed"), false;
}

static bool take_member(struct request *rq, const char *name, char *path, size_t *ret_len)
{
    const struct json_value *value = json_get(rq->json, name);
    char encoding_name[64];

    snprintf(encoding_name, sizeof encoding_name, "%s_encoding", name);
    const struct json_value *encoding = json_get(rq->json, encoding_name);
    if (!value || value->type != JSON_STRING || (encoding && encoding->type != JSON_STRING))
        return request_refuse(rq, BRIG_E_USAGE, "%s: must be text", name), false;
    return take_path(rq, value->string, value->len, encoding ? encoding->string : NULL, path, ret_len);
}

bool files_put_member(struct request *rq, struct svc_cursor *out, const char *name, unsigned flags)
{
    char path[SVC_PATH_MAX];
    size_t len = 0;

    if (!take_member(rq, name, path, &len))
        return false;
    put_path(rq, out, flags, path, len);
    return true;
}

bool files_put_bytes(struct request *rq, struct svc_cursor *out, const char *name)
{
    char path[SVC_PATH_MAX];
    size_t len = 0;

    if (!take_member(rq, name, path, &len))
        return false;
    svc_put_bytes(out, (struct svc_bytes){path, (uint32_t)len});
    return true;
}

bool files_call(struct request *rq, enum svc_type type, const struct svc_cursor *payload, const uint8_t *start,
                const struct call_events *events, struct call **ret)
{
    struct brig_err err;

    if (payload->bad)
        return request_refuse(rq, BRIG_E_USAGE, "path: is too long"), false;
    if (link_call(sbox_link(rq->sbox), type, start, (size_t)(payload->at - start), events, ret, &err) < 0)
        return request_fail(rq, &err), false;
    return true;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void put_name(struct json *json, const char *name, struct svc_bytes bytes)
{
    char encoding[32];

    snprintf(encoding, sizeof encoding, "%s_encoding", name);
    api_put_bytes(json, name, encoding, json_utf8_valid(bytes.data, bytes.len), bytes.data, bytes.len);
}

void files_entry_json(struct json *json, const struct svc_entry *entry)
{
    static const char *const types[SVC_FILE_TYPE_MAX] = {"file",   "directory", "symlink", "fifo",
                                                         "socket", "char",      "block"};
    char mode[8];

    json_object(json);
    put_name(json, "path", entry->path);
    json_key_string(json, "type", entry->type < SVC_FILE_TYPE_MAX ? types[entry->type] : "unknown");
    json_key_u64(json, "size", entry->size);
    json_key_u64(json, "allocated", entry->blocks < UINT64_MAX / 512 ? entry->blocks * 512 : UINT64_MAX);
    snprintf(mode, sizeof mode, "%04o", entry->mode & 07777);
    json_key_string(json, "mode", mode);
    json_key_u64(json, "uid", entry->uid);
    json_key_u64(json, "gid", entry->gid);
    json_key_u64(json, "links", entry->nlink);
    json_key_time(json, "mtime", entry->mtime_ns, API_TIME_DIGITS);
    if (entry->type == SVC_SYMLINK)
        put_name(json, "target", entry->target);
    json_end(json);
}

void files_name_entry(const struct request *rq, struct svc_entry *entry)
{
    const struct http_target *target = rq->x ? exchange_target(rq->x) : NULL;
    const struct json_value *member = rq->json ? json_get(rq->json, "to") : NULL;

    if (rq->json && !member)
        member = json_get(rq->json, "path");
    if (member && member->type == JSON_STRING)
        entry->path = (struct svc_bytes){member->string, (uint32_t)member->len};
    for (size_t i = 0; !rq->json && target && i < target->n_query; i++)
        if (str_eq(target->query[i].name, "path"))
            entry->path = (struct svc_bytes){target->query[i].value, (uint32_t)target->query[i].value_len};
}

static void error_about(uint32_t errnum, const char *what, struct brig_err *ret)
{
    static const struct {
        int errnum;
        enum brig_code code;
        const char *text;
    } known[] = {
        {ENOENT, BRIG_E_NOT_FOUND, "File not found"},
        {ENOTDIR, BRIG_E_CONFLICT, "a part of the path is not a directory"},
        {EISDIR, BRIG_E_CONFLICT, "it is a directory"},
        {EEXIST, BRIG_E_CONFLICT, "it exists already"},
        {ENOTEMPTY, BRIG_E_CONFLICT, "the directory is not empty (recursive=1 removes it with its content)"},
        {ENXIO, BRIG_E_CONFLICT, "it is no regular file: it has a type, but no content to transfer"},
        {EACCES, BRIG_E_FORBIDDEN, "the sandbox's user may not do that"},
        {EPERM, BRIG_E_FORBIDDEN, "the sandbox's user may not do that"},
        {EROFS, BRIG_E_FORBIDDEN, "it is read-only in the sandbox"},
        {EXDEV, BRIG_E_USAGE, "leads out of the working directory (confine), or to another file system"},
        {ELOOP, BRIG_E_USAGE, "a symlink is in the way"},
        {EINVAL, BRIG_E_USAGE, "not a path that can be used here"},
        {ENAMETOOLONG, BRIG_E_USAGE, "a name in the path is too long"},
        {EBADMSG, BRIG_E_USAGE, "the archive is damaged"},
        {EFBIG, BRIG_E_TOO_LARGE, "larger than the limit"},
        {ENOSPC, BRIG_E_LIMIT, "the sandbox's disk is full"},
        {EDQUOT, BRIG_E_LIMIT, "the sandbox's disk is full"},
        {EMFILE, BRIG_E_LIMIT, "too many open files in the sandbox"},
        {EAGAIN, BRIG_E_LIMIT, "the sandbox is at its limit of processes or calls"},
        {ENOTCONN, BRIG_E_GONE, "the sandbox is gone"},
        {ECANCELED, BRIG_E_CONFLICT, "cancelled"},
        {ESTALE, BRIG_E_CONFLICT, "it changed while it was read"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].errnum == (int)errnum) {
            (void)err_set(ret, known[i].code, 0, "%s: %.150s", known[i].text, what);
            return;
        }
    (void)err_set(ret, BRIG_E_HOST, (int)errnum, "file %.150s", what);
}

void files_error(const struct request *rq, uint32_t errnum, struct brig_err *ret)
{
    const char *path = request_query(rq, "path");

    if (!path && rq->json) {
        const struct json_value *member =
            json_get(rq->json, "path") ? json_get(rq->json, "path") : json_get(rq->json, "from");
        path = member && member->type == JSON_STRING ? member->string : NULL;
    }
    error_about(errnum, path ? path : "", ret);
}

void files_tar_error(const struct request *rq, uint32_t errnum, const char *entry, struct brig_err *ret)
{
    char what[160];

    snprintf(what, sizeof what, "entry %.120s of the archive", entry);
    if (errnum == EOPNOTSUPP)
        (void)err_set(ret, BRIG_E_USAGE, 0, "%s: sparse files, further volumes and unknown kinds are not taken",
                      entry[0] ? what : "the archive");
    else if (errnum == EFBIG && !entry[0])
        (void)err_set(ret, BRIG_E_TOO_LARGE, 0, "a PAX header of the archive has more than %u bytes",
                      TAR_EXTENSION_MAX);
    else if (errnum == EINVAL && entry[0])
        (void)err_set(ret, BRIG_E_USAGE, 0, "%s: a name or link with `..`, an empty name, or a link to itself", what);
    else if (errnum == EPERM && entry[0])
        (void)err_set(ret, BRIG_E_FORBIDDEN, 0, "%s: a device, or the sandbox's user may not do that", what);
    else if (entry[0])
        error_about(errnum, what, ret);
    else
        files_error(rq, errnum, ret);
}
