# SPDX-License-Identifier: Apache-2.0
"""Bad input is refused before anything is created, in one line that names the value and the rule."""

import os
import unittest

from helpers import BrigTest, brig

SIZE = "must be a size above zero"
TIME = "must be a time"
COUNT = "whole number of 1 or more"
TRUE = ["--", "/bin/true"]


class Verbs(BrigTest):
    def test_help(self):
        done = brig("--help")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        for verb in (b"run", b"doctor", b"bench", b"version"):
            self.assertIn(verb, done.stdout)

    def test_help_of_each_verb(self):
        for verb in ("run", "doctor", "bench", "version"):
            for flag in ("--help", "-h"):
                done = brig(verb, flag)
                self.assertEqual((done.returncode, done.stderr), (0, b""), verb)
                self.assertIn(f"usage: brig {verb}".encode(), done.stdout)

    def test_help_verb(self):
        self.assertEqual(brig("help", "run").stdout, brig("run", "--help").stdout)
        done = brig("help", "tool", "run")
        self.assertEqual((done.returncode, done.stdout), (0, brig("tool", "run", "--help").stdout))
        self.assertIn(b"usage: brig tool run NAME|FILE", done.stdout)

    def test_help_names_every_flag(self):
        text = brig("run", "--help").stdout.decode()
        for flag in ("-e,", "--env-file", "-v,", "-w,", "-m, --memory", "-c, --cpus", "--pids", "--disk", "--inodes",
                     "--open-files",
                     "--file-size", "--io-read-bps", "--io-write-bps", "--timeout", "--cpu-time", "--output",
                     "--on-output-limit",
                     "--profile", "--rootfs", "--writable-root", "--tmpfs", "--require", "-i,", "-t,", "--name", "-q,",
                     "-o ",
                     "--receipt"):
            self.assertIn(flag, text)
        self.assertNotIn("--loop", brig("bench", "--help").stdout.decode())

    def test_help_after_the_command_is_the_commands(self):
        done = brig("run", "--", "/bin/echo", "--help", "-h")
        self.assertEqual(done.stdout, b"--help -h\n")

    def test_no_verb(self):
        self.assert_refused([], "no verb")

    def test_unknown_verb(self):
        self.assert_refused(["frobnicate"], "frobnicate", "no such verb")
        self.assert_refused(["stpo"], "stpo", "no such verb", "`brig stop`")
        self.assert_refused(["key", "creat"], "creat", "no such verb", "`brig key create`")
        self.assert_refused(["run", "--memroy", "1m", "true"], "--memroy", "unknown flag", "--memory?")
        self.assert_refused(["--frobnicate"], "--frobnicate")

    def test_arguments_where_there_are_none(self):
        for verb in ("doctor", "version", "bench"):
            self.assert_refused([verb, "extra"], "extra", "takes no arguments")

    def test_bench_flags(self):
        self.assert_refused(["bench", "--only", "nothing"], "nothing", "must be")
        self.assert_refused(["bench", "--runs", "0"], "--runs 0", COUNT)


