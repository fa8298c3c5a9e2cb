# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What every case may use.  A case is a function t_NAME in a numbered file; it runs in a shell of its own, as root, and
# fails by `fail TEXT`; several failures are all printed.  Only busybox is here: receipts are compared as text with all
# blanks removed.

CG=/sys/fs/cgroup
WORK=/tmp/case.$$
FAILED=0
mkdir -p "$WORK"
chmod 777 "$WORK"

fail() {
    echo "FAIL: $*"
    FAILED=1
}

skip() {
    echo "$*"
    exit 77
}

# What a case leaves of brig's: cgroups, here or at the top, controllers handed down, loop devices, processes.
leftovers() {
    find "$CG"/case-*/ -mindepth 1 -type d 2>/dev/null
    find "$CG" -maxdepth 1 -name 'brig*'
    cat "$CG"/case-*/cgroup.subtree_control 2>/dev/null | grep .
    losetup -a
    ps -o pid,comm,args | grep -E '^ *[0-9]+ (brig|hostile)'
}

# Called by the driver after the case: leaves nothing behind, and turns failures into a status.  Polled: death is
# asynchronous.
finish() {
    n=0
    while [ -n "$(leftovers)" ]; do
        n=$((n + 1))
        if [ $n -gt 100 ]; then
            fail "left behind: $(leftovers | tr '\n' ' ')"
            break
        fi
        usleep 100000
    done
    find "$CG"/case-*/ -depth -type d -exec rmdir {} \; 2>/dev/null
    rm -rf "$WORK"
    exit "$FAILED"
}

need_brig() {
    command -v brig >/dev/null || skip "no brig in this image (--dummy)"
}

# in_scope NAME OWNER CMD...: CMD alone in a new cgroup, as `systemd-run --scope` would put it there.  OWNER is root,
# tester, plain; tester:delegated and plain:delegated also own the cgroup (Delegate=yes).  brig's own output goes to
# $WORK/out and $WORK/err.
in_scope() {
    scope=$CG/case-$1
    owner=${2%:delegated}
    delegated=${2#"$owner"}
    shift 2
    mkdir -p "$scope"
    if [ -n "$delegated" ]; then
        chown "$owner" "$scope" "$scope/cgroup.procs" "$scope/cgroup.subtree_control" "$scope/cgroup.threads"
    fi
    as=
    [ "$owner" = root ] || as="setpriv --reuid=$owner --regid=$owner --clear-groups --"
    home=/root
    run=/run
    if [ "$owner" != root ]; then
        home=/home/$owner
        run=/run/user/$(id -u "$owner")
    fi
    # The spawner of the run before may still be on its way out: until then nobody may enter.
    # shellcheck disable=SC2086,SC2016
    HOME=$home XDG_RUNTIME_DIR=$run sh -c '
        n=0
        until echo 0 2>/dev/null >"$0/cgroup.procs"; do
            n=$((n + 1))
            [ $n -lt 100 ] || exit 99
            usleep 50000
        done
        exec "$@"' "$scope" $as "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
    STATUS=$?
    tr -d ' \t\n' <"$WORK/out" >"$WORK/flat"
}

# After in_scope ... brig run -o json: what the receipt says.
receipt_has() {
    grep -qF -- "$1" "$WORK/flat" \
        || fail "the receipt lacks $1: $(head -c 3000 "$WORK/flat") stderr: $(head -c 600 "$WORK/err")"
}

receipt_lacks() {
    if grep -qF -- "$1" "$WORK/flat"; then fail "the receipt has $1: $(head -c 3000 "$WORK/flat")"; fi
}

status_is() {
    [ "$STATUS" = "$1" ] || fail "exit status $STATUS, expected $1; stderr: $(head -c 600 "$WORK/err")"
}

# layer_on NAME: that layer of the protection statement is on.
layer_on() {
    grep -qE "\"$1\":\{\"on\":true" "$WORK/flat" \
        || fail "layer $1 is not on: $(grep -oE "\"$1\":\{[^}]*\}" "$WORK/flat")"
}

layer_off() {
    grep -qE "\"$1\":\{\"on\":false" "$WORK/flat" \
        || fail "layer $1 is not off: $(grep -oE "\"$1\":\{[^}]*\}" "$WORK/flat")"
}

# processes TEXT: pid, name and command line of everything alive, in any namespace, that has TEXT in its command line.
processes() {
    ps -o pid,comm,args | grep -F -- "$1" | grep -vE '^ *[0-9]+ grep '
}

# until_process TEXT: waits until a process has exactly this command line, and prints its pid.
until_process() {
    n=0
    until p=$(processes "$1" | grep -E "^ *[0-9]+ [^ ]+ +$1\$"); do
        n=$((n + 1))
        if [ $n -gt 200 ]; then
            fail "never came to life: $1; stderr: $(head -c 600 "$WORK/err")" >&2
            return
        fi
        usleep 100000
    done
    echo "$p" | awk '{ print $1 }'
}

# no_process TEXT: nothing with TEXT in its command line lives.  Polled: death is asynchronous.
no_process() {
    n=0
    while [ -n "$(processes "$1")" ]; do
        n=$((n + 1))
        if [ $n -gt 100 ]; then
            fail "still alive: $(processes "$1" | head -n 3 | tr '\n' ' ')"
            return
        fi
        usleep 100000
    done
}

# stays_below NAME OWNER: a run of OWNER in a scope of that name has its cgroup in that scope, and all of brig is in it.
stays_below() {
    in_scope "$1" "$2" brig run -- /bin/sleep 9753 &
    run=$!
    p=$(until_process '/bin/sleep 9753')
    where=$(cat "/proc/$p/cgroup")
    case $where in 0::/case-"$1"/brig-*) ;; *) fail "the sandbox is in $where" ;; esac
    kill "$p"
    wait $run
}
