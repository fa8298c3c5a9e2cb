/* SPDX-License-Identifier: Apache-2.0 */
/* cli_provider.c: `brig provider ls|check`: what can hold a sandbox here, and one real attempt at it. */
#include <string.h>

#include "base/str.h"
#include "cli/escape.h"
#include "cli/listing.h"

struct provider_options {
    bool json;
};

static const struct flag check_flags[] = {FLAG_TABLE(offsetof(struct provider_options, json))};
static const struct flag_table check_table = {
    .usage = "brig provider check [-o FORMAT] NAME",
    .purpose = "Makes one sandbox of this provider, ends it, and says what was found. It takes at most 10 s.\n"
               "Exit status: 0 the provider can be used, 1 it cannot.",
    FLAGS(check_flags)};

static int put_state(struct buf *out, const struct json_value *provider)
{
    return buf_append_str(out, json_get_bool(provider, "enabled") ? "on" : "off");
}

static const struct listing providers = {
    .words = {"brig provider ls [-o FORMAT]", "Lists what can hold a sandbox: the value of --provider.",
              listing_names + 1, 1, 0},
    .path = "/v1/providers",
    .member = "providers",
    .columns = {COLUMN("NAME", "name"), COLUMN("STATE", "enabled", .put = put_state), COLUMN("*WHY", "why")},
};

/* What a runtime or an engine said is in it. */
static int put_line(struct buf *out, const char *title, const char *text)
{
    struct escape escape = ESCAPE_INIT(ESCAPE_LINE);
    int r = buf_printf(out, "%-9s ", title);

    if (r == 0)
        r = escape_append(&escape, text, strlen(text), out);
    if (r == 0)
        r = escape_finish(&escape, out);
    return r < 0 ? r : buf_append_str(out, "\n");
}

static int put_words(struct buf *out, const char *title, const struct json_value *list)
{
    int r = buf_printf(out, "%-9s", title);

    for (const struct json_value *v = list ? list->first : NULL; r == 0 && v; v = v->next)
        r = buf_printf(out, " %s", v->type == JSON_STRING ? v->string : "?");
    return r < 0 ? r : buf_append_str(out, "\n");
}

static int put_text(struct buf *out, const struct json_value *check)
{
    static const char *const texts[] = {"version", "missing", "install"};
    bool usable = json_get_bool(check, "usable");
    int r = buf_printf(out, "%-9s %s: %s\n", "provider", get_text(check, "name", "?"),
                       usable ? "it can be used" : "it cannot be used");

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(texts); i++)
        if (json_get(check, texts[i]))
            r = put_line(out, texts[i], get_text(check, texts[i], ""));
    if (r == 0 && usable)
        r = buf_printf(out, "%-9s %llu ms until the sandbox was up\n", "took",
                       (unsigned long long)json_get_u64(check, "took_ms"));
    if (r == 0)
        r = put_words(out, "can", json_get(check, "can"));
    return r == 0 && usable ? put_words(out, "layers", json_get(check, "layers")) : r;
}

static int check(int argc, char **argv)
{
    struct provider_options options = {0};
    AUTO_BUF struct buf out = BUF_INIT(64 << 10);
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&check_table, argc, argv, &options, 1, 1, "NAME", &rest, &status))
        return status;
    if (!service_call(NULL, "POST", NULL, &doc, "/v1/providers/%s/check", argv[rest]))
        return CLI_FAILED;
    status = json_get_bool(json_root(doc), "usable") ? 0 : 1;
    if (options.json)
        return service_print_json(doc) == 0 ? status : CLI_FAILED;
    if (put_text(&out, json_root(doc)) < 0)
        return cli_error("provider check: out of memory");
    return cli_print(&out, status);
}

static const struct cli_verb subs[] = {
    {"ls", "list providers", .list = &providers},
    {"check", "make one sandbox of a provider, and say what was found", .main = check},
};

const struct cli_verb cli_verb_provider = {"provider", "what holds a sandbox: ls, check", CLI_SUBS(subs)};
