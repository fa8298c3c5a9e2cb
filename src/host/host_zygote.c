/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_zygote.c: opens the files of a zygote, once at the spawner's start. The interpreter must be a file that only
 * root can write, below directories that only root can write. The library, the runtime and zygote.py are opened as
 * brig-init is: the files themselves if only root can write them, sealed copies otherwise.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/host.h"

static bool is_roots(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_uid == 0 && (st.st_mode & 022) == 0;
}

/* The file and every directory on its way. */
static bool is_all_roots(const char *path)
{
    char real[PATH_MAX];

    if (!realpath(path, real) || access(real, X_OK) < 0)
        return false;
    for (;;) {
        if (!is_roots(real))
            return false;
        char *slash = strrchr(real, '/');
        if (!slash || slash == real)
            return is_roots("/");
        *slash = '\0';
    }
}

void zygote_files_open(struct zygote_files *files, const char *helper_dir)
{
    static const char *const names[] = {"brig-zygote.so", "runtime.py", "zygote.py"};
    int *const fds[] = {&files->library_fd, &files->runtime_fd, &files->boot_fd};

    if (!is_all_roots(ZYGOTE_PYTHON)) {
        snprintf(files->missing, sizeof files->missing, "%s: is not there, or somebody else than root can write it",
                 ZYGOTE_PYTHON);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        bool is_file;
        *fds[i] = host_open_helper(helper_dir, names[i], &is_file, NULL);
        if (*fds[i] < 0) {
            snprintf(files->missing, sizeof files->missing, "%s: cannot be opened", names[i]);
            zygote_files_done(files);
            return;
        }
    }
}

void zygote_files_done(struct zygote_files *files)
{
    base_close_fd(&files->library_fd);
    base_close_fd(&files->runtime_fd);
    base_close_fd(&files->boot_fd);
}
