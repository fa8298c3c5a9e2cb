# SPDX-License-Identifier: Apache-2.0
"""What the broker's tests share: a test authority, an upstream that echoes in every way asked for, and the broker under
test (drivers/broker_host.c)."""

import json
import os
import pathlib
import secrets
import socket
import ssl
import subprocess
import tempfile
import threading
import time

PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
DRIVER = next((p for p in (f"{PREFIX}/tests/e2e/broker_host", f"{BUILD}/tests/e2e/broker_host") if os.path.exists(p)),
              "broker_host")
PATIENCE = float(os.environ.get("BRIG_TEST_PATIENCE", "30"))
HOST = "api.example.com"


def placeholder():
    return "brig-secret-" + secrets.token_hex(16)


class World:
    """An authority of the test's own, and certificates of it: what the host's bundle is for brig-egress."""

    def __init__(self, where):
        self.dir = pathlib.Path(where)
        self.ca = self.dir / "world.pem"
        self.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                 "/CN=test world", "-days", "2",
                 "-keyout", "world.key", "-out", "world.pem", "-addext", "basicConstraints=critical,CA:TRUE", "-addext",
                 "keyUsage=critical,keyCertSign")

    def run(self, *args):
        subprocess.run(["openssl", *args], cwd=self.dir, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def certificate(self, name, *more):
        stem, names = name, ",".join("DNS:" + n for n in (name, *more))
        (self.dir / f"{stem}.ext").write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n", encoding="utf-8")
        self.run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", f"{stem}.key", "-out", f"{stem}.csr")
        self.run("x509", "-req", "-in", f"{stem}.csr", "-CA", "world.pem", "-CAkey", "world.key", "-CAcreateserial",
                 "-days", "1",
                 "-extfile", f"{stem}.ext", "-out", f"{stem}.pem")
        return self.dir / f"{stem}.pem", self.dir / f"{stem}.key"


class Upstream:
    """An HTTPS server by hand, so that every odd reply can be made. answer(request) -> bytes, or a list of (bytes,
    seconds to wait before)."""

    def __init__(self, certificate, answer, plain=False):
        self.answer, self.requests, self.connections, self.resumed = answer, [], 0, 0
        self.context = None
        if not plain:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
            self.context.set_alpn_protocols(["http/1.1"])
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                raw, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(raw,), daemon=True).start()

    def serve(self, raw):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with (self.context.wrap_socket(raw, server_side=True) if self.context else raw) as sock:
                if self.context:
                    self.resumed += sock.session_reused
                self.talk(sock)
        except (OSError, EOFError):
            pass

    def talk(self, sock):
        with sock.makefile("rb") as stream:
            while request := Request.read(stream, sock):
                self.requests.append(request)
                answer = self.answer(request)
                for piece, wait in answer if isinstance(answer, list) else [(answer, 0)]:
                    time.sleep(wait)
                    sock.sendall(piece)
                if request.close or (isinstance(answer, bytes) and b"\r\nConnection: close\r\n" in answer):
                    return

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # accept() in its thread would keep it open
        except OSError:
            pass
        self.socket.close()


class Request:
    def __init__(self):
        self.fields, self.body, self.close, self.stream, self.sock = [], b"", False, None, None

    @classmethod
    def read(cls, stream, sock):
        line = stream.readline()
        if not line:
            return None
        self = cls()
        self.stream, self.sock = stream, sock
        self.line = line.rstrip(b"\r\n").decode("latin-1")
        self.method, self.target, _ = self.line.split(" ")
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, value = line.rstrip(b"\r\n").decode("latin-1").split(": ", 1)
            self.fields.append((name, value))
        if self.get("Expect") == "100-continue":
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.get("Transfer-Encoding") == "chunked":
            while size := int(stream.readline(), 16):
                self.body += stream.read(size)
                stream.readline()
            stream.readline()
        else:
            self.body = stream.read(int(self.get("Content-Length", "0")))
        return self

    def get(self, name, otherwise=None):
        return next((v for n, v in self.fields if n.lower() == name.lower()), otherwise)


