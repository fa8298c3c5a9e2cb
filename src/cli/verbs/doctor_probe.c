/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_probe.c: finds out what a tool would find: one sandbox looks for interpreters and installers, and another one,
 * with the network policy `packages`, asks the package indexes that this host's settings name (HEAD of one page,
 * nothing is downloaded). It runs in this process, with or without a daemon. Addresses are passed in without the names
 * and passwords that they may have.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/net_flags.h"
#include "cli/verbs/doctor.h"

#define PROBE_MS 60000
#define URL_MAX 512u

/* Lines "name|rest"; the rest is empty for what is not there. */
static const char look_script[] =
    "at() { command -v \"$1\" 2>/dev/null; }\n"
    "one() { IFS= read -r line && printf '%s\\n' \"$line\"; }\n"
    "echo \"python|$(at python3 >/dev/null && python3 --version 2>&1 | one)\"\n"
    "echo \"node|$(at node >/dev/null && node --version 2>&1 | one)\"\n"
    "echo \"bash|$(at bash >/dev/null && bash --version 2>&1 | one)\"\n"
    "echo \"pip|$(python3 -I -m pip --version 2>/dev/null | one)\"\n"
    "echo \"venv|$(python3 -I -c 'import venv; print(\"venv\")' 2>/dev/null)\"\n"
    "echo \"ensurepip|$(python3 -I -c 'import ensurepip; print(ensurepip.version())' 2>/dev/null)\"\n"
    "echo \"npm|$(at npm >/dev/null && npm --version 2>/dev/null | one)\"\n"
    "echo \"esbuild|$(at esbuild)\"\n";

/* An answer of any kind is an answer, but for those that stand before the index: our gate and proxies. */
static const char ask_script[] =
    "import sys, urllib.request, urllib.error\n"
    "for name, url in zip(sys.argv[1::2], sys.argv[2::2]):\n"
    "    try:\n"
    "        with urllib.request.urlopen(urllib.request.Request(url, method='HEAD'), timeout=15) as answer:\n"
    "            said = 'ok %d' % answer.status\n"
    "    except urllib.error.HTTPError as e:\n"
    "        said = ('no it answered %d' if e.code in (403, 407) or e.code >= 500 else 'ok %d') % e.code\n"
    "    except Exception as e:\n"
    "        said = 'no ' + str(getattr(e, 'reason', e)).replace('\\n', ' ')\n"
    "    print(name + '|' + said, flush=True)\n";

/* ---- one sandbox --------------------------------------------------------------------------------------- */

/* What it printed, with a zero byte behind it. false: why says so. */
static bool run_inside(const struct brig_spec *spec, struct buf *out, char *why, size_t size)
{
    const struct brig_engine_options how = {.size = sizeof how, .flags = BRIG_ENGINE_FORK};
    struct brig_engine *engine = NULL;
    struct brig_run *run = NULL;
    struct brig_err err = {0};
    int r = brig_engine_create(&how, &engine, &err);

    if (r == 0)
        r = brig_run_start(engine, spec, &run, &err);
    if (r == 0)
        r = brig_run_wait(run, &err);
    const struct brig_receipt *receipt = r == 0 ? brig_run_receipt(run) : NULL;
    bool ran = receipt && receipt->cause == BRIG_CAUSE_EXITED && receipt->started;
    if (ran && (buf_append(out, receipt->output[BRIG_STDOUT], receipt->output_len[BRIG_STDOUT]) < 0 ||
                buf_append(out, "", 1) < 0))
        ran = false;
    if (!ran)
        snprintf(why, size, "%.140s",
                 receipt ? (receipt->detail[0] ? receipt->detail : brig_cause_name(receipt->cause)) : err.message);
    brig_run_destroy(run);
    brig_engine_destroy(engine);
    return ran;
}

/* The rest of the line "name|rest"; "" when there is none. Control bytes never reach a terminal: what is printed goes
 * through the escape of doctor.c's writer. */
