#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares runs of tools of several builds, in turns, by the client and the harness of this tree:

  turns.py BUILD BUILD... [--rounds N] [--runs N] [--seconds N]

One line per turn: the p50 of a run whose pool was left alone for SETTLED before it, of runs as tools.py makes them
("warm"), of ten back to back, and how many runs there are in a second with CONNECTIONS that always have one.
"""

import argparse
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import tools  # noqa: E402
from service import Client, closing, percentile  # noqa: E402

SETTLED = 0.06  # seconds: everything of the last run is taken apart, and its child is replaced


def serve(bench, pool, config):
    daemon = bench.serve(config)
    client = Client(bench.program, daemon)
    tools.add_tool(daemon, client)
    tools.prewarm(daemon, client, pool)
    return daemon, client


def single(bench, runs):
    daemon, client = serve(bench, tools.WARM, "")
    values = {"settled": [], "warm": [], "back to back": []}
    try:
        for _ in range(max(1, runs // tools.BLOCK)):
            for _ in range(tools.BLOCK):
                client.words("parked", tools.WARM)
                time.sleep(SETTLED)
                values["settled"].append(client.us("run"))
            for _ in range(tools.BLOCK):
                client.words("parked", tools.WARM)
                values["warm"].append(client.us("run"))
            client.words("parked", tools.WARM)
            time.sleep(SETTLED)
            values["back to back"] += [client.us("run") for _ in range(tools.BLOCK)]
    finally:
        closing(client, daemon)
    return [f"{name} {percentile(v, 50) / 1000:.2f} ms" for name, v in values.items()]


def sustained(bench, seconds):
    daemon, client = serve(bench, tools.POOL, f"pool_max = {tools.POOL}")
    try:
        client.words("sustain", 1, tools.CONNECTIONS)
        client.words("parked", tools.POOL)
        elapsed, runs, _, _ = (int(word) for word in client.words("sustain", seconds, tools.CONNECTIONS))
    finally:
        closing(client, daemon)
    return [f"sustained {runs / elapsed * 1e9:.0f}/s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=6)
    options = parser.parse_args()
    if len(options.build) > 1 or options.rounds > 1:  # a process each: the kit remembers the build that it has loaded
        counts = ["--rounds", "1", "--runs", str(options.runs), "--seconds", str(options.seconds)]
        for build in options.build * options.rounds:
            subprocess.run([sys.executable, __file__, str(build), *counts], check=True)
        return
    bench = tools.Bench(options.build[0].resolve(), options.runs, True)
    try:
        print(options.build[0], *single(bench, options.runs), *sustained(bench, options.seconds), sep=", ")
    finally:
        bench.close()


if __name__ == "__main__":
    main()
