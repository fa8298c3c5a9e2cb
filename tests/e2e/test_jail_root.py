# SPDX-License-Identifier: Apache-2.0
"""What a program sees of a machine: its own read-only root, the files it was given, and nothing else."""

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import socket
import stat
import subprocess
import tarfile
import unittest

from helpers import BRIG, read_line
from jailkit import BUILD, PLAIN_ID, PREFIX, PY, SH, JailTest, World, needs_root, read

INMATE = next((p for p in (f"{PREFIX}/tests/e2e/inmate", f"{BUILD}/tests/e2e/inmate") if os.path.exists(p)), "inmate")
TMPFS, PROC, EXT4 = "1021994", "9fa0", "ef53"
FLOCK = """
import fcntl, os, sys
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDONLY)
    for how in (fcntl.flock, fcntl.lockf) if sys.argv[1] == 'try' else (fcntl.flock,):
        try: how(fd, fcntl.LOCK_NB | (fcntl.LOCK_EX if how is fcntl.flock else fcntl.LOCK_SH)); print(path, 'free')
        except OSError as why: print(path, 'locked' if why.errno == 11 else why.errno)
sys.stdout.flush()
if sys.argv[1] == 'hold': sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()
"""


def fingerprint(top):
    """Everything a directory tree is: names, types, owners, modes, times, contents."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in [".", *dirs, *files]:
            path = os.path.join(where, name)
            st = os.lstat(path)
            what = (stat.filemode(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns, st.st_ctime_ns, st.st_nlink)
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    what += (hashlib.sha256(f.read()).hexdigest(),)
            elif stat.S_ISLNK(st.st_mode):
                what += (os.readlink(path),)
            found[os.path.relpath(path, top)] = what
    return found


class ReadOnly(JailTest):
    def test_erofs(self):
        script = """
import os
def told(fn, *args):
    try: fn(*args); return 'done'
    except OSError as why: return why.errno
for path in ('/', '/usr', '/usr/bin', '/etc', '/home', '/var', '/usr/local', '/dev', '/dev/pts/..'):
    print(path, told(os.mkdir, path + '/new'), told(os.open, path + '/file', os.O_CREAT | os.O_WRONLY))
