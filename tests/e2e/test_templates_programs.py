# SPDX-License-Identifier: Apache-2.0
"""What an image says about its program: entry point, command, ports and stop signal, over the API and from the command
line."""

import threading

from helpers import brig, wait_until
from imagekit import Image, base_layer, entry, tar
from test_templates import TemplateTest

SHOW = b"#!/bin/sh\necho \"$0 $*\"\n"
TOP = tar(entry("show", SHOW, 0o755), entry("etc/passwd", b"root:x:0:0::/root:\napp:x:1001:50::/srv:\n"))


class Programs(TemplateTest):
    def made(self, name, **config):
        self.loaded(Image(base_layer(), TOP, config=config).oci(), f"name={name}")
        sandbox = self.d.create(template=name)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sandbox['id']}")
        return sandbox["id"]

    def said(self, box, body, status=200):
        answer = self.d.ask("POST", f"/v1/sandboxes/{box}/run", body)
        self.assertEqual(answer.status, status, answer)
        return answer.json["stdout"] if status == 200 else answer.json["error"]["message"]

    def cli(self, *words, status=0):
        done = brig(*words, env=self.d.env)
        self.assertEqual(done.returncode, status, done)
        return (done.stdout if status == 0 else done.stderr).decode()

    def test_without_a_program_it_is_the_images(self):
        for name, config, default, args in (
                ("both", {"Entrypoint": ["/show", "a"], "Cmd": ["b", "c"]}, "/show a b c\n", "/show a x\n"),
                ("entry", {"Entrypoint": ["/show"]}, "/show \n", "/show x\n"),
                ("cmd", {"Cmd": ["/show", "b"]}, "/show b\n", None),
                ("empty", {"Entrypoint": [], "Cmd": ["/show"]}, "/show \n", None)):
            box = self.made(name, **config)
            self.assertEqual(self.said(box, {}), default, name)
            if args:
                self.assertEqual(self.said(box, {"args": ["x"]}), args, name)
            self.assertEqual(self.said(box, {"argv": ["/show", "y"]}), "/show y\n")
        self.assertEqual(self.said(box, {"args": ["/show", "z"]}), "/show z\n")  # no entry point: it is the command
        box = self.made("entryonly", Entrypoint=["/show"], Cmd=["b"])
        self.assertEqual(self.said(box, {"args": []}), "/show \n")

    def test_a_working_directory_that_no_request_could_name(self):
        for name, workdir in (("proc", "/proc/self"), ("up", "/a/../../b"), ("control", "/a\nb"),
                              ("long", "/d" * 2000)):
            box = self.made(name, WorkingDir=workdir)
            self.assertEqual(self.said(box, {"argv": ["/bin/sh", "-c", "pwd"]}), "/workspace\n", name)
            note = self.d.ask("GET", f"/v1/sandboxes/{box}").json["note"]
            self.assertRegex(note, r"^the working directory of the image /\S+: .*: /workspace is used$")

    def test_a_working_directory_that_is_missing_is_roots(self):
        """As container engines make it: with the image's own user, and also where nobody could write."""
        over = tar(entry("etc/passwd", b"app:x:1001:50::/srv:\n"), entry("opt", mode=0o751, uid=3, gid=4),
                   entry("lnk", link="/opt", kind=b"2"))
        see = {"argv": ["/bin/sh", "-c", "pwd; stat -c '%u %g %a' . ..; touch x 2>/dev/null; echo $?"]}
        for name, more in (("app", {"User": "app"}), ("plain", {}), ("asroot", {"User": "root"})):
            image = Image(base_layer(), over, config={"WorkingDir": "/opt/a/b", "Env": ["PATH=/bin"], **more})
            self.loaded(image.oci(), f"name={name}")
            for writable in (False, True):
                made = self.d.create(template=name, writable_root=writable)
                self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
                self.assertNotIn("note", made)
                own = "0" if writable and name == "asroot" else "1"
                self.assertEqual(self.said(made["id"], see), f"/opt/a/b\n0 0 755\n0 0 755\n{own}\n", (name, writable))
                # What the image has on the way looks as the image has it.
                self.assertEqual(self.said(made["id"], {"argv": ["/bin/sh", "-c", "stat -c '%u %g %a' /opt"]}),
                                 "3 4 751\n")
        for name, workdir in (("bylink", "/lnk/c"), ("deep", "/d" * 100)):
            self.loaded(Image(base_layer(), over, config={"WorkingDir": workdir, "User": "app"}).oci(), f"name={name}")
            made = self.d.create(template=name)
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
            self.assertRegex(made["note"], "^the working directory of the image is not there .*: /workspace is used$")

    def test_what_an_image_says_is_bounded(self):
        """Every sandbox of the image keeps it, and every answer about one has it."""
        for member in ({"Labels": {f"k{i}": "v" * 60000 for i in range(5)}},
                       {"Env": [f"A{i}={'v' * 60000}" for i in range(5)]}, {"Cmd": ["v" * 60000] * 5}):
            self.failed(Image(base_layer(), config=member).oci(),
                        "image configuration: variables, commands, labels and ports take")
        self.loaded(Image(base_layer(), config={"Labels": {f"k{i}": "v" * 60000 for i in range(4)}}).oci(), "name=fits")

    def test_bad_programs(self):
        box = self.made("neither")
        self.assertIn("the image has neither an entry point nor a command", self.said(box, {}, 400))
        self.assertIn("the image has neither", self.said(box, {"args": []}, 400))
        self.assertIn("argv, args, command: only one of them", self.said(box, {"args": ["a"], "command": "b"}, 400))
        self.assertIn("argv, args, command: only one of them", self.said(box, {"argv": ["a"], "args": ["b"]}, 400))
        self.assertIn("args: must be an array", self.said(box, {"args": "a"}, 400))
        host = self.d.create()["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{host}")
        self.assertIn("argv: must be given", self.said(host, {}, 400))
        self.assertIn("args: the sandbox has no image", self.said(host, {"args": ["a"]}, 400))

    def test_from_the_command_line(self):
        box = self.made("cli", Entrypoint=["/show", "a"], Cmd=["b"], User="app",
                        ExposedPorts={"80/tcp": {}, "53/udp": {}})
        self.assertEqual(self.cli("exec", box), "/show a b\n")
        self.assertEqual(self.cli("exec", box, "--", "/show"), "/show \n")
        self.assertEqual(self.cli("run", "--template", "cli"), "/show a b\n")
        self.assertEqual(self.cli("run", "--template", "cli", "--", "x", "y"), "/show a x y\n")
        self.assertEqual(self.cli("run", "--template", "cli", "--entrypoint", "id", "--", "-u"), "1001\n")
        self.assertEqual(self.cli("run", "--template", "cli", "-u", "4:5", "--entrypoint", "id", "--", "-g"), "5\n")
        self.assertIn("neither /etc/passwd", self.cli("run", "--template", "cli", "-u", "no", status=125))
        self.assertIn("--template cli: not with --local", self.cli("run", "--template", "cli", "--local", status=125))
        self.assertIn("--entrypoint id: only with --template", self.cli("run", "--entrypoint", "id", "x", status=125))
        self.assertIn("others need --template", self.cli("run", "-u", "app", "--", "true", status=125))
        shown = self.cli("port", box)
        self.assertIn("the image exposes: ", shown)
        self.assertEqual(set(shown.strip().splitlines()[-1].split()[3:]), {"80/tcp", "53/udp"})
        listed = self.d.ask("GET", f"/v1/sandboxes/{box}/ports").json
        self.assertEqual((listed["ports"], sorted(listed["exposed"])), ([], ["53/udp", "80/tcp"]))

    def start(self, box, script):
        """It runs, and has said `ready`."""
        made = self.d.ask("POST", f"/v1/sandboxes/{box}/processes", {"command": script, "ring": 4096})
        self.assertEqual(made.status, 201, made)
        self.wait_for(box, made.json["number"], b"ready")
        return made.json

    def wait_for(self, box, number, text):
        wait_until(f"the program says {text}", lambda: text in self.d.ask(
            "GET", f"/v1/sandboxes/{box}/processes/{number}/output?follow=false").body)

    def test_the_stop_signal_ends_the_programs(self):
        box = self.made("soft", StopSignal="SIGUSR1")
        process = self.start(box, "trap 'exit 7' USR1; echo ready; while :; do sleep 1000 & wait; done")
        stopped = self.d.ask("POST", f"/v1/sandboxes/{box}/stop")
        self.assertEqual((stopped.status, stopped.json["cause"]), (200, "stopped"), stopped)
        outcome = self.d.ask("GET", f"/v1/runs/{process['run_id']}").json["outcome"]
        self.assertEqual((outcome["cause"], outcome["exit_code"]), ("exited", 7))

    def test_an_end_overtakes_a_stop(self):
        box = self.made("deaf", StopSignal="12")
        process = self.start(box, "trap 'echo heard' USR2; echo ready; while :; do sleep 1000 & wait; done")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.d.ask("POST", f"/v1/sandboxes/{box}/stop")))
        thread.start()
        self.wait_for(box, process["number"], b"heard")
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        thread.join()
        self.assertEqual(answers[0].status, 409, answers[0])
        self.assertIn("was ended meanwhile", answers[0].json["error"]["message"])
