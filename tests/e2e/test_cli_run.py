# SPDX-License-Identifier: Apache-2.0
"""`brig run`: what passes through, what does not, how it ends, and what the receipt says of it."""

import base64
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
import unittest

from helpers import BRIG, FAILED, BrigTest, brig, environment, read_line, wait_until

SH = ("--", "/bin/sh", "-c")


class PassThrough(BrigTest):
    def test_streams_and_status(self):
        done = brig("run", *SH, "echo out; echo err >&2; exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, b"out\n", b"err\n"))

    def test_every_exit_status(self):
        for status in (0, 1, 2, 42, 124, 125, 126, 127, 128, 137, 255):
            done = brig("run", *SH, f"exit {status}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (status, b"", b""), status)

    def test_no_dashes_needed(self):
        self.assertEqual(self.run_ok("/bin/echo", "-n", "--", "-m").stdout, b"-- -m")

    def test_arguments_arrive_as_they_are(self):
        words = ["", " ", "a b", "*", "$HOME", "'", '"', "\n", "ä", "\x01", "-x"]
        done = self.run_ok("--", "/usr/bin/printf", "[%s]", *words)
        self.assertEqual(done.stdout.decode(), "".join(f"[{w}]" for w in words))

    def test_a_path_is_searched(self):
        self.assertEqual(self.run_ok("--", "echo", "hi").stdout, b"hi\n")

    def test_every_byte_passes_when_no_terminal(self):
        done = self.run_ok("--", "/usr/bin/printf", "".join(f"\\{n:03o}" for n in range(256)))
        self.assertEqual(done.stdout, bytes(range(256)))

    def test_a_megabyte(self):
        done = self.run_ok(*SH, "head -c 3000000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/zero | tr '\\0' y >&2")
        self.assertEqual((len(done.stdout), len(done.stderr)), (3000000, 1000000))

    def test_order_within_a_stream(self):
        done = self.run_ok(*SH, "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done")
        self.assertEqual(done.stdout.split(), [str(i).encode() for i in range(2000)])

    def test_not_executable_and_not_found(self):
        done = brig("run", "--", "/nowhere/at/all")
        self.assertEqual(done.returncode, 127, done)
        self.assertRegex(done.stderr, rb"^brig: .*nowhere.*\n$")
        done = brig("run", "--", "no-such-program")
        self.assertEqual(done.returncode, 127, done)
        done = brig("run", "--", "/etc/passwd")
        self.assertEqual(done.returncode, 126, done)
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertEqual(brig("run", "--", "/usr").returncode, 126)

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGUSR1):
            done = brig("run", *SH, f"kill -{number.value} $$; sleep 60")
            self.assertEqual(done.returncode, 128 + number, done)

    def test_saying_killed_is_not_being_killed(self):
        got = self.receipt(*SH, "echo Killed; exit 137", status=137)
        self.assertEqual(got["outcome"]["cause"], "exited")

    def test_stdout_that_nobody_reads(self):
        reader, writer = os.pipe()
        os.close(reader)
        process = self.start("run", *SH, "while :; do echo y; done", stdout=writer)
        os.close(writer)
        self.assertEqual(process.wait(60), 141)
        self.assertEqual(process.stderr.read(), b"")

    def test_stdout_that_is_full(self):
        with open("/dev/full", "wb") as full:
            process = self.start("run", "--", "/bin/echo", "x", stdout=full)
            self.assertEqual(process.wait(60), FAILED)
            self.assertIn(b"No space left", process.stderr.read())

    def test_closed_descriptors(self):
        done = subprocess.run(["/bin/sh", "-c", '"$0" run -- /bin/echo hi <&- >&- 2>&-', BRIG], env=environment(),
                              timeout=60,
                              stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, b""))

    def test_a_slow_reader_does_not_stop_the_timeout(self):
        os.chmod(self.dir, 0o777)
        process = self.start("run", "--timeout", "1", "-v", f"{self.dir}:/mnt/here", *SH,
                        "date >/mnt/here/tick; (while sleep 0.05; do date >/mnt/here/tick; done) & while :; do echo "
                             "yyyyyyyyyyyyyyyy; done")
        read_line(process.stdout)  # and no more until the program has stopped ticking
        wait_until("the run ends", lambda: time.time() - os.stat(self.path("tick")).st_mtime > 1)
        out, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 124, said)
        self.assertIn(b"timeout", said)


