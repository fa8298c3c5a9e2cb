/* SPDX-License-Identifier: Apache-2.0 */
/* cli_pool.c: `brig pool ls|prewarm`: interpreters that wait for runs, and sandboxes of templates that wait for a
 * create. */
#include "base/str.h"
#include "cli/listing.h"

struct pool_options {
    const char *language, *provider;
    bool quiet;
};
#define AT(field) offsetof(struct pool_options, field)

static const struct flag prewarm_flags[] = {
    {"lang", "LANGUAGE", "python (default), javascript, typescript or bash", flag_set_text, AT(language), 'l'},
    {"provider", "NAME", "what holds them; the service's own if it is not given", flag_set_text, AT(provider), 0},
    FLAG_QUIET("say nothing", AT(quiet)),
};
static const struct flag_table prewarm_table = {.usage = "brig pool prewarm [--lang LANGUAGE] [--provider NAME] COUNT",
                                                .purpose = "Has so many ready, until they are unused for a minute.",
                                                FLAGS(prewarm_flags)};

static int put_language(struct buf *out, const struct json_value *pool)
{
    if (str_eq(get_text(pool, "kind", ""), "sandbox"))
        return buf_printf(out, "sandbox");
    return buf_printf(out, "%s%s", get_text(pool, "language", "-"), json_get_bool(pool, "strict") ? " strict" : "");
}

static const struct listing pools = {
    .words = {"brig pool ls [-o FORMAT]",
              "Lists pools: how many interpreters or sandboxes wait, and how many there should be.", listing_names + 1,
              1, 0},
    .path = "/v1/pools",
    .member = "pools",
    .columns = {COLUMN("KIND", "language", .put = put_language), COLUMN("PROVIDER", "provider"),
                COLUMN("TEMPLATE", "template"), COLUMN(">PARKED", "parked", .kind = COLUMN_NUMBER),
                COLUMN(">MAKING", "making", .kind = COLUMN_NUMBER), COLUMN(">TARGET", "target", .kind = COLUMN_NUMBER),
                COLUMN(">CLAIMS", "claims", .kind = COLUMN_NUMBER), COLUMN(">MISSES", "misses", .kind = COLUMN_NUMBER),
                COLUMN(">MEMORY", "bytes", .kind = COLUMN_BYTES), COLUMN("*REQUIREMENTS", "requirements", .most = 12)},
};

static int prewarm(int argc, char **argv)
{
    struct pool_options options = {.language = "python"};
    AUTO_BUF struct buf body = BUF_INIT(4096);
    AUTO_JSON struct json_doc *doc = NULL, *number = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&prewarm_table, argc, argv, &options, 1, 1, "COUNT", &rest, &status))
        return status;
    if (json_read(argv[rest], strlen(argv[rest]), 1, &number, NULL) < 0 || !json_root(number)->integer ||
        json_root(number)->i64 < 1)
        return cli_error("%s: must be a number of 1 or more", argv[rest]);
    json_object(&json);
    json_key_string(&json, "language", options.language);
    if (options.provider)
        json_key_string(&json, "provider", options.provider);
    json_key_i64(&json, "count", json_root(number)->i64);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("--lang or --provider: is not UTF-8");
    if (!service_call(NULL, "POST", &body, &doc, "/v1/pools/prewarm"))
        return CLI_FAILED;
    return options.quiet ? 0 : service_say("%s", argv[rest]);
}

static const struct cli_verb subs[] = {
    {"ls", "list pools", .list = &pools},
    {"prewarm", "have interpreters ready", .main = prewarm},
};

const struct cli_verb cli_verb_pool = {"pool", "warm interpreters and sandboxes: ls, prewarm", CLI_SUBS(subs)};
