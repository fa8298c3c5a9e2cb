# SPDX-License-Identifier: Apache-2.0
"""A sandbox's network as the spawner makes it: routes, listeners, the redirect of any-port mode, a CA bundle of its
own.

The engine and the gate are played by drivers/gate_host.c: it tells each connection where it landed ("tcp ::ffff:1.1.1.1
443 6": kind, wanted address and port, family of the listener) and sends every datagram back from the address that was
asked.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import unittest

from helpers import BRIG, PATIENCE, steady, wait_until
from jailkit import BUILD, PLAIN_ID, PREFIX, JailTest, SubidUser, World, needs_root

HOST = next((os.path.abspath(p)
             for p in (f"{PREFIX}/tests/e2e/gate_host", f"{BUILD}/tests/e2e/gate_host") if os.path.exists(p)),
            "gate_host")
INMATE = os.path.join(os.path.dirname(HOST), "inmate")
LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or f"{os.path.dirname(os.path.realpath(BRIG))}"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OPEN_WEB = "open dns-udp:53:6 dns-tcp:53:6 proxy:3128:4 tcp:80:6 tcp:443:6"
OPEN_ANY = ("open redirect:65001:4 dns-udp:65053:4 dns-tcp:65053:4 redirect:65001:6 dns-udp:65053:6 dns-tcp:65053:6 "
            "proxy:3128:4")

KIT = """
import errno, json, socket, struct, time
def family(ip): return socket.AF_INET6 if ":" in ip else socket.AF_INET
def name(e): return errno.errorcode.get(e.errno, str(e))
def again(s):
    # how often it has sent a packet once more: tcpi_total_retrans
    return struct.unpack_from("I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]
def tcp(ip, port, fam=None):
    s = socket.socket(fam or family(ip)); s.settimeout(5)
    try: s.connect((ip, port)); return s.makefile().readline().strip()
    except OSError as e: return name(e) if again(s) == 0 else "late " + name(e)
def udp(ip, port, connected=True):
    s = socket.socket(family(ip), socket.SOCK_DGRAM); s.settimeout(5)
    try:
        if connected: s.connect((ip, port)); s.send(b"q"); return s.recv(200).decode()
        s.sendto(b"q", (ip, port)); data, who = s.recvfrom(200); \
return data.decode() + " from " + who[0] + " " + str(who[1])
    except OSError as e: return name(e)
def sock(*args):
    try: socket.socket(*args).close(); return "made"
    except OSError as e: return name(e)
def bind(ip, port, kind=socket.SOCK_STREAM, reuse=False):
    s = socket.socket(family(ip), kind)
    if reuse: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, \
socket.SO_REUSEPORT, 1)
    try: s.bind((ip, port)); kind == socket.SOCK_STREAM and s.listen(); return "bound"
    except OSError as e: return name(e)
def own(ip, port, to):
    # a server of the program's own, and a connection to it
    s = socket.socket(family(ip)); s.bind((ip, port)); s.listen()
    c = socket.create_connection((to, port), 5); p, _ = s.accept(); p.sendall(b"mine"); p.close(); \
