/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to walk out of the root: dot-dot, magic links, inherited descriptors, file handles, hard links (F01 to F12).
 * Everything aims at one file, HOSTILE_CANARY_PATH, that the caller of the sandbox can read and the sandbox must not.
 */
#include "probe.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

static const char *canary_path(void)
{
    const char *path = given("HOSTILE_CANARY_PATH");

    if (!path)
        untried("canary", "HOSTILE_CANARY_PATH is not set");
    return path;
}

static int open_how(int dirfd, const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC, .resolve = resolve};
    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

static void f01_dotdot_root(int argc, char **argv)
{
    static const char *const prefixes[] = {
        "",           "/..",         "/../../../../../../../..", "/./.././..", "/workspace/../..", "/tmp/../../..",
        "/usr/../..", "/proc/../..", "/dev/shm/../../.."};
    const char *canary = canary_path();
    char path[PATH_MAX], link[PATH_MAX];
    (void)argc, (void)argv;

    if (!canary)
        return;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        snprintf(path, sizeof(path), "%s%s", prefixes[i], canary);
        try_read(nm("prefix-%zu", i), AT_FDCWD, path);
    }
    try_read("shadow", AT_FDCWD, "/../../../../etc/shadow");
    try_read("host-ssh-key", AT_FDCWD, "/../root/.ssh/id_rsa");
    expect(same_place("/..", "/"), "root-is-top", "/.. is not /");

    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "../../../../..%s", canary);
    try_read("openat-root", root, path);
    static const uint64_t flags[] = {0, RESOLVE_IN_ROOT, RESOLVE_NO_XDEV, RESOLVE_NO_SYMLINKS};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        REFUSED(nm("openat2-%zu", i), open_how(root, path, flags[i]), ENOENT, EACCES, ENOSYS, EXDEV, ELOOP);
    }
    REFUSED("openat2-beneath", open_how(root, path, RESOLVE_BENEATH), EXDEV, ENOSYS);

    for (int i = 0; i < 100; i++)
        (void)!chdir("..");
    expect(same_place(".", "/"), "chdir-up-100", "not at the root after 100 times ..");
    (void)!fchdir(root);
    try_read("fchdir-root", AT_FDCWD, path);

    snprintf(link, sizeof(link), "%s/l1", scratch());
    if (symlink(canary, link) == 0)
        try_read("symlink-absolute", AT_FDCWD, link);
    snprintf(link, sizeof(link), "%s/l2", scratch());
    snprintf(path, sizeof(path), "../../../../../../../..%s", canary);
    if (symlink(path, link) == 0)
        try_read("symlink-relative", AT_FDCWD, link);
    /* The classic second root: chroot below, then walk up past it. */
    REFUSED("chroot", chroot(scratch()), EPERM);
}

static void each_pid(void (*fn)(pid_t pid))
{
    DIR *d = opendir("/proc");

    if (d) {
        for (struct dirent *e; (e = readdir(d));) {
            char *end;
            long pid = strtol(e->d_name, &end, 10);
            if (!*end && pid > 1)
                fn((pid_t)pid);
        }
        closedir(d);
    }
    fn(1); /* hidden from the listing, so always tried by number */
}

static void through_root_link(pid_t pid)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/proc/%d/root%s", pid, given("HOSTILE_CANARY_PATH"));
    REFUSED(nm("root-of-%d", pid), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
    snprintf(path, sizeof(path), "/proc/%d/cwd/../../../../../..%s", pid, given("HOSTILE_CANARY_PATH"));
    REFUSED(nm("cwd-of-%d", pid), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
    if (pid == 1 && !in_host_ns("pid")) {
        REFUSED("init-root", open("/proc/1/root", O_RDONLY | O_DIRECTORY), ENOENT, EACCES, EPERM);
        REFUSED("init-root-etc", open("/proc/1/root/etc", O_RDONLY | O_DIRECTORY), ENOENT, EACCES, EPERM);
        REFUSED("init-task-root", open("/proc/1/task/1/root", O_PATH), ENOENT, EACCES, EPERM);
    }
}

static void f03_proc_self_root(int argc, char **argv)
{
    const char *canary = canary_path();
    char path[PATH_MAX];
    (void)argc, (void)argv;

    if (!canary)
        return;
    static const char *const links[] = {"/proc/self/root", "/proc/thread-self/root", "/proc/self/root/..",
                                        "/proc/self/cwd/../../../.."};
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        snprintf(path, sizeof(path), "%s/../..%s", links[i], canary);
        try_read(nm("link-%zu", i), AT_FDCWD, path);
    }
    expect(same_place("/proc/self/root/..", "/"), "self-root-is-top", "/proc/self/root/.. is not /");
    expect(same_place("/proc/self/root", "/"), "self-root", "/proc/self/root is not /");
    each_pid(through_root_link);
}

/* A link's text may name only things inside: no host path, and no "(unreachable)", which marks an object outside the
 * root. */
