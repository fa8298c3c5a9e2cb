# SPDX-License-Identifier: Apache-2.0
"""Single-use interpreters (src/sandbox/child/child.h): parked, claimed once, gone; on a real spawner with every layer
on.

drivers/child_host.c is brigd without its API. The "runtime" is a few lines of Python: READY, one request, one answer.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from helpers import BRIG, wait_until
from jailkit import BUILD, PREFIX, JailTest, needs_root
from test_jail_service import Host

HOST = next((p for p in (f"{PREFIX}/tests/e2e/child_host", f"{BUILD}/tests/e2e/child_host") if os.path.exists(p)),
            "child_host")
LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or f"{os.path.dirname(os.path.realpath(BRIG))}"
RUNTIME = """
import os, struct, sys, json, time
def frame(b):
    b = struct.pack("<I", len(b)) + b
    while b: b = b[os.write(3, b):]
def take(n):
    b = b""
    while len(b) < n:
        d = os.read(3, n - len(b))
        if not d: sys.exit(0)
        b += d
    return b
frame(b'{"ready": 1}')
q = json.loads(take(struct.unpack("<I", take(4))[0]))
r = "done"
exec(q["py"])
sys.stdout.flush()
frame(json.dumps(r).encode())
time.sleep(1000)
"""
PYTHON = ["/usr/bin/python3", "-I", "-S", "-c", f"exec({RUNTIME!r})"]


class ChildHost(Host):
    def __init__(self, world, directory):
        cgroups = world.cgroups.for_a_caller()
        self.process = subprocess.Popen([HOST, directory], preexec_fn=lambda: world.become_caller(cgroups),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**world.env, "BRIG_LIBEXEC_DIR": LIBEXEC, "BRIG_BIND_ROOTS": directory},
                                        cwd="/")
        self.pending = b""


def parts(line):
    """done KEY name=value ... as a dictionary; texts as they were."""
    found = dict(re.findall(r" (\w+)=(\S*)", line))
    return {k: re.sub(r"\\x(..)", lambda m: chr(int(m[1], 16)), v) for k, v in found.items()}


@needs_root
class ChildTest(JailTest):
    LIMIT_SECONDS = 120

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="brig-child-", dir="/tmp")
        os.chmod(self.directory, 0o777)
        self.host = ChildHost(self.w, self.directory)
        self.host.expect("ready")

    def tearDown(self):
        self.host.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        super().tearDown()

    def park(self, key, *words, argv=PYTHON):
        self.host.say("create", key, *words, "--", *argv)
        return parts(self.host.expect(f"parked {key} "))

    def claim(self, key, code, *words):
        self.host.say("claim", key, *words, "--", json.dumps({"py": code}))

    def done(self, key):
        return parts(self.host.until(f"done {key} ", f"refused {key} ")[-1])

    def run_one(self, code, *words, park=()):
        self.park("r", *park)
        self.claim("r", code, *words)
        return self.done("r")

    def count(self):
        self.host.say("count", "x")
        return parts(self.host.expect("count x"))

    def test_a_run_and_nobody_sees_its_sandbox(self):
        parked = [self.park(k) for k in "abc"]  # max_sandboxes and create_queue are 1: they do not count there
        self.assertEqual(len({p["sandbox"] for p in parked}), 3)
        count = self.count()
        self.assertEqual((count["children"], count["sandboxes"], count["listed"], count["created"], count["events"]),
                         ("3", "0", "0", "0", "0"))
        self.claim("a", "print('out'); print('err', file=sys.stderr); r = [1, 'two']")
        done = self.done("a")
        self.assertEqual((done["cause"], done["code"], done["answer"], done["out"], done["err"]),
                         ("exited", "0", '[1, "two"]', "out\n", "err\n"))
        self.assertEqual((done["started"], done["complete"], done["large"], done["broken"]), ("1", "1", "0", "0"))
        self.assertTrue(0 < int(done["peak"]) < 1 << 30 and int(done["cpu"]) < 10000 and int(done["pids"]) >= 2, done)
        # What it wrote just before it answered is there, however much; the answer too.
        self.claim("b", "sys.stdout.write('x' * 3000000); r = 'y' * 3000000", "output=5000000")
        done = self.done("b")
        self.assertEqual((done["outlen"], done["answerlen"], done["cut"]), ("3000000", "3000002", "0,0"))
        self.host.say("end", "c")
        wait_until("the sandboxes to go", lambda: self.count()["children"] == "0")

    def test_how_runs_end(self):
        done = self.run_one("print('part', flush=True); os._exit(3)")
        self.assertEqual((done["cause"], done["code"], done["out"], "answer" in done), ("exited", "3", "part\n", False))
        done = self.run_one("os.kill(os.getpid(), 11)")
        self.assertEqual((done["cause"], done["signal"]), ("signalled", "11"))
        done = self.run_one("print('part', flush=True); time.sleep(1000)", "timeout=300")
        self.assertEqual((done["cause"], done["out"], done["started"]), ("timeout", "part\n", "1"))
        # A tree that ignores SIGTERM and leaves its session goes too; what it wrote stays.
        done = self.run_one("import signal; signal.signal(15, 1); print('in', flush=True); os.fork() or os.setsid(); "
                            "os.execv('/bin/sh', ['sh', '-c', 'sleep 1000; :'])", "timeout=300")
        self.assertEqual((done["cause"], done["out"]), ("timeout", "in\n"))
        wait_until("the sandboxes to go", lambda: self.count()["children"] == "0")
        self.assertEqual(self.w.processes("sh", "sleep"), [])
        self.park("c")
        self.claim("c", "print('in', flush=True); time.sleep(1000)", "stream")
        self.host.expect("stream c 1")
        self.host.say("cancel", "c")
        done = self.done("c")
        self.assertEqual((done["cause"], done["out"], done["detail"]), ("cancelled", "in\n", "by request"))
        # The answer came first: what happens afterwards is nobody's.
        done = self.run_one("sys.stdout.flush(); frame(b'7'); os._exit(9)")
        self.assertEqual((done["cause"], done["code"], done["answer"]), ("exited", "0", "7"))

    def test_output_and_answer_have_limits(self):
        done = self.run_one("print('x' * 100000)", "output=1000")
        self.assertEqual((done["cause"], done["outlen"], done["cut"], done["answer"]),
                         ("exited", "1000", "1,0", '"done"'))
        done = self.run_one("print('x' * 100000, flush=True); time.sleep(1000)", "output=1000", "kill")
        self.assertEqual((done["cause"], done["outlen"]), ("output-limit", "1000"))
        done = self.run_one("r = 'x' * 2000", "answer=1000")
        self.assertEqual((done["large"], done["broken"], "answer" in done), ("1", "0", False))
        done = self.run_one(
            "os.write(3, struct.pack('<I', 2) + b'77' + struct.pack('<I', 2) + b'88'); time.sleep(1000)")
        self.assertEqual((done["large"], done["broken"], "answer" in done), ("0", "1", False))
        done = self.run_one("os.write(3, struct.pack('<I', 100) + b'77'); os._exit(0)")
        self.assertEqual((done["cause"], done["broken"], "answer" in done), ("exited", "1", False))
        done = self.run_one("os.write(3, b'\\xff\\xff\\xff\\xff'); time.sleep(1000)")
        self.assertEqual((done["large"], "answer" in done), ("1", False))

    def test_limits_of_the_claim(self):
        done = self.run_one("b = bytearray(200 << 20); r = len(b)")
        self.assertEqual((done["answer"], done["memory"]), (str(200 << 20), str(512 << 20)))
        done = self.run_one("b = bytearray(200 << 20); r = len(b)", f"memory={64 << 20}")
        self.assertEqual((done["cause"], done["memory"], done["hit"]), ("oom", str(64 << 20), "1"))
        # More than it was made with, too.
        done = self.run_one("b = bytearray(200 << 20); r = len(b)", f"memory={400 << 20}",
                            park=(f"memory={100 << 20}",))
        self.assertEqual((done["answer"], done["memory"]), (str(200 << 20), str(400 << 20)))
        done = self.run_one("pids = [os.fork() for _ in range(1)]; time.sleep(0) if 0 in pids else None\n"
                            "for _ in range(50):\n  if os.fork() == 0: time.sleep(1000)", "pids=10")
        self.assertEqual((done["cause"], done["code"]), ("pids-limit", "1"))
        fork = "n = 0\nfor _ in range(30):\n  if os.fork() == 0: time.sleep(1000)\n  n += 1\nr = n"
        done = self.run_one(fork, "pids=50", park=("pids=10",))
        self.assertEqual(done["answer"], "30")
        # What cannot be is refused, and nothing was sent.
        for words, text in (((f"memory={1 << 20}",), "memory"), (("disk=123456789",), "disk"),
                            (("pids=99999999",), "pids")):
            self.park("x")
            self.claim("x", "1", *words)
            self.assertIn(text, self.host.until("refused x ")[-1])
        self.park("y")
        self.claim("y", "1", f"memory={4 << 20}")
        done = self.done("y")
        self.assertEqual((done["cause"], done["started"]), ("host-error", "0"))
        self.assertIn("in use", done["detail"])

    def test_lost_ones(self):
        for argv, text in ((["/usr/bin/nothing"], "No such file"), (["/bin/true"], "ended by itself"),
                           (["/bin/sh", "-c", "printf '\\002\\0\\0\\0{}' >&3; sleep 1000"], "not READY"),
                           (["/bin/sh", "-c", "printf '\\377\\377\\377\\377' >&3; sleep 1000"], "not READY")):
            self.host.say("create", "a", "--", *argv)
            self.assertIn(text, self.host.expect("lost a "))
        self.host.say("create", "b", "--", *PYTHON[:-1],
                      f"exec({RUNTIME.split('q = ')[0]!r}); time.sleep(0.2); frame(b'7'); time.sleep(1000)")
        self.host.expect("parked b ")
        self.assertIn("without being asked", self.host.expect("lost b "))
        self.host.say("create", "c", "ro=/etc:/mnt", "--", *PYTHON)
        self.assertIn("/etc", self.host.expect("lost c "))
        wait_until("the sandboxes to go", lambda: self.count()["children"] == "0")

    def test_binds_files_and_others_sandboxes(self):
        os.makedirs(f"{self.directory}/set")
        with open(f"{self.directory}/set/there.py", "w") as f:
            f.write("value = 42\n")
        self.park("a", f"ro={self.directory}/set:/mnt")
        self.claim("a", "sys.path.insert(0, '/mnt'); import there; open('/workspace/file', 'w').write('x'); r = "
                   "there.value\ntry: open('/mnt/new', 'w')\nexcept OSError as e: r = [r, e.errno]", "keep")
        self.assertEqual(self.done("a")["answer"], "[42, 30]")
        self.assertEqual(self.count()["children"], "1")
        self.host.say("release", "a")
        wait_until("the sandboxes to go", lambda: self.count()["children"] == "0")
        # A process in a sandbox that stays.
        self.park("host")
        for i in range(2):
            self.host.say("inside", f"i{i}", "host", "--",
                          json.dumps({"py": "p = '/workspace/n'; n = int(open(p).read()) if os.path.exists(p) else 0; "
                                      "open(p, 'w').write(str(n + 1)); r = n; print(n)"}), "--", *PYTHON)
            done = self.done(f"i{i}")
            self.assertEqual((done["answer"], done["out"], done["cause"]), (str(i), f"{i}\n", "exited"))
            self.assertTrue(0 < int(done["peak"]) < 1 << 30, done)
        self.host.say("inside", "t", "host", "timeout=1500", "--", json.dumps({"py": "os.fork(); time.sleep(1000)"}),
                      "--", *PYTHON)
        self.assertEqual(self.done("t")["cause"], "timeout")
        self.host.say("inside", "e", "host", "--", json.dumps({"py": "os._exit(4)"}), "--", *PYTHON)
        self.assertEqual(self.done("e")["code"], "4")
        self.claim("host", "r = [p for p in os.listdir('/proc') if p.isdigit()]")
        self.assertEqual(len(json.loads(self.done("host")["answer"])), 1)  # itself: brig-init is not for it to see

    def test_children_of_a_zygote(self):
        def ask(key, body, *words):
            source = "import os, time\ndef tool():\n" + "\n".join(f"    {line}" for line in body.split("\n"))
            request = {"v": 1, "key": "ab" * 32, "kind": "tool", "language": "python", "name": "tool", "source": source,
                       "args": {}, "schema": None, "env": {},
                       "cwd": "/workspace", "agent_id": None, "result_max": 60000, "site": None}
            self.host.say("claim", key, *words, "--", json.dumps(request))
            return self.done(key)

        parked = [self.park(k, "zygote=one") for k in ("a", "b", "c", "d", "e")]
        if parked[0]["zygote"] == "0":
            self.skipTest("no zygotes here")
        self.assertEqual(len({p["sandbox"] for p in parked}), 5)
        done = ask("a", "print('out')\nreturn [1, os.getpid()]")
        self.assertEqual((done["cause"], done["out"], done["complete"],
                          json.loads(done["answer"].split("\n", 1)[1])["result"]),
                         ("exited", "out\n", "1", [1, 2]))
        self.assertTrue(0 < int(done["peak"]) < 1 << 30 and int(done["pids"]) >= 2, done)
        done = ask("b", "print('part', flush=True)\nos._exit(3)")
        self.assertEqual((done["cause"], done["code"], done["out"], "answer" in done), ("exited", "3", "part\n", False))
        done = ask("c", "return len(bytearray(200 << 20))", f"memory={64 << 20}")
        self.assertEqual((done["cause"], done["memory"]), ("oom", str(64 << 20)))
        # It has no cgroup of its own: what it left behind goes all the same.
        done = ask("d", "print('in', flush=True)\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n"
                   "    time.sleep(1000)\nos._exit(5)")
        self.assertEqual((done["cause"], done["code"], done["out"]), ("exited", "5", "in\n"))
        done = ask("e", "print('in', flush=True)\nos.fork()\ntime.sleep(1000)", "timeout=300")
        self.assertEqual((done["cause"], done["out"]), ("timeout", "in\n"))
        wait_until("the sandboxes to go", lambda: self.count()["children"] == "0")

    def test_the_sandbox_goes(self):
        parked = self.park("a")
        self.claim("a", "print('in', flush=True); time.sleep(1000)", "stream")
        self.host.expect("stream a 1")
        (pid,) = self.w.processes("brig-init")
        os.kill(pid, 9)
        done = self.done("a")
        self.assertEqual((done["cause"], done["out"]), ("sandbox-gone", "in\n"))
        self.assertTrue(parked["sandbox"])
        # Parked and running ones end with the service, whatever `on_shutdown` keeps.
        self.park("b")
        self.park("c")
        self.claim("c", "time.sleep(1000)")
        self.host.process.stdin.close()
        self.assertIn("cancelled", self.host.until("done c ")[-1])
        self.host.until("shut")


if __name__ == "__main__":
    unittest.main()
