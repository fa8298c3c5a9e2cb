# SPDX-License-Identifier: Apache-2.0
"""brig-egress by itself: what a sandbox may reach by name and address, and the exact words of every refusal."""

import socket
import ssl
import struct
import threading
import time
import unittest

from egresskit import ALLOWED, CLOSED, DENIED, FAILED, HTTP, OTHER, TLS, read_all, read_exactly
from egresstest import RULES, SECURE, WEB, EgressTest
from helpers import arrived


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
        self.assertEqual((event["name"], event["dialled"], event["dialled_port"], event["wanted_port"], event["rule"],
                          event["seen"]),
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
        self.open({"rules":
                   [{"action": "allow", "domain": "web.example", "methods": ["GET", "POST"], "paths": ["/v1/"]}]})
        sock = self.by_name("web.example")
        for request, end in ((b"GET /v1/a HTTP/1.1\r\nHost: web.example\r\n\r\n", b"GET /v1/a HTTP/1.1 0"),
                             (b"POST /v1/b HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\n\r\nhello",
                              b"POST /v1/b HTTP/1.1 5"),
                             (b"POST /v1/c HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n"
                              b"abc\r\n0\r\n\r\n",
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

    def test_chunks_are_framed_anew(self):
        """A server that reads chunks otherwise than the gate (here: sizes of 32 bits) still finds the same end."""
        heads, raw, ended = [], [], threading.Event()

        def serve(conn):
            stream = conn.makefile("rwb")
            while (line := stream.readline()):
                heads.append(line.decode().split()[1])
                while stream.readline().strip():
                    pass
                body = b""
                while line.startswith(b"POST"):
                    size = stream.readline()
                    n = int(size.split(b";")[0] or b"0", 16) & 0xffffffff
                    body += size + stream.read(n) + stream.readline()
                    if n == 0:
                        break
                raw.append(body)
                answer = b"2;x=y\r\nok\r\n0\r\nX-Late: 1\r\n\r\n"
                stream.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + answer)
                stream.flush()

        def handler(conn):
            try:
                serve(conn)
            finally:
                ended.set()

        self.out.serve(WEB, 8081, handler)
        self.open({"rules": [{"action": "allow", "domain": "web.example", "ports": [8081], "paths": ["/v1/"]}]},
                  ports=(8081,))
        head = b"POST /v1/a HTTP/1.1\r\nHost: web.example:8081\r\nTransfer-Encoding: chunked\r\n\r\n"
        sock = self.by_name("web.example", 8081)
        sock.sendall(head + b"0003;a=b\r\nabc\r\n0;c\r\nX-Trailer: d\r\n\r\n")
        data = b""
        while data.count(b"\r\n\r\n") < 2:
            data += sock.recv(4096)
        self.assertEqual(raw, [b"3\r\nabc\r\n0\r\n\r\n"])
        self.assertTrue(data.endswith(b"\r\n\r\n2\r\nok\r\n0\r\n\r\n"), data)
        sock.sendall(head + b"100000003\r\nabc\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: web.example\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        self.assertTrue(ended.wait(60))
        self.assertEqual(heads, ["/v1/a", "/v1/a"])

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
            arrived(sock)
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
                (b"CONNECT web.example:80 HTTP/1.1\r\nHost: web.example\r\n\r\n",
                 "CONNECT needs a rule with protocol tcp"),
                (b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                 "an upgrade of HTTP needs a rule")):
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
                (b"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
                 b"0\r\n\r\n", 400),
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
        answer = self.http(self.by_name("web.example"),
                           b"GET /h2c HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                           b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\nGET /last HTTP/1.1\r\n"
                           b"Host: web.example\r\nConnection: close\r\n\r\n")
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
        for hello in (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
                      b"\x16\x03\x01\xff\xff" + b"x" * 100):
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
            arrived(sock)
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
        for address, why in ((WEB, "default deny"), ("10.0.0.1", "private"), ("169.254.169.254", "metadata"),
                             ("127.0.0.1", "loopback"),
                             ("127.1.2.3", "loopback"), ("::1", "loopback"), ("198.19.99.99", "stands for no name"),
                             ("198.18.99.99", "the gate's own"), ("fd00:ec2::254", "metadata")):
            with self.subTest(address=address):
                answer = self.http(self.connect(address, 80), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertTrue(answer.startswith(b"HTTP/1.1 403 Forbidden"), answer)
                self.denied(wanted=address, why=why)
                self.assert_turned_away(address, 443)
                self.denied(wanted=address, wanted_port=443)

    def test_a_silent_denied_connection_is_reset_after_a_second(self):
        self.open()
        began = time.monotonic()
        self.assert_reset(self.connect(WEB, 80))
        self.assertGreater(time.monotonic() - began, 0.8)  # clock: the second that we wait for a first byte
        sock = self.connect(WEB, 80)
        sock.sendall(b"\x00\x01binary")
        self.assert_reset(sock)

    def test_a_port_that_is_not_served_is_refused_by_the_kernel(self):
        self.open()
        with self.assertRaises(ConnectionRefusedError):
            self.connect(WEB, 8080)

    def test_cidr_rules(self):
        self.open({"rules": [{"action": "allow", "cidr": "203.0.113.0/24"},
                             {"action": "deny", "domain": "evil.example"}]})
        answer = self.http(self.connect(WEB, 80),
                           f"GET / HTTP/1.1\r\nHost: {WEB}\r\nConnection: close\r\n\r\n".encode())
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
        answers = iter([["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:10.0.0.1"],
                        ["64:ff9b::a00:1"]])
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
        answer = self.http(self.by_name("mixed.example"),
                           b"GET / HTTP/1.1\r\nHost: mixed.example\r\nConnection: close\r\n\r\n")
        self.assertIn(b"200 OK", answer)
        self.assertEqual(self.gate.wait_event(slot=self.slot, verdict=ALLOWED, dns=0)["dialled"], WEB)

    def test_what_cannot_be_reached(self):
        self.out.names["closed.example"] = ["203.0.113.99"]
        self.open({"rules": [{"action": "allow", "domain": "closed.example"},
                             {"action": "allow", "domain": "missing.example"}]})
        for name in ("closed.example", "missing.example"):
            answer = self.http(self.by_name(name), f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            self.assertTrue(answer.startswith(b"HTTP/1.1 502 "), answer)
            self.gate.wait_event(slot=self.slot, verdict=FAILED, name=name)


if __name__ == "__main__":
    unittest.main()
