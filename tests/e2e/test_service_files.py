# SPDX-License-Identifier: Apache-2.0
"""Files over the API: bytes in and out, ranges, names of all kinds, trees, watches; ports and previews."""

import base64
import gzip
import http.client
import io
import json
import os
import random
import socket
import subprocess
import tarfile
import tempfile
import threading
import unittest
from urllib.parse import quote

from helpers import arrived, steady, wait_until
from hostilekit import descriptors
from service import ServiceTest, WebSocket


class Files(ServiceTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sid = cls.d.create(limits={"memory": "1g"})["id"]

    def ask(self, method, tail, body=None, **kw):
        return self.d.ask(method, f"/v1/sandboxes/{self.sid}/files{tail}", body, **kw)

    def test_write_read_stat_remove(self):
        data = os.urandom(300000)
        entry = self.ask("PUT", "?path=dir/sub/a.bin&mode=0600", data).json
        self.assertEqual((entry["size"], entry["mode"], entry["type"]), (len(data), "0600", "file"))
        self.assertEqual(self.ask("GET", "?path=dir/sub/a.bin").body, data)
        self.assertEqual(self.ask("GET", "?path=/workspace/dir/sub/a.bin").body, data)
        self.assertEqual(self.ask("HEAD", "?path=dir/sub/a.bin").headers["Content-Length"], str(len(data)))
        self.assertEqual(self.ask("GET", "/stat?path=dir").json["type"], "directory")
        self.assertEqual(self.ask("DELETE", "?path=dir").status, 409)
        self.assertEqual(self.ask("DELETE", "?path=dir&recursive=1").status, 204)
        self.refused(self.ask("GET", "?path=dir/sub/a.bin"), 404, "not_found", "File not found: dir/sub/a.bin")

    def test_ranges(self):
        self.ask("PUT", "?path=range", b"0123456789")
        for field, status, body in (("bytes=2-4", 206, b"234"), ("bytes=7-", 206, b"789"),
                                    ("bytes=5-500", 206, b"56789"), ("bytes=x", 200, b"0123456789"),
                                    ("bytes=4-2", 200, b"0123456789")):
            answer = self.ask("GET", "?path=range", headers={"Range": field})
            self.assertEqual((answer.status, answer.body), (status, body), field)
        answer = self.ask("GET", "?path=range", headers={"Range": "bytes=10-"})
        self.assertEqual((answer.status, answer.headers["Content-Range"]), (416, "bytes */10"))

    def test_ways_to_write(self):
        self.ask("PUT", "?path=ways", b"abc")
        self.ask("PUT", "?path=ways&append=1", b"def")
        self.ask("PUT", "?path=ways&offset=1", b"XX")
        self.assertEqual(self.ask("GET", "?path=ways").body, b"aXXdef")
        self.assertEqual(self.ask("PUT", "?path=ways&exclusive=1", b"").status, 409)
        self.assertEqual(self.ask("PUT", "?path=no/such/dir/x&parents=0", b"").status, 404)
        self.assertEqual(self.ask("PUT", "?path=chunked", iter([b"one", b"two"])).json["size"], 6)

    def test_write_that_breaks_off_changes_nothing(self):
        self.ask("PUT", "?path=atomic", b"before")
        brigd = self.d.children()["brigd"]
        before = steady(lambda: descriptors(brigd))
        c = self.d.connection()
        c.putrequest("PUT", f"/v1/sandboxes/{self.sid}/files?path=atomic")
        c.putheader("Content-Length", "1000000")
        c.endheaders()
        c.send(b"x" * 500000)
        arrived(c.sock)
        c.close()
        wait_until("brigd has let it go", lambda: descriptors(brigd) <= before)
        self.assertEqual(self.ask("GET", "?path=atomic").body, b"before")
        names = [e["path"] for e in self.ask("GET", "/list?path=.").json["entries"]]
        self.assertFalse([n for n in names if n.startswith(".brig")], names)

    def test_paths_that_are_refused(self):
        for path in ("..", "../x", "a/../b", "/../etc/passwd", "a/..", "%2e%2e/x", "..%2fetc", "a%00b", "x" * 4097, ""):
            answer = self.ask("GET", f"?path={path}")
            self.assertEqual(answer.status, 400, (path[:20], answer))
        for path in ("..;/x", "a\\..\\b", "...", "..x"):
            self.assertEqual(self.ask("GET", f"?path={quote(path)}").status, 404, path)
        for path in ("%252e%252e/x",):
            self.assertEqual(self.ask("GET", f"?path={path}").status, 404)

    def test_absolute_is_the_sandboxes_own(self):
        self.assertEqual(self.ask("GET", "?path=/root/.bashrc").status in (403, 404), True)
        with open("/etc/hostname", "rb") as f:
            self.assertNotEqual(self.ask("GET", "?path=/etc/hostname").body, f.read())

    def test_symlinks_stay_inside(self):
        self.d.sh(self.sid, "ln -sfn / rootlink; ln -sfn /etc/passwd passlink")
        self.assertEqual(self.ask("GET", "/stat?path=rootlink/workspace&follow=0").json["type"], "directory")
        self.assertEqual(self.ask("GET", "/stat?path=passlink&follow=0").json["target"], "/etc/passwd")
        self.assertIn(self.ask("PUT", "?path=rootlink/etc/brig-canary", b"x").status, (403, 409))

    def test_names_of_all_kinds(self):
        names = [b"new\nline", b"-rf", b"\xff\xfe", b"a" * 255, b"sp ace", "käse".encode(), b'q"uote', b"tab\t"]
        for name in names:
            path = quote(base64.b64encode(b"names/" + name))
            self.assertEqual(self.ask("PUT", f"?path={path}&path_encoding=base64", name).status, 200, name)
        listed = set()
        for e in self.ask("GET", "/list?path=names").json["entries"]:
            listed.add(base64.b64decode(e["path"]) if e["path_encoding"] == "base64" else e["path"].encode())
        self.assertEqual(listed, set(names))
        tar = tarfile.open(fileobj=io.BytesIO(self.ask("GET", "/tar?path=names").body), errors="surrogateescape")
        self.assertTrue(set(names) <= {os.path.basename(os.fsencode(m.name)) for m in tar})

    def test_special_files_do_not_block(self):
        self.d.sh(self.sid, "mkdir -p special; cd special; mkfifo f; ln -s nowhere dangling; python3 -c 'import "
                  "socket; socket.socket(socket.AF_UNIX).bind(\"s\")'")
        types = {e["path"]: e["type"] for e in self.ask("GET", "/list?path=special").json["entries"]}
        self.assertEqual(types, {"f": "fifo", "dangling": "symlink", "s": "socket"})
        self.assertEqual(self.ask("GET", "?path=special/f").status, 409)
        self.assertEqual(self.ask("PUT", "?path=special/f&append=1", b"x").status, 409)
        self.assertEqual(self.ask("GET", "?path=special/dangling").status, 404)
        tar = tarfile.open(fileobj=io.BytesIO(self.ask("GET", "/tar?path=special").body))
        self.assertIn("f", {os.path.basename(m.name) for m in tar})

    def test_sparse_and_large(self):
        self.d.sh(self.sid, "truncate -s 5G sparse; printf end >> sparse")
        self.assertEqual(self.ask("GET", "/stat?path=sparse").json["size"], (5 << 30) + 3)
        self.assertEqual(self.ask("GET", "?path=sparse", headers={"Range": f"bytes={5 << 30}-"}).body, b"end")
        self.d.sh(self.sid, "rm sparse")

    def test_list_depth(self):
        self.d.sh(self.sid, "mkdir -p tree/a/b/c; touch tree/x tree/a/y tree/a/b/z")
        one = {e["path"] for e in self.ask("GET", "/list?path=tree").json["entries"]}
        self.assertEqual(one, {"a", "x"})
        all_ = {e["path"] for e in self.ask("GET", "/list?path=tree&depth=10").json["entries"]}
        self.assertEqual(all_, {"a", "x", "a/b", "a/y", "a/b/c", "a/b/z"})
        self.assertTrue(self.ask("GET", "/list?path=tree&depth=10&limit=2").json["truncated"])

    def test_mkdir_and_move(self):
        self.assertEqual(self.ask("POST", "/mkdir", {"path": "made/deep", "mode": "0700"}).json["mode"], "0700")
        self.ask("PUT", "?path=made/f", b"1")
        self.assertEqual(self.ask("POST", "/move", {"from": "made/f", "to": "made/g"}).status, 201)
        self.ask("PUT", "?path=made/f", b"2")
        self.assertEqual(self.ask("POST", "/move", {"from": "made/f", "to": "made/g"}).status, 409)
        self.assertEqual(self.ask("POST", "/move", {"from": "made/f", "to": "made/g", "replace": True}).status, 201)
        self.assertEqual(self.ask("GET", "?path=made/g").body, b"2")
        self.assertEqual(self.ask("POST", "/move", {"from": "made/g", "to": "../x"}).status, 400)

    def test_trees(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, data in (("t/a", b"A"), ("t/b/c", b"C" * 100000)):
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o640
                tar.addfile(info, io.BytesIO(data))
        answer = self.ask("PUT", "/tar?path=up", out.getvalue(), headers={"Content-Type": "application/x-tar"})
        self.assertEqual(answer.status, 404, "the directory must be there")
        self.ask("POST", "/mkdir", {"path": "up"})
        self.assertEqual(self.ask("PUT", "/tar?path=up", out.getvalue()).json["members"], 2)
        self.assertEqual(self.ask("GET", "?path=up/t/b/c").body, b"C" * 100000)
        packed = gzip.compress(out.getvalue())
        self.assertEqual(self.ask("PUT", "/tar?path=up", packed,
                                  headers={"Content-Type": "application/gzip"}).json["members"],
                         2)
        tar = tarfile.open(fileobj=io.BytesIO(self.ask("GET", "/tar?path=up").body))
        self.assertTrue([m for m in tar if m.name.endswith("t/b/c") and m.size == 100000])

    def tar(self, *members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for info in members:
                tar.addfile(info, io.BytesIO(b"x" * info.size))
        return out.getvalue()

    def test_an_archive_is_refused_by_entry_and_rule(self):
        def header(name, kind, pax=None):
            info = tarfile.TarInfo(name)
            info.type, info.pax_headers = kind, pax or {}
            return info.tobuf(tarfile.PAX_FORMAT)

        def sparse(*options):
            with tempfile.TemporaryDirectory() as top:
                with open(f"{top}/holes", "wb") as f:
                    f.truncate(1 << 20)
                    f.write(b"x")
                command = ["tar", "-S", *options, "-cf", "-", "-C", top, "./holes"]
                return subprocess.run(command, capture_output=True, check=True).stdout

        rule = "entry %s of the archive: sparse files, further volumes and unknown kinds are not taken"
        self.ask("POST", "/mkdir", {"path": "kinds"})
        cases = [(sparse("--format=gnu"), rule % "holes")]
        cases += [(sparse("--format=posix", f"--sparse-version={v}"), rule % "holes") for v in ("0.0", "0.1", "1.0")]
        cases += [(header("odd", kind.encode()), rule % "odd") for kind in "SMVDNXA"]
        named = {"GNU.sparse.major": "1", "GNU.sparse.name": "n/real"}
        dots = "entry a/../b of the archive: a name or link with `..`, an empty name, or a link to itself"
        cases += [(header(f"n/GNUSparseFile.0/{'f' * 200}", b"0", named), rule % "n/real"),
                  (header("x" * 99, b"0", {"GNU.sparse.map": "0,1"}), rule % ("x" * 99)),
                  (header("a/../b", b"0"), dots),
                  (header("null", b"3"), "entry null of the archive: a device, or the sandbox's user may not do that"),
                  (header("g", b"0", {"comment": "c" * (1 << 20)}),
                   "a PAX header of the archive has more than 1048576 bytes")]
        for data, message in cases:
            answer = self.ask("PUT", "/tar?path=kinds", header("before", b"5") + data)
            self.assertEqual(answer.json["error"]["message"], message)
            self.assertEqual(answer.status, {"a": 413, "e": 403 if "a device" in message else 400}[message[0]], message)
        self.assertEqual([e["path"] for e in self.ask("GET", "/list?path=kinds").json["entries"]], ["before"])
        odd = self.ask("PUT", "/tar?path=kinds", header(os.fsdecode(b"\xff\xfe"), b"S"))
        self.assertEqual((odd.status, odd.json["error"]["code"]), (400, "invalid_argument"), odd)

    def test_hostile_trees(self):
        def member(name, **kw):
            info = tarfile.TarInfo(name)
            for k, v in kw.items():
                setattr(info, k, v)
            return info

        self.ask("POST", "/mkdir", {"path": "hostile"})
        link = member("l", type=tarfile.SYMTYPE, linkname="/tmp")
        for data in (self.tar(member("../x", size=1)), self.tar(member("dev", type=tarfile.BLKTYPE)),
                     self.tar(link, member("l/evil", size=1)),
                     self.tar(member("h", type=tarfile.LNKTYPE, linkname="../../etc/passwd")),
                     b"not a tar at all" * 100, self.tar(member("t", size=10000))[:3000]):
            answer = self.ask("PUT", "/tar?path=hostile", data)
            self.assertIn(answer.status, (400, 403), answer)
        self.assertEqual(self.ask("GET", "/stat?path=/tmp/evil").status, 404)
        self.assertEqual(self.ask("PUT", "/tar?path=hostile&max_members=2",
                                  self.tar(*[member(f"m{i}") for i in range(5)])).status,
                         413)
        self.assertEqual(self.ask("PUT", "/tar?path=hostile&max_bytes=10", self.tar(member("big", size=100))).status,
                         413)
        bomb = gzip.compress(bytes(64 << 20))
        self.assertEqual(self.ask("PUT", "/tar?path=hostile", bomb, headers={"Content-Type": "application/gzip"}).status
                         in (400, 413), True)

    def test_watch(self):
        self.ask("POST", "/mkdir", {"path": "watched"})
        events = self.d.events(f"/v1/sandboxes/{self.sid}/files/watch?path=watched&recursive=1")
        self.d.sh(self.sid,
                  "cd watched; mkdir deep; sleep 0.1; echo x > deep/file; mv deep/file deep/moved; rm deep/moved")
        seen = []
        for event, _, data in events:
            seen.append((event, json.loads(data)["path"]))
            if event == "remove":
                break
        events.close()
        self.assertIn(("create", "deep"), seen)
        self.assertIn(("create", "deep/file"), seen)
        self.assertIn(("move", "deep/moved"), seen)

    def test_race_with_a_symlink(self):
        with open("/etc/brig-canary", "w", encoding="ascii") as f:
            f.write("untouched")
        self.addCleanup(os.unlink, "/etc/brig-canary")
        swap = self.d.ask("POST", f"/v1/sandboxes/{self.sid}/processes", {"argv": [
            "sh", "-c", "mkdir -p r1; while :; do ln -sfn / race; rm -f race; mkdir race; rmdir race; done"]}).json
        c = self.d.connection()
        for i in range(1000):
            a = self.d.ask("PUT", f"/v1/sandboxes/{self.sid}/files?path=race/etc/brig-canary&parents=0", b"EVIL",
                           connection=c)
            self.assertIn(a.status, (200, 403, 404, 409, 400), a)
        c.close()
        self.d.ask("DELETE", f"/v1/sandboxes/{self.sid}/processes/{swap['number']}")
        with open("/etc/brig-canary", encoding="ascii") as f:
            self.assertEqual(f.read(), "untouched")


class Confined(ServiceTest):
    def test_only_below_the_working_directory(self):
        sid = self.sandbox(confine="workdir")
        ask = lambda m, t, b=None: self.d.ask(m, f"/v1/sandboxes/{sid}/files{t}", b)  # noqa: E731
        self.assertEqual(ask("PUT", "?path=ok", b"x").status, 200)
        self.assertEqual(ask("GET", "?path=/etc/passwd").status, 400)
        self.d.sh(sid, "ln -s /etc out")
        self.assertEqual(ask("GET", "?path=out/passwd").status, 400)
        self.assertEqual(ask("GET", "?path=/workspace/ok").status, 200)


SERVER = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        text = (self.path + ' ' + str({k.lower(): v for k, v in self.headers.items()})).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(text))); self.send_header('X-From', \
'inside'); self.end_headers(); self.wfile.write(text)
    def do_POST(self):
        n = int(self.headers.get('Content-Length', 0)); data = self.rfile.read(n)
        self.send_response(201); self.send_header('Transfer-Encoding', 'chunked'); self.end_headers()
        self.wfile.write(b'%x\\r\\n' % len(data) + data + b'\\r\\n0\\r\\n\\r\\n')
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8080), H).serve_forever()
"""


@unittest.skipUnless(os.path.exists("/usr/bin/python3"), "needs python3 in /usr")
class Previews(ServiceTest):
    def serve(self):
        sid = self.sandbox()
        self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=s.py", SERVER.encode())
        self.d.ask("POST", f"/v1/sandboxes/{sid}/processes", {"argv": ["python3", "s.py"]})
        wait_until("it listens",
                   lambda: [p["port"] for p in self.d.ask("GET", f"/v1/sandboxes/{sid}/ports").json["ports"]] == [8080])
        return sid

    def test_by_path_and_by_name(self):
        sid = self.serve()
        key = self.d.key()
        answer = self.d.ask("GET", f"/v1/sandboxes/{sid}/proxy/8080/a%2Fb?x=1&brig_token=zzz", tcp=True, key=key)
        self.assertEqual((answer.status, answer.headers["X-From"]), (200, "inside"))
        self.assertTrue(answer.body.startswith(b"/a%2Fb?x=1 "), answer.body)
        self.assertNotIn(key.encode(), answer.body)
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/proxy/8080/up", b"z" * 300000, tcp=True, key=key)
        self.assertEqual((answer.status, answer.body), (201, b"z" * 300000))
        host = {"Host": f"8080-{sid}.localhost", "X-API-Key": key}
        answer = self.d.ask("GET", "/deep/path", tcp=True, headers=host)
        self.assertTrue(answer.body.startswith(b"/deep/path "), answer)
        self.assertNotIn(key.encode(), answer.body)

    def test_token(self):
        sid = self.serve()
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/proxy/8080/", tcp=True).status, 401)
        made = self.d.ask("POST", f"/v1/sandboxes/{sid}/ports/8080/token", {"expires": 60}).json
        first = self.d.ask("GET", made["path"], tcp=True)
        self.assertEqual(first.status, 200)
        self.assertNotIn(made["token"].encode(), first.body)
        cookie = first.headers["Set-Cookie"].split(";")[0]
        for path, host, own in ((f"/v1/sandboxes/{sid}/proxy/8080/x", "127.0.0.1", False),
                                ("/x", f"8080-{sid}.localhost", True)):
            again = self.d.ask("GET", path, tcp=True, headers={"Host": host, "Cookie": f"a=b; {cookie}"})
            self.assertEqual((again.status, b"a=b" in again.body), (200, own))
            self.assertNotIn(made["token"].encode(), again.body)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}/proxy/8081/?brig_token={made['token']}",
                                    tcp=True).status,
                         401)
        short = self.d.ask("POST", f"/v1/sandboxes/{sid}/ports/8080/token", {"expires": 1}).json
        wait_until("it has expired", lambda: self.d.ask("GET", short["path"], tcp=True).status == 401)

    def test_nothing_listens(self):
        sid = self.sandbox()
        answer = self.d.ask("GET", f"/v1/sandboxes/{sid}/proxy/9/")
        self.assertEqual(answer.status, 502, answer)
