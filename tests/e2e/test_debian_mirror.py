# SPDX-License-Identifier: Apache-2.0
"""FROM debian-mirror:SUITE and recipes by name, as far as no mirror is needed; tests/compat/test_recipes.py builds."""

import os
import subprocess
import unittest

from buildkit import BuildTest
from helpers import BRIG


class Suites(BuildTest):
    def test_what_is_no_suite(self):
        for text, message in (("debian-mirror:", "expected the name of a suite"),
                              ("debian-mirror:a/b", "expected the name of a suite"),
                              ("debian-mirror:-x", "expected the name of a suite")):
            self.refused_build(f"FROM {text}\n", message)
        self.refused_build("FROM debian-mirror:nosuch\nRUN true\n",
                           "the apt sources of this host have no suite nosuch; see [templates] debian_mirror")


class Recipes(BuildTest):
    def brig(self, *words, cwd="/"):
        return subprocess.run([BRIG, "template", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.d.env, timeout=120, check=False, cwd=cwd)

    def test_they_are_listed(self):
        self.assertEqual(self.brig("recipes").stdout.split(), [b"base", b"node", b"python"])

    def test_a_directory_of_the_name_wins(self):
        self.base()
        os.makedirs(os.path.join(self.d.dir, "w", "python"))
        with open(os.path.join(self.d.dir, "w", "python", "Dockerfile"), "w", encoding="utf-8") as f:
            f.write("FROM base\n")
        done = self.brig("build", "-t", "mine", "python", cwd=os.path.join(self.d.dir, "w"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/mine")
        self.assertNotIn(b"recipe", done.stderr)
        done = self.brig("build", "--build-arg", "BASE=missing/x", "python")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"recipe python: ", done.stderr)
        self.assertIn(b"there is no template missing/x", done.stderr)
        done = self.brig("build", "-t", "x", "nosuch")
        self.assertIn(b"nosuch", done.stderr)
        self.assertNotIn(b"recipe", done.stderr)


if __name__ == "__main__":
    unittest.main()
