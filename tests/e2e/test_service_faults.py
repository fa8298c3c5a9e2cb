# SPDX-License-Identifier: Apache-2.0
"""The service when the host has nothing left: connections, disk, descriptors, memory; and many lives at once. Answers
stay clear, nothing is half made, and all is well again without a restart. (A08, A22, section "Bad input and
faults".)"""

import collections
import concurrent.futures
import ctypes
import http.client
import os
import resource
import socket
import sys
import threading
import time
import unittest

from helpers import own_cgroups, own_mounts, steady, wait_until
from hostilekit import HostileTest, descendants, descriptors, mounts, rss, scaled
from service import Daemon

libc = ctypes.CDLL(None, use_errno=True)
ROOT = os.geteuid() == 0


def setUpModule():
    own_mounts()


def limit_of(pid, name):
    with open(f"/proc/{pid}/limits", encoding="ascii") as f:
        line = [x for x in f if x.startswith(name)][0]
    return tuple(resource.RLIM_INFINITY if v == "unlimited" else int(v) for v in line[len(name):].split()[:2])


def set_limit(pid, what, limits):
    """As the user it runs as: root without CAP_SYS_RESOURCE may not."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        ids = dict(line.split(":\t", 1) for line in f if ":\t" in line)
    child = os.fork()
    if child == 0:
        try:
            uid, gid = int(ids["Uid"].split()[0]), int(ids["Gid"].split()[0])
            if ROOT:
                os.setgroups([])
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            resource.prlimit(pid, what, limits)
            os._exit(0)
        except OSError as e:
            os._exit(e.errno or 1)
    if os.waitpid(child, 0)[1] != 0:
        raise AssertionError(f"limit of {pid} cannot be set")


class Connections(HostileTest):
    CONFIG = ("[server]\nmax_connections = 30000\nmax_connections_per_peer = 30000\nidle_timeout = 120\n"
              "header_timeout = 120\n")

    def test_idle_ones_disturb_nobody(self):
        want = scaled(10000, 2500)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        pid = self.brigd()
        with open(f"/proc/{pid}/limits", encoding="ascii") as f:
            theirs = int([line for line in f if line.startswith("Max open files")][0].split()[3])
        room = min(hard, theirs) - 300
        if room < want:
            print(f"descriptors allow {room} of {want} idle connections", file=sys.stderr)
            want = room
        sid = self.sandbox()
        fds, before = descriptors(pid), rss(pid)
        idle = []
        try:
            for i in range(want):
                s = socket.socket(socket.AF_UNIX if i % 2 else socket.AF_INET)
                s.connect(self.d.socket if i % 2 else ("127.0.0.1", self.d.port))
                if i % 4 == 3:
                    s.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                idle.append(s)
            wait_until("all are taken", lambda: descriptors(pid) >= want)
            cost = (rss(pid) - before) / want
            self.assertLess(cost, 4, "KiB for an idle connection")
            times = []
            for _ in range(50):
                t = time.monotonic()
                self.assertEqual(self.d.run(sid, "echo", "x")["stdout"], "x\n")
                times.append(time.monotonic() - t)
            self.assertLess(sorted(times)[25], 0.25)
            self.assertEqual(self.d.ask("GET", "/healthz", tcp=True).status, 200)
        finally:
            for s in idle:
                s.close()
        self.settles("descriptors", lambda: descriptors(pid), fds)

    def test_connect_and_leave(self):
        pid = self.brigd()
        fds = descriptors(pid)
        for i in range(scaled(20000, 2000)):
            s = socket.socket(socket.AF_UNIX if i % 2 else socket.AF_INET)
            s.connect(self.d.socket if i % 2 else ("127.0.0.1", self.d.port))
            if i % 3 == 1:
                s.send(b"GET /v1/ver")
            if i % 3 == 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            s.close()
        self.settles("descriptors", lambda: descriptors(pid), fds)


class TooMany(HostileTest):
    CONFIG = "[server]\nmax_connections = 30\nmax_connections_per_peer = 30\n"

    def taken(self, tcp):
        w = self.wire(tcp)
        w.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(w.answer()[0], 200)
        return w

    def refused(self, tcp):
        w = self.wire(tcp)
        status, head, body = w.answer()
        self.assertEqual(status, 503)
        self.assertIn(b"Retry-After: 1", head)
        self.assertIn(b'"code":"busy"', body)
        self.assertTrue(w.ended())

    def test_the_daemon_is_full(self):
        wires = [self.taken(tcp=True) for _ in range(30)]  # nobody's: there is no key
        self.refused(tcp=True)
        # Sixteen places are the socket's: whoever fills the rest does not shut the administrator out.
        wires += [self.taken(tcp=False) for _ in range(16)]
        self.refused(tcp=True)
        self.refused(tcp=False)
        for w in wires[29:]:
            w.close()
        wait_until("there is room again", lambda: self.d.ask("GET", "/healthz", tcp=True).status == 200)
        for w in wires:
            w.close()


class NoDescriptors(HostileTest):
    def test_clear_answers_and_recovery(self):
        pid = self.brigd()
        sid = self.sandbox()
        soft, hard = limit_of(pid, "Max open files")
        self.addCleanup(set_limit, pid, resource.RLIMIT_NOFILE, (soft, hard))
        steady(lambda: os.listdir(f"/proc/{pid}/fd"))
        for room in (0, 1, 2, 3, 5, 8):
            used = max(int(n) for n in os.listdir(f"/proc/{pid}/fd")) + 1
            set_limit(pid, resource.RLIMIT_NOFILE, (used + room, hard))
            statuses = collections.Counter()

            def one(i):
                try:
                    a = self.d.ask("POST", "/v1/sandboxes", {},
                                   timeout=10) if i % 2 else self.d.ask("POST", f"/v1/sandboxes/{sid}/run",
                                                                        {"argv": ["true"]}, timeout=10)
                    statuses[a.status] += 1
                    if a.status not in (200, 201):
                        self.assertTrue(a.json["error"]["message"])
                except TimeoutError:
                    statuses[f"hang of {i % 2}"] += 1
                except (ConnectionError, http.client.HTTPException):
                    statuses["closed"] += 1  # it was told 503 while it was still sending

            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                list(pool.map(one, range(24)))
            self.assertEqual(set(statuses) - {200, 201, 429, 500, 503, "closed"}, set(), statuses)
            if room == 0:
                self.assertGreater(statuses[503], 0, f"who finds no room is told so: {statuses}")
            set_limit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]:
                if s["id"] != sid:
                    self.assertEqual(s["state"], "running", s)
                    self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{s['id']}").status, 204)
        self.assertEqual([s["id"] for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]], [sid])
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")
        made = self.d.create()["id"]
        self.assertEqual(self.d.run(made, "echo", "new")["stdout"], "new\n")
        self.d.ask("DELETE", f"/v1/sandboxes/{made}")


class NoMemory(HostileTest):
    def limit(self, pid, extra):
        with open(f"/proc/{pid}/statm", encoding="ascii") as f:
            size = int(f.read().split()[0]) * resource.getpagesize()
        set_limit(pid, resource.RLIMIT_AS, (size + extra, resource.RLIM_INFINITY))

    def test_clear_answers_and_recovery(self):
        pid = self.brigd()
        sid = self.sandbox()
        self.d.sh(sid, "head -c 20000000 /dev/zero | tr '\\0' a > big")
        self.addCleanup(set_limit, pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        statuses = collections.Counter()
        for extra, patience in ((0, 1), (1 << 20, 20), (3 << 20, 20)):
            self.limit(pid, extra)
            calls = [("POST", f"/v1/sandboxes/{sid}/run", {"argv": ["cat", "big"], "output": "64m"}),
                     ("POST", "/v1/sandboxes", {}), ("GET", "/v1/sandboxes", None),
                     ("POST", "/v1/sandboxes", b'{"metadata":' + b" " * (7 << 20) + b"{}}"),
                     ("GET", f"/v1/sandboxes/{sid}/files?path=big", None), ("GET", "/v1/audit", None),
                     ("POST", "/v1/keys", {}), ("GET", "/v1/openapi.json", None),
                     ("POST", f"/v1/sandboxes/{sid}/shells", {}),
                     ("GET", f"/v1/sandboxes/{sid}/files/tar?path=.", None)] * 3

            def one(call):
                try:
                    a = self.d.ask(*call, timeout=patience)
                    statuses[a.status] += 1
                    if a.status >= 400 and a.body:
                        self.assertTrue(a.json["error"]["message"])
                except TimeoutError:
                    statuses["waits"] += 1  # there is nothing to receive the sandbox's words into
                except (ConnectionError, http.client.HTTPException):
                    statuses["closed"] += 1  # not even an answer could be kept

            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                list(pool.map(one, calls))
            set_limit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.assertEqual(self.brigd(), pid, "it lives")
        self.assertEqual(set(statuses) - {200, 201, 413, 429, 500, 503, "closed", "waits"}, set(), statuses)
        self.assertGreater(statuses[503], 0, statuses)
        self.assertEqual(self.d.run(sid, "wc", "-c", "big")["stdout"], "20000000 big\n", "no sandbox is lost")
        for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]:
            self.assertEqual(s["state"], "running", s)
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{s['id']}").status, 204)
        made = self.d.create()["id"]
        self.assertEqual(self.d.run(made, "echo", "new")["stdout"], "new\n")
        self.d.ask("DELETE", f"/v1/sandboxes/{made}")
        self.settles("memory given back", lambda: rss(pid), 200 << 10)


class SmallDisk(Daemon):
    """Its state lies on a small file system of its own."""

    SIZE = "16m"

    def start(self):
        state = f"{self.dir}/state"
        if os.readlink("/proc/self/ns/mnt") == os.readlink(f"/proc/{os.getppid()}/ns/mnt"):
            raise AssertionError("other tests would see the mount: call own_mounts() before")
        if not os.path.ismount(state):
            os.makedirs(state, exist_ok=True)
            if libc.mount(b"brig-test", state.encode(), b"tmpfs", 0, f"size={self.SIZE},mode=755".encode()) != 0:
                raise OSError(ctypes.get_errno(), "mount")
        super().start()

    def close(self):
        try:
            self.stop()
        finally:
            libc.umount2(f"{self.dir}/state".encode(), 2)
            super().close()


@unittest.skipUnless(ROOT, "mounting a small file system needs root")
class FullDisk(HostileTest):
    CONFIG = "[manager]\npool = 0\n"

    @classmethod
    def setUpClass(cls):
        cls.cgroups = own_cgroups()
        cls.d = SmallDisk(cls.CONFIG)

    def fill(self):
        path = f"{self.d.dir}/state/filler"
        with open(path, "ab", buffering=0) as f:
            size = 1 << 20
            while size >= 1:
                try:
                    f.write(b"\0" * size)
                except OSError:
                    size //= 2
        return path

    def test_clear_answers_and_recovery(self):
        sid = self.sandbox(name="before")
        before = own_cgroups()
        filler = self.fill()
        statuses = collections.Counter()
        for i in range(12):
            a = self.d.ask("POST", "/v1/sandboxes",
                           {"name": f"full{i}", "metadata": {f"m{k}": "x" * 4000 for k in range(60)}}, timeout=15)
            statuses[a.status] += 1
            if a.status == 201:
                self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{a.json['id']}", timeout=15).status // 100, 2)
                self.fill()
                continue
            self.assertIn(a.status, (429, 500, 503, 507), a)
            self.assertTrue(a.json["error"]["message"])
            wait_until("nothing is half made", lambda i=i: self.d.ask("GET", f"/v1/sandboxes/full{i}").status == 404)
        self.assertTrue([s for s in statuses if s != 201], f"the disk was full: {statuses}")
        a = self.d.ask("POST", "/v1/keys", {"name": "k" * 100})
        if a.status != 201:
            self.assertIn(a.status, (429, 500, 503, 507), a)
        self.assertEqual([s["id"] for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]], [sid])
        r = self.d.ask("POST", f"/v1/sandboxes/{sid}/run", {"argv": ["echo", "x"]}, timeout=15)
        self.assertIn(r.status, (200, 429, 500, 503, 507), "what lives goes on, or says why not")
        self.assertEqual(self.d.ask("GET", "/healthz").status, 200)
        os.unlink(filler)
        wait_until("it is ready again", lambda: self.d.ask("GET", "/readyz").status == 200)
        wait_until("a sandbox can be made again", lambda: self.again())
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")
        wait_until("no cgroup of the failed ones", lambda: not own_cgroups() - before)
        lines = self.audit()
        self.assertEqual([x["seq"] for x in lines], list(range(lines[0]["seq"], lines[0]["seq"] + len(lines))),
                         "the log has no hole that it does not tell")

    def again(self):
        a = self.d.ask("POST", "/v1/sandboxes", {})
        return a.status == 201 and self.d.ask("DELETE", f"/v1/sandboxes/{a.json['id']}").status == 204


class Lives(HostileTest):
    CONFIG = "[manager]\nmax_sandboxes = 2000\n"
    LIMIT_SECONDS = 600

    def state(self):
        """What a sandbox costs the host, summed up."""
        pids = {"serve": self.d.process.pid, **self.d.children()}
        below = [p for p in descendants(self.d.process.pid) if not self.zombie(p)]
        nets = set()
        for p in [*below, self.d.process.pid]:
            try:
                nets.add(os.readlink(f"/proc/{p}/ns/net"))
            except OSError:
                pass
        found = {f"{name} descriptors": descriptors(pid) for name, pid in pids.items()}
        found.update({f"{name} mounts": mounts(pid) for name, pid in pids.items()})
        found.update(processes=len(below), cgroups=len(own_cgroups()), networks=len(nets),
                     files=sum(len(n) for top in ("run", "cache") for _, _, n in os.walk(f"{self.d.dir}/{top}")))
        return found

    def settled(self):
        """After a few lives, which fill caches and the pool and start the spawner's helpers."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for sid in [a["id"] for a in pool.map(lambda _: self.d.create(), range(16))]:
                self.start(sid, "sleep", "1000")
                self.d.ask("POST", f"/v1/sandboxes/{sid}/pause")
                self.d.ask("DELETE", f"/v1/sandboxes/{sid}")
        last = None
        while last != self.state():
            last = self.state()
            time.sleep(0.5)
        return last

    def nothing_left(self, before):
        try:
            wait_until("nothing is left", lambda: not self.leaks(before))
        except AssertionError:
            self.fail(f"left behind: {self.leaks(before)}")

    @staticmethod
    def zombie(pid):
        """The spawner has at most one: it made a network namespace that the next sandbox takes, with its descriptor."""
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                return f.read().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    def leaks(self, before):
        return {k: (before[k], v) for k, v in self.state().items() if v > before[k] + (k == "brig-spawner descriptors")}

    def test_creates_and_deletes(self):
        def life(i):
            a = self.d.ask("POST", "/v1/sandboxes", {"name": f"life{i}"} if i % 3 else {}, timeout=120)
            if a.status != 201:
                return a
            path = f"/v1/sandboxes/{a.json['id']}"
            if i % 5 == 0:
                self.d.ask("POST", f"{path}/processes", {"argv": ["sh", "-c", "sleep 1000 & sleep 1000"]}, timeout=120)
            if i % 7 == 0:
                self.d.ask("POST", f"{path}/pause", timeout=120)
            d = self.d.ask("DELETE", path, timeout=120)
            return None if d.status == 204 else d

        before = self.settled()
        with concurrent.futures.ThreadPoolExecutor(scaled(100, 32)) as pool:
            bad = [x for x in pool.map(life, range(scaled(1000, 150))) if x]
        self.assertEqual(bad, [])
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])
        self.nothing_left(before)

    def test_clients_that_do_not_wait(self):
        """Creates and runs whose clients leave at once: made or not, never half, and they can be found and deleted."""
        before = self.settled()
        for i in range(scaled(300, 40)):
            c = self.d.connection()
            c.request("POST", "/v1/sandboxes" if i % 2 else "/v1/runs",
                      b'{"metadata":{"left":"1"}}' if i % 2 else b'{"process":{"argv":["sleep","1000"]}}')
            time.sleep((i % 7) * 0.001)  # clock: each leaves at another moment of its request
            c.close()

        def left():
            found = self.d.ask("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]
            for s in found:
                self.d.ask("DELETE", f"/v1/sandboxes/{s['id']}")
            return found

        wait_until("none is left", lambda: not left() and not left())
        self.nothing_left(before)
