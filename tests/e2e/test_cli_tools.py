# SPDX-License-Identifier: Apache-2.0
"""The verbs about tools: each against a real daemon; `brig tool run FILE`, `brig tool schema FILE` and `brig run
--lang` also without one, where nothing may stay behind."""

import glob
import io
import json
import os
import signal
import subprocess
import tarfile
import unittest

from helpers import BRIG, FAILED, BrigTest, Terminal, brig, environment, read_line, wait_until
from service import Daemon
from wheelkit import HAS_NPM, HAS_PIP

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WEATHER = f"{ROOT}/examples/weather.py"
OSLO = '{"city":"Oslo"}'
KEYS = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
NOBODY = 65534
OK = ("-a", '{"what": "ok"}')

WAYS = '''
import os, sys, time

def ways(what: str, value: int = 1):
    """Ends in many ways.

    Args:
        what: which
        value: a number
    """
    print("printed", flush=True)
    if what == "raise":
        raise KeyError("no such thing")
    if what == "exit":
        os._exit(3)
    if what == "sleep":
        time.sleep(1000)
    if what == "oom":
        held = bytearray(1 << 31)
        for i in range(0, len(held), 4096):
            held[i] = 1
    if what == "env":
        return {name: os.environ.get(name, "")[::-1] for name in ("RUNTIME", "OF_CONFIG", \
"OF_AGENT")}  # as they are they would be scrubbed
    if what == "file":
        os.makedirs("/workspace/out", exist_ok=True)
        with open("/workspace/out/left.txt", "w") as f:
            f.write("left")
    return {"what": what, "value": value, "hostile": "\\x1b[2J\\u009b31m"}
'''


class Tools(BrigTest):
    """What all share; `env` is that of brig."""

    env = None

    def brig(self, *args, status=0, **kw):
        done = brig(*args, env=self.env, **kw)
        self.assertEqual(done.returncode, status, f"{args}: {done}")
        return done

    def json(self, *args, **kw):
        return json.loads(self.brig(*args, **kw).stdout)

    def said(self, *args, **kw):
        return self.brig(*args, **kw).stdout.decode().splitlines()

    def refused(self, word, *args, status=FAILED, **kw):
        done = self.brig(*args, status=status, **kw)
        self.assertEqual(done.stdout, b"", done)
        self.assertIn(word, done.stderr.decode(), done)
        return done.stderr.decode()


