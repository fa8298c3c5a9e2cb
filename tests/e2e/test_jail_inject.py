# SPDX-License-Identifier: Apache-2.0
"""Set-up that breaks anywhere ends in one line and leaves nothing behind: the Nth system call, or the Nth allocation,
fails.

By default a sample of the calls, another one every day of the month; with BRIG_TEST_REPEAT (make test-long) all of
them.
"""

import os
import shutil
import time
import unittest

from jailkit import BUILD, KNOBS, PLAIN_ID, PREFIX, JailTest, World, image_stores, needs_root

ALL = "BRIG_TEST_REPEAT" in os.environ
ALLOC_HOST = next((p for p in (f"{PREFIX}/tests/e2e/alloc_host", f"{BUILD}/tests/e2e/alloc_host") if os.path.exists(p)),
                  "alloc_host")
DONE = 40  # so many successes in a row: the failure did not fire any more


class Inject(JailTest):
    LIMIT_SECONDS = 600 if ALL else 120

    def one(self, n, program, args, knob):
        process = self.w.popen(program, *args, env=knob(n))
        status, out, err = self.w.finish(process)
        said = err.decode("utf-8", "replace")
        if status == 0:
            self.assertEqual((out, said), (b"ran\n", ""), n)
            return True
        # The program's output is brig's only when it ran; a failure afterwards would lose nothing, but there is none.
        self.assertEqual((status, out), (125, b""), (n, said))
        self.assertEqual(said.count("\n"), 1, (n, said))
        self.assertTrue(said.startswith("brig: "), (n, said))
        return False

    def walk(self, step, attempt):
        """Every (step)th call until none fails any more; how many failed."""
        good, failed = 0, 0
        n = 1 if ALL else 1 + time.gmtime().tm_mday % step
        while good < max(DONE // (1 if ALL else step), 3):
            if attempt(n):
                good += 1
            else:
                good, failed = 0, failed + 1
            self.w.assert_clean()
            n += 1 if ALL else step
        return failed

    def calls(self, *flags, step):
        args = ("run", *flags, "--", "/bin/echo", "ran")
        return self.walk(step, lambda n: self.one(n, KNOBS, args, lambda n: {"BRIG_TEST_FAIL_SYSCALL": str(n)}))


class Root(Inject):
    def test_plain(self):
        self.assertGreater(self.calls(step=4), 25)

    def test_root_inside(self):
        if not image_stores():
            self.skipTest("ext4 image stores (root, loop devices)")
        self.assertGreater(self.calls("--user", "root", "--writable-root", step=9), 10)

    def test_no_room_for_the_filter(self):
        """What seccomp answers when net.core.bpf_jit_limit is used up is a number that libc has no words for."""
        env = {"BRIG_TEST_FAIL_SYSCALL": "1", "BRIG_TEST_FAIL_TEXT": "jail_seccomp_install",
               "BRIG_TEST_FAIL_ERRNO": "524"}
        status, out, err = self.w.finish(self.w.popen(KNOBS, "run", "--", "/bin/true", env=env))
        self.assertEqual((status, out), (125, b""))
        self.assertEqual(err.decode(), "brig: set-up, seccomp: filter: no room for the filter's machine code: "
                                       "net.core.bpf_jit_limit of this host is used up\n")

    def test_image(self):
        if not image_stores():
            self.skipTest("ext4 image stores (root, loop devices)")
        self.calls("--disk", "64m", "--io-write-bps", "100m", step=8)

    def test_everything(self):
        source = self.w.mkdir("source", 0o777)
        self.calls("--writable-root", "--tmpfs", "/scratch:1m", "-v", f"{source}:/data", "-v", f"{source}:/more:ro",
                   "--name", "box", step=10)

    def test_another_root(self):
        top = self.w.mkdir("root")
        os.mkdir(f"{top}/bin")
        for name in ("usr", "lib", "lib64"):
            os.symlink("/nowhere", f"{top}/{name}")
        shutil.copy(f"{os.path.dirname(ALLOC_HOST)}/inmate", f"{top}/bin/inmate")

        def attempt(n):
            process = self.w.popen(KNOBS, "run", "--rootfs", top, "--", "/bin/inmate", "id:",
                                   env={"BRIG_TEST_FAIL_SYSCALL": str(n)})
            status, out, err = self.w.finish(process)
            self.assertIn((status, out), ((0, b"1000 1000 1000 1000\n"), (125, b"")), (n, err))
            return status == 0

        self.walk(12, attempt)

    def test_compat(self):
        self.calls("--profile", "compat", step=16)


@needs_root
class Rootless(Inject):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)

    def test_plain(self):
        self.assertGreater(self.calls(step=8), 5)


class Delegated(Inject):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID, delegated=True)

    @needs_root
    def test_plain(self):
        self.calls(step=12)


class Allocations(Inject):
    def test_each(self):
        good, n, failed = 0, 1, 0
        while good < 8:
            process = self.w.popen(ALLOC_HOST, str(n))
            status, out, err = self.w.finish(process)
            self.assertIn(status, (0, 125), (n, out, err))
            self.assertEqual(err, b"", n)
            if status == 0:
                self.assertEqual(out, b"ok\n", n)
                good += 1
            else:
                self.assertTrue(out.startswith((b"refused: ", b"truncated")), (n, out))
                good, failed = 0, failed + 1
            self.w.assert_clean()
            n += 1
        self.assertGreater(failed, 5)


if __name__ == "__main__":
    unittest.main()