return c.recv(10).decode()
def netlink(kind, flags, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
    r = -struct.unpack("=i", s.recv(4096)[16:20])[0]
    return errno.errorcode.get(r, r)
def tell(*results): print(json.dumps(results))
"""


class GateTest(JailTest):
    LIMIT_SECONDS = 180

    def setUp(self):
        self.spawner = None

    def spawn(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cgroups = self.w.cgroups.for_a_caller()

        def in_child():
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            self.w.become_caller(cgroups)

        self.spawner = subprocess.Popen([f"{LIBEXEC}/brig-spawner", LIBEXEC], preexec_fn=in_child, close_fds=False,
                                        cwd="/", env=self.w.env,
                                        stdin=subprocess.DEVNULL)
        theirs.close()
        return ours

    def end_spawner(self, sock):
        sock.close()
        self.spawner.wait(timeout=PATIENCE)
        self.spawner = None

    def drive(self, sock, *words, argv=("/bin/true",)):
        """(output of the program, what was told)"""
        done = subprocess.run([HOST, str(sock.fileno()), *words, "--", *argv], pass_fds=[sock.fileno()],
                              timeout=PATIENCE, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode(), done.stderr.decode("utf-8", "replace").splitlines()

    def host(self, *words, argv=("/bin/true",)):
        sock = self.spawn()
        try:
            return self.drive(sock, *words, argv=argv)
        finally:
            self.end_spawner(sock)

    def inside(self, code, *words):
        """What a program tells, and what the host was told."""
        out, said = self.host(*words, argv=("/usr/bin/python3", "-I", "-S", "-c", KIT + code))
        self.assertTrue(out, said)
        return json.loads(out), said

    def refused(self, *words, says, argv=("/bin/echo", "ran")):
        out, said = self.host(*words, argv=argv)
        self.assertEqual(out, "", said)
        self.assertRegex(said[-1], r"^done \d+ exit=0 started=0")
        self.assertIn(says, said[-1])
        self.assertFalse([line for line in said if line.startswith("started")], said)
        return said


class Shared:
    """The same for every kind of caller."""

    def test_wanted_address(self):
        got, said = self.inside(
            """tell(tcp("1.1.1.1", 443), tcp("169.254.169.254", 80), tcp("2606:4700::1111", 443), tcp("10.0.0.1", 80), \
tcp("::ffff:1.2.3.4", 80),
            tcp("198.18.0.1", 3128), tcp("9.9.9.9", 53))""", "ports=80,443")
        self.assertEqual(got, ["tcp ::ffff:1.1.1.1 443 6", "tcp ::ffff:169.254.169.254 80 6",
                               "tcp 2606:4700::1111 443 6", "tcp ::ffff:10.0.0.1 80 6",
                               "tcp ::ffff:1.2.3.4 80 6", "proxy 198.18.0.1 3128 4", "dns-tcp ::ffff:9.9.9.9 53 6"])
        self.assertEqual(said[0], OPEN_WEB)
        self.assertRegex(said[1], "^started ")  # listeners come first

    def test_the_rest_is_refused_at_once(self):
        got, _ = self.inside(
            """tell(tcp("1.1.1.1", 8080), tcp("2606:4700::1111", 22), tcp("127.0.0.1", 22), tcp("1.1.1.1", 3128), \
udp("8.8.8.8", 123), udp("2606::1", 443),
            udp("127.0.0.1", 123))""", "ports=80,443")
        self.assertEqual(got, ["ECONNREFUSED"] * 7)

    def test_datagrams_come_back_from_who_was_asked(self):
        code = """tell(udp("8.8.8.8", 53, False), udp("2606:4700::1111", 53, False), udp("198.18.0.1", 53, False),
                       udp("8.8.4.4", 53), udp("fd00::1", 53))"""
        got, _ = self.inside(code, "ports=80")
        self.assertEqual(got, ["dns-udp ::ffff:8.8.8.8 53 q from 8.8.8.8 53",
                               "dns-udp 2606:4700::1111 53 q from 2606:4700::1111 53",
                               "dns-udp ::ffff:198.18.0.1 53 q from 198.18.0.1 53", "dns-udp ::ffff:8.8.4.4 53 q",
                               "dns-udp fd00::1 53 q"])
        got, _ = self.inside(code, "any=1")
        self.assertEqual(got, ["dns-udp 198.18.0.1 65053 q from 8.8.8.8 53",
                               "dns-udp 2001:2:0:ffff::1 65053 q from 2606:4700::1111 53",
                               "dns-udp 198.18.0.1 65053 q from 198.18.0.1 53", "dns-udp 198.18.0.1 65053 q",
                               "dns-udp 2001:2:0:ffff::1 65053 q"])

    def test_other_families_and_protocols(self):
        for words in ("ports=80,443", "any=1"):
            got, _ = self.inside(
                """tell(sock(2, 3, 1), sock(10, 3, 58), sock(2, 2, 1), sock(10, 2, 58), sock(17, 3, 0), sock(40, 1, \
0), sock(38, 5, 0), sock(2, 1, 132),
                sock(2, 1, 262), sock(2, 2, 136), sock(16, 3, 12))""", words)
            self.assertEqual(got, ["EPERM", "EPERM", "EACCES", "EACCES", "EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT",
                                   "EPROTONOSUPPORT", "EPROTONOSUPPORT",
                                   "EPROTONOSUPPORT", "EPROTONOSUPPORT"])

    def test_nobody_binds_over_the_gate(self):
        got, _ = self.inside("""
tell(*[bind(ip, port, kind, reuse) for reuse in (False, True) for ip, port, kind in
       (("127.0.0.1", 8443, 1), ("0.0.0.0", 8443, 1), ("::", 8443, 1), ("1.1.1.1", 8443, 1), ("198.18.0.1", 3128, 1), \
("0.0.0.0", 3128, 1))])""",
                             "ports=8443")
        self.assertEqual(got, ["EADDRINUSE"] * 12)
        got, _ = self.inside(
            """tell(bind("127.0.0.1", 8443), bind("0.0.0.0", 8080), bind("127.0.0.1", 3128), bind("0.0.0.0", 53, 2))""",
            "ports=443")
        self.assertEqual(got, ["bound", "bound", "bound", "EACCES"])
        # In any-port mode low ports are the program's, and still the gate's are not.
        got, _ = self.inside("""
tell(*[bind(ip, port, kind, reuse) for reuse in (False, True) for ip, port, kind in
       (("198.18.0.1", 65001, 1), ("0.0.0.0", 65001, 1), ("::", 65001, 1), ("198.18.0.1", 65053, 2), ("0.0.0.0", \
65053, 2), ("2001:2:0:ffff::1", 65053, 2))])""",
                             "any=1")
        self.assertEqual(set(got) - {"EADDRNOTAVAIL"}, {"EADDRINUSE"})

    def test_nothing_can_be_configured_from_inside(self):
        code = """
route = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 4, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1)
addr = struct.pack("=BBBBI", 2, 32, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 0, 0, 1]))
tell(netlink(24, 0x600, route), netlink(25, 0, route), netlink(20, 0x600, addr), sock(16, 3, 12))"""
        for words in ("ports=80", "any=1", "off=1"):
            got, _ = self.inside(code, words)
            self.assertEqual(got, ["EPERM", "EPERM", "EPERM", "EPROTONOSUPPORT"], words)

    def test_any_port(self):
        got, said = self.inside(
            """tell(tcp("1.1.1.1", 443), tcp("169.254.169.254", 80), tcp("2606:4700::1111", 8443), tcp("10.0.0.1", \
65535), tcp("198.18.0.1", 80),
            tcp("198.18.0.1", 3128), tcp("::ffff:1.2.3.4", 22), tcp("8.8.8.8", 53), tcp("2606::1", 53), \
tcp("127.0.0.1", 80), tcp("::1", 80), tcp("127.0.0.53", 53),
            udp("127.0.0.1", 53), udp("8.8.8.8", 443), udp("2606::1", 443))""", "any=1")
        self.assertEqual(got, ["redirect 1.1.1.1 443 4", "redirect 169.254.169.254 80 4",
                               "redirect 2606:4700::1111 8443 6", "redirect 10.0.0.1 65535 4",
                               "redirect 198.18.0.1 80 4", "proxy 198.18.0.1 3128 4", "redirect 1.2.3.4 22 4",
                               "dns-tcp 198.18.0.1 65053 4",
                               "dns-tcp 2001:2:0:ffff::1 65053 6"] + ["ECONNREFUSED"] * 6)
        self.assertEqual(said[0], OPEN_ANY)

    def test_own_servers_in_any_port_mode(self):
        got, _ = self.inside("""
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("0.0.0.0", 53)); c = socket.socket(socket.AF_INET, \
socket.SOCK_DGRAM); c.sendto(b"hi", ("127.0.0.1", 53))
tell(own("127.0.0.1", 80, "127.0.0.1"), own("127.0.0.1", 443, "127.0.0.1"), own("0.0.0.0", 53, "127.0.0.1"), \
own("::1", 80, "::1"), own("0.0.0.0", 25, "0.0.0.0"),
     own("::", 8080, "::1"), own("127.0.0.1", 65001, "127.0.0.1"), u.recv(10).decode())""", "any=1")
        self.assertEqual(got, ["mine"] * 7 + ["hi"])

    def test_own_servers_with_named_ports(self):
        got, _ = self.inside(
            """tell(own("127.0.0.1", 8080, "127.0.0.1"), own("0.0.0.0", 5432, "127.0.0.1"), own("::1", 3128, "::1"))""",
            "ports=80,443")
        self.assertEqual(got, ["mine"] * 3)

    def test_without_a_network_nothing_has_changed(self):
        got, said = self.inside("""
