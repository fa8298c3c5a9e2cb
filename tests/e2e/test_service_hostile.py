# SPDX-License-Identifier: Apache-2.0
"""Hostile clients: requests that two readers could understand differently, bodies without measure, slow and silent
peers, bad frames, other organisations' keys, forged cursors. (A01-A20 of the attack list.)"""

import concurrent.futures
import itertools
import json
import socket
import struct
import threading
import time

from helpers import wait_until
from hostilekit import HostileTest, descriptors, rss, scaled
from service import WebSocket

OK_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


class Smuggling(HostileTest):
    """Each of these ends the connection with one 4xx, and what follows is never taken for a request."""

    NEXT = b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def refused_once(self, data, *statuses):
        for tcp in (True, False):
            found = self.exchange(data + self.NEXT * 2, tcp)
            self.assertEqual(len(found), 1, (data[:80], found))
            self.assertIn(found[0][0], statuses, (data[:80], found))
            error = json.loads(found[0][1])["error"]
            self.assertEqual(sorted(error), ["code", "hint", "message", "request_id"])

    def test_lengths(self):
        post = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
        for fields in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                       b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                       b"Content-Length: 5\r\nContent-Length: 6\r\n", b"Content-Length: 5, 6\r\n",
                       b"Content-Length: +5\r\n", b"Content-Length: -1\r\n",
                       b"Content-Length: 0x5\r\n", b"Content-Length: 5 5\r\n",
                       b"Content-Length: 99999999999999999999\r\n", b"Content-Length:\r\n",
                       b"Content-Length : 5\r\n", b"Content\x00-Length: 5\r\n"):
            self.refused_once(post + fields + b"\r\n0\r\n\r\n", 400, 413)

    def test_transfer_encodings(self):
        post = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
        for value in (b"xchunked", b"chunked, chunked", b"chunked, identity", b"gzip, chunked", b"identity",
                      b"\x0bchunked", b"chunked\x00", b"chunked;q=1", b'"chunked"'):
            self.refused_once(post + b"Transfer-Encoding: " + value + b"\r\n\r\n0\r\n\r\n", 400, 501)
        self.refused_once(b"POST /v1/sandboxes HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                          b"0\r\n\r\n", 400)

    def test_chunks(self):
        post = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        for body in (b"5\n{}\r\n0\r\n\r\n", b"-1\r\n", b"0x2\r\n{}\r\n", b"ffffffffffffffffff\r\n",
                     b"2 \r\n{}\r\n0\r\n\r\n", b"2\r\n{}x\r\n0\r\n\r\n", b"\r\n", b"2;" + b"a" * 70000 + b"\r\n"):
            self.refused_once(post + body, 400, 401, 413)

    def test_heads(self):
        for head in (b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET /healthz HTTP/1.1 \r\nHost: localhost\r\n\r\n", b"GET /healthz\r\n\r\n",
                     b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", b"get /healthz HTTP/1.1\nHost: localhost\n\n",
                     b"GET /health\tz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     OK_HEAD + b"A: b\rc\r\n\r\n", OK_HEAD + b"A: b\nB: c\r\n\r\n", OK_HEAD + b"A: \x00\r\n\r\n",
                     OK_HEAD + b"A : b\r\n\r\n", OK_HEAD + b" folded: b\r\n\r\n",
                     OK_HEAD + b"A: b\r\n folded\r\n\r\n", OK_HEAD + b": b\r\n\r\n", OK_HEAD + b"A\r\n\r\n",
                     OK_HEAD + b"\xc3\xa4: b\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\n\r\n",
                     b"GET http://evil/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET /a/../healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"\x16\x03\x01\x02\x00" + b"\x00" * 64 + b"\r\n\r\n",
                     OK_HEAD + b"".join(b"A%d: b\r\n" % i for i in range(200)) + b"\r\n",
                     OK_HEAD + b"A: " + b"x" * 70000 + b"\r\n\r\n",
                     b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"A" * 100000):
            with self.subTest(head=head[:60]):
                w = self.wire(tcp=False)
                w.send(head)
                answer = w.answer()
                self.assertIsNotNone(answer)
                self.assertIn(answer[0], (400, 401, 404, 405, 414, 431, 501, 505), answer)
                if answer[0] in (400, 414, 431, 501,
                                 505) and b"/a/../" not in head and b"evil" not in head and b"CONNECT" not in head:
                    self.assertTrue(w.ended(), answer)

    def test_pipelined_requests_are_answered_in_order_and_exactly(self):
        body = b'{"name":"\xff"}'
        post = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        chunked = (b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n"
                   b"0\r\n\r\n")
        w = self.wire(tcp=False)
        w.send(post + chunked + OK_HEAD + b"\r\n" + OK_HEAD + b"Connection: close\r\n\r\n")
        self.assertEqual([w.answer()[0] for _ in range(4)], [400, 400, 200, 200])
        self.assertTrue(w.ended())

    def test_a_body_nobody_wants_is_not_a_request(self):
        inner = b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
        w = self.wire(tcp=False)
        w.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
               b"Content-Length: %d\r\n\r\n%b" % (len(inner), inner) + OK_HEAD + b"Connection: close\r\n\r\n")
        answers = []
        while True:
            a = w.answer()
            if a is None:
                break
            answers.append(a)
        self.assertEqual({a[2] for a in answers}, {b"ok\n"})

    def test_every_error_is_valid_json(self):
        for target in (b"/v1/sandboxes/%ff%fe", b"/v1/sandboxes/" + b"%c3%a4" * 40, b"/v1/sandboxes/x" + b"%c3%a4" * 40,
                       b"/v1/sandboxes?%ff=1", b"/v1/runs/%0d%0aX-Evil:%201",
                       b"/v1/sandboxes?state=%0a%22", b"/v1/sandboxes?cursor=%f0%9f%98",
                       b"/v1/sandboxes?limit=" + b"%c3%a4" * 100):
            (status,
             body), = self.exchange(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                                    False)
            self.assertIn(status, (400, 404), target)
            error = json.loads(body.decode())["error"]
            self.assertTrue(error["code"] and error["message"] and error["request_id"], (target, body))