for path in ('/etc/passwd', '/usr/bin/env'):
    print(path, told(os.unlink, path), told(os.chmod, path, 0o777), told(os.rename, path, path + '2'), told(os.utime, \
path))
"""
        for line in self.python(script).splitlines():
            self.assertEqual(set(line.split()[1:]), {str(errno.EROFS)}, line)

    def test_existing_files_cannot_be_opened_for_writing(self):
        script = ("import os\nfor p in ('/etc/passwd', '/usr/bin/env', '/etc/hosts'):\n"
                  "    try: os.open(p, os.O_RDWR); print('open')\n"
                  "    except OSError as why: print(why.errno)")
        self.assertTrue(set(self.python(script).split()) <= {str(errno.EROFS), str(errno.EACCES)})

    def test_remounting_and_mounting_are_refused(self):
        for command in ("mount -o remount,rw /", "mount -t tmpfs x /tmp", "umount /usr", "unshare -Ur true",
                        "unshare -m true"):
            self.assertNotEqual(self.w.run(*SH, f"{command} 2>/dev/null").returncode, 0, command)

    def test_files_of_the_root_belong_to_nobody_here(self):
        # Ids that are not in the sandbox's map: no program has them, whatever it does.
        self.assertEqual(set(self.shell("stat -c %u / /usr /etc /usr/bin/env").split()), {"65534"})


class Nothing(JailTest):
    """Nothing else of the host."""

    def test_the_top(self):
        names = set(self.shell("ls -A /").split())
        self.assertEqual(names - {"lib32", "libx32", "lib64"},
                         {"bin", "dev", "etc", "home", "lib", "proc", "run", "sbin", "tmp", "usr", "var", "workspace"})

    def test_canaries(self):
        canary = self.w.file("canary", "secret")
        paths = [canary, self.w.dir, "/root/.bashrc", "/var/lib/dpkg/status", "/var/log", "/sys", "/sys/kernel",
                 "/boot", "/opt", "/mnt", "/srv",
                 "/run/docker.sock", "/var/run/docker.sock", "/etc/shadow", "/etc/ssh", "/proc/sys", "/proc/kcore",
                 "/proc/1", "/dev/mem", "/dev/kmsg",
                 "/dev/fuse", "/dev/loop0", "/dev/sda", "/dev/vda", "/old", "/.old"]
        found = self.python("import os, sys\nfor p in sys.argv[1:]:\n"
                            "    if os.path.lexists(p): print(p)".replace("sys.argv[1:]", repr(paths)))
        self.assertEqual(found.split(), [])

    def test_places_are_empty(self):
        self.assertEqual(self.shell("ls -A /home; ls -A /home/user /workspace /tmp /var/tmp /run /dev/shm | grep -v : "
                                    "| grep .; ls -A /var").split(),
                         ["user", "tmp"])

    def test_the_mount_table_tells_nothing(self):
        text = self.shell("cat /proc/self/mountinfo /proc/self/mounts")
        for word in (self.w.token, "/var/tmp/", "/var/lib", "/root", "/sys", "/dev/vd", "/dev/sd", BUILD):
            self.assertNotIn(word, text)

    def test_devices(self):
        self.assertEqual(self.shell("ls /dev").split(),
                         sorted("fd full null ptmx pts random shm stderr stdin stdout tty urandom zero".split()))
        self.assertEqual(self.shell("find /dev -xdev -type b; find /dev -xdev -type c | wc -l").strip(), "6")

    def test_processes(self):
        script = ("import os\nprint(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()), os.getpid(), "
                  "os.getppid())")
        self.assertEqual(self.python(script).strip(), "[2] 2 1")
        self.assertEqual(set(self.shell("ls /proc | grep -v '^[0-9]'").split()), {"self", "thread-self"})

    def test_network(self):
        script = ("import socket\nprint([n for _, n in socket.if_nameindex()])\ns = socket.socket()\n"
                  "try: s.connect(('192.0.2.1', 80))\n"
                  "except OSError as why: print(why.errno)\nt = socket.socket(); t.bind(('127.0.0.1', 0)); t.listen()\n"
                  "u = socket.create_connection(t.getsockname()); print('loopback')")
        out = self.w.run("--", "/usr/bin/python3", "-I", "-c", script).stdout.decode().splitlines()
        self.assertEqual(out, ["['lo']", str(errno.ENETUNREACH), "loopback"])

    def test_host_name(self):
        name = self.shell("cat /proc/sys/kernel/hostname 2>/dev/null || hostname; cat /etc/hostname").split()
        self.assertEqual(name[0], name[1])
        self.assertNotEqual(name[0], socket.gethostname())
        self.assertEqual(self.shell("hostname; cat /etc/hostname; getent hosts box | head -1", "--name",
                                    "box").split()[:2],
                         ["box", "box"])

    def test_ids(self):
        self.assertEqual(self.shell("id; echo $HOME; pwd; whoami"),
                         "uid=1000(user) gid=1000(user) groups=1000(user)\n/home/user\n/workspace\nuser\n")

    def test_its_range_is_held_in_one_place_of_the_host(self):
        """Not in the run directory: a service with another one would give out the same ids."""
        process = self.w.start("-i", "--", "/bin/sh", "-c", "cat /proc/self/uid_map; read -r _", stdin=subprocess.PIPE)
        self.addCleanup(self.w.finish, process)
        first = int(process.stdout.readline().split()[1])
        with open("/run/brig/ids", "r+b") as f, self.assertRaises(BlockingIOError):
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, (first - 0x70000000) // 65536)
        self.assertFalse(os.path.exists(f"{self.w.run_dir}/ids"))
        process.stdin.write(b"end\n")
        process.stdin.flush()
        # The tests may run in a container or behind another root themselves: then pid 1 has other mounts.
        with open("/proc/self/mountinfo", "rb") as ours, open("/proc/1/mountinfo", "rb") as theirs:
            of_host = ours.readline() == theirs.readline()
        by = "private uid range" if of_host else "uid range, private in this container"
        self.assertEqual(self.w.receipt("--", "/bin/true")["protection"]["layers"]["uid_range"], {"on": True, "by": by})

    def test_a_run_of_its_own_is_told(self):
        """Behind another /run nobody knows what the host's own services give out."""
        script = "mount -t tmpfs none /run && exec \"$@\""
        process = self.w.popen("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", BRIG, "run", "-o",
                               "json", "--", "/bin/true")
        status, out, err = self.w.finish(process)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["protection"]["layers"]["uid_range"],
                         {"on": True, "by": "uid range, private in this container"})

    def test_privileges(self):
        status = dict(line.split(":\t", 1)
                      for line in self.shell("cat /proc/self/status").splitlines() if ":\t" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"], status["Groups"].strip()), ("1", "2", ""))

    def test_descriptors(self):
        self.assertEqual(self.shell("ls /proc/self/fd").split(), ["0", "1", "2", "3"])  # 3 is the listing's own
        secret = os.open(self.w.file("fd", "secret"), os.O_RDONLY)
        self.addCleanup(os.close, secret)
        high = fcntl.fcntl(secret, fcntl.F_DUPFD, 200)
        self.addCleanup(os.close, high)
        self.assertEqual(self.shell("ls /proc/self/fd", pass_fds=[secret, high]).split(), ["0", "1", "2", "3"])


class Etc(JailTest):
    def test_users(self):
        users = [line.split(":") for line in self.shell("cat /etc/passwd").splitlines()]
        self.assertEqual({u[0] for u in users}, {"root", "user", "nobody"} | ({"daemon"} & {u[0] for u in users}))
        self.assertIn(["user", "1000", "1000", "/home/user"], [[u[0], u[2], u[3], u[5]] for u in users])
        self.assertEqual(self.shell("getent passwd user | cut -d: -f1; getent group 1000 | cut -d: -f1").split(),
                         ["user", "user"])

    def test_names(self):
        self.assertIn("127.0.0.1", self.shell("cat /etc/hosts"))
        out = self.w.run("--", "/usr/bin/python3", "-I", "-c",
                         "import socket; print(socket.getaddrinfo('localhost', 80)[0][4][0])").stdout
        self.assertEqual(out, b"127.0.0.1\n")
        self.shell("test -e /etc/resolv.conf && test -s /etc/nsswitch.conf")

    def test_nothing_private(self):
        self.assertEqual(self.shell(
            "ls -d /etc/shadow* /etc/ssh /etc/ssl/private /etc/sudoers /etc/fstab /etc/machine-id 2>/dev/null; true"),
                         "")

    @unittest.skipUnless(os.path.exists("/etc/ssl/certs/ca-certificates.crt"),
                         "a CA bundle on the host (ca-certificates)")
    def test_ca_bundle(self):
        with open("/etc/ssl/certs/ca-certificates.crt", "rb") as f:
            want = hashlib.sha256(f.read()).hexdigest()
        self.assertEqual(self.shell("sha256sum /etc/ssl/certs/ca-certificates.crt").split()[0], want)
        out = self.w.run("--", "/usr/bin/python3", "-I", "-c",
                         "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 10)")
        self.assertEqual(out.stdout, b"True\n", out)

    def test_programs(self):
        for command, want in ((["python3", "-c", "import json, ctypes, socket; print(6 * 7)"], b"42\n"),
                              (["perl", "-e", "print 6 * 7"], b"42"),
                              (["bash", "-c", "echo $((6 * 7))"], b"42\n"), (["awk", "BEGIN { print 6 * 7 }"], b"42\n"),
                              (["sort"], b""), (["tar", "--version"], None), (["sed", "--version"], None)):
            if not shutil.which(command[0]):
                continue
            done = self.w.run("--", *command)
            self.assertEqual(done.returncode, 0, done)
            if want is not None:
                self.assertEqual(done.stdout, want, done)

    def test_terminals_of_its_own(self):
        self.assertIn("/dev/pts/0",
                      self.w.run("--", "/usr/bin/python3", "-I", "-c",
                                 "import os, pty; m, s = pty.openpty(); print(os.ttyname(s))").stdout.decode())


class Locks(JailTest):
    """A lock on a file of the template is not seen by anyone else: neither a channel nor a nuisance."""

    FILES = ("/usr/bin/env", "/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/usr", "/etc", "/", "/dev/null")

    def test_not_shared(self):
        holder = self.w.start("-i", "--", "/usr/bin/python3", "-I", "-c", FLOCK, "hold", *self.FILES, stdin=-1)
        held = []
        while (line := read_line(holder.stdout)) not in (b"up\n", b""):
            held.append(line.decode().split())
        self.assertEqual([h for h in held if h[1] != "free"], [])
        self.assertEqual(len(held), len(self.FILES))
        try:
            done = self.w.run("--", "/usr/bin/python3", "-I", "-c", FLOCK, "try", *self.FILES)
            self.assertEqual([line for line in done.stdout.decode().splitlines() if not line.endswith(" free")], [],
                             done)
            for path in ("/usr/bin/env", "/etc/passwd"):
                with open(path, "rb") as f:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            self.w.finish(holder)


class WritableRoot(JailTest):
    def test_all_of_it(self):
        before = os.stat("/usr/bin").st_mtime_ns  # not that of /etc, where other tests add users
        script = ("set -e; mkdir /opt; echo x > /opt/x; echo y > /usr/brig-e2e-new; echo z > /etc/brig-e2e-new; mkdir "
                  "/usr/brig-e2e; echo left > /etc/brig-e2e-left; "
                  "cat /opt/x /usr/brig-e2e-new /etc/brig-e2e-new; mv /opt /opt2; cp /bin/true /usr/brig-e2e/mine; "
                  "/usr/brig-e2e/mine; rm -r /etc/brig-e2e-new /opt2")
        self.assertEqual(self.shell(script, "--writable-root").split(), ["x", "y", "z"])
        self.assertEqual(os.stat("/usr/bin").st_mtime_ns, before)
        for path in ("/usr/brig-e2e-new", "/usr/brig-e2e", "/opt/x", "/etc/brig-e2e-new", "/etc/brig-e2e-left"):
            self.assertFalse(os.path.exists(path), path)

    def test_gone_with_the_run(self):
        self.shell("echo x > /usr/brig-e2e", "--writable-root")
        self.assertEqual(self.shell("ls /usr/brig-e2e 2>/dev/null; true", "--writable-root"), "")

    def test_the_statement_says_so(self):
        layer = self.outcome("--writable-root", "--", "/bin/true", cause="exited",
                             status=0)["protection"]["layers"]["root_readonly"]
        self.assertFalse(layer["on"])
        self.assertTrue(layer["why"])

    def test_the_kernels_places_stay(self):
        self.assertNotEqual(self.w.run("--writable-root", *SH, "mkdir /proc/x 2>/dev/null").returncode, 0)
        self.assertNotEqual(self.w.run("--writable-root", *SH, "mkdir /dev/x 2>/dev/null").returncode, 0)


class Roots(JailTest):
    """--rootfs DIR."""

    COUNT = 0

    def rootfs(self, links=(), dirs=("etc", "data"), name=None):
        Roots.COUNT += 1
        top = self.w.mkdir(name or f"root{Roots.COUNT}")
        os.mkdir(f"{top}/bin")
        shutil.copy(INMATE, f"{top}/bin/inmate")
        for name in dirs:
            os.mkdir(f"{top}/{name}")
        if "data" in dirs:
            with open(f"{top}/data/file", "w", encoding="utf-8") as f:
                f.write("from the image\n")
            os.chmod(f"{top}/data/file", 0o640)
        for name, target in links:
            os.makedirs(os.path.dirname(f"{top}/{name}"), exist_ok=True)
            os.symlink(target, f"{top}/{name}")
        return top

    def inside(self, top, *words, flags=(), status=0):
        done = self.w.run(*flags, "--rootfs", top, "--", "/bin/inmate", *words)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode().splitlines()

    def test_its_own_files_and_not_the_hosts(self):
        top = self.rootfs()
        out = self.inside(top, "ls:/", "stat:/usr/bin/env", "stat:/data/file", "id:", "stat:/etc/shadow")
        names = set(out[0].split())
        self.assertTrue({"bin", "data", "etc", "proc", "dev", "tmp", "workspace"} <= names, names)
        self.assertIn("errno 2", out[1])
        self.assertEqual(out[3], "1000 1000 1000 1000")
        self.assertIn("errno 2", out[4])

    @needs_root
    def test_owners_are_as_in_the_image(self):
        top = self.rootfs()
        os.chown(f"{top}/data", 1000, 1000)
        out = self.inside(top, "stat:/bin/inmate", "stat:/data", "read:/data/file")
        self.assertEqual([line.split()[2:] for line in out[:2]], [["0", "0"], ["1000", "1000"]])
        self.assertIn("errno 13", out[2])  # 0640 of root: the program is not root in its image either

    def test_files_are_unchanged(self):
        top = self.rootfs(dirs=("etc", "data", "tmp", "dev", "proc", "run", "var", "home"))
        before = fingerprint(top)
        out = self.inside(top, "write:/data/new", "write:/etc/new", "write:/tmp/x", "write:/workspace/x",
                          "write:/data/file", "write:/home/user/x")
        self.assertIn(f"errno {errno.EROFS}", out[0])
        self.assertIn(f"errno {errno.EROFS}", out[1])
        self.assertEqual((out[2], out[3], out[5]), ("written", "written", "written"))
        self.assertIn("errno", out[4])
        self.assertEqual(fingerprint(top), before)

    def test_writable_root_leaves_them_unchanged_too(self):
        top = self.rootfs()
        os.chmod(f"{top}/data", 0o777)
        before = fingerprint(top)
        out = self.inside(top, "write:/data/new", "read:/data/new", flags=("--writable-root",))
        self.assertEqual(out, ["written", "written inside"])
        self.assertEqual(fingerprint(top), before)

    def test_hostile_links(self):
        outside = self.w.mkdir("outside", 0o777)
        for name in ("shm", "pts", "user", "tmp", "hostname", "hosts"):
            os.mkdir(f"{outside}/{name}") if name in ("shm", "pts", "user", "tmp") else self.w.file(f"outside/{name}",
                                                                                                    "host's")
        before = fingerprint(outside)
        for how in (outside, f"../../../../../../../../../..{outside}", "/proc/1/root" + outside):
            links = [(name, how)
                     for name in ("dev", "proc", "etc", "tmp", "workspace", "run", "home", "var", "sys", "mnt", "usr")]
            top = self.rootfs(links=links, dirs=())
            image = fingerprint(top)
            out = self.inside(top, "fs:/proc", "fs:/dev", "write:/tmp/x", "write:/workspace/x", "write:/home/user/x",
                              "write:/run/x", "write:/var/tmp/x",
                              "write:/dev/shm/x", "stat:/tmp", "stat:/proc", "stat:/dev/null")
            self.assertEqual((out[0], out[1]), (PROC, TMPFS), how)
            self.assertEqual(out[2:8], ["written"] * 6, how)
            self.assertEqual([line.split()[0] for line in out[8:]], ["dir", "dir", "char"], how)
            self.assertEqual(fingerprint(outside), before, how)
            self.assertEqual(fingerprint(top), image, how)

    def test_hostile_links_below(self):
        outside = self.w.mkdir("outside2", 0o777)
        before = fingerprint(outside)
        links = [(name, outside) for name in ("dev/shm", "dev/pts", "dev/null", "home/user", "var/tmp", "etc/hostname",
                                              "etc/hosts", "etc/resolv.conf")]
        top = self.rootfs(links=links, dirs=())
        out = self.inside(top, "write:/dev/shm/x", "write:/home/user/x", "write:/var/tmp/x", "stat:/dev/null",
                          "stat:/dev/pts")
        self.assertEqual(out[:3] + [out[3].split()[0], out[4].split()[0]], ["written"] * 3 + ["char", "dir"])
        self.assertEqual(fingerprint(outside), before)

    def test_files_where_directories_belong(self):
        top = self.rootfs(dirs=())
        for name in ("dev", "proc", "tmp", "workspace", "home"):
            with open(f"{top}/{name}", "w", encoding="utf-8") as f:
                f.write("a file\n")
        out = self.inside(top, "fs:/proc", "write:/tmp/x", "write:/workspace/x")
        self.assertEqual(out, [PROC, "written", "written"])

    def test_binds_into_hostile_links(self):
        outside = self.w.mkdir("outside3", 0o777)
        source = self.w.mkdir("source", 0o777)
        self.w.file("source/mark", "bound")
        before = fingerprint(outside)
        for target in ("/mnt", "/mnt/deep", "/workspace/../mnt"):
            top = self.rootfs(links=[("mnt", outside)])
            done = self.w.run("-v", f"{source}:{target}", "--tmpfs", "/scratch:1m", "--rootfs", top, "--",
                              "/bin/inmate", f"read:{target}/mark")
            if done.returncode == 0:  # not followed: the image's name was replaced, or the link led to a place inside
                self.assertEqual(done.stdout, b"bound\n", (target, done))
            else:
                self.assertEqual(done.returncode, 125, (target, done))
            self.assertEqual(fingerprint(outside), before, target)

    @needs_root
    def test_devices_and_set_ids_are_dead(self):
        top = self.rootfs()
        os.mknod(f"{top}/data/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        os.chmod(f"{top}/data/zero", 0o666)
        shutil.copy(INMATE, f"{top}/bin/setid")
        os.chmod(f"{top}/bin/setid", 0o6755)
        out = self.inside(top, "read:/data/zero")
        self.assertIn(f"errno {errno.EACCES}", out[0])
        done = self.w.run("--rootfs", top, "--", "/bin/setid", "id:")
        self.assertEqual(done.stdout, b"1000 1000 1000 1000\n", done)

    def test_the_statement(self):
        r = self.outcome("--require", "root_readonly,landlock,proc,mount_ns", "--rootfs", self.rootfs(), "--",
                         "/bin/inmate", "id:", cause="exited", status=0)
        self.assertTrue(r["protection"]["layers"]["root_readonly"]["on"])

    def test_a_program_that_is_not_there(self):
        self.outcome("--rootfs", self.rootfs(), "--", "/bin/sh", cause="exited", status=127)

    def test_refusals(self):
        link = self.w.path("to-proc")
        os.symlink("/proc", link)
        for path in ("/", "/proc", "/proc/self/root", link, self.w.path("missing"), "/dev/null", "/sys"):
            self.refused("--rootfs", path, "--", "/bin/true", words=(path,))

    def test_it_is_not_shared_between_two(self):
        # The same image twice at once: each has its own places.
        top = self.rootfs()
        first = self.w.start("--rootfs", top, "-i", "--", "/bin/inmate", "write:/tmp/x", "read:/dev/stdin", stdin=-1)
        self.assertEqual(read_line(first.stdout), b"written\n")
        self.assertIn("errno 2", self.inside(top, "read:/tmp/x")[0])
        self.w.finish(first)


class Tars(Roots):
    """--rootfs TAR: unpacked once, in a sandbox."""

    def archive(self, name, build):
        path = self.w.path(name)
        with tarfile.open(path, "w") as tar:
            build(tar)
        os.chown(path, self.w.uid, self.w.gid)
        return path

    @staticmethod
    def member(tar, name, data=b"", **how):
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), how.pop("mode", 0o755)
        for key, value in how.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(data))

    def with_inmate(self, tar):
        with open(INMATE, "rb") as f:
            self.member(tar, "bin/inmate", f.read())

    def test_it_runs(self):
        def build(tar):
            self.with_inmate(tar)
            self.member(tar, "data/file", b"from the archive\n", mode=0o644)

        path = self.archive("good.tar", build)
        for _ in range(2):
            self.assertEqual(self.inside(path, "read:/data/file"), ["from the archive"])

    def test_hostile_members(self):
        outside = self.w.mkdir("tar-outside", 0o777)
        before = fingerprint(outside)

        def build(tar):
            self.with_inmate(tar)
            for name in (f"{outside}/absolute", f"../../../../../../../../../..{outside}/dots", "bin/../../x"):
                self.member(tar, name, b"x")
            self.member(tar, "link", type=tarfile.SYMTYPE, linkname=outside)
            self.member(tar, "link/through", b"x")
            self.member(tar, "hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")
            self.member(tar, "dev/sda", type=tarfile.BLKTYPE, devmajor=8, devminor=0)

        path = self.archive("evil.tar", build)
        done = self.w.run("--rootfs", path, "--", "/bin/inmate", "ls:/")
        self.assertIn(done.returncode, (0, 125), done)
        self.assertEqual(fingerprint(outside), before)

    def test_no_archive(self):
        path = self.w.file("no.tar", b"this is not an archive" * 100)
        self.refused("--rootfs", path, "--", "/bin/true", words=(path,))
        self.assert_no_half_unpacked()

    def test_cut_off(self):
        def build(tar):
            self.with_inmate(tar)
            self.member(tar, "data/file", b"x" * 100000)

        whole = self.archive("whole.tar", build)
        with open(whole, "rb") as f:
            path = self.w.file("cut.tar", f.read()[:-60000])
        self.refused("--rootfs", path, "--", "/bin/true", words=(path,))
        self.assert_no_half_unpacked()

    def assert_no_half_unpacked(self):
        with_pid = [n for n in os.listdir(f"{self.w.cache}/rootfs")
                    if "." in n] if os.path.isdir(f"{self.w.cache}/rootfs") else []
        self.assertEqual(with_pid, [])


