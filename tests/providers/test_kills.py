# SPDX-License-Identifier: Apache-2.0
"""kill -9 of everything that makes or holds a sandbox, at random points, while sandboxes of all providers come and go:
nothing is left of any of them, whoever was not killed lives on, and every sandbox has exactly one certificate.

BRIG_TEST_KILLS is the number of kills (6: each victim once), BRIG_TEST_SEED repeats what a run did."""

import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import enginekit  # noqa: E402  pylint: disable=wrong-import-position
import vmkit  # noqa: E402  pylint: disable=wrong-import-position
from carrykit import RUNSC_NEW  # noqa: E402  pylint: disable=wrong-import-position
from helpers import PATIENCE, wait_until  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from service import Daemon  # noqa: E402  pylint: disable=wrong-import-position

KILLS = int(os.environ.get("BRIG_TEST_KILLS", "6"))
STEPS = 16  # of all that goes on: as many may be done before the kill
PATIENT = 4 * PATIENCE  # all of it runs side by side
SWEEPS = 130  # seconds: what an engine could not remove is removed every minute
# Whose sandboxes may end with a victim. An engine without live-restore ends its containers when it starts again.
DIE_WITH = {"brigd": (), "runner": (), "engine": ("docker",), "containerd": ("docker",), "sentry": ("runsc",),
            "qemu": ("vm",)}


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def cgroup_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return ""


def cgroups_with(text):
    return [os.path.join(top, d) for top, dirs, _ in os.walk("/sys/fs/cgroup") for d in dirs if text in d]


class Load:
    """One after the other, a sandbox of one provider is made, used and ended, or left alone."""

    def __init__(self, daemon, provider, rng):
        self.d, self.provider, self.rng = daemon, provider, rng
        self.live, self.ended, self.stop, self.steps = set(), set(), threading.Event(), 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while not self.stop.is_set():
            try:
                answer = self.d.ask("POST", "/v1/sandboxes", {"provider": self.provider}, timeout=PATIENT)
                if answer.status != 201:
                    self.stop.wait(0.05)
                    continue
                box = answer.json["id"]
                self.live.add(box)
                self.steps += 1
                self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["/bin/sh", "-c", "echo $$"]}, timeout=PATIENT)
                self.steps += 1
                if self.rng.random() < 0.6:
                    self.live.discard(box)
                    self.ended.add(box)
                    self.d.ask("DELETE", f"/v1/sandboxes/{box}", timeout=PATIENT)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                self.stop.wait(0.02)  # brigd is away
            if len(self.live) >= 3:
                self.stop.wait()

    def end(self):
        self.stop.set()
        self.thread.join(PATIENT)
        assert not self.thread.is_alive(), f"a request about {self.provider} was never answered"


