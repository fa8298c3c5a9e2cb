# SPDX-License-Identifier: Apache-2.0
"""What previews are tested with: a sandbox that serves, and a WebSocket server for it that is made from the standard
library."""

from helpers import wait_until

# Every path is a conversation of its own. `heard` is what the server has read after its own end.
WEBSOCKET_SERVER = r"""
import base64, hashlib, os, socket, struct, threading, time

class Peer:
    def __init__(self, sock):
        self.sock, self.buffer = sock, b""
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        self.path = lines[0].split()[1]
        fields = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        accept = hashlib.sha1((fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n")
    def more(self):
        data = self.sock.recv(262144)
        if not data:
            raise EOFError
        self.buffer += data
    def take(self, n):
        while len(self.buffer) < n:
            self.more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data
    def frame(self):
        a, b = self.take(2)
        n = b & 0x7f
        if n == 126: n = struct.unpack(">H", self.take(2))[0]
        elif n == 127: n = struct.unpack(">Q", self.take(8))[0]
        assert b & 0x80, "a client masks"
        mask = self.take(4)
        data = self.take(n)
        if mask != b"\0\0\0\0":
            data = bytes(c ^ mask[i % 4] for i, c in enumerate(data))
        return a >> 7, a & 15, data
    def send(self, data, opcode=2, fin=True):
        n = len(data)
        size = (bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536
                else b"\x7f" + struct.pack(">Q", n))
        self.sock.sendall(bytes([(0x80 if fin else 0) | opcode]) + size + data)

def echo(peer):
    whole, kind = b"", 2
    while True:
        fin, opcode, data = peer.frame()
        if opcode == 9: peer.send(data, 10)
        elif opcode == 8: peer.send(data, 8); return
        elif opcode in (0, 1, 2):
            kind = opcode or kind
            whole += data
            if fin:
                peer.send(whole, kind)
                whole = b""

def fragments(peer):
    peer.send(b"one ", 1, False)
    peer.send(b"are you there?", 9)
    assert peer.frame()[1:] == (10, b"are you there?")
    peer.send(b"two ", 0, False)
    peer.send(b"three", 0)
    echo(peer)

def pings(peer):
    every, times = (float(x) for x in peer.path.split("?")[1].split("&")[0].split(","))
    for i in range(int(times)):
        time.sleep(every)
        peer.send(b"%d" % i, 9)
        assert peer.frame()[1:] == (10, b"%d" % i)
    peer.send(b"still here", 1)
    echo(peer)

def firehose(peer):
    for i in range(16):
        peer.send(bytes([i]) * (1 << 20))
    echo(peer)

def ends_first(peer):
    peer.send(b"my last words", 1)
    peer.sock.shutdown(socket.SHUT_WR)
    n, last = len(peer.buffer), b""
    while True:
        data = peer.sock.recv(262144)
        if not data: break
        n, last = n + len(data), data[-4:]
    with open("heard.new", "w") as f: f.write(f"{n} {last.decode()}")
    os.rename("heard.new", "heard")

def ends_last(peer):
    n = len(peer.buffer)
    while True:
        data = peer.sock.recv(262144)
        if not data: break
        n += len(data)
    peer.send(b"%d bytes and then the end" % n, 1)

def serve(sock):
    try:
        peer = Peer(sock)
        globals()[peer.path.split("?")[0].strip("/")](peer)
    except (EOFError, OSError): pass
    finally: sock.close()

s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8080)); s.listen(50)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


# A page with a script and a secret, by a program that would like to be more than its own preview.
PAGE_SERVER = r"""
import http.server
FIELDS = [('Set-Cookie', 'sid=WHO; Path=/'), ('Set-Cookie', 'wide=WHO; Path=/; Domain=localhost; SameSite=Lax'),
          ('Set-Cookie', 'brig_token=stolen; Path=/'), ('Set-Cookie', '__host-Brig_Token=stolen; Path=/'),
          ('Set-Cookie', '=sid=nameless'),
          ('Clear-Site-Data', '"cookies", "storage"'), ('Service-Worker-Allowed', '/'),
          ('Alt-Svc', 'h2="evil.example:443"'),
          ('Strict-Transport-Security', 'max-age=9; includeSubDomains'), ('NEL', '{}'), ('Report-To', '{}')]
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        path = self.path.split('?')[0]
        kind, text = 'text/html', '<title>WHO</title><script src="/app.js"></script><p>secret of WHO</p>'
        if path == '/app.js': kind, text = 'text/javascript', 'window.loaded = "WHO"; window.data = "secret of WHO";'
        elif path == '/seen': kind, text = 'text/plain', self.path + '\n' + str(self.headers)
        elif path == '/healthz': kind, text = 'text/plain', 'the program is well'
        self.send_response(200)
        for name, value in [('Content-Type', kind), ('Content-Length', str(len(text)))] + FIELDS:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8080), H).serve_forever()
"""


def serve(daemon, sandbox, source, *ports, name="serve.py"):
    """Runs the Python text in the sandbox and waits until it listens on the ports."""
    daemon.ask("PUT", f"/v1/sandboxes/{sandbox}/files?path={name}", source.encode())
    daemon.ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"argv": ["python3", name]})
    wait_until("it listens", lambda: set(ports)
               <= {p["port"] for p in daemon.ask("GET", f"/v1/sandboxes/{sandbox}/ports").json["ports"]})
