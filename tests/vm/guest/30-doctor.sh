# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# brig doctor: its exit status and its words agree with what `brig run --require all` then does.

t_doctor_root_is_complete() {
    need_brig
    in_scope doctor root brig doctor
    status_is 0
    for w in landlock seccomp memory cpu pids disk; do
        grep -q "$w" "$WORK/out" || fail "doctor does not speak of $w: $(cat "$WORK/out")"
    done
}

t_doctor_root_has_images() {
    need_brig
    in_scope doctor root brig doctor
    grep -qE '^image_store +on ' "$WORK/out" || fail "$(grep -A 1 '^image_store' "$WORK/out")"
    grep -qE '^io +on .*cgroup v2' "$WORK/out" || fail "$(grep -A 1 '^io ' "$WORK/out")"
}

t_doctor_rootless_delegated_is_complete() {
    need_brig
    in_scope doctor tester:delegated brig doctor
    status_is 0
}

t_doctor_rootless_undelegated_names_the_fix() {
    need_brig
    in_scope doctor tester brig doctor
    [ "$STATUS" != 0 ] || fail "doctor is content without delegation"
    grep -qi 'Delegate=yes' "$WORK/out" \
        || fail "no word of systemd-run --user --scope -p Delegate=yes: $(cat "$WORK/out")"
}

t_doctor_rootless_without_subids_names_the_fix() {
    need_brig
    in_scope doctor plain:delegated brig doctor
    [ "$STATUS" != 0 ] || fail "doctor is content without subordinate ids"
    grep -qiE 'subuid|usermod' "$WORK/out" || fail "no word of subordinate ids: $(cat "$WORK/out")"
}

t_doctor_landlock_abi_2() {
    need_brig
    in_scope doctor root brig doctor
    grep -i landlock "$WORK/out" | grep -q 2 || fail "the ABI is not named: $(grep -i landlock "$WORK/out")"
}

t_doctor_without_loop_devices() {
    need_brig
    # Only in this case's mount namespace: /dev without loop-control or loop devices.
    # shellcheck disable=SC2016
    in_scope doctor root unshare -m sh -c \
        'mount -t tmpfs none /mnt && cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /mnt &&
        mkdir /mnt/shm /mnt/pts && mount --move /mnt /dev && exec brig doctor'
    grep -qi loop "$WORK/out" || fail "no word of the missing loop devices: $(cat "$WORK/out")"
}

# Two ways in which Debian and others forbid user namespaces to plain users.
t_doctor_without_user_namespaces() {
    need_brig
    for s in kernel.unprivileged_userns_clone user.max_user_namespaces; do
        was=$(sysctl -n $s)
        sysctl -q -w $s=0
        in_scope doctor tester:delegated brig doctor
        [ "$STATUS" != 0 ] || fail "doctor is content with $s=0"
        grep -q "$s" "$WORK/out" || fail "no word of $s: $(cat "$WORK/out")"
        in_scope doctor tester:delegated brig run -- /bin/true
        status_is 125
        grep -q 'brig doctor' "$WORK/err" || fail "the refusal does not point to the doctor: $(cat "$WORK/err")"
        sysctl -q -w $s="$was"
    done
}