began = time.monotonic()
try: socket.getaddrinfo("example.com", 443); r = "found"
except OSError as e: r = "no"
tell(tcp("1.1.1.1", 443), tcp("2606:4700::1111", 443), tcp("198.18.0.1", 80), udp("8.8.8.8", 53), tcp("127.0.0.1", \
80), tcp("::1", 80), udp("127.0.0.1", 53), r,
     time.monotonic() - began, open("/etc/resolv.conf").read())""", "off=1")
        self.assertEqual(got[:8], ["ENETUNREACH"] * 4 + ["ECONNREFUSED"] * 3 + ["no"])
        self.assertLess(got[8], 1, got[8])  # clock: no resolver is waited for, which has two seconds
        self.assertEqual(got[9], "nameserver 198.18.0.1\noptions timeout:2 attempts:1\n")
        self.assertFalse([line for line in said if line.startswith("open")], said)

    def test_resolvers_see_an_ipv4_address(self):
        code = """
def find(fam):
    try: return len(socket.getaddrinfo("1.2.3.4" if fam == socket.AF_INET else "2606::1", 80, fam, socket.SOCK_STREAM, \
0, socket.AI_ADDRCONFIG))
    except OSError as e: return "none"
tell(find(socket.AF_INET))"""
        self.assertEqual([self.inside(code, words)[0] for words in ("ports=80", "any=1", "off=1")],
                         [[1], [1], ["none"]])

    def test_pooled(self):
        for words, opened in (("ports=80,443", OPEN_WEB), ("any=1", OPEN_ANY)):
            got, said = self.inside("""tell(tcp("1.1.1.1", 443)[-6:])""", words, "pool=2")
            self.assertIn("443", got[0])
            self.assertEqual(said[0], opened)

    def test_bundle(self):
        text = "-----BEGIN CERTIFICATE-----\nours\n"
        ca = self.w.file("ca.pem", text)
        for pool in ("pool=0", "pool=1"):
            got, _ = self.inside(f"""
