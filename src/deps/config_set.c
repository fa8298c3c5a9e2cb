/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_set.c: the dependency set of a configuration (config_set.h). A run reads the same directory and the same names
 * by these functions, so that what is built here is what a run without requirements of its own finds.
 *
 * The directory may be a tenant's: its file is opened beneath it, without waiting, and only if it is a regular one.
 */
#include "deps/config_set.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/sets_priv.h"

#define PIP_MAX 512u /* as for a run */
#define PIP_TEXT 256u

const char *config_set_dir(const struct json_value *content, const struct config *settings)
{
    const char *path = json_get_text(content, "sandbox_dir", "");

    if (!path[0])
        path = settings->tools_exec_dir;
    return path && path[0] == '/' ? path : NULL;
}

const char *config_set_venv(const struct json_value *content, const struct config *settings)
{
    const char *own = json_get_text(content, "venv_name", "");

    return own[0] ? own : settings->tools_venv_name[0] ? settings->tools_venv_name : "venv";
}

int config_set_file(const char *path, struct buf *out)
{
    const struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    AUTO_FD int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return 0;
    AUTO_FD int fd = (int)syscall(SYS_openat2, dir, "requirements.txt", &how, sizeof how);
    if (fd < 0)
        return 0; /* there is none, or none that is in the directory */
    int r = tree_read_fd(fd, out->max - 1, out);
    return r == -EINVAL ? 0 : r;
}

/* The configuration's requirements as pip takes them; *ret is one allocation. */
static int read_pip(const struct json_value *list, char (**ret)[PIP_TEXT], size_t *ret_n)
{
    size_t n = 0;

    if (!list || list->type != JSON_ARRAY || list->count == 0)
        return 0;
    if (list->count > PIP_MAX)
        return -E2BIG;
    *ret = mem_realloc_array(NULL, list->count, sizeof **ret);
    if (!*ret)
        return -ENOMEM;
    for (const struct json_value *item = list->first; item; item = item->next) {
        const struct json_value *name = item->type == JSON_OBJECT ? json_get(item, "name") : item,
                                *version = json_get(item, "version");
        const bool has_version = version && version->type == JSON_STRING;
        if (!name || name->type != JSON_STRING ||
            str_format((*ret)[n++], sizeof **ret, "%s%s%s", name->string, has_version ? "==" : "",
                       has_version ? version->string : "") < 0)
            return -EINVAL;
    }
    *ret_n = n;
    return 0;
}

int config_set_rebuild(struct sets *sets, const struct config *settings, const struct caller *caller,
                       const struct json_value *content,
                       void (*done)(void *ctx, const struct set *set, const struct brig_err *err), void *ctx,
                       struct set_build **ret, struct brig_err *err)
{
    const char *dir = config_set_dir(content, settings), *list[PIP_MAX];
    AUTO_FREE char(*pip)[PIP_TEXT] = NULL;
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_TXT_MAX);
    struct set_want want = {.org_id = caller->org_id,
                            .pip = list,
                            .venv_name = config_set_venv(content, settings),
                            .python = "/usr/bin/python3"};

    if (dir && config_set_file(dir, &text) < 0)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%.200s/requirements.txt: cannot be read, or is longer than %u bytes",
                       dir, CONFIG_TXT_MAX);
    if (read_pip(json_get(content, "pip_requirements"), &pip, &want.n_pip) < 0)
        return err_usage(err, "pip_requirements: more than %u, or not what they should be", PIP_MAX);
    for (size_t i = 0; i < want.n_pip; i++)
        list[i] = pip[i];
    want.n_config_pip = want.n_pip;
    want.requirements_txt = text.len ? text.data : NULL;
    if (want.n_pip + text.len == 0)
        return 0;
    int r = sets_get(sets, caller, &want, true, done, ctx, ret, err);
    return r < 0 ? r : 1;
}
