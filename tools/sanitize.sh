#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/sanitize.sh DIR SECONDS: builds the unit tests and the fuzzers with ASan and UBSan by clang, runs the unit
# tests, replays the seed corpora, then fuzzes each target for SECONDS.  Only those are built, and brig-init, which has
# no libc and hence no ASan, for the tests that drive it. With ONLY_FUZZ set, only the last part.  FUZZ_SEED makes the
# fuzzers go the same way each time; without it they explore.  New inputs go to DIR/corpus, never into the tree. The
# last line is `N passed, N failed, N skipped`; a fuzz target counts as one.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
dir=$1
seconds=$2
passed=0 failed=0 skipped=0

if [ ! -f "$dir/build.ninja" ]; then
    fuzz=
    if grep -q "option('fuzz'" meson_options.txt; then fuzz=-Dfuzz=true; fi
    CC=clang CXX=clang++ meson setup "$dir" -Db_sanitize=address,undefined -Db_lundef=false -Dtests=true $fuzz \
        --buildtype=debugoptimized >"$dir.log" 2>&1 || { cat "$dir.log"; exit 1; }
    rm -f "$dir.log"
fi
mapfile -t targets < <(meson introspect "$dir" --targets | /usr/bin/python3 -c '
import json, os, sys
top = os.path.realpath(sys.argv[1]) + "/"
for t in json.load(sys.stdin):
    name = os.path.realpath(t["filename"][0])[len(top):]
    if t["type"] == "executable" and name.startswith(("tests/unit/", "tests/fuzz/")):
        print(name)' "$dir")
if [ ${#targets[@]} -eq 0 ]; then
    echo "sanitize: no targets below tests/unit or tests/fuzz"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
if ! ninja -C "$dir" "${targets[@]}" src/brig-init; then
    echo "sanitize: the build failed"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

if [ -z "${ONLY_FUZZ:-}" ]; then
    out=$(/usr/bin/python3 tests/run.py --build "$dir" --no-install --kind unit --kind replay |
        tee /dev/stderr | tail -n 1)
    read -r p _ f _ s _ <<<"${out//,/}"
    if [[ $p$f$s =~ ^[0-9]+$ ]]; then
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    else
        failed=$((failed + 1))
    fi
fi

for fuzzer in "$dir"/tests/fuzz/fuzz_*; do
    [ -f "$fuzzer" ] && [ -x "$fuzzer" ] || continue
    name=${fuzzer##*/fuzz_}
    mkdir -p "$dir/corpus/$name" "$dir/crashes"
    seeds=tests/fuzz/corpus/$name
    [ -d "$seeds" ] || seeds=
    echo "fuzz $name: $seconds s"
    if timeout $((seconds + 60)) "$fuzzer" -max_total_time="$seconds" -seed="${FUZZ_SEED:-0}" -rss_limit_mb=2048 \
        -timeout=10 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$dir/crashes/$name-" "$dir/corpus/$name" ${seeds:+"$seeds"} \
        >"$dir/crashes/$name.log" 2>&1; then
        passed=$((passed + 1))
        grep number_of_executed_units "$dir/crashes/$name.log" || true
    else
        failed=$((failed + 1))
        echo "FAIL fuzz $name (reproduce with the file named below):"
        tail -n 60 "$dir/crashes/$name.log"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
