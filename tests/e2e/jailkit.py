# SPDX-License-Identifier: Apache-2.0
"""What the jail tests share: a world of their own for every brig they start, and the check that nothing is left in it.

A World is one caller (root, or a plain user with or without subordinate ids and delegated cgroups) with directories for
brig's state, one cgroup in every hierarchy, and an environment.  Whatever brig makes lands in it, so what it left
behind is found there and nowhere else, also while other tests run on the same machine:

  processes     members of the world's cgroups         id ranges   locks on the world's own `ids` file
  cgroups       directories below them                 mounts      lines of our own mount table that name the world
  loop devices  backing files in the world's state     files       what the state directory holds
"""

import contextlib
import errno
import fcntl
import glob
import json
import os
import pwd
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import spares
from helpers import BRIG, PATIENCE, wait_until

KNOBS = os.environ.get("BRIG_TEST_BUILD", "brig-test")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
IS_ROOT = os.geteuid() == 0
SH = ("--", "/bin/sh", "-c")
PY = ("--", "/usr/bin/python3", "-I", "-S", "-c")
USED_V1 = ("memory", "pids", "cpu", "cpuacct", "blkio", "freezer")
PLAIN_ID = 54321  # nobody's
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

ALL_LAYERS = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock "
              "root_readonly proc fds "
              "memory cpu pids disk inodes").split()
OTHER_LAYERS = ["time_ns", "io", "own_kernel"]


