# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Root on a pure v2 machine: everything is on, and every limit ends a run by its own name.

ALL_LAYERS="user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock
    root_readonly proc fds memory cpu pids disk inodes"

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

# The sandbox's cgroup is below the caller's, so whatever bounds the caller bounds it too.  Often: a helper that brig
# has at work at that moment must not be taken for a stranger.
t_root_stays_below_the_callers_cgroup() {
    need_brig
    for i in 1 2 3 4 5; do stays_below below root; done
}

# Many callers at once beside one shell: none is in another's way.
t_root_many_at_once() {
    need_brig
    # shellcheck disable=SC2016
    in_scope many root sh -c '
        for i in 1 2 3 4 5 6 7 8 9 10 11 12; do brig run --require all -- sh -c "echo $i" & done
        wait'
    [ "$(sort -n "$WORK/out" | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 10 11 12 " ] \
        || fail "output: $(cat "$WORK/out" "$WORK/err")"
}

t_root_engines_of_one_process() {
    need_brig
    in_scope engines root engines
    status_is 0
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
    in_scope oomchild root brig run -o json -m 64m \
        -- sh -c 'dd if=/dev/zero of=/dev/null bs=256M count=1 & wait; sleep 1000'
    status_is 137
    receipt_has '"cause":"oom"'
}

