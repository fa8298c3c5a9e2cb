# SPDX-License-Identifier: Apache-2.0
"""brig-egress alone: its controller, a sandbox's network, and an internet for it, each in a network namespace of its
own (root).

Names and addresses of that internet are the documentation ranges', so that "public" and "private" mean what they mean
outside.
"""

import array
import ctypes
import fcntl
import json
import os
import queue
import select
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

from helpers import BRIG, PATIENCE

LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or os.path.dirname(os.path.realpath(BRIG))
EGRESS = os.environ.get("BRIG_EGRESS") or f"{LIBEXEC}/brig-egress"

MAGIC, VERSION = 0x65746167, 1
(FILE, CONTROL, PING, PONG, READY, PREPARE, LISTEN, COUNT, FORGET, SYNC, SYNCED, PREPARED, LISTENING, COUNTED,
 FORGOTTEN, EVENT) = range(1, 17)
TCP, DNS_UDP, DNS_TCP, PROXY, REDIRECT = range(5)
ALLOWED, DENIED, CLOSED, FAILED = range(4)
NOTHING, TLS, HTTP, OTHER = range(4)
LISTENERS_MAX = 70
PLAIN = struct.Struct("=IHHQ")
ERR = struct.Struct("=ii256s")
PREPARED_REST = struct.Struct("=QII64HII")
COUNTS = struct.Struct("=10QII")
EVENT_REST = struct.Struct("=QQIiII256s16sH16sH4xQQ64s160s")
COUNT_NAMES = ("bytes_in", "bytes_out", "allowed", "denied", "names_allowed", "names_refused", "open", "substituted",
               "foreign", "scrubbed",
               "limits_hit")
EVENT_NAMES = ("version", "connection", "verdict", "rule", "seen", "dns", "name", "wanted", "wanted_port", "dialled",
               "dialled_port",
               "bytes_in", "bytes_out", "secret", "why")

libc = ctypes.CDLL(None, use_errno=True)


class Netns:
    """A thread that lives in a network namespace of its own: what is called in it makes sockets and processes there."""

    def __init__(self, *commands):
        self._calls, ready = queue.Queue(), queue.Queue()
        self._thread = threading.Thread(target=self._live, args=(ready,), daemon=True)
        self._thread.start()
        problem = ready.get()
        if problem:
            raise OSError(problem)
        for command in ("ip link set lo up", *commands):
            self.call(subprocess.run, command.split(), check=True)

    def _live(self, ready):
        ready.put(None if libc.unshare(0x40000000) == 0 else f"unshare: {os.strerror(ctypes.get_errno())}")
        while True:
            item = self._calls.get()
            if item is None:
                return
            fn, args, kw, answer = item
            try:
                answer.put((fn(*args, **kw), None))
            except BaseException as e:  # noqa: BLE001 - handed to the caller
                answer.put((None, e))

    def call(self, fn, *args, **kw):
        answer = queue.Queue()
        self._calls.put((fn, args, kw, answer))
        value, problem = answer.get()
        if problem:
            raise problem
        return value

    def socket(self, *args):
        return self.call(socket.socket, *args)

    def close(self):
        self._calls.put(None)
        self._thread.join()


def memfd(data):
    fd = os.memfd_create("text", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, 1033, 0xf)
    return fd


def head(kind, slot=0):
    return PLAIN.pack(MAGIC, VERSION, kind, slot)


def text(data):
    return data.split(b"\0", 1)[0].decode()


