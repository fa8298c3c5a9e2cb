# SPDX-License-Identifier: Apache-2.0
"""Tables that are filled from outside: each has a bound per organisation that is asked before the write, and a service
that was filled up starts again. What the store refuses is not done in memory either.

The data base is SQLite here, whatever the other tests use: its file is also written by the test."""

import hashlib
import os
import sqlite3
import threading
import time
import unittest

from helpers import wait_until
from service import DEFAULT_ORG, Daemon

DAY = 86400 * 10**9
TOO_MANY = "an organisation has at most 3 keys ([manager] org_max_keys); revoke some"


def database(daemon):
    return sqlite3.connect(os.path.join(daemon.dir, "state", "service", "brig.db"), timeout=30)


class Tables(unittest.TestCase):
    LIMIT_SECONDS = 120
    maxDiff = None
    CONFIG = "[secrets]\ninsecure_plaintext = true\n"

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(cls.CONFIG, env={"BRIG_DATABASE_URL": ""})

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    def org(self, name):
        made = self.d.ask("POST", "/v1/orgs", {"name": name})
        self.assertEqual(made.status, 201, made)
        return made.json["id"]

    def keys(self, org):
        return [k for k in self.d.ask("GET", "/v1/keys").json["keys"] if k["org"] == org]

    def stored(self, org):
        with database(self.d) as db:
            return db.execute("SELECT count(*) FROM keys WHERE org_id = ?", (org,)).fetchone()[0]

    def restart(self):
        self.d.stop()
        self.d.start()

    def refused(self, answer, status, message):
        self.assertEqual((answer.status, answer.json["error"]["message"]), (status, message))


class Artifacts(Tables):
    """Output files of runs lie in a directory of their organisation that brigd looks through between two answers."""

    def test_so_many(self):
        made = self.d.ask("POST", "/v1/run", {"command": "mkdir -p /workspace/out; echo x > /workspace/out/f"}).json
        place = os.path.join(self.d.dir, "state", "service", "artifacts", DEFAULT_ORG)
        first = os.path.join(place, made["id"] + ".tar")
        wait_until("its files are there", lambda: os.path.exists(first))
        for i in range(4200):
            path = os.path.join(place, f"run-{i}.tar")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            os.utime(path, (time.time() - 7200 + i, time.time() - 7200 + i))
        self.restart()  # the first one after a start has them counted
        made = self.d.ask("POST", "/v1/run", {"command": "mkdir -p /workspace/out; echo x > /workspace/out/f"}).json
        wait_until("the oldest are gone", lambda: len(os.listdir(place)) == 4096)
        left = os.listdir(place)
        self.assertIn(made["id"] + ".tar", left)
        self.assertIn("run-4199.tar", left)
        self.assertNotIn("run-0.tar", left)


class Keys(Tables):
    CONFIG = "[manager]\norg_max_keys = 3\n"

    def test_the_bound_is_of_the_organisation_and_asked_before_the_write(self):
        a, b = self.org("a"), self.org("b")
        made = [self.d.ask("POST", "/v1/keys", {"org": a, "role": "admin"}).json for _ in range(3)]
        self.refused(self.d.ask("POST", "/v1/keys", tcp=True, key=made[0]["key"]), 429, TOO_MANY)
        self.refused(self.d.ask("POST", "/v1/keys", {"org": a}), 429, TOO_MANY)
        self.assertEqual((len(self.keys(a)), self.stored(a)), (3, 3))
        self.assertEqual(self.d.ask("POST", "/v1/keys", {"org": b}).status, 201)
        self.restart()
        self.assertEqual(len(self.keys(a)), 3)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=made[1]["key"]).status, 200)

    def test_many_at_once(self):
        a = self.org("at once")
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(self.d.ask("POST", "/v1/keys", {"org": a}).status))
                   for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(statuses), [201] * 3 + [429] * 13)
        self.assertEqual((len(self.keys(a)), self.stored(a)), (3, 3))

    def test_keys_that_are_over_make_room(self):
        a = self.org("over")
        made = [self.d.ask("POST", "/v1/keys", {"org": a}).json for _ in range(3)]
        self.assertEqual(self.d.ask("DELETE", f"/v1/keys/{made[1]['id']}").status, 204)
        fourth = self.d.ask("POST", "/v1/keys", {"org": a})
        self.assertEqual(fourth.status, 201, fourth)
        self.assertEqual([k["id"] for k in self.keys(a)], [made[0]["id"], made[2]["id"], fourth.json["id"]])
        wait_until("the row is gone as well", lambda: self.stored(a) == 3)
        answer = self.d.ask("GET", "/v1/sandboxes", tcp=True, key=made[1]["key"])
        self.refused(answer, 401, "the key is not known")

    def test_a_deleted_organisation_takes_its_keys_along(self):
        a = self.org("short")
        key = self.d.ask("POST", "/v1/keys", {"org": a, "role": "admin"}).json["key"]
        self.assertEqual(self.d.ask("PUT", "/v1/policies/p", {"default": "deny"}, tcp=True, key=key).status, 201)
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{a}").status, 204)
        self.refused(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=key), 401, "the key is not known")
        self.assertEqual(self.keys(a), [])


