/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_verb.c: `brig audit` without a daemon: the arguments, and `verify`, whose judgement is audit_verify()'s.
 * audit_show.c has the other verbs.
 */
#include "brigd/audit_show.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "audit/audit.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "config/config.h"
#include "host/dirs.h"
#include "store/store.h"

int audit_trouble(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "brig: audit: %s\n", text);
    return EXIT_TROUBLE;
}

static const char help_text[] =
    "usage: brig audit verify [--dir DIR] [--key FILE] [--head SEQ:HASH] [--known-cut SEQ] [-o text|json]\n"
    "       brig audit show   [--dir DIR] [--action NAME] [--org ID] [--since TIME] [-n N] [-o text|json]\n"
    "       brig audit tail   [--dir DIR] [--action NAME] [--org ID] [-n N] [-f] [-o text|json]\n"
    "       brig audit export [--dir DIR] [--from SEQ|TIME] [--to SEQ|TIME]\n"
    "\n"
    "  verify   finds any line that was removed, changed or reordered, and an end that was cut off\n"
    "  show     the lines, oldest first\n"
    "  tail     the last lines (10 unless -n says otherwise); -f waits for more\n"
    "  export   lines as they are in the log, for keeping elsewhere\n"
    "\n"
    "      --dir DIR          the log (default: audit in the state directory)\n"
    "      --key FILE         public key of the signatures, PEM or 64 hexadecimal digits\n"
    "                         (default, without --dir: keys/audit.pem.pub in the state directory)\n"
    "      --head SEQ:HASH    the log must have this line with this hash, noted elsewhere\n"
    "                         (default, without --dir: the head that the service's store has noted)\n"
    "      --known-cut SEQ    lines up to this one may tell that the log was cut (audit.cut)\n"
    "      --action NAME      only these, such as denied or key.create; `key.` is all that begin so\n"
    "      --org ID           only those of this organisation\n"
    "      --since TIME       2024-02-29, 2024-02-29T12:00:00Z, or an age such as 2h\n"
    "  -n N                   at most the last N\n"
    "  -f                     follow\n"
    "  -o FORMAT              text (default), or json: the lines as they are\n"
    "\n"
    "Exit status: 0 well, 1 the log is not what was written, 2 it could not be read.\n";

/* ---- arguments --------------------------------------------------------------------------------------------- */

static int open_dir(const struct audit_verb_options *options, int *ret)
{
    char path[PATH_MAX];
    struct brig_err err;

    if (options->dir) {
        if (str_copy(path, sizeof(path), options->dir) < 0)
            return audit_trouble("--dir: too long");
    } else {
        if (dirs_path(BRIG_DIR_STATE, path, sizeof(path), &err) < 0)
            return audit_trouble("%s", err.message);
        size_t len = strlen(path);
        if (str_copy(path + len, sizeof(path) - len, "/audit") < 0)
            return audit_trouble("%s: too long", path);
    }
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? audit_trouble("%s: %s", path, strerror(errno)) : 0;
}

enum { OPT_DIR = 256, OPT_KEY, OPT_HEAD, OPT_ACTION, OPT_ORG, OPT_SINCE, OPT_FROM, OPT_TO, OPT_CUT, OPT_HELP };

static const struct option long_options[] = {
    {"dir", required_argument, NULL, OPT_DIR},
    {"key", required_argument, NULL, OPT_KEY},
    {"head", required_argument, NULL, OPT_HEAD},
    {"action", required_argument, NULL, OPT_ACTION},
    {"org", required_argument, NULL, OPT_ORG},
    {"since", required_argument, NULL, OPT_SINCE},
    {"from", required_argument, NULL, OPT_FROM},
    {"to", required_argument, NULL, OPT_TO},
    {"help", no_argument, NULL, OPT_HELP},
    {"known-cut", required_argument, NULL, OPT_CUT},
    {0},
};

/* Which of them an action takes, by their letters in `takes`. */
static const struct {
    int option;
    char letter;
    const char *name;
} letters[] = {
    {OPT_DIR, 'd', "--dir"},   {OPT_KEY, 'k', "--key"},
    {OPT_HEAD, 'h', "--head"}, {OPT_ACTION, 'a', "--action"},
    {OPT_ORG, 'r', "--org"},   {OPT_SINCE, 's', "--since"},
    {OPT_FROM, 'F', "--from"}, {OPT_TO, 'T', "--to"},
    {'n', 'n', "-n"},          {'f', 'f', "-f"},
    {'o', 'o', "-o"},          {OPT_CUT, 'c', "--known-cut"},
};

