#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test driver behind `make test`.

What it runs, in this order, each kind found by its place in the tree (ids are those of tests/PROMISES.md):

  unit     BUILD/tests/unit/test_*          cmocka programs, read as TAP               unit:test_x.c:function
  replay   BUILD/tests/fuzz/replay_*        over tests/fuzz/corpus/NAME/*              replay:NAME
  lint     tests/lint/test_*.py             unittest, over the sources                 lint:test_x.py:Class.test
  e2e      tests/e2e/test_*.py              unittest, against an installed copy        e2e:test_x.py:Class.test
  hostile  tests/hostile/run.py             a driver of its own                        hostile:CASE
  compat   tests/compat/test_*.py           by `make test-compat` only                 compat:test_x.py:Class.test
  providers tests/providers/test_*.py       by `make test-providers` only              providers:test_x.py:Class.test
  repro    tests/repro/test_*.py            by `make test-reproducible` only           repro:test_x.py:Class.test

unit and replay begin at once, several side by side, since many of them wait.  The rest runs beside them in lanes, each
in a cgroup of its own, one test at a time in each, the longest modules first (tests/lanes.py).  Where there are no
lanes, the rest follows.

Every test has a time limit (a unittest class may set LIMIT_SECONDS) as for a quiet machine; SLACK times that long the
driver waits.  A test that hangs is killed with its process group, counted, and the rest of its module goes on.  All of
them together have no limit.  A driver that is told to stop (SIGTERM, SIGINT, SIGHUP) says what was not run, apart from
what failed.  However it ends, whatever it started ends too, and nothing it starts inherits a signal that its caller
ignored or blocked (tests/keeper.py).  e2e and hostile get a copy made by `meson install` in a world-readable directory,
since an unprivileged user may not be able to read the clone:

  BRIG               the installed brig                 BRIG_INSTALL_DIR   its prefix (bin, lib, libexec/brig; tests)
  BRIG_TEST_BUILD    brig with test knobs               BRIG_BUILD_DIR     the build directory
  BRIG_LIBEXEC_DIR   its helpers: the copy is not where its prefix says, so this must reach every brig
  BRIG_TEST_SPARES   what one service leaves for the next (tests/e2e/spares.py)
  BRIG_TEST_RUNSC    a runsc of today, where tools/runsc.sh has made one

The last line is `N passed, N failed, N skipped`; the one before it is `N not run` if not everything was.  The status is
0 only if nothing failed, something passed and everything was run.
"""

import argparse
import collections
import concurrent.futures
import glob
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import keeper
import lanes
import promises
from child import matches

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
KINDS = ("unit", "replay", "lint", "e2e", "long", "compat", "providers", "repro", "hostile")
ON_DEMAND = ("long", "compat", "providers", "repro")  # not by `make test`
LIMIT = {"unit": 60, "replay": 120, "lint": 60, "e2e": 60, "long": 24 * 3600, "compat": 120,
         "providers": 300, "repro": 300}
SLACK = 5  # a busy machine is no failure
QUIET_SECONDS = 120  # between two lines of a driver of its own
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
RUN = os.getpid()  # names what belongs to this run
RESULT_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")

Result = collections.namedtuple("Result", "id status seconds detail")  # status: pass, fail, skip


# ---- Processes ------------------------------------------------------------------------------------------------------


class Groups:
    """The process groups we started and have not reaped, so that an interrupt leaves none behind."""

    def __init__(self):
        self.lock, self.live, self.stopped = threading.RLock(), set(), None

    def popen(self, cmd, **kw):
        if self.stopped:
            raise Stopped(self.stopped)
        proc = subprocess.Popen(cmd, start_new_session=True, stdin=subprocess.DEVNULL, **kw)
        with self.lock:
            self.live.add(proc.pid)
        if self.stopped:
            self.kill_all()
        return proc

    def end(self, proc):
        """Kills what is left of the group (also of one that ended well: a stray child is not our guest) and reaps."""
        try:
            os.killpg(proc.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        proc.wait()
        with self.lock:
            self.live.discard(proc.pid)

    def kill_all(self):
        with self.lock:
            for pid in list(self.live):
                try:
                    os.killpg(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass

    def stop(self, why):
        """Nothing is started any more and what runs is killed; its results do not count."""
        self.stopped = why
        self.kill_all()


class Stopped(Exception):
    """The driver was told to stop; the text says by what."""


GROUPS = Groups()


def run_limited(cmd, env, limit):
    """(status or None when the time was up, text of stdout and stderr).  A stray child that holds the pipe does not
    hold us."""
    with tempfile.TemporaryFile() as out:
        proc = GROUPS.popen(cmd, env=env, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            status = proc.wait(timeout=limit * SLACK)
        except subprocess.TimeoutExpired:
            status = None
        GROUPS.end(proc)
        out.seek(0)
        return status, out.read().decode("utf-8", "replace")


# ---- The report -----------------------------------------------------------------------------------------------------


class Report:
    def __init__(self):
        self.start = time.monotonic()
        self.lock = threading.Lock()
        self.results, self.waiting = [], {}  # waiting: what is to be run and has not ended; a dict, for its order
        self.extra = [0, 0, 0]  # what tests/hostile/run.py counted itself
        self.extra_skips = []
        self.cases = set()  # (status, id) of its cases, in every mode
        self.costs = []  # (CPU seconds, seconds, name) of each module in a lane

    def plan(self, ids):
        self.waiting.update(dict.fromkeys(ids))

    def ended(self, name):
        with self.lock:
            if not GROUPS.stopped:
                self.waiting.pop(name, None)

    def add(self, result, show=True):
        with self.lock:
            if GROUPS.stopped and result.status == "fail" and result.id != "run":
                return  # it was killed, by us
            self.results.append(result)
            if show or result.status != "pass":
                self.line(f"{result.status:4} {result.id}  {result.seconds:.1f} s"
                          + (f"  ({result.detail})" if result.status == "skip" else ""))
            if result.status == "fail":
                for text in result.detail.strip().splitlines()[-60:]:
                    print("       | " + text)
                sys.stdout.flush()

    def aside(self, text):
        with self.lock:
            print("  " + text, flush=True)

    def line(self, text):
        print(f"[{time.monotonic() - self.start:4.0f} s] {text}", flush=True)

    def finish(self):
        """Prints what a reader wants at the end and returns the status."""
        by = {s: [r for r in self.results if r.status == s] for s in ("pass", "fail", "skip")}
        slow = sorted(self.results, key=lambda r: -r.seconds)[:10]
        print("\nslowest:")
        for r in slow:
            print(f"  {r.seconds:6.1f} s  {r.id}")
        if self.costs:
            print("\ndearest, in seconds of CPU and of time:")
            for cpu, seconds, name in sorted(self.costs, reverse=True)[:10]:
                print(f"  {cpu:6.1f} s  {seconds:6.1f} s  {name}")
        if by["skip"] or self.extra_skips:
            print("\nskipped:")
            for r in by["skip"]:
                print(f"  {r.id}: {r.detail or 'no reason given'}")
            for text in self.extra_skips:
                print(f"  {text}")
        if self.waiting:
            print(f"\nnot run, or not to the end ({GROUPS.stopped or 'the driver failed'}):")
            for name in self.waiting:
                print(f"  {name}")
        if by["fail"]:
            print("\nfailed:")
            for r in by["fail"]:
                print(f"  {r.id}: {(r.detail.strip().splitlines() or ['?'])[-1][:160]}")
        passed, failed, skipped = (len(by[s]) + n for s, n in zip(("pass", "fail", "skip"), self.extra))
        print(f"\n{time.monotonic() - self.start:.0f} s")
        if self.waiting:
            print(f"{len(self.waiting)} not run")
        print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
        return 0 if passed and not failed and not self.waiting else 1


# ---- unit: cmocka programs ------------------------------------------------------------------------------------------


def parse_tap(name, text, status, seconds):
    """The results in the TAP of one program.  cmocka gives no reason for a skip: the last line printed before it is
    taken."""
    results, planned, seen, talk = [], 0, 0, []
    for line in text.splitlines():
        plan = re.match(r"1\.\.(\d+)", line)
        hit = re.match(r"(not )?ok (\d+)(?: (# SKIP|-))?\s*(.*)", line)
        if plan:
            planned += int(plan.group(1))
        elif hit:
            seen += 1
            title = (hit.group(4).split() or ["?"])[0]
            skip = hit.group(3) == "# SKIP"  # before the rest: cmocka 1.1.5 writes `not ok 2 # SKIP name`
            bad = bool(hit.group(1)) and not skip
            what = "fail" if bad else "skip" if skip else "pass"
            detail = "\n".join(talk[-40:]) if bad else re.sub(r"^[# ]*(SKIP:?|skipped:?)?\s*", "",
                                                              talk[-1]) if what == "skip" and talk else ""
            results.append([f"unit:{name}.c:{title}", what, detail])
            if not bad:
                talk = []
        else:
            talk.append(line)
            # What cmocka says about a failure follows its `not ok`.
            if results and results[-1][1] == "fail":
                results[-1][2] += "\n" + line
    done = [Result(i, s, seconds / max(len(results), 1), d) for i, s, d in results]
    if status is None:
        done.append(Result(f"unit:{name}.c", "fail", seconds,
                           "\n".join(talk[-20:]) + f"\ntime limit after {seconds:.0f} s"))
    elif seen < planned or not planned or (status and not any(r.status == "fail" for r in done)):
        done.append(Result(f"unit:{name}.c", "fail", seconds,
                           "\n".join(talk[-40:]) + f"\nstatus {status}, {seen} of {planned} tests reported"))
    return done


def run_unit(path, env, patterns, report):
    start = time.monotonic()
    env = dict(env, CMOCKA_MESSAGE_OUTPUT="TAP")
    status, text = run_limited([str(path)], env, LIMIT["unit"])
    results = parse_tap(path.name, text, status, time.monotonic() - start)
    results = [r for r in results if matches(r.id, patterns) or r.id == f"unit:{path.name}.c"]
    if not results:
        return
    good = sum(r.status == "pass" for r in results)
    report.line(f"unit {path.name}: {good} of {len(results)}  {time.monotonic() - start:.1f} s")
    for r in results:
        report.add(r, show=False)


# ---- replay: fuzz corpora -------------------------------------------------------------------------------------------


def run_replay(path, env, patterns, report):
    name, start = path.name[len("replay_") :], time.monotonic()
    if not matches(f"replay:{name}", patterns):
        return
    files = sorted(p for p in glob.glob(str(HERE / "fuzz/corpus" / name / "*")) if os.path.isfile(p))
    if not files:
        report.add(Result(f"replay:{name}", "fail", 0, f"tests/fuzz/corpus/{name} is empty"))
        return
    status, text = run_limited([str(path), *files], env, LIMIT["replay"])
    if status == 0:
        report.add(Result(f"replay:{name}", "pass", time.monotonic() - start, ""))
        return
    for f in files:  # which one was it?
        one, said = run_limited([str(path), f], env, 10)
        if one != 0:
            text, status = f"{said}\n{os.path.relpath(f, ROOT)}", one
            break
    why = "time limit" if status is None else f"status {status}"
    report.add(Result(f"replay:{name}", "fail", time.monotonic() - start, f"{text[-4000:]}\n{why}"))


# ---- unittest modules -----------------------------------------------------------------------------------------------


def may_match(kind, file, patterns):
    """Whether a test in this file could match; a pattern without a kind could match anywhere."""
    for pattern in patterns:
        first, colon, rest = pattern.partition(":")
        if not colon or first not in KINDS:
            return True
        if first == kind and ("*" in rest or file.startswith(rest.partition(":")[0])):
            return True
    return not patterns


def read_events(fd, kind):
    """Yields the child's events; ("late", name) when the time of a test is over, and stops there."""
    current, began, deadline, data = None, time.monotonic(), time.monotonic() + LIMIT[kind] * SLACK, b""
    while True:
        ready = select.select([fd], [], [], max(deadline - time.monotonic(), 0))[0]
        if not ready:
            yield {"event": "late", "name": current, "seconds": time.monotonic() - began}
            return
        chunk = os.read(fd, 65536)
        if not chunk:
            yield {"event": "gone", "name": current, "seconds": time.monotonic() - began}
            return
        data += chunk
        *lines, data = data.split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["event"] == "start":
                current, began = event["name"], time.monotonic()
                deadline = began + (event["limit"] or LIMIT[kind]) * SLACK
            else:
                current, deadline = None, time.monotonic() + LIMIT[kind] * SLACK
            yield event
            if event["event"] == "done":
                return


def run_module(kind, path, env, patterns, report):
    """One unittest module in a child; after a test that hung or crashed, the rest of it in another child."""
    prefix, done = f"{kind}:{path.name}", set()
    while True:
        r, w = os.pipe()
        cmd = [sys.executable, str(HERE / "child.py"), str(path), str(w), prefix, json.dumps(sorted(done))]
        with tempfile.TemporaryFile() as log:
            proc = GROUPS.popen([*cmd, *patterns], env=env, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                                pass_fds=[w])
            os.close(w)
            again = False
            for e in read_events(r, kind):
                if e["event"] == "end":
                    done.add(e["name"])
                    report.add(Result(f"{prefix}:{e['name']}", e["status"], e["seconds"], e["detail"]))
                elif e["event"] in ("late", "gone"):
                    log.seek(0)
                    said = log.read().decode("utf-8", "replace")[-4000:]
                    why = "the program ended in the middle" if e["event"] == "gone" else "time limit"
                    report.add(Result(f"{prefix}:{e['name'] or 'module'}", "fail", e["seconds"], f"{said}\n{why}"))
                    again = e["name"] is not None and not GROUPS.stopped
                    done.add(e["name"])
            os.close(r)
            GROUPS.end(proc)
        if not again:
            return


# ---- hostile: a driver of its own -----------------------------------------------------------------------------------


def hostile_arguments(name, env, build, patterns):
    tests = pathlib.Path(env["BRIG_INSTALL_DIR"]) / "tests"
    common = ["--brig", env["BRIG"], "--probe", str(tests / "hostile/hostile-probe"), "--report",
              str(build / f"hostile-{name}.md")]
    if name == "victim":
        return [*common, "--mode", "root", "--seconds", "1.5", "--attempts", "5"]
    return [*common, "--brig-test", env["BRIG_TEST_BUILD"], "--only", ",".join(patterns) or "*", "--repeat",
            env.get("BRIG_TEST_REPEAT", "1"), *(["--whole"] if env.get("BRIG_TEST_REPEAT", "1") != "1" else [])]


def read_lines(stream, too_quiet):
    """The lines of a stream; too_quiet() is called, in another thread, when one lets itself be waited for too long."""
    while True:
        timer = threading.Timer(QUIET_SECONDS * SLACK, too_quiet)
        timer.start()
        raw = stream.readline()
        timer.cancel()
        if not raw:
            return
        yield raw


def run_hostile(name, env, build, patterns, report):
    """Streams the output of tests/hostile/NAME.py and adds up its last line."""
    path, start, last, skips = HERE / f"hostile/{name}.py", time.monotonic(), "", []
    report.line(f"hostile, {name}")
    command = [sys.executable, "-u", str(path), *hostile_arguments(name, env, build, patterns)]
    if env.get("BRIG_TEST_LANE"):
        command = [sys.executable, str(HERE / "run.py"), "--enter", *command]
    proc = GROUPS.popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    late = threading.Event()

    def too_quiet():
        late.set()
        GROUPS.end(proc)

    for raw in read_lines(proc.stdout, too_quiet):
        text = raw.decode("utf-8", "replace").rstrip("\n")
        if not RESULT_LINE.match(text):
            report.aside(text)
        if re.match(r"\s*(SKIP|skip|skipped)\b", text):
            skips.append("hostile: " + text.strip())
        case = re.match(r"\[ *\d+/\d+\] (\S+) +\S+ +(ok|FAILED|skipped)\b", text)
        if case:
            report.cases.add(({"ok": "pass", "FAILED": "fail", "skipped": "skip"}[case[2]], f"hostile:{case[1]}"))
        last = text or last
    GROUPS.end(proc)
    hit = RESULT_LINE.match(last)
    if hit:
        counts = [int(n) for n in hit.groups()]
        report.extra = [a + b for a, b in zip(report.extra, counts)]
        report.extra_skips += skips
        report.line(f"hostile, {name}: {last}  {time.monotonic() - start:.0f} s")
    if not hit or (proc.returncode != 0 and not counts[1]):
        why = f"time limit: {QUIET_SECONDS * SLACK} s without a line" if late.is_set() else f"status {proc.returncode}"
        report.add(Result(f"hostile:{name}.py", "fail", time.monotonic() - start, f"last line: {last}\n{why}"))


# ---- The installed copy ---------------------------------------------------------------------------------------------


def install(build, into):
    """`meson install` below `into`, and the test programs beside it; returns the prefix there."""
    cmd = ["meson", "install", "-C", str(build), "--destdir", into, "--no-rebuild", "--quiet"]
    done = subprocess.run(cmd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"meson install: status {done.returncode}\n{done.stdout[-2000:]}")
    options = json.loads(subprocess.run(["meson", "introspect", str(build), "--buildoptions"], capture_output=True,
                                        check=True).stdout)
    prefix = pathlib.Path(into + next(o["value"] for o in options if o["name"] == "prefix"))
    tests = prefix / "tests"
    for pattern in ("tests/brig-test*", "tests/hostile/*", "tests/e2e/*", "tests/helpers/*"):
        for path in build.glob(pattern):
            if path.is_file() and os.access(path, os.X_OK):
                target = tests / path.relative_to(build / "tests")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
    if (runsc := build / "providers/runsc").exists():  # tools/runsc.sh; a runtime cannot be executed from below /tmp
        shutil.copy2(runsc, tests / "runsc")
    for path in [pathlib.Path(into), *pathlib.Path(into).rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    return prefix


def environment(build, prefix):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "BRIG_"))}
    keep.update(PATH=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}", LC_ALL="C.UTF-8", BRIG_BUILD_DIR=str(build),
                BRIG_INIT=str(build / "src" / "brig-init"),
                PYTHONDONTWRITEBYTECODE="1")
    # seconds before a wait is called a hang, on a busy machine, too; no test measures with it
    keep.update(BRIG_TEST_PATIENCE="120")
    if prefix and (prefix / "tests/runsc").exists():
        keep.update(BRIG_TEST_RUNSC=str(prefix / "tests/runsc"))
    keep.update({k: v for k, v in os.environ.items() if k.startswith("BRIG_TEST_")})
    if prefix:
        knobs = prefix / "tests/brig-test"
        keep.update(BRIG_INSTALL_DIR=str(prefix), BRIG=str(prefix / "bin/brig"), BRIG_TEST_BUILD=str(knobs))
        # The copy does not lie where it was configured to be installed.
        keep.update(BRIG_LIBEXEC_DIR=str(prefix / "libexec/brig"))
        libs = sorted({str(p.parent) for p in prefix.rglob("libbrig.so*")})
        found = subprocess.run(["ldd", str(prefix / "bin/brig")], text=True, capture_output=True, check=False).stdout
        if "not found" in found:
            keep.update(LD_LIBRARY_PATH=":".join(libs))
    return keep


# ---- main -----------------------------------------------------------------------------------------------------------


def programs(build, pattern):
    return [p for p in sorted(build.glob(pattern)) if p.is_file() and os.access(p, os.X_OK) and "." not in p.name]


def kinds_of(args):
    return args.kind or ([k for k in KINDS if k not in ON_DEMAND] if not args.long else ["long", "hostile"])


def find_programs(args, build, report):
    """The unit tests and replays: [(function, path)]."""
    work = []
    for kind, pattern, how in (("unit", "tests/unit/test_*", run_unit), ("replay", "tests/fuzz/replay_*", run_replay)):
        if kind not in kinds_of(args):
            continue
        found = programs(build, pattern)
        if not found and not args.patterns:
            report.add(Result(f"{kind}:none", "fail", 0, f"nothing matches {pattern} in the build directory"))
        work += [(how, p) for p in found
                 if may_match(kind, p.name + ".c" if kind == "unit" else p.name[len("replay_") :], args.patterns)]
    return work


def find_modules(args):
    """The unittest modules: [(kind, path)]."""
    return [(kind, path) for kind in ("lint", "e2e", *ON_DEMAND) if kind in kinds_of(args)
            for path in sorted((HERE / kind).glob("test_*.py")) if may_match(kind, path.name, args.patterns)]


def find_hostile(args):
    """What tests/hostile/run.py is to run, or None."""
    wanted = [q[len("hostile:") :] for q in args.patterns if q.startswith("hostile:")]
    runs = "hostile" in kinds_of(args) and (HERE / "hostile/run.py").exists() and (wanted or not args.patterns)
    return wanted if runs else None


def run_programs(work, at_once, env, patterns, report):
    def one(how, path):
        how(path, env, patterns, report)
        report.ended(f"{how.__name__[4:]}:{path.name}")

    work = lanes.longest_first(work, lambda w: f"{w[0].__name__[4:]}:{w[1].name}")
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for job in [pool.submit(one, how, path) for how, path in work]:
            job.result()


def run_lanes(jobs, count, env, report):
    """jobs: [(name, function of an environment)]; each runs in the first lane that is free.  Without a count, one after
    the other."""
    queue = collections.deque(lanes.longest_first(jobs, lambda job: job[0]) if count else jobs)
    looking = threading.Lock()  # two lanes that see the same idle second would both fill it

    def run_more(lane, lane_env):
        while queue and not GROUPS.stopped:
            with looking:
                begin = lanes.time_is_left()
            if begin:
                run_lane(lane, lane_env, 1)

    def run_lane(lane, lane_env, at_most=None):
        for _ in range(at_most or len(jobs)):
            try:
                name, job = queue.popleft()
            except IndexError:  # another lane took the last
                return
            cpu, start = lanes.cpu_seconds(lane), time.monotonic()
            job(lane_env)
            if count:
                report.costs.append((lanes.cpu_seconds(lane) - cpu, time.monotonic() - start, name))
            report.ended(name)

    if not count:
        run_lane("", env)
    how = [run_lane] * count + [run_more] * (lanes.MORE if count else 0)
    with concurrent.futures.ThreadPoolExecutor(max(len(how), 1)) as pool:
        names = [f"{RUN}-{lane}" for lane in range(1, len(how) + 1)]
        for lane in [pool.submit(run, name, {**env, "BRIG_TEST_LANE": name}) for run, name in zip(how, names)]:
            lane.result()


def run_all(args, build, report, temp):
    work, modules, hostile = find_programs(args, build, report), find_modules(args), find_hostile(args)
    jobs = [(f"{kind}:{path.name}",
             lambda env, kind=kind, path=path: run_module(kind, path, env, args.patterns, report))
            for kind, path in modules]
    if hostile is not None:
        jobs.append(("hostile:run.py", lambda env: run_hostile("run", env, build, hostile, report)))
    report.plan(f"{how.__name__[4:]}:{path.name}" for how, path in work)
    report.plan(name for name, _ in jobs)
    env = environment(build, install(build, temp) if temp else None)
    if temp:
        env["BRIG_TEST_SPARES"] = os.path.join(temp, "spares")
        os.mkdir(env["BRIG_TEST_SPARES"], 0o700)
    if args.long:
        env["BRIG_TEST_REPEAT"] = "100"
    if "providers" in kinds_of(args):
        env["BRIG_TEST_PROVIDERS"] = "1"  # tests/e2e/service.py
    count = lanes.COUNT if jobs and lanes.possible() and not set(kinds_of(args)) & set(ON_DEMAND) else 0
    at_once = (os.cpu_count() or 1) * lanes.PROGRAMS_PER_CORE
    if not count:
        run_programs(work, at_once, env, args.patterns, report)
        run_lanes(jobs, 0, env, report)
    else:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            beside = pool.submit(run_programs, work, at_once // 2, env, args.patterns, report)
            run_lanes(jobs, count, env, report)
            beside.result()
    if args.long and hostile == []:  # a measurement: on a shared machine it would fail for others' load
        run_hostile("victim", env, build, [], report)


def drive(args, temp, ignored):
    """The driver itself, below its keeper."""
    report = Report()
    for number in {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} - ignored:
        signal.signal(number, lambda n, _frame: GROUPS.stop(signal.Signals(n).name))
    try:
        run_all(args, pathlib.Path(args.build).resolve(), report, temp)
    except Stopped:
        pass
    except (RuntimeError, OSError, subprocess.CalledProcessError) as why:
        report.add(Result("run", "fail", 0, str(why)))
    GROUPS.kill_all()
    results = report.cases | {(r.status, r.id) for r in report.results}
    if args.results:
        promises.save(args.results, results)
    everything = not (args.kind or args.patterns or args.long or args.no_install)
    if everything and not report.waiting and os.geteuid() == 0:  # what needs root is skipped without it
        bad = promises.broken(results, promises.BY_MAKE_TEST)
        report.add(Result("promises", "fail" if bad else "pass", 0, "\n".join(bad)))
    return report.finish()


def main():
    ap = argparse.ArgumentParser(description="Runs brig's tests; see the head of this file.")
    ap.add_argument("--build", default=str(ROOT / "build"))
    ap.add_argument("--kind", action="append", choices=KINDS, help="only this kind (repeatable)")
    ap.add_argument("--long", action="store_true", help="tests/long, and hostile with BRIG_TEST_REPEAT=100")
    ap.add_argument("--no-install", action="store_true", help="without the installed copy")
    ap.add_argument("--enter", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    ap.add_argument("patterns", nargs="*", help="parts or patterns of test ids")
    args = ap.parse_args()
    if args.enter:
        lanes.enter(os.environ["BRIG_TEST_LANE"])
        os.execv(args.enter[0], args.enter)
    args.results = os.environ.pop("BRIG_TEST_RESULTS", None)  # not for the drivers that tests start
    os.umask(0o022)
    lanes.sweep()
    installs = not args.no_install and set(kinds_of(args)) & {"e2e", "long", "compat", "providers", "hostile", "lint"}
    temp = tempfile.mkdtemp(prefix="brig-test-", dir="/var/tmp") if installs else None

    def cleanup():
        lanes.leave(RUN)
        if temp:
            shutil.rmtree(temp, ignore_errors=True)

    return keeper.keep(lambda ignored: drive(args, temp, ignored), cleanup)


if __name__ == "__main__":
    sys.exit(main())
