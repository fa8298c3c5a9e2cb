/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_tools.c: checks what tools need from this host besides a sandbox: directories that the service writes to, and
 * keys for the values that it keeps. Nothing is made here and no key is read: a directory that is missing is made by
 * the service when it starts.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/verbs/doctor.h"
#include "config/config.h"

/* ---- rows -------------------------------------------------------------------------------------------- */

struct brig_doctor_row *tool_row(struct tool_rows *rows, const char *name)
{
    struct brig_doctor_row *row = &rows->rows[rows->n < TOOL_ROWS_MAX ? rows->n++ : TOOL_ROWS_MAX - 1];

    *row = (struct brig_doctor_row){.name = name};
    return row;
}

void tool_row_ok(struct brig_doctor_row *row, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(row->state, sizeof row->state, format, args);
    va_end(args);
    row->on = true;
}

void tool_row_warn(struct brig_doctor_row *row, const char *fix, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(row->state, sizeof row->state, format, args);
    va_end(args);
    str_cut(row->fix, sizeof row->fix, fix);
    row->on = false;
}

/* ---- directories ------------------------------------------------------------------------------------- */

/* As the library finds them (brig(1), FILES): an override, root's place, or the user's. */
static int find_dir(const char *override, const char *of_root, const char *xdg, const char *of_home, char *out,
                    size_t size)
{
    const char *value = getenv(override), *home = getenv("HOME");

    if (value && value[0] == '/')
        return str_format(out, size, "%s", value);
    if (geteuid() == 0)
        return str_format(out, size, "%s", of_root);
    value = getenv(xdg);
    if (value && value[0] == '/')
        return str_format(out, size, "%s/brig", value);
    return home && home[0] == '/' ? str_format(out, size, "%s/%s/brig", home, of_home) : -ENOENT;
}

/* The nearest directory above that is there. */
static bool can_be_made(const char *path)
{
    char above[PATH_MAX];

    if (str_copy(above, sizeof above, path) < 0)
        return false;
    for (char *slash = strrchr(above, '/'); slash; slash = strrchr(above, '/')) {
        slash[slash == above] = '\0';
        if (access(above, F_OK) == 0)
            return access(above, W_OK | X_OK) == 0;
        if (slash == above)
            break;
    }
    return false;
}

static void look_at_dir(struct tool_rows *out, const char *name, const char *path)
{
    struct brig_doctor_row *row = tool_row(out, name);
    struct stat st;
    char fix[320];

    snprintf(fix, sizeof fix, "install -d -m 755 %.200s (as the user that starts the service)", path);
    if (stat(path, &st) < 0 && errno == ENOENT) {
        if (can_be_made(path))
            tool_row_ok(row, "%.120s: made when the service starts", path);
        else
            tool_row_warn(row, fix, "%.100s: is not there, and cannot be made by this user", path);
    } else if (access(path, F_OK) < 0) {
        tool_row_warn(row, fix, "%.100s: %s", path, strerror(errno));
    } else if (!S_ISDIR(st.st_mode)) {
        tool_row_warn(row, "move it away, or name another directory ([tools] exec_dir, BRIG_STATE_DIR, BRIG_CACHE_DIR)",
                      "%.100s: is no directory", path);
    } else if (access(path, W_OK | X_OK) < 0) {
        tool_row_warn(row, fix, "%.100s: cannot be written to by this user: %s", path, strerror(errno));
    } else {
        tool_row_ok(row, "%.120s: writable", path);
    }
}

static void look_at_dirs(struct tool_rows *out, const struct config *config)
{
    char dir[PATH_MAX], path[PATH_MAX];

    if (config->tools_exec_dir[0])
        look_at_dir(out, "tool directory", config->tools_exec_dir);
    else if (find_dir("BRIG_STATE_DIR", "/var/lib/brig", "XDG_STATE_HOME", ".local/state", dir, sizeof dir) > 0 &&
             str_format(path, sizeof path, "%s/tool_execution_dir", dir) > 0)
        look_at_dir(out, "tool directory", path);
    if (find_dir("BRIG_CACHE_DIR", "/var/cache/brig", "XDG_CACHE_HOME", ".cache", dir, sizeof dir) > 0 &&
        str_format(path, sizeof path, "%s/sets", dir) > 0)
        look_at_dir(out, "sets directory", path);
}

/* ---- keys -------------------------------------------------------------------------------------------- */

static void look_at_keys(struct tool_rows *out, const struct config *config)
{
    static const char fix[] =
        "brig secret keygen > FILE; chmod 600 FILE; then key_file = \"FILE\" in [secrets] of config.toml";
    struct brig_doctor_row *row = tool_row(out, "key ring");
    const char *file = config->secrets_key_file, *variable = config->secrets_key_env;
    struct stat st;

    if (file[0] && stat(file, &st) < 0)
        tool_row_warn(row, fix, "%.100s: %s", file, strerror(errno));
    else if (file[0] && (!S_ISREG(st.st_mode) || (st.st_mode & 077) || (st.st_uid != 0 && st.st_uid != geteuid())))
        tool_row_warn(row, "chmod 600 it, and chown it to the user that starts the service",
                      "%.100s: must be a file of the service's user that nobody else can read", file);
    else if (file[0])
        tool_row_ok(row, "in %.120s", file);
    else if (config->secrets_key_command[0])
        tool_row_ok(row, "printed by the program of secrets.key_command");
    else if (variable[0] && getenv(variable))
        tool_row_ok(row, "in the variable %.64s", variable);
    else if (config->secrets_plaintext)
        tool_row_warn(row, fix, "none: values are kept as they are (secrets.insecure_plaintext)");
    else
        tool_row_warn(row, fix, "none: variables and secrets cannot be stored");
}

/* ---- templates ---------------------------------------------------------------------------------------- */

static void look_at_mmdebstrap(struct tool_rows *out)
{
    struct brig_doctor_row *row = tool_row(out, "mmdebstrap");

    if (access("/usr/bin/mmdebstrap", X_OK) == 0)
        tool_row_ok(row, "FROM debian-mirror:SUITE can be built");
    else
        tool_row_warn(row, "apt-get install mmdebstrap", "not there: FROM debian-mirror:SUITE cannot be built");
}

void doctor_tools(struct tool_rows *out)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};

    doctor_probe(out);
    look_at_mmdebstrap(out);
    if (config_load(NULL, environ, &loaded, &err) < 0) {
        tool_row_warn(tool_row(out, "configuration"), "brig config check", "%.150s", err.message);
        return;
    }
    look_at_dirs(out, config_get(loaded));
    look_at_keys(out, config_get(loaded));
    config_free(loaded);
}
