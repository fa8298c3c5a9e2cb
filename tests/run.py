#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test driver behind `make test`.

What it runs, in this order, each kind found by its place in the tree (ids are those of tests/PROMISES.md):

  unit     BUILD/tests/unit/test_*          cmocka programs, read as TAP               unit:test_x.c:function
  replay   BUILD/tests/fuzz/replay_*        over tests/fuzz/corpus/NAME/*              replay:NAME
  lint     tests/lint/test_*.py             unittest, over the sources                 lint:test_x.py:Class.test
  e2e      tests/e2e/test_*.py              unittest, against an installed copy        e2e:test_x.py:Class.test
  hostile  tests/hostile/run.py             a driver of its own, run alone             hostile:CASE
  compat   tests/compat/test_*.py           by `make test-compat` only: other people's clients, servers and registries   compat:test_x.py:Class.test

unit and replay use all cores. The rest runs in two lanes side by side, each in a cgroup of its own, one test at a time in each: in the first
the tests that look for what a run of the jail left behind, then hostile; in the second those of the service and all that needs no sandbox.

Every test has a time limit (a unittest class may set LIMIT_SECONDS), and all of them together a budget; what does not fit any
more is a failure, not a silence.  A test that hangs is killed with its process group, counted, and the rest of its module goes on.
e2e and hostile get a copy made by `meson install` in a world-readable directory, since an unprivileged user may not be able to
read the clone:

  BRIG               the installed brig                 BRIG_INSTALL_DIR   its prefix (bin, lib, libexec/brig; tests below it)
  BRIG_TEST_BUILD    brig with test knobs               BRIG_BUILD_DIR     the build directory
  BRIG_LIBEXEC_DIR   its helpers: the copy is not where its prefix says, so this must reach every brig

The last line is `N passed, N failed, N skipped`; the status is 0 only if nothing failed and something passed.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
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
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
KINDS = ("unit", "replay", "lint", "e2e", "long", "compat", "hostile")
LIMIT = {"unit": 60, "replay": 120, "lint": 60, "e2e": 60, "long": 24 * 3600, "compat": 120}
BUDGET = 12 * 60
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
RESULT_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")

Result = collections.namedtuple("Result", "id status seconds detail")  # status: pass, fail, skip


# ---- Processes ------------------------------------------------------------------------------------------------------


class Groups:
    """The process groups we started and have not reaped, so that an interrupt leaves none behind."""

    def __init__(self):
        self.lock, self.live = threading.Lock(), set()

    def popen(self, cmd, **kw):
        proc = subprocess.Popen(cmd, start_new_session=True, stdin=subprocess.DEVNULL, **kw)
        with self.lock:
            self.live.add(proc.pid)
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
            for pid in self.live:
                try:
                    os.killpg(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass


GROUPS = Groups()


def run_limited(cmd, env, limit):
    """(status or None when the time was up, text of stdout and stderr).  A stray child that holds the pipe does not hold us."""
    with tempfile.TemporaryFile() as out:
        proc = GROUPS.popen(cmd, env=env, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            status = proc.wait(timeout=max(limit, 1))
        except subprocess.TimeoutExpired:
            status = None
        GROUPS.end(proc)
        out.seek(0)
        return status, out.read().decode("utf-8", "replace")


# ---- The report -----------------------------------------------------------------------------------------------------


class Report:
    def __init__(self, budget):
        self.start = time.monotonic()
        self.budget = budget
        self.lock = threading.Lock()
        self.results = []
        self.extra = [0, 0, 0]  # what tests/hostile/run.py counted itself
        self.extra_skips = []

    def left(self):
        return self.budget - (time.monotonic() - self.start)

    def add(self, result, show=True):
        with self.lock:
            self.results.append(result)
            if show or result.status != "pass":
                self.line(f"{result.status:4} {result.id}  {result.seconds:.1f} s" + (f"  ({result.detail})" if result.status == "skip" else ""))
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
        if by["skip"] or self.extra_skips:
            print("\nskipped:")
            for r in by["skip"]:
                print(f"  {r.id}: {r.detail or 'no reason given'}")
            for text in self.extra_skips:
                print(f"  {text}")
        if by["fail"]:
            print("\nfailed:")
            for r in by["fail"]:
                print(f"  {r.id}: {(r.detail.strip().splitlines() or ['?'])[-1][:160]}")
        passed, failed, skipped = (len(by[s]) + n for s, n in zip(("pass", "fail", "skip"), self.extra))
        print(f"\n{time.monotonic() - self.start:.0f} s of {self.budget:.0f} s\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
        return 0 if passed and not failed else 1


# ---- unit: cmocka programs ------------------------------------------------------------------------------------------


def parse_tap(name, text, status, seconds):
    """The results in the TAP of one program.  cmocka gives no reason for a skip: the last line printed before it is taken."""
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
            detail = "\n".join(talk[-40:]) if bad else re.sub(r"^[# ]*(SKIP:?|skipped:?)?\s*", "", talk[-1]) if what == "skip" and talk else ""
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
        done.append(Result(f"unit:{name}.c", "fail", seconds, "\n".join(talk[-20:]) + f"\ntime limit after {seconds:.0f} s"))
    elif seen < planned or not planned or (status and not any(r.status == "fail" for r in done)):
        done.append(Result(f"unit:{name}.c", "fail", seconds, "\n".join(talk[-40:]) + f"\nstatus {status}, {seen} of {planned} tests reported"))
    return done


def run_unit(path, env, patterns, report):
    start = time.monotonic()
    env = dict(env, CMOCKA_MESSAGE_OUTPUT="TAP")
    status, text = run_limited([str(path)], env, min(LIMIT["unit"], report.left()))
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
    status, text = run_limited([str(path), *files], env, min(LIMIT["replay"], report.left()))
    if status == 0:
        report.add(Result(f"replay:{name}", "pass", time.monotonic() - start, ""))
        return
    for f in files:  # which one was it?
        one, said = run_limited([str(path), f], env, min(10, report.left()))
        if one != 0:
            text, status = f"{said}\n{os.path.relpath(f, ROOT)}", one
            break
    why = "time limit" if status is None else f"status {status}"
    report.add(Result(f"replay:{name}", "fail", time.monotonic() - start, f"{text[-4000:]}\n{why}"))


# ---- unittest modules -----------------------------------------------------------------------------------------------


class Child(unittest.TestResult):
    """In the child: one JSON line per event on a private descriptor, since tests may print what they like."""

    def __init__(self, out):
        super().__init__()
        self.out, self.began, self.bad = out, 0.0, None

    def send(self, **event):
        self.out.write(json.dumps(event) + "\n")
        self.out.flush()

    @staticmethod
    def name(test):
        parts = test.id().split(".")
        return ".".join(parts[-2:]) if hasattr(test, "_testMethodName") else test.id()

    def startTest(self, test):
        super().startTest(test)
        self.began, self.bad, self.skip = time.monotonic(), None, None
        self.send(event="start", name=self.name(test), limit=getattr(test, "LIMIT_SECONDS", None))

    def stopTest(self, test):
        status = "fail" if self.bad else "skip" if self.skip is not None else "pass"
        self.send(event="end", name=self.name(test), status=status, seconds=time.monotonic() - self.began, detail=self.bad or self.skip or "")
        super().stopTest(test)

    def failure(self, test, err):
        text = self._exc_info_to_string(err, test)  # without unittest's own frames
        if hasattr(test, "_testMethodName") or hasattr(test, "test_case"):
            self.bad = (self.bad or "") + text
        else:  # setUpModule, setUpClass, a module that does not load
            self.send(event="end", name=test.id(), status="fail", seconds=0, detail=text)

    addError = failure
    addFailure = failure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.failure(test, err)

    def addSkip(self, test, reason):
        if hasattr(test, "_testMethodName"):
            self.skip = reason
            if not self.began:
                self.send(event="end", name=self.name(test), status="skip", seconds=0, detail=reason)
        else:
            self.send(event="end", name=test.id(), status="skip", seconds=0, detail=reason)

    def addUnexpectedSuccess(self, test):
        self.bad = "it was expected to fail, and passed"


def flatten(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flatten(t)
        else:
            yield t


SECOND_LANE = ("lint:*", "e2e:test_service_*", "e2e:test_store.py", "e2e:test_toml.py", "e2e:test_config.py", "e2e:test_audit.py", "e2e:test_tar.py",
               "e2e:test_openapi.py", "e2e:test_cli_service*.py", "e2e:test_gate_*.py", "e2e:test_letta_api.py", "e2e:test_tools_*.py", "e2e:test_runtime_*.py",
               "e2e:test_cli_tools.py", "e2e:test_jsonschema.py", "e2e:test_troubleshooting.py", "e2e:test_webhook.py")


def lane_dirs(lane):
    """Where the cgroups of a lane are: below our own, in every hierarchy."""
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for root in (f"/sys/fs/cgroup/{controllers}",) if controllers else ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
                if os.path.exists(root + path + "/cgroup.procs"):
                    yield os.path.join(root + path, f"brig-lane-{lane}")
                    break


def enter_lane(lane):
    """A test that looks for cgroups left below its own sees none of the other lane's. Where that cannot be had there is one lane."""
    for path in list(lane_dirs(lane)):
        try:
            os.makedirs(path, exist_ok=True)
            with open(path + "/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        except OSError:
            pass  # a hierarchy that wants more than a process (cpuset)


def leave_lanes():
    for lane in (1, 2):
        for top in lane_dirs(f"{os.getpid()}-{lane}"):
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass


def lanes_possible():
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        hybrid = any(not line.startswith("0:") for line in lines)  # v2 alone: a cgroup with processes has no children with controllers
    return os.geteuid() == 0 and hybrid and (os.cpu_count() or 1) > 1


def child(path, fd, done, patterns, prefix):
    if os.environ.get("BRIG_TEST_LANE"):
        enter_lane(os.environ["BRIG_TEST_LANE"])
    """`run.py --child`: one module, minus the tests in `done`."""
    with os.fdopen(fd, "w") as out:
        result = Child(out)
        sys.path[:0] = [os.path.dirname(path), str(HERE)]
        name = pathlib.Path(path).stem
        suite = unittest.TestLoader().loadTestsFromName(name)
        wanted = [t for t in flatten(suite) if Child.name(t) not in done and matches(f"{prefix}:{Child.name(t)}", patterns)]
        unittest.TestSuite(wanted).run(result)
        result.send(event="done")


def matches(name, patterns):
    return not patterns or any(p in name or fnmatch.fnmatch(name, p) for p in patterns)


def may_match(kind, file, patterns):
    """Whether a test in this file could match; a pattern without a kind could match anywhere."""
    for pattern in patterns:
        first, colon, rest = pattern.partition(":")
        if not colon or first not in KINDS:
            return True
        if first == kind and ("*" in rest or file.startswith(rest.partition(":")[0])):
            return True
    return not patterns


def read_events(proc, fd, kind, report):
    """Yields the child's events; ("late", name) when a test or the budget is over, and stops there."""
    current, began, deadline, data = None, time.monotonic(), time.monotonic() + LIMIT[kind], b""
    while True:
        wait = min(deadline - time.monotonic(), report.left())
        ready = select.select([fd], [], [], max(wait, 0))[0]
        if not ready:
            yield {"event": "late", "name": current, "seconds": time.monotonic() - began, "budget": report.left() <= 0}
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
                deadline = began + (event["limit"] or LIMIT[kind])
            else:
                current, deadline = None, time.monotonic() + LIMIT[kind]
            yield event
            if event["event"] == "done":
                return


def run_module(kind, path, env, patterns, report):
    """One unittest module in a child; after a test that hung or crashed, the rest of it in another child."""
    prefix, done = f"{kind}:{path.name}", set()
    while True:
        r, w = os.pipe()
        cmd = [sys.executable, str(HERE / "run.py"), "--child", str(path), "--fd", str(w), "--prefix", prefix, "--done", json.dumps(sorted(done))]
        with tempfile.TemporaryFile() as log:
            proc = GROUPS.popen([*cmd, *patterns], env=env, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, pass_fds=[w])
            os.close(w)
            again = False
            for e in read_events(proc, r, kind, report):
                if e["event"] == "end":
                    done.add(e["name"])
                    report.add(Result(f"{prefix}:{e['name']}", e["status"], e["seconds"], e["detail"]))
                elif e["event"] in ("late", "gone"):
                    log.seek(0)
                    said = log.read().decode("utf-8", "replace")[-4000:]
                    why = "the program ended in the middle" if e["event"] == "gone" else "the budget is spent" if e["budget"] else "time limit"
                    report.add(Result(f"{prefix}:{e['name'] or 'module'}", "fail", e["seconds"], f"{said}\n{why}"))
                    again = e["name"] is not None and report.left() > 0
                    done.add(e["name"])
            os.close(r)
            GROUPS.end(proc)
        if not again:
            return


# ---- hostile: a driver of its own -----------------------------------------------------------------------------------


def hostile_arguments(name, env, build, patterns):
    tests = pathlib.Path(env["BRIG_INSTALL_DIR"]) / "tests"
    common = ["--brig", env["BRIG"], "--probe", str(tests / "hostile/hostile-probe"), "--report", str(build / f"hostile-{name}.md")]
    if name == "victim":
        return [*common, "--mode", "root", "--seconds", "1.5", "--attempts", "5"]
    return [*common, "--brig-test", env["BRIG_TEST_BUILD"], "--only", ",".join(patterns) or "*", "--repeat", env.get("BRIG_TEST_REPEAT", "1")]


def run_hostile(name, env, build, patterns, report):
    """Streams the output of tests/hostile/NAME.py and adds up its last line."""
    path, start, last, skips = HERE / f"hostile/{name}.py", time.monotonic(), "", []
    report.line(f"hostile, {name}")
    command = [sys.executable, "-u", str(path), *hostile_arguments(name, env, build, patterns)]
    if env.get("BRIG_TEST_LANE"):
        command = [sys.executable, str(HERE / "run.py"), "--enter", *command]
    proc = GROUPS.popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    timer = threading.Timer(max(report.left(), 1), lambda: GROUPS.kill_all())
    timer.start()
    for raw in proc.stdout:
        text = raw.decode("utf-8", "replace").rstrip("\n")
        if not RESULT_LINE.match(text):
            report.aside(text)
        if re.match(r"\s*(SKIP|skip|skipped)\b", text):
            skips.append("hostile: " + text.strip())
        last = text or last
    timer.cancel()
    GROUPS.end(proc)
    hit = RESULT_LINE.match(last)
    if hit:
        counts = [int(n) for n in hit.groups()]
        report.extra = [a + b for a, b in zip(report.extra, counts)]
        report.extra_skips += skips
        report.line(f"hostile, {name}: {last}  {time.monotonic() - start:.0f} s")
    if not hit or (proc.returncode != 0 and not counts[1]):
        why = "the budget is spent" if report.left() <= 0 else f"status {proc.returncode}"
        report.add(Result(f"hostile:{name}.py", "fail", time.monotonic() - start, f"last line: {last}\n{why}"))


# ---- The installed copy ---------------------------------------------------------------------------------------------


def install(build, into):
    """`meson install` below `into`, and the test programs beside it; returns the prefix there."""
    cmd = ["meson", "install", "-C", str(build), "--destdir", into, "--no-rebuild", "--quiet"]
    done = subprocess.run(cmd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"meson install: status {done.returncode}\n{done.stdout[-2000:]}")
    options = json.loads(subprocess.run(["meson", "introspect", str(build), "--buildoptions"], capture_output=True, check=True).stdout)
    prefix = pathlib.Path(into + next(o["value"] for o in options if o["name"] == "prefix"))
    tests = prefix / "tests"
    for pattern in ("tests/brig-test*", "tests/hostile/*", "tests/e2e/*", "tests/helpers/*"):
        for path in build.glob(pattern):
            if path.is_file() and os.access(path, os.X_OK):
                target = tests / path.relative_to(build / "tests")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
    for path in [pathlib.Path(into), *pathlib.Path(into).rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    return prefix


def environment(build, prefix):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "BRIG_"))}
    keep.update(PATH=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}", LC_ALL="C.UTF-8", BRIG_BUILD_DIR=str(build), BRIG_INIT=str(build / "src" / "brig-init"),
                PYTHONDONTWRITEBYTECODE="1")
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


def run_all(args, build, report):
    kinds = args.kind or ([k for k in KINDS if k not in ("long", "compat")] if not args.long else ["long", "hostile"])
    temp = None
    try:
        prefix = None
        if not args.no_install and set(kinds) & {"e2e", "long", "compat", "hostile", "lint"}:
            temp = tempfile.mkdtemp(prefix="brig-test-", dir="/var/tmp")
            prefix = install(build, temp)
        env = environment(build, prefix)
        if args.long:
            env["BRIG_TEST_REPEAT"] = "100"
        work = []
        for kind, pattern, how in (("unit", "tests/unit/test_*", run_unit), ("replay", "tests/fuzz/replay_*", run_replay)):
            if kind in kinds:
                found = programs(build, pattern)
                found = [p for p in found if may_match(kind, p.name + ".c" if kind == "unit" else p.name[len("replay_") :], args.patterns)]
                if not found and not args.patterns:
                    report.add(Result(f"{kind}:none", "fail", 0, f"nothing matches {pattern} in the build directory"))
                work += [(how, p) for p in found]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for job in [pool.submit(how, p, env, args.patterns, report) for how, p in work]:
                job.result()
        modules = [(kind, path) for kind in ("lint", "e2e", "long", "compat") if kind in kinds for path in sorted((HERE / kind).glob("test_*.py"))]
        modules = [(kind, path) for kind, path in modules if may_match(kind, path.name, args.patterns)]
        second = [m for m in modules if any(fnmatch.fnmatch(f"{m[0]}:{m[1].name}", p) for p in SECOND_LANE)] if lanes_possible() else []

        def run_lane(lane, lane_modules):
            for kind, path in lane_modules:
                if report.left() <= 0:
                    report.add(Result(f"{kind}:{path.name}", "fail", 0, "not run: the budget is spent"))
                else:
                    run_module(kind, path, lane_env(lane), args.patterns, report)

        def lane_env(lane):
            return {**env, "BRIG_TEST_LANE": f"{os.getpid()}-{lane}"} if second else env

        def first_lane():
            run_lane(1, [m for m in modules if m not in second])
            if "hostile" not in kinds or not (HERE / "hostile/run.py").exists():
                return
            wanted = [q[len("hostile:") :] for q in args.patterns if q.startswith("hostile:")]
            if report.left() <= 0:
                report.add(Result("hostile:run.py", "fail", 0, "not run: the budget is spent"))
            elif wanted or not args.patterns:
                run_hostile("run", lane_env(1), build, wanted, report)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lanes = [pool.submit(first_lane), pool.submit(run_lane, 2, second)]
            for lane in lanes:
                lane.result()
        if args.long and "hostile" in kinds and not args.patterns:  # a measurement: on a shared machine it would fail for others' load
            run_hostile("victim", env, build, [], report)
    finally:
        GROUPS.kill_all()
        leave_lanes()
        if temp:
            shutil.rmtree(temp, ignore_errors=True)


def main():
    ap = argparse.ArgumentParser(description="Runs brig's tests; see the head of this file.")
    ap.add_argument("--build", default=str(ROOT / "build"))
    ap.add_argument("--kind", action="append", choices=KINDS, help="only this kind (repeatable)")
    ap.add_argument("--long", action="store_true", help="tests/long, and hostile with BRIG_TEST_REPEAT=100; no budget")
    ap.add_argument("--budget", type=float, default=BUDGET, help="seconds for everything (default %(default)s)")
    ap.add_argument("--no-install", action="store_true", help="without the installed copy")
    ap.add_argument("--enter", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    ap.add_argument("--child", help=argparse.SUPPRESS)
    ap.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    ap.add_argument("--done", default="[]", help=argparse.SUPPRESS)
    ap.add_argument("--prefix", default="", help=argparse.SUPPRESS)
    ap.add_argument("patterns", nargs="*", help="parts or patterns of test ids")
    args = ap.parse_args()
    if args.enter:
        enter_lane(os.environ["BRIG_TEST_LANE"])
        os.execv(args.enter[0], args.enter)
    if args.child:
        return child(args.child, args.fd, set(json.loads(args.done)), args.patterns, args.prefix)
    os.umask(0o022)
    report = Report(float("inf") if args.long else args.budget)

    def stop(number, _frame):
        raise KeyboardInterrupt(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, stop)
    try:
        run_all(args, pathlib.Path(args.build).resolve(), report)
    except KeyboardInterrupt as why:
        report.add(Result("run", "fail", 0, f"interrupted ({why})"))
    except (RuntimeError, OSError, subprocess.CalledProcessError) as why:
        report.add(Result("run", "fail", 0, str(why)))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
