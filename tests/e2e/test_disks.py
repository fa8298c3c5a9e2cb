# SPDX-License-Identifier: Apache-2.0
"""What outlives a sandbox: volumes, snapshots, forks and templates that were made from sandboxes; who may, what counts,
and what a restart finds."""

import concurrent.futures
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import tempfile
import unittest

from helpers import BRIG, wait_until
from imagekit import Image, base_layer, entry, tar
from service import DEFAULT_ORG, Daemon, ServiceTest

MIB = 1 << 20


def is_init_of(pid, box):
    """Is this pid 1 of the sandbox?"""
    try:
        comm, groups, status = (pathlib.Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")
                                for name in ("comm", "cgroup", "status"))
        return (comm == "brig-init\n" and box in groups
                and status.split("NSpid:")[1].split("\n", maxsplit=1)[0].split()[-1] == "1")
    except (OSError, IndexError):
        return False


class DiskTest(ServiceTest):
    def box(self, **members):
        return self.sandbox(**{"forkable": True, "limits": {"disk": "32m"}, **members})

    def made(self, path, body=None, key=None, status=201):
        answer = self.d.ask("POST", path, body if body is not None else {}, tcp=key is not None, key=key)
        self.assertEqual(answer.status, status, answer)
        return answer.json

    def volume(self, name, size="16m"):
        made = self.made("/v1/volumes", {"name": name, "size": size})
        self.addCleanup(self.d.ask, "DELETE", f"/v1/volumes/{name}")
        return made

    def snapshot(self, box, **members):
        made = self.made(f"/v1/sandboxes/{box}/snapshot", members)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/snapshots/{made['id']}")
        return made

    def restore(self, snapshot, **members):
        made = self.made(f"/v1/snapshots/{snapshot}/restore", members)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        return made

    def fork(self, box, **members):
        answer = self.made(f"/v1/sandboxes/{box}/fork", members)
        for made in answer["sandboxes"]:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        self.assertEqual(answer["processes"], "not copied")
        return answer["sandboxes"]

    def commit(self, box, name, **members):
        made = self.made(f"/v1/sandboxes/{box}/commit", {"name": name, **members})
        self.addCleanup(self.d.ask, "DELETE", f"/v1/templates/{name}")
        return made

    def out(self, box, command, **members):
        run = self.d.sh(box, command, **members)
        self.assertEqual(run["outcome"]["exit_code"], 0, run)
        return run["stdout"]

    def ids(self, what):
        return [one["id"] for one in self.d.ask("GET", f"/v1/{what}").json[what]]

    def end(self, box):
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)


