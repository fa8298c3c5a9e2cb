# SPDX-License-Identifier: Apache-2.0
"""brig-egress by itself: what its controller asks for, what a sandbox may reach, and the exact words of every refusal."""

import errno
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from egresskit import (ALLOWED, CLOSED, CONTROL, COUNT, DENIED, DNS_TCP, DNS_UDP, FAILED, HTTP, NOTHING, OTHER, PROXY, REDIRECT, TCP, TLS, Gate, Inside,
                       Outside, Refused, head, http_server, make_certificate, read_all, read_exactly, tls_server)
from helpers import PATIENCE
from jailkit import needs_root

WEB, SECURE, RAW, SIX = "203.0.113.10", "203.0.113.11", "203.0.113.12", "2001:db8::10"
RULES = [{"action": "allow", "domain": "web.example"}, {"action": "allow", "domain": "*.wild.example"},
         {"action": "allow", "domain": "secure.example", "ports": [443]}, {"action": "allow", "domain": "raw.example", "ports": [2222], "protocol": "tcp"}]


def banner_server(conn):
    conn.sendall(b"SSH-2.0-test\r\n")
    while (data := conn.recv(1 << 16)):
        conn.sendall(data)


@needs_root
class EgressTest(unittest.TestCase):
    """One internet and one brig-egress for all tests of a class; a slot and a network for each."""

    slot = 100

    @classmethod
    def setUpClass(cls):
        cls.requests = []
        cls.out = Outside()
        cls.out.names.update({"web.example": [WEB], "a.b.wild.example": [WEB], "secure.example": [SECURE], "raw.example": [RAW], "six.example": [SIX]})
        cls.directory = tempfile.TemporaryDirectory()
        cls.cert, cls.key = make_certificate(cls.directory.name, "secure.example", "other.example")
        cls.out.serve(WEB, 80, http_server(cls.requests))
        cls.out.serve(SIX, 80, http_server(cls.requests))
        cls.out.serve(SECURE, 443, tls_server(cls.cert, cls.key))
        cls.out.serve(RAW, 2222, banner_server)
        cls.gate = Gate(cls.out, Outside.FILES)

    @classmethod
    def tearDownClass(cls):
        log = cls.gate.close()
        cls.out.close()
        cls.directory.cleanup()
        assert log == "" and cls.gate.process.returncode == 0, (cls.gate.process.returncode, log)

    def setUp(self):
        self.inside = Inside()
        self.addCleanup(self.inside.close)
        EgressTest.slot += 1
        self.slot = EgressTest.slot

    def open(self, policy=None, ports=(80, 443, 2222), **more):
        answer = self.gate.prepare(self.slot, {"rules": RULES} if policy is None else policy, **more)
        listeners = self.inside.listeners(ports)
        self.gate.listen(self.slot, listeners)
        for _, _, sock in listeners:
            sock.close()
        self.addCleanup(self.forget)
        return answer

    def forget(self):
        try:
            self.gate.forget(self.slot)
        except Refused:
            pass
        self.gate.events.clear()

    def connect(self, host, port):
        sock = self.inside.connect(host, port)
        self.addCleanup(sock.close)
        return sock

    def by_name(self, name, port=80):
        return self.connect(self.inside.resolve(name), port)

    def http(self, sock, request):
        sock.sendall(request)
        return read_all(sock)

    def response(self, sock):
        """The content of one response that says its length."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += read_exactly(sock, 1)
        return read_exactly(sock, int(data.split(b"Content-Length: ")[1].split(b"\r\n")[0]))

    def assert_reset(self, sock, within=PATIENCE):
        began = time.monotonic()
        with self.assertRaises(ConnectionResetError):
            while sock.recv(4096):
                pass
            raise AssertionError("a FIN, not a reset")
        self.assertLess(time.monotonic() - began, within)

    def assert_turned_away(self, host, port, within=PATIENCE):
        """At once: the reset may even be seen by connect()."""
        try:
            sock = self.connect(host, port)
        except ConnectionResetError:
            return
        self.assert_reset(sock, within)

    def denied(self, **want):
        return self.gate.wait_event(slot=self.slot, verdict=DENIED, dns=0, **want)


class Names(EgressTest):
    def test_names_that_a_rule_has_get_an_address_of_the_gate(self):
        self.open()
        rcode, (address,) = self.inside.ask("web.example")
        self.assertEqual(rcode, 0)
        self.assertRegex(address, r"^198\.1[89]\.")
        self.assertEqual(self.inside.ask("web.example", tcp=True), (0, [address]))
        self.assertEqual(self.inside.ask("web.example", server="8.8.8.8"), (0, [address]))
        self.assertEqual(self.inside.ask("web.example", server="2606:4700::1111"), (0, [address]))
        self.assertTrue(self.inside.ask("web.example", kind=28)[1][0].startswith("2001:2:"))
        self.assertTrue(self.gate.wait_event(slot=self.slot, dns=1, verdict=ALLOWED, name="web.example"))

    def test_others_are_refused_and_nothing_is_asked_outside(self):
        self.open()
        before = len(self.out.asked)
        self.assertEqual(self.inside.ask("evil.example"), (5, []))
        self.assertEqual(self.inside.ask("wild.example"), (5, []))
        self.assertEqual(self.inside.ask("x.web.example", tcp=True), (5, []))
        self.gate.wait_event(slot=self.slot, dns=1, verdict=DENIED, name="evil.example")
        self.assertEqual(len(self.out.asked), before)
        self.assertEqual(self.gate.count(self.slot)["names_refused"], 3)

    def test_the_same_name_is_told_once_a_second_and_counted_each_time(self):
        self.open()
        for _ in range(20):
            self.inside.ask("evil.example")
        self.assertEqual(self.gate.count(self.slot)["names_refused"], 20)
        told = [e for e in self.gate.drain() if e["slot"] == self.slot and e["name"] == "evil.example"]
        self.assertIn(len(told), (1, 2))

    def test_tcp_serves_several_messages_and_ends_what_is_none(self):
        self.open()
        sock = self.connect("9.9.9.9", 53)
        query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\3web\7example\0\0\1\0\1"
        for part in (b"\0", bytes([len(query)]) + query[:5], query[5:], struct.pack(">H", len(query)) + query):
            sock.sendall(part)
        for _ in range(2):
            size = struct.unpack(">H", read_exactly(sock, 2))[0]
            self.assertEqual(read_exactly(sock, size)[:2], b"\0\7")
        sock.sendall(b"\xff\xff" + b"x" * 100)
        self.assertIn(sock.recv(10), (b"",))


class PlainHttp(EgressTest):
    def test_a_request_goes_through_and_is_told(self):
        self.open()
        sock = self.by_name("web.example")
        answer = self.http(sock, b"GET /a?b=c HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
        self.assertTrue(answer.endswith(b"GET /a?b=c HTTP/1.1 0"), answer)
        event = self.gate.wait_event(slot=self.slot, verdict=ALLOWED, dns=0)
        self.assertEqual((event["name"], event["dialled"], event["dialled_port"], event["wanted_port"], event["rule"], event["seen"]),
                         ("web.example", WEB, 80, 80, 0, HTTP))
        sock.close()
        closed = self.gate.wait_event(slot=self.slot, verdict=CLOSED)
        self.assertEqual(closed["connection"], event["connection"])
        self.assertGreater(closed["bytes_in"], 50)
        self.assertGreater(closed["bytes_out"], 50)

    def test_wildcards_and_both_families(self):
        self.open({"rules": [*RULES, {"action": "allow", "domain": "six.example"}]})
        for name, kind in (("a.b.wild.example", 1), ("web.example", 28), ("six.example", 1)):
            sock = self.connect(self.inside.resolve(name, kind), 80)
            answer = self.http(sock, f"GET / HTTP/1.1\r\nHost: {name.upper()}:80\r\nConnection: close\r\n\r\n".encode())
            self.assertIn(b"200 OK", answer)

    def test_every_request_of_a_connection_is_judged(self):
        self.open({"rules": [{"action": "allow", "domain": "web.example", "methods": ["GET", "POST"], "paths": ["/v1/"]}]})
        sock = self.by_name("web.example")
        for request, end in ((b"GET /v1/a HTTP/1.1\r\nHost: web.example\r\n\r\n", b"GET /v1/a HTTP/1.1 0"),
                             (b"POST /v1/b HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\n\r\nhello", b"POST /v1/b HTTP/1.1 5"),
                             (b"POST /v1/c HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                              b"POST /v1/c HTTP/1.1 3")):
            sock.sendall(request)
            self.assertEqual(self.response(sock), end)
        answer = self.http(sock, b"DELETE /v1/a HTTP/1.1\r\nHost: web.example\r\n\r\n")
        self.assertIn(b"HTTP/1.1 403 Forbidden", answer)
        self.assertIn(b"web.example:80", answer)
        self.denied(name="web.example", seen=HTTP)
        self.assertEqual(self.gate.count(self.slot)["allowed"], 3)
        sock = self.by_name("web.example")
        self.assertIn(b"403 Forbidden", self.http(sock, b"GET /v1x HTTP/1.1\r\nHost: web.example\r\n\r\n"))

    def test_pipelined_requests_are_answered_in_order_and_judged(self):
        self.open({"rules": [{"action": "allow", "domain": "web.example", "paths": ["/ok"]}]})
        sock = self.by_name("web.example")
        one = b"GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n"
        answer = self.http(sock, one + one + b"GET /no HTTP/1.1\r\nHost: web.example\r\n\r\n" + one)
        self.assertEqual(answer.count(b"200 OK"), 2)
        self.assertEqual(answer.count(b"403 Forbidden"), 1)
        self.assertLess(answer.rindex(b"200 OK"), answer.index(b"403 Forbidden"))

    def test_large_and_open_ended_answers(self):
        self.open()
        sock = self.by_name("web.example")
        answer = self.http(sock, b"GET /big HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
        self.assertEqual(len(answer.split(b"\r\n\r\n", 1)[1]), 1 << 20)
        sock = self.by_name("web.example")
        sock.sendall(b"GET /chunked HTTP/1.1\r\nHost: web.example\r\n\r\n")
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += sock.recv(4096)
        self.assertTrue(self.http(sock, b"GET /close HTTP/1.1\r\nHost: web.example\r\n\r\n").endswith(b"until the end"))

    def test_a_request_in_pieces(self):
        self.open()
        sock = self.by_name("web.example")
        for byte in b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":
            sock.sendall(bytes([byte]))
            time.sleep(0.002)
        self.assertIn(b"200 OK", read_all(sock))

    def test_what_does_not_agree_is_refused(self):
        self.open()
        for request, why in (
                (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "Host is evil.example"),
                (b"GET / HTTP/1.1\r\nHost: web.example:81\r\n\r\n", "Host has port 81"),
                (b"GET http://evil.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", "the target is evil.example"),
                (b"GET https://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", "the target's scheme is not http"),
                (b"GET http://user@web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", "the target is not a host"),
                (b"GET / HTTP/1.0\r\n\r\n", "Host is missing"),
                (b"CONNECT web.example:80 HTTP/1.1\r\nHost: web.example\r\n\r\n", "CONNECT needs a rule with protocol tcp"),
                (b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "an upgrade of HTTP needs a rule")):
            with self.subTest(why=why):
                answer = self.http(self.by_name("web.example"), request)
                self.assertTrue(answer.startswith(b"HTTP/1.1 403 Forbidden\r\n"), answer)
                self.assertIn(b"\r\nConnection: close\r\n", answer)
                self.assertIn(f"brig: web.example:80 is denied: {why}".encode(), answer)
                self.denied(why=why, name="web.example", seen=HTTP)

    def test_what_could_be_read_in_two_ways_is_refused(self):
        self.open()
        before = len(self.requests)
        for request, status in (
                (b"GET / HTTP/1.1\r\nHost: web.example\r\nHost: evil.example\r\n\r\n", 400),
                (b"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
                (b"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
                (b"GET / HTTP/1.1\nHost: web.example\n\n", 400),
                (b"GET / HTTP/1.1\r\nHost : web.example\r\n\r\n", 400),
                (b"GET ftp://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", 400),
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)):
            with self.subTest(request=request):
                answer = self.http(self.by_name("web.example"), request)
                self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()), answer)
                self.denied(why="malformed")
        self.assertEqual(len(self.requests), before)

    def test_the_offer_of_h2c_is_not_passed_on(self):
        self.open()
        answer = self.http(self.by_name("web.example"), b"GET /h2c HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                           b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\nGET /last HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
        self.assertEqual(answer.count(b"200 OK"), 2)
        fields = next(f for line, f, _ in self.requests if line.startswith("GET /h2c"))
        self.assertEqual(set(fields), {"host"})


class Tls(EgressTest):
    def context(self):
        context = ssl.create_default_context(cafile=self.cert)
        return context

    def test_tls_by_name(self):
        self.open()
        with self.context().wrap_socket(self.by_name("secure.example", 443), server_hostname="secure.example") as tls:
            tls.sendall(b"x" * 100000)
            self.assertEqual(read_exactly(tls, 100000), b"x" * 100000)
            event = self.gate.wait_event(slot=self.slot, verdict=ALLOWED, dns=0)
            self.assertEqual((event["name"], event["seen"], event["dialled"]), ("secure.example", TLS, SECURE))
        self.gate.wait_event(slot=self.slot, verdict=CLOSED)

    def assert_tls_fails(self, sock, name, context=None):
        with self.assertRaises((ConnectionResetError, ssl.SSLError)) as caught:
            (context or self.context()).wrap_socket(sock, server_hostname=name)
        self.assertIsInstance(caught.exception, ConnectionResetError)

    def test_another_sni_is_refused(self):
        self.open()
        self.assert_tls_fails(self.by_name("secure.example", 443), "other.example")
        event = self.denied(why="the ClientHello names other.example")
        self.assertEqual((event["seen"], event["dialled"]), (TLS, "::"))

    def test_no_sni_follows_the_policy(self):
        context = self.context()
        context.check_hostname = False
        self.open()
        self.assert_tls_fails(self.by_name("secure.example", 443), None, context)
        self.denied(why="no server name")
        self.gate.prepare(self.slot, {"rules": RULES, "tls": {"no_sni": "allow"}}, version=2)
        context.wrap_socket(self.by_name("secure.example", 443)).close()

    def test_a_malformed_hello_is_refused(self):
        self.open()
        for hello in (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", b"\x16\x03\x01\xff\xff" + b"x" * 100):
            sock = self.by_name("secure.example", 443)
            sock.sendall(hello)
            self.assert_reset(sock)
            self.denied(why="malformed", seen=TLS)

    def test_a_hello_in_pieces(self):
        self.open()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context().wrap_bio(incoming, outgoing, server_hostname="secure.example")
        with self.assertRaises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello, sock = outgoing.read(), self.by_name("secure.example", 443)
        for i in range(0, len(hello), 50):
            sock.sendall(hello[i:i + 50])
            time.sleep(0.005)
        self.assertEqual(sock.recv(1), b"\x16")

    def test_bytes_that_are_neither(self):
        self.open()
        sock = self.by_name("web.example", 80)
        sock.sendall(b"SSH-2.0-x\r\n")
        self.assert_reset(sock)
        self.denied(why="neither TLS nor HTTP", seen=OTHER)


class Addresses(EgressTest):
    def test_addresses_are_denied_where_no_cidr_rule_names_them(self):
        self.open()
        for address, why in ((WEB, "default deny"), ("10.0.0.1", "private"), ("169.254.169.254", "metadata"), ("127.0.0.1", "loopback"),
                             ("127.1.2.3", "loopback"), ("::1", "loopback"), ("198.19.99.99", "stands for no name"), ("198.18.99.99", "the gate's own"), ("fd00:ec2::254", "metadata")):
            with self.subTest(address=address):
                answer = self.http(self.connect(address, 80), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertTrue(answer.startswith(b"HTTP/1.1 403 Forbidden"), answer)
                self.denied(wanted=address, why=why)
                self.assert_turned_away(address, 443, within=0.9)
                self.denied(wanted=address, wanted_port=443)

    def test_a_silent_denied_connection_is_reset_after_a_second(self):
        self.open()
        began = time.monotonic()
        self.assert_reset(self.connect(WEB, 80))
        self.assertGreater(time.monotonic() - began, 0.8)
        sock = self.connect(WEB, 80)
        sock.sendall(b"\x00\x01binary")
        self.assert_reset(sock, within=0.9)

    def test_a_port_that_is_not_served_is_refused_by_the_kernel(self):
        self.open()
        with self.assertRaises(ConnectionRefusedError):
            self.connect(WEB, 8080)

    def test_cidr_rules(self):
        self.open({"rules": [{"action": "allow", "cidr": "203.0.113.0/24"}, {"action": "deny", "domain": "evil.example"}]})
        answer = self.http(self.connect(WEB, 80), f"GET / HTTP/1.1\r\nHost: {WEB}\r\nConnection: close\r\n\r\n".encode())
        self.assertIn(b"200 OK", answer)
        answer = self.http(self.connect(WEB, 80), b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        self.assertIn(b"403 Forbidden", answer)
        self.denied(why="rule 1")
        answer = self.http(self.connect(WEB, 80), b"GET / HTTP/1.1\r\nHost: 203.0.113.99\r\n\r\n")
        self.assertIn(b"403 Forbidden", answer)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with self.assertRaises(ConnectionResetError):
            context.wrap_socket(self.connect(SECURE, 443), server_hostname="evil.example")
        context.wrap_socket(self.connect(SECURE, 443), server_hostname="fine.example").close()
        context.wrap_socket(self.connect(SECURE, 443)).close()

    def test_a_name_that_resolves_to_what_is_not_public_is_refused_every_time(self):
        answers = iter([["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:10.0.0.1"], ["64:ff9b::a00:1"]])
        self.open({"rules": [{"action": "allow", "domain": "*.rebind.example"}]})
        for i, addresses in enumerate(answers):
            name = f"n{i}.rebind.example"
            self.out.names[name] = addresses
            answer = self.http(self.by_name(name), f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            self.assertTrue(answer.startswith(b"HTTP/1.1 403 Forbidden"), (addresses, answer))
            self.assertEqual(self.denied(name=name)["dialled"], "::")

    def test_of_several_addresses_only_the_allowed_are_dialled(self):
        self.out.names["mixed.example"] = ["10.0.0.1", "203.0.113.77", WEB]
        self.open({"rules": [{"action": "allow", "domain": "mixed.example"}]})
        answer = self.http(self.by_name("mixed.example"), b"GET / HTTP/1.1\r\nHost: mixed.example\r\nConnection: close\r\n\r\n")
        self.assertIn(b"200 OK", answer)
        self.assertEqual(self.gate.wait_event(slot=self.slot, verdict=ALLOWED, dns=0)["dialled"], WEB)

    def test_what_cannot_be_reached(self):
        self.out.names["closed.example"] = ["203.0.113.99"]
        self.open({"rules": [{"action": "allow", "domain": "closed.example"}, {"action": "allow", "domain": "missing.example"}]})
        for name in ("closed.example", "missing.example"):
            answer = self.http(self.by_name(name), f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            self.assertTrue(answer.startswith(b"HTTP/1.1 502 "), answer)
            self.gate.wait_event(slot=self.slot, verdict=FAILED, name=name)


class Raw(EgressTest):
    def test_a_server_may_speak_first_where_a_rule_says_tcp(self):
        self.open()
        sock = self.by_name("raw.example", 2222)
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        sock.sendall(b"echo")
        self.assertEqual(sock.recv(100), b"echo")
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(sock.recv(100), b"")
        event = self.gate.wait_event(slot=self.slot, verdict=CLOSED)
        self.assertEqual((event["bytes_in"], event["bytes_out"], event["seen"]), (18, 4, OTHER))

    def test_a_half_close_is_carried_over_after_the_data(self):
        def summer(conn):
            total = sum(len(d) for d in iter(lambda: conn.recv(1 << 16), b""))
            conn.sendall(str(total).encode())

        self.out.names["sum.example"] = ["203.0.113.30"]
        self.out.serve("203.0.113.30", 2222, summer)
        self.open({"rules": [{"action": "allow", "domain": "sum.example", "ports": [2222], "protocol": "tcp"}]})
        sock = self.by_name("sum.example", 2222)
        sock.sendall(b"x" * 5_000_000)
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(read_all(sock), b"5000000")

    def test_a_slow_reader_gets_everything(self):
        def flood(conn):
            conn.sendall(bytes(range(256)) * 32768)

        self.out.names["flood.example"] = ["203.0.113.31"]
        self.out.serve("203.0.113.31", 2222, flood)
        self.open({"rules": [{"action": "allow", "domain": "flood.example", "ports": [2222], "protocol": "tcp"}]})
        sock, data = self.by_name("flood.example", 2222), b""
        while len(data) < 1 << 18:
            data += sock.recv(4096)
            time.sleep(0.001)
        data += read_all(sock)
        self.assertEqual(data, bytes(range(256)) * 32768)


class Open(EgressTest):
    """default: allow. Any bytes, but what says a name is held to it."""

    POLICY = {"default": "allow", "rules": [{"action": "deny", "domain": "evil.example"}]}

    def test_servers_and_clients_may_speak_first(self):
        self.open(self.POLICY)
        sock = self.by_name("raw.example", 2222)
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        sock.sendall(b"EHLO me\r\n")
        self.assertEqual(sock.recv(100), b"EHLO me\r\n")
        sock = self.by_name("raw.example", 2222)
        sock.sendall(b"EHLO me\r\n")
        self.assertEqual(read_exactly(sock, 23), b"SSH-2.0-test\r\nEHLO me\r\n")

    def hello(self, name):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with self.assertRaises(ssl.SSLWantReadError):
            ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
        return outgoing.read()

    def test_a_denied_name_is_denied_by_address_and_by_another_name(self):
        self.open(self.POLICY)
        for address in (RAW, self.inside.resolve("raw.example")):
            for wait in (0, 0.3):
                sock = self.connect(address, 2222)
                time.sleep(wait)
                sock.sendall(self.hello("evil.example"))
                self.assert_reset(sock)
                self.denied(seen=TLS)

    def test_a_hello_that_comes_slowly_is_held_back_until_it_is_judged(self):
        self.open(self.POLICY)
        hello, sock = self.hello("evil.example"), self.connect(RAW, 2222)
        sock.sendall(hello[:1])
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        sock.sendall(hello[1:-1])
        time.sleep(0.3)
        sock.setblocking(False)
        with self.assertRaises(BlockingIOError):
            sock.recv(100)  # the server would have echoed it
        sock.settimeout(PATIENCE)
        sock.sendall(hello[-1:])
        self.assert_reset(sock)
        sock, hello = self.connect(RAW, 2222), self.hello("fine.example")
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        sock.sendall(hello)
        self.assertEqual(read_exactly(sock, len(hello)), hello)

    def test_http_is_followed_and_may_be_upgraded(self):
        self.open(self.POLICY)
        sock = self.by_name("web.example")
        sock.sendall(b"GET /a HTTP/1.1\r\nHost: web.example\r\n\r\n")
        self.assertEqual(self.response(sock), b"GET /a HTTP/1.1 0")
        self.assertIn(b"403 Forbidden", self.http(sock, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"))

        def switch(conn):
            data = b""
            while b"\r\n\r\n" not in data:
                data += conn.recv(1000)
            conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
            banner_server(conn)

        self.out.names["switch.example"] = ["203.0.113.50"]
        self.out.serve("203.0.113.50", 80, switch)
        sock = self.by_name("switch.example")
        sock.sendall(b"GET / HTTP/1.1\r\nHost: switch.example\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        data = b""
        while b"SSH-2.0-test\r\n" not in data:
            data += sock.recv(1000)
        self.assertTrue(data.startswith(b"HTTP/1.1 101 "))
        sock.sendall(b"\0\1anything")
        self.assertEqual(sock.recv(100), b"\0\1anything")

    def test_private_addresses_stay_closed(self):
        self.open(self.POLICY)
        for address in ("10.0.0.1", "169.254.169.254", "127.0.0.1", "::ffff:10.0.0.1", "fc00::1"):
            self.assert_turned_away(address, 443)
            self.denied(wanted_port=443)

    def test_learning_says_what_it_would_have_been(self):
        self.open({"default": "deny"}, flags=1)
        for port, data, seen in ((443, self.hello("fine.example"), TLS), (80, b"GET / HTTP/1.1\r\n", HTTP), (2222, b"\0\1", OTHER), (2222, b"", NOTHING)):
            sock = self.connect(WEB, port)
            sock.sendall(data)
            event = self.denied(wanted_port=port, seen=seen)
            self.assertEqual((event["rule"], event["wanted"]), (-1, WEB))
            sock.close()


@unittest.skipUnless(shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin"), "nft is not there")
class Redirect(EgressTest):
    """Any port: the target comes from the kernel's connection tracking."""

    def test_the_wanted_address_and_port(self):
        rules = "table inet gate { chain out { type nat hook output priority -100; ip daddr != 127.0.0.0/8 tcp dport != 53 redirect to :65000; " \
                "ip6 daddr != ::1 meta nfproto ipv6 tcp dport != 53 redirect to :65000; }; }"
        self.inside.call(subprocess.run, ["nft", "-f", "-"], input=rules.encode(), check=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})
        self.gate.prepare(self.slot, {"default": "allow"})
        self.addCleanup(self.forget)
        listeners = self.inside.listeners(())
        listeners = [x for x in listeners if x[1] != PROXY] + [(65000, REDIRECT, self.inside.listener(65000))]
        self.gate.listen(self.slot, listeners)
        sock = self.by_name("raw.example", 2222)
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        event = self.gate.wait_event(slot=self.slot, verdict=ALLOWED, dns=0)
        self.assertEqual((event["name"], event["wanted_port"], event["dialled"]), ("raw.example", 2222, RAW))
        sock = self.connect(self.inside.resolve("six.example", 28), 80)
        self.assertIn(b"200 OK", self.http(sock, b"GET / HTTP/1.1\r\nHost: six.example\r\nConnection: close\r\n\r\n"))
        self.assert_turned_away("10.0.0.1", 5432)
        self.assertEqual(self.denied()["wanted_port"], 5432)
        own = self.inside.listener(8080, "127.0.0.1")
        self.connect("127.0.0.1", 8080)
        own.close()


