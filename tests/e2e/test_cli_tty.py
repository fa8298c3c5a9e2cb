# SPDX-License-Identifier: Apache-2.0
"""brig in a terminal: what a program may do to it (nothing, without -t), and what -t gives the program."""

import json
import os
import signal
import termios
import unittest

from helpers import BRIG, BrigTest, Terminal, brig, read_line

SH = ("--", "/bin/sh", "-c")


def run(*args, **kw):
    return Terminal(BRIG, "run", *args, **kw)


class Escaping(BrigTest):
    def shown(self, octal, stream=1):
        """What the terminal gets when the program prints these bytes."""
        with run(*SH, f"printf '<%b>' '{octal}' >&{stream}") as terminal:
            self.assertEqual(terminal.wait(), 0)
            return terminal.seen

    def test_controls(self):
        for octal, wanted in ((r"\033[2J", b"<^[[2J>"), (r"\033]0;title\007", b"<^[]0;title^G>"),
                              (r"a\010b", b"<a^Hb>"), (r"\177", b"<^?>"),
                              (r"\0001", b"<^A>"), (r"\0302\0233" + "31m", b"<\\x9b31m>"),
                              (r"\0233" + "31m", b"<\\x9b31m>"),
                              (r"\0377", b"<\\xff>"), (r"\0355\0240\0200", b"<\\xed\\xa0\\x80>")):
            for stream in (1, 2):
                self.assertEqual(self.shown(octal, stream), wanted, octal)

    def test_a_lone_carriage_return(self):
        self.assertEqual(self.shown(r"good\0015evil"), b"<good^Mevil>")

    def test_text_is_text(self):
        with run("--", "/usr/bin/printf", "a\\tb\\n\\303\\244\\342\\202\\254\\360\\237\\230\\200\\r\\n") as terminal:
            self.assertEqual(terminal.wait(), 0)
            # the terminal's own ONLCR makes \r\n of \n
            self.assertEqual(terminal.seen.replace(b"\r\r\n", b"\r\n").decode(), "a\tb\r\nä€😀\r\n")

    def test_a_character_in_pieces(self):
        with run(*SH, r"printf '\342'; sleep 0.1; printf '\202'; sleep 0.1; printf '\254|\302'; sleep 0.1; printf "
                 r"'\233|\033'; printf '\303'") as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.seen, "€|".encode() + b"\\x9b|^[\\xc3")

    def test_only_the_stream_that_is_a_terminal(self):
        with Terminal("/bin/sh", "-c", '"$0" run -- /usr/bin/printf "\\\\033[1m" >"$1"', BRIG,
                      self.path("out")) as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.seen, b"")
        with open(self.path("out"), "rb") as out:
            self.assertEqual(out.read(), b"\x1b[1m")

    def test_json_on_a_terminal(self):
        with run("-o", "json", "--", "/usr/bin/printf", "\\302\\2331m\\177\\033") as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(json.loads(terminal.seen)["stdout"], "\u009b1m\x7f\x1b")
            for byte in (b"\xc2\x9b", b"\x7f", b"\x1b"):
                self.assertNotIn(byte, terminal.seen)

    def test_our_own_words(self):
        with run("--name", "\x1b[2Jx", "--", "/bin/true") as terminal:
            self.assertEqual(terminal.wait(), 125)
            self.assertNotIn(b"\x1b", terminal.seen)


class WithoutT(BrigTest):
    def test_the_program_has_no_terminal(self):
        with run(*SH, "test -t 0; echo $?; test -t 1; echo $?; (: </dev/tty) 2>/dev/null; echo $?") as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.seen.split()[:2], [b"1", b"1"])
            self.assertNotEqual(terminal.seen.split()[2], b"0")

    def test_ctrl_c(self):
        with run(*SH, "trap 'echo interrupted; exit 5' INT; echo up; while :; do sleep 0.05; done") as terminal:
            terminal.expect(b"up\r\n")
            terminal.type(b"\x03")
            self.assertEqual(terminal.wait(), 5)
            self.assertIn(b"interrupted", terminal.seen)

    def test_our_modes_are_left_alone(self):
        with run("-i", *SH, "echo up; read line; echo \"<$line>\"") as terminal:
            terminal.expect(b"up\r\n")
            self.assertEqual(terminal.modes(), terminal.before)
            terminal.type(b"word\n")
            self.assertEqual(terminal.wait(), 0)
            self.assertIn(b"<word>", terminal.seen)


