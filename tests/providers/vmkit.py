# SPDX-License-Identifier: Apache-2.0
"""What the tests of the provider `vm` need: a kernel and a root, made once per build by brig-vm-prepare itself, and a
service that has them."""

import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from helpers import BRIG, wait_until  # noqa: E402
from service import ServiceTest  # noqa: E402

PREPARE = HERE.parent.parent / "tools/brig-vm-prepare"
PACKAGES = ("python3 bash dash coreutils grep sed findutils libc-bin base-files hostname procps nodejs "
            "util-linux").split()
INSTALL = "apt-get install qemu-system-x86 erofs-utils"


def place():
    return pathlib.Path(os.environ.get("BRIG_TEST_VM_DIR") or pathlib.Path(BRIG).resolve().parent / "vm-provider")


def prepared():
    """The lines for config.toml. Modules that run beside each other share what the first has made."""
    missing = [name for name in ("qemu-system-x86_64", "mkfs.erofs") if not shutil.which(name)]
    if missing:
        raise unittest.SkipTest(f"there is no {' and no '.join(missing)}; {INSTALL}")
    place().mkdir(exist_ok=True)
    with open(place() / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([PREPARE, place(), *PACKAGES], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"brig-vm-prepare: {done.stderr[-1000:]}")
    return done.stdout


class VmTest(ServiceTest):
    LIMIT_SECONDS = 300
    MORE = ""
    SNAPSHOTS = 0  # no warm starts: another machine in the background would cost time

    @classmethod
    def setUpClass(cls):
        cls.CONFIG = prepared() + f"snapshots = {cls.SNAPSHOTS}\n" + cls.MORE
        super().setUpClass()

    def machine(self, **members):
        return self.sandbox(provider="vm", **members)

    def processes(self, box):
        """The processes of the sandbox around a machine: {pid: name}, as the host sees them."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if box in (entry / "cgroup").read_text(encoding="utf-8"):
                    found[int(entry.name)] = (entry / "comm").read_text(encoding="utf-8").strip()
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended meanwhile
        return found

    def qemu(self, box):
        return next(pid for pid, name in self.processes(box).items() if name.startswith("qemu"))

    def certificate(self, box):
        path = f"/v1/certificates/{box}"
        wait_until("it has a certificate", lambda: self.d.ask("GET", path).status == 200)
        return self.d.ask("GET", path).json

    def kill_brigd(self):
        before = self.d.children()["brigd"]
        os.kill(before, signal.SIGKILL)
        wait_until("another brigd is there", lambda: self.d.children().get("brigd", before) != before)
        self.d.wait_ready()
