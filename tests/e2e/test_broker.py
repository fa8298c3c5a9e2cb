# SPDX-License-Identifier: Apache-2.0
"""The credential broker with real clients: what an upstream gets, what comes back, and what stays in memory.

The sandbox's side is a client of the test that trusts the sandbox's authority and connects to the driver; the world is
a server with a certificate of the test's own authority.
"""

import base64
import gzip
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
import urllib.parse

import brokerkit
from brokerkit import HOST, PATIENCE, Broker, Upstream, World, chunked, read_all, reply, split
from helpers import steady, unread

TOKEN = "tok/en+" + "Ab3xYz09" * 3 + "=="
BEARER = {"header": "Authorization", "format": "Bearer %s"}


def echo(request):
    """Says back everything it got."""
    return reply(
        json.dumps({"line": request.line, "fields": request.fields, "body": request.body.decode("latin-1")}).encode())


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.world = World(cls.temp.name)
        cls.certificate = cls.world.certificate(HOST)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def start(self, answer=echo, given=None, certificate=None, plain=False, **more):
        upstream = Upstream(certificate or self.certificate, answer, plain=plain)
        self.addCleanup(upstream.close)
        broker = Broker(self.world, upstream.port, given or {"TOKEN": (TOKEN, BEARER)}, **more)
        self.addCleanup(broker.close)
        return broker, upstream


class Substitution(Base):
    def test_header_is_substituted_and_the_echo_is_scrubbed(self):
        broker, upstream = self.start()
        mark = broker.placeholders["TOKEN"]
        status, _, body = broker.get("/v1", f"Authorization: Bearer {mark}", "X-Other: 1")
        self.assertEqual(status, "200 OK")
        self.assertEqual(upstream.requests[0].get("Authorization"), f"Bearer {TOKEN}")
        self.assertEqual(upstream.requests[0].get("X-Other"), "1")
        self.assertNotIn(TOKEN.encode(), body)
        self.assertIn(mark.encode(), body)
        self.assertEqual(broker.counts()["scrubbed"], 1)
        broker.wait("event ALLOWED dialled=1 secret=TOKEN")

    def test_a_bare_placeholder_gets_the_format(self):
        broker, upstream = self.start()
        broker.get("/", f"Authorization: {broker.placeholders['TOKEN']}")
        self.assertEqual(upstream.requests[0].get("Authorization"), f"Bearer {TOKEN}")

    def test_nothing_is_added_where_nothing_was(self):
        broker, upstream = self.start()
        broker.get("/")
        self.assertIsNone(upstream.requests[0].get("Authorization"))
        broker.wait("event ALLOWED dialled=1 secret=-")

    def test_elsewhere_it_stays_a_placeholder(self):
        broker, upstream = self.start()
        mark = broker.placeholders["TOKEN"]
        broker.get(f"/{mark}?key={mark}", f"X-Key: {mark}", f"Cookie: a={mark}", method="POST",
                   body=b"x" * 70000 + mark.encode() + b"y" * 70000)
        request = upstream.requests[0]
        self.assertEqual(request.target, f"/{mark}?key={mark}")
        self.assertEqual(request.get("X-Key"), mark)
        self.assertEqual(request.get("Cookie"), f"a={mark}")
        self.assertIn(mark.encode(), request.body)
        self.assertNotIn(TOKEN, str(request.fields) + request.line + request.body.decode())
        broker.wait("event DENIED dialled=1 secret=TOKEN why=a placeholder in another place")
        broker.wait("event DENIED dialled=1 secret=TOKEN why=a placeholder in the body")

    def test_query(self):
        broker, upstream = self.start(given={"KEY": (TOKEN, {"query": "api_key"})})
        mark = broker.placeholders["KEY"]
        broker.get(f"/v1?a=1&api_key={mark}&b={mark}", f"Authorization: Bearer {mark}")
        query = urllib.parse.urlsplit(upstream.requests[0].target).query
        self.assertEqual(urllib.parse.parse_qs(query), {"a": ["1"], "api_key": [TOKEN], "b": [mark]})
        self.assertEqual(upstream.requests[0].get("Authorization"), f"Bearer {mark}")

    def test_basic(self):
        for half in ("user", "password"):
            with self.subTest(half):
                broker, upstream = self.start(given={"PW": (TOKEN, {"basic": half})})
                mark = broker.placeholders["PW"]
                pair = f"{mark}:x" if half == "user" else f"me:{mark}"
                broker.get("/", "Authorization: Basic " + base64.b64encode(pair.encode()).decode())
                got = base64.b64decode(upstream.requests[0].get("Authorization").split()[1]).decode()
                self.assertEqual(got, pair.replace(mark, TOKEN))
                other = f"x:{mark}" if half == "user" else f"{mark}:x"
                broker.get("/", "Authorization: Basic " + base64.b64encode(other.encode()).decode())
                self.assertEqual(base64.b64decode(upstream.requests[1].get("Authorization").split()[1]).decode(), other)

    def test_a_value_cannot_be_a_line_break(self):
        for value in ("good\r\nX-Evil: 1", "nul\0", "lf\n"):
            with self.subTest(value):
                broker, upstream = self.start(given={"BAD": (value, BEARER)})
                status, _, body = broker.get("/", f"Authorization: Bearer {broker.placeholders['BAD']}")
                self.assertEqual((status, body),
                                 ("502 Bad Gateway", b"brig: the value of the secret cannot be a header\n"))
                self.assertEqual(upstream.requests, [])
                broker.wait("event FAILED")

    def test_several_secrets_in_one_request(self):
        broker, upstream = self.start(given={"A": ("a-value-of-some-length", {"header": "X-A"}),
                                             "B": ("b-value-of-some-length", {"header": "X-B"})})
        a, b = broker.placeholders["A"], broker.placeholders["B"]
        broker.get("/", f"X-A: {a}", f"X-B: {b}")
        self.assertEqual((upstream.requests[0].get("X-A"), upstream.requests[0].get("X-B")),
                         ("a-value-of-some-length", "b-value-of-some-length"))
        broker.get("/", f"X-A: {b}", f"X-B: {a}")
        self.assertEqual((upstream.requests[1].get("X-A"), upstream.requests[1].get("X-B")), (b, a))

    def test_plain_http_never_gets_a_value(self):
        broker, upstream = self.start(plain=True, port=443)
        mark = broker.placeholders["TOKEN"]
        with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as sock:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:443\r\nAuthorization: Bearer {mark}\r\n"
                         f"Connection: close\r\n\r\n".encode())
            status, _, _ = split(read_all(sock))
        self.assertEqual(status, "200 OK")
        self.assertEqual(upstream.requests[0].get("Authorization"), f"Bearer {mark}")
        broker.wait("why=a placeholder stays a placeholder: this is not TLS")


