# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What every case may use.  A case is a function t_NAME in a numbered file; it runs in a shell of its own, as root, and fails by
# `fail TEXT`; several failures are all printed.  Only busybox is here: receipts are compared as text with all blanks removed.

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

# Called by the driver after the case: leaves nothing behind, and turns failures into a status.
finish() {
    for d in "$CG"/case-*/; do
        [ -d "$d" ] || continue
        n=0
        while [ -n "$(find "$d" -mindepth 1 -type d)" ]; do
            n=$((n + 1))
            if [ $n -gt 100 ]; then
                fail "left behind: $(find "$d" -mindepth 1 -type d | tr '\n' ' ')"
                break
            fi
            usleep 100000
        done
        find "$d" -depth -type d -exec rmdir {} \; 2>/dev/null
    done
    rm -rf "$WORK"
    exit "$FAILED"
}

need_brig() {
    command -v brig >/dev/null || skip "no brig in this image (--dummy)"
}

# in_scope NAME OWNER CMD...: CMD alone in a new cgroup, as `systemd-run --scope` would put it there.  OWNER is root, tester, plain;
# tester:delegated and plain:delegated also own the cgroup (Delegate=yes).  brig's own output goes to $WORK/out and $WORK/err.
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
    # shellcheck disable=SC2086,SC2016
    HOME=$home XDG_RUNTIME_DIR=$run sh -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' "$scope" \
        $as "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
    STATUS=$?
    tr -d ' \t\n' <"$WORK/out" >"$WORK/flat"
}

# After in_scope ... brig run -o json: what the receipt says.
receipt_has() {
    grep -qF -- "$1" "$WORK/flat" || fail "the receipt lacks $1: $(head -c 3000 "$WORK/flat") stderr: $(head -c 600 "$WORK/err")"
}

receipt_lacks() {
    if grep -qF -- "$1" "$WORK/flat"; then fail "the receipt has $1: $(head -c 3000 "$WORK/flat")"; fi
}

status_is() {
    [ "$STATUS" = "$1" ] || fail "exit status $STATUS, expected $1; stderr: $(head -c 600 "$WORK/err")"
}

# layer_on NAME: that layer of the protection statement is on.
layer_on() {
    grep -qE "\"$1\":\{\"on\":true" "$WORK/flat" || fail "layer $1 is not on: $(grep -oE "\"$1\":\{[^}]*\}" "$WORK/flat")"
}

layer_off() {
    grep -qE "\"$1\":\{\"on\":false" "$WORK/flat" || fail "layer $1 is not off: $(grep -oE "\"$1\":\{[^}]*\}" "$WORK/flat")"
}

# no_process TEXT: nothing with TEXT in its command line lives, in any namespace.  Polled: death is asynchronous.
no_process() {
    n=0
    while pgrep -f "$1" >/dev/null; do
        n=$((n + 1))
        if [ $n -gt 100 ]; then
            fail "still alive: $(pgrep -f -l "$1" | head -n 3 | tr '\n' ' ')"
            return
        fi
        usleep 100000
    done
}
