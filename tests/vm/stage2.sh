#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stage 2, pid 1 of the test machine: the mounts of an ordinary system, then every t_* function of /vm/guest/*.sh in a
# shell of its own, then power off.  The host reads only lines that begin with `@@ `.
PATH=/usr/sbin:/usr/bin
[ -f /vm/path ] && PATH=$PATH:$(cat /vm/path)
export PATH HOME=/root LANG=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t securityfs sec /sys/kernel/security
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=0,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup # as systemd does
mount --make-rshared /
chmod 755 /
chmod 666 /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx
ldconfig
hostname -F /etc/hostname
ip link set lo up
mkdir -p /run/user/1000 /run/user/1001 && chown 1000:1000 /run/user/1000 && chown 1001:1001 /run/user/1001
chmod 700 /run/user/1000 /run/user/1001
while read -r m; do insmod "/vm/modules/$m.ko" || echo "@@ not ok modules: insmod $m"; done </vm/module-order
for c in cpu memory pids io cpuset; do echo "+$c" >/sys/fs/cgroup/cgroup.subtree_control; done

echo "@@ note kernel $(uname -r), controllers: $(cat /sys/fs/cgroup/cgroup.subtree_control)"
only=$(cat /vm/only)
for file in /vm/guest/[0-9]*.sh; do
    for t in $(sed -n 's/^t_\([a-z0-9_]*\)() {.*/\1/p' "$file"); do
        # shellcheck disable=SC2254 # a pattern on purpose
        case $t in $only) ;; *) continue ;; esac
        start=$(date +%s)
        out=/tmp/case.out
        # 77: skipped, the last line says why; anything else but 0 failed.  The limit is for a case that hangs: the
        # longest takes a minute in a quiet emulation, and the whole machine has a limit of its own.
        timeout -k 5 600 sh -c '. /vm/guest/lib.sh; . "$1"; "t_$2"; finish' sh "$file" "$t" >$out 2>&1 </dev/null
        status=$?
        took=$(($(date +%s) - start))
        case $status in
        0) echo "@@ ok $t (${took} s)" ;;
        77) echo "@@ skip $t: $(tail -n 1 $out)" ;;
        *)
            echo "---- output of $t, status $status, ${took} s"
            tail -n 40 $out
            echo "----"
            echo "@@ not ok $t: $(grep '^FAIL' $out | head -n 1 | cut -c 1-300) (status $status)"
            ;;
        esac
        rm -f $out
    done
done
echo "@@ done"
sync
poweroff -f
