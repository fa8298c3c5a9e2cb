# SPDX-License-Identifier: Apache-2.0
"""A carried brig-init: started by something else than our jail, and driven through its opening and the service."""

import errno
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import tty
import unittest

import carrykit
import svckit
from carrykit import (INIT, Plain, Refused, Runc, Unshared, frame, hello, open_connection,
                      receive_frame, start)
from helpers import PATIENCE, wait_until
from jailkit import needs_root

ATTACH = frame(carrykit.ATTACH)
CHANNEL_CALL, CHANNEL = 41, 16
ENV = ("PATH=/usr/bin:/bin", "HOME=/tmp")
FORBIDDEN = """
import errno, os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        print("ok")
    except OSError as e:
        print(errno.errorcode[e.errno])
"""


def closed_by_it(sock, most=0):
    """True when it was closed after at most so many bytes."""
    got = b""
    try:
        while more := sock.recv(65536):
            got += more
    except ConnectionResetError:  # it had not read all that was sent
        pass
    return len(got) <= most


def code(text):
    return "python3", "-I", "-S", "-c", text


class Carried:
    """The tests, for each way to carry."""

    LIMIT_SECONDS = 180
    PLACES = ()

    def setUp(self):
        self.box = self.carry()
        self.addCleanup(self.box.end)

    def open(self, order=None, **how):
        sock = self.box.connect()
        self.addCleanup(sock.close)
        self.s, self.caps, self.read = open_connection(
            sock, order or start(uid=self.box.program_uid, places=self.PLACES, **how))
        return self.s

    def refusal(self, order):
        with self.box.connect() as sock, self.assertRaises(Refused) as why:
            open_connection(sock, order)
        return why.exception.failed, why.exception.errnum

    def again(self):
        number = self.s.next_proc
        service = self.open(ATTACH)
        service.next_proc = number
        return service

    def sh(self, script, **how):
        return self.s.run("sh", "-c", script, cwd="/tmp", env=ENV, **how)

    def test_processes_input_output_and_status(self):
        self.open()
        self.assertEqual(self.caps, carrykit.CAP_SERVICE | carrykit.CAP_CARRIED)
        self.assertEqual(self.sh("echo out; echo err >&2; exit 7"), (7, "out\n", "err\n"))
        number, begin = self.s.start("cat", flags=svckit.STDIN, cwd="/tmp", env=ENV)
        output, given = self.s.attach(number), self.s.of(svckit.PROC_INPUT, number)
        begin.ok()
        text = b"".join(b"%d\n" % i for i in range(30000))
        given.write(text)
        given.end()
        self.assertEqual(output.ok().out[1], text)
        self.assertEqual(self.s.end_of(number)["status"], 0)

    def test_a_terminal(self):
        self.open()
        number, begin = self.s.start("sh", "-c", "read x; stty size; echo got $x", flags=svckit.TTY, cwd="/tmp",
                                     env=ENV)
        output, given = self.s.attach(number, 2), self.s.of(svckit.PROC_INPUT, number)
        begin.ok()
        given.write(b"word\n")
        output.ok()
        self.assertEqual(output.text().replace("\r", ""), "word\n24 80\ngot word\n")

    def test_files(self):
        self.open()
        call = self.s.path_call(svckit.FILE_WRITE, "carried", struct.pack("<IIQ", 1, 0o640, 0), base="/tmp")
        call.write(b"x" * 100000)
        call.end()
        call.ok()
        self.assertEqual(self.sh("wc -c < carried; find carried -printf '%U\\n'")[1],
                         f"100000\n{self.box.program_uid}\n")
        self.assertEqual(self.s.path_call(svckit.FILE_READ, "carried", struct.pack("<QQ", 99990, 0),
                                          base="/tmp").ok().out[1], b"x" * 10)
        self.sh("rm carried")

    def test_a_channel(self):
        self.open()
        number, begin = self.s.start(*code("import socket; s = socket.socket(fileno=3); s.sendall(s.recv(99)[::-1])"),
                                     flags=CHANNEL, cwd="/tmp", env=ENV)
        call = self.s.call(CHANNEL_CALL, struct.pack("<II", number, 0))
        begin.ok()
        call.write(b"abc")
        self.assertEqual(call.ok().out[1], b"cba")

    def test_a_new_connection_loses_no_output(self):
        self.open()
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; read x"
        number, begin = self.s.start("sh", "-c", script, flags=svckit.STDIN, cwd="/tmp", env=ENV)
        begin.ok()
        output = self.s.attach(number)
        self.s.until(lambda: len(output.out[1]) > 1000)
        # The client dies in the middle of a frame that it was sending.
        self.s.sock.sendall(struct.pack("<IHHII", 60000, svckit.DATA, 0, 0, 99) + b"half")
        first = self.read
        self.s.sock.close()
        self.again()
        self.assertTrue(self.caps & carrykit.CAP_RUNNING)
        self.assertEqual(self.read, first)
        output = self.s.attach(number)
        self.s.until(lambda: b"line 2999\n" in output.out[1])
        self.assertEqual(output.text(), "".join(f"line {i}\n" for i in range(3000)))
        self.s.of(svckit.PROC_INPUT, number).end()
        self.assertEqual(self.s.end_of(number)["stdout"], len(output.out[1]))

    def test_everything_may_be_sent_in_one_go(self):
        asked = frame(svckit.HELLO, struct.pack("<IIQ", 1, 0, 0)) + frame(svckit.PROC_LIST, request=1)
        for order in (start(uid=self.box.program_uid), ATTACH):
            with self.box.connect() as sock:
                sock.sendall(hello(9) + order + asked)
                self.assertEqual([receive_frame(sock)[0] for _ in range(4)],
                                 [carrykit.HELLO, carrykit.STARTED, svckit.HELLO, svckit.REPLY])

    def test_a_new_connection_replaces_the_old(self):
        self.open()
        old, number = self.s.sock, self.s.start("sleep", "1000", cwd="/tmp", env=ENV)[0]
        pending = self.box.connect()
        self.addCleanup(pending.close)
        pending.sendall(hello(5))
        self.assertEqual(receive_frame(pending)[0], carrykit.HELLO)
        self.assertEqual(self.sh("echo still")[1], "still\n")  # one that only opens takes nothing away
        self.again()
        self.assertTrue(closed_by_it(pending))  # it was replaced by the newer one
        self.assertTrue(closed_by_it(old, 1 << 20))
        self.assertEqual(self.s.signal(number, signal.SIGKILL), 0)
        self.assertEqual(self.s.end_of(number)["status"], signal.SIGKILL)

    def test_what_is_no_opening_is_refused_and_the_next_one_served(self):
        order = start(uid=self.box.program_uid)
        refused = {
            errno.ENOTCONN: ATTACH,
            errno.EOPNOTSUPP: start(uid=self.box.program_uid, flags=carrykit.SERVICE | carrykit.LEAVES),
        }
        for errnum, bad in refused.items():
            self.assertEqual(self.refusal(bad), (6, errnum))
        closed = [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 70000, hello(version=9),
                  hello() + frame(carrykit.SIGNAL, struct.pack("<I", 9)), hello() + hello(),
                  hello() + frame(carrykit.START, b"x" * 20000), hello() + frame(carrykit.START, b"x" * 104),
                  hello() + frame(carrykit.START, b"x" * 104, flags=1),
                  hello() + frame(svckit.HELLO, b"\1" + b"\0" * 15), order, ATTACH]
        for bad in closed:
            sock = self.box.connect()
            try:
                sock.sendall(bad)
            except OSError:  # it was judged before all had been sent
                pass
            self.assertTrue(closed_by_it(sock, len(hello())), bad[:40])
            sock.close()
        half = self.box.connect()
        half.sendall(hello()[:20])  # and never more
        self.open()
        self.assertTrue(closed_by_it(half))
        half.close()
        self.assertEqual(self.sh("echo fine")[1], "fine\n")
        self.assertEqual(self.refusal(order), (6, errno.EALREADY))
        self.assertEqual(self.sh("echo fine")[1], "fine\n")

    def test_a_peer_that_floods_or_never_reads_holds_nothing(self):
        self.open()
        self.assertEqual(self.sh("echo fine")[1], "fine\n")
        before = self.box.descriptors()
        flood = [self.box.connect() for _ in range(200)]
        for sock in flood:
            try:
                sock.sendall(hello())
            except OSError:
                pass
        self.assertEqual(self.sh("echo fine")[1], "fine\n")
        deaf = self.s  # asks for much and takes nothing
        number = deaf.start("sh", "-c", "exec head -c 50000000 /dev/zero", cwd="/tmp", env=ENV, ring=65536)[0]
        deaf.attach(number)
        self.again()
        self.assertEqual(self.sh("echo fine")[1], "fine\n")
        for sock in flood:
            sock.close()
        # Nobody holds the process back any more. Its pipes are closed with its end.
        self.assertEqual(self.s.end_of(number)["status"], 0)
        wait_until("everything is closed", lambda: self.box.descriptors() <= before + 1)

    def test_a_required_layer_that_is_missing_ends_it(self):
        self.box.connect().close()
        pid = self.box.pid()
        with self.assertRaises(Refused) as why:
            self.open(require=carrykit.mask("disk"))
        self.assertEqual((why.exception.failed, why.exception.errnum), (5, errno.EPERM))
        wait_until("it has ended", lambda: not os.path.exists(f"/proc/{pid}/exe"))

    def test_the_statement_is_what_an_observer_sees(self):
        self.open(require=carrykit.mask(*self.ON))
        for name in self.ON:
            self.assertEqual(self.read[name][0], 1, name)
        for name in self.OFF:
            self.assertEqual(self.read[name][0], 0, name)
        number, begin = self.s.start("sleep", "1000", cwd="/tmp", env=ENV)
        begin.ok()
        inside = struct.unpack_from("<I", begin.payload)[0]
        found = [p for p in os.listdir("/proc") if p.isdigit() and self.is_pid(p, inside)]
        self.assertEqual(len(found), 1)
        status = carrykit.status_of(found[0])
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"], status["Seccomp_filters"]), ("1", "2", "1"))
        self.assertEqual(sorted(os.listdir(f"/proc/{found[0]}/fd")), ["0", "1", "2"])
        for name, layer in zip(carrykit.NAMESPACES, "user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns".split()):
            other = os.stat(f"/proc/{found[0]}/ns/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino
            self.assertEqual(bool(self.read[layer][0]), other, name)
        init = carrykit.status_of(self.box.pid())
        self.assertEqual(int(init["CapBnd"], 16), sum(1 << n for n in (5, 6, 7, 8, 19)))
        self.assertEqual((init["NoNewPrivs"], init["Seccomp"]), ("1", "2"))
        self.s.signal(number, signal.SIGKILL)

    def is_pid(self, pid, inside):
        try:
            numbers = carrykit.status_of(pid)["NSpid"].split()
            return (len(numbers) > 1 and int(numbers[-1]) == inside
                    and os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat(f"/proc/{self.box.pid()}/ns/pid").st_ino)
        except (OSError, KeyError):
            return False

    def test_landlock_forbids_what_no_place_allows(self):
        self.PLACES = ("/data",)
        self.open()
        self.assertEqual(self.read["landlock"][0], 1)
        paths = ("/proc/self/comm", f"/tmp/{self.box.dir.name}.a", *self.WRITABLE)
        self.assertEqual(self.s.run(*code(FORBIDDEN), *paths, cwd="/", env=ENV)[1].split(),
                         ["EACCES", "ok", *["ok" if w == "/data/a" else "EACCES" for w in self.WRITABLE]])
        self.sh(f"rm {paths[1]}")

    def test_connect_relays(self):
        self.open()
        number = self.s.next_proc
        relay = subprocess.Popen(self.relay(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(relay.wait, PATIENCE)
        self.addCleanup(relay.stdout.close)
        self.addCleanup(relay.stdin.close)

        class Pipes:
            fileno = relay.stdout.fileno
            settimeout = close = staticmethod(lambda *_: None)
            recv = staticmethod(lambda size: os.read(relay.stdout.fileno(), size))

            @staticmethod
            def sendall(data):
                relay.stdin.write(data)
                relay.stdin.flush()

        self.s, self.caps, self.read = open_connection(Pipes(), ATTACH)
        self.s.next_proc = number
        self.assertEqual(len(self.sh("head -c 3000000 /dev/zero")[1]), 3000000)
        relay.stdin.close()
        self.assertEqual(relay.wait(PATIENCE), 0)
        self.again()
        self.assertEqual(self.sh("echo fine")[1], "fine\n")


@needs_root
class InNamespaces(Carried, unittest.TestCase):
    ON = "mount_ns pid_ns net_ns ipc_ns uts_ns caps no_new_privs seccomp landlock fds".split()
    OFF = "user_ns root_readonly disk inodes".split()
    WRITABLE = ()

    def carry(self):
        return Unshared()

    def relay(self):
        return INIT, "connect", self.box.path

    def test_programs_cannot_reach_the_socket(self):
        """Their id is another: they are disconnected at once, also where the directory lets them in."""
        os.chmod(self.box.dir, 0o755)
        os.chmod(os.path.dirname(self.box.path), 0o755)
        self.open()
        os.chmod(self.box.path, 0o666)
        text = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({self.box.path!r}); print(s.recv(9))"
        self.assertEqual(self.s.run(*code(text), cwd="/", env=ENV)[:2], (0, "b''\n"))


@needs_root
@unittest.skipUnless(shutil.which("runc"), "runc is not installed: tools/setup.sh test")
class InRunc(Carried, unittest.TestCase):
    ON = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns caps no_new_privs seccomp landlock root_readonly "
          "fds").split()
    OFF = "disk inodes".split()
    WRITABLE = ("/data/a", "/other/a")

    def carry(self):
        return Runc()

    def relay(self):
        return ("runc", "--root", str(self.box.dir / "state"), "exec", "--cap", "CAP_SYS_PTRACE", self.box.id,
                "/.brig/init", "connect", "/sock/s")


@needs_root
class Streams(unittest.TestCase):
    """One stream, a device, and words that make no sense. It is no pid 1 here."""

    LIMIT_SECONDS = 120

    def carry(self, *words, fds=()):
        proc = subprocess.Popen([INIT, "carry", *words], pass_fds=fds, stdin=subprocess.DEVNULL)
        self.addCleanup(proc.wait, PATIENCE)
        self.addCleanup(proc.kill)
        return proc

    def test_a_stream_is_served_until_it_ends_and_nothing_is_left(self):
        ours, theirs = socket.socketpair()
        proc = self.carry("--stream-fd", str(theirs.fileno()), fds=(theirs.fileno(),))
        theirs.close()
        service, caps, read = open_connection(ours, start())
        self.assertEqual(caps, carrykit.CAP_SERVICE | carrykit.CAP_CARRIED)
        self.assertEqual((read["pid_ns"][0], read["caps"][0], read["seccomp"][0]), (0, 1, 1))
        # An orphan in a session of its own: collected here, and killed with the process that left it behind.
        gone = service.run("sh", "-c", "setsid sleep 1000 & echo $!", cwd="/tmp", env=ENV)[1].strip()
        self.assertFalse(os.path.exists(f"/proc/{gone}"))
        _, begin = service.start("sleep", "1000", cwd="/tmp", env=ENV)
        pid = struct.unpack_from("<I", begin.ok().payload)[0]
        ours.close()
        self.assertEqual(proc.wait(PATIENCE), 1)
        wait_until("its program is gone", lambda: not os.path.exists(f"/proc/{pid}"))

    def test_what_a_killed_shepherd_leaves_is_collected(self):
        ours, theirs = socket.socketpair()
        self.carry("--stream-fd", str(theirs.fileno()), fds=(theirs.fileno(),))
        theirs.close()
        service = open_connection(ours, start())[0]
        number, begin = service.start("sleep", "1000", cwd="/tmp", env=ENV)
        pid = struct.unpack_from("<I", begin.ok().payload)[0]
        os.kill(int(carrykit.status_of(pid)["PPid"]), signal.SIGKILL)
        self.assertEqual(service.end_of(number)["status"], signal.SIGKILL)
        wait_until("its program is gone", lambda: not os.path.exists(f"/proc/{pid}"))
        ours.close()

    def test_a_stream_that_is_no_opening_ends_it(self):
        ours, theirs = socket.socketpair()
        proc = self.carry("--stream-fd", str(theirs.fileno()), fds=(theirs.fileno(),))
        theirs.close()
        ours.sendall(b"\0" * 64)
        self.assertEqual(proc.wait(PATIENCE), 2)
        self.assertEqual(ours.recv(1), b"")
        ours.close()

    def test_a_listener_that_it_inherits(self):
        with tempfile.TemporaryDirectory() as at, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{at}/s")
            listener.listen(4)
            self.carry("--listen-fd", str(listener.fileno()), fds=(listener.fileno(),))
            for order in (start(), ATTACH):
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.connect(f"{at}/s")
                    service = open_connection(sock, order)[0]
                    service.next_proc = 1 + (order == ATTACH)
                    self.assertEqual(service.run("echo", "x", cwd="/tmp", env=ENV), (0, "x\n", ""))

    def test_a_device(self):
        master, slave = pty.openpty()
        tty.setraw(slave)
        self.carry("--device", os.ttyname(slave))
        service = open_connection(Plain(master), start())[0]
        code_, out, _ = service.run("sh", "-c", "echo on a device; head -c 200000 /dev/zero", cwd="/tmp", env=ENV)
        self.assertEqual((code_, out), (0, "on a device\n" + "\0" * 200000))
        # Its boundary was missed, and the next opening stands where a frame of the service is expected.
        service = open_connection(Plain(master), ATTACH, nonce=77)[0]
        service.next_proc = 2
        self.assertEqual(service.run("echo", "again", cwd="/tmp", env=ENV), (0, "again\n", ""))
        # The same, with calls of the service right behind it: they are answered though nothing more comes.
        asked = frame(svckit.HELLO, struct.pack("<IIQ", 1, 0, 0)) + frame(svckit.PROC_LIST, request=1)
        Plain(master).sendall(hello(78) + ATTACH + asked)
        kinds = [receive_frame(Plain(master))[0] for _ in range(3)]
        self.assertEqual(kinds, [carrykit.HELLO, carrykit.STARTED, svckit.HELLO])
        os.close(slave)
        os.close(master)

    def test_words_that_make_no_sense(self):
        with tempfile.NamedTemporaryFile() as plain, tempfile.TemporaryDirectory() as at:
            long = f"{at}/{'x' * 120}"
            cases = {
                ("carry",): (4, "carry: expected carry ("),
                ("word",): (4, "word: expected carry ("),
                ("carry", "--listen-fd"): (4, "carry: expected"),
                ("carry", "--what", "3"): (4, "carry --what: expected"),
                ("carry", "--listen-fd", "x"): (4, "--listen-fd x: must be a number from 0 to 1023"),
                ("carry", "--listen-fd", "1024"): (4, "--listen-fd 1024: must be a number from 0 to 1023"),
                ("carry", "--listen-fd", ""): (4, "--listen-fd : must be a number from 0 to 1023"),
                ("carry", "--listen-fd", "77"): (4, "--listen-fd 77: not an open descriptor"),
                ("carry", "--listen-fd", "1"): (4, "--listen-fd 1: must be a listening socket"),
                ("carry", "--stream-fd", "1"): (4, "--stream-fd 1: must be a socket or a character device"),
                ("carry", "--listen", long): (4, f"--listen {long}: must be a path of 1 to 107 bytes"),
                ("carry", "--listen", f"{at}/no/s"): (4, f"--listen {at}/no/s: no such file"),
                ("carry", "--listen", plain.name): (4, f"--listen {plain.name}: it exists already"),
                ("carry", "--device", plain.name): (4, f"--device {plain.name}: must be a character device"),
                ("carry", "--device-fd", "77"): (4, "--device-fd 77: not an open descriptor"),
                ("carry", "--device-fd", "1"): (4, "--device-fd 1: must be a character device"),
                ("carry", "--device", f"{at}/no"): (4, f"--device {at}/no: no such file"),
                ("connect", f"{at}/no"): (1, f"connect {at}/no: no such file"),
                ("connect", plain.name): (1, f"connect {plain.name}: nobody listens there"),
                ("connect", long): (4, f"connect {long}: must be a path of 1 to 107 bytes"),
            }
            for words, (status, text) in cases.items():
                done = subprocess.run([INIT, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      timeout=PATIENCE, check=False)
                self.assertEqual(done.returncode, status, words)
                self.assertTrue(done.stderr.startswith(f"brig-init: {text}"), done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_connect_ends_with_the_other_side(self):
        with tempfile.TemporaryDirectory() as at, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{at}/s")
            listener.listen(1)
            relay = subprocess.Popen([INIT, "connect", f"{at}/s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            peer, _ = listener.accept()
            relay.stdin.write(b"to")
            relay.stdin.flush()
            self.assertEqual(peer.recv(2), b"to")
            peer.sendall(b"x" * 100000)  # what fits into the buffers on the way
            peer.close()
            self.assertEqual(len(relay.stdout.read()), 100000)
            self.assertEqual(relay.wait(PATIENCE), 0)
            relay.stdin.close()
            relay.stdout.close()


if __name__ == "__main__":
    unittest.main()