def read(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return default


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ---- cgroups --------------------------------------------------------------------------------------------------------


def cgroup_mounts():
    """(device, top, mount point, file system, options) of every cgroup mount that nothing lies over."""
    found = {}
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        _, _, device, top, point = before.split()[:5]
        kind, _, options = after.split()[:3]
        if kind not in ("cgroup", "cgroup2") or not os.path.isdir(point):
            continue
        st = os.stat(point)
        if f"{os.major(st.st_dev)}:{os.minor(st.st_dev)}" == device:
            found[point] = (device, top, point, kind, options.split(","))  # the last one lies over the others
    return found.values()


def hierarchies():
    """(mount point, our own cgroup there, is v2) of every hierarchy that brig can use, each once however often it is
    mounted. Of several mounts it is the one where brig looks, and where our own cgroup can be seen."""
    own, found = {}, {}
    for line in read("/proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        own[names] = path
    for device, top, point, kind, options in cgroup_mounts():
        names = next((n for n in own if n and set(n.split(",")) <= set(options)), "") if kind == "cgroup" else ""
        if names not in own or (kind == "cgroup" and not set(names.split(",")) & set(USED_V1)):
            continue
        path, rest = own[names], own[names] if top == "/" else own[names].removeprefix(top)
        if top != "/" and not f"{path}/".startswith(f"{top}/"):
            continue
        better = (point != "/sys/fs/cgroup" and not point.startswith("/sys/fs/cgroup/"), found.get(device, (2,))[0])
        if better[0] < better[1]:
            found[device] = (better[0], point, rest or "/", kind == "cgroup2")
    return [tuple(place[1:]) for place in found.values()]


def is_v2_only():
    return bool(hierarchies()) and all(v2 for _, _, v2 in hierarchies())


class Cgroups:
    """One directory per hierarchy that brig is started in.

    v2 wants its controllers handed down from the top, and a cgroup either with processes or with children that have
    controllers; brig makes children of its own, so there each brig is started in a cgroup of its own, `caller-N`.
    """

    def __init__(self, token):
        self.tops, self.handed_down, self.owner, self.count = [], set(), None, 0
        if not IS_ROOT:
            return
        for point, own, v2 in hierarchies():
            parent = point if v2 else os.path.normpath(point + own)
            if v2:
                self.hand_down(parent)
            top = f"{parent}/{token}"
            try:
                os.mkdir(top)
            except OSError as why:
                if why.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT):
                    continue
                raise
            self.tops.append(top)
            if v2 and read(f"{top}/cgroup.controllers").split():
                self.hand_down(top)
                self.handed_down.add(top)

    @staticmethod
    def hand_down(path):
        for name in set(read(f"{path}/cgroup.controllers").split()) & {"memory", "pids", "cpu", "io"}:
            with contextlib.suppress(OSError):
                put(f"{path}/cgroup.subtree_control", f"+{name}")

    def delegate(self, uid, gid):
        """As a systemd user session is given its cgroups, in every hierarchy."""
        self.owner = (uid, gid)
        for top in self.tops:
            if top not in self.handed_down:
                self.give(top)

    def give(self, path):
        for name in ("", "/cgroup.procs", "/tasks", "/cgroup.threads", "/cgroup.subtree_control"):
            if os.path.exists(path + name):
                os.chown(path + name, *self.owner)

    def for_a_caller(self):
        """The cgroups that the next brig is to be started in."""
        self.count += 1
        places = [top for top in self.tops if top not in self.handed_down]
        for top in self.handed_down:
            place = f"{top}/caller-{self.count}"
            os.mkdir(place)
            if self.owner:
                self.give(place)
            places.append(place)
        return places

    @staticmethod
    def join(places):
        for place in places:
            put(f"{place}/cgroup.procs", "0")

    def walk(self):
        for top in self.tops:
            for where, _, _ in os.walk(top):
                yield where

    def pids(self):
        return {int(p) for where in self.walk() for p in read(f"{where}/cgroup.procs").split()}

    def below(self):
        """What brig made; the leaf it moves itself into on v2 goes with the last of it."""
        return [where for where in self.walk() if where not in self.tops
                and not os.path.basename(where).startswith("caller-")]

    def forget_callers(self):
        for top in self.handed_down:
            for place in glob.glob(f"{top}/caller-*"):
                with contextlib.suppress(OSError):
                    os.rmdir(place)

    def destroy(self):
        end = time.monotonic() + 10
        while self.tops and time.monotonic() < end:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for top in list(self.tops):
                for where, _, _ in os.walk(top, topdown=False):
                    if os.path.exists(f"{where}/freezer.state"):
                        with contextlib.suppress(OSError):
                            put(f"{where}/freezer.state", "THAWED")
                    with contextlib.suppress(OSError):
                        os.rmdir(where)
                if not os.path.exists(top):
                    self.tops.remove(top)
            if self.tops:
                time.sleep(0.02)


# ---- a caller and its world -----------------------------------------------------------------------------------------


def comm(pid):
    return read(f"/proc/{pid}/comm", "gone").strip()


def locked_ranges(path):
    """Whether somebody holds an id range."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # struct flock: any lock that excludes a write lock of the whole file
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, ask))[0] != fcntl.F_UNLCK
    finally:
        os.close(fd)


def loop_devices(below):
    """Loop devices whose file lies in that directory; an unnamed one is shown with its directory and "(deleted)"."""
    found = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        if read(path).startswith(below + "/"):
            found.append(path.split("/")[3])
    return found


class World:
    def __init__(self, uid=0, gid=0, delegated=False):
        self.uid, self.gid = (uid, gid) if IS_ROOT else (os.geteuid(), os.getegid())
        # Not brig-*: whoever clears away what brig may have left is not to take the world with it.
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="e2e-", dir="/var/tmp"))
        os.chmod(self.dir, 0o755)
        self.token = os.path.basename(self.dir)
        self.cgroups = Cgroups(self.token)
        if delegated:
            self.cgroups.delegate(uid, gid)
        self.home = f"{self.dir}/home"
        os.mkdir(self.home, 0o755)
        os.chown(self.home, self.uid, self.gid)
        self.state, self.run_dir, self.cache = (f"{self.home}/{n}" for n in ("state", "run", "cache"))
        self.env = {"PATH": PATH, "HOME": self.home, "LC_ALL": "C.UTF-8", "BRIG_STATE_DIR": self.state,
                    "BRIG_RUN_DIR": self.run_dir,
                    "BRIG_CACHE_DIR": self.cache}
        for name in ("BRIG_LIBEXEC_DIR", "LD_LIBRARY_PATH"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def close(self):
        self.cgroups.destroy()
        spares.give(self.cache)
        shutil.rmtree(self.dir, ignore_errors=True)

    def become_caller(self, cgroups):
        """In a child: the caller's cgroups, ids and signals."""
        self.cgroups.join(cgroups)
        for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(s, signal.SIG_DFL)
        if IS_ROOT and self.uid != 0:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)

    def path(self, *names):
        return os.path.join(self.home, *names)

    def file(self, name, data, mode=0o644):
        path = self.path(name)
        with open(path, "wb") as out:
            out.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(path, mode)
        os.chown(path, self.uid, self.gid)
        return path

    def mkdir(self, name, mode=0o755):
        path = self.path(name)
        os.mkdir(path)
        os.chmod(path, mode)
        os.chown(path, self.uid, self.gid)
        return path

    def popen(self, *argv, env=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        cgroups = self.cgroups.for_a_caller()
        return subprocess.Popen(argv, preexec_fn=lambda: self.become_caller(cgroups), start_new_session=True, cwd="/",
                                env={**self.env, **(env or {})}, **kw)

    def start(self, *args, program=BRIG, **kw):
        """brig run ARGS in the background, with its streams on pipes."""
        return self.popen(program, "run", *args, **kw)

    def finish(self, process, seconds=PATIENCE):
        """(status, stdout, stderr) at its end; a hang kills it and fails."""
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"did not end: {process.args}") from None
        return process.returncode, out, err

    def run(self, *args, program=BRIG, **kw):
        process = self.start(*args, program=program, **kw)
        status, out, err = self.finish(process)
        return subprocess.CompletedProcess(process.args, status, out, err)

    def receipt(self, *args, status=0, **kw):
        done = self.run("-o", "json", *args, **kw)
        receipt = json.loads(done.stdout) if done.stdout else {"outcome": "no receipt", "stderr": ""}
        if done.returncode != status:
            raise AssertionError(f"status {done.returncode}, not {status}: {receipt['outcome']} "
                                 f"{receipt['stderr'][-200:]!r} {done.stderr!r}")
        return receipt

    # ---- what is there ----

    def processes(self, *names):
        """Processes of the world, by their names."""
        return sorted(p for p in self.cgroups.pids() if not names or comm(p) in names)

    def spawner(self):
        found = []

        def look():
            found[:] = self.processes("brig-spawner")
            return len(found) == 1

        wait_until("one spawner", look)
        return found[0]

    def leaks(self):
        found = [f"process {p} ({comm(p)})" for p in self.cgroups.pids()]
        found += [f"cgroup {d}" for d in self.cgroups.below()]
        found += [f"loop device {d}" for d in loop_devices(self.state)]
        found += [f"mount {line}" for line in read("/proc/self/mountinfo").splitlines() if self.token in line]
        if locked_ranges(f"{self.run_dir}/ids"):
            found.append("a locked id range")
        found += [f"file {name} in the run directory" for name in glob.glob(f"{self.run_dir}/owner-*")]
        with contextlib.suppress(OSError):
            found += [f"file {name} in the state directory" for name in os.listdir(self.state) if name not in ("run",)]
        with contextlib.suppress(OSError):
            found += [f"temporary {name} in the cache directory"
                      for name in os.listdir(self.cache) if name.startswith(".")]
        return found

    def assert_clean(self):
        """Polled: the spawner ends after brig, and the kernel takes namespaces apart at its leisure."""
        found = []

        def look():
            found[:] = self.leaks()
            return not found

        end = time.monotonic() + PATIENCE / 3
        while not look():
            if time.monotonic() > end:
                raise AssertionError(f"left behind: {found}")
            time.sleep(0.002)
        self.cgroups.forget_callers()


