# SPDX-License-Identifier: Apache-2.0
"""Warm starts of the provider `vm`: machines that begin as copies of a saved one, what they must not have in common,
and snapshots that are stale, broken or too many."""

import os
import pathlib
import time

from vmkit import VmTest, wait_until

# What a copy that was not told apart would have in common with its sibling.
RANDOM = """
import ctypes, os, random, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_void_p
print(os.urandom(16).hex())
print(random.random())
print(uuid.uuid4())
print(hash("a"))
print(ctypes.string_at(libc.getauxval(25), 16).hex())
"""


class Warm(VmTest):
    SNAPSHOTS = 1

    def setUp(self):
        super().setUp()
        self.state = pathlib.Path(self.d.dir) / "state/service/vm"

    def saved(self):
        """The numbers of the snapshots that are whole."""
        return sorted(int(p.name) for p in (self.state / "snapshots").iterdir() if p.stat().st_mode & 0o777 == 0o444)

    def is_restored(self, box):
        return b"\0-incoming\0" in pathlib.Path(f"/proc/{self.qemu(box)}/cmdline").read_bytes()

    def cold(self, **members):
        """A machine that boots, and the snapshot that follows from it."""
        before = self.saved()
        box = self.machine(**members)
        self.assertFalse(self.is_restored(box))
        wait_until("its shape is saved", lambda: self.saved() not in ([], before))
        return box

    def test_copies(self):
        first = self.cold()
        listed = self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]
        self.assertEqual([s["id"] for s in listed], [first])
        wait_until("the machine that was saved is gone", lambda: len(list(self.state.glob("boxes/*"))) == 1)
        copies = [self.machine(require=["all", "own_kernel"]) for _ in range(2)]
        self.assertEqual([self.is_restored(box) for box in copies], [True, True])
        self.no_number_is_shared(copies)
        self.names_and_time(copies)
        self.limits_are_their_own()
        self.d.ask("DELETE", f"/v1/sandboxes/{first}")
        for box in copies:
            self.d.ask("DELETE", f"/v1/sandboxes/{box}")
        self.stale_broken_and_too_many()

    def no_number_is_shared(self, copies):
        seen = []
        for box in copies:
            got = self.d.run(box, "python3", "-c", RANDOM)
            seen += got["stdout"].split()
            self.assertEqual(len(got["stdout"].split()), 5, got)
        self.assertEqual(len(set(seen)), 10, seen)

    def names_and_time(self, copies):
        for box in copies:
            said = self.d.sh(box, "hostname; cat /etc/hostname; date +%s")["stdout"].split()
            self.assertEqual(said[:2], [box, box])
            self.assertLess(abs(int(said[2]) - time.time()), 60)  # the saved machine began long before that
        ids = [self.d.sh(box, "cat /etc/machine-id")["stdout"] for box in copies]
        self.assertEqual((len(set(ids)), [len(text) for text in ids]), (2, [33, 33]))

    def limits_are_their_own(self):
        box = self.machine(writable_root=True, limits={"disk": "16m", "pids": 40})
        self.assertTrue(self.is_restored(box))
        got = self.d.sh(box, "df -B1 --output=size /workspace | tail -1; touch /usr/x")
        self.assertEqual(got["stdout"].split(), [str(16 << 20)])
        self.assertIn("Permission denied", got["stderr"])  # and not "Read-only file system"
        self.d.ask("DELETE", f"/v1/sandboxes/{box}")

    def stale_broken_and_too_many(self):
        os.utime(self.state / "boot/initrd")
        self.d.ask("DELETE", f"/v1/sandboxes/{self.cold()}")
        self.assertEqual(self.saved(), [2])
        with open(self.state / "snapshots/2", "r+b") as file:
            file.truncate(1 << 20)
        answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "vm"}, timeout=300)
        self.assertGreaterEqual(answer.status, 500, answer)
        self.assertIn("QEMU ended with status", answer.json["error"]["message"])
        self.d.ask("DELETE", f"/v1/sandboxes/{self.cold(limits={'memory': '128m'})}")
        self.assertEqual(self.saved(), [3])
        box = self.machine(limits={"memory": "128m"})
        self.assertTrue(self.is_restored(box))
        self.assertEqual(self.d.run(box, "echo", "fine")["stdout"], "fine\n")
        self.a_kernel_that_panics()

    def a_kernel_that_panics(self):
        """Without an initramfs there is nothing that could become pid 1."""
        (self.state / "boot/initrd").write_bytes(b"no archive")
        answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "vm"}, timeout=300)
        self.assertGreaterEqual(answer.status, 500, answer)
        self.assertIn("QEMU ended with status 0", answer.json["error"]["message"])
        self.assertIn("panic", answer.json["error"]["message"])
