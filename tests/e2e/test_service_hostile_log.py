# SPDX-License-Identifier: Apache-2.0
"""Hostile input and the log: what is logged stays on its line and has no secrets, a flood hides nothing; clients that
leave their streams leave nothing in the daemon."""

import concurrent.futures
import json
import os

from helpers import steady
from hostilekit import HostileTest, descriptors, scaled



class Log(HostileTest):
    """A19, A05, I13: what is logged stays on its line, and has no secrets."""

    SECRET = "s3cr3t-" + os.urandom(8).hex()

    def test_injection(self):
        evil = 'x\n{"seq":999999,"action":"fake"}\r\n\x1b[2J\u2028'
        before = self.audit_now()
        for spec in ({"metadata": {"a": evil}}, {"metadata": {evil: "b"}}, {"name": evil}):
            self.assertEqual(self.d.ask("POST", "/v1/sandboxes", spec).status, 400, spec)
        sid = self.sandbox(env={"E": evil})
        self.d.ask("GET", f"/v1/sandboxes/{sid}/files?path=x%0a%7b%22seq%22%3a1%7d%0d%0aSet-Cookie:%20a=b")
        self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=x%0a%7b%22seq%22%3a1%7d", b"x")
        self.d.ask("GET", f"/v1/sandboxes/%0a%7b%22seq%22%3a1%7d")
        self.d.ask("POST", "/v1/keys", {"name": evil[:60]})
        self.d.run(sid, "echo", evil)
        w = self.wire(tcp=False)
        w.send(b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\x0b{\"a\":1}\r\n"
               b"X-Request-Id: forged\r\nConnection: close\r\n\r\n")
        w.all()
        seqs = []
        for line in self.d.ask("GET", "/v1/audit?limit=100000").body.split(b"\n"):
            if line:
                value = json.loads(line)
                seqs.append(value["seq"])
                self.assertNotEqual(value["action"], "fake")
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))
        self.assertGreater(len(seqs), before)
        for line in self.d.text().splitlines():
            if line.startswith("{"):
                self.assertNotEqual(json.loads(line).get("seq"), 999999)
            self.assertFalse(line.startswith('{"seq":'), line)
            self.assertNotIn("\x1b", line)

    def test_headers_of_answers(self):
        sid = self.sandbox()
        name = "x%0d%0aSet-Cookie:%20evil=1%0d%0a%0d%0a%3cscript%3e"
        for method, path in (("PUT", f"/v1/sandboxes/{sid}/files?path={name}"),
                             ("GET", f"/v1/sandboxes/{sid}/files?path={name}"),
                             ("GET", f"/v1/sandboxes/{sid}/files/tar?path={name}"),
                             ("GET", f"/v1/sandboxes/{name}"), ("GET", f"/v1/{name}")):
            answer = self.d.ask(method, path, b"x" if method == "PUT" else None)
            self.assertIsNone(answer.headers["Set-Cookie"], path)
            self.assertNotIn("html", answer.headers["Content-Type"] or "")
        last = self.d.ask("GET", f"/v1/sandboxes/{sid}/files?path={name}")
        self.assertEqual((last.status, last.headers["X-Content-Type-Options"]), (200, "nosniff"), last)

    def test_secrets(self):
        secret, key = self.SECRET, self.d.key(name="holder", role="admin")
        sid = self.sandbox(env={"TOKEN": secret})
        self.d.sh(sid, "true", env={"OTHER": secret})
        self.d.run(sid, "wc", "-c", stdin=secret)
        self.d.ask("PUT", f"/v1/sandboxes/{sid}/files?path=s", secret.encode())
        token = self.d.ask("POST", f"/v1/sandboxes/{sid}/ports/80/token", {}).json["token"]
        self.d.ask("GET", f"/v1/sandboxes/{sid}/proxy/80/?brig_token={token}", tcp=True)
        self.d.ask("GET", f"/v1/sandboxes?metadata.{secret}=1&x={key}")
        self.d.ask("GET", "/v1/sandboxes", tcp=True, key="e2b_" + secret)
        self.d.ask("GET", "/v1/sandboxes", tcp=True, key=key)
        places = {"log": self.d.text(), "audit": self.d.ask("GET", "/v1/audit?limit=100000").body.decode(),
                  "list": self.d.ask("GET", "/v1/keys").body.decode(),
                  "metrics": self.d.ask("GET", "/metrics").body.decode(),
                  "runs": self.d.ask("GET", "/v1/runs").body.decode()}
        steady(lambda: [e.stat().st_size for e in os.scandir(f"{self.d.dir}/state") if e.is_file()])
        for d, _, names in os.walk(f"{self.d.dir}/state"):
            for n in names:
                with open(os.path.join(d, n), "rb") as f:
                    places[n] = f.read().decode("latin-1")
        for name, text in places.items():
            self.assertNotIn(key, text, name)
            self.assertNotIn(token, text, name)
            # the spec with its environment is what the store is for
            if "box" not in name and "db" not in name and "sqlite" not in name:
                self.assertNotIn(secret, text, name)

    def test_failed_runs_are_suspicious(self):
        """Ten runs of one key that fail within a minute: one event; runs that end well, or that the caller ended, are
        none."""
        _, key = self.org("failing")
        box = self.d.ask("POST", "/v1/sandboxes", {}, tcp=True, key=key).json["id"]
        before = self.audit_now()
        for status, count in ((0, 12), (3, 9)):
            for _ in range(count):
                answer = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["sh", "-c", f"exit {status}"]},
                                    tcp=True, key=key)
                self.assertEqual(answer.json["outcome"]["exit_code"], status)
        self.assertEqual(self.audit(before, action="suspicious"), [])
        for _ in range(12):
            self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["false"]}, tcp=True, key=key)
        found = self.audit(before, action="suspicious")
        self.assertEqual([(x["detail"], x["outcome"]) for x in found], [("repeated failed runs", "failed")])
        self.d.ask("DELETE", f"/v1/sandboxes/{box}", tcp=True, key=key)

    def test_flood(self):
        """Denials are never lost: the first is written, equal ones are counted; the log is whole afterwards."""
        before, counted = self.audit_now(), self.denials()
        n = scaled(3000, 300)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            def some(_):
                c = self.d.connection(tcp=True)
                for _ in range(n // 8):
                    self.d.ask("GET", "/v1/sandboxes", connection=c)
                c.close()
            list(pool.map(some, range(8)))
        self.assertEqual(self.denials() - counted, n // 8 * 8)
        self.assertIn(len(self.audit(before, action="denied")), (0, 1, 2),
                      "one, unless there was one within a minute; and perhaps a count")
        self.assertLessEqual(len(self.audit(before, action="suspicious")), n // 10)
        seqs = [x["seq"] for x in self.audit(before)]
        self.assertEqual(seqs, list(range(seqs[0], seqs[0] + len(seqs))))


class Refusals(HostileTest):
    """What is counted and not written one by one hides nothing of another kind."""

    def refused(self, method, path, body=None):
        answer = self.d.ask(method, path, body, tcp=True, key=self.key)
        self.assertEqual(answer.status, 403, answer)
        return answer.json["error"]["message"]

    def test_a_flood_of_one_rule_does_not_hide_another(self):
        org, self.key = self.org("noisy", role="user")
        before = self.audit_now()
        for i in range(30):
            self.refused("POST", "/v1/sandboxes", {"template": f"/srv/{i}"})
        binds = self.refused("POST", "/v1/sandboxes", {"binds": [{"source": "/etc", "target": "/mnt"}]})
        lines = self.audit(before, action="denied", org=org, object="/v1/sandboxes")
        self.assertEqual(sum(x["detail"].startswith("template /srv/") for x in lines), 20)
        self.assertEqual([x["detail"] for x in lines if not x["detail"].startswith("template ")], [binds])

    def test_the_name_is_told(self):
        org, self.key = self.org("curious", role="user")
        before = self.audit_now()
        why = self.refused("DELETE", "/v1/policies/payroll")
        lines = self.audit(before, action="denied", org=org)
        self.assertEqual([(x["object"], x["detail"]) for x in lines], [("/v1/policies/payroll", why)])
        for i in range(100):
            self.refused("DELETE", f"/v1/policies/guess-{i}-" + "x" * 1000)
        lines = self.audit(before, action="denied", org=org)
        self.assertEqual(len(lines), 20, "made-up names do not fill the log")
        self.assertEqual({len(x["object"]) for x in lines[1:]}, {255})


class Streams(HostileTest):
    def test_clients_that_leave(self):
        """A11: streams of all kinds, left in the middle: the program goes on, nothing stays in the daemon."""
        sid = self.sandbox()
        p = self.start(sid, "sh", "-c", "while :; do echo x; sleep 0.01; done")
        fds = descriptors(self.brigd())
        for i in range(scaled(200, 40)):
            c = self.d.connection()
            c.request("GET", (f"{p}/output", f"{p}/output?stream=stdout", "/v1/events",
                              f"/v1/sandboxes/{sid}/files/watch?path=.", f"{p}/wait")[i % 5])
            if i % 5 < 4:
                c.getresponse().read1(10 if i % 5 < 3 else 0)
            c.close()
        self.settles("descriptors", lambda: descriptors(self.brigd()), fds)
        self.assertTrue(self.d.ask("GET", p).json["running"])
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{sid}").json["processes"], 1)
