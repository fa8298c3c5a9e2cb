/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_file.c: reads files with [[service]] and sends them as JSON. Only the shape of the file is judged here: what
 * a service may be is the daemon's rule, and its message names the service.
 */
#include "cli/services/service_file.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/escape.h"
#include "codec/toml/toml_json.h"

static int put_file(struct json *json, const char *path, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(TOML_MAX_BYTES);
    struct toml_doc *doc = NULL;
    struct brig_err why = {0};

    if (!service_read_file(path, &text))
        return err_usage(err, "--service %.160s: cannot be read", path);
    int r = toml_read(text.data ? text.data : "", text.len, &doc, &why);
    if (r < 0)
        return err_usage(err, "%.120s: %.120s", path, why.message);
    for (const struct toml_value *v = toml_root(doc)->first; r == 0 && v; v = v->next)
        if (!str_eq(v->key, "service") || v->type != TOML_ARRAY)
            r = err_usage(err, "%.120s:%u: only [[service]] belongs here, not %.64s", path, v->line, v->key);
    const struct toml_value *list = toml_get(toml_root(doc), "service");
    if (r == 0 && !list)
        r = err_usage(err, "%.160s: has no [[service]]", path);
    for (const struct toml_value *v = r == 0 ? list->first : NULL; v; v = v->next)
        toml_put_json(json, v);
    toml_free(doc);
    return r;
}

int service_files_put(struct json *json, const struct words *paths, const struct words *off, struct brig_err *err)
{
    int r = 0;

    if (paths->n + off->n == 0)
        return 0;
    json_key_array(json, "services");
    for (size_t i = 0; r == 0 && i < paths->n; i++)
        r = put_file(json, paths->items[i], err);
    for (size_t i = 0; i < off->n; i++) {
        json_object(json);
        json_key_string(json, "name", off->items[i]);
        json_key_bool(json, "off", true);
        json_end(json);
    }
    json_end(json);
    return r;
}

void service_print_failed(const struct client *client)
{
    AUTO_JSON struct json_doc *doc = NULL;
    AUTO_BUF struct buf bytes = BUF_INIT(64 << 10), shown = BUF_INIT(256 << 10);
    struct escape escape = ESCAPE_INIT(ESCAPE_TERMINAL);
    const struct buf *reply = client_reply(client);

    if (!reply || !reply->data || json_read(reply->data, reply->len, 256, &doc, NULL) < 0)
        return;
    const struct json_value *error = json_get(json_root(doc), "error");
    if (!error || !json_get(error, "service") || service_get_bytes(error, "output", "output_encoding", &bytes) < 0 ||
        bytes.len == 0)
        return;
    if (escape_append(&escape, bytes.data, bytes.len, &shown) == 0)
        (void)!cli_write(STDERR_FILENO, shown.data, shown.len);
    if (shown.len > 0 && shown.data[shown.len - 1] != '\n')
        (void)!cli_write(STDERR_FILENO, "\n", 1);
}
