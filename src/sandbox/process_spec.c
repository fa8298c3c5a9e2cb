/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_spec.c: a program to run, from JSON (schema ProcessSpec), strictly: one table of members, as sbox_spec.c has.
 * Everything is copied into one block, so that the request's text may go.
 */
#include "base/base64.h"
#include "host/limits.h"
#include "jail/plan.h"
#include "sandbox/processes.h"

#define ARGV_MAX 65536u
#define ARGV_ROOM 4u /* the NULL at its end, and alignment */

struct proc_in {
    struct spec_memory memory;
    struct process_spec *spec;
    const char *sandbox_dir;
    const char **argv, **args, **env;
    const struct template_image *image; /* the sandbox's; NULL if it has none */
    const struct json_value *input;
    bool input_base64;
    bool shell; /* needs no argv */
};

typedef int member_fn(struct proc_in *in, const struct json_value *v, struct brig_err *err);

static int read_words(struct proc_in *in, const struct json_value *v, size_t min, const char ***ret,
                      struct brig_err *err)
{
    size_t n = 0;

    if (in->argv || in->args)
        return err_usage(err, "argv, args, command: only one of them");
    if (v->type != JSON_ARRAY || v->count < min || v->count > ARGV_MAX)
        return err_usage(err, "%s: must be an array of %zu to %u strings", v->key, min, ARGV_MAX);
    const char **words = spec_take(&in->memory, (v->count + 1) * sizeof *words, _Alignof(char *));
    for (const struct json_value *item = v->first; item; item = item->next) {
        const char *text;
        int r = spec_string(item, v->key, GUEST_STRINGS_MAX, true, &text, err);
        if (r < 0)
            return r;
        words[n++] = spec_copy(&in->memory, item->string, item->len);
    }
    words[n] = NULL;
    *ret = words;
    return 0;
}

static int read_argv(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    int r = read_words(in, v, 1, &in->argv, err);

    return r == 0 && !in->argv[0][0] ? err_usage(err, "argv: the program must not be empty") : r;
}

/* They follow the image's entry point, in place of its command. */
static int read_args(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    return read_words(in, v, 0, &in->args, err);
}

static size_t count_words(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* Without a program: the image's entry point, and its command or what the request has in its place. */
static int use_image(struct proc_in *in, struct brig_err *err)
{
    const struct template_image *image = in->image;

    if (!image)
        return in->args ? err_usage(err, "args: the sandbox has no image, whose entry point they could follow")
                        : err_usage(err, "argv: must be given, or command");
    const char *const *parts[] = {image->entrypoint, in->args ? in->args : image->cmd};
    size_t n = 0, size = count_words(parts[0]) + count_words(parts[1]);
    const char **argv = spec_take(&in->memory, (size + 1) * sizeof *argv, _Alignof(char *));
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        for (size_t k = 0; parts[i] && parts[i][k]; k++)
            argv[n++] = parts[i][k];
    argv[n] = NULL;
    if (n == 0 || !argv[0][0])
        return err_usage(err, "argv: must be given, or command: the image has neither an entry point nor a command");
    in->argv = argv;
    return 0;
}

static int read_command(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_string(v, "command", GUEST_STRINGS_MAX, true, &text, err);

    if (r < 0)
        return r;
    if (in->argv || in->args)
        return err_usage(err, "argv, args, command: only one of them");
    if (!text[0])
        return err_usage(err, "command: must not be empty");
    const char **argv = spec_take(&in->memory, 4 * sizeof *argv, _Alignof(char *));
    argv[0] = "/bin/sh";
    argv[1] = "-c";
    argv[2] = spec_copy(&in->memory, v->string, v->len);
    argv[3] = NULL;
    in->argv = argv;
    return 0;
}

static int read_env(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    size_t n = 0;

    if (v->type != JSON_OBJECT || v->count > ENV_MAX)
        return err_usage(err, "env: must be an object of at most %u strings", ENV_MAX);
    const char **env = spec_take(&in->memory, (v->count + 1) * sizeof *env, _Alignof(char *));
    for (const struct json_value *m = v->first; m; m = m->next) {
        if (m->type != JSON_STRING)
            return err_usage(err, "env %.64s: must be a string", m->key);
        int r = spec_pair_check("env", m->key, m->key_len, m->string, m->len, true, err);
        if (r < 0)
            return r;
        char *entry = spec_take(&in->memory, m->key_len + m->len + 2, 1);
        memcpy(entry, m->key, m->key_len);
        entry[m->key_len] = '=';
        memcpy(entry + m->key_len + 1, m->string, m->len + 1);
        env[n++] = entry;
    }
    env[n] = NULL;
    in->env = env;
    return 0;
}

static int read_cwd(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_string(v, "cwd", SVC_PATH_MAX - 1, false, &text, err);

    if (r < 0)
        return r;
    if (!text[0])
        return err_usage(err, "cwd: must not be empty");
    size_t len = strlen(in->sandbox_dir) + v->len + 2;
    char *path = spec_take(&in->memory, len, 1);
    if (str_format(path, len, "%s%s%s", text[0] == '/' ? "" : in->sandbox_dir, text[0] == '/' ? "" : "/", text) < 0)
        return -ENAMETOOLONG;
    in->spec->workdir = path;
    return check_inside_path("cwd", path, err);
}

static int read_stdin(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    if (v->type != JSON_STRING)
        return err_usage(err, "stdin: must be a string");
    in->input = v;
    return 0;
}

static int read_stdin_encoding(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"utf-8", "base64", NULL};
    int r = spec_word(v, "stdin_encoding", words, err);

    if (r < 0)
        return r;
    in->input_base64 = r == 1;
    return 0;
}

