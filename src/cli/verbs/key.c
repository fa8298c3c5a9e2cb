/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.c: `brig key create|ls|revoke`: API keys. The daemon keeps only a hash: what create prints is never seen again.
 */

#include "base/str.h"
#include "cli/listing.h"

struct key_options {
    const char *name, *org, *role, *expires;
    bool json, quiet, metrics;
};

#define AT(field) offsetof(struct key_options, field)

static const struct flag create_flags[] = {
    {"name", "NAME", "what it is for", flag_set_text, AT(name), 0},
    {"org", "ORG", "organisation (default: the first one)", flag_set_text, AT(org), 0},
    {"role", "ROLE", "admin, user (default) or read-only", flag_set_text, AT(role), 0},
    {"expires", "TIME", "such as 12h or 90d (default: never)", flag_set_text, AT(expires), 0},
    {"metrics", NULL, "/metrics shows it the whole service (made on the socket only)", flag_set_true, AT(metrics), 0},
    FLAG_QUIET("print only the key", AT(quiet)),
    FLAG_TABLE(AT(json)),
};

static const struct flag_table create_table = {
    .usage = "brig key create [flags]",
    .purpose = "Makes a key and prints it: the only time it can be seen.\n\n"
               "  export BRIG_API_KEY=$(brig key create -q --name ci --expires 90d)",
    FLAGS(create_flags),
};
static const struct removal revocation = {
    .words = {"brig key revoke [-q] ID...", "Makes keys useless, from the next request on.", FLAGS(listing_rm)},
    .word = "key",
    .path = "/v1/keys/%s",
};

static int create(int argc, char **argv)
{
    struct key_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(64 << 10);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&create_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    json_object(&json);
    service_put_text(&json, "name", options.name);
    service_put_text(&json, "org", options.org);
    service_put_text(&json, "role", options.role);
    service_put_text(&json, "expires", options.expires);
    if (options.metrics)
        json_key_bool(&json, "metrics", true);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("out of memory");
    if (!service_call(NULL, "POST", &body, &doc, "/v1/keys"))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    const struct json_value *key = json_root(doc);
    status = service_say("%s", get_text(key, "key", ""));
    if (status == 0 && !options.quiet)
        cli_error("this is key %s, and the only time it is shown", get_text(key, "id", "-"));
    return status;
}

static int put_left(struct buf *out, const struct json_value *key)
{
    char left[SHOW_SIZE];

    if (*get_text(key, "revoked_at", "") != '\0')
        return buf_append_str(out, "revoked");
    return buf_append_str(out, show_until(left, get_text(key, "expires_at", "")));
}

static bool is_useless(const struct json_value *key)
{
    char left[SHOW_SIZE];

    return *get_text(key, "revoked_at", "") != '\0' ||
           str_eq(show_until(left, get_text(key, "expires_at", "")), "past");
}

static const struct flag ls_flags[] = {
    {"all", NULL, "revoked and expired ones, too", flag_set_true, offsetof(struct listing_options, all), 'a'},
    FLAG_QUIET("print only ids", offsetof(struct listing_options, quiet)),
    FLAG_TABLE(offsetof(struct listing_options, json)),
};
static const struct listing keys = {
    .words = {"brig key ls [-a] [-q] [-o FORMAT]",
              "Lists keys. The keys themselves are not kept: only their hashes, "
              "and the last four characters (-o json).",
              ls_flags, ARRAY_SIZE(ls_flags), 0},
    .path = "/v1/keys",
    .member = "keys",
    .hidden = is_useless,
    .columns = {COLUMN("ID", "id"), COLUMN("*NAME", "name"), COLUMN("ROLE", "role"),
                COLUMN(">AGE", "created_at", .kind = COLUMN_AGE), COLUMN(">LEFT", "expires_at", .put = put_left),
                COLUMN("*ORGANISATION", "org", .differs = true)},
};

static const struct cli_verb subs[] = {
    {"create", "make a key and print it", .main = create},
    {"ls", "list keys", .list = &keys},
    {"revoke", "make keys useless", .remove = &revocation},
};

const struct cli_verb cli_verb_key = {"key", "API keys: create, ls, revoke", CLI_SUBS(subs)};
