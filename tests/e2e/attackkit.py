# SPDX-License-Identifier: Apache-2.0
"""What the attacks on the gate share: INSIDE, a vocabulary for hostile programs (it is the head of every script that
runs in a sandbox), a capture of everything on the wire, and the table of rows that is printed at the end of a class.

What an attack gets is one word or one line, always spelled alike, so that a test can say exactly what it must be:

    ECONNREFUSED, ...       connect() failed so
    reset, closed, silence  accepted; then a reset, an end without a byte, nothing at all
    403 brig: ...           an answer in HTTP: status and body
    tls, alert              bytes of TLS came back: a server was there
"""

import json
import os
import socket
import struct
import sys
import threading
import time

from helpers import wait_until
from internet import DNS, PUBLIC, PUBLIC6
from jailkit import BUILD
from service import Daemon

INSIDE = r'''
import errno, json, os, select, socket, ssl, struct, sys, threading, time
T = 25
TYPES = {"A": 1, "NS": 2, "CNAME": 5, "NULL": 10, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "NAPTR": 35, "HTTPS": 65,
         "ANY": 255, "AXFR": 252}
RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}

def word(e):
    if isinstance(e, socket.gaierror):
        return {socket.EAI_AGAIN: "EAI_AGAIN", socket.EAI_NONAME: "EAI_NONAME", socket.EAI_FAIL: "EAI_FAIL",
                -5: "EAI_NODATA"}.get(e.errno, str(e))
    return ("reset" if e.errno == errno.ECONNRESET else "silence" if isinstance(e, TimeoutError)
            else errno.errorcode.get(e.errno, repr(e)))

def family(ip):
    return socket.AF_INET6 if ":" in ip else socket.AF_INET

def read_all(s):
    data = b""
    while True:
        try:
            piece = s.recv(65536)
        except OSError as e:
            return data, word(e)
        if not piece:
            return data, "closed"
        data += piece
        if data[0] in (0x15, 0x16):  # a server has begun to speak TLS: that says it all
            return data, "tls"

def answers(data):
    """The responses of a connection: status and body."""
    found = []
    while data.startswith(b"HTTP/1."):
        head, _, rest = data.partition(b"\r\n\r\n")
        length = [int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length:")]
        n = length[0] if length else 0
        found.append((head.split(b" ")[1] + b" " + rest[:n].strip()).decode("latin-1").strip())
        data = rest[n:]
    return found

def told(data, how):
    if data[:1] in (b"\x16", b"\x15"):
        return "tls" if data[:1] == b"\x16" else "alert"
    return "; ".join(answers(data)) or (data[:80].decode("latin-1") if data else how)

def dial(to, port):
    return socket.create_connection((to, port), T)

def say(to, port, *pieces, pause=0.0, shut=True):
    """What is answered to these bytes."""
    try:
        s = dial(to, port)
    except OSError as e:
        return word(e)
    try:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            s.sendall(piece if isinstance(piece, bytes) else piece.encode("latin-1"))
            time.sleep(pause)
        if shut:
            s.shutdown(socket.SHUT_WR)
    except OSError:  # the reset was there before all was said; reading would tell of an end
        data, _ = read_all(s)
        return told(data, "reset")
    with s:
        return told(*read_all(s))

def get(to, host=None, port=80, path="/", version="1.1", more="", **kw):
    said = to if host is None else host
    said = f"[{said}]" if said.count(":") > 1 and "\r" not in said else said
    return say(to, port, f"GET {path} HTTP/{version}\r\n" + (f"Host: {said}\r\n" if said != "" else "")
               + f"{more}Connection: close\r\n\r\n", shut=False, **kw)

def extension(kind, data):
    return struct.pack(">HH", kind, len(data)) + data

def hello(*names, version=0x0303, record=0x0301, more=b"", list_type=0):
    """A ClientHello with these server names, as bytes; without any, one without the extension."""
    entries = b"".join(struct.pack(">BH", list_type, len(n)) + n
                       for n in (x if isinstance(x, bytes) else x.encode("latin-1") for x in names))
    ext = extension(0, struct.pack(">H", len(entries)) + entries) if names else b""
    ext += extension(10, struct.pack(">HH", 2, 0x17)) + extension(11, b"\1\0")
    ext += extension(13, struct.pack(">HH", 2, 0x0403)) + more
    body = (struct.pack(">H", version) + os.urandom(32) + b"\0" + struct.pack(">HHH", 4, 0xc02b, 0xc02f)
            + b"\1\0" + struct.pack(">H", len(ext)) + ext)
    message = b"\1" + struct.pack(">I", len(body))[1:] + body
    return struct.pack(">BHH", 22, record, len(message)) + message

def tls(to, *names, port=443, pause=0.0, **kw):
    return say(to, port, hello(*names, **kw), shut=False, pause=pause)

def encode(name):
    return b"".join(bytes([len(l)]) + l for l in (x.encode("latin-1") for x in name.rstrip(".").split("."))) + b"\0"

def question(name, kind="A", count=1, more=b"", additional=0, flags=0x0100, klass=1):
    question = encode(name) + struct.pack(">HH", TYPES.get(kind, kind), klass)
    return struct.pack(">HHHHHH", 0x4242, flags, count, 0, 0, additional) + question * count + more

def verdict(data):
    """The rcode of an answer, or the address in it."""
    rcode, count, at = data[3] & 15, struct.unpack(">H", data[6:8])[0], 12
    if rcode or not count:
        return RCODES.get(rcode, str(rcode)) + ("" if rcode else " empty")
    while data[at]:
        at += 1 + data[at]
    at += 5  # the question; then a record, whose name is a pointer
    size, = struct.unpack(">H", data[at + 10:at + 12])
    return socket.inet_ntop(socket.AF_INET6 if size == 16 else socket.AF_INET, data[at + 12:at + 12 + size])

def udp(to, port, data):
    s = socket.socket(family(to), socket.SOCK_DGRAM)
    s.settimeout(T)
    try:
        s.connect((to, port))
        s.send(data)
        return s.recv(4096)
    except OSError as e:
        return word(e)

def dns(name, kind="A", server="198.18.0.1", **kw):
    got = udp(server, 53, question(name, kind, **kw))
    return verdict(got) if isinstance(got, bytes) else got

def dns_tcp(*messages, server="198.18.0.1"):
    s = dial(server, 53)
    s.sendall(b"".join(struct.pack(">H", len(m)) + m for m in messages))
    s.shutdown(socket.SHUT_WR)
    data, how = read_all(s)
    found = []
    while len(data) > 2:
        n = struct.unpack(">H", data[:2])[0]
        found.append(verdict(data[2:2 + n]))
        data = data[2 + n:]
    return found or how

def look_up(name, kind=0):
    try:
        return sorted({a[4][0] for a in socket.getaddrinfo(name, 80, kind, socket.SOCK_STREAM)})[0]
    except OSError as e:
        return word(e)

def sock(*args):
    try:
        socket.socket(*args).close()
        return "made"
    except OSError as e:
        return word(e)

def attempt(function, *args):
    try:
        function(*args)
        return "done"
    except OSError as e:
        return word(e)

def socks(*messages):
    """The bytes a SOCKS5 server answers, in hex, and how it ended."""
    s = dial("198.18.0.1", 3128)
    try:
        for m in messages:
            s.sendall(m)
        s.shutdown(socket.SHUT_WR)
    except OSError:  # it has answered and gone
        data, _ = read_all(s)
        return data.hex() + (" closed" if data else " reset")
    data, how = read_all(s)
    return data.hex() + " " + ("closed" if data else how)

def at_once(*functions):
    """Their results, of threads."""
    results = [None] * len(functions)
    def one(i): results[i] = functions[i]()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(functions))]
    for t in threads: t.start()
    for t in threads: t.join()
    return results

def tell(*results, **named):
    print(json.dumps(named or list(results)))
'''


