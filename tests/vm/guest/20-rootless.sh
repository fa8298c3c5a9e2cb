# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# A plain user: with a delegated cgroup and subordinate ids all layers are on; without, the statement says what is
# missing.

t_rootless_delegated_require_all() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --require all -- /bin/true
    status_is 0
    receipt_has '"complete":true'
    layer_on memory
    layer_on uid_range
}

t_rootless_landlock_abi_2() {
    need_brig
    in_scope deleg tester:delegated brig run -o json -- /bin/true
    grep -qE '"landlock":\{"on":true[^}]*"abi":2[,}]' "$WORK/flat" ||
        fail "not ABI 2: $(grep -oE '"landlock":\{[^}]*\}' "$WORK/flat")"
}

t_rootless_stays_below_the_callers_cgroup() {
    need_brig
    stays_below deleg tester:delegated
}

t_rootless_engines_of_one_process() {
    need_brig
    in_scope engines tester:delegated engines
    status_is 0
}

# Memory and pids were given, cpu was not.
t_rootless_partly_delegated_says_so() {
    need_brig
    mkdir $CG/case-part
    echo '+memory +pids' >$CG/case-part/cgroup.subtree_control
    in_scope part/inner tester:delegated brig run -o json -- /bin/true
    status_is 0
    layer_on memory
    layer_on pids
    layer_off cpu
    in_scope part/inner tester:delegated brig run --require all -- sh -c 'echo ran'
    status_is 125
    grep -q cpu "$WORK/err" || fail "the missing layer is not named: $(cat "$WORK/err")"
    n=0
    until rmdir $CG/case-part/inner 2>/dev/null || [ $n -gt 100 ]; do n=$((n + 1)) && usleep 100000; done
    echo '-memory -pids' >$CG/case-part/cgroup.subtree_control
}

t_rootless_delegated_oom() {
    need_brig
    in_scope deleg tester:delegated brig run -o json -m 64m --disk 16m -- dd if=/dev/zero of=/dev/null bs=256M count=1
    status_is 137
    receipt_has '"cause":"oom"'
}

t_rootless_delegated_pids() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --pids 16 \
        -- sh -c 'i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i + 1)); done; echo all'
    [ "$STATUS" != 0 ] || fail "64 processes fit into --pids 16"
    receipt_has '"cause":"pids-limit"'
    no_process 'sleep 1000'
}

t_rootless_delegated_timeout_kills_daemons() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --timeout 5 \
        -- sh -c 'setsid sh -c "echo up; exec sleep 2345" & sleep 2345'
    status_is 124
    receipt_has '"cause":"timeout"'
    receipt_has '"stdout":"up'
    no_process 'sleep 2345'
}

t_rootless_delegated_cpu_time() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --cpu-time 2 -- sh -c 'while :; do :; done'
    status_is 137
    receipt_has '"cause":"cpu-limit"'
}

# Where nothing counts CPU time, a limit of it is refused, not forgotten.
t_rootless_undelegated_cpu_time_refused() {
    need_brig
    in_scope undel tester brig run --cpu-time 2 -- sh -c 'echo ran'
    status_is 125
    if grep -q ran "$WORK/out"; then fail "the program ran"; fi
    grep -q cpu_time "$WORK/err" || fail "the limit is not named: $(cat "$WORK/err")"
}

# A plain user's store is memory: full is ENOSPC all the same, never oom, and the statement says what it is.
t_rootless_disk_is_memory_backed() {
    need_brig
    in_scope deleg tester:delegated brig run -o json -m 128m --disk 16m \
        -- dd if=/dev/zero of=/workspace/x bs=1M count=64
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
    layer_off memory
    receipt_has '"by":"RLIMIT_AS"'
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
    in_scope undel tester brig run -o json \
        -- sh -c 'setsid sh -c "echo >/tmp/1; exec sleep 3456" & until [ -e /tmp/1 ]; do usleep 10000; done; echo main'
    status_is 0
    receipt_has '"stdout":"main'
    no_process 'sleep 3456'
}

t_rootless_profiles() {
    need_brig
    for p in paranoid compat; do
        in_scope deleg tester:delegated brig run -o json --require all --profile $p \
            -- sh -c 'cat /proc/self/cgroup /proc/meminfo /proc/cmdline'
        receipt_has '"complete":true'
        receipt_has '0::/\n'
        receipt_lacks 'loglevel='
    done
}

# tmpfs of kernel 6.1 has no user.* attributes, which an overlay of a plain user would like to have.
t_rootless_writable_root() {
    need_brig
    in_scope deleg tester:delegated brig run -o json --writable-root \
        -- sh -c 'echo x >/usr/new && echo y >/etc/new && echo z >/new && cat /usr/new /etc/new /new'
    status_is 0
    receipt_has '"stdout":"x\ny\nz\n"'
}

t_rootless_bind() {
    need_brig
    mkdir "$WORK/d"
    echo theirs >"$WORK/d/f"
    chown -R tester:tester "$WORK/d"
    in_scope deleg tester:delegated brig run -o json -v "$WORK/d:/data" -- sh -c 'cat /data/f; echo mine >/data/g'
    status_is 0
    receipt_has '"stdout":"theirs\n"'
    [ "$(stat -c %u:%g "$WORK/d/g" 2>&1)" = 1000:1000 ] \
        || fail "a new file belongs to $(stat -c %u:%g "$WORK/d/g" 2>&1)"
    in_scope deleg tester:delegated brig run -o json -v "$WORK/d:/data:ro" -- sh -c 'echo more >/data/h'
    [ "$STATUS" != 0 ] && [ ! -e "$WORK/d/h" ] || fail "a read-only bind was written to"
}