class Stdin(BrigTest):
    def test_without_i_it_is_empty(self):
        self.assertEqual(self.run_ok("--", "/bin/cat", stdin=b"secret").stdout, b"")

    def test_with_i(self):
        self.assertEqual(self.run_ok("-i", "--", "/bin/cat", stdin=b"hello\n\0\xff").stdout, b"hello\n\0\xff")

    def test_much(self):
        data = os.urandom(1 << 20) * 5
        self.assertEqual(self.run_ok("-i", "--", "/bin/cat", stdin=data).stdout, data)

    def test_end_of_file(self):
        self.assertEqual(self.run_ok("-i", *SH, "cat >/dev/null; echo done", stdin=b"").stdout, b"done\n")

    def test_a_program_that_does_not_read(self):
        done = brig("run", "-i", *SH, "exit 3", stdin=b"x" * 5000000)
        self.assertEqual(done.returncode, 3)

    def test_a_program_that_closes_it(self):
        done = brig("run", "-i", *SH, "exec <&-; sleep 0.2; echo still here", stdin=b"x" * 5000000)
        self.assertEqual((done.returncode, done.stdout), (0, b"still here\n"))

    def test_a_conversation(self):
        process = self.start("run", "-i", *SH, 'while read line; do echo "<$line>"; done', stdin=subprocess.PIPE)
        for word in (b"one", b"two", b"three"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            self.assertEqual(read_line(process.stdout), b"<" + word + b">\n")
        process.stdin.close()
        self.assertEqual(process.wait(60), 0)


class Environment(BrigTest):
    def variables(self, *flags, env=None):
        done = self.run_ok(*flags, "--", "/usr/bin/env", "-0", env=env)
        return dict(e.split("=", 1) for e in done.stdout.decode().split("\0") if e)

    def test_from_nothing(self):
        got = self.variables(env=environment(SECRET="hunter2", LD_PRELOAD_X="x", PYTHONPATH="/x", LANG="xx_YY"))
        self.assertNotIn("SECRET", got)
        self.assertNotIn("PYTHONPATH", got)
        self.assertNotIn("hunter2", str(got))
        self.assertEqual([k for k in got if k.startswith("BRIG_") and k.endswith("_DIR")], [])
        self.assertEqual(got.get("HOME"), "/home/user")
        self.assertIn("PATH", got)
        self.assertNotIn("TERM", got)

    def test_e(self):
        got = self.variables("-e", "A=1", "--env", "B=x y=z", "--env=C=", "-e", "PATH=/bin:/usr/bin")
        self.assertEqual((got["A"], got["B"], got["C"], got["PATH"]), ("1", "x y=z", "", "/bin:/usr/bin"))

    def test_the_last_wins(self):
        self.assertEqual(self.variables("-e", "A=1", "-e", "A=2")["A"], "2")

    def test_file(self):
        path = self.write("env", "# comment\n\nA=from file\n  # indented\nB=$HOME `id` \"quoted\" # not a comment\nC=")
        got = self.variables("-e", "A=from flag", "--env-file", path)
        self.assertEqual((got["A"], got["B"], got["C"]), ("from flag", '$HOME `id` "quoted" # not a comment', ""))

    def test_receipt_names_the_layer_and_not_the_value(self):
        got = self.receipt("-e", "TOKEN=hunter2", "--", "/bin/true")
        self.assertEqual(got["environment"]["TOKEN"], "run")
        self.assertEqual(got["environment"]["PATH"], "base")
        self.assertNotIn("hunter2", json.dumps(got))


class Flags(BrigTest):
    def test_working_directory(self):
        self.assertEqual(self.run_ok("--", "/bin/pwd").stdout, b"/workspace\n")
        self.assertEqual(self.run_ok("-w", "/tmp", "--", "/bin/pwd").stdout, b"/tmp\n")

    def test_binds(self):
        self.write("file", "content\n")
        os.chmod(self.dir, 0o777)
        got = self.run_ok("-v", f"{self.dir}:/mnt/data:ro", "--", "/bin/cat", "/mnt/data/file")
        self.assertEqual(got.stdout, b"content\n")
        done = brig("run", "-v", f"{self.dir}:/mnt/data:ro", *SH, "echo x >/mnt/data/file")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"Read-only", done.stderr)
        self.run_ok("-v", f"{self.dir}:/mnt/data", *SH, "echo new >/mnt/data/new")
        self.assertTrue(os.path.exists(self.path("new")))

    def test_a_relative_bind_source_is_ours(self):
        self.write("file", "content\n")
        os.chmod(self.dir, 0o755)
        done = self.run_ok("-v", ".:/mnt/data:ro", "-v", "./file:/mnt/one:ro", "--", "/bin/cat", "/mnt/data/file",
                           "/mnt/one", cwd=self.dir)
        self.assertEqual(done.stdout, b"content\ncontent\n")

    def test_equals_and_bundles(self):
        got = json.loads(brig("run", "-qi", "--memory=64m", "--name=equals", "-o", "json", "--", "/bin/true",
                              stdin=b"").stdout)
        self.assertEqual((got["limits"]["memory"], got["name"]), (64 << 20, "equals"))

    def test_the_last_limit_wins(self):
        self.assertEqual(self.receipt("-m", "32m", "-m", "64m", "--", "/bin/true")["limits"]["memory"], 64 << 20)

    def test_limits_reach_the_receipt(self):
        got = self.receipt("-m", "128m", "-c", "0.5", "--pids", "32", "--disk", "32m", "--inodes", "500",
                           "--open-files", "64",
                           "--file-size", "8m", "--timeout", "20s", "--cpu-time", "5", "--output", "1m", "--",
                           "/bin/true")["limits"]
        for name, value in {"memory": 128 << 20, "pids": 32, "disk": 32 << 20, "inodes": 500, "open_files": 64,
                            "file_size": 8 << 20,
                            "output": 1 << 20}.items():
            self.assertEqual(got[name], value, name)
        self.assertEqual((got["cpus"], got["timeout"], got["cpu_time"]), (0.5, 20, 5))

    def test_open_files_and_file_size(self):
        self.assertEqual(self.run_ok("--open-files", "64", *SH, "ulimit -n").stdout, b"64\n")
        done = brig("run", "--file-size", "64k", *SH, "head -c 100000 /dev/zero >/tmp/x; wc -c </tmp/x")
        self.assertIn(b"65536", done.stdout)

    def test_tmpfs(self):
        done = self.run_ok("--tmpfs", "/scratch:4m", *SH, "echo x >/scratch/x && cat /scratch/x")
        self.assertEqual(done.stdout, b"x\n")

    def test_writable_root(self):
        done = brig("run", *SH, "echo x >/usr/brig-test")
        self.assertIn(b"Read-only", done.stderr)
        done = self.run_ok("--writable-root", *SH, "echo x >/usr/brig-test && cat /usr/brig-test")
        self.assertEqual(done.stdout, b"x\n")
        self.assertFalse(os.path.exists("/usr/brig-test"))

    def test_profiles(self):
        for profile in ("default", "paranoid", "compat"):
            self.run_ok("--profile", profile, "--", "/bin/true")

    def test_require_a_layer(self):
        self.run_ok("--require", "pid_ns,net_ns", "--require", "seccomp", "--", "/bin/true")


