# SPDX-License-Identifier: Apache-2.0
"""House rules that a program can check: licence lines, banned functions, file sizes, no paths of a developer's
machine."""

import pathlib
import re
import subprocess
import tempfile
import unittest

from tree import ROOT, bare_c, c_comments, dialect, files, name

CODE = {".c", ".h", ".inc", ".S", ".py", ".sh", ".js", ".ts", ".map"}
NAMED = {"meson.build", "meson_options.txt", "Makefile", "run"}  # .ci/run
MAX_LINES = 600
MAX_TEST_LINES = 850  # tables of cases are long and flat
MAX_COLUMNS = 120  # of code; documents have 100 (test_documents.py)
MAX_CORPUS = 100 * 1024
CLANG_FORMAT = "14"  # Debian 12's; each version breaks lines in its own way
BANNED_H = "src/base/banned.h"
# Banned in tests and examples too.  src/ obeys all of banned.h; a probe may call atoi on an argument that our own
# driver wrote.
WIDE = {".c", ".h", ".inc", ".py", ".sh", ".js"}
MESON = {"meson.build", "meson_options.txt"}
EVERYWHERE = "strcpy strcat sprintf vsprintf gets system popen strtok alloca mktemp tmpnam tempnam".split()


COPY = re.compile(r'\bsnprintf\((?:[^()";]|\([^()]*\))*"%s"\s*,')  # with nothing but the text in it


def text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def sources():
    return [p for p in files(ROOT, None) if (p.suffix in CODE or p.name in NAMED) and "corpus" not in p.parts]


def too_long(line):
    """An address cannot be broken: it may stand alone on a line of its own."""
    return len(line) > MAX_COLUMNS and not re.fullmatch(r"\W*https?://\S+\W*", line)


def clang_format(*args):
    return subprocess.run(["clang-format", *args], cwd=ROOT, capture_output=True, text=True)


def misformatted(paths):
    """The lines that clang-format would change."""
    told = clang_format("--dry-run", "-Werror", "--style=file:" + str(ROOT / ".clang-format"), *map(str, paths))
    return [line for line in told.stderr.splitlines() if ": error: " in line] or [told.stderr] * bool(told.returncode)


def banned_names():
    """banned.h is the one list; it stops only files that include it, so its words are looked for in all of src/."""
    return re.findall(r"\bBANNED\((\w+)\)$", text_of(ROOT / BANNED_H), re.M)


def banned_in(text, names):
    """(line, function) of every call, in C without comments and strings."""
    bare = bare_c(text)
    # Not a member (x->system, x.system) and not part of a longer word.
    for hit in re.finditer(r"(?<![\w.>])(" + "|".join(names) + r")\s*\(", bare):
        yield bare.count("\n", 0, hit.start()) + 1, hit.group(1)


def bad_comment(comment):
    """What is wrong with a comment, or "": dialect, or a closing alone below text that begins beside the opening."""
    lines = comment[2:-2].split("\n")
    paragraphs = [re.sub(r"^[ \t]*\*?[ \t]?", "", line).strip() for line in lines]
    flat = re.sub(r"(?<!\n)\n(?!\n)", " ", "\n".join(paragraphs))
    alone = len(lines) > 1 and paragraphs[0] and not lines[-1].strip(" \t*")
    return (dialect(flat) + (["*/ alone"] if alone else []) + [""])[0]


