# SPDX-License-Identifier: Apache-2.0
"""The choice of a provider: names that there are, that are off and that there are not; one real attempt."""

import json

from lettakit import ADD
from test_cli_service import CliTest

OFF = ("docker", "runc", "crun", "runsc", "vm", "firecracker", "e2b", "modal", "daytona")
NOT_NAMED = "[providers] only does not name it"  # of the services of tests (service.py)
NOT_HERE = "this version of brig does not have it"
NO_FIRE = "needs a service of root, [firecracker] path and kernel, and [vm]"
NO_ENGINE = "needs a service of root, and [docker] socket or DOCKER_HOST"
NO_KERNEL = "[vm] kernel and root are not set; brig-vm-prepare DIR makes both"


class Providers(CliTest):
    def test_list(self):
        listed = {p["name"]: p for p in self.d.ask("GET", "/v1/providers").json["providers"]}
        self.assertEqual(sorted(listed), sorted(("local", *OFF)))
        self.assertTrue(listed["local"]["enabled"])
        self.assertTrue({"pause", "binds", "recover", "gate", "limits"} <= set(listed["local"]["can"]), listed["local"])
        self.assertFalse({"own_kernel", "image", "remote"} & set(listed["local"]["can"]), listed["local"])
        self.assertIn("seccomp", listed["local"]["layers"])
        self.assertNotIn("own_kernel", listed["local"]["layers"])
        for name in OFF:
            self.assertFalse(listed[name]["enabled"], name)
            self.assertTrue(listed[name]["why"], name)
        lines = self.ok("provider", "ls").splitlines()
        self.assertEqual(lines[0].split(), ["NAME", "STATE", "WHY"])
        self.assertEqual(lines[1].split()[:2], ["local", "on"])
        self.assertEqual({line.split()[0]: line.split()[1] for line in lines[2:]},
                         dict.fromkeys(OFF, "off"))

    def test_check(self):
        before = self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]
        found = json.loads(self.ok("provider", "check", "-o", "json", "local"))
        self.assertEqual((found["name"], found["usable"]), ("local", True))
        self.assertEqual(found["version"], self.d.ask("GET", "/v1/version").json["version"])
        self.assertTrue({"seccomp", "pid_ns", "no_new_privs"} <= set(found["layers"]), found)
        self.assertNotIn("own_kernel", found["layers"])
        text = self.ok("provider", "check", "local")
        self.assertIn("local: it can be used", text)
        self.assertEqual(self.d.ask("GET", "/v1/sandboxes").json["sandboxes"], before)
        self.refused("provider", "check", "vm", said=f"provider vm: {NO_KERNEL}")
        self.refused("provider", "check", "chroot", said="provider chroot: there is no such one")
        refused = self.d.ask("POST", "/v1/providers/local/check", key=self.d.key(role="admin"))
        self.assertEqual(refused.status, 403, refused)

    def test_a_create_names_one(self):
        box = self.box("--provider", "local")
        self.assertEqual(self.d.ask("GET", f"/v1/sandboxes/{box}").json["provider"], "local")
        for name, status, code, said in (("chroot", 422, "invalid", "provider chroot: there is no such one"),
                                         ("Local", 422, "invalid", "provider Local: there is no such one"),
                                         ("gvisor", 501, "not_enabled", f"provider runsc: {NOT_NAMED}"),
                                         ("firecracker", 501, "not_enabled", f"provider firecracker: {NO_FIRE}")):
            for path, body in (("/v1/sandboxes", {"provider": name}),
                               ("/v1/runs", {"sandbox": {"provider": name}, "process": {"argv": ["true"]}})):
                answer = self.d.ask("POST", path, body)
                self.assertEqual((answer.status, answer.json["error"]["code"], answer.json["error"]["message"]),
                                 (status, code, said), (path, name))
        self.assertEqual(self.d.ask("POST", "/v1/sandboxes", {"provider": 7}).status, 400)
        self.refused("create", "--provider", "vm", said=f"provider vm: {NO_KERNEL}")

    def test_a_run_names_one(self):
        self.assertEqual(self.ok("run", "--provider", "local", "--", "/bin/echo", "here"), "here\n")
        self.refused("run", "--provider", "vm", "--", "/bin/true", said=f"provider vm: {NO_KERNEL}")
        self.refused("run", "--provider", "vm", "--local", "--", "/bin/true", said="--provider vm: not with --local")

    def test_a_tool_names_one(self):
        with open(self.path("add.py"), "w", encoding="utf-8") as file:
            file.write(ADD)
        receipt = json.loads(self.ok("tool", "run", self.path("add.py"), "--args", '{"x": 1, "y": 2}', "--provider",
                                     "local", "-o", "json"))
        self.assertEqual((receipt["provider"], receipt["providers_tried"]), ("local", []))
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": "1", "provider": "vm",
                                                "fallback": "none"})
        self.assertEqual((answer.status, answer.json["error"]["message"]), (501, f"provider vm: {NO_KERNEL}"), answer)
        # Who wants a kernel of its own does not get the host's, unless the call says that it will do.
        asked = {"language": "python", "code": "1", "provider": "vm"}
        answer = self.d.ask("POST", "/v1/run", asked)
        self.assertEqual((answer.status, answer.json["error"]["message"]), (501, f"provider vm: {NO_KERNEL}"), answer)
        answer = self.d.ask("POST", "/v1/run", {**asked, "fallback": "auto"})
        self.assertEqual(answer.json["receipt"]["provider"], "local", answer)
        for path, body in (("/v1/run", {"language": "python", "code": "1"}),
                           ("/v1/tools/run", {"source_code": ADD, "args": {}})):
            answer = self.d.ask("POST", path, {**body, "provider": "chroot"})
            self.assertEqual(answer.status, 422, answer)
            self.assertIn("provider chroot: there is no such one", answer.body.decode())
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": "1", "provider": "podman"})
        self.assertEqual(answer.json["receipt"]["providers_tried"],
                         [{"provider": "docker", "why": f"provider docker: {NO_ENGINE}"}], answer)

    def test_a_layer_that_it_cannot_show(self):
        answer = self.d.ask("POST", "/v1/sandboxes", {"require": ["own_kernel"]})
        self.assertEqual((answer.status, answer.json["error"]["message"]),
                         (422, "required layer own_kernel: the provider local cannot show it"))
        box = self.box("--require", "all")
        layers = self.d.ask("GET", f"/v1/sandboxes/{box}").json["protection"]["layers"]
        self.assertEqual(layers["own_kernel"],
                         {"on": False, "why": "its system calls are answered by the host's kernel"})
