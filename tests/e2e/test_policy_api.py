# SPDX-License-Identifier: Apache-2.0
"""Named network policies over a real daemon: the routes, who may use them, and `brig policy`."""

import json
import os
import shutil
import signal
import tempfile
import unittest

from helpers import FAILED, brig, environment
from service import ServiceTest

WEB = {"rules": [{"action": "allow", "domain": "API.Example.com"},
                 {"action": "deny", "domain": "*.example.com", "ports": "any"},
                 {"action": "allow", "domain": "docs.example.org", "methods": ["GET"], "paths": ["/v1/"]}]}


def allow(name):
    return {"rules": [{"action": "allow", "domain": name}]}


class Policies(ServiceTest):
    def put(self, name, policy, **kw):
        self.addCleanup(self.d.ask, "DELETE", f"/v1/policies/{name}", **kw)
        return self.d.ask("PUT", f"/v1/policies/{name}", policy, **kw)

    def check(self, network, host, port=443, **members):
        answer = self.d.ask("POST", "/v1/policies/check", {"network": network, "host": host, "port": port, **members})
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def names(self, **kw):
        return [p["name"] for p in self.d.ask("GET", "/v1/policies", **kw).json["policies"]]

    def test_made_replaced_deleted(self):
        made = self.put("web", WEB)
        self.assertEqual(made.status, 201, made)
        self.assertEqual((made.json["name"], made.json["version"], made.json["preset"]), ("web", 1, False))
        self.assertEqual(made.json["policy"]["rules"][0],
                         {"action": "allow", "domain": "api.example.com", "ports": [80, 443]})
        self.assertEqual(made.json["policy"]["default"], "deny")
        self.assertEqual(made.json["policy"]["tls"], {"ech": "deny", "no_sni": "deny"})
        again = self.put("web", allow("x.org"))
        self.assertEqual((again.status, again.json["version"], again.json["created_at"]),
                         (200, 2, made.json["created_at"]))
        got = self.d.ask("GET", "/v1/policies/web").json
        self.assertEqual(got, again.json)
        # canonical: what comes out goes in
        self.assertEqual(self.put("copy", got["policy"]).json["policy"], got["policy"])
        self.assertEqual(self.names(), ["copy", "web"])
        self.assertEqual(self.d.ask("DELETE", "/v1/policies/web").status, 204)
        self.refused(self.d.ask("GET", "/v1/policies/web"), 404, "not_found", "policy web not found")
        self.refused(self.d.ask("DELETE", "/v1/policies/web"), 404, "not_found", "policy web not found")
        self.assertEqual(self.names(), ["copy"])

    def test_refused(self):
        for name, policy, text in (
                ("x", {"rules": [{"action": "allow", "domain": "127.1"}]},
                 'rules[0].domain: this is an IP address: use "cidr"'),
                ("x", {"rules": [{"action": "allow", "domain": "*"}]}, 'use "default": "allow"'),
                ("x", {"rules": [{"action": "allow", "domain": "x.org", "ports": [0]}]}, "rules[0].ports"),
                ("x", {"deafult": "deny"}, "deafult: unknown member"),
                ("x", {"learn": True}, "learn"),
                ("X", {}, "a name has 1 to 63"),
                ("open", {}, "means something already"),
                ("learn", {}, "means something already")):
            self.refused(self.d.ask("PUT", f"/v1/policies/{name}", policy), 400, "invalid_argument", text)
        self.refused(self.d.ask("PUT", "/v1/policies/x", {"extends": "nobody"}), 404, "not_found", "nobody")
        self.assertNotIn("x", self.names())
        self.assertEqual(
            self.d.ask("PUT", "/v1/policies/x",
                       {"rules": [{"action": "allow", "domain": "x" * 62 + f".{i}x.org", "paths": ["/" + "y" * 900]}
                                                                                     for i in range(300)]}).status, 413)

    def test_check(self):
        self.put("web", WEB)
        self.assertEqual(self.check("web", "x.org"), {"allow": False, "rule": None, "why": "default deny",
                                                      "network": "web", "version": 1, "host": "x.org", "port": 443})
        said = self.check("web", "api.example.com")
        # deny wins
        self.assertEqual((said["allow"], said["rule"], said["why"]), (False, 1, "rule 1 (deny *.example.com:any)"))
        self.assertTrue(self.check("web", "docs.example.org", 80)["allow"])
        self.assertTrue(self.check("web", "docs.example.org", 80, method="GET", path="/v1/x")["allow"])
        self.assertFalse(self.check("web", "docs.example.org", 80, method="POST", path="/v1/x")["allow"])
        self.assertFalse(self.check("web", "docs.example.org", 80, method="GET", path="/v1/%2e%2e/x")["allow"])
        self.assertFalse(self.check("web", "docs.example.org", 443, protocol="tls")["allow"])
        self.assertFalse(self.check("none", "x.org")["allow"])
        self.assertTrue(self.check("packages", "pypi.org")["allow"])
        self.assertFalse(self.check("packages", "example.org")["allow"])
        self.assertTrue(self.check("open", "example.org", 22, protocol="tcp")["allow"])
        self.assertEqual(self.check("open", "169.254.169.254", 80)["why"],
                         "169.254.169.254 is metadata service, and no cidr rule names it")
        self.assertFalse(self.check("open", "x.org", address="10.0.0.1")["allow"])
        self.assertTrue(self.check(allow("b\u00fccher.example"), "B\u00dcCHER.example.")["allow"])
        said = self.check({"extends": "packages", "rules": [{"action": "deny", "domain": "pypi.org"}]}, "pypi.org")
        self.assertEqual((said["allow"], said["network"]), (False, "custom"))
        for body, status, text in (({"network": "nobody", "host": "x.org", "port": 1}, 404, "nobody"),
                                   ({"network": "open", "host": "x y", "port": 1}, 400, "host"),
                                   ({"network": "open", "host": "x.org", "port": 0}, 400, "port"),
                                   ({"host": "x.org", "port": 1}, 400, "network"),
                                   ({"network": "open", "host": "x.org", "port": 1, "protocol": "udp"}, 400,
                                    "protocol"),
                                   ({"network": "open", "host": "x.org", "port": 1, "protocol": "tls", "method": "GET"},
                                    400, "protocol"),
                                   ({"network": "open", "host": "127.1", "port": 1}, 400, "host")):
            self.refused(self.d.ask("POST", "/v1/policies/check", body), status,
                         "not_found" if status == 404 else "invalid_argument", text)

    def test_presets_can_be_seen(self):
        self.assertEqual(self.d.ask("GET", "/v1/policies/none").json["policy"], {"default": "deny"})
        self.assertEqual(self.d.ask("GET", "/v1/policies/open").json["policy"]["default"], "allow")
        got = self.d.ask("GET", "/v1/policies/packages").json
        self.assertTrue(got["preset"])
        self.assertIn("pypi.org", [r.get("domain") for r in got["policy"]["rules"]])

    def test_roles(self):
        keys = {role: self.d.key(role=role) for role in ("admin", "user", "read-only")}
        for role in ("user", "read-only"):
            self.refused(self.d.ask("PUT", "/v1/policies/mine", {}, tcp=True, key=keys[role]), 403, "forbidden", "")
            self.refused(self.d.ask("DELETE", "/v1/policies/mine", tcp=True, key=keys[role]), 403, "forbidden", "")
            self.assertEqual(self.d.ask("GET", "/v1/policies", tcp=True, key=keys[role]).status, 200)
            self.assertEqual(self.d.ask("POST", "/v1/policies/check", {"network": "open", "host": "x.org", "port": 1},
                                        tcp=True, key=keys[role]).status,
                             200)
        self.assertEqual(self.put("mine", {}, tcp=True, key=keys["admin"]).status, 201)
        self.assertEqual(self.d.ask("PUT", "/v1/policies/mine", {}, tcp=True).status, 401)

    def test_organisations_do_not_see_each_other(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        other = self.d.key(role="admin", org=org)
        self.put("web", allow("ours.org"))
        self.assertEqual(self.d.ask("PUT", "/v1/policies/web", allow("theirs.org"), tcp=True,
                                    key=other).json["version"],
                         1)
        self.assertEqual(self.d.ask("PUT", "/v1/policies/secret", {}, tcp=True, key=other).status, 201)
        self.assertEqual(self.names(), ["web"])
        self.assertTrue(self.check("web", "ours.org")["allow"])
        self.assertFalse(self.check("web", "theirs.org")["allow"])
        self.refused(self.d.ask("POST", "/v1/policies/check", {"network": "secret", "host": "x.org", "port": 1}), 404,
                     "not_found", "secret")
        self.assertEqual(self.names(tcp=True, key=other), ["secret", "web"])
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{org}").status, 204)

    def test_audited(self):
        self.put("audited", {})
        self.put("audited", {})
        self.d.ask("DELETE", "/v1/policies/audited")
        log = [json.loads(line) for line in self.d.ask("GET", "/v1/audit").body.splitlines()]
        told = [(e["action"], e["detail"]) for e in log if e.get("object") == "audited"]
        self.assertEqual(told, [("policy.set", "version 1"), ("policy.set", "version 2"), ("policy.delete", "")])


class Restart(ServiceTest):
    def test_policies_survive(self):
        self.assertEqual(self.d.ask("PUT", "/v1/policies/web", WEB).status, 201)
        before = self.d.ask("GET", "/v1/policies/web").json
        self.d.stop(signal.SIGKILL)
        self.d.start()
        self.assertEqual(self.d.ask("GET", "/v1/policies/web").json, before)
        self.assertEqual(self.d.ask("PUT", "/v1/policies/web", {}).json["version"], 2)


class Verb(ServiceTest):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-e2e-policy-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.file = os.path.join(self.dir, "web.json")
        with open(self.file, "w", encoding="utf-8") as f:
            json.dump(WEB, f)

    def brig(self, *args, status=0, **kw):
        done = brig("policy", *args, env=self.d.env, **kw)
        self.assertEqual(done.returncode, status, done)
        return (done.stderr if status == FAILED else done.stdout).decode()

    def test_a_life(self):
        self.assertEqual(self.brig("set", "web", self.file), "web\n")
        self.assertEqual(self.brig("set", "-q", "piped", "-", stdin=b'{"default":"allow"}'), "")
        self.assertEqual(self.brig("ls", "-q"), "piped\nweb\n")
        self.assertRegex(self.brig("ls"), r"^NAME +VERSION +AGE +CHANGED\npiped +1 ")
        self.assertEqual(json.loads(self.brig("ls", "-o", "json"))["policies"][1]["name"], "web")
        shown = json.loads(self.brig("show", "web"))
        self.assertEqual(shown["rules"][0]["domain"], "api.example.com")
        self.assertEqual(json.loads(self.brig("show", "-o", "json", "web"))["policy"], shown)
        self.assertIn("pypi.org", self.brig("show", "packages"))
        self.assertEqual(self.brig("rm", "web", "piped"), "web\npiped\n")
        self.assertIn("not found", self.brig("rm", "web", status=FAILED))

    def test_check(self):
        self.brig("set", "web", self.file)
        self.addCleanup(self.brig, "rm", "web")
        self.assertEqual(self.brig("check", "web", "www.example.com:443", status=1),
                         "denied: rule 1 (deny *.example.com:any)\n")
        # after the host's own
        self.assertRegex(self.brig("check", "packages", "pypi.org"), r"^allowed: rule \d+ \(allow pypi.org:80,443\)\n$")
        self.assertEqual(self.brig("check", self.file, "docs.example.org:80", "--method", "GET", "--path", "/v1/x"),
                         "allowed: rule 2 (allow docs.example.org:80,443 GET /v1/)\n"
                         "for plain HTTP, and for hosts with a brokered secret; other TLS is not opened, and is "
                         "denied there\n")
        self.assertEqual(self.brig("check", "--method", "PUT", "--path", "/v1/x", self.file, "docs.example.org:80",
                                   status=1),
                         "denied: default deny; rule 2 (allow docs.example.org:80,443 GET /v1/) does not match\n")
        self.assertEqual(self.brig("check", "-q", "-", "x.org", stdin=b'{"default":"allow"}'), "")
        self.assertEqual(json.loads(self.brig("check", "open", "[::1]:80", "-o", "json", status=1))["allow"], False)
        self.assertIn("rules[0]", self.brig("check", "-", "x.org", stdin=b'{"rules":[{}]}', status=FAILED))
        self.assertIn("JSON", self.brig("check", "-", "x.org", stdin=b'{},"host":"y.org"', status=FAILED))
        self.assertIn("No such file", self.brig("set", "web", self.file + "x", status=FAILED))
        self.assertIn("nobody", self.brig("check", "nobody", "x.org", status=FAILED))
        self.assertIn("HOST", self.brig("check", "open", "x.org:0", status=FAILED))
        with open(self.file, "w", encoding="utf-8") as f:
            f.write("[" * 400000)
        self.assertIn("256 KiB", self.brig("set", "web", self.file, status=FAILED))

    def test_without_a_daemon(self):
        done = brig("policy", "ls", env=environment(BRIG_SOCKET=os.path.join(self.dir, "none.sock")))
        self.assertEqual(done.returncode, FAILED)


if __name__ == "__main__":
    unittest.main()
