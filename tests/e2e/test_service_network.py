# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of the service with a network: a real daemon with its brig-egress, and an internet of this machine's
loopback that the test serves: a DNS server and web servers on 127.0.0.1, which a policy must name by its range, since
it is not the public internet.
"""

import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import unittest

from helpers import PATIENCE, arrived, brig, steady, wait_until
from internet import Authority, DnsServer, WebServer
from service import Daemon, free_port

HELPERS = os.environ.get("BRIG_LIBEXEC_DIR", "")

GET = """
import socket, sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end="")
except Exception as why:
    print("FAILED", type(why).__name__, why)
"""

# Reads lines from a server that sends what it is told; one connection for its whole life.
HOLD = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
s.sendall(b"GET /hold HTTP/1.1\\r\\nHost: %s:%s\\r\\n\\r\\n" % (sys.argv[1].encode(), sys.argv[2].encode()))
s.settimeout(60)
try:
    while True:
        data = s.recv(100)
        print(data.decode() if data else "END", flush=True)
        if not data:
            break
except OSError as why:
    print("CUT", type(why).__name__, flush=True)
"""


# As many requests as it can until the file `stop` is there; says how many succeeded and how many failed.
LOAD = """
import os, socket, sys, threading, urllib.request
good, bad = [0], []
def work():
    while not os.path.exists("/workspace/stop"):
        try:
            urllib.request.urlopen(sys.argv[1], timeout=20).read()
            good[0] += 1
        except OSError as why:
            bad.append(str(why))
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(good[0], len(bad), bad[:3])
"""


