# SPDX-License-Identifier: Apache-2.0
"""The wall: every system call number, tried from inside a sandbox, is answered as the table says."""

import os
import pathlib
import re
import unittest

from jailkit import KNOBS, JailTest, needs_root

WALL = pathlib.Path(os.environ.get("BRIG_INSTALL_DIR", "/")) / "tests/hostile/syscall_wall"


class Wall(JailTest):
    LIMIT_SECONDS = 120

    def wall(self, profile, *flags, table=(), **kw):
        done = self.w.run("--timeout", "100", "--profile", profile, "-v", f"{WALL.parent}:/wall:ro", *flags, "--",
                          f"/wall/{WALL.name}", *table, profile, **kw)
        text = done.stdout.decode()
        found = re.search(r"^wall: (\d+) checked, (\d+) mismatches$", text, re.M)
        self.assertTrue(found, (text[-400:], done.stderr))
        return done.returncode, int(found[1]), int(found[2]), text

    def test_every_profile(self):
        for profile in ("default", "paranoid", "compat"):
            with self.subTest(profile):
                status, checked, mismatches, text = self.wall(profile)
                self.assertEqual((status, mismatches), (0, 0), text[-2000:])
                self.assertGreater(checked, 5000)

    @needs_root
    def test_root_inside(self):
        """The same answers to uid 0, but for set-id bits; with a bind that can be written, for them too."""
        shared = self.w.mkdir("shared")
        for flags, table in (((), ("--set-ids",)), (("-v", f"{shared}:/shared"), ())):
            status, checked, mismatches, text = self.wall("default", "--user", "root", "--writable-root", *flags,
                                                          table=table)
            self.assertEqual((status, mismatches), (0, 0), text[-2000:])
            self.assertGreater(checked, 5000)

    def test_it_bites(self):
        status, _, mismatches, _ = self.wall("default", program=KNOBS, env={"BRIG_TEST_OFF": "seccomp"})
        self.assertEqual(status, 1)
        self.assertGreater(mismatches, 1000)


if __name__ == "__main__":
    unittest.main()
