# SPDX-License-Identifier: Apache-2.0
"""What a sandbox has written as a layer: a committed template is exported, and a build stands on it."""

import io
import json
import tarfile
import unittest

from buildkit import BuildTest
from helpers import wait_until
from imagekit import Image, base_layer, entry, read, tar
from jailkit import needs_root
from service import DEFAULT_ORG
from test_templates_export import image_of

TREE = tar(entry("app", mode=0o755), entry("app/gone", b"1"), entry("app/kept", b"2"), entry("app/dir", mode=0o755),
           entry("app/dir/hidden", b"3"), entry("bin/chown", read("/bin/chown"), 0o755))
CHANGE = """set -e
rm /app/gone
rm -r /app/dir; mkdir /app/dir; echo new > /app/dir/new
echo more > /app/more; ln /app/more /app/link; ln -s more /app/soft
chown 7:8 /app/more; chmod 4750 /app/more
mkdir -p /opt/made; chmod 700 /opt/made
echo work > /workspace/x; chown 9:9 /workspace/x; echo tmp > /tmp/y; echo home > /home/user/z; echo passes > /run/p
"""


@needs_root
class Layers(BuildTest):
    CONFIG = f"[templates]\nallow = [\"{DEFAULT_ORG}=build\"]\n"

    def committed(self, name="made", change=CHANGE, **more):
        self.loaded(Image(base_layer(), TREE, config={"Env": ["PATH=/bin", "A=b"], "WorkingDir": "/app"}).oci(),
                    "name=base")
        box = self.d.create(template="base", forkable=True, limits={"disk": "64m"},
                            **{"user": "root", "writable_root": True, **more})["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        run = self.d.sh(box, change)
        self.assertEqual((run["stderr"], run["outcome"]["exit_code"]), ("", 0))
        made = self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": name})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/templates/{name}")
        return made.json

    def exported(self, name):
        answer = self.d.ask("GET", f"/v1/templates/{name}/export")
        self.assertEqual(answer.status, 200, answer)
        return answer.body

    def test_an_export_has_what_was_written(self):
        self.committed()
        archive = self.exported("made")
        self.assertEqual(archive, self.exported("made"))
        config, layers = image_of(archive)
        self.assertEqual((len(layers), config["config"]["WorkingDir"], config["config"]["User"]), (3, "/app", "root"))
        with tarfile.open(fileobj=io.BytesIO(layers[2])) as tf:
            of = {m.name: m for m in tf}
            text = {m.name: tf.extractfile(m).read() for m in of.values() if m.isreg()}
        self.assertEqual({n for n in of if n.startswith("app")},
                         {"app", "app/.wh.gone", "app/dir", "app/dir/.wh..wh..opq", "app/dir/new", "app/link",
                          "app/more", "app/soft"})
        self.assertEqual((of["app/more"].linkname, of["app/soft"].linkname, text["app/link"]),
                         ("app/link", "more", b"more\n"))
        self.assertEqual((of["app/link"].uid, of["app/link"].gid, of["app/link"].mode), (7, 8, 0o4750))
        self.assertEqual((of["opt/made"].mode, of["workspace/x"].uid, of["tmp"].mode), (0o700, 9, 0o1777))
        self.assertEqual((text["workspace/x"], text["tmp/y"], text["home/user/z"]), (b"work\n", b"tmp\n", b"home\n"))
        self.assertEqual([n for n in of if n.split("/")[0] in ("dev", "proc", "run", ".brig", "sys")], [])
        self.loaded(archive, "name=again")
        self.assertEqual(image_of(self.exported("again"))[1][:2], layers[:2])
        self.assertEqual(self.sh("again", "ls /app; ls /app/dir; stat -c '%u %a' /app/more /opt/made"),
                         "dir\nkept\nlink\nmore\nsoft\nnew\n7 4750\n0 700\n")

    def test_a_build_stands_on_it(self):
        self.committed()
        text = ("FROM made AS one\nRUN cat /workspace/x /tmp/y /app/more; ls /app; echo $A\n"
                "FROM base\nCOPY --from=made /app/more /app/dir/new /copied/\n"
                "RUN --mount=type=bind,from=made,source=/workspace,target=/m cat /m/x /copied/*\n"
                "COPY --from=one /workspace/x /last\n")
        made, log = self.built(text, "built")
        self.assertEqual(sorted(self.output(log).split()),
                         sorted("work tmp more dir kept link more soft b work more new".split()))
        self.assertEqual(self.sh("built", "cat /last; stat -c %u /copied/more"), "work\n7\n")
        # Its disk becomes a layer once.
        _, log = self.built(text, "built2")
        self.assertEqual(self.output(log), "")
        first = self.built("FROM made\nENV C=d\n", "upper")[0]
        self.assertEqual((len(first["layers"]), first["image"]["workdir"]), (3, "/app"))
        self.assertEqual(self.sh("upper", "ls /app; cat /app/dir/*; echo $C"), "dir\nkept\nlink\nmore\nsoft\nnew\nd\n")
        # It stays when the template is gone, and a user key's build may stand on it too.
        self.assertEqual(self.built("FROM made\nENV E=f\n", "theirs", key=self.d.key())[0]["layers"], first["layers"])
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/made").status, 204)
        self.assertEqual(self.sh("upper", "cat /app/more"), "more\n")

    def test_of_a_root_that_cannot_be_written(self):
        """Only the places of the sandbox can have changed."""
        self.committed(change="echo mine > /workspace/x", writable_root=False, user="user")
        with tarfile.open(fileobj=io.BytesIO(image_of(self.exported("made"))[1][2])) as tf:
            self.assertEqual(sorted(tf.getnames()), ["home/user", "tmp", "var/tmp", "workspace", "workspace/x"])

    def test_on_the_host_there_are_no_layers(self):
        box = self.d.create(forkable=True, limits={"disk": "16m"})["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        self.assertEqual(self.d.ask("POST", f"/v1/sandboxes/{box}/commit", {"name": "hosted"}).status, 201)
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/hosted")
        self.refused(self.d.ask("GET", "/v1/templates/hosted/export"), 422, "unsupported",
                     "template hosted: it stands on host of this host, which has no layers to export")
        self.refused_build("FROM hosted\n", "template hosted stands on host of this host, and a build needs layers")

    def test_a_name_that_no_layer_can_have(self):
        self.committed(change="touch /workspace/.wh.x")
        answer = self.d.ask("GET", "/v1/templates/made/export")
        self.assertEqual(answer.status, 500, answer)
        self.assertIn("workspace/.wh.x: layers use names with .wh. for what was removed",
                      answer.json["error"]["message"])
        self.refused_build("FROM made\n", "workspace/.wh.x: layers use names with .wh.")

    def test_nothing_is_left(self):
        self.committed()
        self.exported("made")
        self.built("FROM made\nRUN true\n", "built")
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/made").status, 204)
        for box in self.d.ask("GET", "/v1/sandboxes").json["sandboxes"]:
            self.d.ask("DELETE", f"/v1/sandboxes/{box['id']}")
        wait_until("its disk is gone", lambda: self.d.ask("GET", "/v1/templates/du").json["disk_bytes"] == 0)
        actions = [json.loads(line)["action"] for line in self.d.ask("GET", "/v1/audit").body.splitlines()]
        self.assertIn("template.export", actions)


if __name__ == "__main__":
    unittest.main()
