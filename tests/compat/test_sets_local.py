# SPDX-License-Identifier: Apache-2.0
"""Dependency sets with a real manager, spawner and installers: drivers/sets_host.c is the part of brigd that has them.
Wheels and npm packages are made here; nothing is fetched, except by the one test that asks the index this machine is
configured for."""

import hashlib
import io
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "e2e"))

from helpers import BRIG, PATIENCE, wait_until
from internet import Internet
from jailkit import BUILD, IS_ROOT, PATH, PLAIN_ID, PREFIX, JailTest, World, needs_root
from service import Daemon
from test_gate_clients import SHELF, Shelf, npm_registry, python_index
from wheelkit import HAS_NPM, HAS_PIP, PYTHON, wheel

HOST = next((p for p in (f"{PREFIX}/tests/e2e/sets_host", f"{BUILD}/tests/e2e/sets_host") if os.path.exists(p)),
            "sets_host")
LIBEXEC = os.environ.get("BRIG_LIBEXEC_DIR") or f"{os.path.dirname(os.path.realpath(BRIG))}"
SERVICE_ID = 62744


EVIL = """
import os, socket, sys
seen = [(path, os.access(path, os.W_OK)) for path in ('/opt', '/opt/brig-wheels', '/opt/brig')]
try:
    socket.create_connection(('192.0.2.1', 53), 1)
    seen.append('connected')
except OSError:
    seen.append('no network')
seen.append(sorted(k for k in os.environ if 'KEY' in k or 'TOKEN' in k or 'SECRET' in k))
seen.append(sorted(os.listdir('/opt/brig')))
os.chdir('/opt/brig/.brig')
os.symlink('/etc/passwd', 'pip.json')
os.mkfifo('package.json')
os.makedirs('d/' * 60)
os.chmod('d', 0)
sys.exit('EVIL ' + repr(seen))
"""


def source(where, name, version, backend):
    """A source distribution that another package of the directory builds."""
    path = f"{where}/{name}-{version}.tar.gz"
    files = {"pyproject.toml": f"[build-system]\nrequires = ['{backend}']\nbuild-backend = '{backend}'\n",
             "PKG-INFO": f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"}
    with tarfile.open(path, "w:gz") as tar:
        for file, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    os.chmod(path, 0o644)


class Host:
    def __init__(self, world, sock, uid, state, sets, env):
        def become():
            os.dup2(sock.fileno(), 3)
            os.set_inheritable(3, True)
            if IS_ROOT:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)

        self.process = subprocess.Popen([HOST, state, sets], preexec_fn=become, close_fds=False, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, cwd="/",
                                        env={**world.env, "HOME": state, **env})
        self.pending, self.heard = b"", []
        self.hear()

    def say(self, **words):
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self):
        end = time.monotonic() + 4 * PATIENCE
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"nothing heard in time, only {self.pending!r}")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"sets_host ended: {self.process.wait()}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def got(self, name):
        """The answer for one name; others are kept."""
        for i, answer in enumerate(self.heard):
            if answer.get("got") == name:
                return self.heard.pop(i)
        while (answer := self.hear()).get("got") != name:
            self.heard.append(answer)
        return answer

    def get(self, name, **words):
        self.say(get=name, **words)
        return self.got(name)

    def list(self):
        self.say(list=True)
        return self.hear()["list"]

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


