# SPDX-License-Identifier: Apache-2.0
"""Cases that need more than one run of the probe: two sandboxes at once, prepared roots, a judged receipt.

Each takes the Context and returns a list of problems; empty means held. With layers off (ctx.off) the same function is
called and must come back with problems: that is the bite.
"""

import contextlib
import ctypes
import io
import json
import mmap
import os
import pty
import secrets
import shutil
import signal
import subprocess
import tarfile
import threading
import time

from harness import Skip, read_file, write_file
from served import live_tree, shared_process  # run.py finds all scenarios here

BOUND = ("--timeout", "60s")


def breaches(run, ctx):
    if ctx.off:
        return run.breaches(real=True)
    found = run.breaches()
    if not run.lines("ok") and not found:
        found.append(f"the probe did not report: {run.describe()}")
    return found


def status_problem(run, cause, status, signal_nr=None, label=""):
    """The receipt's cause and brig's own exit status."""
    causes = cause if isinstance(cause, tuple) else (cause,)
    if run.hung:
        return [f"{label}hung"]
    if run.cause not in causes or run.rc != status or (signal_nr is not None and run.signal != signal_nr):
        return [f"{label}expected {'|'.join(causes)} with status {status}: {run.describe()}"]
    return []


# --- files ------------------------------------------------------------------------------------------------------------


def self_exe_interpreter(ctx):
    """CVE-2019-5736: the program to start is a script whose interpreter is the starter."""
    run = ctx.run(["/probe/self-exe"], ["--timeout", ctx.seconds(5)])
    if run.hung or run.cause == "timeout":
        return [f"the starter ran as the program: {run.describe()}"]
    return [] if run.rc != 0 else [f"the starter ran as the program and succeeded: {run.describe()}"]


def private_root(ctx):
    mark = f"hostile-mark-{ctx.h.token}"
    script = f"echo x > /usr/{mark}; echo x > /{mark}; echo 9.9.9.9 {mark} >> /etc/hosts; ls /usr /; true"
    first = ctx.run(["/bin/sh", "-c", script], ["--writable-root", *BOUND])
    problems = status_problem(first, "exited", 0)
    for flags in ((), ("--writable-root",)):
        second = ctx.run(["/bin/sh", "-c", f"ls /usr / ; cat /etc/hosts; [ -x /usr/bin/env ]"], [*flags, *BOUND])
        problems += status_problem(second, "exited", 0)
        if mark.encode() in second.out:
            problems.append("a second sandbox sees the first one's change to the root")
    if os.path.exists(f"/usr/{mark}") or os.path.exists(f"/{mark}") or mark in read_file("/etc/hosts"):
        problems.append("the change reached the host")
    return problems


def cross_file(ctx):
    mark = f"mark-{secrets.token_hex(6)}"
    holder = ctx.start(ctx.probe("F36-hold", mark), BOUND)
    found = breaches(ctx.run(ctx.probe("F36", mark), BOUND), ctx)
    holder.stop()
    found += breaches(ctx.run(ctx.probe("F36", mark), BOUND), ctx)
    for where in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        path = f"{where}/{mark}"
        if os.path.exists(path):
            os.unlink(path)
            found.append(f"{path} is on the host")
    return found


def inotify_host(ctx):
    watcher = ctx.start(ctx.probe("F39"), ["-i", *BOUND], stdin=subprocess.PIPE)
    for _ in range(5):
        subprocess.run(["/usr/bin/env", "true"], check=False)
        read_file("/etc/passwd")
        os.listdir("/usr/bin")
    neighbour = ctx.run(["/usr/bin/env", "true"], BOUND)
    out = watcher.finish(20).decode("utf-8", "replace").splitlines()
    watcher.stop()
    found = [line for line in out if line.startswith("BREACH")]
    if not found and not any(line.startswith("ok") for line in out):
        raise Skip("inotify") if any(line.startswith("untried")
                                     for line in out) else RuntimeError(f"the watcher did not report: {out}")
    return found + ([] if ctx.off else status_problem(neighbour, "exited", 0))


def flock_covert(ctx):
    holder = ctx.start(ctx.probe("F40-hold"), BOUND)
    found = breaches(ctx.run(ctx.probe("F40"), BOUND), ctx)
    holder.stop()
    return found