import os
s = os.stat("{BUNDLE}"); v = os.statvfs("{BUNDLE}")
def tried(f):
    try: f(); return "done"
    except OSError as e: return name(e)
tell(open("{BUNDLE}").read(), open("/etc/ssl/cert.pem").read(), open("/etc/pki/tls/certs/ca-bundle.crt").read(), \
s.st_mode & 0o777, s.st_nlink, s.st_uid,
     tried(lambda: open("{BUNDLE}", "w")), tried(lambda: os.unlink("{BUNDLE}")), tried(lambda: os.chmod("{BUNDLE}", \
0o666)), v.f_blocks)""",
                                 "ports=443", f"trust={ca}", pool)
            owner = got.pop(5)
            self.assertIn(owner, (0, 1000))
            self.assertEqual(got, [text] * 3 + [0o444, 1, "EROFS", "EROFS", "EROFS", 0])

    def test_bundle_in_another_root(self):
        ca = self.w.file("ca.pem", "ours\n")
        for n, (dirs, links, good) in enumerate(((("etc",), (), True),
                                                 (("etc/ssl/certs", "etc/pki/tls/certs"), (), True), ((), (), True),
                                              (("etc/ssl", "elsewhere"), (("etc/ssl/certs", "../../elsewhere"),),
                                               False))):
            top = self.w.mkdir(f"root{n}-{time.monotonic_ns()}")
            for name in ("bin", *dirs):
                os.makedirs(f"{top}/{name}", exist_ok=True)
            for at, to in links:
                os.symlink(to, f"{top}/{at}")
            if "etc/pki/tls/certs" in dirs:
                for path in ("etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/certs/ca-certificates.crt"):
                    with open(f"{top}/{path}", "w", encoding="utf-8") as f:
                        f.write("theirs\n")
            shutil.copy(INMATE, f"{top}/bin/inmate")
            argv = ("/bin/inmate", f"read:{BUNDLE}", "read:/etc/pki/tls/certs/ca-bundle.crt")
            if good:
                out, said = self.host("ports=443", f"trust={ca}", f"rootfs={top}", argv=argv)
                self.assertTrue(out.startswith("ours\n"), (n, out, said))
                if n == 1:
                    self.assertEqual(out, "ours\nours\n")
                    with open(f"{top}/etc/ssl/certs/ca-certificates.crt", encoding="utf-8") as f:
                        self.assertEqual(f.read(), "theirs\n")
            else:
                self.refused("ports=443", f"trust={ca}", f"rootfs={top}", argv=argv, says=BUNDLE)

    def test_more_ports(self):
        code = """
