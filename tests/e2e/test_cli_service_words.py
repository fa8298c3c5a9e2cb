# SPDX-License-Identifier: Apache-2.0
"""Words of a command line: all of them are judged before anything is done, and flags may stand anywhere but in a
command. And what a stranger's output and files may cost the one who reads them: -o json and cp are bounded, and holes
stay holes."""

import json
import os

from test_cli_service import CliTest

# Every verb with words, and enough of them. BOX is a sandbox that is there.
VERBS = """agent add NAME; agent rm ID; agent show ID; agent attach ID TOOL; approve ID; deny ID; \
cp BOX:/etc/hostname -;
env set NAME; env rm NAME; env show ID; exec BOX; inspect BOX; key revoke ID; logs BOX; ls BOX:; org create NAME;
org rm ID; pause BOX; resume BOX; stop BOX; rm BOX; policy set NAME FILE; policy show NAME; policy rm NAME;
policy check NAME HOST:1; port BOX 80; receipt show ID; secret set NAME; secret rm NAME; shell BOX; stats BOX;
tool add FILE; tool show NAME; tool rm NAME; tool run NAME; top BOX""".split(";")


class Words(CliTest):
    def state(self, box):
        return json.loads(self.ok("inspect", box))["state"]

    def test_flags_after_a_name(self):
        box = self.box()
        told = json.loads(self.ok("stop", box, "-o", "json"))
        self.assertEqual(told.get("id", told.get("sandbox_id")), box)

    def test_an_unknown_flag_does_nothing(self):
        box = self.box()
        for words in VERBS:
            with self.subTest(words):
                said = self.refused(*words.replace("BOX", box).split(), "--bogus", "x")
                self.assertEqual(said, "brig: --bogus: unknown flag\n")
        self.assertEqual(self.state(box), "running")

    def test_an_empty_word_does_nothing(self):
        box = self.box()
        for verb in ("pause", "stop", "rm"):
            with self.subTest(verb):
                self.refused(verb, box, "", said='"": an empty word is no sandbox')
        self.assertEqual(self.state(box), "running")

    def test_the_words_after_two_dashes_are_no_flags(self):
        self.refused("stop", "--", "-o", said="Sandbox -o not found")

    def test_exec_takes_flags_up_to_the_command(self):
        box = self.box()
        said = self.ok("exec", box, "-w", "/tmp", "-e", "A=b", "sh", "-c", "echo $A $PWD $1", "-o", "-q")
        self.assertEqual(said, "b /tmp -q\n")
        self.assertEqual(self.ok("exec", box, "--", "echo", "-w"), "-w\n")
        self.assertEqual(json.loads(self.ok("exec", box, "-o", "json", "echo", "-o", "x"))["stdout"], "-o x\n")

    def test_audit_judges_words_after_words(self):
        done = self.brig("audit", "show", "word", "--bogus")
        self.assertEqual((done.returncode, done.stdout), (2, b""), done)
        self.assertIn(b"--bogus: there is no such flag", done.stderr)


class Bounded(CliTest):
    MIB = 1 << 20

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box_id = cls.d.create(limits={"output": "64k", "disk": "64m"})["id"]

    def receipt(self, *flags):
        loud = "head -c 300000 /dev/zero | tr '\\0' x; head -c 1000 /dev/zero | tr '\\0' y >&2"
        return json.loads(self.ok("exec", "-o", "json", *flags, self.box_id, "sh", "-c", loud))

    def test_json_keeps_what_the_sandbox_keeps(self):
        got = self.receipt()
        self.assertEqual((len(got["stdout"]) + len(got["stderr"]), got["truncated"]["stdout"]), (65536, True))
        self.assertIn("output", got["outcome"]["limits_hit"])

    def test_json_keeps_what_is_asked_for(self):
        got = self.receipt("--output", "1k")
        self.assertEqual((len(got["stdout"]) + len(got["stderr"]), got["truncated"]["stdout"]), (1024, True))
        got = self.receipt("--output", "1m")
        self.assertEqual((len(got["stdout"]), len(got["stderr"])), (300000, 1000))
        self.assertEqual(got["truncated"], {"stdout": False, "stderr": False})

    def test_output_that_passes_through(self):
        done = self.brig("exec", "--output", "1000", self.box_id, "sh", "-c", "head -c 300000 /dev/zero")
        self.assertEqual((done.returncode, len(done.stdout)), (0, 1000))
        done = self.brig("exec", self.box_id, "sh", "-c", "head -c 300000 /dev/zero")
        self.assertEqual(len(done.stdout), 300000)

    def inside(self, command):
        return self.ok("exec", self.box_id, "sh", "-c", command)

    def assertHoles(self, path, size):
        st = os.stat(path)
        self.assertEqual(st.st_size, size)
        self.assertLess(st.st_blocks * 512, self.MIB)

    def test_holes_on_the_way_out(self):
        size = 32 * self.MIB
        self.inside(f"mkdir -p tree && truncate -s {size} tree/sparse && "
                    "printf data | dd of=tree/sparse bs=1 seek=5000001 conv=notrunc 2>&1")
        self.ok("cp", "-q", f"{self.box_id}:tree/sparse", self.path("file"))
        self.ok("cp", "-q", f"{self.box_id}:tree", self.path("copy"))
        for name in ("file", "copy/sparse"):
            self.assertHoles(self.path(name), size)
            with open(self.path(name), "rb") as f:
                content = f.read()
            self.assertEqual((content[5000001:5000005], content.count(0)), (b"data", size - 4))

    def test_holes_on_the_way_in(self):
        os.mkdir(self.path("up"))
        with open(self.path("up/sparse"), "wb") as f:
            f.seek(5000001)
            f.write(b"data")
            f.truncate(48 * self.MIB)
        self.ok("cp", "-q", self.path("up/sparse"), f"{self.box_id}:/workspace/one")
        self.ok("cp", "-q", self.path("up"), f"{self.box_id}:/workspace/two")
        for name in ("one", "two/sparse"):
            size, blocks, data = self.inside(f"stat -c '%s %b' {name}; tail -c +5000002 {name} | head -c 4").split()
            self.assertEqual((int(size), data), (48 * self.MIB, "data"))
            self.assertLess(int(blocks) * 512, self.MIB)
        self.inside("rm -r one two")

    def test_a_cap(self):
        """A file of any size costs nothing inside; outside it is not believed beyond what the sandbox could write."""
        self.inside("mkdir -p big && truncate -s 1g big/sparse")
        limit = 64 * self.MIB
        self.assertEqual(self.refused("cp", f"{self.box_id}:big/sparse", self.path("big")),
                         f"brig: {self.box_id}:big/sparse: more than {limit} bytes; --max allows more\n")
        self.assertEqual(self.refused("cp", f"{self.box_id}:big", self.path("tree")),
                         f"brig: sparse: with it the files are more than {limit} bytes; --max allows more\n")
        self.assertEqual((os.path.exists(self.path("big")), os.listdir(self.path("tree"))), (False, []))
        self.inside("truncate -s 100m big/sparse")
        self.ok("cp", "-q", "--max", "100m", f"{self.box_id}:big/sparse", self.path("big"))
        self.assertHoles(self.path("big"), 100 * self.MIB)
        self.refused("cp", "-q", "--max", "99m", f"{self.box_id}:big/sparse", self.path("less"),
                     said="more than 103809024 bytes")
