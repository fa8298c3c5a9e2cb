# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Long-lived sandboxes on a pure v2 machine: pid 1 in a leaf of its own, every process in another, counted and killed
# there.

# services OWNER LINE...: what service_host tells when it is told these lines (blanks are its tabs, _ a blank) is in
# $WORK/out.
services() {
    owner=$1
    shift
    for line in "$@"; do printf '%s\n' "$line" | tr ' _' '\t '; done >"$WORK/lines"
    # shellcheck disable=SC2016
    in_scope services "$owner" sh -c 'exec timeout 60 service_host spawn <"$0"' "$WORK/lines"
    [ "$STATUS" = 0 ] || fail "service_host ended with $STATUS: $(tail -n 20 "$WORK/out") $(head -c 300 "$WORK/err")"
}

told() {
    grep -qE -- "$1" "$WORK/out" || fail "not told $1: $(tail -n 20 "$WORK/out") $(head -c 300 "$WORK/err")"
}

layers_on_ext4() {
    truncate -s 32M "$WORK/ext4"
    mkfs.ext4 -q "$WORK/ext4"
    mkdir -p -m 700 "$BRIG_LAYERS_DIR"
    mount -o loop "$WORK/ext4" "$BRIG_LAYERS_DIR" || fail "no ext4 for the layers"
    chmod 700 "$BRIG_LAYERS_DIR"
}

layers_away() {
    n=0
    until umount "$BRIG_LAYERS_DIR" 2>/dev/null; do # the spawner is on its way out
        n=$((n + 1))
        [ $n -lt 100 ] || fail "the store of layers is still in use"
        usleep 50000
    done
    unset BRIG_LAYERS_DIR
}

t_service_life() {
    need_brig
    services root 'await recovered' 'create a require=all' 'await hello_a' 'run a /bin/sh -c exit_3' 'await exit_a' \
        'stats a' 'await stats_a' \
        'attach a' 'await hello_a' 'freeze a' 'await frozen_a' 'thaw a' 'await frozen_a' 'end a' 'await ended_a'
    told '^up a .* complete=1'
    told '^exit a status=768 leaf=1 oom=0 refused=0 cpu=[0-9]+ '
    told '^stats a cpu=[0-9]+ memory=[0-9]{4,} .* pids=1 '
    told '^ended a cancelled'
}

t_service_from_the_pool() {
    need_brig
    services root 'await recovered' 'pool 1' 'create b' 'await hello_b' 'create a require=all' 'await hello_a' \
        'run a /bin/true' 'await exit_a' \
        'pool 0' 'end a' 'await ended_a' 'end b' 'await ended_b'
    told '^exit a status=0 leaf=1'
}

# A process that the kernel kills for memory, or refuses children, is the one that is counted; the sandbox goes on.
t_service_counts_for_each_process() {
    need_brig
    services root 'await recovered' 'create a memory=64000000 pids=24' 'await hello_a' \
        'run a /bin/dd if=/dev/zero of=/dev/null bs=200M count=1' 'await exit_a' 'run a /bin/true' \
        'await exit_a_status=0' \
        'run a /bin/sh -c i=0;while_[_$i_-lt_60_];do_sleep_7531&_i=$((i+1));done;wait' 'await exit_a' \
        'run a /bin/true' 'await exit_a_status=0' \
        'stats a' 'await stats_a' 'end a' 'await ended_a'
    told '^exit a status=9 leaf=1 oom=[1-9]'
    told '^exit a status=0 leaf=1 oom=0 refused=0'
    told '^exit a .* refused=[1-9]'
    told '^stats a .* oom=[1-9][0-9]* refused=[1-9]'
    told '^ended a cancelled'
    no_process 'sleep 7531'
}

t_service_daemons_die_with_their_process() {
    need_brig
    services root 'await recovered' 'create a' 'await hello_a' \
        'run a /bin/sh -c setsid_sleep_7532&setsid_setsid_sleep_7532&_exit_4' 'await exit_a' \
        'stats a' 'await stats_a' 'end a' 'await ended_a'
    told '^exit a status=1024 leaf=1'
    told '^stats a .* pids=1 '
    no_process 'sleep 7532'
}