class Overfull(Tables):
    """The data base of a service that did not ask: 131,072 keys of one organisation. Then old ones, which are
    removed."""

    def fill(self, rows):
        with database(self.d) as db:
            db.executemany(
                "INSERT INTO keys (id, org_id, name, hash, hint, role, created_at, expires_at, revoked_at, doc)"
                           " VALUES (?, ?, 'n', ?, 'hint', 'user', ?, ?, ?, '{}')", rows)

    def test_a_full_store_starts_and_others_are_not_hurt(self):
        a, b = self.org("full"), self.org("other")
        first = self.d.ask("POST", "/v1/keys", {"org": a}).json["key"]
        self.d.stop()
        now = time.time_ns()
        self.fill((f"key-{i:06}", a, hashlib.sha256(b"%d" % i).digest(), now + i, 0, 0) for i in range(131072))
        key = "e2b_" + "ab" * 20
        self.fill([("key-of-b", b, hashlib.sha256(key.encode()).digest(), now + 10**12, 0, 0)])
        self.d.start()
        self.assertIn(
            f"organisation {a}: 121073 of its keys are not taken, there is room for 10000 of one organisation and "
                      "100000 of all; delete rows of the table `keys`", self.d.all_text())
        for text in (first, key):
            self.assertEqual(self.d.ask("GET", "/v1/sandboxes", tcp=True, key=text).status, 200)
        self.assertEqual(self.d.ask("POST", "/v1/keys", {"org": a}).status, 429)
        self.assertEqual(self.d.ask("POST", "/v1/keys", {"org": b}).status, 201)

    def test_keys_that_are_over_are_forgotten_in_time(self):
        a = self.org("old")
        self.d.stop()
        now = time.time_ns()
        rows = [("long-revoked", now - 9 * DAY, 0, now - 8 * DAY), ("long-expired", now - 9 * DAY, now - 8 * DAY, 0),
                ("just-revoked", now - 9 * DAY, 0, now - DAY), ("just-expired", now - 9 * DAY, now - DAY, 0),
                ("live", now - 9 * DAY, now + DAY, 0)]
        self.fill((name, a, hashlib.sha256(name.encode()).digest(), *times) for name, *times in rows)
        self.d.start()
        wait_until("the old rows are gone", lambda: self.stored(a) == 3)
        self.assertEqual(sorted(k["id"] for k in self.keys(a)), ["just-expired", "just-revoked", "live"])


class Policies(Tables):
    def test_what_is_stored_can_be_read_again(self):
        """Small as it was sent, more than can be read with what it extends: such a row would keep the service from
        starting."""
        rules = [{"action": "allow", "domain": f"d{i:04}.example", "paths": ["/" + "x" * 200]} for i in range(1024)]
        self.assertEqual(self.d.ask("PUT", "/v1/policies/half", {"rules": rules[:512]}).status, 201)
        self.refused(self.d.ask("PUT", "/v1/policies/onto", {"extends": "half", "rules": rules[512:]}), 413,
                     "a policy with everything written out has at most 262144 bytes")
        self.assertEqual(self.d.ask("GET", "/v1/policies/onto").status, 404)
        self.restart()
        self.assertEqual(self.d.ask("GET", "/v1/policies/half").status, 200)

    def test_their_bytes_have_a_bound(self):
        rules = [{"action": "allow", "domain": f"{'a' * 60}.{'b' * 60}.d{i:04}.example"} for i in range(1000)]
        key = self.d.ask("POST", "/v1/keys", {"org": self.org("many"), "role": "admin"}).json["key"]
        answers = [self.d.ask("PUT", f"/v1/policies/p{i}", {"rules": rules}, tcp=True, key=key) for i in range(100)]
        self.assertEqual({a.status for a in answers}, {201, 429})
        self.refused(answers[-1], 429, "an organisation has at most 16777216 bytes of policies")
        self.assertLess(sum(a.status == 201 for a in answers), 95)


