/* SPDX-License-Identifier: Apache-2.0 */
/* apt_sources.h: where this host gets its Debian from, for templates that are made from the same mirror. */
#ifndef BRIG_GATE_APT_SOURCES_H
#define BRIG_GATE_APT_SOURCES_H

#include "base/buf.h"

#define APT_SOURCES_KEYRING "/usr/share/keyrings/debian-archive-keyring.gpg"

/* Writes a line "URI SUITE COMPONENT..." for each suite of /etc/apt below root_fd. */
int apt_sources(int root_fd, struct buf *out) MUST_CHECK;

#endif
