# SPDX-License-Identifier: Apache-2.0
"""The recipes that come with brig, from the Debian mirror of this host: `base` by its name, and `python` on it."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e")]

from helpers import BRIG  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from service import ServiceTest  # noqa: E402  pylint: disable=wrong-import-position


@needs_root
class Recipes(ServiceTest):
    LIMIT_SECONDS = 1800

    def build(self, *words):
        done = subprocess.run([BRIG, "template", "build", *words], capture_output=True, text=True, env=self.d.env,
                              check=False, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done

    def said(self, template, script):
        box = self.sandbox(template=template)
        run = self.d.run(box, "/bin/sh", "-c", script)
        self.assertEqual(run["outcome"]["exit_code"], 0, run)
        return run["stdout"]

    @staticmethod
    def suite():
        with open("/etc/os-release", encoding="utf-8") as f:
            return next(line.split("=")[1].strip() for line in f if line.startswith("VERSION_CODENAME="))

    def twice(self, recipe, *args):
        """Builds it, and again from its lock, each time anew: the packages of the lock, by name."""
        place = os.path.join(self.d.dir, f"{recipe}.lock")
        words = ("--no-cache", "--lock", place, *args)
        self.build(*words, "--update-lock", "-t", f"{recipe}-1", recipe)
        self.build(*words, "-t", f"{recipe}-2", recipe)
        first, second = (self.d.ask("GET", f"/v1/templates/{recipe}-{n}").json["layers"] for n in (1, 2))
        self.assertEqual(first, second)
        with open(place, encoding="utf-8") as f:
            return {package["name"]: package for package in json.load(f)["packages"]}

    def test_from_their_locks(self):
        packages = self.twice("base", "--build-arg", f"SUITE={self.suite()}")
        self.assertRegex(packages["dpkg"]["sha256"], "^[0-9a-f]{64}$")
        self.assertEqual(packages["ca-certificates"]["sha256"], "")  # a RUN installed it
        self.assertRegex(packages["ca-certificates"]["files"], "^[0-9a-f]{64}$")
        for recipe, package in (("python", "python3-pip"), ("node", "nodejs")):
            packages = self.twice(recipe, "--build-arg", "BASE=base-1")
            self.assertRegex(packages[package]["files"], "^[0-9a-f]{64}$")

    def test_base_and_python(self):
        suite = self.suite()
        self.build("--build-arg", f"SUITE={suite}", "base")
        self.assertEqual(self.said("base", "readlink /bin; pwd; . /etc/os-release; echo $ID $VERSION_CODENAME; "
                                           "dpkg --audit; test -s /etc/ssl/certs/ca-certificates.crt"),
                         f"usr/bin\n/workspace\ndebian {suite}\n")
        again = self.build("--build-arg", f"SUITE={suite}", "-t", "again", "base")
        self.assertIn("cached", again.stderr)
        self.build("python")
        self.assertEqual(self.said("python", "python3 -c 'print(6 * 7)'; pip --version | cut -d' ' -f1"), "42\npip\n")


if __name__ == "__main__":
    unittest.main()
