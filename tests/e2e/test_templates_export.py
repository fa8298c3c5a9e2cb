# SPDX-License-Identifier: Apache-2.0
"""Templates as archives: what is exported and loaded again is the same, layer by layer; others read it; and who may."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
import unittest

from helpers import BRIG
from imagekit import Image, base_layer, digest, entry, tar
from layerkit import END, file, folder, hardlink, header, pax, pax_of, symlink
from test_templates import CONFIG, TemplateTest

# owners, modes, times with a fraction, a hard link, a link, a pipe, attributes, a hole, and what the layer removes
AT = 1 << 20
RICH = (folder(b"d", mode=0o1777, mtime=5) + pax(mtime=b"1234.5") + file(b"d/f", b"abc", mode=0o4751, uid=7, gid=8)
        + symlink(b"l", b"../d", uid=9, gid=10) + hardlink(b"h", b"d/f") + header(b"p", b"6", mode=0o620)
        + pax_of({b"SCHILY.xattr.user.k": b"v\0\n"}) + file(b"x", b"") + file(b"etc/.wh.group")
        + pax(GNU__sparse__major=b"1", GNU__sparse__minor=b"0", GNU__sparse__name=b"hole",
              GNU__sparse__realsize=b"%d" % (2 * AT)) + file(b"s", (b"1\n%d\n4\n" % AT).ljust(512, b"\0") + b"data")
        + folder(b"bin") + file(b"bin/.wh..wh..opq") + file(b"bin/only", b"x", mode=0o755) + END)


def contents(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tf:
        return {m.name: tf.extractfile(m).read() for m in tf if m.isfile()}


def image_of(archive):
    """(configuration, [tar of each layer]) by index.json, with every digest checked."""
    files = contents(archive)

    def blob(d):
        data = files["blobs/sha256/" + d["digest"].removeprefix("sha256:")]
        assert digest(data) == d["digest"] and len(data) == d["size"], d
        return data
    entry_ = json.loads(files["index.json"])["manifests"][0]
    manifest = json.loads(blob(entry_))
    return json.loads(blob(manifest["config"])), [blob(d) for d in manifest["layers"]]


class Export(TemplateTest):
    def export(self, name, query="", key=None):
        return self.d.ask("GET", f"/v1/templates/{name}/export{query}", key=key)

    def exported(self, name, query=""):
        answer = self.export(name, query)
        self.assertEqual((answer.status, answer.headers.get("content-type")), (200, "application/x-tar"), answer)
        self.assertEqual(int(answer.headers["content-length"]), len(answer.body))
        return answer.body

    def rich(self, name):
        return self.loaded(Image(base_layer(), RICH, tar(entry("last", b"3")), config=CONFIG).docker(), f"name={name}")

    def test_there_and_back(self):
        """The tars of an export say all that a layer has: two that are equal have the same tree."""
        self.rich("first")
        archive = self.exported("first")
        self.assertEqual(archive, self.exported("first"))
        config, layers = image_of(archive)
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(t).hexdigest() for t in layers])
        with tarfile.open(fileobj=io.BytesIO(layers[1])) as tf:
            members = {m.name: m for m in tf}
        gone = {n for n in members if n.startswith("bin/.wh.")}  # what the opaque directory hid, one by one
        self.assertIn("bin/.wh.sh", gone)
        self.assertEqual(set(members) - gone,
                         {"bin", "bin/only", "d", "d/f", "etc", "etc/.wh.group", "h", "hole", "l", "p", "x"})
        self.assertEqual([(members[n].uid, members[n].gid, members[n].mode, members[n].mtime) for n in ("d/f", "l")],
                         [(7, 8, 0o4751, 1234.5), (9, 10, 0o777, 1000)])
        self.assertEqual((members["h"].linkname, members["h"].type), ("d/f", tarfile.LNKTYPE))
        self.assertEqual(members["x"].pax_headers["SCHILY.xattr.user.k"], "v\0\n")
        made = self.loaded(archive, "name=second")
        again, tars = image_of(self.exported("second"))
        self.assertEqual(tars, layers)
        self.assertEqual([layer["diff_id"] for layer in made["layers"]], config["rootfs"]["diff_ids"])
        for key in ("config", "architecture", "os", "rootfs"):
            self.assertEqual(again[key], config[key])
        self.assertEqual({k: v for k, v in config["config"].items() if k in CONFIG}, CONFIG)
        self.assertEqual(self.places()[1], [])
        events = map(json.loads, self.d.ask("GET", "/v1/audit?limit=1000").body.splitlines())
        self.assertIn(("template.export", "first", "ok"), [(e["action"], e["object"], e["outcome"]) for e in events])

    def test_formats(self):
        self.rich("formats")
        docker, oci = contents(self.exported("formats")), contents(self.exported("formats", "?format=oci"))
        saved = json.loads(docker.pop("manifest.json"))
        self.assertEqual((docker, saved[0]["RepoTags"]), (oci, ["formats:latest"]))
        self.assertEqual((len(saved[0]["Layers"]), {*saved[0]["Layers"], saved[0]["Config"]} - set(docker)), (3, set()))
        answer = self.export("formats", "?format=zip")
        self.assertEqual((answer.status, answer.json["error"]["message"]), (400, "format: must be docker or oci"))

    def test_others_read_it(self):
        self.rich("others:2")
        with tempfile.TemporaryDirectory() as top:
            path = f"{top}/a.tar"
            done = subprocess.run([BRIG, "template", "export", "-q", "-o", path, "others:2"], env=self.d.env,
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr, os.listdir(top)), (0, "", "", ["a.tar"]))
            config, layers = image_of(open(path, "rb").read())
            for source in (f"docker-archive:{path}", f"oci-archive:{path}"):
                done = subprocess.run(["skopeo", "inspect", "--config", source], capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr[-300:])
                self.assertEqual(json.loads(done.stdout)["rootfs"]["diff_ids"], config["rootfs"]["diff_ids"], source)
                subprocess.run(["skopeo", "copy", "-q", "--insecure-policy", source, f"oci:{top}/copy:x"],
                               capture_output=True, check=True)
            self.assertEqual(len(layers), 3)

    def test_refusals(self):
        self.rich("refused")
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        for name, key, status, message in (
                ("nothing", None, 404, "template nothing not found"),
                ("refused", self.d.key(role="user"), 403,
                 "only an administrator may export templates ([templates] allow)"),
                ("refused", self.d.key(role="admin", org=org), 404, "template refused not found")):
            answer = self.export(name, key=key)
            self.assertEqual((answer.status, answer.json["error"]["message"]), (status, message))
        done = subprocess.run([BRIG, "template", "export", "-o", f"{self.d.dir}/none", "nothing"],
                              env=self.d.env, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, os.path.exists(f"{self.d.dir}/none")), (125, False))
        self.assertIn("template nothing not found", done.stderr)

    def test_a_client_that_leaves(self):
        """The export ends; nothing of it stays, and the next one is whole."""
        self.rich("left")
        c = self.d.connection()
        c.request("GET", "/v1/templates/left/export")
        c.close()
        self.exported("left")
        self.assertEqual(self.places()[1], [])


class Share(TemplateTest):
    def test_an_organisation_has_its_own_share(self):
        """Exports that nobody reads take no place of another organisation."""
        self.loaded(Image(base_layer(), tar(entry("big", os.urandom(16 << 20)))).oci(), "name=shared")
        org = self.d.ask("POST", "/v1/orgs", {"name": "share"}).json["id"]
        key = self.d.key(role="admin", org=org)
        self.assertEqual(self.load(Image(base_layer()).oci(), "name=own", key=key).status, 200)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/own", key=key)
        held = []
        for _ in range(4):
            held.append(self.d.connection())
            self.addCleanup(held[-1].close)
            held[-1].request("GET", "/v1/templates/shared/export")
            self.assertEqual(held[-1].getresponse().status, 200)
        self.refused(self.d.ask("GET", "/v1/templates/shared/export"), 429, "limit",
                     "the organisation makes 4 exports already; wait for one of them")
        self.assertEqual(self.d.ask("GET", "/v1/templates/own/export", key=key).status, 200)


class Allowed(TemplateTest):
    CONFIG = "[templates]\nallow = [\"org-00000000-0000-4000-8000-000000000000=load\"]\n"

    def test_who_may_load_may_export(self):
        self.loaded(tar(entry("f", b"1")), "name=mine")
        answer = self.d.ask("GET", "/v1/templates/mine/export", key=self.d.key(role="user"))
        self.assertEqual((answer.status, len(image_of(answer.body)[1])), (200, 1))


if __name__ == "__main__":
    unittest.main()