# ---- test cases -----------------------------------------------------------------------------------------------------


class JailTest(unittest.TestCase):
    """Each class has a world; each test ends with nothing left in it."""

    KIND = "root"

    @classmethod
    def make_world(cls):
        return World()

    @classmethod
    def setUpClass(cls):
        cls.w = cls.make_world()
        spares.take(cls.w.cache, cls.w.uid, cls.w.gid)
        cls.addClassCleanup(lambda: cls.w.close())

    def tearDown(self):
        try:
            self.w.assert_clean()
        except AssertionError:  # the next test is not to blame
            self.w.close()
            type(self).w = self.make_world()
            raise

    def outcome(self, *args, cause, status, **kw):
        """The receipt of a run that must have ended so."""
        receipt = self.w.receipt(*args, status=status, **kw)
        self.assertEqual(receipt["outcome"]["cause"], cause, receipt["outcome"])
        return receipt

    def timed_out(self, *args):
        """(seconds, receipt) of a run that its timeout has ended, after it had said `ready`. On a busy machine the
        first timeout may come before that, so there are others."""
        for seconds in (0.2, 2, 20):
            receipt = self.outcome("--timeout", str(seconds), *args, cause="timeout", status=124)
            if "ready\n" in receipt["stdout"]:
                return seconds, receipt
        raise AssertionError(f"not ready: {receipt}")

    def shell(self, script, *flags, status=0, **kw):
        """What a shell script prints in a sandbox."""
        done = self.w.run(*flags, *SH, script, **kw)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode()

    def python(self, script, *flags, status=0, **kw):
        done = self.w.run(*flags, *PY, script, **kw)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode()

    def refused(self, *args, words=(), **kw):
        """brig's own failure, in one line that has the words, before anything ran."""
        done = self.w.run(*args, **kw)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (125, b""), done)
        self.assertEqual(said.count("\n"), 1, done)
        for word in words:
            self.assertIn(word, said, done)
        return said