class Loopback:
    """What internet.Internet is, without namespaces: names lead to 127.0.0.1."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="brig-loopback-")
        os.chmod(self.dir, 0o755)
        self.there = self
        self.asked, self.seen = [], []
        self.zone = {name: ["127.0.0.1"] for name in ("api.test", "other.test", "third.test", "secret.test")}
        self.authority = Authority(self.dir)
        self.dns_port = free_port()
        self.dns = DnsServer(self, "127.0.0.1", self.dns_port)
        self.http, self.tls, self.more = free_port(), free_port(), free_port()
        self.servers = [WebServer(self, "127.0.0.1", self.http, "web"), WebServer(self, "127.0.0.1", self.more, "more"),
                        WebServer(self, "127.0.0.1", self.tls, "tls",
                                  self.authority.certificate("api.test", "secret.test"))]
        self.hold = free_port()
        self.held = []
        self.holder = self.listen("127.0.0.1", self.hold)
        threading.Thread(target=self._hold, daemon=True).start()

    def _hold(self):
        """Answers a request with a head, and then with what the test says."""
        while True:
            try:
                connection, _ = self.holder.accept()
            except OSError:
                return
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            self.held.append(connection)

    def listen(self, address, port, kind=socket.SOCK_STREAM):
        s = socket.socket(socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))
        if kind == socket.SOCK_STREAM:
            s.listen(128)
        return s

    def config(self, more=""):
        return f'[gate]\nresolvers = ["127.0.0.1:{self.dns_port}"]\nca_bundle = "{self.authority.ca}"\n{more}'

    def policy(self, *names, ports=None, **members):
        ports = ports or [self.http, self.tls, self.hold]
        return {"default": "deny", "rules": [{"action": "allow", "cidr": "127.0.0.1/32", "ports": ports},
                                             *({"action": "allow", "domain": name, "ports": ports} for name in names)],
                **members}

    def close(self):
        for server in self.servers:
            server.close()
        self.dns.close()
        for connection in (*self.held, self.holder):
            connection.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class NetworkTest(unittest.TestCase):
    CONFIG = ""
    USER = None
    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        cls.net = Loopback()
        cls.key = os.path.join(cls.net.dir, "keys")
        with open(cls.key, "w", encoding="ascii") as f:
            f.write("k1:" + "42" * 32 + "\n")
        os.chmod(cls.key, 0o600)
        if cls.USER is not None:
            os.chown(cls.key, cls.USER, cls.USER)
        cls.d = Daemon(cls.net.config(f'[secrets]\nkey_file = "{cls.key}"\n[store]\n'
                                      f'suspicious_count = 1000\n' + cls.CONFIG),
                       user=cls.USER)

    @classmethod
    def tearDownClass(cls):
        cls.d.close()
        cls.net.close()

    def setUp(self):
        wait_until("brig-egress is connected", lambda: self.metric("network_up") == 1)

    def tearDown(self):
        for s in self.d.ask("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]:
            self.d.ask("DELETE", f"/v1/sandboxes/{s['id']}")

    def metric(self, name):
        for line in self.d.ask("GET", "/metrics").body.decode().splitlines():
            if line.startswith(f"brig_{name} "):
                return int(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def get(self, sandbox, url):
        return self.d.run(sandbox, "/usr/bin/python3", "-c", GET, url)

    def says(self, sandbox, url):
        done = self.get(sandbox, url)
        return done["stdout"] + done["stderr"]

    def inspect(self, sandbox):
        answer = self.d.ask("GET", f"/v1/sandboxes/{sandbox}")
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def audit(self, sandbox):
        lines = []
        after = 0
        while True:
            got = [json.loads(line)
                   for line in self.d.ask("GET", f"/v1/audit?after={after}&limit=1000").body.splitlines()]
            if not got:
                return [line for line in lines if line["object"] == sandbox]
            lines += got
            after = got[-1]["seq"]

    def events(self, sandbox, action):
        return [e for e in self.audit(sandbox) if e["action"] == action]

    def hold(self, sandbox, name="api.test"):
        """A program with an open connection; (its number, the server's end)."""
        before = len(self.net.held)
        answer = self.d.ask("POST", f"/v1/sandboxes/{sandbox}/processes",
                            {"argv": ["/usr/bin/python3", "-c", HOLD, name, str(self.net.hold)]})
        self.assertEqual(answer.status, 201, answer)
        wait_until("the connection has arrived", lambda: len(self.net.held) > before)
        return answer.json["process"] if "process" in answer.json else answer.json["number"], self.net.held[-1]

    def output(self, sandbox, number):
        return self.d.ask("GET", f"/v1/sandboxes/{sandbox}/processes/{number}/output?stream=stdout&follow=0",
                          headers={"Accept": "application/octet-stream"}).body.decode()

    def replace_brigd(self):
        old = self.d.children()["brigd"]
        os.kill(old, signal.SIGKILL)
        wait_until("another brigd", lambda: self.d.children().get("brigd", old) != old)
        self.d.wait_ready()


class Policies(NetworkTest):
    def test_none_knows_nothing_of_it(self):
        s = self.d.create()
        self.assertEqual(s["network"], "none")
        self.assertEqual(self.metric("network_sandboxes"), 0)
        self.assertIn("FAILED", self.says(s["id"], f"http://api.test:{self.net.http}/"))
        self.assertEqual(self.d.run(s["id"], "/bin/true")["network"], {"policy": "none"})

    def test_an_allowed_host_is_reached(self):
        s = self.d.create(network=self.net.policy("api.test"))
        self.assertEqual(self.metric("network_sandboxes"), 1)
        receipt = self.get(s["id"], f"http://api.test:{self.net.http}/bytes/5000")
        self.assertEqual(receipt["stdout"], "x" * 5000, receipt)
        self.assertEqual((receipt["network"]["policy"], receipt["network"]["version"]), ("custom", 1))
        self.assertEqual(receipt["network"]["decisions"]["allowed"], 1)
        self.assertGreater(receipt["usage"]["net_in_bytes"], 5000)
        self.assertGreater(receipt["usage"]["net_out_bytes"], 50)
        again = self.d.run(s["id"], "/bin/true")  # of this run alone
        self.assertEqual((again["usage"]["net_in_bytes"], again["network"]["decisions"]["allowed"]), (0, 0))
        self.assertEqual(self.says(s["id"], f"https://api.test:{self.net.tls}/a"),
                         f"tls GET api.test:{self.net.tls} /a\n")
        seen = self.inspect(s["id"])["network"]
        self.assertEqual((seen["policy"], seen["version"], seen["allowed"], seen["denied"]), ("custom", 1, 2, 0))
        self.assertGreater(seen["bytes_in"], 5000)
        usage = self.d.ask("GET", f"/v1/sandboxes/{s['id']}/metrics").json
        self.assertGreater(usage["net_in_bytes"], 5000)
        wait_until("both are in the audit log", lambda: len(self.events(s["id"], "network.close")) == 2)
        allowed = [e for e in self.events(s["id"], "network.allow") if " dns " not in e["detail"]]
        self.assertEqual(len(allowed), 2, allowed)
        self.assertIn("name=api.test address=127.0.0.1", allowed[0]["detail"])
        self.assertIn(f"run={receipt['id']} ", allowed[0]["detail"])
        self.assertIn("version=1", allowed[0]["detail"])
        self.assertRegex(self.events(s["id"], "network.close")[0]["detail"], "bytes_in=5[0-9]{3} bytes_out=[1-9]")
        stopped = self.d.ask("POST", f"/v1/sandboxes/{s['id']}/stop").json
        self.assertGreater(stopped["network"]["bytes_in"], 5000)
        self.assertGreater(stopped["usage"]["net_in_bytes"], 5000)
        self.assertGreater(self.metric("network_receive_bytes_total"), 5000)
        self.assertEqual(self.metric("network_sandboxes"), 0)

    def test_another_host_is_not(self):
        before = self.metric("network_connections_denied_total") + self.metric("network_names_refused_total")
        s = self.d.create(network=self.net.policy("api.test"))
        receipt = self.get(s["id"], f"http://other.test:{self.net.http}/")
        self.assertIn("FAILED", receipt["stdout"])
        self.assertGreater(receipt["network"]["decisions"]["denied"], 0)
        self.assertFalse([q for q in self.net.asked if q[0] == "other.test"])
        wait_until("it is in the audit log", lambda: [e for e in self.events(s["id"], "network.deny")
                                                      if "name=other.test" in e["detail"] and e["outcome"] == "denied"])
        self.assertGreater(self.metric("network_connections_denied_total") + self.metric("network_names_refused_total"),
                           before)

    def test_limits_of_the_sandbox(self):
        s = self.d.create(network=self.net.policy("api.test"), limits={"net_bytes_in": 20000})
        self.assertEqual(self.inspect(s["id"])["limits"]["net_bytes_in"], 20000)
        self.get(s["id"], f"http://api.test:{self.net.http}/bytes/10000")
        receipt = self.get(s["id"], f"http://api.test:{self.net.http}/bytes/100000")
        self.assertIn("FAILED", receipt["stdout"])
        self.assertIn("net_bytes_in", receipt["outcome"]["limits_hit"])

    def test_refusals(self):
        for network, status, words in (("nope", 422, "network"),
                                       ({"rules": [{"action": "permit", "domain": "x.org"}]}, 400, "rules[0].action"),
                                       ({"rulez": []}, 400, "rulez"), (7, 400, "network")):
            answer = self.d.ask("POST", "/v1/sandboxes", {"network": network})
            self.assertEqual(answer.status, status, answer)
            self.assertIn(words, answer.json["error"]["message"])
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])
        self.assertEqual(self.metric("network_sandboxes"), 0)

    def test_learn(self):
        s = self.d.create(network={"extends": "learn", "rules": [{"action": "allow", "cidr": "127.0.0.1/32",
                                                                  "ports": [self.net.http], "protocol": "tcp"}]})
        receipt = self.get(s["id"], f"http://third.test:{self.net.http}/")
        self.assertIn("web GET", receipt["stdout"])
        self.assertIn("third.test", json.dumps(receipt["network"]["learned"]))
        self.assertIn("third.test", json.dumps(self.inspect(s["id"])["network"]["learned"]))


    def test_who_may_name_private_ranges(self):
        """The administrator on the socket, here or in a stored policy; a request of a key may not, in no spelling."""
        key = self.d.ask("POST", "/v1/keys", {"role": "admin"}).json["key"]
        for range_ in ("127.0.0.1", "127.0.0.0/8", "169.254.169.254/32", "10.0.0.0/8", "::1", "fd00::/8",
                       "::ffff:127.0.0.1"):
            rule = {"action": "allow", "cidr": range_}
            for network in ({"rules": [rule]}, {"extends": "open", "rules": [rule]},
                            {"extends": {"rules": [rule]}, "rules": []}):
                answer = self.d.ask("POST", "/v1/sandboxes", {"network": network}, tcp=True, key=key)
                self.assertEqual(answer.status, 403, (network, answer))
                self.assertIn("only the administrator on the unix socket may allow it", answer.json["error"]["message"])
        made = self.d.ask(
            "POST", "/v1/sandboxes",
            {"network": {"rules": [{"action": "allow", "domain": "x.test"}, {"action": "deny", "cidr": "10.0.0.0/8"}]}},
                          tcp=True, key=key)
        self.assertEqual(made.status, 201, made)
        path = f"/v1/sandboxes/{made.json['id']}"
        answer = self.d.ask("PATCH", path, {"network": {"rules": [{"action": "allow", "cidr": "127.0.0.1"}]}}, tcp=True,
                            key=key)
        self.assertEqual(answer.status, 403, answer)
        self.d.ask("DELETE", path)


    def forbidden(self, answer, text):
        self.assertEqual((answer.status, text in answer.body.decode()), (403, True), answer)

    def test_how_many_connections_a_user_may_ask_for(self):
        user, admin = (self.d.ask("POST", "/v1/keys", {"role": role}).json["key"] for role in ("user", "admin"))
        many, rule = {"connections": 65536}, {"action": "allow", "domain": "x.test"}
        rest = "65536: a key that is not an administrator's may ask for at most 1024 ([gate] user_connections)"
        for body, where in (({"network": {"rules": [rule], "limits": many}}, "network: limits.connections"),
                            ({"network": {"extends": "packages", "rules": [rule], "limits": many}},
                             "network: limits.connections"),
                            ({"network": {"rules": [rule]}, "limits": many}, "limits.connections")):
            self.forbidden(self.d.ask("POST", "/v1/sandboxes", body, tcp=True, key=user), f"{where} {rest}")
            self.forbidden(self.d.ask("POST", "/v1/runs", {"sandbox": body, "process": {"argv": ["true"]}}, tcp=True,
                                      key=user),
                           rest)
            made = self.d.ask("POST", "/v1/sandboxes", body, tcp=True, key=admin)
            self.assertEqual(made.status, 201, made)
            self.d.ask("DELETE", f"/v1/sandboxes/{made.json['id']}")
        few = {"rules": [rule], "limits": {"connections": 1024}}
        made = self.d.ask("POST", "/v1/sandboxes", {"network": few}, tcp=True, key=user)
        self.assertEqual(made.status, 201, made)
        path = f"/v1/sandboxes/{made.json['id']}"
        self.forbidden(self.d.ask("PATCH", path, {"network": {**few, "limits": many}}, tcp=True, key=user), rest)
        self.d.ask("DELETE", path)
        snippet = {"code": "print(1)", "language": "python"}
        for more in ({"network": {"rules": [rule], "limits": many}}, {"network": few, "limits": many}):
            self.forbidden(self.d.ask("POST", "/v1/run", {**snippet, **more}, tcp=True, key=user), rest)
        tool = {"source_code": "def f():\n    \"\"\"x\"\"\"\n    return 1\n", "brig": {"network": few, "limits": many}}
        self.forbidden(self.d.ask("POST", "/v1/tools/", tool, tcp=True, key=user), rest)


