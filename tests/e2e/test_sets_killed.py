# SPDX-License-Identifier: Apache-2.0
"""The whole service is killed at once while an installer is at work: the next start ends it before it uses its
directory, and does not start while it cannot."""

import contextlib
import http.client
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from helpers import BRIG, PATIENCE, wait_until
from jailkit import IS_ROOT, hierarchies, put, read
from service import Daemon
from wheelkit import HAS_PIP, sdist, wheel

# What builds the package: it starts a program that is easily found, and waits for it.
WAITS = """
import subprocess
def build_wheel(*a, **k):
    subprocess.run(["sleep", "{seconds}"])
"""


def freezer():
    """Our own cgroup of v1's freezer, where what is killed lives on until it is thawed; or None."""
    return next((os.path.normpath(point + own) for point, own,
                 v2 in hierarchies() if not v2 and point.endswith("/freezer")),
                None)


def below(pid):
    """The process and all of its descendants."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += [int(child) for child in read(f"/proc/{found[-1]}/task/{found[-1]}/children").split()]
    return found


@unittest.skipUnless(IS_ROOT and HAS_PIP, "needs root, and pip and venv for /usr/bin/python3")
class Killed(unittest.TestCase):
    LIMIT_SECONDS = 300

    def setUp(self):
        self.wheels = tempfile.mkdtemp(prefix="brig-wheels-")
        self.addCleanup(shutil.rmtree, self.wheels)
        os.chmod(self.wheels, 0o755)
        self.seconds = f"9{secrets.randbelow(10**8):08}"
        wheel(self.wheels, "waiter", "1.0", text=WAITS.format(seconds=self.seconds))
        sdist(self.wheels, "waits", "waiter")
        self.d = Daemon(config=f'[tools]\nfind_links = "{self.wheels}"\n')
        self.addCleanup(self.d.close)
        self.begin()

    def begin(self):
        asked = threading.Thread(target=self.install)
        asked.start()
        self.addCleanup(asked.join)
        wait_until("the installer is at work", lambda: self.installers() and self.unfinished())

    def install(self):
        try:
            self.d.ask("POST", "/v1/run", {"language": "python", "code": "1", "pip_requirements": ["waits"]},
                       timeout=300)
        except (OSError, http.client.HTTPException):
            pass  # the service was killed

    def installers(self):
        """The processes that the package has started."""
        wanted = f"sleep\0{self.seconds}\0"
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and read(f"/proc/{p}/cmdline") == wanted]

    def unfinished(self):
        return [name for name in os.listdir(f"{self.d.dir}/cache/sets") if ".tmp-" in name]

    def sandbox(self):
        """Every process of the installer's sandbox."""
        of = os.readlink(f"/proc/{self.installers()[0]}/ns/pid")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") == of:
                    found.append(int(pid))
            except OSError:
                pass  # it has ended
        return found

    def kill(self, spare=()):
        """SIGKILL to all of the service but the sandboxes, which are to notice by themselves."""
        inside = set(self.sandbox())
        pids = [p for p in below(self.d.process.pid) if p not in inside
                and read(f"/proc/{p}/comm").strip() not in spare]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none is to do anything for another's end
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # brigd goes with the supervisor
                    os.kill(pid, number)
        self.d.process.wait()

    def test_all_of_it(self):
        for spare in ((), ("brig-reaper",)):
            with self.subTest(spare):
                if not self.installers():
                    self.begin()
                self.kill(spare)
                self.d.start()
                self.assertEqual(self.installers(), [])
                wait_until("what it left is removed", lambda: not self.unfinished())

    @unittest.skipUnless(freezer(), "v1's freezer keeps what was killed")
    def test_one_that_does_not_end(self):
        cold = f"{freezer()}/{os.path.basename(self.wheels)}"
        os.mkdir(cold)
        self.addCleanup(lambda: wait_until("the cgroup is empty", lambda: not read(f"{cold}/cgroup.procs"))
                        or os.rmdir(cold))
        self.addCleanup(put, f"{cold}/freezer.state", "THAWED")
        for pid in self.sandbox():
            put(f"{cold}/cgroup.procs", str(pid))
        put(f"{cold}/freezer.state", "FROZEN")
        wait_until("the installer is frozen", lambda: read(f"{cold}/freezer.state").strip() == "FROZEN")
        self.kill()
        before = self.unfinished()
        done = subprocess.run([BRIG, "serve"], stdin=subprocess.DEVNULL, env=self.d.env, capture_output=True, text=True,
                              timeout=4 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], r"^brig: .*sandboxes of the service before do not end "
                                                       r"\(cgroups brig-\*\.[a-z0-9]{8}\): Device or resource busy$")
        self.assertEqual((len(self.installers()), self.unfinished()), (1, before))
        put(f"{cold}/freezer.state", "THAWED")
        self.d.start()
        self.assertEqual(self.installers(), [])
        wait_until("what it left is removed", lambda: not self.unfinished())


if __name__ == "__main__":
    unittest.main()
