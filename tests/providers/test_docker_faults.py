# SPDX-License-Identifier: Apache-2.0
"""What an engine can do wrong, with a real one behind a proxy that spoils one answer: every fault is one typed line
with the engine's own words, and leaves no container."""

import json
import os
import pathlib
import re
import socket
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench"), str(HERE)]

import enginekit  # noqa: E402  pylint: disable=wrong-import-position
from helpers import wait_until  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from test_docker_boxes import LABEL, TINY, Boxes  # noqa: E402  pylint: disable=wrong-import-position

SECRET = "a-secret-that-nobody-may-see"


def answer(status, body):
    return (f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}").encode()


class Proxy:
    """Between the runner and the engine. spoil(method, target, ask) gives the bytes of an answer, or None to let it
    through; ask() asks the engine and gives the bytes of its answer."""

    def __init__(self, path, engine):
        self.path, self.engine, self.spoil, self.log = path, engine, None, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(client,), daemon=True).start()

    def one(self, client):
        with client:
            request = b""
            while b"\r\n\r\n" not in request:
                piece = client.recv(65536)
                if not piece:
                    return
                request += piece
            head, _, body = request.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            while length and len(body) < int(length[1]):
                body += client.recv(65536)
            method, target = head.split()[:2]
            target = re.sub(r"^/v[\d.]+", "", target.decode())

            def ask():
                with socket.socket(socket.AF_UNIX) as engine:
                    engine.connect(self.engine)
                    engine.sendall(head + b"\r\n\r\n" + body)
                    found = b""
                    while piece := engine.recv(65536):
                        found += piece
                    return found

            self.log.append(("asked", method.decode(), target))
            spoilt = self.spoil(method.decode(), target, ask) if self.spoil else None
            reply = ask() if spoilt is None else spoilt
            self.log.append(("answers", method.decode(), target))
            try:
                client.sendall(reply)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        os.unlink(self.path)


