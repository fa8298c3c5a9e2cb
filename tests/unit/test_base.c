/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of base: ownership, strings, UTF-8, ids, files, and descriptors passed over sockets. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/call_filter.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sockaddr.h"
#include "base/str.h"
#include "base/utf8.h"

static void ownership_is_handed_over_once(void **state)
{
    size_t before = unit_count_fds();
    int kept;
    (void)state;

    {
        AUTO_FD int a = open("/dev/null", O_RDONLY | O_CLOEXEC);
        AUTO_FD int b = open("/dev/null", O_RDONLY | O_CLOEXEC);
        AUTO_FREE char *text = strdup("x");
        assert_true(a >= 0 && b >= 0 && text);
        kept = take_fd(&a);
        assert_int_equal(a, -1);
        char *mine = take_ptr(&text);
        assert_null(text);
        free(mine);
    }
    assert_int_equal(unit_count_fds(), before + 1);
    close(kept);
}

static void mem_fails_when_told(void **state)
{
    (void)state;

    mem_fail_after(2);
    AUTO_FREE char *a = mem_alloc(1);
    AUTO_FREE char *b = mem_strdup("b");
    assert_non_null(a);
    assert_non_null(b);
    assert_false(mem_has_failed());
    assert_null(mem_zalloc(1));
    assert_null(mem_realloc(NULL, 1));
    assert_true(mem_has_failed());
    mem_fail_after(MEM_FAIL_NEVER);
    assert_false(mem_has_failed());
    assert_null(mem_realloc_array(NULL, SIZE_MAX / 2, 3));
}

static void str_never_truncates(void **state)
{
    char out[6] = "junk";
    (void)state;

    assert_int_equal(str_copy(out, sizeof(out), "12345"), 0);
    assert_string_equal(out, "12345");
    assert_int_equal(str_copy(out, sizeof(out), "123456"), -ENAMETOOLONG);
    assert_string_equal(out, "");
    assert_int_equal(str_format(out, sizeof(out), "%d", 12345), 5);
    assert_string_equal(out, "12345");
    assert_int_equal(str_format(out, sizeof(out), "%d", 123456), -ENAMETOOLONG);
    assert_string_equal(out, "");
    assert_int_equal(str_copy(out, 0, ""), -ENAMETOOLONG);
    assert_true(str_starts("/proc/self", "/proc"));
    assert_false(str_starts("/pro", "/proc"));
    assert_true(str_eq("a", "a"));
}

static void str_assign_copies_into_what_is_large_enough(void **state)
{
    char to[6] = "junk";
    char from[4] = "abc";
    (void)state;

    str_assign(to, from);
    assert_string_equal(to, "abc");
    str_assign(to, "12345");
    assert_string_equal(to, "12345");
}

static void str_cut_cuts_between_characters(void **state)
{
    static const struct {
        const char *text;
        size_t size;
        const char *want;
    } cases[] = {
        {"abc", 4, "abc"},
        {"abcd", 4, "abc"},
        {NULL, 4, ""},
        {"", 1, ""},
        {"abc", 1, ""},
        {"a\xc3\xa9", 4, "a\xc3\xa9"},
        {"a\xc3\xa9", 3, "a"},
        {"a\xe2\x82\xac", 4, "a"},
        {"a\xf0\x9f\x9a\xa2z", 5, "a"},
        {"a\xf0\x9f\x9a\xa2z", 6, "a\xf0\x9f\x9a\xa2"},
        {"\xf0\x9f\x9a\xa2", 4, ""},
        {"\x80\x80\x80\x80\x80\x80", 6, "\x80\x80"}, /* no UTF-8: at most three bytes more are lost */
    };
    char out[8];
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        memset(out, 'x', sizeof out);
        str_cut(out, cases[i].size, cases[i].text);
        assert_string_equal(out, cases[i].want);
        assert_int_equal(out[cases[i].size], 'x');
    }
    str_cut(NULL, 0, "abc");
}

struct thing {
    struct thing *next, *prev;
    char name;
};

/* The names both ways: "abc" is "abc cba". */
static const char *walk(const struct thing *first, const struct thing *last)
{
    static char text[16];
    size_t n = 0;

    for (const struct thing *t = first; t; t = t->next)
        text[n++] = t->name;
    text[n++] = ' ';
    for (const struct thing *t = last; t; t = t->prev)
        text[n++] = t->name;
    text[n] = '\0';
    return text;
}

