# SPDX-License-Identifier: Apache-2.0
"""Container engines of our own, for tests and measurements: a private Docker engine and a private Podman service.

Each has its own socket and data and a mount namespace in which everything else that it writes is in memory. Both end
with close() and leave nothing: what their containers have in cgroups is below one parent, which is removed. No registry
of the outside is asked: images are imported from files of this machine.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import time

START_SECONDS = 30
STOP_SECONDS = 20

# What an engine leaves outside its roots goes into memory that ends with it (as src/cli/bench/bench_docker.c does it).
IN_PRIVATE = """for dir in /run /opt /etc/docker; do case $0 in "$dir"/*) continue; esac
[ ! -d "$dir" ] || mount -t tmpfs brig-engine "$dir" || exit; done; exec "$@" """


class Missing(Exception):
    """An engine that cannot be had here, and why."""


def end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def remove_cgroups(name):
    for top, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if name in pathlib.PurePath(top).parts:
            try:
                os.rmdir(top)
            except OSError:
                pass  # who looks for leftovers says so


class Engine:
    """Docker with overlay2, or Podman. self.socket is where it serves, self.host how the docker command names that."""

    def __init__(self, directory, podman=False, runtimes=()):
        words = ("podman", "conmon") if podman else ("dockerd", "docker")
        if os.geteuid() != 0 or not all(map(shutil.which, words)):
            raise Missing(f"a private engine needs root and {' and '.join(words)}: apt-get install "
                          f"{'podman' if podman else 'docker.io'}")
        self.dir = pathlib.Path(directory)
        self.dir.mkdir(exist_ok=True)
        self.socket = str(self.dir / "engine.sock")
        self.host = f"unix://{self.socket}"
        self.cgroup = f"brig-engine-{os.getpid()}-{time.monotonic_ns()}"
        self.podman = podman
        self.command = self.podman_command() if podman else self.docker_command(runtimes)
        self.log = open(self.dir / "engine.log", "ab")
        self.start()

    def docker_command(self, runtimes):
        (self.dir / "daemon.json").write_text("{}\n", encoding="ascii")
        return ["dockerd", "-H", self.host, "--storage-driver=overlay2", f"--config-file={self.dir}/daemon.json",
                f"--data-root={self.dir}/data", f"--exec-root={self.dir}/exec", f"--pidfile={self.dir}/pid",
                f"--cgroup-parent=/{self.cgroup}", "--exec-opt=native.cgroupdriver=cgroupfs", "--bridge=none",
                "--iptables=false", "--ip6tables=false", "--ip-forward=false",
                *(f"--add-runtime={name}={path}" for name, path in runtimes)]

    def podman_command(self):
        return ["podman", f"--root={self.dir}/data", f"--runroot={self.dir}/run", "--cgroup-manager=cgroupfs",
                "--runtime=runc", f"--tmpdir={self.dir}/tmp", "system", "service", "--time=0", self.host]

    def start(self):
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "sh", "-c", IN_PRIVATE, str(self.dir),
             *self.command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_SECONDS
        try:
            while subprocess.run(["curl", "-sf", "--unix-socket", self.socket, "http://d/version"], capture_output=True,
                                 check=False).returncode != 0:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Missing(f"{self.command[0]} does not start here")
                time.sleep(0.1)
        except BaseException:
            self.close()
            raise

    def kill(self):
        """As a crash; containers may live on."""
        self.process.kill()
        self.process.wait()

    def docker(self, *words, **how):
        return subprocess.run(["docker", "-H", self.host, *words], check=True, text=True, capture_output=True,
                              **how).stdout

    def get(self, target):
        return subprocess.run(["curl", "-sf", "--unix-socket", self.socket, f"http://d{target}"], check=True, text=True,
                              capture_output=True).stdout

    def import_tar(self, path, name, *changes):
        self.docker("import", *(word for change in changes for word in ("--change", change)), str(path), name)

    def containers(self, label=None):
        """The names of all, also of those that have ended."""
        return self.docker("ps", "-aq", "--no-trunc", *(("--filter", f"label={label}") if label else ())).split()

    def close(self):
        if self.process.poll() is None:
            left = subprocess.run(["docker", "-H", self.host, "ps", "-aq"], capture_output=True, text=True,
                                  check=False).stdout.split()
            if left:
                subprocess.run(["docker", "-H", self.host, "rm", "-f", *left], capture_output=True, check=False)
            end(self.process)
        self.log.close()
        remove_cgroups(self.cgroup)


def busybox_tar(path, **more):
    """A tiny root with a static busybox as its programs. more: text of further files by path."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise Missing("no busybox: apt-get install busybox-static")
    names = subprocess.run([busybox, "--list"], check=True, text=True, capture_output=True).stdout.split()
    with tarfile.open(path, "w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in names:
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        for name in ("etc", "tmp", "var/tmp", "run", "root", "proc", "sys", "dev"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if "tmp" in name else 0o755
            tar.addfile(info)
        files = {"etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
                 "etc/group": "root:x:0:\nuser:x:1000:\n", **more}
        for name, text in files.items():
            (pathlib.Path(path).parent / "file").write_text(text, encoding="utf-8")
            tar.add(pathlib.Path(path).parent / "file", name)
