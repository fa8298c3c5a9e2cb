# SPDX-License-Identifier: Apache-2.0
"""Builds that are interrupted: the service is killed at every step, and the disk is full. Nothing is left, and the next
build works."""

import os
import signal
import subprocess
import unittest

from buildkit import BuildTest
from helpers import own_mounts, wait_until
from imagekit import Image, entry, tar
from jailkit import needs_root
from layerkit import END, LAYER, LayerTest, file
from service import Daemon
from test_build_bounds import tree
from test_service_faults import SmallDisk

TEXT = ("FROM base AS one\nCOPY a /a\nRUN echo one > /one\n"
        "FROM base\nCOPY --from=one /a /one /from/\nWORKDIR /w\nCOPY <<EOF /b\nb\nEOF\n"
        "RUN cat /from/a /from/one /b > all\n")
FILES = {"a": b"a\n"}
MIB = 1 << 20


def setUpModule():
    own_mounts()


class Killed(BuildTest):
    def is_up(self, d):
        try:
            return d.ask("GET", "/readyz").status == 200
        except OSError:
            return False

    def kill(self, d):
        before = d.children()["brigd"]
        os.kill(before, signal.SIGKILL)
        wait_until("another one serves", lambda: self.is_up(d) and d.children().get("brigd", before) != before)

    def has_begun(self, d, number, step):
        """Step `step` of the build has begun, or the build is over."""
        log = d.ask("GET", f"/v1/templates/builds/{number}/log").body.decode()
        return f'"event":"step","step":{step},' in log or '"event":"done"' in log

    def test_killed_at_every_step(self):
        d = Daemon("[templates]\nregistries = false\n")
        self.addCleanup(d.close)
        base = {layer["id"] for layer in self.base(d=d)["layers"]}
        for step in range(10):  # 0: it waits for its context
            begun = self.begin(TEXT, d=d, context=True, no_cache=True)
            self.assertEqual(begun.status, 201, begun)
            number = begun.json["id"]
            if step > 0:
                d.ask("PUT", f"/v1/templates/builds/{number}/context", tree(**FILES),
                      headers={"Content-Type": "application/x-tar"})
                wait_until("it is so far", lambda: self.has_begun(d, number, step))
            self.kill(d)
            self.assertEqual(d.ask("GET", f"/v1/templates/builds/{number}").status, 404)
            wait_until("sandboxes of builds are gone", lambda: not d.ask("GET", "/v1/sandboxes").json["sandboxes"])
            wait_until("no file is left", lambda: self.places(d)[1] == [])
        made, _ = self.built(TEXT, d=d, context=tree(**FILES))
        self.assertEqual(len(made["layers"]), len(base) + 4)
        box = d.create(template="built")
        self.assertEqual(d.run(box["id"], "/bin/cat", "/w/all")["stdout"], "a\none\nb\n")
        d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        d.ask("DELETE", "/v1/templates/built")
        d.ask("POST", "/v1/templates/prune")
        wait_until("no other layer is left", lambda: set(self.places(d)[0]) == base)

    def test_what_was_answered_is_kept(self):
        """Steps share a commit with the template: once the build is done, none of them runs again."""
        d = Daemon("[templates]\nregistries = false\n")
        self.addCleanup(d.close)
        self.base(d=d)
        for turn in range(5):
            text = "FROM base\n" + "".join(f"RUN echo {turn} > /{i}\n" for i in range(4))
            made, _ = self.built(text, d=d)
            self.kill(d)
            again, log = self.built(text, d=d)
            self.assertEqual((len(self.cached(log)), again["layers"]), (4, made["layers"]))

    def test_steps_before_the_one_that_failed_are_kept(self):
        self.base()
        for turn in range(5):
            text = f"FROM base\nRUN echo {turn} > /a\nRUN echo {turn} > /b\n"
            self.refused_build(text + "RUN false\n", "exited with 1")
            wait_until("both are known",
                       lambda text=text: len(self.cached(self.built(text)[1])) == 2)


