# SPDX-License-Identifier: Apache-2.0
"""Every step of what is done with disks fails once for want of space, and is killed once, alone or with the spawner:
nothing is lost, nothing is left, and the next order works."""

import os
import select
import struct
import tempfile
import unittest

import test_jail_disks as disks
from helpers import PATIENCE, wait_until
from jailkit import BUILD, IS_ROOT, PREFIX, image_stores
from test_jail_disks import LIMIT, MIB, NOT_FOUND, name

HOST = 4  # enum brig_code
ENOSPC, KILL_PROCESS, KILL_SPAWNER = 28, -1, -2  # src/jail/inject.c
STEPS_MAX = 200
KEPT = {name("snap", "s"), name("vol", "v")}
NEW_SNAP, NEW_VOLUME, NEW_BOX = name("snap", "new"), name("vol", "new"), name("box", "n")


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class StepTest(disks.DiskTest):
    SPAWNER = next((p for p in (f"{PREFIX}/tests/e2e/spawner_knobs", f"{BUILD}/tests/e2e/spawner_knobs")
                    if os.path.exists(p)), "spawner_knobs")
    LIMIT_SECONDS = 300
    STRIDE = 1
    knob = None

    def spawn(self, **env):
        if not self.knob:
            file = tempfile.NamedTemporaryFile()
            self.addCleanup(file.close)
            self.knob = file.name
        self.set_knob(0, 0)
        super().spawn(BRIG_TEST_FAIL_DISK=self.knob, **env)

    def prepare(self):
        """A sandbox, a snapshot of it and a volume."""
        host = self.host()
        self.box(host, "a")
        self.sh(host, "a", "echo one >/workspace/x; sync -d /workspace/x")
        self.assertIsInstance(self.order(host, "snap", name("snap", "s"), "a"), dict)
        self.assertIsInstance(self.order(host, "make", name("vol", "v"), str(16 * MIB), "256"), dict)
        return host

    def set_knob(self, step, what):
        with open(self.knob, "r+b") as file:
            file.write(struct.pack("3i", step, what, 0))

    def clear_knob(self):
        """Was it used?"""
        with open(self.knob, "rb") as file:
            hit = struct.unpack("3i", file.read())[2] == 1
        self.set_knob(0, 0)
        return hit

    # ---- what is done ----

    def make(self, host):
        return self.order(host, "make", NEW_VOLUME, str(8 * MIB), "128")

    def snap(self, host):
        return self.order(host, "snap", NEW_SNAP, "a")

    def remove(self, host):
        return self.order(host, "remove", NEW_VOLUME)

    def start(self, host, *words):
        """A new sandbox: its fields, or (code, message)."""
        host.say("create", "n", f"disk={64 * MIB}", f"boxdisk={NEW_BOX}", *words)
        line = host.until("hello n ", "ended n ")[-1]
        if line.startswith("hello"):
            return {}
        return LIMIT if " limit: " in line else HOST, line

    # ---- what must hold after it ----

    def names(self):
        return {entry for entry in os.listdir(self.place()) if not entry.startswith(("golden", ".", "pool"))}

    def undo(self, host):
        """Removes what an order made, if it is there."""
        for new in (NEW_SNAP, NEW_VOLUME):
            if new in self.listed(host)[0]:  # a removal that was killed may have done it
                self.assertIn(self.order(host, "remove", new), ("removed", (NOT_FOUND, f"disk {new}: not there")))

    def check(self, host):
        """The sandbox goes on, and there is no disk but those that there were."""
        self.assertEqual(self.sh(host, "a", "cat /workspace/x"), "one")
        wait_until("nothing else is left", lambda: self.names() == KEPT | {name("box", "a")})
        self.assertEqual(set(self.listed(host)[0]), KEPT | {name("box", "a")})

    def walk(self, host, what, do, before):
        """Each step (of a long way every so many) fails in its turn, until there is none."""
        steps, codes = 0, set()
        while steps < STEPS_MAX:
            before(host)
            self.set_knob(steps * self.STRIDE + 1, what)
            answer = do(host)
            if not self.clear_knob():
                break
            steps += 1
            if isinstance(answer, tuple):
                codes.add(answer[0])
            self.finish(host, answer)
        # a full disk is said as such, where the kernel can say so
        self.assertLessEqual({LIMIT} if what == ENOSPC else {HOST}, codes)
        self.assertLessEqual(codes, {LIMIT, HOST})
        self.assertNotIsInstance(answer, tuple)
        self.finish(host, answer)

    def finish(self, host, answer):
        if answer == {}:
            self.assertEqual(self.sh(host, "n", "test ! -e /workspace/x || cat /workspace/x") or "one", "one")
            self.end(host, "n")
        self.undo(host)
        self.check(host)


