# SPDX-License-Identifier: Apache-2.0
"""Every cause of death, exactly: what the receipt says, what limits_hit names, and the status the command gives."""

import fcntl
import json
import os
import signal
import unittest

from helpers import PATIENCE, read_line
from jailkit import ALL_LAYERS, KNOBS, PY, SH, JailTest, comm, image_stores

EAT = "a = []\nwhile True: a.append(bytearray(1 << 20))"
FORK_UNTIL_REFUSED = """
import os, signal, sys
while True:
    try: pid = os.fork()
    except BlockingIOError: break
    if pid == 0: signal.pause()
sys.exit(int(sys.argv[1]))
"""
FILL = "dd if=/dev/zero of=/tmp/fill bs=64k 2>/dev/null"
SMALL_DISK = ("--disk", "2m")


def hits(receipt):
    return receipt["outcome"]["limits_hit"]


class Own(JailTest):
    """The main process ended by itself."""

    def test_exited(self):
        for code in (0, 1, 42, 255):
            r = self.outcome(*SH, f"exit {code}", cause="exited", status=code)
            self.assertEqual((r["outcome"]["exit_code"], r["outcome"]["signal"], hits(r)), (code, None, []))
            self.assertNotIn("detail", r["outcome"])

    def test_signalled(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGRTMIN + 3):
            r = self.outcome(*SH, f"kill -{int(number)} $$", cause="signalled", status=128 + number)
            self.assertEqual((r["outcome"]["exit_code"], r["outcome"]["signal"], hits(r)), (None, number, []))

    def test_saying_killed_is_exited(self):
        r = self.outcome(*SH, "echo Killed >&2; exit 137", cause="exited", status=137)
        self.assertEqual((r["outcome"]["exit_code"], hits(r)), (137, []))

    def test_a_status_above_128_is_exited(self):
        for code in (124, 125, 126, 127, 137, 139):
            self.outcome(*SH, f"exit {code}", cause="exited", status=code)

    def test_not_found_and_not_executable(self):
        r = self.outcome("--", "/no/such/program", cause="exited", status=127)
        self.assertEqual(r["outcome"]["exit_code"], 127)
        self.assertIn("/no/such/program", r["outcome"]["detail"])
        r = self.outcome("--", "/etc/passwd", cause="exited", status=126)
        self.assertEqual(r["outcome"]["exit_code"], 126)

    def test_sixty_four_bits_of_wall_clock(self):
        r = self.outcome("--timeout", "1000h", *SH, "exit 3", cause="exited", status=3)
        self.assertEqual(r["limits"]["timeout"], 3600000)