class Ends(BrigTest):
    def test_timeout(self):
        for seconds in ("1", "10", "100"):  # on a busy machine the first may end before the echo
            done = brig("run", "--timeout", seconds, *SH, "echo partial; sleep 1000")
            if done.stdout:
                break
        self.assertEqual((done.returncode, done.stdout), (124, b"partial\n"))
        self.assertRegex(done.stderr, rb"^brig: ended by timeout after [0-9]+\.[0-9] s\n$")

    def test_quiet(self):
        done = brig("run", "-q", "--timeout", "1", *SH, "sleep 1000")
        self.assertEqual((done.returncode, done.stderr), (124, b""))

    def test_quiet_does_not_hide_a_failure(self):
        self.assertNotEqual(brig("run", "-q", "--", "/nowhere").stderr, b"")

    def test_oom(self):
        done = brig("run", "-m", "32m", "--", "/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1")
        if done.returncode == 1:
            self.skipTest("memory is not bounded by a cgroup here: dd was refused the memory instead")
        self.assertEqual(done.returncode, 137, done)
        self.assertRegex(done.stderr, rb"brig: ended by oom: more than 32 MiB of memory\n$")

    def test_oom_of_what_no_limit_counts_says_so(self):
        many = "import socket, time\nheld = [socket.socket(16, 3, 0) for _ in range(100)]\ntime.sleep(100)"
        done = brig("run", "--", "/usr/bin/python3", "-c", many)
        if done.returncode == 0:
            self.skipTest("memory is not bounded by a cgroup here, so nobody looks")
        self.assertEqual(done.returncode, 137, done)
        self.assertRegex(done.stderr, rb"brig: ended by oom: too many netlink sockets, .*: no cgroup counts .*\n$")

    def test_cpu_time(self):
        done = brig("run", "--cpu-time", "1", *SH, "while :; do :; done")
        self.assertEqual(done.returncode, 137, done)
        self.assertRegex(done.stderr, rb"brig: ended by cpu-limit after 1\.0 s of CPU time\n$")

    def test_output_dropped(self):
        done = brig("run", "--output", "1k", *SH, "head -c 5000 /dev/zero | tr '\\0' x; exit 3")
        self.assertEqual((done.returncode, done.stdout), (3, b"x" * 1024))
        self.assertEqual(done.stderr, b"brig: output past 1 KiB was dropped\n")

    def test_output_kills(self):
        done = brig("run", "--output", "1k", "--on-output-limit", "kill", *SH, "while :; do echo yyyyyyy; done")
        self.assertEqual((done.returncode, len(done.stdout)), (137, 1024))
        self.assertEqual(done.stderr, b"brig: ended by output-limit: more than 1 KiB of output\n")

    def test_no_line_with_json(self):
        done = brig("run", "-o", "json", "--timeout", "1", *SH, "sleep 1000")
        self.assertEqual((done.returncode, done.stderr), (124, b""))
        self.assertEqual(json.loads(done.stdout)["outcome"]["cause"], "timeout")


