# SPDX-License-Identifier: Apache-2.0
"""Sandboxes over the API: create, find, change, pause, end; who may; what is refused, with the exact answer."""

import concurrent.futures
import json
import os
import re
import shutil
import tempfile
import unittest

from helpers import BRIG, wait_until
from service import DEFAULT_ORG, Daemon, ServiceTest


class Basics(ServiceTest):
    def test_health(self):
        self.assertEqual(self.d.ask("GET", "/healthz").body, b"ok\n")
        self.assertEqual(self.d.ask("GET", "/healthz", tcp=True).body, b"ok\n")
        self.assertTrue(self.d.ask("GET", "/readyz").json["ready"])

    def test_version_and_description(self):
        self.assertEqual(self.d.ask("GET", "/v1/version").json["provider"], "local")
        self.assertEqual(self.d.ask("GET", "/v1/openapi.json").json["openapi"], "3.0.3")

    def test_create_inspect_delete(self):
        made = self.d.create(name="first", metadata={"team": "a"}, env={"A": "1"})
        self.assertRegex(made["id"], "^[a-z0-9]{26}$")
        self.assertEqual((made["state"], made["template"], made["name"], made["metadata"]),
                         ("running", "host", "first", {"team": "a"}))
        self.assertTrue(made["protection"]["complete"], made["protection"])
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{made['id']}").json["id"], made["id"])
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes/first").json["id"], made["id"])
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{made['id']}").status, 204)
        self.refused(self.d.ask("GET", f"/v1/sandboxes/{made['id']}"), 404, "not_found",
                     f"Sandbox {made['id']} not found")
        certificate = self.d.ask("GET", f"/v1/certificates/{made['id']}").json
        self.assertEqual((certificate["sandbox_id"], certificate["cause"]), (made["id"], "deleted"))

    def test_stop_answers_the_certificate(self):
        made = self.d.create()
        certificate = self.d.ask("POST", f"/v1/sandboxes/{made['id']}/stop").json
        self.assertEqual(certificate["sandbox_id"], made["id"])
        self.assertIn("usage", certificate)

    def test_location(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {})
        self.addCleanup(self.d.ask, "DELETE", answer.headers["Location"])
        self.assertEqual(answer.headers["Location"], f"/v1/sandboxes/{answer.json['id']}")
        self.assertTrue(answer.headers["X-Request-Id"])

    def test_list_pages_and_filters(self):
        made = [self.sandbox(metadata={"n": str(i % 2), "page": "x"}) for i in range(5)]
        seen, cursor = [], ""
        while True:
            page = self.d.ask("GET", f"/v1/sandboxes?metadata.page=x&limit=2{cursor}").json
            self.assertLessEqual(len(page["sandboxes"]), 2)
            seen += [s["id"] for s in page["sandboxes"]]
            if not page["next_cursor"]:
                break
            cursor = f"&cursor={page['next_cursor']}"
        self.assertEqual(seen, made[::-1])
        found = self.d.ask("GET", "/v1/sandboxes?metadata.page=x&metadata.n=1").json["sandboxes"]
        self.assertEqual({s["id"] for s in found}, {made[1], made[3]})
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes?state=paused").json["sandboxes"], [])

    def test_update(self):
        sid = self.sandbox(metadata={"a": "1"})
        changed = self.d.ask("PATCH", f"/v1/sandboxes/{sid}", {"metadata": {"b": "2"}, "timeout": 1000}).json
        self.assertEqual(changed["metadata"], {"b": "2"})
        self.refused(self.d.ask("PATCH", f"/v1/sandboxes/{sid}", {"name": "x"}), 400, "invalid_argument",
                     "name: not a member of this request")

    def test_pause_and_resume(self):
        sid = self.sandbox()
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{sid}/pause").json["state"], "paused")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{sid}/run", {"argv": ["true"]}), 409, "conflict",
                     f"sandbox {sid} is paused, not running")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{sid}/pause").status, 409)
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{sid}/resume").json["state"], "running")
        self.assertEqual(self.d.run(sid, "true")["outcome"]["exit_code"], 0)

    def test_delete_while_paused(self):
        sid = self.sandbox()
        self.d.ask("POST", f"/v1/sandboxes/{sid}/pause")
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{sid}").status, 204)

    def test_metrics(self):
        sid = self.sandbox()
        self.d.sh(sid, "head -c 1000000 /dev/zero > /tmp/x")
        now = self.d.ask("GET", f"/v1/sandboxes/{sid}/metrics").json
        self.assertGreaterEqual(now["disk_bytes"], 1000000)
        self.assertGreater(now["memory_bytes"], 0)
        text = self.d.ask("GET", "/metrics").body.decode()
        self.assertRegex(text, r'(?m)^brig_sandboxes\{state="running"\} [1-9]')

    def test_idempotency(self):
        first = self.d.ask("POST", "/v1/sandboxes", {"metadata": {"i": "1"}}, {"Idempotency-Key": "k1"})
        again = self.d.ask("POST", "/v1/sandboxes", {"metadata": {"i": "1"}}, {"Idempotency-Key": "k1"})
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{first.json['id']}")
        self.assertEqual((again.status, again.json["id"]), (201, first.json["id"]))
        other = self.d.ask("POST", "/v1/sandboxes", {"metadata": {"i": "2"}}, {"Idempotency-Key": "k1"})
        self.assertEqual(other.status, 409)

    def test_events(self):
        events = self.d.events("/v1/events?since=0")
        sid = self.sandbox()
        for _, _, data in events:
            if sid in data:
                break
        events.close()


