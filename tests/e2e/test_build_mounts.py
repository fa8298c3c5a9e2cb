# SPDX-License-Identifier: Apache-2.0
"""RUN --mount in builds: what is mounted is not part of the layer, and secrets are nowhere but in the step."""

import os
import subprocess
import unittest

from buildkit import BuildTest
from helpers import wait_until
from imagekit import entry, tar
from service import DEFAULT_ORG

SECRET = "s3cret-value-of-the-test"


class Mounts(BuildTest):
    def test_what_is_mounted_is_not_in_the_layer(self):
        self.base()
        made, log = self.built("FROM base\nRUN --mount=type=tmpfs,target=/scratch,size=1m"
                               " --mount=type=cache,target=/cache echo x > /scratch/x && echo y > /cache/y &&"
                               " cat /scratch/x /cache/y && echo z > /z\n")
        self.assertEqual(self.output(log), "x\ny\n")
        self.assertEqual(made["layers"][-1]["bytes"], 2)
        self.assertEqual(self.sh("built", "cat /z; ls -d /scratch /cache 2>/dev/null"), "z\n")

    def test_a_bind_shows_files_and_leaves_none(self):
        """Of the context, a stage and an image; read-only, with owners and modes; nothing of it is in the layer."""
        self.base()
        text = ("FROM base AS one\nCOPY --chown=7:8 --chmod=600 <<file /made/file\n1\nfile\n"
                "RUN mkdir /made/sub && ln -s file /made/link\n"
                "FROM base\nRUN mkdir /opt && echo before > /opt/before\n"
                "RUN --mount=target=/ctx --mount=type=bind,from=one,source=/made,target=/opt"
                " --mount=type=bind,from=base,source=etc/passwd,target=/new/passwd,ro"
                " cat /ctx/a /ctx/dir/b /opt/link; stat -c '%a %u %g' /opt/file; ls /opt; cat /new/passwd;"
                " echo x > /ctx/new; echo x > /opt/file; echo x > /new/passwd; echo out > /out\n")
        context = tar(entry("a", b"A\n"), entry("dir"), entry("dir/b", b"B\n"))
        made, log = self.built(text, context=context)
        output = self.output(log)
        for line in ("A\nB\n1\n", "600 7 8\n", "file\nlink\nsub\n", "root:x:0:0:"):
            self.assertIn(line, output)
        self.assertEqual(output.count("Read-only file system"), 3, output)
        self.assertEqual(made["layers"][-1]["bytes"], 4)
        self.assertEqual(self.sh("built", "cat /out /opt/before; ls -d /ctx /opt/file"),
                         "out\nbefore\nls: cannot access '/ctx': No such file or directory\n"
                         "ls: cannot access '/opt/file': No such file or directory\n")

    def test_what_is_written_to_a_bind_is_thrown_away(self):
        self.base()
        text = ("FROM base\nRUN mkdir /deep && ln -s deep /link\n"
                "RUN --mount=target=/src,rw --mount=target=/link/in,source=dir,readwrite=true"
                " --mount=type=cache,target=/src/cache"
                " echo changed > /src/a && echo new > /src/new && mkdir /src/more && echo z > /link/in/z"
                " && cat /src/a /src/new /link/in/b && echo kept > /src/cache/k && ls /src/cache && echo out > /out\n"
                "RUN --mount=target=/src,rw cat /src/a; ls /src\n")
        made, log = self.built(text, context=tar(entry("a", b"A\n"), entry("dir"), entry("dir/b", b"B\n")))
        self.assertEqual(self.output(log), "changed\nnew\nB\nk\nA\na\ndir\n")
        self.assertEqual(self.sh("built", "cat /out; ls /deep; ls -d /src"),
                         "out\nls: cannot access '/src': No such file or directory\n")
        self.assertEqual(len(made["layers"]), 4)  # the last RUN wrote nothing that stays

    def test_the_content_of_a_bind_is_in_the_key(self):
        self.base()
        text = ("FROM base AS one\nARG V=1\nRUN echo $V > /v\nFROM base\n"
                "RUN --mount=target=/src,source=dir --mount=from=one,source=/v,target=/v cat /src/b /v\n")

        def build(content, other=b"x", **more):
            context = tar(entry("dir"), entry("dir/b", content), entry("other", other))
            log = self.built(text, context=context, **more)[1]
            return self.output(log), "RUN --mount" in "".join(self.cached(log))
        self.assertEqual(build(b"1\n"), ("1\n1\n", False))
        self.assertEqual(build(b"1\n"), ("", True))
        self.assertEqual(build(b"1\n", b"another file"), ("", True))
        self.assertEqual(build(b"2\n"), ("2\n1\n", False))
        self.assertEqual(build(b"2\n", build_args={"V": "3"}), ("3\n2\n3\n"[2:], False))

    def test_a_tmpfs_is_full_before_memory_is(self):
        self.base()
        size = "stat -f -c '%b %S' /scratch"
        for limits, most in (({"memory": "64m"}, 32 << 20), ({}, 256 << 20)):
            _, log = self.built(f"FROM base\nRUN --mount=type=tmpfs,target=/scratch {size} # {most}\n", limits=limits)
            blocks, unit = self.output(log).split()
            self.assertEqual(int(blocks) * int(unit), most)

    def test_secrets_are_nowhere_else(self):
        self.base()
        text = ("FROM base\nRUN --mount=type=secret,id=token,required=true"
                " --mount=type=secret,id=other,env=OTHER,mode=0440 stat -c '%a %u' /run/secrets/token;"
                ' [ "$(cat /run/secrets/token)" = "$OTHER" ] && echo same\n'
                "RUN ls /run/secrets 2>/dev/null; echo none${OTHER}\n")
        made, log = self.built(text, secrets={"token": SECRET, "other": SECRET})
        self.assertEqual(self.output(log), "400 0\nsame\nnone\n")
        self.assertEqual(len(made["layers"]), 2)
        # The value is no part of the key, and without one the cache does not help a step that has to run.
        _, log = self.built(text, secrets={"token": "another", "other": "another"})
        self.assertEqual(len(self.cached(log)), 2)
        found = subprocess.run(["grep", "-rlaF", SECRET, os.path.join(self.d.dir, "state")], stdout=subprocess.PIPE,
                               check=False).stdout.decode()
        self.assertEqual(found, "")
        self.assertNotIn(SECRET, self.d.text())
        self.refused_build("FROM base\nRUN --mount=type=secret,id=gone,required=true true\n",
                           "line 2: RUN: the secret gone was not given")

    def test_a_bind_through_a_link_covers_nothing_of_ours(self):
        self.base()
        text = "FROM base\nRUN ln -s /.brig /x; ln -s /run /z; mkdir /real && ln -s real /link\n"
        bind = "RUN --mount=from=base,source=/etc,target="
        for target in ("/x", "/x/deep", "/z"):
            with self.subTest(target=target):
                self.built(f"{text}{bind}{target} test -d /proc/self && echo out > /out\n")
                self.assertEqual(self.sh("built", "cat /out"), "out\n")
        _, log = self.built(f"{text}{bind}/link/etc ls /real/etc/passwd\n")
        self.assertEqual(self.output(log), "/real/etc/passwd\n")

    def test_refusals(self):
        self.base()
        for flag, message in (("type=ssh", "--mount=type=ssh: expected bind, tmpfs, cache or secret"),
                              ("type=bind,target=/", "--mount: expected target=, an absolute path"),
                              ("type=bind,target=rel", "--mount: expected target=, an absolute path"),
                              ("target=/etc", "--mount=type=bind: target /etc: must not be in /proc"),
                              ("target=/run/secrets", "--mount=type=bind: target /run/secrets: must not be in"),
                              ("target=/x,rw=perhaps", "--mount: rw=perhaps: expected true or false"),
                              ("target=/x,from=", "--mount: from= must be a stage or an image"),
                              ("target=/x,from=3", "--from=3: there is no such stage before this one"),
                              ("target=/x,from=scratch", "--from=scratch: it has no layers to copy from"),
                              ("target=/x", "the build has no context to copy from"),
                              ("target=/x,from=base,source=/gone", "gone"),
                              ("target=/x,from=base,source=/b*", "b*: there is no such file"),
                              ("target=/x/y,from=base,source=/etc/passwd --mount=target=/x/y/z,from=base", "/x/y"),
                              ("target=/tmp,from=base,source=/etc/passwd", "a directory is bound over a directory"),
                              ("type=tmpfs", "--mount: expected target=, an absolute path"),
                              ("type=tmpfs,target=/", "--mount: expected target=, an absolute path"),
                              ("type=secret", "--mount=type=secret: expected an id"),
                              ("type=cache,target=/x,sharing=most", "--mount: sharing=most: expected shared"),
                              ("type=secret,id=x,target=/root/x", "target must be a file in /run/secrets"),
                              ("type=tmpfs,target=/x,size=many", "--mount: size=many: not such a value"),
                              ("type=cache,target=/x,from=base", "--mount: from is for type=bind"),
                              ("type=tmpfs,target=/x,source=/a", "--mount: source is for type=bind")):
            with self.subTest(flag=flag):
                self.refused_build(f"FROM base\nRUN --mount={flag} true\n", message)


