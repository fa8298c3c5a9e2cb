# SPDX-License-Identifier: Apache-2.0
"""A package that is being installed swaps directories for links while the service could be looking at its tree (attack
S05): the service, which has the rights of the user who started it, changes nothing of that user's files."""

import os
import shutil
import stat
import tempfile
import unittest

from jailkit import IS_ROOT, PLAIN_ID
from lettakit import KEY, LettaTest
from service import Daemon
from wheelkit import HAS_PIP, sdist, wheel

# Unreadable directories become links to the victim and directories again, as often as the processor allows. The last
# word says that it happened.
SWAPPER = '''
import ctypes, os, sys, time
def build_wheel(*a, **k):
    libc = ctypes.CDLL(None, use_errno=True)
    names = []
    for i in range(4):
        d, l = b"/opt/brig/d%d" % i, b"/opt/brig/l%d" % i
        os.mkdir(d)
        os.symlink("VICTIM", l)
        names.append((d, l, os.open(d, os.O_RDONLY)))
    os.mkdir("/opt/brig/still")
    os.chmod("/opt/brig/still", 0)
    swaps = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for d, l, fd in names * 250:
            os.fchmod(fd, 0)  # again unreadable, whoever made it readable meanwhile
            if libc.renameat2(-100, d, -100, l, 2) != 0:
                sys.exit("SWAP failed: " + os.strerror(ctypes.get_errno()))
            swaps += 1
    sys.exit("SWAPPED %s, mode %o" % (swaps > 1000, os.stat("/opt/brig/still").st_mode & 0o777))
'''
SECONDS = 4


@unittest.skipUnless(IS_ROOT and HAS_PIP, "needs root to become somebody, and pip and venv for /usr/bin/python3")
class LiveTree(LettaTest):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.mkdtemp(prefix="brig-home-")
        cls.addClassCleanup(shutil.rmtree, cls.home)
        cls.victim = f"{cls.home}/notes"
        with open(cls.victim, "w", encoding="utf-8") as f:
            f.write("mine\n")
        cls.wheels = f"{cls.home}/wheels"
        os.mkdir(cls.wheels)
        for path, mode in ((cls.home, 0o755), (cls.wheels, 0o755), (cls.victim, 0o644)):
            os.chmod(path, mode)
            os.chown(path, PLAIN_ID, PLAIN_ID)
        wheel(cls.wheels, "swapper", "1.0", text=SWAPPER.replace("VICTIM", cls.victim).replace("SECONDS", str(SECONDS)))
        sdist(cls.wheels, "swapped", "swapper")
        cls.d = Daemon(f'[tools]\nfind_links = "{cls.wheels}"\n', env={"BRIG_SECRETS_KEY": KEY}, user=PLAIN_ID)
        cls.addClassCleanup(cls.d.close)

    @classmethod
    def tearDownClass(cls):
        pass  # a plain user's service has no cgroups to look for

    def test_a_swapped_link(self):
        ran = self.ask("POST", "/run", {"language": "python", "code": "print('ran')", "pip_requirements": ["swapped"]})
        self.assertEqual(stat.S_IMODE(os.stat(self.victim).st_mode), 0o644)
        # Nor did anything of the service look into the tree while it was alive: it would have made this directory
        # readable.
        self.assertIn("SWAPPED True, mode 0", ran["receipt"]["error"]["message"], ran)
        self.assertEqual(os.stat(self.home).st_mode & 0o777, 0o755)
