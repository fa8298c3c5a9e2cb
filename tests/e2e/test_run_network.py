# SPDX-License-Identifier: Apache-2.0
"""`brig run` with a network: what the flags allow works with unmodified programs, what they do not is refused in
exactly one way, and nothing of it leaves the machine. The same tests without a daemon, as root and as a plain user, and
with one.
"""

import json
import os
import signal
import threading
import unittest

from helpers import brig, environment, wait_until
from internet import OTHER, PRIVATE, PUBLIC, Internet
from jailkit import IS_ROOT, PLAIN_ID, SH, JailTest, World
from service import Daemon

NET = None
CURL = ("curl", "-sS", "--max-time", "10")
RESOLVE, REFUSED = (6,), (7,)  # curl's exit codes
CUT = (7, 35)  # accepted and reset: curl may find out before or after it has begun to speak


def setUpModule():
    global NET
    if not IS_ROOT:
        raise unittest.SkipTest("needs root to make network namespaces")
    NET = Internet().usual()
    NET.web(PUBLIC, 8443, "eight", "allowed.test")
    unittest.addModuleCleanup(NET.close)


class Flags:
    """Mixed into a caller of each kind."""

    VIA = "local"
    LIMIT_SECONDS = 120

    def setUp(self):
        del NET.asked[:], NET.seen[:]

    def environment(self):
        return {k: v for k, v in NET.environment().items() if k.startswith("BRIG_GATE_")}

    def run_in(self, *args, **kw):
        return NET.here.inside(lambda: self.w.run(*args, env=self.environment(), **kw))

    def run_json(self, *args, status=0):
        done = self.run_in("-o", "json", *args)
        self.assertEqual(done.returncode, status, done)
        return json.loads(done.stdout)

    def curl(self, flags, *words, status=(0,)):
        done = self.run_in(*flags, "--", *CURL, *words)
        self.assertIn(done.returncode, status, done)
        return done.stdout.decode()

    # ---- what is allowed ----

    def test_one_host_by_https(self):
        r = self.run_json("--allow", "allowed.test", "--", *CURL, "https://allowed.test/x")
        self.assertEqual(r["stdout"], "allowed GET allowed.test /x\n")
        self.assertEqual(r["via"], self.VIA)
        self.assertEqual((r["network"]["policy"], r["network"]["version"]), ("custom", 1))
        self.assertEqual(r["network"]["decisions"], {"allowed": 1, "denied": 0})
        self.assertGreater(r["usage"]["net_in_bytes"], 500)
        self.assertGreater(r["usage"]["net_out_bytes"], 200)
        self.assertEqual(r["outcome"]["limits_hit"], [])

    def test_one_host_by_http(self):
        self.assertEqual(self.curl(["--allow", "allowed.test"], "http://allowed.test/y?z"),
                         "allowed GET allowed.test /y?z\n")

    def test_python(self):
        script = ("import urllib.request as r\nfor u in ('http', 'https'): print(r.urlopen(u + '://allowed.test/p', "
                  "timeout=10).read().decode(), end='')")
        done = self.run_in("--allow", "allowed.test", "--", "/usr/bin/python3", "-I", "-c", script)
        self.assertEqual((done.returncode, done.stdout), (0, b"allowed GET allowed.test /p\n" * 2), done)

    def test_a_port(self):
        self.assertEqual(self.curl(["--allow", "allowed.test:8443"], "https://allowed.test:8443/"),
                         "eight GET allowed.test:8443 /\n")

    def test_names_below(self):
        self.assertEqual(self.curl(["--allow", "*.allowed.test"], "https://www.allowed.test/"),
                         "allowed GET www.allowed.test /\n")
        self.curl(["--allow", "*.allowed.test"], "https://allowed.test/", status=RESOLVE)

    def test_an_address(self):
        self.assertEqual(self.curl(["--allow", PUBLIC], f"http://{PUBLIC}/"), f"allowed GET {PUBLIC} /\n")
        self.assertEqual(self.curl(["--allow", "203.0.113.0/24"], f"http://{OTHER}/"), f"other GET {OTHER} /\n")

    def test_a_private_range_that_is_named(self):
        self.assertEqual(self.curl(["--allow", "private.test", "--allow", "10.0.0.0/8"], "http://private.test/"),
                         "private GET private.test /\n")

    def test_a_policy_from_a_file(self):
        path = self.w.file("policy.json", json.dumps({"rules": [{"action": "allow", "domain": "other.test"}]}))
        self.assertEqual(self.curl(["--policy", path], "http://other.test/"), "other GET other.test /\n")
        self.assertEqual(self.curl(["--policy", path, "--allow", "allowed.test"], "http://allowed.test/"),
                         "allowed GET allowed.test /\n")
        self.curl(["--policy", path, "--deny", "other.test"], "http://other.test/", status=RESOLVE)

    def test_its_own_servers(self):
        script = ("import socket, threading\ns = socket.create_server(('127.0.0.1', 8000))\n"
                  "threading.Thread(target=lambda: s.accept()[0].sendall(b'own')).start()\n"
                  "print(socket.create_connection(('127.0.0.1', 8000)).recv(9))")
        done = self.run_in("--allow", "allowed.test", "--", "/usr/bin/python3", "-I", "-c", script)
        self.assertEqual((done.returncode, done.stdout), (0, b"b'own'\n"), done)

    # ---- what is not ----

    def test_another_host(self):
        r = self.run_json("--allow", "allowed.test", "--", *CURL, "https://other.test/", status=RESOLVE[0])
        self.assertEqual((NET.asked, NET.seen), ([], []))  # the question did not leave
        self.assertEqual(r["network"]["decisions"]["allowed"], 0)
        self.assertGreater(r["network"]["decisions"]["denied"], 0)

    def test_another_port(self):
        self.curl(["--allow", "allowed.test"], "https://allowed.test:8443/", status=REFUSED)
        self.assertEqual(NET.seen, [])

    def test_an_address_instead_of_the_name(self):
        self.curl(["--allow", "allowed.test"], "-k", f"https://{PUBLIC}/", status=CUT)
        self.assertEqual(self.curl(["--allow", "allowed.test"], "-o", "/dev/null", "-w", "%{http_code}",
                                   f"http://{PUBLIC}/"),
                         "403")
        self.assertEqual(NET.seen, [])

    def test_a_name_that_is_private(self):
        for name in ("private.test", "metadata.test", "inner.test", "loop.test"):
            with self.subTest(name):
                said = self.run_in("--allow", name, "--", *CURL, "-o", "/dev/null", "-w", "%{http_code}",
                                   f"http://{name}/")
                self.assertEqual(said.stdout, b"403", said)
                self.curl(["--allow", name], "-k", f"https://{name}/", status=CUT)
        self.assertEqual(NET.seen, [])

    def test_a_private_address(self):
        for address in PRIVATE:
            with self.subTest(address):
                self.assertEqual(self.curl(["--net", "open"], "-o", "/dev/null", "-w", "%{http_code}",
                                           f"http://{address}/"),
                                 "403")
        self.assertEqual(NET.seen, [])

    def test_deny_wins(self):
        self.curl(["--allow", "*.allowed.test", "--deny", "www.allowed.test"], "https://www.allowed.test/",
                  status=RESOLVE)
        self.curl(["--net", "open", "--deny", "other.test"], "https://other.test/", status=RESOLVE)
        self.curl(["--net", "open", "--deny", "other.test:443"], "https://other.test/", status=CUT)
        self.assertEqual(self.curl(["--net", "open", "--deny", "other.test:443"], "http://other.test/"),
                         "other GET other.test /\n")

    def test_none(self):
        for flags in ([], ["--net", "none"]):
            self.curl(flags, "https://allowed.test/", status=RESOLVE)
            self.curl(flags, f"http://{PUBLIC}/", status=REFUSED)
        self.assertEqual((NET.asked, NET.seen), ([], []))
        self.assertEqual(self.run_json("--net", "none", "--", "true")["network"], {"policy": "none"})

    # ---- refused before anything runs ----

    def refuses(self, flags, message):
        done = self.run_in(*flags, "--", "true")
        self.assertEqual((done.returncode, done.stdout), (125, b""), done)
        self.assertRegex(done.stderr.decode(), "^brig: " + message + "\n$")

    def test_bad_policies(self):
        self.refuses(["--allow", "bad_name!"], r"(network: )?rules\[0\]\.domain: .*")
        path = self.w.file("bad.json", '{"rules": [{"action": "maybe", "domain": "x.org"}]}')
        self.refuses(["--policy", path], r"(network: )?rules\[0\]\.action: .*")
        path = self.w.file("odd.json", '{"rule": []}')
        self.refuses(["--policy", path], ".*rule.*")
        self.refuses(["--allow", "10.0.0.1/8"], ".*10.0.0.1/8.*")

    def test_limits_without_a_network(self):
        self.refuses(["--net-bps", "1m"],
                     "--net-bytes-in, --net-bytes-out, --net-bps, --connections: there is no network; .*")

    # ---- learning ----

    def test_learn(self):
        script = ("curl -s https://allowed.test/ >/dev/null; curl -s http://other.test/ >/dev/null; curl -s "
                  "http://10.77.0.10/ >/dev/null; true")
        done = self.run_in("--net", "learn", *SH, script)
        self.assertEqual(done.returncode, 0, done)
        policy = json.loads(done.stderr)
        self.assertEqual({(r["domain"], r["action"]) for r in policy["rules"]},
                         {("allowed.test", "allow"), ("other.test", "allow")})
        path = self.w.file("learned.json", done.stderr)
        self.assertEqual(self.curl(["--policy", path], "https://allowed.test/"), "allowed GET allowed.test /\n")
        self.assertEqual(self.curl(["--policy", path], "http://other.test/"), "other GET other.test /\n")
        self.curl(["--policy", path], "https://www.allowed.test/", status=RESOLVE)
        r = self.run_json("--net", "learn", *SH, "curl -s https://allowed.test/ >/dev/null")
        self.assertEqual(r["network"]["policy"], "learn")
        self.assertEqual([x["domain"] for x in r["network"]["learned"]["rules"]], ["allowed.test"])

    # ---- limits ----

    def test_bytes(self):
        r = self.run_json("--allow", "allowed.test", "--net-bytes-in", "100k", *SH,
                          "curl -s http://allowed.test/bytes/1000000 | wc -c; true")
        self.assertLess(int(r["stdout"]), 110000)
        self.assertEqual(r["outcome"]["limits_hit"], ["net_bytes_in"])
        self.assertEqual(r["limits"]["net_bytes_in"], 102400)
        self.assertLess(r["usage"]["net_in_bytes"], 110000)

    def test_all_at_once(self):
        """Runs side by side, each with its own policy and its own gate."""
        said = {}

        def one(name, host, status):
            said[name] = (self.run_in("--allow", host, "--", *CURL, "http://allowed.test/").returncode, status)

        threads = [threading.Thread(target=one,
                                    args=(i, "allowed.test" if i % 2 else "other.test", 0 if i % 2 else RESOLVE[0]))
                   for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertTrue(all(got == want for got, want in said.values()), said)


class Alone(Flags):
    """What only a run without a daemon is about."""

    def test_what_needs_a_daemon(self):
        self.refuses(["--net", "mine"],
                     "network policy mine: policies by name need a daemon, and this run is done without one")
        self.refuses(["--secret", "KEY"], "--secret KEY: secrets need a daemon, and this run is done without one")

    def egress(self):
        return self.w.processes("brig-egress")

    def start_in(self, *args, **kw):
        process = NET.here.inside(lambda: self.w.start(*args, env=self.environment(), **kw))
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process

    def test_nothing_without_a_network(self):
        process = self.start_in("--", "sleep", "1")
        wait_until("the program", lambda: self.w.processes("sleep"))
        self.assertEqual(self.egress(), [])
        self.w.finish(process)

    def test_brig_egress_killed(self):
        process = self.start_in("-o", "json", "--allow", "allowed.test", "--", "sleep", "1000")
        wait_until("the program", lambda: self.w.processes("sleep"))
        os.kill(self.egress()[0], signal.SIGKILL)
        status, out, err = self.w.finish(process)
        self.assertEqual(status, 125, err)
        self.assertEqual(json.loads(out)["outcome"]["cause"], "host-error")
        self.assertEqual(json.loads(out)["outcome"]["detail"], "network: brig-egress died")

    def test_brig_killed(self):
        process = self.start_in("--allow", "allowed.test", "--", "sleep", "1000")
        wait_until("the program", lambda: self.w.processes("sleep"))
        process.kill()
        self.w.finish(process)
        wait_until("the end of everything", lambda: not self.w.processes())

    def test_what_brig_egress_has(self):
        """Nothing of the caller: neither environment nor descriptors nor directory."""
        process = self.start_in("--allow", "allowed.test", "--", "sleep", "1000", stdin=open("/dev/zero", "rb"))
        wait_until("the program", lambda: self.w.processes("sleep"))
        pid = self.egress()[0]
        with open(f"/proc/{pid}/environ", "rb") as f:
            self.assertEqual(f.read(), b"")
        names = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
        self.assertFalse([n for n in names if "zero" in n or n.startswith(self.w.dir)], names)
        process.send_signal(signal.SIGTERM)
        self.w.finish(process)


class Root(Alone, JailTest):
    pass


class Rootless(Alone, JailTest):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)


