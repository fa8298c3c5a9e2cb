# SPDX-License-Identifier: Apache-2.0
"""The library in hosts of its users' kind: threads, signals and children of their own, many runs, deaths on both sides.

The hosts are in drivers/library_host.c; here is what only shows from outside.
"""

import json
import os
import re
import signal
import subprocess
import unittest

from helpers import PATIENCE, read_line, wait_until
from jailkit import BUILD, IS_ROOT, PATH, PREFIX, JailTest, read

HOST = next((p for p in (f"{PREFIX}/tests/e2e/library_host", f"{BUILD}/tests/e2e/library_host") if os.path.exists(p)),
            "library_host")


def library_path():
    """Where the installed libbrig.so is."""
    for where, _, files in os.walk(PREFIX or BUILD):
        if any(f == "libbrig.so.0" for f in files):
            return where
    return ""


class Hosts(JailTest):
    LIMIT_SECONDS = 120

    def host(self, word, **kw):
        return self.w.popen(HOST, word, env={"LD_LIBRARY_PATH": library_path()}, **kw)

    def ends_well(self, word):
        status, out, err = self.w.finish(self.host(word), 2 * PATIENCE)
        self.assertEqual((status, err), (0, b""), err.decode())
        return out


class Alone(Hosts):
    """Hosts that need nobody to look."""


for _word in ("host_is_left_alone children_of_the_host many_at_once two_engines_in_two_threads engines_in_a_noisy_host "
              "handed_to_another_thread "
              "pulled kept stdin_and_epipe cancelled callbacks_may_call signals_reach_the_program terminal refusals "
              "sizes pool_is_single_use "
              "fill_without_a_pool descriptors descriptors_stay_outside forked names").split():
    setattr(Alone, f"test_{_word}", lambda self, word=_word: self.ends_well(word))


class Watched(Hosts):
    """Hosts that stop for us to look."""

    def expect(self, process, word):
        self.assertEqual(read_line(process.stdout).decode().strip(), word, process.poll())

    def go_on(self, process):
        process.stdin.write(b"\n")
        process.stdin.flush()

    def ended_well(self, process):
        status, _, err = self.w.finish(process)
        self.assertEqual((status, err), (0, b""), err.decode())

    def test_destroyed_while_running(self):
        host = self.host("destroyed_while_running", stdin=subprocess.PIPE)
        self.expect(host, "up")
        self.assertGreaterEqual(len(self.w.processes("brig-init")), 5)
        self.go_on(host)
        self.expect(host, "destroyed")
        wait_until("the end of all but the host", lambda: self.w.processes() == [host.pid])
        self.go_on(host)
        self.ended_well(host)

    def test_spawner_killed(self):
        host = self.host("spawner_killed", stdin=subprocess.PIPE)
        self.expect(host, "up")
        os.kill(self.w.spawner(), signal.SIGKILL)
        self.go_on(host)
        self.ended_well(host)

    def test_host_killed(self):
        host = self.host("host_killed", stdin=subprocess.PIPE)
        self.expect(host, "up")
        self.assertGreaterEqual(len(self.w.processes("brig-init")), 1)
        host.kill()
        host.communicate()

    def test_host_exits_without_a_word(self):
        host = self.host("host_killed", stdin=subprocess.PIPE)
        self.expect(host, "up")
        self.go_on(host)
        self.ended_well(host)

    def test_pool(self):
        host = self.host("pool", stdin=subprocess.PIPE)
        self.expect(host, "filled")
        parked = set(self.w.processes("brig-init"))
        self.assertEqual(len(parked), 4)
        self.go_on(host)
        self.expect(host, "running")
        wait_until("the program", lambda: len(self.w.processes("sleep")) == 1)
        program = self.w.processes("sleep")
        parent = int(re.search(r"PPid:\s(\d+)", read(f"/proc/{program[0]}/status")).group(1))
        self.assertIn(parent, parked)  # not built for it
        self.go_on(host)
        self.expect(host, "destroyed")
        wait_until("the end of all but the host", lambda: self.w.processes() == [host.pid])
        self.go_on(host)
        self.ended_well(host)

    def test_busy_elsewhere(self):
        host = self.host("busy_elsewhere", stdin=subprocess.PIPE)
        self.expect(host, "busy")
        wait_until("the end of every sandbox", lambda: not self.w.processes("brig-init", "sh"))
        self.go_on(host)
        self.ended_well(host)

    def test_spawner_is_not_the_hosts_child(self):
        host = self.host("destroyed_while_running", stdin=subprocess.PIPE)
        self.expect(host, "up")
        spawner = self.w.spawner()
        self.assertNotIn(f"PPid:\t{host.pid}\n", read(f"/proc/{spawner}/status"))
        self.assertEqual(read(f"/proc/{host.pid}/task/{host.pid}/children").split(), [])
        # It is single-threaded, and holds nothing of the host's terminal or directory.
        self.assertIn("Threads:\t1\n", read(f"/proc/{spawner}/status"))
        self.go_on(host)
        self.expect(host, "destroyed")
        self.go_on(host)
        self.ended_well(host)

    def test_receipt(self):
        receipt = json.loads(self.ends_well("json"))
        self.assertEqual((receipt["outcome"]["exit_code"], receipt["stdout"], receipt["stderr"]), (3, "out\n", "err\n"))
        self.assertEqual(receipt["command"][:2], ["/bin/sh", "-c"])

    def test_every_host_is_run_here(self):
        listed = self.ends_well("list").decode().split()
        with open(__file__, encoding="utf-8") as text:
            here = text.read()
        self.assertEqual([w for w in listed if w not in here], [])


