# SPDX-License-Identifier: Apache-2.0
"""The test driver itself, over a small tree of its own: signals, limits, what was not run, what outlives it."""

import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tree import ROOT

sys.path.insert(0, str(ROOT / "tests"))

import lanes  # noqa: E402

PASSES = "import unittest\n\n\nclass A(unittest.TestCase):\n    def test_passes(self):\n        pass\n"
# A daemon in a session of its own, whose parent is gone, is what a killed test leaves; then the test hangs.
HANGS = """import os, subprocess, time, unittest

class B(unittest.TestCase):
    def test_hangs(self):
        daemon = "%(trap)s echo $$ > %(dir)s/pid; mv %(dir)s/pid %(dir)s/daemon; while :; do sleep 1000; done"
        subprocess.run(["sh", "-c", f"setsid sh -c '{daemon}' &"], check=True)
        while True:
            time.sleep(1000)
"""
SIGNALS = """import subprocess, unittest

class S(unittest.TestCase):
    def test_signals(self):
        said = subprocess.check_output(["grep", "^Sig[IB]", "/proc/self/status"], text=True)
        masks = {line.split()[0]: int(line.split()[1], 16) for line in said.splitlines()}
        libc = 3 << 31  # 32 and 33 are glibc's own: posix_spawn(3), by which make starts us, \
has its children ignore them
        self.assertEqual((masks["SigBlk:"], masks["SigIgn:"] & ~libc), (0, 0), said)
"""
LATE = """import time, unittest

class L(unittest.TestCase):
    LIMIT_SECONDS = 0.1

    def test_1_hangs(self):
        time.sleep(1000)

    def test_2_passes(self):
        pass
"""
PARTS = """import unittest

class P(unittest.TestCase):
    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
"""
WAITS = """import os, time, unittest

class W(unittest.TestCase):
    def test_waits(self):
        open('%(dir)s/there', 'w').close()
        while not os.path.exists('%(dir)s/go'):
            time.sleep(0.02)
"""
# Its work is done by a child that nobody waits for, as a service's is.
BURNS = """import subprocess, time, unittest

class C(unittest.TestCase):
    def test_burns(self):
        burn = "import os, time\\nwhile time.process_time() < 0.3: pass\\nos.write(1, b'x')\\ntime.sleep(1000)"
        child = subprocess.Popen(["python3", "-c", burn], stdout=subprocess.PIPE)
        child.stdout.read(1)
"""
LANE = """import os, unittest

class N(unittest.TestCase):
    def test_lane(self):
        with open("/proc/self/cgroup", encoding="utf-8") as lines:
            own = [line.strip().split(":", 2)[1:] for line in lines]
        used = [(name, path) for name, path in own if os.path.isdir(f"/sys/fs/cgroup/{name}") and name]
        self.assertEqual([name for name, path in used if "/brig-lane-" not in path], [])
"""
# What a caller does that ignores and blocks all it can, then becomes the driver.
DEAF = """import os, signal, sys
for n in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(n, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
os.execv(sys.argv[1], sys.argv[1:])
"""


