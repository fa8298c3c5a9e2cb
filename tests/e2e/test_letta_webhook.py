# SPDX-License-Identifier: Apache-2.0
"""Letta's own cases of the credentials webhook (sandbox_credentials_service_test.py). test_webhook.py has ours."""

import http.server
import json
import threading

from lettakit import USER, LettaTest
from service import DEFAULT_ORG



class Hook(http.server.BaseHTTPRequestHandler):
    """Answers as its class says, and keeps what it was asked."""

    asked, status, answer = [], 200, b"{}"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Hook.asked.append((self.path, self.headers.get("Authorization"), json.loads(body)))
        self.send_response(Hook.status)
        self.send_header("Content-Length", str(len(Hook.answer)))
        self.end_headers()
        self.wfile.write(Hook.answer)

    def log_message(self, *args):
        pass


class Webhook(LettaTest):
    """W: sandbox_credentials_service_test.py."""

    SOURCE = 'def f():\n    """F."""\n    import os\n    return os.environ.get("FROM_HOOK", "none")[::-1]\n'

    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.CONFIG = (f'[tools]\nwebhook_url = "http://127.0.0.1:{cls.server.server_port}"\nwebhook_key = "test-key"\n'
                      'webhook_cache = 0\n')
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.server.shutdown()
        cls.server.server_close()

    def hook(self, answer, status=200):
        Hook.asked, Hook.status, Hook.answer = [], status, answer

    def test_W2_success(self):
        self.hook(b'{"FROM_HOOK": "abcdefgh"}')
        tool = self.tool(self.SOURCE)
        agent = self.agent(tool)
        self.assertEqual(self.run_agent(agent, tool)["func_return"], "hgfedcba")
        self.assertEqual(Hook.asked[-1],
                         ("/webhook/sandbox-credentials", "Bearer test-key",
                          {"user_id": USER, "organization_id": DEFAULT_ORG, "tool_name": "f", "agent_id": agent["id"]}))

    def test_W2_source_has_no_name_that_credentials_are_for(self):
        """Whoever brings source calls it as he likes: credentials are asked for as `run`, which no tool is called."""
        self.hook(b'{"FROM_HOOK": "abcdefgh"}')
        self.assertEqual(self.source(self.SOURCE, name="send_email")["status"], "success")
        self.assertEqual(Hook.asked[-1][2]["tool_name"], "run")

    def test_W2_credentials_are_for_the_tool_that_needs_them(self):
        """A shell runs what BASH_ENV says: who runs an administrator's tool says nothing beside its credentials."""
        self.hook(b'{"FROM_HOOK": "abcdefgh"}')
        user, code = self.d.key(), {"BASH_ENV": "$(echo $FROM_HOOK | rev >&2)"}
        tool = self.tool("echo $FROM_HOOK | rev\n", source_type="bash", brig={"needs_credentials": True},
                         json_schema={"name": "needy", "parameters": {"type": "object", "properties": {}}})
        agent = self.ask("POST", "/agents/", {"name": "a", "tool_ids": [tool["id"]], "secrets": code}, key=user)["id"]
        box = self.ask("POST", "/sandboxes", {}, status=201, key=user)["id"]
        alone = "needs_credentials: needs a sandbox of the run's own, without sandbox_id and reuse"
        only = "only an administrator may say it for a tool that is given credentials"
        for status, words, members in ((403, f"env_vars: {only}", {"env_vars": code}),
                                       (403, f"network: {only}", {"network": "none"}),
                                       (422, alone, {"sandbox_id": box}), (422, alone, {"reuse": "fingerprint"})):
            answer = self.d.ask("POST", "/v1/tools/needy/run", members, key=user)
            self.assertEqual(answer.status, status, answer)
            self.assertEqual(answer.json["error"]["message"], words)
        self.assertEqual(Hook.asked, [])  # refused before anybody was asked
        ran = self.ask("POST", "/tools/needy/run", {"agent_id": agent}, key=user)
        self.assertEqual((ran["stdout"], ran["stderr"]), ("hgfedcba\n", ""))
        self.ask("DELETE", f"/sandboxes/{box}", status=204)

    def test_W2_a_user_key_has_no_credentials_by_name(self):
        """Without needs_credentials a caller says what runs beside a tool; who registers one calls it as he likes."""
        class ByName(Hook):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                Hook.asked.append(body["tool_name"])
                answer = {"FROM_HOOK": {"mailer": "abcdefgh"}.get(body["tool_name"], "nothing1")}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

        self.server.RequestHandlerClass, before = ByName, self.server.RequestHandlerClass
        self.addCleanup(setattr, self.server, "RequestHandlerClass", before)
        self.hook(b"")
        user, code = self.d.key(), {"BASH_ENV": "$(echo $FROM_HOOK | rev >&2)"}
        schema = {"name": "mailer", "parameters": {"type": "object", "properties": {}}}
        tool = self.tool("echo $FROM_HOOK | rev\n", source_type="bash", json_schema=schema)
        mine, note = "1gnihton\n", "credentials: asked for as run, not as mailer"
        ran = self.ask("POST", "/tools/mailer/run", {})
        self.assertEqual((ran["stdout"], ran["receipt"].get("note")), ("hgfedcba\n", None))
        for members in ({}, {"env_vars": code}, {"network": "open"}):
            ran = self.ask("POST", "/tools/mailer/run", members, key=user)
            self.assertEqual((ran["stdout"], ran["receipt"].get("note")), (mine, note), members)
            self.assertNotIn("hgfedcba", ran["stderr"])
        self.ask("PATCH", f"/tools/{tool['id']}", {"source_code": "echo $FROM_HOOK | rev # mine\n"}, key=user)
        for key in (user, None):  # nobody but an administrator answers for it now
            ran = self.ask("POST", "/tools/mailer/run", {}, key=key)
            self.assertEqual((ran["stdout"], ran["receipt"]["note"]), (mine, note))
        self.assertEqual(Hook.asked, ["mailer"] + ["run"] * 5)

    def test_W5_an_error_leaves_the_run_without_credentials(self):
        for status, answer in ((500, b"{}"), (200, b'"text"'), (200, b"nonsense")):  # W5, W6
            self.hook(answer, status)
            ran = self.source(self.SOURCE)
            self.assertEqual((ran["status"], ran["tool_return"]), ("success", "enon"), ran)
