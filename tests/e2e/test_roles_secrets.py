# SPDX-License-Identifier: Apache-2.0
"""Who may have a secret's value: every door that leads to it asks the same question (attacks T02, T03, T10)."""

import json
import os
import shutil
import signal
import tempfile
import unittest

from helpers import wait_until
from lettakit import LettaTest

VALUE = "db-password-4711-correct-horse"
ADMIN_ONLY = "secrets.expose: only an administrator may give a program the value itself"
BROKER = {"hosts": ["api.example"], "header": "Authorization", "format": "Bearer %s"}
# The value in a form that no scrubber knows.
PEEK = "import os\nreturn [ord(c) ^ 1 for c in os.environ.get('X', '')]"
NONE = {"type": "object", "properties": {}}


def function(name, body):
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in body.split("\n"))


def seen(codes):
    return "".join(chr(c ^ 1) for c in codes)


def exposing(name="PLAIN"):
    return [{"name": name, "env": "X", "expose": True}]


class SecretTest(LettaTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.user, cls.other, cls.admin = cls.d.key(), cls.d.key(), cls.d.key(role="admin")
        for name, body in (("PLAIN", {"value": VALUE}), ("BROKERED", {"value": VALUE, "broker": BROKER})):
            answer = cls.d.ask("PUT", f"/v1/secrets/{name}", body)
            assert answer.status == 201, answer

    def refused(self, method, path, body, key, words, status=403):
        answer = self.d.ask(method, f"/v1{path}", body, key=key)
        self.assertEqual(answer.status, status, answer)
        said = answer.json
        self.assertEqual(said["detail"] if "detail" in said else said["error"]["message"], words)
        self.assertNotIn(VALUE, answer.body.decode())

    def audit(self, action):
        lines = self.d.ask("GET", "/v1/audit?limit=10000").body.splitlines()
        return [e for e in map(json.loads, lines) if e["action"] == action]

    def register(self, name, body=PEEK, key=None, status=200, **members):
        made = {"source_code": function(name, body), "json_schema": {"name": name, "parameters": NONE}, **members}
        return self.ask("POST", "/tools/", made, status=status, key=key)

    def run_as(self, key, name, **members):
        return self.ask("POST", f"/tools/{name}/run", members, key=key)


class Doors(SecretTest):
    def test_a_user_key_at_every_door(self):
        """The same refusal wherever a value could be asked for, and no event says that it was given."""
        before = len(self.audit("secret.expose"))
        self.register("plain", "return 1")
        agent = self.agent(self.ask("GET", "/tools/plain"))
        for path, body in (("/run", {"language": "python", "code": "print(1)"}), ("/run", {"command": ["env"]}),
                           ("/run", {"language": "bash", "code": "env", "background": True}),
                           ("/tools/plain/run", {}), ("/tools/plain/run", {"agent_id": agent["id"]}),
                           ("/tools/plain/run", {"background": True}),
                           ("/tools/run", {"source_code": function("f", PEEK), "name": "f", "args": {}}),
                           ("/sandboxes", {}), ("/runs", {"process": {"argv": ["env"]}, "sandbox": {}})):
            asked = {"secrets": exposing()}
            inner = {**body, "sandbox": asked} if "sandbox" in body else {**body, **asked}
            with self.subTest(path=path, body=body):
                self.refused("POST", path, inner, self.user, ADMIN_ONLY)
        # One that is brokered beside it makes the run one with a sandbox of its own: the same.
        both = exposing() + [{"name": "BROKERED", "env": "B"}]
        network = {"default": "deny", "rules": [{"action": "allow", "domain": "api.example"}]}
        self.refused("POST", "/run", {"command": ["env"], "secrets": both, "network": network}, self.user, ADMIN_ONLY)
        self.assertEqual(len(self.audit("secret.expose")), before)

    def test_an_administrator_may_and_it_is_told(self):
        for key in (self.admin, None):
            ran = self.ask("POST", "/run", {"language": "python",
                                            "code": "import os\nprint([ord(c) ^ 1 for c in os.environ['X']])",
                                            "secrets": exposing()}, key=key)
            self.assertEqual(seen(json.loads(ran["stdout"])), VALUE, ran)
            wait_until("the event is there", lambda: [e for e in self.audit("secret.expose")
                                                      if e["object"] == ran["id"] and e["detail"] == "PLAIN"])

    def test_a_brokered_value_is_never_exposed(self):
        words = "secret BROKERED: it is brokered, and the value of a brokered secret is never given to a program"
        for key in (self.admin, None):
            for path, body in (("/run", {"command": ["env"]}), ("/sandboxes", {}),
                               ("/tools/run", {"source_code": function("f", PEEK), "name": "f", "args": {}})):
                self.refused("POST", path, {**body, "secrets": exposing("BROKERED")}, key, words, status=422)
            tool = {"source_code": function("b", PEEK), "json_schema": {"name": "b", "parameters": NONE},
                    "brig": {"secrets": exposing("BROKERED")}}
            self.refused("POST", "/tools/", tool, key, words, status=422)

    def test_revealing_is_the_administrators(self):
        config = self.local()
        variable = self.ask("POST", f"/sandbox-config/{config['id']}/environment-variable",
                            {"key": "V", "value": "a value of it"})["id"]
        agent = self.agent(secrets={"S": "a secret of it"})
        for path in (f"/sandbox-config/environment-variable/{variable}/reveal",
                     f"/agents/{agent['id']}/secrets/S/reveal"):
            self.refused("POST", path, None, self.user, "only a key with the role admin may do this")
            self.assertIn("of it", self.ask("POST", path, key=self.admin)["value"])
        self.ask("DELETE", f"/sandbox-config/environment-variable/{variable}", status=204)


class Tools(SecretTest):
    def test_a_user_key_cannot_register_it(self):
        for brig in ({"secrets": exposing()}, {"secrets": [*exposing(), {"name": "BROKERED"}]}):
            body = {"source_code": function("mine", PEEK), "json_schema": {"name": "mine", "parameters": NONE},
                    "brig": brig}
            for method in ("POST", "PUT"):
                self.refused(method, "/tools/", body, self.user, ADMIN_ONLY)
        self.assertEqual(self.ask("GET", "/tools/?name=mine"), [])
        self.register("mine", key=self.user)
        self.refused("PATCH", "/tools/mine", {"brig": {"secrets": exposing()}}, self.user, ADMIN_ONLY)

    def test_an_administrators_tool(self):
        """The administrator decided that it may have the value: a user key may run it, and only as it is."""
        tool = self.register("given", key=self.admin, brig={"secrets": exposing()})
        self.assertEqual(tool["brig"]["registrant"]["role"], "admin")
        ran = self.run_as(self.user, "given")
        self.assertEqual(seen(ran["result"]), VALUE)
        wait_until("the event is there", lambda: [e for e in self.audit("secret.expose") if e["object"] == ran["id"]])
        # What would lead the value elsewhere is not the caller's to say.
        sandbox = self.ask("POST", "/sandboxes", {}, status=201, key=self.user)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sandbox}")
        for member, value in (("env_vars", {"URL": "http://attacker.example"}), ("network", "open"),
                              ("network", {"rules": []}),
                              ("secrets", [{"name": "BROKERED"}]), ("provider", "e2b"), ("fallback", "auto")):
            self.refused("POST", "/tools/given/run", {member: value}, self.user,
                         f"{member}: only an administrator may say it for a tool that is given a secret's value")
        for key in (self.user, self.admin):
            for member, value in (("sandbox_id", sandbox), ("reuse", "fingerprint")):
                self.refused("POST", "/tools/given/run", {member: value}, key,
                             "secrets.expose: needs a sandbox of the run's own, without sandbox_id and reuse",
                             status=422)

    def test_its_source_is_not_a_users_to_change(self):
        tool = self.register("kept", key=self.admin, brig={"secrets": exposing()})
        words = "tool kept: an administrator has set its policy; only an administrator may change or delete it"
        evil = function("kept", "import os\nreturn os.environ['X'][::-1]")
        schema = {"name": "kept", "parameters": NONE}
        for method, path, body in (("PATCH", f"/tools/{tool['id']}", {"source_code": evil}),
                                   ("PATCH", "/tools/kept", {"tags": ["x"]}),
                                   ("PATCH", "/tools/kept", {"pip_requirements": [{"name": "evil"}]}),
                                   ("POST", "/tools/", {"source_code": evil, "json_schema": schema}),
                                   ("PUT", "/tools/", {"source_code": evil, "json_schema": schema,
                                                       "brig": {"secrets": exposing()}}),
                                   ("DELETE", f"/tools/{tool['id']}", None), ("DELETE", "/tools/kept", None)):
            self.refused(method, path, body, self.user, words)
        self.assertEqual(self.ask("GET", "/tools/kept")["source_code"], function("kept", PEEK))

    def test_a_users_source_never_gets_it(self):
        """Also not when an administrator changes something of it: he vouches for what he registers himself."""
        self.register("theirs", key=self.user)
        self.refused("PATCH", "/tools/theirs", {"brig": {"secrets": exposing()}}, self.admin,
                     "secrets.expose: the tool has source of a key that is no administrator's; "
                     "register it again to answer for it")
        again = self.register("theirs", key=self.admin, brig={"secrets": exposing()})
        self.assertEqual(again["brig"]["registrant"]["role"], "admin")
        self.assertEqual(seen(self.run_as(self.user, "theirs")["result"]), VALUE)

    def test_what_user_keys_write_stays_out_of_it(self):
        """Variables of the configuration and of agents could tell the tool where to send the value."""
        config = self.local()
        variable = self.ask("POST", f"/sandbox-config/{config['id']}/environment-variable",
                            {"key": "TARGET", "value": "elsewhere-1"},
                            key=self.user)["id"]
        agent = self.ask("POST", "/agents/", {"name": "w", "secrets": {"OWN": "elsewhere-2"}}, key=self.user)["id"]
        body = "import os\nreturn sorted(n for n in os.environ if n in ('TARGET', 'OWN', 'X'))"
        self.register("bare", body, key=self.admin)
        self.assertEqual(self.run_as(self.user, "bare", agent_id=agent)["result"], ["OWN", "TARGET"])
        self.register("holds", body, key=self.admin, brig={"secrets": exposing()})
        self.assertEqual(self.run_as(self.user, "holds", agent_id=agent)["result"], ["X"])
        self.ask("DELETE", f"/sandbox-config/environment-variable/{variable}", status=204)


    def test_a_receipt_is_for_the_key_that_ran_it(self):
        """An administrator's tool with a value: who ran it reads what it said and left, other keys do not."""
        other, reader = self.d.key(), self.d.key(role="read-only")
        self.register("leaves", "import os\nos.makedirs('/workspace/out', exist_ok=True)\n"
                      "open('/workspace/out/f', 'w').write(os.environ['X'])\nreturn 5",
                      key=self.admin, brig={"secrets": exposing()})
        run = self.run_as(self.user, "leaves")["id"]
        for key in (self.user, self.admin):
            self.assertEqual(self.ask("GET", f"/runs/{run}", key=key)["result"], 5)
            wait_until("the files are there",
                       lambda key=key: self.d.ask("GET", f"/v1/runs/{run}/files", key=key).status == 200)
        for key in (other, reader):
            for path in (f"/runs/{run}", f"/runs/{run}/files"):
                self.refused("GET", path, None, key, f"{run} had what only an administrator may give; "
                             "only an administrator or the key that ran it may read what it said")