class Echoes(Base):
    """Every spelling, whole and in pieces."""

    def spellings(self):
        raw = TOKEN.encode()
        yield "raw", raw
        yield "url", urllib.parse.quote(TOKEN, safe="").encode()
        yield "url lower", b"".join(b"%%%02x" % c for c in raw)
        yield "form", urllib.parse.quote_plus(TOKEN).encode()
        yield "json", json.dumps(TOKEN).replace("/", "\\/").encode()
        yield "unicode", b"".join(b"\\u%04x" % c for c in raw)
        yield "html", b"".join(b"&#%d;" % c if c in b"+/=" else bytes([c]) for c in raw)
        yield "hex", raw.hex().encode()
        yield "HEX", raw.hex().upper().encode()
        for shift in range(3):
            yield f"base64 {shift}", base64.b64encode(b"user:"[:3 + shift] + raw)
            yield f"base64url {shift}", base64.urlsafe_b64encode(b"user:"[:3 + shift] + raw)

    def leaks(self, name, body):
        text = TOKEN.encode()
        if text in body or text.hex().encode() in body.lower():
            return True
        if text in urllib.parse.unquote_to_bytes(
                body) or (name in ("json", "unicode")
                          and TOKEN in body.decode().encode().decode("unicode_escape").replace("\\/", "/")):
            return True
        if name.startswith("base64"):
            inner = body.split(b"<")[1].split(b">")[0] if b"<" in body else body
            inner = inner.replace(b"-", b"+").replace(b"_", b"/")
            try:
                return TOKEN[4:-4].encode() in base64.b64decode(inner + b"=" * (-len(inner) % 4), validate=True)
            except ValueError:
                return False
        return False

    def test_every_spelling_is_scrubbed(self):
        state = {}
        broker, _ = self.start(lambda request: state["answer"])
        mark = broker.placeholders["TOKEN"].encode()
        for name, text in self.spellings():
            whole = b"before <" + text + b"> after"
            for how in ("length", "bytes", "halves", "close", "header"):
                with self.subTest(name, how=how):
                    if how == "length":
                        state["answer"] = reply(whole)
                    elif how == "bytes":
                        state["answer"] = chunked([(whole[i:i + 1], 0) for i in range(len(whole))])
                    elif how == "halves":
                        state["answer"] = chunked([(whole[:len(whole) // 2], 0), (whole[len(whole) // 2:], 0.02)])
                    elif how == "close":
                        state["answer"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + whole
                    else:
                        state["answer"] = reply(b"x", X_Echo=whole.decode())
                    status, fields, body = broker.get("/", f"Authorization: Bearer {mark.decode()}")
                    got = fields["X-Echo"].encode() if how == "header" else body
                    self.assertEqual(status, "200 OK")
                    self.assertIn(mark, got)
                    self.assertFalse(self.leaks(name, got), got)
                    self.assertTrue(got.startswith(b"before <") and got.endswith(b"> after"), got)

    def test_what_only_looks_like_it_passes(self):
        text = b"".join(TOKEN[:n].encode() + b"|" for n in range(len(TOKEN))) + b"%\\&%4 \\u00"
        broker, _ = self.start(lambda request: chunked([(text[i:i + 3], 0) for i in range(0, len(text), 3)]))
        self.assertEqual(broker.get("/")[2], text)
        self.assertEqual(broker.counts()["scrubbed"], 0)

    def test_a_value_of_an_earlier_request_too(self):
        broker, _ = self.start(lambda request: reply(TOKEN.encode()))
        self.assertEqual(broker.get("/", "X: no placeholder here")[2].decode(), broker.placeholders["TOKEN"])

    def test_a_pause_does_not_stall_the_stream(self):
        gate = threading.Event()

        def answer(request):
            def pieces():
                yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndone t\r\n", 0
                gate.wait(PATIENCE)
                rest = TOKEN[1:].encode()
                yield b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest), 0
            return list_lazy(pieces())
        broker, _ = self.start(answer)
        with broker.connect() as sock:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            data = b""
            while b"\r\nt\r\n" not in data:  # held back at first, then let out
                piece = sock.recv(4096)
                self.assertTrue(piece)
                data += piece
            gate.set()
            data += read_all(sock)
        body = split(data)[2].decode()
        self.assertEqual(body, "done t" + broker.placeholders["TOKEN"])

    def test_encoded_replies_are_refused(self):
        broker, upstream = self.start(lambda request: reply(gzip.compress(TOKEN.encode()), Content_Encoding="gzip"))
        status, _, body = broker.get("/", "Accept-Encoding: gzip, br")
        self.assertEqual(status, "502 Bad Gateway")
        self.assertIn(b"encoded", body)
        self.assertEqual(upstream.requests[0].get("Accept-Encoding"), "identity")
        broker.wait("event FAILED")

    def test_memory_has_no_value_afterwards(self):
        # deep inside a record too, where the next one does not overwrite it
        broker, _ = self.start(lambda request:
                               reply(json.dumps(request.fields).encode() + b"p" * 12000 + TOKEN.encode() + b"q" * 2000))
        mark = broker.placeholders["TOKEN"]
        with broker.connect() as sock:  # kept alive: the connection's own buffers are looked at too
            for _ in range(3):
                sock.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {mark}\r\n\r\n".encode())
                data = b""
                while not data.endswith(b"0\r\n\r\n"):
                    data += sock.recv(65536)
            self.assertEqual(broker.scan(TOKEN), 0)
            self.assertGreater(broker.scan(mark), 0)  # the search does find what is there
        broker.wait("done")
        self.assertEqual(broker.scan(TOKEN), 0)

    def test_memory_has_a_value_only_while_it_is_needed(self):
        gate, there = threading.Event(), threading.Event()

        def answer(request):
            there.set()
            gate.wait(PATIENCE)
            return echo(request)
        broker, _ = self.start(answer)
        with broker.connect() as sock:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {broker.placeholders['TOKEN']}\r\n"
                         f"Connection: close\r\n\r\n".encode())
            there.wait(PATIENCE)
            self.assertEqual(broker.scan(TOKEN), 1)  # what the reply will be compared with
            gate.set()
            read_all(sock)
        self.assertEqual(broker.scan(TOKEN), 0)


class Flow(Base):
    """Messages of every shape, both ways."""

    def exchange(self, sock, request):
        sock.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data or (b"chunked" in data and not data.endswith(b"0\r\n\r\n")):
            piece = sock.recv(65536)
            if not piece:
                break
            data += piece
        return split(data)

    def test_keep_alive_on_both_sides(self):
        broker, upstream = self.start()
        with broker.connect() as sock:
            for i in range(5):
                status, _, body = self.exchange(sock, f"GET /{i} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                self.assertEqual(status, "200 OK")
                self.assertIn(f"/{i} ".encode(), body)
        self.assertEqual(upstream.connections, 1)

    def test_pipelined_requests_are_answered_in_order(self):
        broker, upstream = self.start()
        data = broker.raw(b"".join(f"GET /{i} HTTP/1.1\r\nHost: {HOST}\r\n"
                                   f"{'Connection: close' if i == 2 else 'X: y'}\r\n\r\n".encode() for i in range(3)))
        self.assertEqual([r.target for r in upstream.requests], ["/0", "/1", "/2"])
        self.assertEqual(data.count(b"HTTP/1.1 200 OK"), 3)

    def test_an_upstream_that_closes_is_dialled_again(self):
        broker, upstream = self.start(lambda request: reply(b"x", Connection="close"))
        with broker.connect() as sock:
            for _ in range(3):
                self.assertEqual(self.exchange(sock, f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())[2], b"x")
        self.assertEqual(upstream.connections, 3)

    def test_tls_sessions_with_an_upstream_are_resumed(self):
        broker, upstream = self.start()
        for _ in range(3):
            broker.get("/")
        self.assertGreaterEqual(upstream.resumed, 1)

    def test_bodies(self):
        broker, upstream = self.start(lambda request: reply(request.body[::-1]))
        big = os.urandom(3 << 20)
        _, _, body = broker.get("/", method="POST", body=big)
        self.assertEqual((upstream.requests[0].body, body), (big, big[::-1]))
        self.assertEqual(upstream.requests[0].get("Content-Length"), str(len(big)))
        with broker.connect() as sock:
            sock.sendall(f"PUT / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n"
                         f"Connection: close\r\n\r\n".encode())
            for i in range(0, len(big), 40000):
                piece = big[i:i + 40000]
                sock.sendall(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
            sock.sendall(b"0\r\nX-Trailer: 1\r\n\r\n")
            status, fields, body = split(read_all(sock))
        self.assertEqual((status, body), ("200 OK", big[::-1]))
        self.assertEqual(upstream.requests[1].get("Transfer-Encoding"), "chunked")
        self.assertNotIn("X-Trailer", str(upstream.requests[1].fields))

    def test_100_continue(self):
        broker, upstream = self.start()
        with broker.connect() as sock:
            sock.sendall(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n"
                         f"Connection: close\r\n\r\n".encode())
            self.assertEqual(sock.recv(4096), b"HTTP/1.1 100 Continue\r\n\r\n")
            sock.sendall(b"body")
            self.assertEqual(split(read_all(sock))[0], "200 OK")
        self.assertEqual(upstream.requests[0].body, b"body")

    def test_head_and_empty_replies(self):
        answers = {"HEAD": b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
                   "DELETE": b"HTTP/1.1 204 No Content\r\n\r\n",
                   "GET": b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
                   "POST": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}
        broker, upstream = self.start(lambda request: answers[request.method])
        for method, want in answers.items():
            with self.subTest(method):
                status, fields, body = broker.get("/", method=method)
                self.assertEqual(status, want.split(b"\r\n")[0].decode().split(" ", 1)[1])
                self.assertEqual(body, b"")
                self.assertEqual(fields.get("content-length"), {"HEAD": "1234", "POST": "0"}.get(method))
                self.assertNotIn("transfer-encoding", fields)
        self.assertEqual(upstream.requests[3].get("Content-Length"), None)

    def test_http_1_0_clients(self):
        broker, _ = self.start(lambda request: chunked([(b"one ", 0), (b"two", 0)]))
        data = broker.raw(f"GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
        self.assertTrue(data.endswith(b"\r\n\r\none two"), data)
        self.assertNotIn(b"chunked", data)

    def test_a_slow_reader_is_waited_for(self):
        size = 24 << 20
        broker, _ = self.start(lambda request: reply(b"x" * size))
        with broker.connect() as sock:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            self.assertGreater(steady(lambda: unread(sock)), 0)
            with open(f"/proc/{broker.process.pid}/status", encoding="ascii") as lines:
                held = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
            self.assertLess(held, 20 << 10)  # KiB: it has not read what nobody takes
            self.assertEqual(len(split(read_all(sock))[2]), size)

    def test_websocket(self):
        def answer(request):
            self.assertEqual(request.get("Upgrade"), "websocket")
            self.assertIsNone(request.get("Sec-WebSocket-Extensions"))
            request.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                 b"Sec-WebSocket-Accept: x\r\n\r\n")
            while piece := request.sock.recv(4096):
                request.sock.sendall(piece.upper() + TOKEN.encode())
            request.close = True
            return b""
        broker, _ = self.start(answer)
        with broker.connect() as sock:
            sock.sendall(f"GET /ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: keep-alive, Upgrade\r\n"
                         "Upgrade: websocket\r\n"
                         "Sec-WebSocket-Key: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(4096)
            self.assertIn(b"101 Switching", head)
            for _ in range(3):
                sock.sendall(b"hello ")
                want = b"HELLO " + broker.placeholders["TOKEN"].encode()
                data = b""
                while len(data) < len(want):
                    data += sock.recv(4096)
                self.assertEqual(data, want)

    def test_last_words_of_a_websocket_arrive(self):
        heard, done = [], threading.Event()

        def answer(request):
            request.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                 b"Connection: Upgrade\r\n\r\n")
            while piece := request.sock.recv(65536):
                heard.append(piece)
            done.set()
            request.close = True
            return b""
        broker, _ = self.start(answer)
        with broker.connect() as sock:
            sock.sendall(f"GET /ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\n"
                         f"Upgrade: websocket\r\n\r\n".encode())
            self.assertIn(b"101", sock.recv(4096))
            sock.sendall(b"last words")
        self.assertTrue(done.wait(PATIENCE))
        self.assertEqual(b"".join(heard), b"last words")

    def test_no_other_upgrade(self):
        broker, upstream = self.start()
        broker.get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
        self.assertEqual([upstream.requests[0].get(n) for n in ("Upgrade", "Connection", "HTTP2-Settings")], [None] * 3)
        broker, upstream = self.start(lambda request: b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n"
                                      b"Connection: Upgrade\r\n\r\n")
        self.assertEqual(broker.get("/")[0], "502 Bad Gateway")


class Refusals(Base):
    def test_policy_judges_every_request(self):
        rules = [{"action": "allow", "domain": HOST, "ports": [443], "methods": ["GET"], "paths": ["/v1/"]}]
        broker, upstream = self.start(policy={"default": "deny", "rules": rules})
        self.assertEqual(broker.get("/v1/x")[0], "200 OK")
        for method, target in (("POST", "/v1/x"), ("GET", "/admin"), ("GET", "/v1/../admin"),
                               ("GET", "/v1/%2e%2e/admin")):
            with self.subTest(method + target):
                status, fields, body = broker.get(target, method=method, close=False)
                self.assertEqual(status, "403 Forbidden")
                self.assertTrue(body.startswith(b"brig: denied: "), body)
                self.assertEqual(fields["connection"], "close")
        self.assertEqual(len(upstream.requests), 1)
        broker.wait("event DENIED dialled=0 secret=- why=")

    def test_what_is_opened_is_tls_to_the_policy(self):
        """A rule about TLS means the requests inside, too: opening it takes nothing from a deny."""
        deny = [{"action": "deny", "domain": HOST, "protocol": "tls"}]
        broker, upstream = self.start(policy={"default": "allow", "rules": deny})
        mark = broker.placeholders["TOKEN"]
        status, _, body = broker.get("/", f"Authorization: Bearer {mark}")
        self.assertEqual((status, upstream.requests), ("403 Forbidden", []))
        self.assertTrue(body.startswith(b"brig: denied: rule 0 "), body)
        allow = [{"action": "allow", "domain": HOST, "ports": [443], "protocol": "tls"}]
        broker, upstream = self.start(policy={"default": "deny", "rules": allow})
        self.assertEqual(broker.get("/")[0], "200 OK")

    def test_host_must_be_the_name(self):
        broker, upstream = self.start()
        for host in ("other.example.com", HOST + ":8443", HOST + ".evil.com", "localhost"):
            with self.subTest(host):
                status, _, _ = split(broker.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()))
                self.assertEqual(status, "421 Misdirected Request")
        for host in (HOST.upper(), HOST + ":443", HOST + "."):
            self.assertEqual(
                split(broker.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()))[0], "200 OK")
        self.assertEqual({r.get("Host") for r in upstream.requests}, {HOST})

    def test_smuggling_shapes(self):
        broker, upstream = self.start()
        head = f"POST / HTTP/1.1\r\nHost: {HOST}\r\n"
        for name, rest in {"both": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                           "two": "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
                           "coding": "Transfer-Encoding: xchunked\r\n\r\n", "space": "Content-Length : 4\r\n\r\nabcd",
                           "fold": "X: a\r\n b\r\n\r\n",
                           "bare": "X: a\nY: b\r\n\r\n", "connect": None, "absolute": None}.items():
            with self.subTest(name):
                request = {"connect": f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
                           "absolute": f"GET https://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"}.get(name,
                                                                                                    head + str(rest))
                self.assertIn(split(broker.raw(request.encode()))[0][:3], ("400", "501"))
        self.assertEqual(upstream.requests, [])

    def test_the_upstream_is_verified(self):
        with tempfile.TemporaryDirectory() as where:
            cases = {"another name": (self.world.certificate("other.example.com"), "hostname mismatch"),
                     "another authority": (World(where).certificate(HOST), "unable to get local issuer certificate")}
            for name, (certificate, why) in cases.items():
                with self.subTest(name):
                    broker, upstream = self.start(certificate=certificate)
                    status, _, body = broker.get("/", f"Authorization: Bearer {broker.placeholders['TOKEN']}")
                    self.assertEqual(status, "502 Bad Gateway")
                    self.assertIn(why, body.decode())
                    self.assertEqual(upstream.requests, [])
                    broker.wait("event FAILED")

    def test_malformed_replies(self):
        answers = [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                   b"HTTP/1.1 200 OK\nX: y\n\n",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                   b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n"]
        state = {}
        broker, _ = self.start(lambda request: state["answer"])
        for answer in answers:
            with self.subTest(answer[:40]):
                state["answer"] = answer
                self.assertEqual(broker.get("/")[0], "502 Bad Gateway")

    def test_a_truncated_reply_looks_truncated(self):
        def answer(request):
            request.close = True
            return b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
        broker, _ = self.start(answer)
        data = broker.raw(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        self.assertIn(b"half", data)
        self.assertFalse(data.endswith(b"0\r\n\r\n"))

    def test_nobody_there(self):
        broker, upstream = self.start()
        upstream.close()
        status, _, body = broker.get("/")
        self.assertEqual(status, "502 Bad Gateway")
        self.assertIn(b"Connection refused", body)
        broker.wait("event FAILED dialled=0")

    def test_the_budget_ends_it(self):
        broker, _ = self.start(lambda request: reply(b"x" * (1 << 20)), budget=200000)
        broker.raw(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        broker.wait("done the budget is used up")

    def test_the_name_in_the_hello_is_looked_at_again(self):
        broker, upstream = self.start(name=HOST)
        with self.assertRaisesRegex(ssl.SSLError, "UNRECOGNIZED_NAME"):
            broker.connect("other.example.com")
        self.assertEqual(broker.get("/")[0], "200 OK")

    def test_old_tls_and_other_protocols(self):
        broker, _ = self.start()
        context = broker.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1",
                                       broker.port)) as raw, context.wrap_socket(raw, server_hostname=HOST) as sock:
            self.assertEqual(sock.selected_alpn_protocol(), "http/1.1")
        out = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-servername", HOST,
                              "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                             stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
        self.assertNotEqual(out.returncode, 0)


class list_lazy(list):
    """Pieces that are made when they are sent."""

    def __init__(self, pieces):
        super().__init__()
        self.pieces = pieces

    def __iter__(self):
        return iter(self.pieces)


if __name__ == "__main__":
    unittest.main()