class Refusals(ServiceTest):
    CASES = [
        ({"nmae": "x"}, "nmae"),
        ({"name": "run-x"}, "name"),
        ({"name": "brig"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "../x"}, "name"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"env": {"A=B": "x"}}, "env"),
        ({"env": {"A": "x\u0000"}}, "env"),
        ({"limits": {"memory": "9e99G"}}, "memory"),
        ({"limits": {"memory": 0}}, "memory"),
        ({"limits": {"memory": -1}}, "memory"),
        ({"limits": {"cpus": 1e-9}}, "cpus"),
        ({"limits": {"pids": 2**63}}, "pids"),
        ({"limits": {"timeout": 1e308}}, "timeout"),
        ({"limits": {"nope": 1}}, "nope"),
        ({"limits": {"cpu_time": 5}}, "cpu_time"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
        ({"on_timeout": "explode"}, "on_timeout"),
        ({"require": ["nonsense"]}, "require"),
        ({"network": "full"}, "network"),
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": "/../etc"}, "workdir"),
        ({"user": "no body"}, "user"),
        ({"template": "no-such-image"}, "template"),
        ({"template": "--privileged"}, "template"),
        ({"confine": "moon"}, "confine"),
    ]

    def test_bad_specs(self):
        for spec, word in self.CASES:
            with self.subTest(spec=spec):
                answer = self.d.ask("POST", "/v1/sandboxes", spec)
                self.assertIn(answer.status, (400, 422), answer)
                self.assertIn(word, answer.json["error"]["message"])
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_bad_bodies(self):
        deep = b"[" * 100000
        for body, status in ((b"{", 400), (b"[]", 400), (b'{"a":1,"a":2}', 400), (b'{"a":NaN}', 400),
                             (b'{"a":1e999}', 400), (b'{"name":"\xff"}', 400),
                             (deep, 400), (b" " * (9 << 20), 413)):
            answer = self.d.ask("POST", "/v1/sandboxes", body)
            self.assertEqual(answer.status, status, body[:40])
            self.assertTrue(answer.json["error"]["message"])

    def test_unknown_paths(self):
        self.refused(self.d.ask("GET", "/v1/nothing"), 404, "not_found", "no such path")
        self.assertEqual(self.d.ask("PUT", "/v1/sandboxes").status, 405)
        self.refused(self.d.ask("GET", "/v1/sandboxes?limt=3"), 400, "invalid_argument", "limt")
        self.refused(self.d.ask("GET", "/v1/sandboxes?limit=0"), 400, "invalid_argument", "limit")
        self.refused(self.d.ask("GET", "/v1/sandboxes?cursor=zzz"), 400, "invalid_argument", "cursor")


