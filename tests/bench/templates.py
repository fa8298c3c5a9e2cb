#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures templates, builds and forks: a `brig serve` of a build with directories of its own, a registry on loopback,
and a private Docker engine (peers.py) that is asked for the same in turns.

`make bench` does it after the tools (run.py); alone it writes only its own section of the page:

  templates.py --build build [--only GROUP,...] [--quick] [--runs N] [--out DIR] [--save FILE] [--markdown]

The image is made here: programs of this machine, and layers of files whose content gzip makes about half as long.
"""

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
    """A create over HTTP from ten layers, and from the host; the slot pool is off for both, then on."""
    rows, daemon = [], bench.serve("pool = 0")
    values = {"host": [], "layers": []}
    try:
        load(daemon, image(MIB).oci(), "ten")
        connection = daemon.connection()

        def one(kind, template):
            body = {"template": template}
            start = time.monotonic_ns()
            made = ask(daemon, "POST", "/v1/sandboxes", body, connection=connection)
            values[kind].append((time.monotonic_ns() - start) / 1000)
            ask(daemon, "DELETE", f"/v1/sandboxes/{made.json['id']}", connection=connection)

        one("host", "host")
        one("layers", "ten")
        values = {"host": [], "layers": []}
        for _ in range(max(1, bench.runs // BLOCK)):
            time.sleep(0.2)
            for _ in range(BLOCK):
                one("host", "host")
                one("layers", "ten")
    finally:
        closing(daemon)
    host = row("templates: create, host", "us", values["host"])
    rows += [added(row("templates: create, ten layers", "us", values["layers"]), 500, host), host]
    return rows


GROUPS = {"pull": pull, "create": create}


def measure(build, runs=200, only=None, quick=False):
    return service.run_groups(Bench(build, 20 if quick else runs, quick), GROUPS, only)


if __name__ == "__main__":
    sys.exit(service.part_main("templates", GROUPS, measure))
