# SPDX-License-Identifier: Apache-2.0
"""What a file of src/ exports has a caller in another file: who is alone with it makes it static, or deletes it.

The symbols are those of the objects that were built. A caller may be a test; the interface of include/brig.h has its
callers elsewhere, and a function that Python loads is named in a Python file of src/.
"""

import json
import os
import re
import subprocess
import unittest

from tree import ROOT, files

BUILD = os.environ.get("BRIG_BUILD_DIR", "")


def lonely(symbols, outside=()):
    """[(name, file)] of what is defined in one file and used in no other. symbols: (file, letter of nm, name)."""
    defined, used = {}, {}
    for file, letter, symbol in symbols:
        where = defined if letter in "TDBRVWC" else used if letter == "U" else None
        if where is not None:
            where.setdefault(symbol, set()).add(file)
    return sorted((symbol, file) for symbol, where in defined.items() for file in where
                  if file.startswith("src/") and symbol not in outside and not used.get(symbol, set()) - where)


def built():
    """(file, letter, name) of every symbol of every object."""
    with open(f"{BUILD}/compile_commands.json", encoding="utf-8") as f:
        commands = json.load(f)
    of = {c["output"]: os.path.relpath(os.path.realpath(os.path.join(c["directory"], c["file"])),
                                       os.path.realpath(ROOT))
          for c in commands if os.path.exists(f"{BUILD}/{c['output']}")}
    told = subprocess.run(["nm", "-A", *of], cwd=BUILD, capture_output=True, text=True, check=True).stdout
    return [(of[hit[1]], hit[2], hit[3]) for hit in re.finditer(r"^(\S+?):\S* +(\w) (\S+)$", told, re.M)]


def called_elsewhere():
    api = re.findall(r"^BRIG_API[^;]*?\b(brig_\w+)\(", (ROOT / "include/brig.h").read_text(encoding="utf-8"), re.M)
    python = " ".join(p.read_text(encoding="utf-8") for p in files(ROOT / "src", {".py"}))
    return {"main", "_start", *api, *re.findall(r"\bbrig_\w+", python)}


class Exports(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(f"{BUILD}/compile_commands.json"), "nothing is built")
    def test_every_export_has_a_caller_in_another_file(self):
        symbols = built()
        self.assertGreater(len({file for file, _, _ in symbols}), 400)
        self.assertEqual(lonely(symbols, called_elsewhere()), [])

    def test_the_check_bites(self):
        symbols = [("src/a.c", "T", "used"), ("src/b.c", "U", "used"), ("src/a.c", "T", "alone"),
                   ("src/a.c", "t", "own"),
                   ("src/a.c", "U", "alone"), ("tests/t.c", "T", "helper"), ("src/a.c", "B", "state")]
        self.assertEqual(lonely(symbols), [("alone", "src/a.c"), ("state", "src/a.c")])
        self.assertEqual(lonely(symbols, {"alone"}), [("state", "src/a.c")])


if __name__ == "__main__":
    unittest.main()