class Full(Tables):
    """Every table of the data base, at its bound and past it. A table that is new is a failure here until it is filled
    too."""

    BOUNDS = {"policy": 1000, "secret": 1000, "tool": 10000, "agent": 10000, "variable": 2000}
    MESSAGES = {"policy": "an organisation has at most 1000 policies",
                "secret": "an organisation has at most 1000 secrets",
                "tool": "an organisation has at most 10000 of tool",
                "agent": "an organisation has at most 10000 of agent",
                "variable": "a configuration has at most 1000 variables"}
    SOURCE = "def f() -> str:\n    \"\"\"\n    Says yes.\n    \"\"\"\n    return 'yes'\n"

    # else it would be asked for in a run
    SCHEMA = {"name": "f", "description": "Says yes.", "parameters": {"type": "object", "properties": {}}}

    def one_more(self, kind):
        config = self.d.ask("POST", "/v1/sandbox-config/local/default").json["id"]
        method, path, body = {
            "policy": ("PUT", "/v1/policies/p", {"default": "deny"}),
            "secret": ("PUT", "/v1/secrets/S", {"value": "0123456789"}),
            "tool": ("POST", "/v1/tools/", {"source_code": self.SOURCE, "json_schema": self.SCHEMA}),
            "agent": ("POST", "/v1/agents/", {"name": "n"}),
            "variable": ("POST", f"/v1/sandbox-config/{config}/environment-variable", {"key": "K", "value": "v"})}[kind]
        return self.d.ask(method, path, body)

    @staticmethod
    def clones(kind, row, n):
        """Rows like this one, with names of their own."""
        for i in range(n):
            name = f"x{i:06}" if kind in ("policy", "secret") else f"{kind}-{i:08x}-0000-4000-8000-000000000000"
            doc = row[-1].replace('"name":"f"', f'"name":"g{i}"').replace('"name": "f"',
                                                                          f'"name": "g{i}"').replace('"key":"K"',
                                                                                                     f'"key":"K{i}"')
            yield (*row[:2], name, *row[3:-1], doc)

    def fill_objects(self, db):
        for kind, bound in self.BOUNDS.items():
            row = db.execute("SELECT * FROM objects WHERE kind = ? AND org_id = ?", (kind, DEFAULT_ORG)).fetchone()
            db.execute("DELETE FROM objects WHERE kind = ? AND org_id = ?", (kind, DEFAULT_ORG))
            db.executemany("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?, ?)", self.clones(kind, row, bound + 5))

    @staticmethod
    def fill_others(db):
        now = time.time_ns()
        db.executemany("INSERT INTO idempotency VALUES (?, ?, ?, ?, 201, '{\"sandbox_id\":\"sb-x\"}')",
                       ((DEFAULT_ORG, f"k{i}", bytes(32), now + i) for i in range(70000)))
        db.executemany("INSERT INTO sandboxes VALUES (?, ?, '', ?, 'running', 'local', ?, ?, '{}')",
                       ((f"sb-{i}", DEFAULT_ORG, f"n{i}", now, now) for i in range(2000)))
        db.executemany("INSERT INTO runs VALUES (?, ?, 'sb-1', 'process', '', ?, 0, 2, '{}')",
                       ((f"run-{i}", DEFAULT_ORG, now) for i in range(2000)))
        db.executemany("INSERT INTO certificates VALUES (?, ?, 'exited', ?, 2, '{}')",
                       ((f"old-{i}", DEFAULT_ORG, now) for i in range(2000)))
        db.executemany("INSERT INTO orgs VALUES (?, 'n', ?, '{}')", ((f"org-{i}", now + i) for i in range(10005)))

    def test_every_table_full_and_a_start(self):
        for kind in self.BOUNDS:
            self.assertIn(self.one_more(kind).status, (200, 201), kind)
        self.d.stop()
        with database(self.d) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            self.assertEqual(tables, {"meta", "audit_head", "orgs", "keys", "objects", "sandboxes", "runs",
                                      "certificates", "idempotency"})
            self.fill_objects(db)
            self.fill_others(db)
        self.d.start()
        for kind, message in self.MESSAGES.items():
            answer = self.one_more(kind)
            self.assertEqual((answer.status, message in answer.body.decode()), (429, True), answer)
        self.refused(self.d.ask("POST", "/v1/orgs", {"name": "n"}), 429,
                     "there are 10000 organisations already, and no more than that are kept")
        self.assertIn("6 organisations are not taken, there are too many; delete rows of the table `orgs`",
                      self.d.all_text())
        self.restart()


