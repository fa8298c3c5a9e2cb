# SPDX-License-Identifier: Apache-2.0
"""A file whose code differs in the tests is compiled again for them, and no other file is.

The tests link the objects of the programs, except for the files with SYS() or `#ifdef BRIG_TEST`: a hook in a file that
src/meson.build does not list as one would never be reached, and the test that counts on it would pass.
"""

import json
import os
import re
import unittest

from tree import ROOT, bare_c, files, name

BUILD = os.environ.get("BRIG_BUILD_DIR", "")
HOOK = re.compile(r"\bSYS\(|\bBRIG_TEST\b")
# These declare hooks; what is inline in a header would be in the objects of every file that includes it.
HEADERS = {"src/base/mem.h", "src/egress/egress.h", "src/jail/sys.h", "src/sandbox/private.h", "src/store/store_ops.h"}
ONLY_PRODUCT = {"src/spawner/zygote_lib.c"}  # An interpreter loads it, where no knob reaches.
ONLY_TESTS = {"src/jail/inject.c"}


def problems(hooks, commands):
    """hooks: names of files with hooks; commands: (file, output, whether the hooks are on)."""
    again = {file for file, _, on in commands if on}
    library = {file for file, output, on in commands if on and output.startswith("tests/libbrig")}
    return sorted([f"{file} has hooks and is in no list of hooks" for file in hooks - again - ONLY_PRODUCT]
                  + [f"{file} is compiled again and has no hooks" for file in library - hooks - ONLY_TESTS])


def hooked(suffix):
    texts = ((p, p.read_text(encoding="utf-8")) for p in files(ROOT / "src", {suffix}))
    return {name(p) for p, text in texts if HOOK.search(text) and HOOK.search(bare_c(text))}


def built():
    with open(f"{BUILD}/compile_commands.json", encoding="utf-8") as f:
        commands = json.load(f)
    for c in commands:
        file = os.path.relpath(os.path.realpath(os.path.join(c["directory"], c["file"])), os.path.realpath(ROOT))
        if file.startswith("src/"):
            yield file, c["output"], "-DBRIG_TEST" in c["command"].split()


class Hooks(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(f"{BUILD}/compile_commands.json"), "nothing is built")
    def test_what_has_hooks_is_compiled_again_and_nothing_else(self):
        commands = list(built())
        self.assertTrue(any(on for _, _, on in commands))
        self.assertEqual(problems(hooked(".c"), commands), [])

    def test_no_other_header_has_hooks(self):
        self.assertEqual(hooked(".h"), HEADERS)

    def test_the_check_bites(self):
        commands = [("src/a.c", "src/libbrig.a.p/a.o", False), ("src/a.c", "tests/libbrigtest.a.p/a.o", True),
                    ("src/b.c", "src/libbrig.a.p/b.o", False), ("src/c.c", "tests/libbrigtest.a.p/c.o", True),
                    ("src/d.c", "tests/unit/test_d.p/d.o", True)]
        self.assertEqual(problems({"src/a.c", "src/b.c"}, commands),
                         ["src/b.c has hooks and is in no list of hooks",
                          "src/c.c is compiled again and has no hooks"])


if __name__ == "__main__":
    unittest.main()
