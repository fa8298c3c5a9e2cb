# SPDX-License-Identifier: Apache-2.0
"""One organisation cannot take brig-egress from the others: with few descriptors, its connections, listeners and names
end at a share, and another's sandbox still gets its network, its names and its connections. (M4, S04, T06.)"""

import resource
import unittest

from egresskit import CLOSED, DENIED, Gate, Inside, Outside, Refused, http_server
from egresstest import RAW, banner_server
from jailkit import needs_root

DESCRIPTORS = 320
OPEN = {"rules": [{"action": "allow", "domain": "raw.example", "ports": [2222], "protocol": "tcp"}],
        "limits": {"connections": 65536}}


def few():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@needs_root
class ShareTest(unittest.TestCase):
    number = 0

    @classmethod
    def setUpClass(cls):
        cls.out = Outside()
        cls.out.names["raw.example"] = [RAW]
        cls.out.serve(RAW, 2222, banner_server)
        cls.out.serve(RAW, 80, http_server([]))

    @classmethod
    def tearDownClass(cls):
        cls.out.close()

    def ended(self):
        log = self.gate.close()
        self.assertEqual((self.gate.process.returncode, log), (0, ""))

    def sandbox(self, org, ports=(2222,), policy=OPEN):
        ShareTest.number += 1
        inside = Inside()
        self.addCleanup(inside.close)
        self.gate.prepare(ShareTest.number, policy, org=org)
        listeners = inside.listeners(ports)
        try:
            self.gate.listen(ShareTest.number, listeners)
        finally:
            for _, _, sock in listeners:
                sock.close()
        inside.number = ShareTest.number
        return inside


class Shares(ShareTest):
    def setUp(self):
        self.gate = Gate(self.out, Outside.FILES, preexec=few)
        self.addCleanup(self.ended)

    def take(self, inside, most=1000):
        """Connections until one is turned away."""
        address, held = inside.resolve("raw.example"), []
        while len(held) < most:
            try:
                sock = inside.connect(address, 2222)
                self.addCleanup(sock.close)
                if not sock.recv(4):
                    break
            except ConnectionResetError:
                break
            held.append(sock)
        return held

    def test_connections_of_one_organisation(self):
        first, second = self.sandbox("greedy"), self.sandbox("greedy")
        held = self.take(first) + self.take(second) + self.take(self.sandbox("greedy"))
        event = self.gate.wait_event(slot=first.number, verdict=DENIED)
        self.assertEqual(event["why"], "the organisation has its share of all connections open")
        free = DESCRIPTORS - 32
        # half of three quarters, two descriptors each, however many sandboxes
        self.assertEqual(len(held), (free - free // 4) // 4)
        other = self.sandbox("modest")  # new listeners, a name, connections
        self.assertEqual(len(self.take(other, 20)), 20)
        self.assertTrue(self.gate.ping())
        for sock in held[:40]:
            sock.close()
        for _ in range(40):
            self.gate.wait_event(slot=first.number, verdict=CLOSED)
        self.assertEqual(len(self.take(first, 1)), 1, "what is given back can be had again")

    def test_listeners_of_one_organisation(self):
        many, made = tuple(range(3000, 3030)), 0
        policy = {"rules": [{"action": "allow", "domain": "raw.example", "ports": ["3000-3029"], "protocol": "tcp"}]}
        with self.assertRaises(Refused) as refused:
            while made < 100:
                self.sandbox("greedy", many, policy)
                made += 1
        self.assertEqual(str(refused.exception),
                         "33 listeners: the organisation has its share of the gate's descriptors")
        self.assertEqual(made, (DESCRIPTORS - 32) // 2 // 33)
        self.assertEqual(len(self.take(self.sandbox("modest"), 20)), 20)

    def test_all_of_them_leave_something_for_one_more(self):
        for i in range(5):
            self.take(self.sandbox(f"org-{i}"))
        self.assertGreater(len(self.take(self.sandbox("the last"))), 0)


class Memory(ShareTest):
    """Messages that are not complete are in the gate's memory, which is everybody's."""

    WHY = "too many bytes of messages that are not complete"
    OPEN = {"rules": [{"action": "allow", "domain": "raw.example", "ports": [80]}], "limits": {"connections": 65536}}

    def setUp(self):
        self.gate = Gate(self.out, Outside.FILES)
        self.addCleanup(self.ended)

    def rss(self):
        with open(f"/proc/{self.gate.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def halves(self, inside, n):
        """Heads of requests that do not end, and whether the gate has cut one off."""
        address, held = inside.resolve("raw.example"), []
        for _ in range(n):
            held.append(inside.connect(address, 80))
            held[-1].sendall(b"GET / HTTP/1.1\r\nHost: raw.example\r\nX: " + b"x" * 30000)
            self.addCleanup(held[-1].close)
        return held

    def test_halves_of_heads(self):
        before = self.rss()
        boxes = [self.sandbox("greedy", (80,), self.OPEN) for _ in range(2)]
        for box in boxes:
            self.halves(box, 640)  # 20 MB each
        for box in boxes:
            self.assertTrue(self.gate.wait_event(slot=box.number, verdict=DENIED, why=self.WHY))
        self.gate.synced()
        self.assertLess(self.rss() - before, 40 << 20)  # twice 16 MiB, and what belongs to a connection
        other = self.sandbox("modest", (80,), self.OPEN)
        sock = self.halves(other, 1)[0]
        sock.sendall(b"\r\nConnection: close\r\n\r\n")
        self.assertTrue(sock.recv(100).startswith(b"HTTP/1.1 200"))


if __name__ == "__main__":
    unittest.main()