static int set_option(struct audit_verb_options *options, int option, const char *name, char *value)
{
    const struct {
        int option;
        const char **field;
    } texts[] = {
        {OPT_DIR, &options->dir},       {OPT_KEY, &options->key}, {OPT_HEAD, &options->head},
        {OPT_ACTION, &options->action}, {OPT_ORG, &options->org}, {OPT_SINCE, &options->since},
        {OPT_FROM, &options->from},     {OPT_TO, &options->to},   {'o', &options->format},
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (texts[i].option == option)
            *texts[i].field = value;
    if (option == 'f')
        options->follow = true;
    if (option == OPT_CUT && (parse_u64(value, &options->known_cut) < 0 || options->known_cut == 0))
        return audit_trouble("%s %.40s: must be the number of a line", name, value);
    if (option == 'n') {
        if (parse_u64(value, &options->lines) < 0 || options->lines == 0 || options->lines > AUDIT_SHOW_MAX)
            return audit_trouble("%s %.40s: must be a whole number from 1 to %u", name, value, AUDIT_SHOW_MAX);
        options->has_lines = true;
    }
    if (option == 'o') {
        options->json = str_eq(value, "json");
        if (!options->json && !str_eq(value, "text") && !str_eq(value, "table"))
            return audit_trouble("-o %.40s: must be text or json", value);
    }
    return 0;
}

/* 0, or an exit status + 1 that ends it here. */
static int parse_options(int argc, char **argv, const char *takes, struct audit_verb_options *ret)
{
    int option;

    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":n:fo:h", long_options, NULL)) != -1) {
        if (option == OPT_HELP || option == 'h') {
            fputs(help_text, stdout);
            return EXIT_OK + 1;
        }
        if (option == ':')
            return audit_trouble("%s: needs a value", argv[optind - 1]) + 1;
        if (option == '?')
            return audit_trouble("%s: there is no such flag; brig audit --help lists them", argv[optind - 1]) + 1;
        for (size_t i = 0; i < ARRAY_SIZE(letters); i++) {
            if (letters[i].option != option)
                continue;
            if (!strchr(takes, letters[i].letter))
                return audit_trouble("%s: audit %s does not take it", letters[i].name, argv[0]) + 1;
            int r = set_option(ret, option, letters[i].name, optarg);
            if (r != 0)
                return r + 1;
        }
    }
    return optind < argc ? audit_trouble("%s: audit %s takes no arguments", argv[optind], argv[0]) + 1 : 0;
}

/* ---- verify ------------------------------------------------------------------------------------------------ */

static int find_key(const struct audit_verb_options *options, uint8_t out[ED25519_PUBLIC], bool *ret_found)
{
    char path[PATH_MAX];
    struct brig_err err;

    *ret_found = false;
    if (options->key) {
        if (crypto_public_read(AT_FDCWD, options->key, out, &err) < 0)
            return audit_trouble("%s", err.message);
        *ret_found = true;
        return 0;
    }
    if (options->dir || dirs_path(BRIG_DIR_STATE, path, sizeof(path), NULL) < 0)
        return 0;
    size_t len = strlen(path);
    *ret_found = str_copy(path + len, sizeof(path) - len, "/keys/audit.pem.pub") == 0 &&
                 crypto_public_read(AT_FDCWD, path, out, NULL) == 0;
    return 0;
}

static int parse_head(const char *text, uint64_t *seq, char hash[SHA256_HEX])
{
    uint8_t bytes[SHA256_SIZE];
    char digits[24];
    size_t len = strcspn(text, ":");

    if (text[len] != ':' || len >= sizeof(digits))
        return -EINVAL;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (parse_u64(digits, seq) < 0 || *seq == 0 ||
        crypto_unhex(text + len + 1, strlen(text + len + 1), bytes, sizeof(bytes)) < 0)
        return -EINVAL;
    return str_copy(hash, SHA256_HEX, text + len + 1);
}

