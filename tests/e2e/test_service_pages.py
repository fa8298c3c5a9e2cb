# SPDX-License-Identifier: Apache-2.0
"""Web pages that would like to drive the service: foreign hosts and origins, forms, WebSockets, fields that are there
twice."""

import json

from hostilekit import HostileTest


class Pages(HostileTest):
    """A web page must not drive the daemon."""

    def status(self, head, tcp=True):
        found = self.exchange(b"GET /v1/version HTTP/1.1\r\n" + head + b"Connection: close\r\n\r\n", tcp)
        self.assertEqual(len(found), 1)
        return found[0][0]

    def test_host(self):
        for host in (b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example", b"evillocalhost",
                     b"8.8.8.8", b"[::2]", b"0.0.0.0", b"127.0.0.1@evil.example", b"localhost:1:2",
                     b"2130706433", b"localhost\\.evil", b"127.1"):
            self.assertIn(self.status(b"Host: " + host + b"\r\n"), (400, 421), host)
        for host in (b"localhost", b"LOCALHOST:80", b"127.0.0.1:2744", b"[::1]", b"a.localhost", b"127.9.9.9"):
            self.assertEqual(self.status(b"Host: " + host + b"\r\n"), 200, host)

    def test_origin(self):
        for origin in (b"http://evil.example", b"null", b"http://localhost.evil.example", b"https://localhost",
                       b"http://localhost:1", b"file://", b"http://localhost@evil.example", b"http://"):
            self.assertEqual(self.status(b"Host: localhost\r\nOrigin: " + origin + b"\r\n"), 403, origin)
            self.assertEqual(self.status(b"Host: localhost\r\nOrigin: " + origin + b"\r\n", False), 403, origin)
        self.assertEqual(self.status(b"Host: localhost\r\nOrigin: http://localhost\r\n"), 200)

    def test_a_field_that_decides_is_there_once(self):
        """Of two only the first would be judged; a reader behind us might take the second."""
        fields = ("Origin", "Authorization", "X-API-Key", "X-BARE-PASSWORD", "X-Brig-Token", "user_id", "X-Project-Id",
                  "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-Dest", "Upgrade-Insecure-Requests", "Expect",
                  "Idempotency-Key", "Access-Control-Request-Method", "Sec-WebSocket-Key", "Sec-WebSocket-Version")
        for name in fields:
            good = {"Origin": b"http://localhost", "Expect": b"100-continue"}.get(name, b"x")
            head = b"%b: %b\r\n" % (name.encode(), good)
            for again in (head, head.replace(name.encode(), name.swapcase().encode()), b"%b: evil\r\n" % name.encode()):
                for tcp in (True, False):
                    found = self.exchange(b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                                          head + b"A: b\r\n" + again + b"\r\n", tcp)
                    error = json.loads(found[0][1])["error"]
                    self.assertEqual((found[0][0], error["code"], error["message"]), (400, "invalid_argument",
                                     f"the field {name} is there twice, and it may be sent once"))
            self.assertIn(self.status(b"Host: localhost\r\n" + head), (200, 100), name)

    def test_preflight_gives_nothing(self):
        answer = self.d.ask("OPTIONS", "/v1/sandboxes",
                            headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"},
                            tcp=True)
        self.assertEqual(answer.status, 403)
        self.assertFalse([k for k in answer.headers if k.lower().startswith("access-control")])

    def test_simple_requests_of_a_form(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = self.d.ask("POST", "/v1/sandboxes", b"{}", {"Content-Type": kind, "Origin": "http://evil.example"})
            self.assertEqual(answer.status, 403, kind)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_websocket_of_a_page(self):
        ws = self.d.websocket("/v1/runs/attach", headers={"Origin": "http://evil.example"})
        self.assertEqual(ws.status, 403)
        ws.close()
