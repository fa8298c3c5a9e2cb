#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Firecracker, for tests only. It runs no machine: it answers the API as Firecracker's description says,
keeps what was asked in /run/standin.log, and has the brig-init of the initramfs behind its vsock socket, as a process
beside itself. FAULT is what it does wrong; test_firecracker.py writes another word there."""

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

FAULT = ""
KVM_GET_API_VERSION = 0xAE00
PORT = b"CONNECT 2744\n"
INIT, STREAM, LOG = "/tmp/standin-init", "/run/standin-stream", "/run/standin.log"


def words():
    """The command line, as Firecracker takes it."""
    rest, found = sys.argv[1:], {}
    while rest:
        name = rest.pop(0)
        if name not in ("--api-sock", "--id", "--no-seccomp"):
            sys.exit(f"Found argument '{name}' which wasn't expected")
        found[name] = True if name == "--no-seccomp" else rest.pop(0)
    return found


def unpack(archive, wanted):
    """One file of a cpio archive of the form newc."""
    with open(archive, "rb") as file:
        data = file.read()
    at = 0
    while True:
        fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
        size, name_size = fields[6], fields[11]
        name = data[at + 110:at + 110 + name_size - 1].decode()
        body = (at + 110 + name_size + 3) & ~3
        if name == wanted:
            return data[body:body + size]
        if name == "TRAILER!!!":
            sys.exit(f"there is no {wanted} in {archive}")
        at = (body + size + 3) & ~3


def listen(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(16)
    return sock


class Machine:
    """What was asked for, and what runs then."""

    def __init__(self, name):
        self.name, self.told, self.refusals = name, {}, 3 if FAULT == "late" else 0

    def start(self):
        boot = self.told["/boot-source"]
        for path in (boot["kernel_image_path"], self.told["/drives/root"]["path_on_host"]):
            with open(path, "rb") as file:
                file.read(1)
        if FAULT == "panic":
            print("Kernel panic - not syncing: Attempted to kill init!", flush=True)
            os._exit(0)
        if "brig.stream=vsock" not in boot["boot_args"].split():
            sys.exit("the guest does not listen on its vsock")
        with open(INIT, "wb") as file:
            file.write(unpack(boot["initrd_path"], "skel/.brig/init"))
        os.chmod(INIT, 0o700)
        subprocess.Popen([INIT, "carry", "--listen", STREAM])
        vsock = listen(self.told["/vsock"]["uds_path"])
        threading.Thread(target=self.forward_all, args=(vsock,), daemon=True).start()

    def forward_all(self, vsock):
        while True:
            threading.Thread(target=self.forward, args=(vsock.accept()[0],), daemon=True).start()

    def forward(self, host):
        line = b""
        while not line.endswith(b"\n"):
            got = host.recv(1)
            if not got:
                return
            line += got
        guest = socket.socket(socket.AF_UNIX)
        try:
            if line != PORT or self.refusals > 0:
                self.refusals -= 1
                raise ConnectionRefusedError
            guest.connect(STREAM)
        except (FileNotFoundError, ConnectionRefusedError):
            host.settimeout(0.5)  # nobody listens on that port of the guest; what was sent is read, and then it ends
            try:
                while host.recv(65536):
                    pass
            except TimeoutError:
                pass
            host.close()
            return
        host.sendall(b"OK 1073741824\n")
        ends = {host: guest, guest: host}
        while True:
            for end in select.select(list(ends), [], [])[0]:
                data = end.recv(65536)
                if not data:
                    host.close()
                    guest.close()
                    return
                ends[end].sendall(data)

    def answer(self, method, target, body):
        """(status, JSON or None)"""
        if FAULT == f"refuse {target}":
            return 400, {"fault_message": f"a reason\nfor {target}"}
        if (method, target) == ("GET", "/version"):
            return 200, {"firecracker_version": "1.7.0" if FAULT == "old" else "1.15.0"}
        if method != "PUT":
            return 400, {"fault_message": f"Invalid request method and/or path: {method} {target}"}
        self.told[target] = body
        if target == "/actions" and body["action_type"] == "InstanceStart":
            self.start()
        return 204, None


def receive(conn, data):
    """(method, target, headers, body, what follows)"""
    while b"\r\n\r\n" not in data:
        got = conn.recv(65536)
        if not got:
            return None
        data += got
    head, data = data.split(b"\r\n\r\n", 1)
    first, *lines = head.decode().split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
    size = int(headers.get("content-length", "0"))
    while len(data) < size:
        data += conn.recv(65536)
    method, target, version = first.split(" ")
    if version != "HTTP/1.1":
        sys.exit(f"{version} is not spoken here")
    return method, target, headers, data[:size], data[size:]


def serve(conn, machine):
    rest = b""
    while True:
        found = receive(conn, rest)
        if not found:
            return
        method, target, headers, body, rest = found
        with open(LOG, "a", encoding="utf-8") as log:
            line = {"method": method, "target": target, "headers": headers, "body": body.decode()}
            log.write(json.dumps(line) + "\n")
        status, said = machine.answer(method, target, json.loads(body) if body else None)
        text = json.dumps(said).encode() if said is not None else b""
        head = f"HTTP/1.1 {status} \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n"
        if text:
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        reply = head.encode() + b"\r\n" + text
        if FAULT == f"die {target}":
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == f"hang {target}":
            time.sleep(3600)
        if FAULT == f"half {target}":
            conn.sendall(reply[:20])
            conn.close()
            return
        if FAULT == f"garbage {target}":
            reply = b"\x00\xff" * 40 + b"\r\n\r\n"
        conn.sendall(reply)


def main():
    found = words()
    kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    if fcntl.ioctl(kvm, KVM_GET_API_VERSION) != 12:
        sys.exit("the API of KVM is not version 12")
    api = listen(found["--api-sock"])
    machine = Machine(found["--id"])
    while True:
        serve(api.accept()[0], machine)


main()
