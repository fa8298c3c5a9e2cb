# SPDX-License-Identifier: Apache-2.0
"""Long-lived sandboxes: the spawner's service runs and the provider `local`, driven as brigd drives them.

A spawner is started here with one end of a socket, whose other end this process keeps as the supervisor does; hosts
(drivers/service_host.c) are brigds that come and go on it.
"""

import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest

from helpers import BRIG, PATIENCE, steady, wait_until
from jailkit import BUILD, PLAIN_ID, PREFIX, JailTest, World, comm, image_stores, needs_root, read

HOST = next((p for p in (f"{PREFIX}/tests/e2e/service_host", f"{BUILD}/tests/e2e/service_host") if os.path.exists(p)),
            "service_host")
LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or f"{os.path.dirname(os.path.realpath(BRIG))}"
MANY = 200
KILLS = 40


class Host:
    """One brigd."""

    def __init__(self, socket_fd):
        self.process = subprocess.Popen([HOST, str(socket_fd)], pass_fds=[socket_fd], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.pending = b""

    def say(self, *words):
        self.process.stdin.write(("\t".join(words) + "\n").encode())
        self.process.stdin.flush()

    def hear(self):
        """The next line."""
        end = time.monotonic() + PATIENCE
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"nothing heard in time, only {self.pending!r}")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"the host ended: {self.process.wait()} {self.pending!r}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()

    def until(self, *starts):
        """Lines up to and including the first that starts so."""
        lines = [self.hear()]
        while not lines[-1].startswith(starts):
            lines.append(self.hear())
        return lines

    def expect(self, start):
        line = self.hear()
        if not line.startswith(start):
            raise AssertionError(f"heard {line!r}, not {start!r}")
        return line

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def fields(line):
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)}


class ServiceTest(JailTest):
    LIMIT_SECONDS = 120
    HELPERS = LIBEXEC
    SPAWNER = None

    def setUp(self):
        self.hosts = []
        self.spawn()

    def spawn(self, **env):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cgroups = self.w.cgroups.for_a_caller()

        def in_child():
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            self.w.become_caller(cgroups)

        self.spawner = subprocess.Popen([self.SPAWNER or f"{self.HELPERS}/brig-spawner", self.HELPERS],
                                        preexec_fn=in_child, close_fds=False, cwd="/",
                                        env={**self.w.env, **env}, stdin=subprocess.DEVNULL)
        theirs.close()

    def respawn(self, **env):
        self.let_go()
        self.spawn(**env)

    def let_go(self):
        for host in self.hosts:
            host.kill()
        self.hosts = []
        self.socket.close()
        self.spawner.wait(timeout=PATIENCE)

    def tearDown(self):
        self.let_go()
        super().tearDown()

    def host(self, found=0):
        host = Host(self.socket.fileno())
        self.hosts.append(host)
        heard = host.until("recovered")
        self.assertEqual(len(heard), found + 1, heard)
        return host

    def lose(self, host):
        """brigd dies; the supervisor does not."""
        self.hosts.remove(host)
        host.kill()

    def create(self, host, key, *words):
        """The sandbox's id."""
        host.say("create", key, *words)
        up = host.expect(f"up {key} ").split()
        host.expect(f"hello {key} ")
        return up[2]

    def end(self, host, key, cause="cancelled"):
        host.say("end", key)
        self.assertIn(f"ended {key} {cause}", host.until("ended")[-1])

    def run_in(self, host, key, *argv):
        """(fields of its end, what it wrote)"""
        host.say("run", key, *argv)
        lines = host.until(f"exit {key}", f"failed {key}", f"unstarted {key}", "no-call")
        self.assertTrue(lines[-1].startswith(f"exit {key}"), lines)
        return fields(lines[-1]), "\n".join(lines[1:-1])

    def stats(self, host, key):
        host.say("stats", key)
        return fields(host.expect(f"stats {key} "))

    def inits(self):
        return self.w.processes("brig-init")


