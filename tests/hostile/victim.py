#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A sandbox measures its own latency while its neighbour runs the R group.

For each kind of trouble: idle, under attack, idle again. Held when the victim's p99 stays under twice its own idle p99;
where the two idle runs already differ by a factor of two the machine is too noisy for that, and p50 must stay under 1.5
times the idle p50. Run it alone.

  victim.py --brig build/brig [--probe build/hostile-probe] [--mode root,rootless2] [--seconds 3] [--only cpu,fork]
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import Context, Harness, Skip, build_probe

# kind -> flags of the attacker's sandbox. One CPU each: the machine has at least two, or the test says so.
STORMS = {
    "fork": ("--pids", "64"),
    "memory": ("-m", "64m"),
    "disk": ("-m", "256m", "--disk", "64m"),
    "inode": ("-m", "256m", "--inodes", "8192"),
    "fd": ("--open-files", "1024"),
    "cpu": ("--pids", "64"),
    "cache": ("-m", "64m"),
    "output": ("--output", "1m"),
    "signal": ("-m", "64m"),
}


def measure(ctx, seconds):
    run = ctx.run(ctx.probe("victim", f"{seconds:g}"), ["-c", "1", "--timeout", ctx.seconds(seconds * 4 + 30)])
    for line in run.out.splitlines():
        if line.startswith(b"{"):
            return json.loads(line)
    raise RuntimeError(f"the victim did not report: {run.describe()}")


class Attack:
    """One attacker after the other until told to stop; a bomb that was killed is replaced."""

    def __init__(self, ctx, kind, seconds):
        self.ctx, self.kind, self.seconds = ctx, kind, seconds
        self.stop, self.runs, self.current, self.broken = threading.Event(), 0, None, ""
        self.thread = threading.Thread(target=self.loop, daemon=True)

    def loop(self):
        while not self.stop.is_set():
            flags = [*STORMS[self.kind], "-c", "1", "--timeout", self.ctx.seconds(self.seconds * 4 + 30)]
            self.current = self.ctx.start(self.ctx.probe("storm", self.kind), flags, ready=False)
            self.runs += 1
            while self.current.proc.poll() is None and not self.stop.is_set():
                with contextlib.suppress(BlockingIOError, ValueError):
                    os.set_blocking(self.current.proc.stdout.fileno(), False)
                    while self.current.proc.stdout.read(1 << 20):
                        pass
                with contextlib.suppress(BlockingIOError, ValueError):
                    if self.kind == "output":  # elsewhere stderr is short, and worth keeping
                        os.set_blocking(self.current.proc.stderr.fileno(), False)
                        self.current.proc.stderr.read(1 << 20)
                time.sleep(0.02)
            if self.current.proc.poll() == 125:
                self.broken = self.current.error().decode("utf-8", "replace").strip() or "status 125"
                self.stop.set()
            self.current.stop()
            self.stop.wait(0.05)

    def __enter__(self):
        self.thread.start()
        time.sleep(0.5)  # clock: let it get going; nothing is asserted about this time
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(60)


def judge(idle, loaded, again):
    base99, base50 = max(idle["p99_us"], again["p99_us"]), max(idle["p50_us"], again["p50_us"])
    noisy = base99 >= 2 * min(idle["p99_us"], again["p99_us"])
    if noisy:
        return (loaded["p50_us"] < 1.5 * base50, f"p50 {loaded['p50_us']:.0f} us against {base50:.0f} idle (idle runs "
                f"differ: p99 {idle['p99_us']:.0f} and {again['p99_us']:.0f})")
    return (loaded["p99_us"] < 2 * base99,
            f"p99 {loaded['p99_us']:.0f} us against {base99:.0f} idle; p50 {loaded['p50_us']:.0f} against {base50:.0f}")


def others_busy():
    """The share of the CPUs that somebody else uses, while nothing of ours runs."""

    def sample():
        with open("/proc/stat", encoding="ascii") as f:
            ticks = [int(n) for n in f.readline().split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    total, idle = sample()
    time.sleep(1)  # clock: the load of a second is what is measured
    total_after, idle_after = sample()
    return 1 - (idle_after - idle) / max(total_after - total, 1)


def one(harness, mode, kind, seconds, attempts):
    """A machine that is shared with others may spoil a measurement; it cannot spoil all of them in our favour."""
    text = ""
    for attempt in range(attempts):
        ctx = Context(harness, mode)
        try:
            idle = measure(ctx, seconds)
            with Attack(ctx, kind, seconds) as attack:
                loaded = measure(ctx, seconds)
            again = measure(ctx, seconds)
        finally:
            left = ctx.close()
        if attack.broken:
            return False, f"the attacker did not start: {attack.broken}"
        good, text = judge(idle, loaded, again)
        text += f"; {attack.runs} attackers, attempt {attempt + 1}"
        if left:
            return False, f"left behind: {'; '.join(left)}"
        if good:
            return True, text
    return False, text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brig", required=True)
    p.add_argument("--probe")
    p.add_argument("--mode", default="root,rootless2")
    p.add_argument("--only", default=",".join(STORMS))
    p.add_argument("--seconds", type=float, default=3.0)
    p.add_argument("--attempts", type=int, default=3)
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--report")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.umask(0o022)
    passed = failed = skipped = 0
    rows = ["| mode | neighbour does | victim |", "|---|---|---|"]
    built = None
    try:
        probe = args.probe or (built := build_probe(f"/var/tmp/hostile-probe-{os.getpid()}"))
        with Harness(os.path.abspath(args.brig), None, probe, args.scale) as harness:
            for name in args.mode.split(","):
                try:
                    mode = harness.add_mode(name)
                    if "cpu" not in mode.features:
                        raise Skip("cpu cgroup")
                    if (os.cpu_count() or 1) < 2:
                        raise Skip("two processors")
                except Skip as skip:
                    skipped += 1
                    print(f"{name}: skipped: {skip}", flush=True)
                    continue
                for kind in args.only.split(","):
                    try:
                        good, text = one(harness, mode, kind, args.seconds, args.attempts)
                    except Exception as e:
                        good, text = False, f"{type(e).__name__}: {e}"
                    # Nothing can be said of a neighbour where strangers take the CPUs as well.
                    if not good and text.startswith("p") and (busy := others_busy()) > 0.2:
                        skipped += 1
                        print(f"skip {name} {kind}: processors of our own (others use {busy:.0%} of them): {text}",
                              flush=True)
                        continue
                    passed, failed = passed + good, failed + (not good)
                    rows.append(f"| {name} | {kind} | {'held' if good else '**disturbed**'}: {text} |")
                    print(f"{name} {kind}: {'ok' if good else 'FAILED'}: {text}", flush=True)
    finally:
        if built:
            os.unlink(built)
    if args.report:
        with open(args.report, "w", encoding="utf-8") as f:
            f.write("\n".join(rows) + "\n")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
