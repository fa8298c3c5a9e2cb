# SPDX-License-Identifier: Apache-2.0
"""One organisation cannot take the service's connections from the others: streams, WebSockets, previews and idle
clients together. (S04.)"""

import base64
import struct
import unittest

from helpers import wait_until
from hostilekit import HostileTest
from previewkit import WEBSOCKET_SERVER, serve

FULL = "the organisation has its share of the service's connections open"


class Connections(HostileTest):
    CONFIG = "[server]\nmax_connections = 24\nmax_connections_per_peer = 24\n"

    def stream(self, key):
        c = self.d.connection(tcp=True)
        c.request("GET", "/v1/events", headers={"Accept": "text/event-stream", "X-API-Key": key})
        self.addCleanup(c.close)
        return c, c.getresponse()

    def idle(self, key):
        c = self.d.connection(tcp=True)
        self.addCleanup(c.close)
        return c, self.d.ask("GET", "/v1/version", key=key, connection=c)

    def test_streams_idle_clients_and_keys_are_one_share(self):
        org, key = self.org("greedy")
        more = self.d.key(name="another", role="user", org=org)
        _, modest = self.org("modest")
        held = [self.stream(key) for _ in range(5)] + [self.idle(more) for _ in range(5)]
        self.assertEqual({answer.status for _, answer in held}, {200})
        while True:
            held.append(self.stream(more))
            if held[-1][1].status != 200:
                break
        connection, refusal = held.pop()
        self.assertEqual((refusal.status, FULL in refusal.read().decode(), refusal.headers["Retry-After"]),
                         (429, True, "1"))
        connection.close()
        self.assertIn(len(held), (10, 11, 12))  # half; a connection that the server has not seen close yet counts
        self.assertEqual(held[5][0].sock is not None and self.idle(modest)[1].status, 200)
        for _ in range(4):
            self.assertEqual(self.stream(modest)[1].status, 200)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").status, 200, "the administrator always")
        self.assertEqual(self.d.ask("GET", "/v1/version", key=more, connection=held[5][0]).status, 200,
                         "who has a connection keeps it")

    def test_who_is_refused_has_no_connection(self):
        _, key = self.org("stubborn")
        _, modest = self.org("patient")
        held = [self.stream(key) for _ in range(24)]
        refused = [(c, answer) for c, answer in held if answer.status == 429]
        self.assertGreaterEqual(len(refused), 12)
        for connection, answer in refused:
            self.assertEqual((answer.headers["Connection"], FULL in answer.read().decode()), ("close", True))
            connection.close()
        self.assertEqual(self.stream(modest)[1].status, 200)

    def test_previews_count_for_whose_sandbox_it_is(self):
        _, key = self.org("previewed")
        made = self.d.ask("POST", "/v1/sandboxes", {}, tcp=True, key=key)
        self.assertEqual(made.status, 201, made)
        sid = made.json["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid}")
        serve(self.d, sid, WEBSOCKET_SERVER, 8080)
        token = self.d.ask("POST", f"/v1/sandboxes/{sid}/ports/8080/token", {}, tcp=True, key=key).json["token"]
        held = []
        while len(held) < 24:
            held.append(self.d.websocket(f"/v1/sandboxes/{sid}/proxy/8080/echo?brig_token={token}", tcp=True))
            self.addCleanup(held[-1].close)
            if held[-1].status != 101:
                break
        self.assertEqual((held[-1].status, len(held) - 1 in (10, 11, 12)), (429, True), len(held))
        self.assertEqual(self.stream(self.org("unharmed")[1])[1].status, 200)
        held[0].send("still")
        self.assertEqual(held[0].receive(), (1, b"still"))


