# SPDX-License-Identifier: Apache-2.0
"""The tests of the service once more, with PostgreSQL behind it: every daemon they start gets a database of its own."""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent.parent / "e2e"
sys.path.insert(0, str(HERE))

import pg  # noqa: E402  pylint: disable=wrong-import-position

MODULES = ("test_service_sandboxes", "test_service_processes", "test_service_files", "test_service_life")


class OnPostgres(unittest.TestCase):
    LIMIT_SECONDS = 240

    @classmethod
    def setUpClass(cls):
        cls.server = pg.Server()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def again(self, module):
        done = subprocess.run([sys.executable, "-B", "-m", "unittest", module], cwd=HERE, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "BRIG_TEST_PG_URL": self.server.url}, check=False)
        self.assertEqual(done.returncode, 0, done.stdout.decode(errors="replace")[-4000:])


for _module in MODULES:
    setattr(OnPostgres, _module, lambda self, module=_module: self.again(module))
