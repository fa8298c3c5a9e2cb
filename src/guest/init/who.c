/* SPDX-License-Identifier: Apache-2.0 */
/*
 * who.c: from the name of a user to ids, by the sandbox's own /etc/passwd and /etc/group (codec/passwd.h).
 *
 * The files belong to whoever wrote the image, or to root inside: a pipe, a device, a link into /proc or a gigabyte may
 * lie there. So only a plain file of at most FILE_MAX bytes is read, without waiting and through no magic link. What it
 * says can lead to no right that the sandbox does not have: uid 0 needs root inside, whatever its name is, and other
 * ids have no capability. A file that is not there is an empty one; one that cannot be read ends the start.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define FILE_MAX (1u << 20)

static long open_plain(const char *path)
{
    const uint64_t flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    struct open_how how = {.flags = flags, .resolve = RESOLVE_NO_MAGICLINKS};
    struct stat st = {0};
    long fd = raw_call4(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    if (fd == -ENOSYS) /* the profile paranoid */
        fd = raw_call4(SYS_openat, AT_FDCWD, path, flags | O_NOFOLLOW, 0);
    if (raw_failed(fd))
        return fd;
    long ret = raw_call2(SYS_fstat, fd, &st);
    if (ret == 0)
        ret = !S_ISREG(st.st_mode) ? -EINVAL : st.st_size > FILE_MAX ? -EFBIG : 0;
    if (ret == 0)
        return fd;
    raw_call1(SYS_close, fd);
    return ret;
}

/* Returns how many bytes there are, or a negative errno. */
static long read_file(const char *path, char *out)
{
    long fd = open_plain(path), len = 0, got = 1;

    if (fd == -ENOENT || fd == -ENOTDIR)
        return 0;
    if (raw_failed(fd))
        return fd;
    while (got > 0 && len < (long)FILE_MAX) {
        got = raw_call3(SYS_read, fd, out + len, FILE_MAX - (size_t)len);
        if (got == -EINTR)
            got = 1;
        else if (got > 0)
            len += got;
    }
    raw_call1(SYS_close, fd);
    return got < 0 ? got : len;
}

static bool is_user(const struct user_text *text)
{
    return text->user_len == 4 && __builtin_memcmp(text->user, "user", 4) == 0;
}

/* The user that every sandbox has beside root, also where no file says so. */
static int find_own(const struct user_text *text, struct user_found *ret)
{
    const struct user_text user = {.user = "1000", .user_len = 4, .group = "1000", .group_len = 4};
    int r = is_user(text) && !text->group ? user_find(&user, NULL, 0, NULL, 0, ret) : -ESRCH;

    if (r == 0) {
        ret->name = "user";
        ret->home = "/home/user";
        ret->name_len = __builtin_strlen(ret->name);
        ret->home_len = __builtin_strlen(ret->home);
    }
    return r;
}

static void put(char *out, const char *name, const char *value, size_t len)
{
    size_t at = __builtin_strlen(name);

    __builtin_memcpy(out, name, at);
    __builtin_memcpy(out + at, value, len);
    out[at + len] = '\0';
}

static void keep(const struct user_found *found, struct guest_user *ret)
{
    ret->uid = found->uid;
    ret->gid = found->gid;
    ret->n_groups = found->n_groups;
    __builtin_memcpy(ret->groups, found->groups, sizeof(ret->groups));
    put(ret->home, "HOME=", found->home ? found->home : "/", found->home ? found->home_len : 1);
    ret->user[0] = ret->logname[0] = '\0';
    if (found->name && found->name_len <= USER_PART_MAX && !__builtin_memchr(found->name, 0, found->name_len)) {
        put(ret->user, "USER=", found->name, found->name_len);
        put(ret->logname, "LOGNAME=", found->name, found->name_len);
    }
}

long who_find(const char *text, size_t len, bool root_inside, struct guest_user *ret)
{
    struct user_text parts;
    struct user_found found;
    char *files = pages_map(2 * (size_t)FILE_MAX);

    if (!files)
        return -ENOMEM;
    long passwd = user_text_parse(text, len, &parts), group = 0;
    if (passwd == 0)
        passwd = read_file("/etc/passwd", files);
    if (passwd >= 0)
        group = read_file("/etc/group", files + FILE_MAX);
    long r = passwd < 0 ? passwd : group < 0 ? group : 0;
    if (r == 0)
        r = user_find(&parts, files, (size_t)passwd, files + FILE_MAX, (size_t)group, &found);
    if (r == -ESRCH)
        r = find_own(&parts, &found);
    if (r == 0 && found.uid == INSIDE_ROOT && !root_inside)
        r = -EPERM;
    if (r == 0)
        keep(&found, ret);
    pages_unmap(files, 2 * (size_t)FILE_MAX);
    return r;
}

static bool begins(const char *text, const char *with)
{
    while (*with != 0 && *with == *text)
        with++, text++;
    return *with == 0;
}

/* Adds it to the environment, whose vector has room for it, unless the name is there. */
static void add(char **env, const char *name, char *entry)
{
    for (; *env; env++)
        if (begins(*env, name))
            return;
    if (entry[0] != '\0')
        *env = entry;
}

void who_environment(struct guest_user *user, char **env)
{
    add(env, "HOME=", user->home);
    add(env, "USER=", user->user);
    add(env, "LOGNAME=", user->logname);
}
