# SPDX-License-Identifier: Apache-2.0
"""A plain user: the same essentials, and a statement that tells the difference.

Four callers: without anything; with delegated cgroups; with subordinate ids; with both, who must reach `all`.
"""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import unittest

from helpers import read_line
from jailkit import (ALL_LAYERS, IS_ROOT, KNOBS, PATH, PLAIN_ID, PY, SH, JailTest, SubidUser, World, hierarchies,
                     needs_root, read)

HELD_BY_THE_KERNEL = ("user_ns,mount_ns,pid_ns,net_ns,ipc_ns,uts_ns,cgroup_ns,caps,no_new_privs,seccomp,landlock,"
                      "root_readonly,proc,fds,disk,inodes")
FILL = ("import os\nfd = os.open('/tmp/x', os.O_WRONLY | os.O_CREAT)\ntry:\n"
        "    while True: os.write(fd, b'x' * 65536)\nexcept OSError as why: print(why.errno)")
USER = None  # with subordinate ids


def setUpModule():
    global USER
    if IS_ROOT and all(shutil.which(tool, path=PATH) for tool in ("useradd", "userdel", "newuidmap", "newgidmap")):
        holder = SubidUser()
        USER = holder.__enter__()
        unittest.addModuleCleanup(holder.__exit__)


def ids_file():
    """Where the ids of USER are held: /run/lock, or /dev/shm where that is none of everybody's."""
    for place in ("/run/lock", "/dev/shm"):
        if os.path.isdir(place) and os.stat(place).st_uid == 0 and os.stat(place).st_mode & 0o1002 == 0o1002:
            return f"{place}/brig-ids-{USER.pw_uid}"
    raise unittest.SkipTest("/run/lock or /dev/shm, for everybody")


