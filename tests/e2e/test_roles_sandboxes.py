# SPDX-License-Identifier: Apache-2.0
"""What a user's key may do with a sandbox that an administrator made: everything, unless the sandbox holds what the
key could not have asked for itself. The weaker of maker and user decides, at every door."""

import os
import signal
import tempfile
import unittest

from helpers import wait_until
from service import Daemon, ServiceTest

KEY = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
VALUE = "the-value-of-the-secret"
SITE = {"rules": [{"action": "allow", "domain": "example.com"}]}


class SandboxRoles(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="brig-shared-")
        os.chmod(cls.shared, 0o755)
        cls.d = Daemon(f'[sandbox]\nbind_roots = "{cls.shared}"\n', env={"BRIG_SECRETS_KEY": KEY})
        cls.user = cls.d.key(role="user")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.rmdir(cls.shared)

    def make(self, body, **how):
        made = self.d.ask("POST", "/v1/sandboxes", body, **how)
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made.json['id']}")
        return made.json["id"]

    def as_user(self, method, path, body=None):
        return self.d.ask(method, path, body, tcp=True, key=self.user)

    def wait_for_network(self, box):
        """A change is taken again as soon as brigd and brig-egress have found each other."""
        same = {"network": {"rules": []}}
        wait_until("the network can be changed",
                   lambda: self.d.ask("PATCH", f"/v1/sandboxes/{box}", same).status == 200)

    def doors(self, box):
        """Every way in that could show what the sandbox holds, or change it."""
        at = f"/v1/sandboxes/{box}"
        return [("POST", f"{at}/run", {"argv": ["env"]}), ("POST", f"{at}/processes", {"argv": ["env"]}),
                ("POST", f"{at}/shells", {}), ("GET", f"{at}/files?path=/proc/self/environ", None),
                ("GET", f"{at}/files/list?path=/", None), ("GET", f"{at}/files/tar?path=/workspace", None),
                ("POST", f"{at}/files/mkdir", {"path": "/workspace/x"}), ("GET", f"{at}/ports", None),
                ("POST", f"{at}/ports/8000/token", {}), ("GET", f"{at}/proxy/8000/", None), ("GET", f"{at}/logs", None),
                ("GET", f"{at}/processes", None),
                ("POST", f"{at}/pause", None), ("PATCH", at, {"network": SITE}), ("DELETE", at, None),
                ("POST", "/v1/run", {"code": "print(1)", "language": "python", "sandbox_id": box})]

    def refused_everywhere(self, box, why):
        for method, path, body in self.doors(box):
            with self.subTest(method=method, path=path):
                answer = self.as_user(method, path, body)
                self.assertEqual(answer.status, 403, answer)
                self.assertIn(why, answer.json["error"]["message"])
        self.assertEqual(self.as_user("GET", f"/v1/sandboxes/{box}").json["state"], "running")

    def test_a_sandbox_with_an_exposed_secret(self):
        self.assertEqual(self.d.ask("PUT", "/v1/secrets/DBPASS", {"value": VALUE}).status, 201)
        box = self.make({"secrets": [{"name": "DBPASS", "env": "X", "expose": True}]})
        self.refused_everywhere(box, "holds the value of a secret; only an administrator may use it")
        ran = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["sh", "-c", "echo $X"]})
        self.assertEqual(ran.json["stdout"].strip(), VALUE)

    def test_a_sandbox_with_a_directory_of_the_host(self):
        box = self.make({"binds": [{"source": self.shared, "target": "/data", "read_only": True}]})
        self.refused_everywhere(box, "holds a directory of the host; only an administrator may use it")

    def test_a_sandbox_with_a_private_range(self):
        box = self.make({"network": {"rules": [{"action": "allow", "cidr": "10.1.0.0/16", "ports": [80]}]}})
        self.refused_everywhere(box, "has a network that this key may not use (network: cidr 10.1.0.0/16 is private")

    def unread(self, run, *keys):
        """Neither the receipt nor the files of a run are told to these keys."""
        why = (f"{run} had what only an administrator may give; "
               "only an administrator or the key that ran it may read what it said")
        for key in keys:
            for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/files"):
                answer = self.d.ask("GET", path, key=key)
                self.assertEqual(answer.status, 403, answer)
                self.assertEqual(answer.json["error"]["message"], why)
            self.assertNotIn(run, [r["id"] for r in self.d.ask("GET", "/v1/runs?limit=1000", key=key).json["runs"]])

    def kept(self, answer):
        """The id of a run whose receipt is kept: that is a moment after the answer."""
        run = answer.json.get("id") or answer.json["run_id"]
        wait_until("its receipt is kept", lambda: self.d.ask("GET", f"/v1/runs/{run}").status == 200)
        return run

    def test_what_was_said_in_it_is_for_administrators(self):
        """A receipt has the output, and a tar the files: the same as reading them in the sandbox."""
        reader, admin = self.d.key(role="read-only"), self.d.key(role="admin")
        self.d.ask("PUT", "/v1/secrets/DBPASS", {"value": VALUE})
        value = {"secrets": [{"name": "DBPASS", "env": "X", "expose": True}]}
        bind = {"binds": [{"source": self.shared, "target": "/data", "read_only": True}]}
        private = {"network": {"rules": [{"action": "allow", "cidr": "10.1.0.0/16", "ports": [80]}]}}
        say = {"argv": ["sh", "-c", "echo said; mkdir -p out; echo left > out/f"]}
        for gift in (value, bind, private):
            box = self.make(gift)
            made = self.d.ask("POST", f"/v1/sandboxes/{box}/processes", say)
            self.d.ask("GET", f"/v1/sandboxes/{box}/processes/1/wait")
            runs = [self.kept(answer) for answer in (
                made, self.d.ask("POST", f"/v1/sandboxes/{box}/run", say),
                self.d.ask("POST", "/v1/runs", {"sandbox": gift, "process": say}),
                self.d.ask("POST", "/v1/run", {"command": say["argv"], "sandbox_id": box}))]
            for run in runs:
                with self.subTest(gift=gift, run=runs.index(run)):
                    self.unread(run, self.user, reader)
                    self.assertEqual(self.d.ask("GET", f"/v1/runs/{run}", key=admin).json["id"], run)
        run = self.kept(self.d.ask("POST", "/v1/run", {"command": say["argv"], **value}, key=admin))
        self.unread(run, self.user, reader)
        self.assertEqual(self.d.ask("GET", f"/v1/runs/{run}", key=admin).json["stdout"], "said\n")
        wait_until("the files are there", lambda: self.d.ask("GET", f"/v1/runs/{run}/files", key=admin).status == 200)
        plain = self.kept(self.d.ask("POST", f"/v1/sandboxes/{self.make({})}/run", say))  # others are for everybody
        self.assertEqual(self.d.ask("GET", f"/v1/runs/{plain}", key=reader).json["stdout"], "said\n")

    def test_a_plain_sandbox_of_an_administrator(self):
        box = self.make({})
        ran = self.as_user("POST", f"/v1/sandboxes/{box}/run", {"argv": ["true"]})
        self.assertEqual((ran.status, ran.json["outcome"]["cause"]), (200, "exited"))

    def test_only_an_administrator_changes_the_network_of_his_sandbox(self):
        """Also after a restart of brigd: the row says who made it."""
        his = self.make({"network": {"rules": []}})
        own = self.make({"network": {"rules": []}}, tcp=True, key=self.user)
        for _ in range(2):
            answer = self.as_user("PATCH", f"/v1/sandboxes/{his}", {"network": SITE})
            self.assertEqual(answer.status, 403, answer)
            self.assertIn("only an administrator may change its network", answer.json["error"]["message"])
            self.assertEqual(self.as_user("PATCH", f"/v1/sandboxes/{own}", {"network": SITE}).status, 200)
            self.assertEqual(self.d.ask("PATCH", f"/v1/sandboxes/{his}", {"network": {"rules": []}}).status, 200)
            old = self.d.children()["brigd"]
            os.kill(old, signal.SIGKILL)
            wait_until("brigd is another one", lambda: self.d.children().get("brigd", old) != old)
            self.d.wait_ready()
            self.wait_for_network(his)
            self.wait_for_network(own)

    def test_a_name_is_not_found_in_another_organisation(self):
        """The administrator's `brig cp FILE demo:` must not end in a sandbox that somebody else called demo."""
        org = self.d.ask("POST", "/v1/orgs", {"name": "planter"}).json["id"]
        box = self.make({"name": "demo"}, tcp=True, key=self.d.key(role="user", org=org))
        self.refused(self.d.ask("PUT", "/v1/sandboxes/demo/files?path=/workspace/x"), 404, "not_found",
                     "Sandbox demo not found")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box}").status, 200)

    def test_a_user_parks_children_of_templates_that_a_create_would_take(self):
        """Parked children are sandboxes as well: their root is judged like that of a create."""
        for template, status, why in (("/etc", 403, "paths are only for administrators"),
                                      ("nothing", 400, "nothing here can"),
                                      (7, 400, "must be a string"), ("x" * 200, 400, "too long")):
            answer = self.as_user("POST", "/v1/pools/prewarm", {"language": "python", "count": 1, "template": template})
            self.assertEqual(answer.status, status, answer)
            self.assertIn(why, answer.json["error"]["message"])


