#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures runs of tools: a `brig serve` of a build with directories of its own, asked by tools_client.c over its
socket.

`make bench` does it after the gate (run.py); alone it writes only its own section of the page:

  tools.py --build build [--only GROUP,...] [--quick] [--runs N] [--out DIR] [--save FILE] [--markdown]

Every run has a fresh sandbox, used once, with every layer on (looked at in a receipt before anything is measured). What
is compared takes turns in one run. Rows have the form of those of service.py; `of` says which percentile a promise is
about when it is not the p50.
"""

import concurrent.futures
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import zipfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/e2e")]

import peers  # noqa: E402
import service  # noqa: E402
import tools_profile  # noqa: E402
from service import Client, bound, closing, row, timed_us  # noqa: E402

BLOCK = 10         # runs back to back between two turns of the others
WARM = 16          # children parked while single runs are measured
POOL = 64          # children parked while runs are sustained
CONNECTIONS = 8    # of the client that has as many runs as it can
BURST = 100
PACKAGES = 20
PARKED = 20        # children that are weighed
SECRETS_KEY = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

ADD = '''
def add(x: int, y: int) -> int:
    """
    Adds two numbers.

    Args:
        x (int): The first.
        y (int): The second.
    """
    return x + y
'''
ADD_NODE = "export function add(x, y) { return x + y; }\n"
TASK = '''
def task(program: str, entry: str) -> str:
    """
    Runs a program's own tests.

    Args:
        program (str): Its source.
        entry (str): The function that is tested.
    """
    scope = {"__name__": "task"}
    exec(compile(program, "task", "exec"), scope)
    scope["check"](scope[entry])
    return "passed"
'''
PYTHON = "/usr/bin/python3"


def of(line, percentile, at_most):
    """The same row again, with a promise about another percentile."""
    return {**{k: line[k] for k in ("unit", "p50", "p95", "p99", "runs")}, "name": f"{line['name']}, {percentile}",
            "of": percentile, "at_most": at_most, "kept": line[percentile] <= at_most}


class Bench(service.Bench):
    KIND = "tools"

    def __init__(self, build, runs, quick):
        super().__init__(build, runs)
        self.program, self.quick, self.profile = self.compile("tools_client"), quick, []

    def serve(self, tools="", manager=""):
        config = f"[manager]\nmax_sandboxes = 10000\n{manager}\n[tools]\n{tools}\n"
        return self.Daemon(config=config, env={"BRIG_SECRETS_KEY": SECRETS_KEY})


# ---- Asking ---------------------------------------------------------------------------------------------------------


def ask(daemon, method, path, body=None, status=200, timeout=600):
    answer = daemon.ask(method, f"/v1{path}", body, timeout=timeout)
    if answer.status != status:
        raise RuntimeError(f"{method} {path}: {answer!r}")
    return answer.json


def register(daemon, source, **members):
    return ask(daemon, "POST", "/tools/", {"source_code": source, **members})


def checked(daemon, name, args, strict=False):
    """One run by hand: it succeeds, and every layer is on."""
    ran = ask(daemon, "POST", f"/tools/{name}/run", {"args": args, "strict": strict})
    if ran["status"] != "success":
        raise RuntimeError(f"{name}: {ran['error']}")
    if not ran["receipt"]["protection"]["complete"]:
        raise RuntimeError(f"not every layer is on: {ran['receipt']['protection']}")
    return ran


def prewarm(daemon, client, count, language="python"):
    ask(daemon, "POST", "/pools/prewarm", {"language": language, "count": count})
    client.words("parked", count)


def pools(daemon):
    return ask(daemon, "GET", "/pools")["pools"]


def add_tool(daemon, client):
    register(daemon, ADD)
    checked(daemon, "add", {"x": 2, "y": 3})
    client.words("tool", "add", '{"x":2,"y":3}', "5")


# ---- Groups ---------------------------------------------------------------------------------------------------------


def bwrap():
    subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", PYTHON, "-I", "-S", "-c", "print(2 + 3)"],
                   check=True, capture_output=True)


def one_at_a_time(bench):
    """BLOCK runs, each from a full pool; BLOCK back to back; then one of each peer."""
    daemon, client, docker = bench.serve(), None, None
    values = {name: [] for name in ("warm", "back to back", "refill", "bwrap", "docker exec", "docker run")}
    try:
        client = Client(bench.program, daemon)
        try:
            docker = peers.Docker(bench.temp)
        except peers.Missing as e:
            bench.skipped.append({"name": "tools, docker", "reason": str(e)})
        add_tool(daemon, client)
        prewarm(daemon, client, WARM)
        for _ in range(max(1, bench.runs // BLOCK)):
            client.words("parked", WARM)
            time.sleep(0.1)  # Docker's last container is taken apart
            for _ in range(BLOCK):
                values["warm"].append(client.us("run"))
                values["refill"].append(client.us("parked", WARM))
            values["back to back"] += [client.us("run") for _ in range(BLOCK)]
            client.words("parked", WARM)
            if shutil.which("bwrap"):
                values["bwrap"].append(timed_us(bwrap))
            if docker:
                values["docker exec"].append(timed_us(docker.exec))
                values["docker run"].append(timed_us(docker.run))
        if len(pools(daemon)) != 1:
            raise RuntimeError("the tool has not run from the pool that was made for it")
    finally:
        closing(client, docker, daemon)
    rows = {name: row(f"tools: {name}", "us", v) for name, v in values.items() if v}
    out = [bound(rows["warm"], at_most=1000), of(rows["warm"], "p99", 5000), rows["back to back"], rows["refill"]]
    for name, times in (("bwrap", 10), ("docker exec", 50), ("docker run", 200)):
        if name in rows:
            out += [bound(row(f"tools: warm to {name}", "us", values["warm"]), at_least=times, against=rows[name],
                          inverse=True),
                    rows[name]]
    return out


def node(bench):
    if not pathlib.Path("/usr/bin/node").exists():
        raise peers.Missing("there is no /usr/bin/node")
    daemon, client, values = bench.serve(), None, []
    try:
        client = Client(bench.program, daemon)
        number = {"type": "number"}
        register(daemon, ADD_NODE, source_type="javascript",
                 json_schema={"name": "add", "description": "", "parameters":
                              {"type": "object", "properties": {"x": number, "y": number}, "required": ["x", "y"]}})
        checked(daemon, "add", {"x": 2, "y": 3})
        client.words("tool", "add", '{"x":2,"y":3}', "5")
        prewarm(daemon, client, 4, "javascript")
        for _ in range(bench.runs):
            client.words("parked", 4)
            values.append(client.us("run"))
    finally:
        closing(client, daemon)
    return [bound(row("tools: node", "us", values), at_most=2000)]


# ---- What is left behind --------------------------------------------------------------------------------------------


def descendants(pid):
    """pid and every process below it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def count(path):
    try:
        return len(os.listdir(path))
    except OSError:
        return 0