static void judge_link(const char *name, const char *path)
{
    char text[PATH_MAX + 1];
    const char *word;
    ssize_t n = readlink(path, text, sizeof(text) - 1);

    if (n < 0) {
        judge_refused(name, -1, errno, ERRS(ENOENT, EACCES, EPERM));
        return;
    }
    text[n] = 0;
    if (strncmp(text, "(unreachable)", 13) == 0)
        breach(name, "%s names an object outside the root: %s", path, text);
    else if (!gentle() && is_forbidden(text, &word))
        breach(name, "%s names the host's %s", path, word);
    else
        held(name);
}

static void links_of(pid_t pid)
{
    static const char *const kinds[] = {"cwd", "exe", "root"};
    char path[PATH_MAX];
    struct dirent *e;
    DIR *d;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, kinds[i]);
        judge_link(nm("%s-of-%d", kinds[i], pid), path);
    }
    static const char *const dirs[] = {"fd", "map_files"};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, dirs[i]);
        if (!(d = opendir(path)))
            continue;
        if (pid == 1)
            breach(nm("init-%s", dirs[i]), "listed");
        while ((e = readdir(d))) {
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "/proc/%d/%s/%.64s", pid, dirs[i], e->d_name);
            judge_link(nm("%s-%s-of-%d", dirs[i], e->d_name, pid), path);
        }
        closedir(d);
    }
}

static void f04_proc_links(int argc, char **argv)
{
    static const char *const files[] = {"exe",    "cwd",       "root",       "fd",       "fd/0",
                                        "fdinfo", "map_files", "task/1/exe", "task/1/fd"};
    char path[64];
    (void)argc, (void)argv;

    each_pid(links_of);
    if (in_host_ns("pid") && !gentle()) {
        breach("pid-namespace", "runs in the host's");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
        REFUSED(nm("init-open-%s", files[i]), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
        REFUSED(nm("init-path-%s", files[i]), open(path, O_PATH | O_CLOEXEC), ENOENT, EACCES, EPERM);
    }
    /* CVE-2019-5736: get a handle on the program that made the sandbox, reopen it for writing. */
    REFUSED("init-exe-write", open("/proc/1/exe", O_WRONLY), ENOENT, EACCES, EPERM, ETXTBSY, EROFS);
    if (!gentle())
        REFUSED("init-exe-exec", execl("/proc/1/exe", "init", NULL), ENOENT, EACCES, EPERM);
    REFUSED("self-exe-write", open("/proc/self/exe", O_WRONLY), ETXTBSY, EROFS, EPERM, EACCES);
    int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    REFUSED("self-exe-reopen", open(path, O_WRONLY), ETXTBSY, EROFS, EPERM, EACCES);
    REFUSED("self-exe-trunc", truncate("/proc/self/exe", 1 << 30), ETXTBSY, EROFS, EPERM, EACCES);
}

/* Descriptors that were declared: 0, 1, 2 and what HOSTILE_FDS adds. */
static bool is_declared(int fd)
{
    char list[64];

    snprintf(list, sizeof(list), ",%s,", given("HOSTILE_FDS") ? given("HOSTILE_FDS") : "");
    return fd <= 2 || strstr(list, nm(",%d,", fd));
}

static void f06_fd_leak(int argc, char **argv)
{
    struct rlimit rl = {.rlim_cur = 4096};
    bool clean = true;
    (void)argc, (void)argv;

    getrlimit(RLIMIT_NOFILE, &rl);
    int top = rl.rlim_cur > 65536 ? 65536 : (int)rl.rlim_cur;
    if (top < 4096)
        top = 4096;
    for (int fd = 0; fd < top; fd++) {
        if (fcntl(fd, F_GETFD) < 0 || is_declared(fd))
            continue;
        char path[64], what[256] = "?";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        (void)!readlink(path, what, sizeof(what) - 1);
        char text[48] = "";
        ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
        breach(nm("fd-%d", fd), "is open on %s%s%s", what, n > 0 ? ", reads " : "", n > 0 ? text : "");
        clean = false;
    }
    if (clean)
        held("fcntl-scan");
    DIR *d = opendir("/proc/self/fd");
    if (!d) {
        untried("listing", "cannot list /proc/self/fd");
        return;
    }
    clean = true;
    for (struct dirent *e; (e = readdir(d));) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] != '.' && fd != dirfd(d) && !is_declared(fd)) {
            breach("listing", "has %d", fd);
            clean = false;
        }
    }
    closedir(d);
    if (clean)
        held("listing");
    /* The declared ones must not be a way out either: no directory, no terminal of the caller, stdin not writable. */
    for (int fd = 0; fd <= 2; fd++) {
        struct stat st;
        if (fstat(fd, &st) < 0)
            continue;
        expect(!S_ISDIR(st.st_mode) && !S_ISBLK(st.st_mode), nm("std-%d", fd), "mode %o", st.st_mode);
        expect(!isatty(fd), nm("std-%d-tty", fd), "is a terminal");
    }
}

