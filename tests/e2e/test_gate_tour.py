# SPDX-License-Identifier: Apache-2.0
"""The README's part about the network, as it is written there, in an internet of our own."""

import os
import re
import subprocess
import unittest

import internet
from helpers import BRIG, PATIENCE
from service import Daemon
from test_documents import examples, pattern

TOKEN = b"the-real-token-7f3a"


@unittest.skipUnless(os.geteuid() == 0, "root: makes network namespaces")
class Tour(unittest.TestCase):
    def setUp(self):
        self.net = internet.Internet()
        self.addCleanup(self.net.close)
        self.net.zone.update({"example.com": [internet.PUBLIC], "example.org": [internet.OTHER],
                              "api.example.com": [internet.OTHER]})
        self.net.web(internet.PUBLIC, 443, "example", "example.com")
        self.net.web(internet.OTHER, 443, "api", "api.example.com", "example.org")
        with open(f"{self.net.dir}/token", "wb") as f:
            f.write(TOKEN)
        self.env = {**self.net.environment(),
                    "PATH": os.path.dirname(os.path.abspath(BRIG)) + ":/usr/sbin:/usr/bin:/sbin:/bin"}

    def sh(self, command):
        return subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=self.env,
                              cwd=self.net.dir, timeout=PATIENCE, check=False, preexec_fn=self.net.here.enter)

    def test_as_written(self):
        steps = examples("network")
        self.assertEqual(len(steps), 7)
        for command, lines in steps:
            # the service, which was to be started with the key that has just been made
            if command.startswith("brig secret set"):
                daemon = Daemon(env={**self.net.environment(), "BRIG_SECRETS_KEY_FILE": f"{self.net.dir}/secrets.keys"},
                                preexec=self.net.here.enter)
                self.addCleanup(daemon.close)
                self.env = {**daemon.env, "PATH": self.env["PATH"]}
            with self.subTest(command):
                # the template has the host's bundle, which does not know our authority; that of a brokered host is
                # known inside
                done = self.sh(command.replace("curl -s https://example.com/", "curl -sk https://example.com/"))
                said = done.stdout.decode().strip("\n")
                self.assertEqual(done.returncode, 6 if "example.org/" in command else 0, done)
                if lines:
                    self.assertTrue(re.fullmatch(pattern(lines), said), done)
        self.assertEqual([(s[0], s[1], s[2], s[3].get("Authorization")) for s in self.net.seen],
                         [("GET", "example.com", "/", None),
                          ("GET", "api.example.com", "/v1/me", "Bearer " + TOKEN.decode())])
        self.assertNotIn("example.org", [name for name, _ in self.net.asked])


if __name__ == "__main__":
    unittest.main()