def is_spare(pid, daemons):
    """The network namespace that the spawner has made for its next sandbox: a helper with the spawner's name that has
    ended, and one descriptor. It is there or not, whatever has run."""
    try:
        return pid not in daemons and pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "brig-spawner\n"
    except OSError:
        return False


def possessions(daemon, tag):
    """Of the daemon, by kind: what must be as many after a load as before it. One spare namespace is not counted."""
    import helpers  # noqa: PLC0415
    daemons = [daemon.process.pid, *daemon.children().values()]
    mounts = 0
    for pid in daemons:
        mounts += pathlib.Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="replace").count("\n")
    below = descendants(daemon.process.pid)
    spare = min(1, sum(is_spare(pid, daemons) for pid in below))
    return {"processes": len(below) - spare,
            "cgroups": len([c for c in helpers.own_cgroups() if tag in c]), "mounts": mounts,
            "descriptors": sum(count(f"/proc/{pid}/fd") for pid in daemons) - spare}


def settled(daemon, tag, want=None):
    """What it has, once it has not changed for three seconds (the spawner refills its spare sandboxes in its own time);
    with want: or as soon as it is no more than that."""
    seen = []
    for _ in range(60):
        seen.append(possessions(daemon, tag))
        now = seen[-1]
        if seen[-7:] == [now] * 7 or (want and all(now[k] <= want[k] for k in now)):
            return now
        time.sleep(0.5)
    return seen[-1]


