# SPDX-License-Identifier: Apache-2.0
"""Each limit, met by a program that wants more: what it is told, and that it gets no more."""

import errno
import glob
import json
import os
import signal
import subprocess
import unittest

from helpers import BRIG, read_line
from jailkit import IS_ROOT, KNOBS, PY, SH, JailTest, hierarchies, image_stores, read

PLACES = ("/workspace", "/home/user", "/tmp", "/var/tmp", "/run", "/dev/shm")

# Writes into the files named by argv until the kernel refuses; prints the errno and how much went in.
FILL = """
import os, sys
total = 0
try:
    for path in sys.argv[2:]:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        for _ in range(int(sys.argv[1]) // 4096): total += os.write(fd, b'x' * 4096)
    print('fits', total)
except OSError as why:
    print(why.errno, total)
"""


HUGE = """
import mmap
try: mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)[0] = 1; print('got one')
except OSError as why: print(why.errno)
"""
POOL = "/proc/sys/vm/nr_hugepages"


def controller_in_reach(name):
    """A file of our own cgroup, where sandboxes get theirs: the top of the v2 tree, or a v1 hierarchy."""
    lines = [line.split(":", 2) for line in read("/proc/self/cgroup").splitlines()]
    if any(name in controllers.split(",") for _, controllers, _ in lines):
        return True
    trees = [t for t in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(f"{t}/cgroup.controllers")]
    return ["0", "", "/"] in lines and bool(trees) and name in read(f"{trees[0]}/cgroup.controllers").split()


@unittest.skipUnless(IS_ROOT and controller_in_reach("hugetlb"), "root, and a hugetlb controller")
class HugePages(JailTest):
    def setUp(self):
        super().setUp()
        before = int(read(POOL))
        self.addCleanup(self.fill, before)
        if self.fill(before + 4) < before + 4:
            self.skipTest("memory in one piece for huge pages")

    def fill(self, pages):
        with open(POOL, "w", encoding="ascii") as f:
            f.write(str(pages))
        return int(read(POOL))

    def test_the_controller_gives_none_even_without_the_filter(self):
        def run(off):  # from our own cgroup: a world's callers are below it, where the tree has no controllers
            return subprocess.run([KNOBS, "run", *PY, HUGE], env={**self.w.env, "BRIG_TEST_OFF": off},
                                  capture_output=True,
                                  check=True, text=True).stdout.strip()

        self.assertEqual(run("seccomp,memory"), "got one")
        self.assertEqual(run("seccomp"), str(errno.ENOMEM))


@unittest.skipUnless(IS_ROOT, "root: mounts")
class MountedTwice(JailTest):
    """Hierarchies that are mounted more than once: sandboxes are below their caller's cgroup, or have no limits
    there."""

    def run_after(self, mounts, *args):
        """(status, receipt) of a run in a mount namespace of its own."""
        process = self.w.popen("unshare", "-m", "sh", "-ec", f'{mounts}\nexec "$0" run -o json "$@"', BRIG, *args)
        status, out, err = self.w.finish(process)
        return status, json.loads(out) if out else err

    @staticmethod
    def memory():
        """(mount point, our cgroup there) of the hierarchy that limits memory."""
        for point, own, v2 in hierarchies():
            if "memory" in (read(f"{point}/cgroup.controllers").split() if v2 else os.path.basename(point).split(",")):
                return point, own
        raise unittest.SkipTest("no hierarchy has the memory controller")

    def test_a_second_mount_elsewhere(self):
        """Before and after the first in the list of mounts, whole and in part: it is not looked at."""
        second = self.w.mkdir("second")
        mounts = [f"mount -t tmpfs none {second}"]
        for i, (point, own, _) in enumerate(hierarchies()):
            mounts += [f"mkdir {second}/{i} {second}/own-{i}", f"mount --bind {point} {second}/{i}",
                       f"mount --bind {point}{own} {second}/own-{i}"]
        for count in ("true", "mount --rbind /sys/fs/cgroup /sys/fs/cgroup"):
            status, receipt = self.run_after("\n".join([*mounts, count]), "-m", "64m", "--require", "memory", *SH,
                                             "true")
            self.assertEqual((status, receipt["limits"]["memory"]), (0, 64 << 20), receipt)
            self.assertTrue(receipt["protection"]["layers"]["memory"]["by"].startswith("cgroup v"), receipt)

    def test_a_mount_that_begins_at_our_own_cgroup(self):
        """As in a container that shares the host's cgroup namespace."""
        point, own = self.memory()
        top = next(top for top in self.w.cgroups.tops if top.startswith(f"{point}/"))
        status, receipt = self.run_after(f"mount --bind {top} {point}", "-m", "64m", "--require", "memory", *SH, "true")
        self.assertEqual(status, 0, (own, receipt))

    def test_a_mount_of_cgroups_that_are_not_ours(self):
        """What is made there would escape the limits of the caller."""
        point, own = self.memory()
        foreign = f"{point}{own}/{self.w.token}-foreign"
        os.mkdir(foreign)
        self.addCleanup(os.rmdir, foreign)
        status, receipt = self.run_after(f"mount --bind {foreign} {point}", "--require", "memory", *SH, "true")
        self.assertEqual((status, receipt["outcome"]["detail"]),
                         (125, "required layer memory is not on: it bounds each process, not their sum"))
        layers = self.run_after(f"mount --bind {foreign} {point}", *SH, "true")[1]["protection"]["layers"]
        self.assertEqual((layers["memory"]["on"], layers["memory"]["by"]), (False, "RLIMIT_AS"))