class Essentials:
    """What every caller can rely on."""

    DELEGATED = SUBIDS = False

    @classmethod
    def make_world(cls):
        if cls.SUBIDS and USER is None:
            raise unittest.SkipTest("subordinate ids (root, useradd, newuidmap)")
        return World(USER.pw_uid if cls.SUBIDS else PLAIN_ID, USER.pw_gid if cls.SUBIDS else PLAIN_ID,
                     delegated=cls.DELEGATED)

    def test_runs_as_user(self):
        self.assertEqual(self.shell("id -u; id -un; pwd; cat /proc/self/uid_map").split()[:3],
                         ["1000", "user", "/workspace"])

    def test_layers_that_need_no_help(self):
        self.outcome("--require", HELD_BY_THE_KERNEL, "--", "/bin/true", cause="exited", status=0)

    def test_layers_that_need_no_help_in_every_profile(self):
        for profile in ("paranoid", "compat"):
            self.outcome("--profile", profile, "--require", HELD_BY_THE_KERNEL, "--", "/bin/true", cause="exited",
                         status=0)

    def test_outcomes(self):
        self.outcome(*SH, "exit 7", cause="exited", status=7)
        self.outcome(*SH, "kill -SEGV $$", cause="signalled", status=139)
        self.outcome("--timeout", "0.2", *SH, "trap '' TERM; echo x; while :; do sleep 1000; done", cause="timeout",
                     status=124)
        self.outcome("--output", "100", "--on-output-limit", "kill", *SH, "while :; do echo x; done",
                     cause="output-limit", status=137)
        self.outcome("--", "/no/such", cause="exited", status=127)

    def test_read_only_root(self):
        script = ("import os\nfor p in ('/x', '/usr/x', '/etc/x', '/usr/bin/x'):\n    try: os.mkdir(p); print('made')\n"
                  "    except OSError as why: print(why.errno)")
        self.assertEqual(set(self.python(script).split()), {str(errno.EROFS)})

    def test_nothing_of_the_host(self):
        canary = self.w.file("canary", "secret")
        self.assertEqual(self.shell(
            f"cat {canary} /etc/shadow 2>/dev/null; ls -d /sys /root /proc/sys {self.w.dir} 2>/dev/null; true"),
                         "")
        self.assertEqual(self.python("import os\nprint([p for p in os.listdir('/proc') if p.isdigit()])").strip(),
                         "['2']")

    def test_privileges(self):
        status = dict(line.split(":\t", 1)
                      for line in self.shell("cat /proc/self/status").splitlines() if ":\t" in line)
        self.assertEqual({status[n] for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_disk_is_memory_and_says_enospc(self):
        r = self.outcome("-m", "64m", *PY, FILL, cause="exited", status=0)
        self.assertEqual((r["stdout"].strip(), r["limits"]["disk"], r["outcome"]["limits_hit"]),
                         (str(errno.ENOSPC), 32 << 20, ["disk"]))
        self.assertEqual(r["protection"]["layers"]["disk"], {"on": True, "by": "memory-backed"})

    def test_disk_above_half_of_memory_is_refused(self):
        self.refused("-m", "64m", "--disk", "33m", "--", "/bin/true", words=("disk", "half of memory"))

    def test_inodes(self):
        script = ("import os\nn = 0\ntry:\n    while True: os.mkdir(f'/tmp/{n}'); n += 1\n"
                  "except OSError as why: print(why.errno, n <= 64)")
        self.assertEqual(self.python(script, "--inodes", "64").split(), [str(errno.ENOSPC), "True"])

    def test_io_limits_are_refused(self):
        self.refused("--io-write-bps", "1m", "--", "/bin/true", words=("io_write_bps",))

    def test_pids(self):
        script = ("import os, signal\nn = 0\ntry:\n    while n < 100:\n        if os.fork() == 0: signal.pause()\n"
                  "        n += 1\n"
                  "except OSError as why: print(why.errno, n <= 10)")
        self.assertEqual(self.python(script, "--pids", "10").split(), [str(errno.EAGAIN), "True"])

    def test_memory_is_bounded(self):
        # By the cgroup: oom. By what remains, an address space: MemoryError.
        done = self.w.run("-m", "64m", "-o", "json", *PY, "b = b'x' * (100 << 20)")
        outcome = json.loads(done.stdout)["outcome"]
        self.assertIn((outcome["cause"], done.returncode), (("oom", 137), ("exited", 1), ("signalled", 139)), outcome)

    def test_cpu_time_is_enforced_or_refused(self):
        done = self.w.run("-o", "json", "--cpu-time", "0.3", "--timeout", "10", *SH, "while :; do :; done")
        outcome = json.loads(done.stdout)["outcome"]
        self.assertIn((outcome["cause"], done.returncode), (("cpu-limit", 137), ("policy", 125)), outcome)

    def test_binds(self):
        source = self.w.mkdir("bind")
        self.shell("echo inside > /data/new; test ! -e /data/none", "-v", f"{source}:/data")
        st = os.stat(f"{source}/new")
        self.assertEqual((st.st_uid, read(f"{source}/new")), (self.w.uid, "inside\n"))
        self.assertEqual(self.python("import os\ntry: os.mkdir('/data/x')\nexcept OSError as why: print(why.errno)",
                                     "-v", f"{source}:/data:ro").strip(),
                         str(errno.EROFS))

    def test_binds_give_no_more_than_the_caller_has(self):
        secret = self.w.path("roots")
        os.mkdir(secret, 0o700)
        os.chown(secret, 0, 0)
        with open(f"{secret}/file", "w", encoding="utf-8") as f:
            f.write("secret")
        self.assertNotEqual(self.w.run("-v", f"{secret}:/data", *SH, "cat /data/file").returncode, 0)
        self.refused("-v", f"{secret}/file:/data", "--", "/bin/true", words=("bind source",))

    def test_refused_binds(self):
        for source in ("/", "/proc", "/sys", "/dev", "/run", self.w.home):
            self.refused("-v", f"{source}:/mnt", "--", "/bin/true", words=("bind source", source))

    def test_writable_root(self):
        self.assertEqual(self.shell("echo x > /usr/brig-e2e; mkdir /opt; cat /usr/brig-e2e", "--writable-root"), "x\n")
        self.assertFalse(os.path.exists("/usr/brig-e2e"))

    def test_terminal(self):
        done = self.w.run("-t", *SH, "test -t 0 && test -t 1 && tty")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, b"/dev/pts/0"), done)

    def test_stdin(self):
        process = self.w.start("-i", "--", "/bin/cat", stdin=-1)
        out, _ = process.communicate(b"hello", timeout=30)
        self.assertEqual((process.returncode, out), (0, b"hello"))

    def test_daemons_die(self):
        self.outcome(*SH, "setsid sleep 1000 & sleep 0.02; exit 3", cause="exited", status=3)

    def hold(self):
        process = self.w.start(*SH, "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.02; done")
        self.assertEqual(read_line(process.stdout), b"up\n")
        return process

    def test_a_killed_brig(self):
        process = self.hold()
        process.kill()
        process.communicate()

    def test_a_killed_spawner(self):
        process = self.hold()
        os.kill(self.w.spawner(), signal.SIGKILL)
        self.assertEqual(self.w.finish(process)[0], 125)

    def test_two_at_once(self):
        first, second = self.hold(), self.hold()
        for process in (first, second):
            process.kill()
            process.communicate()

    def test_directories_are_private(self):
        self.shell("true")
        for path in (self.w.state, self.w.run_dir, self.w.cache):
            if os.path.exists(path):
                st = os.stat(path)
                self.assertEqual((st.st_uid, st.st_mode & 0o022), (self.w.uid, 0), path)

    def test_without_a_home(self):
        gone = {"HOME": "/nonexistent", "BRIG_STATE_DIR": "/nonexistent/s", "BRIG_RUN_DIR": "/nonexistent/r",
                "BRIG_CACHE_DIR": "/nonexistent/c"}
        self.outcome("--", "/bin/true", cause="exited", status=0, env=gone)

    def statement(self, **flags):
        return self.outcome("--", "/bin/true", cause="exited", status=0)["protection"]

    def test_the_statement_is_what_require_says(self):
        protection = self.statement()
        for name in ALL_LAYERS:
            done = self.w.run("--require", name, "--", "/bin/true")
            self.assertEqual(done.returncode, 0 if protection["layers"][name]["on"] else 125,
                             (name, protection["layers"][name], done))
        off = [n for n in ALL_LAYERS if not protection["layers"][n]["on"]]
        self.assertEqual(protection["complete"], not off)
        for name in off:
            self.assertTrue(protection["layers"][name].get("why"), name)


