# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Root on a pure v2 machine: everything is on, and every limit ends a run by its own name.

ALL_LAYERS="user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock root_readonly proc fds
    memory cpu pids disk inodes"

t_root_require_all() {
    need_brig
    in_scope all root brig run -o json --require all -- /bin/true
    status_is 0
    receipt_has '"cause":"exited"'
    receipt_has '"complete":true'
    for l in $ALL_LAYERS; do layer_on "$l"; done
}

t_root_limits_by_cgroup_v2() {
    need_brig
    in_scope v2 root brig run -o json -- /bin/true
    for l in memory cpu pids; do
        grep -qE "\"$l\":\{\"on\":true[^}]*cgroup ?v2" "$WORK/flat" ||
            fail "$l is not held by cgroup v2: $(grep -oE "\"$l\":\{[^}]*\}" "$WORK/flat")"
    done
}

# Kernel 6.1 has Landlock ABI 2: the statement says what the kernel has, not what the newest could.
t_root_landlock_abi_2() {
    need_brig
    in_scope landlock root brig run -o json -- /bin/true
    grep -qE '"landlock":\{"on":true[^}]*"abi":2[,}]' "$WORK/flat" ||
        fail "not ABI 2: $(grep -oE '"landlock":\{[^}]*\}' "$WORK/flat")"
}

# From the root cgroup, as a console or a container without systemd would be.
t_root_from_root_cgroup() {
    need_brig
    brig run -o json --require all -- /bin/true >"$WORK/out" 2>"$WORK/err" </dev/null
    STATUS=$?
    tr -d ' \t\n' <"$WORK/out" >"$WORK/flat"
    status_is 0
    receipt_has '"complete":true'
}

# From a cgroup that a shell shares, as every login is; v2 allows no processes beside controllers there.
t_root_beside_a_shell() {
    need_brig
    # shellcheck disable=SC2016
    in_scope shell root sh -c 'brig run -o json --require all -- /bin/true; s=$?; : still here; exit $s'
    status_is 0
    receipt_has '"complete":true'
}

t_root_passes_output_and_status() {
    need_brig
    in_scope pass root brig run -- sh -c 'echo out; echo err >&2; exit 7'
    status_is 7
    [ "$(cat "$WORK/out")" = out ] || fail "stdout: $(cat "$WORK/out")"
    grep -qx err "$WORK/err" || fail "stderr: $(cat "$WORK/err")"
}

t_root_memory_oom() {
    need_brig
    in_scope oom root brig run -o json -m 64m -- dd if=/dev/zero of=/dev/null bs=256M count=1
    status_is 137
    receipt_has '"cause":"oom"'
    receipt_has '"memory"'
}

# An oom of a child takes the whole run down (memory.oom.group), it does not leave a lame one.
t_root_memory_oom_child() {
    need_brig
    in_scope oomchild root brig run -o json -m 64m -- sh -c 'dd if=/dev/zero of=/dev/null bs=256M count=1 & wait; sleep 1000'
    status_is 137
    receipt_has '"cause":"oom"'
}

t_root_pids_limit() {
    need_brig
    in_scope pids root brig run -o json --pids 16 -- sh -c 'i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i + 1)); done; echo all'
    [ "$STATUS" != 0 ] || fail "64 processes fit into --pids 16"
    receipt_has '"cause":"pids-limit"'
    receipt_lacks '"stdout":"all'
    no_process 'sleep 1000'
}

t_root_cpu_time() {
    need_brig
    in_scope cputime root brig run -o json --cpu-time 2 -- sh -c 'while :; do :; done'
    status_is 137
    receipt_has '"cause":"cpu-limit"'
}

# CPU seconds of the whole run count, not of one process.
t_root_cpu_time_of_children() {
    need_brig
    in_scope cputree root brig run -o json --cpu-time 2 -- sh -c 'while :; do sh -c "i=0; while [ \$i -lt 2000 ]; do i=\$((i+1)); done"; done'
    status_is 137
    receipt_has '"cause":"cpu-limit"'
}

t_root_disk_full() {
    need_brig
    in_scope disk root brig run -o json --disk 16m -- dd if=/dev/zero of=/workspace/x bs=1M count=64
    [ "$STATUS" != 0 ] && [ "$STATUS" != 137 ] || fail "exit status $STATUS of a full disk"
    receipt_has '"cause":"disk-limit"'
    grep -q 'No space left' "$WORK/out" || fail "no ENOSPC: $(head -c 2000 "$WORK/out")"
    layer_on disk
    receipt_lacks 'memory-backed'
}

# One sum over all writable places, and a program that copes keeps its own status.
t_root_disk_is_one_sum() {
    need_brig
    in_scope disksum root brig run -o json --disk 16m -- sh -c '
        for d in /workspace /home/user /tmp /var/tmp /run /dev/shm; do dd if=/dev/zero of=$d/x bs=1M count=6 2>/dev/null; done
        du -skx /workspace /home/user /tmp /var/tmp /run /dev/shm 2>/dev/null | awk "{s+=\$1} END {print \"sum=\" s; exit s > 17000}"'
    status_is 0
    receipt_has 'sum='
    receipt_has '"limits_hit":["disk"'
}

t_root_inodes() {
    need_brig
    in_scope inodes root brig run -o json --inodes 256 -- sh -c 'i=0; while [ $i -lt 2000 ]; do : >/tmp/$i || exit 9; i=$((i + 1)); done'
    [ "$STATUS" != 0 ] || fail "2000 files with --inodes 256"
    layer_on inodes
}

t_root_timeout() {
    need_brig
    in_scope timeout root brig run -o json --timeout 3 -- sh -c 'echo partial; sleep 1234'
    status_is 124
    receipt_has '"cause":"timeout"'
    receipt_has '"stdout":"partial'
    no_process 'sleep 1234'
}

# A program that ignores SIGTERM dies all the same.
t_root_timeout_term_ignored() {
    need_brig
    in_scope deaf root brig run -o json --timeout 3 -- sh -c 'trap "" TERM; while :; do sleep 1; done'
    status_is 124
    receipt_has '"cause":"timeout"'
}

t_root_kills_daemons() {
    need_brig
    in_scope daemons root brig run -o json -- sh -c '
        setsid sleep 4321 >/dev/null 2>&1 &
        (setsid sh -c "trap \"\" TERM HUP INT; sleep 4321; sleep 4321" &) &
        echo finished'
    status_is 0
    receipt_has '"cause":"exited"'
    receipt_has '"stdout":"finished'
    no_process 'sleep 4321'
}

# A grandchild that holds the pipe does not hold the run.
t_root_pipe_holder() {
    need_brig
    in_scope holder root brig run -o json -- sh -c 'sleep 5432 & echo main'
    status_is 0
    receipt_has '"stdout":"main'
    no_process 'sleep 5432'
}

t_root_killed_engine_leaves_nothing() {
    need_brig
    # shellcheck disable=SC2016
    in_scope killed root sh -c 'brig run -- sh -c "echo up; sleep 6543" >"$1" & p=$!; until grep -q up "$1"; do usleep 100000; done; kill -9 $p' sh "$WORK/up"
    no_process 'sleep 6543'
}