def address(ip):
    return socket.inet_ntop(socket.AF_INET,
                            ip[12:]) if ip[:12] == b"\0" * 10 + b"\xff\xff" else socket.inet_ntop(socket.AF_INET6, ip)


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Gate:
    def __init__(self, outside, files=None, program=None, preexec=None):
        self.parent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log = tempfile.TemporaryFile()

        def in_child():
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            if preexec:
                preexec()

        def start():
            return subprocess.Popen([program or EGRESS], preexec_fn=in_child, close_fds=False, stdin=subprocess.DEVNULL,
                                    stdout=self.log,
                                    stderr=self.log, cwd="/")

        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                os.set_inheritable(fd, fd in (0, 1, 2))
            except OSError:
                pass
        self.process = outside.host.call(start) if outside else start()
        theirs.close()
        self.parent.settimeout(PATIENCE)
        first = self.parent.recv(4096)
        assert first == head(READY), first
        for name, data in (files or {}).items():
            self.file(name, data)
        self.events, self.control = [], None
        self.connect()

    def file(self, name, data):
        fd = memfd(data)
        self.parent.sendmsg([head(FILE) + name.encode().ljust(32, b"\0")],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        os.close(fd)

    def connect(self, size=None):
        if self.control:
            self.control.close()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(PATIENCE)
        self.parent.sendmsg([head(CONTROL)],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
        theirs.close()

    def ping(self):
        self.parent.send(head(PING))
        return self.parent.recv(64) == head(PONG)

    # ---- messages

    def send(self, data, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.control.sendmsg([data], rights)

    def _receive(self):
        data, ancillary, _, _ = self.control.recvmsg(4096, 256)
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[:len(content) - len(content) % 4])
        if not data:
            raise ConnectionError("the control socket is closed")
        _, _, kind, slot = PLAIN.unpack_from(data)
        return kind, slot, data[PLAIN.size:], list(fds)

    def _event(self, slot, rest):
        event = dict(zip(EVENT_NAMES, EVENT_REST.unpack(rest)), slot=slot)
        for name in ("name", "secret", "why"):
            event[name] = text(event[name])
        for name in ("wanted", "dialled"):
            event[name] = address(event[name])
        self.events.append(event)

    def _answer(self, kind, slot):
        while True:
            got, number, rest, fds = self._receive()
            if got == EVENT:
                self._event(number, rest)
                continue
            assert (got, number) == (kind, slot), (got, kind, number, slot)
            code, _, message = ERR.unpack_from(rest)
            if code:
                raise Refused(code, text(message))
            return rest[ERR.size:], fds

    def prepare(self, slot, policy, version=1, flags=0, **more):
        spec = json.dumps(dict({"policy": policy, "name": "test"}, **more)).encode()
        fd = memfd(spec)
        self.send(head(PREPARE, slot) + struct.pack("=QII", version, flags, len(spec)), [fd])
        os.close(fd)
        rest, fds = self._answer(PREPARED, slot)
        fields = PREPARED_REST.unpack(rest)
        return {"version": fields[0], "any_port": fields[1], "ports": list(fields[3:3 + fields[2]]),
                "listening": fields[67], "brokers": fields[68],
                "fds": fds}

    def listen(self, slot, listeners):
        """listeners: (port, kind, socket)"""
        body = b"".join(struct.pack("=HBB", port, kind, sock.family) for port, kind,
                        sock in listeners).ljust(4 * LISTENERS_MAX, b"\0")
        self.send(head(LISTEN, slot) + b"sandbox".ljust(32, b"\0") + struct.pack("=II", len(listeners), 0) + body,
                  [s.fileno() for _, _, s in listeners])
        self._answer(LISTENING, slot)

    def _counts(self, kind, answer, slot):
        self.send(head(kind, slot))
        rest, _ = self._answer(answer, slot)
        return dict(zip(COUNT_NAMES, COUNTS.unpack(rest)))

    def count(self, slot):
        return self._counts(COUNT, COUNTED, slot)

    def forget(self, slot):
        return self._counts(FORGET, FORGOTTEN, slot)

    def sync(self):
        self.send(head(SYNC))

    def synced(self):
        self.send(head(SYNCED))

    def wait_event(self, **want):
        """The first event that has these values, of those not returned yet; why: a part of it."""
        until = time.monotonic() + PATIENCE
        while True:
            for event in self.events:
                if all(v in event[k] if k == "why" else event[k] == v for k, v in want.items()):
                    self.events.remove(event)
                    return event
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.control], [], [], left)[0]:
                raise AssertionError(f"no event like {want}; there are {self.events}")
            kind, slot, rest, _ = self._receive()
            assert kind == EVENT, kind
            self._event(slot, rest)

    def drain(self):
        while select.select([self.control], [], [], 0.05)[0]:
            kind, slot, rest, _ = self._receive()
            assert kind == EVENT, kind
            self._event(slot, rest)
        events, self.events = self.events, []
        return events

    def close(self):
        self.parent.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if self.control:
            self.control.close()
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