def weird_argv(ctx):
    """Bytes of arguments and variables arrive as they were sent."""
    odd = [b"new\nline", b"\xff\xfe\x80", b"-rf", b"--", b"", b"\x1b[2J", b"$(id)`id`", b"'\"\\"]
    text = [os.fsdecode(b) for b in odd]
    run = ctx.run(["/usr/bin/printf", "%s\\0", *text], BOUND)
    problems = status_problem(run, "exited", 0)
    want = b"".join(b + b"\0" for b in odd)
    if run.out != want:
        problems.append(f"arguments changed: {run.out!r}")
    run = ctx.run(["/bin/sh", "-c", 'printf %s "$ODD"'], BOUND, env={"ODD": os.fsdecode(b"\xff=\n'x")})
    if run.out != b"\xff=\n'x":
        problems.append(f"a variable changed: {run.out!r} {run.describe()}")
    return problems


# --- roots that lie ---------------------------------------------------------------------------------------------------

ROOT_DIRS = ("bin", "dev", "etc", "home", "lib", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "usr/bin", "var",
             "var/tmp", "workspace", "home/user")
LINKED = ("dev", "proc", "sys", "tmp", "run", "etc", "var", "var/tmp", "home", "home/user", "workspace", "dev/null",
          "dev/zero", "dev/pts", "dev/shm",
          "dev/ptmx", "dev/fd", "dev/tty", "etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", "etc/hostname",
          "etc/ssl", "probe", "usr")


class Trap:
    """A directory of the host that must stay as it is, whatever a root's links say."""

    def __init__(self, ctx):
        self.path = f"{ctx.mode.dir}/shared/trap-{secrets.token_hex(4)}"
        os.mkdir(self.path)
        os.chmod(self.path, 0o777)
        for sub in ("null", "zero", "pts", "shm", "passwd", "user", "tmp"):
            if sub in ("pts", "shm", "user", "tmp"):
                os.mkdir(f"{self.path}/{sub}")
                os.chmod(f"{self.path}/{sub}", 0o777)
            else:
                with open(f"{self.path}/{sub}", "w", encoding="utf-8") as f:
                    f.write("host\n")
                os.chmod(f"{self.path}/{sub}", 0o666)
        self.before = self.state()

    def state(self):
        found = {}
        for where, dirs, files in os.walk(self.path):
            for name in [""] + files:
                st = os.lstat(f"{where}/{name}")
                found[f"{where}/{name}"] = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_nlink)
            found[where] = sorted(dirs)
        return found

    def changed(self):
        now = self.state()
        return sorted(k for k in set(now) | set(self.before) if now.get(k) != self.before.get(k))


def make_root(ctx, skip=()):
    root = f"{ctx.mode.dir}/work/root-{secrets.token_hex(4)}"
    os.mkdir(root)
    for sub in ROOT_DIRS:
        if not any(sub == s or sub.startswith(s + "/") for s in skip):
            os.mkdir(f"{root}/{sub}")
    shutil.copy(f"{ctx.h.share}/probe", f"{root}/bin/probe") if "bin" not in skip else None
    own(ctx, root)
    return root


def own(ctx, top):
    for where, dirs, files in os.walk(top):
        for name in [""] + dirs + files:
            os.lchown(f"{where}/{name}", ctx.mode.uid, ctx.mode.gid)


def judge_root_run(ctx, run, label):
    """Refused before anything started, or ran and stayed inside."""
    if run.hung:
        return [f"{label}: hung"]
    if run.receipt is None or run.cause in ("host-error", "policy"):
        return [] if run.rc == 125 else [f"{label}: no receipt and {run.describe()}"]
    found = [f"{label}: {b}" for b in run.breaches() if "dev-null: is not there" not in b]
    if run.rc in (126, 127):
        return found
    if not run.lines("ok"):
        found.append(f"{label}: {run.describe()}")
    return found


def symlink_rootfs(ctx):
    trap = Trap(ctx)
    problems, ran = [], 0
    for name in LINKED:
        for target in (trap.path, "../" * 14 + trap.path.lstrip("/"), f"{trap.path}/{os.path.basename(name)}"):
            root = make_root(ctx, skip=(name,))
            os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
            os.symlink(target, f"{root}/{name}")
            own(ctx, root)
            run = ctx.run(["/probe/probe", "F46"], ["--rootfs", root, *BOUND])
            problems += judge_root_run(ctx, run, f"/{name} -> {target[:30]}")
            ran += run.receipt is not None and run.cause == "exited"
            if os.readlink(f"{root}/{name}") != target:
                problems.append(f"/{name}: the root's own link was changed")
            shutil.rmtree(root, ignore_errors=True)
    problems += [f"{path} changed on the host" for path in trap.changed()]
    return problems[:12]