for _name in [n for n in dir(Tars) if n.startswith("test_") and n in dir(Roots)]:
    setattr(Tars, _name, None)  # only its own


class Binds(JailTest):
    def test_read_only(self):
        source = self.w.mkdir("ro", 0o777)
        self.w.file("ro/file", "hello\n", 0o666)
        before = fingerprint(source)
        out = self.shell("cat /data/file; touch /data/new; echo x > /data/file; rm -f /data/file; chmod 777 /data/file",
                         "-v", f"{source}:/data:ro", status=1)
        self.assertEqual(out, "hello\n")
        script = "import os\ntry: os.open('/data/file', os.O_RDWR)\nexcept OSError as why: print(why.errno)"
        self.assertEqual(self.python(script, "-v", f"{source}:/data:ro").strip(), str(errno.EROFS))
        self.assertEqual({k: v[:4] for k, v in fingerprint(source).items()}, {k: v[:4] for k, v in before.items()})

    def test_read_write_is_the_owners(self):
        source = self.w.mkdir("rw")
        self.shell("echo inside > /data/new; mkdir /data/dir", "-v", f"{source}:/data")
        st = os.stat(f"{source}/new")
        self.assertEqual((st.st_uid, st.st_gid, read(f"{source}/new")), (self.w.uid, self.w.gid, "inside\n"))
        self.assertEqual(self.shell("stat -c %U /data /data/new", "-v", f"{source}:/data").split(), ["user", "user"])

    def test_a_file(self):
        path = self.w.file("one", "hello\n")
        self.assertEqual(self.shell("cat /workspace/one", "-v", f"{path}:/workspace/one:ro"), "hello\n")
        self.shell("echo changed > /etc-file", "-v", f"{path}:/etc-file")
        self.assertEqual(read(path), "changed\n")

    def test_targets(self):
        source = self.w.mkdir("targets", 0o777)
        self.w.file("targets/mark", "x\n")
        for target in ("/a", "/a/b/c", "/workspace/in", "/home/user/in", "/tmp/in", "/opt/x", "/workspace",
                       "/var/lib/x"):
            self.assertEqual(self.shell(f"cat {target}/mark", "-v", f"{source}:{target}:ro"), "x\n", target)

    def test_several_and_nested(self):
        for name in ("n1", "n2", "n3"):
            self.w.mkdir(name, 0o777)
            self.w.file(f"{name}/mark", f"{name}\n")
        os.mkdir(self.w.path("n1/sub"))
        out = self.shell("cat /n/mark /n/sub/mark /workspace/n3/mark", "-v", f"{self.w.path('n1')}:/n", "-v",
                         f"{self.w.path('n2')}:/n/sub:ro",
                         "-v", f"{self.w.path('n3')}:/workspace/n3")
        self.assertEqual(out.split(), ["n1", "n2", "n3"])

    def test_no_set_ids_and_no_devices(self):
        source = self.w.mkdir("options")
        options = self.shell("grep ' /data ' /proc/self/mounts", "-v", f"{source}:/data").split()[3].split(",")
        self.assertTrue({"nosuid", "nodev"} <= set(options), options)

    def test_a_link_in_the_source_leads_nowhere_outside(self):
        source = self.w.mkdir("links")
        canary = self.w.file("link-canary", "secret")
        for name, target in (("abs", canary), ("dots", "../link-canary"), ("root", "/"), ("proc", "/proc/1/root")):
            os.symlink(target, f"{source}/{name}")
        self.assertEqual(self.shell(f"cat /data/abs /data/dots /data/root{canary} 2>/dev/null; true", "-v",
                                    f"{source}:/data"),
                         "")

    def refuse(self, source, *words):
        self.refused("-v", f"{source}:/mnt", "--", "/bin/true", words=("bind source", source, *words))

    def test_never(self):
        for source in ("/", "/proc", "/proc/self", "/proc/1/root", "/sys", "/sys/fs/cgroup", "/dev", "/dev/shm",
                       "/dev/null", "/run", "/var/run", "/var"):
            if os.path.exists(source):
                self.refuse(source)

    def test_never_by_another_name(self):
        for n, target in enumerate(("/", "/proc", "/sys", "/dev", "/run", "/proc/self/root", self.w.run_dir)):
            if target == self.w.run_dir:
                os.makedirs(target, exist_ok=True)
                os.chown(target, self.w.uid, self.w.gid)
            link = self.w.path(f"link{n}")
            os.symlink(target, link)
            self.refuse(link)
            self.refuse(f"{link}/.")
        self.refuse("/usr/..")
        self.refuse("/usr/../proc")

    def test_never_our_own_state(self):
        self.shell("true")  # makes the directories
        for path in (self.w.state, self.w.run_dir, self.w.cache, f"{self.w.cache}/..", self.w.home, self.w.dir,
                     os.path.dirname(self.w.dir)):
            if os.path.exists(path):
                self.refuse(path)

    def test_never_a_socket_or_a_pipe(self):
        sock = socket.socket(socket.AF_UNIX)
        self.addCleanup(sock.close)
        sock.bind(self.w.path("docker.sock"))
        self.refuse(self.w.path("docker.sock"), "directory or a regular file")
        os.mkfifo(self.w.path("pipe"))
        self.refuse(self.w.path("pipe"), "directory or a regular file")

    @needs_root
    def test_never_through_a_bind_mount(self):
        # The same directory under another name is the same directory.
        for target in ("/", "/proc", "/dev", "/run"):
            alias = self.w.path("alias")
            os.makedirs(alias, exist_ok=True)
            script = 'mount --make-rprivate / && mount --bind "$1" "$2" && exec "$3" run -v "$2:/mnt" -- /bin/ls /mnt'
            process = self.w.popen("unshare", "-m", "sh", "-c", script, "sh", target, alias, BRIG)
            status, out, err = self.w.finish(process)
            self.assertEqual((status, out), (125, b""), (target, err))
            self.assertIn(b"bind source", err)

    def test_missing(self):
        self.refuse(self.w.path("missing"), "No such file")

    def test_targets_that_are_refused(self):
        source = self.w.mkdir("source2")
        for target in ("/", "/proc", "/proc/self", "/dev", "/dev/shm", "/sys", "/usr", "/etc", "/bin", "/lib",
                       "/a/../b", "/a//b", "/a/./b", "/a/"):
            self.refused("-v", f"{source}:{target}", "--", "/bin/true", words=("bind target", target))


