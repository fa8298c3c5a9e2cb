# SPDX-License-Identifier: Apache-2.0
"""brig-egress by itself: limits, its controller's messages, and what the process is."""

import os
import signal
import socket
import subprocess
import threading
import time
import unittest

from egresskit import (ALLOWED, CLOSED, CONTROL, COUNT, DENIED, DNS_TCP, DNS_UDP, EGRESS, HTTP, TCP, Gate, Inside,
                       Outside, Refused, head, http_server, libc, read_exactly)
from egresstest import RAW, RULES, WEB, EgressTest, banner_server
from helpers import PATIENCE
from jailkit import PLAIN_ID, needs_root


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
        time.sleep(1)  # clock: a rate is bytes per time; what is in buffers before the first read does not count
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
        self.assertLess(rate, 2_000_000 * 1.1)
        self.assertGreater(rate, 2_000_000 * 0.5)  # a busy machine may make it slower
        self.assertLess(max(got) / min(got), 1.5, got)
        self.assertTrue(counts["limits_hit"] & 1 << 14)

    def test_a_budget_is_exact_and_its_end_is_told(self):
        self.open({"rules": self.TCP_ONLY}, limits={"net_bytes_in": 300_000})
        address, data = self.inside.resolve("bulk.example"), 0
        with self.assertRaises(ConnectionResetError):  # so fast, sometimes, that connect() sees it already
            sock = self.connect(address, 2222)
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
        self.assert_turned_away(self.inside.resolve("bulk.example"), 2222)
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
        """How many come after the first ones is a matter of the bucket (unit:test_egress.c) and of the machine."""
        self.open(limits={"connections_per_second": 5})
        address, came, denied = self.inside.resolve("raw.example"), 0, 0
        while denied < 10:  # a slow machine needs more of them to be faster than the rate
            try:
                came += bool(self.connect(address, 2222).recv(10))
            except ConnectionResetError:
                denied += 1
        self.assertGreaterEqual(came, 5)
        self.denied(why="too many connections in a second")

    def test_lifetime(self):
        self.open(limits={"lifetime": 0.5})
        sock = self.by_name("raw.example", 2222)
        sock.recv(100)
        began = time.monotonic()
        self.assert_reset(sock)
        self.assertGreater(time.monotonic() - began, 0.3)  # clock: the lifetime that the policy allows
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
        stream, udp = self.inside.socket(socket.AF_INET, socket.SOCK_STREAM), self.inside.socket(socket.AF_INET,
                                                                                                 socket.SOCK_DGRAM)
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
        events, denied = [], -1
        while denied != len(events):
            events += [e for e in self.gate.drain() if e["slot"] == self.slot and e["verdict"] == DENIED]
            denied = self.gate.count(self.slot)["denied"]
            self.assertLessEqual(len(events), denied)
        self.assertGreater(len(events), 512)

    def test_requests_wait_as_well_while_the_controller_does_not_read(self):
        self.open()
        request, n = b"GET /n HTTP/1.1\r\nHost: web.example\r\n\r\n", 1200
        sock = self.by_name("web.example")
        answered = []

        def read():
            data = b""
            while data.count(b"200 OK") < n:
                data += sock.recv(1 << 16)
                answered.append(data.count(b"200 OK"))

        reader = threading.Thread(target=read)
        reader.start()
        sock.sendall(request * n)
        before = -1
        while not answered or answered[-1] < 100 or answered[-1] != before:
            before = answered[-1] if answered else -1
            time.sleep(0.5)
        self.assertLess(answered[-1], n)  # it stands still, with what fits into the socket and the queue
        told = []
        while reader.is_alive():
            told += self.gate.drain()
        told += self.gate.drain()
        self.assertEqual(len([e for e in told if e["slot"] == self.slot and e["verdict"] == ALLOWED and not e["dns"]]),
                         n)


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

    def test_it_starts_without_privileges_as_well(self):
        def plain():
            os.setgroups([])
            os.setresgid(PLAIN_ID, PLAIN_ID, PLAIN_ID)
            os.setresuid(PLAIN_ID, PLAIN_ID, PLAIN_ID)

        def alone():  # root of a user namespace that has no other id
            plain()
            libc.unshare(0x10000000)

        for how in (plain, alone):
            with self.subTest(how=how.__name__):
                gate = Gate(None, preexec=how)
                status = self.status(gate.process.pid)
                self.assertEqual((status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16),
                                  int(status["CapPrm"], 16)),
                                 ("2", "1", 0, 0))
                self.assertTrue(gate.ping())
                self.assertEqual(gate.close(), "")

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
            raw, web = inside.connect(inside.resolve("raw.example"),
                                      2222), inside.connect(inside.resolve("web.example"), 80)
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
        done = subprocess.run([EGRESS], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, close_fds=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"started by brig", done.stderr)


if __name__ == "__main__":
    unittest.main()
