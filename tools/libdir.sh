#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/libdir.sh PREFIX: where below PREFIX the library goes, so that the dynamic linker finds it: the first of the
# usual directories that ldconfig searches. Meson's own choice is lib64 wherever /usr/lib64 is a directory and dpkg-dev
# is not installed, and Debian's linker does not search /usr/local/lib64. Where it searches nothing below PREFIX: lib.

prefix=${1%/}
# Each is listed by one of its names only: /lib or /usr/lib.
searched=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -v -N 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p' | xargs realpath -m)
for name in "lib/$(gcc -print-multiarch 2>/dev/null)" lib64 lib; do
    if [ "$name" != lib/ ] && grep -qxF -- "$(realpath -m "$prefix/$name")" <<<"$searched"; then
        echo "$name"
        exit 0
    fi
done
echo lib
