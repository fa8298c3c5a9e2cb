# SPDX-License-Identifier: Apache-2.0
"""What a tool carries binds those whom it is to bind: policy, lists, rates, network, and the sandboxes that runs share
(attacks T03 to T06)."""

import json
import unittest

from helpers import wait_until
from lettakit import LettaTest

NONE = {"type": "object", "properties": {}}
LOOPBACK = {"rules": [{"action": "allow", "cidr": "127.0.0.1/32"}]}
PRIVATE = ("network: cidr 127.0.0.1/32 is private; only the administrator on the unix socket may allow it "
           "([gate] private_ranges)")
POLICIES = ({"rules": [{"field": "to", "deny": "x"}]}, {"rate_limit": {"max_calls": 1, "window_seconds": 3600}},
            {"approval": True}, {"needs_credentials": True}, {"network": "packages"}, {"secrets": [{"name": "S"}]})


def function(name, body="return 1"):
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in body.split("\n"))


def document(name, body="return 1", **members):
    return {"source_code": function(name, body), "json_schema": {"name": name, "parameters": NONE}, **members}


class ToolTest(LettaTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.user, cls.other, cls.admin = cls.d.key(), cls.d.key(), cls.d.key(role="admin")

    def refused(self, method, path, body, key, words, status=403):
        answer = self.d.ask(method, f"/v1{path}", body, key=key)
        self.assertEqual(answer.status, status, answer)
        said = answer.json
        self.assertEqual(said["detail"] if "detail" in said else said["error"]["message"], words)
        return answer

    def register(self, name, body="return 1", key=None, **members):
        return self.ask("POST", "/tools/", document(name, body, **members), key=key)

    def sandboxes(self):
        return {s["id"]: s for s in self.ask("GET", "/sandboxes?limit=1000")["sandboxes"]}


class Policy(ToolTest):
    def ways(self, name):
        """Every way to get rid of what a tool carries."""
        return (("PATCH", f"/tools/{name}", {"brig": {}}),
                ("PATCH", f"/tools/{name}", {"source_code": function(name, "return 2")}),
                ("PATCH", f"/tools/{name}", {"default_requires_approval": False}),
                ("PATCH", f"/tools/{name}", {"json_schema": {"name": name + "_2", "parameters": NONE}}),
                ("POST", "/tools/", document(name)), ("PUT", "/tools/", document(name, brig={"rules": []})),
                ("DELETE", f"/tools/{name}", None))

    def test_an_administrators_policy(self):
        for i, brig in enumerate((*POLICIES, None)):
            name = f"bound{i}"
            policy = {"brig": brig} if brig else {"default_requires_approval": True}
            made = self.register(name, key=self.admin, **policy)
            words = f"tool {name}: an administrator has set its policy; only an administrator may change or delete it"
            for method, path, body in self.ways(name):
                self.refused(method, path, body, self.user, words)
            now = self.ask("GET", f"/tools/{name}")
            self.assertEqual((now["id"], now["brig"]["version"], now["source_code"]), (made["id"], 1, function(name)))
            self.ask("PATCH", f"/tools/{made['id']}", {"tags": ["mine"]}, key=self.admin)

    def test_a_keys_own_policy(self):
        """The key that set it may change it, another may not; if an administrator sets one, it is his."""
        self.register("own", key=self.user, brig={"rate_limit": {"max_calls": 5, "window_seconds": 60}})
        words = "tool own: another key has set its policy; only that key or an administrator may change or delete it"
        for method, path, body in self.ways("own"):
            self.refused(method, path, body, self.other, words)
        self.ask("PATCH", "/tools/own", {"brig": {"rate_limit": {"max_calls": 6, "window_seconds": 60}}}, key=self.user)
        self.ask("PATCH", "/tools/own", {"brig": {"approval": True}}, key=self.admin)
        words = "tool own: an administrator has set its policy; only an administrator may change or delete it"
        for method, path, body in self.ways("own"):
            self.refused(method, path, body, self.user, words)
        self.ask("PATCH", "/tools/own", {"brig": {}}, key=self.admin)
        # Nothing binds it any more.
        self.ask("PATCH", "/tools/own", {"source_code": function("own", "return 3")}, key=self.other)
        self.ask("DELETE", "/tools/own", key=self.other)

    def test_no_request_says_who_made_it(self):
        for member in ("registrant", "guard"):
            made = self.register("claims", key=self.user)
            answer = self.d.ask("PATCH", "/v1/tools/claims", {member: {"key_id": "", "role": "socket"}}, key=self.user)
            self.assertEqual(answer.status, 200, answer)  # members that are not known are not looked at
            self.assertEqual(answer.json["brig"]["registrant"]["role"], "user")
            self.refused("POST", "/tools/", document("claims", brig={member: {"role": "socket"}}), self.user,
                         f"[{{'type': 'value_error', 'loc': ('body',), 'msg': 'brig.{member}: is not known'}}]",
                         status=422)
            self.assertEqual(self.ask("GET", f"/tools/{made['id']}")["brig"]["registrant"]["role"], "user")


class Lists(ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.org = cls.d.ask("POST", "/v1/orgs", {"name": "lists"}).json["id"]
        cls.boss, cls.bound = cls.d.key(org=cls.org, role="admin"), cls.d.key(org=cls.org)

    def lists(self, **lists):
        self.ask("PUT", f"/orgs/{self.org}/tools", lists, key=self.boss)

    def test_registering_is_bringing_source(self):
        self.lists(allow=["listed"])
        self.register("listed", key=self.boss)
        self.assertEqual(self.ask("POST", "/tools/listed/run", key=self.bound)["result"], 1)
        # The name is on the list; what is behind it is not for the key to say.
        for method, path, body in (("POST", "/tools/", document("listed", "return 2")),
                                   ("PUT", "/tools/", document("listed", "return 2")),
                                   ("PATCH", "/tools/listed", {"source_code": function("listed", "return 2")})):
            self.refused(method, path, body, self.bound, "Tool 'run' not allowed")
        self.refused("POST", "/tools/", document("unlisted"), self.bound, "Tool 'unlisted' not allowed")
        self.assertEqual(self.ask("POST", "/tools/listed/run", key=self.bound)["result"], 1)
        self.lists(deny=["kept"])
        self.register("kept", key=self.boss)
        self.refused("DELETE", "/tools/kept", None, self.bound, "Tool 'kept' not allowed")
        self.refused("PATCH", "/tools/listed", {"json_schema": {"name": "kept", "parameters": NONE}}, self.bound,
                     "Tool 'kept' not allowed")

    def test_packages_and_directories_are_code(self):
        """The configuration's are put into every run of the organisation, those of listed tools too."""
        self.lists(allow=["listed"])
        config = self.ask("POST", "/sandbox-config/local/default", key=self.boss)["id"]
        packages = {"pip_requirements": [{"name": "theirs"}]}
        for method, path, body in (("POST", "/sandbox-config/", {"config": packages}),
                                   ("POST", "/sandbox-config/local", packages),
                                   ("PATCH", f"/sandbox-config/{config}", {"config": packages})):
            self.refused(method, path, body, self.bound, "Tool 'run' not allowed")
        self.ask("PATCH", f"/sandbox-config/{config}", {"config": {"venv_name": "ours"}}, key=self.boss)

    def test_variables_are_code(self):
        """A shell runs what BASH_ENV says, an interpreter what NODE_OPTIONS says: whoever says a variable brings
        source."""
        self.lists()
        box = self.ask("POST", "/sandboxes", {"env": {"BASH_ENV": "$(echo mine >&2)"}}, status=201,
                       key=self.bound)["id"]
        tool = self.ask("POST", "/tools/", {"source_code": "echo 1\n", "source_type": "bash",
                                            "json_schema": {"name": "script", "parameters": NONE}}, key=self.boss)["id"]
        config = self.ask("POST", "/sandbox-config/local/default", key=self.boss)["id"]
        variables = f"/sandbox-config/{config}/environment-variable"
        theirs = self.ask("POST", variables, {"key": "THEIRS", "value": "x"}, key=self.boss)["id"]
        agent = self.ask("POST", "/agents/", {"name": "a", "tool_ids": [tool]}, key=self.bound)["id"]
        self.lists(allow=["script"])
        code, words = {"BASH_ENV": "$(echo mine >&2)"}, "Tool 'run' not allowed"
        for method, path, body in (("POST", "/tools/script/run", {"env_vars": code}),
                                   ("POST", f"/tools/{tool}/run", {"env_vars": code, "agent_id": agent}),
                                   ("POST", "/tools/script/run", {"sandbox_id": box}),
                                   ("POST", variables, {"key": "BASH_ENV", "value": code["BASH_ENV"]}),
                                   ("PATCH", f"/sandbox-config/environment-variable/{theirs}", {"value": "y"}),
                                   ("POST", "/agents/", {"name": "b", "tool_exec_environment_variables": code}),
                                   ("POST", "/agents/", {"name": "b", "secrets": code}),
                                   ("PATCH", f"/agents/{agent}", {"secrets": code}),
                                   ("PUT", f"/agents/{agent}/secrets", {"key": "BASH_ENV", "value": "x"})):
            self.refused(method, path, body, self.bound, words)
        self.assertEqual(len(self.ask("GET", "/agents/", key=self.bound)), 1)
        ran = self.ask("POST", f"/agents/{agent}/tools/script/run", {}, key=self.bound)
        self.assertEqual((ran["status"], ran["stderr"]), ("success", []))
        ran = self.ask("POST", "/tools/script/run", {"env_vars": code}, key=self.boss)
        self.assertEqual((ran["stdout"], ran["stderr"]), ("1\n", "mine\n"))  # who writes the lists is not asked
        self.lists(allow=["script", "run"])
        self.assertEqual(self.ask("POST", "/tools/script/run", {"env_vars": code}, key=self.bound)["stderr"], "mine\n")
        self.ask("DELETE", f"/sandboxes/{box}", status=204, key=self.bound)

    def test_every_door_for_programs_of_ones_own(self):
        """Source of one's own is `run`, wherever it is brought: in a sandbox, in a run, in a file."""
        self.lists()
        box = "/sandboxes/" + self.ask("POST", "/sandboxes", {}, status=201, key=self.bound)["id"]
        cat = self.ask("POST", f"{box}/processes", {"argv": ["cat"], "stdin_open": True}, status=201,
                       key=self.bound)["number"]
        shell = self.ask("POST", f"{box}/shells", {}, status=201, key=self.bound)["number"]
        self.lists(allow=["listed"])
        words = "Tool 'run' not allowed"
        for method, path, body in (("POST", "/run", {"command": ["id"]}),
                                   ("POST", "/runs", {"process": {"argv": ["id"]}}),
                                   ("POST", f"{box}/run", {"argv": ["id"]}),
                                   ("POST", f"{box}/processes", {"argv": ["id"]}),
                                   ("POST", f"{box}/shells", {}),
                                   ("POST", f"{box}/shells/{shell}/run", {"command": "id"}),
                                   ("POST", f"{box}/processes/{cat}/stdin", b"id\n"),
                                   ("PUT", f"{box}/files?path=a.py", b"x"),
                                   ("PUT", f"{box}/files/tar?path=.", b""),
                                   ("POST", f"{box}/files/move", {"from": "a", "to": "b"})):
            self.refused(method, path, body, self.bound, words)
        for path in ("/v1/runs/attach", f"/v1{box}/processes/{cat}/attach"):
            socket = self.d.websocket(path, headers={"Authorization": f"Bearer {self.bound}"})
            self.assertEqual(socket.status, 403)
            socket.close()
        self.ask("GET", f"{box}/processes", key=self.bound)
        self.lists(allow=["listed", "run"])
        self.assertEqual(self.ask("POST", f"{box}/run", {"argv": ["echo", "1"]}, key=self.bound)["stdout"], "1\n")
        self.ask("DELETE", box, status=204, key=self.bound)


class Rates(ToolTest):
    def test_windows_are_not_multiplied(self):
        """Neither by agents nor by keys, and not by registering it again or deleting it."""
        limited = {"rate_limit": {"max_calls": 2, "window_seconds": 3600}}
        tool = self.register("rated", key=self.admin, brig=limited)
        agents = [self.agent(tool)["id"] for _ in range(3)]
        self.ask("POST", "/tools/rated/run", {"agent_id": agents[0]}, key=self.user)
        self.ask("POST", f"/agents/{agents[1]}/tools/rated/run", {}, key=self.other)
        for path, body, key in (("/tools/rated/run", {"agent_id": agents[2]}, self.user),
                                ("/tools/rated/run", {}, self.d.key()),
                                (f"/agents/{agents[2]}/tools/rated/run", {}, self.other),
                                (f"/tools/{tool['id']}/run", {}, self.admin)):
            self.refused("POST", path, body, key, "Rate limit exceeded for rated", status=429)
        self.ask("DELETE", "/tools/rated", key=self.admin)
        self.register("rated", key=self.admin, brig=limited)
        self.refused("POST", "/tools/rated/run", {}, self.user, "Rate limit exceeded for rated", status=429)


class Network(ToolTest):
    def test_judged_by_who_registered_it(self):
        """A private range is for the socket to give; every other key is refused at each door."""
        for key in (self.user, self.admin):
            self.refused("POST", "/tools/", document("near", brig={"network": LOOPBACK}), key, PRIVATE)
            self.refused("POST", "/sandboxes", {"network": LOOPBACK}, key, PRIVATE)
            self.refused("POST", "/run", {"command": ["id"], "network": LOOPBACK}, key, PRIVATE)
            self.refused("POST", "/runs", {"process": {"argv": ["id"]}, "sandbox": {"network": LOOPBACK}}, key, PRIVATE)
            self.register("plain", key=None)
            self.refused("PATCH", "/tools/plain", {"brig": {"network": LOOPBACK}}, key, PRIVATE)
            self.refused("POST", "/tools/plain/run", {"network": LOOPBACK}, key, PRIVATE)
        self.refused("PUT", "/policies/near", LOOPBACK, self.admin, PRIVATE)
        self.refused("PUT", "/policies/near", {"extends": LOOPBACK, "rules": []}, self.admin, PRIVATE)

    def test_the_weaker_of_the_two(self):
        self.register("here", key=None, brig={"network": LOOPBACK})
        for key in (self.user, self.admin):
            self.refused("POST", "/tools/here/run", {}, key, PRIVATE)
        self.assertEqual(self.ask("POST", "/tools/here/run", {})["result"], 1)
        # Changed by a weaker one, though an administrator: it is that one's now, and the socket runs it as that one's.
        self.refused("PATCH", "/tools/here", {"tags": ["x"]}, self.admin, PRIVATE)
        self.ask("PUT", "/policies/near", LOOPBACK, status=201)
        # A stored policy is there for others to use by name.
        self.register("named", key=self.user, brig={"network": "near"})
        self.assertEqual(self.ask("POST", "/tools/named/run", {}, key=self.user)["result"], 1)

    def test_a_sandbox_with_more_than_ones_own(self):
        made = self.ask("POST", "/sandboxes", {"network": LOOPBACK}, status=201)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made}")
        words = f"sandbox {made} has a network that this key may not use ({PRIVATE})"
        for key in (self.user, self.admin):
            self.refused("POST", f"/sandboxes/{made}/run", {"argv": ["id"]}, key, words)
            self.refused("POST", "/run", {"command": ["id"], "sandbox_id": made}, key, words)
        self.ask("POST", f"/sandboxes/{made}/run", {"argv": ["id"]})

    def test_variables_of_a_user_stay_out(self):
        """A shell runs what BASH_ENV says: the code of a user key would have the range that only the socket may
        give."""
        config = self.ask("POST", "/sandbox-config/local/default", key=self.user)["id"]
        code = "$(echo theirs >&2)"
        made = self.ask("POST", f"/sandbox-config/{config}/environment-variable", {"key": "BASH_ENV", "value": code},
                        key=self.user)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandbox-config/environment-variable/{made}")
        agent = self.ask("POST", "/agents/", {"name": "a", "secrets": {"BASH_ENV": code}}, key=self.user)["id"]
        script = {"source_code": "echo ours >&2\n", "source_type": "bash"}
        near = self.ask("POST", "/sandboxes", {"network": LOOPBACK}, status=201)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{near}")
        for name, brig, members, said in (("far", {}, {}, "theirs\nours\n"),
                                          ("close", {"network": LOOPBACK}, {}, "ours\n"),
                                          ("far", {}, {"network": LOOPBACK}, "ours\n"),
                                          ("far", {}, {"sandbox_id": near}, "ours\n"),
                                          ("close", {"network": LOOPBACK}, {"agent_id": agent}, "ours\n"),
                                          ("far", {}, {"sandbox_id": near, "agent_id": agent}, "ours\n"),
                                          ("close", {"network": LOOPBACK}, {"reuse": "fingerprint"}, "ours\n")):
            schema = {"name": name, "parameters": NONE}
            self.ask("POST", "/tools/", {**script, "json_schema": schema, "brig": brig})
            ran = self.ask("POST", f"/tools/{name}/run", members)
            self.assertEqual((ran["status"], ran["stderr"]), ("success", said), (name, members))


class Admins(ToolTest):
    CONFIG = '[gate]\nprivate_ranges = "admin"\n'

    def test_a_users_tool_is_not_the_administrators(self):
        """Registered while every key might, run when only administrators may."""
        words = "network: cidr 127.0.0.1/32 is private; only an administrator may allow it ([gate] private_ranges)"
        self.refused("POST", "/tools/", document("near", brig={"network": LOOPBACK}), self.user, words)
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write('[gate]\nprivate_ranges = "all"\n')
        self.ask("POST", "/config/reload")
        self.register("near", key=self.user, brig={"network": LOOPBACK})
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write(self.CONFIG)
        self.ask("POST", "/config/reload")
        for key in (self.user, self.admin, None):
            self.refused("POST", "/tools/near/run", {}, key, words)
        self.register("near", key=self.admin, brig={"network": LOOPBACK})
        self.assertEqual(self.ask("POST", "/tools/near/run", {}, key=self.admin)["result"], 1)


class Planted(ToolTest):
    MARK = "import os\nfound = sorted(os.listdir('/workspace'))\nopen('/workspace/mark', 'w').close()\nreturn found"

    def reuse(self, key, **members):
        ran = self.ask("POST", "/tools/marks/run", {"reuse": "fingerprint", **members}, key=key)
        self.assertEqual(ran["status"], "success", ran)
        return ran["result"], ran["receipt"]["sandbox_id"]

    def test_a_kept_sandbox_is_its_makers(self):
        self.register("marks", self.MARK, key=self.admin)
        _, of_user = self.reuse(self.user)
        found = self.sandboxes()[of_user]
        # A copy of everything about it that a request can say.
        planted = self.ask("POST", "/sandboxes", {"metadata": found["metadata"],
                                                  **({"name": found["name"] + "x"} if found.get("name") else {})},
                           status=201, key=self.other)["id"]
        result, of_admin = self.reuse(self.admin)
        self.assertEqual(result, [])
        self.assertNotIn(of_admin, (planted, of_user))
        self.assertEqual(self.reuse(self.user), (["mark"], of_user))
        self.assertEqual(self.reuse(self.admin), (["mark"], of_admin))
        # Another key of the organisation does not work in it either.
        words = f"sandbox {of_admin} was made for runs of another key; only that key or an administrator may use it"
        self.refused("POST", f"/sandboxes/{of_admin}/run", {"argv": ["id"]}, self.user, words)
        self.refused("PUT", f"/sandboxes/{of_admin}/files?path=sitecustomize.py", b"x", self.user, words)
        self.refused("POST", "/run", {"command": ["id"], "sandbox_id": of_admin}, self.user, words)
        self.ask("POST", f"/sandboxes/{of_user}/run", {"argv": ["id"]}, key=self.user)

    def test_a_name_cannot_be_planted_before(self):
        """Its name and metadata, taken by a user key before the administrator's first run."""
        self.register("marks", self.MARK, key=self.admin)
        _, first = self.reuse(None)
        found = self.sandboxes()[first]
        self.ask("DELETE", f"/sandboxes/{first}", status=204)
        wait_until("it is gone", lambda: first not in self.sandboxes())
        body = {"metadata": found["metadata"]}
        if found.get("name"):
            body["name"] = found["name"]
        planted = self.ask("POST", "/sandboxes", body, status=201, key=self.user)["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{planted}")
        self.assertNotEqual(self.reuse(None)[1], planted)

    def test_what_was_given_is_part_of_it(self):
        """A run with another network does not find itself in a sandbox that has more."""
        self.register("marks", self.MARK, key=None)
        _, bare = self.reuse(None)
        result, near = self.reuse(None, network=LOOPBACK)
        self.assertEqual((result, near == bare), ([], False))
        self.assertEqual(self.reuse(None, network=LOOPBACK), (["mark"], near))
        self.assertEqual(self.reuse(None), (["mark"], bare))

    def test_source_of_others_is_apart(self):
        """What a user's tool leaves (a module that is imported first) is not beside the runs of who ran it."""
        plant = "open('/workspace/planted.py', 'w').write('x = 1')\nreturn 1"
        self.register("plants", plant, key=self.user)
        self.register("marks", self.MARK, key=self.admin)
        for key in (self.admin, self.other, None):
            ran = self.ask("POST", "/tools/plants/run", {"reuse": "fingerprint"}, key=key)
            result, own = self.reuse(key)
            self.assertNotIn("planted.py", result)
            self.assertNotEqual(own, ran["receipt"]["sandbox_id"])
            again = self.ask("POST", "/tools/plants/run", {"reuse": "fingerprint"}, key=key)
            self.assertEqual(again["receipt"]["sandbox_id"], ran["receipt"]["sandbox_id"])
        ran = self.ask("POST", "/tools/plants/run", {"reuse": "fingerprint"}, key=self.user)  # his own: as before
        self.assertEqual(self.reuse(self.user)[1], ran["receipt"]["sandbox_id"])

    def test_a_tool_is_not_called_like_an_id(self):
        """By its id or by its name: none may take the other's place."""
        tool = self.register("real", key=self.admin)
        body = document("x")
        body["json_schema"]["name"] = tool["id"]
        self.refused("POST", "/tools/", body, self.user, f"name: \"{tool['id']}\" has the form of an id", status=400)

    def test_an_idempotency_key_is_its_keys(self):
        """A user's create cannot be what an administrator's repeated create is answered with."""
        first = self.d.ask("POST", "/v1/sandboxes", {}, headers={"Idempotency-Key": "nightly"}, key=self.user)
        self.assertEqual(first.status, 201, first)
        again = self.d.ask("POST", "/v1/sandboxes", {}, headers={"Idempotency-Key": "nightly"}, key=self.admin)
        self.assertEqual(again.status, 201, again)
        self.assertNotEqual(again.json["id"], first.json["id"])
        same = self.d.ask("POST", "/v1/sandboxes", {}, headers={"Idempotency-Key": "nightly"}, key=self.user)
        self.assertEqual(same.json["id"], first.json["id"])
        for made in (first, again):
            self.ask("DELETE", f"/sandboxes/{made.json['id']}", status=204)


if __name__ == "__main__":
    unittest.main()