class Messages(HostileTest):
    """Halves of WebSocket messages are in brigd's memory, and so is what a program does not read."""

    WHY = b"the organisation has its share of messages under way"

    def attach(self, key, *argv):
        made = self.d.ask("POST", "/v1/sandboxes", {}, tcp=True, key=key)
        self.assertEqual(made.status, 201, made)
        sid = made.json["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid}")
        number = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": argv, "stdin_open": True}, tcp=True,
                            key=key).json["number"]

        def one():
            ws = self.d.websocket(f"/v1/sandboxes/{sid}/processes/{number}/attach", tcp=True,
                                  headers={"X-API-Key": key})
            self.assertEqual(ws.status, 101, ws.head)
            self.addCleanup(ws.close)
            return ws
        return one

    def ping(self, ws):
        """What it answers behind all that was sent: (opcode, data)."""
        ws.send(b"there?", opcode=9)
        while True:
            opcode, data = ws.receive()
            if opcode in (8, 10):
                return opcode, data

    def test_halves_of_messages_count_by_their_bytes(self):
        one, other = self.attach(self.org("halves")[1], "cat"), self.attach(self.org("whole")[1], "cat")
        held, rest = [], b"\x00\xff" + struct.pack(">Q", (1 << 20) - 1) + b"mask" + bytes((1 << 20) - 1)
        while len(held) < 200:
            ws = one()
            ws.sock.sendall(b"\x02\x81maskx" + rest)  # neither frame is the last
            held.append(ws)
            opcode, data = self.ping(ws)
            if opcode == 8:
                break
        self.assertEqual((opcode, data), (8, struct.pack(">H", 1013) + self.WHY))
        self.assertEqual(len(held), 129)  # half of 256 MiB, and one more
        ws = other()  # another organisation's messages arrive
        ws.send(b"x" * (1 << 20))
        self.assertEqual(self.ping(ws)[0], 10)
        held[0].close()  # and what is given up can be had again
        ended = one()
        wait_until("there is room", lambda: self.whole(one))
        ended.close()

    def whole(self, one):
        ws = one()
        ws.send(b"x" * (1 << 20))
        opcode, _ = self.ping(ws)
        ws.close()
        return opcode == 10


class KeptOutput(HostileTest):
    """What brigd keeps of a command's output is in its own memory, which is everybody's."""

    WHY = "at most 67108864 bytes: the service keeps it in its own memory"

    def refused(self, path, body, name):
        answer = self.d.ask("POST", path, body, tcp=True, key=self.key)
        self.assertEqual((answer.status, answer.json["error"]["message"]), (400, f"{name}: {self.WHY}"), path)

    def test_no_request_makes_the_service_keep_more_than_its_bound(self):
        _, self.key = self.org("wordy")
        made = self.d.ask("POST", "/v1/sandboxes", {"limits": {"output": "64m"}}, tcp=True, key=self.key)
        self.assertEqual(made.status, 201, made)
        sid = made.json["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sid}")
        more = (64 << 20) + 1
        self.refused("/v1/sandboxes", {"limits": {"output": more}}, "limits.output")
        self.refused("/v1/run", {"code": "print(1)", "language": "python", "limits": {"output": more}}, "limits.output")
        self.refused(f"/v1/sandboxes/{sid}/run", {"argv": ["true"], "output": more}, "output")
        started = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": ["true"], "output": more}, tcp=True,
                             key=self.key)
        self.assertEqual(started.status, 201, "of a process nothing is kept: %r" % started)

    def test_control_bytes_are_not_text(self):
        _, self.key = self.org("binary")
        made = self.d.ask("POST", "/v1/sandboxes", {}, tcp=True, key=self.key)
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made.json['id']}")
        path, n = f"/v1/sandboxes/{made.json['id']}/run", 1 << 20
        ran = self.d.ask("POST", path, {"argv": ["head", "-c", str(n), "/dev/zero"]}, tcp=True, key=self.key)
        self.assertEqual((ran.status, ran.json["stdout_encoding"]), (200, "base64"))
        self.assertFalse(ran.json["truncated"]["stdout"])
        self.assertEqual(base64.b64decode(ran.json["stdout"]), bytes(n))
        self.assertLess(len(ran.body), 2 * n)
        ran = self.d.ask("POST", path, {"argv": ["head", "-c", "100", "/dev/zero"]}, tcp=True, key=self.key)
        self.assertEqual((ran.json["stdout_encoding"], ran.json["stdout"]), ("utf-8", "\0" * 100))


if __name__ == "__main__":
    unittest.main()
