# SPDX-License-Identifier: Apache-2.0
"""Attacks through the tool API: the result channel (C), secrets (I02, I13), what one run leaves for the next (I10), the
interpreter's surroundings (I16), output without end (R12), other organisations (A02), packages that are installed for a
run (D). C01, C04, C06, C09, C10 and C12 are in test_tools_bad.py, by what a tool does; D08 (redirects) is the gate's:
test_gate_attacks.py."""

import base64
import contextlib
import glob
import hashlib
import io
import json
import os
import re
import shutil
import signal
import tarfile
import tempfile
import threading
import unittest
import urllib.parse
import zipfile

from badkit import ANY, BadTest, source
from helpers import wait_until
from wheelkit import HAS_NPM, HAS_PIP, wheel

SECRET = "correct-horse/battery+staple=="
# What of the form canary-<32 hexadecimal digits> is anywhere in this process: the digests of what was found. The
# pattern itself does not match.
SCAN = """import hashlib, re
found = set()
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:
    for line in maps:
        span, perms = line.split()[:2]
        if 'r' not in perms or '[v' in line:
            continue
        start, end = (int(x, 16) for x in span.split('-'))
        try:
            mem.seek(start)
            data = mem.read(end - start)
        except (OSError, OverflowError, ValueError):
            continue
        found.update(hashlib.sha256(m).hexdigest() for m in re.findall(rb'canary-[0-9a-f]{32}', data))
return sorted(found)"""


def canary():
    return "canary-" + os.urandom(16).hex()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return dict(line.rstrip("\n").split(":", 1) for line in f if ":" in line)


def processes():
    """pid -> (parent, name, argv bytes, environment bytes) of everything on this host."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            about = status_of(pid)
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                argv = f.read()
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read()
        except OSError:
            continue  # ended meanwhile
        found[int(pid)] = (int(about["PPid"]), about["Name"].strip(), argv, env)
    return found


class AttackTest(BadTest):
    def family(self):
        """Those of this daemon."""
        every, ours = processes(), {self.d.process.pid}
        while True:
            more = {pid for pid, (parent, *_) in every.items() if parent in ours} - ours
            if not more:
                return {pid: every[pid] for pid in ours if pid in every}
            ours |= more

    def runs_of(self, *tools):
        """Their events in the log."""
        return [e for e in self.audit() if e["action"] == "tool.run" and e["object"] in tools]

    def sandbox(self):
        made = self.ask("POST", "/sandboxes", {}, status=201)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made}")
        return made

    def org(self, name):
        made = self.ask("POST", "/orgs", {"name": name}, status=201)["id"]
        return made, self.d.key(org=made)


class Runs(AttackTest):
    CONFIG = "[tools]\nmax_runs = 200\n[audit]\npayloads = true\n"

    # ---- the channel ------------------------------------------------------------------------------------------------

    def test_C03_C07_C13_the_channel_and_the_boundary(self):
        probe = """import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def errno(call):
    ctypes.set_errno(0)
    return os.strerror(ctypes.get_errno()) if call() < 0 else 'done'
