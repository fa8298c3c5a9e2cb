# SPDX-License-Identifier: Apache-2.0
"""What the tests of hostile input and of faults share: raw requests, looking at the daemon's own processes,
organisations."""

import json
import os
import re
import select
import socket
import time

from helpers import PATIENCE, own_cgroups, wait_until
from service import Daemon, ServiceTest

FULL = os.environ.get("BRIG_TEST_FULL") == "1"


def scaled(full, quick):
    """A count: the whole of it with BRIG_TEST_FULL=1, a smaller one in the usual run."""
    return full if FULL else quick


class Wire:
    """One connection, bytes as they are."""

    def __init__(self, daemon, tcp=True, timeout=PATIENCE):
        self.sock = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(("127.0.0.1", daemon.port) if tcp else daemon.socket)
        self.buffer = b""

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # answered and closed already

    def _more(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def answer(self):
        """(status, head, body) of the next one with a Content-Length; None when the connection ends before it."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                return None
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)^content-length: *(\d+)", head, re.M)
        need = int(length.group(1)) if length else 0
        while len(self.buffer) < need:
            if not self._more():
                return None
        body, self.buffer = self.buffer[:need], self.buffer[need:]
        return int(head.split()[1]), head, body

    def all(self):
        """Everything until the other side closes."""
        while self._more():
            pass
        return self.buffer

    def ended(self):
        """Whether the other side has closed and nothing more came."""
        return self.all() == b""

    def quiet(self, seconds=0.05):
        return self.buffer == b"" and not select.select([self.sock], [], [], seconds)[0]

    def close(self):
        self.sock.close()


def rss(pid):
    """Resident memory in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def descendants(pid):
    """All processes below pid."""
    found, todo = [], [pid]
    while todo:
        here = todo.pop()
        try:
            for task in os.listdir(f"/proc/{here}/task"):
                with open(f"/proc/{here}/task/{task}/children", encoding="ascii") as f:
                    todo += [int(p) for p in f.read().split()]
        except OSError:
            continue
        if here != pid:
            found.append(here)
    return found


def mounts(pid):
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as f:
        return len(f.readlines())


class HostileTest(ServiceTest):
    """A daemon that must be the same process at the end of each test, with nothing of the test left in it."""

    ENV = {}

    @classmethod
    def setUpClass(cls):
        cls.cgroups = own_cgroups()
        cls.d = Daemon(cls.CONFIG, env=cls.ENV)

    def setUp(self):
        self.pids = self.d.children()
        self.addCleanup(self.unharmed)

    def unharmed(self):
        self.assertEqual(self.d.children(), self.pids, self.d.text()[-3000:])
        self.assertEqual(self.d.ask("GET", "/readyz").status, 200)

    def brigd(self):
        return self.d.children()["brigd"]

    def wire(self, tcp=True, timeout=PATIENCE):
        w = Wire(self.d, tcp, timeout)
        self.addCleanup(w.close)
        return w

    def exchange(self, data, tcp=True):
        """Sends bytes, and reads answers until the connection ends: [(status, body)]."""
        w = self.wire(tcp)
        w.send(data)
        found = []
        while True:
            a = w.answer()
            if a is None:
                return found
            found.append((a[0], a[2]))

    def org(self, name="other", role="admin"):
        """(id, key) of a new organisation."""
        made = self.d.ask("POST", "/v1/orgs", {"name": name})
        self.assertEqual(made.status, 201, made)
        return made.json["id"], self.d.key(name="k", role=role, org=made.json["id"])

    def denials(self):
        return int(re.search(r"(?m)^brig_denials_total (\d+)$", self.d.ask("GET", "/metrics").body.decode()).group(1))

    def audit(self, after=0, **want):
        """Lines of the log after a number that have these values."""
        lines = [json.loads(x) for x in self.d.ask("GET", f"/v1/audit?after={after}&limit=100000").body.splitlines()]
        return [x for x in lines if all(x.get(k) == v for k, v in want.items())]

    def audit_now(self):
        lines = self.audit()
        return lines[-1]["seq"] if lines else 0

    def start(self, sid, *argv, **members):
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": list(argv), **members})
        self.assertEqual(answer.status, 201, answer)
        return f"/v1/sandboxes/{sid}/processes/{answer.json['number']}"

    def settles(self, what, now, want):
        """A number comes back to what it was."""
        wait_until(f"{what} back to {want}", lambda: now() <= want)