@needs_root
class Propagation(JailTest):
    """On most machines all mounts are shared: what is mounted onto a copy of one appears on the original, unless told
    not to."""

    SCRIPT = ('mount --make-rshared / && cat /proc/self/mountinfo > "$0.before"; "$@"; echo "status $?"; cat '
              '/proc/self/mountinfo > "$0.after"')

    def check(self, *flags, command=("/bin/true",)):
        record = self.w.path("mounts")
        process = self.w.popen("unshare", "-m", "sh", "-c", self.SCRIPT, record, BRIG, "run", *flags, "--", *command)
        status, out, err = self.w.finish(process)
        self.assertEqual((status, out.splitlines()[-1:]), (0, [b"status 0"]), err)
        self.assertEqual(read(f"{record}.after"), read(f"{record}.before"), flags)

    def test_plain(self):
        self.check()

    def test_image_and_writable_root(self):
        self.check("--disk", "64m", "--writable-root")

    def test_profiles(self):
        self.check("--profile", "compat")

    def test_nested_binds(self):
        for name in ("p1", "p2"):
            self.w.mkdir(name, 0o777)
        os.mkdir(self.w.path("p1/sub"))
        os.mkdir(self.w.path("p1/deep"))
        self.w.file("p1/file", "x")
        one, two = self.w.path("p1"), self.w.path("p2")
        self.check("-v", f"{one}:/n", "-v", f"{two}:/n/sub", "-v", f"{two}:/workspace/x", "--tmpfs", "/n/deep:1m", "-v",
                   f"{one}/file:/n/file:ro")
        self.check("-v", f"{one}:/workspace", "-v", f"{two}:/workspace/sub:ro", "--tmpfs", "/workspace/deep:1m")

    def test_another_root(self):
        top = self.w.mkdir("root")
        os.mkdir(f"{top}/bin")
        os.mkdir(f"{top}/data")
        shutil.copy(INMATE, f"{top}/bin/inmate")
        self.check("--rootfs", top, "-v", f"{top}/data:/data", "--tmpfs", "/data/x:1m", command=("/bin/inmate", "ls:/"))

    def test_as_a_plain_user(self):
        plain = World(PLAIN_ID, PLAIN_ID)
        self.addCleanup(plain.close)
        for name in ("p1", "p2"):
            plain.mkdir(name)
        plain.mkdir("p1/sub")
        record = self.w.path("mounts")
        os.chmod(self.w.home, 0o777)
        script = self.SCRIPT.replace('"$@"', f'setpriv --reuid {PLAIN_ID} --regid {PLAIN_ID} --clear-groups "$@"')
        process = self.w.popen("unshare", "-m", "sh", "-c", script, record, BRIG, "run", "-v", f"{plain.path('p1')}:/n",
                               "-v", f"{plain.path('p2')}:/n/sub",
                               "--", "/bin/true", env=plain.env)
        status, out, err = self.w.finish(process)
        self.assertEqual((status, out), (0, b"status 0\n"), err)
        self.assertEqual(read(f"{record}.after"), read(f"{record}.before"))


