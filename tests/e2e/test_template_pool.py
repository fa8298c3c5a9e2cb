# SPDX-License-Identifier: Apache-2.0
"""`[pool] templates`: sandboxes of templates that are kept ready with their services up. A create that fits takes one,
once; what differs is made the ordinary way; what is stale is never given; and nothing is left of them."""

import concurrent.futures
import json
import os
import signal
import sqlite3
import subprocess
import unittest
from datetime import datetime

from helpers import BRIG, PATIENCE, own_cgroups, wait_until
from jailkit import SubidUser, needs_root
from service import DEFAULT_ORG, Daemon
from test_template_settings import SettingsTest

SERVICES = """\
workdir = "/etc"

[limits]
memory = "{memory}"

[[service]]
name = "db"
argv = ["/bin/sh", "-c", "echo {word}; echo {word} > /tmp/db; exec sleep 1000"]
ready = {{ file = "/tmp/db" }}

[[service]]
name = "web"
argv = ["/bin/sh", "-c", "cat /tmp/db > /tmp/web; exec sleep 1000"]
after = ["db"]
ready = {{ file = "/tmp/web" }}
"""


def services(word="first", memory="192m"):
    return SERVICES.format(word=word, memory=memory)


class PoolTest(SettingsTest):
    CONFIG = '[manager]\npool = 0\n[pool]\ntemplates = ["set=2"]\n'

    def row(self, name="set", d=None):
        rows = [p for p in (d or self.d).ask("GET", "/v1/pools").json["pools"]
                if p["kind"] == "sandbox" and p["template"] == name]
        self.assertEqual(len(rows), 1, rows)
        return rows[0]

    def full(self, name="set", d=None):
        """Waits until as many are ready as there should be."""
        def is_full():
            row = self.row(name, d)
            return row["parked"] == row["target"] and row["making"] == 0
        try:
            wait_until("the pool is full", is_full)
        except AssertionError:
            self.fail(f"{self.row(name, d)}: {(d or self.d).text()[-2000:]}")

    def template(self, settings=None, name="set", **more):
        self.base()
        return self.made(services() if settings is None else settings, name, **more)

    def create(self, key=None, good=201, **members):
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "set", **members}, key=key)
        self.assertEqual(answer.status, good, answer)
        if good == 201:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{answer.json['id']}")
        return answer.json

    def metric(self, name):
        text = self.d.ask("GET", "/metrics").body.decode()
        return int(next(l for l in text.splitlines() if l.startswith(f"brig_{name} ")).split()[1])

    def audit(self):
        return [json.loads(line) for line in self.d.ask("GET", "/v1/audit").body.splitlines()]

    def reconfigure(self, text):
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run([BRIG, "config", "reload"], env=self.d.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done)