class Memory(JailTest):
    def test_below_it_nothing_happens(self):
        r = self.outcome("-m", "96m", *PY, "b = bytearray(64 << 20)\nb[::4096] = b'x' * (16 << 10)", cause="exited",
                         status=0)
        self.assertEqual(r["outcome"]["limits_hit"], [])

    def test_all_processes_together(self):
        script = ("import os, signal\nfor _ in range(8):\n    if os.fork() == 0:\n        b = b'x' * (8 << 20)\n"
                  "        signal.pause()\nfor _ in range(8): os.wait()")  # it does not end with the first
        self.outcome("-m", "48m", *PY, script, cause="oom", status=137)

    def test_shared_memory_counts(self):
        script = "import mmap\nm = mmap.mmap(-1, 64 << 20)\nfor i in range(0, 64 << 20, 4096): m[i] = 1"
        self.outcome("-m", "32m", *PY, script, cause="oom", status=137)

    def test_page_cache_gives_way(self):
        # Reading or writing files larger than the limit is slow at worst.
        r = self.outcome("-m", "24m", "--disk", "128m" if image_stores() else "12m", *SH,
                         "head -c 60000000 /dev/zero > /tmp/x; cat /tmp/x > /dev/null; cat /usr/lib/*/libc.so.6 > "
                         "/dev/null; exit 0",
                         cause="exited", status=0)
        self.assertNotIn("memory", r["outcome"]["limits_hit"])

    def test_the_smallest(self):
        self.outcome("-m", "4m", "--disk", "1m", "--", "/bin/true", cause="exited", status=0)
        self.refused("-m", "4095k", "--", "/bin/true", words=("memory", "must be between"))

    def test_more_than_the_machine_has(self):
        self.outcome("-m", "1t", "--require", "memory", "--", "/bin/true", cause="exited", status=0)


class Cpus(JailTest):
    BURN = ("import os, time\nend = time.monotonic() + 0.6\nfor _ in range(3):\n    if os.fork() == 0:\n"
            "        while time.monotonic() < end: pass\n        os._exit(0)\nfor _ in range(3): os.wait()")

    def test_throttled_and_not_killed(self):
        for cpus in ("0.1", "0.5"):
            r = self.outcome("-c", cpus, *PY, self.BURN, cause="exited", status=0)
            self.assertEqual(r["outcome"]["limits_hit"], [])
            used, wall = r["usage"]["cpu_ms"], r["usage"]["wall_ms"]
            self.assertLess(used, 10 * float(cpus) * wall)

    def test_more_than_the_machine_has(self):
        self.outcome("-c", "512", "--require", "cpu", "--", "/bin/true", cause="exited", status=0)

    def test_the_smallest(self):
        self.outcome("-c", "0.01", "--require", "cpu", "--", "/bin/true", cause="exited", status=0)
        self.refused("-c", "0.009", "--", "/bin/true", words=("cpus", "must be between"))


