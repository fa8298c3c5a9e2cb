# SPDX-License-Identifier: Apache-2.0
"""brigd's side of the service protocol (docs/PROTOCOL.md, "Service") in a few lines, for tests that speak with
brig-init."""

import errno
import os
import select
import struct
import time

from helpers import PATIENCE

HELLO, DATA, EOF, CREDIT, EVENT, REPLY, CANCEL = range(16, 23)
PROC_START, PROC_ATTACH, PROC_INPUT, PROC_WAIT, PROC_SIGNAL, PROC_RESIZE, PROC_LIST, PROC_FORGET, SHELL_RUN = range(32,
                                                                                                                    41)
PORT_LIST, PORT_CONNECT = 48, 49
FILE_STAT, FILE_LIST, FILE_READ, FILE_WRITE = 64, 65, 66, 67
TTY, STDIN, SHELL = 1, 2, 4
ALL, CHILDREN, GROUP = 1, 2, 4
ENV = ("PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace")


def string(data):
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("<I", len(data)) + data


class Call:
    def __init__(self, service, request):
        self.service, self.request = service, request
        self.events, self.out, self.eof = [], {1: b"", 2: b""}, set()
        self.errnum = self.stage = self.payload = None

    def done(self):
        return self.errnum is not None

    def wait(self, seconds=PATIENCE):
        self.service.until(self.done, seconds)
        return self

    def ok(self):
        self.wait()
        if self.errnum:
            raise OSError(self.errnum, errno.errorcode.get(self.errnum, "?"))
        return self

    def write(self, data):
        for at in range(0, len(data), 65536):
            self.service.send(DATA, self.request, data[at:at + 65536])

    def end(self):
        self.service.send(EOF, self.request)

    def cancel(self):
        self.service.send(CANCEL, self.request)

    def text(self, stream=1):
        return self.out[stream].decode(errors="replace")


class Service:
    """One connection. It dies with an exception on anything that the protocol does not allow."""

    def __init__(self, sock):
        self.sock = sock
        self.pending, self.calls, self.hello = b"", {}, None
        self.next_request = self.next_proc = 1
        self.send(HELLO, 0, struct.pack("<IIQ", 1, 0, 0))
        self.until(lambda: self.hello)

    def send(self, kind, request, payload=b"", stream=0, flags=0):
        self.sock.sendall(struct.pack("<IHHII", len(payload), kind, flags, stream, request) + payload)

    def until(self, condition, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not condition():
            if not select.select([self.sock], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"nothing came in time; open: {sorted(self.calls)}")
            data = self.sock.recv(1 << 18)
            if not data:
                raise AssertionError("brig-init has closed the stream")
            self.pending += data
            self.take()

    def take(self):
        while len(self.pending) >= 16:
            length, kind, flags, stream, request = struct.unpack_from("<IHHII", self.pending)
            if len(self.pending) < 16 + length:
                return
            payload, self.pending = self.pending[16:16 + length], self.pending[16 + length:]
            assert flags == 0 and length <= 65536, (kind, flags, length)
            if kind == HELLO:
                assert self.hello is None and request == 0
                self.hello = struct.unpack("<IIQ", payload)
                continue
            call = self.calls[request]
            if kind == DATA:
                assert payload and stream in (1, 2) and stream not in call.eof
                call.out[stream] += payload
                self.send(CREDIT, request, struct.pack("<I", length), stream)
            elif kind == EOF:
                assert stream in (1, 2) and stream not in call.eof
                call.eof.add(stream)
            elif kind == EVENT:
                call.events.append(payload)
            elif kind == REPLY:
                call.errnum, call.stage = struct.unpack_from("<II", payload)
                call.payload = payload[8:]
                del self.calls[request]
            else:
                assert kind == CREDIT and stream == 0, (kind, stream)

    def call(self, kind, payload=b""):
        call = self.calls[self.next_request] = Call(self, self.next_request)
        for at in range(0, max(1, len(payload)), 65536):
            self.send(kind, call.request, payload[at:at + 65536], flags=int(at + 65536 < len(payload)))
        self.next_request += 1
        return call

    def start(self, *argv, flags=0, cwd="/workspace", env=ENV, ring=0):
        """(its number, the call)"""
        number = self.next_proc
        self.next_proc += 1
        words = b"".join(word.encode() + b"\0" for word in (*argv, *env))
        return number, self.call(PROC_START, struct.pack("<IIHHIII", number, flags, 24, 80, ring, len(argv), len(env))
                                 + string(cwd) + words)

    def attach(self, number, streams=6):
        return self.call(PROC_ATTACH, struct.pack("<IIQQ", number, streams, 0, 0))

    def of(self, kind, number):
        return self.call(kind, struct.pack("<I", number))

    def signal(self, number, signum, flags=0):
        return self.call(PROC_SIGNAL, struct.pack("<III", number, signum, flags)).wait().errnum

    def end_of(self, number):
        """A dict: how it ended, once nothing of it is left."""
        fields = struct.unpack("<IQQQQQQQIIIII", self.of(PROC_WAIT, number).ok().payload)
        names = ("status started_ns ended_ns stdout stderr cpu_ns memory_peak pids_peak oom_kills pids_refused leaf "
                 "killed store")
        return dict(zip(names.split(), fields))

    def run(self, *argv, **kw):
        """(exit code, stdout, stderr)"""
        number, start = self.start(*argv, **kw)
        output = self.attach(number)
        start.ok()
        output.ok()
        return os.waitstatus_to_exitcode(self.end_of(number)["status"]), output.text(1), output.text(2)

    def shell(self, number, command):
        """(status, ended, cwd, stdout, stderr)"""
        call = self.call(SHELL_RUN, struct.pack("<I", number) + string(command)).ok()
        status, ended, size = struct.unpack_from("<III", call.payload)
        return status, ended, call.payload[12:12 + size].decode(), call.text(1), call.text(2)

    def path_call(self, kind, path, rest=b"", base="/workspace"):
        return self.call(kind, struct.pack("<I", 0) + string(base) + string(path) + rest)
