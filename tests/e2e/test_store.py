# SPDX-License-Identifier: Apache-2.0
"""The unit tests of the store once more, against a real PostgreSQL: the same functions, as pg_NAME
(tests/unit/store_kit.h)."""

import os
import pathlib
import re
import subprocess
import unittest

import pg

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("BRIG_BUILD_DIR", ROOT / "build")).resolve()


class StoreOnPostgres(unittest.TestCase):
    LIMIT_SECONDS = 180

    def run_unit(self, name, least):
        with pg.Server() as server:
            done = subprocess.run([BUILD / "tests/unit" / name], cwd=ROOT, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=170, check=False,
                                  env={**os.environ, "BRIG_TEST_PG_URL": server.url, "CMOCKA_MESSAGE_OUTPUT": "TAP"})
        text = done.stdout.decode("utf-8", "replace")
        passed = re.findall(r"^ok \d+ - (pg_\w+|test_\w+)", text, re.M)
        self.assertEqual(done.returncode, 0, text[-4000:])
        self.assertNotRegex(text, re.compile(r"^not ok", re.M))
        self.assertGreaterEqual(sum(t.startswith("pg_") for t in passed), least,
                                "the PostgreSQL half did not run:\n" + text[-2000:])

    def test_store(self):
        self.run_unit("test_store", 22)

    def test_faults(self):
        self.run_unit("test_store_faults", 11)

    def test_secrets(self):
        self.run_unit("test_secrets", 15)

    def test_accounts(self):
        self.run_unit("test_accounts", 6)

    def test_tool_objects(self):
        self.run_unit("test_tool_objects", 8)

    def test_server_restart_keeps_data(self):
        """Of the helper itself: stop is a crash, start brings everything back, and the directory goes with the
        server."""
        with pg.Server() as server:
            psql = [f"{server.bin}/psql", "-qAt", server.url, "-c"]
            subprocess.run([*psql, "CREATE TABLE t (n int); INSERT INTO t VALUES (7)"], check=True, timeout=60)
            server.stop()
            self.assertNotEqual(subprocess.run([*psql, "SELECT 1"], stderr=subprocess.DEVNULL, timeout=60,
                                               check=False).returncode,
                                0)
            server.start()
            self.assertEqual(subprocess.run([*psql, "SELECT n FROM t"], stdout=subprocess.PIPE, check=True,
                                            timeout=60).stdout,
                             b"7\n")
            self.assertNotEqual(server.database("other"), server.url)
            where = server.dir
        self.assertFalse(os.path.exists(where))


if __name__ == "__main__":
    unittest.main()