static void f07_dirfd_escape(int argc, char **argv)
{
    const char *canary = canary_path();
    const char *base = canary ? strrchr(canary, '/') + 1 : "";
    char path[PATH_MAX];
    int tried = 0;
    (void)argc, (void)argv;

    if (!canary)
        return;
    for (const char *const *d = writable_dirs; *d; d++)
        (void)!open(*d, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)!open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)!open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "../../../../../../..%s", canary);
    for (int fd = 3; fd < 1024; fd++) {
        struct stat st;
        if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        tried++;
        try_read(nm("canary-up-%d", fd), fd, path);
        try_read(nm("canary-in-%d", fd), fd, base);
        try_read(nm("shadow-%d", fd), fd, "../../../../../../etc/shadow");
    }
    if (!tried)
        untried("dirfd", "no directory could be opened");
}

static void f09_handle_open(int argc, char **argv)
{
    union {
        struct file_handle h;
        char room[sizeof(struct file_handle) + 128];
    } u = {.h = {.handle_bytes = 128}};
    int mount_id, here = open("/probe", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)argc, (void)argv;

    if (here < 0)
        here = open(given("HOSTILE_HOST_DIR") ? given("HOSTILE_HOST_DIR") : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REFUSED("name-to-handle", name_to_handle_at(here, "", &u.h, &mount_id, AT_EMPTY_PATH), ENOSYS, EPERM);
    REFUSED("name-to-handle-fid", name_to_handle_at(here, "", &u.h, &mount_id, AT_EMPTY_PATH | 0x200), ENOSYS, EPERM);
    /* shocker: inode 2 is the root of an ext4; generation 0 matches any. */
    uint32_t inode2[2] = {2, 0};
    memcpy(u.h.f_handle, inode2, sizeof(inode2));
    u.h.handle_bytes = sizeof(inode2);
    u.h.handle_type = 1;
    int fd = (int)REFUSED("open-by-handle", open_by_handle_at(here, &u.h, O_RDONLY), ENOSYS, EPERM);
    if (fd >= 0 && canary_path())
        try_read("canary-by-handle", fd, canary_path() + 1);
    REFUSED("open-by-handle-cwd", open_by_handle_at(AT_FDCWD, &u.h, O_PATH), ENOSYS, EPERM);
}

static void f12_hardlink_host(int argc, char **argv)
{
    const char *file = gentle() ? given("HOSTILE_HOST_FILE") : given("HOSTILE_RO_FILE");
    char link_name[PATH_MAX], fd_path[64];
    (void)argc, (void)argv;

    if (!file || access(file, R_OK) < 0) {
        untried("hardlink", "no shared file");
        return;
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    snprintf(link_name, sizeof(link_name), "%s/link", gentle() ? given("HOSTILE_HOST_DIR") : scratch());
    if (REFUSED("link", link(file, link_name), EXDEV, EPERM, EROFS, EACCES) == 0)
        unlink(link_name);
    REFUSED("linkat-empty-path", linkat(fd, "", AT_FDCWD, link_name, AT_EMPTY_PATH), ENOENT, EPERM, EXDEV, EROFS,
            EACCES);
    unlink(link_name);
    snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", fd);
    REFUSED("linkat-proc-fd", linkat(AT_FDCWD, fd_path, AT_FDCWD, link_name, AT_SYMLINK_FOLLOW), EXDEV, EPERM, EROFS,
            EACCES, ENOENT);
    unlink(link_name);
    snprintf(link_name, sizeof(link_name), "%s.l", file);
    REFUSED("link-beside", link(file, link_name), EROFS, EPERM, EACCES, EXDEV);
    unlink(link_name);
    if (gentle())
        return; /* the harness still needs the file as it is */
    REFUSED("chmod", chmod(file, 0777), EROFS, EPERM, EACCES);
    REFUSED("chown", chown(file, getuid(), getgid()), EROFS, EPERM, EACCES);
    REFUSED("fchmod", fchmod(fd, 0777), EROFS, EPERM, EACCES);
    REFUSED("fchown", fchown(fd, getuid(), getgid()), EROFS, EPERM, EACCES);
    REFUSED("utimes", utimensat(AT_FDCWD, file, NULL, 0), EROFS, EPERM, EACCES);
    REFUSED("open-write", open(file, O_WRONLY), EROFS, EPERM, EACCES);
    REFUSED("reopen-write", open(fd_path, O_RDWR), EROFS, EPERM, EACCES);
    REFUSED("rename", rename(file, link_name), EROFS, EPERM, EACCES);
    REFUSED("mmap-shared-write", mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0, EACCES, EPERM);
}

const struct probe_case walk_cases[] = {
    {"F01", f01_dotdot_root},  {"F03", f03_proc_self_root}, {"F04", f04_proc_links},    {"F06", f06_fd_leak},
    {"F07", f07_dirfd_escape}, {"F09", f09_handle_open},    {"F12", f12_hardlink_host}, {NULL, NULL},
};
