# SPDX-License-Identifier: Apache-2.0
"""The gate under load: floods do not reach a neighbour, rates and budgets hold, a policy changes and brig-egress dies
while requests are under way, and nothing that is forbidden gets through at any moment of it. As root and as a plain
user.
"""

import json
import os
import signal
import threading
import unittest

from attackkit import INSIDE, Attack
from helpers import steady, wait_until
from internet import DNS, OTHER, OTHER6, PUBLIC, PUBLIC6, Internet
from jailkit import IS_ROOT, PLAIN_ID

NET = None
ONLY = {"rules": [{"action": "allow", "domain": "allowed.test"}]}
BOTH = {"rules": [{"action": "allow", "domain": "allowed.test"}, {"action": "allow", "domain": "other.test"}]}

# Until it gets SIGUSR1.
FLOOD = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
stop, did, kept = threading.Event(), {"connects": 0, "questions": 0, "resets": 0}, []
def connects(ip):
    while not stop.is_set():
        try:
            s = socket.socket(); s.settimeout(1); s.connect((ip, 80)); s.close()
        except OSError: did["resets"] += 1
        did["connects"] += 1
def half_open():
    while not stop.is_set():
        try:
            s = socket.socket(); s.settimeout(1); s.connect((F, 80)); s.send(b"G"); kept.append(s)
        except OSError: did["resets"] += 1
        if len(kept) > 300: kept.pop(0)
def questions():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)
    q = [question("%d.other.test" % i) for i in range(50)] + [question("allowed.test")]
    while not stop.is_set():
        for m in q:
            try: s.sendto(m, ("8.8.8.8", 53))
            except OSError: pass
            did["questions"] += 1
F = look_up("allowed.test", 2)
threads = [threading.Thread(target=f, args=a) for f, a in ((connects, ("203.0.113.11",)), (connects, (F,)), \
(half_open, ()), (questions, ()))]
for t in threads: t.start()
while not (did["connects"] and did["questions"] and kept): time.sleep(0.01)
print("flooding", flush=True)
signal.sigwait({signal.SIGUSR1})
stop.set()
for t in threads: t.join()
tell(**did)
"""

SILENT = """
T = 1.5
tell(*at_once(lambda: get("198.19.0.0", "allowed.test"), lambda: dns("allowed.test"), lambda: get("203.0.113.11"), \
lambda: get("127.0.0.1"), lambda: say("203.0.113.10", 22)))
"""

# Three connections that take their time: half a second for each byte.
DRIP = """
def drip(port, data):
    s = dial("drip.test", port); s.settimeout(0.5)
    for byte in data:
        try:
            s.send(bytes([byte]))
            if not s.recv(1): return "closed"
        except TimeoutError: continue
        except OSError as e: return "reset" if e.errno == errno.EPIPE else word(e)
    return "all went through"
print("drip", *at_once(lambda: drip(443, hello("drip.test")), lambda: drip(80, b"\\x16" + bytes(200)), \
lambda: drip(443, b"\\x16\\3\\1\\x40\\0" + bytes(200))))
"""

# Requests without pause, a TLS connection held open: one line about each that failed.
WORK = """
stop, lock = time.monotonic() + SECONDS, threading.Lock()
def out(*words):
    with lock: print(*words, flush=True)
def hold(name):
    s = dial(name, 443); s.settimeout(60); s.sendall(hello(name)); s.recv(1)
    out("held", name)
    try:
        while s.recv(65536): pass
        out("hold", name, "closed")
    except OSError as e: out("hold", name, word(e))
def ask(name):
    last, to = None, look_up(name, 2)  # once: the questions of a slot have a rate, which a fast machine reaches
    while time.monotonic() < stop:
        said = get(to, name, path="/load")
        if said.split(" ")[0] != last: last = said.split(" ")[0]; out("ask", name, said)
for name in NAMES:
    threading.Thread(target=hold, args=(name,), daemon=True).start()
    threading.Thread(target=ask, args=(name,)).start()
