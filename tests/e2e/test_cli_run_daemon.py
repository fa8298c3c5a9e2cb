# SPDX-License-Identifier: Apache-2.0
"""`brig run` by a daemon: every test of it, once more with a daemon to be found, and the same answers wanted.

Those that use -v, --rootfs, --tmpfs, --cpu-time or --local run here as everywhere: without the daemon, though there is
one.
"""

import json
import os
import subprocess
import unittest

import test_cli_run
import test_cli_tty
from helpers import BRIG, BrigTest, brig, environment
from service import Daemon

# What is about the build is said once. (So is test_cli_usage.py, about words that never reach a run.)
LEFT_OUT = {"Build"}
SH = ("--", "/bin/sh", "-c")


class WithDaemon:
    """A daemon per class, in the environment of every brig."""

    VIA = "daemon"
    LIMIT_SECONDS = 240

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon = Daemon("")
        cls.addClassCleanup(cls.daemon.close)
        before = os.environ.get("BRIG_SOCKET")
        os.environ["BRIG_SOCKET"] = cls.daemon.socket
        cls.addClassCleanup(lambda: os.environ.pop("BRIG_SOCKET") if before is None
                            else os.environ.update(BRIG_SOCKET=before))


def copies(module):
    for name, case in vars(module).items():
        if isinstance(case, type) and issubclass(
                case, unittest.TestCase) and case.__module__ == module.__name__ and name not in LEFT_OUT:
            yield name, case


for source, prefix in ((test_cli_run, "Run"), (test_cli_tty, "Tty")):
    for case_name, base in copies(source):
        globals()[prefix + case_name] = type(prefix + case_name, (WithDaemon, base), {"__module__": __name__})
del base


class Modes(WithDaemon, BrigTest):
    def via(self, *flags, env=None):
        done = brig("run", "-o", "json", *flags, "--", "true", env=env)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)["via"]

    def test_who_runs_it(self):
        self.assertEqual(self.via(), "daemon")
        self.assertEqual(self.via("--local"), "local")
        self.assertEqual(self.via("--tmpfs", "/mnt:1m"), "local")
        os.chmod(self.dir, 0o755)
        self.assertEqual(self.via("-v", f"{self.dir}:/mnt:ro"), "local")
        self.assertEqual(self.via(env=environment(BRIG_SOCKET=self.path("nobody"))), "local")

    def test_another_host_is_never_replaced_by_this_one(self):
        done = brig("run", "--", "true", env=environment(BRIG_HOST="http://127.0.0.1:1", BRIG_API_KEY="k"))
        self.assertEqual((done.returncode, done.stderr),
                         (125, b"brig: no daemon answers on http://127.0.0.1:1: Connection refused\n"))

    def test_words_that_are_not_utf8(self):
        done = brig("run", "--", "printf", "%s", b"\xff\xfe")
        self.assertEqual((done.returncode, done.stdout), (0, b"\xff\xfe"))

    def test_over_tcp_with_a_key(self):
        env = environment(BRIG_HOST=f"http://127.0.0.1:{self.daemon.port}", BRIG_API_KEY=self.daemon.key(role="user"))
        self.assertEqual(self.via(env=env), "daemon")
        done = brig("run", "-i", "--", "tr", "a-z", "A-Z", env=env, stdin=b"hello")
        self.assertEqual((done.returncode, done.stdout), (0, b"HELLO"))

    def test_receipts_are_the_same(self):
        args = ("run", "-o", "json", "--name", "answer", "-e", "DEPTH=3", "-m", "64m", "--timeout", "10s", "--", "sh",
                "-c", "echo out; echo err >&2; exit 3")
        remote, local = (json.loads(subprocess.run([BRIG, *args[:1], *more, *args[1:]], stdout=subprocess.PIPE,
                                                   env=environment(), check=False).stdout)
                         for more in ((), ("--local",)))
        added = {"organization_id", "process", "audit_seq"}
        self.assertEqual([k for k in remote if k not in added], list(local))
        for same in ("kind", "name", "provider", "providers_tried", "command", "outcome", "stdout", "stdout_encoding",
                     "stderr", "stderr_encoding",
                     "truncated", "limits", "network", "environment"):
            self.assertEqual(remote[same], local[same], same)
        self.assertEqual({k: v["on"] for k, v in remote["protection"]["layers"].items()},
                         {k: v["on"] for k, v in local["protection"]["layers"].items()})

    def test_nothing_is_left(self):
        for _ in range(3):
            brig("run", *SH, "setsid sleep 1000 & exit 0")
        self.assertEqual(self.daemon.ask("GET", "/v1/sandboxes").json["sandboxes"], [])


if __name__ == "__main__":
    unittest.main()