class Callers(ServiceTest):
    def test_without_a_key(self):
        for path in ("/v1/sandboxes", "/v1/keys", "/v1/nothing", "/metrics",
                     "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaaaaaaaa"):
            answer = self.d.ask("GET", path, tcp=True)
            self.assertEqual((answer.status, answer.headers["WWW-Authenticate"]), (401, "Bearer"))

    def test_bad_keys(self):
        for key in ("x", "e2b_" + "0" * 40, "e2b_" + "0" * 39, "e2b_" + "0" * 4000):
            self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=key).status, 401)

    def test_key_works_both_ways(self):
        key = self.d.key(name="k")
        self.assertRegex(key, "^e2b_[0-9a-f]{40}$")
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=key).status, 200)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, headers={"X-API-Key": key}).status, 200)
        self.assertNotIn(key, self.d.ask("GET", "/v1/keys").body.decode())
        self.assertNotIn(key, self.d.text())
        self.assertNotIn(key, self.d.ask("GET", "/v1/audit").body.decode())

    def test_roles(self):
        reader, user = self.d.key(role="read-only"), self.d.key(role="user")
        self.assertEqual(self.d.ask("POST", "/v1/sandboxes", {}, tcp=True, key=reader).status, 403)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=reader).status, 200)
        self.assertEqual(self.d.ask("POST", "/v1/keys", {}, tcp=True, key=user).status, 403)
        self.assertEqual(self.d.ask("GET", "/v1/config", tcp=True, key=self.d.key(role="admin")).status, 403)
        binds = {"binds": [{"source": "/etc", "target": "/data"}]}
        self.assertEqual(self.d.ask("POST", "/v1/sandboxes", binds, tcp=True, key=user).status, 403)

    def test_revoked_and_expired(self):
        made = self.d.ask("POST", "/v1/keys", {}).json
        self.assertEqual(self.d.ask("DELETE", f"/v1/keys/{made['id']}").status, 204)
        self.refused(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=made["key"]), 401, "unauthenticated", "revoked")
        short = self.d.key(expires=1)
        wait_until("it has expired", lambda: self.d.ask("GET", "/v1/sandboxes", tcp=True, key=short).status != 200)
        self.refused(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=short), 401, "unauthenticated", "expired")

    def test_organisations_do_not_meet(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        mine, theirs = self.d.key(), self.d.key(org=org)
        made = self.d.ask("POST", "/v1/sandboxes", {"name": "mine"}, tcp=True, key=mine).json
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        run = self.d.ask("POST", f"/v1/sandboxes/{made['id']}/run", {"argv": ["true"]}, tcp=True, key=mine).json["id"]
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/processes"),
                             ("GET", "/files?path=x"), ("GET", "/metrics")):
            answer = self.d.ask(method, f"/v1/sandboxes/{made['id']}{path}", tcp=True, key=theirs)
            self.assertEqual(answer.status, 404, (method, path))
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes/mine", tcp=True, key=theirs).status, 404)
        self.assertEqual(self.d.ask("GET", f"/v1/runs/{run}", tcp=True, key=theirs).status, 404)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=theirs).json["sandboxes"], [])
        self.assertEqual(self.d.ask("GET", "/v1/runs", tcp=True, key=theirs).json["runs"], [])
        wait_until("a denial in the log",
                   lambda: f'"object":"{made["id"]}"' in self.d.ask("GET", "/v1/audit?limit=100000").body.decode() and
                   '"action":"denied"' in self.d.ask("GET", "/v1/audit?limit=100000").body.decode())

    def test_idempotency_is_per_organisation(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "third"}).json["id"]
        keys = self.d.key(), self.d.key(org=org)
        ids = [self.d.ask("POST", "/v1/sandboxes", {}, {"Idempotency-Key": "same"}, tcp=True, key=k).json["id"]
               for k in keys]
        for i in ids:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{i}")
        self.assertNotEqual(*ids)


