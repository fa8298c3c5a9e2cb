# SPDX-License-Identifier: Apache-2.0
"""brig-init serving in real sandboxes: with a cgroup for each process, and where there is none; and against its own
programs."""

import array
import errno
import os
import signal
import socket
import struct
import subprocess
import time
import unittest

import svckit
from helpers import BRIG, PATIENCE, wait_until
from jailkit import BUILD, PLAIN_ID, PREFIX, JailTest, World, needs_root
from svckit import ALL, CHILDREN, GROUP, SHELL, STDIN, TTY

HOST = next((p for p in (f"{PREFIX}/tests/e2e/guest_host", f"{BUILD}/tests/e2e/guest_host") if os.path.exists(p)),
            "guest_host")
LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or f"{os.path.dirname(os.path.realpath(BRIG))}"


class GuestTest(JailTest):
    LIMIT_SECONDS = 120
    WORDS = ("pids=64",)

    def setUp(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.out, out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cgroups = self.w.cgroups.for_a_caller()

        def in_child():
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            self.w.become_caller(cgroups)

        self.spawner = subprocess.Popen([f"{LIBEXEC}/brig-spawner", LIBEXEC], preexec_fn=in_child, close_fds=False,
                                        cwd="/", env=self.w.env,
                                        stdin=subprocess.DEVNULL)
        theirs.close()
        fds = (ours.fileno(), out.fileno())
        self.host = subprocess.Popen([HOST, *map(str, fds), *self.WORDS], pass_fds=fds, stdin=subprocess.PIPE)
        ours.close()
        out.close()
        self.s = svckit.Service(self.stream())

    def stream(self):
        self.out.settimeout(PATIENCE)
        _, beside, _, _ = self.out.recvmsg(64, socket.CMSG_SPACE(4))
        return socket.socket(fileno=array.array("i", beside[0][2])[0])

    def reconnect(self):
        self.host.stdin.write(b"again\n")
        self.host.stdin.flush()
        service = svckit.Service(self.stream())
        service.next_proc = self.s.next_proc
        self.s.sock.close()
        self.s = service

    def tearDown(self):
        self.s.sock.close()
        self.host.stdin.close()
        self.host.wait(timeout=PATIENCE)
        self.spawner.wait(timeout=PATIENCE)
        self.out.close()
        super().tearDown()

    def sh(self, script, **kw):
        return self.s.run("/bin/sh", "-c", script, **kw)

    def lasting(self, script, marker="ready"):
        """A process that has said that it is there: (its number, its output)."""
        number, start = self.s.start("/bin/sh", "-c", script)
        output = self.s.attach(number)
        start.ok()
        self.s.until(lambda: marker in output.text())
        return number, output

    def alive(self):
        """pid 1 still serves, with whatever is left."""
        self.assertEqual(self.sh("echo alive"), (0, "alive\n", ""))


class Processes(GuestTest):
    LEAVES = 1

    def test_programs_are_the_user(self):
        code, out, err = self.sh("id -u; grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr "
                                 "-s '\\t\\n' ' '; ls /proc/self/fd | tr '\\n' ' '")
        uid, status = out.split("\n", 1)
        self.assertEqual((code, err), (0, ""))
        self.assertNotEqual(uid, "0")
        for word in ("CapPrm: 0000000000000000", "CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2", "0 1 2 3 "):
            self.assertIn(word, status)

    def test_its_end_is_told(self):
        number, start = self.s.start("/bin/sh", "-c", "echo out; exit 3")
        start.ok()
        end = self.s.end_of(number)
        self.assertEqual((end["status"], end["stdout"], end["leaf"], end["killed"]), (3 << 8, 4, self.LEAVES, 0))
        self.assertLess(end["started_ns"], end["ended_ns"])

    def test_daemons_die_with_it_and_nothing_else(self):
        other, _ = self.lasting("echo ready; exec sleep 1000")
        code, _, _ = self.sh(
            "setsid sleep 1111 >/dev/null 2>&1 & (setsid sh -c 'sleep 1112 & sleep 1113' &); sleep 0.2; exit 4")
        self.assertEqual(code, 4)
        _, out, _ = self.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        self.assertNotIn("sleep 111", out)
        self.assertIn("sleep 1000", out)
        self.assertEqual(self.s.signal(other, signal.SIGKILL, ALL), 0)
        self.assertEqual(self.s.end_of(other)["killed"], 1)

    def test_signals(self):
        number, out = self.lasting("trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.1; done")
        self.assertEqual(self.s.signal(number, signal.SIGTERM), 0)
        self.assertEqual(self.s.end_of(number)["status"], 5 << 8)
        other, _ = self.lasting("echo ready; exec sleep 1000")
        number, out = self.lasting("(setsid sleep 1000 &); sleep 1000 & sleep 0.1; echo ready; wait $!; echo after $?")
        self.assertEqual(self.s.signal(number, signal.SIGKILL, CHILDREN), 0)
        out.ok()
        self.assertEqual(out.text(), "ready\nafter 137\n")
        self.assertEqual(self.s.end_of(number)["status"], 0)
        self.assertEqual(self.s.signal(other, signal.SIGCONT), 0)  # nobody else was hit
        number, out = self.lasting("sleep 1000 & echo ready; wait")
        self.assertEqual(self.s.signal(number, signal.SIGTERM, GROUP), 0)
        self.assertEqual(self.s.end_of(number)["status"], signal.SIGTERM)

    def test_a_terminal(self):
        number, start = self.s.start("/bin/bash", "--norc", "-c", "tty; stty size; read x; echo [$x]", flags=TTY)
        out, typed = self.s.attach(number), self.s.of(svckit.PROC_INPUT, number)
        start.ok()
        typed.write(b"hello\n")
        out.ok()
        self.assertIn("/dev/pts/", out.text())
        self.assertIn("24 80\r\n", out.text())
        self.assertIn("[hello]", out.text())

    def test_a_shell(self):
        for interpreter in ("/bin/bash", "/bin/dash"):
            number, start = self.s.start(interpreter, flags=SHELL)
            start.ok()
            self.assertEqual(self.s.shell(number, "cd /tmp; x=1"), (0, 0, "/tmp", "", ""))
            self.assertEqual(self.s.shell(number, "echo $x; echo 42; false"), (1, 0, "/tmp", "1\n42\n", ""))
            self.assertEqual(self.s.shell(number, "echo '")[0], 2)
            call = self.s.call(svckit.SHELL_RUN,
                               struct.pack("<I", number) + svckit.string("sleep 1000 & echo begin; wait $!"))
            self.s.until(lambda call=call: call.text())
            self.assertEqual(self.s.signal(number, signal.SIGKILL, CHILDREN), 0)
            self.assertEqual(struct.unpack_from("<II", call.ok().payload), (137, 0))
            self.assertEqual(self.s.shell(number, "echo $x; exit 3"), (3 << 8, 1, "", "1\n", ""))

    def test_ports(self):
        server = ("import socket\n"
                  "s = socket.socket(); s.bind(('127.0.0.1', 8080)); s.listen(); print('ready', flush=True)\n"
                  "c, _ = s.accept(); data = b''\nwhile True:\n    got = c.recv(65536)\n    if not got: break\n"
                  "    data += got\n"
                  "c.sendall(b'%d bytes' % len(data)); c.close()")
        number, start = self.s.start("/usr/bin/python3", "-I", "-S", "-c", server)
        out = self.s.attach(number)
        start.ok()
        self.s.until(lambda: "ready" in out.text())
        events = self.s.call(svckit.PORT_LIST).ok().events
        self.assertEqual([struct.unpack("<HBB", e[:4]) for e in events], [(8080, 4, 1)])
        call = self.s.call(svckit.PORT_CONNECT, struct.pack("<H", 8080))
        call.write(b"x" * 500000)
        call.end()
        self.assertEqual(call.ok().text(), "500000 bytes")
        self.assertEqual(self.s.call(svckit.PORT_CONNECT, struct.pack("<H", 8081)).wait().errnum, errno.ECONNREFUSED)

    def test_files_are_the_users(self):
        write = self.s.path_call(svckit.FILE_WRITE, "new", struct.pack("<IIQ", 0, 0, 0))
        write.write(b"content")
        write.end()
        write.ok()
        _, out, _ = self.sh("stat -c %u new; id -u; cat new")
        mine, user, content = out.split("\n")
        self.assertEqual((mine, content), (user, "content"))
        for path in ("/usr/bin/new", "/etc/passwd", "/proc/1/comm"):
            call = self.s.path_call(svckit.FILE_WRITE, path, struct.pack("<IIQ", 0, 0, 0))
            call.write(b"x")
            call.end()
            self.assertIn(call.wait().errnum, (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOENT), path)
        self.assertNotEqual(self.s.path_call(svckit.FILE_READ, "/proc/1/environ",
                                             struct.pack("<QQ", 0, 0)).wait().errnum,
                            0)

    def test_it_goes_on_with_another_stream(self):
        number, start = self.s.start("/bin/sh", "-c", "while read x; do echo got $x; done", flags=STDIN)
        start.ok()
        self.s.of(svckit.PROC_INPUT, number).write(b"one\n")
        boot = self.s.hello[2]
        self.reconnect()
        self.assertEqual(self.s.hello[2], boot)
        out, typed = self.s.attach(number), self.s.of(svckit.PROC_INPUT, number)
        typed.write(b"two\n")
        typed.end()
        self.assertEqual(out.ok().text(), "got one\ngot two\n")


@needs_root
class Rootless(Processes):
    """The same as a plain user."""

    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID, delegated=True)