# ---- the wire -------------------------------------------------------------------------------------------------------


class Capture:
    """Every packet of every interface of a network namespace, but for what IPv6 does by itself (neighbours, routers,
    multicast groups), and for the rest of connections that are there already: those of the test before are still being
    closed."""

    def __init__(self, namespace):
        self.old = namespace.inside(self.connections)
        self.sock = namespace.inside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        self.sock.settimeout(0.05)
        self.packets, self.stopping = [], 0
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    @staticmethod
    def connections():
        """Pairs of ports of the connections of this thread's network namespace."""
        rows = []
        for table in ("tcp", "tcp6"):
            with open(f"/proc/thread-self/net/{table}", encoding="ascii") as f:
                rows += [line.split() for line in f.readlines()[1:]]
        return {frozenset(int(where.rpartition(":")[2], 16) for where in row[1:3]) for row in rows}

    def _work(self):
        while not self.stopping or time.monotonic() < self.stopping:
            try:
                data, where = self.sock.recvfrom(200)
            except TimeoutError:
                if self.stopping:
                    return
                continue
            packet = self.read(data, where[1])
            if packet and packet[2] == 6 and frozenset(packet[3:]) in self.old:
                continue
            if packet:
                self.packets.append((where[0], *packet[:4]))

    @staticmethod
    def read(data, kind):
        """(source, destination, protocol, destination port, source port)"""
        if kind == 0x0800 and len(data) >= 20:
            family, size, at, proto = socket.AF_INET, 4, 12, data[9]
            rest = data[(data[0] & 15) * 4:]
        elif kind == 0x86DD and len(data) >= 40:
            family, size, at, proto = socket.AF_INET6, 16, 8, data[6]
            rest = data[40:]
            if proto in (0, 58) and (proto == 0 or rest[:1] in b"\x85\x86\x87\x88\x89\x8f"):
                return None
        else:
            return None
        source, port = struct.unpack(">HH", rest[:4]) if proto in (6, 17) and len(rest) >= 4 else (0, 0)
        return socket.inet_ntop(family, data[at:at + size]), socket.inet_ntop(
            family, data[at + size:at + 2 * size]), proto, port, source

    def stop(self):
        self.stopping = time.monotonic() + 0.5  # what is in the queue is still read
        self.thread.join()
        self.sock.close()
        return self.packets


