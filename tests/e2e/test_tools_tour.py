# SPDX-License-Identifier: Apache-2.0
"""The README's part about tools, as it is written there."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from helpers import BRIG, PATIENCE, environment, read_line
from lettakit import KEY
from service import Daemon
from test_documents import ROOT, examples, pattern, text_of


class Tour(unittest.TestCase):
    LIMIT_SECONDS = 120

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-tour-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.symlink(ROOT / "examples", f"{self.dir}/examples")
        # At first there is no service, also if this machine has one.
        self.env = environment(PATH=os.path.dirname(os.path.abspath(BRIG)) + ":/usr/sbin:/usr/bin:/sbin:/bin",
                               BRIG_SOCKET=f"{self.dir}/none.sock")

    def start(self, command):
        return subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env=self.env, cwd=self.dir, bufsize=0)

    def service(self):
        daemon = Daemon(env={"BRIG_SECRETS_KEY": KEY})
        self.addCleanup(daemon.close)
        self.env = {**daemon.env, "PATH": self.env["PATH"]}
        return daemon

    def test_as_written(self):
        steps = examples("tools")
        self.assertEqual(len(steps), 11)
        waiting = run_id = None
        for command, lines in steps:
            if command.startswith("brig tool add examples"):
                self.service()
            with self.subTest(command):
                if command.endswith("&"):
                    waiting = self.start(command.rstrip("& "))
                    said = read_line(waiting.stdout).decode().strip("\n")
                    run_id = re.search(r"run-[0-9a-f-]{36}", said).group(0)
                else:
                    done = self.start(command.replace("run-…", run_id or ""))
                    said = done.communicate(timeout=PATIENCE)[0].decode().strip("\n")
                    self.assertEqual(done.returncode, 0, said)
                if command.endswith("approve run-…"):
                    said = said.replace(run_id, "",
                                        1).strip("\n") + waiting.communicate(timeout=PATIENCE)[0].decode().strip("\n")
                    self.assertEqual(waiting.returncode, 0, said)
                if lines:
                    self.assertTrue(re.fullmatch(pattern(lines), "\n".join(sorted(said.splitlines())), re.S),
                                    f"\n{command}\nshown:\n{lines}\nseen:\n{said}")

    def test_registering(self):
        """docs/TOOLS.md: the whole object is taken as it stands there, and its rules are in force."""
        daemon = self.service()
        schema, tool = map(json.loads, re.findall(r"^```json\n(.*?)^```", text_of("docs/TOOLS.md"), re.M | re.S))
        for method in ("POST", "PUT"):
            self.assertEqual(daemon.ask(method, "/v1/tools/", tool).status, 200, method)
        ran = daemon.ask("POST", "/v1/tools/send_email/run", {"args": {"to": ["a@example.com"], "subject": "hi"}}).json
        self.assertEqual((ran["result"], ran["receipt"]["limits"]["memory"]), ("hi to 1", 256 << 20))
        for args, field in (({"to": ["a@example.com", "b@evil.example"], "subject": "hi"}, "to"),
                            ({"to": [], "subject": "a\r\nBcc: b"}, "subject")):
            refused = daemon.ask("POST", "/v1/tools/send_email/run", {"args": args})
            self.assertEqual(refused.status, 422, refused)
            self.assertIn(field, refused.json["error"]["message"])
        with open(f"{self.dir}/words.json", "w", encoding="utf-8") as f:
            json.dump(schema, f)
        done = self.start("brig tool add -q --schema words.json examples/words.js && brig tool run -q words --args "
                          "'{\"text\": \"to be or not to be\"}'")
        self.assertIn(b'"to": 2', done.communicate(timeout=PATIENCE)[0])

    def test_agent(self):
        """docs/TOOLS.md: a tool that changes its agent, by names."""
        self.service()
        done = self.start("""brig tool add -q examples/remember.py &&
            A=$(echo '{"memory": {"blocks": [{"label": "human", "value": "", \
"limit": 200}]}}' | brig agent add -q --state - me) &&
            brig agent attach "$A" nosuch; brig agent attach "$A" remember &&
            brig tool run remember --agent "$A" --args '{"fact": "likes tea"}' && brig agent show "$A" | grep value && \
brig agent detach "$A" remember""")
        said = done.communicate(timeout=PATIENCE)[0].decode()
        self.assertEqual(done.returncode, 0, said)
        for part in ('no tool "nosuch"', '"1 facts by now"', '"value": "likes tea"'):
            self.assertIn(part, said)
