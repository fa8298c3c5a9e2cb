# SPDX-License-Identifier: Apache-2.0
"""Brokered secrets through the whole of brig-egress, locked down as it is when it serves: names, listeners, proxies,
live policies, counts and events."""

import os
import ssl
import subprocess
import tempfile
import unittest

import brokerkit
from brokerkit import Request, World, placeholder, split
from egresskit import ALLOWED, DENIED, FAILED, Gate, Inside, Outside, read_all
from helpers import PATIENCE
from jailkit import needs_root
from test_broker import TOKEN, echo

API, ADDRESS, OTHER = "api.example", "203.0.113.20", "other.example"
KEYS = b"k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"  # the driver's
RULES = [{"action": "allow", "domain": API, "methods": ["GET", "POST"]}, {"action": "allow", "domain": OTHER}]


@needs_root
class EgressBroker(unittest.TestCase):
    slot = 500

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.world = World(cls.directory.name)
        cls.requests = []
        cls.out = Outside()
        cls.out.names.update({API: [ADDRESS], OTHER: [ADDRESS]})
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*cls.world.certificate(API, OTHER))

        def serve(raw):
            with context.wrap_socket(raw, server_side=True) as sock, sock.makefile("rb") as stream:
                while request := Request.read(stream, sock):
                    cls.requests.append(request)
                    sock.sendall(echo(request))
        cls.out.serve(ADDRESS, 443, serve)
        cls.gate = Gate(cls.out, {**Outside.FILES, "ca": cls.world.ca.read_bytes(), "keys": KEYS})

    @classmethod
    def tearDownClass(cls):
        log = cls.gate.close()
        cls.out.close()
        cls.directory.cleanup()
        assert log == "" and cls.gate.process.returncode == 0, (cls.gate.process.returncode, log)

    def setUp(self):
        self.requests.clear()
        self.inside = Inside()
        self.addCleanup(self.inside.close)
        EgressBroker.slot += 1
        self.slot, self.mark = EgressBroker.slot, placeholder()
        sealed = subprocess.run([brokerkit.DRIVER, "seal", "org|TOKEN"], input=TOKEN.encode(), check=True,
                                stdout=subprocess.PIPE, timeout=PATIENCE).stdout
        self.secrets = [{"name": "TOKEN", "placeholder": self.mark,
                         "broker": {"hosts": [API], "header": "Authorization", "format": "Bearer %s"},
                         **brokerkit.json.loads(sealed)}]
        answer = self.gate.prepare(self.slot, {"rules": RULES}, secrets=self.secrets)
        self.assertEqual(answer["brokers"], 1)
        with os.fdopen(answer["fds"][0]) as file:
            file.seek(0)
            self.authority = file.read()
        listeners = self.inside.listeners((80, 443))
        self.gate.listen(self.slot, listeners)
        for _, _, sock in listeners:
            sock.close()
        self.addCleanup(self.forget)

    def forget(self):
        self.gate.forget(self.slot)
        self.gate.events.clear()

    def tls(self, sock, name, trust=None):
        context = ssl.create_default_context(cadata=trust or self.authority)
        return context.wrap_socket(sock, server_hostname=name)

    def get(self, sock, name=API, method="GET", close=True):
        sock.sendall(f"{method} /x HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {self.mark}\r\n"
                     f"{'Connection: close' if close else 'X: y'}\r\n\r\n".encode())
        return split(read_all(sock))

    def test_by_name(self):
        with self.tls(self.inside.connect(self.inside.resolve(API), 443), API) as sock:
            status, _, body = self.get(sock)
        self.assertEqual(status, "200 OK")
        self.assertEqual(self.requests[0].get("Authorization"), f"Bearer {TOKEN}")
        self.assertNotIn(TOKEN.encode(), body)
        self.assertIn(self.mark.encode(), body)
        event = self.gate.wait_event(verdict=ALLOWED, secret="TOKEN")
        self.assertEqual((event["name"], event["dialled"]), (API, ADDRESS))
        counts = self.gate.count(self.slot)
        self.assertEqual((counts["substituted"], counts["foreign"], counts["scrubbed"]), (1, 0, 1))

    def test_through_the_proxy(self):
        sock = self.inside.connect("198.18.0.1", 3128)
        sock.sendall(f"CONNECT {API}:443 HTTP/1.1\r\nHost: {API}:443\r\n\r\n".encode())
        self.assertIn(b" 200 ", sock.recv(4096))
        with self.tls(sock, API) as sock:
            self.assertEqual(self.get(sock)[0], "200 OK")
        self.assertEqual(self.requests[0].get("Authorization"), f"Bearer {TOKEN}")

    def test_another_host_gets_the_placeholder(self):
        with self.tls(self.inside.connect(self.inside.resolve(OTHER), 443), OTHER, self.world.ca.read_text()) as sock:
            sock.sendall(f"GET /x HTTP/1.1\r\nHost: {OTHER}\r\nAuthorization: Bearer {self.mark}\r\n"
                         f"Content-Length: 0\r\n\r\n".encode())
            self.assertIn(self.mark.encode(), sock.recv(65536))
        self.assertEqual(self.requests[0].get("Authorization"), f"Bearer {self.mark}")

    def test_requests_are_judged_and_policies_change(self):
        address = self.inside.resolve(API)
        with self.tls(self.inside.connect(address, 443), API) as sock:
            status, _, body = self.get(sock, method="DELETE")
        self.assertEqual(status, "403 Forbidden")
        self.assertTrue(body.startswith(b"brig: denied: "), body)
        self.gate.wait_event(verdict=DENIED, secret="")
        self.assertEqual(self.requests, [])
        with self.tls(self.inside.connect(address, 443), API) as sock:
            sock.sendall(f"GET /x HTTP/1.1\r\nHost: {API}\r\n\r\n".encode())
            self.assertIn(b"200 OK", sock.recv(65536))
            self.gate.prepare(self.slot, {"rules": [{"action": "allow", "domain": API, "methods": ["POST"]}]},
                              version=2, secrets=self.secrets)
            try:
                sock.sendall(f"GET /y HTTP/1.1\r\nHost: {API}\r\n\r\n".encode())
                answer = read_all(sock)
            except OSError:
                answer = b""
        self.assertNotIn(b"200 OK", answer)
        self.assertEqual([r.target for r in self.requests], ["/x"])

    def test_another_bundle_is_used_from_then_on(self):
        with tempfile.TemporaryDirectory() as where:
            self.gate.file("ca", World(where).ca.read_bytes())
        self.addCleanup(self.gate.file, "ca", self.world.ca.read_bytes())
        self.gate.ping()
        with self.tls(self.inside.connect(self.inside.resolve(API), 443), API) as sock:
            status, _, body = self.get(sock)
        self.assertEqual(status, "502 Bad Gateway")
        self.assertIn(b"certificate", body)
        self.gate.wait_event(verdict=FAILED)
        self.assertEqual(self.requests, [])

    def test_keys_that_are_gone_open_nothing(self):
        self.gate.file("keys", KEYS.replace(b"k1:0001", b"k1:ff01"))
        self.addCleanup(self.gate.file, "keys", KEYS)
        self.gate.ping()
        with self.tls(self.inside.connect(self.inside.resolve(API), 443), API) as sock:
            status, _, body = self.get(sock)
        self.assertEqual((status, body), ("502 Bad Gateway", b"brig: secret TOKEN cannot be opened\n"))
        self.assertEqual(self.requests, [])


if __name__ == "__main__":
    unittest.main()