class Limits(ServiceTest):
    CONFIG = "[manager]\nmax_sandboxes = 2\ncleanup_interval = 1\n"

    def test_maximum(self):
        self.sandbox(), self.sandbox()
        self.refused(self.d.ask("POST", "/v1/sandboxes", {}), 429, "limit", "Maximum number of sandboxes (2) reached")
        self.assertTrue(self.d.ask("POST", "/v1/sandboxes", {}).headers["Retry-After"])

    def gone(self, sid):
        return self.d.ask("GET", f"/v1/sandboxes/{sid}").status == 404

    def test_age(self):
        sid = self.sandbox(timeout=0.3)
        wait_until("the sandbox reaches its age", lambda: self.gone(sid))
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["ended_by"], "timeout")

    def test_age_can_pause(self):
        sid = self.sandbox(timeout=0.3, on_timeout="pause")
        wait_until("it is paused", lambda: self.d.ask("GET", f"/v1/sandboxes/{sid}").json["state"] == "paused")

    def test_idle(self):
        sid = self.sandbox(idle_timeout=0.3)
        wait_until("an idle sandbox is reaped",
                   lambda: [s for s in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"] if s["id"] == sid] == [])
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{sid}").json["ended_by"], "idle")

    def test_busy_is_not_idle(self):
        sid = self.sandbox(idle_timeout=0.3)
        self.assertEqual(self.d.sh(sid, "sleep 1.2; echo done")["stdout"], "done\n")


class Many(ServiceTest):
    CONFIG = "[manager]\nmax_sandboxes = 1000\npool = 16\n"

    def test_concurrent_creates_and_deletes(self):
        def life(i):
            made = self.d.ask("POST", "/v1/sandboxes", {}, timeout=60)
            if made.status != 201:
                return made
            run = self.d.ask("POST", f"/v1/sandboxes/{made.json['id']}/run", {"argv": ["echo", str(i)]}, timeout=60)
            self.d.ask("DELETE", f"/v1/sandboxes/{made.json['id']}", timeout=60)
            return None if run.status == 200 and run.json["stdout"] == f"{i}\n" else run

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            bad = [x for x in pool.map(life, range(200)) if x]
        self.assertEqual(bad, [])
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])


class BindsAndTemplates(unittest.TestCase):
    LIMIT_SECONDS = 60

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-bind-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)  # brigd looks for templates as its own user
        os.mkdir(f"{self.dir}/shared")
        os.makedirs(f"{self.dir}/templates/tiny/bin")
        shutil.copy("/bin/busybox" if os.path.exists("/bin/busybox") else BRIG,
                    f"{self.dir}/templates/tiny/bin/program")
        self.d = Daemon(f'[sandbox]\nbind_roots = "{self.dir}/shared"\ntemplates = "{self.dir}/templates"\n')
        self.addCleanup(self.d.close)

    def test_bind(self):
        with open(f"{self.dir}/shared/before", "w", encoding="ascii") as f:
            f.write("1")
        sid = self.d.create(binds=[{"source": f"{self.dir}/shared", "target": "/data"}])["id"]
        with open(f"{self.dir}/shared/after", "w", encoding="ascii") as f:
            f.write("2")
        self.assertEqual(self.d.sh(sid, "cat /data/before /data/after")["stdout"], "12")

    def test_other_directories_are_refused(self):
        for source in ("/etc", self.dir, "/root", f"{self.dir}/shared/../templates"):
            answer = self.d.ask("POST", "/v1/sandboxes", {"binds": [{"source": source, "target": "/data"}]})
            self.assertIn(answer.status, (400, 422), answer)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], [])

    def test_template(self):
        sid = self.d.create(template="tiny")["id"]
        names = {e["path"] for e in self.d.ask("GET", f"/v1/sandboxes/{sid}/files/list?path=/bin").json["entries"]}
        self.assertEqual(names, {"program"})
        self.assertIn(self.d.ask("POST", "/v1/sandboxes", {"template": "nope"}).status, (400, 422))
