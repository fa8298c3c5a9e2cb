/* SPDX-License-Identifier: Apache-2.0 */
/* platform.c: spells platforms in one way, and says which image runs on which machine. */
#include "template/platform.h"

#include <string.h>
#include <sys/utsname.h>

#include "base/err.h"
#include "base/str.h"

static const struct {
    const char *other, *arch, *variant; /* variant NULL: as it is */
} spellings[] = {
    {"x86_64", "amd64", NULL}, {"x86-64", "amd64", NULL},    {"aarch64", "arm64", NULL},     {"armhf", "arm", "v7"},
    {"armv7l", "arm", "v7"},   {"armel", "arm", "v6"},       {"armv6l", "arm", "v6"},        {"i386", "386", NULL},
    {"i686", "386", NULL},     {"ppc64el", "ppc64le", NULL}, {"mips64el", "mips64le", NULL},
};

static bool word_ok(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n > 0 && n < PLATFORM_WORD && word[n] == '\0';
}

static int lower(const char *word, char out[PLATFORM_WORD])
{
    if (!word_ok(word))
        return -EINVAL;
    int r = str_copy(out, PLATFORM_WORD, word);
    for (char *p = out; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return r;
}

int platform_make(const char *os, const char *arch, const char *variant, struct platform *ret)
{
    struct platform made = {0};

    if (lower(os, made.os) < 0 || lower(arch, made.arch) < 0 ||
        (variant && variant[0] && lower(variant, made.variant) < 0))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_SIZE(spellings); i++)
        if (str_eq(made.arch, spellings[i].other)) {
            memset(made.arch, 0, sizeof made.arch); /* equal platforms are equal bytes */
            (void)!str_copy(made.arch, sizeof made.arch, spellings[i].arch);
            if (spellings[i].variant && !made.variant[0])
                (void)!str_copy(made.variant, sizeof made.variant, spellings[i].variant);
            break;
        }
    if ((str_eq(made.arch, "arm64") && (str_eq(made.variant, "v8") || str_eq(made.variant, "8"))) ||
        (str_eq(made.arch, "amd64") && str_eq(made.variant, "v1")))
        memset(made.variant, 0, sizeof made.variant);
    if (str_eq(made.arch, "arm") && !made.variant[0])
        (void)!str_copy(made.variant, sizeof made.variant, "v7");
    *ret = made;
    return 0;
}

int platform_parse(const char *text, struct platform *ret, struct brig_err *err)
{
    char copy[PLATFORM_TEXT];
    char *arch = NULL, *variant = NULL;

    if (str_copy(copy, sizeof copy, text) == 0) {
        arch = strchr(copy, '/');
        if (arch)
            *arch++ = '\0';
        variant = arch ? strchr(arch, '/') : NULL;
        if (variant)
            *variant++ = '\0';
    }
    if (!arch || (variant && !variant[0]) || platform_make(copy, arch, variant, ret) < 0)
        return err_usage(err, "platform \"%.100s\": a platform is OS/ARCH or OS/ARCH/VARIANT, such as linux/arm64",
                         text);
    return 0;
}

void platform_host(struct platform *ret)
{
    struct utsname name = {0};

    (void)!uname(&name);
    if (platform_make("linux", name.machine, NULL, ret) < 0)
        (void)!platform_make("linux", "unknown", NULL, ret);
}

void platform_text(const struct platform *platform, char out[PLATFORM_TEXT])
{
    (void)!str_format(out, PLATFORM_TEXT, "%s/%s%s%s", platform->os, platform->arch, platform->variant[0] ? "/" : "",
                      platform->variant);
}

/* "v7" is 7; no variant is the lowest, and another word has no order. */
static int variant_rank(const char *variant)
{
    if (!variant[0])
        return 0;
    return variant[0] == 'v' && variant[1] >= '1' && variant[1] <= '9' && variant[2] == '\0' ? variant[1] - '0' : -1;
}

unsigned platform_fit(const struct platform *image, const struct platform *machine)
{
    if (!str_eq(image->os, machine->os) || !str_eq(image->arch, machine->arch))
        return 0;
    if (str_eq(image->variant, machine->variant))
        return 100;
    int has = variant_rank(image->variant), can = variant_rank(machine->variant);
    return has >= 0 && can >= 0 && has < can ? 1 + (unsigned)has : 0;
}

bool platform_same(const struct platform *a, const struct platform *b)
{
    return str_eq(a->os, b->os) && str_eq(a->arch, b->arch) && str_eq(a->variant, b->variant);
}
