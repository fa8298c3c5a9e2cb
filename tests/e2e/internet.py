# SPDX-License-Identifier: Apache-2.0
"""An internet for the tests of the gate, in two network namespaces of our own, and nothing of this machine's network:

    here    where brig and brig-egress run: `lo` and one end of a veth, 203.0.113.1 (a documentation range, which counts
            as public)
    there   the other end, with the addresses of the world: an authoritative DNS server, web servers with certificates
            of a test CA

    public   203.0.113.10, .11, .53 (DNS)   2001:db8:77::10, ::11
    private  10.77.0.10, 192.168.77.10      fd77::10                  to be refused unless a policy names them

Names live in Internet.zone: name -> list of addresses, or a function (type) -> list, or ("CNAME", name). Every question
that arrives is in Internet.asked, every connection in Internet.reached, every request in Internet.seen: what must not
leave is asserted there.
"""

import ctypes
import http.server
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading

from helpers import PATIENCE, environment, wait_until

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
A, CNAME, TXT, AAAA = 1, 5, 16, 28
PUBLIC, OTHER, DNS = "203.0.113.10", "203.0.113.11", "203.0.113.53"
PUBLIC6, OTHER6 = "2001:db8:77::10", "2001:db8:77::11"
PRIVATE = ("10.77.0.10", "192.168.77.10", "169.254.169.254", "100.64.77.10")
PRIVATE6 = ("fd77::10",)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def setns(fd):
    _check(LIBC.setns(fd, CLONE_NEWNET), "setns")


class Namespace:
    """A network namespace that lives as long as this object; made by a thread, since a thread can have one of its
    own."""

    def __init__(self):
        self.fd = self.inside(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC), new=True)
        self.run("ip", "link", "set", "lo", "up")

    def inside(self, function, new=False):
        """What the function returns, called by a thread in this namespace: its sockets stay there."""
        result = {}

        def work():
            try:
                if new:
                    _check(LIBC.unshare(CLONE_NEWNET), "unshare")
                else:
                    setns(self.fd)
                result["value"] = function()
            except BaseException as why:  # pylint: disable=broad-except
                result["why"] = why

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
        if "why" in result:
            raise result["why"]
        return result["value"]

    def enter(self):
        """For preexec_fn of a child."""
        setns(self.fd)

    def run(self, *argv):
        done = subprocess.run(argv, preexec_fn=self.enter, capture_output=True, text=True, timeout=PATIENCE,
                              check=False,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        if done.returncode != 0:
            raise AssertionError(f"{argv}: {done.stderr}")
        return done.stdout

    def popen(self, *argv, **kw):
        return subprocess.Popen(argv, preexec_fn=self.enter, **kw)

    def listen(self, address, port, kind=socket.SOCK_STREAM):
        def make():
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if ":" in address:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.bind((address, port))
            if kind == socket.SOCK_STREAM:
                s.listen(512)
            return s

        return self.inside(make)

    def close(self):
        os.close(self.fd)


# ---- certificates ---------------------------------------------------------------------------------------------------


class Authority:
    """A test CA, and certificates of it, by the openssl command."""

    def __init__(self, directory):
        self.dir = directory
        self.ca = f"{directory}/ca.pem"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                      f"{directory}/ca.key", "-out", self.ca,
                      "-subj", "/CN=brig test authority", "-days", "30", "-addext",
                      "keyUsage=critical,keyCertSign,cRLSign")
        self.made = {}

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, capture_output=True, timeout=PATIENCE,
                       env={"PATH": "/usr/bin:/bin", "HOME": self.dir})

    def certificate(self, *names):
        """(certificate with chain, key) for these names."""
        if names not in self.made:
            at = f"{self.dir}/leaf{len(self.made)}"
            self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                          f"{at}.key", "-out", f"{at}.csr", "-subj",
                          f"/CN={names[0][:60]}")
            with open(f"{at}.ext", "w", encoding="ascii") as f:
                f.write("subjectAltName=" + ",".join(("IP:" if n.replace(".", "").isdigit() or ":" in n else "DNS:") + n
                                                     for n in names) + "\n")
            self._openssl("x509", "-req", "-in", f"{at}.csr", "-CA", self.ca, "-CAkey", f"{self.dir}/ca.key",
                          "-CAcreateserial", "-out", f"{at}.pem",
                          "-days", "20", "-extfile", f"{at}.ext")
            self.made[names] = (f"{at}.pem", f"{at}.key")
        return self.made[names]


