# SPDX-License-Identifier: Apache-2.0
"""A run's network: its child was made with one that denies all; the claim's policy takes its place before the request
is sent."""

import json
import os
import shutil
import tempfile
import unittest

from helpers import brig, wait_until
from internet import PUBLIC, Internet
from lettakit import KEY, LettaTest
from service import Daemon

LOOK = '''
def look(host: str):
    """Tries to connect.

    Args:
        host (str): where to.
    """
    import socket
    try:
        socket.create_connection((host, 443), timeout=5).close()
        return "connected"
    except OSError as e:
        return type(e).__name__
'''


class ChildNetwork(LettaTest):
    CONFIG = "[tools]\nmax_runs = 20\n"

    def test_the_policy_of_the_claim(self):
        tool = self.tool(LOOK)
        for policy in ({"default": "deny", "rules": [{"action": "allow", "domain": "a.invalid", "ports": [443]}]},
                       {"default": "deny", "rules": []}):
            ran = self.run_tool(tool, {"host": "b.invalid"}, network=policy)
            self.assertEqual(ran["status"], "success", ran)
            self.assertNotEqual(ran["result"], "connected")
            self.assertGreaterEqual(ran["receipt"]["network"]["decisions"]["denied"], 1, ran["receipt"]["network"])
        ran = self.run_tool(tool, {"host": "b.invalid"}, network="none")
        self.assertNotEqual(ran["result"], "connected")
        self.assertEqual(ran["receipt"]["network"]["policy"], "none")

    def test_the_version_of_the_policy(self):
        tool = self.tool(LOOK)
        for version in (1, 2, 3):
            policy = {"default": "deny", "rules": [{"action": "allow", "domain": f"{version}.invalid"}]}
            put = self.ask("PUT", "/policies/mine", policy, status=201 if version == 1 else 200)
            self.assertEqual(put["version"], version)
            told = self.run_tool(tool, {"host": "b.invalid"}, network="mine")["receipt"]["network"]
            self.assertEqual((told["policy"], told["version"]), ("mine", version))
        policy = {"default": "deny", "rules": []}
        told = self.run_tool(tool, {"host": "b.invalid"}, network=policy)["receipt"]["network"]
        self.assertEqual((told["policy"], told["version"]), ("custom", 1))
        # in a sandbox that is there it is the sandbox's
        made = self.d.create(network="mine")
        told = self.run_tool(tool, {"host": "b.invalid"}, sandbox_id=made["id"])["receipt"]["network"]
        self.assertEqual((told["policy"], told["version"]), ("mine", 3))

    def test_a_process_tells_the_version_it_began_with(self):
        self.ask("PUT", "/policies/live", {"default": "deny", "rules": []}, status=201)
        made = self.d.create(network="live")
        path = f"/v1/sandboxes/{made['id']}"
        number = self.d.ask("POST", f"{path}/processes", {"argv": ["sleep", "1000"]}).json["number"]
        self.ask("PUT", "/policies/live", {"default": "deny", "rules": [{"action": "allow", "domain": "x.invalid"}]})
        wait_until("the new policy is there", lambda: self.d.ask("GET", path).json["network"]["version"] == 2)
        self.d.ask("POST", f"{path}/processes/{number}/signal", {"signal": "KILL"})
        told = self.d.ask("GET", f"{path}/processes/{number}/wait").json["network"]
        self.assertEqual((told["policy"], told["version"]), ("live", 1))


FETCH = '''
def fetch(url: str):
    """Reads a page.

    Args:
        url (str): which.
    """
    import urllib.request
    return urllib.request.urlopen(url, timeout=20).read().decode()
'''
SNIPPET = ('import urllib.request\n'
           'print(urllib.request.urlopen("http://allowed.test:8080/", timeout=20).read().decode(), end="")\n')
PAGE = "many GET allowed.test:8080 /\n"
PROXY_PORT = 3128  # our proxy's, in a sandbox whose policy does not name it


class AnyPort(LettaTest):
    """Networks whose gate cannot grow out of the one that every child has: `open`, `learn`, and a policy that names the
    proxy's port."""

    CONFIG = "[tools]\nmax_runs = 20\n"

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root to make network namespaces")
        cls.net = Internet().usual()
        cls.net.web(PUBLIC, 8080, "many")
        cls.net.web(PUBLIC, PROXY_PORT, "proxy's")
        cls.addClassCleanup(cls.net.close)
        gate = {k: v for k, v in cls.net.environment().items() if k.startswith("BRIG_GATE_")}
        cls.d = Daemon(cls.CONFIG, env={"BRIG_SECRETS_KEY": KEY, **gate}, preexec=cls.net.here.enter)
        cls.dir = tempfile.mkdtemp(prefix="brig-any-port-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.files = {"tool": f"{cls.dir}/fetch.py", "snippet": f"{cls.dir}/snippet.py"}
        for name, text in (("tool", FETCH), ("snippet", SNIPPET)):
            with open(cls.files[name], "w", encoding="utf-8") as f:
                f.write(text)

    def cli(self, *words, daemon):
        places = {"BRIG_SOCKET": self.d.socket} if daemon else {"BRIG_SOCKET": f"{self.dir}/none.sock",
                                                                "HOME": self.dir}
        done = brig(*words, env=self.net.environment(**places), preexec_fn=self.net.here.enter)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def test_open_and_learn_by_the_api(self):
        tool = self.tool(FETCH)
        for network in ("open", "learn", {"default": "allow", "rules": []}):
            ran = self.run_tool(tool, {"url": "http://allowed.test:8080/"}, network=network)
            self.assertEqual((ran["status"], ran["result"]), ("success", PAGE), ran)
            self.assertEqual(ran["receipt"]["network"]["decisions"]["allowed"], 1, ran["receipt"]["network"])
            code = self.ask("POST", "/run", {"language": "python", "code": SNIPPET, "network": network})
            self.assertEqual((code["status"], code["stdout"]), ("success", PAGE), code)
        # and what those allow is not what the next one allows
        ran = self.run_tool(tool, {"url": "http://allowed.test:8080/"},
                            network={"default": "deny", "rules": [{"action": "allow", "domain": "other.test"}]})
        self.assertEqual(ran["status"], "error", ran)

    def test_what_was_learned(self):
        ran = self.run_tool(self.tool(FETCH), {"url": "http://allowed.test:8080/"}, network="learn")
        rules = ran["receipt"]["network"]["learned"]["rules"]
        self.assertEqual([(r["domain"], r["ports"]) for r in rules], [("allowed.test", [8080])])
        again = self.run_tool(self.tool(FETCH), {"url": "http://allowed.test:8080/"},
                              network={"default": "deny", "rules": rules})
        self.assertEqual(again["result"], PAGE, again)

    def test_the_proxys_port(self):
        policy = {"default": "deny", "rules": [{"action": "allow", "domain": "allowed.test", "ports": [PROXY_PORT]}]}
        ran = self.run_tool(self.tool(FETCH), {"url": f"http://allowed.test:{PROXY_PORT}/"}, network=policy)
        self.assertEqual(ran["result"], f"proxy's GET allowed.test:{PROXY_PORT} /\n", ran)

    def test_open_and_learn_by_the_command(self):
        url = '{"url": "http://allowed.test:8080/"}'
        for daemon in (True, False):
            for network in ("open", "learn"):
                out = self.cli("tool", "run", "--network", network, self.files["tool"], "--args", url, daemon=daemon)
                self.assertEqual(json.loads(out), PAGE)
                self.assertEqual(self.cli("run", "--lang", "python", "--net", network, self.files["snippet"],
                                          daemon=daemon),
                                 PAGE)
