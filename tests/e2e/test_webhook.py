# SPDX-License-Identifier: Apache-2.0
"""The credential webhook against a real server on loopback: what it is asked, what becomes of its answers, and what a
run is without them. test_letta_webhook.py has Letta's own cases."""

import http.server
import json
import os
import shutil
import ssl
import tempfile
import threading
import unittest

from brokerkit import World
from helpers import PATIENCE
from lettakit import USER, LettaTest
from service import DEFAULT_ORG

# Backwards, because what comes from the webhook is kept out of results.
SOURCE = ('def f(name: str = "FROM_HOOK"):\n    """F.\n\n    Args:\n        name (str): Which.\n    """\n'
          '    import os\n    return os.environ.get(name, "none")[::-1]\n')
VALUE = "value-of-the-hook-7391"
KEY = "key-of-the-hook-5127"


class Handler(http.server.BaseHTTPRequestHandler):
    def setup(self):
        if self.server.context:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.asked.append((self.path, dict(self.headers), json.loads(body)))
        status, answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        if status == "never":
            server.released.wait(PATIENCE)
            return
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """answers: one after the other, the last one for ever. context: of TLS, taken anew for each connection."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.answers, self.context, self.released = [], [], None, threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # who does not like our certificate ends the connection

    def end(self):
        self.released.set()
        self.shutdown()
        self.server_close()


class WebhookTest(LettaTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.end)
        cls.configure()
        super().setUpClass()

    def hook(self, *answers):
        self.server.asked = []
        self.server.answers = [(status, json.dumps(a).encode() if isinstance(a, dict) else a) for status, a in answers]

    def without(self, why):
        """An ordinary tool runs without credentials, and its receipt says why; one that needs them does not run.
        Returns how often each asked."""
        self.server.asked = []
        ran = self.run_tool(self.plain)
        self.assertEqual((ran["status"], ran["result"]), ("success", "enon"), ran)
        self.assertRegex(ran["receipt"]["note"], f"^without credentials: {why}$")
        asked, self.server.asked = len(self.server.asked), []
        answer = self.ask("POST", f"/tools/{self.needy['name']}/run", {}, status=503)
        self.assertEqual(set(answer), {"error"}, answer)
        self.assertEqual(answer["error"]["code"], "busy", answer)
        self.assertRegex(answer["error"]["message"], f"^credentials: {why}$")
        return [asked, len(self.server.asked)]

    def tools(self):
        self.plain = self.tool(SOURCE)
        self.needy = self.tool(SOURCE.replace("def f", "def needy"), brig={"needs_credentials": True})


class Webhook(WebhookTest):
    @classmethod
    def configure(cls):
        cls.CONFIG = (f'[tools]\nwebhook_url = "http://127.0.0.1:{cls.server.server_port}/"\nwebhook_key = "{KEY}"\n'
                      f'webhook_cache = 0\nwebhook_timeout = "2s"\n')

    def setUp(self):
        self.tools()

    def test_what_is_asked(self):
        self.hook((200, {"FROM_HOOK": VALUE}))
        agent = self.agent(self.plain)
        self.run_agent(agent, self.plain)
        self.run_tool(self.plain)
        for (path, headers, body), more in zip(self.server.asked, ({"agent_id": agent["id"]}, {})):
            self.assertEqual((path, headers["Authorization"], headers["Content-Type"]),
                             ("/webhook/sandbox-credentials", f"Bearer {KEY}", "application/json"))
            self.assertEqual(body, {"user_id": USER, "organization_id": DEFAULT_ORG, "tool_name": "f", **more})
        self.assertEqual(len(self.server.asked), 2)
        self.ask("POST", "/run", {"language": "python", "code": "1"})  # no tool: nobody to ask for
        self.assertEqual(len(self.server.asked), 2)

    def test_its_layer(self):
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        self.ask("POST", f"/sandbox-config/{config}/environment-variable",
                 {"key": "OVER", "value": "of-the-configuration"})
        agent = self.agent(self.plain, secrets={"MINE": "of-the-agent"}, project_id="project-of-the-agent")
        self.hook((200,
                   {name: f"of-the-hook-{name}" for name in ("OVER", "MINE", "CALLED", "PROJECT_ID", "LETTA_TOOL_ID")}))

        def value(name):
            ran = self.run_tool(self.plain, {"name": name}, agent_id=agent["id"], env_vars={"CALLED": "of-the-call"})
            return ran["result"][::-1], ran["receipt"]["environment"]

        self.assertEqual(value("OVER")[0], "of-the-hook-OVER")
        self.assertEqual(value("MINE")[0], "of-the-agent")
        self.assertEqual(value("CALLED")[0], "of-the-call")
        self.assertEqual(value("LETTA_TOOL_ID")[0], self.plain["id"])
        project, layers = value("PROJECT_ID")
        self.assertEqual(project, "project-of-the-agent")
        self.assertEqual([layers[n] for n in ("OVER", "MINE", "CALLED", "PROJECT_ID", "LETTA_TOOL_ID")],
                         ["webhook", "agent", "runtime", "webhook", "forced"])

    def test_failures(self):
        self.hook((500, b"{}"), (503, b"{}"), (200, {"FROM_HOOK": VALUE}))  # they are over soon
        self.assertEqual(self.run_tool(self.needy)["result"], VALUE[::-1])
        self.assertEqual(len(self.server.asked), 3)
        self.hook((500, b"{}"))
        self.assertEqual(self.without("the credential webhook answered 500"), [3, 3])
        self.hook((404, b"{}"))
        self.assertEqual(self.without("the credential webhook answered 404"), [1, 1])
        for answer in (b'"text"', b"[]", b"nonsense", b""):
            self.hook((200, answer))
            self.assertEqual(self.without("the credential webhook's answer is no JSON object"), [1, 1])
        self.hook((200, b'{"A":"' + b"x" * 70000 + b'"}'))
        self.assertEqual(self.without("the credential webhook's answer is longer than 65536 bytes"), [1, 1])
        for status in (302, 307):
            self.hook((status, b""))
            self.assertEqual(self.without(f"the credential webhook answered {status}"), [1, 1])
            self.assertEqual({path for path, _, _ in self.server.asked}, {"/webhook/sandbox-credentials"})

    def test_a_server_that_does_not_answer(self):
        self.hook(("never", b""))
        answer = self.ask("POST", f"/tools/{self.needy['name']}/run", {}, status=503)
        self.assertRegex(answer["error"]["message"], "^credentials: credential webhook: Operation timed out after")
        self.assertEqual(len(self.server.asked), 1)

    def test_nothing_of_it_is_kept(self):
        self.hook((200, {"FROM_HOOK": VALUE}))
        ran = self.source('def g():\n    """G."""\n    import os\n    print(os.environ["FROM_HOOK"])\n'
                          '    return os.environ["FROM_HOOK"]\n')
        self.assertNotIn(VALUE, json.dumps(ran))
        self.hook((404, VALUE.encode()))
        self.without("the credential webhook answered 404")
        self.hook((200, VALUE.encode()))
        self.without("the credential webhook's answer is no JSON object")
        seen = [self.d.all_text(),
                *(self.d.ask("GET", f"/v1{path}").body.decode() for path in ("/audit?limit=1000", "/runs?limit=100"))]
        for text in seen:
            self.assertNotIn(VALUE, text)
            self.assertNotIn(KEY, text)
        self.assertIn("tool.run", seen[1])
        self.assertIn("without credentials", seen[2])
        for where, _, names in os.walk(f"{self.d.dir}/state"):
            for name in names:
                path = os.path.join(where, name)
                if os.path.isfile(path):
                    with open(path, "rb") as f:
                        data = f.read()
                    self.assertFalse(VALUE.encode() in data or KEY.encode() in data, path)


class Cached(WebhookTest):
    """By Letta's names, without a key, and with a cache."""

    @classmethod
    def configure(cls):
        cls.ENV = {"STEP_ORCHESTRATOR_ENDPOINT": f"http://127.0.0.1:{cls.server.server_port}"}
        cls.CONFIG = '[tools]\nwebhook_cache = "10m"\n'

    def test_one_request_for_two_runs(self):
        self.tools()
        self.hook((500, b"{}"))
        self.without("the credential webhook answered 500")  # a failure is not kept
        self.hook((200, {"FROM_HOOK": VALUE}))
        self.assertEqual([self.run_tool(self.plain)["result"] for _ in range(2)], [VALUE[::-1]] * 2)
        self.assertEqual(len(self.server.asked), 1)
        self.assertNotIn("Authorization", self.server.asked[0][1])
        self.run_tool(self.needy)  # another tool is another question
        self.assertEqual([body["tool_name"] for _, _, body in self.server.asked], ["f", "needy"])


