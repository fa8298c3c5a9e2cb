# SPDX-License-Identifier: Apache-2.0
"""Previews: whole WebSocket conversations through a sandbox's port, in both directions, slowly, and to each side's end."""

import os
import select
import socket
import unittest

from helpers import wait_until
from previewkit import WEBSOCKET_SERVER, serve
from service import ServiceTest


class Tunnels(ServiceTest):
    # Every time that the server gives a request is much shorter than the conversations here.
    CONFIG = "[server]\nheader_timeout = '300ms'\nbody_timeout = '300ms'\nidle_timeout = '300ms'\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sid = cls.d.create(idle_timeout=3600)["id"]
        serve(cls.d, cls.sid, WEBSOCKET_SERVER, 8080)
        cls.token = cls.d.ask("POST", f"/v1/sandboxes/{cls.sid}/ports/8080/token", {}).json["token"]

    def open(self, path, **kw):
        w = self.d.websocket(f"/v1/sandboxes/{self.sid}/proxy/8080/{path}", **kw)
        self.addCleanup(w.close)
        self.assertEqual(w.status, 101, w.head)
        return w

    def converse(self, w):
        for i in range(20):
            w.send(f"message {i}")
            self.assertEqual(w.receive(), (1, f"message {i}".encode()))
        w.send(b"\x03\xe8bye", opcode=8)
        self.assertEqual(w.receive(), (8, b"\x03\xe8bye"))
        with self.assertRaises(ConnectionError):
            w.receive()

    def test_a_conversation(self):
        self.converse(self.open("echo"))
        self.converse(self.open(f"echo?brig_token={self.token}", tcp=True))

    def test_by_host_name(self):
        host = f"8080-{self.sid}.localhost:{self.d.port}"
        w = self.d.websocket(f"/echo?brig_token={self.token}", True, {"Origin": f"http://{host}"}, host)
        self.addCleanup(w.close)
        self.converse(w)

    def test_fragments_and_pings_of_both_sides(self):
        w = self.open("fragments")
        pieces = []
        while not pieces or len(b"".join(pieces)) < len(b"one two three"):
            pieces.append(w.receive()[1])  # the ping between them is answered on the way
        self.assertEqual(pieces, [b"one ", b"two ", b"three"])
        w.send("the ", fin=False)
        w.send(b"now", opcode=9)
        self.assertEqual(w.receive(), (10, b"now"))
        w.send(b"other ", opcode=0, fin=False)
        w.send(b"way", opcode=0)
        self.assertEqual(w.receive(), (1, b"the other way"))
        self.converse(w)

    def test_idle_with_pings_for_longer_than_every_time_limit(self):
        w = self.open("pings?0.5,5")
        self.assertEqual(w.receive(), (1, b"still here"))
        self.converse(w)

    def test_big_messages(self):
        w = self.open("echo")
        data = os.urandom(1 << 20) * 8
        w.sock.settimeout(60)
        w.send(data)
        self.assertEqual(w.receive(), (2, data))
        self.converse(w)

    def test_a_slow_reader_gets_every_byte(self):
        w = self.open("firehose")
        got, want = 0, 16 * ((1 << 20) + 10)
        w.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while got + len(w.buffer) < want:
            self.assertEqual(self.d.ask("GET", "/readyz").status, 200)  # nobody waits for a slow one
            data = w.sock.recv(100000)
            self.assertTrue(data, "cut off")
            got += len(data)
        w.buffer = b""
        self.converse(w)

    def test_the_programs_end_leaves_the_client_its_own(self):
        self.d.ask("DELETE", f"/v1/sandboxes/{self.sid}/files?path=heard")
        w = self.open("ends_first")
        self.assertEqual(w.receive(), (1, b"my last words"))
        with self.assertRaises(ConnectionError):
            w.receive()
        w.sock.settimeout(60)
        w.sock.sendall(b"x" * (3 << 20) + b"last")
        w.close()
        wait_until("it has heard the end", lambda: self.d.ask("GET", f"/v1/sandboxes/{self.sid}/files?path=heard").status == 200)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{self.sid}/files?path=heard").body, b"%d last" % ((3 << 20) + 4))

    def test_the_clients_end_leaves_the_program_its_own(self):
        w = self.open("ends_last")
        w.sock.settimeout(60)
        w.sock.sendall(b"y" * (3 << 20))
        w.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(w.receive(), (1, b"%d bytes and then the end" % (3 << 20)))
        with self.assertRaises(ConnectionError):
            w.receive()

    def test_a_client_that_stays_after_the_programs_end_is_let_go(self):
        w = self.open("ends_first")
        self.assertEqual(w.receive(), (1, b"my last words"))
        with self.assertRaises(ConnectionError):
            w.receive()
        wait_until("its connection is gone", lambda: self.gone(w.sock))

    @staticmethod
    def gone(sock):
        poll = select.poll()
        poll.register(sock, select.POLLHUP)
        return bool(poll.poll(0))  # without a byte: that would be a sign of life


if __name__ == "__main__":
    unittest.main()
