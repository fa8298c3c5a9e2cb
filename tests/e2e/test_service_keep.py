# SPDX-License-Identifier: Apache-2.0
"""on_shutdown = "keep": sandboxes from one `brig serve` to the next, and who may take them over."""

import array
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

from helpers import PATIENCE, own_cgroups, wait_until, wakeups
from service import Daemon

KEEP = '[server]\non_shutdown = "keep"\n'
MAGIC, VERSION, READY, T_KEEP, T_KEPT, T_TAKE = 0x67697262, 1, 1, 20, 21, 22
HEAD = struct.Struct("<IHHQ")
STRANGER = 4711


def head(kind):
    return HEAD.pack(MAGIC, VERSION, kind, 0)


def send(sock, data, fds=()):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def gone(pid):
    """Ended, reaped or not: whoever is the parent then may not care."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Keep(unittest.TestCase):
    LIMIT_SECONDS = 180
    USER = None

    def setUp(self):
        self.kept, self.tags = [], set()
        self.d = Daemon(KEEP, user=self.USER)
        self.addCleanup(self.finish)
        self.file = os.path.join(self.d.dir, "run", "spawner.sock")

    def finish(self):
        """Whatever a test has left running ends when the file is gone."""
        self.d.stop()
        self.d.close()
        for pid in self.kept:
            wait_until("the spawner ends", lambda pid=pid: gone(pid))
        wait_until("no cgroup is left",
                   lambda: not [c for c in own_cgroups() if any(c.endswith(t) or f"{t}/" in c for t in self.tags)])

    def create(self, **members):
        sid = self.d.create(**members)["id"]
        # of all that this spawner makes
        self.tags |= {c[c.rindex("."):] for c in own_cgroups() if sid in c.rsplit("/", 1)[-1]}
        return sid

    def spawner(self):
        return self.d.children()["brig-spawner"]

    def keep(self):
        """Ends the service. Returns the pid of the spawner that keeps."""
        pid = self.kept[-1] if self.kept and not gone(self.kept[-1]) else self.spawner()
        self.kept.append(pid)
        self.d.stop()
        self.assertEqual(self.d.process.returncode, 0, self.d.text())
        self.assertIn(f"brig-spawner (pid {pid}) keeps them", self.d.text())
        return pid

    def count(self, sid):
        answer = self.d.ask("POST", f"/v1/sandboxes/{sid}/processes",
                            {"argv": ["sh", "-c",
                                      "i=0; while [ $i -lt 120 ]; do i=$((i+1)); echo line $i; sleep 0.05; done"]})
        self.assertEqual(answer.status, 201, answer)
        return f"/v1/sandboxes/{sid}/processes/{answer.json['number']}"

    def test_the_next_start_goes_on(self):
        sid = self.create(metadata={"a": "b"}, env={"E": "1"})
        self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=kept", b"data")
        p = self.count(sid)
        old = self.d.children()
        pid = self.keep()
        for name in ("brigd", "brig-egress"):
            self.assertTrue(gone(old[name]), name)
        self.assertFalse(gone(pid))
        self.assertFalse(os.path.exists(self.d.socket))
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        looked = wakeups(pid)
        wait_until("it has looked at the file", lambda: wakeups(pid) > looked + 2)
        self.assertFalse(gone(pid))
        self.d.start()
        self.assertFalse(os.path.exists(self.file))
        self.assertNotIn("brig-spawner", self.d.children())  # no second one
        listed = self.d.ask("GET", f"/v1/sandboxes/{sid}").json
        self.assertEqual((listed["state"], listed["metadata"]), ("running", {"a": "b"}))
        self.assertEqual(self.d.sh(sid, "echo $E; cat kept")["stdout"], "1\ndata")
        self.assertEqual(self.d.ask("GET", f"{p}/wait").json["outcome"]["exit_code"], 0)
        text = self.d.ask("GET", f"{p}/output?stream=stdout").body.decode()
        self.assertEqual(text, "".join(f"line {i}\n" for i in range(1, 121)))
        other = self.create()
        self.assertEqual(self.d.run(other, "echo", "new")["stdout"], "new\n")
        self.assertEqual(self.keep(), pid)  # and again
        self.d.start()
        self.assertEqual({s["id"] for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]}, {sid, other})
        for s in (sid, other):
            self.assertIn(self.d.ask("DELETE", f"/v1/sandboxes/{s}").status, (200, 204))

    def test_one_that_was_taken_over_is_watched_and_killed_as_any(self):
        sid = self.create()
        pid = self.keep()
        self.d.start()
        os.kill(pid, signal.SIGKILL)
        wait_until("a new one", lambda: self.d.children().get("brig-spawner", pid) != pid)
        self.d.wait_ready()
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["cause"], "sandbox-gone")
        sid = self.create()
        self.kept.clear()
        pid = self.keep()
        self.config("kill")
        self.d.start()
        self.d.stop()
        self.assertTrue(gone(pid))
        self.config("keep")
        self.d.start()
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["cause"], "shutdown")

    def config(self, policy, more=""):
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write(f'[server]\non_shutdown = "{policy}"\n{more}')

    def test_a_spawner_that_died_meanwhile(self):
        sid = self.create()
        pid = self.keep()
        os.kill(pid, signal.SIGKILL)
        wait_until("it is gone", lambda: gone(pid))
        self.assertTrue(os.path.exists(self.file))
        self.d.start()
        self.assertIn("the spawner that kept the sandboxes has died", self.d.text())
        self.assertFalse(os.path.exists(self.file))
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["cause"], "sandbox-gone")
        self.assertEqual(self.d.run(self.create(), "echo", "again")["stdout"], "again\n")

    def bind(self, sock):
        sock.bind(self.file)
        if self.USER is not None:
            os.chown(self.file, self.USER, self.USER)

    def test_a_stale_file_does_not_hinder_keeping(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            self.bind(s)
        pid = self.keep()
        self.d.start()
        self.assertFalse(gone(pid))

    def test_a_second_one_kept_in_the_same_place_is_refused(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            self.bind(s)
            s.listen(4)
            pid = self.spawner()
            self.d.stop()
        self.assertIn("another spawner keeps sandboxes there", self.d.text())
        self.assertTrue(gone(pid))
        self.assertTrue(os.path.exists(self.file))
        os.unlink(self.file)

    def test_removing_the_file_ends_what_is_kept(self):
        sid = self.create()
        pid = self.keep()
        os.unlink(self.file)
        wait_until("the spawner ends", lambda: gone(pid))
        wait_until("the reaper has removed its cgroups", lambda: not [c for c in own_cgroups() if sid in c])

    def test_other_roots_end_what_is_kept(self):
        sid = self.create()
        pid = self.keep()
        self.config("keep", f'[sandbox]\nbind_roots = "{self.d.dir}"\n')
        self.d.start()
        self.assertIn("bind_roots or templates are others now", self.d.text())
        self.assertTrue(gone(pid))
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["cause"], "sandbox-gone")

    def test_another_build_is_ended(self):
        self.d.stop(signal.SIGTERM)
        self.kept.append(int(self.d.text().rpartition("brig-spawner (pid ")[2].split(")")[0]))
        os.unlink(self.file)
        wait_until("the spawner ends", lambda: gone(self.kept[-1]))
        old = subprocess.Popen(["/bin/sh", "-c", f"while [ -e {self.file} ]; do sleep 0.1; done"])
        said = []

        def serve(listener):
            conn = listener.accept()[0]
            a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            memfd, pidfd = os.memfd_create("text", os.MFD_ALLOW_SEALING), os.pidfd_open(old.pid)
            send(conn, head(T_KEPT) + struct.pack("<II64s", old.pid, 0, b"another"), [a.fileno(), memfd, pidfd])
            a.close()
            said.append(conn.recv(4096))
            said.append(b.recv(4096))
            for fd in (memfd, pidfd):
                os.close(fd)
            for s in (b, conn):
                s.close()

        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            self.bind(listener)
            listener.listen(4)
            t = threading.Thread(target=serve, args=(listener,), daemon=True)
            t.start()
            self.d.start()
            t.join(PATIENCE)
        self.assertEqual(old.wait(PATIENCE), 0)
        self.assertEqual(said, [b"", b""])  # not taken, and its end was let go of
        self.assertIn(f"(pid {old.pid}) kept are ended: the program is another one now", self.d.text())
        self.assertEqual(self.d.run(self.create(), "echo", "new")["stdout"], "new\n")

    def test_a_look_takes_nothing(self):
        """Whoever connects and ends has changed nothing; and nonsense gets nobody anything."""
        sid = self.create()
        pid = self.keep()
        for data in (None, b"x", head(T_KEEP), head(T_TAKE) + b"x", HEAD.pack(MAGIC, VERSION + 1, T_TAKE, 0)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(PATIENCE)
                s.connect(self.file)
                if self.USER is not None:
                    self.assertEqual(s.recv(4096), b"")  # root of the host is nobody in a user's namespace
                    continue
                self.assertEqual(HEAD.unpack(s.recv(4096)[:16])[2], T_KEPT)
                if data:
                    s.send(data)
                    self.assertEqual(s.recv(4096), b"")
        self.assertFalse(gone(pid))
        self.d.start()
        self.assertEqual(self.d.run(sid, "echo", "there")["stdout"], "there\n")

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_a_stranger_gets_nothing(self):
        sid = self.create()
        self.keep()
        code = ("import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.settimeout(20)\n"
                "try:\n s.connect(sys.argv[1]); print('got', len(s.recv(4096)))\n"
                "except PermissionError: print('refused')\n")

        def stranger():
            return subprocess.run(["python3", "-c", code, self.file], user=STRANGER, group=STRANGER, extra_groups=[],
                                  cwd="/", check=True,
                                  capture_output=True, text=True, timeout=PATIENCE).stdout.strip()

        self.assertEqual(stranger(), "refused")
        os.chmod(self.file, 0o666)  # even if the file let everybody in
        os.chmod(os.path.dirname(self.file), 0o755)
        self.assertEqual(stranger(), "got 0")
        self.d.start()
        self.assertEqual(self.d.run(sid, "echo", "there")["stdout"], "there\n")

    def test_kept_though_brigd_does_not_end(self):
        sid = self.create()
        os.kill(self.d.children()["brigd"], signal.SIGSTOP)
        pid, looked = self.spawner(), wakeups(self.d.process.pid)
        self.d.process.send_signal(signal.SIGTERM)
        wait_until("it was heard", lambda: wakeups(self.d.process.pid) > looked + 1)
        self.d.stop()  # asked twice: brigd is killed
        self.kept.append(pid)
        self.assertIn("keeps them", self.d.text())
        self.d.start()
        self.assertEqual(self.d.run(sid, "echo", "there")["stdout"], "there\n")

    def test_a_spawner_that_cannot_be_reached_is_killed(self):
        self.create()
        pid = self.spawner()
        os.kill(pid, signal.SIGSTOP)
        self.d.stop()
        self.assertIn("they cannot be kept", self.d.text())
        self.assertTrue(gone(pid))
        self.assertFalse(os.path.exists(self.file))


@unittest.skipUnless(os.geteuid() == 0, "is one already")
class KeepPlainUser(Keep):
    USER = 4712


class Forged(unittest.TestCase):
    """brigd has the same socket as the supervisor, but cannot make the spawner outlive it."""

    LIMIT_SECONDS = 60

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-keep-")
        self.addCleanup(shutil.rmtree, self.dir)
        d = Daemon()
        with open(f"/proc/{d.children()['brig-spawner']}/cmdline", "rb") as f:
            helpers = f.read().split(b"\0")[1].decode()
        d.close()
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.ours.close)
        env = {k: v for k, v in os.environ.items() if k == "PATH"} | {f"BRIG_{n}_DIR": f"{self.dir}/{n}"
                                                                      for n in ("STATE", "RUN", "CACHE")}
        self.process = subprocess.Popen([f"{helpers}/brig-spawner", helpers], env=env, stderr=subprocess.DEVNULL,
                                        close_fds=False,
                                        preexec_fn=lambda: os.dup2(theirs.fileno(), 3, inheritable=True))
        theirs.close()
        self.ours.settimeout(PATIENCE)
        self.assertEqual(HEAD.unpack(self.ours.recv(65536)[:16])[2], READY)

    def give(self, n=4):
        path = f"{self.dir}/spawner.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(4)
            fds = [self.ours.fileno(), listener.fileno(), os.open(path, os.O_PATH), os.memfd_create("text")]
            send(self.ours, head(T_KEEP), fds[:n])
            for fd in fds[2:]:
                os.close(fd)
        return path

    def test_by_the_supervisor(self):
        path = self.give()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(PATIENCE)
            s.connect(path)
            self.assertEqual(HEAD.unpack(s.recv(4096)[:16])[2], T_KEPT)
        looked = wakeups(self.process.pid)
        self.ours.close()
        wait_until("it has looked", lambda: wakeups(self.process.pid) > looked + 2)
        self.assertIsNone(self.process.poll())
        os.unlink(path)
        self.assertEqual(self.process.wait(PATIENCE), 0)

    def test_by_another_process(self):
        pid = os.fork()
        if pid == 0:
            try:
                self.give()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        self.assertEqual(self.process.wait(PATIENCE), 0)

    def test_without_what_belongs_to_it(self):
        self.give(3)
        self.assertEqual(self.process.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
