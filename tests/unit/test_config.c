/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: defaults, files, variables, flags and their order; every refusal by its exact words. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/config_keys.h"
#include "host/dirs.h"

static char dir[64], file[96];
static char *const no_env[] = {(char[]){"BRIG_RUN_DIR=/run/x"}, NULL};

static int set_up(void **state)
{
    (void)state;
    memcpy(dir, "/tmp/brig-config-XXXXXX", 24);
    return mkdtemp(dir) && str_format(file, sizeof(file), "%s/config.toml", dir) > 0 && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(file);
    unlink("config/config.toml");
    rmdir("config");
    return chdir("/") < 0 || rmdir(dir) < 0 ? -1 : 0;
}

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "we");

    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(path, 0644), 0);
}

static struct config_loaded *load(const char *text, char *const *env)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};

    write_file(file, text);
    if (config_load(file, env ? env : no_env, &loaded, &err) < 0)
        fail_msg("%s", err.message);
    return loaded;
}

/* message: what follows the file's name. */
static void assert_refused(const char *text, const char *message)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    char want[512];

    write_file("config.toml", text);
    assert_int_equal(config_load("config.toml", no_env, &loaded, &err), -EINVAL);
    assert_true(str_format(want, sizeof(want), "config.toml%s", message) > 0);
    assert_string_equal(err.message, want);
    assert_null(loaded);
}

static void assert_env_refused(const char *variable, const char *message)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    char *const env[] = {(char *)(uintptr_t)variable, (char[]){"BRIG_RUN_DIR=/run/x"}, NULL};

    write_file(file, "");
    assert_int_equal(config_load(file, env, &loaded, &err), -EINVAL);
    assert_string_equal(err.message, message);
}

static void has_defaults(void **state)
{
    struct config_loaded *loaded = load("", NULL);
    const struct config *c = config_get(loaded);
    (void)state;

    assert_string_equal(c->listen, "127.0.0.1:2744");
    assert_string_equal(c->socket, "/run/x/brig.sock");
    assert_string_equal(c->domain, "localhost");
    assert_false(c->insecure);
    assert_int_equal(c->max_connections, 10000);
    assert_int_equal(c->max_connections_per_peer, 1000);
    assert_int_equal(c->max_json, 8 << 20);
    assert_int_equal(c->header_timeout, 10000);
    assert_int_equal(c->body_timeout, 30000);
    assert_int_equal(c->idle_timeout, 75000);
    assert_int_equal(c->drain_timeout, 10000);
    assert_string_equal(c->on_shutdown, "kill");
    assert_string_equal(c->database_url, "");
    assert_int_equal(c->keep_runs_seconds, 30 * 86400);
    assert_int_equal(c->keep_runs_bytes, 1 << 30);
    assert_int_equal(c->keep_audit_seconds, 0);
    assert_int_equal(c->suspicious_count, 10);
    assert_int_equal(c->suspicious_seconds, 60);
    assert_int_equal(c->max_sandboxes, 100);
    assert_int_equal(c->idle_timeout_s, 3600);
    assert_int_equal(c->cleanup_interval, 300);
    assert_string_equal(c->image, "host");
    assert_string_equal(c->work_dir, "/workspace");
    assert_int_equal(c->limits.memory, 512 << 20);
    assert_int_equal(c->limits.cpus, 1000);
    assert_int_equal(c->limits.timeout, 300000);
    assert_int_equal(c->limits.disk, 0);
    assert_true(c->use_sandbox);
    assert_null(config_note(loaded, 0));
    assert_string_equal(config_path(loaded), file);
    config_free(loaded);
}