@needs_root
class Kills(unittest.TestCase):
    LIMIT_SECONDS = 60 + 30 * KILLS

    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="brig-kills-")
        cls.addClassCleanup(temp.cleanup)
        cls.dir = pathlib.Path(temp.name)
        cls.providers = [name for name in ("runc", "crun") if shutil.which(name)]
        config = '[providers]\nstart_timeout = "20s"\n'
        runsc = RUNSC_NEW if os.path.exists(RUNSC_NEW) else shutil.which("runsc")
        if runsc:
            cls.providers.append("runsc")
            config += f'[runsc]\npath = "{runsc}"\n'
        cls.engine = None
        try:
            cls.engine = enginekit.Engine(cls.dir / "engine")
            cls.addClassCleanup(cls.engine.close)
            enginekit.busybox_tar(cls.dir / "tiny.tar")
            cls.engine.import_tar(cls.dir / "tiny.tar", "tiny")
            cls.providers.append("docker")
            config += f'[docker]\nsocket = "{cls.engine.socket}"\nimage = "tiny"\npull = "never"\n'
        except enginekit.Missing:
            pass
        try:
            config += vmkit.prepared()
            cls.providers.append("vm")
        except unittest.SkipTest:
            pass
        if not cls.providers:
            raise unittest.SkipTest("no provider but local is here: tools/setup.sh providers vm")
        cls.d = Daemon(config)
        cls.addClassCleanup(cls.d.close)

    # ---- the victims ----

    def of_boxes(self, boxes, is_it):
        """The processes in cgroups of these sandboxes whose command line is this."""
        boxes = list(boxes)  # others are made meanwhile
        return [pid for pid in pids() if any(box in cgroup_of(pid) for box in boxes) and is_it(words_of(pid))]

    def below_engine(self, name):
        """The engine's processes of this name: they have its directory in their command line."""
        return [pid for pid in pids() if name in os.path.basename((words_of(pid) or [""])[0])
                and any(str(self.engine.dir) in word for word in words_of(pid))]

    def victim(self, kind, boxes):
        if kind == "brigd":
            return [self.d.children()["brigd"]]
        if kind == "runner":
            return [self.d.children()[f"brig-r-{self.rng.choice([p for p in self.providers if p != 'vm'])}"]]
        if kind == "engine":
            return self.below_engine("dockerd")
        if kind == "containerd":
            return [pid for pid in self.below_engine("containerd") if "shim" not in words_of(pid)[0]]
        if kind == "sentry":
            return self.of_boxes(boxes["runsc"], lambda words: "boot" in words)[:1]
        return self.of_boxes(boxes["vm"], lambda words: "qemu" in words[0])[:1]

    def kinds(self):
        all_of_them = {"brigd": True, "runner": True, "engine": self.engine, "containerd": self.engine,
                       "sentry": "runsc" in self.providers, "qemu": "vm" in self.providers}
        return [name for name, there in all_of_them.items() if there]

    # ---- what is right ----

    def certificate(self, box):
        return self.d.ask("GET", f"/v1/certificates/{box}").status == 200

    def answers(self, box):
        try:
            answer = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["/bin/sh", "-c", "echo here"]},
                                timeout=PATIENT)
            return answer.status == 200 and answer.json["stdout"] == "here\n"
        except (OSError, http.client.HTTPException):
            return False

    def settled(self, box):
        return self.certificate(box) or self.answers(box)

    def makes(self, provider):
        """It makes sandboxes again."""
        def attempt():
            try:
                answer = self.d.ask("POST", "/v1/sandboxes", {"provider": provider}, timeout=PATIENT)
            except (OSError, http.client.HTTPException):
                return False
            if answer.status == 201:
                self.delete(answer.json["id"])
            return answer.status == 201
        wait_until(f"{provider} makes sandboxes again", attempt)

    def delete(self, box):
        answer = self.d.ask("DELETE", f"/v1/sandboxes/{box}", timeout=PATIENT)
        self.assertIn(answer.status, (204, 404, 410), (box, answer))
        self.ended.add(box)

    # ---- a round ----

    def strike(self, kind):
        # A machine takes seconds to start, and has neither runner nor engine.
        here = [name for name in self.providers if name != "vm" or kind in ("brigd", "qemu")]
        loads = [Load(self.d, name, random.Random(self.rng.random())) for name in here]
        by = {load.provider: load.live for load in loads}
        wanted = {"sentry": "runsc", "qemu": "vm"}.get(kind)
        if wanted:
            wait_until(f"there is a sandbox of {wanted}", lambda: by[wanted])
        steps = self.rng.randrange(STEPS)  # a random point of whatever goes on
        wait_until("sandboxes come and go", lambda: sum(load.steps for load in loads) >= steps)
        victims = self.victim(kind, by)
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # its sandbox was being ended
        for load in loads:
            load.end()
        if kind == "engine":
            self.engine.process.wait()
            self.engine.start()
        self.d.wait_ready()
        for name in here:
            self.makes(name)
        for load in loads:
            self.ended |= load.ended
            for box in load.live:
                if load.provider in DIE_WITH[kind]:
                    wait_until(f"{box} lives or is certified", lambda b=box: self.settled(b))
                else:
                    self.assertTrue(self.answers(box), f"{box} of {load.provider} was lost with {kind}")
                self.delete(box)

    def test_nothing_is_left_of_anything(self):
        seed = os.environ.get("BRIG_TEST_SEED") or str(time.monotonic_ns())
        self.rng, self.ended = random.Random(seed), set()
        kinds = self.kinds()
        for turn in range(KILLS):
            if turn % len(kinds) == 0:
                self.rng.shuffle(kinds)
            kind = kinds[turn % len(kinds)]
            with self.subTest(turn=turn, kind=kind, seed=seed):
                self.strike(kind)
        self.certified()
        end = time.monotonic() + SWEEPS
        while self.engine and self.engine.containers() and time.monotonic() < end:
            time.sleep(0.5)
        run = f"{self.d.dir}/run"
        self.d.stop()
        for box in self.ended:
            self.assertEqual(cgroups_with(box), [], box)
        self.assertEqual([pid for pid in pids() if any(box in cgroup_of(pid) for box in self.ended)], [])
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            self.assertEqual([line for line in f if run in line], [])
        self.assertEqual([name for kind in os.listdir(run) if kind.startswith("runner-")
                          for name in os.listdir(f"{run}/{kind}") if len(name) == 26], [])
        loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False, timeout=PATIENCE).stdout
        self.assertNotIn(self.d.dir, loops)
        if self.engine:
            self.assertEqual((self.engine.containers(), self.engine.docker("volume", "ls", "-q")), ([], ""))

    def certified(self):
        """One certificate for each sandbox that was ever answered for, and for those that nobody heard of."""
        for box in self.ended:
            wait_until(f"{box} has a certificate", lambda b=box: self.certificate(b))
        live = self.d.ask("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]
        for one in live:  # its creator was not told, because brigd was killed before
            self.delete(one["id"])
        wait_until("no sandbox is left", lambda: not self.d.ask("GET", "/v1/sandboxes").json["sandboxes"])
        said = self.certificates()
        for box in self.ended:
            self.assertEqual(said.count(box), 1, box)
        self.assertEqual(len(said), len(set(said)))

    def certificates(self):
        found, cursor = [], ""
        while cursor is not None:
            answer = self.d.ask("GET", f"/v1/certificates?limit=500{cursor}").json
            found += [row["sandbox_id"] for row in answer["certificates"]]
            cursor = f"&cursor={answer['next_cursor']}" if answer.get("next_cursor") else None
        return found


if __name__ == "__main__":
    unittest.main()
