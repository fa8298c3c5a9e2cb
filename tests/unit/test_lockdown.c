/* SPDX-License-Identifier: Apache-2.0 */
/* brigd's filter: connections only where the configuration needs them, and what the registry client needs besides. */
#include "unit.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "brigd/lockdown.h"

/* In a child: the filter, then one question. Its answer is the exit status. */
static int asked(bool network, int (*question)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct lockdown what = {.network = network};
        struct brig_err err = {0};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || lockdown_calls(&what, &err) < 0)
            _exit(100);
        _exit(question());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int opens_a_socket(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0 ? 0 : errno;
}

static int keeps_a_blob(void)
{
    char dir[] = "/tmp/brig-lockdown-XXXXXX";
    struct stat st;
    AUTO_FD int at = mkdtemp(dir) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    AUTO_FD int fd = at >= 0 ? openat(at, "x.part", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    bool ok = fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && ftruncate(fd, 0) == 0 && fsync(fd) == 0 &&
              renameat(at, "x.part", at, "x") == 0 && fsync(at) == 0 && fstatat(at, "x", &st, 0) == 0;

    (void)unlinkat(at, "x", 0);
    (void)unlinkat(AT_FDCWD, dir, AT_REMOVEDIR);
    return ok ? 0 : 1;
}

static void connections_only_where_they_are_needed(void **state)
{
    (void)state;
    assert_int_equal(asked(true, opens_a_socket), 0);
    assert_int_equal(asked(false, opens_a_socket), EPERM);
}

static void a_blob_can_be_kept(void **state)
{
    (void)state;
    assert_int_equal(asked(false, keeps_a_blob), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_only_where_they_are_needed),
        cmocka_unit_test(a_blob_can_be_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
