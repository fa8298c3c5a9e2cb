/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c: `brig doctor`: every layer and limit on this host, for this user: on or off, why, and the exact
 * fix. The library makes a real sandbox and reads it back; this file only prints what it found. The exit
 * status is the answer for scripts: 0 a full sandbox, 1 a sandbox with something missing, 2 none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cli/escape.h"
#include "cli/flags.h"
#include "cli/verbs/doctor.h"
#include "codec/json/json.h"
#include "config/config.h"
#include "config/provider_names.h"

enum { DOCTOR_COMPLETE = 0, DOCTOR_INCOMPLETE = 1, DOCTOR_UNUSABLE = 2 };

struct doctor_options {
    bool json, tools;
};

static const struct flag doctor_flags[] = {
    {"tools", NULL,
     "also what tools need: interpreters, installers, package indexes (they are asked), directories, keys",
     flag_set_true, offsetof(struct doctor_options, tools), 0},
    {NULL, "FORMAT", "text (default) or json", flag_set_format, offsetof(struct doctor_options, json), 'o'},
};

static const struct flag_table doctor_table = {
    .usage = "brig doctor [--tools] [-o FORMAT]",
    .purpose = "Makes a sandbox, reads every layer back from the kernel, and names the fix for what is missing.\n"
               "Exit status: 0 a full sandbox is possible, 1 only an incomplete one, 2 none.\n"
               "What --tools finds does not change it.",
    FLAGS(doctor_flags),
};

static int put_tools_text(struct buf *out, const struct tool_rows *tools)
{
    size_t width = strlen("tools");
    for (size_t i = 0; i < tools->n; i++)
        if (strlen(tools->rows[i].name) > width)
            width = strlen(tools->rows[i].name);

    int r = buf_printf(out, "\n%-*s  %-4s  %s\n", (int)width, "tools", "", "state");
    for (size_t i = 0; r == 0 && i < tools->n; i++) {
        const struct brig_doctor_row *row = &tools->rows[i];
        struct escape escape = ESCAPE_INIT(ESCAPE_LINE); /* versions and reasons are words of programs */
        r = buf_printf(out, "%-*s  %-4s  ", (int)width, row->name, row->on ? "ok" : "warn");
        if (r == 0)
            r = escape_append(&escape, row->state, strlen(row->state), out);
        if (r == 0)
            r = escape_finish(&escape, out);
        if (r == 0)
            r = buf_append(out, "\n", 1);
        if (r == 0 && row->fix[0] != '\0')
            r = buf_printf(out, "%*s        fix: %s\n", (int)width, "", row->fix);
    }
    return r;
}

/* The providers of a runner are on if a service of this user would find the program too. */
static bool provider_on(const struct provider_known *known, const struct brig_doctor *found)
{
    char path[256];

    if (str_eq(known->name, "runc") || str_eq(known->name, "crun") || str_eq(known->name, "runsc"))
        return found->usable && geteuid() == 0 && provider_program("", known->name, path, sizeof path);
    return str_eq(known->name, "local") && found->usable;
}

static const char *provider_state(const struct provider_known *known, const struct brig_doctor *found)
{
    if (provider_on(known, found))
        return known->what;
    return str_eq(known->name, "local") ? "no sandbox could be made" : known->off;
}

static int put_providers_text(struct buf *out, const struct brig_doctor *found)
{
    const struct provider_known *known;
    int r = buf_printf(out, "\n%-11s  %-4s  %s\n", "provider", "", "state");

    for (size_t i = 0; r == 0 && (known = provider_known_at(i)); i++)
        r = buf_printf(out, "%-11s  %-4s  %s\n", known->name, provider_on(known, found) ? "on" : "off",
                       provider_state(known, found));
    return r;
}

static void put_providers_json(struct json *json, const struct brig_doctor *found)
{
    const struct provider_known *known;

    json_key_array(json, "providers");
    for (size_t i = 0; (known = provider_known_at(i)); i++) {
        json_object(json);
        json_key_string(json, "name", known->name);
        json_key_bool(json, "on", provider_on(known, found));
        json_key_string(json, "state", provider_state(known, found));
        json_end(json);
    }
    json_end(json);
}