static void reads_every_kind_of_value(void **state)
{
    struct config_loaded *loaded = load(
        "[server]\nlisten = ''\nmax_body = 1024\nbody_timeout = 1.5\nidle_timeout = '2m'\nmetrics_per_sandbox = true\n"
        "allowed_hosts = 'a.example b.example 10.0.0.1 [fe80::1]'\nallowed_origins = 'https://ui.example:8443 "
        "http://[::1]:80'\n"
        "[manager]\norg_max_cpus = 2.5\norg_max_memory = '4g'\nidle_timeout = 0\n"
        "[sandbox]\nmemory = '1g'\ncpus = '0.5'\ntimeout = 5\nmax_age = '24h'\npids = 64\nrequire = 'all'\n"
        "templates = '/srv/t'\n"
        "disk = '2g'\ninodes = 5000\nopen_files = 99\nfile_size = '1m'\ncpu_time = '10s'\noutput = '1m'\n"
        "io_read_bps = '1m'\n",
        NULL);
    const struct config *c = config_get(loaded);
    (void)state;

    assert_string_equal(c->listen, "");
    assert_int_equal(c->max_body, 1024);
    assert_int_equal(c->body_timeout, 1500);
    assert_int_equal(c->idle_timeout, 120000);
    assert_true(c->metrics_per_sandbox);
    assert_int_equal(c->org_max_cpus, 2500);
    assert_int_equal(c->org_max_memory, UINT64_C(4) << 30);
    assert_int_equal(c->idle_timeout_s, 0);
    assert_int_equal(c->limits.memory, 1 << 30);
    assert_int_equal(c->limits.cpus, 500);
    assert_int_equal(c->limits.timeout, 5000);
    assert_int_equal(c->max_age, 86400000);
    assert_int_equal(c->limits.pids, 64);
    assert_int_equal(c->limits.disk, UINT64_C(2) << 30);
    assert_int_equal(c->limits.inodes, 5000);
    assert_int_equal(c->limits.open_files, 99);
    assert_int_equal(c->limits.file_size, 1 << 20);
    assert_int_equal(c->limits.cpu_time, 10000);
    assert_int_equal(c->limits.output, 1 << 20);
    assert_int_equal(c->limits.io_read_bps, 1 << 20);
    assert_string_equal(c->require, "all");
    assert_string_equal(c->templates, "/srv/t");
    config_free(loaded);
    loaded = load("[sandbox]\nidle_timeout = 7\n", NULL);
    assert_int_equal(config_get(loaded)->idle_timeout_s, 7);
    config_free(loaded);
}

static void takes_an_openmanus_file(void **state)
{
    static const char *const notes[] = {
        "config.toml:1: section [llm] is not used here",
        "config.toml:9: section [browser] is not used here",
        "config.toml:14: unknown key `newer` in [search], which is not used here anyway",
        "config.toml:13: section [search] is not used here",
        "config.toml:24: section [mcp] is not used here",
        "config.toml:26: section [runflow] is not used here",
        "config.toml:28: section [daytona] is not used here",
        "config.toml:18: image `python:3.12-slim` means the template `host`: the Python of this host",
        "config.toml:17: use_sandbox = false is without effect: everything runs in sandboxes",
    };
    static const char text[] =
        "[llm]\nmodel = 'm'\napi_key = 'sk-secret'\nmax_tokens = 8192\ntemperature = 0.0\nbase_url = 'https://x'\n"
        "[llm.vision]\nmodel = 'v'\n[browser]\nheadless = false\n[browser.proxy]\nserver = 'http://p'\n"
        "[search]\nnewer = 1\nfallback_engines = ['a', 'b']\n"
        "[sandbox]\nuse_sandbox = false\nimage = 'python:3.12-slim'\nwork_dir = '/workspace'\nmemory_limit = '1g'\n"
        "cpu_limit = 2.0\ntimeout = 300\nnetwork_enabled = true\n"
        "[mcp]\nserver_reference = 'app.mcp.server'\n[runflow]\nuse_data_analysis_agent = false\n[daytona]\n"
        "daytona_api_key = ''\n";
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    (void)state;

    write_file("config.toml", text);
    if (config_load("config.toml", no_env, &loaded, &err) < 0)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < ARRAY_SIZE(notes); i++) {
        assert_non_null(config_note(loaded, i));
        assert_string_equal(config_note(loaded, i), notes[i]);
    }
    assert_null(config_note(loaded, ARRAY_SIZE(notes)));
    const struct config *c = config_get(loaded);
    assert_string_equal(c->image, "host");
    assert_string_equal(c->image_asked, "python:3.12-slim");
    assert_int_equal(c->limits.memory, 1 << 30);
    assert_int_equal(c->limits.cpus, 2000);
    assert_int_equal(c->limits.timeout, 300000);
    assert_true(c->network_enabled);
    assert_string_equal(c->network, ""); /* so it is `open` */
    config_free(loaded);
    /* An engine's image of that name is that image. */
    static const char engine[] = "[docker]\nimage = 'python:3.12-slim'\n";
    assert_int_equal(config_load_text("config.toml", engine, sizeof engine - 1, no_env, &loaded, NULL), 0);
    assert_string_equal(config_get(loaded)->docker_image, "python:3.12-slim");
    config_free(loaded);
    assert_refused("[llm]\nmax_tokens = 'x'\n", ":2: [llm] max_tokens: must be an integer");
    assert_refused("[llm.vision]\nmodel = 5\n", ":2: [llm.vision] model: must be a string");
    assert_refused("[llm]\ntemperature = true\n", ":2: [llm] temperature: must be a number");
    assert_refused("[browser]\nextra_chromium_args = [1]\n",
                   ":2: [browser] extra_chromium_args: must be an array of strings");
    assert_refused("[browser.proxy]\npassword = 1\n", ":2: [browser.proxy] password: must be a string");
    assert_refused("[daytona]\nVNC_password = 123456\n", ":2: [daytona] VNC_password: must be a string");
    assert_refused("[runflow]\nuse_data_analysis_agent = 0\n",
                   ":2: [runflow] use_data_analysis_agent: must be true or false");
    assert_refused("llm = 1\n", ":1: `llm` must be a section: [llm]");
}