class Life(ServiceTest):
    def test_create_and_end(self):
        host = self.host()
        self.create(host, "a", "require=all" if image_stores() else "pids=64")
        self.assertEqual(len(self.inits()), 1)
        self.end(host, "a")
        wait_until("nothing of it is left", lambda: not self.inits())

    def test_limits_are_what_was_asked_for_and_have_no_clock(self):
        host = self.host()
        host.say("create", "a", "memory=100000000")
        self.assertIn("memory=100000000 timeout=0", host.expect("up a "))
        host.expect("hello a")

    def test_a_parked_sandbox_is_taken(self):
        host = self.host()
        host.say("pool", "2")
        wait_until("two are ready", lambda: len(self.inits()) == 2)
        before = set(self.inits())
        self.create(host, "a")
        host.say("pool", "0")
        self.assertTrue(before & set(self.inits()))
        self.end(host, "a")

    def test_refused_before_anything_is_made(self):
        host = self.host()
        for word, words in (("memory=5", "memory 5: must be between"),
                            ("bind=relative:/x", "bind source relative: must be absolute"),
                            ("bind=/tmp:/etc", "cannot be replaced"),
                            ("rootfs=relative", "rootfs relative: must be absolute")):
            host.say("create", "a", word)
            self.assertIn(words, host.expect("refused a "))

    def test_killed_pid_1_is_said(self):
        host = self.host()
        self.create(host, "a")
        os.kill(self.inits()[0], signal.SIGKILL)
        self.assertIn("ended a sandbox-gone", host.until("ended a")[-1])

    def test_programs_run(self):
        host = self.host()
        self.create(host, "a")
        end, output = self.run_in(host, "a", "/bin/echo", "it runs")
        self.assertEqual(end["status"], 0)
        self.assertIn("it runs", output)
        end, _ = self.run_in(host, "a", "/bin/sh", "-c", "exit 7")
        self.assertEqual(end["status"], 7 << 8)
        self.end(host, "a")


class Streams(ServiceTest):
    def test_a_new_stream_replaces_the_old(self):
        host = self.host()
        self.create(host, "a")
        boot = None
        for _ in range(5):
            host.say("attach", "a")
            host.until("attached a ok")
            hello = host.until("hello a ")[-1]
            self.assertIn(boot or "boot=", hello)
            boot = hello.split()[2]
        self.assertEqual(self.run_in(host, "a", "/bin/true")[0]["status"], 0)
        self.end(host, "a")

    def test_brigd_dies_and_sandboxes_do_not(self):
        host = self.host()
        ids = {self.create(host, key) for key in "abc"}
        pids = self.inits()
        self.lose(host)
        host = self.host(found=3)
        self.assertEqual(self.inits(), pids)
        for key in ids:
            host.say("attach", key)
            host.until(f"attached {key} ok")
            host.until(f"hello {key} ")
            self.assertEqual(self.run_in(host, key, "/bin/true")[0]["status"], 0)
        self.create(host, "later")
        for key in ids | {"later"}:
            self.end(host, key)

    def test_what_was_underway_when_brigd_died(self):
        host = self.host()
        self.create(host, "a")
        for i in range(20):
            host.say("create", f"b{i}")
            host.say("stats", "a")
            host.say("attach", "a")
        host.say("end", "a")
        host.expect("stats a ")  # it is in the middle of it
        self.lose(host)
        host = Host(self.socket.fileno())
        self.hosts.append(host)
        found = [line.split()[1] for line in host.until("recovered")[:-1]]
        host.say("create", "new")  # its number is nobody else's
        heard = host.until("hello new ")
        host.say("run", "new", "/bin/true")
        heard += host.until("exit new status=0")
        # What was up is known; what came up later, for somebody who is gone, is ended.
        wait_until("no sandbox is nobody's", lambda: len(self.inits()) <= len(found) + 1)
        ended = {line.split()[1] for line in heard if line.startswith("ended")}  # END had been said to one
        for key in set(found) - ended | {"new"}:
            host.say("end", key)
        while not set(found) | {"new"} <= ended:
            ended.add(host.until("ended")[-1].split()[1])
        wait_until("none is left", lambda: not self.inits())

    def test_the_spawner_keeps_no_copy_of_a_stream(self):
        host = self.host()
        before = len(os.listdir(f"/proc/{self.spawner.pid}/fd"))
        self.create(host, "a")
        self.end(host, "a")
        # the reaper's socket, the owner's lock, a namespace
        wait_until("all are closed", lambda: len(os.listdir(f"/proc/{self.spawner.pid}/fd")) <= before + 3)
        self.create(host, "b")
        with_one = len(os.listdir(f"/proc/{self.spawner.pid}/fd"))
        for _ in range(20):
            host.say("attach", "b")
            host.until("attached b ok")
            host.until("hello b ")
        # a network namespace is made ahead
        self.assertLess(len(os.listdir(f"/proc/{self.spawner.pid}/fd")), with_one + 5)
        self.end(host, "b")


