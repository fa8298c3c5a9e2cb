/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_debian.c: FROM debian-mirror:SUITE, a minimal Debian from the mirror that this host uses. mmdebstrap of the
 * host runs in a sandbox of the service's own, with root inside and the network `packages`; what it writes to stdout is
 * the tar of the layer. Its mode `chrootless` needs no chroot, which no sandbox has, and a hook of its own merges /usr.
 * Whoever builds chooses the suite and nothing else.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "gate/apt_sources.h"
#include "sandbox/own_run.h"

#define SOURCES_MAX 16u
#define DAY UINT64_C(86400)
#define HOOKS "/usr/share/mmdebstrap/hooks/merged-usr"
#define PACKAGE "brig-package "

/* ---- which sources ---------------------------------------- */

static int add_source(struct build *build, struct build_list *sources, const char *uri, const char *rest, size_t len)
{
    char line[2048];

    if (sources->n == SOURCES_MAX ||
        str_format(line, sizeof line, "deb [signed-by=" APT_SOURCES_KEYRING "] %s%.*s", uri, (int)len, rest) < 0)
        return 0; /* what is left does without it */
    return list_add(build, sources, build_keep(build, line));
}

/* SUITE, SUITE-updates, SUITE-security and so on, as the host has them; or the suite of the configured mirror. */
static int find_sources(struct build *build, const char *suite, struct build_list *ret, struct brig_err *err)
{
    const struct builds *builds = build->builds;
    const char *mirror = builds->o.config->templates_debian_mirror;
    const size_t suite_len = strlen(suite);
    int r = 0;

    if (mirror && mirror[0]) {
        char rest[128];
        int len = str_format(rest, sizeof rest, " %s main", suite);
        return len < 0 || add_source(build, ret, mirror, rest, (size_t)len) < 0 ? err_nomem(err) : 0;
    }
    for (const char *line = builds->sources ? builds->sources : ""; r == 0 && *line;) {
        size_t len = strcspn(line, "\n"), uri = strcspn(line, " \n");
        const char *at = line + uri + (line[uri] == ' ');
        if (strncmp(at, suite, suite_len) == 0 && strchr("- \n", at[suite_len]))
            r = add_source(build, ret, "", line, len);
        line += len + (line[len] == '\n');
    }
    if (r < 0)
        return err_nomem(err);
    return ret->n > 0 ? 0
                      : err_set(err, BRIG_E_NOT_FOUND, 0,
                                "the apt sources of this host have no suite %s; see [templates] debian_mirror", suite);
}

/* ---- the run ---------------------------------------- */

static void wrote(struct build_stage *stage, size_t len)
{
    if (stage->own)
        own_run_consumed(stage->own, 1, len);
}

/* A line of the hook below: "brig-package NAME VERSION ARCHITECTURE SHA256". */
static bool take_package(struct build_stage *stage, char *line)
{
    char *word[5], *rest = line;

    for (size_t i = 0; i < ARRAY_SIZE(word); i++)
        word[i] = strtok_r(i == 0 ? line : NULL, " ", &rest);
    const struct lock_package package = {word[1], word[2], word[3], word[4], ""};
    return word[4] && lock_add(stage->build, &stage->build->lock->mirror, &package) == 0;
}

static void say_line(struct build_stage *stage)
{
    char line[sizeof stage->said];

    memcpy(line, stage->said, stage->said_len);
    line[stage->said_len] = '\0';
    if (!str_starts(line, PACKAGE) || !take_package(stage, line))
        log_output(stage, 2, stage->said, stage->said_len), log_output(stage, 2, "\n", 1);
    stage->said_len = 0;
}

/* For a lock, what it says is looked at line by line. */
static void on_said(struct build_stage *stage, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n')
            stage->said[stage->said_len++] = (char)data[i];
        if (data[i] == '\n' || stage->said_len == sizeof stage->said - 1)
            say_line(stage);
    }
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct build_stage *stage = ctx;

    if (stream != 1) {
        if (stage->build->lock)
            on_said(stage, data, len);
        else
            log_output(stage, stream, data, len);
        own_run_consumed(stage->own, stream, len);
        return;
    }
    sink_write(stage->sink, data, len);
    if (stage->sink->err.code)
        own_run_stop(stage->own, &stage->sink->err);
}

/* The last line that it said. */
static const char *last_line(char *tail)
{
    size_t len = strlen(tail);

    while (len > 0 && tail[len - 1] == '\n')
        tail[--len] = '\0';
    const char *newline = strrchr(tail, '\n');
    return newline ? newline + 1 : tail;
}

static void on_done(void *ctx, const struct own_run_result *result)
{
    struct build_stage *stage = ctx;
    struct brig_err err = {0};
    char tail[BUILD_TAIL + 1];

    stage->own = NULL;
    if (result->good) {
        sink_end(stage->sink);
        return;
    }
    str_assign(tail, stage->tail);
    if (result->err)
        err = *result->err;
    else
        (void)err_set(&err, BRIG_E_HOST, 0, "mmdebstrap failed (%s): %.300s", result->cause, last_line(tail));
    stage_fail(stage, &err);
}

static int put_sandbox(const struct build *build, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "template", "host");
    json_key_string(&json, "user", "root");
    json_key_bool(&json, "writable_root", true);
    json_key_string(&json, "network", "packages");
    json_key_string(&json, "workdir", "/workspace");
    json_key_u64(&json, "timeout", build->builds->o.config->templates_timeout / 1000 + 60);
    json_key_null(&json, "idle_timeout");
    json_end(&json);
    return json_finish(&json);
}