class Caches(BuildTest):
    CONFIG = f"[templates]\nallow = [\"{DEFAULT_ORG}=build\"]\n"

    def caches(self, key=None):
        found = self.d.ask("GET", "/v1/volumes", key=key).json["volumes"]
        return [volume["name"] for volume in found if volume["name"].startswith("~cache-")]

    def prune(self):
        self.assertEqual(self.d.ask("POST", "/v1/templates/prune").status, 200)
        wait_until("the caches are gone", lambda: not self.caches())

    def test_a_cache_is_kept(self):
        """From step to step and from build to build, by its id; not in the layer; pruned with the cache of steps."""
        self.base()
        self.addCleanup(self.prune)
        see = "RUN --mount=type=cache,target=/c,id=%s%s sh -c 'cat /c/* 2>/dev/null; echo %s >> /c/seen; echo %s'\n"
        text = "FROM base\n" + see % ("one", "", "first", "-") + see % ("one", ",sharing=locked", "second", "-")
        made, log = self.built(text)
        self.assertEqual(self.output(log), "-\nfirst\n-\n")
        self.assertEqual(len(made["layers"]), 2)
        _, log = self.built(text, no_cache=True)
        self.assertEqual(self.output(log), "first\nsecond\n-\nfirst\nsecond\nfirst\n-\n")
        self.assertEqual(len(self.caches()), 1)
        _, log = self.built("FROM base\n" + see % ("two", "", "x", "-"))
        self.assertEqual((self.output(log), len(self.caches())), ("-\n", 2))
        # Only the service attaches it, by whatever name it is asked for.
        for volume in self.d.ask("GET", "/v1/volumes").json["volumes"]:
            for name in (volume["name"], volume["id"]):
                answer = self.d.ask("POST", "/v1/sandboxes", {"volumes": [{"name": name, "target": "/v"}]})
                self.assertEqual(answer.status, 404, answer)
        self.assertEqual(self.d.ask("POST", "/v1/volumes", {"name": "~cache-1", "size": "1m"}).status, 400)
        pruned = self.d.ask("POST", "/v1/templates/prune").json
        self.assertEqual(pruned["caches"], 2)
        wait_until("the caches are gone", lambda: not self.caches())
        _, log = self.built(text, no_cache=True)
        self.assertEqual(self.output(log), "-\nfirst\n-\n")

    def test_others_have_others(self):
        """Another organisation has another cache, and so have the user keys of the same."""
        self.base()
        self.addCleanup(self.prune)
        self.d.ask("POST", "/v1/templates/base/tag", {"name": "all", "shared": True})
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/all")
        text = "FROM all\nRUN --mount=type=cache,target=/c cat /c/* 2>/dev/null; echo mine > /c/seen\n"
        other = self.d.ask("POST", "/v1/orgs", {"name": "other"}).json["id"]
        admin, user = self.d.key(org=other, role="admin"), self.d.key()
        for n, seen in enumerate(("", "mine\n")):
            for who, key in (("host", None), ("admin", admin), ("user", user)):
                build, log = self.run_build(text, f"cache-{who}-{n}", key=key, no_cache=True)
                self.assertEqual((build["state"], self.output(log)), ("done", seen), log)
        self.assertEqual((len(self.caches()), len(self.caches(admin))), (2, 1))

    def test_a_user_key_removes_its_own_caches_only(self):
        """Those of administrators, and of other keys, stay; an administrator removes all of them."""
        self.base()
        self.addCleanup(self.prune)
        text = "FROM base\nRUN --mount=type=cache,target=/c,id=%s echo mine > /c/seen\n"
        admin, user, other = self.d.key(role="admin"), self.d.key(), self.d.key()
        names = {}
        for who, key in (("socket", None), ("admin", admin), ("user", user)):
            before = set(self.caches())
            build, log = self.run_build(text % who, f"cache-of-{who}", key=key)
            self.assertEqual(build["state"], "done", log)
            (names[who],) = set(self.caches()) - before
        for key, who in ((user, "socket"), (user, "admin"), (other, "socket"), (other, "admin"), (other, "user")):
            answer = self.d.ask("DELETE", f"/v1/volumes/{names[who]}", key=key)
            self.refused(answer, 403, "forbidden", f"volume {names[who]}: a cache of builds is removed by an "
                         "administrator, or by the key that made it")
        self.assertEqual(set(self.caches()), set(names.values()))
        self.assertEqual(self.d.ask("DELETE", f"/v1/volumes/{names['user']}", key=user).status, 204)
        self.assertEqual(self.d.ask("DELETE", f"/v1/volumes/{names['socket']}", key=admin).status, 204)
        self.assertEqual(self.caches(), [names["admin"]])


if __name__ == "__main__":
    unittest.main()