class Timeout(JailTest):
    TIME = ("--timeout", "0.2")

    def check(self, run, **outcome):
        seconds, r = run
        self.assertEqual(hits(r), ["timeout"])
        for key, value in outcome.items():
            self.assertEqual(r["outcome"][key], value, r["outcome"])
        self.assertGreaterEqual(r["usage"]["wall_ms"], seconds * 1000)
        self.assertLess(r["usage"]["wall_ms"], 10 * (seconds * 1000 + 500))  # grace included; not tenfold
        return r

    def test_sigterm_first(self):
        self.check(self.timed_out(*SH, "echo ready; exec sleep 1000"), signal=signal.SIGTERM, exit_code=None)

    def test_a_deaf_program_is_killed(self):
        self.check(self.timed_out(*SH, "trap '' TERM; echo ready; while :; do sleep 1000; done"),
                   signal=signal.SIGKILL, exit_code=None)

    def test_leaving_with_0_is_still_timeout(self):
        r = self.check(self.timed_out(*SH, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"),
                       signal=None, exit_code=0)
        self.assertEqual(r["stdout"], "ready\nbye\n")

    def test_leaving_with_another_status(self):
        self.check(self.timed_out(*SH, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done"),
                   signal=None, exit_code=9)

    def test_partial_output_is_kept(self):
        _, r = self.timed_out(*SH, "echo err >&2; echo ready; exec sleep 1000")
        self.assertEqual((r["stdout"], r["stderr"]), ("ready\n", "err\n"))
        self.assertEqual(r["truncated"], {"stdout": False, "stderr": False})

    def test_output_of_the_grace_is_kept(self):
        _, r = self.timed_out(*SH, "trap 'echo last words' TERM; echo ready; while :; do sleep 0.01; done")
        self.assertEqual(r["stdout"], "ready\nlast words\n")

    def test_a_stopped_program(self):
        self.timed_out(*SH, "echo ready; kill -STOP $$")

    def test_a_stopped_tree(self):
        self.timed_out(*SH, "sleep 1000 & sleep 1000 & echo ready; kill -STOP -1; kill -STOP $$")

    def test_an_end_before_it_is_the_programs_own(self):
        self.outcome("--timeout", "60", *SH, "exit 5", cause="exited", status=5)

    def test_one_line_on_stderr(self):
        done = self.w.run(*self.TIME, "--", "/bin/sleep", "1000")
        self.assertEqual((done.returncode, done.stdout), (124, b""))
        self.assertRegex(done.stderr.decode(), r"^brig: .*timeout.*\n$")


class CpuLimit(JailTest):
    def check(self, r):
        self.assertEqual(hits(r), ["cpu_time"])
        self.assertGreaterEqual(r["usage"]["cpu_ms"], 300)
        self.assertLess(r["usage"]["cpu_ms"], 3000)

    def test_one_process(self):
        self.check(self.outcome("--cpu-time", "0.3", *SH, "while :; do :; done", cause="cpu-limit", status=137))

    def test_spread_over_children_at_once(self):
        script = "for i in 1 2 3 4; do (while :; do :; done) & done; wait"
        self.check(self.outcome("--cpu-time", "0.3", "-c", "2", *SH, script, cause="cpu-limit", status=137))

    def test_spread_over_children_in_turn(self):
        self.check(self.outcome("--cpu-time", "0.3", *SH, "while :; do /bin/true; done", cause="cpu-limit", status=137))

    def test_waiting_costs_nothing(self):
        r = self.outcome("--cpu-time", "0.3", "--", "/bin/sleep", "0.5", cause="exited", status=0)
        self.assertLess(r["usage"]["cpu_ms"], 300)

    def test_sleepers_do_not_hide_it(self):
        self.check(self.outcome("--cpu-time", "0.3", *SH, "sleep 1000 & trap '' TERM; while :; do :; done",
                                cause="cpu-limit", status=137))


class OutputLimit(JailTest):
    def test_kill(self):
        r = self.outcome("--output", "1000", "--on-output-limit", "kill", *SH, "while :; do echo 0123456789; done",
                         cause="output-limit",
                         status=137)
        self.assertEqual(hits(r), ["output"])
        self.assertEqual(r["stdout"], ("0123456789\n" * 100)[:1000])
        self.assertEqual(r["truncated"], {"stdout": True, "stderr": False})

    def test_kill_although_it_would_end_soon(self):
        script = "head -c 5000 /dev/zero; exec sleep 1000"
        r = self.outcome("--output", "1000", "--on-output-limit", "kill", *SH, script, cause="output-limit", status=137)
        self.assertEqual(len(r["stdout"]), 1000)

    def test_exactly_the_limit_is_no_excess(self):
        for what in ("kill", "drop"):
            r = self.outcome("--output", "1000", "--on-output-limit", what, *SH, "head -c 1000 /dev/zero | tr '\\0' x",
                             cause="exited",
                             status=0)
            self.assertEqual((hits(r), len(r["stdout"]), r["truncated"]["stdout"]), ([], 1000, False))

    def test_drop_is_the_default(self):
        r = self.outcome("--output", "1000", *SH, "head -c 300000 /dev/zero | tr '\\0' x; exit 3", cause="exited",
                         status=3)
        self.assertEqual((hits(r), r["stdout"]), (["output"], "x" * 1000))
        self.assertEqual(r["truncated"], {"stdout": True, "stderr": False})

    def test_one_sum_over_both_streams(self):
        script = "head -c 800 /dev/zero | tr '\\0' o; sleep 0.2; head -c 800 /dev/zero | tr '\\0' e >&2"
        r = self.outcome("--output", "1000", *SH, script, cause="exited", status=0)
        self.assertEqual((r["stdout"], r["stderr"]), ("o" * 800, "e" * 200))
        self.assertEqual(r["truncated"], {"stdout": False, "stderr": True})

    def test_text_mode_drops_as_well(self):
        done = self.w.run("--output", "10", *SH, "echo 0123456789abcdef; exit 4")
        self.assertEqual((done.returncode, done.stdout), (4, b"0123456789"))
        self.assertEqual(done.stderr.count(b"\n"), 1)


class Oom(JailTest):
    MEMORY = ("-m", "24m")

    def check(self, r):
        self.assertIn("memory", hits(r))
        self.assertEqual(r["outcome"]["signal"], signal.SIGKILL)
        if "memory_peak_bytes" in r["usage"]:
            self.assertLessEqual(r["usage"]["memory_peak_bytes"], 24 << 20)
            self.assertGreater(r["usage"]["memory_peak_bytes"], 20 << 20)

    def test_one_process(self):
        self.check(self.outcome(*self.MEMORY, *PY, EAT, cause="oom", status=137))

    def test_a_child_takes_all_with_it(self):
        # The parent would wait for ever: it ends because the child's death ends the run.
        script = f"import os, signal\nif os.fork():\n    while True: signal.pause()\n{EAT}"
        self.check(self.outcome(*self.MEMORY, *PY, script, cause="oom", status=137))

    def test_many_small_children(self):
        script = "while :; do (x=x; while :; do x=$x$x; done) & done"
        r = self.outcome("-m", "24m", "--pids", "1000", *SH, script, cause="oom", status=137)
        self.assertIn("memory", hits(r))

    def test_output_before_it_is_kept(self):
        r = self.outcome(*self.MEMORY, *PY, f"print('before', flush=True)\n{EAT}", cause="oom", status=137)
        self.assertEqual(r["stdout"], "before\n")

    def test_one_line_on_stderr(self):
        done = self.w.run(*self.MEMORY, *PY, EAT)
        self.assertEqual(done.returncode, 137)
        self.assertRegex(done.stderr.decode(), r"^brig: .*oom.*24 MiB.*\n$")


class DiskAndPids(JailTest):
    """Refusals that a program may live with: only a bad end makes them the cause."""

    def test_disk_limit(self):
        r = self.outcome(*SMALL_DISK, *SH, FILL, cause="disk-limit", status=1)
        self.assertEqual((hits(r), r["outcome"]["exit_code"]), (["disk"], 1))

    def test_disk_limit_keeps_the_programs_status(self):
        self.outcome(*SMALL_DISK, *SH, f"{FILL}; exit 42", cause="disk-limit", status=42)
        r = self.outcome(*SMALL_DISK, *SH, f"{FILL}; kill -TERM $$", cause="disk-limit", status=128 + 15)
        self.assertEqual(r["outcome"]["signal"], 15)

    def test_a_full_disk_survived_is_exited(self):
        r = self.outcome(*SMALL_DISK, *SH, f"{FILL}; exit 0", cause="exited", status=0)
        self.assertEqual(hits(r), ["disk"])

    def test_a_full_disk_emptied_again_was_full(self):
        r = self.outcome(*SMALL_DISK, *SH, f"{FILL}; sleep 0.4; rm /tmp/fill; exit 0", cause="exited", status=0)
        self.assertEqual(hits(r), ["disk"])

    def test_half_a_disk_is_no_limit(self):
        r = self.outcome("--disk", "8m", *SH, "head -c 4000000 /dev/zero > /tmp/x; exit 3", cause="exited", status=3)
        self.assertEqual(hits(r), [])

    def test_no_inodes_left(self):
        r = self.outcome("--inodes", "64", *SH, "i=0; while touch /tmp/f$i; do i=$((i+1)); done 2>/dev/null; exit 6",
                         cause="disk-limit", status=6)
        self.assertEqual(r["outcome"]["exit_code"], 6)
        self.assertIn("inodes", hits(r) + ["inodes" if "disk" in hits(r) else ""])

    def test_pids_limit(self):
        r = self.outcome("--pids", "8", *PY, FORK_UNTIL_REFUSED, "3", cause="pids-limit", status=3)
        self.assertEqual((hits(r), r["outcome"]["exit_code"]), (["pids"], 3))

    def test_refused_forks_survived_are_exited(self):
        r = self.outcome("--pids", "8", *PY, FORK_UNTIL_REFUSED, "0", cause="exited", status=0)
        self.assertEqual(hits(r), ["pids"])

    def test_all_but_one_pid_is_no_limit(self):
        r = self.outcome("--pids", "3", *SH, "sleep 0.01 & sleep 0.01 & wait; exit 7", cause="exited", status=7)
        self.assertEqual(hits(r), [])


class Precedence(JailTest):
    def test_timeout_before_disk(self):
        _, r = self.timed_out(*SMALL_DISK, *SH, f"{FILL}; echo ready; exec sleep 1000")
        self.assertEqual(sorted(hits(r)), ["disk", "timeout"])

    def test_timeout_before_pids(self):
        script = FORK_UNTIL_REFUSED.replace("sys.exit(int(sys.argv[1]))", "print('ready', flush=True)\nsignal.pause()")
        _, r = self.timed_out("--pids", "4", *PY, script)
        self.assertEqual(sorted(hits(r)), ["pids", "timeout"])

    def test_oom_before_disk(self):
        script = ("import os\ntry:\n"
                  "    while True: os.write(os.open('/tmp/x', os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'x' * 65536)\n"
                  f"except OSError: pass\n{EAT}")
        r = self.outcome("-m", "32m", *SMALL_DISK, *PY, script, cause="oom", status=137)
        self.assertEqual(sorted(hits(r)), ["disk", "memory"])

    def test_disk_before_pids(self):
        script = FORK_UNTIL_REFUSED + ""
        script = ("import os\nos.system('" + FILL + "')\n") + script
        r = self.outcome("--pids", "8", *SMALL_DISK, *PY, script, "1", cause="disk-limit", status=1)
        self.assertEqual(sorted(hits(r)), ["disk", "pids"])

    def test_cpu_before_output(self):
        r = self.outcome("--cpu-time", "0.3", "--output", "100", *SH, "while :; do echo x; done", cause="cpu-limit",
                         status=137)
        self.assertEqual(sorted(hits(r)), ["cpu_time", "output"])

    def test_dropped_output_beside_an_exit(self):
        r = self.outcome("--output", "100", *SMALL_DISK, *SH, f"head -c 200 /dev/zero; {FILL}; exit 1",
                         cause="disk-limit", status=1)
        self.assertEqual(sorted(hits(r)), ["disk", "output"])

    def test_cancelled_before_everything_of_the_program(self):
        process = self.w.start("-o", "json", *SMALL_DISK, *SH,
                               f"trap '' INT; {FILL}; echo up >&2; while :; do sleep 0.02; done")
        self.wait_for_store(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        status, out, _ = self.w.finish(process)
        r = json.loads(out)
        self.assertEqual((status, r["outcome"]["cause"]), (125, "cancelled"))
        self.assertIn("disk", hits(r))

    def wait_for_store(self, process):
        """-o json keeps the output, so the program is watched from outside: its loop has begun when it sleeps a second
        time."""
        seen = set()

        def sleeping():
            seen.update(p for p in self.w.processes() if comm(p) == "sleep")
            self.assertIsNone(process.poll())
            return len(seen) >= 2

        from helpers import wait_until
        wait_until("the loop", sleeping)


class Policy(JailTest):
    """Each layer switched off (test build) and required: refused, named, and nothing ran. So the self-check reads, and
    does not remember."""

    def test_nothing_is_missing_here(self):
        r = self.outcome("--require", "all", "--", "/bin/true", cause="exited", status=0)
        self.assertTrue(r["protection"]["complete"])
        self.assertEqual([n for n in ALL_LAYERS if not r["protection"]["layers"][n]["on"]], [])

    def test_the_test_build_has_all_of_them_on(self):
        self.outcome("--require", "all", "--", "/bin/true", cause="exited", status=0, program=KNOBS)

    # What must be off as well: a kernel without no_new_privs takes neither filters nor domains from those without
    # capabilities.
    WITH = {"no_new_privs": "landlock,seccomp", "uid_range": "user_ns"}

    def check(self, layer):
        proof = self.w.mkdir(f"proof-{layer}", 0o777)
        how = {"program": KNOBS, "env": {"BRIG_TEST_OFF": ",".join(filter(None, (layer, self.WITH.get(layer))))}}
        flags, where = ("-v", f"{proof}:/proof", "--require", layer), "/proof"
        if layer == "mount_ns":
            flags, where = ("-w", "/", "--require", layer), proof
        if layer == "fds":  # something to find
            secret = os.open(self.w.dir, os.O_RDONLY | os.O_DIRECTORY)
            secret = fcntl.fcntl(secret, fcntl.F_DUPFD, 100)  # low numbers are replaced in any case
            self.addCleanup(os.close, secret)
            how["pass_fds"] = [secret]
        said = self.refused(*flags, *SH, f"echo ran; : > {where}/ran", words=("required layer", layer), **how)
        self.assertEqual(os.listdir(proof), [], said)
        done = self.w.run("-o", "json", *flags, *SH, "echo ran", **how)
        r = json.loads(done.stdout)
        self.assertEqual((done.returncode, r["outcome"]["cause"], r["outcome"]["exit_code"], r["outcome"]["signal"],
                          r["stdout"]),
                         (125, "policy", None, None, ""), r["outcome"])
        self.assertIn(layer, r["outcome"]["detail"])
        self.assertFalse(r["protection"]["complete"])
        self.assertFalse(r["protection"]["layers"][layer]["on"])

    def test_require_all_names_the_missing_one(self):
        for layer in ("landlock", "memory"):
            self.refused("--require", "all", "--", "/bin/true", program=KNOBS, env={"BRIG_TEST_OFF": layer},
                         words=("required layer", layer))

    def test_without_require_it_runs_and_says_so(self):
        r = self.outcome(*SH, "echo ran", cause="exited", status=0, program=KNOBS, env={"BRIG_TEST_OFF": "landlock"})
        self.assertEqual(r["stdout"], "ran\n")
        self.assertFalse(r["protection"]["complete"])
        self.assertFalse(r["protection"]["layers"]["landlock"]["on"])
        self.assertTrue(r["protection"]["layers"]["landlock"]["why"])

    def test_the_real_build_has_no_such_switch(self):
        self.outcome("--require", "all", "--", "/bin/true", cause="exited", status=0,
                     env={"BRIG_TEST_OFF": "all", "BRIG_TEST_FAIL_SYSCALL": "5"})

    def test_a_layer_that_is_only_reported(self):
        self.refused("--require", "time_ns", "--", "/bin/true", words=("required layer", "time_ns"))
        self.refused("--require", "io", "--", "/bin/true", words=("required layer", "io"))
        self.refused("--require", "own_kernel", "--", "/bin/true", words=("required layer", "own_kernel",
                                                                          "the host's kernel"))

    def test_writable_root_is_not_root_readonly(self):
        self.refused("--writable-root", "--require", "root_readonly", "--", "/bin/true",
                     words=("required layer", "root_readonly"))
        r = self.outcome("--writable-root", "--", "/bin/true", cause="exited", status=0)
        self.assertFalse(r["protection"]["complete"])


for _layer in ALL_LAYERS:
    setattr(Policy, f"test_off_{_layer}", lambda self, layer=_layer: self.check(layer))


class Brigs(JailTest):
    """Ends that are not the program's doing."""

    def test_host_error(self):
        nowhere = self.w.mkdir("empty")
        done = self.w.run("--", "/bin/true", env={"BRIG_LIBEXEC_DIR": nowhere})
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertRegex(done.stderr.decode(), r"^brig: .*brig-init.*\n$")
        done = self.w.run("-o", "json", "--", "/bin/true", env={"BRIG_LIBEXEC_DIR": nowhere})
        self.assertEqual((done.returncode, json.loads(done.stdout)["outcome"]["cause"]), (125, "host-error"))

    def test_host_error_in_set_up(self):
        seen = 0
        for n in range(20, 200, 10):  # not every call is part of a sandbox's set-up
            done = self.w.run("-o", "json", *SH, "echo ran", program=KNOBS, env={"BRIG_TEST_FAIL_SYSCALL": str(n)})
            r = json.loads(done.stdout)
            if "set-up" in r["outcome"].get("detail", ""):
                seen += 1
                self.assertEqual((done.returncode, r["outcome"]["cause"], r["stdout"]), (125, "host-error", ""))
                self.assertIn("Input/output error", r["outcome"]["detail"])
                self.assertIsNone(r["outcome"]["exit_code"])
        self.assertGreater(seen, 3)

    def test_host_error_names_the_step_that_failed(self):
        steps = {
            "close_range((unsigned)e->plan->highest_fd": "descriptors: own table",
            "self/oom_score_adj": "oom score: oom_score_adj",
            "sethostname": "host name: sethostname",
            "setns(e->prepared": "network: setns",
            "unshare(CLONE_NEWCGROUP)": "cgroup namespace: unshare",
            "unshare(CLONE_NEWUSER)": "user namespace: unshare",
            "dup3(p->control_fd": "descriptors: control",
            "PR_SET_NO_NEW_PRIVS": "no_new_privs: prctl",
            "sys_execveat(INIT_FD_EXEC": "exec: brig-init",
        }
        layers = self.outcome("--", "/bin/true", cause="exited", status=0)["protection"]["layers"]
        if "v1" in layers["pids"].get("by", ""):
            steps["write(e->prepared"] = "cgroup: tasks"
        for text, step in steps.items():
            knobs = {"BRIG_TEST_FAIL_SYSCALL": "1", "BRIG_TEST_FAIL_TEXT": text}
            done = self.w.run("-o", "json", "--", "/bin/true", program=KNOBS, env=knobs)
            told = json.loads(done.stdout)["outcome"]
            want = ("host-error", f"set-up, {step}: Input/output error")
            self.assertEqual((told["cause"], told.get("detail")), want, text)

    def held(self, *flags):
        process = self.w.start(*flags, *SH, "trap '' INT TERM; echo up; while :; do sleep 0.02; done")
        self.assertEqual(read_line(process.stdout), b"up\n")
        return process

    def test_cancelled(self):
        process = self.held("--receipt", self.w.path("cancelled.json"))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        status, _, err = self.w.finish(process)
        self.assertEqual(status, 125)
        self.assertRegex(err.decode(), r"^brig: cancelled\n$")
        with open(self.w.path("cancelled.json"), encoding="utf-8") as text:
            r = json.load(text)
        self.assertEqual((r["outcome"]["cause"], r["stdout"], hits(r)), ("cancelled", "up\n", []))

    def test_sandbox_gone(self):
        process = self.held("--receipt", self.w.path("gone.json"))
        init = self.w.processes("brig-init")
        self.assertEqual(len(init), 1)
        os.kill(init[0], signal.SIGKILL)
        status, _, err = self.w.finish(process)
        self.assertEqual((status, err.count(b"\n")), (125, 1))
        with open(self.w.path("gone.json"), encoding="utf-8") as text:
            self.assertEqual(json.load(text)["outcome"]["cause"], "sandbox-gone")

    def test_spawner_gone(self):
        process = self.held("--receipt", self.w.path("spawner.json"))
        os.kill(self.w.spawner(), signal.SIGKILL)
        status, _, err = self.w.finish(process)
        self.assertEqual((status, err.count(b"\n")), (125, 1))
        with open(self.w.path("spawner.json"), encoding="utf-8") as text:
            r = json.load(text)
        self.assertEqual((r["outcome"]["cause"], r["stdout"]), ("sandbox-gone", "up\n"))


class Usage(JailTest):
    """Numbers that can be believed, within a factor of ten."""

    def test_cpu_and_wall(self):
        r = self.outcome(*PY, "import time\nwhile time.process_time() < 0.3: pass", cause="exited", status=0)
        self.assertGreaterEqual(r["usage"]["cpu_ms"], 280)
        self.assertLess(r["usage"]["cpu_ms"], 3000)
        self.assertGreaterEqual(r["usage"]["wall_ms"], 280)
        self.assertLess(r["usage"]["wall_ms"], PATIENCE * 1000)

    def test_memory_peak(self):
        r = self.outcome(*PY, "b = bytearray(64 << 20)\nb[::4096] = b'x' * (16 << 10)", cause="exited", status=0)
        if "memory_peak_bytes" in r["usage"]:
            self.assertGreater(r["usage"]["memory_peak_bytes"], 64 << 20)
            self.assertLess(r["usage"]["memory_peak_bytes"], 512 << 20)

    def test_pids_peak(self):
        r = self.outcome(*SH, "for i in 1 2 3 4 5; do sleep 0.3 & done; wait", cause="exited", status=0)
        if "pids_peak" in r["usage"]:
            self.assertIn(r["usage"]["pids_peak"], (6, 7))  # pid 1 is ours

    def test_disk_bytes(self):
        r = self.outcome(*SH, "head -c 5000000 /dev/urandom > /tmp/x; sync /tmp/x", cause="exited", status=0)
        self.assertGreaterEqual(r["usage"]["disk_bytes"], 5000000)
        self.assertLess(r["usage"]["disk_bytes"], 50000000)

    @unittest.skipUnless(image_stores(), "ext4 image stores (root, loop devices)")
    def test_written_bytes(self):
        r = self.outcome("--io-write-bps", "1g", "--io-read-bps", "1g", *SH,
                         "dd if=/dev/zero of=/tmp/x bs=1M count=4 oflag=direct 2>/dev/null",
                         cause="exited", status=0)
        self.assertGreaterEqual(r["usage"]["written_bytes"], 4 << 20)
        self.assertLess(r["usage"]["written_bytes"], 40 << 20)

    def test_times(self):
        r = self.outcome("--", "/bin/true", cause="exited", status=0)
        self.assertLessEqual(r["started_at"], r["ended_at"])
        self.assertRegex(r["started_at"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$")


if __name__ == "__main__":
    unittest.main()
