# SPDX-License-Identifier: Apache-2.0
"""Previews: where browsers are sent and what they may bring; whole WebSocket conversations through a sandbox's port, in
both directions, slowly, and to each side's end."""

import os
import select
import socket
import ssl
import tempfile
import unittest

from egresskit import make_certificate
from helpers import wait_until
from previewkit import PAGE_SERVER, WEBSOCKET_SERVER, serve
from service import Daemon, ServiceTest


class Tunnels(ServiceTest):
    # Every time that the server gives a request is much shorter than the conversations here.
    CONFIG = "[server]\nheader_timeout = '300ms'\nbody_timeout = '300ms'\nidle_timeout = '300ms'\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sid = cls.d.create(idle_timeout=3600)["id"]
        serve(cls.d, cls.sid, WEBSOCKET_SERVER, 8080)
        cls.token = cls.d.ask("POST", f"/v1/sandboxes/{cls.sid}/ports/8080/token", {}).json["token"]

    def open(self, path, **kw):
        w = self.d.websocket(f"/v1/sandboxes/{self.sid}/proxy/8080/{path}", **kw)
        self.addCleanup(w.close)
        self.assertEqual(w.status, 101, w.head)
        return w

    def converse(self, w):
        for i in range(20):
            w.send(f"message {i}")
            self.assertEqual(w.receive(), (1, f"message {i}".encode()))
        w.send(b"\x03\xe8bye", opcode=8)
        self.assertEqual(w.receive(), (8, b"\x03\xe8bye"))
        with self.assertRaises(ConnectionError):
            w.receive()

    def test_a_conversation(self):
        self.converse(self.open("echo"))
        self.converse(self.open(f"echo?brig_token={self.token}", tcp=True))

    def test_by_host_name(self):
        host = f"8080-{self.sid}.localhost:{self.d.port}"
        w = self.d.websocket(f"/echo?brig_token={self.token}", True, {"Origin": f"http://{host}"}, host)
        self.addCleanup(w.close)
        self.converse(w)

    def test_fragments_and_pings_of_both_sides(self):
        w = self.open("fragments")
        pieces = []
        while not pieces or len(b"".join(pieces)) < len(b"one two three"):
            pieces.append(w.receive()[1])  # the ping between them is answered on the way
        self.assertEqual(pieces, [b"one ", b"two ", b"three"])
        w.send("the ", fin=False)
        w.send(b"now", opcode=9)
        self.assertEqual(w.receive(), (10, b"now"))
        w.send(b"other ", opcode=0, fin=False)
        w.send(b"way", opcode=0)
        self.assertEqual(w.receive(), (1, b"the other way"))
        self.converse(w)

    def test_idle_with_pings_for_longer_than_every_time_limit(self):
        w = self.open("pings?0.5,5")
        self.assertEqual(w.receive(), (1, b"still here"))
        self.converse(w)

    def test_big_messages(self):
        w = self.open("echo")
        data = os.urandom(1 << 20) * 8
        w.sock.settimeout(60)
        w.send(data)
        self.assertEqual(w.receive(), (2, data))
        self.converse(w)

    def test_a_slow_reader_gets_every_byte(self):
        w = self.open("firehose")
        got, want = 0, 16 * ((1 << 20) + 10)
        w.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while got + len(w.buffer) < want:
            self.assertEqual(self.d.ask("GET", "/readyz").status, 200)  # nobody waits for a slow one
            data = w.sock.recv(100000)
            self.assertTrue(data, "cut off")
            got += len(data)
        w.buffer = b""
        self.converse(w)

    def test_the_programs_end_leaves_the_client_its_own(self):
        self.d.ask("DELETE", f"/v1/sandboxes/{self.sid}/files?path=heard")
        w = self.open("ends_first")
        self.assertEqual(w.receive(), (1, b"my last words"))
        with self.assertRaises(ConnectionError):
            w.receive()
        w.sock.settimeout(60)
        w.sock.sendall(b"x" * (3 << 20) + b"last")
        w.close()
        wait_until("it has heard the end",
                   lambda: self.d.ask("GET", f"/v1/sandboxes/{self.sid}/files?path=heard").status == 200)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{self.sid}/files?path=heard").body,
                         b"%d last" % ((3 << 20) + 4))

    def test_the_clients_end_leaves_the_program_its_own(self):
        w = self.open("ends_last")
        w.sock.settimeout(60)
        w.sock.sendall(b"y" * (3 << 20))
        w.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(w.receive(), (1, b"%d bytes and then the end" % (3 << 20)))
        with self.assertRaises(ConnectionError):
            w.receive()

    def test_a_client_that_stays_after_the_programs_end_is_let_go(self):
        w = self.open("ends_first")
        self.assertEqual(w.receive(), (1, b"my last words"))
        with self.assertRaises(ConnectionError):
            w.receive()
        wait_until("its connection is gone", lambda: self.gone(w.sock))

    @staticmethod
    def gone(sock):
        poll = select.poll()
        poll.register(sock, select.POLLHUP)
        return bool(poll.poll(0))  # without a byte: that would be a sign of life