class Pids(JailTest):
    def test_fork_says_eagain(self):
        script = ("import os, signal\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: signal.pause()\n"
                  "        n += 1\n"
                  "except OSError as why: print(n, why.errno)")
        self.assertEqual(self.python(script, "--pids", "10").split(), ["9", str(errno.EAGAIN)])

    def test_threads_count(self):
        script = ("import _thread, time\nn = 0\ntry:\n    while True:\n"
                  "        _thread.start_new_thread(time.sleep, (1000,))\n        n += 1\n"
                  "except RuntimeError as why: print(n, flush=True)\nimport os\nos._exit(0)")
        self.assertEqual(self.python(script, "--pids", "10").strip(), "9")

    def test_the_dead_free_their_place(self):
        self.shell("i=0; while [ $i -lt 60 ]; do /bin/true || exit 1; i=$((i+1)); done", "--pids", "2")

    def test_one(self):
        self.outcome("--pids", "1", "--", "/bin/true", cause="exited", status=0)
        self.assertEqual(self.python("import os\ntry: os.fork()\nexcept OSError as why: print(why.errno)", "--pids",
                                     "1").strip(),
                         str(errno.EAGAIN))


# Writes one file in pieces of argv[1] bytes until the kernel refuses; prints the errno and how much went in.
PIECES = """
import os, sys
fd, data, total = os.open('/tmp/x', os.O_WRONLY | os.O_CREAT), b'x' * int(sys.argv[1]), 0
try:
    while True: total += os.write(fd, data)
except OSError as why:
    print(why.errno, total)
sys.exit(int(sys.argv[2]))
"""


