# SPDX-License-Identifier: Apache-2.0
"""Every promise of the documents is kept by a test, and that test exists.  Whether it passed is seen by
tests/promises.py.

tests/PROMISES.md holds tables of three columns: promise | where promised | test ids.  An id is one of

    unit:test_x.c:function      e2e:test_x.py:Class.test     lint:test_x.py:Class.test    long:test_x.py:Class.test
    compat:test_x.py:Class.test providers:test_x.py:Class.test repro:test_x.py:Class.test
    hostile:CASE                vm:name                      bench:name                   fuzz:name

in backquotes or separated by blanks or commas.  A document may mark a promise by `<!-- promise: name -->`; the name
must then stand in the table, in the column "where promised", as document#name.
"""

import ast
import pathlib
import re
import sys
import tempfile
import unittest

from tree import ROOT, files, name

sys.path.insert(0, str(ROOT / "tests"))

import promises  # noqa: E402
from promises import ID, PROMISES, rows  # noqa: E402

MARK = re.compile(r"<!--\s*promise:\s*([\w.-]+)\s*-->")


def python_has(path, dotted):
    if not path.is_file():
        return f"no file {name(path)}"
    cls, _, test = dotted.partition(".")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {c.name: c for c in tree.body if isinstance(c, ast.ClassDef)}
    if cls not in classes:
        return f"no class {cls} in {name(path)}"
    # A test may come from a base class of the same file.
    todo, names = [cls], set()
    while todo:
        c = classes.get(todo.pop())
        if c is not None:
            names |= {f.name for f in c.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))}
            todo += [b.id for b in c.bases if isinstance(b, ast.Name)]
    if test and test not in names:
        return f"no {dotted} in {name(path)}"
    return None


def word_in(word, top, what):
    if not top.is_dir():
        return f"no directory {name(top)}"
    pattern = re.compile(r"(?<![\w-])" + re.escape(word) + r"(?![\w-])")
    for path in files(top):
        if path.suffix in (".py", ".c", ".h", ".sh", ".json", ".toml", ".txt",
                           ".inc") and pattern.search(path.read_text("utf-8", "replace")):
            return None
    return f"no {what} {word} below {name(top)}"


def missing(kind, rest):
    """Why the test does not exist, or None."""
    if kind == "unit":
        file, _, function = rest.partition(":")
        path = ROOT / "tests/unit" / file
        if not path.is_file():
            return f"no file tests/unit/{file}"
        if not function or not re.search(rf"\b{re.escape(function)}\s*\(\s*(?:UNUSED\s+)?void\s*\*\*",
                                         path.read_text(encoding="utf-8")):
            return f"no test function {function or '(none named)'} in tests/unit/{file}"
        return None
    if kind in ("e2e", "lint", "long", "compat", "providers", "repro"):
        file, _, dotted = rest.partition(":")
        return python_has(ROOT / "tests" / kind / file, dotted)
    if kind == "hostile":
        return word_in(rest, ROOT / "tests/hostile", "case")
    if kind == "bench":
        return word_in(rest, ROOT / "tests/bench", "number")
    if kind == "fuzz":
        found = list((ROOT / "tests/fuzz").glob(f"*{rest}.c"))
        return None if found else f"no tests/fuzz/*{rest}.c"
    cases = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests/vm/guest").glob("*.sh"))
    carried = (ROOT / "tests/vm/carried.py").read_text(encoding="utf-8")
    if re.search(rf'^    yield "{re.escape(rest)}"', carried, re.M):
        return None
    return None if re.search(rf"^t_{re.escape(rest)}\(\)", cases, re.M) else f"no t_{rest}() in tests/vm/guest"


