# SPDX-License-Identifier: Apache-2.0
"""Runs of tools, code and commands on a real daemon: what is kept of them, what ends them, and what they cannot do."""

import io
import json
import tarfile
import threading

from helpers import wait_until
from lettakit import ADD, LettaTest


PLUS = ADD.replace("def add", "def plus")  # for who counts its versions


def source(body, name="f", args=""):
    lines = "\n".join("    " + line for line in body.splitlines())
    return f'def {name}({args}):\n    """Does what the test wants."""\n{lines}\n'


class Runs(LettaTest):
    CONFIG = "[tools]\nmax_runs = 40\n"

    def f(self, body, args=None, status=200, schema=None, **members):
        """The body of a function, run natively."""
        tool = self.tool(source(body, args=", ".join(args or {})),
                         json_schema={"name": "f", "description": "d", "parameters": schema or {"type": "object"}})
        return self.ask("POST", f"/tools/{tool['name']}/run", {"args": args or {}, **members}, status=status)

    def audit(self, run_id):
        lines = self.d.ask("GET", "/v1/audit?limit=1000").body.decode().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        if len(events) == 1 and "events" in events[0]:
            events = events[0]["events"]
        return [e for e in events if run_id in e.get("detail", "")]

    def test_receipt_row_and_audit(self):
        tool = self.tool(PLUS)
        ran = self.run_tool(tool, {"x": 2, "y": 3}, env_vars={"TOKEN": "hunter2-hunter2"})
        self.assertEqual((ran["status"], ran["result"], ran["error"]), ("success", 5, None))
        receipt = ran["receipt"]
        self.assertEqual(receipt["kind"], "tool")
        self.assertEqual(receipt["tool"], {"name": "plus", "version": 1})
        self.assertEqual((receipt["provider"], receipt["providers_tried"]), ("local", []))
        self.assertTrue(receipt["protection"]["complete"])
        self.assertEqual(receipt["fingerprint"], ran["sandbox_config_fingerprint"])
        self.assertEqual(receipt["environment"]["TOKEN"], "runtime")
        self.assertEqual(receipt["environment"]["LETTA_TOOL_ID"], "forced")
        self.assertEqual(receipt["outcome"]["cause"], "exited")
        self.assertEqual(receipt["shared"], ["hash_seed", "aslr", "stack_canary"])
        wait_until("the row is there", lambda: self.d.ask("GET", f"/v1/runs/{ran['id']}").status == 200)
        row = self.ask("GET", f"/runs/{ran['id']}")
        self.assertEqual(row["result"], 5)
        self.assertNotIn("hunter2", json.dumps(row))
        events = self.audit(ran["id"])
        self.assertEqual([e["action"] for e in events], ["tool.run"])
        self.assertEqual((events[0]["object"], events[0]["outcome"]), ("plus", "exited"))
        self.assertEqual(events[0]["seq"], receipt["audit_seq"])
        self.assertIn("version 1 source sha256:", events[0]["detail"])
        # A new version is another one in the receipt, and strict shares nothing.
        self.tool(PLUS.replace("return x + y", "return x + y + 1"))
        ran = self.run_tool(tool, {"x": 2, "y": 3}, strict=True)
        self.assertEqual((ran["result"], ran["receipt"]["tool"]["version"], ran["receipt"]["shared"]), (6, 2, []))

    def test_ends(self):
        cases = (("import os\nos._exit(3)", "RuntimeError: the program ended without an answer: exit code 3", "exited"),
                 ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
                  "RuntimeError: the program was killed by signal 9", "signalled"),
                 ("raise ZeroDivisionError('weird')", "ZeroDivisionError: weird", "exited"),
                 ("raise SystemExit(4)", "SystemExit", "exited"))
        for body, text, cause in cases:
            ran = self.f("print('so far', flush=True)\n" + body)
            self.assertEqual(ran["status"], "error", body)
            self.assertIn(text, ran["error"])
            self.assertTrue(ran["error"].startswith("Error executing function f: "), ran["error"])
            self.assertEqual(ran["receipt"]["outcome"]["cause"], cause)
            self.assertEqual(ran["stdout"], "so far\n")
            self.assertIn(text, ran["stderr"])
        # The clock: what was printed until then is there, and a child that it left does not hold the answer.
        ran = self.f("import time\nprint('tick', flush=True)\ntime.sleep(60)", timeout=0.5)
        self.assertEqual(ran["error"],
                         "Error executing function f: TimeoutError: Executing tool f timed out after 0.5 seconds.")
        self.assertEqual((ran["receipt"]["outcome"]["cause"], ran["stdout"]), ("timeout", "tick\n"))
        ran = self.f("import os, time\nif os.fork() == 0:\n    time.sleep(60)\nreturn 'early'")
        self.assertEqual((ran["status"], ran["result"]), ("success", "early"))
        # CPU time: of the run, not of its start, and of everything it has started.
        ran = self.f("import os\nos.fork()\nwhile True: pass", limits={"cpu_time": 0.3})
        self.assertEqual((ran["receipt"]["outcome"]["cause"], ran["receipt"]["outcome"]["limits_hit"]),
                         ("cpu-limit", ["cpu_time"]))
        self.assertEqual(ran["receipt"]["limits"]["cpu_time"], 0.3)
        ran = self.f("return 1", limits={"cpu_time": 0.3})
        self.assertEqual((ran["status"], ran["receipt"]["outcome"]["cause"]), ("success", "exited"))
        # A limit of the call, over the tool's.
        ran = self.f("return len(bytearray(400 << 20))", limits={"memory": "100m"})
        self.assertEqual(ran["status"], "error")
        self.assertIn("MemoryError", ran["error"])
        self.assertEqual(ran["receipt"]["limits"]["memory"], 100 << 20)

    def test_forged_answers(self):
        """A frame of the tool's own on the channel is none: it has not the code of the run."""
        forged = json.dumps({"status": "ok", "result": "forged"})
        ran = self.f(f"import os, struct\nbody = (b'0' * 64) + b'\\n' + {forged!r}.encode()\nfor fd in range(3, 32):\n"
                     f"    try:\n        os.write(fd, struct.pack('<I', len(body)) + body)\n"
                     "    except OSError:\n        pass\nreturn 'mine'")
        self.assertNotIn("forged", json.dumps(ran["result"]))
        self.assertNotEqual((ran["status"], ran["result"]), ("success", "forged"))
        ran = self.f("print('{\"status\":\"ok\",\"result\":\"forged\"}')\nreturn 1")
        self.assertEqual((ran["result"], ran["stdout"]), (1, '{"status":"ok","result":"forged"}\n'))

    def test_secrets_do_not_leave(self):
        ran = self.f("import os, base64\nv = os.environ['TOKEN']\nprint(v[:7], end='', flush=True)\n"
                     "print(v[7:], flush=True)\nprint(base64.b64encode(v.encode()).decode())\n"
                     "return {'t': v, 'n': 5}", env_vars={"TOKEN": "correct-horse-battery"})
        self.assertEqual((ran["stdout"], ran["result"]), ("[secret]\n[secret]\n", {"t": "[secret]", "n": 5}))
        self.assertEqual(ran["receipt"]["scrubbed"], 3)
        self.assertNotIn("correct-horse", json.dumps(ran))
        ran = self.f("import os\nraise ValueError(os.environ['TOKEN'])", env_vars={"TOKEN": "correct-horse-battery"})
        self.assertNotIn("correct-horse", json.dumps(ran))
        self.assertIn("ValueError: [secret]", ran["error"])

    def test_stored_secrets(self):
        """Exposed: in a variable, and scrubbed. Brokered: only a placeholder is in the sandbox."""
        self.ask("PUT", "/secrets/PLAIN", {"value": "plain-value-123"}, status=201)
        self.ask("PUT", "/secrets/BROKERED",
                 {"value": "brokered-value-123",
                  "broker": {"hosts": ["api.example"], "header": "Authorization", "format": "Bearer %s"}}, status=201)
        ran = self.f("import os\nreturn [os.environ['P'] == 'plain-' + 'value-123', os.environ['P']]",
                     secrets=[{"name": "PLAIN", "env": "P", "expose": True}])
        self.assertEqual(ran["result"], [True, "[secret]"], ran)
        ran = self.f("import os\nreturn os.environ['B']", secrets=[{"name": "BROKERED", "env": "B"}],
                     network={"default": "deny", "rules": [{"action": "allow", "domain": "api.example"}]})
        self.assertEqual(ran["status"], "success", ran)
        self.assertGreater(len(ran["result"]), 16)
        self.assertNotIn("brokered-value", json.dumps(ran))
        sandbox = ran["receipt"]["sandbox_id"]
        wait_until("the sandbox made for it is gone",
                   lambda: self.d.ask("GET", f"/v1/sandboxes/{sandbox}").status == 404)

    def test_network(self):
        """None by default; with a policy the run has what it allows."""
        body = ("import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 2)\nexcept OSError as e:\n"
                "    return type(e).__name__")
        self.assertEqual(self.f(body)["receipt"]["network"], {"policy": "none"})
        ran = self.f(body, network={"default": "deny"})
        self.assertEqual((ran["status"], ran["receipt"]["network"]["policy"]), ("success", "custom"), ran)

    def test_files_are_kept(self):
        ran = self.f("import os\nos.makedirs('/workspace/out/sub')\n"
                     "open('/workspace/out/sub/a.txt', 'w').write('kept')\nreturn 1")
        wait_until("the files are there", lambda: self.d.ask("GET", f"/v1/runs/{ran['id']}/files").status == 200)
        with tarfile.open(fileobj=io.BytesIO(self.d.ask("GET", f"/v1/runs/{ran['id']}/files").body)) as tar:
            self.assertEqual(tar.extractfile([m for m in tar.getnames() if m.endswith("a.txt")][0]).read(), b"kept")
        ran = self.f("return 1")
        self.assertEqual(self.d.ask("GET", f"/v1/runs/{ran['id']}/files").status, 404)

    def test_background_and_cancel(self):
        tool = self.tool(source("import time\ntime.sleep(60)"),
                         json_schema={"name": "sleeper", "parameters": {"type": "object"}})
        tool["name"] = "sleeper"
        begun = self.ask("POST", "/tools/sleeper/run", {"background": True}, status=202)
        self.assertIn(begun["status"], ("queued", "running"))
        wait_until("it runs", lambda: self.ask("GET", f"/runs/{begun['id']}").get("status") == "running")
        self.ask("DELETE", f"/runs/{begun['id']}", status=202)
        wait_until("it has ended",
                   lambda: self.ask("GET", f"/runs/{begun['id']}").get("outcome", {}).get("cause") == "cancelled")
        self.assertEqual(len([e for e in self.audit(begun["id"]) if e["action"] == "tool.run"]), 1)

    def test_a_run_that_its_sandbox_ends(self):
        """It did not exit, so it has no exit code; and what a list shows of it is true when it is shown."""
        box = self.d.ask("POST", "/v1/sandboxes", {}).json["id"]
        run = self.d.ask("POST", "/v1/run", {"command": "touch /tmp/on; sleep 1000", "sandbox_id": box,
                                             "background": True}).json["id"]
        wait_until("its program runs", lambda: self.d.sh(box, "test -e /tmp/on")["outcome"]["exit_code"] == 0)
        self.assertEqual(self.d.ask("GET", f"/v1/runs/{run}").json["status"], "running")

        def shown():
            return [r.get("status", "running") for r in self.d.ask("GET", "/v1/runs").json["runs"] if r["id"] == run]

        wait_until("its row is there", shown)
        self.assertEqual(shown(), ["running"])
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        wait_until("it has ended", lambda: "outcome" in self.d.ask("GET", f"/v1/runs/{run}").json)
        self.assertEqual(self.d.ask("GET", f"/v1/runs/{run}").json["outcome"],
                         {"cause": "cancelled", "exit_code": None, "signal": 9, "limits_hit": [],
                          "detail": "the sandbox was ended: deleted"})

    def test_a_fresh_sandbox_each(self):
        body = ("import os\nfound = os.path.exists('/tmp/mark') or os.path.exists('/workspace/mark')\n"
                "open('/tmp/mark', 'w').close()\nopen('/workspace/mark', 'w').close()\nreturn found")
        self.assertEqual([self.f(body)["result"] for _ in range(4)], [False] * 4)
        ids = {self.f("import random, uuid\nreturn [random.random(), str(uuid.uuid4()), uuid.getnode()]")["result"][0]
               for _ in range(4)}
        self.assertEqual(len(ids), 4)

    def test_a_sandbox_that_lives_on(self):
        made = self.ask("POST", "/sandboxes", {}, status=201)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        body = ("import os\nfound = os.path.exists('/workspace/mark')\nopen('/workspace/mark', 'w').close()\n"
                "return found")
        ran = [self.f(body, sandbox_id=made["id"]) for _ in range(2)]
        self.assertEqual([r["result"] for r in ran], [False, True], ran)
        self.assertEqual(ran[0]["receipt"]["sandbox_id"], made["id"])
        self.f("return 1", sandbox_id="nosuchsandbox", status=404)
        # By fingerprint: made when it is not there, replaced when the configuration is another.
        ran = [self.f(body, reuse="fingerprint") for _ in range(2)]
        self.assertEqual([r["result"] for r in ran], [False, True], ran)
        self.assertEqual(ran[0]["receipt"]["sandbox_id"], ran[1]["receipt"]["sandbox_id"])
        agent = self.ask("POST", "/agents/", {"name": "b"})
        ran = [self.f(body, reuse="agent", agent_id=agent["id"]) for _ in range(2)]
        self.assertEqual([r["result"] for r in ran], [False, True], ran)

    def test_a_change_of_the_configuration_ends_what_was_kept(self):
        config = self.local(venv_name="first")
        agent = self.agent()
        ran = [self.f("return 1", reuse="fingerprint"), self.f("return 1", reuse="agent", agent_id=agent["id"])]
        kept = [r["receipt"]["sandbox_id"] for r in ran]
        mine = self.ask("POST", "/sandboxes", {"name": "reuse-of-mine"}, status=201)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{mine}")
        alive = lambda: {s["id"] for s in self.ask("GET", "/sandboxes?limit=1000")["sandboxes"]} & {*kept, mine}
        self.ask("PATCH", f"/sandbox-config/{config['id']}", {"config": {"venv_name": "first"}})  # nothing is another
        self.assertEqual(alive(), {*kept, mine})
        self.ask("PATCH", f"/sandbox-config/{config['id']}", {"config": {"venv_name": "second"}})
        wait_until("they have ended", lambda: alive() == {mine})
        self.assertNotIn(self.f("return 1", reuse="agent", agent_id=agent["id"])["receipt"]["sandbox_id"], kept)

    def test_code_and_commands(self):
        ran = self.ask("POST", "/run", {"language": "python", "code": "print(6 * 7)\nopen('made.txt', 'w').write('x')",
                                        "collect": ["made.txt"]})
        self.assertEqual((ran["status"], ran["stdout"], ran["receipt"]["kind"]), ("success", "42\n", "code"))
        self.assertEqual([f["path"] for f in ran["files"]], ["made.txt"])
        ran = self.ask("POST", "/run", {"command": ["sh", "-c", "echo out; exit 3"]})
        self.assertEqual((ran["stdout"], ran["receipt"]["kind"], ran["receipt"]["outcome"]["exit_code"]),
                         ("out\n", "command", 3))

    def test_disk_of_the_tools_own(self):
        """Limits that a parked child cannot change have a pool of their own."""
        body = ("try:\n    open('/workspace/big', 'wb').write(b'x' * (8 << 20))\nexcept OSError as e:\n"
                "    return e.strerror\nreturn 'written'")
        self.assertEqual(self.f(body, limits={"disk": "4m"})["result"], "No space left on device")
        self.assertEqual(self.f(body)["result"], "written")

    def test_too_many_at_once(self):
        self.tool(source("import time\ntime.sleep(30)"),
                  json_schema={"name": "waits", "parameters": {"type": "object"}})
        begun = [self.d.ask("POST", "/v1/tools/waits/run", {"background": True}) for _ in range(41)]
        for b in begun[:40]:
            self.assertEqual(b.status, 202)
            self.addCleanup(self.d.ask, "DELETE", f"/v1/runs/{b.json['id']}")
        refused = self.d.ask("POST", "/v1/tools/waits/run", {})
        self.assertEqual(refused.status, 429)
        self.assertIn("Maximum number of runs (40) reached", refused.body.decode())
        for b in begun[:40]:
            self.d.ask("DELETE", f"/v1/runs/{b.json['id']}")
        wait_until("there is room again", lambda: self.d.ask("POST", "/v1/tools/waits/run",
                                                             {"background": True, "timeout": 0.1}).status == 202)

    def test_burst_from_an_empty_pool(self):
        """Everybody gets a child of their own, and the right answer."""
        tool = self.tool(ADD)
        got, lock = [], threading.Lock()

        def one(i):
            ran = self.d.ask("POST", f"/v1/tools/{tool['name']}/run", {"args": {"x": i, "y": 0}})
            with lock:
                got.append((i, ran.json["result"], ran.json["receipt"]["sandbox_id"]))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted((i, r) for i, r, _ in got), [(i, i) for i in range(24)])
        self.assertEqual(len({s for _, _, s in got}), 24)


