# SPDX-License-Identifier: Apache-2.0
"""Tool runs in containers of an engine of our own: warm interpreters, and HumanEval where its data is."""

import glob
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("e2e", "bench", "compat")]

import enginekit  # noqa: E402  pylint: disable=wrong-import-position
import test_human_eval  # noqa: E402  pylint: disable=wrong-import-position
from helpers import wait_until  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from lettakit import ADD, LettaTest  # noqa: E402  pylint: disable=wrong-import-position


def python_tar(path):
    """busybox, and this host's Python with the libraries that it and its modules want."""
    version = subprocess.run(["/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
                             check=True, text=True, capture_output=True).stdout.strip()
    home = f"/usr/lib/{version}"
    found = subprocess.run(["ldd", f"/usr/bin/{version}", *glob.glob(f"{home}/lib-dynload/*.so")], check=True,
                           text=True, capture_output=True).stdout
    enginekit.busybox_tar(path)
    with tarfile.open(path, "a") as tar:
        tar.add(f"/usr/bin/{version}", "usr/bin/python3")
        tar.add(home, home[1:], filter=lambda i: None if re.search("__pycache__|/test$|config-3", i.name) else i)
        for library in sorted(set(re.findall(r"(/\S+\.so\S*) \(", found))):
            tar.add(os.path.realpath(library), library[1:])


def begin(cls):
    """An engine with that image, for the service of this class."""
    temp = tempfile.TemporaryDirectory(prefix="brig-docker-")
    cls.addClassCleanup(temp.cleanup)
    place = pathlib.Path(temp.name)
    try:
        engine = enginekit.Engine(place / "engine")
        cls.addClassCleanup(engine.close)
        python_tar(place / "python.tar")
    except enginekit.Missing as e:
        raise unittest.SkipTest(str(e)) from None
    engine.import_tar(place / "python.tar", "interpreter")
    cls.CONFIG = (f'[manager]\nprovider = "docker"\n[docker]\nsocket = "{engine.socket}"\nimage = "interpreter"\n'
                  'pull = "never"\n')
    return engine


@needs_root
class Warm(LettaTest):
    LIMIT_SECONDS = 300

    @classmethod
    def setUpClass(cls):
        cls.engine = begin(cls)
        super().setUpClass()

    def ready(self):
        found = [p for p in self.d.ask("GET", "/v1/pools").json["pools"] if p.get("provider") == "docker"]
        return any(p["parked"] for p in found) and not any(p["making"] for p in found)

    def counts(self):
        text = self.d.ask("GET", "/metrics").body.decode()
        return [int(re.search(rf'interpreter_{name}_total{{provider="docker"}} (\d+)', text)[1])
                for name in ("claims", "misses")]

    def test_a_run_takes_a_container_that_waits(self):
        tool = self.tool(ADD)  # its schema is a run too
        self.assertEqual(self.d.ask("POST", "/v1/pools/prewarm", {"count": 1, "provider": "podman"}).status, 200)
        claims, misses = self.counts()
        seen = set()
        for i in range(3):
            wait_until("one is ready", self.ready)
            ran = self.run_tool(tool, {"x": i, "y": 1})
            self.assertEqual((ran["result"], ran["receipt"]["provider"]), (i + 1, "docker"), ran)
            self.assertIsNotNone(ran["receipt"]["usage"]["cpu_ms"])
            seen.add(ran["receipt"]["sandbox_id"])
            label = f"org.brig.sandbox={ran['receipt']['sandbox_id']}"
            wait_until("that container is gone", lambda label=label: not self.engine.containers(label))
        self.assertEqual(len(seen), 3)
        self.assertEqual(self.counts(), [claims + 3, misses])
        self.d.stop()
        self.assertEqual(self.engine.containers(), [])
        self.d.start()


@needs_root
class Eval(test_human_eval.HumanEval):
    LIMIT_SECONDS = 900

    @classmethod
    def setUpClass(cls):
        if test_human_eval.DATA.exists():
            begin(cls)
        super().setUpClass()


if __name__ == "__main__":
    unittest.main()
