#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/build.sh DIR [-Doption=value...]: configures DIR once, reconfigures it only where an option differs, and builds
# it all. A new DIR has no tests unless asked for, since `make run` installs nothing that only they need; an existing
# one keeps what it has.

set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift

# The library goes where the linker finds it, unless somebody has said where.
prefix=/usr/local
for option in "$@"; do
    case $option in
    -Dprefix=*) prefix=${option#-Dprefix=} ;;
    -Dlibdir=*) libdir=given ;;
    esac
done
if [ -z "${libdir:-}" ] && { [ ! -f "$dir/build.ninja" ] || [[ " $* " == *" -Dprefix="* ]]; }; then
    set -- "-Dlibdir=$(tools/libdir.sh "$prefix")" "$@"
fi

if [ ! -f "$dir/build.ninja" ]; then
    meson setup "$dir" -Dtests=false "$@"
else
    for option in "$@"; do
        name=${option#-D}
        now=$(meson introspect "$dir" --buildoptions | /usr/bin/python3 -c '
import json, sys
for o in json.load(sys.stdin):
    if o["name"] == sys.argv[1]:
        v = o["value"]
        words = {True: "true", False: "false"}
        print(words.get(v, v) if isinstance(v, (bool, str, int)) else ",".join(v))' "${name%%=*}")
        [ "$now" = "${name#*=}" ] || meson configure "$dir" "$option"
    done
fi
exec ninja -C "$dir"
