# SPDX-License-Identifier: Apache-2.0
"""Hostile programs and what they leave for the service to handle: paths that change under an upload, special files,
archives without measure, output without end, previews that lie, readers that do not read. (F10, F13, F42, F43, R12,
R19, R24, R25, I02, I07, I13, I14, I16, A13.)"""

import base64
import gzip
import http.client
import io
import json
import os
import re
import socket
import shutil
import tarfile
import tempfile
import threading
import time
import unittest
import zlib
from urllib.parse import quote

from helpers import steady, wait_until
from hostilekit import HostileTest, descendants, descriptors, rss, scaled
from service import WebSocket

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")

SWAPPER = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/workspace/real", exist_ok=True)
os.symlink("/", "/workspace/link")
a, b = b"/workspace/real", b"/workspace/link"
os.rename(a, b"/workspace/dir")
print("ready", flush=True)
while True:
    libc.renameat2(-100, b"/workspace/dir", -100, b"/workspace/link", 2)
"""


class Paths(HostileTest):
    CONFIG = "[server]\nbody_timeout = 5\n"
    SHARED = os.path.join(tempfile.gettempdir(), f"brig-shared-{os.getpid()}")
    ENV = {"BRIG_BIND_ROOTS": SHARED}

    def files(self, sid, method, tail, body=None, **kw):
        return self.d.ask(method, f"/v1/sandboxes/{sid}/files{tail}", body, **kw)

    def test_upload_while_the_directory_changes(self):
        """F10: 10,000 uploads through a name that is a directory one moment and a link to / the next."""
        canary = "f10-" + os.urandom(8).hex()
        sid = self.sandbox()
        self.files(sid, "PUT", "?path=swap.py", SWAPPER.encode())
        p = self.start(sid, "python3", "swap.py")
        wait_until("it swaps", lambda: self.d.ask("GET", p).json.get("running") and
                   "ready" in self.d.ask("GET", f"/v1/sandboxes/{sid}/logs").body.decode())
        counts, lock = {}, threading.Lock()

        def upload(n):
            c = self.d.connection()
            for _ in range(n):
                a = self.files(sid, "PUT", f"?path=dir/{canary}&parents=0", b"x", connection=c)
                with lock:
                    counts[a.status] = counts.get(a.status, 0) + 1
            c.close()

        threads = [threading.Thread(target=upload, args=(2500,)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sum(counts.values()), 10000)
        self.assertEqual(set(counts) - {200, 201, 403, 404, 409, 422}, set(), counts)
        self.assertGreater(len(counts), 1, f"both were met: {counts}")
        for place in ("/", "/workspace", "/tmp", self.d.dir):
            self.assertFalse(os.path.exists(os.path.join(place, canary)), place)
        self.d.ask("DELETE", p)
        names = [e["path"] for e in self.files(sid, "GET", "/list?path=.&depth=2").json["entries"]]
        self.assertEqual([n for n in names if ".brig" in n], [], "nothing half-written is left")

    def test_links_to_files_of_the_host(self):
        """F13: links in the workspace and in a bound directory, then everything is removed: the host's files are as
        before."""
        host = os.path.join(self.SHARED, "bound")
        os.makedirs(host)
        self.addCleanup(shutil.rmtree, self.SHARED)
        os.chmod(host, 0o777)
        target = os.path.join(self.SHARED, "precious")
        with open(target, "w", encoding="ascii") as f:
            f.write("precious")
        watched = ["/etc/passwd", "/etc/shadow", "/etc", "/", target, host]
        os.symlink(target, os.path.join(host, "out"))
        before = {w: os.stat(w)[:6] + (os.stat(w).st_mtime_ns,) for w in watched}
        sid = self.d.create(binds=[{"source": host, "target": "/data", "read_only": False}])["id"]
        self.d.sh(sid, f"cd /workspace; for f in /etc/passwd /etc/shadow / /etc {target} ../../../../etc/passwd; do ln "
                  "-s $f l$(echo $f | tr -dc a-z)$RANDOM; done; "
                       "ln /etc/passwd hard 2>/dev/null; ln -s . loop; ln -s /data/out chain; mkdir -p d; ln -s /etc "
                  "d/etc; chown -h nobody l* 2>/dev/null; true")
        for path in ("/data/out", "chain"):
            # resolved in the sandbox's own root, where it may even succeed
            self.files(sid, "PUT", f"?path={path}&offset=0", b"pwned")
        self.assertIn(self.files(sid, "GET", "/tar?path=.").status, (200,))
        self.files(sid, "DELETE", "?path=d&recursive=1")
        self.files(sid, "DELETE", "?path=loop&recursive=1")
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{sid}").status, 204)
        self.assertEqual({w: os.stat(w)[:6] + (os.stat(w).st_mtime_ns,) for w in watched}, before)
        with open(target, encoding="ascii") as f:
            self.assertEqual(f.read(), "precious")

    def test_names(self):
        """F42: every byte of a name comes back."""
        sid = self.sandbox()
        names = [b"-rf", b"--", b"a\nb", b"\xff\xfe", b"x" * 255, b"..x", b" ", b"a\\b", b"'\"$(id)`", b"\x1b[2J",
                 b"\xe2\x80\xae", b"%2e%2e", b"a\tb", b"\xed\xa0\x80", b"*", b"~", b"con.", b"a;b&c"]
        for i, name in enumerate(names):
            encoded = quote(base64.b64encode(b"n/" + name).decode())
            a = self.files(sid, "PUT", f"?path={encoded}&path_encoding=base64", b"%d" % i)
            self.assertEqual(a.status, 200, (name, a))
            self.assertEqual(self.files(sid, "GET", f"?path={encoded}&path_encoding=base64").body, b"%d" % i, name)
        entries = self.files(sid, "GET", "/list?path=n").json["entries"]
        listed = {os.path.basename(base64.b64decode(e["path"]) if e["path_encoding"] == "base64"
                                   else e["path"].encode()) for e in entries}
        self.assertEqual(listed, set(names))
        tar = tarfile.open(fileobj=io.BytesIO(self.files(sid, "GET", "/tar?path=n").body), encoding="latin-1")
        packed = {os.path.basename(m.name.encode("latin-1")) for m in tar.getmembers() if m.isfile()}
        self.assertEqual(packed, set(names))
        for path in ("x" * 256, "a/" * 2500, "x" * 4097):
            self.assertIn(self.files(sid, "PUT", f"?path={path}", b"").status, (400, 404, 409, 414, 422), path[:10])
        for body in ({"path": "a\0b"}, {"path": "../x"}, {"path": ""}, {"path": "x" * 5000}, {"path": 1}, {}):
            self.assertEqual(self.files(sid, "POST", "/mkdir", body).status, 400, body)
        for bad in ("====", "Li4veA", quote(base64.b64encode(b"../x").decode()),
                    quote(base64.b64encode(b"a\0b").decode())):
            self.assertEqual(self.files(sid, "GET", f"?path={bad}&path_encoding=base64").status, 400, bad)
        levels = scaled(2000, 300)
        deep = self.d.run(sid, "python3", "-c",
                          f"import os\nfor _ in range({levels}): os.mkdir('d'); os.chdir('d')\nprint('deep')")
        self.assertIn("deep", deep["stdout"], deep)
        self.assertIn(self.files(sid, "GET", "/list?path=.&depth=100000").status, (200, 400, 422))
        self.files(sid, "DELETE", "?path=d&recursive=1")

    def test_traversal(self):
        """A01."""
        sid, confined = self.sandbox(), self.sandbox(confine="workdir")
        before, counted = self.audit_now(), self.denials()
        refused = ("..", "../x", "a/../../x", "/..", "/workspace/../../etc/shadow", "%2e%2e%2fx", "%2E%2E/x",
                   "..%2f..%2fx", "a%00", "%2e%2e", "x/%2e%2e/y")
        for path in refused:
            for method, tail in (("GET", "?path="), ("PUT", "?path="), ("DELETE", "?path="), ("GET", "/stat?path="),
                                 ("GET", "/list?path="), ("GET", "/tar?path="), ("PUT", "/tar?path=")):
                self.assertEqual(self.files(sid, method, tail + path, b"x" if method == "PUT" else None).status, 400,
                                 (method, tail, path))
        self.assertEqual(self.denials() - counted, len([p for p in refused if "%00" not in p]) * 7, "each is a denial")
        wait_until("the first are events, and equal ones are counted",
                   lambda: self.audit(before, action="denied", object=sid))
        for path in ("..;/x", "a\\..\\b", "%252e%252e/x", "%252e%252e%252fx", "....//x", "%c0%ae%c0%ae/x", "．．/x"):
            self.assertEqual(self.files(sid, "GET", f"?path={quote(path, safe='%/;')}").status, 404, path)
        with open("/etc/hostname", "rb") as f:
            hostname = f.read()
        answer = self.files(sid, "GET", "?path=/etc/hostname")
        self.assertNotEqual(answer.body, hostname)
        for path in ("/etc/passwd", "/", "/tmp/x", "//workspace/x"):
            self.assertIn(self.files(confined, "GET", f"/stat?path={path}").status,
                          (400, 404) if path.startswith("//") else (400,), path)
        self.assertEqual(self.files(confined, "PUT", "?path=/workspace/in", b"x").status, 200)
        self.d.sh(confined, "ln -s /tmp out; ln -s /etc/passwd pw")
        for path in ("out/x", "pw"):
            self.assertIn(self.files(confined, "GET", f"?path={path}").status, (400, 403, 404, 422), path)
            self.assertIn(self.files(confined, "PUT", f"?path={path}&offset=0", b"x").status, (400, 403, 404, 409, 422),
                          path)

    def test_special_files(self):
        """F43: reported, never waited for."""
        sid = self.sandbox()
        r = self.d.sh(sid, "mkfifo fifo; ln -s nowhere dangling; ln -s loop loop; mkdir dir; mkdir /tmp/closed; chmod "
                      "0 /tmp/closed; "
                           "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; ls")
        self.assertIn("sock", r["stdout"])
        kinds = {e["path"].rsplit("/", 1)[-1]: e["type"]
                 for e in self.files(sid, "GET", "/list?path=.").json["entries"]}
        self.assertEqual((kinds["fifo"], kinds["sock"], kinds["dangling"], kinds["loop"], kinds["dir"]),
                         ("fifo", "socket", "symlink", "symlink", "directory"))
        for path in ("fifo", "sock", "dangling", "loop", "dir", "/dev/null", "/dev/zero", "/dev/tty", "/dev/stdin",
                     "/proc/kmsg", "/tmp/closed", "/proc/1/mem", "/proc/self/mem"):
            self.assertIn(self.files(sid, "GET", f"?path={path}", timeout=5).status, (400, 403, 404, 409, 422), path)
            self.assertIn(self.files(sid, "GET", f"/stat?path={path}", timeout=5).status,
                          (200, 400, 403, 404, 409, 422), path)
        for path in ("fifo", "sock", "loop", "dir", "/dev/full"):
            self.assertIn(self.files(sid, "PUT", f"?path={path}&offset=0", b"x", timeout=5).status,
                          (400, 403, 404, 409, 422), path)
        tar = tarfile.open(fileobj=io.BytesIO(self.files(sid, "GET", "/tar?path=.", timeout=5).body))
        packed = {m.name.rsplit("/", 1)[-1]: m for m in tar.getmembers()}
        self.assertTrue(packed["dangling"].issym())
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")


class Archives(HostileTest):
    """R19, D04: archives that grow, and archives that reach out."""

    def put(self, sid, data, query="", kind="application/x-tar"):
        self.d.ask("POST", f"/v1/sandboxes/{sid}/files/mkdir", {"path": "in", "parents": True})
        return self.d.ask("PUT", f"/v1/sandboxes/{sid}/files/tar?path=in{query}", data, {"Content-Type": kind},
                          timeout=150)

    def residue(self, sid):
        return [n for n in self.d.sh(sid, "find / -xdev -name '.brig*' 2>/dev/null; ls -A /tmp")["stdout"].split() if n]

    def tar(self, *members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as t:
            for info, data in members:
                t.addfile(info, io.BytesIO(data) if data else None)
        return out.getvalue()

    def info(self, name, size=0, **kw):
        info = tarfile.TarInfo(name)
        info.size = size
        for k, v in kw.items():
            setattr(info, k, v)
        return info

    def test_bombs(self):
        sid = self.sandbox(limits={"disk": "64m", "memory": "256m"})
        pid = self.brigd()
        before = rss(pid)
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        head = self.info("zeros", 1 << 30).tobuf()
        bomb = packer.compress(head) + b"".join(packer.compress(b"\0" * (1 << 20))
                                                for _ in range(scaled(1024, 200))) + packer.flush()
        answer = self.put(sid, bomb, kind="application/gzip")
        self.assertEqual((answer.status, answer.json["error"]["code"]), (413, "too_large"), answer)
        nested = gzip.compress(gzip.compress(bomb))
        self.assertIn(self.put(sid, nested, kind="application/gzip").status, (400, 413, 422))
        answer = self.put(sid, self.tar(*[(self.info("big", 1 << 20), b"x" * (1 << 20))] * 2), "&max_bytes=1500000")
        self.assertEqual(answer.status, 413, answer)
        many = self.tar(*[(self.info(f"f{i}"), b"") for i in range(1200)])
        answer = self.put(sid, many, "&max_members=1000")
        self.assertEqual(answer.status, 413, answer)
        gz = gzip.compress(b"".join(self.info(f"f{i}").tobuf() for i in range(1000)) * scaled(1001, 60) + b"\0" * 1024,
                           1)
        # a million without being asked
        answer = self.put(sid, gz, scaled("", "&max_members=50000"), kind="application/gzip")
        self.assertEqual(answer.status, 413, answer)
        zipped = b"PK\x03\x04" + b"\0" * 1000
        self.assertIn(self.put(sid, zipped, kind="application/zip").status, (400, 415, 422))
        for junk in (b"", b"\x1f\x8b", b"\x1f\x8b\x08" + b"\xff" * 100, gzip.compress(b"x" * 100), os.urandom(5000)):
            for kind in ("application/gzip", "application/x-tar"):
                self.assertIn(self.put(sid, junk, kind=kind).status, (200, 204, 400, 413, 422), (junk[:10], kind))
        self.assertEqual(self.residue(sid), [])
        self.assertLess(rss(pid) - before, 32 << 10)
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")

    def test_members_that_reach_out(self):
        sid = self.sandbox(confine="workdir")
        reg, sym, lnk, chr_, blk, fifo = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE,
                                          tarfile.BLKTYPE, tarfile.FIFOTYPE)
        cases = ([(self.info("../out", 1), b"x")], [(self.info("/tmp/out", 1), b"x")],
                 [(self.info("a/../../out", 1), b"x")],
                 [(self.info("l", type=sym, linkname="/tmp"), b""), (self.info("l/out", 1), b"x")],
                 [(self.info("l", type=sym, linkname="../.."), b""), (self.info("l/tmp/out", 1), b"x")],
                 [(self.info("h", type=lnk, linkname="../../etc/passwd"), b""), (self.info("h", 1), b"x")],
                 [(self.info("h", type=lnk, linkname="/etc/passwd"), b"")],
                 [(self.info("dev", type=chr_, devmajor=1, devminor=1), b"")],
                 [(self.info("dev", type=blk, devmajor=8, devminor=0), b"")], [(self.info("x" * 5000, 1), b"x")])
        for members in cases:
            answer = self.put(sid, self.tar(*members))
            self.assertIn(answer.status, (200, 400, 403, 404, 409, 413, 422),
                          ([m[0].name[:20] for m in members], answer))
            found = self.d.sh(sid, "ls -l /tmp/out /out /workspace/out 2>/dev/null; find /workspace -type c -o -type "
                              "b; head -c1 /etc/passwd")["stdout"]
            self.assertEqual(found, "r", ([m[0].name[:20] for m in members], found))
            self.d.sh(sid, "rm -rf /workspace/in /workspace/..?* 2>/dev/null")
        answer = self.put(sid, self.tar((self.info("suid", 1, mode=0o6777), b"x"), (self.info("fifo", type=fifo), b"")))
        self.assertIn(answer.status, (200, 400, 422))
        self.assertNotIn("s", self.d.sh(sid, "stat -c %A in/suid 2>/dev/null || true")["stdout"])


class Output(HostileTest):
    CONFIG = "[server]\nbody_timeout = 1\n[manager]\ncleanup_interval = 1\n"

    def peak_while(self, pid, work):
        top, stop = [0], threading.Event()

        def watch():
            while not stop.wait(0.005):
                top[0] = max(top[0], rss(pid))

        t = threading.Thread(target=watch)
        t.start()
        try:
            work()
        finally:
            stop.set()
            t.join()
        return top[0]

    def test_one_line_without_end(self):
        """R12."""
        sid, size = self.sandbox(), scaled(1 << 30, 100 << 20)
        pid = self.brigd()

        def read(path):
            c = self.d.connection()
            c.request("GET", path)
            r, n = c.getresponse(), 0
            while True:
                piece = r.read1(1 << 20)
                if not piece:
                    break
                n += len(piece)
            c.close()
            return n

        got = []
        before = rss(pid)
        # what nobody reads goes round in the ring
        p = self.start(sid, "sh", "-c", f"sleep 0.3; head -c {size} /dev/zero | tr '\\0' x")
        top = self.peak_while(pid, lambda: got.append(read(f"{p}/output?stream=stdout")))
        self.assertEqual(got, [size])
        q = self.start(sid, "sh", "-c", f"sleep 0.3; head -c {size // 8} /dev/zero | tr '\\0' '\\r'")
        top = max(top, self.peak_while(pid, lambda: got.append(read(f"{q}/output"))))
        self.assertGreater(got[1], size // 8)
        r = []
        top = max(top, self.peak_while(pid, lambda: r.append(self.d.sh(sid, f"head -c {size} /dev/zero", output="1m"))))
        self.assertEqual(
            (len(base64.b64decode(r[0]["stdout"]) if r[0]["stdout_encoding"] == "base64" else r[0]["stdout"]),
             r[0]["truncated"]["stdout"]), (1 << 20, True))
        self.assertLess(top - before, 24 << 10, "KiB")

    def silent(self, path, websocket=False):
        s = socket.socket(socket.AF_UNIX)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(self.d.socket)
        extra = ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" if websocket else "")
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n".encode())
        self.addCleanup(s.close)
        return s

    def test_readers_that_do_not_read(self):
        """R24."""
        sid, other = self.sandbox(), self.sandbox()
        pid, fds = self.brigd(), descriptors(self.brigd())
        before = rss(pid)
        paths = [self.start(sid, "sh", "-c", "sleep 0.2; exec yes") for _ in range(3)]
        sockets = [self.silent(f"{p}/{tail}", ws) for p in paths for tail,
                   ws in (("output", False), ("output?stream=stdout", False), ("attach", True))]
        worst, top, begin = 0, 0, time.monotonic()
        while time.monotonic() - begin < 1.5:
            t = time.monotonic()
            self.assertEqual(self.d.run(other, "echo", "x")["stdout"], "x\n")
            worst = max(worst, time.monotonic() - t)
            top = max(top, rss(pid))
        self.assertLess(worst, 1.0, "others are served")
        self.assertLess(top - before, 9 * (3 << 10) + (16 << 10), "a few MiB each")
        self.settles("descriptors: all are cut off", lambda: descriptors(pid), fds)
        for p in paths:
            self.assertTrue(self.d.ask("GET", p).json["running"])
            c = self.d.connection()
            c.request("GET", f"{p}/output?stream=stdout")
            self.assertEqual(len(c.getresponse().read(1 << 20)), 1 << 20, "one who reads is served")
            c.close()
            self.assertEqual(self.d.ask("DELETE", p).status, 204)
        del sockets

    def test_downloads_that_are_not_read(self):
        sid = self.sandbox()
        self.d.sh(sid, "head -c 60000000 /dev/zero > big; mkfifo p")
        pid, fds = self.brigd(), descriptors(self.brigd())
        before = rss(pid)
        sockets = [self.silent(f"/v1/sandboxes/{sid}/files{tail}?path=big") for tail in ("", "/tar") for _ in range(8)]
        self.assertLess(steady(lambda: rss(pid)) - before, 16 * (3 << 10) + (16 << 10))
        self.settles("descriptors: all are cut off", lambda: descriptors(pid), fds)
        del sockets

    def test_watches_that_are_flooded(self):
        sid = self.sandbox()
        pid, fds = self.brigd(), descriptors(self.brigd())
        before = rss(pid)
        silent = [self.silent(f"/v1/sandboxes/{sid}/files/watch?path=.&recursive=1") for _ in range(4)]
        c = self.d.connection()
        c.request("GET", f"/v1/sandboxes/{sid}/files/watch?path=.&recursive=1")
        r = c.getresponse()
        n = scaled(200000, 30000)
        p = self.start(sid, "python3", "-c", f"import os\nfor i in range({n}): os.close(os.open('f%d' % i, "
                       f"os.O_CREAT)); os.unlink('f%d' % i)\nos.mkdir('last')")
        seen = b""
        try:
            while b"last" not in seen and b"overflow" not in seen:
                seen = seen[-200:] + r.read1(65536)
        except http.client.IncompleteRead:
            pass  # more than a MiB behind: cut off, and told so by that
        c.close()
        self.d.ask("GET", f"{p}/wait")
        self.assertLess(rss(pid) - before, 32 << 10)
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")
        self.settles("descriptors", lambda: descriptors(pid), fds)
        del silent

    def test_idle_for_ever(self):
        """R25."""
        sid = self.d.create(idle_timeout=0.4, idle_policy="requests")["id"]
        self.start(sid, "sleep", "infinity")
        other = self.d.create(timeout=0.6)["id"]
        self.start(other, "sleep", "infinity")
        for s, by in ((sid, "idle"), (other, "timeout")):
            wait_until(f"{by} ends it", lambda s=s: self.d.ask("GET", f"/v1/certificates/{s}").status == 200)
            self.assertEqual(self.d.ask("GET", f"/v1/certificates/{s}").json["ended_by"], by)
        wait_until("nothing runs on",
                   lambda: not [p for p in descendants(self.d.process.pid) if self.command(p)[:1] == [b"sleep"]])
        lives = self.sandbox(idle_timeout=0.4)
        p = self.start(lives, "sleep", "infinity", timeout=1.2)
        self.assertEqual(self.d.ask("GET", f"{p}/wait").json["outcome"]["cause"], "timeout")

    @staticmethod
    def command(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                return f.read().split(b"\0")
        except OSError:
            return []

    def test_many_processes(self):
        sid = self.sandbox(limits={"pids": 4000})
        pid = self.brigd()
        before = rss(pid)
        c, n = self.d.connection(), scaled(10000, 400)
        while n > 0:
            a = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": ["true"]}, connection=c)
            if a.status == 429:
                time.sleep(0.01)
            else:
                self.assertEqual(a.status, 201, a)
            n -= 1
        c.close()
        wait_until("all have ended", lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}").json["processes"] == 0)
        self.assertLess(rss(pid) - before, 40 << 10)
        self.assertEqual(self.d.run(sid, "echo", "alive")["stdout"], "alive\n")
        running = [self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": ["sleep", "1000"]}).status
                   for _ in range(scaled(1200, 100))]
        self.assertEqual(set(running) - {201, 429}, set())
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{sid}").status, 204)

    def test_shells(self):
        sid = self.sandbox()
        shells = []
        for _ in range(200):
            a = self.d.ask("POST", f"/v1/sandboxes/{sid}/shells", {})
            if a.status != 201:
                self.assertEqual(a.status, 429, a)
                break
            shells.append(a.json["number"])
        run = f"/v1/sandboxes/{sid}/shells/{shells[0]}/run"
        before = rss(self.brigd())
        r = self.d.ask("POST", run, {"command": "yes | head -c 80000000"}).json
        self.assertTrue(r["truncated"]["stdout"], r.keys())
        self.assertLess(rss(self.brigd()) - before, 80 << 10)
        for command in ("echo '", "exit 3", "kill -9 $$", "kill -STOP $$", "trap '' TERM INT; while :; do :; done", ")",
                        "\0", "set -e; false", "cat"):
            a = self.d.ask("POST", run, {"command": command, "timeout": 0.2}, timeout=10)
            self.assertIn(a.status, (400,) if "\0" in command else (200,), (command, a))
            again = self.d.ask("POST", run, {"command": "set +e; echo usable", "timeout": 5}, timeout=10)
            if again.status == 200 and again.json.get("ended"):
                again = self.d.ask("POST", run, {"command": "echo usable", "timeout": 5}, timeout=10)
            self.assertEqual((again.status, again.json.get("stdout")), (200, "usable\n"), f"{command!r} {a} {again}")
        c = self.d.connection()
        c.request("POST", run, json.dumps({"command": "sleep 1000"}))
        wait_until("it runs", lambda: self.d.ask("POST", run, {"command": "echo second"}, timeout=10).status == 409)
        self.assertEqual(self.d.ask("DELETE", run.removesuffix("/run")).status, 409)
        c.close()  # who waited for it has left: it is ended
        wait_until("it can be closed", lambda: self.d.ask("DELETE", run.removesuffix("/run")).status == 204)


class Secrets(HostileTest):
    """I02, I07, I13, I14, I16, A13."""

    def processes(self):
        return [self.d.process.pid, *descendants(self.d.process.pid)]

    @staticmethod
    def read(pid, name):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as f:
                return f.read()
        except OSError:
            return b""

    def test_never_on_a_command_line(self):
        secret = "sk-" + os.urandom(12).hex()
        key = self.d.key(name="k")
        stop, seen = threading.Event(), set()

        def look():
            while not stop.is_set():
                for pid in self.processes():
                    seen.add(self.read(pid, "cmdline"))

        t = threading.Thread(target=look)
        t.start()
        try:
            for _ in range(10):
                sid = self.d.ask("POST", "/v1/sandboxes", {"env": {"SECRET": secret}}, tcp=True, key=key).json["id"]
                self.d.ask("POST", f"/v1/sandboxes/{sid}/run",
                           {"argv": ["true"], "env": {"S": secret}, "stdin": secret}, tcp=True, key=key)
                self.d.ask("POST", f"/v1/sandboxes/{sid}/shells", {"env": {"S": secret}}, tcp=True, key=key)
                self.d.ask("DELETE", f"/v1/sandboxes/{sid}")
        finally:
            stop.set()
            t.join()
        text = b"".join(seen)
        self.assertIn(b"brigd", text)
        for word in (secret.encode(), key.encode()):
            self.assertNotIn(word, text)

    def test_helpers_have_an_environment_of_their_own(self):
        """A13, I16: what a user sets and what lies in a workspace reaches programs, and nothing of ours."""
        evil = {"LD_PRELOAD": "/workspace/evil.so", "LD_LIBRARY_PATH": "/workspace", "PYTHONPATH": "/workspace",
                "NODE_OPTIONS": "--require=/workspace/evil.js", "BASH_ENV": "/workspace/evil.sh",
                "ENV": "/workspace/evil.sh", "GIT_SSH_COMMAND": "/workspace/evil.sh", "BRIG_LIBEXEC_DIR": "/workspace",
                "BRIG_STATE_DIR": "/workspace", "BRIG_DATABASE_URL": "sqlite:/workspace/x",
                "OPENSSL_CONF": "/workspace/evil.cnf", "SSL_CERT_FILE": "/workspace/x", "MALLOC_TRACE": "/workspace/t",
                "GCONV_PATH": "/workspace", "TZ": ":/workspace/tz",
                "OPENSANDBOX_EGRESS_MITMPROXY_SCRIPT": "/workspace/evil.py"}
        sid = self.sandbox(env=evil)
        for name in ("evil.so", "evil.js", "evil.sh", "sitecustomize.py", "libc.so.6", "brig-init", "brigd",
                     "evil.cnf"):
            self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path={name}&mode=0755",
                       b"#!/bin/sh\ntouch /tmp/ran /workspace/ran\n")
        self.start(sid, "sleep", "1000", env=evil)
        self.d.ask("POST", f"/v1/sandboxes/{sid}/shells", {"env": evil})
        self.d.ask("GET", f"/v1/sandboxes/{sid}/files/tar?path=.")
        ours = [pid for pid in self.processes()
                if self.read(pid, "comm").strip() in (b"brig", b"brigd", b"brig-spawner", b"brig-init")]
        self.assertGreaterEqual(len(ours), 4)
        for pid in ours:
            text = self.read(pid, "environ")
            self.assertNotIn(b"/workspace", text, (pid, self.read(pid, "comm")))
            self.assertNotIn(b"evil", self.read(pid, "maps"))
        other = self.sandbox()
        self.assertEqual(self.d.sh(other, "env | grep -c evil; ls /workspace")["stdout"], "0\n")

    def test_the_daemon_has_nothing_to_dump(self):
        """I13: no core, no memory for others to read."""
        for name, pid in self.d.children().items():
            with open(f"/proc/{pid}/limits", encoding="ascii") as f:
                core = re.search(r"Max core file size\s+(\S+)\s+(\S+)", f.read())
            self.assertEqual(core.groups(), ("0", "0"), name)
        # Not dumpable: its files in /proc belong to root, whoever it runs as.
        self.assertEqual(os.stat(f"/proc/{self.d.children()['brigd']}/mem").st_uid, 0)

    def test_what_a_tenant_sees_of_another(self):
        """I07."""
        secret = "tenant-" + os.urandom(6).hex()
        a = self.sandbox(name="t" + secret[-8:], metadata={"m": secret}, env={"X": secret})
        self.d.ask("PUT", f"/v1/sandboxes/{a}/files?path={secret}", secret.encode())
        p = self.start(a, "sh", "-c", f"echo {secret} > /tmp/{secret}; sleep 1000; : {secret}")
        b = self.sandbox()
        found = self.d.sh(b, "cat /proc/mounts /proc/self/mountinfo /proc/*/cmdline /proc/*/environ /proc/net/unix "
                          "/proc/self/cgroup /proc/sys/kernel/hostname 2>/dev/null | tr '\\0' '\\n'; "
                             "ls -laR /tmp /dev/shm /run /var/tmp /workspace /dev 2>/dev/null; id; ps aux "
                          "2>/dev/null; env")
        text = found["stdout"] + found["stderr"]
        for word in (secret, a, "t" + secret[-8:], self.d.dir):
            self.assertNotIn(word, text)
        self.assertTrue(self.d.ask("GET", p).json["running"])
        ids = {self.d.sh(s, "cat /proc/self/uid_map")["stdout"] for s in (a, b)}
        self.assertEqual(len(ids), 2 if os.geteuid() == 0 else 1, "a range of ids of its own where there are several")

    def test_compares_are_in_constant_time(self):
        """I14: by reading the code: secrets are compared by crypto_equal(), and that is OpenSSL's."""
        with open(os.path.join(SOURCES, "crypto", "crypto.c"), encoding="utf-8") as f:
            crypto = f.read()
        body = re.search(r"bool crypto_equal\([^)]*\)\s*\{(.*?)\n\}", crypto, re.S).group(1)
        self.assertIn("CRYPTO_memcmp", body)
        for name in ("records/account_keys.c", "crypto/token.c"):
            with open(os.path.join(SOURCES, *name.split("/")), encoding="utf-8") as f:
                text = f.read()
            self.assertIn("crypto_equal(", text, name)
            for compare in re.findall(r"(?:memcmp|strcmp|str_eq|strncmp)\(([^;]*)\)", text):
                if re.search(r"hash|mac|token|signature|secret", compare):
                    # four bytes of a hash choose the row, no more
                    self.assertRegex(compare, r"hash, hash, 4", f"{name}: {compare}")


