#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures templates, builds and forks: a `brig serve` of a build with directories of its own, a registry on loopback,
and a private Docker engine (peers.py) that is asked for the same in turns.

`make bench` does it after the tools (run.py); alone it writes only its own section of the page:

  templates.py --build build [--only GROUP,...] [--quick] [--runs N] [--out DIR] [--save FILE] [--markdown]

The image is made here: programs of this machine, and layers of files whose content gzip makes about half as long.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/e2e")]

import imagekit  # noqa: E402
import peers  # noqa: E402
import service  # noqa: E402
from gate import added  # noqa: E402
from service import bound, closing, row, timed_us  # noqa: E402

MIB = 1 << 20
LAYERS = 10
IMAGE = 500 * MIB
FILE = MIB // 4
BLOCK = 10
STEPS = 20
FORKED = 1024 * MIB
GENERATIONS, WRITES = 10, 1000
PAUSE = 0.3  # between two forks: the kernel's grace periods are not shared


class Bench(service.Bench):
    KIND = "templates"

    def __init__(self, build, runs, quick):
        super().__init__(build, runs)
        self.quick = quick


def half_random(n, seed):
    """n bytes that compress to about a half."""
    out, state = bytearray(), seed.encode()
    while len(out) < n:
        state = hashlib.sha256(state).digest()
        out += state * 2
    return bytes(out[:n])


