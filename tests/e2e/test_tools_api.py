# SPDX-License-Identifier: Apache-2.0
"""Native runs of tools and code through a real daemon: answers, streams, the background, files, approvals, lists,
rates, pools, providers, rotation."""

import base64
import io
import json
import tarfile
import threading

from helpers import wait_until
from lettakit import ADD, KEY, LettaTest

SLEEP = ('def sleeper() -> str:\n    """Sleeps."""\n    import time\n    print("begun", flush=True)\n'
         '    time.sleep(600)\n')
ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
        "additionalProperties": False}


def schema(name, parameters=None):
    return {"name": name, "description": name, "parameters": parameters or {"type": "object", "properties": {}}}


class Runs(LettaTest):
    CONFIG = "[tools]\napproval_timeout = \"60s\"\n"

    def error(self, method, path, body=None, status=400, **more):
        answer = self.d.ask(method, f"/v1{path}", body, **more)
        self.assertEqual(answer.status, status, answer)
        return answer.json["error"]["message"]

    # ---- tools ------------------------------------------------------------------------------------------------------

    def test_answer(self):
        tool = self.tool(ADD)
        for who in (tool["name"], tool["id"]):
            ran = self.ask("POST", f"/tools/{who}/run", {"args": {"x": 2, "y": 3}})
            self.assertEqual((ran["status"], ran["result"], ran["error"], ran["stdout"], ran["stderr"]),
                             ("success", 5, None, "", ""))
            self.assertEqual((ran["receipt"]["id"], ran["receipt"]["kind"], ran["receipt"]["outcome"]["cause"]),
                             (ran["id"], "tool", "exited"))
        self.assertEqual(self.ask("GET", f"/runs/{ran['id']}")["id"], ran["id"])
        self.assertIn("Tool 'missing' not found", self.error("POST", "/tools/missing/run", {}, status=404))
        for body in ({"args": []}, {"env_vars": []}, {"timeout": "soon"}, {"reuse": "x"}, {"unknown": 1}, {"stream": 1},
                     {"stream": True, "background": True}, {"network": 1},
                     {"sandbox_id": "x", "reuse": "agent"}):
            self.error("POST", "/tools/add/run", body)
        self.assertIn("agent", self.error("POST", "/tools/add/run", {"agent_id": "agent-x"}, status=404))
        self.assertIn("read-only",
                      self.error("POST", "/tools/add/run", {}, status=403, key=self.d.key(role="read-only")))

    def test_arguments_are_checked(self):
        self.tool(ADD)
        self.assertIn("y", self.error("POST", "/tools/add/run", {"args": {"x": 1}}, status=422))
        self.assertIn("x", self.error("POST", "/tools/add/run", {"args": {"x": "one", "y": 2}}, status=422))

    def test_failure(self):
        self.tool('def fails():\n    """Fails."""\n    print("out")\n    raise KeyError("k")\n')
        ran = self.ask("POST", "/tools/fails/run")
        self.assertEqual((ran["status"], ran["result"], ran["stdout"]), ("error", None, "out\n"))
        self.assertIn("Error executing function fails: KeyError", ran["error"])
        self.assertEqual(ran["receipt"]["error"]["type"], "KeyError")

    def test_time_is_over(self):
        self.tool(SLEEP)
        ran = self.ask("POST", "/tools/sleeper/run", {"timeout": "500ms"})
        self.assertEqual((ran["status"], ran["receipt"]["outcome"]["cause"], ran["stdout"]),
                         ("error", "timeout", "begun\n"))

    def test_stream(self):
        self.tool('def talks() -> int:\n    """Talks."""\n    import sys\n    print("to stdout", flush=True)\n'
                  '    print("to stderr", file=sys.stderr, flush=True)\n    return 7\n')
        for body, headers in (({"stream": True}, {}), ({}, {"Accept": "text/event-stream"})):
            answer = self.d.ask("POST", "/v1/tools/talks/run", body, headers=headers)
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "text/event-stream"))
            events = [(e.split("\n")[0].removeprefix("event: "), json.loads(e.split("\n")[1].removeprefix("data: ")))
                      for e in answer.body.decode().strip().split("\n\n")]
            self.assertEqual("".join(d["data"] for name, d in events if name == "stdout"), "to stdout\n")
            self.assertEqual("".join(d["data"] for name, d in events if name == "stderr"), "to stderr\n")
            self.assertEqual((events[-1][0], events[-1][1]["result"]), ("result", 7))
        # a refusal has its status all the same
        self.error("POST", "/tools/talks/run", {"stream": True, "sandbox_id": "nowhere"}, status=404)

    def test_background_and_cancel(self):
        self.tool(SLEEP)
        started = self.ask("POST", "/tools/sleeper/run", {"background": True}, status=202)
        path = f"/runs/{started['id']}"
        wait_until("it runs", lambda: self.ask("GET", path).get("status") == "running")
        other = self.d.key(org=self.ask("POST", "/orgs", {"name": "o"}, status=201)["id"])
        self.error("DELETE", path, status=404, key=other)
        self.ask("DELETE", path, status=202)
        wait_until("the receipt is there", lambda: "outcome" in self.ask("GET", path)
                   and self.ask("GET", path)["outcome"]["cause"] == "cancelled")
        self.error("DELETE", path, status=404)
        self.tool(ADD)
        done = self.ask("POST", "/tools/add/run", {"args": {"x": 1, "y": 1}, "background": True}, status=202)
        wait_until("it is done", lambda: "outcome" in self.ask("GET", f"/runs/{done['id']}"))
        self.assertEqual(self.ask("GET", f"/runs/{done['id']}")["result"], 2)

    def test_a_client_that_leaves_cancels(self):
        self.tool(SLEEP)
        c = self.d.connection()
        c.request("POST", "/v1/tools/sleeper/run", json.dumps({"stream": True}), {"Content-Type": "application/json"})
        self.assertEqual(c.getresponse().readline(), b"event: stdout\n")
        c.close()
        wait_until("a receipt says so", lambda: [r for r in self.ask("GET", "/runs?cause=cancelled")["runs"]
                                                 if (r.get("tool") or {}).get("name") == "sleeper"])

    # ---- code and commands ------------------------------------------------------------------------------------------

    def test_once(self):
        ran = self.ask("POST", "/run",
                       {"language": "python", "code": "print(open('in.txt').read())\n"
                        "open('made.bin', 'wb').write(b'\\x00\\x01')\n", "collect": ["made.bin"], "files": [
                            {"path": "in.txt", "content": "put in"},
                            {"path": "b.bin", "base64": base64.b64encode(b"\0").decode()}]})
        self.assertEqual((ran["status"], ran["stdout"], ran["receipt"]["kind"]), ("success", "put in\n", "code"), ran)
        self.assertEqual(base64.b64decode(ran["files"][0]["base64"]), b"\0\1")
        for body in ({"command": ["/bin/echo", "a b"]}, {"command": "echo 'a b'"},
                     {"language": "bash", "code": "echo 'a b'"}):
            ran = self.ask("POST", "/run", body)
            self.assertEqual((ran["status"], ran["stdout"]), ("success", "a b\n"), ran)
        for body in ({}, {"code": "x", "command": "y"}, {"code": 1}, {"code": "x", "language": "cobol"},
                     {"code": "x", "files": [{}]}, {"code": "x", "collect": [1]}):
            self.error("POST", "/run", body)

    def test_files_of_a_run(self):
        ran = self.ask("POST", "/run", {"language": "bash", "code": "mkdir -p out && echo kept > out/a.txt"})
        wait_until("the files are kept", lambda: self.d.ask("GET", f"/v1/runs/{ran['id']}/files").status == 200)
        answer = self.d.ask("GET", f"/v1/runs/{ran['id']}/files")
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/x-tar"), answer)
        with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
            found = {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}
        self.assertIn(b"kept\n", found.values())
        self.error("GET", "/runs/run-00000000-0000-4000-8000-000000000000/files", status=404)
        other = self.d.key(org=self.ask("POST", "/orgs", {"name": "o2"}, status=201)["id"])
        self.error("GET", f"/runs/{ran['id']}/files", status=404, key=other)

    # ---- what is asked before ---------------------------------------------------------------------------------------

    def test_lists(self):
        org = self.ask("POST", "/orgs", {"name": "lists"}, status=201)["id"]
        admin, user = self.d.key(org=org, role="admin"), self.d.key(org=org)
        self.ask("POST", "/tools/", {"source_code": "def ok():\n    return 1\n", "json_schema": schema("ok")}, key=user)
        self.assertEqual(self.ask("GET", f"/orgs/{org}/tools", key=admin), {})
        lists = {"allow": ["o*"], "deny": ["ok"]}
        self.assertEqual(self.ask("PUT", f"/orgs/{org}/tools", lists, key=admin), lists)
        self.assertEqual(self.error("POST", "/tools/ok/run", {}, status=403, key=user), "Tool 'ok' not allowed")
        self.ask("PUT", f"/orgs/{org}/tools", {"allow": ["o*"]}, key=admin)
        self.assertEqual(self.ask("POST", "/tools/ok/run", {}, key=user)["result"], 1)
        # Source that is brought along is `run`, whatever it calls itself.
        answer = self.d.ask("POST", "/v1/tools/run",
                            {"source_code": "def ok():\n    return 1\n", "name": "ok", "args": {}}, key=user)
        self.assertEqual((answer.status, answer.json), (403, {"detail": "Tool 'run' not allowed"}))
        self.assertEqual(self.error("POST", "/run", {"language": "python", "code": "print(1)"}, status=403, key=user),
                         "Tool 'run' not allowed")
        self.ask("PUT", f"/orgs/{org}/tools", {"allow": ["o*", "run"]}, key=admin)
        self.assertEqual(self.ask("POST", "/run", {"language": "python", "code": "print(1)"}, key=user)["stdout"],
                         "1\n")
        ident = [k["id"] for k in self.ask("GET", "/keys", key=admin)["keys"] if k["role"] == "user"][0]
        self.ask("PUT", f"/keys/{ident}/tools", {"default": "deny"}, key=admin)
        self.assertEqual(self.error("POST", "/tools/ok/run", {}, status=403, key=user), "Tool 'ok' not allowed")
        self.assertEqual(self.ask("POST", "/tools/ok/run", {}, key=admin)["result"], 1)
        self.error("PUT", f"/orgs/{org}/tools", {}, status=403, key=user)
        self.error("PUT", f"/orgs/{org}/tools", {}, status=404, key=self.d.key(role="admin"))
        for body in ({"allow": "x"}, {"deny": [1]}, {"default": "maybe"}, {"other": 1}):
            self.error("PUT", f"/orgs/{org}/tools", body, key=admin)

    def test_rate(self):
        self.ask("POST", "/tools/", {"source_code": "def rated():\n    return 1\n", "json_schema": schema("rated"),
                                     "brig": {"rate_limit": {"max_calls": 2, "window_seconds": 3600}}})
        for _ in range(2):
            self.ask("POST", "/tools/rated/run")
        answer = self.d.ask("POST", "/v1/tools/rated/run", {})
        self.assertEqual((answer.status, answer.json["error"]["message"]), (429, "Rate limit exceeded for rated"))
        self.assertGreater(int(answer.headers["Retry-After"]), 0)

    def waiting(self, name):
        """Starts a run that waits for a yes, with a key of its own: (the run's id, the thread, where its answer will
        be, the key)."""
        key, answers = self.d.key(), []
        thread = threading.Thread(target=lambda: answers.append(self.d.ask("POST", f"/v1/tools/{name}/run",
                                                                           {"args": {"text": "hi"}}, key=key)))
        thread.start()
        self.addCleanup(thread.join)
        found = []

        def look():
            found[:] = [a for a in self.ask("GET", "/approvals")["approvals"] if a["tool"] == name]
            return found
        wait_until("it waits", look)
        return found[0], thread, answers, key

    def test_approvals(self):
        self.ask("POST", "/tools/", {"source_code": "def asks(text):\n    return text\n",
                                     "json_schema": schema("asks", ECHO), "default_requires_approval": True})
        asked, thread, answers, key = self.waiting("asks")
        self.assertIn('"hi"', asked["arguments"])
        self.assertIn("cannot approve its own",
                      self.error("POST", f"/approvals/{asked['run_id']}/approve", {}, status=403, key=key))
        self.ask("POST", f"/approvals/{asked['run_id']}/approve", {"reason": "fine"}, status=204)
        thread.join()
        self.assertEqual((answers[0].status, answers[0].json["result"]), (200, "hi"))
        asked, thread, answers, key = self.waiting("asks")
        self.ask("POST", f"/approvals/{asked['run_id']}/deny", {"reason": "no"}, status=204)
        thread.join()
        self.assertEqual(answers[0].status, 403, answers[0])
        self.error("POST", f"/approvals/{asked['run_id']}/approve", status=404)
        actions = [json.loads(line)["action"] for line in self.d.ask("GET", "/v1/audit?limit=10000").body.splitlines()]
        self.assertTrue({"run.approve", "run.deny"} <= set(actions))
        # whoever decides sees all of the arguments, or the call is refused
        said = self.error("POST", "/tools/asks/run", {"args": {"text": "x" * 40000}}, status=413)
        self.assertIn("so that whoever decides sees all of them", said)

    # ---- looking after it -------------------------------------------------------------------------------------------

    def test_pools_and_providers(self):
        pools = self.ask("POST", "/pools/prewarm", {"language": "python", "count": 1})
        self.assertIn("pools", pools)
        wait_until("one is parked", lambda: [p for p in self.ask("GET", "/pools")["pools"] if p.get("parked", 0) > 0])
        for body in ({}, {"count": -1}, {"count": 1, "language": "cobol"}, {"count": 1, "strict": 1}):
            self.error("POST", "/pools/prewarm", body)
        providers = {p["name"]: p for p in self.ask("GET", "/providers")["providers"]}
        self.assertIs(providers["local"]["enabled"], True)

    def test_organisation_takes_its_things_along(self):
        org = self.ask("POST", "/orgs", {"name": "gone"}, status=201)["id"]
        key = self.d.key(org=org)
        self.ask("POST", "/tools/", {"source_code": "def t():\n    return 1\n", "json_schema": schema("t")}, key=key)
        self.ask("POST", "/sandbox-config/local/default", key=key)
        self.ask("DELETE", f"/orgs/{org}", status=204)
        self.assertEqual(self.d.ask("GET", "/v1/tools/", key=key).status, 401)


