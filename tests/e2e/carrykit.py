# SPDX-License-Identifier: Apache-2.0
"""The host's side of a carried brig-init (docs/PROTOCOL.md, "Carried"), and three ways to carry one."""

import errno
import json
import os
import pathlib
import select
import shutil
import socket
import struct
import subprocess
import tempfile

import svckit
from helpers import BRIG, PATIENCE, wait_until

LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or os.path.dirname(os.path.realpath(BRIG))
INIT = os.environ.get("BRIG_INIT") or f"{LIBEXEC}/brig-init"
# A runsc of today, where somebody has built one (tools/runsc.sh).
RUNSC_NEW = (os.environ.get("BRIG_TEST_RUNSC")
             or os.path.join(os.environ.get("BRIG_BUILD_DIR", "build"), "providers/runsc"))
HELLO, START, STARTED, EXITED, SIGNAL, ATTACH = range(1, 7)
SERVICE, LEAVES, ADOPT, ROOT, PLACES = 4, 8, 16, 32, 64
CAP_SERVICE, CAP_CARRIED, CAP_RUNNING = 8, 16, 32
LAYERS = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock "
          "root_readonly proc fds memory cpu pids disk inodes time_ns io own_kernel").split()
NAMESPACES = "user mnt pid net ipc uts cgroup time".split()


def mask(*names):
    return sum(1 << LAYERS.index(name) for name in names)


def frame(kind, payload=b"", flags=0, stream=0, request=0):
    return struct.pack("<IHHII", len(payload), kind, flags, stream, request) + payload


def hello(nonce=1, version=1):
    return frame(HELLO, struct.pack("<IIQ", version, 0, nonce))


def start(uid=1000, flags=SERVICE, require=0, places=(), writable_root=0, profile=0, workdir="/", host=None):
    """The frame. host: the inode numbers of our namespaces, where they mean something to it."""
    flags |= PLACES if places else 0
    host = host if host is not None else [os.stat(f"/proc/self/ns/{n}").st_ino for n in NAMESPACES]
    head = struct.pack("<IIIHHII", flags, uid, uid, 0, 0, profile, 0) + struct.pack("<QQQQ", require, 0, 0, 0)
    head += struct.pack("<8I", *host) + struct.pack("<IIII", 0, writable_root, len(places), 0)
    return frame(START, head + b"".join(w.encode() + b"\0" for w in (workdir, *places)))


class Refused(Exception):
    def __init__(self, failed, errnum):
        super().__init__(f"failed {failed}, {errno.errorcode.get(errnum, errnum)}")
        self.failed, self.errnum = failed, errnum


class Plain:
    """A descriptor that is no socket, as svckit wants it."""

    def __init__(self, fd):
        self.fd = fd

    def fileno(self):
        return self.fd

    def sendall(self, data):
        while data:
            data = data[os.write(self.fd, data):]

    def recv(self, size):
        if not select.select([self.fd], [], [], PATIENCE)[0]:
            raise TimeoutError("nothing came in time")
        return os.read(self.fd, size)

    def settimeout(self, _seconds):
        pass

    def close(self):
        os.close(self.fd)


def receive_frame(sock):
    """(type, payload), exactly one; None at the end."""
    data = b""
    while len(data) < 16 or len(data) < 16 + struct.unpack_from("<I", data)[0]:
        more = sock.recv((16 if len(data) < 16 else 16 + struct.unpack_from("<I", data)[0]) - len(data))
        if not more:
            return None
        data += more
    return struct.unpack_from("<H", data, 4)[0], data[16:]


def exited(payload):
    _, status, failed, errnum = struct.unpack("<QIII", payload)
    return status, failed, errnum


def readings(payload):
    """({layer: (on, by, why, value)}, missing)"""
    _, missing, n, _ = struct.unpack_from("<QQII", payload)
    assert n == len(LAYERS) and len(payload) == 24 + 8 * n
    return {name: struct.unpack_from("<BBHI", payload, 24 + 8 * i) for i, name in enumerate(LAYERS)}, missing


def open_connection(sock, order, nonce=0x1122334455667788):
    """(a Service, capabilities, readings). order: the frame after HELLO."""
    sock.settimeout(PATIENCE)
    sock.sendall(hello(nonce) + order)
    kind, payload = receive_frame(sock)
    version, caps, back = struct.unpack("<IIQ", payload)
    assert (kind, version, back) == (HELLO, 1, nonce), (kind, version, back)
    kind, payload = receive_frame(sock)
    if kind == EXITED:
        raise Refused(*exited(payload)[1:])
    assert kind == STARTED, kind
    read, missing = readings(payload)
    if missing:
        kind, payload = receive_frame(sock)
        assert kind == EXITED, kind
        raise Refused(*exited(payload)[1:])
    return svckit.Service(sock), caps, read


