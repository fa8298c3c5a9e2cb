#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the service: a `brig serve` of a build with directories of its own, asked by service_client.c over its
socket.

`make bench` does it after `brig bench` (run.py); alone it writes only its own section of the page:

  service.py --build build [--only GROUP,...] [--runs N] [--out DIR] [--save FILE]

What is compared takes turns in one run.  Rows have the form of those of `brig bench -o json`, so that one page shows
them all.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/e2e")]

import peers  # noqa: E402

BLOCK = 10  # cycles or commands back to back between two turns of Docker
GIB = 1 << 30
TRANSFER = GIB
IDLE = 2000
RSS_GROWTH_MIB = 16


def say(words):
    print(f"bench: {words}", file=sys.stderr, flush=True)


# ---- Numbers --------------------------------------------------------------------------------------------------------


def percentile(values, share, best_is_high=False):
    """By nearest rank, counted from the good end."""
    ordered = sorted(values, reverse=best_is_high)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def row(name, unit, values, best_is_high=False):
    p50, p95, p99 = (round(percentile(values, p, best_is_high), 3) for p in (50, 95, 99))
    return {"name": name, "unit": unit, "p50": p50, "p95": p95, "p99": p99, "runs": len(values)}


def bound(line, at_most=None, at_least=None, against=None, inverse=False):
    """Adds the promise: of the p50, or of its ratio to another row (inverse: how many times faster)."""
    value = line["p50"]
    if against:
        value = against["p50"] / line["p50"] if inverse else line["p50"] / against["p50"]
        line.update(ratio=round(value, 3), against=against["name"])
    if at_most is not None:
        line.update(at_most=at_most, kept=value <= at_most)
    if at_least is not None:
        line.update(at_least=at_least, kept=value >= at_least)
    return line


# ---- The service and its client -------------------------------------------------------------------------------------


