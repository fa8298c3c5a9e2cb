# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Last: what the kernel thought of it.

t_kernel_log_is_clean() {
    dmesg | grep -E 'WARNING:|BUG:|Oops|general protection fault[,:]|EXT4-fs error|I/O error' >"$WORK/log"
    [ ! -s "$WORK/log" ] || fail "$(head -n 20 "$WORK/log")"
}