class StoreRefuses(Tables):
    """Every change while the store takes none: an error, and nothing of it is in force, now or after a restart."""

    TABLES = ("orgs", "keys", "objects", "sandboxes", "idempotency")

    def refuse(self, on):
        with database(self.d) as db:
            for table in self.TABLES:
                for verb in ("INSERT", "UPDATE", "DELETE"):
                    db.execute(f"CREATE TRIGGER refuse_{table}_{verb} BEFORE {verb} ON {table} BEGIN SELECT "
                               f"RAISE(ABORT, 'refused by the test'); END"
                               if on else f"DROP TRIGGER refuse_{table}_{verb}")

    def state(self):
        paths = ("/v1/orgs", "/v1/keys", "/v1/policies", "/v1/secrets", "/v1/sandboxes", "/v1/tools/", "/v1/agents/",
                 "/v1/sandbox-config/",
                 f"/v1/orgs/{DEFAULT_ORG}/tools", f"/v1/keys/{self.key['id']}/tools", f"/v1/orgs/{self.other}/tools")
        return {path: self.d.ask("GET", path).json for path in paths}

    def test_nothing_is_done_that_is_refused(self):
        ask = self.d.ask
        self.other = self.org("other")
        self.key = ask("POST", "/v1/keys", {"org": self.other, "role": "admin"}).json
        self.assertEqual(ask("PUT", "/v1/policies/p", {"default": "deny"}).status, 201)
        self.assertEqual(ask("PUT", "/v1/secrets/S", {"value": "0123456789"}).status, 201)
        source = "def f() -> str:\n    \"\"\"\n    Says yes.\n    \"\"\"\n    return 'yes'\n"
        tool = ask("POST", "/v1/tools/", {"source_code": source}).json
        agent = ask("POST", "/v1/agents/", {"name": "n"}).json
        config = ask("POST", "/v1/sandbox-config/local/default").json
        before = self.state()
        changes = [("POST", "/v1/orgs", {"name": "new"}), ("DELETE", f"/v1/orgs/{self.other}", None),
                   ("POST", "/v1/keys", {}),
                   ("PUT", "/v1/policies/p", {"default": "allow"}), ("PUT", "/v1/policies/q", {}),
                   ("DELETE", "/v1/policies/p", None),
                   ("PUT", "/v1/secrets/S", {"value": "9876543210"}), ("PUT", "/v1/secrets/T", {"value": "9876543210"}),
                   ("DELETE", "/v1/secrets/S", None),
                   ("PUT", f"/v1/orgs/{DEFAULT_ORG}/tools", {"deny": ["*"]}),
                   ("PUT", f"/v1/keys/{self.key['id']}/tools", {"deny": ["*"]}),
                   ("POST", "/v1/tools/", {"source_code": source.replace("def f", "def g")}),
                   ("PATCH", f"/v1/tools/{tool['id']}", {"description": "other"}),
                   ("DELETE", f"/v1/tools/{tool['id']}", None), ("POST", "/v1/agents/", {"name": "m"}),
                   ("PATCH", f"/v1/agents/{agent['id']}", {"name": "o"}),
                   ("DELETE", f"/v1/agents/{agent['id']}", None),
                   ("PUT", f"/v1/agents/{agent['id']}/secrets", {"key": "K", "value": "v"}),
                   ("POST", f"/v1/sandbox-config/{config['id']}/environment-variable", {"key": "K", "value": "v"}),
                   ("DELETE", f"/v1/sandbox-config/{config['id']}", None), ("POST", "/v1/sandboxes", {"name": "s"})]
        self.refuse(True)
        for method, path, body in changes:
            answer = ask(method, path, body)
            self.assertGreaterEqual(answer.status, 400, (method, path, answer))
            self.assertEqual(ask("GET", "/v1/sandboxes", tcp=True, key=self.key["key"]).status, 200, (method, path))
        wait_until("the sandbox that was refused is gone", lambda: not ask("GET", "/v1/sandboxes").json["sandboxes"])
        after = self.state()
        self.refuse(False)
        self.assertEqual(after, before)
        self.restart()
        self.assertEqual(self.state(), before)


class Receipts(Tables):
    def test_whoever_has_the_answer_finds_the_receipt(self):
        """At once, although nothing waits for the write: the question does."""
        box = self.d.create()["id"]
        say = {"argv": ["echo", "said"]}
        for path, body in ((f"/v1/sandboxes/{box}/run", say), ("/v1/runs", {"process": say}),
                           ("/v1/run", {"command": say["argv"]})) * 3:
            made = self.d.ask("POST", path, body)
            found = self.d.ask("GET", f"/v1/runs/{made.json['id']}")
            self.assertEqual((made.status, found.status, found.json.get("stdout")), (200, 200, "said\n"), path)


if __name__ == "__main__":
    unittest.main()
