# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The plain cases of tests/hostile on this kernel: what is refused on the newest must be refused here too.  /vm/hostile
# is made of tests/hostile/cases.py by run.py: id, expected causes, expected status of brig, flags, -- and the probe.

# hostile OWNER PATTERN: every case whose id matches.
hostile() {
    echo secret >/root/canary
    chmod 600 /root/canary
    sleep 9999 &
    set -- "$1" "$2" $! -e HOSTILE_SENTINEL=$! -e HOSTILE_CANARY_PATH=/root/canary -e HOSTILE_HOST_NAME=brigvm
    for ns in mnt pid net ipc uts cgroup user; do set -- "$@" -e "HOSTILE_NS_$ns=$(readlink /proc/self/ns/$ns)"; done
    owner=$1 pattern=$2 sentinel=$3
    shift 3
    while read -r id causes status rest; do
        # shellcheck disable=SC2254 # a pattern on purpose
        case $id in $pattern) ;; *) continue ;; esac
        # shellcheck disable=SC2086 # words on purpose
        in_scope hostile "$owner" brig run -o json -e HOSTILE_MODE=root "$@" $rest
        cause=$(grep -oE '"cause":"[a-z-]*"' "$WORK/flat" | cut -d '"' -f 4)
        case ,$causes, in
        *,"$cause",*) ;;
        *) fail "$id: cause $cause, expected $causes; $(head -c 300 "$WORK/err")" ;;
        esac
        [ "$status" = - ] || [ "$status" = "$STATUS" ] || fail "$id: exit status $STATUS, expected $status"
        if grep -q BREACH "$WORK/out"; then
            fail "$id: $(grep -oE 'BREACH[^\\]*' "$WORK/out" | head -n 3 | tr '\n' ' ')"
        fi
        kill -0 "$sentinel" 2>/dev/null || fail "$id: the sentinel outside died"
    done </vm/hostile
    kill "$sentinel"
}

t_hostile_root_files() {
    need_brig
    hostile root 'F*'
}

t_hostile_root_processes() {
    need_brig
    hostile root 'P*'
}

t_hostile_root_resources() {
    need_brig
    hostile root 'R*'
}

t_hostile_root_information() {
    need_brig
    hostile root '[CIN]*'
}

t_hostile_rootless_files() {
    need_brig
    hostile tester:delegated 'F*'
}

t_hostile_rootless_processes() {
    need_brig
    hostile tester:delegated 'P*'
}

t_hostile_rootless_resources() {
    need_brig
    hostile tester:delegated 'R*'
}

t_hostile_rootless_information() {
    need_brig
    hostile tester:delegated '[CIN]*'
}