@needs_root
class WithoutLeaves(Processes):
    """The same as a plain user without any cgroup: shepherds, and one id for all."""

    LEAVES = 0

    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID)


class Hostile(GuestTest):
    def test_pid_1_is_out_of_reach(self):
        script = ("for f in mem environ fd/3 fd/4 maps cwd root; do cat /proc/1/$f 2>/dev/null | head -c1; done; ls "
                  "/proc/1/fd /proc/$PPID/fd 2>/dev/null; echo end; "
                  "kill -9 1; kill -STOP 1; kill -TERM 1; exit 0")
        code, out, _ = self.sh(script)
        self.assertEqual((code, out), (0, "end\n"))
        self.alive()

    def test_killing_everything_kills_only_what_is_its_own(self):
        self.s.path_call(svckit.FILE_STAT, ".").ok()  # there is a worker, which has the user's id
        other, _ = self.lasting("echo ready; sleep 1000")
        code, _, _ = self.sh("kill -9 -1; sleep 5")
        self.assertIn(code, (0, 1, -9))
        self.s.end_of(other)
        # A call that is on its way to the worker when that is killed fails; there is another worker then.
        wait_until("files are served", lambda: not self.s.path_call(svckit.FILE_STAT, ".").wait().errnum)
        self.alive()

    def test_a_fork_bomb(self):
        script = ("import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n"
                  "        time.sleep(0.01)")
        bomb, start = self.s.start("/usr/bin/python3", "-I", "-S", "-c", script)
        start.ok()
        refused = 0
        end = time.monotonic() + PATIENCE
        while refused < 3 and time.monotonic() < end:
            _, start = self.s.start("/bin/true")
            start.wait()
            if start.errnum:
                self.assertEqual(start.errnum, errno.EAGAIN)
                refused += 1
        self.assertEqual(refused, 3)
        self.assertEqual(self.s.signal(bomb, signal.SIGKILL, ALL), 0)
        self.assertEqual(self.s.end_of(bomb)["killed"], 1)
        self.alive()

    def test_output_that_nobody_reads(self):
        number, start = self.s.start("/bin/sh", "-c", "yes & yes >&2 & sleep 1; kill %1 %2; exit 6")
        start.ok()
        end = self.s.end_of(number)
        self.assertEqual(end["status"], 6 << 8)
        self.assertGreater(end["stdout"], 1 << 20)
        self.alive()

    def test_the_shells_descriptors_say_nothing_about_others(self):
        number, start = self.s.start("/bin/bash", flags=SHELL)
        start.ok()
        self.assertEqual(self.s.shell(number, "echo x")[3], "x\n")
        # Whoever has the user's id can lie about a status, and does so to itself only.
        self.sh(f"for p in /proc/[0-9]*; do printf '99999999\\0%5000s\\0' x > $p/fd/8; done 2>/dev/null; true")
        self.alive()
        self.assertEqual(self.s.signal(number, signal.SIGKILL, ALL), 0)
        self.s.end_of(number)


@needs_root
class HostileWithoutLeaves(Hostile):
    """pid 1, shepherds, the file worker and programs all have one id."""

    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID)

    def test_a_killed_shepherd_takes_its_flock_along(self):
        number, start = self.s.start("/bin/sh", "-c", "(setsid sleep 1234 &); sleep 0.2; kill -9 $PPID; sleep 1235")
        start.ok()
        self.assertEqual(self.s.end_of(number)["status"], signal.SIGKILL)
        look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        wait_until("nothing of it lives", lambda: "sleep 123" not in self.sh(look)[1])


if __name__ == "__main__":
    unittest.main()
