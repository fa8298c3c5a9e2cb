/* SPDX-License-Identifier: Apache-2.0 */
/* provider_names.c: the table of provider_names.h. `brig doctor` has a row for each, in this order. */
#include "config/provider_names.h"

#include <unistd.h>

#include "base/str.h"
#include "config/config_keys.h"

static const struct provider_known known[] = {
    {"local", NULL, "a sandbox of this machine's spawner", "there is no spawner"},
    {"docker", "podman", "a container of Docker or Podman",
     "needs root and an engine: [docker] socket, or apt-get install docker.io"},
    {"runc", NULL, "a container of runc", "needs a service of root, and runc: apt-get install runc"},
    {"crun", NULL, "a container of crun", "needs a service of root, and crun: apt-get install crun"},
    {"runsc", "gvisor", "a sandbox of gVisor", "this version of brig does not have it"},
    {"vm", NULL, "a virtual machine of QEMU", "[vm] kernel and root are not set; brig-vm-prepare DIR makes both"},
    {"firecracker", NULL, "a virtual machine of Firecracker", "this version of brig does not have it"},
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

const char *config_rule_provider(const char *text)
{
    return provider_is_known(text) ? NULL : "must be the name of a provider, such as local";
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
