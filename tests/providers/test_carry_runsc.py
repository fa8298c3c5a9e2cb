# SPDX-License-Identifier: Apache-2.0
"""A carried brig-init inside of gVisor, today's and that of 2022: the tests of tests/e2e/test_carry.py."""

import os
import pathlib
import signal
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import carrykit  # noqa: E402
import test_carry  # noqa: E402
from carrykit import RunscNew, RunscOld  # noqa: E402
from helpers import wait_until  # noqa: E402
from jailkit import needs_root  # noqa: E402
from test_carry import ENV, FORBIDDEN, code  # noqa: E402


class Runsc(test_carry.Carried):
    """gVisor answers the system calls: what is inside is seen from inside only."""

    ON = "caps no_new_privs seccomp fds".split()
    OFF = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns landlock proc disk inodes time_ns "
           "own_kernel").split()
    WHY_KERNEL = 2

    def test_the_statement_is_what_an_observer_sees(self):
        """Inode numbers of our namespaces mean nothing there, so none is given."""
        self.open(host=[0] * 8, require=carrykit.mask(*self.ON))
        self.assertEqual([n for n in self.ON if not self.read[n][0]] + [n for n in self.OFF if self.read[n][0]], [])
        for name in ("cgroup_ns", "landlock", "time_ns"):
            self.assertEqual(self.read[name][2], self.WHY_KERNEL, name)
        number, begin = self.s.start("sleep", "1000", cwd="/tmp", env=ENV)
        inside = struct.unpack_from("<I", begin.ok().payload)[0]
        text = self.box.inside("/bin/cat", f"/proc/{inside}/status")
        status = dict(line.split(":\t", 1) for line in text.splitlines())
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual(status["Seccomp"], "2")
        self.s.signal(number, signal.SIGKILL)
        self.assertEqual(self.s.end_of(number)["status"], signal.SIGKILL)

    def test_landlock_forbids_what_no_place_allows(self):
        """There is none: writing is a matter of mounts and modes."""
        self.open()
        self.assertEqual(self.read["landlock"][:3], (0, 0, self.WHY_KERNEL))
        self.assertEqual(self.s.run(*code(FORBIDDEN), "/usr/a", "/data/a", cwd="/", env=ENV)[1].split()[1], "ok")

    def test_nothing_of_a_process_is_left(self):
        self.open()
        out = self.sh("setsid sleep 1000 & echo $!")[1].strip()
        self.assertEqual(self.sh(f"kill -0 {out} 2>/dev/null || echo gone")[1], "gone\n")
        number, begin = self.s.start("sh", "-c", "sleep 1000 & sleep 1000", cwd="/tmp", env=ENV)
        begin.ok()
        self.s.signal(number, signal.SIGKILL)
        self.assertEqual(self.s.end_of(number)["status"], signal.SIGKILL)
        wait_until("both are gone", lambda: self.sh("cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep")[1] == "0\n")

    def relay(self):
        return (*self.box.runtime, "--root", str(self.box.dir / "state"), "exec", "--cap", "CAP_SYS_PTRACE",
                self.box.id, "/.brig/init", "connect", "/sock/s")


@needs_root
@unittest.skipUnless(os.path.exists(carrykit.RUNSC_NEW), f"there is no {carrykit.RUNSC_NEW}: tools/runsc.sh build")
class InRunsc(Runsc, unittest.TestCase):
    def carry(self):
        return RunscNew()


@needs_root
@unittest.skipUnless(os.path.exists(RunscOld.runtime[0]), "runsc is not installed: tools/setup.sh providers")
class InOldRunsc(Runsc, unittest.TestCase):
    test_connect_relays = None  # a socket that the guest has made in a bind cannot be reached from within that gVisor

    def carry(self):
        return RunscOld()