def children(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            found.append(int(name))
    return found


class Driver(unittest.TestCase):
    LIMIT_SECONDS = 120

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="driver-"))
        self.addCleanup(shutil.rmtree, self.dir, True)
        (self.dir / "tests/lint").mkdir(parents=True)
        for path in (ROOT / "tests").glob("*.py"):
            shutil.copy(path, self.dir / "tests")
        # Its modules run one after the other, so that it is known which was not run.
        self.set_lanes(COUNT=1, MORE=0)

    def set_lanes(self, **values):
        path = self.dir / "tests/lanes.py"
        for name, value in values.items():
            text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", path.read_text(encoding="utf-8"))
            self.assertEqual(count, 1)
            path.write_text(text, encoding="utf-8")

    def start(self, prefix=(), **modules):
        for name, text in modules.items():
            (self.dir / f"tests/lint/test_{name}.py").write_text(text, encoding="utf-8")
        driver = [sys.executable, str(self.dir / "tests/run.py")]
        command = [*prefix, *driver, "--build", str(self.dir), "--no-install", "--kind", "lint"]
        proc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, start_new_session=True)
        self.addCleanup(proc.stdout.close)
        self.addCleanup(proc.wait)
        self.addCleanup(proc.kill)
        return proc

    def finish(self, proc):
        said = proc.stdout.read()
        return proc.wait(), said

    def wait_for(self, name, proc):
        while not (self.dir / name).exists():
            self.assertIsNone(proc.poll(), "the driver has ended")
            time.sleep(0.02)

    def daemon(self, proc):
        """A descriptor of the daemon, once it is there."""
        self.wait_for("daemon", proc)
        pid = int((self.dir / "daemon").read_text(encoding="ascii"))
        fd = os.pidfd_open(pid)
        self.addCleanup(os.close, fd)
        return fd

    def hang(self, trap=""):
        """A driver in the middle of the second of three modules, and its daemon."""
        proc = self.start(a=PASSES, b=HANGS % {"dir": self.dir, "trap": trap}, c=PASSES)
        return proc, self.daemon(proc)

    def assertEnded(self, fd):
        self.assertTrue(select.select([fd], [], [], 60)[0], "the process lives on")

    def test_nothing_inherits_the_callers_signals(self):
        status, said = self.finish(self.start([sys.executable, "-c", DEAF], s=SIGNALS))
        self.assertEqual(said.splitlines()[-1], "1 passed, 0 failed, 0 skipped", said)
        self.assertEqual(status, 0)

    def test_a_signal_that_the_caller_ignores_does_not_stop_it(self):
        ignores = DEAF.replace("pthread_sigmask(signal.SIG_SETMASK", "valid_signals() #")
        proc = self.start([sys.executable, "-c", ignores], w=WAITS % {"dir": self.dir})
        self.wait_for("there", proc)
        for number in (signal.SIGHUP, signal.SIGINT):
            proc.send_signal(number)
        (self.dir / "go").touch()
        status, said = self.finish(proc)
        self.assertEqual((status, said.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), said)

    def test_a_test_that_hangs_fails_alone(self):
        status, said = self.finish(self.start(l=LATE))
        self.assertIn("  lint:test_l.py:L.test_1_hangs: time limit\n", said)
        self.assertEqual((status, said.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"), said)

    def test_the_part_that_failed_is_named(self):
        _, said = self.finish(self.start(p=PARTS))
        self.assertRegex(said, r"\| test_parts \(.*\) \(number=1\)\n")
        self.assertNotIn("(number=2)", said)
        self.assertEqual(said.splitlines()[-1], "0 passed, 1 failed, 0 skipped", said)

    def test_a_driver_that_is_stopped_says_what_was_not_run(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with self.subTest(number.name):
                (self.dir / "daemon").unlink(missing_ok=True)
                proc, daemon = self.hang()
                proc.send_signal(number)
                status, said = self.finish(proc)
                why = f"\nnot run, or not to the end ({number.name}):\n"
                self.assertIn(f"{why}  lint:test_b.py\n  lint:test_c.py\n", said)
                self.assertEqual(said.splitlines()[-2:], ["2 not run", "1 passed, 0 failed, 0 skipped"], said)
                self.assertEqual(status, 1)
                self.assertEnded(daemon)

    def test_a_driver_that_is_killed_leaves_nothing(self):
        """The command itself, its keeper and the driver below it: whichever is killed, all end."""
        for depth in range(3):
            with self.subTest(depth):
                (self.dir / "daemon").unlink(missing_ok=True)
                proc, daemon = self.hang()
                chain = [proc.pid]
                for _ in range(2):
                    chain.append(children(chain[-1])[0])
                fds = [os.pidfd_open(pid) for pid in chain]
                os.kill(chain[depth], signal.SIGKILL)
                for fd in fds:
                    self.assertEnded(fd)
                    os.close(fd)
                self.assertEnded(daemon)
                self.assertNotEqual(self.finish(proc)[0], 0)

    def test_a_group_that_is_killed_leaves_nothing(self):
        proc, daemon = self.hang(trap="trap : HUP TERM;")
        os.killpg(proc.pid, signal.SIGKILL)
        self.assertEnded(daemon)

    @unittest.skipUnless(os.geteuid() == 0, "root: cgroups")
    def test_lanes_of_a_driver_that_is_gone_are_removed(self):
        """Killed together with its keeper it could not do that; one that lives, or has a process, keeps its own."""
        gone = subprocess.Popen(["true"])
        gone.wait()
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.addCleanup(child.communicate)
        homes = [home for home in lanes.homes() if os.path.basename(home) != "cpuset"]
        left = [f"{home}/brig-lane-{gone.pid}-1" for home in homes]
        kept = [f"{home}/brig-lane-{os.getpid()}-1" for home in homes]
        busy = f"{homes[0]}/brig-lane-{gone.pid}-2"
        for path in [*(f"{path}/below" for path in left), *kept, busy]:
            os.makedirs(path)
            self.addCleanup(lanes.remove, path)
        pathlib.Path(busy, "cgroup.procs").write_text(str(child.pid), encoding="ascii")
        self.addCleanup(lambda: pathlib.Path(homes[0], "cgroup.procs").write_text(str(child.pid), encoding="ascii"))
        status, said = self.finish(self.start(a=PASSES))
        self.assertEqual(status, 0, said)
        self.assertEqual([path for path in left if os.path.exists(path)], [])
        self.assertEqual([path for path in [*kept, busy] if not os.path.exists(path)], [])

    @unittest.skipUnless(lanes.possible(), "root, two cores and cgroup v1: lanes")
    def test_the_dearest_module_is_named(self):
        _, said = self.finish(self.start(a=PASSES, b=BURNS, c=PASSES))
        dearest = said.partition("dearest")[2].splitlines()[1].split()
        self.assertEqual(dearest[4:], ["lint:test_b.py"], said)
        self.assertGreaterEqual(float(dearest[0]), 0.3, said)

    @unittest.skipUnless(lanes.possible(), "root, two cores and cgroup v1: lanes")
    def test_a_further_lane_begins_while_the_cores_have_time_left(self):
        """The first module waits for the second."""
        self.set_lanes(MORE=1, IDLE_SHARE=0)
        goes = PASSES + f"\nopen('{self.dir}/go', 'w').close()\n"
        status, said = self.finish(self.start(a=WAITS % {"dir": self.dir}, b=goes))
        self.assertEqual((status, said.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"), said)

    @unittest.skipUnless(lanes.possible(), "root, two cores and cgroup v1: lanes")
    def test_a_further_lane_does_not_begin_on_a_busy_machine(self):
        """All modules run in the first lane, though the second one looks often."""
        self.set_lanes(MORE=1, IDLE_SHARE=2, LOOK_SECONDS=0.02)
        first = LANE.replace('"/brig-lane-" not in path', 'not path.endswith("-1")')
        status, said = self.finish(self.start(a=first, b=first))
        self.assertEqual((status, said.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"), said)

    @unittest.skipUnless(lanes.possible(), "root, two cores and cgroup v1: lanes")
    def test_a_lane_has_a_cgroup_in_every_hierarchy(self):
        status, said = self.finish(self.start(n=LANE))
        self.assertEqual((status, said.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), said)

    def test_ci_tells_what_was_not_run(self):
        """A step at its limit is not run, a step with a failure has failed; neither is a success."""
        ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
        steps = {"not run": ("sleep 1000", 1), "passes": ("echo 3 passed, 0 failed, 0 skipped", 60),
                 "fails": ("echo 1 passed, 2 failed, 0 skipped; false", 60),
                 "partly": ("echo 4 not run; echo 1 passed, 0 failed, 0 skipped; false", 60)}
        body = "".join(f"step '{name}' {limit} sh -c '{command}'\n" for name, (command, limit) in steps.items())
        text, count = re.subn(r"(?m)^(step .*\n)+", body, ci)
        self.assertEqual(count, 1)
        (self.dir / ".ci").mkdir()
        (self.dir / ".ci/run").write_text(text, encoding="utf-8")
        done = subprocess.run(["bash", str(self.dir / ".ci/run")], stdout=subprocess.PIPE, text=True, check=False)
        lines = [re.sub(r" +[0-9]+ s ", " ", line) for line in done.stdout.splitlines()[-6:]]
        self.assertEqual([re.sub(r" +", " ", line) for line in lines], [
            "not run NOT RUN (limit of 1 s) no result line", "passes ok 3 passed, 0 failed, 0 skipped",
            "fails FAILED 1 passed, 2 failed, 0 skipped", "partly NOT RUN (4) 1 passed, 0 failed, 0 skipped",
            "2 steps not run to the end", "5 passed, 2 failed, 0 skipped"], done.stdout)
        self.assertEqual(done.returncode, 1)