class SetsTest(JailTest):
    LIMIT_SECONDS = 120
    ENV = {}

    def setUp(self):
        self.sets, self.state, self.wheels = self.w.mkdir("sets", 0o700), self.w.mkdir("sets-state",
                                                                                       0o700), self.w.mkdir("wheels")
        self.uid = SERVICE_ID if self.w.uid == 0 and IS_ROOT else self.w.uid
        for path in (self.sets, self.state):
            os.chown(path, self.uid, self.uid)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cgroups = self.w.cgroups.for_a_caller()

        def in_child():
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            self.w.become_caller(cgroups)

        self.spawner = subprocess.Popen([f"{LIBEXEC}/brig-spawner", LIBEXEC], preexec_fn=in_child, close_fds=False,
                                        cwd="/", stdin=subprocess.DEVNULL,
                                        env={**self.w.env, "BRIG_OWN_ROOTS": f"{self.sets}:{self.wheels}"})
        theirs.close()
        self.host = self.start()

    def start(self, **env):
        return Host(self.w, self.socket, self.uid, self.state, self.sets,
                    {"BRIG_TOOLS_FIND_LINKS": self.wheels, **self.ENV, **env})

    def restart(self, **env):
        self.host.end()
        self.host = self.start(**env)

    def tearDown(self):
        self.host.end()
        self.socket.close()
        self.spawner.wait(timeout=PATIENCE)
        for path in (self.sets, self.state, self.wheels):
            shutil.rmtree(path)
        super().tearDown()

    def get(self, name, **words):
        answer = self.host.get(name, **words)
        self.assertNotIn("error", answer, answer.get("text"))
        return answer

    def python(self, answer, script, *flags):
        """In a run that has the set, as one that is executed will."""
        return self.shell(f"{answer['venv']}/bin/python3 -c \"$0\"", "-v", f"{answer['path']}:/opt/brig:ro", "-e",
                          f"VIRTUAL_ENV={answer['venv']}", *flags, more=(script,))

    def shell(self, script, *flags, status=0, more=(), **kw):
        done = self.w.run(*flags, "--", "/bin/sh", "-c", script, *more, **kw)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode()

    def left(self):
        return sorted(n for n in os.listdir(self.sets) if "." in n and not n.endswith(".lock"))