static int read_timeout(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    return v->type == JSON_NULL ? 0 : spec_duration(v, "timeout", &in->spec->timeout_ms, err);
}

static int read_output(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    return spec_size(v, "output", &in->spec->output, err);
}

static int read_on_output(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"drop", "kill", NULL};
    int r = spec_word(v, "on_output_limit", words, err);

    if (r < 0)
        return r;
    in->spec->kill_on_output = r == 1;
    return 0;
}

static int read_flag(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    struct process_spec *spec = in->spec;

    return spec_bool(v, v->key,
                     str_eq(v->key, "tty")    ? &spec->tty
                     : str_eq(v->key, "hold") ? &spec->hold
                                              : &spec->stdin_open,
                     err);
}

static int read_window(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    uint64_t value = 0;
    int r = spec_count(v, v->key, 1, UINT16_MAX, &value, err);

    *(str_eq(v->key, "rows") ? &in->spec->rows : &in->spec->cols) = (uint16_t)value;
    return r;
}

static int read_ring(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    uint64_t value = 0;
    int r = spec_size(v, "ring", &value, err);

    if (r == 0 && (value < 4096 || value > 64u << 20))
        return err_usage(err, "ring: must be between 4096 and %u bytes", 64u << 20);
    in->spec->ring = (uint32_t)value;
    return r;
}

static int read_user(struct proc_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_user(v, &text, err);

    if (r == 0)
        in->spec->user = spec_copy(&in->memory, text, strlen(text));
    return r;
}

static const struct {
    const char *key;
    member_fn *read;
} members[] = {
    {"argv", read_argv},
    {"args", read_args},
    {"command", read_command},
    {"env", read_env},
    {"cwd", read_cwd},
    {"stdin", read_stdin},
    {"stdin_encoding", read_stdin_encoding},
    {"timeout", read_timeout},
    {"output", read_output},
    {"on_output_limit", read_on_output},
    {"tty", read_flag},
    {"stdin_open", read_flag},
    {"hold", read_flag},
    {"rows", read_window},
    {"cols", read_window},
    {"ring", read_ring},
    {"user", read_user},
};

static int take_input(struct proc_in *in, struct brig_err *err)
{
    if (!in->input)
        return 0;
    char *data = spec_copy(&in->memory, in->input->string, in->input->len);
    in->spec->input = data;
    in->spec->input_len = in->input->len;
    if (in->input_base64) {
        ssize_t n = base64_decode_padded(data, in->input->len, data, in->input->len);
        if (n < 0)
            return err_usage(err, "stdin: is not base64");
        in->spec->input_len = (size_t)n;
    }
    return 0;
}

static int read_members(struct proc_in *in, const struct json_value *json, struct brig_err *err)
{
    for (const struct json_value *m = json->first; m; m = m->next) {
        size_t i = 0;
        while (i < ARRAY_SIZE(members) && !str_eq(members[i].key, m->key))
            i++;
        if (i == ARRAY_SIZE(members))
            return err_usage(err, "%.64s: there is no such member", m->key);
        int r = members[i].read(in, m, err);
        if (r < 0)
            return r;
    }
    if (!in->argv && !in->shell) {
        int r = use_image(in, err);
        if (r < 0)
            return r;
    }
    if (in->spec->tty && in->input)
        return err_usage(err, "stdin: not for a terminal");
    return take_input(in, err);
}

static int parse(const struct json_value *json, const struct sbox *sbox, bool shell, struct process_spec_parsed *ret,
                 struct brig_err *err)
{
    const char *dir = sbox ? sbox->spec.workdir : "/workspace";
    const struct template_copy *template = sbox ? sbox->spec.image : NULL;
    struct process_spec spec = {0};
    struct proc_in in = {
        .spec = &spec, .sandbox_dir = dir, .image = template ? &template->info.image : NULL, .shell = shell};
    size_t extra = strlen(dir) + 256;

    if (in.image)
        extra += (count_words(in.image->entrypoint) + count_words(in.image->cmd) + ARGV_ROOM) * sizeof(char *);

    if (json->type != JSON_OBJECT)
        return err_usage(err, "the request must be a JSON object");
    if (spec_memory_init(&in.memory, json, extra) < 0)
        return err_nomem(err);
    int r = read_members(&in, json, err);
    if (r < 0) {
        mem_free(in.memory.base);
        return r;
    }
    spec.argv = in.argv;
    spec.env = in.env;
    ret->spec = spec;
    ret->memory = in.memory.base;
    return 0;
}

int process_spec_parse(const struct json_value *json, const struct sbox *sbox, struct process_spec_parsed *ret,
                       struct brig_err *err)
{
    return parse(json, sbox, false, ret, err);
}

static bool is_shell_key(const char *key)
{
    return str_eq(key, "cwd") || str_eq(key, "env");
}

int process_spec_parse_shell(const struct json_value *json, const struct sbox *sbox, struct process_spec_parsed *ret,
                             struct brig_err *err)
{
    struct json_value none = {.type = JSON_OBJECT};

    if (!json || json->type == JSON_NULL) /* nothing asked for */
        json = &none;
    for (const struct json_value *m = json->first; m; m = m->next)
        if (json->type == JSON_OBJECT && !is_shell_key(m->key))
            return err_usage(err, "%.64s: there is no such member", m->key);
    return parse(json, sbox, true, ret, err);
}

void process_spec_done(struct process_spec_parsed *parsed)
{
    if (!parsed)
        return;
    mem_free(parsed->memory);
    *parsed = (struct process_spec_parsed){0};
}
