# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command line that talk to the daemon, against a real one."""

import contextlib
import filecmp
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading

from helpers import (BRIG, FAILED, PATIENCE, Terminal, brig, environment, own_cgroups, read_line, steady, unread,
                     wait_until)
from service import DEFAULT_ORG, Daemon, ServiceTest

ID = r"[a-z][a-z0-9]{25}"


class CliTest(ServiceTest):
    """A daemon, a directory, and brig with the daemon's environment."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-e2e-cli-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def brig(self, *args, **kw):
        return brig(*args, env=self.d.env, **kw)

    def ok(self, *args, **kw):
        done = self.brig(*args, **kw)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def refused(self, *args, said=None, status=FAILED, **kw):
        done = self.brig(*args, **kw)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertTrue(done.stderr.startswith(b"brig: "), done)
        if said:
            self.assertIn(said, done.stderr.decode(), done)
        return done.stderr.decode()

    def box(self, *flags):
        made = self.ok("create", "-q", *flags).strip()
        self.addCleanup(self.brig, "rm", "-f", "-q", made)
        return made

    def start(self, *args, **kw):
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.d.env}
        process = subprocess.Popen([BRIG, *args], start_new_session=True, **{**how, **kw})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def terminal(self, *args, **kw):
        terminal = Terminal(BRIG, *args, env={**self.d.env, "TERM": "vt220"}, **kw)
        self.addCleanup(terminal.close)
        return terminal


class Sandboxes(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.cgroups = own_cgroups()
        cls.shared = tempfile.mkdtemp(prefix="brig-e2e-shared-")
        os.chmod(cls.shared, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.d = Daemon(cls.CONFIG, env={"BRIG_BIND_ROOTS": cls.shared})

    def test_create_alone(self):
        made = self.ok("create").strip()
        self.assertRegex(made, f"^{ID}$")
        box = json.loads(self.ok("inspect", made))
        self.assertEqual((box["template"], box["state"]), ("host", "running"))
        self.assertEqual(self.ok("rm", made), made + "\n")

    def test_create_flags_reach_the_daemon(self):
        made = json.loads(self.ok("create", "-o", "json", "--name", "flags", "-e", "A=1", "-e", "A=2", "--metadata",
                                  "k=v w", "-m", "128m", "-c", "0.5",
                                  "--pids", "33", "--timeout", "1h", "--idle-timeout", "600", "--on-timeout", "pause",
                                  "-w", "/tmp", "--require", "memory,pids",
                                  "--require", "seccomp", "--profile", "compat", "--command-timeout", "7s", "--confine",
                                  "workdir", "--writable-root"))
        self.addCleanup(self.brig, "rm", "-f", "flags")
        self.assertEqual((made["name"], made["metadata"], made["workdir"], made["on_timeout"]),
                         ("flags", {"k": "v w"}, "/tmp", "pause"))
        self.assertEqual((made["limits"]["memory"], made["limits"]["cpus"], made["limits"]["pids"]),
                         (128 << 20, 0.5, 33))
        self.assertEqual((made["profile"], made["confine"], made["writable_root"]), ("compat", "workdir", True))
        self.assertEqual(sorted(made["require"]), ["memory", "pids", "seccomp"])
        self.assertEqual(self.ok("exec", "flags", "sh", "-c", "echo $A; pwd"), "2\n/tmp\n")

    def test_create_is_idempotent_with_a_key(self):
        first = self.box("--idempotency-key", "same")
        self.assertEqual(self.ok("create", "-q", "--idempotency-key", "same").strip(), first)

    def test_refusals_are_the_daemons(self):
        self.refused("create", "--name", "a b", said="name")
        self.refused("create", "-m", "lots", said="memory")
        self.refused("create", "--template", "nosuch", said="nosuch")
        self.refused("create", "--require", "nosuch", said="nosuch")
        self.refused("create", "-v", "nonsense", said="SRC:DST")
        self.refused("create", "extra", said="one word too many")
        self.refused("create", "--cpu-time", "5", said="--cpu-time: unknown flag")  # nothing could enforce it
        self.refused("exec", "nosuch", "true", said="Sandbox nosuch not found")
        self.refused("rm", "nosuch", said="Sandbox nosuch not found")

    def test_binds(self):
        with open(os.path.join(self.shared, "f"), "w", encoding="utf-8") as f:
            f.write("from outside")
        box = self.box("-v", f"{self.shared}:/mnt:ro")
        self.assertEqual(self.ok("exec", box, "cat", "/mnt/f"), "from outside")

    def test_ps(self):
        one, two = self.box("--metadata", "t=ps"), self.box("--metadata", "t=ps", "--name", "pstwo")
        self.assertEqual(self.ok("ps", "-q", "--metadata", "t=ps").split(), [two, one])
        self.assertEqual(self.ok("ps", "-q", "--name", "pstwo").split(), [two])
        self.assertEqual(self.ok("ps", "-q", "--state", "paused", "--metadata", "t=ps"), "")
        self.assertEqual([b["id"] for b in json.loads(self.ok("ps", "-o", "json", "--metadata", "t=ps"))], [two, one])
        self.assertEqual(json.loads(self.ok("ps", "-o", "json", "--metadata", "t=none")), [])
        lines = self.ok("ps", "--metadata", "t=ps").splitlines()
        self.assertEqual(lines[0].split(), ["ID", "NAME", "STATE", "TEMPLATE", "PROCS", "AGE", "LEFT"])
        self.assertRegex(lines[1], rf"^{two}  pstwo  running  host +0 +\d+s +-$")
        self.refused("ps", "--state", "happy", said="happy")

    def test_tables_fit_a_terminal(self):
        self.box("--name", "n" * 60, "--metadata", "t=wide")
        for cols in (80, 72):
            terminal = self.terminal("ps", "--metadata", "t=wide", cols=cols)
            self.assertEqual(terminal.wait(), 0)
            lines = terminal.seen.decode().replace("\r", "").splitlines()
            self.assertTrue(all(len(line) <= cols for line in lines), lines)
            self.assertIn("n~", lines[1])
        self.assertIn("n" * 60, self.ok("ps", "--metadata", "t=wide"))

    def test_pause_resume_stop_rm(self):
        box = self.box("--name", "life")
        self.assertEqual(self.ok("pause", "life"), "life\n")
        self.assertEqual(json.loads(self.ok("inspect", box))["state"], "paused")
        self.refused("exec", "life", "true", said="paused")
        self.assertEqual(self.ok("resume", "-q", "life"), "")
        self.assertEqual(self.ok("exec", "life", "echo", "on"), "on\n")
        self.assertEqual(self.ok("stop", "life"), f"{box}  stopped\n")
        self.refused("stop", "life", said="not found")
        certificate = json.loads(self.ok("inspect", box))
        self.assertEqual((certificate["sandbox_id"], certificate["cause"]), (box, "stopped"))
        self.assertEqual(self.ok("rm", "-f", box), "")

    def test_several_at_once(self):
        one, two = self.box(), self.box()
        done = self.brig("rm", one, "nosuch", two)
        self.assertEqual((done.returncode, done.stdout.decode().split()), (FAILED, [one, two]))

    def test_prune(self):
        paused, running = self.box(), self.box()
        self.ok("pause", paused)
        self.assertEqual(self.ok("prune"), "1 sandbox ended\n")
        self.assertEqual(json.loads(self.ok("prune", "-o", "json")), {"sandboxes": 0})
        self.refused("pause", paused)
        self.ok("pause", running)

    def test_a_run_can_be_inspected(self):
        box = self.box()
        run = json.loads(self.ok("exec", "-o", "json", box, "echo", "x"))["id"]
        wait_until("the receipt is stored", lambda: self.brig("inspect", run).returncode == 0)
        self.assertEqual(json.loads(self.ok("inspect", run))["outcome"]["exit_code"], 0)

    def test_stats_and_top(self):
        box = self.box("--name", "stat")
        number = self.ok("exec", "-d", box, "sleep", "600").strip()
        lines = self.ok("top", box).splitlines()
        self.assertEqual(lines[0].split(), ["NUMBER", "PID", "STATE", "TTY", "AGE", "COMMAND"])
        self.assertRegex(lines[1], rf"^ +{number} +\d+  running  - +\ds  sleep 600$")
        self.assertEqual(self.ok("top", "-q", box), number + "\n")
        self.ok("exec", box, "true")
        self.assertRegex(self.ok("top", "-a", box), r"exited 0 +- .* true\n")
        self.assertEqual(len(json.loads(self.ok("top", "-o", "json", box))["processes"]), 2)
        lines = self.ok("stats").splitlines()
        self.assertEqual(lines[0].split(), ["ID", "NAME", "CPU", "MEMORY", "DISK", "PIDS"])
        self.assertTrue(any(line.startswith(box) and "stat" in line and "/ 512 MiB" in line for line in lines), lines)
        (got,) = json.loads(self.ok("stats", "-o", "json", "stat"))
        self.assertEqual(got["sandbox"], box)
        self.assertRegex(self.ok("stats", "stat").splitlines()[1], rf"^{box} +stat ")
        done = self.brig("stats", "nobody")
        self.assertEqual((done.returncode, done.stdout), (125, b""), done)
        self.assertIn(b"nobody", done.stderr)
        done = self.brig("logs", box, "99")
        self.assertEqual((done.returncode, done.stdout), (125, b""), done)
        self.assertIn(b"99", done.stderr)
        self.assertGreater(got["metrics"]["memory_bytes"], 0)

    def test_port_and_preview(self):
        box = self.box()
        self.ok("exec", "-d", box, "python3", "-m", "http.server", "8123")
        wait_until("it listens", lambda: self.ok("port", "-q", box) == "8123\n")
        self.assertRegex(self.ok("port", box), r"PORT +FAMILY +LISTENS ON\n8123 +ipv4 +all addresses\n")
        url = self.ok("port", "--expires", "5m", box, "8123").strip()
        host = f"8123-{box}.localhost:{self.d.port}"
        self.assertTrue(url.startswith(f"http://{host}/?brig_token="), url)
        answer = self.d.ask("GET", url.split(host, 1)[1], headers={"Host": host}, tcp=True)
        self.assertEqual(answer.status, 200, answer)
        self.assertIn(b"Directory listing", answer.body)
        self.refused("port", box, "99999", said="65535")

    def test_events(self):
        watch = self.start("events", "-o", "json", "--since", "0")
        text = self.start("events", "--since", "0")
        box = self.box("--name", "seen")
        while True:
            event = json.loads(read_line(watch.stdout))
            if event["sandbox_id"] == box:
                break
        self.assertEqual((event["type"], event["name"]), ("sandbox.create", "seen"))
        while box.encode() not in (line := read_line(text.stdout)):
            self.assertTrue(line)
        self.assertRegex(line.decode(), rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  {box}  sandbox\.create  seen\n$")


class Programs(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.b = cls.d.create(name="prog", env={"FROM": "box"})["id"]

    def test_streams_and_status(self):
        done = self.brig("exec", "prog", "sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, b"out\n", b"err\n"))

    def test_dashes_are_optional(self):
        for words in (["--"], []):
            self.assertEqual(self.ok("exec", "prog", *words, "echo", "-n", "--", "x"), "-- x")

    def test_bytes_pass(self):
        data = bytes(range(256)) * 3000
        done = self.brig("exec", "-i", "prog", "cat", stdin=data)
        self.assertEqual((done.returncode, done.stdout == data), (0, True), done.stderr)

    def test_without_i_stdin_is_empty(self):
        self.assertEqual(self.brig("exec", "prog", "cat", stdin=b"x").stdout, b"")

    def test_a_program_that_does_not_read(self):
        self.assertEqual(self.brig("exec", "-i", "prog", "true", stdin=b"x" * (8 << 20)).returncode, 0)

    def test_environment_and_directory(self):
        self.assertEqual(self.ok("exec", "-e", "A=1 2", "-e", "B=", "-w", "/tmp", "prog", "sh", "-c",
                                 "echo $FROM:$A:$B:$PWD"),
                         "box:1 2::/tmp\n")
        self.refused("exec", "-e", "A", "prog", "true", said="K=V")

    def test_outcomes(self):
        self.assertEqual(self.brig("exec", "prog", "sh", "-c", "kill -15 $$").returncode, 143)
        done = self.brig("exec", "--timeout", "0.5s", "prog", "sleep", "60")
        self.assertEqual(done.returncode, 124)
        self.assertRegex(done.stderr, rb"^brig: ended by timeout after 0\.[4-9] s\n$")
        self.assertEqual(self.brig("exec", "-q", "--timeout", "0.5s", "prog", "sleep", "60").stderr, b"")
        done = self.brig("exec", "prog", "nosuch")
        self.assertEqual((done.returncode, done.stdout), (127, b""), done)
        self.assertRegex(done.stderr.decode(), r"^brig: .*nosuch.*\n$")
        self.assertNotIn("status", done.stderr.decode())
        self.assertEqual(self.brig("exec", "prog", "/etc/passwd").returncode, 126)

    def test_oom(self):
        box = self.box("-m", "48m")
        done = self.brig("exec", box, "python3", "-c", "x = b'a' * (200 << 20)")
        self.assertEqual(done.returncode, 137, done)
        self.assertIn(b"ended by oom: more than 48 MiB of memory", done.stderr)

    def test_receipt(self):
        done = self.brig("exec", "-o", "json", "prog", "sh", "-c", "echo hi; printf '\\377' >&2; exit 4")
        self.assertEqual((done.returncode, done.stderr), (4, b""))
        got = json.loads(done.stdout)
        self.assertEqual((got["via"], got["stdout"], got["stderr"], got["stderr_encoding"]),
                         ("daemon", "hi\n", "/w==", "base64"))
        self.assertEqual(got["outcome"]["exit_code"], 4)

    def test_in_the_background(self):
        number = self.ok("exec", "-d", "prog", "sh", "-c", "echo one; echo two >&2; sleep 1; echo three").strip()
        done = self.brig("logs", "-f", "prog", number)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"one\nthree\n", b"two\n"))
        done = self.brig("logs", "prog", number)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"one\nthree\n", b"two\n"))
        self.refused("logs", "prog", "x", said="number")

    def test_logs_of_all_while_they_come(self):
        box = self.box()
        follow = self.start("logs", "-f", box)
        self.ok("exec", "-d", box, "sh", "-c", "echo first; sleep 0.2; echo second")
        self.assertEqual(read_line(follow.stdout), b"first\n")
        self.assertEqual(read_line(follow.stdout), b"second\n")
        self.ok("exec", box, "echo", "third")
        self.assertEqual(read_line(follow.stdout), b"third\n")
        self.ok("rm", box)
        self.assertEqual(follow.wait(PATIENCE), 0)

    def test_the_first_signal_is_the_programs(self):
        process = self.start("exec", "prog", "sh", "-c",
                             "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done")
        self.assertEqual(read_line(process.stdout), b"up\n")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, out), (9, b"caught\n"))

    def test_the_second_kills_it_and_its_children(self):
        process = self.start("exec", "prog", "sh", "-c",
                             "trap '' INT TERM; setsid sleep 12345 & echo up; while :; do sleep 0.05; done")
        self.assertEqual(read_line(process.stdout), b"up\n")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, err), (FAILED, b"brig: cancelled\n"))
        self.assertNotIn("12345", self.ok("exec", "prog", "sh", "-c",
                                          "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").replace("cat", ""))

    def test_a_reader_that_goes_away(self):
        process = self.start("exec", "prog", "yes")
        process.stdout.read(100)
        process.stdout.close()
        process.stdout = None
        self.assertEqual(process.wait(PATIENCE), 141)
        wait_until("yes is gone", lambda: " yes" not in self.ok("top", "prog"))

    def test_a_slow_reader_loses_nothing(self):
        process = self.start("exec", "prog", "sh", "-c", "seq 1 200000")
        wait_until("the pipe is full", lambda: unread(process.stdout) > 60000)
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(out, b"".join(b"%d\n" % n for n in range(1, 200001)))

    def test_nothing_is_lost_before_we_have_attached(self):
        """A program that writes at once, and much more than its ring holds."""
        for _ in range(10):
            out = self.brig("exec", "prog", "sh", "-c", "head -c 3000000 /dev/zero").stdout
            self.assertEqual(len(out), 3000000)

    def test_a_program_that_is_held_waits_for_its_reader(self):
        for hold, least, most in ((True, 2000000, 2000000), (False, 1, 300000)):
            started = self.d.ask("POST", f"/v1/sandboxes/{self.b}/processes",
                                 {"argv": ["head", "-c", "2000000", "/dev/zero"], "ring": 65536, "hold": hold}).json
            wait_until("it has written what it can", lambda: hold
                       or not self.d.ask("GET",
                                         f"/v1/sandboxes/{self.b}/processes/{started['number']}").json["running"])
            steady(lambda: self.d.ask("GET", f"/v1/sandboxes/{self.b}/processes/{started['number']}").json)
            out = self.brig("logs", "-f", "prog", str(started["number"])).stdout
            self.assertTrue(least <= len(out) <= most, (hold, len(out)))

    def test_it_goes_on_when_brigd_is_replaced(self):
        process = self.start("exec", "-i", "prog", "sh", "-c", "echo up; while read x; do echo got $x; done; echo end",
                             stdin=subprocess.PIPE)
        self.assertEqual(read_line(process.stdout), b"up\n")
        before = self.d.children()["brigd"]
        os.kill(before, signal.SIGKILL)
        wait_until("another brigd", lambda: self.d.children().get("brigd", before) != before)
        self.d.wait_ready()
        process.stdin.write(b"a\n")
        process.stdin.flush()
        self.assertEqual(read_line(process.stdout), b"got a\n")
        process.stdin.close()
        process.stdin = None
        self.assertEqual(read_line(process.stdout), b"end\n")
        self.assertEqual(process.wait(PATIENCE), 0)


class Terminals(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.d.create(name="term")

    def test_exec_with_a_terminal(self):
        terminal = self.terminal("exec", "-it", "term", "sh", "-c",
                                 "stty size; echo $TERM; read x; echo \"<$x>\"; exit 6", rows=30, cols=91)
        terminal.expect(b"30 91\r\nvt220\r\n")
        self.assertNotEqual(terminal.modes(), terminal.before)
        terminal.type(b"word\r")
        terminal.expect(b"<word>")
        self.assertEqual(terminal.wait(), 6)
        self.assertEqual(terminal.modes(), terminal.before)

    def test_resize(self):
        terminal = self.terminal("exec", "-it", "term", "sh", "-c",
                                 "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done")
        terminal.expect(b"up\r\n")
        terminal.resize(33, 111)
        terminal.expect(b"33 111\r\n")
        terminal.type(b"\x03")
        self.assertEqual(terminal.wait(), 130)

    def test_shell(self):
        terminal = self.terminal("shell", "-e", "X=yz", "-w", "/tmp", "term")
        terminal.type(b"echo \"[$X:$PWD:$0]\"; stty -echo\r")
        terminal.expect(b"[yz:/tmp:bash]")
        terminal.type(b"exit 5\r")
        self.assertEqual(terminal.wait(), 5)
        self.assertEqual(terminal.modes(), terminal.before)

    def test_leaving_and_coming_back(self):
        terminal = self.terminal("shell", "term")
        terminal.type(b"stty -echo; V=kept; echo re\"\"ady\r")
        terminal.expect(b"ready")
        terminal.type(b"\x10")
        wait_until("the first key was read", lambda: unread(terminal.slave) == 0)
        terminal.type(b"\x11")
        self.assertEqual(terminal.wait(), 0)
        number = re.search(rb"detached; back with: brig shell --attach (\d+) term", terminal.seen).group(1)
        self.assertEqual(terminal.modes(), terminal.before)
        self.assertIn(number.decode(), self.ok("top", "-q", "term").split())
        again = self.terminal("shell", "--attach", number.decode(), "term")
        again.expect(b"ready")  # the ring's
        again.type(b"echo \"<$V>\"\r")
        again.expect(b"<kept>")
        again.type(b"exit\r")
        self.assertEqual(again.wait(), 0)

    def test_half_of_the_keys_is_input(self):
        terminal = self.terminal("exec", "-it", "term", "sh", "-c",
                                 "stty raw -echo; echo up; head -c 3 | od -An -c; stty sane")
        terminal.expect(b"up")
        terminal.type(b"\x10x\x10")
        terminal.type(b"y")
        terminal.expect(b"020   x 020")
        self.assertEqual(terminal.wait(), 0)

    def test_a_terminal_that_hangs_up(self):
        terminal = self.terminal("shell", "term")
        terminal.type(b"echo up\r")
        terminal.expect(b"up")
        os.close(os.dup(terminal.master))
        terminal.process.send_signal(signal.SIGHUP)
        terminal.process.wait(PATIENCE)

    def test_it_needs_one(self):
        self.refused("shell", "term", said="not a terminal")
        self.refused("exec", "-it", "term", "sh", said="not a terminal")

    def test_strangers_bytes_are_escaped(self):
        terminal = self.terminal("exec", "term", "printf", "\\033[31mred\\007")
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual(terminal.seen, b"^[[31mred^G")
        number = self.ok("exec", "-d", "term", "printf", "a\\033]0;x\\007").strip()
        wait_until("it has ended", lambda: number not in self.ok("top", "-q", "term").split())
        logs = self.terminal("logs", "term", number)
        self.assertEqual(logs.wait(), 0)
        self.assertEqual(logs.seen, b"a^[]0;x^G")
        top = self.terminal("top", "-a", "term", cols=200)
        self.assertEqual(top.wait(), 0)
        self.assertNotIn(b"\x1b", top.seen)


class Copies(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.d.create(name="files", limits={"memory": "512m"})

    def make_tree(self):
        os.makedirs(self.path("src", "sub", "empty"))
        for name, data, mode in (("a", b"a" * 100000, 0o755), ("sub/b", b"", 0o600), ("sub/n\xff\n", b"n", 0o644)):
            with open(os.path.join(os.fsencode(self.path("src")), name.encode("latin-1")), "wb") as f:
                f.write(data)
            os.chmod(os.path.join(os.fsencode(self.path("src")), name.encode("latin-1")), mode)
        os.symlink("a", self.path("src", "link"))
        return self.path("src")

    def assert_same(self, a, b):
        compared = filecmp.dircmp(a, b)
        self.assertEqual((compared.left_only, compared.right_only, compared.diff_files, compared.funny_files),
                         ([], [], [], []))
        for sub in compared.common_dirs:
            self.assert_same(os.path.join(a, sub), os.path.join(b, sub))

    def test_a_file_up_and_down(self):
        data = os.urandom(3 << 20)
        with open(self.path("f"), "wb") as f:
            f.write(data)
        os.chmod(self.path("f"), 0o741)
        self.assertEqual(self.ok("cp", self.path("f"), "files:/workspace/g"), "")
        self.assertEqual(self.ok("exec", "files", "stat", "-c", "%a %s", "g"), f"741 {len(data)}\n")
        self.ok("cp", "files:g", self.path("back"))
        with open(self.path("back"), "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(os.stat(self.path("back")).st_mode & 0o777, 0o741)
        self.assertEqual(sorted(os.listdir(self.dir)), ["back", "f"])  # no temporary file

    def test_into_directories(self):
        with open(self.path("f"), "w", encoding="utf-8") as f:
            f.write("x")
        self.ok("exec", "files", "mkdir", "-p", "dir")
        for target in ("files:dir", "files:dir/", "files:new/deep/"):
            self.ok("cp", self.path("f"), target)
        self.assertEqual(self.ok("exec", "files", "cat", "dir/f", "new/deep/f"), "xx")
        os.mkdir(self.path("here"))
        self.ok("cp", "files:dir/f", self.path("here"))
        self.assertEqual(os.listdir(self.path("here")), ["f"])

    def test_a_tree_up_and_down(self):
        src = self.make_tree()
        self.ok("cp", src, "files:tree")  # not there: becomes it
        self.ok("cp", src, "files:tree")  # there: inside
        self.ok("cp", src + "/.", "files:tree2/")
        self.ok("cp", "files:tree/src", self.path("one"))
        self.assert_same(src, self.path("one"))
        self.ok("cp", "files:tree2/.", self.path("two"))
        self.assert_same(src, self.path("two"))
        os.mkdir(self.path("in"))
        self.ok("cp", "files:tree2", self.path("in"))
        self.assert_same(src, self.path("in", "tree2"))
        self.assertEqual(os.readlink(self.path("in", "tree2", "link")), "a")
        self.assertEqual(os.stat(self.path("in", "tree2", "a")).st_mode & 0o777, 0o755)

    def test_standard_streams(self):
        self.assertEqual(self.brig("cp", "-", "files:/tmp/s", stdin=b"\x00\xffbytes").returncode, 0)
        self.assertEqual(self.brig("cp", "files:/tmp/s", "-").stdout, b"\x00\xffbytes")

    def test_tar_streams(self):
        src = self.make_tree()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            tar.add(src, arcname=".")
        self.assertEqual(self.brig("cp", "--tar", "-", "files:fromtar", stdin=archive.getvalue()).returncode, 0)
        done = self.brig("cp", "files:fromtar", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            self.assertEqual({os.path.normpath(n) for n in tar.getnames()} - {"."},
                             {"a", "link", "sub", "sub/b", "sub/empty", "sub/n\udcff\n"})
        self.assertEqual(self.brig("cp", "--tar", "-", "files:bad", stdin=b"not a tar" * 1000).returncode, FAILED)

    def test_what_comes_out_stays_in_its_place(self):
        """A sandbox that was taken over sends an archive with links; a directory of ours has some too."""
        self.ok("exec", "files", "sh", "-c", "mkdir -p evil/d && ln -s / evil/root && ln -s ../../victim evil/d/up && "
                "mkfifo evil/fifo && echo x > evil/x && chmod 755 evil/x")
        with open(self.path("victim"), "w", encoding="utf-8") as f:
            f.write("mine")
        os.mkdir(self.path("out"))
        os.symlink("../victim", self.path("out", "x"))
        done = self.brig("cp", "files:evil/.", self.path("out"))
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"1 entry was left out", done.stderr)
        self.assertFalse(os.path.islink(self.path("out", "x")))
        self.assertEqual(os.stat(self.path("out", "x")).st_mode & 0o7777, 0o755)
        with open(self.path("victim"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "mine")

    def test_refusals(self):
        self.refused("cp", "files:nosuch", self.path("x"), said="there is no such file")
        self.refused("cp", self.path("nosuch"), "files:x", said="No such file")
        self.refused("cp", "/etc/passwd", "nosuch:x", said="Sandbox nosuch not found")
        self.refused("cp", "/etc/passwd", "files:/etc/x", said="read-only")
        self.refused("cp", "/etc/passwd", "files:../x", said="..")
        self.refused("cp", "a", "b", said="neither")
        self.refused("cp", "files:a", "files:b", said="from one sandbox to another")
        self.refused("cp", "/dev/null", "files:x", said="neither a file nor a directory")
        self.refused("cp", "files:/dev/zero", self.path("x"), said="char")
        self.assertEqual(os.listdir(self.dir), [])

    def test_an_interrupted_copy_leaves_nothing(self):
        self.ok("exec", "files", "sh", "-c", "echo x > sparse; truncate -s 8G sparse")
        process = self.start("cp", "--max", "8g", "files:sparse", self.path("x"))
        wait_until("it has begun", lambda: any(os.stat(self.path(n)).st_size > 0 for n in os.listdir(self.dir)))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 130)
        self.assertEqual(os.listdir(self.dir), [])

    def test_progress_on_a_terminal(self):
        self.ok("exec", "files", "sh", "-c", "truncate -s 600M sparse2")
        terminal = self.terminal("cp", "--max", "600m", "files:sparse2", "/dev/null")
        self.assertEqual(terminal.wait(), 0)
        self.assertRegex(terminal.seen, rb"\r\x1b\[K +\d+ %  [\d.]+ MiB of 600 MiB  [\d.]+ [MG]iB/s  sparse2")
        self.assertTrue(terminal.seen.endswith(b"\r\x1b[K"))

    def test_ls(self):
        self.ok("exec", "files", "sh", "-c",
                "mkdir -p l/d && printf abc > l/f && chmod 640 l/f && ln -s f l/s && touch 'l/\x1b[31m' l/d/x")
        lines = self.ok("ls", "files:l").splitlines()
        self.assertEqual(lines[0].split(), ["MODE", "SIZE", "MODIFIED", "NAME"])
        self.assertRegex(lines[1], r"^-rw-r--r-- +0  \d{4}-\d\d-\d\d \d\d:\d\d  \^\[\[31m$")
        self.assertRegex(lines[2], r"^drwxr-xr-x .* d/$")
        self.assertRegex(lines[3], r"^-rw-r----- +3 .* f$")
        self.assertRegex(lines[4], r"^lrwxrwxrwx .* s -> f$")
        self.assertEqual(self.ok("ls", "-q", "-R", "files:l").split("\n")[1:3], ["d", "d/x"])
        self.assertEqual(len(json.loads(self.ok("ls", "-o", "json", "files:l"))["entries"]), 4)
        self.refused("ls", "files:nosuch", said="not found")


class Administration(CliTest):
    def test_keys(self):
        key = self.ok("key", "create", "-q", "--name", "ci", "--role", "user", "--expires", "1h").strip()
        self.assertRegex(key, r"^e2b_[0-9a-f]{40}$")
        (ident,) = [k["id"] for k in json.loads(self.ok("key", "ls", "-o", "json"))["keys"] if k["name"] == "ci"]
        self.assertRegex(self.ok("key", "ls"), rf"{ident} +ci +user +\ds +(59|60)m")
        env = environment(BRIG_HOST=f"http://127.0.0.1:{self.d.port}", BRIG_API_KEY=key, BRIG_SOCKET=None)
        made = brig("create", "-q", env=env)
        self.assertEqual(made.returncode, 0, made)
        self.assertEqual(brig("exec", made.stdout.decode().strip(), "echo", "over tcp", env=env).stdout, b"over tcp\n")
        self.assertEqual(brig("key", "ls", env=env).returncode, FAILED)  # a user is no administrator
        self.assertEqual(self.ok("key", "revoke", ident), ident + "\n")
        done = brig("ps", env=env)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"revoked", done.stderr)
        self.assertNotIn(ident, self.ok("key", "ls", "-q"))
        self.assertIn(ident, self.ok("key", "ls", "-a", "-q"))
        done = self.brig("key", "create")
        self.assertIn(b"the only time it is shown", done.stderr)

    def test_a_key_for_the_numbers_of_the_whole_service(self):
        for flags, has in (((), False), (("--metrics",), True)):
            key = self.ok("key", "create", "-q", "--role", "read-only", *flags).strip()
            text = self.d.ask("GET", "/metrics", tcp=True, key=key).body
            self.assertEqual(b"brig_sandboxes_orphans_total" in text, has, flags)
        admin = self.ok("key", "create", "-q", "--role", "admin").strip()
        env = environment(BRIG_HOST=f"http://127.0.0.1:{self.d.port}", BRIG_API_KEY=admin, BRIG_SOCKET=None)
        done = brig("key", "create", "--metrics", env=env)
        self.assertEqual((done.returncode, done.stdout), (FAILED, b""))
        self.assertEqual(done.stderr, b"brig: metrics: only the administrator on the unix socket may do this\n")

    def test_orgs(self):
        org = self.ok("org", "create", "second").strip()
        self.assertRegex(org, r"^org-[0-9a-f-]{36}$")
        self.assertIn(org, self.ok("org", "ls", "-q").split())
        self.assertIn(DEFAULT_ORG, self.ok("org", "ls"))
        key = self.ok("key", "create", "-q", "--org", org).strip()
        env = environment(BRIG_HOST=f"http://127.0.0.1:{self.d.port}", BRIG_API_KEY=key, BRIG_SOCKET=None)
        mine = self.box()
        done = brig("exec", mine, "true", env=env)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"not found", done.stderr)
        self.assertIn("ORGANISATION", self.ok("key", "ls"))
        self.assertEqual(self.ok("org", "rm", org), org + "\n")

    def test_config_reload(self):
        self.assertEqual(self.ok("config", "reload"), "reloaded\n")
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write("[server]\nnonsense = 1\n")
        try:
            self.refused("config", "reload", said="nonsense")
        finally:
            with open(self.d.config, "w", encoding="utf-8") as f:
                f.write(self.CONFIG)
        self.assertEqual(json.loads(self.ok("config", "reload", "-o", "json"))["reloaded"], True)

    def test_audit(self):
        box = self.box()
        wait_until("it is in the log", lambda: box in self.ok("audit", "tail", "-o", "json"))
        self.assertTrue(self.ok("audit", "verify").startswith("ok"))

    def test_version(self):
        lines = self.ok("version").splitlines()
        self.assertRegex(lines[2], rf"^daemon \S+ \(commit \S+, protocol \d+\) on {re.escape(self.d.socket)}$")
        self.assertEqual(json.loads(self.ok("version", "-o", "json"))["daemon"]["provider"], "local")


class WithoutADaemon(CliTest):
    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def test_it_is_said_in_one_line(self):
        path = self.path("brig.sock")
        for args in (["ps"], ["create"], ["exec", "x", "true"], ["shell", "x"], ["cp", "x:a", "b"], ["key", "create"],
                     ["config", "reload"], ["events"]):
            done = brig(*args, env=environment(BRIG_SOCKET=path)) if args[0] != "shell" else None
            if done:
                self.assertEqual((done.returncode, done.stderr),
                                 (FAILED, f"brig: no daemon answers on {path} (start one with: brig serve)\n".encode()),
                                 args)

    def test_where_it_is_looked_for(self):
        done = brig("ps", env=environment(BRIG_SOCKET=None, BRIG_RUN_DIR=self.path("run")))
        self.assertIn(self.path("run", "brig.sock").encode(), done.stderr)
        for host in ("https://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:x",
                     "http://127.0.0.1:1/path"):
            done = brig("ps", env=environment(BRIG_HOST=host, BRIG_API_KEY="k"))
            self.assertEqual(done.returncode, FAILED)
            self.assertIn(b"BRIG_HOST", done.stderr)
        self.assertIn(b"BRIG_API_KEY", brig("ps", env=environment(BRIG_HOST="http://127.0.0.1:1")).stderr)
        done = brig("ps", env=environment(BRIG_HOST="http://127.0.0.1:1", BRIG_API_KEY="k"))
        self.assertEqual(done.stderr, b"brig: no daemon answers on http://127.0.0.1:1: Connection refused\n")

    def test_version_and_help_need_none(self):
        self.assertEqual(len(brig("version", env=environment(BRIG_SOCKET=self.path("x"))).stdout.splitlines()), 2)
        verbs = re.findall(r"^  (\w+) ", brig("--help").stdout.decode(), re.M)
        self.assertGreater(len(verbs), 25)
        for verb in verbs:
            done = brig(verb, "--help", env=environment(BRIG_SOCKET=self.path("x")))
            self.assertEqual(done.returncode, 0, (verb, done))
            self.assertTrue(done.stdout.startswith(b"usage: brig " + verb.encode()), verb)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            done = brig("completion", shell)
            self.assertEqual(done.returncode, 0)
            self.assertIn(b"inspect exec shell", done.stdout)
            self.assertIsNone(re.search(rb"@[A-Z_]+@", done.stdout))
            if shutil.which(shell):
                with open(self.path(shell), "wb") as f:
                    f.write(done.stdout)
                self.assertEqual(subprocess.run([shell, "-n", self.path(shell)], check=False).returncode, 0)
        script = (brig("completion", "bash").stdout.decode()
                  + '\nCOMP_WORDS=(brig create --idle-t); COMP_CWORD=2; _brig; echo "${COMPREPLY[@]}"\n')
        env = environment(PATH=os.path.dirname(os.path.abspath(BRIG)) + ":" + os.environ["PATH"])
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, env=env, check=True)
        self.assertEqual(done.stdout, b"--idle-timeout\n")
        self.assertEqual(brig("completion", "tcsh").returncode, FAILED)


class Strangers(CliTest):
    """Another program on the socket: what it says can break neither the terminal nor the client."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def serve(self, answer):
        import socket
        listener = socket.socket(socket.AF_UNIX)
        path = self.path("s")
        listener.bind(path)
        listener.listen()

        def loop():
            try:
                while True:
                    c, _ = listener.accept()
                    with c, contextlib.suppress(OSError):
                        data = b""
                        while b"\r\n\r\n" not in data:
                            more = c.recv(65536)
                            if not more:
                                break
                            data += more
                        c.sendall(answer)
                        c.shutdown(socket.SHUT_WR)
                        while c.recv(65536):  # bytes that nobody has read when it closes would reset the connection
                            pass
            except OSError:
                pass

        def end():  # the thread first: it could accept by the number of a descriptor that another test has by then
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.close()

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        self.addCleanup(end)
        return environment(BRIG_SOCKET=path)

    @staticmethod
    def http(body, status="200 OK"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def test_names_with_controls(self):
        evil = "\x1b]0;owned\x07\x9b31m\n"
        env = self.serve(
            self.http({"sandboxes": [{"id": evil, "name": evil, "state": evil, "template": evil, "created_at": evil}],
                       "next_cursor": None}))
        for args in (["ps"], ["ps", "-q"], ["ps", "-o", "json"]):
            done = brig(*args, env=env)
            self.assertEqual(done.returncode, 0, done)
            self.assertIsNone(re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", done.stdout), (args, done.stdout))

    def test_messages_with_controls(self):
        env = self.serve(self.http({"error": {"code": "x", "message": "\x1b[2Jcleared\n\n", "hint": "\x07"}},
                                   "400 Bad Request"))
        done = brig("ps", env=env)
        self.assertEqual((done.returncode, done.stderr), (FAILED, b"brig: \\x1b[2Jcleared\\x0a\\x0a (\\x07)\n"))

    def test_answers_that_are_none(self):
        for answer in (b"", b"garbage\r\n\r\n", self.http(b"{"), self.http(b"[" * 1000), self.http({"sandboxes": 7}),
                       self.http(b"null"),
                       b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                       b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"):
            try:
                os.unlink(self.path("s"))
            except FileNotFoundError:
                pass
            env = self.serve(answer)
            for args in (["ps"], ["inspect", "x"], ["exec", "x", "true"], ["cp", "x:a", self.path("a")], ["create"],
                         ["events", "--since", "x"]):
                done = brig(*args, env=env)
                self.assertIn(done.returncode, (0, FAILED), (answer, args, done))
                self.assertNotIn(b"AddressSanitizer", done.stderr)


if __name__ == "__main__":
    import unittest
    unittest.main()