static void lists_are_linked_both_ways(void **state)
{
    struct thing a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'}, *first = NULL, *last = NULL;
    (void)state;

    list_append(&first, &last, &a);
    assert_string_equal(walk(first, last), "a a");
    list_append(&first, &last, &b);
    list_append(&first, &last, &c);
    assert_string_equal(walk(first, last), "abc cba");
    list_take(&first, &last, &b);
    assert_string_equal(walk(first, last), "ac ca");
    assert_true(b.next == &c); /* one who walks the list goes on from there */
    list_append(&first, &last, &b);
    list_take(&first, &last, &a);
    assert_string_equal(walk(first, last), "cb bc");
    list_take(&first, &last, &b);
    list_take(&first, &last, &c);
    assert_true(first == NULL && last == NULL);

    list_push(&first, &a);
    assert_string_equal(walk(first, &a), "a a");
    list_push(&first, &b);
    list_push(&first, &c);
    assert_string_equal(walk(first, &a), "cba abc");
    list_remove(&first, &b);
    assert_string_equal(walk(first, &a), "ca ac");
    list_remove(&first, &c);
    list_remove(&first, &a);
    assert_null(first);
}

static void utf8_takes_only_well_formed(void **state)
{
    static const struct {
        const char *bytes;
        size_t len, want;
        uint32_t point;
    } cases[] = {
        {"", 0, 0, 0},
        {"a", 1, 1, 'a'},
        {"\0", 1, 1, 0},
        {"\xc3\xa9", 2, 2, 0xe9},
        {"\xe2\x82\xac", 3, 3, 0x20ac},
        {"\xf0\x9f\x9a\xa2", 4, 4, 0x1f6a2},
        {"\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff},
        {"\xc3", 1, 0, 0},             /* cut off */
        {"\xe2\x82", 2, 0, 0},         /* cut off */
        {"\x80", 1, 0, 0},             /* a continuation first */
        {"\xc0\x80", 2, 0, 0},         /* overlong */
        {"\xe0\x80\xaf", 3, 0, 0},     /* overlong */
        {"\xf0\x80\x80\xaf", 4, 0, 0}, /* overlong */
        {"\xed\xa0\x80", 3, 0, 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 4, 0, 0}, /* past U+10FFFF */
        {"\xf8\x88\x80\x80\x80", 5, 0, 0},
        {"\xff", 1, 0, 0},
        {"\xc3(", 2, 0, 0},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t point = 0;
        assert_int_equal(utf8_sequence(cases[i].bytes, cases[i].len, &point), cases[i].want);
        if (cases[i].want > 0)
            assert_int_equal(point, cases[i].point);
    }
}

static void ids_have_their_shape(void **state)
{
    uint8_t bytes[ID_BYTES];
    char run[ID_RUN_SIZE], sandbox[ID_SANDBOX_SIZE], other[ID_SANDBOX_SIZE];
    (void)state;

    memset(bytes, 0, sizeof(bytes));
    id_format_run(run, bytes);
    assert_string_equal(run, "run-00000000-0000-4000-8000-000000000000");
    id_format_sandbox(sandbox, bytes);
    assert_string_equal(sandbox, "aaaaaaaaaaaaaaaaaaaaaaaaaa");
    memset(bytes, 0xff, sizeof(bytes));
    id_format_run(run, bytes);
    assert_string_equal(run, "run-ffffffff-ffff-4fff-bfff-ffffffffffff");
    id_format_sandbox(sandbox, bytes);
    assert_string_equal(sandbox, "h7777777777777777777777777");

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(id_sandbox(sandbox), 0);
        assert_int_equal(id_sandbox(other), 0);
        assert_string_not_equal(sandbox, other);
        assert_int_equal(strlen(sandbox), 26);
        assert_int_equal(strspn(sandbox, "abcdefghijklmnopqrstuvwxyz234567"), 26);
        assert_true(sandbox[0] >= 'a' && sandbox[0] <= 'h');
        assert_int_equal(id_run(run), 0);
        assert_int_equal(strlen(run), 40);
        assert_int_equal(run[18], '4');
        assert_non_null(strchr("89ab", run[23]));
    }
}

static void clocks_run(void **state)
{
    (void)state;
    uint64_t a = clock_mono_ns();
    assert_true(clock_mono_ns() >= a);
    assert_true(clock_real_ns() > INT64_C(1600000000) * 1000000000);
}

