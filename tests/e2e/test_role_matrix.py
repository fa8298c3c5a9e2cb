# SPDX-License-Identifier: Apache-2.0
"""Who may what, generated from docs/openapi.yaml: every route and every member of every body with every role.

`x-brig-role` of an operation is the least role that may call it (open, read-only, user, admin, socket); of a member of
a body it is the least role that may send it, with `x-brig-example` as the value to try; `x-brig-roles` has single
values that need more, and `x-brig-body` what a body needs besides. A route without one fails here, and a member without
one may be sent by whoever may call the route, so that what comes next is covered by being in the file. Besides: an
administrator of another organisation finds nothing of this one and changes nothing, and a refusal changes nothing at
all. Members are tried at any depth, arrays and maps by one element; what has no role has that of what it is in."""

import http.client
import json
import os
import re
import tempfile
import unittest
from collections import namedtuple
from urllib.parse import quote

from helpers import PATIENCE, wait_until
from imagekit import entry, tar
from service import DEFAULT_ORG, ServiceTest, UnixConnection

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METHODS = ("get", "put", "post", "delete", "patch", "head")
RANKS = {"open": 0, "read-only": 1, "user": 2, "admin": 3, "socket": 4}
CALLERS = {"none": 0, "read-only": 1, "user": 2, "admin": 3, "socket": 4}
ENDS = {"reloadConfig", "prune", "rotateSecrets"}  # of the whole service: not called by those who may
# Names that every organisation has for itself: putting one makes a new object, and does not touch the other's.
OWN_NAMES = {"putPolicy", "setSecret", "putRegistry"}
NOT_FOUND = {"deleteTool": 400}  # Letta's answer; 404 everywhere else
LATE = {"waitProcess"}  # the owner's answer comes when the process has ended
SOURCE = "def f() -> str:\n    \"\"\"\n    Says yes.\n    \"\"\"\n    return 'yes'\n"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
# A place in a body: names, the role it needs, a whole body with a value there, a sample of it, the shapes around.
Node = namedtuple("Node", "at role put sample inside")
ROOT_NODE = Node((), None, lambda v: v, None, ())
SCHEMA = {"name": "f", "description": "Says yes.", "parameters": {"type": "object", "properties": {}}}


