# SPDX-License-Identifier: Apache-2.0
"""Children of a zygote: interpreters that were forked into their sandboxes (src/spawner/zygote.h).

Each must be what an executed program is, layer by layer; each has random numbers of its own; and whatever happens to a
zygote, the spawner goes on and nothing is left.
"""

import contextlib
import ctypes
import glob
import json
import os
import re
import shutil
import signal

from helpers import wait_until
from jailkit import BUILD, PLAIN_ID, PREFIX, SubidUser, World, comm, needs_root, read
from test_jail_service import LIBEXEC, ServiceTest

TEST_SPAWNER = next((p for p in (f"{PREFIX}/tests/e2e/spawner_knobs", f"{BUILD}/tests/e2e/spawner_knobs")
                     if os.path.exists(p)),
                    "spawner_knobs")
MANY = 300
SAME = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
        "NoNewPrivs", "Seccomp",
        "Seccomp_filters", "Name", "CoreDumping", "Speculation_Store_Bypass", "SigQ")

# What a process can say of itself, executed or forked.
LOOK = """
def look():
    import json, os, stat
    def text(path):
        with open(path) as file:
            return file.read()
    def outcome(call):
        try:
            return call()
        except OSError as why:
            return -why.errno
    kinds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            kinds[fd] = stat.S_IFMT(os.stat(int(fd)).st_mode)
        except OSError:
            pass
    return {
        "status": dict(line.split(":\\t", 1) for line in text("/proc/self/status").splitlines() if ":\\t" in line),
        "limits": text("/proc/self/limits"), "fds": kinds, "mounts": text("/proc/self/mounts"), \
"cgroup": text("/proc/self/cgroup"),
        "ns": {name: os.stat("/proc/self/ns/" + name).st_ino for name in os.listdir("/proc/self/ns")},
        "session": [os.getsid(0), os.getpgid(0), os.getpid()], "adj": text("/proc/self/oom_score_adj"),
        "kill 1": outcome(lambda: os.kill(1, 9)), "read pid 1": outcome(lambda: os.open("/proc/1/mem", 2)),
        "chroot": outcome(lambda: os.chroot("/")), "write /usr": outcome(lambda: os.mkdir("/usr/x")), \
"personality": outcome(lambda: text("/proc/self/personality")),
        "exe": outcome(lambda: os.open("/proc/self/exe", 0)) < 0, "dumpable": os.stat("/proc/self/maps").st_uid,
        "environ": sorted(k for k in os.environ),
    }
"""


def fresh():
    """The source of a tool whose results must differ between children."""
    return ("def fresh():\n    import os, random, uuid, secrets, tempfile\n"
            "    return [random.random(), str(uuid.uuid4()), str(uuid.uuid1()), secrets.token_hex(8), "
            "os.urandom(8).hex(), next(tempfile._get_candidate_names())]\n")


class Traced:
    """A process that stops at its next clone."""

    SEIZE, DETACH, GETEVENTMSG, TRACEFORK, TRACECLONE = 0x4206, 17, 0x4201, 2, 8
    WALL = 0x40000000

    def __init__(self, pid):
        self.pid, self.child = pid, 0
        self.libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(self, request, pid, data=None):
        if self.libc.ptrace(request, pid, None, data) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")

    def __enter__(self):
        self.ptrace(self.SEIZE, self.pid, ctypes.c_void_p(self.TRACEFORK | self.TRACECLONE))
        return self

    def cloned(self):
        os.waitpid(self.pid, self.WALL)
        number = ctypes.c_ulong()
        self.ptrace(self.GETEVENTMSG, self.pid, ctypes.byref(number))
        self.child = number.value
        return self.child

    def __exit__(self, *_):
        while not os.WIFSIGNALED(status := os.waitpid(self.child, self.WALL)[1]) and not os.WIFEXITED(status):
            with contextlib.suppress(ProcessLookupError):  # killed meanwhile: that is the next to be waited for
                self.ptrace(self.DETACH, self.child)
                break


