# SPDX-License-Identifier: Apache-2.0
"""The registry client with Docker's own registry: anonymous and with a login, TLS, gzip and zstd, several platforms.
drivers/registry_host.c is the client as brigd makes it from its configuration."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from registrykit import PASSWORD, USER, Registry, make_layout, tool

PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
DRIVER = next((p for p in (f"{PREFIX}/tests/e2e/registry_host", f"{BUILD}/tests/e2e/registry_host")
               if os.path.exists(p)), "registry_host")
TOOLS = ("docker-registry", "skopeo", "umoci")


@unittest.skipUnless(all(map(shutil.which, TOOLS)), f"needs {', '.join(TOOLS)}")
class Pulls(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.temp = temp.name
        self.blobs = f"{self.temp}/blobs"
        os.mkdir(self.blobs)

    def start(self, **how):
        where = f"{self.temp}/registry"
        os.mkdir(where)
        registry = Registry(where, **how)
        self.addCleanup(registry.close)
        return registry

    def pull(self, reference, platform="linux/amd64", login=(), config=""):
        """(status, the image or None, what it says)"""
        path = f"{self.temp}/config.toml"
        with open(path, "w", encoding="utf-8") as f:
            f.write(config)
        done = subprocess.run([DRIVER, path, self.blobs, reference, platform, *login], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]})
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr.strip()

    def check(self, told, name, form):
        status, image, said = told
        self.assertEqual((status, said), (0, ""))
        self.assertEqual((image["env"], image["workdir"]), (f"NAME={name}", "/work"))
        self.assertEqual([layer["format"] for layer in image["layers"]], [form, form])
        for layer in image["layers"]:
            with open(f"{self.blobs}/sha256/{layer['digest'][7:]}", "rb") as f:
                self.assertEqual(f"sha256:{hashlib.sha256(f.read()).hexdigest()}", layer["digest"])
        return image

    def test_anonymous(self):
        registry = self.start()
        digest = registry.push(make_layout(self.temp, "plain"), "a/b:1")
        image = self.check(self.pull(f"{registry.host}/a/b:1"), "plain", "tar+gzip")
        self.assertEqual((image["digest"], image["manifest"], image["platform"]), (digest, digest, "linux/amd64"))
        self.check(self.pull(f"{registry.host}/a/b@{digest}"), "plain", "tar+gzip")
        self.assertEqual(
            self.pull(f"{registry.host}/a/b:2"),
            (1, None, f"{registry.host} does not have a/b:2 (MANIFEST_UNKNOWN: manifest unknown)"))
        self.assertEqual(self.pull(f"{registry.host}/a/b:1", "linux/s390x"),
                         (1, None, "there is no image for linux/s390x: this one is for linux/amd64"))

    def test_zstd(self):
        registry = self.start()
        image = make_layout(self.temp, "packed")
        # to a registry skopeo would use the gzip blobs that it knows again
        tool("skopeo", "copy", "--insecure-policy", "--dest-compress", "--dest-compress-format", "zstd",
             f"oci:{image}", f"oci:{self.temp}/zstd:packed")
        registry.push(f"{self.temp}/zstd:packed", "z:1")
        told = self.pull(f"{registry.host}/z:1")
        image = self.check(told, "packed", "tar+zstd")
        with open(f"{self.blobs}/sha256/{image['layers'][0]['digest'][7:]}", "rb") as f:
            self.assertEqual(f.read(4), bytes.fromhex("28b52ffd"))

    def test_platforms(self):
        registry = self.start()
        first = registry.push(make_layout(self.temp, "first", "amd64"), "m:first")
        second = registry.push(make_layout(self.temp, "second", "arm64"), "m:second")
        registry.push_index("m", "all", [(first, "linux", "amd64", None), (second, "linux", "arm64", "v8")])
        image = self.check(self.pull(f"{registry.host}/m:all"), "first", "tar+gzip")
        self.assertEqual(image["manifest"], first)
        self.assertNotEqual(image["digest"], first)
        image = self.check(self.pull(f"{registry.host}/m:all", "linux/arm64"), "second", "tar+gzip")
        self.assertEqual((image["manifest"], image["platform"]), (second, "linux/arm64"))
        self.assertEqual(self.pull(f"{registry.host}/m:all", "linux/ppc64le"),
                         (1, None, "there is no image for linux/ppc64le: the index has linux/amd64, linux/arm64"))

    def test_login(self):
        registry = self.start(login=True)
        registry.push(make_layout(self.temp, "secret"), "s:1")
        self.assertEqual(self.pull(f"{registry.host}/s:1"),
                         (1, None, f"{registry.host} wants a login, or has no such image"))
        self.assertEqual(self.pull(f"{registry.host}/s:1", login=(USER, "other")),
                         (1, None, f"{registry.host} refuses the login"))
        self.check(self.pull(f"{registry.host}/s:1", login=(USER, PASSWORD)), "secret", "tar+gzip")

    def test_tls_and_a_mirror(self):
        registry = self.start(tls=True)
        registry.push(make_layout(self.temp, "safe"), "t:1")
        trusted = f'[gate]\nca_bundle = "{registry.ca}"\n'
        self.check(self.pull(f"{registry.host}/t:1", config=trusted), "safe", "tar+gzip")
        status, image, said = self.pull(f"{registry.host}/t:1")
        self.assertEqual((status, image), (1, None))
        self.assertRegex(said, "certificate")
        mirror = f'[templates]\nmirrors = ["registry.invalid=https://{registry.host}"]\n'
        self.check(self.pull("registry.invalid/t:1", config=trusted + mirror), "safe", "tar+gzip")
        refused = '[templates]\nmirrors = ["registry.invalid=http://registry.invalid"]\n'
        self.assertEqual(self.pull("registry.invalid/t:1", config=refused),
                         (1, None, "http://registry.invalid: http is only for loopback and hosts of [templates] "
                                   "insecure"))


if __name__ == "__main__":
    unittest.main()
