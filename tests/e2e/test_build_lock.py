# SPDX-License-Identifier: Apache-2.0
"""The lock of a build: the same layers from it, what differs by its name, and the file that the command line keeps."""

import hashlib
import json
import os
import subprocess
import unittest

from buildkit import BuildTest
from helpers import BRIG
from imagekit import Image, base_layer, entry, tar

STATUS = ("FROM base\nARG V=1\nARG MORE=\n"
          "RUN mkdir -p /var/lib/dpkg && printf 'Package: dash\\nStatus: install ok installed\\nVersion: %s\\n"
          "Architecture: amd64\\n\\nPackage: gone\\nStatus: deinstall ok config-files\\nVersion: 1\\n"
          "Architecture: all\\n\\n%b' $V \"$MORE\" > /var/lib/dpkg/status\n")
TZDATA = "Package: tzdata\\nVersion: 2\\nArchitecture: all\\nStatus: install ok installed\\n"


def aged(name, mtime):
    """A context with one file of this time."""
    info, data = entry(name, b"x")
    info.mtime = mtime
    return tar((info, data))


class Lock(BuildTest):
    def locked(self, dockerfile, name="first", **more):
        """(the template, the text of its lock)"""
        build, log = self.run_build(dockerfile, name, update_lock=True, **more)
        self.assertEqual(build["state"], "done", (build, log))
        self.addCleanup(self.d.ask, "DELETE", f"/v1/templates/{name}")
        got = self.d.ask("GET", f"/v1/templates/builds/{build['id']}/lock")
        self.assertEqual(got.status, 200, got)
        return self.d.ask("GET", f"/v1/templates/{name}").json, got.body.decode()

    def test_the_same_layers(self):
        self.base()
        text = ("FROM base AS one\nRUN echo 1 > /one; ln -s one /two; mkdir /dir\nFROM one\nWORKDIR /made/here\n"
                "COPY a /copied/\nCOPY --from=one /one /from/\nRUN date +%N > /dev/null; echo $SOURCE_DATE_EPOCH >/e\n")
        first, lock = self.locked(text, context=aged("a", 1000000000))
        doc = json.loads(lock)
        self.assertEqual((doc["format"], doc["packages"], doc["bases"][0]["from"]), (1, [], "base"))
        self.assertEqual(doc["layers"], [layer["diff_id"] for layer in first["layers"]])
        self.assertEqual(self.sh("first", "cat /e"), f"{doc['source_date_epoch']}\n")
        later = aged("a", 1500000000)
        second, log = self.built(text, "second", lock=lock, no_cache=True, context=later)
        self.assertEqual(self.cached(log), [])
        self.assertEqual(first["layers"], second["layers"])
        _, log = self.built(text, "third", lock=lock, context=later)  # its steps have keys of their own
        self.assertEqual(len(self.cached(log)), 5)
        plain, log = self.built(text, "plain", context=later)
        self.assertEqual(self.cached(log), [])
        self.assertNotEqual(first["layers"], plain["layers"])

    def test_other_files(self):
        self.base()
        text = "FROM base\nRUN echo same > /same\nRUN touch /other && stat -c %z /other > /other\n"
        _, lock = self.locked(text)
        self.refused_build(text, "the build differs from its lock: line 3 gives other files: /other differs; "
                           "layer 4 is sha256:", lock=lock, no_cache=True)
        self.refused_build("FROM base\nRUN echo same > /same\n", "it has 3 layers instead of 4: /other is missing",
                           lock=lock)
        for line, path in (("touch /same; mkdir /dir; echo > /dir/a.b; echo > /dir/a", "/dir is new"),
                           ("chmod 600 /same; touch /other", "/other differs"),
                           ("touch /other; ln -s x /zzz", "/other differs"),
                           ("touch /zzz", "/other is missing")):
            self.refused_build(f"FROM base\nRUN echo same > /same\nRUN {line}\n", f"line 3 gives other files: {path}; ",
                               lock=lock)

    def test_a_large_tree(self):
        """A lock has at most 5 MiB of paths (and 65,536); past that it has none, and the line alone is told."""
        self.base()
        text = ("FROM base\nRUN d=$(printf %0250d 0); i=0; while [ $i -lt 14 ]; do mkdir $d; cd $d; i=$((i + 1)); done;"
                " while [ $i -lt 1600 ]; do : > $i; i=$((i + 1)); done\nARG V=1\nRUN echo $V > /v\n")
        _, lock = self.locked(text)
        self.assertEqual(json.loads(lock)["paths"], [])
        self.refused_build(text, "line 4 gives other files: layer 4 is sha256:", lock=lock, build_args={"V": "2"})

    def test_another_base(self):
        self.base()
        _, lock = self.locked("FROM base\nRUN echo 1 > /one\n")
        other = Image(base_layer(), tar(entry("tmp", mode=0o1777), entry("new", b"")), config={"Env": ["PATH=/bin"]})
        self.loaded(other.oci(), "name=base&replace=true")
        self.refused_build("FROM base\nRUN echo 1 > /one\n", "the build differs from its lock: base is another image",
                           lock=lock)
        self.loaded(other.oci(), "name=third&replace=true")
        self.refused_build("FROM third\n", "it is made FROM third, not base", lock=lock)
        self.refused_build("FROM scratch\nCOPY <<A /a\nA\n", "it is not made FROM base", lock=lock)

    def test_packages_by_name(self):
        self.base()
        _, lock = self.locked(STATUS)
        self.assertEqual(json.loads(lock)["packages"],
                         [{"name": "dash", "version": "1", "architecture": "amd64", "sha256": "", "files": ""}])
        self.built(STATUS, "second", lock=lock, no_cache=True)
        for args, text in (({"V": "2"}, "package dash 1 -> 2"), ({"MORE": TZDATA}, "package tzdata 2 is new"),
                           ({"V": "2", "MORE": TZDATA}, "package dash 1 -> 2, and 1 more")):
            self.refused_build(STATUS, f"the build differs from its lock: {text}", lock=lock, build_args=args)
        self.refused_build("FROM base\n", "package dash 1 is missing", lock=lock)
        self.refused_build(STATUS, "dpkg/status: line 3: Version: must have 1 to 127 letters, digits or .+-~:_",
                           build_args={"V": '1"'}, update_lock=True)

    def test_what_dpkg_says_of_the_files(self):
        """A package of the same version with other files is named with both hashes."""
        self.base()
        text = STATUS + ("ARG SUM=1\nRUN mkdir -p /var/lib/dpkg/info && echo $SUM usr/bin/dash > "
                         "/var/lib/dpkg/info/dash.md5sums\n")
        _, lock = self.locked(text)
        was = hashlib.sha256(b"1 usr/bin/dash\n").hexdigest()
        self.assertEqual(json.loads(lock)["packages"][0]["files"], was)
        other = hashlib.sha256(b"2 usr/bin/dash\n").hexdigest()
        self.refused_build(text, "the build differs from its lock: package dash 1 "
                           f"(files {was[:16]}) -> 1 (files {other[:16]})", lock=lock, build_args={"SUM": "2"})

    def test_what_is_no_lock(self):
        self.base()
        _, lock = self.locked("FROM base\n")
        good = json.loads(lock)
        package = {"name": "a", "version": "1", "architecture": "all", "sha256": "", "files": ""}
        for change, text in (({"format": 2}, "lock: line 1: format: must be 1"),
                             ({"layers": ["x"]}, "lock: line 1: layers: must be"),
                             ({"source_date_epoch": -1}, "lock: line 1: source_date_epoch: must be"),
                             ({"packages": [{**package, "name": "a b"}]}, "lock: line 1: packages: each must have"),
                             ({"packages": [package, package]}, "lock: line 1: packages: must be in the order"),
                             ({"paths": ["/a"]}, "lock: line 1: paths: each must be 16"),
                             ({"bases": [{}]}, "lock: line 1: bases: each must have")):
            answer = self.begin("FROM base\n", lock=json.dumps({**good, **change}))
            self.assertEqual((answer.status, answer.json["error"]["message"][:len(text)]), (400, text))
        self.assertIn("lock: ", self.begin("FROM base\n", lock="{").json["error"]["message"])
        both = self.begin("FROM base\n", lock=lock, update_lock=True)
        self.assertEqual(both.status, 400, both)
        other = json.dumps({**good, "platform": "linux/none"})
        self.refused_build("FROM base\n", "the lock is for linux/none", lock=other)
        build, _ = self.run_build("FROM base\n", "plain")
        self.assertEqual(self.d.ask("GET", f"/v1/templates/builds/{build['id']}/lock").status, 404)

    def test_the_file_of_the_command_line(self):
        self.base()
        place = os.path.join(self.d.dir, "locked")
        os.makedirs(place)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/cli")

        def brig(*words):
            return subprocess.run([BRIG, "template", "build", "--replace", "-t", "cli", *words], env=self.d.env,
                                  cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False,
                                  text=True)

        def dockerfile(text):
            with open(os.path.join(place, "Dockerfile"), "w", encoding="utf-8") as f:
                f.write(text)
        dockerfile("FROM base\nRUN echo 1 > /one\n")
        self.assertEqual(brig(place).returncode, 0)
        self.assertEqual(os.listdir(place), ["Dockerfile"])
        done = brig("--update-lock", place)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(place)), ["Dockerfile", "template.lock"])
        self.assertEqual(brig("--no-cache", place).returncode, 0)
        dockerfile("FROM base\nRUN echo 2 > /one\n")
        done = brig(place)
        self.assertEqual(done.returncode, 125)
        self.assertIn("the build differs from its lock: line 2 gives other files", done.stderr)
        self.assertEqual(brig("--update-lock", place).returncode, 0)
        self.assertEqual(brig(place).returncode, 0)
        self.assertIn("nosuch", brig("--lock", os.path.join(place, "nosuch"), place).stderr)


if __name__ == "__main__":
    unittest.main()