static void refuses_what_it_does_not_know(void **state)
{
    (void)state;
    assert_refused("[server]\n\nlistn = 'x'\n", ":3: unknown key `listn` in [server]; did you mean `listen`?");
    assert_refused("[server]\nzebra = 1\n", ":2: unknown key `zebra` in [server]");
    assert_refused("[server]\nmax_sandboxes = 1\n",
                   ":2: unknown key `max_sandboxes` in [server]; it belongs in [manager]");
    assert_refused("[sever]\nlisten = 'x'\n", ":1: unknown section [sever]; did you mean [server]?");
    assert_refused("[nothing_like_it]\n", ":1: unknown section [nothing_like_it]");
    assert_refused("listen = 'x'\n", ":1: `listen` stands before any section; it belongs in [server]");
    assert_refused("zebra = 'x'\n", ":1: unknown key `zebra` before any section");
    assert_refused("server = 1\n", ":1: `server` must be a section: [server]");
    assert_refused("[server.tls]\ncert = ''\n", ":1: unknown key `tls` in [server]");
    assert_refused("[server]\n\"listen\\u0000\" = 'x'\n", ":2: unknown key `listen` in [server]");
    assert_refused("[sandbox]\nmemory = '1g'\nmemory_limit = '2g'\n",
                   ":3: [sandbox] memory_limit: line 2 has it already, by another name");
    assert_refused("[server]\nlisten = 'a\n", ":2: the string does not end on its line");
}