# ---- a table --------------------------------------------------------------------------------------------------------


class Attack:
    """Mixed into a class with a daemon `d` in the internet NET: rows, and what must hold for each of them."""

    KIND, USER = "", None
    NET = None
    TABLE = boxes = d = None

    @classmethod
    def setUpClass(cls):
        cls.TABLE, cls.boxes = [], {}
        key = os.path.join(cls.NET.dir, f"keys-{cls.KIND}")
        with open(key, "w", encoding="ascii") as f:
            f.write("k1:" + "42" * 32 + "\n")
        os.chmod(key, 0o600)
        os.chown(key, cls.USER or 0, cls.USER or 0)
        gate = {k: v for k, v in cls.NET.environment().items() if k.startswith("BRIG_GATE_")}
        cls.d = cls.NET.here.inside(lambda: Daemon(f'[secrets]\nkey_file = "{key}"\n[store]\nsuspicious_count = 1000\n',
                                                   env=gate, user=cls.USER))
        cls.addClassCleanup(cls.d.close)
        cls.addClassCleanup(cls.print_table)

    def setUp(self):
        del self.NET.asked[:], self.NET.seen[:], self.NET.reached[:]
        self.capture = Capture(self.NET.here)

    @classmethod
    def print_table(cls):
        """On stderr, and, since the test driver keeps that to itself, in the build directory."""
        lines = [f"{row} {what:<18} {cls.KIND:<8} {outcome}"[:200] for row, what, outcome in sorted(cls.TABLE)]
        print(*lines, sep="\n", file=sys.stderr)
        try:
            with open(os.path.join(BUILD, f"{cls.__module__}-{cls.KIND}.txt"), "w", encoding="utf-8") as f:
                print(*lines, sep="\n", file=f)
        except OSError:
            pass

    def row(self, row, what, *outcomes):
        self.TABLE.append((row, what, "refused: " + " | ".join(outcomes)))

    @staticmethod
    def key(network, **members):
        return json.dumps([network, members], sort_keys=True)

    def box(self, network="none", **members):
        """A sandbox with this network; the same one for the same network."""
        key = self.key(network, **members)
        if key not in self.boxes:
            self.boxes[key] = self.d.create(network=network, **members)["id"]
        return self.boxes[key]

    def inside(self, network, script, **members):
        """What a script tells in a sandbox with this network."""
        return self.told(self.d.run(self.box(network, **members), "/usr/bin/python3", "-I", "-S", "-c",
                                    INSIDE + script))

    def attack(self, network, cases, setup="", **members):
        """Expressions of INSIDE and what each must come to."""
        got = self.inside(network, f"{setup}\nprint(json.dumps([eval(x) for x in {list(cases)!r}]))", **members)
        wrong = [f"{x}\n    is     {g}\n    not    {cases[x]}" for x, g in zip(cases, got) if g != cases[x]]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))
        return list(dict.fromkeys(str(outcome) for outcome in cases.values() if outcome is not True))

    def told(self, done):
        self.assertEqual(done["outcome"]["exit_code"], 0, done["stderr"][-2000:])
        return json.loads(done["stdout"].splitlines()[-1])

    def nothing_left(self, seen=(), reached=None, asked=(), may=(DNS, PUBLIC, PUBLIC6)):
        """What came out: exactly these requests ("label path"), only these questions, and no packet to anywhere
        else."""
        wanted = list(seen)
        if wanted:
            wait_until("what is allowed has arrived", lambda: len(self.NET.seen) >= len(wanted))
        self.assertEqual(sorted(f"{host} {path}" for _, host, path, _, _ in self.NET.seen), sorted(wanted))
        if reached is not None:
            self.assertEqual(sorted(self.NET.reached), sorted(reached))
        self.assertEqual({name for name, _ in self.NET.asked} - set(asked), set(), "these questions left")
        own = ("203.0.113.1", "2001:db8:77::1")
        packets = self.capture.stop()
        strays = {p for p in packets if not (p[2] in may or (p[1] in may and p[2] in own))}
        self.assertEqual(strays, set(), "these packets left")
        return packets

    def tearDown(self):
        if not self.capture.stopping:
            self.capture.stop()
