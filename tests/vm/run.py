#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make test-vm`: this build of brig on a Debian kernel with cgroup v2, inside QEMU.

Development machines and CI runners often have hybrid or v1 cgroups, or a kernel much newer than the one our users run.
So the cases of tests/vm/guest/*.sh run on Debian's own cloud kernel (6.1: all v2 controllers, Landlock ABI 2), booted
by software emulation; KVM is not needed.  Nothing is installed: the kernel and busybox packages are downloaded and
unpacked into the build directory, and the machine is one initramfs that this script writes itself (so that ownership
and setuid bits need no root).

How it goes:
  1. fetch:  apt-get download of the kernel and of busybox-static, once; kept in BUILD/vm
  2. pack:   busybox, the installed tree of this build, mkfs.ext4, newuidmap, their libraries, the modules and
             the cases, as cpio
  3. boot:   the init copies everything to a tmpfs and switches to it (pivot_root, which brig needs, fails on the
             initramfs), mounts what a normal system mounts, runs the cases, prints one `@@` line per case, powers off
  4. a second, small machine has a carried brig-init as its only inhabitant (carried.py)
  5. count:  those lines are the result; a machine that stops without its last line is a failure, one that was too slow
             was not run

The last line printed is `N passed, N failed, N skipped`.
"""

import argparse
import fnmatch
import importlib.util
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

import carried  # noqa: E402  (it lies beside this file)
import keeper  # noqa: E402  (it lies beside our directory)
import promises  # noqa: E402

MODULES = ("overlay", "loop")  # ext4 and the rest are built into Debian's cloud kernel
HOST_PROGRAMS = ("dash", "ldconfig", "mkfs.ext4", "mke2fs", "newuidmap", "newgidmap", "setpriv", "timeout")
SETUID = ("newuidmap", "newgidmap")
TEST_PROGRAMS = ("hostile/hostile-probe", "hostile/syscall_wall", "vm/engines", "e2e/service_host")
TIMES = 20  # limits in time are stretched: emulation is slow
HOSTILE_LEFT_OUT = {  # cases of tests/hostile that say nothing here
    "F12": "needs a file shared by the harness",
    "F33": "Debian's 6.1 lets everybody set security.SMACK64 (the BPF LSM hides the check, fixed in Linux 6.9); no "
    "harm without Smack",
    "F38": "needs a socket of the harness",
    "P17": "needs shared memory of the harness",
    "R07-deep": "half a minute of emulation",
    "R13": "compares CPU shares",
    "R18": "needs a /usr larger than this one",
}
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Fail(Exception):
    """Something outside the machine went wrong; the text is the whole explanation."""


def run(cmd, **kw):
    done = subprocess.run(cmd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **kw)
    if done.returncode != 0:
        raise Fail(f"{' '.join(map(str, cmd))}: status {done.returncode}\n{done.stdout.strip()[-2000:]}")
    return done.stdout


# ---- 1. fetch ------------------------------------------------------------------------------------------------------


def apt_download(package, into):
    """The .deb of `package`, unpacked into `into`; kept from an earlier run if it is there."""
    mark = into / ".unpacked"
    if mark.exists():
        return
    shutil.rmtree(into, ignore_errors=True)
    with tempfile.TemporaryDirectory() as tmp:
        # Not as _apt, which may not write here; without this apt only warns, but on stderr of every run.
        run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], cwd=tmp)
        debs = list(pathlib.Path(tmp).glob("*.deb"))
        if len(debs) != 1:
            raise Fail(f"apt-get download {package}: expected one file, got {len(debs)}")
        into.mkdir(parents=True)
        run(["dpkg-deb", "-x", str(debs[0]), str(into)])
    mark.write_text(package + "\n")


def kernel_package():
    """linux-image-cloud-amd64 is empty; the kernel is in the package that it depends on."""
    text = run(["apt-cache", "depends", "linux-image-cloud-amd64"])
    found = re.search(r"Depends: (linux-image-6\.1\S+)", text) or re.search(r"Depends: (linux-image-\S+)", text)
    if not found:
        raise Fail("apt-cache knows no linux-image-cloud-amd64; run `apt-get update` first")
    return found.group(1)


def fetch(vmdir):
    kernels = vmdir / "kernel"
    have = sorted(kernels.glob("boot/vmlinuz-*")) if (kernels / ".unpacked").exists() else []
    if not have:
        apt_download(kernel_package(), kernels)
    apt_download("busybox-static", vmdir / "busybox")
    have = sorted(kernels.glob("boot/vmlinuz-*"))
    busy = vmdir / "busybox/bin/busybox"
    if not have or not busy.exists():
        raise Fail("the downloaded packages hold no kernel or no busybox")
    return have[-1], busy


# ---- 2. pack -------------------------------------------------------------------------------------------------------


class Cpio:
    """A newc archive written by hand: owner, mode and device numbers are what we say, whoever runs this."""

    def __init__(self, path):
        self.out = open(path, "wb")
        self.ino = 1
        self.dirs = set()
        self.seen = set()

    def entry(self, name, mode, data=b"", uid=0, gid=0, rdev=(0, 0)):
        name = name.strip("/")
        if name in self.seen:
            return
        self.seen.add(name)
        parent = os.path.dirname(name)
        if parent:
            self.mkdir(parent)
        raw = name.encode() + b"\0"
        fields = (self.ino, mode, uid, gid, 1, 0, len(data), 0, 0, rdev[0], rdev[1], len(raw), 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields)
        self.out.write(head + raw + b"\0" * (-(len(head) + len(raw)) % 4))
        self.out.write(data + b"\0" * (-len(data) % 4))
        self.ino += 1

    def mkdir(self, name, mode=0o755, uid=0, gid=0):
        name = name.strip("/")
        if name and name not in self.dirs:
            self.dirs.add(name)
            self.entry(name, stat.S_IFDIR | mode, uid=uid, gid=gid)

    def file(self, name, data, mode=0o644):
        self.entry(name, stat.S_IFREG | mode, data if isinstance(data, bytes) else data.encode())

    def copy(self, name, source, mode=0o755):
        self.file(name, pathlib.Path(source).read_bytes(), mode)

    def link(self, name, target):
        self.entry(name, stat.S_IFLNK | 0o777, target.encode())

    def close(self):
        self.entry("TRAILER!!!", 0)
        self.out.close()


def merged(path):
    """The name of a host path in a usr-merged system: /lib/x -> /usr/lib/x."""
    path = str(path)
    return "/usr" + path if re.match(r"/(bin|sbin|lib|lib64)/", path) else path


def libraries(program, search=()):
    """Every shared object `program` needs, as {path inside: file here}; nothing for static programs and scripts."""
    env = {"PATH": SYSTEM_PATH, "LD_LIBRARY_PATH": ":".join(map(str, search)), "LC_ALL": "C"}
    done = subprocess.run(["ldd", str(program)], text=True, capture_output=True, env=env, check=False)
    found = {}
    for line in done.stdout.splitlines():
        if "not found" in line:
            raise Fail(f"{program}: {line.strip()}")
        hit = re.search(r"(?:=> )?(/\S+) \(0x", line)
        if hit and not any(hit.group(1).startswith(str(s)) for s in search):
            found[merged(hit.group(1))] = os.path.realpath(hit.group(1))
    return found


def pack_base(cpio, busy):
    for d in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "proc", "sys", "dev", "run", "mnt", "root",
              "var/lib", "var/log", "vm/guest"):
        cpio.mkdir(d)
    for d in ("bin", "sbin", "lib", "lib64"):
        cpio.link(d, "usr/" + d)
    cpio.mkdir("tmp", 0o1777)
    cpio.mkdir("var/tmp", 0o1777)
    cpio.mkdir("home/tester", 0o755, 1000, 1000)
    cpio.mkdir("home/plain", 0o755, 1001, 1001)
    cpio.copy("usr/bin/busybox", busy)
    cpio.link("usr/bin/sh", "dash")  # Debian's; the shell of busybox prefers its own applets to programs
    for line in run([str(busy), "--list-full"]).split():
        name = os.path.basename(line)
        if name not in HOST_PROGRAMS and name != "sh":
            cpio.link(f"usr/{'sbin' if 'sbin/' in line else 'bin'}/{name}", "/usr/bin/busybox")
    cpio.file(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\ntester:x:1000:1000::/home/tester:/bin/sh\n"
        "plain:x:1001:1001::/home/plain:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    )
    cpio.file("etc/group", "root:x:0:\ntester:x:1000:\nplain:x:1001:\nnogroup:x:65534:\n")
    cpio.file("etc/subuid", "tester:100000:65536\n")  # `plain` has none, on purpose
    cpio.file("etc/subgid", "tester:100000:65536\n")
    cpio.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    cpio.file("etc/hosts", "127.0.0.1 localhost\n")
    cpio.file("etc/hostname", "brigvm\n")


def pack_programs(cpio):
    libs = {}
    for name in HOST_PROGRAMS:
        path = shutil.which(name, path=SYSTEM_PATH)
        if not path:
            raise Fail(f"{name} is not installed; `make test-vm` installs it")
        cpio.copy(merged(path), os.path.realpath(path), 0o4755 if name in SETUID else 0o755)
        libs.update(libraries(path))
    if os.path.exists("/etc/mke2fs.conf"):
        cpio.copy("etc/mke2fs.conf", "/etc/mke2fs.conf", 0o644)
    return libs


def pack_build(cpio, build, tmp):
    """This build as `meson install` lays it out, at the very paths it was configured for."""
    dest = pathlib.Path(tmp) / "dest"
    run(["meson", "install", "-C", str(build), "--destdir", str(dest), "--no-rebuild", "--quiet"])
    libs, own = {}, {p.parent for p in dest.rglob("*.so*")}
    for path in sorted(dest.rglob("*")):
        name = merged("/" + str(path.relative_to(dest)))
        if path.is_symlink():
            cpio.link(name, os.readlink(path))
        elif path.is_dir():
            cpio.mkdir(name)
        elif "/include/" not in name and "/man/" not in name and not name.endswith(".a"):
            cpio.copy(name, path, 0o755 if os.access(path, os.X_OK) else 0o644)
            if os.access(path, os.X_OK) or ".so" in path.name:
                libs.update(libraries(path, own))
    for name in TEST_PROGRAMS:
        program = build / "tests" / name
        if not program.exists():
            raise Fail(f"{program} is not there; configure the build with -Dtests=true")
        cpio.copy(f"usr/bin/{program.name}", program)
        libs.update(libraries(program, [build]))
    dirs = sorted({merged("/" + str(d.relative_to(dest))) for d in own})
    return libs, dirs


def pack(image, kernel, busy, build, only):
    version = kernel.name[len("vmlinuz-") :]
    modules = kernel.parent.parent / "lib/modules" / version
    cpio = Cpio(image)
    with tempfile.TemporaryDirectory() as tmp:
        libs = pack_programs(cpio)
        libdirs = []
        if build:
            more, libdirs = pack_build(cpio, build, tmp)
            libs.update(more)
            bindir = next((n for n in cpio.seen if n.endswith("/bin/brig") or n == "bin/brig"), None)
            if not bindir:
                raise Fail("meson install put no bin/brig anywhere")
            cpio.file("vm/path", "/" + os.path.dirname(bindir) + "\n")
        for inside, here in sorted(libs.items()):
            cpio.copy(inside, here)
    pack_base(cpio, busy)
    cpio.file("etc/ld.so.conf", "".join(d + "\n" for d in libdirs))
    for mod in MODULES:
        found = list(modules.rglob(mod + ".ko*"))
        if not found:
            raise Fail(f"the kernel package holds no module {mod}")
        cpio.copy(f"vm/modules/{found[0].name}", found[0], 0o644)
    cpio.file("vm/module-order", "".join(m + "\n" for m in MODULES))
    cpio.file("vm/only", only + "\n")
    cpio.copy("init", HERE / "init.sh")
    cpio.copy("vm/stage2.sh", HERE / "stage2.sh")
    cpio.file("vm/hostile", hostile_table())
    for case in sorted((HERE / "guest").glob("*.sh")):
        cpio.copy(f"vm/guest/{case.name}", case)
    cpio.entry("dev/console", stat.S_IFCHR | 0o600, rdev=(5, 1))
    cpio.close()


def hostile_table():
    """The plain cases of tests/hostile (one probe, one run, an expected end), a line each: id, causes, status, flags,
    -- command."""
    spec = importlib.util.spec_from_file_location("cases", ROOT / "tests/hostile/cases.py")
    cases = importlib.util.module_from_spec(spec)
    sys.modules["cases"] = cases
    spec.loader.exec_module(cases)
    lines = []
    for case in cases.CASES:
        if case.scenario or case.command or case.id in HOSTILE_LEFT_OUT:
            continue
        want = case.expectation("root")
        status = want.status if want.status is not None else want.exit_code
        times = 4 if want.cause == ("timeout",) else TIMES
        flags = [f"{float(f[1:]) * times:g}" if str(f).startswith("@") else str(f) for f in case.flags]
        flags += [w for k, v in case.env.items() for w in ("-e", f"{k}={v}")]
        head = [case.id, ",".join(want.cause), "-" if status is None else str(status)]
        lines.append(" ".join([*head, *flags, "--", "/usr/bin/hostile-probe", *case.argv]))
    return "".join(line + "\n" for line in lines)


# ---- 3. boot, 5. count ---------------------------------------------------------------------------------------------


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped, self.done, self.late = [], [], [], False, False

    def line(self, text):
        """Takes one `@@` line of the machine.  Anything else is the log."""
        hit = re.match(r"@@ (ok|not ok|skip|note|done)\b ?(.*)", text)
        if not hit:
            return False
        kind, rest = hit.groups()
        if kind == "done":
            self.done = True
            return True
        if kind != "note":
            {"ok": self.passed, "not ok": self.failed, "skip": self.skipped}[kind].append(rest)
        print(f"vm: {kind:6} {rest}", flush=True)
        return True


def boot(kernel, image, limit, log_path, memory, kvm):
    accel = ["-accel", "kvm", "-cpu", "host"] if kvm else ["-accel", "tcg", "-cpu", "max"]
    cmd = ["qemu-system-x86_64", "-machine", "pc", *accel, "-smp", "2", "-m", str(memory), "-nographic", "-no-reboot"]
    cmd += ["-nodefaults", "-serial", "stdio", "-monitor", "none", "-nic", "none", "-kernel", str(kernel), "-initrd",
            str(image)]
    cmd += ["-append", "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic mitigations=off random.trust_cpu=on"]
    tally, end = Tally(), time.monotonic() + limit
    # The deadline belongs to timeout(1), so that a silent machine ends too and reading stays a plain loop.
    cmd = ["timeout", "-k", "5", str(int(limit)), *cmd]
    with open(log_path, "w", encoding="utf-8") as log:
        with subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as qemu:
            for raw in qemu.stdout:
                text = raw.decode("utf-8", "replace").replace("\r", "").rstrip("\n")
                log.write(text + "\n")
                tally.line(text[text.find("@@ ") :] if "@@ " in text else text)
    tally.late = not tally.done and time.monotonic() >= end
    if not tally.done:
        why = (f"no end within {int(limit)} s" if tally.late
               else f"the machine stopped early (qemu status {qemu.returncode})")
        tail = pathlib.Path(log_path).read_text(encoding="utf-8").splitlines()[-25:]
        print("\n".join("vm| " + t for t in tail))
        if not tally.late:
            tally.failed.append(f"boot: {why}")
        print(f"vm: {'not run' if tally.late else 'not ok'} boot: {why}")
    return tally


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--build", default=str(ROOT / "build"), help="build directory with the brig to test")
    ap.add_argument("--dummy", action="store_true", help="boot without brig: only the cases about the machine itself")
    ap.add_argument("--only", default="", help="run only the cases whose name matches this pattern of the shell")
    ap.add_argument("--limit", type=float, default=24 * 60,
                    help="seconds for the machine, boot to power-off (default %(default)s)")
    ap.add_argument("--memory", type=int, default=1024, help="MiB of the machine")
    ap.add_argument("--kvm", action="store_true",
                    help="use KVM (faster for debugging; the result that counts is without)")
    args = ap.parse_args()

    build = pathlib.Path(args.build).resolve()
    vmdir = build / "vm" if build.exists() else ROOT / "build-vm"
    vmdir.mkdir(parents=True, exist_ok=True)
    image, log = vmdir / "initramfs.cpio", vmdir / "console.log"
    started = time.monotonic()
    try:
        kernel, busy = fetch(vmdir)
        pack(image, kernel, busy, None if args.dummy else build, args.only or "*")
        print(f"vm: {kernel.name}, image {image.stat().st_size >> 20} MiB, ready after "
              f"{time.monotonic() - started:.0f} s", flush=True)
        tally = boot(kernel, image, args.limit, log, args.memory, args.kvm)
        if not args.dummy and fnmatch.fnmatch("carried_command", args.only or "*"):
            for name, why in carried.run(Cpio, kernel, busy, build, vmdir):
                tally.line(f"@@ {'not ok' if why else 'ok'} {name} {why}".rstrip())
    except Fail as why:
        print(f"vm: {why}")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    if os.environ.get("BRIG_TEST_RESULTS"):
        told = (("pass", tally.passed), ("fail", tally.failed), ("skip", tally.skipped))
        found = [(status, f"vm:{text.split()[0].rstrip(':')}") for status, texts in told for text in texts if text]
        promises.save(os.environ["BRIG_TEST_RESULTS"], found)
    if tally.failed:
        print(f"vm: the whole console is in {os.path.relpath(log)}")
    print(f"vm: {time.monotonic() - started:.0f} s")
    if tally.late:
        print("1 not run")
    print(f"{len(tally.passed)} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed or tally.late or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(keeper.keep(lambda _ignored: main()))
