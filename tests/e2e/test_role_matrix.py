# SPDX-License-Identifier: Apache-2.0
"""Who may what, generated from docs/openapi.yaml: every route and every member of every body with every role.

`x-brig-role` of an operation is the least role that may call it (open, read-only, user, admin, socket); of a member of a body it
is the least role that may send it, with `x-brig-example` as the value to try; `x-brig-roles` has single values that need more, and
`x-brig-body` what a body needs besides. A route without one fails here, and a member
without one may be sent by whoever may call the route, so that what comes next is covered by being in the file. Besides: an
administrator of another organisation finds nothing of this one and changes nothing, and a refusal changes nothing at all."""

import http.client
import json
import os
import re
import unittest
from urllib.parse import quote

from service import DEFAULT_ORG, ServiceTest, UnixConnection

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METHODS = ("get", "put", "post", "delete", "patch", "head")
RANKS = {"open": 0, "read-only": 1, "user": 2, "admin": 3, "socket": 4}
CALLERS = {"none": 0, "read-only": 1, "user": 2, "admin": 3, "socket": 4}
ENDS = {"reloadConfig", "prune", "rotateSecrets"}  # of the whole service: not called by those who may
# Names that every organisation has for itself: putting one makes a new object, and does not touch the other's.
OWN_NAMES = {"putPolicy", "setSecret"}
SOURCE = "def f() -> str:\n    \"\"\"\n    Says yes.\n    \"\"\"\n    return 'yes'\n"
SCHEMA = {"name": "f", "description": "Says yes.", "parameters": {"type": "object", "properties": {}}}


