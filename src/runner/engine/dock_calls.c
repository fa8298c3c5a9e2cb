/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dock_calls.c: the version that we speak with an engine, the targets of requests, and what an inspection says.
 *
 * We know the API from 1.41 (Docker 20.10, and what Podman 4 serves) to API_MAX. An engine says the highest and
 * the lowest that it has; the highest common one is spoken. A name goes into a target with every byte encoded that
 * could mean something else there.
 */
#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/http/http.h"
#include "codec/json/json.h"
#include "runner/engine/dock.h"

#define API_MAJOR 1u
#define API_MIN 41u
#define API_MAX 52u

/* Reads the 41 of "1.41"; 0 if it is none. */
static unsigned minor_of(const char *text)
{
    uint64_t minor;

    return str_starts(text, "1.") && parse_u64(text + 2, &minor) == 0 && minor < 1000 ? (unsigned)minor : 0;
}

static bool is_podman(const struct json_value *json)
{
    for (const struct json_value *part = json_get_items(json, "Components"); part; part = part->next)
        if (str_starts(json_get_text(part, "Name", ""), "Podman"))
            return true;
    return false;
}

int dock_settle(struct dock *dock, const struct json_value *json, struct dock_engine *ret, struct brig_err *err)
{
    const unsigned highest = minor_of(json_get_text(json, "ApiVersion", "")),
                   lowest = minor_of(json_get_text(json, "MinAPIVersion", "1.12"));

    ret->podman = is_podman(json);
    str_cut(ret->version, sizeof ret->version, json_get_text(json, "Version", ""));
    if (highest < API_MIN || lowest > API_MAX)
        return err_set(err, BRIG_E_OFF, 0,
                       "%.100s: the engine speaks API %.8s to %.8s, and we need one of %u.%u to %u.%u", dock->socket,
                       json_get_text(json, "MinAPIVersion", "?"), json_get_text(json, "ApiVersion", "?"), API_MAJOR,
                       API_MIN, API_MAJOR, API_MAX);
    if (str_format(dock->api, sizeof dock->api, "%u.%u", API_MAJOR, highest < API_MAX ? highest : API_MAX) < 0)
        return -EINVAL;
    return 0;
}

/* ---- targets -------------------------------------------------------------------------------------------------- */

static int put_target(const struct buf *buf, int r, char out[DOCK_TARGET_MAX])
{
    if (r < 0 || str_copy(out, DOCK_TARGET_MAX, buf->data) < 0)
        return -ENAMETOOLONG;
    return 0;
}

int dock_target(char out[DOCK_TARGET_MAX], const char *before, const char *name, const char *after)
{
    AUTO_BUF struct buf buf = BUF_INIT(DOCK_TARGET_MAX);
    int r = buf_append_str(&buf, before);

    if (r == 0) /* The engine's routes take the slashes of an image's name as they are. */
        r = http_put_escaped(&buf, name, strlen(name), "/:@");
    if (r == 0)
        r = buf_append_str(&buf, after);
    return put_target(&buf, r, out);
}

static int filter_target(char out[DOCK_TARGET_MAX], const char *before, const char *installation, bool dangling)
{
    AUTO_BUF struct buf filter = BUF_INIT(DOCK_TARGET_MAX), label = BUF_INIT(DOCK_TARGET_MAX),
                        buf = BUF_INIT(DOCK_TARGET_MAX);
    struct json json = JSON_INIT(&filter);
    int r = buf_printf(&label, DOCK_LABEL_INSTALLATION "=%s", installation);

    if (r < 0)
        return -ENAMETOOLONG;
    json_object(&json);
    json_key_array(&json, "label"), json_string(&json, label.data), json_end(&json);
    if (dangling)
        json_key_array(&json, "dangling"), json_string(&json, "true"), json_end(&json);
    json_end(&json);
    r = json_finish(&json);
    if (r == 0)
        r = buf_append_str(&buf, before);
    if (r == 0)
        r = http_put_escaped(&buf, filter.data, filter.len, "");
    return put_target(&buf, r, out);
}

int dock_list_target(char out[DOCK_TARGET_MAX], const char *installation)
{
    return filter_target(out, "/containers/json?all=1&filters=", installation, false);
}

int dock_prune_target(char out[DOCK_TARGET_MAX], const char *installation)
{
    return filter_target(out, "/images/prune?filters=", installation, true);
}

/* ---- an inspection -------------------------------------------------------------------------------------------- */

void dock_state_read(const struct json_value *json, struct dock_state *ret)
{
    const struct json_value *state = json_get(json, "State"), *labels = json_get(json_get(json, "Config"), "Labels"),
                            *code = json_get(state, "ExitCode");

    *ret = (struct dock_state){
        .id = json_get_text(json, "Id", ""),
        .image = json_get_text(json, "Image", ""),
        .status = json_get_text(state, "Status", ""),
        .error = json_get_text(state, "Error", ""),
        .installation = json_get_text(labels, DOCK_LABEL_INSTALLATION, ""),
        .sandbox = json_get_text(labels, DOCK_LABEL_SANDBOX, ""),
        .running = json_get_bool(state, "Running"),
        .paused = json_get_bool(state, "Paused"),
        .oom = json_get_bool(state, "OOMKilled"),
        .pid = json_get_u64(state, "Pid"),
        .exit_code = code && code->type == JSON_NUMBER && code->integer ? code->i64 : -1,
    };
}
