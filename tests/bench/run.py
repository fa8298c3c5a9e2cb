#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The driver behind `make bench`: runs `brig bench -o json` of a build and writes docs/BENCHMARKS.md and
docs/benchmarks.svg.

  catalog.py  the numbers and the peers      page.py  the page      chart.py  the chart
  service.py, gate.py, tools.py, templates.py  measured after it

`brig bench` measures and knows the bounds; this only sees to a tidy run and to the words.  Peers are Debian's, so PATH
is the system's. Nothing stays behind: the bench has its own session and temporary directory, which are ended and
removed however this ends, and what firejail puts below /run on its first use is taken away if this was its first use.

Fewer than 200 runs are a trial: the table goes to the terminal, and no document is written unless --out names a place
for it. The status is 0 when everything was measured, whether kept or missed (that is said, and is in the page); else 1.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import gate  # noqa: E402
import keeper  # noqa: E402
import page  # noqa: E402
import service  # noqa: E402
import templates  # noqa: E402
import tools  # noqa: E402
import tools_profile  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ENOUGH_RUNS = 200
LIMIT_SECONDS = 30 * 60
PEER_PACKAGES = ("bubblewrap", "firejail", "runc", "docker.io")
FIREJAIL = pathlib.Path("/run/firejail")


def say(words):
    print(f"bench: {words}", file=sys.stderr, flush=True)


# ---- The machine: facts without names and paths ---------------------------------------------------------------------


def read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def field(text, name):
    return next((line.partition(":")[2].strip()
                 for line in text.splitlines() if line.partition(":")[0].strip() == name),
                "")


def cgroups():
    kinds = {line.split()[2] for line in read("/proc/self/mounts").splitlines()}
    both = {"cgroup", "cgroup2"} & kinds
    return "v1 and v2 (hybrid)" if len(both) == 2 else "v2" if "cgroup2" in both else "v1" if both else "none"


def package_version(name):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], text=True, capture_output=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "not installed"


def protection(brig, env):
    """What holds the sandbox that is measured, in words."""
    done = subprocess.run([brig, "run", "--require", "all", "-o", "json", "--", "/bin/true"], text=True,
                          capture_output=True, env=env, check=False)
    try:
        state = json.loads(done.stdout)["protection"]
        on = sum(layer["on"] for layer in state["layers"].values())
        return f"complete (`--require all` version {state['require_version']}), {on} layers on" if state[
            "complete"] else f"not complete, {on} layers on"
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["no receipt"])[-1]
        return f"not complete: {last[:160]}"


def machine(brig, env, load):
    memory = int(field(read("/proc/meminfo"), "MemTotal").split()[0]) / 2**20
    model = field(read("/proc/cpuinfo"), "model name")
    version = json.loads(subprocess.run([brig, "version", "-o", "json"], text=True, capture_output=True, env=env,
                                        check=True).stdout)
    return [
        ("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")),
        ("kernel", os.uname().release),
        ("CPUs", f"{os.cpu_count()} × {model}" if model else str(os.cpu_count())),
        ("memory", f"{memory:.0f} GiB"),
        ("cgroups", cgroups()),
        ("load before the run", load),
        ("brig",
         f"{version['version']}, commit {version['commit']}, as {'root' if os.geteuid() == 0 else 'a plain user'}"),
        ("protection", protection(brig, env)),
        ("peers", ", ".join(f"{p} {package_version(p)}" for p in PEER_PACKAGES)),
    ]


# ---- The run --------------------------------------------------------------------------------------------------------


