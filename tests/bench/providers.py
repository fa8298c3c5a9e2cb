#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the providers beside `local`, each against the program that it stands on: a private Docker engine, runc,
crun and runsc as commands, and QEMU with the same words outside of any sandbox.

`make bench-providers` does it; it writes its own section of the page where --out says:

  providers.py --build build [--only GROUP,...] [--quick] [--runs N] [--out DIR] [--save FILE] [--markdown]

What is compared takes turns in one run. A peer or a provider that is not there is named, and its rows are missing.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/e2e")]

import enginekit  # noqa: E402
import gate  # noqa: E402
import peers  # noqa: E402
import service  # noqa: E402
from gate import GATE_CPU, NAME, PEER_CPU, added, in_turns, place, us  # noqa: E402
from service import bound, closing, row, timed_us  # noqa: E402

BLOCK = 10  # commands or warm runs for each turn of a peer
CYCLES = 200
RESTORES = 100
IDLE_SECONDS = 5
ADD = """def add(x: int, y: int) -> int:
    '''
    Adds.

    Args:
        x (int): One.
        y (int): Other.

    Returns:
        int: Both.
    '''
    return x + y
"""
PYTHON_TAR = """set -e; cd /; libs=$(ldd bin/sh bin/true bin/sleep usr/bin/python3 usr/lib/python3*/lib-dynload/*.so |
grep -o '/lib[^ ]*' | grep -v ':$' | sort -u | sed 's,^/,,')
exec tar -chf "$1" bin/sh bin/true bin/sleep usr/bin/python3 usr/lib/python3.[0-9]* $libs"""
MACHINE_PACKAGES = "python3 bash dash coreutils grep sed findutils libc-bin base-files hostname procps".split()
OCI_SPACES = ("pid", "ipc", "uts", "mount", "network")


class Bench(gate.Bench):
    KIND = "providers"

    def __init__(self, build, runs, quick):
        super().__init__(build, runs, quick)
        os.environ["BRIG_TEST_PROVIDERS"] = "1"  # the daemon looks for runtimes
        places = (os.environ.get("BRIG_TEST_RUNSC"), (build / "providers/runsc").resolve(), "/usr/bin/runsc")
        self.runsc = next((str(p) for p in places if p and os.path.exists(p)), None)

    def serve_with(self, text=""):
        runsc = f'[runsc]\npath = "{self.runsc}"\n' if self.runsc else ""
        return self.Daemon(config=f"[manager]\nmax_sandboxes = 10000\nidle_timeout = 0\n{runsc}{text}")

    def need(self, *programs):
        missing = [p for p in programs if not shutil.which(p)]
        if os.geteuid() != 0 or missing:
            raise peers.Missing(f"needs root{' and ' if missing else ''}{' and '.join(missing)}")


# ---- What is asked of brig ------------------------------------------------------------------------------------------


class Boxes:
    """Sandboxes of one provider. more: members of every create."""

    def __init__(self, daemon, provider, **more):
        self.d, self.provider, self.more = daemon, provider, {"provider": provider, **more}
        self.connection = daemon.connection()

    def ask(self, method, path, body=None, good=(200, 201, 204)):
        answer = self.d.ask(method, path, body, connection=self.connection)
        if answer.status not in good:
            raise RuntimeError(f"{self.provider}: {method} {path}: {answer}")
        return answer

    def make(self):
        return self.ask("POST", "/v1/sandboxes", self.more).json["id"]

    def true(self, box):
        said = self.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["/bin/true"]}).json
        if said["outcome"]["exit_code"] != 0:
            raise RuntimeError(f"{self.provider}: /bin/true: {said['outcome']}")

    def drop(self, box):
        self.ask("DELETE", f"/v1/sandboxes/{box}")

    def first_us(self):
        """Create to the end of the first command."""
        made = []
        took = timed_us(lambda: (made.append(self.make()), self.true(made[0])))
        self.drop(made[0])
        return took

    def prepare_tool(self, bench, count=4):
        """Registers the tool, and has interpreters parked where this provider has a pool."""
        self.ask("POST", "/v1/tools/", {"source_code": ADD})
        answer = self.ask("POST", "/v1/pools/prewarm", {"language": "python", "count": count,
                                                        "provider": self.provider}, good=range(200, 500))
        if answer.status >= 400:
            bench.skipped.append({"name": f"providers, pool of {self.provider}",
                                  "reason": answer.json["error"]["message"]})
        self.run_us()

    def run_us(self):
        def run():
            said = self.ask("POST", "/v1/tools/add/run", {"args": {"x": 2, "y": 3}, "provider": self.provider}).json
            if said["status"] != "success":
                raise RuntimeError(f"{self.provider}: add: {said}")
        return timed_us(run)

    def warm_us(self):
        """A run that finds the pool full."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pools = [p for p in self.ask("GET", "/v1/pools").json["pools"] if p.get("provider", "") == self.provider]
            if not pools or all(p["parked"] >= p["target"] for p in pools):
                break
            time.sleep(0.02)
        return self.run_us()


def members(box):
    """The pids in the cgroups of this sandbox."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and box in pathlib.Path(f"/proc/{entry}/cgroup").read_text(encoding="utf-8"):
                found.add(int(entry))
        except OSError:
            pass
    return found