class Client:
    """service_client.c, one command at a time; answers are nanoseconds."""

    def __init__(self, program, daemon):
        self.process = subprocess.Popen([program, daemon.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def words(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"the client ended at: {' '.join(map(str, words))}")
        return answer

    def us(self, *words):
        return int(self.words(*words)[0]) / 1000

    def make(self):
        return self.words("make")[1]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def daemon_class():
    """The daemon of the e2e tests, whose module is called as this one; the program it starts is read from the
    environment when it is loaded."""
    spec = importlib.util.spec_from_file_location("e2e_service", ROOT / "tests/e2e/service.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Daemon


class Bench:
    KIND = "service"

    def __init__(self, build, runs):
        self.helpers, self.runs = (build / "src").resolve(), runs
        self.temp = pathlib.Path(tempfile.mkdtemp(prefix="bs-", dir="/tmp"))
        self.temp.chmod(0o711)  # brigd is another user
        self.rows, self.skipped = [], []
        os.environ.update(BRIG=str(self.helpers / "brig"), BRIG_LIBEXEC_DIR=str(self.helpers), TMPDIR=str(self.temp))
        tempfile.tempdir = str(self.temp)  # the module remembers the directory of the bench before this one
        self.Daemon = daemon_class()
        self.program = self.compile("service_client")

    def compile(self, name, *libraries):
        program = str(self.temp / name)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-D_GNU_SOURCE", "-o", program, str(HERE / f"{name}.c"),
                        *libraries],
                       check=True)
        return program

    def serve(self, manager="", sandbox=""):
        return self.Daemon(config=f"[manager]\nmax_sandboxes = 10000\nidle_timeout = 0\n{manager}\n[sandbox]\n"
                           f"{sandbox}\n")

    def close(self):
        shutil.rmtree(self.temp, ignore_errors=True)

    def attempt(self, name, function):
        start = time.monotonic()
        try:
            self.rows += function(self)
            say(f"{self.KIND}, {name}: {time.monotonic() - start:.0f} s")
        except peers.Missing as e:
            self.skipped.append({"name": f"{self.KIND}, {name}", "reason": str(e)})
        except (OSError, RuntimeError, AssertionError, subprocess.SubprocessError) as e:
            self.skipped.append({"name": f"{self.KIND}, {name}", "reason": f"failed: {str(e)[:300]}"})


def closing(*things):
    for thing in things:
        if thing:
            thing.close()


# ---- Groups ---------------------------------------------------------------------------------------------------------


def timed_us(function):
    start = time.monotonic_ns()
    function()
    return (time.monotonic_ns() - start) / 1000


def commands(bench):
    """Create, command, delete; and a command in a live sandbox: BLOCK of each, then one of Docker's."""
    daemon, client, docker = bench.serve("pool = 64"), None, None
    values = {name: [] for name in ("cycle", "paused", "create", "run", "delete", "exec", "exec paused", "docker run",
                                    "docker exec")}
    try:
        client = Client(bench.program, daemon)
        try:
            docker = peers.Docker(bench.temp)
        except peers.Missing as e:
            bench.skipped.append({"name": "docker", "reason": str(e)})
        live = client.make()
        for _ in range(max(1, bench.runs // BLOCK)):
            time.sleep(0.5)  # the pool is full again, and Docker's last container taken apart
            for i in range(1 + BLOCK):
                total, create, run, delete = (int(word) / 1000 for word in client.words("cycle"))
                if i == 0:
                    values["paused"].append(total)
                    continue
                for name, value in (("cycle", total), ("create", create), ("run", run), ("delete", delete)):
                    values[name].append(value)
            time.sleep(0.2)
            values["exec paused"].append(client.us("exec", live))
            values["exec"] += [client.us("exec", live) for _ in range(BLOCK)]
            if docker:
                values["docker run"].append(timed_us(docker.run))
                values["docker exec"].append(timed_us(docker.exec))
    finally:
        closing(client, docker, daemon)
    rows = {name: row(f"service: {name}", "us", v) for name, v in values.items() if v}
    bound(rows["cycle"], at_most=5000)
    bound(rows["exec"], at_most=2000)
    if docker:
        rows["cycle to docker"] = bound({**row("service: cycle to docker", "us", values["cycle"])}, at_least=50,
                                        against=rows["docker run"], inverse=True)
        rows["exec to docker"] = bound({**row("service: exec to docker", "us", values["exec"])}, at_least=20,
                                       against=rows["docker exec"], inverse=True)
    return list(rows.values())


def burst(bench):
    daemon, client = bench.serve("pool = 100"), None
    many, spawns = [], []
    try:
        client = Client(bench.program, daemon)
        for _ in range(max(3, bench.runs // 10)):
            time.sleep(1.5)  # the pool is full again
            many.append(client.us("burst", 100))
            time.sleep(0.3)
            spawns.append(client.us("spawn", 100))
    finally:
        closing(client, daemon)
    against = row("service: 100 posix_spawn", "us", spawns)
    return [bound(row("service: 100 at once", "us", many), at_most=4, against=against), against]


def healthz(bench):
    """Both servers on CPU 0, wrk on CPU 1, in turns."""
    if (os.cpu_count() or 1) < 2:
        raise peers.Missing("needs two CPUs")
    daemon, nginx = bench.serve("pool = 0"), None
    ours, theirs = [], []
    try:
        nginx = peers.Nginx(bench.temp, 0)
        subprocess.run(["taskset", "-a", "-p", "-c", "0", str(daemon.children()["brigd"])], check=True,
                       capture_output=True)
        for _ in range(5):
            ours.append(peers.wrk(1, f"http://127.0.0.1:{daemon.port}/healthz", 2))
            theirs.append(peers.wrk(1, f"http://127.0.0.1:{nginx.port}/healthz", 2))
    finally:
        closing(nginx, daemon)
    against = row("service: nginx", "ops/s", theirs, best_is_high=True)
    return [bound(row("service: healthz", "ops/s", ours, best_is_high=True), at_least=0.8, against=against), against]


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


class Watch(threading.Thread):
    """The most memory a process has while this runs, in MiB."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.over = pid, 0.0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.01):
            self.most = max(self.most, resident_mib(self.pid))

    def close(self):
        self.over.set()
        self.join()


def copy(where):
    """cp of a file from tmpfs to tmpfs: what an upload into a store in memory is compared with."""
    source, target = where / "from", where / "to"
    if not source.exists():
        with open(source, "wb") as f:
            for _ in range(TRANSFER >> 20):
                f.write(bytes(1 << 20))
    us = timed_us(lambda: subprocess.run(["cp", str(source), str(target)], check=True))
    target.unlink()
    return us


def transfers(bench):
    """1 GiB out of a program, into a file and out of it, and by cp, in turns."""
    daemon, client, watch = bench.serve("pool = 0", 'memory_limit = "4g"\ncpu_limit = 2'), None, None
    shm = pathlib.Path(tempfile.mkdtemp(prefix="bs-", dir="/dev/shm"))
    speed = {name: [] for name in ("output", "upload", "download", "cp")}
    try:
        client = Client(bench.program, daemon)
        live = client.make()
        brigd = daemon.children()["brigd"]
        client.us("exec", live)
        before = resident_mib(brigd)
        watch = Watch(brigd)
        for _ in range(5):
            for name in ("upload", "download", "output"):
                speed[name].append(TRANSFER / client.us(name, live, TRANSFER))
            client.us("remove", live)
            speed["cp"].append(TRANSFER / copy(shm))
    finally:
        closing(watch, client, daemon)
        shutil.rmtree(shm, ignore_errors=True)
    rows = {name: row(f"service: {name}", "MB/s", v, best_is_high=True) for name, v in speed.items()}
    bound(rows["output"], at_least=400)
    for name in ("upload", "download"):
        bound(rows[name], at_least=0.4, against=rows["cp"])
    growth = row("service: brigd grows", "MiB", [watch.most - before])
    return [*rows.values(), bound(growth, at_most=RSS_GROWTH_MIB)]


def available_kib():
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))


def settled_kib():
    """MemAvailable once three looks in a row agree within 2 MiB, or after 20 s what it is."""
    last, calm = 0, 0
    if os.geteuid() == 0:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    for _ in range(40):
        now = available_kib()
        calm = calm + 1 if abs(now - last) < 2048 else 0
        if calm == 3:
            break
        last = now
        time.sleep(0.5)
    return now


def idle(bench):
    each, brigd, lists = [], [], []
    for _ in range(3):
        daemon, client = bench.serve("pool = 0"), None
        try:
            client = Client(bench.program, daemon)
            client.us("drop", client.make())
            before = settled_kib()
            for _ in range(IDLE):
                client.make()
            each.append((before - settled_kib()) / IDLE)
            brigd.append(resident_mib(daemon.children()["brigd"]))
            lists += [client.us("list") for _ in range(100)]
        finally:
            closing(client, daemon)
    return [bound(row("service: idle sandbox", "KiB", each), at_most=550),
            bound(row("service: brigd", "MiB", brigd), at_most=100),
            bound(row("service: list", "us", lists), at_most=10000)]


GROUPS = {"commands": commands, "burst": burst, "healthz": healthz, "transfers": transfers, "idle": idle}


def run_groups(bench, groups, only):
    """{"results": [...], "skipped": [...], "load": ...} of all groups, or of those named."""
    load = f"{os.getloadavg()[0]:.2f}"
    try:
        for name, function in groups.items():
            if not only or name in only:
                bench.attempt(name, function)
    finally:
        bench.close()
    return {"results": bench.rows, "skipped": bench.skipped, "load": load, "load_after": f"{os.getloadavg()[0]:.2f}"}


def measure(build, runs=200, only=None, quick=False):
    return run_groups(Bench(build, 20 if quick else runs), GROUPS, only)


def report(results):
    import page  # noqa: PLC0415
    for line in results["results"]:
        tail = f"{page.compared(line)} {line['against']}" if "against" in line else ""
        print(f"{line['name']:28} p50 {page.show(line['p50'], line['unit']):>11}  p95 "
              f"{page.show(line['p95'], line['unit']):>11}  p99 "
              f"{page.show(line['p99'], line['unit']):>11}  {tail:36} {page.bound_of(line):18} "
              f"{page.verdict(line).strip('*')}")
    for skip in results["skipped"]:
        print(f"{skip['name']}: not measured: {skip['reason']}")


def part_main(part, groups, measure_part, more_report=None):
    """The command of one part of the bench. part: as in page.PARTS."""
    import page  # noqa: PLC0415
    parser = argparse.ArgumentParser(description=f"Measures the part `{part}` and writes its section of "
                                     "docs/BENCHMARKS.md.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR")
    parser.add_argument("--runs", type=int, default=200, metavar="N")
    parser.add_argument("--quick", action="store_true", help="a trial of a few seconds per group")
    parser.add_argument("--only", metavar="GROUP,...", help=", ".join(groups) + "; a trial")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="write the section into DIR/BENCHMARKS.md")
    parser.add_argument("--markdown", action="store_true", help="print the section")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE", help="keep what was measured (JSON), for --load")
    parser.add_argument("--load", type=pathlib.Path, metavar="FILE",
                        help="measure nothing: write the section from a --save")
    args = parser.parse_args()
    if args.load:
        results = json.loads(args.load.read_text(encoding="utf-8"))
    else:
        results = measure_part(args.build, args.runs, args.only.split(",") if args.only else None, args.quick)
    if args.save:
        args.save.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    report(results)
    if more_report:
        more_report(results)
    if args.markdown:
        print(page.part_section(part, results))
    if args.out:
        target = args.out / "BENCHMARKS.md"
        target.write_text(page.with_part(target.read_text(encoding="utf-8"), part, results), encoding="utf-8")
    return 1 if results["skipped"] else 0


if __name__ == "__main__":
    sys.exit(part_main("service", GROUPS, measure))
