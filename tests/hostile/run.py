#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the hostile suite: every case as root, as a plain user with one id, as a plain user with two ids and delegated
cgroups, and with the layers that stop it switched off.

  run.py --brig build/brig --brig-test build/brig-test [--probe build/hostile-probe] [--report hostile.md]
         [--only 'F*'] [--mode root,rootless1,rootless2,off] [--repeat N] [--scale N] [--core-pattern]

Ends with `N passed, N failed, N skipped` alone on a line; status 1 when something failed.
"""

import argparse
import fnmatch
import os
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scenarios
from cases import ALL_MODES, CASES, INSIDE_MODES, LATER
from harness import Context, Harness, Skip, build_probe, root_capabilities

TITLES = {"root": "root", "rootless1": "rootless, one id", "rootless2": "rootless, two ids", "inside": "root inside",
          "inside2": "root inside, rootless", "off": "bites"}


def scaled(flags, ctx):
    """"@30" is thirty seconds on a machine of normal speed."""
    return [ctx.seconds(float(f[1:])) if isinstance(f, str) and f.startswith("@") else str(f) for f in flags]


def judge_plain(case, ctx, run):
    """A run of one probe against its expectation."""
    want = case.expectation(ctx.mode.name)
    problems = [] if run.receipt is not None else [f"no receipt: {run.describe()}"]
    if run.hung:
        problems.append("hung")
    problems += run.breaches()
    if run.receipt is None:
        return problems
    if not case.command and run.cause == "exited" and run.outcome.get("exit_code") == 2 and not run.lines(
            "ok") and not problems:
        raise Skip("; ".join(line.split(": ", 1)[-1] for line in run.lines("untried")) or "the probe could not try")
    if run.cause not in want.cause:
        problems.append(f"expected {'|'.join(want.cause)}: {run.describe()}")
    if want.exit_code is not None and run.outcome.get("exit_code") != want.exit_code and not run.breaches():
        problems.append(f"expected exit {want.exit_code}: {run.describe()}")
    if want.status is not None and run.rc != want.status:
        problems.append(f"expected status {want.status}: {run.describe()}")
    if want.signal is not None and run.signal != want.signal:
        problems.append(f"expected signal {want.signal}: {run.describe()}")
    hit = set(run.outcome.get("limits_hit") or [])
    if not set(want.limits_hit) <= hit:
        problems.append(f"limits_hit {sorted(hit)} lacks {sorted(set(want.limits_hit) - hit)}")
    if want.lines and not run.lines("ok"):
        problems.append(f"the probe did not report: {run.describe()}")
    return problems


def run_case(case, ctx, notes):
    """Problems of one case in one mode."""
    if case.scenario:
        problems = getattr(scenarios, case.scenario)(ctx)
    else:
        off = bool(ctx.off) or ctx.lifted
        args = (case.off_probe or case.argv) if off else case.argv
        flags = case.off_flags if off and case.off_flags is not None else case.flags
        command = list(case.command) or ctx.probe(*args)
        env = ctx.h.probe_env(ctx.mode, ctx.off, dict(case.env))
        run = ctx.run(command, scaled(flags, ctx), env)
        if off:
            problems = run.breaches(real=True)
            if run.cause in case.off_causes:
                problems.append(run.cause)
            if not problems:
                notes.append(run.describe())
        else:
            problems = judge_plain(case, ctx, run)
            notes += run.lines("untried")
    seen = sorted(ctx.canaries_seen)
    return problems + [f"canary seen: {name}" for name in seen]


def held(case, harness, mode, notes):
    missing = [n for n in case.needs if n not in mode.features]
    if missing:
        raise Skip(f"{', '.join(missing)} (for {mode.name})")
    ctx = Context(harness, mode)
    ctx.lifted = False
    problems = []
    try:
        problems = run_case(case, ctx, notes)
    finally:
        left = ctx.close()
    return problems + left


def bites(case, harness, modes, notes):
    """With the layers off the attack must be seen to succeed."""
    if case.off_needs_cap is not None and not root_capabilities() >> case.off_needs_cap & 1:
        raise Skip(f"capability {case.off_needs_cap} of root")
    name = case.off_mode if case.off_mode in modes else next(iter(modes))
    if case.off and not harness.brig_test:
        raise Skip("the test build of brig (--brig-test)")
    ctx = Context(harness, modes[name], case.off)
    ctx.lifted = not case.off
    try:
        seen = run_case(case, ctx, notes)
    finally:
        ctx.close()
    if seen:
        return []
    return [f"did not bite with {','.join(case.off) or 'its limit lifted'}: {'; '.join(notes)}"]


class Report:
    def __init__(self, columns):
        self.columns, self.rows, self.failures, self.notes = columns, {}, [], {}
        self.count = {"ok": 0, "FAILED": 0, "skipped": 0}

    def add(self, case, column, word, detail):
        row = self.rows.setdefault(case.id, {"name": case.name})
        old = row.get(column)
        if old is None or old[0] == "ok":
            row[column] = (word, detail)
        self.count[word] += 1
        if word == "FAILED":
            self.failures.append((case.id, column, detail))

    def cell(self, row, column):
        word, detail = row.get(column, ("–", ""))
        if word == "skipped":
            return f"skipped: {detail}"
        if column == "off":
            return {"ok": "yes", "FAILED": "**no**"}.get(word, f"– ({detail})" if detail else word)
        return {"ok": "held", "FAILED": "**breached**"}.get(word, word)

    def markdown(self):
        head = ["case", "attack"] + [TITLES[c] for c in self.columns]
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for case_id, row in self.rows.items():
            cells = [case_id, row["name"]] + [self.cell(row, c) for c in self.columns]
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
        lines += ["", "Not here yet: " + "; ".join(f"{k}: {v}" for k, v in LATER.items()) + "."]
        return "\n".join(lines) + "\n"


def one(case, column, harness, modes, report, label):
    notes, start = [], time.monotonic()
    try:
        problems = bites(case, harness, modes, notes) if column == "off" else held(case, harness, modes[column], notes)
        word, detail = ("FAILED", "; ".join(problems)) if problems else ("ok", "")
    except Skip as skip:
        word, detail = "skipped", str(skip)
    except Exception as e:  # a broken harness is a failed test, not the end of the suite
        word, detail = "FAILED", f"{type(e).__name__}: {e}"
        if os.environ.get("HOSTILE_TRACE"):
            traceback.print_exc()
    report.add(case, column, word, detail)
    shown = detail if len(detail) < 400 else detail[:400] + " …"
    print(f"{label} {case.id:<14} {column:<10} {word:<8} {time.monotonic() - start:5.2f} s  {shown}", flush=True)
    if word == "ok":
        for note in notes[:3]:
            print(f"{'':>14}   {note}", flush=True)


def quick_inside(case, column):
    """Resources are counted for whoever uses them, and measured alone: once more as root inside takes long, and shows
    the same. So do the engine's own cases, as a plain user."""
    return not case.alone and (column == "inside" or case.id[0] in "FPU")


