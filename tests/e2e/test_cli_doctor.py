# SPDX-License-Identifier: Apache-2.0
"""`brig doctor` and `brig version`: their words, their JSON and their status agree with each other and with `brig run`."""

import json
import unittest

from helpers import BrigTest, brig

LAYERS = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock root_readonly proc fds memory "
          "cpu pids disk inodes").split()


class Doctor(BrigTest):
    @classmethod
    def setUpClass(cls):
        cls.text = brig("doctor")
        cls.json = brig("doctor", "-o", "json")
        cls.found = json.loads(cls.json.stdout)

    def test_status_says_what_is_possible(self):
        wanted = 0 if self.found["complete"] else 1 if self.found["usable"] else 2
        self.assertEqual((self.json.returncode, self.text.returncode), (wanted, wanted))

    def test_every_layer_has_a_row(self):
        rows = {r["name"]: r for r in self.found["rows"]}
        for name in LAYERS:
            self.assertIn(name, rows)
            self.assertTrue(rows[name]["needed"], name)
            self.assertTrue(rows[name]["state"], name)

    def test_complete_means_that_all_needed_rows_are_on(self):
        needed = [r for r in self.found["rows"] if r["needed"]]
        self.assertEqual(self.found["complete"], all(r["on"] for r in needed))

    def test_what_is_missing_has_a_fix(self):
        for row in self.found["rows"]:
            if row["needed"] and not row["on"]:
                self.assertTrue(row.get("fix"), row)

    def test_text_has_every_row_and_every_fix(self):
        text = self.text.stdout.decode()
        for row in self.found["rows"]:
            self.assertIn(row["name"], text)
            if row.get("fix"):
                self.assertIn("fix: " + row["fix"], text)
        self.assertTrue(text.rstrip().endswith(self.found["summary"]))
        self.assertEqual(self.text.stderr, b"")

    def test_it_agrees_with_a_run(self):
        if not self.found["usable"]:
            self.skipTest("no sandbox can be made here: " + self.found["summary"])
        done = brig("run", "--require", "all", "--", "/bin/true")
        self.assertEqual(done.returncode == 0, self.found["complete"], done)
        if not self.found["complete"]:
            self.assertEqual(done.returncode, 125)
            missing = [r["name"] for r in self.found["rows"] if r["needed"] and not r["on"]]
            self.assertTrue(any(name in done.stderr.decode() for name in missing), done.stderr)


class Version(BrigTest):
    def test_json(self):
        done = brig("version", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        got = json.loads(done.stdout)
        self.assertEqual(set(got), {"version", "commit", "features", "protocol"})
        self.assertRegex(got["version"], r"^\d+\.\d+\.\d+")
        self.assertRegex(got["commit"], r"^([0-9a-f]{7,40}(-dirty)?|unknown)$")
        self.assertIsInstance(got["protocol"], int)
        self.assertTrue(got["features"] and all(isinstance(f, str) and f for f in got["features"]))

    def test_text(self):
        got = json.loads(brig("version", "-o", "json").stdout)
        for args in (["version"], ["--version"], ["version", "-o", "text"]):
            done = brig(*args)
            self.assertEqual(done.returncode, 0)
            self.assertIn(got["version"].encode(), done.stdout)
            self.assertIn(got["commit"].encode(), done.stdout)


if __name__ == "__main__":
    unittest.main()
