# SPDX-License-Identifier: Apache-2.0
"""Templates from a registry: pull, pull again, log in, go on where a pull was left, and what is refused."""

import base64
import json
import os
import subprocess
import threading
import unittest

from helpers import BRIG, wait_until
from imagekit import Image, Registry, base_layer, digest, entry, tar
from service import Daemon, ServiceTest

DEFAULT_ORG = "org-00000000-0000-4000-8000-000000000000"
CONFIG = {"Env": ["PATH=/bin"], "Cmd": ["sh"]}


def top(text):
    return tar(entry("version", text))


class Pulling(ServiceTest):
    CONFIG = ("[secrets]\ninsecure_plaintext = true\n"
              f"[templates]\nallow = [\"{DEFAULT_ORG}=127.0.0.1\"]\n")

    def registry(self, **options):
        registry = Registry(**options)
        self.addCleanup(registry.close)
        return registry

    def pull(self, reference, key=None, path="/v1/templates/pull", **members):
        body = {"reference": reference, **members} if reference else None
        answer = self.d.ask("POST", path, body, key=key, timeout=120)
        answer.lines = [json.loads(line) for line in answer.body.splitlines()] if answer.status == 200 else []
        return answer

    def pulled(self, reference, **members):
        answer = self.pull(reference, **members)
        self.assertTrue(answer.lines and "template" in answer.lines[-1], answer)
        made = answer.lines[-1]["template"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/templates/{made['name']}")
        return made

    def message(self, answer):
        return (answer.lines[-1]["error"] if answer.lines else answer.json["error"])["message"]

    def blobs(self):
        place = os.path.join(self.d.dir, "state", "templates", "blobs", "sha256")
        return sorted(os.listdir(place)) if os.path.isdir(place) else []

    def layers(self):
        return sorted(n for n in os.listdir(os.path.join(self.d.dir, "state", "templates", "layers"))
                      if not n.startswith(("lock", ".")))

    def test_pull_use_rebuild(self):
        registry = self.registry()
        registry.tags["1"] = first = Image(base_layer(), top(b"one\n"), config=CONFIG)
        parts = set(self.blobs())  # of pulls that broke off, in tests before this one
        made = self.pulled(f"{registry.host}/test/image:1")
        self.assertEqual((made["name"], made["source"], made["reference"], made["digest"]),
                         ("image:1", "pull", f"{registry.host}/test/image:1", digest(first.manifest())))
        self.assertLessEqual(set(self.blobs()), parts)
        sandbox = self.sandbox(template="image:1")
        self.assertEqual(self.d.sh(sandbox, "cat /version")["stdout"], "one\n")
        asked = len(registry.asked)
        registry.tags["1"] = second = Image(base_layer(), top(b"two\n"), config=CONFIG)
        again = self.pull(None, path="/v1/templates/image:1/rebuild").lines[-1]["template"]
        self.assertEqual(again["digest"], digest(second.manifest()))
        self.assertEqual(len(registry.asked), asked + 2)  # the configuration and the one new layer
        self.assertEqual(self.d.sh(self.sandbox(template="image:1"), "cat /version")["stdout"], "two\n")
        self.assertEqual(self.d.sh(sandbox, "cat /version")["stdout"], "one\n")  # it keeps what it was made from

    def test_login(self):
        registry = self.registry(login=("me", "pass word"))
        registry.tags["1"] = Image(base_layer(), config=CONFIG)
        reference = f"{registry.host}/test/image:1"
        self.assertEqual(self.pull(reference).status, 403)
        for password, status in (("wrong", 403), ("pass word", 200)):
            stored = self.d.ask("PUT", f"/v1/registries/{registry.host}", {"user": "me", "password": password})
            self.assertEqual((stored.status, stored.json["user"]), (200, "me"))
            self.assertNotIn("password", stored.json)
            self.assertEqual(self.pull(reference).status, status)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/image:1")
        self.assertNotIn("pass word", str(self.d.ask("GET", "/v1/registries").json))
        self.assertEqual(self.d.ask("DELETE", f"/v1/registries/{registry.host}").status, 204)
        self.assertEqual(self.pull(reference).status, 403)

    def login(self, *words, status=0):
        done = subprocess.run([BRIG, "template", "login", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.d.env, timeout=120, check=False)
        self.assertEqual(done.returncode, status, done)
        return (done.stdout or done.stderr).decode()

    def test_logins_that_docker_has(self):
        registry = self.registry(login=("me", "pass:word"))
        registry.tags["1"] = Image(base_layer(), config=CONFIG)
        path = os.path.join(self.d.dir, "config.json")
        self.addCleanup(os.unlink, path)
        auths = {registry.host: {"auth": base64.b64encode(b"me:pass:word").decode()},
                 "https://index.docker.io/v1/": {"auth": base64.b64encode(b"hub:x").decode()}, "helped.example": {}}
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"auths": auths, "credsStore": "desktop"}, f)
        self.assertEqual(self.login("--docker-config", path, registry.host), registry.host + "\n")
        self.assertEqual(self.pull(f"{registry.host}/test/image:1").status, 200)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/image:1")
        self.assertEqual(self.login("--docker-config", path), f"{registry.host}\ndocker.io\n")
        self.assertEqual(self.d.ask("GET", "/v1/registries/index.docker.io").json["host"], "docker.io")
        self.assertIn("has no login for helped.example",
                      self.login("--docker-config", path, "helped.example", status=125))
        self.assertIn("no registry given", self.login("-u", "me", status=125))
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"auths": {"a.example": {}}, "credsStore": "desktop"}, f)
        self.assertIn("kept by a helper program, which is not run", self.login("--docker-config", path, status=125))
        # All names of Docker's registry are one.
        self.assertEqual(self.d.ask("DELETE", "/v1/registries/docker.io").status, 204)
        stored = self.d.ask("PUT", "/v1/registries/registry-1.docker.io", {"user": "me", "password": "x"})
        self.assertEqual(stored.json["host"], "docker.io")
        for host in ("index.docker.io", registry.host):
            self.assertEqual(self.d.ask("DELETE", f"/v1/registries/{host}").status, 204)

    def test_those_that_the_configuration_names(self):
        registry = self.registry()
        registry.tags["1"] = Image(base_layer(), config=CONFIG)
        d = Daemon(f'[templates]\npull = ["{registry.host}/test/image:1", "mine={registry.host}/test/image:1", '
                   f'"{registry.host}/test/none:1"]\n')
        self.addCleanup(d.close)
        wait_until("the last of them is there", lambda: d.ask("GET", "/v1/templates/mine").status == 200)
        made = d.ask("GET", "/v1/templates/image:1").json
        self.assertEqual((made["source"], made["shared"], made["reference"]),
                         ("pull", True, f"{registry.host}/test/image:1"))
        wait_until("the one that fails is told", lambda: f"pull {registry.host}/test/none:1: " in d.text())

    def test_refused(self):
        registry = self.registry()
        registry.tags["1"] = image = Image(base_layer(), top(b"x\n"), config=CONFIG)
        before = self.layers()
        self.assertEqual(self.pull(f"{registry.host}/test/image:none").status, 404)
        self.assertEqual(self.pull("Not A Reference").status, 400)
        wrong = digest(image.blobs[1])
        registry.change[wrong] = bytes(len(image.blobs[1]))
        self.assertIn(wrong.removeprefix("sha256:")[:12], self.message(self.pull(f"{registry.host}/test/image:1")))
        self.assertEqual(self.d.ask("GET", "/v1/templates/image:1").status, 404)
        wait_until("no layer is left", lambda: self.layers() == before)

    def test_who_may(self):
        registry = self.registry()
        registry.tags["1"] = Image(base_layer(), config=CONFIG)
        org = self.d.ask("POST", "/v1/orgs", {"name": "pulls nothing"}).json["id"]
        theirs, ours = self.d.key(role="user", org=org), self.d.key(role="user")
        reference = f"{registry.host}/test/image:1"
        self.refused(self.pull(reference, key=theirs), 403, "forbidden",
                     f"{registry.host}/test/image: only an administrator may pull it ([templates] allow)")
        self.assertEqual(self.pull("registry.example/test/image:1", key=ours).status, 403)

    def test_a_key_reaches_no_private_registry(self):
        registry = self.registry()
        registry.tags["1"] = Image(base_layer(), config=CONFIG)
        org = self.d.ask("POST", "/v1/orgs", {"name": "looks around"}).json["id"]
        admin, port = self.d.key(role="admin", org=org), registry.host.split(":")[1]
        for host in ("127.0.0.1", "localhost", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0"):
            reference = f"{host}:{port}/test/image:1"
            self.refused(self.pull(reference, key=admin), 403, "forbidden",
                         f"{host}:{port} leads to a private address, or to this host itself; only who may name such "
                         "ones may pull from there ([gate] private_ranges)")
        self.assertEqual(registry.asked, [])
        self.assertEqual(self.pull(f"{registry.host}/test/image:1").status, 200)  # the socket may
        self.d.ask("DELETE", "/v1/templates/image:1")

    def test_how_many_at_once(self):
        registry = self.registry()
        registry.hold = threading.Event()
        registry.tags["1"] = Image(base_layer(), config=CONFIG, compress=False)
        held = []
        for i in range(16):
            held.append(self.d.connection())
            self.addCleanup(held[-1].close)
            held[-1].request("POST", "/v1/templates/pull",
                             json.dumps({"reference": f"{registry.host}/test/image:1", "name": f"held{i}"}),
                             {"Content-Type": "application/json"})
        wait_until("all of them wait", lambda: 'brig_template_jobs 16' in self.d.ask("GET", "/metrics").body.decode())
        self.refused(self.pull(f"{registry.host}/test/image:1"), 429, "limit",
                     "the organisation makes 16 templates already; wait for one of them")
        org = self.d.ask("POST", "/v1/orgs", {"name": "another"}).json["id"]
        answer = self.d.ask("POST", "/v1/templates/load?name=bad", b"not a tar", key=self.d.key(role="admin", org=org),
                            headers={"Content-Type": "application/x-tar"})
        self.assertNotEqual(answer.status, 429, answer)
        for c in held:
            c.close()

    def test_goes_on_where_it_was_left(self):
        registry = self.registry()
        registry.hold = threading.Event()
        registry.tags["1"] = image = Image(base_layer(), config=CONFIG, compress=False)
        c = self.d.connection()
        c.request("POST", "/v1/templates/pull", json.dumps({"reference": f"{registry.host}/test/image:1"}),
                  {"Content-Type": "application/json"})
        part = f"{DEFAULT_ORG}-" + digest(image.blobs[0]).removeprefix("sha256:") + ".part"
        wait_until("half of it is there", lambda: part in self.blobs())
        c.close()
        registry.hold.set()
        registry.hold = None
        made = self.pulled(f"{registry.host}/test/image:1")
        self.assertEqual(len(made["layers"]), 1)
        self.assertEqual(self.blobs(), [])

    def begin(self, **body):
        """A pull whose answer is read later."""
        c = self.d.connection()
        self.addCleanup(c.close)
        c.request("POST", "/v1/templates/pull", json.dumps(body), {"Content-Type": "application/json"})
        return c

    def test_what_the_name_means_at_the_end_counts(self):
        registry = self.registry()
        registry.tags["1"] = Image(base_layer(), top(b"first\n"), config=CONFIG)
        reference = f"{registry.host}/test/image:1"
        self.pulled(reference, name="moved")
        registry.tags["1"] = image = Image(base_layer(), top(b"second\n" * 100000), config=CONFIG, compress=False)
        registry.hold = threading.Event()
        held = self.begin(reference=reference, name="moved")
        wait_until("it is under way", lambda: any(digest(image.blobs[1]).removeprefix("sha256:") in b
                                                  for b in self.blobs()))
        other = self.d.ask("POST", "/v1/templates/load?name=moved&replace=true", Image(top(b"other\n")).oci(),
                           headers={"Content-Type": "application/x-tar"})
        self.assertEqual(other.status, 200, other)
        registry.hold.set()
        last = json.loads(held.getresponse().read().splitlines()[-1])
        self.assertIn("there is one of this name", last.get("error", {}).get("message", last))
        self.assertEqual(self.d.ask("GET", "/v1/templates/moved").json["source"], "load")

    def test_two_pulls_of_one_name_at_once(self):
        registry = self.registry()
        registry.tags["1"] = image = Image(base_layer(), top(b"both\n" * 100000), config=CONFIG, compress=False)
        registry.hold = threading.Event()
        held = [self.begin(reference=f"{registry.host}/test/image:1", name="both") for _ in range(2)]
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/both")
        wait_until("both are under way",
                   lambda: 'brig_template_jobs 2' in self.d.ask("GET", "/metrics").body.decode())
        registry.hold.set()
        for c in held:
            last = json.loads(c.getresponse().read().splitlines()[-1])
            self.assertEqual(len(last.get("template", last).get("layers", ())), len(image.layers), last)

    def test_command_line(self):
        registry = self.registry()
        registry.tags["latest"] = Image(base_layer(), config=CONFIG)

        def brig(*words, **kw):
            return subprocess.run([BRIG, "template", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=self.d.env, timeout=120, check=False, **kw)
        pulled = brig("pull", f"{registry.host}/test/image")
        self.assertEqual((pulled.returncode, pulled.stdout), (0, b"image\n"), pulled)
        self.assertEqual(brig("rebuild", "image").stdout, b"image\n")
        self.assertEqual(brig("login", "-u", "me", registry.host, input=b"secret\n").stdout,
                         registry.host.encode() + b"\n")
        self.assertEqual(brig("logout", registry.host).returncode, 0)
        failed = brig("pull", f"{registry.host}/test/other")
        self.assertEqual(failed.returncode, 125)
        self.assertEqual(failed.stderr.count(b"\n"), 1, failed)
        self.assertEqual(brig("rm", "image").returncode, 0)


if __name__ == "__main__":
    unittest.main()
