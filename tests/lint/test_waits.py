# SPDX-License-Identifier: Apache-2.0
"""A test waits for an event that proves the order: it does not sleep to see that nothing happened.  It asserts no time.

Found in the syntax trees of our Python tests: time.sleep() that is not the pause of a `while` loop which looks for
something, and assertions over time.monotonic().  Programs that are text for a sandbox are not looked at.  STILL says
how many each file has left; who removes one makes the number smaller, nobody makes it larger.
"""

import ast
import unittest

from tree import ROOT, files, name

STILL = {
    "tests/e2e/egresstest.py": 1, "tests/e2e/test_audit.py": 1, "tests/e2e/test_broker.py": 1,
    "tests/e2e/test_cli_service.py": 4, "tests/e2e/test_egress.py": 3, "tests/e2e/test_egress_control.py": 3,
    "tests/e2e/test_egress_ways.py": 3, "tests/e2e/test_gate_attacks.py": 1, "tests/e2e/test_gate_load.py": 2,
    "tests/e2e/test_guest.py": 2, "tests/e2e/test_jail_gate.py": 1, "tests/e2e/test_jail_service.py": 4,
    "tests/e2e/test_service_faults.py": 2, "tests/e2e/test_service_files.py": 3,
    "tests/e2e/test_service_hostile.py": 4, "tests/e2e/test_service_hostile_log.py": 1,
    "tests/e2e/test_service_hostile_inside.py": 6,
    "tests/e2e/test_service_keep.py": 3, "tests/e2e/test_service_life.py": 2, "tests/e2e/test_service_network.py": 4,
    "tests/e2e/test_service_sandboxes.py": 2, "tests/hostile/outer.py": 1, "tests/hostile/scenarios.py": 1,
    "tests/hostile/victim.py": 2,
}
CLOCKS = ("monotonic", "perf_counter")


def calls(node, names):
    found = [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return [n for n in found if n.func.attr in names]


def waits(text):
    """The lines of a module that wait for time to pass, or assert it."""
    found = []

    def look(node, looped):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value.id if isinstance(node.func.value, ast.Name) else None
            sleeps = (module, node.func.attr) == ("time", "sleep")
            judges = node.func.attr.startswith("assert") and any(calls(a, CLOCKS) for a in node.args)
            if (sleeps and not looped) or judges:
                found.append(node.lineno)
        inside = isinstance(node, ast.While) or (looped and not isinstance(node, (ast.FunctionDef, ast.Lambda)))
        for child in ast.iter_child_nodes(node):
            look(child, inside)

    look(ast.parse(text), False)
    return found


class Waits(unittest.TestCase):
    def test_no_test_waits_for_time_to_pass(self):
        kinds = ("e2e", "lint", "hostile", "compat")
        tests = [path for kind in kinds for path in files(ROOT / "tests" / kind, {".py"})]
        self.assertTrue(tests)
        found = {name(path): waits(path.read_text(encoding="utf-8")) for path in tests}
        more = [f"{path}: {STILL.get(path, 0)} allowed, lines {lines}" for path, lines in found.items()
                if len(lines) > STILL.get(path, 0)]
        self.assertEqual(more, [])

    def test_the_check_bites(self):
        self.assertEqual(waits("import time\ntime.sleep(1)\nwhile not there():\n    time.sleep(0.1)\n"), [2])
        self.assertEqual(waits("for i in x:\n    time.sleep(1)\n"), [2])
        self.assertEqual(waits("self.assertLess(time.monotonic() - began, 5)\n"), [1])
        self.assertEqual(waits("program = 'time.sleep(1000)'\n"), [])
