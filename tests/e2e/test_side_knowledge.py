# SPDX-License-Identifier: Apache-2.0
"""What one organisation can read about another one: nothing. Metrics, the audit log, events, lists and texts of
refusals are read with an administrator's key of B before and after A was busy."""

import json
import unittest

from service import ServiceTest


class Others(ServiceTest):
    CONFIG = "[server]\nmetrics_per_sandbox = true\n[secrets]\ninsecure_plaintext = true\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a, cls.b = ({"id": cls.d.ask("POST", "/v1/orgs", {"name": name}).json["id"]} for name in ("a", "b"))
        for org in (cls.a, cls.b):
            org["key"] = cls.d.key(org=org["id"], role="admin")

    def as_a(self, method, path, body=None):
        return self.d.ask(method, path, body, tcp=True, key=self.a["key"])

    def as_b(self, method, path, body=None):
        return self.d.ask(method, path, body, tcp=True, key=self.b["key"])

    def busy(self):
        """A does a little of everything; what must not be seen by B is returned."""
        made = self.as_a("POST", "/v1/sandboxes", {"name": "a-secret-name", "metadata": {"m": "a-secret-value"}})
        self.assertEqual(made.status, 201, made)
        box = made.json["id"]
        self.addCleanup(self.as_a, "DELETE", f"/v1/sandboxes/{box}")
        run = self.as_a("POST", f"/v1/sandboxes/{box}/run", {"command": "echo a-secret-output"}).json
        key = self.as_a("POST", "/v1/keys", {"name": "a-secret-key"}).json
        self.assertLess(self.as_a("PUT", "/v1/policies/a-secret-policy", {"default": "deny"}).status, 300)
        self.assertLess(self.as_a("PUT", "/v1/secrets/A_SECRET", {"value": "0123456789"}).status, 300)
        self.as_a("POST", "/v1/run", {"language": "bash", "code": "echo a-secret-output"})
        return [box, run["id"], key["id"], self.a["id"], "a-secret", "A_SECRET"]

    def test_metrics(self):
        before = self.as_b("GET", "/metrics").body.decode()
        self.busy()
        self.assertEqual(self.as_b("GET", "/metrics").body.decode(), before)
        self.assertIn('brig_sandboxes{state="running"} 0\n', before)
        names = {line.split("{")[0].split(" ")[0] for line in before.splitlines() if not line.startswith("#")}
        self.assertEqual(names, {"brig_sandboxes", "brig_processes"})

    def test_metrics_of_the_whole_service(self):
        refused = self.as_b("POST", "/v1/keys", {"metrics": True})
        self.refused(refused, 403, "forbidden", "metrics: only the administrator on the unix socket may do this")
        key = self.d.key(org=self.b["id"], role="read-only", metrics=True)
        for text in (self.d.ask("GET", "/metrics").body, self.d.ask("GET", "/metrics", tcp=True, key=key).body):
            self.assertIn(b"\nbrig_http_requests_total", text)

    def test_audit(self):
        first = [json.loads(line) for line in self.as_b("GET", "/v1/audit?limit=100000").body.splitlines()]
        words = self.busy()
        for path in (f"/v1/sandboxes/{words[0]}", f"/v1/runs/{words[1]}", f"/v1/sandboxes/{words[0]}/files?path=x"):
            self.assertEqual(self.as_b("GET", path).status, 404)
        self.assertEqual(self.as_b("DELETE", f"/v1/keys/{words[2]}").status, 404)
        for path in (f"/v1/keys/{words[2]}/tools", f"/v1/orgs/{self.a['id']}/tools"):
            self.assertEqual(self.as_b("GET", path).status, 404)
            self.assertEqual(self.as_b("PUT", path, {"deny": ["x"]}).status, 404)
        self.assertEqual(self.as_b("POST", "/v1/keys", {"org": self.a["id"]}).status, 404)
        text = self.as_b("GET", "/v1/audit?limit=100000").body.decode()
        for word in words:
            self.assertNotIn(word, text)
        self.assertEqual([json.loads(line) for line in text.splitlines()], first)
        self.assertEqual({frozenset(event) for event in first},
                         {frozenset(("time", "actor", "org", "action", "object", "outcome", "detail", "request_id"))})
        # the administrator on the socket sees who tried
        events = [json.loads(line) for line in self.d.ask("GET", "/v1/audit?limit=100000").body.splitlines()]
        tried = {e["object"] for e in events if e["action"] == "denied" and e["org"] == ""}
        self.assertLessEqual({words[0], words[2], self.a["id"]}, tried)

    def test_audit_after_a_time(self):
        """The numbers of lines tell how much others do, so a key goes on from a time."""
        self.as_b("PUT", "/v1/policies/first", {"default": "deny"})
        events = [json.loads(line) for line in self.as_b("GET", "/v1/audit?limit=100000").body.splitlines()]
        self.assertEqual([e["time"] for e in events], sorted({e["time"] for e in events}))
        self.as_b("PUT", "/v1/policies/second", {"default": "deny"})
        more = [json.loads(line)
                for line in self.as_b("GET", f"/v1/audit?after={events[-1]['time']}").body.splitlines()]
        self.assertEqual({e["object"] for e in more}, {"second"})
        self.refused(self.as_b("GET", "/v1/audit?after=1"), 400, "invalid_argument",
                     "after: must be the time of a line, such as 2024-02-29T12:00:00.000000000Z")

    def test_lists_and_refusals(self):
        words = self.busy()
        paths = ("/v1/sandboxes", "/v1/runs", "/v1/certificates", "/v1/keys", "/v1/policies", "/v1/secrets",
                 "/v1/pools", "/v1/providers",
                 "/v1/approvals", "/v1/tools/", "/v1/agents/", "/v1/sandbox-config/", "/v1/version", "/healthz",
                 "/readyz", "/metrics")
        for path in paths:
            answer = self.as_b("GET", path)
            self.assertEqual(answer.status, 200, path)
            for word in words:
                self.assertNotIn(word, answer.body.decode(), path)
        # what is another's and what is nobody's are refused in the same words
        for kind, theirs, nobodys in (("sandboxes", words[0], "aaaaaaaaaaaaaaaaaaaaaaaaaa"),
                                      ("runs", words[1], "run-00000000-0000-4000-8000-000000000000"),
                                      ("certificates", words[0], "aaaaaaaaaaaaaaaaaaaaaaaaaa"),
                                      ("policies", "a-secret-policy", "a-nobodys-policy"),
                                      ("secrets", "A_SECRET", "A_NOBODYS")):
            one, other = (self.as_b("GET", f"/v1/{kind}/{name}") for name in (theirs, nobodys))
            said = [(a.status, a.json["error"]["code"], a.json["error"]["message"].replace(n, "NAME"),
                     a.json["error"]["hint"]) for a,
                    n in ((one, theirs), (other, nobodys))]
            self.assertEqual(said[0], said[1])
            self.assertEqual(said[0][0], 404)


if __name__ == "__main__":
    unittest.main()