class Steps(StepTest):
    def each(self, do, before=lambda host: None):
        host = self.prepare()
        for what in (ENOSPC, KILL_PROCESS):
            with self.subTest(what=what):
                self.walk(host, what, do, before)
        self.end(host, "a")

    def test_volume(self):
        self.each(self.make)

    def test_snapshot(self):
        self.each(self.snap)

    def test_removal(self):
        """A removal that fails has removed it or not; the next one has."""
        def again(host):
            if NEW_VOLUME not in self.listed(host)[0]:
                self.make(host)
        self.each(self.remove, again)

    def test_empty_sandbox(self):
        self.each(self.start)

    def test_restored_sandbox(self):
        self.each(lambda host: self.start(host, f"from={name('snap', 's')}"))

    def test_fork(self):
        """The snapshot with a use, and the sandbox that takes it."""
        def fork(host):
            answer = self.order(host, "snap", NEW_SNAP, "a", "1")
            return answer if isinstance(answer, tuple) else self.start(host, f"from={NEW_SNAP}")
        self.each(fork)


class SpawnerKilled(StepTest):
    """What was there is there, and of what was on its way all or nothing."""

    def answered(self, host, word):
        """Has it been said, or is the spawner gone?"""
        if self.spawner.poll() is not None:
            return True
        while b"\n" in host.pending or select.select([host.process.stdout], [], [], 0)[0]:
            try:
                if host.hear().startswith(word):
                    return True
            except AssertionError:  # it ends as soon as its spawner's end of the socket is closed
                self.spawner.wait(PATIENCE)
                return True
        return False

    def each(self, order, word, before=lambda host: None):
        host, steps = self.prepare(), 0
        while steps < STEPS_MAX:
            before(host)
            self.set_knob(steps * self.STRIDE + 1, KILL_SPAWNER)
            host.say(*order)
            wait_until("it is answered, or the spawner is gone", lambda: self.answered(host, word))
            if not self.clear_knob():
                break
            steps += 1
            wait_until("its processes are gone", lambda: not self.w.processes("brig-disk") and not self.inits())
            self.respawn()
            host = self.host()
            found = set(self.listed(host)[0])
            self.assertLessEqual(KEPT, found)
            self.assertLessEqual(found, KEPT | {NEW_SNAP, NEW_VOLUME})
            self.assertEqual(self.names(), found)
            for new in found - KEPT:  # it is whole
                self.box(host, "n", *([f"from={new}"] if new == NEW_SNAP else [f"vol={new}:/data"]))
                self.sh(host, "n", "grep one /workspace/x" if new == NEW_SNAP else "echo x >/data/x")
                self.end(host, "n")
            self.undo(host)
            self.box(host, "a", f"from={name('snap', 's')}")
            self.check(host)
        self.assertGreater(steps, 1)

    def test_volume(self):
        self.each(("disk", "make", NEW_VOLUME, str(8 * MIB), "128"), f"disk {NEW_VOLUME}")

    def test_snapshot(self):
        self.each(("disk", "snap", NEW_SNAP, "a"), f"disk {NEW_SNAP}")

    def test_removal(self):
        self.each(("disk", "remove", NEW_VOLUME), f"disk {NEW_VOLUME}", self.make)

    def test_fork(self):
        self.each(("create", "n", f"disk={64 * MIB}", f"boxdisk={NEW_BOX}", f"from={NEW_SNAP}"), "hello n",
                  lambda host: self.order(host, "snap", NEW_SNAP, "a", "1"))


def memory_box(test, host):
    test.create(host, "m", f"memory={32 * MIB}")
    test.sh(host, "m", "cd /workspace; echo one >x; ln x y; ln -s x z; mkfifo f")


class StepsOfMemory(StepTest):
    """Every file of a store that is memory is copied, which has far more steps."""

    STRIDE = 2

    def check(self, host):
        super().check(host)
        self.assertEqual(self.sh(host, "m", "cat /workspace/x"), "one")

    def test_snapshot(self):
        host = self.prepare()
        memory_box(self, host)
        for what in (ENOSPC, KILL_PROCESS):
            with self.subTest(what=what):
                self.walk(host, what, lambda host: self.order(host, "snap", NEW_SNAP, "m"), lambda host: None)
        for key in "am":
            self.end(host, key)


class SpawnerKilledOfMemory(SpawnerKilled):
    STRIDE = 11

    def test_snapshot(self):
        self.each(("disk", "snap", NEW_SNAP, "m"), f"disk {NEW_SNAP}", lambda host: memory_box(self, host))

    test_volume = test_removal = test_fork = None


if __name__ == "__main__":
    unittest.main()