def parked(bench, boxes, most):
    """(the proportional memory of a sandbox without a program in MiB, the number of its processes)"""
    values, processes = [], 0
    for _ in range(2 if bench.quick else 5):
        box = boxes.make()
        time.sleep(1)  # it has settled
        found = members(box)
        processes = max(processes, len(found))
        values.append(sum(gate.pss_mib(pid) for pid in found))
        boxes.drop(box)
    line = bound(row(f"providers: {boxes.provider}, parked", "MiB", values), at_most=most)
    return [line, row(f"providers: {boxes.provider}, parked, processes", "things", [processes])]


def against(name, ours, theirs, peer, **bounds):
    """Rows of a number and of its peer, with the promise of their ratio."""
    other = row(f"providers: {peer}", "us", theirs)
    return [bound(row(f"providers: {name}", "us", ours), against=other, **bounds), other]


def faster(name, ours, peer_row, times):
    return bound(row(f"providers: {name}", "us", ours), at_least=times, against=peer_row, inverse=True)


# ---- Peers ----------------------------------------------------------------------------------------------------------


class Engine(peers.Docker):
    """A private engine with an image that has Python, and a container that sleeps."""

    def __init__(self, directory, runtimes=(), runtime=None):
        enginekit.Engine.__init__(self, directory, runtimes=runtimes)
        self.how = ("--network", "none", *(("--runtime", runtime) if runtime else ()))
        try:
            tar = directory / "python.tar"
            subprocess.run(["sh", "-c", PYTHON_TAR, "sh", str(tar)], check=True, capture_output=True)
            self.import_tar(tar, "brig-bench", "ENV PATH=/usr/bin:/bin")
            tar.unlink()
            self.container = self.docker("run", "-d", *self.how, "brig-bench", "/bin/sleep", "1000000").strip()
        except BaseException:
            self.close()
            raise

    def run(self):
        self.docker("run", "--rm", *self.how, "brig-bench", "/bin/true")