class Taken(PoolTest):
    def test_its_services_are_up(self):
        self.template()
        self.full()
        box = self.create(name="mine", metadata={"a": "b"}, timeout=3600, idle_timeout=1800, on_death="recreate")
        self.assertTrue(box["pooled"])
        self.assertEqual((box["name"], box["metadata"], box["template"], box["state"], box["organization_id"]),
                         ("mine", {"a": "b"}, "set", "running", DEFAULT_ORG))
        self.assertEqual((box["timeout"], box["on_death"], box["workdir"]), (3600, "recreate", "/etc"))
        self.assertIn("ends_at", box)
        of = {s["name"]: s for s in
              self.d.ask("GET", f"/v1/sandboxes/{box['id']}/services").json["services"]}
        self.assertEqual({name: s["state"] for name, s in of.items()}, {"db": "ready", "web": "ready"})
        for s in of.values():  # they were up before there was this sandbox
            self.assertLess(s["since"], box["created_at"])
        log = self.d.ask("GET", "/v1/sandboxes/mine/services/db/log").body
        self.assertEqual(log, b"first\n")
        run = self.d.run("mine", "/bin/sh", "-c", "pwd; cat /tmp/web; echo $KEPT")
        self.assertEqual(run["stdout"], "/etc\nfirst\nimage\n")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box['id']}").json["pooled"], True)

    def test_its_life_begins_with_the_create(self):
        self.template()
        self.full()
        box = self.create(name="short")
        events = [e for e in self.audit() if e["object"] == box["id"]]
        self.assertEqual([e["action"] for e in events if e["action"].startswith("sandbox.")], ["sandbox.create"])
        self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        gone = self.d.ask("GET", f"/v1/certificates/{box['id']}").json
        self.assertEqual((gone["created_at"], gone["name"], gone["cause"], gone["organization_id"]),
                         (box["created_at"], "short", "deleted", DEFAULT_ORG))
        lived = datetime.fromisoformat(gone["ended_at"]) - datetime.fromisoformat(gone["created_at"])
        self.assertLessEqual(gone["usage"]["wall_ms"], lived.total_seconds() * 1000 + 1)  # as it is written, in ms

    def test_each_is_given_once(self):
        self.template()
        seen = set()
        for number in range(5):
            self.full()
            box = self.create()
            self.assertTrue(box["pooled"])
            self.assertNotIn(box["id"], seen)
            seen.add(box["id"])
            run = self.d.run(box["id"], "/bin/sh", "-c", "ls /tmp; echo x > /tmp/mark")
            self.assertEqual(run["stdout"], "db\nweb\n", number)
            if number % 2:
                self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        self.full()
        listed = {s["id"] for s in self.d.ask("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]}
        self.assertEqual(len(listed & seen), 3)

    def test_many_at_once_get_one_each(self):
        self.template()
        self.full()
        before = self.row()

        def one(number):
            box = self.d.create(template="set")
            marks = self.d.sh(box["id"], f"echo {number} >> /tmp/mark; cat /tmp/mark")["stdout"]
            return box["id"], marks == f"{number}\n", box["pooled"]
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            made = list(threads.map(one, range(16)))
        for number, _, _ in made:
            self.d.ask("DELETE", f"/v1/sandboxes/{number}")
        self.assertEqual(len({number for number, _, _ in made}), 16)
        self.assertTrue(all(alone for _, alone, _ in made), made)
        self.assertEqual(self.row()["claims"] - before["claims"], sum(pooled for _, _, pooled in made))
        self.assertGreaterEqual(self.row()["claims"] - before["claims"], 2)

    def test_more_than_are_ready(self):
        self.template()
        self.full()
        before = self.row()
        boxes = [self.create() for _ in range(4)]
        self.assertEqual([b["pooled"] for b in boxes][:2], [True, True])
        self.assertEqual(len({b["id"] for b in boxes}), 4)
        row = self.row()
        self.assertEqual(row["claims"] - before["claims"], sum(b["pooled"] for b in boxes))
        self.assertEqual(row["claims"] + row["misses"] - before["claims"] - before["misses"], 4)
        self.assertEqual(self.metric("pool_claims_total") - sum(b["pooled"] for b in boxes), before["claims"])

    def test_an_idempotent_create_takes_one(self):
        self.template()
        self.full()
        before = self.row()["claims"]
        ids = set()
        for _ in range(2):
            answer = self.d.ask("POST", "/v1/sandboxes", {"template": "set"}, headers={"Idempotency-Key": "once"})
            self.assertEqual(answer.status, 201, answer)
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{answer.json['id']}")
            ids.add(answer.json["id"])
        self.assertEqual((len(ids), self.row()["claims"] - before), (1, 1))

    def test_a_run_of_a_program_takes_one(self):
        self.template()
        self.full()
        before = self.row()["claims"]
        answer = self.d.ask("POST", "/v1/runs", {"sandbox": {"template": "set"},
                                                 "process": {"argv": ["/bin/cat", "/tmp/web"]}})
        self.assertEqual((answer.status, answer.json.get("stdout")), (200, "first\n"), answer)
        self.assertEqual(self.row()["claims"] - before, 1)

    def test_what_differs_is_made_for_it(self):
        self.template()
        self.full()
        before = self.row()["claims"]
        for members in ({"env": {"A": "1"}}, {"limits": {"memory": "193m"}}, {"limits": {"output": "1m"}},
                        {"user": "7:8"}, {"workdir": "/tmp"}, {"profile": "paranoid"}, {"writable_root": True},
                        {"confine": "workdir"}, {"network": "open"}, {"require": "seccomp"},
                        {"services": [{"name": "own", "argv": ["/bin/sleep", "1000"]}]},
                        {"services": [{"name": "db", "argv": ["/bin/sh", "-c", "echo > /tmp/db; exec sleep 1000"]}]}):
            with self.subTest(members):
                box = self.create(**members)
                self.assertFalse(box["pooled"])
                self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        self.assertEqual(self.row()["claims"], before)

    def test_the_command_line_lists_them(self):
        self.template()
        self.full()
        done = subprocess.run([BRIG, "pool", "ls"], env=self.d.env, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        self.assertRegex(done.stdout, r"(?m)^sandbox +- +set +2 +0 +2 ")


class Stale(PoolTest):
    def test_another_meaning_of_the_name(self):
        """Also one that differs by its settings alone, which have no part in the content of a template."""
        self.template()
        self.full()
        for word, memory in (("second", "192m"), ("second", "160m")):
            with self.subTest((word, memory)):
                self.made(services(word, memory))
                box = self.create()
                self.assertEqual(box["limits"]["memory"], int(memory[:-1]) << 20)
                self.assertEqual(self.d.run(box["id"], "/bin/cat", "/tmp/web")["stdout"], word + "\n")
                self.full()
                box = self.create()
                self.assertTrue(box["pooled"])
                self.assertEqual(box["limits"]["memory"], int(memory[:-1]) << 20)
                self.assertEqual(self.d.run(box["id"], "/bin/cat", "/tmp/web")["stdout"], word + "\n")

    def test_other_defaults(self):
        self.template("[env]\nA = \"1\"\n")
        self.full()
        self.addCleanup(self.reconfigure, self.CONFIG)
        self.reconfigure(self.CONFIG + "[sandbox]\npids = 99\n")
        box = self.create()
        self.assertEqual(box["limits"]["pids"], 99)
        self.full()
        box = self.create()
        self.assertEqual((box["limits"]["pids"], box["pooled"]), (99, True))

    def test_it_is_removed(self):
        self.template()
        self.full()
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/set").status, 204)
        wait_until("none is ready any more", lambda: self.row()["parked"] + self.row()["making"] == 0)
        self.assertIn("template set: nothing here can supply it", self.row()["error"])
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"template": "set"}), 400, "invalid_argument", "template set")
        self.d.ask("DELETE", "/v1/templates/base")

        def pruned():
            self.assertEqual(self.d.ask("POST", "/v1/templates/prune").status, 200)
            return not self.layers_on_disk()
        wait_until("its layers are gone", pruned)
        self.template()
        self.full()

    def test_fewer_and_none(self):
        self.template()
        self.full()
        self.addCleanup(self.reconfigure, self.CONFIG)
        self.reconfigure(self.CONFIG.replace("=2", "=1"))
        self.full()
        self.reconfigure("[manager]\npool = 0\n")
        self.assertEqual([p for p in self.d.ask("GET", "/v1/pools").json["pools"] if p["kind"] == "sandbox"], [])
        self.assertEqual((self.metric("pool_sandboxes"), self.metric("pool_sandboxes_making")), (0, 0))
        self.assertFalse(self.create()["pooled"])


