# SPDX-License-Identifier: Apache-2.0
"""Roots of template layers: made in a sandbox, committed, used by many, removed, driven as brigd drives the spawner.

A layer is made as the service makes one: root inside writes into /layer, a merged view of the layers below. Here a
shell does what brig-layer does there.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import unittest

from helpers import wait_until
from jailkit import BUILD, IS_ROOT, PLAIN_ID, PREFIX, SubidUser, World, image_stores, needs_root
from test_jail_service import ServiceTest, message

USER = None
TOOLS = ("dash", "cat", "chmod", "chown", "flock", "id", "ls", "ln", "mkdir", "mv", "rm", "rmdir", "stat", "touch",
         "tr")
LAYER = 26  # src/spawner/spawner_wire.h
MAKE, COMMIT, REMOVE = 0, 1, 2
FORGE = """
import os, stat
os.mkdir("/layer/d")
for name in ("user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy", "trusted.overlay.opaque"):
    try:
        os.setxattr("/layer/d", name, b"y")
    except OSError as why:
        print(name, why.errno)
for number in (os.makedev(0, 0), os.makedev(1, 3)):
    try:
        os.mknod("/layer/d/x", stat.S_IFCHR | 0o666, number)
    except PermissionError:
        print("no device")"""


def setUpModule():
    global USER
    if not IS_ROOT or not all(shutil.which(tool) for tool in ("useradd", "newuidmap", "newgidmap")):
        return
    user = SubidUser()
    USER = user.__enter__()
    unittest.addModuleCleanup(user.__exit__)


def name_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def new_name(text):
    return "new-" + re.sub("[^a-z0-9]", "0", text).ljust(26, "0")[:26]


def closure():
    """The programs of TOOLS, and the libraries that they need, as paths below /usr."""
    found = set()
    for tool in TOOLS:
        path = os.path.realpath(f"/usr/bin/{tool}")
        found.add(f"usr/bin/{tool}")
        for line in subprocess.run(["ldd", path], capture_output=True, check=True, text=True).stdout.splitlines():
            for word in line.split():
                if word.startswith("/"):
                    found.add("usr" + word if not word.startswith("/usr") else word[1:])
    return sorted(found)


class LayerTest(ServiceTest):
    """A spawner with a store of layers of its own."""

    first = 0  # the id on disk that is root of an image

    def spawn(self, **env):
        self.store = f"{self.w.state}/templates/layers"
        for path, mode in ((self.w.state, 0o700), (f"{self.w.state}/templates", 0o711), (self.store, 0o700)):
            if not os.path.exists(path):
                os.mkdir(path, mode)
                os.chmod(path, mode)
                os.chown(path, self.w.uid, self.w.gid)
        super().spawn(BRIG_LAYERS_DIR=self.store, **env)

    def tearDown(self):
        self.let_go()
        shutil.rmtree(f"{self.w.state}/templates")
        super().tearDown()

    def stored(self, host):
        host.say("stored", "-")
        return set(host.until("stored")[-1].split()[1:])

    def layer(self, host, op, name, *to):
        host.say("layer", op, name, *to)
        return host.until(f"layer {name} ")[-1].removeprefix(f"layer {name} ")

    def sh(self, host, key, script, status=0):
        """What a script prints."""
        end, output = self.run_in(host, key, "/bin/sh", "-c", script)
        self.assertEqual(end["status"], status << 8, output)
        text, at, piece = "", 0, re.compile(r"output \S+ \d (\d+) ")
        while hit := piece.search(output, at):  # so many characters follow, however they came
            at = hit.end() + int(hit[1])
            text += output[hit.end():at]
        return "\n".join(line for line in text.splitlines() if line)

    def make(self, host, text, script, below=()):
        """The name of a layer that this script has made in /layer."""
        new, name = new_name(text), name_of(text)
        self.assertEqual(self.layer(host, "make", new), "ok")
        words = [f"template={','.join(below)}"] if below else []
        self.create(host, new, f"new_layer={new}", "root=1", *words)
        self.sh(host, new, f"set -e; cd /layer; {script}")
        self.end(host, new)
        self.assertEqual(self.layer(host, "commit", new, name), "ok")
        return name

    def base(self, host):
        """A layer that programs can run on."""
        files = " ".join(closure())
        return self.make(host, "base",
                         "mkdir -p usr/bin usr/lib usr/lib64 usr/sbin etc var tmp root; for f in bin lib lib64 sbin; do"
                         f" ln -s usr/$f $f; done; for f in {files}; do mkdir -p ${{f%/*}}; cp -L /$f $f; done;"
                         " ln -s dash usr/bin/sh; echo base >etc/who; chmod 700 root")


class Roots:
    REQUIRE = "require=all" if image_stores() else "pids=64"

    def test_owners_whiteouts_and_ten_layers(self):
        host = self.host()
        names = [self.base(host)]
        names.append(self.make(host, "one", "mkdir a a/deep b; echo 1 >a/file; echo 2 >b/gone; echo 3 >a/deep/old;"
                               "chown 33:34 a/file; chmod 2755 a/file; chown 65534:65534 b", names))
        names.append(self.make(host, "two", "rm b/gone; rm -r a/deep; mkdir a/deep; echo 4 >a/deep/new;"
                               "ln a/file a/hard", names))
        for i in range(3, 10):
            names.append(self.make(host, f"more{i}", f"echo {i} >a/top; echo {i} >a/only{i}", names))
        self.assertEqual(self.stored(host), set(names))
        self.create(host, "a", f"template={','.join(names)}", self.REQUIRE)
        self.assertEqual(self.sh(host, "a", "cd /; ls a/deep; ls b; cat a/top a/file etc/who"), "new\n9\n1\nbase")
        self.assertEqual(self.sh(host, "a", "cd /; stat -c '%u:%g %a' a/file b / etc root tmp"),
                         "33:34 2755\n65534:65534 755\n0:0 755\n0:0 755\n0:0 700\n1000:1000 1777")
        self.assertEqual(self.sh(host, "a", "cd /a; stat -c %h file; ls"),
                         "2\ndeep\nfile\nhard\n" + "\n".join(f"only{i}" for i in range(3, 10)) + "\ntop")
        self.sh(host, "a", "echo no >/a/top", status=2)
        self.assertIn("Read-only", self.run_in(host, "a", "/bin/touch", "/a/top")[1])
        self.end(host, "a")

    def test_what_is_written_is_the_sandboxs_own(self):
        host = self.host()
        base = self.base(host)
        shared = self.make(host, "data", "mkdir d; echo lower >d/file; echo lower >d/other", [base])
        words = (f"template={base},{shared}", "root=1", "writable=1")
        for key in ("a", "b"):
            self.create(host, key, *words)
        before = {name: os.stat(f"{self.store}/{shared}/d/{name}").st_mtime_ns for name in ("file", "other")}
        self.sh(host, "a", "echo upper >/d/file; rm /d/other; chown 7:8 /d/file; mkdir /usr/new")
        self.assertEqual(self.sh(host, "a", "cat /d/file; ls /d; stat -c %u:%g /d/file"), "upper\nfile\n7:8")
        self.assertEqual(self.sh(host, "b", "cat /d/file; ls /d; ls /usr; stat -c %u:%g /d/file"),
                         "lower\nfile\nother\nbin\nlib\nlib64\nsbin\n0:0")
        # A lock on a file of a layer is a lock in one sandbox.
        self.sh(host, "a", "flock -n /d/file sh -c 'exec 3>/d/held; flock 3; read x </dev/zero' &"
                           " until [ -e /d/held ]; do :; done")
        self.assertEqual(self.sh(host, "b", "flock -n /d/file cat /d/file && flock -n /etc/who cat /etc/who"),
                         "lower\nbase")
        for key in ("a", "b"):
            self.end(host, key)
        after = {name: os.stat(f"{self.store}/{shared}/d/{name}").st_mtime_ns for name in ("file", "other")}
        self.assertEqual(before, after)
        self.assertEqual(sorted(os.listdir(f"{self.store}/{shared}/d")), ["file", "other"])

    def test_ids_on_disk_are_those_of_the_image(self):
        host = self.host()
        base = self.base(host)
        layer = self.make(host, "ids", "echo x >f; chown 1234:65535 f; rm etc/who; mkdir o; chmod 1777 o", [base])
        st = os.stat(f"{self.store}/{layer}/f")
        self.assertEqual((st.st_uid, st.st_gid), (self.first + 1234, self.first + 65535))
        st = os.stat(f"{self.store}/{layer}/etc/who")
        self.assertEqual((st.st_rdev, st.st_uid), (0, self.first))
        self.assertEqual(os.stat(f"{self.store}/{layer}").st_uid, self.first)
        self.create(host, "a", f"template={base},{layer}", "root=1", "writable=1", "raw_upper=1")
        self.assertEqual(self.sh(host, "a", "chown 5:6 /f; mkdir /dir; touch /dir/x; chown 42 /dir/x; rm -r /o;"
                                 " stat -c '%n %u:%g %F %t:%T' /.brig/upper/f /.brig/upper/dir/x /.brig/upper/o"),
                         "/.brig/upper/f 5:6 regular file 0:0\n/.brig/upper/dir/x 42:0 regular empty file 0:0\n"
                         "/.brig/upper/o 0:0 character special file 0:0")
        self.assertEqual(self.sh(host, "a", "ls -A /.brig/upper; stat -c '%u %a' /.brig"), "dir\nf\no\n0 700")
        self.assertIn("Read-only file system", self.run_in(host, "a", "/bin/touch", "/.brig/upper/f")[1])
        self.end(host, "a")

    def test_what_counts_as_untouched(self):
        """The spawner tells whether a layer would come of the root. A way that leaves nothing in it leaves nothing."""
        host = self.host()
        base = self.base(host)
        layer = self.make(host, "more", "echo x >f; mkdir d o; touch d/x o/x; chmod 755 d o", [base])
        nothing = ("true", "cat /f", "touch /new; rm /new", "touch /", "chmod 751 /", "chown 5 /",
                   "mkdir /a; mv /a /b; rmdir /b", "echo x >/dev/shm/x", ": >/f2; ln /f2 /f3; rm /f2 /f3")
        changes = ("rm /f", "rm -r /d", "chmod 700 /d", "touch /d", "rm -r /o; mkdir /o", "mkdir /new", "rm /d/x",
                   "echo y >>/f", "chown 5 /f", "ln -s x /l", "mv /f /g", "touch /tmp/x")
        for number, script in enumerate(nothing + changes):
            key = f"k{number}"
            self.create(host, key, f"template={base},{layer}", "root=1", "writable=1", "raw_upper=1")
            self.sh(host, key, script)
            with self.subTest(script=script):
                self.assertEqual(self.stats(host, key)["untouched"], int(script in nothing))
            self.end(host, key)
        self.create(host, "w", f"template={base},{layer}", "root=1", "writable=1")  # nobody makes a layer of it
        self.assertEqual(self.stats(host, "w")["untouched"], 0)
        self.end(host, "w")

    def test_binds_over_layers(self):
        shared = self.w.mkdir("shared")
        self.addCleanup(shutil.rmtree, shared)
        self.w.file("shared/seen", "seen\n")
        self.respawn(BRIG_BIND_ROOTS=shared)
        host = self.host()
        base = self.base(host)
        top = self.make(host, "links", "mkdir real was; ln -s real link; echo keep >real/keep", [base])
        gone = self.make(host, "gone", "rmdir was", [base, top])
        for root in ([base, top, gone], [base, top]):
            self.create(host, "a", f"template={','.join(root)}", f"ro={shared}:/new/place", f"ro={shared}:/was")
            self.assertEqual(self.sh(host, "a", "cat /new/place/seen /was/seen /link/keep"), "seen\nseen\nkeep")
            self.end(host, "a")


    def test_links_of_an_image_lead_nowhere(self):
        """Our own directories lie over them, in the set-up and later."""
        host = self.host()
        base = self.base(host)
        places = ("proc", "dev", "home", "run", "workspace", "var")
        links = self.make(host, "links", "rmdir tmp var; ln -s / tmp; for p in proc dev home run workspace var; do"
                          " ln -s /etc $p; done", [base])
        for words in ((), ("writable=1", "root=1")):
            self.create(host, "a", f"template={base},{links}", *words)
            self.assertEqual(self.sh(host, "a", f"cd /; for p in {' '.join(places)} tmp; do stat -c %F $p; done;"
                                     " echo x >/dev/null; cat /proc/self/comm /etc/who;"
                                     " [ -e /etc/null ] || [ -e /etc/user ] || echo none"),
                             "\n".join(["directory"] * 7 + ["cat", "base", "none"]))
            self.end(host, "a")

    def test_what_steers_an_overlay_cannot_be_forged(self):
        host = self.host()
        base, new, name = self.base(host), new_name("forged"), name_of("forged")
        self.assertEqual(self.layer(host, "make", new), "ok")
        self.create(host, new, f"new_layer={new}", "root=1", f"template={base}")
        end, output = self.run_in(host, new, "/usr/bin/python3", "-I", "-c", f"exec({FORGE!r})")
        self.assertEqual(end["status"], 0, output)
        self.assertEqual(output.count("no device"), 2, output)
        self.end(host, new)
        self.assertEqual(self.layer(host, "commit", new, name), "ok")
        self.assertFalse({"user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy",
                          "trusted.overlay.opaque"} & set(os.listxattr(f"{self.store}/{name}/d")))
        self.assertEqual(os.listdir(f"{self.store}/{name}/d"), [])

    def test_brig_layer_is_there_for_root_inside(self):
        host = self.host()
        base = self.base(host)
        new = new_name("tool")
        self.assertEqual(self.layer(host, "make", new), "ok")
        self.create(host, "n", f"new_layer={new}", "root=1")
        self.create(host, "u", f"template={base}", "root=1", "writable=1", "raw_upper=1")
        self.sh(host, "u", "echo new >/etc/new; rm /etc/who")
        for key in ("n", "u"):
            self.sh(host, key, "echo x >/.brig/layer", status=2)  # read-only
        output = self.sh(host, "u", "/.brig/layer diff /.brig/upper | tr -c 'a-z./' ' '")
        for word in ("etc/new", "etc/.wh.who"):
            self.assertIn(word, output)
        for key in ("n", "u"):
            self.end(host, key)


class RootsOfRoot(Roots, LayerTest):
    def test_parts_of_images_can_be_bound(self):
        """What brigd has fetched, one by one, and nothing else of the state directory."""
        blobs = f"{self.w.state}/templates/blobs"
        os.makedirs(f"{blobs}/sha256")
        with open(f"{blobs}/sha256/x", "w", encoding="utf-8") as f:
            f.write("part\n")
        self.respawn(BRIG_OWN_ROOTS=f"{blobs}:{self.w.state}/templates")
        host = self.host()
        new = new_name("bound")
        self.assertEqual(self.layer(host, "make", new), "ok")
        self.create(host, "a", f"new_layer={new}", "root=1", f"ro={blobs}/sha256/x:/blob")
        self.assertEqual(self.sh(host, "a", "cat /blob"), "part")
        self.end(host, "a")
        for source in (blobs, self.store, f"{self.store}/{new}"):
            host.say("create", "a", f"ro={source}:/x")
            self.assertIn("which is never shared with a sandbox", host.expect("ended a policy "), source)

    def test_a_writable_bind_is_the_owners(self):
        shared = self.w.mkdir("shared")
        self.addCleanup(shutil.rmtree, shared)
        self.respawn(BRIG_BIND_ROOTS=shared)
        host = self.host()
        self.create(host, "a", f"template={self.base(host)}", f"bind={shared}:/data")
        self.sh(host, "a", "echo x >/data/made; stat -c %u:%g /data /data/made")
        self.end(host, "a")
        self.assertEqual(os.stat(f"{shared}/made").st_uid, self.w.uid)


@needs_root
class RootsWithSubids(Roots, LayerTest):
    """A plain user: no mount can map ids, so the sandboxes share the ids that are on disk, and say so."""

    REQUIRE = "pids=64"

    @classmethod
    def make_world(cls):
        if USER is None:
            raise unittest.SkipTest("subordinate ids (root, useradd, newuidmap)")
        with open("/etc/subuid", encoding="utf-8") as f:
            cls.first = next(int(line.split(":")[1]) for line in f if line.startswith(f"{USER.pw_name}:"))
        return World(USER.pw_uid, USER.pw_gid)

    def test_the_statement_says_that_ids_are_shared(self):
        host = self.host()
        base = self.base(host)
        host.say("create", "a", f"template={base}", "statement=1")
        self.assertIn("uid_range=0:subordinate ids:the calling user's sandboxes with root inside or of a template "
                      "share its subordinate ids", host.expect("layers a "))
        host.until("hello a ")
        self.end(host, "a")
        host.say("create", "a", f"template={base}", "require=all")
        self.assertIn("required layer uid_range is not on", host.expect("ended a policy "))

    def test_a_writable_bind_is_refused(self):
        shared = self.w.mkdir("shared")
        self.addCleanup(shutil.rmtree, shared)
        self.respawn(BRIG_BIND_ROOTS=shared)
        host = self.host()
        host.say("create", "a", f"template={self.base(host)}", f"bind={shared}:/data")
        self.assertIn(f"bind source {shared}: a plain user's sandbox of template layers cannot own it; bind it "
                      "read-only", host.expect("ended a policy "))


@needs_root
class OneId(LayerTest):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)

    def test_refused_with_the_reason(self):
        host = self.host()
        self.assertIn("a plain user without subordinate ids has one id", self.layer(host, "make", new_name("x")))
        host.say("create", "a", f"template={name_of('x')}")
        self.assertIn("a plain user without subordinate ids has one id", host.expect("ended a policy "))


class Names(LayerTest):
    """What is not a name of a layer, and what does not go together."""

    def test_only_names_of_layers(self):
        host = self.host()
        good = name_of("x")
        for op, name, *to in (("make", "x"), ("make", good), ("make", "new-../../x"), ("make", "new-" + "A" * 26),
                              ("make", new_name("x") + "0"), ("make", new_name("x"), good), ("remove", "."),
                              ("remove", "gone-" + "a" * 26), ("remove", good[:-1]), ("remove", good.upper()),
                              ("remove", good, good), ("commit", good, good), ("commit", new_name("x")),
                              ("commit", new_name("x"), new_name("y")), ("commit", new_name("x"), "../" + good[3:])):
            self.assertIn("not the name of one", self.layer(host, op, name, *to), (op, name, to))
        self.assertEqual(self.layer(host, "remove", good), f"layer {good}: not there")
        self.assertEqual(self.layer(host, "commit", new_name("x"), good), f"layer {new_name('x')}: not there")
        self.assertEqual(self.layer(host, "make", new_name("x")), "ok")
        self.assertIn("it is there already", self.layer(host, "make", new_name("x")))
        self.assertEqual(self.layer(host, "remove", new_name("x")), "ok")
        self.assertEqual(self.stored(host), set())

    def test_what_does_not_go_together(self):
        host = self.host()
        layer, new = name_of("x"), new_name("x")
        os.mkdir(f"{self.store}/{layer}")
        self.assertEqual(self.layer(host, "make", new), "ok")
        raw = "raw upper: only with layers, as a writable root or below a new layer"
        for words, why in ((["template=../x"], "layer ../x: a name has 64 hexadecimal digits"),
                           ([f"template={layer},{name_of('y')}"], f"layer {name_of('y')}: not there"),
                           ([f"template={layer}", "rootfs=/x"], "layers: not with a rootfs or a zygote"),
                           (["new_layer=new-x"], "new layer new-x: a name is new- and 26 letters or digits"),
                           ([f"new_layer={new_name('y')}", "root=1"], f"new layer {new_name('y')}: not there"),
                           ([f"new_layer={new}"], "only with root inside"),
                           ([f"new_layer={new}", "root=1", "writable=1"], "not with a writable root"),
                           (["raw_upper=1"], raw), ([f"template={layer}", "raw_upper=1"], raw),
                           ([f"new_layer={new}", "root=1", "raw_upper=1"], raw)):
            host.say("create", "a", *words)
            self.assertIn(why, host.expect("ended a policy "))
        host.say("create", "a", "template=" + ",".join([layer] * 129))
        self.assertIn("129 layers: at most 128", host.expect("refused a "))

    def test_what_is_in_use_stays(self):
        host = self.host()
        base, new = self.base(host), new_name("next")
        self.create(host, "a", f"template={base}")
        self.assertRegex(self.layer(host, "remove", base), f"^layer {base}: sandbox [a-z0-9]+ uses it")
        self.assertEqual(self.layer(host, "make", new), "ok")
        self.create(host, "b", f"new_layer={new}", "root=1", f"template={base}")
        for op, *to in (("commit", name_of("next")), ("remove",)):
            self.assertRegex(self.layer(host, op, new, *to), f"^layer {new}: sandbox [a-z0-9]+ uses it")
        host.say("create", "c", f"new_layer={new}", "root=1")
        self.assertRegex(host.expect("ended c "), f"layer {new}: sandbox [a-z0-9]+ uses it")
        self.end(host, "a")
        self.assertRegex(self.layer(host, "remove", base), "uses it")  # below what is being made
        self.end(host, "b")
        self.assertEqual(self.layer(host, "remove", base), "ok")
        self.assertEqual(self.layer(host, "commit", new, name_of("next")), "ok")
        self.assertEqual(self.stored(host), {name_of("next")})

    def test_the_first_of_a_name_stays(self):
        host = self.host()
        name = self.make(host, "same", "echo first >f")
        again = new_name("again")
        self.assertEqual(self.layer(host, "make", again), "ok")
        self.assertEqual(self.layer(host, "commit", again, name), "ok")
        with open(f"{self.store}/{name}/f", encoding="utf-8") as f:
            self.assertEqual(f.read(), "first\n")
        wait_until("the second is removed", lambda: sorted(os.listdir(self.store)) == [".lock", name])


class Broken(LayerTest):
    """A set-up that breaks at one of its calls is told with what was tried, and leaves nothing."""

    SPAWNER = next((p for p in (f"{PREFIX}/tests/e2e/spawner_knobs", f"{BUILD}/tests/e2e/spawner_knobs")
                    if os.path.exists(p)), "spawner_knobs")

    def test_each_call_of_a_root_of_layers(self):
        host = self.host()
        base = self.base(host)
        root = (f"template={base}", "root=1", "writable=1", "raw_upper=1")
        for text, what in (("open_tree(AT_FDCWD, path", "ids of the layers"),
                           ("open(LAYERS_PLACE", "/layers"),
                           ("sys_openat2(store, name", base[:47]),
                           ("mkdirat(e->root_fd, BRIG_DIR", ".brig"),
                           ("mkdirat(AT_FDCWD, path", "/s/upper/root"),  # the third one
                           ('mount("overlay"', "overlay of layers"),
                           ("open(place", "/x2"),
                           ("open_tree(AT_FDCWD, from", ".brig/upper")):
            self.respawn(BRIG_TEST_FAIL_SYSCALL="3" if text.endswith(", path") and "mkdirat" in text else "1",
                         BRIG_TEST_FAIL_TEXT=text)
            host = self.host()
            host.say("create", "a", *root)
            self.assertIn(f"set-up, template: {what}", host.expect("ended a host-error "), text)
            self.assertEqual(self.stored(host), {base})
        self.assertEqual(self.layer(host, "remove", base), "ok")  # nobody uses it


class Crashes(LayerTest):
    """kill -9 at any moment leaves a layer whole or not at all."""

    def left(self):
        return sorted(set(os.listdir(self.store)) - {".lock"})

    def crash(self):
        self.spawner.kill()
        self.respawn()

    def test_a_start_removes_what_is_not_a_layer(self):
        host = self.host()
        name = self.make(host, "whole", "mkdir -p a/b/c; echo x >a/b/c/d")
        self.assertEqual(self.layer(host, "make", new_name("half")), "ok")
        wait_until("its spawner has swept", lambda: not [n for n in self.left() if n.startswith(("made-", "gone-"))])
        self.spawner.kill()
        for extra in ("made-" + "a" * 26, "gone-" + "b" * 26):
            os.makedirs(f"{self.store}/{extra}/d/deep/er")
        self.respawn()
        host = self.host()
        wait_until("only the layer is left", lambda: self.left() == [name])
        self.assertEqual(self.stored(host), {name})

    def test_killed_at_any_moment(self):
        words = {"make": (MAKE, new_name("k"), ""), "commit": (COMMIT, new_name("k"), name_of("k")),
                 "remove": (REMOVE, name_of("k"), "")}
        for op, (number, name, to) in words.items():
            for spins in (0, 2000, 20000):
                for path in self.left():
                    shutil.rmtree(f"{self.store}/{path}")
                where = f"{self.store}/{name}" + ("/d" if op == "commit" else "")
                if op != "make":
                    for i in range(200):
                        os.makedirs(f"{where}/{i}/x/y")
                if op == "commit":
                    os.mkdir(f"{self.store}/{name}/w")
                self.socket.send(message(LAYER, 7) + struct.pack("<II72s72s", number, 0, name.encode(), to.encode()))
                for _ in range(spins):
                    pass
                self.crash()
                self.host()
                wait_until("swept", lambda: all(len(path) == 64 for path in self.left()))
                # A layer that is there is whole.
                for path in self.left():
                    self.assertEqual(len(os.listdir(f"{self.store}/{path}")), 200, (op, spins))

    def test_only_one_spawner_uses_a_store(self):
        host = self.host()
        name = self.make(host, "mine", "echo x >f")
        first, hosts, sock = self.spawner, self.hosts, self.socket
        self.hosts = []
        self.spawn()
        other = self.host()
        other.say("stored", "-")
        self.assertIn("another spawner uses this store", other.until("stored")[-1])
        other.say("create", "a", f"template={name}")
        self.assertIn("another spawner uses this store", other.expect("ended a policy"))
        self.let_go()
        self.spawner, self.hosts, self.socket = first, hosts, sock
        self.assertEqual(self.stored(host), {name})

    def test_a_tree_of_any_depth_is_removed(self):
        host = self.host()
        name, depth = name_of("deep"), 3000
        os.mkdir(f"{self.store}/{name}")
        at = os.open(f"{self.store}/{name}", os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(depth):  # far beyond what a path can name
            os.mkdir("d", dir_fd=at)
            os.symlink("/", "link", dir_fd=at)
            below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)
        self.assertEqual(self.layer(host, "remove", name), "ok")
        wait_until("it is gone", lambda: not self.left())
        self.assertTrue(os.path.isdir("/usr"))


del ServiceTest
