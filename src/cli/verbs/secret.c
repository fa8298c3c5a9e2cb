/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.c: `brig secret set|ls|rm|keygen`: manages secrets that sandboxes use and, if they are brokered, never see. A
 * value comes from stdin, a file or a variable; never from the command line, which every process of the machine can
 * read. It is sent as base64, byte for byte, and our copies are wiped.
 */
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/ascii.h"
#include "base/str.h"
#include "cli/listing.h"
#include "cli/secret_value.h"

struct secret_options {
    struct value_source from;
    const char *broker, *id;
    bool json, quiet;
};

#define AT(field) offsetof(struct secret_options, field)

static const struct flag set_flags[] = {
    {"broker", "RULE", "where the gate puts it: host=NAME[,host=...],header=NAME[,format=\"Bearer %s\"]", flag_set_text,
     AT(broker), 0},
    {"from-env", "VAR", "the value is in this variable", flag_set_text, AT(from.variable), 0},
    {"from-file", "FILE", "the value is in this file (one newline at its end is cut)", flag_set_text, AT(from.file), 0},
    FLAG_QUIET("say nothing", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag keygen_flags[] = {
    {"id", "ID", "what the key is called (default: k and random digits)", flag_set_text, AT(id), 0},
};

static const struct flag_table set_table = {
    .usage = "brig secret set NAME [flags]",
    .purpose =
        "Stores a secret, or replaces it. The value is read from stdin unless a flag says otherwise; one newline at "
        "its end is cut.\n"
        "With --broker a sandbox gets a placeholder instead of the value, and the gate puts the value in its place, in "
        "requests to\n"
        "these hosts and there only. Instead of header= there can be query=NAME, basic=user, basic=password or "
        "kind=aws-sigv4.\n\n"
        "  brig secret set GITHUB --broker 'host=api.github.com,header=Authorization,format=Bearer %s' < token",
    FLAGS(set_flags),
};
static const struct removal removal = {
    .words = {"brig secret rm [-q] NAME...",
              "Removes secrets. Sandboxes that were made with one keep it until they end.", FLAGS(listing_rm)},
    .word = "name",
    .path = "/v1/secrets/%s",
};
static const struct flag_table rotate_table = {
    .usage = "brig secret rotate [-o FORMAT]",
    .purpose =
        "Seals everything that is under an older key with the first key of the ring again: secrets, variables of "
        "configurations and of agents.\n"
        "The service goes on meanwhile. Afterwards the older keys can be taken out of the ring.",
    .flags = set_flags + 4,
    .n_flags = 1,
};
static const struct flag_table keygen_table = {
    .usage = "brig secret keygen [--id ID] > FILE",
    .purpose =
        "Makes a key that the service seals secrets with, for key_file in [secrets] of config.toml. Keep a copy: "
        "without it the\n"
        "secrets are lost. A file that it is written to becomes readable by its owner only.",
    FLAGS(keygen_flags),
};

/* ---- the broker rule -------------------------------------------------------------------------------- */

static const char *const rule_keys[] = {"host", "header", "format", "query", "basic", "kind"};

static bool starts_pair(const char *at, size_t *ret_len)
{
    for (size_t i = 0; i < ARRAY_SIZE(rule_keys); i++) {
        size_t len = strlen(rule_keys[i]);
        if (strncmp(at, rule_keys[i], len) == 0 && at[len] == '=') {
            *ret_len = len;
            return true;
        }
    }
    return false;
}

/* Up to the next ",KEY=", so that a format may have commas in it. */
static size_t value_len(const char *at)
{
    size_t ignored;

    for (const char *comma = strchr(at, ','); comma; comma = strchr(comma + 1, ','))
        if (starts_pair(comma + 1, &ignored))
            return (size_t)(comma - at);
    return strlen(at);
}

/* hosts go into one array; all else is the daemon's to judge. */
static bool put_broker(struct json *json, const char *rule)
{
    size_t key_len = 0;
    unsigned seen = 0;

    json_key_object(json, "broker");
    json_key_array(json, "hosts");
    for (int pass = 0; pass < 2; pass++) {
        for (const char *at = rule; *at;) {
            if (!starts_pair(at, &key_len)) {
                cli_error(
                    "--broker %.60s: must be host=NAME[:PORT][,host=...] and header=NAME[,format=TEXT], query=NAME, "
                    "basic=user|password or kind=aws-sigv4",
                    at);
                return false;
            }
            const char *value = at + key_len + 1;
            const size_t len = value_len(value);
            const bool is_host = key_len == 4 && at[0] == 'h';
            /* format="Bearer %s" inside a shell's quotes: the inner ones are nobody's but the reader's */
            const bool quoted = len >= 2 && value[0] == '"' && value[len - 1] == '"';
            const char *text = quoted ? value + 1 : value;
            const size_t text_len = quoted ? len - 2 : len;
            if (is_host && memmem(value, len, "://", 3)) {
                cli_error("--broker host=%.*s: must be a host, not a URL", (int)(len < 60 ? len : 60), value);
                return false;
            }
            if (is_host && pass == 0)
                json_string_n(json, text, text_len);
            for (size_t i = 0; !is_host && pass == 1 && i < ARRAY_SIZE(rule_keys); i++) {
                if (strlen(rule_keys[i]) != key_len || memcmp(at, rule_keys[i], key_len) != 0)
                    continue;
                if (seen & 1u << i)
                    return cli_error("--broker: %s is there twice", rule_keys[i]), false;
                seen |= 1u << i;
                json_key(json, rule_keys[i]);
                json_string_n(json, text, text_len);
            }
            at = value + len + (value[len] == ',');
        }
        if (pass == 0)
            json_end(json);
    }
    json_end(json);
    return true;
}

/* ---- set -------------------------------------------------------------------------------------------- */

static int send_value(const struct secret_options *options, const char *name, const struct secret_value *value)
{
    AUTO_BUF struct buf body = BUF_INIT(SECRET_VALUE_BYTES * 2 + (64u << 10));
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int status = CLI_FAILED;

    if (buf_reserve(&body, body.max - 1) < 0) /* at once: growing would leave copies behind */
        return cli_error("out of memory");
    json_object(&json);
    if (options->broker && !put_broker(&json, options->broker))
        return CLI_FAILED;
    json_key(&json, "value_base64");
    json_base64(&json, value->data, value->len);
    json_end(&json);
    if (json_finish(&json) < 0)
        status = cli_error("out of memory");
    else if (service_call(NULL, "PUT", &body, &doc, "/v1/secrets/%s", name))
        status = options->json ? service_print_json(doc) : options->quiet ? 0 : service_say("%s", name);
    explicit_bzero(body.data, body.cap);
    return status;
}

static int set(int argc, char **argv)
{
    static struct secret_value value;
    struct secret_options options = {0};
    int rest, status;

    if (!service_parse(&set_table, argc, argv, &options, 1, -1, "name", &rest, &status))
        return status;
    const char *name = argv[rest];
    if (argc > rest + 1)
        return cli_error(
            "a value is not taken from the command line, where every process can read it: use stdin, --from-file or "
            "--from-env");
    status = secret_value_read(&options.from, name, &value) ? send_value(&options, name, &value) : CLI_FAILED;
    explicit_bzero(&value, sizeof value);
    return status;
}

/* ---- ls, rm ----------------------------------------------------------------------------------------- */

/* "Authorization: api.example.com", "?api_key: ...", "basic user: ..."; "-" without a rule. */
static int put_rule(struct buf *out, const struct json_value *secret)
{
    const struct json_value *broker = json_get(secret, "broker"), *list = json_get(broker, "hosts");
    const char *header = get_text(broker, "header", NULL), *query = get_text(broker, "query", NULL),
               *basic = get_text(broker, "basic", NULL);

    if (!broker || broker->type != JSON_OBJECT)
        return buf_append_str(out, "-");
    const char *what = header ? header : query ? query : basic ? basic : get_text(broker, "kind", "-");
    int r = buf_printf(out, "%s%s:%s", basic ? "basic " : query ? "?" : "", what, list && list->first ? "" : " -");
    for (const struct json_value *host = list ? list->first : NULL; r == 0 && host; host = host->next)
        r = buf_printf(out, " %s", host->type == JSON_STRING ? host->string : "");
    return r;
}

static const struct listing secrets = {
    .words = {"brig secret ls [-q] [-o FORMAT]",
              "Lists secrets: their names and where they may be put. Nothing shows a value.", listing_names,
              ARRAY_SIZE(listing_names), 0},
    .path = "/v1/secrets?limit=1000", /* as many as an organisation can have */
    .member = "secrets",
    .columns = {COLUMN("NAME", "name"), COLUMN("*BROKER", "broker", .put = put_rule), COLUMN("KEY", "key_id"),
                COLUMN(">SIZE", "size", .kind = COLUMN_BYTES), COLUMN(">AGE", "updated_at", .kind = COLUMN_AGE)},
};

/* ---- keygen ----------------------------------------------------------------------------------------- */

static bool id_ok(const char *id)
{
    return str_is_name(id, 32, ASCII_ALNUM "_.-", ASCII_ALNUM "_.-") && !str_eq(id, "plain");
}

static int keygen(int argc, char **argv)
{
    struct secret_options options = {0};
    uint8_t random[36];
    struct stat st;
    char line[160];
    size_t len = 0;
    int rest, status;

    if (!service_parse(&keygen_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (options.id && !id_ok(options.id))
        return cli_error("--id %.64s: must be 1 to 32 letters, digits, '_', '.' or '-', and not \"plain\"", options.id);
    /* The shell has made the file as the umask said; the service takes only one that is closed to others. */
    if (fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) && fchmod(STDOUT_FILENO, 0600) < 0)
        return cli_error("make the file private: %s", strerror(errno));
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return cli_error("random numbers: %s", strerror(errno));
    if (options.id)
        len = (size_t)snprintf(line, sizeof line, "%s:", options.id);
    else
        len = (size_t)snprintf(line, sizeof line, "k%02x%02x%02x%02x:", random[32], random[33], random[34], random[35]);
    for (size_t i = 0; i < 32; i++)
        len += (size_t)snprintf(line + len, sizeof line - len, "%02x", random[i]);
    line[len++] = '\n';
    int r = cli_write(STDOUT_FILENO, line, len);
    explicit_bzero(line, sizeof line);
    explicit_bzero(random, sizeof random);
    return r < 0 ? cli_error("stdout: %s", strerror(-r)) : 0;
}

static int rotate(int argc, char **argv)
{
    struct secret_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&rotate_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_call(NULL, "POST", NULL, &doc, "/v1/secrets/rotate"))
        return CLI_FAILED;
    const struct json_value *counts = json_root(doc);
    return options.json
               ? service_print_json(doc)
               : service_say("sealed again: %lld secrets, %lld variables, %lld of agents, %lld logins at registries",
                             (long long)get_i64(counts, "secrets", 0), (long long)get_i64(counts, "variables", 0),
                             (long long)get_i64(counts, "agents", 0), (long long)get_i64(counts, "registries", 0));
}

static const struct cli_verb subs[] = {
    {"set", "store a secret, or replace it", .main = set},
    {"ls", "list secrets", .list = &secrets},
    {"rm", "remove secrets", .remove = &removal},
    {"rotate", "seal everything with the newest key", .main = rotate},
    {"keygen", "make a key for the service to seal secrets with", .main = keygen},
};

const struct cli_verb cli_verb_secret = {"secret", "secrets that sandboxes use: set, ls, rm, keygen, rotate",
                                         CLI_SUBS(subs)};