def plan(columns, pattern, whole):
    jobs = []
    for column in columns:
        for case in CASES:
            if not any(fnmatch.fnmatch(case.id, p) for p in pattern.split(",")):
                continue
            if column == "off" and case.off is None:
                continue
            if column != "off" and column not in case.modes:
                continue
            if column in INSIDE_MODES and not whole and not quick_inside(case, column):
                continue
            jobs.append((case, column))
    return jobs


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brig", required=True, help="the build people use")
    p.add_argument("--brig-test", help="the build with BRIG_TEST_OFF")
    p.add_argument("--probe", help="the static probe; built with cc when not given")
    p.add_argument("--only", default="*", help="case ids, shell patterns, comma-separated")
    p.add_argument("--mode", default="root,rootless1,rootless2,inside,inside2,off")
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--whole", action="store_true", help="every case as root inside, not only those that may differ")
    p.add_argument("--jobs", type=int, default=1, choices=[1], help="resource cases must run alone")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies every time limit (slow machines, emulation)")
    p.add_argument("--report", help="write the table to this file as markdown")
    p.add_argument("--core-pattern", action="store_true",
                   help="may set kernel.core_pattern of this machine for a moment")
    args = p.parse_args()
    if args.core_pattern:
        os.environ["HOSTILE_CORE_PATTERN"] = "1"
    return args


def check_readable(harness, mode):
    """The clone is often in a home directory others cannot enter."""
    ctx = Context(harness, mode)
    try:
        run = ctx.run(["/bin/true"], argv=[harness.brig, "version"], json_out=False)
        if run.rc != 0:
            raise Skip(f"a brig that {mode.name} can execute (install it to a world-readable directory): "
                       f"{run.raw_err[-200:]!r}")
    except PermissionError as e:
        raise Skip(f"a brig that {mode.name} can execute (install it to a world-readable directory)") from e
    finally:
        ctx.outer.destroy()


def main():
    args = arguments()
    columns = args.mode.split(",")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwind: the test user and the canaries go with us
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o022)
    brig = os.path.abspath(args.brig)
    brig_test = os.path.abspath(args.brig_test) if args.brig_test else None
    report = Report(columns)
    built = None
    try:
        probe = args.probe or (built := build_probe(f"/var/tmp/hostile-probe-{os.getpid()}"))
        with Harness(brig, brig_test, probe, args.scale) as harness:
            modes, absent = {}, {}
            wanted = [m for m in ALL_MODES + INSIDE_MODES if m in columns]
            if "off" in columns:
                wanted += [m for m in ("root", "rootless1") if m not in wanted]
            for name in wanted:
                try:
                    modes[name] = harness.add_mode(name)
                    check_readable(harness, modes[name])
                except Skip as skip:
                    modes.pop(name, None)
                    absent[name] = str(skip)
            jobs = plan(columns, args.only, args.whole) * args.repeat
            for i, (case, column) in enumerate(jobs, 1):
                label = f"[{i:>{len(str(len(jobs)))}}/{len(jobs)}]"
                if column != "off" and column not in modes:
                    report.add(case, column, "skipped", absent[column])
                elif not modes:
                    report.add(case, column, "skipped", "a mode to run in")
                else:
                    one(case, column, harness, modes, report, label)
            for case in CASES:  # so that the table says why a case has no run with layers off
                if "off" in columns and case.off is None and case.id in report.rows:
                    report.rows[case.id].setdefault("off", ("–", case.why))
    finally:
        if built:
            os.unlink(built)
    table = report.markdown()
    if args.report:
        with open(args.report, "w", encoding="utf-8") as f:
            f.write(table)
    print("\n" + table)
    for case_id, column, detail in report.failures:
        print(f"FAILED {case_id} ({column}): {detail}")
    print(f"{report.count['ok']} passed, {report.count['FAILED']} failed, {report.count['skipped']} skipped")
    return 1 if report.count["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