class Disk(JailTest):
    def test_the_limit_is_what_can_be_written_whatever_the_size_of_a_write(self):
        for disk in (4 << 20, 16 << 20):
            for size in (4096, 10240, 100_003, 1 << 20, 3 << 20, disk - 1, disk + 1):
                r = self.outcome("--disk", str(disk), *PY, PIECES, str(size), "1", cause="disk-limit", status=1)
                self.assertEqual(r["stdout"].split(), [str(errno.ENOSPC), str(disk)], (disk, size))
                self.assertEqual((r["outcome"]["limits_hit"], r["usage"]["disk_bytes"]), (["disk"], disk), (disk, size))

    def test_many_files_hold_as_much(self):
        script = "for i in range(%d): open(f'/tmp/{i}', 'wb').write(b'x' * 65536)"
        r = self.outcome("--disk", "16m", *PY, script % 256, cause="exited", status=0)
        self.assertEqual((r["outcome"]["limits_hit"], r["usage"]["disk_bytes"]), (["disk"], 16 << 20))
        r = self.outcome("--disk", "16m", *PY, script % 255, cause="exited", status=0)
        self.assertEqual((r["outcome"]["limits_hit"], r["usage"]["disk_bytes"]), ([], 255 << 16))

    def test_what_a_set_up_needs_is_not_the_programs(self):
        show = "import os\nfs = os.statvfs('/tmp')\nprint(fs.f_bavail * fs.f_frsize)"
        lower = self.w.mkdir("lower", 0o755)
        overlays = [word for i in range(4) for word in ("-v", f"{lower}:/over{i}:overlay")]
        for disk in ("1m", "16m", "128m", "130m", "1g", "5000001"):
            for flags in ((), ("--writable-root",), overlays):
                left = int(self.python(show, "--disk", disk, "-m", "3g", *flags))
                want = {"m": 1 << 20, "g": 1 << 30}.get(disk[-1], 0) * int(disk[:-1]) or int(disk)
                self.assertEqual(left, -(-want // 4096) * 4096, (disk, flags))

    def test_a_failure_with_room_left_is_the_programs_own(self):
        for left in (16 << 10, 100 << 10, 1 << 20):
            script = f"open('/tmp/x', 'wb').write(b'x' * {(16 << 20) - left})\nraise SystemExit(1)"
            r = self.outcome("--disk", "16m", *PY, script, cause="exited", status=1)
            self.assertEqual(r["outcome"]["limits_hit"], [], left)

    def test_reserved_blocks_are_refused_and_told(self):
        script = "import os\nfd = os.open('/tmp/x', os.O_RDWR | os.O_CREAT)\nos.posix_fallocate(fd, 0, %d)"
        flags = ("--disk", "16m")
        self.outcome(*flags, *PY, script % (16 << 20), cause="exited", status=0)
        if image_stores():  # a tmpfs gives back what it has taken when it refuses: RECEIPT.md
            self.outcome(*flags, *PY, script % ((16 << 20) + 1), cause="disk-limit", status=1)

    def fill(self, *flags, place="/tmp/fill", want=64 << 20):
        out = self.w.run(*flags, *PY, FILL, str(want), place)
        self.assertEqual(out.returncode, 0, out)
        return out.stdout.decode().split()

    def test_enospc(self):
        for size in (1, 4, 32):
            told, written = self.fill("--disk", f"{size}m")
            self.assertEqual(int(told), errno.ENOSPC, size)
            self.assertLessEqual(int(written), size << 20)
            self.assertGreater(int(written), (size << 20) // 4)  # the file system has its own needs

    def test_never_oom(self):
        memory, disk = ("24m", "48m") if image_stores() else ("48m", "24m")
        r = self.outcome("-m", memory, "--disk", disk, *PY, FILL, str(96 << 20), "/tmp/a", cause="exited", status=0)
        self.assertEqual(r["stdout"].split()[0], str(errno.ENOSPC))
        self.assertEqual(r["outcome"]["limits_hit"], ["disk"])

    def test_one_sum_over_all_writable_places(self):
        paths = [f"{place}/part" for place in PLACES]
        done = self.w.run("--disk", "8m", *PY, FILL, str(3 << 20), *paths)
        told, written = done.stdout.decode().split()
        self.assertEqual(int(told), errno.ENOSPC, done)
        self.assertLessEqual(int(written), 8 << 20)
        self.assertGreater(int(written), 4 << 20)

    def test_each_of_them(self):
        for place in PLACES:
            told, written = self.fill("--disk", "2m", place=f"{place}/fill")
            self.assertEqual((int(told), int(written) <= 2 << 20), (errno.ENOSPC, True), place)

    def test_they_are_one_file_system(self):
        self.assertEqual(len(set(self.shell(f"stat -c %d {' '.join(PLACES)}").split())), 1)

    def test_writable_root_is_in_the_sum(self):
        done = self.w.run("--disk", "8m", "--writable-root", *PY, FILL, str(5 << 20), "/workspace/part", "/opt-part",
                          "/usr/part")
        self.assertEqual(done.returncode, 0, done)
        told, written = done.stdout.decode().split()
        self.assertEqual(int(told), errno.ENOSPC, done)
        self.assertLessEqual(int(written), 8 << 20)
        self.assertGreater(int(written), 5 << 20)

    def test_a_hole_is_not_a_way_around(self):
        script = ("import os\nfd = os.open('/tmp/x', os.O_RDWR | os.O_CREAT)\nos.truncate(fd, 1 << 32)\nn = 0\n"
                  "try:\n    while True: os.pwrite(fd, b'x', n << 16); n += 1; os.fsync(fd)\n"
                  "except OSError as why: print(why.errno, n)")
        told, n = self.python(script, "--disk", "2m").split()
        self.assertEqual((int(told), int(n) <= 512), (errno.ENOSPC, True), n)

    def test_fallocate_is_not_a_way_around(self):
        script = ("import os\nfd = os.open('/tmp/x', os.O_RDWR | os.O_CREAT)\ntry: os.posix_fallocate(fd, 0, 1 << 28)\n"
                  "except OSError as why: print(why.errno)")
        self.assertEqual(self.python(script, "--disk", "8m").strip(), str(errno.ENOSPC))

    def test_sizes_that_are_no_whole_blocks(self):
        for size in ("1048577", "5000001", "1.5m"):
            self.outcome("--disk", size, "--require", "all" if IS_ROOT else "disk", "--", "/bin/true", cause="exited",
                         status=0)

    def test_what_was_deleted_is_free_again(self):
        self.shell("for i in 1 2 3 4 5 6; do head -c 4000000 /dev/zero > /tmp/x && rm /tmp/x || exit 1; done", "--disk",
                   "8m")

    def test_nothing_is_kept_for_the_next(self):
        self.shell("echo secret > /tmp/x; echo secret > /workspace/x; echo secret > /dev/shm/x")
        self.assertEqual(
            self.shell("ls -A /tmp /workspace /home/user /run /dev/shm /var/tmp | grep -v : ; true").split(), [])


class Inodes(JailTest):
    SCRIPT = ("import os\nn = 0\ntry:\n    while True: os.mkdir(f'/tmp/{n}'); n += 1\n"
              "except OSError as why: print(why.errno, n)")

    def test_enospc(self):
        for inodes in (64, 1000):
            told, n = self.python(self.SCRIPT, "--inodes", str(inodes)).split()
            self.assertEqual(int(told), errno.ENOSPC)
            self.assertLessEqual(int(n), inodes)
            self.assertGreater(int(n), inodes // 4)

    def test_held(self):
        for inodes in ("64", "100", "1000", "65536", "100000"):
            self.outcome("--inodes", inodes, "--require", "inodes", "--", "/bin/true", cause="exited", status=0)

    def test_many_on_a_small_disk(self):
        for disk in ("1m", "2m", "8m", "600m"):
            self.outcome("--disk", disk, "--require", "inodes", "--", "/bin/true", cause="exited", status=0)
        if image_stores():  # their table is beside the disk, and may take half as much again of the host's
            self.refused("--disk", "1m", "--inodes", "65536", "--", "/bin/true", words=("inodes 65536", "1048576"))

    @unittest.skipUnless(image_stores(), "the store is memory here")
    def test_more_than_the_groups_of_a_disk_have(self):
        """One group of 128 MiB has 32,768; for more mkfs makes smaller groups, and must not round up then."""
        for disk, inodes in ((167298567, 163339), (291958301, 570188), (167298567, 81640), (1048576, 2048)):
            flags = ("--disk", str(disk), "--inodes", str(inodes), "--require", "disk,inodes")
            self.outcome(*flags, "--", "/bin/true", cause="exited", status=0)
            counted = int(self.shell("stat -fc %c /workspace", *flags))
            self.assertTrue(inodes * 9 // 10 < counted <= inodes, (disk, inodes, counted))


class OpenFiles(JailTest):
    SCRIPT = ("import os\nfds = []\ntry:\n    while True: fds.append(os.open('/dev/null', os.O_RDONLY))\n"
              "except OSError as why: print(why.errno, max(fds))")

    def test_emfile(self):
        for limit in (16, 100):
            self.assertEqual(self.python(self.SCRIPT, "--open-files", str(limit)).split(),
                             [str(errno.EMFILE), str(limit - 1)])

    def test_the_default(self):
        self.assertEqual(self.python(self.SCRIPT).split(), [str(errno.EMFILE), "1023"])

    def test_it_cannot_be_raised(self):
        script = ("import resource\ntry: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
                  "except (ValueError, OSError) as why: print('no')")
        self.assertEqual(self.w.run("--open-files", "100", "--", "/usr/bin/python3", "-I", "-c", script).stdout,
                         b"no\n")


class FileSize(JailTest):
    def test_sigxfsz(self):
        r = self.outcome("--file-size", "64k", "--", "/bin/dd", "if=/dev/zero", "of=/tmp/x", "bs=4k", cause="signalled",
                         status=128 + signal.SIGXFSZ)
        self.assertEqual(r["outcome"]["signal"], signal.SIGXFSZ)

    def test_efbig_for_who_ignores_it(self):
        script = ("import os\nfd = os.open('/tmp/x', os.O_WRONLY | os.O_CREAT)\nn = 0\ntry:\n"
                  "    while True: n += os.write(fd, b'x' * 1000)\n"
                  "except OSError as why: print(why.errno, n)")
        self.assertEqual(self.python(script, "--file-size", "64k").split(), [str(errno.EFBIG), "65536"])

    def test_many_files_of_that_size(self):
        self.shell("for i in 1 2 3 4; do head -c 65536 /dev/zero > /tmp/$i || exit 1; done", "--file-size", "64k")

    def test_it_binds_in_a_bind_as_well(self):
        path = self.w.mkdir("big", 0o777)
        self.outcome("--file-size", "64k", "-v", f"{path}:/big", "--", "/bin/dd", "if=/dev/zero", "of=/big/x", "bs=4k",
                     cause="signalled",
                     status=128 + signal.SIGXFSZ)
        self.assertEqual(os.path.getsize(f"{path}/x"), 65536)


class Tmpfs(JailTest):
    def test_enospc(self):
        done = self.w.run("--tmpfs", "/scratch:1m", *PY, FILL, str(8 << 20), "/scratch/x")
        self.assertEqual(done.stdout.split(), [str(errno.ENOSPC).encode(), str(1 << 20).encode()], done)

    def test_it_is_not_the_store(self):
        self.shell("head -c 3000000 /dev/zero > /scratch/x && head -c 1000000 /dev/zero > /tmp/x", "--disk", "2m",
                   "--tmpfs", "/scratch:4m")

    def test_it_is_the_programs(self):
        self.assertEqual(self.shell("stat -c '%U %a' /scratch", "--tmpfs", "/scratch:1m"), "user 755\n")

    def test_no_devices_and_no_set_ids(self):
        options = self.shell("grep ' /scratch ' /proc/self/mounts", "--tmpfs", "/scratch:1m").split()[3].split(",")
        self.assertTrue({"nosuid", "nodev"} <= set(options), options)

    def test_several(self):
        self.shell("head -c 900000 /dev/zero > /a/x && head -c 1900000 /dev/zero > /b/c/x && test -d /workspace/in",
                   "--tmpfs", "/a:1m", "--tmpfs", "/b/c:2m", "--tmpfs", "/workspace/in:1m")

    def test_inodes_are_bounded(self):
        script = ("import os\nn = 0\ntry:\n    while True: os.mkdir(f'/scratch/{n}'); n += 1\n"
                  "except OSError as why: print(why.errno, n)")
        told, n = self.python(script, "--tmpfs", "/scratch:256m").split()
        self.assertEqual((int(told), int(n) <= 65536), (errno.ENOSPC, True))

    def test_larger_than_memory_is_refused(self):
        self.refused("-m", "16m", "--tmpfs", "/scratch:17m", "--", "/bin/true", words=("/scratch", "memory"))

    def test_it_is_charged_to_memory(self):
        self.outcome("-m", "24m", "--disk", "1m", "--tmpfs", "/scratch:24m", *SH,
                     "head -c 25000000 /dev/zero > /scratch/x; exec sleep 1000", cause="oom",
                     status=137)

    def test_places_that_are_refused(self):
        for path in ("/", "/proc", "/proc/x", "/dev", "/sys", "/usr", "/etc", "/bin"):
            self.refused("--tmpfs", f"{path}:1m", "--", "/bin/true", words=(path,))


@unittest.skipUnless(IS_ROOT, "needs root to make the state directory unusable")
class MemoryBacked(JailTest):
    """Root without a usable state directory: the store is memory, the statement says so, and the rules change."""

    @classmethod
    def make_world(cls):
        w = super().make_world()
        os.mkdir(w.state)
        os.chown(w.state, 12345, 12345)
        return w

    def test_the_statement_says_so(self):
        r = self.outcome("--require", "all", "--", "/bin/true", cause="exited", status=0)
        for layer in ("disk", "inodes"):
            self.assertEqual(r["protection"]["layers"][layer], {"on": True, "by": "memory-backed"})
        self.assertEqual(r["limits"]["disk"], r["limits"]["memory"] // 2)

    def test_more_than_half_of_memory_is_refused(self):
        self.refused("-m", "64m", "--disk", "33m", "--", "/bin/true", words=("disk", "half of memory"))
        self.outcome("-m", "64m", "--disk", "32m", "--", "/bin/true", cause="exited", status=0)

    def test_full_is_enospc_and_never_oom(self):
        for memory in ("16m", "64m"):
            r = self.outcome("-m", memory, *PY, FILL, str(96 << 20), "/tmp/x", cause="exited", status=0)
            told, written = r["stdout"].split()
            self.assertEqual((int(told), r["outcome"]["limits_hit"]), (errno.ENOSPC, ["disk"]))
            self.assertLessEqual(int(written), int(memory[:-1]) << 19)

    def test_full_and_failed_is_disk_limit(self):
        self.outcome("-m", "16m", *SH, "head -c 9000000 /dev/zero > /tmp/x", cause="disk-limit", status=1)

    def test_inodes(self):
        r = self.outcome("--inodes", "64", *PY, Inodes.SCRIPT, cause="exited", status=0)
        self.assertEqual(r["stdout"].split()[0], str(errno.ENOSPC))

    def test_io_limits_are_refused(self):
        for flag in ("--io-read-bps", "--io-write-bps"):
            self.refused(flag, "1m", "--", "/bin/true", words=("memory-backed",))


@unittest.skipUnless(image_stores(), "ext4 image stores (root, loop devices)")
class Io(JailTest):
    def settings(self):
        """What the kernel holds for the running sandbox."""
        found = {}
        for where in self.w.cgroups.below():
            for name in ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "io.max"):
                text = read(f"{where}/{name}").strip()
                if text:
                    found[name] = text
        return found

    def test_set_and_reported(self):
        process = self.w.start("--io-read-bps", "4m", "--io-write-bps", "2m", "--require", "io", *SH,
                               "echo up; exec sleep 1000")
        self.assertEqual(read_line(process.stdout), b"up\n")
        found = self.settings()
        process.terminate()
        self.w.finish(process)
        if "io.max" in found:
            self.assertRegex(found["io.max"], r"^7:\d+ rbps=4194304 wbps=2097152 ")
        else:
            self.assertRegex(found["blkio.throttle.read_bps_device"], r"^7:\d+ 4194304$")
            self.assertRegex(found["blkio.throttle.write_bps_device"], r"^7:\d+ 2097152$")

    def test_not_exceeded_tenfold(self):
        r = self.outcome("--io-write-bps", "2m", *SH,
                         "dd if=/dev/zero of=/tmp/x bs=64k count=32 oflag=direct 2>/dev/null", cause="exited", status=0)
        self.assertGreater(r["usage"]["wall_ms"], 100)  # 2 MiB at 2 MiB/s
        self.assertTrue(r["protection"]["layers"]["io"]["on"])

    def test_one_of_the_two(self):
        self.outcome("--io-read-bps", "1m", "--require", "io", "--", "/bin/true", cause="exited", status=0)

    def test_not_asked_for(self):
        r = self.outcome("--", "/bin/true", cause="exited", status=0)
        self.assertFalse(r["protection"]["layers"]["io"]["on"])


class Reported(JailTest):
    """The receipt has the limits that were in force, as plain numbers."""

    def test_defaults(self):
        r = self.outcome("--", "/bin/true", cause="exited", status=0)
        want = {"memory": 512 << 20, "cpus": 1, "pids": 128, "open_files": 1024, "timeout": 300, "output": 10 << 20,
                "disk": 1 << 30 if r["protection"]["layers"]["disk"]["by"] == "ext4 image" else 256 << 20}
        self.assertEqual({k: r["limits"][k] for k in want}, want)

    @unittest.skipUnless(image_stores(), "ext4 image stores (root, loop devices)")
    def test_a_disk_that_was_asked_for_is_an_image(self):
        layers = self.outcome("--disk", "300m", "--require", "all", "--", "/bin/true", cause="exited",
                              status=0)["protection"]["layers"]
        self.assertEqual((layers["disk"]["by"], layers["inodes"]["by"]), ("ext4 image", "ext4 image"))

    def test_given(self):
        flags = ("-m", "64m", "-c", "1.5", "--cpu-time", "10", "--pids", "20", "--disk", "16m", "--inodes", "500",
                 "--open-files", "50",
                 "--file-size", "1m", "--timeout", "20s", "--output", "4k")
        limits = self.outcome(*flags, "--", "/bin/true", cause="exited", status=0)["limits"]
        self.assertEqual(limits, {"memory": 64 << 20, "cpus": 1.5, "cpu_time": 10, "pids": 20, "disk": 16 << 20,
                                  "inodes": 500, "open_files": 50,
                                  "file_size": 1 << 20, "timeout": 20, "output": 4096})

    def test_statement_of_limits(self):
        layers = self.outcome("--", "/bin/true", cause="exited", status=0)["protection"]["layers"]
        for name in ("memory", "cpu", "pids"):
            self.assertIn(layers[name].get("by"), ("cgroup v1", "cgroup v2"), layers[name])


if __name__ == "__main__":
    unittest.main()