class Signals(BrigTest):
    def finish(self, process, status):
        out = process.stdout.read()
        said = process.stderr.read()
        self.assertEqual(process.wait(60), status, said)
        return out, said

    def test_the_first_is_forwarded(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            process = self.start("run", *SH,
                                 f"trap 'echo got it; exit 9' {number.value}; echo up; while :; do sleep 0.05; done")
            self.assertEqual(read_line(process.stdout), b"up\n")
            process.send_signal(number)
            self.assertEqual(self.finish(process, 9)[0], b"got it\n", number)

    def test_its_default_is_its_default(self):
        process = self.start("run", *SH, "echo up; exec sleep 1000")
        read_line(process.stdout)
        process.send_signal(signal.SIGTERM)
        self.finish(process, 128 + signal.SIGTERM)

    def test_the_second_cancels(self):
        process = self.start("run", *SH, "trap 'echo again' TERM; echo up; while :; do sleep 0.05; done")
        read_line(process.stdout)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(read_line(process.stdout), b"again\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process, FAILED)[1], b"brig: cancelled\n")

    def test_a_deaf_program_is_cancelled(self):
        process = self.start("run", *SH, "trap '' TERM INT; echo up; while :; do sleep 0.05; done")
        read_line(process.stdout)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process, FAILED)[1], b"brig: cancelled\n")

    def test_the_receipt_of_a_cancelled_run(self):
        os.chmod(self.dir, 0o777)
        process = self.start("run", "-o", "json", "-v", f"{self.dir}:/mnt/here", *SH,
                        "trap '' TERM INT; touch /mnt/here/up; while :; do sleep 0.05; done")
        wait_until("the program runs", lambda: os.path.exists(self.path("up")))
        process.send_signal(signal.SIGCONT)  # nothing to us without -t
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        out, _ = self.finish(process, FAILED)
        self.assertEqual(json.loads(out)["outcome"]["cause"], "cancelled")

    def test_usr1_only_passes(self):
        process = self.start("run", *SH, "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done")
        read_line(process.stdout)
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            self.assertEqual(read_line(process.stdout), b"usr1\n")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 128 + signal.SIGTERM)

    def test_ignored_stays_ignored(self):
        process = subprocess.Popen(["/bin/sh", "-c", 'trap "" HUP; exec "$0" run -- /bin/sh -c "echo up; read x" ',
                                    BRIG],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment())
        read_line(process.stdout)
        process.send_signal(signal.SIGHUP)
        out, said = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, said), (1, b"", b""))


