# SPDX-License-Identifier: Apache-2.0
"""A test waits for an event that proves the order: it does not sleep to see that nothing happened.  It asserts no time.

Looked for in the syntax trees of our Python tests: time.sleep() that is not the pause of a `while` loop which looks for
something, and assertions over time.monotonic(), directly or by a name that holds a difference of it; and in the lines
of our unit tests in C: a sleep that is no pause of a loop.  Programs that are text for a sandbox are not looked at.

Where a clock is what is tested, or nothing tells that the moment has come and the test is right whenever it comes, the
line says so: `# clock: why` in Python, `/* clock: why */` in C.
"""

import ast
import re
import unittest

from tree import ROOT, bare_c, files, name

CLOCKS = ("monotonic", "perf_counter")
REASON = re.compile(r"(?:#|/\*) clock: \S+ \S+ \S")  # at least three words
SLEEPS = re.compile(r"\b(?:nanosleep|clock_nanosleep|usleep|sleep|pg_sleep)\s*\(|\bpoll\s*\(\s*NULL\s*,")
LOOPS = re.compile(r"(?<!\} )\bwhile\s*\(|\bdo\s*\{")
MOST = 23  # lines with a reason: who finds an event instead makes it smaller


def calls(node, names):
    found = [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return [n for n in found if n.func.attr in names]


def spans(tree):
    """Names that hold a difference of two times."""
    held = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.value, ast.BinOp)
            and isinstance(n.value.op, ast.Sub) and calls(n.value, CLOCKS)]
    return {t.id for n in held for t in n.targets if isinstance(t, ast.Name)}


def waits(text):
    """The lines of a module that wait for time to pass, or assert it."""
    tree, found = ast.parse(text), []
    names = spans(tree)

    def judges(node):
        return any(calls(a, CLOCKS) or any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(a))
                   for a in node.args[:2])

    def look(node, looped):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value.id if isinstance(node.func.value, ast.Name) else None
            sleeps = (module, node.func.attr) == ("time", "sleep")
            if (sleeps and not looped) or (node.func.attr.startswith("assert") and judges(node)):
                found.append(node.lineno)
        inside = isinstance(node, ast.While) or (looped and not isinstance(node, (ast.FunctionDef, ast.Lambda)))
        for child in ast.iter_child_nodes(node):
            look(child, inside)

    look(tree, False)
    return found


def waits_c(text):
    """The lines that sleep and are not within four lines of the head of a loop that looks for something."""
    lines = bare_c(text, strings=False).split("\n")
    return [n for n, line in enumerate(lines, 1) if SLEEPS.search(line)
            and not any(LOOPS.search(before) for before in lines[max(0, n - 5):n])]


def bare(text, found):
    """Of these lines, those that give no reason."""
    lines = text.split("\n")
    return [n for n in found if not REASON.search(lines[n - 1])]


class Waits(unittest.TestCase):
    def every(self):
        kinds = ("e2e", "lint", "hostile", "compat", "providers")
        tests = [path for kind in kinds for path in files(ROOT / "tests" / kind, {".py"})]
        units = files(ROOT / "tests/unit", {".c", ".h"})
        self.assertTrue(tests and units)
        for path in tests + units:
            text = path.read_text(encoding="utf-8")
            yield path, text, waits(text) if path.suffix == ".py" else waits_c(text)

    def test_no_test_waits_for_time_to_pass(self):
        bad = [f"{name(path)}:{n}" for path, text, found in self.every() for n in bare(text, found)]
        self.assertEqual(bad, [])

    def test_reasons_do_not_become_more(self):
        self.assertLessEqual(sum(len(found) for _, _, found in self.every()), MOST)

    def test_the_check_bites(self):
        self.assertEqual(waits("import time\ntime.sleep(1)\nwhile not there():\n    time.sleep(0.1)\n"), [2])
        self.assertEqual(waits("for i in x:\n    time.sleep(1)\n"), [2])
        self.assertEqual(waits("self.assertLess(time.monotonic() - began, 5)\n"), [1])
        self.assertEqual(waits("took = time.monotonic() - began\nself.assertLess(took, 5)\n"), [2])
        self.assertEqual(waits("program = 'time.sleep(1000)'\n"), [])
        self.assertEqual(waits_c("void f(void)\n{\n    usleep(5);\n}\n"), [3])
        self.assertEqual(waits_c("while (!done())\n    nanosleep(&t, NULL);\n/* sleep(1) */\n"), [])
        self.assertEqual(bare("time.sleep(1)\ntime.sleep(1)  # clock: the key lives for a second\n", [1, 2]), [1])
        self.assertEqual(bare("time.sleep(1)  # clock: so\n", [1]), [1])