t_root_pids_limit() {
    need_brig
    in_scope pids root brig run -o json --pids 16 \
        -- sh -c 'i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i + 1)); done; echo all'
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
    in_scope cputree root brig run -o json --cpu-time 2 \
        -- sh -c 'while :; do sh -c "i=0; while [ \$i -lt 2000 ]; do i=\$((i+1)); done"; done'
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

# Without --disk the store is memory, half of it: full is ENOSPC, never oom.
t_root_disk_full_in_memory() {
    need_brig
    in_scope diskmem root brig run -o json -m 64m \
        -- sh -c 'dd if=/dev/zero of=/workspace/x bs=1M count=128; dd if=/dev/zero of=/dev/shm/y bs=1M count=128'
    [ "$STATUS" != 0 ] && [ "$STATUS" != 137 ] || fail "exit status $STATUS of a full disk"
    receipt_has '"cause":"disk-limit"'
    receipt_has '"disk":{"on":true,"by":"memory-backed"}'
    grep -q 'No space left' "$WORK/out" || fail "no ENOSPC: $(head -c 2000 "$WORK/out")"
}

t_root_io_limit() {
    need_brig
    in_scope io root brig run -o json --disk 32m --io-write-bps 1m --io-read-bps 1m \
        -- dd if=/dev/zero of=/workspace/x bs=64k count=8
    status_is 0
    grep -qE '"io":\{"on":true,"by":"cgroupv2"' "$WORK/flat" || fail "$(grep -oE '"io":\{[^}]*\}' "$WORK/flat")"
}

# One sum over all writable places, and a program that copes keeps its own status.
t_root_disk_is_one_sum() {
    need_brig
    in_scope disksum root brig run -o json --disk 16m -- sh -c '
        for d in /workspace /home/user /tmp /var/tmp /run /dev/shm; do
            dd if=/dev/zero of=$d/x bs=1M count=6 2>/dev/null
        done
        du -skx /workspace /home/user /tmp /var/tmp /run /dev/shm 2>/dev/null |
            awk "{s+=\$1} END {print \"sum=\" s; exit s > 17000}"'
    status_is 0
    receipt_has 'sum='
    receipt_has '"limits_hit":["disk"'
}

t_root_inodes() {
    need_brig
    in_scope inodes root brig run -o json --inodes 256 \
        -- sh -c 'i=0; while [ $i -lt 2000 ]; do : >/tmp/$i || exit 9; i=$((i + 1)); done'
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
        setsid sh -c "echo >/tmp/1; exec sleep 4321" >/dev/null 2>&1 &
        (setsid sh -c "trap \"\" TERM HUP INT; echo >/tmp/2; sleep 4321; sleep 4321" &) &
        until [ -e /tmp/1 ] && [ -e /tmp/2 ]; do usleep 10000; done
        echo finished'
    status_is 0
    receipt_has '"cause":"exited"'
    receipt_has '"stdout":"finished'
    no_process 'sleep 4321'
}

# Somebody froze it: it dies all the same.
t_root_frozen_dies_at_its_timeout() {
    need_brig
    in_scope frozen root brig run -o json --timeout 5 -- sleep 8765 &
    until_process 'sleep 8765' >/dev/null
    for d in $CG/case-frozen/brig-?????*; do
        [ "${d##*/}" = brig-self ] || echo 1 >"$d/cgroup.freeze" || fail "no cgroup to freeze"
    done
    wait $!
    receipt_has '"cause":"timeout"'
    no_process 'sleep 8765'
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
    in_scope killed root sh -c 'brig run -- sh -c "echo up; sleep 6543" >"$1" & p=$!
        until grep -q up "$1"; do usleep 100000; done; kill -9 $p' sh "$WORK/up"
    no_process 'sleep 6543'
}

t_root_profiles() {
    need_brig
    for p in paranoid compat; do
        in_scope profile root brig run -o json --require all --profile $p \
            -- sh -c 'cat /proc/self/cgroup /proc/meminfo /proc/cmdline'
        receipt_has '"complete":true'
        receipt_has '0::/\n'
        receipt_lacks 'loglevel='
    done
    receipt_has 'MemTotal:524288kB' # compat: the limit, not the machine
}

t_root_terminal() {
    need_brig
    in_scope tty root brig run -t -- sh -c 'tty; test -t 0 && test -t 1 && test -t 2 && echo terminal'
    status_is 0
    grep -q '^/dev/pts/0' "$WORK/out" && grep -q '^terminal' "$WORK/out" || fail "$(cat "$WORK/out" "$WORK/err")"
}

t_root_writable_root() {
    need_brig
    in_scope wroot root brig run -o json --writable-root \
        -- sh -c 'echo x >/usr/new && echo y >/etc/new && echo z >/new && cat /usr/new /etc/new /new'
    status_is 0
    receipt_has '"stdout":"x\ny\nz\n"'
    if [ -e /usr/new ] || [ -e /etc/new ] || [ -e /new ]; then fail "it was written to the host"; fi
}

# A file system where kernel 6.1 can map ids: files belong inside to whom they belong outside, and stay as they are.
on_ext4() {
    truncate -s 64M "$WORK/img"
    mkfs.ext4 -q "$WORK/img" || fail "mkfs.ext4"
    mkdir -p /mnt/ext4
    mount -t ext4 -o loop "$WORK/img" /mnt/ext4 || fail "mount"
    "$@"
    umount /mnt/ext4 || fail "something still holds the file system"
    rmdir /mnt/ext4
}

bind_mapped() {
    mkdir /mnt/ext4/d
    echo theirs >/mnt/ext4/d/f
    chown -R plain:plain /mnt/ext4/d
    in_scope bind root brig run -o json -v /mnt/ext4/d:/data \
        -- sh -c 'stat -c %u:%g /data/f; echo mine >/data/g; cat /data/f'
    status_is 0
    receipt_has '"stdout":"1000:1000\ntheirs\n"'
    [ "$(stat -c %u:%g /mnt/ext4/d/g 2>&1)" = 1001:1001 ] \
        || fail "a new file belongs to $(stat -c %u:%g /mnt/ext4/d/g 2>&1), not to the owner of the directory"
}

rootfs_mapped() {
    mkdir -p /mnt/ext4/r/bin /mnt/ext4/r/usr
    cp /usr/bin/busybox /mnt/ext4/r/bin
    ln -s busybox /mnt/ext4/r/bin/sh
    ln -s busybox /mnt/ext4/r/bin/stat
    ln -s /etc /mnt/ext4/r/proc
    chown 1000:1000 /mnt/ext4/r/usr
    in_scope rootfs root brig run -o json --require all --rootfs /mnt/ext4/r \
        -- sh -c 'stat -c %u:%g /bin/busybox /usr; echo x >/usr/new; stat -f -c %T /proc'
    receipt_has '"stdout":"0:0\n1000:1000\nproc\n"'
    receipt_has '"complete":true'
    [ "$(stat -c %u:%g /mnt/ext4/r/bin/busybox)" = 0:0 ] || fail "the root file system was changed"
    [ ! -e /mnt/ext4/r/usr/new ] || fail "the root file system was written to"
}

t_root_bind_with_mapped_ids() {
    need_brig
    on_ext4 bind_mapped
}

t_root_rootfs_with_mapped_ids() {
    need_brig
    on_ext4 rootfs_mapped
}

t_root_syscall_wall() {
    need_brig
    in_scope wall root brig run -- /usr/bin/syscall_wall default
    status_is 0
    grep -q ' 0 mismatches' "$WORK/out" || fail "$(tail -n 20 "$WORK/out")"
}