static void refuses_what_breaks_a_rule(void **state)
{
    (void)state;
    assert_refused("[server]\nmax_connections = 0\n",
                   ":2: [server] max_connections = 0: must be a whole number from 1 to 1000000");
    assert_refused("[server]\nmax_connections = -1\n",
                   ":2: [server] max_connections = -1: must be a whole number from 1 to 1000000");
    assert_refused("[server]\nmax_connections = '5'\n",
                   ":2: [server] max_connections = \"5\": must be a whole number from 1 to 1000000");
    assert_refused("[server]\nmax_connections = 1.5\n",
                   ":2: [server] max_connections = 1.500000: must be a whole number from 1 to 1000000");
    assert_refused("[server]\nmax_json = 'x'\n",
                   ":2: [server] max_json = x: must be a size (bytes, or like 512m) from 1k to 1g");
    assert_refused(
        "[server]\nidle_timeout = 0\n",
        ":2: [server] idle_timeout = 0: must be a time (seconds, or like 30s) from 100ms to 4398046511104ms");
    assert_refused(
        "[server]\nidle_timeout = nan\n",
        ":2: [server] idle_timeout = nan: must be a time (seconds, or like 30s) from 100ms to 4398046511104ms");
    assert_refused("[server]\ninsecure = 'true'\n", ":2: [server] insecure = \"true\": must be true or false");
    assert_refused("[server]\nlisten = 2744\n",
                   ":2: [server] listen = 2744: must be text (at most 4096 bytes, without control characters)");
    assert_refused(
        "[server]\nlisten = '127.0.0.1'\n",
        ":2: [server] listen = 127.0.0.1: must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744, or empty");
    assert_refused(
        "[server]\nlisten = '::1:2744'\n",
        ":2: [server] listen = ::1:2744: must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744, or empty");
    assert_refused(
        "[server]\nlisten = 'example.org:80'\n",
        ":2: [server] listen = example.org:80: must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744, or empty");
    assert_refused(
        "[server]\nlisten = '127.0.0.1:65536'\n",
        ":2: [server] listen = 127.0.0.1:65536: must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744, or empty");
    assert_refused("[server]\nsocket = 'brig.sock'\n",
                   ":2: [server] socket = brig.sock: must be an absolute path of at most 107 bytes");
    assert_refused("[server]\ndomain = 'a b'\n", ":2: [server] domain = a b: must be a host name");
    assert_refused("[server]\ntls_cert = 'x.pem'\n",
                   ":2: [server] tls_cert = x.pem: must be an absolute path, or empty");
    assert_refused(
        "[server]\nallowed_hosts = 'a.example:80'\n",
        ":2: [server] allowed_hosts = a.example:80: must be host names with blanks between them, without ports");
    assert_refused(
        "[server]\nallowed_origins = '*'\n",
        ":2: [server] allowed_origins = *: must be origins with blanks between them, such as https://ui.example:8443");
    assert_refused("[server]\nallowed_origins = 'https://a/b'\n",
                   ":2: [server] allowed_origins = https://a/b: must be origins with blanks between them, such as "
                   "https://ui.example:8443");
    assert_refused("[server]\nlog_level = 'loud'\n",
                   ":2: [server] log_level = loud: must be debug, info, warn or error");
    assert_refused("[server]\nlog_file = 'x'\n", ":2: [server] log_file = x: must be an absolute path, or empty");
    assert_refused("[server]\nlog_format = 'xml'\n", ":2: [server] log_format = xml: must be json or text");
    assert_refused("[server]\non_shutdown = 'wait'\n", ":2: [server] on_shutdown = wait: must be kill or keep");
    assert_refused("[server]\ndomain = \"a\\nb\"\n",
                   ":2: [server] domain = a\\x0ab: must be text (at most 4096 bytes, without control characters)");
    assert_refused("[sandbox]\nwork_dir = '/a/../b'\n",
                   ":2: [sandbox] work_dir = /a/../b: must be an absolute path without `..`");
    assert_refused("[sandbox]\nimage = '../x'\n", ":2: [sandbox] image = ../x: must be the name of a template");
    assert_refused(
        "[sandbox]\nrequire = 'seccomp,magic'\n",
        ":2: [sandbox] require = seccomp,magic: must be all, or names of layers with commas (brig doctor lists them), "
        "or empty");
    assert_refused("[sandbox]\nmemory_limit = '1k'\n",
                   ":2: [sandbox] memory_limit = 1k: must be a size (bytes, or like 512m) from 4m to 64t");
    assert_refused("[sandbox]\ncpu_limit = 0.001\n",
                   ":2: [sandbox] cpu_limit = 0.001000: must be a number of CPUs from 0.010 to 4096");
    assert_refused(
        "[sandbox]\ntimeout = 1979-05-27\n",
        ":2: [sandbox] timeout = (a date): must be a time (seconds, or like 30s) from 1ms to 4398046511104ms");
    assert_refused("[sandbox]\npids = [1]\n",
                   ":2: [sandbox] pids = (an array): must be a whole number from 1 to 4194304");
    /* a secret is not repeated */
    assert_refused("[store]\ndatabase_url = 'mysql://u:hunter2@h'\n",
                   ":2: [store] database_url: must be postgresql://... or sqlite:/path, or empty");
}

static void rules_between_keys(void **state)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    (void)state;

    write_file(file, "[server]\nlisten = '0.0.0.0:2744'\n");
    assert_int_equal(config_load(file, no_env, &loaded, &err), -EPERM);
    assert_string_equal(
        err.message,
        "server.listen = 0.0.0.0:2744: an address that is not loopback needs tls_cert and tls_key, or insecure = true");
    write_file(file, "[server]\nlisten = '[::]:2744'\n");
    assert_int_equal(config_load(file, no_env, &loaded, &err), -EPERM);
    write_file(file, "[server]\ntls_cert = '/c'\n");
    assert_int_equal(config_load(file, no_env, &loaded, &err), -EINVAL);
    assert_string_equal(err.message, "server.tls_cert and server.tls_key belong together; only one of them is set");
    config_free(load("[server]\nlisten = '0.0.0.0:2744'\ninsecure = true\n", NULL));
    config_free(load("[server]\nlisten = '0.0.0.0:2744'\ntls_cert = '/c'\ntls_key = '/k'\n", NULL));
    config_free(load("[server]\nlisten = '127.9.9.9:0'\n", NULL));
    config_free(load("[server]\nlisten = '[::1]:2744'\n", NULL));
    config_free(load("[server]\nlisten = 'localhost:2744'\n", NULL));

    loaded = load("", NULL);
    assert_int_equal(config_override(loaded, "server.listen", "0.0.0.0:1", &err), 0);
    assert_int_equal(config_check(loaded, &err), -EPERM);
    assert_int_equal(config_override(loaded, "server.insecure", "true", &err), 0);
    assert_int_equal(config_check(loaded, &err), 0);
    config_free(loaded);
}