# ---- a sandbox's network ---------------------------------------------------------------------------------------------


class Inside(Netns):
    """As the helper of the spawner makes it: lo, every address local, listeners on every one."""

    def __init__(self):
        super().__init__("ip route add local 0.0.0.0/0 dev lo", "ip -6 route add local ::/0 dev lo")

    def listener(self, port, host="::", backlog=1024):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = self.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
        return sock

    def listeners(self, ports=(80, 443)):
        udp = self.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        udp.bind(("::", 53))
        return [(port, TCP, self.listener(port)) for port in ports] + [(53, DNS_UDP, udp),
                                                                       (53, DNS_TCP, self.listener(53)),
                                                                       (3128, PROXY, self.listener(3128, "198.18.0.1"))]

    def connect(self, host, port, timeout=PATIENCE):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = self.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        sock.connect((host, port))
        return sock

    def ask(self, name, kind=1, server="198.18.0.1", tcp=False):
        """(rcode, addresses) by a query of our own."""
        query = struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + dns_name(name) + struct.pack(">HH", kind, 1)
        if tcp:
            sock = self.connect(server, 53)
            sock.sendall(struct.pack(">H", len(query)) + query)
            size = struct.unpack(">H", read_exactly(sock, 2))[0]
            answer = read_exactly(sock, size)
        else:
            sock = self.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
            sock.settimeout(PATIENCE)
            sock.connect((server, 53))
            sock.send(query)
            answer = sock.recv(4096)
        sock.close()
        return dns_addresses(answer, len(query))

    def resolve(self, name, kind=1):
        rcode, addresses = self.ask(name, kind)
        assert rcode == 0 and addresses, (name, rcode)
        return addresses[0]


def read_exactly(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise EOFError(f"{len(data)} of {n} bytes")
        data += more
    return data


def read_all(sock):
    data = b""
    while True:
        more = sock.recv(1 << 16)
        if not more:
            return data
        data += more


def dns_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def dns_addresses(answer, at):
    rcode, n = answer[3] & 15, struct.unpack(">H", answer[6:8])[0]
    addresses = []
    for _ in range(n):
        at += 2  # a pointer to the question's name
        kind, _, _, size = struct.unpack(">HHIH", answer[at:at + 10])
        data = answer[at + 10:at + 10 + size]
        at += 10 + size
        if kind in (1, 28):
            addresses.append(socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data))
    return rcode, addresses


# ---- an internet -----------------------------------------------------------------------------------------------------