# ---- DNS ------------------------------------------------------------------------------------------------------------


def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split(".")) + b"\0"


def decode_name(data, at):
    labels = []
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return ".".join(labels).lower(), at + 1


class DnsServer:
    """Authoritative for Internet.zone, over UDP and TCP."""

    def __init__(self, internet, address, port=53):
        self.internet = internet
        self.udp = internet.there.listen(address, port, socket.SOCK_DGRAM)
        self.tcp = internet.there.listen(address, port)
        for work in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=work, daemon=True).start()

    def answer(self, query, truncate=False):
        number, = struct.unpack_from(">H", query)
        name, at = decode_name(query, 12)
        kind, = struct.unpack_from(">H", query, at)
        question = query[12:at + 4]
        self.internet.asked.append((name, kind))
        records, rcode, ttl = [], 0, 0
        while True:
            found = self.internet.zone.get(name)
            if callable(found):
                found = found(kind)
            if isinstance(found, tuple) and found and found[0] == "CNAME":
                records.append(encode_name(name) + struct.pack(">HHIH", CNAME, 1, ttl, len(encode_name(found[1])))
                               + encode_name(found[1]))
                name = found[1]
                continue
            break
        if found is None:
            rcode = 3
        for address in found or ():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (AAAA if family == socket.AF_INET6 else A):
                data = socket.inet_pton(family, address)
                records.append(encode_name(name) + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data)
        if truncate and len(records) > 20:
            return struct.pack(">HHHHHH", number, 0x8780, 1, 0, 0, 0) + question
        return struct.pack(">HHHHHH", number, 0x8580 | rcode, 1, len(records), 0, 0) + question + b"".join(records)

    def _serve_udp(self):
        while True:
            try:
                query, peer = self.udp.recvfrom(4096)
                self.udp.sendto(self.answer(query, truncate=True), peer)
            except OSError:
                return
            except (IndexError, struct.error):
                continue

    def _serve_tcp(self):
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.settimeout(5)
                    length, = struct.unpack(">H", connection.recv(2, socket.MSG_WAITALL))
                    said = self.answer(connection.recv(length, socket.MSG_WAITALL))
                    connection.sendall(struct.pack(">H", len(said)) + said)
                except (OSError, IndexError, struct.error):
                    continue

    def close(self):
        for s in (self.udp, self.tcp):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()


# ---- the web --------------------------------------------------------------------------------------------------------