class Vector(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
room = ctypes.create_string_buffer(64)
here, there = Vector(ctypes.addressof(room), 8), Vector(0x1000, 8)
def opened(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(10).hex()
    except OSError as e:
        return e.strerror
return {'pids': sorted(p for p in os.listdir('/proc') if p.isdigit()), 'me': [os.getpid(), os.getppid()], \
'unix': opened('/proc/net/unix'),
        'of 1': sorted({opened('/proc/1/' + n) for n in ('environ', 'cmdline', 'mem', 'maps', 'fd', 'root', 'cwd', \
'exe', 'stat', 'task')}),
        'attach': errno(lambda: libc.ptrace(16, 1, 0, 0)), 'read': errno(lambda: libc.process_vm_readv(1, \
ctypes.byref(here), 1, ctypes.byref(there), 1, 0)),
        'signal': errno(lambda: libc.kill(1, 15)), 'limits': errno(lambda: libc.prlimit(1, 7, room, None)), \
'abstract': opened('/run/brig'),
        'fds': sorted(int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f))}"""
        interleave = """import os
made = []
for i in range(100):
    pid = os.fork()
    if pid == 0:
        for _ in range(20):
            os.write(1, b'%02d' % i * 20 + b'\\n')
        os._exit(i)
    made.append(pid)
return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in made]"""
        ran = self.cases({"looks": (probe, {}), "interleaves": (interleave, {"limits": {"pids": 200}})})
        seen = ran["looks"]["result"]
        self.assertEqual(seen["fds"][:3] + seen["fds"][4:], [0, 1, 2], seen)  # and the channel
        self.assertEqual({k: v for k, v in seen.items() if k != "fds"},
                         {"pids": ["2"], "me": [2, 1], "unix": "No such file or directory",
                          "of 1": ["No such file or directory"], "attach": "Operation not permitted",
                          "read": "Operation not permitted", "signal": "Operation not permitted",
                          "limits": "Operation not permitted", "abstract": "No such file or directory"})
        self.assertEqual(ran["interleaves"]["result"], list(range(100)))
        lines = ran["interleaves"]["stdout"].splitlines()
        self.assertEqual(sorted(lines), sorted(f"{i:02}" * 20 for i in range(100) for _ in range(20)))
        # C13: an end at the very moment of the clock is one of the two, and only one.
        self.put("race", "import time\ntime.sleep(s)\nreturn 'done'", "s")
        answers = self.at_once(
            {i: lambda i=i: self.go("race", args={"s": 0.18 + i / 500}, timeout=0.2).json for i in range(20)}, 10)
        wait_until("all are in the log", lambda: len(self.runs_of("race")) >= 20)
        events = self.runs_of("race")
        for ran in answers.values():
            cause, code = ran["receipt"]["outcome"]["cause"], ran["receipt"]["outcome"]["exit_code"]
            # One that was told to go and had just finished has an exit code of its own; it is late all the same.
            self.assertIn((ran["status"], ran["result"], cause, code),
                          (("success", "done", "exited", 0), ("error", None, "timeout", None),
                           ("error", None, "timeout", 0)), ran)
            wait_until("its row is there", lambda ran=ran: self.d.ask("GET", f"/v1/runs/{ran['id']}").status == 200)
            self.assertEqual(self.ask("GET", f"/runs/{ran['id']}")["outcome"], ran["receipt"]["outcome"])
            self.assertEqual([e["outcome"] for e in events if e["detail"].startswith(ran["id"])], [cause])

    # ---- secrets ----------------------------------------------------------------------------------------------------

    def test_I02_I13_secrets_stay_inside(self):
        marks = {n: canary() for n in ("runtime", "sandbox", "agent", "argument")}
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        variable = self.ask("POST", f"/sandbox-config/{config}/environment-variable",
                            {"key": "OF_SANDBOX", "value": marks["sandbox"]})["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandbox-config/environment-variable/{variable}")
        agent = self.agent(secrets={"OF_AGENT": marks["agent"]})["id"]
        body = ("import os, time\nwhole = [os.environ[n] for n in ('OF_SANDBOX', 'OF_AGENT', 'OF_CALL')]\n"
                "print(whole, flush=True)\ntime.sleep(0.5)\n")
        self.put("fails", body + "raise type(whole[0], (KeyError,), {})(whole)", "a")
        self.put("works", body + "return {whole[0]: whole}", "a")
        call = {"agent_id": agent, "env_vars": {"OF_CALL": marks["runtime"]}}
        words = 'echo "$OF_SANDBOX $OF_AGENT $OF_CALL" >&2; echo "$OF_CALL"; sleep 0.5; exit 3'
        runs = {"works": lambda: self.go("works", args={"a": marks["argument"]}, **call),
                "fails": lambda: self.go("fails", args={"a": marks["argument"]}, **call),
                "strict": lambda: self.go("works", args={"a": marks["argument"]}, strict=True, **call),
                "bash": lambda: self.d.ask("POST", "/v1/run", {"language": "bash", "code": words, **call}),
                "command": lambda: self.d.ask("POST", "/v1/run", {"command": words, **call}),
                "node": lambda: self.d.ask(
                    "POST", "/v1/run", {"language": "javascript",
                                        "code": "console.log(process.env.OF_CALL); setTimeout(() => 0, 500)", **call})}
        over, answers, seen = threading.Event(), {}, set()

        def go():
            answers.update(self.at_once(runs))
            over.set()
        thread = threading.Thread(target=go)
        thread.start()
        needles = [m.encode()[7:] for m in marks.values()]
        while not over.is_set():
            for pid, (_, name, argv, _) in processes().items():
                self.assertFalse([n for n in needles if n in argv], f"{name} {pid} has a secret on its command line")
            for pid, (parent, name, _, env) in self.family().items():
                seen.add(name)
                if name.startswith("brig"):
                    self.assertFalse([n for n in needles if n in env], f"{name} {pid} has a secret in its environment")
        thread.join()
        self.assertTrue({"brigd", "brig-spawner", "brig-init", "python3"} <= seen, seen)
        for name, answer in answers.items():
            self.assertEqual(answer.status, 200, answer)
            self.assertGreater(answer.json["receipt"]["scrubbed"], 0, name)
            self.assertFalse([m for m in marks if marks[m].encode() in answer.body and m != "argument"], name)
        self.assertEqual(answers["works"].json["result"], {"[secret]": ["[secret]"] * 3})
        self.assertEqual(answers["fails"].json["receipt"]["error"]["type"], "[secret]")
        self.assertEqual(answers["bash"].json["receipt"]["outcome"]["exit_code"], 3)
        for name in answers:
            wait_until("the rows are there",
                       lambda name=name: self.d.ask("GET", f"/v1/runs/{answers[name].json['id']}").status == 200)
        # an argument is the caller's own business, and payloads are on
        kept = [m for n, m in marks.items() if n != "argument"]
        forms = [f for m in kept
                 for f in (m.encode()[7:], base64.b64encode(m.encode())[:24], m.encode().hex().encode())]
        looked = 0
        for path in glob.glob(f"{self.d.dir}/**", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    data = f.read()
                looked += len(data)
                self.assertFalse([x for x in forms if x in data], path)
        self.assertGreater(looked, 10000)
        wait_until("all are in the log", lambda: len(self.runs_of("works", "fails")) >= 3)
        audit = self.runs_of("works", "fails")
        self.assertEqual(len(audit), 3)
        self.assertTrue(all("result=" in e["detail"] and not any(m in json.dumps(e) for m in kept) for e in audit),
                        audit)

    def test_scrubbing(self):
        env = {"env_vars": {"TOKEN": SECRET}}
        forms = """import base64, json, os, sys, urllib.parse
