# SPDX-License-Identifier: Apache-2.0
"""brig-egress by itself: bytes of any kind, any port, and the explicit proxy."""

import array
import base64
import concurrent.futures
import contextlib
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
import unittest

from egresskit import ALLOWED, CLOSED, HTTP, NOTHING, OTHER, PROXY, REDIRECT, TLS, http_server, read_all, read_exactly
from egresstest import RAW, WEB, EgressTest, banner_server
from helpers import arrived, steady, unread


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

    def test_bytes_stay_in_order_when_readers_stop_and_go(self):
        """Each 8 bytes are their own place in the stream, so bytes that change places are seen. A reader that is now
        slower and now faster than the gate makes some bytes wait there while the way for the next ones becomes free."""
        total, step, often = 64 << 20, 1 << 20, 4
        pieces = [array.array("Q", range(at // 8, (at + step) // 8)).tobytes() for at in range(0, total, step)]

        def counted(conn):
            for piece in pieces * often:
                conn.sendall(piece)

        def misplaced(sock):
            got = bytearray(step)
            for piece in pieces * often:
                at = 0
                while at < step:
                    at += sock.recv_into(memoryview(got)[at:at + 40000])
                if got != piece:
                    return next(i for i in range(0, step, 8) if got[i:i + 8] != piece[i:i + 8])
            return None

        self.out.names["counted.example"] = ["203.0.113.33"]
        self.out.serve("203.0.113.33", 2222, counted)
        self.open({"rules": [{"action": "allow", "domain": "counted.example", "ports": [2222], "protocol": "tcp"}]})
        socks = [self.by_name("counted.example", 2222) for _ in range(6)]
        with concurrent.futures.ThreadPoolExecutor(len(socks)) as pool:
            self.assertEqual(list(pool.map(misplaced, socks)), [None] * len(socks))


class SlowReaders(EgressTest):
    def test_what_waits_for_them_is_bounded(self):
        def flood(conn):
            while True:
                conn.sendall(b"x" * (1 << 20))

        self.out.names["endless.example"] = ["203.0.113.32"]
        self.out.serve("203.0.113.32", 2222, flood)
        self.open({"rules": [{"action": "allow", "domain": "endless.example", "ports": [2222], "protocol": "tcp"}]})
        socks = [self.by_name("endless.example", 2222) for _ in range(120)]
        steady(lambda: [unread(sock) for sock in socks], 25)
        with open(f"/proc/{self.gate.process.pid}/status") as f:
            resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
        self.assertLess(resident, 32 << 10, "KiB")
        for sock in socks:
            self.assertTrue(sock.recv(1000))


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
            for connected in (False, True):
                sock = self.connect(address, 2222)
                if connected:
                    self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
                sock.sendall(self.hello("evil.example"))
                self.assert_reset(sock)
                self.denied(seen=TLS)

    def test_a_hello_that_comes_slowly_is_held_back_until_it_is_judged(self):
        self.open(self.POLICY)
        hello, sock = self.hello("evil.example"), self.connect(RAW, 2222)
        sock.sendall(hello[:1])
        self.assertEqual(sock.recv(100), b"SSH-2.0-test\r\n")
        sock.sendall(hello[1:-1])
        arrived(sock)
        sock.sendall(hello[-1:])
        self.assertEqual(self.assert_reset(sock), b"")  # the server would have echoed what it got
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
        for port, data, seen in ((443, self.hello("fine.example"), TLS), (80, b"GET / HTTP/1.1\r\n", HTTP),
                                 (2222, b"\0\1", OTHER), (2222, b"", NOTHING)):
            sock = self.connect(WEB, port)
            sock.sendall(data)
            event = self.denied(wanted_port=port, seen=seen)
            self.assertEqual((event["rule"], event["wanted"]), (-1, WEB))
            sock.close()


@unittest.skipUnless(shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin"), "nft is not there")
class Redirect(EgressTest):
    """Any port: the target comes from the kernel's connection tracking."""

    def test_the_wanted_address_and_port(self):
        rules = ("table inet gate { chain out { type nat hook output priority -100; ip daddr != 127.0.0.0/8 tcp dport "
                 "!= 53 redirect to :65000; "
                 "ip6 daddr != ::1 meta nfproto ipv6 tcp dport != 53 redirect to :65000; }; }")
        self.inside.call(subprocess.run, ["nft", "-f", "-"], input=rules.encode(), check=True,
                         env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})
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


class Brokered(EgressTest):
    """The connection's way to the broker and back; what the broker does with it is test_broker.py's."""

    PLACEHOLDER, VALUE = "brig-secret-" + "0123456789abcdef" * 2, "the real value of it"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.inner = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cls.cert, cls.key)

        def handler(conn):
            with context.wrap_socket(conn, server_side=True) as tls:
                http_server(cls.inner)(tls)

        cls.out.names["other.example"] = ["203.0.113.60"]
        cls.out.serve("203.0.113.60", 443, handler)
        with open(cls.cert, "rb") as f:
            cls.gate.file("ca", f.read())
        cls.gate.file("keys", b"k1:" + b"ab" * 32 + b"\n")

    def open_brokered(self, **more):
        sealed = base64.b64encode(self.VALUE.encode()).decode()
        answer = self.open(
            {"rules": [{"action": "allow", "domain": "other.example"}, {"action": "allow", "domain": "web.example"}]},
            secrets=[
                {"name": "TOKEN", "placeholder": self.PLACEHOLDER, "key_id": "plain",
                 "nonce": base64.b64encode(b"\0" * 12).decode(), "sealed": sealed,
                 "context": "org\nTOKEN",
                 "broker": {"hosts": ["other.example"], "header": "Authorization", "format": "Bearer %s"}}], **more)
        self.assertEqual(answer["brokers"], 1)
        with open(answer["fds"][0], "rb") as f:
            f.seek(0)
            self.ca = f.read().decode()

    def request(self, sock):
        context = ssl.create_default_context(cadata=self.ca)
        with context.wrap_socket(sock, server_hostname="other.example") as tls:
            tls.sendall(f"GET /b HTTP/1.1\r\nHost: other.example\r\nAuthorization: Bearer {self.PLACEHOLDER}\r\n"
                        f"Connection: close\r\n\r\n".encode())
            return read_all(tls)

    def test_a_secret_is_put_in_on_the_way(self):
        self.open_brokered()
        self.assertIn(b"200 OK", self.request(self.by_name("other.example", 443)))
        self.assertEqual(self.inner[-1][1]["authorization"], f"Bearer {self.VALUE}")
        event = self.gate.wait_event(slot=self.slot, verdict=ALLOWED, secret="TOKEN")
        self.assertEqual((event["name"], event["dialled"]), ("other.example", "203.0.113.60"))
        closed = self.gate.wait_event(slot=self.slot, verdict=CLOSED)
        self.assertGreater(min(closed["bytes_in"], closed["bytes_out"]), 100)
        counts = self.gate.count(self.slot)
        self.assertEqual((counts["substituted"], counts["open"]), (1, 0))

    def test_through_the_proxy_as_well(self):
        self.open_brokered()
        sock = self.connect("198.18.0.1", 3128)
        sock.sendall(b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n")
        self.assertIn(b" 200 ", sock.recv(100))
        self.assertIn(b"200 OK", self.request(sock))
        self.assertEqual(self.inner[-1][1]["authorization"], f"Bearer {self.VALUE}")

    def test_a_placeholder_for_another_host_stays_one_and_is_told(self):
        self.open_brokered()
        answer = self.http(self.by_name("web.example"),
                           f"GET / HTTP/1.0\r\nHost: web.example\r\nX: {self.PLACEHOLDER}\r\n\r\n".encode())
        self.assertIn(b"200 OK", answer)
        self.assertEqual(self.requests[-1][1]["x"], self.PLACEHOLDER)
        self.denied(secret="TOKEN", name="web.example")
        counts = self.gate.count(self.slot)
        self.assertEqual((counts["foreign"], counts["denied"], counts["allowed"]), (1, 0, 1))

    def test_a_new_policy_cuts_brokered_connections_too(self):
        self.open_brokered()
        context = ssl.create_default_context(cadata=self.ca)
        with context.wrap_socket(self.by_name("other.example", 443), server_hostname="other.example") as tls:
            tls.sendall(b"GET /b HTTP/1.1\r\nHost: other.example\r\n\r\n")
            self.assertIn(b"200 OK", tls.recv(1000))
            self.gate.prepare(self.slot, {"rules": []}, version=2)
            with self.assertRaises((OSError, EOFError)):
                read_exactly(tls, 1 << 20)

    def test_bytes_per_second(self):
        """As of other connections: the limit holds it, and it is never faster (what is in buffers and the burst
        aside)."""
        self.open_brokered(limits={"net_bps": 200_000})
        context = ssl.create_default_context(cadata=self.ca)
        with context.wrap_socket(self.by_name("other.example", 443), server_hostname="other.example") as tls:
            tls.sendall(b"POST /b HTTP/1.1\r\nHost: other.example\r\nContent-Length: 100000000\r\n\r\n")
            tls.settimeout(0.2)

            def send_until(full):
                while not full(counts := self.gate.count(self.slot)):
                    with contextlib.suppress(TimeoutError):
                        tls.send(b"x" * 16384)
                return counts["bytes_out"], time.monotonic()

            before, began = send_until(lambda c: c["limits_hit"] & 1 << 14)  # the burst is used up
            after, ended = send_until(lambda c: c["bytes_out"] >= before + 600_000)
            self.assertLess(after - before, 200_000 * 1.15 * (ended - began))  # clock: a rate is bytes per time

    def test_requests_wait_while_the_controller_does_not_read(self):
        self.open_brokered()
        n, answered = 1500, []
        context = ssl.create_default_context(cadata=self.ca)
        tls = context.wrap_socket(self.by_name("other.example", 443), server_hostname="other.example")

        def ask():
            with tls:
                for _ in range(n):
                    tls.sendall(b"GET /b HTTP/1.1\r\nHost: other.example\r\n\r\n")
                    data = b""
                    while not data.endswith(b"0\r\n\r\n"):
                        data += tls.recv(1 << 16)
                    answered.append(1)

        asker = threading.Thread(target=ask, daemon=True)
        asker.start()
        before = -1
        while len(answered) < 100 or len(answered) != before:
            before = len(answered)
            time.sleep(0.5)
        self.assertLess(len(answered), n)  # it stands still, with what fits into the socket and the queue
        told = []
        while asker.is_alive():
            told += self.gate.drain()
        told += self.gate.drain()
        self.assertEqual(len(answered), n)
        self.assertEqual(len([e for e in told if e["slot"] == self.slot and e["verdict"] == ALLOWED and not e["dns"]]),
                         n)


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
        for target, status in (("evil.example:443", 403), ("127.0.0.1:443", 403), (f"{WEB}:80", 403),
                               ("10.0.0.1:443", 403), ("[::1]:443", 403),
                               ("2130706433:443", 400), ("0x7f.1:443", 400), ("127.1:443", 400),
                               ("secure.example:22", 403), ("secure.example", 400),
                               ("secure.example:99999", 400)):
            with self.subTest(target=target):
                answer = read_all(self.proxy(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()))
                self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()), answer)
                self.denied()

    def test_what_goes_through_a_tunnel_must_agree(self):
        self.open()
        sock = self.proxy(b"CONNECT secure.example:443 HTTP/1.1\r\nHost: secure.example:443\r\n\r\n")
        sock.recv(100)
        with self.assertRaises(ConnectionResetError):
            ssl.create_default_context(cafile=self.cert).wrap_socket(sock, server_hostname="other.example")
        sock = self.proxy(b"CONNECT web.example:80 HTTP/1.1\r\nHost: web.example:80\r\n\r\n")
        sock.recv(100)
        self.assertIn(b"403 Forbidden", self.http(sock, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
        sock = self.proxy(b"CONNECT web.example:80 HTTP/1.1\r\nHost: web.example:80\r\n\r\nGET / HTTP/1.1\r\n"
                          b"Host: web.example\r\nConnection: close\r\n\r\n")
        self.assertIn(b"GET / HTTP/1.1 0", read_all(sock))

    def test_requests_with_an_absolute_target(self):
        self.open()
        sock = self.proxy(b"GET http://web.example/p?q HTTP/1.1\r\nHost: web.example\r\n"
                          b"Proxy-Connection: keep-alive\r\nProxy-Authorization: x\r\n\r\n")
        self.assertEqual(self.response(sock), b"GET /p?q HTTP/1.1 0")
        self.assertEqual(set(self.requests[-1][1]), {"host"})
        sock.sendall(b"GET http://a.b.wild.example HTTP/1.1\r\nHost: a.b.wild.example\r\n\r\n")
        self.assertEqual(self.response(sock), b"GET / HTTP/1.1 0")
        self.assertIn(b"403 Forbidden",
                      self.http(sock, b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
        self.denied(name="evil.example", why="default deny")

    def test_what_is_no_request_for_this_proxy(self):
        self.open()
        for request, status in ((b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", 400),
                                (b"GET ftp://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", 400),
                                (b"GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400),
                                (b"GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n"
                                 b"X-Unix-Socket: /run/docker.sock\r\n\r\n", 400),
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

        for request, reply in ((named(b"evil.example"), 2), (named(b"evil\0.web.example"), None), (named(b""), None),
                               (named(b"x" * 255), None),
                               (b"\5\1\0\1\x7f\0\0\1\1\xbb", 2), (b"\5\1\0\4" + b"\0" * 15 + b"\1\1\xbb", 2),
                               (b"\5\2\0\1\x01\x02\x03\x04\1\xbb", 7), (b"\5\3\0\1\x01\x02\x03\x04\1\xbb", 7),
                               (b"\5\1\0\2\x01\x02\x03\x04\1\xbb", 8)):
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


if __name__ == "__main__":
    unittest.main()