static void variables_and_flags_win(void **state)
{
    char *const env[] = {(char[]){"BRIG_RUN_DIR=/run/x"},
                         (char[]){"BRIG_LISTEN=127.0.0.1:1"},
                         (char[]){"BRIG_MANAGER_MAX_SANDBOXES=7"},
                         (char[]){"BRIG_SANDBOX_MEMORY_LIMIT=64m"},
                         (char[]){"BRIG_SANDBOX_NETWORK_ENABLED=0"},
                         (char[]){"BRIG_STATE_DIR=/x"},
                         (char[]){"BRIG_SERVER"},
                         NULL};
    struct config_loaded *loaded = load("[manager]\nmax_sandboxes = 5\npool = 9\n", env);
    const struct config *c = config_get(loaded);
    struct brig_err err;
    struct config_row row;
    char origin[64];
    size_t seen = 0;
    (void)state;

    assert_int_equal(config_override(loaded, "sandbox.memory_limit", "32m", &err), 0);
    assert_int_equal(config_override(loaded, "sandbox.memory_limit", "32x", &err), -EINVAL);
    assert_string_equal(err.message, "sandbox.memory_limit = 32x: must be a size (bytes, or like 512m) from 4m to 64t");
    assert_int_equal(config_override(loaded, "sandbox.none", "1", &err), -EINVAL);
    assert_string_equal(err.message, "sandbox.none: there is no such setting");
    assert_int_equal(config_override(loaded, "listen", "1", &err), -EINVAL);
    assert_string_equal(c->listen, "127.0.0.1:1");
    assert_int_equal(c->max_sandboxes, 7);
    assert_int_equal(c->pool, 9);
    assert_int_equal(c->limits.memory, 32 << 20);
    for (size_t i = 0; config_each(loaded, i, &row); i++) {
        config_origin(loaded, i, origin, sizeof(origin));
        if (str_eq(row.key, "listen")) {
            assert_int_equal(row.source, CONFIG_ENV);
            assert_string_equal(origin, "BRIG_LISTEN");
            seen++;
        } else if (str_eq(row.key, "pool")) {
            assert_int_equal(row.source, CONFIG_FILE);
            assert_int_equal(row.line, 3);
            assert_non_null(strstr(origin, "config.toml:3"));
            assert_string_equal(row.env, "BRIG_MANAGER_POOL");
            assert_true(row.reloadable);
            seen++;
        } else if (str_eq(row.key, "memory_limit")) {
            assert_int_equal(row.source, CONFIG_FLAG);
            assert_string_equal(origin, "flag");
            assert_string_equal(row.value, "32m");
            seen++;
        } else if (str_eq(row.key, "domain")) {
            assert_string_equal(origin, "default");
            assert_false(row.reloadable);
            seen++;
        }
        assert_true(row.help && row.help[0]);
    }
    assert_int_equal(seen, 4);
    config_free(loaded);
    assert_env_refused("BRIG_SERVER_LISTN=x",
                       "BRIG_SERVER_LISTN: there is no such setting; did you mean BRIG_SERVER_LISTEN?");
    assert_env_refused("BRIG_SANDBOX_ZZZZZZZZ=x", "BRIG_SANDBOX_ZZZZZZZZ: there is no such setting");
    assert_env_refused("BRIG_SERVER_listen=x",
                       "BRIG_SERVER_listen: there is no such setting; did you mean BRIG_SERVER_LISTEN?");
    assert_env_refused("BRIG_STORE_=x", "BRIG_STORE_: there is no such setting");
    assert_env_refused("BRIG_MANAGER_POOL=many",
                       "BRIG_MANAGER_POOL = many: must be a whole number from 1 to 4096, or 0");
    assert_env_refused("BRIG_DATABASE_URL=hunter2",
                       "BRIG_DATABASE_URL: must be postgresql://... or sqlite:/path, or empty");
    assert_env_refused("BRIG_LISTEN=nowhere",
                       "BRIG_LISTEN = nowhere: must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744, or empty");

    char *const twice[] = {(char[]){"BRIG_LISTEN=127.0.0.1:1"}, (char[]){"BRIG_SERVER_LISTEN=127.0.0.1:2"}, NULL};
    assert_int_equal(config_load(file, twice, &loaded, &err), -EINVAL);
    assert_string_equal(err.message, "BRIG_LISTEN and BRIG_SERVER_LISTEN are the same setting; set one of them");
}

