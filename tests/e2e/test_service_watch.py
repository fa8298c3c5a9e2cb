# SPDX-License-Identifier: Apache-2.0
"""Kernel memory that no cgroup counts, in sandboxes of the service (src/spawner/sandbox_watch.c): one that holds more
of it than any honest program is ended as out of memory, its receipt and its certificate say why, and its neighbour goes
on. The same in a run without a service: hostile S03-netlink and its siblings. (S03.)"""

import threading
import unittest

from helpers import wait_until
from service import ServiceTest

WHY = "too many netlink sockets, or too much in the queues of sockets: no cgroup counts that memory"
# The processor is used without an end: an idle sandbox is not looked at.
NETLINK = """
import os, socket
held = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) for _ in range(%d)]
print("open", flush=True)
while not os.path.exists("/workspace/enough"):
    pass
"""
HELD_BACK = """
import socket
held = []
for _ in range(900):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", 9))
    s.send(b"x" * 60000, socket.MSG_MORE)
    held.append(s)
print("open", flush=True)
while True:
    pass
"""
LOCKS_WHY = "1025 file locks, more than 1024: no cgroup counts that memory"
LOCKS = """
import fcntl, os
files = [open(f"/tmp/{os.getpid()}-{i}", "w") for i in range(100)]
for i in range(%d):
    fcntl.lockf(files[i %% 100], fcntl.LOCK_EX, 1, 2 * i)
print("open", flush=True)
while not os.path.exists("/workspace/enough"):
    pass
"""

DETACHED_WHY = "too many TCP connections that were closed or not accepted: no cgroup counts them"
# Connections to a listener that accepts none and reads nothing, closed while half of what they sent still waits.
DETACHED = """
import os, socket
many, held = %d, []
while many > 0:
    held.append(socket.socket())
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    held[-1].bind(("127.0.0.1", 0))
    held[-1].listen(4096)
    for _ in range(min(many, 2000) // 2):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        client.connect(held[-1].getsockname())
        client.setblocking(False)
        try:
            while True:
                client.send(b"x" * 2000)
        except BlockingIOError:
            client.close()
        many -= 2
print("open", flush=True)
while not os.path.exists("/workspace/enough"):
    pass
"""
NEIGHBOURS_WHY = "it has sent to too many IPv6 addresses: no cgroup counts the memory of the host's table of neighbours"
NEIGHBOURS = """
import os, socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for i in range(%d):
    s.sendto(b"x", (f"2001:db8::{i >> 16:x}:{i & 65535:x}", 9))
print("open", flush=True)
while not os.path.exists("/workspace/enough"):
    pass
"""


class Watched(ServiceTest):
    def python(self, sid, code):
        return self.d.run(sid, "/usr/bin/python3", "-c", code, timeout="100s")

    def check_ended(self, sid, ran, why=WHY):
        """The run's receipt, the same receipt later, and the sandbox's certificate tell one story."""
        outcome = {"cause": "oom", "exit_code": None, "signal": 9, "limits_hit": ["memory"], "detail": why}
        self.assertEqual((ran["stdout"], ran["outcome"]), ("open\n", outcome))
        receipt, certificate = f"/v1/runs/{ran['id']}", f"/v1/certificates/{sid}"
        for path in (receipt, certificate):
            wait_until(f"{path} is kept", lambda path=path: self.d.ask("GET", path).status == 200)
        self.assertEqual(self.d.ask("GET", receipt).json["outcome"], outcome)
        told = self.d.ask("GET", certificate).json
        self.assertEqual((told["cause"], told["ended_by"], told["detail"], told["limits_hit"]),
                         ("oom", "sandbox", why, ["memory"]))
        self.assertLess(told["usage"]["memory_peak_bytes"], told["limits"]["memory"], "what the cgroup saw was little")

    def beside(self, honest, greedy, why, **spec):
        """A program at the bound goes on beside one that is over it."""
        one, other = self.sandbox(**spec), self.sandbox(**spec)
        answers = []
        neighbour = threading.Thread(target=lambda: answers.append(self.python(one, honest)))
        neighbour.start()
        self.check_ended(other, self.python(other, greedy), why)
        self.d.ask("PUT", f"/v1/sandboxes/{one}/files?path=enough", b"")
        neighbour.join()
        self.assertEqual((answers[0]["outcome"]["cause"], answers[0]["outcome"]["exit_code"]), ("exited", 0), answers)

    def test_one_netlink_socket_too_many(self):
        self.beside(NETLINK % 64, NETLINK % 65, WHY)

    def test_processes_of_one_sandbox_are_one_sum(self):
        sid = self.sandbox()
        started = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes",
                             {"argv": ["/usr/bin/python3", "-c", NETLINK % 40]})
        self.assertEqual(started.status, 201, started)
        self.check_ended(sid, self.python(sid, NETLINK % 40))

    def test_queues_beyond_the_memory_limit(self):
        sid = self.sandbox(limits={"memory": "32m"})
        self.check_ended(sid, self.python(sid, HELD_BACK))

    def test_one_file_lock_too_many(self):
        self.beside(LOCKS % 1024, LOCKS % 1025, LOCKS_WHY)

    def test_connections_that_no_descriptor_holds(self):
        self.beside(DETACHED % 4000, DETACHED % 4400, DETACHED_WHY)

    def test_what_an_ended_process_leaves_behind(self):
        sid = self.sandbox(network="packages")
        self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=enough", b"")
        self.python(sid, NEIGHBOURS % 17000)  # ends by itself, or is ended if it is slow
        wait_until("it is ended", lambda: self.d.ask("GET", f"/v1/certificates/{sid}").status == 200)
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["detail"], NEIGHBOURS_WHY)

    def test_neighbours(self):
        self.beside(NEIGHBOURS % 16000, NEIGHBOURS % 17000, NEIGHBOURS_WHY, network="packages")


if __name__ == "__main__":
    unittest.main()