class Slow(PoolTest):
    CONFIG = '[manager]\npool = 0\n[pool]\ntemplates = ["slow=4", "set=3"]\n'

    def test_one_that_never_comes_up_holds_up_no_other(self):
        self.template('[[service]]\nname = "one"\nargv = ["/bin/sleep", "1000"]\n'
                      'ready = { file = "/tmp/never", timeout = 600 }\n', name="slow")
        wait_until("it has all places", lambda: self.row("slow")["making"] == 2)
        self.template()
        self.full("set")
        self.assertTrue(self.create()["pooled"])
        row = self.row("slow")
        self.assertEqual((row["parked"], row["making"], row["failures"]), (0, 2, 0))


class Bad(PoolTest):
    CONFIG = '[manager]\npool = 0\n[pool]\ntemplates = ["set=2", "none=1", "host=1"]\n'

    def test_services_that_do_not_come_up(self):
        self.template('[[service]]\nname = "one"\nargv = ["/bin/sh", "-c", "echo no; exit 3"]\nrestart = "no"\n'
                      'ready = { file = "/tmp/never" }\n')
        wait_until("it has been tried again", lambda: self.row()["failures"] >= 2)
        self.assertIn("service one did not come up: it exited with 3", self.row()["error"])
        self.assertEqual(self.row()["parked"], 0)
        told = [e for e in self.audit() if e["action"] == "pool.fill"]
        self.assertEqual([(e["object"], e["outcome"]) for e in told], [("set", "failed")])
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"template": "set"}), 409, "conflict", "service one")
        self.template()
        self.full()
        self.assertEqual((self.row()["failures"], self.row()["error"]), (0, None))

    def test_what_cannot_be_kept_ready(self):
        self.assertIn("template none: nothing here can supply it", self.row("none")["error"])
        self.assertIn("template host: no sandbox of it is kept ready", self.row("host")["error"])

    def test_a_service_that_has_died_since(self):
        self.template('[[service]]\nname = "one"\nargv = ["/bin/sh", "-c", "echo > /tmp/up; sleep 1.2345; exit 1"]\n'
                      'ready = { file = "/tmp/up" }\nrestart = "no"\n')
        self.full()
        pids = running(b"1.2345")
        wait_until("the services of both are over", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
        before = self.row()["claims"]
        box = self.create()
        self.assertFalse(box["pooled"])
        self.assertEqual(self.row()["claims"] - before, 1)
        self.assertEqual(self.d.run(box["id"], "/bin/sh", "-c", "ls /tmp")["stdout"], "up\n")


def running(word):
    """The processes with this word in their command."""
    found = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(pid)}/cmdline", "rb") as f:
                if word in f.read():
                    found.append(pid)
        except (ValueError, OSError):
            pass
    return found