class Runtime:
    """A runtime as a command, with a bundle whose root is this machine's /usr; one shell starts it again and again, in
    a mount namespace where no v2 tree of cgroups is mounted beside others (crun refuses those)."""

    def __init__(self, directory, *words):
        self.bundle = directory / f"bundle-{pathlib.Path(words[0]).name}"
        root = self.bundle / "rootfs"
        for name in ("usr", "proc", "dev", "tmp"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            os.symlink(f"usr/{name}", root / name)
        config = {"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": True},
                  "process": {"args": ["/bin/true"], "cwd": "/", "user": {"uid": 0, "gid": 0},
                              "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": True},
                  "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                             {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}],
                  "linux": {"namespaces": [{"type": name} for name in OCI_SPACES]}}
        (self.bundle / "config.json").write_text(json.dumps(config), encoding="ascii")
        self.words, self.n = words, 0
        self.shell = subprocess.Popen(["unshare", "--mount", "sh", "-c",
                                       "umount /sys/fs/cgroup/unified 2>/dev/null; while read -r line; do eval "
                                       '"$line" >/dev/null 2>&1; echo $?; done'],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.run()

    def run(self):
        self.n += 1
        words = [*self.words, "run", "--bundle", str(self.bundle), f"bench-{os.getpid()}-{self.n}"]
        self.shell.stdin.write(shlex.join(words) + " </dev/null\n")
        self.shell.stdin.flush()
        if self.shell.stdout.readline() != "0\n":
            raise RuntimeError(f"{shlex.join(words)}: it failed")

    def close(self):
        self.shell.stdin.close()
        self.shell.wait()


class BareQemu:
    """The words of a QEMU that runs in a sandbox, started outside of it; its files are reached by that one's root."""

    def __init__(self, box):
        pid = next((p for p in members(box)
                    if "qemu" in pathlib.Path(f"/proc/{p}/comm").read_text(encoding="utf-8")), None)
        if pid is None:
            raise RuntimeError(f"no QEMU in the sandbox of {box}")
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
            self.port = s.getsockname()[1]
        there = [re.sub(r"(^|file=|path=)(/[^,]+)", lambda m: self.outside(pid, m), word) for word in words[1:]]
        self.words = [os.path.realpath(f"/proc/{pid}/exe"), *(re.sub(r"port=\d+", f"port={self.port}", w)
                                                               for w in there)]

    @staticmethod
    def outside(pid, match):
        path = f"/proc/{pid}/root{match[2]}"
        return match[1] + (path if os.path.exists(path) else match[2])

    def first_us(self):
        import carrykit  # noqa: PLC0415: it reads the environment that Bench sets
        start = time.monotonic_ns()
        process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    sock = socket.create_connection(("::1", self.port), 60)
                    break
                except OSError:
                    if process.poll() is not None:
                        raise RuntimeError("QEMU ended") from None
                    time.sleep(0.005)
            opened, _, _ = carrykit.open_connection(sock, carrykit.start(host=[0] * 8))
            opened.run("/bin/true")
            return (time.monotonic_ns() - start) / 1000
        finally:
            process.kill()
            process.wait()


# ---- Groups ---------------------------------------------------------------------------------------------------------


def docker(bench):
    """Containers of an engine, against the engine's own command."""
    bench.need("dockerd", "docker")
    engine = daemon = None
    values = {name: [] for name in ("first", "run", "command", "exec", "warm")}
    try:
        engine = Engine(bench.temp / "engine")
        daemon = bench.serve_with(f'[docker]\nsocket = "{engine.socket}"\nimage = "brig-bench"\npull = "never"\n')
        boxes = Boxes(daemon, "docker")
        live = boxes.make()
        boxes.prepare_tool(bench)
        for _ in range(max(2, bench.runs // BLOCK)):
            values["first"].append(boxes.first_us())
            values["run"].append(timed_us(engine.run))
            values["command"] += [timed_us(lambda: boxes.true(live)) for _ in range(BLOCK)]
            values["exec"].append(timed_us(engine.exec))
            values["warm"] += [boxes.warm_us() for _ in range(2)]
    finally:
        closing(daemon, engine)
    rows = against("docker, first command", values["first"], values["run"], "docker run", at_most=1.15)
    own = row("providers: docker exec", "us", values["exec"])
    return [*rows, own, faster("docker, command", values["command"], own, 20),
            faster("docker, warm tool run", values["warm"], own, 12)]


def oci(bench):
    """runc and crun, against themselves as commands."""
    rows, daemon = [], bench.serve_with()
    try:
        for name, most in (("runc", 1.25), ("crun", 1.8)):
            if not shutil.which(name):
                bench.skipped.append({"name": f"providers, {name}", "reason": f"{name} is not installed"})
                continue
            boxes, peer = Boxes(daemon, name), Runtime(bench.temp, shutil.which(name))
            ours, theirs = [], []
            try:
                in_turns(max(3, bench.runs // 4), lambda: ours.append(boxes.first_us()),
                         lambda: theirs.append(timed_us(peer.run)))
            finally:
                peer.close()
            rows += against(f"{name}, first command", ours, theirs, f"{name} run", at_most=most)
            rows += parked(bench, boxes, 1)
    finally:
        closing(daemon)
    return rows


def runsc(bench):
    """gVisor, against runsc as a command and against Docker with that runtime."""
    if not bench.runsc:
        raise peers.Missing("there is no runsc: tools/runsc.sh build")
    bench.need("dockerd", "docker")
    engine = daemon = peer = None
    values = {name: [] for name in ("first", "run", "command", "exec", "warm")}
    try:
        engine = Engine(bench.temp / "engine", runtimes=(("runsc", bench.runsc),), runtime="runsc")
        peer = Runtime(bench.temp, bench.runsc, "--network=none", "--ignore-cgroups", f"--root={bench.temp}/runsc-root")
        daemon = bench.serve_with()
        boxes = Boxes(daemon, "runsc")
        live = boxes.make()
        boxes.prepare_tool(bench)
        for _ in range(max(2, bench.runs // BLOCK)):
            values["first"].append(boxes.first_us())
            values["run"].append(timed_us(peer.run))
            values["command"] += [timed_us(lambda: boxes.true(live)) for _ in range(BLOCK)]
            values["exec"].append(timed_us(engine.exec))
            values["warm"] += [boxes.warm_us() for _ in range(2)]
        memory = parked(bench, boxes, 56)
    finally:
        closing(daemon, peer, engine)
    own = row("providers: docker exec, runsc", "us", values["exec"])
    return [*against("runsc, first command", values["first"], values["run"], "runsc run", at_most=1.5), own,
            faster("runsc, command", values["command"], own, 3),
            bound(row("providers: runsc, warm tool run", "us", values["warm"]), at_most=6000),
            faster("runsc, warm tool run to docker", values["warm"], own, 8), *memory]


def through_gate(bench):
    """The gate as a sandbox of runsc and one of local have it, in turns."""
    if not bench.runsc:
        raise peers.Missing("there is no runsc: tools/runsc.sh build")
    speed, connect = {"local": [], "runsc": []}, {"local": [], "runsc": []}
    ms, turns = (300, 2) if bench.quick else (gate.BULK_MS, gate.BULK_TURNS)
    os.environ["BRIG_RUNSC_PATH"] = bench.runsc
    daemon, peer = bench.serve_gate(), None
    try:
        peer = gate.Peer(bench.peer, "serve")
        inside = {name: gate.Inside(bench, daemon, peer.port, provider=name) for name in speed}
        place(daemon, GATE_CPU)

        def bulk(name):
            count, ns = inside[name]("down", PEER_CPU, NAME, peer.port, ms, gate.BULK_BYTES)[0]
            speed[name].append(count * 1000 / ns)

        in_turns(turns, *(lambda n=name: bulk(n) for name in speed))
        in_turns(max(2, bench.runs // 10),
                 *(lambda n=name: connect[n].extend(us(inside[n]("setup", PEER_CPU, NAME, peer.port, BLOCK)))
                   for name in connect))
    finally:
        closing(peer, daemon)
        del os.environ["BRIG_RUNSC_PATH"]
    local = row("providers: local, bulk", "MB/s", speed["local"], best_is_high=True)
    plain = row("providers: local, connect", "us", connect["local"])
    return [bound(row("providers: runsc, bulk", "MB/s", speed["runsc"], best_is_high=True), at_least=0.3,
                  against=local), local, added(row("providers: runsc, connect", "us", connect["runsc"]), 1000, plain),
            plain]


def machine_config(bench):
    """The lines for config.toml of a kernel and a root, which are made once per build."""
    bench.need("qemu-system-x86_64", "mkfs.erofs")
    place = os.environ.get("BRIG_TEST_VM_DIR") or str(bench.helpers.parent / "vm-bench")
    os.makedirs(place, exist_ok=True)
    done = subprocess.run([ROOT / "tools/brig-vm-prepare", place, *MACHINE_PACKAGES], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"brig-vm-prepare: {done.stderr.strip()[-200:]}")
    return done.stdout


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cost(boxes, memory):
    """(MiB beside the guest's, per cent of a core) of one that does nothing."""
    box = boxes.make()
    boxes.true(box)
    found = members(box)
    time.sleep(1)
    before, start = sum(map(cpu_seconds, found)), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = 100 * (sum(map(cpu_seconds, found)) - before) / (time.monotonic() - start)
    used = sum(map(gate.pss_mib, found)) - memory
    boxes.drop(box)
    return used, share


def vm(bench):
    """QEMU under emulation, against the same QEMU outside of any sandbox; and restored from a snapshot."""
    config = machine_config(bench)
    values = {name: [] for name in ("cold", "bare", "restored", "warm")}
    memory = 256
    rows, daemons = [], []
    try:
        daemons.append(bench.serve_with(config + vm_warm(False)))
        cold = Boxes(daemons[0], "vm", limits={"memory": memory << 20})
        live = cold.make()
        bare = BareQemu(live)
        in_turns(2 if bench.quick else 10, lambda: values["cold"].append(cold.first_us()),
                 lambda: values["bare"].append(bare.first_us()))
        rows += against("vm, first command", values["cold"], values["bare"], "qemu, bare", at_most=1.25)
        costs = [machine_cost(cold, memory) for _ in range(1 if bench.quick else 3)]
        rows += [bound(row("providers: vm, beside the guest's memory", "MiB", [c[0] for c in costs]), at_most=96),
                 bound(row("providers: vm, idle", "%", [c[1] for c in costs]), at_most=2)]
        closing(daemons.pop())
        daemons.append(bench.serve_with(config + vm_warm(True)))
        boxes = Boxes(daemons[0], "vm", limits={"memory": memory << 20})
        boxes.first_us()  # the snapshot is made
        values["restored"] = [boxes.first_us() for _ in range(5 if bench.quick else RESTORES)]
        rows.append(bound(row("providers: vm, restored", "us", values["restored"]), at_most=0.2, against=rows[0]))
        boxes.prepare_tool(bench, 1)
        values["warm"] = [boxes.warm_us() for _ in range(3 if bench.quick else 20)]
        rows.append(bound(row("providers: vm, warm tool run", "us", values["warm"]), at_most=40000))
    finally:
        closing(*daemons)
    return rows


def vm_warm(on):
    """The line that turns snapshots on or off, where this build has it."""
    done = subprocess.run([os.environ["BRIG"], "config", "sample"], capture_output=True, text=True, check=False).stdout
    section = re.search(r"^#?\s*\[vm\]$(.*?)(^#?\s*\[|\Z)", done, re.M | re.S)
    if section and re.search(r"^#?\s*snapshots?\s*=", section[1], re.M):
        return f"snapshots = {4 if on else 0}\n"
    return ""


def cycles(bench):
    """Sandboxes come and go; nothing of them stays, and nobody has a descriptor more."""
    daemon, rows = bench.serve_with(), []
    try:
        for name in ("local", "runc", "crun", "runsc"):
            if name != "local" and not (bench.runsc if name == "runsc" else shutil.which(name)):
                bench.skipped.append({"name": f"providers, cycles of {name}", "reason": f"there is no {name}"})
                continue
            boxes = Boxes(daemon, name)
            boxes.drop(boxes.make())
            before = possessions(daemon)
            for _ in range(20 if bench.quick else CYCLES):
                boxes.drop(boxes.make())
            end = time.monotonic() + 20
            while (left := possessions(daemon) - before) > 0 and time.monotonic() < end:
                time.sleep(0.1)
            rows.append(bound(row(f"providers: {name}, left by cycles", "things", [max(0, left)]), at_most=0))
    finally:
        closing(daemon)
    return rows


def possessions(daemon):
    """Descriptors of the service's processes, cgroups of sandboxes and entries of the run directory."""
    fds = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in daemon.children().values())
    groups = sum(len(dirs) for _, dirs, _ in os.walk("/sys/fs/cgroup"))
    return fds + groups + sum(len(names) for _, names, _ in os.walk(f"{daemon.dir}/run"))


GROUPS = {"docker": docker, "oci": oci, "runsc": runsc, "gate": through_gate, "vm": vm, "cycles": cycles}


def measure(build, runs=200, only=None, quick=False):
    return service.run_groups(Bench(build, 20 if quick else runs, quick), GROUPS, only)


if __name__ == "__main__":
    sys.exit(service.part_main("providers", GROUPS, measure))
