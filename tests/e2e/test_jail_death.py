# SPDX-License-Identifier: Apache-2.0
"""Nothing outlives its run: whoever dies, and however."""

import os
import signal
import subprocess
import unittest

from helpers import PATIENCE, read_line, wait_until
from jailkit import PY, SH, JailTest

DAEMON = """
import os, signal, sys, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir('/')
        for fd in (0, 1, 2) if sys.argv[1] == 'close' else (): os.close(fd)
        while True: signal.pause()
    os._exit(0)
os.wait()
"""
HOLD = "echo up; while :; do sleep 0.02; done"


class Run(JailTest):
    """The end of the main process ends everything."""

    def test_daemons_die_with_the_run(self):
        r = self.outcome(*PY, DAEMON + "os._exit(7)", "close", cause="exited", status=7)
        self.assertEqual(r["outcome"]["limits_hit"], [])

    def test_daemons_die_with_a_timeout(self):
        self.outcome("--timeout", "0.3", *PY, DAEMON + "signal.pause()", "close", cause="timeout", status=124)

    def test_a_child_that_holds_the_pipes_does_not_delay_the_end(self):
        r = self.outcome(*PY, DAEMON + "print('result', flush=True); os._exit(0)", "hold", cause="exited", status=0)
        self.assertEqual(r["stdout"], "result\n")
        done = self.w.run(*SH, "sleep 1000 & echo result")
        self.assertEqual((done.returncode, done.stdout), (0, b"result\n"))

    def test_a_child_that_keeps_writing(self):
        r = self.outcome("--output", "1m", *SH, "while echo noise; do :; done & echo result; exit 3", cause="exited",
                         status=3)
        self.assertIn("result", r["stdout"])

    def test_many_orphans(self):
        script = ("import os, signal\nfor _ in range(50):\n    if os.fork() == 0:\n"
                  "        os.setsid(); signal.pause()\nos._exit(0)")
        self.outcome(*PY, script, cause="exited", status=0)

    def test_zombies_are_reaped(self):
        # Orphans become children of pid 1; 300 of them never fit into 16 places unless it reaps.
        self.outcome("--pids", "16", *SH, "i=0; while [ $i -lt 300 ]; do (/bin/true &); i=$((i+1)); done; exit 0",
                     cause="exited", status=0)

    def test_a_fork_bomb(self):
        script = ("import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    try: os.fork()\n"
                  "    except OSError: pass")
        r = self.outcome("--timeout", "1", "--pids", "64", *PY, script, cause="timeout", status=124)
        if "pids_peak" in r["usage"]:
            self.assertLessEqual(r["usage"]["pids_peak"], 65)

    def test_pid_1_cannot_be_killed_from_inside(self):
        self.assertEqual(self.shell("kill -9 1; kill -TERM 1; kill -STOP 1; kill -9 -1; echo alive", status=0).strip(),
                         "alive")

    def test_vfork_hang(self):
        # The parent of a vfork waits in the kernel, deaf to SIGTERM, until the child is gone.
        script = ("import ctypes, os\nlibc = ctypes.CDLL(None)\nSYS_clone, VM_VFORK = 56, 0x4100\n"
                  "if libc.syscall(SYS_clone, VM_VFORK | 17, 0, 0, 0, 0) == 0:\n    while True: libc.pause()\n")
        self.outcome("--timeout", "0.3", "--", "/usr/bin/python3", "-I", "-c", script, cause="timeout", status=124)

    def test_stopped_with_a_stopped_child(self):
        self.outcome("--timeout", "0.3", *SH, "sh -c 'kill -STOP $$' & sleep 1000 & kill -STOP $!; kill -STOP $$",
                     cause="timeout", status=124)

    def test_a_stopped_daemon_is_no_obstacle(self):
        self.outcome(*SH, "setsid sh -c 'kill -STOP $$' & sleep 0.05; exit 4", cause="exited", status=4)

    def test_uninterruptible_pipes(self):
        # A main process that is gone while a child blocks in a write to a full pipe.
        self.outcome("--output", "100", *SH,
                     "mkfifo /tmp/p; (cat /dev/zero > /tmp/p) & (exec 3< /tmp/p; sleep 1000) & sleep 0.05; exit 5",
                     cause="exited",
                     status=5)


class Held(JailTest):
    """A brig with a sandbox that wants to stay."""

    def hold(self, *flags, script=HOLD):
        process = self.w.start(*flags, *SH, script)
        self.assertEqual(read_line(process.stdout), b"up\n")
        return process

    def end(self, process):
        process.wait(PATIENCE)
        process.stdout.close()
        process.stderr.close()


