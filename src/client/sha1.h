/* SPDX-License-Identifier: Apache-2.0 */
/* sha1.h: SHA-1 (FIPS 180-4), only for the WebSocket handshake. It protects nothing there. */
#ifndef BRIG_CLIENT_SHA1_H
#define BRIG_CLIENT_SHA1_H

#include "base/base.h"

#define SHA1_SIZE 20u

void sha1(const void *data, size_t len, uint8_t out[SHA1_SIZE]);

#endif