def pid_1_of(pid):
    """The first process of the sandbox that a process is in."""
    while True:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            of = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        if of["NSpid"].split()[-1] == "1":
            return int(pid)
        pid = of["PPid"]


class Dies(PoolTest):
    CONFIG = '[manager]\npool = 0\n[pool]\ntemplates = ["set=1"]\n'

    @unittest.skipIf(os.environ.get("BRIG_TEST_PG_URL"), "it holds up SQLite by hand")
    def test_while_its_create_is_written_down(self):
        """The parked one is taken, and its row waits for the store: another box is made for the same sandbox."""
        self.template('[[service]]\nname = "one"\nargv = ["/bin/sh", "-c", "echo > /tmp/up; exec sleep 987.65"]\n'
                      'ready = { file = "/tmp/up" }\n')
        self.full()
        (pid,) = running(b"987.65")
        first = pid_1_of(pid)
        store = sqlite3.connect(os.path.join(self.d.dir, "state", "service", "brig.db"), timeout=30,
                                isolation_level=None)
        self.addCleanup(store.close)
        claims = self.row()["claims"]
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            store.execute("BEGIN IMMEDIATE")
            answer = thread.submit(self.d.ask, "POST", "/v1/sandboxes", {"template": "set", "name": "mine"})
            wait_until("it is taken", lambda: self.row()["claims"] == claims + 1)
            os.kill(first, signal.SIGKILL)
            wait_until("brigd knows that it is gone",
                       lambda: self.d.ask("GET", "/v1/sandboxes/mine").json.get("pooled") is not True)
            store.execute("ROLLBACK")
            answer = answer.result()
        self.assertEqual(answer.status, 201, answer)
        box = answer.json
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box['id']}")
        self.assertEqual((box["pooled"], box["name"], box["state"]), (False, "mine", "running"))
        self.assertEqual(self.d.run("mine", "/bin/sh", "-c", "ls /tmp")["stdout"], "up\n")
        kept = [e["action"] for e in self.audit() if e["object"] == box["id"]]
        self.assertEqual([action for action in kept if action.startswith("sandbox.")], ["sandbox.create"])
        self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        self.assertEqual(self.d.ask("GET", f"/v1/certificates/{box['id']}").json["cause"], "deleted")