# The command has a leaf of its own, and nothing of it is left when its sudo has ended. The layer lies on a file system
# that 6.1 can mount with other ids.
t_service_sudo() {
    need_brig
    low=$(printf '%064d' 0)
    export BRIG_LAYERS_DIR="$WORK/layers"
    layers_on_ext4
    mkdir -p "$BRIG_LAYERS_DIR/$low/bin"
    cp /bin/busybox "$BRIG_LAYERS_DIR/$low/bin"
    sudo=/usr/local/bin/sudo_busybox
    services root 'await recovered' "create a template=$low root=1 sudo=1" 'await hello_a' \
        "run a /bin/busybox sh -c ${sudo}_sh_-c_\"busybox_setsid_busybox_sleep_7534&_busybox_id_-u;_exit_5\"" \
        'await exit_a' "run a /usr/local/bin/sudo -u 33 busybox id -u" 'await exit_a' \
        'run a /usr/local/bin/sudo nothing' 'await exit_a' \
        "run a /bin/busybox sh -c ${sudo}_sleep_7534&_busybox_kill_-9_\$!" 'await exit_a' \
        'run a /bin/busybox sh -c while_busybox_pgrep_-f_[s]leep;do_busybox_usleep_50000;done' 'await exit_a' \
        'end a' 'await ended_a' \
        'create b' 'await hello_b' 'run b /usr/local/bin/sudo id' 'await exit_b' 'end b' 'await ended_b'
    layers_away
    told '^output a 1 [0-9]+ 0'
    told '^exit a status=1280 leaf=1'
    told '^output a 1 [0-9]+ 33'
    told '^exit a status=32512 leaf=1'
    told 'this sandbox does not allow it'
    told '^exit b status=256 leaf=1'
}

# Roots of template layers, on a file system that 6.1 can mount with other ids: the machine's own is a tmpfs.
t_service_root_of_template_layers() {
    need_brig
    low=$(printf '%064d' 0)
    high=$(printf '%064d' 1)
    export BRIG_LAYERS_DIR="$WORK/layers"
    mkdir -p -m 700 "$BRIG_LAYERS_DIR"
    services root 'await recovered' 'stored -' 'await stored'
    told '^stored.*cannot map ids'
    layers_on_ext4
    mkdir -p "$BRIG_LAYERS_DIR/$low/bin" "$BRIG_LAYERS_DIR/$low/d" "$BRIG_LAYERS_DIR/$high/d"
    cp /bin/busybox "$BRIG_LAYERS_DIR/$low/bin"
    touch "$BRIG_LAYERS_DIR/$low/d/gone" "$BRIG_LAYERS_DIR/$low/d/who"
    chown 33:34 "$BRIG_LAYERS_DIR/$low/d/who"
    mknod "$BRIG_LAYERS_DIR/$high/d/gone" c 0 0
    services root 'await recovered' "create a template=$low,$high root=1 writable=1" 'await hello_a' \
        'run a /bin/busybox stat -c %u:%g /d/who' 'await exit_a' \
        'run a /bin/busybox ls /d/gone' 'await exit_a' \
        'run a /bin/busybox rm -r /d' 'await exit_a' 'run a /bin/busybox mkdir /d' 'await exit_a' \
        'run a /bin/busybox stat -c %u:%g:%h /d' 'await exit_a' 'end a' 'await ended_a' \
        "create b template=$low,$high require=all" 'await hello_b' 'run b /bin/busybox ls /d' 'await exit_b' \
        'end b' 'await ended_b' "layer remove $high" 'await layer'
    layers_away
    told '^output a 1 [0-9]+ 33:34'
    told '^exit a status=256'
    told '^output a 1 [0-9]+ 0:0:'
    told '^output b 1 [0-9]+ who'
    told '^layer .* ok$'
}

t_service_of_a_delegated_user() {
    need_brig
    services tester:delegated 'await recovered' 'create a' 'await hello_a' 'run a /bin/true' 'await exit_a' 'freeze a' \
        'await frozen_a' 'end a' 'await ended_a'
    told '^exit a status=0 leaf=1'
    told '^ended a cancelled'
}

t_service_killed_with_its_spawner() {
    need_brig
    services root 'await recovered' 'create a' 'await hello_a' 'run a /bin/sleep 7533' 'await started_a' 'create b' \
        'await hello_b' 'freeze b' 'await frozen_b'
    no_process 'sleep 7533'
}