class Freezing(ServiceTest):
    def runs(self, host):
        before = self.stats(host, "a")["cpu"]
        wait_until("it uses the processor", lambda: self.stats(host, "a")["cpu"] > before + 20_000_000)

    def test_frozen_and_thawed(self):
        host = self.host()
        self.create(host, "a")
        host.say("run", "a", "/bin/sh", "-c", "while :; do :; done")
        host.until("started a")
        self.runs(host)
        host.say("freeze", "a")
        host.expect("frozen a ok")
        before = self.stats(host, "a")["cpu"]
        time.sleep(0.2)  # clock: the processor's time is what is measured
        self.assertLess(self.stats(host, "a")["cpu"] - before, 5_000_000)
        host.say("attach", "a")
        host.until("attached a ok")
        host.say("thaw", "a")
        self.assertEqual(sorted(host.hear().split()[0] for _ in range(2)), ["frozen", "hello"])
        self.runs(host)
        self.end(host, "a")

    def test_a_frozen_one_can_be_ended(self):
        host = self.host()
        self.create(host, "a")
        host.say("freeze", "a")
        host.expect("frozen a ok")
        self.end(host, "a")

    def test_frozen_when_the_spawner_is_killed(self):
        host = self.host()
        self.create(host, "a")
        host.say("freeze", "a")
        host.expect("frozen a ok")
        self.spawner.kill()
        host.until("gone")
        wait_until("nothing is left", lambda: not self.inits() and not self.w.cgroups.below())


class Counting(ServiceTest):
    def test_stats(self):
        host = self.host()
        self.create(host, "a")
        first = self.stats(host, "a")
        self.assertEqual((first["pids"], first["oom"], first["refused"]), (1, 0, 0))
        self.run_in(host, "a", "/bin/sh", "-c", "dd if=/dev/zero of=/tmp/f bs=1M count=20 2>/dev/null")
        then = self.stats(host, "a")
        self.assertGreaterEqual(then["disk"], first["disk"] + 20_000_000)
        self.assertGreater(then["cpu"], first["cpu"])
        self.assertGreater(then["peak"], 15_000_000)
        self.end(host, "a")

    def test_limits_of_a_live_one(self):
        host = self.host()
        self.create(host, "a", f"memory={256 << 20}", "pids=20")

        def eats():
            return self.run_in(host, "a", "/usr/bin/python3", "-I", "-S", "-c", "x = bytearray(150 << 20)")[0]["status"]

        def forks():
            return self.run_in(host, "a", "/bin/sh", "-c",
                               "for i in $(seq 30); do sleep 1000 & done; exit 0")[0]["status"]

        self.assertEqual(eats(), 0)
        self.assertNotEqual(forks(), 0)
        host.say("limits", "a", str(100 << 20), "500", "60")
        self.assertEqual(fields(host.expect("limits a ")), {"memory": 100 << 20, "cpus": 500, "pids": 60})
        self.assertEqual(eats() & 127, signal.SIGKILL)
        self.assertEqual(forks(), 0)
        host.say("limits", "a", str(300 << 20), "1000", "20")
        host.expect("limits a ")
        self.assertEqual(eats(), 0)
        # What cannot be changes nothing, and is said.
        host.say("limits", "a", str(1 << 20), "1000", "20")
        host.expect("refused a memory")
        host.say("limits", "a", str(300 << 20), "0", "20")
        host.expect("refused a limits")
        host.say("run", "a", "/usr/bin/python3", "-I", "-S", "-c",
                 "import time; x = bytearray(50 << 20); print('here', flush=True); time.sleep(1000)")
        host.until("output a 1")
        host.say("limits", "a", str(20 << 20), "1000", "20")
        host.until("no-limits a limits.memory")
        self.assertNotEqual(forks(), 0)
        self.assertEqual(eats(), 0)
        self.end(host, "a")

    def test_a_program_that_eats_memory_dies_alone(self):
        host = self.host()
        self.create(host, "a", "memory=64000000")
        eat = "b = bytearray(200 << 20)"
        end, _ = self.run_in(host, "a", "/usr/bin/python3", "-I", "-S", "-c", eat)
        self.assertEqual(end["status"] & 127, signal.SIGKILL)
        self.assertEqual(self.run_in(host, "a", "/bin/true")[0]["status"], 0)
        self.assertGreaterEqual(self.stats(host, "a")["oom"], 1)
        host.say("end", "a")
        ended = host.until("ended a")[-1]
        self.assertIn("ended a cancelled hit=1", ended)  # BRIG_LIMIT_MEMORY

    def test_idle_services_wake_nobody(self):
        host = self.host()
        for i in range(10):
            self.create(host, f"s{i}")

        def switches():
            text = read(f"/proc/{self.spawner.pid}/status")
            return sum(int(n) for n in re.findall(r"ctxt_switches:\s*(\d+)", text))

        before = steady(switches)  # what remains of their start
        time.sleep(1)  # clock: how often it wakes in a second is what is measured
        self.assertLessEqual(switches() - before, 2)