class Hosts(ServiceTest):
    """What a browser is told, field by field; test_preview_browser.py has a real one."""

    NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "none"}
    SANDBOXED = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads allow-pointer-lock"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sid, cls.other = (cls.d.create()["id"] for _ in range(2))
        for sid, who in ((cls.sid, "A"), (cls.other, "B")):
            serve(cls.d, sid, PAGE_SERVER.replace("WHO", who), 8080)
        cls.token = cls.d.ask("POST", f"/v1/sandboxes/{cls.sid}/ports/8080/token", {}).json["token"]
        cls.host = f"8080-{cls.sid}.localhost:{cls.d.port}"
        cls.base = f"/v1/sandboxes/{cls.sid}/proxy/8080"
        cls.cookie = {"Cookie": f"brig_token={cls.token}"}

    def get(self, path, host=None, **fields):
        headers = {"Host": host or f"127.0.0.1:{self.d.port}", **{k.replace("_", "-"): v for k, v in fields.items()}}
        return self.d.ask("GET", path, headers=headers, tcp=True)

    def navigate(self, path, host=None, **fields):
        return self.get(path, host, **self.NAVIGATION, **fields)

    def ticket(self, path=""):
        answer = self.navigate(f"{self.base}{path}?x=1&brig_token={self.token}&y=2")
        self.assertEqual((answer.status, answer.body), (302, b""), answer)
        self.assertEqual((answer.headers["Referrer-Policy"], answer.headers["Cache-Control"]),
                         ("no-referrer", "no-store"))
        start = f"//{self.host}{path or '/'}?x=1&y=2&brig_token="
        self.assertTrue(answer.headers["Location"].startswith(start), answer.headers["Location"])
        found = answer.headers["Location"].removeprefix(start)
        self.assertRegex(found, "^once-[0-9a-f]{32}$")
        return found

    def test_programs_keep_the_path(self):
        answer = self.get(f"{self.base}/seen?brig_token={self.token}")
        self.assertEqual((answer.status, answer.headers["Content-Security-Policy"]), (200, self.SANDBOXED))
        self.assertTrue(answer.body.startswith(b"/seen\n"), answer.body)
        # a page that is fetched is not shown; where a browser does not say what it does, the field is its wall
        self.assertEqual(self.get(f"{self.base}/seen", Sec_Fetch_Mode="cors", Sec_Fetch_Site="same-origin",
                                  **self.cookie).status,
                         200)
        self.assertEqual(self.get("/seen", self.host, **self.cookie).headers["Content-Security-Policy"], None)

    def test_a_navigation_is_sent_on_with_a_ticket_that_is_good_once(self):
        for path in ("", "/deep/page", "//evil.example/x", "/\\evil.example/x"):
            ticket = self.ticket(path)
            answer = self.navigate(f"{path or '/'}?x=1&brig_token={ticket}", self.host)
            plain = "/./" + path[1:] if path[1:2] in ("/", "\\") else path or "/"  # never "//evil.example"
            self.assertEqual((answer.status, answer.headers["Location"]), (302, plain + "?x=1"))
            self.assertEqual((answer.headers["Referrer-Policy"], answer.headers["Cache-Control"]),
                             ("no-referrer", "no-store"))
            self.assertRegex(answer.headers["Set-Cookie"],
                             r"^brig_token=[\w.-]+; Path=/; Max-Age=\d+; HttpOnly; SameSite=Lax$")
            cookie = answer.headers["Set-Cookie"].split(";")[0]
            self.assertEqual(self.navigate("/seen", self.host, Cookie=cookie).status, 200)
            self.refused(self.navigate(f"/?brig_token={ticket}", self.host), 401, "unauthenticated",
                         "a preview needs a key")

    def test_a_planted_cookie_locks_nobody_out(self):
        """A page of a sibling host can put a cookie of our name before the right one, over plain HTTP."""
        right, theirs = f"brig_token={self.token}", self.d.ask("POST", f"/v1/sandboxes/{self.other}/ports/8080/token",
                                                               {})
        planted = ("brig_token=", "brig_token=x", "brig_token=" + "A" * 5000, "brig_token=" + theirs.json["token"])
        for cookie in (*planted, "; ".join(planted), "; ".join(f"brig_token={i}" for i in range(63))):
            for path, host in (("/seen", self.host), (f"{self.base}/seen", None)):
                self.assertEqual(self.get(path, host, Cookie=f"{cookie}; {right}").status, 200, cookie[:40])
                self.refused(self.get(path, host, Cookie=cookie), 401, "unauthenticated", "a preview needs a key")
        many = "; ".join(f"brig_token={i}" for i in range(64))  # no more than that are tried
        self.refused(self.get("/seen", self.host, Cookie=f"{many}; {right}"), 401, "unauthenticated", "needs a key")

    def test_a_ticket_is_for_its_own_host(self):
        ticket = self.ticket()
        self.refused(self.navigate(f"/?brig_token={ticket}", f"8080-{self.other}.localhost"), 401, "unauthenticated",
                     "needs a key")
        # and was spent there
        self.refused(self.navigate(f"/?brig_token={ticket}", self.host), 401, "unauthenticated", "needs a key")
        ticket = self.ticket()
        self.refused(self.get(f"{self.base}/?brig_token={ticket}"), 401, "unauthenticated", "needs a key")
        self.refused(self.navigate(f"{self.base}/", **{"Cookie": f"brig_token={ticket}"}), 401, "unauthenticated",
                     "needs a key")

    def test_a_key_that_may_not_write_gets_no_ticket(self):
        """A ticket becomes a token, and a token writes: what a read-only key reads, it reads by path."""
        key = {"X_API_Key": self.d.key(role="read-only")}
        answer = self.navigate(f"{self.base}/seen", **key)
        self.assertEqual((answer.status, answer.headers["Location"]), (200, None))
        self.assertEqual(answer.headers["Content-Security-Policy"], self.SANDBOXED)
        self.assertNotIn("brig_token=", str(answer.headers))
        self.assertEqual(self.navigate(f"{self.base}/seen", X_API_Key=self.d.key()).status, 302)

    def test_without_a_token_nobody_is_sent_anywhere(self):
        for path in (f"{self.base}/", f"{self.base}/?brig_token=x",
                     f"/v1/sandboxes/{self.other}/proxy/8080/?brig_token={self.token}"):
            answer = self.navigate(path)
            self.assertEqual((answer.status, answer.headers["Location"]), (401, None), path)

    def test_a_name_that_no_browser_reaches_is_not_sent_to(self):
        with_name = type(self.d)("[server]\nallowed_hosts = 'brig.test'\n[sandbox]\nmemory_limit = '64m'\n")
        self.addCleanup(with_name.close)
        sid = with_name.create()["id"]
        serve(with_name, sid, PAGE_SERVER.replace("WHO", "C"), 8080)
        ask = {"headers": {"Host": "brig.test", **self.NAVIGATION}, "tcp": True}
        made = with_name.ask("POST", f"/v1/sandboxes/{sid}/ports/8080/token", {}).json
        self.assertEqual(made["url"], f"http://8080-{sid}.localhost:{with_name.port}/?brig_token={made['token']}")
        key = with_name.key()
        there = with_name.ask("POST", f"/v1/sandboxes/{sid}/ports/8080/token", {}, {"Host": "brig.test"}, tcp=True,
                              key=key).json
        self.assertEqual(there["url"], f"http://brig.test/v1/sandboxes/{sid}/proxy/8080/?brig_token={there['token']}")
        answer = with_name.ask("GET", made["path"], **ask)
        self.assertEqual((answer.status, answer.headers["Location"]), (302, f"/v1/sandboxes/{sid}/proxy/8080/"))
        ask["headers"]["Cookie"] = answer.headers["Set-Cookie"].split(";")[0]
        answer = with_name.ask("GET", answer.headers["Location"], **ask)
        self.assertEqual((answer.status, answer.headers["Content-Security-Policy"]), (200, self.SANDBOXED))

    def test_a_cookie_does_not_speak_for_other_sites(self):
        for site, mode, dest, want in (("same-site", "no-cors", "script", 403), ("cross-site", "no-cors", "image", 403),
                                       ("same-site", "cors", "empty", 403),
                                       ("same-origin", "no-cors", "script", 200), ("same-origin", "cors", "empty", 200),
                                       ("none", "no-cors", "empty", 200),
                                       ("cross-site", "navigate", "document", 200),
                                       ("same-site", "navigate", "iframe", 200)):
            answer = self.get("/app.js", self.host, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest,
                              **self.cookie)
            self.assertEqual(answer.status, want, (site, mode, dest))
            if want == 403:
                self.refused(answer, 403, "forbidden",
                             "another site's page may send its user to a preview, and nothing else")
        self.assertEqual(self.get("/app.js", self.host, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors",
                                  X_Brig_Token=self.token).status,
                         200)

    def test_no_key_reaches_the_program(self):
        """Also in a field that is not looked at here, and when a token has let the request in."""
        key = self.d.key(role="user")
        for fields in ({"Authorization": f"Bearer {key}"}, {"Authorization": f"bearer   {key}"}, {"X_API_Key": key},
                       {"X_BARE_PASSWORD": f"password {key}"}):
            for path, host in (("/seen", self.host), (f"{self.base}/seen", None)):
                answer = self.get(path, host, **fields, **self.cookie)
                self.assertEqual(answer.status, 200, (fields, path))
                self.assertNotIn(key.encode(), answer.body, (fields, path))
        self.assertNotIn(key.encode(), self.get(f"{self.base}/seen", X_BARE_PASSWORD=f"password {key}").body)
        # what is not ours is the program's
        foreign = "Bearer e2b_" + "0" * 40
        self.assertIn(foreign.encode(), self.get("/seen", self.host, Authorization=foreign, **self.cookie).body)

    def test_cookies_by_host_name(self):
        answer = self.get("/seen", self.host, Cookie=f"sid=A; brig_token={self.token}; __Host-brig_token=x; theme=dark")
        self.assertIn(b"\nCookie: sid=A; theme=dark\n", answer.body)
        self.assertEqual(answer.headers.get_all("Set-Cookie"), ["sid=A; Path=/", "wide=A; Path=/; SameSite=Lax"])

    def test_cookies_by_path(self):
        mine, theirs = (f"brig-8080-{sid}-" for sid in (self.sid, self.other))
        sent = (f"session=of-another-program; {mine}sid=A; {theirs}sid=B; {mine[:-1]}=x; brig-80-{self.sid}-sid=C; "
                f"brig_token={self.token}; {mine}x=1")
        answer = self.get(f"{self.base}/seen", Cookie=sent)
        self.assertIn(b"\nCookie: sid=A; x=1\n", answer.body)
        self.assertEqual(answer.headers.get_all("Set-Cookie"),
                         [f"{mine}sid=A; Path={self.base}/", f"{mine}wide=A; SameSite=Lax; Path={self.base}/"])
        answer = self.get(f"{self.base}/seen", Cookie=f"session=of-another-program; brig_token={self.token}")
        self.assertNotIn(b"Cookie", answer.body)

    def test_fields_that_reach_beyond_the_preview_do_not_pass(self):
        for answer in (self.get("/seen", self.host, **self.cookie), self.get(f"{self.base}/seen", **self.cookie)):
            self.assertEqual(answer.status, 200)
            for name in ("Clear-Site-Data", "Service-Worker-Allowed", "Alt-Svc", "Strict-Transport-Security", "NEL",
                         "Report-To"):
                self.assertIsNone(answer.headers[name], name)

    def test_a_port_has_one_spelling(self):
        for port in ("08080", "+8080", "8080.", "0x1f90", "73616"):
            for answer in (self.get("/seen", f"{port}-{self.sid}.localhost:{self.d.port}", X_Brig_Token=self.token),
                           self.get(f"/v1/sandboxes/{self.sid}/proxy/{port}/seen", X_Brig_Token=self.token)):
                self.assertIn(answer.status, (400, 401, 404, 421), (port, answer))

    def test_all_of_a_previews_host_is_the_programs(self):
        self.assertEqual(self.get("/healthz", self.host, **self.cookie).body, b"the program is well")
        self.assertEqual(self.get("/healthz").body, b"ok\n")


