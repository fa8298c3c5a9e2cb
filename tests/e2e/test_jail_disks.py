# SPDX-License-Identifier: Apache-2.0
"""Disks that can be copied and kept, driven as brigd drives the spawner: stores of sandboxes, snapshots, volumes."""

import ctypes
import os
import re
import shutil
import signal
import struct
import subprocess
import unittest

from helpers import PATIENCE, wait_until
from jailkit import IS_ROOT, PLAIN_ID, World, image_stores, needs_root
from test_jail_service import ServiceTest, fields, message

DISK = 30  # src/spawner/spawner_wire.h
MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_DETACH, PTRACE_O_TRACEEXIT, PTRACE_EVENT_EXIT, WAIT_ALL = 0x4206, 17, 0x40, 6, 0x40000000
NOT_FOUND, CONFLICT, LIMIT, UNSUPPORTED, USAGE = 9, 10, 11, 3, 1  # enum brig_code


def name(kind, text):
    return f"{kind}-" + re.sub("[^a-z0-9]", "0", text).ljust(26, "0")[:26]


class DiskTest(ServiceTest):
    """A spawner with a directory of disks."""

    MAX = 0
    PLACE = None  # where the directory of disks is; else below the state directory

    def spawn(self, **env):
        self.disks = f"{self.PLACE or self.w.state}/disks"
        for path in (self.w.state, self.disks):
            if not os.path.exists(path):
                os.mkdir(path, 0o700)
                os.chown(path, self.w.uid, self.w.gid)
        super().spawn(BRIG_DISKS_DIR=self.disks, BRIG_DISKS_MAX=str(self.MAX), **env)

    def tearDown(self):
        self.let_go()
        wait_until("no device holds the pool", lambda: not self.loops())
        shutil.rmtree(self.disks)
        super().tearDown()

    def loops(self):
        """The devices whose file is below our state directory."""
        found = []
        for entry in os.listdir("/sys/block"):
            try:
                with open(f"/sys/block/{entry}/loop/backing_file") as file:
                    path = file.read().strip()
                    if path.startswith(self.disks) or re.fullmatch(r"/(box|vol|snap)-\w+000000", path):  # see name()
                        found.append(entry)
            except OSError:
                continue
        return found

    def order(self, host, *words):
        """What the answer says of a disk: its fields, or (code, message)."""
        host.say("disk", *words)
        line = host.until(f"disk {words[1]} ")[-1].removeprefix(f"disk {words[1]} ")
        if line.startswith("code="):
            code, _, text = line.removeprefix("code=").partition(" ")
            return int(code), text
        return line if line == "removed" else fields(line)

    def listed(self, host):
        """(name: fields of all disks, fields of the place of disks)"""
        host.say("disks", "-")
        lines = host.until("disks ")
        disks = {line.split()[1]: fields(line) for line in lines if line.startswith("a-disk ")}
        space = fields(lines[-1])
        space["kind"] = re.search(r"kind=(.*?) size=", lines[-1])[1]
        return disks, space

    def sh(self, host, key, script, status=0):
        end, output = self.run_in(host, key, "/bin/sh", "-c", script)
        self.assertEqual(end["status"], status << 8, output)
        text, at, piece = "", 0, re.compile(r"output \S+ \d (\d+) ")
        while hit := piece.search(output, at):
            at = hit.end() + int(hit[1])
            text += output[hit.end():at]
        return text.strip()

    def place(self):
        """The place of disks, which only the spawner has open."""
        for entry in os.listdir(f"/proc/{self.spawner.pid}/fd"):
            path = f"/proc/{self.spawner.pid}/fd/{entry}"
            if os.path.isdir(path) and any(one.startswith("golden") for one in os.listdir(path)):
                return path
        return self.disks

    def box(self, host, key, *words, disk=64 * MIB):
        return self.create(host, key, f"disk={disk}", f"boxdisk={name('box', key)}", *words)

    def refused(self, host, key, *words):
        host.say("create", key, *words)
        return host.until(f"ended {key} ", f"refused {key} ")[-1]


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Forks(DiskTest):
    def test_a_snapshot_is_of_one_moment_and_forks_are_apart(self):
        host = self.host()
        disks, space = self.listed(host)
        self.assertEqual((disks, space["kind"]), ({}, ""))
        self.assertEqual(os.listdir(self.disks), [".lock"], "nothing is made before it is needed")
        self.box(host, "a", "require=all")
        self.sh(host, "a", "cd /workspace; echo one >file; mkdir -p d/e; ln -s file link; echo run >/run/x;"
                "mkdir -p /dev/shm/a/b/c; echo t >/tmp/t; echo v >/var/tmp/v; echo h >~/h || echo h >/home/user/h")
        made = self.order(host, "snap", name("snap", "s"), "a")
        self.assertEqual(made["size"], 64 * MIB)
        self.sh(host, "a", "echo two >/workspace/file")
        for key in "bc":
            self.box(host, key, f"from={name('snap', 's')}", "require=all")
            self.assertEqual(self.sh(host, key, "cd /workspace; cat file link /tmp/t /var/tmp/v /home/user/h; ls d;"
                                     "ls /run /dev/shm"), "one\none\nt\nv\nh\ne\n/dev/shm:\n\n/run:")
            self.sh(host, key, f"echo {key} >/workspace/file; echo {key} >/workspace/{key}")
        self.assertEqual(self.sh(host, "a", "cd /workspace; cat file; ls"), "two\nd\nfile\nlink")
        self.assertEqual(self.sh(host, "b", "cd /workspace; cat file; ls"), "b\nb\nd\nfile\nlink")
        disks, space = self.listed(host)
        self.assertEqual(set(disks), {name("snap", "s")} | {name("box", key) for key in "abc"})
        self.assertEqual({disks[name("box", key)]["writers"] for key in "abc"}, {1})
        self.assertEqual(disks[name("snap", "s")]["writers"], 0)
        self.assertIn(space["kind"], ("pool", "shared blocks"))
        for key in "abc":
            self.end(host, key)
        wait_until("the disks of boxes go with them", lambda: set(self.listed(host)[0]) == {name("snap", "s")})
        self.assertEqual(self.order(host, "remove", name("snap", "s")), "removed")
        self.assertEqual(self.listed(host)[0], {})

    def test_the_last_of_several_runs_takes_the_snapshot(self):
        host = self.host()
        snap = name("snap", "s")
        self.box(host, "a")
        self.sh(host, "a", "echo one >/workspace/file")
        for keys in (["b"], ["c", "d", "e"]):
            self.assertIsInstance(self.order(host, "snap", snap, "a", str(len(keys))), dict)
            number = os.stat(f"{self.place()}/{snap}").st_ino
            for key in keys:  # all of them at once
                host.say("create", key, f"disk={64 * MIB}", f"boxdisk={name('box', key)}", f"from={snap}")
            seen = {line.split()[1] for _ in keys for line in [host.until("hello ")[-1]]}
            self.assertEqual(seen, set(keys))
            self.assertEqual([os.stat(f"{self.place()}/{name('box', key)}").st_ino for key in keys].count(number), 1)
            self.assertNotIn(snap, self.listed(host)[0])
            self.assertEqual(self.order(host, "remove", snap), (NOT_FOUND, f"disk {snap}: not there"))
            self.assertIn(f"not-found: disk {snap}: not there",
                          self.refused(host, "x", f"boxdisk={name('box', 'x')}", f"from={snap}"))
            for key in keys:
                self.assertEqual(self.sh(host, key, f"cat /workspace/file; echo {key} >/workspace/file"), "one")
        for key in "abcde":
            self.assertEqual(self.sh(host, key, "cat /workspace/file"), "one" if key == "a" else key)
            self.end(host, key)
        wait_until("nothing is left", lambda: self.listed(host)[0] == {})

    def test_who_takes_it_may_be_ended_before(self):
        host = self.host()
        snap = name("snap", "s")
        self.box(host, "a")
        for _ in range(10):
            self.assertIsInstance(self.order(host, "snap", snap, "a", "1"), dict)
            host.say("create", "b", f"boxdisk={name('box', 'b')}", f"from={snap}")
            host.say("end", "b")
            host.until("ended b ")
            self.assertIn(self.order(host, "remove", snap), ("removed", (NOT_FOUND, f"disk {snap}: not there")))
            wait_until("nothing is left of it", lambda: set(self.listed(host)[0]) == {name("box", "a")})
        self.end(host, "a")

    def test_each_fork_has_ids_of_its_own_and_a_writable_root_is_kept(self):
        host = self.host()
        self.box(host, "a", "root=1", "writable=1")
        self.sh(host, "a", "mkdir -p /opt/x && echo x >/opt/x/y && chown 1000:33 /opt/x/y && chmod 2755 /opt/x/y &&"
                "rm /usr/bin/dpkg && echo host >/etc/new && mkdir -p /usr/share/zzz")
        self.order(host, "snap", name("snap", "s"), "a")
        self.end(host, "a")
        self.box(host, "b", "root=1", "writable=1", f"from={name('snap', 's')}")
        self.assertEqual(self.sh(host, "b", "stat -c %u:%g:%a /opt/x/y; cat /etc/new; test ! -e /usr/bin/dpkg;"
                                 "test -d /usr/share/zzz; echo ok >/opt/x/z; cat /opt/x/z"), "1000:33:2755\nhost\nok")
        self.end(host, "b")

    def test_names_sizes_and_states_are_checked(self):
        host = self.host()
        snap, volume = name("snap", "s"), name("vol", "v")
        for words in (("make", snap, "1048576", "64"), ("make", name("box", "x"), "1048576", "64"),
                      ("make", "vol-../../../../../../../../x", "1048576", "64"), ("make", "pool.xfs", "1048576", "64"),
                      ("remove", name("box", "x")), ("remove", "pool.xfs")):
            code, text = self.order(host, *words)
            self.assertEqual((code, text.endswith("not the name of one")), (USAGE, True), (words, text))
        for size, inodes, words in ((0, 64, "must be given"), (4096, 64, "disk 4096: must be between"),
                                    (MIB, 10, "inodes 10: must be between"), (1 << 60, 64, "must be between"),
                                    (MIB, 100000, "more than disk")):
            code, text = self.order(host, "make", volume, str(size), str(inodes))
            self.assertEqual(code, USAGE)
            self.assertIn(words, text)
        self.assertEqual(self.order(host, "remove", snap), (NOT_FOUND, f"disk {snap}: not there"))
        self.assertIn(f"not-found: disk {snap}: not there",
                      self.refused(host, "x", f"boxdisk={name('box', 'x')}", f"from={snap}"))
        self.assertIn("not the name of one", self.refused(host, "x", "boxdisk=../x"))
        self.assertIn("not the name of one", self.refused(host, "x", f"boxdisk={snap}"))
        self.assertIn("not the name of one that can be copied",
                      self.refused(host, "x", f"boxdisk={name('box', 'x')}", f"from={name('box', 'y')}"))
        self.box(host, "a")
        self.assertIn("conflict: disk", self.refused(host, "x", "disk=1048576", f"boxdisk={name('box', 'a')}"))
        self.order(host, "snap", snap, "a")
        self.assertEqual(self.order(host, "snap", snap, "a"), (CONFLICT, f"disk {snap}: it is there already"))
        self.end(host, "a")

    def test_a_store_without_a_disk_is_copied_with_progress(self):
        host = self.host()
        self.create(host, "a", f"disk={64 * MIB}")
        self.sh(host, "a", "head -c 30000000 /dev/urandom >/workspace/f; sha256sum </workspace/f >/workspace/sum")
        host.say("disk", "snap", name("snap", "s"), "a")
        lines = host.until("disk ")
        self.assertTrue(any(line.startswith("copied ") for line in lines), lines)
        self.box(host, "b", f"from={name('snap', 's')}")
        self.sh(host, "b", "sha256sum </workspace/f | cmp - /workspace/sum")
        self.end(host, "b")
        self.end(host, "a")

    def test_it_stands_still_only_for_the_copy(self):
        host = self.host()
        self.box(host, "a")
        host.say("freeze", "a")
        host.until("frozen a ok")
        self.order(host, "snap", name("snap", "s"), "a")
        self.assertEqual(self.frozen("a"), 1, "who has paused it thaws it")
        host.say("disk", "snap", name("snap", "t"), "a")
        host.say("thaw", "a")
        heard = host.until("frozen a ok")
        if not any(line.startswith("disk ") for line in heard):
            host.until("disk ")
        self.assertEqual(self.sh(host, "a", "echo on"), "on")
        self.order(host, "snap", name("snap", "u"), "a")
        self.assertEqual(self.sh(host, "a", "echo on"), "on")
        self.end(host, "a")

    def frozen(self, _):
        """Whether the only sandbox stands still."""
        with open(f"/proc/{self.inits()[0]}/cgroup") as file:
            for line in file:
                _, what, path = line.strip().split(":", 2)
                for top, leaf, yes in (("/sys/fs/cgroup", "cgroup.freeze", "1"),
                                       ("/sys/fs/cgroup/unified", "cgroup.freeze", "1"),
                                       ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN")):
                    for at in (path, os.path.dirname(path)):
                        try:
                            with open(f"{top}{at}/{leaf}") as state:
                                if state.read().strip() == yes:
                                    return 1
                        except OSError:
                            continue
        return 0


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Volumes(DiskTest):
    VOLUME = name("vol", "v")

    def make(self, host, text="v", size=16 * MIB):
        made = self.order(host, "make", name("vol", text), str(size), "256")
        self.assertEqual((made["size"], made["inodes"]), (size, 256))

    def test_it_is_kept_and_has_a_size_of_its_own(self):
        host = self.host()
        self.make(host)
        for kind, words in (("the program's own", ()), ("root's", ("root=1",))):
            key = kind[0] + "1"
            self.create(host, key, f"vol={self.VOLUME}:/data", f"disk={64 * MIB}", *words)
            text = self.sh(host, key, "cd /data; ls; cat f 2>/dev/null; echo again >>f; stat -c %u:%g:%a f")
            self.assertEqual(text, "1000:1000:644" if kind != "root's" else "f\nagain\n1000:1000:644")
            self.sh(host, key, f"rm -f /data/f; head -c {16 * MIB + 4096} /dev/zero >/data/big", status=1)
            self.sh(host, key, f"rm /data/big; head -c {16 * MIB - 65536} /dev/zero >/data/big && rm /data/big;"
                    "echo again >>/data/f; chown 1000:1000 /data/f")
            self.sh(host, key, "head -c 30000000 /dev/zero >/workspace/big")
            self.end(host, key)
        self.assertEqual(self.order(host, "remove", self.VOLUME), "removed")

    def test_one_writes_or_many_read(self):
        host = self.host()
        self.make(host)
        self.create(host, "a", f"vol={self.VOLUME}:/data")
        self.sh(host, "a", "echo x >/data/x")
        for words in (f"vol={self.VOLUME}:/data", f"vol_ro={self.VOLUME}:/data"):
            self.assertIn(f"ended b policy hit=0 conflict: disk {self.VOLUME}: sandbox ",
                          self.refused(host, "b", words))
        self.assertIn("conflict: ", self.refused(host, "b", f"boxdisk={name('box', 'b')}", f"from={self.VOLUME}"))
        self.assertEqual(self.order(host, "remove", self.VOLUME)[0], CONFLICT)
        self.end(host, "a")
        for key in "bcd":
            self.create(host, key, f"vol_ro={self.VOLUME}:/data")
            self.assertIn("Read-only file system", self.sh(host, key, "cat /data/x; echo y >/data/x 2>&1", status=2))
        self.assertEqual(self.listed(host)[0][self.VOLUME]["readers"], 3)
        self.assertIn("conflict: ", self.refused(host, "e", f"vol={self.VOLUME}:/data"))
        self.assertEqual(self.order(host, "remove", self.VOLUME)[0], CONFLICT)
        self.assertEqual(self.sh(host, "b", "cat /data/x"), "x")
        for key in "bcd":
            self.end(host, key)

    def test_places_of_the_store_may_be_volumes(self):
        host = self.host()
        for text in "wh":
            self.make(host, text)
        self.create(host, "a", f"vol={name('vol', 'w')}:/workspace", f"vol={name('vol', 'h')}:/home/user",
                    "require=all", f"disk={64 * MIB}", f"boxdisk={name('box', 'a')}")
        self.sh(host, "a", "echo w >/workspace/w; echo h >/home/user/h; echo t >/tmp/t")
        self.order(host, "snap", name("snap", "s"), "a")
        self.end(host, "a")
        self.box(host, "b", f"from={name('snap', 's')}", "require=all")
        self.assertEqual(self.sh(host, "b", "ls /workspace /home/user; cat /tmp/t"), "/home/user:\n\n/workspace:\nt")
        self.create(host, "a", f"vol={name('vol', 'w')}:/workspace", f"vol={name('vol', 'h')}:/home/user")
        self.assertEqual(self.sh(host, "a", "cat /workspace/w /home/user/h"), "w\nh")
        for words in (("/etc", "cannot be replaced"), ("/proc/x", "must not be in /proc"), ("relative", "absolute")):
            self.assertIn(words[1], self.refused(host, "x", f"vol={name('vol', 'w')}:{words[0]}"))
        self.assertIn("twice", self.refused(host, "x", f"vol={name('vol', 'w')}:/a", f"vol={name('vol', 'w')}:/b"))
        self.end(host, "a")
        self.end(host, "b")

    def test_what_was_acknowledged_survives_a_killed_spawner(self):
        host = self.host()
        self.make(host)
        self.box(host, "a", f"vol={self.VOLUME}:/data")
        self.sh(host, "a", "cd /data; echo kept >f; mkdir d; python3 -c 'import os; "
                "[os.fsync(os.open(p, os.O_RDONLY)) for p in (\"f\", \"d\", \".\")]'")
        self.order(host, "snap", name("snap", "s"), "a")
        self.spawner.kill()
        self.respawn()
        host = self.host()
        disks, _ = self.listed(host)
        self.assertEqual(set(disks), {self.VOLUME, name("snap", "s")}, "boxes are gone, and so are their disks")
        for key in "bc":  # nobody who reads only can replay a journal
            self.create(host, key, f"vol_ro={self.VOLUME}:/data")
            self.assertEqual(self.sh(host, key, "cat /data/f; ls /data"), "kept\nd\nf")
            self.end(host, key)
        self.box(host, "d", f"from={name('snap', 's')}", f"vol={self.VOLUME}:/data")
        self.assertEqual(self.sh(host, "d", "cat /data/f"), "kept")
        self.end(host, "d")

    def test_what_was_acknowledged_survives_a_power_failure(self):
        host = self.host()
        self.box(host, "a")
        self.sh(host, "a", "cd /workspace; head -c 3000000 /dev/urandom >f; sha256sum <f >sum")
        if self.listed(host)[1]["kind"] != "pool":
            self.skipTest("the host's own file system shares blocks")
        self.order(host, "snap", name("snap", "s"), "a")
        pool, = (entry for entry in os.listdir(self.disks) if entry.startswith("pool"))
        # all that the pool has written by now; its log is in there or lost
        subprocess.run(["cp", "--sparse=always", f"{self.disks}/{pool}", f"{self.disks}/was"], check=True)
        self.spawner.kill()
        self.respawn_with(pool)
        host = self.host()
        self.box(host, "b", f"from={name('snap', 's')}")
        self.assertEqual(self.sh(host, "b", "cd /workspace; sha256sum <f | cmp - sum && echo same"), "same")
        self.end(host, "b")

    def respawn_with(self, pool):
        """Starts the spawner on the copy of the pool, once nobody has the pool itself open."""
        self.let_go()
        wait_until("no device holds the pool", lambda: not self.loops())
        os.replace(f"{self.disks}/was", f"{self.disks}/{pool}")
        self.respawn()


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Room(DiskTest):
    MAX = 1 << 30
    LIMIT_SECONDS = 240

    def sync_place(self):
        """Writes back what is dirty in the place of disks, which only the spawner has open."""
        for entry in os.listdir(f"/proc/{self.spawner.pid}/fd"):
            path = f"/proc/{self.spawner.pid}/fd/{entry}"
            if os.path.isdir(path) and name("box", "a") in os.listdir(path):
                fd = os.open(path, os.O_RDONLY)
                self.assertEqual(LIBC.syncfs(fd), 0)
                os.close(fd)
                return
        self.fail("the place of disks is not open")

    def forks(self, host, size):
        """The keys of as many forks of one snapshot as there is room for, and the refusal of the next."""
        self.box(host, "a", disk=size)
        self.sh(host, "a", "head -c 20000000 /dev/urandom >/workspace/f; sha256sum </workspace/f >/workspace/sum")
        self.order(host, "snap", name("snap", "s"), "a")
        keys = ["a"]
        while len(keys) < 40:
            key = f"b{len(keys)}"
            host.say("create", key, f"boxdisk={name('box', key)}", f"from={name('snap', 's')}")
            line = host.until(f"hello {key} ", f"ended {key} ")[-1]
            if line.startswith("ended"):
                return keys, line
            keys.append(key)
        self.fail("there is always room")

    def test_a_full_place_refuses_and_loses_nothing(self):
        host = self.host()
        keys, refusal = self.forks(host, 128 * MIB)
        self.assertRegex(refusal, r"limit: disks: \d+ bytes are needed for all that they may hold, and \d+ can be had")
        self.assertGreater(len(keys), 3)
        disks, space = self.listed(host)
        self.assertEqual(set(disks), {name("snap", "s")} | {name("box", key) for key in keys}, "nothing half made")
        self.assertLessEqual(space["used"] + space["reserved"], space["size"])
        self.assertEqual(self.order(host, "make", name("vol", "v"), str(256 * MIB), "1024")[0], LIMIT)
        for key in keys:  # each to the last block of its own
            self.sh(host, key, "head -c 200000000 /dev/zero >/workspace/z; sync -d /workspace/z /workspace/f;"
                    "sha256sum </workspace/f | cmp - /workspace/sum")
        for key in keys:
            self.sh(host, key, "sha256sum </workspace/f | cmp - /workspace/sum; dd if=/dev/urandom of=/workspace/f "
                    "bs=1M count=19 conv=notrunc,fsync status=none")
        for key in keys[1:]:
            self.end(host, key)
        wait_until("the room comes back", lambda: isinstance(
            self.order(host, "make", name("vol", "v"), str(256 * MIB), "1024"), dict))
        self.end(host, "a")

    def test_a_snapshot_counts_what_becomes_shared(self):
        host = self.host()
        self.box(host, "a", disk=512 * MIB)
        self.sh(host, "a", "head -c 480000000 /dev/zero >/workspace/f; sync -d /workspace/f")
        code, text = self.order(host, "snap", name("snap", "s"), "a")
        self.assertEqual((code, text.startswith("disks: ")), (LIMIT, True), text)
        self.assertEqual(self.sh(host, "a", "echo on"), "on")
        self.end(host, "a")

    def test_what_was_given_back_is_still_promised(self):
        """A disk whose blocks became holes may write to them again, so nobody else gets that room meanwhile."""
        host = self.host()
        self.assertIsInstance(self.order(host, "make", name("vol", "v"), str(200 * MIB), "1024"), dict)
        self.box(host, "a", disk=512 * MIB)
        self.sh(host, "a", "head -c 450000000 /dev/zero >/workspace/f; sync -d /workspace/f")
        self.sync_place()  # a store has no barriers, and blocks that were not given out yet are nobody's own
        before = self.listed(host)  # all disks are measured for it
        self.assertGreater(before[0][name("box", "a")]["own"], 400 * MIB)
        self.sh(host, "a", "rm /workspace/f; echo >/workspace/g; sync -d /workspace/g")
        subprocess.run(["nsenter", "-t", str(self.inits()[0]), "-m", "fstrim", "/workspace"], check=True)
        code, text = self.order(host, "make", name("vol", "w"), str(256 * MIB), "1024")
        self.assertEqual((code, text.startswith("disks: ")), (LIMIT, True), text)
        self.assertLess(self.listed(host)[1]["used"], before[1]["used"] - 400 * MIB, "the space itself is back")
        self.create(host, "b", f"vol={name('vol', 'v')}:/data", f"disk={16 * MIB}")
        for key, place in (("a", "/workspace"), ("b", "/data")):  # each to the last block of its own
            self.sh(host, key, f"cd {place}; echo >sum; head -c 1000000000 /dev/urandom >z; sync -d z;"
                    "sha256sum <z >sum; sha256sum <z | cmp - sum")
        _, space = self.listed(host)
        self.assertLessEqual(space["used"], space["size"])
        for key in "ab":
            self.end(host, key)


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Growth(DiskTest):
    MAX = 4 << 30

    def test_a_pool_grows_and_is_backed(self):
        host = self.host()
        for i in range(3):
            self.assertIsInstance(self.order(host, "make", name("vol", str(i)), str(900 * MIB), "1024"), dict)
        if self.listed(host)[1]["kind"] != "pool":
            self.skipTest("the host's own file system shares blocks")
        st = os.stat(f"{self.disks}/pool.xfs")
        self.assertGreater(st.st_size, 2700 * MIB)
        self.assertGreaterEqual(st.st_blocks * 512, st.st_size)
        code, _ = self.order(host, "make", name("vol", "more"), str(2000 * MIB), "1024")
        self.assertEqual(code, LIMIT)
        self.assertEqual(len(self.listed(host)[0]), 3)
        self.spawner.kill()
        self.respawn()
        self.assertEqual(len(self.listed(self.host())[0]), 3)


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Back(DiskTest):
    def test_an_empty_pool_goes_and_comes_again(self):
        host = self.host()
        for _ in range(2):
            self.box(host, "a")
            if self.listed(host)[1]["kind"] != "pool":
                self.skipTest("the host's own file system shares blocks")
            self.assertTrue(os.path.exists(f"{self.disks}/pool.xfs"))
            self.end(host, "a")
            wait_until("the pool is gone", lambda: not os.path.exists(f"{self.disks}/pool.xfs"))
            self.assertEqual(self.listed(host)[0], {})


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Faults(DiskTest):
    def slow_snap(self, host, catch=None):
        """The process that copies the store of `a`, which has no disk and stands still for it. It is caught in the
        middle: by default it is stopped. One that was faster is tried again."""
        for _ in range(20):
            host.say("disk", "snap", name("snap", "s"), "a")
            if host.until("copied ", "disk ")[-1].startswith("copied "):
                pids = self.workers()
                caught = [pid for pid in pids if (catch or self.stop)(pid)]
                if pids and caught == pids:
                    return pids
                for pid in caught:
                    os.kill(pid, signal.SIGCONT)
                host.until("disk ")
            self.order(host, "remove", name("snap", "s"))
        self.fail("it is always faster")

    @staticmethod
    def stop(pid):
        def state():
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                    return f.read().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return "gone"

        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        wait_until("it stands still, or was faster", lambda: state() in ("T", "Z", "X", "gone"))
        return state() == "T"

    def workers(self):
        return [pid for pid in self.w.processes("brig-disk") if pid != self.spawner.pid]

    def test_a_sandbox_goes_on_when_the_copying_process_dies(self):
        host = self.host()
        self.create(host, "a", "disk=2147483648")
        for pid in self.slow_snap(host):
            os.kill(pid, signal.SIGKILL)
        line = host.until("disk ")[-1]
        self.assertRegex(line, "code=4 the process that works on disks has died")
        self.assertEqual(self.sh(host, "a", "echo on"), "on")
        self.assertEqual(self.listed(host)[0], {})
        self.assertIsInstance(self.order(host, "snap", name("snap", "s"), "a"), dict)
        self.end(host, "a")

    def test_a_killed_spawner_leaves_nothing_by_half(self):
        host = self.host()
        self.create(host, "a", "disk=2147483648")
        self.slow_snap(host)
        self.spawner.kill()
        wait_until("its processes are gone", lambda: not self.workers() and not self.inits())
        self.respawn()
        host = self.host()
        self.assertEqual(self.listed(host)[0], {})
        self.box(host, "b")
        self.end(host, "b")

    def test_the_copying_process_holds_no_lock_and_nobody_elses_socket(self):
        host = self.host()
        self.create(host, "a", "disk=2147483648")
        for pid in self.slow_snap(host):
            self.addCleanup(self.kill_if_there, pid)
            held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2]
            self.assertEqual([link for link in held if link.endswith("lock")], [])
            self.assertEqual(len([link for link in held if link.startswith("socket:")]), 1, held)
            os.kill(pid, signal.SIGKILL)
        host.until("disk ")
        self.end(host, "a")

    def test_nobody_waits_for_the_end_of_a_process_that_has_said_its_word(self):
        """Its end may take long: here a tracer holds it there."""
        host = self.host()
        self.create(host, "a", "disk=2147483648")
        self.create(host, "b")
        pid, = self.slow_snap(host, lambda pid: LIBC.ptrace(PTRACE_SEIZE, pid, None,
                                                            ctypes.c_void_p(PTRACE_O_TRACEEXIT)) == 0)
        try:
            _, status = os.waitpid(pid, WAIT_ALL)
            self.assertEqual(status >> 8, signal.SIGTRAP | PTRACE_EVENT_EXIT << 8)
            self.assertRegex(host.until("disk ")[-1], "size=")
            self.assertEqual(self.sh(host, "b", "echo on"), "on")
        finally:
            LIBC.ptrace(PTRACE_DETACH, pid, None, None)
        wait_until("it is not left as a zombie", lambda: not os.path.exists(f"/proc/{pid}"))
        for key in "ab":
            self.end(host, key)

    @staticmethod
    def kill_if_there(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def test_killed_between_any_two_answers(self):
        """Several orders are under way when the spawner is killed: what was answered is there and whole, the rest is
        whole or not there, and nothing else is left."""
        host = self.host()
        acknowledged = set()
        for answers in range(4):
            self.box(host, "a")
            self.sh(host, "a", f"echo {answers} >/workspace/x")
            snap, volume = name("snap", f"s{answers}x"), name("vol", f"v{answers}x")
            host.say("disk", "make", volume, str(16 * MIB), "256")
            host.say("disk", "snap", snap, "a")
            host.say("disk", "make", name("vol", f"c{answers}x"), str(16 * MIB), "256")
            for _ in range(answers):
                words = host.until("disk ")[-1].split()
                if "code=" not in words[2]:
                    acknowledged.add(words[1])
            self.spawner.kill()
            wait_until("its processes are gone", lambda: not self.workers() and not self.inits())
            self.respawn()
            host = self.host()
            disks, _ = self.listed(host)
            self.assertLessEqual(acknowledged, set(disks))
            place = self.place()
            self.assertEqual({entry for entry in os.listdir(place) if not entry.startswith(("golden", "."))} -
                             {"pool.xfs"}, set(disks))
            for kept in disks:
                words = [f"vol={kept}:/data"] if kept.startswith("vol") else [f"boxdisk={name('box', 'k')}",
                                                                             f"from={kept}"]
                self.create(host, "k", *words)
                self.sh(host, "k", "test ! -d /data || echo >/data/y" if kept.startswith("vol") else
                        "cat /workspace/x")
                self.end(host, "k")
            for kept in disks:
                wait_until("it can be removed", lambda kept=kept: self.order(host, "remove", kept) == "removed")
            acknowledged = {name("vol", "last")}
            self.assertIsInstance(self.order(host, "make", name("vol", "last"), str(16 * MIB), "256"), dict)

    def test_a_pool_that_is_removed_while_it_is_waited_for(self):
        """As by the last process of a spawner that was killed. Whatever is put into a pool without a name is lost."""
        pool = f"{self.disks}/pool.xfs"
        host = self.host()
        self.assertIsInstance(self.order(host, "make", name("vol", "v"), str(16 * MIB), "256"), dict)
        self.let_go()
        with open(pool, "rb"):  # who has it open keeps it from being mounted
            self.spawn()
            host = self.host()
            host.say("disk", "make", name("vol", "w"), str(16 * MIB), "256")
            wait_until("it is waited for", lambda: any(self.holds(pid, pool) for pid in self.workers()))
            os.unlink(pool)
        self.assertRegex(host.until(f"disk {name('vol', 'w')} ")[-1], "size=")
        self.assertEqual(list(self.listed(host)[0]), [name("vol", "w")])
        self.assertTrue(os.path.exists(pool))

    @staticmethod
    def holds(pid, path):
        try:
            return any(os.readlink(f"/proc/{pid}/fd/{fd}") == path for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return False  # it has ended, or the descriptor was closed

    def test_a_killed_engine_leaves_no_sandbox_standing_still(self):
        host = self.host()
        found = self.create(host, "a", "disk=2147483648")
        pids = self.slow_snap(host)
        self.lose(host)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        host = self.host(found=1)
        host.say("attach", found)
        host.until(f"attached {found} ok")
        host.until(f"hello {found} ")
        self.assertEqual(self.sh(host, found, "echo on"), "on")
        wait_until("nothing is left of the copy", lambda: self.listed(host)[0] == {} and not self.workers())
        self.assertIsInstance(self.order(host, "snap", name("snap", "s"), found), dict)
        self.end(host, found)

    def test_an_end_while_its_disk_is_made(self):
        host = self.host()
        self.box(host, "a")
        self.order(host, "snap", name("snap", "s"), "a")
        for i in range(10):
            host.say("create", f"b{i}", f"boxdisk={name('box', f'b{i}')}", f"from={name('snap', 's')}")
            host.say("end", f"b{i}")
            host.until(f"ended b{i} ")
        wait_until("none of their disks is left",
                   lambda: set(self.listed(host)[0]) == {name("snap", "s"), name("box", "a")})
        self.end(host, "a")

    def test_two_spawners_do_not_share_a_place(self):
        host = self.host()
        self.box(host, "a")
        first, first_hosts, first_socket = self.spawner, self.hosts, self.socket
        self.hosts = []
        self.spawn()
        second = self.host()
        code, text = self.order(second, "make", name("vol", "v"), str(16 * MIB), "256")
        self.assertEqual((code, text), (UNSUPPORTED, f"disks: {self.disks}: another spawner uses these disks"))
        self.let_go()
        self.spawner, self.hosts, self.socket = first, first_hosts, first_socket
        self.assertEqual(self.sh(host, "a", "echo on"), "on")
        self.end(host, "a")


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Hostile(DiskTest):
    """A daemon that was taken over talks to the spawner itself."""

    def answer(self, kind):
        while True:
            data = self.socket.recv(65536)
            if struct.unpack_from("<H", data, 6)[0] == kind:
                return data

    def order_raw(self, op, disk, box=0, size=0, inodes=0):
        self.socket.send(message(DISK, 77) + struct.pack("<IIQQQ32s", op, 0, box, size, inodes, disk))
        data = self.answer(DISK + 2)
        code, _ = struct.unpack_from("<ii", data, 16)
        return code, data[24:280].split(b"\0")[0].decode()

    def test_names_without_an_end_and_other_forms(self):
        for disk in (b"vol-" + b"a" * 28, b"../../etc/passwd", b"pool.xfs", b".lock", b"vol-/" + b"a" * 25, b""):
            code, text = self.order_raw(0, disk, size=16 * MIB, inodes=256)
            self.assertIn(code, (USAGE, 4), text)
        self.assertEqual(self.order_raw(9, b"vol-" + b"a" * 26)[0], 4)
        self.assertEqual(self.order_raw(1, b"snap-" + b"a" * 26, box=12345)[1], "the sandbox is not up")
        self.assertEqual(os.listdir(self.disks).count("passwd"), 0)


@unittest.skipUnless(IS_ROOT, "as root there is a plain user to be")
class Plain(DiskTest):
    """Without root there are no disks, and the reason is said."""

    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)

    def test_the_reason(self):
        host = self.host()
        reason = "disks: only root can have disks that are kept: a plain user can neither use loop devices nor map ids"
        self.assertEqual(self.order(host, "make", name("vol", "v"), str(16 * MIB), "256"), (UNSUPPORTED, reason))
        host.say("disks", "-")
        self.assertEqual(host.until("disks ")[-1], f"disks code={UNSUPPORTED} {reason}")
        self.assertIn(reason, self.refused(host, "a", f"boxdisk={name('box', 'a')}"))


if __name__ == "__main__":
    unittest.main()
