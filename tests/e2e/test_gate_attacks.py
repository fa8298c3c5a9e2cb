# SPDX-License-Identifier: Apache-2.0
"""Attacks on a sandbox's network, row by row (the names are those of the security study): what a hostile program gets is exactly this refusal, and nothing
of it is asked, connected to or sent, by what the servers and a capture of every interface have seen. As root and as a plain user.
"""

import json
import os
import re
import select
import shutil
import socket
import threading
import unittest

from attackkit import INSIDE, Attack, Capture
from helpers import wait_until
from internet import DNS, OTHER, OTHER6, PRIVATE, PUBLIC, PUBLIC6, Internet
from jailkit import IS_ROOT, PLAIN_ID, World
from service import Daemon

NET = None
ONLY = {"rules": [{"action": "allow", "domain": "allowed.test"}]}
RAW = {"rules": [{"action": "allow", "domain": "allowed.test", "protocol": "tcp"}]}
LOOPBACK = "loopback: a port that the gate serves"
PROXY = 'say("198.18.0.1", 3128, %s)'
VALUE = "s3cr3t-value-of-the-test-0123456789"
WRAPPED = {"mapped.test": "::ffff:169.254.169.254", "nat64.test": "64:ff9b::a9fe:a9fe", "sixtofour.test": "2002:a9fe:a9fe::1", "compatible.test": "::169.254.169.254",
           "teredo.test": "2001:0:0:0:0:0:5601:5601", "isatap.test": "2001:db8:77::5efe:a9fe:a9fe", "local64.test": "64:ff9b:1::a9fe:a9fe",
           "ten64.test": "64:ff9b::a4d:a", "loop6to4.test": "2002:7f00:1::1", "linklocal.test": "fe80::1", "group.test": "ff02::1", "zero6.test": "::"}
SPELLED = {"zero.test": "0.0.0.0", "loop.test": "127.0.0.1", "private.test": PRIVATE[0], "lan.test": "192.168.88.1", "metadata.test": "169.254.169.254",
           "metadata.google.internal": "169.254.169.254", "alibaba.test": "100.100.100.200", "azure.test": "168.63.129.16", "ec2.test": "fd00:ec2::254",
           "shared.test": "100.64.77.10", "own.test": "198.18.0.1", "broadcast.test": "255.255.255.255", "loop6.test": "::1", "private6.test": "fd77::10"}


def setUpModule():
    global NET
    if not IS_ROOT:
        raise unittest.SkipTest("needs root to make network namespaces")
    NET = Internet().usual()
    unittest.addModuleCleanup(NET.close)
    Attack.NET = NET
    NET.zone.update({name: [address] for name, address in {**WRAPPED, **SPELLED}.items()})
    NET.zone.update({"chain.test": ("CNAME", "second.test"), "second.test": ("CNAME", "third.test"), "third.test": [PRIVATE[0]], "round.test": ("CNAME", "second.test")})
    NET.here.run("ip", "addr", "add", "192.168.88.1/24", "dev", "up0")  # the host's own network


def get(name, why, port=80):
    return f"403 brig: {name}:{port} is denied: {why}"


def is_what(address):
    for what, pattern in (("loopback", r"127\.|::1$"), ("this host", r"0\.|::$"), ("metadata service", r"169\.254\.1(69|70)|100\.100\.100|168\.63|fd00:ec2"),
                          ("shared (carrier NAT)", r"100\.64"), ("the gate's own", r"198\.18"), ("broadcast", "255"), ("link-local", "fe80|169"), ("multicast", "ff02"),
                          ("private", ".")):
        if re.match(pattern, address):
            return f"{address} is {what}, and no cidr rule names it"
    return None