class Files(JailTest):
    """The library as it is installed."""

    def tool(self, *argv):
        return subprocess.run(argv, text=True, capture_output=True, check=True, env={"PATH": PATH}).stdout

    def test_exported_names(self):
        names = {line.split()[-1].split("@")[0]
                 for line in self.tool("nm", "-D", "--defined-only", f"{library_path()}/libbrig.so.0").splitlines()}
        names = {n for n in names if not n.startswith(("BRIG_", "LIBBRIG"))}  # version nodes
        with open(os.path.join(os.path.dirname(__file__), "../../include/brig.h"), encoding="utf-8") as text:
            declared = set(re.findall(r"^BRIG_API[^;]*?\b(brig_\w+)\(", text.read(), re.M))
        self.assertEqual(names, declared)

    def test_soname(self):
        self.assertIn("libbrig.so.0", self.tool("readelf", "-d", f"{library_path()}/libbrig.so.0"))

    def test_needs_only_libc(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", self.tool("readelf", "-d", f"{library_path()}/libbrig.so.0"))
        self.assertEqual([n for n in needed if not n.startswith(("libc.so", "ld-linux"))], [])

    def test_no_global_state(self):
        # Writable data of the library: none but what the linker and libc put there, the spawner's own statics aside.
        exported = [line
                    for line in self.tool("nm", "-D", "--defined-only", f"{library_path()}/libbrig.so.0").splitlines()
                    if " D " in line or " B " in line]
        self.assertEqual(exported, [])

    def test_example(self):
        example = f"{BUILD}/examples/embed"
        # Beside the installed copy: the build directory may be closed to others.
        process = self.w.popen(example, env={"LD_LIBRARY_PATH": library_path()})
        status, out, err = self.w.finish(process)
        self.assertEqual((status, err), (0, b""))
        self.assertRegex(out.decode(), r"^hello from pid \d+, user user\nrun-[0-9a-f-]+: exited, exit status 0, \d+ "
                         r"ms, all layers (on|not on)\n$")
        if IS_ROOT:
            self.assertIn(b"all layers on", out)
        with open(os.path.join(os.path.dirname(__file__), "../../examples/embed.c"), encoding="utf-8") as text:
            self.assertLess(len(text.readlines()), 50)


if __name__ == "__main__":
    unittest.main()
