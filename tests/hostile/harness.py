# SPDX-License-Identifier: Apache-2.0
"""The ground the hostile suite stands on: canaries, modes, outer bounds, running brig, and the leak check.

Everything made here carries one random token in its name, so that the leak check and the clean-up touch only our own
objects. A canary is a random value that exists outside the sandbox only; the sandbox is told where it is, never what it
is. A canary in any output fails the case (or, with layers switched off, proves that it bites).

Every run of brig sits in a cgroup of the harness in each hierarchy, with a bound on processes and memory: if the jail
does not hold, the machine still does.
"""

import base64
import contextlib
import ctypes
import glob
import json
import os
import pwd
import re
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")
CALLER_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
OUTER_PIDS = 3000
OUTER_MEMORY = 3 << 30
PATIENCE = float(os.environ.get("BRIG_TEST_PATIENCE", "30"))  # seconds before a wait is called a hang, as in tests/e2e
SPAWN_LOCK = threading.Lock()


class Skip(Exception):
    """The case needs something this machine or mode does not have; the text names it."""


# --- modes ------------------------------------------------------------------------------------------------------------


@dataclass
class Mode:
    """Who calls brig. Features are what the harness itself arranged, not what brig claims."""

    name: str
    uid: int
    gid: int
    dir: str
    delegated: bool = False
    flags: tuple = ()  # of every run
    inside: bool = False  # the attacker is root inside
    features: set = field(default_factory=set)
    canary_path: str = ""
    sentinel: subprocess.Popen = None

    @property
    def home(self):
        return f"{self.dir}/home"

    def caller_env(self, secret):
        env = {
            "PATH": CALLER_PATH,
            "LANG": "C.UTF-8",
            "HOME": self.home,
            "XDG_RUNTIME_DIR": f"{self.dir}/run",
            "XDG_STATE_HOME": f"{self.dir}/state",
            "XDG_CACHE_HOME": f"{self.dir}/cache",
            "BRIG_STATE_DIR": f"{self.dir}/state/brig",
            "BRIG_RUN_DIR": f"{self.dir}/run/brig",
            "BRIG_CACHE_DIR": f"{self.dir}/cache/brig",
            "CALLER_SECRET_TOKEN": secret,
        }
        return env


def drop_to(uid, gid):
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


class TestUser:
    """A real user with subordinate ids, for rootless with two ids. Removed again whatever happens."""

    def __init__(self, token, suffix=""):
        self.name = f"hostile{token[:6]}{suffix}"
        self.made = False

    def __enter__(self):
        for tool in ("useradd", "userdel", "newuidmap", "newgidmap"):
            if not shutil.which(tool, path=CALLER_PATH):
                raise Skip(tool)
        subprocess.run(
            ["useradd", "--no-create-home", "--no-user-group", "--shell", "/usr/sbin/nologin", self.name],
            check=True, capture_output=True, env={"PATH": CALLER_PATH})
        self.made = True
        for path in ("/etc/subuid", "/etc/subgid"):
            with open(path, "a+", encoding="utf-8") as f:
                f.seek(0)
                lines = f.read().splitlines()
                if not any(line.startswith(self.name + ":") for line in lines):
                    first = max([100000]
                                + [int(x.split(":")[1]) + int(x.split(":")[2]) for x in lines if x.count(":") == 2])
                    f.write(f"{self.name}:{first}:65536\n")
        return pwd.getpwnam(self.name)

    def __exit__(self, *_):
        if not self.made:
            return
        subprocess.run(["userdel", self.name], check=False, capture_output=True, env={"PATH": CALLER_PATH})
        for path in ("/etc/subuid", "/etc/subgid"):
            with open(path, encoding="utf-8") as f:
                lines = f.readlines()
            kept = [line for line in lines if not line.startswith(self.name + ":")]
            if kept != lines:
                with open(path, "w", encoding="utf-8") as f:
                    f.writelines(kept)