class Changes(NetworkTest):
    def test_another_policy_at_once(self):
        s = self.d.create(network=self.net.policy("api.test"))
        number, server = self.hold(s["id"])
        server.sendall(b"one\n")
        wait_until("one has arrived", lambda: "one" in self.output(s["id"], number))
        answer = self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}",
                            {"network": self.net.policy("other.test", ports=[self.net.http, self.net.more])})
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.json["network"]["version"], 2)
        wait_until("the open connection is cut", lambda: any(w in self.output(s["id"], number) for w in ("CUT", "END")))
        self.assertIn("FAILED", self.says(s["id"], f"http://api.test:{self.net.http}/"))
        self.assertIn("web GET", self.says(s["id"], f"http://other.test:{self.net.http}/"))
        # a port that had no listener before
        self.assertIn("more GET", self.says(s["id"], f"http://other.test:{self.net.more}/"))
        wait_until("it is in the audit log",
                   lambda: [e for e in self.events(s["id"], "network.update") if e["outcome"] == "ok"])
        # Nothing, and back.
        self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}",
                                    {"network": "none", "metadata": {"a": "b"}}).status,
                         200)
        self.assertEqual(self.inspect(s["id"])["metadata"], {"a": "b"})
        self.assertIn("FAILED", self.says(s["id"], f"http://other.test:{self.net.http}/"))
        self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}",
                                    {"network": self.net.policy("api.test")}).json["network"]["version"],
                         4)
        self.assertIn("web GET", self.says(s["id"], f"http://api.test:{self.net.http}/"))

    def test_updates_under_load(self):
        s = self.d.create(network=self.net.policy("api.test"))
        answer = self.d.ask("POST", f"/v1/sandboxes/{s['id']}/processes",
                            {"argv": ["/usr/bin/python3", "-c", LOAD, f"http://api.test:{self.net.http}/load"]})
        number = answer.json.get("process", answer.json.get("number"))
        wait_until("it has begun", lambda: any(path == "/load" for _, _, path, _, _ in self.net.seen))
        for i in range(40):
            more = ["other.test"] if i % 2 == 0 else []
            version = self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}",
                                 {"network": self.net.policy("api.test", *more)}).json["network"]["version"]
            self.assertEqual(version, i + 2)
        self.d.sh(s["id"], "touch /workspace/stop")
        self.d.ask("GET", f"/v1/sandboxes/{s['id']}/processes/{number}/wait?timeout=30")
        good, bad = self.output(s["id"], number).split()[:2]
        self.assertGreater(int(good), 0)
        self.assertEqual(bad, "0", self.output(s["id"], number))  # what every version allows is never disturbed
        self.assertIn("FAILED", self.says(s["id"], f"http://other.test:{self.net.http}/"))

    def test_refused_changes_change_nothing(self):
        s = self.d.create(network=self.net.policy("api.test"))
        none = self.d.create()
        self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}", {"network": {"rules": 7}}).status, 400)
        self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}", {"network": "nope"}).status, 422)
        self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{none['id']}", {"network": "open"}).status, 409)
        self.assertEqual(self.inspect(s["id"])["network"]["version"], 1)
        self.assertIn("web GET", self.says(s["id"], f"http://api.test:{self.net.http}/"))

    def test_named_policies_are_followed(self):
        self.assertEqual(self.d.ask("PUT", "/v1/policies/mine", self.net.policy("api.test")).status // 100, 2)
        s = self.d.create(network="mine")
        self.assertEqual(s["network"]["policy"], "mine")
        self.assertIn("web GET", self.says(s["id"], f"http://api.test:{self.net.http}/"))
        self.assertEqual(self.d.ask("PUT", "/v1/policies/mine", self.net.policy("other.test")).status // 100, 2)
        wait_until("the sandbox follows", lambda: self.inspect(s["id"])["network"]["version"] > s["network"]["version"])
        self.assertIn("FAILED", self.says(s["id"], f"http://api.test:{self.net.http}/"))
        self.assertIn("web GET", self.says(s["id"], f"http://other.test:{self.net.http}/"))
        self.d.ask("DELETE", "/v1/policies/mine")
        self.assertIn("web GET", self.says(s["id"], f"http://other.test:{self.net.http}/"))  # what it has, it keeps

    def test_a_paused_sandbox_keeps_its_connections(self):
        s = self.d.create(network=self.net.policy("api.test"))
        number, server = self.hold(s["id"])
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{s['id']}/pause").status, 200)
        server.sendall(b"while you slept\n")
        arrived(server)
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{s['id']}/resume").status, 200)
        wait_until("it arrives", lambda: "while you slept" in self.output(s["id"], number))


class Deaths(NetworkTest):
    def kill(self, name):
        pid = self.d.children()[name]
        os.kill(pid, signal.SIGKILL)
        wait_until(f"a new {name}", lambda: self.d.children().get(name, pid) != pid)
        self.d.wait_ready()
        wait_until("they are connected", lambda: self.metric("network_up") == 1)

    def works(self, sandbox):
        self.assertEqual(self.says(sandbox, f"http://api.test:{self.net.http}/"),
                         f"web GET api.test:{self.net.http} /\n")
        self.assertIn("FAILED", self.says(sandbox, f"http://other.test:{self.net.http}/"))

    def test_brigd_dies(self):
        s = self.d.create(network=self.net.policy("api.test"))
        self.works(s["id"])
        number, server = self.hold(s["id"])
        before = self.inspect(s["id"])["network"]
        self.kill("brigd")
        server.sendall(b"still here\n")
        wait_until("an open connection outlives brigd", lambda: "still here" in self.output(s["id"], number))
        self.works(s["id"])
        after = self.inspect(s["id"])["network"]
        self.assertEqual((after["policy"], after["version"]), (before["policy"], before["version"]))
        self.assertGreater(after["bytes_in"], before["bytes_in"])
        self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{s['id']}",
                                    {"network": self.net.policy("other.test")}).json["network"]["version"],
                         before["version"] + 1)

    def test_brig_egress_dies(self):
        s = self.d.create(network=self.net.policy("api.test"))
        none = self.d.create()
        self.works(s["id"])
        before = self.inspect(s["id"])["network"]["bytes_in"]
        number, _ = self.hold(s["id"])
        self.kill("brig-egress")
        wait_until("its connections are cut", lambda: any(w in self.output(s["id"], number) for w in ("CUT", "END")))
        wait_until("the same listeners are served again",
                   lambda: "web GET" in self.says(s["id"], f"http://api.test:{self.net.http}/"))
        self.works(s["id"])
        self.assertGreater(self.inspect(s["id"])["network"]["bytes_in"], before)  # counters go on
        self.assertEqual(self.d.run(none["id"], "/bin/echo", "x")["stdout"], "x\n")
        self.assertGreaterEqual(self.metric("network_restarts_total"), 1)

    def test_brig_egress_dies_under_load(self):
        s = self.d.create(network=self.net.policy("api.test"))
        answer = self.d.ask("POST", f"/v1/sandboxes/{s['id']}/processes",
                            {"argv": ["/usr/bin/python3", "-c", LOAD, f"http://api.test:{self.net.http}/stress"]})
        number = answer.json.get("process", answer.json.get("number"))
        for _ in range(3):
            before = len(self.net.seen)
            wait_until("requests arrive", lambda: len(self.net.seen) > before + 5)  # pylint: disable=cell-var-from-loop
            self.kill("brig-egress")
        before = len(self.net.seen)
        wait_until("requests arrive again", lambda: len(self.net.seen) > before + 5)
        self.d.sh(s["id"], "touch /workspace/stop")
        self.d.ask("GET", f"/v1/sandboxes/{s['id']}/processes/{number}/wait?timeout=30")
        self.works(s["id"])

    def test_both_die(self):
        s = self.d.create(network=self.net.policy("api.test"))
        os.kill(self.d.children()["brig-egress"], signal.SIGKILL)
        self.kill("brigd")
        wait_until("it works", lambda: "web GET" in self.says(s["id"], f"http://api.test:{self.net.http}/"))
        self.works(s["id"])

    def test_a_recreated_sandbox_has_its_network(self):
        s = self.d.create(network=self.net.policy("api.test"), on_death="recreate")
        boot = s["boot_id"]
        self.d.sh(s["id"], "kill -9 -1; kill -9 1")
        victims = [p for p in os.listdir("/proc") if p.isdigit() and self.environ(p, s["id"])]
        for pid in victims:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not victims:
            self.skipTest("its init could not be found")
        wait_until("it is made anew",
                   lambda: self.inspect(s["id"])["boot_id"] != boot and self.inspect(s["id"])["state"] == "running")
        self.works(s["id"])
        self.assertEqual(self.metric("network_sandboxes"), 1)

    @staticmethod
    def environ(pid, sandbox):
        try:
            with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
                return sandbox in f.read()
        except OSError:
            return False

    def test_many_leave_nothing(self):
        self.d.create(network=self.net.policy("api.test"))
        pids = self.d.children()
        self.tearDown()
        before = steady(lambda: {name: descriptors(pid) for name, pid in pids.items()})
        for _ in range(100):
            s = self.d.create(network=self.net.policy("api.test"))
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{s['id']}").status, 204)
        self.assertEqual(self.metric("network_sandboxes"), 0)
        wait_until("the descriptors are as before",
                   lambda: all(descriptors(pids[name]) <= before[name] + 8 for name in pids))
        self.assertEqual(self.d.children(), pids)

    def test_creates_that_fail_leave_nothing(self):
        pids = self.d.children()
        before = descriptors(pids["brig-egress"])
        for _ in range(20):
            answer = self.d.ask("POST", "/v1/sandboxes",
                                {"network": self.net.policy("api.test"), "workdir": "/usr/not/here"})
            self.assertEqual(answer.status, 400, answer)
            self.assertIn("workdir /usr/not/here", answer.json["error"]["message"])
        wait_until("none is counted", lambda: self.metric("network_sandboxes") == 0)
        wait_until("the listeners are gone", lambda: descriptors(pids["brig-egress"]) <= before + 4)


