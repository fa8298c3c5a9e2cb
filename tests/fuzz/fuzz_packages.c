/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The package indexes of a host: the same bytes as every file that is read, and as variables. What comes out compiles,
 * has the public indexes in it, and nothing that can only come from the name and password of a URL.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "gate/policy.h"

static int root = -1;
static char top[] = "/tmp/brig-fuzz-packages-XXXXXX";
static const char *const dirs[] = {"etc",  "etc/xdg",    "etc/xdg/pip", "etc/apt", "etc/apt/sources.list.d",
                                   "home", "home/.cargo"};
static const char *const links[][2] = {{"data", "etc/pip.conf"},
                                       {"data", "etc/npmrc"},
                                       {"data", "etc/apt/sources.list"},
                                       {"data", "etc/apt/sources.list.d/x.sources"},
                                       {"data", "home/.cargo/config.toml"}};

static void clean_up(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        unlinkat(root, links[i][1], 0);
    for (size_t i = ARRAY_SIZE(dirs); i-- > 0;)
        unlinkat(root, dirs[i], AT_REMOVEDIR);
    unlinkat(root, "data", 0);
    rmdir(top);
}

static void set_up(void)
{
    char target[128];

    FUZZ_CHECK(mkdtemp(top));
    root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FUZZ_CHECK(root >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        FUZZ_CHECK(mkdirat(root, dirs[i], 0700) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        snprintf(target, sizeof target, "%s/%s", top, links[i][0]);
        FUZZ_CHECK(symlinkat(target, root, links[i][1]) == 0);
    }
    atexit(clean_up);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20), text = BUF_INIT(1u << 20);
    struct policy *policy = NULL;
    struct brig_err err = {0};
    char *pip = calloc(1, size + 32), *go = calloc(1, size + 32);
    char *env[] = {pip, go, NULL};

    if (root < 0)
        set_up();
    FUZZ_CHECK(pip && go);
    memcpy(pip, "PIP_INDEX_URL=", 14);
    memcpy(go, "GOPROXY=", 8);
    if (size) {
        memcpy(pip + 14, data, size);
        memcpy(go + 8, data, size);
    }
    int fd = openat(root, "data", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
    FUZZ_CHECK(packages_rules(root, "/home", env, &out, &err) == 0);
    FUZZ_CHECK(!strchr(out.data, '@') && strstr(out.data, "\"pypi.org\""));
    FUZZ_CHECK(policy_preset("packages", out.data, &text, &err) == 0);
    if (policy_compile_text(text.data, text.len, &policy, &err) < 0) {
        fprintf(stderr, "%s\n%s\n", out.data, err.message);
        abort();
    }
    policy_unref(policy);
    free(pip);
    free(go);
    return 0;
}