class Proxy(EgressTest):
    def proxy(self, data):
        sock = self.connect("198.18.0.1", 3128)
        sock.sendall(data)
        return sock

    def test_connect(self):
        self.open()
        sock = self.proxy(b"CONNECT secure.example:443 HTTP/1.1\r\nHost: secure.example:443\r\n\r\n")
        self.assertEqual(sock.recv(100), b"HTTP/1.1 200 Connection established\r\n\r\n")
        with ssl.create_default_context(cafile=self.cert).wrap_socket(sock, server_hostname="secure.example") as tls:
            tls.sendall(b"hello")
            self.assertEqual(tls.recv(10), b"hello")

    def test_connect_is_judged_like_a_connection(self):
        self.open()
        for target, status in (("evil.example:443", 403), ("127.0.0.1:443", 403), (f"{WEB}:80", 403), ("10.0.0.1:443", 403), ("[::1]:443", 403),
                               ("2130706433:443", 400), ("0x7f.1:443", 400), ("127.1:443", 400), ("secure.example:22", 403), ("secure.example", 400),
                               ("secure.example:99999", 400)):
            with self.subTest(target=target):
                answer = read_all(self.proxy(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()))
                self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()), answer)
                self.denied()

    def test_what_goes_through_a_tunnel_must_agree(self):
        self.open()
        sock = self.proxy(b"CONNECT secure.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.recv(100)
        with self.assertRaises(ConnectionResetError):
            ssl.create_default_context(cafile=self.cert).wrap_socket(sock, server_hostname="other.example")
        sock = self.proxy(b"CONNECT web.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.recv(100)
        self.assertIn(b"403 Forbidden", self.http(sock, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
        sock = self.proxy(b"CONNECT web.example:80 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
        self.assertIn(b"GET / HTTP/1.1 0", read_all(sock))

    def test_requests_with_an_absolute_target(self):
        self.open()
        sock = self.proxy(b"GET http://web.example/p?q HTTP/1.1\r\nHost: web.example\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: x\r\n\r\n")
        self.assertEqual(self.response(sock), b"GET /p?q HTTP/1.1 0")
        self.assertEqual(set(self.requests[-1][1]), {"host"})
        sock.sendall(b"GET http://a.b.wild.example HTTP/1.1\r\nHost: a.b.wild.example\r\n\r\n")
        self.assertEqual(self.response(sock), b"GET / HTTP/1.1 0")
        self.assertIn(b"403 Forbidden", self.http(sock, b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
        self.denied(name="evil.example", why="default deny")

    def test_what_is_no_request_for_this_proxy(self):
        self.open()
        for request, status in ((b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", 400), (b"GET ftp://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", 400),
                                (b"GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400),
                                (b"GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nX-Unix-Socket: /run/docker.sock\r\n\r\n", 400),
                                (b"GET https://secure.example/ HTTP/1.1\r\nHost: secure.example\r\n\r\n", 400),
                                (b"GET http://web.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403)):
            with self.subTest(request=request):
                answer = read_all(self.proxy(request))
                self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()), answer)

    def socks(self, request):
        sock = self.proxy(b"\5\1\0")
        self.assertEqual(read_exactly(sock, 2), b"\5\0")
        sock.sendall(request)
        return sock

    def test_socks5(self):
        self.open()
        name = b"raw.example"
        sock = self.socks(b"\5\1\0\3" + bytes([len(name)]) + name + struct.pack(">H", 2222))
        self.assertEqual(read_exactly(sock, 10)[:2], b"\5\0")
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        fake = self.inside.resolve("raw.example")
        sock = self.socks(b"\5\1\0\1" + socket.inet_aton(fake) + struct.pack(">H", 2222))
        self.assertEqual(read_exactly(sock, 10)[:2], b"\5\0")
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")

    def test_socks5_refusals(self):
        self.open()

        def named(name):
            return b"\5\1\0\3" + bytes([len(name)]) + name + b"\1\xbb"

        for request, reply in ((named(b"evil.example"), 2), (named(b"evil\0.web.example"), None), (named(b""), None), (named(b"x" * 255), None),
                               (b"\5\1\0\1\x7f\0\0\1\1\xbb", 2), (b"\5\1\0\4" + b"\0" * 15 + b"\1\1\xbb", 2),
                               (b"\5\2\0\1\x01\x02\x03\x04\1\xbb", 7), (b"\5\3\0\1\x01\x02\x03\x04\1\xbb", 7), (b"\5\1\0\2\x01\x02\x03\x04\1\xbb", 8)):
            with self.subTest(request=request):
                answer = read_exactly(self.socks(request), 10)
                self.assertEqual(answer[0], 5)
                if reply is None:
                    self.assertNotEqual(answer[1], 0)
                else:
                    self.assertEqual(answer[1], reply)
                self.denied()
        self.assertEqual(read_exactly(self.proxy(b"\5\1\2"), 2), b"\5\xff")
        self.assert_reset(self.proxy(b"\4\1\0\x50\0\0\0\1user\0web.example\0"))


class Limits(EgressTest):
    TCP_ONLY = [{"action": "allow", "domain": "bulk.example", "ports": [2222], "protocol": "tcp"}]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def bulk(conn):
            while True:
                conn.sendall(b"x" * 65536)

        cls.out.names["bulk.example"] = ["203.0.113.40"]
        cls.out.serve("203.0.113.40", 2222, bulk)

    def receive(self, sock, seconds):
        until, n = time.monotonic() + seconds, 0
        while (left := until - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                more = len(sock.recv(1 << 16))
            except TimeoutError:
                break
            if not more:
                break
            n += more
        return n

    def test_bytes_per_second_for_all_connections_together(self):
        self.open({"rules": self.TCP_ONLY, "limits": {"net_bps": 2_000_000}})
        socks = [self.by_name("bulk.example", 2222) for _ in range(4)]
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        got = [0] * 4
        time.sleep(1)  # what is in buffers before the first read does not count
        before = self.gate.count(self.slot)["bytes_in"]
        began = time.monotonic()
        threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, self.receive(socks[i], 3))) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        passed = time.monotonic() - began
        counts = self.gate.count(self.slot)
        rate = (counts["bytes_in"] - before) / passed
        self.assertLess(abs(rate - 2_000_000) / 2_000_000, 0.10, rate)
        self.assertLess(max(got) / min(got), 1.5, got)
        self.assertTrue(counts["limits_hit"] & 1 << 14)

    def test_a_budget_is_exact_and_its_end_is_told(self):
        self.open({"rules": self.TCP_ONLY}, limits={"net_bytes_in": 300_000})
        sock = self.by_name("bulk.example", 2222)
        data = 0
        with self.assertRaises(ConnectionResetError):
            while True:
                more = len(sock.recv(1000))
                self.assertTrue(more)
                data += more
        self.assertLessEqual(data, 300_000)
        counts = self.gate.count(self.slot)
        self.assertEqual(counts["bytes_in"], 300_000)
        self.assertTrue(counts["limits_hit"] & 1 << 12)
        self.denied(why="net_bytes_in is used up")
        self.gate.wait_event(slot=self.slot, verdict=CLOSED, why="net_bytes_in is used up")
        self.assert_reset(self.by_name("bulk.example", 2222))
        self.denied(why="net_bytes_in is used up")

    def test_bytes_out(self):
        self.open(limits={"net_bytes_out": 1000})
        sock = self.by_name("raw.example", 2222)
        sock.recv(100)
        sock.sendall(b"x" * 1000)
        self.assertEqual(len(read_exactly(sock, 1000)), 1000)
        sock.sendall(b"x")
        self.assert_reset(sock)
        self.assertEqual(self.gate.count(self.slot)["bytes_out"], 1000)

    def test_connections_open_at_once(self):
        self.open(limits={"connections": 3})
        socks = [self.by_name("raw.example", 2222) for _ in range(3)]
        for sock in socks:
            sock.recv(100)
        self.assert_turned_away(self.inside.resolve("raw.example"), 2222)
        self.denied(why="too many connections are open")
        socks[0].close()
        self.gate.wait_event(slot=self.slot, verdict=CLOSED)
        self.assertEqual(self.by_name("raw.example", 2222).recv(4), b"SSH-")
        self.assertTrue(self.gate.count(self.slot)["limits_hit"] & 1 << 15)

    def test_connections_per_second(self):
        self.open(limits={"connections_per_second": 5})
        address, came = self.inside.resolve("raw.example"), 0
        for _ in range(20):
            try:
                sock = self.connect(address, 2222)
                came += bool(sock.recv(10))
            except ConnectionResetError:
                pass
        self.assertIn(came, (5, 6, 7))
        self.denied(why="too many connections in a second")

    def test_lifetime(self):
        self.open(limits={"lifetime": 0.5})
        sock = self.by_name("raw.example", 2222)
        sock.recv(100)
        began = time.monotonic()
        self.assert_reset(sock)
        self.assertGreater(time.monotonic() - began, 0.3)
        self.gate.wait_event(slot=self.slot, verdict=CLOSED, why="lifetime")


class Control(EgressTest):
    def test_a_policy_is_replaced_and_what_it_forbids_is_cut(self):
        self.open()
        stays, goes = self.by_name("raw.example", 2222), self.by_name("web.example")
        stays.recv(100)
        goes.sendall(b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
        goes.recv(100)
        answer = self.gate.prepare(self.slot, {"rules": RULES[1:]}, version=2)
        self.assertEqual((answer["version"], answer["listening"]), (2, 1))
        self.assert_reset(goes)
        event = self.denied(name="web.example", version=2)
        self.assertEqual(event["dialled"], WEB)
        stays.sendall(b"still here")
        self.assertEqual(stays.recv(100), b"still here")
        self.assertEqual(self.inside.ask("web.example"), (5, []))

    def test_a_version_that_is_not_higher_changes_nothing(self):
        self.open(version=5)
        self.gate.prepare(self.slot, {"rules": []}, version=5)
        self.assertIn(b"200", self.http(self.by_name("web.example"), b"GET / HTTP/1.0\r\nHost: web.example\r\n\r\n"))
        with self.assertRaises(Refused) as caught:
            self.gate.prepare(self.slot, {"rules": []}, version=4)
        self.assertIn("version 5", str(caught.exception))

    def test_a_policy_that_is_none_is_refused_and_leaves_the_old(self):
        self.open()
        for policy in ({"rules": [{"action": "maybe"}]}, {"rulez": []}, 7):
            with self.assertRaises(Refused):
                self.gate.prepare(self.slot, policy, version=2)
        self.assertEqual(self.gate.prepare(self.slot, {"rules": RULES}, version=1)["version"], 1)
        with self.assertRaises(Refused):
            self.gate.count(999999)

    def test_forget_closes_everything(self):
        self.open()
        sock = self.by_name("raw.example", 2222)
        sock.recv(100)
        counts = self.gate.forget(self.slot)
        self.assertEqual((counts["open"], counts["allowed"], counts["bytes_in"]), (0, 1, 14))
        self.assert_reset(sock)
        self.gate.wait_event(slot=self.slot, verdict=CLOSED, why="the sandbox has ended")
        with self.assertRaises(ConnectionRefusedError):
            self.connect("1.2.3.4", 80)

    def test_descriptors_that_are_not_listeners_are_refused(self):
        self.gate.prepare(self.slot, {"rules": RULES})
        self.addCleanup(self.forget)
        stream, udp = self.inside.socket(socket.AF_INET, socket.SOCK_STREAM), self.inside.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for listeners in ([(80, TCP, stream)], [(53, DNS_UDP, stream)], [(80, TCP, udp)], [(53, DNS_TCP, udp)]):
            with self.assertRaises(Refused):
                self.gate.listen(self.slot, listeners)
        stream.close()
        udp.close()

    def test_the_controller_may_come_again(self):
        self.open()
        sock = self.by_name("raw.example", 2222)
        sock.recv(100)
        self.gate.control.close()
        sock.sendall(b"nobody looks")
        self.assertEqual(sock.recv(100), b"nobody looks")
        other = self.by_name("raw.example", 2222)
        self.assertTrue(other.recv(100))
        self.gate.control = None
        self.gate.connect()
        self.gate.sync()
        self.assertEqual(self.gate.prepare(self.slot, {"rules": []})["listening"], 1)
        self.gate.synced()
        sock.sendall(b"x")
        self.assertEqual(sock.recv(1), b"x")
        self.gate.wait_event(slot=self.slot, verdict=ALLOWED, dns=0, name="raw.example")
        self.gate.sync()
        self.gate.synced()
        self.assert_reset(sock)
        with self.assertRaises(Refused):
            self.gate.count(self.slot)

    def test_a_message_that_makes_no_sense_closes_the_socket_only(self):
        self.open()
        for data in (b"x", head(CONTROL), head(99), b"\0" * 16, head(COUNT, 0)):
            self.gate.send(data)
            self.assertEqual(self.gate.control.recv(100), b"")
            self.gate.connect()
        self.assertTrue(self.gate.ping())
        self.gate.count(self.slot)

    def test_no_decision_is_lost_while_the_controller_does_not_read(self):
        self.open(limits={"connections": 4096})
        address, tries = "203.0.113.5", 1500
        for i in range(tries):  # the backlog takes what is not accepted
            try:
                sock = self.inside.connect(address, 443, timeout=1)
                sock.close()
            except (ConnectionResetError, TimeoutError):
                pass
        time.sleep(0.2)
        events = [e for e in self.gate.drain() if e["slot"] == self.slot]
        self.assertEqual(len([e for e in events if e["verdict"] == DENIED]), self.gate.count(self.slot)["denied"])
        self.assertGreater(len(events), 512)


@needs_root
class Process(unittest.TestCase):
    def status(self, pid):
        with open(f"/proc/{pid}/status") as f:
            return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)

    def test_it_has_nothing_left_and_ends_with_its_parent(self):
        gate = Gate(None)
        status = self.status(gate.process.pid)
        self.assertEqual(status["Name"], "brig-egress")
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")
        self.assertEqual(status["Uid"].split(), ["65534"] * 4)
        for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[caps], 16), 0, caps)
        with open(f"/proc/{gate.process.pid}/limits") as f:
            self.assertRegex(f.read(), r"Max core file size\s+0\s+0")
        self.assertTrue(gate.ping())
        self.assertEqual(gate.close(), "")
        self.assertEqual(gate.process.returncode, 0)

    def test_nothing_is_left_of_connections_and_of_a_killed_gate(self):
        outside, inside, requests = Outside(), Inside(), []
        self.addCleanup(outside.close)
        self.addCleanup(inside.close)
        outside.names["web.example"], outside.names["raw.example"] = [WEB], [RAW]
        outside.serve(WEB, 80, http_server(requests))
        outside.serve(RAW, 2222, banner_server)
        gate = Gate(outside, Outside.FILES)

        def descriptors():
            return len(os.listdir(f"/proc/{gate.process.pid}/fd"))

        before = descriptors()
        for slot in range(1, 6):
            gate.prepare(slot, {"rules": RULES})
        gate.prepare(9, {"rules": RULES})
        gate.listen(9, inside.listeners((80, 443, 2222)))
        for _ in range(30):
            raw, web = inside.connect(inside.resolve("raw.example"), 2222), inside.connect(inside.resolve("web.example"), 80)
            raw.recv(10)
            web.sendall(b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\nGET / HTTP/1.1\r\n")
            web.recv(10)
            raw.close()
            web.close()
        sock = inside.connect(inside.resolve("raw.example"), 2222)
        sock.recv(100)
        for slot in (1, 2, 3, 4, 5):
            gate.forget(slot)
        until = time.monotonic() + PATIENCE
        while gate.count(9)["open"] > 1 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(gate.count(9)["open"], 1)
        self.assertLessEqual(descriptors(), before + 8 + 2)
        os.kill(gate.process.pid, signal.SIGKILL)
        gate.process.wait()
        sock.settimeout(PATIENCE)
        with self.assertRaises(ConnectionError):
            while sock.recv(100):
                pass
            raise ConnectionResetError  # a FIN says it as well
        gate.control.close()
        gate.parent.close()

    def test_without_a_parent_it_says_so(self):
        from egresskit import EGRESS
        done = subprocess.run([EGRESS], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, close_fds=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"started by brig", done.stderr)


if __name__ == "__main__":
    unittest.main()