def needs_root(thing):
    return unittest.skipUnless(IS_ROOT, "needs root to make other users and cgroups")(thing)


def image_stores():
    """Stores are ext4 images: root, with loop devices and mkfs.ext4."""
    return IS_ROOT and os.path.exists("/dev/loop-control") and shutil.which("mkfs.ext4", path=PATH) is not None


class SubidUser:
    """A real user with subordinate ids, for as long as this process needs it."""

    PREFIX = "brig-e2e-"

    def __enter__(self):
        self.remove_stale()
        self.name = f"{self.PREFIX}{os.getpid()}"
        subprocess.run(["useradd", "-M", "-N", "-s", "/usr/sbin/nologin", self.name], check=True, capture_output=True,
                       env={"PATH": PATH})
        for path in ("/etc/subuid", "/etc/subgid"):  # most useradds do this themselves
            lines = read(path).splitlines()
            if not any(line.startswith(f"{self.name}:") for line in lines):
                first = max([100000]
                            + [int(a) + int(b) for _, a, b in (x.split(":") for x in lines if x.count(":") == 2)])
                with open(path, "a", encoding="utf-8") as out:
                    out.write(f"{self.name}:{first}:65536\n")
        return pwd.getpwnam(self.name)

    @staticmethod
    def remove(name):
        # with its subordinate ids
        subprocess.run(["userdel", name], check=False, capture_output=True, env={"PATH": PATH})

    @classmethod
    def remove_stale(cls):
        """Of test runs that were killed."""
        for entry in pwd.getpwall():
            pid = entry.pw_name[len(cls.PREFIX):]
            if entry.pw_name.startswith(cls.PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                cls.remove(entry.pw_name)

    def __exit__(self, *_):
        self.remove(self.name)