def require(daemon, layers):
    """Another `[sandbox] require` from now on."""
    with open(daemon.config, "w", encoding="utf-8") as file:
        file.write(f'[sandbox]\nrequire = "{layers}"\n')
    answer = daemon.ask("POST", "/v1/config/reload")
    assert answer.status == 200, answer


class RequiredLayers(ServiceTest):
    """`[sandbox] require` is the administrator's word: nothing runs without those layers, whoever asks for less. No
    sandbox has a time namespace, so nothing runs here at all."""

    WHY = "required layer time_ns is not on"

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon('[sandbox]\nrequire = "time_ns"\n')
        cls.user = cls.d.key(role="user")

    @classmethod
    def tearDownClass(cls):
        require(cls.d, "")  # with which the service works
        super().tearDownClass()

    def refused(self, path, body):
        for key in (self.user, None):
            with self.subTest(path=path, body=body, key=bool(key)):
                answer = self.d.ask("POST", path, body, key=key)
                self.assertGreaterEqual(answer.status, 400, answer)
                self.assertIn(self.WHY, answer.json["error"]["message"])

    def test_no_request_takes_less(self):
        for less in ({}, {"require": []}, {"require": ""}, {"require": ["seccomp"]}, {"require": "pids,memory"}):
            self.refused("/v1/sandboxes", less)
            self.refused("/v1/runs", {"sandbox": less, "process": {"argv": ["true"]}})

    def test_runs_need_them_too(self):
        for strict in (False, True):
            self.refused("/v1/run", {"command": "true", "strict": strict})
        self.refused("/v1/run", {"language": "python", "code": "print(1)", "reuse": "fingerprint"})


class RequiredLayersLater(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.d = Daemon("")

    @classmethod
    def tearDownClass(cls):
        require(cls.d, "")
        super().tearDownClass()

    def test_what_is_parked_is_asked_again(self):
        """A reload that requires more ends what waits without it."""
        run = {"language": "python", "code": "print(1)"}
        self.assertEqual(self.d.ask("POST", "/v1/run", run).json["stdout"], "1\n")
        wait_until("one is parked", lambda: any(p["parked"] for p in self.d.ask("GET", "/v1/pools").json["pools"]))
        require(self.d, "time_ns")
        answer = self.d.ask("POST", "/v1/run", run)
        self.assertGreaterEqual(answer.status, 400, answer)
        self.assertIn(RequiredLayers.WHY, answer.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