@unittest.skipUnless(shutil.which("openssl"), "makes certificates with openssl")
class Tls(WebhookTest):
    @classmethod
    def configure(cls):
        cls.dir = tempfile.mkdtemp(prefix="brig-hook-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        os.chmod(cls.dir, 0o755)
        for name in ("known", "other"):
            os.mkdir(f"{cls.dir}/{name}")
        known, other = World(f"{cls.dir}/known"), World(f"{cls.dir}/other")
        os.chmod(known.ca, 0o644)
        cls.certificates = {"known": known.certificate("localhost"), "other": other.certificate("localhost"),
                            "name": known.certificate("elsewhere.example")}
        cls.CONFIG = (f'[gate]\nca_bundle = "{known.ca}"\n[tools]\n'
                      f'webhook_url = "https://localhost:{cls.server.server_port}"\nwebhook_key = "{KEY}"\n'
                      'webhook_cache = 0\n')

    def shows(self, which):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificates[which])
        self.server.context = context

    def test_only_a_server_that_the_bundle_knows(self):
        self.tools()
        self.hook((200, {"FROM_HOOK": VALUE}))
        for which in ("other", "name"):
            self.shows(which)
            self.assertEqual(self.without("credential webhook: SSL.*"), [0, 0])
        self.shows("known")
        self.assertEqual(self.run_tool(self.needy)["result"], VALUE[::-1])
        self.assertEqual(self.server.asked[0][1]["Authorization"], f"Bearer {KEY}")