static void fd_reads_small_files_only(void **state)
{
    char buf[16];
    AUTO_FD int fd = memfd_create("test", MFD_CLOEXEC);
    (void)state;

    assert_true(fd >= 0);
    assert_int_equal(fd_read_all(fd, buf, sizeof(buf)), 0);
    assert_string_equal(buf, "");
    assert_int_equal(fd_write_all(fd, "123456789012345", 15), 0);
    lseek(fd, 0, SEEK_SET);
    assert_int_equal(fd_read_all(fd, buf, sizeof(buf)), 15);
    assert_string_equal(buf, "123456789012345");
    assert_int_equal(fd_write_all(fd, "6", 1), 0);
    lseek(fd, 0, SEEK_SET);
    assert_int_equal(fd_read_all(fd, buf, sizeof(buf)), -EFBIG);
    assert_int_equal(fd_read_all(fd, buf, 0), -EINVAL);
    assert_int_equal(fd_read_all(-1, buf, sizeof(buf)), -EBADF);
}

static void fd_files_by_directory(void **state)
{
    char dir[] = "/tmp/brig-unit-XXXXXX", buf[32];
    (void)state;

    assert_non_null(mkdtemp(dir));
    AUTO_FD int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(dirfd >= 0);
    assert_int_equal(fd_write_file(dirfd, "value", "1"), -ENOENT); /* never creates */
    AUTO_FD int made = openat(dirfd, "value", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(made >= 0);
    assert_int_equal(fd_write_file(dirfd, "value", "42\n"), 0);
    assert_int_equal(fd_read_file(dirfd, "value", buf, sizeof(buf)), 3);
    assert_string_equal(buf, "42\n");
    assert_int_equal(fd_read_file(dirfd, "none", buf, sizeof(buf)), -ENOENT);
    assert_int_equal(symlinkat("value", dirfd, "link"), 0);
    assert_int_equal(fd_write_file(dirfd, "link", "x"), -ELOOP);
    int fd = fd_openat_read(dirfd, "value");
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fd_set_cloexec(fd, false), 0);
    assert_int_equal(fcntl(fd, F_GETFD), 0);
    close(fd);
    assert_int_equal(unlinkat(dirfd, "link", 0), 0);
    assert_int_equal(unlinkat(dirfd, "value", 0), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void fd_nonblock(void **state)
{
    int pipe_fds[2];
    char c;
    (void)state;

    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_int_equal(fd_set_nonblock(pipe_fds[0]), 0);
    assert_int_equal(fd_set_nonblock(pipe_fds[0]), 0);
    assert_int_equal(read(pipe_fds[0], &c, 1), -1);
    assert_int_equal(errno, EAGAIN);
    fd_close_all(pipe_fds, 2);
    assert_int_equal(pipe_fds[0], -1);
    assert_int_equal(fd_set_nonblock(-1), -EBADF);
}

static void open_nulls(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fds[i] >= 0);
    }
}

static void pass_fds(int type)
{
    int sock[2], out[3], in[4];
    size_t n = 99, before = unit_count_fds();
    char data[8] = "";

    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sock), 0);
    open_nulls(out, 3);
    assert_int_equal(fd_send(sock[0], "hello", 5, out, 3), 0);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), in, 4, &n), 5);
    assert_memory_equal(data, "hello", 5);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(fcntl(in[i], F_GETFD), FD_CLOEXEC);
    assert_int_equal(in[3], -1);
    fd_close_all(in, 4);

    /* None, and a receiver that wants none. */
    assert_int_equal(fd_send(sock[0], "x", 1, NULL, 0), 0);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), NULL, 0, NULL), 1);

    /* More than wanted: all closed. */
    assert_int_equal(fd_send(sock[0], "x", 1, out, 3), 0);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), in, 2, &n), -EPROTO);
    assert_int_equal(n, 3); /* untouched */
    assert_int_equal(fd_send(sock[0], "x", 1, out, 1), 0);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), NULL, 0, NULL), -EPROTO);

    fd_close_all(out, 3);
    fd_close_all(sock, 2);
    assert_int_equal(unit_count_fds(), before);
}

static void fd_passes_over_seqpacket(void **state)
{
    (void)state;
    pass_fds(SOCK_SEQPACKET);
}