class Matrix(ServiceTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        # What a body asks to be installed fails at once and on every machine: no wheels, and a port that npm refuses.
        wheels = tempfile.TemporaryDirectory(prefix="brig-wheels-")
        cls.addClassCleanup(wheels.cleanup)
        os.chmod(wheels.name, 0o755)
        cls.CONFIG = ("[secrets]\ninsecure_plaintext = true\n[server]\nmax_connections = 4096\n"
                      f'[tools]\nfind_links = "{wheels.name}"\nnpm_registry = "http://nowhere.test:99999/"\n')
        super().setUpClass()
        cls.spec = cls.d.ask("GET", "/v1/openapi.json").json
        # The parameters that all operations of a path have.
        cls.around = {id(item[m]): item.get("parameters", ())
                      for item in cls.spec["paths"].values() for m in METHODS if m in item}
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
        services = [{"name": "one", "argv": ["sleep", "1000"]}]
        box = ask("POST", "/v1/sandboxes", {"name": "mine", "services": services})["id"]
        ask("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["sleep", "1000"]})
        owner = {"tcp": True, "key": cls.keys["admin"]}
        assert cls.d.ask("PUT", f"/v1/sandboxes/{box}/files?path=x", b"mine", **owner).status == 200
        gone = ask("POST", "/v1/sandboxes", {})["id"]
        ask("POST", f"/v1/sandboxes/{gone}/stop")
        run = ask("POST", "/v1/run", {"language": "bash", "code": "mkdir -p out && echo mine > out/x"})["id"]
        wait_until("the run's files are kept", lambda: cls.d.ask("GET", f"/v1/runs/{run}/files", **owner).status == 200)
        ask("PUT", "/v1/policies/mine", {"default": "deny"})
        ask("PUT", "/v1/secrets/MINE", {"value": "0123456789"})
        tool = ask("POST", "/v1/tools/", {"source_code": SOURCE, "json_schema": SCHEMA})["id"]
        agent = ask("POST", "/v1/agents/", {"name": "mine"})["id"]
        ask("PUT", f"/v1/agents/{agent}/secrets", {"key": "K", "value": "v"})
        config = ask("POST", "/v1/sandbox-config/local/default")["id"]
        variable = ask("POST", f"/v1/sandbox-config/{config}/environment-variable", {"key": "K", "value": "v"})["id"]
        key = ask("POST", "/v1/keys", {"name": "mine"})["id"]
        ask("PUT", "/v1/registries/registry.example", {"user": "me", "password": "mine"})
        made = cls.d.ask("POST", "/v1/templates/load?name=mine", tar(entry("mine", b"mine")), **owner)
        assert made.status == 200 and b'"template"' in made.body, made
        # A provider without disks says so, and has nothing that these paths could name.
        cls.disks = cls.d.ask("POST", "/v1/volumes", {"name": "mine", "size": "16m"}, **owner).status != 422
        if cls.disks:
            files = ask("POST", "/v1/sandboxes", {"forkable": True, "limits": {"disk": "16m"}})["id"]
            ask("POST", f"/v1/sandboxes/{files}/snapshot", {"name": "kept"})
            ask("DELETE", f"/v1/sandboxes/{files}")
        build = ask("POST", "/v1/templates/builds",
                    {"name": "built", "dockerfile": "FROM mine\nENV A=b", "context": False, "update_lock": True})["id"]
        wait_until("the build is done", lambda: ask("GET", f"/v1/templates/builds/{build}")["state"] == "done")
        cls.objects = {"id": box, "n": "1", "port": "80", "path": "", "run": run, "sandbox": gone, "policy": "mine",
                       "name": "MINE", "tool_id": tool, "tool": tool, "tool_name": "f", "agent_id": agent,
                       "sandbox_config_id": config, "env_var_id": variable, "key": key, "agent_key": "K",
                       "org": cls.org, "template": "mine", "host": "registry.example",
                       "snapshot": "kept", "volume": "mine", "build": build, "service": "one", "provider": "local"}

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

    def members(self, schema, node=ROOT_NODE):
        """(names, role, body) for every member at any depth: of objects, of one element of an array, of maps, of each
        shape."""
        schema = self.resolve(schema)
        if id(schema) in node.inside:
            return  # a shape that contains itself: one turn of it
        inside = (*node.inside, id(schema))
        for shape in (one for words in ("oneOf", "anyOf", "allOf") for one in schema.get(words, [])):
            yield from self.members(shape, node._replace(inside=inside))
        base = node.sample if isinstance(node.sample, dict) else self.value(schema)
        for name, member in schema.get("properties", {}).items():
            here = node._replace(inside=inside, put=lambda v, n=name: node.put({**base, n: v}))
            yield from self.member(name, member, here)
        if isinstance(schema.get("additionalProperties"), dict):
            here = node._replace(inside=inside, put=lambda v: node.put({"K": v}))
            yield from self.member("K", schema["additionalProperties"], here)
        if "items" in schema:
            first = node.sample[0] if isinstance(node.sample, list) and node.sample else None
            here = node._replace(inside=inside, put=lambda v: node.put([v]))
            yield from self.member("0", schema["items"], here, first)

    def member(self, name, member, node, sample=None):
        """This one, and what it contains. What has no role of its own has that of what it is in."""
        words = {**self.resolve(member), **member}
        role, at = words.get("x-brig-role", node.role), (*node.at, name)
        value = words.get("x-brig-example", self.value(member) if sample is None else sample)
        for one in words.get("x-brig-roles", []):
            yield at, one["role"], node.put(one["example"])
        yield at, role, node.put(value)
        yield from self.members(member, node._replace(at=at, role=role, sample=value))

    def value(self, schema):
        """Something of the right type."""
        schema = self.resolve(schema)
        if "x-brig-body" in schema:
            return schema["x-brig-body"]
        for words in ("oneOf", "anyOf", "allOf"):
            if words in schema:
                return self.value(schema[words][0])
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "string")
        if kind == "object":
            return {n: self.value(schema["properties"][n])
                    for n in schema.get("required", []) if n in schema.get("properties", {})}
        return {"string": "x" * max(1, schema.get("minLength", 1)), "integer": schema.get("minimum", 1), "number": 1,
                "boolean": True, "array": []}.get(kind, "x")

    # ---- asking -----------------------------------------------------------------------------------------------------

    def status(self, caller, method, path, body=None, operation=None):
        return self.answer(caller, method, path, body, operation)[0]

    def answer(self, caller, method, path, body=None, operation=None):
        """The status, and what a refusal says: other answers may not end."""
        c = (UnixConnection(self.d.socket) if caller == "socket"
             else http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=PATIENCE))
        wants = operation or {}
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {} if body is None else {"Content-Type": kind}
        if "101" in wants.get("responses", {}):
            headers.update(UPGRADE)
        needed = [self.resolve(one) for one in (*self.around.get(id(wants), ()), *wants.get("parameters", ()))]
        query = "&".join(f"{one['name']}={quote(str(self.value(one['schema'])))}"
                         for one in needed if one.get("required") and one["in"] == "query")
        key = self.stranger if caller == "stranger" else self.keys.get(caller)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            c.request(method, f"{path}?{query}" if query else path, sent, headers)
            r = c.getresponse()
            return r.status, re.sub(r"req-\w+", "", r.read().decode()) if r.status >= 400 else ""
        finally:
            c.close()

    def right_body(self, operation):
        """What the route would take from an owner: bytes where it wants no JSON."""
        content = self.resolve(operation.get("requestBody", {})).get("content", {})
        return self.value(self.body_of(operation)) if "application/json" in content else b"x" if content else None

    def fill(self, path, objects):
        path = path.replace("/secrets/{key}", "/secrets/{agent_key}")
        return re.sub(r"\{(\w+)\}", lambda m: quote(objects(m.group(1)), safe=""), path)

    def nobodys(self, path):
        """The path with ids that nothing has: well-formed, with another last digit."""
        return self.fill(path, lambda name: {"port": "80", "path": ""}.get(name, self.other(self.objects[name])))

    @staticmethod
    def other(one):
        return one[:-1] + ("1" if one[-1:] != "1" else "2")

    def state(self):
        """Everything there is, as its owner and as the host's administrator see it."""
        paths = ("/v1/sandboxes", "/v1/keys", "/v1/policies", "/v1/secrets", "/v1/templates", "/v1/registries",
                 "/v1/tools/", "/v1/volumes", "/v1/snapshots",
                 "/v1/agents/", "/v1/sandbox-config/", "/v1/approvals",
                 f"/v1/sandboxes/{self.objects['id']}/processes", f"/v1/orgs/{self.org}/tools",
                 f"/v1/keys/{self.objects['key']}/tools",
                 f"/v1/agents/{self.objects['agent_id']}",
                 f"/v1/sandbox-config/{self.objects['sandbox_config_id']}/environment-variable", "/v1/runs")
        seen = {path: self.d.ask("GET", path, tcp=True, key=self.keys["admin"]).json for path in paths}
        seen.update((f"socket {path}", self.d.ask("GET", path).json)
                    for path in ("/v1/orgs", "/v1/sandboxes", "/v1/keys"))
        # The owner's own export is a run of the service.
        seen["/v1/runs"]["runs"] = [r for r in seen["/v1/runs"]["runs"]
                                    if r.get("command", [])[:1] != ["/.brig/layer"]]
        return self.steady(seen)

    def steady(self, node):
        """Without what time alone changes."""
        if isinstance(node, dict):
            return {k: self.steady(v) for k, v in node.items()
                    if k not in ("usage", "idle_seconds", "last_activity_at", "expires_at", "updated_at", "output",
                                 "used_bytes", "own_bytes")}
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

    def wrong_answers(self, path, method, need, member):
        names, role, body = member
        for caller in ("user", "admin", "socket"):
            if CALLERS[caller] < need:
                continue
            got = self.status(caller, method, self.fill(path, self.objects.__getitem__) if role else self.nobodys(path),
                              body)
            refuse = role and CALLERS[caller] < RANKS[role]
            if got != 403 if refuse else got in (401, 403):
                yield caller, got, "not 403" if refuse else "refused", method, path, ".".join(names), body

    def test_every_member_with_every_role(self):
        seen, wrong = set(), []
        for path, method, operation in self.operations():
            schema, need = self.body_of(operation), RANKS[operation["x-brig-role"]]
            if not schema or operation["operationId"] in ENDS:
                continue
            for member in self.members(schema, ROOT_NODE._replace(sample=schema.get("x-brig-body"))):
                wrong += self.wrong_answers(path, method, need, member)
                seen.add((operation["operationId"], member[0]))
        self.assertEqual(wrong, [])
        self.assertGreater(len(seen), 400)
        # Those that a walk of two levels, or one that stops at arrays, does not reach.
        self.assertLessEqual({("putPolicy", ("rules", "0", "methods", "0")), ("run", ("sandbox", "limits", "pids")),
                              ("run", ("sandbox", "binds", "0", "source")), ("createAgent", ("secrets", "K"))}, seen)

    def why_unjudged(self, path, method, operation):
        """Whose it is must be what decides: the owner finds it, and to another it is the same as what nobody has."""
        theirs, body = self.fill(path, self.objects.__getitem__), self.right_body(operation)
        name, refused = operation["operationId"], NOT_FOUND.get(operation["operationId"], 404)
        if method in ("GET", "HEAD") and name not in LATE:
            if self.status("admin", method, theirs, body, operation) == 404:
                return "its owner does not find it"
        status, text = self.answer("stranger", method, theirs, body, operation)
        if name in OWN_NAMES:
            gone = self.status("stranger", "DELETE", theirs)  # its own, and only that
            return "" if (status, gone) in ((200, 204), (201, 204)) else f"{status}, then {gone}: {text}"
        if status != refused:
            return f"{status}: {text}"
        other = self.answer("stranger", method, self.nobodys(path), body, operation)
        for one in (self.objects[n] for n in re.findall(r"\{(\w+)\}", path) if len(self.objects[n]) > 3):
            text, other = text.replace(one, "ID"), (other[0], other[1].replace(self.other(one), "ID"))
        return "" if other == (status, text) else f"{status} {text}, and of what nobody has {other}"

    def test_another_organisation_finds_nothing_and_changes_nothing(self):
        """Not found, with a body and parameters that are right: another refusal comes before the question whose it
        is."""
        before, unjudged = self.state(), {}
        for path, method, operation in self.operations():
            if not self.disks and ("{snapshot}" in path or "{volume}" in path):
                continue
            if "{" in path and operation["x-brig-role"] not in ("open", "socket"):
                unjudged[f"{method} {path}"] = self.why_unjudged(path, method, operation)
        self.assertEqual({route: why for route, why in unjudged.items() if why}, {})
        self.assertGreater(len(unjudged), 60)
        self.assertEqual(self.state(), before)


if __name__ == "__main__":
    unittest.main()