static const char *rest_of(const char *text, const char *name, char out[120])
{
    size_t len = strlen(name);

    out[0] = '\0';
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, len) == 0 && line[len] == '|')
            snprintf(out, 120, "%.*s", (int)strcspn(line + len + 1, "\n"), line + len + 1);
    return out;
}

/* ---- interpreters and installers ------------------------------------------------------------------------ */

static void look_for(struct tool_rows *out, const char *text, const char *name, const char *fix)
{
    char rest[120];
    struct brig_doctor_row *row = tool_row(out, name);

    if (rest_of(text, name, rest)[0])
        tool_row_ok(row, "%s", rest);
    else
        tool_row_warn(row, fix, "not in this template");
}

static void look_for_pip(struct tool_rows *out, const char *text)
{
    static const char fix[] = "apt-get install python3-pip python3-venv";
    char pip[120], venv[120], bundled[120];
    struct brig_doctor_row *row = tool_row(out, "pip");

    rest_of(text, "pip", pip), rest_of(text, "venv", venv), rest_of(text, "ensurepip", bundled);
    char *from = strstr(pip, " from ");
    if (from)
        *from = '\0';
    if (!venv[0])
        tool_row_warn(row, fix, "no module venv: tools with Python packages cannot run");
    else if (!pip[0] && !bundled[0])
        tool_row_warn(row, fix, "neither pip nor ensurepip: tools with Python packages cannot run");
    else
        tool_row_ok(row, "%s%.100s, and venv", pip[0] ? "" : "ensurepip, pip ", pip[0] ? pip : bundled);
}

/* "v22.13.0" and later. */
static bool strips_types(const char *version)
{
    unsigned number[2] = {0, 0};

    for (size_t i = 0; i < 2; i++) {
        version += *version == (i == 0 ? 'v' : '.');
        for (; *version >= '0' && *version <= '9' && number[i] < 100000; version++)
            number[i] = number[i] * 10 + (unsigned)(*version - '0');
    }
    return number[0] > 22 || (number[0] == 22 && number[1] >= 13);
}

static void look_for_typescript(struct tool_rows *out, const char *text)
{
    char node[120], esbuild[120];
    struct brig_doctor_row *row = tool_row(out, "typescript");

    rest_of(text, "esbuild", esbuild);
    if (strips_types(rest_of(text, "node", node)))
        tool_row_ok(row, "Node %.60s strips types", node);
    else if (esbuild[0])
        tool_row_ok(row, "%.100s strips types", esbuild);
    else
        tool_row_warn(row, "apt-get install esbuild, or Node 22.13 or later",
                      "nothing strips types: Node is older than 22.13, and there is no esbuild");
}

static bool look_inside(struct tool_rows *out)
{
    static const char *const argv[] = {"/bin/sh", "-c", look_script, NULL};
    const struct brig_spec spec = {
        .size = sizeof spec, .argv = argv, .flags = BRIG_RUN_KEEP_OUTPUT, .limits = {.timeout = PROBE_MS}};
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    char why[160] = "", rest[120];

    if (!run_inside(&spec, &text, why, sizeof why)) {
        tool_row_warn(tool_row(out, "interpreters"), "see the rows above", "no sandbox could look: %.120s", why);
        return false;
    }
    look_for(out, text.data, "python", "apt-get install python3");
    look_for(out, text.data, "node", "apt-get install nodejs");
    look_for_typescript(out, text.data);
    look_for(out, text.data, "bash", "apt-get install bash");
    look_for_pip(out, text.data);
    look_for(out, text.data, "npm", "apt-get install npm");
    return rest_of(text.data, "python", rest)[0] != '\0';
}

/* ---- indexes ------------------------------------------------------------------------------------------- */

/* "index-url = URL", "registry=URL": the first. */
static void from_file(const char *path, const char *key, char out[URL_MAX])
{
    char text[16384];
    size_t len = strlen(key);

    if (fd_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return;
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *p = line + strspn(line, " \t");
        if (strncmp(p, key, len) != 0)
            continue;
        p += len + strspn(p + len, " \t");
        if (*p != '=' && *p != ':')
            continue;
        p += 1 + strspn(p + 1, " \t");
        snprintf(out, URL_MAX, "%.*s", (int)strcspn(p, " \t\r\n"), p);
        return;
    }
}

