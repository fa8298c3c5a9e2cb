# SPDX-License-Identifier: Apache-2.0
"""What the tests of brig-egress stand on: one internet and one gate for a class, a slot and a network for each test."""

import tempfile
import unittest

from egresskit import (DENIED, Gate, Inside, Outside, Refused, http_server, make_certificate, read_all, read_exactly,
                       tls_server)
from jailkit import needs_root

WEB, SECURE, RAW, SIX = "203.0.113.10", "203.0.113.11", "203.0.113.12", "2001:db8::10"
RULES = [{"action": "allow", "domain": "web.example"}, {"action": "allow", "domain": "*.wild.example"},
         {"action": "allow", "domain": "secure.example", "ports": [443]},
         {"action": "allow", "domain": "raw.example", "ports": [2222], "protocol": "tcp"}]


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
        cls.out.names.update({"web.example": [WEB], "a.b.wild.example": [WEB], "secure.example": [SECURE],
                              "raw.example": [RAW], "six.example": [SIX]})
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

    def assert_reset(self, sock):
        """The end of it; returns what came before."""
        got = b""
        with self.assertRaises(ConnectionResetError):
            while (data := sock.recv(4096)):
                got += data
            raise AssertionError("a FIN, not a reset")
        return got

    def assert_turned_away(self, host, port):
        """At once: the reset may even be seen by connect()."""
        try:
            sock = self.connect(host, port)
        except ConnectionResetError:
            return
        self.assert_reset(sock)

    def denied(self, **want):
        return self.gate.wait_event(slot=self.slot, verdict=DENIED, dns=0, **want)