class Kept(NetworkTest):
    """on_shutdown = "keep" (test_service_keep.py has the rest): nothing is carried while there is no brig-egress, and
    all of it again afterwards."""

    CONFIG = '[server]\non_shutdown = "keep"\n'

    def test_a_network_from_one_service_to_the_next(self):
        s = self.d.create(network=self.net.policy("api.test"))["id"]
        url = f"http://api.test:{self.net.http}/"
        self.assertIn("web GET", self.says(s, url))
        number, _ = self.hold(s)
        before = self.inspect(s)["network"]
        self.d.stop()
        self.d.start()
        self.setUp()
        wait_until("its connections were cut", lambda: any(w in self.output(s, number) for w in ("CUT", "END")))
        wait_until("the same listeners are served again", lambda: "web GET" in self.says(s, url))
        self.assertIn("FAILED", self.says(s, f"http://other.test:{self.net.http}/"))
        after = self.inspect(s)["network"]
        self.assertEqual((after["policy"], after["version"]), (before["policy"], before["version"]))


class Secrets(NetworkTest):
    VALUE = "real-value-51c0ffee"

    def put(self, name, broker=None, value=None):
        body = {"value": value or self.VALUE}
        if broker:
            body["broker"] = broker
        answer = self.d.ask("PUT", f"/v1/secrets/{name}", body)
        self.assertEqual(answer.status // 100, 2, answer)

    def broker(self, *hosts):
        return {"hosts": [f"{h}:{self.net.tls}" for h in hosts], "header": "Authorization", "format": "Bearer %s"}

    def test_a_secret_that_is_used_and_not_seen(self):
        self.put("TOKEN", self.broker("secret.test"))
        s = self.d.create(network=self.net.policy("secret.test", "api.test"),
                          secrets=[{"name": "TOKEN", "env": "API_TOKEN"}])
        held = self.d.sh(s["id"], "echo $API_TOKEN; echo $SSL_CERT_FILE")["stdout"].split()
        self.assertTrue(held[0].startswith("brig-secret-"), held)
        self.assertEqual(held[1], "/etc/ssl/certs/ca-certificates.crt")
        code = ("import os, ssl, sys, urllib.request\n"
                "r = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + "
                "os.environ['API_TOKEN']})\n"
                "print(urllib.request.urlopen(r, timeout=20).read().decode())\n")
        receipt = self.d.run(s["id"], "/usr/bin/python3", "-c", code, f"https://secret.test:{self.net.tls}/with")
        self.assertEqual(receipt["outcome"]["exit_code"], 0, receipt)
        came = [h for _, host, path, h, _ in self.net.seen if path == "/with"]
        self.assertEqual(came[-1]["Authorization"], f"Bearer {self.VALUE}")
        wait_until("its use is in the audit log",
                   lambda: [e for e in self.events(s["id"], "secret.use") if "secret=TOKEN" in e["detail"]])
        # Elsewhere the placeholder stays one, and is told.
        self.d.run(s["id"], "/usr/bin/python3", "-c", code, f"http://api.test:{self.net.http}/else")
        came = [h for _, host, path, h, _ in self.net.seen if path == "/else"]
        for headers in came:
            self.assertNotIn(self.VALUE, headers["Authorization"])
        wait_until("that is in the audit log",
                   lambda: [e for e in self.events(s["id"], "secret.foreign") if "secret=TOKEN" in e["detail"]])
        # Nothing of it is anywhere: not in the sandbox's document, the log, the audit.
        self.assertNotIn(self.VALUE,
                         json.dumps(self.inspect(s["id"])) + json.dumps(self.audit(s["id"])) + self.d.text())

    def test_the_authority_outlives_brig_egress(self):
        self.put("TOKEN", self.broker("secret.test"))
        s = self.d.create(network=self.net.policy("secret.test"), secrets=[{"name": "TOKEN", "env": "API_TOKEN"}])
        code = ("import os, sys, urllib.request\n"
                "r = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + "
                "os.environ['API_TOKEN']})\n"
                "print(urllib.request.urlopen(r, timeout=20).read().decode())\n")

        def works():
            return self.d.run(s["id"], "/usr/bin/python3", "-c", code,
                              f"https://secret.test:{self.net.tls}/again")["outcome"]["exit_code"] == 0

        self.assertTrue(works())
        for _ in range(2):
            os.kill(self.d.children()["brig-egress"], signal.SIGKILL)
            wait_until("the same authority signs again", works)
        self.assertEqual(self.events(s["id"], "network.authority"), [])
        self.assertEqual({h["Authorization"] for _, _, path, h, _ in self.net.seen if path == "/again"},
                         {f"Bearer {self.VALUE}"})

    def test_what_is_refused(self):
        self.put("BARE")
        self.put("FAR", self.broker("elsewhere.test"))
        for secrets, network, words in (([{"name": "BARE"}], self.net.policy("api.test"), "has no broker rule"),
                                        ([{"name": "NOPE"}], "none", "no secret of that name"),
                                        ([{"name": "FAR"}], self.net.policy("api.test"),
                                         "allows none of its hosts (elsewhere.test"),
                                        ([{"name": "FAR"}], "none", "allows none of its hosts")):
            answer = self.d.ask("POST", "/v1/sandboxes", {"network": network, "secrets": secrets})
            self.assertEqual(answer.status, 422, answer)
            self.assertIn(words, answer.json["error"]["message"])
        self.assertEqual(self.metric("network_sandboxes"), 0)

    def test_exposed_on_purpose(self):
        self.put("BARE")
        s = self.d.create(secrets=[{"name": "BARE", "expose": True}])
        self.assertEqual(s["network"], "none")
        self.assertEqual(self.d.sh(s["id"], "echo $BARE")["stdout"].strip(), self.VALUE)
        wait_until("it is in the audit log", lambda: self.events(s["id"], "secret.expose"))
        self.replace_brigd()
        self.assertEqual(self.d.sh(s["id"], "echo $BARE")["stdout"].strip(), self.VALUE)

    def test_a_placeholder_outlives_brigd(self):
        self.put("TOKEN", self.broker("secret.test"))
        s = self.d.create(network=self.net.policy("secret.test"), secrets=[{"name": "TOKEN"}])
        before = self.d.sh(s["id"], "echo $TOKEN")["stdout"]
        self.replace_brigd()
        self.assertEqual(self.d.sh(s["id"], "echo $TOKEN")["stdout"], before)


class CommandLine(NetworkTest):
    def brig(self, *argv, **kw):
        return brig(*argv, env=self.d.env, **kw)

    def test_create_and_run(self):
        policy = os.path.join(self.net.dir, "policy.json")
        with open(policy, "w", encoding="ascii") as f:
            json.dump(self.net.policy("api.test"), f)
        url = f"http://api.test:{self.net.http}/"
        done = self.brig("create", "-q", "--policy", policy, "--deny", "other.test", "--net-bytes-in", "1m",
                         "--connections", "7")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        sandbox = done.stdout.decode().strip()
        self.assertEqual(self.inspect(sandbox)["limits"]["connections"], 7)
        done = self.brig("exec", sandbox, "/usr/bin/python3", "-c", GET, url)
        self.assertEqual(done.stdout.decode(), f"web GET api.test:{self.net.http} /\n", done)
        done = self.brig("run", "--policy", policy, "--", "/usr/bin/python3", "-c", GET, url)
        self.assertEqual(done.stdout.decode(), f"web GET api.test:{self.net.http} /\n", done)
        self.assertEqual(self.metric("network_sandboxes"), 1)  # the run's is gone

    def test_secrets(self):
        broker = {"hosts": [f"secret.test:{self.net.tls}"], "header": "Authorization", "format": "Bearer %s"}
        self.assertEqual(self.d.ask("PUT", "/v1/secrets/TOKEN", {"value": "a-value-1", "broker": broker}).status // 100,
                         2)
        done = self.brig("create", "-q", "--allow", f"secret.test:{self.net.tls}", "--secret", "TOKEN=MINE")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn("brig-secret-", self.d.sh(done.stdout.decode().strip(), "echo $MINE")["stdout"])
        done = self.brig("create", "-q", "--allow", "elsewhere.test", "--secret", "TOKEN")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"allows none of its hosts", done.stderr)