class WorkingDirectory(JailTest):
    def test_places(self):
        for path in ("/", "/tmp", "/home/user", "/usr/bin", "/workspace"):
            self.assertEqual(self.shell("pwd", "-w", path), f"{path}\n")

    def test_missing(self):
        self.refused("-w", "/missing", "--", "/bin/true", words=("working directory", "/missing", "No such file"))
        self.refused("-w", "/etc/passwd", "--", "/bin/true", words=("working directory", "/etc/passwd"))

    def test_a_bind(self):
        source = self.w.mkdir("work")
        self.assertEqual(self.shell("pwd; echo x > file", "-v", f"{source}:/w", "-w", "/w"), "/w\n")
        self.assertEqual(read(f"{source}/file"), "x\n")

    def test_refused(self):
        for path in ("relative", ".", "/proc", "/proc/self/fd/3", "/proc/self/cwd", "/dev/fd", "/sys", "/tmp/../proc",
                     "/proc/../proc", "//proc", "/./proc"):
            self.refused("-w", path, "--", "/bin/true", words=("working directory",))

    def test_procfs_behind_a_link(self):
        # CVE-2024-21626: a working directory that is a descriptor's link out of the sandbox.
        source = self.w.mkdir("cwdlinks")
        for name, target in (("a", "/proc"), ("b", "/proc/self/fd"), ("c", "/proc/self"), ("d", "/proc/1/cwd"),
                             ("e", "/dev/fd/3"), ("f", "/dev/fd/4")):
            os.symlink(target, f"{source}/{name}")
            self.refused("-v", f"{source}:/l", "-w", f"/l/{name}", "--", "/bin/pwd",
                         words=("working directory", f"/l/{name}"))
        # no way out either: refused, or a place of the sandbox
        for name, target in (("g", "/proc/self/cwd"), ("h", "/proc/self/root")):
            os.symlink(target, f"{source}/{name}")
            done = self.w.run("-v", f"{source}:/l", "-w", f"/l/{name}", *SH, "pwd -P; ls /workspace")
            if done.returncode != 125:
                self.assertEqual((done.returncode, done.stdout), (0, b"/\n"), done)


