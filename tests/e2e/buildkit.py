# SPDX-License-Identifier: Apache-2.0
"""Builds of templates, for tests: a service with a small base template, and a build from its request to its end."""

import json
import os

from helpers import wait_until
from imagekit import Image, base_layer, entry, tar
from test_templates import TemplateTest

BASE_CONFIG = {"Env": ["PATH=/bin", "FROM_BASE=yes"], "Cmd": ["/bin/sh"], "Labels": {"base": "1"}}
OVER = ("done", "failed", "cancelled")


class BuildTest(TemplateTest):
    def base(self, name="base", d=None, **config):
        image = Image(base_layer(), tar(entry("tmp", mode=0o1777)), config={**BASE_CONFIG, **config})
        return self.loaded(image.oci(), f"name={name}&replace=true", d=d)

    def begin(self, dockerfile, name="built", key=None, d=None, **more):
        """The answer to the request."""
        body = {"name": name, "replace": True, "context": False, **more}
        if dockerfile is not None:
            body["dockerfile"] = dockerfile
        return (d or self.d).ask("POST", "/v1/templates/builds", body, key=key)

    def wait(self, build, key=None, d=None):
        d = d or self.d

        def over():
            got = d.ask("GET", f"/v1/templates/builds/{build}", key=key)
            self.assertEqual(got.status, 200, got)
            return got.json["state"] in OVER
        wait_until("the build is over", over)
        return d.ask("GET", f"/v1/templates/builds/{build}", key=key).json

    def log(self, build, key=None, d=None):
        answer = (d or self.d).ask("GET", f"/v1/templates/builds/{build}/log?follow=true", key=key)
        self.assertEqual(answer.status, 200, answer)
        return [json.loads(line) for line in answer.body.splitlines()]

    def run_build(self, dockerfile, name="built", context=None, key=None, d=None, **more):
        """(the build when it is over, its log)"""
        d = d or self.d
        if context is not None:
            more["context"] = True
        begun = self.begin(dockerfile, name, key=key, d=d, **more)
        self.assertEqual(begun.status, 201, begun)
        number = begun.json["id"]
        if context is not None:
            sent = d.ask("PUT", f"/v1/templates/builds/{number}/context", context, key=key,
                         headers={"Content-Type": "application/x-tar"})
            self.assertEqual(sent.status, 202, sent)
        log = self.log(number, key=key, d=d)
        return self.wait(number, key=key, d=d), log

    def built(self, dockerfile, name="built", d=None, **more):
        """(the template, the log) of a build that succeeds."""
        build, log = self.run_build(dockerfile, name, d=d, **more)
        self.assertEqual(build["state"], "done", (build, log))
        self.addCleanup((d or self.d).ask, "DELETE", f"/v1/templates/{name}")
        return (d or self.d).ask("GET", f"/v1/templates/{name}").json, log

    def refused_build(self, dockerfile, text, **more):
        """It fails with this text, before it runs or while it does. Gives the build, or the error."""
        begun = self.begin(dockerfile, "bad", **more)
        if begun.status != 201:
            self.assertIn(text, begun.json["error"]["message"])
            return begun.json["error"]
        build = self.wait(begun.json["id"])
        self.assertEqual(build["state"], "failed", build)
        self.assertIn(text, build["error"]["message"])
        self.assertNotIn("\n", build["error"]["message"])
        self.assertEqual(self.d.ask("GET", "/v1/templates/bad").status, 404)
        return build

    @staticmethod
    def events(log, event):
        return [line for line in log if line["event"] == event]

    @staticmethod
    def output(log):
        return "".join(line["data"] for line in log if line["event"] == "output")

    def cached(self, log):
        """The texts of the steps that were taken from the cache."""
        numbers = {line["step"] for line in self.events(log, "cached")}
        return [line["text"] for line in self.events(log, "step") if line["step"] in numbers]

    def sh(self, template, script, **more):
        """What a script prints in a sandbox of this template."""
        box = self.d.create(template=template, **more)
        try:
            run = self.d.run(box["id"], "/bin/sh", "-c", script)
            return run["stdout"] + run["stderr"]
        finally:
            self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")

    def layers_on_disk(self, d=None):
        top = os.path.join((d or self.d).dir, "state", "templates", "layers")
        return {n for n in os.listdir(top) if len(n) == 64}