def make_tree(top, user):
    """A root that belongs to the user's subordinate ids. Programs are the host's, shown at /usr."""
    with open("/etc/subuid", encoding="utf-8") as f:
        first = next(int(line.split(":")[1]) for line in f if line.startswith(user + ":"))
    os.mkdir(top)
    for name in ("etc", "root", "var", "usr", "mnt", "opt"):
        os.mkdir(f"{top}/{name}")
    for name in ("bin", "sbin", "lib", "lib64"):
        os.symlink(f"usr/{name}", f"{top}/{name}")
    for name, text in (("passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"),
                       ("group", "root:x:0:\nuser:x:1000:\n")):
        with open(f"{top}/etc/{name}", "w", encoding="utf-8") as f:
            f.write(text)
    for where, dirs, files in os.walk(top):
        for name in (".", *dirs, *files):
            os.chown(os.path.join(where, name), first, first, follow_symlinks=False)
    return top


# --- cgroups of the harness -------------------------------------------------------------------------------------------


def hierarchies():
    """(directory of our own cgroup, set of controllers, is_v2) for every mounted hierarchy."""
    own = {}
    for line in open("/proc/self/cgroup", encoding="utf-8"):
        _, names, path = line.rstrip("\n").split(":", 2)
        own[names] = path
    found = []
    for line in open("/proc/self/mountinfo", encoding="utf-8"):
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        fstype, _, options = right.split()[:3]
        if fstype == "cgroup2":
            names, v2 = "", True
        elif fstype == "cgroup":
            wanted = set(options.split(","))
            names = next((n for n in own if n and set(n.split(",")) <= wanted), None)
            v2 = False
        else:
            continue
        path = own.get(names)
        if path is None:
            continue
        if root != "/" and path.startswith(root):
            path = path[len(root):]
        directory = os.path.normpath(point + "/" + path)
        if not any(d == directory for d, _, _ in found):
            found.append((directory, set(names.split(",")) - {""}, v2))
    return found


def write_file(path, text):
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return True
    except OSError:
        return False


def read_file(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return default


class OuterCgroup:
    """One directory per hierarchy around one run of brig: the outer bound, and where leaks are looked for."""

    counter = 0

    def __init__(self, token, mode):
        OuterCgroup.counter += 1
        self.dirs, self.controllers = [], set()
        if os.geteuid() != 0:
            return
        name = f"hostile-{token}-{OuterCgroup.counter}"
        for parent, controllers, v2 in hierarchies():
            if v2:
                controllers = self._enable_v2(parent, token)
            path = f"{parent}/{name}"
            try:
                os.mkdir(path)
            except OSError:
                continue
            self.dirs.append(path)
            self.controllers |= controllers
            for knob in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(f"{path}/{knob}") and not v2:
                    write_file(f"{path}/{knob}", read_file(f"{parent}/{knob}").strip())
            write_file(f"{path}/pids.max", str(OUTER_PIDS))
            write_file(f"{path}/memory.max", str(OUTER_MEMORY))
            write_file(f"{path}/memory.limit_in_bytes", str(OUTER_MEMORY))
            if mode.delegated:
                for owned in ("", "/cgroup.procs", "/tasks", "/cgroup.threads", "/cgroup.subtree_control"):
                    with contextlib.suppress(OSError):
                        os.chown(path + owned, mode.uid, mode.gid)

    @staticmethod
    def _enable_v2(parent, token):
        """Hand the controllers down; a cgroup with processes cannot, so ours move to a leaf first."""
        available = set(read_file(f"{parent}/cgroup.controllers").split())
        want = available & {"memory", "pids", "cpu", "io", "cpuset"}
        text = " ".join("+" + c for c in sorted(want))
        if want and not write_file(f"{parent}/cgroup.subtree_control", text):
            leaf = f"{parent}/hostile-{token}-self"
            os.makedirs(leaf, exist_ok=True)
            for pid in read_file(f"{parent}/cgroup.procs").split():
                write_file(f"{leaf}/cgroup.procs", pid)
            write_file(f"{parent}/cgroup.subtree_control", text)
        return set(read_file(f"{parent}/cgroup.subtree_control").split())

    def join(self):
        for path in self.dirs:
            if not write_file(f"{path}/cgroup.procs", "0"):
                write_file(f"{path}/tasks", "0")

    def pids(self):
        found = set()
        for top in self.dirs:
            for where, _, _ in os.walk(top):
                found |= set(read_file(f"{where}/cgroup.procs").split())
        return found

    def leftovers(self):
        """Cgroups of brig that outlived the run."""
        left = []
        for top in self.dirs:
            for where, names, _ in os.walk(top):
                left += [f"{where}/{n}" for n in names if n.startswith("brig")]
        return left

    def destroy(self):
        for pid in self.pids():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(pid), signal.SIGKILL)
        deadline = time.monotonic() + 3
        while self.dirs and time.monotonic() < deadline:
            for top in list(self.dirs):
                for where, _, _ in os.walk(top, topdown=False):
                    write_file(f"{where}/freezer.state", "THAWED")
                    with contextlib.suppress(OSError):
                        os.rmdir(where)
                if not os.path.exists(top):
                    self.dirs.remove(top)
            if self.dirs:
                time.sleep(0.02)