def sustained(bench):
    """CONNECTIONS clients that always have a run, on all CPUs; what the daemon has is counted before and after with as
    many parked."""
    seconds = 10 if bench.quick else 60
    daemon, client = bench.serve(f"pool_max = {POOL}"), None
    try:
        client = Client(bench.program, daemon)
        add_tool(daemon, client)
        tag = daemon.cgroup_tag()
        prewarm(daemon, client, POOL)
        client.words("sustain", 1, CONNECTIONS)  # the zygote is there, brigd's memory is what it will be
        client.words("parked", POOL)
        before = settled(daemon, tag)
        elapsed, runs, p50, p99 = (int(word) for word in client.words("sustain", seconds, CONNECTIONS))
        client.words("parked", POOL)
        after = settled(daemon, tag, before)
        checked(daemon, "add", {"x": 2, "y": 3})
    finally:
        closing(client, daemon)
    left = {k: after[k] - before[k] for k in after}
    service.say(f"before {before}, after {after}")
    each = {"name": "tools: sustained, each", "unit": "us", "p50": p50 / 1000, "p95": p99 / 1000, "p99": p99 / 1000,
            "runs": runs}
    return [bound(row("tools: sustained", "per s", [runs / elapsed * 1e9]), at_least=250), each,
            bound(row("tools: left behind", "things", [sum(max(0, v) for v in left.values())]), at_most=0)]