end = time.monotonic() + 60
while tcp("1.1.1.1", 8443) in ("ECONNREFUSED", "ENETUNREACH") and time.monotonic() < end: time.sleep(0.01)
tell(tcp("1.1.1.1", 443), tcp("1.1.1.1", 8443), tcp("1.1.1.1", 80))"""
        got, said = self.inside(code, "ports=443", "more=8443")
        self.assertEqual(got, ["tcp ::ffff:1.1.1.1 443 6", "tcp ::ffff:1.1.1.1 8443 6", "ECONNREFUSED"])
        self.assertIn("open dns-udp:53:6 dns-tcp:53:6 proxy:3128:4 tcp:443:6 tcp:8443:6", said)
        # a sandbox without a network gets one
        got, said = self.inside(code, "off=1", "more=443,8443")
        self.assertEqual(got, ["tcp ::ffff:1.1.1.1 443 6", "tcp ::ffff:1.1.1.1 8443 6", "ECONNREFUSED"])
        # any port has all of them
        got, said = self.inside(code, "any=1", "more=443")
        self.assertEqual(got[2], "redirect 1.1.1.1 80 4")
        self.assertEqual(said.count(OPEN_ANY), 2)

    def test_what_cannot_be_added(self):
        for words, says in ((("ports=443", "more=any"), "needs a new sandbox"),
                            (("ports=443", "more=3128"), "needs a new sandbox"),
                            (("ports=443", "more=80,80"), "network of the run"),
                            (("ports=443", "more=53"), "network of the run"),
                            (("ports=443", "more=0"), "network of the run"),
                            (("ports=" + ",".join(map(str, range(1000, 1064))),
                              "more=" + ",".join(map(str, range(2000, 2064)))), "more than 64 ports")):
            got, said = self.inside("""time.sleep(0.3); tell(tcp("1.1.1.1", 443), tcp("1.1.1.1", 1063))""", *words)
            self.assertTrue([line for line in said if line.startswith("open error") and says in line], (words, said))
            self.assertEqual(sum(r.startswith("tcp") for r in got), 1)  # what was there still serves

    def test_a_taken_port_is_an_error(self):
        _, said = self.host("ports=443", "more=8080", argv=("/usr/bin/python3", "-I", "-S", "-c", KIT + """
