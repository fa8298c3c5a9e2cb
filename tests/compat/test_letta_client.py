# SPDX-License-Identifier: Apache-2.0
"""The published letta-client, unmodified, against a real daemon over TCP with an API key: the newest one and the last
one of the generation before. Each runs in a virtual environment of its own, filled from the index that this machine's
pip is configured for; drivers/letta_*.py say what they do."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "e2e"))

from lettakit import KEY  # noqa: E402  pylint: disable=wrong-import-position
from service import Daemon  # noqa: E402  pylint: disable=wrong-import-position

PYTHON = "/usr/bin/python3"  # a version manager's may come without ensurepip


class LettaClient(unittest.TestCase):
    LIMIT_SECONDS = 170

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="brig-letta-client-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.daemon = Daemon(env={"BRIG_SECRETS_KEY": KEY})
        cls.addClassCleanup(cls.daemon.close)

    def call(self, *command):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LETTA_", "PYTHON"))}
        return subprocess.run(command, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              env={**env, "NO_PROXY": ",".join(filter(None, [env.get("NO_PROXY"), "127.0.0.1"]))})

    def venv(self, version):
        """The interpreter of a new environment with that client."""
        where = pathlib.Path(self.dir, version)
        made = self.call(PYTHON, "-m", "venv", str(where))
        if made.returncode != 0:
            self.skipTest(f"no virtual environment with pip: {made.stdout.strip()[-200:]}")
        pip = [str(where / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir",
               "--retries", "1", "--timeout", "15"]
        done = self.call(*pip, "install", "--quiet", f"letta-client=={version}")
        if done.returncode != 0:
            # Where no version of it can be had there is no index; where another can, the pin is wrong.
            if self.call(*pip, "download", "--quiet", "--no-deps", "-d", self.dir, "letta-client").returncode != 0:
                said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or ["pip said nothing"]
                self.skipTest(f"no package index: {said[-1][:200]}")
            self.fail(done.stdout[-2000:])
        return pip[0]

    def drive(self, version, driver):
        # nothing of one client is in the other's lists
        org = self.daemon.ask("POST", "/v1/orgs", {"name": driver}).json["id"]
        done = self.call(self.venv(version), "-B", str(HERE / "drivers" / driver),
                         f"http://127.0.0.1:{self.daemon.port}", self.daemon.key(org=org))
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])

    def test_newest(self):
        self.drive("1.12.1", "letta_1.py")

    def test_generation_before(self):
        self.drive("0.1.324", "letta_0.py")