class Sources(unittest.TestCase):
    def check(self, bad):
        self.assertTrue(sources(), "no sources: this would pass on an empty tree")
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_spdx_line(self):
        wanted = "SPDX-License-Identifier: Apache-2.0"
        self.check([name(p) for p in sources() if wanted not in "\n".join((text_of(p) or "").splitlines()[:3])
                    and (text_of(p) or "").strip()])

    def test_no_banned_functions(self):
        full, bad = banned_names(), []
        self.assertLessEqual(set(EVERYWHERE), set(full), f"{BANNED_H} lacks a function")
        for path in sources():
            if path.suffix in (".c", ".h", ".inc") and name(path) != BANNED_H:
                names = full if name(path).startswith(("src/", "include/")) else EVERYWHERE
                bad += [f"{name(path)}:{line}: {what}" for line, what in banned_in(text_of(path) or "", names)]
        self.check(bad)

    def test_the_ban_bites(self):
        self.assertEqual(list(banned_in('x = 1;\n  strcpy(a, b); /* sprintf( */ "gets("', EVERYWHERE)), [(2, "strcpy")])
        self.assertEqual(list(banned_in("o->system(1); my_system(2); vsnprintf(a, b, c, d); fgets(a);", EVERYWHERE)),
                         [])

    def test_no_copy_that_cuts(self):
        """A name that is cut is another name: str_copy() and str_assign() never cut, str_cut() is for messages."""
        bad = []
        for path in files(ROOT / "src", (".c", ".h")):
            text = text_of(path)
            bad += [f"{name(path)}:{text.count(chr(10), 0, hit.start()) + 1}" for hit in COPY.finditer(text)]
        self.check(bad)
        self.assertTrue(COPY.search('snprintf(a->b, sizeof(a->b), "%s", f(x));'))
        self.assertFalse(COPY.search('snprintf(a, 9, "%s/%s", b, c); snprintf(a, 9, "%u" "%s", b, c);'))

    def test_comments_are_plain_english(self):
        """What a machine can see of it: no sentence begins with "Of", plain words, and no comment that a formatter
        has pushed out of its form."""
        self.check([f"{name(p)}:{line}: {bad}" for p in sources() if p.suffix in (".c", ".h", ".inc")
                    for line, comment in c_comments(text_of(p) or "") if (bad := bad_comment(comment))])

    def test_the_rule_for_comments_bites(self):
        for comment in ("/* Of a claim. */", "/*\n * It is so. Of a\n * claim. */", "/* As the original. */",
                        "/* A long line of text.\n */", "/*\n * A requirement\n * set.\n */"):
            self.assertTrue(bad_comment(comment), comment)
        for comment in ("/* One of a claim, and\n * of that. */", "/*\n * A block.\n */", "/* original */", "/**/"):
            self.assertFalse(bad_comment(comment), comment)
        self.assertEqual(list(c_comments('x = "/* no */"; /* yes\n */\n')), [(1, "/* yes\n */")])

    def test_file_length(self):
        self.check([f"{name(p)}: {n} lines" for p in sources() if (n := len((text_of(p) or "").splitlines()))
                    > (MAX_TEST_LINES if name(p).startswith("tests/") else MAX_LINES)])

    def test_line_length(self):
        self.check([f"{name(p)}:{n}: {len(line)} columns" for p in sources()
                    if p.suffix in WIDE or p.name in MESON
                    for n, line in enumerate((text_of(p) or "").splitlines(), 1) if too_long(line)])

    def test_the_line_length_bites(self):
        self.assertTrue(too_long("x" * 121))
        self.assertTrue(too_long("# " + "word " * 25))
        self.assertFalse(too_long("é" * 120))
        self.assertFalse(too_long("// https://example.org/" + "x" * 120))

    def test_clang_format(self):
        version = re.search(r"version (\d+)", clang_format("--version").stdout)[1]
        if version != CLANG_FORMAT:
            self.skipTest(f"clang-format {version}: that of Debian 12 is {CLANG_FORMAT}")
        ours = [p for top in ("src", "include", "tests", "examples") for p in files(ROOT / top, {".c", ".h"})]
        self.check(misformatted(ours))
        with tempfile.TemporaryDirectory() as top:
            bad = pathlib.Path(top, "x.c")
            bad.write_text("int x=1;\n", encoding="utf-8")
            self.assertTrue(misformatted([bad]), "the check does not bite")

    def test_no_path_of_this_machine(self):
        """The clone's own path, found at run time, stands in no file; nor does a person's home."""
        here = re.compile(r"(?<![\w./-])" + re.escape(str(ROOT)) + r"(?=[/\s\"']|$)") if len(ROOT.parts) > 2 else None
        homes = re.compile(r"(?<![\w./-])/(?:home/(?!user\b|tester\b|plain\b|\$|\{|%)\w+|Users/\w+)/\w")
        bad = []
        for path in files(ROOT):
            text = text_of(path)
            if text is None or "corpus" in path.parts:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if (here and here.search(line)) or homes.search(line):
                    bad.append(f"{name(path)}:{number}: {line.strip()[:120]}")
        self.check(bad)

    def test_no_document_outside_the_tree(self):
        """What a reader of this tree cannot open is not referred to."""
        outside = re.compile(r"\bletta\.md\b|\battacks\.md\b|\bseeds/\d|\.\./shared\b|shared/data|\(DESIGN\b")
        bad = []
        for path in files(ROOT):
            text = text_of(path)
            if text is None or "corpus" in path.parts or path.name == "test_sources.py":
                continue
            bad += [f"{name(path)}:{number}" for number,
                    line in enumerate(text.splitlines(), 1) if outside.search(line)]
        self.check(bad)

    def test_corpora_are_small(self):
        targets, bad = sorted((ROOT / "tests/fuzz/corpus").iterdir()), []
        self.assertTrue(targets, "no corpora")
        for target in targets:
            if target.is_dir():
                size = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
                if size > MAX_CORPUS:
                    bad.append(f"{name(target)}: {size} bytes, more than {MAX_CORPUS}")
        self.check(bad)

    def test_no_trailing_blanks(self):
        bad = []
        for path in sources():
            text = text_of(path) or ""
            bad += [f"{name(path)}:{n}" for n, line in enumerate(text.splitlines(), 1) if line != line.rstrip()]
            if text and not text.endswith("\n"):
                bad.append(f"{name(path)}: no newline at the end")
        self.check(bad)


if __name__ == "__main__":
    unittest.main()