static void fd_passes_over_stream(void **state)
{
    (void)state;
    pass_fds(SOCK_STREAM);
}

static void fd_recv_refuses_what_does_not_fit(void **state)
{
    int sock[2], out[FD_MSG_MAX + 4], in[FD_MSG_MAX];
    size_t n = 0, before = unit_count_fds();
    char data[4];
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
    open_nulls(out, ARRAY_SIZE(out));

    /* A message longer than the buffer, with a descriptor. */
    assert_int_equal(fd_send(sock[0], "hello", 5, out, 1), 0);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), in, 1, &n), -EPROTO);

    /* More descriptors than any control buffer here holds: the kernel cuts them (MSG_CTRUNC). */
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(out))];
    } control = {0};
    struct iovec iov = {.iov_base = data, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(out));
    memcpy(CMSG_DATA(cmsg), out, sizeof(out));
    data[0] = 'x';
    assert_int_equal(sendmsg(sock[0], &msg, 0), 1);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), in, FD_MSG_MAX, &n), -EPROTO);

    /* The most that is allowed. */
    assert_int_equal(fd_send(sock[0], "x", 1, out, FD_MSG_MAX), 0);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), in, FD_MSG_MAX, &n), 1);
    assert_int_equal(n, FD_MSG_MAX);
    fd_close_all(in, n);

    assert_int_equal(fd_send(sock[0], "x", 1, out, FD_MSG_MAX + 1), -EINVAL);
    assert_int_equal(fd_send(sock[0], "", 0, out, 1), -EINVAL);
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), in, FD_MSG_MAX + 1, &n), -EINVAL);
    fd_close_all(out, ARRAY_SIZE(out));
    fd_close_all(sock, 2);
    assert_int_equal(unit_count_fds(), before);
}

static void fd_nowait_and_end(void **state)
{
    int sock[2];
    char data[65536] = {0};
    size_t n;
    int r, fd = -1;
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
    assert_int_equal(fd_recv_nowait(sock[0], data, sizeof(data), &fd, 1, &n), -EAGAIN);
    do {
        r = fd_send_nowait(sock[0], data, sizeof(data), NULL, 0);
    } while (r == 0);
    assert_int_equal(r, -EAGAIN);
    base_close_fd(&sock[1]);
    assert_int_equal(fd_send(sock[0], "x", 1, NULL, 0), -ECONNRESET); /* there was unread data */
    assert_int_equal(fd_send(sock[0], "x", 1, NULL, 0), -EPIPE);      /* and no SIGPIPE */
    base_close_fd(&sock[0]);

    /* A stream that takes only part of a message is broken from then on. */
    char *large = mem_zalloc(4u << 20);
    assert_non_null(large);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
    assert_int_equal(fd_send_nowait(sock[0], large, 4u << 20, NULL, 0), -EIO);
    free(large);
    base_close_fd(&sock[0]);
    while (fd_recv(sock[1], data, sizeof(data), NULL, 0, NULL) > 0)
        ;
    assert_int_equal(fd_recv(sock[1], data, sizeof(data), &fd, 1, &n), 0);
    assert_int_equal(n, 0);
    base_close_fd(&sock[1]);
}

static void utf8_writes_what_it_reads(void **state)
{
    (void)state;
    for (uint32_t point = 0; point <= 0x10ffff; point++) {
        char out[4];
        uint32_t read = 0;
        size_t n = utf8_put(out, point);

        if (point >= 0xd800 && point <= 0xdfff)
            continue; /* no code point of its own: not read back */
        assert_int_equal(utf8_sequence(out, n, &read), n);
        assert_int_equal(read, point);
    }
}

/* One that does not fit is not installed without its end: nothing of it is. */
static void a_filter_that_is_too_long_is_not_installed(void **state)
{
    static unsigned short calls[CALL_FILTER_MAX / 2];
    struct call_filter filter;
    struct brig_err err;
    (void)state;

    call_filter_init(&filter);
    call_filter_calls(&filter, calls, ARRAY_SIZE(calls), SECCOMP_RET_KILL_PROCESS);
    assert_int_equal(call_filter_install(&filter, &err), -E2BIG);
    assert_string_equal(err.message, "seccomp: 517 instructions, at most 512: Argument list too long");
    assert_true(getpid() > 0);
}