static int start(struct build_stage *stage, const char *suite, const struct build_list *sources, struct brig_err *err)
{
    static const char script[] =
        "command -v mmdebstrap >/dev/null || {\n"
        "  echo 'this host has no mmdebstrap: install the package mmdebstrap' >&2; exit 1; }\n"
        /* Maintainer scripts name users and groups of Debian; chrootless, they are looked up in the sandbox's /etc. */
        "cat /usr/share/base-passwd/passwd.master >> /etc/passwd && cat /usr/share/base-passwd/group.master >> "
        "/etc/group || exit 1\n"
        "if [ -n \"$PINS\" ]; then\n" /* mmdebstrap leaves the option in the tree */
        "  printf %s \"$PINS\" > /tmp/pins && chmod 644 /tmp/pins || exit 1\n"
        "  set -- --aptopt='Dir::Etc::Preferences \"/tmp/pins\"' "
        "--customize-hook='rm -f \"$1/etc/apt/apt.conf.d/99mmdebstrap\"' \"$@\"\n"
        "fi\n"
        "[ -z \"$LOCK\" ] || set -- --customize-hook=\"$LOCK\" \"$@\"\n"
        "unset PINS LOCK\n"
        /* It copies these two from where it runs, and each sandbox has another name. */
        "set -- --customize-hook='rm -f \"$1/etc/hostname\" \"$1/etc/resolv.conf\"' \"$@\"\n"
        "exec mmdebstrap --mode=chrootless --variant=minbase --format=tar --hook-dir=" HOOKS " \"$@\"\n";
    /* What apt's signed index says of each package that is installed; the files themselves were checked against it. */
    static const char hashes[] =
        "LOCK=dpkg-query --admindir=\"$1/var/lib/dpkg\" -W -f '${Package}=${Version}\\n' |"
        " APT_CONFIG=$MMDEBSTRAP_APT_CONFIG xargs apt-cache show | awk '"
        "/^Package: /{p=$2} /^Version: /{v=$2} /^Architecture: /{a=$2} /^SHA256: /{s=$2}"
        " /^$/{if (s) print \"" PACKAGE "\" p, v, a, s; s=\"\"} END{if (s) print \"" PACKAGE "\" p, v, a, s}' >&2";
    const struct builds_options *o = &stage->build->builds->o;
    const char *argv[SOURCES_MAX + 8] = {"/bin/sh", "-c", script, "mmdebstrap", suite, "-"};
    AUTO_BUF struct buf text = BUF_INIT(4096);
    char epoch[64];
    const struct build_lock *lock = stage->build->lock;
    AUTO_BUF struct buf pins = BUF_INIT(128u << 10);
    const char *pinned = "";
    if (lock_pins(stage->build, &pinned) < 0 || buf_printf(&pins, "PINS=%s", pinned) < 0)
        return err_nomem(err);
    const char *const env[] = {"TMPDIR=/tmp", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
                               epoch,         pins.data,        lock ? hashes : NULL,
                               NULL};

    for (size_t i = 0; i < sources->n; i++)
        argv[6 + i] = sources->items[i];
    if (lock)
        snprintf(epoch, sizeof epoch, "SOURCE_DATE_EPOCH=%s", lock->epoch);
    else
        snprintf(epoch, sizeof epoch, "SOURCE_DATE_EPOCH=%lld",
                 (long long)((uint64_t)clock_real_ns() / NS_PER_SEC / DAY * DAY));
    int r = put_sandbox(stage->build, &text) < 0 ? err_nomem(err) : 0;
    if (r == 0)
        r = sink_create(stage, wrote, stage_layer, &stage->sink, err);
    const struct own_run_spec spec = {
        .org = stage->build->caller.org_id,
        .actor = "templates",
        .sandbox = text.data,
        .program = {.argv = argv, .env = env, .timeout_ms = o->config->templates_timeout}};
    const struct own_run_events events = {.data = on_data, .done = on_done, .ctx = stage};
    if (r == 0)
        r = own_run_create(o->manager, o->config, &spec, &events, &stage->own, err);
    if (r == 0 && (r = own_run_start(stage->own, err)) < 0)
        own_run_destroy(take_ptr(&stage->own));
    return r;
}

static int take_image(struct build_stage *stage)
{
    static const char *const cmd[] = {"/bin/bash"};
    struct build_image *image = &stage->image;

    image->has_cmd = true;
    return list_set(stage->build, &image->env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") <
                   0
               ? -ENOMEM
               : list_take(stage->build, &image->cmd, cmd, ARRAY_SIZE(cmd));
}

int debian_start(struct build_stage *stage, struct brig_err *err)
{
    const char *suite = stage->base + strlen(DEBIAN_MIRROR);
    struct build_list sources = {.items = NULL};
    struct build_key *key = NULL;
    int r = find_sources(stage->build, suite, &sources, err);

    if (r < 0)
        return r;
    if (take_image(stage) < 0 || key_begin(stage, "debian-mirror", &key) < 0)
        return err_nomem(err);
    key_text(key, "suite", suite);
    key_list(key, "sources", &sources);
    if (key_end(key, stage->key) < 0)
        return err_nomem(err);
    if (!(stage->build->lock && !stage->build->lock->want) && stage_cached(stage))
        return 0; /* for a new lock it is made anew: the cache has no hashes of packages */
    r = start(stage, suite, &sources, err);
    return r < 0 ? r : 1;
}
