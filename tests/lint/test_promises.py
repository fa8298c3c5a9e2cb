# SPDX-License-Identifier: Apache-2.0
"""Every promise of the documents is kept by a test, and that test exists.

tests/PROMISES.md holds tables of three columns: promise | where promised | test ids.  An id is one of

    unit:test_x.c:function      e2e:test_x.py:Class.test     lint:test_x.py:Class.test    long:test_x.py:Class.test
    compat:test_x.py:Class.test repro:test_x.py:Class.test
    hostile:CASE                vm:name                      bench:name                   fuzz:name

in backquotes or separated by blanks or commas.  A document may mark a promise by `<!-- promise: name -->`; the name must then
stand in the table, in the column "where promised", as document#name.
"""

import ast
import re
import unittest

from tree import ROOT, files, name

PROMISES = ROOT / "tests/PROMISES.md"
KINDS = "unit e2e lint long compat repro hostile vm bench fuzz".split()
ID = re.compile(r"\b(" + "|".join(KINDS) + r"):([^\s,`|<]+)")
MARK = re.compile(r"<!--\s*promise:\s*([\w.-]+)\s*-->")


def rows():
    """(line number, promise, where, tests) of every row of every table."""
    found = []
    for number, line in enumerate(PROMISES.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            continue
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if set("".join(cells)) <= set("-: ") or cells[0].lower() == "promise":
            continue
        found.append((number, cells))
    return found


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
        if path.suffix in (".py", ".c", ".h", ".sh", ".json", ".toml", ".txt", ".inc") and pattern.search(path.read_text("utf-8", "replace")):
            return None
    return f"no {what} {word} below {name(top)}"


def missing(kind, rest):
    """Why the test does not exist, or None."""
    if kind == "unit":
        file, _, function = rest.partition(":")
        path = ROOT / "tests/unit" / file
        if not path.is_file():
            return f"no file tests/unit/{file}"
        if not function or not re.search(rf"\b{re.escape(function)}\s*\(\s*(?:UNUSED\s+)?void\s*\*\*", path.read_text(encoding="utf-8")):
            return f"no test function {function or '(none named)'} in tests/unit/{file}"
        return None
    if kind in ("e2e", "lint", "long", "compat", "repro"):
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


if __name__ == "__main__":
    unittest.main()
