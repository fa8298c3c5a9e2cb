/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main() for fuzz targets that are not linked with libFuzzer: feeds them the files and directories (one level) given
 * as arguments, so that a corpus is replayed by any compiler in every test run. It prints what it does; a target that
 * finds something aborts.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX (4u << 20)

static int replay_file(int dirfd, const char *path)
{
    AUTO_FREE char *text = malloc(INPUT_MAX);
    ssize_t n = text ? fd_read_file(dirfd, path, text, INPUT_MAX) : -ENOMEM;

    if (n < 0) {
        fprintf(stderr, "%s: %s\n", path, strerrordesc_np((int)-n));
        return -1;
    }
    /* It has the exact size, so that a sanitizer sees the first byte read past it. */
    uint8_t *exact = malloc(n > 0 ? (size_t)n : 1);
    if (!exact)
        return -1;
    memcpy(exact, text, (size_t)n);
    LLVMFuzzerTestOneInput(exact, (size_t)n);
    free(exact);
    return 1;
}

static int replay_dir(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int n = 0;

    if (!dir) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return -1;
    }
    while (n >= 0 && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        int r = replay_file(dirfd(dir), entry->d_name);
        n = r < 0 ? r : n + r;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;

    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct stat st;
        int n = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode) ? replay_dir(argv[i]) : replay_file(AT_FDCWD, argv[i]);
        if (n < 0)
            return 1;
        total += n;
    }
    printf("%d inputs replayed\n", total);
    return 0;
}