# --- canaries ---------------------------------------------------------------------------------------------------------


class Canaries:
    """Secrets around the sandbox: files, sockets, shared memory, environment, descriptors."""

    def __init__(self, token):
        self.token = token
        self.values = {}
        self.stop = []
        self.tcp_port = self._serve_tcp()
        self.abstract = f"hostile-{token}"
        self._serve_unix("\0" + self.abstract, "abstract")
        self.shm_key, self.shm_id = 0x40000000 | secrets.randbits(29), -1
        self.ipc_name = f"hostile-{token}"
        self._make_shm()

    def value(self, name):
        return self.values.setdefault(name, f"canary{secrets.token_hex(16)}")

    def _serve(self, server, name):
        secret = self.value(name).encode()

        def loop():
            while True:
                try:
                    conn, _ = server.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError):
                    conn.sendall(secret)
                conn.close()

        server.listen(64)
        threading.Thread(target=loop, daemon=True).start()
        self.stop.append(server)

    def _serve_tcp(self):
        server = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            server.bind(("::", 0))
        except OSError:
            server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            server.bind(("0.0.0.0", 0))
        self._serve(server, "tcp")
        return server.getsockname()[1]

    def _serve_unix(self, address, name):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(address)
        self._serve(server, name)

    def serve_path(self, path):
        self._serve_unix(path, "unix")
        os.chmod(path, 0o777)

    def _make_shm(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        self.shm_id = libc.shmget(self.shm_key, 4096, 0o1666)
        if self.shm_id >= 0:
            where = libc.shmat(self.shm_id, None, 0)
            ctypes.memmove(where, self.value("sysv").encode(), 38)
            libc.shmdt(ctypes.c_void_p(where))
        with open(f"/dev/shm/{self.ipc_name}", "w", encoding="utf-8") as f:
            f.write(self.value("devshm"))
        os.chmod(f"/dev/shm/{self.ipc_name}", 0o666)

    def seen_in(self, *blobs):
        return [name for name, v in self.values.items() if any(v.encode() in b for b in blobs)]

    def close(self):
        for s in self.stop:
            s.close()
        if self.shm_id >= 0:
            ctypes.CDLL(None).shmctl(self.shm_id, 0, None)
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/{self.ipc_name}")


# --- one run of brig --------------------------------------------------------------------------------------------------


@dataclass
class Run:
    argv: list
    rc: int
    raw_out: bytes
    raw_err: bytes
    receipt: dict
    maxrss: int = 0
    hung: bool = False
    outer: dict = field(default_factory=dict)

    @staticmethod
    def _stream(receipt, name):
        text = (receipt or {}).get(name) or ""
        if (receipt or {}).get(name + "_encoding") == "base64":
            return base64.b64decode(text)
        return text.encode("utf-8", "surrogateescape")

    @property
    def out(self):
        """What the program wrote to stdout."""
        return self._stream(self.receipt, "stdout") if self.receipt else self.raw_out

    @property
    def err(self):
        return self._stream(self.receipt, "stderr") if self.receipt else self.raw_err

    @property
    def outcome(self):
        return (self.receipt or {}).get("outcome") or {}

    @property
    def cause(self):
        return self.outcome.get("cause", "no receipt")

    @property
    def signal(self):
        s = self.outcome.get("signal")
        if isinstance(s, str):
            name = s if s.startswith("SIG") else "SIG" + s
            return int(getattr(signal, name, 0))
        return s

    def lines(self, word):
        prefix = word.encode() + b" "
        return [line.decode("utf-8", "replace") for line in self.out.splitlines() if line.startswith(prefix)]

    def breaches(self, real=False):
        """BREACH lines; real leaves out those that only report another errno than promised."""
        found = self.lines("BREACH")
        return [b for b in found if "unexpected errno" not in b] if real else found

    def describe(self):
        err = self.raw_err.decode("utf-8", "replace").strip()[-300:]
        return f"cause {self.cause}, exit {self.outcome.get('exit_code')}, status {self.rc}" + (f"; stderr: {err}"
                                                                                                if err else "")


class Held:
    """A brig that is still running: a sandbox to attack, or an attacker to endure."""

    def __init__(self, proc, receipt_path, wrapped):
        self.proc, self.receipt_path, self.wrapped = proc, receipt_path, wrapped
        self.seen = b""

    def wait_ready(self, seconds):
        """Until the program says READY on its stdout."""
        os.set_blocking(self.proc.stdout.fileno(), False)
        deadline = time.monotonic() + seconds
        while b"READY\n" not in self.seen:
            if time.monotonic() > deadline or self.proc.poll() is not None:
                self._drain()
                if b"READY\n" in self.seen:
                    return
                raise RuntimeError(f"the holding sandbox did not start: {self.seen!r} {self.error()!r}")
            self._drain()
            time.sleep(0.005)

    def _drain(self):
        with contextlib.suppress(BlockingIOError):
            while chunk := self.proc.stdout.read(65536):
                self.seen += chunk

    def error(self):
        os.set_blocking(self.proc.stderr.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            return self.proc.stderr.read() or b""
        return b""

    def finish(self, seconds=20):
        if self.proc.stdin and not self.proc.stdin.closed:
            self.proc.stdin.close()
        deadline = time.monotonic() + seconds
        while self.proc.poll() is None and time.monotonic() < deadline:
            self._drain()
            time.sleep(0.005)
        self._drain()
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()
        self._drain()
        return self.seen

    def stop(self):
        """As a user would: SIGTERM to brig, which must take the sandbox with it."""
        if self.proc.poll() is None and self.wrapped:
            os.killpg(self.proc.pid, signal.SIGKILL)  # the outer namespaces; unshare itself ignores SIGTERM
        elif self.proc.poll() is None:
            self.proc.terminate()
        out = self.finish()
        for stream in (self.proc.stdin, self.proc.stdout, self.proc.stderr):
            if stream:
                stream.close()
        return out


class Harness:
    """Set-up shared by all cases. Use as a context manager."""

    def __init__(self, brig, brig_test, probe, scale=1.0):
        self.brig, self.brig_test, self.probe_src, self.scale = brig, brig_test, probe, scale
        self.token = secrets.token_hex(6)
        self.base = tempfile.mkdtemp(prefix=f"htest-{self.token}-", dir="/var/tmp")
        os.chmod(self.base, 0o755)
        self.canaries = Canaries(self.token)
        self.modes, self.cleanup = {}, contextlib.ExitStack()
        self.share = f"{self.base}/probe"
        self._install()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for mode in self.modes.values():
            if mode.sentinel:
                mode.sentinel.kill()
                mode.sentinel.wait()
        self.cleanup.close()
        self.canaries.close()
        self.sweep()
        for parent, _, _ in hierarchies() if os.geteuid() == 0 else []:
            with contextlib.suppress(OSError):
                os.rmdir(f"{parent}/hostile-{self.token}-self")
        shutil.rmtree(self.base, ignore_errors=True)

    @staticmethod
    def sweep():
        """Scratch directories that probes made on the host while the mount namespace was off."""
        for where in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/workspace", "/home/user"):
            for path in glob.glob(f"{where}/hostile-??????"):
                shutil.rmtree(path, ignore_errors=True)

    def _install(self):
        os.mkdir(self.share)
        shutil.copy(self.probe_src, f"{self.share}/probe")
        os.chmod(f"{self.share}/probe", 0o755)
        shutil.copy(self.probe_src, f"{self.share}/suid-probe")
        os.chmod(f"{self.share}/suid-probe", 0o4755)
        with open(f"{self.share}/host.txt", "w", encoding="utf-8") as f:
            f.write("this file belongs to the host\n" * 8)
        os.chmod(f"{self.share}/host.txt", 0o644)
        with open(f"{self.share}/self-exe", "w", encoding="utf-8") as f:
            f.write("#!/proc/self/exe\n")
        os.chmod(f"{self.share}/self-exe", 0o755)
        os.mkdir(f"{self.base}/sock")
        self.socket_path = f"{self.base}/sock/canary.sock"
        self.canaries.serve_path(self.socket_path)
        self.snapshot = self.host_files()

    def host_files(self):
        """What must not change on the host: owner, mode and content of shared files, sysctls."""
        state = {}
        for name in sorted(os.listdir(self.share)):
            st = os.stat(f"{self.share}/{name}")
            with open(f"{self.share}/{name}", "rb") as f:
                state[name] = (st.st_uid, st.st_gid, st.st_mode, st.st_nlink, hash(f.read()))
        for knob in ("kernel/core_pattern", "kernel/hostname", "kernel/modprobe", "vm/overcommit_memory",
                     "user/max_user_namespaces"):
            state[knob] = read_file(f"/proc/sys/{knob}")
        for program in (self.brig, self.brig_test):
            if program:
                with open(program, "rb") as f:
                    state[program] = hash(f.read())
        return state

    def add_mode(self, name):
        root = os.geteuid() == 0
        if name in ("root", "inside"):
            if not root:
                raise Skip("root")
            uid = gid = 0
        elif name == "rootless1":
            uid, gid = (65533, 65533) if root else (os.getuid(), os.getgid())
        else:
            if not root:
                raise Skip("root (to make a user with subordinate ids)")
            entry = self.cleanup.enter_context(TestUser(self.token, "i" if name == "inside2" else ""))
            uid, gid = entry.pw_uid, entry.pw_gid
        mode = Mode(name, uid, gid, f"{self.base}/{name}", delegated=name in ("rootless2", "inside2"),
                    inside=name.startswith("inside"))
        for sub in ("", "/home", "/home/.secret", "/state", "/run", "/cache", "/shared", "/work"):
            os.mkdir(mode.dir + sub)
            os.chmod(mode.dir + sub, 0o755 if sub == "" else 0o777 if sub == "/shared" else 0o700)
            os.chown(mode.dir + sub, uid, gid)
        if mode.inside:
            mode.flags = ("--user", "root", "--writable-root")
        if name == "inside2":
            mode.flags += ("--rootfs", make_tree(f"{mode.dir}/tree", entry.pw_name))
            for name in ("bin", "sbin", "lib", "lib64"):
                mode.flags += ("-v", f"/usr/{name}:/usr/{name}:ro")
        mode.canary_path = f"{mode.home}/.secret/canary-{self.token}"
        with open(mode.canary_path, "w", encoding="utf-8") as f:
            f.write(self.canaries.value(f"file-{name}"))
        os.chmod(mode.canary_path, 0o600)
        os.chown(mode.canary_path, uid, gid)
        outer = OuterCgroup(self.token, mode)
        if name != "rootless1":
            mode.features |= {c for c in ("memory", "cpu", "pids") if c in outer.controllers}
        outer.destroy()
        if name in ("root", "inside"):
            mode.features |= {"private quotas"}
        self.modes[name] = mode
        self.wake_sentinel(mode)
        return mode

    def wake_sentinel(self, mode):
        if mode.sentinel is None or mode.sentinel.poll() is not None:
            mode.sentinel = subprocess.Popen(
                ["sleep", "100000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=lambda: drop_to(mode.uid, mode.gid), env={"PATH": CALLER_PATH}, start_new_session=True)

    # What the probe is told. @…@ is filled in by outer.py where the outer namespaces are not the host's.
    def probe_env(self, mode, off, extra=None):
        env = {
            "HOSTILE_MODE": {"inside": "root", "inside2": "rootless2"}.get(mode.name, mode.name),
            "HOSTILE_CANARY_PATH": mode.canary_path,
            "HOSTILE_FORBIDDEN": f"{self.token}",
            "HOSTILE_SENTINEL": "@SENTINEL@" if off else str(mode.sentinel.pid),
            "HOSTILE_RO_FILE": "/probe/host.txt",
            "HOSTILE_HOST_FILE": f"{self.share}/host.txt",
            "HOSTILE_HOST_DIR": self.share,
            "HOSTILE_HOST_HOME": f"{mode.dir}/home",
            "HOSTILE_HOST_WORK": f"{mode.dir}/work",
            "HOSTILE_SOCKET": self.socket_path,
            "HOSTILE_ABSTRACT": self.canaries.abstract,
            "HOSTILE_TCP_PORT": str(self.canaries.tcp_port),
            "HOSTILE_SHM_KEY": str(self.canaries.shm_key),
            "HOSTILE_IPC_NAME": self.canaries.ipc_name,
            "HOSTILE_HOST_NAME": socket.gethostname(),
        }
        for ns in NAMESPACES:
            env[f"HOSTILE_NS_{ns}"] = f"@NS_{ns}@" if off else os.readlink(f"/proc/self/ns/{ns}")
        if mode.inside:
            env["HOSTILE_INSIDE"] = env["HOSTILE_WRITABLE_ROOT"] = "1"
        if off:
            env["HOSTILE_GENTLE"] = "1"
        env.update(extra or {})
        return env


class Context:
    """One case in one mode: runs brig as often as the case wants, inside one outer bound, and looks for leaks."""

    def __init__(self, harness, mode, off=()):
        self.h, self.mode, self.off = harness, mode, tuple(off)
        self.scale = harness.scale
        self.outer = OuterCgroup(harness.token, mode)
        self.before = self._state()
        self.canaries_seen = set()
        self.held = []

    # --- running ---

    def seconds(self, n):
        return f"{n * self.scale:g}s"

    def probe(self, *args):
        if not self.off:
            return ["/probe/probe", *args]
        # Without a mount namespace the bind is not there, but the host's own path is.
        pick = f'p=/probe/probe; [ -x $p ] || p={self.h.share}/probe; exec "$p" "$@"'
        return ["/bin/sh", "-c", pick, "sh", *args]

    def argv(self, command, flags=(), env=None, json_out=True, share=True):
        brig = self.h.brig_test if self.off else self.h.brig
        argv = [brig, "run"]
        if json_out:
            argv += ["-o", "json"]
        argv += self.mode.flags
        if share:
            argv += ["-v", f"{self.h.share}:/probe:ro"]
        if "mount_ns" in self.off or "all" in self.off:
            argv += ["-w", "/tmp"]
        for k, v in (env if env is not None else self.h.probe_env(self.mode, self.off)).items():
            argv += ["-e", f"{k}={v}"]
        return argv + [str(f) for f in flags] + ["--", *command]

    def _spawn(self, argv, stdin, caller_env, outer_spec):
        env = self.mode.caller_env(self.h.canaries.value("environment"))
        env.update(caller_env or {})
        if self.off:
            env["BRIG_TEST_OFF"] = ",".join(self.off)
        with SPAWN_LOCK:  # number 200 is one for all threads
            return self._spawn_locked(argv, stdin, env, outer_spec)

    def _spawn_locked(self, argv, stdin, env, outer_spec):
        # A careless caller: secrets on inheritable descriptors, low and high, file and directory.
        leaked = [os.open(self.mode.canary_path, os.O_RDONLY),
                  os.open(os.path.dirname(self.mode.canary_path), os.O_RDONLY)]
        leaked.append(os.dup2(leaked[0], 200, inheritable=True))
        cleanup = list(leaked)
        for fd in leaked:
            os.set_inheritable(fd, True)
        spec_path = None
        if self.off and os.geteuid() == 0:
            spec_path = f"{self.h.base}/outer-{secrets.token_hex(4)}.json"
            spec = {"argv": argv, "uid": self.mode.uid, "gid": self.mode.gid, "base": self.h.base,
                    "status": spec_path + ".status", **outer_spec}
            with open(spec_path, "w", encoding="utf-8") as f:
                json.dump(spec, f)
            argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--ipc",
                    "--propagation", "private",
                    sys.executable or "/usr/bin/python3", f"{HERE}/outer.py", spec_path]

        def prepare():
            self.outer.join()
            if not spec_path:
                drop_to(self.mode.uid, self.mode.gid)

        try:
            proc = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd="/",
                                    pass_fds=leaked, preexec_fn=prepare, start_new_session=True)
        finally:
            for fd in cleanup:
                os.close(fd)
        return proc, spec_path

    def run(self, command, flags=(), env=None, json_out=True, stdin=b"", patience=180, caller_env=None, share=True,
            outer_spec=None, argv=None):
        """One brig to its end. Patience is the harness's own, far above any limit under test."""
        argv = argv or self.argv(command, flags, env, json_out, share)
        proc, spec_path = self._spawn(argv, subprocess.PIPE, caller_env, outer_spec or {})
        out, err, hung = self._communicate(proc, stdin, patience * max(1, self.scale))
        _, status, usage = os.wait4(proc.pid, 0)
        proc.returncode = os.waitstatus_to_exitcode(status)
        receipt = None
        if json_out:
            with contextlib.suppress(ValueError):
                receipt = json.loads(out)
        run = Run(argv, proc.returncode, out, err, receipt if isinstance(receipt, dict) else None,
                  usage.ru_maxrss * 1024, hung)
        if spec_path:
            with contextlib.suppress(OSError, ValueError):
                with open(spec_path + ".status", encoding="utf-8") as f:
                    run.outer = json.load(f)
        self.look_for_canaries(out, err, run.out, run.err)
        return run

    def _communicate(self, proc, stdin, patience):
        chunks = {proc.stdout: [], proc.stderr: []}
        sizes = {proc.stdout: 0, proc.stderr: 0}
        deadline, hung = time.monotonic() + patience, False
        with contextlib.suppress(BrokenPipeError):
            proc.stdin.write(stdin)
        with contextlib.suppress(BrokenPipeError):
            proc.stdin.close()
        with selectors.DefaultSelector() as sel:
            for stream in chunks:
                sel.register(stream, selectors.EVENT_READ)
            while sel.get_map():
                if time.monotonic() > deadline and not hung:
                    hung = True
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(proc.pid, signal.SIGKILL)
                    deadline += 5
                elif time.monotonic() > deadline:
                    break
                for key, _ in sel.select(0.2):
                    data = key.fileobj.read1(1 << 16)
                    if not data:
                        sel.unregister(key.fileobj)
                    elif sizes[key.fileobj] < 64 << 20:
                        sizes[key.fileobj] += len(data)
                        chunks[key.fileobj].append(data)
        for stream in chunks:
            stream.close()
        return b"".join(chunks[proc.stdout]), b"".join(chunks[proc.stderr]), hung

    def start(self, command, flags=(), env=None, ready=True, stdin=subprocess.DEVNULL, share=True):
        """A brig that stays: output passes through, the receipt goes to a file."""
        receipt = f"{self.mode.dir}/work/receipt-{secrets.token_hex(4)}.json"
        argv = self.argv(command, [*flags, "--receipt", receipt], env, json_out=False, share=share)
        proc, spec_path = self._spawn(argv, stdin, None, {})
        held = Held(proc, receipt, spec_path is not None)
        self.held.append(held)
        if ready:
            held.wait_ready(20 * max(1, self.scale))
        return held

    def look_for_canaries(self, *blobs):
        self.canaries_seen |= set(self.h.canaries.seen_in(*blobs))

    # --- afterwards ---

    def _state(self):
        return {"mounts": self._mounts(), "loops": self._loops(), "fds": len(os.listdir("/proc/self/fd")),
                "host": self.h.host_files()}

    def _mounts(self):
        lines = read_file("/proc/self/mountinfo").splitlines()
        return {line for line in lines if self.h.token in line or "brig" in line}

    def _loops(self):
        found = set()
        for path in glob.glob("/sys/block/loop*/loop/backing_file"):
            text = read_file(path).strip()
            if self.h.token in text:
                found.add(f"{path.split('/')[3]}: {text}")
        return found

    def _processes(self):
        """Host-side processes that carry our state directory in their environment, and all in our cgroups."""
        found = {p: read_file(f"/proc/{p}/comm").strip() for p in self.outer.pids()}
        needle = f"BRIG_STATE_DIR={self.h.base}".encode()
        for entry in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(entry, "rb") as f:
                    if needle in f.read():
                        pid = entry.split("/")[2]
                        found[pid] = read_file(f"/proc/{pid}/comm").strip()
            except OSError:
                continue
        found.pop(str(os.getpid()), None)
        return {p: c for p, c in found.items() if c and "Z (zombie)" not in read_file(f"/proc/{p}/status")}

    def leaks(self):
        """What is left, polled: namespaces are torn down behind our back."""
        deadline = time.monotonic() + PATIENCE
        while True:
            left = [f"process {pid} ({name})" for pid, name in self._processes().items()]
            left += [f"cgroup {path}" for path in self.outer.leftovers()]
            left += [f"mount {m}" for m in self._mounts() - self.before["mounts"]]
            left += [f"loop device {d}" for d in self._loops() - self.before["loops"]]
            extra = len(os.listdir("/proc/self/fd")) - self.before["fds"]
            if extra > 0:
                left.append(f"{extra} descriptors of the harness")
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.02)

    def changes(self):
        """Things on the host that are not as they were."""
        now, then = self.h.host_files(), self.before["host"]
        found = [f"{k} changed on the host" for k in then if now.get(k) != then[k]]
        if self.mode.sentinel.poll() is not None and not self.off:
            found.append("a process on the host was killed")
        return found

    def close(self):
        for held in self.held:
            with contextlib.suppress(Exception):
                held.stop()
        problems = [] if self.off else self.leaks()
        self.outer.destroy()
        self.h.wake_sentinel(self.mode)
        if self.off:
            self.h.sweep()
        return problems + self.changes()


def build_probe(out):
    """For a run without the build system: one static program from probes/*.c."""
    sources = sorted(glob.glob(f"{HERE}/probes/*.c"))
    compiler = shutil.which("cc", path=CALLER_PATH) or shutil.which("gcc", path=CALLER_PATH)
    if not compiler:
        raise Skip("a C compiler")
    subprocess.run([compiler, "-std=gnu17", "-O2", "-static", "-o", out, *sources, "-lpthread"], check=True,
                   env={"PATH": CALLER_PATH})
    return out


def root_capabilities():
    m = re.search(r"CapBnd:\s*([0-9a-f]+)", read_file("/proc/self/status"))
    return int(m.group(1), 16) if m else 0