class Default(NetworkTest):
    CONFIG = "[sandbox]\nnetwork_enabled = true\n"

    def test_network_enabled_means_open(self):
        self.assertEqual(self.d.create()["network"]["policy"], "open")
        self.assertEqual(self.d.create(network="none")["network"], "none")


class Packages(NetworkTest):
    """The preset `packages` has the index that the host's own pip is configured with; read again on SIGHUP."""

    def configure(self, name):
        with open(os.path.join(self.home, ".config", "pip", "pip.conf"), "w", encoding="ascii") as f:
            f.write(f"[global]\nindex-url = http://{name}:{self.net.http}/simple\n")

    def reached(self, name):
        s = self.d.create(network={"extends": "packages",
                                   "rules": [{"action": "allow", "cidr": "127.0.0.1/32", "ports": [self.net.http]}]})
        said = self.says(s["id"], f"http://{name}:{self.net.http}/simple/x")
        self.d.ask("DELETE", f"/v1/sandboxes/{s['id']}")
        return "web GET" in said

    def test_the_hosts_index(self):
        self.home = os.path.join(self.net.dir, "home")
        os.makedirs(os.path.join(self.home, ".config", "pip"), exist_ok=True)
        self.configure("third.test")
        self.d.close()
        type(self).d = Daemon(self.net.config(), env={"HOME": self.home})
        self.setUp()
        self.assertTrue(self.reached("third.test"))
        self.assertFalse(self.reached("other.test"))
        self.configure("other.test")
        self.d.process.send_signal(signal.SIGHUP)
        wait_until("the new index is known", lambda: self.reached("other.test"))
        self.assertFalse(self.reached("third.test"))


