# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.yaml against the daemon: the same routes and parameters as the tables of src/api and src/letta,
and no request made from it, or nearly, gets an answer that is not described: never a 5xx, always the error's shape."""

import json
import os
import random
import re
import unittest
from urllib.parse import quote, urlencode

from service import ServiceTest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METHODS = ("get", "put", "post", "delete", "patch", "head")
# endless, or not HTTP any more
STREAMS = {"processOutput", "waitProcess", "events", "watchFiles", "attachProcess", "runAttached", "preview",
           "reloadConfig"}
# would take away what the others need, or ask a registry of the network
OTHERS = {"deleteSandbox", "stopSandbox", "pauseSandbox", "updateSandbox", "prewarm", "recreateVenv", "pullTemplate"}
SEED = int(os.environ.get("BRIG_TEST_SEED", "2744"))
ROUNDS = int(os.environ.get("BRIG_TEST_ROUNDS", "6"))


def routes():
    """(method, pattern, query names) of the tables in the source."""
    text = ""
    for path in ("api/routes/routes.c", "letta/letta_routes.c"):
        with open(f"{ROOT}/src/{path}", encoding="utf-8") as f:
            text += f.read()
    words = dict(re.findall(r'#define (BOX|PROC) (.+)', text))
    route = r'\{"([A-Z*]+)", ((?:BOX|PROC)?\s*(?:"[^"]*")?),\s*((?:"[^"]*"\s*)+)'
    for method, pattern, query in re.findall(route, text):
        for name in ("PROC", "BOX"):
            pattern = pattern.replace(name, words[name])
        for name in ("BOX",):
            pattern = pattern.replace(name, words[name])
        yield method, "".join(re.findall(r'"([^"]*)"', pattern)), set("".join(re.findall(r'"([^"]*)"', query)).split())


class Description(ServiceTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spec = cls.d.ask("GET", "/v1/openapi.json").json

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
                    parameters = [self.resolve(p)
                                  for p in item.get("parameters", []) + item[method].get("parameters", [])]
                    yield path, method, item[method], parameters

    def test_routes_agree(self):
        told = {(method.upper(), path.replace("/{path}", "/...")): {p["name"] for p in parameters if p["in"] == "query"}
                for path, method, _, parameters in self.operations()}
        real = {("GET" if m == "*" else m, p): {q for q in query if q != "*" and not q.endswith(".")} for m, p,
                query in routes()}
        self.assertGreater(len(real), 50)
        self.assertEqual(told, real)

    def test_every_reference_leads_somewhere(self):
        for ref in set(re.findall(r'"\$ref":\s*"([^"]+)"', json.dumps(self.spec))):
            self.resolve({"$ref": ref})

    # ---- requests made from the description -------------------------------------------------------------------------

    STRANGE = ("", "x", "\u00e4", "..", "a\nb", "%", "-1", "0", "1e308", "null", "9" * 40, "x" * 5000, "'\"<>",
               "/etc/passwd", "{}", "\u0000")

    def value(self, schema, rng):
        schema = self.resolve(schema)
        if rng.random() < 0.2:
            return rng.choice((None, True, -1, 0, 1.5, 2**70, [], {}, [[]], {"a": {}}, *self.STRANGE))
        if "oneOf" in schema:
            return self.value(rng.choice(schema["oneOf"]), rng)
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object":
            names = list(schema.get("properties", {}))
            made = {n: self.value(schema["properties"][n], rng) for n in names if rng.random() < 0.5
                    or n in schema.get("required", [])}
            if not names:
                made = {rng.choice(("A", "b", "x-y", "")): self.value({"type": "string"}, rng)}
            return made
        if kind == "array":
            return [self.value(schema.get("items", {}), rng) for _ in range(rng.randrange(3))]
        if kind == "integer":
            return rng.choice((schema.get("minimum", 0), schema.get("maximum", 1000), 1, 7))
        if kind == "number":
            return rng.choice((0.5, 1, 30))
        if kind == "boolean":
            return rng.random() < 0.5
        return rng.choice(("true", "name", "/tmp", "1s", "64m", *self.STRANGE))

    def ask_one(self, path, method, operation, parameters, rng, sid):
        target = path
        query = {}
        for p in parameters:
            made = self.value(p["schema"], rng)
            text = made if isinstance(made, str) else json.dumps(made)
            if p["in"] == "path":
                text = sid if p["name"] in ("id", "sandbox") and rng.random() < 0.8 else text
                target = target.replace("{%s}" % p["name"], quote(text, safe="") or "x")
            elif p["in"] == "query" and (p.get("required") or rng.random() < 0.5):
                query[p["name"]] = text
        if query:
            target += "?" + urlencode(query)
        body, content = None, operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            body = json.dumps(self.value(content["application/json"]["schema"], rng)).encode()
        elif content:
            body = rng.choice((b"", b"data", bytes(2000)))
        return target, self.d.ask(method.upper(), target, body)

    def test_requests_from_the_description(self):
        rng = random.Random(SEED)
        sid = self.sandbox(limits={"memory": "128m"})
        brigd = self.d.children()["brigd"]
        for _ in range(ROUNDS):
            for path, method, operation, parameters in self.operations():
                if operation["operationId"] in STREAMS or operation["operationId"] in OTHERS:
                    continue
                target, answer = self.ask_one(path, method, operation, parameters, rng, sid)
                with self.subTest(f"{method} {target[:200]}"):
                    self.assertLess(answer.status, 500, answer)
                    if answer.status >= 400 and "compatible" in operation["tags"] and "detail" in answer.json:
                        # Letta's shape; what the server itself refuses has ours
                        self.assertTrue(answer.json["detail"], answer)
                    elif answer.status >= 400 and method != "head":
                        error = answer.json["error"]
                        self.assertTrue(error["code"] and error["message"], answer)
                    elif answer.status < 400:
                        self.assertIn(str(answer.status), operation["responses"], answer)
            for made in self.d.ask("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]:
                if made["id"] != sid:
                    self.d.ask("DELETE", f"/v1/sandboxes/{made['id']}")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").status, 200)
        self.assertEqual(self.d.children()["brigd"], brigd, "brigd has died, and the supervisor has started another")