class Leaves(ServiceTest):
    def below(self):
        return [d for d in self.w.cgroups.below() if re.fullmatch(r"p\d+", os.path.basename(d))]

    def test_a_process_has_one_while_it_runs(self):
        host = self.host()
        self.create(host, "a")
        host.say("run", "a", "/bin/sleep", "1000")
        host.until("started a")
        self.assertTrue(self.below())
        leaf = next(d for d in self.below() if os.path.exists(f"{d}/cgroup.kill"))
        (pid,) = read(f"{leaf}/cgroup.procs").split()
        self.assertEqual(comm(pid), "sleep")
        os.kill(int(pid), signal.SIGKILL)
        end = fields(host.until("exit a")[-1])
        self.assertEqual((end["leaf"], end["status"]), (1, signal.SIGKILL))
        wait_until("its cgroups are gone", lambda: not self.below())
        self.end(host, "a")

    def test_daemons_die_with_the_process(self):
        host = self.host()
        self.create(host, "a")
        end, _ = self.run_in(host, "a", "/bin/sh", "-c",
                             "setsid sleep 1000 >/dev/null 2>&1 </dev/null & setsid setsid sleep 1000 & exit 3")
        self.assertEqual((end["status"], end["leaf"]), (3 << 8, 1))
        wait_until("nobody is left", lambda: len(self.w.processes("sleep")) == 0)
        self.assertFalse(self.below())
        self.end(host, "a")

    def test_counted_for_each(self):
        host = self.host()
        self.create(host, "a", "memory=200000000")
        big, _ = self.run_in(host, "a", "/usr/bin/python3", "-I", "-S", "-c", "b = bytearray(50 << 20)")
        small, _ = self.run_in(host, "a", "/bin/true")
        eater, _ = self.run_in(host, "a", "/usr/bin/python3", "-I", "-S", "-c", "b = bytearray(300 << 20)")
        after, _ = self.run_in(host, "a", "/bin/true")
        self.assertGreater(big["peak"], 50 << 20)
        self.assertLess(small["peak"], 30 << 20)
        self.assertGreater(big["cpu"], small["cpu"])
        self.assertEqual((big["oom"], small["oom"], after["oom"]), (0, 0, 0))
        self.assertGreaterEqual(eater["oom"], 1)
        self.end(host, "a")

    def test_refused_processes_are_counted_where_they_were(self):
        host = self.host()
        self.create(host, "a", "pids=16")
        bomb = ("import os\nn = 0\ntry:\n  while True:\n    os.fork() or os.execv('/bin/sleep', ['sleep', '100'])\n"
                "except OSError: os._exit(9)")
        end, _ = self.run_in(host, "a", "/usr/bin/python3", "-I", "-S", "-c", bomb.replace("\n", "\r"))
        self.assertEqual(end["status"], 9 << 8)
        self.assertGreaterEqual(end["refused"], 1)
        calm, _ = self.run_in(host, "a", "/bin/true")
        self.assertEqual((calm["status"], calm["refused"]), (0, 0))
        self.end(host, "a")

    def test_ended_with_leaves(self):
        host = self.host()
        self.create(host, "a")
        for _ in range(5):
            host.say("run", "a", "/bin/sleep", "1000")
            host.until("started a")
        self.end(host, "a")
        wait_until("no cgroup is left", lambda: not self.w.cgroups.below())


