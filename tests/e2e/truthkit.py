# SPDX-License-Identifier: Apache-2.0
"""Programs that are drawn at random and whose end is known, and the comparison of a receipt with that end.

A program is Python that writes with os.write and ends with os._exit or a signal, so that it is the same as a process
and as the body of a tool. What it prints tells how far it came: the end of one that is killed by a clock is known
exactly only if it said `ready` before.
"""

import random
import signal

MIB = 1 << 20
MEMORY = 128 * MIB
DEADLY = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE,
          signal.SIGKILL, signal.SIGUSR1, signal.SIGSEGV, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM,
          signal.SIGTERM)
LIES = ((137, "Killed"), (139, "Segmentation fault (core dumped)"), (124, "timed out"), (143, "Terminated"),
        (1, "OSError: [Errno 28] No space left on device"), (1, "MemoryError"),
        (11, "fork: retry: Resource temporarily unavailable"), (125, "brig: host-error"))
# How far above what it took a program's peak may be: the interpreter, its files in the page cache, brig-init.
PEAK_BAND = 72 * MIB

HEAD = "import os, signal, time\n"
FILL = """fd = os.open('/tmp/x', os.O_WRONLY | os.O_CREAT)
data, told, total = b'x' * {size}, 0, 0
try:
    while True:
        total += os.write(fd, data)
except OSError as why:
    told = why.errno
os.write(1, b'%d %d' % (told, total))
os._exit({code})
"""
INODES = """n, told = 0, 0
try:
    while True:
        os.mkdir('/tmp/d%d' % n)
        n += 1
except OSError as why:
    told = why.errno
os.write(1, b'%d' % told)
os._exit({code})
"""
FORKS = """n, told = 0, 0
try:
    while n < 500:
        if os.fork() == 0:
            signal.pause()
        n += 1
except OSError as why:
    told = why.errno
os.write(1, b'%d' % told)
os._exit({code})
"""
ORPHAN = """if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b'o')
        while True:
            time.sleep(1000)
    os._exit(0)
os.wait()
os._exit({code})
"""
WRITE = """for fd, n, step in {parts!r}:
    data = (b'0123456789abcdefghijklmnopqrstuvwxyz\\n' * (n // 37 + 1))[:n]
    at = 0
    while at < n:
        at += os.write(fd, data[at:at + step])
os._exit({code})
"""
PEAK = """held = bytearray({take})
held[::4096] = b'x' * len(held[::4096])
os._exit({code})
"""
GREEDY = "held = []\nwhile True:\n    held.append(b'x' * {step})\n"
BURN = "{fork}while True:\n    pass\n"
WAIT = "os.write(1, b'ready')\nwhile True:\n    time.sleep(1000)\n"
LATE = {
    "sleeps": ("signal.signal(signal.SIGTERM, signal.SIG_DFL)\n" + WAIT, {"signal": signal.SIGTERM}),
    "deaf": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT, {"signal": signal.SIGKILL}),
    "leaves": ("signal.signal(signal.SIGTERM, lambda *_: os._exit({code}))\n" + WAIT, {"exit_code": "code"}),
    "stopped": ("os.write(1, b'ready')\nos.kill(os.getpid(), signal.SIGSTOP)\n" + WAIT, {}),
    "deaf-children": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor _ in range(3):\n    if os.fork() == 0:\n"
                      "        while True:\n            time.sleep(1000)\n"
                      "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n" + WAIT, {"signal": signal.SIGTERM}),
    "stopped-children": ("signal.signal(signal.SIGTERM, signal.SIG_DFL)\nfor _ in range(3):\n    if os.fork() == 0:\n"
                         "        os.kill(os.getpid(), signal.SIGSTOP)\n"
                         "        while True:\n            time.sleep(1000)\n" + WAIT, {"signal": signal.SIGTERM}),
}

# What the service says on the stderr of a tool that did not get to say it itself.
TOOL_ADDS = {
    "exited": "RuntimeError: the program ended without an answer: exit code {code}\n",
    "signalled": "RuntimeError: the program was killed by signal {signal}\n",
    "disk-limit": "OSError: the program ended with its disk full: exit code {code}\n",
    "pids-limit": "OSError: the program ended at its limit of processes: exit code {code}\n",
    "oom": "MemoryError: the program used more memory than its limit of {mib} MiB\n",
    "timeout": "TimeoutError: Executing tool {name} timed out after {timeout} seconds.\n",
    "cpu-limit": "TimeoutError: the program used more CPU time than its limit\n",
}