class Volumes(DiskTest):
    def test_it_outlives_the_sandbox(self):
        made = self.volume("data", "32m")
        self.assertEqual((made["name"], made["size"], made["state"], made["attached"]), ("data", 32 * MIB, "ready", []))
        first = self.sandbox(volumes=[{"name": "data", "target": "/data"}])
        self.out(first, "echo kept > /data/file")
        seen = self.d.ask("GET", "/v1/volumes/data").json
        self.assertEqual(seen["attached"], [{"sandbox_id": first, "read_only": False}])
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{first}").json["volumes"],
                         [{"name": "data", "target": "/data", "read_only": False}])
        self.end(first)
        second = self.sandbox(volumes=[{"name": "data", "target": "/other/place"}])
        self.assertEqual(self.out(second, "cat /other/place/file"), "kept\n")

    def test_one_writes_or_many_read(self):
        self.volume("shared")
        writer = self.sandbox(volumes=[{"name": "shared", "target": "/v"}])
        self.out(writer, "echo one > /v/x")
        for read_only in (False, True):
            self.refused(self.d.ask("POST", "/v1/sandboxes",
                                    {"volumes": [{"name": "shared", "target": "/v", "read_only": read_only}]}),
                         409, "conflict", f"volume shared: sandbox {writer} has it attached for writing")
        self.refused(self.d.ask("DELETE", "/v1/volumes/shared"), 409, "conflict",
                     f"volume shared: sandbox {writer} has it attached")
        self.end(writer)
        readers = [self.sandbox(volumes=[{"name": "shared", "target": "/v", "read_only": True}]) for _ in range(2)]
        for reader in readers:
            run = self.d.sh(reader, "cat /v/x; echo no > /v/x")
            self.assertEqual(run["stdout"], "one\n")
            self.assertIn("Read-only file system", run["stderr"])
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "shared", "target": "/v"}]}),
                     409, "conflict", "has it attached for reading")

    def test_its_size_is_a_limit_of_its_own(self):
        self.volume("small", "8m")
        box = self.sandbox(volumes=[{"name": "small", "target": "/v"}])
        run = self.d.sh(box, "dd if=/dev/zero of=/v/x bs=1M count=64")
        self.assertIn("No space left on device", run["stderr"])
        self.out(box, "echo still > /workspace/x")

    def test_refusals(self):
        self.volume("taken")
        for body, text in (({"name": "taken", "size": "16m"}, "volume taken: there is one of this name"),):
            self.refused(self.d.ask("POST", "/v1/volumes", body), 409, "conflict", text)
        for body, text in (({"name": "x"}, "size: is needed"), ({"name": "x", "size": 1}, "1 MiB to 8 TiB"),
                           ({"name": "../x", "size": "16m"}, "volume ../x: a name has 1 to 63"),
                           ({"name": "vol-x", "size": "16m"}, "are ids"),
                           ({"name": "x", "size": "16m", "more": 1}, "more")):
            self.refused(self.d.ask("POST", "/v1/volumes", body), 400, "invalid_argument", text)
        for volumes, text in (([{"name": "taken"}], "needs a name and a target"),
                              ([{"name": "taken", "target": "/proc/x"}], "/proc/x"),
                              ([{"name": "taken", "target": "/a", "disk": "vol-x"}], "volumes.disk: there is no such"),
                              ([{"name": "taken", "target": "/a"}, {"name": "taken", "target": "/b"}], "named twice"),
                              ([{"name": "taken", "target": "/a"}, {"name": "x", "target": "/a"}], "two of them")):
            self.refused(self.d.ask("POST", "/v1/sandboxes", {"volumes": volumes}), 400, "invalid_argument", text)
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "none", "target": "/a"}]}),
                     404, "not_found", "volume none not found")
        self.refused(self.d.ask("DELETE", "/v1/volumes/none"), 404, "not_found", "volume none not found")

    def test_two_at_once_of_one_name(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda _: self.d.ask("POST", "/v1/volumes", {"name": "race", "size": "16m"}),
                                    range(4)))
        self.addCleanup(self.d.ask, "DELETE", "/v1/volumes/race")
        self.assertEqual(sorted(a.status for a in answers), [201, 409, 409, 409])

    def test_another_organisation_does_not_see_it(self):
        self.volume("private")
        other = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        key = self.d.key(org=other, role="admin")
        self.assertEqual(self.d.ask("GET", "/v1/volumes", tcp=True, key=key).json, {"volumes": []})
        answer = self.d.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "private", "target": "/v"}]}, tcp=True,
                            key=key)
        self.refused(answer, 404, "not_found", "volume private not found")
        self.made("/v1/volumes", {"name": "private", "size": "16m"}, key=key)
        self.assertEqual(self.d.ask("DELETE", "/v1/volumes/private", tcp=True, key=key).status, 204)
        self.assertEqual(self.d.ask("GET", "/v1/volumes/private").status, 200)

    def test_an_organisation_takes_its_volumes_along(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "leaving"}).json["id"]
        key = self.d.key(org=org, role="user")
        made = self.made("/v1/volumes", {"name": "gone", "size": "16m"}, key=key)
        self.assertEqual(self.d.ask("DELETE", f"/v1/orgs/{org}").status, 204)
        self.assertNotIn(made["id"], self.ids("volumes"))

    def test_command_line(self):
        def brig(*words, status=0, **kw):
            done = subprocess.run([BRIG, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.d.env,
                                  timeout=120, check=False, **kw)
            self.assertEqual(done.returncode, status, done)
            return done.stdout.decode() if status == 0 else done.stderr.decode()
        self.assertEqual(brig("volume", "create", "--size", "16m", "cli"), "cli\n")
        self.assertIn("--size is needed", brig("volume", "create", "more", status=125))
        with tempfile.TemporaryDirectory() as place:
            with open(f"{place}/in", "w", encoding="utf-8") as f:
                f.write("copied\n")
            brig("volume", "cp", "-q", f"{place}/in", "cli:/")
            self.assertEqual(brig("volume", "cp", "-q", "cli:/in", "-"), "copied\n")
        self.assertEqual(self.ids("sandboxes"), [])
        box = brig("create", "-q", "-v", "cli:/data:ro").strip()
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        self.assertEqual(brig("exec", box, "--", "cat", "/data/in"), "copied\n")
        self.assertIn("1 reading", brig("volume", "ls"))
        self.assertIn("has it attached", brig("volume", "rm", "cli", status=125))
        self.end(box)
        self.assertEqual(json.loads(brig("volume", "inspect", "cli"))["attached"], [])
        self.assertEqual(brig("volume", "rm", "cli"), "cli\n")
        self.assertIn("volume cli not found", brig("volume", "inspect", "cli", status=125))


class Snapshots(DiskTest):
    CONFIG = "[secrets]\ninsecure_plaintext = true\n"

    def test_back_to_a_point(self):
        box = self.box(name="work", metadata={"team": "a"}, env={"WORD": "kept"})
        self.out(box, "echo first > /workspace/x; echo home > /home/user/y")
        kept = self.snapshot(box, name="point")
        self.assertEqual((kept["name"], kept["sandbox_id"], kept["sandbox_name"], kept["size"], kept["state"]),
                         ("point", box, "work", 32 * MIB, "ready"))
        self.out(box, "echo second > /workspace/x")
        self.refused(self.d.ask("POST", "/v1/snapshots/point/restore", {}), 409, "conflict",
                     f"name work: sandbox {box} has it")
        again = self.restore("point", name="again")
        self.assertEqual((again["name"], again["restored_from"], again["metadata"], again["forkable"]),
                         ("again", kept["id"], {"team": "a"}, True))
        self.assertEqual(self.out(again["id"], "cat /workspace/x /home/user/y; echo $WORD"), "first\nhome\nkept\n")
        self.assertEqual(self.out(box, "cat /workspace/x"), "second\n")
        back = self.restore("point", replace=True)
        self.assertEqual(back["name"], "work")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box}").status, 404)
        self.assertEqual(self.out("work", "cat /workspace/x"), "first\n")

    def test_after_the_sandbox_has_died(self):
        box = self.box()
        self.out(box, "echo alive > x")
        kept = self.snapshot(box)
        self.end(box)
        self.assertEqual(self.out(self.restore(kept["id"])["id"], "cat x"), "alive\n")
        self.assertEqual(self.d.ask("DELETE", f"/v1/snapshots/{kept['id']}").status, 204)
        self.refused(self.d.ask("POST", f"/v1/snapshots/{kept['id']}/restore", {}), 404, "not_found",
                     f"snapshot {kept['id']} not found")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/snapshot", {}), 404, "not_found", "not found")

    def test_a_paused_one_stays_paused(self):
        box = self.box()
        self.out(box, "echo asleep > x")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/pause").status, 200)
        kept = self.snapshot(box)
        fork = self.fork(box)[0]
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box}").json["state"], "paused")
        for copy in (fork, self.restore(kept["id"])):
            self.assertEqual(copy["state"], "running")
            self.assertEqual(self.out(copy["id"], "cat x"), "asleep\n")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/resume").status, 200)
        self.assertEqual(self.out(box, "cat x"), "asleep\n")

    def test_a_repeated_restore_is_one(self):
        box = self.box()
        kept = self.snapshot(box)
        ids = set()
        for _ in range(2):
            answer = self.d.ask("POST", f"/v1/snapshots/{kept['id']}/restore", {}, {"Idempotency-Key": "once"})
            self.assertEqual(answer.status, 201, answer)
            ids.add(answer.json["id"])
        self.assertEqual(len(ids), 1)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{ids.pop()}")
        self.refused(self.d.ask("POST", f"/v1/snapshots/{kept['id']}/restore", {"name": "x"},
                                {"Idempotency-Key": "once"}), 409, "conflict", "was used for another request")

    def test_a_repeated_replacement_is_one(self):
        box = self.box(name="again")
        kept = self.snapshot(box)
        answers = [self.d.ask("POST", f"/v1/snapshots/{kept['id']}/restore", {"replace": True},
                              {"Idempotency-Key": "replaced"}) for _ in range(2)]
        self.assertEqual([answer.status for answer in answers], [201, 201], answers)
        self.assertEqual(len({answer.json["id"] for answer in answers} | {box}), 2)
        self.addCleanup(self.d.ask, "DELETE", "/v1/sandboxes/again")
        self.assertEqual(self.out("again", "echo on"), "on\n")

    def test_refusals(self):
        box = self.box()
        self.snapshot(box, name="taken")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/snapshot", {"name": "taken"}), 409, "conflict",
                     "snapshot taken: there is one of this name")
        for body, text in (({"name": "snap-x"}, "are ids"), ({"name": "a b"}, "a name has 1 to 63"), ({"x": 1}, "x")):
            self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/snapshot", body), 400, "invalid_argument", text)
        self.refused(self.d.ask("POST", "/v1/snapshots/taken/restore", {"name": "host"}), 400, "invalid_argument",
                     "is reserved")
        self.assertEqual(len(self.ids("snapshots")), 1)

    def test_gifts_stay_with_administrators(self):
        """The value of a secret is in the sandbox, so its snapshot is for administrators."""
        self.assertLess(self.d.ask("PUT", "/v1/secrets/VALUE", {"value": "0123456789"}).status, 300)
        user, admin = (self.d.key(role=role) for role in ("user", "admin"))
        box = self.box(secrets=[{"name": "VALUE", "env": "VALUE", "expose": True}])
        for path in ("snapshot", "fork"):
            self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/{path}", {}, tcp=True, key=user), 403, "forbidden",
                         f"sandbox {box} holds the value of a secret; only an administrator may use it")
        kept = self.snapshot(box, name="gifted")
        self.assertNotIn("0123456789", json.dumps(self.d.ask("GET", "/v1/snapshots").json))
        for method, path in (("POST", "/restore"), ("DELETE", "")):
            answer = self.d.ask(method, f"/v1/snapshots/gifted{path}", {} if path else None, tcp=True, key=user)
            self.refused(answer, 403, "forbidden", f"sandbox {kept['id']} holds the value of a secret")
        again = self.made("/v1/snapshots/gifted/restore", {}, key=admin)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{again['id']}")
        self.assertEqual(self.out(again["id"], "echo $VALUE"), "0123456789\n")
        answer = self.d.ask("POST", f"/v1/sandboxes/{again['id']}/run", {"argv": ["true"]}, tcp=True, key=user)
        self.refused(answer, 403, "forbidden", "holds the value of a secret")

    def test_user_keys_of_the_organisation(self):
        """They do with plain ones of an administrator what they may do with his plain sandboxes."""
        user = self.d.key(role="user")
        volume, box = self.volume("admins")["id"], self.box()
        kept = self.snapshot(box)["id"]
        mine = self.made("/v1/sandboxes", {"volumes": [{"name": "admins", "target": "/v"}]}, key=user)["id"]
        self.end(mine)
        for path in (f"volumes/{volume}", f"snapshots/{kept}", f"sandboxes/{box}"):
            self.assertEqual(self.d.ask("DELETE", f"/v1/{path}", tcp=True, key=user).status, 204, path)

    def test_another_organisation_gets_none_by_its_id(self):
        volume, kept = self.volume("private")["id"], self.snapshot(self.box(), name="kept-private")["id"]
        other = self.d.ask("POST", "/v1/orgs", {"name": "strangers"}).json["id"]
        for key in (self.d.key(org=other, role=role) for role in ("admin", "user")):
            for method, path, body in (
                    ("POST", "sandboxes", {"volumes": [{"name": volume, "target": "/v", "read_only": True}]}),
                    ("GET", f"volumes/{volume}", None), ("DELETE", f"volumes/{volume}", None),
                    ("GET", f"snapshots/{kept}", None), ("POST", f"snapshots/{kept}/restore", {}),
                    ("DELETE", f"snapshots/{kept}", None)):
                answer = self.d.ask(method, f"/v1/{path}", body, tcp=True, key=key)
                self.refused(answer, 404, "not_found", "not found")

    def test_a_restore_gives_no_more_than_the_maker_had(self):
        """An administrator restores what a user kept: the new sandbox is a user's, so a user may change its network."""
        user = self.d.key(role="user")
        box = self.made("/v1/sandboxes", {"forkable": True, "limits": {"disk": "32m"}, "network": "packages"}, key=user)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box['id']}")
        mine = self.box(network="packages")
        change = {"network": "none"}
        self.refused(self.d.ask("PATCH", f"/v1/sandboxes/{mine}", change, tcp=True, key=user), 403, "forbidden",
                     "an administrator made it")
        for made in (self.restore(self.snapshot(box["id"])["id"]), *self.fork(box["id"])):
            self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{made['id']}", change, tcp=True, key=user).status, 200)
        for made in (self.restore(self.snapshot(mine)["id"]), *self.fork(mine)):
            answer = self.d.ask("PATCH", f"/v1/sandboxes/{made['id']}", change, tcp=True, key=user)
            self.refused(answer, 403, "forbidden", "an administrator made it")


