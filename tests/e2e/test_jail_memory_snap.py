# SPDX-License-Identifier: Apache-2.0
"""Stores that are memory become disks: all that programs can put there is copied as it is, nothing is followed out of
the store, and what does not fit is refused."""

import json
import os
import tempfile
import unittest

import test_jail_disks as disks
from jailkit import IS_ROOT, image_stores
from test_jail_disks import LIMIT, MIB, USAGE, name
from test_jail_service import fields

# Prints all that there is to know of each file, however deep it lies.
LIST = """
import hashlib, json, os, stat, sys
found = {}
def try_to(get, *args):
    try:
        return get(*args)
    except PermissionError:
        return 'no'
def attribute(name, key):
    return os.getxattr(name, key, follow_symlinks=False).hex()
def content(name):
    with open(name, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
def enter(name, path):
    names = os.listdir(name)
    os.chdir(name)
    for one in names:
        look(one, path + '/' + one)
    os.chdir('..')
def look(name, path):
    st = os.lstat(name)
    entry = [oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns,
             {key: try_to(attribute, name, key) for key in os.listxattr(name, follow_symlinks=False)}]
    if stat.S_ISLNK(st.st_mode):
        entry.append(os.readlink(name))
    elif stat.S_ISREG(st.st_mode):
        entry += [st.st_size, try_to(content, name), st.st_nlink, st.st_blocks * 512 < max(st.st_size // 2, 4097)]
    found[os.fsencode(path).decode('latin-1').replace('d' * 20, 'd')] = entry
    if stat.S_ISDIR(st.st_mode):
        try_to(enter, name, path)
for top in ('/workspace', '/home/user', '/tmp', '/var/tmp'):
    look(top, top)
print(json.dumps(found))
"""

# What programs do to whoever copies their files.
HOSTILE = r"""
set -e
cd /workspace
ln -s /etc/passwd out; ln -s ../../../../../../etc up; ln -s /proc/self/root self; ln -s out/x loop
ln -s "$(printf '%04000d' 1)" long
mkdir -p "a/$(printf '%0255d' 1)" "$(printf 'new\nline\\ \001')"
echo x >"$(printf '\377\376')"; echo x >-rf; echo x >"a/.wh.x"; echo x >.wh..wh..opq
mkdir rest links upper work lost+found
mkfifo fifo; mkfifo a/fifo
head -c 100000 /dev/urandom >data; truncate -s 50000000 sparse
printf end | dd of=sparse bs=1 seek=20000000 conv=notrunc status=none
ln data a/same; ln data third; ln out a/out; ln fifo a/pipe
: >empty; mkdir void; chmod 0 void empty; chmod 700 a; chmod 1777 void
mkdir locked; echo x >locked/x; touch -d 2001-02-03T04:05:06.789 locked/x data a; chmod 000 locked
echo run >/run/x; echo shm >/dev/shm/x; echo t >/tmp/t; echo v >/var/tmp/v; echo h >/home/user/h
"""

# Sockets, attributes, access lists, and a path that is longer than any may be.
MORE = """
import os, socket, struct, sys
os.chdir('/workspace')
socket.socket(socket.AF_UNIX).bind('socket')
os.setxattr('data', 'user.note', b'kept')
os.setxattr('a', 'user.overlay.redirect', b'/../../etc')
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in (
    (1, 7, 0xffffffff), (2, 5, int(sys.argv[1])), (4, 5, 0xffffffff), (8, 4, int(sys.argv[1])), (16, 5, 0xffffffff),
    (32, 0, 0xffffffff)))
os.setxattr('data', 'system.posix_acl_access', acl)
os.setxattr('a', 'system.posix_acl_default', acl)
os.chdir('/var/tmp')
for _ in range(300):
    os.mkdir('d' * 20)
    os.chdir('d' * 20)
open('bottom', 'w').write('deep')
"""


