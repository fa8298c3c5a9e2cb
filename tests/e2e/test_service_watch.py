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

    def test_one_netlink_socket_too_many(self):
        honest, greedy = self.sandbox(), self.sandbox()
        answers = []
        neighbour = threading.Thread(target=lambda: answers.append(self.python(honest, NETLINK % 64)))
        neighbour.start()
        self.check_ended(greedy, self.python(greedy, NETLINK % 65))
        self.d.ask("PUT", f"/v1/sandboxes/{honest}/files?path=enough", b"")
        neighbour.join()
        self.assertEqual((answers[0]["outcome"]["cause"], answers[0]["outcome"]["exit_code"]), ("exited", 0), answers)

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
        honest, greedy = self.sandbox(), self.sandbox()
        answers = []
        neighbour = threading.Thread(target=lambda: answers.append(self.python(honest, LOCKS % 1024)))
        neighbour.start()
        self.check_ended(greedy, self.python(greedy, LOCKS % 1025), LOCKS_WHY)
        self.d.ask("PUT", f"/v1/sandboxes/{honest}/files?path=enough", b"")
        neighbour.join()
        self.assertEqual((answers[0]["outcome"]["cause"], answers[0]["outcome"]["exit_code"]), ("exited", 0), answers)


if __name__ == "__main__":
    unittest.main()
