#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stage 1, pid 1 on the initramfs.  The kernel refuses pivot_root(2) as long as the root is the initramfs itself, and
# brig's spawner pivots; so everything is copied to a tmpfs and that becomes the root.  switch_root frees the first
# copy.
PATH=/usr/sbin:/usr/bin
export PATH
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t tmpfs -o mode=755,size=70% root /mnt || exec sh
for d in /*; do
    case $d in
    /dev | /proc | /sys | /mnt | /init) ;;
    *) cp -a "$d" /mnt/ ;;
    esac
done
mkdir /mnt/dev /mnt/proc /mnt/sys /mnt/mnt
umount -l /dev # our own console is open there
mount -t devtmpfs dev /mnt/dev
exec switch_root /mnt /vm/stage2.sh </mnt/dev/console >/mnt/dev/console 2>&1