class Outside(Netns):
    """Hosts at 203.0.113.x and 2001:db8::x, and a name server for them at 203.0.113.53."""

    def __init__(self):
        super().__init__("ip route add local 203.0.113.0/24 dev lo", "ip -6 addr add 2001:db8::10/128 dev lo nodad",
                         "ip route add local 10.0.0.0/8 dev lo",
                         "ip route add local 169.254.0.0/16 dev lo")
        self._wire()
        self.names, self.asked, self._stop = {}, [], []
        self.dns = self.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.dns.bind(("203.0.113.53", 53))
        threading.Thread(target=self._serve_names, daemon=True).start()

    def _wire(self):
        """The host that brig-egress runs on is another one: its own addresses would be refused."""
        self.host = Netns()
        self.call(subprocess.run,
                  f"ip link add w0 type veth peer name h0 netns {self.host.call(threading.get_native_id)}".split(),
                  check=True)
        for netns, commands in ((self, ("ip addr add 198.51.100.2/24 dev w0",
                                        "ip -6 addr add 2001:db8:ffff::2/64 dev w0 nodad", "ip link set w0 up")),
                                (self.host, ("ip addr add 198.51.100.1/24 dev h0",
                                             "ip -6 addr add 2001:db8:ffff::1/64 dev h0 nodad", "ip link set h0 up",
                                             "ip route add default via 198.51.100.2",
                                             "ip -6 route add default via 2001:db8:ffff::2"))):
            for command in commands:
                netns.call(subprocess.run, command.split(), check=True)

    FILES = {"resolv.conf": b"nameserver 203.0.113.53\noptions timeout:2 attempts:2\n",
             "hosts": b"127.0.0.1 localhost\n"}

    def _serve_names(self):
        while True:
            try:
                query, peer = self.dns.recvfrom(4096)
            except OSError:
                return
            if len(query) < 12:
                return
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            kind = struct.unpack(">H", query[at + 1:at + 3])[0]
            question, name = query[12:at + 5], ".".join(labels).lower()
            self.asked.append((name, kind))
            known = self.names.get(name)
            if callable(known):
                known = known()
            records = b""
            n = 0
            for ip in known or ():
                if (":" in ip) != (kind == 28) or kind not in (1, 28):
                    continue
                data = socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
                records += struct.pack(">HHHIH", 0xC00C, kind, 1, 5, len(data)) + data
                n += 1
            flags = 0x8180 | (0 if known is not None else 3)
            try:
                self.dns.sendto(query[:2] + struct.pack(">HHHHH", flags, 1, n, 0, 0) + question + records, peer)
            except OSError:
                return

    def serve(self, host, port, handler, backlog=1024):
        """handler(connection) in a thread per connection."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = self.socket(family, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(backlog)

        def one(conn):
            try:
                handler(conn)
            except OSError:
                pass
            finally:
                conn.close()

        def loop():
            while True:
                try:
                    conn, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(conn,), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        self._stop.append(server)
        return server

    def close(self):
        for sock in (*self._stop, self.dns):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self.host.close()
        super().close()


def http_server(seen):
    """Keep-alive, echoes the request's line and Host; /big: a megabyte; /chunked; /slow."""

    def handler(conn):
        stream = conn.makefile("rwb")
        while True:
            line = stream.readline()
            if not line:
                return
            fields = {}
            while (field := stream.readline().strip()):
                name, value = field.split(b":", 1)
                fields[name.lower().decode()] = value.strip().decode()
            body = b""
            if "content-length" in fields:
                body = stream.read(int(fields["content-length"]))
            elif fields.get("transfer-encoding") == "chunked":
                while (size := int(stream.readline(), 16)):
                    body += stream.read(size)
                    stream.readline()
                stream.readline()
            seen.append((line.decode().strip(), fields, body))
            path = line.split()[1]
            if path == b"/chunked":
                stream.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n"
                             b"0\r\n\r\n")
            elif path == b"/close":
                stream.write(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
                stream.flush()
                return
            else:
                answer = b"x" * (1 << 20) if path == b"/big" else f"{line.decode().strip()} {len(body)}".encode()
                stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
            stream.flush()

    return handler


def make_certificate(directory, *names):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={names[0]}",
                    "-addext", "subjectAltName=" + ",".join(f"DNS:{n}" for n in names), "-keyout",
                    f"{directory}/key.pem", "-out", f"{directory}/cert.pem"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return f"{directory}/cert.pem", f"{directory}/key.pem"


def tls_server(cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def handler(conn):
        with context.wrap_socket(conn, server_side=True) as tls:
            while (data := tls.recv(1 << 16)):
                tls.sendall(data)

    return handler