class Promises(unittest.TestCase):
    def test_every_row_names_a_test_that_exists(self):
        self.assertTrue(PROMISES.is_file(), "tests/PROMISES.md is missing")
        self.assertTrue(rows(), "tests/PROMISES.md holds no table")
        bad = []
        for number, cells in rows():
            if len(cells) != 3:
                bad.append(f"line {number}: {len(cells)} columns, not 3")
                continue
            ids = ID.findall(cells[2])
            if not ids:
                bad.append(f"line {number}: no test named: {cells[2]!r}")
            for kind, rest in ids:
                why = missing(kind, rest)
                if why:
                    bad.append(f"line {number}: {kind}:{rest}: {why}")
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_every_place_exists(self):
        bad = []
        for number, cells in rows():
            for doc in re.findall(r"[\w./-]+\.(?:md|[1-8])\b", cells[1] if len(cells) > 1 else ""):
                if not (ROOT / doc).is_file() and not (ROOT / "docs" / doc).is_file():
                    bad.append(f"line {number}: no document {doc}")
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_every_marked_promise_is_in_the_table(self):
        table = " ".join(cells[1] for _, cells in rows() if len(cells) > 1)
        bad = []
        for path in files(ROOT, {".md"}):
            if path == PROMISES:
                continue
            for mark in MARK.findall(path.read_text(encoding="utf-8")):
                if not re.search(r"#" + re.escape(mark) + r"(?![\w.-])", table):
                    bad.append(f"{name(path)}: promise {mark} is not in tests/PROMISES.md")
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_the_check_bites(self):
        self.assertIsNone(missing("lint", "test_promises.py:Promises.test_the_check_bites"))
        self.assertIsNone(missing("vm", "machine_controllers"))
        for kind, rest in (
            ("lint", "test_promises.py:Promises.test_gone"),
            ("unit", "test_nowhere.c:x"),
            ("hostile", "Z" + "99"),
            ("vm", "gone"),
        ):
            self.assertIsNotNone(missing(kind, rest), f"{kind}:{rest}")

    def test_every_row_has_a_test_that_ci_runs(self):
        bad = [f"line {number}: {cells[0]}" for number, cells in rows()
               if not any(kind in promises.BY_CI for kind, _ in ID.findall(cells[-1]))]
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_a_promise_is_kept_by_a_test_that_ran(self):
        with tempfile.TemporaryDirectory() as top:
            path = pathlib.Path(top, "PROMISES.md")
            path.write_text("| promise | where | tests |\n|---|---|---|\n"
                            "| one | x.md | `e2e:test_a.py:A.test_x` `vm:v` |\n| two | x.md | `hostile:C1` |\n"
                            "| three | x.md | `e2e:test_b.py:B` `bench:n` |\n", encoding="utf-8")

            def said(kinds, *results):
                return [line.partition(":")[2] for line in promises.broken(set(results), kinds, path)]

            test, ci = promises.BY_MAKE_TEST, promises.BY_CI
            kept = (("pass", "hostile:C1"), ("pass", "e2e:test_b.py:B.test_1"), ("skip", "e2e:test_b.py:B.test_2"))
            a, skipped = ("pass", "e2e:test_a.py:A.test_x"), ("skip", "e2e:test_a.py:A.test_x")
            self.assertEqual(said(test, a, *kept), [])
            self.assertEqual(said(test, *kept), ["3: e2e:test_a.py:A.test_x was not run"])
            self.assertEqual(said(test, ("pass", "e2e:test_a.py:A.test_xy"), *kept),
                             ["3: e2e:test_a.py:A.test_x was not run"])
            self.assertEqual(said(test, a, ("skip", "hostile:C1"), kept[1]), ["4: no test of it passed: two"])
            self.assertEqual(said(test, a, ("fail", "hostile:C1"), *kept), ["4: hostile:C1 failed"])
            self.assertEqual(said(test, skipped, *kept), [])
            self.assertEqual(said(ci, skipped, ("pass", "vm:v"), *kept), [])
            self.assertEqual(said(ci, a, *kept), ["3: vm:v was not run"])
            self.assertEqual(said(ci, skipped, ("skip", "vm:v"), *kept), ["3: no test of it passed: one"])


if __name__ == "__main__":
    unittest.main()