class Sharing(ServiceTest):
    """What a daemon that was taken over can ask for."""

    def test_nothing_of_the_host_by_default(self):
        host = self.host()
        for source in ("/etc", "/root", self.w.home, "/usr"):
            host.say("create", "a", f"ro={source}:/x")
            self.assertIn(f"ended a policy hit=0 bind source {source}: not in a directory that this service may share",
                          host.expect("ended a "))
        host.say("create", "a", f"rootfs={self.w.home}")
        self.assertIn("not in a directory that this service may use", host.expect("ended a "))

    def test_only_below_what_is_shared(self):
        shared = self.w.mkdir("shared")
        self.w.file("shared/inside", "seen\n")
        self.w.file("secret", "not seen\n")
        os.symlink(self.w.home, f"{shared}/up")
        os.symlink("inside", f"{shared}/link")
        self.respawn(BRIG_BIND_ROOTS=f"/nonexistent:{shared}/")
        host = self.host()
        for path in ("shared/up", "shared/up/secret", "shared/link", "shared/../secret", "shared-not", "secret",
                     "shared/nothing"):
            host.say("create", "a", f"ro={self.w.home}/{path}:/x")
            self.assertIn(f"ended a policy hit=0 bind source {self.w.home}/{path}: ", host.expect("ended a "), path)
        self.create(host, "a", f"ro={shared}:/x")
        self.assertIn("seen", self.run_in(host, "a", "/bin/cat", "/x/inside")[1])
        self.assertNotEqual(self.run_in(host, "a", "/bin/sh", "-c", "echo no >/x/inside")[0]["status"], 0)
        self.end(host, "a")

    def test_a_wrong_list_ends_the_start(self):
        for wrong in ("relative", "/a:b", "/a/../b", "/a//b"):
            self.respawn(BRIG_BIND_ROOTS=wrong)
            self.assertIn(b"BRIG_BIND_ROOTS", self.socket.recv(4096))

    def test_a_root_below_what_is_shared(self):
        roots = self.w.mkdir("roots")
        for name in ("usr", "bin", "lib", "lib64", "proc", "dev", "tmp", "etc", "home", "workspace"):
            os.makedirs(f"{roots}/one/{name}")
        inmate = f"{os.path.dirname(HOST)}/inmate"
        subprocess.run(["cp", inmate, f"{roots}/one/bin/inmate"], check=True)
        self.respawn(BRIG_ROOTFS_ROOTS=roots)
        host = self.host()
        self.create(host, "a", f"rootfs={roots}/one")
        self.end(host, "a")
        host.say("create", "a", "rootfs=/usr")
        self.assertIn("not in a directory that this service may use", host.expect("ended a "))


RUN, LIST = 2, 15  # src/spawner/spawner_wire.h
RUN_BYTES = 288


def message(kind, run):
    return struct.pack("<4sHHQ", b"brig", 1, kind, run)


class Hostile(ServiceTest):
    """A daemon that was taken over talks to the spawner itself."""

    def test_a_number_twice_ends_everything(self):
        host = self.host()
        self.create(host, "a")
        self.socket.send(message(RUN, 1) + bytes(RUN_BYTES - 16))
        host.until("gone")
        self.assertEqual(self.spawner.wait(timeout=PATIENCE), 0)

    def test_questions_that_nobody_listens_to(self):
        host = self.host()
        self.create(host, "a")
        self.lose(host)
        ask = message(LIST, 7)
        self.socket.setblocking(False)
        sent = 0
        end = time.monotonic() + PATIENCE
        with self.assertRaises(BlockingIOError):
            while time.monotonic() < end:
                try:
                    self.socket.send(ask)
                    sent += 1
                except BlockingIOError:
                    time.sleep(0.05)
                    self.socket.send(ask)  # nothing was read for a while: it does not read any more
        rss = int(re.search(r"VmRSS:\s*(\d+)", read(f"/proc/{self.spawner.pid}/status")).group(1))
        self.assertLess(rss, 64 << 10)
        self.assertGreater(sent, 1000)


class TakenOver(ServiceTest):
    """A brig-init that was taken over (drivers/rogue_init.c)."""

    DEEDS = ("UNKNOWN_FRAME", "HALF_A_FRAME", "DEAF", "FD_BESIDE", "SAME_TWICE", "STARTED_TWICE", "LEAF_STORM", "QUIET",
             "COUNT_TWICE")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.HELPERS = cls.w.mkdir("helpers")
        for name, program in (("brig-spawner", f"{LIBEXEC}/brig-spawner"),
                              ("brig-init", f"{os.path.dirname(HOST)}/rogue_init")):
            shutil.copy(program, f"{cls.HELPERS}/{name}")

    def start(self, host, key, deed):
        host.say("create", key, f"inodes={1000 + self.DEEDS.index(deed)}", "pids=64")
        host.until(f"up {key} ")

    def test_what_is_against_the_protocol_ends_it(self):
        host = self.host()
        for deed in ("UNKNOWN_FRAME", "FD_BESIDE", "SAME_TWICE", "STARTED_TWICE", "DEAF", "COUNT_TWICE"):
            self.start(host, deed, deed)
            self.assertIn("host-error hit=0 brig-init broke the protocol", host.until(f"ended {deed}")[-1])

    def test_the_others_do_not_notice(self):
        host = self.host()
        self.start(host, "quiet", "QUIET")
        for i in range(4):
            self.start(host, f"storm{i}", "LEAF_STORM")
        self.start(host, "half", "HALF_A_FRAME")
        for _ in range(50):
            host.say("stats", "quiet")
            host.until("stats quiet")
        leaves = [d for d in self.w.cgroups.below() if re.fullmatch(r"p\d+", os.path.basename(d))]
        self.assertLessEqual(len(leaves), 4 * 64 * 3)
        for key in ("quiet", "half"):
            self.end(host, key)


