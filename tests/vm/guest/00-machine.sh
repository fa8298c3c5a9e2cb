# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The machine itself is what the other cases take for granted.  These need no brig.

t_machine_controllers() {
    have=" $(cat $CG/cgroup.controllers) "
    for c in cpu memory pids io cpuset; do
        case $have in *" $c "*) ;; *) fail "no v2 controller $c: $have" ;; esac
    done
    grep -q "$CG cgroup2" /proc/mounts || fail "cgroup2 is not at $CG"
    if grep -q ' cgroup rw' /proc/mounts; then fail "there is a v1 hierarchy too"; fi
}

t_machine_lsm() {
    case $(cat /sys/kernel/security/lsm) in
    *landlock*) ;;
    *) fail "no Landlock: $(cat /sys/kernel/security/lsm)" ;;
    esac
}

t_machine_ext4_on_loop() {
    dd if=/dev/zero of="$WORK/img" bs=1M count=0 seek=32 2>/dev/null
    mkfs.ext4 -q "$WORK/img" || fail "mkfs.ext4"
    mkdir "$WORK/mnt"
    mount -t ext4 -o loop "$WORK/img" "$WORK/mnt" || fail "mount"
    dd if=/dev/zero of="$WORK/mnt/full" bs=1M count=64 2>"$WORK/err"
    grep -q 'No space left' "$WORK/err" || fail "no ENOSPC: $(cat "$WORK/err")"
    umount "$WORK/mnt"
}

t_machine_overlay() {
    mkdir "$WORK/mnt"
    mkdir "$WORK/empty"
    mount -t overlay -o "lowerdir=/usr:$WORK/empty" none "$WORK/mnt" || fail "lower-only overlay on the tmpfs"
    [ -x "$WORK/mnt/bin/busybox" ] || fail "busybox is not there"
    umount "$WORK/mnt"
}

t_machine_pivot_root() {
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount --make-rprivate / && mount -t tmpfs x /mnt && mkdir /mnt/old && pivot_root /mnt /mnt/old' \
        || fail "pivot_root"
}

t_machine_rootless_namespaces() {
    setpriv --reuid=plain --regid=plain --clear-groups -- unshare -U true || fail "no user namespaces for a plain user"
    [ -u /usr/bin/newuidmap ] || fail "newuidmap is not setuid"
    # shellcheck disable=SC2016
    setpriv --reuid=tester --regid=tester --clear-groups -- sh -c '
        unshare -U sleep 100 & p=$!
        while [ "$(readlink /proc/$p/ns/user)" = "$(readlink /proc/self/ns/user)" ]; do usleep 50000; done
        newuidmap $p 0 100000 2 && cat /proc/$p/uid_map; kill $p' >"$WORK/out" 2>&1
    grep -q '100000' "$WORK/out" || fail "newuidmap: $(cat "$WORK/out")"
}

# A case that looks for survivors with a tool that finds nothing would always be content.
t_machine_survivors_are_seen() {
    sleep 7654 &
    p=$!
    [ "$(until_process 'sleep 7654')" = "$p" ] || fail "processes() does not find a process: $(processes 'sleep 7654')"
    kill "$p"
    no_process 'sleep 7654'
    mkdir $CG/case-seen $CG/case-seen/brig-x
    case $(leftovers) in *case-seen/brig-x*) ;; *) fail "leftovers() does not find a cgroup: $(leftovers)" ;; esac
    rmdir $CG/case-seen/brig-x
}

t_machine_cgroup_kill() {
    in_scope machine root sh -c 'exit 3'
    status_is 3
    [ -w $CG/case-machine/cgroup.kill ] || fail "no cgroup.kill"
}
