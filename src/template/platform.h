/* SPDX-License-Identifier: Apache-2.0 */
/*
 * platform.h: for which machine an image is: OS/ARCH[/VARIANT], in Go's words ("linux/amd64", "linux/arm/v7"). Words of
 * others for the same machine (x86_64, aarch64) and variants that say nothing (arm64/v8, amd64/v1) have one spelling
 * after platform_make().
 */
#ifndef BRIG_TEMPLATE_PLATFORM_H
#define BRIG_TEMPLATE_PLATFORM_H

#include <brig.h>

#include "base/base.h"

#define PLATFORM_WORD 33u
#define PLATFORM_TEXT (3u * PLATFORM_WORD)

struct platform {
    char os[PLATFORM_WORD], arch[PLATFORM_WORD], variant[PLATFORM_WORD]; /* variant may be "" */
};

/* Each word is letters, digits, _ . - and has at most 32 of them; variant may be NULL. Returns 0 or -EINVAL. */
int platform_make(const char *os, const char *arch, const char *variant, struct platform *ret) MUST_CHECK;
/* A text that is no platform is BRIG_E_USAGE. */
int platform_parse(const char *text, struct platform *ret, struct brig_err *err) MUST_CHECK;
void platform_host(struct platform *ret); /* this machine */
void platform_text(const struct platform *platform, char out[PLATFORM_TEXT]);
/*
 * How well does an image of this platform run on that one? 0: not at all; more is better. An ARM runs the variants
 * below its own, and so does an amd64.
 */
unsigned platform_fit(const struct platform *image, const struct platform *machine);
bool platform_same(const struct platform *a, const struct platform *b);

#endif
