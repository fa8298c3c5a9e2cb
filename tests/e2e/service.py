# SPDX-License-Identifier: Apache-2.0
"""A real daemon for the e2e tests: `brig serve` with directories of its own, and a small client for its socket and its
port.

BRIG_TEST_PROVIDERS is set for tests of all providers; the services of others start none of this machine's runtimes.
BRIG_TEST_PROVIDER makes sandboxes that name no provider those of this one.

BRIG_TEST_PG_URL makes every daemon here use that PostgreSQL server (each a database of its own) instead of SQLite.
"""

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import spares
from helpers import BRIG, PATIENCE, environment, own_cgroups, wait_until

DEFAULT_ORG = "org-00000000-0000-4000-8000-000000000000"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=PATIENCE):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    """`brig serve` until stop(). config: text of config.toml. user: a number, to run it as somebody without
    privileges; group: that user's own group if it has another number (newuidmap looks at both)."""

    def __init__(self, config="", env=None, user=None, preexec=None, group=None):
        self.dir = tempfile.mkdtemp(prefix="brig-serve-")
        os.chmod(self.dir, 0o755)
        self.socket = os.path.join(self.dir, "run", "brig.sock")
        self.port = free_port()
        self.config = os.path.join(self.dir, "config.toml")
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(config)
        self.env = environment(BRIG_STATE_DIR=f"{self.dir}/state", BRIG_RUN_DIR=f"{self.dir}/run",
                               BRIG_CACHE_DIR=f"{self.dir}/cache",
                               BRIG_CONFIG=self.config, BRIG_LISTEN=f"127.0.0.1:{self.port}", BRIG_SOCKET=self.socket,
                               **(env or {}))
        if not os.environ.get("BRIG_TEST_PROVIDERS"):  # no runtime of this machine is looked for
            self.env.setdefault("BRIG_PROVIDERS_ONLY", "local docker vm firecracker e2b modal daytona")
        provider = os.environ.get("BRIG_TEST_PROVIDER")
        if provider and user is None:
            self.env.setdefault("BRIG_MANAGER_PROVIDER", provider)
        pg = os.environ.get("BRIG_TEST_PG_URL")
        self.database = None
        if pg and "BRIG_DATABASE_URL" not in self.env:
            import pg as pg_module
            self.database = pg_module.new_database(pg)
            self.env["BRIG_DATABASE_URL"] = self.database
        self.preexec = preexec  # in the child, before it is brig: another network namespace
        self.user = {} if user is None else {"user": user, "group": group or user, "extra_groups": []}
        if user is not None:
            self.env["HOME"] = self.dir
            for name in (self.dir, self.config):
                os.chown(name, user, user)
        self.log = open(os.path.join(self.dir, "log"), "w+b")
        self.process = None
        spares.take(self.env["BRIG_CACHE_DIR"], user, group or user)
        self.start()

    def start(self):
        self.process = subprocess.Popen([BRIG, "serve"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=self.env, **self.user,
                                        start_new_session=True, preexec_fn=self.preexec)
        self.wait_ready()

    def wait_ready(self):
        end = time.monotonic() + PATIENCE
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"brig serve ended with {self.process.returncode}: {self.text()}")
            try:
                if self.ask("GET", "/readyz").status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() > end:
                raise AssertionError(f"brig serve is not ready: {self.text()}")
            time.sleep(0.01)

    def text(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            return f.read()[-20000:].decode(errors="replace")

    def children(self):
        """name -> pid of the daemons."""
        found = {}
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            for pid in f.read().split():
                try:
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                        found[comm.read().strip()] = int(pid)
                except (FileNotFoundError, ProcessLookupError):
                    pass  # reaped meanwhile
        return found

    def cgroup_tag(self):
        """What the names of all cgroups of this daemon's sandboxes end with."""
        for s in self.ask("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]:
            self.ask("DELETE", f"/v1/sandboxes/{s['id']}")
        made = self.create(provider="local")["id"]
        name = next(c for c in own_cgroups() if made in c.rsplit("/", 1)[-1])
        self.ask("DELETE", f"/v1/sandboxes/{made}")
        return name[name.rindex("."):]

    def stop(self, sig=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"brig serve did not end: {self.text()}") from None

    def close(self):
        try:
            self.stop()
            crashes = re.findall(r"brig\S* \(pid \d+\) was killed by signal (?:4|6|7|8|11|31)\b", self.all_text())
            if crashes:  # the supervisor starts it again, and a test might not notice
                raise AssertionError(f"{crashes}: {self.text()[-2000:]}")
        finally:
            self.log.close()
            spares.give(self.env["BRIG_CACHE_DIR"])
            shutil.rmtree(self.dir, ignore_errors=True)

    def all_text(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            return f.read().decode(errors="replace")

    # ---- asking -----------------------------------------------------------------------------------------------------

    def connection(self, tcp=False, timeout=PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.port,
                                          timeout=timeout) if tcp else UnixConnection(self.socket, timeout)

    def ask(self, method, path, body=None, headers=None, tcp=False, key=None, connection=None, timeout=PATIENCE):
        """One request. body: bytes, an iterable of bytes (chunked), or anything JSON."""
        headers = dict(headers or {})
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if body is not None and not isinstance(body, (bytes, bytearray)) and not hasattr(body, "__next__"):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        c = connection or self.connection(tcp, timeout)
        try:
            try:
                c.request(method, path, body, headers, encode_chunked=hasattr(body, "__next__"))
            except BrokenPipeError:
                pass  # it has answered already, and does not want the rest
            r = c.getresponse()
            return Answer(r, r.read())
        finally:
            if not connection:
                c.close()

    def key(self, **members):
        answer = self.ask("POST", "/v1/keys", members)
        assert answer.status == 201, answer
        return answer.json["key"]

    def create(self, **members):
        answer = self.ask("POST", "/v1/sandboxes", members)
        assert answer.status == 201, answer
        return answer.json

    def run(self, sandbox, *argv, **members):
        answer = self.ask("POST", f"/v1/sandboxes/{sandbox}/run", {"argv": list(argv), **members})
        assert answer.status == 200, answer
        return answer.json

    def sh(self, sandbox, command, **members):
        return self.run(sandbox, "/bin/sh", "-c", command, **members)

    def websocket(self, path, tcp=False, headers=None, host="localhost"):
        return WebSocket(self.connection(tcp), path, headers, host)

    def events(self, path, headers=None, timeout=PATIENCE):
        """Server-sent events, one (event, id, data) after the other."""
        c = self.connection(timeout=timeout)
        c.request("GET", path, headers={"Accept": "text/event-stream", **(headers or {})})
        r = c.getresponse()
        if r.status != 200:
            raise AssertionError(f"{path}: {r.status} {r.read()!r}")
        return Events(c, r)


class Events:
    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def __iter__(self):
        event, ident, data = "message", None, []
        for line in self.response:
            line = line.rstrip(b"\n").decode()
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("id:"):
                ident = line[3:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif line == "" and data:
                yield event, ident, "\n".join(data)
                event, data = "message", []

    def close(self):
        self.connection.close()


class WebSocket:
    """A client of RFC 6455, just large enough, that can also misbehave."""

    def __init__(self, connection, path, headers=None, host="localhost"):
        connection.connect()
        self.sock = connection.sock
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13",
                 f"Sec-WebSocket-Key: {key}", *(f"{k}: {v}" for k, v in (headers or {}).items()), "", ""]
        self.sock.sendall("\r\n".join(lines).encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])
        self.head = head.decode()
        if self.status == 101:
            want = base64.b64encode(
                hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            assert want in self.head, self.head

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError("closed")
        self.buffer += data

    def _take(self, n):
        while len(self.buffer) < n:
            self._more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def send(self, data, opcode=None, fin=True, mask=True):
        opcode = (1 if isinstance(data, str) else 2) if opcode is None else opcode
        data = data.encode() if isinstance(data, str) else data
        head = bytes([(0x80 if fin else 0) | opcode])
        bit = 0x80 if mask else 0
        if len(data) < 126:
            head += bytes([bit | len(data)])
        elif len(data) < 65536:
            head += bytes([bit | 126]) + struct.pack(">H", len(data))
        else:
            head += bytes([bit | 127]) + struct.pack(">Q", len(data))
        if mask:
            m = os.urandom(4)
            data = m + bytes(b ^ m[i % 4] for i, b in enumerate(data)) if len(data) < 100000 else b"\0\0\0\0" + data
        self.sock.sendall(head + data)

    def receive(self):
        """(opcode, bytes); pings are answered on the way."""
        while True:
            a, b = self._take(2)
            n = b & 0x7F
            if n == 126:
                n = struct.unpack(">H", self._take(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self._take(8))[0]
            data = self._take(n)
            if a & 0x0F == 9:
                self.send(data, opcode=10)
                continue
            return a & 0x0F, data

    def close(self):
        self.sock.close()


class ServiceTest(unittest.TestCase):
    """One daemon per class; what it leaves behind is looked at when it has ended."""

    CONFIG = ""
    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(cls.CONFIG)

    @classmethod
    def tearDownClass(cls):
        tag = cls.d.cgroup_tag()
        cls.d.close()
        wait_until("no cgroup is left", lambda: not [c for c in own_cgroups() if c.endswith(tag) or f"{tag}/" in c])

    def sandbox(self, **members):
        made = self.d.create(**members)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        return made["id"]

    def refused(self, answer, status, code, text):
        self.assertEqual((answer.status, answer.json["error"]["code"]), (status, code), answer)
        self.assertIn(text, answer.json["error"]["message"])