class CommandKilled(Held):
    def check(self, number, *flags, script=HOLD):
        process = self.hold(*flags, script=script)
        self.assertTrue(self.w.processes("brig-init"))
        process.send_signal(number)
        process.stdout.read()  # ends only when nobody holds the pipe any more
        self.end(process)
        self.assertEqual(process.returncode, -number)
        self.w.assert_clean()

    def test_sigkill(self):
        self.check(signal.SIGKILL)

    def test_sigkill_with_an_image(self):
        self.check(signal.SIGKILL, "--disk", "64m")

    def test_sigkill_with_daemons(self):
        self.check(signal.SIGKILL, script=f"setsid sleep 1000 & trap '' TERM HUP INT; {HOLD}")

    def test_sigkill_with_everything(self):
        source = self.w.mkdir("everything", 0o777)
        self.check(signal.SIGKILL, "--disk", "64m", "--writable-root", "-v", f"{source}:/data", "--tmpfs",
                   "/scratch:1m", "--io-write-bps", "100m")

    def test_sigsegv(self):
        self.check(signal.SIGSEGV)

    def test_sigkill_in_the_middle_of_set_up(self):
        # Whatever stage it has reached: many tries, each a little later.
        for n in range(12):
            process = self.w.start("--disk", "64m" if n % 2 else "32m", *SH, HOLD)
            wait_until("the spawner", lambda p=process: self.w.processes("brig-spawner") or p.poll() is not None)
            for _ in range(n * 400):
                pass
            process.kill()
            process.stdout.read()
            self.end(process)
            self.w.assert_clean()

    def test_many_at_once(self):
        held = [self.hold() for _ in range(8)]
        self.assertEqual(len(self.w.processes("brig-init")), 8)
        for process in held:
            process.kill()
        for process in held:
            process.stdout.read()
            self.end(process)


class SpawnerKilled(Held):
    def check(self, *flags):
        process = self.hold(*flags)
        spawner = self.w.spawner()
        os.kill(spawner, signal.SIGKILL)
        status, _, err = self.w.finish(process)
        self.assertEqual((status, err.count(b"\n")), (125, 1), err)
        self.w.assert_clean()

    def test_sigkill(self):
        self.check()

    def test_sigkill_with_an_image(self):
        self.check("--disk", "64m")

    def test_other_brigs_live_on(self):
        first = self.hold()
        spawner = self.w.spawner()
        second = self.hold()
        os.kill(spawner, signal.SIGKILL)
        self.assertEqual(self.w.finish(first)[0], 125)
        self.assertIsNone(second.poll())
        # the first brig says that its spawner died at once; the kernel may still be at taking its sandbox apart
        wait_until("only the second sandbox", lambda: len(self.w.processes("brig-init")) == 1)
        self.outcome("--", "/bin/true", cause="exited", status=0)
        self.assertIsNone(second.poll())
        second.terminate()
        self.assertEqual(self.w.finish(second)[0], 128 + signal.SIGTERM)

    def test_sigterm_does_not_stop_it(self):
        process = self.hold()
        spawner = self.w.spawner()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1):
            os.kill(spawner, number)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.w.finish(process)[0], 128 + signal.SIGTERM)


class GroupKilled(Held):
    def test_the_whole_session(self):
        process = self.hold()
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.read()
        self.end(process)

    def test_ctrl_c_for_the_whole_group(self):
        process = self.hold()
        os.killpg(process.pid, signal.SIGINT)
        status, _, _ = self.w.finish(process)
        self.assertEqual(status, 128 + signal.SIGINT)


class Hung(Held):
    def test_a_stopped_brig_still_dies(self):
        process = self.hold()
        process.send_signal(signal.SIGSTOP)
        process.kill()
        process.stdout.read()
        self.end(process)

    def test_a_timeout_while_brig_is_stopped(self):
        # The spawner keeps the time, so a stopped brig does not stop the clock.
        process = self.hold("--timeout", "0.3")
        process.send_signal(signal.SIGSTOP)
        wait_until("the end of the sandbox", lambda: not self.w.processes("brig-init", "sh", "sleep"))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.w.finish(process)[0], 124)

    def test_nobody_reads_stdout(self):
        process = self.w.start("--timeout", "0.5", *SH,
                               "while echo 0123456789012345678901234567890123456789; do :; done")
        wait_until("the end of the sandbox", lambda: self.w.processes("brig-init") or process.poll() is not None)
        wait_until("the end of the sandbox", lambda: not self.w.processes("brig-init", "sh"))
        self.assertEqual(self.w.finish(process)[0], 124)


if __name__ == "__main__":
    unittest.main()