class Tls(unittest.TestCase):
    """A domain of its own, over TLS, and sandboxes of two organisations."""

    DOMAIN = "preview.example"

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cert, key = make_certificate(cls.directory.name, cls.DOMAIN, f"*.{cls.DOMAIN}")
        cls.context = ssl.create_default_context(cafile=cert)
        cls.d = Daemon(f'[server]\ndomain = "{cls.DOMAIN}"\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
        cls.boxes = [cls.box(name) for name in ("one", "other")]

    @classmethod
    def tearDownClass(cls):
        cls.d.close()
        cls.directory.cleanup()

    @classmethod
    def box(cls, name):
        """(id, key, token) of a sandbox that serves, of an organisation of its own."""
        key = cls.d.key(role="user", org=cls.d.ask("POST", "/v1/orgs", {"name": name}).json["id"])
        sid = cls.d.ask("POST", "/v1/sandboxes", {}, key=key).json["id"]
        serve(cls.d, sid, PAGE_SERVER.replace("WHO", name), 8080)
        return sid, key, cls.d.ask("POST", f"/v1/sandboxes/{sid}/ports/8080/token", {}, key=key).json["token"]

    def get(self, host, path="/seen", **fields):
        raw = socket.create_connection(("127.0.0.1", self.d.port))
        with self.context.wrap_socket(raw, server_hostname=host) as sock:
            lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{self.d.port}", "Connection: close",
                     *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            data = b""
            while (piece := sock.recv(65536)):
                data += piece
        head, body = data.decode().split("\r\n\r\n", 1)
        return int(head.split()[1]), [line for line in head.split("\r\n") if line.startswith("Set-Cookie")], body

    def test_what_opens_a_preview_opens_no_other(self):
        (one, key, token), (other, foreign, _) = self.boxes
        host = f"8080-{one}.{self.DOMAIN}"
        status, cookies, _ = self.get(host, f"/seen?brig_token={token}", Sec_Fetch_Mode="navigate",
                                      Sec_Fetch_Site="none")
        self.assertEqual(status, 302)
        self.assertRegex(cookies[0], r"^Set-Cookie: __Host-brig_token=[^;]+; Path=/; Max-Age=\d+; HttpOnly; "
                         "SameSite=Lax; Secure$")
        cookie = cookies[0].split(": ")[1].split(";")[0]
        status, _, body = self.get(host, Cookie=f"{cookie}; mine=1", X_API_Key=key)
        self.assertEqual((status, "mine=1" in body, token in body, key in body), (200, True, False, False), body)
        for where, fields, want in ((f"8080-{other}", {"Cookie": cookie}, 401),
                                    (f"8080-{other}", {"X_Brig_Token": token}, 401),
                                    (f"8081-{one}", {"Cookie": cookie}, 401),
                                    (f"8081-{one}", {"X_Brig_Token": token}, 401),
                                    (f"8080-{one}", {"X_API_Key": foreign}, 404),
                                    (f"8080-{one}", {"Cookie": f"brig_token={token}"}, 401),  # anybody can set that one
                                    (f"8080-{one}", {}, 401)):
            self.assertEqual(self.get(f"{where}.{self.DOMAIN}", **fields)[0], want, (where, fields))


if __name__ == "__main__":
    unittest.main()