class Compat(JailTest):
    FLAGS = ("--profile", "compat")

    def test_complete(self):
        r = self.outcome(*self.FLAGS, "--require", "proc,seccomp,landlock", "--", "/bin/true", cause="exited", status=0)
        self.assertEqual(r["protection"]["layers"]["proc"].get("by"), "masked")

    def test_memory_is_the_limit(self):
        info = dict(line.split(":", 1)
                    for line in self.shell("cat /proc/meminfo", *self.FLAGS, "-m", "100m").splitlines())
        self.assertEqual(info["MemTotal"].split(), [str(100 << 10), "kB"])
        self.assertEqual(info["SwapTotal"].split(), ["0", "kB"])
        self.assertEqual(self.shell("free -b | awk '/^Mem/ { print $2 }'", *self.FLAGS, "-m", "100m").strip(),
                         str(100 << 20))

    def test_cpus_are_the_limit(self):
        for cpus, want in (("0.5", 1), ("1", 1), ("1.5", min(2, os.cpu_count()))):
            self.assertEqual(int(self.shell("grep -c ^processor /proc/cpuinfo", *self.FLAGS, "-c", cpus)), want)
            self.assertEqual(int(self.shell("grep -c '^cpu[0-9]' /proc/stat", *self.FLAGS, "-c", cpus)), want)

    def test_tools(self):
        self.shell("ps ax > /dev/null && uptime > /dev/null && cat /proc/loadavg /proc/version > /dev/null",
                   *self.FLAGS)

    def test_processes_are_the_sandboxes(self):
        self.assertEqual(self.python("import os\nprint([p for p in os.listdir('/proc') if p.isdigit()])",
                                     *self.FLAGS).strip(),
                         "['2']")

    def test_masks(self):
        script = """
import os
for name in ('kcore', 'keys', 'key-users', 'kallsyms', 'kmsg', 'timer_list', 'sched_debug', 'interrupts', 'cmdline', \
'modules', 'partitions',
             'diskstats', 'slabinfo', 'vmallocinfo', 'iomem', 'ioports', 'locks', 'swaps', 'zoneinfo', 'buddyinfo', \
'softirqs', 'config.gz'):
    try: data = os.read(os.open('/proc/' + name, os.O_RDONLY), 100)
    except OSError as why: data = b''
    if data: print(name, data)
for name in ('acpi', 'scsi', 'irq', 'bus', 'fs', 'driver', 'tty', 'asound', 'pressure'):
    try: names = os.listdir('/proc/' + name)
    except OSError: names = []
    if names: print(name, names)
for name in ('sys/kernel/core_pattern', 'sys/kernel/hostname', 'sysrq-trigger', 'sys/vm/drop_caches', \
'sys/net/ipv4/ip_forward', 'meminfo', 'irq/0/smp_affinity'):
    try: os.open('/proc/' + name, os.O_WRONLY); print(name, 'writable')
    except OSError: pass
"""
        self.assertEqual(self.python(script, *self.FLAGS), "")

    def test_the_default_has_none_of_it(self):
        self.assertEqual(self.shell("ls /proc/meminfo /proc/sys 2>/dev/null; true"), "")