class Previews(HostileTest):
    SERVER = r"""
import socket, sys, threading
def serve(c):
    r = b""
    while b"\r\n\r\n" not in r:
        d = c.recv(65536)
        if not d: return
        r += d
    path = r.split()[1].split(b"?")[0].rsplit(b"/", 1)[-1]
    head = b"HTTP/1.1 200 OK\r\n"
    if path == b"echo": c.sendall(head + b"Content-Length: %d\r\n\r\n" % len(r) + r)
    elif path == b"204": c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    elif path == b"304": c.sendall(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n")
    elif path == b"garbage": c.sendall(b"\0\xff garbage\r\n\r\n" * 10)
    elif path == b"nothing": pass
    elif path == b"half": c.sendall(b"HTTP/1.1 200 O")
    elif path == b"split": c.sendall(head + b"X: a\rSet-Cookie: b=c\r\nContent-Length: 0\r\n\r\n")
    elif path == b"both": c.sendall(head + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    elif path == b"two": c.sendall(head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc")
    elif path == b"more":
        c.sendall(head + b"Content-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    elif path == b"less": c.sendall(head + b"Content-Length: 200\r\n\r\nhi")
    elif path == b"chunk": c.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nxx\r\n")
    elif path == b"huge": c.sendall(head + b"X: " + b"y" * 200000 + b"\r\n\r\n")
    elif path == b"fields": c.sendall(head + b"".join(b"X%d: y\r\n" % i for i in range(5000)) + b"\r\n")
    elif path == b"switch":
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
                  b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    elif path == b"early":
        c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 20 + head + b"Content-Length: 2\r\n\r\nhi")
    elif path == b"interim":
        try:
            while True: c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 50)
        except OSError: pass
    elif path == b"endless":
        try:
            c.sendall(head + b"\r\n")
            while True: c.sendall(b"z" * 65536)
        except OSError: pass
    else: c.sendall(head + b"Content-Length: 2\r\n\r\nhi")
    c.close()
def listen(port):
    s = socket.socket(); s.bind(("127.0.0.1", port)); s.listen(200)
    while True:
        c, _ = s.accept()
        threading.Thread(target=serve, args=(c,), daemon=True).start()
threading.Thread(target=listen, args=(8081,), daemon=True).start()
print("ready", flush=True)
listen(8080)
"""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sids = [cls.d.create()["id"] for _ in range(2)]
        for sid in cls.sids:
            cls.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=s.py", cls.SERVER.encode())
            cls.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": ["python3", "s.py"]})
            wait_until("it listens", lambda sid=sid: {8080, 8081}
                       <= {p["port"] for p in cls.d.ask("GET", f"/v1/sandboxes/{sid}/ports").json["ports"]})

    def proxy(self, path, sid=None, port=8080, **kw):
        return self.d.ask(kw.pop("method", "GET"), f"/v1/sandboxes/{sid or self.sids[0]}/proxy/{port}/{path}",
                          timeout=8, **kw)

    def token(self, sid=None, port=8080, **members):
        a = self.d.ask("POST", f"/v1/sandboxes/{sid or self.sids[0]}/ports/{port}/token", members)
        self.assertEqual(a.status, 201, a)
        return a.json["token"]

    def test_answers_that_lie(self):
        for path in ("garbage", "nothing", "half", "split", "both", "two", "huge", "fields", "switch"):
            a = self.proxy(path)
            self.assertEqual((a.status, a.json["error"]["code"]), (502, "bad_gateway"), path)
            self.assertIsNone(a.headers["Set-Cookie"])
        self.assertEqual([self.proxy(p).status for p in ("204", "304", "early")], [204, 304, 200])
        self.assertEqual(self.proxy("x", method="HEAD").body, b"")
        w = self.wire(tcp=False)
        w.send(f"GET /v1/sandboxes/{self.sids[0]}/proxy/8080/more HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
               + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertEqual([w.answer()[2] for _ in range(2)], [b"hi", b"ok\n"], "what follows an answer is nobody's")
        for path in ("less", "chunk"):
            with self.assertRaises(Exception):
                self.proxy(path)

    def test_interim_answers_without_end(self):
        pid = self.brigd()
        before, fds = rss(pid), descriptors(pid)
        c = self.d.connection(timeout=3)
        c.request("GET", f"/v1/sandboxes/{self.sids[0]}/proxy/8080/interim")
        try:
            c.getresponse()
        except (OSError, Exception):
            pass
        slow = self.d.ask("GET", "/healthz")
        c.close()
        self.assertEqual(slow.status, 200)
        self.assertLess(rss(pid) - before, 8 << 10)
        self.settles("descriptors", lambda: descriptors(pid), fds)

    def test_an_answer_without_end_that_nobody_reads(self):
        pid = self.brigd()
        before = rss(pid)
        sockets = []
        for _ in range(8):
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.d.socket)
            s.sendall(f"GET /v1/sandboxes/{self.sids[0]}/proxy/8080/endless HTTP/1.1\r\n"
                      f"Host: localhost\r\n\r\n".encode())
            sockets.append(s)
        self.assertLess(steady(lambda: rss(pid)) - before, 8 * (3 << 10) + (8 << 10))
        self.assertEqual(self.proxy("x").body, b"hi")
        for s in sockets:
            s.close()

    def test_keys_and_tokens_do_not_reach_the_program(self):
        key, token = self.d.key(), self.token()
        for headers, query in (({"X-API-Key": key}, ""), ({"Authorization": f"Bearer {key}"}, ""),
                               ({"X-Brig-Token": token}, ""), ({"Cookie": f"a=1; brig_token={token}; b=2"}, ""),
                               ({}, f"?x=1&brig_token={token}&y=2"), ({}, f"?brig%5Ftoken={token}"),
                               ({"Cookie": f"brig_token={token}"}, f"?brig_token={token}")):
            a = self.proxy("echo" + query, headers=headers, tcp=True)
            self.assertEqual(a.status, 200, (headers, a))
            self.assertNotIn(key.encode(), a.body)
            self.assertNotIn(token.encode(), a.body, (headers, query))
        headers = {"Cookie": f"a=1; brig_token={token}; b=2", "Host": f"8080-{self.sids[0]}.localhost"}
        self.assertIn(b"Cookie: a=1; b=2", self.d.ask("GET", "/echo", headers=headers, tcp=True).body)
        self.assertNotIn(b"Cookie",
                         self.proxy("echo", headers={"Cookie": f"a=1; brig_token={token}; b=2"}, tcp=True).body)

    def test_a_token_is_for_one_port_of_one_sandbox(self):
        a, b = self.sids
        token = self.token()
        good = f"?brig_token={token}"
        self.assertEqual(self.proxy("x" + good, tcp=True).status, 200)
        for sid, port, query in ((a, 8081, good), (b, 8080, good), (a, 8080, ""), (a, 8080, "?brig_token="),
                                 (a, 8080, f"?brig_token={token[:-1]}"), (a, 8080, f"?brig_token={token}x"),
                                 (a, 8080, f"?brig_token={token.swapcase()}"),
                                 (a, 8080, f"?brig_token=x&brig_token={token}"),
                                 (a, 8080, "?brig_token=" + "A" * 3000)):
            answer = self.proxy("x" + query, sid, port, tcp=True)
            self.assertEqual((answer.status, answer.json["error"]["code"]), (401, "unauthenticated"), (port, query))
        for cookie in (f"Brig_Token={token}", f"brig_token ={token}", f"x=brig_token={token}", f'brig_token="{token}"',
                       "brig_token=;brig_token=x", "brig_token=" + "A" * 5000, ";" * 3000):
            self.assertEqual(self.proxy("x", tcp=True, headers={"Cookie": cookie}).status, 401, cookie[:40])
        expired = self.token(expires=1)
        parts = expired.split(".")
        for i in range(len(parts)):  # each part of it, changed
            forged = ".".join(p if j != i else ("9" * len(p) if p.isdigit() else p[::-1]) for j, p in enumerate(parts))
            if forged != expired:
                self.assertEqual(self.proxy(f"x?brig_token={forged}", tcp=True).status, 401, forged)
        wait_until("it has expired", lambda: self.proxy(f"x?brig_token={expired}", tcp=True).status == 401)
        _, theirs = self.org("preview")
        self.assertEqual(self.proxy("x", tcp=True, key=theirs).status, 404)
        self.assertEqual(self.proxy("x" + good, tcp=True, key=theirs).status, 404)
        answer = self.d.ask("GET", "/v1/sandboxes", tcp=True,
                            headers={"X-Brig-Token": token, "Authorization": f"Bearer {token}",
                                     "Cookie": f"brig_token={token}"})
        self.assertEqual(answer.status, 401, "a token is no key")

    def test_reading_keys_only_read(self):
        key = self.d.key(role="read-only")
        self.assertEqual(self.proxy("x", tcp=True, key=key).status, 200)
        self.assertEqual(self.proxy("echo", method="POST", body=b"x", tcp=True, key=key).status, 403)
        host = f"8080-{self.sids[0]}.localhost"
        self.assertEqual(self.d.ask("POST", "/echo", b"x", {"Host": host, "X-API-Key": key}, tcp=True).status, 403)

    def test_hosts(self):
        a, key = self.sids[0], self.d.key()
        token = self.token()
        for host, want in ((f"8080-{a}.localhost", 200), (f"8081-{a}.localhost", 401), (f"0-{a}.localhost", 404),
                           (f"65536-{a}.localhost", 404), (f"-{a}.localhost", 401), (f"99999999999-{a}.localhost", 404),
                           (f"8080-{a}x.localhost", 404), (f"8080-{a}.evil.localhost", 401),
                           (f"8080-{a}.evil.example", 421), (f"x-{a}.localhost", 404), ("8080-.localhost", 404)):
            answer = self.d.ask("GET", f"/x?brig_token={token}", headers={"Host": host}, tcp=True)
            self.assertEqual(answer.status, want, (host, answer))
        answer = self.d.ask("GET", "/v1/sandboxes", headers={"Host": f"8080-{a}.localhost", "X-API-Key": key}, tcp=True)
        self.assertEqual(answer.body, b"hi", "a preview's host is only the preview")
        for origin, want in ((f"http://8080-{a}.localhost", 403), ("null", 403)):
            self.assertEqual(self.d.ask("POST", "/v1/sandboxes", {},
                                        {"Origin": origin, "Host": f"127.0.0.1:{self.d.port}"}, tcp=True,
                                        key=key).status,
                             want, "a previewed page cannot call the API")

    def test_requests_are_written_anew(self):
        raw = (f"POST /v1/sandboxes/{self.sids[0]}/proxy/8080/echo?a=%0d%0aX: HTTP/1.1\r\nHost: localhost\r\n"
               "Transfer-Encoding: chunked\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n"
               "Proxy-Connection: keep-alive\r\nX-Forwarded-Proto: https\r\n\r\n5\r\nhello\r\n"
               "0\r\n\r\n").replace(" HTTP/1.1", "1 HTTP/1.1", 1).encode()
        (status, body), = self.exchange(raw, False)
        self.assertEqual(status, 200)
        head = body.split(b"\r\n\r\n")[0].lower()
        for word in (b"te: ", b"proxy-connection", b"x-hop", b"trailers"):
            self.assertNotIn(word, head)
        self.assertEqual((head.count(b"transfer-encoding"), head.count(b"content-length"),
                          head.count(b"connection: close"), head.count(b"host: ")),
                         (1, 0, 1, 1))
        self.assertEqual(head.count(b"x-forwarded-proto"), 1)
        self.assertIn(b"x-forwarded-proto: http\r\n", head + b"\r\n")


if __name__ == "__main__":
    unittest.main()