def symlink_tar(ctx):
    trap = Trap(ctx)
    problems = []

    def entry(name, **kw):
        info = tarfile.TarInfo(name)
        for k, v in kw.items():
            setattr(info, k, v)
        return info

    evil = {
        "link-then-file": [entry("dev", type=tarfile.SYMTYPE, linkname=trap.path), entry("dev/evil", mode=0o777)],
        "link-then-file-relative": [entry("x", type=tarfile.SYMTYPE, linkname="../" * 14 + trap.path.lstrip("/")),
                                    entry("x/evil")],
        "dotdot": [entry("../" * 14 + trap.path.lstrip("/") + "/evil")],
        "absolute": [entry(trap.path + "/evil")],
        "hardlink-out": [entry("h", type=tarfile.LNKTYPE, linkname=trap.path + "/passwd"), entry("h")],
        "hardlink-dotdot": [entry("h", type=tarfile.LNKTYPE, linkname="../" * 14 + trap.path.lstrip("/") + "/passwd")],
        "device": [entry("bin/disk", type=tarfile.BLKTYPE, devmajor=254, devminor=0, mode=0o666)],
        "setuid": [entry("bin/suid", mode=0o6777)],
        "proc-link": [entry("proc", type=tarfile.SYMTYPE, linkname=trap.path)],
    }
    for label, members in evil.items():
        path = f"{ctx.mode.dir}/work/{label}.tar"
        linked = {m.name for m in members if m.type == tarfile.SYMTYPE}
        with tarfile.open(path, "w") as tar:
            for sub in ROOT_DIRS:
                if sub not in linked:
                    tar.addfile(entry(sub, type=tarfile.DIRTYPE, mode=0o755))
            for m in members:
                if m.isfile():
                    m.size = 5
                tar.addfile(m, io.BytesIO(b"evil\n") if m.isfile() else None)
        os.chown(path, ctx.mode.uid, ctx.mode.gid)
        run = ctx.run(["/probe/probe", "F46"], ["--rootfs", path, *BOUND])
        problems += judge_root_run(ctx, run, label)
        os.unlink(path)
    problems += [f"{path} changed on the host" for path in trap.changed()]
    return problems


def fake_procfs(ctx):
    problems = []
    for shape in ("directory", "file", "fake-self", "absent"):
        root = make_root(ctx, skip=("proc",))
        if shape in ("directory", "fake-self"):
            os.makedirs(f"{root}/proc/self/attr")
            os.makedirs(f"{root}/proc/sys/kernel")
            for name in ("self/attr/exec", "self/hostile-fake", "sys/kernel/core_pattern", "self/uid_map"):
                with open(f"{root}/proc/{name}", "w", encoding="utf-8") as f:
                    f.write("fake\n")
            if shape == "fake-self":
                os.symlink("self", f"{root}/proc/thread-self")
        elif shape == "file":
            with open(f"{root}/proc", "w", encoding="utf-8") as f:
                f.write("fake\n")
        own(ctx, root)
        run = ctx.run(["/probe/probe", "F46"], ["--rootfs", root, *BOUND])
        problems += judge_root_run(ctx, run, shape)
        for name in ("self/attr/exec", "self/uid_map", "sys/kernel/core_pattern"):
            text = read_file(f"{root}/proc/{name}", "fake\n")
            if text != "fake\n":
                problems.append(f"{shape}: the fake {name} was written to: {text!r}")
        shutil.rmtree(root, ignore_errors=True)
    return problems


# --- processes --------------------------------------------------------------------------------------------------------