class Paranoid(JailTest):
    FLAGS = ("--profile", "paranoid")

    def test_complete_and_usable(self):
        self.outcome(*self.FLAGS, "--require", "seccomp,landlock,proc", *PY, "print(1)", cause="exited", status=0)
        self.assertEqual(self.shell("echo x > /tmp/x; cat /tmp/x; ls / > /dev/null; grep -c root /etc/passwd",
                                    *self.FLAGS).split()[0],
                         "x")

    def test_what_it_refuses(self):
        script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def told(*args):
    r = libc.syscall(*args)
    return 'done' if r >= 0 else ctypes.get_errno()
print(told(29, 0, 4096, 0o1600), told(64, 0, 1, 0o600), told(68, 0, 0o600), told(257, -100, b'/tmp/setid', 0o101, \
0o6755), told(437, -100, b'/', 0, 0))
r, w = os.pipe()
try: print(os.sendfile(w, os.open('/etc/passwd', os.O_RDONLY), 0, 10))
except OSError as why: print(why.errno)
"""
        want = [errno.ENOSYS, errno.ENOSYS, errno.ENOSYS, errno.EPERM, errno.ENOSYS, errno.EINVAL]
        done = self.w.run(*self.FLAGS, "--", "/usr/bin/python3", "-I", "-c", script)
        self.assertEqual(done.stdout.split(), [str(e).encode() for e in want], done)
        done = self.w.run("--", "/usr/bin/python3", "-I", "-c", script)
        self.assertEqual(done.stdout.split()[:4], [b"done"] * 4, done)


if __name__ == "__main__":
    unittest.main()