class Beside(SecretTest):
    def test_nobody_enters_the_sandbox_of_a_run(self):
        """With a brokered secret a run has a sandbox made for it, and its caller is no more in it than others."""
        network = {"default": "deny", "rules": [{"action": "allow", "domain": "api.example"}]}
        secrets = [*exposing(), {"name": "BROKERED", "env": "B"}]
        self.register("stays", "import time\ntime.sleep(600)", key=self.admin,
                      brig={"secrets": secrets, "network": network})
        before = {s["id"] for s in self.ask("GET", "/sandboxes?limit=1000")["sandboxes"]}
        run = self.ask("POST", "/tools/stays/run", {"background": True}, status=202, key=self.user)["id"]
        made = []

        def look():
            listed = self.ask("GET", "/sandboxes?limit=1000")["sandboxes"]
            made[:] = [s["id"] for s in listed if s["id"] and s["id"] not in before]
            return made and self.ask("GET", f"/runs/{run}").get("status") == "running"
        wait_until("it runs in a sandbox of its own", look)
        for key in (self.user, self.admin):
            self.refused("POST", f"/sandboxes/{made[0]}/run", {"argv": ["env"]}, key, f"Sandbox {made[0]} not found",
                         status=404)
            self.refused("GET", f"/sandboxes/{made[0]}", None, key, f"Sandbox {made[0]} not found", status=404)
            self.refused("POST", "/run", {"command": ["env"], "sandbox_id": made[0]}, key,
                         f"sandbox {made[0]} not found: No such file or directory", status=404)
            self.assertNotIn(made[0], [s["id"] for s in self.ask("GET", "/sandboxes?limit=1000", key=key)["sandboxes"]])
        self.ask("DELETE", f"/runs/{run}", status=202, key=self.user)
        listed = lambda: [s["id"] for s in self.ask("GET", "/sandboxes?limit=1000")["sandboxes"]]
        wait_until("it is gone", lambda: made[0] not in listed())