class ZygoteTest(ServiceTest):
    LIMIT_SECONDS = 180

    def create(self, host, key, *words):
        host.say("create", key, *words)
        up = host.until(f"up {key} ", f"ended {key}", f"refused {key}")[-1].split()
        self.assertEqual(up[0], "up", up)
        host.until(f"hello {key} ")
        return up[2]

    def child(self, host, key, zygote="org"):
        self.create(host, key, f"zygote={zygote}")
        return self.ready(host, key)

    def ready(self, host, key):
        host.say("channel", key)
        return json.loads(host.until(f"frame {key} ")[-1].split(" ", 2)[2])

    def ask(self, host, key, source, name):
        host.say("ask", key, json.dumps({"key": "00" * 32, "kind": "tool", "source": source, "name": name, "args": {}}))
        answer = host.until(f"frame {key} ", f"ended {key}")[-1].split(" ", 3)  # frame, key, hash, JSON
        self.assertEqual((answer[0], len(answer[2])), ("frame", 64), answer)
        got = json.loads(answer[3])
        self.assertEqual(got["status"], "ok", got)
        return got["result"]

    def zygotes(self):
        return self.w.processes("brig-zygote")


class Kinds:
    """For every kind of caller."""

    def test_it_is_what_an_executed_program_is(self):
        host = self.host()
        host.say("create", "a", "statement=1")
        executed = host.until("up a ")[-2]
        host.expect("hello a")
        host.say("create", "z", "statement=1", "zygote=org")
        forked = host.until("up z ")[-2]
        host.expect("hello z")
        self.assertEqual(forked.replace("layers z", "layers a"), executed)
        ready = self.ready(host, "z")
        self.assertEqual((ready["ready"], ready["language"], ready["pid"]), (1, "python", 2))
        (outside,) = self.w.processes("python3")
        parent = read(f"/proc/{outside}/stat").rsplit(")", 1)[1].split()[1]
        self.assertEqual(comm(parent), "brig-init")
        self.assertEqual(read(f"/proc/{parent}/stat").rsplit(")", 1)[1].split()[1], str(self.spawner.pid))

        code = LOOK + "\nprint(json.dumps(look()))"
        host.say("run", "a", "/usr/bin/python3", "-I", "-S", "-c",
                 f"import json; exec(bytes.fromhex({code.encode().hex()!r}))")
        heard, ended = [], False
        while not ended or not any("{" in line for line in heard):  # its end may be told before its output
            heard.append(host.hear())
            ended = ended or heard[-1].startswith("exit a")
        output = "\n".join(heard)
        one = json.loads(output[output.index("{"):output.rindex("}") + 1])
        two = self.ask(host, "z", LOOK, "look")
        for field in SAME:
            self.assertEqual(two["status"].get(field), one["status"].get(field), field)
        self.assertEqual(two["status"]["PPid"], "1")
        self.assertEqual(two["status"]["Seccomp"], "2")
        self.assertEqual(two["status"]["NoNewPrivs"], "1")
        self.assertEqual({two["status"][name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
                         {"0" * 16})
        self.assertEqual(set(two["status"]["Uid"].split()), {"1000"})
        self.assertEqual(two["limits"], one["limits"])
        self.assertEqual(re.sub(r"\bsize=\w+", "", two["mounts"]), re.sub(r"\bsize=\w+", "", one["mounts"]))
        self.assertEqual((two["session"], two["adj"]), ([2, 2, 2], one["adj"]))
        self.assertEqual(two["dumpable"], one["dumpable"])
        for attempt in ("kill 1", "chroot", "write /usr", "read pid 1"):
            self.assertEqual(two[attempt], one[attempt], attempt)
        self.assertTrue(two["chroot"] < 0 and two["write /usr"] < 0 and two["read pid 1"] < 0, two)
        self.assertTrue(two["exe"] or read("/sys/kernel/security/lsm").find("landlock") < 0,
                        "the host's own file of the interpreter is out of reach")
        # stdin, stdout, stderr and the channel; nothing else. A character device, pipes, a socket.
        self.assertEqual(sorted(two["fds"].values()), sorted([0o020000, 0o010000, 0o010000, 0o140000]), two["fds"])
        own = {name: ino for name, ino in two["ns"].items() if not name.startswith("time")}
        host_ns = {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in own}
        self.assertFalse(set(own.values())
                         & (set(host_ns.values()) | {i for n, i in one["ns"].items() if not n.startswith("time")}))
        self.end(host, "a")
        self.end(host, "z")

    def test_its_layers_can_be_required_and_random_numbers_are_its_own(self):
        host = self.host()
        seen = [], []
        for key in "xyz":
            self.create(host, key, "zygote=org", *self.REQUIRE)
            self.ready(host, key)
            seen[0].append(self.ask(host, key, fresh(), "fresh"))
        for values in zip(*seen[0]):
            self.assertEqual(len(set(values)), 3, values)
        self.assertEqual(len(self.zygotes()), 1)
        for key in "xyz":
            self.end(host, key)


class Root(Kinds, ZygoteTest):
    REQUIRE = ("require=all", "disk=100000000")

    def descriptors(self, pid):
        found = []
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.append(os.readlink(path))
        return sorted(found)

    def test_many_leave_nothing(self):
        host = self.host()
        self.child(host, "first")
        self.child(host, "second")  # from then on there is a network namespace ahead
        self.end(host, "second")
        spawner, (zygote,) = self.spawner.pid, self.zygotes()
        kinds = (self.descriptors(zygote), len(self.descriptors(spawner)))
        mounts = read(f"/proc/{spawner}/mountinfo").count("\n")
        at_once = 10
        for start in range(0, MANY, at_once):
            keys = [f"k{start + i}" for i in range(at_once)]
            for key in keys:
                host.say("create", key, "zygote=org")
            up = set()
            while len(up) < at_once:
                line = host.until("up ")[-1]
                up.add(line.split()[1])
            self.assertEqual(up, set(keys))
            for key in keys:
                host.say("end", key)
            for _ in keys:
                self.assertIn("cancelled", host.until("ended ")[-1])
        self.assertEqual(self.zygotes(), [zygote])
        wait_until("cgroups are gone", lambda: len(self.inits()) == 1)
        self.assertEqual(self.descriptors(zygote), kinds[0])
        wait_until("no more descriptors than before", lambda: len(self.descriptors(spawner)) <= kinds[1])
        self.assertEqual(read(f"/proc/{spawner}/mountinfo").count("\n"), mounts)
        children = {read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] for pid in self.w.processes()}
        self.assertNotIn("Z", children)
        self.assertEqual(self.ask(host, "first", fresh(), "fresh")[0] >= 0, True)
        self.end(host, "first")

    def test_what_a_zygote_has(self):
        """No environment of the daemon's, no descriptor of a sandbox, every signal blocked; it ends with the
        spawner."""
        host = self.host()
        self.child(host, "a")
        (zygote,) = self.zygotes()
        self.assertNotIn("BRIG", read(f"/proc/{zygote}/environ"))
        self.assertEqual(
            [name for name in self.descriptors(zygote) if name != "/dev/null" and not name.startswith("socket:")], [])
        self.assertEqual(len([name for name in self.descriptors(zygote) if name.startswith("socket:")]), 1)
        self.assertEqual(os.stat(f"/proc/{zygote}/root/t").st_ino, os.stat(f"/proc/{self.spawner.pid}/root/t").st_ino)
        self.assertEqual(read(f"/proc/{zygote}/cmdline").split("\0")[:2], ["/usr/bin/python3", "-I"])
        self.create(host, "b", "zygote=other")
        wait_until("one per key", lambda: len(self.zygotes()) == 2)
        self.spawner.kill()
        wait_until("all are gone", lambda: not self.w.processes("brig-zygote", "python3", "brig-init"))

    def test_a_zygote_that_is_killed(self):
        host = self.host()
        self.child(host, "a")
        (zygote,) = self.zygotes()
        os.kill(zygote, signal.SIGKILL)
        wait_until("it is gone", lambda: not self.zygotes())
        self.child(host, "b")  # a new one
        self.assertNotEqual(self.zygotes(), [zygote])
        self.assertGreaterEqual(self.ask(host, "a", fresh(), "fresh")[0], 0)  # its child lives on
        for key in "ab":
            self.end(host, key)

    def test_a_zygote_that_does_not_answer(self):
        host = self.host()
        self.child(host, "a")
        (zygote,) = self.zygotes()
        os.kill(zygote, signal.SIGSTOP)
        for key in "bcd":
            host.say("create", key, "zygote=org")
        host.say("create", "plain")
        host.until("up plain ")  # meanwhile the spawner serves others
        for _ in "bcd":
            self.assertRegex(host.until("ended ")[-1], "ended [bcd] host-error .*zygote: ended before it answered")
        wait_until("it was killed", lambda: zygote not in self.zygotes())
        self.child(host, "e")
        for key in ("a", "e", "plain"):
            self.end(host, key)

    def test_ended_before_the_zygote_answers(self):
        host = self.host()
        self.child(host, "a")
        (zygote,) = self.zygotes()
        os.kill(zygote, signal.SIGSTOP)
        host.say("create", "b", "zygote=org")
        host.say("end", "b")
        os.kill(zygote, signal.SIGCONT)
        self.assertIn("ended b cancelled", host.until("ended ")[-1])
        self.end(host, "a")

    def test_zygotes_that_are_killed_at_any_moment(self):
        """Whoever was cloned for a job that was never answered is collected, too."""
        host = self.host()
        for turn in range(20):
            keys = [f"k{turn}-{i}" for i in range(4)]
            for key in keys:
                host.say("create", key, "zygote=org")
            if turn % 4:
                host.until("up ", "ended ")  # while the others are being made
            for zygote in self.zygotes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(zygote, signal.SIGKILL)
            for key in keys:
                host.say("end", key)
            host.say("create", f"last{turn}")
            host.until(f"up last{turn} ")
            host.say("end", f"last{turn}")
            host.until(f"ended last{turn} cancelled")
        self.create_after_the_kills(host, "z")
        host.say("end", "z")
        host.until("ended z cancelled")
        wait_until("no child is left, dead or alive", lambda: not self.children())

    def create_after_the_kills(self, host, key):
        """A job that was given to a zygote while it died ends with that reason; then there is a new zygote."""
        for _ in range(3):
            host.say("create", key, "zygote=org")
            came = host.until(f"up {key} ", f"ended {key} ")[-1]
            if came.startswith("up "):
                host.until(f"hello {key} ")
                self.ready(host, key)
                return
            self.assertIn("zygote: ended before it answered", came)
        self.fail("no zygote was killed since, and none answers")

    def test_a_child_that_no_zygote_told_of(self):
        """Stopped by ptrace between the clone and the answer, and killed there."""
        host = self.host()
        self.child(host, "a")
        (zygote,) = self.zygotes()
        with Traced(zygote) as traced:
            host.say("create", "b", "zygote=org")
            orphan = traced.cloned()
            os.kill(zygote, signal.SIGKILL)
            os.waitpid(zygote, 0)  # as its tracer
        self.assertRegex(host.until("ended b")[-1], "ended b host-error .*zygote: ended before it answered")
        wait_until("its child is collected", lambda:
                   str(orphan) not in read(f"/proc/{self.spawner.pid}/task/{self.spawner.pid}/children").split())
        self.child(host, "c")
        for key in "ac":
            self.end(host, key)

    def children(self):
        """Of the spawner: the dead (but for the helper that has made a network namespace ahead), and those of
        sandboxes."""
        found = []
        for pid in read(f"/proc/{self.spawner.pid}/task/{self.spawner.pid}/children").split():
            state = read(f"/proc/{pid}/stat", ") gone").rsplit(")", 1)[1].split()[0]
            if (state == "Z" and comm(pid) != "brig-spawner") or comm(pid) == "brig-init":
                found.append((pid, comm(pid), state))
        return found

    def test_other_profiles(self):
        host = self.host()
        for profile in ("paranoid", "compat"):
            for key, words in (("a", ()), ("z", ("zygote=org",))):
                host.say("create", key, "statement=1", f"profile={profile}", *words)
                lines = host.until(f"up {key} ", f"ended {key}")
                self.assertTrue(lines[-1].startswith("up"), lines)
                host.until(f"hello {key}")
                if key == "a":
                    executed = lines[-2]
            self.assertEqual(lines[-2].replace("layers z", "layers a"), executed)
            self.ready(host, "z")
            self.assertGreaterEqual(self.ask(host, "z", fresh(), "fresh")[0], 0)
            self.end(host, "a")
            self.end(host, "z")

    def test_without_its_files_there_are_none(self):
        helpers = self.w.mkdir("helpers")
        shutil.copy(f"{LIBEXEC}/brig-init", helpers)
        shutil.copy(f"{LIBEXEC}/brig-spawner", helpers)
        self.let_go()
        self.HELPERS = helpers
        self.spawn()
        host = self.host()
        host.say("create", "a", "zygote=org")
        self.assertRegex(host.until("ended a", "refused a")[-1], "zygote: there are none on this host")
        self.create(host, "b")
        self.end(host, "b")

    def test_refused(self):
        host = self.host()
        host.say("create", "a", "zygote=" + "k" * 128)
        self.assertIn("a key has 1 to 127 bytes", host.expect("refused a "))
        self.w.mkdir("root")
        host.say("create", "a", "zygote=org", f"rootfs={self.w.path('root')}")
        self.assertRegex(host.until("ended a", "refused a")[-1], "a zygote is of the template host")


class Knobs(ZygoteTest):
    """With a spawner whose numbers can be made small."""

    SPAWNER = TEST_SPAWNER

    def test_a_zygote_is_replaced_and_serves_no_more_than_its_number(self):
        self.respawn(BRIG_TEST_ZYGOTE_CHILDREN="10")
        host = self.host()
        served = {}
        for i in range(25):
            self.child(host, f"k{i}")
            for pid in self.zygotes():
                served.setdefault(pid, i)
            self.end(host, f"k{i}")
        self.assertGreaterEqual(len(served), 3)
        wait_until("the old ones have ended", lambda: len(self.zygotes()) <= 2)

    def test_whoever_was_asked_longest_ago_makes_room(self):
        self.respawn(BRIG_TEST_ZYGOTES="2")
        host = self.host()
        for key in "abc":
            self.child(host, key, zygote=f"org-{key}")
            if key == "a":
                first = self.zygotes()
        wait_until("two are left", lambda: len(self.zygotes()) == 2)
        self.assertFalse(set(first) & set(self.zygotes()))
        for key in "abc":
            self.assertGreaterEqual(self.ask(host, key, fresh(), "fresh")[0], 0)
            self.end(host, key)

    def test_a_layer_that_is_off_is_found_in_the_very_process(self):
        self.respawn(BRIG_TEST_OFF="seccomp")
        host = self.host()
        host.say("create", "a", "zygote=org", "statement=1")
        self.assertIn(" seccomp=0:", host.until("up a ")[-2])
        host.expect("hello a")
        host.say("create", "b", "zygote=org", "require=all")
        self.assertRegex(host.until("ended b ")[-1], "ended b .*required layer seccomp is not on")
        self.end(host, "a")


@needs_root
class OneId(Kinds, ZygoteTest):
    REQUIRE = ()

    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID, delegated=True)


@needs_root
class Bare(Kinds, ZygoteTest):
    """No cgroup of its own either: limits are rlimits."""

    REQUIRE = ()

    @classmethod
    def make_world(cls):
        return World(uid=PLAIN_ID, gid=PLAIN_ID)


@needs_root
class Subids(Kinds, ZygoteTest):
    REQUIRE = ()

    @classmethod
    def setUpClass(cls):
        holder = SubidUser()
        cls.user = holder.__enter__()
        cls.addClassCleanup(holder.__exit__, None, None, None)
        super().setUpClass()

    @classmethod
    def make_world(cls):
        return World(uid=cls.user.pw_uid, gid=cls.user.pw_gid, delegated=True)