s = socket.socket(); s.bind(("127.0.0.1", 8080)); s.listen(); time.sleep(0.5)"""))
        # it may have been asked for before the program was that far
        self.assertTrue([line for line in said if "port 8080 is taken" in line or line.endswith("tcp:8080:6")], said)

    def test_the_proxys_port_by_policy(self):
        got, said = self.inside("""tell(tcp("1.1.1.1", 3128), tcp("198.18.0.1", 3128))""", "ports=3128")
        self.assertEqual(got, ["tcp ::ffff:1.1.1.1 3128 6", "tcp ::ffff:198.18.0.1 3128 6"])
        self.assertEqual(said[0], "open dns-udp:53:6 dns-tcp:53:6 tcp:3128:6")

    def test_no_ports_at_all(self):
        got, _ = self.inside("""tell(tcp("1.1.1.1", 443), udp("8.8.8.8", 53), tcp("198.18.0.1", 3128))""")
        self.assertEqual(got, ["ECONNREFUSED", "dns-udp ::ffff:8.8.8.8 53 q", "proxy 198.18.0.1 3128 4"])

    def test_service(self):
        _, said = self.host("service=1", "ports=80,443")
        self.assertEqual(said[0], OPEN_WEB)
        self.assertRegex(said[1], "^started ")
        _, said = self.host("service=1", "ports=80,443", "pool=1", "more=8080")
        self.assertEqual(said[2], OPEN_WEB + " tcp:8080:6")

    def test_values_that_no_engine_sends(self):
        ca = self.w.file("ca.pem", "x")
        big = self.w.file("big.pem", b"x" * ((4 << 20) + 1))
        for words in (("ports=80", "raw=many"), ("ports=80", "raw=off"), ("ports=80", "raw=two"), ("ports=0",),
                      ("ports=53",), ("ports=80,443,80",)):
            self.refused(*words, says="network of the run")
        self.refused("ports=80", f"trust={ca}", "raw=unsealed", says="CA bundle of the run")
        self.refused("ports=80", f"trust={big}", says="CA bundle of the run")

    def test_nothing_is_left_in_the_spawner(self):
        sock = self.spawn()
        ca = self.w.file("ca.pem", "ours\n")
        fds = lambda: len(os.listdir(f"/proc/{self.spawner.pid}/fd"))

        def rounds(n):
            for i in range(n):
                self.drive(sock, ("ports=80,443", "any=1", "service=1")[i % 3], f"trust={ca}")

        try:
            rounds(6)
            before = steady(fds)
            rounds(12)
            wait_until("descriptors are closed", lambda: fds() <= before)
        finally:
            self.end_spawner(sock)

    def test_it_waits_while_nobody_serves(self):
        # The host's own copies go with it; a connection then waits in the spawner's, and is neither refused nor
        # answered.
        sock = self.spawn()
        try:
            host = subprocess.Popen([HOST, str(sock.fileno()), "ports=443", "--", "/usr/bin/python3", "-I", "-S", "-c",
                                     KIT + """