class WithDaemon(Flags, JailTest):
    """The same by a daemon, which lives where the internet is."""

    VIA = "daemon"
    LIMIT_SECONDS = 240

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        gate = {k: v for k, v in NET.environment().items() if k.startswith("BRIG_GATE_")}
        keys = cls.w.file("secrets.keys", brig("secret", "keygen").stdout, 0o600)
        cls.daemon = NET.here.inside(lambda: Daemon(f'[secrets]\nkey_file = "{keys}"\n', env=gate))
        cls.addClassCleanup(cls.daemon.close)

    def environment(self):
        return {"BRIG_SOCKET": self.daemon.socket}

    def verb(self, *words, stdin=None):
        done = brig(*words, stdin=stdin, env=environment(BRIG_SOCKET=self.daemon.socket))
        self.assertEqual(done.returncode, 0, done)

    def test_a_policy_by_name(self):
        path = self.w.file("named.json", json.dumps({"rules": [{"action": "allow", "domain": "other.test"}]}))
        self.verb("policy", "set", "mine", path)
        r = self.run_json("--net", "mine", "--", *CURL, "http://other.test/")
        self.assertEqual((r["stdout"], r["network"]["policy"]), ("other GET other.test /\n", "mine"))
        self.curl(["--net", "mine"], "http://allowed.test/", status=RESOLVE)
        self.assertEqual(self.curl(["--net", "mine", "--allow", "allowed.test"], "http://allowed.test/"),
                         "allowed GET allowed.test /\n")
        self.refuses(["--net", "nobodys"], ".*nobodys.*")

    def test_a_secret_that_is_used_and_not_seen(self):
        value = "the-real-value-5cf4"
        self.verb("secret", "set", "TOKEN", "--broker", "host=allowed.test,header=Authorization,format=Bearer %s",
                  stdin=value.encode())
        script = 'echo "$TOKEN"; curl -sS -H "Authorization: Bearer $TOKEN" https://allowed.test/echo'
        r = self.run_json("--allow", "allowed.test", "--secret", "TOKEN", *SH, script)
        self.assertRegex(r["stdout"], r"\Abrig-secret-[0-9a-f]{32}\n")
        self.assertNotIn(value, json.dumps(r))
        self.assertEqual([headers["Authorization"] for _, _, path, headers, _ in NET.seen if path == "/echo"],
                         [f"Bearer {value}"])

    def test_a_secret_that_nothing_brokers(self):
        self.verb("secret", "set", "PLAIN", stdin=b"as-it-is")
        self.refuses(["--allow", "allowed.test", "--secret", "PLAIN"], ".*PLAIN.*")
        r = self.run_json("--secret", "PLAIN=OTHER_NAME", "--expose", *SH, 'echo "$OTHER_NAME"')
        self.assertEqual(r["stdout"], "as-it-is\n")
        self.refuses(["--secret", "NOBODYS"], ".*NOBODYS.*")