def terminal(ctx):
    """brig -t in a terminal of ours: nothing that was not typed may be waiting in it afterwards."""
    master, slave = pty.openpty()
    env = ctx.h.probe_env(ctx.mode, ctx.off, {"HOSTILE_TTY": "1"})
    argv = ctx.argv(ctx.probe("P14"), ["-t", *BOUND], env, json_out=False)
    seen = []

    def reader():
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                return
            if not data:
                return
            seen.append(data)

    thread = threading.Thread(target=reader, daemon=True)
    thread.start()
    proc, _ = ctx._spawn(argv, slave, None, {})
    # Output of -t goes to the terminal when stdout is one; here stdout is our pipe and stdin the terminal.
    out, err = proc.communicate(timeout=60)
    waiting = 0
    try:
        os.set_blocking(slave, False)
        import termios
        attr = termios.tcgetattr(slave)
        attr[3] &= ~termios.ICANON
        termios.tcsetattr(slave, termios.TCSANOW, attr)
        waiting = len(os.read(slave, 4096))
    except OSError:
        pass
    os.close(slave)
    os.close(master)
    thread.join(2)
    blob = out + b"".join(seen)
    ctx.look_for_canaries(blob, err)
    lines = blob.decode("utf-8", "replace").replace("\r", "").splitlines()
    found = [line for line in lines if line.startswith("BREACH") and not (ctx.off and "unexpected errno" in line)]
    if waiting:
        found.append(f"{waiting} bytes were typed into the operator's terminal")
    if not found and not any(line.startswith("ok") for line in lines):
        found.append(f"the probe did not report: {err[-200:]!r}")
    return found


def _daemon(ctx, how, flags, cause, status):
    beat = f"{ctx.mode.dir}/shared/beat-{secrets.token_hex(4)}"
    write_file(beat, "")
    os.chmod(beat, 0o666)
    inside = beat if "mount_ns" in ctx.off else f"/shared/{os.path.basename(beat)}"
    env = ctx.h.probe_env(ctx.mode, ctx.off, {"HOSTILE_HEARTBEAT": inside})
    run = ctx.run(ctx.probe("P22", *how), ["-v", f"{ctx.mode.dir}/shared:/shared", *flags], env,
                  outer_spec={"watch": beat})
    if ctx.off:
        # Still beating after brig ended, or it lived its whole life (300 beats) while brig waited for it.
        alive = run.outer.get("grew") or os.stat(beat).st_size >= 300
        return ["the daemon outlived its run"] if alive else []
    first = os.stat(beat).st_size
    time.sleep(0.3)  # clock: the time of many beats, if there were a heart left
    problems = status_problem(run, cause, status)
    if first == 0:
        problems.append("the daemon never started")
    if os.stat(beat).st_size != first:
        problems.append("the heartbeat goes on")
    return problems


def daemon(ctx):
    return _daemon(ctx, (), BOUND, "exited", 0)


def daemon_hang(ctx):
    return _daemon(ctx, ("hang",), ("--timeout", ctx.seconds(1)), "timeout", 124)


def partial_output(ctx):
    run = ctx.run(ctx.probe("P27"), ["--timeout", ctx.seconds(1)])
    problems = status_problem(run, "timeout", 124)
    if b"partial output before the end" not in run.out:
        problems.append("what was printed before the timeout is lost")
    return problems


def core_pipe(ctx):
    """Only where the harness may change a setting of the whole machine."""
    if not os.environ.get("HOSTILE_CORE_PATTERN") or os.geteuid() != 0:
        raise Skip("leave to set core_pattern (--core-pattern)")
    old = read_file("/proc/sys/kernel/core_pattern").strip()
    caught = f"{ctx.h.base}/caught"
    handler = f"{ctx.h.base}/handler"
    write_file(handler, f"#!/bin/sh\ncat > /dev/null\necho $1 >> {caught}\n")
    os.chmod(handler, 0o755)
    ctx.before["host"].pop("kernel/core_pattern", None)
    try:
        write_file("/proc/sys/kernel/core_pattern", f"|{handler} %p")
        run = ctx.run(ctx.probe("P29"), BOUND)
    finally:
        write_file("/proc/sys/kernel/core_pattern", old)
    problems = breaches(run, ctx)
    if os.path.exists(caught):
        problems.append("the host's core handler was started")
    return problems


# --- resources --------------------------------------------------------------------------------------------------------


def pids_cause(ctx):
    """Ends badly because of the limit: the cause says so, the status stays the program's."""
    script = "i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; exit 3"
    run = ctx.run(["/bin/sh", "-c", script], ["--pids", "16", *BOUND])
    if run.cause != "pids-limit" or run.rc == 0:
        return [f"expected pids-limit with the program's own status: {run.describe()}"]
    return [] if "pids" in run.outcome.get("limits_hit", []) else ["limits_hit does not name pids"]