/* Without a name and a password in it. */
static void strip(char url[URL_MAX])
{
    char *host = strstr(url, "://"), *end = host ? host + 3 + strcspn(host + 3, "/?#") : NULL, *at = NULL;

    for (char *p = host ? host + 3 : NULL; p && p < end; p++)
        if (*p == '@')
            at = p;
    if (at)
        memmove(host + 3, at + 1, strlen(at + 1) + 1);
}

static int find_index(const char *const *variables, const char *path, const char *key, const char *otherwise,
                      char out[URL_MAX], struct brig_err *err)
{
    out[0] = '\0';
    from_file(path, key, out);
    for (; *variables; variables++) {
        const char *value = getenv(*variables);
        if (value && value[0] && str_copy(out, URL_MAX, value) < 0)
            return err_usage(err, "%s: longer than %u bytes", *variables, URL_MAX - 1);
    }
    if (!out[0])
        (void)!str_copy(out, URL_MAX, otherwise);
    strip(out);
    return 0;
}

static void tell_index(struct tool_rows *out, const char *name, const char *url, const char *text, const char *why)
{
    static const char fix[] =
        "look at proxies and name servers; another index: PIP_INDEX_URL, npm_config_registry, or [tools] find_links in "
        "config.toml";
    struct brig_doctor_row *row = tool_row(out, name);
    char rest[120] = "";

    if (text)
        rest_of(text, name, rest);
    if (str_starts(rest, "ok "))
        tool_row_ok(row, "%.100s answers (%.8s)", url, rest + 3);
    else
        tool_row_warn(row, fix, "%.70s: %.80s", url, str_starts(rest, "no ") ? rest + 3 : why[0] ? why : "no answer");
}

static void ask_indexes(struct tool_rows *out)
{
    static const char *const of_pip[] = {"PIP_INDEX_URL", NULL}, *const of_npm[] = {"NPM_CONFIG_REGISTRY",
                                                                                    "npm_config_registry", NULL};
    const struct net_flags net = {.net = "packages"};
    char pip[URL_MAX] = "", page[URL_MAX + 8], npm[URL_MAX] = "", policy_name[NET_NAME_MAX], why[160] = "";
    AUTO_BUF struct buf policy = BUF_INIT(512u << 10), text = BUF_INIT(1u << 20);
    struct brig_err err = {0};

    int r = find_index(of_pip, "/etc/pip.conf", "index-url", "https://pypi.org/simple", pip, &err);
    if (r == 0)
        r = find_index(of_npm, "/etc/npmrc", "registry", "https://registry.npmjs.org/", npm, &err);
    size_t len = strlen(pip);
    /* the root of an index is large */
    snprintf(page, sizeof page, "%s%spip/", pip, len > 0 && pip[len - 1] == '/' ? "" : "/");
    const char *const argv[] = {"python3", "-c", ask_script, "pip index", page, "npm registry", npm, NULL};
    struct brig_spec spec = {.size = sizeof spec,
                             .argv = argv,
                             .flags = BRIG_RUN_KEEP_OUTPUT,
                             .limits = {.timeout = PROBE_MS},
                             .network_name = policy_name};
    bool ran = false;
    if (r < 0 || net_flags_policy(&net, &policy, policy_name, &err) < 0) {
        snprintf(why, sizeof why, "%.150s", err.message);
    } else {
        spec.network = policy.data;
        ran = run_inside(&spec, &text, why, sizeof why);
    }
    tell_index(out, "pip index", pip, ran ? text.data : NULL, why);
    tell_index(out, "npm registry", npm, ran ? text.data : NULL, why);
}

void doctor_probe(struct tool_rows *out)
{
    if (look_inside(out))
        ask_indexes(out);
}