class WithDaemon(Tools):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.d = Daemon("", env={"BRIG_SECRETS_KEY": KEYS})
        cls.addClassCleanup(cls.d.close)
        cls.env = environment(BRIG_SOCKET=cls.d.socket, BRIG_RUN_DIR=f"{cls.d.dir}/run",
                              BRIG_STATE_DIR=f"{cls.d.dir}/state", BRIG_CACHE_DIR=f"{cls.d.dir}/cache")

    def setUp(self):
        super().setUp()
        self.ways = self.write("ways.py", WAYS)

    def test_a_registered_tool(self):
        name, ident = self.said("tool", "add", "--tag", "a", "--description", "in \x1b[31mred", self.ways)[0].split()
        self.assertEqual(name, "ways")
        self.assertEqual(self.said("tool", "add", "-q", self.ways), [ident])  # its next version
        self.assertIn("ways", self.said("tool", "ls", "-q"))
        listed = self.brig("tool", "ls").stdout
        self.assertIn(ident.encode(), listed)
        self.assertNotIn(b"\x1b", listed)
        self.assertIn(ident, [t["id"] for t in self.json("tool", "ls", "-o", "json")])
        self.assertEqual(self.brig("tool", "show", "ways").stdout.decode(), WAYS)
        self.assertEqual(self.json("tool", "show", "-o", "json", ident)["name"], "ways")
        # runs: the result alone on stdout, what it prints on stderr
        done = self.brig("tool", "run", "ways", "--args", '{"what": "ok", "value": 7}')
        self.assertEqual(json.loads(done.stdout)["value"], 7)
        self.assertEqual(done.stderr, b"printed\n")
        self.assertEqual(self.brig("tool", "run", "-q", "--args", '{"what": "ok"}', "ways").stderr, b"")
        self.assertEqual(self.json("tool", "run", "ways", "-e", "RUNTIME=xyz", "-a", "@-",
                                   stdin=b'{"what": "env"}')["RUNTIME"],
                         "zyx")
        receipt = self.json("tool", "run", "ways", "-o", "json", "--strict", "-a", '{"what": "ok"}')
        self.assertEqual((receipt["kind"], receipt["tool"]["name"], receipt["result"]["what"], receipt["stdout"]),
                         ("tool", "ways", "ok", "printed\n"))
        # ends
        self.refused("KeyError", "tool", "run", "ways", "-a", '{"what": "raise"}', status=1)
        self.refused("KeyError", "tool", "run", "-q", "ways", "-a", '{"what": "raise"}', status=1)
        self.refused("exit code 3", "tool", "run", "ways", "-a", '{"what": "exit"}', status=1)
        self.refused("ended by timeout", "tool", "run", "ways", "-t", "300ms", "-a", '{"what": "sleep"}', status=124)
        self.refused("ended by oom", "tool", "run", "ways", "-a", '{"what": "oom"}', status=137)
        for word, *args in (("what", "-a", "{}"), ("--args", "-a", "[]"), ("--args", "-a", "{"),
                            ("nosuch", "--network", "nosuch", *OK), ("agent-x", "--agent", "agent-x", *OK),
                            ("timeout", "-t", "never", *OK), ("word too many", "another")):
            self.refused(word, "tool", "run", "ways", *args)
        self.refused("nosuch", "tool", "run", "nosuch")
        # gone
        self.refused('no tool "nosuch"', "tool", "show", "nosuch")
        self.assertEqual(self.said("tool", "rm", "ways"), ["ways"])
        self.refused('no tool "ways"', "tool", "rm", "ways")

    def test_files_and_languages(self):
        self.assertEqual(self.json("tool", "run", WEATHER, "--args", '{"city": "Quito", "month": 1}')["mean_celsius"],
                         14)
        self.assertEqual(self.json("tool", "schema", WEATHER)["parameters"]["required"], ["city"])
        self.assertEqual(self.json("tool", "run", f"{ROOT}/examples/words.js", "-a", '{"text": "b a b"}'),
                         {"b": 2, "a": 1})
        self.assertEqual(self.json("tool", "run", f"{ROOT}/examples/count.sh", "-a", '{"text": "a b"}')["words"], 2)
        done = self.brig("tool", "run", self.ways, "-a", '{"what": "sleep"}', "-t", "300ms", "--strict", "--network",
                         "none", status=124)
        self.assertEqual(done.stdout, b"")
        self.refused("--schema", "tool", "add", f"{ROOT}/examples/words.js")
        self.refused(".py", "tool", "add", "/etc/passwd")
        self.refused("No such file", "tool", "run", "./nosuch.py")
        broken = self.write("broken.py", "def f(:\n")
        self.refused("line 1", "tool", "run", broken)
        schema = self.write("words.json", json.dumps({"name": "words", "parameters": {
            "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}))
        self.brig("tool", "add", "--schema", schema, "--npm", "lodash@4", f"{ROOT}/examples/words.js")
        self.assertEqual(self.json("tool", "show", "-o", "json", "words")["npm_requirements"],
                         [{"name": "lodash", "version": "4"}])
        self.brig("tool", "rm", "-q", "words")

    def test_terminals_get_no_escapes(self):
        self.brig("tool", "add", self.write("t.py", WAYS.replace("printed", "\\x1b]0;title\\x07")))
        terminal = Terminal(BRIG, "tool", "run", "ways", "-a", '{"what": "ok"}', env=self.env)
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.wait(), 0, terminal.seen)
        said = terminal.seen
        self.assertIn(b"^[]0;title^G", said)
        self.assertNotIn(b"\x1b", said.replace(b"\\u001b", b""))
        self.brig("tool", "rm", "-q", "ways")

    def test_agents_and_variables(self):
        ident = self.said("agent", "add", "--state", self.write("state.json", '{"memory": {"blocks": []}}'),
                          "bob \x1b[31m \u202etoor")[0]
        shown = self.brig("agent", "ls").stdout
        self.assertNotIn(b"\x1b", shown)
        self.assertIn(b"\\xe2\\x80\\xaetoor", shown)  # a name that would run backwards
        self.assertIn(ident, self.said("agent", "ls", "-q"))
        tool = self.said("tool", "add", "-q", self.ways)[0]
        self.brig("agent", "attach", ident, tool)
        self.assertEqual([t["id"] for t in self.json("agent", "show", ident)["tools"]], [tool])
        self.brig("agent", "detach", ident, tool)
        self.assertEqual(self.json("agent", "show", ident)["tools"], [])
        # values from stdin, a file and a variable, never from words
        self.refused("not taken from the command line", "env", "set", "OF_CONFIG", "value")
        self.assertEqual(self.said("env", "set", "OF_CONFIG", stdin=b"config value\n"), ["OF_CONFIG"])
        self.brig("env", "set", "--agent", ident, "OF_AGENT", "--description", "mine", "--from-file",
                  self.write("value", "agent value"))
        self.brig("env", "set", "-q", "--agent", ident, "OTHER", stdin=b"x")
        self.assertEqual(self.said("env", "ls", "-q", "--agent", ident), ["OF_AGENT", "OTHER"])
        self.assertEqual([(v["key"], v["description"], v["value"])
                          for v in self.json("env", "ls", "-o", "json", "--agent", ident)],
                         [("OF_AGENT", "mine", ""), ("OTHER", None, "")])
        self.assertNotIn("agent value", self.brig("env", "ls", "--agent", ident).stdout.decode()
                         + self.brig("agent", "show", ident).stdout.decode())
        receipt = self.json("tool", "run", "ways", "-o", "json", "--agent", ident, "-a", '{"what": "env"}')
        self.assertEqual(receipt["result"],
                         {"RUNTIME": "", "OF_CONFIG": "config value"[::-1], "OF_AGENT": "agent value"[::-1]})
        wait_until("its receipt is stored", lambda: brig("env", "show", receipt["id"], env=self.env).returncode == 0)
        layers = dict(line.split() for line in self.said("env", "show", receipt["id"])[1:])
        self.assertEqual(set(self.json("env", "show", "-o", "json", receipt["id"])), set(layers))
        self.assertIn("OF_AGENT", layers)
        self.assertNotEqual(layers["OF_AGENT"], layers["OF_CONFIG"])
        # replaced alone: the other one and the description stay
        self.brig("env", "set", "--agent", ident, "OF_AGENT", stdin=b"new")
        self.assertEqual(self.json("tool", "run", "ways", "--agent", ident, "-a", '{"what": "env"}')["OF_AGENT"], "wen")
        self.assertEqual(self.json("env", "ls", "-o", "json", "--agent", ident)[0]["description"], "mine")
        self.assertEqual(self.said("env", "rm", "--agent", ident, "OTHER"), ["OTHER"])
        self.refused("OTHER", "env", "rm", "--agent", ident, "OTHER")
        self.assertEqual(self.said("env", "ls", "-q", "--agent", ident), ["OF_AGENT"])
        self.brig("env", "rm", "OF_CONFIG")
        self.refused("OF_CONFIG", "env", "rm", "OF_CONFIG")
        self.refused("a-b", "env", "set", "--agent", ident, "a-b", stdin=b"x")
        self.brig("agent", "rm", ident)
        self.refused("not found", "agent", "show", ident)
        self.refused("not found", "env", "set", "--agent", ident, "X", stdin=b"x")

    def waiting(self, *args):
        """A run that waits, and its id as it says it on stderr."""
        run = self.start("tool", "run", "ways", "-a", '{"what": "ok"}', *args, env=self.env)
        line = read_line(run.stderr).decode()
        self.assertIn("waiting for approval: brig approve run-", line)
        return run, line.split("approve ")[1].split(",")[0]

    def test_approvals(self):
        self.brig("tool", "add", "--approval", self.ways)
        run, ident = self.waiting()
        self.assertEqual(self.said("approve", "-q"), [ident])
        self.assertIn('{"what": "ok"}', "\n".join(self.said("approve")))
        self.assertEqual(self.json("approve", "-o", "json")["approvals"][0]["run_id"], ident)
        self.assertEqual(self.said("approve", "--reason", "fine", ident), [ident])
        out, _ = run.communicate()
        self.assertEqual((run.returncode, json.loads(out)["what"]), (0, "ok"))
        run, ident = self.waiting()
        self.brig("deny", "-q", "-r", "not today", ident)
        out, err = run.communicate()
        self.assertEqual((run.returncode, out), (FAILED, b""))
        self.assertIn(b"not today", err)
        run, ident = self.waiting()
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130)
        wait_until("nobody waits", lambda: self.said("approve", "-q") == [])
        self.refused(ident, "approve", ident)
        self.refused("RUN-ID", "deny")
        self.brig("tool", "rm", "-q", "ways")

    def test_receipts_and_pools(self):
        receipt = self.json("tool", "run", self.ways, "-o", "json", "-a", '{"what": "file"}')
        wait_until("its receipt is stored", lambda: receipt["id"] in self.said("receipt", "ls", "-q"))
        self.assertEqual(self.json("receipt", "show", receipt["id"])["tool"]["name"], "ways")
        self.assertIn(receipt["id"],
                      [r["id"]
                       for r in self.json("receipt", "ls", "-o", "json", "--cause", "exited", "-n", "5")["runs"]])
        self.assertIn("ways", "\n".join(self.said("receipt", "ls")))
        with tarfile.open(fileobj=io.BytesIO(self.brig("receipt", "files", receipt["id"]).stdout)) as tar:
            self.assertTrue(any(name.endswith("left.txt") for name in tar.getnames()), tar.getnames())
        self.refused("run-x", "receipt", "show", "run-x")
        self.assertEqual(self.said("pool", "prewarm", "2"), ["2"])
        self.assertIn("python", [p["language"] for p in self.json("pool", "ls", "-o", "json")["pools"]])
        self.assertIn("python", "\n".join(self.said("pool", "ls")))
        for bad in ("0", "x", "-1"):
            self.refused("", "pool", "prewarm", "--", bad)

    def test_snippets(self):
        receipt = self.json("run", "--lang", "python", "-o", "json", "-",
                            stdin=b"import sys; print(6 * 7); sys.exit(3)", status=3)
        self.assertEqual((receipt["kind"], receipt["via"], receipt["stdout"]), ("code", "daemon", "42\n"))
        SNIPPETS.check(self)

    def test_words(self):
        self.assertIn("brig tool run NAME|FILE", self.brig("help", "tool", "run").stdout.decode())
        self.assertIn("schema", self.brig("help", "tool").stdout.decode())
        self.refused("`brig tool run`", "tool", "rnu")
        self.refused("`brig approve`", "aprove")
        for verb in ("tool", "agent", "env", "pool", "receipt"):
            self.refused("no verb given", verb)
        script = self.write("c.sh", self.brig("completion", "bash").stdout)
        self.brig("tool", "add", "-q", self.ways)
        ask = (f'. {script}; COMP_WORDS=(brig tool run ""); COMP_CWORD=3; _brig; echo "${{COMPREPLY[@]}}"; '
               f'COMP_WORDS=(brig tool ""); COMP_CWORD=2; _brig; echo "${{COMPREPLY[@]}}"')
        env = {**self.env, "PATH": f"{os.path.dirname(BRIG)}:{self.env['PATH']}"}
        said = subprocess.run(["bash", "-c", ask], env=env, capture_output=True,
                              check=True).stdout.decode().splitlines()
        self.assertIn("ways", said[0].split())
        self.assertEqual(said[1].split(), ["add", "ls", "rm", "run", "schema", "show"])
        self.brig("tool", "rm", "-q", "ways")

    def test_doctor(self):
        env = {**self.env, "PIP_INDEX_URL": "http://user:word@127.0.0.1:1/simple",
               "npm_config_registry": "http://127.0.0.1:1/", "BRIG_SECRETS_KEY": KEYS}
        done = brig("doctor", "--tools", "-o", "json", env=env)
        rows = {row["name"]: row for row in json.loads(done.stdout)["tools"]}
        for name in ("python", "node", "bash", "tool directory", "sets directory", "key ring"):
            self.assertTrue(rows[name]["ok"], rows[name])
        for name, there, fix in (("pip", HAS_PIP, "apt-get install python3-pip python3-venv"),
                                 ("npm", HAS_NPM, "apt-get install npm")):
            self.assertEqual(rows[name]["ok"], there, rows[name])
            self.assertEqual(rows[name].get("fix"), None if there else fix, rows[name])
        self.assertIn("Python 3", rows["python"]["state"])
        for name in ("pip index", "npm registry"):
            self.assertFalse(rows[name]["ok"], rows[name])
            self.assertTrue(rows[name]["fix"])
        self.assertNotIn(b"user:word", done.stdout)
        env.update(BRIG_CONFIG=self.write("c.toml", f'[tools]\nexec_dir = "{self.ways}"\n'))
        del env["BRIG_SECRETS_KEY"]
        text = brig("doctor", "--tools", env=env).stdout.decode()
        self.assertRegex(text, r"tool directory +warn +\S+: is no directory\n +fix: ")
        self.assertRegex(text, r"key ring +warn +none: .*\n +fix: brig secret keygen")


class Refusals(Tools):
    """Each refusal of Letta's interface is one plain line on the command line. This service has no key ring."""

    NO_KEY = ("no key to seal values with: `brig secret keygen > FILE`, then key_file = \"FILE\" in [secrets] of "
              "config.toml "
              "(or key_env, key_command), and restart the service")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.d = Daemon()
        cls.addClassCleanup(cls.d.close)
        cls.env = environment(BRIG_SOCKET=cls.d.socket)

    def line(self, *args, stdin=None):
        said = self.refused("brig: ", *args, stdin=stdin).splitlines()
        self.assertEqual(len(said), 1, said)
        for word in ("[{", "'loc'", "'msg'", "constraint"):
            self.assertNotIn(word, said[0])
        return said[0].removeprefix("brig: ")

    def test_without_a_key_ring(self):
        self.assertEqual(self.line("env", "set", "X", stdin=b"value"), self.NO_KEY)
        config = self.d.ask("GET", "/v1/sandbox-config/?sandbox_type=local").json[0]["id"]
        answer = self.d.ask("POST", f"/v1/sandbox-config/{config}/environment-variable", {"key": "X", "value": "y"})
        self.assertEqual((answer.status, answer.json), (409, {"detail": self.NO_KEY}))
        agent = self.said("agent", "add", "-q", "a")[0]
        self.assertEqual(self.line("env", "set", "--agent", agent, "X", stdin=b"value"), self.NO_KEY)

    def test_a_field_that_is_wrong(self):
        self.assertEqual(self.line("env", "ls", "--type", "a b"),
                         "sandbox_type: Input should be 'e2b', 'modal', 'local' or another provider's name")
        self.assertEqual(self.line("env", "set", "not a name", stdin=b"x"),
                         "key: \"not a name\" is no name of a variable: letters, digits and '_', no digit first, at "
                         "most 256")
        self.assertEqual(self.line("agent", "add", "a" * 600), "name: must be a string of at most 512 bytes")
        self.assertEqual(self.line("tool", "show", "tool-1"), "no tool \"tool-1\"")
        bad = self.write("bad.py", "def f(x:\n")
        self.assertEqual(self.line("tool", "add", bad), "'(' was never closed (<tool source>, line 1)")
        self.assertEqual(self.line("agent", "rm", "agent-1"), "agent_id: String should match pattern 'agent-{uuid4}'")


class Snippets:
    """The same of a snippet, whoever runs it."""

    def check(self, test):
        cases = (("python", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
                  (3, b"out\n", b"err\n")),
                 ("node", "console.log('out'); console.error('err'); process.exit(4)", (4, b"out\n", b"err\n")),
                 ("javascript", "import fs from 'fs';\nconsole.log(typeof fs.statSync, await 5)",
                  (0, b"function 5\n", b"")),
                 ("bash", "echo \"$0 $((6 * 7)) '$(echo out)'\" | cut -d' ' -f2-; exit 5", (5, b"42 'out'\n", b"")),
                 ("bash", "-x; echo 'not a flag'", (0, b"not a flag\n", None)))
        for language, text, (status, out, err) in cases:
            done = test.brig("run", "--lang", language, "-", stdin=text.encode(), status=status)
            test.assertEqual(done.stdout, out, done)
            if err is not None:
                test.assertEqual(done.stderr, err, done)
        path = test.write("s.py", "import os, sys\nprint(os.environ['A'], repr(sys.stdin.read()))\n")
        test.assertEqual(test.brig("run", "-e", "A=b c", "--lang", "python", path, stdin=b"unread").stdout, b"b c ''\n")
        test.assertEqual(test.brig("run", "-i", "-e", "A=1", "--lang", "python", path, stdin=b"read").stdout,
                         b"1 'read'\n")
        test.refused("ended by timeout", "run", "--timeout", "300ms", "--lang", "python", "-",
                     stdin=b"import time; time.sleep(1000)", status=124)
        test.refused("ended by oom", "run", "-m", "64m", "--lang", "python", "-",
                     stdin=b"x = bytearray(1 << 29)\nfor i in range(0, 1 << 29, 4096): x[i] = 1", status=137)
        for word, args in (("python, node", ("--lang", "pyton", path)), ("no file", ("--lang", "python")),
                           ("word too many", ("--lang", "python", path, "x")),
                           ("No such file", ("--lang", "python", "/nosuch")),
                           ("cannot be both", ("--lang", "python", "-i", "-")),
                           ("TypeScript", ("--lang", "typescript", "--local", path))):
            test.refused(word, "run", *args)
        test.refused("zero byte", "run", "--lang", "bash", "-", stdin=b"echo\0")


SNIPPETS = Snippets()


def left_behind():
    """Directories and processes of services for one command."""
    found = set(glob.glob("/run/brig-tool-*") + glob.glob("/tmp/brig-tool-??????"))
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if b"/brig-tool-" in f.read():
                    found.add(path.split("/")[2])
        except OSError:
            pass  # it has ended meanwhile
    return found


class WithoutDaemon(Tools):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o777)
        self.env = environment(BRIG_SOCKET=self.path("none.sock"), BRIG_RUN_DIR=None, BRIG_STATE_DIR=None,
                               HOME=self.dir)
        self.before = left_behind()
        self.ways = self.write("ways.py", WAYS)

    def tearDown(self):
        wait_until("nothing is left behind", lambda: not left_behind() - self.before)
        super().tearDown()

    def test_root(self):
        done = self.brig("tool", "run", WEATHER, "--args", OSLO)
        self.assertEqual(json.loads(done.stdout)["city"], "Oslo")
        self.assertRegex(done.stderr, rb"^looked up Oslo, month \d+\n$")
        receipt = self.json("tool", "run", WEATHER, "--args", OSLO, "-o", "json")
        self.assertEqual((receipt["result"]["city"], receipt["protection"]["complete"]), ("Oslo", True))
        self.refused("ValueError", "tool", "run", WEATHER, "--args", '{"city": "Atlantis"}', status=1)
        self.refused("ended by timeout", "tool", "run", self.ways, "-t", "300ms", "-a", '{"what": "sleep"}', status=124)
        self.assertEqual(self.json("tool", "schema", WEATHER)["name"], "weather")
        self.refused("brig serve", "tool", "run", "weather")  # no file: only a daemon has tools

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be somebody else")
    def test_a_plain_user(self):
        with open(WEATHER, encoding="utf-8") as f:
            copy = self.write("weather.py", f.read())  # the tree may be closed to others
        done = self.brig("tool", "run", copy, "--args", OSLO, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
        self.assertEqual(json.loads(done.stdout)["city"], "Oslo")

    def test_a_signal_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            run = self.start("tool", "run", self.ways, "-a", '{"what": "sleep"}', env=self.env)
            wait_until("its service is there", lambda: left_behind() - self.before)
            run.send_signal(number)
            self.assertEqual(run.wait(), 128 + number)
            wait_until("nothing is left", lambda: not left_behind() - self.before)

    def test_snippets(self):
        SNIPPETS.check(self)
        receipt = self.json("run", "--lang", "python", "-o", "json", "-", stdin=b"print(1)")
        self.assertEqual((receipt["via"], receipt["command"][:2]), ("local", ["python3", "-c"]))
        # more than a word of a command line holds
        large = b"#" * 200000 + b"\nprint('large')\n"
        self.assertEqual(self.brig("run", "--lang", "python", "-", stdin=large).stdout, b"large\n")
        self.refused("120 KiB", "run", "--lang", "python", "--local", "-", stdin=large)


if __name__ == "__main__":
    unittest.main()
