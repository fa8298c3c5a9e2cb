/* SPDX-License-Identifier: Apache-2.0 */
/* sudo_args.c: reads the command line of sudo (sudo_args.h). */
#include "codec/sudo_args.h"

#include <errno.h>
#include <string.h>

/* How an option is written. Those with `takes` have a value, in the same word or the next. */
static const struct option {
    char letter;
    bool takes;
    const char *name;
} options[] = {
    {'u', true, "user"},
    {'p', true, "prompt"},
    {'E', false, "preserve-env"},
    {'H', false, "set-home"},
    {'n', false, "non-interactive"},
    {'S', false, "stdin"},
    {'A', false, "askpass"},
    {'B', false, "bell"},
    {'k', false, "reset-timestamp"},
    {'K', false, "remove-timestamp"},
    {'s', false, "shell"},
    {'i', false, "login"},
    {'v', false, "validate"},
    {'l', false, "list"},
    {'V', false, "version"},
    {'h', false, "help"},
};

struct reading {
    struct sudo_args *args;
    char *const *argv;
    int argc, at; /* at: the word that is being read */
    bool forgets; /* -k or -K */
};

static bool begins(const char *text, const char *with, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] != with[i]) /* a text that is shorter has its NUL there */
            return false;
    return true;
}

static bool same(const char *a, const char *b)
{
    return begins(a, b, strlen(b) + 1);
}

/* The length of NAME in NAME=value, or 0. */
static size_t name_len(const char *word)
{
    size_t len = 0;

    while (word[len] != '\0' && word[len] != '=')
        len++;
    return word[len] == '=' ? len : 0;
}

static int refuse(struct sudo_args *args, const char *why, const char *word)
{
    args->why = why;
    args->word = word;
    return -EINVAL;
}

static int set_user(struct sudo_args *args, const char *user)
{
    const char *text = user[0] == '#' ? user + 1 : user;

    if (text[0] == '\0')
        return refuse(args, "-u: names a user", "");
    args->user = text;
    return 0;
}

static int apply(struct reading *in, char letter, const char *value)
{
    struct sudo_args *args = in->args;

    switch (letter) {
    case 'u': return set_user(args, value);
    case 'E': args->keep_env = true; break;
    case 'i': args->login = args->shell = true; break;
    case 's': args->shell = true; break;
    case 'k':
    case 'K': in->forgets = true; break;
    case 'v': args->does = SUDO_CHECK; break;
    case 'l': args->does = SUDO_LIST; break;
    case 'V': args->does = SUDO_VERSION; break;
    case 'h': args->does = SUDO_HELP; break;
    default: break; /* about passwords and prompts; HOME is the other user's anyway */
    }
    return 0;
}

static int next_word(struct reading *in, const char *option, const char **ret)
{
    if (in->at + 1 >= in->argc)
        return refuse(in->args, "it needs a value:", option);
    *ret = in->argv[++in->at];
    return 0;
}

/* Letters that stand together: -nEu root. */
static int read_letters(struct reading *in)
{
    const char *word = in->argv[in->at], *value = "";

    for (const char *at = word + 1; *at != '\0'; at++) {
        const struct option *o = options, *end = options + ARRAY_SIZE(options);

        while (o < end && o->letter != *at)
            o++;
        if (o == end)
            return refuse(in->args, "there is no such option:", word);
        if (o->takes && at[1] == '\0' && next_word(in, word, &value) < 0)
            return -EINVAL;
        if (o->takes && at[1] != '\0')
            value = at + 1;
        int r = apply(in, o->letter, value);
        if (r < 0 || o->takes)
            return r;
    }
    return 0;
}

static int read_long(struct reading *in)
{
    const char *word = in->argv[in->at], *name = word + 2, *value = "";
    size_t len = name_len(name);
    bool has_value = len > 0;

    len = has_value ? len : strlen(name);
    for (const struct option *o = options; o < options + ARRAY_SIZE(options); o++) {
        if (strlen(o->name) != len || !begins(name, o->name, len))
            continue;
        if (has_value)
            value = name + len + 1;
        if (has_value && o->letter == 'E') {
            in->args->keep_names = value;
            return 0;
        }
        if (has_value && !o->takes)
            return refuse(in->args, "it has no value:", word);
        if (o->takes && !has_value && next_word(in, word, &value) < 0)
            return -EINVAL;
        return apply(in, o->letter, value);
    }
    return refuse(in->args, "there is no such option:", word);
}

