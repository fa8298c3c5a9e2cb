#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/lint.sh BUILD: clang-format (nothing is rewritten) and clang-tidy over our C files; fails on the first kind of
# complaint only after both have spoken.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1
bad=0

mapfile -t files < <(find src include tests examples tools -name '*.[ch]' | sort)
echo "clang-format: ${#files[@]} files"
clang-format --dry-run --Werror "${files[@]}" || bad=1

# Only what the build compiles: the flags come from its compilation database.
mapfile -t units < <(/usr/bin/python3 -c '
import json, os, sys
root = os.path.realpath(".") + "/"
seen = set()
for c in json.load(open(sys.argv[1] + "/compile_commands.json")):
    path = os.path.realpath(os.path.join(c["directory"], c["file"]))
    if path.startswith(root) and not path.startswith(os.path.realpath(sys.argv[1]) + "/") and path.endswith(".c"):
        seen.add(path[len(root):])
print("\n".join(sorted(seen)))' "$build")
echo "clang-tidy: ${#units[@]} files"
printf '%s\0' "${units[@]}" | xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p "$build" \
    --extra-arg=-Wno-unknown-warning-option || bad=1
exit $bad