class Whose(PoolTest):
    CONFIG = ('[manager]\npool = 0\norg_max_sandboxes = 2\nkey_max_sandboxes = 1\n'
              '[pool]\ntemplates = ["set=2", "shared=1"]\n')

    def other(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        return org, self.d.key(org=org, role="user")

    def test_a_template_of_another_organisation(self):
        self.template()
        self.full()
        _, key = self.other()
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "set"}, key=key)
        self.refused(answer, 400, "invalid_argument", "template set: nothing here can supply it")
        self.assertEqual((self.row()["claims"], self.row()["parked"]), (0, 2))
        self.assertEqual([p for p in self.d.ask("GET", "/v1/pools", key=key).json["pools"]
                          if p["kind"] == "sandbox"], [])

    def test_a_key_that_may_not(self):
        self.template()
        self.full()
        reader = self.d.key(role="read-only")
        self.assertEqual(self.d.ask("POST", "/v1/sandboxes", {"template": "set"}, key=reader).status, 403)
        self.assertEqual(self.row()["parked"], 2)

    def test_it_belongs_to_who_takes_it_and_counts_there(self):
        self.template(name="shared", shared=True)
        self.full("shared")
        org, key = self.other()
        box = self.create(key=key, template="shared", name="theirs")
        self.assertTrue(box["pooled"])
        self.assertEqual(box["organization_id"], org)
        self.full("shared")
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "shared"}, key=key)
        self.refused(answer, 429, "limit", "key quota max_sandboxes reached: limit 1, used 1, asked 1")
        self.assertEqual(self.row("shared")["parked"], 1)
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box['id']}", key=self.d.key(role="user")).status, 404)
        self.assertEqual(self.d.run(box["id"], "/bin/cat", "/tmp/web")["stdout"], "first\n")
        self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}", key=key)

    def test_those_that_wait_count_for_nobody(self):
        self.template()
        self.full()
        boxes = [self.d.create(template="host") for _ in range(2)]  # all that the organisation may have
        for box in boxes:
            self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")


class GiveWay(PoolTest):
    CONFIG = '[manager]\npool = 0\nmax_sandboxes = 3\n[pool]\ntemplates = ["set=2"]\n'

    def test_sandboxes_that_somebody_wants_come_first(self):
        self.template()
        self.full()
        boxes = []
        for ready in (2, 1, 0):
            boxes.append(self.d.create(template="host"))
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{boxes[-1]['id']}")
            self.assertEqual(self.row()["parked"], ready)
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"template": "host"}), 429, "limit",
                     "Maximum number of sandboxes (3) reached")
        self.d.ask("DELETE", f"/v1/sandboxes/{boxes[0]['id']}")
        wait_until("there is room for one again", lambda: self.row()["parked"] == 1)

    def test_memory(self):
        self.template()
        self.full()
        self.addCleanup(self.reconfigure, self.CONFIG)
        self.reconfigure(self.CONFIG + 'keep_free = "1024t"\n')
        self.assertEqual(self.row()["parked"] + self.row()["making"], 0)
        wait_until("the reason is told", lambda: "keep_free" in (self.row()["error"] or ""))
        self.assertFalse(self.create()["pooled"])
        self.reconfigure(self.CONFIG)
        self.full()
        self.assertIsNone(self.row()["error"])


