# SPDX-License-Identifier: Apache-2.0
"""docs/TROUBLESHOOTING.md: every message in it is what a user gets to see. Each fenced block has the name of a case
here; … is anything."""

import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import zipfile

from helpers import BRIG, PATIENCE, wait_until
from lettakit import ADD, LettaTest, wheel
from service import DEFAULT_ORG, Daemon
from test_documents import text_of


def function(name, body, args=""):
    return f'def {name}({args}):\n    """Does what the test wants."""\n' + "".join(f"    {line}\n"
                                                                                   for line in body.splitlines())


def blocks():
    """{name: text} of the fenced blocks."""
    return dict(re.findall(r"^```([\w-]+)\n(.*?)\n```$", text_of("docs/TROUBLESHOOTING.md"), re.M | re.S))


def depends(directory, name, version, on):
    """A wheel that needs another one."""
    wheel(directory, name, version, {f"{name}.py": ""})
    with zipfile.ZipFile(os.path.join(directory, f"{name}-{version}-py3-none-any.whl"), "a") as z:
        z.writestr(f"{name}-{version}.dist-info/METADATA",
                   f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: {on}\n")


class NoCredentials(http.server.BaseHTTPRequestHandler):
    """A credential webhook that has none for us."""

    def do_POST(self):
        self.send_error(403)

    def log_message(self, *args):
        pass


class Troubleshooting(LettaTest):
    @classmethod
    def setUpClass(cls):
        cls.wheels = tempfile.mkdtemp(prefix="brig-wheels-")
        cls.addClassCleanup(shutil.rmtree, cls.wheels)
        os.chmod(cls.wheels, 0o755)
        wheel(cls.wheels, "alpha", "1.0", {"alpha.py": ""})
        depends(cls.wheels, "beta", "1.0", "alpha==2.0")
        webhook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoCredentials)
        cls.addClassCleanup(webhook.server_close)
        cls.addClassCleanup(webhook.shutdown)
        threading.Thread(target=webhook.serve_forever, daemon=True).start()
        cls.d = Daemon(f'[tools]\nfind_links = "{cls.wheels}"\napproval_timeout = "100ms"\nmax_runs = 24\n'
                       'pool_max = 2\n'
                       f'webhook_url = "http://127.0.0.1:{webhook.server_port}"\nwebhook_key = "k"\n')

    # ---- ways to ask ------------------------------------------------------------------------------------------------

    def cli(self, *words, user=None, **env):
        who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        done = subprocess.run([BRIG, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**self.d.env, **env}, timeout=PATIENCE, check=False, **who)
        return done.stdout + done.stderr

    def post(self, path, body, **more):
        return self.d.ask("POST", f"/v1{path}", body, **more)

    def said(self, path, body, method="POST", **more):
        """All the text of an answer, as somebody reads it."""
        answer = self.d.ask(method, f"/v1{path}", body, **more).json
        error = answer.get("error")
        if isinstance(error, dict):
            return error["message"]
        if "receipt" in answer:
            failed = answer["receipt"].get("error", {})
            return "\n".join([answer.get("error") or "", f"{failed.get('type')}: {failed.get('message')}",
                              json.dumps(answer["receipt"], separators=(",", ":"), ensure_ascii=False)])
        return str(answer["detail"])

    def register(self, source, **members):
        return self.tool(source, **members)["name"]

    def code(self, code, language="python", **members):
        return self.said("/run", {"language": language, "code": code, **members})

    def f(self, body, run=None, **members):
        """The body of a function, registered and run."""
        name = self.register(function("f", body), **members)
        return self.said(f"/tools/{name}/run", run or {})

    def over_tcp(self, key=None):
        return self.said("/run", {"language": "python", "code": "1"}, tcp=True, key=key)

    # ---- authentication ---------------------------------------------------------------------------------------------

    def case_no_daemon(self):
        return self.cli("tool", "ls", BRIG_SOCKET="/nonexistent/brig.sock")

    def case_not_a_user(self):
        return self.cli("tool", "ls", user=65534, HOME="/")

    def case_host_without_key(self):
        return self.cli("tool", "ls", BRIG_HOST=f"http://127.0.0.1:{self.d.port}")

    def case_no_key(self):
        return self.over_tcp()

    def case_unknown_key(self):
        return self.over_tcp("nobody-knows-it")

    def case_revoked_key(self):
        key = self.post("/keys", {}).json
        self.d.ask("DELETE", f"/v1/keys/{key['id']}")
        return self.over_tcp(key["key"])

    def case_expired_key(self):
        key = self.d.key(expires="1s")
        wait_until("it has expired", lambda: self.d.ask("GET", "/v1/sandboxes", tcp=True, key=key).status == 401)
        return self.over_tcp(key)

    def case_unauthorized(self):
        return self.d.ask("GET", "/v1/tools/", tcp=True).body.decode()

    def case_read_only(self):
        return self.over_tcp(self.d.key(role="read-only"))

    def case_not_an_admin(self):
        return self.said("/secrets/A", {"value": "b"}, "PUT", tcp=True, key=self.d.key(role="user"))

    def case_not_allowed(self):
        name = self.register(function("forbidden", "return 1"))
        self.ask("PUT", f"/orgs/{DEFAULT_ORG}/tools", {"deny": [name]})
        return self.said(f"/tools/{name}/run", {})

    def case_not_approved(self):
        return self.f("return 1", default_requires_approval=True)

    def case_no_sealing_key(self):
        return self.said("/agents/", {"name": "a", "secrets": {"A": "b"}})

    def case_no_variable(self):
        return self.f("import os\nreturn os.environ['API_TOKEN']")

    def case_no_credentials(self):
        return self.f("return 1", brig={"needs_credentials": True})

    # ---- time-outs --------------------------------------------------------------------------------------------------

    def case_timeout(self):
        return self.said(f"/tools/{self.register(function('slow', 'import time' + chr(10) + 'time.sleep(600)'))}/run",
                         {"timeout": 0.5})

    def case_no_network(self):
        return self.code("import urllib.request\nurllib.request.urlopen('http://example.com')")

    def case_rate_limit(self):
        name = self.register(function("limited", "return 1"),
                             brig={"rate_limit": {"max_calls": 1, "window_seconds": 600}})
        self.said(f"/tools/{name}/run", {})
        return self.said(f"/tools/{name}/run", {})

    def case_too_many_runs(self):
        begun = [self.ask("POST", "/run", {"command": ["sleep", "600"], "background": True}, status=202)["id"]
                 for _ in range(24)]
        try:
            return self.code("1")
        finally:
            for run in begun:
                self.d.ask("DELETE", f"/v1/runs/{run}")
            for run in begun:
                wait_until("it has ended", lambda run=run: "outcome" in self.d.ask("GET", f"/v1/runs/{run}").json)

    # ---- missing modules --------------------------------------------------------------------------------------------

    def case_no_module(self):
        return self.f("import cowsay")

    def case_no_node_module(self):
        return self.code("require('left-pad')", "javascript")

    def case_no_command(self):
        return self.code("nosuch", "bash")

    def case_url_requirement(self):
        return self.said("/tools/run", {"source_code": ADD, "args": {"x": 1, "y": 2},
                                        "pip_requirements": [{"name": "git+https://example.com/x"}]})

    def case_directory(self):
        return self.said("/sandbox-config/local", {"sandbox_dir": "/etc"})

    # ---- cold start -------------------------------------------------------------------------------------------------

    def pools(self):
        return self.d.ask("GET", "/v1/pools").body.decode()

    def case_cold(self):
        self.code("1")
        return self.pools()

    def case_prewarm(self):
        self.assertEqual(self.cli("pool", "prewarm", "-q", "--lang", "bash", "2"), "")
        wait_until("two are ready", lambda: '"parked":2' in self.pools())
        return self.pools()

    # ---- dependency conflicts ---------------------------------------------------------------------------------------

    def install(self, *wanted):
        return self.said("/tools/run",
                         {"source_code": ADD, "args": {"x": 1, "y": 2},
                          "pip_requirements": [dict(zip(("name", "version"), w.split("=="))) for w in wanted]})

    def case_conflict(self):
        return self.install("alpha==1.0", "beta==1.0")

    case_conflict_reason = case_conflict

    def case_no_version(self):
        return self.install("alpha==9")

    # ---- corrupt output ---------------------------------------------------------------------------------------------

    def case_printed(self):
        return self.f("print(42)")

    def case_no_answer(self):
        return self.f("import os\nos._exit(0)")

    def case_memory(self):
        return self.f("return len(bytearray(1 << 28))", {"limits": {"memory": "64m"}})

    def case_too_large(self):
        return self.f("return 'x' * 17000000")

    def case_truncated(self):
        return self.f("return 'x' * 100", return_char_limit=10)

    def case_cycle(self):
        return self.f("a = []\na.append(a)\nreturn a")

    def case_object(self):
        return self.f("return object()")

    def case_scrubbed(self):
        return self.f("import os\nprint('token', os.environ['TOKEN'])",
                      {"env_vars": {"TOKEN": "correct-horse-battery"}})

    def case_binary(self):
        return self.f("import sys\nsys.stdout.buffer.write(b'\\xff')")

    # ---- registering, and arguments ---------------------------------------------------------------------------------

    def case_no_docstring(self):
        return self.said("/tools/", {"source_code": "def h(x: int):\n    return x\n"})

    def case_no_annotation(self):
        return self.said("/tools/", {"source_code": 'def h(x):\n    """H.\n\n    Args:\n        x: x\n    """\n'})

    def case_syntax(self):
        return self.said("/tools/", {"source_code": "def h(:\n"})

    def case_no_function(self):
        return self.said("/tools/", {"source_code": "x = 1\n"})

    def case_not_python(self):
        return self.said("/tools/", {"source_code": "export function h() {}", "source_type": "javascript"})

    def add(self, **args):
        return self.said(f"/tools/{self.register(ADD)}/run", {"args": args})

    def case_argument_type(self):
        return self.add(x="a", y=1)

    def case_argument_missing(self):
        return self.add(x=1)

    def case_argument_unknown(self):
        return self.add(x=1, y=2, z=3)

    def case_no_tool(self):
        return self.said("/tools/nope/run", {})

    # ---- all of them ------------------------------------------------------------------------------------------------

    def test_every_message(self):
        shown = blocks()
        self.assertEqual(sorted(shown),
                         sorted(name[5:].replace("_", "-") for name in dir(self) if name.startswith("case_")))
        seen = {}
        for name, text in shown.items():
            with self.subTest(name):
                if name == "not-a-user" and os.geteuid() != 0:
                    continue  # one user cannot be another
                case = getattr(type(self), "case_" + name.replace("-", "_"))
                seen[case] = seen.get(case) or case(self)  # two blocks of one answer are one question
                self.assertRegex(seen[case], ".*".join(re.escape(part) for part in text.split("…")))