class Matrix(ServiceTest):
    CONFIG = "[secrets]\ninsecure_plaintext = true\n[server]\nmax_connections = 4096\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spec = cls.d.ask("GET", "/v1/openapi.json").json
        cls.org, other = (cls.d.ask("POST", "/v1/orgs", {"name": name}).json["id"] for name in ("a", "b"))
        cls.keys = {role: cls.d.key(org=cls.org, role=role) for role in ("read-only", "user", "admin")}
        cls.stranger = cls.d.key(org=other, role="admin")
        cls.make_objects()

    @classmethod
    def make_objects(cls):
        """One of each kind of A's: what {…} of a path stands for."""
        def ask(method, path, body=None):
            answer = cls.d.ask(method, path, body, tcp=True, key=cls.keys["admin"])
            assert answer.status < 300, (method, path, answer)
            return answer.json if answer.body else {}
        box = ask("POST", "/v1/sandboxes", {"name": "mine"})["id"]
        ask("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["sleep", "1000"]})
        run = ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["true"]})["id"]
        ask("PUT", "/v1/policies/mine", {"default": "deny"})
        ask("PUT", "/v1/secrets/MINE", {"value": "0123456789"})
        tool = ask("POST", "/v1/tools/", {"source_code": SOURCE, "json_schema": SCHEMA})["id"]
        agent = ask("POST", "/v1/agents/", {"name": "mine"})["id"]
        ask("PUT", f"/v1/agents/{agent}/secrets", {"key": "K", "value": "v"})
        config = ask("POST", "/v1/sandbox-config/local/default")["id"]
        variable = ask("POST", f"/v1/sandbox-config/{config}/environment-variable", {"key": "K", "value": "v"})["id"]
        key = ask("POST", "/v1/keys", {"name": "mine"})["id"]
        cls.objects = {"id": box, "n": "1", "port": "80", "path": "", "run": run, "sandbox": box, "policy": "mine", "name": "MINE", "tool_id": tool, "tool": tool,
                       "tool_name": "f", "agent_id": agent, "sandbox_config_id": config, "env_var_id": variable, "key": key, "org": cls.org}

    # ---- the description --------------------------------------------------------------------------------------------

    def resolve(self, node):
        while "$ref" in node:
            at = self.spec
            for part in node["$ref"].removeprefix("#/").split("/"):
                at = at[part]
            node = at
        return node

    def operations(self):
        for path, item in self.spec["paths"].items():
            for method in METHODS:
                if method in item:
                    yield path, method.upper(), item[method]

    def body_of(self, operation):
        content = self.resolve(operation.get("requestBody", {})).get("content", {})
        return self.resolve(content["application/json"]["schema"]) if "application/json" in content else None

    def members(self, schema, at=()):
        """(path of names, schema, [(role, value)]) of every member, also of members that are objects. No role: that of the route."""
        for name, member in schema.get("properties", {}).items():
            inner = self.resolve(member)
            words = {**inner, **member}
            tries = [(one["role"], one["example"]) for one in words.get("x-brig-roles", [])]
            tries.append((words.get("x-brig-role"), words.get("x-brig-example", self.value(inner))))
            yield (*at, name), tries
            if inner.get("type") == "object" and len(at) < 2:
                yield from self.members(inner, (*at, name))

    def value(self, schema):
        """Something of the right type."""
        schema = self.resolve(schema)
        for words in ("oneOf", "anyOf", "allOf"):
            if words in schema:
                return self.value(schema[words][0])
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "string")
        if kind == "object":
            return {n: self.value(schema["properties"][n]) for n in schema.get("required", []) if n in schema.get("properties", {})}
        return {"string": "x" * max(1, schema.get("minLength", 1)), "integer": schema.get("minimum", 1), "number": 1, "boolean": True, "array": []}.get(kind, "x")

    # ---- asking -----------------------------------------------------------------------------------------------------

    def status(self, caller, method, path, body=None):
        """Only the status: some answers do not end."""
        c = UnixConnection(self.d.socket) if caller == "socket" else http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=30)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        key = self.stranger if caller == "stranger" else self.keys.get(caller)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            c.request(method, path, json.dumps(body).encode() if body is not None else None, headers)
            return c.getresponse().status
        finally:
            c.close()

    def fill(self, path, objects):
        return re.sub(r"\{(\w+)\}", lambda m: quote(objects(m.group(1)), safe=""), path)

    def nobodys(self, path):
        """The path with ids that nothing has."""
        return self.fill(path, lambda name: {"n": "99", "port": "80", "path": ""}.get(name, "nobodys"))

    def state(self):
        """Everything there is, as its owner and as the host's administrator see it."""
        paths = ("/v1/sandboxes", "/v1/keys", "/v1/policies", "/v1/secrets", "/v1/tools/", "/v1/agents/", "/v1/sandbox-config/", "/v1/approvals",
                 f"/v1/sandboxes/{self.objects['id']}/processes", f"/v1/orgs/{self.org}/tools", f"/v1/keys/{self.objects['key']}/tools",
                 f"/v1/agents/{self.objects['agent_id']}", f"/v1/sandbox-config/{self.objects['sandbox_config_id']}/environment-variable", "/v1/runs")
        seen = {path: self.d.ask("GET", path, tcp=True, key=self.keys["admin"]).json for path in paths}
        seen.update((f"socket {path}", self.d.ask("GET", path).json) for path in ("/v1/orgs", "/v1/sandboxes", "/v1/keys"))
        return self.steady(seen)

    def steady(self, node):
        """Without what time alone changes."""
        if isinstance(node, dict):
            return {k: self.steady(v) for k, v in node.items() if k not in ("usage", "idle_seconds", "last_activity_at", "expires_at", "updated_at", "output")}
        return [self.steady(v) for v in node] if isinstance(node, list) else node

    # ---- the suite --------------------------------------------------------------------------------------------------

    def test_every_route_has_a_role_and_the_page_says_it(self):
        with open(f"{ROOT}/docs/API.md", encoding="utf-8") as f:
            page = dict(re.findall(r"(?m)^\| `([A-Z]+ /[^`]*)` \| (open|read-only|user|admin|socket) \|$", f.read()))
        told = {f"{method} {path}": operation.get("x-brig-role") for path, method, operation in self.operations()}
        self.assertEqual({route for route, role in told.items() if role not in RANKS}, set())
        self.assertEqual(page, told)

    def test_every_route_with_every_role(self):
        """Too low a role is 401 or 403, and nothing has changed after all of these; the role itself is neither."""
        before = self.state()
        for path, method, operation in self.operations():
            need = RANKS[operation["x-brig-role"]]
            for caller, rank in CALLERS.items():
                if rank < need:
                    body = self.value(self.body_of(operation)) if self.body_of(operation) else None
                    got = self.status(caller, method, self.fill(path, self.objects.__getitem__), body)
                    self.assertEqual(got, 401 if caller == "none" else 403, (caller, method, path))
        self.assertEqual(self.state(), before)

    def test_every_route_is_open_to_its_role(self):
        for path, method, operation in self.operations():
            need = RANKS[operation["x-brig-role"]]
            if operation["operationId"] in ENDS or operation["operationId"] == "preview":
                continue
            for caller, rank in CALLERS.items():
                if rank >= need:
                    got = self.status(caller, method, self.nobodys(path), {} if self.body_of(operation) else None)
                    self.assertNotIn(got, (401, 403), (caller, method, path))

    def with_member(self, schema, names, value):
        body = at = json.loads(json.dumps(schema.get("x-brig-body") or self.value(schema)))
        for name in names[:-1]:
            at = at.setdefault(name, {})
        at[names[-1]] = value
        return body

    def try_member(self, path, method, need, member):
        names, role, body = member
        for caller in ("user", "admin", "socket"):
            if CALLERS[caller] < need:
                continue
            got = self.status(caller, method, self.fill(path, self.objects.__getitem__) if role else self.nobodys(path), body)
            where = (caller, method, path, ".".join(names), body)
            if role and CALLERS[caller] < RANKS[role]:
                self.assertEqual(got, 403, where)
            else:
                self.assertNotIn(got, (401, 403), where)

    def test_every_member_with_every_role(self):
        seen = 0
        for path, method, operation in self.operations():
            schema, need = self.body_of(operation), RANKS[operation["x-brig-role"]]
            if not schema or operation["operationId"] in ENDS:
                continue
            for names, tries in self.members(schema):
                for role, value in tries:
                    self.try_member(path, method, need, (names, role, self.with_member(schema, names, value)))
                    seen += 1
        self.assertGreater(seen, 100)

    def test_another_organisation_finds_nothing_and_changes_nothing(self):
        before = self.state()
        for path, method, operation in self.operations():
            if "{" not in path or operation["x-brig-role"] in ("open", "socket"):
                continue
            body = self.value(self.body_of(operation)) if self.body_of(operation) else None
            got = self.status("stranger", method, self.fill(path, self.objects.__getitem__), body)
            if operation["operationId"] in OWN_NAMES:
                self.status("stranger", "DELETE", self.fill(path, self.objects.__getitem__))  # its own, if that made one
            else:
                self.assertIn(got, (404, 400, 405, 422), (method, path))
                self.assertIn(self.status("stranger", method, self.nobodys(path), body), (got, 404, 400, 422), (method, path))
        self.assertEqual(self.state(), before)


if __name__ == "__main__":
    unittest.main()