"""


def setUpModule():
    global NET
    if not IS_ROOT:
        raise unittest.SkipTest("needs root to make network namespaces")
    NET = Internet().usual()
    unittest.addModuleCleanup(NET.close)


class Load(Attack):
    LIMIT_SECONDS = 180

    @classmethod
    def setUpClass(cls):
        Attack.NET = NET
        super().setUpClass()
        cls.dripped = []
        NET.zone["drip.test"] = lambda kind: cls.dripped.append(kind) or [PUBLIC]
        box = cls.d.create(network={"rules": [{"action": "allow", "domain": "drip.test"}]})["id"]
        cls.drip = staticmethod(cls.run_in(cls.d, box, DRIP))

    def start(self, network, script, **members):
        """A script in the background: what it has printed so far, whenever that is asked."""
        box = self.box(network, **members)
        self.addCleanup(self.end_box, network, **members)
        return self.run_in(self.d, box, script)

    @staticmethod
    def run_in(d, box, script):
        answer = d.ask("POST", f"/v1/sandboxes/{box}/processes",
                       {"argv": ["/usr/bin/python3", "-I", "-S", "-c", INSIDE + script]})
        if answer.status != 201:
            raise AssertionError(answer)
        number = answer.json["process"] if "process" in answer.json else answer.json["number"]
        path = f"/v1/sandboxes/{box}/processes/{number}"

        def output():
            return d.ask("GET", f"{path}/output?stream=stdout&follow=0",
                         headers={"Accept": "application/octet-stream"}).body.decode()

        output.signal = lambda name: d.ask("POST", f"{path}/signal", {"signal": name})
        return output

    def end_box(self, network, **members):
        """With all that is still under way in it: no request of it arrives in the next test."""
        box = self.boxes.pop(self.key(network, **members), None)
        if box:
            self.d.ask("DELETE", f"/v1/sandboxes/{box}")
            for server in NET.servers:
                server.drain()

    def says(self, output, text):
        wait_until(text, lambda: text in output())

    # ---- floods and rates ----

    def test_R21_net_flood(self):
        flood = self.start({**ONLY, "limits": {"connections": 64}}, FLOOD)
        self.says(flood, "flooding")
        got = self.inside(ONLY, 'tell([get("allowed.test", path="/neighbour") for _ in range(20)])')[0]
        self.assertEqual(got, ["200 allowed GET allowed.test /neighbour"] * 20)
        self.assertNotIn('"resets"', flood())  # all of them while it flooded
        self.assertEqual(flood.signal("USR1").status, 204)
        self.says(flood, '"resets"')
        flooded = flood().splitlines()[-1]
        self.nothing_left(seen=["allowed.test /neighbour"] * 20, asked=["allowed.test"])
        self.row("R21", "net-flood", f"the neighbour has all of 20 answers; {flooded}")

    RATE = 400_000

    def test_R22_bandwidth(self):
        """Up and down at once, each in a sandbox of its own, and never faster than it may be: the limit is what holds
        it. That it is no slower than that is a matter of the bucket (unit:test_egress.c) and of the machine."""
        script = {"down": f"""