def bursts(bench, name, config, at_most):
    """All times of all bursts of BURST."""
    daemon, client, values = bench.serve(config), None, []
    try:
        client = Client(bench.program, daemon)
        add_tool(daemon, client)
        if name == "full":
            prewarm(daemon, client, BURST)
        for _ in range(max(3, bench.runs // 20)):
            if name == "full":
                client.words("parked", BURST)
            time.sleep(0.5 if bench.quick else 1.5)  # what the last one left is taken apart
            values += [int(word) / 1000 for word in client.words("burst", BURST)]
    finally:
        closing(client, daemon)
    line = row(f"tools: burst, {name} pool", "us", values)
    line.update(of="p99", at_most=at_most, kept=line["p99"] < at_most)
    return line


def burst(bench):
    return [bursts(bench, "full", f"pool_max = {BURST}\nprewarm = 0", 60000),
            bursts(bench, "empty", "pool_max = 0", 500000)]


# ---- Requirements ---------------------------------------------------------------------------------------------------


def wheels(directory):
    """PACKAGES small packages; each a module with a class, a table and a regular expression, as small packages have."""
    service.Daemon = service.daemon_class()  # the kit's `service` is that of the e2e tests
    import lettakit  # noqa: PLC0415
    names = [f"brigpkg{i:02}" for i in range(PACKAGES)]
    for name in names:
        text = "import re\nimport collections\n" + "".join(f"def function_{i}(a, b={i}):\n    return a * {i} + b\n\n"
                                                           for i
                                                           in range(40)) + "TABLE = {i: str(i) for i in range(200)}\n"
        lettakit.wheel(str(directory), name, "1.0",
                       {f"{name}/__init__.py": f"from .core import *\nNAME = '{name}'\n", f"{name}/core.py": text})
    return names


def cold(bench):
    """A run whose set is built and whose pool is empty, and python3 with the same modules on its path; in turns."""
    links, path = bench.temp / "wheels", bench.temp / "modules"
    links.mkdir(mode=0o755)
    path.mkdir()
    names = wheels(links)
    for file in links.iterdir():
        with zipfile.ZipFile(file) as z:
            z.extractall(path)
    lines = "".join(f"    import {name}\n" for name in names)
    daemon, client, ours, plain = bench.serve(f'pool_max = 0\nfind_links = "{links}"'), None, [], []
    program = "; ".join(f"import {name}" for name in names) + "; print(2 + 3)"
    start = lambda: subprocess.run([PYTHON, "-c", program], check=True, capture_output=True,
                                   env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"})  # noqa: E731
    try:
        client = Client(bench.program, daemon)
        register(daemon, f'def twenty(x: int, y: int) -> int:\n    """\n    Adds.\n\n    Args:\n        x (int): One.\n'
                 f'        y (int): Another.\n    """\n{lines}    return x + y\n',
                 pip_requirements=[{"name": name} for name in names])
        checked(daemon, "twenty", {"x": 2, "y": 3})  # builds the set
        client.words("tool", "twenty", '{"x":2,"y":3}', "5")
        start()  # and this its __pycache__
        for _ in range(max(10, bench.runs // 4)):
            ours.append(client.us("run"))
            plain.append(timed_us(start))
    finally:
        closing(client, daemon)
    against = row("tools: plain python3", "us", plain)
    return [bound(row("tools: cold, 20 packages", "us", ours), at_most=1.3, against=against), against]


# ---- Memory ---------------------------------------------------------------------------------------------------------


def private_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))


def inner_pid(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    return status.partition("NSpid:")[2].splitlines()[0].split()[-1]


def parked_children(daemon):
    """(brig-init, interpreter) of every sandbox with a process number 2."""
    spaces = {}
    for pid in descendants(daemon.process.pid):
        try:
            spaces.setdefault(os.readlink(f"/proc/{pid}/ns/pid"), {})[inner_pid(pid)] = pid
        except OSError:
            pass
    return [(found["1"], found["2"]) for found in spaces.values() if "1" in found and "2" in found
            and "python" in pathlib.Path(f"/proc/{found['2']}/comm").read_text(encoding="utf-8")]


def parked(bench):
    daemon, client = bench.serve(), None
    try:
        client = Client(bench.program, daemon)
        prewarm(daemon, client, PARKED)
        pairs = parked_children(daemon)
        if len(pairs) < PARKED:
            raise RuntimeError(f"{len(pairs)} children are found of {PARKED}")
        both = [(private_kib(first) + private_kib(second)) / 1024 for first, second in pairs]
        inits = [private_kib(first) / 1024 for first, _ in pairs]
    finally:
        closing(client, daemon)
    return [bound(row("tools: parked child", "MiB", both), at_most=3), row("tools: its brig-init", "MiB", inits)]


# ---- HumanEval ------------------------------------------------------------------------------------------------------


def humaneval_tasks():
    place = pathlib.Path(os.environ.get("BRIG_TEST_DATA", "/nonexistent")) / "HumanEval.jsonl.gz"
    if not place.exists():
        raise peers.Missing("BRIG_TEST_DATA names no directory with HumanEval.jsonl.gz")
    with gzip.open(place, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def humaneval(bench):
    """All tasks by four connections; each a run of one tool that has the program as an argument."""
    tasks, local, passed = humaneval_tasks(), threading.local(), []
    daemon = bench.serve()

    def solve(task):
        if not hasattr(local, "connection"):
            local.connection = daemon.connection(timeout=600)
        program = task["prompt"] + task["canonical_solution"] + "\n" + task["test"]
        answer = daemon.ask("POST", "/v1/tools/task/run",
                            {"args": {"program": program, "entry": task["entry_point"]}, "timeout": 60},
                            connection=local.connection)
        return answer.status == 200 and answer.json["status"] == "success" and answer.json["result"] == "passed"

    try:
        register(daemon, TASK)
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for _ in range(1 if bench.quick else 5):
                start = time.monotonic()
                results = list(threads.map(solve, tasks))
                passed.append((sum(results), len(results) / (time.monotonic() - start)))
    finally:
        daemon.close()
    return [bound(row("tools: HumanEval passed", "of 164", [n for n, _ in passed]), at_least=len(tasks)),
            row("tools: HumanEval", "tasks/s", [speed for _, speed in passed], best_is_high=True)]


def profile(bench):
    """Where the CPU time of a sustained load goes; for the docs, without a promise."""
    seconds = 5 if bench.quick else 20
    daemon, client = bench.serve(f"pool_max = {POOL}"), None
    try:
        client = Client(bench.program, daemon)
        add_tool(daemon, client)
        prewarm(daemon, client, POOL)
        bench.profile = tools_profile.take(bench.temp, seconds, [client.process.pid, *descendants(daemon.process.pid)],
                                           lambda: int(client.words("sustain", seconds, CONNECTIONS)[1]))
    finally:
        closing(client, daemon)
    return []


GROUPS = {"warm": one_at_a_time, "sustained": sustained, "burst": burst, "node": node, "cold": cold, "parked": parked,
          "humaneval": humaneval, "profile": profile}


def measure(build, runs=200, only=None, quick=False):
    """As service.run_groups(), and "profile": [...]."""
    bench = Bench(build, 20 if quick else runs, quick)
    return {**service.run_groups(bench, GROUPS, only), "profile": bench.profile}


if __name__ == "__main__":
    sys.exit(service.part_main("tools", GROUPS, measure, lambda results: tools_profile.report(results["profile"])))
