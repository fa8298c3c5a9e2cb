# SPDX-License-Identifier: Apache-2.0
"""10,000 times create, run, destroy without a leak, with and without a pool; and every hostile case 100 times.

BRIG_TEST_CYCLES sets another number of cycles, for a try.
"""

import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from helpers import read_line, wait_until  # noqa: E402
from jailkit import BUILD, PLAIN_ID, PREFIX, JailTest, World, needs_root, read  # noqa: E402
from test_library import library_path  # noqa: E402

CYCLES = int(os.environ.get("BRIG_TEST_CYCLES", "10000"))
WARM = max(CYCLES // 20, 10)
REPEAT = os.environ.get("BRIG_TEST_REPEAT", "100")
CYCLE = next((p
              for p in (f"{PREFIX}/tests/e2e/library_cycle", f"{BUILD}/tests/e2e/library_cycle") if os.path.exists(p)),
             "library_cycle")


def memory_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{pid}/status")).group(1))


def slab_kib():
    return int(re.search(r"SUnreclaim:\s+(\d+)", read("/proc/meminfo")).group(1))


class Soak(JailTest):
    LIMIT_SECONDS = 4 * 3600

    def settled(self, pool):
        """The spawner's own, once nothing but it and the parked sandboxes is there: what is dead is taken apart behind
        the answer."""
        wait_until("no cgroup of a finished run",
                   lambda: len({os.path.basename(d) for d in self.w.cgroups.below()} - {"brig-self"}) == pool)
        spawner, counts = self.w.spawner(), []

        def steady():
            counts.append(len(os.listdir(f"/proc/{spawner}/fd")))
            time.sleep(0.05)
            return len(counts) > 10 and len(set(counts[-10:])) == 1

        wait_until("a steady number of descriptors", steady)
        return {"fds": counts[-1], "kib": memory_kib(spawner), "slab": slab_kib()}

    def cycle(self, pool):
        host = self.w.popen(CYCLE, str(CYCLES), str(pool), str(WARM), env={"LD_LIBRARY_PATH": library_path()},
                            stdin=subprocess.PIPE)
        seen = {}
        for word in ("warm", "done"):
            line = self.line(host)
            self.assertEqual(line[0], word, host.stderr.read() if host.poll() is not None else line)
            seen[word] = (int(line[1]), int(line[2]), self.settled(pool))
            host.stdin.write(b"\n")
            host.stdin.flush()
        status, _, err = self.w.finish(host)
        self.assertEqual((status, err), (0, b""))
        (fds, kib, spawner), (fds_end, kib_end, spawner_end) = seen["warm"], seen["done"]
        self.assertEqual(fds_end, fds, "descriptors of the host")
        self.assertLess(kib_end, kib + 512, "memory of the host")
        self.assertLessEqual(spawner_end["fds"], spawner["fds"] + 2, "descriptors of the spawner")
        self.assertLess(spawner_end["kib"], spawner["kib"] + 1024, "memory of the spawner")
        # The kernel's: a leaked namespace, mount or cgroup costs tens of KiB. Others use the machine too, so only much
        # is a leak.
        self.assertLess(spawner_end["slab"], spawner["slab"] + max(CYCLES * 8, 65536), "memory of the kernel")

    @staticmethod
    def line(host):
        """The host is silent for as long as it takes."""
        text = b""
        while not text.endswith(b"\n"):
            byte = os.read(host.stdout.fileno(), 1)
            if not byte:
                break
            text += byte
        return text.decode().split() or ["nothing"]


class Root(Soak):
    def test_without_a_pool(self):
        self.cycle(0)

    def test_with_a_pool(self):
        self.cycle(4)

    def test_whole_commands(self):
        """The command itself, a tenth as often: everything is new each time."""
        for n in range(CYCLES // 10):
            done = self.w.run(*(("--disk", "32m") if n % 2 else ()), "--", "/bin/true")
            self.assertEqual(done.returncode, 0, done)
        self.w.assert_clean()


@needs_root
class Rootless(Soak):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID, delegated=True)

    def test_with_a_pool(self):
        self.cycle(2)


class Hostile(unittest.TestCase):
    LIMIT_SECONDS = 12 * 3600

    def test_every_case_many_times(self):
        env = dict(os.environ, BRIG_TEST_REPEAT=REPEAT)
        done = subprocess.run([sys.executable, "-u", str(HERE.parent / "hostile/run.py"), "--repeat", REPEAT], env=env,
                              stdin=subprocess.DEVNULL,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        self.assertRegex(last, r"^\d+ passed, 0 failed, \d+ skipped$", done.stdout[-4000:])
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
