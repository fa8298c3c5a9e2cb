# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# A plain user: with a delegated cgroup and subordinate ids all layers are on; without, the statement says what is missing.

t_rootless_delegated_require_all() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --require all -- /bin/true
    status_is 0
    receipt_has '"complete":true'
    layer_on memory
    layer_on uid_range
}

t_rootless_delegated_oom() {
    need_brig
    in_scope deleg tester:delegated brig run -o json -m 64m --disk 16m -- dd if=/dev/zero of=/dev/null bs=256M count=1
    status_is 137
    receipt_has '"cause":"oom"'
}

t_rootless_delegated_pids() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --pids 16 -- sh -c 'i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i + 1)); done; echo all'
    [ "$STATUS" != 0 ] || fail "64 processes fit into --pids 16"
    receipt_has '"cause":"pids-limit"'
    no_process 'sleep 1000'
}

t_rootless_delegated_timeout_kills_daemons() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --timeout 3 -- sh -c 'setsid sleep 2345 & sleep 2345'
    status_is 124
    receipt_has '"cause":"timeout"'
    no_process 'sleep 2345'
}

# A plain user's store is memory: full is ENOSPC all the same, never oom, and the statement says what it is.
t_rootless_disk_is_memory_backed() {
    need_brig
    in_scope deleg tester:delegated brig run -o json -m 128m --disk 16m -- dd if=/dev/zero of=/workspace/x bs=1M count=64
    [ "$STATUS" != 0 ] && [ "$STATUS" != 137 ] || fail "exit status $STATUS of a full disk"
    receipt_has '"cause":"disk-limit"'
    receipt_has 'memory-backed'
}

t_rootless_disk_above_half_memory_refused() {
    need_brig
    in_scope deleg tester:delegated brig run -m 64m --disk 60m -- /bin/true
    status_is 125
    [ -s "$WORK/err" ] || fail "refused without a word"
}

t_rootless_undelegated_says_so() {
    need_brig
    in_scope undel tester brig run -o json -- /bin/true
    status_is 0
    receipt_has '"complete":false'
}

t_rootless_undelegated_require_all_refused() {
    need_brig
    in_scope undel tester brig run --require all -- sh -c 'echo ran'
    status_is 125
    if grep -q ran "$WORK/out"; then fail "the program ran"; fi
    grep -qE 'memory|cpu|pids' "$WORK/err" || fail "the missing layer is not named: $(cat "$WORK/err")"
}

t_rootless_undelegated_memory_by_rlimit() {
    need_brig
    in_scope undel tester brig run -o json -m 64m --disk 16m -- dd if=/dev/zero of=/dev/null bs=256M count=1
    [ "$STATUS" != 0 ] || fail "256 MiB fit into -m 64m"
}

# No subordinate ids: one id, so pid 1 and the program share it; stated, and refused where it is required.
t_rootless_without_subids_says_so() {
    need_brig
    in_scope nosub plain:delegated brig run -o json -- /bin/true
    status_is 0
    layer_off uid_range
    receipt_has '"complete":false'
}

t_rootless_without_subids_require_uid_range_refused() {
    need_brig
    in_scope nosub plain:delegated brig run --require uid_range -- sh -c 'echo ran'
    status_is 125
    if grep -q ran "$WORK/out"; then fail "the program ran"; fi
    grep -q uid_range "$WORK/err" || fail "the missing layer is not named: $(cat "$WORK/err")"
}

t_rootless_kills_daemons_without_cgroup() {
    need_brig
    in_scope undel tester brig run -o json -- sh -c 'setsid sleep 3456 & echo main'
    status_is 0
    receipt_has '"stdout":"main'
    no_process 'sleep 3456'
}