def disk_cause(ctx):
    script = "dd if=/dev/zero of=/workspace/f bs=64k count=4096 2>/dev/null || exit 9"
    run = ctx.run(["/bin/sh", "-c", script], ["-m", "128m", "--disk", "16m", *BOUND])
    if run.cause != "disk-limit" or run.rc != 9:
        return [f"expected disk-limit with status 9: {run.describe()}"]
    return [] if "disk" in run.outcome.get("limits_hit", []) else ["limits_hit does not name disk"]


def meminfo(name):
    for line in read_file("/proc/meminfo").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def oom_peak(ctx):
    limit = 64 << 20
    neighbour = ctx.start(["/bin/sh", "-c", "echo READY; sleep 50"], BOUND)
    run = ctx.run(ctx.probe("R03", str(limit), "10"), ["-m", "64m", *BOUND])
    problems = status_problem(run, "oom", 137)
    if neighbour.proc.poll() is not None:
        problems.append("a neighbour died as well")
    neighbour.stop()
    peak = ((run.receipt or {}).get("usage") or {}).get("memory_peak_bytes", 0)
    if not limit // 2 <= peak <= limit * 1.1:
        problems.append(f"peak {peak} with a limit of {limit}")
    if b"start" not in run.out:
        problems.append("output before the kill is lost")
    # A program that is killed by SIGKILL without any shortage is not oom.
    run = ctx.run(["/bin/sh", "-c", "kill -9 $$"], ["-m", "64m", *BOUND])
    return problems + status_problem(run, "signalled", 137, signal.SIGKILL)


def _pair(ctx, name):
    holder = ctx.start(ctx.probe(name, "hold"), BOUND)
    found = breaches(ctx.run(ctx.probe(name, "one"), BOUND), ctx)
    holder.stop()
    return found


def private_pipes(ctx):
    return _pair(ctx, "R10")


def private_inotify(ctx):
    return _pair(ctx, "R16")


def output_flood(ctx):
    problems, cap = [], 1 << 20
    for kind in ("line", "cr", "ansi"):
        run = ctx.run(ctx.probe("R12", "128", kind), ["--output", "1m", "--timeout", ctx.seconds(60)])
        problems += status_problem(run, "exited", 0, label=f"{kind}: ")
        cut = (run.receipt or {}).get("truncated") or {}
        if not (cut.get("stdout") and cut.get("stderr")):
            problems.append(f"{kind}: truncated is {cut}")
        if len(run.out) + len(run.err) > 2 * cap + 8192 or not run.out:
            problems.append(f"{kind}: kept {len(run.out)} and {len(run.err)} bytes of {cap}")
        if run.maxrss > 64 << 20:
            problems.append(f"{kind}: brig itself grew to {run.maxrss >> 20} MiB")
    return problems


def output_kill(ctx):
    run = ctx.run(ctx.probe("R12", "128"),
                  ["--output", "1m", "--on-output-limit", "kill", "--timeout", ctx.seconds(60)])
    return status_problem(run, "output-limit", 137)


def remnants(ctx):
    cycles = int(os.environ.get("HOSTILE_CYCLES", "10"))
    problems = []
    for _ in range(cycles):
        run = ctx.run(ctx.probe("R01", "32"), ["--pids", "32", *BOUND])
        problems += status_problem(run, "exited", 0)
        run = ctx.run(ctx.probe("R03", str(32 << 20), "4"), ["-m", "32m", *BOUND])
        causes = ("oom",) if "memory" in ctx.mode.features else ("exited", "signalled")
        if run.cause not in causes:
            problems.append(f"R03: {run.describe()}")
        if problems:
            break
    return problems


def oom_score(ctx):
    run = ctx.run(ctx.probe("R28"), BOUND)
    problems = breaches(run, ctx)
    if ctx.off:
        return problems
    mine = int(read_file("/proc/self/oom_score_adj", "0"))
    inside = [int(line.split(b"=")[1]) for line in run.out.splitlines() if line.startswith(b"oom_score_adj=")]
    if not inside or (inside[0] != -9999 and inside[0] <= mine):
        problems.append(f"the program's score adjustment {inside} is not above its caller's {mine}")
    return problems