@needs_root
class Alone(Essentials, JailTest):
    """One id, no cgroups."""

    def test_statement(self):
        layers = self.statement()["layers"]
        self.assertEqual((layers["uid_range"]["on"], layers["memory"]["on"], layers["cpu"]["on"]),
                         (False, False, False))
        self.assertEqual(layers["memory"].get("by"), "RLIMIT_AS")
        self.assertEqual((layers["pids"]["on"], layers["pids"].get("by")), (True, "RLIMIT_NPROC"))

    def test_all_is_refused(self):
        self.refused("--require", "all", "--", "/bin/true", words=("required layer",))

    def test_pid_1_cannot_be_harmed(self):
        # It shares the program's id here.
        script = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def told(fn, *args):
    try: fn(*args); return 'done'
    except OSError as why: return why.errno
for s in (9, 15, 19, 11): told(os.kill, 1, s)
print(told(os.sched_setaffinity, 1, [0]), told(os.setpriority, 0, 1, 19), told(open, '/proc/1/mem', 'rb'), \
libc.ptrace(16, 1, 0, 0))
"""
        out = self.w.run("--", "/usr/bin/python3", "-I", "-c", script).stdout.split()
        self.assertNotIn(b"done", out)
        self.assertEqual(out[-1], b"-1")

    def test_uid_is_the_callers(self):
        self.assertEqual(self.shell("cat /proc/self/uid_map").split()[0::2], ["1000", "1"])

    def test_off_disk(self):
        for layer in ("disk", "inodes"):
            self.refused("--require", layer, "--", "/bin/true", program=KNOBS, env={"BRIG_TEST_OFF": layer},
                         words=("required layer", layer))


@needs_root
class Delegated(Essentials, JailTest):
    """One id, cgroups."""

    DELEGATED = True

    def test_statement(self):
        layers = self.statement()["layers"]
        self.assertFalse(layers["uid_range"]["on"])
        for name in ("memory", "cpu", "pids"):
            self.assertEqual((layers[name]["on"], layers[name]["by"][:6]), (True, "cgroup"))
        self.refused("--require", "all", "--", "/bin/true", words=("required layer", "uid_range"))

    def test_oom(self):
        self.outcome("-m", "32m", *PY, "a = []\nwhile True: a.append(bytearray(1 << 20))", cause="oom", status=137)


@needs_root
class Subordinate(Essentials, JailTest):
    """Two ids, no cgroups."""

    SUBIDS = True

    def test_statement(self):
        layers = self.statement()["layers"]
        self.assertEqual((layers["uid_range"]["on"], layers["memory"]["on"]), (True, False))
        self.refused("--require", "all", "--", "/bin/true", words=("required layer",))

    def test_its_ids_are_held_in_one_place_of_the_user(self):
        """Not in the run directory: a service with another one would give out the same ids."""
        path = ids_file()
        process = self.w.start("-i", *SH, "cat /proc/self/uid_map; read -r _", stdin=subprocess.PIPE)
        self.addCleanup(self.w.finish, process)
        first = int(process.stdout.readline().split()[1])
        with open(path, "r+b") as f, self.assertRaises(BlockingIOError):
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, (first - 1) // 2)
        process.stdin.write(b"end\n")
        process.stdin.flush()

    def test_ids_that_are_not_known_to_be_private_are_told(self):
        path = ids_file()
        if os.path.exists(path):
            os.unlink(path)
        with open(path, "wb"):  # root's: somebody else was there first
            self.addCleanup(os.unlink, path)
        self.assertEqual(self.statement()["layers"]["uid_range"],
                         {"on": False, "by": "subordinate ids",
                          "why": "another service on this host may have given out the same ids"})


@needs_root
class Full(Essentials, JailTest):
    """Two ids and cgroups: everything."""

    DELEGATED = SUBIDS = True

    def test_all(self):
        r = self.outcome("--require", "all", "--", "/bin/true", cause="exited", status=0)
        self.assertTrue(r["protection"]["complete"])
        self.assertEqual([n for n in ALL_LAYERS if not r["protection"]["layers"][n]["on"]], [])
        self.assertEqual(r["protection"]["layers"]["uid_range"]["by"], "subordinate ids")

    def test_all_in_every_profile(self):
        for profile in ("default", "paranoid", "compat"):
            self.outcome("--profile", profile, "--require", "all", "--", "/bin/true", cause="exited", status=0)

    def test_limits_are_the_kernels(self):
        self.outcome("-m", "32m", *PY, "a = []\nwhile True: a.append(bytearray(1 << 20))", cause="oom", status=137)
        self.outcome("--pids", "8", *PY, "import os, signal\ntry:\n    while True:\n"
                     "        if os.fork() == 0: signal.pause()\nexcept OSError: os._exit(1)",
                     cause="pids-limit", status=1)
        self.outcome("--cpu-time", "0.3", *SH, "while :; do :; done", cause="cpu-limit", status=137)

    def test_two_sandboxes_have_no_id_in_common(self):
        first = self.w.start(*SH, "cat /proc/self/uid_map; echo up; exec sleep 1000")
        seen = []
        while (line := read_line(first.stdout)) not in (b"up\n", b""):
            seen.append(line.split())
        other = [line.split() for line in self.w.run(*SH, "cat /proc/self/uid_map").stdout.splitlines()]
        first.kill()
        first.communicate()
        self.assertEqual(len(seen), 2)
        self.assertEqual({x[1] for x in seen} & {x[1] for x in other}, set())

    def test_off_and_required(self):
        for layer in ("landlock", "memory", "disk"):
            self.refused("--require", "all", "--", "/bin/true", program=KNOBS, env={"BRIG_TEST_OFF": layer},
                         words=("required layer", layer))


if __name__ == "__main__":
    unittest.main()
