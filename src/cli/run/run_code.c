/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_code.c: `brig run --lang LANGUAGE FILE|-`: runs a snippet instead of a command. A daemon runs it as code (POST
 * /v1/run; the receipt's kind is `code`): with a warm interpreter and an empty stdin. If there is no daemon, or a flag
 * asks for what only a process has (-i, -t, -v, ...), the interpreter is found inside and gets the text as one word of
 * its command line: no shell reads it. A text that does not fit into a word (128 KiB, the kernel's limit), and
 * TypeScript, whose types only the runtime removes, always need a service.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/attach.h"
#include "cli/run/run.h"
#include "cli/verbs/tool.h"

#define CODE_MAX ((size_t)1 << 20)     /* as the daemon takes it */
#define WORD_BYTES ((size_t)120 << 10) /* of one word, with room for a flag before it */
#define TIMEOUT_MS UINT64_C(300000)    /* of a run that says nothing else */
#define BODY_MAX (8 * CODE_MAX)

struct run_language {
    const char *name, *language;
    /* argv without a service; prefix: of the text's own word; program NULL: not without one */
    const char *program, *before, *prefix;
};

static const struct run_language languages[] = {
    {"python", "python", "python3", "-c", ""},
    {"node", "javascript", "node", NULL, "--eval="},
    {"javascript", "javascript", "node", NULL, "--eval="},
    {"typescript", "typescript", NULL, NULL, NULL},
    {"bash", "bash", "bash", "-c", ""},
};

int run_code_flag(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;

    for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
        if (str_eq(languages[i].name, value)) {
            options->language = &languages[i];
            return 0;
        }
    return flag_refuse(err, given, value, "the language is python, node (or javascript), typescript or bash");
}

/* ---- the words --------------------------------------------------------------------------------------- */

/* `import` and `export` are for modules only; older interpreters do not find that out themselves. */
static bool is_module(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (str_starts(line, "import ") || str_starts(line, "import{") || str_starts(line, "export "))
            return true;
    }
    return false;
}

static int make_argv(struct run_options *options, struct brig_err *err)
{
    const struct run_language *language = options->language;
    const char **argv = (const char **)(void *)run_options_alloc(options, 6 * sizeof *argv);
    const bool fits = language->program && options->code.len <= WORD_BYTES;
    const size_t size = fits ? strlen(language->prefix) + options->code.len + 1 : 1;
    char *word = run_options_alloc(options, size);
    size_t n = 0;

    if (!argv || !word)
        return err_nomem(err);
    argv[n++] = fits ? language->program : "node"; /* what does not fit never gets there */
    if (fits) {
        snprintf(word, size, "%s%s", language->prefix, options->code.data);
        if (str_eq(language->language, "javascript") && is_module(options->code.data))
            argv[n++] = "--input-type=module";
        if (language->before)
            argv[n++] = language->before;
        if (str_eq(language->language, "bash"))
            argv[n++] = "--"; /* a script may begin with a dash */
        argv[n++] = word;
    }
    options->spec.argv = argv;
    return 0;
}

int run_code_read(struct run_options *options, int n, char *const *words, struct brig_err *err)
{
    if (n != 1)
        return err_usage(err,
                         n == 0 ? "no file given: brig run --lang LANGUAGE [flags] FILE|-"
                                : "%s: one word too many: a snippet has no arguments",
                         n == 0 ? "" : words[1]);
    if (options->interactive && str_eq(words[0], "-"))
        return err_usage(err, "-i with - for the file: stdin cannot be both the snippet and its input");
    options->code = BUF_INIT(CODE_MAX + 65536);
    if (!service_read_file(words[0], &options->code))
        return 1; /* the line about it was said */
    if (options->code.len > CODE_MAX || buf_append(&options->code, "", 1) < 0)
        return err_set(err, BRIG_E_TOO_LARGE, EFBIG, "%s: larger than %zu KiB", words[0], CODE_MAX >> 10);
    options->code.len--;
    if (memchr(options->code.data, '\0', options->code.len))
        return err_usage(err, "%s: has a zero byte in it: this is no source", words[0]);
    return make_argv(options, err);
}

/* ---- by a service ------------------------------------------------------------------------------------ */

/* Which flag of these was given is for the message. */
static const char *only_a_process(const struct run_options *options)
{
    const struct brig_spec *spec = &options->spec;
    const struct {
        bool given;
        const char *flag;
    } flags[] = {
        {options->local, "--local"},
        {options->interactive, "-i"},
        {options->tty, "-t"},
        {spec->n_binds > 0, "-v"},
        {spec->rootfs != NULL, "--rootfs"},
        {spec->n_tmpfs > 0, "--tmpfs"},
        {spec->limits.cpu_time > 0, "--cpu-time"},
        {spec->limits.output > 0, "--output"},
        {options->kill_on_output, "--on-output-limit"},
        {spec->workdir != NULL, "-w"},
        {spec->profile != BRIG_PROFILE_DEFAULT, "--profile"},
        {options->writable_root, "--writable-root"},
        {options->user, "--user"},
        {spec->require != 0, "--require"},
        {spec->name != NULL, "--name"},
        {net_flags_learn(&options->net), "--net learn"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
        if (flags[i].given)
            return flags[i].flag;
    return NULL;
}

static int put_body(const struct run_options *options, struct buf *out, struct brig_err *err)
{
    const struct brig_spec *spec = &options->spec;
    struct json json = JSON_INIT(out);
    size_t n_env = 0;

    while (spec->env && spec->env[n_env])
        n_env++;
    json_object(&json);
    json_key_string(&json, "language", options->language->language);
    json_key(&json, "code"), json_string_n(&json, options->code.data, options->code.len);
    int r = service_put_pairs(&json, "env_vars", spec->env, n_env, err);
    json_key(&json, "timeout"), json_thousandths(&json, spec->limits.timeout > 0 ? spec->limits.timeout : TIMEOUT_MS);
    run_put_limits(&json, &spec->limits, &options->net);
    net_flags_put(&options->net, &json);
    json_end(&json);
    if (r < 0)
        return r;
    return json_finish(&json) < 0 ? err_usage(err, "the snippet is not UTF-8") : 0;
}

bool run_code(const struct run_options *options, int *ret_status)
{
    AUTO_TOOL_SERVICE struct tool_service service = {0};
    AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
    const struct tool_show how = {
        .json = options->json, .quiet = options->quiet, .program = true, .stream = true, .receipt = options->receipt};
    const char *flag = only_a_process(options);
    const bool must = !options->language->program || options->code.len > WORD_BYTES;
    struct brig_err err = {0};

    *ret_status = CLI_FAILED;
    if (flag && must) {
        cli_error("%s: not for %s", flag,
                  options->language->program ? "a snippet of more than 120 KiB"
                                             : "TypeScript, which only a service runs");
        return true;
    }
    if (flag || (!must && !json_utf8_valid(options->code.data, options->code.len)))
        return false;
    if (put_body(options, &body, &err) < 0) {
        cli_error("%s", err.message);
        return true;
    }
    if (!must && !client_is_remote() && !tool_service_find(&service))
        return false;
    *ret_status = service.client || tool_service_open(&service) ? tool_ask(&service, "/v1/run", &body, &how)
                                                                : tool_service_signal(&service);
    return true;
}