class Death(ServiceTest):
    def test_spawner_killed(self):
        host = self.host()
        for i in range(5):
            self.create(host, f"s{i}")
        host.say("run", "s0", "/bin/sleep", "1000")
        host.until("started s0")
        self.spawner.kill()
        lines = host.until("gone")
        self.assertEqual(sum("sandbox-gone" in line for line in lines), 5, lines)
        wait_until("no cgroup is left", lambda: not self.w.cgroups.below())

    def test_spawner_killed_while_it_builds(self):
        """At any moment of a create: no process of it waits for the dead, and no cgroup of it is forgotten."""
        shared = self.w.mkdir("bound")
        for i in range(KILLS):
            self.respawn(BRIG_BIND_ROOTS=shared)
            host = self.host()
            self.create(host, "first")  # so that there is a reaper
            host.say("create", "next", f"bind={shared}:/data")
            end = time.perf_counter() + i * 0.006 / KILLS
            while time.perf_counter() < end:
                pass
            self.spawner.kill()
            host.until("gone")
            self.spawner.wait()
            wait_until(f"nothing is left, kill {i}", lambda: not self.w.processes() and not self.w.cgroups.below())

    def reaper(self):
        (pid,) = self.w.processes("brig-reaper")
        return pid

    def test_spawner_and_reaper_killed(self):
        host = self.host()
        for i in range(3):
            self.create(host, f"s{i}")
        host.say("run", "s0", "/bin/sleep", "1000")
        host.until("started s0")
        host.say("freeze", "s1")
        host.expect("frozen s1 ok")
        os.kill(self.reaper(), signal.SIGKILL)
        self.spawner.kill()
        host.until("gone")
        wait_until("those that are not frozen are gone", lambda: len(self.inits()) == 1)
        self.assertTrue(self.w.cgroups.below())
        self.respawn()
        self.host()
        self.assertEqual(self.inits(), [])
        self.assertEqual(self.w.cgroups.below(), [])

    def test_the_living_are_left_alone(self):
        host = self.host()
        self.create(host, "a")
        keep = (self.socket, self.spawner, self.hosts)
        self.hosts = []
        self.spawn()  # a second one in the same directories
        self.host()
        self.let_go()
        self.socket, self.spawner, self.hosts = keep
        self.assertEqual(self.run_in(host, "a", "/bin/true")[0]["status"], 0)
        self.end(host, "a")


class Many(ServiceTest):
    def test_at_once(self):
        host = self.host()
        for i in range(MANY):
            host.say("create", f"s{i}")
        heard = []
        while sum(line.startswith("hello") for line in heard) < MANY:
            heard.append(host.hear())
            self.assertFalse(heard[-1].startswith(("ended", "refused", "no-")), heard[-1])
        self.assertEqual(len(self.inits()), MANY)
        for i in range(MANY):
            host.say("stats", f"s{i}")
        self.assertEqual(sum(host.hear().startswith("stats") for _ in range(MANY)), MANY)
        # A late one copies only the descriptors it needs.
        table = int(re.search(r"FDSize:\s*(\d+)", read(f"/proc/{max(self.inits())}/status")).group(1))
        self.assertLessEqual(table, 256)
        self.lose(host)
        host = self.host(found=MANY)
        self.socket.close()  # nobody is left who could ask for them
        self.lose(host)
        wait_until("all are gone", lambda: not self.inits())


@needs_root
class Rootless(ServiceTest):
    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID, delegated=True)

    def test_life(self):
        host = self.host()
        self.create(host, "a")
        self.assertEqual(self.run_in(host, "a", "/bin/true")[0]["status"], 0)
        self.stats(host, "a")
        host.say("freeze", "a")
        host.expect("frozen a ok")
        host.say("thaw", "a")
        host.expect("frozen a ok")
        self.lose(host)
        host = self.host(found=1)



if __name__ == "__main__":
    unittest.main()
