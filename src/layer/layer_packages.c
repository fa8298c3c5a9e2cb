/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_packages.c: what dpkg of an image says that it has installed (/var/lib/dpkg/status: paragraphs of "Name: value"
 * lines). The image wrote that file, so every value is checked before it is repeated.
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "layer/layer.h"

#define STATUS "/var/lib/dpkg/status"
#define STATUS_MAX (32u << 20)
#define PACKAGES_MAX 20000u
#define VALUE_MAX 128u

struct package {
    char name[VALUE_MAX], version[VALUE_MAX], architecture[VALUE_MAX];
    bool installed;
};

/* Takes the value of a line if it has this name. */
static int take(const char *line, size_t len, const char *name, char out[VALUE_MAX], struct brig_err *err)
{
    const size_t n = strlen(name);

    if (len <= n || strncmp(line, name, n) != 0)
        return 0;
    for (line += n, len -= n; len > 0 && *line == ' '; len--)
        line++;
    for (size_t i = 0; i < len; i++)
        if (line[i] <= ' ' || line[i] > '~' || strchr("\"\\", line[i]))
            return layer_fail(err, STATUS, 0, "%s has a character that no package has", name);
    if (len == 0 || len >= VALUE_MAX)
        return layer_fail(err, STATUS, 0, "%s must have 1 to %u characters", name, VALUE_MAX - 1);
    memcpy(out, line, len);
    out[len] = '\0';
    return 0;
}

static int take_line(const char *line, size_t len, struct package *package, struct brig_err *err)
{
    static const char status[] = "Status: ", installed[] = " installed";
    int r = take(line, len, "Package:", package->name, err);

    if (r == 0)
        r = take(line, len, "Version:", package->version, err);
    if (r == 0)
        r = take(line, len, "Architecture:", package->architecture, err);
    if (len > sizeof status + sizeof installed && strncmp(line, status, sizeof status - 1) == 0)
        package->installed = memcmp(line + len - (sizeof installed - 1), installed, sizeof installed - 1) == 0;
    return r;
}

static int put(const struct package *package, struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "name", package->name);
    json_key_string(&json, "version", package->version);
    json_key_string(&json, "architecture", package->architecture);
    json_end(&json);
    return json_finish(&json) < 0 || buf_append_str(out, "\n") < 0 ? err_nomem(err) : 0;
}

static int list(const char *text, struct buf *out, struct brig_err *err)
{
    struct package package = {.installed = false};
    unsigned n = 0;
    int r = 0;

    while (r == 0) {
        size_t len = strcspn(text, "\n");
        if (len > 0) {
            r = take_line(text, len, &package, err);
        } else {
            if (package.installed && package.name[0] && package.version[0] && package.architecture[0])
                r = ++n > PACKAGES_MAX ? layer_fail(err, STATUS, 0, "more than %u packages", PACKAGES_MAX)
                                       : put(&package, out, err);
            package = (struct package){.installed = false};
            if (!*text)
                break;
        }
        text += len + (text[len] == '\n');
    }
    return r;
}

int layer_packages(const struct layer_options *options, struct brig_err *err)
{
    AUTO_FD int root = open(options->blob, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_BUF struct buf out = BUF_INIT(PACKAGES_MAX * 4 * VALUE_MAX);
    AUTO_FREE char *text = NULL;
    int r = root < 0 ? err_host(err, "%s", options->blob) : view_read(root, STATUS, STATUS_MAX, &text, err);

    if (r == 0 && text)
        r = list(text, &out, err);
    if (r == 0 && out.len > 0 && (r = fd_write_all(STDOUT_FILENO, out.data, out.len)) < 0)
        r = err_set(err, BRIG_E_HOST, -r, "the standard output");
    return r;
}