class Rows(Attack):
    """Mixed into a class for each kind of caller."""

    USER = None
    LIMIT_SECONDS = 180

    @classmethod
    def setUpClass(cls):
        cls.TABLE, cls.boxes = [], {}
        cls.key = os.path.join(NET.dir, f"keys-{cls.KIND}")
        with open(cls.key, "w", encoding="ascii") as f:
            f.write("k1:" + "42" * 32 + "\n")
        os.chmod(cls.key, 0o600)
        os.chown(cls.key, cls.USER or 0, cls.USER or 0)
        gate = {k: v for k, v in NET.environment().items() if k.startswith("BRIG_GATE_")}
        cls.d = NET.here.inside(lambda: Daemon(f'[secrets]\nkey_file = "{cls.key}"\n[store]\nsuspicious_count = 1000\n', env=gate, user=cls.USER))
        cls.addClassCleanup(cls.d.close)
        cls.addClassCleanup(cls.print_table)

    def curl(self, network, *words, **members):
        done = self.d.run(self.box(network, **members), "curl", "-sS", "--max-time", "20", *words)
        return done["outcome"]["exit_code"], done["stdout"]

    # ---- no network, no rules ----

    NOWHERE = {f'say("{PUBLIC}", 80)': "ENETUNREACH", f'say("{PUBLIC6}", 443)': "ENETUNREACH", 'say("127.0.0.1", 80)': "ECONNREFUSED", 'say("::1", 53)': "ECONNREFUSED",
               'say("198.18.0.1", 3128)': "ENETUNREACH", 'udp("8.8.8.8", 53, b"x")': "ENETUNREACH", f'udp("{PUBLIC6}", 443, b"x")': "ENETUNREACH",
               'udp("127.0.0.1", 53, b"x")': "ECONNREFUSED", 'udp("255.255.255.255", 67, b"x")': "ENETUNREACH", 'udp("224.0.0.251", 5353, b"x")': "ENETUNREACH",
               'look_up("allowed.test")': "EAI_AGAIN", 'sock(2, 2, 1)': "EACCES", 'sock(10, 2, 58)': "EACCES", 'sock(2, 3, 1)': "EPERM", 'sock(17, 3, 3)': "EAFNOSUPPORT"}

    def test_N01_net_none(self):
        outcomes = self.attack("none", self.NOWHERE)
        w = World(self.USER or 0, self.USER or 0)  # and without a daemon
        try:
            script = INSIDE + f"\nprint(json.dumps([eval(x) for x in {list(self.NOWHERE)!r}]))"
            done = NET.here.inside(lambda: w.run("--local", "--", "/usr/bin/python3", "-I", "-S", "-c", script))
        finally:
            w.close()
        self.assertEqual(json.loads(done.stdout), list(self.NOWHERE.values()), done.stderr)
        self.nothing_left(reached=[], may=())  # not a packet, on any interface
        self.row("N01", "net-none", *outcomes)

    def test_N18_empty_allow_list(self):
        for policy in ({"rules": []}, {}, {"default": "deny"}, {"rules": [{"action": "deny", "domain": "other.test"}]}):
            self.attack(policy, {'look_up("allowed.test")': "EAI_AGAIN", 'dns("allowed.test")': "REFUSED", f'get("{PUBLIC}")': get(PUBLIC, "default deny"),
                                 f'tls("{PUBLIC}", "allowed.test")': "reset", f'say("{PUBLIC}", 22)': "ECONNREFUSED"})
        for policy, where in (({"allow": []}, "allow"), ({"rules": None}, "rules"), (None, "network"), ({"rules": [{"domain": "allowed.test"}]}, "rules[0].action")):
            answer = self.d.ask("POST", "/v1/sandboxes", {"network": policy})
            self.assertEqual(answer.status, 400, answer)
            self.assertIn(where, answer.json["error"]["message"])
        self.nothing_left(reached=[], may=())
        self.row("N18", "empty-allow-list", "REFUSED (DNS)", get(PUBLIC, "default deny"), "reset (TLS)")

    # ---- where to ----

    def canaries(self, *where):
        listeners = [NET.here.listen(*w) for w in where]
        for listener in listeners:
            self.addCleanup(listener.close)
        return lambda: self.assertEqual(select.select(listeners, [], [], 0)[0], [], "the host was reached")

    def test_N03_host_loopback(self):
        untouched = self.canaries(("127.0.0.1", 80), ("127.0.0.1", 443), ("127.0.0.1", 7777), ("::1", 80), ("::1", 7777))
        here, there = get("127.0.0.1", LOOPBACK), get("[::1]", LOOPBACK)
        proxy = 'say("198.18.0.1", 3128, "CONNECT %s HTTP/1.0\\r\\n\\r\\n")'
        cases = {**{f'get("{name}")': here for name in ("127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001", "0.0.0.0", "0", "::ffff:127.0.0.1", "localhost")},
                 'get("127.255.1.2")': get("127.255.1.2", LOOPBACK), 'get("::1")': there, 'get("::")': there, 'tls("127.0.0.1", "allowed.test")': "reset",
                 'get("127.0.0.1", "allowed.test")': here, 'say("127.0.0.1", 7777)': "ECONNREFUSED", 'say("::1", 7777)': "ECONNREFUSED", 'say("0.0.0.0", 7777)': "ECONNREFUSED",
                 proxy % "127.0.0.1:80": get("127.0.0.1", is_what("127.0.0.1")), proxy % "[::1]:80": get("[::1]", is_what("::1")),
                 proxy % "[::ffff:127.0.0.1]:7777": get("127.0.0.1", is_what("127.0.0.1"), 7777), proxy % "0.0.0.0:80": get("0.0.0.0", is_what("0.0.0.0")),
                 proxy % "localhost:80": get("localhost", "default deny"), proxy % "127.1:80": "400 brig: :: is denied: CONNECT wants host:port",
                 proxy % "2130706433:80": "400 brig: :: is denied: CONNECT wants host:port", proxy % "0x7f.1:80": "400 brig: :: is denied: CONNECT wants host:port"}
        outcomes = self.attack(ONLY, cases)
        # where every port is served, loopback is the sandbox's own
        self.attack("open", {'say("127.0.0.1", 7777)': "ECONNREFUSED", 'say("127.0.0.1", 80)': "ECONNREFUSED", 'say("::1", 7777)': "ECONNREFUSED",
                             proxy % "127.0.0.1:7777": get("127.0.0.1", is_what("127.0.0.1"), 7777), PROXY % 'b"CONNECT localhost:7777 HTTP/1.0\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: localhost:7777\\r\\n\\r\\n"':
                             "200; " + get("localhost", is_what("127.0.0.1"), 7777)})
        untouched()
        self.nothing_left(reached=[], may=())
        self.row("N03", "host-loopback", *outcomes)

    def test_N04_metadata(self):
        names = [n for n in {**SPELLED, **WRAPPED} if n not in ("own.test",)]
        allowed = {"rules": [{"action": "allow", "domain": name} for name in names]}
        cases = {f'get("{name}")': get(name, "?") for name in names}
        got = self.inside(allowed, f"tell(*[eval(x) for x in {list(cases)!r}])")
        for name, said in zip(names, got):
            self.assertRegex(said, rf"^403 brig: {re.escape(name)}:80 is denied: \S+ is .*(loopback|this host|private|metadata service|shared|broadcast|link-local|multicast|reserved).*, "
                                   "and no cidr rule names it$")
        numbers = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254")
        wide = {"rules": [{"action": "allow", "cidr": "0.0.0.0/0"}, {"action": "allow", "cidr": "::/0"}]}  # opens the public internet, and no more
        for policy in (ONLY, wide, "open", {"default": "allow"}):
            self.attack(policy, {f'get("{n}")': get(f"[{n}]" if ":" in n else n, is_what(n)) for n in numbers} |
                        {'get("::ffff:169.254.169.254")': get("169.254.169.254", is_what("169.254.169.254"))})
            self.attack(policy, {f'tls("{n}", "allowed.test")': "reset" for n in numbers})
        self.assertEqual({name for name, _ in NET.asked} - set(names), set())
        self.nothing_left(reached=[], asked=names, may=(DNS,))
        self.row("N04", "metadata", got[names.index("metadata.google.internal")], got[names.index("nat64.test")], "reset (TLS)")

    def test_N06_host_lan(self):
        untouched = self.canaries(("192.168.88.1", 80), ("192.168.88.1", 443), ("203.0.113.1", 80))
        numbers = ("192.168.88.1", "192.168.88.254", "10.77.0.10", "192.168.77.10", "172.17.0.1", "100.64.77.10", "fd77::10")
        outcomes = []
        for policy in (ONLY, "open"):
            outcomes = self.attack(policy, {f'get("{n}")': get(f"[{n}]" if ":" in n else n, is_what(n)) for n in numbers})
        self.attack(ONLY, {'get("203.0.113.1")': get("203.0.113.1", "default deny")})  # the host's public address: not private, but not allowed either
        # another sandbox's address stands for nothing here, even where the name itself is allowed
        theirs = self.inside({"rules": [{"action": "allow", "domain": n} for n in ("other.test", "allowed.test", "www.allowed.test")]},
                             'tell(look_up("other.test", 2), look_up("allowed.test", 2), look_up("www.allowed.test", 2), look_up("www.allowed.test", 10))')
        fresh = {"rules": [{"action": "allow", "domain": "allowed.test"}, {"action": "deny", "domain": "x.test"}]}
        nothing = "this address stands for no name here"
        self.attack(fresh, {f'get("{a}", "allowed.test")': get(f"[{a}]" if ":" in a else a, nothing) for a in theirs} |
                    {f'tls("{a}", "allowed.test")': "reset" for a in theirs})
        untouched()
        self.nothing_left(reached=[], may=())
        self.row("N06", "host-lan", outcomes[0], get(theirs[0], nothing))

    def test_N07_ipv6(self):
        v6 = {"rules": [{"action": "allow", "domain": "other.test"}, {"action": "allow", "domain": "private6.test"}, {"action": "deny", "cidr": OTHER6 + "/128"},
                        {"action": "deny", "cidr": OTHER + "/32"}]}
        outcomes = self.attack(ONLY, {f'get("{PUBLIC6}")': get(f"[{PUBLIC6}]", "default deny"), f'get("{OTHER6}", "allowed.test")': get(f"[{OTHER6}]", "default deny"),
                                      f'tls("{PUBLIC6}", "allowed.test")': "reset", f'tls("{OTHER6}", "allowed.test")': "reset", f'say("{PUBLIC6}", 22)': "ECONNREFUSED",
                                      f'get("::ffff:{OTHER}")': get(OTHER, "default deny"), 'get("fe80::1%lo")': get("[fe80::1]", is_what("fe80::1")),
                                      'dns("other.test", "AAAA")': "REFUSED", 'look_up("other.test", 10)': "EAI_AGAIN"})
        denied = self.inside(v6, 'tell(get("other.test"), get("private6.test"), get(look_up("other.test", 10), "other.test"))')
        self.assertRegex(denied[0], "^403 brig: other.test:80 is denied: .*rule [23]")
        self.assertEqual(denied[1], get("private6.test", is_what("fd77::10")))
        self.assertRegex(denied[2], "^403 brig: other.test:80 is denied: .*rule [23]")
        # a denied range stays denied however its addresses are wrapped
        wraps = (f"::ffff:{OTHER}", "64:ff9b::cb00:710b", "2002:cb00:710b::1")
        got = self.inside({"default": "allow", "rules": [{"action": "deny", "cidr": "203.0.113.11/32"}]}, f"tell(*[get(a) for a in {wraps!r}])")
        for said in got:
            self.assertRegex(said, "^403 brig: .* is denied: ")
        self.nothing_left(reached=[], asked=("other.test", "private6.test"), may=(DNS,))
        self.row("N07", "ipv6", *outcomes)

    def test_N09_ip_literal(self):
        proxy = 'say("198.18.0.1", 3128, b"CONNECT %s HTTP/1.0\\r\\n\\r\\n" + hello("allowed.test"))'
        outcomes = self.attack(ONLY, {f'get("{PUBLIC}")': get(PUBLIC, "default deny"), f'get("{PUBLIC}", "allowed.test")': get(PUBLIC, "default deny"),
                                      f'tls("{PUBLIC}", "allowed.test")': "reset", f'tls("{PUBLIC}")': "reset", f'tls("{PUBLIC}", "allowed.test", port=80)': "reset",
                                      proxy % f"{PUBLIC}:443": get(PUBLIC, "default deny", 443), proxy % f"[{PUBLIC6}]:443": get(f"[{PUBLIC6}]", "default deny", 443),
                                      'look_up("allowed.test", 2) != "%s"' % PUBLIC: True})
        cut = (7, 35)  # accepted and reset: curl may find out before or after it has begun to speak
        self.assertIn(self.curl(ONLY, "--resolve", f"allowed.test:443:{PUBLIC}", "https://allowed.test/")[0], cut)
        self.assertIn(self.curl(ONLY, "--noproxy", "*", "--connect-to", f"allowed.test:443:{OTHER}:443", "https://allowed.test/")[0], cut)
        self.nothing_left(reached=[], may=())
        self.row("N09", "ip-literal", *[o for o in outcomes if o is not True])

    # ---- what is said: TLS ----

    def test_N10_sni_spoof(self):
        spoofs = ('"other.test"', "", '"x.allowed.test"', '"allowed.test.other.test"', '"allowed.test", "other.test"', '"other.test", "allowed.test"',
                  '"allowed.test\\0.other.test"', '"other.test\\0allowed.test"', '"allowed.test\\0"', '"allowed.test.."', '".allowed.test"', '" allowed.test"', '"*.test"',
                  '"allowed_test"', '"all\\xefwed.test"', '""', '"198.19.0.0"', '"127.0.0.1"', '"a" * 300', '"allowed.test", list_type=1',
                  '"allowed.test", more=extension(0, b"\\0\\x0d\\0\\0\\x0aother.test")', '"allowed.test", more=extension(0xfe0d, bytes(40))', 'version=0x0301')
        cases = {f'tls("{OTHER}", "allowed.test")': "reset", f'tls("{OTHER6}", "allowed.test")': "reset", **{f"tls(F, {s})": "reset" for s in spoofs},
                 # a name in pieces is read as a whole; a second hello is of no account
                 'say(F, 443, *[bytes([b]) for b in hello("other.test")], shut=False)': "reset", 'say(F, 443, hello("other.test") + hello("allowed.test"), shut=False)': "reset",
                 'say(F, 443, split(hello("other.test"), 7), shut=False)': "reset", 'say(F, 443, split(hello("other.test"), 1), shut=False)': "reset",
                 'say(F, 443, b"\\x80\\x2e\\1\\3\\1\\0\\x15\\0\\0\\0\\x10" + b"x" * 40, shut=False)': "reset", 'say(F, 443, b"\\x15\\3\\1\\0\\2\\1\\0" + hello("allowed.test"), shut=False)': "reset",
                 'say(F, 443, b"SSH-2.0-x\\r\\n")': "reset", 'say(F, 443, b"\\0" * 500)': "reset"}
        setup = ('F = look_up("allowed.test", 2)\ndef split(h, n):\n    return b"".join(h[:3] + struct.pack(">H", len(h[5 + i:5 + i + n])) + h[5 + i:5 + i + n] for i in range(0, len(h) - 5, n))')
        outcomes = self.attack(ONLY, cases, setup)
        self.nothing_left(reached=[], may=())
        # the same name, spelled otherwise, and in pieces, is the same name
        self.capture = Capture(NET.here)
        self.attack(ONLY, {'tls(F, "allowed.test")': "tls", 'tls(F, "ALLOWED.Test")': "tls", 'say(F, 443, *[bytes([b]) for b in hello("allowed.test")], shut=False)': "tls",
                           'say(F, 443, split(hello("allowed.test"), 7), shut=False)': "tls"}, setup)
        self.nothing_left(asked=["allowed.test"])
        self.assertEqual(set(NET.reached), {("allowed", 443)})
        self.row("N10", "sni-spoof", *outcomes)

    # ---- what is said: HTTP ----

    def test_N12_host_mismatch(self):
        bad = "400 brig: allowed.test:80 is denied: a malformed request: "
        no = "403 brig: allowed.test:80 is denied: "
        cases = {'get("allowed.test", "other.test")': no + "Host is other.test", 'get("allowed.test", "")': bad + "Host is missing", 'get("allowed.test", "", version="1.0")': no + "Host is missing",
                 'get("allowed.test", "allowed.test:81")': no + "Host has port 81", 'get("allowed.test", "allowed.test, other.test")': bad + "Host is malformed",
                 'get("allowed.test", "allowed.test\\r\\nHost: other.test")': bad + "two Host fields", 'get("allowed.test", "allowed.test\\r\\nhOST: allowed.test")': bad + "two Host fields",
                 'get("allowed.test", "allowed.test@other.test")': bad + "Host is malformed", 'get("allowed.test", "allowed.test#x")': bad + "Host is malformed",
                 'get("allowed.test", "allowed.test/x")': bad + "Host is malformed", 'get("allowed.test", "198.19.0.0")': no + "Host is 198.19.0.0",
                 'get("allowed.test", path="http://other.test/")': no + "the target is other.test/", 'get("allowed.test", "other.test", path="http://allowed.test/")': no + "Host is other.test",
                 'get("allowed.test", path="https://allowed.test/")': no + "the target's scheme is not http",
                 'get("allowed.test", path="http://allowed.test@other.test/")': no + "the target is not a host: allowed.test@other.test/",
                 'say("allowed.test", 80, "CONNECT other.test:443 HTTP/1.1\\r\\nHost: other.test:443\\r\\n\\r\\n")': no + "CONNECT needs a rule with protocol tcp",
                 'say("allowed.test", 80, "CONNECT allowed.test:80 HTTP/1.1\\r\\nHost: allowed.test:80\\r\\n\\r\\n")': no + "CONNECT needs a rule with protocol tcp",
                 'say("allowed.test", 80, "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")': bad.replace("400", "505") + "HTTP/1.0 and HTTP/1.1 are spoken here",
                 'say("allowed.test", 80, H + "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n")': no + "an upgrade of HTTP needs a rule with protocol tcp",
                 'say("allowed.test", 80, H + "X: a\\r\\n Host: other.test\\r\\n\\r\\n")': bad + "a folded field", 'say("allowed.test", 80, H.replace("\\r", "") + "\\n")': bad + "a line of the head does not end with CR LF",
                 'say("allowed.test", 80, H + "X: a\\rHost: other.test\\r\\n\\r\\n")': bad + "a control byte in a field", 'say("allowed.test", 80, H + "X: a\\0b\\r\\n\\r\\n")': bad + "a control byte in a field",
                 'say("allowed.test", 80, H + "Host : other.test\\r\\n\\r\\n")': bad + "a malformed field name", 'say("allowed.test", 80, "GET\\t/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n")': "reset",
                 'say("allowed.test", 80, "GET /\\r\\n\\r\\n")': bad + "a malformed request target", 'say("allowed.test", 80, "SSH-2.0-x\\r\\n")': "reset", 'say("allowed.test", 80, hello("other.test"), shut=False)': "reset",
                 PROXY % 'b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: other.test:443\\r\\n\\r\\n"': "400 brig: :: is denied: Host is not CONNECT's target",
                 PROXY % 'b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: allowed.test:80\\r\\n\\r\\n"': "400 brig: :: is denied: Host is not CONNECT's target",
                 PROXY % 'b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"': no + "Host is other.test",
                 PROXY % 'b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: allowed.test:443\\r\\n\\r\\n" + hello("other.test")': "200",
                 PROXY % 'b"CONNECT allowed.test:80 HTTP/1.0\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"': "200; " + no + "Host is other.test"}
        self.attack(ONLY, cases, 'H = "GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n"')
        self.nothing_left(reached=[], may=())
        self.row("N12", "host-mismatch", no + "Host is other.test", bad + "two Host fields")

    def test_N12_smuggling(self):
        """What two readers could cut into requests at different places: nothing that was not judged reaches the server."""
        rules = {"rules": [{"action": "allow", "domain": "allowed.test", "methods": ["GET", "POST"], "paths": ["/pub/"]}]}
        evil = "GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"
        post = 'say("allowed.test", 80, "POST /pub/%s HTTP/1.1\\r\\nHost: allowed.test\\r\\n%s")'
        bad = "400 brig: allowed.test:80 is denied: a malformed request: "
        denied = "403 brig: allowed.test:80 is denied: default deny; rule 0 (allow allowed.test:80,443 GET,POST /pub/) does not match"
        cases = {post % ("a", "Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad + "both Content-Length and Transfer-Encoding",
                 post % ("b", "Content-Length: 5\\r\\nContent-Length: 6\\r\\n\\r\\n01234" + evil): bad + "two Content-Lengths differ",
                 post % ("c", "Transfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad.replace("400", "501") + "the only transfer coding here is chunked",
                 post % ("d", "Transfer-Encoding : chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad + "a malformed field name",
                 post % ("e", "Transfer-Encoding:\\x0bchunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad + "a control byte in a field",
                 f'say("allowed.test", 80, "GET /pub/f HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n{evil}")': "200 allowed GET allowed.test /pub/f; " + denied,
                 post % ("g", "Content-Length: 0\\r\\n\\r\\n" + evil): "200 allowed POST allowed.test /pub/g; " + denied,
                 post % ("h", "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): "200 allowed POST allowed.test /pub/h; " + denied,
                 **{f'get("allowed.test", path="{p}")': denied for p in ("/PUB/x", "/pub", "/evil?/pub/", "/pubx/")},
                 **{f'get("allowed.test", path="{p}")': denied + ": unclear path" for p in ("/pub/../evil", "/pub/%2e%2e/evil", "/pub/..%2fevil", "/pub//../evil", "/pub/..;/evil",
                                                                                         "/pub/%252e%252e/evil", "/pub/..\\\\evil", "/pub/%00/../x")}}
        self.attack(rules, cases)
        self.nothing_left(seen=["allowed.test /pub/f", "allowed.test /pub/g", "allowed.test /pub/h"], asked=["allowed.test"])
        # bodies that are broken are cut off; what was judged may have arrived, what follows never does
        self.capture = Capture(NET.here)
        odd = ("1;a=\\nx\\r\\ny\\r\\n0\\r\\n\\r\\n", "0x1\\r\\nx\\r\\n0\\r\\n\\r\\n", "1\\r\\nxx\\r\\n0\\r\\n\\r\\n", "fffffffffffffffff\\r\\nx", "-1\\r\\n\\r\\n", "1 \\r\\nx\\r\\n0\\r\\n\\r\\n", "0\\r\\nGET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n",
               "0\\n\\n")
        got = self.inside(rules, "tell(%s)" % ", ".join(post % ("odd", "Transfer-Encoding: chunked\\r\\n\\r\\n" + o + evil) for o in odd))
        self.assertEqual(set(got) - {"reset", "closed"}, set(), got)
        self.assertEqual([s[2] for s in NET.seen if "evil" in s[2]], [])
        self.row("N12", "smuggling", bad + "both Content-Length and Transfer-Encoding", denied)

    def brokered(self, name, *hosts):
        answer = self.d.ask("PUT", f"/v1/secrets/{name}", {"value": VALUE, "broker": {"hosts": list(hosts), "header": "Authorization", "format": "Bearer %s"}})
        self.assertEqual(answer.status // 100, 2, answer)
        return {"rules": [{"action": "allow", "domain": "allowed.test"}, {"action": "allow", "domain": "other.test"}]}, [{"name": name, "env": "TOKEN"}]

    def test_N13_domain_fronting(self):
        network, secrets = self.brokered("FRONT", "allowed.test")
        status, said = self.curl(network, "-w", "%{http_code}", "-H", "Host: other.test", "https://allowed.test/", secrets=secrets)
        self.assertEqual((status, said[-3:]), (0, "421"), said)
        self.assertIn("brig: Host is not allowed.test, which this connection is for", said)
        self.nothing_left(may=(DNS, PUBLIC, PUBLIC6), asked=["allowed.test"])
        self.row("N13", "domain-fronting", said.splitlines()[0])
        # where the gate does not open TLS it cannot see it: docs/NETWORK.md says so
        self.assertEqual(self.curl(ONLY, "-H", "Host: other.test", "https://allowed.test/"), (0, "allowed GET other.test /\n"))

    # ---- explicit proxies ----

    def test_N15_socks(self):
        refused, unsupported = "050005020001000000000000 closed", "050005070001000000000000 closed"
        names = (b"other.test\0.allowed.test", b"allowed.test\0", b"\0allowed.test", b"", b"a" * 255, b"other.test", b"x.allowed.test", b"127.0.0.1", b"2130706433", b"0x7f.1", b"127.1", b"::1",
                 b"localhost", b"allow\xc3\xa9d.test", b"allowed.test\n", b"allowed.test#.x", b"*.test", b"allowed.test..", b".", b"allowed.test:443")
        addresses = ("203.0.113.10", "203.0.113.11", "127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", PUBLIC6, "198.18.0.1", "198.19.255.255")
        cases = {**{f"name({n!r})": refused for n in names}, **{f'address("{a}")': refused for a in addresses}, 'name(b"allowed.test", cmd=3)': unsupported,
                 'name(b"allowed.test", cmd=2)': unsupported, 'name(b"allowed.test", port=22)': refused, 'name(b"allowed.test", port=0)': refused,
                 'ask(9, b"abcd")': "050005080001000000000000 closed", 'name(b"allowed.test", version=4)': "050005010001000000000000 closed",
                 'socks(b"\\4\\1\\1\\xbb\\0\\0\\0\\1x\\0other.test\\0")': " reset", 'socks(b"\\5\\1\\2")': "05ff closed", 'socks(b"\\5\\0")': "05ff closed",
                 'socks(b"\\5\\1\\0", b"\\5\\1\\0\\3\\xffallowed.test")': "0500 closed"}
        self.attack(ONLY, cases, """
def ask(kind, data, port=443, cmd=1, version=5): return socks(b"\\5\\1\\0", bytes([version, cmd, 0, kind]) + data + struct.pack(">H", port))
def name(n, **kw): return ask(3, bytes([len(n)]) + n, **kw)
def address(a): return ask(4 if ":" in a else 1, socket.inet_pton(family(a), a))
""")
        self.nothing_left(reached=[], may=())
        self.row("N15", "socks", "SOCKS reply 2 (not allowed)", "7 (command)", "8 (address type)", "reset (SOCKS4)")

    def test_N16_relay(self):
        got = self.inside(ONLY, """
def relay(listener):
    while True:
        c, _ = listener.accept()
        s = socket.create_connection(("198.18.0.1", 3128), T)
        for a, b in ((c, s), (s, c)): threading.Thread(target=carry, args=(a, b), daemon=True).start()
def carry(a, b):
    try:
        while (data := a.recv(65536)): b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError: b.close()
listener = socket.create_server(("127.0.0.1", 8888))
threading.Thread(target=relay, args=(listener,), daemon=True).start()
asks = ["CONNECT other.test:443 HTTP/1.0\\r\\n\\r\\n", "GET http://other.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n", "CONNECT 10.77.0.10:80 HTTP/1.0\\r\\n\\r\\n"]
direct = [say("198.18.0.1", 3128, a) for a in asks]
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, json.dumps([say("127.0.0.1", 8888, a) for a in asks]).encode()); os._exit(0)
os.wait()
tell(direct, json.loads(os.read(r, 65536)))
""")
        self.assertEqual(got[0], got[1])
        self.assertEqual(got[0], [get("other.test", "default deny", 443), get("other.test", "default deny"), get(PRIVATE[0], is_what(PRIVATE[0]))])
        self.nothing_left(reached=[], may=())
        self.row("N16", "relay", got[0][0])

    def test_N31_proxy_abuse(self):
        wants = "400 brig: :: is denied: this is a proxy: it wants an http:// target, or CONNECT"
        malformed = "400 brig: :: is denied: a malformed request target"
        cases = {PROXY % f'b"GET {target} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"': outcome for target, outcome in (
            ("/", wants), ("https://allowed.test/", wants), ("file:///etc/passwd", malformed), ("ftp://allowed.test/", malformed), ("gopher://allowed.test:70/", malformed),
            ("unix:///run/brig.sock", malformed), ("http+unix://%2Frun%2Fbrig.sock/", malformed), ("http:allowed.test/", malformed), ("//allowed.test/", wants))}
        cases[PROXY % 'b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\nX-Unix-Socket: /run/x\\r\\n\\r\\n"'] = "400 brig: :: is denied: x-unix-socket"
        cases[PROXY % 'b"CONNECT unix:/run/x:80 HTTP/1.0\\r\\n\\r\\n"'] = malformed
        cases[PROXY % 'b"CONNECT allowed.test HTTP/1.0\\r\\n\\r\\n"'] = "400 brig: :: is denied: CONNECT wants host:port"
        cases[PROXY % 'b"CONNECT allowed.test:22 HTTP/1.0\\r\\n\\r\\n"'] = "403 brig: allowed.test:22 is denied: default deny; rule 0 (allow allowed.test:80,443) does not match"
        outcomes = self.attack(ONLY, cases)
        self.nothing_left(reached=[], may=())
        self.row("N31", "unix-proxy-sock", *outcomes)


@unittest.skipUnless(IS_ROOT, "needs root to make network namespaces")
class Root(Rows, unittest.TestCase):
    KIND = "root"


@unittest.skipUnless(IS_ROOT, "needs root to make network namespaces")
class Rootless(Rows, unittest.TestCase):
    KIND, USER = "rootless", PLAIN_ID


if __name__ == "__main__":
    unittest.main()