@unittest.skipUnless(IS_ROOT and image_stores(), "needs loop devices as root")
class Memory(disks.DiskTest):
    def spawn(self, **env):
        scripts = tempfile.TemporaryDirectory()
        self.addCleanup(scripts.cleanup)
        self.shared = scripts.name
        os.chmod(self.shared, 0o755)
        for script, text in (("list.py", LIST), ("hostile.sh", HOSTILE), ("more.py", MORE)):
            with open(f"{self.shared}/{script}", "w", encoding="ascii") as file:
                file.write(text)
        self.scripts = f"ro={self.shared}:/scripts"
        super().spawn(BRIG_BIND_ROOTS=self.shared, **env)

    def listing(self, host, key):
        return json.loads(self.sh(host, key, "python3 /scripts/list.py"))

    def kept(self, host, key, *words):
        """What a sandbox has, after a look at its copy, which has the same."""
        before = self.listing(host, key)
        self.assertIsInstance(self.order(host, "snap", name("snap", "s"), key), dict)
        self.assertEqual(self.listing(host, key), before, "it goes on with what it has")
        self.box(host, "copy", f"from={name('snap', 's')}", self.scripts, *words)
        self.maxDiff = None
        self.assertEqual(self.listing(host, "copy"), self.without_forged(before))
        return before

    @staticmethod
    def without_forged(listing):
        """No attribute of an overlay is a program's to set."""
        for entry in listing.values():
            entry[4] = {key: value for key, value in entry[4].items() if not key.startswith("user.overlay.")}
        return listing

    def test_all_that_programs_can_leave_there(self):
        host = self.host()
        for who, words in ((1000, ()), (33, ("root=1",))):
            with self.subTest(who=who):
                self.create(host, "m", f"memory={128 * MIB}", self.scripts, *words)
                self.sh(host, "m", f"sh /scripts/hostile.sh && python3 /scripts/more.py {who}")
                if who == 33:
                    self.sh(host, "m", "cd /workspace; cp data suid; chown 33:44 suid; chmod 6755 suid; chown 7:8 a;"
                            "chown -h 5:6 out; chown 9:9 fifo socket; chown 1000:1000 void; chmod 2775 void;"
                            "chmod u+s,o+t a/same")
                found = self.kept(host, "m", *words)
                self.assertGreater(len(found), 330)
                self.assertEqual(self.sh(host, "copy", "ls -A /run /dev/shm"), "/dev/shm:\n\n/run:")
                self.sh(host, "copy", "cmp /workspace/out /etc/passwd")
                for key in ("copy", "m"):
                    self.end(host, key)
                self.assertEqual(self.order(host, "remove", name("snap", "s")), "removed")

    def test_progress_is_told(self):
        host = self.host()
        self.create(host, "m", f"memory={256 * MIB}")
        self.sh(host, "m", "head -c 60000000 /dev/urandom >/workspace/f; sha256sum </workspace/f >/workspace/sum;"
                "head -c 30000000 /dev/urandom >/dev/shm/x")
        host.say("disk", "snap", name("snap", "s"), "m")
        lines = host.until("disk ")
        self.assertGreater(len([line for line in lines if line.startswith("copied ")]), 2)
        self.assertLess(fields(lines[-1])["used"], 80_000_000, "what is in /dev/shm belongs to running programs")
        self.box(host, "copy", f"from={name('snap', 's')}")
        self.sh(host, "copy", "sha256sum </workspace/f | cmp - /workspace/sum")
        for key in ("copy", "m"):
            self.end(host, key)

    def test_a_copy_has_the_same_bound(self):
        """To the last block: as much as there was, and no more."""
        host = self.host()
        self.create(host, "m", f"memory={32 * MIB}")
        self.sh(host, "m", f"head -c {8 * MIB} /dev/urandom >/workspace/f")
        self.assertIsInstance(self.order(host, "snap", name("snap", "half"), "m"), dict)
        self.sh(host, "m", "head -c 100000000 /dev/urandom >>/workspace/f; test $? = 1")
        self.assertIsInstance(self.order(host, "snap", name("snap", "full"), "m"), dict)
        self.box(host, "h", f"from={name('snap', 'half')}")
        self.sh(host, "h", "head -c 100000000 /dev/zero >/workspace/z", status=1)
        size = int(self.sh(host, "h", "stat -c %s /workspace/z"))
        self.assertTrue(8 * MIB - 65536 <= size <= 8 * MIB, size)
        self.box(host, "g", f"from={name('snap', 'full')}")
        self.assertEqual(self.sh(host, "g", "stat -c %s /workspace/f"), str(16 * MIB))
        self.sh(host, "g", "head -c 65536 /dev/zero >/workspace/more", status=1)
        for key in ("h", "g", "m"):
            self.end(host, key)

    def test_what_does_not_fit_is_refused(self):
        host = self.host()
        snap = name("snap", "s")
        self.create(host, "m", f"memory={64 * MIB}", "inodes=20000")
        self.sh(host, "m", "cd /workspace; seq 15000 | xargs mkdir")  # a block each on a disk
        self.assertEqual(self.order(host, "snap", snap, "m"), (
            LIMIT, f"disk {snap}: what the sandbox has written does not fit: No space left on device"))
        self.sh(host, "m", "rm -r /workspace/*; truncate -s 18T /workspace/sparse")
        self.assertEqual(self.order(host, "snap", snap, "m"),
                         (LIMIT, f"disk {snap}: what the sandbox has written does not fit: File too large"))
        self.sh(host, "m", "rm /workspace/sparse; echo on >/workspace/on")
        self.assertEqual(self.listed(host)[0], {}, "nothing is left of them")
        self.assertEqual([entry for entry in os.listdir(self.place()) if entry.startswith(("tmp-", "snap-"))], [])
        self.assertIsInstance(self.order(host, "snap", snap, "m"), dict)
        self.end(host, "m")
        self.create(host, "n", f"memory={16 * MIB}", "inodes=20000")
        self.assertEqual(self.order(host, "snap", name("snap", "n"), "n"),
                         (USAGE, "inodes 20000: more than disk 8388608 has room for, at most 16384"))
        self.end(host, "n")

    def test_overlays_of_binds(self):
        """What was removed and hidden stays so, and the host's files are not copied."""
        host = self.host()
        source = f"{self.shared}/lower"
        for path in ("gone", "dir/old", "kept"):
            os.makedirs(os.path.dirname(f"{source}/{path}"), exist_ok=True)
            with open(f"{source}/{path}", "w", encoding="ascii") as file:
                file.write("host")
        os.chmod(source, 0o777)
        os.chmod(f"{source}/dir", 0o777)
        bind = f"overlay={source}:/data"
        self.create(host, "m", f"memory={64 * MIB}", "root=1", bind)
        self.sh(host, "m", "cd /data; rm gone; rm -r dir; mkdir dir; echo new >dir/new")
        self.assertIsInstance(self.order(host, "snap", name("snap", "s"), "m"), dict)
        self.box(host, "copy", f"from={name('snap', 's')}", "root=1", bind)
        self.assertEqual(self.sh(host, "copy", "cd /data; ls . dir; cat kept"), ".:\ndir\nkept\n\ndir:\nnew\nhost")
        for key in ("copy", "m"):
            self.end(host, key)


if __name__ == "__main__":
    unittest.main()
