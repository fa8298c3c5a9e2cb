# SPDX-License-Identifier: Apache-2.0
"""Callers as they come: with odd masks, limits, directories and signals, and many of them at the same first moment."""

import json
import os
import resource
import signal
import socket
import threading
import unittest

from helpers import BRIG
from jailkit import IS_ROOT, PLAIN_ID, PREFIX, PY, SH, JailTest, World, image_stores, needs_root


class Inherited:
    """What a process inherits does not reach the program, and does not hurt brig."""

    def with_caller(self, prepare, *args):
        """brig run ARGS by a caller that did prepare() first."""
        become = self.w.become_caller

        def odd(cgroups):
            become(cgroups)
            prepare()

        self.w.become_caller = odd
        try:
            return self.w.run(*args)
        finally:
            del self.w.become_caller

    def ok(self, prepare, *args):
        done = self.with_caller(prepare, *args)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        return done.stdout.decode()

    def fresh(self):
        """Nothing is there yet, so what is made for all is made by this caller."""
        self.w.assert_clean()
        self.w.close()
        type(self).w = self.make_world()

    def test_umasks(self):
        for mask in (0o077, 0o777, 0o000):
            self.fresh()
            out = self.ok(lambda mask=mask: os.umask(mask), *SH, "cat /etc/passwd > /dev/null && ls / /etc /usr/bin > "
                          "/dev/null && umask && touch /tmp/x && stat -c %a /tmp/x")
            self.assertEqual(out.split(), ["0022", "644"], oct(mask))
            self.shell("cat /etc/passwd > /dev/null")

    def test_signals(self):
        def ignore_and_block():
            for s in range(1, 32):
                if s not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(s, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))

        status = dict(line.split(":\t", 1)
                      for line in self.ok(ignore_and_block, *SH, "cat /proc/self/status").splitlines() if ":\t" in line)
        self.assertEqual((int(status["SigBlk"], 16), int(status["SigIgn"], 16)), (0, 0), status)

    def test_ignored_children(self):
        self.ok(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), *SH, "/bin/true; (exit 3); test $? = 3")

    def test_limits(self):
        def tight():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        out = self.ok(tight, *SH, "ulimit -c; ulimit -n")
        self.assertEqual(out.split()[0], "0")  # a core file would be written by a helper of the host's
        self.assertLessEqual(int(out.split()[1]), 1024)

    def test_core_limit_is_zero_for_everyone(self):
        self.assertEqual(self.shell("ulimit -H -c").strip(), "0")

    def test_niceness_and_scores(self):
        self.ok(lambda: os.nice(5), "--", "/bin/true")
        score = int(self.shell("cat /proc/self/oom_score_adj"))
        self.assertGreater(score, 0)  # before anything of the host's
        self.assertNotEqual(self.w.run(*SH, "echo -1000 > /proc/self/oom_score_adj").returncode, 0)

    def test_a_directory_that_is_gone(self):
        path = self.w.mkdir("gone")

        def stand_in():
            os.chdir(path)
            os.rmdir(path)

        self.assertEqual(self.ok(stand_in, *SH, "pwd"), "/workspace\n")

    def test_without_a_terminal_or_session(self):
        self.ok(lambda: None, *SH, "test $(cut -d' ' -f6 /proc/self/stat) -gt 0")

    def test_environment_is_not_inherited(self):
        out = self.w.run(*SH, "env", env={"SECRET_TOKEN": "x", "LD_PRELOAD": "", "PYTHONPATH": "/x",
                                          "BASH_ENV": "/x"}).stdout.decode()
        self.assertEqual({line.split("=")[0] for line in out.splitlines()} - {"PWD", "_", "SHLVL", "OLDPWD"},
                         {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR"})

    def test_first_use_by_many_at_once(self):
        self.fresh()
        flags = ("--disk", "24m") if image_stores() and self.w.uid == 0 else ()
        held = [self.w.start(*flags, *SH, "cat /etc/passwd > /dev/null && echo ran") for _ in range(8)]
        for process in held:
            self.assertEqual(self.w.finish(process), (0, b"ran\n", b""))

    def test_directories_that_are_not_ours(self):
        # Somebody else's directory, or one that others may write to, is not trusted with anything.
        for mode, owner in ((0o777, self.w.uid), (0o755, 4711)):
            self.fresh()
            for path in (self.w.state, self.w.run_dir, self.w.cache):
                os.mkdir(path)
                os.chmod(path, mode)
                if IS_ROOT:
                    os.chown(path, owner, owner)
            done = self.w.run("--", "/bin/true")
            self.assertIn(done.returncode, (0, 125), done)
            self.assertEqual([n for p in (self.w.state, self.w.run_dir, self.w.cache) for n in os.listdir(p)], [],
                             (oct(mode), owner))
            if done.returncode:
                self.assertEqual(done.stderr.count(b"\n"), 1)
        self.fresh()

    def test_a_sandbox_in_a_sandbox_is_refused(self):
        done = self.w.run("-v", f"{PREFIX}:/opt/brig:ro", "-e", "BRIG_LIBEXEC_DIR=/opt/brig/libexec/brig", "--",
                          "/opt/brig/bin/brig", "run", "--", "/bin/true")
        self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (125, b"", 1), done)


class Root(Inherited, JailTest):
    def test_descriptors_of_others_on_their_way(self):
        """The kernel counts them per user, against the limit of whoever sends next: that one waits a little."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def tight():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        def take():
            for _ in range(3):
                for fd in socket.recv_fds(theirs, 1, 60)[1]:
                    os.close(fd)

        with ours, theirs:
            for _ in range(3):
                socket.send_fds(ours, [b"x"], [ours.fileno()] * 60)
            late = threading.Timer(0.8, take)
            late.start()
            try:
                self.ok(tight, "--", "/bin/true")
            finally:
                late.join()


@needs_root
class Rootless(Inherited, JailTest):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)


class Edges(JailTest):
    """Values at the ends of their ranges."""

    def test_the_shortest_time(self):
        for _ in range(5):
            done = self.w.run("-o", "json", "--timeout", "0.001", "--", "/bin/sleep", "1000")
            self.assertEqual((done.returncode, json.loads(done.stdout)["outcome"]["cause"]), (124, "timeout"))

    def test_the_shortest_cpu_time(self):
        self.outcome("--cpu-time", "0.001", *SH, "while :; do :; done", cause="cpu-limit", status=137)

    def test_the_smallest_output(self):
        r = self.outcome("--output", "1", *SH, "echo hello", cause="exited", status=0)
        self.assertEqual(r["stdout"], "h")

    def test_many_arguments(self):
        words = ["x" * 100000] * 8
        done = self.w.run("--", "/usr/bin/python3", "-I", "-S", "-c",
                          "import sys; print(len(sys.argv), sum(map(len, sys.argv)))", *words)
        self.assertEqual(done.stdout, b"9 800002\n", done)

    def test_too_many_arguments(self):
        self.refused("--", "/bin/true", *["x" * 100000] * 12, words=("longer than",))

    def test_many_variables(self):
        flags = [f for n in range(300) for f in ("-e", f"NAME{n}={'v' * 100}")]
        self.assertEqual(self.shell("env | grep -c ^NAME", *flags).strip(), "300")

    def test_all_binds(self):
        source = self.w.mkdir("binds")
        flags = [f for n in range(32) for f in ("-v", f"{source}:/b/{n}:ro")]
        self.assertEqual(self.shell("ls /b | wc -l", *flags).strip(), "32")
        self.refused(*flags, "-v", f"{source}:/b/one-more", "--", "/bin/true", words=("binds", "32"))

    def test_the_longest_name(self):
        name = "n" * 63
        self.assertEqual(self.shell("hostname", "--name", name).strip(), name)


if __name__ == "__main__":
    unittest.main()