class Pages(http.server.BaseHTTPRequestHandler):
    """GET anything: says what came. /bytes/N: N bytes. /status/N, /redirect?to=URL, /echo (the request's body or
    headers)."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        body = b""
        if "Content-Length" in self.headers:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        elif self.headers.get("Transfer-Encoding", "") == "chunked":
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    break
        self.server.internet.seen.append((self.command, self.headers.get("Host"), self.path, dict(self.headers), body))
        path = self.path.split("?")[0]
        status, more, said = (200, [],
                              f"{self.server.label} {self.command} {self.headers.get('Host')} {self.path}\n".encode())
        if path.startswith("/bytes/"):
            said = b"x" * int(path.split("/")[2])
        elif path.startswith("/status/"):
            status = int(path.split("/")[2])
        elif path == "/redirect":
            status, more = 302, [("Location", self.path.split("to=", 1)[1])]
        elif path == "/echo":
            said = body if body else str(self.headers).encode()
        self.send_response(status)
        for name, value in more:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_GET


class WebServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, internet, address, port, label, certificate=None, handler=Pages):
        self.internet, self.label, self.reached = internet, label, getattr(internet, "reached", [])
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = internet.there.listen(address, port)
        self.lock, self.server_address = threading.Lock(), (address, port)
        self.server_name, self.server_port = address, port
        self.context, self.peers, self.ended = None, [], 0
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
            self.context.set_alpn_protocols(["http/1.1"])
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def get_request(self):
        request, peer = super().get_request()
        self.reached.append((self.label, self.server_port))
        self.peers.append(peer[:2])
        return request, peer

    def shutdown_request(self, request):
        """Called once for each connection that was taken, when it has been served."""
        super().shutdown_request(request)
        with self.lock:
            self.ended += 1

    def drain(self):
        """Waits until every connection that was made before this call has been served to its end: they are taken in
        their order, so one of our own is the last of them."""
        last = self.internet.there.inside(lambda: socket.create_connection(self.server_address[:2], PATIENCE))
        peer = last.getsockname()[:2]
        last.close()
        wait_until("the last connection has been taken", lambda: peer in self.peers)
        self.reached.remove((self.label, self.server_port))  # ours does not count
        wait_until("every connection has been served", lambda: self.ended == len(self.peers))

    def finish_request(self, request, client_address):
        if self.context:
            request.settimeout(PATIENCE)
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.shutdown()
        self.server_close()


# ---- all of it ------------------------------------------------------------------------------------------------------


class Internet:
    """Use as a class fixture; close() at the end. The gate finds it by environment()."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="brig-internet-")
        os.chmod(self.dir, 0o755)
        self.here, self.there = Namespace(), Namespace()
        self.asked, self.seen, self.reached, self.servers = [], [], [], []
        self.zone = {"allowed.test": [PUBLIC, PUBLIC6], "www.allowed.test": [PUBLIC], "other.test": [OTHER, OTHER6],
                     "private.test": [PRIVATE[0]],
                     "metadata.test": [PRIVATE[2]], "private6.test": [PRIVATE6[0]], "loop.test": ["127.0.0.1"],
                     "loop6.test": ["::1"],
                     "alias.test": ("CNAME", "allowed.test"), "inner.test": ("CNAME", "private.test"),
                     "v6.test": [PUBLIC6]}
        self._wire()
        self.authority = Authority(self.dir)
        self.dns = DnsServer(self, DNS)

    def _wire(self):
        self.here.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "world0")
        # the peer is moved by descriptor: ip wants a name or a pid, so a short-lived process in the other namespace
        # stands for it
        holder = self.there.popen("sleep", "60", stdin=subprocess.DEVNULL)
        try:
            self.here.run("ip", "link", "set", "world0", "netns", str(holder.pid))
        finally:
            holder.kill()
            holder.wait()
        self.here.run("ip", "addr", "add", "203.0.113.1/24", "dev", "up0")
        self.here.run("ip", "-6", "addr", "add", "2001:db8:77::1/64", "dev", "up0", "nodad")
        self.here.run("ip", "link", "set", "up0", "up")
        for address in (PUBLIC, OTHER, DNS):
            self.there.run("ip", "addr", "add", f"{address}/24", "dev", "world0")
        for address in PRIVATE:
            self.there.run("ip", "addr", "add", f"{address}/32", "dev", "world0")
        for address in (PUBLIC6, OTHER6):
            self.there.run("ip", "-6", "addr", "add", f"{address}/64", "dev", "world0", "nodad")
        for address in PRIVATE6:
            self.there.run("ip", "-6", "addr", "add", f"{address}/128", "dev", "world0", "nodad")
        self.there.run("ip", "link", "set", "world0", "up")
        # everything else is there too, so that what is refused is refused by the gate and not by the want of a route
        self.here.run("ip", "route", "add", "default", "via", PUBLIC)
        self.here.run("ip", "-6", "route", "add", "default", "via", PUBLIC6)

    def web(self, address, port, label, *names, handler=Pages):
        """A server; with names one that speaks TLS."""
        server = WebServer(self, address, port, label, self.authority.certificate(*names) if names else None, handler)
        self.servers.append(server)
        return server

    def usual(self):
        """allowed.test and other.test on 80 and 443, both families; the private addresses on 80 and 443."""
        for address in (PUBLIC, PUBLIC6):
            self.web(address, 80, "allowed")
            self.web(address, 443, "allowed", "allowed.test", "www.allowed.test", "alias.test", "v6.test")
        for address in (OTHER, OTHER6):
            self.web(address, 80, "other")
            self.web(address, 443, "other", "other.test")
        for address in PRIVATE + PRIVATE6:
            self.web(address, 80, "private")
            self.web(address, 443, "private", "private.test", "metadata.test", "inner.test")
        return self

    def resolv_conf(self):
        return f"{DNS}#53"

    def environment(self, **more):
        """Of a brig that is to live in `here`."""
        return environment(BRIG_GATE_RESOLVERS=f"{DNS}#53", BRIG_GATE_CA_BUNDLE=self.authority.ca, **more)

    def close(self):
        for server in self.servers:
            server.close()
        self.dns.close()
        self.here.close()
        self.there.close()
        shutil.rmtree(self.dir, ignore_errors=True)