def huge_environment(ctx):
    problems = []
    big = f"{ctx.mode.dir}/work/env"
    shapes = {
        "one value of 32 MiB": lambda f: f.write("A=" + "x" * (32 << 20) + "\n"),
        "a million entries": lambda f: f.writelines(f"V{i}=1\n" for i in range(1000000)),
        "PATH of 100,000 entries": lambda f: f.write("PATH=" + ":".join(f"/nowhere/{i}" for i in range(100000)) + "\n"),
        "no end of line": lambda f: f.write("A" * (8 << 20)),
    }
    for label, make in shapes.items():
        with open(big, "w", encoding="utf-8") as f:
            make(f)
        os.chown(big, ctx.mode.uid, ctx.mode.gid)
        run = ctx.run(["/bin/true"], ["--env-file", big, *BOUND])
        if run.hung or run.rc not in (0, 125, 126, 127):
            problems.append(f"{label}: {run.describe()}")
        if run.maxrss > 256 << 20:
            problems.append(f"{label}: brig itself grew to {run.maxrss >> 20} MiB")
        if run.rc == 125 and len(run.raw_err) > 2000:
            problems.append(f"{label}: the refusal is {len(run.raw_err)} bytes long")
    os.unlink(big)
    run = ctx.run(["/bin/echo", *["x" * 100000] * 12], BOUND)
    if run.hung or run.rc not in (0, 125, 126):
        problems.append(f"1.2 MB of arguments: {run.describe()}")
    return problems


# --- information ------------------------------------------------------------------------------------------------------


def cmdline_secret(ctx):
    """A variable from a file is on nobody's command line, outside or inside."""
    value = f"secret{secrets.token_hex(12)}"
    path = f"{ctx.mode.dir}/work/secrets"
    write_file(path, f"HOSTILE_API_KEY={value}\n")
    os.chown(path, ctx.mode.uid, ctx.mode.gid)
    found = []
    if not ctx.off:
        holder = ctx.start(["/bin/sh", "-c", '[ -n "$HOSTILE_API_KEY" ] && echo READY; sleep 50'],
                           ["--env-file", path, *BOUND])
        for entry in os.listdir("/proc"):
            if entry.isdigit() and value in read_file(f"/proc/{entry}/cmdline"):
                found.append(f"the secret is on the command line of {read_file(f'/proc/{entry}/comm').strip()}")
        holder.stop()
    return found + breaches(ctx.run(ctx.probe("I02"), BOUND), ctx)


def other_tenants(ctx):
    holder = ctx.start(["/bin/sh", "-c", f"echo READY; exec sleep 5{ctx.h.canaries.tcp_port}"],
                       [*BOUND, "--name", "other-tenant"])
    run = ctx.run(ctx.probe("I02"), BOUND)
    holder.stop()
    found = breaches(run, ctx)
    if not ctx.off and b"other-tenant" in run.out:
        found.append("the other sandbox's name shows")
    return found


def fresh_blocks(ctx):
    problems = []
    for _ in range(3):
        plant = ctx.run(ctx.probe("I08-plant", "12"), ["-m", "128m", "--disk", "32m", *BOUND])
        look = ctx.run(ctx.probe("I08", "16"), ["-m", "128m", "--disk", "32m", *BOUND])
        problems += breaches(plant, ctx) + breaches(look, ctx)
    return problems


def helper_environment(ctx):
    """Variables that steer programs: the caller's do not reach the sandbox, the sandbox's do not reach the engine."""
    planted = f"{ctx.h.base}/planted"
    steering = {"BASH_ENV": planted, "ENV": planted, "PYTHONPATH": planted, "PYTHONSTARTUP": planted,
                "NODE_OPTIONS": f"--require {planted}",
                "GIT_DIR": planted, "GIT_SSH_COMMAND": planted, "PERL5OPT": "-Mplanted", "RUBYOPT": "-rplanted",
                "LD_LIBRARY_PATH": planted,
                "GCONV_PATH": planted, "LOCPATH": planted, "TMPDIR": planted, "MALLOC_CHECK_": "3",
                "HTTP_PROXY": "http://planted"}
    run = ctx.run(ctx.probe("I01"), BOUND, caller_env=steering)
    problems = breaches(run, ctx)
    inside = dict(ctx.h.probe_env(ctx.mode, ()), LD_PRELOAD="/probe/none.so", LD_AUDIT="/probe/none.so",
                  GLIBC_TUNABLES="glibc.malloc.check=3",
                  BRIG_TEST_OFF="all", BRIG_STATE_DIR="/workspace", MALLOC_TRACE="/workspace/trace")
    return problems + breaches(ctx.run(ctx.probe("P11"), BOUND, env=inside), ctx)


