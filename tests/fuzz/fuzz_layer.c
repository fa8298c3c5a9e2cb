/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer as a registry sends it, unpacked into a directory. Whatever it says, nothing beside that directory changes,
 * what is made there can be removed again, and what brig-layer writes of the tree it unpacks in its turn; what `copy`
 * takes of it as well.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "layer/layer.h"

#define TOP_SIZE 64

static char top[TOP_SIZE], blob[TOP_SIZE];
static int top_fd = -1, blob_fd = -1, out_fd = -1, stdout_fd = -1;

static void remove_top(void)
{
    FUZZ_CHECK(remove_all(AT_FDCWD, top) == 0);
}

/* A directory of our own with one beside that which is unpacked into. */
static void set_up(void)
{
    /* In memory where that can be: it is ten times as fast. */
    snprintf(top, sizeof(top), "%s/fuzz-layer-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(top) && (top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0);
    FUZZ_CHECK(mkdirat(top_fd, "beside", 0700) == 0 && symlinkat("../beside", top_fd, "link") == 0);
    blob_fd = memfd_create("blob", MFD_CLOEXEC);
    out_fd = memfd_create("out", MFD_CLOEXEC);
    stdout_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    FUZZ_CHECK(blob_fd >= 0 && out_fd >= 0 && stdout_fd >= 0);
    snprintf(blob, sizeof(blob), "/proc/self/fd/%d", blob_fd);
    atexit(remove_top);
    umask(0);
}

static void put_blob(const uint8_t *data, size_t size)
{
    FUZZ_CHECK(ftruncate(blob_fd, 0) == 0 && pwrite(blob_fd, data, size, 0) == (ssize_t)size);
}

static void fresh(const char *name)
{
    FUZZ_CHECK(remove_all(top_fd, name) == 0 && mkdirat(top_fd, name, 0700) == 0);
}

static void unpack(const char *from, const char *name, bool must)
{
    char to[TOP_SIZE * 2];
    struct brig_err err = {0};
    const struct layer_options options = {.blob = from,
                                          .directory = to,
                                          .size = UINT64_MAX,
                                          .max_bytes = 1u << 20,
                                          .max_files = 64,
                                          .max_ratio = 250,
                                          .one_id = true};
    struct stat st;
    int r;

    snprintf(to, sizeof(to), "%s/%s", top, name);
    r = layer_unpack(&options, &err);
    FUZZ_CHECK(r == 0 || err.message[0] != '\0');
    FUZZ_CHECK(r == 0 || !must);
    FUZZ_CHECK(fstatat(top_fd, "beside", &st, 0) == 0 && st.st_nlink == 2 && (st.st_mode & 07777) == 0700);
    FUZZ_CHECK(unlinkat(top_fd, "beside", AT_REMOVEDIR) == 0 && mkdirat(top_fd, "beside", 0700) == 0);
    if (r < 0)
        return;
    FUZZ_CHECK(ftruncate(out_fd, 0) == 0 && lseek(STDOUT_FILENO, 0, SEEK_SET) == 0);
    (void)!layer_index(&options, &err);
}

/* As in fuzz_tar.c: a fuzzer does not find checksums. */
static void mend(uint8_t *block)
{
    unsigned sum = 8 * ' ';

    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += i < 148 || i >= 156 ? block[i] : 0;
    if (sum == 8 * ' ')
        return;
    for (unsigned i = 0; i < 6; i++, sum >>= 3)
        block[153 - i] = (uint8_t)('0' + (sum & 7));
    block[154] = 0;
    block[155] = ' ';
}

/* What was written becomes the blob. */
static off_t take_out(void)
{
    uint8_t block[TAR_BLOCK];
    off_t end = lseek(STDOUT_FILENO, 0, SEEK_CUR);

    FUZZ_CHECK(ftruncate(blob_fd, 0) == 0);
    for (off_t at = 0; at < end; at += (off_t)sizeof(block))
        FUZZ_CHECK(pread(out_fd, block, sizeof(block), at) == (ssize_t)sizeof(block) &&
                   pwrite(blob_fd, block, sizeof(block), at) == (ssize_t)sizeof(block));
    return end;
}

/* COPY of the blob over the tree; a bind is one source over the destination, without what a file of it leaves out. */
static void copy(const char *tree, const char *dest, bool bind)
{
    static const char *const sources[] = {".", "*/[a-m]*"};
    const char *list[] = {"b*", "!b/c"};
    const struct layer_options options = {.blob = blob,
                                          .directory = tree,
                                          .dest = dest,
                                          .max_files = 48,
                                          .chmod = -1,
                                          .keep_owner = true,
                                          .list = list,
                                          .n_list = 2,
                                          .over = bind,
                                          .ignore = {"a", "b"},
                                          .n_ignore = bind ? 2 : 0,
                                          .sources = sources,
                                          .n_sources = bind ? 1 : 2};
    struct brig_err err = {0};
    int r;

    FUZZ_CHECK(ftruncate(out_fd, 0) == 0 && lseek(STDOUT_FILENO, 0, SEEK_SET) == 0);
    r = layer_copy(&options, &err);
    FUZZ_CHECK(r == 0 || err.message[0] != '\0');
    if (r < 0)
        return;
    take_out();
    fresh("again");
    unpack(blob, "again", false);
}

static void try_all(const uint8_t *data, size_t size)
{
    static uint8_t mended[1u << 15];
    struct brig_err err = {0};
    char tree[TOP_SIZE * 2];
    const struct layer_options whole = {.blob = tree};

    snprintf(tree, sizeof(tree), "%s/tree", top);
    fresh("tree");
    put_blob(data, size);
    unpack(blob, "tree", false);
    if (size <= sizeof(mended)) {
        memcpy(mended, data, size);
        for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK)
            mend(mended + at);
        put_blob(mended, size);
        unpack(blob, "tree", false); /* over what is there */
        copy(tree, "/a/b/", false);
        put_blob(mended, size);
        copy(tree, "/", false);
        put_blob(mended, size);
        copy(tree, "/a/b", true);
    }
    FUZZ_CHECK(ftruncate(out_fd, 0) == 0 && lseek(STDOUT_FILENO, 0, SEEK_SET) == 0);
    if (layer_pack(&whole, &err) == 0) {
        off_t end = take_out();

        fresh("again");
        unpack(blob, "again", end <= 1 << 20);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (top_fd < 0)
        set_up();
    fflush(stdout);
    FUZZ_CHECK(dup2(out_fd, STDOUT_FILENO) == STDOUT_FILENO);
    try_all(data, size);
    FUZZ_CHECK(dup2(stdout_fd, STDOUT_FILENO) == STDOUT_FILENO);
    return 0;
}
