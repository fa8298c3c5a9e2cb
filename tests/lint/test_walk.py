# SPDX-License-Identifier: Apache-2.0
"""The walk of a tool call in docs/ARCHITECTURE.md is true.

Each row of its table names a function, its file, and an earlier function of the walk that leads to it.  The function
must be defined in that file, stand in the table once, and be named (called, or handed out as a callback) in the body of
the function that leads to it, or in one that this function reaches within its own file.  Where the way goes through a
table of functions, the row names the file of that table, and the function must stand there.
"""

import re
import unittest

from tree import ROOT, bare_c

HEADING = "## A tool call"
STEPS = "check environment deps place send result receipt".split()
NOT_ONE = r"static const|struct \w+ \{|enum |typedef "
DEFINITION = re.compile(rf"^(?!{NOT_ONE})[a-z][\w \*]*?\b(\w+)\([^;{{}}]*\)\n\{{\n(.*?)^\}}", re.M | re.S)
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| `([\w/.]+)` \| (?:`(\w+)`(?:, through `([\w/.]+)`)?|the server) \|", re.M)


def walk(text):
    section = re.search(rf"^{re.escape(HEADING)}\n(.*?)(?=^## )", text, re.M | re.S)
    return [row.groups() for row in ROW.finditer(section.group(1))] if section else []


def functions(text):
    """The functions of a source with their bodies."""
    return dict(DEFINITION.findall(bare_c(text)))


def names(body):
    return set(re.findall(r"\b[a-z_]\w*\b", body))


def reached(bodies, start):
    """Every name in the body of start, and in those of the functions of its file that it leads to."""
    seen, todo = set(), [start]
    while todo:
        new = names(bodies[todo.pop()]) - seen
        seen |= new
        todo += [n for n in new if n in bodies]
    return seen


def faults(rows, read):
    """What is wrong with a walk; read(path) gives a source, or None."""
    bad, known = [], {}
    for number, (index, function, path, caller, table) in enumerate(rows, 1):
        text = read(path)
        bodies = functions(text) if text is not None else {}
        if int(index) != number:
            bad.append(f"row {index}: should be {number}")
        if function not in bodies:
            bad.append(f"row {index}: {path} has no function {function}")
        if (function, path) in [k[:2] for k in known.values()]:
            bad.append(f"row {index}: {function} was named before")
        if number == 1:
            if caller:
                bad.append("row 1: nobody of the walk can lead to it")
        elif caller not in known:
            bad.append(f"row {index}: {caller} is not an earlier function of the walk")
        elif table:
            if function not in names(bare_c(read(table) or "")):
                bad.append(f"row {index}: {function} does not stand in {table}")
        elif known[caller][2] and function not in reached(known[caller][2], caller):
            bad.append(f"row {index}: {caller} does not lead to {function}")
        known[function] = (function, path, bodies if function in bodies else None)
    return bad


def source(path):
    file = ROOT / "src" / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


class Walk(unittest.TestCase):
    def setUp(self):
        self.rows = walk((ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))

    def test_the_walk_is_true(self):
        self.assertGreater(len(self.rows), 10, "no walk: this would pass on an empty table")
        self.assertFalse(bad := faults(self.rows, source), "\n" + "\n".join(bad))

    def test_every_step_is_in_it_in_order(self):
        steps = [row[1].removeprefix("step_") for row in self.rows if row[1].startswith("step_")]
        self.assertEqual(steps, STEPS)
        values = re.search(r"enum run_step \{(.*?)\}", source("run/run_priv.h"), re.S).group(1)
        values = [v.lower() for v in re.findall(r"\bSTEP_(\w+)", bare_c(values))]
        self.assertEqual(values, [*STEPS, "max"], "enum run_step has one value per step")
        for step in STEPS:
            self.assertIn(f"step_{step}", functions(source(f"run/step_{step}.c") or ""), f"src/run/step_{step}.c")

    def test_the_walk_bites(self):
        files = {"a.c": "int one(int x)\n{\n    return of(x);\n}\n\nstatic int of(int x)\n{\n    return two(x);\n}\n",
                 "b.c": "int two(int x)\n{\n    return x; /* three(x) */\n}\n\nint three(int x)\n{\n    return x;\n}\n",
                 "t.c": "static const fn table[] = {three};\n"}
        good = [("1", "one", "a.c", None, None), ("2", "two", "b.c", "one", None), ("3", "three", "b.c", "two", "t.c")]
        self.assertEqual(faults(good, files.get), [])
        for change, word in (((2, "three", "b.c", "two", None), "does not lead"),  # only a comment names it
                             ((2, "three", "a.c", "two", "t.c"), "no function"),
                             ((2, "three", "b.c", "two", "a.c"), "does not stand"),
                             ((2, "three", "b.c", "four", None), "not an earlier"),
                             ((2, "two", "b.c", "one", None), "named before")):
            at, *row = change
            rows = [*good[:at], (str(at + 1), *row)]
            self.assertIn(word, "\n".join(faults(rows, files.get)), row)


if __name__ == "__main__":
    unittest.main()
