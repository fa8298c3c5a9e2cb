# SPDX-License-Identifier: Apache-2.0
"""What the documents repeat from the sources is still what the sources say: names, orders, fields, files."""

import re
import subprocess
import sys
import unittest

from tree import ROOT, bare_c, dialect

ARCHITECTURE = "docs/ARCHITECTURE.md"
GENERATED = ("FILES.md", "PROVIDERS-TABLE.md")


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def section(path, title):
    """From a heading to the next of its level or above."""
    hit = re.search(rf"^(#+) {re.escape(title)}$", text_of(path), re.M)
    if not hit:
        raise AssertionError(f"{path} has no heading {title!r}")
    rest = text_of(path)[hit.end() :]
    end = re.search(rf"^#{{1,{len(hit.group(1))}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def enum(path, name, prefix):
    body = re.search(rf"enum {name} \{{(.*?)\}}", text_of(path), re.S).group(1)
    return [w for w in re.findall(rf"\b{prefix}(\w+)", bare_c(body)) if w != "MAX"]


def first_cells(text):
    """The words in backquotes of the first cell of each row."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def pages():
    """Every page that people write; the others are generated."""
    top = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGES.md", "runtimes/README.md"]
    return top + sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md") if p.name not in GENERATED)


def prose(text):
    """(number, line) of what is not code: fenced blocks, and blocks of four blanks after an empty line."""
    fenced, indented, before = False, False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced, before = not fenced, line
            continue
        indented = line.startswith("    ") and (indented or not before.strip())
        if line.strip():
            before = line if not indented else before
        else:
            before = ""
        if not fenced and not indented:
            yield number, line


def too_wide(text):
    """Lines of more than 100 columns, except rows of tables (they cannot be broken) and long words, such as a URL."""
    return [number for number, line in prose(text)
            if len(line) > 100 and not line.startswith("|") and max(map(len, line.split())) <= 70]


def long_cells(text):
    """Rows of tables with a cell of more than 160 characters: that is a paragraph, and belongs below the table."""
    rows = [(number, re.split(r"(?<!\\)\|", line)) for number, line in prose(text) if line.startswith("|")]
    return [number for number, row in rows
            if any(len(cell.strip()) > 160 and max(map(len, cell.split())) <= 160 for cell in row)]


def bad_words(text):
    flat = "\n".join(re.sub(r"^( *(?:[*-]|\d+\.) |[|] *)", "\0", line.strip()) for _, line in prose(text))
    return dialect(re.sub(r"(?<!\n)\n(?![\n\0])", " ", flat))


class Documents(unittest.TestCase):
    maxDiff = None

    def test_pages_are_at_most_100_columns_wide(self):
        bad = [f"{path}:{n}" for path in pages() for n in too_wide(text_of(path)) + long_cells(text_of(path))]
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_pages_are_plain_english(self):
        """No sentence begins with "Of", and things are called by their plain names (tree.py, dialect)."""
        bad = [f"{path}: {word}" for path in pages() for word in bad_words(text_of(path))]
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_manual_pages_are_plain_english(self):
        """A line of mdoc text that begins with "Of" is a sentence that does, also where a macro follows it."""
        bad = [f"{page.name}:{number}: {line}" for page in sorted((ROOT / "docs/man").glob("*.1"))
               for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
               if line == "Of" or dialect(line)]
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_the_glossary_is_short(self):
        """At most 30 lines, and the words that brig has coined are in it."""
        glossary = section(ARCHITECTURE, "Glossary").strip()
        self.assertLessEqual(len(glossary.splitlines()), 30)
        words = set(re.findall(r"^\* \*\*([a-z ]+)\*\*", glossary, re.M))
        coined = {"box", "certificate", "gate", "keep", "leaf", "mover", "park", "slot", "zygote"}
        self.assertLessEqual(coined, words)

    def test_the_rules_for_pages_bite(self):
        wide = "a word " * 20
        text = f"{wide}\n\n    {wide}\n\n```\n{wide}\n```\n| {wide} |\n* b\n    * {wide}\n"
        self.assertEqual(too_wide(text), [1, 10])
        self.assertEqual(long_cells(f"| a | {wide} |\n| {wide} {wide} | b |\n| {'9' * 300} |"), [2])
        for text in ("Of one thing.", "A thing.\nOf another.", "* Of it.", "| a | Of it |", "So: Of it.",
                     "As the\noriginal has it.", "It is what runs leave.", "A requirement\nset."):
            self.assertEqual(len(bad_words(text)), 1, text)
        self.assertFalse(bad_words("One of it, and\nof that.\n\n    Of code\n"))

    def test_require_all_is_the_enum(self):
        layers = [w.lower() for w in enum("include/brig.h", "brig_layer", "BRIG_LAYER_")]
        version = re.search(r"#define BRIG_REQUIRE_VERSION (\d+)", text_of("include/brig.h")).group(1)
        listed = re.search(r"```\n(.*?)```", section("SECURITY.md", f"`require: all`, version {version}"),
                           re.S).group(1).split()
        self.assertEqual(listed, layers[: layers.index("inodes") + 1])

    def test_what_the_whole_host_shares_is_tried(self):
        """Every row of the table names a hostile case or a test that exists; the one that is open says so."""
        sys.path.insert(0, str(ROOT / "tests/hostile"))
        import cases
        ids = {case.id for case in cases.CASES}
        rows = [line.strip().strip("|").split("|")
                for line in section(ROOT / "SECURITY.md", "What the whole host shares").splitlines()
                if line.startswith("| ")][1:]
        self.assertGreater(len(rows), 20)
        for row in rows:
            bounds, tests = row[2].strip(), row[3].strip()
            names = re.findall(r"\b[A-Z]\d\d(?:-[a-z]+)?\b", re.sub(r"`[^`]*`", "", tests))
            for name in names:
                self.assertIn(name, ids, row[0])
            files = re.findall(r"`e2e:(test_\w+\.py):\*\.(test_\w+)`", tests)
            for file, test in files:
                self.assertIn(f"def {test}(", text_of(ROOT / "tests/e2e" / file), row[0])
            self.assertEqual(tests == "none", "see below" in bounds, row[0])
            self.assertTrue(names or files or tests == "none", row[0])

    def test_every_layer_is_explained(self):
        layers = [w.lower() for w in enum("include/brig.h", "brig_layer", "BRIG_LAYER_")]
        table = section("SECURITY.md", "The layers").split("###")[0]
        self.assertEqual(first_cells(table), layers)

    def test_causes_in_order(self):
        causes = [w.lower().replace("_", "-") for w in enum("include/brig.h", "brig_cause", "BRIG_CAUSE_")]
        self.assertEqual(first_cells(section("docs/RECEIPT.md", "Causes")), causes)

    def test_receipt_fields(self):
        written = set(re.findall(r'json_key(?:_\w+)?\(json, "(\w+)"', text_of("src/receipt/receipt_json.c")))
        written |= set(re.findall(r'put_string\(json, "(\w+)"', text_of("src/receipt/receipt_json.c")))
        written |= set(re.findall(r'put_time\(json, "(\w+)"', text_of("src/receipt/receipt_json.c")))
        written |= set(re.findall(r'\{"(\w+)", u->', text_of("src/receipt/receipt_json.c")))
        told = {part for word in first_cells(section("docs/RECEIPT.md", "Fields")) for part in word.split(".")}
        self.assertEqual(told - {"stdout", "stderr", "stdout_encoding", "stderr_encoding"},
                         written - {"stdout", "stderr", "stdout_encoding", "stderr_encoding"})

    def test_set_up_order(self):
        stages = re.search(r"\bstages\[\] = \{(.*?)\n\};", text_of("src/jail/enter.c"), re.S).group(1)
        order = re.findall(r"\{SETUP_\w+, \w+, (\w+)\}", stages)
        rows = [line.split("|")[2]
                for line in section(ARCHITECTURE, "The set-up, in order").splitlines() if line.startswith("| ")]
        self.assertTrue(order)
        self.assertEqual([w for row in rows for w in re.findall(r"`(\w+)`", row)], order)

    def test_spawner_messages(self):
        types = enum("src/spawner/spawner_wire.h", "wire_type", "WIRE_TYPE_MAX|WIRE_")
        rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", section("docs/PROTOCOL.md", "Spawner messages"), re.M)
        self.assertEqual([(int(n), name) for n, name in rows],
                         [(i, t) for i, t in enumerate((t for t in types if t), 1)])

    def test_spawner_messages_have_these_sizes(self):
        """The compiler is asked; nothing is linked or run."""
        text = section("docs/PROTOCOL.md", "Spawner messages")
        same = {"POOL_FULL": "pool", "ATTACH": "plain", "STATS": "plain", "LIST": "plain", "ATTACHED": "answer",
                "FROZEN": "answer", "STATS_ARE": "stats", "COUNTED": "stats",
                "LISTED": "started", "LIST_END": "ready", "KEEP": "plain", "TAKE": "plain", "LAYER_DONE": "answer",
                "LAYERS": "plain", "DISKS": "plain"}
        facts = []
        for name, size in re.findall(r"^\| \d+ \| ([A-Z_]+) \| [^|]*\| (\d+) \|", text, re.M):
            facts.append(f"sizeof(struct wire_{same.get(name, name.lower())}) == {size}")
        head, run = text.split("**RUN**:")[0], text.split("**RUN**:")[1].split("**STARTED**")[0]
        for struct, table in (("wire_head", head), ("wire_run", run)):
            for offsets, names in re.findall(r"^\| ([\d, ]+) \| ((?:`\w+`,? ?)+)", table, re.M):
                for offset, name in zip(offsets.split(","), re.findall(r"`(\w+)`", names), strict=True):
                    facts.append(f"offsetof(struct {struct}, {name}) == {int(offset)}")
        self.assertGreater(len(facts), 20)
        code = '#include "spawner/spawner_wire.h"\n' + "".join(f'_Static_assert({f}, "PROTOCOL.md: {f}");\n'
                                                               for f in facts)
        done = subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only", f"-I{ROOT}/include",
                               f"-I{ROOT}/src", "-xc", "-"],
                              input=code, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_gate_messages(self):
        text = section("docs/PROTOCOL.md", "Gate messages")
        rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| \w+ \| (\d+) \|", text, re.M)
        types = enum("src/gate/gate_wire.h", "gate_type", "GATE_TYPE_MAX|GATE_")
        self.assertEqual([(int(n), name) for n, name, _ in rows],
                         [(i, t) for i, t in enumerate((t for t in types if t), 1)])
        same = {"LISTENING": "answer", "FORGOTTEN": "counted"}
        plain = ("CONTROL", "PING", "PONG", "READY", "COUNT", "FORGET", "SYNC", "SYNCED")
        code = '#include "gate/gate_wire.h"\n' + "".join(
            f'_Static_assert(sizeof(struct gate_{"plain" if name in plain else same.get(name, name.lower())}) == '
            f'{size}, "PROTOCOL.md: {name}");\n'
            for _, name, size in rows)
        done = subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only", f"-I{ROOT}/include",
                               f"-I{ROOT}/src", "-xc", "-"],
                              input=code, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_file_map(self):
        """docs/FILES.md is what the files say of themselves."""
        done = subprocess.run([sys.executable, ROOT / "tools/gen_map.py", "--check"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_table_of_providers(self):
        """docs/PROVIDERS-TABLE.md is what the suite that runs on every provider expects."""
        done = subprocess.run([sys.executable, ROOT / "tools/gen_providers.py", "--check"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_links_lead_somewhere(self):
        bad = []
        for path in [*pages(), *(f"docs/{name}" for name in GENERATED)]:
            text = "\n".join(line for _, line in prose(text_of(path)))
            for link in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", text):
                if "://" not in link and not ((ROOT / path).parent / link).exists():
                    bad.append(f"{path}: {link}")
        self.assertFalse(bad, "\n" + "\n".join(bad))


if __name__ == "__main__":
    unittest.main()