static void masks_secrets(void **state)
{
    static const char *const cases[][2] = {
        {"postgresql://brig:hunter2@db.example/brig", "postgresql://brig:***@db.example/brig"},
        {"postgresql://brig:hunter2@db/brig?password=hunter2", "postgresql://brig:***@db/brig?***"},
        {"postgresql://db/brig?password=hunter2", "postgresql://db/brig?***"},
        {"postgresql://brig@db/brig", "postgresql://brig@db/brig"},
        {"sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256];
        struct config_row row;
        assert_true(str_format(text, sizeof(text), "[store]\ndatabase_url = '%s'\n", cases[i][0]) > 0);
        struct config_loaded *loaded = load(text, NULL);
        for (size_t k = 0; config_each(loaded, k, &row); k++)
            if (str_eq(row.key, "database_url"))
                assert_string_equal(row.value, cases[i][1]);
        assert_string_equal(config_get(loaded)->database_url, cases[i][0]);
        config_free(loaded);
    }
}

static void says_what_needs_a_restart(void **state)
{
    struct config_loaded
        *now = load("", NULL),
        *next = load(
            "[server]\nlisten = '127.0.0.1:5'\nlog_level = 'debug'\n[store]\ndatabase_url = 'sqlite:/x'\n[sandbox]\n"
            "pids = 5\n",
            NULL);
    char text[256], small[16];
    (void)state;

    config_diff(now, next, text, sizeof(text));
    assert_string_equal(text, "server.listen, store.database_url");
    config_diff(now, now, text, sizeof(text));
    assert_string_equal(text, "");
    config_diff(now, next, small, sizeof(small));
    assert_string_equal(small, "server.listen");
    config_free(now);
    config_free(next);
}

static void finds_its_file(void **state)
{
    char home[96], variable[128];
    char *env[] = {(char[]){"BRIG_RUN_DIR=/run/x"}, home, variable, NULL};
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_true(str_format(home, sizeof(home), "HOME=%s", dir) > 0);
    assert_true(str_format(variable, sizeof(variable), "BRIG_CONFIG=%s", file) > 0);
    write_file(file, "[manager]\npool = 1\n");
    assert_int_equal(config_load(NULL, env, &loaded, &err), 0); /* BRIG_CONFIG */
    assert_int_equal(config_get(loaded)->pool, 1);
    config_free(loaded);
    env[2] = NULL;
    assert_int_equal(config_load(NULL, env, &loaded, &err), 0); /* none, unless this machine has one in /etc */
    assert_true(config_path(loaded)[0] == '\0' || str_eq(config_path(loaded), "/etc/brig/config.toml"));
    config_free(loaded);

    assert_int_equal(mkdir("config", 0755), 0);
    write_file("config/config.toml", "[manager]\npool = 2\n");
    assert_int_equal(config_load(NULL, env, &loaded, &err), 0);
    assert_int_equal(config_get(loaded)->pool, 2);
    assert_string_equal(config_path(loaded), "config/config.toml");
    config_free(loaded);
    assert_int_equal(chmod("config/config.toml", 0646), 0);
    assert_int_equal(config_load(NULL, env, &loaded, &err), -EPERM);
    assert_string_equal(err.message,
                        "config/config.toml may be written to by everybody (mode 0646): Operation not permitted");
    if (geteuid() == 0) {
        assert_int_equal(chmod("config/config.toml", 0644), 0);
        assert_int_equal(chown("config/config.toml", 65534, 65534), 0);
        assert_int_equal(config_load(NULL, env, &loaded, &err), -EPERM);
        assert_non_null(strstr(err.message, "belongs to uid 65534, neither root nor the caller"));
        assert_int_equal(config_load("config/config.toml", env, &loaded, &err), 0); /* named, so it is meant */
        config_free(loaded);
    }
    assert_int_equal(config_load("/nowhere/config.toml", env, &loaded, &err), -ENOENT);
    assert_int_equal(config_load(dir, env, &loaded, &err), -EISDIR);
    unlink("config/config.toml");
    rmdir("config");
}

/* The run directory is worked out twice (see config_places.c): the two must agree. */
static void socket_is_in_the_run_directory(void **state)
{
    char *const envs[][5] = {
        {(char[]){"BRIG_RUN_DIR=/some/where//"}, NULL},
        {(char[]){"HOME=/home/user"}, (char[]){"XDG_RUNTIME_DIR=/nowhere"}, NULL},
        {(char[]){"HOME=/home/user"}, (char[]){"XDG_RUNTIME_DIR=/tmp"}, NULL},
        {(char[]){"HOME=/home/user"}, (char[]){"XDG_STATE_HOME=/st"}, NULL},
        {(char[]){"HOME=/home/user"}, (char[]){"XDG_STATE_HOME=st"}, NULL},
        {(char[]){"BRIG_STATE_DIR=/state"}, NULL},
        {NULL},
    };
    (void)state;

    const char *kept = getenv("CMOCKA_MESSAGE_OUTPUT"); /* how this program reports: not to be lost with the rest */
    char output[32];
    snprintf(output, sizeof(output), "%s", kept ? kept : "STDOUT");
    for (size_t i = 0; i < ARRAY_SIZE(envs); i++) {
        char run[256], want[300], got[300];
        clearenv();
        setenv("CMOCKA_MESSAGE_OUTPUT", output, 1);
        for (size_t k = 0; envs[i][k]; k++)
            assert_int_equal(putenv(envs[i][k]), 0);
        int r = dirs_path(BRIG_DIR_RUN, run, sizeof(run), NULL);
        if (r < 0) {
            assert_true(config_socket_path(envs[i], got, sizeof(got)) < 0);
            continue;
        }
        assert_true(str_format(want, sizeof(want), "%s/brig.sock", run) > 0);
        assert_int_equal(config_socket_path(envs[i], got, sizeof(got)), 0);
        assert_string_equal(got, want);
    }
}

static void every_row_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *key = &config_keys[i];
        char env[64];
        config_env_name(key, env);
        assert_int_equal(config_find_env(env, strlen(env)), i);
        assert_int_equal(config_find(key->section, key->key), i);
        assert_true(config_is_section(key->section));
        assert_true(key->help[0] != '\0' && key->fallback);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(config_keys[k].offset, key->offset);
        if (key->type != CONFIG_TEXT && key->type != CONFIG_BOOL)
            assert_true(key->min >= 1 && key->min < key->max);
    }
}

