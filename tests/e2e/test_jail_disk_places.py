# SPDX-License-Identifier: Apache-2.0
"""Places of disks without a pool: a host file system whose files share blocks, and one where all is copied."""

import os
import re
import subprocess
import tempfile
import unittest

import test_jail_disks as disks
from helpers import own_mounts, wait_until
from jailkit import IS_ROOT, image_stores
from test_jail_disks import LIMIT, MIB, name

MANY = 4096  # DISKS_MAX of src/spawner/disk_orders.c


def setUpModule():
    own_mounts()


class Place:
    """What must hold in every place."""

    KIND = ""

    def test_copies_are_of_one_moment_and_apart(self):
        host = self.host()
        self.box(host, "a")
        self.sh(host, "a", "head -c 9000000 /dev/urandom >/workspace/f; sha256sum </workspace/f >/workspace/sum")
        self.order(host, "snap", name("snap", "s"), "a")
        self.assertEqual(self.listed(host)[1]["kind"], self.KIND)
        self.sh(host, "a", "echo other >/workspace/f")
        for key in "bc":
            self.box(host, key, f"from={name('snap', 's')}")
            self.sh(host, key, "sha256sum </workspace/f | cmp - /workspace/sum && echo own >/workspace/f")
        self.assertEqual(self.sh(host, "a", "cat /workspace/f"), "other")
        self.order(host, "make", name("vol", "v"), str(16 * MIB), "256")
        self.create(host, "d", f"vol={name('vol', 'v')}:/data")
        self.sh(host, "d", "echo kept >/data/x; sync -d /data/x")
        self.end(host, "d")
        self.spawner.kill()
        self.respawn()
        host = self.host()
        kept = {name("snap", "s"), name("vol", "v")}
        self.assertEqual(set(self.listed(host)[0]), kept)
        self.box(host, "e", f"from={name('snap', 's')}", f"vol={name('vol', 'v')}:/data")
        self.sh(host, "e", "sha256sum </workspace/f | cmp - /workspace/sum; grep kept /data/x")
        self.end(host, "e")
        for one in kept:
            self.assertEqual(self.order(host, "remove", one), "removed")
        wait_until("every disk is gone", lambda: all(entry.startswith(("golden", "."))
                                                     for entry in os.listdir(self.disks)))

    def test_room_is_bounded(self):
        host = self.host()
        made = 0
        while made < 40:
            answer = self.order(host, "make", name("vol", f"v{made}"), str(256 * MIB), "1024")
            if not isinstance(answer, dict):
                self.assertEqual(answer[0], LIMIT)
                self.assertRegex(answer[1], r"disks: \d+ bytes are needed for all that they may hold, and \d+ can be")
                break
            made += 1
        self.assertIn(made, (2, 3))
        self.assertEqual(len(self.listed(host)[0]), made)


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Shared(Place, disks.DiskTest):
    KIND = "shared blocks"
    MAX = 1 << 30

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.PLACE = tempfile.mkdtemp(prefix="place-", dir="/var/tmp")
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as image:
            image.truncate(3 << 30)
            subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image.name], check=True)
            subprocess.run(["mount", "-o", "loop", image.name, cls.PLACE], check=True)

    @classmethod
    def tearDownClass(cls):
        wait_until("nothing uses it", lambda: subprocess.run(["umount", cls.PLACE], check=False).returncode == 0)
        os.rmdir(cls.PLACE)
        super().tearDownClass()

    def test_how_many_there_may_be(self):
        self.let_go()
        for i in range(MANY - 1):
            path = f"{self.disks}/{name('snap', f'{i:04x}x')}"
            with open(path, "wb") as file:
                file.truncate(16 * MIB)
            os.setxattr(path, "trusted.brig.disk", b"16777216 256")
        self.spawn()
        host = self.host()
        self.assertIsInstance(self.order(host, "make", name("vol", "v"), str(16 * MIB), "256"), dict)
        self.assertEqual(self.order(host, "make", name("vol", "w"), str(16 * MIB), "256"),
                         (LIMIT, f"disks: there are {MANY}, and more than {MANY} cannot be"))
        self.assertEqual(self.order(host, "remove", name("vol", "v")), "removed")
        self.assertIsInstance(self.order(host, "make", name("vol", "w"), str(16 * MIB), "256"), dict)


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Copies(Place, disks.DiskTest):
    """There is no XFS here: its maker cannot be executed."""

    KIND = "copies"
    MAX = 1 << 30

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as empty:
            subprocess.run(["mount", "--bind", empty.name, "/usr/sbin/mkfs.xfs"], check=True)

    @classmethod
    def tearDownClass(cls):
        subprocess.run(["umount", "/usr/sbin/mkfs.xfs"], check=True)
        super().tearDownClass()

    def test_a_copy_says_how_far_it_is(self):
        host = self.host()
        self.box(host, "a")
        self.sh(host, "a", "head -c 40000000 /dev/urandom >/workspace/f")
        host.say("disk", "snap", name("snap", "s"), "a")
        steps = [line for line in host.until("disk ") if line.startswith("copied ")]
        self.assertTrue(steps and all(re.search(r"\d+", line) for line in steps), steps)
        self.end(host, "a")


if __name__ == "__main__":
    unittest.main()
