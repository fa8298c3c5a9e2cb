# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of the provider docker, as the service has them, with a real engine of our own: what holds in one of
`local` holds in these. test_docker_boxes.py has what the service adds nothing to."""

import os
import pathlib
import signal
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import enginekit  # noqa: E402  pylint: disable=wrong-import-position
from helpers import wait_until  # noqa: E402  pylint: disable=wrong-import-position
from imagekit import Image, base_layer, entry, tar  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from service import Daemon  # noqa: E402  pylint: disable=wrong-import-position


@needs_root
class DockerProvider(unittest.TestCase):
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
        cls.engine.import_tar(cls.dir / "tiny.tar", "other")
        cls.d = Daemon(f'[manager]\nprovider = "docker"\n[docker]\nsocket = "{cls.engine.socket}"\nimage = "tiny"\n'
                       'pull = "never"\n')
        cls.addClassCleanup(cls.d.close)

    def box(self, **members):
        made = self.d.create(**members)
        self.assertEqual(made["provider"], "docker")
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        return made["id"]

    def sh(self, box, script):
        return self.d.run(box, "/bin/sh", "-c", script)

    def replace(self, name):
        old = self.d.children()[name]
        os.kill(old, signal.SIGKILL)
        wait_until("another one", lambda: self.d.children().get(name, old) != old)
        self.d.wait_ready()

    def test_processes_files_and_the_end(self):
        made = self.d.create(image="other")
        box = made["id"]
        self.assertEqual(made["image"], "docker.io/library/other:latest")
        off = {name for name, layer in made["protection"]["layers"].items() if not layer["on"]}
        self.assertLessEqual(off, {"user_ns", "uid_range", "time_ns", "io", "own_kernel"})
        refused = self.d.ask("POST", "/v1/sandboxes", {"image": "other"}, key=self.d.key())
        self.assertEqual((refused.status, refused.json["error"]["message"]),
                         (403, "image docker.io/library/other:latest: images of an engine are only for administrators"))
        done = self.sh(box, "echo out; echo err >&2; exit 7")
        self.assertEqual((done["stdout"], done["stderr"], done["outcome"]["exit_code"]), ("out\n", "err\n", 7))
        self.assertEqual(done["provider"], "docker")
        self.assertEqual(self.d.ask("PUT", f"/v1/sandboxes/{box}/files?path=/workspace/a", b"x" * 100000).status, 200)
        self.assertEqual(self.sh(box, "wc -c < /workspace/a; hostname")["stdout"], f"100000\n{box}\n")
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        wait_until("the container is gone", lambda: not self.engine.containers(f"org.brig.sandbox={box}"))

    def test_a_template_of_ours_is_the_root(self):
        top = tar(entry("etc/.wh.group", b""), entry("top", b"above\n", 0o640, 1000, 1000),
                  entry("mine", None, 0o755, 1000, 1000), entry("sys", kind=tarfile.SYMTYPE, link="/etc"))
        answer = self.d.ask("POST", "/v1/templates/load?name=layered", Image(base_layer(), top).oci(),
                            headers={"Content-Type": "application/x-tar"})
        self.assertIn(b'"template"', answer.body)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/layered")
        before = self.engine.docker("images", "-q", "--no-trunc").split()
        box = self.box(template="layered", writable_root=True)
        done = self.sh(box, "cat /top /proc/self/comm; stat -c '%a %u %g' /top; echo new > /mine/x && cat /mine/x; "
                            "cat /etc/group")
        self.assertEqual(done["stdout"], "above\ncat\n640 1000 1000\nnew\n", done)
        self.assertIn("/etc/group: No such file", done["stderr"])
        after = self.engine.docker("images", "-q", "--no-trunc").split()
        self.assertLessEqual(len(set(after) - set(before)), 1)  # the empty one of this installation
        self.assertIn("layers", self.d.ask("POST", "/v1/providers/docker/check").json["can"])

    def test_limits_have_typed_causes(self):
        box = self.box(limits={"memory": "64m", "pids": 20})
        self.assertEqual(self.sh(box, "x=x; while :; do x=$x$x; done")["outcome"]["cause"], "oom")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/pause").status, 200)
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/resume").status, 200)
        self.assertEqual(self.sh(box, "echo on")["stdout"], "on\n")

    def test_kills_of_brigd_and_of_the_runner_lose_nothing(self):
        box = self.box()
        self.sh(box, "echo kept > /workspace/x")
        for name in ("brigd", "brig-r-docker"):
            self.replace(name)
            wait_until("it answers again",
                       lambda: self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["true"]}).status == 200)
            self.assertEqual(self.sh(box, "cat /workspace/x")["stdout"], "kept\n")

    def test_the_gate_answers_in_its_own_namespace(self):
        asks = "wget -q -O - http://192.0.2.1:80/"
        without = self.sh(self.box(), asks)
        self.assertNotEqual(without["outcome"]["exit_code"], 0, without["outcome"])
        self.assertNotIn("403", without["stderr"])
        done = self.sh(self.box(network={"default": "deny", "rules": []}), asks)
        self.assertIn("403 Forbidden", done["stderr"], done)
        self.assertEqual(done["network"]["decisions"]["denied"], 1)

    def test_check_and_refusals(self):
        found = self.d.ask("POST", "/v1/providers/docker/check").json
        self.assertTrue(found["usable"], found)
        self.assertRegex(found["version"], r"^Docker \d")
        self.assertIn("image", found["can"])
        for body, status, said in (({"image": "none"}, None, "No such image"), ({"image": "a b"}, 400, "a b"),
                                   ({"image": "x/../y"}, 400, "x/../y"), ({"user": "root"}, None, "root inside"),
                                   ({"require": ["user_ns"]}, None, "user_ns"),
                                   ({"provider": "local", "image": "tiny"}, None, "images by name")):
            answer = self.d.ask("POST", "/v1/sandboxes", body)
            self.assertGreaterEqual(answer.status, 400, body)
            self.assertIn(said, answer.json["error"]["message"])
            if status:
                self.assertEqual(answer.status, status, body)


if __name__ == "__main__":
    unittest.main()