@needs_root
class Disks(PoolTest):
    CONFIG = ('[manager]\npool = 0\n[sandbox]\nforkable = true\ndisk = "64m"\n'
              '[pool]\ntemplates = ["set=1", "committed=1"]\n')

    def test_one_that_can_be_copied(self):
        self.template()
        self.full()
        box = self.create()
        self.assertTrue(box["pooled"] and box["forkable"])
        self.d.sh(box["id"], "echo kept > /tmp/mark")
        forked = self.d.ask("POST", f"/v1/sandboxes/{box['id']}/fork", {})
        self.assertEqual(forked.status, 201, forked)
        fork = forked.json["sandboxes"][0]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{fork['id']}")
        self.assertFalse(fork["pooled"])
        self.assertEqual(self.d.sh(fork["id"], "cat /tmp/mark /tmp/web")["stdout"], "kept\nfirst\n")

    def test_a_template_that_was_made_from_a_sandbox(self):
        box = self.d.create(template="host")
        self.d.sh(box["id"], "echo one > made")
        answer = self.d.ask("POST", f"/v1/sandboxes/{box['id']}/commit", {"name": "committed"})
        self.assertEqual(answer.status, 201, answer)
        self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        self.full("committed")
        made = self.create(template="committed")
        self.assertTrue(made["pooled"])
        self.assertEqual(self.d.sh(made["id"], "cat made; echo two > made")["stdout"], "one\n")
        self.d.ask("DELETE", f"/v1/sandboxes/{made['id']}")
        self.full("committed")
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/committed").status, 204)
        wait_until("nothing is left of it", lambda: not [name for name in os.listdir(f"{self.d.dir}/state/disks")
                                                         if name == "pool.xfs" or name.startswith(("snap-", "box-"))])


@needs_root
class PlainUser(PoolTest):
    """The service of a plain user with subordinate ids."""

    @classmethod
    def setUpClass(cls):
        subid = SubidUser()
        user = subid.__enter__()
        cls.addClassCleanup(subid.__exit__)
        cls.d = Daemon(cls.CONFIG, user=user.pw_uid, group=user.pw_gid)

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    def test_its_services_are_up(self):
        self.template()
        self.full()
        box = self.create(name="mine")
        self.assertTrue(box["pooled"])
        self.assertEqual(self.d.sh("mine", "cat /tmp/web")["stdout"], "first\n")


class Away(PoolTest):
    def boxes(self, tag):
        return {c.rsplit("/", 1)[-1] for c in own_cgroups() if c.endswith(tag)}

    def test_kill_9_of_brigd(self):
        tag = self.d.cgroup_tag()
        self.template()
        self.full()
        box = self.create()
        self.full()
        mine = next(c for c in self.boxes(tag) if box["id"] in c)
        before = self.boxes(tag) - {mine}
        pid = self.d.children()["brigd"]
        os.kill(pid, signal.SIGKILL)
        wait_until("a new brigd", lambda: self.d.children().get("brigd") not in (None, pid))
        self.d.wait_ready()
        self.full()
        wait_until("those of before are gone", lambda: not self.boxes(tag) & before)
        wait_until("and there are as many as there should be", lambda: len(self.boxes(tag)) == len(before) + 1)
        again = self.d.ask("GET", f"/v1/sandboxes/{box['id']}").json
        self.assertEqual((again["pooled"], again["created_at"]), (True, box["created_at"]))
        self.assertEqual(self.d.run(box["id"], "/bin/cat", "/tmp/web")["stdout"], "first\n")
        self.assertTrue(self.create()["pooled"])

    def test_a_service_that_keeps_its_sandboxes_keeps_none_of_these(self):
        d = Daemon('[server]\non_shutdown = "keep"\n' + self.CONFIG)
        self.addCleanup(d.close)
        self.base(d=d)
        self.built("FROM base\n", "set", d=d, template_toml=services())
        self.full(d=d)
        kept = d.create(template="set")
        self.assertTrue(kept["pooled"])
        self.full(d=d)
        tag = next(c for c in own_cgroups() if kept["id"] in c.rsplit("/", 1)[-1])
        tag = tag[tag.rindex("."):]
        self.assertEqual(len(self.boxes(tag)), 3)
        d.stop()
        wait_until("only the one that is kept is left",
                   lambda: [kept["id"] in name for name in self.boxes(tag)] == [True])
        d.start()
        self.assertTrue(d.ask("GET", f"/v1/sandboxes/{kept['id']}").json["pooled"])


if __name__ == "__main__":
    unittest.main()