def no_knobs(ctx):
    """The switch that makes the other half of this suite possible is not in the build people use."""
    run = ctx.run(ctx.probe("P11"), BOUND, caller_env={"BRIG_TEST_OFF": "all"})
    problems = breaches(run, ctx)
    layers = ((run.receipt or {}).get("protection") or {}).get("layers") or {}
    for name in ("mount_ns", "pid_ns", "net_ns", "seccomp", "caps", "no_new_privs"):
        if not (layers.get(name) or {}).get("on"):
            problems.append(f"the statement says {name} is off")
    return problems


# --- the result channel -----------------------------------------------------------------------------------------------


def marker_forge(ctx):
    run = ctx.run(ctx.probe("C01"), BOUND)
    problems = status_problem(run, "exited", 7) + run.breaches()
    if run.outcome.get("exit_code") != 7 or b'"stdout":"forged"' not in run.out or run.out != run.err:
        problems.append(f"the output was taken for more than data: {run.describe()}")
    plain = ctx.run(ctx.probe("C01"), BOUND, json_out=False)
    if plain.rc != 7 or plain.raw_out != run.out:
        problems.append(f"without -o json: status {plain.rc}")
    return problems


def partial_frame(ctx):
    text = b'{"result": [1, 2, \xe2\x82'
    problems = []
    for how, cause, status, sig in (("kill", "signalled", 137, signal.SIGKILL),
                                    ("abort", "signalled", 134, signal.SIGABRT),
                                    ("exit", "exited", 3, None), ("stop", "timeout", 124, None)):
        run = ctx.run(ctx.probe("C04", how), ["--timeout", ctx.seconds(1 if how == "stop" else 30)])
        problems += status_problem(run, cause, status, sig, f"{how}: ")
        if run.out != text:
            problems.append(f"{how}: output {run.out!r}")
    return problems


def odd_bytes(ctx):
    wants = {"all": bytes(range(256)), "mixed": "\ufeffcaf\u00e9 \U0001f4a9\n".encode(),
             "bad": b"\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xed\xbf\xbf\xf4\x90\x80\x80\xfe\xff\x00\x80 end"}
    problems = []
    for which, want in wants.items():
        run = ctx.run(ctx.probe("C06", which), BOUND)
        problems += status_problem(run, "exited", 0, label=f"{which}: ")
        if run.out != want or run.err != bytes(range(128, 256)):
            problems.append(f"{which}: bytes changed: {run.out[:80]!r}")
        if which == "mixed" and (run.receipt or {}).get("stdout_encoding") != "utf-8":
            problems.append("text is not given as text")
        plain = ctx.run(ctx.probe("C06", which), BOUND, json_out=False)
        if plain.raw_out != want or bytes(range(128, 256)) not in plain.raw_err:
            problems.append(f"{which}: bytes changed on the way through")
    return problems


def interleave(ctx):
    writers, lines = 100, 50
    run = ctx.run(ctx.probe("C07", str(writers), str(lines)), ["--pids", "128", *BOUND])
    problems = status_problem(run, "exited", 0)
    seen = set()
    for odd, stream in ((0, run.out), (1, run.err)):
        for line in stream.split(b"\n")[:-1]:
            words = line.split(b" ")
            if len(line) != 255 or len(words) != 3 or words[2] != bytes([97 + int(words[0][1:]) % 26]) * len(words[2]):
                problems.append(f"a broken line: {line[:60]!r}")
                break
            if int(words[1][1:]) % 2 != odd:
                problems.append("a line on the wrong stream")
                break
            seen.add((words[0], words[1]))
    if len(seen) != writers * lines:
        problems.append(f"{len(seen)} of {writers * lines} lines arrived")
    return problems