static void survives_every_allocation_failure(void **state)
{
    size_t n = 0;
    (void)state;

    write_file(file, "[llm]\nx = 1\n[sandbox]\nimage = 'python:3'\nuse_sandbox = false\n");
    for (;; n++) {
        struct config_loaded *loaded = NULL;
        struct brig_err err = {0};
        mem_fail_after(n);
        int r = config_load(file, no_env, &loaded, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0) {
            config_free(loaded);
            assert_false(failed);
            break;
        }
        assert_int_equal(r, -ENOMEM);
        assert_null(loaded);
    }
    assert_true(n > 20);
}

/* Names that others gave their settings: read where ours is not set, the first of a row wins, and values are as they
 * write them. */
static void refuses_pools_that_mean_nothing(void **state UNUSED)
{
    static const char *const pools[] = {"web",      "web=0",  "web=1001", "=1",     "web=1x",      "a/web=1",
                                        "org-/w=1", "web=-1", "org-1/=1", "we*b=1", "org-1/a/b=1", "web="};
    for (size_t i = 0; i < ARRAY_SIZE(pools); i++) {
        char text[128], want[256];
        snprintf(text, sizeof text, "[pool]\ntemplates = ['ok=1', '%s']\n", pools[i]);
        snprintf(want, sizeof want,
                 ":2: [pool] templates = ok=1 %s: must be words NAME=COUNT or org-ID/NAME=COUNT with blanks between "
                 "them, COUNT 1 to 1000",
                 pools[i]);
        assert_refused(text, want);
    }
    config_free(load("[pool]\ntemplates = ['web:1.2=1', 'org-1a/Web_b=1000']\nkeep_free = 0\n", NULL));
}