s = dial("allowed.test", 80); \
s.sendall(b"GET /bytes/{5 * self.RATE} HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n")
began, n = time.monotonic(), 0
while (data := s.recv(65536)): n += len(data)
tell(n, time.monotonic() - began)
""", "up": f"""
s = dial("allowed.test", 80); body = bytes({5 * self.RATE})
began = time.monotonic()
s.sendall(b"POST /sink HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % \
len(body) + body)
n = len(read_all(s)[0])
tell(len(body) + n, time.monotonic() - began)
"""}
        got = {}

        def measure(way):
            box = self.box({**ONLY, "limits": {"net_bps": self.RATE}}, name=f"rate-{self.KIND}-{way}")
            done = self.d.run(box, "/usr/bin/python3", "-I", "-S", "-c", INSIDE + script[way])
            got[way] = *self.told(done), done["outcome"]["limits_hit"]

        threads = [threading.Thread(target=measure, args=(way,)) for way in script]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        rates = {way: n / seconds for way, (n, seconds, _) in got.items()}
        for way, rate in rates.items():
            self.assertGreaterEqual(got[way][0], 5 * self.RATE)
            self.assertLess(rate, 1.1 * self.RATE, way)
            self.assertIn("net_bps", got[way][2], way)
        self.row("R22", "bandwidth",
                 *(f"{way} {100 * rate / self.RATE:.1f} % of net_bps" for way, rate in rates.items()))

    def network(self, box):
        return self.d.ask("GET", f"/v1/sandboxes/{box}").json["network"]

    def test_R22_budgets(self):
        """Exact to the byte, and over all connections of the sandbox's life."""
        policy = {**ONLY, "limits": {"net_bytes_in": 100_000}}
        got = self.inside(policy, """
def fetch():
    s = dial("allowed.test", 80); \
s.sendall(b"GET /bytes/70000 HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n")
    data, how = read_all(s)
    return len(data), how
tell(fetch(), fetch(), get("allowed.test"), tls("allowed.test", "allowed.test"))
""")
        self.assertEqual((got[0][0] + got[1][0], got[1][1]), (100_000, "reset"))
        self.assertEqual(got[2:], ["403 brig: allowed.test:80 is denied: net_bytes_in is used up", "reset"])
        self.assertEqual(self.network(self.box(policy))["bytes_in"], 100_000)
        policy = {**ONLY, "limits": {"net_bytes_out": 50_000}}
        got = self.inside(policy, """
tell(say("allowed.test", 80, \
b"POST /over HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: 900000\\r\\n\\r\\n" + bytes(900000)), \
get("allowed.test"))
""")
        self.assertEqual(got, ["reset", "403 brig: allowed.test:80 is denied: net_bytes_out is used up"])
        self.assertEqual(self.network(self.box(policy))["bytes_out"], 50_000)
        self.assertEqual([s[2] for s in NET.seen if s[2] == "/over" and s[4]], [])
        self.row("R22", "budgets", got[1])

    def test_R21_connections(self):
        policy = {**ONLY, "limits": {"connections": 8}}
        got = self.inside(policy, """
F = look_up("allowed.test", 2)
held = [dial(F, 80) for _ in range(8)]
time.sleep(0.2)
over = [get(F, "allowed.test") for _ in range(3)]
for s in held: s.close()
end = time.monotonic() + T
while (after := get(F, "allowed.test")) == "reset" and time.monotonic() < end: time.sleep(0.05)
tell(over, after)
""")
        self.assertEqual(got, [["reset"] * 3, "200 allowed GET allowed.test /"])
        self.nothing_left(seen=["allowed.test /"], asked=["allowed.test"])
        self.row("R21", "connections", "reset")

    def test_slow_first_bytes(self):
        """A byte now and then, since the class began: nobody is asked or dialled for it, and it ends."""
        self.says(self.drip, "drip ")
        self.assertEqual(self.drip().splitlines()[-1], "drip reset reset reset")
        self.assertEqual(self.dripped, [])
        self.row("R21", "slow-first-bytes", "reset")

    # ---- changes ----

    def audit(self, box):
        return [e for e in (json.loads(line)
                            for line in self.d.ask("GET", "/v1/audit?limit=1000&after=0").body.splitlines())
                if e["object"] == box]

    def patch(self, box, status=200, **members):
        answer = self.d.ask("PATCH", f"/v1/sandboxes/{box}", members)
        self.assertEqual(answer.status, status, answer)
        return answer.json

    def test_N19_hot_reload(self):
        policy = {**ONLY, "limits": {"connections": 99}}
        box = self.box(policy)
        denied = {'dns("other.test")': "REFUSED", f'get("{OTHER}")': f"403 brig: {OTHER}:80 is denied: default deny",
                  f'tls("{OTHER}", "allowed.test")': "reset"}
        self.attack(policy, denied)
        version = self.network(box)["version"]
        self.patch(box, metadata={"something": "else"})  # nothing of the network
        self.attack(policy, denied)
        self.assertEqual(self.network(box)["version"], version)
        # all or nothing
        self.patch(box, status=400,
                   network={"rules": [{"action": "allow", "domain": "other.test"}, {"action": "maybe"}]})
        self.attack(policy, denied)
        self.assertEqual(self.patch(box, network=BOTH)["network"]["version"], version + 1)
        self.assertEqual(self.inside(policy, 'tell(get("other.test", path="/now"))'), ["200 other GET other.test /now"])
        self.assertEqual(self.patch(box, network=ONLY)["network"]["version"], version + 2)
        self.attack(policy, denied)
        wait_until("the audit log has both", lambda: {f"version={version + 1}", f"version={version + 2}"}
                   <= {w for e in self.audit(box) for w in str(e.get("detail", "")).split()})
        self.nothing_left(seen=["other.test /now"], asked=["other.test"], may=(DNS, OTHER, OTHER6))
        self.row("N19", "hot-reload", *denied.values())

    def test_N19_under_load(self):
        box = self.box(BOTH, name=f"load-{self.KIND}")
        output = self.start(BOTH, WORK.replace("SECONDS", "6").replace("NAMES", '("allowed.test", "other.test")'),
                            name=f"load-{self.KIND}")
        for text in ("held other.test", "held allowed.test", "ask other.test 200", "ask allowed.test 200"):
            self.says(output, text)
        self.patch(box, network=ONLY)
        refusal = "403 brig: other.test:80 is denied: default deny"
        # from the answer on nothing begins that is forbidden
        got = self.inside(BOTH, 'tell(*[get("other.test", path="/after") for _ in range(20)])',
                          name=f"load-{self.KIND}")
        self.assertEqual(set(got) - {"EAI_AGAIN", refusal}, set())
        self.says(output, "hold other.test reset")
        self.says(output, f"ask other.test {refusal}")
        count = len([s for s in NET.seen if s[1] == "other.test"])
        self.assertEqual(self.inside(BOTH, 'tell(get("allowed.test", path="/fine"))', name=f"load-{self.KIND}"),
                         ["200 allowed GET allowed.test /fine"])
        got = self.inside(BOTH, 'tell(*[get("other.test", path="/after") for _ in range(20)])',
                          name=f"load-{self.KIND}")
        self.assertEqual(set(got) - {"EAI_AGAIN", refusal}, set())
        self.assertEqual(len([s for s in NET.seen if s[1] == "other.test"]), count)
        self.assertNotIn("/after", [s[2] for s in NET.seen])
        self.assertNotIn("hold allowed.test", output())  # who may stay, stays
        self.assertEqual([line for line in output().splitlines() if line.startswith("ask allowed.test")],
                         ["ask allowed.test 200 allowed GET allowed.test /load"])
        self.row("N19", "under-load", "held connection: reset", refusal)

    def egress(self):
        try:
            return self.d.children().get("brig-egress")
        except FileNotFoundError:  # one has just gone
            return None

    def test_when_brig_egress_is_killed(self):
        who = {"name": f"kill-{self.KIND}"}
        output = self.start(ONLY, WORK.replace("SECONDS", "8").replace("NAMES", '("allowed.test",)'), **who)
        self.says(output, "held allowed.test")
        self.says(output, "ask allowed.test 200")
        old = self.egress()
        self.d.process.send_signal(signal.SIGSTOP)  # who would start it again
        try:
            os.kill(old, signal.SIGKILL)
            self.says(output, "hold allowed.test")
            count = steady(lambda: len(NET.seen))
            got = self.inside(ONLY, SILENT, **who)
            self.assertEqual(got, ["silence"] * 4 + ["ECONNREFUSED"])
            self.assertEqual(len(NET.seen), count)  # nothing is carried
        finally:
            self.d.process.send_signal(signal.SIGCONT)
        wait_until("a new one", lambda: self.egress() not in (None, old))
        wait_until("it works again", lambda: self.inside(ONLY, 'tell(get("allowed.test", path="/again"))',
                                                         **who) == ["200 allowed GET allowed.test /again"])
        self.attack(ONLY,
                    {'dns("other.test")': "REFUSED", f'get("{OTHER}")': f"403 brig: {OTHER}:80 is denied: default deny",
                     f'tls("{OTHER}", "allowed.test")': "reset"}, **who)
        self.end_box(ONLY, **who)
        self.assertEqual({label for label, _ in NET.reached}, {"allowed"})
        self.assertEqual({f"{s[1]} {s[2]}" for s in NET.seen}, {f"allowed.test {p}" for p in ("/load", "/again", "/")})
        self.nothing_left(seen=[f"{s[1]} {s[2]}" for s in NET.seen], asked=["allowed.test"], may=(DNS, PUBLIC, PUBLIC6))
        self.row("--", "egress-killed", "silence while it is dead; then as before")


@unittest.skipUnless(IS_ROOT, "needs root to make network namespaces")
class Root(Load, unittest.TestCase):
    KIND = "root"


@unittest.skipUnless(IS_ROOT, "needs root to make network namespaces")
class Rootless(Load, unittest.TestCase):
    KIND, USER = "rootless", PLAIN_ID


if __name__ == "__main__":
    unittest.main()