print("ready", flush=True); time.sleep(1); s = socket.create_connection(("1.1.1.1", 443), 5); s.settimeout(0.5)
try: r = s.recv(10)
except TimeoutError: r = "waits"
print(r, flush=True)"""],
                                    pass_fds=[sock.fileno()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.assertEqual(host.stdout.readline(), b"ready\n")
            host.kill()
            host.wait()
            self.assertEqual(host.stdout.readline(), b"waits\n")
            host.stdout.close()
        finally:
            self.end_spawner(sock)


class Root(Shared, GateTest):
    def test_never_the_hosts_own_namespace(self):
        """Test builds can switch the layer off. In a namespace of the test's own, should it go wrong."""
        process = self.w.popen("unshare", "-n", "sh", "-c", '"$0" spawn ports=80 -- /bin/echo ran; ip -4 route show '
                               'table all; ip -6 route show table all', HOST,
                               env={"BRIG_TEST_OFF": "net_ns", "BRIG_LIBEXEC_DIR": os.path.abspath(LIBEXEC)})
        _, out, err = self.w.finish(process)
        self.assertNotIn(b"ran", out)
        self.assertNotIn(b"default", out)
        self.assertIn(b"has no network namespace of its own", err)

    def one_broken(self, text, n, *words):
        """(did it run, what was said)"""
        process = self.w.popen(HOST, "spawn", *words, "--", "/bin/echo", "ran",
                               env={"BRIG_TEST_FAIL_SYSCALL": str(n), "BRIG_TEST_FAIL_TEXT": text,
                                    "BRIG_LIBEXEC_DIR": os.path.abspath(LIBEXEC)})
        _, out, err = self.w.finish(process)
        said = err.decode("utf-8", "replace")
        self.assertIn(out, (b"", b"ran\n"))
        if out:
            self.assertRegex(said, "(?s)^open .*:.*started", (text, n))
        else:
            self.assertRegex(said, r"done \d+ exit=0 started=0", (text, n))
            self.assertNotRegex(said, "(?m)^started", (text, n))
        self.w.assert_clean()
        return bool(out), said

    def test_broken_anywhere(self):
        """A program never runs without all of its network, and nothing is left."""
        ca = self.w.file("ca.pem", "ours\n")
        named, every = ("ports=80,443", f"trust={ca}"), ("any=1",)
        for text, words, calls in (("ns_fd, CLONE_NEWNET", named, 1), ("NETLINK_ROUTE", named, 1),
                                   ("sendto(sock", named, 3), ("what->family, type", named, 5),
                                   ("IPV6_V6ONLY", named, 4), ("IPV6_RECVPKTINFO", named, 1), ("bind(fd, (", named, 5),
                                   ("listen(fd", named, 4), ("clone(work", named, 2),
                                   ("mnt_fd, CLONE_NEWNS", named, 1), ("open_tree(dir, name", named, 1),
                                   ("sendfile(to", named, 2), ("fchown(to", named, 1),
                                   ("IPV6_FREEBIND", every, 3), ("NETLINK_NETFILTER", every, 1),
                                   ("sendto(sock", every, 4), ("place->proc_fd, name", every, 1)):
            for n in range(1, calls + 1):
                self.assertFalse(self.one_broken(text, n, *words)[0], (text, n))
            self.assertTrue(self.one_broken(text, calls + 1, *words)[0], text)

    def test_a_kernel_without_ipv6(self):
        for words, opened in ((("ports=80,443",), OPEN_WEB.replace(":6", ":4")),
                              (("any=1",), "open redirect:65001:4 dns-udp:65053:4 dns-tcp:65053:4 proxy:3128:4")):
            ran, said = self.one_broken("AF_INET6, SOCK_DGRAM", 1, *words)
            self.assertTrue(ran, said)
            self.assertEqual(said.splitlines()[0], opened)

    def test_a_kernel_without_nat(self):
        _, said = self.one_broken("NETLINK_NETFILTER", 1, "any=1")
        self.assertRegex(said, "refused=1 network of any port: this kernel has no nf_tables \\(nat\\)")


@needs_root
class Rootless(Shared, GateTest):
    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID, delegated=True)


@needs_root
class Subordinate(GateTest):
    @classmethod
    def setUpClass(cls):
        user = cls.enterClassContext(SubidUser()) if hasattr(cls, "enterClassContext") else None
        cls.user = user
        super().setUpClass()

    @classmethod
    def make_world(cls):
        return World(uid=cls.user.pw_uid, gid=cls.user.pw_gid, delegated=True)

    test_bundle = Shared.test_bundle
    test_any_port = Shared.test_any_port
    test_wanted_address = Shared.test_wanted_address


if __name__ == "__main__":
    unittest.main()
