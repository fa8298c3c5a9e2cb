# SPDX-License-Identifier: Apache-2.0
"""Users of an image by name: whose its programs, files and shells are, which groups they have, and that neither a name
nor a hostile /etc/passwd leads to root where root was not asked for."""

import tarfile

from imagekit import Image, base_layer, entry, tar
from test_templates import TemplateTest

NONE = "0" * 16
PASSWD = b"""root:x:0:0:root:/root:/bin/sh
app:x:1001:50:App:/srv/app:/bin/sh
user:x:1500:1500::/home/other:/bin/sh
toor:x:0:0::/root:/bin/sh
far:x:70000:5::/:/bin/sh
"""
GROUP = b"root:x:0:\nstaff:x:50:\ndisk:x:6:app\naudio:x:29:x,app\n"
WHO = "echo $(id -u) $(id -g) $(id -G); echo $HOME ${USER-none}; cat /proc/self/status"


def users(*more, **config):
    return Image(base_layer(), tar(entry("etc/passwd", PASSWD), entry("etc/group", GROUP), entry("srv", mode=0o755),
                                   entry("srv/app", mode=0o700, uid=1001, gid=50),
                                   entry("srv/app/own", b"mine\n", 0o600, 1001, 50), *more), config=config)


class Users(TemplateTest):
    def made(self, name, *more, body=None, **config):
        self.loaded(users(*more, **config).oci(), f"name={name}")
        sandbox = self.d.create(template=name, **(body or {}))
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{sandbox['id']}")
        return sandbox

    def who(self, box, status=200, **members):
        """ids, home and name, capabilities; or the message."""
        way = "run" if status == 200 else "processes"
        answer = self.d.ask("POST", f"/v1/sandboxes/{box}/{way}", {"argv": ["/bin/sh", "-c", WHO], **members})
        self.assertEqual(answer.status, status, answer)
        if status != 200:
            return answer.json["error"]["message"]
        lines = answer.json["stdout"].splitlines()
        caps = {l.split()[1] for l in lines if l.startswith("Cap")}
        self.assertIn("NoNewPrivs:\t1", lines)
        return lines[0], lines[1], caps

    def create_fails(self, code, text, **body):
        answer = self.d.ask("POST", "/v1/sandboxes", body)
        self.assertEqual(answer.status, code, answer)
        self.assertIn(text, answer.json["error"]["message"])

    def test_the_images_user_is_whose_its_programs_are(self):
        box = self.made("named", User="app")
        self.assertEqual((box["user"], box.get("note")), ("app", None))
        self.assertTrue(box["protection"]["layers"]["caps"]["on"])
        self.assertEqual(self.who(box["id"]), ("1001 50 50 6 29", "/srv/app app", {NONE}))
        self.assertEqual(self.d.run(box["id"], "cat", "/srv/app/own")["stdout"], "mine\n")
        # Files and shells too.
        at = f"/v1/sandboxes/{box['id']}"
        self.assertEqual(self.d.ask("GET", f"{at}/files?path=/srv/app/own").body, b"mine\n")
        self.assertEqual(self.d.ask("PUT", f"{at}/files?path=/workspace/x", b"1").status, 200)
        self.assertEqual(self.d.run(box["id"], "stat", "-c", "%u %g", "/workspace/x")["stdout"], "1001 50\n")
        shell = self.d.ask("POST", f"{at}/shells", {})
        done = self.d.ask("POST", f"{at}/shells/{shell.json['number']}/run", {"command": "id -u; echo $HOME"})
        self.assertEqual(done.json["stdout"], "1001\n/srv/app\n", done)

    def test_what_a_user_may_be_called(self):
        box = self.made("called")["id"]
        for user, want in (("app", ("1001 50 50 6 29", "/srv/app app")), ("1001", ("1001 50 50 6 29", "/srv/app app")),
                           ("app:audio", ("1001 29 29", "/srv/app app")), ("app:7", ("1001 7 7", "/srv/app app")),
                           ("4711", ("4711 0 0", "/ none")), ("4711:staff", ("4711 50 50", "/ none")),
                           ("user", ("1500 1500 1500", "/home/other user"))):
            self.assertEqual(self.who(box, user=user), (*want, {NONE}), user)
        self.assertEqual(self.who(box, user="app", env={"HOME": "/x"})[1], "/x app")
        for user in ("nosuch", "app:nosuch", "far"):
            self.assertIn(f"user {user}: neither /etc/passwd nor /etc/group of the sandbox has such a name",
                          self.who(box, 400, user=user))
        for user in ("root", "0", "0:0", "toor"):
            self.assertIn(f"user {user}: is root, and the sandbox has no root inside", self.who(box, 422, user=user))
        self.assertEqual(self.who(box)[0], "1000 1000 1000")
        ran = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"argv": ["id"], "user": "toor"}).json
        self.assertEqual((ran["outcome"]["cause"], ran["stdout"]), ("policy", ""))
        self.assertIn("user toor: is root", ran["outcome"]["detail"])

    def test_a_sandbox_names_its_user(self):
        self.loaded(users(User="app").oci(), "name=asked")
        for user, want in (("4711:audio", "4711 29 29"), ("user", "1000 1000 1000"), ("root:disk", "0 6 6")):
            box = self.d.create(template="asked", user=user)
            self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box['id']}")
            self.assertEqual((box["user"], self.who(box["id"])[0]), (user, want))
        self.create_fails(400, "user nosuch: neither /etc/passwd nor", template="asked", user="nosuch")
        self.create_fails(422, "user toor: is root, and the sandbox has no root inside", template="asked", user="toor")
        self.create_fails(400, 'user "a b": must be NAME or UID', template="asked", user="a b")

    def test_an_images_user_that_is_not_there(self):
        self.loaded(users(User="ghost").oci(), "name=ghost")
        self.create_fails(400, "user ghost: neither /etc/passwd nor", template="ghost")
        box = self.d.create(template="ghost", user="app")
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box['id']}")
        self.assertEqual(self.who(box["id"])[0], "1001 50 50 6 29")
        self.loaded(users(User="a b").oci(), "name=odd")
        self.create_fails(422, 'template odd: its user "a b" must be NAME or UID', template="odd")
        self.loaded(users(User="toor").oci(), "name=toor")
        self.create_fails(422, "user toor: is root, and the sandbox has no root inside", template="toor")

    def test_an_image_that_names_root_by_number(self):
        box = self.made("zero", User="0:6")
        self.assertEqual((box["user"], box["protection"]["layers"]["caps"]["on"]), ("0:6", False))
        self.assertEqual(self.who(box["id"])[0], "0 6 6")
        self.assertEqual(self.who(box["id"], user="app")[0], "1001 50 50 6 29")
        self.assertEqual(self.who(box["id"], user="app")[2], {NONE})

    def test_files_that_lie_in_wait(self):
        """Instead of /etc/passwd: a pipe, a directory, a link into /proc, too long a file; too many groups."""
        for n, (what, code, text) in enumerate((
                (entry("etc/passwd", kind=tarfile.FIFOTYPE), 422, "is no plain file"),
                (entry("etc/passwd", mode=0o755), 422, "is no plain file"),
                (entry("etc/passwd", kind=tarfile.SYMTYPE, link="/proc/self/environ"), 400, "neither"),
                (entry("etc/passwd", b"#" * (1 << 20) + b"\n" + PASSWD), 422, "has more than 1 MiB"),
                (entry("etc/group", b"".join(b"g%d:x:%d:app\n" % (i, i + 100) for i in range(65))), 422,
                 "has more than 64 groups"))):
            with self.subTest(n):
                top = tar(entry("etc/passwd", PASSWD), entry("etc/group", GROUP))
                self.loaded(Image(base_layer(), top, tar(what), config={"User": "app"}).oci(), f"name=wait{n}")
                answer = self.d.ask("POST", "/v1/sandboxes", {"template": f"wait{n}"})
                self.assertEqual(answer.status, code, answer)
                self.assertIn(text, answer.json["error"]["message"])

    def test_a_user_that_root_inside_adds(self):
        """A name is looked up when a program starts."""
        box = self.made("grows", body={"user": "root", "writable_root": True})["id"]
        self.assertIn("user late: neither", self.who(box, 400, user="late"))
        self.d.run(box, "/bin/sh", "-c", "echo late:x:77:78::/late: >> /etc/passwd; echo l:x:5:late >> /etc/group")
        self.assertEqual(self.who(box, user="late"), ("77 78 78 5", "/late late", {NONE}))