class Directories(SecretTest):
    """The configuration's directory is first on the module path of all runs: whoever chose it runs there."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="brig-dirs-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        os.chmod(cls.dir, 0o755)
        with open(os.path.join(cls.dir, "planted.py"), "w", encoding="ascii"):
            pass
        cls.CONFIG = f'[sandbox]\nallowed_dirs = "{cls.dir}"\n[tools]\nreveal_secrets = true\n'
        super().setUpClass()

    def test_a_users_directory_is_not_put_beside_a_value(self):
        body = "import os\nreturn os.path.exists('/workspace/planted.py')"
        near = {"rules": [{"action": "allow", "cidr": "127.0.0.1/32"}]}
        self.register("bare", body)
        self.register("holds", body, brig={"secrets": exposing()})
        self.register("near", body, brig={"network": near})
        found = lambda: [self.run_as(None, name)["result"] for name in ("bare", "holds", "near")]
        self.ask("POST", "/sandbox-config/local", {"sandbox_dir": self.dir}, key=self.user)
        self.assertEqual(found(), [True, False, False])
        config = self.ask("POST", "/sandbox-config/local", {"sandbox_dir": self.dir}, key=self.admin)
        self.assertEqual(found(), [True, True,
                                   False])  # an administrator's key answers for it now, but not for the socket
        self.ask("POST", "/sandbox-config/local", {"sandbox_dir": self.dir})
        self.assertEqual(found(), [True, True, True])
        self.ask("PATCH", f"/sandbox-config/{config['id']}", {"config": {"venv_name": "theirs"}}, key=self.user)
        self.assertEqual(found(), [True, False, False])

    def test_values_in_lists_are_not_for_read_only_keys(self):
        """[tools] reveal_secrets shows values to those who could run code with them, and to no others."""
        reader = self.d.key(role="read-only")
        config = self.local()
        path = f"/sandbox-config/{config['id']}/environment-variable"
        variable = self.ask("POST", path, {"key": "V", "value": "one value"})["id"]
        agent = self.agent(secrets={"S": "one secret"})["id"]
        for key, values in ((self.user, ("one value", "one secret")), (reader, ("", ""))):
            listed = [v for v in self.ask("GET", path, key=key) if v["id"] == variable]
            self.assertEqual(listed[0]["value"], values[0])
            self.assertEqual(self.ask("GET", f"/agents/{agent}", key=key)["secrets"][0]["value"], values[1])
            self.assertEqual([a["secrets"][0]["value"] for a in self.ask("GET", "/agents/", key=key)], [values[1]])
        self.ask("DELETE", f"/sandbox-config/environment-variable/{variable}", status=204)


class Sandboxes(SecretTest):
    def test_only_administrators_work_in_one_that_has_a_value(self):
        made = self.ask("POST", "/sandboxes", {"secrets": exposing()}, status=201, key=self.admin)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made}")
        box = f"/sandboxes/{made}"
        words = f"sandbox {made} holds the value of a secret; only an administrator may use it"
        shell = self.ask("POST", f"{box}/processes", {"argv": ["sleep", "600"]}, status=201, key=self.admin)["number"]
        for method, path, body in (("POST", f"{box}/run", {"argv": ["env"]}),
                                   ("POST", f"{box}/processes", {"argv": ["env"]}),
                                   ("POST", f"{box}/shells", {}), ("GET", f"{box}/files?path=/proc/1/environ", None),
                                   ("GET", f"{box}/processes/{shell}/output", None),
                                   ("PATCH", box, {"network": "open"}),
                                   ("GET", f"{box}/files/tar?path=/workspace", None), ("DELETE", box, None),
                                   ("GET", f"{box}/logs", None)):
            self.refused(method, path, body, self.user, words)
        self.register("here", key=self.user)
        self.refused("POST", "/tools/here/run", {"sandbox_id": made}, self.user, words)
        self.refused("POST", "/run", {"command": ["env"], "sandbox_id": made}, self.user, words)
        self.assertEqual(self.ask("GET", box, key=self.user)["id"], made)
        self.assertEqual(self.ask("POST", f"{box}/run", {"argv": ["sh", "-c", "echo ${#X}"]}, key=self.admin)["stdout"],
                         f"{len(VALUE)}\n")

    def test_a_placeholder_stays_one(self):
        """The secret loses its broker rule while the sandbox lives, and the service starts again."""
        self.ask("PUT", "/secrets/TURNS", {"value": VALUE, "broker": BROKER}, status=201)
        network = {"default": "deny", "rules": [{"action": "allow", "domain": "api.example"}]}
        made = self.ask("POST", "/sandboxes", {"secrets": [{"name": "TURNS", "env": "X"}], "network": network},
                        status=201, key=self.user)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made}")
        says = lambda: self.ask("POST", f"/sandboxes/{made}/run", {"argv": ["sh", "-c", "echo $X"]},
                                key=self.user)["stdout"].strip()
        placeholder = says()
        self.ask("PUT", "/secrets/TURNS", {"value": VALUE}, status=200)
        os.kill(self.d.children()["brigd"], signal.SIGKILL)
        wait_until("another brigd serves", lambda: self.d.ask("GET", "/readyz").status == 200)
        self.assertEqual(says(), placeholder)


if __name__ == "__main__":
    unittest.main()