class Receipt(BrigTest):
    VIA = "local"
    LAYERS = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock "
              "root_readonly proc fds "
              "memory cpu pids disk inodes").split()

    def test_shape(self):
        got = self.receipt("--name", "shape", *SH, "echo out; echo err >&2; exit 5", status=5)
        self.assertRegex(got["id"], r"^run-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        self.assertRegex(got["sandbox_id"], r"^[a-z0-9]{26}$")
        self.assertEqual((got["kind"], got["via"], got["provider"]), ("command", self.VIA, "local"))
        outcome = got["outcome"]
        self.assertEqual((outcome["cause"], outcome["exit_code"], outcome["signal"], outcome["limits_hit"]),
                         ("exited", 5, None, []))
        self.assertEqual((got["stdout"], got["stderr"]), ("out\n", "err\n"))
        self.assertEqual((got["stdout_encoding"], got["stderr_encoding"]), ("utf-8", "utf-8"))
        self.assertEqual(got["truncated"], {"stdout": False, "stderr": False})
        self.assertGreaterEqual(got["usage"]["wall_ms"], 0)
        self.assertEqual(got["network"]["policy"], "none")
        for name in ("started_at", "ended_at"):
            self.assertRegex(got[name], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        self.assertLessEqual(got["started_at"], got["ended_at"])

    def test_protection(self):
        protection = self.receipt("--", "/bin/true")["protection"]
        for name in self.LAYERS:
            self.assertIn(name, protection["layers"])
            self.assertIsInstance(protection["layers"][name]["on"], bool)
        self.assertEqual(protection["complete"], all(protection["layers"][n]["on"] for n in self.LAYERS))

    def test_signal(self):
        outcome = self.receipt(*SH, "kill -9 $$; sleep 60", status=137)["outcome"]
        self.assertEqual((outcome["cause"], outcome["signal"]), ("signalled", 9))

    def test_limit_hit(self):
        got = self.receipt("--output", "1k", *SH, "head -c 5000 /dev/zero | tr '\\0' x")
        self.assertEqual((got["stdout"], got["truncated"]["stdout"]), ("x" * 1024, True))
        self.assertEqual(got["outcome"]["limits_hit"], ["output"])

    def test_output_that_is_no_text(self):
        got = self.receipt("--", "/usr/bin/printf", "\\377\\000\\033")
        self.assertEqual(got["stdout_encoding"], "base64")
        self.assertEqual(base64.b64decode(got["stdout"]), b"\xff\x00\x1b")

    def test_output_with_controls(self):
        got = self.receipt("--", "/usr/bin/printf", "\\033[31m\\t\"\\\\")
        self.assertEqual(got["stdout"], "\x1b[31m\t\"\\")

    def test_only_json_on_stdout(self):
        done = brig("run", "-o", "json", *SH, "echo noise; echo noise >&2")
        self.assertEqual(done.stderr, b"")
        self.assertTrue(done.stdout.endswith(b"}\n"))
        json.loads(done.stdout)

    def test_text_is_the_default(self):
        self.assertEqual(self.run_ok("-o", "text", "--", "/bin/echo", "x").stdout, b"x\n")

    def test_file(self):
        path = self.write("receipt", "x" * 100000, mode=0o644)
        done = self.run_ok("--receipt", path, "--", "/bin/echo", "hi")
        self.assertEqual(done.stdout, b"hi\n")
        with open(path, encoding="utf-8") as text:
            self.assertEqual(json.load(text)["stdout"], "hi\n")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.dir), ["receipt"])

    def test_file_and_json(self):
        done = self.run_ok("--receipt", "relative", "-o", "json", "--", "/bin/echo", "hi", cwd=self.dir)
        with open(self.path("relative"), "rb") as text:
            self.assertEqual(json.loads(text.read()), json.loads(done.stdout))

    def test_a_link_or_device_is_written_not_replaced(self):
        os.symlink(self.write("target", "old"), self.path("link"))
        self.run_ok("--receipt", self.path("link"), "--", "/bin/true")
        self.assertTrue(os.path.islink(self.path("link")))
        with open(self.path("target"), encoding="utf-8") as text:
            self.assertEqual(json.load(text)["kind"], "command")
        self.run_ok("--receipt", "/dev/null", "--", "/bin/true")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_on_a_descriptor(self):
        done = self.run_ok("--receipt", "/dev/stderr", "--", "/bin/echo", "hi")
        self.assertEqual((done.stdout, json.loads(done.stderr)["stdout"]), (b"hi\n", "hi\n"))

    def test_of_a_refused_run_there_is_none(self):
        path = self.path("receipt")
        self.assertEqual(brig("run", "--receipt", path, "--name", "a b", "--", "/bin/true").returncode, FAILED)
        self.assertFalse(os.path.exists(path))