class NoPrograms(DiskTest):
    def test_a_key_that_may_bring_none_gets_no_copy_with_services(self):
        key = self.made("/v1/keys", {"role": "user"})
        user = key["key"]
        self.assertEqual(self.d.ask("PUT", f"/v1/keys/{key['id']}/tools", {"allow": ["other"]}).status, 200)
        plain, served = self.box(), self.box(services=[{"name": "one", "argv": ["/bin/sleep", "1000"]}])
        for box, status in ((plain, 201), (served, 403)):
            snapshot = self.snapshot(box)["id"]
            for path in (f"/v1/sandboxes/{box}/fork", f"/v1/snapshots/{snapshot}/restore"):
                made = self.made(path, key=user, status=status)
                for new in made.get("sandboxes", [made] if "id" in made else []):
                    self.d.ask("DELETE", f"/v1/sandboxes/{new['id']}")
        self.assertEqual(self.restore(self.snapshot(served)["id"])["services"], ["one"])


class Forks(DiskTest):
    CONFIG = "[secrets]\ninsecure_plaintext = true\n"

    def test_files_are_there_and_apart(self):
        box = self.box(name="source", metadata={"k": "v"})
        self.out(box, "mkdir -p deep/er && echo same > deep/er/x && (sleep 1000 &)")
        forks = self.fork(box, count=3, name="copy")
        self.assertEqual([f["name"] for f in forks], ["copy-1", "copy-2", "copy-3"])
        self.assertEqual(len({f["id"] for f in forks} | {box}), 4)
        for fork in forks:
            self.assertEqual((fork["forked_from"], fork["metadata"], fork["limits"]["disk"]),
                             (box, {"k": "v"}, 32 * MIB))
            self.assertEqual(self.out(fork["id"], "cat deep/er/x; echo own > deep/er/x; ps -e | grep -c sleep || true"),
                             "same\n0\n")
        self.assertEqual(self.out(box, "cat deep/er/x"), "same\n")
        self.assertEqual(self.ids("snapshots"), [])
        nested = self.fork(forks[0]["id"])[0]
        self.assertEqual(self.out(nested["id"], "cat deep/er/x"), "own\n")

    def test_of_a_root_that_was_written_to(self):
        box = self.box(writable_root=True, user="root")
        self.out(box, "echo changed > /usr/new && rm -f /etc/hostname.none && chown 33:44 /usr/new")
        fork = self.fork(box)[0]
        self.assertEqual(self.out(fork["id"], "cat /usr/new; stat -c '%u %g' /usr/new"), "changed\n33 44\n")

    def test_placeholders_are_its_own(self):
        self.assertLess(self.d.ask("PUT", "/v1/secrets/TOKEN", {
            "value": "0123456789", "broker": {"hosts": ["api.example"], "header": "Authorization"}}).status, 300)
        box = self.box(network={"default": "deny", "rules": [{"action": "allow", "domain": "api.example"}]},
                       secrets=[{"name": "TOKEN", "env": "TOKEN"}])
        fork = self.fork(box)[0]["id"]
        both = {self.out(one, "echo $TOKEN") for one in (box, fork)}
        self.assertEqual(len(both), 2)
        self.assertFalse([one for one in both if "0123456789" in one or not one.strip()])

    def test_names_and_counts(self):
        box = self.box(name="named")
        self.sandbox(name="two-2")
        before = set(self.ids("sandboxes"))
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {"name": "named"}), 409, "conflict",
                     f"name named: sandbox {box} has it")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {"name": "two", "count": 3}), 409, "conflict",
                     "name two-2: sandbox")
        for count in (0, 65, "2", 1.5):
            self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {"count": count}), 400, "invalid_argument",
                         "count: must be a number from 1 to 64")
        self.assertEqual(set(self.ids("sandboxes")), before)

    def test_volumes_of_the_source(self):
        self.volume("data")
        box = self.box(volumes=[{"name": "data", "target": "/data"}])
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {}), 409, "conflict",
                     f"volume data: sandbox {box} has it attached for writing")
        self.assertEqual(self.fork(box, volumes=False)[0]["volumes"], [])
        kept = self.snapshot(box)
        self.end(box)
        self.assertEqual(self.restore(kept["id"])["volumes"],
                         [{"name": "data", "target": "/data", "read_only": False}])

    def test_recreated_with_the_files_that_it_began_with(self):
        box = self.box(on_death="recreate")
        self.out(box, "echo begun > x")
        fork = self.fork(box)[0]
        self.out(fork["id"], "echo later > x")
        found = [p for p in os.listdir("/proc") if p.isdigit() and is_init_of(p, fork["id"])]
        os.kill(int(found[0]), signal.SIGKILL)

        def again():
            now = self.d.ask("GET", f"/v1/sandboxes/{fork['id']}").json
            return now["state"] == "running" and now["boot_id"] != fork["boot_id"]
        wait_until("it is made again", again)
        self.assertEqual(self.out(fork["id"], "cat x"), "begun\n")

    def test_command_line(self):
        def brig(*words, status=0):
            done = subprocess.run([BRIG, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.d.env,
                                  timeout=120, check=False)
            self.assertEqual(done.returncode, status, done)
            return done
        box = brig("create", "-q", "--forkable", "--disk", "32m", "--name", "cli").stdout.decode().strip()
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        brig("exec", "cli", "--", "sh", "-c", "echo there > x")
        done = brig("fork", "-n", "2", "cli")
        forks = done.stdout.decode().split()
        self.assertEqual(done.stderr, b"brig: note: processes are not copied\n")
        self.assertEqual(len(forks), 2)
        for fork in forks:
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{fork}")
            self.assertEqual(brig("exec", fork, "--", "cat", "x").stdout, b"there\n")
        kept = brig("snapshot", "--name", "kept", "cli").stdout.decode().strip()
        self.assertIn(kept, brig("snapshot", "ls").stdout.decode())
        self.assertEqual(brig("snapshot", "ls", "-q").stdout.decode().strip(), kept)
        again = brig("restore", "--name", "again", "kept").stdout.decode().strip()
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{again}")
        self.assertEqual(brig("exec", "again", "--", "cat", "x").stdout, b"there\n")
        self.assertIn(b"name cli: sandbox", brig("restore", "kept", status=125).stderr)
        self.assertEqual(brig("commit", "cli", "made:1").stdout, b"made:1\n")
        from_it = brig("create", "-q", "--template", "made:1").stdout.decode().strip()
        self.assertEqual(brig("exec", from_it, "--", "cat", "x").stdout, b"there\n")
        brig("rm", "-q", from_it)
        self.assertEqual(brig("template", "rm", "made:1").stdout, b"made:1\n")
        self.assertEqual(brig("snapshot", "rm", "kept").stdout, b"kept\n")


class Memory(DiskTest):
    """Of a sandbox without a disk, whose store is memory."""

    def test_snapshot_fork_and_commit(self):
        box = self.sandbox(limits={"memory": "64m"})
        self.out(box, "echo kept > file; ln file same; ln -s /etc/hostname out; echo t > /tmp/t; echo r > /run/r")
        look = "cat file same /tmp/t; readlink out; stat -c %h:%U file; ls -A /run"
        had = "kept\nkept\nt\n/etc/hostname\n2:user\n"
        snapshot = self.snapshot(box, name="of-memory")
        self.assertEqual(snapshot["size"], 32 * MIB)
        self.commit(box, "of-memory:1")
        forks = self.fork(box, count=2)
        self.out(box, "echo later > file")
        copies = [fork["id"] for fork in forks]
        copies += [self.restore("of-memory")["id"], self.sandbox(template="of-memory:1")]
        for copy in copies:
            self.assertEqual(self.out(copy, look), had)
            self.out(copy, f"echo {copy} > file")
        again = self.fork(copies[0], count=1)[0]["id"]  # its store is a disk like any other
        self.assertEqual(self.out(again, "cat file"), f"{copies[0]}\n")
        self.assertEqual(self.out(box, "cat file"), "later\n")


class Commits(DiskTest):
    def test_a_sandbox_becomes_a_template(self):
        box = self.box(user="root", writable_root=True, workdir="/srv", env={"SECRET": "not kept"})
        self.out(box, "echo root > /usr/made; echo work > /workspace/x; echo srv > y")
        made = self.commit(box, "ready:1")
        image = made["image"]
        self.assertEqual((made["name"], made["source"], made["layers"], image["user"], image["workdir"]),
                         ("ready:1", "commit", [], "root", "/srv"))
        self.assertEqual(made["disk"], {"bytes": 32 * MIB, "writable_root": True, "base": "host"})
        self.out(box, "echo after > /usr/made")
        self.end(box)
        new = self.d.create(template="ready:1")
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{new['id']}")
        self.assertEqual((new["template"], new["user"], new["workdir"], new["writable_root"]),
                         ("ready:1", "root", "/srv", True))
        self.assertEqual(self.out(new["id"], "cat /usr/made /workspace/x y; echo $SECRET."), "root\nwork\nsrv\n.\n")
        self.refused(self.d.ask("DELETE", "/v1/templates/ready:1"), 409, "conflict", "in use by 1 sandbox")
        self.assertEqual(self.d.ask("GET", "/v1/templates/du").json["disk_bytes"], 32 * MIB)
        self.assertEqual(self.out(self.fork(new["id"])[0]["id"], "cat /usr/made"), "root\n")

    def test_on_an_image(self):
        archive = Image(base_layer(), tar(entry("app", mode=0o755), entry("app/hello", b"hello\n")),
                        config={"Env": ["PATH=/bin"], "WorkingDir": "/app"}).oci()
        self.assertEqual(self.d.ask("POST", "/v1/templates/load?name=base", archive,
                                    headers={"Content-Type": "application/x-tar"}).status, 200)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/base")
        box = self.box(template="base", user="root", writable_root=True)
        self.out(box, "echo more > /app/more && rm /app/hello")
        made = self.commit(box, "more")
        self.assertEqual(len(made["layers"]), 2)
        self.end(box)
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/base").status, 204)
        again = self.sandbox(template="more")
        self.assertEqual(self.out(again, "ls /app"), "more\n")

    def test_limits_and_roots_that_cannot_be(self):
        box = self.box(writable_root=True)
        self.commit(box, "fixed")
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"template": "fixed", "limits": {"disk": "64m"}}), 400,
                     "invalid_argument", "template fixed has a disk of 33554432 bytes")
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"template": "fixed", "writable_root": False}), 400,
                     "invalid_argument", "must be true")

    def test_who_may_and_which_names(self):
        box = self.box()
        user = self.d.key(role="user")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "mine"}, tcp=True, key=user), 403,
                     "forbidden", "only an administrator may load templates")
        self.commit(box, "once")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "once"}), 409, "conflict",
                     "template once: there is one of this name")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "host"}), 400, "invalid_argument",
                     "means something already")
        self.commit(box, "once", replace=True)