class Bodies(HostileTest):
    """A07: JSON without measure."""

    def json_body(self, body, status):
        answer = self.d.ask("POST", "/v1/sandboxes", body)
        self.assertEqual(answer.status, status, (body[:40] if isinstance(body, bytes) else "", answer))

    def test_shapes(self):
        before = rss(self.brigd())
        self.json_body(b'{"metadata":' + b'{"a":' * 100000, 400)
        self.json_body(b"[" * 100000 + b"]" * 100000, 400)
        keys = b"{" + b",".join(b'"%d":0' % i for i in range(scaled(1000000, 700000))) + b"}"
        self.json_body(keys, 413)
        self.json_body(b'{"metadata":{' + b",".join(b'"%d":"0"' % i for i in range(100000)) + b"}}", 400)
        self.json_body(b'{"env":{"A":"1","A":"2"}}', 400)
        self.json_body(b'{"env":{"A":"1","\\u0041":"2"}}', 400)
        for value in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"0x10", b"01", b"1.", b".5", b"+1",
                      b"1e", b"tru", b"'x'", b"\xff", b'"\\ud800"', b'"\\x"', b'"\x01"', b'"\xc0\x80"',
                      b'"\xed\xa0\x80"', b"//c\n1", b"1,"):
            self.json_body(b'{"timeout":' + value + b"}", 400)
        for body in (b"", b"\xef\xbb\xbf{}", b"{}{}", b"{}x", b"\x00{}", b"{}\x00", b'"x"', b"null"):
            if body:
                self.json_body(body, 400)
        self.assertLess(rss(self.brigd()) - before, 64 << 10)

    def test_one_gigabyte(self):
        pid, top = self.brigd(), [0]
        before = rss(pid)
        answer = self.d.ask("POST", "/v1/sandboxes", b"x", {"Content-Length": str(1 << 30)})
        self.refused(answer, 413, "too_large", "larger")
        stop = threading.Event()

        def watch():
            while not stop.wait(0.005):
                top[0] = max(top[0], rss(pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        w = self.wire(tcp=False)
        w.send(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(1024):
                w.sock.sendall(piece)
        except OSError:
            pass
        answer = w.answer()
        stop.set()
        watcher.join()
        self.assertEqual(answer and answer[0], 413)
        self.assertLess(top[0] - before, 40 << 10)

    def test_many_large_at_once(self):
        """Bodies just below the limit on many connections: bounded, and given back."""
        pid = self.brigd()
        before = rss(pid)
        wires = [self.wire(tcp=False) for _ in range(16)]
        for w in wires:
            w.send(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
                   b"Content-Length: %d\r\n\r\n" % (8 << 20) + b" " * (2 << 20))
        wait_until("they are held", lambda: rss(pid) - before > 20 << 10)
        for w in wires:
            w.close()
        wait_until("and given back", lambda: rss(pid) - before < 24 << 10)


class Slow(HostileTest):
    """A08: slowloris, and the limits of one peer."""

    CONFIG = "[server]\nheader_timeout = 0.4\nbody_timeout = 0.4\nidle_timeout = 0.6\nmax_connections_per_peer = 40\n"

    def timed(self, w):
        begin = time.monotonic()
        answer = w.answer()
        return answer, time.monotonic() - begin

    def test_head_byte_by_byte(self):
        w = self.wire()
        while True:  # until it is cut: the test has a limit
            try:
                w.sock.sendall(b"G" if w.buffer == b"" else b"x")
            except OSError:
                break
            time.sleep(0.05)
            if not w.quiet(0):
                break
        answer = w.answer()
        self.assertEqual(answer[0], 408)
        self.assertEqual(json.loads(answer[2])["error"]["code"], "timeout")

    def test_body_that_stops(self):
        for body in (b"Content-Length: 10\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
            w = self.wire(tcp=False)
            w.send(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n" + body)
            answer, took = self.timed(w)
            self.assertEqual(answer[0], 408)
            self.assertTrue(0.3 < took < 3, took)
            self.assertTrue(w.ended())

    def test_upload_that_stops(self):
        sid = self.sandbox()
        w = self.wire(tcp=False)
        w.send(b"PUT /v1/sandboxes/%b/files?path=slow HTTP/1.1\r\nHost: localhost\r\n"
               b"Content-Length: 1000\r\n\r\nx" % sid.encode())
        self.assertEqual(self.timed(w)[0][0], 408)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/files/list?path=.").json["entries"], [])

    def test_silence(self):
        w = self.wire()
        begin = time.monotonic()
        self.assertTrue(w.ended())
        self.assertGreater(time.monotonic() - begin, 0.4)  # clock: the silence that we allow
        w = self.wire(tcp=False)
        w.send(OK_HEAD + b"\r\n")
        self.assertEqual(w.answer()[0], 200)
        self.assertTrue(w.ended())

    def test_one_peer_is_one_peer(self):
        wires = [self.wire() for _ in range(60)]
        for w in wires:
            w.send(OK_HEAD + b"\r\n")
        answers = [w.answer()[0] for w in wires]
        self.assertEqual((answers.count(200), answers.count(429)), (40, 20))
        self.assertEqual(self.d.ask("GET", "/healthz").status, 200)  # another peer: the socket
        for w in wires:
            w.close()
        wait_until("the peer is welcome again", lambda: self.d.ask("GET", "/healthz", tcp=True).status == 200)


class Frames(HostileTest):
    """A10: WebSockets."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sid = cls.d.create()["id"]

    def socket(self):
        ws = self.d.websocket(self.start(self.sid, "cat", stdin_open=True) + "/attach")
        self.assertEqual(ws.status, 101)
        self.addCleanup(ws.close)
        return ws

    def closed_with(self, ws, *codes):
        """The close frame's code; a connection that just ends is none."""
        try:
            while True:
                opcode, data = ws.receive()
                if opcode == 8:
                    break
        except OSError as e:
            self.fail(f"no close frame: {e!r}")
        self.assertIn(struct.unpack(">H", data[:2])[0], codes)

    def test_frames_that_cannot_be(self):
        for send in (lambda ws: ws.send(b"x", mask=False),
                     lambda ws: ws.sock.sendall(b"\x82\xff" + b"\xff" * 8 + b"mask"),
                     lambda ws: ws.sock.sendall(b"\x82\xff" + b"\x7f" + b"\xff" * 7 + b"maskx"),
                     lambda ws: ws.send(b"x", opcode=3), lambda ws: ws.send(b"x", opcode=11),
                     lambda ws: ws.sock.sendall(b"\xf2\x81maskx"), lambda ws: ws.send(b"x" * 126, opcode=9),
                     lambda ws: ws.send(b"x", opcode=9, fin=False), lambda ws: ws.send(b"x", opcode=0),
                     lambda ws: (ws.send(b"x", fin=False), ws.send(b"y", opcode=2)),
                     lambda ws: ws.sock.sendall(b"\x82\xfe\x00\x05mask12345"),
                     lambda ws: ws.send(struct.pack(">H", 999), opcode=8)):
            ws = self.socket()
            send(ws)
            self.closed_with(ws, 1002, 1009)

    def test_text_that_is_not(self):
        ws = self.socket()
        ws.send(b"\xff\xfe", opcode=1)
        self.closed_with(ws, 1007)
        for text in ("", "{", "[]", '{"type":"nope"}', '{"type":"resize","rows":0,"cols":1}',
                     '{"type":"signal","signal":"NOPE"}', '{"type":"signal","signal":65}', "[" * 100):
            ws = self.socket()
            ws.send(text)
            self.closed_with(ws, 1008)

    def test_fragments_without_end(self):
        ws = self.socket()
        ws.send(b"x", fin=False)
        try:
            for _ in range(5000):
                ws.send(b"", opcode=0, fin=False)
        except OSError:
            pass
        self.closed_with(ws, 1009)
        ws = self.socket()
        try:
            for i in range(40):
                ws.send(b"x" * 100001, opcode=0 if i else 2, fin=False)
        except OSError:
            pass
        self.closed_with(ws, 1009)

    def test_flood_of_pings(self):
        before = rss(self.brigd())
        ws = self.socket()
        ping = b"\x89\xfd" + b"\0\0\0\0" + b"p" * 125
        try:
            for _ in range(2000):
                ws.sock.sendall(ping * 100)
        except OSError:
            pass
        self.assertLess(rss(self.brigd()) - before, 16 << 10)
        deadline = time.monotonic() + 10
        codes = []
        try:
            while time.monotonic() < deadline:
                opcode, data = ws.receive()
                if opcode == 8:
                    codes.append(struct.unpack(">H", data[:2])[0])
                    break
        except (ConnectionError, socket.timeout):
            codes.append(None)  # reset: our flood was on its way when it closed
        self.assertIn(codes[0], (1008, None))

    def test_handshakes(self):
        for fields, status in (({"Sec-WebSocket-Version": "8"}, 400), ({"Sec-WebSocket-Key": "short"}, 400),
                               ({"Upgrade": "h2c"}, 400), ({"Content-Length": "5"}, 400)):
            lines = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade",
                     "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **fields}
            w = self.wire(tcp=False)
            w.send(("GET /v1/runs/attach HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
                    + "\r\n").encode())
            self.assertEqual(w.answer()[0], status, fields)

    def test_a_run_that_is_left_at_every_moment(self):
        """Sockets that close at every step of a run with its own sandbox: none of it stays."""
        fds = descriptors(self.brigd())
        for i in range(scaled(300, 60)):
            ws = self.d.websocket("/v1/runs/attach")
            if i % 6:
                ws.send(json.dumps({"process": {"argv": ["sh", "-c", "echo x; sleep 100"]}}))
            if i % 6 > 1:
                time.sleep((i % 6 - 1) * 0.002 * (i % 5))  # clock: each leaves at another moment
            ws.close()
        wait_until("their sandboxes are gone",
                   lambda: [s["id"] for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]] == [self.sid])
        self.settles("descriptors", lambda: descriptors(self.brigd()), fds + 2)


class Organisations(HostileTest):
    """A02, A04, A17, I07: what one organisation learns of another: nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mine = cls.d.key(name="mine", role="admin")

    def call(self, method, path, key, body=None, **headers):
        return self.d.ask(method, path, body, headers, tcp=True, key=key)

    def routes(self):
        """(method, path with {…}) of everything below a sandbox."""
        paths = self.d.ask("GET", "/v1/openapi.json").json["paths"]
        for path, methods in paths.items():
            if path.startswith("/v1/sandboxes/{id}"):
                for method in methods:
                    if method in ("get", "put", "post", "delete", "patch", "head"):
                        yield method.upper(), path

    def test_every_route_of_a_sandbox(self):
        _, theirs = self.org("routes")
        made = self.call("POST", "/v1/sandboxes", self.mine, {"name": "private", "metadata": {"c": "canary-7f3a"}}).json
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        self.assertEqual(self.call("POST", f"/v1/sandboxes/{made['id']}/processes", self.mine,
                                   {"argv": ["sleep", "1000"]}).json["number"],
                         1)
        seen, before = 0, self.audit_now()
        counted = self.denials()
        unknown = {}
        for name in (made["id"], "a" * 26):  # theirs, and one that does not exist: answered alike
            for method, path in self.routes():
                concrete = path.replace("{id}", name).replace("{n}", "1").replace("{port}",
                                                                                  "80").replace("/...",
                                                                                                "/").replace("{path}",
                                                                                                             "")
                body = {} if method in ("POST", "PATCH") else b"x" if method == "PUT" else None
                answer = self.call(method, concrete, theirs, body)
                self.assertEqual(answer.status, 404, (method, concrete, answer))
                text = answer.body.decode().replace(name, "ID")
                if text:
                    text = json.dumps({k: v for k, v in json.loads(text)["error"].items() if k != "request_id"})
                unknown.setdefault((method, path), []).append(text)
                seen += 1
        self.assertGreater(seen, 60)
        for route, texts in unknown.items():
            self.assertEqual(texts[0], texts[1], route)
        denials = [x for x in self.audit(before, action="denied", object=made["id"])]
        self.assertEqual(len(denials), 1, "the first is an event; equal ones are counted")
        self.assertGreaterEqual(self.denials() - counted, seen // 2, "and each counts")
        self.assertTrue(self.call("GET", f"/v1/sandboxes/{made['id']}/processes/1", self.mine).json["running"])
        self.assertTrue(self.audit(before, action="suspicious"), "and so many are suspicious")

    def test_everything_else(self):
        org, theirs = self.org("else")
        sid = self.call("POST", "/v1/sandboxes", self.mine,
                        {"name": "else", "metadata": {"c": "canary-9911"}}).json["id"]
        run = self.call("POST", f"/v1/sandboxes/{sid}/run", self.mine, {"argv": ["echo", "canary-9911"]}).json["id"]
        key_id = [k["id"] for k in self.d.ask("GET", "/v1/keys").json["keys"] if k["name"] == "mine"][0]
        self.d.ask("DELETE", f"/v1/sandboxes/{sid}")
        for method, path in (("GET", f"/v1/runs/{run}"), ("GET", f"/v1/certificates/{sid}"),
                             ("DELETE", f"/v1/keys/{key_id}"), ("GET", f"/v1/sandboxes/{sid}")):
            self.assertEqual(self.call(method, path, theirs).status, 404, path)
        self.assertEqual(self.call("POST", "/v1/keys", theirs,
                                   {"org": "org-00000000-0000-4000-8000-000000000000"}).status,
                         404)
        for path in ("/v1/sandboxes", "/v1/runs", "/v1/certificates", f"/v1/runs?sandbox={sid}",
                     f"/v1/runs?cursor={run}", "/v1/keys", "/v1/audit?limit=1000", f"/v1/certificates?cursor={sid}"):
            body = self.call("GET", path, theirs).body.decode()
            # their own attempts have the ids they sent
            for word in ("canary-9911",) if "audit" in path else (sid, run, key_id, "canary-9911"):
                self.assertNotIn(word, body, path)
        for method, path in (("GET", "/v1/orgs"), ("POST", "/v1/orgs"), ("DELETE", f"/v1/orgs/{org}"),
                             ("GET", "/v1/config"), ("POST", "/v1/config/reload")):
            self.assertEqual(self.call(method, path, theirs, {"name": "x"} if method == "POST" else None).status, 403,
                             path)
        self.assertEqual(self.call("GET", "/v1/sandboxes", self.mine).status, 200, "its key lives")

    def test_metrics_are_not_for_tenants_ids(self):
        _, theirs = self.org("metrics")
        sid = self.sandbox(name="metered")
        answer = self.call("GET", "/metrics", theirs)
        self.assertNotIn(sid, answer.body.decode())

    def test_names_that_look_like_ids(self):
        sid = self.sandbox()
        _, theirs = self.org("names")
        for name in (sid, "a" * 26, "run-x", "brig-x", "org-x", "key-x", ".", "..", "-x", "x" * 300, "a/b", "a%2fb", "",
                     " ", "ä", "a\nb", "a\0b"):
            answer = self.call("POST", "/v1/sandboxes", theirs, {"name": name})
            if answer.status == 201:
                self.d.ask("DELETE", f"/v1/sandboxes/{answer.json['id']}")
            self.assertIn(answer.status, (400, 422), (name, answer))
        # The same name in two organisations is two sandboxes.
        made = [self.call("POST", "/v1/sandboxes", k, {"name": "same"}).json["id"] for k in (self.mine, theirs)]
        for k, want in zip((self.mine, theirs), made):
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{want}")
            self.assertEqual(self.call("GET", "/v1/sandboxes/same", k).json["id"], want)

    def test_ids_cannot_be_guessed(self):
        ids = [self.d.create()["id"] for _ in range(20)]
        for sid in ids:
            self.d.ask("DELETE", f"/v1/sandboxes/{sid}")
            self.assertRegex(sid, "^[a-z0-9]{25,26}$")
        self.assertEqual(len(set(ids)), 20)
        for column in zip(*ids):  # no part of it counts up or stands still
            self.assertGreater(len(set(column)), 3)

    def test_idempotency(self):
        _, theirs = self.org("idem")
        ids = {self.call("POST", "/v1/sandboxes", k, {}, **{"Idempotency-Key": "the-same"}).json["id"]
               for k in (self.mine, theirs, self.mine, theirs)}
        for sid in ids:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid}")
        self.assertEqual(len(ids), 2)
        answer = self.call("POST", "/v1/sandboxes", self.mine, {"name": "different"}, **{"Idempotency-Key": "the-same"})
        self.assertEqual(answer.status, 409, answer)
        for bad in ("x" * 256, ""):
            self.assertEqual(self.call("POST", "/v1/sandboxes", self.mine, {}, **{"Idempotency-Key": bad}).status, 400)

    def test_idempotency_race(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(
                lambda _: self.call("POST", "/v1/sandboxes", self.mine, {}, **{"Idempotency-Key": "race"}), range(32)))
        ids = {a.json["id"] for a in answers if a.status == 201}
        for sid in ids:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid}")
        self.assertEqual(len(ids), 1, answers)
        self.assertEqual({a.status for a in answers} - {201, 409}, set())

    def test_cursors(self):
        sids = [self.sandbox() for _ in range(3)]
        _, theirs = self.org("cursors")
        for cursor in ("", "x", "-", "1", "1-", "-1-x", "99999999999999999999-x", "0-" + "a" * 10000, "%00",
                       "1-..%2f..", "' OR 1=1 --", "18446744073709551615-" + sids[0], "1-" + sids[1]):
            quoted = cursor.replace(" ", "%20").replace("'", "%27")
            answer = self.call("GET", f"/v1/sandboxes?cursor={quoted}", self.mine)
            self.assertIn(answer.status, (200, 400, 414), cursor)
            other = self.call("GET", f"/v1/sandboxes?cursor={quoted}", theirs)
            self.assertTrue(other.status != 200 or other.json["sandboxes"] == [], cursor)
            for path in ("/v1/runs", "/v1/certificates"):
                self.assertIn(self.call("GET", f"{path}?cursor={quoted}", theirs).status, (200, 400, 414), cursor)

    def test_events_and_audit_of_others(self):
        _, theirs = self.org("events")
        stream = self.d.connection(tcp=True)
        stream.request("GET", "/v1/events?since=0", headers={"Authorization": f"Bearer {theirs}"})
        response = stream.getresponse()
        sid = self.sandbox()
        own = self.call("POST", "/v1/sandboxes", theirs, {}).json["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{own}")
        seen = b""
        while own.encode() not in seen:
            seen += response.readline()
        self.assertNotIn(sid.encode(), seen)
        stream.close()


class Keys(HostileTest):
    def test_revoked_in_the_middle_of_streams(self):
        made = self.d.ask("POST", "/v1/keys", {"role": "user"}).json
        self.streams_end(made, lambda: self.assertEqual(self.d.ask("DELETE", f"/v1/keys/{made['id']}").status, 204))

    def test_expired_in_the_middle_of_streams(self):
        self.streams_end(self.d.ask("POST", "/v1/keys", {"role": "user", "expires": 2}).json, lambda: None)

    def streams_end(self, made, end):
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "while :; do echo x; sleep 0.05; done", stdin_open=True)
        auth = {"Authorization": f"Bearer {made['key']}"}
        streams = []
        for path in (f"{p}/output", "/v1/events?since=0", f"/v1/sandboxes/{sid}/files/watch?path=."):
            c = self.d.connection(tcp=True, timeout=10)
            c.request("GET", path, headers=auth)
            r = c.getresponse()
            self.assertEqual(r.status, 200)
            streams.append((c, r))
        ws = WebSocket(self.d.connection(tcp=True, timeout=10), f"{p}/attach", auth)
        self.assertEqual(ws.status, 101)
        end()
        for c, r in streams:
            try:
                while r.read1(65536):
                    pass
            except (ConnectionError, OSError) as e:
                self.assertNotIsInstance(e, TimeoutError)
            except Exception as e:  # http.client: cut off within a chunk
                self.assertEqual(type(e).__name__, "IncompleteRead")
            c.close()
        with self.assertRaises(ConnectionError):
            while ws.receive()[0] != 8:
                pass
            raise ConnectionError
        ws.close()
        self.assertEqual(self.d.ask("GET", p).json["running"], True)

    def test_keys_that_are_nearly(self):
        key = self.d.key()
        for bad in (key[:-1], key + "0", key.upper(), " " + key, key[:-1] + ("0" if key[-1] != "0" else "1"),
                    "E2B_" + key[4:], key.replace("e2b_", "e2c_"), "", key + ",x"):
            self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True,
                                        headers={"Authorization": f"Bearer {bad}"}).status,
                             401, bad)
        for field in (f"Basic {key}", key, f"Bearer{key}", f"Bearer  {key}", f"Token {key}"):
            self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, headers={"Authorization": field}).status, 401,
                             field)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", headers={"Authorization": "Bearer nonsense"}).status, 401,
                         "a bad key on the socket is not the socket")

    def test_deleted_organisation(self):
        org, key = self.org("doomed")
        made = self.d.ask("POST", "/v1/sandboxes", {}, tcp=True, key=key).json["id"]
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{org}").status, 409)
        self.d.ask("DELETE", f"/v1/sandboxes/{made}")
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{org}").status, 204)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=key).status, 401)
        self.assertEqual(self.d.ask("POST", "/v1/keys", {"org": org}).status, 404)
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{org}").status, 404)
        self.assertEqual(self.d.ask("DELETE", "/v1/orgs/org-00000000-0000-4000-8000-000000000000").status, 409)

    def test_last_event_id(self):
        sid = self.sandbox()
        p = self.start(sid, "echo", "x")
        self.d.ask("GET", f"{p}/wait")
        for field in ("", "x", "1", "1,", ",1", "1,2,3", "-1,0", "99999999999999999999,0",
                      "18446744073709551614,18446744073709551614", "1,1\t", "0x1,0"):
            c = self.d.connection(timeout=5)
            c.request("GET", f"{p}/output", headers={"Last-Event-ID": field})
            self.assertIn(b"event: end", c.getresponse().read(), field)
            c.close()
        for query in ("stdout=x", "stdout=-1", "stdout=18446744073709551616", "stderr=1e3", "stream=stdin"):
            self.assertEqual(self.d.ask("GET", f"{p}/output?{query}").status, 400, query)


class Numbers(HostileTest):
    """A20, A14, R30: values and arguments at and beyond their edges. Nothing is made."""

    def test_integers(self):
        odd = (0, -1, -(2**31), 2**63, 2**64, 1e308, -0.5, 1e-9, "", "-1", "9e99G", "1e999", "0x10", "1 ", " 1", "1\n",
               "１", "inf", "nan", None, True, [], {}, "1gg", "99999999999999999999g")
        for where in ("memory", "pids", "cpus", "disk", "timeout", "files", "output"):
            for value in odd:
                if value is None:
                    continue
                answer = self.d.ask("POST", "/v1/sandboxes", {"limits": {where: value}})
                if where in ("timeout", "output", "files") and answer.status == 201:  # a zero may mean none
                    self.d.ask("DELETE", f"/v1/sandboxes/{answer.json['id']}")
                    self.assertEqual(value, 0, (where, value))
                    continue
                self.assertEqual(answer.status, 400, (where, value, answer))
        for where in ("timeout", "idle_timeout"):
            for value in odd:
                if value is None or (where == "idle_timeout" and value == 0 and value is not False):
                    continue
                answer = self.d.ask("POST", "/v1/sandboxes", {where: value})
                self.assertEqual(answer.status, 400, (where, value, answer))
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_types(self):
        for spec in ({"binds": "a:b:rw,shared"}, {"binds": ["a:b:rw,shared"]},
                     {"binds": [{"source": "/etc", "target": "/x", "options": "rw,shared"}]},
                     {"binds": [{"source": "etc", "target": "/x"}]},
                     {"binds": [{"source": "/etc", "target": "../x"}]},
                     {"binds": [{"source": "/etc\0/x", "target": "/x"}]}, {"privileged": True}, {"user": "-1"},
                     {"user": "--privileged"},
                     {"user": -1}, {"user": "0:0:0"}, {"template": "-v/:/host"}, {"template": "../../etc"},
                     {"template": {}}, {"require": "x"}, {"require": [1]}, {"env": []}, {"env": {"": "x"}},
                     {"env": {"A\0": "x"}}, {"env": {"A\n": "x"}}, {"metadata": {"": "x"}}, {"metadata": "x"},
                     {"name": 1}, {"workdir": "/a/../b"}, {"workdir": "/a\0"}, {"limits": 1}, {"limits": []},
                     {"network": "--net=host"}, {"writable_root": "yes"}, {"idle_policy": "never"},
                     {"profile": "unconfined"}, {"binds": [{"source": "/", "target": "/proc"}]},
                     {"metadata": {f"k{i}": "x" for i in range(65)}}, {"metadata": {"k": "x" * 5000}}):
            answer = self.d.ask("POST", "/v1/sandboxes", spec)
            self.assertIn(answer.status, (400, 422), (spec, answer))
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_arguments_are_arguments(self):
        sid = self.sandbox()
        for argv in (["--help"], ["-c", "id"], ["--", "id"], ["-"], ["/bin/sh -c id"], ["$(id)"], [";id"]):
            r = self.d.ask("POST", f"/v1/sandboxes/{sid}/run", {"argv": argv}).json
            self.assertEqual((r["outcome"]["exit_code"], r["stdout"]), (127, ""), (argv, r))
        self.assertEqual(self.d.run(sid, "printf", "%s|", "-n", "--", "$(id)", "a b", "\n", "'\"\\")["stdout"],
                         "-n|--|$(id)|a b|\n|'\"\\|")

    def test_sizes_of_a_program(self):
        """R30: refused by the API before anything is started."""
        sid = self.sandbox()
        before = self.d.ask("GET", f"/v1/sandboxes/{sid}/processes").json["processes"]
        for body, status in (({"argv": ["x"], "env": {"PATH": ":".join(f"/d{i}" for i in range(100000))}}, 400),
                             ({"argv": ["true"] * 100000}, 400), ({"argv": ["x" * (2 << 20)]}, 400),
                             ({"argv": ["true", *["y" * 100000] * 30]}, 400),
                             ({"argv": ["true"], "env": {f"V{i}": "z" * 30000 for i in range(200)}}, 400),
                             ({"argv": ["true"], "env": {f"V{i}": "" for i in range(20000)}}, 400),
                             ({"argv": ["true"], "env": {"A": "x" * (9 << 20)}}, 413),
                             ({"command": "x" * (3 << 20)}, 400), ({"argv": ["true"], "cwd": "/" + "x" * 5000}, 400)):
            answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/run", body)
            self.assertEqual(answer.status, status, (str(body)[:60], answer))
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{sid}/run", b"{", {"Content-Length": str(1 << 30)}), 413,
                     "too_large", "larger")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/processes").json["processes"], before)
        self.assertIn(self.d.ask("POST", "/v1/sandboxes", {"env": {f"V{i}": "z" * 30000 for i in range(200)}}).status,
                      (400, 413))

    def test_numbers_in_paths(self):
        sid = self.sandbox()
        for n in ("0", "-1", "1e3", "99999999999", "4294967296", "0x1", "%31%00", "１", "1 ", " ", "a"):
            quoted = n.replace(" ", "%20").encode().decode("ascii", "ignore") or "%EF%BC%91"
            for tail in ("", "/wait", "/output"):
                self.assertIn(self.d.ask("GET", f"/v1/sandboxes/{sid}/processes/{quoted}{tail}").status, (400, 404), n)
            self.assertIn(self.d.ask("DELETE", f"/v1/sandboxes/{sid}/shells/{quoted}").status, (400, 404), n)
        for port in ("0", "65536", "-1", "x", "99999999999", "%30"):
            self.assertIn(self.d.ask("POST", f"/v1/sandboxes/{sid}/ports/{port}/token", {}).status, (400, 404), port)
            self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/proxy/{port}/").status, 404, port)


class Races(HostileTest):
    """A16: one wins, the others are told so, nobody waits for ever."""

    def together(self, *calls):
        barrier = threading.Barrier(len(calls))

        def one(call):
            barrier.wait()
            return self.d.ask(*call, timeout=20)

        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(one, calls))

    def test_delete_and_run(self):
        for i in range(scaled(100, 15)):
            sid = self.d.create()["id"]
            path = f"/v1/sandboxes/{sid}"
            runs = [("POST", f"{path}/run", {"argv": ["sh", "-c", "sleep 0.0%d" % (i % 10)]})] * 3
            *ran, gone, started = self.together(*runs, ("DELETE", path),
                                                ("POST", f"{path}/processes", {"argv": ["sleep", "100"]}))
            self.assertEqual(gone.status, 204)
            for a in ran:
                self.assertIn(a.status, (200, 404, 409, 503), a)
                if a.status == 200:
                    self.assertIn(a.json["outcome"]["cause"], ("exited", "sandbox-gone", "signalled", "cancelled"), a)
            self.assertIn(started.status, (201, 404, 409, 503), started)
            self.assertEqual(self.d.ask("GET", path).status, 404)

    def test_double_delete(self):
        for _ in range(scaled(100, 15)):
            path = f"/v1/sandboxes/{self.d.create()['id']}"
            statuses = sorted(a.status for a in self.together(*[("DELETE", path)] * 4))
            self.assertIn(204, statuses)
            self.assertEqual(set(statuses) - {204, 404, 409}, set())
            self.assertEqual(self.d.ask("DELETE", path).status, 404)

    def test_pause_and_delete(self):
        for _ in range(scaled(100, 15)):
            path = f"/v1/sandboxes/{self.d.create()['id']}"
            paused, resumed, gone, stopped = self.together(("POST", f"{path}/pause"), ("POST", f"{path}/resume"),
                                                           ("DELETE", path), ("POST", f"{path}/pause"))
            for a in (paused, resumed, stopped):
                self.assertIn(a.status, (200, 404, 409, 503), a)
            if gone.status != 204:
                self.assertEqual(gone.status, 409, gone)
                wait_until("it can be deleted", lambda: self.d.ask("DELETE", path).status in (204, 404))
            wait_until("it is gone", lambda: self.d.ask("GET", path).status == 404)

    def test_the_same_name(self):
        for i in range(scaled(50, 8)):
            answers = self.together(*[("POST", "/v1/sandboxes", {"name": f"twin{i}"})] * 6)
            made = [a.json["id"] for a in answers if a.status == 201]
            self.assertEqual(sorted(a.status for a in answers), [201] + [409] * 5, answers)
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{made[0]}").status, 204)
            self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/twin{i}").status, 404)

    def test_state_is_always_one_of_the_table(self):
        sid = self.sandbox()
        path, stop, seen = f"/v1/sandboxes/{sid}", threading.Event(), set()

        def look():
            while not stop.is_set():
                seen.add(self.d.ask("GET", path).json["state"])

        watcher = threading.Thread(target=look)
        watcher.start()
        verbs = itertools.cycle(("pause", "resume"))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda v: self.d.ask("POST", f"{path}/{v}"),
                                    [next(verbs) for _ in range(scaled(400, 60))]))
        stop.set()
        watcher.join()
        self.assertEqual({a.status for a in answers} - {200, 409}, set())
        self.assertEqual(seen - {"running", "pausing", "paused", "resuming"}, set())
        if self.d.ask("GET", path).json["state"] == "paused":
            self.assertEqual(self.d.ask("POST", f"{path}/resume").status, 200)
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")