class Warm(LettaTest):
    CONFIG = "[tools]\nprewarm = 1\n"

    def test_warm_at_the_start(self):
        wait_until("one is parked", lambda: [p for p in self.ask("GET", "/pools")["pools"] if p.get("parked", 0) > 0])
        self.ask("POST", "/tools/", {"source_code": "def w():\n    return 1\n", "json_schema": schema("w")})
        self.assertEqual(self.ask("POST", "/tools/w/run")["result"], 1)
        pools = self.ask("GET", "/pools")["pools"]  # the run had the one that was parked, and made no other pool
        self.assertEqual([(p["claims"], p["misses"]) for p in pools], [(1, 0)], pools)


class Settings(LettaTest):
    CONFIG = "[tools]\nprewarm = 1\n"

    def test_reload(self):
        self.ask("POST", "/tools/", {"source_code": "def t():\n    return 1\n", "json_schema": schema("t")})
        self.assertEqual(self.ask("POST", "/tools/t/run")["result"], 1)
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write('[tools]\nprewarm = 1\ndefault = "deny"\n')
        self.ask("POST", "/config/reload")
        answer = self.d.ask("POST", "/v1/tools/t/run", {})
        self.assertEqual((answer.status, answer.json["error"]["message"]), (403, "Tool 't' not allowed"))
        agent = self.ask("POST", "/agents/", {"name": "n", "tool_ids": [self.ask("GET", "/tools/t")["id"]]})
        self.assertEqual(self.detail("POST", f"/agents/{agent['id']}/tools/t/run", {}, status=403),
                         "Tool 't' not allowed")


