# SPDX-License-Identifier: Apache-2.0
"""Templates from archives, all the way: load, create, look inside, share layers, refuse, remove; and that whatever
goes wrong leaves nothing."""

import concurrent.futures
import gzip
import json
import os
import signal
import subprocess
import tarfile
import unittest

from helpers import BRIG, wait_until
from jailkit import SubidUser, needs_root
from imagekit import Image, base_entries, base_layer, digest, entry, tar
from service import Daemon, ServiceTest

TOP = tar(entry("app", mode=0o755), entry("app/hello", b"hello\n", 0o640, 33, 44),
          entry("app/tool", b"#!/bin/sh\necho tool \"$GREETING\"\n", 0o755),
          entry("etc/.wh.group", b""))
CONFIG = {"Env": ["PATH=/bin:/app", "GREETING=from the image", "KEPT=image"], "WorkingDir": "/app",
          "Entrypoint": ["/app/tool"], "Cmd": ["x"], "ExposedPorts": {"80/tcp": {}}, "Labels": {"who": "me"}}


class ServedRootless:
    """The service of a plain user with subordinate ids, for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        subid = SubidUser()
        user = subid.__enter__()
        cls.addClassCleanup(subid.__exit__)
        cls.d = Daemon(user=user.pw_uid, group=user.pw_gid)

    @classmethod
    def tearDownClass(cls):
        cls.d.close()


class TemplateTest(ServiceTest):
    def load(self, archive, query="", key=None, d=None):
        """The answer; .lines has what was streamed."""
        answer = (d or self.d).ask("POST", f"/v1/templates/load?{query}", archive, key=key,
                                   headers={"Content-Type": "application/x-tar"})
        answer.lines = [json.loads(line) for line in answer.body.splitlines()] if answer.status == 200 else []
        return answer

    def loaded(self, archive, query="", d=None):
        answer = self.load(archive, query, d=d)
        self.assertEqual(answer.status, 200, answer)
        self.assertIn("template", answer.lines[-1], answer.lines)
        made = answer.lines[-1]["template"]
        self.addCleanup((d or self.d).ask, "DELETE", f"/v1/templates/{made['name']}")
        return made

    def places(self, d=None):
        """(names of layers, files of work) on the disk."""
        top = os.path.join((d or self.d).dir, "state", "templates")
        return (sorted(n for n in os.listdir(os.path.join(top, "layers")) if not n.startswith(("lock", "."))),
                sorted(os.listdir(os.path.join(top, "work"))))

    def failed(self, archive, text, query="name=bad"):
        """It is refused with this line, and nothing of it is left."""
        before = self.places()
        answer = self.load(archive, query)
        message = (answer.lines[-1].get("error") if answer.lines else answer.json["error"])["message"]
        self.assertIn(text, message)
        self.assertNotIn("\n", message)
        self.assertEqual(self.d.ask("GET", "/v1/templates/bad").status, 404)
        wait_until("nothing is left of it", lambda: self.places() == before)
        return answer


class Loading(TemplateTest):
    def test_load_create_run_remove(self):
        image = Image(base_layer(), TOP, config=CONFIG)
        made = self.loaded(image.oci(), "name=web:1")
        self.assertEqual((made["name"], made["source"], made["shared"]), ("web:1", "load", False))
        self.assertEqual(made["digest"], digest(image.manifest()))
        self.assertEqual([l["id"] for l in made["layers"]], image.chain_ids())
        self.assertEqual((made["image"]["workdir"], made["image"]["entrypoint"], made["image"]["exposed_ports"]),
                         ("/app", ["/app/tool"], ["80/tcp"]))
        self.assertEqual(made["image"]["labels"], {"who": "me"})
        sandbox = self.d.create(template="web:1", env={"KEPT": "request"})
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sandbox['id']}")
        self.assertEqual((sandbox["template"], sandbox["workdir"]), ("web:1", "/app"))
        self.assertEqual(sandbox["image"]["cmd"], ["x"])
        run = self.d.run(sandbox["id"], "/bin/sh", "-c",
                         "/app/tool; echo $KEPT; stat -c '%a %u %g' hello; ls /etc; cat /etc/group 2>&1")
        lines = run["stdout"].splitlines()
        self.assertEqual(lines[:3], ["tool from the image", "request", "640 33 44"], run)
        self.assertEqual((run["environment"]["GREETING"], run["environment"]["KEPT"]), ("template", "sandbox"))
        self.refused(self.d.ask("DELETE", "/v1/templates/web:1"), 409, "conflict",
                     "template web:1: in use by 1 sandbox")
        self.d.ask("DELETE", f"/v1/sandboxes/{sandbox['id']}")
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/web:1").status, 204)
        wait_until("its layers are gone", lambda: self.places() == ([], []))

    def test_two_sandboxes_are_apart(self):
        self.loaded(Image(base_layer(), TOP, config=CONFIG).oci(), "name=two")
        one, two = (self.sandbox(template="two", writable_root=True, user="root") for _ in range(2))
        self.assertEqual(self.d.sh(one, "echo mine > /app/hello && cat /app/hello")["stdout"], "mine\n")
        self.assertEqual(self.d.sh(two, "cat /app/hello")["stdout"], "hello\n")

    def test_docker_archive(self):
        made = self.loaded(Image(base_layer(), TOP, TOP, config=CONFIG).docker("reg.example/team/app:2", link=True))
        self.assertEqual((made["name"], len(made["layers"])), ("app:2", 3))

    def test_plain_root(self):
        for pack in (lambda data: data, lambda data: gzip.compress(data, 1)):
            made = self.loaded(pack(base_layer()), "name=plain&replace=true")
            self.assertEqual([l["id"] for l in made["layers"]], [digest(base_layer()).removeprefix("sha256:")])
        self.assertEqual(self.d.sh(self.sandbox(template="plain"), "echo in")["stdout"], "in\n")

    def test_layers_are_shared(self):
        first = self.loaded(Image(base_layer(), config=CONFIG).oci(), "name=first")
        second = self.loaded(Image(base_layer(), TOP, config=CONFIG).oci(), "name=second")
        self.assertEqual(first["layers"][0], second["layers"][0])
        self.assertEqual(second["own_bytes"], second["bytes"] - first["bytes"])
        wait_until("two layers are there", lambda: len(self.places()[0]) == 2)
        use = self.d.ask("GET", "/v1/templates/du").json
        self.assertEqual((use["templates"], use["layers"], use["saved_bytes"]), (2, 2, first["bytes"]))

    def test_two_at_once(self):
        image = Image(base_layer(), TOP, config=CONFIG).oci()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda n: self.load(image, f"name=at-once-{n}"), range(3)))
        for n, answer in enumerate(answers):
            self.addCleanup(self.d.ask, "DELETE", f"/v1/templates/at-once-{n}")
            self.assertIn("template", answer.lines[-1], answer.lines)
        wait_until("two layers are there", lambda: len(self.places()[0]) == 2)
        steps = [line["step"] for answer in answers for line in answer.lines if "step" in line]
        self.assertEqual(steps.count("found") + steps.count("unpacked"), 6)

    def test_tag(self):
        self.loaded(Image(base_layer(), config=CONFIG).oci(), "name=orig")
        answer = self.d.ask("POST", "/v1/templates/orig/tag", {"name": "copy:latest"})
        self.assertEqual((answer.status, answer.json["name"]), (201, "copy"))
        self.refused(self.d.ask("POST", "/v1/templates/orig/tag", {"name": "copy"}), 409, "conflict",
                     "template copy: there is one of this name")
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/orig").status, 204)
        self.assertEqual(self.d.sh(self.sandbox(template="copy"), "echo in")["stdout"], "in\n")
        wait_until("one layer is there", lambda: len(self.places()[0]) == 1)

    def test_command_line(self):
        path = os.path.join(self.d.dir, "image.tar")
        with open(path, "wb") as f:
            f.write(Image(base_layer(), TOP, config=CONFIG).oci())

        def brig(*words, **kw):
            return subprocess.run([BRIG, "template", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=self.d.env, timeout=120, check=False, **kw)
        loaded = brig("load", "--name", "cli:1", path)
        self.assertEqual((loaded.returncode, loaded.stdout), (0, b"cli:1\n"), loaded)
        self.assertIn(b"unpacked (2 of 2)\n", loaded.stderr)
        with open(path, "rb") as f:
            taken = brig("load", "-n", "cli:1", "-", stdin=f)
        self.assertEqual(taken.returncode, 125)
        self.assertEqual(taken.stderr, b"brig: template cli:1: there is one of this name; replace it, or choose "
                         b"another\n")
        self.assertIn(b"cli:1", brig("ls").stdout)
        self.assertEqual(json.loads(brig("inspect", "cli:1").stdout)["image"]["workdir"], "/app")
        self.assertEqual(brig("tag", "cli:1", "cli:2").stdout, b"cli:2\n")
        self.assertIn(b"2 templates, 2 layers", brig("du").stdout)
        self.assertEqual(brig("rm", "cli:1", "cli:2").returncode, 0)
        self.assertEqual(brig("ls", "-q").stdout, b"")
        self.assertEqual(brig("prune", "-o", "json").returncode, 0)


class Archives(TemplateTest):
    def test_several_images_in_one_archive(self):
        one, two = Image(base_layer(), config=CONFIG), Image(base_layer(), TOP, config=CONFIG)

        def both(files):
            index = json.loads(files["index.json"])
            index["manifests"] += json.loads(two.index("two:1"))["manifests"]
            files["index.json"] = json.dumps(index).encode()
        self.failed(one.oci("one:1", both), "index.json: the archive has 2 images; load one at a time")

    def test_the_image_itself_says_its_platform(self):
        other = Image(base_layer(), config=CONFIG, arch="arm64")
        self.failed(other.docker(), "the image is for linux/arm64, and not for linux/amd64 (--platform)")
        self.failed(other.oci(), "the image is for linux/arm64, and not for linux/amd64 (--platform)")
        self.failed(Image(base_layer(), config=CONFIG).docker(),
                    "the image is for linux/amd64, and not for linux/arm64 (--platform)",
                    "name=bad&platform=linux/arm64")
        self.assertEqual(self.loaded(other.docker(), "name=arm&platform=linux/arm64")["image"]["platform"],
                         "linux/arm64")

    def test_a_configuration_with_another_digest(self):
        image = Image(base_layer(), config=CONFIG)
        archive = image.docker()
        spoilt = archive.replace(image.config, image.config.replace(b"from the image", b"from elsewhere"))
        self.assertNotEqual(archive, spoilt)
        self.failed(spoilt, "its content has the digest sha256:")

    def test_an_index_of_platforms_and_the_shell(self):
        image = Image(base_layer(), config={**CONFIG, "Shell": ["/bin/sh", "-e"]})
        inner = image.index()

        def nest(files):
            files["blobs/sha256/" + digest(inner).removeprefix("sha256:")] = inner
            files["index.json"] = json.dumps({
                "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                "manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest(inner),
                               "size": len(inner)}]}).encode()
        made = self.loaded(image.oci(change=nest), "name=nested")
        self.assertEqual((made["digest"], made["image"]["shell"]), (digest(inner), ["/bin/sh", "-e"]))


class Refusals(TemplateTest):
    def test_names(self):
        self.loaded(Image(base_layer(), config=CONFIG).oci(), "name=taken")
        image = Image(base_layer()).oci()
        self.failed(image, "name: the archive does not say one that can be used", query="")
        self.refused(self.load(image, "name=Bad"), 400, "invalid_argument",
                     "template Bad: a name is NAME or NAME:TAG, each of 1 to 63 of a-z, 0-9, \".\", \"_\", \"-\" "
                     "(capital letters too in a tag), and begins with a letter or digit")
        self.refused(self.load(image, "name=host"), 400, "invalid_argument",
                     "template host: this name means something already")
        self.refused(self.load(image, "name=taken"), 409, "conflict",
                     "template taken: there is one of this name; replace it, or choose another")

    def test_broken_archives(self):
        image = Image(base_layer(), TOP, config=CONFIG)
        whole = image.oci()
        layer = "blobs/sha256/" + digest(image.blobs[1]).removeprefix("sha256:")
        config = "blobs/sha256/" + digest(image.config).removeprefix("sha256:")
        self.failed(b"", "the archive is empty")
        self.failed(b"nonsense" * 200, "the archive: ")
        self.failed(whole[:len(whole) // 2], "the archive")
        self.failed(image.oci(change=lambda f: f.pop(layer)), "not in the archive")
        self.failed(image.oci(change=lambda f: f.update({config: image.config + b" "})), "its content has the digest")
        spoiled = bytearray(image.blobs[1])
        spoiled[len(spoiled) // 2] ^= 0xff
        self.failed(image.oci(change=lambda f: f.update({layer: bytes(spoiled)})), image.diff_ids[1])
        other = gzip.compress(tar(entry("other", b"x")), 1)
        self.failed(image.oci(change=lambda f: f.update({layer: other})), "the manifest says")

    def test_broken_layers(self):
        for bad, text in ((tar(entry("../x", b"x")), "../x"),
                          (tar(entry("a", kind=tarfile.LNKTYPE, link="/etc/x")), "a"), (base_layer()[:5000], "")):
            self.failed(Image(base_layer(), bad, compress=False).oci(), text)

    def test_media_type(self):
        image = Image(base_layer(), config=CONFIG)
        image.kind = "application/vnd.example.thing"
        self.failed(image.oci(), "application/vnd.example.thing")

    def test_unknown_template(self):
        self.refused(self.d.ask("POST", "/v1/sandboxes", {"template": "nothing:1"}), 400, "invalid_argument",
                     "template nothing:1: nothing here can supply it")
        self.refused(self.d.ask("GET", "/v1/templates/nothing:1"), 404, "not_found", "template nothing:1 not found")

    def test_client_that_leaves(self):
        before = self.places()
        c = self.d.connection()
        c.putrequest("POST", "/v1/templates/load?name=left")
        c.putheader("Content-Length", str(1 << 30))
        c.endheaders()
        c.send(base_layer())
        wait_until("it is being received", lambda: len(self.places()[1]) == len(before[1]) + 1)
        c.close()
        wait_until("nothing is left of it", lambda: self.places() == before)


class Organisations(TemplateTest):
    def test_who_sees_and_who_may(self):
        org = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        user, theirs = self.d.key(role="user"), self.d.key(role="admin", org=org)
        image = Image(base_layer(), TOP, config=CONFIG).oci()
        self.loaded(image, "name=ours")
        self.loaded(image, "name=all&shared=true")
        names = lambda key: [t["name"] for t in self.d.ask("GET", "/v1/templates", key=key).json["templates"]]
        self.assertEqual(names(user), ["all", "ours"])
        self.assertEqual(names(theirs), ["all"])
        self.assertEqual(self.d.ask("GET", "/v1/templates/ours", key=theirs).status, 404)
        self.assertEqual(self.d.ask("DELETE", "/v1/templates/ours", key=theirs).status, 404)
        self.refused(self.d.ask("DELETE", "/v1/templates/all", key=theirs), 403, "forbidden",
                     "template all: is shared by another organisation, which alone removes it")
        self.refused(self.load(image, "name=x", key=user), 403, "forbidden",
                     "only an administrator may load templates ([templates] allow)")
        self.refused(self.load(image, "name=x&shared=true", key=theirs), 403, "forbidden",
                     "shared: only the administrator of the host shares templates with all organisations")
        made = self.d.ask("POST", "/v1/sandboxes", {"template": "all"}, key=theirs)
        self.assertEqual(made.status, 201, made)
        self.refused(self.d.ask("DELETE", "/v1/templates/all"), 409, "conflict", "template all: in use by 1 sandbox")
        self.d.ask("DELETE", f"/v1/sandboxes/{made.json['id']}", key=theirs)
        # A digest alone opens nothing: whoever names a layer must bring its bytes.
        secret = Image(base_layer(), tar(entry("secret", b"ours alone\n")), config=CONFIG)
        self.loaded(secret.oci(), "name=secret")
        forged = secret.oci(change=lambda f: f.update({
            "blobs/sha256/" + digest(secret.blobs[1]).removeprefix("sha256:"): secret.blobs[1][:-8] + bytes(8)}))
        answer = self.load(forged, "name=forged", key=theirs)
        self.assertIn(secret.diff_ids[1], answer.lines[-1]["error"]["message"])
        self.assertEqual(names(theirs), ["all"])


class UserKeys(TemplateTest):
    """[templates] allow lets user keys make templates; what a name means to others stays as it is."""

    ORG = "org-00000000-0000-4000-8000-000000000000"
    CONFIG = f"[templates]\nallow = [\"{ORG}=load\"]\n"

    def test_a_user_key_changes_no_meaning(self):
        image, key = Image(base_layer(), config=CONFIG).oci(), self.d.key(role="user")
        self.loaded(Image(base_layer(), TOP, config=CONFIG).oci(), "name=ours")
        self.assertIn("template", self.load(image, "name=theirs", key=key).lines[-1])
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/theirs")
        for query in ("name=ours&replace=true", "name=theirs&replace=true", "name=python:3.12"):
            name = query.split("=")[1].split("&")[0]
            answer = self.load(image, query, key=key)
            error = answer.lines[-1]["error"] if answer.lines else answer.json["error"]
            self.assertEqual((error["code"], error["message"]),
                             ("forbidden", f"template {name}: the name means something already; only an administrator "
                              "changes that"))
        self.assertEqual(len(self.d.ask("GET", "/v1/templates/ours").json["layers"]), 2)
        self.loaded(image, "name=ours&replace=true")  # an administrator


class Restarts(TemplateTest):
    def test_killed_while_it_loads(self):
        d = Daemon()
        self.addCleanup(d.close)
        big = tar(*base_entries(), *(entry(f"f{i}", os.urandom(1 << 20)) for i in range(64)))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            def ask():
                try:
                    return self.load(Image(big, TOP, compress=False).oci(), "name=big", d=d)
                except Exception:  # the connection dies with brigd
                    return None
            going = pool.submit(ask)
            wait_until("a layer is being made", lambda: any(n.startswith("new-") for n in self.places(d)[0]))
            os.kill(d.children()["brigd"], signal.SIGKILL)
            going.result()
        d.wait_ready()
        wait_until("nothing is left", lambda: self.places(d) == ([], []))
        self.assertEqual(d.ask("GET", "/v1/templates").json["templates"], [])

    def test_a_sandbox_keeps_its_layers(self):
        d = Daemon('[server]\non_shutdown = "keep"\n')
        self.addCleanup(d.close)
        self.assertEqual(self.load(Image(base_layer(), TOP, config=CONFIG).oci(), "name=kept", d=d).status, 200)
        sandbox = d.create(template="kept")["id"]
        os.kill(d.children()["brigd"], signal.SIGKILL)
        d.wait_ready()
        self.assertEqual(d.sh(sandbox, "echo $GREETING")["stdout"], "from the image\n")
        self.refused(d.ask("DELETE", "/v1/templates/kept"), 409, "conflict", "template kept: in use by 1 sandbox")
        d.ask("DELETE", f"/v1/sandboxes/{sandbox}")


@needs_root
class PlainUser(ServedRootless, TemplateTest):
    """Root inside has another id than the service."""

    def test_load_install_and_owners(self):
        self.loaded(Image(base_layer(), TOP, config=CONFIG).oci(), "name=web:1")
        box = self.sandbox(template="web:1", user="root", writable_root=True)
        self.assertEqual(self.d.sh(box, "stat -c '%u %g' hello; touch /etc/x; rm hello; ls; id -u")["stdout"].split(),
                         ["33", "44", "tool", "0"])
        self.assertEqual(self.d.sh(box, "id -u; cat /etc/x", user="33")["stdout"], "33\n")


if __name__ == "__main__":
    unittest.main()