@unittest.skipUnless(HAS_PIP, "no pip and venv for /usr/bin/python3")
class Pip(SetsTest):
    def test_installed_once_locked_and_used(self):
        first = wheel(self.wheels, "alpha", "1.0", ["beta>=1"])
        wheel(self.wheels, "beta", "1.5")
        self.host.say(get="a", pip=["alpha"])
        self.host.say(get="b", pip=["alpha", "alpha"])  # the same set, and it waits for the same build
        self.host.say(get="c", pip=["alpha"])
        self.host.say(cancel="c")
        one, two = self.host.got("a"), self.host.got("b")
        self.assertEqual({k: v for k, v in one.items() if k != "got"}, {k: v for k, v in two.items() if k != "got"},
                         one)
        self.assertEqual(one["venv"], "/opt/brig/venv")
        said = self.python(
            one, "import sys, alpha, beta; print(alpha.said, beta.said, sys.prefix, sys.prefix != sys.base_prefix)")
        self.assertEqual(said, "alpha 1.0 beta 1.5 /opt/brig/venv True\n")
        self.assertIn("Read-only file system",
                      self.shell("touch /opt/brig/venv/x 2>&1 || true", "-v", f"{one['path']}:/opt/brig:ro"))
        with open(f"{self.sets}/{one['key']}/lock.json", "rb") as f:
            text = f.read()
        self.assertEqual(hashlib.sha256(text).hexdigest(), one["lock"])
        lock = json.loads(text)
        self.assertEqual([(p["name"], p["version"]) for p in lock["pip"]], [("alpha", "1.0"), ("beta", "1.5")])
        self.assertEqual(lock["pip"][0]["sha256"], first)
        self.assertEqual({os.lstat(os.path.join(d, n)).st_uid for d, _, names in os.walk(one["path"]) for n in names},
                         {self.uid})
        self.assertEqual(os.listdir(one["path"]), ["venv"])  # nothing of the making is left
        self.assertEqual(self.left(), [])
        # another organisation and another name are other sets
        other = self.get("d", org="org-2", venv="mine", pip=["beta"],
                         txt="# what the directory needs\nalpha==1.0  # this\n")
        self.assertNotEqual(one["key"], other["key"])
        self.assertEqual(self.python(other, "import sys, alpha, beta; print(sys.prefix)"), "/opt/brig/mine\n")
        self.assertEqual({e["organization_id"] for e in self.host.list()}, {"org-1", "org-2"})

    def test_a_lock_outlives_its_set(self):
        wheel(self.wheels, "alpha", "1.0")
        before = self.get("a", pip=["alpha"])
        self.host.say(release="a")
        # a newer one appears; the words are the same, and so is what they give, also after a restart and a collection
        wheel(self.wheels, "alpha", "2.0")
        self.assertEqual(self.get("b", pip=["alpha"])["lock"], before["lock"])
        self.host.say(release="b")
        self.host.end()
        os.utime(f"{self.sets}/{before['key']}/used", (1, 1))
        self.host = self.start()
        wait_until("the set is collected", lambda: os.listdir(self.sets) == [f"{before['key']}.lock"])
        self.assertEqual(self.host.list(), [])
        # a file that is another one now is not taken
        wheel(self.wheels, "alpha", "1.0", text="said = 'something else'\n")
        answer = self.host.get("x", pip=["alpha"])
        self.assertIn("DO NOT MATCH THE HASHES", answer["text"])
        self.assertIn("verified by its lock", answer["text"])
        wheel(self.wheels, "alpha", "1.0")
        again = self.get("c", pip=["alpha"])
        self.assertEqual((again["key"], again["lock"]), (before["key"], before["lock"]))
        self.assertEqual(self.python(again, "import alpha; print(alpha.said)"), "alpha 1.0\n")
        # only a rebuild resolves anew; who has the old one keeps it
        new = self.get("d", pip=["alpha"], rebuild=True)
        self.assertEqual(new["key"], before["key"])
        self.assertNotEqual(new["lock"], before["lock"])
        self.assertEqual(self.python(new, "import alpha; print(alpha.said)"), "alpha 2.0\n")
        self.assertEqual(sorted((e["state"], e["users"]) for e in self.host.list()), [("ready", 1), ("replaced", 1)])
        self.host.say(release="c")
        wait_until("the old one is removed", lambda: not self.left())

    def test_failures_are_told(self):
        wheel(self.wheels, "alpha", "1.0")
        answer = self.host.get("a", pip=["alpha", "no-such-thing==9"], config=1)
        self.assertTrue(answer["text"].startswith("Failed to install pip packages (sandbox requirements: alpha; tool "
                                                  "requirements: no-such-thing==9). This may be due to package version "
                                                  "incompatibility. Consider updating package versions or removing "
                                                  "version constraints.\n"),
                        answer["text"])
        self.assertIn("No matching distribution found for no-such-thing==9", answer["text"])
        self.assertTrue(answer["text"].startswith(answer["error"][:200]))
        wait_until("nothing of it is left", lambda: not os.listdir(self.sets))
        self.assertEqual(self.host.list(), [])
        for bad in (["--index-url=http://h"], ["./x"], ["alpha @ file:///etc"], ["alpha; x"], ["a\nb"]):
            self.assertIn("requirement ", self.host.get("b", pip=bad)["error"])
        self.assertIn("options are not allowed", self.host.get("b", txt="alpha\n-r /etc/passwd\n")["error"])
        self.assertIn("there are none", self.host.get("b")["error"])
        self.get("c", pip=["alpha"])  # and then it works

    def test_sharing(self):
        digest = wheel(self.wheels, "alpha", "1.0")
        self.restart(BRIG_TOOLS_SHARE_SETS="true")
        keys = {self.get(org, org=org, txt=f"alpha==1.0 --hash=sha256:{digest}\n")["key"] for org in ("org-1", "org-2")}
        self.assertEqual(len(keys), 1)

    def test_what_a_package_does_while_it_is_built(self):
        """It can hurt its own set, and nothing else: no network, no secrets, no other set, no link out."""
        wheel(self.wheels, "alpha", "1.0")
        mine = self.get("a", pip=["alpha"])
        wheel(self.wheels, "evil", "1.0", text=EVIL)
        source(self.wheels, "rude", "1.0", "evil")
        answer = self.host.get("b", pip=["rude"])
        self.assertIn("Failed to install pip packages", answer["text"])
        self.assertIn("EVIL [('/opt', False), ('/opt/brig-wheels', False), ('/opt/brig', True), 'no network', [], "
                      "['.brig', 'venv']]", answer["text"])
        wait_until("nothing of it is left", lambda: not self.left())
        self.assertEqual(self.python(mine, "import alpha; print(alpha.said)"), "alpha 1.0\n")

    def test_too_large(self):
        wheel(self.wheels, "alpha", "1.0", text="said = '" + "x" * (3 << 20) + "'\n")
        self.restart(BRIG_TOOLS_SETS_BYTES="1m")
        answer = self.host.get("a", pip=["alpha"])
        self.assertIn("need more than 1 MiB", answer["text"])
        wait_until("nothing of it is left", lambda: not os.listdir(self.sets))

    def test_remains_of_a_crash(self):
        wheel(self.wheels, "alpha", "1.0")
        kept = self.get("a", pip=["alpha"])
        self.host.end()
        half = f"{self.sets}/{'0' * 64}.tmp-x"
        os.makedirs(f"{half}/root/" + "d/" * 300)
        os.chmod(f"{half}/root/d", 0)
        os.mkdir(f"{self.sets}/{'1' * 64}")  # without a lock
        os.symlink("/etc", f"{self.sets}/link")
        for where, dirs, files in os.walk(self.sets):
            for name in dirs + files:
                os.chown(os.path.join(where, name), self.uid, self.uid, follow_symlinks=False)
        self.host = self.start()
        wait_until("the rest is removed", lambda: sorted(os.listdir(self.sets)) == [kept["key"], f"{kept['key']}.lock"])
        self.assertEqual(self.get("a", pip=["alpha"])["lock"], kept["lock"])
        self.assertTrue(os.path.exists("/etc/passwd"))