def group_is_alive(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


def end_group(proc):
    """The bench and what it started (dockerd ends its containerd), by our own process group: first asked, then
    killed."""
    for signum, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        deadline = time.monotonic() + seconds
        if group_is_alive(proc.pid):
            os.killpg(proc.pid, signum)
        while group_is_alive(proc.pid) and time.monotonic() < deadline:
            proc.poll()
            time.sleep(0.1)
    proc.wait()


def remove_cgroups(pid):
    """`brig bench` removes Docker's parent cgroup itself, and runc its own, unless they were killed."""
    names = {f"brig-bench-{pid}", f"brig-bench-runc-{pid}"}
    for top, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if names & set(pathlib.PurePath(top).parts):
            try:
                os.rmdir(top)
            except OSError as e:
                say(f"a cgroup of this run is left: {e.strerror}")


def remove_firejail():
    mounts = [line.split()[1] for line in read("/proc/self/mounts").splitlines()]
    for place in (m for m in reversed(mounts) if m.startswith(f"{FIREJAIL}/")):
        subprocess.run(["umount", place], check=False)
    shutil.rmtree(FIREJAIL, ignore_errors=True)


def measure(brig, env, runs, only):
    """The JSON of `brig bench`."""
    command = [brig, "bench", "-o", "json", "--runs", str(runs)] + (["--only", only] if only else [])
    had_firejail = FIREJAIL.exists()
    temp = tempfile.mkdtemp(prefix="bb-", dir="/tmp")  # short: sockets will lie in it
    proc = subprocess.Popen(command, env={**env, "TMPDIR": temp}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            start_new_session=True)
    try:
        out, _ = proc.communicate(timeout=LIMIT_SECONDS)
    finally:
        end_group(proc)
        remove_cgroups(proc.pid)
        shutil.rmtree(temp, ignore_errors=True)
        if not had_firejail and FIREJAIL.exists() and os.geteuid() == 0:
            remove_firejail()
    if proc.returncode not in (0, 1):  # 1: a promise was missed
        raise RuntimeError(f"brig bench: status {proc.returncode}")
    return json.loads(out)


def load_now():
    one = os.getloadavg()[0]
    if one > 0.5:
        say(f"this machine is busy (load {one:.2f}): the numbers will be worse than they are, and p95 and p99 "
            "say little")
    return f"{one:.2f}"


# ---- The documents --------------------------------------------------------------------------------------------------


def write(results, saved, out):
    out.mkdir(parents=True, exist_ok=True)
    target = out / "BENCHMARKS.md"
    old = read(target)
    text = page.page(results, old)
    for name in page.PARTS:
        text = page.with_part(text, name, saved[name]) if saved.get(name) else text
    target.write_text(text, encoding="utf-8")
    (out / "benchmarks.svg").write_text(page.svg(results), encoding="utf-8")
    for number in page.unexplained(results, page.written_by_hand(old)):
        say(f'{number} was missed: say why in the last section of BENCHMARKS.md, naming "{number}"')


def report(results):
    for number, row in results.numbers:
        tail = f"{row['ratio']:.2f} × {row['against']}" if "ratio" in row else ""
        print(f"{number.id:18} p50 {page.show(row['p50'], row['unit']):>12}  p95 "
              f"{page.show(row['p95'], row['unit']):>12}"
              f"  p99 {page.show(row['p99'], row['unit']):>12}  {tail:36} {page.bound_of(row):16} "
              f"{page.verdict(row).strip('*')}")
    for skip in results.bench["skipped"]:
        print(f"{skip['name']:18} not measured: {skip['reason']}")
    print(page.summary(results))


def arguments():
    parser = argparse.ArgumentParser(description="Measures and writes docs/BENCHMARKS.md and docs/benchmarks.svg.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR",
                        help="build directory (default: build)")
    parser.add_argument("--runs", type=int, default=ENOUGH_RUNS, metavar="N",
                        help=f"rounds of each (default {ENOUGH_RUNS}; fewer are a trial)")
    parser.add_argument("--only", metavar="GROUP", help="one group; a trial")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="write the page and the chart here (default: docs; a trial: nowhere)")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE", help="keep what was measured, for --load")
    parser.add_argument("--load", type=pathlib.Path, metavar="FILE",
                        help="measure nothing: write the documents again from a --save")
    return parser.parse_args()


def collect(args):
    if args.load:
        return json.loads(args.load.read_text(encoding="utf-8"))
    helpers = (args.build / "src").resolve()
    brig = str(helpers / "brig")
    env = {"PATH": SYSTEM_PATH, "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C.UTF-8",
           "BRIG_LIBEXEC_DIR": str(helpers)}
    load, start = load_now(), time.monotonic()
    facts = machine(brig, env, load)
    bench = measure(brig, env, args.runs, args.only)
    say(f"measured in {time.monotonic() - start:.0f} s")
    saved = {"machine": facts, "bench": bench, "trial": args.runs < ENOUGH_RUNS or bool(args.only)}
    if not args.only:
        saved["service"] = service.measure(args.build, args.runs)
        for name, part in (("gate", gate), ("tools", tools), ("templates", templates)):
            saved[name] = part.measure(args.build, args.runs, quick=args.runs < ENOUGH_RUNS)
    if args.save:
        args.save.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return saved


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        saved = collect(args)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as e:
        say(str(e))
        return 1
    except KeyboardInterrupt:
        return 130
    results = page.Results(saved["bench"], saved["machine"])
    report(results)
    parts = [saved[name] for name in page.PARTS if saved.get(name)]
    for part in parts:
        service.report(part)
    tools_profile.report(saved.get("tools", {}).get("profile", []))
    out = args.out or (None if saved["trial"] else ROOT / "docs")
    if out:
        write(results, saved, out)
    skipped = results.bench["skipped"] or any(part["skipped"] for part in parts)
    return 1 if skipped or (results.missing and not args.only) else 0


if __name__ == "__main__":
    sys.exit(keeper.keep(lambda _ignored: main()))
