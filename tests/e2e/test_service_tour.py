# SPDX-License-Identifier: Apache-2.0
"""The README's tour of the service, as it is written there."""

import os
import pty
import re
import subprocess
import unittest

from helpers import BRIG, PATIENCE
from imagekit import Image, Registry, base_layer, entry, tar
from service import Daemon
from test_documents import ROOT, examples, pattern


class Tour(unittest.TestCase):
    LIMIT_SECONDS = 120

    def setUp(self):
        # Docker Hub is elsewhere: a mirror of it has an image of that name, with programs of this machine
        hub = Registry(repository="library/debian")
        self.addCleanup(hub.close)
        hub.tags["12"] = Image(base_layer(), tar(entry("etc/debian_version", b"12.5\n")), config={"Env": ["PATH=/bin"]})
        self.d = Daemon(config=f"[templates]\nmirrors = \"docker.io=http://{hub.host}\"\n")
        self.addCleanup(self.d.close)
        self.env = {**self.d.env, "PATH": os.path.dirname(os.path.abspath(BRIG)) + ":/usr/sbin:/usr/bin:/sbin:/bin",
                    "KEY": self.d.key()}

    def at_a_terminal(self, command, words):
        """A command that wants a terminal, and what is typed there."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(ROOT)
            os.execve("/bin/sh", ["sh", "-c", command], {**self.env, "TERM": "dumb"})
        os.write(fd, words)
        seen = b""
        try:
            while piece := os.read(fd, 65536):
                seen += piece
        except OSError:
            pass
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen

    def test_as_written(self):
        steps = examples("service")
        self.assertEqual(steps[0][0].split("#")[0].strip(), "brig serve 2>brig.log &")
        self.assertGreaterEqual(len(steps), 10)
        for command, lines in steps[1:]:
            with self.subTest(command):
                if command.startswith("brig shell"):
                    status, seen = self.at_a_terminal(command, b"cat note; exit 5\n")
                    self.assertEqual(status, 5, seen)
                    self.assertIn(b"hello", seen)
                    continue
                if command.startswith("KEY="):
                    continue  # a variable of one shell; ours has it already
                if "X-API-Key" in command:
                    command = command.replace("127.0.0.1:2744", f"127.0.0.1:{self.d.port}")
                for _ in range(50):
                    done = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, env=self.env,
                                          cwd=ROOT, timeout=PATIENCE, check=False)
                    if "curl" not in command or b"bad_gateway" not in done.stdout:
                        break  # what was started in the background may not listen yet
                self.assertEqual(done.returncode, 0, done)
                said = done.stdout.decode().strip("\n")
                if lines:
                    self.assertTrue(re.match(pattern(lines), said), done)
                elif "curl" in command:
                    self.assertTrue("Directory listing" in said or '"stdout":"hi\\n"' in said, done)