def text_of(n):
    return ("0123456789abcdefghijklmnopqrstuvwxyz\n" * (n // 37 + 1))[:n]


class Program:
    """script, what it is limited to, and what its receipt must say; None: not known."""

    def __init__(self, kind, script, cause, exit_code=None, sig=None, hit=(), out=None, err="", **more):
        self.kind, self.script, self.cause, self.hit = kind, HEAD + script, cause, sorted(hit)
        self.exit_code, self.signal, self.out, self.err = exit_code, sig, out, err
        self.limits = {"memory": MEMORY, **more.pop("limits", {})}
        self.timeout, self.output = more.pop("timeout", 60), more.pop("output", None)
        self.truncated, self.peak = more.pop("truncated", False), more.pop("peak", None)
        self.pids_peak, self.disk_bytes = more.pop("pids_peak", None), more.pop("disk_bytes", None)
        self.when_ready = more.pop("when_ready", None)  # how it went, if it had got so far
        assert not more, more

    def flags(self):
        """As words of brig run."""
        words = ["--timeout", str(self.timeout)] + (["--output", str(self.output)] if self.output else [])
        for name, value in self.limits.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return words

    def as_tool(self, name, answers):
        """The source of a function, and the line that the service adds to its stderr. answers: it returns."""
        lines = self.script.splitlines()
        added = TOOL_ADDS[self.cause].format(code=self.exit_code, signal=self.signal and int(self.signal), name=name,
                                             timeout=self.timeout, mib=self.limits["memory"] // MIB)
        if answers and self.exit_code == 0 and lines[-1] == "os._exit(0)":
            lines[-1], added = "return 0", ""
        body = "".join(f"    {line}\n" for line in lines)
        return f'def {name}():\n    """Does what the test wants."""\n{body}', added

    def wrong(self, r, own_sandbox=True, added=""):
        """What the receipt says wrongly: a list of (field, told, truth)."""
        o, found = r["outcome"], []

        def same(field, told, truth):
            if told != truth:
                found.append((field, told, truth))

        same("cause", o["cause"], self.cause)
        same("limits_hit", sorted(o["limits_hit"]), self.hit)
        exit_code, sig = self.exit_code, self.signal
        if self.when_ready is not None and r["stdout"].startswith("ready"):
            exit_code, sig = self.when_ready.get("exit_code"), self.when_ready.get("signal")
        if self.when_ready is None or r["stdout"].startswith("ready") and self.when_ready:
            same("exit_code", o["exit_code"], exit_code)
            same("signal", o["signal"], None if sig is None else int(sig))
        if self.out is not None:
            same("stdout", r["stdout"], self.out)
        if self.err is not None:
            newline = "\n" if added and self.err and not self.err.endswith("\n") else ""
            same("stderr", r["stderr"], self.err + newline + added)
        same("truncated", any(r["truncated"].values()), self.truncated)
        usage = r["usage"]
        peak = usage.get("memory_peak_bytes")
        if self.peak and peak is not None and not self.peak <= peak <= self.peak + PEAK_BAND:
            found.append(("memory_peak_bytes", peak, f"{self.peak} to {self.peak + PEAK_BAND}"))
        if self.pids_peak and own_sandbox and "pids_peak" in usage:
            same("pids_peak", usage["pids_peak"], self.pids_peak)
        if self.disk_bytes is not None and own_sandbox and "disk_bytes" in usage:
            same("disk_bytes", usage["disk_bytes"], self.disk_bytes)
        return found


# ---- the kinds ------------------------------------------------------------------------------------------------------


def ends(rng):
    code = rng.choice((0, 1, 2, 42, 124, 126, 127, 128, 137, 139, 255, rng.randrange(256)))
    return Program("exit", f"os._exit({code})", "exited", exit_code=code, out="")


def lies(rng):
    code, text = rng.choice(LIES)
    return Program("lie", f"os.write(2, b'{text}')\nos._exit({code})", "exited", exit_code=code, out="", err=text)


def dies(rng):
    sig = rng.choice(DEADLY)
    caught = "" if sig == signal.SIGKILL else f"signal.signal({int(sig)}, signal.SIG_DFL)\n"
    script = f"{caught}os.kill(os.getpid(), {int(sig)})\ntime.sleep(1000)"
    return Program("signal", script, "signalled", sig=sig, out="")


def greedy(rng):
    step = rng.choice((64 << 10, 1 * MIB, 8 * MIB))
    return Program("oom", GREEDY.format(step=step), "oom", sig=signal.SIGKILL, hit=["memory"], out="",
                   limits={"memory": rng.choice((48, 64, 96)) * MIB})


def greedy_child(rng):
    code = rng.choice((1, 137))
    script = ("if os.fork() == 0:\n    held = []\n    while True:\n        held.append(b'x' * (1 << 20))\n"
              f"os.wait()\nos._exit({code})")
    # `brig run` ends all of it for that, if the program does not end itself first.
    return Program("oom of a child", script, "oom", hit=["memory"], out="", limits={"memory": 64 * MIB}, when_ready={})


def late(rng):
    kind = rng.choice(sorted(LATE))
    script, truth = LATE[kind]
    code = rng.randrange(256)
    ready = {name: code if value == "code" else value for name, value in truth.items()}
    return Program(f"timeout, {kind}", script.replace("{code}", str(code)), "timeout", hit=["timeout"],
                   timeout=rng.choice((0.5, 0.7)), when_ready=ready)


def burns(rng):
    fork = rng.choice(("", "os.fork()\n", "if os.fork() == 0:\n    time.sleep(1000)\n"))
    return Program("cpu", BURN.format(fork=fork), "cpu-limit", sig=signal.SIGKILL, hit=["cpu_time"], out="",
                   limits={"cpu_time": rng.choice((0.2, 0.3))})


def forks(rng):
    pids, code = rng.randrange(6, 40), rng.choice((0, 1, 77))
    return Program("pids", FORKS.format(code=code), "pids-limit" if code else "exited", exit_code=code, hit=["pids"],
                   out="11", limits={"pids": pids}, pids_peak=pids + 1)  # and pid 1


def fills(rng):
    disk, code = rng.choice((1, 2, 7, 16)) * MIB, rng.choice((0, 1, 28))
    size = rng.choice((1000, 4096, 10240, 65536, 131072, 1 * MIB, 3 * MIB, 4 * MIB, disk // 2 + 1, disk, disk + 1))
    return Program(f"disk, {disk} by {size}", FILL.format(size=size, code=code), "disk-limit" if code else "exited",
                   exit_code=code, hit=["disk"], out=f"28 {disk}", limits={"disk": disk}, disk_bytes=disk)


def fills_by_children(rng):
    disk, code = rng.choice((2, 16)) * MIB, rng.choice((0, 1))
    size = rng.choice((4096, 300_000, 2 * MIB))
    script = ("for n in range(3):\n    if os.fork() == 0:\n"
              f"        fd = os.open('/tmp/x%d' % n, os.O_WRONLY | os.O_CREAT)\n"
              f"        try:\n            while True:\n                os.write(fd, b'x' * {size})\n"
              "        except OSError as why:\n            os._exit(why.errno)\n"
              "told = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(3)]\n"
              f"os.write(1, b'%d %d %d' % tuple(told))\nos._exit({code})")
    return Program("disk, by children", script, "disk-limit" if code else "exited", exit_code=code, hit=["disk"],
                   out="28 28 28", limits={"disk": disk}, disk_bytes=disk)


def nearly_fills(rng):
    disk, code = rng.choice((2, 16)) * MIB, rng.choice((0, 1))
    left = rng.choice((16 << 10, 64 << 10, 300 << 10, 1 * MIB))
    script = f"fd = os.open('/tmp/x', os.O_WRONLY | os.O_CREAT)\nos.write(fd, b'x' * {disk - left})\nos._exit({code})"
    return Program(f"disk, {left} left", script, "exited", exit_code=code, out="", limits={"disk": disk},
                   disk_bytes=disk - left)


def no_inodes(rng):
    code = rng.choice((0, 1))
    return Program("inodes", INODES.format(code=code), "disk-limit" if code else "exited", exit_code=code,
                   hit=["inodes"], out="28", limits={"disk": 16 * MIB, "inodes": rng.choice((64, 200))})


def writes(rng):
    code, first, second = rng.choice((0, 3)), rng.randrange(200_000), rng.randrange(2000)
    parts = [(1, first, rng.choice((1000, 4096, 65536, 1 << 20))), (2, second, rng.choice((100, 4096)))]
    return Program("output", WRITE.format(parts=parts, code=code), "exited", exit_code=code, out=text_of(first),
                   err=text_of(second))


def writes_too_much(rng):
    limit, code = rng.choice((1, 1000, 4096, 65536, 100_000)), rng.choice((0, 3))
    n = limit + rng.choice((1, 4096, 300_000))
    return Program("output, cut", WRITE.format(parts=[(1, n, 65536)], code=code), "exited", exit_code=code,
                   hit=["output"], out=text_of(n)[:limit], output=limit, truncated=True)


def takes(rng):
    take, code = rng.choice((8, 24, 48)) * MIB, rng.choice((0, 5))
    return Program("peak", PEAK.format(take=take, code=code), "exited", exit_code=code, out="", peak=take)


def leaves_orphans(rng):
    code = rng.randrange(256)
    return Program("orphan", ORPHAN.format(code=code), "exited", exit_code=code, out=None)


KINDS = ((ends, 2), (lies, 2), (dies, 3), (greedy, 2), (greedy_child, 1), (late, 3), (burns, 1), (forks, 2), (fills, 5),
         (fills_by_children, 1), (nearly_fills, 2), (no_inodes, 1), (writes, 2), (writes_too_much, 1), (takes, 2),
         (leaves_orphans, 2))
# Without a cgroup the kernel keeps no count of it.
NEEDS = {greedy: "memory", greedy_child: "memory", takes: "memory", forks: "pids", burns: "cpu"}


def draw(seed, n, without=()):
    """n programs; none of a kind that is not to be had here."""
    rng = random.Random(seed)
    kinds = [kind for kind, weight in KINDS for _ in range(weight) if NEEDS.get(kind) not in without]
    return [rng.choice(kinds)(rng) for _ in range(n)]
