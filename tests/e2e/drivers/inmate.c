/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inmate.c: a static program for root file systems that have nothing else. Each argument is WORD:PATH, done in order,
 * one line of answer each; a failure is "WORD PATH: errno N".
 *
 *     stat:PATH    type, mode, uid, gid          read:PATH   the first line           fs:PATH   magic of the file
 *                  system
 *     write:PATH   creates or overwrites          link:PATH   where a link leads       ls:PATH   the names, sorted
 *     id:          uid euid gid egid
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static int do_stat(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return -1;
    const char *type = S_ISDIR(st.st_mode)   ? "dir"
                       : S_ISREG(st.st_mode) ? "file"
                       : S_ISLNK(st.st_mode) ? "link"
                       : S_ISCHR(st.st_mode) ? "char"
                                             : "other";
    return printf("%s %o %u %u\n", type, (unsigned)st.st_mode & 07777, st.st_uid, st.st_gid);
}

static int do_read(const char *path)
{
    char line[256];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);

    if (n < 0)
        return -1;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    close(fd);
    return printf("%s\n", line);
}

static int do_write(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd < 0 || write(fd, "written inside\n", 15) != 15)
        return -1;
    close(fd);
    return printf("written\n");
}

static int do_link(const char *path)
{
    char target[1024];
    ssize_t n = readlink(path, target, sizeof target - 1);

    if (n < 0)
        return -1;
    target[n] = '\0';
    return printf("%s\n", target);
}

static int do_fs(const char *path)
{
    struct statfs fs;

    return statfs(path, &fs) < 0 ? -1 : printf("%lx\n", (unsigned long)fs.f_type);
}

static int do_ls(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);

    if (n < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (names[i]->d_name[0] != '.')
            printf("%s ", names[i]->d_name);
    return printf("\n");
}

static int do_id(const char *path)
{
    (void)path;
    return printf("%u %u %u %u\n", getuid(), geteuid(), getgid(), getegid());
}

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        int (*fn)(const char *path);
    } words[] = {{"stat", do_stat}, {"read", do_read}, {"write", do_write}, {"link", do_link},
                 {"fs", do_fs},     {"ls", do_ls},     {"id", do_id}};

    for (int i = 1; i < argc; i++) {
        char *path = strchr(argv[i], ':');
        size_t k = 0;

        if (!path)
            return 2;
        *path++ = '\0';
        while (k < sizeof words / sizeof *words && strcmp(words[k].word, argv[i]) != 0)
            k++;
        if (k == sizeof words / sizeof *words)
            return 2;
        if (words[k].fn(path) < 0)
            printf("%s %s: errno %d\n", argv[i], path, errno);
    }
    return 0;
}
