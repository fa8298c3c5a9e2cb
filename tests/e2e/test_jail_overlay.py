# SPDX-License-Identifier: Apache-2.0
"""A directory as the lower layer of an overlay: read through, written privately, bounded by the store, gone with the
sandbox."""

import errno
import os
import shutil
import unittest

from jailkit import IS_ROOT, PATH, PLAIN_ID, JailTest, SubidUser, World, needs_root
from test_jail_service import ServiceTest

USER = None
CHANGES = """
import os
say = lambda *w: print(*w, flush=True)
say(open('kept').read(), open('sub/deep').read(), sorted(os.listdir('.')))
with open('kept', 'a') as f: f.write('+more')
open('new', 'w').write('new')
os.remove('gone')
os.rename('old-name', 'new-name')
os.remove('sub/deep'); os.rmdir('sub'); os.mkdir('sub'); open('sub/other', 'w').write('o')
os.chmod('mode', 0o700); os.truncate('mode', 1)
os.link('kept', 'hard'); os.symlink('kept', 'soft')
# a descriptor that was opened for reading, opened again for writing
fd = os.open('again', os.O_RDONLY)
for name in (f'/proc/self/fd/{fd}', '/proc/self/root/workspace/again', '/proc/self/cwd/again', \
f'/proc/{os.getpid()}/root/workspace/again'):
    with open(name, 'r+') as f: f.write('written')
say(sorted(os.listdir('.')), open('kept').read(), open('again').read(), os.listdir('sub'), os.stat('mode').st_size)
"""
FILL = """
import os
n = 0
fd = os.open('fill', os.O_WRONLY | os.O_CREAT)
try:
    while True: n += os.write(fd, b'x' * 65536)
except OSError as why: print(why.errno, n)
try: open('kept', 'a').write('x' * (1 << 20))
except OSError as why: print(why.errno)
"""


def setUpModule():
    global USER
    if IS_ROOT and all(shutil.which(tool, path=PATH) for tool in ("useradd", "userdel", "newuidmap", "newgidmap")):
        holder = SubidUser()
        USER = holder.__enter__()
        unittest.addModuleCleanup(holder.__exit__)


def tree(top):
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            text = os.readlink(path) if os.path.islink(path) else open(
                path, encoding="utf-8").read() if name in files else None
            found[os.path.relpath(path, top)] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink if name in files else 0,
                                                 st.st_mtime_ns, text)
    return found


class Overlay:
    """What every caller gets."""

    OWNER = None

    def setUp(self):
        self.lower = self.w.mkdir(f"lower-{self._testMethodName[-20:]}")
        os.mkdir(f"{self.lower}/sub")
        for name in ("kept", "gone", "old-name", "mode", "again", "sub/deep"):
            with open(f"{self.lower}/{name}", "w", encoding="utf-8") as f:
                f.write(f"{name}-----------"[:11])
            os.chmod(f"{self.lower}/{name}", 0o600)
        os.symlink("/etc/hostname", f"{self.lower}/points-out")
        os.symlink("../" * 20 + self.w.file("secret", "the host's"), f"{self.lower}/climbs-out")
        uid = self.w.uid if self.OWNER is None else self.OWNER
        for where, dirs, files in os.walk(self.lower):
            for path in [where] + [os.path.join(where, n) for n in dirs + files]:
                os.chown(path, uid, uid if self.OWNER is not None else self.w.gid, follow_symlinks=False)
        self.flag = ("-v", f"{self.lower}:/workspace:overlay")

    def test_writes_are_private(self):
        before = tree(self.lower)
        seen, left = self.python(CHANGES, *self.flag).strip().split("\n")
        self.assertEqual(seen, "kept------- sub/deep--- ['again', 'climbs-out', 'gone', 'kept', 'mode', 'old-name', "
                         "'points-out', 'sub']")
        self.assertEqual(left, "['again', 'climbs-out', 'hard', 'kept', 'mode', 'new', 'new-name', 'points-out', "
                         "'soft', 'sub'] kept-------+more written---- ['other'] 1")
        self.assertEqual(tree(self.lower), before)
        # nothing of the first one is left for the second
        self.assertEqual(self.shell("cat kept", *self.flag), "kept-------")

    def test_links_stay_inside(self):
        self.assertNotEqual(self.shell("cat points-out", *self.flag).strip(), os.uname().nodename)
        self.assertEqual(self.shell("cat climbs-out 2>&1 || true", *self.flag).count("No such file"), 1)

    def test_the_disk_limit_counts(self):
        first, second = self.python(FILL, "--disk", "8m", *self.flag).strip().split("\n")
        number, written = map(int, first.split())
        self.assertEqual((number, second), (errno.ENOSPC, str(errno.ENOSPC)))
        self.assertLessEqual(written, 8 << 20)
        self.assertEqual(os.stat(f"{self.lower}/kept").st_size, 11)

    def test_two_of_them_and_others(self):
        flags = ("-v", f"{self.lower}:/one:overlay", "-v", f"{self.lower}:/two:overlay", "-v",
                 f"{self.lower}:/three:ro")
        self.assertEqual(self.shell("echo a >/one/new; echo b >/two/new; cat /one/new /two/new; ls /three/new 2>&1 "
                                    ">/dev/null | wc -l", *flags).split(),
                         ["a", "b", "1"])
        self.assertNotIn("new", os.listdir(self.lower))

    def test_only_directories(self):
        done = self.w.run("-v", f"{self.lower}/kept:/x:overlay", "--", "/bin/true")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"an overlay needs a directory", done.stderr)


class OverlayOfRoot(Overlay, JailTest):
    """Root: files of somebody else are the program's own, as with binds."""

    OWNER = 4242 if IS_ROOT else None

    def test_every_layer_is_on(self):
        receipt = self.w.receipt(*self.flag, "--", "/bin/true")
        plain = self.w.receipt("--", "/bin/true")
        self.assertEqual(receipt["protection"], plain["protection"])


@needs_root
class OverlayOfAPlainUser(Overlay, JailTest):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)


@needs_root
class OverlayWithSubids(Overlay, JailTest):
    @classmethod
    def make_world(cls):
        if USER is None:
            raise unittest.SkipTest("subordinate ids (root, useradd, newuidmap)")
        return World(USER.pw_uid, USER.pw_gid)


class OverlayOfAService(ServiceTest):
    """The spawner looks at the source as at a bind's: below a root, through no link."""

    def test_only_below_what_is_shared(self):
        shared = self.w.mkdir("shared")
        os.mkdir(f"{shared}/dir")
        self.w.file("shared/dir/seen", "seen\n")
        os.symlink(self.w.home, f"{shared}/up")
        os.symlink("dir", f"{shared}/link")
        self.respawn(BRIG_BIND_ROOTS=shared)
        host = self.host()
        for path in ("shared/up", "shared/link", "shared/../state", "state"):
            host.say("create", "a", f"overlay={self.w.home}/{path}:/x")
            self.assertIn(f"ended a policy hit=0 bind source {self.w.home}/{path}: ", host.expect("ended a "), path)
        self.create(host, "a", f"overlay={shared}/dir:/x")
        self.assertIn("seen", self.run_in(host, "a", "/bin/cat", "/x/seen")[1])
        self.assertEqual(self.run_in(host, "a", "/bin/sh", "-c",
                                     "echo more >>/x/seen; rm /x/seen; echo new >/x/new")[0]["status"],
                         0)
        self.end(host, "a")
        self.assertEqual(os.listdir(f"{shared}/dir"), ["seen"])


del ServiceTest  # not to be run again here