class Bounds(DiskTest):
    CONFIG = "[sandbox]\ndisk = \"8m\"\n[manager]\norg_max_disk = \"160m\"\norg_max_sandboxes = 4\n"

    def test_what_is_kept_counts(self):
        box = self.box()
        self.snapshot(box)
        self.volume("half", "64m")
        self.refused(self.d.ask("POST", "/v1/volumes", {"name": "more", "size": "64m"}), 429, "limit",
                     f"organization quota max_disk reached: limit {160 * MIB}, used {128 * MIB}, asked {64 * MIB}")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {"count": 2}), 429, "limit",
                     f"used {128 * MIB}, asked {64 * MIB}")
        self.snapshot(box)
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/snapshot", {}), 429, "limit", "max_disk reached")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "x"}), 429, "limit", "max_disk reached")
        self.assertEqual(len(self.ids("sandboxes")), 1)

    def test_all_of_them_or_none(self):
        box = self.box(limits={"disk": "8m"})
        before = self.ids("sandboxes")
        self.refused(self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {"count": 4}), 429, "limit",
                     "organization quota max_sandboxes reached: limit 4, used 1, asked 4")
        self.assertEqual(self.ids("sandboxes"), before)
        self.assertEqual(len(self.fork(box, count=3)), 3)


class Restarts(unittest.TestCase):
    def setUp(self):
        self.d = Daemon()
        self.addCleanup(self.d.close)

    def again(self, sig):
        self.d.stop(sig)
        self.d.start()
        self.d.wait_ready()

    def test_what_was_acknowledged_is_there(self):
        for sig in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(sig):
                self.assertEqual(self.d.ask("POST", "/v1/volumes", {"name": "v", "size": "16m"}).status, 201)
                box = self.d.create(forkable=True, limits={"disk": "32m"}, name="box",
                                    volumes=[{"name": "v", "target": "/v"}])["id"]
                self.d.sh(box, "echo volume > /v/x; echo store > x; sync")
                kept = self.d.ask("POST", f"/v1/sandboxes/{box}/snapshot", {}).json["id"]
                self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "t"}).status, 201)
                self.d.ask("DELETE", f"/v1/sandboxes/{box}")
                self.again(sig)
                self.assertEqual(self.d.ask("GET", "/v1/volumes/v").json["state"], "ready")
                again = self.d.ask("POST", f"/v1/snapshots/{kept}/restore", {})
                self.assertEqual(again.status, 201, again)
                again = again.json["id"]
                self.assertEqual(self.d.sh(again, "cat /v/x x")["stdout"], "volume\nstore\n")
                new = self.d.create(template="t")["id"]
                self.assertEqual(self.d.sh(new, "cat x")["stdout"], "store\n")
                for box in (again, new):
                    self.d.ask("DELETE", f"/v1/sandboxes/{box}")
                for path in ("volumes/v", f"snapshots/{kept}", "templates/t"):
                    self.assertEqual(self.d.ask("DELETE", f"/v1/{path}").status, 204, path)

    def left(self):
        """The disks that are there; the pool goes with the last one."""
        return [name for name in os.listdir(os.path.join(self.d.dir, "state", "disks"))
                if name == "pool.xfs" or name.startswith(("vol-", "snap-", "box-"))]

    @unittest.skipIf(os.environ.get("BRIG_TEST_PG_URL"), "it changes SQLite's tables by hand")
    def test_records_and_disks_are_compared(self):
        self.assertEqual(self.d.ask("POST", "/v1/volumes", {"name": "forgotten", "size": "16m"}).status, 201)
        self.assertNotEqual(self.left(), [])
        self.d.stop()
        ghost = f"vol-{'a' * 26}"
        store = sqlite3.connect(os.path.join(self.d.dir, "state", "service", "brig.db"), timeout=30)
        store.execute("DELETE FROM objects WHERE kind = 'volume'")
        store.execute("INSERT INTO objects VALUES ('volume', ?, ?, 1, 1, 1, ?)",
                      (DEFAULT_ORG, ghost, json.dumps({"name": "ghost", "size": 16 * MIB, "inodes": 1024})))
        store.commit()
        store.close()
        self.d.start()
        self.d.wait_ready()
        wait_until("the disk without a record is gone", lambda: self.left() == [])
        self.assertEqual([(v["id"], v["state"]) for v in self.d.ask("GET", "/v1/volumes").json["volumes"]],
                         [(ghost, "lost")])
        answer = self.d.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "ghost", "target": "/v"}]})
        self.assertEqual((answer.status, answer.json["error"]["message"]), (503, "volume ghost: its disk is gone"))
        self.assertIn(b"volume.lost", self.d.ask("GET", "/v1/audit?limit=100").body)
        self.assertEqual(self.d.ask("DELETE", "/v1/volumes/ghost").status, 204)

    def test_nothing_is_left_of_what_was_removed(self):
        box = self.d.create(forkable=True, limits={"disk": "32m"})["id"]
        forks = self.d.ask("POST", f"/v1/sandboxes/{box}/fork", {"count": 2}).json["sandboxes"]
        kept = self.d.ask("POST", f"/v1/sandboxes/{box}/snapshot", {}).json["id"]
        for _ in range(2):  # the second takes the name, and the first's disk is nobody's
            answer = self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "t", "replace": True})
            self.assertEqual(answer.status, 201, answer)
        self.assertEqual(self.d.ask("POST", "/v1/templates/t/tag", {"name": "second"}).status, 201)
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/t").status, 204)
        new = self.d.create(template="second")["id"]
        for one in (box, new, *(f["id"] for f in forks)):
            self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{one}").status, 204)
        self.assertNotEqual(self.left(), [])
        self.assertEqual(self.d.ask("DELETE", f"/v1/snapshots/{kept}").status, 204)
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/second").status, 204)
        wait_until("every disk is gone", lambda: self.left() == [])


if __name__ == "__main__":
    unittest.main()