static void takes_others_names(void **state)
{
    char *env[8] = {(char[]){"BRIG_RUN_DIR=/run/x"},           (char[]){"LETTA_TOOL_SANDBOX_DIR=/three"},
                    (char[]){"LETTA_TOOL_EXECUTION_DIR=/two"}, (char[]){"LETTA_TOOL_SANDBOX_TIMEOUT=60.5"},
                    (char[]){"TOOL_EXEC_AUTORELOAD_VENV=No"},  (char[]){"LETTA_TOOL_SANDBOX_VENV_NAME=my.env"},
                    (char[]){"E2B_API_KEY=e2b_hunter2"},       NULL};
    char *with_first[] = {(char[]){"BRIG_RUN_DIR=/run/x"}, (char[]){"TOOL_EXEC_DIR=/one"},
                          (char[]){"LETTA_TOOL_EXECUTION_DIR=/two"}, NULL};
    char *with_ours[] = {(char[]){"BRIG_RUN_DIR=/run/x"}, (char[]){"TOOL_EXEC_DIR=/one"},
                         (char[]){"BRIG_TOOLS_EXEC_DIR=/ours"}, (char[]){"LETTA_TOOL_SANDBOX_DIR=/three"}, NULL};
    struct config_row row;
    char origin[128];

    (void)state;
    struct config_loaded *loaded = load("[tools]\nexec_dir = \"/file\"\n", env);
    const struct config *config = config_get(loaded);
    assert_string_equal(config->tools_exec_dir, "/two");
    assert_int_equal(config->tools_timeout, 60500);
    assert_false(config->tools_autoreload_venv);
    assert_string_equal(config->tools_venv_name, "my.env");
    assert_string_equal(config->tools_e2b_key, "e2b_hunter2");
    for (size_t i = 0; config_each(loaded, i, &row); i++) {
        config_origin(loaded, i, origin, sizeof(origin));
        if (str_eq(row.section, "tools") && str_eq(row.key, "exec_dir")) {
            assert_string_equal(origin, "LETTA_TOOL_EXECUTION_DIR");
            assert_string_equal(row.env, "TOOL_EXEC_DIR");
        }
        if (str_eq(row.key, "e2b_api_key"))
            assert_string_equal(row.value, "***");
        if (str_eq(row.key, "webhook_key"))
            assert_string_equal(row.value, "");
    }
    config_free(loaded);
    loaded = load("", with_first);
    assert_string_equal(config_get(loaded)->tools_exec_dir, "/one");
    config_free(loaded);
    loaded = load("", with_ours);
    assert_string_equal(config_get(loaded)->tools_exec_dir, "/ours");
    config_free(loaded);

    assert_env_refused("TOOL_EXEC_DIR=here", "TOOL_EXEC_DIR = here: must be an absolute path, or empty");
    assert_env_refused("TOOL_EXEC_VENV_NAME=../x",
                       "TOOL_EXEC_VENV_NAME = ../x: must be letters, digits, `_`, `.` and `-`, or empty");
    assert_env_refused("TOOL_EXEC_AUTORELOAD_VENV=perhaps",
                       "TOOL_EXEC_AUTORELOAD_VENV = perhaps: must be true or false");
    assert_env_refused("STEP_ORCHESTRATOR_ENDPOINT=ftp://x",
                       "STEP_ORCHESTRATOR_ENDPOINT = ftp://x: must be http://... or https://..., or empty");
    assert_env_refused("BRIG_TOOLS_STRICT=yes", "BRIG_TOOLS_STRICT = yes: must be true or false");
    assert_refused("[tools]\ndefault = \"maybe\"\n", ":2: [tools] default = maybe: must be allow or deny");
    assert_refused("[tools]\nfallback = \"e2b\"\n", ":2: [tools] fallback = e2b: must be auto or none");
    assert_refused("[sandbox]\nallowed_dirs = \"/a:b\"\n",
                   ":2: [sandbox] allowed_dirs = /a:b: must be absolute paths with colons between them, or empty");
    assert_refused("[templates]\ndebian_mirror = 'ftp://x'\n",
                   ":2: [templates] debian_mirror = ftp://x: must be http://... or https://..., or empty");
    assert_refused("[templates]\ndebian_mirror = 'http://me:word@mirror.example/'\n",
                   ":2: [templates] debian_mirror = http://me:word@mirror.example/: must have no name and no password: "
                   "it becomes a part of templates");
    config_free(load("[templates]\ndebian_mirror = 'http://mirror.example/debian'\n", NULL));
    assert_refused("[audit]\npayloads = 1\n", ":2: [audit] payloads = 1: must be true or false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_defaults),
        cmocka_unit_test(reads_every_kind_of_value),
        cmocka_unit_test(takes_an_openmanus_file),
        cmocka_unit_test(refuses_what_it_does_not_know),
        cmocka_unit_test(refuses_what_breaks_a_rule),
        cmocka_unit_test(rules_between_keys),
        cmocka_unit_test(variables_and_flags_win),
        cmocka_unit_test(masks_secrets),
        cmocka_unit_test(refuses_pools_that_mean_nothing),
        cmocka_unit_test(takes_others_names),
        cmocka_unit_test(says_what_needs_a_restart),
        cmocka_unit_test(finds_its_file),
        cmocka_unit_test(socket_is_in_the_run_directory),
        cmocka_unit_test(every_row_is_sound),
        cmocka_unit_test(survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