def layer(number, size):
    files = [imagekit.entry(f"data/{number}", mode=0o755)]
    for i in range(max(1, size // FILE)):
        files.append(imagekit.entry(f"data/{number}/{i}", half_random(min(FILE, size), f"{number}/{i}")))
    return imagekit.tar(*files)


def image(size=IMAGE):
    return imagekit.Image(imagekit.base_layer(), *(layer(i, size // (LAYERS - 1)) for i in range(1, LAYERS)),
                          config={"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]})


def ask(daemon, method, path, body=None, good=(200, 201, 204), connection=None, **how):
    answer = daemon.ask(method, path, body, connection=connection, **how)
    if answer.status not in good:
        raise RuntimeError(f"{method} {path}: {answer}")
    return answer


def load(daemon, archive, name):
    answer = ask(daemon, "POST", f"/v1/templates/load?name={name}", archive,
                 headers={"Content-Type": "application/x-tar"})
    if b'"template"' not in answer.body:
        raise RuntimeError(f"load: {answer}")


# ---- Groups ---------------------------------------------------------------------------------------------------------


def pull(bench):
    """The same image from the same registry; before each turn neither side has anything of it."""
    import registrykit  # noqa: PLC0415  it reads the environment that Bench sets
    rounds = 1 if bench.quick else 3
    registry = daemon = docker = None
    values = {"brig": [], "docker": []}
    try:
        (bench.temp / "registry").mkdir()
        registry = registrykit.Registry(str(bench.temp / "registry"))
        layout = bench.temp / "layout.tar"
        layout.write_bytes(image().oci("big"))
        registrykit.tool("skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", f"oci-archive:{layout}",
                         f"docker://{registry.host}/big:1")
        layout.unlink()
        reference = f"{registry.host}/big:1"
        daemon = bench.Daemon(config=f'[templates]\ninsecure = "{registry.host}"\n')
        try:
            docker = peers.Docker(bench.temp)
        except peers.Missing as e:
            bench.skipped.append({"name": "templates, docker pull", "reason": str(e)})
        for _ in range(rounds):
            values["brig"].append(timed_us(lambda: ask(daemon, "POST", "/v1/templates/pull",
                                                       {"reference": reference, "name": "big"}, timeout=600)))
            ask(daemon, "DELETE", "/v1/templates/big")
            ask(daemon, "POST", "/v1/templates/prune")
            if docker:
                values["docker"].append(timed_us(lambda: docker.docker("pull", "-q", reference)))
                docker.docker("rmi", reference)
            os.sync()
    finally:
        closing(daemon, docker, registry)
    rows = [row("templates: pull", "us", values["brig"])]
    if values["docker"]:
        rows.append(row("templates: docker pull", "us", values["docker"]))
        bound(rows[0], at_most=0.7, against=rows[1])
    return rows


def create(bench):
    """A create over HTTP from ten layers, and from the host; nothing is kept ready for either."""
    daemon = bench.serve("pool = 0")
    try:
        load(daemon, image(MIB).oci(), "ten")
        values = creates(bench, daemon, ("host", "ten"), lambda: None)
    finally:
        closing(daemon)
    host = row("templates: create, host", "us", values["host"])
    return [added(row("templates: create, ten layers", "us", values["ten"]), 500, host), host, *pooled(bench)]


def creates(bench, daemon, templates, ready):
    """The times of creates, in turns. ready() waits until those that come next find what is kept for them."""
    connection = daemon.connection()

    def one(template):
        start = time.monotonic_ns()
        made = ask(daemon, "POST", "/v1/sandboxes", {"template": template}, connection=connection)
        took = (time.monotonic_ns() - start) / 1000
        ask(daemon, "DELETE", f"/v1/sandboxes/{made.json['id']}", connection=connection)
        return took

    for template in templates:
        ready()
        one(template)
    values = {template: [] for template in templates}
    for _ in range(max(1, bench.runs // BLOCK)):
        time.sleep(0.2)
        for _ in range(BLOCK):
            for template in templates:
                ready()
                values[template].append(one(template))
    return values


def pooled(bench):
    """The same where sandboxes of both are kept ready: of the host by [manager] pool, of the template by [pool]."""
    daemon = bench.Daemon(config="[manager]\nmax_sandboxes = 10000\nidle_timeout = 0\npool = 4\n"
                                 "[pool]\ntemplates = [\"ten=4\"]\n")

    def ready():
        end = time.monotonic() + 60
        while not any(p["kind"] == "sandbox" and p["parked"] == p["target"]
                      for p in ask(daemon, "GET", "/v1/pools").json["pools"]):
            if time.monotonic() > end:
                raise RuntimeError(f"the pool does not fill: {ask(daemon, 'GET', '/v1/pools').json}")
            time.sleep(0.005)
        time.sleep(0.05)  # nobody says when the slots of the host are full again

    try:
        load(daemon, image(MIB).oci(), "ten")
        values = creates(bench, daemon, ("host", "ten"), ready)
        claims = ask(daemon, "GET", "/v1/pools").json["pools"][0]["claims"]
        if claims != len(values["ten"]) + 1:
            raise RuntimeError(f"{claims} of {len(values['ten']) + 1} creates took one that was ready")
    finally:
        closing(daemon)
    host = row("templates: create, host, pooled", "us", values["host"])
    return [bound(row("templates: create, ten layers, pooled", "us", values["ten"]), at_most=1.0, against=host), host]


def building(bench):
    """STEPS steps of `RUN true`, each new, by brig and by Docker's BuildKit in turns; then the same again, cached."""
    rounds, daemon, docker = 3 if bench.quick else 10, bench.serve(), None
    where, archive = bench.temp / "context", bench.temp / "base.tar"
    values = {"run": [], "cached": [], "docker run": [], "docker cached": []}
    where.mkdir()
    archive.write_bytes(imagekit.base_layer())

    def brig():
        words = ["template", "build", "--replace", "-t", "built", "--net", "none", str(where)]
        subprocess.run([os.environ["BRIG"], *words], env=daemon.env, check=True, capture_output=True)

    def engine():
        subprocess.run(["docker", "-H", docker.host, "build", "--network", "none", "-t", "built", str(where)],
                       env={"PATH": os.environ["PATH"], "HOME": str(bench.temp), "DOCKER_BUILDKIT": "1"}, check=True,
                       capture_output=True)

    try:
        load(daemon, imagekit.Image(imagekit.base_layer(), config={"Env": ["PATH=/bin"]}).oci(), "base")
        try:
            docker = peers.Docker(bench.temp)
            docker.docker("import", "--change", "ENV PATH=/bin", str(archive), "base")
        except peers.Missing as e:
            bench.skipped.append({"name": "templates, docker build", "reason": str(e)})
        for turn in range(rounds):
            steps = "".join(f"RUN true {turn}.{i}\n" for i in range(STEPS))
            (where / "Dockerfile").write_text(f"FROM base\n{steps}", encoding="ascii")
            values["run"].append(timed_us(brig) / STEPS)
            values["cached"].append(timed_us(brig))
            if docker:
                values["docker run"].append(timed_us(engine) / STEPS)
                values["docker cached"].append(timed_us(engine))
    finally:
        closing(daemon, docker)
    run = row("templates: RUN true", "us", values["run"])
    rows = [run, bound(row("templates: cached build", "us", values["cached"]), at_most=50000)]
    if docker:
        rows += [row("templates: RUN true, docker", "us", values["docker run"]),
                 row("templates: cached build, docker", "us", values["docker cached"])]
        bound(run, at_most=0.15, against=rows[2])
    return rows


# ---- Disks that can be forked ---------------------------------------------------------------------------------------

# The same program inside and on the host: files of 4 KiB that are made, read, renamed and removed. It prints the number
# of files in a second.
FILE_LOOP = """
import os, sys, time
n, data, start = int(sys.argv[1]), b"x" * 4096, time.monotonic()
for i in range(n):
    name = f"f{i % 100}"
    with open(name, "wb", buffering=0) as f:
        f.write(data)
    with open(name, "rb", buffering=0) as f:
        f.read(4096)
    os.rename(name, name + "r")
    os.unlink(name + "r")
print(n / (time.monotonic() - start))
"""
# Writes blocks at places that a number chooses.
RANDOM_WRITES = """
import os, random, sys
count, seed = int(sys.argv[1]), int(sys.argv[2])
random.seed(seed)
names = sorted(n for n in os.listdir(".") if n.startswith("f"))
for i in range(count):
    fd = os.open(random.choice(names), os.O_WRONLY)
    os.pwrite(fd, os.urandom(4096), random.randrange(os.fstat(fd).st_size // 4096) * 4096)
    os.close(fd)
for name in names:
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
"""


class Forks:
    """A service and a forkable sandbox with files in it, of which nothing is dirty."""

    def __init__(self, bench):
        self.daemon = bench.serve(f'org_max_disk = "{2000 * 1024}m"\npool = 0')
        self.size = FORKED // 16 if bench.quick else FORKED
        self.bench, self.box = bench, self.make()
        self.sh(self.box, f"for i in $(seq 16); do head -c {self.size // 16} /dev/urandom > f$i; sync -d f$i; done")

    def make(self, **members):
        return ask(self.daemon, "POST", "/v1/sandboxes",
                   {"forkable": True, "limits": {"disk": str(2 * self.size)}, **members}).json["id"]

    def sh(self, box, command):
        done = ask(self.daemon, "POST", f"/v1/sandboxes/{box}/run",
                   {"argv": ["/bin/sh", "-c", command], "timeout": 600}, timeout=700).json
        if done["outcome"]["exit_code"] != 0:
            raise RuntimeError(f"{command}: {done}")
        return done["stdout"]

    def python(self, box, program, *words):
        return self.sh(box, f"python3 -c '{program}' {' '.join(map(str, words))}")

    def fork(self, box, count=1):
        """(the forks, microseconds); what is asked before stands still first, as the kernel does after a pause."""
        os.sync()
        time.sleep(PAUSE)
        start = time.monotonic_ns()
        made = ask(self.daemon, "POST", f"/v1/sandboxes/{box}/fork", {"count": count}, timeout=600).json["sandboxes"]
        return [one["id"] for one in made], (time.monotonic_ns() - start) / 1000

    def remove(self, *boxes):
        for box in boxes:
            ask(self.daemon, "DELETE", f"/v1/sandboxes/{box}")

    def used(self):
        """The bytes in use in the place of disks, as the file system that they lie on counts them."""
        os.sync()
        for pid in (p for p in os.listdir("/proc") if p.isdigit()):
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text() != "brig-spawner\n" or not self.is_ours(pid):
                    continue
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    if os.readlink(f"/proc/{pid}/fd/{fd}") == "/" and self.is_xfs(f"/proc/{pid}/fd/{fd}"):
                        state = os.statvfs(f"/proc/{pid}/fd/{fd}")
                        return (state.f_blocks - state.f_bfree) * state.f_frsize
            except OSError:
                continue
        state = os.statvfs(self.daemon.dir)
        return (state.f_blocks - state.f_bfree) * state.f_frsize

    def settled(self):
        """The same, once it is the same twice: the disks of sandboxes that have ended go after the answer."""
        last, now = None, self.used()
        while now != last:
            time.sleep(PAUSE)
            last, now = now, self.used()
        return now

    def is_ours(self, pid):
        return self.daemon.dir.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes()

    @staticmethod
    def is_xfs(path):
        done = subprocess.run(["stat", "-f", "-L", "-c", "%T", path], capture_output=True, text=True, check=False)
        return done.stdout.strip() == "xfs"

    def close(self):
        self.daemon.close()


def forking(bench):
    """One fork and ten at once of a sandbox with 1 GiB of files; and what their disks take of new blocks."""
    world, rounds = Forks(bench), 3 if bench.quick else 30
    values = {1: [], 10: [], "blocks": [], "commit": []}
    try:
        for _ in range(rounds):
            for count in (1, 10):
                before = world.settled()
                forks, took = world.fork(world.box, count)
                values[count].append(took)
                values["blocks"].append((world.settled() - before) / count / MIB)
                world.remove(*forks)
            os.sync()
            time.sleep(PAUSE)
            values["commit"].append(timed_us(lambda: ask(world.daemon, "POST", f"/v1/sandboxes/{world.box}/commit",
                                                         {"name": "kept", "replace": True}, timeout=600)))
    finally:
        world.close()
    return [bound(row("templates: fork", "us", values[1]), at_most=25000),
            bound(row("templates: ten forks", "us", values[10]), at_most=150000),
            bound(row("templates: new blocks of a fork", "MiB", values["blocks"]), at_most=1),
            bound(row("templates: commit", "us", values["commit"]), at_most=50000)]


def writing(bench):
    """Ten forks write at once, in turns with ten sandboxes that are no forks."""
    world, rounds = Forks(bench), 1 if bench.quick else 5
    size = world.size // 16
    values = {"forks": [], "fresh": []}

    def all_write(boxes):
        command = f"head -c {size} /dev/zero > w; sync -d w"
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(boxes)) as pool:
            list(pool.map(lambda box: world.sh(box, command), boxes))
        return len(boxes) * size / MIB / (time.monotonic() - start)

    try:
        for _ in range(rounds):
            forks, _ = world.fork(world.box, 10)
            values["forks"].append(all_write(forks))
            world.remove(*forks)
            world.settled()  # what they were promised is free again
            fresh = [world.make() for _ in range(10)]
            values["fresh"].append(all_write(fresh))
            world.remove(*fresh)
            world.settled()
    finally:
        world.close()
    fresh = row("templates: ten fresh sandboxes write", "MiB/s", values["fresh"], best_is_high=True)
    forks = row("templates: ten forks write", "MiB/s", values["forks"], best_is_high=True)
    return [bound(forks, at_least=0.85, against=fresh), fresh]


def generations(bench):
    """Each fork is written to at random and forked in its turn; the last forks count."""
    world, rounds = Forks(bench), 1 if bench.quick else 3
    values = []
    try:
        for turn in range(rounds):
            box, old = world.box, []
            for generation in range(GENERATIONS):
                world.python(box, RANDOM_WRITES, WRITES, turn * GENERATIONS + generation)
                forks, took = world.fork(box)
                box = forks[0]
                old.append(box)
            values.append(took)
            world.remove(*old)
    finally:
        world.close()
    return [bound(row("templates: fork, tenth generation", "us", values), at_most=100000)]


def file_loop(bench):
    """The same loop in a store of the pool and in a directory of the host, in turns."""
    world, rounds = Forks(bench), 3 if bench.quick else 15
    count = 1000 if bench.quick else 10000
    values = {"pool": [], "host": []}
    place = bench.temp / "loop"
    place.mkdir()
    try:
        for _ in range(rounds):
            values["pool"].append(float(world.python(world.box, FILE_LOOP, count)))
            done = subprocess.run(["python3", "-c", FILE_LOOP, str(count)], cwd=place, capture_output=True, text=True,
                                  check=True)
            values["host"].append(float(done.stdout))
    finally:
        world.close()
    host = row("templates: file loop, host", "ops/s", values["host"], best_is_high=True)
    pool = row("templates: file loop, pool", "ops/s", values["pool"], best_is_high=True)
    return [bound(pool, at_least=0.85, against=host), host]


GROUPS = {"pull": pull, "create": create, "build": building, "fork": forking, "writing": writing,
          "generations": generations, "files": file_loop}


def measure(build, runs=200, only=None, quick=False):
    return service.run_groups(Bench(build, 20 if quick else runs, quick), GROUPS, only)


if __name__ == "__main__":
    sys.exit(service.part_main("templates", GROUPS, measure))