/* Options and settings, in any order, up to the command or to --. */
static int read_words(struct reading *in)
{
    struct sudo_args *args = in->args;
    int r = 0;

    for (; r == 0 && in->at < in->argc; in->at++) {
        const char *word = in->argv[in->at];

        if (same(word, "--")) {
            in->at++;
            break;
        }
        if (word[0] == '-' && word[1] != '\0')
            r = word[1] == '-' ? read_long(in) : read_letters(in);
        else if (name_len(word) == 0)
            break;
        else if (args->n_set == SUDO_SETTINGS_MAX)
            r = refuse(args, "too many variables:", word);
        else
            args->set[args->n_set++] = word;
    }
    return r;
}

int sudo_args_read(int argc, char *const *argv, struct sudo_args *ret)
{
    struct reading in = {.args = ret, .argv = argv, .argc = argc, .at = 1};

    *ret = (struct sudo_args){.user = "root", .why = "", .word = ""};
    int r = read_words(&in);
    if (r < 0)
        return r;
    ret->argv = argv + (in.at < argc ? in.at : argc);
    ret->n_argv = in.at < argc ? (unsigned)(argc - in.at) : 0;
    if (ret->does == SUDO_RUN && ret->n_argv == 0 && !ret->shell) {
        if (!in.forgets)
            return refuse(ret, "there is no command", "");
        ret->does = SUDO_NOTHING;
    }
    return 0;
}

/* ---- the environment -------------------------------------------------------------------------------------- */

static bool is_one_of(const char *entry, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (begins(entry, names[i], strlen(names[i])))
            return true;
    return false;
}

/* Is the name of an entry in NAME,NAME...? */
static bool is_listed(const char *list, const char *entry, size_t len)
{
    while (*list != '\0') {
        size_t part = 0;

        while (list[part] != '\0' && list[part] != ',')
            part++;
        if (part == len && begins(entry, list, len))
            return true;
        list += part + (list[part] == ',');
    }
    return false;
}

bool sudo_args_sets(const struct sudo_args *args, const char *entry)
{
    size_t len = name_len(entry);

    for (unsigned i = 0; i < args->n_set; i++)
        if (name_len(args->set[i]) == len && begins(entry, args->set[i], len))
            return true;
    return false;
}

bool sudo_args_keeps(const struct sudo_args *args, const char *entry)
{
    /* Where the CA bundle is and what the terminal can do: without them the command would work by accident only. */
    static const char *const kept[] = {"TERM=",
                                       "COLORTERM=",
                                       "LANG=",
                                       "LC_",
                                       "TZ=",
                                       "http_proxy=",
                                       "https_proxy=",
                                       "no_proxy=",
                                       "HTTP_PROXY=",
                                       "HTTPS_PROXY=",
                                       "NO_PROXY=",
                                       "SSL_CERT_FILE=",
                                       "PIP_CERT=",
                                       "REQUESTS_CA_BUNDLE=",
                                       "DENO_CERT=",
                                       "CURL_CA_BUNDLE=",
                                       "AWS_CA_",
                                       "NODE_EXTRA_CA_CERTS=",
                                       "GIT_SSL_CA",
                                       "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=",
                                       "CARGO_HTTP_CAINFO="};
    static const char *const never[] = {"SUDO_", "PATH="};
    static const char *const users[] = {"HOME=", "USER=", "LOGNAME="}; /* They are the other user's. */
    size_t len = name_len(entry);

    if (len == 0 || sudo_args_sets(args, entry) || is_one_of(entry, never, ARRAY_SIZE(never)))
        return false;
    if (args->keep_names && is_listed(args->keep_names, entry, len))
        return true;
    return (args->keep_env && !is_one_of(entry, users, ARRAY_SIZE(users))) || is_one_of(entry, kept, ARRAY_SIZE(kept));
}

bool sudo_args_escapes(char byte)
{
    return !((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
             byte == '_' || byte == '-' || byte == '$');
}
