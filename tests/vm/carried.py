# SPDX-License-Identifier: Apache-2.0
"""A carried brig-init as the only inhabitant of a QEMU machine: brig-boot is its /init, the stream is virtio-serial.

Cases: it comes up to HELLO and STARTED and runs a command; a client that dies in the middle of a frame is followed by
another, which finds the output complete; the layers of the guest are on.
"""

import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

MODULES = ("virtio", "virtio_ring", "virtio_mmio", "virtio_console")
ENV = ("PATH=/usr/bin:/bin",)


def tsc_khz():
    """The rate of the time stamp counter, or None. Without it one emulated boot in three hangs on a busy host."""
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("cpu MHz"):
            return int(float(line.split(":")[1]) * 1000)
    return None


def pack(cpio, kernel, busy, build):
    modules = kernel.parent.parent / "lib/modules" / kernel.name[len("vmlinuz-"):]
    for d in ("dev", "proc", "tmp", "run", "workspace", "etc", "usr/bin"):
        cpio.mkdir(d)
    cpio.link("bin", "usr/bin")
    cpio.copy("init", build / "src/brig-boot")
    cpio.copy(".brig/init", build / "src/brig-init")
    cpio.copy("usr/bin/busybox", busy)
    for name in ("sh", "cat", "echo", "seq", "head"):
        cpio.link(f"usr/bin/{name}", "busybox")
    present = [(name, list(modules.rglob(f"{name}.ko"))) for name in MODULES]
    for name, found in present:
        if found:
            cpio.copy(f"modules/{name}.ko", found[0], 0o644)
    cpio.file("modules/order", "".join(f"{name}.ko\n" for name, found in present if found))
    cpio.entry("dev/console", stat.S_IFCHR | 0o600, rdev=(5, 1))
    cpio.close()


def machine(kernel, image, path, log):
    rate = tsc_khz()
    append = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off random.trust_cpu=on reboot=t"
    append += f" tsc_early_khz={rate}" if rate else ""
    cmd = ["qemu-system-x86_64", "-M", "microvm,acpi=on", "-accel", "tcg", "-cpu", "max", "-m", "192", "-nodefaults",
           "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", str(kernel), "-initrd",
           str(image), "-append", append, "-device", "virtio-serial-device", "-chardev",
           f"socket,id=stream,path={path},server=on,wait=off", "-device", "virtserialport,chardev=stream,name=brig"]
    return subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def connect(path, qemu, limit):
    end = time.monotonic() + limit
    while True:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(limit)
        if sock.connect_ex(str(path)) == 0:
            return sock
        sock.close()
        if qemu.poll() is not None or time.monotonic() > end:
            raise AssertionError("QEMU does not listen")
        time.sleep(0.05)


def greeted_again(path, qemu, limit):
    """A connection whose HELLO was answered. A guest that is too slow to see that one client went and another came
    waits for the rest of the old frame: then it is given longer."""
    import carrykit  # noqa: PLC0415

    nonce, pause, end = 100, 0.1, time.monotonic() + limit
    while time.monotonic() < end:
        nonce, pause = nonce + 1, pause * 2
        sock, seen = connect(path, qemu, limit), b""
        sock.settimeout(5)
        try:
            sock.sendall(carrykit.hello(nonce))
            while more := sock.recv(65536):
                seen += more
                if carrykit.hello(nonce)[24:] in seen:
                    return sock
        except TimeoutError:
            pass
        sock.close()
        time.sleep(pause)
    raise AssertionError("HELLO is not answered")


def talk(path, qemu, limit):
    """The cases: yields (name, what went wrong or "")."""
    os.environ["BRIG_TEST_PATIENCE"] = str(limit)
    import carrykit  # noqa: PLC0415  (it reads its patience when it is loaded)
    import svckit  # noqa: PLC0415

    sock = connect(path, qemu, limit)
    service, caps, read = carrykit.open_connection(sock, carrykit.start(workdir="/", host=[0] * 8))
    assert caps == carrykit.CAP_SERVICE | carrykit.CAP_CARRIED, caps
    got = service.run("echo", "from the machine", cwd="/tmp", env=ENV)
    yield "carried_command", "" if got == (0, "from the machine\n", "") else repr(got)
    off = [name for name in ("caps", "no_new_privs", "seccomp", "landlock", "fds") if not read[name][0]]
    yield "carried_layers", f"off: {off}" if off else ""
    number, begin = service.start("sh", "-c", "seq 2000; exec cat", flags=svckit.STDIN, cwd="/tmp", env=ENV)
    begin.ok()
    output = service.attach(number)
    service.until(lambda: len(output.out[1]) > 100)
    sock.sendall(b"\x60\xea\0\0\x11\0\0\0\0\0\0\0\x63\0\0\0half")  # of a frame of 60,000 bytes
    sock.close()
    sock = greeted_again(path, qemu, limit)
    sock.settimeout(limit)
    sock.sendall(carrykit.frame(carrykit.ATTACH))
    kind, payload = carrykit.receive_frame(sock)
    same = kind == carrykit.STARTED and carrykit.readings(payload)[0] == read
    service = svckit.Service(sock)
    output = service.attach(number)
    service.until(lambda: output.out[1].endswith(b"2000\n"))
    whole = output.text() == "".join(f"{i}\n" for i in range(1, 2001))
    yield "carried_reconnect", "" if same and whole else f"same statement: {same}, whole output: {whole}"
    sock.close()


def run(cpio_class, kernel, busy, build, vmdir, limit=240):
    """[(name, what went wrong or "")]"""
    image, log_path = vmdir / "carried.cpio", vmdir / "carried.log"
    pack(cpio_class(image), kernel, busy, build)
    done = []
    with tempfile.TemporaryDirectory() as tmp, open(log_path, "wb") as log:
        qemu = machine(kernel, image, pathlib.Path(tmp) / "s", log)
        try:
            for case in talk(pathlib.Path(tmp) / "s", qemu, limit):
                done.append(case)
        except (AssertionError, OSError, TypeError) as why:
            done.append(("carried", f"{type(why).__name__}: {why}"))
        finally:
            qemu.kill()
            qemu.wait()
    return done