static int print_report(const struct audit_report *report, bool as_json)
{
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    if (!as_json) {
        if (report->ok && report->lines > 0)
            printf(
                "ok: lines %" PRIu64 " to %" PRIu64 " in %" PRIu64 " files, %" PRIu64 " heads; head %" PRIu64 ":%s\n",
                report->first_seq, report->last_seq, report->files, report->heads, report->last_seq, report->last_hash);
        else
            printf("%s%s\n", report->ok ? "ok: no lines yet" : "NOT OK: ", report->problem);
        if (report->note[0])
            printf("note: %s\n", report->note);
        return fflush(stdout) == 0 ? report->ok ? EXIT_OK : EXIT_WRONG : EXIT_TROUBLE;
    }
    json_object(&json);
    json_key_bool(&json, "ok", report->ok);
    json_key_string(&json, "problem", report->problem);
    json_key_string(&json, "note", report->note);
    json_key_u64(&json, "first_seq", report->first_seq);
    json_key_u64(&json, "last_seq", report->last_seq);
    json_key_u64(&json, "lines", report->lines);
    json_key_u64(&json, "files", report->files);
    json_key_u64(&json, "heads", report->heads);
    json_key_string(&json, "last_hash", report->last_hash);
    json_end(&json);
    if (json_finish(&json) < 0)
        return audit_trouble("out of memory");
    printf("%s\n", out.data);
    return fflush(stdout) == 0 ? report->ok ? EXIT_OK : EXIT_WRONG : EXIT_TROUBLE;
}

/* What the service's store has noted. A log without a service's store is one that was copied: then nothing is noted. */
static int find_head(struct audit_verify_options *how, char hash[SHA256_HEX], bool *ret_store)
{
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    char path[PATH_MAX], url[PATH_MAX + 64];
    int r = config_load(NULL, environ, &loaded, &err);

    *ret_store = false;
    if (r == 0 && config_get(loaded)->database_url[0])
        r = str_copy(url, sizeof(url), config_get(loaded)->database_url);
    else if (r == 0)
        r = dirs_path(BRIG_DIR_STATE, path, sizeof(path), &err);
    if (r == 0 && !config_get(loaded)->database_url[0])
        r = str_format(url, sizeof(url), "sqlite:%s/service/brig.db", path) < 0 ? -ENAMETOOLONG : 0;
    config_free(loaded);
    if (r == 0)
        r = store_peek_audit_head(url, &how->head_seq, hash, &err);
    if (r < 0 && err.code == BRIG_E_NOT_FOUND)
        return 0;
    if (r < 0)
        return audit_trouble("the head that the store has noted: %s (--dir verifies the files alone)",
                             err.code ? err.message : strerror(-r));
    *ret_store = how->head_seq > 0;
    how->head_hash = *ret_store ? hash : NULL;
    return 0;
}

static void add_note(struct audit_report *report, const char *text)
{
    size_t len = strlen(report->note);

    snprintf(report->note + len, sizeof(report->note) - len, "%s%s", len > 0 ? "; " : "", text);
}

static int run_verify(const struct audit_verb_options *options, int dir_fd)
{
    struct audit_verify_options how = {.known_cut = options->known_cut};
    bool store = true;
    uint8_t key[ED25519_PUBLIC];
    char hash[SHA256_HEX];
    struct audit_report report;
    struct brig_err err;
    bool found;

    if (options->head) {
        if (parse_head(options->head, &how.head_seq, hash) < 0)
            return audit_trouble("--head %.90s: must be SEQ:HASH, a number and 64 hexadecimal digits", options->head);
        how.head_hash = hash;
    }
    int r = options->head || options->dir ? 0 : find_head(&how, hash, &store);
    if (r == 0)
        r = find_key(options, key, &found);
    if (r != 0)
        return r;
    if (found)
        how.public_key = key;
    if (audit_verify(dir_fd, &how, &report, &err) < 0)
        return audit_trouble("%s", err.message);
    if (!store)
        add_note(&report,
                 "there is no store that has noted its head: an end that was cut off together with its heads would "
                 "not be seen");
    return print_report(&report, options->json);
}

int audit_verb(int argc, char **argv)
{
    static const struct {
        const char *name, *takes;
        int (*run)(const struct audit_verb_options *options, int dir_fd);
    } actions[] = {
        {"verify", "dkhoc", run_verify},
        {"show", "darsno", audit_show},
        {"tail", "darnfo", audit_tail},
        {"export", "dFT", audit_export},
    };
    struct audit_verb_options options = {0};

    if (argc < 2)
        return audit_trouble("what to do is missing: verify, show, tail or export");
    if (str_eq(argv[1], "--help") || str_eq(argv[1], "-h")) {
        fputs(help_text, stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        if (!str_eq(argv[1], actions[i].name))
            continue;
        AUTO_FD int dir_fd = -1;
        int r = parse_options(argc - 1, argv + 1, actions[i].takes, &options);
        if (r != 0)
            return r - 1;
        r = open_dir(&options, &dir_fd);
        return r != 0 ? r : actions[i].run(&options, dir_fd);
    }
    return audit_trouble("%.40s: must be verify, show, tail or export", argv[1]);
}