static void paths_are_cleaned(void **state)
{
    static const char *const cases[][2] = {{"", ""},          {"/", ""},        {".", ""},         {"a", "a"},
                                           {"/a//b/", "a/b"}, {"a/./b", "a/b"}, {"a/../b", "b"},   {"../../x", "x"},
                                           {"a/b/../..", ""}, {"..a", "..a"},   {"a/...", "a/..."}};
    char out[16];
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(path_clean(cases[i][0], out, sizeof(out)), (int)strlen(cases[i][1]));
        assert_string_equal(out, cases[i][1]);
    }
    assert_int_equal(path_clean("0123456789abcde", out, sizeof(out)), 15);
    assert_int_equal(path_clean("0123456789abcdef", out, sizeof(out)), -ENAMETOOLONG);
    assert_int_equal(path_clean("a", out, 0), -ENAMETOOLONG);
}

static void paths_are_cleaned_below_a_directory(void **state)
{
    static const char *const cases[][3] = {{"/w", "a", "/w/a"},           {"/w", "/a", "/a"}, {"/w/", "../a/", "/a"},
                                           {"/w", "../../a", "/a"},       {"/w", "..", "/"},  {"", ".", "/"},
                                           {"/w/x", "./b//c", "/w/x/b/c"}};
    char out[16];
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(path_clean_absolute(cases[i][0], cases[i][1], out, sizeof(out)), (int)strlen(cases[i][2]));
        assert_string_equal(out, cases[i][2]);
        assert_int_equal(path_clean_below(cases[i][0], cases[i][1], out, sizeof(out)), (int)strlen(cases[i][2]) - 1);
        assert_string_equal(out, cases[i][2] + 1);
    }
    assert_int_equal(path_clean_absolute("/", "0123456789abcd", out, sizeof(out)), 15);
    assert_int_equal(path_clean_absolute("/", "0123456789abcde", out, sizeof(out)), -ENAMETOOLONG);
    assert_int_equal(path_clean_absolute("/", "", out, 1), -ENAMETOOLONG);
    assert_true(path_is_in("/a/b", "/a") && path_is_in("/a", "/a") && path_is_in("/a", "/") && path_is_in("/", "/"));
    assert_false(path_is_in("/ab", "/a") || path_is_in("/", "/a") || path_is_in("/b", "/a"));
}

static void addresses_are_numbers(void **state)
{
    static const char *const bad[] = {"", "[", "[]", "::1", "[127.0.0.1]", "localhost", "127.0.0.1 ", "[::1", "[::1]x"};
    union sock_addr addr;
    (void)state;

    assert_int_equal(sock_addr_parse("127.0.0.1", 80, &addr), sizeof(addr.v4));
    assert_int_equal(addr.any.sa_family, AF_INET);
    assert_int_equal(addr.v4.sin_port, htons(80));
    assert_int_equal(addr.v4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(sock_addr_parse("[::1]", 65535, &addr), sizeof(addr.v6));
    assert_int_equal(addr.any.sa_family, AF_INET6);
    assert_int_equal(addr.v6.sin6_port, htons(65535));
    assert_true(IN6_IS_ADDR_LOOPBACK(&addr.v6.sin6_addr));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(sock_addr_parse(bad[i], 1, &addr), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ownership_is_handed_over_once),
        cmocka_unit_test(mem_fails_when_told),
        cmocka_unit_test(str_never_truncates),
        cmocka_unit_test(str_assign_copies_into_what_is_large_enough),
        cmocka_unit_test(str_cut_cuts_between_characters),
        cmocka_unit_test(lists_are_linked_both_ways),
        cmocka_unit_test(utf8_takes_only_well_formed),
        cmocka_unit_test(utf8_writes_what_it_reads),
        cmocka_unit_test(a_filter_that_is_too_long_is_not_installed),
        cmocka_unit_test(paths_are_cleaned),
        cmocka_unit_test(paths_are_cleaned_below_a_directory),
        cmocka_unit_test(addresses_are_numbers),
        cmocka_unit_test(ids_have_their_shape),
        cmocka_unit_test(clocks_run),
        cmocka_unit_test(fd_reads_small_files_only),
        cmocka_unit_test(fd_files_by_directory),
        cmocka_unit_test(fd_nonblock),
        cmocka_unit_test(fd_passes_over_seqpacket),
        cmocka_unit_test(fd_passes_over_stream),
        cmocka_unit_test(fd_recv_refuses_what_does_not_fit),
        cmocka_unit_test(fd_nowait_and_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