static int put_text(struct buf *out, const struct brig_doctor *found)
{
    size_t width = strlen("layer");
    for (size_t i = 0; i < found->n_rows; i++)
        if (strlen(found->rows[i].name) > width)
            width = strlen(found->rows[i].name);

    int r = buf_printf(out, "%-*s  %-4s  %s\n", (int)width, "layer", "", "state");
    for (size_t i = 0; r == 0 && i < found->n_rows; i++) {
        const struct brig_doctor_row *row = &found->rows[i];
        /* An optional row that is off is no defect of a full sandbox. */
        const char *mark = row->on ? "on" : row->needed ? "OFF" : "off";
        r = buf_printf(out, "%-*s  %-4s  %s\n", (int)width, row->name, mark, row->state);
        if (r == 0 && row->fix[0] != '\0')
            r = buf_printf(out, "%*s        fix: %s\n", (int)width, "", row->fix);
    }
    if (r == 0)
        r = put_providers_text(out, found);
    return r < 0 ? r : buf_printf(out, "\n%s\n", found->summary);
}

static void put_json_row(struct json *json, const struct brig_doctor_row *row, bool tool)
{
    json_object(json);
    json_key_string(json, "name", row->name);
    json_key_bool(json, tool ? "ok" : "on", row->on);
    if (!tool)
        json_key_bool(json, "needed", row->needed);
    json_key_string(json, "state", row->state);
    if (row->fix[0] != '\0')
        json_key_string(json, "fix", row->fix);
    json_end(json);
}

static int put_json(struct buf *out, const struct brig_doctor *found, const struct tool_rows *tools)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_bool(&json, "complete", found->complete);
    json_key_bool(&json, "usable", found->usable);
    json_key_u64(&json, "require_version", BRIG_REQUIRE_VERSION);
    json_key_string(&json, "summary", found->summary);
    json_key_array(&json, "rows");
    for (size_t i = 0; i < found->n_rows; i++)
        put_json_row(&json, &found->rows[i], false);
    json_end(&json);
    put_providers_json(&json, found);
    if (tools) {
        json_key_array(&json, "tools");
        for (size_t i = 0; i < tools->n; i++)
            put_json_row(&json, &tools->rows[i], true);
        json_end(&json);
    }
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? r : buf_append(out, "\n", 1);
}

/* The library knows what the host has room for; the configuration, how many sandboxes there may be. */
static void compare_with_configuration(struct brig_doctor *found)
{
    struct config_loaded *loaded = NULL;

    if (found->filter_limit == 0 || config_load(NULL, environ, &loaded, NULL) < 0)
        return; /* `brig config check` is the place for its errors */
    uint64_t wanted = config_get(loaded)->max_sandboxes, room = found->filter_limit / found->filter_bytes;
    for (size_t i = 0; wanted > room && i < found->n_rows; i++) {
        struct brig_doctor_row *row = &found->rows[i];
        if (strcmp(row->name, "filter_room") != 0)
            continue;
        row->on = false;
        snprintf(row->state, sizeof row->state,
                 "net.core.bpf_jit_limit has room for the filters of %" PRIu64 " sandboxes, max_sandboxes is %" PRIu64,
                 room, wanted);
        snprintf(row->fix, sizeof row->fix, "sysctl -w net.core.bpf_jit_limit=%" PRIu64 ", or lower max_sandboxes",
                 wanted * found->filter_bytes);
    }
    config_free(loaded);
}

static int doctor_main(int argc, char **argv)
{
    static struct brig_doctor found; /* 30 KiB: not for the stack */
    static struct tool_rows tools;
    const struct brig_engine_options engine = {.size = sizeof(engine), .flags = BRIG_ENGINE_FORK};
    struct doctor_options options = {0};
    struct brig_err err;
    int status;
    if (!flags_only(&doctor_table, argc, argv, &options, "doctor", &status))
        return status;

    found.size = sizeof(found);
    if (brig_doctor(&engine, &found, &err) < 0) {
        cli_error("%s", err.message);
        return DOCTOR_UNUSABLE;
    }
    compare_with_configuration(&found);
    status = found.complete ? DOCTOR_COMPLETE : found.usable ? DOCTOR_INCOMPLETE : DOCTOR_UNUSABLE;
    struct buf out = BUF_INIT(256 << 10);
    if (options.tools)
        doctor_tools(&tools);
    int r = options.json ? put_json(&out, &found, options.tools ? &tools : NULL) : put_text(&out, &found);
    if (r == 0 && options.tools && !options.json)
        r = put_tools_text(&out, &tools);
    status = r < 0 ? cli_error("doctor: %s", strerror(-r)) : cli_print(&out, status);
    buf_done(&out);
    return status;
}

const struct cli_verb cli_verb_doctor = {"doctor", "what protects a sandbox on this host, what is missing, and the fix",
                                         .main = doctor_main};