def exit_games(ctx):
    games = [(("exit", "0"), 0), (("exit", "42"), 42), (("exit", "256"), 0), (("exit", "259"), 3),
             (("exit", "-1"), 255), (("raw", "511"), 255),
             (("thread", "21"), 21), (("leader", "22"), 22), (("child", "23"), 23), (("orphan", "24"), 24),
             (("late", "25"), 25), (("exec", "26"), 26)]
    problems = []
    for args, status in games:
        run = ctx.run(ctx.probe("C09", *args), BOUND)
        problems += status_problem(run, "exited", status, label=f"{args}: ")
        if run.outcome.get("exit_code") != status:
            problems.append(f"{args}: exit_code {run.outcome.get('exit_code')}")
    for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGUSR1, signal.SIGPIPE, 34, 64):
        run = ctx.run(ctx.probe("C09", "signal", str(int(sig))), BOUND)
        problems += status_problem(run, "signalled", 128 + int(sig), int(sig), f"signal {int(sig)}: ")
    run = ctx.run(["/nowhere/program"], BOUND)
    if run.rc != 127:
        problems.append(f"a missing program: {run.describe()}")
    run = ctx.run(["/etc/passwd"], BOUND)
    if run.rc != 126:
        problems.append(f"a file that cannot be executed: {run.describe()}")
    return problems


def fake_claims(ctx):
    problems = []
    for status in (137, 124, 125, 126, 127, 255):
        run = ctx.run(ctx.probe("C10", str(status)), BOUND)
        problems += status_problem(run, "exited", status)
        if run.outcome.get("limits_hit"):
            problems.append(f"limits_hit is {run.outcome['limits_hit']}")
    return problems


def boundary(ctx):
    """Ends at the very moment of the time limit: one of the two, and all fields agree."""
    problems = []
    for i in range(16):
        run = ctx.run(ctx.probe("C13", str(int((280 + 5 * i) * ctx.scale))), ["--timeout", f"{0.3 * ctx.scale:g}"])
        pair = (run.cause, run.rc)
        if pair not in (("exited", 0), ("timeout", 124)):
            problems.append(f"two stories: {run.describe()}")
    run = ctx.run(ctx.probe("C13", str(int(30000 * ctx.scale)), "handler"), ["--timeout", f"{0.3 * ctx.scale:g}"])
    problems += status_problem(run, "timeout", 124, label="ends with 0 when told to stop: ")
    if run.receipt is not None and json.dumps(run.receipt).count('"cause"') != 1:
        problems.append("more than one cause")
    return problems


HUGE_POOL = "/proc/sys/vm/nr_hugepages"


@contextlib.contextmanager
def _huge_pool(pages):
    """A pool of huge pages, as a database's host has one; the machine's own size afterwards."""
    with open(HUGE_POOL, encoding="ascii") as f:
        before = f.read().strip()
    try:
        with open(HUGE_POOL, "w", encoding="ascii") as f:
            f.write(str(int(before) + pages))
        with open(HUGE_POOL, encoding="ascii") as f:
            if int(f.read()) < int(before) + pages:
                raise Skip("memory in one piece for huge pages")
        yield
    except OSError as e:
        raise Skip(f"leave to set vm.nr_hugepages ({e.strerror})") from e
    finally:
        with contextlib.suppress(OSError), open(HUGE_POOL, "w", encoding="ascii") as f:
            f.write(before)


def huge_pages(ctx):
    with _huge_pool(4):
        return breaches(ctx.run(ctx.probe("S02"), BOUND), ctx)


SHARED_FILE = "/usr/share/common-licenses/GPL-3"  # nobody maps it, so nothing keeps its pages but the cache


def _pages_in_memory(path):
    """How many pages of the file are in the page cache: mincore() tells root the truth."""
    size, libc = os.path.getsize(path), ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        vec, at = (ctypes.c_ubyte * pages)(), ctypes.c_char.from_buffer(m)
        rc = libc.mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(size), vec)
        del at
        if rc != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(v & 1 for v in vec), pages


def page_cache(ctx):
    with open(SHARED_FILE, "rb") as f:
        f.read()
    before, pages = _pages_in_memory(SHARED_FILE)
    if before != pages:
        raise Skip("a page cache that keeps what was read")
    run = ctx.run(ctx.probe("S06", SHARED_FILE), BOUND)
    found = breaches(run, ctx)
    if b"DROPPED" not in run.out:
        found.append(f"the probe did not report: {run.describe()}")
    after, _ = _pages_in_memory(SHARED_FILE)
    return found + ([f"{pages - after} of {pages} pages were dropped from inside"] if after < pages else [])