@unittest.skipUnless(os.geteuid() == 0, "becoming somebody else needs root")
class Rootless(Policies):
    """The same for a plain user, without subordinate ids."""

    USER = 64999

    def test_open_and_back(self):
        s = self.d.create(network=self.net.policy("api.test"))
        os.kill(self.d.children()["brig-egress"], signal.SIGKILL)
        wait_until("the same listeners are served again",
                   lambda: "web GET" in self.says(s["id"], f"http://api.test:{self.net.http}/"))


class WithoutEgress(unittest.TestCase):
    """brig-egress is not there, or dies at once: the service serves, and says what is missing."""

    def helpers(self, egress):
        at = tempfile.mkdtemp(prefix="brig-helpers-")
        self.addCleanup(shutil.rmtree, at, True)
        os.chmod(at, 0o755)
        for name in ("brigd", "brig-spawner", "brig-init"):
            shutil.copy2(os.path.join(HELPERS, name), at)
        if egress:
            shutil.copy2("/bin/false", os.path.join(at, "brig-egress"))
        return at

    @unittest.skipUnless(HELPERS, "the helpers' place is not known")
    def test_none_works_all_the_same(self):
        for egress in (False, True):
            with self.subTest(dies=egress):
                d = Daemon(env={"BRIG_LIBEXEC_DIR": self.helpers(egress)})
                try:
                    s = d.create()
                    self.assertEqual(d.run(s["id"], "/bin/echo", "x")["stdout"], "x\n")
                    end = time.monotonic() + PATIENCE
                    while True:  # one that dies at once may just be there
                        answer = d.ask("POST", "/v1/sandboxes", {"network": "open"})
                        self.assertEqual(answer.status, 503, answer)
                        if "brig-egress" in answer.json["error"]["message"] or time.monotonic() > end:
                            break
                    self.assertIn("brig-egress", answer.json["error"]["message"])
                    self.assertIn("brig-egress", d.text())
                    self.assertIn("brig_network_up 0", d.ask("GET", "/metrics").body.decode())
                finally:
                    d.close()


if __name__ == "__main__":
    unittest.main()
