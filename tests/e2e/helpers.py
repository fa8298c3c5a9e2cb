# SPDX-License-Identifier: Apache-2.0
"""What the e2e tests share: starting the installed brig, looking at what it left behind, and a terminal to run it in.

BRIG is the program under test; see tests/run.py for the rest of the environment.
"""

import ctypes
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

BRIG = os.environ.get("BRIG", "brig")
# seconds before a wait is called a hang; no test measures with it
PATIENCE = float(os.environ.get("BRIG_TEST_PATIENCE", "30"))
FAILED = 125
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def environment(**more):
    """What brig itself gets: enough to find its helpers, nothing of a developer's shell."""
    keep = {k: v for k,
            v in os.environ.items() if k.startswith("BRIG_") or k in ("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR")}
    keep.update(more)
    return {k: v for k, v in keep.items() if v is not None}


def own_mounts():
    """For setUpModule(), as root: a mount table of our own. Other tests look for mounts that brig left in theirs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and (libc.unshare(CLONE_NEWNS) != 0
                              or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0):
        raise OSError(ctypes.get_errno(), "a mount namespace")


def brig(*args, stdin=None, env=None, **kw):
    """Runs brig to its end. stdin: bytes, or nothing at all."""
    how = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run([BRIG, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
                          env=environment() if env is None else env, **how, **kw)


def read_line(stream):
    """One line of an unbuffered pipe, waiting for it."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([stream], [], [], PATIENCE)[0]:
            raise AssertionError(f"no line in time, only {line!r}")
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        line += byte
    return line


def wait_until(what, condition):
    """Waits for something that nothing announces."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.01)


def steady(look, times=10):
    """What look() gives when it has given the same `times` times in a row: what moved has come to rest."""
    last, same, end = look(), 1, time.monotonic() + PATIENCE
    while same < times:
        if time.monotonic() > end:
            raise AssertionError(f"it does not come to rest: {last}")
        time.sleep(0.02)
        now = look()
        last, same = now, same + 1 if now == last else 1
    return last


def unread(fd):
    """Bytes that wait in a pipe, a socket or a terminal for whoever reads this descriptor."""
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]


def arrived(sock):
    """Waits until the other end's kernel has everything that was sent."""
    wait_until("all is there", lambda: struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0] == 0)


def wakeups(pid):
    """How often a process went to sleep: it grows each time it has looked at something."""
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def own_cgroups():
    """The directories below our cgroup, in every hierarchy: where brig makes its own."""
    found = set()
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            # The empty name is v2's: alone, or beside v1. A hierarchy that is not mounted there is none of brig's.
            for root in (f"/sys/fs/cgroup/{controllers}",) if controllers else ("/sys/fs/cgroup/unified",
                                                                                "/sys/fs/cgroup"):
                top = root + path
                if os.path.isdir(top):
                    found.update(d for d, _, _ in os.walk(top))
                    break
    return found


class BrigTest(unittest.TestCase):
    """A directory of its own, a brig whose state lies in it, and the assertions that all these tests need."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-e2e-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def write(self, name, data, mode=0o644):
        path = self.path(name)
        with open(path, "wb") as out:
            out.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(path, mode)
        return path

    def run_ok(self, *args, **kw):
        """brig run ARGS, which must end with 0."""
        done = brig("run", *args, **kw)
        self.assertEqual(done.returncode, 0, done)
        return done

    def receipt(self, *args, status=0, **kw):
        done = brig("run", "-o", "json", *args, **kw)
        self.assertEqual(done.returncode, status, done)
        return json.loads(done.stdout)

    def start(self, *args, **kw):
        """Starts brig with its streams on pipes, and signals as a shell would give it in the foreground. It ends with
        the test."""
        def foreground():
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)

        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
        process = subprocess.Popen([BRIG, *args], preexec_fn=foreground, start_new_session=True, **{**how, **kw})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream and not stream.closed:
                stream.close()

    def fresh_state(self):
        """An environment whose state, run and cache directories do not exist yet."""
        where = {f"BRIG_{n}_DIR": self.path(n.lower()) for n in ("STATE", "RUN", "CACHE")}
        return environment(**where), list(where.values())

    def assert_refused(self, args, *words, untouched=True):
        """Exit status 125, one line on stderr that has the words, nothing on stdout, nothing created.

        untouched=False: the engine was up when the library refused, so its directories and its cache may be there, but
        no file of a sandbox: no store, no cgroup.
        """
        env, places = self.fresh_state()
        cgroups = own_cgroups()
        done = brig(*args, env=env)
        said = done.stderr.decode("utf-8", "replace")
        self.assertEqual(done.returncode, FAILED, f"{args}: {done}")
        self.assertEqual(done.stdout, b"", args)
        self.assertTrue(said.startswith("brig: ") and said.endswith("\n"), f"{args}: {said!r}")
        self.assertEqual(said.count("\n"), 1, f"{args}: {said!r}")
        self.assertTrue(all(c.isprintable() for c in said[:-1]), f"{args}: {said!r}")
        for word in words:
            self.assertIn(word, said, f"{args}: {said!r}")
        if untouched:
            self.assertEqual([p for p in places if os.path.exists(p)], [], f"{args}: created something")
        else:
            state, run, _ = places
            made = [os.path.join(d, f) for top in (state, run) for d, _, names in os.walk(top) for f in names
                    if f != "ids"]  # the lock file of all sandboxes
            self.assertEqual(made, [], f"{args}: created something")
        # Not "none is new": brigs of others may be at work beside us. Theirs go away, and so must ours.
        wait_until(f"{args}: no cgroup is left", lambda: not own_cgroups() - cgroups)


class Terminal:
    """A program in a terminal of ours: it leads a session whose controlling terminal is a PTY."""

    def __init__(self, *argv, rows=24, cols=80, env=None):
        self.master, slave = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(slave)
        self.seen = b""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                        env=environment(TERM="vt220") if env is None else env)
        self.slave = slave

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, data):
        os.write(self.master, data)

    def expect(self, wanted):
        """Reads until it was seen; what came before is returned and forgotten."""
        end = time.monotonic() + PATIENCE
        while wanted not in self.seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{wanted!r} did not come, only {self.seen!r}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"{wanted!r} did not come before the end, only {self.seen!r}")
            self.seen += data
        before, _, self.seen = self.seen.partition(wanted)
        return before

    def wait(self):
        """The exit status; all output is in seen."""
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                break
        return self.process.returncode

    def modes(self):
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