t = os.environ['TOKEN']
forms = [t, base64.b64encode(t.encode()).decode(), base64.urlsafe_b64encode(b'x' + t.encode()).decode(), \
urllib.parse.quote(t, safe=''), t.encode().hex(), json.dumps(t), repr([t])]
"""
        cases = {
            "everywhere": (forms + "print('\\n'.join(forms))\nprint('\\n'.join(forms), file=sys.stderr)\n"
                           "return forms + [{t: forms}]", env),
            "in_pieces": ("import os, time\nt = os.environ['TOKEN'].encode()\nfor fd in (1, 2):\n    for i in "
                          "range(len(t)):\n        os.write(fd, t[i:i + 1])\n        time.sleep(0.001)\nreturn 1", env),
            "in_a_traceback": (forms + "raise ValueError(forms)", env),
            "as_a_class": ("import os\nraise type(os.environ['TOKEN'], (Exception,), {})('x')", env),
            "as_a_key": ("import os\nreturn {os.environ['TOKEN']: {os.environ['TOKEN']: 1}}", env),
            "as_a_number": ("import os\nreturn [1, int(os.environ['PIN'])]", {"env_vars": {"PIN": "8675309123"}}),
            "cut_off": ("import os\nos.write(1, b'.' * ((1 << 16) - 10) + os.environ['TOKEN'].encode())\nreturn 1",
                        {**env, "limits": {"output": "64k"}}),
        }
        ran = self.cases(cases)
        for name, answer in ran.items():
            text = json.dumps(answer)
            for form in (SECRET, base64.b64encode(SECRET.encode()).decode()[:-4], urllib.parse.quote(SECRET, safe=""),
                         SECRET.encode().hex(), "8675309123", "correct-h"):
                self.assertNotIn(form, text, name)
        self.assertEqual(ran["in_pieces"]["stdout"], "[secret]")
        self.assertEqual(ran["in_pieces"]["stderr"], "[secret]")
        self.assertEqual(ran["as_a_class"]["error"], "Error executing function as_a_class: [secret]: x")
        self.assertEqual(ran["as_a_key"]["result"], {"[secret]": {"[secret]": 1}})
        self.assertEqual(ran["as_a_number"]["result"], "[1,[secret]]")
        self.assertEqual(ran["cut_off"]["stdout"], "." * ((1 << 16) - 10))
        self.assertGreaterEqual(ran["everywhere"]["receipt"]["scrubbed"], 28)
        # What goes into an agent's memory is stored: without it, too; what was there stays as it was.
        agent = self.agent(state={"memory": {"blocks": [{"label": "human", "value": "", "limit": 100},
                                                        {"label": SECRET, "value": f"old {SECRET}", "limit": 100}]}})
        self.put("remembers",
                 "import os\nagent_state.memory.update_block_value('human', 'it is ' + os.environ['TOKEN'])\nreturn 1",
                 "agent_state")
        ran = self.go("remembers", agent_id=agent["id"], **env).json
        self.assertEqual(ran["status"], "success", ran)
        self.assertEqual([b["value"] for b in self.ask("GET", f"/agents/{agent['id']}")["state"]["memory"]["blocks"]],
                         ["it is [secret]", f"old {SECRET}"])
        self.assertEqual(ran["receipt"]["agent_state"]["blocks"]["human"]["after"], "it is [secret]")
        # A stream, as it comes.
        self.put("streams", "import os, time\nt = os.environ['TOKEN'].encode()\nos.write(1, b'a ' + t[:9])\n"
                 "time.sleep(0.1)\nos.write(1, t[9:] + b' z\\n')\nreturn 1")
        text = self.go("streams", stream=True, **env).body.decode()
        said = "".join(json.loads(line[6:])["data"]
                       for line in re.findall("event: stdout\n(?:id: .*\n)?(data: .*)", text))
        self.assertEqual(said, "a [secret] z\n")
        self.assertNotIn("correct-h", text)

    # ---- one run and the next ---------------------------------------------------------------------------------------

    def test_I10_nothing_of_one_in_another(self):
        _, key = self.org("neighbour")
        first, second, third, strict = (canary() for _ in range(4))
        plant = """import builtins, os, sys, threading, types
