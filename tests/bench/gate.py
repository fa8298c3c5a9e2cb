#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the gate: a `brig serve` of a build, gate_peer.c as client (in a sandbox, and on the host without the gate)
and as server on loopback.

`make bench` does it after the service (run.py); alone it writes only its own section of the page:

  gate.py --build build [--only GROUP,...] [--quick] [--runs N] [--out DIR] [--save FILE] [--markdown]

What is compared takes turns in one run. brig-egress (and mitmproxy) are on one CPU, both peers on another, but where a
group says otherwise. Rows have the form of those of service.py, so that one page shows them all; `added` is what a p50
is above that of another row.
"""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/e2e")]

import peers  # noqa: E402
import service  # noqa: E402
from service import Client, bound, closing, row  # noqa: E402

GATE_CPU, PEER_CPU = 0, 1
NAME, TOKEN = "api.test", "value-of-the-token-0123456789"
BLOCK = 50          # connections, questions or requests back to back between two turns
PROCESSES = 8       # of the client that opens as many connections as it can
IDLE = 8000
BULK_MS, BULK_BYTES, BULK_TURNS = 3000, 2 << 30, 5
ATTACH_BLOCK = 8    # sandboxes of each kind between two fillings of the pool
TTL = 60


def added(line, at_most, against):
    """The promise is of the difference of two p50s."""
    more = round(line["p50"] - against["p50"], 3)
    line.update(added=more, against=against["name"], at_most=at_most, kept=more <= at_most)
    return line


# ---- The world ------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Names(threading.Thread):
    """Every name is 127.0.0.1, for TTL seconds: brig-egress asks once in a while, as it does anywhere."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            query, peer = self.socket.recvfrom(4096)
            end = query.index(b"\0", 12) + 5
            is_a = query[end - 4:end - 2] == b"\0\1"
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, TTL, 4) + socket.inet_aton("127.0.0.1") if is_a else b""
            self.socket.sendto(query[:2] + struct.pack(">HHHHH", 0x8580, 1, int(is_a), 0, 0) + query[12:end] + record,
                               peer)


