# SPDX-License-Identifier: Apache-2.0
"""Cases that need the service: what one organisation can take of the processes that all share (S04), and trees that
change under every process of ours that works on them (S05). Scenarios, as in scenarios.py."""

import contextlib
import http.client
import io
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import time

from harness import drop_to, read_file

PATIENCE = 60
CONNECTIONS = 24
CONFIG = f"[server]\nmax_connections = {CONNECTIONS}\nmax_connections_per_peer = {CONNECTIONS}\n"
FULL = "the organisation has its share of the service's connections open"
# What the service may keep of output that nobody reads, all of it and its own growth: 16 processes have rings.
GROWTH = 96 << 20


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Served:
    """`brig serve` of the mode's user inside the outer bound, until the end of the block."""

    def __init__(self, ctx):
        self.ctx, self.dir = ctx, f"{ctx.mode.dir}/serve-{secrets.token_hex(4)}"
        os.mkdir(self.dir)
        os.chmod(self.dir, 0o755)  # brigd of root's service is somebody else
        os.chown(self.dir, ctx.mode.uid, ctx.mode.gid)
        with open(f"{self.dir}/config.toml", "w", encoding="utf-8") as f:
            f.write(CONFIG)
        os.chmod(f"{self.dir}/config.toml", 0o644)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.socket = f"{self.dir}/brig.sock"

    def __enter__(self):
        env = self.ctx.mode.caller_env(self.ctx.h.canaries.value("environment"))
        env |= {"BRIG_CONFIG": f"{self.dir}/config.toml", "BRIG_LISTEN": f"127.0.0.1:{self.port}",
                "BRIG_SOCKET": self.socket, "BRIG_STATE_DIR": f"{self.dir}/state", "BRIG_RUN_DIR": f"{self.dir}/run",
                "BRIG_CACHE_DIR": f"{self.dir}/cache"}

        def prepare():
            self.ctx.outer.join()
            drop_to(self.ctx.mode.uid, self.ctx.mode.gid)

        with open(f"{self.dir}/log", "wb") as log:
            self.process = subprocess.Popen([self.ctx.h.brig, "serve"], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=env, cwd="/", preexec_fn=prepare, start_new_session=True)
        deadline = time.monotonic() + PATIENCE * max(1, self.ctx.scale)
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/readyz")[0] == 200:
                    return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = read_file(f"{self.dir}/log")[-500:]
                self.__exit__()
                raise RuntimeError(f"the service did not start: {log}")
            time.sleep(0.02)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with open(f"{self.dir}/log", "rb") as f:
            self.ctx.look_for_canaries(f.read())
        shutil.rmtree(self.dir, ignore_errors=True)

    def connection(self, key=None):
        """With a key by TCP, as tenants come; else the administrator's socket."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE) if key else Unix(self.socket)

    def send(self, connection, method, path, body=None, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if body is not None and not isinstance(body, bytes):
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def ask(self, method, path, body=None, key=None):
        """(status, bytes)."""
        c = self.connection(key)
        try:
            r = self.send(c, method, path, body, key)
            answer = r.status, r.read()
        finally:
            c.close()
        self.ctx.look_for_canaries(answer[1])
        return answer

    def made(self, path, body, key=None):
        status, text = self.ask("POST", path, body, key)
        if status != 201:
            raise RuntimeError(f"POST {path}: {status} {text[:300]!r}")
        return json.loads(text)

    def org(self, name):
        org = self.made("/v1/orgs", {"name": name})["id"]
        return self.made("/v1/keys", {"org": org, "role": "admin"})["key"]

    def daemons(self):
        """Memory of the processes that all organisations share."""
        pids = read_file(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()
        texts = [read_file(f"/proc/{pid}/status") for pid in [str(self.process.pid), *pids]]
        return sum(int(m.group(1)) * 1024 for m in (re.search(r"VmRSS:\s+(\d+)", t) for t in texts) if m)


# --- S04 --------------------------------------------------------------------------------------------------------------


def _honest(served, key, label):
    """Another organisation still gets a sandbox, a program and its output."""
    sid = served.made("/v1/sandboxes", {}, key)["id"]
    status, text = served.ask("POST", f"/v1/sandboxes/{sid}/run", {"argv": ["echo", "served"]}, key)
    served.ask("DELETE", f"/v1/sandboxes/{sid}", key=key)
    return [] if status == 200 and json.loads(text)["stdout"] == "served\n" else [f"{label}: {status} {text[:200]!r}"]


def _flood(served, key, modest, held):
    """Sixteen programs write as fast as they can; half have a reader that does not read."""
    sid, problems = served.made("/v1/sandboxes", {}, key)["id"], _honest(served, modest, "before the flood")
    before = served.daemons()
    for i in range(16):
        number = served.made(f"/v1/sandboxes/{sid}/processes", {"argv": ["sh", "-c", "exec yes"]}, key)["number"]
        if i < 8:
            held.append(served.connection(key))
            status = served.send(held[-1], "GET", f"/v1/sandboxes/{sid}/processes/{number}/output", key=key).status
            problems += [f"output: {status}"] if status != 200 else []
    for _ in range(3):
        problems += _honest(served, modest, "during the flood")
    grown = served.daemons() - before
    if grown > GROWTH:
        problems.append(f"the shared processes grew by {grown >> 20} MiB for output that nobody reads")
    served.ask("DELETE", f"/v1/sandboxes/{sid}", key=key)
    return problems


def _connections(served, key, modest, held):
    """Streams until one is refused: half of all, whatever number of keys."""
    more, problems, streams = served.made("/v1/keys", {"role": "user"}, key)["key"], [], 0
    while streams <= CONNECTIONS:
        held.append(served.connection(key))
        r = served.send(held[-1], "GET", "/v1/events", key=(key, more)[streams % 2])
        if r.status != 200:
            text = r.read().decode()
            if (r.status, FULL in text, r.headers["Retry-After"]) != (429, True, "1"):
                problems.append(f"refused with {r.status} {text[:200]}")
            break
        streams += 1
    if streams not in (CONNECTIONS // 2 - 2, CONNECTIONS // 2 - 1, CONNECTIONS // 2):
        problems.append(f"one organisation had {streams} of {CONNECTIONS} connections")
    status, text = served.ask("GET", "/v1/sandboxes")
    if status != 200:
        problems.append(f"the administrator's socket: {status} {text[:200]!r}")
    return problems + _honest(served, modest, "with the connections taken")


def shared_process(ctx):
    with Served(ctx) as served, contextlib.ExitStack() as stack:
        greedy, modest, held = served.org("greedy"), served.org("modest"), []
        stack.callback(lambda: [c.close() for c in held])
        problems = _flood(served, greedy, modest, held)
        while held:
            held.pop().close()
        return problems + _connections(served, greedy, modest, held)


# --- S05 --------------------------------------------------------------------------------------------------------------

ROUNDS = 60
REFUSALS = ("File not found", "a symlink is in the way", "it is no regular file", "it exists already",
            "a part of the path is not a directory")  # the last: the link was there when the directory was opened


def _state(where):
    return {e.name: (e.stat(follow_symlinks=False).st_mode, e.stat(follow_symlinks=False).st_mtime_ns,
                     read_file(e.path)) for e in os.scandir(where)} | {"": os.stat(where).st_mode}


def _archive(name):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(f"swap/{name}")
        info.size, info.mode = 4, 0o666
        tar.addfile(info, io.BytesIO(b"EVIL"))
    return out.getvalue()


def live_tree(ctx):
    """A directory of a sandbox is a link to a directory of the service's own user every other moment. Every operation
    on files meets both, and neither reads, lists, writes, removes nor changes anything there."""
    target, name = os.path.split(ctx.mode.canary_path)
    before, met, problems = _state(target), {}, []
    with Served(ctx) as served:
        sid = served.made("/v1/sandboxes", {})["id"]
        files = f"/v1/sandboxes/{sid}/files"
        with open(ctx.h.probe_src, "rb") as f:
            served.ask("PUT", f"{files}?path=probe&mode=755", f.read())
        served.made(f"/v1/sandboxes/{sid}/processes", {"argv": ["/workspace/probe", "S05-swap", target, name]})
        deadline = time.monotonic() + PATIENCE * max(1, ctx.scale)
        while b"READY" not in served.ask("GET", f"/v1/sandboxes/{sid}/logs")[1]:
            if time.monotonic() > deadline:
                return [f"the swapper did not start: {served.ask('GET', f'/v1/sandboxes/{sid}/logs')[1][-300:]!r}"]
        tries = (("GET", f"{files}?path=swap/{name}", None), ("GET", f"{files}/stat?path=swap/{name}&follow=1", None),
                 ("GET", f"{files}/list?path=.&depth=5", None), ("GET", f"{files}/tar?path=swap", None),
                 ("PUT", f"{files}?path=swap/{name}&parents=0", b"EVIL"),
                 ("PUT", f"{files}/tar?path=.", _archive(name)),
                 ("POST", f"{files}/mkdir", {"path": "swap/evil", "mode": "777"}),
                 ("POST", f"{files}/move", {"from": f"swap/{name}", "to": "taken"}),
                 ("DELETE", f"{files}?path=swap/{name}", None), ("DELETE", f"{files}?path=swap/evil&recursive=1", None))
        for _ in range(ROUNDS):
            for method, path, body in tries:
                status, text = served.ask(method, path, body)
                met.setdefault((method, path.removeprefix(files)), set()).add(status)
                if status >= 400 and json.loads(text)["error"]["message"].split(":")[0] not in REFUSALS:
                    problems.append(f"{method} {path}: {status} {text!r}")
                if status == 200 and path.endswith(f"?path=swap/{name}") and text not in (b"mine", b"EVIL"):
                    problems.append(f"{method} {path}: {text!r}")
        served.ask("DELETE", f"/v1/sandboxes/{sid}")  # the whole tree, while the program still swaps
    if not any(len(got) > 1 for got in met.values()):
        problems.append(f"the swap was not met: {met}")
    if _state(target) != before:
        problems.append(f"{target} changed: {before} is {_state(target)}")
    return problems[:12]