def reply(body=b"", status="200 OK", **fields):
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def chunked(pieces, **fields):
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    out = [(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{head}\r\n".encode(), 0)]
    out += [(b"%x\r\n%s\r\n" % (len(piece), piece), wait) for piece, wait in pieces]
    return out + [(b"0\r\n\r\n", 0)]


class Broker:
    """The driver, with its secrets: {name: (value, rule)}."""

    def __init__(self, world, upstream, given, policy=None, port=443, **more):
        self.placeholders = {name: placeholder() for name in given}
        self.dir = tempfile.TemporaryDirectory()
        self.authority = pathlib.Path(self.dir.name, "authority.pem")
        spec = {"ca": str(world.ca), "authority": str(self.authority), "upstream": upstream, "port": port,
                "policy": policy or {"default": "allow", "rules": []}, "secrets": [], **more}
        for name, (value, rule) in given.items():
            sealed = subprocess.run([DRIVER, "seal", f"org|{name}"],
                                    input=value if isinstance(value, bytes) else value.encode(), check=True,
                                    stdout=subprocess.PIPE, timeout=PATIENCE).stdout
            spec["secrets"].append({"name": name, "placeholder": self.placeholders[name],
                                    "broker": {"hosts": [HOST], **rule}, **json.loads(sealed)})
        path = pathlib.Path(self.dir.name, "spec.json")
        path.write_text(json.dumps(spec), encoding="utf-8")
        self.process = subprocess.Popen([DRIVER, "serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.lines, self.more = [], threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()
        self.port = int(self.wait("listening ").split()[1])

    def listen(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line.rstrip("\n"))
                self.more.notify_all()

    def wait(self, text, after=0):
        end = time.monotonic() + PATIENCE
        with self.more:
            while True:
                for line in self.lines[after:]:
                    if text in line:
                        return line
                if not self.more.wait(max(0, end - time.monotonic())):
                    raise AssertionError(f"no line with {text!r} among {self.lines}")

    def ask(self, question):
        before = len(self.lines)
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.wait(question.split()[0] + " ", before)

    def scan(self, value):
        return int(self.ask("scan " + bytes(b ^ 0x5A for b in value.encode()).hex()).split()[1])

    def counts(self):
        return {k: int(v) for k, v in (pair.split("=") for pair in self.ask("counts").split()[1:])}

    def context(self):
        context = ssl.create_default_context(cafile=str(self.authority))
        context.set_alpn_protocols(["http/1.1"])
        return context

    def connect(self, name=HOST, session=None):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        context = self.context() if session is None else session[0]
        return context.wrap_socket(raw, server_hostname=name, session=None if session is None else session[1])

    def raw(self, request, name=HOST):
        """Bytes there, all bytes back."""
        with self.connect(name) as sock:
            sock.sendall(request)
            return read_all(sock)

    def get(self, target="/", *fields, method="GET", body=b"", close=True):
        head = f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n" + "".join(f + "\r\n" for f in fields)
        head += (f"Content-Length: {len(body)}\r\n" if body else "") + ("Connection: close\r\n" if close else "")
        return split(self.raw(head.encode() + b"\r\n" + body), method)

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
        self.dir.cleanup()
        if code != 0:
            raise AssertionError(f"the driver ended with {code}")


def read_all(sock):
    data = bytearray()
    try:
        while piece := sock.recv(65536):
            data += piece
    except (ConnectionResetError, ssl.SSLError) as e:
        data += b"[" + type(e).__name__.encode() + b"]"
    return bytes(data)


def split(data, method="GET"):
    """(status, {field: value}, body) of one response, dechunked."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1)
                  if line.lower().startswith(("transfer-encoding", "content-length", "connection"))
                  else line.split(": ", 1)
                  for line in lines[1:])
    if fields.get("transfer-encoding") == "chunked" and method != "HEAD":
        out, at, n = bytearray(), 0, 1
        while n:
            end = body.index(b"\r\n", at)
            n = int(body[at:end], 16)
            out += body[end + 2:end + 2 + n]
            at = end + n + 4
        body = bytes(out)
    return lines[0].split(" ", 1)[1], fields, body