mark = os.environ['MARK']
builtins.planted = mark
sys.modules['planted'] = types.ModuleType(mark)
sys.path.append(mark)
os.environ['PLANTED'] = mark
for p in ('/workspace', '/tmp', os.path.expanduser('~'), '/dev/shm'):
    try:
        open(os.path.join(p, 'planted.py'), 'w').write(mark)
    except OSError:
        pass
os.dup2(1, 77)
sys.setrecursionlimit(777)
import random, uuid, tempfile, secrets
return [random.random(), str(uuid.uuid4()), str(uuid.uuid1()), os.urandom(8).hex(), secrets.token_hex(8), \
next(tempfile._get_candidate_names()), hash('a string'), sys.getrecursionlimit()]"""
        look = ("import builtins, os, sys\nleft = [hasattr(builtins, 'planted'), 'planted' in sys.modules, 'PLANTED' "
                "in os.environ, sys.getrecursionlimit() == 777,\n"
                "        os.path.exists('/proc/self/fd/77'), any(os.path.exists(os.path.join(p, 'planted.py')) for p "
                "in ('/workspace', '/tmp', os.path.expanduser('~'), '/dev/shm')),\n"
                "        any('canary' in p for p in sys.path), len(os.listdir('/proc/self/fd')) > 5]\n")
        self.put("plants", plant)
        self.put("plants", plant, key=key)
        self.put("scans", SCAN.replace("return sorted", look + "return left, hash('a string'), sorted"))
        self.put("scans", SCAN.replace("return sorted", look + "return left, hash('a string'), sorted"), key=key)
        runs = [self.go("plants", env_vars={"MARK": first}).json
                for _ in range(2)] + [self.go("plants", strict=True, env_vars={"MARK": strict}).json]
        for i in range(6):  # of what makes a value unguessable nothing is shared
            self.assertEqual(len({r["result"][i] for r in runs}), 3, i)
        self.assertEqual(runs[0]["result"][6], runs[1]["result"][6])  # the hash seed is, and the receipt says so
        self.assertEqual([r["receipt"]["shared"] for r in runs], [["hash_seed", "aslr", "stack_canary"]] * 2 + [[]])
        self.assertNotEqual(runs[0]["result"][6], runs[2]["result"][6])
        same, other = self.go("scans", env_vars={"MARK": second}).json, self.go("scans", key=key,
                                                                                env_vars={"MARK": third}).json
        for ran, mine in ((same, second), (other, third)):
            left, _, found = ran["result"]
            # it finds its own: the scan works
            self.assertEqual((left, found), ([False] * len(left), [digest(mine)]), ran)
        self.assertEqual(same["result"][1], runs[0]["result"][6])
        self.assertNotEqual(other["result"][1], runs[0]["result"][6])  # another zygote
        zygotes = [pid for pid, (_, name, *_) in self.family().items() if name == "brig-zygote"]
        self.assertGreaterEqual(len(zygotes), 2)
        for pid in zygotes:
            with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps, open(f"/proc/{pid}/mem", "rb",
                                                                                             0) as mem:
                for line in maps:
                    start, end = (int(x, 16) for x in line.split()[0].split("-"))
                    if "r" in line.split()[1] and "[v" not in line:
                        mem.seek(start)
                        self.assertIsNone(re.search(rb"canary-[0-9a-f]{32}", mem.read(end - start)),
                                          "a zygote knows a secret")

    def test_two_at_once_and_what_they_leave(self):
        """Side by side they see neither files nor processes of each other, and nothing of one outlives it."""
        name = f"31337.{os.getpid()}"
        self.put("neighbour", f"""import os, subprocess, time
open('/workspace/' + who, 'w').close()
open('/tmp/' + who, 'w').close()
subprocess.Popen(['sleep', '{name}'], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 1024)
        os.execv('/bin/sleep', ['sleep', '{name}'])
    os._exit(0)
time.sleep(0.3)
return sorted(os.listdir('/workspace')), sorted(os.listdir('/tmp')), sorted(int(p) for p in os.listdir('/proc') \
if p.isdigit())[-1] < 8""",
                 "who")
        ran = self.at_once({who: lambda who=who: self.go("neighbour", args={"who": who}).json for who in "abcd"})
        for who, answer in ran.items():
            self.returned(answer, [[who], [who], True])
        # In a sandbox that lives on, too: files stay, processes do not.
        sandbox = self.sandbox()
        self.returned(self.go("neighbour", args={"who": "e"}, sandbox_id=sandbox).json, [["e"], ["e"], True])
        wait_until("its daemons are gone",
                   lambda: not [p for p, (_, _, argv, _) in processes().items() if name.encode() in argv])

    def test_the_next_interpreter_is_as_before(self):
        plant = """import os, site, sys
