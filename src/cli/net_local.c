/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_local.c: makes the whole policy for a run in this process. Presets are written out here, because there is no
 * daemon to do it. What only a daemon has (policies by name, stored secrets) is refused.
 */
#include <fcntl.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/net_policy.h"
#include "gate/policy.h"

static bool is_preset(const char *name)
{
    return str_eq(name, "none") || str_eq(name, "packages") || str_eq(name, "open");
}

/* The preset as JSON; packages: what this machine's own configuration names as well. */
static int read_preset(const char *name, struct json_doc **ret, struct brig_err *err)
{
    AUTO_BUF struct buf rules = BUF_INIT(POLICY_JSON_MAX);
    AUTO_BUF struct buf text = BUF_INIT(POLICY_JSON_MAX);
    int r = 0;

    if (str_eq(name, "packages")) {
        AUTO_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        r = root < 0 ? err_host(err, "/") : packages_rules(root, getenv("HOME"), environ, &rules, err);
    }
    if (r == 0)
        r = policy_preset(name, rules.data, &text, err);
    return r < 0 ? r : json_read(text.data, text.len, JSON_READ_VALUES, ret, err);
}

/* The preset that the flags or the file begin with; NULL: none. */
static int find_base(const struct net_flags *flags, const char **ret, struct brig_err *err)
{
    const struct json_value *extends = flags->doc ? json_get(json_root(flags->doc), "extends") : NULL;

    if (extends && extends->type != JSON_STRING)
        return err_usage(err, "--policy %.120s: extends: must be a name", flags->file);
    *ret = net_flags_learn(flags) ? "open" : extends ? extends->string : flags->net;
    if (*ret && !is_preset(*ret))
        return err_usage(err, "network policy %.64s: policies by name need a daemon, and this run is done without one",
                         *ret);
    return 0;
}

int net_flags_policy(const struct net_flags *flags, struct buf *out, char name[NET_NAME_MAX], struct brig_err *err)
{
    AUTO_NET_DOC struct json_doc *preset = NULL;
    const struct json_value *parts[2];
    struct json json = JSON_INIT(out);
    const char *base = NULL;
    size_t n = 0;

    if (flags->n_secrets > 0)
        return err_usage(err, "--secret %.64s: secrets need a daemon, and this run is done without one",
                         flags->secrets[0].name);
    int r = find_base(flags, &base, err);
    if (r < 0 || (!flags->doc && flags->n_rules == 0 && (!base || str_eq(base, "none"))))
        return r;
    if (base)
        r = read_preset(base, &preset, err);
    if (r < 0)
        return r;
    if (preset)
        parts[n++] = json_root(preset);
    if (flags->doc)
        parts[n++] = json_root(flags->doc);
    net_policy_merge(flags, parts, n, false, &json);
    if (json_finish(&json) < 0)
        return err_usage(err, "network: a policy has at most %u bytes", POLICY_JSON_MAX);
    return str_copy(name, NET_NAME_MAX, flags->doc || flags->n_rules > 0 ? "custom" : flags->net) == 0
               ? 0
               : err_usage(err, "network policy %.64s: the name is too long", flags->net);
}