class Carrier:
    """A brig-init that serves on a unix socket, whose path on this side is self.path."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="brig-carry."))
        self.path = str(self.dir / "sock" / "s")
        os.mkdir(self.dir / "sock", 0o700)

    def connect(self):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        wait_until("somebody listens", lambda: sock.connect_ex(self.path) == 0)
        return sock

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))


class Unshared(Carrier):
    """As a plain process in namespaces of its own."""

    program_uid = 1000

    def __init__(self, *words):
        super().__init__()
        words = words or ("--listen", self.path)
        self.proc = subprocess.Popen(["unshare", "--mount", "--pid", "--ipc", "--net", "--uts", "--cgroup", "--fork",
                                      "--mount-proc", "--kill-child", INIT, "carry", *words],
                                     stdin=subprocess.DEVNULL)

    def pid(self):
        """brig-init's, as we see it."""
        with open(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children", encoding="ascii") as f:
            return int(f.read().split()[0])

    def end(self):
        self.proc.kill()
        self.proc.wait(PATIENCE)
        shutil.rmtree(self.dir)


MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
    {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
     "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777",
                                                                                "size=16m"]},
    {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": ["nosuid", "nodev", "mode=1777", "size=64m"]},
    {"destination": "/workspace", "type": "tmpfs", "source": "ws", "options": ["nosuid", "nodev", "mode=1777",
                                                                                "size=64m"]},
    {"destination": "/data", "type": "tmpfs", "source": "data", "options": ["nosuid", "nodev", "mode=1777",
                                                                              "size=16m"]},
    {"destination": "/other", "type": "tmpfs", "source": "other", "options": ["nosuid", "nodev", "mode=1777",
                                                                                "size=16m"]},
]
CAPS = ["CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SYS_PTRACE"]
IDS = 200000  # of the container's root on this side


class Runc(Carrier):
    """In a container of runc, with a bundle written by hand."""

    program_uid = 1000
    runtime = ("runc",)

    def __init__(self, *words, caps=CAPS):
        super().__init__()
        self.id = self.dir.name
        root = self.dir / "root"
        for name in ("proc", "dev", "tmp", "workspace", "data", "other", "sock", ".brig", "usr", "etc"):
            (root / name).mkdir(parents=True)
        for name in ("tmp", "workspace", "data", "other"):
            os.chmod(root / name, 0o1777)  # runc gives a tmpfs the mode of the directory below it
        for name in ("bin", "lib", "lib64", "sbin"):
            os.symlink(f"usr/{name}", root / name)
        shutil.copy(INIT, root / ".brig/init")
        os.chmod(root / ".brig/init", 0o755)
        os.chmod(self.dir, 0o755)
        os.chown(self.dir / "sock", IDS, IDS)
        bind = ["rbind", "ro"]
        mounts = [*MOUNTS, {"destination": "/usr", "type": "bind", "source": "/usr", "options": bind},
                  {"destination": "/sock", "type": "bind", "source": str(self.dir / "sock"), "options": ["rbind"]}]
        spaces = ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")
        config = {
            "ociVersion": "1.0.2",
            "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/usr/bin:/bin"],
                        "args": ["/.brig/init", "carry", *(words or ("--listen", "/sock/s"))],
                        "noNewPrivileges": False,
                        "capabilities": {name: caps for name in ("bounding", "effective", "permitted")}},
            "root": {"path": str(root), "readonly": True}, "hostname": "carried", "mounts": mounts,
            "linux": {"namespaces": [{"type": name} for name in spaces],
                      "uidMappings": [{"containerID": 0, "hostID": IDS, "size": 65536}],
                      "gidMappings": [{"containerID": 0, "hostID": IDS, "size": 65536}]},
        }
        (self.dir / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.runc("run", "--detach", "--bundle", str(self.dir), self.id)

    def runc(self, *words):
        with open(self.dir / "log", "ab") as log:
            done = subprocess.run([*self.runtime, "--root", str(self.dir / "state"), *words],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if words[0] == "state" else log,
                                  stderr=log, timeout=4 * PATIENCE, check=False)
        if done.returncode:
            text = (self.dir / "log").read_text(errors="replace")
            raise AssertionError(f"{self.runtime[0]} {words[0]}: {text[-500:]}")
        return done.stdout

    def pid(self):
        return int(json.loads(self.runc("state", self.id))["pid"])

    def end(self):
        self.runc("delete", "--force", self.id)
        shutil.rmtree(self.dir)


# What a sentry and a gofer need to know: no cgroups of their own, and sockets that the guest makes in a bind are real.
RUNSC_FLAGS = ("--ignore-cgroups", "--network=none", "--host-uds=create")


class RunscOld(Runc):
    """In gVisor as Debian 12 has it, of 2022: the platform is ptrace, and much that brig-init asks for is unknown."""

    runtime = ("/usr/bin/runsc", *RUNSC_FLAGS, "--platform=ptrace")

    def inside(self, *words):
        """What a program says that is root in the container."""
        done = subprocess.run([*self.runtime, "--root", str(self.dir / "state"), "exec", "--cap", "CAP_SYS_PTRACE",
                               self.id, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=4 * PATIENCE,
                              check=True)
        return done.stdout.decode()

    def descriptors(self):
        return len(self.inside("/usr/bin/python3", "-c", "import os; print(*os.listdir('/proc/1/fd'))").split())


class RunscNew(RunscOld):
    """In a current gVisor. By default its gofers would share a namespace that stays mounted."""

    runtime = (RUNSC_NEW, *RUNSC_FLAGS, "--platform=systrap", "--gofer-network-namespace=new")


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def ended(proc):
    """The status of a process that ends by itself."""
    return proc.wait(PATIENCE)