refused = {}
for where in (*sys.path, '/usr/lib/python3/dist-packages', '/etc/python3', '/usr/bin', '/etc', '/', '/opt', \
os.path.expanduser('~/.local/lib/python3.11/site-packages'), '/workspace', '/tmp', '/dev/shm'):
    for name in ('sitecustomize.py', 'usercustomize.py', 'evil.pth', 'json.py', 'random.py'):
        try:
            os.makedirs(where, exist_ok=True)
            with open(os.path.join(where, name), 'w') as f:
                f.write("import os; os.environ['EVIL'] = '1'\\nEVIL = 1\\n")
            refused.pop(where, None)
        except OSError as e:
            refused[where] = e.strerror
return sorted(w for w in refused if w.startswith(('/usr', '/etc', '/opt')) or w == '/'), \
sorted(set(refused.values()))"""
        env = {"PYTHONPATH": "/workspace:/tmp", "PYTHONSTARTUP": "/workspace/json.py", "PYTHONHOME": "/workspace",
               "LD_PRELOAD": "/workspace/evil.so", "LD_LIBRARY_PATH": "/workspace",
               "PYTHONINSPECT": "1", "BASH_ENV": "/workspace/evil.sh", "NODE_OPTIONS": "--require /workspace/evil.js",
               "GIT_DIR": "/workspace"}
        ran = self.one("plants_files", plant, env_vars=env)
        self.assertEqual(ran["status"], "success", ran)
        self.assertTrue({"/usr/lib/python3.11" if os.path.exists("/usr/lib/python3.11") else "/usr/bin", "/etc", "/",
                         "/opt", "/usr/bin"} <= set(ran["result"][0]),
                        ran)
        look = ("import json, os, random, sys\n"
                "return [json.__file__.startswith('/usr/lib'), random.__file__.startswith('/usr/lib'), sorted(k for k "
                "in os.environ if k in WHAT), hasattr(json, 'EVIL'), os.listdir('/workspace')]")
        clean = look.replace("WHAT", repr([*env, "EVIL"]))
        for strict in (False, True):
            self.returned(self.one("looks_after", clean, strict=strict), [True, True, [], False, []])
        for language, code in (("bash",
                                "env | grep -c -E '^(LD_|PYTHON(PATH|HOME|START)|NODE_OPT|BASH_ENV|EVIL)' ; ls -A"),
                               ("javascript", "console.log(process.env.NODE_OPTIONS || 0)")):
            ran = self.ask("POST", "/run", {"language": language, "code": code})
            self.assertEqual(ran["stdout"], "0\n", ran)
        # I16: the service's own programs have none of it, whoever names it.
        for pid, (_, name, _, env_of) in self.family().items():
            if name.startswith("brig"):
                self.assertFalse([n for n in env
                                  if any(v.startswith(f"{n}=/workspace".encode()) for v in env_of.split(b"\0"))],
                                 (name, pid))

    # ---- the pool ---------------------------------------------------------------------------------------------------

    def parked(self):
        family = self.family()
        return [pid for pid, (parent, name, argv, _) in family.items() if name == "python3" and parent in family
                and family[parent][1] == "brig-init"]

    def test_parked_ones_that_die_or_stop(self):
        self.put("once", "return 'alive'")
        self.ask("POST", "/pools/prewarm", {"language": "python", "count": 2})
        for _ in range(3):
            wait_until("some are parked",
                       lambda: [p for p in self.ask("GET", "/pools")["pools"] if p.get("parked", 0) >= 2
                                and p.get("language") == "python"] and self.parked())
            for pid in self.parked():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            ran = self.go("once").json  # whether it was seen in time or not: one end, and no second run
            outcome = ran["receipt"]["outcome"]
            self.assertIn((ran["status"], ran["result"], outcome["cause"]),
                          (("success", "alive", "exited"), ("error", None, "signalled"),
                           ("error", None, "sandbox-gone")), ran)
        wait_until("it is well again", lambda: self.go("once").json["result"] == "alive")
        stopped = []

        def stop_all():  # one that has just answered is still listed while it ends
            for pid in self.parked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)
            return stopped

        wait_until("some are parked", lambda: len(self.parked()) >= 2 and stop_all())
        answers = self.at_once({i: lambda: self.go("once", timeout=0.5).json for i in range(len(stopped))})
        self.assertTrue(
            all((a["status"], a["receipt"]["outcome"]["cause"]) in (("success", "exited"), ("error", "timeout"))
                for a in answers.values()), answers)
        self.assertTrue(any(a["receipt"]["outcome"]["cause"] == "timeout" for a in answers.values()), answers)
        for pid in stopped:  # those that nobody has taken
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.returned(self.go("once").json, "alive")

    def test_limits_of_the_claim(self):
        forks = ("import os, time\nn = 0\ntry:\n    while n < 100:\n        if os.fork() == 0:\n"
                 "            time.sleep(60)\n        n += 1\nexcept OSError as e:\n    return [n < 20, e.strerror]\n"
                 "return n")
        eats = "b = bytearray(s << 20)\nfor i in range(0, len(b), 4096):\n    b[i] = 1\nreturn len(b)"
        self.put("forks", forks)
        self.put("eats", eats, "s")
        ran = self.at_once({"forks": lambda: self.go("forks", limits={"pids": 20}).json,
                            "forks more": lambda: self.go("forks", limits={"pids": 150}).json,
                            "eats": lambda: self.go("eats", args={"s": 100}, limits={"memory": "64m"}).json,
                            "eats more": lambda: self.go("eats", args={"s": 100}, limits={"memory": "256m"}).json})
        self.returned(ran["forks"], [True, "Resource temporarily unavailable"], hit=["pids"])
        self.returned(ran["forks more"], 100)
        self.ended(ran["eats"], "eats", "MemoryError: the program used more memory than its limit of 64 MiB", "oom",
                   None, 9, hit=["memory"])
        self.returned(ran["eats more"], 100 << 20)

    def test_R12_output_without_end(self):
        self.put("floods", "import os\nb = (b'x\\r\\x1b[2J' * 200000)[:1 << 20]\nfor _ in range(1024):\n"
                 "    os.write(1, b)\nreturn 'done'")
        brigd = self.d.children()["brigd"]
        self.go("floods", timeout=0.2)  # what it needs once it has
        before = int(status_of(brigd)["VmRSS"].split()[0])
        with open(f"/proc/{brigd}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
        ran = self.go("floods", timeout=100, limits={"output": "1m"}).json
        self.assertLess(int(status_of(brigd)["VmHWM"].split()[0]) - before, 48 << 10)  # KiB, of a gigabyte
        self.assertEqual((ran["status"], ran["result"], len(ran["stdout"])), ("success", "done", 1 << 20))
        self.assertEqual(ran["receipt"]["outcome"]["limits_hit"], ["output"])
        self.assertEqual(ran["receipt"]["truncated"], {"stdout": True, "stderr": False})

    # ---- other organisations ----------------------------------------------------------------------------------------

    def test_A02_another_organisation(self):
        _, mine = self.org("mine")
        theirs = self.d.key(org=self.org("theirs")[0], role="admin")  # all that another organisation's key can be
        tool = self.put("private", "import time\ntime.sleep(60)", key=mine)
        agent = self.ask("POST", "/agents/", {"name": "a", "secrets": {"S": "a secret of mine"}}, key=mine)["id"]
        config = self.ask("POST", "/sandbox-config/local/default", key=mine)["id"]
        variable = self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "K", "value": "v"},
                            key=mine)["id"]
        run = self.ask("POST", "/tools/private/run", {"background": True}, key=mine, status=202)["id"]
        sandbox = self.ask("POST", "/sandboxes", {}, key=mine, status=201)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sandbox}")
        self.addCleanup(self.d.ask, "DELETE", f"/v1/runs/{run}", key=mine)
        self.put("public", "return 1", key=theirs)
        asks = [("GET", f"/tools/{tool['id']}", None), ("PATCH", f"/tools/{tool['id']}", {"description": "x"}),
                ("DELETE", f"/tools/{tool['id']}", None),
                ("POST", f"/tools/{tool['id']}/run", {}), ("POST", "/tools/private/run", {}),
                ("GET", f"/agents/{agent}", None), ("PATCH", f"/agents/{agent}", {"name": "x"}),
                ("DELETE", f"/agents/{agent}", None), ("POST", f"/agents/{agent}/secrets/S/reveal", None),
                ("GET", f"/sandbox-config/{config}", None),
                ("PATCH", f"/sandbox-config/{config}", {"config": {}}), ("DELETE", f"/sandbox-config/{config}", None),
                ("GET", f"/sandbox-config/{config}/environment-variable", None),
                ("POST", f"/sandbox-config/{config}/environment-variable", {"key": "A", "value": "b"}),
                ("PATCH", f"/sandbox-config/environment-variable/{variable}", {"value": "x"}),
                ("DELETE", f"/sandbox-config/environment-variable/{variable}", None),
                ("POST", f"/sandbox-config/environment-variable/{variable}/reveal", None),
                ("GET", f"/runs/{run}", None), ("DELETE", f"/runs/{run}", None), ("GET", f"/runs/{run}/files", None),
                ("POST", f"/approvals/{run}/approve", None),
                ("POST", "/tools/public/run", {"agent_id": agent}),
                ("POST", "/tools/public/run", {"sandbox_id": sandbox}),
                ("POST", f"/agents/{agent}/tools/private/run", {"args": {}})]
        for method, path, body in asks:  # as if it was not there: Letta deletes tools with 400
            answer = self.d.ask(method, f"/v1{path}", body, key=theirs)
            self.assertEqual(answer.status, 400 if method == "DELETE" and path.startswith("/tools/") else 404,
                             (method, path, answer))
            self.assertNotIn(b"llowed", answer.body)
        for path, name in (("/tools/", "private"), ("/agents/", "agent-"), ("/runs", run), ("/pools", mine)):
            listed = self.d.ask("GET", f"/v1{path}", key=theirs)
            self.assertEqual(listed.status, 200, listed)
            self.assertNotIn(name.encode(), listed.body, path)
        self.assertEqual(self.ask("GET", f"/runs/{run}", key=mine)["status"], "running")
        self.assertEqual(self.ask("GET", f"/tools/{tool['id']}", key=mine)["name"], "private")


# What a package finds while it is built; it goes into the package.
BACKEND = '''
import os, socket, subprocess, zipfile
def build_wheel(where, config_settings=None, metadata_directory=None):
    seen = {"environment": sorted(k for k, v in os.environ.items() if "canary" in v or "SECRET" in k \
or k.startswith("PIP_INDEX") or k.startswith("BRIG_SECRETS"))}
    try:
        socket.create_connection(("192.0.2.1", 443), 1)
        seen["network"] = "connected"
    except OSError as e:
        seen["network"] = e.strerror
    written = []
    for path in ("/opt/brig-wheels", "/usr/lib/python3/dist-packages", "/etc", "/opt", "/workspace/../usr/bin"):
        try:
            with open(path + "/planted-by-a-package", "w") as f:
                written.append(path)
        except OSError:
            pass
    seen["written"] = written
    seen["pids"] = len([p for p in os.listdir("/proc") if p.isdigit()]) < 40
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 1024)
            os.execv("/bin/sleep", ["sleep", "SLEEP"])
        os._exit(0)
    info = "rude-1.0.dist-info/"
    files = {"rude.py": f"seen = {seen!r}\\n", "rude.pth": "import os; os.environ['OF_PTH'] = '1'\\n", \
"sitecustomize.py": "import os\\nos.environ['OF_SITE'] = '1'\\n",
             info + "METADATA": "Metadata-Version: 2.1\\nName: rude\\nVersion: 1.0\\n", \
info + "WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    with zipfile.ZipFile(where + "/rude-1.0-py3-none-any.whl", "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
        z.writestr(info + "RECORD", "".join(f"{n},,\\n" for n in [*files, info + "RECORD"]))
    return "rude-1.0-py3-none-any.whl"
'''
BOMB = '''
import os, sys, time
def build_wheel(*a, **k):
    n = 0
    while n < 5000:
        try:
            if os.fork() == 0:
                os.closerange(0, 1024)
                time.sleep(60)
                os._exit(0)
        except OSError as e:
            sys.exit(f"BOMB {n < 5000} {e.strerror}")
        n += 1
    sys.exit("BOMB went off")
'''


def sdist(where, name, backend, members=()):
    """A source distribution that another package of the directory builds; members: further ones, as they are."""
    with tarfile.open(f"{where}/{name}-1.0.tar.gz", "w:gz") as tar:
        for file, text in (("pyproject.toml",
                            f"[build-system]\nrequires = ['{backend}']\nbuild-backend = '{backend}'\n"),
                           ("PKG-INFO", f"Metadata-Version: 1.0\nName: {name}\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(f"{name}-1.0/{file}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        for entry, data in members:
            tar.addfile(entry, io.BytesIO(data))


def member(name, kind=tarfile.REGTYPE, link="", mode=0o644, data=b""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode, entry.size = kind, link, mode, len(data)
    return entry, data


@unittest.skipUnless(HAS_PIP, "no pip and venv for /usr/bin/python3")
class Packages(AttackTest):
    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        cls.wheels = tempfile.mkdtemp(prefix="brig-wheels-")
        os.chmod(cls.wheels, 0o755)
        cls.sleep = f"31338.{os.getpid()}"
        wheel(cls.wheels, "spy", "1.0", text=BACKEND.replace("SLEEP", cls.sleep))
        wheel(cls.wheels, "bomber", "1.0", text=BOMB)
        sdist(cls.wheels, "rude", "spy")
        sdist(cls.wheels, "bomb", "bomber")
        sdist(cls.wheels, "linked", "spy",
              [member("linked-1.0/out", tarfile.SYMTYPE, "/etc"), member("linked-1.0/out/through", data=b"x")])
        sdist(cls.wheels, "climber", "spy", [member("climber-1.0/../../../../../../opt/brig/climbed", data=b"x")])
        with zipfile.ZipFile(f"{cls.wheels}/slip-1.0-py3-none-any.whl", "w") as z:
            info = "slip-1.0.dist-info/"
            files = {"slip.py": "", "../../../../../../../../tmp/slipped": "x",
                     info + "METADATA": "Metadata-Version: 2.1\nName: slip\nVersion: 1.0\n",
                     info + "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
            for name, text in files.items():
                z.writestr(name, text)
            z.writestr(info + "RECORD", "".join(f"{n},,\n" for n in [*files, info + "RECORD"]))
        cls.npm = None
        if HAS_NPM:
            script = ("echo $(env | grep -c -e 'canary-[0-9a-f]' -e '^SECRET') $(touch /opt/brig-wheels/x /etc/x "
                      "2>/dev/null && echo written) $(node -p 'require(\"os\").cpus().length > 0') > found")
            with tarfile.open(f"{cls.wheels}/gamma-1.0.0.tgz", "w:gz") as tar:
                for entry in (member("package/package.json",
                                     data=json.dumps({"name": "gamma", "version": "1.0.0", "main": "index.js",
                                                      "scripts": {"postinstall": script}}).encode()),
                              member("package/index.js", data=b"module.exports = require('fs').readFileSync(__dirname "
                                     b"+ '/found', 'utf8')\n")):
                    tar.addfile(entry[0], io.BytesIO(entry[1]))
        for name in os.listdir(cls.wheels):
            os.chmod(f"{cls.wheels}/{name}", 0o644)
        cls.CONFIG = f'[tools]\nfind_links = "{cls.wheels}"\nallow_urls = true\n'
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.wheels)

    def uses(self, name, body, *packages, **members):
        self.put(name, body, pip_requirements=[{"name": p} for p in packages])
        return lambda: self.go(name, **members)

    def test_D_packages(self):
        mark = canary()
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "OF_SANDBOX", "value": mark})
        env = {"env_vars": {"PIP_INDEX_URL": "http://evil.example/simple",
                            "PIP_EXTRA_INDEX_URL": "http://evil.example/simple",
                            "PIP_CONFIG_FILE": "/workspace/pip.conf", "MARK": mark,
                            "PYTHONPATH": "/workspace", "LD_PRELOAD": "/workspace/evil.so"}}
        used = ("import os, rude\ntry:\n    open(os.path.dirname(rude.__file__) + '/later.pth', 'w')\n"
                "except OSError as e:\n    wrote = e.strerror\n"
                "return rude.seen, os.environ.get('OF_PTH'), wrote, [p for p in os.listdir('/proc') if p.isdigit()]")
        calls = {"rude": self.uses("rude", used, "rude", **env)}
        calls.update({name: self.uses(name, "return 'installed'", name)
                      for name in ("bomb", "linked", "climber", "slip")})
        if HAS_NPM:
            code = "console.log(require('gamma'))"
            calls["npm"] = lambda: self.d.ask("POST", "/v1/run",
                                              {"language": "javascript", "code": code,
                                               "npm_requirements": ["gamma@file:/opt/brig-wheels/gamma-1.0.0.tgz"],
                                               **env})
        ran = {name: answer.json for name, answer in self.at_once(calls, 4).items()}
        # D01, D05, D07, D11: nothing of the run is there while it is built, nothing of the building is there while it
        # runs, and what it left is its own set's, read-only.
        self.returned(ran["rude"],
                      [{"environment": [], "network": "Network is unreachable", "written": [], "pids": True}, "1",
                       "Read-only file system", ["2"]])
        self.assertFalse([p for p, (_, _, argv, _) in processes().items() if self.sleep.encode() in argv])
        self.assertEqual(sorted(os.listdir(self.wheels)),
                         sorted(set(os.listdir(self.wheels)) - {"planted-by-a-package", "x"}))
        self.returned(self.one("without",
                               "import os, sys\nreturn [os.environ.get('OF_PTH'), os.environ.get('OF_SITE'), "
                               "'sitecustomize' in sys.modules, os.path.exists('/opt/brig')]"),
                      [None, None, False, False])
        # D02: so do npm's scripts.
        if HAS_NPM:
            self.assertEqual((ran["npm"]["status"], ran["npm"]["stdout"]), ("success", "0 true\n\n"), ran["npm"])
        # D04, D10: what cannot be installed says so, with the installer's own words, and no run begins.
        for name, words in (("bomb", "BOMB True Resource temporarily unavailable"), ("linked", "Read-only file system"),
                            ("climber", "trying to install outside target directory"),
                            ("slip", "trying to install outside the target directory")):
            error, outcome = ran[name]["receipt"]["error"], ran[name]["receipt"]["outcome"]
            self.assertEqual((ran[name]["status"], ran[name]["result"], error["type"], outcome["cause"]),
                             ("error", None, "RuntimeError", "policy"), ran[name])
            self.assertTrue(error["message"].startswith(
                f"Failed to install pip packages (sandbox requirements: none; tool requirements: {name})."),
                            error)
            self.assertIn(words, error["message"])
        self.assertIn("The installer was ended: pids-limit.", ran["bomb"]["receipt"]["error"]["message"])
        self.assertFalse(os.path.exists("/tmp/slipped"))
