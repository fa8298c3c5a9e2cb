/* SPDX-License-Identifier: Apache-2.0 */
/* provider_names.c: the table of provider_names.h. `brig doctor` has a row for each, in this order. */
#include "config/provider_names.h"

#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/str.h"
#include "config/config_keys.h"

#define PROVIDER_COUNT_MAX 1000u

static const struct provider_known known[] = {
    {"local", NULL, "a sandbox of this machine's spawner", "there is no spawner"},
    {"docker", "podman", "a container of Docker or Podman",
     "needs a service of root, and [docker] socket or DOCKER_HOST"},
    {"runc", NULL, "a container of runc", "needs a service of root, and runc: apt-get install runc"},
    {"crun", NULL, "a container of crun", "needs a service of root, and crun: apt-get install crun"},
    {"runsc", "gvisor", "a sandbox of gVisor", "needs a service of root, and runsc: apt-get install runsc"},
    {"vm", NULL, "a virtual machine of QEMU", "[vm] kernel and root are not set; brig-vm-prepare DIR makes both"},
    {"firecracker", NULL, "a virtual machine of Firecracker",
     "needs a service of root, [firecracker] path and kernel, and [vm]"},
    {"modal", NULL, "a sandbox of Modal", "this version of brig does not have it"},
    {"e2b", NULL, "a sandbox of E2B", "this version of brig does not have it"},
    {"daytona", NULL, "a sandbox of Daytona", "this version of brig does not have it"},
};

const struct provider_known *provider_known_at(size_t index)
{
    return index < ARRAY_SIZE(known) ? &known[index] : NULL;
}

bool provider_is_known(const char *word)
{
    const char *name = provider_known_name(word);

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (str_eq(known[i].name, name))
            return true;
    return false;
}

bool provider_has_own_kernel(const char *word)
{
    static const char *const names[] = {"runsc", "vm", "firecracker"};
    const char *name = provider_known_name(word);

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eq(names[i], name))
            return true;
    return false;
}

const char *config_rule_provider(const char *text)
{
    return provider_is_known(text) ? NULL : "must be the name of a provider, such as local";
}

/* The next of the names, which it leaves behind; false after the last. A word that is too long for a name is "". */
static bool next_name(const char **names, char out[32])
{
    const char *at = *names + strspn(*names, " ");
    size_t len = strcspn(at, " ");

    memcpy(out, at, len < 32 ? len : 0);
    out[len < 32 ? len : 0] = '\0';
    *names = at + len;
    return len > 0;
}

bool provider_is_among(const char *names, const char *name)
{
    char word[32];
    bool any = false;

    for (; next_name(&names, word); any = true)
        if (str_eq(provider_known_name(word), provider_known_name(name)))
            return true;
    return !any;
}

const char *config_rule_providers(const char *text)
{
    char word[32];

    while (next_name(&text, word))
        if (!provider_is_known(word))
            return "must be names of providers with spaces between them, such as local runc";
    return NULL;
}

/* Reads the next NAME=COUNT, which it leaves behind: 1, 0 after the last, or -1 if it is none. */
static int next_count(const char **list, char name[32], uint64_t *ret)
{
    char word[32];

    if (!next_name(list, word))
        return 0;
    char *equals = strchr(word, '=');
    if (!equals || parse_u64(equals + 1, ret) < 0)
        return -1;
    *equals = '\0';
    memcpy(name, word, sizeof word);
    return 1;
}

bool provider_count(const char *list, const char *name, uint64_t *ret)
{
    char word[32];
    uint64_t count;

    while (list && next_count(&list, word, &count) == 1)
        if (str_eq(provider_known_name(word), name)) {
            *ret = count;
            return true;
        }
    return false;
}

const char *config_rule_provider_counts(const char *text)
{
    char word[32];
    uint64_t count;
    int r;

    while ((r = next_count(&text, word, &count)) == 1)
        if (!provider_is_known(word) || count > PROVIDER_COUNT_MAX)
            break;
    return r == 0 ? NULL : "must be words NAME=COUNT with blanks between them: a provider's name, COUNT 0 to 1000";
}

const char *provider_known_name(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].alias && str_eq(known[i].alias, word))
            return known[i].name;
    return word;
}

bool provider_program(const char *configured, const char *name, char *out, size_t size)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};

    str_cut(out, size, configured);
    for (size_t i = 0; !out[0] && i < ARRAY_SIZE(dirs); i++)
        if (str_format(out, size, "%s/%s", dirs[i], name) < 0 || access(out, X_OK) < 0)
            out[0] = '\0';
    return out[0] != '\0';
}
