/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that a build sends: all of it but what .dockerignore leaves out, or a refusal. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "cli/template/template.h"
#include "client/tree.h"
#include "codec/tar/tar.h"

static char top[64];

static int make_top(void **state)
{
    snprintf(top, sizeof(top), "/tmp/brig-test-context-XXXXXX");
    *state = mkdtemp(top);
    return *state ? 0 : -1;
}

static int open_top(void)
{
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void remove_below(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0)
        return;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fdopendir(fd);
    const struct dirent *entry;
    while ((entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_below(fd, entry->d_name);
    closedir(list);
    unlinkat(dir, name, AT_REMOVEDIR);
}

static int remove_top(void **state)
{
    (void)state;
    remove_below(AT_FDCWD, top);
    return 0;
}

static void put(const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof(full), "%s/%s", top, path);
    for (char *slash = full + strlen(top) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        assert_true(mkdir(full, 0750) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in the archive, sorted, with a blank behind each; or "refused". `step`: how many bytes at a time. */
static const char *names(const char *dockerfile, uint64_t max, size_t step, struct brig_err *err)
{
    static char out[4096], list[512][512];
    struct template_context *context = NULL;
    struct tar_parser parser;
    static uint8_t piece[4096];
    size_t n_names = 0;
    ssize_t n;

    if (template_context_open(open_top(), dockerfile, max, &context, err) < 0)
        return "refused";
    tar_parser_init(&parser);
    while ((n = template_context_read(context, piece, step, err)) > 0) {
        const uint8_t *in = piece, *data;
        size_t len = (size_t)n, data_len;
        for (int event; (event = tar_parse(&parser, &in, &len, &data, &data_len)) != TAR_NEED;) {
            assert_true(event >= 0 && n_names < ARRAY_SIZE(list));
            if (event == TAR_MEMBER) {
                if (parser.member.kind == TAR_DIR)
                    assert_int_equal(parser.member.mode, 0750);
                snprintf(list[n_names++], sizeof(list[0]), "%s", parser.member.name);
            }
        }
    }
    if (n == 0) {
        assert_int_equal(tar_parse_end(&parser), 0);
        assert_int_equal(template_context_skipped(context), 0);
    }
    template_context_close(context);
    if (n < 0)
        return "refused";
    qsort(list, n_names, sizeof(list[0]), compare);
    out[0] = '\0';
    for (size_t i = 0, len = 0; i < n_names; i++)
        len += (size_t)snprintf(out + len, sizeof(out) - len, "%s ", list[i]);
    return out;
}

static void everything_without_a_file_of_patterns(void **state)
{
    struct brig_err err = {0};
    char link[80];
    (void)state;

    put("a/b/c", "c");
    put("f", "f");
    snprintf(link, sizeof(link), "%s/link", top);
    assert_int_equal(symlink("../../etc/passwd", link), 0);
    assert_string_equal(names(NULL, 0, 4096, &err), "a a/b a/b/c f link ");
}

static void patterns_leave_out(void **state)
{
    static const size_t steps[] = {1, 100, 512, 4096};
    struct brig_err err = {0};
    (void)state;

    put("keep/me", "1");
    put("out/x/y", "2");
    put("out/back/deep/z", "3");
    put("out/back/deep/no", "4");
    put("logs/one.log", "5");
    put(".dockerignore", "out\n!out/back/deep/z\n**/*.log\n");
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
        assert_string_equal(names(NULL, 0, steps[i], &err),
                            ".dockerignore keep keep/me logs out out/back out/back/deep out/back/deep/z ");
    put(".dockerignore", "*\n!keep\n");
    assert_string_equal(names(NULL, 0, 4096, &err), "keep keep/me ");
    put("sub/App.dockerignore", "*\n");
    assert_string_equal(names("sub/App", 0, 4096, &err), "");
    assert_string_equal(names("sub/Other", 0, 4096, &err), "keep keep/me ");
}

static void refusals(void **state)
{
    struct brig_err err = {0};
    char deep[512];
    (void)state;

    put("f", "12345");
    put("g", "12345");
    assert_string_equal(names(NULL, 10, 4096, &err), "f g ");
    assert_string_equal(names(NULL, 9, 4096, &err), "refused");
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
    assert_string_equal(err.message + 1, ": with it there are more than 9 bytes"); /* f or g: whichever comes second */
    put(".dockerignore", "ok\n[x\n");
    assert_string_equal(names(NULL, 0, 4096, &err), "refused");
    assert_string_equal(err.message, ".dockerignore: line 2: [x: the pattern is malformed");
    put(".dockerignore", "");
    for (size_t i = 0; i < 420; i += 2)
        memcpy(deep + i, "d/f", 4);
    put(deep, "");
    assert_string_equal(names(NULL, 0, 4096, &err), "refused");
    assert_int_equal(err.code, BRIG_E_USAGE);
    put(".dockerignore", "d\n");
    assert_string_equal(names(NULL, 0, 4096, &err), ".dockerignore f g ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_without_a_file_of_patterns, make_top, remove_top),
        cmocka_unit_test_setup_teardown(patterns_leave_out, make_top, remove_top),
        cmocka_unit_test_setup_teardown(refusals, make_top, remove_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