@needs_root
@unittest.skipUnless(HAS_PIP, "no pip and venv for /usr/bin/python3")
class PipOfAPlainUser(SetsTest):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)

    def test_installed_and_used(self):
        wheel(self.wheels, "alpha", "1.0")
        one = self.get("a", pip=["alpha"])
        self.assertEqual(self.python(one, "import alpha; print(alpha.said)"), "alpha 1.0\n")


@unittest.skipUnless(HAS_NPM, "no npm")
class Npm(SetsTest):
    ENV = {"BRIG_TOOLS_ALLOW_URLS": "true"}

    def package(self, name, version, text):
        path = f"{self.wheels}/{name}-{version}.tgz"
        with tarfile.open(path, "w:gz") as tar:
            for file, data in (("package.json", json.dumps({"name": name, "version": version, "main": "index.js",
                                                            "scripts": {"postinstall": "echo ran > ran"}})),
                               ("index.js", text)):
                entry = tarfile.TarInfo(f"package/{file}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data.encode()))
        os.chmod(path, 0o644)
        return f"{name}@file:/opt/brig-wheels/{name}-{version}.tgz"

    def test_installed_locked_and_verified(self):
        wish = [self.package("gamma", "1.0.0", "module.exports = 'gamma one'\n")]
        one = self.get("a", npm=wish)
        self.assertEqual((one["venv"], one["node"]), ("", "/opt/brig/npm/node_modules"))
        ask = ("-v", f"{one['path']}:/opt/brig:ro", "-e", f"NODE_PATH={one['node']}", "-m", "1g", "--", "node", "-p",
               "require('gamma')")
        self.assertEqual(self.w.run(*ask).stdout, b"gamma one\n")
        # scripts run, in the install sandbox
        self.assertTrue(os.path.exists(f"{one['path']}/npm/node_modules/gamma/ran"))
        with open(f"{self.sets}/{one['key']}/lock.json", encoding="utf-8") as f:
            self.assertTrue(
                json.load(f)["package_lock"]["packages"]["node_modules/gamma"]["integrity"].startswith("sha512-"))
        # the same words, another content
        self.host.say(release="a")
        self.host.end()
        os.utime(f"{self.sets}/{one['key']}/used", (1, 1))
        self.package("gamma", "1.0.0", "module.exports = 'something else'\n")
        self.host = self.start()
        wait_until("the set is collected", lambda: os.listdir(self.sets) == [f"{one['key']}.lock"])
        answer = self.host.get("b", npm=wish)
        self.assertIn("Failed to install npm packages", answer["text"])
        self.assertIn("EINTEGRITY", answer["text"])


# ---- the whole service -----------------------------------------------------------------------------------------------

SOURCE = """def f() -> str:
    '''Where it is from.'''
    import os, brigtest
    return brigtest.said + ' ' + brigtest.__file__ + ' ' + os.environ.get('VIRTUAL_ENV', '')
"""


def run_tool(daemon, source, **more):
    answer = daemon.ask("POST", "/v1/tools/run", {"source_code": source, "args": {}, **more})
    return answer.status, json.loads(answer.body)


def gone(daemon):
    return not [n for n in os.listdir(f"{daemon.dir}/cache/sets") if ".tmp-" in n or ".old-" in n]


@needs_root
class ThroughTheGate(unittest.TestCase):
    """A tool with requirements, against a daemon whose host is configured for an index and a registry of the tests' own
    internet."""

    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        cls.net = Internet().usual()
        cls.addClassCleanup(cls.net.close)
        cls.net.there.run("ip", "addr", "add", f"{SHELF}/24", "dev", "world0")
        cls.net.zone.update({"shelf.test": [SHELF]})
        cls.net.shelf = {}
        cls.net.web(SHELF, 443, "shelf", "shelf.test", handler=Shelf)
        env = {k: v for k, v in cls.net.environment().items() if k.startswith("BRIG_GATE_")}
        cls.d = cls.net.here.inside(
            lambda: Daemon(env={**env, "PIP_INDEX_URL": "https://me:secret-of-the-index@shelf.test/simple/",
                                "npm_config_registry": "https://shelf.test/"}))
        cls.addClassCleanup(cls.d.close)

    @unittest.skipUnless(HAS_PIP, "no pip and venv for /usr/bin/python3")
    def test_pip(self):
        python_index(self.net.shelf)
        status, said = run_tool(self.d, SOURCE, pip_requirements=[{"name": "brigtest", "version": "1.0"}])
        self.assertEqual((status, said["status"]), (200, "success"), said)
        self.assertRegex(said["tool_return"],
                         r"^from a wheel /opt/brig/venv/lib/python3\.\d+/site-packages/brigtest\.py /opt/brig/venv$")
        self.assertFalse([s for s in self.net.seen if "Authorization" in s[3]])  # the index's password stays outside
        before = len(self.net.seen)
        self.assertEqual(run_tool(self.d, SOURCE,
                                  pip_requirements=[{"name": "brigtest", "version": "1.0"}])[1]["tool_return"],
                         said["tool_return"])
        self.assertEqual(len(self.net.seen), before)  # built once
        status, said = run_tool(self.d, SOURCE, pip_requirements=[{"name": "brigtest", "version": "9"}])
        self.assertEqual(said["status"], "error", said)
        self.assertIn("Failed to install pip packages (sandbox requirements: none; tool requirements: brigtest==9). "
                      "This may be due to", said["tool_return"])
        self.assertIn("No matching distribution found for brigtest==9", str(said))
        wait_until("nothing of it is left", lambda: gone(self.d))

    @unittest.skipUnless(HAS_NPM, "no npm")
    def test_npm(self):
        npm_registry(self.net.shelf)
        status, said = run_tool(self.d, "function f() { return require('brigtest') }", source_type="javascript",
                                npm_requirements=[{"name": "brigtest", "version": "1.0.0"}],
                                json_schema={"name": "f", "description": "",
                                             "parameters": {"type": "object", "properties": {}}})
        self.assertEqual((status, said["status"], said["tool_return"]), (200, "success", "from a registry"), said)

    def test_a_request_cannot_bind_what_the_service_may(self):
        answer = self.d.ask("POST", "/v1/sandboxes",
                            {"binds": [{"source": f"{self.d.dir}/cache/sets", "target": "/x"}]})
        self.assertIn("not in a directory that this service may share", answer.body.decode())
        self.assertGreaterEqual(answer.status, 400)


class Configured(unittest.TestCase):
    """The index of this machine, where it answers the host's own pip. Its name is nobody's business here."""

    LIMIT_SECONDS = 120

    @unittest.skipUnless(HAS_PIP, "no pip and venv for /usr/bin/python3")
    def test_pip(self):
        with tempfile.TemporaryDirectory() as where:
            outside = subprocess.run(["env", "-u", "PIP_FIND_LINKS", "-u", "PIP_NO_INDEX", PYTHON, "-m", "pip",
                                      "download", "-q", "--no-deps", "--no-cache-dir", "--retries", "0", "--timeout",
                                      "10", "-d", where,
                                      "idna"],
                                     capture_output=True, timeout=30, check=False, cwd="/")
        if outside.returncode != 0:
            self.skipTest("the configured Python index does not answer")
        daemon = Daemon(env={n: os.environ[n]
                             for n in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST") if n in os.environ})
        self.addCleanup(daemon.close)
        status, said = run_tool(daemon,
                                SOURCE.replace("brigtest.said", "brigtest.__name__").replace("brigtest", "idna"),
                                pip_requirements=[{"name": "idna"}])
        self.assertEqual((status, said["status"]), (200, "success"), said["tool_return"][:2000])
        self.assertIn("/opt/brig/venv/lib/python3", said["tool_return"])
