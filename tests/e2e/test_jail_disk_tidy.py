# SPDX-License-Identifier: Apache-2.0
"""Disks in many extents: they are written anew, and what is read from them stays the same."""

import fcntl
import os
import signal
import struct
import unittest

import test_jail_disks as disks
from helpers import wait_until
from jailkit import IS_ROOT, image_stores
from test_jail_disks import MIB, name

FS_IOC_FSGETXATTR = 0x801C581F
# Writes to a thousand blocks of f in an order that a number chooses, and says what the file should hold.
SCATTER = b"""
import hashlib, os, random, sys
random.seed(int(sys.argv[1]))
data = bytearray(open("f", "rb").read())
fd = os.open("f", os.O_WRONLY)
for at in random.sample(range(0, len(data), 8192), 1000):
    data[at:at + 4096] = os.pwrite(fd, piece := os.urandom(4096), at) and piece
os.fsync(fd)
print(hashlib.sha256(data).hexdigest())
"""


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Tidy(disks.DiskTest):
    """A copy takes time for each extent, so a disk with too many is written anew when nobody wants anything else."""

    LIMIT_SECONDS = 300

    def scatter(self, host, key, seed):
        return self.sh(host, key, f"cd /workspace; python3 -c 'exec(bytes.fromhex(\"{SCATTER.hex()}\"))' {seed}")

    def hash_of(self, host, key):
        return self.sh(host, key, "sha256sum </workspace/f").split()[0]

    def extents(self, disk):
        fd = os.open(f"{self.place()}/{disk}", os.O_RDONLY)
        try:
            return struct.unpack("5I8x", fcntl.ioctl(fd, FS_IOC_FSGETXATTR, bytes(28)))[2]
        finally:
            os.close(fd)

    def scattered(self, host):
        """A sandbox `a` whose disk is in many extents: it shared its blocks with a snapshot, and was written to."""
        self.box(host, "a")
        self.sh(host, "a", "head -c 33554432 /dev/urandom >/workspace/f; sync -d /workspace/f")
        self.order(host, "snap", name("snap", "s"), "a")
        text = self.scatter(host, "a", 1)
        self.order(host, "snap", name("snap", "t"), "a")
        self.assertGreater(self.extents(name("snap", "t")), 1000)
        return text

    def test_generations_stay_cheap(self):
        host = self.host()
        text = self.scattered(host)
        for disk in (name("box", "a"), name("snap", "t")):
            wait_until("it has few extents", lambda disk=disk: self.extents(disk) < 300)
        self.assertEqual(self.hash_of(host, "a"), text)
        key = "a"
        for number in range(4):
            snap, new = name("snap", f"g{number}x"), f"b{number}"
            text = self.scatter(host, key, number + 2)
            self.order(host, "snap", snap, key, "1")
            self.box(host, new, f"from={snap}")
            wait_until("the new one has few extents", lambda new=new: self.extents(name("box", new)) < 300)
            self.assertEqual(self.hash_of(host, new), text)
            key = new
        for key in ("a", "b0", "b1", "b2", "b3"):
            self.end(host, key)
        self.box(host, "z", f"from={name('snap', 't')}")
        self.sh(host, "z", "cd /workspace; sha256sum <f")
        self.end(host, "z")

    def test_a_pool_grows_before_the_next_fork(self):
        """Growing takes long, so it is done when nobody waits: a fork like the last one finds room."""
        host = self.host()
        self.box(host, "a", disk=1024 * MIB)
        if self.listed(host)[1]["kind"] != "pool":
            self.skipTest("the host's own file system shares blocks")
        for number in range(1, 5):
            self.order(host, "snap", snap := name("snap", f"g{number}x"), "a", "1")
            self.box(host, f"b{number}", f"from={snap}", disk=1024 * MIB)
            # Nobody orders anything. There are number + 1 disks, all of whose blocks are promised, and one may come.
            wait_until("the next one has room",
                       lambda n=number: os.stat(f"{self.disks}/pool.xfs").st_size > (n + 2) * 1024 * MIB)
        for key in ("a", *(f"b{number}" for number in range(1, 5))):
            self.end(host, key)

    def test_written_to_and_interrupted_meanwhile(self):
        """The sandbox writes, orders come, and the process is killed: all that is read is what was written."""
        host = self.host()
        self.scattered(host)
        for number in range(8):
            text = self.scatter(host, "a", number + 2)
            for pid in self.w.processes("brig-disk"):
                if pid != self.spawner.pid:
                    os.kill(pid, signal.SIGKILL)
            self.assertEqual(self.hash_of(host, "a"), text)
            self.assertIsInstance(self.order(host, "snap", name("snap", f"n{number}x"), "a"), dict)
            self.box(host, "b", f"from={name('snap', f'n{number}x')}")
            self.assertEqual(self.hash_of(host, "b"), text)
            self.end(host, "b")
        self.end(host, "a")
        kept = [name("snap", "s"), name("snap", "t")] + [name("snap", f"n{number}x") for number in range(8)]
        for snap in kept:
            self.assertEqual(self.order(host, "remove", snap), "removed")
        wait_until("nothing is left", lambda: self.listed(host)[0] == {})


if __name__ == "__main__":
    unittest.main()
