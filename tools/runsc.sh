#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/runsc.sh BUILD: builds a current runsc (gVisor) from its Go module into BUILD/providers/runsc, where the tests
# of the provider runsc look for it.  Debian's is of 2022.  It does nothing when the file is there, and says so and
# ends with 0 when there is no Go that is new enough: those tests are then counted as skipped.

set -euo pipefail

version=v0.0.0-20260905035102-160fafc42237
need=1.26.3

[ $# -eq 1 ] || { echo "usage: tools/runsc.sh BUILD" >&2; exit 2; }
into=$(realpath -m "$1")/providers
[ -x "$into/runsc" ] && exit 0
for go in go /usr/local/go/bin/go; do
    has=$("$go" env GOVERSION 2>/dev/null | sed 's/^go//') || continue
    if [ "$(printf '%s\n' "$need" "$has" | sort -V | head -n 1)" = "$need" ]; then
        CGO_ENABLED=0 GOBIN="$into" GOFLAGS=-trimpath "$go" install "gvisor.dev/gvisor/runsc@$version"
        exit 0
    fi
done
echo "tools/runsc.sh: no Go from $need on is installed; the tests of a current runsc are skipped" >&2