@needs_root
class Faults(unittest.TestCase):
    LIMIT_SECONDS = 300

    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="brig-docker-")
        cls.addClassCleanup(temp.cleanup)
        cls.dir = pathlib.Path(temp.name)
        try:
            cls.engine = enginekit.Engine(cls.dir / "engine")
            enginekit.busybox_tar(cls.dir / "tiny.tar")
        except enginekit.Missing as e:
            raise unittest.SkipTest(str(e)) from None
        cls.addClassCleanup(cls.engine.close)
        cls.engine.import_tar(cls.dir / "tiny.tar", "tiny")

    start, create, box, run_in = Boxes.start, Boxes.create, Boxes.box, Boxes.run_in

    def setUp(self):
        self.proxy = Proxy(str(self.dir / "proxy.sock"), self.engine.socket)
        self.addCleanup(self.proxy.close)
        self.runner = self.start(engine=self.proxy.path, BRIG_START_TIMEOUT="4000", BRIG_ENGINE_SWEEP="1")
        self.host = self.runner.host()

    def ours(self):
        return self.engine.containers(f"{LABEL}={self.runner.installation()}")

    def fails(self, said, spoil, what=None):
        """A create fails with these words, leaves nothing, and the next one works."""
        self.proxy.spoil = spoil
        heard = self.create("bad")
        self.proxy.spoil = None
        self.assertTrue(heard[-1].startswith("ended bad"), (what, heard))
        self.assertIn(said, heard[-1], what)
        self.assertNotIn(SECRET, heard[-1])
        wait_until(f"{what}: no container is left", lambda: not self.ours())
        boxes = self.runner.dir / "run/runner-docker"
        wait_until(f"{what}: no directory is left", lambda: not [n for n in os.listdir(boxes) if len(n) == 26])

    def works(self):
        self.box("good")
        self.assertIn("fine", self.run_in("echo fine", key="good")[0])
        self.host.say("end", "good")
        self.host.until("ended good")

    def test_every_step_that_fails_is_one_line_and_leaves_nothing(self):
        long = "disk quota exceeded: no space left on device \x1b[31m" + "x" * 400 + SECRET
        for step, method, pattern in (("image", "GET", r"^/images/.*/json"), ("create", "POST", "^/containers/create"),
                                      ("start", "POST", r"^/containers/.*/start"),
                                      ("inspect", "GET", r"^/containers/brig-.*/json")):
            def at(give, method=method, pattern=pattern):
                return lambda m, t, ask: give(ask) if m == method and re.search(pattern, t) else None

            self.fails("the engine answers 500: disk quota exceeded: no space left", at(
                lambda ask: answer(500, json.dumps({"message": long}))), step)
            self.fails("the engine answers 409: words", at(lambda ask: answer(409, '{"message":"words"}')), step)
            self.fails("before the end of its answer", at(lambda ask: ask()[:-7]), step)  # half, after the deed
            self.fails("before the end of its answer", at(lambda ask: b""), step)
            self.fails("breaks HTTP", at(lambda ask: b"SSH-2.0-OpenSSH\r\n\r\n"), step)
            if method == "GET":
                self.fails("is no JSON", at(lambda ask: answer(200, "{")), step)
        self.works()

    def test_a_late_answer_to_a_create_leaves_no_container(self):
        go, found = threading.Event(), []
        self.addCleanup(go.set)

        def late(method, target, ask):
            if method != "POST" or not target.startswith("/containers/create"):
                return None
            go.wait(60)  # until the runner has given up
            found.append(ask())
            return found[0]

        self.proxy.spoil = late
        heard = self.create("bad")
        self.assertIn("no whole answer in time", heard[-1])
        go.set()
        wait_until("the engine has answered", lambda: found)
        self.assertIn(b"bind source path does not exist", found[0])  # the sandbox's directory is gone already
        self.assertEqual(self.ours(), [])
        self.proxy.spoil = None
        self.works()

    def test_a_create_that_is_ended_half_way_leaves_no_container(self):
        asked, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def slow(method, target, ask):
            if method == "POST" and target.startswith("/containers/create"):
                asked.set()
                go.wait(60)
            return None

        self.proxy.spoil = slow
        self.host.say("create", "a", f"image={TINY}")
        self.assertTrue(asked.wait(60))
        self.host.say("end", "a")
        self.host.say("create", "b", "root=1")  # it is refused at once, and the end was taken before
        self.host.until("ended b")
        go.set()
        self.host.until("ended a")
        name = next(t.split("=")[1] for _, _, t in self.proxy.log if t.startswith("/containers/create?name="))
        order = [(what, method) for what, method, target in self.proxy.log if name in target]
        self.assertEqual(order[:3], [("asked", "POST"), ("answers", "POST"), ("asked", "DELETE")])
        self.assertEqual(self.ours(), [])

    def test_an_image_that_vanishes_between_two_questions(self):
        self.fails("No such image", lambda m, t, ask: answer(404, '{"message":"No such image: sha256:0"}')
                   if "/containers/create" in t else None)

    def test_another_version_is_refused(self):
        version = '{"Version":"9","ApiVersion":"2.0","MinAPIVersion":"1.99"}'
        self.proxy.spoil = lambda m, t, ask: answer(200, version) if t == "/version" else None
        runner = self.start(engine=self.proxy.path)
        heard = self.create("bad", host=runner.host())
        self.assertIn("the engine speaks API 1.99 to 2.0", heard[-1])

    def test_a_container_that_somebody_pauses_goes_on_when_it_is_thawed(self):
        box = self.box()
        self.engine.docker("pause", f"brig-{box}")
        self.engine.docker("unpause", f"brig-{box}")
        self.assertIn("on", self.run_in("echo on")[0])
        self.engine.docker("pause", f"brig-{box}")  # and one that stays paused can be ended
        self.host.say("end", "a")
        self.host.until("ended a")
        self.assertEqual(self.ours(), [])

    def test_two_installations_on_one_engine_never_touch_each_other(self):
        other = self.start(BRIG_ENGINE_SWEEP="1")
        host = other.host()
        theirs = self.box("a", host=host)
        ours = self.box("b")
        before = len(self.proxy.log)
        wait_until("two sweeps", lambda: sum(
            what == "answers" and "/containers/json" in target for what, _, target in self.proxy.log[before:]) >= 2)
        for box, key, at in ((theirs, "a", host), (ours, "b", self.host)):
            self.assertIn("alive", self.run_in("echo alive", key=key, host=at)[0], box)


if __name__ == "__main__":
    unittest.main()