class BuildDisk(SmallDisk):
    SIZE = "40m"


@needs_root
class Full(BuildTest):
    def free(self, d):
        place = os.statvfs(f"{d.dir}/state")
        return place.f_bavail * place.f_frsize

    def test_a_full_disk_at_every_step(self):
        d = BuildDisk("[templates]\nregistries = false\n")
        self.addCleanup(d.close)
        base = {layer["id"] for layer in self.base(d=d)["layers"]}
        free = self.free(d)
        # Twice as much does not fit, whatever else is there.
        big = "x=$(printf %01048576d 0); for n in 1 2 3; do for k in 1 2 3 4 5 6 7 8; do printf %s $x; done; done"
        for text, files in (("FROM base\nCOPY a /a\n", {"a": bytes(64 * MIB)}),  # while it comes
                            ("FROM base\nCOPY . /a\n", {"a": os.urandom(14 * MIB)}),  # while it is copied, or unpacked
                            (f"FROM base\nRUN ({big}) > /big\n", FILES)):  # while it is read
            begun = self.begin(text, "bad", d=d, context=True).json["id"]
            d.ask("PUT", f"/v1/templates/builds/{begun}/context", tree(**files),
                  headers={"Content-Type": "application/x-tar"})
            build = self.wait(begun, d=d)
            self.assertEqual(build["state"], "failed", build)
            self.assertNotIn("broke off", build["error"]["message"])
            wait_until("sandboxes of builds are gone", lambda: not d.ask("GET", "/v1/sandboxes").json["sandboxes"])
            wait_until("nothing is left", lambda: self.places(d)[1] == [] and set(self.places(d)[0]) == base)
            wait_until("its space is free again", lambda: self.free(d) > free - MIB)
        made, _ = self.built("FROM base\nCOPY a /a\nRUN cat /a > /b\n", d=d, context=tree(**FILES))
        self.assertEqual(len(made["layers"]), len(base) + 2)

    def test_a_layer_leaves_a_reserve(self):
        """A layer that unpacks to more than fits is refused before the disk is full."""
        d = BuildDisk("[templates]\nregistries = false\n")
        self.addCleanup(d.close)
        self.base(d=d)
        image = Image(tar(entry("zeroes", bytes(64 * MIB))), config={"Cmd": ["/bin/sh"]})
        free = self.free(d)
        answer = self.load(image.oci(), "name=large", d=d)
        error = (answer.lines[-1] if answer.lines else answer.json)["error"]  # a status, if nothing was told yet
        self.assertEqual((error["code"], error["message"]),
                         ("host_error", "the disk of templates is nearly full: No space left on device"))
        wait_until("nothing is left", lambda: self.places(d)[1] == [])
        wait_until("its space is free again", lambda: self.free(d) > free - MIB)
        self.built("FROM base\nRUN echo x > /x\n", d=d)


@needs_root
class Reserve(LayerTest):
    def test_a_twentieth_stays_free(self):
        place, archive = os.path.join(self.top, "small"), os.path.join(self.top, "archive")
        os.mkdir(place)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "brig-test", place], check=True)
        self.addCleanup(subprocess.run, ["umount", place], check=True)

        def unpack(content):
            with open(archive, "wb") as f:
                f.write(content + END)
            return subprocess.run([LAYER, "unpack", "--reserve", archive, place], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, check=False).stderr.decode()

        for content in (file(b"0", bytes(64 * MIB)), b"".join(file(b"%d" % i, b"x") for i in range(12000))):
            self.assertRegex(unpack(content), r"^\d+: the disk of templates is nearly full: No space left on device\n$")
            left = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
            self.assertTrue(2 * MIB <= left < 4 * MIB, left)
            for name in os.listdir(place):
                os.unlink(os.path.join(place, name))
            self.assertEqual(unpack(file(b"small", bytes(8 * MIB))), "")


if __name__ == "__main__":
    unittest.main()
