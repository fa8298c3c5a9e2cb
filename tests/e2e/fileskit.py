# SPDX-License-Identifier: Apache-2.0
"""The file worker as an ordinary process in a directory of its own, and a client for it
(src/codec/wire/guest_svc.h)."""

import ctypes
import errno
import os
import pathlib
import socket
import struct
import subprocess

BUILD = pathlib.Path(os.environ.get("BRIG_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
WORKER = BUILD / "tests/unit/files_worker_driver"
PATIENCE = float(os.environ.get("BRIG_TEST_PATIENCE", "30"))

DATA, EOF, CREDIT, EVENT, REPLY, CANCEL = range(17, 23)
STAT, LIST, READ, WRITE, MKDIR, MOVE, REMOVE, WATCH, TAR_GET, TAR_PUT = range(64, 74)
CONFINE, NOFOLLOW = 1, 2
ATOMIC, AT, APPEND, PARENTS, EXCL = 1, 2, 4, 8, 16
WINDOW, PIECE = 1 << 20, 65536
TYPES = ("file", "dir", "symlink", "fifo", "socket", "char", "block")


def text(value):
    value = os.fsencode(value)
    return struct.pack("<I", len(value)) + value


def no_openat2():
    """For preexec_fn: the profile paranoid has no openat2."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(struct.pack("<HBBI", *op) for op in (
        (0x20, 0, 0, 0),  # load the number
        (0x15, 0, 1, 437),
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),
        (0x06, 0, 0, 0x7FFF0000)))
    memory = ctypes.create_string_buffer(code)
    program = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(memory))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
        os._exit(98)


class Entry:
    def __init__(self, raw):
        head = struct.unpack_from("<IIIIIQQQqq", raw)
        (self.type, self.mode, self.uid, self.gid, self.nlink, self.size, self.blocks, self.inode, self.mtime_ns,
         self.ctime_ns) = head
        self.type = TYPES[self.type]
        at = struct.calcsize("<IIIIIQQQqq")
        fields = []
        for _ in range(2):
            (n,) = struct.unpack_from("<I", raw, at)
            fields.append(raw[at + 4 : at + 4 + n])
            at += 4 + n
        assert at == len(raw)
        self.path, self.target = fields


class Failed(Exception):
    def __init__(self, errnum):
        super().__init__(errno.errorcode.get(errnum, str(errnum)))
        self.name = errno.errorcode.get(errnum, str(errnum))  # EOPNOTSUPP is called ENOTSUP there


class Result:
    def __init__(self):
        self.events, self.data, self.reply, self.errnum, self.eof = [], bytearray(), b"", 0, False
        self.credit, self.received = WINDOW, 0


class Worker:
    """One at a time is enough for most; start() and finish() are for calls side by side."""

    def __init__(self, base, *, preexec_fn=None, program=WORKER):
        self.base = os.fsencode(base)
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        self.sock, self.request, self.buffer, self.calls = ours, 0, b"", {}

        def setup():
            os.dup2(theirs.fileno(), 3)
            if preexec_fn:
                preexec_fn()

        self.proc = subprocess.Popen([program], preexec_fn=setup, pass_fds=(3,) if theirs.fileno() == 3 else (),
                                     close_fds=False)  # noqa: PLW1509
        theirs.close()

    def close(self):
        self.sock.close()
        status = self.proc.wait(PATIENCE)
        assert status == 0, f"the worker ended with {status}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- frames

    def send(self, kind, request, payload=b"", *, flags=0, stream=0):
        self.sock.sendall(struct.pack("<IHHII", len(payload), kind, flags, stream, request) + payload)

    def frame(self):
        while len(self.buffer) < 16 or len(self.buffer) < 16 + struct.unpack_from("<I", self.buffer)[0]:
            more = self.sock.recv(1 << 20)
            if not more:
                raise EOFError("the worker has gone")
            self.buffer += more
        n, kind, _, stream, request = struct.unpack_from("<IHHII", self.buffer)
        payload, self.buffer = self.buffer[16 : 16 + n], self.buffer[16 + n :]
        return kind, request, stream, payload

    def start(self, kind, path, rest=b"", *, flags=0, base=None):
        self.request += 1
        self.calls[self.request] = Result()
        self.send(kind, self.request,
                  struct.pack("<I", flags) + text(self.base if base is None else base) + text(path) + rest)
        return self.request

    def take(self):
        """One frame of whatever call."""
        kind, request, stream, payload = self.frame()
        result = self.calls[request]
        if kind == EVENT:
            result.events.append(payload)
        elif kind == DATA:
            assert stream == 1
            result.data += payload
            result.received += len(payload)
            if result.received >= WINDOW // 4:
                self.send(CREDIT, request, struct.pack("<I", result.received), stream=1)
                result.received = 0
        elif kind == CREDIT:
            result.credit += struct.unpack("<I", payload)[0]
        elif kind == EOF:
            result.eof = True
        elif kind == REPLY:
            result.errnum, _ = struct.unpack_from("<II", payload)
            result.reply = payload[8:]
        return kind, request

    def finish(self, request):
        result = self.calls[request]
        while self.take() != (REPLY, request):
            pass
        del self.calls[request]
        return result

    def upload(self, request, data):
        """True unless the call ended before all was sent."""
        result, view = self.calls[request], memoryview(data)
        while view:
            n = min(len(view), PIECE, result.credit)
            if n == 0:
                if self.take() == (REPLY, request):
                    return False
                continue
            self.send(DATA, request, view[:n])
            result.credit -= n
            view = view[n:]
        self.send(EOF, request)
        return True

    # ---- calls

    def call(self, kind, path, rest=b"", **how):
        result = self.finish(self.start(kind, path, rest, **how))
        if result.errnum:
            raise Failed(result.errnum)
        return result

    def stat(self, path, **how):
        return Entry(self.call(STAT, path, **how).reply)

    def list(self, path, depth=1, most=0, **how):
        result = self.call(LIST, path, struct.pack("<II", depth, most), **how)
        return [Entry(e) for e in result.events]

    def read(self, path, offset=0, length=0, **how):
        return bytes(self.call(READ, path, struct.pack("<QQ", offset, length), **how).data)

    def write(self, path, data, what=ATOMIC, mode=0, offset=0, **how):
        request = self.start(WRITE, path, struct.pack("<IIQ", what, mode, offset), **how)
        result = self.calls[request]
        if self.upload(request, data):
            self.finish(request)
        if result.errnum:
            raise Failed(result.errnum)
        return Entry(result.reply)

    def mkdir(self, path, mode=0o755, parents=0, **how):
        return Entry(self.call(MKDIR, path, struct.pack("<II", mode, parents), **how).reply)

    def move(self, path, to, replace=0, **how):
        return Entry(self.call(MOVE, path, text(to) + struct.pack("<I", replace), **how).reply)

    def remove(self, path, recursive=0, **how):
        self.call(REMOVE, path, struct.pack("<I", recursive), **how)

    def tar_get(self, path, **how):
        return bytes(self.call(TAR_GET, path, **how).data)

    def tar_put(self, path, data, most_bytes=1 << 40, most_members=1 << 40, **how):
        request = self.start(TAR_PUT, path, struct.pack("<QQ", most_bytes, most_members), **how)
        result = self.calls[request]
        if self.upload(request, data):
            self.finish(request)
        if result.errnum:
            raise Failed(result.errnum)
        return struct.unpack("<QQ", result.reply)
