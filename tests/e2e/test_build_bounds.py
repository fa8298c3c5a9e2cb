# SPDX-License-Identifier: Apache-2.0
"""What a build may take and what it leaves: programs of a RUN, memory, bytes on the disk, turns of the service."""

import io
import os
import socket
import tarfile
import unittest

from buildkit import BuildTest
from helpers import wait_until

MIB = 1 << 20


def tree(**files):
    """A context with these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return out.getvalue()


class Leftovers(BuildTest):
    def test_nothing_of_a_run_lives_when_its_layer_is_read(self):
        """A program that goes on writes a line to one file and then to another: the layer has both up to one moment."""
        self.base()
        script = "while :; do n=$((n + 1)); echo $n >> /z; echo $n >> /a; done"  # z is read last
        last = "while read x; do last=$x; done"
        made, log = self.built(f"FROM base\nRUN (/bin/sh -c '{script}' > /dev/null 2>&1 &)"
                               " ; until [ -s /a ]; do :; done; echo ready\n"
                               f"RUN {last} < /a; echo $last; {last} < /z; echo $last; set -- /proc/[0-9]*; echo $#\n")
        self.assertEqual(len(made["layers"]), 3)
        said = self.output(log).split()
        self.assertEqual(said[0], "ready")
        self.assertIn(int(said[2]) - int(said[1]), (0, 1))  # it was killed between the two lines, or not
        self.assertLess(int(said[3]), 8)


class Memory(BuildTest):
    CONFIG = "[templates]\nregistries = false\n"

    def rss(self):
        with open(f"/proc/{self.d.children()['brigd']}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def test_a_build_that_is_over_keeps_its_answer_only(self):
        """24 builds that had 20 MiB each: what is kept of them is less than a quarter of that."""
        self.base()
        text = (f"FROM base\nENV A={'x' * 100000}\n" + "USER $A\n" * 200 + "EXPOSE 0\n")
        self.run_build(text, "bad")  # what the first one needs stays
        before = self.rss()
        for _ in range(24):
            build, _ = self.run_build(text, "bad")
            self.assertEqual((build["state"], build["error"]["line"]), ("failed", 203))
        wait_until("the memory is given back", lambda: self.rss() - before < 24 * 20 * MIB // 4)
        build, log = self.run_build("FROM base\nRUN echo out; exit 3\n", "bad", target="0")
        kept = self.d.ask("GET", f"/v1/templates/builds/{build['id']}").json
        self.assertEqual((kept["name"], kept["target"], kept["error"]["output"]), ("bad", "0", "out\n"))
        self.assertEqual((kept, self.log(build["id"])), (build, log))


class Settings(BuildTest):
    """Each of these took half a second of the one thread and 267 MB, and ended with "out of memory"."""

    CONFIG = "[templates]\nregistries = false\n"
    MANY = "the build sets and uses more than 16384 variables, labels, ports and volumes"

    def test_how_many(self):
        self.base()
        for word, item in (("ENV", "v{}=1"), ("LABEL", "v{}=1"), ("ARG", "v{}=1"), ("EXPOSE", "{}"), ("VOLUME", "/{}")):
            items = " ".join(item.format(n) for n in range(1, 1027))
            build = self.refused_build(f"FROM base\n{word} {items}\n", f"line 2: {word}: 102")
            self.assertIn(" of them, and at most 1024 are allowed", build["error"]["message"])
            self.assertEqual(build["error"]["line"], 2)
        many = "ARG " + " ".join(f"v{n}=1" for n in range(1025)) + "\n"
        self.refused_build(many + "ARG a\nFROM base\n", "line 2: ARG: 1025 of them, and at most 1024 are allowed")
        self.refused_build("FROM base\n" + ("LABEL " + "a=1 " * 4000 + "\n") * 5, f"line 6: LABEL: {self.MANY}")
        self.refused_build("FROM base\nENV a=" + "$q" * 17000 + "\n", f"line 2: ENV: {self.MANY}")

    def test_how_large(self):
        self.base()
        for word in ("ENV", "LABEL"):
            build = self.refused_build(f"FROM base\n{word} a={'x' * (256 << 10)}\n",
                                       f"line 2: {word}: what the image says about itself takes ")
            self.assertTrue(build["error"]["message"].endswith("bytes, and at most 262144 are allowed"), build)
        self.refused_build(f"FROM base\nENV a={'x' * 100000}\nENV {'b=$a ' * 400}\n",
                           "line 3: ENV: the words of the build have more than 32 MiB with their variables replaced")

    def test_copies_with_many_words(self):
        self.base()
        build, _ = self.run_build("FROM base\n" + f"COPY {'f ' * 4000} /d/\n" * 5, context=tree(f=b""))
        self.assertEqual(build["state"], "done", build.get("error"))

    def test_what_stages_have_in_common_stays_apart(self):
        self.base()
        text = ("FROM base AS a\nENV x=1 y=2\nLABEL x=1 y=2\nEXPOSE 1\n"
                "FROM a AS b\nENV x=b z=b\nLABEL x=b z=b\nEXPOSE 2\nRUN echo > /b\n"
                "FROM a AS c\nCOPY --from=b /b /c\nENV x=c w=c\nLABEL x=c w=c\nEXPOSE 3\n")
        for target, env, labels, ports in (
                ("b", ["x=b", "y=2", "z=b"], {"base": "1", "x": "b", "y": "2", "z": "b"}, ["1/tcp", "2/tcp"]),
                ("c", ["x=c", "y=2", "w=c"], {"base": "1", "x": "c", "y": "2", "w": "c"}, ["1/tcp", "3/tcp"])):
            made, _ = self.built(text, target=target)
            self.assertEqual(made["image"]["env"][2:], env)
            self.assertEqual((made["image"]["labels"], made["image"]["exposed_ports"]), (labels, ports))


class Disk(BuildTest):
    CONFIG = '[sandbox]\ndisk = "8m"\n[manager]\norg_max_disk = "40m"\n[templates]\nregistries = false\n'

    def test_the_context_counts(self):
        self.base()
        begun = self.begin("FROM base\nCOPY big /\n", "bad", context=True).json["id"]
        refused = self.d.ask("PUT", f"/v1/templates/builds/{begun}/context", tree(big=bytes(64 * MIB)),
                             headers={"Content-Type": "application/x-tar"})
        self.refused(refused, 429, "limit", f"organization quota max_disk reached: limit {40 * MIB}")
        # The build says the same, and not that its context broke off.
        build = self.wait(begun)
        self.assertEqual((build["state"], build["error"]["message"]), ("failed", refused.json["error"]["message"]))
        self.assertEqual(self.places()[1], [])
        # Nothing of it counts any more.
        build, _ = self.run_build("FROM base\nCOPY big /\n", context=tree(big=bytes(4 * MIB)))
        self.assertEqual(build["state"], "done", build)
        self.d.ask("DELETE", "/v1/templates/built")

    def test_the_files_of_steps_count(self):
        self.base()
        script = "x=$(printf %01048576d 0); for n in 1 2 3; do for k in 1 2 3 4 5 6 7 8 9; do printf %s $x; done; done"
        build = self.refused_build(f"FROM base\nRUN ({script}) > /big\n", "max_disk reached: limit 41943040",
                                   limits={"disk": "36m"})
        self.assertEqual((build["error"]["code"], build["error"]["line"]), ("limit", 2))
        self.assertTrue(build["error"]["message"].endswith(f"asked {MIB}"), build)  # the file, not a sandbox
        wait_until("no file is left", lambda: self.places()[1] == [])

        def room():
            answer = self.d.ask("POST", "/v1/sandboxes", {})
            return answer.status == 201 and self.d.ask("DELETE", f"/v1/sandboxes/{answer.json['id']}").status == 204

        wait_until("the room of its sandbox is free again", room)


class Context(BuildTest):
    CONFIG = '[templates]\nregistries = false\nmax_image = "4m"\n'

    def test_a_context_that_is_too_large_says_so(self):
        self.base()
        begun = self.begin("FROM base\nCOPY big /\n", "bad", context=True).json["id"]
        refused = self.d.ask("PUT", f"/v1/templates/builds/{begun}/context", tree(big=bytes(8 * MIB)),
                             headers={"Content-Type": "application/x-tar"})
        self.refused(refused, 413, "too_large", "the context has more than 4 MiB ([templates] max_image)")
        build = self.wait(begun)
        self.assertEqual(build["error"]["message"], "the context has more than 4 MiB ([templates] max_image)")

    def test_a_context_that_breaks_off_says_so(self):
        self.base()
        begun = self.begin("FROM base\nCOPY big /\n", "bad", context=True).json["id"]
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.d.socket)
            s.sendall(f"PUT /v1/templates/builds/{begun}/context HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n"
                      "Content-Type: application/x-tar\r\n\r\n".encode() + bytes(1000))
        self.assertEqual(self.wait(begun)["error"]["message"], "the context broke off")


class Turns(BuildTest):
    CONFIG = "[templates]\nregistries = false\n"

    def test_many_steps_and_many_sources(self):
        """A build of 900 steps that make no layer, and a copy of 2,000 sources out of 5,000 files."""
        self.base()
        text = "FROM base\n" + "".join(f"ENV V{n % 50}={n}\n" for n in range(900)) + "RUN echo $V49\n"
        _, log = self.built(text)
        self.assertEqual(self.output(log), "899\n")
        files = {f"f{n}": b"%d" % n for n in range(5000)}
        names = " ".join(f"f{n}" for n in range(2000))
        text = f"FROM base\nCOPY {names} /many/\nRUN set -- /many/*; echo $#; cat /many/f1999\n"
        _, log = self.built(text, context=tree(**files))
        self.assertEqual(self.output(log).split(), ["2000", "1999"])
        _, log = self.built(text, context=tree(**{**files, "f4999": b"not copied"}))
        self.assertEqual(len(self.cached(log)), 2)
        _, log = self.built(text, context=tree(**{**files, "f1": b"other"}))
        self.assertEqual(self.cached(log), [])

    def test_long_sources_are_not_compared_with_every_file(self):
        """28 patterns of 3,900 characters and 10,000 files: the key has all files, so a change of any is noticed."""
        self.base()
        files = {"d/f": b"", **{f"f{n}": b"" for n in range(10000)}}
        text = "FROM base\nCOPY " + " ".join(f"d/[{'f' * (3900 + n)}]" for n in range(28)) + " /some/\n"
        self.built(text, context=tree(**files))
        _, log = self.built(text, context=tree(**files))
        self.assertEqual(len(self.cached(log)), 1)
        _, log = self.built(text, context=tree(**{**files, "f9999": b"not copied"}))
        self.assertEqual(len(self.cached(log)), 0)

    def test_a_build_is_cancelled_while_its_key_is_made(self):
        self.base()
        files = {f"f{n}": b"" for n in range(3000)}
        for _ in range(4):
            begun = self.begin("FROM base\nCOPY . /all/\n", "bad", context=True).json["id"]
            sent = self.d.ask("PUT", f"/v1/templates/builds/{begun}/context", tree(**files),
                              headers={"Content-Type": "application/x-tar"})
            self.assertEqual(sent.status, 202)
            self.assertEqual(self.d.ask("DELETE", f"/v1/templates/builds/{begun}").status, 204)
            self.assertIn(self.wait(begun)["state"], ("cancelled", "done"))
            self.d.ask("DELETE", "/v1/templates/bad")
        wait_until("no file is left", lambda: self.places()[1] == [])


if __name__ == "__main__":
    unittest.main()
