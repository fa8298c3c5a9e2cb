/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h: names of images as people write them: [HOST[:PORT]/]PATH[:TAG][@sha256:HEX].
 *
 * The first part is a host if it has a dot or a colon, or if it is "localhost"; otherwise the image is docker.io's, and
 * a path of one part is below "library". So "debian" is docker.io/library/debian:latest. "index.docker.io" and
 * "registry-1.docker.io" are other names of docker.io. A parsed reference has one spelling.
 */
#ifndef BRIG_CODEC_REFERENCE_H
#define BRIG_CODEC_REFERENCE_H

#include <brig.h>

#include "base/base.h"

#define DIGEST_TEXT 72u /* "sha256:", 64 hexadecimal digits and the NUL */
#define IMAGE_HOST 262u /* a name of 253 characters, ":65535" and the NUL; an IPv6 address has its brackets */
#define IMAGE_REPOSITORY 256u
#define IMAGE_TAG 129u
#define IMAGE_REF_TEXT (IMAGE_HOST + IMAGE_REPOSITORY + IMAGE_TAG + DIGEST_TEXT)

struct image_ref {
    char host[IMAGE_HOST];             /* "docker.io", "registry.example:5000"; lower case */
    char repository[IMAGE_REPOSITORY]; /* "library/debian" */
    char tag[IMAGE_TAG];               /* "" if there is only a digest; "latest" if there is neither */
    char digest[DIGEST_TEXT];          /* or ""; it counts more than the tag */
};

/* A text that is no reference is BRIG_E_USAGE, with one line that has the text and the rule. */
int image_ref_parse(const char *text, struct image_ref *ret, struct brig_err *err) MUST_CHECK;
void image_ref_text(const struct image_ref *ref, char out[IMAGE_REF_TEXT]);
/* The host and port that the API is asked at. It is ref->host, but docker.io's is registry-1.docker.io. */
const char *image_ref_server(const struct image_ref *ref);
/*
 * Is the image below prefix? A prefix is HOST or HOST/PATH and ends where a part ends: "docker.io/library/deb" has
 * nothing of "docker.io/library/debian" below it.
 */
bool image_ref_below(const struct image_ref *ref, const char *prefix);

/* Is it "sha256:" and 64 lower-case hexadecimal digits? */
bool digest_ok(const char *text);

#endif