class Syntax(BrigTest):
    def refuse(self, flags, *words):
        self.assert_refused(["run", *flags, *TRUE], *words)

    def test_missing_command(self):
        for args in (["run"], ["run", "--"], ["run", "-m", "64m"], ["run", "-q", "--"]):
            self.assert_refused(args, "no command given")

    def test_unknown_flags(self):
        for flag in ("--frob", "--frob=1", "-z", "-iz", "--memor", "--mem=1", "--memory-max", "--memory m"):
            self.refuse([flag], flag, "unknown flag")

    def test_missing_value(self):
        self.assert_refused(["run", "--memory"], "--memory", "needs a value")
        self.assert_refused(["run", "-m"], "-m", "needs a value")
        self.refuse(["-m"], "-m", "needs a value")  # -- is never a value
        self.refuse(["--receipt"], "--receipt", "needs a value")

    def test_value_where_there_is_none(self):
        for flag in ("--quiet=yes", "--tty=1", "--writable-root="):
            self.refuse([flag], flag, "takes no value")

    def test_attached_value(self):
        self.refuse(["-m64m"], "-m64m", "two words")
        self.refuse(["-im", "64m"], "-im", "bundled")

    def test_sizes(self):
        flags = ("-m", "--memory", "--disk", "--file-size", "--io-read-bps", "--io-write-bps", "--output")
        for flag in flags:
            for value in ("9e99G", "-1", "0", "0m", "", "x", "1x", "1 m", " 1", "1.", ".5m", "0x10", "1e3", "nan", "+1",
                          "1mm"):
                self.refuse([flag, value], f'{flag} {value or chr(34) * 2}', SIZE)
            for value in ("99999999999999999999", "9223372036854775808", "99999999999t", "16777216t"):
                self.refuse([flag, value], f"{flag} {value}", "must be below")

    def test_durations(self):
        for flag in ("--timeout", "--cpu-time"):
            for value in ("0", "-1", "0.0001", "1d", "1e3", "", "forever", "s", "1 s"):
                self.refuse([flag, value], flag, TIME)
            self.refuse([flag, "9999999999999999999"], flag, "must be below")

    def test_counts(self):
        for flag in ("--pids", "--inodes", "--open-files"):
            for value in ("0", "-1", "1.5", "1k", "", "many", "0x10", " 1"):
                self.refuse([flag, value], flag, COUNT)
            self.refuse([flag, "18446744073709551616"], flag, "must be below")

    def test_cpus(self):
        for value in ("0", "-1", "0.0001", "1e2", "", "half", "1,5"):
            self.refuse(["--cpus", value], "--cpus", "number of CPUs above zero")
        self.refuse(["-c", "-1"], "-c -1", "number of CPUs")

    def test_words(self):
        self.refuse(["--profile", "strict"], "--profile strict", "default, paranoid or compat")
        self.refuse(["--on-output-limit", "stop"], "--on-output-limit stop", "drop or kill")
        self.refuse(["-o", "xml"], "-o xml", "text or json")
        for value in ("nothing", "all,nothing", "", "seccomp,", ",seccomp", "SECCOMP", "seccomp;all", "x" * 99):
            self.refuse(["--require", value], "--require", "names of layers")

    def test_environment(self):
        self.refuse(["-e", "HOME"], "-e HOME", "K=V", "environment")
        self.refuse(["-e", "=v"], "-e =v", "name is empty")
        self.refuse(["--env", ""], '--env ""', "K=V")

    def test_environment_file(self):
        bad = self.write("bad", "A=1\n# comment\nB\n")
        self.refuse(["--env-file", bad], "line 3", "K=V")
        self.refuse(["--env-file", self.write("crlf", "A=1\r\n")], "line 1", "carriage return")
        self.refuse(["--env-file", self.write("nul", "A=1\nB=2\0\n")], "line 2", "NUL")
        self.refuse(["--env-file", self.write("noname", "=1\n")], "line 1", "K=V")
        self.refuse(["--env-file", self.write("big", b"A=" + b"x" * (1 << 20))], "larger than 1 MiB")
        self.refuse(["--env-file", self.path("none")], self.path("none"), "No such file")
        self.refuse(["--env-file", self.dir], "directory")

    def test_binds(self):
        for value in ("/usr", ":/x", "/usr:", "/usr::ro", ""):
            self.refuse(["-v", value], "SRC:DST")
        self.refuse(["-v", "/usr:/x:rw"], "/usr:/x:rw", ":ro")
        self.refuse(["-v", "/usr:/x:ro:ro"], "/usr:/x:ro:ro", ":ro")
        self.refuse(["-v", "volume:/x"], "volume:/x", "SRC must begin")

    def test_tmpfs(self):
        for value in ("/scratch", ":1m", ""):
            self.refuse(["--tmpfs", value], "PATH:SIZE")
        for value in ("/scratch:0", "/scratch:-1", "/scratch:9e99G", "/scratch:"):
            self.refuse(["--tmpfs", value], value, "SIZE must be above zero")

    def test_receipt(self):
        self.refuse(["--receipt", self.path("no", "where")], "--receipt", "No such file")
        self.refuse(["--receipt", self.dir], self.dir, "is a directory")
        self.refuse(["--receipt", "-"], "-o json")
        self.refuse(["--receipt", ""], "empty")

    def test_terminal(self):
        self.refuse(["-t", "-o", "json"], "-t", "--receipt")
        self.refuse(["-i", "-t"], "not a terminal")
        self.refuse(["-it"], "not a terminal")

    def test_control_bytes_are_shown_escaped(self):
        for value in ("\x1b[31mred", "a\nb", "a\rb", "tab\there", "\x7f", "\u009b31m", "bell\x07"):
            self.refuse(["-m", value], "-m", SIZE)
            self.refuse(["--" + value], "unknown flag")
        self.refuse([b"-m", b"\xff\xfe"], "-m", SIZE)

    def test_a_long_value_does_not_hide_the_rule(self):
        self.refuse(["-m", "9" * 5000 + "x"], "-m 999", SIZE)
        self.refuse(["--" + "x" * 5000], "unknown flag")


class Meaning(BrigTest):
    """Rules of the library, met through the command."""

    def refuse(self, flags, *words, command=("--", "/bin/true")):
        self.assert_refused(["run", *flags, *command], *words, untouched=False)

    def test_names(self):
        for value in ("a b", "-a", ".a", "a/b", "x" * 64, "ä"):
            self.refuse(["--name", value], "name")
        self.refuse(["--name", "a\nb"], "name", "\\x0a")
        self.refuse(["--name", "a\x1bb"], "name", "\\x1b")

    def test_working_directory(self):
        for value in ("workspace", "./x", "../x", "/proc", "/proc/self/cwd", "/proc/1/root", "/sys/kernel",
                      "/x/../proc"):
            self.refuse(["-w", value], value)

    def test_bind_sources(self):
        missing = self.path("missing")
        self.refuse(["-v", f"{missing}:/x"], missing)
        for source in ("/", "/proc", "/proc/self", "/sys", "/dev", "/run", "/proc/self/root", "/.", "/usr/.."):
            self.refuse(["-v", f"{source}:/mnt"], source)

    def test_bind_source_through_a_link(self):
        for target in ("/", "/proc", "/sys", "/dev", "/run"):
            link = self.path("link-" + target.replace("/", "_"))
            os.symlink(target, link)
            self.refuse(["-v", f"{link}:/mnt"], "link-")

    def test_bind_targets(self):
        for target in ("relative", "/", "/proc", "/proc/x", "/dev", "/sys/x", "/../x"):
            self.refuse(["-v", f"{self.dir}:{target}"], target)

    def test_tmpfs_paths(self):
        for path in ("relative", "/", "/proc", "/dev"):
            self.refuse(["--tmpfs", f"{path}:1m"], path)

    def test_missing_root(self):
        missing = self.path("missing")
        self.refuse(["--rootfs", missing], missing)

    def test_variables(self):
        self.refuse(["-e", "A B=1"], "A B")
        self.refuse(["-e", "A\n=1"], "\\x0a")

    def test_empty_command(self):
        self.refuse([], command=("--", ""))


if __name__ == "__main__":
    unittest.main()