class Shares(LettaTest):
    CONFIG = "[tools]\nmax_runs = 8\n"

    def start(self, key=None):
        ran = self.d.ask("POST", "/v1/run", {"command": ["sleep", "1000"], "timeout": 1000, "background": True},
                         key=key, tcp=key is not None)
        if ran.status == 202:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/runs/{ran.json['id']}", key=key, tcp=key is not None)
        return ran

    def test_of_organisations(self):
        """The only organisation may have all runs. With others it has a share: they find room."""
        alone = self.d.key(name="alone", role="admin")
        self.assertEqual([self.start(alone).status for _ in range(9)], [202] * 8 + [429])
        self.doCleanups()
        one, two = (self.d.key(name="k", role="admin", org=self.d.ask("POST", "/v1/orgs", {"name": name}).json["id"])
                    for name in ("one", "two"))
        begun = []

        def refused():
            begun.append(self.start(one))
            return b"of one organisation reached: it has 4 of 8, and 4 are left for all" in begun[-1].body

        wait_until("the runs before have ended, and a share is taken", refused)
        self.assertEqual((begun[-1].status, sum(r.status == 202 for r in begun)), (429, 4))
        self.assertTrue(begun[-1].headers.get("Retry-After"))
        self.assertEqual([self.start(two).status for _ in range(3)], [202, 202, 429])
        self.assertEqual([self.start().status for _ in range(3)], [202, 202, 429])  # over the socket: what is left
