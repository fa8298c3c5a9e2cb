/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_words.c: what a virtual machine is told: the words of the kernel's command line, and with brig.wait=1 those of
 * one line that comes over the port to the host.
 *
 * Theory of operation. A machine that waits for its line can be kept as a snapshot and be started from it any number of
 * times, because nothing in it is of one sandbox. What two copies must not have in common is therefore in the line: the
 * time, random bytes, the names. The line is taken before anything else of a sandbox is, and the random bytes are mixed
 * into the kernel's generator, which has to begin anew with them, or the machine is powered off.
 *
 *     wait --"?"--> the answer that it waits --the host closes--> wait --a line--> its words are known
 *
 * The line is read byte by byte: what follows it is for brig-init, which gets the same open port. A word of the command
 * line cannot be replaced by one of the line.
 */
#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <time.h>

#include "guest/boot/boot.h"
#include "jail/rawcall.h"

#define PAUSE_MS 2
#define OPEN_PATIENCE_MS 10000
#define SEED_BYTES (BOOT_SEED_DIGITS / 2)

static char words[8192]; /* each ends with a NUL */
static size_t used;

/* ---- the command line -------------------------------------------------------------------------------- */

/* Splits what was put at `from` into words. */
static void split(size_t from, size_t len)
{
    for (size_t i = from; i < from + len; i++)
        if (words[i] == ' ' || words[i] == '\n')
            words[i] = '\0';
    used = from + len;
    words[used++] = '\0';
}

void boot_words_read(void)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, "/proc/cmdline", O_RDONLY | O_CLOEXEC, 0);
    long len = raw_failed(fd) ? fd : raw_call3(SYS_read, fd, words, sizeof(words) / 2);

    if (len < 0)
        give_up("cannot read", "/proc/cmdline");
    raw_call1(SYS_close, fd);
    split(0, (size_t)len);
}

const char *boot_behind(const char *at, const char *name)
{
    while (*name != '\0' && *at == *name)
        at++, name++;
    return *name == '\0' ? at : NULL;
}

const char *boot_word(const char *name)
{
    for (const char *at = words; at < words + used; at += __builtin_strlen(at) + 1) {
        const char *value = boot_behind(at, name);
        if (value)
            return value;
    }
    return "";
}

/* ---- the line ---------------------------------------------------------------------------------------- */

static void rest(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

    raw_call2(SYS_nanosleep, &pause, NULL);
}

/* The kernel may have made the node of a port before the port itself (ENXIO). */
static int open_port(const char *path)
{
    long fd = -ENXIO;

    for (int ms = 0; fd == -ENXIO && ms < OPEN_PATIENCE_MS; ms += PAUSE_MS) {
        fd = raw_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_NOCTTY, 0);
        if (fd == -ENXIO)
            rest();
    }
    if (raw_failed(fd))
        give_up("cannot open", path);
    return (int)fd;
}

/* Reads one line behind the words that are known. While the host's side is closed a read gives 0: half a line is
 * forgotten. */
static size_t read_line(int fd)
{
    size_t len = 0;

    for (;;) {
        long got = raw_call3(SYS_read, fd, words + used + len, 1);
        if (got == 0) {
            len = 0;
            rest();
        } else if (got != 1 && got != -EINTR) {
            give_up("cannot read the port", NULL);
        } else if (got == 1) {
            if (words[used + len] == '\n')
                return len;
            if (++len == sizeof(words) - used - 1)
                give_up("the line of words is too long", NULL);
        }
    }
}

int boot_words_await(const char *path)
{
    int fd = open_port(path);
    size_t len;

    while ((len = read_line(fd)) == 1 && words[used] == BOOT_QUESTION[0])
        raw_call3(SYS_write, fd, BOOT_WAITS, sizeof(BOOT_WAITS) - 1);
    split(used, len);
    return fd;
}

/* ---- what two copies must not share ------------------------------------------------------------------ */

static unsigned digit(char letter)
{
    if (letter >= '0' && letter <= '9')
        return (unsigned)(letter - '0');
    if (letter < 'a' || letter > 'f')
        give_up("not a word of hexadecimal digits:", BOOT_SEED);
    return (unsigned)(letter - 'a') + 10;
}

void boot_seed(void)
{
    struct {
        struct rand_pool_info head;
        uint8_t bytes[SEED_BYTES];
    } seed = {.head = {.entropy_count = 8 * SEED_BYTES, .buf_size = SEED_BYTES}};
    char *text = (char *)(uintptr_t)boot_word(BOOT_SEED);

    if (__builtin_strlen(text) != BOOT_SEED_DIGITS)
        give_up("a machine that waited needs the word", BOOT_SEED);
    for (unsigned i = 0; i < SEED_BYTES; i++)
        seed.bytes[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    long fd = raw_call4(SYS_openat, AT_FDCWD, "/dev/random", O_RDWR | O_CLOEXEC, 0);
    if (raw_failed(fd) || raw_call3(SYS_ioctl, fd, RNDADDENTROPY, &seed) != 0 ||
        raw_call3(SYS_ioctl, fd, RNDRESEEDCRNG, 0) != 0)
        give_up("cannot seed", "/dev/random");
    raw_call1(SYS_close, fd);
    __builtin_memset(&seed, 0, sizeof(seed));
    __builtin_memset(text, 0, BOOT_SEED_DIGITS);
    __asm__ volatile("" ::"r"(&seed), "r"(text) : "memory"); /* both are really written */
}

void boot_clock(void)
{
    const char *text = boot_word(BOOT_TIME);
    uint64_t ns = 0;

    for (; *text >= '0' && *text <= '9'; text++)
        ns = ns * 10 + (uint64_t)(*text - '0');
    const struct timespec now = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    if (ns == 0 || *text != '\0' || raw_call2(SYS_clock_settime, CLOCK_REALTIME, &now) != 0)
        give_up("cannot set the clock:", BOOT_TIME);
}