class Build(BrigTest):
    def test_libraries(self):
        """brig starts in a millisecond because it loads libc and what the jail needs, nothing more."""
        done = subprocess.run(["ldd", BRIG], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        names = re.findall(r"^\s*(?:/\S*/)?(\S+?\.so\S*)", done.stdout.decode(), re.M)
        extra = [n for n in names if not re.match(r"(linux-vdso|libc|ld-linux[-\w]*)\.so", n)]
        self.assertEqual(extra, [], done.stdout.decode())

    def test_example(self):
        """examples/embed.c against the installed header and library."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        prefix = os.environ.get("BRIG_INSTALL_DIR")
        if not compiler or not prefix:
            self.skipTest("BRIG_INSTALL_DIR is not set" if compiler else "no C compiler")
        libraries = [d for d, _, names in os.walk(prefix) if "libbrig.so" in names]
        headers = [d for d, _, names in os.walk(prefix) if "brig.h" in names]
        self.assertTrue(libraries and headers, "no libbrig.so or brig.h is installed")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/embed.c")
        program = self.path("embed")
        subprocess.run([compiler, "-std=c17", "-Wall", "-Wextra", "-Werror", "-I" + headers[0], source,
                        "-L" + libraries[0], "-lbrig",
                        "-Wl,-rpath," + libraries[0], "-o", program],
                       check=True, timeout=60)
        done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        self.assertRegex(done.stdout.decode(),
                         r"^hello from pid \d+, user user\nrun-\S+: exited, exit status 0, \d+ ms, all layers ")

    def test_bench_loops(self):
        for loop in ("cpu", "getppid", "pread", "checked", "files"):
            done = brig("bench", "--loop", loop, cwd=self.dir)
            self.assertRegex(done.stdout, rb"^\d+ \d+\n$", done)


if __name__ == "__main__":
    unittest.main()
