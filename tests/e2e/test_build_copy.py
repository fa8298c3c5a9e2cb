# SPDX-License-Identifier: Apache-2.0
"""COPY, ADD and WORKDIR in builds: contexts, other stages and images, owners and modes, and what the cache notices."""

import os
import subprocess
import tarfile
import unittest

from buildkit import BuildTest
from helpers import BRIG, wait_until
from imagekit import Image, entry, tar

FILES = (entry("Dockerfile", b"FROM base\n"), entry("app", mode=0o755), entry("app/main", b"main\n", 0o755, 5, 6),
         entry("app/conf.txt", b"conf\n", 0o640), entry("app/link", kind=tarfile.SYMTYPE, link="main"),
         entry("one.txt", b"1\n"), entry("two.txt", b"2\n"))


def context(*more, without=()):
    names = {info.name for info, _ in more} | set(without)
    return tar(*(one for one in FILES if one[0].name not in names), *more)


class Copy(BuildTest):
    def test_from_the_context(self):
        self.base()
        made, _ = self.built("FROM base\nWORKDIR /srv/deep\nCOPY app ./app/\nCOPY *.txt /texts/\n"
                             "COPY --chown=33:44 --chmod=0600 one.txt two\nWORKDIR ../other\nRUN echo here > here\n",
                             context=context())
        self.assertEqual(made["image"]["workdir"], "/srv/other")
        listed = self.sh("built", "cd /srv/deep && cat app/link app/conf.txt && stat -c '%n %a %u:%g' app app/main"
                         " app/conf.txt two . && ls /texts && cat /srv/other/here", user="root")
        self.assertEqual(listed, "main\nconf\napp 755 0:0\napp/main 755 0:0\napp/conf.txt 640 0:0\ntwo 600 33:44\n"
                         ". 755 0:0\none.txt\ntwo.txt\nhere\n")

    def test_what_the_cache_notices(self):
        self.base()
        text = "FROM base\nCOPY app /app/\nCOPY two.txt /\nRUN echo after > /after\n"
        self.built(text, context=context())
        _, log = self.built(text, context=context())
        self.assertEqual(len(self.cached(log)), 3)
        # What no source can match makes no difference, and neither do owners and times.
        info, data = entry("app/main", b"main\n", 0o755, 7, 8)
        info.mtime = 1
        _, log = self.built(text, context=context(entry("one.txt", b"other\n"), (info, data)))
        self.assertEqual(len(self.cached(log)), 3)
        for changed, hits in ((entry("two.txt", b"3\n"), ["COPY app /app/"]), (entry("app/main", b"Main\n", 0o755), []),
                              (entry("app/main", b"main\n", 0o700), []), (entry("app/new", b""), []),
                              (entry("app/link", kind=tarfile.SYMTYPE, link="conf.txt"), [])):
            _, log = self.built(text, context=context(changed))
            self.assertEqual(self.cached(log), hits, changed[0].name)
        # The same files again in another order, and a pattern that matches more than was sent before.
        _, log = self.built(text, context=tar(*reversed(FILES[4:]), *FILES[:4]))
        self.assertEqual(len(self.cached(log)), 3)

    def test_the_cache_notices_what_links_lead_to(self):
        self.base()
        links = (entry("to", kind=tarfile.SYMTYPE, link="app"), entry("one.link", kind=tarfile.SYMTYPE, link="one.txt"))
        hard = entry("app/hard", kind=tarfile.LNKTYPE, link="one.txt")
        for step, more in (("COPY one.link /x", links), ("COPY to/conf.txt /x", links), ("COPY *.link /x", links),
                           ("COPY app /x/", (hard,))):
            with self.subTest(step=step):
                text = f"FROM base\n{step}\n"
                self.built(text, context=context(*more))
                _, log = self.built(text, context=context(*more))
                self.assertEqual(len(self.cached(log)), 1)
                changed = entry("app/conf.txt" if "conf" in step else "one.txt", b"changed\n")
                _, log = self.built(text, context=context(changed, *more))
                self.assertEqual(self.cached(log), [])
                self.assertIn("changed", self.sh("built", "cat /x /x/hard 2>/dev/null", user="root"))

    def test_from_stages_and_images(self):
        self.base()
        self.loaded(Image(tar(entry("data", mode=0o755), entry("data/file", b"of the image\n", 0o640, 3, 4))).oci(),
                    "name=data")
        dockerfile = ("FROM base AS make\nRUN echo made > /made && echo left > /left\n"
                      "FROM base AS other\nRUN echo other > /other\n"
                      "FROM base\nRUN echo first > /first\nCOPY --from=make /made /m/\nCOPY --from=1 /other /other\n"
                      "COPY --from=data /data /data\nCOPY --from=base /etc/passwd /copy\n")
        made, log = self.built(dockerfile)
        self.assertEqual(self.sh("built", "cat /m/made /other /data/file /first; ls /left 2>&1; stat -c %u:%g"
                                 " /data/file", user="root").splitlines()[:4],
                         ["made", "other", "of the image", "first"])
        again, log = self.built(dockerfile)
        self.assertEqual(len(self.cached(log)), 7)
        self.assertEqual(made["layers"], again["layers"])

    def test_stages_that_do_not_need_each_other_run_side_by_side(self):
        """Each of two steps waits for the other to begin: one after the other they would never end."""
        self.base()
        begun = self.begin("FROM base AS a\nRUN echo a-begun; sleep 1000\n"
                           "FROM base AS b\nRUN echo b-begun; sleep 1000\n"
                           "FROM base\nCOPY --from=a /x /\nCOPY --from=b /x /\n").json["id"]

        def both():
            log = self.d.ask("GET", f"/v1/templates/builds/{begun}/log").body
            return b"a-begun" in log and b"b-begun" in log
        wait_until("both run", both)
        self.assertEqual(self.d.ask("DELETE", f"/v1/templates/builds/{begun}").status, 204)

    def test_scratch(self):
        made, _ = self.built("FROM scratch\nCOPY one.txt /\n", context=context())
        self.assertEqual(len(made["layers"]), 1)

    def test_the_dockerfile_in_the_context(self):
        self.base()
        text = b"FROM base\nCOPY one.txt /copied\n"
        self.built(None, context=context(entry("sub", mode=0o755), entry("sub/File", text)), path="sub/File")
        self.assertEqual(self.sh("built", "cat /copied"), "1\n")
        build, _ = self.run_build(None, "bad", context=context(), path="none")
        self.assertEqual(build["error"]["message"], "none: the context has no such file")

    def test_refusals(self):
        self.base()
        for text, message in (
                ("COPY none.txt /\n", "line 2: COPY none.txt /: "), ("COPY no*.x /\n", "line 2: COPY no*.x /: "),
                ("COPY one.txt two.txt /x\n", "line 2: COPY one.txt two.txt /x: "),
                ("COPY --from=9 /x /\n", "line 2: COPY: --from=9: there is no such stage before this one"),
                ("COPY --from=not-there /x /\n", "line 2: FROM not-there: there is no template not-there"),
                ("COPY --from=host /x /\n", "line 2: COPY: --from=host: it has no layers to copy from"),
                ("ADD http://example.test/x /\n", "line 2: ADD: http://example.test/x: sources of the network"),
                ("COPY --chown=nobody-here one.txt /\n", "nobody-here"),
                ("COPY --checksum=x one.txt /\n", "line 2: COPY: the flag --checksum is not supported"),
                ("COPY one.txt\n", "line 2: COPY: expected at least one source and a destination")):
            with self.subTest(text=text):
                begun = self.begin("FROM base\n" + text, "bad", context=True)
                if begun.status == 201:
                    number = begun.json["id"]
                    self.d.ask("PUT", f"/v1/templates/builds/{number}/context", context(),
                               headers={"Content-Type": "application/x-tar"})
                    error = self.wait(number)["error"]
                else:
                    error = begun.json["error"]
                self.assertIn(message, error["message"])
        self.refused_build("FROM base\nCOPY x /\n", "line 2: COPY: the build has no context to copy from")

    def test_here_documents(self):
        self.base()
        text = ("FROM base\nENV V='a b'\nCOPY --chown=5:6 --chmod=640 <<one.sh <<-\"two\" /here/\necho \"$V\"\none.sh\n"
                "\techo $V\ntwo\nCOPY <<EOF /etc/own\nEOF\n"
                "RUN cat /here/one.sh /here/two; stat -c '%a %u:%g %s' /here/one.sh /etc/own\n")
        _, log = self.built(text)
        self.assertEqual(self.output(log), 'echo "a b"\necho $V\n640 5:6 11\n644 0:0 0\n')
        _, log = self.built(text)
        self.assertEqual(len(self.cached(log)), 3)
        _, log = self.built(text.replace("echo $V\n", "echo other\n"))
        self.assertEqual(len(self.cached(log)), 0)
        for source, message in (("COPY <<A one.txt /x/\nA\n", "here-documents and other sources need an instruction"),
                                ("COPY --from=base <<A /x\nA\n", "here-documents and other sources need an instr")):
            self.refused_build("FROM base\n" + source, message)

    def test_a_context_that_is_none(self):
        self.base()
        for data, message in ((b"x" * 2000, "the context: "), (b"", "x: there is no such file")):
            build, _ = self.run_build("FROM base\nCOPY x /\n", "bad", context=data)
            self.assertEqual(build["state"], "failed")
            self.assertIn(message, build["error"]["message"])
        self.assertEqual(self.places()[1], [])

    def test_the_command_line_sends_a_directory(self):
        self.base()
        self.addCleanup(self.d.ask, "DELETE", "/v1/templates/cli-copy")
        top = os.path.join(self.d.dir, "context-copy")
        os.makedirs(os.path.join(top, "sub"))
        for name, text in (("Dockerfile", "FROM base\nCOPY . /all/\n"), ("kept", "kept\n"), ("sub/deep", "deep\n"),
                           ("left.tmp", "left\n"), (".dockerignore", "*.tmp\n")):
            with open(os.path.join(top, name), "w", encoding="ascii") as f:
                f.write(text)
        got = subprocess.run([BRIG, "template", "build", "-t", "cli-copy", top], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=self.d.env, timeout=120, check=False)
        self.assertEqual((got.returncode, got.stdout), (0, b"cli-copy\n"), got)
        self.assertEqual(self.sh("cli-copy", "cd /all && cat kept sub/deep; ls"), "kept\ndeep\nDockerfile\nkept\nsub\n")
        # A Dockerfile that lies elsewhere has its patterns beside it; they take the place of .dockerignore.
        other = os.path.join(self.d.dir, "Other")
        for name, text in ((other, "FROM base\nCOPY . /all/\n"),
                           (other + ".dockerignore", "kept\nsub\n.dockerignore\n")):
            with open(name, "w", encoding="ascii") as f:
                f.write(text)
        got = subprocess.run([BRIG, "template", "build", "--replace", "-t", "cli-copy", "-f", other, top],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.d.env, timeout=120, check=False)
        self.assertEqual(got.returncode, 0, got)
        self.assertEqual(self.sh("cli-copy", "ls -A /all"), "Dockerfile\nleft.tmp\n")

    def test_the_service_leaves_out_what_dockerignore_names(self):
        self.base()
        files = (entry("Dockerfile", b"FROM base\nCOPY . /all/\nRUN cd /all; ls -A . sub 2>/dev/null; true\n"),
                 entry("kept", b"kept\n"), entry("left.tmp", b"left\n"), entry("sub"), entry("sub/a", b"a\n"),
                 entry("sub/b", b"b\n"), entry("gone"), entry("gone/x", b"x\n"),
                 entry("link", kind=tarfile.SYMTYPE, link="gone/x"))
        patterns = b"*.tmp\nsub\n!sub/b\ngone\nDockerfile\n.dockerignore\n"

        def build(*more, **options):
            log = self.built(None, context=tar(*files, *more), **options)[1]
            return self.output(log), [text for text in self.cached(log) if "COPY" in text]
        whole = "\n".join((".:", "Dockerfile", "gone", "kept", "left.tmp", "link", "sub", "", "sub:", "a", "b", ""))
        left = "\n".join((".:", "kept", "link", "sub", "", "sub:", "b", ""))
        self.assertEqual(build()[0], whole)
        ignore = entry(".dockerignore", patterns)
        self.assertEqual(build(ignore), (left, []))
        # What is left out makes no difference, and to leave it out before makes none either.
        self.assertEqual(build(entry("more.tmp", b"1"), ignore), ("", ["COPY . /all/"]))
        sent = [f for f in files if f[0].name not in ("left.tmp", "sub", "sub/a", "gone", "gone/x")]
        log = self.built(None, context=tar(*sent, ignore), no_cache=True)[1]
        self.assertEqual(self.output(log), left)
        # FILE.dockerignore counts instead; `dockerignore` says that the sender has done it.
        self.assertEqual(build(ignore, entry("Dockerfile.dockerignore", b"**\n!kept\n"))[0], ".:\nkept\n")
        self.assertIn("left.tmp", build(ignore, dockerignore=False)[0])
        text = "FROM base\nCOPY %s /x/\n"
        for source, message in (("left.tmp", "there is no such file: the context's .dockerignore leaves it out"),
                                ("gone", "there is no such file"), ("link", "there is no such file"),
                                ("*.tmp", "no file matches it"), ("gone/", "there is no such file")):
            build_, _ = self.run_build(text % source, "bad", context=tar(*files, ignore))
            self.assertIn(message, build_["error"]["message"])
        build_, _ = self.run_build(text % "kept", "bad", context=tar(*files, entry(".dockerignore", b"a\n[\n")))
        self.assertIn("the context: .dockerignore: line 2: [", build_["error"]["message"])
        # A bind has none of it either.
        _, log = self.built("FROM base\nRUN --mount=target=/c ls /c\n", context=tar(*files, ignore))
        self.assertEqual(self.output(log), "kept\nlink\nsub\n")


if __name__ == "__main__":
    unittest.main()