class WithT(BrigTest):
    def test_a_terminal_inside(self):
        with run("-i", "-t", *SH, "test -t 0 && test -t 1 && test -t 2 && tty && echo yes") as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertRegex(terminal.seen, rb"/dev/(pts/\d+|console|tty)\r\nyes\r\n")

    def test_size(self):
        with run("-it", "--", "/bin/stty", "size", rows=31, cols=97) as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.seen, b"31 97\r\n")

    def test_resize(self):
        with run("-it", *SH, "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done", rows=20,
                 cols=70) as terminal:
            terminal.expect(b"up\r\n")
            terminal.resize(33, 111)
            terminal.expect(b"33 111\r\n")
            terminal.resize(10, 20)
            terminal.expect(b"10 20\r\n")
            terminal.type(b"\x03")
            self.assertEqual(terminal.wait(), 128 + signal.SIGINT)

    def test_keys_go_to_the_program(self):
        with run("-it", *SH, "trap 'echo caught' INT; echo up; read line; read line; echo \"<$line>\"") as terminal:
            terminal.expect(b"up\r\n")
            terminal.type(b"\x03")
            terminal.expect(b"caught\r\n")
            terminal.type(b"one\rtwo\r")
            terminal.expect(b">")
            self.assertEqual(terminal.wait(), 0)

    def test_end_of_file_key(self):
        with run("-it", *SH, "echo up; cat; echo end") as terminal:
            terminal.expect(b"up\r\n")
            terminal.type(b"\x04")
            terminal.expect(b"end\r\n")
            self.assertEqual(terminal.wait(), 0)

    def test_nothing_is_escaped(self):
        with run("-it", "--", "/usr/bin/printf", "\\033[31mred") as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.seen, b"\x1b[31mred")

    def test_term(self):
        with run("-it", *SH, "echo \"<$TERM>\"") as terminal:
            terminal.expect(b"<vt220>")
            self.assertEqual(terminal.wait(), 0)
        with run("-it", "-e", "TERM=dumb", *SH, "echo \"<$TERM>\"") as terminal:
            terminal.expect(b"<dumb>")
            self.assertEqual(terminal.wait(), 0)

    def test_raw_while_it_runs_and_restored_after(self):
        with run("-it", *SH, "echo up; read line") as terminal:
            terminal.expect(b"up\r\n")
            self.assertFalse(terminal.modes()[3] & termios.ECHO)
            self.assertFalse(terminal.modes()[3] & termios.ISIG)
            terminal.type(b"\r")
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.modes(), terminal.before)

    def test_restored_after_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV, signal.SIGALRM):
            with run("-it", *SH, "trap '' TERM INT HUP QUIT; echo up; while :; do sleep 0.05; done") as terminal:
                terminal.expect(b"up\r\n")
                terminal.process.send_signal(number)
                if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                    terminal.process.send_signal(signal.SIGTERM if number != signal.SIGTERM else signal.SIGINT)
                    self.assertEqual(terminal.wait(), 125, number)
                else:
                    self.assertEqual(terminal.wait(), -number, number)
                self.assertEqual(terminal.modes(), terminal.before, number)

    def test_restored_after_a_limit(self):
        with run("-it", "--timeout", "1", *SH, "sleep 1000") as terminal:
            self.assertEqual(terminal.wait(), 124)
            self.assertEqual(terminal.modes(), terminal.before)
            self.assertIn(b"ended by timeout", terminal.seen)

    def test_restored_after_a_refusal(self):
        with run("-it", "--name", "a b", "--", "/bin/true") as terminal:
            self.assertEqual(terminal.wait(), 125)
            self.assertEqual(terminal.modes(), terminal.before)

    def test_without_i_no_terminal_is_needed(self):
        done = brig("run", "-t", *SH, "test -t 1 && stty size")
        self.assertEqual((done.returncode, done.stdout), (0, b"24 80\r\n"), done)

    def test_a_status_passes(self):
        with run("-it", *SH, "exit 42") as terminal:
            self.assertEqual(terminal.wait(), 42)

    def test_output_before_the_end_is_not_lost(self):
        with run("-it", *SH, "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done") as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(terminal.seen.split(), [str(i).encode() for i in range(3000)])

    def test_receipt_file(self):
        path = self.path("receipt")
        with run("-it", "--receipt", path, "--", "/bin/echo", "hi") as terminal:
            self.assertEqual(terminal.wait(), 0)
        with open(path, encoding="utf-8") as text:
            self.assertEqual(json.load(text)["stdout"], "hi\r\n")


class Gone(BrigTest):
    def test_a_terminal_that_hangs_up_ends_the_run(self):
        terminal = run("-it", *SH, "echo up; while :; do sleep 0.05; done")
        try:
            terminal.expect(b"up\r\n")
            os.close(terminal.master)
            os.close(terminal.slave)
            self.assertIn(terminal.process.wait(60), (125, 128 + signal.SIGHUP, 141))
        finally:
            if terminal.process.poll() is None:
                terminal.process.kill()
                terminal.process.wait()

    def test_a_killed_brig_leaves_no_run(self):
        process = self.start("run", *SH, "echo up; while echo tick; do sleep 0.05; done")
        self.assertEqual(read_line(process.stdout), b"up\n")
        process.kill()
        process.wait()
        process.stdout.read()  # ends only when nobody holds the pipe any more


if __name__ == "__main__":
    unittest.main()