class Peer:
    """A server of gate_peer.c, on loopback."""

    def __init__(self, program, command, *words):
        self.port = free_port()
        self.process = subprocess.Popen([program, command, str(PEER_CPU), str(self.port), *map(str, words)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{command}: not ready")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Bench(service.Bench):
    KIND = "gate"

    def __init__(self, build, runs, quick):
        super().__init__(build, runs)
        import internet  # noqa: PLC0415: it reads the environment that was just set
        self.quick = quick
        self.peer = self.compile("gate_peer", "-lssl", "-lcrypto", "-pthread")
        os.chmod(self.peer, 0o755)
        self.names, self.authority = Names(), internet.Authority(str(self.temp))
        self.keys = self.temp / "keys"
        self.keys.write_text("k1:" + "42" * 32 + "\n", encoding="ascii")
        self.keys.chmod(0o600)

    def serve_gate(self, pool=0, ca_bundle=True):
        if (os.cpu_count() or 1) < 2:
            raise peers.Missing("needs two CPUs")
        if not (self.helpers / "brig-egress").exists():
            raise peers.Missing("there is no brig-egress")
        # with one, every sandbox with a network gets a bundle of its own
        bundle = f'ca_bundle = "{self.authority.ca}"\n' if ca_bundle else ""
        daemon = self.Daemon(config=f'[manager]\nmax_sandboxes = 10000\nidle_timeout = 0\npool = {pool}\n[sandbox]\n'
                             f'bind_roots = "{self.temp}"\n'
                             f'[gate]\nresolvers = ["127.0.0.1:{self.names.port}"]\n{bundle}[secrets]\n'
                             f'key_file = "{self.keys}"\n')
        end = time.monotonic() + 30
        while b"brig_network_up 1" not in daemon.ask("GET", "/metrics").body:
            if time.monotonic() > end:
                daemon.close()
                raise RuntimeError("brig-egress is not there")
            time.sleep(0.05)
        place(daemon, GATE_CPU)
        return daemon

    def outside(self, *words):
        """The client on the host: the lines it says, as numbers."""
        done = subprocess.run([self.peer, *map(str, words)], check=False, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]}, outside: {done.stderr.strip()[-200:]}")
        return [[int(w) for w in line.split()] for line in done.stdout.splitlines()]


class Inside:
    """A sandbox with a policy that lets it reach one port of one name, and the client in it."""

    def __init__(self, bench, daemon, port, **more):
        self.daemon = daemon
        self.program = f"/bench/{os.path.basename(bench.peer)}"
        where = bench.temp / "inside"
        where.mkdir(exist_ok=True)
        if not (where / os.path.basename(bench.peer)).exists():
            os.link(bench.peer, where / os.path.basename(bench.peer))
        self.id = daemon.create(network=policy(port),
                                binds=[{"source": str(where), "target": "/bench", "read_only": True}],
                                limits={"cpus": 2, "memory": 4 << 30, "open_files": 20000, "pids": 64,
                                        "connections": IDLE + 1000}, **more)["id"]

    def __call__(self, *words):
        said = self.daemon.run(self.id, self.program, *map(str, words), timeout="300s")
        if said["outcome"]["exit_code"] != 0:
            raise RuntimeError(f"{words[0]}, inside: {said['stderr'].strip()[-200:]} {said['outcome']}")
        return [[int(w) for w in line.split()] for line in said["stdout"].splitlines()]


def policy(port):
    """Bytes of any kind for the plain server; for TLS the rule of the broker decides."""
    return {"default": "deny",
            "rules": [{"action": "allow", "cidr": "127.0.0.1/32", "ports": [port], "protocol": "tcp"},
                      {"action": "allow", "domain": NAME, "ports": [port], "protocol": "tcp"}]}


def place(daemon, cpu):
    subprocess.run(["taskset", "-a", "-p", "-c", str(cpu), str(daemon.children()["brig-egress"])], check=True,
                   capture_output=True)


def in_turns(turns, *functions):
    """Each once per turn, in an order that changes."""
    for i in range(turns):
        for function in functions if i % 2 == 0 else reversed(functions):
            function()


def us(lines):
    return [ns / 1000 for ns, in lines]


# ---- Groups ---------------------------------------------------------------------------------------------------------


def setup(bench):
    """Connect, a byte there, a byte back."""
    values = {name: [] for name in ("direct", "gate", "names")}
    daemon, peer = bench.serve_gate(), None
    try:
        peer = Peer(bench.peer, "serve")
        inside = Inside(bench, daemon, peer.port)

        def of(name, call, *words):
            return lambda: values[name].extend(us(call(*words)))

        in_turns(max(2, bench.runs // 10),
                 of("direct", bench.outside, "setup", PEER_CPU, "127.0.0.1", peer.port, BLOCK),
                 of("gate", inside, "setup", PEER_CPU, NAME, peer.port, BLOCK),
                 of("names", inside, "resolve", PEER_CPU, NAME, BLOCK))
    finally:
        closing(peer, daemon)
    direct = row("gate: set-up, direct", "us", values["direct"])
    return [added(row("gate: set-up", "us", values["gate"]), 300, direct), direct,
            row("gate: question", "us", values["names"])]


def bulk(bench):
    """One connection, both directions, brig-egress on the peers' CPU and on its own."""
    speed = {(way, where): [] for way in ("down", "up") for where in ("shared", "own", "direct")}
    ms, turns = (300, 2) if bench.quick else (BULK_MS, BULK_TURNS)
    daemon, peer = bench.serve_gate(), None
    try:
        peer = Peer(bench.peer, "serve")
        inside = Inside(bench, daemon, peer.port)

        def of(way, where):
            def once():
                place(daemon, PEER_CPU if where == "shared" else GATE_CPU)
                call, host = (bench.outside, "127.0.0.1") if where == "direct" else (inside, NAME)
                count, ns = call(way, PEER_CPU, host, peer.port, ms, BULK_BYTES)[0]
                speed[way, where].append(count * 1000 / ns)
            return once

        in_turns(turns, *(of(*key) for key in speed))
    finally:
        closing(peer, daemon)
    rows = []
    for way in ("down", "up"):
        direct = row(f"gate: {way}, direct", "MB/s", speed[way, "direct"], best_is_high=True)
        for where, least in (("shared", 0.4), ("own", 0.55)):
            rows.append(bound(row(f"gate: {way}, {where} CPU", "MB/s", speed[way, where], best_is_high=True),
                              at_least=least, against=direct))
        rows.append(direct)
    return rows


def metric(daemon, name):
    return next(int(line.split()[1]) for line in daemon.ask("GET", "/metrics").body.decode().splitlines()
                if line.startswith(f"brig_{name} "))


def rate(bench):
    """Short connections from several processes."""
    speed = {"direct": [], "gate": []}
    daemon, peer = bench.serve_gate(), None
    ms, turns = (500, 2) if bench.quick else (3000, 5)
    try:
        peer = Peer(bench.peer, "serve")
        inside = Inside(bench, daemon, peer.port)

        def of(name, call, host):
            def once():
                count, ns = call("rate", PEER_CPU, host, peer.port, ms, PROCESSES)[0]
                speed[name].append(count * 1e9 / ns)
                time.sleep(0.2)  # the log of what was decided has been written
            return once

        in_turns(turns, of("direct", bench.outside, "127.0.0.1"), of("gate", inside, NAME))
        lost = 100 * metric(daemon, "audit_dropped_total") / (2 * metric(daemon, "network_connections_allowed_total"))
    finally:
        closing(peer, daemon)
    return [bound(row("gate: connections", "ops/s", speed["gate"], best_is_high=True), at_least=5000),
            row("gate: connections, direct", "ops/s", speed["direct"], best_is_high=True),
            row("gate: not in the log", "%", [lost])]


def pss_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) / 1024


def descriptors_for(pid, wanted):
    """How many connections it may hold, two descriptors each, of those wanted."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as f:
        limit = next(line.split()[3] for line in f if line.startswith("Max open files"))
    return wanted if limit == "unlimited" else min(wanted, (int(limit) - 200) // 2)


def idle(bench):
    """Open connections that carry nothing."""
    daemon, peer = bench.serve_gate(), None
    try:
        egress = daemon.children()["brig-egress"]
        n = descriptors_for(egress, 500 if bench.quick else IDLE)
        peer = Peer(bench.peer, "serve")
        inside = Inside(bench, daemon, peer.port)
        inside("setup", PEER_CPU, NAME, peer.port, 5)
        before = pss_mib(egress)
        answer = daemon.ask("POST", f"/v1/sandboxes/{inside.id}/processes", {
            "argv": [inside.program, "idle", str(PEER_CPU), NAME, str(peer.port), str(n), "4"], "stdin_open": True,
            "timeout": "300s"})
        if answer.status != 201:
            raise RuntimeError(f"idle: {answer}")
        output = f"/v1/sandboxes/{inside.id}/processes/{answer.json['number']}/output?follow=0"
        end = time.monotonic() + 120
        while f"{n} open".encode() not in (said := daemon.ask("GET", output,
                                                              headers={"Accept": "application/octet-stream"}).body):
            if time.monotonic() > end or b"gate_peer:" in said:
                raise RuntimeError(f"{n} connections: {said[-200:]!r}")
            time.sleep(0.2)
        memory = pss_mib(egress)
        if len(os.listdir(f"/proc/{egress}/fd")) < 2 * n:
            raise RuntimeError(f"{n} connections: they are not open")
    finally:
        closing(peer, daemon)
    return [bound(row("gate: idle", "MiB", [memory]), at_most=200), row("gate: idle, before", "MiB", [before]),
            row("gate: idle connections", "open", [n])]


def broker(bench):
    """HTTPS requests whose header is put in on the way, by brig-egress and by mitmproxy."""
    ways = ("close", "keep")
    values = {(who, way): [] for who in ("gate", "mitmproxy", "direct") for way in ways}
    n = 10 if bench.quick else BLOCK
    certificate = bench.authority.certificate(NAME, "127.0.0.1")
    peer = Peer(bench.peer, "serve-tls", *certificate, f"Bearer {TOKEN}")
    daemon, mitm = None, None
    try:
        try:
            mitm = peers.Mitmproxy(bench.temp, GATE_CPU, peer.port, bench.authority.ca,
                                   f"/~q/Authorization/Bearer {TOKEN}")
        except peers.Missing as e:
            bench.skipped.append({"name": "mitmproxy", "reason": str(e)})
        daemon = bench.serve_gate()
        rule = {"hosts": [f"{NAME}:{peer.port}"], "header": "Authorization", "format": "Bearer %s"}
        answer = daemon.ask("PUT", "/v1/secrets/TOKEN", {"value": TOKEN, "broker": rule})
        if answer.status // 100 != 2:
            raise RuntimeError(f"the secret: {answer}")
        inside = Inside(bench, daemon, peer.port, secrets=[{"name": "TOKEN"}])

        def of(who, way):
            def once():
                if who == "gate":
                    said = inside("https", PEER_CPU, NAME, peer.port, "/etc/ssl/certs/ca-certificates.crt", "$TOKEN", n,
                                  way)
                elif who == "direct":
                    said = bench.outside("https", PEER_CPU, "127.0.0.1", peer.port, bench.authority.ca, TOKEN, n, way,
                                         NAME)
                else:
                    said = bench.outside("https", PEER_CPU, "127.0.0.1", mitm.port, mitm.authority, "a-placeholder", n,
                                         way, NAME)
                values[who, way].extend(us(said))
            return once

        in_turns(max(1, bench.runs // 20), *(of(*key) for key in values if mitm or key[0] != "mitmproxy"))
    finally:
        closing(mitm, peer, daemon)
    rows = []
    for way, words in (("close", "request"), ("keep", "request, kept")):
        ours = row(f"gate: {words}", "us", values["gate", way])
        if mitm:
            theirs = row(f"gate: {words}, mitmproxy", "us", values["mitmproxy", way])
            rows.append(theirs)
            bound(ours, at_least=3, against=theirs, inverse=True)
        rows += [ours, row(f"gate: {words}, direct", "us", values["direct", way])]
    return rows


def attach(bench):
    """Creation from a full pool, with a policy and without, in turns."""
    values = {"with": [], "without": []}
    daemon, client = bench.serve_gate(pool=64, ca_bundle=False), None
    bodies = {"with": bench.temp / "with.json", "without": bench.temp / "without.json"}
    bodies["with"].write_text(json.dumps({"network": policy(443)}), encoding="ascii")
    bodies["without"].write_text("{}", encoding="ascii")
    try:
        client = Client(bench.program, daemon)

        def of(name, counted=True):
            def once():
                created = int(client.words("birth", bodies[name])[0]) / 1000
                if counted:
                    values[name].append(created)
            return once

        for _ in range(max(2, bench.runs // ATTACH_BLOCK)):
            time.sleep(0.5)  # the pool is full again
            in_turns(1, of("without", False), of("with", False))
            in_turns(ATTACH_BLOCK, of("without"), of("with"))
    finally:
        closing(client, daemon)
    without = row("gate: create, no network", "us", values["without"])
    return [added(row("gate: create", "us", values["with"]), 300, without), without]


GROUPS = {"setup": setup, "bulk": bulk, "rate": rate, "idle": idle, "broker": broker, "attach": attach}


def measure(build, runs=200, only=None, quick=False):
    return service.run_groups(Bench(build, 20 if quick else runs, quick), GROUPS, only)


if __name__ == "__main__":
    sys.exit(service.part_main("gate", GROUPS, measure))