class Rotation(LettaTest):
    def test_sealed_again_with_the_new_key(self):
        config = self.ask("POST", "/sandbox-config/local/default")["id"]
        variable = self.ask("POST", f"/sandbox-config/{config}/environment-variable",
                            {"key": "V", "value": "one value"})["id"]
        self.ask("PUT", "/secrets/NAMED", {"value": "a named one"}, status=201)
        agent = self.ask("POST", "/agents/", {"name": "r", "secrets": {"S": "one secret"}})["id"]
        login = self.d.ask("PUT", "/v1/registries/registry.test", {"user": "u", "password": "a password"})
        self.assertIn(login.status, (200, 201), login)
        self.d.stop()
        self.d.env["BRIG_SECRETS_KEY"] = "k2:" + "ab" * 32 + "\n" + KEY
        self.d.start()
        for key in (self.d.key(), self.d.key(role="admin")):  # the ring, and what is counted, is of all organisations
            answer = self.d.ask("POST", "/v1/secrets/rotate", key=key)
            self.assertEqual(answer.status, 403, answer)
            self.assertEqual(answer.json["error"]["message"], "only the administrator on the unix socket may do this")
        self.assertEqual(self.ask("POST", "/secrets/rotate"),
                         {"secrets": 1, "variables": 1, "agents": 1, "registries": 1})
        self.d.stop()
        self.d.env["BRIG_SECRETS_KEY"] = "k2:" + "ab" * 32
        self.d.start()
        self.assertEqual(self.ask("GET", "/secrets/NAMED")["key_id"], "k2")
        self.assertEqual(self.ask("POST", f"/sandbox-config/environment-variable/{variable}/reveal")["value"],
                         "one value")
        self.assertEqual(self.ask("POST", f"/agents/{agent}/secrets/S/reveal")["value"], "one secret")
        # a login never comes out again; what the service could not open would be stale, and the answer an error
        self.assertEqual(self.ask("POST", "/secrets/rotate"),
                         {"secrets": 0, "variables": 0, "agents": 0, "registries": 0})
